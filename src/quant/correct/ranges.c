/* Ranges of activations: all that was seen, what the observer makes of it, or
 * something between.
 *
 * Where a few values, or a few samples, are far from all others, clipping them
 * makes the steps for the others smaller; where they matter, as in some
 * detectors, it ruins the network.  How far to go is chosen for each value by
 * what rounding loses of it, of which some samples tell, each relative to its
 * own signal; whether to go there at all shows at the outputs.
 * Observers keep the least and the greatest value in any case, so that both
 * ends cost one pass. */
#include <math.h>

#include "base/simd.h"
#include "base/threads.h"
#include "quant/calibrate/calibrate.h"
#include "quant/calibrate/replay.h"
#include "quant/correct/correct.h"
#include "quant/model/instrument.h"
#include "quant/observe/observer_def.h"
#include "quant/place/place.h"

static bool ranges_clips(const sb_quant_model *qm, uint32_t point)
{
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);

    return sb_calibrate_observes(qm, point) &&
           ((q->spec.observer->flags & SB_OBS_HISTOGRAM) ||
            q->spec.observer->state_size > 0);
}

bool sb_ranges_wanted(const sb_quant_model *qm)
{
    if (!qm->choose_ranges || qm->known.n > 0 ||
        qm->state.calibration.asym_activations)
        return false;
    for (uint32_t i = 0; i < qm->place.n_points; i++)
        if (ranges_clips(qm, i))
            return true;
    return false;
}

/* Would it become narrower by what is worth a try? */
static sb_status ranges_narrows(const sb_quant_model *qm, uint32_t point,
                                bool *out)
{
    const double worth = 0.05;
    const sb_point_state *p = &qm->state.points[point];
    size_t n = (size_t)p->channels;
    sb_range *whole = sb_alloc(qm->ctx, 2 * n, sizeof *whole), *said;
    double most = 0, left = 0;

    *out = false;
    if (!whole)
        return SB_NO_MEMORY;
    said = whole + n;
    sb_status status = sb_observer_whole_ranges(p->observer, whole);
    if (status == SB_OK)
        status = sb_observer_ranges(p->observer, said);
    for (size_t c = 0; c < n && status == SB_OK; c++) {
        most += (double)whole[c].hi - (double)whole[c].lo;
        left += (double)said[c].hi - (double)said[c].lo;
    }
    *out = left < (1 - worth) * most;
    sb_free(qm->ctx, whole);
    return status;
}

static sb_status ranges_in_question(const sb_quant_model *qm, uint32_t point,
                                    bool *out)
{
    *out = false;
    return qm->state.points[point].observer && ranges_clips(qm, point)
               ? ranges_narrows(qm, point, out)
               : SB_OK;
}

/* ---- how much to clip --------------------------------------------------- */

enum {
    RANGE_CHOICES = 5, /* from what the observer says to all that was seen */
    RANGE_LANES = 16,
    RANGE_ENOUGH = 1 << 13, /* elements of a sample that tell */
};

/* Adding and subtracting this rounds a float below 2^22 to even. */
static const float rounder = 12582912.0F;

typedef struct range_grid {
    float scale, inverse;
    float lo, hi; /* steps from zero to the ends */
} range_grid;

/* What samples lose of one value. */
typedef struct range_losses {
    bool asked; /* it is in question */
    range_grid grid[RANGE_CHOICES];
    size_t n, cap;
    /* [n, 1 + RANGE_CHOICES]: signal of a sample, and noise with each grid. */
    double *sums;
} range_losses;

typedef struct ranges_scan {
    sb_quant_model *qm;
    range_losses *losses; /* by point */
} ranges_scan;

static float range_share(size_t choice)
{
    return (float)choice / (RANGE_CHOICES - 1);
}

static sb_status ranges_grids(sb_quant_model *qm, uint32_t point,
                              range_losses *l)
{
    sb_point_state *p = &qm->state.points[point];
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);

    for (size_t k = 0; k < RANGE_CHOICES; k++) { /* the whole one stays */
        p->whole = range_share(k);
        SB_TRY(sb_calibrate_calc(qm, point));
        const sb_qparams *by = sb_quantizer_qparams(qm, q);

        l->asked = by->n == 1;
        if (!l->asked)
            continue;
        l->grid[k] = (range_grid){.scale = by->scale[0],
                                  .inverse = 1 / by->scale[0],
                                  .lo = (float)by->qmin - by->zero_point[0],
                                  .hi = (float)by->qmax - by->zero_point[0]};
    }
    return SB_OK;
}

SB_HOT static double ranges_noise(const float *x, size_t n,
                                  const range_grid *at)
{
    const range_grid g = *at;
    float some[RANGE_LANES] = {0};
    double sum = 0;

    for (size_t i = 0; i + RANGE_LANES <= n; i += RANGE_LANES) {
        SB_SIMD
        for (size_t k = 0; k < RANGE_LANES; k++) {
            float q = x[i + k] * g.inverse;

            q = q < g.lo ? g.lo : q;
            q = q > g.hi ? g.hi : q;
            q = x[i + k] - ((q + rounder) - rounder) * g.scale;
            some[k] += q * q;
        }
    }
    for (size_t k = 0; k < RANGE_LANES; k++)
        sum += (double)some[k];
    return sum;
}

/* Some elements of a sample, as many as fill lanes. */
static size_t ranges_draw(const float *x, int64_t n, float *out)
{
    int64_t step = (n + RANGE_ENOUGH - 1) / RANGE_ENOUGH | 1; /* to the end */
    size_t m = 0;

    for (int64_t i = 0; i < n && m < RANGE_ENOUGH; i += step)
        out[m++] = x[i];
    while (m % RANGE_LANES != 0)
        out[m++] = 0;
    return m;
}

