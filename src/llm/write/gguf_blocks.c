/* The rows of a matrix as blocks of a GGUF format. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "llm/blocks/blocks.h"
#include "llm/write/llm_write.h"

/* ---- rows --------------------------------------------------------------- */

typedef struct fill_job {
    const sb_part *part;
    const sb_weight_format *f;
    uint8_t *to;
    float *floats; /* [rows of a piece, cols] for each piece */
    uint8_t *codes;
    size_t row_bytes, piece, scratch;
    bool *bad; /* by piece */
} fill_job;

static float blocks_largest(const float *x, size_t n)
{
    float most = 0;

    for (size_t i = 0; i < n; i++)
        most = sb_larger_size(most, x[i]);
    return most;
}

/* Floats to int8 by rounding, as llama.cpp does: the largest is 127.  Of scales
 * that are almost zero there is no inverse; float16 holds none of them. */
static void round_to_bytes(const float *x, sb_block *b)
{
    b->scale[0] = blocks_largest(x, 32) / 127;
    float inverse = b->scale[0] >= FLT_MIN ? 1 / b->scale[0] : 0;

    for (size_t i = 0; i < 32; i++)
        b->code[i] = (uint8_t)((int)roundf(x[i] * inverse) + 128);
}

/* Other blocks have few codes: their scales are searched. */
static void pack_floats(const fill_job *job, const float *x, uint8_t *to)
{
    const sb_weight_format *f = job->f;
    const float *end = x + job->part->m.cols;
    sb_block b[SB_BLOCK_GROUPS] = {{{0}, {0}, {0}}};

    while (x < end) {
        int left = (int)((end - x) / f->block), n = 1;

        if (f->hi == INT8_MAX) {
            round_to_bytes(x, b);
        } else {
            n = left < sb_block_batch(f) ? left : sb_block_batch(f);
            sb_block_search(f, x, NULL, n, b);
        }
        for (int i = 0; i < n; i++, x += f->block, to += f->bytes)
            f->pack(&b[i], to);
    }
}

static void pack_codes(const fill_job *job, const sb_matrix_row *row,
                       uint8_t *to)
{
    const sb_weight_format *f = job->f;
    sb_block b = {{0}, {0}, {0}};

    for (int64_t at = 0; at < job->part->m.cols; at += f->block) {
        sb_gguf_block(&job->part->m, f, row, at, &b);
        f->pack(&b, to);
        to += f->bytes;
    }
}

static bool fill_row(const fill_job *job, int64_t row, float *floats,
                     uint8_t *codes, uint8_t *to)
{
    const sb_matrix *m = &job->part->m;
    size_t n = (size_t)m->cols;

    if (job->f->unpack && m->bits) {
        const sb_matrix_row r = {codes, floats, floats + sb_matrix_groups(m)};

        sb_matrix_codes(m, row, r.codes);
        sb_matrix_scales(m, row, r.scales, r.zeros);
        pack_codes(job, &r, to);
        return true;
    }
    sb_matrix_floats(m, row, floats);
    if (job->f->unpack) {
        if (!sb_block_holds(job->f, floats, n))
            return false;
        pack_floats(job, floats, to);
        return true;
    }
    sb_convert(SB_DTYPE_F32, floats, job->f->dtype, to, n);
    return job->f->dtype != SB_DTYPE_F16 || m->t->dtype == SB_DTYPE_F16 ||
           blocks_largest(floats, n) < SB_BEYOND_HALF;
}

static void fill_pieces(void *arg, size_t begin, size_t end)
{
    fill_job *job = arg;
    size_t rows = (size_t)job->part->m.rows;

    for (size_t k = begin; k < end; k++) {
        size_t last = (k + 1) * job->piece < rows ? (k + 1) * job->piece : rows;

        for (size_t row = k * job->piece; row < last; row++)
            if (!fill_row(job, (int64_t)row, job->floats + k * job->scratch,
                          job->codes + k * (size_t)job->part->m.cols,
                          job->to + row * job->row_bytes))
                job->bad[k] = true;
    }
}

sb_status sb_gguf_fill(sb_ctx *ctx, const sb_part *part,
                       const sb_weight_format *f, uint8_t *to)
{
    enum { PIECES = 32 };
    const sb_matrix *m = &part->m;
    size_t cols = (size_t)m->cols, rows = (size_t)m->rows;
    fill_job job = {.part = part,
                    .f = f,
                    .to = to,
                    .row_bytes = cols / f->block * f->bytes,
                    .piece = (rows + PIECES - 1) / PIECES,
                    .scratch = cols + 2};
    size_t n = job.piece ? (rows + job.piece - 1) / job.piece : 0;
    bool bad[PIECES] = {false};

    if (m->bits)
        job.scratch += 2 * (size_t)sb_matrix_groups(m);
    job.bad = bad;
    job.floats = sb_alloc_raw(ctx, n * job.scratch, sizeof *job.floats);
    job.codes = sb_alloc_raw(ctx, n, cols);
    sb_status status = job.floats && job.codes ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK)
        sb_parallel_for(ctx, n, 1, fill_pieces, &job);
    sb_free(ctx, job.floats);
    sb_free(ctx, job.codes);
    for (size_t i = 0; i < n && status == SB_OK; i++)
        if (bad[i])
            status = sb_fail(ctx, SB_BAD_MODEL,
                             "'%s' has elements beyond what %s holds",
                             part->name, f->name);
    return status;
}
