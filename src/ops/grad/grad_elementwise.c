/* Gradients of elementwise operators of several inputs, broadcast as NumPy
 * does: what was repeated is summed up again. */
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"

/* dx[i] = sum of `v` over the dimensions in which input i was repeated. */
static void ew_give(sb_grad *g, uint32_t i, sb_value_id v)
{
    g->dx[i] = sb_grad_sum_to(g, v, sb_grad_in(g, i));
}

static sb_value_id ew_out(const sb_grad *g)
{
    return g->node->outputs[0];
}

sb_status sb_grad_neg(sb_grad *g)
{
    g->dx[0] = sb_emit1(g, "Neg", g->dy[0]);
    return SB_OK;
}

sb_status sb_grad_add(sb_grad *g)
{
    for (uint32_t i = 0; i < g->node->n_in; i++)
        if (g->wanted[i])
            ew_give(g, i, g->dy[0]);
    return SB_OK;
}

sb_status sb_grad_sub(sb_grad *g)
{
    if (g->wanted[0])
        ew_give(g, 0, g->dy[0]);
    if (g->wanted[1]) /* negated when it is small */
        g->dx[1] =
            sb_emit1(g, "Neg", sb_grad_sum_to(g, g->dy[0], sb_grad_in(g, 1)));
    return SB_OK;
}

sb_status sb_grad_mul(sb_grad *g)
{
    for (uint32_t i = 0; i < 2; i++)
        if (g->wanted[i])
            ew_give(g, i, sb_emit2(g, "Mul", g->dy[0], sb_grad_in(g, 1 - i)));
    return SB_OK;
}

/* y = a / b: da = dy / b, db = -dy y / b */
sb_status sb_grad_div(sb_grad *g)
{
    sb_value_id da = sb_emit2(g, "Div", g->dy[0], sb_grad_in(g, 1));

    if (g->wanted[0])
        ew_give(g, 0, da);
    if (g->wanted[1])
        ew_give(g, 1, sb_emit1(g, "Neg", sb_emit2(g, "Mul", da, ew_out(g))));
    return SB_OK;
}

sb_status sb_grad_mean(sb_grad *g)
{
    sb_value_id each = sb_emit2(
        g, "Mul", g->dy[0], sb_grad_scalar(g, g->dy[0], 1.0 / g->node->n_in));

    for (uint32_t i = 0; i < g->node->n_in; i++)
        if (g->wanted[i])
            ew_give(g, i, each);
    return SB_OK;
}

/* da = dy b a^(b-1) */
static sb_value_id pow_base(sb_grad *g, sb_value_id a, sb_value_id b)
{
    sb_value_id factor;
    double p;

    if (sb_const_scalar(g->graph, b, &p)) {
        sb_value_id power =
            p == 2 ? a : sb_emit2(g, "Pow", a, sb_grad_scalar(g, a, p - 1));
        factor = sb_emit2(g, "Mul", power, sb_grad_scalar(g, a, p));
    } else {
        sb_value_id one = sb_grad_scalar(g, a, 1);
        factor = sb_emit2(g, "Mul", b,
                          sb_emit2(g, "Pow", a, sb_emit2(g, "Sub", b, one)));
    }
    return sb_emit2(g, "Mul", g->dy[0], factor);
}

/* db = dy y log(a), and 0 where there is no logarithm */
static sb_value_id pow_exponent(sb_grad *g, sb_value_id a)
{
    sb_value_id positive = sb_emit2(g, "Greater", a, sb_grad_scalar(g, a, 0));
    sb_value_id safe =
        sb_emit3(g, "Where", positive, a, sb_grad_scalar(g, a, 1));

    return sb_emit2(g, "Mul", g->dy[0],
                    sb_emit2(g, "Mul", ew_out(g), sb_emit1(g, "Log", safe)));
}

sb_status sb_grad_pow(sb_grad *g)
{
    sb_value_id a = sb_grad_in(g, 0), b = sb_grad_in(g, 1);

    if (sb_grad_type(g, b)->dtype != sb_grad_type(g, a)->dtype) {
        double p;
        if (!sb_const_scalar(g->graph, b, &p))
            return sb_grad_refuse(g, "base and exponent of different types");
    }
    if (g->wanted[0])
        ew_give(g, 0, pow_base(g, a, b));
    if (g->wanted[1])
        ew_give(g, 1, pow_exponent(g, a));
    return SB_OK;
}

