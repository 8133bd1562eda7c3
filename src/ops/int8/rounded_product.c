/* Products of rounded matrices by integers; see rounded_product.h.
 *
 * FakeQuant's results are round(clamp(x / scale, qmin - zero, qmax - zero))
 * times scale, and finite whatever x is, so that a division gives the whole
 * numbers back.  Those of a become unsigned bytes, counted from the least one,
 * `low`; those of b signed ones.  What `low` times the sum of a column is, is
 * added at the end.
 *
 *     a: some rows at a time, [row][k / 4][4]
 *     b: panels of PANEL columns, [k / 4][PANEL][4]
 */
#include "ops/int8/rounded_product.h"

#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/quantized/quant_util.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define ROUNDED_VNNI 1
#endif

enum {
    TILE_ROWS = 12,
    PANEL = 32,
    ROWS = 5 * TILE_ROWS, /* that are made bytes at once */
    LEAST = 16,           /* rows and columns, below which floats are as fast */
    K_MOST = 1 << 16,     /* 255 * 128 * k is below 2^31 */
};

typedef struct rounded_job {
    const sb_rounded_product *p;
    int64_t quads; /* k / 4, rounded up */
    float low;     /* the least whole number in a */
    int8_t *b;     /* panels */
    int32_t *sums; /* of the columns, times low */
    float *scales; /* of a times that of the column */
    float *bias;
    uint8_t *a; /* ROWS rows for each thread */
} rounded_job;

static int64_t rounded_quads(int64_t k)
{
    return (k + 3) / 4;
}

static int64_t rounded_columns(int64_t n)
{
    return (n + PANEL - 1) / PANEL * PANEL;
}

bool sb_rounded_product_suits(int64_t m, int64_t n, int64_t k)
{
#ifdef ROUNDED_VNNI
    return m >= LEAST && n >= LEAST && k >= LEAST && k < K_MOST &&
           __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512bw");
#else
    (void)m, (void)n, (void)k;
    return false;
#endif
}

size_t sb_rounded_product_scratch(size_t lanes, int64_t n, int64_t k)
{
    size_t row = (size_t)rounded_quads(k) * 4;
    size_t columns = (size_t)rounded_columns(n);

    return columns * (row + sizeof(int32_t) + 2 * sizeof(float)) +
           lanes * ROWS * row;
}

/* ---- do the numbers fit? ------------------------------------------------- */

static bool rounding_fits(const sb_rounding *r, float least, float most)
{
    for (int64_t i = 0; i < r->n; i++) {
        float lo = sb_round_even(r->qmin - r->zero[i]);
        float hi = sb_round_even(r->qmax - r->zero[i]);

        if (!(fabsf(r->scale[i]) > 1e-30f && fabsf(r->scale[i]) < 1e30f) ||
            !(lo >= least && hi <= most))
            return false;
    }
    return true;
}

/* ---- bytes --------------------------------------------------------------- */

static inline float rounded_whole(float x, float scale)
{
    return sb_round_even(x / scale);
}

/* Columns [first, first + PANEL) of b; beyond the last, zeros. */
static void rounded_panel(const rounded_job *job, int64_t first)
{
    const sb_rounded_product *p = job->p;
    int8_t *out = job->b + first * job->quads * 4;
    int64_t count = p->n - first < PANEL ? p->n - first : PANEL;

    memset(out, 0, (size_t)(job->quads * 4 * PANEL));
    for (int64_t j = 0; j < count; j++) {
        float scale = p->b_from.scale[p->b_from.n == 1 ? 0 : first + j];
        const float *b = p->b + (first + j) * p->b_col;
        int32_t sum = 0;

        for (int64_t l = 0; l < p->k; l++) {
            float v = rounded_whole(b[l * p->b_row], scale);
            int8_t code = (int8_t)(v > -128 ? v < 127 ? v : 127 : -128);

            out[(l / 4 * PANEL + j) * 4 + l % 4] = code;
            sum += code;
        }
        job->sums[first + j] = sum * (int32_t)job->low;
        job->scales[first + j] = scale * p->a_from.scale[0];
        job->bias[first + j] = p->bias ? p->bias[first + j] : 0;
    }
}

static void rounded_panels(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        rounded_panel(arg, (int64_t)i * PANEL);
}

SB_HOT static void rounded_row(const float *a, int64_t k, float scale,
                               float low, uint8_t *out)
{
    SB_SIMD
    for (int64_t l = 0; l < k; l++) {
        float v = rounded_whole(a[l], scale) - low;

        v = v > 0 ? v : 0;
        out[l] = (uint8_t)(int32_t)(v < 255 ? v : 255);
    }
}

/* ---- the product --------------------------------------------------------- */

