/* Products of bfloat16, by AVX-512's dot products of pairs where there are any.
 *
 * Six rows and a panel of 64 columns are summed up in registers over all of k;
 * blocks of rows and panels, which depend on sizes alone, are what threads
 * share. */
#include "dnn/bf16_product.h"

#include <string.h>

#include "base/alloc.h"
#include "base/simd.h"
#include "base/threads.h"
#include "dnn/dnn_prim.h"

enum {
    TILE_ROWS = 6,
    BLOCK_ROWS = 96, /* of one piece of work */
    ROW_GRAIN = 8,
};

/* Sums of a tile, [TILE_ROWS, SB_BF16_PANEL] with rows `out_row` apart; `step`
 * is between the pairs of a row. */
typedef void (*tile_fn)(const uint32_t *const *rows, int64_t step,
                        const uint32_t *b, int64_t pairs, float *out,
                        int64_t out_row);

static float bf16_float(uint32_t half)
{
    uint32_t bits = half << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static void tile_plain(const uint32_t *const *rows, int64_t step,
                       const uint32_t *b, int64_t pairs, float *out,
                       int64_t out_row)
{
    for (int r = 0; r < TILE_ROWS; r++)
        memset(out + r * out_row, 0, SB_BF16_PANEL * sizeof *out);
    for (int64_t t = 0; t < pairs; t++, b += SB_BF16_PANEL)
        for (int r = 0; r < TILE_ROWS; r++)
            for (int c = 0; c < SB_BF16_PANEL; c++)
                out[r * out_row + c] +=
                    bf16_float(rows[r][t * step]) * bf16_float(b[c]) +
                    bf16_float(rows[r][t * step] >> 16) *
                        bf16_float(b[c] >> 16);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

__attribute__((target("avx512f,avx512bw,avx512bf16"))) static void
tile_avx512(const uint32_t *const *rows, int64_t step, const uint32_t *b,
            int64_t pairs, float *out, int64_t out_row)
{
    enum { VECTORS = SB_BF16_PANEL / 16 };
    __m512 sum[TILE_ROWS][VECTORS];

    for (int r = 0; r < TILE_ROWS; r++)
        for (int j = 0; j < VECTORS; j++)
            sum[r][j] = _mm512_setzero_ps();
    for (int64_t t = 0; t < pairs; t++, b += SB_BF16_PANEL) {
        __m512i v[VECTORS];

        for (int j = 0; j < VECTORS; j++)
            v[j] = _mm512_loadu_si512(b + 16 * j);
        for (int r = 0; r < TILE_ROWS; r++) {
            __m512i x = _mm512_set1_epi32((int)rows[r][t * step]);

            for (int j = 0; j < VECTORS; j++)
                sum[r][j] =
                    _mm512_dpbf16_ps(sum[r][j], (__m512bh)x, (__m512bh)v[j]);
        }
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int j = 0; j < VECTORS; j++)
            _mm512_storeu_ps(out + r * out_row + 16 * j, sum[r][j]);
}

bool sb_bf16_is_fast(void)
{
    return __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512bw");
}

static tile_fn tile_choose(void)
{
    return sb_bf16_is_fast() ? tile_avx512 : tile_plain;
}
#else
bool sb_bf16_is_fast(void)
{
    return false;
}

static tile_fn tile_choose(void)
{
    return tile_plain;
}
#endif

/* ---- rounding ----------------------------------------------------------- */

/* To nearest, ties to even; the upper half of the bits.  NaN stays one. */
static inline uint32_t bf16_round(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    uint32_t rounded = u + 0x7fff + (u >> 16 & 1);
    return ((u & 0x7fffffff) > 0x7f800000 ? u | 0x400000 : rounded) >> 16;
}

static int64_t bf16_panels(int64_t n)
{
    return (n + SB_BF16_PANEL - 1) / SB_BF16_PANEL;
}

bool sb_bf16_bytes(int64_t k, int64_t n, size_t *bytes)
{
    return sb_mul_size((size_t)sb_bf16_pairs(k) * sizeof(uint32_t),
                       (size_t)bf16_panels(n), bytes) &&
           sb_mul_size(*bytes, SB_BF16_PANEL, bytes);
}

typedef struct pack_job {
    const sb_bf16_source *from;
    uint32_t *to;
} pack_job;

/* A pair of each of n columns, the second NULL behind the last row. */
SB_HOT static void pack_pair(const float *first, const float *second, int64_t n,
                             uint32_t *to)
{
    if (!second) {
        for (int64_t c = 0; c < n; c++)
            to[c] = bf16_round(first[c]);
        return;
    }
    SB_SIMD
    for (int64_t c = 0; c < n; c++)
        to[c] = bf16_round(first[c]) | bf16_round(second[c]) << 16;
}

/* Items are panels. */
static void pack_panels(void *arg, size_t begin, size_t end)
{
    const pack_job *j = arg;
    const sb_bf16_source *s = j->from;
    int64_t pairs = sb_bf16_pairs(s->k);

    for (int64_t p = (int64_t)begin; p < (int64_t)end; p++) {
        int64_t first = p * SB_BF16_PANEL, n = s->n - first;
        uint32_t *to = j->to + p * pairs * SB_BF16_PANEL;

        n = n < SB_BF16_PANEL ? n : SB_BF16_PANEL;
        for (int64_t t = 0; t < pairs; t++, to += SB_BF16_PANEL) {
            const float *x = s->x + first * s->col + 2 * t * s->row;
            bool both = 2 * t + 1 < s->k;

            memset(to + n, 0, (size_t)(SB_BF16_PANEL - n) * sizeof *to);
            if (s->col == 1)
                pack_pair(x, both ? x + s->row : NULL, n, to);
            for (int64_t c = 0; c < n && s->col != 1; c++)
                to[c] = bf16_round(x[c * s->col]) |
                        (both ? bf16_round(x[c * s->col + s->row]) << 16 : 0);
        }
    }
}

void sb_bf16_pack(sb_ctx *ctx, const sb_bf16_source *from, uint32_t *to)
{
    pack_job job = {from, to};

    sb_parallel_for(ctx, (size_t)bf16_panels(from->n), 1, pack_panels, &job);
}

typedef struct row_job {
    const float *x;
    int64_t row, k;
    uint32_t *to;
} row_job;

SB_HOT static void round_row(const float *x, int64_t k, uint32_t *to)
{
    SB_SIMD
    for (int64_t t = 0; t < k / 2; t++)
        to[t] = bf16_round(x[2 * t]) | bf16_round(x[2 * t + 1]) << 16;
    if (k % 2 != 0)
        to[k / 2] = bf16_round(x[k - 1]);
}

static void round_rows(void *arg, size_t begin, size_t end)
{
    const row_job *j = arg;
    int64_t pairs = sb_bf16_pairs(j->k);

    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++)
        round_row(j->x + i * j->row, j->k, j->to + i * pairs);
}

void sb_bf16_rows(sb_ctx *ctx, const float *x, int64_t row, int64_t m,
                  int64_t k, uint32_t *to)
{
    row_job job = {x, row, k, to};

    sb_parallel_for(ctx, (size_t)m, ROW_GRAIN, round_rows, &job);
}

/* ---- products ----------------------------------------------------------- */

SB_HOT static void put_row(const float *sum, const float *bias, bool add,
                           int64_t n, float *c)
{
    for (int64_t j = 0; j < n; j++)
        c[j] = sum[j] + (add ? c[j] : 0) + (bias ? bias[j] : 0);
}

static const uint32_t *row_of(const sb_bf16_product *p, int64_t i)
{
    int64_t pairs = sb_bf16_pairs(p->k);

    return p->a_panels ? p->a + i / SB_BF16_PANEL * pairs * SB_BF16_PANEL +
                             i % SB_BF16_PANEL
                       : p->a + i * pairs;
}

static void multiply_block(const sb_bf16_product *p, int64_t first,
                           int64_t last, int64_t panel)
{
    int64_t pairs = sb_bf16_pairs(p->k), col = panel * SB_BF16_PANEL;
    int64_t n = p->n - col < SB_BF16_PANEL ? p->n - col : SB_BF16_PANEL;
    float sum[TILE_ROWS * SB_BF16_PANEL];
    const uint32_t *rows[TILE_ROWS];
    tile_fn tile = tile_choose();

    for (int64_t i = first; i < last; i += TILE_ROWS) {
        int64_t m = last - i < TILE_ROWS ? last - i : TILE_ROWS;

        if (p->upper && i >= col + n)
            break;
        for (int64_t r = 0; r < TILE_ROWS; r++)
            rows[r] = row_of(p, i + (r < m ? r : m - 1));
        float *c = p->c + i * p->c_row + col;
        /* Nothing to add, and room for all of it: where it belongs. */
        bool direct =
            !p->add && !p->bias && m == TILE_ROWS && n == SB_BF16_PANEL;

        tile(rows, p->a_panels ? SB_BF16_PANEL : 1,
             p->b + panel * pairs * SB_BF16_PANEL, pairs, direct ? c : sum,
             direct ? p->c_row : SB_BF16_PANEL);
        for (int64_t r = 0; r < m; r++, c += p->c_row) {
            if (!direct)
                put_row(sum + r * SB_BF16_PANEL, p->bias ? p->bias + col : NULL,
                        p->add, n, c);
            sb_dnn_posts_row(p->posts, p->n_posts, c, (size_t)n);
        }
    }
}

/* Items are blocks of rows for each panel. */
static void multiply_blocks(void *arg, size_t begin, size_t end)
{
    const sb_bf16_product *p = arg;
    int64_t blocks = (p->m + BLOCK_ROWS - 1) / BLOCK_ROWS;

    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++) {
        int64_t first = i % blocks * BLOCK_ROWS, last = first + BLOCK_ROWS;

        multiply_block(p, first, last < p->m ? last : p->m, i / blocks);
    }
}

void sb_bf16_multiply(sb_ctx *ctx, const sb_bf16_product *p)
{
    sb_bf16_product job = *p;
    int64_t blocks = (p->m + BLOCK_ROWS - 1) / BLOCK_ROWS;

    sb_parallel_for(ctx, (size_t)(blocks * bf16_panels(p->n)), 1,
                    multiply_blocks, &job);
}
