/* Many rows of activations on AVX-512 VNNI: 16 rows of weights are laid side by
 * side, a panel, in which four codes of each are a vector; lanes are rows then,
 * and none have to be added up.
 *
 * A chunk is multiplied and scaled as in nbits_int8_vnni.c, and sums of chunks
 * are added in its order: those at the same place of all spans one after the
 * other, then places in pairs, pairs of pairs and so on.  The panel has chunks
 * in this order. */
#include "ops/int8/nbits_int8.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <string.h>

#include "ops/int8/nbits_vnni.h"

enum { SPAN = SB_NBITS_SPAN, COLS = SB_NBITS_COLS, ROWS = 8, LEVELS = 5 };
enum { WORD = 4 * COLS }; /* bytes of four codes of each row */

typedef struct panel {
    const sb_nbits_weights *w;
    const sb_nbits_acts *a;
    int64_t n, cols;     /* rows of weights */
    int64_t words;       /* of four codes, of a chunk */
    int64_t at[SPAN];    /* where chunk i of the first span is, in chunks */
    int64_t chunk[SPAN]; /* which one the i-th is, its place, */
    int64_t place[SPAN];
    int64_t offset[SPAN];  /* and bytes to its first code of activations */
    uint8_t *codes;        /* [chunks, words, COLS, 4] */
    float *scales, *zeros; /* [chunks, COLS] */
} panel;

/* ---- making it ---------------------------------------------------------- */

/* x[i] has word i of 16 rows, which were x[0] to x[15]. */
VNNI_INLINE void panel_turn(__m512i x[16])
{
    __m512i a[16], b[16];

    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x44);
        __m512i high = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xee);
        __m512i low2 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0x44);
        __m512i high2 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0xee);

        x[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
        x[i + 4] = _mm512_shuffle_i32x4(low, low2, 0xdd);
        x[i + 8] = _mm512_shuffle_i32x4(high, high2, 0x88);
        x[i + 12] = _mm512_shuffle_i32x4(high, high2, 0xdd);
    }
}

VNNI_INLINE int64_t panel_at(const panel *p, int64_t chunk)
{
    return p->at[chunk % SPAN] + chunk / SPAN;
}

/* Codes of group `g`. */
VNNI_INLINE void panel_group(const panel *p, int64_t g, int bits, int words)
{
    const sb_nbits_shape *s = &p->a->shape;
    const int planes = vnni_planes(bits), each = words / planes;
    const int group = SB_NBITS_LANES / each;
    int64_t left = s->row - g * s->bytes;
    const uint8_t *from = p->w->codes + p->n * s->row + g * s->bytes;
    __mmask64 bytes =
        ~(__mmask64)0 >> (64 - (left < s->bytes ? left : s->bytes));
    __m512i x[16];

    for (int i = 0; i < 16; i++)
        x[i] = i < p->cols ? vnni_bytes(from + i * s->row, bytes, bits)
                           : _mm512_setzero_si512();
    panel_turn(x);
    for (int i = 0; i < group && g * group + i < s->chunks; i++) {
        uint8_t *to = p->codes + panel_at(p, g * group + i) * words * WORD;

        for (int k = 0; k < each; k++) {
            __m512i codes[4];

            vnni_codes(x[i * each + k], bits, codes);
            for (int plane = 0; plane < planes; plane++)
                _mm512_storeu_si512(to + (plane * each + k) * WORD,
                                    codes[plane]);
        }
    }
}

VNNI_INLINE void panel_codes(const panel *p, int bits)
{
    for (int64_t g = 0; g < p->a->shape.groups; g++)
        if (p->words == 8)
            panel_group(p, g, bits, 8);
        else
            panel_group(p, g, bits, 4);
}

/* Floats of blocks [n, blocks] as those of chunks. */
static VNNI_TARGET void panel_floats(const panel *p, const float *from,
                                     float *out)
{
    const sb_nbits_shape *s = &p->a->shape;
    int64_t n_block = p->w->n_block;

    from += p->n * n_block;
    for (int64_t b = 0; b < n_block; b += 16) {
        int64_t left = n_block - b;
        __mmask16 some = (__mmask16)(left < 16 ? (1u << left) - 1 : 0xffff);
        __m512i x[16];

        for (int i = 0; i < 16; i++)
            x[i] = i < p->cols
                       ? _mm512_maskz_loadu_epi32(some, from + i * n_block + b)
                       : _mm512_setzero_si512();
        panel_turn(x);
        for (int64_t i = 0; i < 16 && i < left; i++)
            for (int64_t k = 0; k < s->per_block; k++)
                _mm512_storeu_si512(
                    out + COLS * panel_at(p, (b + i) * s->per_block + k), x[i]);
    }
}

