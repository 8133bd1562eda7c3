/* Adapters in a graph: adding, finding, merging. */
#include "llm/lora/lora.h"

#include <math.h>
#include <string.h>

#include "base/glob.h"
#include "base/options.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/threads.h"
#include "llm/write/matrix.h"
#include "ops/op_registry.h"

enum { NAME_MOST = 256, RANK_MOST = 4096 };

static const char ending_a[] = ".lora_A.weight", ending_b[] = ".lora_B.weight";
static const char beginning[] = "base_model.model.";

/* ---- layers ------------------------------------------------------------- */

static bool is_packed(const sb_node *n)
{
    return strcmp(n->op, "MatMulNBits") == 0 &&
           strcmp(n->domain, "com.microsoft") == 0;
}

/* A product with a weight, of a module; adapters are none. */
static bool is_layer(const sb_graph *g, const sb_node *n)
{
    if (n->dead || !n->module || !n->module[0])
        return false;
    if (is_packed(n))
        return true;
    if (!sb_node_is(n, "Gemm"))
        return false;
    const char *name = sb_graph_value(g, n->inputs[1])->name;
    const sb_node *cast = sb_graph_producer(g, n->inputs[1]);
    return (sb_is_const(g, n->inputs[1]) && !sb_name_is_adapter(name)) ||
           (cast && sb_node_is(cast, "Cast") &&
            sb_is_const(g, cast->inputs[0]));
}

/* Rows (results) and columns of a layer's weight. */
static sb_status layer_sizes(const sb_graph *g, const sb_node *n, int64_t *rows,
                             int64_t *cols)
{
    const sb_shape *w = &sb_graph_value(g, n->inputs[1])->type.shape;
    bool turned = !sb_node_int(n, "transB", 0);

    if (is_packed(n)) {
        *rows = sb_node_int(n, "N", 0);
        *cols = sb_node_int(n, "K", 0);
    } else if (w->rank == 2) {
        *rows = w->dim[turned ? 1 : 0];
        *cols = w->dim[turned ? 0 : 1];
    }
    if (w->rank < 2 || *rows < 1 || *cols < 1)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "node '%s': a weight of unknown size has no adapter",
                       sb_node_label(g, n));
    return SB_OK;
}

/* One of the names between `|`. */
static bool layer_is_named(const char *layers, const char *module)
{
    const char *last = strrchr(module, '.');
    char part[NAME_MOST];

    while (*layers) {
        size_t n = strcspn(layers, "|");

        if (n > 0 && n < sizeof part) {
            memcpy(part, layers, n);
            part[n] = '\0';
            if (sb_glob_match(part, module) ||
                sb_glob_match(part, last ? last + 1 : module))
                return true;
        }
        layers += n + (layers[n] == '|');
    }
    return false;
}

/* ---- adding ------------------------------------------------------------- */

static sb_status add_matrix(sb_graph *g, const char *module, const char *ending,
                            int64_t rows, int64_t cols, sb_rng *rng,
                            sb_value_id *out)
{
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 2, (int64_t[]){rows, cols});
    double most = 1 / sqrt((double)cols);
    sb_str name;

    sb_str_init(&name, g->ctx);
    sb_str_addf(&name, "%s%s%s", beginning, module, ending);
    sb_status status = sb_str_status(&name);
    if (status == SB_OK)
        status = sb_tensor_alloc_raw(g->ctx, &t);
    for (int64_t i = 0; status == SB_OK && i < rows * cols; i++)
        ((float *)t.data)[i] =
            rng ? (float)(most * (2 * sb_rng_uniform(rng) - 1)) : 0;
    if (status == SB_OK && sb_graph_find_value(g, name.data) != SB_NONE)
        status =
            sb_fail(g->ctx, SB_BAD_ARG, "'%s' has an adapter already", module);
    if (status == SB_OK)
        status = sb_graph_add_value(g, name.data, out);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, *out, &t);
    sb_tensor_drop(&t);
    sb_str_free(&name);
    return status;
}

