/* text: windows of tokens of a text, for language models.
 *
 * PATH is a text file or a list of them, joined; TOKENIZER says where the
 * tokenizer is.  The text becomes tokens once, and is cut into windows of
 * WINDOW tokens that do not overlap; what is left at the end is left out.
 * STYLE says which tokens of a window are to be predicted, and what it begins
 * with: perplexities of different styles cannot be compared. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/source.h"
#include "llm/tokenizer/tokenizer.h"

typedef enum text_style { STYLE_PAPER, STYLE_LLAMA_CPP } text_style;

static const char *const styles[] = {"paper", "llama.cpp", NULL};
static const char *const style_meanings[] = {
    "as papers do: one token for the beginning of the text before all, every "
    "token of a window but its first is predicted",
    "as llama.cpp does: each window begins with the token for the beginning "
    "of a text, in place of its own first, and the second half is predicted",
    NULL,
};

typedef struct {
    const char *tokenizer;
    int64_t window;
    int style;
    const char *document;
} text_keys;

#define KEY(field) offsetof(text_keys, field)

/* clang-format off */
static const sb_param_def table[] = {
    {.name = "TOKENIZER", .type = SB_PARAM_STRING, .offset = KEY(tokenizer),
     .help = "the model, or a file or folder that has its tokenizer"},
    {.name = "WINDOW", .type = SB_PARAM_INT, .offset = KEY(window), .preset = "1024",
     .help = "tokens that the model sees at once"},
    {.name = "STYLE", .type = SB_PARAM_ENUM, .offset = KEY(style), .preset = "paper",
     .names = styles, .meanings = style_meanings,
     .help = "how perplexity is defined"},
    {.name = "DOCUMENT", .type = SB_PARAM_STRING, .offset = KEY(document),
     .help = "what separates documents, such as `<|endoftext|>`: each begins with the token for the beginning of a text (default: the text is one document)"},
    {0},
};
/* clang-format on */

typedef struct text_state {
    sb_tokenizer *tokenizer;
    sb_ids ids;
    int64_t *window; /* the one that was asked for last */
} text_state;

/* ---- tokens ------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A document without the white space around it. */
static sb_status add_document(text_state *st, const char *text, size_t len)
{
    while (len && is_blank(text[0])) {
        text++;
        len--;
    }
    while (len && is_blank(text[len - 1]))
        len--;
    return len ? sb_tokenize(st->tokenizer, text, len, true, &st->ids) : SB_OK;
}

static sb_status add_documents(text_state *st, const char *between,
                               const char *text, size_t len)
{
    size_t n = strlen(between), begin = 0;

    for (size_t at = 0; at + n <= len;) {
        if (memcmp(text + at, between, n) != 0) {
            at++;
            continue;
        }
        SB_TRY(add_document(st, text + begin, at - begin));
        at += n;
        begin = at;
    }
    return add_document(st, text + begin, len - begin);
}

static sb_status add_text(sb_source *s, const char *path)
{
    const text_keys *keys = s->own_keys;
    text_state *st = s->state;
    sb_mapping map = {0};

    SB_TRY(sb_file_map_input(s->ctx, path, &map));
    const char *text = map.data ? map.data : "";
    sb_status status = keys->document && keys->document[0]
                           ? add_documents(st, keys->document, text, map.size)
                           : sb_tokenize(st->tokenizer, text, map.size,
                                         st->ids.n == 0, &st->ids);
    sb_file_unmap(&map);
    return status == SB_OK ? SB_OK
                           : sb_note(s->ctx, status, "reading %s", path);
}

/* ---- the source --------------------------------------------------------- */

static sb_status text_check(sb_source *s)
{
    const text_keys *keys = s->own_keys;

    if (!keys->tokenizer)
        return sb_source_fail(s, "TOKENIZER", "is missing");
    if (keys->window < 2 || keys->window > 1 << 24)
        return sb_source_fail(s, "WINDOW", "found %lld, want 2 or more",
                              (long long)keys->window);
    if (s->keys->path.n == 0)
        return sb_source_fail(s, "PATH", "found nothing, want a text file");
    return SB_OK;
}

static sb_status text_open(sb_source *s)
{
    const text_keys *keys = s->own_keys;
    text_state *st = sb_arena_alloc(s->arena, 1, sizeof *st);

    if (!st)
        return SB_NO_MEMORY;
    s->state = st;
    SB_TRY(text_check(s));
    const char *path = sb_source_path(s, keys->tokenizer);
    if (!path)
        return SB_NO_MEMORY;
    SB_TRY(sb_tokenizer_open(s->ctx, path, &st->tokenizer));
    for (size_t i = 0; i < s->keys->path.n; i++) {
        const char *file = sb_source_path(s, s->keys->path.v[i]);

        SB_TRY(file ? add_text(s, file) : SB_NO_MEMORY);
    }
    s->count = st->ids.n / (size_t)keys->window;
    if (s->count == 0)
        return sb_source_fail(s, "PATH",
                              "the text has %zu tokens, want a WINDOW of %lld",
                              st->ids.n, (long long)keys->window);
    s->n_inputs = 1;
    sb_source_set_text(s, keys->window, st->ids.v, st->ids.n);
    s->text_from =
        keys->style == STYLE_PAPER ? 1 : (size_t)keys->window / 2 + 1;
    st->window =
        sb_arena_alloc(s->arena, (size_t)keys->window, sizeof *st->window);
    return st->window ? SB_OK : SB_NO_MEMORY;
}

static void text_close(sb_source *s)
{
    text_state *st = s->state;

    if (!st)
        return;
    sb_tokenizer_free(st->tokenizer);
    sb_free(s->ctx, st->ids.v);
}

static const char *text_name(const sb_source *s, size_t i, char *out,
                             size_t size)
{
    (void)s;
    (void)snprintf(out, size, "window %zu", i);
    return out;
}

static sb_status text_arrays(sb_source *s, size_t i, sb_tensor *out)
{
    const text_keys *keys = s->own_keys;
    text_state *st = s->state;

    for (int64_t k = 0; k < keys->window; k++)
        st->window[k] = st->ids.v[(int64_t)i * keys->window + k];
    if (keys->style == STYLE_LLAMA_CPP && st->tokenizer->n_before > 0)
        st->window[0] = st->tokenizer->before[0];
    *out = sb_tensor_make(SB_DTYPE_I64, 1, &keys->window);
    out->data = st->window;
    return SB_OK;
}

const sb_source_def sb_source_text = {
    .name = "text",
    .summary = "windows of tokens of a text, for language models",
    .table = table,
    .keys_size = sizeof(text_keys),
    .open = text_open,
    .close = text_close,
    .name_of = text_name,
    .arrays = text_arrays,
};
