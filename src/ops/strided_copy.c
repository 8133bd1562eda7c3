/* Copying N-d blocks of elements between two layouts.
 *
 * First the description is brought to its shortest form: dimensions of size 1
 * go, neighbours that are one run in both layouts merge.  Then one of three
 * inner loops is chosen:
 *
 *   run   both strides of the last dimension are 1: memcpy
 *   tile  the last dimension is contiguous in dst, another one in src: a
 *         transposition, done in square tiles through a small buffer, so that
 *         both sides are touched in whole cache lines
 *   line  anything else: one element at a time
 *
 * Work is cut into pieces of fixed size, independent of the thread count. */
#include "ops/strided_copy.h"

#include <string.h>

#include "base/threads.h"

enum {
    TILE = 32,            /* elements; a tile of 16-byte ones is 16 KB */
    PIECE_BYTES = 1 << 16 /* of the innermost run that one item copies */
};

typedef struct {
    uint64_t half[2];
} elem16;

/* One copy in shortest form, and what a piece of work is. */
typedef struct {
    sb_strided c;      /* outer dimensions in [0, rank - inner) */
    int64_t n_outer;   /* product of outer dimensions */
    int64_t n_piece;   /* pieces of the inner dimension(s) */
    int64_t piece_len; /* elements of the last dimension in a piece */
    char *dst;
    const char *src;
    void (*inner)(const struct sb_strided *c, char *dst, const char *src,
                  int64_t begin, int64_t end);
    int n_inner; /* dimensions that `inner` handles: 1 or 2 */
} copy_job;

sb_strided sb_strided_to(size_t elem, int rank, const int64_t *dims)
{
    sb_strided c = {.rank = rank, .elem = elem};
    int64_t s = 1;

    for (int i = rank - 1; i >= 0; i--) {
        c.dims[i] = dims[i];
        c.dst_stride[i] = s;
        s *= dims[i];
    }
    return c;
}

sb_strided sb_strided_between(const sb_tensor *dst, const sb_tensor *src,
                              const int64_t *dims)
{
    sb_strided c = {.rank = dst->rank, .elem = sb_dtype_size(dst->dtype)};
    int64_t to[SB_MAX_RANK], from[SB_MAX_RANK];

    sb_tensor_strides(dst, to);
    sb_tensor_strides(src, from);
    for (int at = 0; at < dst->rank; at++) {
        int d = sb_tensor_dim_at(dst, at);
        c.dims[at] = dims[d];
        c.dst_stride[at] = to[d];
        c.src_stride[at] = from[d];
    }
    return c;
}

/* ---- inner loops ----------------------------------------------------------
 */

static void inner_run(const sb_strided *c, char *dst, const char *src,
                      int64_t begin, int64_t end)
{
    size_t at = (size_t)begin * c->elem;

    memcpy(dst + at, src + at, (size_t)(end - begin) * c->elem);
}

/* memcpy of a constant size is one move, and free of aliasing trouble. */
#define DEFINE_INNER(name, type)                                             \
    static void line_##name(const sb_strided *c, char *dst, const char *src, \
                            int64_t begin, int64_t end)                      \
    {                                                                        \
        const ptrdiff_t size = (ptrdiff_t)sizeof(type);                      \
        ptrdiff_t ds = c->dst_stride[c->rank - 1] * size;                    \
        ptrdiff_t ss = c->src_stride[c->rank - 1] * size;                    \
                                                                             \
        for (int64_t i = begin; i < end; i++)                                \
            memcpy(dst + i * ds, src + i * ss, sizeof(type));                \
    }                                                                        \
                                                                             \
    /* rows: dimension rank-2, contiguous in src; columns: rank-1 */         \
    static void tile_##name(const sb_strided *c, char *dst, const char *src, \
                            int64_t begin, int64_t end)                      \
    {                                                                        \
        const ptrdiff_t size = (ptrdiff_t)sizeof(type);                      \
        type buf[TILE][TILE];                                                \
        int64_t rows = c->dims[c->rank - 2];                                 \
        ptrdiff_t ds = c->dst_stride[c->rank - 2] * size;                    \
        ptrdiff_t ss = c->src_stride[c->rank - 1] * size;                    \
                                                                             \
        for (int64_t j = begin; j < end; j += TILE) {                        \
            int64_t nj = end - j < TILE ? end - j : TILE;                    \
            for (int64_t i = 0; i < rows; i += TILE) {                       \
                int64_t ni = rows - i < TILE ? rows - i : TILE;              \
                for (int64_t b = 0; b < nj; b++) {                           \
                    const char *from = src + (j + b) * ss + i * size;        \
                    for (int64_t a = 0; a < ni; a++)                         \
                        memcpy(&buf[a][b], from + a * size, sizeof(type));   \
                }                                                            \
                for (int64_t a = 0; a < ni; a++)                             \
                    memcpy(dst + (i + a) * ds + j * size, buf[a],            \
                           (size_t)(nj * size));                             \
            }                                                                \
        }                                                                    \
    }

DEFINE_INNER(1, uint8_t)
DEFINE_INNER(2, uint16_t)
DEFINE_INNER(4, uint32_t)
DEFINE_INNER(8, uint64_t)
DEFINE_INNER(16, elem16)
#undef DEFINE_INNER

/* ---- shortest form --------------------------------------------------------
 */

