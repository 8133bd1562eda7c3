/* .npy and .npz files: what NumPy wrote, what we write, and broken ones. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/npy.h"

#include "npy_fixtures.h"

static char folder[] = "/tmp/sb-npy-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[sizeof folder + 64];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *put_file(const char *name, const void *data, size_t size)
{
    const char *path = in_folder(name);

    /* Some file systems flush a file that was cut to nothing and rewritten;
     * thousands of those would take long. */
    (void)unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"a.npy", "a.npz", "b.npy", "b.npz"};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(names); i++)
        (void)unlink(in_folder(names[i]));
    /* Fails, and so does the test, if a temporary file stayed behind. */
    return rmdir(folder);
}

/* ---- reading ------------------------------------------------------------ */

#define FILE_OF(name) file_##name, sizeof file_##name

static void test_what_numpy_wrote(void **state)
{
    (void)state;
    static const double f4[] = {0, 1.5, -2, 3, 4, 5.25};
    static const double i2[] = {0, 1, 2, 3, 4, -5, 600, -7000};
    static const double yes[] = {1, 0, 1};
    static const struct {
        const unsigned char *data;
        size_t size;
        sb_dtype dtype;
        const char *shape;
        const double *want;
    } rows[] = {
        {FILE_OF(f4), SB_DTYPE_F32, "2x3", f4},
        {FILE_OF(f4_v2), SB_DTYPE_F32, "2x3", f4},
        {FILE_OF(f4_v3), SB_DTYPE_F32, "2x3", f4},
        {FILE_OF(i2_big_fortran), SB_DTYPE_I16, "2x2x2", i2},
        {FILE_OF(bool), SB_DTYPE_BOOL, "3", yes},
        {FILE_OF(empty), SB_DTYPE_F16, "0x3", NULL},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        const sb_tensor *want =
            test_tensor(rows[i].dtype, rows[i].shape, rows[i].want);
        sb_tensor got = {0};
        const char *path = put_file("a.npy", rows[i].data, rows[i].size);
        assert_ok(sb_npy_load(test_ctx(), path, &got));
        assert_tensor("mapped", &got, want, 0);
        sb_tensor_drop(&got);
        assert_ok(sb_npy_parse(test_ctx(), "memory", rows[i].data, rows[i].size,
                               &got));
        assert_tensor("copied", &got, want, 0);
        sb_tensor_drop(&got);
    }
}

static void test_rare_types(void **state)
{
    (void)state;
    static const float c8[] = {1, 2, -0.0f, -3.5f}; /* Python: -(3.5j) */
    sb_tensor got = {0};

    assert_ok(sb_npy_parse(test_ctx(), "c8", FILE_OF(c8_big), &got));
    assert_int_equal(got.dtype, SB_DTYPE_C64);
    assert_memory_equal(got.data, c8, sizeof c8);
    sb_tensor_drop(&got);
    assert_ok(sb_npy_parse(test_ctx(), "u8", FILE_OF(scalar_u8), &got));
    assert_int_equal(got.dtype, SB_DTYPE_U64);
    assert_int_equal(got.rank, 0);
    assert_true(*(uint64_t *)got.data == UINT64_MAX);
    sb_tensor_drop(&got);
}

/* A changed element stays private: the file keeps its own. */
static void test_mapping_is_private(void **state)
{
    (void)state;
    const char *path = put_file("a.npy", FILE_OF(f4));
    sb_tensor *a = NULL, *b = NULL;

    assert_ok(sb_tensor_load(test_ctx(), path, &a));
    ((float *)sb_tensor_data_mutable(a))[0] = 99;
    assert_ok(sb_tensor_load(test_ctx(), path, &b));
    assert_true(((const float *)sb_tensor_data(b))[0] == 0.0f);
    sb_tensor_free(a);
    sb_tensor_free(b);
}

static void test_archives_give_their_arrays(void **state)
{
    (void)state;
    sb_npz_item *items = NULL;
    size_t n = 0;

    (void)put_file("a.npz", FILE_OF(npz_stored));
    assert_ok(sb_npz_load(test_ctx(), in_folder("a.npz"), &items, &n));
    assert_int_equal(n, 2);
    assert_string_equal(items[0].name, "x");
    assert_string_equal(items[1].name, "a/b");
    assert_tensor("x", &items[0].tensor,
                  test_tensor(SB_DTYPE_I32, "3", (const double[]){1, 2, 3}), 0);
    assert_tensor("a/b", &items[1].tensor,
                  test_tensor(SB_DTYPE_F64, "", (const double[]){0.5}), 0);
    sb_npz_free(test_ctx(), items, n);

    (void)put_file("a.npz", FILE_OF(npz_deflated));
    assert_ok(sb_npz_load(test_ctx(), in_folder("a.npz"), &items, &n));
    assert_int_equal(n, 2);
    for (int i = 0; i < 300; i++)
        assert_int_equal(((int32_t *)items[0].tensor.data)[i], i);
    sb_npz_free(test_ctx(), items, n);
}

