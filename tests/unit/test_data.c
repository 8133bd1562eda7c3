/* Data sets: order, batches, threads, rewinding, broken samples.  What the
 * numbers must be is in tests/ort/test_data.py. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <stdlib.h>
#include <unistd.h>

#include <png.h>

#include "data/prefetch.h"
#include "data/source.h"

enum { FILES = 37 };

static char dir[] = "/tmp/sbtest-data-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const void *data, size_t size)
{
    FILE *f = fopen(in_dir(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* Every image is 2 x 2 and says its number. */
static void write_images(void)
{
    for (int i = 0; i < FILES; i++) {
        uint8_t pixels[4] = {(uint8_t)i, 1, 2, 3};
        png_image image = {.version = PNG_IMAGE_VERSION,
                           .width = 2,
                           .height = 2,
                           .format = PNG_FORMAT_GRAY};
        char name[32];

        (void)snprintf(name, sizeof name, "i%03d.png", i);
        assert_true(
            png_image_write_to_file(&image, in_dir(name), 0, pixels, 0, NULL));
    }
}

static sb_data *open_text(const char *text, const sb_data_options *opt)
{
    sb_data *data = NULL;

    assert_ok(sb_data_parse(test_ctx(), text, in_dir("data.yaml"), opt, &data));
    return data;
}

static const char images_text[] = "SOURCE: image_folder\n"
                                  "PATH: .\n"
                                  "COLOR: GRAY\n"
                                  "BATCH: 5\n";

/* Reads to the end and writes the numbers of the images down. */
static size_t numbers(sb_data *data, int *out)
{
    size_t n = 0;

    for (;;) {
        const sb_batch *b = NULL;

        assert_ok(sb_data_next(data, &b));
        if (b->count == 0)
            return n;
        assert_int_equal(b->n_inputs, 1);
        assert_int_equal(sb_tensor_rank(b->inputs[0]), 4);
        assert_int_equal(sb_tensor_dims(b->inputs[0])[0], b->count);
        for (size_t i = 0; i < b->count; i++) {
            char name[32];

            out[n + i] =
                (int)((const float *)sb_tensor_data(b->inputs[0]))[4 * i];
            (void)snprintf(name, sizeof name, "i%03d.png", out[n + i]);
            assert_string_equal(b->names[i], name);
            assert_int_equal(b->labels[i], -1);
        }
        n += b->count;
    }
}

static void test_order_is_that_of_the_files(void **state)
{
    static const int threads[] = {0, 1, 2, 7, -1};

    (void)state;
    for (size_t t = 0; t < SB_COUNT(threads); t++) {
        sb_data_options opt = SB_DATA_OPTIONS_INIT;
        int got[FILES];

        opt.threads = threads[t];
        opt.batch = t;
        sb_data *data = open_text(images_text, &opt);
        assert_int_equal(sb_data_count(data), FILES);
        assert_false(sb_data_has_labels(data));
        for (int round = 0; round < 2; round++) {
            assert_int_equal(numbers(data, got), FILES);
            for (int i = 0; i < FILES; i++)
                assert_int_equal(got[i], i);
            sb_data_rewind(data);
        }
        sb_data_free(data);
    }
}

static void test_skip_and_samples_choose_a_part(void **state)
{
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    int got[FILES];

    (void)state;
    opt.skip = 30;
    opt.samples = 100;
    sb_data *data = open_text(images_text, &opt);
    assert_int_equal(sb_data_count(data), FILES - 30);
    assert_int_equal(numbers(data, got), FILES - 30);
    assert_int_equal(got[0], 30);
    sb_data_free(data);
    opt.samples = 3;
    data = open_text(images_text, &opt);
    assert_int_equal(numbers(data, got), 3);
    assert_int_equal(got[2], 32);
    sb_data_free(data);
    opt.skip = FILES;
    assert_status(sb_data_parse(test_ctx(), images_text, in_dir("data.yaml"),
                                &opt, &data),
                  SB_BAD_DATA);
}

/* Freed and rewound while threads are at work. */
static void test_stop_early(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        sb_data_options opt = SB_DATA_OPTIONS_INIT;
        const sb_batch *b = NULL;

        opt.threads = 3;
        sb_data *data = open_text(images_text, &opt);
        for (int k = 0; k < i % 4; k++)
            assert_ok(sb_data_next(data, &b));
        if (i % 2) {
            sb_data_rewind(data);
            assert_ok(sb_data_next(data, &b));
            assert_int_equal(b->first, 0);
        }
        sb_data_free(data);
    }
}

