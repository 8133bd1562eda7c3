/* Attributes, and the sub-graphs among them.
 *
 * In the body of a function an attribute may refer to one of the call; it is
 * replaced by the call's, by the function's default, or left out. */
#include "onnx/onnx_load.h"
#include "onnx/onnx_tensor.h"

#include <string.h>

enum {
    MAX_ATTRS = 4096,
    TYPE_SPARSE_TENSOR = 11,
    TYPE_TYPE_PROTOS = 14,
};

static sb_status attr_fail(sb_onnx_scope *scope, const Pb__Node *node,
                           const Pb__Attribute *a, sb_status code,
                           const char *why)
{
    return sb_fail(
        scope->loader->ctx, code, "node '%s' (%s): attribute '%s' %s",
        sb_onnx_node_label(node), node->op_type, a->name ? a->name : "", why);
}

/* The first versions of ONNX had no type field. */
static int type_of(const Pb__Attribute *a)
{
    if (a->type)
        return a->type;
    if (a->base.n_unknown_fields)
        return SB_ATTR_OPAQUE;
    return a->has_f       ? SB_ATTR_FLOAT
           : a->has_i     ? SB_ATTR_INT
           : a->has_s     ? SB_ATTR_STRING
           : a->t         ? SB_ATTR_TENSOR
           : a->g         ? SB_ATTR_GRAPH
           : a->n_floats  ? SB_ATTR_FLOATS
           : a->n_ints    ? SB_ATTR_INTS
           : a->n_strings ? SB_ATTR_STRINGS
           : a->n_tensors ? SB_ATTR_TENSORS
           : a->n_graphs  ? SB_ATTR_GRAPHS
                          : SB_ATTR_NONE;
}

static sb_status copy_bytes(sb_graph *g, const ProtobufCBinaryData *from,
                            sb_bytes *out)
{
    char *text = sb_arena_strn(
        g->arena, from->len ? (const char *)from->data : "", from->len);

    *out = (sb_bytes){text, from->len};
    return text ? SB_OK : SB_NO_MEMORY;
}

static sb_status read_strings(sb_graph *g, const Pb__Attribute *a, sb_attr *out)
{
    sb_bytes *strings = sb_arena_alloc(g->arena, a->n_strings, sizeof *strings);

    if (!strings)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < a->n_strings; i++)
        SB_TRY(copy_bytes(g, &a->strings[i], &strings[i]));
    out->strings = strings;
    out->n = a->n_strings;
    return SB_OK;
}

static sb_status read_tensors(sb_onnx_scope *scope, Pb__Tensor *const *from,
                              size_t n, sb_attr *out)
{
    sb_ctx *ctx = scope->loader->ctx;
    sb_tensor *tensors = sb_alloc(ctx, n, sizeof *tensors);
    sb_status status = tensors ? SB_OK : SB_NO_MEMORY;
    size_t done = 0;

    while (status == SB_OK && done < n) {
        status =
            sb_onnx_tensor(&scope->loader->source, from[done], &tensors[done]);
        done += status == SB_OK;
    }
    if (status == SB_OK)
        status = sb_graph_keep_tensors(scope->graph, tensors, n, &out->t);
    for (size_t i = 0; i < done; i++)
        sb_tensor_drop(&tensors[i]);
    sb_free(ctx, tensors);
    out->n = n;
    return status;
}

static sb_status read_body(sb_onnx_scope *scope, const Pb__Graph *from,
                           sb_draft *draft, sb_graph **out)
{
    sb_onnx_scope inner;

    SB_TRY(sb_graph_create_sub(scope->graph, from->name, out));
    sb_onnx_scope_init(&inner, scope->loader, scope, *out);
    sb_status status = sb_onnx_read_graph(&inner, from);
    if (status == SB_OK)
        status =
            sb_grow(scope->loader->ctx, &draft->implicit, &draft->cap_implicit,
                    draft->n_implicit + inner.n_outer, sizeof *draft->implicit);
    for (size_t i = 0; status == SB_OK && i < inner.n_outer; i++)
        draft->implicit[draft->n_implicit++] = inner.outer[i];
    sb_onnx_scope_free(&inner);
    return status;
}

static sb_status read_bodies(sb_onnx_scope *scope, Pb__Graph *const *from,
                             size_t n, sb_draft *draft, sb_attr *out)
{
    out->graphs = sb_arena_alloc(scope->graph->arena, n, sizeof *out->graphs);
    if (!out->graphs)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        SB_TRY(read_body(scope, from[i], draft, &out->graphs[i]));
    out->n = n;
    return SB_OK;
}

/* Sparse tensors and type protos, which are unknown fields to us.  A tensor or
 * graph beside them would contradict the type, and may point into the file. */
static sb_status read_opaque(sb_graph *g, const Pb__Attribute *a, sb_attr *out)
{
    Pb__Attribute kept = *a;

    kept.t = NULL;
    kept.g = NULL;
    kept.n_tensors = 0;
    kept.n_graphs = 0;
    out->type = SB_ATTR_OPAQUE;
    return sb_wire_pack(g->arena, &kept.base, &out->opaque);
}

