/* The strided copy against the loop that defines it, on random layouts. */
#include "ops/move/strided_copy.h"

#include <stdlib.h>
#include <string.h>

#include "sbtest.h"

/* dst[x . dst_stride] = src[x . src_stride], one element at a time. */
static void naive_copy(const sb_strided *c, char *dst, const char *src)
{
    int64_t x[SB_MAX_RANK] = {0};

    for (int i = 0; i < c->rank; i++)
        if (c->dims[i] == 0)
            return;
    for (;;) {
        int64_t to = 0, from = 0;
        for (int i = 0; i < c->rank; i++) {
            to += x[i] * c->dst_stride[i];
            from += x[i] * c->src_stride[i];
        }
        memcpy(dst + to * (int64_t)c->elem, src + from * (int64_t)c->elem,
               c->elem);
        int i = c->rank - 1;
        while (i >= 0 && ++x[i] == c->dims[i])
            x[i--] = 0;
        if (i < 0)
            return;
    }
}

static int64_t below(uint64_t *seed, int64_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*seed >> 33) % (uint64_t)n);
}

/* A random transposition, some axes reversed, some repeated, some padded in
 * the destination.  Returns the offset of the first source element. */
static int64_t random_layout(uint64_t *seed, sb_strided *c, int64_t *n_src,
                             int64_t *n_dst)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16};
    int perm[SB_MAX_RANK];
    int64_t offset = 0;

    *c = (sb_strided){.rank = (int)below(seed, 6),
                      .elem = sizes[below(seed, 5)]};
    int64_t most = c->rank < 3 ? 150 : c->rank == 3 ? 40 : 9;
    *n_src = *n_dst = 1;
    for (int i = 0; i < c->rank; i++) {
        int j = (int)below(seed, i + 1);
        perm[i] = perm[j];
        perm[j] = i;
        c->dims[i] = below(seed, 40) == 0 ? 0 : 1 + below(seed, most);
    }
    for (int i = c->rank - 1; i >= 0; i--) {
        int a = perm[i];
        c->dst_stride[i] = *n_dst;
        *n_dst *= c->dims[i] + below(seed, 3);
        switch (below(seed, 5)) {
        case 0: /* repeated: takes no room in the source */
            c->src_stride[a] = 0;
            break;
        case 1:
            c->src_stride[a] = -*n_src;
            offset += *n_src * (c->dims[a] > 0 ? c->dims[a] - 1 : 0);
            *n_src *= c->dims[a];
            break;
        default:
            c->src_stride[a] = *n_src;
            *n_src *= c->dims[a];
        }
    }
    return offset;
}

static void test_random_layouts(void **state)
{
    (void)state;
    uint64_t seed = 7;

    for (int round = 0; round < 600; round++) {
        sb_strided c;
        int64_t n_src = 0, n_dst = 0;
        int64_t offset = random_layout(&seed, &c, &n_src, &n_dst);
        size_t src_bytes = (size_t)n_src * c.elem;
        size_t dst_bytes = (size_t)n_dst * c.elem;
        char *src = malloc(src_bytes + 1), *want = calloc(1, dst_bytes + 1);
        char *got = calloc(1, dst_bytes + 1);

        for (size_t i = 0; i < src_bytes; i++)
            src[i] = (char)below(&seed, 256);
        naive_copy(&c, want, src + offset * (int64_t)c.elem);
        sb_ctx_set_threads(test_ctx(), 1 + round % 3);
        sb_strided_copy(test_ctx(), &c, got, src + offset * (int64_t)c.elem);
        if (memcmp(got, want, dst_bytes) != 0)
            fail_msg("round %d: rank %d, element size %zu", round, c.rank,
                     c.elem);
        free(src);
        free(want);
        free(got);
    }
}

/* Large enough for several threads and many tiles. */
static void test_large_transpose(void **state)
{
    (void)state;
    const int64_t rows = 700, cols = 517;
    float *x = malloc((size_t)(rows * cols) * sizeof *x);
    float *y = malloc((size_t)(rows * cols) * sizeof *y);
    const int64_t dims[] = {cols, rows};
    sb_strided c = sb_strided_to(sizeof *x, 2, dims);

    c.src_stride[0] = 1;
    c.src_stride[1] = cols;
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = (float)i;
    for (int threads = 1; threads <= 4; threads += 3) {
        memset(y, 0, (size_t)(rows * cols) * sizeof *y);
        sb_ctx_set_threads(test_ctx(), threads);
        sb_strided_copy(test_ctx(), &c, y, x);
        for (int64_t i = 0; i < cols; i++)
            for (int64_t j = 0; j < rows; j++)
                assert_true(y[i * rows + j] == x[j * cols + i]);
    }
    free(x);
    free(y);
}

static void test_scalar_and_empty(void **state)
{
    (void)state;
    uint16_t x = 7, y = 0;
    sb_strided scalar = {.rank = 0, .elem = 2};
    sb_strided empty = {.rank = 2, .elem = 2, .dims = {3, 0}};

    sb_strided_copy(test_ctx(), &scalar, &y, &x);
    assert_int_equal(y, 7);
    sb_strided_copy(test_ctx(), &empty, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_layouts),
        cmocka_unit_test(test_large_transpose),
        cmocka_unit_test(test_scalar_and_empty),
    };
    return cmocka_run_group_tests_name("strided_copy", tests, NULL, NULL);
}
