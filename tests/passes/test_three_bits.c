/* Packed weights of 3 bits as 4, by hand: the codes are 0 to 7 over and over,
 * so eight of them are the bytes 0x88 0xc6 0xfa, low bits first. */
#include "sbtest.h"

#include "graph/graph.h"
#include "graph/text.h"
#include "passes/deploy/three_bits.h"

#define CODES "[136, 198, 250, 136, 198, 250]"

/* The graph, after widening. */
static sb_graph *widened(const char *text)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    assert_true(sb_graph_has_three_bits(g));
    assert_ok(sb_graph_widen_three_bits(g));
    assert_false(sb_graph_has_three_bits(g));
    return g;
}

static void assert_bytes(const sb_graph *g, uint32_t input, const uint8_t *want,
                         size_t n, int64_t last)
{
    const sb_tensor *t = sb_const_of(g, sb_node_in(sb_graph_node(g, 0), input));

    assert_non_null(t);
    assert_int_equal(sb_tensor_count(t), (int64_t)n);
    assert_int_equal(t->dims[t->rank - 1], last);
    assert_memory_equal(t->data, want, n);
}

static void test_codes_around_the_middle_move(void **state)
{
    static const uint8_t want[8] = {0x54, 0x76, 0x98, 0xba,
                                    0x54, 0x76, 0x98, 0xba};
    sb_graph *g = widened("graph g(x: f32[1,16]) -> (y: f32[1,1]) {\n"
                          "  b: u8[1,1,6] = " CODES "\n  s: f32[1,1] = 0.5\n"
                          "  y = com.microsoft::MatMulNBits(x, b, s)"
                          " {K=16, N=1, bits=3, block_size=16}\n}\n");

    (void)state;
    assert_bytes(g, 1, want, sizeof want, 8);
    sb_graph_free(g);
}

static void test_packed_zero_points_are_widened(void **state)
{
    static const uint8_t want[8] = {0x10, 0x32, 0x54, 0x76,
                                    0x10, 0x32, 0x54, 0x76};
    static const uint8_t zeros[1] = {0x05};
    sb_graph *g = widened("graph g(x: f32[1,16]) -> (y: f32[1,1]) {\n"
                          "  b: u8[1,1,6] = " CODES "\n  s: f32[1,1] = 0.5\n"
                          "  z: u8[1,1] = 5\n"
                          "  y = com.microsoft::MatMulNBits(x, b, s, z)"
                          " {K=16, N=1, bits=3, block_size=16}\n}\n");

    (void)state;
    assert_bytes(g, 1, want, sizeof want, 8);
    assert_bytes(g, 3, zeros, sizeof zeros, 1);
    sb_graph_free(g);
}

static void test_tables_are_widened(void **state)
{
    static const uint8_t want[8] = {0x54, 0x76, 0x98, 0xba,
                                    0x54, 0x76, 0x98, 0xba};
    sb_graph *g = widened("graph g(i: i64[2]) -> (y: f32[2,16]) {\n"
                          "  b: u8[1,6] = " CODES "\n  s: f32[1,1] = 0.5\n"
                          "  y = com.microsoft::GatherBlockQuantized(b, i, s)"
                          " {bits=3, block_size=16}\n}\n");

    (void)state;
    assert_bytes(g, 0, want, sizeof want, 8);
    sb_graph_free(g);
}

/* Sizes that only seem to fit: a row of 1,000 blocks, and zero points of all
 * rows in one. */
static void test_sizes_that_do_not_fit_are_refused(void **state)
{
    static const char *const texts[] = {
        "graph g(x: f32[1,16]) -> (y: f32[1,1]) {\n"
        "  b: u8[1,1000,4] = 1\n  s: f32[1,1] = 0.5\n"
        "  y = com.microsoft::MatMulNBits(x, b, s)"
        " {K=16, N=1, bits=3, block_size=16}\n}\n",
        "graph g(x: f32[1,128]) -> (y: f32[1,4]) {\n"
        "  b: u8[4,8,6] = 1\n  s: f32[4,8] = 0.5\n  z: u8[1,12] = 1\n"
        "  y = com.microsoft::MatMulNBits(x, b, s, z)"
        " {K=128, N=4, bits=3, block_size=16}\n}\n",
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(texts); i++) {
        sb_graph *g = NULL;

        assert_ok(sb_graph_parse(test_ctx(), texts[i], &g));
        assert_status(sb_graph_widen_three_bits(g), SB_BAD_MODEL);
        assert_error_has("do not fit each other");
        sb_graph_free(g);
    }
}

static void test_computed_zero_points_leave_the_node(void **state)
{
    sb_graph *g = NULL;

    (void)state;
    assert_ok(sb_graph_parse(test_ctx(),
                             "graph g(x: f32[1,16], z: u8[1,1]) -> "
                             "(y: f32[1,1]) {\n"
                             "  b: u8[1,1,6] = " CODES "\n"
                             "  s: f32[1,1] = 0.5\n"
                             "  y = com.microsoft::MatMulNBits(x, b, s, z)"
                             " {K=16, N=1, bits=3, block_size=16}\n}\n",
                             &g));
    assert_false(sb_graph_has_three_bits(g));
    assert_ok(sb_graph_widen_three_bits(g));
    assert_int_equal(sb_node_int(sb_graph_node(g, 0), "bits", 4), 3);
    sb_graph_free(g);
}

static void test_a_table_of_three_bits_is_gathered(void **state)
{
    sb_tensor *y =
        test_run1("graph g(i: i64[1]) -> (y: f32[1,16]) {\n"
                  "  b: u8[2,6] = [0, 0, 0, 0, 0, 0, 136, 198, 250, 136, 198,"
                  " 250]\n  s: f32[2,1] = 0.5\n"
                  "  y = com.microsoft::GatherBlockQuantized(b, i, s)"
                  " {bits=3, block_size=16}\n}\n",
                  (const sb_tensor *[]){test_i64("1", 1)});

    (void)state;
    for (int i = 0; i < 16; i++)
        assert_close("element", ((float *)y->data)[i], 0.5 * (i % 8 - 4), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_around_the_middle_move),
        cmocka_unit_test(test_packed_zero_points_are_widened),
        cmocka_unit_test(test_tables_are_widened),
        cmocka_unit_test(test_sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(test_computed_zero_points_leave_the_node),
        cmocka_unit_test(test_a_table_of_three_bits_is_gathered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
