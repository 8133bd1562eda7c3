/* Operators of our own domain, which passes put in: ChannelShuffle and
 * FusedAttention against plain loops over their definition. */
#include "sbtest.h"

#include <math.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

/* Channel g * per + p becomes channel p * groups + g. */
static void test_channel_shuffle_deals_groups_in_turns(void **state)
{
    (void)state;
    assert_tensor(
        "two groups of three",
        test_run1("graph g(x: f32[1,6,2]) -> (y: f32[1,6,2]) {\n"
                  "  y = sparsebit::ChannelShuffle(x) {groups=2}\n}\n",
                  INPUTS(test_f32("1x6x2", 0, 1, 10, 11, 20, 21, 30, 31, 40, 41,
                                  50, 51))),
        test_f32("1x6x2", 0, 1, 30, 31, 10, 11, 40, 41, 20, 21, 50, 51), 0);
}

/* Of bytes, channels last: two groups of 35 at each of three places. */
static void test_bytes_are_shuffled(void **state)
{
    enum { PLACES = 3, EACH = 35, N = PLACES * 2 * EACH };
    double x[N], want[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        int place = i / (2 * EACH), c = i % (2 * EACH);

        x[i] = i;
        want[place * 2 * EACH + c % EACH * 2 + c / EACH] = i;
    }
    sb_tensor *from = test_tensor(SB_DTYPE_U8, "3x2x35", x);
    sb_tensor *to = test_tensor(SB_DTYPE_U8, "3x2x35", x);

    to->layout = SB_LAYOUT_CHANNELS_LAST;
    sb_tensor_reorder(test_ctx(), from, to);
    to->layout = SB_LAYOUT_PLAIN; /* as it lies */
    assert_tensor("bytes", to, test_tensor(SB_DTYPE_U8, "3x2x35", want), 0);
}

enum { BATCH = 2, HEADS = 3, QUERIES = 4, KEYS = 5, SIZE = 2 };

/* An element of [B, S, heads, size] or [B, heads, S, size]. */
static double element(const sb_tensor *t, bool heads_first, int64_t n,
                      int64_t b, int64_t h, int64_t s, int64_t i)
{
    int64_t at =
        heads_first ? (b * HEADS + h) * n + s : (b * n + s) * HEADS + h;

    return sb_tensor_get_f64(t, at * SIZE + i);
}

/* softmax(scale q k' + mask) v for one query. */
static void attend(const sb_tensor *const *in, double scale, int64_t b,
                   int64_t h, int64_t row, double *out)
{
    double weight[KEYS], sum = 0;

    for (int64_t j = 0; j < KEYS; j++) {
        double dot = 0;
        for (int64_t i = 0; i < SIZE; i++)
            dot += element(in[0], true, QUERIES, b, h, row, i) *
                   element(in[1], false, KEYS, b, h, j, i);
        weight[j] = exp(scale * dot + sb_tensor_get_f64(in[3], row * KEYS + j));
        sum += weight[j];
    }
    for (int64_t i = 0; i < SIZE; i++) {
        out[i] = 0;
        for (int64_t j = 0; j < KEYS; j++)
            out[i] += weight[j] / sum * element(in[2], false, KEYS, b, h, j, i);
    }
}

/* Queries by head, keys and values as projections leave them, the result by
 * place. */
static void test_fused_attention_is_its_definition(void **state)
{
    (void)state;
    const sb_tensor *in[] = {test_random(SB_DTYPE_F32, "2x3x4x2", 1),
                             test_random(SB_DTYPE_F32, "2x5x3x2", 2),
                             test_random(SB_DTYPE_F32, "2x5x3x2", 3),
                             test_random(SB_DTYPE_F32, "4x5", 4)};
    double want[BATCH * QUERIES * HEADS * SIZE];

    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t s = 0; s < QUERIES; s++)
                attend(in, 0.7, b, h, s,
                       want + ((b * QUERIES + s) * HEADS + h) * SIZE);
    assert_tensor(
        "attention",
        test_run1("graph g(q: f32[2,3,4,2], k: f32[2,5,3,2], "
                  "v: f32[2,5,3,2], m: f32[4,5]) -> (y: f32[2,4,3,2]) {\n"
                  "  y = sparsebit::FusedAttention(q, k, v, m) "
                  "{layouts=[0,1,1,1], parts=[0,0,0], scale=0.7}\n}\n",
                  in),
        test_tensor(SB_DTYPE_F32, "2x4x3x2", want), 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channel_shuffle_deals_groups_in_turns),
        cmocka_unit_test(test_bytes_are_shuffled),
        cmocka_unit_test(test_fused_attention_is_its_definition),
    };
    return cmocka_run_group_tests_name("fused_ops", tests, NULL, NULL);
}
