/* Nodes of quantizers that are trained. */
#include "quant/quantize/training.h"

#include <math.h>

sb_value_id sb_quant_add_fake(const sb_quant_nodes *n, sb_value_id x,
                              sb_value_id scale, sb_value_id zero_point,
                              sb_fake_gradient gradient)
{
    const sb_attr attrs[] = {
        SB_EMIT_INT("qmin", n->qmin),
        SB_EMIT_INT("qmax", n->qmax),
        SB_EMIT_INT("axis", n->axis),
        SB_EMIT_INT("block_size", n->block),
        SB_EMIT_INT("grad_by_count", gradient == SB_FAKE_LEARNED),
        SB_EMIT_INT("samples", n->spec && n->spec->kind == SB_QUANT_ACTIVATION),
        SB_EMIT_INT("through", gradient == SB_FAKE_THROUGH),
    };

    return sb_emit(n->to, &(sb_emit_spec){.op = "FakeQuant",
                                          .in = {x, scale, zero_point},
                                          .n_in = 3,
                                          .attrs = attrs,
                                          .n_attrs = SB_COUNT(attrs)});
}

sb_value_id sb_quant_add_magnitude(const sb_quant_nodes *n, sb_value_id learned,
                                   double per_scale)
{
    sb_value_id v = sb_emit1(n->to, "Abs", learned);

    return n->most > 0
               ? sb_emit2(n->to, "Min", v,
                          sb_grad_scalar(n->to, v, (double)n->most * per_scale))
               : v;
}

/* A little below the bound there is a gradient. */
float sb_quant_start_magnitude(const sb_quant_seen *seen, double v,
                               double per_scale)
{
    double most = 0.999 * (double)seen->most * per_scale;

    return (float)(most > 0 ? fmin(v, most) : v);
}

float sb_quant_magnitude(const sb_quant_seen *seen, float learned,
                         double per_scale)
{
    float most = (float)((double)seen->most * per_scale);

    return most > 0 ? fminf(fabsf(learned), most) : fabsf(learned);
}

sb_value_id sb_quant_add_round(const sb_quant_nodes *n, sb_value_id x)
{
    const sb_quant_nodes whole = {
        .to = n->to, .qmin = n->qmin, .qmax = n->qmax};
    sb_value_id one = sb_grad_scalar(n->to, x, 1);

    return sb_quant_add_fake(&whole, x, one, sb_grad_scalar(n->to, x, 0),
                             SB_FAKE_THROUGH);
}

static sb_value_id fixed_add(const sb_quant_nodes *n)
{
    return sb_quant_add_fake(n, n->x, n->scale, n->zero_point, SB_FAKE_PLAIN);
}

const sb_quant_training sb_quant_training_fixed = {.add = fixed_add};
