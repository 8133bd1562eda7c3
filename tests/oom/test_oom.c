/* Every allocation fails once: each scenario is run with the first, second, ...
 * request refused, until it gets through.  Each time it must say SB_NO_MEMORY
 * (or succeed, where the memory was not vital), and leak nothing. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <stdlib.h>
#include <unistd.h>

static const char cnn_text[] =
    "graph cnn(x: f32[N,3,8,8]) -> (y) {\n"
    "    w: f32[4,3,3,3] = random(1)\n"
    "    b: f32[4] = [0, 1, -2.5, 4]\n"
    "    g: f32[4] = [1, 2, 3, 4]\n"
    "    v: f32[4] = [1, 1, 2, 2]\n"
    "    fc: f32[16,5] = random(2)\n"
    "    c = Conv(x, w, b) {pads=[1,1,1,1]} \"conv\" @ layer1.conv\n"
    "    n = BatchNormalization(c, g, b, b, v)\n"
    "    r = Relu(n)\n"
    "    p = MaxPool(r) {kernel_shape=[4,4], strides=[4,4]}\n"
    "    i = Identity(p)\n"
    "    f = Flatten(i)\n"
    "    m = MatMul(f, fc)\n"
    "    s = Sigmoid(m)\n"
    "    t = Mul(m, s)\n"
    "    y = Softmax(t)\n"
    "}\n";

static const char shapes_text[] = "graph shapes(x: f32[N,2,3]) -> (y, idx) {\n"
                                  "    zero: i64[] = 0\n"
                                  "    axes: i64[1] = [0]\n"
                                  "    rest: i64[1] = [-1]\n"
                                  "    s = Shape(x)\n"
                                  "    n = Gather(s, zero)\n"
                                  "    u = Unsqueeze(n, axes)\n"
                                  "    t = Concat(u, rest) {axis=0}\n"
                                  "    r = Reshape(x, t)\n"
                                  "    q = Transpose(r) {perm=[1,0]}\n"
                                  "    y = Transpose(q) {perm=[1,0]}\n"
                                  "    idx = NonZero(y)\n"
                                  "}\n";

static const char nn_text[] =
    "graph nn(x: f32[2,4,6]) -> (y, z, a) {\n"
    "    w: f32[2,40,6] = random(1)\n"
    "    r: f32[2,40,10] = random(2)\n"
    "    h = LSTM(x, w, r) {hidden_size=10, direction=\"bidirectional\"}\n"
    "    s: i64[3] = [4, 4, 10]\n"
    "    q = Reshape(h, s)\n"
    "    a = Attention(q, q, q) {q_num_heads=2, kv_num_heads=2}\n"
    "    g: f32[10] = random(3)\n"
    "    n = LayerNormalization(q, g)\n"
    "    v: f32[10,30] = random(4)\n"
    "    y = MatMul(n, v)\n"
    "    i: i64[4] = [1, 10, 4, 4]\n"
    "    p = Reshape(q, i)\n"
    "    u: f32[10,3,2,2] = random(5)\n"
    "    t = ConvTranspose(p, u) {strides=[2,2]}\n"
    "    z = MaxPool(t) {kernel_shape=[2,2]}\n"
    "}\n";

static const char if_text[] =
    "graph choose(c: bool[], x: f32[2,2]) -> (y) {\n"
    "    y = If(c) {then_branch=graph yes() -> (a: f32[2,2]) {\n"
    "        a = Neg(x)\n"
    "    }, else_branch=graph no() -> (b: f32[2,2]) {\n"
    "        one: f32[] = 1\n"
    "        b = Add(x, one)\n"
    "    }}\n"
    "}\n";

static char dir[] = "/tmp/sbtest-oom-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* Random inputs, unknown dimensions 2, one run. */
static sb_status run_model(sb_ctx *ctx, const sb_model *model)
{
    size_t n = sb_model_input_count(model);
    sb_tensor *in[4] = {0};
    const sb_tensor *out[4] = {0};
    sb_session *session = NULL;
    sb_status status = SB_OK;

    for (size_t i = 0; i < n && status == SB_OK; i++) {
        const sb_value_info *v = sb_model_input(model, i);
        int64_t dims[8];

        for (int d = 0; d < v->rank; d++)
            dims[d] = v->dims[d] < 0 ? 2 : v->dims[d];
        status = sb_tensor_create(ctx, v->dtype, v->rank, dims, &in[i]);
        if (status == SB_OK)
            sb_tensor_fill_random(in[i], i + 1);
    }
    if (status == SB_OK)
        status = sb_session_create(model, NULL, &session);
    for (int k = 0; k < 2 && status == SB_OK; k++)
        status = test_session_run(session, (const sb_tensor *const *)in, out);
    sb_session_free(session);
    for (size_t i = 0; i < n; i++)
        sb_tensor_free(in[i]);
    return status;
}