static VNNI_TARGET void panel_zero_bits(const panel *p)
{
    const sb_nbits_shape *s = &p->a->shape;

    for (int64_t b = 0; b < p->w->n_block; b++) {
        float x[COLS] = {0};

        for (int64_t i = 0; i < p->cols; i++)
            x[i] = sb_nbits_zero(p->w, p->n + i, b);
        for (int64_t k = 0; k < s->per_block; k++)
            memcpy(p->zeros + COLS * panel_at(p, b * s->per_block + k), x,
                   sizeof x);
    }
}

static VNNI_TARGET void panel_fill(const panel *p)
{
    if (p->w->bits == 2)
        panel_codes(p, 2);
    else if (p->w->bits == 3)
        panel_codes(p, 3);
    else if (p->w->bits == 4)
        panel_codes(p, 4);
    else
        panel_codes(p, 8);
    panel_floats(p, p->w->scales, p->scales);
    if (p->w->zeros)
        panel_floats(p, p->w->zeros, p->zeros);
    else if (p->w->zero_bits)
        panel_zero_bits(p);
}

/* ---- products ----------------------------------------------------------- */

/* Word `k` of a chunk, four codes of each row of weights. */
VNNI_INLINE void panel_word(const uint8_t *codes, const int8_t *x,
                            int64_t stride, int k, int each, int rows,
                            __m512i *d)
{
    const __m512i word = _mm512_loadu_si512(codes + k * WORD);

    x += k / each * SB_NBITS_PLANE + k % each * 4;
    for (int r = 0; r < rows; r++) {
        int32_t four;

        memcpy(&four, x + r * stride, sizeof four);
        d[r] = _mm512_dpbusd_epi32(d[r], word, _mm512_set1_epi32(four));
    }
}

/* Chunk `i` of span `s` times `rows` rows of activations from `m` on. */
VNNI_INLINE void panel_chunk(const panel *p, int i, int64_t s, int64_t m,
                             int rows, int words, int planes, bool middle,
                             __m512 *acc)
{
    const sb_nbits_acts *a = p->a;
    const int each = words / planes;
    int64_t at = i * a->shape.spans + s;
    int64_t stride = a->shape.stride * planes * SB_NBITS_PLANE;
    int64_t next = a->shape.spans * SPAN;
    int64_t lane = m * next + s * SPAN + p->place[i];
    const int8_t *x =
        a->codes + m * stride + p->offset[i] + s * (int64_t)(SPAN * 4 * words);
    const uint8_t *codes = p->codes + at * words * WORD;
    __m512i d[ROWS];

    for (int r = 0; r < rows; r++)
        d[r] = middle ? _mm512_set1_epi32(a->starts[lane + r * next])
                      : _mm512_setzero_si512();
    /* Not a loop: it would stay one, and each sum would be moved about. */
    panel_word(codes, x, stride, 0, each, rows, d);
    panel_word(codes, x, stride, 1, each, rows, d);
    panel_word(codes, x, stride, 2, each, rows, d);
    panel_word(codes, x, stride, 3, each, rows, d);
    if (words == 8) {
        panel_word(codes, x, stride, 4, each, rows, d);
        panel_word(codes, x, stride, 5, each, rows, d);
        panel_word(codes, x, stride, 6, each, rows, d);
        panel_word(codes, x, stride, 7, each, rows, d);
    }
    for (int r = 0; r < rows; r++, lane += next) {
        __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(d[r]),
                                 _mm512_set1_ps(a->scales[lane]));

        if (!middle)
            y = _mm512_fnmadd_ps(_mm512_loadu_ps(p->zeros + at * COLS),
                                 _mm512_set1_ps(a->sums[lane]), y);
        acc[r] =
            _mm512_fmadd_ps(_mm512_loadu_ps(p->scales + at * COLS), y, acc[r]);
    }
}

