/* Computing again instead of keeping: activations by blocks.
 *
 * A backward pass reads most of what the forward pass made, so all of it lives
 * until then.  Here only what crosses from one block to the next is kept; when
 * the backward pass comes to a block, copies of its nodes make the rest again.
 * Copies have an attribute of their own, so that no pass takes them for what
 * they are copies of, and the position of their first reader, so that they run
 * just before it. */
#include "passes/learn/recompute.h"

#include "ops/op_registry.h"

typedef struct recompute_walk {
    sb_graph *g;
    size_t n_values;   /* before anything is added */
    sb_node_id *order; /* forward nodes */
    size_t n;
    size_t *place;      /* by node: in `order`; SIZE_MAX: not forward */
    double *crossing;   /* by place: elements that live behind it */
    double *made;       /* by place: elements made until then */
    uint32_t *block;    /* by place */
    bool *kept;         /* by value: read by a later block */
    sb_value_id *again; /* by value: its copy; SB_NONE: none */
} recompute_walk;

/* Elements of a value, what is not known taken as 1. */
static double recompute_size(const sb_graph *g, sb_value_id v)
{
    const sb_shape *s = &sb_graph_value(g, v)->type.shape;
    double n = 1;

    for (int i = 0; i < s->rank; i++)
        n *= sb_dim_known(s->dim[i]) ? (double)s->dim[i] : 1;
    return n;
}

/* ---- cuts --------------------------------------------------------------- */

/* The place of the last forward node that reads the value. */
static size_t recompute_last(const recompute_walk *w, sb_value_id v,
                             size_t place)
{
    const sb_value *value = sb_graph_value(w->g, v);
    size_t last = place;

    for (uint32_t u = 0; u < value->n_uses; u++) {
        size_t at = w->place[value->uses[u].node];
        if (at != SIZE_MAX && at > last)
            last = at;
    }
    return last;
}

static void recompute_measure(recompute_walk *w)
{
    double total = 0;

    for (size_t i = 0; i < w->n; i++) {
        const sb_node *node = sb_graph_node(w->g, w->order[i]);
        for (uint32_t o = 0; o < node->n_out; o++) {
            sb_value_id v = node->outputs[o];
            if (v == SB_NONE)
                continue;
            double size = recompute_size(w->g, v);
            size_t last = recompute_last(w, v, i);
            for (size_t k = i; k < last; k++)
                w->crossing[k] += size;
            total += size;
        }
        w->made[i] = total;
    }
}

/* Blocks of about equal size, cut where least crosses: within a half of a block
 * around each even cut. */
static void recompute_cut(recompute_walk *w, size_t n_blocks)
{
    double each = w->n ? w->made[w->n - 1] / (double)n_blocks : 0;
    size_t begin = 0;

    for (size_t b = 1; b < n_blocks; b++) {
        double want = each * (double)b;
        size_t best = SIZE_MAX;
        for (size_t i = begin; i + 1 < w->n; i++)
            if (w->made[i] > want - each / 2 && w->made[i] < want + each / 2 &&
                (best == SIZE_MAX || w->crossing[i] < w->crossing[best]))
                best = i;
        if (best == SIZE_MAX)
            continue;
        for (size_t i = best + 1; i < w->n; i++)
            w->block[i]++;
        begin = best + 1;
    }
}

/* What later blocks read, or cannot be made again. */
static void recompute_keep(recompute_walk *w)
{
    for (size_t i = 0; i < w->n; i++) {
        const sb_node *node = sb_graph_node(w->g, w->order[i]);
        bool whole = sb_node_flag(node, SB_OP_IMPURE) || node->n_implicit ||
                     !sb_op_of(node);
        for (uint32_t o = 0; o < node->n_out; o++) {
            sb_value_id v = node->outputs[o];
            if (v != SB_NONE)
                w->kept[v] =
                    whole || w->block[recompute_last(w, v, i)] != w->block[i];
        }
    }
}

/* ---- copies ------------------------------------------------------------- */

