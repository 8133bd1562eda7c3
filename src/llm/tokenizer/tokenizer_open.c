/* Finding a model's tokenizer: the file itself, or what lies beside it. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "llm/gguf.h"
#include "llm/llm_load.h"
#include "llm/tokenizer/tokenizer.h"

/* ---- tokens that end a text --------------------------------------------- */

static void add_end(sb_tokenizer *t, const sb_json *v)
{
    if (!sb_json_is(v, SB_JSON_NUMBER) || !(v->number >= 0) ||
        v->number >= (double)t->n_real || t->n_eos == SB_TEMPLATE_MOST)
        return;
    uint32_t id = (uint32_t)v->number;
    if (!sb_tokenizer_is_end(t, id))
        t->eos[t->n_eos++] = id;
}

/* eos_token_id is a number or a list; bos_token_id a number. */
static sb_status read_ends(sb_tokenizer *t, const char *path)
{
    sb_mapping map = {0};
    sb_json_doc *doc = NULL;

    if (!sb_path_exists(path))
        return SB_OK;
    SB_TRY(sb_file_map(t->ctx, path, &map));
    sb_status status = sb_json_read(t->ctx, path, map.data, map.size, &doc);
    if (status == SB_OK) {
        const sb_json *eos = sb_json_get(doc->root, "eos_token_id");
        const sb_json *bos = sb_json_get(doc->root, "bos_token_id");

        add_end(t, eos);
        if (sb_json_is(eos, SB_JSON_LIST))
            for (const sb_json *i = eos->child; i; i = i->next)
                add_end(t, i);
        if (sb_json_is(bos, SB_JSON_NUMBER) && bos->number >= 0 &&
            bos->number < (double)t->n_real)
            t->bos = (uint32_t)bos->number;
    }
    sb_json_free(doc);
    sb_file_unmap(&map);
    return status;
}

static sb_status read_ends_in(sb_tokenizer *t, const char *folder)
{
    static const char *const names[] = {"generation_config.json",
                                        "config.json"};

    for (size_t i = 0; i < SB_COUNT(names); i++) {
        char *path = sb_path_join(t->ctx, folder, names[i]);
        sb_status status = path ? read_ends(t, path) : SB_NO_MEMORY;

        sb_free(t->ctx, path);
        SB_TRY(status);
    }
    return SB_OK;
}

/* ---- files -------------------------------------------------------------- */

static sb_status head_of(sb_ctx *ctx, const char *path, char head[4])
{
    sb_mapping map = {0};

    SB_TRY(sb_file_map_input(ctx, path, &map));
    memset(head, 0, 4);
    if (map.size >= 4)
        memcpy(head, map.data, 4);
    sb_file_unmap(&map);
    return SB_OK;
}

/* By the first bytes: `{` is JSON, a piece of a SentencePiece model begins with
 * field 1; what is left is llama2.c's. */
static sb_status read_file(sb_tokenizer *t, const char *path)
{
    char head[4];

    SB_TRY(head_of(t->ctx, path, head));
    if (sb_gguf_is(head, sizeof head))
        return sb_tokenizer_read_gguf(t, path);
    if (head[0] == '{' || sb_text_ends_with(path, ".json"))
        return sb_tokenizer_read_json(t, path);
    return head[0] == 0x0a && !sb_text_ends_with(path, ".bin")
               ? sb_tokenizer_read_model(t, path)
               : sb_tokenizer_read_bin(t, path);
}

static sb_status read_folder(sb_tokenizer *t, const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model",
                                        "tokenizer.bin"};

    for (size_t i = 0; i < SB_COUNT(names); i++) {
        char *path = sb_path_join(t->ctx, folder, names[i]);
        bool there = path && sb_path_exists(path);
        sb_status status = !path   ? SB_NO_MEMORY
                           : there ? read_file(t, path)
                                   : SB_OK;
        sb_free(t->ctx, path);
        SB_TRY(status);
        if (there)
            return read_ends_in(t, folder);
    }
    size_t n = strlen(folder);
    if (n > 2 && strcmp(folder + n - 2, "/.") == 0) /* beside a model */
        n -= 2;
    return sb_fail(t->ctx, SB_IO,
                   "%.*s: no tokenizer.json, tokenizer.model or tokenizer.bin; "
                   "--tokenizer names another file",
                   (int)n, folder);
}

/* Models without a tokenizer of their own have it beside them. */
static bool has_none(const char *path)
{
    static const char *const ends[] = {".onnx", ".safetensors"};

    for (size_t i = 0; i < SB_COUNT(ends); i++)
        if (sb_text_ends_with(path, ends[i]))
            return true;
    return false;
}

static sb_status read_any(sb_tokenizer *t, const char *path)
{
    char head[4] = {0};

    if (sb_is_folder(path))
        return read_folder(t, path);
    if (!has_none(path)) {
        SB_TRY(head_of(t->ctx, path, head));
        /* Of the models only GGUF files have it in them. */
        if (sb_gguf_is(head, sizeof head) || !sb_llm_is(path))
            return read_file(t, path);
    }
    char *folder = sb_path_beside(t->ctx, path, ".");
    if (!folder)
        return SB_NO_MEMORY;
    sb_status status = read_folder(t, folder);
    sb_free(t->ctx, folder);
    return status;
}

sb_status sb_tokenizer_open(sb_ctx *ctx, const char *path, sb_tokenizer **out)
{
    sb_tokenizer *t = NULL;

    SB_TRY(sb_tokenizer_create(ctx, &t));
    sb_status status = read_any(t, path);
    if (status == SB_OK)
        *out = t;
    else
        sb_tokenizer_free(t);
    return status;
}
