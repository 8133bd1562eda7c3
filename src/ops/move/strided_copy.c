/* Copying N-d blocks of elements between two layouts.
 *
 * First the description is brought to its shortest form: dimensions of size 1
 * go, neighbors that are one run in both layouts merge.  Then one of five
 * inner loops is chosen:
 *
 *   run   both strides of the last dimension are 1: memcpy
 *   rows  the same, but short: all rows of the dimension before it
 *   fill  the last dimension repeats one element
 *   tile  the last dimension is contiguous in dst, another one in src: a
 *         transposition, done in square tiles through a small buffer, so that
 *         both sides are touched in whole cache lines; long and narrow ones
 *         (pixels of three colors) go in strips that stay in the cache
 *   line  anything else: one element at a time
 *
 * Work is cut into pieces of fixed size, independent of the thread count. */
#include "ops/move/strided_copy.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/threads.h"

enum {
    TILE = 32,             /* elements; a tile of 16-byte ones is 16 KB */
    NARROW = 8,            /* fewer rows or columns make a strip */
    STRIP = 256,           /* elements of a strip at a time */
    SHORT_RUN = 256,       /* bytes: shorter runs go many at a time */
    PIECE_BYTES = 1 << 16, /* of the innermost run that one item copies */
};

typedef struct {
    uint64_t half[2];
} elem16;

/* One copy in shortest form, and what a piece of work is. */
typedef struct {
    sb_strided c;      /* outer dimensions in [0, rank - inner) */
    int64_t n_outer;   /* product of outer dimensions */
    int64_t n_piece;   /* pieces of the inner dimension(s) */
    int64_t piece_len; /* elements of dimension `cut` in a piece */
    int cut;           /* the inner dimension that is cut into pieces */
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

void sb_fill(void *dst, size_t elem, const void *value, int64_t count)
{
    char *d = dst;
    size_t total = (size_t)count * elem;

    if (total == 0)
        return;
    if (elem == 1) {
        memset(d, *(const unsigned char *)value, total);
        return;
    }
    /* Doubling keeps memcpy busy with long runs for any element size. */
    memcpy(d, value, elem);
    for (size_t have = elem; have < total;) {
        size_t more = have < total - have ? have : total - have;
        memcpy(d + have, d, more);
        have += more;
    }
}

/* ---- inner loops -------------------------------------------------------- */

static void inner_run(const sb_strided *c, char *dst, const char *src,
                      int64_t begin, int64_t end)
{
    size_t at = (size_t)begin * c->elem;

    memcpy(dst + at, src + at, (size_t)(end - begin) * c->elem);
}

/* Rows of a known size: moves instead of calls. */
#define COPY_ROWS(bytes)               \
    for (int64_t i = 0; i < rows; i++) \
    memcpy(dst + i * ds, src + i * ss, (bytes))

/* The last two dimensions: short rows, contiguous on both sides. */
static void inner_rows(const sb_strided *c, char *dst, const char *src,
                       int64_t begin, int64_t end)
{
    const ptrdiff_t size = (ptrdiff_t)c->elem;
    int64_t rows = c->dims[c->rank - 2];
    ptrdiff_t ds = c->dst_stride[c->rank - 2] * size;
    ptrdiff_t ss = c->src_stride[c->rank - 2] * size;
    size_t bytes = (size_t)(end - begin) * c->elem;

    dst += begin * size;
    src += begin * size;
    if (bytes == 4)
        COPY_ROWS(4);
    else if (bytes == 8)
        COPY_ROWS(8);
    else if (bytes == 16)
        COPY_ROWS(16);
    else if (bytes == 32)
        COPY_ROWS(32);
    else if (bytes == 64)
        COPY_ROWS(64);
    else
        COPY_ROWS(bytes);
}

/* One element again and again. */
static void inner_fill(const sb_strided *c, char *dst, const char *src,
                       int64_t begin, int64_t end)
{
    sb_fill(dst + (size_t)begin * c->elem, c->elem, src, end - begin);
}

/* One tile of a transposition: dst[a * dst_step + b] = src[a + b * src_step],
 * steps in bytes. */
typedef struct {
    char *dst;
    const char *src;
    ptrdiff_t dst_step, src_step;
    int64_t rows, cols;
} tile;

/* memcpy of a constant size is one move, and free of aliasing trouble. */
#define DEFINE_LINE(name, type)                                               \
    static void line_##name(const sb_strided *c, char *dst, const char *src,  \
                            int64_t begin, int64_t end)                       \
    {                                                                         \
        const ptrdiff_t size = (ptrdiff_t)sizeof(type);                       \
        ptrdiff_t ds = c->dst_stride[c->rank - 1] * size;                     \
        ptrdiff_t ss = c->src_stride[c->rank - 1] * size;                     \
                                                                              \
        for (int64_t i = begin; i < end; i++)                                 \
            memcpy(dst + i * ds, src + i * ss, sizeof(type));                 \
    }                                                                         \
                                                                              \
    static void strip_##name(const tile *t)                                   \
    {                                                                         \
        const ptrdiff_t size = (ptrdiff_t)sizeof(type);                       \
        bool wide = t->rows < t->cols; /* the longer one is the inner loop */ \
        int64_t n = wide ? t->rows : t->cols, m = wide ? t->cols : t->rows;   \
        ptrdiff_t dst_n = wide ? t->dst_step : size;                          \
        ptrdiff_t dst_m = wide ? size : t->dst_step;                          \
        ptrdiff_t src_n = wide ? size : t->src_step;                          \
        ptrdiff_t src_m = wide ? t->src_step : size;                          \
                                                                              \
        for (int64_t i = 0; i < n; i++)                                       \
            for (int64_t j = 0; j < m; j++)                                   \
                memcpy(t->dst + i * dst_n + j * dst_m,                        \
                       t->src + i * src_n + j * src_m, sizeof(type));         \
    }