static sb_status print_model(sb_ctx *ctx, sb_model *model)
{
    (void)ctx;
    static const sb_graph_format formats[] = {
        SB_GRAPH_FORMAT_TEXT, SB_GRAPH_FORMAT_DOT, SB_GRAPH_FORMAT_MERMAID};
    const sb_model_info *info = NULL;
    const sb_node_info *const *nodes = NULL;
    const sb_value_info *const *values = NULL;
    size_t n = 0;

    SB_TRY(sb_model_info_get(model, &info));
    SB_TRY(sb_model_nodes(model, &nodes, &n));
    SB_TRY(sb_model_values(model, &values, &n));
    for (size_t i = 0; i < SB_COUNT(formats); i++) {
        char *text = NULL;

        SB_TRY(sb_model_print(model, formats[i], &text));
        sb_memory_free(text);
    }
    return SB_OK;
}

/* What to do with a model after it was made. */
typedef sb_status (*use_fn)(sb_ctx *ctx, sb_model *model);

static sb_status with_text(sb_ctx *ctx, const char *text, use_fn use)
{
    sb_model *model = NULL;
    sb_status status = sb_model_parse(ctx, text, &model);

    if (status == SB_OK)
        status = use(ctx, model);
    sb_model_free(model);
    return status;
}

static sb_status use_run(sb_ctx *ctx, sb_model *model)
{
    return run_model(ctx, model);
}

static sb_status use_simplify(sb_ctx *ctx, sb_model *model)
{
    (void)ctx;
    return sb_model_simplify(model, NULL, NULL, NULL);
}

static sb_status use_save(sb_ctx *ctx, sb_model *model)
{
    (void)ctx;
    return sb_model_save(model, in_dir("model.onnx"));
}

static sb_status print_cnn(sb_ctx *ctx)
{
    return with_text(ctx, cnn_text, print_model);
}

static sb_status run_cnn(sb_ctx *ctx)
{
    return with_text(ctx, cnn_text, use_run);
}

static sb_status run_shapes(sb_ctx *ctx)
{
    return with_text(ctx, shapes_text, use_run);
}

static sb_status run_nn(sb_ctx *ctx)
{
    return with_text(ctx, nn_text, use_run);
}

/* What sessions put together: batch norm, sum and activation in a Winograd
 * convolution, a padded 1x1 one, attention, a linear layer, a chain, branches.
 */
static const char fused_text[] =
    "graph fused(x: f32[1,32,28,28], q: f32[1,2,9,8]) -> (y: f32[*], "
    "o: f32[*], e: f32[*], z: f32[*]) {\n"
    "  w: f32[32,32,3,3] = random(1)\n"
    "  a: f32[32] = random(2)\n"
    "  v: f32[32] = zeros()\n"
    "  w1: f32[16,32,1,1] = random(3)\n"
    "  w2: f32[8,8] = random(4)\n"
    "  b2: f32[8] = random(5)\n"
    "  c = Conv(x, w) {pads=[1,1,1,1]}\n"
    "  n = BatchNormalization(c, a, a, a, v)\n"
    "  s = Add(n, x)\n"
    "  r = Relu(s)\n"
    "  y = Conv(r, w1) {pads=[1,1,1,1]}\n"
    "  k = Transpose(q) {perm=[0,1,3,2]}\n"
    "  m = MatMul(q, k)\n"
    "  p = Softmax(m) {axis=-1}\n"
    "  h = MatMul(p, q)\n"
    "  l = MatMul(h, w2)\n"
    "  d = Add(l, b2)\n"
    "  o = Gelu(d)\n"
    "  t = Mul(q, q)\n"
    "  f = LeakyRelu(t)\n"
    "  e = Sub(f, q)\n"
    "  w3: f32[32,1,3,3] = random(6)\n"
    "  w4: f32[32,1,1,1] = random(7)\n"
    "  b3 = Conv(x, w3, a) {pads=[1,1,1,1], group=32}\n"
    "  b4 = Conv(x, w4) {group=32}\n"
    "  b5 = BatchNormalization(x, a, a, a, v)\n"
    "  b6 = Add(b3, b4)\n"
    "  z = Add(b6, b5)\n"
    "}\n";