typedef struct ranges_job {
    const range_losses *l;
    const float *x;
    int64_t each;
    double *to; /* of the first sample */
} ranges_job;

/* Items are samples. */
static void ranges_samples(void *arg, size_t begin, size_t end)
{
    const ranges_job *j = arg;
    float some[RANGE_ENOUGH];

    for (size_t s = begin; s < end; s++) {
        double *to = j->to + s * (1 + RANGE_CHOICES);
        size_t m = ranges_draw(j->x + (int64_t)s * j->each, j->each, some);

        to[0] = 0;
        for (size_t i = 0; i < m; i++)
            to[0] += (double)some[i] * (double)some[i];
        for (size_t k = 0; k < RANGE_CHOICES; k++)
            to[1 + k] = ranges_noise(some, m, &j->l->grid[k]);
    }
}

/* What Observe nodes call. */
static sb_status ranges_see(void *user, int64_t id, const sb_tensor *x)
{
    const ranges_scan *scan = user;
    range_losses *l = &scan->losses[id];
    int64_t samples = x->rank > 0 ? x->dims[0] : 1;
    int64_t each = samples > 0 ? sb_tensor_count(x) / samples : 0;

    if (each < 1)
        return SB_OK;
    SB_TRY(sb_grow(scan->qm->ctx, &l->sums, &l->cap,
                   (l->n + (size_t)samples) * (1 + RANGE_CHOICES),
                   sizeof *l->sums));
    ranges_job job = {l, x->data, each, l->sums + l->n * (1 + RANGE_CHOICES)};
    l->n += (size_t)samples;
    sb_parallel_for(scan->qm->ctx, (size_t)samples, 1, ranges_samples, &job);
    return sb_ctx_poll(scan->qm->ctx);
}

static sb_status ranges_put(void *user, sb_graph *g, uint32_t point,
                            sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    const ranges_scan *scan = user;

    *y = x;
    return scan->losses[point].asked
               ? sb_calibrate_put(scan->qm, g, point, beside, x, y)
               : SB_OK;
}

static sb_status ranges_run(ranges_scan *scan)
{
    sb_quant_model *qm = scan->qm;
    const sb_exec_options opt = {.observe = ranges_see, .observe_user = scan};
    sb_graph *g = NULL;
    sb_replay replay = {0};
    size_t n = sb_batch_store_count(qm->state.batches);

    SB_TRY(sb_quant_derive(qm, ranges_put, scan, &g));
    sb_status status = sb_replay_open(qm, g, &opt, &replay);
    for (size_t i = 0; i < n && status == SB_OK; i++)
        if (sb_replay_is_for(qm, SB_REPLAY_TWICE, i))
            status = sb_replay_run(&replay, i);
    sb_replay_close(&replay);
    return status;
}

/* The share with which samples lose least of their signals on average; of
 * values that are not finite the whole range. */
static sb_status ranges_choose_one(sb_ctx *ctx, const range_losses *l,
                                   float *share)
{
    double sum[RANGE_CHOICES] = {0};
    size_t best = RANGE_CHOICES - 1;
    double *signals = sb_alloc(ctx, l->n + 1, sizeof *signals);

    if (!signals)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < l->n; i++)
        signals[i] = l->sums[i * (1 + RANGE_CHOICES)];
    double least = sb_least_signal(signals, l->n);
    sb_free(ctx, signals);
    for (size_t i = 0; i < l->n; i++) {
        const double *of = l->sums + i * (1 + RANGE_CHOICES);

        for (size_t k = 0; k < RANGE_CHOICES; k++)
            sum[k] += of[1 + k] / fmax(of[0], least);
    }
    for (size_t k = RANGE_CHOICES - 1; k-- > 0;)
        if (sum[k] < sum[best])
            best = k;
    *share = range_share(best);
    return SB_OK;
}

sb_status sb_ranges_choose(sb_quant_model *qm, sb_range_choice *list, size_t n)
{
    ranges_scan scan = {.qm = qm,
                        .losses = sb_alloc(qm->ctx, qm->place.n_points + 1,
                                           sizeof *scan.losses)};
    sb_status status = scan.losses ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = ranges_grids(qm, list[i].point, &scan.losses[list[i].point]);
    if (status == SB_OK)
        status = ranges_run(&scan);
    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = ranges_choose_one(qm->ctx, &scan.losses[list[i].point],
                                   &list[i].share);
    for (size_t i = 0; scan.losses && i < qm->place.n_points; i++)
        sb_free(qm->ctx, scan.losses[i].sums);
    sb_free(qm->ctx, scan.losses);
    return status;
}

/* ---- clipping ----------------------------------------------------------- */

sb_status sb_ranges_list(const sb_quant_model *qm, sb_range_choice *list,
                         size_t *n)
{
    *n = 0;
    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        bool asked = false;

        SB_TRY(ranges_in_question(qm, i, &asked));
        if (asked)
            list[(*n)++] = (sb_range_choice){.point = i};
    }
    return SB_OK;
}

sb_status sb_clip_ranges(sb_quant_model *qm, size_t *layers)
{
    *layers = 0;
    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        sb_point_state *p = &qm->state.points[i];

        if (!(p->clip < p->whole))
            continue;
        p->whole = p->clip;
        SB_TRY(sb_calibrate_calc(qm, i));
        ++*layers;
    }
    return SB_OK;
}
