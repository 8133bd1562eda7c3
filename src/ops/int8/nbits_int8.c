/* Packed weights times rounded activations: rounding, plain loops, threads. */
#include "ops/int8/nbits_int8.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "tensor/tensor.h"

enum { CHUNK = 32, GROUP = 4 };

/* ---- sizes -------------------------------------------------------------- */

bool sb_nbits_int8_ok(int64_t bits, int64_t block)
{
    return (bits == 4 && block % 32 == 0) ||
           (bits == 8 && (block % 32 == 0 || block == 16));
}

sb_nbits_shape sb_nbits_shape_of(int64_t bits, int64_t block, int64_t k)
{
    sb_nbits_shape s = {.chunk = block < CHUNK ? block : CHUNK};

    s.per_block = block / s.chunk;
    s.chunks = (k + block - 1) / block * s.per_block;
    s.group = bits == 4 ? GROUP : 64 / s.chunk; /* 64 bytes of weights */
    s.groups = (s.chunks + s.group - 1) / s.group;
    return s;
}

static size_t aligned_bytes(size_t bytes)
{
    return (bytes + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
}

static size_t codes_bytes(const sb_nbits_shape *s, int64_t rows)
{
    return aligned_bytes((size_t)(rows * s->groups * s->group * s->chunk));
}

static size_t floats_bytes(const sb_nbits_shape *s, int64_t rows)
{
    return aligned_bytes((size_t)(rows * s->groups * s->group) * sizeof(float));
}

size_t sb_nbits_acts_bytes(const sb_nbits_shape *s, int64_t rows)
{
    return codes_bytes(s, rows) + 2 * floats_bytes(s, rows) +
           (size_t)(rows * s->groups * SB_NBITS_LANES) * sizeof(float);
}

/* ---- activations -------------------------------------------------------- */

SB_HOT static float largest_of(const float *x, int64_t n)
{
    float most = 0;
    int odd = 0;

    for (int64_t i = 0; i < n; i++) {
        float v = fabsf(x[i]);
        most = v > most ? v : most;
        odd |= !(v <= FLT_MAX);
    }
    return odd ? NAN : most;
}

/* Where element i of chunk c of a group is. */
static int64_t place_of(const sb_nbits_shape *s, int64_t bits, int64_t c,
                        int64_t i)
{
    if (bits == 8)
        return c * s->chunk + i;
    int64_t half = s->chunk / 2;
    return i % 2 * s->group * half + c * half + i / 2;
}

/* Codes of a whole chunk; adding and taking away 1.5 * 2^23 rounds as rintf
 * does. */
SB_HOT static int32_t round_codes(const float *x, float by, int64_t n,
                                  int8_t *out)
{
    const float magic = 12582912.0f;
    int32_t sum = 0;

    for (int64_t i = 0; i < n; i++) {
        int32_t q = (int32_t)((x[i] * by + magic) - magic);

        out[i] = (int8_t)q;
        sum += q;
    }
    return sum;
}

static void round_chunk(const float *x, int64_t n, const sb_nbits_shape *s,
                        int64_t bits, int64_t c, int8_t *group, float *scale,
                        float *sum)
{
    float most = largest_of(x, n), by = most > 0 ? 127 / most : 0;
    int8_t codes[CHUNK] = {0};

    if (!isfinite(by))
        by = 0;
    /* What is not finite stays so in the result. */
    *scale = isfinite(most) ? most / 127 : most;
    *sum = *scale * (float)(by > 0 ? round_codes(x, by, n, codes) : 0);
    if (bits == 8) {
        memcpy(group + c * s->chunk, codes, (size_t)s->chunk);
        return;
    }
    int64_t half = s->chunk / 2;
    int8_t *even = group + c * half, *odd = even + s->group * half;
    for (int64_t i = 0; i < half; i++) {
        even[i] = codes[2 * i];
        odd[i] = codes[2 * i + 1];
    }
}

typedef struct round_job {
    const sb_nbits_weights *w;
    const sb_nbits_acts *a;
    const float *x;
} round_job;

static void round_rows(void *arg, size_t begin, size_t end)
{
    const round_job *job = arg;
    const sb_nbits_shape *s = &job->a->shape;
    int64_t all = s->groups * s->group, k = job->w->k;

    for (size_t m = begin; m < end; m++) {
        const float *x = job->x + (int64_t)m * k;
        int8_t *codes = job->a->codes + (int64_t)m * all * s->chunk;
        float *scales = job->a->scales + (int64_t)m * all;
        float *sums = job->a->sums + (int64_t)m * all;
        float *wide = job->a->wide + (int64_t)m * s->groups * SB_NBITS_LANES;

        for (int64_t c = 0; c < all; c++) {
            int64_t at = c * s->chunk;
            int64_t n = at >= k ? 0 : k - at < s->chunk ? k - at : s->chunk;

            round_chunk(n ? x + at : x, n, s, job->w->bits, c % s->group,
                        codes + c / s->group * s->group * s->chunk, &scales[c],
                        &sums[c]);
        }
        for (int64_t i = 0; i < s->groups * SB_NBITS_LANES; i++)
            wide[i] = scales[i * s->group / SB_NBITS_LANES];
    }
}

/* ---- plain loops -------------------------------------------------------- */

static int code_at(const uint8_t *row, int64_t i, int64_t bits)
{
    return bits == 8 ? row[i] : row[i / 2] >> (i % 2 * 4) & 15;
}

static void dot_plain(const sb_nbits_weights *w, int64_t n,
                      const sb_nbits_acts *a, int64_t m, float *out)
{
    const sb_nbits_shape *s = &a->shape;
    int64_t all = s->groups * s->group;
    const uint8_t *row = w->codes + n * w->n_block * w->block * w->bits / 8;
    float sum = 0;

    for (int64_t c = 0; c < s->chunks; c++) {
        const int8_t *x =
            a->codes + (m * all + c / s->group * s->group) * s->chunk;
        int64_t block = c / s->per_block;
        float zero = sb_nbits_zero(w, n, block);
        int32_t dot = 0;

        for (int64_t i = 0; i < s->chunk; i++)
            dot += code_at(row, c * s->chunk + i, w->bits) *
                   x[place_of(s, w->bits, c % s->group, i)];
        sum +=
            w->scales[n * w->n_block + block] *
            (a->scales[m * all + c] * (float)dot - zero * a->sums[m * all + c]);
    }
    *out = sum;
}

static void plain_tile(const sb_nbits_weights *w, int64_t n, int64_t cols,
                       const sb_nbits_acts *a, int64_t m, int64_t rows,
                       float *out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            dot_plain(w, n + c, a, m + r, out + r * SB_NBITS_COLS + c);
}

/* ---- all of it ---------------------------------------------------------- */

typedef struct nbits_job {
    const sb_nbits_weights *w;
    const sb_nbits_acts *a;
    const float *bias;
    float *y;
    int64_t m;
    sb_nbits_fn fn;
} nbits_job;

/* Some rows of weights at a time, which stay in the cache for all
 * activations. */
static void nbits_range(void *arg, size_t begin, size_t end)
{
    const nbits_job *job = arg;

    for (size_t i = begin; i < end; i++) {
        int64_t n = (int64_t)i * SB_NBITS_COLS, left = job->w->n - n;
        int64_t cols = left < SB_NBITS_COLS ? left : SB_NBITS_COLS;

        for (int64_t m = 0; m < job->m; m += SB_NBITS_ROWS) {
            int64_t rows =
                job->m - m < SB_NBITS_ROWS ? job->m - m : SB_NBITS_ROWS;
            float out[SB_NBITS_ROWS * SB_NBITS_COLS];

            job->fn(job->w, n, cols, job->a, m, rows, out);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < cols; c++)
                    job->y[(m + r) * job->w->n + n + c] =
                        out[r * SB_NBITS_COLS + c] +
                        (job->bias ? job->bias[n + c] : 0);
        }
    }
}

