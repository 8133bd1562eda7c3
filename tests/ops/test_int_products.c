/* Integer matrix products and convolutions against naive loops, on random
 * shapes with a fixed seed: MatMulInteger, QLinearMatMul, ConvInteger,
 * QLinearConv, and QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul of
 * com.microsoft. */
#include "sbtest.h"

#include <math.h>

#include "ops/int8/int8_tile.h"

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})
#define VALUES(...) ((const double[]){__VA_ARGS__})

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int pick(uint64_t *state, int lo, int hi)
{
    return lo + (int)(next_random(state) % (uint64_t)(hi - lo + 1));
}

/* A byte tensor over its whole range. */
static sb_tensor *random_bytes(sb_dtype dtype, const char *shape,
                               uint64_t *state)
{
    sb_tensor *t = test_tensor(dtype, shape, NULL);
    uint8_t *data = t->data;

    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        data[i] = (uint8_t)next_random(state);
    return t;
}

static int64_t at(const sb_tensor *t, int64_t i)
{
    return sb_tensor_get_i64(t, i);
}

/* Weights as a constant of the graph: " = [1, 2, ...]". */
static const char *weights_text(const sb_tensor *w)
{
    static char text[1 << 18];
    size_t n = 0;

    n += (size_t)snprintf(text, sizeof text, " = [");
    for (int64_t i = 0; i < sb_tensor_count(w); i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i ? ", " : "",
                              (int)at(w, i));
    (void)snprintf(text + n, sizeof text - n, "]");
    return text;
}

/* Runs on 1 to 4 threads, which get different items and so keep different
 * tables from one item to the next: the same bytes each time. */
static sb_tensor *run_on_threads(const char *text,
                                 const sb_tensor *const *inputs)
{
    const int before = sb_ctx_threads(test_ctx());
    sb_tensor *first = NULL;

    for (int threads = 1; threads <= 4; threads++) {
        sb_ctx_set_threads(test_ctx(), threads);
        sb_tensor *y = test_run1(text, inputs);

        first = first ? first : y;
        assert_memory_equal(y->data, first->data, sb_tensor_bytes(y));
    }
    sb_ctx_set_threads(test_ctx(), before);
    return first;
}

/* Every kernel of this processor, with quads in a row and at offsets; the
 * largest products are there, whose sums would saturate in 16 bits. */
static void test_tiles(void **state)
{
    enum { N = 9, COLS = SB_INT_TILE_COLS };
    static const int64_t offset[N] = {0, 1, 2, 70, 71, 72, 140, 141, 500};
    uint8_t w[N * 4 * 4], x[(500 + COLS) * 4 + N * COLS * 4];
    const int32_t init[] = {5, -7, INT32_MAX, 0};
    uint64_t seed = 4;
    int tried = 0;

    (void)state;
    for (size_t i = 0; i < sizeof w; i++)
        w[i] = i < 32 ? 0x80 : (uint8_t)next_random(&seed);
    for (size_t i = 0; i < sizeof x; i++)
        x[i] = i < 600 ? 0xFF : (uint8_t)next_random(&seed);
    for (int c = 0; c < 40 * SB_INT_TILE_KINDS; c++) {
        int rows = c % 2 ? 1 : SB_INT_TILE_ROWS;
        const int64_t *at = c / 2 % 2 ? offset : NULL;
        sb_int8_tile_fn tile = sb_int8_tile_at(rows, c / 4 % SB_INT_TILE_KINDS);
        int32_t acc[SB_INT_TILE_ROWS * COLS];

        if (!tile)
            continue;
        tried++;
        int cols = pick(&seed, 1, COLS);
        tile(w, x, at, N, init, cols, acc);
        for (int i = 0; i < rows * COLS; i++) {
            if (i % COLS >= cols)
                continue;
            uint32_t sum = (uint32_t)init[i / COLS];

            for (int q = 0; q < 4 * N; q++) {
                int64_t from = (at ? at[q / 4] : q / 4 * COLS) + i % COLS;
                int32_t v = (int8_t)w[(q / 4 * rows + i / COLS) * 4 + q % 4];

                sum += (uint32_t)(v * x[4 * from + q % 4]);
            }
            assert_int_equal(acc[i], (int32_t)sum);
        }
    }
    assert_true(tried >= 40);
}

