/* Where the noise of the quantized network arises.  Behind a bad layer all
 * layers look bad; what tells it from them is that its result is much noisier
 * than what it reads.  Values that are not compared have the noise of what they
 * are computed from. */
#include <math.h>

#include "quant/analyze/errors.h"

static double noise_of(const sb_error_sum *s)
{
    double d = s->sum[SB_COMPARE_DD];

    return d == 0 ? 0 : d / s->sum[SB_COMPARE_AA];
}

/* The largest among what a node reads. */
static double noise_read(const sb_node *node, const double *noise)
{
    double most = 0;

    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++)
        if (node->inputs[i] != SB_NONE)
            most = fmax(most, noise[node->inputs[i]]);
    return most;
}

sb_status sb_errors_added(sb_quant_errors *e)
{
    const sb_graph *g = e->qm->graph;
    double *noise = sb_alloc(e->ctx, g->n_values + 1, sizeof *noise);
    size_t row = 0;

    if (!noise)
        return SB_NO_MEMORY;
    /* Rows are in the order of nodes, those of outputs behind them. */
    for (size_t i = 0; i < e->n_order; i++) {
        const sb_node *node = sb_graph_node(g, e->order[i]);
        double read = noise_read(node, noise), made = read;

        if (row < e->n_rows && e->rows[row].node == e->order[i]) {
            const sb_error_sum *s = &e->rows[row].sums[SB_ERROR_SYNC];
            if (s->output != SB_NO_INDEX)
                made = noise_of(s);
            e->rows[row++].info.sync_added = made - read;
        }
        for (uint32_t k = 0; k < node->n_out; k++)
            if (node->outputs[k] != SB_NONE)
                noise[node->outputs[k]] = made;
    }
    for (; row < e->n_rows; row++)
        e->rows[row].info.sync_added =
            noise_of(&e->rows[row].sums[SB_ERROR_SYNC]) -
            noise[e->rows[row].value];
    sb_free(e->ctx, noise);
    return SB_OK;
}
