/* instruct: questions and answers, for language models.
 *
 * PATH is a JSON file with a list of objects, or one object a line.  PROMPT
 * makes a text of an object: `{name}` stands for that member, and a paragraph
 * with one that is missing or empty is left out.  The member ANSWER and the
 * token for the end of a text follow, and only they are to be predicted.
 * Samples are filled up, or cut, to WINDOW tokens; one whose answer begins
 * behind it is left out. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/source.h"
#include "llm/tokenizer/tokenizer.h"

typedef struct {
    const char *tokenizer, *prompt, *answer;
    int64_t window;
} instruct_keys;

#define KEY(field) offsetof(instruct_keys, field)

/* clang-format off */
static const sb_param_def table[] = {
    {.name = "TOKENIZER", .type = SB_PARAM_STRING, .offset = KEY(tokenizer),
     .help = "the model, or a file or folder that has its tokenizer"},
    {.name = "WINDOW", .type = SB_PARAM_INT, .offset = KEY(window), .preset = "256",
     .help = "tokens of a sample; longer ones are cut, shorter ones filled up"},
    {.name = "PROMPT", .type = SB_PARAM_STRING, .offset = KEY(prompt),
     .help = "the text before an answer, with members of an object in braces; a paragraph whose member is missing or empty is left out (default: \"### Instruction:\\n{instruction}\\n\\n### Input:\\n{input}\\n\\n### Response:\\n\")"},
    {.name = "ANSWER", .type = SB_PARAM_STRING, .offset = KEY(answer), .preset = "output",
     .help = "the member that is to be predicted"},
    {0},
};
/* clang-format on */

static const char default_prompt[] = "### Instruction:\n{instruction}\n\n"
                                     "### Input:\n{input}\n\n### Response:\n";

typedef struct sample_place {
    size_t at, n, answer; /* tokens, in all of them; where the answer begins */
} sample_place;

typedef struct instruct_state {
    sb_tokenizer *tokenizer;
    sb_ids ids;
    sample_place *v;
    size_t n, cap, left_out;
    int64_t *tokens, *labels; /* of the sample that was asked for last */
    const char *names[2];
} instruct_state;

/* ---- texts -------------------------------------------------------------- */

/* Appends a paragraph; returns whether it is complete. */
static bool put_paragraph(const sb_json *object, const char *text, size_t len,
                          sb_str *out)
{
    size_t at = 0;

    while (at < len) {
        const char *close =
            text[at] == '{' ? memchr(text + at, '}', len - at) : NULL;

        if (!close) {
            sb_str_addn(out, text + at++, 1);
            continue;
        }
        char key[64];
        size_t n = (size_t)(close - text) - at - 1;
        if (n >= sizeof key)
            return false;
        memcpy(key, text + at + 1, n);
        key[n] = '\0';
        const char *value = sb_json_text(sb_json_get(object, key));
        if (!value || !*value)
            return false;
        sb_str_add(out, value);
        at += n + 2;
    }
    return true;
}

static sb_status make_prompt(const sb_json *object, const char *prompt,
                             sb_str *out)
{
    while (*prompt) {
        const char *end = strstr(prompt, "\n\n");
        size_t n = end ? (size_t)(end - prompt) + 2 : strlen(prompt);
        size_t before = out->len;

        if (!put_paragraph(object, prompt, n, out) && out->data) {
            out->len = before;
            out->data[before] = '\0';
        }
        prompt += n;
    }
    return sb_str_status(out);
}

/* The tokens of one object; none if its answer does not fit. */
static sb_status add_sample(sb_source *s, const sb_json_doc *doc,
                            const sb_json *object)
{
    const instruct_keys *keys = s->own_keys;
    instruct_state *st = s->state;
    const sb_tokenizer *t = st->tokenizer;
    const char *answer = sb_json_text(sb_json_get(object, keys->answer));
    sample_place place = {.at = st->ids.n};
    sb_str text;

    if (!answer)
        return sb_json_fail(doc, object, "want an object with a text '%s'",
                            keys->answer);
    sb_str_init(&text, s->ctx);
    sb_status status = make_prompt(
        object, keys->prompt ? keys->prompt : default_prompt, &text);
    if (status == SB_OK)
        status = sb_tokenize(t, text.data ? text.data : "", text.len, true,
                             &st->ids);
    sb_str_free(&text);
    SB_TRY(status);
    if (t->n_after && st->ids.n - place.at >= t->n_after)
        st->ids.n -= t->n_after; /* the text goes on */
    place.answer = st->ids.n - place.at;
    SB_TRY(sb_tokenize(t, answer, strlen(answer), false, &st->ids));
    if (t->n_eos) {
        SB_TRY(sb_grow(s->ctx, &st->ids.v, &st->ids.cap, st->ids.n + 1,
                       sizeof *st->ids.v));
        st->ids.v[st->ids.n++] = t->eos[0];
    }
    place.n = st->ids.n - place.at;
    if (place.answer == 0 || place.answer >= (size_t)keys->window) {
        st->ids.n = place.at;
        st->left_out++;
        return SB_OK;
    }
    SB_TRY(sb_grow(s->ctx, &st->v, &st->cap, st->n + 1, sizeof *st->v));
    st->v[st->n++] = place;
    return SB_OK;
}

