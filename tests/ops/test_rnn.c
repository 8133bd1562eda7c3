/* RNN, GRU and LSTM against the equations of the ONNX specification in double:
 * directions, lengths, initial states, peepholes, biases, both layouts; the
 * same bytes for any number of threads. */
#include "sbtest_node.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CASES = 25, MOST_B = 4, MOST_H = 40, MOST_S = 8 };

typedef struct {
    const char *op;
    int gates;
    int64_t s, b, i, h, dirs;
    bool reverse, after, batch_first; /* after: GRU's linear_before_reset */
    const float *x, *w, *r, *bias, *h0, *c0, *p;
    const int32_t *lens;
    double y[MOST_S][2][MOST_B][MOST_H], last_h[2][MOST_B][MOST_H];
    double last_c[2][MOST_B][MOST_H];
} net;

static double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

/* Row `g` of gate inputs: x W' + Wb, and h R' + Rb, apart. */
static void gate(const net *n, int64_t d, int64_t b, int64_t t, int64_t row,
                 const double *h, double *by_x, double *by_h)
{
    int64_t rows = n->gates * n->h;
    int64_t at = n->batch_first ? b * n->s + t : t * n->b + b;

    *by_x = n->bias ? (double)n->bias[d * 2 * rows + row] : 0;
    *by_h = n->bias ? (double)n->bias[d * 2 * rows + rows + row] : 0;
    for (int64_t k = 0; k < n->i; k++)
        *by_x += (double)n->x[at * n->i + k] *
                 (double)n->w[(d * rows + row) * n->i + k];
    for (int64_t k = 0; k < n->h; k++)
        *by_h += h[k] * (double)n->r[(d * rows + row) * n->h + k];
}

static void step(const net *n, int64_t d, int64_t b, int64_t t, double *h,
                 double *c)
{
    double x[4][MOST_H], r[4][MOST_H], next[MOST_H], rh[MOST_H];
    const float *p = n->p ? n->p + d * 3 * n->h : NULL;

    for (int g = 0; g < n->gates; g++)
        for (int64_t k = 0; k < n->h; k++)
            gate(n, d, b, t, g * n->h + k, h, &x[g][k], &r[g][k]);
    if (n->gates == 3)
        for (int64_t k = 0; k < n->h; k++)
            rh[k] = sigmoid(x[1][k] + r[1][k]) * h[k];
    for (int64_t k = 0; k < n->h; k++) {
        if (n->gates == 1) {
            next[k] = tanh(x[0][k] + r[0][k]);
        } else if (n->gates == 3) {
            double z = sigmoid(x[0][k] + r[0][k]), nx, nh;
            gate(n, d, b, t, 2 * n->h + k, rh, &nx, &nh);
            if (n->after)
                nh = sigmoid(x[1][k] + r[1][k]) * r[2][k];
            next[k] = (1 - z) * tanh(nx + nh) + z * h[k];
        } else {
            double pi = p ? (double)p[k] : 0, po = p ? (double)p[n->h + k] : 0;
            double pf = p ? (double)p[2 * n->h + k] : 0;
            double in = sigmoid(x[0][k] + r[0][k] + pi * c[k]);
            double forget = sigmoid(x[2][k] + r[2][k] + pf * c[k]);
            c[k] = forget * c[k] + in * tanh(x[3][k] + r[3][k]);
            next[k] = sigmoid(x[1][k] + r[1][k] + po * c[k]) * tanh(c[k]);
        }
    }
    memcpy(h, next, sizeof(double) * (size_t)n->h);
}

static void naive(net *n)
{
    memset(n->y, 0, sizeof n->y);
    for (int64_t d = 0; d < n->dirs; d++)
        for (int64_t b = 0; b < n->b; b++) {
            double h[MOST_H] = {0}, c[MOST_H] = {0};
            int64_t len = n->lens ? n->lens[b] : n->s;
            int64_t at =
                (n->batch_first ? b * n->dirs + d : d * n->b + b) * n->h;
            for (int64_t k = 0; k < n->h; k++) {
                h[k] = n->h0 ? (double)n->h0[at + k] : 0;
                c[k] = n->c0 ? (double)n->c0[at + k] : 0;
            }
            for (int64_t i = 0; i < len; i++) {
                int64_t t = d == 1 || n->reverse ? len - 1 - i : i;
                step(n, d, b, t, h, c);
                memcpy(n->y[t][d][b], h, sizeof(double) * (size_t)n->h);
            }
            memcpy(n->last_h[d][b], h, sizeof h);
            memcpy(n->last_c[d][b], c, sizeof c);
        }
}

