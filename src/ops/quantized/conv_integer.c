/* ConvInteger: convolution of (x - x_zero) with (w - w_zero), exact in int32.
 */
#include "ops/batch_rules.h"
#include "ops/int8/int8_conv_last.h"

static const sb_int8_conv_inputs conv_integer_in = {
    .x = 0, .w = 1, .x_zero = 2, .w_zero = 3};

static sb_status conv_integer_infer(sb_infer *in)
{
    return sb_int8_conv_infer(in, &conv_integer_in, SB_DTYPE_I32);
}

static void conv_integer_layout(const sb_kernel *k, sb_layout *in,
                                sb_layout *out)
{
    sb_int8_last_layout(k, &conv_integer_in, in, out);
}

static sb_status conv_integer_prepare(sb_kernel *k)
{
    sb_int8_conv *c = NULL;

    SB_TRY(sb_int8_conv_create(k, &conv_integer_in, &c));
    k->state = c;
    k->scratch_size = c->scratch;
    return SB_OK;
}

static sb_status conv_integer_forward(sb_kernel *k)
{
    const sb_int8_conv_end end = {.dtype = SB_DTYPE_I32, .y = k->out[0]->data};

    sb_int8_conv_run(k, k->state, &end);
    return SB_OK;
}

static double conv_integer_macs(const sb_kernel *k)
{
    return sb_int8_conv_macs(k, &conv_integer_in);
}

const sb_op_def sb_op_conv_integer = {
    .name = "ConvInteger",
    .since = 10,
    .in_min = 2,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .weight_input = 1,
    .attrs_size = sizeof(sb_int8_conv_attrs),
    .attrs = sb_int8_conv_attr_defs,
    .batch = sb_batch_first,
    .infer = conv_integer_infer,
    .layout = conv_integer_layout,
    .prepare = conv_integer_prepare,
    .forward = conv_integer_forward,
    .release = sb_int8_conv_release,
    .macs = conv_integer_macs,
};
