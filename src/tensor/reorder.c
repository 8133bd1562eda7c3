/* Between plain and channels-last: a transpose of [C, S] into [S, C] for each
 * image, done in square tiles that stay in the first-level cache. */
#include "tensor/tensor.h"

#include <string.h>

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

bool sb_tensor_same_order(const sb_tensor *t)
{
    return t->rank < 3 || t->dims[1] == 1 ||
           sb_dims_product(t->dims, 2, t->rank) == 1;
}

/* One matrix [rows, cols] to [cols, rows], rows of `x` in [begin, end). */
typedef struct transpose_job {
    const char *x;
    char *y;
    size_t rows, cols, bands; /* bands of TILE rows in each matrix */
    size_t size;              /* of an element */
} transpose_job;

#define TRANSPOSE_BAND(name, type)                                          \
    static void name(const transpose_job *job, size_t matrix, size_t first) \
    {                                                                       \
        size_t rows = job->rows, cols = job->cols;                          \
        size_t n = rows - first < TILE ? rows - first : TILE;               \
        const type *x = (const type *)(const void *)job->x +                \
                        matrix * rows * cols + first * cols;                \
        type *y = (type *)(void *)job->y + matrix * rows * cols + first;    \
                                                                            \
        for (size_t c = 0; c < cols; c += TILE) {                           \
            size_t m = cols - c < TILE ? cols - c : TILE;                   \
            type tile[TILE][TILE];                                          \
            for (size_t r = 0; r < n; r++)                                  \
                for (size_t i = 0; i < m; i++)                              \
                    tile[i][r] = x[r * cols + c + i];                       \
            for (size_t i = 0; i < m; i++)                                  \
                memcpy(y + (c + i) * rows, tile[i], n * sizeof(type));      \
        }                                                                   \
    }

TRANSPOSE_BAND(band_8, uint8_t)
TRANSPOSE_BAND(band_16, uint16_t)
TRANSPOSE_BAND(band_32, uint32_t)
TRANSPOSE_BAND(band_64, uint64_t)

static void transpose_range(void *arg, size_t begin, size_t end)
{
    const transpose_job *job = arg;

    for (size_t i = begin; i < end; i++) {
        size_t matrix = i / job->bands, first = i % job->bands * TILE;
        switch (job->size) {
        case 1:
            band_8(job, matrix, first);
            break;
        case 2:
            band_16(job, matrix, first);
            break;
        case 4:
            band_32(job, matrix, first);
            break;
        default:
            band_64(job, matrix, first);
            break;
        }
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
    job.bands = (job.rows + TILE - 1) / TILE;
    sb_parallel_for(ctx, (size_t)from->dims[0] * job.bands,
                    GRAIN_BYTES / (TILE * job.cols * size) + 1, transpose_range,
                    &job);
}
