/* Hugging Face folders: floats, or packed weights as GPTQ has them.
 *
 *     NAME.qweight  int32 [in * bits / 32, out], codes along `in`, low first
 *     NAME.qzeros   int32 [groups, out * bits / 32], zero points along `out`
 *     NAME.scales   float16 [groups, out]
 *     NAME.g_idx    int32 [in], the group of each input
 *
 * Files of the first version hold zero - 1.  Those around the middle are read
 * by every program.  Others are written in the second version, because the
 * programs that know it take the first one only around the middle, or from
 * themselves (GPTQModel), unless the caller wants the first one.
 *
 * What the first version cannot hold: a zero point of 0, since readers add 1 to
 * whole words, which would carry into its neighbor; three bits, on which
 * programs do not agree; and the middle + 1 everywhere, which stored less one
 * looks like the middle itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "llm/write/llm_write.h"
#include "llm/write/shards.h"

enum { AS_FLOATS, AS_VECTOR, AS_CODES, AS_ZEROS, AS_SCALES, AS_GROUPS };

/* How one matrix is stored. */
typedef struct packing {
    const sb_part *part;
    int bits, shift; /* shift is added to codes and zero points */
    bool packed;
    bool minus_one; /* norms of Gemma multiply by 1 + weight */
    int stored;     /* subtracted from zero points: 1 in the first version */
    const sb_weight_format *format; /* of floats */
} packing;

typedef struct folder {
    sb_parts *p;
    const sb_llm_write_options *opt;
    sb_shards s;
    packing *v;
    int bits; /* of most matrices; 0: none is packed */
    int64_t group;
    bool symmetric, second_version, tied, head, ordered;
    const char *no_first; /* a part that the first version cannot hold */
} folder;

/* ---- what becomes of each ------------------------------------------------ */

static int least_bits(const sb_matrix_facts *f, int *shift)
{
    static const int known[] = {2, 3, 4, 8};
    bool one = !(f->zero_lo < f->zero_hi);

    for (size_t i = 0; i < SB_COUNT(known); i++) {
        int middle = 1 << (known[i] - 1), most = 2 * middle - 1;

        *shift = 0;
        /* One zero point for all may as well be the middle. */
        if (one && f->lo >= (float)-middle && f->hi <= (float)(middle - 1)) {
            *shift = middle - (int)f->zero_lo;
            return known[i];
        }
        if (f->code_hi <= most && f->zero_hi <= (float)most)
            return known[i];
    }
    return 0;
}

static sb_status refuse_packing(const folder *f, const sb_part *part,
                                const char *why)
{
    return sb_fail(f->p->ctx, SB_UNSUPPORTED,
                   "'%s' cannot be a GPTQ weight: %s", part->name, why);
}

static sb_status choose_packing(folder *f, packing *k)
{
    const sb_part *part = k->part;
    const sb_matrix *m = &part->m;
    sb_matrix_facts facts;

    SB_TRY(sb_matrix_look(f->p->ctx, m, &facts));
    if (!facts.whole || facts.zero_lo < 0)
        return refuse_packing(f, part, "its zero points are no whole numbers");
    k->bits = least_bits(&facts, &k->shift);
    k->packed = true;
    if (k->bits == 0)
        return refuse_packing(f, part, "its zero points are beyond 8 bits");
    if (!(facts.scale_most < SB_BEYOND_HALF))
        return refuse_packing(f, part, "a scale is beyond float16");
    if (!facts.half && !f->opt->round)
        return sb_fail(f->p->ctx, SB_UNSUPPORTED,
                       "'%s' cannot be a GPTQ weight: the scale %.9g is no "
                       "float16; --round rounds scales",
                       part->name, (double)facts.odd);
    if (fabsf(facts.lost) > 0)
        return refuse_packing(f, part, "a scale would be 0 as float16");
    if (m->cols % 32 || m->rows % 32)
        return refuse_packing(f, part, "its sides are no multiples of 32");
    bool one = !(facts.zero_lo < facts.zero_hi);
    int middle = 1 << (k->bits - 1), zero = k->shift + (int)facts.zero_lo;
    if (zero < 1 || k->bits == 3 || (one && zero == middle + 1))
        f->no_first = part->name;
    if (!one || zero != middle)
        f->symmetric = false;
    f->ordered = f->ordered || m->order;
    return SB_OK;
}

