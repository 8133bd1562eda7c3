/* Criteria of pruning: what each of them takes out, expected by hand. */
#include "prunetest.h"

/* A residual block with a norm and a depthwise convolution. */
static const char residual[] =
    "graph net(x: f32[1,3,4,4]) -> (y: f32[1,2,4,4]) {\n"
    "w1: f32[6,3,1,1] = random(1)\n"
    "w2: f32[6,6,3,3] = random(2)\n"
    "s: f32[6] = random(3)\n o: f32[6] = random(4)\n"
    "m: f32[6] = random(5)\n v: f32[6] = 2\n"
    "d: f32[6,1,3,3] = random(6)\n"
    "w3: f32[2,6,1,1] = random(7)\n"
    "a = Conv(x, w1) \"stem\"\n"
    "c = Conv(a, w2) {pads=[1,1,1,1]} \"conv\"\n"
    "n = BatchNormalization(c, s, o, m, v) \"bn\"\n"
    "t = Add(a, n) \"add\"\n"
    "e = Conv(t, d) {group=6, pads=[1,1,1,1]} \"dw\"\n"
    "y = Conv(e, w3) \"last\"\n}";

/* Which two of four channels go, on a layer whose four columns are (3,0),
 * (2,2), (0,1), (2,1), behind it scales 1, 4, 3, 2, and readers. */
static void test_criteria(void **state)
{
    static const char net[] =
        "graph net(x: f32[8,2]) -> (y: f32[8,1]) {\n"
        "a: f32[2,4] = [3,2,0,2, 0,2,1,1]\n"
        "s: f32[4] = [1,4,-3,2]\n z: f32[4] = 0\n v: f32[4] = 1\n"
        "b: f32[4,1] = [1,1,1,1]\n"
        "h = MatMul(x, a) \"fc\"\n"
        "n = BatchNormalization(h, s, z, z, v) \"bn\"\n"
        "y = MatMul(n, b) \"out\"\n}";
    static const struct {
        const char *strategy, *gone;
    } cases[] = {
        {"l1norm", "0,2"},   /* 3, 4, 1, 3: the first of equals */
        {"l2norm", "2,3"},   /* 3, 2.83, 1, 2.24 */
        {"slimming", "0,3"}, /* 1, 4, 3, 2 */
        /* sums of distances: 6.80, 5.47, 7.40, 4.41 */
        {"geometric_median", "1,3"},
        {"hrank", "0,2"}, /* no images: as l1norm */
    };
    const sb_tensor *x = test_random(SB_DTYPE_F32, "8x2", 5);

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char config[128];
        snprintf(config, sizeof config, CONFIG("RATIO: 0.5, STRATEGY: %s"),
                 cases[i].strategy);
        sb_prune *p = prune_net(net, config, x);
        assert_cut(p, "a", 1, cases[i].gone);
        sb_prune_free(p);
    }
}

/* Images of rank 1 go before those of rank 3. */
static void test_hrank_sees_images(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,2,3,3]) -> (y: f32[1,1,3,3]) {\n"
        "a: f32[2,2,1,1] = [1,0, 0,9]\n b: f32[1,2,1,1] = 1\n"
        "h = Conv(x, a) \"conv\"\n y = Conv(h, b) \"out\"\n}";
    /* The first channel is the identity, the second all ones. */
    const sb_tensor *x = test_f32("1x2x3x3", 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1,
                                  1, 1, 1, 1, 1, 1);
    sb_prune *p =
        prune_net(net, CONFIG("RATIO: 0.5, STRATEGY: hrank, REFIT: false"), x);

    (void)state;
    assert_cut(p, "a", 0, "1");
    sb_prune_free(p);
}

/* A channel that is twice another one can be done without: its reader's weight
 * goes to the other. */
