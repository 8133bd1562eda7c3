/* Operators of plug-ins: a row like the library's own, whose functions call
 * those of the plug-in with what they see of the node. */
#include <string.h>

#include "api/plugin/plugin.h"
#include "base/options.h"
#include "ops/op_registry.h"

sb_status sb_plugin_check_name(sb_ctx *ctx, const char *what, const char *name,
                               bool taken)
{
    if (!name || !*name)
        return sb_fail(ctx, SB_BAD_ARG, "%s of a plug-in: it has no name",
                       what);
    if (taken)
        return sb_fail(ctx, SB_BAD_ARG, "there is a%s %s '%s' already",
                       strchr("aeio", *what) ? "n" : "", what, name);
    return SB_OK;
}

sb_status sb_plugin_check_key(sb_ctx *ctx, const char *what, const char *name,
                              bool taken)
{
    SB_TRY(sb_plugin_check_name(ctx, what, name, taken));
    if (name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")])
        return sb_fail(ctx, SB_BAD_ARG,
                       "%s '%s': want small letters, digits and _", what, name);
    return SB_OK;
}

/* The row that the registry finds, and the plug-in behind it. */
typedef struct added_op {
    sb_op_def def; /* def.aux is this */
    sb_op_plugin plugin;
} added_op;

/* Either of the two is set. */
struct sb_op_call {
    sb_ctx *ctx;
    const sb_graph *graph;
    const sb_node *node;
    sb_infer *infer;
    sb_kernel *kernel;
};

/* ---- what the plug-in asks ---------------------------------------------- */

size_t sb_op_input_count(const sb_op_call *call)
{
    return call->node->n_in;
}

size_t sb_op_output_count(const sb_op_call *call)
{
    return call->node->n_out;
}

int sb_op_input_type(const sb_op_call *call, size_t i, sb_dtype *dtype,
                     int *rank, int64_t *dims)
{
    if (i >= call->node->n_in)
        return 0;
    if (call->kernel) {
        const sb_tensor *t = call->kernel->in[i];
        if (!t)
            return 0;
        *dtype = t->dtype;
        *rank = t->rank;
        memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
        return 1;
    }
    const sb_fact *fact = call->infer->in[i];
    if (!fact)
        return 0;
    *dtype = fact->type.dtype;
    *rank = fact->type.shape.rank;
    for (int d = 0; d < *rank; d++)
        dims[d] = fact->type.shape.dim[d];
    return 1;
}

sb_status sb_op_set_output(sb_op_call *call, size_t i, sb_dtype dtype, int rank,
                           const int64_t *dims)
{
    if (!call->infer)
        return sb_op_fail(call, SB_BAD_ARG,
                          "outputs are set while types are inferred");
    if (i >= call->infer->n_out || rank < -1 || rank > SB_MAX_RANK ||
        !sb_dtype_valid((int)dtype))
        return sb_op_fail(call, SB_BAD_ARG, "no such output, type or rank");
    sb_type *type = &call->infer->out[i].type;
    type->dtype = dtype;
    type->shape.rank = rank;
    for (int d = 0; d < rank; d++)
        type->shape.dim[d] = dims[d] >= 0 || sb_dim_symbol_index(dims[d]) >= 0
                                 ? dims[d]
                                 : SB_DIM_UNKNOWN;
    return SB_OK;
}

const sb_tensor *sb_op_input(const sb_op_call *call, size_t i)
{
    if (i >= call->node->n_in)
        return NULL;
    if (call->kernel)
        return call->kernel->in[i];
    return call->infer->in[i] ? call->infer->in[i]->constant : NULL;
}

sb_tensor *sb_op_output(sb_op_call *call, size_t i)
{
    return call->kernel && i < call->node->n_out ? call->kernel->out[i] : NULL;
}

static const sb_attr *call_attr(const sb_op_call *call, const char *name,
                                sb_attr_type type)
{
    const sb_attr *a = sb_node_attr(call->node, name);

    return a && a->type == type ? a : NULL;
}

int64_t sb_op_attr_int(const sb_op_call *call, const char *name, int64_t preset)
{
    const sb_attr *a = call_attr(call, name, SB_ATTR_INT);

    return a ? a->i : preset;
}

float sb_op_attr_float(const sb_op_call *call, const char *name, float preset)
{
    const sb_attr *a = call_attr(call, name, SB_ATTR_FLOAT);

    return a ? a->f : preset;
}

const char *sb_op_attr_string(const sb_op_call *call, const char *name,
                              const char *preset)
{
    const sb_attr *a = call_attr(call, name, SB_ATTR_STRING);

    return a ? a->s.data : preset;
}

const int64_t *sb_op_attr_ints(const sb_op_call *call, const char *name,
                               size_t *n)
{
    const sb_attr *a = call_attr(call, name, SB_ATTR_INTS);

    *n = a ? a->n : 0;
    return a ? a->ints : NULL;
}

sb_status sb_op_fail(sb_op_call *call, sb_status status, const char *message)
{
    return sb_fail(call->ctx, status, "node '%s' (%s): %s",
                   sb_node_label(call->graph, call->node), call->node->op,
                   message);
}

/* ---- the row ------------------------------------------------------------ */

static sb_status added_infer(sb_infer *in)
{
    const added_op *op = in->node->added->aux;
    sb_op_call call = {
        .ctx = in->ctx, .graph = in->graph, .node = in->node, .infer = in};

    return op->plugin.infer(op->plugin.user, &call);
}

static sb_status added_forward(sb_kernel *k)
{
    const added_op *op = k->op->aux;
    sb_op_call call = {
        .ctx = k->ctx, .graph = k->graph, .node = k->node, .kernel = k};

    return op->plugin.run(op->plugin.user, &call);
}

static bool op_is_taken(const sb_ctx *ctx, const char *domain, const char *name)
{
    const sb_op_def *row;

    if (sb_op_find(domain, name))
        return true;
    for (size_t i = 0; (row = sb_ctx_row(ctx, SB_ROW_OP, i)) != NULL; i++)
        if (strcmp(row->domain, domain) == 0 && strcmp(row->name, name) == 0)
            return true;
    return false;
}

static uint8_t op_arity(int n)
{
    return (uint8_t)(n < 0 || n >= SB_ARITY_ANY ? SB_ARITY_ANY : n);
}

sb_status sb_ctx_add_op(sb_ctx *ctx, const sb_op_plugin *plugin)
{
    const sb_op_plugin defaults = SB_OP_PLUGIN_INIT;
    sb_op_plugin p;

    SB_TRY(
        sb_options_read(ctx, "sb_op_plugin", plugin, &defaults, sizeof p, &p));
    SB_TRY(sb_plugin_check_name(ctx, "operator", p.name, false));
    if (!p.domain || !*p.domain || strcmp(p.domain, "ai.onnx") == 0 ||
        strcmp(p.domain, SB_FUSED_DOMAIN) == 0)
        return sb_fail(ctx, SB_BAD_ARG,
                       "operator '%s': wants a domain of its own", p.name);
    if (!p.infer || !p.run)
        return sb_fail(ctx, SB_BAD_ARG,
                       "operator '%s': infer and run must be set", p.name);
    SB_TRY(sb_plugin_check_name(ctx, "operator", p.name,
                                op_is_taken(ctx, p.domain, p.name)));
    added_op *op = sb_alloc(ctx, 1, sizeof *op);
    if (!op)
        return SB_NO_MEMORY;
    op->plugin = p;
    op->def = (sb_op_def){.name = p.name,
                          .domain = p.domain,
                          .since = 1,
                          .in_min = op_arity(p.min_inputs),
                          .in_max = op_arity(p.max_inputs),
                          .out_min = op_arity(p.min_outputs),
                          .out_max = op_arity(p.max_outputs),
                          .aux = op,
                          .infer = added_infer,
                          .forward = added_forward};
    return sb_ctx_add_row(ctx, SB_ROW_OP, op);
}
