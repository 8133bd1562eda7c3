/* Ranges of activations: all that was seen, or what the observer makes of it.
 *
 * Where a few values, or a few samples, are far from all others, clipping them
 * makes the steps for the others smaller; where they matter, as in some
 * detectors, it ruins the network.  Which it is shows at the outputs.
 * Observers keep the least and the greatest value in any case, so that both
 * cost one pass.
 *
 * If not all ranges may be clipped, those may that promise most: rounding
 * loses less of their values then, of which some samples tell. */
#include <math.h>
#include <stdlib.h>

#include "quant/calibrate/calibrate.h"
#include "quant/calibrate/replay.h"
#include "quant/correct/correct.h"
#include "quant/model/instrument.h"
#include "quant/observe/observer_def.h"
#include "quant/place/place.h"
#include "quant/quantize/rounding.h"

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

/* ---- what clipping promises --------------------------------------------- */

typedef struct range_pair {
    bool asked;              /* it is in question */
    float scale[2], zero[2]; /* of the whole range, and of the clipped one */
    double noise[2], signal; /* what these lose of the values, and of what */
} range_pair;

typedef struct ranges_scan {
    sb_quant_model *qm;
    range_pair *pairs; /* by point */
} ranges_scan;

static sb_status ranges_pair(sb_quant_model *qm, uint32_t point,
                             range_pair *pair)
{
    sb_point_state *p = &qm->state.points[point];
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);

    pair->asked = true;
    for (int k = 1; k >= 0; k--) { /* the whole one stays */
        p->whole = k == 0;
        SB_TRY(sb_calibrate_calc(qm, point));
        pair->scale[k] = sb_quantizer_qparams(qm, q)->scale[0];
        pair->zero[k] = sb_quantizer_qparams(qm, q)->zero_point[0];
    }
    return SB_OK;
}

/* What Observe nodes call.  Of a large tensor some elements tell. */
static sb_status ranges_see(void *user, int64_t id, const sb_tensor *x)
{
    enum { ENOUGH = 1 << 15 };
    const ranges_scan *scan = user;
    range_pair *pair = &scan->pairs[id];
    const sb_quantizer *q = sb_point_quantizer(&scan->qm->place, (uint32_t)id);
    const sb_qparams *by = sb_quantizer_qparams(scan->qm, q);
    const float *data = x->data;
    int64_t n = sb_tensor_count(x), step = n / ENOUGH | 1;

    for (int64_t i = 0; i < n && by->n == 1; i += step) {
        for (int k = 0; k < 2; k++) {
            double lost = (double)data[i] -
                          (double)sb_rounded(data[i], pair->scale[k],
                                             pair->zero[k], by->qmin, by->qmax);
            pair->noise[k] += lost * lost;
        }
        pair->signal += (double)data[i] * (double)data[i];
    }
    return SB_OK;
}

static sb_status ranges_put(void *user, sb_graph *g, uint32_t point,
                            sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    const ranges_scan *scan = user;

    *y = x;
    return scan->pairs[point].asked
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
        if (sb_replay_is_for(qm, SB_REPLAY_USED, i))
            status = sb_replay_run(&replay, i);
    sb_replay_close(&replay);
    return status;
}

static int ranges_compare(const void *a, const void *b)
{
    const sb_range_promise *x = a, *y = b;

    if (x->gain != y->gain)
        return x->gain > y->gain ? -1 : 1;
    return x->point < y->point ? -1 : 1;
}

sb_status sb_ranges_rank(sb_quant_model *qm, sb_range_promise *list, size_t n)
{
    ranges_scan scan = {
        .qm = qm,
        .pairs = sb_alloc(qm->ctx, qm->place.n_points + 1, sizeof *scan.pairs)};
    sb_status status = scan.pairs ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = ranges_pair(qm, list[i].point, &scan.pairs[list[i].point]);
    if (status == SB_OK)
        status = ranges_run(&scan);
    /* Relative noise of single values adds up to that of the outputs, roughly.
     */
    for (size_t i = 0; i < n && status == SB_OK; i++) {
        const range_pair *pair = &scan.pairs[list[i].point];
        double gain = (pair->noise[0] - pair->noise[1]) / pair->signal;

        list[i].gain = isfinite(gain) ? gain : 0; /* values may not be */
    }
    if (status == SB_OK)
        qsort(list, n, sizeof *list, ranges_compare);
    sb_free(qm->ctx, scan.pairs);
    return status;
}

/* ---- clipping ----------------------------------------------------------- */

sb_status sb_ranges_list(const sb_quant_model *qm, sb_range_promise *list,
                         size_t *n)
{
    *n = 0;
    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        bool asked = false;

        SB_TRY(ranges_in_question(qm, i, &asked));
        if (asked)
            list[(*n)++] = (sb_range_promise){.point = i};
    }
    return SB_OK;
}

sb_status sb_clip_ranges(sb_quant_model *qm, size_t *layers)
{
    *layers = 0;
    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        if (!qm->state.points[i].clip)
            continue;
        qm->state.points[i].whole = false;
        SB_TRY(sb_calibrate_calc(qm, i));
        ++*layers;
    }
    return SB_OK;
}
