/* Pass "widen_half": a network in float16 or bfloat16 computes in float32.
 *
 *     x: f16, w: f16                  x: f16, w: f32
 *     y = MatMul(x, w)           =>   y = Cast(MatMul(Cast(x), w))
 *     y: f16                          y: f16
 *
 * Constants are converted, attributes that name one of the types say float32,
 * and inputs and outputs of the model keep their types: programs that run it go
 * on as they are.  Nothing is lost: each number of the small types is one of
 * float32.  Casts that do nothing any more go with remove_identity. */
#include <string.h>

#include "passes/pass.h"
#include "passes/rewrite.h"
#include "tensor/mapped.h"

static bool widen_is_half(int64_t dtype)
{
    return dtype == SB_DTYPE_F16 || dtype == SB_DTYPE_BF16;
}

/* ---- values ------------------------------------------------------------- */

static sb_status widen_constant(sb_graph *g, sb_value_id id)
{
    const sb_tensor *from = &sb_graph_value(g, id)->constant;
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, from->rank, from->dims);

    SB_TRY(sb_tensor_alloc_weight(g->ctx, &t));
    sb_convert(from->dtype, from->data, SB_DTYPE_F32, t.data,
               (size_t)sb_tensor_count(from));
    sb_tensor_release_pages(from);
    sb_tensor_release_pages(&t);
    sb_status status = sb_graph_set_constant(g, id, &t);
    sb_tensor_drop(&t);
    return status;
}

/* Does the model show the value to its callers? */
static bool widen_is_outside(const sb_graph *g, const sb_value *v)
{
    return !g->parent && (v->is_input || v->is_output);
}

/* All that callers do not see; captures follow what they stand for. */
static sb_status widen_values(sb_graph *g, size_t *changes)
{
    for (sb_value_id id = 0; id < g->n_values; id++) {
        sb_value *v = sb_graph_value(g, id);

        if (!widen_is_half(v->type.dtype) || widen_is_outside(g, v))
            continue;
        if (v->is_constant)
            SB_TRY(widen_constant(g, id));
        v = sb_graph_value(g, id);
        v->type.dtype = SB_DTYPE_F32;
        v->denoted_type = (sb_bytes){0};
        *changes += v->n_uses > 0 || v->producer != SB_NONE;
    }
    return SB_OK;
}

/* ---- the border --------------------------------------------------------- */

static sb_status widen_cast(sb_graph *g, sb_value_id x, sb_value_id y,
                            sb_dtype to, uint64_t position)
{
    const sb_attr attr = {.name = "to", .type = SB_ATTR_INT, .i = to};
    const sb_node_spec spec = {.op = "Cast",
                               .inputs = &x,
                               .n_in = 1,
                               .outputs = &y,
                               .n_out = 1,
                               .attrs = &attr,
                               .n_attrs = 1,
                               .position = position};
    sb_node_id node = SB_NONE;

    return sb_graph_add_node(g, &spec, &node);
}

static bool widen_is_cast(const sb_node *node, sb_dtype to)
{
    return node && sb_node_is(node, "Cast") &&
           sb_node_int(node, "to", 0) == (int64_t)to;
}

/* All uses of one value become uses of another. */
static sb_status widen_move_uses(sb_graph *g, sb_value_id from, sb_value_id to)
{
    while (sb_graph_value(g, from)->n_uses > 0) {
        const sb_use use = sb_graph_value(g, from)->uses[0];
        SB_TRY(sb_graph_set_input(g, use.node, use.input, to));
    }
    return SB_OK;
}

/* Consumers of what comes from outside read it through a Cast. */
static sb_status widen_given(sb_graph *g, sb_value_id id, size_t *changes)
{
    const sb_value *v = sb_graph_value(g, id);
    sb_type type = {SB_DTYPE_F32, v->type.shape};
    uint64_t first = UINT64_MAX;
    bool all = true;
    sb_value_id wide = SB_NONE;

    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *node = sb_graph_node(g, v->uses[i].node);
        all = all && widen_is_cast(node, SB_DTYPE_F32);
        first = node->position < first ? node->position : first;
    }
    if (all)
        return SB_OK;
    SB_TRY(sb_graph_add_value_like(g, v->name, &wide));
    sb_graph_value(g, wide)->type = type;
    SB_TRY(widen_move_uses(g, id, wide));
    (*changes)++;
    return widen_cast(g, id, wide, SB_DTYPE_F32, first);
}

