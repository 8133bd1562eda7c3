/* Packed weights times rounded activations on AVX-512 VNNI: a group at a time,
 * whose planes are vectors. */
#include "ops/int8/nbits_int8.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <string.h>

#define VNNI_TARGET \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,fma,avx2")))
#define VNNI_INLINE __attribute__((always_inline)) static inline VNNI_TARGET

/* How the lanes of a group find their scales. */
typedef enum vnni_kind {
    KIND_EACH,  /* a block for each chunk of 32, no zero points */
    KIND_ONE,   /* one block for a group or more, no zero points */
    KIND_ZEROS, /* a block for each chunk of 32, zero points are floats */
    KIND_INDEX, /* any other number of blocks that is the same in all groups */
    KINDS
} vnni_kind;

/* What a tile is computed with: local variables wherever this is inlined, and
 * bits, kind, cols and rows are constants. */
typedef struct vnni_tile {
    const sb_nbits_weights *w;
    const sb_nbits_acts *a;
    int64_t n, m;
    int bits, cols, rows;
    vnni_kind kind;
    __m512i index, shifts; /* of the lanes' blocks, of packed zero points */
    int64_t count, shift;  /* of sb_nbits_blocks */
    int64_t row, n_block, groups;
    const uint8_t *codes; /* of row n */
    const float *scales;
    const int8_t *act_codes; /* of row m */
    const float *act_scales;
    const int32_t *act_starts;
} vnni_tile;

VNNI_INLINE int vnni_planes(int bits)
{
    return bits == 2 ? 4 : bits == 8 ? 1 : 2;
}

/* 48 bytes as 64 pairs of 3-bit codes, a pair to a byte.  Each 16-bit lane gets
 * the two bytes its pair is in, and moves it up and down again. */
VNNI_INLINE __m512i vnni_pairs(__m512i v)
{
    const __m512i spread =
        _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
    const __m512i first = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 1, 0, 1, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6));
    const __m512i down = _mm512_set1_epi64((int64_t)0x0002000400060000);
    const __m512i mask = _mm512_set1_epi16(63);

    v = _mm512_permutexvar_epi32(spread, v);
    __m512i a = _mm512_shuffle_epi8(v, first);
    __m512i b =
        _mm512_shuffle_epi8(v, _mm512_add_epi8(first, _mm512_set1_epi8(6)));
    return _mm512_packus_epi16(
        _mm512_and_si512(_mm512_srlv_epi16(a, down), mask),
        _mm512_and_si512(_mm512_srlv_epi16(b, down), mask));
}

