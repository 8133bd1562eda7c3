/* Attention and RotaryEmbedding against the definition in double: groups of
 * heads, past, causal and windowed masks, boolean masks; the same bytes for any
 * number of threads.  com.microsoft's forms against ours. */
#include "sbtest_node.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ops/attention/cached_rows.h"

enum { CASES = 40, MOST = 16, LONG_CASES = 10, LONG_MOST = 150 };

typedef struct {
    int64_t b, heads, kv, q, k, past, d, dv;
    bool flat, causal;
    int64_t left; /* window; -1: none */
    const float *xq, *xk, *xv, *pk, *pv, *mask;
} problem;

/* Element of q, k or v at (batch, head, position, i). */
static double at(const problem *p, const float *x, int64_t heads, int64_t len,
                 int64_t size, const int64_t *w)
{
    return (
        double)(p->flat
                    ? x[((w[0] * len + w[2]) * heads + w[1]) * size + w[3]]
                    : x[((w[0] * heads + w[1]) * len + w[2]) * size + w[3]]);
}

/* The same with the past in front. */
static double at_past(const problem *p, const float *past, const float *x,
                      int64_t size, int64_t b, int64_t h, int64_t pos,
                      int64_t i)
{
    if (pos < p->past)
        return (double)past[((b * p->kv + h) * p->past + pos) * size + i];
    return at(p, x, p->kv, p->k, size, (int64_t[]){b, h, pos - p->past, i});
}

static void weights(const problem *p, int64_t b, int64_t h, int64_t query,
                    double *w)
{
    int64_t total = p->past + p->k, kv = h / (p->heads / p->kv);
    double most = -INFINITY, sum = 0;

    for (int64_t j = 0; j < total; j++) {
        int64_t here = query + p->past;
        w[j] = 0;
        for (int64_t i = 0; i < p->d; i++)
            w[j] += at(p, p->xq, p->heads, p->q, p->d,
                       (int64_t[]){b, h, query, i}) *
                    at_past(p, p->pk, p->xk, p->d, b, kv, j, i);
        w[j] /= sqrt((double)p->d);
        if (p->mask)
            w[j] += (double)p->mask[query * total + j];
        if ((p->causal && j > here) || (p->left >= 0 && j < here - p->left))
            w[j] = -INFINITY;
        most = fmax(most, w[j]);
    }
    for (int64_t j = 0; j < total; j++) {
        w[j] = most == -INFINITY ? 0 : exp(w[j] - most);
        sum += w[j];
    }
    for (int64_t j = 0; j < total && sum > 0; j++)
        w[j] /= sum;
}

static void compare(const problem *p, const float *y)
{
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t q = 0; q < p->q; q++) {
                double w[2 * LONG_MOST];
                weights(p, b, h, q, w);
                for (int64_t i = 0; i < p->dv; i++) {
                    double want = 0;
                    for (int64_t j = 0; j < p->past + p->k; j++)
                        want += w[j] * at_past(p, p->pv, p->xv, p->dv, b,
                                               h / (p->heads / p->kv), j, i);
                    assert_close("y",
                                 at(p, y, p->heads, p->q, p->dv,
                                    (int64_t[]){b, h, q, i}),
                                 want, 1e-5);
                }
            }
}

static sb_tensor *heads(sb_rng *rng, const problem *p, int64_t n, int64_t len,
                        int64_t size)
{
    if (p->flat)
        return test_floats(rng, 3, (int64_t[]){p->b, len, n * size});
    return test_floats(rng, 4, (int64_t[]){p->b, n, len, size});
}

static void check(sb_rng *rng, int64_t most)
{
    problem p = {.b = test_pick(rng, 1, 2),
                 .kv = test_pick(rng, 1, 3),
                 .q = test_pick(rng, 1, most),
                 .k = test_pick(rng, 1, most),
                 .d = test_pick(rng, 1, 20),
                 .dv = test_pick(rng, 1, 20)};
    char attrs[160];
    sb_tensor *y, *past[2] = {NULL, NULL}, *mask = NULL;

    p.heads = p.kv * test_pick(rng, 1, 3);
    p.flat = test_pick(rng, 0, 1);
    p.causal = test_pick(rng, 0, 1);
    p.left = test_pick(rng, 0, 2) ? -1 : test_pick(rng, 0, 4);
    (void)snprintf(attrs, sizeof attrs,
                   "q_num_heads=%d, kv_num_heads=%d, is_causal=%d, "
                   "left_window_size=%d",
                   (int)p.heads, (int)p.kv, p.causal, (int)p.left);
    sb_tensor *q = heads(rng, &p, p.heads, p.q, p.d);
    sb_tensor *k = heads(rng, &p, p.kv, p.k, p.d);
    sb_tensor *v = heads(rng, &p, p.kv, p.k, p.dv);
    if (test_pick(rng, 0, 1)) {
        p.past = test_pick(rng, 1, 8);
        past[0] = test_floats(rng, 4, (int64_t[]){p.b, p.kv, p.past, p.d});
        past[1] = test_floats(rng, 4, (int64_t[]){p.b, p.kv, p.past, p.dv});
        p.pk = past[0]->data;
        p.pv = past[1]->data;
    }
    if (test_pick(rng, 0, 1)) {
        mask = test_floats(rng, 2, (int64_t[]){p.q, p.past + p.k});
        p.mask = mask->data;
    }
    p.xq = q->data;
    p.xk = k->data;
    p.xv = v->data;
    test_node node = {.op = "Attention",
                      .attrs = attrs,
                      .in = {q, k, v, mask, past[0], past[1]},
                      .n_in = 6,
                      .n_out = 1};
    test_node_threads(&node, &y);
    compare(&p, y->data);
}