static void test_interrupt_ends_reading(void **state)
{
    sb_ctx *ctx = NULL;
    sb_data *data = NULL;
    const sb_batch *b = NULL;

    (void)state;
    assert_int_equal(sb_ctx_create(NULL, &ctx), SB_OK);
    assert_int_equal(
        sb_data_parse(ctx, images_text, in_dir("data.yaml"), NULL, &data),
        SB_OK);
    assert_int_equal(sb_data_next(data, &b), SB_OK);
    sb_ctx_interrupt(ctx);
    assert_int_equal(sb_data_next(data, &b), SB_INTERRUPTED);
    sb_data_free(data);
    sb_ctx_free(ctx);
}

static void test_broken_files_are_left_out_and_named(void **state)
{
    (void)state;
    write_file("i010.png", "no", 2);
    write_file("i020.png", "", 0);
    for (int threads = 0; threads < 3; threads++) {
        sb_data_options opt = SB_DATA_OPTIONS_INIT;
        int got[FILES];
        const sb_batch *b = NULL;
        sb_status status = SB_OK;

        opt.threads = threads;
        sb_data *data = open_text(images_text, &opt);
        assert_int_equal(numbers(data, got), FILES - 2);
        assert_int_equal(got[10], 11);
        /* Met again, counted once. */
        sb_data_rewind(data);
        assert_int_equal(numbers(data, got), FILES - 2);
        assert_int_equal(sb_data_broken_count(data), 2);
        assert_string_equal(sb_data_broken(data, 0), "i010.png");
        assert_string_equal(sb_data_broken(data, 1), "i020.png");
        sb_data_free(data);
        opt.strict = 1;
        data = open_text(images_text, &opt);
        while (status == SB_OK) {
            status = sb_data_next(data, &b);
            assert_true(status != SB_OK || b->count > 0);
        }
        assert_int_equal(status, SB_BAD_DATA);
        assert_error_has("i010.png");
        sb_data_free(data);
    }
}

/* Samples of other shapes start a new batch. */
static void test_other_shapes_start_a_new_batch(void **state)
{
    static const char *const shapes[] = {"3x4", "2x4", "1x6"};
    sb_data *data;
    const sb_batch *b = NULL;
    const char *const names[] = {"ids"};
    const sb_tensor *in[1];
    sb_model *model = NULL, *other = NULL;

    (void)state;
    assert_ok(sb_model_parse(
        test_ctx(), "graph g(ids: i64[N,M]) -> (y) { y = Neg(ids) }", &model));
    assert_ok(sb_model_parse(
        test_ctx(), "graph g(x: i64[N,M]) -> (y) { y = Neg(x) }", &other));
    for (size_t i = 0; i < SB_COUNT(shapes); i++) {
        sb_tensor *t = test_random(SB_DTYPE_I64, shapes[i], i);
        char name[] = "t0.npz";

        name[1] = (char)('0' + i);
        assert_ok(sb_tensors_save_npz(test_ctx(), in_dir(name), names,
                                      (const sb_tensor *const[]){t}, 1));
    }
    data = open_text("SOURCE: npz\nPATH: .\nBATCH: 4\n", NULL);
    assert_int_equal(sb_data_count(data), 6);
    static const size_t want[][3] = {{0, 4, 4}, {4, 1, 4}, {5, 1, 6}};
    for (size_t i = 0; i < SB_COUNT(want); i++) {
        assert_ok(sb_data_next(data, &b));
        assert_int_equal(b->first, want[i][0]);
        assert_int_equal(b->count, want[i][1]);
        assert_int_equal(sb_tensor_dims(b->inputs[0])[1], want[i][2]);
        assert_int_equal(sb_tensor_dtype(b->inputs[0]), SB_DTYPE_I64);
        assert_string_equal(b->input_names[0], "ids");
        assert_ok(sb_model_batch_inputs(model, b, in, 1));
        assert_ptr_equal(in[0], b->inputs[0]);
    }
    assert_status(sb_model_batch_inputs(other, b, in, 1), SB_BAD_DATA);
    assert_status(sb_model_batch_inputs(model, b, in, 2), SB_BAD_ARG);
    assert_ok(sb_data_next(data, &b));
    assert_int_equal(b->count, 0);
    sb_data_free(data);
    sb_model_free(model);
    sb_model_free(other);
}