static void test_load_by_name(void **state)
{
    (void)state;
    char path[128];
    sb_tensor *t = NULL;

    (void)put_file("a.npz", FILE_OF(npz_stored));
    (void)snprintf(path, sizeof path, "%s:a/b", in_folder("a.npz"));
    assert_ok(sb_tensor_load(test_ctx(), path, &t));
    assert_int_equal(sb_tensor_rank(t), 0);
    sb_tensor_free(t);
    (void)snprintf(path, sizeof path, "%s:nothing", in_folder("a.npz"));
    assert_status(sb_tensor_load(test_ctx(), path, &t), SB_BAD_DATA);
    assert_error_has("nothing");
    assert_status(sb_tensor_load(test_ctx(), in_folder("a.npz"), &t),
                  SB_BAD_DATA);
    assert_error_has("2 arrays");
    assert_status(sb_tensor_load(test_ctx(), "/nowhere/x.npy", &t), SB_IO);
}

/* ---- writing ------------------------------------------------------------ */

static bool has_numpy_form(int dtype)
{
    return dtype != SB_DTYPE_STRING && dtype != SB_DTYPE_C64 &&
           dtype != SB_DTYPE_C128;
}

/* All in one archive: each file of its own would cost an fsync. */
static void test_round_trip(void **state)
{
    (void)state;
    static const char *const shapes[] = {"", "1", "7", "0x3", "2x1x3"};
    enum { MOST = SB_DTYPE_COUNT * SB_COUNT(shapes) };
    static char names[MOST][32];
    const char *name[MOST];
    const sb_tensor *want[MOST];
    sb_npz_item *got = NULL;
    size_t n = 0, n_got = 0;

    for (int d = 1; d < SB_DTYPE_COUNT; d++) {
        for (size_t i = 0; i < SB_COUNT(shapes) && has_numpy_form(d); i++) {
            (void)snprintf(names[n], sizeof names[n], "%d/%s", d, shapes[i]);
            name[n] = names[n];
            want[n++] = test_random((sb_dtype)d, shapes[i], 5);
        }
    }
    assert_ok(
        sb_tensors_save_npz(test_ctx(), in_folder("b.npz"), name, want, n));
    assert_ok(sb_npz_load(test_ctx(), in_folder("b.npz"), &got, &n_got));
    assert_int_equal(n_got, n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(got[i].name, name[i]);
        assert_int_equal(got[i].tensor.rank, want[i]->rank);
        /* Types that NumPy lacks come back wider, with the same values. */
        for (int64_t k = 0; k < sb_tensor_count(want[i]); k++)
            assert_close(name[i], sb_tensor_get_f64(&got[i].tensor, k),
                         sb_tensor_get_f64(want[i], k), 0);
    }
    sb_npz_free(test_ctx(), got, n_got);
}

/* Programs that unpack an archive write where its names say. */
static void test_no_name_leads_out_of_an_archive(void **state)
{
    static const char *const names[] = {"y/../../evil", "/tmp/evil", "a/b..c"};
    static const char *const stored[] = {"y_.._.._evil", "_tmp_evil", "a/b..c"};
    const sb_tensor *t = test_random(SB_DTYPE_F32, "2", 5);
    const sb_tensor *const all[] = {t, t, t};
    sb_npz_item *got = NULL;
    size_t n = 0;

    (void)state;
    assert_ok(
        sb_tensors_save_npz(test_ctx(), in_folder("b.npz"), names, all, 3));
    assert_ok(sb_npz_load(test_ctx(), in_folder("b.npz"), &got, &n));
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(got[i].name, stored[i]);
    sb_npz_free(test_ctx(), got, n);
}

static void test_header_as_numpy_writes_it(void **state)
{
    (void)state;
    sb_tensor *t = test_tensor(SB_DTYPE_F32, "2x3",
                               (const double[]){0, 1.5, -2, 3, 4, 5.25});
    unsigned char bytes[sizeof file_f4 + 1];

    assert_ok(sb_tensor_save(test_ctx(), in_folder("b.npy"), t));
    FILE *f = fopen(in_folder("b.npy"), "rb");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), sizeof file_f4);
    assert_int_equal(fclose(f), 0);
    assert_memory_equal(bytes, file_f4, sizeof file_f4);
}

static void test_save_archive(void **state)
{
    (void)state;
    const char *const names[] = {"in/put", "y"};
    const sb_tensor *tensors[] = {test_f32("2x2", 1, 2, 3, 4), test_i64("", 7)};
    sb_npz_item *items = NULL;
    size_t n = 0;

    assert_ok(
        sb_tensors_save_npz(test_ctx(), in_folder("b.npz"), names, tensors, 2));
    assert_ok(sb_npz_load(test_ctx(), in_folder("b.npz"), &items, &n));
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(items[i].name, names[i]);
        assert_tensor(names[i], &items[i].tensor, tensors[i], 0);
    }
    sb_npz_free(test_ctx(), items, n);
    assert_status(
        sb_tensors_save_npz(test_ctx(), "/nowhere/b.npz", names, tensors, 2),
        SB_IO);
}

