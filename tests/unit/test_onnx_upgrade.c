/* Upgrades: an old node goes in, the graph comes out as text.  What must come
 * out was worked out by hand from ONNX's operator change log; that the results
 * compute the same is checked by the conformance suite, whose files are of
 * opset 1 to 17. */
#include "sbtest.h"

#include "graph/text.h"
#include "onnx/upgrade.h"

typedef struct upgrade_case {
    const char *what;
    int64_t opset;
    const char *graph; /* inputs and constants that are there before */
    const char *op;
    const char *in; /* names, `_` for absent */
    int n_out;
    const char *attrs;
    const char *want; /* lines of the body, without indentation */
} upgrade_case;

#define X4 "graph g(x: f32[1,3,4,4]) -> () {}"
#define X2 "graph g(x: f32[2,3]) -> () {}"
#define XQ "graph g(x: f32[*]) -> () {}"

/* clang-format off */
static const upgrade_case cases[] = {
    {"a broadcast as NumPy does it", 6,
     "graph g(x: f32[2,3,4,5], b: f32[5]) -> () {}", "Add", "x b", 1,
     "broadcast=1",
     "y0 = Add(x, b)\n"},
    {"a broadcast along an axis", 6,
     "graph g(x: f32[2,3,4,5], b: f32[3,4]) -> () {}", "Mul", "x b", 1,
     "broadcast=1, axis=1",
     "axes_0: i64[1] = [-1]\n"
     "y0/Unsqueeze_1 = Unsqueeze(b, axes_0) \"y0/Unsqueeze\"\n"
     "y0 = Mul(x, y0/Unsqueeze_1)\n"},
    {"the hint about memory goes", 1, X2, "Relu", "x", 1,
     "consumed_inputs=[1]",
     "y0 = Relu(x)\n"},
    {"Gemm", 6, "graph g(a: f32[2,3], b: f32[3,4], c: f32[4]) -> () {}",
     "Gemm", "a b c", 1, "broadcast=1, alpha=2.0",
     "y0 = Gemm(a, b, c) {alpha=2.0}\n"},
    {"slopes of channels", 6,
     "graph g(x: f32[1,3,4,4], s: f32[3]) -> () {}", "PRelu", "x s", 1, "",
     "axes_0: i64[2] = [-2, -1]\n"
     "y0/Unsqueeze_1 = Unsqueeze(s, axes_0) \"y0/Unsqueeze\"\n"
     "y0 = PRelu(x, y0/Unsqueeze_1)\n"},
    {"softmax over the last axis", 12, X2, "Softmax", "x", 1, "",
     "y0 = Softmax(x) {axis=-1}\n"},
    {"softmax over a channel with one pixel", 9,
     "graph g(x: f32[1,9,1,1]) -> () {}", "Softmax", "x", 1, "axis=1",
     "y0 = Softmax(x) {axis=1}\n"},
    {"softmax over three axes", 11, X4, "LogSoftmax", "x", 1, "",
     "y0/Shape_0 = Shape(x) \"y0/Shape\"\n"
     "y0/Flatten_1 = Flatten(x) {axis=1} \"y0/Flatten\"\n"
     "y0/LogSoftmax_2 = LogSoftmax(y0/Flatten_1) {axis=-1} \"y0/LogSoftmax\"\n"
     "y0 = Reshape(y0/LogSoftmax_2, y0/Shape_0)\n"},
    {"softmax of the last axis of who knows what", 11, XQ, "Hardmax", "x", 1,
     "axis=-1",
     "y0 = Hardmax(x) {axis=-1}\n"},
    {"batch normalization", 8,
     "graph g(x: f32[1,3,4,4], p: f32[3]) -> () {}", "BatchNormalization",
     "x p p p p", 5, "spatial=1, is_test=1, epsilon=0.5",
     "y0 = BatchNormalization(x, p, p, p, p) {epsilon=0.5}\n"},
    {"clip", 6, X2, "Clip", "x", 1, "max=6.0",
     "y0/max_0: f32[] = 6\n"
     "y0 = Clip(x, _, y0/max_0)\n"},
    {"clip of float64", 6, "graph g(x: f64[2]) -> () {}", "Clip", "x", 1,
     "min=0.0",
     "y0/min_0: f64[] = 0\n"
     "y0 = Clip(x, y0/min_0)\n"},
    {"dropout", 6, X2, "Dropout", "x", 1, "is_test=1, ratio=0.25",
     "y0/ratio_0: f32[] = 0.25\n"
     "y0 = Dropout(x, y0/ratio_0)\n"},
    {"a type by name", 1, X2, "Cast", "x", 1, "to=\"INT64\"",
     "y0 = Cast(x) {to=7}\n"},
    {"concat without axis", 1, X2, "Concat", "x x", 1, "",
     "y0 = Concat(x, x) {axis=1}\n"},
    {"reshape", 1, X2, "Reshape", "x", 1, "shape=[3,2]",
     "y0/shape_0: i64[2] = [3, 2]\n"
     "y0 = Reshape(x, y0/shape_0)\n"},
    {"pad of opset 1", 1, X2, "Pad", "x", 1, "paddings=[0,1,0,1], value=2.0",
     "y0/pads_0: i64[4] = [0, 1, 0, 1]\n"
     "y0/value_1: f32[] = 2\n"
     "y0 = Pad(x, y0/pads_0, y0/value_1)\n"},
    {"pad of opset 10", 10, X2, "Pad", "x", 1,
     "pads=[0,1,0,1], mode=\"reflect\"",
     "y0/pads_0: i64[4] = [0, 1, 0, 1]\n"
     "y0 = Pad(x, y0/pads_0) {mode=\"reflect\"}\n"},
    {"slice", 9, X2, "Slice", "x", 1, "starts=[0], ends=[2], axes=[1]",
     "y0/starts_0: i64[1] = [0]\n"
     "y0/ends_1: i64[1] = [2]\n"
     "y0/axes_2: i64[1] = [1]\n"
     "y0 = Slice(x, y0/starts_0, y0/ends_1, y0/axes_2)\n"},
    {"split with sizes", 11, X2, "Split", "x", 2, "split=[1,2], axis=1",
     "y0/split_0: i64[2] = [1, 2]\n"
     "y0, y1 = Split(x, y0/split_0) {axis=1}\n"},
    {"split in equal parts", 13, X2, "Split", "x", 3, "axis=1",
     "y0, y1, y2 = Split(x) {axis=1, num_outputs=3}\n"},
    {"squeeze", 11, X4, "Squeeze", "x", 1, "axes=[0]",
     "y0/axes_0: i64[1] = [0]\n"
     "y0 = Squeeze(x, y0/axes_0)\n"},
    {"a mean, keeping its attribute before 18", 13, X4, "ReduceMean", "x", 1,
     "axes=[2,3], keepdims=0",
     "y0/axes_0: i64[2] = [2, 3]\n"
     "y0 = ReduceMean(x, y0/axes_0) {keepdims=0}\n"},
    {"a mean of everything", 13, X4, "ReduceMean", "x", 1, "keepdims=0",
     "y0 = ReduceMean(x) {keepdims=0}\n"},
    {"top k", 9, X2, "TopK", "x", 2, "k=2, axis=1",
     "y0/k_0: i64[1] = [2]\n"
     "y0, y1 = TopK(x, y0/k_0) {axis=1}\n"},
    {"scatter", 9, "graph g(x: f32[2], i: i64[1], u: f32[1]) -> () {}",
     "Scatter", "x i u", 1, "axis=0",
     "y0 = ScatterElements(x, i, u) {axis=0}\n"},
    {"upsample of opset 1", 1, X4, "Upsample", "x", 1,
     "width_scale=2.0, height_scale=3.0, mode=\"bilinear\"",
     "scales_0: f32[4] = [1, 1, 3, 2]\n"
     "y0 = Resize(x, _, scales_0) {mode=\"linear\", nearest_mode=\"floor\", "
     "coordinate_transformation_mode=\"asymmetric\"}\n"},
    {"upsample of opset 9", 9,
     "graph g(x: f32[1,3,4,4]) -> () { s: f32[4] = [1, 1, 2, 2] }",
     "Upsample", "x s", 1, "mode=\"nearest\"",
     "s: f32[4] = [1, 1, 2, 2]\n"
     "y0 = Resize(x, _, s) {mode=\"nearest\", nearest_mode=\"floor\", "
     "coordinate_transformation_mode=\"asymmetric\"}\n"},
    {"resize with inputs without elements", 11,
     "graph g(x: f32[1,3,4,4], z: i64[4]) -> () { e: f32[0] = [] }", "Resize",
     "x e e z", 1, "",
     "e: f32[0] = []\n"
     "y0 = Resize(x, _, _, z)\n"},
    {"resize with a mapping that went", 11,
     "graph g(x: f32[1,3,4,4], s: f32[4]) -> () {}", "Resize", "x _ s", 1,
     "coordinate_transformation_mode=\"tf_half_pixel_for_nn\", "
     "nearest_mode=\"floor\"",
     "y0 = Resize(x, _, s) {coordinate_transformation_mode=\"half_pixel\", "
     "nearest_mode=\"round_prefer_ceil\"}\n"},
    {"regions of interest", 10,
     "graph g(x: f32[1,3,4,4], r: f32[1,4], b: i64[1]) -> () {}", "RoiAlign",
     "x r b", 1, "",
     "y0 = RoiAlign(x, r, b) "
     "{coordinate_transformation_mode=\"output_half_pixel\"}\n"},
    {"grid sample", 16,
     "graph g(x: f32[1,3,4,4], g: f32[1,2,2,2]) -> () {}", "GridSample",
     "x g", 1, "mode=\"bilinear\"",
     "y0 = GridSample(x, g) {mode=\"linear\"}\n"},
    {"the axis of a Fourier transform", 17, "graph g(x: f32[1,8,1]) -> () {}",
     "DFT", "x", 1, "",
     "axis_0: i64[] = 1\n"
     "y0 = DFT(x, _, axis_0)\n"},
    {"groups", 18, "graph g(x: f32[1,4,2], s: f32[2]) -> () {}",
     "GroupNormalization", "x s s", 1, "num_groups=2",
     "shape_0: i64[2] = [1, 2]\n"
     "flat_1: i64[1] = [-1]\n"
     "axes_2: i64[1] = [-1]\n"
     "axes_6: i64[1] = [-1]\n"
     "y0/Unsqueeze_3 = Unsqueeze(s, axes_2) \"y0/Unsqueeze\"\n"
     "y0/Expand_4 = Expand(y0/Unsqueeze_3, shape_0) \"y0/Expand\"\n"
     "y0/Reshape_5 = Reshape(y0/Expand_4, flat_1) \"y0/Reshape\"\n"
     "y0/Unsqueeze_7 = Unsqueeze(s, axes_6) \"y0/Unsqueeze\"\n"
     "y0/Expand_8 = Expand(y0/Unsqueeze_7, shape_0) \"y0/Expand\"\n"
     "y0/Reshape_9 = Reshape(y0/Expand_8, flat_1) \"y0/Reshape\"\n"
     "y0 = GroupNormalization(x, y0/Reshape_5, y0/Reshape_9) {num_groups=2}\n"},
    {"tile of opset 1", 1,
     "graph g(x: f32[2,3]) -> () { t: f32[1] = [4] a: f32[1] = [1] }", "Tile",
     "x t a", 1, "",
     "t: f32[1] = [4]\n"
     "a: f32[1] = [1]\n"
     "y0/repeats_0: i64[2] = [1, 4]\n"
     "y0 = Tile(x, y0/repeats_0)\n"},
    {"a power that was a float", 1, X4, "LpPool", "x", 1, "p=3.0",
     "y0 = LpPool(x) {p=3}\n"},
    {"constants of SELU", 1, X2, "Selu", "x", 1, "",
     "y0 = Selu(x) {alpha=1.6732, gamma=1.0507}\n"},
    {"a misspelt direction", 1, "graph g(x: f32[1,1,1]) -> () {}", "GRU",
     "x x x", 1, "direction=\"foward\", output_sequence=1",
     "y0 = GRU(x, x, x) {direction=\"forward\"}\n"},
    {"what is new stays", 18, X4, "ReduceMean", "x", 1, "keepdims=0",
     "y0 = ReduceMean(x) {keepdims=0}\n"},
};
/* clang-format on */

