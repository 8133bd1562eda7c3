/* Writing ONNX files, and reading them back with external data: what must
 * survive, where weights go, and what is refused. */
#define _XOPEN_SOURCE 700
#include "sbtest.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/text.h"
#include "onnx/onnx.h"
#include "pb_bytes.h"
#include "tensor/mapped.h"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sb-onnx-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[96];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static size_t read_file(const char *path, unsigned char *data, size_t size)
{
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    size_t n = fread(data, 1, size, f);
    (void)fclose(f);
    return n;
}

static bool contains(const unsigned char *data, size_t n, const char *part)
{
    size_t len = strlen(part);

    for (size_t i = 0; i + len <= n; i++)
        if (memcmp(data + i, part, len) == 0)
            return true;
    return false;
}

static const char *print(const sb_graph *g)
{
    static char text[2][8192];
    static int next;
    char *out = text[next++ % 2];
    sb_str s;

    sb_str_init(&s, g->ctx);
    assert_ok(sb_graph_print(g, &s));
    (void)snprintf(out, sizeof text[0], "%s", sb_str_text(&s));
    sb_str_free(&s);
    return out;
}

static sb_graph *parse(const char *text)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    return g;
}

static const sb_onnx_save_options newest = {.min_opset = 25};

static sb_graph *save_and_load(const sb_graph *g, const char *name)
{
    sb_graph *again = NULL;

    assert_ok(sb_onnx_save(g, in_folder(name), &newest));
    assert_ok(sb_onnx_load(test_ctx(), in_folder(name), &again));
    return again;
}

/* ---- survival ----------------------------------------------------------- */

static const char *const texts[] = {
    "graph main(x: f32[N,3,?,8]) -> (y: f32[N,4,?,8]) {\n"
    "    w: f32[4,3,1,1] = random(7)\n"
    "    b: f32[4] = [0, 1, -2.5, 4]\n"
    "    y = Conv(x, w, b) {pads=[0,0,0,0]} \"conv1\"\n"
    "}\n",
    "graph main(x: f32[*], c: bool[]) -> (y: f32[*]) {\n"
    "    k: f32[] = 5\n"
    "    h = com.x::Foo(x, _, k) {a=1, b=0.5, s=\"t\", l=[1,2], f=[0.5,1.5]}\n"
    "    y = If(c) {then_branch=graph a() -> (p) {\n"
    "        p = Add(h, k)\n"
    "    }, else_branch=graph b() -> (q) {\n"
    "        q = Neg(h)\n"
    "    }} \"choice\"\n"
    "}\n",
    ("graph main(x: i4[3], z: f8e4m3fn[2]) -> (x: i4[3], z: f8e4m3fn[2]) {\n"
     "}\n"),
};

static void test_same_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(texts); i++) {
        sb_graph *g = parse(texts[i]);
        sb_graph *again = save_and_load(g, "same.onnx");

        assert_string_equal(print(again), print(g));
        sb_graph_free(again);
        sb_graph_free(g);
    }
}

/* Fields that no schema of ours knows, in the model, graph, node and value. */
static void test_unknown_fields(void **state)
{
    (void)state;
    const int64_t dims[] = {2};
    static unsigned char bytes[4096];
    pb m = {.n = 0}, g = {.n = 0}, node = {.n = 0}, prop = {.n = 0};
    sb_graph *graph = NULL;

    pb_text(&node, NODE_INPUT, "x");
    pb_text(&node, NODE_OUTPUT, "y");
    pb_text(&node, NODE_OP, "Relu");
    pb_text(&node, 777, "unknown-node");
    pb_text(&node, 6, "doc-node");
    pb_msg(&g, GRAPH_NODE, &node);
    pb_value(&g, GRAPH_INPUT, "x", 1, dims);
    pb_value(&g, GRAPH_OUTPUT, "y", 1, dims);
    pb_text(&g, 778, "unknown-graph");
    pb_text(&g, 10, "doc-graph");
    pb_text(&prop, 1, "prop-key");
    pb_text(&prop, 2, "prop-value");
    pb_model(&m, &g, 17);
    pb_text(&m, MODEL_PRODUCER, "somebody");
    pb_msg(&m, MODEL_PROPS, &prop);
    pb_msg(&m, MODEL_TRAINING, &prop);
    pb_int(&m, 5, 42);
    assert_ok(
        sb_onnx_load_memory(test_ctx(), "test", NULL, m.data, m.n, &graph));
    assert_int_equal(graph->model_version, 42);
    assert_ok(sb_onnx_save(graph, in_folder("unknown.onnx"), &newest));
    size_t n = read_file(in_folder("unknown.onnx"), bytes, sizeof bytes);
    assert_true(contains(bytes, n, "unknown-node"));
    assert_true(contains(bytes, n, "unknown-graph"));
    assert_true(contains(bytes, n, "doc-node"));
    assert_true(contains(bytes, n, "doc-graph"));
    assert_true(contains(bytes, n, "somebody"));
    assert_true(contains(bytes, n, "prop-value"));
    sb_graph_free(graph);
}

