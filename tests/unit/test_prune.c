/* Pruning: channels of a network, choosing among them, cutting, masks, re-fit;
 * expected by hand, results compared with those of the network before. */
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

/* ---- channels ---------------------------------------------------------------- */

static void test_a_channel_is_rows_biases_and_columns(void **state)
{
    sb_prune *p = prune_net(chain, CONFIG("TYPE: structed, RATIO: 0.5"), NULL);

    (void)state;
    assert_cut(p, "a", 1, "0,1");
    assert_cut(p, "ab", 0, "0,1");
    assert_cut(p, "b", 0, "0,1");
    assert_cut(p, "b", 1, "");
    assert_int_equal(prune_layer(p, "fc1")->removed, 2);
    assert_int_equal(prune_layer(p, "fc2")->removable, 0);
    assert_string_equal(prune_layer(p, "fc2")->reason,
                        "an output of the network");
    /* relu(0*1 + 3*2 + 30) + relu(-4*1 + 40) = 36 + 36 */
    const sb_tensor *y = prune_run(p, test_f32("1x2", 1, 2));
    assert_close("y", ((float *)y->data)[0], 72, 1e-5);
    sb_prune_free(p);
}

static void test_what_a_sum_joins_goes_together(void **state)
{
    sb_prune *p = prune_net(residual, CONFIG("RATIO: 0.5"), NULL);
    const sb_prune_report *r = prune_report(p);

    (void)state;
    assert_int_equal(r->size, 14);
    assert_int_equal(r->removable, 12);
    assert_int_equal(r->removed, 6);
    assert_int_equal(prune_layer(p, "stem")->removed, 3);
    assert_int_equal(prune_layer(p, "conv")->removed, 3);
    /* The network computes what it did with the readers' columns zero. */
    sb_model *model = NULL;
    assert_ok(sb_prune_model(p, &model));
    assert_int_equal(sb_tensor_count(sb_model_weight(model, "w2")), 3 * 3 * 9);
    assert_int_equal(sb_tensor_count(sb_model_weight(model, "d")), 3 * 9);
    sb_model_free(model);
    sb_prune_free(p);
}

static void test_statistics_stay_unless_asked(void **state)
{
    static const char norm[] =
        "graph net(x: f32[1,3,4]) -> (y: f32[1,3,2]) {\n"
        "w: f32[4,6] = random(1)\n s: f32[6] = random(2)\n"
        "v: f32[6,2] = random(3)\n"
        "a = MatMul(x, w) \"fc\"\n n = LayerNormalization(a, s) \"norm\"\n"
        "y = MatMul(n, v) \"out\"\n}";
    sb_prune *p = NULL;

    (void)state;
    assert_status(prune_try(norm, CONFIG("RATIO: 0.5"), &p), SB_UNSUPPORTED);
    assert_error_has("no channel can be removed; of 'fc' (MatMul): it is "
                     "normalized over (node 'norm')");
    p = prune_net(norm, CONFIG("RATIO: 0.5, STATISTICS: true"), NULL);
    assert_int_equal(prune_layer(p, "fc")->removed, 3);
    sb_prune_free(p);
}

/* Four query heads on two key heads, as exporters write it: what goes are key
 * heads with everything that reads them, not elements of the values' heads,
 * which would be more channels but leave queries and keys whole. */
