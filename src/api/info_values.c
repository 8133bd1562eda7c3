/* Every quantized value of a model: width, scales, zero points.
 *
 * Integer operators hold these in many ways, so a copy of the graph is brought
 * into the one form of Q/DQ first, as for reading a file back; then
 *
 *     constant -> DequantizeLinear             a weight
 *     constant -> QuantizeLinear               a weight, still in float
 *     value -> QuantizeLinear                  an activation
 *     value -> DynamicQuantizeLinear           one with scales at each run
 *
 * Biases, 32 bit wide, have the scales of what they are added to, and are left
 * out. */
#include <string.h>

#include "api/info_quant.h"
#include "base/str.h"
#include "passes/pass.h"
#include "passes/readback/integer_util.h"
#include "passes/rewrite.h"
#include "quant/import/import.h"

typedef struct lister {
    sb_ctx *ctx;
    const sb_graph *g;
    sb_arena *arena;
    bool *seen; /* by value */
    sb_quant_value *v;
    size_t n, cap;
} lister;

/* Names that an export makes of the value's own end like this. */
static size_t base_length(const char *name)
{
    static const char *const tails[] = {"_quantized", "_packed", "_clipped",
                                        "_float", NULL};

    return sb_text_before(name, tails);
}

sb_status sb_info_width(const sb_graph *g, const sb_node *node,
                        const char *name, sb_dtype dtype, int *bits)
{
    int most = (int)sb_dtype_get(dtype)->bits;
    int64_t told = sb_node_int(node, "bits", 0);
    sb_str base;

    *bits = told > 0 && told <= most ? (int)told : 0;
    if (*bits == 0)
        SB_TRY(sb_imported_bits(g, name, bits));
    if (*bits == 0) {
        sb_str_init(&base, g->ctx);
        sb_str_addf(&base, "%.*s", (int)base_length(name), name);
        sb_status status = sb_str_status(&base);
        if (status == SB_OK)
            status = sb_imported_bits(g, sb_str_text(&base), bits);
        sb_str_free(&base);
        if (status != SB_OK)
            return status;
    }
    if (*bits == 0 || *bits > most)
        *bits = most;
    return SB_OK;
}

/* Least and greatest element of a constant; nothing if it is none. */
static void info_values_spread(const sb_tensor *t, float *least, float *most)
{
    for (int64_t i = 0; t && i < sb_tensor_count(t); i++) {
        float v = (float)sb_tensor_get_f64(t, i);
        *least = i == 0 || v < *least ? v : *least;
        *most = i == 0 || v > *most ? v : *most;
    }
}

static sb_status info_values_add(lister *l, const sb_node *node,
                                 sb_value_id value, sb_dtype dtype)
{
    const sb_value *x = sb_graph_value(l->g, value);
    const sb_tensor *scale = sb_const_of(l->g, sb_node_in(node, 1));
    bool dynamic = sb_node_is(node, "DynamicQuantizeLinear");
    size_t len = base_length(x->name);
    sb_quant_value v = {.name = sb_arena_strn(l->arena, x->name, len),
                        .is_weight = x->is_constant,
                        .dtype = dtype,
                        .n_scales = scale ? (size_t)sb_tensor_count(scale) : 0};

    if (l->seen[value] || dtype == SB_DTYPE_NONE || dtype == SB_DTYPE_I32)
        return SB_OK;
    if (!v.name)
        return SB_NO_MEMORY;
    l->seen[value] = true;
    v.granularity = dynamic                                  ? "at run time"
                    : sb_node_int(node, "block_size", 0) > 0 ? "per group"
                    : v.n_scales > 1                         ? "per channel"
                    : v.n_scales == 1                        ? "per tensor"
                                                             : "";
    info_values_spread(scale, &v.scale_min, &v.scale_max);
    info_values_spread(sb_const_of(l->g, sb_node_in(node, 2)), &v.zero_min,
                       &v.zero_max);
    SB_TRY(sb_info_width(l->g, node, x->name, dtype, &v.bits));
    SB_TRY(sb_grow(l->ctx, &l->v, &l->cap, l->n + 1, sizeof v));
    l->v[l->n++] = v;
    return SB_OK;
}

static sb_status add_node(lister *l, const sb_node *node)
{
    sb_value_id x = sb_node_in(node, 0);
    sb_dtype out = node->n_out > 0 && node->outputs[0] != SB_NONE
                       ? sb_graph_value(l->g, node->outputs[0])->type.dtype
                       : SB_DTYPE_NONE;

    if (x == SB_NONE)
        return SB_OK;
    if (sb_node_is(node, "QuantizeLinear") ||
        sb_node_is(node, "DynamicQuantizeLinear"))
        return info_values_add(l, node, x, out);
    if (sb_node_is(node, "DequantizeLinear") && sb_is_const(l->g, x))
        return info_values_add(l, node, x,
                               sb_graph_value(l->g, x)->constant.dtype);
    return SB_OK;
}

static sb_status list_all(lister *l)
{
    sb_node_id *order = NULL;
    size_t n = 0;
    sb_status status = sb_graph_order(l->g, &order, &n);

    l->seen = sb_alloc(l->ctx, l->g->n_values + 1, sizeof *l->seen);
    if (status == SB_OK && !l->seen)
        status = SB_NO_MEMORY;
    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = add_node(l, sb_graph_node(l->g, order[i]));
    sb_free(l->ctx, order);
    sb_free(l->ctx, l->seen);
    return status;
}

static sb_status info_values_unify(sb_graph *g)
{
    SB_TRY(sb_passes_run(g, "integer_to_qdq,dynamic_to_qdq,nbits_to_qdq", NULL,
                         NULL, NULL));
    return sb_quant_import_tables(g);
}

static sb_status info_values_keep(const lister *l,
                                  const sb_quant_value *const **out)
{
    sb_quant_value *rows = sb_arena_alloc(l->arena, l->n, sizeof *rows);
    const sb_quant_value **list = sb_arena_alloc(l->arena, l->n, sizeof(*list));

    if (!rows || !list)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < l->n; i++) {
        rows[i] = l->v[i];
        list[i] = &rows[i];
    }
    *out = list;
    return SB_OK;
}

sb_status sb_model_list_quantized(sb_model *model,
                                  const sb_quant_value *const **out, size_t *n)
{
    lister l = {.ctx = model->ctx,
                .arena = sb_model_answer(model, SB_QUESTION_QUANTIZED)};
    sb_graph *g = NULL;

    SB_TRY(sb_graph_clone(model->graph, &g));
    sb_status status = info_values_unify(g);
    l.g = g;
    if (status == SB_OK)
        status = list_all(&l);
    if (status == SB_OK)
        status = info_values_keep(&l, out);
    if (status == SB_OK)
        *n = l.n;
    sb_free(model->ctx, l.v);
    sb_graph_free(g);
    return status;
}
