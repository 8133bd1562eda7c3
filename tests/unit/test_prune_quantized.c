/* Pruning networks whose weights are quantized; expected by hand. */
#include "prunetest.h"

/* Integers behind DequantizeLinear are weights: scales 4, 1, 1, 0.5 make of
 * rows with sums 1, 2, 3, 4 channels worth 4, 2, 3, 2, of which the first with
 * 2 goes first.  The bias has one scale for all. */
static void test_integers_are_weights(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,2]) -> (y: f32[1,1]) {\n"
        "a: i8[2,4] = [1,2,0,-4, 0,0,3,0]\n as: f32[4] = [4,1,1,0.5]\n"
        "ab: i32[4] = [10,20,30,40]\n bs: f32 = 0.5\n"
        "b: i8[4,1] = [1,2,3,4]\n cs: f32 = 2\n"
        "af = DequantizeLinear(a, as) {axis=1}\n"
        "abf = DequantizeLinear(ab, bs)\n bf = DequantizeLinear(b, cs)\n"
        "h = Gemm(x, af, abf) \"fc1\"\n y = MatMul(h, bf) \"fc2\"\n}";
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    sb_prune *p = prune_net(net, CONFIG("RATIO: 0.25"), NULL);

    (void)state;
    assert_cut(p, "a", 1, "1");
    assert_cut(p, "as", 0, "1");
    assert_cut(p, "ab", 0, "1");
    assert_cut(p, "b", 0, "1");
    /* (4*1 + 5)*2 + (3*2 + 15)*6 + (-2*1 + 20)*8 */
    const sb_tensor *y = prune_run(p, test_f32("1x2", 1, 2));
    assert_close("y", ((float *)y->data)[0], 288, 1e-5);
    sb_prune_free(p);
    sb_model *model = prune_parse(net);
    opt.config_text = CONFIG("RATIO: 0.25");
    opt.masks_only = 1;
    assert_ok(sb_prune_create(model, &opt, &p));
    assert_status(sb_prune_apply(p, NULL), SB_UNSUPPORTED);
    assert_error_has("weight 'a' is quantized: its channels can be removed");
    sb_prune_free(p);
    p = NULL;
    assert_ok(prune_try(net, CONFIG("STRATEGY: taylor, RATIO: 0.25"), &p));
    assert_status(
        sb_prune_forward(p, (const sb_tensor *[]){test_f32("1x2", 1, 2)}, 1),
        SB_UNSUPPORTED);
    assert_error_has("weight 'a' is of type int8: this criterion needs grad");
    sb_prune_free(p);
    char line[256] = "";
    sb_ctx_set_log(test_ctx(), keep_line, line);
    p = prune_net(net, CONFIG("RATIO: 0.25"), test_f32("1x2", 1, 2));
    sb_ctx_set_log(test_ctx(), NULL, NULL);
    assert_non_null(strstr(line,
                           "not fitted to the samples, since they are "
                           "not plain floats: 1 of the weights, such as 'b'"));
    sb_prune_free(p);
    sb_model_free(model);
}

/* Two of them make a byte, and rows of an odd length begin within one.  Columns
 * of `a` have sums 1, 2, 3, 4, 15. */
static void test_integers_of_four_bits_are_cut(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,2]) -> (y: f32[1,1]) {\n"
        "a: i4[2,5] = [1,2,0,-4,7, 0,0,3,0,-8]\n s: f32 = 1\n"
        "b: i4[5,1] = [1,2,3,4,5]\n af = DequantizeLinear(a, s)\n"
        "bf = DequantizeLinear(b, s)\n h = MatMul(x, af) \"fc1\"\n"
        "y = MatMul(h, bf) \"fc2\"\n}";
    sb_prune *p = prune_net(net, CONFIG("RATIO: 0.4"), NULL);

    (void)state;
    assert_cut(p, "a", 1, "0,1");
    assert_cut(p, "b", 0, "0,1");
    /* (0 + 3*2)*3 + (-4)*4 + (7 - 8*2)*5 */
    const sb_tensor *y = prune_run(p, test_f32("1x2", 1, 2));
    assert_close("y", ((float *)y->data)[0], -43, 1e-5);
    sb_prune_free(p);
}

/* Zero points go with their channels: rows less 1, 2, 3, 4 have the sums 3, 2,
 * 1, 4. */