static void test_shared_key_heads_go_with_their_queries(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,3,4]) -> (y: f32[1,3,4]) {\n"
        "wq: f32[4,20] = random(1)\n wk: f32[4,10] = random(2)\n"
        "wv: f32[4,10] = random(3)\n wo: f32[20,4] = random(4)\n"
        "s4: i64[4] = [1,3,4,5]\n s2: i64[4] = [1,3,2,5]\n"
        "two: i64[1] = [2]\n more: i64[5] = [1,2,2,3,5]\n"
        "all: i64[4] = [1,4,3,5]\n flat: i64[3] = [1,3,20]\n"
        "v = MatMul(x, wv) \"v\"\n vr = Reshape(v, s2)\n"
        "vt = Transpose(vr) {perm=[0,2,1,3]}\n vu = Unsqueeze(vt, two)\n"
        "ve = Expand(vu, more)\n vh = Reshape(ve, all)\n"
        "q = MatMul(x, wq) \"q\"\n qr = Reshape(q, s4)\n"
        "qt = Transpose(qr) {perm=[0,2,1,3]}\n"
        "k = MatMul(x, wk) \"k\"\n kr = Reshape(k, s2)\n"
        "kt = Transpose(kr) {perm=[0,2,1,3]}\n ku = Unsqueeze(kt, two)\n"
        "ke = Expand(ku, more)\n kh = Reshape(ke, all)\n"
        "kx = Transpose(kh) {perm=[0,1,3,2]}\n"
        "s = MatMul(qt, kx)\n p = Softmax(s)\n o = MatMul(p, vh)\n"
        "ot = Transpose(o) {perm=[0,2,1,3]}\n of = Reshape(ot, flat)\n"
        "y = MatMul(of, wo) \"o\"\n}";
    sb_prune *p = prune_net(net, CONFIG("RATIO: 0.5"), NULL);

    (void)state;
    assert_int_equal(prune_layer(p, "q")->removed, 10);
    assert_int_equal(prune_layer(p, "k")->removed, 5);
    assert_int_equal(prune_layer(p, "v")->removed, 5);
    sb_prune_free(p);
}

/* One matrix for queries, keys and values of each head in turn, as in GPT-NeoX:
 * heads go, though elements of the values alone would be more channels. */
static void test_heads_go_before_elements_of_values(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,3,4]) -> (y: f32[1,3,4]) {\n"
        "w: f32[4,18] = random(1)\n wo: f32[6,4] = random(2)\n"
        "s: i64[4] = [1,3,2,9]\n flat: i64[3] = [1,3,6]\n"
        "a = MatMul(x, w) \"qkv\"\n b = Reshape(a, s)\n"
        "c = Transpose(b) {perm=[0,2,1,3]}\n"
        "q, k, v = Split(c) {axis=3, num_outputs=3}\n"
        "kt = Transpose(k) {perm=[0,1,3,2]}\n m = MatMul(q, kt)\n"
        "p = Softmax(m)\n o = MatMul(p, v)\n"
        "ot = Transpose(o) {perm=[0,2,1,3]}\n of = Reshape(ot, flat)\n"
        "y = MatMul(of, wo) \"o\"\n}";
    sb_prune *p = prune_net(net, CONFIG("RATIO: 0.5"), NULL);

    (void)state;
    assert_int_equal(prune_layer(p, "qkv")->removable, 18);
    assert_int_equal(prune_layer(p, "qkv")->removed, 9);
    sb_prune_free(p);
}

/* Four heads of queries, and one key for all of them, whose elements a weight
 * makes: heads go, and elements stay, though STATISTICS would let them go; also
 * where heads are summed over with another activation. */