static void choose_floats(const folder *f, packing *k)
{
    const sb_matrix *m = &k->part->m;
    const char *as = k->part->vector ? NULL : f->opt->float_as;
    const sb_weight_format *own =
        m->bits ? NULL : sb_weight_format_plain(m->t->dtype);

    k->format = as    ? sb_weight_format_find(as)
                : own ? own
                      : sb_weight_format_plain(SB_DTYPE_F32);
}

static sb_status choose_part(folder *f, packing *k)
{
    const sb_part *part = k->part;
    bool gemma = (f->p->config.arch->flags & SB_LLM_GEMMA) != 0;
    const char *last = strrchr(part->name, '.');

    k->minus_one = gemma && part->vector && last && strstr(last, "norm");
    /* Embeddings are floats in these files. */
    if (part->m.bits && !part->table && f->opt->file == SB_LLM_FILE_GPTQ)
        return choose_packing(f, k);
    choose_floats(f, k);
    return SB_OK;
}

/* The bits and groups that most matrices have; others are exceptions. */
static void find_most(folder *f)
{
    int64_t most = 0;

    for (size_t i = 0; i < f->p->n; i++) {
        int64_t sum = 0;

        for (size_t j = 0; f->v[i].packed && j < f->p->n; j++)
            if (f->v[j].packed && f->v[j].bits == f->v[i].bits &&
                f->v[j].part->m.group == f->v[i].part->m.group)
                sum += f->v[j].part->m.rows * f->v[j].part->m.cols;
        if (sum > most) {
            most = sum;
            f->bits = f->v[i].bits;
            f->group = f->v[i].part->m.group;
        }
    }
}

static sb_status choose_version(folder *f)
{
    f->second_version =
        f->opt->gptq_version == 2 ||
        (f->opt->gptq_version == 0 && (f->no_first || !f->symmetric));
    if (f->second_version || !f->no_first || f->bits == 0)
        return SB_OK;
    return sb_fail(f->p->ctx, SB_UNSUPPORTED,
                   "'%s' cannot be a GPTQ weight of the first version: it has "
                   "a zero point of 0 or of the middle and one, or three bits; "
                   "the second version holds it",
                   f->no_first);
}

/* ---- tensors ------------------------------------------------------------ */

static void put_bits(uint32_t *words, int64_t i, int bits, uint32_t code)
{
    int64_t at = i * bits;

    words[at / 32] |= code << (at % 32);
    if (at % 32 + bits > 32)
        words[at / 32 + 1] |= code >> (32 - at % 32);
}

/* Rows of one piece of work: whole words of zero points. */
enum { FILL_ROWS = 32 };

typedef struct fill_job {
    const packing *k;
    int what;
    void *to;
    /* Of each thread. */
    size_t room;
    uint8_t *codes;
    float *scales;
    uint32_t *words;
} fill_job;

static void fill_row_codes(const fill_job *j, size_t lane, int64_t out)
{
    const packing *k = j->k;
    const sb_matrix *m = &k->part->m;
    uint8_t *codes = j->codes + lane * j->room;
    uint32_t *words = j->words + lane * j->room;
    int64_t n_words = m->cols * k->bits / 32;

    sb_matrix_codes(m, out, codes);
    memset(words, 0, (size_t)n_words * sizeof *words);
    for (int64_t i = 0; i < m->cols; i++)
        put_bits(words, m->order ? m->order[i] : i, k->bits,
                 (uint32_t)((int)codes[i] + k->shift));
    for (int64_t w = 0; w < n_words; w++)
        ((uint32_t *)j->to)[w * m->rows + out] = words[w];
}

static void fill_row_scales(const fill_job *j, size_t lane, int64_t out)
{
    const packing *k = j->k;
    const sb_matrix *m = &k->part->m;
    int64_t groups = sb_matrix_groups(m);
    float *scales = j->scales + lane * 2 * j->room, *zeros = scales + groups;

    sb_matrix_scales(m, out, scales, zeros);
    for (int64_t g = 0; g < groups && j->what == AS_SCALES; g++)
        ((uint16_t *)j->to)[g * m->rows + out] = sb_f32_to_f16(scales[g]);
    for (int64_t g = 0; g < groups && j->what == AS_ZEROS; g++)
        put_bits((uint32_t *)j->to + g * (m->rows * k->bits / 32), out, k->bits,
                 (uint32_t)((int)zeros[g] + k->shift - k->stored) &
                     ((1u << k->bits) - 1));
}

static void fill_rows(void *arg, size_t lane, size_t item)
{
    const fill_job *j = arg;

    for (int64_t i = 0; i < FILL_ROWS; i++) {
        int64_t out = (int64_t)item * FILL_ROWS + i;

        if (j->what == AS_CODES)
            fill_row_codes(j, lane, out);
        else
            fill_row_scales(j, lane, out);
    }
}