/* Rows of the list are sorted and complete. */
static void test_sources_are_sorted_and_complete(void **state)
{
    size_t n;
    const sb_source_def *const *rows = sb_source_all(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || strcmp(rows[i - 1]->name, rows[i]->name) < 0);
        assert_ptr_equal(sb_source_find(NULL, rows[i]->name), rows[i]);
        assert_non_null(rows[i]->open);
        assert_non_null(rows[i]->name_of);
        assert_true((rows[i]->image != NULL) != (rows[i]->arrays != NULL));
        assert_true(strlen(rows[i]->summary) > 10);
    }
    assert_null(sb_source_find(NULL, "nothing"));
}

/* A model fixed to one sample: runs in pieces, outputs side by side. */
static void test_fixed_batches_run_in_pieces(void **state)
{
    sb_model *m = NULL;
    sb_session *s = NULL;
    const sb_tensor *x = test_f32("3x2", 1, 2, 3, 4, 5, 6), *out[2];
    sb_batch b = SB_BATCH_INIT;

    b.count = 3;
    b.n_inputs = 1;
    b.inputs = &x;
    (void)state;
    assert_ok(sb_model_parse(test_ctx(),
                             "graph one(x: f32[1,2]) -> (y: f32[1,2], "
                             "z: f32[2]) {\n"
                             "    y = Neg(x)\n"
                             "    z = Squeeze(x)\n"
                             "}\n",
                             &m));
    assert_ok(sb_session_create(m, NULL, &s));
    assert_ok(sb_session_run_batch(s, &b, out, 2));
    assert_tensor("y", out[0], test_f32("3x2", -1, -2, -3, -4, -5, -6), 0);
    assert_tensor("z", out[1], test_f32("3x2", 1, 2, 3, 4, 5, 6), 0);
    /* Also for one sample the first axis counts. */
    x = test_f32("1x2", 7, 8);
    b.count = 1;
    assert_ok(sb_session_run_batch(s, &b, out, 2));
    assert_tensor("z", out[1], test_f32("1x2", 7, 8), 0);
    sb_session_free(s);
    sb_model_free(m);
}

/* A state goes from run to run, and starts again with each file. */
static void test_states_go_from_run_to_run(void **state)
{
    static const float want[] = {1, 3, 6, 4, 9}; /* sums of 1 2 3, and of 4 5 */
    const char *const names[] = {"x"};
    sb_model *m = NULL;
    sb_session *s = NULL;
    const sb_batch *b = NULL;
    sb_feed *feed = NULL;

    (void)state;
    assert_ok(sb_tensors_save_npz(
        test_ctx(), in_dir("u0.npz"), names,
        (const sb_tensor *const[]){test_f32("3x1", 1, 2, 3)}, 1));
    assert_ok(sb_tensors_save_npz(
        test_ctx(), in_dir("u1.npz"), names,
        (const sb_tensor *const[]){test_f32("2x1", 4, 5)}, 1));
    sb_data *data = open_text("SOURCE: npz\nPATH: [u0.npz, u1.npz]\n"
                              "STATE: {s: t}\n",
                              NULL);
    assert_ok(sb_model_parse(test_ctx(),
                             "graph sum(x: f32[N,1], s: f32[N,1]) -> "
                             "(t: f32[N,1]) { t = Add(x, s) }",
                             &m));
    assert_ok(sb_session_create(m, NULL, &s));
    assert_ok(sb_feed_create(m, &feed));
    for (size_t i = 0; i < SB_COUNT(want); i++) {
        const sb_tensor *out = NULL, *in[2];

        assert_ok(sb_data_next(data, &b));
        assert_int_equal(b->count, 1);
        assert_int_equal(b->restart, i == 0 || i == 3);
        assert_ok(sb_session_run_batch(s, b, &out, 1));
        assert_tensor("t", out, test_f32("1x1", (double)want[i]), 0);
        /* The same by hand. */
        assert_ok(sb_feed_inputs(feed, b, in, 2));
        assert_ok(sb_session_run(s, in, 2, &out, 1));
        assert_tensor("t", out, test_f32("1x1", (double)want[i]), 0);
        assert_ok(sb_feed_keep(feed, b, &out, 1));
        assert_status(sb_model_batch_inputs(m, b, in, 2), SB_BAD_ARG);
    }
    sb_feed_free(feed);
    sb_session_free(s);
    sb_model_free(m);
    sb_data_free(data);
}