static void add_inputs(sb_draft *d, const char *names)
{
    while (*names) {
        char name[32] = "";
        size_t n = strcspn(names, " ");
        memcpy(name, names, n);
        assert_ok(
            sb_grow(d->ctx, &d->in, &d->cap_in, d->n_in + 1, sizeof *d->in));
        sb_value_id id = sb_graph_find_value(d->graph, name);
        assert_true(id != SB_NONE || name[0] == '_');
        d->in[d->n_in++] = id;
        names += n;
        names += strspn(names, " ");
    }
}

static void add_outputs(sb_draft *d, int n)
{
    assert_ok(sb_grow(d->ctx, &d->out, &d->cap_out, (size_t)n, sizeof *d->out));
    for (int i = 0; i < n; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "y%d", i);
        assert_ok(sb_graph_add_value(d->graph, name, &d->out[d->n_out++]));
    }
}

/* Body of the printed graph, without the indentation. */
static void body_of(const char *text, char *out, size_t size)
{
    const char *line = strchr(text, '\n');
    size_t n = 0;

    while (line && strncmp(line, "\n    ", 5) == 0) {
        line += 5;
        size_t len = strcspn(line, "\n");
        assert_true(n + len + 2 < size);
        memcpy(out + n, line, len);
        out[n + len] = '\n';
        n += len + 1;
        line += len;
    }
    out[n] = '\0';
}

