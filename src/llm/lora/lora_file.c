/* Adapters as files of PEFT.
 *
 * PEFT's names and matrices are those of Hugging Face's library, whose rotary
 * embeddings turn the halves of a head.  Where the graph turns neighbors (GGUF,
 * llama2.c) the rows of B that belong to queries and keys change places. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "llm/llm_checkpoint.h"
#include "llm/lora/lora.h"

static const char weights_name[] = "adapter_model.safetensors";
static const char config_name[] = "adapter_config.json";

/* ---- order of rows ------------------------------------------------------ */

/* Half a head, if neighbors are turned; else 0. */
static int64_t turned_half(const sb_graph *g)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *n = sb_graph_node(g, id);

        if (!n->dead && sb_node_is(n, "RotaryEmbedding")) {
            const sb_shape *c = &sb_graph_value(g, n->inputs[1])->type.shape;

            return sb_node_int(n, "interleaved", 0) && c->rank >= 2 &&
                           sb_dim_known(c->dim[c->rank - 1])
                       ? c->dim[c->rank - 1]
                       : 0;
        }
    }
    return 0;
}

static bool is_turned(const char *module)
{
    const char *last = strrchr(module, '.');

    last = last ? last + 1 : module;
    return strcmp(last, "q_proj") == 0 || strcmp(last, "k_proj") == 0;
}

/* Which row of the graph's matrix is row `r` of the file's. */
static int64_t row_of(int64_t half, int64_t r)
{
    if (half == 0)
        return r;
    int64_t head = r / (2 * half), i = r % (2 * half);
    return head * 2 * half + (i < half ? 2 * i : 2 * (i - half) + 1);
}

static int64_t half_of(const sb_graph *g, const sb_lora_layer *l)
{
    const sb_tensor *b = &sb_graph_value(g, l->b)->constant;
    int64_t half = is_turned(l->module) ? turned_half(g) : 0;

    return half > 0 && b->dims[0] % (2 * half) == 0 ? half : 0;
}

/* ---- writing ------------------------------------------------------------ */

static void put_entry(sb_str *out, const char *name, const sb_tensor *t,
                      uint64_t *at)
{
    uint64_t bytes = sb_tensor_bytes(t);

    sb_str_add(out, ",");
    sb_str_add_json(out, name);
    sb_str_addf(out,
                ":{\"dtype\":\"F32\",\"shape\":[%lld,%lld],"
                "\"data_offsets\":[%llu,%llu]}",
                (long long)t->dims[0], (long long)t->dims[1],
                (unsigned long long)*at, (unsigned long long)(*at + bytes));
    *at += bytes;
}

static sb_status lora_header(const sb_graph *g, const sb_lora_list *list,
                             sb_str *out)
{
    uint64_t at = 0;

    sb_str_add(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < list->n; i++) {
        const sb_value *a = sb_graph_value(g, list->v[i].a);
        const sb_value *b = sb_graph_value(g, list->v[i].b);

        put_entry(out, a->name, &a->constant, &at);
        put_entry(out, b->name, &b->constant, &at);
    }
    sb_str_add(out, "}");
    while (out->len % 8 != 0 && !out->failed)
        sb_str_add(out, " ");
    return sb_str_status(out);
}

static sb_status write_weights(const sb_graph *g, const sb_lora_list *list,
                               sb_writer *w)
{
    sb_str head;

    sb_str_init(&head, g->ctx);
    sb_status status = lora_header(g, list, &head);
    if (status == SB_OK) {
        uint8_t size[8];

        for (int i = 0; i < 8; i++)
            size[i] = (uint8_t)((uint64_t)head.len >> (8 * i));
        sb_writer_put(w, size, sizeof size);
        sb_writer_put(w, head.data, head.len);
    }
    sb_str_free(&head);
    for (size_t i = 0; status == SB_OK && i < list->n; i++) {
        const sb_tensor *a = &sb_graph_value(g, list->v[i].a)->constant;
        const sb_tensor *b = &sb_graph_value(g, list->v[i].b)->constant;
        int64_t half = half_of(g, &list->v[i]), rank = b->dims[1];

        sb_writer_put(w, a->data, sb_tensor_bytes(a));
        for (int64_t r = 0; r < b->dims[0]; r++)
            sb_writer_put(w, (const float *)b->data + row_of(half, r) * rank,
                          (size_t)rank * sizeof(float));
    }
    return status;
}

/* Modules are told apart by their last parts, as PEFT does. */
static void put_modules(const sb_lora_list *list, sb_str *out)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *dot = strrchr(list->v[i].module, '.');
        const char *last = dot ? dot + 1 : list->v[i].module;
        bool seen = false;

        for (size_t j = 0; j < i && !seen; j++) {
            const char *other = strrchr(list->v[j].module, '.');

            seen = strcmp(other ? other + 1 : list->v[j].module, last) == 0;
        }
        if (seen)
            continue;
        sb_str_add(out, i ? "," : "");
        sb_str_add_json(out, last);
    }
}