static void test_an_axis_is_cut_one_way_only(void **state)
{
#define SHARED_KEY                                                   \
    "wq: f32[4,32] = random(1)\n wk: f32[4,8] = random(2)\n"         \
    "wo: f32[4,2] = random(3)\n s4: i64[4] = [1,6,4,8]\n"            \
    "q = MatMul(x, wq) \"q\"\n qr = Reshape(q, s4)\n"                \
    "qt = Transpose(qr) {perm=[0,2,1,3]}\n"                          \
    "k = MatMul(x, wk) \"k\"\n kt = Transpose(k) {perm=[0,2,1]}\n"   \
    "s = MatMul(qt, kt) \"s\"\n p = Transpose(s) {perm=[0,2,3,1]}\n" \
    "y = MatMul(p, wo) \"o\"\n"
    static const char heads[] = "graph net(x: f32[1,6,4]) -> "
                                "(y: f32[1,6,6,2]) {\n" SHARED_KEY "}";
    static const char both[] =
        "graph net(x: f32[1,6,4]) -> (y: f32[1,6,6,2], z: f32[1,6,6,2]) {\n"
        "wg: f32[4,4] = random(4)\n wz: f32[8,2] = random(5)\n" SHARED_KEY
        "g = MatMul(x, wg) \"g\"\n gt = Transpose(g) {perm=[0,2,1]}\n"
        "qu = Transpose(qr) {perm=[0,3,1,2]}\n t = MatMul(qu, gt)\n"
        "tt = Transpose(t) {perm=[0,2,3,1]}\n z = MatMul(tt, wz) \"z\"\n}";
    const char *const nets[] = {heads, both};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(nets); i++) {
        sb_prune *p =
            prune_net(nets[i], CONFIG("RATIO: 0.5, STATISTICS: true"), NULL);
        assert_int_equal(prune_layer(p, "q")->removed, 16);
        assert_int_equal(prune_layer(p, "k")->removable, 0);
        assert_string_equal(prune_layer(p, "k")->reason_node, "s");
        if (i == 1)
            assert_int_equal(prune_layer(p, "g")->removed, 2);
        sb_prune_free(p);
    }
}

static void test_networks_that_cannot_be_pruned_say_why(void **state)
{
    static const char plain[] = "graph net(x: f32[1,3]) -> (y: f32[1,3]) {\n"
                                "y = Relu(x)\n}";
    static const char opaque[] =
        "graph net(x: f32[1,3]) -> (y) {\n w: f32[3,4] = random(1)\n"
        "a = MatMul(x, w) \"fc\"\n y = com.example::Odd(a) \"odd\"\n}";
    static const char integer[] =
        "graph net(x: u8[1,3]) -> (y) {\n w: u8[3,4] = 3\n"
        "y = MatMulInteger(x, w) \"fc\"\n}";
    /* Who has the weights, not who has a body. */
    static const char bodies[] =
        "graph net(x: f32[1,3], c: bool) -> (y) {\n w: u8[3,4] = 3\n"
        "q = Cast(x) {to=2}\n z = MatMulInteger(q, w) \"fc\"\n"
        "y = If(c) {then_branch=graph t() -> (a) {\n a = Neg(z)\n},"
        " else_branch=graph e() -> (a) {\n a = Abs(z)\n}} \"if\"\n}";
    static const char within[] =
        "graph net(x: f32[1,3], c: bool) -> (y) {\n"
        "y = If(c) {then_branch=graph t() -> (a) {\n w: f32[3,4] = 3\n"
        " a = MatMul(x, w)\n}, else_branch=graph e() -> (a) {\n"
        " v: f32[3,4] = 2\n a = MatMul(x, v)\n}} \"if\"\n}";
    sb_prune *p = NULL;

    (void)state;
    assert_status(prune_try(bodies, CONFIG("RATIO: 0.5"), &p), SB_UNSUPPORTED);
    assert_error_has("; 'fc' (MatMulInteger) has constants, but no rule");
    assert_status(prune_try(within, CONFIG("RATIO: 0.5"), &p), SB_UNSUPPORTED);
    assert_error_has("in bodies of nodes, as of 'if' (If)");
    assert_status(prune_try(plain, CONFIG("RATIO: 0.5"), &p), SB_UNSUPPORTED);
    assert_error_has("no layer has constant weights");
    assert_status(prune_try(integer, CONFIG("RATIO: 0.5"), &p), SB_UNSUPPORTED);
    assert_error_has("; 'fc' (MatMulInteger) has constants, but no rule");
    assert_status(prune_try(opaque, CONFIG("RATIO: 0.5"), &p), SB_UNSUPPORTED);
    assert_error_has("the operator is not known (node 'odd')");
}

/* ---- choosing ---------------------------------------------------------------- */

