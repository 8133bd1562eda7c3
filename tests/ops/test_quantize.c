/* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: hand values.
 * (tests/ort/test_quant_random.py compares them with ONNX Runtime.) */
#include "sbtest.h"

#include <math.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})
#define VALUES(...) ((const double[]){__VA_ARGS__})

static void test_ties_go_to_even(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("9", -3, -1, 1, 3, 5, 0.99, 600, -600, NAN);

    assert_tensor(
        "uint8, scale 2, zero 10",
        test_run1("graph g(x: f32[9]) -> (y: u8[9]) {\n"
                  "  s: f32[] = 2\n  z: u8[] = 10\n"
                  "  y = QuantizeLinear(x, s, z)\n}\n",
                  INPUTS(x)),
        test_tensor(SB_DTYPE_U8, "9", VALUES(8, 10, 10, 12, 12, 10, 255, 0, 0)),
        0);
    assert_tensor(
        "no zero point: uint8",
        test_run1("graph g(x: f32[9]) -> (y: u8[9]) {\n"
                  "  s: f32[] = 2\n  y = QuantizeLinear(x, s)\n}\n",
                  INPUTS(x)),
        test_tensor(SB_DTYPE_U8, "9", VALUES(0, 0, 0, 2, 2, 0, 255, 0, 0)), 0);
    assert_tensor("int16 by output_dtype",
                  test_run1("graph g(x: f32[9]) -> (y: i16[9]) {\n"
                            "  s: f32[] = 0.01\n"
                            "  y = QuantizeLinear(x, s) {output_dtype=5}\n}\n",
                            INPUTS(x)),
                  test_tensor(SB_DTYPE_I16, "9",
                              VALUES(-300, -100, 100, 300, 500, 99, 32767,
                                     -32768, -32768)),
                  0);
}

static void test_quantize_per_axis_and_block(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);

    assert_tensor("axis 1",
                  test_run1("graph g(x: f32[2,3]) -> (y: i8[2,3]) {\n"
                            "  s: f32[3] = [1, 0.5, 0.25]\n"
                            "  z: i8[3] = [0, -1, 5]\n"
                            "  y = QuantizeLinear(x, s, z)\n}\n",
                            INPUTS(x)),
                  test_tensor(SB_DTYPE_I8, "2x3", VALUES(1, 3, 17, 4, 9, 29)),
                  0);
    assert_tensor("axis 0",
                  test_run1("graph g(x: f32[2,3]) -> (y: i8[2,3]) {\n"
                            "  s: f32[2] = [1, 0.5]\n  z: i8[2] = [0, 1]\n"
                            "  y = QuantizeLinear(x, s, z) {axis=-2}\n}\n",
                            INPUTS(x)),
                  test_tensor(SB_DTYPE_I8, "2x3", VALUES(1, 2, 3, 9, 11, 13)),
                  0);
    assert_tensor("blocks of 2 on the last axis",
                  test_run1("graph g(x: f32[2,3]) -> (y: i8[2,3]) {\n"
                            "  s: f32[2,2] = [1, 0.5, 0.25, 2]\n"
                            "  z: i8[2,2] = [0, 0, 0, 1]\n"
                            "  y = QuantizeLinear(x, s, z)"
                            " {axis=1, block_size=2}\n}\n",
                            INPUTS(x)),
                  test_tensor(SB_DTYPE_I8, "2x3", VALUES(1, 2, 6, 16, 20, 4)),
                  0);
    assert_tensor("blocks of 2 on the first axis",
                  test_run1("graph g(x: f32[2,3]) -> (y: i8[2,3]) {\n"
                            "  s: f32[1,3] = [1, 0.5, 0.25]\n"
                            "  z: i8[1,3] = [0, 1, 2]\n"
                            "  y = QuantizeLinear(x, s, z)"
                            " {axis=0, block_size=2}\n}\n",
                            INPUTS(x)),
                  test_tensor(SB_DTYPE_I8, "2x3", VALUES(1, 5, 14, 4, 11, 26)),
                  0);
}

/* Through both operators, because packed types are awkward to look at.  All
 * values are halved by the scale: -104 / 0.5 = -208 is a float8e4m3fn, for
 * float8e5m2 it lies halfway between 192 and 224 and goes to the even one. */