static sb_status run_fused(sb_ctx *ctx)
{
    return with_text(ctx, fused_text, use_run);
}

/* Two runs that are measured, and the page about them. */
static sb_status use_profile(sb_ctx *ctx, sb_model *model)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    const int64_t dims[] = {1, 3, 8, 8};
    sb_session *session = NULL;
    sb_tensor *x = NULL;
    const sb_tensor *out;
    sb_status s = sb_tensor_create(ctx, SB_DTYPE_F32, 4, dims, &x);

    opt.profile = 1;
    if (s == SB_OK)
        s = sb_session_create(model, &opt, &session);
    for (int i = 0; i < 2 && s == SB_OK; i++)
        s = test_session_run(session, (const sb_tensor *const[]){x}, &out);
    if (s == SB_OK)
        s = sb_session_profile_save(session, "cnn", "two runs", 100,
                                    in_dir("profile.html"));
    sb_session_free(session);
    sb_tensor_free(x);
    return s;
}

/* To memory and back, cloned, looked at and changed. */
static sb_status use_memory(sb_ctx *ctx, sb_model *model)
{
    sb_model *back = NULL, *clone = NULL;
    sb_tensor *w = NULL;
    void *bytes = NULL;
    size_t size = 0;
    sb_status s = sb_model_save_memory(model, &bytes, &size);

    if (s == SB_OK)
        s = sb_model_load_memory(ctx, bytes, size, "/tmp", &back);
    if (s == SB_OK)
        s = sb_model_clone(ctx, back, &clone);
    if (s == SB_OK)
        s = sb_model_set_metadata(clone, "key", "value");
    if (s == SB_OK)
        s = sb_tensor_copy(ctx, sb_model_weight(clone, "w"), &w);
    if (s == SB_OK)
        s = sb_model_set_weight(clone, "w", w);
    sb_tensor_free(w);
    sb_memory_free(bytes);
    sb_model_free(clone);
    sb_model_free(back);
    return s;
}

/* Outputs of the caller's, by place and by name. */
static sb_status use_outputs(sb_ctx *ctx, sb_model *model)
{
    static const char *const names[] = {"x"}, *const out_names[] = {"y"};
    const int64_t dims[] = {1, 3, 8, 8};
    float numbers[3 * 8 * 8] = {0};
    sb_session *session = NULL;
    sb_tensor *x = NULL, *made = NULL;
    const sb_tensor *y = NULL;
    sb_status s =
        sb_tensor_wrap(ctx, SB_DTYPE_F32, 4, dims, numbers, NULL, NULL, &x);

    if (s == SB_OK)
        s = sb_session_create(model, NULL, &session);
    if (s == SB_OK)
        s = sb_session_run_into(session, (const sb_tensor *const *)&x, 1, &made,
                                1);
    if (s == SB_OK)
        s = sb_session_run_named(session, names, (const sb_tensor *const *)&x,
                                 1, out_names, &y, 1);
    sb_tensor_free(made);
    sb_tensor_free(x);
    sb_session_free(session);
    return s;
}

static sb_status memory_cnn(sb_ctx *ctx)
{
    return with_text(ctx, cnn_text, use_memory);
}

static sb_status outputs_cnn(sb_ctx *ctx)
{
    return with_text(ctx, cnn_text, use_outputs);
}

static sb_status profile_cnn(sb_ctx *ctx)
{
    return with_text(ctx, cnn_text, use_profile);
}

static sb_status run_if(sb_ctx *ctx)
{
    return with_text(ctx, if_text, use_run);
}

static sb_status simplify_cnn(sb_ctx *ctx)
{
    return with_text(ctx, cnn_text, use_simplify);
}

static sb_status simplify_shapes(sb_ctx *ctx)
{
    return with_text(ctx, shapes_text, use_simplify);
}

static sb_status simplify_if(sb_ctx *ctx)
{
    return with_text(ctx, if_text, use_simplify);
}