static void compare(const net *n, sb_tensor *const *out)
{
    for (int64_t d = 0; d < n->dirs; d++)
        for (int64_t b = 0; b < n->b; b++)
            for (int64_t k = 0; k < n->h; k++) {
                int64_t at =
                    (n->batch_first ? b * n->dirs + d : d * n->b + b) * n->h +
                    k;
                assert_close(n->op, ((float *)out[1]->data)[at],
                             n->last_h[d][b][k], 1e-5);
                if (n->gates == 4)
                    assert_close(n->op, ((float *)out[2]->data)[at],
                                 n->last_c[d][b][k], 1e-5);
                for (int64_t t = 0; t < n->s; t++) {
                    int64_t place = n->batch_first
                                        ? (b * n->s + t) * n->dirs + d
                                        : (t * n->dirs + d) * n->b + b;
                    assert_close(n->op,
                                 ((float *)out[0]->data)[place * n->h + k],
                                 n->y[t][d][b][k], 1e-5);
                }
            }
}

static sb_tensor *maybe(sb_rng *rng, int rank, const int64_t *dims)
{
    return test_pick(rng, 0, 1) ? test_floats(rng, rank, dims) : NULL;
}

static const float *data_of(const sb_tensor *t)
{
    return t ? t->data : NULL;
}

static void check(sb_rng *rng, const char *op, int gates, net *n)
{
    static const char *const ways[] = {"forward", "reverse", "bidirectional"};
    int way = (int)test_pick(rng, 0, 2);
    char attrs[128];
    sb_tensor *out[3], *lens = NULL;

    *n = (net){.op = op, .gates = gates};
    n->s = test_pick(rng, 1, 6);
    n->b = test_pick(rng, 1, MOST_B);
    n->i = test_pick(rng, 1, 9);
    n->h = test_pick(rng, 0, 2) ? test_pick(rng, 1, 9) : MOST_H;
    n->dirs = way == 2 ? 2 : 1;
    n->reverse = way == 1;
    n->after = gates == 3 && test_pick(rng, 0, 1);
    n->batch_first = test_pick(rng, 0, 1);
    (void)snprintf(attrs, sizeof attrs,
                   "hidden_size=%d, direction=\"%s\", layout=%d%s", (int)n->h,
                   ways[way], n->batch_first,
                   n->after ? ", linear_before_reset=1" : "");
    int64_t rows = gates * n->h;
    int64_t first = n->batch_first ? n->b : n->dirs;
    int64_t second = n->batch_first ? n->dirs : n->b;
    int64_t state[] = {first, second, n->h};
    if (test_pick(rng, 0, 1)) {
        double v[MOST_B];
        char text[8];
        for (int64_t b = 0; b < n->b; b++)
            v[b] = (double)test_pick(rng, 1, n->s);
        (void)snprintf(text, sizeof text, "%d", (int)n->b);
        lens = test_tensor(SB_DTYPE_I32, text, v);
        n->lens = lens->data;
    }
    sb_tensor *x = test_floats(rng, 3,
                               (int64_t[]){n->batch_first ? n->b : n->s,
                                           n->batch_first ? n->s : n->b, n->i});
    sb_tensor *w = test_floats(rng, 3, (int64_t[]){n->dirs, rows, n->i});
    sb_tensor *r = test_floats(rng, 3, (int64_t[]){n->dirs, rows, n->h});
    sb_tensor *bias = maybe(rng, 2, (int64_t[]){n->dirs, 2 * rows});
    sb_tensor *h0 = maybe(rng, 3, state);
    sb_tensor *c0 = gates == 4 ? maybe(rng, 3, state) : NULL;
    sb_tensor *p =
        gates == 4 ? maybe(rng, 2, (int64_t[]){n->dirs, 3 * n->h}) : NULL;
    n->x = x->data;
    n->w = w->data;
    n->r = r->data;
    n->bias = data_of(bias);
    n->h0 = data_of(h0);
    n->c0 = data_of(c0);
    n->p = data_of(p);
    test_node node = {.op = op,
                      .attrs = attrs,
                      .in = {x, w, r, bias, lens, h0, c0, p},
                      .n_in = gates == 4 ? 8 : 6,
                      .n_out = gates == 4 ? 3 : 2,
                      .constant = test_pick(rng, 0, 1) ? 6u : 0};
    test_node_threads(&node, out);
    naive(n);
    compare(n, out);
}

static net the_net; /* large for a stack */

static void check_random(const char *op, int gates, uint64_t seed)
{
    sb_rng rng;

    sb_rng_init(&rng, test_seed(seed));
    for (int i = 0; i < CASES; i++)
        check(&rng, op, gates, &the_net);
}

static void test_rnn_follows_its_equations(void **state)
{
    (void)state;
    check_random("RNN", 1, 41);
}

static void test_gru_follows_its_equations(void **state)
{
    (void)state;
    check_random("GRU", 3, 42);
}

static void test_lstm_follows_its_equations(void **state)
{
    (void)state;
    check_random("LSTM", 4, 43);
}

/* Both directions, scales for each of them and for each column; results are
 * ONNX Runtime's, which may round the state of each sample by itself. */
