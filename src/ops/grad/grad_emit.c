/* Adding nodes to a graph that is being differentiated. */
#include "ops/grad/grad.h"

#include <stdarg.h>
#include <stdio.h>

#include "ops/infer_util.h"

sb_status sb_grad_refuse(sb_grad *g, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(g->reason, sizeof g->reason, fmt, args);
    va_end(args);
    return SB_UNSUPPORTED;
}

/* ---- nodes -------------------------------------------------------------- */

/* Lists move into the arena of the graph. */
static sb_status emit_attrs(sb_graph *graph, const sb_emit_spec *spec,
                            sb_attr **list)
{
    sb_attr *out = sb_arena_alloc(graph->arena, spec->n_attrs + 1, sizeof *out);

    if (!out)
        return SB_NO_MEMORY;
    *list = out;
    for (size_t i = 0; i < spec->n_attrs; i++) {
        out[i] = spec->attrs[i];
        if (out[i].type != SB_ATTR_INTS)
            continue;
        out[i].ints = sb_arena_copy(graph->arena, out[i].ints,
                                    out[i].n * sizeof *out[i].ints);
        if (!out[i].ints)
            return SB_NO_MEMORY;
    }
    return SB_OK;
}

/* What infer() says of the node becomes the type of its results. */
static sb_status emit_types(sb_graph *graph, sb_node_id id,
                            const sb_emit_spec *spec)
{
    const sb_node *node = sb_graph_node(graph, id);
    sb_fact *facts =
        sb_alloc(graph->ctx, node->n_in + node->n_out + 1, sizeof *facts);
    const sb_fact **in = sb_alloc(graph->ctx, node->n_in + 1, sizeof *in);
    sb_fact *out = facts ? facts + node->n_in : NULL;
    sb_status status = facts && in ? SB_OK : SB_NO_MEMORY;

    for (uint32_t i = 0; status == SB_OK && i < node->n_in; i++) {
        if (node->inputs[i] == SB_NONE)
            continue;
        const sb_value *v = sb_graph_value(graph, node->inputs[i]);
        facts[i] =
            v->is_constant ? sb_fact_of(&v->constant) : sb_fact_unknown();
        facts[i].type = v->type;
        in[i] = &facts[i];
    }
    if (status == SB_OK)
        status = sb_op_infer(graph->ctx, graph, node, in, out);
    for (uint32_t i = 0; status == SB_OK && i < node->n_out; i++)
        sb_graph_value(graph, node->outputs[i])->type =
            i == 0 && spec->type ? *spec->type : out[i].type;
    sb_free(graph->ctx, facts);
    sb_free(graph->ctx, in);
    return status;
}

/* What new nodes are called after.  The first result need not be there: of a
 * recurrent layer only the last state may be read. */
static const char *emit_about(const sb_grad *g)
{
    for (uint32_t i = 0; g->node && i < g->node->n_out; i++)
        if (g->node->outputs[i] != SB_NONE)
            return sb_graph_value(g->graph, g->node->outputs[i])->name;
    return "loss";
}

static sb_status emit_node(sb_grad *g, const sb_emit_spec *spec,
                           sb_value_id *out)
{
    sb_graph *graph = g->graph;
    const sb_value_id *in = spec->more_in ? spec->more_in : spec->in;
    const char *name = sb_arena_printf(graph->arena, "back.%s", emit_about(g));
    size_t n_out = spec->n_out ? spec->n_out : 1;
    sb_attr *attrs = NULL;
    sb_node_id id;

    if (!name)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n_out; i++)
        SB_TRY(sb_graph_add_value_as(graph, name, &out[i]));
    SB_TRY(emit_attrs(graph, spec, &attrs));
    const char *domain = spec->domain               ? spec->domain
                         : sb_op_find("", spec->op) ? ""
                                                    : SB_FUSED_DOMAIN;
    SB_TRY(sb_graph_add_node(
        graph,
        &(sb_node_spec){.op = spec->op,
                        .domain = domain,
                        .module = g->node ? g->node->module : NULL,
                        .inputs = in,
                        .n_in = spec->n_in,
                        .outputs = out,
                        .n_out = n_out,
                        .attrs = attrs,
                        .n_attrs = spec->n_attrs},
        &id));
    return emit_types(graph, id, spec);
}

sb_value_id sb_emit(sb_grad *g, const sb_emit_spec *spec)
{
    sb_value_id one = SB_NONE;

    if (g->status == SB_OK)
        g->status = emit_node(g, spec, spec->more_out ? spec->more_out : &one);
    if (g->status != SB_OK)
        return SB_NONE;
    return spec->more_out ? spec->more_out[0] : one;
}

sb_value_id sb_emit1(sb_grad *g, const char *op, sb_value_id a)
{
    return sb_emit(g, &(sb_emit_spec){.op = op, .in = {a}, .n_in = 1});
}

sb_value_id sb_emit2(sb_grad *g, const char *op, sb_value_id a, sb_value_id b)
{
    return sb_emit(g, &(sb_emit_spec){.op = op, .in = {a, b}, .n_in = 2});
}

sb_value_id sb_emit3(sb_grad *g, const char *op, sb_value_id a, sb_value_id b,
                     sb_value_id c)
{
    return sb_emit(g, &(sb_emit_spec){.op = op, .in = {a, b, c}, .n_in = 3});
}

sb_value_id sb_emit_with(sb_grad *g, const char *op, sb_value_id a,
                         sb_value_id b, sb_attr attr)
{
    return sb_emit(g, &(sb_emit_spec){.op = op,
                                      .in = {a, b},
                                      .n_in = b == SB_NONE ? 1 : 2,
                                      .attrs = &attr,
                                      .n_attrs = 1});
}