static void test_patterns_that_keep_everything_say_so(void **state)
{
    static const char *const configs[] = {
        CONFIG("RATIO: 0.5, EXCLUDE: [head.fc1]"),
        CONFIG("RATIO: 0.5, EXCLUDE: [head]"),
        CONFIG("RATIO: 0.5, SPECIFIC: {'fc*': 0}"),
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(configs); i++) {
        sb_prune *p = NULL;
        assert_status(prune_try(chain, configs[i], &p), SB_UNSUPPORTED);
        assert_error_has("no channel can be removed; of 'fc1' (Gemm): it is "
                         "excluded");
    }
}

static void test_how_many_go(void **state)
{
    static const struct {
        const char *config;
        int64_t removed;
        int held;
    } cases[] = {
        {CONFIG("RATIO: 0"), 0, 0},
        {CONFIG("RATIO: 0.24"), 0, 0},
        {CONFIG("RATIO: 0.25"), 1, 0},
        {CONFIG("RATIO: 0.99"), 3, 0},
        {CONFIG("RATIO: 0.99, ROUND_TO: 2"), 2, 1},
        {CONFIG("RATIO: 0.25, ROUND_TO: 2"), 0, 0},
        {CONFIG("RATIO: 0.75, SCOPE: global"), 3, 0},
        {CONFIG("RATIO: 0.5, SPECIFIC: {'fc*': 0.25}"), 1, 0},
        {CONFIG("RATIO: 0.75, ITERATIONS: 2"), 1, 0}, /* the first step */
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_prune *p = prune_net(chain, cases[i].config, NULL);
        assert_int_equal(prune_layer(p, "fc1")->removed, cases[i].removed);
        assert_int_equal(prune_layer(p, "fc1")->held, cases[i].held);
        sb_prune_free(p);
    }
}

/* The first three channels are also read one by one, so that they cannot go;
 * of the others all three may. */
static void test_multiples_hold_where_channels_cannot_go(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,1,2,2]) -> (y: f32[1,1,2,2]) {\n"
        "w: f32[6,1,1,1] = [1,2,3,4,5,6]\n u: f32[1,9,1,1] = 1\n"
        "i: i64[1] = [0]\n j: i64[1] = [1]\n k: i64[1] = [2]\n"
        "l: i64[1] = [3]\n one: i64[1] = [1]\n"
        "c = Conv(x, w) \"conv\"\n p = Slice(c, i, j, one)\n"
        "q = Slice(c, j, k, one)\n r = Slice(c, k, l, one)\n"
        "a = Concat(p, q, r, c) {axis=1}\n y = Conv(a, u) \"last\"\n}";
    static const struct {
        const char *config, *cut;
        int64_t removed;
        int held;
    } cases[] = {
        {CONFIG("RATIO: 0.7"), "3,4,5", 3, 1},
        {CONFIG("RATIO: 0.7, ROUND_TO: 2"), "3,4", 2, 1},
        {CONFIG("RATIO: 0.5, ROUND_TO: 3"), "3,4,5", 3, 0},
        {CONFIG("RATIO: 0.7, ROUND_TO: 4"), "3,4", 2, 1},
        {CONFIG("RATIO: 0.9, ROUND_TO: 1"), "3,4,5", 3, 1},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_prune *p = prune_net(net, cases[i].config, NULL);
        assert_cut(p, "w", 0, cases[i].cut);
        assert_int_equal(prune_layer(p, "conv")->removed, cases[i].removed);
        assert_int_equal(prune_layer(p, "conv")->held, cases[i].held);
        sb_prune_free(p);
    }
}

/* Rows with NaN have no score: they stay whatever is asked for, and a line
 * names them. */
