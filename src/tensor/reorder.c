/* Between plain and channels-last: a transpose of [C, S] into [S, C] for each
 * image.
 *
 * Elements of 4 bytes go through vector registers in squares of 8 x 8 or 4 x 4;
 * where a side is no multiple the last square overlaps the one before and
 * writes the same once more.  A matrix of a few rows (images have three
 * channels) is woven or unwoven in a plain loop, which compilers vectorize.
 * Other sizes go through square tiles in the first-level cache. */
#include "tensor/tensor.h"

#include <string.h>

#include "base/simd.h"
#include "base/threads.h"

enum { TILE = 16, GRAIN_BYTES = 64 * 1024 };

void sb_tensor_strides(const sb_tensor *t, int64_t stride[SB_MAX_RANK])
{
    bool last = t->layout == SB_LAYOUT_CHANNELS_LAST && t->rank > 2;
    int64_t step = last ? t->dims[1] : 1;

    for (int i = t->rank - 1; i >= 0; i--) {
        if (last && i == 1) {
            stride[i] = 1;
            continue;
        }
        stride[i] = step;
        step *= t->dims[i];
    }
}

int sb_tensor_dim_at(const sb_tensor *t, int at)
{
    if (t->layout == SB_LAYOUT_PLAIN || t->rank < 3 || at == 0)
        return at;
    return at == t->rank - 1 ? 1 : at + 1;
}

int sb_tensor_place(const sb_tensor *t, int dim)
{
    if (t->layout == SB_LAYOUT_PLAIN || t->rank < 3 || dim == 0)
        return dim;
    return dim == 1 ? t->rank - 1 : dim - 1;
}

sb_tensor sb_tensor_as_lies(const sb_tensor *t)
{
    sb_tensor out = *t;

    out.buf = NULL;
    out.layout = SB_LAYOUT_PLAIN;
    for (int at = 0; at < t->rank; at++)
        out.dims[at] = t->dims[sb_tensor_dim_at(t, at)];
    return out;
}

bool sb_tensor_same_order(const sb_tensor *t)
{
    return t->rank < 3 || t->dims[1] == 1 ||
           sb_dims_product(t->dims, 2, t->rank) == 1;
}

/* One matrix [rows, cols] to [cols, rows].  A band is TILE rows of x; the last
 * one takes what is left over too. */
typedef struct transpose_job {
    const char *x;
    char *y;
    size_t rows, cols, bands; /* bands in each matrix */
    size_t size;              /* of an element */
} transpose_job;

/* ---- any size ----------------------------------------------------------- */

#define TRANSPOSE_ROWS(name, type)                                     \
    static void name(const type *x, type *y, size_t rows, size_t cols, \
                     size_t n)                                         \
    {                                                                  \
        for (size_t c = 0; c < cols; c += TILE) {                      \
            size_t m = cols - c < TILE ? cols - c : TILE;              \
            type tile[TILE][2 * TILE];                                 \
            for (size_t r = 0; r < n; r++)                             \
                for (size_t i = 0; i < m; i++)                         \
                    tile[i][r] = x[r * cols + c + i];                  \
            for (size_t i = 0; i < m; i++)                             \
                memcpy(y + (c + i) * rows, tile[i], n * sizeof(type)); \
        }                                                              \
    }

TRANSPOSE_ROWS(rows_8, uint8_t)
TRANSPOSE_ROWS(rows_16, uint16_t)
TRANSPOSE_ROWS(rows_64, uint64_t)

/* Two rows of bytes, woven: channels of integers are shuffled so. */
SB_HOT static void weave_8(const uint8_t *x, uint8_t *y, size_t cols)
{
    SB_SIMD
    for (size_t i = 0; i < cols; i++) {
        y[2 * i] = x[i];
        y[2 * i + 1] = x[cols + i];
    }
}

/* ---- four bytes --------------------------------------------------------- */

typedef uint32_t vec4 __attribute__((vector_size(16)));
typedef uint32_t vec8 __attribute__((vector_size(32)));

#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

/* The loops over a square are written out: arrays of vectors stay in registers
 * only if every index is a number. */
#define LOAD(v, i)  memcpy(&(v), x + (i)*cols, sizeof(v))
#define STORE(v, i) memcpy(y + (i)*rows, &(v), sizeof(v))

/* A square of x, whose rows are `cols` apart, to one of y, `rows` apart. */
static inline __attribute__((always_inline)) void
square_4(const uint32_t *x, size_t cols, uint32_t *y, size_t rows)
{
    vec4 a, b, c, d, p, q;

    LOAD(a, 0);
    LOAD(b, 1);
    LOAD(c, 2);
    LOAD(d, 3);
    p = MIX(a, b, 0, 4, 1, 5);
    q = MIX(c, d, 0, 4, 1, 5);
    b = MIX(a, b, 2, 6, 3, 7);
    d = MIX(c, d, 2, 6, 3, 7);
    a = MIX(p, q, 0, 1, 4, 5);
    STORE(a, 0);
    p = MIX(p, q, 2, 3, 6, 7);
    STORE(p, 1);
    a = MIX(b, d, 0, 1, 4, 5);
    STORE(a, 2);
    p = MIX(b, d, 2, 3, 6, 7);
    STORE(p, 3);
}

/* Rows i and i + 1 in pairs; then pairs of pairs in quadruples, both within
 * each half of a vector; then halves change places. */
