/* Shapes, buffers, tensors, random fill. */
#include "sbtest.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/spill.h"
#include "tensor/tensor.h"

static void test_dims_and_shapes(void **state)
{
    (void)state;
    sb_shape a = {2, {3, sb_dim_symbol(0)}};
    sb_shape b = a;

    assert_true(sb_dim_known(0));
    assert_true(sb_dim_known(-1));
    assert_false(sb_dim_known(SB_DIM_UNKNOWN));
    assert_false(sb_dim_known(sb_dim_symbol(7)));
    assert_int_equal(sb_dim_symbol_index(sb_dim_symbol(7)), 7);
    assert_int_equal(sb_dim_symbol_index(SB_DIM_UNKNOWN), -1);
    assert_int_equal(sb_dim_symbol_index(5), -1);
    assert_true(sb_shape_same(&a, &b));
    assert_false(sb_shape_known(&a));
    b.dim[1] = SB_DIM_UNKNOWN;
    assert_false(sb_shape_same(&b, &b));
    b.rank = -1;
    assert_false(sb_shape_known(&b));
    a.dim[1] = 4;
    assert_true(sb_shape_known(&a));
}

static void count_release(void *user)
{
    ++*(int *)user;
}

static void test_buffers_are_aligned_and_released_once(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 1000};
    sb_buf *buf = NULL;
    char foreign[4];
    int released = 0;

    for (size_t i = 0; i < SB_COUNT(sizes); i++) {
        assert_ok(sb_buf_create(test_ctx(), sizes[i], &buf));
        assert_int_equal((uintptr_t)sb_buf_data(buf) % SB_ALIGN, 0);
        assert_int_equal(sb_buf_size(buf), sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(((char *)sb_buf_data(buf))[k], 0);
        sb_buf_unref(buf);
    }
    assert_status(sb_buf_create(test_ctx(), SIZE_MAX - 8, &buf), SB_NO_MEMORY);
    assert_ok(
        sb_buf_wrap(test_ctx(), foreign, 4, count_release, &released, &buf));
    assert_ptr_equal(sb_buf_ref(buf), buf);
    sb_buf_unref(buf);
    assert_int_equal(released, 0);
    sb_buf_unref(buf);
    assert_int_equal(released, 1);
    sb_buf_unref(NULL);
}

static void test_sizes_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        sb_dtype dtype;
        int rank;
        int64_t dims[3];
        bool ok;
        size_t bytes;
    } rows[] = {
        {"scalar", SB_DTYPE_F64, 0, {0}, true, 8},
        {"plain", SB_DTYPE_F32, 3, {2, 3, 4}, true, 96},
        {"packed", SB_DTYPE_I4, 2, {3, 3}, true, 5},
        {"empty", SB_DTYPE_F32, 2, {0, 7}, true, 0},
        {"negative", SB_DTYPE_F32, 2, {2, -1}, false, 0},
        {"too many", SB_DTYPE_I8, 2, {INT64_MAX, 2}, false, 0},
        {"too many bytes", SB_DTYPE_F64, 1, {INT64_MAX / 4}, false, 0},
        /* Kernels multiply the other dimensions of empty tensors, too. */
        {"empty but absurd", SB_DTYPE_I8, 3, {0, INT64_MAX, 4}, false, 0},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        sb_tensor t = sb_tensor_make(rows[i].dtype, rows[i].rank, rows[i].dims);
        if (sb_tensor_size_ok(&t) != rows[i].ok)
            fail_msg("%s", rows[i].what);
        if (rows[i].ok)
            assert_int_equal(sb_tensor_bytes(&t), rows[i].bytes);
        else
            assert_int_not_equal(sb_tensor_alloc(test_ctx(), &t), SB_OK);
    }
}

static void test_elements_of_every_type(void **state)
{
    (void)state;
    static const double v[] = {-8, 7, -1, 3, 0};
    const sb_tensor *i4 = test_tensor(SB_DTYPE_I4, "5", v);
    const sb_tensor *f16 = test_tensor(SB_DTYPE_F16, "5", v);
    const sb_tensor *i64 = test_tensor(SB_DTYPE_I64, "5", v);

    for (int64_t i = 0; i < 5; i++) {
        assert_int_equal(sb_tensor_get_i64(i4, i), (int64_t)v[i]);
        assert_int_equal(sb_tensor_get_i64(f16, i), (int64_t)v[i]);
        assert_true(sb_tensor_get_f64(i64, i) == v[i]);
        assert_true(sb_tensor_get_f64(i4, i) == v[i]);
    }
}