/* Keys given beside the file stand instead of the file's. */
static void test_keys_beside_the_file(void **state)
{
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    const sb_batch *b = NULL;
    sb_data *data = NULL;

    (void)state;
    opt.keys = "BATCH: 3\nPAD: 4\nPAD_VALUE: 9\n";
    data = open_text(images_text, &opt);
    assert_ok(sb_data_next(data, &b));
    assert_int_equal(b->count, 3);
    assert_int_equal(sb_tensor_dims(b->inputs[0])[3], 4);
    assert_true(((const float *)sb_tensor_data(b->inputs[0]))[0] == 9);
    assert_true(((const float *)sb_tensor_data(b->inputs[0]))[6] == 1);
    sb_data_free(data);
    opt.keys = "BATHC: 3\n";
    assert_status(sb_data_parse(test_ctx(), images_text, in_dir("data.yaml"),
                                &opt, &data),
                  SB_BAD_CONFIG);
    assert_error_has("data.yaml: ");
    opt.keys = "- 3\n";
    assert_status(sb_data_parse(test_ctx(), images_text, in_dir("data.yaml"),
                                &opt, &data),
                  SB_BAD_CONFIG);
}

static void test_eval_numbers(void **state)
{
    const sb_tensor *a = test_f32("2x3", 1, 5, 5, 0, 2, 1);
    const sb_tensor *r = test_f32("2x3", 1, 4, 5, 0, 2, 1);
    const int64_t labels[] = {2, 1};
    const char *const names[] = {"a", "b"};
    sb_batch b = SB_BATCH_INIT;
    sb_eval *e = NULL;

    (void)state;
    b.count = 2;
    b.labels = labels;
    b.names = names;
    assert_ok(sb_eval_create(test_ctx(), 1, NULL, &e));
    assert_ok(sb_eval_add(e, &b, &a));
    assert_ok(sb_eval_compare(e, &b, &a, &r));
    const sb_eval_result *got = sb_eval_get(e);
    assert_close("top1", got->top1, 50, 0); /* of equal ones the first wins */
    assert_close("top5", got->top5, 100, 0);
    assert_close("agreement", got->agreement, 50, 0);
    /* <a,r> = 46, |a|^2 = 51, |r|^2 = 42 */
    assert_close("cosine", got->cosine, (46 / 46.281746 + 1) / 2, 1e-6);
    assert_close("sqnr", got->sqnr_db, 16.720979, 1e-5); /* 47 / 1 */
    b.labels = (const int64_t[]){-1, 3};
    assert_status(sb_eval_add(e, &b, &a), SB_BAD_DATA);
    assert_error_has("'b' has label 3, the model has 3 classes");
    a = test_f32("1x3", 1, 2, 3);
    assert_status(sb_eval_compare(e, &b, &a, &r), SB_BAD_DATA);
    sb_eval_free(e);
}

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    write_images();
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    for (int i = 0; i < FILES; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "i%03d.png", i);
        (void)unlink(in_dir(name));
        (void)snprintf(name, sizeof name, "t%d.npz", i % 3);
        (void)unlink(in_dir(name));
        (void)snprintf(name, sizeof name, "u%d.npz", i % 2);
        (void)unlink(in_dir(name));
    }
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_is_that_of_the_files),
        cmocka_unit_test(test_skip_and_samples_choose_a_part),
        cmocka_unit_test(test_stop_early),
        cmocka_unit_test(test_interrupt_ends_reading),
        cmocka_unit_test(test_broken_files_are_left_out_and_named),
        cmocka_unit_test(test_other_shapes_start_a_new_batch),
        cmocka_unit_test(test_sources_are_sorted_and_complete),
        cmocka_unit_test(test_fixed_batches_run_in_pieces),
        cmocka_unit_test(test_states_go_from_run_to_run),
        cmocka_unit_test(test_keys_beside_the_file),
        cmocka_unit_test(test_eval_numbers),
    };
    return cmocka_run_group_tests_name("data", tests, make_dir, remove_dir);
}
