/* Observer "aciq": clips where the error of clipping and of rounding, for a
 * normal or a Laplace distribution, are least together (R. Banner et al., Post
 * training 4-bit quantization of convolutional networks, arXiv 1810.05723).
 *
 *     GAUS     sigma = (max - min) * 0.175 * (1 + sqrt(pi ln 4)) / sqrt(2 ln n)
 *              with n elements in a sample (of a weight: in all)
 *     LAPLACE  b = mean |x - mean x|
 *
 * The range is -c .. c with c = alpha * sigma (or alpha * b), alpha from a
 * table for 1 to 8 bits.  Affine, and nothing below zero: 0 .. c with alpha of
 * the one-sided table, which is that of one bit more.  Above 8 bits alpha is
 * the solution of the equations that the tables come from (per unit of sigma
 * or b, phi and Q the density and upper tail of the normal distribution):
 *
 *     GAUS     alpha / (3 * 4^bits) = 2 (phi(alpha) - alpha Q(alpha))
 *     LAPLACE  alpha / (3 * 4^bits) = exp(-alpha)
 *
 * Constant data have no spread; then the range is that of the data. */
#include <math.h>

#include "quant/observe/observer_def.h"

enum { GAUS, LAPLACE };

typedef struct aciq_params {
    int distribution;
} aciq_params;

static const char *const distributions[] = {
    [GAUS] = "GAUS", [LAPLACE] = "LAPLACE", NULL};

static const sb_param_def aciq_table[] = {
    {.name = "DISTRIBUTION",
     .type = SB_PARAM_ENUM,
     .offset = offsetof(aciq_params, distribution),
     .preset = "GAUS",
     .names = distributions,
     .help = "what the values are assumed to be spread like"},
    {0},
};

static bool aciq_is_laplace(const sb_quant_spec *spec)
{
    const aciq_params *params = spec->observer_params;

    return params->distribution == LAPLACE;
}

enum { TABLE_BITS = 8 };

static const float gaus[TABLE_BITS] = {1.24F, 1.71F, 2.15F, 2.55F,
                                       2.93F, 3.28F, 3.61F, 3.92F};
static const float gaus_one[TABLE_BITS] = {1.71F, 2.15F, 2.55F, 2.93F,
                                           3.28F, 3.61F, 3.92F, 4.2F};
static const float laplace[TABLE_BITS] = {1.86F, 2.83F, 3.89F, 5.03F,
                                          6.2F,  7.41F, 8.64F, 9.89F};
static const float laplace_one[TABLE_BITS] = {2.83F, 3.89F, 5.02F, 6.2F,
                                              7.41F, 8.64F, 9.89F, 11.16F};

/* What clipping at alpha costs by the next bit of alpha, minus what rounding
 * gains: falls with alpha, zero at the answer. */
static double aciq_slope(double alpha, int bits, bool is_laplace)
{
    double rounding = alpha / (3.0 * ldexp(1.0, 2 * bits));

    if (is_laplace)
        return exp(-alpha) - rounding;
    double density = exp(-alpha * alpha / 2.0) / sqrt(2.0 * acos(-1.0));
    double tail = erfc(alpha / sqrt(2.0)) / 2.0;
    return 2.0 * (density - alpha * tail) - rounding;
}

static double aciq_solve(int bits, bool is_laplace)
{
    double lo = 0.0, hi = 64.0;

    for (int i = 0; i < 100; i++) {
        double mid = (lo + hi) / 2.0;
        if (aciq_slope(mid, bits, is_laplace) > 0.0)
            lo = mid;
        else
            hi = mid;
    }
    return (lo + hi) / 2.0;
}

static float aciq_alpha(const sb_quant_spec *spec, bool one_sided)
{
    bool is_laplace = aciq_is_laplace(spec);
    int bits = spec->bits;

    if (bits > TABLE_BITS)
        return (float)aciq_solve(bits + (one_sided ? 1 : 0), is_laplace);
    if (is_laplace)
        return one_sided ? laplace_one[bits - 1] : laplace[bits - 1];
    return one_sided ? gaus_one[bits - 1] : gaus[bits - 1];
}

static float gaus_sigma(const sb_obs_values *v)
{
    double constant = 0.5 * 0.35 * (1.0 + sqrt(acos(-1.0) * log(4.0)));
    double spread = (double)(v->range.hi - v->range.lo);

    if (!(v->per_sample > 1.0) || !isfinite(spread))
        return 0.0F;
    return (v->range.hi - v->range.lo) * (float)constant /
           (float)sqrt(2.0 * log(v->per_sample));
}

static float laplace_b(const sb_obs_values *v)
{
    double sum = 0.0, n = 0.0;

    for (int64_t i = 0; i < v->n; i++) {
        double count = v->count ? v->count[i] : 1.0;
        sum += count * (double)v->x[i];
        n += count;
    }
    double mean = sum / n, spread = 0.0;
    for (int64_t i = 0; i < v->n; i++)
        spread += (v->count ? v->count[i] : 1.0) * fabs((double)v->x[i] - mean);
    return (float)(spread / n);
}

static sb_range aciq_range(const sb_obs_values *v)
{
    const sb_quant_spec *spec = v->spec;
    bool one_sided = !spec->symmetric && v->non_negative;

    if (v->range.lo == v->range.hi)
        return v->range;
    float unit = aciq_is_laplace(spec) ? laplace_b(v) : gaus_sigma(v);
    float clip = aciq_alpha(spec, one_sided) * unit;
    if (!(clip > 0.0F) || !isfinite(clip))
        return v->range;
    return (sb_range){one_sided ? 0.0F : -clip, clip};
}

static unsigned aciq_needs(const sb_quant_spec *spec)
{
    return aciq_is_laplace(spec) ? SB_OBS_HISTOGRAM : 0;
}

const sb_observer_def sb_observer_aciq = {
    .name = "aciq",
    .summary = "clips as is best for a normal or a Laplace distribution",
    .bound = "GAUS: exact; LAPLACE: b within absmax / 16384",
    .flags = SB_OBS_WEIGHT | SB_OBS_ACTIVATION | SB_OBS_HISTOGRAM,
    .params = aciq_table,
    .params_size = sizeof(aciq_params),
    .needs = aciq_needs,
    .range = aciq_range,
};