/* The opset is the file's, or what the graph needs; the IR version follows. */
static void test_opset_and_ir_version_fit_the_graph(void **state)
{
    (void)state;
    static const struct {
        int64_t file, needed, opset, ir;
    } cases[] = {
        {11, 1, 11, 6}, {11, 18, 18, 8}, {0, 1, 13, 7}, {21, 25, 25, 13}};

    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_graph *g = parse("graph g(x: f32[2]) -> (y: f32[2]) "
                            "{ y = Relu(x) }");
        sb_graph *again = NULL;
        const sb_onnx_save_options opt = {.min_opset = cases[i].needed};

        g->file_opset = cases[i].file;
        g->ir_version = 0;
        assert_ok(sb_onnx_save(g, in_folder("v.onnx"), &opt));
        assert_ok(sb_onnx_load(test_ctx(), in_folder("v.onnx"), &again));
        assert_int_equal(again->file_opset, cases[i].opset);
        assert_int_equal(again->ir_version, cases[i].ir);
        sb_graph_free(again);
        sb_graph_free(g);
    }
}

/* The file that is being read may be written over. */
static void test_same_file(void **state)
{
    (void)state;
    sb_graph *g = parse("graph g(x: f32[1,100]) -> (y: f32[1,300]) {\n"
                        "w: f32[100,300] = random(3)\n"
                        "y = MatMul(x, w) }");
    sb_graph *second = save_and_load(g, "over.onnx");
    sb_graph *third = save_and_load(second, "over.onnx");
    const sb_tensor *a =
        &sb_graph_value(g, sb_graph_find_value(g, "w"))->constant;
    const sb_tensor *b =
        &sb_graph_value(third, sb_graph_find_value(third, "w"))->constant;

    assert_memory_equal(a->data, b->data, sb_tensor_bytes(a));
    sb_graph_free(third);
    sb_graph_free(second);
    sb_graph_free(g);
}

static void test_no_half_files(void **state)
{
    (void)state;
    sb_graph *g = parse("graph g(x: f32[2]) -> (y: f32[2]) { y = Relu(x) }");

    assert_status(sb_onnx_save(g, in_folder("none/x.onnx"), &newest), SB_IO);
    assert_status(sb_onnx_save(g, folder, &newest), SB_IO);
    assert_int_not_equal(access(in_folder("none"), F_OK), 0);
    sb_graph_free(g);
}

/* ---- external data ------------------------------------------------------ */

/* The files in the folder whose names end so; *last is the path of one. */
static int files_named(const char *end, char *last, size_t size)
{
    DIR *d = opendir(folder);
    int n = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        size_t len = strlen(e->d_name), k = strlen(end);
        if (len < k || strcmp(e->d_name + len - k, end) != 0)
            continue;
        (void)snprintf(last, size, "%s/%s", folder, e->d_name);
        n++;
    }
    (void)closedir(d);
    return n;
}

/* Data belongs to a model by the hash in its name: saving again does not touch
 * what the old model refers to before the new one is there, and leaves nothing
 * of it behind. */
