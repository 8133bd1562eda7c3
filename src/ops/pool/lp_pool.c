/* LpPool: (sum |x|^p)^(1/p) over each window. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/pool/pool.h"
#include "ops/tie/tie_rules.h"

#include <math.h>

typedef struct {
    sb_window_attrs window;
    int64_t p;
} lp_pool_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"p", SB_ATTR_INT, offsetof(lp_pool_attrs, p), .i = 2},
    {0},
};

static sb_status lp_pool_infer(sb_infer *in)
{
    const lp_pool_attrs *a = in->attrs;

    if (a->p < 1)
        return sb_infer_fail(in, "p is %lld, want at least 1", (long long)a->p);
    return sb_pool_infer(in, &a->window, 0, in->in[0]->type.dtype);
}

static void lp_plane(const sb_kernel *k, const sb_pool_state *s, int64_t plane)
{
    const lp_pool_attrs *a = k->attrs;
    const float *x = (const float *)k->in[0]->data + plane * s->w.in_count;
    float *y = (float *)k->out[0]->data + plane * s->w.out_count;
    double p = (double)a->p;
    sb_pool_walk walk;

    sb_pool_walk_begin(&walk, &s->w);
    do {
        double sum = 0;
        for (int64_t t = sb_pool_tap_first(&walk); t >= 0;
             t = sb_pool_tap_next(&walk))
            sum += pow(fabs((double)x[t]), p);
        *y++ = (float)pow(sum, 1 / p);
    } while (sb_pool_walk_next(&walk));
}

static sb_status lp_planes(sb_kernel *k)
{
    sb_pool_planes(k, lp_plane);
    return SB_OK;
}

static const sb_pool_impl naive = {.name = "naive", .run = lp_planes};

static sb_status lp_pool_prepare(sb_kernel *k)
{
    const lp_pool_attrs *a = k->attrs;

    return sb_pool_prepare(k, &a->window, &naive, 1);
}

const sb_op_def sb_op_lp_pool = {
    .name = "LpPool",
    .since = 2,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(lp_pool_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = lp_pool_infer,
    .prepare = lp_pool_prepare,
    .forward = sb_pool_forward,
    .grad = sb_grad_lp_pool,
    .release = sb_pool_release,
    .tie = sb_tie_pool,
};