/* Everything but the name. */
static sb_status read_value(sb_onnx_scope *scope, const Pb__Node *node,
                            const Pb__Attribute *a, sb_draft *draft,
                            sb_attr *out)
{
    sb_graph *g = scope->graph;
    int type = type_of(a);

    out->type = (sb_attr_type)type;
    switch (type) {
    case SB_ATTR_FLOAT:
        out->f = a->f;
        return SB_OK;
    case SB_ATTR_INT:
        out->i = a->i;
        return SB_OK;
    case SB_ATTR_STRING:
        return copy_bytes(g, &a->s, &out->s);
    case SB_ATTR_TENSOR:
        if (!a->t)
            return attr_fail(scope, node, a, SB_BAD_MODEL, "has no tensor");
        return read_tensors(scope, &a->t, 1, out);
    case SB_ATTR_GRAPH:
        if (!a->g)
            return attr_fail(scope, node, a, SB_BAD_MODEL, "has no graph");
        return read_bodies(scope, &a->g, 1, draft, out);
    case SB_ATTR_FLOATS:
        out->n = a->n_floats;
        out->floats =
            sb_arena_copy(g->arena, a->floats, a->n_floats * sizeof(float));
        return out->floats ? SB_OK : SB_NO_MEMORY;
    case SB_ATTR_INTS:
        out->n = a->n_ints;
        out->ints =
            sb_arena_copy(g->arena, a->ints, a->n_ints * sizeof(int64_t));
        return out->ints ? SB_OK : SB_NO_MEMORY;
    case SB_ATTR_STRINGS:
        return read_strings(g, a, out);
    case SB_ATTR_TENSORS:
        return read_tensors(scope, a->tensors, a->n_tensors, out);
    case SB_ATTR_GRAPHS:
        return read_bodies(scope, a->graphs, a->n_graphs, draft, out);
    default:
        if (type != SB_ATTR_OPAQUE &&
            (type < TYPE_SPARSE_TENSOR || type > TYPE_TYPE_PROTOS))
            return attr_fail(scope, node, a, SB_BAD_MODEL, "has no type");
        return read_opaque(g, a, out);
    }
}

/* ---- references in functions -------------------------------------------- */

static const sb_attr *find_attr(const sb_draft *d, const char *name)
{
    for (size_t i = 0; i < d->n_attrs; i++)
        if (strcmp(d->attrs[i].name, name) == 0)
            return &d->attrs[i];
    return NULL;
}

static const Pb__Attribute *find_default(const Pb__Function *f,
                                         const char *name)
{
    for (size_t i = 0; i < f->n_attribute_proto; i++)
        if (f->attribute_proto[i]->name &&
            strcmp(f->attribute_proto[i]->name, name) == 0)
            return f->attribute_proto[i];
    return NULL;
}

/* `found` is false if neither the call nor the function gives the value. */
static sb_status read_reference(sb_onnx_scope *scope, const Pb__Node *node,
                                const Pb__Attribute *a, sb_draft *draft,
                                sb_attr *out, bool *found)
{
    *found = true;
    if (!scope->function)
        return attr_fail(scope, node, a, SB_BAD_MODEL,
                         "refers to an attribute outside of a function");
    const sb_attr *given = find_attr(scope->call, a->ref_attr_name);
    if (given) {
        if (given->type == SB_ATTR_GRAPH || given->type == SB_ATTR_GRAPHS)
            return attr_fail(scope, node, a, SB_UNSUPPORTED,
                             "hands a graph to a function");
        *out = *given;
        return SB_OK;
    }
    const Pb__Attribute *other =
        find_default(scope->function, a->ref_attr_name);
    if (other && !(other->ref_attr_name && other->ref_attr_name[0]))
        return read_value(scope, node, other, draft, out);
    *found = false;
    return SB_OK;
}

static sb_status read_attr(sb_onnx_scope *scope, const Pb__Node *node,
                           const Pb__Attribute *a, sb_draft *draft)
{
    sb_graph *g = scope->graph;
    sb_attr attr = {0};
    bool found = true;

    if (!a->name || !a->name[0])
        return attr_fail(scope, node, a, SB_BAD_MODEL, "has no name");
    if (find_attr(draft, a->name))
        return attr_fail(scope, node, a, SB_BAD_MODEL, "is given twice");
    if (a->ref_attr_name && a->ref_attr_name[0])
        SB_TRY(read_reference(scope, node, a, draft, &attr, &found));
    else
        SB_TRY(read_value(scope, node, a, draft, &attr));
    if (!found)
        return SB_OK;
    attr.name = sb_arena_str(g->arena, a->name);
    attr.doc = a->doc_string ? sb_arena_str(g->arena, a->doc_string) : NULL;
    if (!attr.name || (a->doc_string && !attr.doc))
        return SB_NO_MEMORY;
    SB_TRY(sb_grow(g->ctx, &draft->attrs, &draft->cap_attrs, draft->n_attrs + 1,
                   sizeof *draft->attrs));
    draft->attrs[draft->n_attrs++] = attr;
    return SB_OK;
}

sb_status sb_onnx_read_attrs(sb_onnx_scope *scope, const Pb__Node *node,
                             sb_draft *draft)
{
    if (node->n_attribute > MAX_ATTRS)
        return sb_fail(scope->loader->ctx, SB_UNSUPPORTED,
                       "node '%s' (%s) has %zu attributes, at most %d",
                       sb_onnx_node_label(node), node->op_type,
                       node->n_attribute, MAX_ATTRS);
    for (size_t i = 0; i < node->n_attribute; i++)
        SB_TRY(read_attr(scope, node, node->attribute[i], draft));
    return SB_OK;
}