static sb_status save_cnn(sb_ctx *ctx)
{
    return with_text(ctx, cnn_text, use_save);
}

static sb_status save_if(sb_ctx *ctx)
{
    return with_text(ctx, if_text, use_save);
}

/* Reads the file that the scenario before wrote. */
static sb_status load_model(sb_ctx *ctx)
{
    sb_model *model = NULL;
    sb_status status = sb_model_load(ctx, in_dir("model.onnx"), &model);

    sb_model_free(model);
    return status;
}

static sb_status build_model(sb_ctx *ctx)
{
    const int64_t dims[] = {-1, 4};
    sb_model *m = NULL;
    sb_tensor *t = NULL;
    sb_status s = sb_model_create(ctx, "built", &m);

    if (s == SB_OK)
        s = sb_model_add_input(m, "x", SB_DTYPE_F32, 2, dims);
    if (s == SB_OK)
        s = sb_tensor_create(ctx, SB_DTYPE_F32, 1, dims + 1, &t);
    if (s == SB_OK)
        s = sb_model_add_constant(m, "b", t);
    if (s == SB_OK)
        s = sb_model_add_node(m, "Add", (const char *[]){"x", "b"}, 2,
                              (const char *[]){"a"}, 1, NULL);
    if (s == SB_OK)
        s = sb_model_add_node(m, "LeakyRelu", (const char *[]){"a"}, 1,
                              (const char *[]){"y"}, 1, "alpha=0.5");
    if (s == SB_OK)
        s = sb_model_add_output(m, "y");
    if (s == SB_OK)
        s = sb_model_finish(m);
    sb_tensor_free(t);
    sb_model_free(m);
    return s;
}

static sb_status arrays(sb_ctx *ctx)
{
    const int64_t dims[] = {3, 5};
    const char *const names[] = {"a", "b"};
    sb_tensor *t = NULL, *back = NULL, *member = NULL;
    sb_status s = sb_tensor_create(ctx, SB_DTYPE_F32, 2, dims, &t);

    if (s == SB_OK)
        s = sb_tensor_save(ctx, in_dir("a.npy"), t);
    if (s == SB_OK)
        s = sb_tensor_load(ctx, in_dir("a.npy"), &back);
    if (s == SB_OK)
        s = sb_tensors_save_npz(ctx, in_dir("a.npz"), names,
                                (const sb_tensor *const[]){t, back}, 2);
    if (s == SB_OK)
        s = sb_tensor_load(ctx, in_dir("a.npz:b"), &member);
    sb_tensor_free(t);
    sb_tensor_free(back);
    sb_tensor_free(member);
    return s;
}

static sb_status write_text(sb_ctx *ctx, const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    if (!f)
        return sb_fail(ctx, SB_IO, "%s", path);
    bool bad = fputs(text, f) < 0;
    if (fclose(f) != 0 || bad)
        return sb_fail(ctx, SB_IO, "%s", path);
    return SB_OK;
}

static sb_status configs(sb_ctx *ctx)
{
    char *text = NULL, *summary = NULL;
    sb_key_list *keys = NULL;
    sb_status s = sb_config_default(ctx, &text);

    if (s == SB_OK)
        s = write_text(ctx, in_dir("q.yaml"), text);
    if (s == SB_OK)
        s = sb_config_check(ctx, in_dir("q.yaml"), &summary);
    if (s == SB_OK)
        s = sb_config_keys(ctx, "A", &keys);
    sb_key_list_free(keys);
    keys = NULL;
    if (s == SB_OK) {
        s = sb_config_keys(ctx, "BITS", &keys);
        s = s == SB_BAD_ARG ? SB_OK : s;
    }
    sb_memory_free(text);
    sb_memory_free(summary);
    return s;
}

/* Conv and MaxPool to be fused, an Add of a tensor with two readers, a product
 * with a float bias that becomes Gemm, a float weight. */
