/* Nodes: names become values, attributes are read, functions inlined, old
 * forms upgraded.  Constant nodes become constants and leave no node. */
#include "onnx/onnx_load.h"
#include "onnx/onnx_tensor.h"

#include <string.h>

const char *sb_onnx_node_label(const Pb__Node *node)
{
    if (node->name && node->name[0])
        return node->name;
    for (size_t i = 0; i < node->n_output; i++)
        if (node->output[i][0])
            return node->output[i];
    return "(unnamed)";
}

const char *sb_onnx_domain(const char *domain)
{
    return domain && strcmp(domain, "ai.onnx") != 0 ? domain : "";
}

/* ---- inputs and outputs ------------------------------------------------- */

static sb_status read_inputs(sb_onnx_scope *scope, const Pb__Node *node,
                             sb_draft *d)
{
    SB_TRY(sb_grow(d->ctx, &d->in, &d->cap_in, node->n_input, sizeof *d->in));
    for (size_t i = 0; i < node->n_input; i++) {
        const char *name = node->input[i];
        sb_value_id id = SB_NONE;
        if (name[0]) {
            SB_TRY(sb_onnx_resolve(scope, name, &id));
            if (id == SB_NONE)
                return sb_fail(d->ctx, SB_BAD_MODEL,
                               "%s: node '%s' (%s): its input '%s' is made by "
                               "no node",
                               scope->loader->source.what,
                               sb_onnx_node_label(node), d->op, name);
            if (id == SB_ONNX_ABSENT)
                id = SB_NONE;
        }
        d->in[d->n_in++] = id;
    }
    while (d->n_in > 0 && d->in[d->n_in - 1] == SB_NONE)
        d->n_in--;
    return SB_OK;
}

static sb_status read_outputs(sb_onnx_scope *scope, const Pb__Node *node,
                              sb_draft *d)
{
    SB_TRY(
        sb_grow(d->ctx, &d->out, &d->cap_out, node->n_output, sizeof *d->out));
    for (size_t i = 0; i < node->n_output; i++)
        d->out[d->n_out++] = node->output[i][0]
                                 ? sb_map_get(&scope->names, node->output[i])
                                 : SB_NONE;
    return SB_OK;
}

/* ---- constants ---------------------------------------------------------- */

static sb_status strings_of(sb_ctx *ctx, int rank, size_t n,
                            const sb_bytes *from, sb_tensor *out)
{
    int64_t dim = (int64_t)n;

    *out = sb_tensor_make(SB_DTYPE_STRING, rank, &dim);
    return sb_tensor_alloc_strings(ctx, out, from);
}

static sb_status numbers_of(sb_ctx *ctx, sb_dtype dtype, int rank, size_t n,
                            const void *from, sb_tensor *out)
{
    int64_t dim = (int64_t)n;

    *out = sb_tensor_make(dtype, rank, &dim);
    SB_TRY(sb_tensor_alloc(ctx, out));
    if (sb_tensor_bytes(out))
        memcpy(out->data, from, sb_tensor_bytes(out));
    return SB_OK;
}

/* The tensor that an attribute of a Constant node stands for; `found` is
 * false if the attribute is none of those. */
static sb_status constant_of(sb_ctx *ctx, const sb_attr *a, sb_tensor *out,
                             bool *found)
{
    *found = strncmp(a->name, "value", 5) == 0;
    if (!*found)
        return SB_OK;
    switch (a->type) {
    case SB_ATTR_TENSOR:
        *out = sb_tensor_share(a->t);
        return SB_OK;
    case SB_ATTR_INT:
        return numbers_of(ctx, SB_DTYPE_I64, 0, 1, &a->i, out);
    case SB_ATTR_INTS:
        return numbers_of(ctx, SB_DTYPE_I64, 1, a->n, a->ints, out);
    case SB_ATTR_FLOAT:
        return numbers_of(ctx, SB_DTYPE_F32, 0, 1, &a->f, out);
    case SB_ATTR_FLOATS:
        return numbers_of(ctx, SB_DTYPE_F32, 1, a->n, a->floats, out);
    case SB_ATTR_STRING:
        return strings_of(ctx, 0, 1, &a->s, out);
    case SB_ATTR_STRINGS:
        return strings_of(ctx, 1, a->n, a->strings, out);
    default:
        *found = false;
        return SB_OK;
    }
}

/* Large tensors are read here and not as attributes, which the graph would
 * hold on to even when the constant goes. */
