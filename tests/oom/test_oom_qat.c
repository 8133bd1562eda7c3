/* Every allocation fails once while a network is made ready to be trained with
 * quantizers, takes a step, and takes over what it learned. */
#include "quanttest.h"

#include <sparsebit/train.h>

static const char net[] =
    "graph net(x: f32[N,2,4,4]) -> (y) {\n"
    "w: f32[3,2,3,3] = random(1)\nb: f32[3] = random(2)\n"
    "c = Conv(x, w, b) {pads=[1,1,1,1]} \"conv\" @ body.conv\n"
    "r = Relu(c) @ body.act\n"
    "p = GlobalAveragePool(r) @ pool\n"
    "f = Flatten(p)\nu: f32[3,2] = random(4)\n"
    "y = MatMul(f, u) \"fc\" @ head.fc\n}";

static sb_status learn(sb_ctx *ctx, sb_quant_model *qm, const sb_tensor *x,
                       sb_train_bn bn)
{
    const int64_t two = 2, classes[] = {0, 1};
    const sb_tensor *in[] = {x}, *out[1];
    sb_learner *learner = NULL;
    sb_tensor *labels = NULL;

    SB_TRY(sb_quant_model_prepare_calibration(qm, NULL));
    SB_TRY(test_quant_run(qm, in, out));
    SB_TRY(sb_quant_model_calc_qparams(qm));
    SB_TRY(sb_quant_model_learner(qm, NULL, bn, &learner));
    sb_status status = sb_tensor_create(ctx, SB_DTYPE_I64, 1, &two, &labels);
    if (status == SB_OK) {
        memcpy(labels->data, classes, sizeof classes);
        status = sb_learner_step(learner, in, 1, labels, NULL);
    }
    if (status == SB_OK)
        status = sb_quant_model_take(qm, learner, SB_LEARN_VALUES_LAST);
    sb_tensor_free(labels);
    sb_learner_free(learner);
    return status;
}

static sb_status run(sb_ctx *ctx, const char *yaml, sb_train_bn bn)
{
    const int64_t dims[] = {2, 2, 4, 4};
    sb_quant_model *qm = NULL;
    sb_tensor *x = NULL;

    SB_TRY(test_quant_try_train(ctx, net, yaml, NULL, &qm));
    sb_status status = sb_tensor_create(ctx, SB_DTYPE_F32, 4, dims, &x);
    if (status == SB_OK) {
        sb_tensor_fill_random(x, 1);
        status = learn(ctx, qm, x, bn);
    }
    sb_tensor_free(x);
    sb_quant_model_free(qm);
    return status;
}

static sb_status restored(sb_ctx *ctx)
{
    return run(ctx,
               "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, "
               "BIT: 4}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: "
               "lsq+, BIT: 4}}\n",
               SB_TRAIN_BN_RESTORE);
}

static sb_status folded(sb_ctx *ctx)
{
    return run(ctx,
               "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: dorefa, "
               "BIT: 4}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: "
               "pact, BIT: 4}}\n",
               SB_TRAIN_BN_FOLDED);
}

static void test_restored(void **state)
{
    (void)state;
    test_every_allocation("norms restored", restored);
}

static void test_folded(void **state)
{
    (void)state;
    test_every_allocation("norms folded", folded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restored),
        cmocka_unit_test(test_folded),
    };

    return cmocka_run_group_tests_name("oom_qat", tests, NULL, NULL);
}