#ifdef ROUNDED_VNNI
/* Sums by name, two for each row: gcc 12 keeps an array of so many in memory,
 * and copies every sum before the builtin of this instruction adds to it. */
#define ROUNDED_ADD(sum, x, b) \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(b));
#define EACH_ROW(f) \
    f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)
#define ROW_SUMS(r) __m512i s##r = zero, t##r = zero;
#define ROW_ADD(r)                                       \
    memcpy(&four, a + (r * quads + l) * 4, sizeof four); \
    x = _mm512_set1_epi32(four);                         \
    ROUNDED_ADD(s##r, x, b0)                             \
    ROUNDED_ADD(t##r, x, b1)
#define ROW_STORE(r)                            \
    _mm512_storeu_si512(out + r * PANEL, s##r); \
    _mm512_storeu_si512(out + r * PANEL + 16, t##r);

__attribute__((target("avx512f,avx512bw,avx512vnni"))) static void
rounded_tile(const uint8_t *a, const int8_t *b, int64_t quads, int32_t *out)
{
    const __m512i zero = _mm512_setzero_si512();
    int32_t four;
    __m512i x;

    EACH_ROW(ROW_SUMS)
    for (int64_t l = 0; l < quads; l++) {
        __m512i b0 = _mm512_loadu_si512(b + l * 4 * PANEL);
        __m512i b1 = _mm512_loadu_si512(b + l * 4 * PANEL + 64);

        EACH_ROW(ROW_ADD)
    }
    EACH_ROW(ROW_STORE)
}
#else
static void rounded_tile(const uint8_t *a, const int8_t *b, int64_t quads,
                         int32_t *out)
{
    (void)a, (void)b, (void)quads, (void)out;
}
#endif

/* A tile of y from its sums. */
SB_HOT static void rounded_finish(const rounded_job *job, const int32_t *tile,
                                  int64_t row, int64_t col)
{
    const sb_rounded_product *p = job->p;
    int64_t n = p->n - col < PANEL ? p->n - col : PANEL;
    int64_t m = p->m - row < TILE_ROWS ? p->m - row : TILE_ROWS;
    const int32_t *sums = job->sums + col;
    const float *scales = job->scales + col, *bias = job->bias + col;

    for (int64_t i = 0; i < m; i++, tile += PANEL) {
        float *y = p->y + (row + i) * p->n + col;

        if (p->add) {
            SB_SIMD
            for (int64_t j = 0; j < n; j++)
                y[j] =
                    (float)(tile[j] + sums[j]) * scales[j] + (y[j] + bias[j]);
        } else {
            SB_SIMD
            for (int64_t j = 0; j < n; j++)
                y[j] = (float)(tile[j] + sums[j]) * scales[j] + bias[j];
        }
    }
}

/* ROWS rows of y. */
static void rounded_rows(void *arg, size_t lane, size_t item)
{
    const rounded_job *job = arg;
    const sb_rounded_product *p = job->p;
    int64_t first = (int64_t)item * ROWS, row = job->quads * 4;
    int64_t count = p->m - first < ROWS ? p->m - first : ROWS;
    uint8_t *a = job->a + (int64_t)lane * ROWS * row;
    int32_t tile[TILE_ROWS * PANEL];

    memset(a, 0, (size_t)(ROWS * row));
    for (int64_t i = 0; i < count; i++)
        rounded_row(p->a + (first + i) * p->k, p->k, p->a_from.scale[0],
                    job->low, a + i * row);
    for (int64_t col = 0; col < p->n; col += PANEL)
        for (int64_t r = 0; r < count; r += TILE_ROWS) {
            rounded_tile(a + r * row, job->b + col * row, job->quads, tile);
            rounded_finish(job, tile, first + r, col);
        }
}

bool sb_rounded_product_run(sb_ctx *ctx, const sb_rounded_product *p)
{
    float low = sb_round_even(p->a_from.qmin - p->a_from.zero[0]);
    size_t columns = (size_t)rounded_columns(p->n);
    rounded_job job = {.p = p, .quads = rounded_quads(p->k), .low = low};

    if (!rounding_fits(&p->a_from, low, low + 255) ||
        !(low <= 0 && low > -256) || !rounding_fits(&p->b_from, -128, 127))
        return false;
    job.scales = p->scratch;
    job.bias = job.scales + columns;
    job.sums = (int32_t *)(void *)(job.bias + columns);
    job.b = (int8_t *)(job.sums + columns);
    job.a = (uint8_t *)job.b + columns * (size_t)job.quads * 4;
    sb_parallel_for(ctx, columns / PANEL, 1, rounded_panels, &job);
    sb_parallel_lanes(ctx, (size_t)((p->m + ROWS - 1) / ROWS), p->lanes,
                      rounded_rows, &job);
    return true;
}