static sb_status add_gemm(sb_graph *g, const sb_node *like, const char *name,
                          const sb_value_id *in, size_t n_in, float alpha,
                          sb_value_id *out)
{
    const sb_attr attrs[] = {
        {.name = "alpha", .type = SB_ATTR_FLOAT, .f = alpha},
        {.name = "transB", .type = SB_ATTR_INT, .i = 1}};
    const sb_node_spec spec = {.op = "Gemm",
                               .name = name,
                               .module = like->module,
                               .inputs = in,
                               .n_in = n_in,
                               .outputs = out,
                               .n_out = 1,
                               .attrs = attrs,
                               .n_attrs = SB_COUNT(attrs)};
    sb_node_id id;

    SB_TRY(sb_graph_add_value_like(g, name, out));
    return sb_graph_add_node(g, &spec, &id);
}

/* What the layer reads, before GPTQ's order of columns (arch_packed.c). */
static sb_value_id layer_input(const sb_graph *g, const sb_node *n)
{
    const sb_node *p = sb_graph_producer(g, n->inputs[0]);

    return is_packed(n) && p && sb_node_is(p, "Gather") &&
                   sb_node_int(p, "axis", 0) == 1 &&
                   sb_is_const(g, p->inputs[1])
               ? p->inputs[0]
               : n->inputs[0];
}

/* The same node with a result of its own, to which the adapter's is added. */
static sb_status add_adapter(sb_graph *g, sb_node_id id, const sb_lora *lora,
                             sb_rng *rng)
{
    const sb_node old = *sb_graph_node(g, id);
    int64_t rows = 0, cols = 0;
    sb_value_id a = SB_NONE, b = SB_NONE, y = SB_NONE, h = SB_NONE,
                out = SB_NONE;
    sb_node_id fresh;
    bool done = false;

    SB_TRY(layer_sizes(g, &old, &rows, &cols));
    if (sb_graph_value(g, old.inputs[0])->type.shape.rank != 2)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "node '%s': an adapter wants an input of rank 2",
                       sb_node_label(g, &old));
    SB_TRY(add_matrix(g, old.module, ending_a, lora->rank, cols, rng, &a));
    SB_TRY(add_matrix(g, old.module, ending_b, rows, lora->rank, NULL, &b));
    SB_TRY(sb_graph_add_value_like(g, "base", &y));
    const sb_node_spec spec = {.op = old.op,
                               .domain = old.domain,
                               .name = old.name,
                               .module = old.module,
                               .inputs = old.inputs,
                               .n_in = old.n_in,
                               .outputs = &y,
                               .n_out = 1,
                               .attrs = old.attrs,
                               .n_attrs = old.n_attrs};
    SB_TRY(sb_graph_add_node(g, &spec, &fresh));
    SB_TRY(add_gemm(g, &old, "lora_A", (sb_value_id[]){layer_input(g, &old), a},
                    2, 1, &h));
    SB_TRY(add_gemm(g, &old, "lora_B", (sb_value_id[]){h, b, y}, 3,
                    (float)(lora->alpha / (double)lora->rank), &out));
    SB_TRY(sb_graph_replace_value(g, old.outputs[0], out, &done));
    sb_graph_remove_node(g, id);
    return SB_OK;
}

sb_status sb_lora_add(sb_graph *g, const char *layers, const sb_lora *lora,
                      uint64_t seed)
{
    size_t n = g->n_nodes, found = 0;
    sb_rng rng;

    SB_TRY(sb_options_range(g->ctx, "rank", (double)lora->rank, 1, RANK_MOST));
    SB_TRY(sb_options_range(g->ctx, "alpha", lora->alpha, 0, 1e6));
    sb_rng_init(&rng, seed);
    for (sb_node_id id = 0; id < n; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (!is_layer(g, node) || !layer_is_named(layers, node->module))
            continue;
        SB_TRY(add_adapter(g, id, lora, &rng));
        found++;
    }
    if (found == 0)
        return sb_fail(g->ctx, SB_BAD_ARG,
                       "no layer is named '%s': want the last part of a "
                       "layer's name, such as q_proj",
                       layers);
    return sb_graph_infer(g);
}

/* ---- finding ------------------------------------------------------------ */

static bool is_factor(const sb_graph *g, sb_value_id v)
{
    const sb_tensor *t = v != SB_NONE ? sb_const_of(g, v) : NULL;

    return t && t->data && t->dtype == SB_DTYPE_F32 && t->rank == 2;
}