static sb_status fill_packed(sb_ctx *ctx, const packing *k, int what, void *to)
{
    const sb_matrix *m = &k->part->m;
    size_t lanes = (size_t)sb_ctx_threads(ctx), room = (size_t)m->cols;
    fill_job job = {.k = k,
                    .what = what,
                    .to = to,
                    .room = room,
                    .codes = sb_alloc_raw(ctx, lanes, room),
                    .scales = sb_alloc_raw(ctx, lanes, 2 * room * 4),
                    .words = sb_alloc_raw(ctx, lanes, room * 4)};
    bool all = job.codes && job.scales && job.words;

    if (what == AS_ZEROS) /* rows share words */
        memset(to, 0, (size_t)(sb_matrix_groups(m) * m->rows * k->bits / 8));
    if (all)
        sb_parallel_lanes(ctx, (size_t)m->rows / FILL_ROWS, lanes, fill_rows,
                          &job);
    sb_free(ctx, job.codes);
    sb_free(ctx, job.scales);
    sb_free(ctx, job.words);
    return all ? sb_ctx_poll(ctx) : SB_NO_MEMORY;
}

static sb_status fill_vector(sb_ctx *ctx, const packing *k, void *to)
{
    const sb_matrix *m = &k->part->m;

    for (int64_t i = 0; i < m->rows; i++) {
        float x = 0;

        sb_matrix_floats(m, i, &x);
        x -= k->minus_one ? 1.0F : 0.0F;
        sb_convert(SB_DTYPE_F32, &x, k->format->dtype,
                   (char *)to + (size_t)i * k->format->bytes, 1);
    }
    return sb_ctx_poll(ctx);
}

static sb_status fill_tensor(sb_ctx *ctx, const void *arg, int what, void *to)
{
    const packing *k = arg;
    const sb_matrix *m = &k->part->m;

    if (what == AS_VECTOR)
        return fill_vector(ctx, k, to);
    if (what == AS_FLOATS)
        return sb_gguf_fill(ctx, k->part, k->format, to);
    if (what != AS_GROUPS)
        return fill_packed(ctx, k, what, to);
    for (int64_t i = 0; i < m->cols; i++)
        ((int32_t *)to)[m->order ? m->order[i] : i] = (int32_t)(i / m->group);
    return SB_OK;
}

static sb_status add_tensor(folder *f, const packing *k, const char *ending,
                            int what, const char *dtype, int64_t rows,
                            int64_t cols)
{
    size_t size = what == AS_SCALES                        ? 2
                  : what == AS_FLOATS || what == AS_VECTOR ? k->format->bytes
                                                           : 4;
    const sb_shard_tensor t = {
        .name = sb_arena_printf(&f->s.arena, "%s.%s", k->part->name, ending),
        .dtype = dtype,
        .rank = cols ? 2 : 1,
        .dims = {rows, cols},
        .bytes = (size_t)(rows * (cols ? cols : 1)) * size,
        .fill = fill_tensor,
        .arg = k,
        .what = what};

    return sb_shards_add(&f->s, &t);
}

static sb_status add_part(folder *f, const packing *k)
{
    const sb_matrix *m = &k->part->m;
    int64_t groups = m->group ? sb_matrix_groups(m) : 0;

    if (k->part->vector)
        return add_tensor(f, k, k->part->ending, AS_VECTOR, k->format->name,
                          m->rows, 0);
    if (!k->packed)
        return add_tensor(f, k, "weight", AS_FLOATS, k->format->name, m->rows,
                          m->cols);
    SB_TRY(add_tensor(f, k, "qweight", AS_CODES, "I32", m->cols * k->bits / 32,
                      m->rows));
    SB_TRY(add_tensor(f, k, "qzeros", AS_ZEROS, "I32", groups,
                      m->rows * k->bits / 32));
    SB_TRY(add_tensor(f, k, "scales", AS_SCALES, "F16", groups, m->rows));
    return add_tensor(f, k, "g_idx", AS_GROUPS, "I32", m->cols, 0);
}

static bool is_head(const packing *k)
{
    return strcmp(k->part->name, "lm_head") == 0;
}

static sb_status find_tied(folder *f)
{
    for (size_t i = 0; i < f->p->n; i++)
        for (size_t j = 0; is_head(&f->v[i]) && j < f->p->n; j++)
            if (f->v[j].part->table && !f->tied)
                SB_TRY(sb_matrix_same(f->p->ctx, &f->v[i].part->m,
                                      &f->v[j].part->m, &f->tied));
    return SB_OK;
}