static void test_refit_repairs_what_others_know(void **state)
{
    static const char net[] =
        "graph net(x: f32[16,2]) -> (y: f32[16,2]) {\n"
        "a: f32[2,3] = [1,2,0, 0,0,9]\n ab: f32[3] = 0\n"
        "b: f32[3,2] = [5,1, 1,2, 3,1]\n"
        "h = Gemm(x, a, ab) \"fc\"\n r = Relu(h) \"act\"\n"
        "y = MatMul(r, b) \"out\"\n}";
    const sb_tensor *x = test_random(SB_DTYPE_F32, "16x2", 5);
    sb_model *model = prune_parse(net);
    sb_tensor *want = prune_run_model(model, x);
    static const char *const configs[] = {
        CONFIG("RATIO: 0.34"),
        CONFIG("RATIO: 0.34, STRATEGY: reconstruction"),
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(configs); i++) {
        sb_prune *p = prune_net(net, configs[i], x);
        assert_int_equal(prune_layer(p, "fc")->removed, 1);
        sb_tensor *got = prune_run(p, x);
        assert_all_close("refit", got->data, want->data, 32, 5e-3);
        sb_prune_free(p);
    }
    sb_prune *p = prune_net(net, CONFIG("RATIO: 0.34, REFIT: false"), x);
    sb_tensor *got = prune_run(p, x);
    assert_true(memcmp(got->data, want->data, 32 * sizeof(float)) != 0);
    sb_prune_free(p);
    sb_model_free(model);
}

/* No weight reads what two activations are multiplied over: it goes with its
 * summand, here -1 of 9 - 1 + 4 for all pairs, if that is allowed. */
static void test_products_lose_summands(void **state)
{
    static const char net[] = "graph net(x: f32[4,2]) -> (y: f32[4,4]) {\n"
                              "a: f32[2,3] = [3,1,2, 3,1,2]\n"
                              "b: f32[2,3] = [3,-1,2, 3,-1,2]\n"
                              "q = MatMul(x, a) \"q\"\n"
                              "k = MatMul(x, b) \"k\"\n"
                              "t = Transpose(k) {perm=[1,0]} \"turn\"\n"
                              "y = MatMul(q, t) \"scores\"\n}";
    static const char *const strategies[] = {
        "l1norm", "l2norm", "hrank", "reconstruction", "taylor", "fisher"};
    const sb_tensor *x = test_random(SB_DTYPE_F32, "4x2", 5);
    sb_model *model = prune_parse(net);
    sb_tensor *want = prune_run_model(model, x);
    sb_prune *p = NULL;

    (void)state;
    assert_status(prune_try(net, CONFIG("RATIO: 0.34"), &p), SB_UNSUPPORTED);
    assert_error_has("of 'q' (MatMul): a sum over products of activations "
                     "(node 'scores')");
    for (int i = 0; i < 16; i++)
        ((float *)want->data)[i] *= 13.0f / 12;
    for (size_t i = 0; i < SB_COUNT(strategies); i++) {
        char config[128];
        snprintf(config, sizeof config,
                 CONFIG("RATIO: 0.34, STATISTICS: true, STRATEGY: %s"),
                 strategies[i]);
        p = prune_net(net, config, x);
        sb_tensor *got = prune_run(p, x);
        assert_cut(p, "b", 1, "1");
        assert_all_close("product", got->data, want->data, 16, 1e-5);
        sb_prune_free(p);
    }
    sb_model_free(model);
}

/* The loss of class 0 changes by x_c p_1 (b_c1 - b_c0) with channel c: 0, 4 and
 * 3 times p_1, however large the weights are. */
static void test_gradients_tell_what_the_loss_needs(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,3]) -> (y: f32[1,2]) {\n"
        "a: f32[3,3] = [1,0,0, 0,1,0, 0,0,1]\n"
        "b: f32[3,2] = [50,50, 1,-1, 3,0]\n"
        "h = MatMul(x, a) \"fc\"\n y = MatMul(h, b) \"out\"\n}";
    static const char *const configs[] = {
        CONFIG("RATIO: 0.67, STRATEGY: taylor, REFIT: false"),
        CONFIG("RATIO: 0.67, STRATEGY: fisher, REFIT: false")};
    const sb_tensor *x = test_f32("1x3", 1, 2, 1);
    const int64_t label = 0;
    sb_batch batch = SB_BATCH_INIT;

    (void)state;
    batch.count = 1;
    batch.n_inputs = 1;
    batch.inputs = &x;
    batch.labels = &label;
    for (size_t i = 0; i < SB_COUNT(configs); i++) {
        sb_prune *p = NULL;
        assert_ok(prune_try(net, configs[i], &p));
        assert_ok(sb_prune_forward_batch(p, &batch));
        assert_ok(sb_prune_apply(p, NULL));
        assert_cut(p, "b", 0, "0,2");
        sb_prune_free(p);
    }
}

