/* What builders of architectures share: nodes, names, attention, the frame. */
#include "llm/arch.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/op.h"

static void arch_note(sb_arch *a, sb_status status)
{
    if (a->status == SB_OK)
        a->status = status;
}

const char *sb_arch_name(sb_arch *a, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) {
        arch_note(a, sb_fail(a->ctx, SB_BAD_DATA,
                             "%s: the name '%.64s...' is "
                             "too long",
                             a->weights->path, text));
        return NULL;
    }
    const char *copy = sb_arena_strn(a->g->arena, text, (size_t)n);
    if (!copy)
        arch_note(a, SB_NO_MEMORY);
    return copy;
}

void sb_arch_find_prefix(sb_arch *a, const char *name, const char *other)
{
    static const char *const prefixes[] = {"", "model.", "transformer.",
                                           "language_model."};
    const char *names[] = {name, other};

    for (size_t i = 0; i < SB_COUNT(prefixes); i++)
        for (size_t k = 0; k < 2 && names[k]; k++) {
            const char *full = sb_arch_name(a, "%s%s", prefixes[i], names[k]);

            if (full && (sb_checkpoint_find(a->weights, full) ||
                         sb_checkpoint_why_not(a->weights, full))) {
                a->prefix = prefixes[i];
                return;
            }
        }
    a->prefix = "";
}

/* ---- nodes -------------------------------------------------------------- */

sb_value_id sb_arch_node(sb_arch *a, const char *module, const char *op,
                         const sb_value_id *in, size_t n_in,
                         const sb_attr *attrs, size_t n_attrs)
{
    const char *colons = strstr(op, "::");
    const char *stem =
        sb_arch_name(a, "%s.%s", module, colons ? colons + 2 : op);
    sb_value_id out = SB_NONE;
    sb_node_id id = SB_NONE;

    if (a->status != SB_OK)
        return SB_NONE;
    sb_node_spec spec = {.op = colons ? colons + 2 : op,
                         .domain = colons ? "com.microsoft" : "",
                         .name = stem,
                         .module = module,
                         .inputs = in,
                         .n_in = n_in,
                         .outputs = &out,
                         .n_out = 1,
                         .attrs = attrs,
                         .n_attrs = n_attrs};
    arch_note(a, sb_graph_add_value_as(a->g, stem, &out));
    if (a->status == SB_OK) {
        /* A module may have several of a kind; ONNX Runtime wants each node to
         * have a name of its own, and values have. */
        spec.name = sb_graph_value(a->g, out)->name;
        arch_note(a, sb_graph_add_node(a->g, &spec, &id));
    }
    return a->status == SB_OK ? out : SB_NONE;
}

sb_value_id sb_arch_binary(sb_arch *a, const char *module, const char *op,
                           sb_value_id x, sb_value_id y)
{
    return sb_arch_node(a, module, op, SB_ARCH_IN(x, y), NULL, 0);
}

sb_value_id sb_arch_unary(sb_arch *a, const char *module, const char *op,
                          sb_value_id x)
{
    return sb_arch_node(a, module, op, &x, 1, NULL, 0);
}

static sb_value_id arch_small(sb_arch *a, sb_dtype dtype, int rank,
                              const int64_t *dims, const void *v)
{
    sb_value_id out = SB_NONE;

    if (a->status == SB_OK)
        arch_note(a, sb_graph_add_constant(a->g, "const", dtype, rank, dims, v,
                                           &out));
    return out;
}

sb_value_id sb_arch_ints(sb_arch *a, const int64_t *v, size_t n)
{
    return arch_small(a, SB_DTYPE_I64, 1, &(int64_t){(int64_t)n}, v);
}

sb_value_id sb_arch_float(sb_arch *a, double x)
{
    float f = (float)x;

    return arch_small(a, SB_DTYPE_F32, 0, NULL, &f);
}

sb_value_id sb_arch_split_rows(sb_arch *a, const char *module, sb_value_id x,
                               int64_t n)
{
    const sb_attr axis = {.name = "axis", .type = SB_ATTR_INT, .i = 0};
    sb_value_id shape =
        sb_arch_node(a, module, "Concat",
                     SB_ARCH_IN(a->shape, sb_arch_ints(a, &n, 1)), &axis, 1);

    return sb_arch_binary(a, module, "Reshape", x, shape);
}

sb_value_id sb_arch_join_rows(sb_arch *a, const char *module, sb_value_id x,
                              int64_t n)
{
    return sb_arch_binary(a, module, "Reshape", x,
                          sb_arch_ints(a, (int64_t[]){-1, n}, 2));
}

sb_value_id sb_arch_attention(sb_arch *a, const char *module, sb_value_id q,
                              sb_value_id k, sb_value_id v, int64_t window)
{
    const sb_llm_config *c = a->config;
    sb_attr attrs[5] = {
        {.name = "is_causal", .type = SB_ATTR_INT, .i = 1},
        {.name = "q_num_heads", .type = SB_ATTR_INT, .i = c->heads},
        {.name = "kv_num_heads", .type = SB_ATTR_INT, .i = c->kv_heads},
    };
    size_t n = 3;

    if (c->attention_scale > 0 || c->attention_scale < 0)
        attrs[n++] = (sb_attr){.name = "scale",
                               .type = SB_ATTR_FLOAT,
                               .f = (float)c->attention_scale};
    if (window > 0)
        attrs[n++] = (sb_attr){
            .name = "left_window_size", .type = SB_ATTR_INT, .i = window - 1};
    return sb_arch_node(a, module, "Attention", SB_ARCH_IN(q, k, v), attrs, n);
}