static sb_status add_json(sb_source *s, const char *path, const char *text,
                          size_t begin, size_t end)
{
    sb_json_doc *doc = NULL;
    sb_status status = SB_OK;

    SB_TRY(sb_json_read_part(s->ctx, path, text, begin, end, &doc));
    const sb_json *root = doc->root;
    if (sb_json_is(root, SB_JSON_LIST)) {
        for (const sb_json *o = root->child; o && status == SB_OK; o = o->next)
            status = add_sample(s, doc, o);
    } else {
        status = add_sample(s, doc, root);
    }
    sb_json_free(doc);
    return status;
}

/* One object a line, unless the file begins with a list. */
static sb_status add_file(sb_source *s, const char *path, const char *text,
                          size_t len)
{
    size_t at = 0;

    while (at < len && strchr(" \t\r\n", text[at]))
        at++;
    if (at == len || text[at] == '[')
        return add_json(s, path, text, at, len);
    while (at < len) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;

        if (n > 0 && text[at] != '\r')
            SB_TRY(add_json(s, path, text, at, at + n));
        at += n + 1;
    }
    return SB_OK;
}

/* ---- the source --------------------------------------------------------- */

static sb_status instruct_check(sb_source *s)
{
    const instruct_keys *keys = s->own_keys;

    if (!keys->tokenizer)
        return sb_source_fail(s, "TOKENIZER", "is missing");
    if (keys->window < 2 || keys->window > 1 << 24)
        return sb_source_fail(s, "WINDOW", "found %lld, want 2 to 16777216",
                              (long long)keys->window);
    if (s->keys->path.n == 0)
        return sb_source_fail(s, "PATH", "found nothing, want a JSON file");
    return SB_OK;
}

static sb_status instruct_read(sb_source *s)
{
    for (size_t i = 0; i < s->keys->path.n; i++) {
        const char *path = sb_source_path(s, s->keys->path.v[i]);
        sb_mapping map = {0};

        if (!path)
            return SB_NO_MEMORY;
        SB_TRY(sb_file_map_input(s->ctx, path, &map));
        sb_status status =
            add_file(s, path, map.data ? map.data : "", map.size);
        sb_file_unmap(&map);
        SB_TRY(status);
    }
    return SB_OK;
}

static sb_status instruct_open(sb_source *s)
{
    const instruct_keys *keys = s->own_keys;
    instruct_state *st = sb_arena_alloc(s->arena, 1, sizeof *st);

    if (!st)
        return SB_NO_MEMORY;
    s->state = st;
    SB_TRY(instruct_check(s));
    const char *path = sb_source_path(s, keys->tokenizer);
    if (!path)
        return SB_NO_MEMORY;
    SB_TRY(sb_tokenizer_open(s->ctx, path, &st->tokenizer));
    SB_TRY(instruct_read(s));
    s->count = st->n;
    if (s->count == 0)
        return sb_source_fail(s, "PATH",
                              "of %zu objects none has an answer that begins "
                              "within a WINDOW of %lld tokens",
                              st->left_out, (long long)keys->window);
    st->names[0] = "input_ids";
    st->names[1] = "labels";
    s->n_inputs = 2;
    s->input_names = st->names;
    s->text_from = 1;
    sb_source_set_text(s, keys->window, st->ids.v, st->ids.n);
    s->text_labels = true;
    size_t window = (size_t)keys->window;
    st->tokens = sb_arena_alloc(s->arena, 2 * window, sizeof *st->tokens);
    st->labels = st->tokens ? st->tokens + window : NULL;
    return st->tokens ? SB_OK : SB_NO_MEMORY;
}

static void instruct_close(sb_source *s)
{
    instruct_state *st = s->state;

    if (!st)
        return;
    sb_tokenizer_free(st->tokenizer);
    sb_free(s->ctx, st->ids.v);
    sb_free(s->ctx, st->v);
}

static const char *instruct_name(const sb_source *s, size_t i, char *out,
                                 size_t size)
{
    (void)s;
    (void)snprintf(out, size, "answer %zu", i);
    return out;
}

static sb_status instruct_arrays(sb_source *s, size_t i, sb_tensor *out)
{
    const instruct_keys *keys = s->own_keys;
    instruct_state *st = s->state;
    const sample_place *p = &st->v[i];

    for (int64_t k = 0; k < keys->window; k++) {
        bool in = (size_t)k < p->n;

        st->tokens[k] = in ? st->ids.v[p->at + (size_t)k] : 0;
        st->labels[k] = in && (size_t)k >= p->answer ? st->tokens[k] : -100;
    }
    out[0] = out[1] = sb_tensor_make(SB_DTYPE_I64, 1, &keys->window);
    out[0].data = st->tokens;
    out[1].data = st->labels;
    return SB_OK;
}

const sb_source_def sb_source_instruct = {
    .name = "instruct",
    .summary = "questions and answers, of which language models learn the "
               "answers",
    .table = table,
    .keys_size = sizeof(instruct_keys),
    .open = instruct_open,
    .close = instruct_close,
    .name_of = instruct_name,
    .arrays = instruct_arrays,
};
