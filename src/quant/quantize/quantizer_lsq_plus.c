/* Quantizer "lsq+": learns the scale, and the zero point of activations
 * (Y. Bhalgat et al., LSQ+, arXiv 2004.09576).
 *
 * Weights start with a scale that holds three deviations on both sides of the
 * mean, activations with what was observed.  Gradients are scaled as those of
 * "lsq"; the zero point is rounded where it is used. */
#include <math.h>

#include "quant/quantize/quantizer.h"

static void lsq_plus_start_weight(const sb_quant_seen *seen, float *out)
{
    double most = fmax(fabs(seen->mean - 3 * seen->deviation),
                       fabs(seen->mean + 3 * seen->deviation));

    out[0] =
        fmaxf((float)(2 * most / (double)(seen->qmax - seen->qmin)), 1e-6F);
}

static sb_value_id lsq_plus_add_scale(const sb_quant_nodes *n)
{
    return sb_quant_add_fake(n, n->x,
                             sb_quant_add_magnitude(n, n->learned[0], 1),
                             n->zero_point, SB_FAKE_LEARNED);
}

static void lsq_plus_settle_scale(const sb_quant_seen *seen,
                                  const float *learned, float *scale,
                                  float *zero_point)
{
    *scale = sb_quant_magnitude(seen, learned[0], 1);
    *zero_point = seen->zero_point;
}

static void lsq_plus_start_activation(const sb_quant_seen *seen, float *out)
{
    out[0] = sb_quant_start_magnitude(seen, (double)seen->scale, 1);
    out[1] = seen->zero_point;
}

/* Runtimes want zero points that the integers hold.  Behind a Relu the first
 * one is at their end, so its gradient passes the bounds, too. */
static sb_value_id lsq_plus_add_activation(const sb_quant_nodes *n)
{
    sb_value_id zero = sb_quant_add_round(n, n->learned[1]);

    return sb_quant_add_fake(n, n->x,
                             sb_quant_add_magnitude(n, n->learned[0], 1), zero,
                             SB_FAKE_LEARNED);
}

static void lsq_plus_settle_activation(const sb_quant_seen *seen,
                                       const float *learned, float *scale,
                                       float *zero_point)
{
    *scale = sb_quant_magnitude(seen, learned[0], 1);
    *zero_point =
        fminf(fmaxf(rintf(learned[1]), (float)seen->qmin), (float)seen->qmax);
}

static const sb_quant_training lsq_plus_weight = {
    .learned = {"scale"},
    .start = lsq_plus_start_weight,
    .add = lsq_plus_add_scale,
    .settle = lsq_plus_settle_scale,
};

/* Behind a Relu that is left to the rounding the zero point is where it is. */
static const sb_quant_training lsq_plus_folded = {
    .learned = {"scale"},
    .start = lsq_plus_start_activation,
    .add = lsq_plus_add_scale,
    .settle = lsq_plus_settle_scale,
};

static const sb_quant_training lsq_plus_activation = {
    .folded = &lsq_plus_folded,
    .learned = {"scale", "zero_point"},
    .start = lsq_plus_start_activation,
    .add = lsq_plus_add_activation,
    .settle = lsq_plus_settle_activation,
};

const sb_quantizer_def sb_quantizer_lsq_plus = {
    .name = "lsq+",
    .summary = "learns the scale, and the zero point of activations; needs "
               "training",
    .uses = {[SB_QUANT_WEIGHT] = {SB_SCHEME_CHANNEL_SYMMETRIC,
                                  "lsq+ learns per-channel scales for "
                                  "weights"},
             [SB_QUANT_ACTIVATION] = {SB_SCHEME_TENSOR_AFFINE,
                                      "lsq+ learns one scale and zero point "
                                      "for activations"}},
    .training = {&lsq_plus_weight, &lsq_plus_activation},
    .needs_training = true,
};