static void test_dynamic_quantize_lstm(void **state)
{
    static const double w[] = {50,  -34, -98, 91, -40, 29, 79,  -10,
                               -31, 4,   10,  -3, 57,  6,  52,  -38,
                               -93, 71,  -67, 23, -21, 76, -63, -80,
                               -6,  -51, 49,  27, -72, 19, -46, -100};
    static const double r[] = {92,  -82, 16,  91, 65, 84, 84, 99,  65,  74, -67,
                               13,  -99, -15, 17, 19, 24, -1, 44,  -20, 60, 44,
                               -82, -25, 83,  -4, 41, 65, 58, -52, 89,  -67};
    static const double b[] = {0.05,  0.09,  -0.21, -0.08, -0.29, 0.11,  -0.06,
                               0.1,   0,     0.12,  0.13,  0.02,  -0.12, 0.01,
                               0.09,  -0.06, -0.05, 0,     0.08,  0,     -0.08,
                               -0.06, -0.05, 0.03,  0.03,  -0.06, -0.11, -0.14,
                               -0.26, 0.09,  0.03,  0.13};
    static const double rs[] = {.01, .02, .015, .005, .01, .01, .02, .01,
                                .01, .02, .015, .005, .01, .01, .02, .01};
    static const float want[] = {
        0.07493508f, -0.1131269f,   -0.178424f,  0.1820694f,  0.01366114f,
        -0.2890511f, 0.07580809f,   0.1743621f,  0.07556822f, 0.02601514f,
        -0.1670538f, 0.1264026f,    0.2627066f,  0.1849783f,  0.1278921f,
        0.1678627f,  -0.006801218f, 0.09702669f, -0.3047382f, -0.02009215f,
        0.07758785f, 0.1692217f,    0.4967767f,  0.0100605f};
    sb_tensor *out[3];
    test_node node = {.op = "DynamicQuantizeLSTM",
                      .domain = "com.microsoft",
                      .attrs = "hidden_size=2, direction=\"bidirectional\"",
                      .n_in = 12,
                      .n_out = 3};

    (void)state;
    node.in[0] = test_f32("3x2x2", 1.79, 0.44, 0.1, -1.86, -0.28, -0.35, -0.08,
                          -0.63, -0.04, -0.48, -1.31, 0.88);
    node.in[1] = test_tensor(SB_DTYPE_I8, "2x2x8", w);
    node.in[2] = test_tensor(SB_DTYPE_I8, "2x2x8", r);
    node.in[3] = test_tensor(SB_DTYPE_F32, "2x16", b);
    node.in[8] = test_f32("2", .01, .02);
    node.in[9] = test_tensor(SB_DTYPE_I8, "2", (const double[]){3, -5});
    node.in[10] = test_tensor(SB_DTYPE_F32, "2x8", rs);
    node.in[11] = test_tensor(SB_DTYPE_I8, "2x8", NULL);
    test_node_run(&node, out);
    assert_all_close("y", out[0]->data, want, 24, 3e-4);
    node.in[8] = test_f32("3", 1, 1, 1);
    assert_status(test_node_try(&node, out), SB_BAD_MODEL);
    assert_error_has("for each direction");
    node.in[8] = NULL;
    assert_status(test_node_try(&node, out), SB_BAD_MODEL);
    assert_error_has("input 8 is absent");
}

static void test_bad_models(void **state)
{
    (void)state;
    sb_tensor *out[3];
    test_node node = {.op = "RNN",
                      .n_in = 3,
                      .n_out = 2,
                      .in = {test_random(SB_DTYPE_F32, "2x1x3", 1),
                             test_random(SB_DTYPE_F32, "1x4x3", 1),
                             test_random(SB_DTYPE_F32, "1x4x4", 1)}};

    node.attrs = "direction=\"sideways\"";
    assert_status(test_node_try(&node, out), SB_BAD_MODEL);
    node.attrs = "hidden_size=5";
    assert_status(test_node_try(&node, out), SB_BAD_MODEL);
    node.attrs = "activations=[\"Nothing\"]";
    assert_status(test_node_try(&node, out), SB_BAD_MODEL);
    assert_error_has("Nothing");
    node.attrs = "activations=[\"Relu\",\"Relu\"]";
    assert_status(test_node_try(&node, out), SB_BAD_MODEL);
    node.attrs = NULL;
    node.in[4] = test_tensor(SB_DTYPE_I32, "1", (const double[]){3});
    node.n_in = 5;
    assert_status(test_node_try(&node, out), SB_BAD_DATA);
    assert_error_has("sequence_lens");
    node.op = "LSTM";
    assert_status(test_node_try(&node, out), SB_BAD_MODEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rnn_follows_its_equations),
        cmocka_unit_test(test_gru_follows_its_equations),
        cmocka_unit_test(test_lstm_follows_its_equations),
        cmocka_unit_test(test_dynamic_quantize_lstm),
        cmocka_unit_test(test_bad_models),
    };
    return cmocka_run_group_tests_name("rnn", tests, NULL, NULL);
}
