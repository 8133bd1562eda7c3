/* Elements of samples as a model wants them; expected values as NumPy's astype
 * gives them. */
#include "sbtest.h"

#include "tensor/cast_input.h"

static void test_models_get_the_types_they_want(void **state)
{
    static const struct {
        sb_dtype from, want, gives;
    } cases[] = {
        {SB_DTYPE_F64, SB_DTYPE_NONE, SB_DTYPE_F32},
        {SB_DTYPE_U8, SB_DTYPE_NONE, SB_DTYPE_U8},
        {SB_DTYPE_F64, SB_DTYPE_F64, SB_DTYPE_F64},
        {SB_DTYPE_F32, SB_DTYPE_F64, SB_DTYPE_F64},
        {SB_DTYPE_F64, SB_DTYPE_F16, SB_DTYPE_F16},
        {SB_DTYPE_U8, SB_DTYPE_F32, SB_DTYPE_F32},
        {SB_DTYPE_BOOL, SB_DTYPE_F32, SB_DTYPE_F32},
        {SB_DTYPE_I32, SB_DTYPE_I64, SB_DTYPE_I64},
        {SB_DTYPE_BOOL, SB_DTYPE_I64, SB_DTYPE_I64},
        {SB_DTYPE_I64, SB_DTYPE_U8, SB_DTYPE_U8},
        /* not possible: as it is */
        {SB_DTYPE_F64, SB_DTYPE_I64, SB_DTYPE_F64},
        {SB_DTYPE_U8, SB_DTYPE_BOOL, SB_DTYPE_U8},
        {SB_DTYPE_F32, SB_DTYPE_STRING, SB_DTYPE_F32},
        {SB_DTYPE_STRING, SB_DTYPE_F32, SB_DTYPE_STRING},
        {SB_DTYPE_C64, SB_DTYPE_F32, SB_DTYPE_C64},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        assert_int_equal(sb_cast_input_dtype(cases[i].from, cases[i].want),
                         cases[i].gives);
}

static sb_status fit(sb_dtype from, const void *data, sb_dtype to, void *out)
{
    const int64_t dims[] = {3};
    sb_tensor t = sb_tensor_make(from, 1, dims);
    union { /* the function only reads */
        const void *in;
        void *data;
    } u = {data};

    t.data = u.data;
    return sb_cast_input_copy(test_ctx(), &t, to, out);
}

static void test_values_are_cast_as_numpy(void **state)
{
    const double f64[] = {0.1, -2.5, 1e300};
    const uint8_t u8[] = {0, 1, 255};
    const int64_t ids[] = {0, -7, 30522};
    float f[3];
    double d[3];
    int32_t i[3];

    (void)state;
    assert_ok(fit(SB_DTYPE_F64, f64, SB_DTYPE_F64, d));
    assert_memory_equal(d, f64, sizeof d);
    assert_ok(fit(SB_DTYPE_F64, f64, SB_DTYPE_F32, f));
    assert_true(f[0] == 0.1F && f[1] == -2.5F && f[2] > 3.4e38F);
    assert_ok(fit(SB_DTYPE_U8, u8, SB_DTYPE_F32, f));
    assert_true(f[0] == 0.0F && f[1] == 1.0F && f[2] == 255.0F);
    assert_ok(fit(SB_DTYPE_I64, ids, SB_DTYPE_I32, i));
    assert_true(i[0] == 0 && i[1] == -7 && i[2] == 30522);
}

static void test_too_large(void **state)
{
    const int64_t negative[] = {0, -1, 0}, wide[] = {0, 1, 3000000000};
    const int64_t byte[] = {0, 1, 256};
    const uint64_t huge[] = {0, 1, UINT64_MAX};
    int64_t out[3];

    (void)state;
    assert_status(fit(SB_DTYPE_I64, negative, SB_DTYPE_U64, out), SB_BAD_DATA);
    assert_status(fit(SB_DTYPE_I64, negative, SB_DTYPE_U8, out), SB_BAD_DATA);
    assert_error_has("uint8, which does not hold -1");
    assert_ok(fit(SB_DTYPE_I64, wide, SB_DTYPE_U32, out));
    assert_status(fit(SB_DTYPE_I64, wide, SB_DTYPE_I32, out), SB_BAD_DATA);
    assert_error_has("int32, which does not hold 3000000000");
    assert_status(fit(SB_DTYPE_I64, byte, SB_DTYPE_U8, out), SB_BAD_DATA);
    assert_status(fit(SB_DTYPE_U64, huge, SB_DTYPE_I64, out), SB_BAD_DATA);
    assert_error_has("int64, which does not hold 18446744073709551615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_get_the_types_they_want),
        cmocka_unit_test(test_values_are_cast_as_numpy),
        cmocka_unit_test(test_too_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
