/* Every allocation fails once: pruning with data, re-fit and masks. */
#include "sbtest.h"

#include <sparsebit/prune.h>

static const char net[] =
    "graph net(x: f32[1,2,4,4]) -> (y: f32[1,3]) {\n"
    "w: f32[4,2,3,3] = random(1)\n s: f32[4] = random(2)\n z: f32[4] = 0\n"
    "m: f32[4] = 0\n o: f32[4] = 1\n d: f32[4,2,1,1] = random(3)\n"
    "v: f32[3,16] = random(4)\n b: f32[3] = random(5)\n"
    "t: i64[2] = [1,-1]\n"
    "c = Conv(x, w) \"conv\"\n n = BatchNormalization(c, s, z, m, o)\n"
    "g = Conv(n, d) {group=2} \"group\"\n a = Add(n, g)\n"
    "f = Reshape(a, t)\n y = Gemm(f, v, b) {transB=1} \"fc\"\n}";

/* Gradients need many graphs; a small network has all of them. */
static const char small_net[] =
    "graph net(x: f32[1,2,4,4]) -> (y: f32[1,3]) {\n"
    "w: f32[2,2,4,4] = random(1)\n v: f32[2,3] = random(2)\n"
    "c = Conv(x, w) \"conv\"\n f = Flatten(c)\n"
    "y = MatMul(f, v) \"fc\"\n}";

static sb_status prune(sb_ctx *ctx, const char *text, const char *config)
{
    static float x[32] = {1, 2, 3};
    int more = 0;
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    const sb_prune_report *report = NULL;
    sb_model *model = NULL, *small = NULL;
    sb_prune *p = NULL;
    sb_tensor in = sb_tensor_make(SB_DTYPE_F32, 4, (int64_t[]){1, 2, 4, 4});
    const sb_tensor *inputs[] = {&in};
    sb_status s = sb_model_parse(ctx, text, &model);

    in.data = x;
    opt.config_text = config;
    if (s == SB_OK)
        s = sb_prune_create(model, &opt, &p);
    if (s == SB_OK)
        s = sb_prune_forward(p, inputs, 1);
    if (s == SB_OK)
        s = sb_prune_apply(p, &more);
    for (int i = 0; i < 9 && more && s == SB_OK; i++) /* for the norms */
        s = sb_prune_forward(p, inputs, 1);
    if (more && s == SB_OK)
        s = sb_prune_apply(p, NULL);
    if (s == SB_OK)
        s = sb_prune_report_get(p, &report);
    if (s == SB_OK)
        s = sb_prune_model(p, &small);
    sb_model_free(small);
    sb_prune_free(p);
    sb_model_free(model);
    return s;
}

static sb_status structured(sb_ctx *ctx)
{
    return prune(ctx, net,
                 "SPARSER: {RATIO: 0.5, STRATEGY: reconstruction, "
                 "SPECIFIC: {conv: 0.5}, EXCLUDE: [fc]}\n");
}

static sb_status gradients(sb_ctx *ctx)
{
    return prune(ctx, small_net, "SPARSER: {RATIO: 0.5, STRATEGY: taylor}\n");
}

static sb_status thinned(sb_ctx *ctx)
{
    return prune(ctx, net,
                 "SPARSER: {TYPE: unstructured, RATIO: 0.5, STRATEGY: "
                 "sparsegpt}\n");
}

static sb_status unstructured(sb_ctx *ctx)
{
    return prune(ctx, net,
                 "SPARSER: {TYPE: unstructured, RATIO: 0.5, STRATEGY: "
                 "wanda, SCOPE: global}\n");
}

static void test_pruning_out_of_memory(void **state)
{
    (void)state;
    test_every_allocation("structured", structured);
    test_every_allocation("unstructured", unstructured);
    test_every_allocation("gradients", gradients);
    test_every_allocation("thinned", thinned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pruning_out_of_memory),
    };
    return cmocka_run_group_tests_name("oom_prune", tests, NULL, NULL);
}
