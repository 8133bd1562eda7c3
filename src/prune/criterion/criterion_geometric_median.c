/* Criterion "geometric_median" (He et al., FPGM, 2019): the sum of the
 * distances of a channel's weights from those of all others.  Low scores are
 * near the middle: others can do their work, large or small as they may be. */
#include <math.h>

#include "base/threads.h"
#include "prune/criterion/criterion.h"

typedef struct {
    const sb_tensor *t;
    int axis;
    double *out;
} median_job;

/* The distance of two slices. */
static double median_distance(const sb_tensor *t, int axis, int64_t a,
                              int64_t b)
{
    int64_t outer = sb_dims_product(t->dims, 0, axis), n = t->dims[axis];
    int64_t inner = sb_dims_product(t->dims, axis + 1, t->rank);
    double sum = 0;

    for (int64_t o = 0; o < outer; o++) {
        int64_t at = (o * n + a) * inner, to = (o * n + b) * inner;
        for (int64_t k = 0; k < inner; k++) {
            double d = sb_weight_at(t, at + k) - sb_weight_at(t, to + k);
            sum += d * d;
        }
    }
    return sqrt(sum);
}

static void median_range(void *arg, size_t begin, size_t end)
{
    const median_job *j = arg;

    for (size_t i = begin; i < end; i++) {
        j->out[i] = 0;
        for (int64_t k = 0; k < j->t->dims[j->axis]; k++)
            j->out[i] += median_distance(j->t, j->axis, (int64_t)i, k);
    }
}

static sb_status median_axis(const sb_criterion_ask *ask,
                             const sb_prune_axis *a, const sb_tensor *t,
                             double *out)
{
    median_job j = {t, a->axis, out};
    bool outer = sb_ctx_cut_allow(ask->ctx);

    sb_parallel_for(ask->ctx, (size_t)t->dims[a->axis], 1, median_range, &j);
    return sb_ctx_cut_end(ask->ctx, outer);
}

static sb_status median_score(const sb_criterion_ask *ask, double *out)
{
    bool found;

    return sb_score_by_axis(ask, SB_AXIS_MADE, median_axis, out, &found);
}

const sb_criterion_def sb_criterion_geometric_median = {
    .name = "geometric_median",
    .summary = "distance of a channel's weights from those of the others",
    .score = median_score,
};
