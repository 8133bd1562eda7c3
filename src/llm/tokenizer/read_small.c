/* SentencePiece's tokenizer.model, and the tokenizer.bin of llama2.c.
 *
 * tokenizer.model is a protobuf message: pieces (field 1: text, score, type),
 * the trainer's settings (2) and the normalizer's (3).  Few enough fields that
 * they are read here. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "llm/tokenizer/tokenizer.h"

/* ---- protobuf ----------------------------------------------------------- */

typedef struct message {
    const uint8_t *at, *end;
    bool bad;
} message;

typedef struct field {
    uint32_t number, wire;
    uint64_t value;      /* of a number */
    const uint8_t *data; /* of bytes */
    size_t len;
} field;

static uint64_t read_varint(message *m)
{
    uint64_t x = 0;

    for (int shift = 0; shift < 64; shift += 7) {
        if (m->at >= m->end)
            break;
        uint8_t b = *m->at++;
        x |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return x;
    }
    m->bad = true;
    return 0;
}

/* False at the end, or if the message is broken. */
static bool next_field(message *m, field *f)
{
    if (m->bad || m->at >= m->end)
        return false;
    uint64_t key = read_varint(m), len = 0;
    *f = (field){.number = (uint32_t)(key >> 3), .wire = (uint32_t)(key & 7)};
    if (f->wire == 0)
        f->value = read_varint(m);
    else if (f->wire == 2)
        len = read_varint(m);
    else
        len = f->wire == 1 ? 8 : f->wire == 5 ? 4 : UINT64_MAX;
    if (m->bad || len > (uint64_t)(m->end - m->at)) {
        m->bad = true;
        return false;
    }
    f->data = m->at;
    f->len = (size_t)len;
    m->at += f->len;
    return true;
}

static message field_message(const field *f)
{
    return (message){f->data, f->data + f->len, false};
}

static float float_of(const uint8_t *p)
{
    uint32_t u = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                 (uint32_t)p[3] << 24;
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- tokenizer.model ---------------------------------------------------- */

typedef struct settings {
    uint64_t model; /* 1 unigram, 2 BPE */
    uint64_t unknown, bos, eos;
    bool prefix, squeeze, escape;
    field charsmap;
} settings;

static sb_status read_piece(sb_tokenizer *t, const field *piece)
{
    static const sb_token_kind kinds[] = {
        SB_TOKEN_NORMAL, SB_TOKEN_NORMAL, SB_TOKEN_UNKNOWN, SB_TOKEN_CONTROL,
        SB_TOKEN_USER,   SB_TOKEN_UNUSED, SB_TOKEN_BYTE};
    message m = field_message(piece);
    field f, text = {0};
    float score = 0;
    uint64_t kind = 1;

    while (next_field(&m, &f)) {
        if (f.number == 1 && f.wire == 2)
            text = f;
        else if (f.number == 2 && f.wire == 5)
            score = float_of(f.data);
        else if (f.number == 3 && f.wire == 0)
            kind = f.value;
    }
    if (m.bad || kind >= SB_COUNT(kinds))
        return sb_fail(t->ctx, SB_BAD_DATA, "piece %zu is broken", t->n);
    return sb_tokenizer_add(t, text.data ? (const char *)text.data : "",
                            text.len, kinds[kind], (double)score);
}

static void read_trainer(const field *spec, settings *s)
{
    message m = field_message(spec);
    field f;

    while (next_field(&m, &f)) {
        if (f.wire != 0)
            continue;
        if (f.number == 3)
            s->model = f.value;
        else if (f.number == 40)
            s->unknown = f.value;
        else if (f.number == 41)
            s->bos = f.value;
        else if (f.number == 42)
            s->eos = f.value;
    }
}

static void read_normalizer(const field *spec, settings *s)
{
    message m = field_message(spec);
    field f;

    while (next_field(&m, &f)) {
        if (f.number == 2 && f.wire == 2)
            s->charsmap = f;
        else if (f.number == 3 && f.wire == 0)
            s->prefix = f.value != 0;
        else if (f.number == 4 && f.wire == 0)
            s->squeeze = f.value != 0;
        else if (f.number == 5 && f.wire == 0)
            s->escape = f.value != 0;
    }
}

static sb_status use_settings(sb_tokenizer *t, const settings *s)
{
    if (s->model != 1 && s->model != 2)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "SentencePiece model of type %llu; known are 1 "
                       "(unigram), 2 (BPE)",
                       (unsigned long long)s->model);
    if (!s->escape)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "a model that does not escape white space");
    t->model = s->model == 1 ? SB_WORDS_UNIGRAM : SB_WORDS_BPE;
    t->fuse_unknown = true;
    t->literals_inside = true;
    t->unknown = s->unknown < t->n ? (uint32_t)s->unknown : SB_TOKEN_NONE;
    if (s->bos < t->n)
        t->bos = t->before[t->n_before++] = (uint32_t)s->bos;
    if (s->eos < t->n)
        t->eos[t->n_eos++] = (uint32_t)s->eos;
    if (s->charsmap.len) {
        const char *copy =
            sb_arena_copy(&t->arena, s->charsmap.data, s->charsmap.len);
        if (!copy)
            return SB_NO_MEMORY;
        SB_TRY(sb_tokenizer_add_norm(
            t, &(sb_norm_step){.kind = SB_NORM_CHARSMAP,
                               .text = copy,
                               .text_len = s->charsmap.len}));
    }
    SB_TRY(sb_tokenizer_metaspace(t, s->prefix, s->squeeze));
    SB_TRY(sb_tokenizer_index(t));
    for (uint32_t i = 0; i < t->n_real; i++)
        if (t->tokens[i].kind == SB_TOKEN_USER)
            SB_TRY(sb_tokenizer_add_literal(t, &(sb_added_token){.id = i}));
    SB_TRY(sb_tokenizer_sort_literals(t));
    return t->model == SB_WORDS_UNIGRAM ? SB_OK : sb_merges_from_scores(t);
}

