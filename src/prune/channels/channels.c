/* Putting the ties of all nodes together: union-find over atoms.  Axes that are
 * numbers with several digits come last (digits.c). */
#include <string.h>

#include "ops/op_registry.h"
#include "prune/channels/solver.h"

enum { AXIS_MOST = 1 << 20, ATOMS_MOST = 1 << 28 };

/* ---- union-find ------------------------------------------------------------ */

static uint32_t atom_root(sb_solver *s, uint32_t a)
{
    while (s->atoms[a].parent != a) {
        s->atoms[a].parent = s->atoms[s->atoms[a].parent].parent;
        a = s->atoms[a].parent;
    }
    return a;
}

sb_atom *sb_atom_of(sb_solver *s, uint32_t a)
{
    return &s->atoms[atom_root(s, a)];
}

/* The lower number stays the root, so that nothing depends on the order. */
void sb_atom_join(sb_solver *s, uint32_t a, uint32_t b)
{
    a = atom_root(s, a);
    b = atom_root(s, b);
    if (a == b)
        return;
    uint32_t keep = a < b ? a : b, drop = a < b ? b : a;
    sb_atom *k = &s->atoms[keep], *d = &s->atoms[drop];
    d->parent = keep;
    k->made |= d->made;
    k->blame = k->blame ? k->blame : d->blame;
    k->stats = k->stats ? k->stats : d->stats;
    k->pairs = k->pairs ? k->pairs : d->pairs;
}

void sb_atoms_fix(sb_solver *s, uint32_t first, uint32_t n, const sb_blame *b)
{
    for (uint32_t i = 0; i < n; i++) {
        sb_atom *a = sb_atom_of(s, first + i);
        a->blame = a->blame ? a->blame : b;
    }
}

void sb_atoms_pair(sb_solver *s, uint32_t first, uint32_t n, const sb_blame *b)
{
    for (uint32_t i = 0; i < n; i++) {
        sb_atom *a = sb_atom_of(s, first + i);
        a->pairs = a->pairs ? a->pairs : b;
    }
}

const sb_blame *sb_blame_make(sb_solver *s, sb_node_id node, const char *why)
{
    sb_blame *b = sb_arena_alloc(&s->ch->arena, 1, sizeof *b);

    if (b)
        *b = (sb_blame){node, why};
    return b;
}

/* ---- axes ------------------------------------------------------------------ */

static sb_status axis_add(sb_solver *s, sb_value_id value, int axis, int64_t n)
{
    sb_channels *ch = s->ch;
    sb_ctx *ctx = ch->graph->ctx;
    size_t first = s->n_atoms;

    if (first + (size_t)n > ATOMS_MOST)
        return sb_fail(ctx, SB_UNSUPPORTED,
                       "the values of the network have more than %d indices",
                       ATOMS_MOST);
    SB_TRY(sb_grow(ctx, &ch->axes, &ch->cap_axes, ch->n_axes + 1,
                   sizeof *ch->axes));
    SB_TRY(sb_grow(ctx, &s->atoms, &s->cap_atoms, first + (size_t)n,
                   sizeof *s->atoms));
    ch->axes[ch->n_axes++] = (sb_prune_axis){.value = value,
                                             .axis = axis,
                                             .first = (uint32_t)first,
                                             .n = (uint32_t)n,
                                             .maker = SB_NONE,
                                             .reader = SB_NONE};
    for (int64_t i = 0; i < n; i++)
        s->atoms[first + (size_t)i] =
            (sb_atom){.parent = (uint32_t)(first + (size_t)i)};
    s->n_atoms += (size_t)n;
    return SB_OK;
}

static sb_status axes_of_values(sb_solver *s)
{
    sb_channels *ch = s->ch;
    const sb_graph *g = ch->graph;

    ch->atoms.first = sb_arena_alloc(&ch->arena, g->n_values * SB_MAX_RANK,
                                     sizeof *ch->atoms.first);
    if (!ch->atoms.first)
        return SB_NO_MEMORY;
    memset(ch->atoms.first, 0xff,
           g->n_values * SB_MAX_RANK * sizeof *ch->atoms.first);
    for (sb_value_id v = 0; v < g->n_values; v++) {
        const sb_shape *shape = &sb_graph_value(g, v)->type.shape;
        for (int a = 0; a < shape->rank; a++) {
            sb_dim d = shape->dim[a];
            if (!sb_dim_known(d) || d < 1 || d > AXIS_MOST)
                continue;
            ch->atoms.first[v * SB_MAX_RANK + (size_t)a] = (uint32_t)s->n_atoms;
            SB_TRY(axis_add(s, v, a, d));
        }
    }
    return SB_OK;
}

/* ---- the ties of a node ---------------------------------------------------- */