static const char qdq_text[] =
    "graph qdq(x: f32[1,4,8,8]) -> (y, m) {\n"
    "  s: f32[] = 0.1\n"
    "  z: u8[] = 0\n"
    "  zi: i8[] = 3\n"
    "  ws: f32[4] = [0.01, 0.02, 0.01, 0.03]\n"
    "  wz: i8[4] = zeros()\n"
    "  w: i8[4,4,3,3] = random(1)\n"
    "  wf: f32[4,4,1,1] = random(2)\n"
    "  b: f32[4] = random(3)\n"
    "  mw: i8[8,8] = random(4)\n"
    "  mb: f32[8] = random(5)\n"
    "  xq = QuantizeLinear(x, s, z)\n"
    "  xd = DequantizeLinear(xq, s, z)\n"
    "  wd = DequantizeLinear(w, ws, wz) {axis=0}\n"
    "  c = Conv(xd, wd, b) {pads=[1,1,1,1]}\n"
    "  r = Relu(c)\n"
    "  rq = QuantizeLinear(r, s, z)\n"
    "  rd = DequantizeLinear(rq, s, z)\n"
    "  p = MaxPool(rd) {kernel_shape=[3,3], pads=[1,1,1,1]}\n"
    "  pq = QuantizeLinear(p, s, z)\n"
    "  pd = DequantizeLinear(pq, s, z)\n"
    "  c2 = Conv(pd, wf, b)\n"
    "  c2q = QuantizeLinear(c2, s, zi)\n"
    "  c2d = DequantizeLinear(c2q, s, zi)\n"
    "  a = Add(c2d, rd)\n"
    "  aq = QuantizeLinear(a, s, z)\n"
    "  y = DequantizeLinear(aq, s, z)\n"
    "  mwd = DequantizeLinear(mw, s, zi)\n"
    "  mm = MatMul(rd, mwd)\n"
    "  ma = Add(mm, mb)\n"
    "  maq = QuantizeLinear(ma, s, z)\n"
    "  m = DequantizeLinear(maq, s, z)\n"
    "}\n";

static sb_status lint_qdq(sb_ctx *ctx)
{
    sb_model *m = NULL;
    const sb_lint *lint = NULL;
    sb_status s = sb_model_parse(ctx, qdq_text, &m);

    if (s == SB_OK)
        s = sb_model_lint(m, "onnxruntime-x86", &lint);
    if (s == SB_OK)
        s = sb_model_lint(m, "tensorrt", &lint);
    sb_model_free(m);
    return s;
}

static sb_status run_integer(sb_ctx *ctx)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    const int64_t dims[] = {1, 4, 8, 8};
    const sb_tensor *out[2];
    sb_session *session = NULL;
    sb_tensor *x = NULL;
    sb_model *m = NULL;
    sb_status s = sb_model_parse(ctx, qdq_text, &m);

    opt.integer = SB_INTEGER_MODE_ON;
    if (s == SB_OK)
        s = sb_tensor_create(ctx, SB_DTYPE_F32, 4, dims, &x);
    if (s == SB_OK)
        s = sb_session_create(m, &opt, &session);
    if (s == SB_OK)
        s = test_session_run(session, (const sb_tensor *const *)&x, out);
    sb_session_free(session);
    sb_tensor_free(x);
    sb_model_free(m);
    return s;
}

static const struct {
    const char *what;
    sb_status (*scenario)(sb_ctx *ctx);
} scenarios[] = {
    {"build", build_model},
    {"a model in memory", memory_cnn},
    {"outputs of the caller", outputs_cnn},
    {"print a convolutional network", print_cnn},
    {"run a convolutional network", run_cnn},
    {"run shapes that depend on data", run_shapes},
    {"run recurrent, attention and transposed layers", run_nn},
    {"run fused layers", run_fused},
    {"profile a convolutional network", profile_cnn},
    {"run If", run_if},
    {"simplify a convolutional network", simplify_cnn},
    {"simplify shape arithmetic", simplify_shapes},
    {"simplify If", simplify_if},
    {"save a convolutional network", save_cnn},
    {"load it", load_model},
    {"save If", save_if},
    {"load it", load_model},
    {"npy and npz", arrays},
    {"configs", configs},
    {"lint Q/DQ", lint_qdq},
    {"run Q/DQ with integers", run_integer},
};

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(scenarios); i++)
        test_every_allocation(scenarios[i].what, scenarios[i].scenario);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

/* A failed write leaves nothing behind: only what was completed is there. */
static int remove_dir(void **state)
{
    static const char *const files[] = {"model.onnx", "a.npy", "a.npz",
                                        "profile.html", "q.yaml"};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(files); i++)
        (void)unlink(in_dir(files[i]));
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failed_allocation_is_reported)};

    return cmocka_run_group_tests_name("oom", tests, make_dir, remove_dir);
}
