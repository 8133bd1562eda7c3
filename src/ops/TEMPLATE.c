/* TEMPLATE for a new operator.  Not compiled.
 *
 * Three files make an operator:
 *
 *   1. src/ops/<family>/<name>.c, a copy of this one, named after the ONNX
 *      operator in snake_case.  First line: what it computes, as a formula if
 *      possible; then what is not obvious.
 *   2. one line `SB_OP(<name>)` in src/ops/ops.def (tools/sort-defs sorts it).
 *   3. tests/ops/test_<family>.c; values from NumPy, ONNX or by hand, never
 *      from our own code.  The ONNX conformance suite tests it as well.
 *
 * Is it one expression of its elements?  Then do not start here but add two
 * lines to unary_math.c, activations.c, arithmetic.c or compare.c: the engine
 * in elementwise.h broadcasts, converts types, and threads.  Is it a reduction
 * over axes?  See reduce_ops.c.  Does it work along one axis?  axis_walk.h.
 * Does it only move elements?  strided_copy.h and move_util.h.
 *
 * Only the newest form of the operator is implemented (SB_CANONICAL_OPSET); the
 * importer upgrades older nodes in src/onnx/upgrade_*.c. */
#include "ops/grad/grad.h"
#include "ops/infer_util.h"

/* Attributes: a struct, and a table that tells the framework how to fill it.
 * Types, presence (`.required`) and defaults are checked before any function
 * below is called; the meaning of the values is for infer() to check. */
typedef struct {
    int64_t axis;
    float epsilon;
} template_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(template_attrs, axis), .i = -1},
    {"epsilon", SB_ATTR_FLOAT, offsetof(template_attrs, epsilon), .f = 1e-5f},
    {0},
};

/* Types and shapes of the outputs.  Runs while a model is only looked at, with
 * symbols or nothing where a dimension is not known (rank -1, SB_DIM_UNKNOWN),
 * and again with numbers when it is to run.  Must set the whole shape when the
 * shapes of the inputs and the constants it needs are known.  Fails only on
 * what can never be right, and says what it found and what it wants. */
static sb_status template_infer(sb_infer *in)
{
    const template_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    int axis;

    if (x->rank >= 0)
        SB_TRY(sb_infer_axis(in, a->axis, x->rank, &axis));
    return sb_infer_same(in);
}

/* (optional) Everything that can be done once: refuse element types, pack
 * constant weights into k->state (freed by release, by default sb_free), ask
 * for scratch memory.  All shapes are numbers here; in[i]->data is NULL unless
 * the input is constant. */
static sb_status template_prepare(sb_kernel *k)
{
    if (k->in[0]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    k->scratch_size = 0;
    return SB_OK;
}

/* Computes; called many times, allocates nothing.  Optional inputs come from
 * sb_kernel_in(k, i), optional outputs from sb_kernel_out(k, i): NULL if
 * absent.  Tensors without elements and of rank 0 are normal.  Spread work
 * with sb_parallel_for so that no result depends on the number of threads. */
static sb_status template_forward(sb_kernel *k)
{
    const float *x = k->in[0]->data;
    float *y = k->out[0]->data;
    int64_t n = sb_tensor_count(k->in[0]);

    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
    return SB_OK;
}

/* (optional) The gradient, as nodes: see ops/grad/grad.h, and grad_rules.h for
 * rules that are there already.  Without it nothing in front of the operator
 * can be learned; results that change in steps say SB_OP_FLAT instead. */
static sb_status template_grad(sb_grad *g)
{
    g->dx[0] = sb_emit1(g, "Identity", g->dy[0]);
    return SB_OK;
}

/* The row: all that the rest of the program knows of the operator.  The flags
 * are in graph/op.h; the usual ones are SB_OP_F32 (the executor converts half
 * and double tensors, so the kernel sees float32 only) and SB_OP_INPLACE (y
 * may be x).  `since` is the lowest opset in which a node in our form means
 * the same. */
const sb_op_def sb_op_template = {
    .name = "Template",
    .since = 13,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(template_attrs),
    .attrs = attrs,
    .infer = template_infer,
    .prepare = template_prepare,
    .forward = template_forward,
    .grad = template_grad,
};