static void test_share_and_drop(void **state)
{
    (void)state;
    const int64_t dims[] = {4};
    sb_tensor a = sb_tensor_make(SB_DTYPE_F32, 1, dims);

    assert_ok(sb_tensor_alloc(test_ctx(), &a));
    sb_tensor b = sb_tensor_share(&a);
    ((float *)a.data)[2] = 5;
    sb_tensor_drop(&a);
    assert_null(a.data);
    assert_true(((float *)b.data)[2] == 5.0f);
    sb_tensor_drop(&b);
    sb_tensor_drop(&b);
}

static void test_strings_are_copied(void **state)
{
    (void)state;
    const int64_t dims[] = {3};
    static const sb_bytes texts[] = {{"one", 3}, {NULL, 0}, {"a\0b", 3}};
    sb_tensor t = sb_tensor_make(SB_DTYPE_STRING, 1, dims);

    assert_ok(sb_tensor_alloc_strings(test_ctx(), &t, texts));
    const sb_bytes *s = t.data;
    assert_string_equal(s[0].data, "one");
    assert_string_equal(s[1].data, "");
    assert_memory_equal(s[2].data, "a\0b", 4);
    sb_tensor_drop(&t);
}

static void test_descriptions_fit_their_room(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 30, 4};
    sb_tensor t = sb_tensor_make(SB_DTYPE_U8, 3, dims);
    char text[64], tiny[6];

    assert_string_equal(sb_tensor_describe(&t, text, sizeof text),
                        "u8[2,30,4]");
    assert_string_equal(sb_tensor_describe(&t, tiny, sizeof tiny), "u8[2,");
    t.rank = 0;
    assert_string_equal(sb_tensor_describe(&t, text, sizeof text), "u8[]");
}

static void test_public_calls(void **state)
{
    (void)state;
    sb_tensor *t = NULL;

    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_I16, 2,
                               (const int64_t[]){2, 3}, &t));
    assert_int_equal(sb_tensor_dtype(t), SB_DTYPE_I16);
    assert_int_equal(sb_tensor_rank(t), 2);
    assert_int_equal(sb_tensor_dims(t)[1], 3);
    assert_int_equal(sb_tensor_elements(t), 6);
    assert_int_equal(sb_tensor_size(t), 12);
    assert_int_equal(((const int16_t *)sb_tensor_data(t))[5], 0);
    sb_tensor_free(t);
    sb_tensor_free(NULL);
    assert_status(sb_tensor_create(test_ctx(), SB_DTYPE_NONE, 0, NULL, &t),
                  SB_BAD_ARG);
    assert_status(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 13, NULL, &t),
                  SB_BAD_ARG);
    assert_status(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 1,
                                   (const int64_t[]){-2}, &t),
                  SB_BAD_ARG);
    assert_error_has("-2");
}

/* The first outputs of xoshiro256** for a state that splitmix64 makes of 0;
 * published with many implementations (Rust's rand_xoshiro among them). */
static void test_rng_is_xoshiro(void **state)
{
    (void)state;
    static const uint64_t want[] = {
        11091344671253066420u,
        13793997310169335082u,
        1900383378846508768u,
        7684712102626143532u,
    };
    sb_rng rng;

    sb_rng_init(&rng, 0);
    for (size_t i = 0; i < SB_COUNT(want); i++)
        assert_true(sb_rng_next(&rng) == want[i]);
}

