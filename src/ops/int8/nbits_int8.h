/* nbits_int8.h - packed weights of 2, 3, 4 and 8 bits times activations rounded
 * to int8, as MatMulNBits with accuracy_level 4 allows.
 *
 * Activations are rounded in chunks of a row, each with a scale of its own, and
 * laid out once so that weights are read as they lie in the file.  A group is
 * as many weights as give vectors of 64 bytes, its planes: with 2 bits to a
 * weight each byte of the file holds four neighbors, so every fourth element is
 * in the same plane; with 3 and 4 bits every second.  Four bytes of all planes
 * are summed into one of 16 lanes, so a chunk has lanes of its own.
 *
 *     y = sum over lanes of  w_scale a_scale (sum(code a) - zero sum(a))
 *
 * The sums of integers are exact. */
#ifndef SB_OPS_INT8_NBITS_INT8_H
#define SB_OPS_INT8_NBITS_INT8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ctx.h"

/* Rows of weights, and of activations, that a kernel takes at most. */
enum { SB_NBITS_COLS = 16, SB_NBITS_ROWS = 4 };
/* Bytes of a plane, lanes of their sums. */
enum { SB_NBITS_PLANE = 64, SB_NBITS_LANES = 16 };
/* Chunks of a span, what a kernel may take at a time instead of a group. */
enum { SB_NBITS_SPAN = 16 };

/* Weights [n, blocks, block * bits / 8]; `block` is a multiple of 16. */
typedef struct sb_nbits_weights {
    int64_t n, k, block, n_block, bits;
    const uint8_t *codes;
    const float *scales; /* [n, blocks] */
    /* Zero points: floats [n, blocks], or packed like the codes, each row from
     * a byte on, or both NULL: 2^(bits - 1). */
    const float *zeros;
    const uint8_t *zero_bits;
} sb_nbits_weights;

/* Code `i` of a packed row, low bits first; those of 3 bits may be in two
 * bytes. */
static inline unsigned sb_nbits_code(const uint8_t *row, int64_t i,
                                     int64_t bits)
{
    int64_t at = i * bits;
    unsigned two = row[at / 8];

    if (at % 8 + bits > 8)
        two |= (unsigned)row[at / 8 + 1] << 8;
    return two >> (unsigned)(at % 8) & ((1u << (unsigned)bits) - 1);
}

static inline float sb_nbits_zero(const sb_nbits_weights *w, int64_t n,
                                  int64_t block)
{
    if (w->zeros)
        return w->zeros[n * w->n_block + block];
    if (!w->zero_bits)
        return (float)(1 << (w->bits - 1));
    return (float)sb_nbits_code(
        w->zero_bits + n * ((w->n_block * w->bits + 7) / 8), block, w->bits);
}

/* Sizes of rounded activations. */
typedef struct sb_nbits_shape {
    int64_t chunk;     /* elements: 32, or 16 where blocks are no multiple */
    int64_t chunks;    /* of a row of weights */
    int64_t per_block; /* chunks of a block */
    int64_t planes;    /* of a group */
    int64_t group;     /* its chunks */
    int64_t groups;    /* whole ones, the last filled up with zeros */
    int64_t spans;     /* likewise */
    int64_t stride;    /* groups from one row of activations to the next: an
                          odd number, so that caches hold several rows */
    int64_t bytes;     /* of a group of weights */
    int64_t row;       /* bytes of a row of weights */
} sb_nbits_shape;

/* Where chunk `i` of a span stands, if a group has `group` chunks: where adding
 * up lanes of vectors puts its sum. */
static inline int64_t sb_nbits_place(int64_t group, int64_t i)
{
    int64_t j = i / group, q = i % group;

    return group == 16  ? i
           : group == 8 ? q / 2 * 4 + j * 2 + q % 2
           : group == 4 ? q * 4 + j
                        : (j / 4 * 2 + q) * 4 + j % 4;
}

/* How the chunks of a span find their blocks, if all spans are alike: number
 * index[i] of the `count` neighbors from the span's first block on is that of
 * the chunk at place i.  Else count is 0. */
typedef struct sb_nbits_blocks {
    int64_t count;
    uint32_t index[SB_NBITS_SPAN];
    int64_t chunk[SB_NBITS_SPAN]; /* that stands at place i */
} sb_nbits_blocks;

/* Rows of rounded activations. */
typedef struct sb_nbits_acts {
    sb_nbits_shape shape;
    sb_nbits_blocks blocks;
    int8_t *codes; /* [rows, groups, planes, SB_NBITS_PLANE] */
    /* The others: [rows, groups, SB_NBITS_LANES], or for kernels that take
     * spans [rows, spans, SB_NBITS_SPAN]. */
    float *scales;   /* of the lane's chunk */
    float *sums;     /* in a chunk's first lane its scale times its sum */
    int32_t *starts; /* there the sum times -2^(bits - 1): what to begin with
                        where weights have no zero points */
} sb_nbits_acts;

sb_nbits_shape sb_nbits_shape_of(int64_t bits, int64_t block, int64_t k);

/* y [m, n] = a [m, k] x weights' + bias (NULL: none). */
typedef struct sb_nbits_product {
    const sb_nbits_weights *w;
    int64_t m;
    const float *a, *bias;
    float *y;
    size_t lanes; /* threads at most */
    void *room;   /* sb_nbits_room() */
} sb_nbits_product;

/* Bytes that a product needs. */
size_t sb_nbits_room(const sb_nbits_shape *s, int64_t m, size_t lanes);
void sb_nbits_int8_run(sb_ctx *ctx, const sb_nbits_product *p);

/* ---- kernels ------------------------------------------------------------ */

/* Scales and zero points of a group's lanes; 0 beyond the end. */
void sb_nbits_lanes(const sb_nbits_weights *w, const sb_nbits_shape *s,
                    int64_t n, int64_t g, float *scales, float *zeros);

/* Rows [n, n + cols) of weights times rows [m, m + rows) of activations:
 * out[r * SB_NBITS_COLS + c].  An element does not depend on how many are asked
 * for. */
typedef void (*sb_nbits_fn)(const sb_nbits_weights *w, int64_t n, int64_t cols,
                            const sb_nbits_acts *a, int64_t m, int64_t rows,
                            float *out);

typedef struct sb_nbits_kernel {
    const char *name;
    bool (*suits)(void); /* does this processor have it? */
    sb_nbits_fn fn;
    bool by_span; /* does it take spans? */
    /* (optional) rows [n, n + cols) of weights, SB_NBITS_COLS or less, times
     * all rows of activations, the same sums in the same order as those of
     * `fn`: out[r * w->n + c].  `room` has sb_nbits_panel_bytes(). */
    void (*many)(const sb_nbits_weights *w, int64_t n, int64_t cols,
                 const sb_nbits_acts *a, int64_t rows, void *room, float *out);
} sb_nbits_kernel;

size_t sb_nbits_panel_bytes(const sb_nbits_shape *s);

/* The i-th implementation that this program has, the most wanted first, plain
 * loops last; NULL past the end. */
const sb_nbits_kernel *sb_nbits_kernel_at(size_t i);
/* Of processor families, one file for each; NULL on other ones. */
const sb_nbits_kernel *sb_nbits_vnni(void);
const sb_nbits_kernel *sb_nbits_avx2(void);
const sb_nbits_kernel *sb_nbits_dotprod(void);
const sb_nbits_kernel *sb_nbits_neon(void);
/* The same run with a given one. */
void sb_nbits_int8_run_with(sb_ctx *ctx, const sb_nbits_kernel *kernel,
                            const sb_nbits_product *p);

#endif
