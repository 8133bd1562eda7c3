/* Drafts, and the table of upgrades. */
#include "onnx/upgrade.h"

#include <string.h>

void sb_draft_free(sb_draft *d)
{
    sb_free(d->ctx, d->in);
    sb_free(d->ctx, d->implicit);
    sb_free(d->ctx, d->out);
    sb_free(d->ctx, d->attrs);
}

const char *sb_draft_label(const sb_draft *d)
{
    if (d->name[0])
        return d->name;
    for (size_t i = 0; i < d->n_out; i++)
        if (d->out[i] != SB_NONE)
            return sb_graph_value(d->graph, d->out[i])->name;
    return d->op;
}

sb_status sb_draft_add(sb_draft *d, sb_node_id *out)
{
    const sb_node_spec spec = {
        .op = d->op,
        .domain = d->domain,
        .name = d->name,
        .inputs = d->in,
        .n_in = d->n_in,
        .implicit = d->implicit,
        .n_implicit = d->n_implicit,
        .outputs = d->out,
        .n_out = d->n_out,
        .attrs = d->attrs,
        .n_attrs = d->n_attrs,
    };

    return sb_graph_add_node(d->graph, &spec, out);
}

sb_status sb_upgrade(sb_draft *d)
{
    (void)d;
    return SB_OK;
}