static void test_strings_are_refused(void **state)
{
    (void)state;
    const int64_t dims[] = {1};
    static const sb_bytes text = {"a", 1};
    sb_tensor t = sb_tensor_make(SB_DTYPE_STRING, 1, dims);

    assert_ok(sb_tensor_alloc_strings(test_ctx(), &t, &text));
    assert_status(sb_npy_save(test_ctx(), in_folder("b.npy"), &t),
                  SB_UNSUPPORTED);
    assert_error_has("string");
    sb_tensor_drop(&t);
}

/* ---- broken files ------------------------------------------------------- */

static void test_headers_from_strangers(void **state)
{
    (void)state;
    static const struct {
        const char *dict;
        sb_status want;
    } rows[] = {
        {"", SB_BAD_DATA},
        {"{", SB_BAD_DATA},
        {"{}", SB_BAD_DATA},
        {"{'descr': '<f4', 'fortran_order': False}", SB_BAD_DATA},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}",
         SB_BAD_DATA},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
         SB_BAD_DATA},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
         SB_BAD_DATA},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,", SB_BAD_DATA},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (100,)}",
         SB_BAD_DATA}, /* there are not so many bytes */
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(9223372036854775807, 9223372036854775807)}",
         SB_BAD_DATA},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(99999999999999999999,)}",
         SB_BAD_DATA},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, "
         "9223372036854775807, 2)}",
         SB_BAD_DATA},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(1,1,1,1,1,1,1,1,1,1,1,1,1)}",
         SB_UNSUPPORTED},
        {"{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}",
         SB_UNSUPPORTED},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}",
         SB_UNSUPPORTED},
        {"{'descr': '', 'fortran_order': False, 'shape': ()}", SB_UNSUPPORTED},
        {"{'other': 1}", SB_BAD_DATA},
        {"{\"shape\":(1,1L,),\"fortran_order\":True,\"descr\":\"f4\"}", SB_OK},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        unsigned char file[256] = "\x93NUMPY\x01";
        size_t len = strlen(rows[i].dict);
        sb_tensor t = {0};
        file[8] = (unsigned char)len;
        memcpy(file + 10, rows[i].dict, len);
        assert_int_equal(
            sb_npy_parse(test_ctx(), "strange", file, 10 + len + 4, &t),
            rows[i].want);
        sb_tensor_drop(&t);
    }
}

static void test_truncated_anywhere(void **state)
{
    (void)state;
    unsigned char copy[sizeof file_npz_deflated];
    sb_npz_item *items = NULL;
    sb_tensor t = {0};
    size_t n = 0;

    for (size_t len = 0; len < sizeof file_f4; len++)
        assert_int_not_equal(sb_npy_parse(test_ctx(), "cut", file_f4, len, &t),
                             SB_OK);
    for (size_t len = 0; len < sizeof file_npz_deflated; len += 3) {
        memcpy(copy, file_npz_deflated, len);
        (void)put_file("a.npz", copy, len);
        assert_int_not_equal(
            sb_npz_load(test_ctx(), in_folder("a.npz"), &items, &n), SB_OK);
    }
}

/* Any byte may change: an error or the same arrays (a time stamp is not
 * data), never a crash. */
static void test_flipped_anywhere(void **state)
{
    (void)state;
    static const unsigned char flips[] = {0x01, 0x80, 0xff};

    for (size_t at = 0; at < sizeof file_npz_deflated; at++) {
        for (size_t k = 0; k < SB_COUNT(flips); k++) {
            unsigned char copy[sizeof file_npz_deflated];
            sb_npz_item *items = NULL;
            size_t n = 0;
            memcpy(copy, file_npz_deflated, sizeof copy);
            copy[at] ^= flips[k];
            (void)put_file("a.npz", copy, sizeof copy);
            if (sb_npz_load(test_ctx(), in_folder("a.npz"), &items, &n) ==
                SB_OK)
                sb_npz_free(test_ctx(), items, n);
        }
    }
}

static sb_status load_and_save(sb_ctx *ctx)
{
    sb_npz_item *items = NULL;
    size_t n = 0;

    SB_TRY(sb_npz_load(ctx, in_folder("a.npz"), &items, &n));
    sb_status status = sb_npz_save(ctx, in_folder("b.npz"), items, n);
    sb_npz_free(ctx, items, n);
    return status;
}

static void test_out_of_memory(void **state)
{
    (void)state;
    (void)put_file("a.npz", FILE_OF(npz_deflated));
    test_every_allocation("npz", load_and_save);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_numpy_wrote),
        cmocka_unit_test(test_rare_types),
        cmocka_unit_test(test_mapping_is_private),
        cmocka_unit_test(test_archives_give_their_arrays),
        cmocka_unit_test(test_load_by_name),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_no_name_leads_out_of_an_archive),
        cmocka_unit_test(test_header_as_numpy_writes_it),
        cmocka_unit_test(test_save_archive),
        cmocka_unit_test(test_strings_are_refused),
        cmocka_unit_test(test_headers_from_strangers),
        cmocka_unit_test(test_truncated_anywhere),
        cmocka_unit_test(test_flipped_anywhere),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("npy", tests, make_folder,
                                       remove_folder);
}