VNNI_INLINE void vnni_codes(const uint8_t *p, __mmask64 bytes, int bits,
                            __m512i out[4])
{
    const __m512i mask = _mm512_set1_epi8((char)((1 << bits) - 1));
    __m512i v = _mm512_maskz_loadu_epi8(bytes, p);

    if (bits == 3)
        v = vnni_pairs(v);
    out[0] = bits == 8 ? v : _mm512_and_si512(v, mask);
    if (bits == 3)
        out[1] = _mm512_and_si512(_mm512_srli_epi16(v, 3), mask);
    if (bits == 4)
        out[1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
    if (bits == 2) {
        out[1] = _mm512_and_si512(_mm512_srli_epi16(v, 2), mask);
        out[2] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
        out[3] = _mm512_and_si512(_mm512_srli_epi16(v, 6), mask);
    }
}

/* The floats of a group's blocks, as many as are there, each in the lanes of
 * its block. */
VNNI_INLINE __m512 vnni_spread(const vnni_tile *t, const float *x,
                               int64_t count, int64_t left)
{
    unsigned some = (1u << (left < count ? left : count)) - 1;
    __m512 v;

    if (count == 1)
        return _mm512_set1_ps(*x);
    if (count <= 4)
        v = _mm512_castps128_ps512(_mm_maskz_loadu_ps((__mmask8)some, x));
    else
        v = _mm512_maskz_loadu_ps((__mmask16)some, x);
    return _mm512_permutexvar_ps(t->index, v);
}

/* Packed zero points of a group are in 32 bits. */
VNNI_INLINE __m512 vnni_zero_bits(const vnni_tile *t, int64_t n, int64_t block)
{
    const sb_nbits_weights *w = t->w;
    int64_t row = (w->n_block * w->bits + 7) / 8, bit = block * w->bits;
    int64_t left = (w->n - n) * row - bit / 8;
    const uint8_t *from = w->zero_bits + n * row + bit / 8;
    uint32_t word = 0;

    if (left >= 4)
        memcpy(&word, from, 4);
    else
        for (int64_t i = 0; i < left; i++)
            word |= (uint32_t)from[i] << (8 * i);
    __m512i v = _mm512_srlv_epi32(
        _mm512_set1_epi32((int)(word >> (unsigned)(bit % 8))), t->shifts);
    return _mm512_cvtepi32_ps(
        _mm512_and_si512(v, _mm512_set1_epi32((1 << w->bits) - 1)));
}

VNNI_INLINE void vnni_scales(const vnni_tile *t, int c, int64_t g, bool last,
                             __m512 *scale, __m512 *zero)
{
    const sb_nbits_weights *w = t->w;
    int64_t count = t->kind == KIND_ONE     ? 1
                    : t->kind == KIND_INDEX ? t->count
                                            : 2 * vnni_planes(t->bits);
    int64_t block = g * count >> t->shift, at = c * t->n_block + block;
    int64_t left = last ? t->n_block - block : count;
    *scale = vnni_spread(t, t->scales + at, count, left);
    if (t->kind == KIND_EACH || t->kind == KIND_ONE)
        return;
    *zero = t->kind == KIND_ZEROS || w->zeros
                ? vnni_spread(t, w->zeros + t->n * t->n_block + at, count, left)
            : w->zero_bits ? vnni_zero_bits(t, t->n + c, block)
                           : _mm512_set1_ps((float)(1 << (t->bits - 1)));
}

/* The rows behind these ones, while these are multiplied: a single row of
 * activations waits for memory, which is fastest read in the order in which it
 * lies.  Long rows would push others out of the first cache. */
VNNI_INLINE void vnni_prefetch(const vnni_tile *t, int64_t g, int64_t size)
{
    enum { LONG_ROW = 1024 };
    const int64_t at = g * t->cols;
    const uint8_t *codes = t->codes + t->cols * t->row + at * size;
    const float *scales =
        t->scales + t->cols * t->n_block + (at * t->count >> t->shift);

    _mm_prefetch((const void *)scales, _MM_HINT_T0);
    for (int c = 0; c < t->cols; c++, codes += size)
        if (t->row <= LONG_ROW)
            _mm_prefetch((const void *)codes, _MM_HINT_T0);
        else
            _mm_prefetch((const void *)codes, _MM_HINT_T1);
}

VNNI_INLINE void vnni_group(const vnni_tile *t, int64_t g, bool last,
                            __m512 acc[SB_NBITS_ROWS][SB_NBITS_COLS])
{
    const int planes = vnni_planes(t->bits);
    const bool middle = t->kind == KIND_EACH || t->kind == KIND_ONE;
    const int64_t size = (int64_t)planes * t->bits * 8;
    const int64_t here = last ? t->row - g * size : size;
    const __mmask64 bytes =
        here == 64 ? ~(__mmask64)0 : ((__mmask64)1 << here) - 1;

    for (int c = 0; c < t->cols; c++) {
        __m512 scale, zero;
        __m512i codes[4];

        vnni_codes(t->codes + c * t->row + g * size, bytes, t->bits, codes);
        vnni_scales(t, c, g, last, &scale, &zero);
        for (int r = 0; r < t->rows; r++) {
            int64_t at = r * t->groups + g, lane = at * SB_NBITS_LANES;
            const int8_t *x = t->act_codes + at * planes * SB_NBITS_PLANE;
            __m512i d = middle ? _mm512_loadu_si512(t->act_starts + lane)
                               : _mm512_setzero_si512();

            for (int p = 0; p < planes; p++)
                d = _mm512_dpbusd_epi32(
                    d, codes[p], _mm512_loadu_si512(x + p * SB_NBITS_PLANE));
            __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(d),
                                     _mm512_loadu_ps(t->act_scales + lane));
            if (!middle)
                y = _mm512_fnmadd_ps(
                    zero,
                    _mm512_loadu_ps(t->a->sums +
                                    t->m * t->groups * SB_NBITS_LANES + lane),
                    y);
            acc[r][c] = _mm512_fmadd_ps(scale, y, acc[r][c]);
        }
    }
}

VNNI_INLINE void vnni_tile_run(vnni_tile t, float *out)
{
    const int planes = vnni_planes(t.bits);
    const int64_t size = (int64_t)planes * t.bits * 8, whole = t.row / size;
    const int64_t first = t.m * t.groups;
    __m512 acc[SB_NBITS_ROWS][SB_NBITS_COLS];

    t.codes = t.w->codes + t.n * t.row;
    t.scales = t.w->scales + t.n * t.n_block;
    t.act_codes = t.a->codes + first * planes * SB_NBITS_PLANE;
    t.act_scales = t.a->scales + first * SB_NBITS_LANES;
    t.act_starts = t.a->starts + first * SB_NBITS_LANES;
    for (int r = 0; r < t.rows; r++)
        for (int c = 0; c < t.cols; c++)
            acc[r][c] = _mm512_setzero_ps();
    for (int64_t g = 0; g < whole; g++) {
        if (t.rows == 1)
            vnni_prefetch(&t, g, size);
        vnni_group(&t, g, false, acc);
    }
    if (t.row % size)
        vnni_group(&t, whole, true, acc);
    for (int r = 0; r < t.rows; r++)
        for (int c = 0; c < t.cols; c++)
            out[r * SB_NBITS_COLS + c] = _mm512_reduce_add_ps(acc[r][c]);
}