/* Is this the node that adds an adapter's result? */
static bool join_of(const sb_graph *g, sb_node_id id, sb_lora_layer *out)
{
    const sb_node *n = sb_graph_node(g, id);
    size_t begin = sizeof beginning - 1, end = sizeof ending_b - 1;

    if (n->dead || !sb_node_is(n, "Gemm") || n->n_in != 3 ||
        n->inputs[2] == SB_NONE)
        return false;
    const char *name = sb_graph_value(g, n->inputs[1])->name;
    size_t len = strlen(name);
    const sb_node *h = sb_graph_producer(g, n->inputs[0]);
    const sb_node *base = sb_graph_producer(g, n->inputs[2]);
    if (len <= begin + end || strcmp(name + len - end, ending_b) != 0 || !h ||
        !base || !sb_node_is(h, "Gemm") || !is_layer(g, base) || h->n_in < 2 ||
        !is_factor(g, n->inputs[1]) || !is_factor(g, h->inputs[1]))
        return false;
    *out = (sb_lora_layer){.base = sb_graph_value(g, n->inputs[2])->producer,
                           .join = id,
                           .a = h->inputs[1],
                           .b = n->inputs[1],
                           .module = base->module,
                           .factor = (double)sb_node_float(n, "alpha", 1)};
    return true;
}

sb_status sb_lora_find(const sb_graph *g, sb_lora_list *out)
{
    sb_lora_layer one;

    *out = (sb_lora_list){0};
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (join_of(g, id, &one)) {
            SB_TRY(sb_grow(g->ctx, &out->v, &out->cap, out->n + 1,
                           sizeof *out->v));
            out->v[out->n++] = one;
        }
    return SB_OK;
}

/* ---- merging ------------------------------------------------------------ */

static sb_matrix layer_matrix(const sb_graph *g, const sb_node *n, int64_t rows,
                              int64_t cols)
{
    const sb_node *cast =
        is_packed(n) ? NULL : sb_graph_producer(g, n->inputs[1]);
    sb_value_id w =
        cast && sb_node_is(cast, "Cast") ? cast->inputs[0] : n->inputs[1];
    sb_matrix m = {.rows = rows,
                   .cols = cols,
                   .t = &sb_graph_value(g, w)->constant,
                   .turned = !is_packed(n) && !sb_node_int(n, "transB", 0)};

    if (!is_packed(n))
        return m;
    m.bits = (int)sb_node_int(n, "bits", 4);
    m.group = sb_node_int(n, "block_size", 32);
    m.scales = &sb_graph_value(g, n->inputs[2])->constant;
    if (n->n_in > 3 && n->inputs[3] != SB_NONE)
        m.zeros = &sb_graph_value(g, n->inputs[3])->constant;
    return m;
}

typedef struct merge_job {
    sb_matrix m;
    const float *a, *b; /* [rank, cols], [rows, rank] */
    int64_t rank;
    double factor;
    float *to;
} merge_job;

static void merge_rows(void *arg, size_t begin, size_t end)
{
    const merge_job *job = arg;
    int64_t cols = job->m.cols;

    for (size_t r = begin; r < end; r++) {
        float *to = job->to + (int64_t)r * cols;

        sb_matrix_floats(&job->m, (int64_t)r, to);
        for (int64_t i = 0; i < cols; i++) {
            double sum = 0;

            for (int64_t j = 0; j < job->rank; j++)
                sum += (double)job->b[(int64_t)r * job->rank + j] *
                       (double)job->a[j * cols + i];
            to[i] += (float)(job->factor * sum);
        }
    }
}

/* MODULE.weight, which an old weight gives up. */
static sb_status add_merged(sb_graph *g, const char *module, const sb_tensor *t,
                            sb_value_id *out)
{
    sb_str name;

    sb_str_init(&name, g->ctx);
    sb_str_addf(&name, "%s.weight", module);
    sb_status status = sb_str_status(&name);
    sb_value_id old =
        status == SB_OK ? sb_graph_find_value(g, name.data) : SB_NONE;
    if (old != SB_NONE) {
        sb_str_add(&name, ".packed");
        status = sb_str_status(&name);
        if (status == SB_OK)
            status = sb_graph_rename_value(g, old, name.data);
        if (status == SB_OK)
            name.data[name.len - strlen(".packed")] = '\0';
    }
    if (status == SB_OK)
        status = sb_graph_add_value(g, name.data, out);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, *out, t);
    sb_str_free(&name);
    return status;
}