static sb_status list_tensors(folder *f)
{
    sb_parts *p = f->p;

    f->v = sb_alloc(p->ctx, p->n, sizeof *f->v);
    if (!f->v)
        return SB_NO_MEMORY;
    f->symmetric = true;
    for (size_t i = 0; i < p->n; i++)
        f->v[i].part = &p->v[i];
    SB_TRY(find_tied(f));
    for (size_t i = 0; i < p->n; i++) {
        if (f->tied && is_head(&f->v[i]))
            continue;
        SB_TRY(choose_part(f, &f->v[i]));
        f->head = f->head || (is_head(&f->v[i]) && f->v[i].packed);
    }
    find_most(f);
    SB_TRY(choose_version(f));
    for (size_t i = 0; i < p->n; i++) {
        f->v[i].stored = f->second_version ? 0 : 1;
        if (!f->tied || !is_head(&f->v[i]))
            SB_TRY(add_part(f, &f->v[i]));
    }
    return SB_OK;
}

/* ---- settings ----------------------------------------------------------- */

/* A regular expression for just this name, as JSON. */
static void put_pattern(sb_ctx *ctx, const packing *k, sb_str *out)
{
    sb_str text;

    sb_str_init(&text, ctx);
    sb_str_add(&text, k->packed ? "+:^" : "-:^");
    for (const char *c = k->part->name; *c; c++)
        sb_str_addf(&text, strchr(".^$*+?()[]{}|\\", *c) ? "\\%c" : "%c", *c);
    sb_str_add(&text, "$");
    sb_str_add_json(out, sb_str_text(&text));
    out->failed = out->failed || text.failed;
    sb_str_free(&text);
}

/* Matrices of other bits or groups than most, by name. */
static void put_exceptions(const folder *f, sb_str *out)
{
    bool any = false;

    for (size_t i = 0; i < f->p->n; i++) {
        const packing *k = &f->v[i];

        if (k->packed ? k->bits == f->bits && k->part->m.group == f->group
                      : k->part->vector || k->part->table || is_head(k))
            continue;
        sb_str_add(out, any ? ",\n    " : ",\n  \"dynamic\": {\n    ");
        put_pattern(f->p->ctx, k, out);
        if (k->packed)
            sb_str_addf(out, ": {\"bits\": %d, \"group_size\": %lld}", k->bits,
                        (long long)k->part->m.group);
        else
            sb_str_add(out, ": {}");
        any = true;
    }
    if (any)
        sb_str_add(out, "\n  }");
}

static void put_quantization(const folder *f, sb_str *out)
{
    sb_str_addf(out,
                "{\n  \"bits\": %d,\n  \"group_size\": %lld,\n"
                "  \"desc_act\": %s,\n  \"sym\": %s,\n  \"lm_head\": %s,\n"
                "  \"quant_method\": \"gptq\",\n"
                "  \"checkpoint_format\": \"%s\",\n"
                "  \"pack_dtype\": \"int32\"",
                f->bits, (long long)f->group, f->ordered ? "true" : "false",
                f->symmetric ? "true" : "false", f->head ? "true" : "false",
                f->second_version ? "gptq_v2" : "gptq");
    put_exceptions(f, out);
    sb_str_add(out, "\n}");
}

/* Members of config.json that are said anew. */
static const char *const replaced[] = {"architectures", "quantization_config",
                                       "tie_word_embeddings"};

static bool is_replaced(const char *key)
{
    for (size_t i = 0; i < SB_COUNT(replaced); i++)
        if (strcmp(key, replaced[i]) == 0)
            return true;
    return false;
}

/* A JSON value as text again. */
static void put_json(const sb_json *v, sb_str *out)
{
    const char *open = v->kind == SB_JSON_LIST ? "[" : "{";

    switch (v->kind) {
    case SB_JSON_NULL:
        sb_str_add(out, "null");
        return;
    case SB_JSON_BOOL:
        sb_str_add(out, v->number > 0 ? "true" : "false");
        return;
    case SB_JSON_NUMBER:
        sb_json_add_number(out, v->number);
        return;
    case SB_JSON_TEXT:
        sb_str_add_json(out, v->text);
        return;
    default:
        break;
    }
    sb_str_add(out, open);
    for (const sb_json *i = v->child; i; i = i->next) {
        if (i != v->child)
            sb_str_add(out, ", ");
        if (v->kind == SB_JSON_OBJECT) {
            sb_str_add_json(out, i->key);
            sb_str_add(out, ": ");
        }
        put_json(i, out);
    }
    sb_str_add(out, v->kind == SB_JSON_LIST ? "]" : "}");
}

