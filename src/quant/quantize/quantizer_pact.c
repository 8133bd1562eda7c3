/* Quantizer "pact": learns where to clip an activation (J. Choi et al., PACT:
 * parameterized clipping activation, arXiv 1805.06085).
 *
 * Values are clipped to [0, alpha], or [-alpha, alpha] if the scheme is
 * symmetric, and that range is rounded.  What was clipped is the gradient of
 * alpha; rounding takes no part in it.  Alpha is used by its magnitude. */
#include <math.h>

#include "quant/quantize/quantizer.h"

typedef struct pact_params {
    double alpha;
} pact_params;

static const sb_param_def pact_table[] = {
    {.name = "ALPHA_VALUE",
     .type = SB_PARAM_FLOAT,
     .offset = offsetof(pact_params, alpha),
     .preset = "10",
     .min = 1e-6,
     .max = 1e6,
     .help = "clipping value that training starts from"},
    {0},
};

/* How many alphas wide the range is, and how many steps an alpha has. */
static float pact_sides(const sb_quant_spec *spec)
{
    return spec->symmetric ? 2 : 1;
}

static double pact_steps(const sb_quant_spec *spec, int32_t qmin, int32_t qmax)
{
    return (double)(qmax - qmin) / (double)pact_sides(spec);
}

static void pact_start(const sb_quant_seen *seen, float *out)
{
    const pact_params *p = seen->spec->quantizer_params;

    out[0] = sb_quant_start_magnitude(
        seen, p->alpha, pact_steps(seen->spec, seen->qmin, seen->qmax));
}

static sb_value_id pact_add(const sb_quant_nodes *n)
{
    sb_value_id alpha = sb_quant_add_magnitude(
        n, n->learned[0], pact_steps(n->spec, n->qmin, n->qmax));
    sb_value_id lo = n->spec->symmetric ? sb_emit1(n->to, "Neg", alpha)
                                        : sb_grad_scalar(n->to, alpha, 0);
    double sides = (double)pact_sides(n->spec);
    sb_value_id width =
        sb_emit2(n->to, "Mul", alpha, sb_grad_scalar(n->to, alpha, sides));
    sb_value_id scale = sb_emit2(
        n->to, "Div", width, sb_grad_scalar(n->to, alpha, n->qmax - n->qmin));

    return sb_quant_add_fake(n, sb_emit3(n->to, "Clip", n->x, lo, alpha), scale,
                             n->zero_point, SB_FAKE_THROUGH);
}

static void pact_settle(const sb_quant_seen *seen, const float *learned,
                        float *scale, float *zero_point)
{
    double steps = pact_steps(seen->spec, seen->qmin, seen->qmax);

    *scale = sb_quant_magnitude(seen, learned[0], steps) *
             pact_sides(seen->spec) / (float)(seen->qmax - seen->qmin);
    *zero_point = 0;
}

static const sb_quant_training pact_training = {
    .learned = {"alpha"},
    .no_zero_point = true,
    .start = pact_start,
    .add = pact_add,
    .settle = pact_settle,
};

const sb_quantizer_def sb_quantizer_pact = {
    .name = "pact",
    .summary = "learns where to clip; needs training",
    .uses = {[SB_QUANT_WEIGHT] = {0, "pact learns where to clip activations"},
             [SB_QUANT_ACTIVATION] = {SB_SCHEMES_PER_TENSOR,
                                      "pact has one clipping value for a "
                                      "tensor"}},
    .training = {[SB_QUANT_ACTIVATION] = &pact_training},
    .needs_training = true,
    .params = pact_table,
    .params_size = sizeof(pact_params),
};
