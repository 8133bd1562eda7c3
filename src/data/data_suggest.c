/* A data file for samples that come without one: what the files are, and the
 * preprocessing that the shape of the model's input suggests. */
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "data/data.h"

/* What a file with this name, or what is in a folder, is fed by. */
static const struct {
    const char *source;
    const char *endings[5];
} kinds[] = {
    {"image_folder", {".jpg", ".jpeg", ".jpe", ".png", NULL}},
    {"npz", {".npz", NULL}},
    {"npy", {".npy", NULL}},
};

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };
/* Tokens of a window, the preset of WINDOW. */
enum { LONG_WINDOW = 1024 };

/* Are there such files?  Images also in folders below. */
static sb_status look_into(sb_ctx *ctx, sb_arena *arena, const char *dir,
                           size_t kind, bool *found)
{
    sb_name_list list = {0};
    sb_status status =
        sb_files_find(ctx, arena, dir, kinds[kind].endings, kind == 0, &list);

    *found = list.n > 0;
    sb_free(ctx, list.v);
    return status;
}

static sb_status find_source(sb_ctx *ctx, const char *path, const char **out)
{
    sb_status status = SB_OK;
    bool folder = sb_is_folder(path);
    sb_arena arena;

    sb_arena_init(&arena, ctx);
    *out = NULL;
    for (size_t i = 0; i < N_KINDS && !*out && status == SB_OK; i++) {
        const char *const *e = kinds[i].endings;
        bool found = false;

        if (folder)
            status = look_into(ctx, &arena, path, i, &found);
        for (; !folder && *e && !found; e++)
            found = sb_ends_with(path, *e);
        if (found)
            *out = kinds[i].source;
    }
    sb_arena_free(&arena);
    if (status == SB_OK && !*out)
        status = sb_fail(ctx, SB_BAD_ARG,
                         "%s: no data file, and no images (.jpg, .png), .npz "
                         "or .npy %s",
                         path, folder ? "files in it" : "file");
    return status;
}

/* Text in single quotes, as YAML has it. */
static void add_quoted(sb_str *out, const char *text)
{
    sb_str_add(out, "'");
    for (; *text; text++)
        sb_str_addf(out, *text == '\'' ? "''" : "%c", *text);
    sb_str_add(out, "'");
}

/* ---- images -------------------------------------------------------------- */

static bool is_channels(int64_t n)
{
    return n == 1 || n == 3 || n == 4;
}

static sb_status suggest_size(sb_ctx *ctx, const sb_value_info *in,
                              const sb_yaml *keys, int axis, sb_str *out)
{
    if (sb_yaml_get(keys, "RESIZE") || sb_yaml_get(keys, "LETTERBOX") ||
        sb_yaml_get(keys, "CROP") || sb_yaml_get(keys, "PAD"))
        return SB_OK;
    if (in->dims[axis] < 1 || in->dims[axis + 1] < 1)
        return sb_fail(ctx, SB_BAD_ARG,
                       "input '%s' is %s, of any size: say which with --set "
                       "RESIZE=[480,640] or --set LETTERBOX=640",
                       in->name, in->text);
    sb_str_addf(out, "RESIZE: [%lld, %lld]\n", (long long)in->dims[axis],
                (long long)in->dims[axis + 1]);
    return SB_OK;
}

static sb_status suggest_image(sb_ctx *ctx, const sb_value_info *inputs,
                               size_t n, const sb_yaml *keys, sb_str *out)
{
    const sb_value_info *in = n == 1 ? &inputs[0] : NULL;
    bool first = in && in->rank == 4 && is_channels(in->dims[1]);
    bool last = in && in->rank == 4 && is_channels(in->dims[3]);

    if (!first && !last)
        return sb_fail(ctx, SB_BAD_ARG,
                       "the model has %zu input%s, '%s' is %s: images want one "
                       "input [N,C,H,W] or [N,H,W,C] with 1, 3 or 4 channels; "
                       "write a data file, see docs/data.md",
                       n, n == 1 ? "" : "s", n ? inputs[0].name : "",
                       n ? inputs[0].text : "none");
    int64_t channels = in->dims[first ? 1 : 3];
    SB_TRY(suggest_size(ctx, in, keys, first ? 2 : 1, out));
    if (!first && !sb_yaml_get(keys, "LAYOUT"))
        sb_str_add(out, "LAYOUT: NHWC\n");
    if (channels != 3 && !sb_yaml_get(keys, "COLOR"))
        sb_str_addf(out, "COLOR: %s\n", channels == 1 ? "GRAY" : "RGBA");
    if (!sb_dtype_is_integral(in->dtype) && !sb_yaml_get(keys, "SCALE"))
        sb_str_add(out, "SCALE: 255\n");
    return SB_OK;
}