static void test_small_types(void **state)
{
    static const struct {
        const char *type;
        double want[5];
    } cases[] = {
        {"u4", {0, 0, 1.5, 7.5, 7.5}},
        {"i4", {-4, -0.5, 1.5, 3.5, 3.5}},
        {"u2", {0, 0, 1.5, 1.5, 1.5}},
        {"i2", {-1, -0.5, 0.5, 0.5, 0.5}},
        {"f8e4m3fn", {-104, -0.5, 1.5, 10, 96}},
        {"f8e5m2", {-96, -0.5, 1.5, 10, 96}},
        {"f4e2m1", {-3, -0.5, 1.5, 3, 3}},
    };
    sb_tensor *x = test_f32("5", -104, -0.5, 1.5, 10, 96);

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char text[512];

        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[5]) -> (y: f32[5]) {\n"
                       "  s: f32[] = 0.5\n  z: %s[] = 0\n"
                       "  q = QuantizeLinear(x, s, z)\n"
                       "  y = DequantizeLinear(q, s, z)\n}\n",
                       cases[i].type);
        assert_tensor(cases[i].type, test_run1(text, INPUTS(x)),
                      test_tensor(SB_DTYPE_F32, "5", cases[i].want), 0);
    }
}

static void test_dequantize_by_hand(void **state)
{
    (void)state;
    sb_tensor *x =
        test_tensor(SB_DTYPE_I32, "2x2", VALUES(-2000000, 0, 7, 100));
    sb_tensor *b = test_tensor(SB_DTYPE_I8, "2x2", VALUES(-128, 0, 7, 127));

    assert_tensor("int32 without zero point",
                  test_run1("graph g(x: i32[2,2]) -> (y: f32[2,2]) {\n"
                            "  s: f32[2] = [0.5, 2]\n"
                            "  y = DequantizeLinear(x, s)\n}\n",
                            INPUTS(x)),
                  test_f32("2x2", -1000000, 0, 3.5, 200), 0);
    assert_tensor("float16 out, from the scale",
                  test_run1("graph g(x: i8[2,2]) -> (y: f16[2,2]) {\n"
                            "  s: f16[] = 0.5\n  z: i8[] = -1\n"
                            "  y = DequantizeLinear(x, s, z)\n}\n",
                            INPUTS(b)),
                  test_tensor(SB_DTYPE_F16, "2x2", VALUES(-63.5, 0.5, 4, 64)),
                  0);
    assert_tensor("com.microsoft",
                  test_run1("graph g(x: i8[2,2]) -> (y: f32[2,2]) {\n"
                            "  s: f32[] = 0.5\n  z: i8[] = -1\n"
                            "  y = com.microsoft::DequantizeLinear(x, s, z)\n"
                            "}\n",
                            INPUTS(b)),
                  test_f32("2x2", -63.5, 0.5, 4, 64), 0);
}

static void test_dynamic_quantize_is_the_documented_example(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("6", 0, 2, -3, -2.5, 1.34, 0.5);
    sb_tensor *got[3];

    /* The example of the operator's description. */
    test_run("graph g(x: f32[6]) -> (y: u8[6], s: f32[], z: u8[]) {\n"
             "  y, s, z = DynamicQuantizeLinear(x)\n}\n",
             INPUTS(x), got, 3);
    assert_tensor(
        "y", got[0],
        test_tensor(SB_DTYPE_U8, "6", VALUES(153, 255, 0, 26, 221, 179)), 0);
    assert_tensor("scale", got[1], test_f32("", 0.0196078438), 1e-7);
    assert_tensor("zero", got[2], test_tensor(SB_DTYPE_U8, "", VALUES(153)), 0);
}

static void test_wrong_scales_and_types_are_refused(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);

    assert_status(test_try_run("graph g(x: f32[2,3]) -> (y: u8[2,3]) {\n"
                               "  s: f32[2] = [1, 2]\n"
                               "  y = QuantizeLinear(x, s)\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
    assert_error_has("scale has rank 1 and 2 elements");
    assert_status(test_try_run("graph g(x: f32[2,3]) -> (y: u8[2,3]) {\n"
                               "  s: f32[3] = [1, 2, 3]\n  z: u8[2] = [1, 2]\n"
                               "  y = QuantizeLinear(x, s, z)\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
    assert_error_has("zero point has 2 elements, want 3");
    assert_status(test_try_run("graph g(x: f32[2,3]) -> (y: u8[2,3]) {\n"
                               "  s: f32[2,3] = 1\n"
                               "  y = QuantizeLinear(x, s)"
                               " {axis=1, block_size=2}\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
    assert_error_has("blocked scale");
    assert_status(test_try_run("graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
                               "  s: f32[] = 1\n"
                               "  y = DequantizeLinear(x, s)\n}\n",
                               INPUTS(x)),
                  SB_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties_go_to_even),
        cmocka_unit_test(test_quantize_per_axis_and_block),
        cmocka_unit_test(test_small_types),
        cmocka_unit_test(test_dequantize_by_hand),
        cmocka_unit_test(test_dynamic_quantize_is_the_documented_example),
        cmocka_unit_test(test_wrong_scales_and_types_are_refused),
    };
    return cmocka_run_group_tests_name("quantize", tests, NULL, NULL);
}