/* ---- the frame ---------------------------------------------------------- */

static void arch_input(sb_arch *a)
{
    sb_dim batch = 0, sequence = 0;

    arch_note(a, sb_graph_symbol(a->g, "batch", &batch));
    arch_note(a, sb_graph_symbol(a->g, "sequence", &sequence));
    arch_note(a, sb_graph_add_value(a->g, "input_ids", &a->ids));
    if (a->status != SB_OK)
        return;
    sb_graph_value(a->g, a->ids)->type =
        (sb_type){SB_DTYPE_I64, {2, {batch, sequence}}};
    arch_note(a, sb_graph_add_input(a->g, a->ids));
}

/* 0, 1, ... for each sequence of the batch. */
static void arch_positions(sb_arch *a)
{
    const int64_t zero = 0, one = 1;
    sb_value_id begin = arch_small(a, SB_DTYPE_I64, 0, NULL, &zero);
    sb_value_id step = arch_small(a, SB_DTYPE_I64, 0, NULL, &one);

    a->shape = sb_arch_unary(a, "position_ids", "Shape", a->ids);
    sb_value_id n = sb_arch_binary(a, "position_ids", "Gather", a->shape, step);
    sb_value_id range = sb_arch_node(a, "position_ids", "Range",
                                     SB_ARCH_IN(begin, n, step), NULL, 0);
    a->positions = sb_arch_binary(a, "position_ids", "Expand", range, a->shape);
    if (a->status == SB_OK)
        arch_note(a, sb_graph_rename_value(a->g, a->positions, "position_ids"));
}

void sb_arch_logits(sb_arch *a, sb_module head, sb_module embedding,
                    sb_value_id x)
{
    const sb_llm_config *c = a->config;
    const char *prefix = a->prefix;
    sb_llm_config as_table = *c;
    bool own = sb_arch_has(a, head);

    if (!own) { /* some files have it beside the network */
        a->prefix = "";
        own = sb_arch_has(a, head);
    }
    if (!own)
        a->prefix = prefix;
    if (!own && c->untied)
        (void)sb_arch_fail(a, sb_fail(a->ctx, SB_BAD_DATA,
                                      "%s: there is no tensor '%s.weight', and "
                                      "tie_word_embeddings is false",
                                      a->weights->path, head.name));
    /* An embedding is [out, in] in every file. */
    as_table.transposed = false;
    a->config = &as_table;
    sb_value_id y =
        sb_arch_linear(a, own ? head : embedding, x, c->hidden, c->vocabulary);
    a->config = c;
    a->prefix = prefix;
    y = sb_arch_split_rows(a, "lm_head", y, c->vocabulary);
    if (a->status == SB_OK)
        arch_note(a, sb_graph_rename_value(a->g, y, "logits"));
    if (a->status == SB_OK)
        arch_note(a, sb_graph_add_output(a->g, y));
}

/* What the graph itself does not say. */
static void arch_props(sb_arch *a)
{
    const sb_llm_config *c = a->config;
    enum { PROPS = 3 };
    sb_prop *props = sb_arena_alloc(a->g->arena, PROPS, sizeof *props);
    const char *positions = sb_arch_name(a, "%lld", (long long)c->positions);
    sb_str config;

    sb_str_init(&config, a->ctx);
    if (c->text)
        sb_str_add(&config, c->text);
    else
        sb_llm_config_write_hf(c, &config);
    arch_note(a, sb_str_status(&config));
    const char *text =
        sb_arena_strn(a->g->arena, sb_str_text(&config), config.len);
    sb_str_free(&config);
    if (!props || !positions || !text) {
        arch_note(a, SB_NO_MEMORY);
        return;
    }
    props[0] = (sb_prop){"sparsebit.positions", positions};
    props[1] = (sb_prop){SB_PROP_CONFIG, text};
    props[2] = (sb_prop){SB_PROP_ROTARY, c->interleaved ? SB_ROTARY_NEIGHBORS
                                                        : SB_ROTARY_HALVES};
    a->g->model_props = props;
    a->g->n_model_props = PROPS;
}

sb_status sb_arch_build(sb_ctx *ctx, const sb_checkpoint *weights,
                        const sb_llm_config *config, const sb_map *only,
                        sb_graph **out)
{
    sb_arch a = {.ctx = ctx,
                 .weights = weights,
                 .config = config,
                 .prefix = "",
                 .only = only};

    SB_TRY(sb_graph_create(ctx, config->arch->hf, &a.g));
    a.g->ir_version = 11;
    a.g->file_opset = 23; /* RMSNormalization, RotaryEmbedding, Attention */
    a.g->producer_name = "sparsebit";
    arch_note(&a, sb_graph_add_opset(a.g, "", SB_CANONICAL_OPSET));
    arch_note(&a, sb_graph_add_opset(a.g, "com.microsoft", 1));
    if (a.status == SB_OK)
        arch_input(&a);
    if (a.status == SB_OK)
        arch_props(&a);
    if (a.status == SB_OK)
        arch_positions(&a);
    if (a.status == SB_OK)
        a.status = config->arch->build(&a);
    if (a.status == SB_OK)
        a.status = sb_graph_verify(a.g);
    if (a.status == SB_OK)
        *out = a.g;
    else
        sb_graph_free(a.g);
    sb_buf_unref(a.hollow);
    sb_buf_unref(a.shelf);
    return a.status;
}