/* Without labels: the mean square of a random sum of the outputs. */
static void test_gradients_without_labels(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,2]) -> (y: f32[1,2]) {\n"
        "a: f32[2,2] = [1,0, 0,1]\n b: f32[2,2] = [1,0, 5,0]\n"
        "h = MatMul(x, a) \"fc\"\n y = MatMul(h, b) \"out\"\n}";
    sb_prune *p =
        prune_net(net, CONFIG("RATIO: 0.5, STRATEGY: fisher, REFIT: false"),
                  test_f32("1x2", 10, 1));

    (void)state;
    assert_cut(p, "b", 0, "1"); /* 100 and 25 */
    sb_prune_free(p);
}

/* Of two inputs that are always equal one weight goes, and the other takes
 * over; damping keeps it a little short. */
static void test_sparsegpt_makes_up_for_zeros(void **state)
{
    static const char net[] = "graph net(x: f32[4,2]) -> (y: f32[4,1]) {\n"
                              "w: f32[2,1] = [1, 3]\n"
                              "y = MatMul(x, w) \"fc\"\n}";
    sb_prune *p = prune_net(
        net, CONFIG("TYPE: unstructured, STRATEGY: sparsegpt, RATIO: 0.5"),
        test_f32("4x2", 1, 1, -2, -2, 3, 3, 1, 1));
    sb_model *model = NULL;
    double got[2];

    (void)state;
    assert_ok(sb_prune_model(p, &model));
    assert_true(sb_tensor_read_f64(sb_model_weight(model, "w"), 0, 2, got));
    assert_close("gone", got[0], 0, 0);
    /* 3 + 1 * 1 / (1 + 0.01) */
    assert_close("left", got[1], 3 + 1 / 1.01, 1e-5);
    sb_model_free(model);
    sb_prune_free(p);
}

/* Weights that training moved toward zero go, however large they are. */
static void test_movement_compares_with_before(void **state)
{
    static const char net[] = "graph net(x: f32[1,2]) -> (y: f32[1,2]) {\n"
                              "w: f32[2,2] = [%s]\n"
                              "y = MatMul(x, w) \"fc\"\n}";
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    char then[128], now[128];
    sb_prune *p = NULL;

    (void)state;
    snprintf(then, sizeof then, net, "5, 1, -1, 3");
    snprintf(now, sizeof now, net, "4, 2, -2, 1");
    sb_model *before = prune_parse(then), *after = prune_parse(now);
    opt.config_text =
        CONFIG("TYPE: unstructured, STRATEGY: movement, RATIO: 0.5");
    assert_status(sb_prune_create(after, &opt, &p), SB_BAD_ARG);
    assert_error_has("give it (--before)");
    opt.before = before;
    assert_ok(sb_prune_create(after, &opt, &p));
    assert_ok(sb_prune_apply(p, NULL));
    /* (16 - 25, 4 - 1, 4 - 1, 1 - 9) / 2 */
    assert_weight(p, "w", (const double[]){0, 2, -2, 0}, 4);
    sb_prune_free(p);
    sb_model_free(before);
    sb_model_free(after);
}

static void test_random_follows_the_seed(void **state)
{
    sb_prune *a =
        prune_net(residual, CONFIG("RATIO: 0.5, STRATEGY: random"), NULL);
    sb_prune *b =
        prune_net(residual, CONFIG("RATIO: 0.5, STRATEGY: random"), NULL);
    const sb_prune_report *x = prune_report(a), *y = prune_report(b);

    (void)state;
    assert_int_equal(x->n_cuts, y->n_cuts);
    for (size_t i = 0; i < x->n_cuts; i++)
        assert_memory_equal(x->cuts[i]->indices, y->cuts[i]->indices,
                            x->cuts[i]->n_indices * sizeof(int64_t));
    sb_prune_free(a);
    sb_prune_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_criteria),
        cmocka_unit_test(test_hrank_sees_images),
        cmocka_unit_test(test_refit_repairs_what_others_know),
        cmocka_unit_test(test_products_lose_summands),
        cmocka_unit_test(test_gradients_tell_what_the_loss_needs),
        cmocka_unit_test(test_gradients_without_labels),
        cmocka_unit_test(test_sparsegpt_makes_up_for_zeros),
        cmocka_unit_test(test_movement_compares_with_before),
        cmocka_unit_test(test_random_follows_the_seed),
    };
    return cmocka_run_group_tests_name("prune_criteria", tests, NULL, NULL);
}