/* ---- constants ---------------------------------------------------------- */

static sb_value_id emit_constant(sb_grad *g, sb_dtype dtype, int rank,
                                 const int64_t *dims, const void *elements)
{
    sb_value_id out = SB_NONE;

    if (g->status == SB_OK)
        g->status = sb_graph_add_constant(g->graph, "back.const", dtype, rank,
                                          dims, elements, &out);
    return g->status == SB_OK ? out : SB_NONE;
}

sb_value_id sb_grad_scalar(sb_grad *g, sb_value_id like, double v)
{
    uint64_t element = 0;

    if (g->status != SB_OK)
        return SB_NONE;
    sb_dtype dtype = sb_grad_type(g, like)->dtype;
    sb_convert(SB_DTYPE_F64, &v, dtype, &element, 1);
    return emit_constant(g, dtype, 0, &(int64_t){0}, &element);
}

sb_value_id sb_grad_ints(sb_grad *g, const int64_t *v, int n)
{
    return emit_constant(g, SB_DTYPE_I64, 1, &(int64_t){n}, v);
}

/* ---- shapes ------------------------------------------------------------- */

static bool emit_all_known(const sb_shape *s)
{
    bool known = s->rank >= 0;

    for (int i = 0; i < s->rank; i++)
        known = known && sb_dim_known(s->dim[i]);
    return known;
}

/* Surely the same, symbols included? */
static bool emit_same_shape(const sb_shape *a, const sb_shape *b)
{
    bool same = a->rank >= 0 && a->rank == b->rank;

    for (int i = 0; same && i < a->rank; i++)
        same = sb_dim_same(a->dim[i], b->dim[i]);
    return same;
}

sb_value_id sb_grad_shape(sb_grad *g, sb_value_id v)
{
    if (g->status != SB_OK)
        return SB_NONE;
    const sb_shape *s = &sb_grad_type(g, v)->shape;
    if (emit_all_known(s))
        return sb_grad_ints(g, s->dim, s->rank);
    return sb_emit1(g, "Shape", v);
}

sb_value_id sb_grad_dim(sb_grad *g, sb_value_id v, int axis)
{
    if (g->status != SB_OK)
        return SB_NONE;
    const sb_shape *s = &sb_grad_type(g, v)->shape;
    if (axis < s->rank && sb_dim_known(s->dim[axis]))
        return sb_grad_ints(g, &s->dim[axis], 1);
    const sb_attr range[] = {SB_EMIT_INT("start", axis),
                             SB_EMIT_INT("end", axis + 1)};
    return sb_emit(
        g,
        &(sb_emit_spec){
            .op = "Shape", .in = {v}, .n_in = 1, .attrs = range, .n_attrs = 2});
}

/* A node of two inputs, the second the shape of `like`. */
static sb_value_id emit_shaped(sb_grad *g, const char *op, sb_value_id v,
                               sb_value_id like, const sb_attr *attr)
{
    sb_value_id shape = sb_grad_shape(g, like);

    if (g->status != SB_OK)
        return SB_NONE;
    const sb_type type = *sb_grad_type(g, like);
    return sb_emit(g, &(sb_emit_spec){.op = op,
                                      .in = {v, shape},
                                      .n_in = 2,
                                      .attrs = attr,
                                      .n_attrs = attr ? 1 : 0,
                                      .type = &type});
}

static bool emit_is_like(const sb_grad *g, sb_value_id v, sb_value_id like)
{
    return g->status == SB_OK && emit_same_shape(&sb_grad_type(g, v)->shape,
                                                 &sb_grad_type(g, like)->shape);
}

sb_value_id sb_grad_sum_to(sb_grad *g, sb_value_id v, sb_value_id like)
{
    return emit_is_like(g, v, like) ? v
                                    : emit_shaped(g, "SumTo", v, like, NULL);
}

sb_value_id sb_grad_expand(sb_grad *g, sb_value_id v, sb_value_id like)
{
    return emit_is_like(g, v, like) ? v
                                    : emit_shaped(g, "Expand", v, like, NULL);
}

sb_value_id sb_grad_reshape(sb_grad *g, sb_value_id v, sb_value_id like)
{
    /* A dimension of 0 is one. */
    const sb_attr zero = SB_EMIT_INT("allowzero", 1);

    return emit_is_like(g, v, like) ? v
                                    : emit_shaped(g, "Reshape", v, like, &zero);
}

sb_value_id sb_grad_zeros(sb_grad *g, sb_value_id like)
{
    return sb_grad_expand(g, sb_grad_scalar(g, like, 0), like);
}

/* ---- channels ------------------------------------------------------------ */

sb_value_id sb_grad_channel_sum(sb_grad *g, sb_value_id v, int rank)
{
    int64_t axes[SB_MAX_RANK];
    int n = 0;

    for (int i = 0; i < rank; i++)
        if (i != 1)
            axes[n++] = i;
    return sb_emit_with(g, "ReduceSum", v, sb_grad_ints(g, axes, n),
                        SB_EMIT_INT("keepdims", 0));
}

sb_value_id sb_grad_channel_column(sb_grad *g, sb_value_id v, int rank)
{
    int64_t axes[SB_MAX_RANK];

    for (int i = 0; i < rank - 2; i++)
        axes[i] = i + 1;
    return rank > 2
               ? sb_emit2(g, "Unsqueeze", v, sb_grad_ints(g, axes, rank - 2))
               : v;
}
