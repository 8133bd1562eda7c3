/* Reading the description of a data set, and opening what it describes. */
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/rng.h"
#include "data/data.h"

#define KEY(field) offsetof(sb_data_keys, field)

enum { MOST_BATCH = 65536 };

/* clang-format off */
const sb_param_def sb_data_table[] = {
    {.name = "SOURCE", .type = SB_PARAM_STRING, .offset = KEY(source), .required = true,
     .help = "where samples come from, see `sparsebit list sources`"},
    {.name = "PATH", .type = SB_PARAM_STRINGS, .offset = KEY(path),
     .help = "file or folder, relative to this file; some sources take a list"},
    {.name = "LABELS", .type = SB_PARAM_STRING, .offset = KEY(labels),
     .help = "file with the classes of the samples; or of several numbers for each: an array, a folder of masks"},
    {.name = "LABEL_OFFSET", .type = SB_PARAM_INT, .offset = KEY(label_offset),
     .preset = "0", .min = -100000, .max = 100000,
     .help = "added to each label: class = label + this"},
    {.name = "IGNORE_LABEL", .type = SB_PARAM_INT, .offset = KEY(ignore_label),
     .preset = "-1", .min = -1, .max = INT32_MAX,
     .help = "pixels, or whatever has a label each, that do not count have this one; -1: 255 in masks of images, else none"},
    {.name = "BATCH", .type = SB_PARAM_INT, .offset = KEY(batch),
     .preset = "8", .min = 1, .max = MOST_BATCH,
     .help = "samples that are run at once"},
    {.name = "SHUFFLE", .type = SB_PARAM_BOOL, .offset = KEY(shuffle),
     .preset = "false", .help = "in an order that depends on --seed alone"},
    {0},
};
/* clang-format on */

static sb_status unknown_source(const sb_data *data, const sb_yaml *node)
{
    char found[80];
    sb_str names;

    sb_str_init(&names, data->ctx);
    sb_source_names(&names);
    sb_status status = sb_str_status(&names);
    if (status == SB_OK)
        status = sb_yaml_fail(data->doc, node, "SOURCE: found %s, want %s",
                              node ? sb_yaml_describe(node, found, sizeof found)
                                   : "nothing",
                              sb_str_text(&names));
    sb_str_free(&names);
    return status;
}

/* The source decides which keys there are, so it is looked up first. */
static sb_status read_keys(sb_data *data, sb_transform_keys *transform)
{
    sb_source *s = &data->source;
    const sb_yaml *root = data->doc->root;
    const sb_yaml *node = sb_yaml_get(root, "SOURCE");
    sb_param_set sets[3] = {{sb_data_table, &data->keys}};
    size_t n = 1;

    const sb_source_def *def = node && node->kind == SB_YAML_SCALAR
                                   ? sb_source_find(data->ctx, node->text)
                                   : NULL;
    if (!def)
        return unknown_source(data, node);
    if (def->image)
        sets[n++] = (sb_param_set){sb_transform_table, transform};
    else
        sets[n++] = (sb_param_set){sb_array_table, &data->array_keys};
    if (def->table) {
        s->own_keys = sb_arena_alloc(&data->arena, 1, def->keys_size);
        if (!s->own_keys)
            return SB_NO_MEMORY;
        sets[n++] = (sb_param_set){def->table, s->own_keys};
    }
    SB_TRY(sb_params_read_sets(data->doc, root, "", sets, n));
    s->def = def;
    return SB_OK;
}

/* Fisher and Yates: every order is equally likely. */
static void shuffle_places(size_t *v, size_t n, sb_rng *rng)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)sb_rng_below(rng, i), t = v[i - 1];

        v[i - 1] = v[j];
        v[j] = t;
    }
}

static sb_status data_setup_shuffle(sb_data *data)
{
    size_t n = data->source.count;
    sb_rng rng;

    data->order = sb_alloc(data->ctx, n, sizeof *data->order);
    if (!data->order)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        data->order[i] = i;
    sb_rng_init(&rng, data->opt.seed);
    shuffle_places(data->order, n, &rng);
    return SB_OK;
}