static void test_matmul_integer(void **state)
{
    uint64_t seed = 1;

    (void)state;
    for (int round = 0; round < 40; round++) {
        int m = pick(&seed, 1, 20), k = pick(&seed, 1, 40);
        int n = pick(&seed, 1, 70), batch = pick(&seed, 1, 3);
        int za = pick(&seed, 0, 255), zb = pick(&seed, -128, 127);
        char text[512], a_shape[32], b_shape[32];

        (void)snprintf(a_shape, sizeof a_shape, "%dx%dx%d", batch, m, k);
        (void)snprintf(b_shape, sizeof b_shape, "%dx%d", k, n);
        (void)snprintf(text, sizeof text,
                       "graph g(a: u8[%d,%d,%d], b: i8[%d,%d]) ->"
                       " (y: i32[%d,%d,%d]) {\n"
                       "  za: u8[] = %d\n  zb: i8[] = %d\n"
                       "  y = MatMulInteger(a, b, za, zb)\n}\n",
                       batch, m, k, k, n, batch, m, n, za, zb);
        sb_tensor *a = random_bytes(SB_DTYPE_U8, a_shape, &seed);
        sb_tensor *b = random_bytes(SB_DTYPE_I8, b_shape, &seed);
        sb_tensor *y = test_run1(text, INPUTS(a, b));

        for (int64_t i = 0; i < (int64_t)batch * m; i++)
            for (int j = 0; j < n; j++) {
                int64_t sum = 0;

                for (int p = 0; p < k; p++)
                    sum += (at(a, i * k + p) - za) * (at(b, p * n + j) - zb);
                assert_int_equal(at(y, i * n + j), sum);
            }
    }
}

/* A known matrix without zero points, whose product reads rows as they lie. */
static void test_known_matrix(void **state)
{
    uint64_t seed = 6;

    (void)state;
    for (int round = 0; round < 24; round++) {
        int m = pick(&seed, 1, 60), k = pick(&seed, 1, 40);
        int n = pick(&seed, 1, 90), za = pick(&seed, -128, 127);
        bool is_signed = round % 2, transposed = round / 2 % 2;
        static char text[1 << 18];
        char a_shape[32], b_shape[32];

        za += is_signed ? 0 : 128;
        (void)snprintf(a_shape, sizeof a_shape, "%dx%d", m, k);
        (void)snprintf(b_shape, sizeof b_shape, "%dx%d", transposed ? n : k,
                       transposed ? k : n);
        sb_tensor *a =
            random_bytes(is_signed ? SB_DTYPE_I8 : SB_DTYPE_U8, a_shape, &seed);
        sb_tensor *b = random_bytes(SB_DTYPE_I8, b_shape, &seed);
        (void)snprintf(text, sizeof text,
                       "graph g(a: %s[%d,%d]) -> (y: f32[%d,%d]) {\n"
                       "  za: %s[] = %d\n  zb: i8[] = 0\n  b: i8[%d,%d]%s\n"
                       "  s: f32[] = 0.5\n  c: i32[%d] = 3\n"
                       "  y = com.microsoft::QGemm(a, s, za, b, s, zb, c)"
                       " {transB=%d}\n}\n",
                       is_signed ? "i8" : "u8", m, k, m, n,
                       is_signed ? "i8" : "u8", za, transposed ? n : k,
                       transposed ? k : n, weights_text(b), n, transposed);
        sb_tensor *y = run_on_threads(text, INPUTS(a));

        for (int64_t i = 0; i < (int64_t)m * n; i++) {
            int64_t sum = 3, j = i % n, row = i / n;

            for (int64_t p = 0; p < k; p++)
                sum += (at(a, row * k + p) - za) *
                       at(b, transposed ? j * k + p : p * n + j);
            /* Exact: less than 2^24, times a power of two. */
            assert_true(((const float *)y->data)[i] == (float)sum * 0.25f);
        }
    }
}

