/* Products by tiles of weights. */
#include "ops/matmul/tiled_matmul.h"

#include "base/threads.h"
#include "ops/infer_util.h"

/* A tile is about this large, so that it stays in the cache. */
enum { TILE_FLOATS = 1 << 18, TILE_LEAST = 32, TILE_MOST = 512 };

static sb_status tiled_gemm(const sb_kernel *k, bool bias,
                            const sb_tiled_matmul *t, int64_t rows,
                            sb_dnn_gemm **out)
{
    const sb_dnn_gemm_desc d = {
        .what = sb_node_label(k->graph, k->node),
        .m = t->m,
        .n = rows,
        .k = t->k,
        .a_row = t->k,
        .a_col = 1,
        .b_row = 1,
        .b_col = t->k,
        .c_row = t->n,
        .has_bias = bias,
    };

    return rows ? sb_dnn_gemm_create(k->ctx, &d, out) : SB_OK;
}

sb_status sb_tiled_matmul_plan(const sb_kernel *k, bool bias, int64_t m,
                               int64_t n, int64_t width, sb_tiled_matmul *out)
{
    int64_t tile = TILE_FLOATS / (width > 0 ? width : 1);

    tile = tile < TILE_LEAST ? TILE_LEAST : tile > TILE_MOST ? TILE_MOST : tile;
    tile = tile < n ? tile : n;
    *out = (sb_tiled_matmul){.m = m, .n = n, .k = width, .tile = tile};
    if (m == 0 || n == 0 || width == 0)
        return SB_OK;
    SB_TRY(tiled_gemm(k, bias, out, tile, &out->gemm));
    SB_TRY(tiled_gemm(k, bias, out, n % tile, &out->rest));
    size_t gemm = sb_dnn_gemm_scratch(out->gemm);
    size_t rest = out->rest ? sb_dnn_gemm_scratch(out->rest) : 0;
    size_t floats = (size_t)(tile * width) * sizeof(float);
    out->at_gemm = (floats + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    out->scratch = out->at_gemm + (gemm > rest ? gemm : rest);
    return SB_OK;
}

typedef struct tile_job {
    sb_weight_rows_fn rows;
    const void *arg;
    int64_t first, width;
    float *out;
} tile_job;

static void tile_range(void *arg, size_t begin, size_t end)
{
    const tile_job *job = arg;

    job->rows(job->arg, job->first + (int64_t)begin, (int64_t)(end - begin),
              job->out + (int64_t)begin * job->width);
}

sb_status sb_tiled_matmul_run(sb_ctx *ctx, const sb_tiled_matmul *t,
                              sb_weight_rows_fn rows, const void *arg,
                              const float *a, const float *bias, float *y,
                              void *scratch)
{
    for (int64_t at = 0; t->gemm && at < t->n; at += t->tile) {
        int64_t count = t->n - at < t->tile ? t->n - at : t->tile;
        tile_job job = {rows, arg, at, t->k, scratch};
        const sb_dnn_gemm_args args = {.a = a,
                                       .b = scratch,
                                       .bias = bias ? bias + at : NULL,
                                       .c = y + at,
                                       .scratch = (char *)scratch + t->at_gemm};

        SB_TRY(sb_ctx_poll(ctx));
        sb_parallel_for(ctx, (size_t)count, (size_t)(8192 / (t->k + 1) + 1),
                        tile_range, &job);
        SB_TRY(sb_dnn_gemm_run(count == t->tile ? t->gemm : t->rest, &args));
    }
    return SB_OK;
}

void sb_tiled_matmul_free(sb_tiled_matmul *t)
{
    sb_dnn_gemm_free(t->gemm);
    sb_dnn_gemm_free(t->rest);
    *t = (sb_tiled_matmul){0};
}