/* False if there is nothing to copy. */
static bool shorten(const sb_strided *c, sb_strided *out)
{
    *out = (sb_strided){.elem = c->elem};
    for (int i = 0; i < c->rank; i++) {
        if (c->dims[i] == 0)
            return false;
        if (c->dims[i] == 1)
            continue;
        int last = out->rank - 1;
        if (last >= 0 &&
            out->dst_stride[last] == c->dst_stride[i] * c->dims[i] &&
            out->src_stride[last] == c->src_stride[i] * c->dims[i]) {
            out->dims[last] *= c->dims[i];
            out->dst_stride[last] = c->dst_stride[i];
            out->src_stride[last] = c->src_stride[i];
            continue;
        }
        out->dims[out->rank] = c->dims[i];
        out->dst_stride[out->rank] = c->dst_stride[i];
        out->src_stride[out->rank] = c->src_stride[i];
        out->rank++;
    }
    if (out->rank == 0) { /* a single element */
        out->rank = 1;
        out->dims[0] = out->dst_stride[0] = out->src_stride[0] = 1;
    }
    return true;
}

static void swap_dims(sb_strided *c, int a, int b)
{
    int64_t d = c->dims[a], ds = c->dst_stride[a], ss = c->src_stride[a];

    c->dims[a] = c->dims[b];
    c->dst_stride[a] = c->dst_stride[b];
    c->src_stride[a] = c->src_stride[b];
    c->dims[b] = d;
    c->dst_stride[b] = ds;
    c->src_stride[b] = ss;
}

/* Chooses the inner loop; may reorder the outer dimensions for a tile. */
static void choose_inner(copy_job *job)
{
    sb_strided *c = &job->c;
    int last = c->rank - 1;
    bool to_run = c->dst_stride[last] == 1;

    job->n_inner = 1;
    if (to_run && c->src_stride[last] == 1) {
        job->inner = inner_run;
        return;
    }
    for (int i = 0; to_run && i < last && c->dims[last] > 3; i++) {
        if (c->src_stride[i] != 1)
            continue;
        swap_dims(c, i, last - 1);
        job->n_inner = 2;
        break;
    }
    bool tile = job->n_inner == 2;
    switch (c->elem) {
    case 1:
        job->inner = tile ? tile_1 : line_1;
        break;
    case 2:
        job->inner = tile ? tile_2 : line_2;
        break;
    case 4:
        job->inner = tile ? tile_4 : line_4;
        break;
    case 8:
        job->inner = tile ? tile_8 : line_8;
        break;
    default:
        job->inner = tile ? tile_16 : line_16;
        break;
    }
}

/* ---- the loop over outer dimensions ---------------------------------------
 */

static void copy_range(void *arg, size_t begin, size_t end)
{
    const copy_job *job = arg;
    const sb_strided *c = &job->c;
    int n_outer = c->rank - job->n_inner;
    int64_t len = c->dims[c->rank - 1];
    int64_t x[SB_MAX_RANK] = {0};
    int64_t piece = (int64_t)begin % job->n_piece;
    int64_t rest = (int64_t)begin / job->n_piece;
    int64_t dst = 0, src = 0;

    for (int i = n_outer - 1; i >= 0; i--) {
        x[i] = rest % c->dims[i];
        rest /= c->dims[i];
        dst += x[i] * c->dst_stride[i];
        src += x[i] * c->src_stride[i];
    }
    for (size_t item = begin; item < end; item++) {
        int64_t from = piece * job->piece_len;
        int64_t to = from + job->piece_len < len ? from + job->piece_len : len;
        job->inner(c, job->dst + dst * (ptrdiff_t)c->elem,
                   job->src + src * (ptrdiff_t)c->elem, from, to);
        if (++piece < job->n_piece)
            continue;
        piece = 0;
        for (int i = n_outer - 1; i >= 0; i--) {
            dst += c->dst_stride[i];
            src += c->src_stride[i];
            if (++x[i] < c->dims[i])
                break;
            dst -= c->dst_stride[i] * c->dims[i];
            src -= c->src_stride[i] * c->dims[i];
            x[i] = 0;
        }
    }
}

void sb_strided_copy(sb_ctx *ctx, const sb_strided *c, void *dst,
                     const void *src)
{
    copy_job job = {.dst = dst, .src = src, .n_outer = 1};

    if (!shorten(c, &job.c))
        return;
    choose_inner(&job);
    int last = job.c.rank - 1;
    int64_t row = (int64_t)job.c.elem; /* bytes per step of the last dim */
    if (job.n_inner == 2)
        row *= job.c.dims[last - 1];
    job.piece_len = PIECE_BYTES / row;
    if (job.n_inner == 2)
        job.piece_len = job.piece_len / TILE * TILE;
    if (job.piece_len < TILE)
        job.piece_len = TILE;
    job.n_piece = (job.c.dims[last] + job.piece_len - 1) / job.piece_len;
    for (int i = 0; i <= last - job.n_inner; i++)
        job.n_outer *= job.c.dims[i];

    int64_t len =
        job.c.dims[last] < job.piece_len ? job.c.dims[last] : job.piece_len;
    int64_t grain = PIECE_BYTES / (len * row) + 1;
    sb_parallel_for(ctx, (size_t)(job.n_outer * job.n_piece), (size_t)grain,
                    copy_range, &job);
}
