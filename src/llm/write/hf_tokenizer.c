/* A tokenizer for a Hugging Face folder: copies of its files, or, where it came
 * in a GGUF or llama2.c file, tokenizer.json made from what was read. */
#include <string.h>

#include "llm/tokenizer/tokenizer.h"
#include "llm/write/shards.h"

static sb_status copy_file(sb_shards *s, const char *path, const char *name)
{
    sb_mapping map = {0};

    SB_TRY(sb_file_map(s->ctx, path, &map));
    sb_status status = sb_shards_file(s, name, map.data, map.size);
    sb_file_unmap(&map);
    return status;
}

static sb_status copy_folder(sb_shards *s, const char *folder, bool *any)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer.model",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "generation_config.json",
                                        "chat_template.jinja"};

    for (size_t i = 0; i < SB_COUNT(names); i++) {
        char *path = sb_path_join(s->ctx, folder, names[i]);
        bool there = path && sb_path_exists(path);
        sb_status status = !path   ? SB_NO_MEMORY
                           : there ? copy_file(s, path, names[i])
                                   : SB_OK;

        sb_free(s->ctx, path);
        SB_TRY(status);
        *any = *any || (there && i < 2);
    }
    return SB_OK;
}

/* ---- tokenizer.json ----------------------------------------------------- */

static bool uses_spaces(const sb_tokenizer *t)
{
    for (size_t i = 0; i < t->n_norms; i++)
        if (t->norms[i].kind == SB_NORM_PREPEND && t->norms[i].text_len == 1 &&
            t->norms[i].text[0] == ' ')
            return true;
    return false;
}

/* Texts with U+2581 for spaces, which the files of llama2.c do not have. */
static void put_token(const sb_tokenizer *t, uint32_t id, sb_str *spare,
                      sb_str *out)
{
    const sb_token *k = &t->tokens[id];
    bool spaces = uses_spaces(t) && k->kind != SB_TOKEN_CONTROL;

    sb_str_clear(spare);
    for (size_t i = 0; i < k->len; i++)
        if (k->text[i] == ' ' && spaces)
            sb_str_add(spare, "\xe2\x96\x81");
        else
            sb_str_addn(spare, k->text + i, 1);
    sb_str_add_json(out, sb_str_text(spare));
}

static void put_added(const sb_tokenizer *t, sb_str *spare, sb_str *out)
{
    bool any = false;

    sb_str_add(out, "  \"added_tokens\": [");
    for (uint32_t i = 0; i < t->n_real; i++) {
        sb_token_kind kind = t->tokens[i].kind;

        if (kind != SB_TOKEN_CONTROL && kind != SB_TOKEN_USER &&
            kind != SB_TOKEN_UNKNOWN)
            continue;
        sb_str_addf(out, "%s\n    {\"id\": %u, \"content\": ", any ? "," : "",
                    i);
        put_token(t, i, spare, out);
        sb_str_addf(out,
                    ", \"single_word\": false, \"lstrip\": false, \"rstrip\": "
                    "false, \"normalized\": false, \"special\": %s}",
                    kind == SB_TOKEN_USER ? "false" : "true");
        any = true;
    }
    sb_str_add(out, "],\n");
}

