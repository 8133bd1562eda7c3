/* sb_model_make_batch_dynamic: such a model gives for three samples at once
 * what the model as it was gives for each of them alone. */
#include <stdlib.h>

#include "sbtest.h"

/* What PyTorch writes for x.view(x.size(0), -1) with a fixed batch, and a
 * Reshape that was folded to numbers. */
static const char chain_text[] =
    "graph chain(x: f32[1,4,6]) -> (y: f32[1,24], z: f32[1,2,12]) {\n"
    "    zero: i64[] = 0\n"
    "    axes: i64[1] = [0]\n"
    "    rest: i64[1] = [-1]\n"
    "    pinned: i64[3] = [1, 2, 12]\n"
    "    s = Shape(x)\n"
    "    n = Gather(s, zero)\n"
    "    u = Unsqueeze(n, axes)\n"
    "    t = Concat(u, rest) {axis=0}\n"
    "    y = Reshape(x, t)\n"
    "    r = Relu(x)\n"
    "    z = Reshape(r, pinned)\n"
    "}\n";

/* Heads moved into the batch and back, as attention does. */
static const char heads_text[] =
    "graph heads(x: f32[1,6,8]) -> (y: f32[1,6,8]) {\n"
    "    a: i64[4] = [1, 6, 2, 4]\n"
    "    b: i64[3] = [2, 6, 4]\n"
    "    c: i64[4] = [1, 2, 6, 4]\n"
    "    d: i64[3] = [1, 6, 8]\n"
    "    w: f32[4,4] = random(1)\n"
    "    h = Reshape(x, a)\n"
    "    t = Transpose(h) {perm=[0,2,1,3]}\n"
    "    m = Reshape(t, b)\n"
    "    p = MatMul(m, w)\n"
    "    q = Reshape(p, c)\n"
    "    v = Transpose(q) {perm=[0,2,1,3]}\n"
    "    y = Reshape(v, d)\n"
    "}\n";

/* As PyTorch's newer exporter writes it: zeros are allowed, and none there. */
static const char allowzero_text[] =
    "graph zeros(x: f32[1,4,6]) -> (y: f32[1,24], z: f32[1,24]) {\n"
    "    a: i64[2] = [1, 24]\n"
    "    b: i64[2] = [1, -1]\n"
    "    y = Reshape(x, a) {allowzero=1}\n"
    "    z = Reshape(x, b) {allowzero=1}\n"
    "}\n";

/* Samples along another dimension on the way, and kept apart. */
static const char swapped_text[] =
    "graph swapped(x: f32[1,4,6]) -> (y: f32[1,24]) {\n"
    "    a: i64[2] = [1, 24]\n"
    "    t = Transpose(x) {perm=[1,0,2]}\n"
    "    r = Softmax(t) {axis=-1}\n"
    "    u = Transpose(r) {perm=[1,0,2]}\n"
    "    y = Reshape(u, a)\n"
    "}\n";

/* Steps of a recurrent network along the first dimension, samples along the
 * second, as PyTorch writes it. */
static const char steps_text[] =
    "graph steps(x: f32[1,4,6]) -> (y: f32[1,4,6]) {\n"
    "    w: f32[1,6,6] = random(1)\n"
    "    r: f32[1,6,6] = random(2)\n"
    "    one: i64[1] = [1]\n"
    "    t = Transpose(x) {perm=[1,0,2]}\n"
    "    h = RNN(t, w, r) {hidden_size=6}\n"
    "    s = Squeeze(h, one)\n"
    "    y = Transpose(s) {perm=[1,0,2]}\n"
    "}\n";

