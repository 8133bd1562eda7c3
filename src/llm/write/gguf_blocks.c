/* Which GGUF format holds a matrix, and its blocks.
 *
 * Codes with scales go into a format only if it holds the same numbers: codes
 * of few enough bits around their zero point, scales and offsets that are
 * float16.  The smallest such format is taken. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "llm/write/llm_write.h"

/* Formats of codes, from small to large; `lo` and `hi` bound code - zero of
 * symmetric ones, and the code of others. */
static const struct {
    const char *name;
    float lo, hi;
    int add; /* to code - zero, to make the code that `pack` wants */
} kinds[] = {
    {"Q4_0", -8, 7, 8}, {"Q4_1", 0, 15, 0},       {"Q5_0", -16, 15, 128},
    {"Q5_1", 0, 31, 0}, {"Q8_0", -128, 127, 128},
};

static size_t kind_of(const char *name)
{
    size_t i = 0;

    while (i < SB_COUNT(kinds) && strcmp(kinds[i].name, name) != 0)
        i++;
    return i;
}

static bool kind_holds(size_t i, const sb_weight_format *f,
                       const sb_matrix_facts *facts)
{
    return f->symmetric ? facts->whole && facts->lo >= kinds[i].lo &&
                              facts->hi <= kinds[i].hi
                        : (float)facts->code_hi <= kinds[i].hi;
}

static sb_status choose_codes(const sb_parts *p, const sb_part *part,
                              bool round, const sb_weight_format **out)
{
    const sb_matrix *m = &part->m;
    sb_matrix_facts facts;

    SB_TRY(sb_matrix_look(p->ctx, m, &facts));
    if (m->group % 32 || m->cols % 32)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': groups of %lld in rows of %lld do not fit the "
                       "blocks of 32 that GGUF has",
                       part->name, (long long)m->group, (long long)m->cols);
    if (!(facts.scale_most < SB_BEYOND_HALF))
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': the scale %.9g is beyond float16, which GGUF "
                       "wants",
                       part->name, (double)facts.scale_most);
    if (!facts.half && !round)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': the scale %.9g is no float16, which GGUF wants; "
                       "--round rounds scales",
                       part->name, (double)facts.odd);
    if (fabsf(facts.lost) > 0)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': the scale %.9g would be 0 as float16, which GGUF "
                       "wants",
                       part->name, (double)facts.lost);
    bool offsets = false;
    for (size_t i = 0; i < SB_COUNT(kinds); i++) {
        const sb_weight_format *f = sb_weight_format_find(kinds[i].name);

        if (!kind_holds(i, f, &facts))
            continue;
        offsets = !f->symmetric && !facts.half_offsets;
        if (offsets && !(round && facts.offset_most < SB_BEYOND_HALF))
            continue;
        *out = f;
        return SB_OK;
    }
    return sb_fail(p->ctx, SB_UNSUPPORTED,
                   offsets && round ? "'%s': its zero points times scales are "
                                      "beyond float16, as the offsets of GGUF "
                                      "are"
                   : offsets
                       ? "'%s': its zero points times scales are no "
                         "float16, as the offsets of GGUF are; --round "
                         "rounds them"
                       : "'%s': codes of %d bit with zero points are in no "
                         "GGUF format",
                   part->name, m->bits);
}

sb_status sb_gguf_choose(const sb_parts *p, const sb_part *part,
                         const sb_llm_write_options *opt,
                         const sb_weight_format **out)
{
    const sb_matrix *m = &part->m;

    if (part->vector) { /* llama.cpp computes with float32 there */
        *out = sb_weight_format_plain(SB_DTYPE_F32);
        return SB_OK;
    }
    if (m->bits)
        return choose_codes(p, part, opt->round, out);
    *out = sb_weight_format_plain(m->t->dtype);
    if (!*out) /* float64 and others that GGUF does not have */
        *out = sb_weight_format_plain(SB_DTYPE_F32);
    if (opt->float_as) {
        const sb_weight_format *f = sb_weight_format_find(opt->float_as);

        if (!f || (f->unpack ? strcmp(f->name, "Q8_0") != 0
                             : !sb_dtype_is_float(f->dtype)))
            return sb_fail(p->ctx, SB_BAD_ARG,
                           "floats as '%.64s', want f32, f16, bf16 or q8_0",
                           opt->float_as);
        if (m->cols % f->block)
            sb_warn(p->ctx, "'%s' stays %s: rows of %lld are no multiple of %d",
                    part->name, (*out)->name, (long long)m->cols, f->block);
        else
            *out = f;
    }
    return SB_OK;
}

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
static void pack_floats(const fill_job *job, const float *x, uint8_t *to)
{
    size_t cols = (size_t)job->part->m.cols;

    for (size_t at = 0; at < cols; at += 32, to += job->f->bytes) {
        sb_block b = {.scale = {blocks_largest(x + at, 32) / 127}};
        float inverse = b.scale[0] >= FLT_MIN ? 1 / b.scale[0] : 0;

        for (size_t i = 0; i < 32; i++)
            b.code[i] = (uint8_t)((int)roundf(x[at + i] * inverse) + 128);
        job->f->pack(&b, to);
    }
}

static void pack_codes(const fill_job *job, const uint8_t *codes,
                       const float *scales, const float *zeros, uint8_t *to)
{
    const sb_matrix *m = &job->part->m;
    int add = kinds[kind_of(job->f->name)].add;

    for (int64_t at = 0; at < m->cols; at += 32, to += job->f->bytes) {
        int64_t g = at / m->group;
        sb_block b = {.scale = {scales[g]}, .offset = {-zeros[g] * scales[g]}};

        for (int64_t i = 0; i < 32; i++)
            b.code[i] =
                job->f->symmetric
                    ? (uint8_t)((int)codes[at + i] - (int)zeros[g] + add)
                    : codes[at + i];
        job->f->pack(&b, to);
    }
}

static bool fill_row(const fill_job *job, int64_t row, float *floats,
                     uint8_t *codes, uint8_t *to)
{
    const sb_matrix *m = &job->part->m;
    size_t n = (size_t)m->cols;

    if (job->f->unpack && m->bits) {
        sb_matrix_codes(m, row, codes, floats, floats + sb_matrix_groups(m));
        pack_codes(job, codes, floats, floats + sb_matrix_groups(m), to);
        return true;
    }
    sb_matrix_floats(m, row, floats);
    float most = blocks_largest(floats, n);
    if (job->f->unpack) {
        if (!(most / 127 < SB_BEYOND_HALF))
            return false;
        pack_floats(job, floats, to);
        return true;
    }
    sb_convert(SB_DTYPE_F32, floats, job->f->dtype, to, n);
    return job->f->dtype != SB_DTYPE_F16 || most < SB_BEYOND_HALF ||
           m->t->dtype == SB_DTYPE_F16;
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