/* Of the language model alone, as its weights are all that is written. */
static sb_status put_config(folder *f, const char *quantization)
{
    const char *text = f->p->config_text;
    sb_json_doc *doc = NULL;
    sb_str out;

    SB_TRY(sb_json_read(f->p->ctx, "config.json", text, strlen(text), &doc));
    sb_str_init(&out, f->p->ctx);
    sb_str_addf(&out,
                "{\n  \"architectures\": [\"%s\"],\n"
                "  \"tie_word_embeddings\": %s",
                f->p->config.arch->hf_class, f->tied ? "true" : "false");
    const sb_json *own = sb_llm_config_object(doc->root);
    for (const sb_json *i = own->child; i; i = i->next) {
        if (is_replaced(i->key))
            continue;
        sb_str_add(&out, ",\n  ");
        sb_str_add_json(&out, i->key);
        sb_str_add(&out, ": ");
        put_json(i, &out);
    }
    if (quantization)
        sb_str_addf(&out, ",\n  \"quantization_config\": %s", quantization);
    sb_str_add(&out, "\n}\n");
    sb_json_free(doc);
    sb_status status = sb_str_status(&out);
    if (status == SB_OK)
        status =
            sb_shards_file(&f->s, "config.json", sb_str_text(&out), out.len);
    sb_str_free(&out);
    return status;
}

static sb_status put_settings(folder *f)
{
    sb_str text;

    if (f->bits == 0)
        return put_config(f, NULL);
    sb_str_init(&text, f->p->ctx);
    put_quantization(f, &text);
    sb_status status = sb_str_status(&text);
    if (status == SB_OK)
        status = sb_shards_file(&f->s, "quantize_config.json",
                                sb_str_text(&text), text.len);
    if (status == SB_OK)
        status = put_config(f, sb_str_text(&text));
    sb_str_free(&text);
    return status;
}

/* ---- the folder --------------------------------------------------------- */

static sb_status put_folder(folder *f, const char *path)
{
    SB_TRY(list_tensors(f));
    if (f->opt->file == SB_LLM_FILE_GPTQ && f->bits == 0)
        return sb_fail(f->p->ctx, SB_BAD_MODEL,
                       "no weight is quantized: there is nothing for a GPTQ "
                       "folder");
    SB_TRY(sb_shards_write(&f->s));
    if (f->opt->tokenizer)
        SB_TRY(sb_hf_tokenizer(&f->s, f->opt->tokenizer));
    else
        sb_warn(f->p->ctx, "%s: without a tokenizer; --tokenizer names it",
                path);
    SB_TRY(put_settings(f)); /* last: without it this is no model */
    return sb_shards_commit(&f->s);
}

sb_status sb_hf_check(const sb_parts *p, const sb_llm_write_options *opt)
{
    const sb_weight_format *format =
        opt->float_as ? sb_weight_format_find(opt->float_as) : NULL;

    if (opt->float_as && (!format || !sb_dtype_is_float(format->dtype)))
        return sb_fail(p->ctx, SB_BAD_ARG,
                       "floats as '%.64s', want f32, f16 or bf16",
                       opt->float_as);
    if (opt->gptq_version < 0 || opt->gptq_version > 2)
        return sb_fail(p->ctx, SB_BAD_ARG,
                       "version %d of GPTQ folders, want 1 or 2",
                       opt->gptq_version);
    if (p->config.arch->flags & SB_LLM_TRANSPOSED)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "networks of type %s are written as GGUF and ONNX only",
                       p->config.arch->hf);
    if (p->config.rope_size != p->config.head_size)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "%lld of the %lld elements of a head are rotated, all "
                       "are in networks of type %s elsewhere: written as GGUF "
                       "and ONNX only",
                       (long long)p->config.rope_size,
                       (long long)p->config.head_size, p->config.arch->hf);
    return SB_OK;
}

sb_status sb_hf_write(sb_parts *p, const char *path,
                      const sb_llm_write_options *opt)
{
    folder f = {.p = p, .opt = opt};

    SB_TRY(sb_hf_check(p, opt));
    SB_TRY(sb_parts_set_rotary(p, false));
    sb_status status = sb_shards_open(&f.s, p->ctx, path, opt->shard_bytes);
    if (status == SB_OK)
        status = put_folder(&f, path);
    sb_shards_free(&f.s);
    sb_free(p->ctx, f.v);
    return status;
}