/* `rows` rows of activations. */
VNNI_INLINE void panel_rows(const panel *p, int64_t m, int rows, int words,
                            int planes, bool middle, float *out)
{
    const sb_nbits_shape *shape = &p->a->shape;
    const __mmask16 some = (__mmask16)((1u << p->cols) - 1);
    __m512 kept[LEVELS][ROWS]; /* sums of 1, 2, 4, 8 and 16 places */

    for (int i = 0; i < SPAN; i++) {
        __m512 acc[ROWS];
        int level = 0;

        for (int r = 0; r < rows; r++)
            acc[r] = _mm512_setzero_ps();
        for (int64_t s = 0; s * SPAN + p->chunk[i] < shape->chunks; s++)
            panel_chunk(p, i, s, m, rows, words, planes, middle, acc);
        for (; i >> level & 1; level++)
            for (int r = 0; r < rows; r++)
                acc[r] = _mm512_add_ps(kept[level][r], acc[r]);
        for (int r = 0; r < rows; r++)
            kept[level][r] = acc[r];
    }
    for (int r = 0; r < rows; r++)
        _mm512_mask_storeu_ps(out + (m + r) * p->w->n, some,
                              kept[LEVELS - 1][r]);
}

/* Loops of known length. */
VNNI_INLINE void panel_all(const panel *p, int64_t rows, int words, int planes,
                           bool middle, float *out)
{
    int64_t m = 0;

    for (; m + ROWS <= rows; m += ROWS)
        panel_rows(p, m, ROWS, words, planes, middle, out);
    for (; m + ROWS / 2 <= rows; m += ROWS / 2)
        panel_rows(p, m, ROWS / 2, words, planes, middle, out);
    for (; m < rows; m++)
        panel_rows(p, m, 1, words, planes, middle, out);
}

/* One function for each number of planes, of words, and with zero points. */
#define PANEL_KIND(name, words, planes, middle)                            \
    static VNNI_TARGET void name(const panel *p, int64_t rows, float *out) \
    {                                                                      \
        panel_all(p, rows, words, planes, middle, out);                    \
    }

PANEL_KIND(panel_4_1, 4, 1, false)
PANEL_KIND(panel_4_1_middle, 4, 1, true)
PANEL_KIND(panel_4_2, 4, 2, false)
PANEL_KIND(panel_4_2_middle, 4, 2, true)
PANEL_KIND(panel_4_4, 4, 4, false)
PANEL_KIND(panel_4_4_middle, 4, 4, true)
PANEL_KIND(panel_8_1, 8, 1, false)
PANEL_KIND(panel_8_1_middle, 8, 1, true)
PANEL_KIND(panel_8_2, 8, 2, false)
PANEL_KIND(panel_8_2_middle, 8, 2, true)
PANEL_KIND(panel_8_4, 8, 4, false)
PANEL_KIND(panel_8_4_middle, 8, 4, true)

typedef void (*panel_fn)(const panel *p, int64_t rows, float *out);

/* Places in the order in which vnni_sums() adds them. */
static void panel_order(panel *p)
{
    static const int64_t within[4] = {0, 2, 1, 3};
    const sb_nbits_shape *s = &p->a->shape;

    for (int64_t i = 0; i < SPAN; i++) {
        p->place[i] = i / 4 * 4 + within[i % 4];
        p->chunk[i] = p->a->blocks.chunk[p->place[i]];
        p->at[p->chunk[i]] = i * s->spans;
        p->offset[i] = p->chunk[i] / s->group * s->planes * SB_NBITS_PLANE +
                       p->chunk[i] % s->group * (SB_NBITS_PLANE / s->group);
    }
}

VNNI_TARGET void sb_nbits_panel_run(const sb_nbits_weights *w, int64_t n,
                                    int64_t cols, const sb_nbits_acts *a,
                                    int64_t rows, void *room, float *out)
{
    static const panel_fn fns[2][3][2] = {{{panel_4_1, panel_4_1_middle},
                                           {panel_4_2, panel_4_2_middle},
                                           {panel_4_4, panel_4_4_middle}},
                                          {{panel_8_1, panel_8_1_middle},
                                           {panel_8_2, panel_8_2_middle},
                                           {panel_8_4, panel_8_4_middle}}};
    const sb_nbits_shape *s = &a->shape;
    int64_t chunks = s->spans * SPAN;
    panel p = {.w = w,
               .a = a,
               .n = n,
               .cols = cols,
               .words = s->chunk / 4,
               .codes = room};

    p.scales = (float *)(void *)(p.codes + chunks * p.words * WORD);
    p.zeros = p.scales + chunks * COLS;
    panel_order(&p);
    panel_fill(&p);
    fns[s->chunk == 32][s->planes / 2][!w->zeros && !w->zero_bits](&p, rows,
                                                                   out);
}
#endif