static int order_compare(const void *a, const void *b)
{
    const size_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

void sb_data_shuffle(sb_data *data, uint64_t epoch)
{
    size_t n = data->end - data->begin;
    sb_rng rng;

    /* From the same start, whatever epochs there were before. */
    qsort(data->order + data->begin, n, sizeof *data->order, order_compare);
    sb_augment_seed(&rng, data->opt.seed, epoch, data->source.count);
    shuffle_places(data->order + data->begin, n, &rng);
}

static sb_status choose_samples(sb_data *data)
{
    size_t count = data->source.count;

    if (data->opt.skip >= count)
        return sb_fail(data->ctx, SB_BAD_DATA,
                       "%s: cannot skip %zu samples, there are %zu",
                       data->doc->file, data->opt.skip, count);
    data->begin = data->at = data->opt.skip;
    data->end = count;
    if (data->opt.samples && data->opt.samples < count - data->begin)
        data->end = data->begin + data->opt.samples;
    data->first = data->begin;
    data->last = data->end;
    return data->keys.shuffle ? data_setup_shuffle(data) : SB_OK;
}

static sb_status make_batch_memory(sb_data *data)
{
    sb_batch_memory *b = &data->batch;
    size_t n = data->n_inputs, most = data->end - data->begin;

    b->size = data->opt.batch ? data->opt.batch : (size_t)data->keys.batch;
    if (data->states.n || data->array_keys.feed != SB_FEED_BATCHES)
        b->size = 1;
    b->size = b->size < most ? b->size : most;
    b->size = b->size < MOST_BATCH ? b->size : MOST_BATCH;
    b->whole = b->size;
    data->sample = sb_arena_alloc(&data->arena, n, sizeof *data->sample);
    data->wanted = sb_arena_alloc(&data->arena, n, sizeof *data->wanted);
    b->tensors = sb_arena_alloc(&data->arena, n, sizeof *b->tensors);
    b->list = sb_arena_alloc(&data->arena, n, sizeof *b->list);
    b->moved = sb_arena_alloc(&data->arena, n, sizeof *b->moved);
    b->axes = sb_arena_alloc(&data->arena, n, sizeof *b->axes);
    b->shared = sb_arena_alloc(&data->arena, n, sizeof *b->shared);
    data->scalar = sb_arena_alloc(&data->arena, n, sizeof *data->scalar);
    b->cap = sb_arena_alloc(&data->arena, n, sizeof *b->cap);
    b->labels = sb_arena_alloc(&data->arena, b->size, sizeof *b->labels);
    b->names = sb_arena_alloc(&data->arena, b->size, sizeof *b->names);
    b->name_text = sb_arena_alloc(&data->arena, b->size, sizeof *b->name_text);
    if (!data->sample || !data->wanted || !data->scalar || !b->tensors ||
        !b->moved || !b->axes || !b->shared || !b->list || !b->cap ||
        !b->labels || !b->names || !b->name_text)
        return SB_NO_MEMORY;
    for (size_t k = 0; k < n; k++)
        b->list[k] = &b->tensors[k];
    return SB_OK;
}

static sb_status take_other_keys(sb_data *data)
{
    const char *text = data->opt.keys;

    data->opt.keys = NULL; /* the caller's memory */
    if (!text || !*text)
        return SB_OK;
    SB_TRY(sb_yaml_load_memory(data->ctx, data->doc->file, text, strlen(text),
                               &data->other_keys));
    return sb_yaml_override(data->doc, data->other_keys->root);
}

sb_status sb_data_setup(sb_data *data, const sb_data_options *opt)
{
    sb_source *s = &data->source;
    const sb_data_options defaults = SB_DATA_OPTIONS_INIT;
    sb_transform_keys transform = {0};

    SB_TRY(sb_options_read(data->ctx, "sb_data_options", opt, &defaults,
                           sizeof data->opt, &data->opt));
    SB_TRY(take_other_keys(data));
    s->ctx = data->ctx;
    s->doc = data->doc;
    s->keys = &data->keys;
    s->array_keys = &data->array_keys;
    s->arena = &data->arena;
    s->n_inputs = 0;
    SB_TRY(read_keys(data, &transform));
    SB_TRY(s->def->open(s));
    if (s->def->image) {
        SB_TRY(sb_transform_init(data->doc, &transform, s->native,
                                 &data->transform));
        s->n_inputs = 1;
    } else {
        SB_TRY(sb_source_read_axes(s));
        SB_TRY(sb_source_read_states(s, &data->states));
    }
    bool more = s->masks || s->rows.data;
    data->targets = more || s->own_targets;
    data->n_inputs = s->n_inputs + more;
    if (s->masks) {
        if (data->keys.ignore_label < 0)
            data->keys.ignore_label = UINT8_MAX;
        if (data->keys.ignore_label > UINT8_MAX)
            return sb_fail(data->ctx, SB_BAD_CONFIG,
                           "%s: IGNORE_LABEL: found %lld, allowed with masks "
                           "are 0 to 255",
                           data->doc->file, (long long)data->keys.ignore_label);
        sb_transform_mask(&data->transform,
                          (uint8_t)(data->keys.ignore_label & UINT8_MAX),
                          &data->mask_transform);
    }
    SB_TRY(choose_samples(data));
    return make_batch_memory(data);
}
