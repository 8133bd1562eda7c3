/* Blocks of a network: where it can be cut at a single value.
 *
 * In the order of nodes, a place where only one computed value is still to be
 * read is a cut.  What is between two cuts is a layer of a chain, an activation
 * behind it, or everything between the fork and the join of a branch: a
 * residual block, an attention, a cell of an Inception.  The latter is a block
 * by itself; of a chain two layers are one.  What needs no learning goes with
 * what is before it.  Where there is no cut for long (a U-Net, the neck of a
 * detector), each layer is a block with as many inputs and outputs as it has.
 */
#include "quant/reconstruct/blocks.h"

enum { BLOCK_CHAIN = 2, BLOCK_MOST = 12 }; /* layers */

/* live[i]: computed values of floats that are there behind the i-th node and
 * will be read. */
static void blocks_live(const sb_staged *s, const int32_t *place, int32_t *live)
{
    const sb_graph *g = s->g;

    for (sb_value_id v = 0; v < g->n_values; v++) {
        const sb_value *value = sb_graph_value(g, v);
        sb_node_id from = value->producer;
        int32_t first = from == SB_NONE ? 0 : place[from], last = 0;

        if (value->is_constant || (value->type.dtype != SB_DTYPE_F32 &&
                                   value->type.dtype != SB_DTYPE_NONE))
            continue;
        for (uint32_t u = 0; u < value->n_uses; u++)
            if (last < place[value->uses[u].node])
                last = place[value->uses[u].node];
        if (last > first) {
            live[first]++;
            live[last]--;
        }
    }
    for (size_t i = 1; i < s->n_order; i++)
        live[i] += live[i - 1];
}

/* Where blocks end. */
typedef struct blocks_end {
    int32_t block;
    size_t layers; /* in it so far */
    bool branched;
} blocks_end;

/* The nodes from `first` to `last`, between two cuts. */
static void blocks_take(sb_staged *s, const bool *layer, size_t first,
                        size_t last, blocks_end *e)
{
    size_t n = 0;

    for (size_t i = first; i <= last; i++)
        n += layer[s->order[i]];
    if (n > 0 && e->layers > 0 &&
        (n > 1 || e->branched || e->layers + n > BLOCK_CHAIN)) {
        e->block++;
        e->layers = 0;
        e->branched = false;
    }
    for (size_t i = first; i <= last; i++) {
        if (n > BLOCK_MOST && layer[s->order[i]] && e->layers > 0) {
            e->block++;
            e->layers = 0;
        }
        e->layers += layer[s->order[i]];
        s->node_level[s->order[i]] = e->block;
    }
    e->branched = e->branched || n > 1;
}

/* Makes an output of float16, or another float type, of one of float32? */
static bool blocks_converts(const sb_graph *g, const sb_node *node)
{
    if (node->n_in != 1 || node->inputs[0] == SB_NONE || node->n_out != 1)
        return false;
    const sb_value *y = sb_graph_value(g, node->outputs[0]);

    return y->n_uses == 0 && sb_dtype_is_float(y->type.dtype) &&
           y->type.dtype != SB_DTYPE_F32 &&
           sb_graph_value(g, node->inputs[0])->type.dtype == SB_DTYPE_F32;
}

/* Only what layers make in float32 can be learned, so it must be a result of
 * its block: what converts it is in one of its own. */
static void blocks_leave_casts(sb_staged *s, blocks_end *e)
{
    int32_t last = e->block;

    for (size_t i = 0; i < s->n_order; i++) {
        if (!blocks_converts(s->g, sb_graph_node(s->g, s->order[i])))
            continue;
        s->node_level[s->order[i]] = last + 1;
        e->block = last + 1;
    }
}

sb_status sb_find_blocks(sb_staged *s, const bool *layer, int32_t *n)
{
    int32_t *place = sb_alloc(s->ctx, s->g->n_nodes + 1, sizeof *place);
    int32_t *live = sb_alloc(s->ctx, s->n_order + 1, sizeof *live);
    bool all = place && live;
    blocks_end e = {0};
    size_t first = 0;

    for (size_t i = 0; all && i < s->n_order; i++)
        place[s->order[i]] = (int32_t)i;
    if (all)
        blocks_live(s, place, live);
    for (size_t i = 0; all && i < s->n_order; i++)
        if (live[i] <= 1 || i + 1 == s->n_order) {
            blocks_take(s, layer, first, i, &e);
            first = i + 1;
        }
    if (all)
        blocks_leave_casts(s, &e);
    *n = e.block + 1;
    sb_free(s->ctx, place);
    sb_free(s->ctx, live);
    return all ? SB_OK : SB_NO_MEMORY;
}