#define DEFINE_SQUARE(name, type)                                  \
    static void square_##name(const tile *t)                       \
    {                                                              \
        const ptrdiff_t size = (ptrdiff_t)sizeof(type);            \
        type buf[TILE][TILE];                                      \
                                                                   \
        for (int64_t b = 0; b < t->cols; b++) {                    \
            const char *from = t->src + b * t->src_step;           \
            for (int64_t a = 0; a < t->rows; a++)                  \
                memcpy(&buf[a][b], from + a * size, sizeof(type)); \
        }                                                          \
        for (int64_t a = 0; a < t->rows; a++)                      \
            memcpy(t->dst + a * t->dst_step, buf[a],               \
                   (size_t)(t->cols * size));                      \
    }

DEFINE_LINE(1, uint8_t)
DEFINE_LINE(2, uint16_t)
DEFINE_LINE(4, uint32_t)
DEFINE_LINE(8, uint64_t)
DEFINE_LINE(16, elem16)
DEFINE_SQUARE(1, uint8_t)
DEFINE_SQUARE(2, uint16_t)
DEFINE_SQUARE(8, uint64_t)
DEFINE_SQUARE(16, elem16)

#ifdef __SSE2__
/* Four by four words in registers. */
static void transpose_4x4(char *d, ptrdiff_t ds, const char *s, ptrdiff_t ss)
{
    __m128i r0 = _mm_loadu_si128((const void *)s);
    __m128i r1 = _mm_loadu_si128((const void *)(s + ss));
    __m128i r2 = _mm_loadu_si128((const void *)(s + 2 * ss));
    __m128i r3 = _mm_loadu_si128((const void *)(s + 3 * ss));
    __m128i p = _mm_unpacklo_epi32(r0, r1), q = _mm_unpacklo_epi32(r2, r3);
    __m128i u = _mm_unpackhi_epi32(r0, r1), v = _mm_unpackhi_epi32(r2, r3);

    _mm_storeu_si128((void *)d, _mm_unpacklo_epi64(p, q));
    _mm_storeu_si128((void *)(d + ds), _mm_unpackhi_epi64(p, q));
    _mm_storeu_si128((void *)(d + 2 * ds), _mm_unpacklo_epi64(u, v));
    _mm_storeu_si128((void *)(d + 3 * ds), _mm_unpackhi_epi64(u, v));
}

/* The side with the larger step, whose lines may fall on each other in the
 * cache, is worked on four lines at a time. */
static void square_4(const tile *t)
{
    int64_t rows = t->rows / 4 * 4, cols = t->cols / 4 * 4;
    tile rest = *t;

    if (t->dst_step > t->src_step)
        for (int64_t a = 0; a < rows; a += 4)
            for (int64_t b = 0; b < cols; b += 4)
                transpose_4x4(t->dst + a * t->dst_step + b * 4, t->dst_step,
                              t->src + b * t->src_step + a * 4, t->src_step);
    else
        for (int64_t b = 0; b < cols; b += 4)
            for (int64_t a = 0; a < rows; a += 4)
                transpose_4x4(t->dst + a * t->dst_step + b * 4, t->dst_step,
                              t->src + b * t->src_step + a * 4, t->src_step);
    rest.rows = t->rows - rows; /* below the whole blocks */
    rest.cols = cols;
    rest.dst = t->dst + rows * t->dst_step;
    rest.src = t->src + rows * 4;
    strip_4(&rest);
    rest = *t; /* right of them */
    rest.cols = t->cols - cols;
    rest.dst = t->dst + cols * 4;
    rest.src = t->src + cols * t->src_step;
    strip_4(&rest);
}
#else
DEFINE_SQUARE(4, uint32_t)
#endif