static void test_qlinear_matmul(void **state)
{
    (void)state;
    /* The 2-D example of the ONNX node tests. */
    sb_tensor *a = test_tensor(SB_DTYPE_U8, "2x4",
                               VALUES(208, 236, 0, 238, 3, 214, 255, 29));
    sb_tensor *b = test_tensor(
        SB_DTYPE_U8, "4x3",
        VALUES(152, 51, 244, 60, 26, 255, 0, 127, 246, 127, 254, 247));

    assert_tensor(
        "node test",
        test_run1("graph g(a: u8[2,4], b: u8[4,3]) -> (y: u8[2,3])"
                  " {\n  as: f32[] = 0.0066\n  az: u8[] = 113\n"
                  "  bs: f32[] = 0.00705\n  bz: u8[] = 114\n"
                  "  ys: f32[] = 0.0107\n  yz: u8[] = 118\n"
                  "  y = QLinearMatMul(a, as, az, b, bs, bz, ys, yz)"
                  "\n}\n",
                  INPUTS(a, b)),
        test_tensor(SB_DTYPE_U8, "2x3", VALUES(168, 115, 255, 1, 66, 151)), 0);
    /* One scale for each row and column: y = (1*2 + 3*4) * rs * cs / ys. */
    assert_tensor(
        "per row and column",
        test_run1("graph g(a: i8[2,2], b: i8[2,2]) -> (y: i8[2,2])"
                  " {\n  as: f32[2] = [1, 0.5]\n"
                  "  az: i8[2] = [0, 1]\n"
                  "  bs: f32[2] = [1, 2]\n  bz: i8[2] = [0, 0]\n"
                  "  ys: f32[] = 1\n  yz: i8[] = -3\n"
                  "  y = QLinearMatMul(a, as, az, b, bs, bz, ys, yz)"
                  "\n}\n",
                  INPUTS(test_tensor(SB_DTYPE_I8, "2x2", VALUES(1, 3, 2, 4)),
                         test_tensor(SB_DTYPE_I8, "2x2", VALUES(2, 1, 4, -5)))),
        test_tensor(SB_DTYPE_I8, "2x2", VALUES(11, -31, 4, -17)), 0);
}

/* ---- convolution -------------------------------------------------------- */

typedef struct conv_case {
    int n, c, h, w, m, group, kh, kw, stride, dilation, top, left, bottom,
        right;
} conv_case;

static int out_size(int x, int pads, int kernel, int dilation, int stride)
{
    return (x + pads - (kernel - 1) * dilation - 1) / stride + 1;
}

static int64_t naive_conv(const conv_case *c, const sb_tensor *x, int zx,
                          const sb_tensor *w, int zw, const int place[4])
{
    int cg = c->c / c->group, mg = c->m / c->group;
    int64_t sum = 0;

    for (int ic = 0; ic < cg; ic++)
        for (int y = 0; y < c->kh; y++)
            for (int z = 0; z < c->kw; z++) {
                int iy = place[2] * c->stride - c->top + y * c->dilation;
                int ix = place[3] * c->stride - c->left + z * c->dilation;
                int ch = place[1] / mg * cg + ic;

                if (iy < 0 || iy >= c->h || ix < 0 || ix >= c->w)
                    continue;
                sum +=
                    (at(x,
                        ((int64_t)(place[0] * c->c + ch) * c->h + iy) * c->w +
                            ix) -
                     zx) *
                    (at(w, ((int64_t)(place[1] * cg + ic) * c->kh + y) * c->kw +
                               z) -
                     zw);
            }
    return sum;
}