static sb_draft make_draft(const upgrade_case *c)
{
    sb_ctx *ctx = test_ctx();
    sb_draft d = {.ctx = ctx, .op = c->op, .domain = "", .name = ""};
    sb_attr *attrs = NULL;

    d.version = c->opset;
    assert_ok(sb_graph_parse(ctx, c->graph, &d.graph));
    add_inputs(&d, c->in);
    add_outputs(&d, c->n_out);
    assert_ok(sb_graph_parse_attrs(d.graph, c->attrs, &attrs, &d.n_attrs));
    assert_ok(sb_grow(ctx, &d.attrs, &d.cap_attrs, d.n_attrs, sizeof *attrs));
    if (d.n_attrs)
        memcpy(d.attrs, attrs, d.n_attrs * sizeof *attrs);
    return d;
}

static void run_case(const upgrade_case *c)
{
    sb_ctx *ctx = test_ctx();
    sb_draft d = make_draft(c);
    static char body[4096];
    sb_str text;

    assert_ok(sb_upgrade(&d));
    assert_ok(sb_draft_add(&d, NULL));
    sb_str_init(&text, ctx);
    assert_ok(sb_graph_print(d.graph, &text));
    body_of(sb_str_text(&text), body, sizeof body);
    if (strcmp(body, c->want) != 0)
        print_error("%s: got\n%swant\n%s", c->what, body, c->want);
    assert_string_equal(body, c->want);
    sb_str_free(&text);
    sb_graph_free(d.graph);
    sb_draft_free(&d);
}