static sb_status constant_of_proto(sb_onnx_scope *scope, const Pb__Node *node,
                                   sb_tensor *out, bool *found)
{
    const Pb__Attribute *a = node->n_attribute == 1 ? node->attribute[0] : NULL;

    *found = a && a->name && !(a->ref_attr_name && a->ref_attr_name[0]);
    if (*found && a->t && strcmp(a->name, "value") == 0)
        return sb_onnx_tensor(&scope->loader->source, a->t, out);
    if (*found && a->sparse_tensor && strcmp(a->name, "sparse_value") == 0)
        return sb_onnx_sparse(&scope->loader->source, a->sparse_tensor, out);
    *found = false;
    return SB_OK;
}

/* `done` is false if the node must stay a node. */
static sb_status read_constant(sb_onnx_scope *scope, const Pb__Node *node,
                               sb_draft *d, bool *done)
{
    sb_tensor t = {0};

    *done = false;
    if (d->domain[0] || strcmp(d->op, "Constant") != 0 || d->n_out != 1 ||
        d->out[0] == SB_NONE)
        return SB_OK;
    SB_TRY(constant_of_proto(scope, node, &t, done));
    if (!*done) {
        SB_TRY(sb_onnx_read_attrs(scope, node, d));
        for (size_t i = 0; i < d->n_attrs && !*done; i++)
            SB_TRY(constant_of(d->ctx, &d->attrs[i], &t, done));
    }
    if (!*done)
        return SB_OK;
    sb_status status = sb_graph_set_constant(d->graph, d->out[0], &t);
    sb_tensor_drop(&t);
    return status;
}

/* ---- the node ----------------------------------------------------------- */

static sb_status find_version(sb_onnx_scope *scope, sb_draft *d)
{
    const Pb__Model *model = scope->loader->model;

    for (size_t i = 0; i < scope->n_opsets; i++)
        if (sb_onnx_domain(scope->opsets[i]->domain)[0] == '\0')
            d->version = scope->opsets[i]->version;
    if (d->version == 0 && scope->loader->root->file_opset > 0)
        d->version = scope->loader->root->file_opset;
    if (d->version == 0 && model->ir_version >= 3)
        return sb_fail(d->ctx, SB_BAD_MODEL,
                       "%s: the file does not say which opset it uses",
                       scope->loader->source.what);
    if (d->version == 0)
        d->version = 1;
    return SB_OK;
}

static sb_status add_node(sb_onnx_scope *scope, const Pb__Node *node,
                          sb_draft *d)
{
    sb_node_id id = SB_NONE;

    if (d->domain[0] == '\0') {
        SB_TRY(find_version(scope, d));
        SB_TRY(sb_upgrade(d));
    }
    SB_TRY(sb_draft_add(d, &id));
    sb_node *added = sb_graph_node(d->graph, id);
    if (node->overload && node->overload[0]) {
        added->overload = sb_arena_str(d->graph->arena, node->overload);
        if (!added->overload)
            return SB_NO_MEMORY;
    }
    return sb_onnx_read_extra(d->graph, node->doc_string, node->metadata_props,
                              node->n_metadata_props, &node->base,
                              &added->extra);
}

static sb_status read_draft(sb_onnx_scope *scope, const Pb__Node *node,
                            sb_draft *d)
{
    const Pb__Function *f = NULL;
    bool done = false;

    SB_TRY(read_inputs(scope, node, d));
    SB_TRY(read_outputs(scope, node, d));
    SB_TRY(read_constant(scope, node, d, &done));
    if (done)
        return SB_OK;
    if (d->n_attrs == 0)
        SB_TRY(sb_onnx_read_attrs(scope, node, d));
    SB_TRY(sb_onnx_find_function(scope->loader, node, &f));
    if (f)
        return sb_onnx_inline(scope, node, f, d);
    return add_node(scope, node, d);
}

sb_status sb_onnx_read_node(sb_onnx_scope *scope, const Pb__Node *node)
{
    sb_draft d = {.ctx = scope->loader->ctx, .graph = scope->graph};

    if (!node->op_type || !node->op_type[0])
        return sb_fail(d.ctx, SB_BAD_MODEL, "%s: node '%s' has no operator",
                       scope->loader->source.what, sb_onnx_node_label(node));
    SB_TRY(sb_ctx_poll(d.ctx));
    d.op = node->op_type;
    d.domain = sb_onnx_domain(node->domain);
    d.name = node->name ? node->name : "";
    if (d.name[0])
        SB_TRY(sb_onnx_prefixed(scope, d.name, &d.name));
    sb_status status = read_draft(scope, node, &d);
    sb_draft_free(&d);
    return status;
}