static conv_case random_case(uint64_t *seed)
{
    conv_case c = {
        .n = pick(seed, 1, 2),
        .h = pick(seed, 6, 12),
        .w = pick(seed, 4, 40),
        .group = pick(seed, 1, 3),
        .kh = pick(seed, 1, 6),
        .kw = pick(seed, 1, 3),
        .stride = pick(seed, 1, 3),
        .dilation = 1,
        .top = pick(seed, 0, 2),
        .left = pick(seed, 0, 2),
        .bottom = pick(seed, 0, 2),
        .right = pick(seed, 0, 2),
    };

    c.c = c.group * pick(seed, 1, 9);
    c.m = c.group * pick(seed, 1, 9);
    if (c.kh > 1 && c.kh < 3)
        c.dilation = pick(seed, 1, 2);
    if (pick(seed, 0, 1)) { /* a kernel of its own: depthwise */
        c.c = c.m = c.group;
        c.w = pick(seed, 0, 5) ? c.w : 1100;
    } else if (pick(seed, 0, 9) == 0) { /* several bands of rows */
        c.h = pick(seed, 40, 60);
        c.w = pick(seed, 150, 250);
    }
    return c;
}

/* Every element of y is what the definition says. */
static void expect_conv(const conv_case *c, const sb_tensor *y,
                        const sb_tensor *x, int zx, const sb_tensor *w, int zw,
                        bool quantized)
{
    int oh = out_size(c->h, c->top + c->bottom, c->kh, c->dilation, c->stride);
    int ow = out_size(c->w, c->left + c->right, c->kw, c->dilation, c->stride);
    int64_t i = 0;
    int place[4];

    for (place[0] = 0; place[0] < c->n; place[0]++)
        for (place[1] = 0; place[1] < c->m; place[1]++)
            for (place[2] = 0; place[2] < oh; place[2]++)
                for (place[3] = 0; place[3] < ow; place[3]++, i++) {
                    int64_t want = naive_conv(c, x, zx, w, zw, place);

                    if (quantized) { /* powers of two: exact in double */
                        double q = nearbyint((double)(want + 100) / 512) + 3;
                        want = (int64_t)fmax(-128, fmin(127, q));
                    }
                    assert_int_equal(at(y, i), want);
                }
}

/* Weights that are `known` and have no zero points are multiplied with images
 * that have channels last. */
static void run_conv(const conv_case *c, uint64_t *seed, bool quantized,
                     bool known)
{
    int oh = out_size(c->h, c->top + c->bottom, c->kh, c->dilation, c->stride);
    int ow = out_size(c->w, c->left + c->right, c->kw, c->dilation, c->stride);
    sb_dtype dtype = pick(seed, 0, 1) ? SB_DTYPE_I8 : SB_DTYPE_U8;
    const char *type = dtype == SB_DTYPE_I8 ? "i8" : "u8";
    int zx = pick(seed, 0, 127);
    int zw = !known && pick(seed, 0, 1) ? pick(seed, 0, 255) : 128;
    sb_dtype w_dtype = SB_DTYPE_U8;
    static char text[1 << 19];
    char x_shape[48], w_shape[48], w_type[64];
    int cg = c->c / c->group;

    if (known && pick(seed, 0, 1)) {
        w_dtype = SB_DTYPE_I8;
        zw = 0;
    }

    (void)snprintf(x_shape, sizeof x_shape, "%dx%dx%dx%d", c->n, c->c, c->h,
                   c->w);
    (void)snprintf(w_shape, sizeof w_shape, "%dx%dx%dx%d", c->m, cg, c->kh,
                   c->kw);
    const char *w_name = w_dtype == SB_DTYPE_I8 ? "i8" : "u8";
    (void)snprintf(w_type, sizeof w_type, "w: %s[%d,%d,%d,%d]", w_name, c->m,
                   cg, c->kh, c->kw);
    sb_tensor *x = random_bytes(dtype, x_shape, seed);
    sb_tensor *w = random_bytes(w_dtype, w_shape, seed);
    (void)snprintf(
        text, sizeof text,
        "graph g(x: %s[%d,%d,%d,%d]%s%s) -> (y: "
        "%s[%d,%d,%d,%d])"
        " {\n  zx: %s[] = %d\n  zw: %s[] = %d\n  %s%s\n"
        "  xs: f32[] = 0.5\n  ws: f32[] = 0.25\n  ys: f32[] = 64\n"
        "  zy: i8[] = 3\n  b: i32[%d] = 100\n  y = %s {group=%d,"
        " strides=[%d,%d], dilations=[%d,%d], pads=[%d,%d,%d,%d]}\n}\n",
        type, c->n, c->c, c->h, c->w, known ? "" : ", ", known ? "" : w_type,
        quantized ? "i8" : "i32", c->n, c->m, oh, ow, type, zx, w_name, zw,
        known ? w_type : "", known ? weights_text(w) : "", c->m,
        quantized ? "QLinearConv(x, xs, zx, w, ws, zw, ys, zy, b)"
                  : "ConvInteger(x, w, zx, zw)",
        c->group, c->stride, c->stride, c->dilation, c->dilation, c->top,
        c->left, c->bottom, c->right);
    sb_tensor *y =
        known ? run_on_threads(text, INPUTS(x)) : test_run1(text, INPUTS(x, w));
    expect_conv(c, y, x, zx, w, zw, quantized);
}