/* The atoms of an axis; SB_NONE: it has none.  `parts` is where the node's own
 * begin. */
static uint32_t ref_first(const sb_solver *s, sb_axis_ref ref,
                          const uint32_t *parts, uint32_t *n)
{
    if (ref.value == SB_NONE) {
        *n = parts[ref.axis + 1] - parts[ref.axis];
        return parts[ref.axis];
    }
    uint32_t first =
        s->ch->atoms.first[(size_t)ref.value * SB_MAX_RANK + (size_t)ref.axis];
    *n = first == SB_NONE ? 0 : sb_channels_axis(s->ch, first)->n;
    return first;
}

static sb_status tie_digits(sb_solver *s, const sb_tie *tie, sb_node_id node,
                            const uint32_t *parts)
{
    sb_digits d = {.node = node, .n_parts = tie->n_parts};

    d.x = ref_first(s, tie->x, parts, &d.n);
    for (int i = 0; i < tie->n_parts; i++)
        d.part[i] = ref_first(s, tie->part[i], parts, &d.size[i]);
    SB_TRY(sb_grow(s->ch->graph->ctx, &s->open, &s->cap_open, s->n_open + 1,
                   sizeof d));
    s->open[s->n_open++] = d;
    return SB_OK;
}

/* Indices that meet: those of one side without atoms fix the other's. */
static sb_status tie_join(sb_solver *s, const sb_tie *tie, sb_node_id node,
                          const uint32_t *parts)
{
    uint32_t nx, ny, x = ref_first(s, tie->x, parts, &nx);
    uint32_t y = ref_first(s, tie->y, parts, &ny);

    if (x == SB_NONE || y == SB_NONE) {
        const sb_blame *b =
            sb_blame_make(s, node, "axes of such sizes are fixed");
        if (!b)
            return SB_NO_MEMORY;
        sb_atoms_fix(s, x == SB_NONE ? y : x, x == SB_NONE ? ny : nx, b);
        return SB_OK;
    }
    for (int64_t i = 0; i < tie->n; i++) {
        int64_t from = tie->kind == SB_TIE_LIST ? tie->of[i] : tie->x0 + i;
        sb_atom_join(s, x + (uint32_t)from, y + (uint32_t)(tie->y0 + i));
    }
    return SB_OK;
}

static sb_status tie_mark(sb_solver *s, const sb_tie *tie, sb_node_id node,
                          const uint32_t *parts)
{
    uint32_t n, x = ref_first(s, tie->x, parts, &n);
    const sb_blame *b = sb_blame_make(s, node, tie->why);

    if (!b)
        return SB_NO_MEMORY;
    if (x == SB_NONE)
        return SB_OK;
    sb_prune_axis *axis =
        &s->ch->axes[sb_channels_axis(s->ch, x) - s->ch->axes];
    switch (tie->kind) {
    case SB_TIE_FIXED:
        sb_atoms_fix(s, x, n, b);
        break;
    case SB_TIE_SUM:
        axis->read = axis->reader == SB_NONE
                         ? tie->y
                         : (sb_axis_ref){SB_NONE, 0}; /* several */
        axis->reader = node;
        break;
    case SB_TIE_SCALE:
        axis->scale = true;
        break;
    case SB_TIE_MAKE:
        axis->maker = axis->maker == SB_NONE ? node : axis->maker;
        for (uint32_t i = 0; i < n; i++)
            sb_atom_of(s, x + i)->made = true;
        break;
    case SB_TIE_PAIRS:
        sb_atoms_pair(s, x, n, b);
        break;
    default:
        for (uint32_t i = 0; i < n; i++) {
            sb_atom *a = sb_atom_of(s, x + i);
            a->stats = a->stats ? a->stats : b;
        }
    }
    return SB_OK;
}

static sb_status node_apply(sb_solver *s, const sb_ties *t, sb_node_id id)
{
    uint32_t parts[SB_COUNT(t->part_size) + 1];
    sb_status status = SB_OK;

    for (int i = 0; i < t->n_parts; i++) {
        parts[i] = (uint32_t)s->n_atoms;
        SB_TRY(axis_add(s, SB_NONE, i, t->part_size[i]));
    }
    parts[t->n_parts] = (uint32_t)s->n_atoms;
    for (size_t i = 0; i < t->n && status == SB_OK; i++) {
        const sb_tie *tie = &t->ties[i];
        status = tie->kind <= SB_TIE_LIST     ? tie_join(s, tie, id, parts)
                 : tie->kind == SB_TIE_DIGITS ? tie_digits(s, tie, id, parts)
                                              : tie_mark(s, tie, id, parts);
    }
    return status;
}

