/* If: runs one of two sub-graphs.  Both see the values of the graph around
 * them; their outputs may differ in shape, so ours is known only after the
 * choice. */
#include "ops/control/iterate.h"

typedef struct {
    sb_graph *then_branch, *else_branch;
} if_attrs;

static const sb_attr_def attrs[] = {
    {"then_branch", SB_ATTR_GRAPH, offsetof(if_attrs, then_branch),
     .required = true},
    {"else_branch", SB_ATTR_GRAPH, offsetof(if_attrs, else_branch),
     .required = true},
    {0},
};

static sb_status if_infer(sb_infer *in)
{
    const if_attrs *a = in->attrs;
    const sb_graph *yes = a->then_branch, *no = a->else_branch;

    SB_TRY(sb_infer_want_one(in, 0, SB_DTYPE_BOOL));
    if (yes->n_outputs != in->n_out || no->n_outputs != in->n_out)
        return sb_infer_fail(in, "%u outputs, the branches have %zu and %zu",
                             in->n_out, yes->n_outputs, no->n_outputs);
    if (yes->n_inputs || no->n_inputs)
        return sb_infer_fail(in, "a branch with inputs of its own");
    for (uint32_t i = 0; i < in->n_out; i++)
        in->out[i].type =
            sb_type_common(&sb_graph_value(yes, yes->outputs[i])->type,
                           &sb_graph_value(no, no->outputs[i])->type);
    return SB_OK;
}

static sb_status if_prepare(sb_kernel *k)
{
    if (sb_tensor_count(k->in[0]) != 1 || k->in[0]->dtype != SB_DTYPE_BOOL)
        return sb_kernel_fail(k, SB_BAD_MODEL, "the condition is not one bool");
    k->state = sb_alloc(k->ctx, k->n_out, sizeof(const sb_tensor *));
    return k->state ? SB_OK : SB_NO_MEMORY;
}

static sb_status if_forward(sb_kernel *k)
{
    const if_attrs *a = k->attrs;
    const sb_tensor **results = k->state;
    bool yes = *(const uint8_t *)k->in[0]->data != 0;

    SB_TRY(k->host->run_body(k, yes ? a->then_branch : a->else_branch, NULL,
                             results));
    for (uint32_t i = 0; i < k->n_out; i++)
        SB_TRY(sb_kernel_give(k, i, results[i]));
    return SB_OK;
}

const sb_op_def sb_op_if = {
    .name = "If",
    .since = 1,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = SB_ARITY_ANY,
    .flags = SB_OP_DATA_SHAPE,
    .attrs_size = sizeof(if_attrs),
    .attrs = attrs,
    .infer = if_infer,
    .prepare = if_prepare,
    .forward = if_forward,
};