static sb_status write_config(const sb_graph *g, const sb_lora_list *list,
                              sb_writer *w)
{
    int64_t rank = sb_graph_value(g, list->v[0].a)->constant.dims[0];
    sb_str out;

    sb_str_init(&out, g->ctx);
    sb_str_addf(&out,
                "{\n  \"peft_type\": \"LORA\",\n"
                "  \"task_type\": \"CAUSAL_LM\",\n"
                "  \"base_model_name_or_path\": null,\n"
                "  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n"
                "  \"inference_mode\": true,\n  \"lora_dropout\": 0.0,\n"
                "  \"r\": %lld,\n  \"lora_alpha\": ",
                (long long)rank);
    sb_json_add_number(&out, list->v[0].factor * (double)rank);
    sb_str_add(&out, ",\n  \"target_modules\": [");
    put_modules(list, &out);
    sb_str_add(&out, "]\n}\n");
    sb_status status = sb_str_status(&out);
    if (status == SB_OK)
        sb_writer_put(w, out.data, out.len);
    sb_str_free(&out);
    return status;
}

static sb_status make_folder(sb_ctx *ctx, const char *folder)
{
    if (mkdir(folder, 0777) != 0 && !sb_is_folder(folder))
        return sb_fail(ctx, SB_IO, "%s: the folder cannot be made", folder);
    return SB_OK;
}

/* A file has one rank and one alpha for all. */
static sb_status check_same(const sb_graph *g, const sb_lora_list *list)
{
    for (size_t i = 1; i < list->n; i++)
        if (fabs(list->v[i].factor - list->v[0].factor) > 0 ||
            sb_graph_value(g, list->v[i].a)->constant.dims[0] !=
                sb_graph_value(g, list->v[0].a)->constant.dims[0])
            return sb_fail(g->ctx, SB_UNSUPPORTED,
                           "the adapters of '%s' and '%s' differ in rank or "
                           "alpha, of which a file has one",
                           list->v[0].module, list->v[i].module);
    return SB_OK;
}

sb_status sb_lora_save(const sb_graph *g, const char *folder)
{
    sb_ctx *ctx = g->ctx;
    char *weights = NULL, *config = NULL;
    sb_writer *first = NULL, *second = NULL;
    sb_lora_list list;
    sb_status status = sb_lora_find(g, &list);

    if (status == SB_OK && list.n == 0)
        status = sb_fail(ctx, SB_BAD_ARG, "the model has no adapters");
    if (status == SB_OK)
        status = check_same(g, &list);
    if (status == SB_OK)
        status = make_folder(ctx, folder);
    if (status == SB_OK) {
        weights = sb_path_join(ctx, folder, weights_name);
        config = sb_path_join(ctx, folder, config_name);
        status = weights && config ? SB_OK : SB_NO_MEMORY;
    }
    if (status == SB_OK)
        status = sb_writer_open(ctx, weights, &first);
    if (status == SB_OK)
        status = sb_writer_open(ctx, config, &second);
    if (status == SB_OK)
        status = write_weights(g, &list, first);
    if (status == SB_OK)
        status = write_config(g, &list, second);
    if (status == SB_OK)
        status = sb_writer_finish(first);
    if (status == SB_OK)
        status = sb_writer_finish(second);
    if (status == SB_OK) {
        status = sb_writer_commit(first);
        first = NULL;
    }
    if (status == SB_OK) {
        status = sb_writer_commit(second);
        second = NULL;
    }
    sb_writer_abort(first);
    sb_writer_abort(second);
    sb_free(ctx, weights);
    sb_free(ctx, config);
    sb_free(ctx, list.v);
    return status;
}

/* ---- reading ------------------------------------------------------------ */

/* Settings with which factors or layers are others. */
static bool says_more(const sb_json *root)
{
    static const char *const flags[] = {"use_rslora", "use_dora"};
    static const char *const maps[] = {"rank_pattern", "alpha_pattern"};

    for (size_t i = 0; i < SB_COUNT(flags); i++) {
        const sb_json *flag = sb_json_get(root, flags[i]);
        const sb_json *map = sb_json_get(root, maps[i]);

        if ((sb_json_is(flag, SB_JSON_BOOL) && flag->number != 0) ||
            (sb_json_is(map, SB_JSON_OBJECT) && map->child))
            return true;
    }
    return false;
}