static void value_fix(sb_solver *s, sb_value_id v, const sb_blame *b)
{
    const sb_shape *shape = &sb_graph_value(s->ch->graph, v)->type.shape;

    for (int a = 0; a < shape->rank; a++) {
        uint32_t n, first = ref_first(s, (sb_axis_ref){v, a}, NULL, &n);
        if (first != SB_NONE)
            sb_atoms_fix(s, first, n, b);
    }
}

static sb_status node_tie(sb_solver *s, sb_node_id id)
{
    const sb_graph *g = s->ch->graph;
    const sb_node *n = sb_graph_node(g, id);
    sb_ties t = {.graph = g, .node = n};
    sb_status status = sb_node_ties(&t);

    if (status == SB_OK)
        status = node_apply(s, &t, id);
    sb_free(g->ctx, t.ties);
    const sb_blame *b =
        n->n_implicit ? sb_blame_make(s, id, "its body reads it") : NULL;
    for (uint32_t i = 0; b && i < n->n_implicit; i++)
        value_fix(s, n->inputs[n->n_in + i], b);
    return status == SB_OK && n->n_implicit && !b ? SB_NO_MEMORY : status;
}

/* ---- channels ----------------------------------------------------------- */

/* Numbers the channels in the order of their first atom. */
static sb_status channels_number(sb_solver *s)
{
    sb_channels *ch = s->ch;
    size_t n = ch->atoms.n;
    uint32_t n_members = 0;

    ch->channel_of = sb_arena_alloc(&ch->arena, n, sizeof *ch->channel_of);
    ch->blame = sb_arena_alloc(&ch->arena, n, sizeof *ch->blame);
    if (!ch->channel_of || !ch->blame)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = atom_root(s, i);
        const sb_atom *a = &s->atoms[r];
        ch->blame[i] = a->blame;
        ch->channel_of[i] = a->blame || !a->made ? SB_NONE
                            : r == i             ? ch->n_channels++
                                                 : ch->channel_of[r];
        n_members += ch->channel_of[i] != SB_NONE;
    }
    ch->channels =
        sb_arena_alloc(&ch->arena, ch->n_channels, sizeof *ch->channels);
    ch->members = sb_arena_alloc(&ch->arena, n_members, sizeof *ch->members);
    if (!ch->channels || !ch->members)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++)
        if (ch->channel_of[i] != SB_NONE) {
            ch->channels[ch->channel_of[i]].n++;
            const sb_atom *a = sb_atom_of(s, i);
            ch->channels[ch->channel_of[i]].stats =
                a->stats ? a->stats : a->pairs;
        }
    for (uint32_t c = 0, at = 0; c < ch->n_channels; c++) {
        ch->channels[c].first = at;
        at += ch->channels[c].n;
        ch->channels[c].n = 0;
    }
    for (uint32_t i = 0; i < n; i++)
        if (ch->channel_of[i] != SB_NONE) {
            sb_channel *c = &ch->channels[ch->channel_of[i]];
            ch->members[c->first + c->n++] = i;
        }
    return SB_OK;
}

/* ---- all of it ------------------------------------------------------------- */

static sb_status channels_solve(sb_solver *s)
{
    sb_channels *ch = s->ch;
    const sb_graph *g = ch->graph;
    sb_node_id *order = NULL;
    size_t n = 0;
    sb_status status = axes_of_values(s);
    const sb_blame *in = sb_blame_make(s, SB_NONE, "an input of the network");
    const sb_blame *out = sb_blame_make(s, SB_NONE, "an output of the network");

    if (status == SB_OK && (!in || !out))
        status = SB_NO_MEMORY;
    ch->atoms.n = s->n_atoms;
    for (sb_value_id v = 0; v < g->n_values && status == SB_OK; v++) {
        const sb_value *value = sb_graph_value(g, v);
        if (value->is_output)
            value_fix(s, v, out);
        else if (value->is_input)
            value_fix(s, v, in);
    }
    if (status == SB_OK)
        status = sb_graph_order(g, &order, &n);
    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = node_tie(s, order[i]);
    sb_free(g->ctx, order);
    if (status == SB_OK)
        status = sb_digits_all(s);
    if (status == SB_OK)
        status = channels_number(s);
    if (status == SB_OK)
        status = sb_channels_group(ch);
    return status;
}

sb_status sb_channels_find(const sb_graph *graph, sb_channels *out)
{
    sb_solver s = {.ch = out};

    *out = (sb_channels){.graph = graph};
    sb_arena_init(&out->arena, graph->ctx);
    sb_status status = channels_solve(&s);
    sb_free(graph->ctx, s.atoms);
    sb_free(graph->ctx, s.open);
    return status;
}

void sb_channels_free(sb_channels *ch)
{
    if (!ch->graph)
        return;
    sb_free(ch->graph->ctx, ch->axes);
    sb_arena_free(&ch->arena);
    *ch = (sb_channels){0};
}
