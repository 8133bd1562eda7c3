/* Every allocation fails once: data sets, evaluation, dynamic batches.
 *
 * Decoding happens in the call itself: the counting allocator is not made for
 * several threads. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <stdlib.h>
#include <unistd.h>

#include <png.h>
#include <zlib.h>

static char dir[] = "/tmp/sbtest-oom-data-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static const char net_text[] = "graph net(x: f32[1,1,4,4]) -> (y: f32[1,3]) {\n"
                               "    w: f32[16,3] = random(1)\n"
                               "    s: i64[2] = [1, 16]\n"
                               "    r = Reshape(x, s)\n"
                               "    t = Transpose(r)\n" /* in doubt */
                               "    u = Transpose(t)\n"
                               "    y = MatMul(u, w)\n"
                               "}\n";

static sb_status run(sb_ctx *ctx, sb_model *model, sb_data *data)
{
    sb_session *session = NULL;
    sb_eval *eval = NULL;
    const sb_tensor *out[1];
    int done = 0;
    sb_status s = sb_model_make_batch_dynamic(model, &done);

    if (s == SB_OK)
        s = sb_session_create(model, NULL, &session);
    if (s == SB_OK)
        s = sb_eval_create(ctx, 1, NULL, &eval);
    while (s == SB_OK) {
        const sb_batch *b = NULL;

        s = sb_data_next(data, &b);
        if (s != SB_OK || b->count == 0)
            break;
        s = sb_session_run_batch(session, b, out, 1);
        if (s == SB_OK)
            s = sb_eval_add(eval, b, out);
        if (s == SB_OK)
            s = sb_eval_compare(eval, b, out, out);
    }
    sb_eval_free(eval);
    sb_session_free(session);
    return s;
}

static sb_status evaluate(sb_ctx *ctx, const char *text)
{
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    sb_model *model = NULL;
    sb_data *data = NULL;

    opt.threads = 0;
    opt.strict = 1;
    sb_status s = sb_model_parse(ctx, net_text, &model);
    if (s == SB_OK)
        s = sb_data_parse(ctx, text, in_dir("data.yaml"), &opt, &data);
    if (s == SB_OK)
        s = run(ctx, model, data);
    sb_data_free(data);
    sb_model_free(model);
    return s;
}

static sb_status folder(sb_ctx *ctx)
{
    return evaluate(ctx, "SOURCE: image_folder\nPATH: .\nLABELS: labels.txt\n"
                         "RESIZE: 5\nCROP: 4\nCOLOR: GRAY\nBATCH: 2\n");
}

static sb_status list(sb_ctx *ctx)
{
    return evaluate(ctx, "SOURCE: image_list\nPATH: labels.txt\n"
                         "RESIZE: [4, 4]\nCOLOR: GRAY\nINTERPOLATION: nearest\n"
                         "SHUFFLE: true\n");
}

static sb_status idx(sb_ctx *ctx)
{
    return evaluate(ctx, "SOURCE: idx\nPATH: i.gz\nLABELS: l.gz\n");
}

static sb_status npz(sb_ctx *ctx)
{
    return evaluate(ctx, "SOURCE: npz\nPATH: x.npz\nINPUTS: [x]\nLABELS: y\n");
}

static sb_status npy(sb_ctx *ctx)
{
    return evaluate(ctx, "SOURCE: npy\nINPUTS: {x: x.npy}\nLABELS: y.npy\n");
}

static sb_status cifar(sb_ctx *ctx)
{
    return evaluate(ctx, "SOURCE: cifar10\nPATH: [c.bin, c.bin]\nRESIZE: 4\n"
                         "COLOR: GRAY\n");
}

/* A state, an input of a fixed value, other axes, keys beside the file, and
 * boxes, vectors and rows to compare. */
static sb_status feed_text(sb_ctx *ctx, sb_model *model, const char *text,
                           const char *task)
{
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    sb_eval_options eval_opt = SB_EVAL_OPTIONS_INIT;
    const sb_eval_part *const *parts = NULL;
    sb_session *session = NULL;
    const sb_batch *b = NULL;
    const sb_tensor *out[2];
    sb_data *data = NULL;
    sb_eval *eval = NULL;
    size_t n = 0;

    opt.keys = "BATCH: 4\n";
    eval_opt.task = task;
    sb_status s = sb_data_parse(ctx, text, in_dir("data.yaml"), &opt, &data);
    if (s == SB_OK)
        s = sb_data_set_model(data, model);
    if (s == SB_OK)
        s = sb_session_create(model, NULL, &session);
    if (s == SB_OK)
        s = sb_eval_create(ctx, 2, &eval_opt, &eval);
    for (int i = 0; i < 3 && s == SB_OK; i++) {
        s = sb_data_next(data, &b);
        if (s != SB_OK || b->count == 0)
            break;
        s = sb_session_run_batch(session, b, out, 2);
        if (s == SB_OK)
            s = sb_eval_compare(eval, b, out, out);
    }
    if (s == SB_OK)
        s = sb_eval_parts(eval, &parts, &n);
    sb_eval_free(eval);
    sb_session_free(session);
    sb_data_free(data);
    return s;
}