static void test_channels_without_a_score_stay(void **state)
{
    static const char net[] = "graph net(x: f32[1,2]) -> (y: f32[1,1]) {\n"
                              "a: f32[2,4] = [1,nan,3,inf, 1,2,3,4]\n"
                              "b: f32[4,1] = [1,1,1,1]\n"
                              "h = MatMul(x, a) \"fc1\"\n"
                              "y = MatMul(h, b) \"fc2\"\n}";
    static const struct {
        const char *config, *cut;
        int held;
    } cases[] = {
        {CONFIG("RATIO: 0.25"), "0", 0},
        {CONFIG("RATIO: 0.75"), "0,2", 1},
        {CONFIG("RATIO: 0.75, SCOPE: global"), "0,2", 1},
        {CONFIG("RATIO: 0.5, STRATEGY: l2norm"), "0,2", 0},
    };
    char line[256];

    (void)state;
    sb_ctx_set_log(test_ctx(), keep_line, line);
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        line[0] = '\0';
        sb_prune *p = prune_net(net, cases[i].config, NULL);
        assert_cut(p, "a", 1, cases[i].cut);
        assert_int_equal(prune_layer(p, "fc1")->held, cases[i].held);
        assert_non_null(strstr(line, "2 of 4 channels of 'fc1' stay: their "
                                     "scores are not finite"));
        sb_prune_free(p);
    }
    sb_ctx_set_log(test_ctx(), NULL, NULL);
}

/* All steps together take what one step would. */
static void test_steps_add_up(void **state)
{
    static const struct {
        const char *config;
        int64_t steps, removed;
        int masks_only;
    } cases[] = {
        {CONFIG("RATIO: 0.75, ITERATIONS: 2"), 2, 3, 0},
        {CONFIG("RATIO: 0.75, ITERATIONS: 3, SCHEDULE: cubic"), 3, 3, 0},
        {CONFIG("RATIO: 0.5, ITERATIONS: 3, SCHEDULE: linear"), 3, 2, 0},
        {CONFIG("RATIO: 0.5, ITERATIONS: 2, SCOPE: global"), 2, 2, 0},
        {CONFIG("RATIO: 0.1, ITERATIONS: 2, SPECIFIC: {'fc*': 0.5}"), 2, 2, 0},
        {CONFIG("RATIO: 0.75, ITERATIONS: 3"), 3, 3, 1},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
        sb_model *model = prune_parse(chain);
        sb_prune *p = NULL;
        int more = 1;
        opt.config_text = cases[i].config;
        opt.masks_only = cases[i].masks_only;
        assert_ok(sb_prune_create(model, &opt, &p));
        for (int64_t k = 0; k < cases[i].steps; k++) {
            assert_int_equal(more, 1);
            assert_ok(sb_prune_apply(p, &more));
        }
        assert_int_equal(more, 0);
        assert_int_equal(prune_layer(p, "fc1")->size, 4);
        assert_int_equal(prune_layer(p, "fc1")->removed, cases[i].removed);
        assert_status(sb_prune_apply(p, &more), SB_BAD_ARG);
        sb_prune_free(p);
        sb_model_free(model);
    }
}

/* Samples of one number each: 0, 1, 2, 3, 0, ..., mean 1.5 and variance 1.25
 * (times 256 / 255, as PyTorch has it); channels are three and four times x. */
static void test_norms_are_measured_anew(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,1,2,2]) -> (y: f32[1,1,2,2]) {\n"
        "w: f32[4,1,1,1] = [1,2,3,4]\n s: f32[4] = 1\n b: f32[4] = 0.5\n"
        "m: f32[4] = 0\n v: f32[4] = 1\n u: f32[1,4,1,1] = [1,2,3,4]\n"
        "c = Conv(x, w) \"conv\"\n n = BatchNormalization(c, s, b, m, v)\n"
        "y = Conv(n, u) \"last\"\n}";
    const int samples[] = {64, 63}; /* too few leave them */
    const double want[][2][2] = {{{4.5, 6}, {2880.0 / 255, 5120.0 / 255}},
                                 {{0, 0}, {1, 1}}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        sb_tensor *x = test_tensor(SB_DTYPE_F32, "1x1x2x2", NULL);
        sb_prune *p = NULL;
        int more = 1;
        assert_ok(prune_try(net, CONFIG("RATIO: 0.5"), &p));
        for (int round = 0; round < 2; round++) {
            assert_int_equal(more, 1);
            for (int k = 0; k < samples[i]; k++) {
                for (int j = 0; j < 4; j++)
                    ((float *)x->data)[j] = (float)(k % 4);
                assert_ok(sb_prune_forward(p, (const sb_tensor *[]){x}, 1));
            }
            assert_ok(sb_prune_apply(p, &more));
        }
        assert_int_equal(more, 0);
        assert_weight(p, "m", want[i][0], 2);
        assert_weight(p, "v", want[i][1], 2);
        sb_prune_free(p);
    }
}

