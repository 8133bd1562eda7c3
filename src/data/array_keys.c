/* FEED, AXIS and STATE of sources of arrays. */
#include "data/array_keys.h"

#include <stdlib.h>
#include <string.h>

#define KEY(field) offsetof(sb_array_keys, field)

static const char *const feeds[] = {"batches", "rows", "files", NULL};
static const char *const feed_meanings[] = {
    "rows of the arrays are samples, put side by side in a batch",
    "each row of the first axis is one run, as it is",
    "each file is one run, its arrays as they are",
    NULL,
};

/* clang-format off */
const sb_param_def sb_array_table[] = {
    {.name = "FEED", .type = SB_PARAM_ENUM, .offset = KEY(feed),
     .preset = "batches", .names = feeds, .meanings = feed_meanings,
     .help = "what one run of the model takes"},
    {.name = "AXIS", .type = SB_PARAM_NODE, .offset = KEY(axis),
     .values = "a map from names of inputs to 0, 1, ... or none",
     .help = "the axis that counts samples where it is not the first: `{state: 1}`; `none`: the same for all samples"},
    {.name = "STATE", .type = SB_PARAM_NODE, .offset = KEY(state),
     .values = "a map from names of inputs to names of outputs",
     .help = "inputs that take what an output was in the run before: `{state: stateN}`; zeros at the first sample of each file"},
    {0},
};
/* clang-format on */

static sb_status read_axis(const sb_source *s, const sb_yaml *map, size_t i)
{
    const char *name = map->keys[i]->text;
    const sb_yaml *item = map->items[i];
    char found[80], *end = NULL;
    long axis = -1;
    bool good = item->kind == SB_YAML_SCALAR;

    if (good && strcmp(item->text, "none") != 0) {
        axis = strtol(item->text, &end, 10);
        good = end != item->text && !*end && axis >= 0 && axis < SB_MAX_RANK;
    }
    if (!good)
        return sb_source_fail(s, "AXIS", "'%s': found %s, want 0..%d or none",
                              name, sb_yaml_describe(item, found, sizeof found),
                              SB_MAX_RANK - 1);
    for (size_t k = 0; k < s->n_inputs; k++)
        if (s->input_names && strcmp(s->input_names[k], name) == 0) {
            s->axes[k] = (int)axis;
            return SB_OK;
        }
    return sb_source_fail(s, "AXIS", "the data have no input '%s'", name);
}

sb_status sb_source_read_axes(sb_source *s)
{
    const sb_yaml *map = s->array_keys->axis;

    if (s->axes)
        return SB_OK;
    s->axes = sb_arena_alloc(s->arena, s->n_inputs, sizeof *s->axes);
    if (!s->axes)
        return SB_NO_MEMORY;
    if (!map)
        return SB_OK;
    if (map->kind != SB_YAML_MAP)
        return sb_source_fail(s, "AXIS", "want a map 'input: axis'");
    if (s->array_keys->feed != SB_FEED_BATCHES)
        return sb_source_fail(s, "AXIS", "want it only with FEED: batches");
    for (size_t i = 0; i < map->n; i++)
        SB_TRY(read_axis(s, map, i));
    return SB_OK;
}

sb_status sb_source_read_states(const sb_source *s, sb_state_names *out)
{
    const sb_yaml *map = s->array_keys->state;

    if (!map)
        return SB_OK;
    if (map->kind != SB_YAML_MAP || map->n == 0)
        return sb_source_fail(s, "STATE", "want a map 'input: output'");
    if (s->keys->shuffle)
        return sb_source_fail(s, "STATE",
                              "runs follow each other: want SHUFFLE: false");
    out->inputs = sb_arena_alloc(s->arena, map->n, sizeof *out->inputs);
    out->outputs = sb_arena_alloc(s->arena, map->n, sizeof *out->outputs);
    if (!out->inputs || !out->outputs)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < map->n; i++) {
        out->inputs[i] = map->keys[i]->text;
        out->outputs[i] = map->items[i]->text;
        if (map->items[i]->kind != SB_YAML_SCALAR)
            return sb_source_fail(s, "STATE", "'%s': want an output's name",
                                  out->inputs[i]);
    }
    out->n = map->n;
    return SB_OK;
}