static void test_data_is_replaced(void **state)
{
    (void)state;
    const sb_onnx_save_options opt = {.min_opset = 25, .external_above = 1000};
    const char *const nets[] = {"graph g(x: f32[1,100]) -> (y: f32[1,30]) {\n"
                                "w: f32[100,30] = random(3)\n"
                                "y = MatMul(x, w) }",
                                "graph g(x: f32[1,100]) -> (y: f32[1,30]) {\n"
                                "w: f32[100,30] = random(4)\n"
                                "y = MatMul(x, w) }"};
    char first[256], second[256], other[256];
    sb_graph *g[2] = {parse(nets[0]), parse(nets[1])};

    write_file(in_folder("two.onnx.unlike.data"), "other", 5);
    write_file(in_folder("two.onnx.data"), "nobody refers to it", 19);
    assert_ok(sb_onnx_save(g[0], in_folder("two.onnx"), &opt));
    assert_int_equal(unlink(in_folder("two.onnx.data")), 0);
    assert_int_equal(unlink(in_folder("two.onnx.unlike.data")), 0);
    assert_int_equal(files_named(".data", first, sizeof first), 1);
    assert_ok(sb_onnx_save(g[0], in_folder("two.onnx"), &opt));
    assert_int_equal(files_named(".data", second, sizeof second), 1);
    assert_string_equal(first, second);
    assert_ok(sb_onnx_save(g[1], in_folder("two.onnx"), &opt));
    assert_int_equal(files_named(".data", second, sizeof second), 1);
    assert_string_not_equal(first, second);
    assert_ok(sb_onnx_save(g[1], in_folder("three.onnx"), &opt));
    assert_ok(sb_onnx_save(g[0], in_folder("two.onnx"), &newest));
    assert_int_equal(files_named(".data", other, sizeof other), 1);
    assert_non_null(strstr(other, "three.onnx."));
    assert_int_equal(unlink(other), 0);
    assert_int_equal(files_named(".tmp", other, sizeof other), 0);
    sb_graph_free(g[0]);
    sb_graph_free(g[1]);
}

static void test_external_save(void **state)
{
    (void)state;
    const sb_onnx_save_options opt = {.min_opset = 25, .external_above = 1000};
    sb_graph *g = parse("graph g(x: f32[1,100]) -> (y: f32[1,30]) {\n"
                        "w: f32[100,30] = random(3)\n"
                        "v: f32[30,30] = random(4)\n"
                        "b: f32[30] = random(5)\n"
                        "h = Gemm(x, w, b)\n"
                        "y = MatMul(h, v) }");
    sb_graph *again = NULL;
    struct stat st;
    char data[256];

    assert_ok(sb_onnx_save(g, in_folder("big.onnx"), &opt));
    assert_int_equal(stat(in_folder("big.onnx"), &st), 0);
    assert_true(st.st_size < 2000);
    assert_int_equal(files_named(".data", data, sizeof data), 1);
    assert_int_equal(stat(data, &st), 0);
    assert_true(st.st_size >= 12000 + 3600);
    assert_ok(sb_onnx_load(test_ctx(), in_folder("big.onnx"), &again));
    assert_int_equal(again->external_bytes, st.st_size);
    for (const char *const *name = (const char *const[]){"w", "v", "b", NULL};
         *name; name++) {
        const sb_value *a = sb_graph_value(g, sb_graph_find_value(g, *name));
        const sb_value *b =
            sb_graph_value(again, sb_graph_find_value(again, *name));
        assert_memory_equal(a->constant.data, b->constant.data,
                            sb_tensor_bytes(&a->constant));
        assert_true(sb_tensor_is_aligned(&b->constant));
    }
    sb_graph_free(again);
    sb_graph_free(g);
}