static void test_random_heads(void **state)
{
    (void)state;
    sb_rng rng;

    sb_rng_init(&rng, test_seed(51));
    for (int i = 0; i < CASES; i++)
        check(&rng, MOST);
    for (int i = 0; i < LONG_CASES; i++) /* in strips, where causal */
        check(&rng, LONG_MOST);
}

/* GroupQueryAttention: the same definition, with q, k and v side by side. */
static void check_grouped(sb_rng *rng)
{
    problem p = {.b = 1,
                 .kv = test_pick(rng, 1, 3),
                 .q = test_pick(rng, 1, MOST),
                 .past = test_pick(rng, 1, 8),
                 .flat = true,
                 .causal = true};
    char attrs[160];
    sb_tensor *out[3];

    p.heads = p.kv * test_pick(rng, 1, 3);
    p.d = p.dv = 8 * test_pick(rng, 1, 3);
    p.k = p.q;
    p.left = test_pick(rng, 0, 1) ? -1 : test_pick(rng, 0, 4);
    (void)snprintf(attrs, sizeof attrs,
                   "num_heads=%d, kv_num_heads=%d, local_window_size=%d",
                   (int)p.heads, (int)p.kv,
                   (int)(p.left < 0 ? -1 : p.left + 1));
    int64_t all = (p.heads + 2 * p.kv) * p.d, room[] = {1, p.kv, p.past, p.d};
    sb_tensor *parts[3] = {heads(rng, &p, p.heads, p.q, p.d),
                           heads(rng, &p, p.kv, p.q, p.d),
                           heads(rng, &p, p.kv, p.q, p.d)};
    sb_tensor *past[2] = {test_floats(rng, 4, room), test_floats(rng, 4, room)};
    sb_tensor *x = test_floats(rng, 3, (int64_t[]){1, p.q, all});
    for (int64_t i = 0; i < p.q; i++) {
        float *to = (float *)x->data + i * all;
        for (int j = 0; j < 3; j++) {
            int64_t n = parts[j]->dims[2];
            memcpy(to, (float *)parts[j]->data + i * n, (size_t)n * sizeof *to);
            to += n;
        }
    }
    double total = (double)(p.past + p.q), last = total - 1;
    test_node node = {.op = "GroupQueryAttention",
                      .domain = "com.microsoft",
                      .attrs = attrs,
                      .in = {x, NULL, NULL, past[0], past[1],
                             test_tensor(SB_DTYPE_I32, "1", &last),
                             test_tensor(SB_DTYPE_I32, "1", &total)},
                      .n_in = 7,
                      .n_out = 3};
    p.xq = parts[0]->data;
    p.xk = parts[1]->data;
    p.xv = parts[2]->data;
    p.pk = past[0]->data;
    p.pv = past[1]->data;
    test_node_threads(&node, out);
    compare(&p, out[0]->data);
    for (int64_t i = 0; i < p.kv * (p.past + p.q) * p.d; i++) {
        int64_t len = p.past + p.q;

        assert_close("keys", ((float *)out[1]->data)[i],
                     at_past(&p, p.pk, p.xk, p.d, 0, i / p.d / len,
                             i / p.d % len, i % p.d),
                     0);
    }
}

static void test_grouped_queries(void **state)
{
    (void)state;
    sb_rng rng;

    sb_rng_init(&rng, test_seed(53));
    for (int i = 0; i < CASES; i++)
        check_grouped(&rng);
}