static void test_conv_integer(void **state)
{
    uint64_t seed = 2;

    (void)state;
    for (int round = 0; round < 80; round++) {
        conv_case c = random_case(&seed);
        run_conv(&c, &seed, false, round % 2);
    }
    /* Windows of one pixel are gathered, in quads of channels. */
    for (int round = 0; round < 32; round++) {
        conv_case c = {.n = 1,
                       .c = 1 + round % 8,
                       .h = 6,
                       .w = 11,
                       .m = 5,
                       .group = 1,
                       .kh = 1,
                       .kw = 1,
                       .stride = 1,
                       .dilation = 1};
        run_conv(&c, &seed, false, round % 2);
    }
}

static void test_qlinear_conv(void **state)
{
    uint64_t seed = 3;

    (void)state;
    for (int round = 0; round < 80; round++) {
        conv_case c = random_case(&seed);
        run_conv(&c, &seed, true, round % 2);
    }
}

/* Images with channels last: several panels of output channels, blocks of
 * pixels, groups that fill a vector together, and such as do not. */
static void test_channels_last(void **state)
{
    static const conv_case cases[] = {
        {2, 20, 9, 9, 83, 1, 3, 3, 1, 1, 1, 1, 1, 1},
        {1, 64, 7, 7, 130, 1, 1, 1, 1, 1, 0, 0, 0, 0},
        {1, 36, 8, 11, 40, 1, 3, 3, 2, 2, 2, 2, 2, 2},
        {1, 3, 19, 17, 48, 1, 7, 7, 2, 1, 3, 3, 3, 3},
        {1, 32, 9, 10, 32, 8, 3, 3, 1, 1, 1, 1, 1, 1},
        {1, 40, 6, 6, 80, 5, 1, 1, 2, 1, 0, 0, 0, 0},
        {1, 9, 6, 6, 18, 3, 3, 1, 1, 1, 1, 0, 1, 0},
        {1, 23, 6, 6, 46, 23, 3, 3, 1, 1, 1, 1, 1, 1},
        {2, 70, 9, 7, 70, 70, 3, 3, 2, 1, 1, 1, 1, 1},
        {1, 33, 9, 12, 33, 33, 5, 5, 1, 1, 2, 2, 2, 2},
        {1, 96, 8, 8, 96, 96, 3, 3, 1, 3, 3, 3, 3, 3},
        {1, 5, 30, 30, 7, 1, 12, 12, 1, 1, 0, 0, 0, 0},
        {1, 32, 15, 14, 32, 2, 3, 3, 1, 1, 1, 1, 1, 1},
        {3, 8, 11, 13, 150, 2, 3, 2, 2, 1, 0, 1, 2, 0},
        {2, 24, 9, 15, 64, 4, 3, 3, 1, 1, 1, 1, 1, 1},
    };
    uint64_t seed = 5;

    (void)state;
    for (size_t i = 0; i < 4 * SB_COUNT(cases); i++)
        run_conv(&cases[i / 4], &seed, i % 2, true);
}