/* ---- arrays -------------------------------------------------------------- */

/* Samples lie in the first axis of every input, or else each file is a run.  An
 * axis of one size, where another input takes any number, does not count
 * samples: a state [2,N,H] beside [N,F]. */
static void suggest_feed(const sb_value_info *inputs, size_t n,
                         const sb_yaml *keys, sb_str *out)
{
    int64_t size = -1;
    bool batches = true, open = false;

    for (size_t i = 0; i < n; i++) {
        int64_t d = inputs[i].rank > 0 ? inputs[i].dims[0] : -1;

        batches =
            batches && inputs[i].rank != 0 && (d < 0 || size < 0 || d == size);
        size = d < 0 ? size : d;
        open = open || (inputs[i].rank > 0 && d < 0);
    }
    batches = batches && !(open && size >= 0);
    if (!batches && !sb_yaml_get(keys, "FEED") && !sb_yaml_get(keys, "AXIS") &&
        !sb_yaml_get(keys, "STATE"))
        sb_str_add(out, "FEED: files\n");
}

/* ---- texts --------------------------------------------------------------- */

/* The tokenizer is the model's own, and windows are no longer than it takes.
 * One at a time: the logits of 1024 tokens are 200 MB with 50000 of them. */
static void suggest_text(const sb_data_model *to, const sb_yaml *keys,
                         sb_str *out)
{
    if (to->path && !sb_yaml_get(keys, "TOKENIZER")) {
        sb_str_add(out, "TOKENIZER: ");
        add_quoted(out, to->path);
        sb_str_add(out, "\n");
    }
    if (!sb_yaml_get(keys, "BATCH"))
        sb_str_add(out, "BATCH: 1\n");
    if (!sb_yaml_get(keys, "WINDOW"))
        sb_str_addf(out, "WINDOW: %zu\n",
                    to->positions < LONG_WINDOW ? to->positions : LONG_WINDOW);
}

static sb_status suggest(sb_ctx *ctx, const sb_data_model *to, const char *path,
                         const sb_yaml *keys, sb_str *out)
{
    bool text = to->positions > 0 && sb_ends_with(path, ".txt");
    const char *source = NULL;

    if (!text)
        SB_TRY(find_source(ctx, path, &source));
    sb_str_addf(out, "SOURCE: %s\nPATH: ", source ? source : "text");
    add_quoted(out, path);
    sb_str_add(out, "\n");
    if (text)
        suggest_text(to, keys, out);
    else if (source == kinds[0].source)
        SB_TRY(suggest_image(ctx, to->inputs, to->n_inputs, keys, out));
    else
        suggest_feed(to->inputs, to->n_inputs, keys, out);
    return sb_str_status(out);
}

sb_status sb_data_suggest(sb_ctx *ctx, const sb_data_model *to,
                          const char *path, const char *keys, char **out)
{
    sb_yaml_doc *doc = NULL;
    sb_str text;

    if (keys && *keys)
        SB_TRY(sb_yaml_load_memory(ctx, "--set", keys, strlen(keys), &doc));
    sb_str_init(&text, ctx);
    sb_status status = suggest(ctx, to, path, doc ? doc->root : NULL, &text);
    if (status == SB_OK)
        status = sb_str_copy_out(&text, out);
    sb_str_free(&text);
    sb_yaml_free(doc);
    return status;
}