/* `rows` of the tile's activations at a time. */
VNNI_INLINE void vnni_parts(const vnni_tile *t, int rows, float *out)
{
    vnni_tile part = *t;

    part.rows = rows;
    part.cols = SB_NBITS_COLS;
    for (int r = 0; r < t->rows; r += rows, part.m += rows)
        vnni_tile_run(part, out + r * SB_NBITS_COLS);
}

/* Loops of known length. */
VNNI_INLINE void vnni_sizes(const vnni_tile *t, float *out)
{
    if (t->rows == SB_NBITS_ROWS)
        vnni_parts(t, SB_NBITS_ROWS, out);
    else
        vnni_parts(t, 1, out);
}

/* The last rows of a matrix, one at a time: the same sums in the same order.
 * They are few, so one function does for all kinds. */
static VNNI_TARGET void vnni_rest(const vnni_tile *t, float *out)
{
    vnni_tile part = *t;

    part.rows = 1;
    part.cols = 1;
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->cols; c++) {
            part.m = t->m + r;
            part.n = t->n + c;
            vnni_tile_run(part, out + r * SB_NBITS_COLS + c);
        }
}

/* One function for each kind of weights that is common. */
#define VNNI_KIND(name, n_bits, which)                     \
    static VNNI_TARGET void name(vnni_tile *t, float *out) \
    {                                                      \
        t->bits = n_bits;                                  \
        t->kind = which;                                   \
        if (t->cols == SB_NBITS_COLS)                      \
            vnni_sizes(t, out);                            \
        else                                               \
            vnni_rest(t, out);                             \
    }

VNNI_KIND(vnni_each_2, 2, KIND_EACH)
VNNI_KIND(vnni_index_2, 2, KIND_INDEX)
VNNI_KIND(vnni_each_3, 3, KIND_EACH)
VNNI_KIND(vnni_index_3, 3, KIND_INDEX)
VNNI_KIND(vnni_each_4, 4, KIND_EACH)
VNNI_KIND(vnni_one_4, 4, KIND_ONE)
VNNI_KIND(vnni_zeros_4, 4, KIND_ZEROS)
VNNI_KIND(vnni_index_4, 4, KIND_INDEX)
VNNI_KIND(vnni_each_8, 8, KIND_EACH)
VNNI_KIND(vnni_one_8, 8, KIND_ONE)
VNNI_KIND(vnni_index_8, 8, KIND_INDEX)

typedef void (*vnni_fn)(vnni_tile *t, float *out);

static VNNI_TARGET void vnni_run(const sb_nbits_weights *w, int64_t n,
                                 int64_t cols, const sb_nbits_acts *a,
                                 int64_t m, int64_t rows, float *out)
{
    static const vnni_fn fns[4][KINDS] = {
        {vnni_each_2, vnni_index_2, vnni_index_2, vnni_index_2},
        {vnni_each_3, vnni_index_3, vnni_index_3, vnni_index_3},
        {vnni_each_4, vnni_one_4, vnni_zeros_4, vnni_index_4},
        {vnni_each_8, vnni_one_8, vnni_index_8, vnni_index_8}};
    const sb_nbits_shape *s = &a->shape;
    const sb_nbits_blocks *blocks = &a->blocks;
    bool middle = !w->zeros && !w->zero_bits;
    bool each = s->chunk == 32 && s->per_block == 1;
    vnni_kind kind = middle && blocks->count == 1 ? KIND_ONE
                     : middle && each             ? KIND_EACH
                     : w->zeros && each           ? KIND_ZEROS
                                                  : KIND_INDEX;

    /* Groups that do not begin with a block look scales up lane by lane. */
    if (blocks->count == 0) {
        sb_nbits_avx2()->fn(w, n, cols, a, m, rows, out);
        return;
    }
    vnni_tile t = {.w = w,
                   .a = a,
                   .n = n,
                   .m = m,
                   .cols = (int)cols,
                   .rows = (int)rows,
                   .index = _mm512_loadu_si512(blocks->index),
                   .count = blocks->count,
                   .shift = blocks->shift,
                   .row = s->row,
                   .n_block = w->n_block,
                   .groups = s->groups};

    t.shifts = _mm512_mullo_epi32(t.index, _mm512_set1_epi32((int)w->bits));
    fns[w->bits == 8 ? 3 : w->bits - 2][kind](&t, out);
}

static bool suits_vnni(void)
{
    return __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && sb_nbits_avx2()->suits();
}

const sb_nbits_kernel *sb_nbits_vnni(void)
{
    static const sb_nbits_kernel kernel = {"avx512vnni", suits_vnni, vnni_run};

    return &kernel;
}
#else
const sb_nbits_kernel *sb_nbits_vnni(void)
{
    return NULL;
}
#endif