/* A model with one weight of 4 floats in `location`. */
static void external_model(const char *location, const char *offset,
                           const char *length)
{
    const char *const keys[] = {"location", "offset", "length"};
    const char *const values[] = {location, offset, length};
    const int64_t dims[] = {4};
    pb m, g = {.n = 0}, t = {.n = 0};

    pb_int(&t, TENSOR_DIMS, 4);
    pb_int(&t, TENSOR_TYPE, SB_DTYPE_F32);
    pb_text(&t, TENSOR_NAME, "w");
    pb_int(&t, TENSOR_LOCATION, 1);
    for (int i = 0; i < 3; i++) {
        pb prop = {.n = 0};
        if (!values[i])
            continue;
        pb_text(&prop, 1, keys[i]);
        pb_text(&prop, 2, values[i]);
        pb_msg(&t, TENSOR_EXTERNAL, &prop);
    }
    pb_node(&g, GRAPH_NODE, "Add", "x w", "y", NULL);
    pb_value(&g, GRAPH_INPUT, "x", 1, dims);
    pb_value(&g, GRAPH_OUTPUT, "y", 1, dims);
    pb_msg(&g, GRAPH_INITIALIZER, &t);
    pb_model(&m, &g, 17);
    write_file(in_folder("ext.onnx"), m.data, m.n);
}

typedef struct external_case {
    const char *location, *offset, *length;
    sb_status status;
    const char *message;
} external_case;

/* clang-format off */
static const external_case external_cases[] = {
    {"w.bin",           "4",  "16",  SB_OK, ""},
    {"w.bin",           NULL, NULL,  SB_OK, ""},
    {"sub/../w.bin",    "0",  NULL,  SB_OK, ""},
    {"./inside",        "0",  "16",  SB_OK, ""},
    {"w.bin",           "8",  "16",  SB_BAD_MODEL, "tensor 'w': bytes 8 + 16 lie outside of 'w.bin'"},
    {"w.bin",           "0",  "12",  SB_BAD_MODEL, "12 bytes, f32[4] wants 16"},
    {"w.bin",           "99", NULL,  SB_BAD_MODEL, "lie outside"},
    {"w.bin",           "18446744073709551615", "16", SB_BAD_MODEL, "lie outside"},
    {"w.bin",           "99999999999999999999", "16", SB_BAD_MODEL, "not a size"},
    {"w.bin",           "-4", "16",  SB_BAD_MODEL, "not a size"},
    {"ghost.bin",       "0",  "16",  SB_IO, "ghost.bin"},
    {"sub",             "0",  "16",  SB_IO, "not a regular file"},
    {"",                "0",  "16",  SB_BAD_MODEL, "leaves the folder"},
    {"/etc/passwd",     "0",  "16",  SB_BAD_MODEL, "leaves the folder"},
    {"../w.bin",        "0",  "16",  SB_BAD_MODEL, "leaves the folder"},
    {"sub/../../w.bin", "0",  "16",  SB_BAD_MODEL, "leaves the folder"},
    {"outside",         "0",  "16",  SB_BAD_MODEL, "link 'outside' leaves"},
};
/* clang-format on */

static void test_external_load(void **state)
{
    (void)state;
    const float data[5] = {1, 2, 3, 4, 5};

    write_file(in_folder("w.bin"), data, sizeof data);
    assert_int_equal(mkdir(in_folder("sub"), 0777), 0);
    assert_int_equal(symlink("/etc/passwd", in_folder("outside")), 0);
    assert_int_equal(symlink("w.bin", in_folder("inside")), 0);
    for (size_t i = 0; i < SB_COUNT(external_cases); i++) {
        const external_case *c = &external_cases[i];
        sb_graph *g = NULL;

        external_model(c->location, c->offset, c->length);
        sb_status status = sb_onnx_load(test_ctx(), in_folder("ext.onnx"), &g);
        if (c->status != SB_OK) {
            assert_status(status, c->status);
            assert_error_has(c->message);
            continue;
        }
        assert_ok(status);
        const sb_value *w = sb_graph_value(g, sb_graph_find_value(g, "w"));
        float first = c->offset && c->offset[0] == '4' ? 2.0f : 1.0f;
        assert_close(c->location, sb_tensor_get_f64(&w->constant, 0), first, 0);
        sb_graph_free(g);
    }
}

/* ---- mapping ------------------------------------------------------------ */