/* Is it made in this block, to be made again? */
static bool recompute_inside(const recompute_walk *w, sb_value_id v,
                             uint32_t block)
{
    if (v == SB_NONE || v >= w->n_values || w->kept[v])
        return false;
    sb_node_id maker = sb_graph_value(w->g, v)->producer;
    return maker != SB_NONE && w->place[maker] != SIZE_MAX &&
           w->block[w->place[maker]] == block;
}

static bool recompute_is_late(const recompute_walk *w, const sb_use *use)
{
    return w->place[use->node] == SIZE_MAX &&
           !(use->input == 0 &&
             sb_node_flag(sb_graph_node(w->g, use->node), SB_OP_SHAPE_ONLY));
}

/* Marks what must be made again in `again`: what the backward pass reads, and
 * what that is made from.  Returns the position of the first reader. */
static uint64_t recompute_mark(recompute_walk *w, uint32_t block)
{
    uint64_t first = UINT64_MAX;

    for (size_t i = w->n; i-- > 0;) {
        const sb_node *node = sb_graph_node(w->g, w->order[i]);
        bool needed = false;
        if (w->block[i] != block)
            continue;
        for (uint32_t o = 0; o < node->n_out; o++) {
            sb_value_id v = node->outputs[o];
            if (!recompute_inside(w, v, block))
                continue;
            const sb_value *value = sb_graph_value(w->g, v);
            needed = needed || w->again[v] != SB_NONE;
            for (uint32_t u = 0; u < value->n_uses; u++)
                if (recompute_is_late(w, &value->uses[u])) {
                    uint64_t at =
                        sb_graph_node(w->g, value->uses[u].node)->position;
                    first = at < first ? at : first;
                    needed = true;
                }
        }
        for (uint32_t k = 0; needed && k < node->n_in; k++)
            if (recompute_inside(w, node->inputs[k], block))
                w->again[node->inputs[k]] = node->inputs[k];
        for (uint32_t o = 0; needed && o < node->n_out; o++)
            if (recompute_inside(w, node->outputs[o], block))
                w->again[node->outputs[o]] = node->outputs[o];
    }
    return first;
}

/* A copy of the node that reads copies; statistics are not advanced twice. */
static sb_status recompute_copy(recompute_walk *w, sb_node_id id,
                                uint64_t position)
{
    sb_graph *g = w->g;
    const sb_node old = *sb_graph_node(g, id);
    const sb_op_def *op = sb_op_of(&old);
    sb_value_id *in = sb_arena_alloc(g->arena, old.n_in + 1, sizeof *in);
    sb_value_id *out = sb_arena_alloc(g->arena, old.n_out + 1, sizeof *out);
    sb_node_id fresh;

    if (!in || !out)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < old.n_in; i++) {
        sb_value_id v = old.inputs[i];
        in[i] = v != SB_NONE && v < w->n_values && w->again[v] != SB_NONE
                    ? w->again[v]
                    : v;
    }
    for (uint32_t i = 0; i < old.n_out; i++) {
        sb_value_id v = old.outputs[i];
        out[i] = SB_NONE;
        if (v == SB_NONE || (i < 32 && op->statistics >> i & 1))
            continue;
        SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, v)->name, &out[i]));
        sb_graph_value(g, out[i])->type = sb_graph_value(g, v)->type;
        if (!w->kept[v])
            w->again[v] = out[i];
    }
    SB_TRY(sb_graph_add_node(g,
                             &(sb_node_spec){.op = old.op,
                                             .domain = old.domain,
                                             .module = old.module,
                                             .inputs = in,
                                             .n_in = old.n_in,
                                             .outputs = out,
                                             .n_out = old.n_out,
                                             .attrs = old.attrs,
                                             .n_attrs = old.n_attrs,
                                             .position = position},
                             &fresh));
    return sb_graph_set_attr_int(g, fresh, "again", 1);
}

