/* Packed weights times rounded activations on AVX-512 VNNI.
 *
 * A span, 16 chunks, at a time: the lanes of each chunk are added up while they
 * are integers, so that one vector holds the sums of all 16, and scales are
 * multiplied once for each chunk.  A single row of activations waits for
 * memory, which is read fastest in the order in which it lies: each row of
 * weights from end to end. */
#include "ops/int8/nbits_int8.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include "ops/int8/nbits_vnni.h"

enum { SPAN = SB_NBITS_SPAN, COLS = 4 };

/* What a tile is computed with: local variables wherever this is inlined, and
 * bits and groups are constants. */
typedef struct vnni_tile {
    const sb_nbits_weights *w;
    const sb_nbits_shape *shape;
    int64_t n, row, n_block; /* of weights */
    int bits, groups;        /* of a span */
    int64_t cols;
    __m512i index; /* of the lanes' blocks among those of a span */
    int64_t count; /* of blocks of a span; 1: it may go on in the next */
    __mmask16 blocks, last_blocks; /* of a span, of the last one */
    bool middle;                   /* are there no zero points? */
    int64_t whole; /* spans of a row of weights; then there may be */
    int tail;      /* groups, and of the last of them */
    __mmask64 last_bytes;
    int64_t spans; /* of a row of activations */
    const uint8_t *codes;
    const float *scales, *zeros;
    const int8_t *act_codes;
    const float *act_scales, *act_sums;
    const int32_t *act_starts;
} vnni_tile;

/* A span of a row of weights. */
typedef struct vnni_span {
    __m512i codes[8];
    __m512 scale, zero;
} vnni_span;

/* ---- scales ------------------------------------------------------------- */

/* The floats of a span's blocks, as many as are there, each in the lanes of its
 * block. */
VNNI_INLINE __m512 vnni_spread(const vnni_tile *t, const float *x, bool whole)
{
    return _mm512_permutexvar_ps(
        t->index, _mm512_maskz_loadu_ps(whole ? t->blocks : t->last_blocks, x));
}

/* Packed zero points of a span are in 16 bytes; each lane takes the two that
 * its own may be in. */
VNNI_INLINE __m512 vnni_zero_bits(const vnni_tile *t, int64_t n, int64_t block)
{
    const sb_nbits_weights *w = t->w;
    int64_t row = (w->n_block * w->bits + 7) / 8, bit = block * w->bits;
    int64_t left = (w->n - n) * row - bit / 8;
    unsigned some = left < 16 ? (1u << left) - 1 : 0xffff;
    __m512i v = _mm512_broadcast_i32x4(_mm_maskz_loadu_epi8(
        (__mmask16)some, w->zero_bits + n * row + bit / 8));
    __m512i at = _mm512_add_epi32(
        _mm512_mullo_epi32(t->index, _mm512_set1_epi32((int)w->bits)),
        _mm512_set1_epi32((int)(bit % 8)));
    __m512i byte = _mm512_srli_epi32(at, 3);
    __m512i two = _mm512_or_si512(
        byte,
        _mm512_slli_epi32(_mm512_add_epi32(byte, _mm512_set1_epi32(1)), 8));

    v = _mm512_srlv_epi32(_mm512_shuffle_epi8(v, two),
                          _mm512_and_si512(at, _mm512_set1_epi32(7)));
    return _mm512_cvtepi32_ps(
        _mm512_and_si512(v, _mm512_set1_epi32((1 << w->bits) - 1)));
}

/* Blocks that spans do not begin with are looked up chunk by chunk.  The tile
 * stays where it is, in registers. */
static void vnni_look_up(const sb_nbits_weights *w, const sb_nbits_shape *shape,
                         int64_t n, int64_t s, float *scales, float *zeros)
{
    for (int64_t i = 0; i < SPAN && s * SPAN + i < shape->chunks; i++) {
        int64_t block = (s * SPAN + i) / shape->per_block;
        int64_t lane = sb_nbits_place(shape->group, i);

        scales[lane] = w->scales[n * w->n_block + block];
        zeros[lane] = sb_nbits_zero(w, n, block);
    }
}