/* Windows, means over other dimensions, picking, a product of activations. */
static const char many_text[] =
    "graph many(x: f32[1,4,6]) -> (y: f32[1,4,6]) {\n"
    "    last: i64[1] = [-1]\n"
    "    two: i64[1] = [2]\n"
    "    from: i64[1] = [0]\n"
    "    to: i64[1] = [3]\n"
    "    order: i64[4] = [3, 2, 1, 0]\n"
    "    m = ReduceMean(x, last) {keepdims=1}\n"
    "    c = Sub(x, m)\n"
    "    p = Gather(c, order) {axis=1}\n"
    "    q = Transpose(p) {perm=[0,2,1]}\n"
    "    a = MatMul(c, q)\n"
    "    s = Softmax(a) {axis=-1}\n"
    "    z = MatMul(s, c)\n"
    "    l = Slice(z, from, to, two)\n"
    "    y = Concat(l, l) {axis=2}\n"
    "}\n";

/* Shapes fit, but samples mix: a Transpose that simplifying made a Reshape, a
 * walk along what was one sample's steps, a mean of everything. */
static const char *const mixed[] = {
    "graph moved(x: f32[1,4,6]) -> (y: f32[1,4,6]) {\n"
    "    a: i64[3] = [4, 1, 6]\n"
    "    b: i64[3] = [1, 4, 6]\n"
    "    w: f32[4,1,6] = random(1)\n"
    "    t = Reshape(x, a)\n"
    "    m = Mul(t, w)\n"
    "    u = Reshape(m, b)\n"
    "    y = Softmax(u) {axis=1}\n"
    "}\n",
    "graph steps(x: f32[1,4,6]) -> (y: f32[1,4,3]) {\n"
    "    a: i64[3] = [4, 1, 6]\n"
    "    b: i64[3] = [1, 4, 3]\n"
    "    w: f32[1,3,6] = random(1)\n"
    "    r: f32[1,3,3] = random(2)\n"
    "    t = Reshape(x, a)\n"
    "    h = RNN(t, w, r) {hidden_size=3}\n"
    "    y = Reshape(h, b)\n"
    "}\n",
    "graph walk(x: f32[1,4,6]) -> (y: f32[1,4,6]) {\n"
    "    zero: i64[] = 0\n"
    "    y = CumSum(x, zero)\n"
    "}\n",
    "graph turned(x: f32[1,4,6]) -> (y: f32[1,4,6]) {\n"
    "    g: f32[1,6] = random(4)\n"
    "    t = Transpose(x) {perm=[1,0,2]}\n"
    "    n = LayerNormalization(t, g) {axis=1}\n"
    "    y = Transpose(n) {perm=[1,0,2]}\n"
    "}\n",
    "graph mean(x: f32[1,4,6]) -> (y: f32[1,4,6]) {\n"
    "    m = ReduceMean(x) {keepdims=0}\n"
    "    y = Sub(x, m)\n"
    "}\n",
};

/* Not per sample: a concatenation with one constant row, an output without
 * batch, a flattened batch, inputs that disagree. */
static const char *const refused[] = {
    "graph token(x: f32[1,4,6]) -> (y: f32[1,5,6]) {\n"
    "    w: f32[1,1,6] = random(1)\n"
    "    y = Concat(w, x) {axis=1}\n"
    "}\n",
    "graph rank(x: f32[1,4,1]) -> (y: f32[4]) {\n"
    "    y = Squeeze(x)\n"
    "}\n",
    "graph flat(x: f32[1,4]) -> (y: f32[1,4]) {\n"
    "    y = Flatten(x) {axis=0}\n"
    "}\n",
    "graph two(x: f32[1,4], z: f32[2,4]) -> (y: f32[2,4]) {\n"
    "    y = Add(x, z)\n"
    "}\n",
};

static void run(const sb_model *m, const sb_tensor *x, float *out, size_t *n)
{
    const sb_tensor *got[2];
    sb_session *s = NULL;

    assert_ok(sb_session_create(m, NULL, &s));
    assert_ok(test_session_run(s, &x, got));
    *n = 0;
    for (size_t i = 0; i < sb_model_output_count(m); i++) {
        size_t k = (size_t)sb_tensor_elements(got[i]);

        memcpy(out + *n, sb_tensor_data(got[i]), k * sizeof *out);
        *n += k;
    }
    sb_session_free(s);
}

