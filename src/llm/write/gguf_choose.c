/* Which GGUF format holds a matrix.
 *
 * Codes with scales go into a format only if it holds the same numbers: codes
 * of few enough bits around their zero point, scales and offsets that are
 * float16, or in blocks of 256 whole numbers times one.  The smallest such
 * format is taken. */
#include <math.h>
#include <string.h>

#include "llm/blocks/blocks.h"
#include "llm/write/llm_write.h"

/* From small to large, those of 32 before those of 256. */
static const char *const kinds[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"};
static const char *const k_kinds[] = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"};

static bool kind_holds(const sb_weight_format *f, const sb_matrix_facts *facts)
{
    return f->symmetric ? facts->whole && facts->lo >= (float)f->lo &&
                              facts->hi <= (float)f->hi
                        : (float)facts->code_hi <= (float)f->hi;
}

/* ---- blocks of 256 ------------------------------------------------------- */

void sb_gguf_block(const sb_matrix *m, const sb_weight_format *f,
                   const sb_matrix_row *row, int64_t at, sb_block *to)
{
    int middle = f->symmetric ? 1 << (f->bits - 1) : 0;

    for (int g = 0; g < f->block / f->group; g++) {
        int64_t from = (at + g * f->group) / m->group;
        float scale = row->scales[from], zero = row->zeros[from];
        int any = 0;

        for (int i = g * f->group; i < (g + 1) * f->group; i++) {
            int code = (int)row->codes[at + i] - (middle ? (int)zero : 0);
            any |= code;
            to->code[i] = (uint8_t)(code + middle);
        }
        /* Where no code reads it, a scale need not be one that fits. */
        to->scale[g] = any || f->block <= 32 ? scale : 0;
        to->offset[g] = middle ? -(float)middle * scale : -zero * scale;
    }
}

static bool same_block(const sb_weight_format *f, const sb_block *a,
                       const sb_block *b)
{
    float middle = f->symmetric ? (float)(1 << (f->bits - 1)) : 0;

    for (int i = 0; i < f->block; i++) {
        int g = i / f->group;
        float x = ((float)a->code[i] - middle) * a->scale[g];
        float y = ((float)b->code[i] - middle) * b->scale[g];
        float u = f->symmetric ? 0 : a->offset[g];
        float v = f->symmetric ? 0 : b->offset[g];

        if (!(fabsf((x + u) - (y + v)) <= (fabsf(x) + fabsf(u)) * 0x1p-19F))
            return false;
    }
    return true;
}

static bool same_row(const sb_matrix *m, const sb_weight_format *f,
                     const sb_matrix_row *row)
{
    uint8_t bytes[SB_BLOCK_MOST];
    sb_block a = {{0}, {0}, {0}}, b;

    for (int64_t at = 0; at < m->cols; at += f->block) {
        sb_gguf_block(m, f, row, at, &a);
        f->pack(&a, bytes);
        f->unpack(bytes, &b);
        if (!same_block(f, &a, &b))
            return false;
    }
    return true;
}

/* Does it hold every number?  *out stays NULL if none does. */
static sb_status choose_k(sb_ctx *ctx, const sb_matrix *m,
                          const sb_matrix_facts *facts,
                          const sb_weight_format **out)
{
    sb_matrix_row row;
    sb_status status = SB_OK;

    if (m->cols % 256)
        return SB_OK;
    SB_TRY(sb_matrix_row_make(ctx, m, &row));
    for (size_t i = 0; i < SB_COUNT(k_kinds) && !*out && status == SB_OK; i++) {
        const sb_weight_format *f = sb_weight_format_find(k_kinds[i]);
        bool same = m->group % f->group == 0 && kind_holds(f, facts);

        for (int64_t r = 0; same && r < m->rows; r++) {
            sb_matrix_codes(m, r, row.codes);
            sb_matrix_scales(m, r, row.scales, row.zeros);
            same = same_row(m, f, &row);
            if (r % 256 == 0 && (status = sb_ctx_poll(ctx)) != SB_OK)
                break;
        }
        *out = same ? f : NULL;
    }
    sb_matrix_row_free(ctx, &row);
    return status;
}

/* ---- blocks of 32 -------------------------------------------------------- */

/* NULL: none.  *offsets: only offsets are not what one holds. */
static const sb_weight_format *choose_32(const sb_matrix_facts *facts,
                                         bool round, bool *offsets)
{
    *offsets = false;
    for (size_t i = 0; i < SB_COUNT(kinds); i++) {
        const sb_weight_format *f = sb_weight_format_find(kinds[i]);

        if (!kind_holds(f, facts))
            continue;
        *offsets = !f->symmetric && !facts->half_offsets;
        if (!*offsets || (round && facts->offset_most < SB_BEYOND_HALF))
            return f;
    }
    return NULL;
}

/* What is wrong with scales, or SB_OK. */
static sb_status check_scales(const sb_parts *p, const sb_part *part,
                              const sb_matrix_facts *facts, bool round)
{
    const sb_matrix *m = &part->m;

    if (m->group % 32 || m->cols % 32)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': groups of %lld in rows of %lld do not fit the "
                       "blocks of 32 that GGUF has",
                       part->name, (long long)m->group, (long long)m->cols);
    if (!(facts->scale_most < SB_BEYOND_HALF))
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': the scale %.9g is beyond float16, which GGUF "
                       "wants",
                       part->name, (double)facts->scale_most);
    if (!facts->half && !round)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': the scale %.9g is no float16, which GGUF wants; "
                       "--round rounds scales",
                       part->name, (double)facts->odd);
    if (fabsf(facts->lost) > 0)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': the scale %.9g would be 0 as float16, which GGUF "
                       "wants",
                       part->name, (double)facts->lost);
    return SB_OK;
}

static sb_status choose_codes(const sb_parts *p, const sb_part *part,
                              bool round, const sb_weight_format **out)
{
    const sb_matrix *m = &part->m;
    sb_matrix_facts facts;
    bool offsets = false;

    if (m->order)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': its columns are in the order of g_idx, which "
                       "GGUF does not hold; --format float multiplies out",
                       part->name);
    SB_TRY(sb_matrix_look(p->ctx, m, &facts));
    *out = NULL;
    bool plain = facts.half && m->group % 32 == 0 && m->cols % 32 == 0;
    if (plain && facts.scale_most < SB_BEYOND_HALF)
        *out = choose_32(&facts, false, &offsets);
    if (!*out)
        SB_TRY(choose_k(p->ctx, m, &facts, out));
    if (*out)
        return SB_OK;
    SB_TRY(check_scales(p, part, &facts, round));
    *out = choose_32(&facts, round, &offsets);
    if (*out)
        return SB_OK;
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

/* ---- all ----------------------------------------------------------------- */

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
    const sb_weight_format *fit =
        opt->float_as
            ? sb_block_format(sb_weight_format_find(opt->float_as), m->cols)
            : NULL;
    *out = fit ? fit : *out;
    return SB_OK;
}