#define PAIR_8(lo, hi, i)                         \
    vec8 lo, hi;                                  \
    LOAD(lo, i);                                  \
    LOAD(hi, i + 1);                              \
    t = MIX(lo, hi, 0, 8, 1, 9, 4, 12, 5, 13);    \
    hi = MIX(lo, hi, 2, 10, 3, 11, 6, 14, 7, 15); \
    lo = t;
#define QUAD_8(lo, hi)                            \
    t = MIX(lo, hi, 0, 1, 8, 9, 4, 5, 12, 13);    \
    hi = MIX(lo, hi, 2, 3, 10, 11, 6, 7, 14, 15); \
    lo = t;
#define HALF_8(lo, hi, i)                        \
    t = MIX(lo, hi, 0, 1, 2, 3, 8, 9, 10, 11);   \
    STORE(t, i);                                 \
    t = MIX(lo, hi, 4, 5, 6, 7, 12, 13, 14, 15); \
    STORE(t, i + 4);

static inline __attribute__((always_inline)) void
square_8(const uint32_t *x, size_t cols, uint32_t *y, size_t rows)
{
    vec8 t;

    PAIR_8(a, b, 0)
    PAIR_8(c, d, 2)
    PAIR_8(e, f, 4)
    PAIR_8(g, h, 6)
    QUAD_8(a, c)
    QUAD_8(b, d)
    QUAD_8(e, g)
    QUAD_8(f, h)
    HALF_8(a, e, 0)
    HALF_8(c, g, 1)
    HALF_8(b, f, 2)
    HALF_8(d, h, 3)
}

/* Where a square of `side` that begins at i must begin to end inside n. */
static inline size_t reorder_inside(size_t i, size_t side, size_t n)
{
    return i + side <= n ? i : n - side;
}

/* n rows of x, which become n neighbors in each row of y. */
SB_HOT static void rows_32(const uint32_t *x, uint32_t *y, size_t rows,
                           size_t cols, size_t n)
{
    if (n >= 8 && cols >= 8) {
        for (size_t i = 0; i < cols; i += 8) {
            size_t c = reorder_inside(i, 8, cols);
            for (size_t j = 0; j < n; j += 8) {
                size_t r = reorder_inside(j, 8, n);
                square_8(x + r * cols + c, cols, y + c * rows + r, rows);
            }
        }
    } else if (n >= 4 && cols >= 4) {
        for (size_t i = 0; i < cols; i += 4) {
            size_t c = reorder_inside(i, 4, cols);
            for (size_t j = 0; j < n; j += 4) {
                size_t r = reorder_inside(j, 4, n);
                square_4(x + r * cols + c, cols, y + c * rows + r, rows);
            }
        }
    } else if (n == 2 && rows == 2) {
        const uint32_t *a = x, *b = x + cols;
        SB_SIMD
        for (size_t i = 0; i < cols; i++) {
            y[2 * i] = a[i];
            y[2 * i + 1] = b[i];
        }
    } else if (n == 3 && rows == 3) {
        const uint32_t *a = x, *b = x + cols, *c = x + 2 * cols;
        SB_SIMD
        for (size_t i = 0; i < cols; i++) {
            y[3 * i] = a[i];
            y[3 * i + 1] = b[i];
            y[3 * i + 2] = c[i];
        }
    } else if (cols == 3) {
        for (size_t c = 0; c < 3; c++)
            for (size_t i = 0; i < n; i++)
                y[c * rows + i] = x[3 * i + c];
    } else {
        for (size_t i = 0; i < cols; i++)
            for (size_t r = 0; r < n; r++)
                y[i * rows + r] = x[r * cols + i];
    }
}

/* ---- both --------------------------------------------------------------- */

static void transpose_range(void *arg, size_t begin, size_t end)
{
    const transpose_job *job = arg;
    size_t rows = job->rows, cols = job->cols;

    for (size_t i = begin; i < end; i++) {
        size_t matrix = i / job->bands, band = i % job->bands;
        size_t first = band * TILE;
        size_t n = band + 1 < job->bands ? TILE : rows - first;
        size_t at = matrix * rows * cols;
        const void *x = job->x + (at + first * cols) * job->size;
        void *y = job->y + (at + first) * job->size;

        if (job->size == 1 && rows == 2)
            weave_8(x, y, cols);
        else if (job->size == 1)
            rows_8(x, y, rows, cols, n);
        else if (job->size == 2)
            rows_16(x, y, rows, cols, n);
        else if (job->size == 4)
            rows_32(x, y, rows, cols, n);
        else
            rows_64(x, y, rows, cols, n);
    }
}

void sb_tensor_reorder(sb_ctx *ctx, const sb_tensor *from, sb_tensor *to)
{
    size_t size = sb_dtype_size(from->dtype);

    if (from->layout == to->layout || sb_tensor_same_order(from)) {
        memcpy(to->data, from->data, sb_tensor_bytes(from));
        return;
    }
    size_t channels = (size_t)from->dims[1];
    size_t spots = (size_t)sb_dims_product(from->dims, 2, from->rank);
    bool spread = from->layout == SB_LAYOUT_PLAIN;
    transpose_job job = {.x = from->data,
                         .y = to->data,
                         .rows = spread ? channels : spots,
                         .cols = spread ? spots : channels,
                         .size = size};
    if (sb_tensor_count(from) == 0)
        return;
    job.bands = job.rows < TILE ? 1 : job.rows / TILE;
    sb_parallel_for(ctx, (size_t)from->dims[0] * job.bands,
                    GRAIN_BYTES / (TILE * job.cols * size) + 1, transpose_range,
                    &job);
}