/* Three samples at once and one by one. */
static void check(const char *text, const char *shape3, const char *shape1)
{
    sb_model *m = NULL;
    int done = 0;
    sb_tensor *x = test_random(SB_DTYPE_F32, shape3, 5);
    sb_tensor *one = test_tensor(SB_DTYPE_F32, shape1, NULL);
    size_t per = (size_t)sb_tensor_elements(one), n;
    float want[3][256], got[768];

    assert_ok(sb_model_parse(test_ctx(), text, &m));
    size_t outputs = sb_model_output_count(m);
    for (size_t i = 0; i < 3; i++) {
        memcpy(one->data, (float *)x->data + i * per, per * sizeof(float));
        run(m, one, want[i], &n);
    }
    assert_ok(sb_model_make_batch_dynamic(m, &done));
    assert_int_equal(done, 1);
    assert_int_equal(sb_model_input(m, 0)->dims[0], -1);
    run(m, x, got, &n);
    assert_int_equal(n, 3 * per * outputs);
    for (size_t o = 0; o < outputs; o++)
        for (size_t i = 0; i < 3; i++)
            assert_all_close("sample", got + (o * 3 + i) * per,
                             want[i] + o * per, per, 1e-6);
    sb_model_free(m);
}

static void test_chains_take_more_samples(void **state)
{
    (void)state;
    check(chain_text, "3x4x6", "1x4x6");
}

static void test_heads_take_more_samples(void **state)
{
    (void)state;
    check(heads_text, "3x6x8", "1x6x8");
}

static void test_allowzero_takes_more_samples(void **state)
{
    (void)state;
    check(allowzero_text, "3x4x6", "1x4x6");
}

static void test_swapped_axes_take_more_samples(void **state)
{
    (void)state;
    check(swapped_text, "3x4x6", "1x4x6");
}

static void test_recurrent_steps_take_more_samples(void **state)
{
    (void)state;
    check(steps_text, "3x4x6", "1x4x6");
}

static void test_many_operators_take_more_samples(void **state)
{
    (void)state;
    check(many_text, "3x4x6", "1x4x6");
}

static void check_refused(const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sb_model *m = NULL;
        int done = 1;

        assert_ok(sb_model_parse(test_ctx(), texts[i], &m));
        assert_ok(sb_model_make_batch_dynamic(m, &done));
        assert_int_equal(done, 0);
        assert_true(sb_model_input(m, 0)->dims[0] == 1);
        sb_model_free(m);
    }
}

static void test_what_fixes_the_batch_is_refused(void **state)
{
    (void)state;
    check_refused(refused, SB_COUNT(refused));
}

static void test_what_mixes_samples_is_refused(void **state)
{
    (void)state;
    check_refused(mixed, SB_COUNT(mixed));
}

static void test_already_free(void **state)
{
    sb_model *m = NULL;
    int done = 0;

    (void)state;
    assert_ok(sb_model_parse(test_ctx(),
                             "graph any(x: f32[B,3]) -> (y: f32[B,3]) {\n"
                             "    y = Relu(x)\n"
                             "}\n",
                             &m));
    assert_ok(sb_model_make_batch_dynamic(m, &done));
    assert_int_equal(done, 1);
    assert_string_equal(sb_model_input(m, 0)->text, "float[B,3]");
    sb_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains_take_more_samples),
        cmocka_unit_test(test_heads_take_more_samples),
        cmocka_unit_test(test_allowzero_takes_more_samples),
        cmocka_unit_test(test_swapped_axes_take_more_samples),
        cmocka_unit_test(test_recurrent_steps_take_more_samples),
        cmocka_unit_test(test_many_operators_take_more_samples),
        cmocka_unit_test(test_what_fixes_the_batch_is_refused),
        cmocka_unit_test(test_what_mixes_samples_is_refused),
        cmocka_unit_test(test_already_free),
    };
    return cmocka_run_group_tests_name("dynamic_batch", tests, NULL, NULL);
}