/* Readers behind the forward pass take the copy. */
static sb_status recompute_redirect(recompute_walk *w, sb_value_id v)
{
    for (;;) {
        const sb_value *value = sb_graph_value(w->g, v);
        uint32_t u = 0;
        while (u < value->n_uses && !recompute_is_late(w, &value->uses[u]))
            u++;
        if (u == value->n_uses)
            return SB_OK;
        const sb_use use = value->uses[u];
        SB_TRY(sb_graph_set_input(w->g, use.node, use.input, w->again[v]));
    }
}

static sb_status recompute_block(recompute_walk *w, uint32_t block)
{
    uint64_t position = recompute_mark(w, block);

    for (size_t i = 0; i < w->n; i++) {
        const sb_node node = *sb_graph_node(w->g, w->order[i]);
        bool marked = false;
        if (w->block[i] != block)
            continue;
        for (uint32_t o = 0; o < node.n_out; o++)
            marked = marked || (node.outputs[o] != SB_NONE &&
                                w->again[node.outputs[o]] != SB_NONE);
        if (!marked)
            continue;
        SB_TRY(recompute_copy(w, w->order[i], position));
    }
    for (size_t i = 0; i < w->n; i++) {
        const sb_node node = *sb_graph_node(w->g, w->order[i]);
        for (uint32_t o = 0; w->block[i] == block && o < node.n_out; o++)
            if (node.outputs[o] != SB_NONE &&
                w->again[node.outputs[o]] != SB_NONE)
                SB_TRY(recompute_redirect(w, node.outputs[o]));
    }
    return SB_OK;
}

/* ---- the whole ---------------------------------------------------------- */

static sb_status recompute_open(recompute_walk *w, size_t n_forward)
{
    const sb_graph *g = w->g;
    sb_ctx *ctx = g->ctx;
    size_t n = 0;

    w->n_values = g->n_values;
    SB_TRY(sb_graph_order(g, &w->order, &n));
    /* Room for the copies' numbers, which are behind the forward pass too. */
    w->place = sb_alloc(ctx, g->n_nodes + n_forward + 1, sizeof *w->place);
    w->crossing = sb_alloc(ctx, n + 1, sizeof *w->crossing);
    w->made = sb_alloc(ctx, n + 1, sizeof *w->made);
    w->block = sb_alloc(ctx, n + 1, sizeof *w->block);
    w->kept = sb_alloc(ctx, w->n_values + 1, sizeof *w->kept);
    w->again = sb_alloc(ctx, w->n_values + 1, sizeof *w->again);
    if (!w->place || !w->crossing || !w->made || !w->block || !w->kept ||
        !w->again)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_nodes + n_forward; i++)
        w->place[i] = SIZE_MAX;
    for (size_t i = 0; i < n; i++)
        if (w->order[i] < n_forward) {
            w->place[w->order[i]] = w->n;
            w->order[w->n++] = w->order[i];
        }
    for (size_t v = 0; v < w->n_values; v++)
        w->again[v] = SB_NONE;
    return SB_OK;
}

static void recompute_close(recompute_walk *w)
{
    sb_ctx *ctx = w->g->ctx;

    sb_free(ctx, w->order);
    sb_free(ctx, w->place);
    sb_free(ctx, w->crossing);
    sb_free(ctx, w->made);
    sb_free(ctx, w->block);
    sb_free(ctx, w->kept);
    sb_free(ctx, w->again);
}

sb_status sb_graph_recompute(sb_graph *g, size_t n_forward, size_t n_blocks)
{
    recompute_walk w = {.g = g};
    sb_status status = recompute_open(&w, n_forward);

    if (status == SB_OK) {
        recompute_measure(&w);
        recompute_cut(&w, n_blocks < w.n ? n_blocks : w.n);
        recompute_keep(&w);
        uint32_t last = w.n ? w.block[w.n - 1] : 0;
        for (uint32_t b = 0; b < last && status == SB_OK; b++)
            status = recompute_block(&w, b);
    }
    recompute_close(&w);
    return status;
}