/* ---- com.microsoft ------------------------------------------------------ */

static void test_q_gemm(void **state)
{
    (void)state;
    sb_tensor *a = test_tensor(SB_DTYPE_U8, "2x3", VALUES(1, 2, 3, 4, 5, 6));
    sb_tensor *b = test_tensor(SB_DTYPE_I8, "2x3", VALUES(1, 0, -1, 2, 2, 2));

    /* (a - 1) b^T = [[-2, 6], [-2, 24]], + c = [[8, 26], [8, 44]] */
    assert_tensor("quantized",
                  test_run1("graph g(a: u8[2,3], b: i8[2,3]) -> (y: u8[2,2])"
                            " {\n  as: f32[] = 0.5\n  az: u8[] = 1\n"
                            "  bs: f32[2] = [1, 0.5]\n  bz: i8[2] = [0, 0]\n"
                            "  c: i32[2] = [10, 20]\n  ys: f32[] = 2\n"
                            "  yz: u8[] = 7\n"
                            "  y = com.microsoft::QGemm(a, as, az, b, bs, bz,"
                            " c, ys, yz) {transB=1, alpha=2.0}\n}\n",
                            INPUTS(a, b)),
                  test_tensor(SB_DTYPE_U8, "2x2", VALUES(11, 13, 11, 18)), 0);
    assert_tensor("float",
                  test_run1("graph g(a: u8[2,3], b: i8[2,3]) -> (y: f32[2,2])"
                            " {\n  as: f32[] = 0.5\n  az: u8[] = 1\n"
                            "  bs: f32[] = 1\n  bz: i8[] = 0\n"
                            "  y = com.microsoft::QGemm(a, as, az, b, bs, bz)"
                            " {transB=1}\n}\n",
                            INPUTS(a, b)),
                  test_f32("2x2", -1, 3, -1, 12), 0);
}

static void test_to_float(void **state)
{
    (void)state;
    sb_tensor *a = test_tensor(SB_DTYPE_U8, "2x2", VALUES(1, 2, 3, 4));
    sb_tensor *b = test_tensor(SB_DTYPE_I8, "2x2", VALUES(1, -1, 2, 0));
    sb_tensor *x = test_f32("1x2", 255, 51);

    assert_tensor("MatMulIntegerToFloat",
                  test_run1("graph g(a: u8[2,2], b: i8[2,2]) -> (y: f32[2,2])"
                            " {\n  as: f32[] = 0.5\n  bs: f32[2] = [1, 2]\n"
                            "  az: u8[] = 1\n  bz: i8[2] = [0, 1]\n"
                            "  bias: f32[2] = [0.25, 0]\n"
                            "  y = com.microsoft::MatMulIntegerToFloat(a, b,"
                            " as, bs, az, bz, bias)\n}\n",
                            INPUTS(a, b)),
                  test_f32("2x2", 1.25, -1, 4.25, -7), 0);
    /* The range [0, 255] has scale 1, so nothing is lost. */
    assert_tensor("DynamicQuantizeMatMul",
                  test_run1("graph g(x: f32[1,2], b: i8[2,2]) -> (y: f32[1,2])"
                            " {\n  bs: f32[] = 0.5\n  bz: i8[] = 0\n"
                            "  bias: f32[2] = [1, 2]\n"
                            "  y = com.microsoft::DynamicQuantizeMatMul(x, b,"
                            " bs, bz, bias)\n}\n",
                            INPUTS(x, b)),
                  test_f32("1x2", 179.5, -125.5), 0);
}