VNNI_INLINE void vnni_scales(const vnni_tile *t, int64_t n, int64_t s,
                             bool whole, vnni_span *out)
{
    int64_t block =
        t->count > 1 ? s * t->count : s * SPAN / t->shape->per_block;
    int64_t at = n * t->n_block + block;

    if (t->count == 0) {
        float scales[SPAN] = {0}, zeros[SPAN] = {0};

        vnni_look_up(t->w, t->shape, t->n + n, s, scales, zeros);
        out->scale = _mm512_loadu_ps(scales);
        out->zero = _mm512_loadu_ps(zeros);
        return;
    }
    out->scale = vnni_spread(t, t->scales + at, whole);
    out->zero = t->middle  ? out->scale
                : t->zeros ? vnni_spread(t, t->zeros + at, whole)
                           : vnni_zero_bits(t, t->n + n, block);
}

/* ---- products ----------------------------------------------------------- */

/* What follows soon: the processor by itself does not read ahead beyond the end
 * of a page. */
VNNI_INLINE void vnni_prefetch(const uint8_t *codes, const float *scales,
                               int64_t bytes)
{
    enum { AHEAD = 2048 }; /* bytes of codes, each 16 of which have a scale */

    for (int64_t i = 0; i < bytes; i += SB_NBITS_PLANE)
        _mm_prefetch((const void *)(codes + AHEAD + i), _MM_HINT_T0);
    _mm_prefetch((const void *)(scales + AHEAD / 16), _MM_HINT_T0);
}

/* The first `here` groups of a span of row `n` of the tile; `whole`: of all. */
VNNI_INLINE void vnni_load(const vnni_tile *t, int64_t n, int64_t s, int here,
                           bool whole, vnni_span *out)
{
    const int planes = vnni_planes(t->bits);
    const int64_t size = (int64_t)planes * t->bits * 8;
    const __mmask64 all = ~(__mmask64)0 >> (64 - size);
    const uint8_t *from = t->codes + n * t->row + s * t->groups * size;

    vnni_scales(t, n, s, whole, out);
    if (whole)
        vnni_prefetch(from, t->scales + n * t->n_block + s * t->count,
                      here * size);
    for (int j = 0; j < here; j++)
        vnni_codes(vnni_bytes(from + j * size,
                              whole || j + 1 < here ? all : t->last_bytes,
                              t->bits),
                   t->bits, out->codes + j * planes);
}

/* The sums of chunks from those of their lanes, in the order of sb_nbits_place:
 * each step adds up neighbors and puts two vectors into one. */
VNNI_INLINE __m512i vnni_gather(const __m512i *d, int groups)
{
    __m512i four[2];

    if (groups == 1)
        return d[0];
    if (groups == 2) {
        __m512 a = _mm512_castsi512_ps(d[0]), b = _mm512_castsi512_ps(d[1]);

        return _mm512_add_epi32(
            _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
            _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
    }
    for (int i = 0; i < groups / 4; i++, d += 4) {
        __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(d[0], d[1]),
                                     _mm512_unpackhi_epi32(d[0], d[1]));
        __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(d[2], d[3]),
                                     _mm512_unpackhi_epi32(d[2], d[3]));

        four[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b),
                                   _mm512_unpackhi_epi64(a, b));
    }
    if (groups == 4)
        return four[0];
    return _mm512_add_epi32(_mm512_shuffle_i32x4(four[0], four[1], 0x88),
                            _mm512_shuffle_i32x4(four[0], four[1], 0xdd));
}

