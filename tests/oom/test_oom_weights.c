/* Every allocation fails once: weight-only, activations at run time, in every
 * form of file. */
#include "quanttest.h"

static const char products[] =
    "graph net(x: f32[2,20], i: i64[2]) -> (y, e) {\n"
    "t: f32[5,20] = random(1)\nw: f32[20,6] = random(2)\n"
    "v: f32[3,6] = random(3)\nb: f32[3] = random(4)\n"
    "e = Gather(t, i) \"table\"\na = MatMul(x, w) \"fc1\"\n"
    "y = Gemm(a, v, b) {transB=1, alpha=0.5, beta=2.0} \"fc2\"\n}";
static const char conv[] =
    "graph net(x: f32[1,2,4,4]) -> (y) {\n"
    "w: f32[4,2,3,3] = random(5)\nb: f32[4] = random(6)\n"
    "y = Conv(x, w, b) \"conv\"\n}";

static const char lstm[] =
    "graph net(x: f32[2,1,3]) -> (y) {\n"
    "w: f32[1,8,3] = random(7)\nr: f32[1,8,2] = random(8)\n"
    "y = LSTM(x, w, r) {hidden_size=2} \"cell\"\n}";

#define W4(mode)                                                           \
    "W: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 4, GROUP_SIZE: 16}, " \
    "OBSERVER: {TYPE: hqq}}\nA: " mode "\n"
#define W8(mode) \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: " mode "\n"

static sb_status blocked(sb_ctx *ctx)
{
    return test_quant_write(ctx, products, W4("none"), "onnxruntime-x86",
                            SB_EXPORT_FORMAT_QDQ);
}

static sb_status packed(sb_ctx *ctx)
{
    return test_quant_write(ctx, products, W4("none"), NULL,
                            SB_EXPORT_FORMAT_MATMULNBITS);
}

static sb_status dynamic(sb_ctx *ctx)
{
    return test_quant_write(ctx, products, W8("dynamic"), "onnxruntime-x86",
                            SB_EXPORT_FORMAT_QDQ);
}

static sb_status dynamic_conv(sb_ctx *ctx)
{
    return test_quant_write(ctx, conv, W8("dynamic"), NULL,
                            SB_EXPORT_FORMAT_QDQ);
}

static sb_status dynamic_lstm(sb_ctx *ctx)
{
    sb_quant_model *qm = NULL;
    sb_model *model = NULL;

    SB_TRY(test_quant_write(ctx, lstm, W8("dynamic"), "onnxruntime-x86",
                            SB_EXPORT_FORMAT_QDQ));
    sb_status s = sb_model_load(ctx, test_quant_file(), &model);
    if (s == SB_OK) /* read back */
        s = sb_quant_model_create(model, NULL, &qm);
    sb_quant_model_free(qm);
    sb_model_free(model);
    return s;
}

static sb_status simulated(sb_ctx *ctx)
{
    static float x[32];
    sb_tensor in = sb_tensor_make(SB_DTYPE_F32, 4, (int64_t[]){1, 2, 4, 4});
    const sb_tensor *const inputs[] = {&in}, *out[1];
    sb_quant_model *qm = NULL;
    sb_status s = test_quant_try(ctx, conv, W8("dynamic"), NULL, &qm);

    in.data = x;
    if (s == SB_OK)
        s = sb_quant_model_calc_qparams(qm);
    if (s == SB_OK) {
        sb_quant_model_set_quant(qm, 1, 1);
        s = test_quant_run(qm, inputs, out);
    }
    sb_quant_model_free(qm);
    return s;
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("blocked", blocked);
    test_every_allocation("packed", packed);
    test_every_allocation("dynamic", dynamic);
    test_every_allocation("dynamic convolution", dynamic_conv);
    test_every_allocation("dynamic LSTM", dynamic_lstm);
    test_every_allocation("simulated", simulated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failed_allocation_is_reported)};

    return cmocka_run_group_tests_name("oom_weights", tests, NULL, NULL);
}