/* A zero point for each row of a matrix, the same for all matrices. */
static void test_zero_by_row(void **state)
{
    uint64_t seed = 7;

    (void)state;
    sb_tensor *a = random_bytes(SB_DTYPE_U8, "3x5x6", &seed);
    sb_tensor *b = random_bytes(SB_DTYPE_I8, "6x9", &seed);
    sb_tensor *y = test_run1("graph g(a: u8[3,5,6], b: i8[6,9]) ->"
                             " (y: i32[3,5,9]) {\n"
                             "  za: u8[5] = [1, 20, 0, 255, 7]\n"
                             "  y = MatMulInteger(a, b, za)\n}\n",
                             INPUTS(a, b));
    const int za[5] = {1, 20, 0, 255, 7};

    for (int64_t i = 0; i < 3 * 5 * 9; i++) {
        int64_t row = i / 9, sum = 0;
        for (int64_t p = 0; p < 6; p++)
            sum += (at(a, row * 6 + p) - za[row % 5]) * at(b, p * 9 + i % 9);
        assert_int_equal(at(y, i), sum);
    }
}

/* Zero points and scales for some of the columns only. */
static void test_too_few(void **state)
{
    sb_tensor *a = test_tensor(SB_DTYPE_U8, "2x3", NULL);

    (void)state;
    assert_status(test_try_run("graph g(a: u8[2,3]) -> (y: i32[2,16]) {\n"
                               "  b: i8[3,16] = 1\n  za: u8[] = 0\n"
                               "  zb: i8[4] = 1\n"
                               "  y = MatMulInteger(a, b, za, zb)\n}\n",
                               INPUTS(a)),
                  SB_BAD_MODEL);
    assert_error_has("has 4 elements for 16 rows or columns");
    assert_status(test_try_run("graph g(a: u8[2,3]) -> (y: u8[2,16]) {\n"
                               "  b: i8[3,16] = 1\n  z: u8[] = 0\n"
                               "  zb: i8[] = 1\n  s: f32[] = 1\n"
                               "  sb: f32[4] = 1\n"
                               "  y = QLinearMatMul(a, s, z, b, sb, zb, s, z)\n"
                               "}\n",
                               INPUTS(a)),
                  SB_BAD_MODEL);
    assert_error_has("has 4 elements for 16 rows or columns");
}

static void test_wrong_shapes_and_types_are_refused(void **state)
{
    (void)state;
    sb_tensor *a = test_tensor(SB_DTYPE_U8, "2x3", NULL);
    sb_tensor *x = test_tensor(SB_DTYPE_U8, "1x3x4x4", NULL);

    assert_status(test_try_run("graph g(a: u8[2,3]) -> (y: i32[2,2]) {\n"
                               "  b: u8[2,2] = 0\n"
                               "  y = MatMulInteger(a, b)\n}\n",
                               INPUTS(a)),
                  SB_BAD_MODEL);
    assert_error_has("inner dimensions are 3 and 2");
    assert_status(test_try_run("graph g(x: u8[1,3,4,4]) -> (y: i32[*]) {\n"
                               "  w: u8[4,2,3,3] = 0\n"
                               "  y = ConvInteger(x, w)\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
    assert_status(test_try_run("graph g(x: u8[1,3,4,4]) -> (y: i32[*]) {\n"
                               "  w: u8[4,3,5,5] = 0\n"
                               "  y = ConvInteger(x, w)\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
    assert_error_has("larger than the padded input");
    assert_status(test_try_run("graph g(x: u8[1,3,4,4]) -> (y: i32[*]) {\n"
                               "  w: u8[4,3,3,3] = 0\n"
                               "  y = ConvInteger(x, w) {strides=[0,1]}\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_matmul_integer),
        cmocka_unit_test(test_known_matrix),
        cmocka_unit_test(test_qlinear_matmul),
        cmocka_unit_test(test_conv_integer),
        cmocka_unit_test(test_qlinear_conv),
        cmocka_unit_test(test_channels_last),
        cmocka_unit_test(test_q_gemm),
        cmocka_unit_test(test_to_float),
        cmocka_unit_test(test_zero_by_row),
        cmocka_unit_test(test_too_few),
        cmocka_unit_test(test_wrong_shapes_and_types_are_refused),
    };
    return cmocka_run_group_tests_name("int_products", tests, NULL, NULL);
}
