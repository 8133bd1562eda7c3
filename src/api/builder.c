/* Building a model in C: values by name, nodes by operator name. */
#include <string.h>

#include "api/model.h"
#include "base/options.h"
#include "graph/op.h"
#include "graph/text.h"
#include "nets/net.h"
#include "ops/op_registry.h"

sb_status sb_model_add_input(sb_model *model, const char *name, sb_dtype dtype,
                             int rank, const int64_t *dims)
{
    sb_graph *g = model->graph;
    sb_value_id id;

    if (rank < 0 || rank > SB_MAX_RANK)
        return sb_fail(model->ctx, SB_BAD_ARG,
                       "input '%s': rank %d, want 0 to %d", name, rank,
                       SB_MAX_RANK);
    if (!sb_dtype_valid((int)dtype))
        return sb_fail(model->ctx, SB_BAD_ARG, "input '%s': no element type %d",
                       name, (int)dtype);
    SB_TRY(sb_graph_add_value(g, name, &id));
    sb_value *v = sb_graph_value(g, id);
    v->type.dtype = dtype;
    v->type.shape.rank = rank;
    for (int i = 0; i < rank; i++)
        v->type.shape.dim[i] = dims[i] < 0 ? SB_DIM_UNKNOWN : dims[i];
    return sb_graph_add_input(g, id);
}

sb_status sb_model_add_constant(sb_model *model, const char *name,
                                const sb_tensor *tensor)
{
    sb_value_id id;
    sb_tensor copy;

    SB_TRY(sb_graph_add_value(model->graph, name, &id));
    SB_TRY(sb_tensor_clone(model->ctx, tensor, &copy));
    sb_status status = sb_graph_set_constant(model->graph, id, &copy);
    sb_tensor_drop(&copy);
    return status;
}

/* Values of these names; absent ones are SB_NONE.  Outputs are made. */
static sb_status names_to_values(sb_graph *g, const char *const *names,
                                 size_t n, bool make, sb_value_id **out)
{
    *out = sb_arena_alloc(g->arena, n, sizeof **out);
    if (!*out)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        sb_value_id id = SB_NONE;
        bool absent = !names[i] || !*names[i];

        if (!absent && make)
            SB_TRY(sb_graph_add_value(g, names[i], &id));
        else if (!absent) {
            id = sb_graph_find_value(g, names[i]);
            if (id == SB_NONE)
                return sb_fail(g->ctx, SB_BAD_ARG, "no value '%s'", names[i]);
        }
        (*out)[i] = id;
    }
    return SB_OK;
}

sb_status sb_model_add_node(sb_model *model, const char *op,
                            const char *const *inputs, size_t n_inputs,
                            const char *const *outputs, size_t n_outputs,
                            const char *attrs)
{
    sb_graph *g = model->graph;
    const char *colons = strstr(op, "::");
    sb_value_id *in = NULL, *out = NULL;
    sb_attr *list = NULL;
    sb_node_id id;
    sb_node_spec spec = {.op = op, .n_in = n_inputs, .n_out = n_outputs};

    if (colons) {
        spec.op = colons + 2;
        spec.domain = sb_arena_strn(g->arena, op, (size_t)(colons - op));
        if (!spec.domain)
            return SB_NO_MEMORY;
    }
    SB_TRY(names_to_values(g, inputs, n_inputs, false, &in));
    if (attrs)
        SB_TRY(sb_graph_parse_attrs(g, attrs, &list, &spec.n_attrs));
    SB_TRY(names_to_values(g, outputs, n_outputs, true, &out));
    spec.inputs = in;
    spec.outputs = out;
    spec.attrs = list;
    return sb_graph_add_node(g, &spec, &id);
}

sb_status sb_model_add_output(sb_model *model, const char *name)
{
    sb_value_id id = sb_graph_find_value(model->graph, name);

    if (id == SB_NONE)
        return sb_fail(model->ctx, SB_BAD_ARG, "no value '%s'", name);
    if (sb_graph_value(model->graph, id)->is_output)
        return sb_fail(model->ctx, SB_BAD_ARG, "'%s' is an output already",
                       name);
    return sb_graph_add_output(model->graph, id);
}

sb_status sb_model_finish(sb_model *model)
{
    SB_TRY(sb_graph_verify(model->graph));
    SB_TRY(sb_graph_infer(model->graph));
    return sb_model_refresh(model);
}

sb_status sb_model_new(sb_ctx *ctx, const char *name,
                       const sb_new_options *options, sb_model **out)
{
    static const sb_new_options defaults = SB_NEW_OPTIONS_INIT;
    sb_graph *graph = NULL;
    sb_new_options opt;

    SB_TRY(sb_options_read(ctx, "sb_new_options", options, &defaults,
                           sizeof opt, &opt));
    const sb_net_size size = {opt.channels, opt.height, opt.width, opt.classes};
    SB_TRY(sb_net_create(ctx, name, &size, opt.seed, &graph));
    return sb_model_wrap(graph, out);
}