static sb_status feeds(sb_ctx *ctx)
{
    sb_model *model = NULL;
    sb_tensor *k = NULL;
    char *text = NULL;
    sb_status s =
        sb_model_parse(ctx,
                       "graph g(x: f32[N,1,4,4], s: f32[1,1,4,4], k: f32[]) -> "
                       "(y: f32[N,4,4], t: f32[N,1,4,4]) {\n"
                       "    t = Add(x, s)\n"
                       "    a: i64[1] = [1]\n"
                       "    u = Squeeze(t, a)\n"
                       "    y = Mul(u, k)\n"
                       "}\n",
                       &model);

    if (s == SB_OK)
        s = sb_tensor_create(ctx, SB_DTYPE_F32, 0, NULL, &k);
    if (s == SB_OK)
        s = sb_model_fix_value(model, "k", k);
    if (s == SB_OK)
        s = sb_model_fix_shape(model, "s", 4, (const int64_t[]){1, 1, 4, 4});
    if (s == SB_OK)
        s = sb_data_describe(model, in_dir("x.npz"), "FEED: rows\n", &text);
    if (s == SB_OK)
        s = feed_text(ctx, model,
                      "SOURCE: npz\nPATH: x.npz\nINPUTS: [x]\n"
                      "STATE: {s: t}\n",
                      "embed");
    if (s == SB_OK)
        s = feed_text(ctx, model,
                      "SOURCE: npz\nPATH: x.npz\nINPUTS: [x, s]\n"
                      "AXIS: {x: 2, s: none}\n",
                      "none");
    sb_memory_free(text);
    sb_tensor_free(k);
    sb_model_free(model);
    return s;
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("feeds", feeds);
    test_every_allocation("image_folder", folder);
    test_every_allocation("image_list", list);
    test_every_allocation("idx", idx);
    test_every_allocation("npz", npz);
    test_every_allocation("npy", npy);
    test_every_allocation("cifar10", cifar);
}

static void write_file(const char *name, const void *data, size_t size)
{
    FILE *f = fopen(in_dir(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void write_gzip(const char *name, const void *data, unsigned size)
{
    gzFile f = gzopen(in_dir(name), "wb");

    assert_non_null(f);
    assert_int_equal(gzwrite(f, data, size), size);
    assert_int_equal(gzclose(f), Z_OK);
}

static void write_all(void)
{
    static const uint8_t pixels[7 * 9 * 3] = {1, 2, 3};
    static uint8_t images[16 + 3 * 16] = {0, 0, 8, 3, 0, 0, 0, 3,
                                          0, 0, 0, 4, 0, 0, 0, 4};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 2, 1, 0};
    static const uint8_t record[3073] = {2};
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = 7,
                       .height = 9,
                       .format = PNG_FORMAT_RGB};
    const sb_tensor *x = test_random(SB_DTYPE_F64, "3x1x4x4", 1);
    const sb_tensor *y = test_i64("3", 0, 1, 2);

    assert_true(
        png_image_write_to_file(&image, in_dir("a.png"), 0, pixels, 0, NULL));
    assert_true(
        png_image_write_to_file(&image, in_dir("b.png"), 0, pixels, 0, NULL));
    write_file("labels.txt", "a.png 0\nb.png 2\n", 16);
    write_gzip("i.gz", images, sizeof images);
    write_gzip("l.gz", labels, sizeof labels);
    write_file("c.bin", record, sizeof record);
    assert_ok(sb_tensor_save(test_ctx(), in_dir("x.npy"), x));
    assert_ok(sb_tensor_save(test_ctx(), in_dir("y.npy"), y));
    const sb_tensor *s = test_random(SB_DTYPE_F32, "1x1x4x4", 2);
    assert_ok(sb_tensors_save_npz(test_ctx(), in_dir("x.npz"),
                                  (const char *const[]){"x", "y", "s"},
                                  (const sb_tensor *const[]){x, y, s}, 3));
}

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    write_all();
    return 0;
}

static int remove_dir(void **state)
{
    static const char *const files[] = {"a.png", "b.png", "labels.txt",
                                        "i.gz",  "l.gz",  "c.bin",
                                        "x.npy", "y.npy", "x.npz"};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(files); i++)
        (void)unlink(in_dir(files[i]));
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failed_allocation_is_reported)};

    return cmocka_run_group_tests_name("oom_data", tests, make_dir, remove_dir);
}