/* Weights stay in the file, aligned or not, and can be read again. */
static void test_mapped_weights_can_be_read_again(void **state)
{
    (void)state;
    sb_graph *g = parse("graph g(x: f32[1,600]) -> (y: f32[1,600]) {\n"
                        "w: f32[600,600] = random(3)\n"
                        "y = MatMul(x, w) }");
    const sb_tensor *want =
        &sb_graph_value(g, sb_graph_find_value(g, "w"))->constant;

    /* Names of growing length move the weight through all alignments. */
    for (int i = 1; i <= 4; i++) {
        char name[8] = "aaaa";
        name[i] = '\0';
        g->producer_name = name;
        sb_graph *again = save_and_load(g, "map.onnx");
        sb_tensor t = sb_tensor_share(
            &sb_graph_value(again, sb_graph_find_value(again, "w"))->constant);
        assert_true(sb_buf_is_mapped(t.buf));
        assert_memory_equal(t.data, want->data, sb_tensor_bytes(want));
        sb_tensor_release_pages(&t);
        assert_memory_equal(t.data, want->data, sb_tensor_bytes(want));
        sb_tensor_drop(&t);
        sb_graph_free(again);
    }
    sb_graph_free(g);
}

/* What came through a pipe cannot be read again, so it is never given back.
 * The file is small enough for the system's buffer. */
static void test_weights_from_a_pipe_are_kept(void **state)
{
    (void)state;
    sb_graph *g = parse("graph g(x: f32[1,100]) -> (y: f32[1,100]) {\n"
                        "w: f32[100,100] = random(3)\n"
                        "y = MatMul(x, w) }");
    sb_graph *again = NULL;
    static char bytes[1 << 16];
    char path[32];
    int ends[2];

    assert_ok(sb_onnx_save(g, in_folder("pipe.onnx"), NULL));
    FILE *f = fopen(in_folder("pipe.onnx"), "rb");
    assert_non_null(f);
    size_t size = fread(bytes, 1, sizeof bytes, f);
    (void)fclose(f);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], bytes, size), size);
    (void)close(ends[1]);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_ok(sb_onnx_load(test_ctx(), path, &again));
    (void)close(ends[0]);
    const sb_tensor *want =
        &sb_graph_value(g, sb_graph_find_value(g, "w"))->constant;
    const sb_tensor *t =
        &sb_graph_value(again, sb_graph_find_value(again, "w"))->constant;
    sb_tensor_release_pages(t);
    assert_memory_equal(t->data, want->data, sb_tensor_bytes(want));
    sb_graph_free(again);
    sb_graph_free(g);
}

static sb_status save_everything(sb_ctx *ctx)
{
    const sb_onnx_save_options opt = {.min_opset = 25, .external_above = 100};
    sb_graph *g = NULL;
    sb_graph *again = NULL;

    SB_TRY(sb_graph_parse(ctx,
                          "graph main(x: f32[N,30], c: bool[]) -> (y: f32[*]) "
                          "{ w: f32[30,20] = random(1)\n"
                          "h = com.x::Foo(x, _, w) {a=1, l=[1,2]}\n"
                          "y = If(c) {t=graph a() -> (p) { p = Neg(h) }} }",
                          &g));
    sb_status status = sb_onnx_save(g, in_folder("oom.onnx"), &opt);
    if (status == SB_OK)
        status = sb_onnx_load(ctx, in_folder("oom.onnx"), &again);
    sb_graph_free(again);
    sb_graph_free(g);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    test_every_allocation("save and load", save_everything);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_text),
        cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_opset_and_ir_version_fit_the_graph),
        cmocka_unit_test(test_same_file),
        cmocka_unit_test(test_no_half_files),
        cmocka_unit_test(test_data_is_replaced),
        cmocka_unit_test(test_external_save),
        cmocka_unit_test(test_external_load),
        cmocka_unit_test(test_mapped_weights_can_be_read_again),
        cmocka_unit_test(test_weights_from_a_pipe_are_kept),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests_name("onnx save", tests, make_folder,
                                       remove_folder);
}
