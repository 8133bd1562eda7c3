/* Writing GGUF: header, keys, list of tensors, padding, tensors.
 *
 * One tensor at a time is in memory. */
#include <string.h>

#include "llm/arch.h"
#include "llm/blocks/blocks.h"
#include "llm/write/llm_write.h"

typedef struct tensor {
    const char *name;
    const sb_part *part;
    const sb_weight_format *format;
    uint64_t at, bytes; /* `at` from the start of the data */
} tensor;

typedef struct gguf_file {
    sb_parts *p;
    const sb_llm_write_options *opt;
    tensor *v;
    size_t n;
    float *divisors; /* of rotary frequencies, if LLaMA 3 scales them */
    sb_tensor rope;
    sb_part rope_part;
} gguf_file;

static uint64_t align_up(uint64_t x)
{
    return (x + SB_GGUF_ALIGNMENT - 1) / SB_GGUF_ALIGNMENT * SB_GGUF_ALIGNMENT;
}

/* ---- the list ----------------------------------------------------------- */

static sb_status add_tensor(gguf_file *f, const sb_part *part, const char *name)
{
    tensor *t = &f->v[f->n];

    *t = (tensor){.name = name, .part = part};
    SB_TRY(sb_gguf_choose(f->p, part, f->opt, &t->format));
    t->bytes = (uint64_t)part->m.rows * (uint64_t)part->m.cols /
               t->format->block * t->format->bytes;
    t->at = f->n ? align_up(t[-1].at + t[-1].bytes) : 0;
    f->n++;
    return SB_OK;
}

/* A last layer that is the embedding need not be written. */
static sb_status is_tied(const sb_parts *p, const sb_part *head, bool *out)
{
    *out = false;
    if (strcmp(head->name, "lm_head") != 0)
        return SB_OK;
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].table && p->v[i].m.rows == head->m.rows && !*out)
            SB_TRY(sb_matrix_same(p->ctx, &p->v[i].m, &head->m, out));
    return SB_OK;
}

/* What LLaMA 3 divides frequencies by, which llama.cpp wants as a tensor. */
static sb_status add_rope(gguf_file *f)
{
    const sb_llm_config *c = &f->p->config;
    int64_t n = c->rope_size / 2;
    sb_rope plain = c->rope;

    if (c->rope.scaling != SB_ROPE_LLAMA3)
        return SB_OK;
    plain.scaling = SB_ROPE_PLAIN;
    f->divisors = sb_alloc(f->p->ctx, (size_t)n, sizeof *f->divisors);
    if (!f->divisors)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < n; i++)
        f->divisors[i] = (float)(sb_rope_frequency(c, &plain, NULL, i) /
                                 sb_rope_frequency(c, &c->rope, NULL, i));
    f->rope = sb_tensor_make(SB_DTYPE_F32, 1, &n);
    f->rope.data = f->divisors;
    f->rope_part = (sb_part){.name = "rope_freqs",
                             .ending = "weight",
                             .vector = true,
                             .m = {.rows = n, .cols = 1, .t = &f->rope}};
    return add_tensor(f, &f->rope_part, "rope_freqs.weight");
}

static sb_status list_tensors(gguf_file *f)
{
    sb_parts *p = f->p;
    bool tied = false;

    f->v = sb_alloc(p->ctx, p->n + 1, sizeof *f->v);
    if (!f->v)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < p->n; i++) {
        const sb_part *part = &p->v[i];
        const char *name = NULL;

        SB_TRY(is_tied(p, part, &tied));
        if (tied)
            continue;
        SB_TRY(sb_gguf_name_of(&p->arena, p->config.arch->flags, part->name,
                               part->ending, &name));
        if (!name)
            return sb_fail(p->ctx, SB_UNSUPPORTED,
                           "GGUF has no name for '%s.%s'", part->name,
                           part->ending);
        SB_TRY(add_tensor(f, part, name));
    }
    return add_rope(f);
}

/* Bits of an element, on average, of the matrices of floats. */
static double mean_bits(const gguf_file *f)
{
    double bits = 0, all = 0;

    for (size_t i = 0; i < f->n; i++) {
        const tensor *t = &f->v[i];
        double count = (double)t->part->m.rows * (double)t->part->m.cols;

        if (t->part->vector || t->part->m.bits)
            continue;
        bits += count * sb_block_bits(t->format);
        all += count;
    }
    return bits / all;
}

/* Before anything is written: matrices of floats that are not what was asked
 * for, either other blocks or floats still. */
static void say_others(const gguf_file *f, const sb_weight_format *asked,
                       bool blocks)
{
    const tensor *first = NULL;
    size_t n = 0, n_all = 0;

    for (size_t i = 0; i < f->n; i++) {
        const tensor *t = &f->v[i];

        if (t->part->vector || t->part->m.bits)
            continue;
        n_all++;
        if (t->format != asked && (t->format->unpack != NULL) == blocks) {
            first = first ? first : t;
            n++;
        }
    }
    if (first)
        sb_warn(f->p->ctx,
                "%zu of %zu matrices %s %s instead of %s, the first is '%s': "
                "rows are no multiple of %d; %.2f bits an element instead of "
                "%.2f",
                n, n_all, blocks ? "become" : "stay", first->format->name,
                asked->name, first->part->name, asked->block, mean_bits(f),
                sb_block_bits(asked));
}