/* What files and runs may not say. */
static void test_grouped_queries_refused(void **state)
{
    (void)state;
    sb_rng rng;
    sb_tensor *y[4];
    const double two = 2, three = 3, nine = 9;
    sb_tensor *last = test_tensor(SB_DTYPE_I32, "1", &two);

    sb_rng_init(&rng, 3);
    sb_tensor *x = test_floats(&rng, 3, (int64_t[]){1, 3, 32});
    test_node node = {.op = "GroupQueryAttention",
                      .domain = "com.microsoft",
                      .attrs = "num_heads=2, kv_num_heads=1",
                      .in = {x, NULL, NULL, NULL, NULL, last,
                             test_tensor(SB_DTYPE_I32, "1", &three)},
                      .n_in = 7,
                      .n_out = 3};
    assert_status(test_node_try(&node, y), SB_OK);
    node.in[5] = test_tensor(SB_DTYPE_I32, "1", &nine);
    assert_status(test_node_try(&node, y), SB_BAD_DATA);
    assert_error_has("seqlens_k[0] is 9");
    node.in[5] = last;
    node.attrs = "num_heads=2, kv_num_heads=1, do_rotary=1";
    assert_status(test_node_try(&node, y), SB_BAD_MODEL);
    assert_error_has("cos_cache");
    node.in[7] = node.in[8] = test_floats(&rng, 2, (int64_t[]){2, 4});
    node.n_in = 9;
    assert_status(test_node_try(&node, y), SB_BAD_DATA);
    assert_error_has("position 2 is outside the cache of 2");
    node.attrs = "num_heads=3, kv_num_heads=2";
    assert_status(test_node_try(&node, y), SB_BAD_MODEL);
    node.attrs = "num_heads=2, kv_num_heads=1, kv_cache_bit_width=8";
    assert_status(test_node_try(&node, y), SB_UNSUPPORTED);
    node.attrs = "num_heads=2, kv_num_heads=1, qk_output=1";
    assert_status(test_node_try(&node, y), SB_UNSUPPORTED);
    node.in[5] = NULL;
    node.attrs = "num_heads=2, kv_num_heads=1";
    assert_status(test_node_try(&node, y), SB_BAD_MODEL);
}

/* One query, two keys: equal scores, unless the mask hides one or both. */
static void test_bool_mask(void **state)
{
    (void)state;
    static const double masks[3][2] = {{1, 1}, {1, 0}, {0, 0}};
    static const double want[3] = {3, 2, 0};

    for (int i = 0; i < 3; i++) {
        sb_tensor *out[4];
        test_node node = {
            .op = "Attention",
            .attrs = "qk_matmul_output_mode=3",
            .in = {test_f32("1x1x1x1", 0), test_f32("1x1x2x1", 1, 1),
                   test_f32("1x1x2x1", 2, 4),
                   test_tensor(SB_DTYPE_BOOL, "1x2", masks[i])},
            .n_in = 4,
            .n_out = 4,
        };
        test_node_run(&node, out);
        assert_close("y", ((float *)out[0]->data)[0], want[i], 1e-6);
        assert_close("weight", ((float *)out[3]->data)[1],
                     masks[i][1] > 0 ? 0.5 : 0, 1e-6);
        assert_tensor("keys", out[1], test_f32("1x1x2x1", 1, 1), 0);
    }
}

/* com.microsoft's MultiHeadAttention of one head per ours. */
static void test_ms_forms(void **state)
{
    (void)state;
    sb_rng rng;
    sb_tensor *ours, *theirs, *projected;

    sb_rng_init(&rng, 9);
    sb_tensor *q = test_floats(&rng, 3, (int64_t[]){2, 5, 12});
    sb_tensor *k = test_floats(&rng, 3, (int64_t[]){2, 7, 12});
    sb_tensor *v = test_floats(&rng, 3, (int64_t[]){2, 7, 12});
    test_node node = {.op = "Attention",
                      .in = {q, k, v},
                      .n_in = 3,
                      .n_out = 1,
                      .attrs = "q_num_heads=3, kv_num_heads=3"};
    test_node_threads(&node, &ours);
    node.op = "MultiHeadAttention";
    node.domain = "com.microsoft";
    node.attrs = "num_heads=3";
    test_node_threads(&node, &theirs);
    assert_memory_equal(ours->data, theirs->data, sb_tensor_bytes(ours));

    /* Attention with weights [I | I | I] is MultiHeadAttention(x, x, x). */
    sb_tensor *w = test_tensor(SB_DTYPE_F32, "12x36", NULL);
    for (int i = 0; i < 12; i++)
        for (int j = 0; j < 3; j++)
            ((float *)w->data)[i * 36 + j * 12 + i] = 1;
    node = (test_node){.op = "MultiHeadAttention",
                       .domain = "com.microsoft",
                       .attrs = "num_heads=3",
                       .in = {q, q, q},
                       .n_in = 3,
                       .n_out = 1};
    test_node_run(&node, &theirs);
    node.op = "Attention";
    node.in[1] = w;
    node.n_in = 2;
    test_node_threads(&node, &projected);
    assert_all_close("projected", (float *)projected->data,
                     (float *)theirs->data, (size_t)sb_tensor_count(theirs),
                     1e-6);
}