/* Is the layer a matrix, and nothing besides? */
static sb_status merge_check(const sb_graph *g, const sb_node *base,
                             const sb_matrix *m)
{
    if (!sb_matrix_fits(m))
        return sb_fail(g->ctx, SB_BAD_MODEL,
                       "node '%s': its weight, scales and zero points do not "
                       "fit, or are no constants",
                       sb_node_label(g, base));
    if (!is_packed(base) && (sb_node_int(base, "transA", 0) ||
                             fabsf(sb_node_float(base, "alpha", 1) - 1) > 0 ||
                             fabsf(sb_node_float(base, "beta", 1) - 1) > 0))
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "node '%s': alpha, beta or transA is set",
                       sb_node_label(g, base));
    return SB_OK;
}

static sb_status merge_layer(sb_graph *g, const sb_lora_layer *l)
{
    const sb_node base = *sb_graph_node(g, l->base);
    const sb_node join = *sb_graph_node(g, l->join);
    const sb_tensor *a = &sb_graph_value(g, l->a)->constant;
    const sb_tensor *b = &sb_graph_value(g, l->b)->constant;
    int64_t rows = 0, cols = 0;
    sb_value_id w = SB_NONE, y = SB_NONE, bias = SB_NONE;
    uint32_t at = is_packed(&base) ? 5 : 2;
    const sb_attr trans = {.name = "transB", .type = SB_ATTR_INT, .i = 1};
    sb_node_id fresh;
    bool done = false;

    SB_TRY(layer_sizes(g, &base, &rows, &cols));
    if (layer_input(g, &base) != base.inputs[0] ||
        (is_packed(&base) && base.n_in > 4 && base.inputs[4] != SB_NONE))
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "node '%s': its columns are in the order of g_idx",
                       sb_node_label(g, &base));
    const sb_matrix m = layer_matrix(g, &base, rows, cols);
    if (a->dims[1] != cols || b->dims[0] != rows || a->dims[0] != b->dims[1])
        return sb_fail(g->ctx, SB_BAD_MODEL,
                       "the adapter of '%s' does not fit [%lld, %lld]",
                       l->module, (long long)rows, (long long)cols);
    SB_TRY(merge_check(g, &base, &m));
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 2, (int64_t[]){rows, cols});
    SB_TRY(sb_tensor_alloc_raw(g->ctx, &t));
    merge_job job = {.m = m,
                     .a = a->data,
                     .b = b->data,
                     .rank = a->dims[0],
                     .factor = l->factor,
                     .to = t.data};
    sb_parallel_for(g->ctx, (size_t)rows, 16, merge_rows, &job);
    sb_status status = add_merged(g, l->module, &t, &w);
    sb_tensor_drop(&t);
    SB_TRY(status);
    if (base.n_in > at)
        bias = base.inputs[at];
    const sb_value_id in[] = {base.inputs[0], w, bias};
    SB_TRY(sb_graph_add_value_like(g, "merged", &y));
    const sb_node_spec spec = {.op = "Gemm",
                               .name = base.name,
                               .module = base.module,
                               .inputs = in,
                               .n_in = bias != SB_NONE ? 3 : 2,
                               .outputs = &y,
                               .n_out = 1,
                               .attrs = &trans,
                               .n_attrs = 1};
    SB_TRY(sb_graph_add_node(g, &spec, &fresh));
    return sb_graph_replace_value(g, join.outputs[0], y, &done);
}

sb_status sb_lora_merge(sb_graph *g)
{
    sb_lora_list list;
    sb_status status = sb_lora_find(g, &list);

    for (size_t i = 0; i < list.n && status == SB_OK; i++)
        status = merge_layer(g, &list.v[i]);
    sb_free(g->ctx, list.v);
    SB_TRY(status);
    (void)sb_graph_remove_dead(g);
    return sb_graph_infer(g);
}
