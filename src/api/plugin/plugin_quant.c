/* Observers and quantizers of plug-ins, and their parameters. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/plugin/plugin.h"
#include "base/options.h"
#include "quant/model/instrument.h"
#include "quant/observe/observer_def.h"
#include "quant/quantize/quantizer.h"

/* Numbers as the tables of a configuration have them. */
enum { PARAMS_MOST = 16, PRESET_MOST = 32 };

typedef struct added_params {
    sb_param_def rows[PARAMS_MOST + 1];
    char presets[PARAMS_MOST][PRESET_MOST];
} added_params;

static sb_status add_params(sb_ctx *ctx, const char *name,
                            const sb_plugin_param *const *params, size_t n,
                            added_params *out)
{
    const sb_plugin_param defaults = SB_PLUGIN_PARAM_INIT;

    if (n > PARAMS_MOST)
        return sb_fail(ctx, SB_BAD_ARG, "'%s': %zu parameters, want at most %d",
                       name, n, PARAMS_MOST);
    for (size_t i = 0; i < n; i++) {
        sb_plugin_param p;

        SB_TRY(sb_options_read(ctx, "sb_plugin_param", params[i], &defaults,
                               sizeof p, &p));
        if (!p.key || !*p.key)
            return sb_fail(ctx, SB_BAD_ARG, "'%s': a parameter has no key",
                           name);
        (void)snprintf(out->presets[i], PRESET_MOST, "%.17g", p.preset);
        out->rows[i] = (sb_param_def){.name = p.key,
                                      .type = SB_PARAM_FLOAT,
                                      .offset = i * sizeof(double),
                                      .preset = out->presets[i],
                                      .min = p.min,
                                      .max = p.max,
                                      .help = p.help ? p.help : ""};
    }
    return SB_OK;
}

/* ---- observers ---------------------------------------------------------- */

typedef struct added_observer {
    sb_observer_def def; /* first: the row is this */
    sb_observer_plugin plugin;
    added_params params;
} added_observer;

static sb_range observer_added_range(const sb_obs_values *v)
{
    const added_observer *o = (const added_observer *)v->spec->observer;
    sb_range range = {NAN, NAN}; /* said to be a failure by the core */
    const sb_observer_values values = {
        .is_weight = v->spec->kind == SB_QUANT_WEIGHT,
        .bits = v->spec->bits,
        .is_symmetric = v->spec->symmetric,
        .channel = (size_t)v->channel,
        .params = v->spec->observer_params,
        .least = v->range.lo,
        .most = v->range.hi,
        .n = (size_t)v->n,
        .x = v->x,
        .count = v->count,
        .bin_width = v->width,
    };

    if (o->plugin.range(o->plugin.user, &values, &range.lo, &range.hi) != SB_OK)
        return (sb_range){NAN, NAN};
    return range;
}

sb_status sb_ctx_add_observer(sb_ctx *ctx, const sb_observer_plugin *plugin)
{
    const sb_observer_plugin defaults = SB_OBSERVER_PLUGIN_INIT;
    sb_observer_plugin p;

    SB_TRY(sb_options_read(ctx, "sb_observer_plugin", plugin, &defaults,
                           sizeof p, &p));
    SB_TRY(sb_plugin_check_key(ctx, "observer", p.name,
                               p.name && sb_observer_find(ctx, p.name)));
    if (!p.range || (!p.for_weights && !p.for_activations))
        return sb_fail(ctx, SB_BAD_ARG,
                       "observer '%s': range must be set, and what it is for",
                       p.name);
    added_observer *o = sb_alloc(ctx, 1, sizeof *o);
    if (!o)
        return SB_NO_MEMORY;
    sb_status status =
        add_params(ctx, p.name, p.params, p.n_params, &o->params);
    if (status != SB_OK) {
        sb_free(ctx, o);
        return status;
    }
    o->plugin = p;
    o->def = (sb_observer_def){
        .name = p.name,
        .summary = p.summary ? p.summary : "",
        .bound = "",
        .flags = SB_OBS_HISTOGRAM | (p.for_weights ? SB_OBS_WEIGHT : 0u) |
                 (p.for_activations ? SB_OBS_ACTIVATION : 0u) |
                 (p.on_threads ? 0u : SB_OBS_SERIAL),
        .why_one =
            p.for_weights && p.for_activations ? NULL : "as its plug-in says",
        .params = p.n_params ? o->params.rows : NULL,
        .params_size = p.n_params * sizeof(double),
        .range = observer_added_range};
    return sb_ctx_add_row(ctx, SB_ROW_OBSERVER, o);
}

/* ---- quantizers --------------------------------------------------------- */

typedef struct added_quantizer {
    sb_quantizer_def def; /* first: the row is this */
    sb_quantizer_plugin plugin;
    added_params params;
} added_quantizer;

static const added_quantizer *added_of(const sb_quant_spec *spec)
{
    return (const added_quantizer *)spec->quantizer;
}

static void added_map_weight(const sb_quant_spec *spec, float *w, int64_t n)
{
    const sb_quantizer_plugin *p = &added_of(spec)->plugin;

    p->map_weight(p->user, spec->quantizer_params, w, (size_t)n);
}

static sb_status added_map_activation(const sb_quant_spec *spec, sb_graph *g,
                                      sb_node_id like, sb_value_id x,
                                      sb_value_id *out)
{
    const char *op = added_of(spec)->plugin.map_activation;
    const char *colons = strstr(op, "::");
    sb_node_spec node = {.op = op, .inputs = &x, .n_in = 1};

    if (colons) {
        node.op = colons + 2;
        node.domain = sb_arena_strn(g->arena, op, (size_t)(colons - op));
        if (!node.domain)
            return SB_NO_MEMORY;
    }
    return sb_quant_add_node(g, like, &node, x, out);
}

sb_status sb_ctx_add_quantizer(sb_ctx *ctx, const sb_quantizer_plugin *plugin)
{
    const sb_quantizer_plugin defaults = SB_QUANTIZER_PLUGIN_INIT;
    const unsigned schemes = SB_SCHEMES_PER_TENSOR | SB_SCHEMES_PER_CHANNEL;
    sb_quantizer_plugin p;

    SB_TRY(sb_options_read(ctx, "sb_quantizer_plugin", plugin, &defaults,
                           sizeof p, &p));
    SB_TRY(sb_plugin_check_key(ctx, "quantizer", p.name,
                               p.name && sb_quantizer_find(ctx, p.name)));
    added_quantizer *q = sb_alloc(ctx, 1, sizeof *q);
    if (!q)
        return SB_NO_MEMORY;
    sb_status status =
        add_params(ctx, p.name, p.params, p.n_params, &q->params);
    if (status != SB_OK) {
        sb_free(ctx, q);
        return status;
    }
    q->plugin = p;
    q->def = (sb_quantizer_def){
        .name = p.name,
        .summary = p.summary ? p.summary : "",
        .uses = {[SB_QUANT_WEIGHT] = {p.for_weights ? schemes : 0,
                                      "as its plug-in says"},
                 [SB_QUANT_ACTIVATION] = {p.for_activations ? schemes : 0,
                                          "as its plug-in says"}},
        .params = p.n_params ? q->params.rows : NULL,
        .params_size = p.n_params * sizeof(double),
        .map_weight = p.map_weight ? added_map_weight : NULL,
        .map_activation = p.map_activation ? added_map_activation : NULL};
    return sb_ctx_add_row(ctx, SB_ROW_QUANTIZER, q);
}