static void test_rotary_embedding_turns_by_position(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {
        .op = "RotaryEmbedding",
        .in = {test_f32("1x1x2x4", 1, 2, 3, 4, 5, 6, 7, 8),
               test_f32("3x2", 9, 9, 0, 1, 1, 0),
               test_f32("3x2", 9, 9, 1, 0, 0, 1), test_i64("1x2", 1, 2)},
        .n_in = 4,
        .n_out = 1,
    };

    test_node_run(&node, &y);
    assert_tensor("halves", y, test_f32("1x1x2x4", -3, 2, 1, 4, 5, -8, 7, 6),
                  0);
    node.attrs = "interleaved=1";
    test_node_run(&node, &y);
    assert_tensor("pairs", y, test_f32("1x1x2x4", -2, 1, 3, 4, 5, 6, -8, 7), 0);
    node.in[3] = test_i64("1x2", 1, 3);
    assert_status(test_node_try(&node, &y), SB_BAD_DATA);
    assert_error_has("position 3");
    node.n_in = 3; /* seen in the graph, also where nobody reads the result */
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    assert_error_has("input 1 of rank 2, want 3");
}

static float *random_floats(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    sb_rng rng;

    assert_non_null(x);
    sb_rng_init(&rng, seed);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)sb_rng_uniform(&rng) - 0.5f;
    return x;
}

/* Rows of `n` elements with a gap between, in arrays of their exact length. */
static void check_rows(const sb_cached_rows *rows, int64_t count, int64_t n)
{
    const sb_cached_rows *plain = sb_cached_rows_plain();
    int64_t step = n + 3, all = (count - 1) * step + n;
    float *q = random_floats(n, 1), *p = random_floats(count, 2);
    float *x = random_floats(all, 3), *y = random_floats(n, 4);
    float *dots = random_floats(count, 5), *other = random_floats(n + count, 6);

    rows->dot(q, x, step, count, n, 0.5f, dots);
    plain->dot(q, x, step, count, n, 0.5f, other);
    assert_memory_equal(dots, other, (size_t)count * sizeof *dots);
    for (int64_t r = 0; r < count; r++) {
        double sum = 0;
        float alone;

        for (int64_t i = 0; i < n; i++)
            sum += (double)q[i] * (double)x[r * step + i];
        assert_true(fabs(sum / 2 - (double)dots[r]) < 1e-5 * (double)n);
        rows->dot(q, x + r * step, step, 1, n, 0.5f, &alone);
        assert_memory_equal(&alone, &dots[r], sizeof alone);
    }
    rows->sum(p, x, step, count, n, y);
    plain->sum(p, x, step, count, n, other);
    assert_memory_equal(y, other, (size_t)n * sizeof *y);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;

        for (int64_t r = 0; r < count; r++)
            sum += (double)p[r] * (double)x[r * step + i];
        assert_true(fabs(sum - (double)y[i]) < 1e-5 * (double)count);
    }
    float *own[] = {q, p, x, y, dots, other};
    for (size_t i = 0; i < SB_COUNT(own); i++)
        free(own[i]);
}

static void test_cached_rows(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 7, 16, 33, 48, 64, 80, 130};
    static const int64_t counts[] = {1, 3, 15, 16, 17, 40};
    const sb_cached_rows *all[] = {sb_cached_rows_plain(),
                                   sb_cached_rows_avx512()};

    for (size_t k = 0; k < SB_COUNT(all) && all[k]; k++)
        for (size_t i = 0; i < SB_COUNT(sizes); i++)
            for (size_t j = 0; j < SB_COUNT(counts); j++)
                check_rows(all[k], counts[j], sizes[i]);
}

static void test_bad_models(void **state)
{
    (void)state;
    sb_tensor *y;
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x4x12", 1);
    test_node node = {
        .op = "Attention", .in = {x, x, x}, .n_in = 3, .n_out = 1};

    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "q_num_heads=5, kv_num_heads=5";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "q_num_heads=3, kv_num_heads=2";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "q_num_heads=3, kv_num_heads=3";
    node.in[3] = test_random(SB_DTYPE_F32, "3x4", 1);
    node.n_in = 4;
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_heads),
        cmocka_unit_test(test_grouped_queries),
        cmocka_unit_test(test_grouped_queries_refused),
        cmocka_unit_test(test_bool_mask),
        cmocka_unit_test(test_ms_forms),
        cmocka_unit_test(test_rotary_embedding_turns_by_position),
        cmocka_unit_test(test_cached_rows),
        cmocka_unit_test(test_bad_models),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
