/* A quantized model as a graph for people (quant_view.h). */
#include "quant/model/quant_view.h"

#include <string.h>

#include "graph/op.h"
#include "quant/model/instrument.h"

/* ---- quantizers --------------------------------------------------------- */

static sb_attr text_attr(const char *name, const char *text)
{
    return (sb_attr){.name = name,
                     .type = SB_ATTR_STRING,
                     .s = {.data = text, .len = strlen(text)}};
}

static sb_attr float_attr(const char *name, float value)
{
    return (sb_attr){.name = name, .type = SB_ATTR_FLOAT, .f = value};
}

static sb_status put_quantizer(const sb_quant_model *qm, sb_graph *g,
                               const sb_quantizer *q, sb_value_id *y)
{
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    sb_attr attrs[8];
    size_t n = 0;

    attrs[n++] =
        (sb_attr){.name = "bits", .type = SB_ATTR_INT, .i = q->spec.bits};
    attrs[n++] = text_attr(
        "scheme", sb_quant_scheme_name(q->spec.granularity, q->spec.symmetric));
    if (sb_quantizer_is_off(qm, q))
        attrs[n++] = (sb_attr){.name = "fused", .type = SB_ATTR_INT, .i = 1};
    else
        attrs[n++] = text_attr(
            "observer",
            q->spec.dynamic ? "dynamic" : sb_observer_name(q->spec.observer));
    if (strcmp(q->def->name, "uniform") != 0)
        attrs[n++] = text_attr("type", q->def->name);
    if (p->n == 1) {
        attrs[n++] = float_attr("scale", p->scale[0]);
        attrs[n++] = float_attr("zero_point", p->zero_point[0]);
    }
    for (size_t i = 0; i < n; i++)
        if (attrs[i].type == SB_ATTR_STRING) {
            attrs[i].s.data = sb_arena_str(g->arena, attrs[i].s.data);
            if (!attrs[i].s.data)
                return SB_NO_MEMORY;
        }
    const sb_node_spec spec = {
        .op = SB_VIEW_QUANTIZER,
        .domain = SB_FUSED_DOMAIN,
        .name = q->name,
        .inputs = &q->value,
        .n_in = 1,
        .attrs = attrs,
        .n_attrs = n,
    };
    return sb_quant_add_node(g, sb_quantizer_beside(g, q), &spec, q->value, y);
}

/* A node for each point, and for each quantizer that is fused away. */
static sb_status put_point(const sb_quant_model *qm, sb_graph *g,
                           uint32_t point)
{
    sb_value_id shared = SB_NONE;
    const sb_quantizer *q;

    for (uint32_t i = qm->place.points[point].head; i != SB_NONE; i = q->next) {
        q = &qm->place.quantizers[i];
        bool off = sb_quantizer_is_off(qm, q);
        sb_value_id y = off ? SB_NONE : shared;

        if (y == SB_NONE)
            SB_TRY(put_quantizer(qm, g, q, &y));
        for (size_t k = 0; k < q->n_uses; k++)
            SB_TRY(sb_graph_set_input(g, q->uses[k].node, q->uses[k].input, y));
        if (q->at_output)
            SB_TRY(sb_quant_move_output(g, q->value, y));
        if (!off)
            shared = y;
    }
    return SB_OK;
}

/* ---- modules kept in float ---------------------------------------------- */

/* The top-level module of the node's path that is skipped, as a length; 0 if
 * none is. */
static sb_status skipped_module(const sb_quant_model *qm, sb_graph *g,
                                const sb_node *node, size_t *len)
{
    const char *module = node->module;

    *len = 0;
    for (size_t n = 0; module[n]; n += module[n] == '.') {
        n += strcspn(module + n, ".");
        sb_node part = {.op = "", .domain = "", .name = "", .module = NULL};

        part.module = sb_arena_strn(g->arena, module, n);
        if (!part.module)
            return SB_NO_MEMORY;
        if (sb_quant_config_skips(qm->config, &part)) {
            *len = n;
            return SB_OK;
        }
    }
    return SB_OK;
}

typedef struct group {
    const char *module;
    bool *inside; /* [node] */
    bool *after;  /* [node] outside, and needs what the module makes */
    sb_value_id *in, *out;
    size_t n_in, n_out;
} group;

static bool is_inside(const group *m, sb_node_id node)
{
    return node != SB_NONE && m->inside[node];
}

static void add_once(sb_value_id *list, size_t *n, sb_value_id v)
{
    for (size_t i = 0; i < *n; i++)
        if (list[i] == v)
            return;
    list[(*n)++] = v;
}