static void test_old_nodes_become_new_ones(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        run_case(&cases[i]);
}

/* ---- what cannot be upgraded --------------------------------------------- */

/* Two Gathers make a rank of 34, beyond what there is. */
#define TOO_DEEP                                                  \
    "graph g(x: f32[1,1,1,1,1,1,1,1,1,1,1,1], s: f32[4], "        \
    "i: i64[1,1,1,1,1,1,1,1,1,1,1,1]) -> (h) { one: f32[1] = [1]" \
    "\nq = Gather(x, i)\nh = Gather(q, i) }"

/* `want` is a part of the message. */
static const upgrade_case refused[] = {
    {"slopes of a rank too high", 6, TOO_DEEP, "PRelu", "h s", 1, "",
     "unknown rank"},
    {"an axis of a rank too high", 6, TOO_DEEP, "Add", "h s", 1,
     "broadcast=1, axis=0", "unknown rank"},
    {"tiles of a rank too high", 5, TOO_DEEP, "Tile", "h one one", 1, "",
     "unknown rank"},
    {"groups of nothing", 18, X2, "GroupNormalization", "_ x x", 1,
     "num_groups=2", "2 groups and 3 inputs"},
};

static void test_what_cannot_be_upgraded_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(refused); i++) {
        sb_draft d = make_draft(&refused[i]);

        assert_int_not_equal(sb_upgrade(&d), SB_OK);
        assert_error_has(refused[i].want);
        sb_graph_free(d.graph);
        sb_draft_free(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_nodes_become_new_ones),
        cmocka_unit_test(test_what_cannot_be_upgraded_is_refused),
    };

    return cmocka_run_group_tests_name("onnx upgrade", tests, NULL, NULL);
}