static void test_zero_points_are_cut(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,1]) -> (y: f32[1,1]) {\n"
        "a: i8[4,1] = [4,0,4,8]\n as: f32[4] = 1\n az: i8[4] = [1,2,3,4]\n"
        "b: f32[4,1] = [1,2,3,4]\n"
        "af = DequantizeLinear(a, as, az) {axis=0}\n"
        "h = Gemm(x, af) {transB=1} \"fc1\"\n y = MatMul(h, b) \"fc2\"\n}";
    sb_prune *p = prune_net(net, CONFIG("RATIO: 0.25"), NULL);

    (void)state;
    assert_cut(p, "a", 0, "2");
    assert_cut(p, "as", 0, "2");
    assert_cut(p, "az", 0, "2");
    assert_cut(p, "b", 0, "2");
    /* 3*1 - 2*2 + 4*4 */
    const sb_tensor *y = prune_run(p, test_f32("1x1", 1));
    assert_close("y", ((float *)y->data)[0], 15, 1e-5);
    sb_prune_free(p);
}

/* Channels are 1, 2, 3, 4 times x.  The weight that reads them ends at 1, where
 * its scale has the last step: fitted to what the first channel carried it
 * would be clipped.  So it stays, and the line says so. */
static void test_weights_that_are_rounded_are_not_fitted(void **state)
{
    static const char net[] =
        "graph net(x: f32[4,1]) -> (y: f32[4,1]) {\n"
        "a: f32[1,4] = [1,2,3,4]\n b: f32[4,1] = 1\n s: f32 = 0.0078740157\n"
        "z: i8 = 0\n q = QuantizeLinear(b, s, z)\n"
        "bf = DequantizeLinear(q, s, z)\n"
        "h = MatMul(x, a) \"fc1\"\n y = MatMul(h, bf) \"fc2\"\n}";
    char line[256] = "";

    (void)state;
    sb_ctx_set_log(test_ctx(), keep_line, line);
    sb_prune *p =
        prune_net(net, CONFIG("RATIO: 0.25"), test_f32("4x1", 1, 2, 3, 4));
    sb_ctx_set_log(test_ctx(), NULL, NULL);
    assert_non_null(strstr(line, "1 of the weights, such as 'b'"));
    assert_cut(p, "a", 1, "0");
    assert_weight(p, "b", (const double[]){1, 1, 1}, 3);
    sb_prune_free(p);
}

/* ONNX Runtime's own DequantizeLinear, of a weight too large to be computed
 * beforehand: half of 20000 channels, each 1 + 2. */
static void test_other_domains_dequantize(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,2]) -> (y: f32[1,1]) {\n"
        "a: i8[2,20000] = 1\n b: i8[20000,1] = 1\n s: f32 = 1\n z: i8 = 0\n"
        "af = com.microsoft::DequantizeLinear(a, s, z)\n"
        "bf = com.microsoft::DequantizeLinear(b, s, z)\n"
        "h = MatMul(x, af) \"fc1\"\n y = MatMul(h, bf) \"fc2\"\n}";
    sb_prune *p = prune_net(net, CONFIG("RATIO: 0.5"), NULL);

    (void)state;
    assert_int_equal(prune_layer(p, "fc1")->removed, 10000);
    const sb_tensor *y = prune_run(p, test_f32("1x2", 1, 2));
    assert_close("y", ((float *)y->data)[0], 30000, 1e-5);
    sb_prune_free(p);
}

/* An integer weight that patterns keep needs no gradient. */
static void test_integers_that_stay_need_no_gradient(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,2]) -> (y: f32[1,1]) {\n"
        "a: i8[2,4] = 1\n s: f32 = 1\n c: f32[4,4] = random(1)\n"
        "d: f32[4,1] = [1,2,3,4]\n af = DequantizeLinear(a, s)\n"
        "h = MatMul(x, af) \"fc1\"\n k = MatMul(h, c) \"fc2\"\n"
        "y = MatMul(k, d) \"fc3\"\n}";
    sb_prune *p =
        prune_net(net, CONFIG("STRATEGY: taylor, RATIO: 0.25, EXCLUDE: [fc1]"),
                  test_f32("1x2", 1, 2));

    (void)state;
    assert_int_equal(prune_layer(p, "fc1")->removed, 0);
    assert_int_equal(prune_layer(p, "fc2")->removed, 1);
    sb_prune_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_are_weights),
        cmocka_unit_test(test_integers_of_four_bits_are_cut),
        cmocka_unit_test(test_zero_points_are_cut),
        cmocka_unit_test(test_weights_that_are_rounded_are_not_fitted),
        cmocka_unit_test(test_other_domains_dequantize),
        cmocka_unit_test(test_integers_that_stay_need_no_gradient),
    };
    return cmocka_run_group_tests_name("prune_quantized", tests, NULL, NULL);
}
