/* Ranges of activations: all that was seen, or what the observer makes of it.
 *
 * Where a few values, or a few samples, are far from all others, clipping them
 * makes the steps for the others smaller; where they matter, as in some
 * detectors, it ruins the network.  Which it is shows at the outputs.
 * Observers keep the least and the greatest value in any case, so that both
 * cost one pass. */
#include "quant/calibrate/calibrate.h"
#include "quant/correct/correct.h"
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

sb_status sb_clip_ranges(sb_quant_model *qm, size_t *layers)
{
    size_t at = 0;

    *layers = 0;
    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        sb_point_state *p = &qm->state.points[i];
        bool narrows = false;

        if (p->observer && ranges_clips(qm, i))
            SB_TRY(ranges_narrows(qm, i, &narrows));
        if (!narrows || at++ < qm->state.clip_first || at > qm->state.clip_end)
            continue;
        p->whole = false;
        SB_TRY(sb_calibrate_calc(qm, i));
        ++*layers;
    }
    return SB_OK;
}