static void test_targets_are_met(void **state)
{
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    const sb_model_info *info = NULL;
    sb_model *model = prune_parse(residual), *small = NULL;
    sb_prune *p = NULL;

    (void)state;
    opt.config_text = CONFIG("RATIO: 0.1");
    opt.target_macs = 0.5;
    assert_ok(sb_model_info_get(model, &info));
    double before = info->macs;
    assert_ok(sb_prune_create(model, &opt, &p));
    assert_ok(sb_prune_apply(p, NULL));
    assert_ok(sb_prune_model(p, &small));
    assert_ok(sb_model_info_get(small, &info));
    assert_true(info->macs <= 0.5 * before && info->macs > 0.2 * before);
    sb_model_free(small);
    sb_prune_free(p);
    opt.target_macs = 0.001;
    assert_ok(sb_prune_create(model, &opt, &p));
    assert_status(sb_prune_apply(p, NULL), SB_UNSUPPORTED);
    assert_error_has("the target cannot be met");
    sb_prune_free(p);
    sb_model_free(model);
}

/* ---- reports ----------------------------------------------------------------- */

static void test_masks_only_keep_the_size(void **state)
{
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    sb_model *model = prune_parse(chain);
    sb_prune *p = NULL;

    (void)state;
    opt.config_text = CONFIG("RATIO: 0.5");
    opt.masks_only = 1;
    assert_ok(sb_prune_create(model, &opt, &p));
    assert_ok(sb_prune_apply(p, NULL));
    assert_weight(p, "a", (const double[]){0, 0, 0, -4, 0, 0, 3, 0}, 8);
    sb_prune_free(p);
    sb_model_free(model);
}

/* Nothing may go though something was asked for: of 4 channels 0.1. */
static void test_reports_tell_nothing_from_too_little(void **state)
{
    sb_prune *zero = prune_net(chain, CONFIG("RATIO: 0"), NULL);
    sb_prune *little = prune_net(chain, CONFIG("SPECIFIC: {fc1: 0.1}"), NULL);

    (void)state;
    assert_int_equal(prune_report(zero)->asked, 0);
    assert_int_equal(prune_report(little)->asked, 1);
    assert_int_equal(prune_report(little)->removed, 0);
    sb_prune_free(zero);
    sb_prune_free(little);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_channel_is_rows_biases_and_columns),
        cmocka_unit_test(test_what_a_sum_joins_goes_together),
        cmocka_unit_test(test_statistics_stay_unless_asked),
        cmocka_unit_test(test_shared_key_heads_go_with_their_queries),
        cmocka_unit_test(test_heads_go_before_elements_of_values),
        cmocka_unit_test(test_an_axis_is_cut_one_way_only),
        cmocka_unit_test(test_networks_that_cannot_be_pruned_say_why),
        cmocka_unit_test(test_patterns_that_keep_everything_say_so),
        cmocka_unit_test(test_how_many_go),
        cmocka_unit_test(test_multiples_hold_where_channels_cannot_go),
        cmocka_unit_test(test_channels_without_a_score_stay),
        cmocka_unit_test(test_steps_add_up),
        cmocka_unit_test(test_norms_are_measured_anew),
        cmocka_unit_test(test_targets_are_met),
        cmocka_unit_test(test_masks_only_keep_the_size),
        cmocka_unit_test(test_reports_tell_nothing_from_too_little),
    };
    return cmocka_run_group_tests_name("prune", tests, NULL, NULL);
}