/* Can the nodes be one?  Not if a way leads out of the module and back. */
static bool is_whole(const sb_graph *g, const group *m, const sb_node_id *order,
                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const sb_node *node = sb_graph_node(g, order[i]);
        bool after = false;

        for (uint32_t k = 0; k < node->n_in + node->n_implicit; k++) {
            sb_node_id from =
                node->inputs[k] == SB_NONE
                    ? SB_NONE
                    : sb_graph_value(g, node->inputs[k])->producer;
            if (from == SB_NONE)
                continue;
            after |=
                m->after[from] || (m->inside[from] && !m->inside[order[i]]);
            if (m->inside[order[i]] && m->after[from])
                return false;
        }
        m->after[order[i]] = after && !m->inside[order[i]];
    }
    return true;
}

static void list_border(const sb_graph *g, group *m)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (!m->inside[id])
            continue;
        for (uint32_t k = 0; k < node->n_in + node->n_implicit; k++) {
            sb_value_id v = node->inputs[k];
            if (v != SB_NONE && !is_inside(m, sb_graph_value(g, v)->producer) &&
                !sb_graph_value(g, v)->is_constant)
                add_once(m->in, &m->n_in, v);
        }
        for (uint32_t k = 0; k < node->n_out; k++) {
            if (node->outputs[k] == SB_NONE)
                continue;
            const sb_value *v = sb_graph_value(g, node->outputs[k]);
            bool leaves = v->is_output;
            for (uint32_t u = 0; u < v->n_uses; u++)
                leaves |= !m->inside[v->uses[u].node];
            if (leaves)
                m->out[m->n_out++] = node->outputs[k];
        }
    }
}

static sb_status view_collapse(sb_graph *g, group *m, sb_node_id first)
{
    sb_node_id *order = NULL, made = SB_NONE;
    size_t n = 0;

    SB_TRY(sb_graph_order(g, &order, &n));
    bool whole = is_whole(g, m, order, n);
    sb_free(g->ctx, order);
    if (!whole)
        return SB_OK;
    list_border(g, m);
    const sb_node_spec spec = {
        .op = SB_VIEW_MODULE,
        .domain = SB_FUSED_DOMAIN,
        .name = m->module,
        .module = m->module,
        .inputs = m->in,
        .n_in = m->n_in,
        .outputs = m->out,
        .n_out = m->n_out,
        .position = sb_graph_node(g, first)->position,
    };
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (m->inside[id])
            sb_graph_remove_node(g, id);
    return sb_graph_add_node(g, &spec, &made);
}

/* Is the node in the module, `len` letters of `path`, or below it? */
static bool view_belongs(const sb_node *node, const char *path, size_t len)
{
    return strncmp(node->module, path, len) == 0 &&
           (node->module[len] == '\0' || node->module[len] == '.');
}

static sb_status collapse_at(const sb_quant_model *qm, sb_graph *g,
                             sb_node_id first)
{
    const char *path = sb_graph_node(g, first)->module;
    sb_ctx *ctx = qm->ctx;
    group m = {0};
    size_t len = 0, edges = 0;
    sb_status status = skipped_module(qm, g, sb_graph_node(g, first), &len);

    if (status != SB_OK || len == 0)
        return status;
    for (size_t i = 0; i < g->n_nodes; i++)
        edges += g->nodes[i].n_in + g->nodes[i].n_implicit + g->nodes[i].n_out;
    m.module = sb_arena_strn(g->arena, path, len);
    m.inside = sb_alloc(ctx, g->n_nodes + 1, sizeof *m.inside);
    m.after = sb_alloc(ctx, g->n_nodes + 1, sizeof *m.after);
    m.in = sb_alloc(ctx, edges + 1, sizeof *m.in);
    m.out = sb_alloc(ctx, edges + 1, sizeof *m.out);
    if (!m.module || !m.inside || !m.after || !m.in || !m.out)
        status = SB_NO_MEMORY;
    for (sb_node_id id = 0; status == SB_OK && id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        m.inside[id] = !node->dead && view_belongs(node, path, len) &&
                       strcmp(node->domain, SB_FUSED_DOMAIN) != 0;
    }
    if (status == SB_OK)
        status = view_collapse(g, &m, first);
    sb_free(ctx, m.inside);
    sb_free(ctx, m.after);
    sb_free(ctx, m.in);
    sb_free(ctx, m.out);
    return status;
}

/* ---- all together ------------------------------------------------------- */

sb_status sb_quant_view(const sb_quant_model *qm, sb_graph **out)
{
    sb_graph *g = NULL;
    sb_status status = sb_graph_clone(qm->graph, &g);

    if (status != SB_OK)
        return status;
    for (uint32_t s = 0; s < qm->place.n_points && status == SB_OK; s++)
        status = put_point(qm, g, s);
    /* New nodes are behind the old ones, which keep their numbers. */
    for (sb_node_id id = 0; id < qm->graph->n_nodes && status == SB_OK; id++)
        if (!sb_graph_node(g, id)->dead)
            status = collapse_at(qm, g, id);
    if (status == SB_OK)
        *out = g;
    else
        sb_graph_free(g);
    return status;
}