typedef struct {
    void (*line)(const sb_strided *c, char *dst, const char *src, int64_t begin,
                 int64_t end);
    void (*strip)(const tile *t);
    void (*square)(const tile *t);
} inner_set;

static const inner_set *inner_of(size_t elem)
{
    static const inner_set sets[] = {
        {line_1, strip_1, square_1},    {line_2, strip_2, square_2},
        {line_4, strip_4, square_4},    {line_8, strip_8, square_8},
        {line_16, strip_16, square_16},
    };
    int i = elem == 1 ? 0 : elem == 2 ? 1 : elem == 4 ? 2 : elem == 8 ? 3 : 4;

    return &sets[i];
}

/* The last two dimensions: rows, contiguous in src, and columns, contiguous in
 * dst, of which [begin, end). */
static void inner_tiles(const sb_strided *c, char *dst, const char *src,
                        int64_t begin, int64_t end)
{
    const inner_set *set = inner_of(c->elem);
    const ptrdiff_t size = (ptrdiff_t)c->elem;
    int64_t rows = c->dims[c->rank - 2];
    bool narrow = rows < NARROW || end - begin < NARROW;
    int64_t step_a = narrow && rows >= NARROW ? STRIP : TILE;
    int64_t step_b = narrow && rows < NARROW ? STRIP : TILE;
    tile t = {.dst_step = c->dst_stride[c->rank - 2] * size,
              .src_step = c->src_stride[c->rank - 1] * size};

    for (int64_t b = begin; b < end; b += step_b)
        for (int64_t a = 0; a < rows; a += step_a) {
            t.rows = rows - a < step_a ? rows - a : step_a;
            t.cols = end - b < step_b ? end - b : step_b;
            t.dst = dst + a * t.dst_step + b * size;
            t.src = src + b * t.src_step + a * size;
            if (narrow)
                set->strip(&t);
            else
                set->square(&t);
        }
}

/* ---- shortest form ------------------------------------------------------ */

/* False if there is nothing to copy. */
static bool strided_copy_shorten(const sb_strided *c, sb_strided *out)
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
    job->cut = last;
    if (to_run && c->src_stride[last] == 1) {
        job->inner = inner_run;
        if (last > 0 && c->dims[last] * (int64_t)c->elem <= SHORT_RUN) {
            job->inner = inner_rows;
            job->n_inner = 2;
            job->cut = last - 1;
        }
        return;
    }
    if (to_run && c->src_stride[last] == 0) {
        job->inner = inner_fill;
        return;
    }
    job->inner = inner_of(c->elem)->line;
    for (int i = 0; to_run && i < last; i++) {
        if (c->src_stride[i] != 1)
            continue;
        swap_dims(c, i, last - 1);
        job->inner = inner_tiles;
        job->n_inner = 2;
        job->cut = c->dims[last - 1] > c->dims[last] ? last - 1 : last;
        break;
    }
}

/* ---- the loop over outer dimensions ------------------------------------- */

/* Part [from, to) of one inner block at these offsets. */
static void copy_piece(const copy_job *job, int64_t dst, int64_t src,
                       int64_t from, int64_t to)
{
    const sb_strided *c = &job->c;
    const ptrdiff_t size = (ptrdiff_t)c->elem;

    if (job->cut == c->rank - 1) {
        job->inner(c, job->dst + dst * size, job->src + src * size, from, to);
        return;
    }
    sb_strided part = *c;
    part.dims[job->cut] = to - from;
    dst += from * c->dst_stride[job->cut];
    src += from * c->src_stride[job->cut];
    job->inner(&part, job->dst + dst * size, job->src + src * size, 0,
               c->dims[c->rank - 1]);
}

static void copy_range(void *arg, size_t begin, size_t end)
{
    const copy_job *job = arg;
    const sb_strided *c = &job->c;
    int n_outer = c->rank - job->n_inner;
    int64_t len = c->dims[job->cut];
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
        copy_piece(job, dst, src, from, to);
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

    if (!strided_copy_shorten(c, &job.c))
        return;
    choose_inner(&job);
    int last = job.c.rank - 1;
    int64_t row = (int64_t)job.c.elem; /* bytes per step of the cut dim */
    if (job.n_inner == 2)
        row *= job.c.dims[job.cut == last ? last - 1 : last];
    job.piece_len = PIECE_BYTES / row / STRIP * STRIP;
    if (job.piece_len == 0)
        job.piece_len = TILE;
    int64_t n = job.c.dims[job.cut];
    job.n_piece = (n + job.piece_len - 1) / job.piece_len;
    for (int i = 0; i <= last - job.n_inner; i++)
        job.n_outer *= job.c.dims[i];

    int64_t len = n < job.piece_len ? n : job.piece_len;
    int64_t grain = PIECE_BYTES / (len * row) + 1;
    sb_parallel_for(ctx, (size_t)(job.n_outer * job.n_piece), (size_t)grain,
                    copy_range, &job);
}
