/* A network being pruned, step by step. */
#include "prune/pruner.h"

#include <string.h>

#include "passes/pass.h"
#include "prune/refit.h"

/* The size of a constant that could be a weight. */
static int64_t weight_size(const sb_graph *g, sb_value_id v)
{
    const sb_tensor *t = sb_const_of(g, v);

    return t && t->rank >= 2 ? sb_tensor_count(t) : 0;
}

/* The largest one of a node and its bodies. */
static int64_t largest_weight(const sb_graph *g, const sb_node *n)
{
    const sb_graph *body;
    int64_t most = 0, size;

    for (uint32_t i = 0; i < n->n_in; i++)
        if ((size = weight_size(g, n->inputs[i])) > most)
            most = size;
    for (size_t k = 0; (body = sb_node_body(n, k)) != NULL; k++)
        for (sb_value_id v = 0; v < body->n_values; v++)
            if ((size = weight_size(body, v)) > most)
                most = size;
    return most;
}

/* No weight makes channels: names the node with the largest constants. */
static sb_status nothing_to_read(const sb_pruner *p)
{
    const sb_graph *g = p->graph;
    const sb_node *most = NULL;
    int64_t count = 0;

    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *n = sb_graph_node(g, id);
        int64_t own = n->dead ? 0 : largest_weight(g, n);
        if (own > count) {
            most = n;
            count = own;
        }
    }
    if (most && sb_node_body(most, 0))
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "no channel can be removed: the layers are in bodies of "
                       "nodes, as of '%s' (%s), which are left alone",
                       sb_node_label(g, most), most->op);
    return sb_fail(p->ctx, SB_UNSUPPORTED,
                   "no channel can be removed: no layer has constant weights "
                   "in float, or integers behind a DequantizeLinear%s%s%s%s%s",
                   most ? "; '" : "", most ? sb_node_label(g, most) : "",
                   most ? "' (" : "", most ? most->op : "",
                   most ? ") has constants, but no rule for pruning" : "");
}

/* Why nothing can go, said of the first layer. */
static sb_status nothing_to_prune(const sb_pruner *p)
{
    const sb_channels *ch = &p->ch;
    const sb_graph *g = p->graph;

    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        if (a->maker == SB_NONE)
            continue;
        const sb_node *layer = sb_graph_node(g, a->maker);
        uint32_t c = ch->channel_of[a->first];
        const sb_blame *b =
            c == SB_NONE ? ch->blame[a->first] : ch->channels[c].stats;
        const char *by = b && b->node != SB_NONE
                             ? sb_node_label(g, sb_graph_node(g, b->node))
                             : "";
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "no channel can be removed; of '%s' (%s): %s%s%s%s",
                       sb_node_label(g, layer), layer->op,
                       b ? b->why : "it is excluded", *by ? " (node '" : "", by,
                       *by ? "')" : "");
    }
    return nothing_to_read(p);
}

/* Is there a channel that patterns do not keep? */
static sb_status any_may_go(const sb_pruner *p, bool *out)
{
    bool *allowed = sb_alloc(p->ctx, p->ch.n_channels, sizeof *allowed);
    sb_status status =
        allowed ? sb_select_allowed(&p->ch, p->cfg, allowed) : SB_NO_MEMORY;

    for (uint32_t c = 0; status == SB_OK && c < p->ch.n_channels; c++)
        *out |= allowed[c];
    sb_free(p->ctx, allowed);
    return status;
}

static sb_status find_channels(sb_pruner *p)
{
    SB_TRY(sb_channels_find(p->graph, &p->ch));
    if (p->cfg->type == SB_PRUNE_UNSTRUCTURED) {
        SB_TRY(sb_mask_weights(&p->ch, &p->masked, &p->n_masked));
        return p->n_masked ? SB_OK
                           : sb_fail(p->ctx, SB_UNSUPPORTED,
                                     "the network has no float weights that "
                                     "could be pruned");
    }
    bool any = false;
    SB_TRY(any_may_go(p, &any));
    return any ? SB_OK : nothing_to_prune(p);
}

/* A simplified copy whose IDs a clone keeps. */
static sb_status take_graph(sb_pruner *p, const sb_graph *graph)
{
    sb_graph *g = NULL;

    SB_TRY(sb_graph_clone(graph, &g));
    sb_status status = sb_passes_run(g, "simplify", NULL, NULL, NULL);
    if (status == SB_OK && p->cfg->type == SB_PRUNE_STRUCTURED)
        status = sb_prune_unshare(g);
    if (status == SB_OK)
        status = sb_graph_clone_sorted(g, &p->graph);
    sb_graph_free(g);
    return status;
}

static sb_status check_origin(const sb_pruner *p)
{
    const sb_criterion_def *row = p->cfg->criterion;

    return !row->needs_origin || p->origin
               ? SB_OK
               : sb_fail(p->ctx, SB_BAD_ARG,
                         "criterion '%s' compares with the network before "
                         "training: give it (--before)",
                         row->name);
}

sb_status sb_pruner_init(const sb_graph *graph, const sb_graph *origin,
                         sb_prune_config *cfg, bool masks_only, uint64_t seed,
                         sb_pruner *out)
{
    *out = (sb_pruner){.ctx = graph->ctx, .cfg = cfg, .masks_only = masks_only};
    out->args = (sb_prune_args){.cfg = cfg, .seed = seed, .share = 1};
    sb_status status = origin ? sb_graph_clone(origin, &out->origin) : SB_OK;
    if (status == SB_OK)
        status = check_origin(out);
    if (status == SB_OK)
        status = take_graph(out, graph);
    if (status == SB_OK)
        status = sb_prune_config_check(cfg, out->graph);
    if (status == SB_OK)
        status = find_channels(out);
    out->args.origin = out->origin;
    if (status != SB_OK)
        sb_pruner_free(out);
    return status;
}