static sb_status read_lora(sb_ctx *ctx, const char *path, sb_lora *out)
{
    sb_mapping map = {0};
    sb_json_doc *doc = NULL;

    SB_TRY(sb_file_map_input(ctx, path, &map));
    sb_status status =
        sb_json_read(ctx, path, map.data ? map.data : "", map.size, &doc);
    if (status == SB_OK) {
        const sb_json *r = sb_json_get(doc->root, "r");
        const sb_json *alpha = sb_json_get(doc->root, "lora_alpha");
        const char *type = sb_json_text(sb_json_get(doc->root, "peft_type"));

        if (!type || strcmp(type, "LORA") != 0 ||
            !sb_json_is(r, SB_JSON_NUMBER) ||
            !sb_json_is(alpha, SB_JSON_NUMBER) || r->number < 1 ||
            r->number > 65536)
            status = sb_fail(ctx, SB_BAD_DATA,
                             "%s: peft_type '%s', want LORA with r and "
                             "lora_alpha",
                             path, type ? type : "");
        else if (says_more(doc->root))
            status = sb_fail(ctx, SB_UNSUPPORTED,
                             "%s: use_rslora, use_dora, rank_pattern or "
                             "alpha_pattern is set, want one lora_alpha / r "
                             "for all layers",
                             path);
        else
            *out = (sb_lora){(int64_t)r->number, alpha->number};
    }
    if (doc)
        sb_json_free(doc);
    sb_file_unmap(&map);
    return status;
}

/* The matrix in the place of one that was added, of the same size. */
static sb_status take_matrix(sb_graph *g, const sb_checkpoint *c, sb_value_id v,
                             int64_t half)
{
    const sb_value *value = sb_graph_value(g, v);
    const sb_tensor *t = &value->constant;
    const sb_weight *w = sb_checkpoint_find(c, value->name);
    float *to = t->data;

    if (!w || w->rank != 2 || w->dims[0] != t->dims[0] ||
        w->dims[1] != t->dims[1] || w->format->unpack ||
        w->format->dtype == SB_DTYPE_I32)
        return sb_fail(g->ctx, SB_BAD_DATA,
                       "%s: want a tensor '%s' of floats [%lld, %lld]", c->path,
                       value->name, (long long)t->dims[0],
                       (long long)t->dims[1]);
    size_t row = w->bytes / (size_t)t->dims[0];
    for (int64_t r = 0; r < t->dims[0]; r++)
        sb_weight_to_f32(w->format,
                         (const char *)sb_weight_data(w) + (size_t)r * row,
                         to + row_of(half, r) * t->dims[1], (size_t)t->dims[1]);
    return SB_OK;
}

/* The modules that the file has, with `|` between them. */
static sb_status name_layers(const sb_checkpoint *c, sb_str *out)
{
    static const char begin[] = "base_model.model.", end[] = ".lora_A.weight";

    for (size_t i = 0; i < c->n; i++) {
        const char *name = c->weights[i].name;
        size_t n = strlen(name), a = sizeof begin - 1, b = sizeof end - 1;

        if (n <= a + b || strncmp(name, begin, a) != 0 ||
            strcmp(name + n - b, end) != 0)
            continue;
        sb_str_add(out, out->len ? "|" : "");
        sb_str_addn(out, name + a, n - a - b);
    }
    return sb_str_status(out);
}

static sb_status add_from(sb_graph *g, const sb_checkpoint *c,
                          const sb_lora *lora)
{
    sb_lora_list list = {0};
    sb_str layers;

    sb_str_init(&layers, g->ctx);
    sb_status status = name_layers(c, &layers);
    if (status == SB_OK && layers.len == 0)
        status =
            sb_fail(g->ctx, SB_BAD_DATA, "%s: there are no adapters", c->path);
    if (status == SB_OK)
        status = sb_lora_add(g, layers.data, lora, 0);
    if (status == SB_OK)
        status = sb_lora_find(g, &list);
    for (size_t i = 0; status == SB_OK && i < list.n; i++) {
        status = take_matrix(g, c, list.v[i].a, 0);
        if (status == SB_OK)
            status = take_matrix(g, c, list.v[i].b, half_of(g, &list.v[i]));
    }
    if (status == SB_OK && 2 * list.n != c->n)
        status = sb_fail(g->ctx, SB_BAD_DATA,
                         "%s: %zu tensors for %zu layers of the model: want "
                         "two for each",
                         c->path, c->n, list.n);
    sb_free(g->ctx, list.v);
    sb_str_free(&layers);
    return status;
}

sb_status sb_lora_load(sb_graph *g, const char *folder)
{
    sb_ctx *ctx = g->ctx;
    char *weights = sb_path_join(ctx, folder, weights_name);
    char *config = sb_path_join(ctx, folder, config_name);
    sb_checkpoint c;
    sb_lora lora;

    sb_checkpoint_init(&c, ctx, folder);
    sb_status status =
        weights && config ? read_lora(ctx, config, &lora) : SB_NO_MEMORY;
    if (status == SB_OK)
        status = sb_safetensors_load(&c, weights);
    if (status == SB_OK)
        status = add_from(g, &c, &lora);
    sb_checkpoint_free(&c);
    sb_free(ctx, weights);
    sb_free(ctx, config);
    return status;
}
