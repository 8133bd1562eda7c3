/* Copies of the float graph with one more node on the edges of quantizers. */
#include <assert.h>
#include <stdio.h>

#include "quant/model/instrument.h"

sb_status sb_quant_put_node(sb_graph *g, sb_node_id beside,
                            const sb_node_spec *spec, sb_value_id x,
                            sb_value_id y)
{
    sb_node_spec full = *spec;
    sb_node_id node = SB_NONE;

    sb_graph_value(g, y)->type = sb_graph_value(g, x)->type;
    full.module = sb_graph_node(g, beside)->module;
    full.position = sb_graph_node(g, beside)->position;
    full.outputs = &y;
    full.n_out = 1;
    return sb_graph_add_node(g, &full, &node);
}

sb_status sb_quant_add_node(sb_graph *g, sb_node_id beside,
                            const sb_node_spec *spec, sb_value_id x,
                            sb_value_id *y)
{
    sb_value_id out = SB_NONE;

    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, x)->name, &out));
    SB_TRY(sb_quant_put_node(g, beside, spec, x, out));
    *y = out;
    return SB_OK;
}

sb_status sb_quant_add_observe(sb_graph *g, sb_node_id beside, uint32_t id,
                               const char *name, sb_value_id x, sb_value_id *y)
{
    const sb_attr attr = {.name = "id", .type = SB_ATTR_INT, .i = id};
    const sb_node_spec spec = {.op = "Observe",
                               .domain = SB_FUSED_DOMAIN,
                               .name = name,
                               .inputs = &x,
                               .n_in = 1,
                               .attrs = &attr,
                               .n_attrs = 1};

    return sb_quant_add_node(g, beside, &spec, x, y);
}

sb_status sb_quant_add_value(sb_graph *g, const char *base, const char *suffix,
                             sb_value_id *out)
{
    sb_str name;

    sb_str_init(&name, g->ctx);
    sb_str_addf(&name, "%s%s", base, suffix);
    sb_status status = sb_str_status(&name);
    if (status == SB_OK)
        status = sb_graph_add_value_as(g, sb_str_text(&name), out);
    sb_str_free(&name);
    return status;
}

sb_status sb_quant_move_output_as(sb_graph *g, sb_value_id x, sb_value_id y,
                                  sb_value_id spare)
{
    const char *name = sb_graph_value(g, x)->name;
    const char *fresh = sb_graph_value(g, spare)->name;
    char unused[48]; /* one for each output that moves */

    (void)snprintf(unused, sizeof unused, "sparsebit.unused%u",
                   (unsigned)spare);
    SB_TRY(sb_graph_rename_value(g, spare, unused));
    SB_TRY(sb_graph_rename_value(g, x, fresh));
    SB_TRY(sb_graph_rename_value(g, y, name));
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] == x)
            g->outputs[i] = y;
    /* Not an output while something else is compared (output_error.c). */
    sb_graph_value(g, y)->is_output |= sb_graph_value(g, x)->is_output;
    sb_graph_value(g, x)->is_output = false;
    return SB_OK;
}

sb_status sb_quant_move_output(sb_graph *g, sb_value_id x, sb_value_id y)
{
    sb_value_id spare = SB_NONE;

    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, x)->name, &spare));
    return sb_quant_move_output_as(g, x, y, spare);
}

sb_node_id sb_quantizer_beside(const sb_graph *g, const sb_quantizer *q)
{
    return q->n_uses > 0 ? q->uses[0].node
                         : sb_graph_value(g, q->value)->producer;
}

/* A copy that is made, of the float graph or a part of it. */
typedef struct derived {
    const sb_quant_model *qm;
    const sb_graph_part *part; /* or NULL */
    sb_graph *g;
    sb_quant_point_fn fn;
    void *user;
} derived;

/* SB_NONE: no edge of the quantizer is in the part. */
static sb_node_id derive_beside(const derived *d, const sb_quantizer *q)
{
    sb_node_id node = SB_NONE;

    if (!d->part)
        return sb_quantizer_beside(d->g, q);
    if (q->n_uses == 0)
        return sb_graph_part_node(d->part,
                                  sb_quantizer_beside(d->qm->graph, q));
    for (size_t k = 0; k < q->n_uses && node == SB_NONE; k++)
        node = sb_graph_part_node(d->part, q->uses[k].node);
    return node;
}

static sb_status derive_edges(const derived *d, const sb_quantizer *q,
                              sb_value_id x, sb_value_id y)
{
    for (size_t k = 0; k < q->n_uses; k++) {
        sb_node_id node = sb_graph_part_node(d->part, q->uses[k].node);

        if (node != SB_NONE)
            SB_TRY(sb_graph_set_input(d->g, node, q->uses[k].input, y));
    }
    return q->at_output && !d->part ? sb_quant_move_output(d->g, x, y) : SB_OK;
}

/* Redirects the edges of one point. */
static sb_status derive_point(const derived *d, uint32_t point)
{
    const sb_placement *p = &d->qm->place;
    sb_value_id x = sb_graph_part_value(d->part, p->points[point].value);
    sb_value_id y = SB_NONE;
    const sb_quantizer *q;

    for (uint32_t i = p->points[point].head; i != SB_NONE; i = q->next) {
        q = &p->quantizers[i];
        if (sb_quantizer_is_off(d->qm, q))
            continue;
        sb_node_id beside = derive_beside(d, q);
        if (d->part && beside == SB_NONE)
            continue;
        if (y == SB_NONE)
            SB_TRY(d->fn(d->user, d->g, point, beside, x, &y));
        if (y != x)
            SB_TRY(derive_edges(d, q, x, y));
    }
    return SB_OK;
}

sb_status sb_quant_derive(const sb_quant_model *qm, sb_quant_point_fn fn,
                          void *user, sb_graph **out)
{
    derived d = {.qm = qm, .fn = fn, .user = user};
    sb_status status = SB_OK;

    SB_TRY(sb_graph_clone(qm->graph, &d.g));
    assert(d.g->n_values == qm->graph->n_values);
    assert(d.g->n_nodes == qm->graph->n_nodes);
    for (size_t i = 0; i < qm->place.n_points && status == SB_OK; i++)
        status = derive_point(&d, (uint32_t)i);
    if (status == SB_OK)
        *out = d.g;
    else
        sb_graph_free(d.g);
    return status;
}

sb_status sb_quant_derive_part(const sb_quant_model *qm,
                               const sb_graph_part *part, sb_quant_point_fn fn,
                               void *user, sb_graph **out)
{
    const sb_placement *p = &qm->place;
    derived d = {.qm = qm, .part = part, .fn = fn, .user = user};
    sb_status status = SB_OK;

    SB_TRY(sb_graph_clone_part(qm->graph, part, &d.g));
    for (sb_value_id v = 0; v < qm->graph->n_values; v++) {
        uint32_t point =
            part->value_of[v] == SB_NONE ? SB_NONE : p->of_value[v].first;

        for (; point != SB_NONE && status == SB_OK;
             point = p->points[point].next)
            status = derive_point(&d, point);
    }
    if (status == SB_OK)
        *out = d.g;
    else
        sb_graph_free(d.g);
    return status;
}