static bool suits_all(const sb_nbits_shape *s)
{
    (void)s;
    return true;
}

static const sb_nbits_kernel plain = {"plain", suits_all, plain_tile};

const sb_nbits_kernel *sb_nbits_kernel_at(size_t i)
{
    const sb_nbits_kernel *own = sb_nbits_kernel_x86(i);

    if (own)
        return own;
    return i == 0 || sb_nbits_kernel_x86(i - 1) ? &plain : NULL;
}

void sb_nbits_int8_run_with(sb_ctx *ctx, const sb_nbits_kernel *kernel,
                            const sb_nbits_weights *w, const float *a,
                            int64_t m, const float *bias, float *y, void *room)
{
    sb_nbits_acts acts = {.shape = sb_nbits_shape_of(w->bits, w->block, w->k)};
    nbits_job job = {
        .w = w, .a = &acts, .bias = bias, .y = y, .m = m, .fn = kernel->fn};
    round_job rounding = {w, &acts, a};
    char *p = room;

    acts.codes = room;
    acts.scales = (float *)(void *)(p + codes_bytes(&acts.shape, m));
    acts.sums = (float *)(void *)(p + codes_bytes(&acts.shape, m) +
                                  floats_bytes(&acts.shape, m));
    acts.wide =
        (float *)(void *)((char *)acts.sums + floats_bytes(&acts.shape, m));
    sb_parallel_for(ctx, (size_t)m, (size_t)(4096 / (w->k + 1) + 1), round_rows,
                    &rounding);
    sb_parallel_for(ctx, (size_t)((w->n + SB_NBITS_COLS - 1) / SB_NBITS_COLS),
                    (size_t)(32768 / (SB_NBITS_COLS * w->k * m + 1) + 1),
                    nbits_range, &job);
}

void sb_nbits_int8_run(sb_ctx *ctx, const sb_nbits_weights *w, const float *a,
                       int64_t m, const float *bias, float *y, void *room)
{
    sb_nbits_shape s = sb_nbits_shape_of(w->bits, w->block, w->k);
    size_t i = 0;

    while (!sb_nbits_kernel_at(i)->suits(&s))
        i++;
    sb_nbits_int8_run_with(ctx, sb_nbits_kernel_at(i), w, a, m, bias, y, room);
}
