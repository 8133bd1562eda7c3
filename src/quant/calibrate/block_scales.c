/* Scales of weights that will be blocks of a GGUF file: those that its format
 * holds, so that rounding afterwards is rounding to what the file will say.
 *
 * Offsets are numbers of their own there, so zero points are no whole
 * numbers. */
#include <float.h>

#include "base/threads.h"
#include "llm/blocks/blocks.h"
#include "quant/calibrate/calibrate.h"

typedef struct scales_job {
    const sb_quantizer *q;
    const sb_qparams *p;
    const float *w, *gram; /* [cols, cols], or NULL */
    int64_t rows, cols;
    bool *bad; /* [rows] with elements beyond what the format holds */
} scales_job;

/* n elements of row `row`, and what they weigh. */
static void scales_read(const scales_job *j, int64_t row, int64_t at, int64_t n,
                        float *x, float *weight)
{
    bool turned = j->q->axis == 0; /* [cols, rows] */

    for (int64_t i = 0; i < n; i++) {
        int64_t c = at + i;

        x[i] = j->w[turned ? c * j->rows + row : row * j->cols + c];
        /* What samples did not show counts a little: it may be needed. */
        if (j->gram)
            weight[i] = j->gram[c * (j->cols + 1)] > FLT_MIN
                            ? j->gram[c * (j->cols + 1)]
                            : FLT_MIN;
    }
}

static void scales_put(const scales_job *j, int64_t row, int64_t at,
                       const sb_block *b)
{
    const sb_weight_format *f = j->q->blocks;
    int64_t n = j->cols / f->group;

    for (int g = 0; g < f->block / f->group; g++) {
        int64_t k = at / f->group + g;
        int64_t to = j->q->axis == 0 ? k * j->rows + row : row * n + k;

        j->p->scale[to] = b->scale[g];
        j->p->zero_point[to] =
            f->symmetric ? 0 : 0.0F - b->offset[g] / b->scale[g];
    }
}

static void scales_rows(void *arg, size_t begin, size_t end)
{
    const scales_job *j = arg;
    const sb_weight_format *f = j->q->blocks;
    float x[SB_BATCH_MOST], weight[SB_BATCH_MOST];
    sb_block b[SB_BLOCK_GROUPS] = {{{0}, {0}, {0}}};

    for (size_t row = begin; row < end; row++)
        for (int64_t at = 0; at < j->cols;) {
            int64_t n = (j->cols - at) / f->block;

            if (n > sb_block_batch(f))
                n = sb_block_batch(f);
            scales_read(j, (int64_t)row, at, n * f->block, x, weight);
            if (!sb_block_holds(f, x, (size_t)(n * f->block))) {
                j->bad[row] = true;
                break;
            }
            sb_block_search(f, x, j->gram ? weight : NULL, (int)n, b);
            for (int64_t i = 0; i < n; i++, at += f->block)
                scales_put(j, (int64_t)row, at, &b[i]);
        }
}

static sb_status scales_search(const sb_quant_model *qm, scales_job *j)
{
    sb_status status = SB_OK;

    j->bad = sb_alloc(qm->ctx, (size_t)j->rows + 1, sizeof *j->bad);
    if (!j->bad)
        return SB_NO_MEMORY;
    sb_parallel_for(qm->ctx, (size_t)j->rows, 1, scales_rows, j);
    for (int64_t i = 0; i < j->rows && status == SB_OK; i++)
        if (j->bad[i])
            status =
                sb_fail(qm->ctx, SB_BAD_MODEL,
                        "'%s': the weight has elements beyond what %s holds",
                        j->q->name, j->q->blocks->name);
    sb_free(qm->ctx, j->bad);
    return status;
}

sb_status sb_block_scales(const sb_quant_model *qm, const sb_quantizer *q,
                          const sb_tensor *w, const float *gram)
{
    scales_job j = {.q = q,
                    .p = sb_quantizer_qparams(qm, q),
                    .gram = gram,
                    .rows = w->dims[1 - q->axis],
                    .cols = w->dims[q->axis]};
    float *room = NULL;

    if (w->dtype != SB_DTYPE_F32) {
        size_t n = (size_t)sb_tensor_count(w);

        room = sb_alloc_raw(qm->ctx, n, sizeof *room);
        if (!room)
            return SB_NO_MEMORY;
        sb_convert(w->dtype, w->data, SB_DTYPE_F32, room, n);
    }
    j.w = room ? room : w->data;
    sb_status status = scales_search(qm, &j);
    sb_free(qm->ctx, room);
    return status == SB_OK ? sb_ctx_poll(qm->ctx) : status;
}