static sb_status read_model(sb_tokenizer *t, const sb_mapping *map)
{
    message m = {map->data, (const uint8_t *)map->data + map->size, false};
    settings s = {.model = 1,
                  .bos = 1,
                  .eos = 2,
                  .prefix = true,
                  .squeeze = true,
                  .escape = true};
    field f;

    while (map->size && next_field(&m, &f)) {
        if (f.wire != 2)
            continue;
        if (f.number == 1)
            SB_TRY(read_piece(t, &f));
        else if (f.number == 2)
            read_trainer(&f, &s);
        else if (f.number == 3)
            read_normalizer(&f, &s);
    }
    if (m.bad || t->n == 0)
        return sb_fail(t->ctx, SB_BAD_DATA, "no SentencePiece model");
    return use_settings(t, &s);
}

sb_status sb_tokenizer_read_model(sb_tokenizer *t, const char *path)
{
    sb_mapping map = {0};

    SB_TRY(sb_file_map(t->ctx, path, &map));
    sb_status status = read_model(t, &map);
    sb_file_unmap(&map);
    return status == SB_OK ? SB_OK
                           : sb_note(t->ctx, status, "reading %s", path);
}

/* ---- tokenizer.bin ------------------------------------------------------ */

/* Tokens of single bytes have the byte itself, or <0xNN>: the second here. */
static sb_status add_bin_token(sb_tokenizer *t, const char *text, size_t len,
                               float score)
{
    char byte[8];

    if (t->n < 3)
        return sb_tokenizer_add(t, text, len,
                                t->n ? SB_TOKEN_CONTROL : SB_TOKEN_UNKNOWN, 0);
    if (t->n >= 3 + 256)
        return sb_tokenizer_add(t, text, len, SB_TOKEN_NORMAL, (double)score);
    (void)snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(t->n - 3) & 255u);
    return sb_tokenizer_add(t, byte, 6, SB_TOKEN_BYTE, 0);
}

/* int32: bytes of the longest token; then for each token float score, int32
 * bytes, text.  Token 0 is unknown, 1 begins, 2 ends, the bytes follow. */
static sb_status read_bin(sb_tokenizer *t, const sb_mapping *map)
{
    const uint8_t *p = map->data;
    size_t at = 4;

    while (map->size >= 4 && at < map->size) {
        if (map->size - at < 8)
            return sb_fail(t->ctx, SB_BAD_DATA, "token %zu is cut off", t->n);
        float score = float_of(p + at);
        uint32_t len = (uint32_t)p[at + 4] | (uint32_t)p[at + 5] << 8 |
                       (uint32_t)p[at + 6] << 16 | (uint32_t)p[at + 7] << 24;
        at += 8;
        if (len > map->size - at)
            return sb_fail(t->ctx, SB_BAD_DATA,
                           "token %zu has %u bytes, the file %zu more", t->n,
                           len, map->size - at);
        SB_TRY(add_bin_token(t, (const char *)p + at, len, score));
        at += len;
    }
    if (t->n < 259)
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "no tokenizer of llama2.c: %zu tokens", t->n);
    return SB_OK;
}

/* These files have spaces where SentencePiece has U+2581. */
sb_status sb_tokenizer_read_bin(sb_tokenizer *t, const char *path)
{
    sb_mapping map = {0};

    SB_TRY(sb_file_map(t->ctx, path, &map));
    sb_status status = read_bin(t, &map);
    sb_file_unmap(&map);
    if (status != SB_OK)
        return sb_note(t->ctx, status, "reading %s", path);
    t->unknown = 0;
    t->bos = t->before[t->n_before++] = 1;
    t->eos[t->n_eos++] = 2;
    t->fuse_unknown = true;
    t->strip_decoded = true;
    SB_TRY(sb_tokenizer_index(t));
    SB_TRY(sb_tokenizer_add_norm(
        t,
        &(sb_norm_step){.kind = SB_NORM_PREPEND, .text = " ", .text_len = 1}));
    return sb_merges_from_scores(t);
}