/* A span of weights times that of the activations, added to `acc`. */
VNNI_INLINE __m512 vnni_dot(const vnni_tile *t, const vnni_span *span, int here,
                            int64_t s, __m512 acc)
{
    const int planes = vnni_planes(t->bits);
    const int64_t lane = s * SPAN;
    const int8_t *x =
        t->act_codes + s * t->groups * (int64_t)(planes * SB_NBITS_PLANE);
    __m512i d[8];

    for (int j = 0; j < t->groups; j++) {
        d[j] = _mm512_setzero_si512();
        for (int p = 0; j < here && p < planes; p++, x += SB_NBITS_PLANE)
            d[j] = _mm512_dpbusd_epi32(d[j], span->codes[j * planes + p],
                                       _mm512_loadu_si512(x));
    }
    __m512i sum = vnni_gather(d, t->groups);
    if (t->middle)
        sum = _mm512_add_epi32(sum, _mm512_loadu_si512(t->act_starts + lane));
    __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                             _mm512_loadu_ps(t->act_scales + lane));
    if (!t->middle)
        y = _mm512_fnmadd_ps(span->zero, _mm512_loadu_ps(t->act_sums + lane),
                             y);
    return _mm512_fmadd_ps(span->scale, y, acc);
}

/* The sums of four vectors. */
VNNI_INLINE void vnni_sums(const __m512 *x, float *out)
{
    __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]),
                             _mm512_unpackhi_ps(x[0], x[1]));
    __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]),
                             _mm512_unpackhi_ps(x[2], x[3]));
    __m512 c = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44),
                             _mm512_shuffle_ps(a, b, 0xee));

    _mm_storeu_ps(out, _mm_add_ps(_mm_add_ps(_mm512_castps512_ps128(c),
                                             _mm512_extractf32x4_ps(c, 1)),
                                  _mm_add_ps(_mm512_extractf32x4_ps(c, 2),
                                             _mm512_extractf32x4_ps(c, 3))));
}

VNNI_INLINE __m512 vnni_single(const vnni_tile *t, int64_t n, int64_t s,
                               int here, bool whole, __m512 sum)
{
    vnni_span span;

    vnni_load(t, n, s, here, whole, &span);
    return vnni_dot(t, &span, here, s, sum);
}

VNNI_INLINE __m512 vnni_column(const vnni_tile *t, int64_t n, int tail)
{
    __m512 sum = _mm512_setzero_ps();

    for (int64_t s = 0; s < t->whole; s++)
        sum = vnni_single(t, n, s, t->groups, true, sum);
    return tail ? vnni_single(t, n, t->whole, tail, false, sum) : sum;
}

VNNI_INLINE void vnni_row(vnni_tile t, int tail, float *out)
{
    for (int64_t n = 0; n < t.cols; n += COLS) {
        __m512 acc[COLS];

        for (int c = 0; c < COLS; c++)
            acc[c] = n + c < t.cols ? vnni_column(&t, n + c, tail)
                                    : _mm512_setzero_ps();
        vnni_sums(acc, out + n);
    }
}

/* Loops of known length for the groups behind the last whole span. */
#define VNNI_TAIL(here)             \
    case here:                      \
        if ((here) <= t.groups)     \
            vnni_row(t, here, out); \
        break;

VNNI_INLINE void vnni_by_tail(vnni_tile t, float *out)
{
    switch (t.tail) {
        VNNI_TAIL(0)
        VNNI_TAIL(1)
        VNNI_TAIL(2)
        VNNI_TAIL(3)
        VNNI_TAIL(4)
        VNNI_TAIL(5)
        VNNI_TAIL(6)
        VNNI_TAIL(7)
        VNNI_TAIL(8)
    }
}

/* What files have most, a scale for each chunk and no zero points, has code of
 * its own, which asks for neither at every span.  Not so for long rows, which
 * wait for memory: they were read 6 % slower by it. */
VNNI_INLINE void vnni_by_form(vnni_tile t, float *out)
{
    enum { LONG = 4 }; /* spans */

    if (t.middle && t.count == SPAN && t.whole < LONG) {
        t.middle = true;
        t.count = SPAN;
        vnni_by_tail(t, out);
    } else {
        vnni_by_tail(t, out);
    }
}