static void test_fill_random(void **state)
{
    (void)state;
    sb_tensor *a = test_tensor(SB_DTYPE_F32, "100x100", NULL);
    sb_tensor *b = test_tensor(SB_DTYPE_F32, "100x100", NULL);
    sb_tensor *bits = test_tensor(SB_DTYPE_I4, "1001", NULL);
    double sum = 0, squares = 0, ones = 0;

    sb_tensor_fill_random(a, 1);
    sb_tensor_fill_random(b, 1);
    assert_memory_equal(a->data, b->data, 40000);
    sb_tensor_fill_random(b, 2);
    assert_memory_not_equal(a->data, b->data, 40000);
    for (int64_t i = 0; i < 10000; i++) {
        double x = sb_tensor_get_f64(a, i);
        sum += x;
        squares += x * x;
    }
    /* Four standard errors. */
    assert_true(fabs(sum / 10000) < 0.04);
    assert_true(fabs(squares / 10000 - 1) < 0.06);
    sb_tensor_fill_random(bits, 3);
    for (int64_t i = 0; i < 1001; i++) {
        int64_t x = sb_tensor_get_i64(bits, i);
        assert_true(x == 0 || x == 1);
        ones += (double)x;
    }
    assert_true(fabs(ones / 1001 - 0.5) < 0.07);
}

/* Piles that share a limit hold no more together; what is beyond it comes back
 * from the file all the same. */
static void test_piles_share_a_limit(void **state)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, "10", 1);
    const size_t bytes = sb_tensor_bytes(x);
    sb_spill *piles[2] = {NULL, NULL};
    sb_spilled_tensor kept[2][2] = {0};
    size_t used = 0;
    sb_tensor t;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sb_spill_create(test_ctx(), 3 * bytes, &piles[i]),
                         SB_OK);
        sb_spill_share(piles[i], &used);
        for (int k = 0; k < 2; k++)
            assert_int_equal(sb_spill_put(piles[i], x, &kept[i][k]), SB_OK);
    }
    assert_int_equal(used, 3 * bytes);
    assert_false(kept[1][0].in_file);
    assert_true(kept[1][1].in_file);
    assert_int_equal(sb_spill_get(piles[1], &kept[1][1], &t), SB_OK);
    assert_memory_equal(t.data, x->data, bytes);
    sb_tensor_drop(&t);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++)
            sb_spill_drop(piles[i], &kept[i][k]);
        sb_spill_free(piles[i]);
    }
    assert_int_equal(used, 0);
}

/* Memory of what was dropped is taken again, but not while it is read. */
static void test_pile_takes_memory_again(void **state)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, "10", 1);
    const sb_tensor *y = test_random(SB_DTYPE_F32, "10", 2);
    const size_t bytes = sb_tensor_bytes(x);
    sb_spilled_tensor kept[3] = {0};
    sb_spill *pile = NULL;
    sb_tensor t;

    (void)state;
    assert_int_equal(sb_spill_create(test_ctx(), 0, &pile), SB_OK);
    assert_int_equal(sb_spill_put(pile, x, &kept[0]), SB_OK);
    assert_int_equal(sb_spill_get(pile, &kept[0], &t), SB_OK);
    sb_spill_drop(pile, &kept[0]);
    assert_int_equal(sb_spill_put(pile, y, &kept[1]), SB_OK);
    assert_memory_equal(t.data, x->data, bytes);
    const void *memory = t.data;
    sb_tensor_drop(&t);
    assert_int_equal(sb_spill_put(pile, y, &kept[2]), SB_OK);
    assert_ptr_equal(kept[2].t.data, memory);
    assert_memory_equal(kept[2].t.data, y->data, bytes);
    sb_spill_drop(pile, &kept[1]);
    sb_spill_drop(pile, &kept[2]);
    sb_spill_free(pile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dims_and_shapes),
        cmocka_unit_test(test_buffers_are_aligned_and_released_once),
        cmocka_unit_test(test_sizes_are_checked),
        cmocka_unit_test(test_elements_of_every_type),
        cmocka_unit_test(test_share_and_drop),
        cmocka_unit_test(test_strings_are_copied),
        cmocka_unit_test(test_descriptions_fit_their_room),
        cmocka_unit_test(test_public_calls),
        cmocka_unit_test(test_rng_is_xoshiro),
        cmocka_unit_test(test_fill_random),
        cmocka_unit_test(test_piles_share_a_limit),
        cmocka_unit_test(test_pile_takes_memory_again),
    };
    return cmocka_run_group_tests_name("tensor", tests, NULL, NULL);
}
