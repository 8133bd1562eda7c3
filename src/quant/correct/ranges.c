/* Ranges of activations: all that was seen, or what the observer makes of it.
 *
 * Where a few values are far from all others, clipping them (`mse`) makes the
 * steps for the others smaller; where they matter, as in some detectors, it
 * ruins the network.  Which it is shows at the outputs.  Observers keep the
 * least and the greatest value in any case, so that both cost one pass. */
#include "quant/calibrate/calibrate.h"
#include "quant/correct/correct.h"
#include "quant/observe/observer_def.h"
#include "quant/place/place.h"

static bool ranges_clips(const sb_quant_model *qm, uint32_t point)
{
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);

    return sb_calibrate_observes(qm, point) &&
           (q->spec.observer->flags & SB_OBS_HISTOGRAM);
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

static sb_status ranges_set(sb_quant_model *qm, bool whole, size_t *n)
{
    *n = 0;
    qm->state.whole_ranges = whole;
    for (uint32_t i = 0; i < qm->place.n_points; i++)
        if (ranges_clips(qm, i) && qm->state.points[i].observer) {
            SB_TRY(sb_calibrate_calc(qm, i));
            ++*n;
        }
    return SB_OK;
}

sb_status sb_ranges_start(sb_quant_model *qm)
{
    size_t n = 0;

    return sb_ranges_wanted(qm) ? ranges_set(qm, true, &n) : SB_OK;
}

sb_status sb_clip_ranges(sb_quant_model *qm, size_t *layers)
{
    return ranges_set(qm, false, layers);
}