/* One function for each number of bits and of groups in a span. */
#define VNNI_KIND(name, n_bits, n_groups)                        \
    static VNNI_TARGET void name(const vnni_tile *t, float *out) \
    {                                                            \
        vnni_tile tile = *t;                                     \
                                                                 \
        tile.bits = n_bits;                                      \
        tile.groups = n_groups;                                  \
        vnni_by_form(tile, out);                                 \
    }

VNNI_KIND(vnni_2_1, 2, 1)
VNNI_KIND(vnni_2_2, 2, 2)
VNNI_KIND(vnni_3_2, 3, 2)
VNNI_KIND(vnni_3_4, 3, 4)
VNNI_KIND(vnni_4_2, 4, 2)
VNNI_KIND(vnni_4_4, 4, 4)
VNNI_KIND(vnni_8_4, 8, 4)
VNNI_KIND(vnni_8_8, 8, 8)

/* The last span of a row. */
static void vnni_last(vnni_tile *t)
{
    const sb_nbits_shape *shape = t->shape;
    int64_t size = SPAN / shape->group * shape->bytes;
    int64_t left = t->n_block - (t->spans - 1) * t->count;

    t->whole = shape->row / size;
    t->tail = (int)((shape->row % size + shape->bytes - 1) / shape->bytes);
    t->last_bytes =
        ~(__mmask64)0 >> (64 - ((shape->row - 1) % shape->bytes + 1));
    t->blocks = (__mmask16)((1u << t->count) - 1);
    t->last_blocks = t->count > 1 && left < t->count
                         ? (__mmask16)((1u << left) - 1)
                         : t->blocks;
}

typedef void (*vnni_fn)(const vnni_tile *t, float *out);

static VNNI_TARGET void vnni_run(const sb_nbits_weights *w, int64_t n,
                                 int64_t cols, const sb_nbits_acts *a,
                                 int64_t m, int64_t rows, float *out)
{
    static const vnni_fn fns[4][2] = {{vnni_2_1, vnni_2_2},
                                      {vnni_3_2, vnni_3_4},
                                      {vnni_4_2, vnni_4_4},
                                      {vnni_8_4, vnni_8_8}};
    const sb_nbits_shape *shape = &a->shape;
    vnni_tile t = {.w = w,
                   .shape = shape,
                   .n = n,
                   .row = shape->row,
                   .n_block = w->n_block,
                   .cols = cols,
                   .index = _mm512_loadu_si512(a->blocks.index),
                   .count = a->blocks.count,
                   .middle = !w->zeros && !w->zero_bits,
                   .spans = shape->spans,
                   .codes = w->codes + n * shape->row,
                   .scales = w->scales + n * w->n_block,
                   .zeros = w->zeros ? w->zeros + n * w->n_block : NULL};

    vnni_last(&t);
    for (int64_t r = 0; r < rows; r++, m++, out += SB_NBITS_COLS) {
        int64_t lane = m * shape->spans * SPAN;

        t.act_codes =
            a->codes + m * shape->stride * shape->planes * SB_NBITS_PLANE;
        t.act_scales = a->scales + lane;
        t.act_sums = a->sums + lane;
        t.act_starts = a->starts + lane;
        fns[w->bits == 8 ? 3 : w->bits - 2][shape->chunk == 32](&t, out);
    }
}

static bool suits_vnni(void)
{
    return __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && sb_nbits_avx2()->suits();
}

const sb_nbits_kernel *sb_nbits_vnni(void)
{
    static const sb_nbits_kernel kernel = {.name = "avx512vnni",
                                           .suits = suits_vnni,
                                           .fn = vnni_run,
                                           .by_span = true,
                                           .many = sb_nbits_panel_run};

    return &kernel;
}
#else
const sb_nbits_kernel *sb_nbits_vnni(void)
{
    return NULL;
}
#endif
