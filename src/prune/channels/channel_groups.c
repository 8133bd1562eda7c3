/* Groups: channels out of the same weights; the axis of an atom; and biases of
 * one's own. */
#include "prune/channels/channels.h"

const sb_prune_axis *sb_channels_axis(const sb_channels *ch, uint32_t at)
{
    size_t lo = 0, hi = ch->n_axes;

    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (ch->axes[mid].first <= at)
            lo = mid;
        else
            hi = mid;
    }
    return &ch->axes[lo];
}

static uint32_t group_root(uint32_t *up, uint32_t c)
{
    while (up[c] != c)
        c = up[c] = up[up[c]];
    return c;
}

/* The first node, in the order of the graph, that makes channels of a group. */
static void groups_name(sb_channels *ch)
{
    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        for (uint32_t k = 0; a->maker != SB_NONE && k < a->n; k++) {
            uint32_t c = ch->channel_of[a->first + k];
            if (c == SB_NONE)
                continue;
            sb_channel_group *g = &ch->groups[ch->channels[c].group];
            if (g->maker == SB_NONE || a->maker < g->maker)
                g->maker = a->maker;
        }
    }
}

/* Channels of one weight belong to one group. */
sb_status sb_channels_group(sb_channels *ch)
{
    uint32_t n = ch->n_channels;
    uint32_t *up = sb_arena_alloc(&ch->arena, n, sizeof *up);

    ch->ordered = sb_arena_alloc(&ch->arena, n, sizeof *ch->ordered);
    ch->groups = sb_arena_alloc(&ch->arena, n, sizeof *ch->groups);
    if (!up || !ch->ordered || !ch->groups)
        return SB_NO_MEMORY;
    for (uint32_t c = 0; c < n; c++)
        up[c] = c;
    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        uint32_t first = SB_NONE;
        for (uint32_t k = 0; a->maker != SB_NONE && k < a->n; k++) {
            uint32_t c = ch->channel_of[a->first + k];
            if (c == SB_NONE)
                continue;
            c = group_root(up, c);
            first = first == SB_NONE ? c : group_root(up, first);
            up[c > first ? c : first] = c > first ? first : c;
        }
    }
    for (uint32_t c = 0; c < n; c++) {
        uint32_t r = group_root(up, c);
        ch->channels[c].group = r == c ? ch->n_groups++ : ch->channels[r].group;
        ch->groups[ch->channels[c].group].n++;
    }
    for (uint32_t g = 0, at = 0; g < ch->n_groups; g++) {
        ch->groups[g].first = at;
        at += ch->groups[g].n;
        ch->groups[g].n = 0;
        ch->groups[g].maker = SB_NONE;
    }
    for (uint32_t c = 0; c < n; c++) {
        sb_channel_group *g = &ch->groups[ch->channels[c].group];
        ch->channels[c].place = g->n;
        ch->ordered[g->first + g->n++] = c;
    }
    groups_name(ch);
    return SB_OK;
}

sb_status sb_prune_unshare(sb_graph *graph)
{
    size_t n = graph->n_values;

    for (sb_value_id v = 0; v < n; v++) {
        if (!sb_is_const(graph, v) ||
            sb_graph_value(graph, v)->constant.rank != 1)
            continue;
        while (sb_graph_value(graph, v)->n_uses > 1) {
            const sb_value *value = sb_graph_value(graph, v);
            sb_use use = value->uses[value->n_uses - 1];
            sb_tensor t = value->constant;
            sb_value_id own = SB_NONE;
            if (use.input >= sb_graph_node(graph, use.node)->n_in)
                break; /* a body reads it */
            SB_TRY(sb_graph_add_value_like(graph, value->name, &own));
            SB_TRY(sb_graph_set_constant(graph, own, &t));
            SB_TRY(sb_graph_set_input(graph, use.node, use.input, own));
        }
    }
    return SB_OK;
}
