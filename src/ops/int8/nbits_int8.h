/* nbits_int8.h - packed 4- and 8-bit weights times activations rounded to
 * int8, as MatMulNBits with accuracy_level 4 allows.
 *
 * Activations are rounded in chunks of a row, each with a scale of its own, and
 * laid out once so that weights are read as they lie in the file: a byte holds
 * two neighbors, so even and odd elements of a chunk are apart.
 *
 *     y = sum over chunks of  w_scale a_scale (sum(code a) - zero sum(a)) */
#ifndef SB_OPS_INT8_NBITS_INT8_H
#define SB_OPS_INT8_NBITS_INT8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ctx.h"

/* Rows of weights, and of activations, that a kernel takes at most. */
enum { SB_NBITS_COLS = 4, SB_NBITS_ROWS = 4, SB_NBITS_LANES = 16 };

/* Weights [n, blocks, block * bits / 8]. */
typedef struct sb_nbits_weights {
    int64_t n, k, block, n_block, bits;
    const uint8_t *codes;
    const float *scales; /* [n, blocks] */
    /* Zero points: floats [n, blocks], or packed like the codes, each row from
     * a byte on, or both NULL: 2^(bits - 1). */
    const float *zeros;
    const uint8_t *zero_bits;
} sb_nbits_weights;

static inline float sb_nbits_zero(const sb_nbits_weights *w, int64_t n,
                                  int64_t block)
{
    if (w->zeros)
        return w->zeros[n * w->n_block + block];
    if (!w->zero_bits)
        return (float)(1 << (w->bits - 1));
    const uint8_t *row = w->zero_bits + n * ((w->n_block * w->bits + 7) / 8);
    return (float)(w->bits == 8 ? row[block]
                                : row[block / 2] >> (block % 2 * 4) & 15);
}

/* Sizes of rounded activations. */
typedef struct sb_nbits_shape {
    int64_t chunk;     /* elements: 32, or 16 where blocks are so small */
    int64_t chunks;    /* of a row of weights */
    int64_t per_block; /* chunks of a block */
    int64_t group;     /* chunks that are laid out together */
    int64_t groups;    /* whole ones, the last filled up with zeros */
} sb_nbits_shape;

/* Rows of rounded activations. */
typedef struct sb_nbits_acts {
    sb_nbits_shape shape;
    int8_t *codes; /* [rows, groups * group * chunk] */
    float *scales; /* [rows, groups * group] */
    float *sums;   /* the same: scale times the sum of a chunk's codes */
    float *wide;   /* [rows, groups, SB_NBITS_LANES]: each scale as often as
                      a vector of a group's sums has lanes for its chunk */
} sb_nbits_acts;

/* Can these weights be taken? */
bool sb_nbits_int8_ok(int64_t bits, int64_t block);
sb_nbits_shape sb_nbits_shape_of(int64_t bits, int64_t block, int64_t k);
/* Bytes for `rows` rows. */
size_t sb_nbits_acts_bytes(const sb_nbits_shape *s, int64_t rows);

/* y [m, n] = a [m, k] x weights' + bias (NULL: none); `room` has the bytes
 * above for m rows. */
void sb_nbits_int8_run(sb_ctx *ctx, const sb_nbits_weights *w, const float *a,
                       int64_t m, const float *bias, float *y, void *room);

/* Rows [n, n + cols) of weights times rows [m, m + rows) of activations:
 * out[r * SB_NBITS_COLS + c].  An element does not depend on how many are asked
 * for. */
typedef void (*sb_nbits_fn)(const sb_nbits_weights *w, int64_t n, int64_t cols,
                            const sb_nbits_acts *a, int64_t m, int64_t rows,
                            float *out);

typedef struct sb_nbits_kernel {
    const char *name;
    /* Does this processor have it, and does it take this shape? */
    bool (*suits)(const sb_nbits_shape *s);
    sb_nbits_fn fn;
} sb_nbits_kernel;

/* The i-th implementation, the most wanted first, plain loops last; NULL past
 * the end. */
const sb_nbits_kernel *sb_nbits_kernel_at(size_t i);
/* nbits_int8_x86.c: those of this processor family. */
const sb_nbits_kernel *sb_nbits_kernel_x86(size_t i);
/* The same run with a given one. */
void sb_nbits_int8_run_with(sb_ctx *ctx, const sb_nbits_kernel *kernel,
                            const sb_nbits_weights *w, const float *a,
                            int64_t m, const float *bias, float *y, void *room);

#endif