static void say_bits(const gguf_file *f)
{
    if (!f->opt->float_as)
        return;
    say_others(f, sb_weight_format_find(f->opt->float_as), true);
    say_others(f, sb_weight_format_find(f->opt->float_as), false);
}

/* The format that most elements have. */
static int file_type(const gguf_file *f)
{
    const sb_weight_format *best = sb_weight_format_plain(SB_DTYPE_F32);
    int64_t most = 0;

    for (size_t i = 0; i < f->n; i++) {
        int64_t sum = 0;

        for (size_t k = 0; k < f->n; k++)
            if (f->v[k].format == f->v[i].format && !f->v[k].part->table)
                sum += f->v[k].part->m.rows * f->v[k].part->m.cols;
        if (sum > most) {
            most = sum;
            best = f->v[i].format;
        }
    }
    return best->file_type;
}

/* ---- the file ----------------------------------------------------------- */

static sb_status put_header(gguf_file *f, sb_str *out)
{
    sb_str keys;
    uint64_t n = 0;

    sb_str_init(&keys, f->p->ctx);
    sb_status status = sb_gguf_put_config(f->p, file_type(f), &keys, &n);
    if (status == SB_OK && f->opt->tokenizer)
        status = sb_gguf_put_tokenizer(f->p->ctx, f->opt->tokenizer,
                                       f->p->config.vocabulary, &keys, &n);
    if (status == SB_OK)
        status = sb_str_status(&keys);
    sb_str_addn(out, "GGUF", 4);
    sb_gguf_put_number(out, 3, 4);
    sb_gguf_put_number(out, f->n, 8);
    sb_gguf_put_number(out, n, 8);
    sb_str_addn(out, sb_str_text(&keys), keys.len);
    sb_str_free(&keys);
    for (size_t i = 0; i < f->n; i++) {
        const tensor *t = &f->v[i];

        sb_gguf_put_text(out, t->name, strlen(t->name));
        sb_gguf_put_number(out, t->part->vector ? 1 : 2, 4);
        if (!t->part->vector)
            sb_gguf_put_number(out, (uint64_t)t->part->m.cols, 8);
        sb_gguf_put_number(out, (uint64_t)t->part->m.rows, 8);
        sb_gguf_put_number(out, (uint64_t)t->format->gguf, 4);
        sb_gguf_put_number(out, t->at, 8);
    }
    return status == SB_OK ? sb_str_status(out) : status;
}

static void put_padding(sb_writer *w)
{
    static const char zeros[SB_GGUF_ALIGNMENT];
    uint64_t at = sb_writer_size(w);

    sb_writer_put(w, zeros, (size_t)(align_up(at) - at));
}

static sb_status put_tensors(const gguf_file *f, sb_writer *w)
{
    sb_ctx *ctx = f->p->ctx;

    for (size_t i = 0; i < f->n; i++) {
        const tensor *t = &f->v[i];
        uint8_t *data = sb_alloc_raw(ctx, (size_t)t->bytes, 1);

        if (!data)
            return SB_NO_MEMORY;
        sb_status status = sb_progress(ctx, "save", i, f->n);
        if (status == SB_OK)
            status = sb_gguf_fill(ctx, t->part, t->format, data);
        if (status == SB_OK)
            sb_writer_put(w, data, (size_t)t->bytes);
        sb_free(ctx, data);
        SB_TRY(status);
        put_padding(w);
    }
    return SB_OK;
}

static sb_status put_file(gguf_file *f, const char *path)
{
    sb_writer *w = NULL;
    sb_str header;

    sb_str_init(&header, f->p->ctx);
    sb_status status = list_tensors(f);
    if (status == SB_OK)
        say_bits(f);
    if (status == SB_OK)
        status = put_header(f, &header);
    if (status == SB_OK)
        status = sb_writer_open(f->p->ctx, path, &w);
    if (status == SB_OK) {
        sb_writer_put(w, sb_str_text(&header), header.len);
        put_padding(w);
        status = put_tensors(f, w);
    }
    sb_str_free(&header);
    if (status == SB_OK)
        return sb_writer_commit(w);
    sb_writer_abort(w);
    return status;
}

sb_status sb_gguf_check(sb_parts *p, const sb_llm_write_options *opt)
{
    const sb_weight_format *format =
        opt->float_as ? sb_weight_format_find(opt->float_as) : NULL;

    if (!opt->tokenizer)
        return sb_fail(p->ctx, SB_BAD_ARG,
                       "a GGUF file holds the tokenizer as well: --tokenizer "
                       "names it");
    if (opt->float_as &&
        (!format || (!format->unpack && !sb_dtype_is_float(format->dtype))))
        return sb_fail(p->ctx, SB_BAD_ARG,
                       "floats as '%.64s', want f32, f16, bf16, or blocks: "
                       "q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, "
                       "q6_k",
                       opt->float_as);
    return SB_OK;
}

sb_status sb_gguf_write(sb_parts *p, const char *path,
                        const sb_llm_write_options *opt)
{
    gguf_file f = {.p = p, .opt = opt};

    SB_TRY(sb_gguf_check(p, opt));
    /* llama.cpp turns neighbors in LLaMA's own networks, halves elsewhere. */
    SB_TRY(sb_parts_set_rotary(
        p, !p->config.arch->gguf ||
               (p->config.arch->flags & SB_LLM_GGUF_INTERLEAVED)));
    sb_status status = put_file(&f, path);
    sb_free(p->ctx, f.v);
    sb_free(p->ctx, f.divisors);
    return status;
}