void sb_pruner_renew(sb_pruner *p)
{
    sb_thinner_free(p->thinner);
    sb_seen_free(p->seen);
    sb_selection_free(p->ctx, &p->chosen);
    p->thinner = NULL;
    p->args.seen = p->seen = NULL;
    p->scored = false;
}

/* What belongs to the present graph. */
static void drop_graph(sb_pruner *p)
{
    sb_pruner_renew(p);
    sb_free(p->ctx, p->masked);
    sb_channels_free(&p->ch);
    sb_graph_free(p->graph);
    p->masked = NULL;
    p->graph = NULL;
}

void sb_pruner_free(sb_pruner *p)
{
    if (!p->ctx)
        return;
    drop_graph(p);
    sb_graph_free(p->origin);
    sb_free(p->ctx, p->first);
    sb_prune_config_free(p->cfg);
    *p = (sb_pruner){0};
}

sb_status sb_pruner_forward(sb_pruner *p, const sb_tensor *const *inputs,
                            const int64_t *labels, size_t n)
{
    p->scored = false;
    if (p->cfg->criterion->thin) {
        if (!p->thinner)
            SB_TRY(sb_thinner_create(&p->ch, &p->args, p->masked, p->n_masked,
                                     &p->thinner));
        return sb_thinner_run(p->thinner, inputs);
    }
    if (!p->seen)
        SB_TRY(sb_seen_create(&p->ch, p->cfg, p->args.seed, &p->seen));
    p->args.seen = p->seen;
    return sb_seen_run(p->seen, inputs, labels, n);
}

sb_status sb_pruner_score(sb_pruner *p)
{
    if (p->scored)
        return SB_OK;
    sb_selection_free(p->ctx, &p->chosen);
    SB_TRY(sb_selection_make(&p->ch, &p->args, &p->chosen));
    p->scored = true;
    return SB_OK;
}

/* The channels that were chosen, removed. */
static sb_status cut_chosen(sb_pruner *p, bool refit, sb_graph **out)
{
    sb_graph *g = NULL;

    if (p->masks_only)
        return sb_mask_channels(&p->ch, p->chosen.gone, out);
    SB_TRY(sb_graph_clone(p->graph, &g));
    sb_status status = SB_OK;
    if (refit && p->seen && p->cfg->file.refit)
        status = sb_refit(&p->ch, p->seen, p->chosen.gone, g);
    if (status == SB_OK)
        status = sb_channels_cut(&p->ch, p->chosen.gone, g);
    if (status == SB_OK)
        *out = g;
    else
        sb_graph_free(g);
    return status;
}

sb_status sb_pruner_cut(sb_pruner *p, double ratio, bool refit, sb_graph **out)
{
    if (p->cfg->criterion->needs_data && !p->seen && !p->thinner)
        return sb_fail(p->ctx, SB_BAD_ARG,
                       "criterion '%s' needs samples: give data",
                       p->cfg->criterion->name);
    if (p->thinner) {
        SB_TRY(sb_thinner_apply(p->thinner, &p->thinning));
        return sb_graph_clone(sb_thinner_graph(p->thinner), out);
    }
    if (p->cfg->type == SB_PRUNE_UNSTRUCTURED)
        return sb_mask_apply(&p->ch, &p->args, p->masked, p->n_masked, out);
    SB_TRY(sb_pruner_score(p));
    SB_TRY(sb_select_channels(&p->ch, &p->args, ratio, &p->chosen));
    return cut_chosen(p, refit, out);
}

sb_status sb_pruner_cut_ratios(sb_pruner *p, const double *ratios, bool refit,
                               sb_graph **out)
{
    SB_TRY(sb_pruner_score(p));
    SB_TRY(sb_select_ratios(&p->ch, &p->args, ratios, &p->chosen));
    return cut_chosen(p, refit, out);
}

double sb_pruner_step_share(const sb_pruner *p)
{
    return sb_prune_config_share(p->cfg, (double)(p->step + 1) /
                                             (double)p->cfg->file.iterations);
}

/* How many channels groups had before the first step. */
static sb_status keep_first(sb_pruner *p)
{
    if (p->first || p->cfg->type != SB_PRUNE_STRUCTURED)
        return SB_OK;
    p->n_first = p->ch.n_groups;
    p->first = sb_alloc(p->ctx, p->n_first, sizeof *p->first);
    if (!p->first)
        return SB_NO_MEMORY;
    sb_select_sizes(&p->ch, p->cfg, p->first);
    return SB_OK;
}

sb_status sb_pruner_advance(sb_pruner *p, const sb_graph *result)
{
    SB_TRY(keep_first(p));
    drop_graph(p);
    p->args.before = sb_pruner_step_share(p);
    p->step++;
    SB_TRY(sb_graph_clone_sorted(result, &p->graph));
    SB_TRY(find_channels(p));
    /* The same groups, unless the smaller sizes make another choice of digits
     * the better one. */
    p->args.first = p->n_first == p->ch.n_groups ? p->first : NULL;
    return SB_OK;
}
