/* Loop: runs its body while a condition holds, at most so many times.
 *
 *     for (i = 0; i < trips && cond; i++)
 *         cond, carried, slices = body(i, cond, carried)
 *
 * Outputs are the carried values after the last run, then the slices of all
 * runs, stacked along a new first axis. */
#include "ops/control/iterate.h"

typedef struct {
    sb_graph *body;
} loop_attrs;

static const sb_attr_def attrs[] = {
    {"body", SB_ATTR_GRAPH, offsetof(loop_attrs, body), .required = true},
    {0},
};

/* Inputs before the carried ones, and arguments of the body: trips or counter,
 * condition.  The body's first result is the condition. */
enum { LOOP_FIRST = 2, LOOP_RESULTS = 1 };

static sb_status loop_infer(sb_infer *in)
{
    const loop_attrs *a = in->attrs;

    if (in->n_in < LOOP_FIRST || a->body->n_inputs != in->n_in)
        return sb_infer_fail(in, "%u inputs, the body has %zu", in->n_in,
                             a->body->n_inputs);
    SB_TRY(sb_infer_want_one(in, 0, SB_DTYPE_I64));
    SB_TRY(sb_infer_want_one(in, 1, SB_DTYPE_BOOL));
    return sb_iteration_infer(in, a->body, LOOP_FIRST, LOOP_RESULTS,
                              in->n_in - LOOP_FIRST, NULL, SB_DIM_UNKNOWN);
}

static sb_status loop_prepare(sb_kernel *k)
{
    const sb_tensor *trips = k->in[0], *cond = k->in[1];

    if (trips && (trips->dtype != SB_DTYPE_I64 || sb_tensor_count(trips) != 1))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the number of trips is not one int64");
    if (cond && (cond->dtype != SB_DTYPE_BOOL || sb_tensor_count(cond) != 1))
        return sb_kernel_fail(k, SB_BAD_MODEL, "the condition is not one bool");
    return SB_OK;
}

/* One element, of rank 0 unless the body wants 1. */
static sb_tensor one_element(const sb_graph *body, size_t input, sb_dtype dtype,
                             void *data)
{
    const sb_type *want = &sb_graph_value(body, body->inputs[input])->type;
    sb_tensor t = sb_tensor_make(dtype, want->shape.rank == 1, &(int64_t){1});

    t.data = data;
    return t;
}

static sb_status loop_run(sb_kernel *k, sb_iteration *it)
{
    int64_t most = k->in[0] ? *(const int64_t *)k->in[0]->data : INT64_MAX;
    _Alignas(SB_ALIGN) uint8_t go =
        !k->in[1] || *(const uint8_t *)k->in[1]->data != 0;
    _Alignas(SB_ALIGN) int64_t i = 0;
    sb_tensor counter = one_element(it->body, 0, SB_DTYPE_I64, &i);
    sb_tensor cond = one_element(it->body, 1, SB_DTYPE_BOOL, &go);

    it->in[0] = &counter;
    it->in[1] = &cond;
    for (; i < most && go; i++) {
        SB_TRY(sb_iteration_run(it));
        const sb_tensor *next = it->out[0];
        if (next->dtype != SB_DTYPE_BOOL || sb_tensor_count(next) != 1)
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "the body's condition is not one bool");
        go = *(const uint8_t *)next->data != 0;
    }
    SB_TRY(sb_iteration_finish(it));
    for (size_t s = 0; s < it->n_stacks; s++)
        SB_TRY(sb_iteration_put_stack(it, s, (uint32_t)(it->n_carried + s), 0,
                                      false));
    return SB_OK;
}

static sb_status loop_forward(sb_kernel *k)
{
    const loop_attrs *a = k->attrs;
    sb_iteration it;
    sb_status status =
        sb_iteration_begin(&it, k, a->body, LOOP_FIRST, LOOP_FIRST,
                           LOOP_RESULTS, k->n_in - LOOP_FIRST);

    if (status == SB_OK)
        status = loop_run(k, &it);
    sb_iteration_end(&it);
    return status;
}

const sb_op_def sb_op_loop = {
    .name = "Loop",
    .since = 1,
    .in_min = 0,
    .in_max = SB_ARITY_ANY,
    .out_min = 1,
    .out_max = SB_ARITY_ANY,
    .flags = SB_OP_DATA_SHAPE | SB_OP_SEQUENCES | SB_OP_CARRIES,
    .attrs_size = sizeof(loop_attrs),
    .attrs = attrs,
    .infer = loop_infer,
    .prepare = loop_prepare,
    .forward = loop_forward,
};