sb_status sb_grad_prelu(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0), slope = sb_grad_in(g, 1);
    sb_value_id zero = sb_grad_scalar(g, x, 0);

    if (g->wanted[0])
        g->dx[0] = sb_emit3(g, "Where", sb_emit2(g, "Less", x, zero),
                            sb_emit2(g, "Mul", g->dy[0], slope), g->dy[0]);
    if (g->wanted[1])
        ew_give(g, 1,
                sb_emit2(g, "Mul", g->dy[0], sb_emit2(g, "Min", x, zero)));
    return SB_OK;
}

/* 1 where input i is the extreme, as a number. */
static sb_value_id extreme_mask(sb_grad *g, uint32_t i)
{
    sb_value_id equal = sb_emit2(g, "Equal", sb_grad_in(g, i), ew_out(g));

    if (g->status != SB_OK)
        return SB_NONE;
    return sb_emit_with(g, "Cast", equal, SB_NONE,
                        SB_EMIT_INT("to", sb_grad_type(g, ew_out(g))->dtype));
}

/* Where several inputs are the extreme they share the gradient. */
sb_status sb_grad_extreme(sb_grad *g)
{
    sb_value_id count = SB_NONE;

    for (uint32_t i = 0; i < g->node->n_in; i++) {
        sb_value_id mask = extreme_mask(g, i);
        if (g->wanted[i]) /* until the count is known */
            g->dx[i] = mask;
        count = i ? sb_emit2(g, "Add", count, mask) : mask;
    }
    sb_value_id share = sb_emit2(g, "Div", g->dy[0], count);
    for (uint32_t i = 0; i < g->node->n_in; i++)
        if (g->wanted[i])
            ew_give(g, i, sb_emit2(g, "Mul", share, g->dx[i]));
    return SB_OK;
}

/* A limit gets the gradient of the elements that it holds back. */
static void clip_limit(sb_grad *g, uint32_t i, const char *beyond)
{
    sb_value_id at = sb_emit2(g, beyond, ew_out(g), sb_grad_in(g, i));

    ew_give(
        g, i,
        sb_emit3(g, "Where", at, g->dy[0], sb_grad_scalar(g, ew_out(g), 0)));
}

sb_status sb_grad_clip(sb_grad *g)
{
    if (g->wanted[0])
        g->dx[0] = sb_emit(
            g, &(sb_emit_spec){.op = "ClipGrad",
                               .in = {g->dy[0], ew_out(g), sb_grad_in(g, 1),
                                      sb_grad_in(g, 2)},
                               .n_in = 4});
    if (sb_grad_wants(g, 1))
        clip_limit(g, 1, "LessOrEqual");
    if (sb_grad_wants(g, 2))
        clip_limit(g, 2, "GreaterOrEqual");
    return SB_OK;
}

/* y = a - b n, where n is a whole number */
sb_status sb_grad_mod(sb_grad *g)
{
    sb_value_id a = sb_grad_in(g, 0), b = sb_grad_in(g, 1);

    if (g->wanted[0])
        ew_give(g, 0, g->dy[0]);
    if (g->wanted[1]) {
        sb_value_id n =
            sb_emit1(g, "Round",
                     sb_emit2(g, "Div", sb_emit2(g, "Sub", a, ew_out(g)), b));
        ew_give(g, 1, sb_emit1(g, "Neg", sb_emit2(g, "Mul", g->dy[0], n)));
    }
    return SB_OK;
}

sb_status sb_grad_where(sb_grad *g)
{
    sb_value_id c = sb_grad_in(g, 0), zero = sb_grad_scalar(g, g->dy[0], 0);

    if (g->wanted[1])
        ew_give(g, 1, sb_emit3(g, "Where", c, g->dy[0], zero));
    if (g->wanted[2])
        ew_give(g, 2, sb_emit3(g, "Where", c, zero, g->dy[0]));
    return SB_OK;
}

sb_status sb_grad_cast(sb_grad *g)
{
    if (g->wanted[0])
        g->dx[0] = sb_emit_with(
            g, "Cast", g->dy[0], SB_NONE,
            SB_EMIT_INT("to", sb_grad_type(g, sb_grad_in(g, 0))->dtype));
    return SB_OK;
}
