/* Observer "moving_average": ends of the range averaged over samples.
 *
 *     m <- r * m + (1 - r) * new        for each sample; the first sets m
 *
 * in float, like the original, but for each channel where there are several.
 * Merging: had the samples of `from` (k of them, the first x) come after
 * `into`, x would weigh (1 - r) of what it does and `into` r^k:
 *
 *     m = m_from + r^k * (m_into - x) */
#include <math.h>

#include "quant/observer_def.h"

typedef struct average {
    float lo, hi;             /* so far */
    float first_lo, first_hi; /* of the first sample */
    int64_t n;                /* samples */
} average;

static void average_update(const sb_quant_spec *spec, void *own,
                           sb_range sample)
{
    average *a = own;
    float keep = (float)spec->ema_ratio, take = (float)(1.0 - spec->ema_ratio);

    if (a->n++ == 0) {
        a->lo = a->first_lo = sample.lo;
        a->hi = a->first_hi = sample.hi;
        return;
    }
    a->lo = keep * a->lo + take * sample.lo;
    a->hi = keep * a->hi + take * sample.hi;
}

static void average_merge(const sb_quant_spec *spec, void *into,
                          const void *from)
{
    average *a = into;
    const average *b = from;

    if (b->n == 0)
        return;
    if (a->n == 0) {
        *a = *b;
        return;
    }
    double weight = pow(spec->ema_ratio, (double)b->n);
    a->lo =
        (float)((double)b->lo + weight * ((double)a->lo - (double)b->first_lo));
    a->hi =
        (float)((double)b->hi + weight * ((double)a->hi - (double)b->first_hi));
    a->n += b->n;
}

static void average_save(const void *own, double *out)
{
    const average *a = own;

    out[0] = (double)a->lo;
    out[1] = (double)a->hi;
    out[2] = (double)a->first_lo;
    out[3] = (double)a->first_hi;
    out[4] = (double)a->n;
}

static bool average_load(void *own, const double *in)
{
    average *a = own;

    for (int i = 0; i < 4; i++)
        if (!isfinite((float)in[i]))
            return false;
    if (!(in[4] >= 1.0 && in[4] <= 9007199254740992.0))
        return false;
    *a = (average){(float)in[0], (float)in[1], (float)in[2], (float)in[3],
                   (int64_t)in[4]};
    return true;
}

static sb_range average_range(const sb_obs_values *v)
{
    const average *a = v->own;

    return (sb_range){a->lo, a->hi};
}

const sb_observer_def sb_observer_moving_average = {
    .name = "moving_average",
    .summary = "least and greatest value of each sample, averaged over samples",
    .params = "MOVING_AVERAGE.EMA_RATIO",
    .bound = "exact",
    .flags = SB_OBS_FEATURE,
    .own_size = sizeof(average),
    .own_update = average_update,
    .own_merge = average_merge,
    .own_numbers = 5,
    .own_save = average_save,
    .own_load = average_load,
    .range = average_range,
};
