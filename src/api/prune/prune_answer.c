/* What pruning did, or could do. */
#include <string.h>

#include "api/prune/prune_state.h"

static void report_blame(const sb_prune *p, const sb_blame *b,
                         sb_prune_layer *out)
{
    const sb_graph *g = p->pruner.graph;

    if (!b)
        return;
    out->reason = b->why;
    if (b->node != SB_NONE)
        out->reason_node = sb_node_label(g, sb_graph_node(g, b->node));
}

/* A weight's axis that makes channels. */
static void report_channels(const sb_prune *p, const sb_prune_axis *a,
                            sb_prune_layer *out)
{
    const sb_channels *ch = &p->pruner.ch;

    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t c = ch->channel_of[a->first + i];
        bool may = c != SB_NONE && sb_select_may(ch, p->pruner.cfg, c);
        out->removable += may;
        if (!may && !out->reason)
            report_blame(p,
                         c == SB_NONE ? ch->blame[a->first + i]
                                      : ch->channels[c].stats,
                         out);
        if (c == SB_NONE || !p->result || p->advanced)
            continue;
        out->removed += p->pruner.chosen.gone[c];
        out->held |= p->pruner.chosen.held[ch->channels[c].group];
    }
}

/* What earlier steps took counts as well.  Rows come in the order of the
 * layers, so the search begins (*at) behind the one before. */
static void report_earlier(const sb_prune *p, const sb_prune_axis *a,
                           sb_prune_layer *out, size_t *at)
{
    for (size_t k = 0; k < p->n_rows; k++) {
        size_t i = (*at + k) % p->n_rows;
        if (strcmp(p->rows[i].weight, out->weight) != 0 ||
            p->rows[i].axis != a->axis)
            continue;
        int64_t gone = p->rows[i].size - out->size;
        out->size += gone;
        out->removable += gone;
        out->removed += gone;
        *at = i + 1;
        return;
    }
}

static sb_status report_structured(sb_prune *p, sb_prune_layer **layers,
                                   size_t *n)
{
    const sb_channels *ch = &p->pruner.ch;
    const sb_graph *g = p->pruner.graph;
    size_t at = 0;

    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        if (a->maker == SB_NONE)
            continue;
        sb_prune_layer *l = sb_arena_alloc(&p->answer, 1, sizeof *l);
        if (!l)
            return SB_NO_MEMORY;
        const sb_node *node = sb_graph_node(g, a->maker);
        *l = (sb_prune_layer){.name = sb_node_label(g, node),
                              .op = node->op,
                              .weight = sb_graph_value(g, a->value)->name,
                              .size = a->n};
        report_channels(p, a, l);
        report_earlier(p, a, l, &at);
        layers[(*n)++] = l;
    }
    return SB_OK;
}

static sb_status report_masked(sb_prune *p, sb_prune_layer **layers, size_t *n)
{
    const sb_graph *g = p->pruner.graph;

    for (size_t i = 0; i < p->pruner.n_masked; i++) {
        const sb_masked *m = &p->pruner.masked[i];
        const sb_node *node = sb_graph_node(g, m->node);
        sb_prune_layer *l = sb_arena_alloc(&p->answer, 1, sizeof *l);
        if (!l)
            return SB_NO_MEMORY;
        *l = (sb_prune_layer){.name = sb_node_label(g, node),
                              .op = node->op,
                              .weight = sb_graph_value(g, m->weight)->name,
                              .size = m->count,
                              .removable = m->left ? 0 : m->count - m->over,
                              .removed = p->result ? m->zeroed : 0,
                              .reason = m->over ? "the last inputs fill no M"
                                                : m->left};
        layers[(*n)++] = l;
    }
    return SB_OK;
}

/* The indices of a constant's axis that are gone. */
static sb_status report_cut(sb_prune *p, const sb_prune_axis *a,
                            sb_prune_cut **out)
{
    const sb_channels *ch = &p->pruner.ch;
    int64_t *indices = sb_arena_alloc(&p->answer, a->n, sizeof *indices);
    sb_prune_cut *cut = sb_arena_alloc(&p->answer, 1, sizeof *cut);

    if (!indices || !cut)
        return SB_NO_MEMORY;
    *cut = (sb_prune_cut){.value = sb_graph_value(ch->graph, a->value)->name,
                          .axis = a->axis,
                          .role = a->maker != SB_NONE    ? SB_PRUNE_ROLE_MAKES
                                  : a->reader != SB_NONE ? SB_PRUNE_ROLE_READS
                                                         : SB_PRUNE_ROLE_OTHER,
                          .indices = indices};
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t c = ch->channel_of[a->first + i];
        if (c != SB_NONE && p->pruner.chosen.gone[c])
            indices[cut->n_indices++] = i;
    }
    *out = cut->n_indices ? cut : NULL;
    return SB_OK;
}

static sb_status report_cuts(sb_prune *p)
{
    const sb_channels *ch = &p->pruner.ch;
    sb_prune_cut **cuts =
        sb_arena_alloc(&p->answer, ch->n_axes, sizeof(sb_prune_cut *));
    size_t n = 0;

    if (!cuts)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        if (a->value == SB_NONE || !sb_is_const(ch->graph, a->value))
            continue;
        SB_TRY(report_cut(p, a, &cuts[n]));
        n += cuts[n] != NULL;
    }
    p->report.cuts = (const sb_prune_cut *const *)cuts;
    p->report.n_cuts = n;
    return SB_OK;
}

/* Is anything to be removed at all? */
static bool report_asked(const sb_prune *p)
{
    const sb_prune_config *cfg = p->pruner.cfg;
    bool asked = cfg->file.ratio > 0 || cfg->m_of > 0 || p->target_macs > 0 ||
                 p->target_params > 0 || p->target_latency > 0;

    for (size_t i = 0; i < cfg->n_specific; i++)
        asked |= cfg->specific[i].ratio > 0;
    return asked;
}

sb_status sb_prune_report_get(sb_prune *p, const sb_prune_report **out)
{
    const sb_pruner *q = &p->pruner;
    bool structured = q->cfg->type == SB_PRUNE_STRUCTURED;
    size_t n = 0;

    sb_arena_free(&p->answer);
    sb_arena_init(&p->answer, p->ctx);
    p->report = (sb_prune_report){
        .ratio = p->ratio, .structured = structured, .asked = report_asked(p)};
    sb_prune_layer **layers = sb_arena_alloc(
        &p->answer, q->ch.n_axes + q->n_masked, sizeof(sb_prune_layer *));
    if (!layers)
        return SB_NO_MEMORY;
    SB_TRY(structured ? report_structured(p, layers, &n)
                      : report_masked(p, layers, &n));
    if (structured && p->result && !p->advanced)
        SB_TRY(report_cuts(p));
    for (size_t i = 0; i < n; i++) {
        p->report.size += layers[i]->size;
        p->report.removable += layers[i]->removable;
        p->report.removed += layers[i]->removed;
    }
    p->report.layers = (const sb_prune_layer *const *)layers;
    p->report.n_layers = n;
    *out = &p->report;
    return SB_OK;
}