/* A Cast makes what goes outside; all others read what is before it. */
static sb_status widen_result(sb_graph *g, sb_value_id id, size_t *changes)
{
    sb_type type = sb_graph_value(g, id)->type;
    const sb_node *producer = sb_graph_producer(g, id);
    uint64_t position = producer->position;
    sb_value_id narrow = SB_NONE;
    bool done = false;

    if (widen_is_cast(producer, type.dtype) &&
        sb_graph_value(g, id)->n_uses == 0)
        return SB_OK;
    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, id)->name, &narrow));
    sb_graph_value(g, narrow)->type = type;
    SB_TRY(sb_graph_replace_value(g, id, narrow, &done));
    SB_TRY(widen_move_uses(g, narrow, id));
    sb_graph_value(g, narrow)->denoted_type =
        sb_graph_value(g, id)->denoted_type;
    sb_graph_value(g, id)->denoted_type = (sb_bytes){0};
    sb_graph_value(g, id)->type.dtype = SB_DTYPE_F32;
    (*changes)++;
    return widen_cast(g, id, narrow, type.dtype, position);
}

static sb_status widen_border(sb_graph *g, size_t *changes)
{
    for (sb_value_id id = 0, n = (sb_value_id)g->n_values; id < n; id++) {
        const sb_value *v = sb_graph_value(g, id);

        if (!widen_is_half(v->type.dtype) || !widen_is_outside(g, v))
            continue;
        SB_TRY(v->producer == SB_NONE ? widen_given(g, id, changes)
                                      : widen_result(g, id, changes));
    }
    return SB_OK;
}

/* ---- attributes --------------------------------------------------------- */

/* Attributes that name the type of a result or of what is computed in. */
static bool widen_names_type(const char *name)
{
    static const char *const names[] = {
        "to",        "dtype",      "output_dtype",      "output_datatype",
        "precision", "stash_type", "softmax_precision",
    };

    for (size_t i = 0; i < SB_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static sb_status widen_tensor_attr(sb_graph *g, sb_attr *attr)
{
    const sb_tensor *from = attr->t;
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, from->rank, from->dims);

    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    sb_convert(from->dtype, from->data, SB_DTYPE_F32, t.data,
               (size_t)sb_tensor_count(from));
    sb_status status = sb_graph_keep_tensors(g, &t, 1, &attr->t);
    sb_tensor_drop(&t);
    return status;
}

static sb_status widen_attrs(sb_graph *g, sb_node *node, size_t *changes)
{
    /* The Casts at the border say what callers want. */
    bool border = sb_node_is(node, "Cast") &&
                  widen_is_outside(g, sb_graph_value(g, node->outputs[0]));

    for (uint32_t i = 0; i < node->n_attrs && !border; i++) {
        sb_attr *a = &node->attrs[i];

        if (a->type == SB_ATTR_TENSOR && widen_is_half(a->t->dtype))
            SB_TRY(widen_tensor_attr(g, a));
        else if (a->type == SB_ATTR_INT && widen_is_half(a->i) &&
                 widen_names_type(a->name))
            a->i = SB_DTYPE_F32;
        else
            continue;
        (*changes)++;
    }
    return SB_OK;
}

static sb_status widen_half_run(sb_graph *g, size_t *changes)
{
    if (!g->parent)
        SB_TRY(widen_border(g, changes));
    SB_TRY(widen_values(g, changes));
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (!sb_graph_node(g, id)->dead)
            SB_TRY(widen_attrs(g, sb_graph_node(g, id), changes));
    return SB_OK;
}

const sb_pass_def sb_pass_widen_half = {
    .name = "widen_half",
    .summary = "compute in float32 what is float16 or bfloat16",
    .run = widen_half_run,
};
