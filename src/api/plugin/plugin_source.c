/* Data sources of plug-ins. */
#include <stdio.h>
#include <string.h>

#include "api/plugin/plugin.h"
#include "base/options.h"
#include "data/source.h"

typedef struct added_source {
    sb_source_def def; /* first: the row is this */
    sb_source_plugin plugin;
} added_source;

/* What an open source of a plug-in keeps. */
typedef struct source_state {
    const sb_source_plugin *plugin;
    void *own;
    const sb_tensor **tensors; /* n_inputs */
} source_state;

struct sb_source_call {
    sb_source *source;
};

/* ---- what the plug-in says ---------------------------------------------- */

size_t sb_source_path_count(const sb_source_call *call)
{
    return call->source->keys->path.n;
}

const char *sb_source_path_get(sb_source_call *call, size_t i)
{
    const sb_source *s = call->source;

    return i < s->keys->path.n ? sb_source_path(s, s->keys->path.v[i]) : NULL;
}

static sb_status copy_names(sb_source *s, const char *const *names, size_t n)
{
    s->input_names = sb_arena_alloc(s->arena, n, sizeof(*s->input_names));
    for (size_t i = 0; s->input_names && i < n; i++) {
        s->input_names[i] = sb_arena_str(s->arena, names[i]);
        if (!s->input_names[i])
            return SB_NO_MEMORY;
    }
    return s->input_names ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_source_set_count(sb_source_call *call, size_t n_samples,
                              size_t n_tensors, const char *const *names,
                              const int64_t *labels)
{
    sb_source *s = call->source;

    if (n_samples == 0 || n_tensors == 0)
        return sb_source_open_fail(call, SB_BAD_DATA, "there are no samples");
    s->count = n_samples;
    s->n_inputs = n_tensors;
    if (names)
        SB_TRY(copy_names(s, names, n_tensors));
    if (labels) {
        s->labels = sb_arena_copy(s->arena, labels, n_samples * sizeof *labels);
        if (!s->labels)
            return SB_NO_MEMORY;
    }
    return SB_OK;
}

sb_status sb_source_open_fail(sb_source_call *call, sb_status status,
                              const char *message)
{
    (void)sb_source_fail(call->source, "SOURCE", "%s", message);
    return status;
}

/* ---- the row ------------------------------------------------------------ */

static sb_status added_open(sb_source *s)
{
    const sb_source_plugin *p = &((const added_source *)s->def)->plugin;
    source_state *state = sb_arena_alloc(s->arena, 1, sizeof *state);
    sb_source_call call = {s};

    if (!state)
        return SB_NO_MEMORY;
    SB_TRY(p->open(p->user, &call, &state->own));
    state->plugin = p;
    s->state = state; /* to be closed from now on */
    if (s->count == 0)
        return sb_source_fail(s, "SOURCE",
                              "open() did not say how many samples there are");
    state->tensors =
        sb_arena_alloc(s->arena, s->n_inputs, sizeof(*state->tensors));
    return state->tensors ? SB_OK : SB_NO_MEMORY;
}

static void added_close(sb_source *s)
{
    source_state *state = s->state;

    if (state && state->plugin->close)
        state->plugin->close(state->plugin->user, state->own);
}

static const char *added_name(const sb_source *s, size_t i, char *out,
                              size_t size)
{
    (void)snprintf(out, size, "%s[%zu]", s->def->name, i);
    return out;
}

static sb_status added_arrays(sb_source *s, size_t i, sb_tensor *out)
{
    source_state *state = s->state;

    for (size_t k = 0; k < s->n_inputs; k++)
        state->tensors[k] = NULL;
    SB_TRY(state->plugin->sample(state->plugin->user, state->own, i,
                                 state->tensors));
    for (size_t k = 0; k < s->n_inputs; k++) {
        if (!state->tensors[k])
            return sb_fail(s->ctx, SB_BAD_DATA,
                           "%s[%zu]: tensor %zu is missing", s->def->name, i,
                           k);
        out[k] = *state->tensors[k]; /* borrowed */
        out[k].buf = NULL;
    }
    return SB_OK;
}

sb_status sb_ctx_add_source(sb_ctx *ctx, const sb_source_plugin *plugin)
{
    const sb_source_plugin defaults = SB_SOURCE_PLUGIN_INIT;
    sb_source_plugin p;

    SB_TRY(sb_options_read(ctx, "sb_source_plugin", plugin, &defaults, sizeof p,
                           &p));
    SB_TRY(sb_plugin_check_name(ctx, "source", p.name, false));
    SB_TRY(sb_plugin_check_name(ctx, "source", p.name,
                                sb_source_find(ctx, p.name) != NULL));
    if (!p.open || !p.sample)
        return sb_fail(ctx, SB_BAD_ARG,
                       "source '%s': open and sample must be set", p.name);
    added_source *source = sb_alloc(ctx, 1, sizeof *source);
    if (!source)
        return SB_NO_MEMORY;
    source->plugin = p;
    source->def = (sb_source_def){.name = p.name,
                                  .summary = p.summary ? p.summary : "",
                                  .open = added_open,
                                  .close = added_close,
                                  .name_of = added_name,
                                  .arrays = added_arrays};
    return sb_ctx_add_row(ctx, SB_ROW_SOURCE, source);
}
