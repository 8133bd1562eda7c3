/* A small network and PyTorch's steps. */
#include "learntest.h"

#include "tensor/npy.h"

static sb_npz_item *items;
static size_t n_items;

int test_learn_setup(void **state)
{
    (void)state;
    assert_ok(sb_npz_load(test_ctx(), "tests/fixtures/learner.npz", &items,
                          &n_items));
    return 0;
}

int test_learn_teardown(void **state)
{
    (void)state;
    sb_npz_free(test_ctx(), items, n_items);
    return 0;
}

const sb_tensor *test_learn_array(const char *fmt, const char *name)
{
    char full[64];

    (void)snprintf(full, sizeof full, fmt, name);
    for (size_t i = 0; i < n_items; i++)
        if (strcmp(items[i].name, full) == 0)
            return &items[i].tensor;
    fail_msg("no array '%s'", full);
    return NULL;
}

const char *const test_learn_names[TEST_LEARN_NAMES] = {
    "conv1.weight",     "bn1.weight",      "bn1.bias",
    "bn1.running_mean", "bn1.running_var", "conv2.weight",
    "conv2.bias",       "bn2.weight",      "bn2.bias",
    "bn2.running_mean", "bn2.running_var", "fc.weight",
    "fc.bias"};

#define WEIGHTS                                                        \
    "conv1.weight: f32[8,3,3,3] = random(1)\n"                         \
    "bn1.weight: f32[8] = random(2)\nbn1.bias: f32[8] = random(3)\n"   \
    "bn1.running_mean: f32[8] = random(4)\n"                           \
    "bn1.running_var: f32[8] = random(5)\n"                            \
    "conv2.weight: f32[8,8,3,3] = random(6)\n"                         \
    "conv2.bias: f32[8] = random(7)\nbn2.weight: f32[8] = random(8)\n" \
    "bn2.bias: f32[8] = random(9)\n"                                   \
    "bn2.running_mean: f32[8] = random(10)\n"                          \
    "bn2.running_var: f32[8] = random(11)\n"                           \
    "fc.weight: f32[5,8] = random(12)\nfc.bias: f32[5] = random(13)\n"
#define BODY                                                               \
    "c1 = Conv(x, conv1.weight) {pads=[1,1,1,1]} \"conv1\"\n"              \
    "n1 = BatchNormalization(c1, bn1.weight, bn1.bias, bn1.running_mean, " \
    "bn1.running_var) \"bn1\"\n"                                           \
    "r1 = Relu(n1)\n"                                                      \
    "p1 = MaxPool(r1) {kernel_shape=[2,2], strides=[2,2]}\n"               \
    "c2 = Conv(p1, conv2.weight, conv2.bias) {pads=[1,1,1,1]} \"conv2\"\n" \
    "n2 = BatchNormalization(c2, bn2.weight, bn2.bias, bn2.running_mean, " \
    "bn2.running_var) \"bn2\"\n"                                           \
    "a = Add(n2, p1)\nr2 = Relu(a)\ng = GlobalAveragePool(r2)\n"           \
    "f = Flatten(g)\n"

const char test_learn_cnn[] =
    "graph cnn(x: f32[N,3,8,8]) -> (y) {\n" WEIGHTS BODY
    "y = Gemm(f, fc.weight, fc.bias) {transB=1} \"fc\"\n"
    "}\n";
const char test_learn_cnn_soft[] =
    "graph cnn(x: f32[N,3,8,8]) -> (p) {\n" WEIGHTS BODY
    "t = Transpose(fc.weight) {perm=[1,0]}\nm = MatMul(f, t) \"fc\"\n"
    "y = Add(m, fc.bias)\np = Softmax(y)\n}\n";

sb_model *test_learn_parse(sb_ctx *ctx, const char *text)
{
    sb_model *model = NULL;

    test_assert_ok(sb_model_parse(ctx, text, &model), "parse", __FILE__,
                   __LINE__);
    return model;
}

sb_model *test_learn_started(sb_ctx *ctx, const char *text)
{
    sb_model *model = test_learn_parse(ctx, text);

    for (size_t i = 0; i < TEST_LEARN_NAMES; i++)
        test_assert_ok(sb_model_set_weight(
                           model, test_learn_names[i],
                           test_learn_array("start.%s", test_learn_names[i])),
                       test_learn_names[i], __FILE__, __LINE__);
    return model;
}

sb_tensor test_learn_step_of(const char *name, size_t i)
{
    const sb_tensor *all = test_learn_array("%s", name);
    sb_tensor t = sb_tensor_make(all->dtype, all->rank - 1, all->dims + 1);

    t.data = (char *)all->data + i * sb_tensor_bytes(&t);
    return t;
}

sb_learner *test_learn_make(const sb_model *model, const sb_learn_options *opt)
{
    sb_learner *l = NULL;

    assert_ok(sb_learner_create(model, opt, &l));
    return l;
}
