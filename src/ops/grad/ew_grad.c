/* EwGrad: dx = dy f'(v), where f is an elementwise function and v its input or
 * its result, whichever the table of f wants.
 *
 * `of` names the operator, whose attributes stand beside it.  ClipGrad is the
 * same for Clip, whose limits are inputs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/elementwise/elementwise.h"
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"

typedef struct {
    const char *of, *of_domain;
} ew_grad_attrs;

static const sb_attr_def attrs[] = {
    {"of", SB_ATTR_STRING, offsetof(ew_grad_attrs, of), .required = true},
    {"of_domain", SB_ATTR_STRING, offsetof(ew_grad_attrs, of_domain), .s = ""},
    {0},
};

/* ---- the rule ----------------------------------------------------------- */

static sb_attr ew_grad_text(const char *name, const char *text)
{
    return (sb_attr){
        .name = name, .type = SB_ATTR_STRING, .s = {text, strlen(text)}};
}

sb_status sb_grad_unary(sb_grad *g)
{
    const sb_ew_def *def = g->op->aux;
    sb_attr list[8];
    size_t n = 0;

    /* Where the function falls, its result does not tell the side. */
    if (def->grad_of_y && sb_node_float(g->node, "alpha", 1) < 0)
        return sb_grad_refuse(g, "alpha is below 0");
    list[n++] = ew_grad_text("of", g->op->name);
    if (g->op->domain)
        list[n++] = ew_grad_text("of_domain", g->op->domain);
    for (const sb_attr_def *d = g->op->attrs; d && d->name; d++)
        if (sb_node_attr(g->node, d->name) && n < SB_COUNT(list))
            list[n++] = *sb_node_attr(g->node, d->name);
    sb_value_id v = def->grad_of_y ? g->node->outputs[0] : sb_grad_in(g, 0);
    g->dx[0] = sb_emit(g, &(sb_emit_spec){.op = "EwGrad",
                                          .in = {g->dy[0], v},
                                          .n_in = 2,
                                          .attrs = list,
                                          .n_attrs = n});
    return SB_OK;
}

/* ---- kernels ------------------------------------------------------------ */

static sb_status ew_grad_same(const sb_kernel *k)
{
    const sb_tensor *dy = k->in[0], *v = k->in[1];
    bool same = dy->rank == v->rank;

    for (int i = 0; same && i < dy->rank; i++)
        same = dy->dims[i] == v->dims[i];
    return same ? SB_OK
                : sb_kernel_fail(k, SB_BAD_MODEL,
                                 "inputs 0 and 1 differ in shape");
}

static sb_status ew_grad_run(sb_kernel *k, sb_strip_fn fn, const void *param)
{
    return sb_ew_run(k, &(sb_ew_call){.fn = fn,
                                      .param = param,
                                      .n_in = 2,
                                      .in = {k->in[0], k->in[1]},
                                      .in_as = {SB_DTYPE_F32, SB_DTYPE_F32},
                                      .out = k->out[0],
                                      .out_as = SB_DTYPE_F32});
}

static const sb_op_def *ew_grad_of(const sb_kernel *k)
{
    const ew_grad_attrs *a = k->attrs;

    return sb_op_find(a->of_domain, a->of);
}

static sb_status ew_grad_prepare(sb_kernel *k)
{
    const ew_grad_attrs *a = k->attrs;
    const sb_op_def *op = ew_grad_of(k);

    SB_TRY(ew_grad_same(k));
    if (!op || op->grad != sb_grad_unary)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "of is '%s', which is no "
                              "function of one input",
                              a->of);
    k->state = sb_alloc(k->ctx, 1, op->attrs_size + 1);
    if (!k->state)
        return SB_NO_MEMORY;
    return sb_op_read_attrs(k->ctx, k->graph, k->node, op, k->state);
}

static sb_status ew_grad_forward(sb_kernel *k)
{
    const sb_ew_def *def = ew_grad_of(k)->aux;

    return ew_grad_run(k, def->grad, k->state);
}

static void ew_grad_label(const sb_kernel *k, char *out, size_t size)
{
    const ew_grad_attrs *a = k->attrs;

    snprintf(out, size, "%s'", a->of);
}

/* ---- Clip --------------------------------------------------------------- */

/* Without a branch, so that it becomes vector code. */
SB_STRIP_GRAD_SETUP(clip_grad_f32,
                    const float lo = ((const float *)s->param)[0];
                    const float hi = ((const float *)s->param)[1],
                    ((v > lo) & (v < hi)) ? dy : 0)

static sb_status clip_grad_prepare(sb_kernel *k)
{
    for (uint32_t i = 2; i < 4; i++) {
        const sb_tensor *limit = sb_kernel_in(k, i);
        if (limit && sb_tensor_count(limit) != 1)
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "input %u is not one element", i);
    }
    return ew_grad_same(k);
}

static sb_status clip_grad_forward(sb_kernel *k)
{
    const sb_tensor *lo = sb_kernel_in(k, 2), *hi = sb_kernel_in(k, 3);
    const float limit[] = {lo ? *(const float *)lo->data : -INFINITY,
                           hi ? *(const float *)hi->data : INFINITY};

    return ew_grad_run(k, clip_grad_f32, limit);
}

const sb_op_def sb_op_clip_grad = {
    .name = "ClipGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE | SB_OP_ELEMENTWISE,
    .infer = sb_infer_same,
    .prepare = clip_grad_prepare,
    .forward = clip_grad_forward,
};

const sb_op_def sb_op_ew_grad = {
    .name = "EwGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE | SB_OP_ELEMENTWISE,
    .attrs_size = sizeof(ew_grad_attrs),
    .attrs = attrs,
    .infer = sb_infer_same,
    .prepare = ew_grad_prepare,
    .forward = ew_grad_forward,
    .label = ew_grad_label,
};