/* What is done before and after the merges. */
static void put_steps(const sb_tokenizer *t, sb_str *out)
{
    bool prefix = false;

    for (size_t i = 0; i < t->n_norms; i++)
        prefix = prefix || t->norms[i].kind == SB_NORM_PREPEND;
    if (!t->byte_level) {
        sb_str_addf(out,
                    "  \"normalizer\": {\"type\": \"Sequence\", "
                    "\"normalizers\": [%s{\"type\": \"Replace\", \"pattern\": "
                    "{\"String\": \" \"}, \"content\": \"\xe2\x96\x81\"}]},\n"
                    "  \"pre_tokenizer\": null,\n",
                    prefix ? "{\"type\": \"Prepend\", \"prepend\": "
                             "\"\xe2\x96\x81\"}, "
                           : "");
        sb_str_addf(out,
                    "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": "
                    "[{\"type\": \"Replace\", \"pattern\": {\"String\": "
                    "\"\xe2\x96\x81\"}, \"content\": \" \"}, {\"type\": "
                    "\"ByteFallback\"}, {\"type\": \"Fuse\"}%s]},\n",
                    prefix ? ", {\"type\": \"Strip\", \"content\": \" \", "
                             "\"start\": 1, \"stop\": 0}"
                           : "");
        return;
    }
    sb_str_add(out, "  \"normalizer\": null,\n  \"pre_tokenizer\": {\"type\": "
                    "\"Sequence\", \"pretokenizers\": [");
    for (size_t i = 0; i < t->n_cuts; i++) {
        sb_str_add(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        sb_str_add_json(out, t->cuts[i].pattern);
        sb_str_add(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    sb_str_add(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                    "\"trim_offsets\": true, \"use_regex\": false}]},\n"
                    "  \"decoder\": {\"type\": \"ByteLevel\", "
                    "\"add_prefix_space\": false, \"trim_offsets\": true, "
                    "\"use_regex\": false},\n");
}

static void put_template(const sb_tokenizer *t, sb_str *spare, sb_str *out)
{
    if (t->n_before == 0) {
        sb_str_add(out, "  \"post_processor\": null,\n");
        return;
    }
    sb_str_add(out, "  \"post_processor\": {\"type\": \"TemplateProcessing\", "
                    "\"single\": [{\"SpecialToken\": {\"id\": ");
    put_token(t, t->before[0], spare, out);
    sb_str_add(out, ", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
                    "\"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": "
                    "\"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", "
                    "\"type_id\": 1}}], \"special_tokens\": {");
    put_token(t, t->before[0], spare, out);
    sb_str_add(out, ": {\"id\": ");
    put_token(t, t->before[0], spare, out);
    sb_str_addf(out, ", \"ids\": [%u], \"tokens\": [", t->before[0]);
    put_token(t, t->before[0], spare, out);
    sb_str_add(out, "]}}},\n");
}

static sb_status put_model(const sb_tokenizer *t, sb_str *spare, sb_str *out)
{
    sb_merge *merges = NULL;
    size_t n = 0;
    bool any = false;

    SB_TRY(sb_merges_list(t, &merges, &n));
    sb_str_addf(out,
                "  \"model\": {\"type\": \"BPE\", \"dropout\": null, "
                "\"fuse_unk\": %s, \"byte_fallback\": %s, \"ignore_merges\": "
                "%s, \"unk_token\": ",
                t->fuse_unknown ? "true" : "false",
                t->byte_level ? "false" : "true",
                t->whole_words ? "true" : "false");
    if (t->unknown < t->n_real)
        put_token(t, t->unknown, spare, out);
    else
        sb_str_add(out, "null");
    sb_str_add(out, ",\n    \"vocab\": {");
    for (uint32_t i = 0; i < t->n_real; i++) {
        sb_str_add(out, i ? ",\n" : "\n");
        put_token(t, i, spare, out);
        sb_str_addf(out, ": %u", i);
    }
    sb_str_add(out, "},\n    \"merges\": [");
    for (size_t i = 0; i < n; i++) {
        if (merges[i].left >= t->n_real || merges[i].right >= t->n_real)
            continue;
        sb_str_add(out, any ? ",\n[" : "\n[");
        put_token(t, merges[i].left, spare, out);
        sb_str_add(out, ", ");
        put_token(t, merges[i].right, spare, out);
        sb_str_add(out, "]");
        any = true;
    }
    sb_str_add(out, "]}\n}\n");
    sb_free(t->ctx, merges);
    return SB_OK;
}

static void put_settings(const sb_tokenizer *t, sb_str *spare, sb_str *out)
{
    sb_str_add(out, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"");
    if (t->bos < t->n_real) {
        sb_str_add(out, ",\n  \"bos_token\": ");
        put_token(t, t->bos, spare, out);
    }
    if (t->n_eos > 0) {
        sb_str_add(out, ",\n  \"eos_token\": ");
        put_token(t, t->eos[0], spare, out);
    }
    if (t->unknown < t->n_real) {
        sb_str_add(out, ",\n  \"unk_token\": ");
        put_token(t, t->unknown, spare, out);
    }
    sb_str_add(out, "\n}\n");
}

static sb_status write_text(sb_shards *s, const char *name, const sb_str *text)
{
    SB_TRY(sb_str_status(text));
    return sb_shards_file(s, name, sb_str_text(text), text->len);
}

static sb_status make_json(sb_shards *s, const sb_tokenizer *t)
{
    sb_str text, spare;

    sb_str_init(&text, s->ctx);
    sb_str_init(&spare, s->ctx);
    sb_str_add(&text, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                      "  \"padding\": null,\n");
    put_added(t, &spare, &text);
    put_steps(t, &text);
    put_template(t, &spare, &text);
    sb_status status = put_model(t, &spare, &text);
    if (status == SB_OK)
        status = sb_str_status(&spare);
    if (status == SB_OK)
        status = write_text(s, "tokenizer.json", &text);
    sb_str_clear(&text);
    put_settings(t, &spare, &text);
    if (status == SB_OK)
        status = write_text(s, "tokenizer_config.json", &text);
    sb_str_free(&text);
    sb_str_free(&spare);
    return status;
}

/* Is it a file that is copied as it is? */
static bool is_copied(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    return strcmp(name, "tokenizer.json") == 0 ||
           strcmp(name, "tokenizer.model") == 0;
}

/* What was read can be written as tokenizer.json. */
static sb_status open_other(sb_ctx *ctx, const char *path, sb_tokenizer **out)
{
    SB_TRY(sb_tokenizer_open(ctx, path, out));
    return (*out)->model != SB_WORDS_BPE
               ? sb_fail(ctx, SB_UNSUPPORTED,
                         "%s: a tokenizer of type %s is copied only, from "
                         "tokenizer.json or tokenizer.model",
                         path, sb_word_model_name((*out)->model))
               : SB_OK;
}

sb_status sb_hf_tokenizer_check(sb_ctx *ctx, const char *path)
{
    sb_tokenizer *t = NULL;

    if (sb_is_folder(path) || is_copied(path))
        return SB_OK; /* copied as it is, whatever is in it */
    sb_status status = open_other(ctx, path, &t);
    sb_tokenizer_free(t);
    return status;
}

sb_status sb_hf_tokenizer(sb_shards *s, const char *path)
{
    sb_tokenizer *t = NULL;
    bool any = false;

    if (sb_is_folder(path))
        SB_TRY(copy_folder(s, path, &any));
    if (any)
        return SB_OK;
    if (is_copied(path)) {
        const char *slash = strrchr(path, '/');

        return copy_file(s, path, slash ? slash + 1 : path);
    }
    sb_status status = open_other(s->ctx, path, &t);
    if (status == SB_OK)
        status = make_json(s, t);
    sb_tokenizer_free(t);
    return status;
}
