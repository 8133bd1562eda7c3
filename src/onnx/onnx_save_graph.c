/* Graphs to GraphProto.
 *
 * Names are the values' own, except that ONNX forbids a sub-graph to define a
 * name of an enclosing graph; such a value is renamed in the file.  Captured
 * values are written by the name of the outer value. */
#include "onnx/onnx_save.h"

#include <string.h>

typedef struct save_scope save_scope;
struct save_scope {
    sb_onnx_saver *saver;
    const save_scope *parent;
    const sb_graph *graph;
    const char **names; /* of each value, in the file */
};

#define NEW(saver, type, init, out)                                     \
    (((out) = sb_arena_alloc(&(saver)->arena, 1, sizeof(type))) != NULL \
         ? (init(out), SB_OK)                                           \
         : SB_NO_MEMORY)

static void *new_array(sb_onnx_saver *s, size_t n)
{
    return sb_arena_alloc(&s->arena, n, sizeof(void *));
}

/* ---- what only had to survive ------------------------------------------- */

sb_status sb_onnx_write_props(sb_onnx_saver *s, const sb_prop *props, size_t n,
                              Pb__Prop ***out)
{
    *out = new_array(s, n);
    if (!*out)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        SB_TRY(NEW(s, Pb__Prop, pb__prop__init, (*out)[i]));
        (*out)[i]->key = sb_onnx_text(props[i].key);
        (*out)[i]->value = sb_onnx_text(props[i].value);
    }
    return SB_OK;
}

static sb_status write_extra(sb_onnx_saver *s, const sb_extra *extra,
                             char **doc, Pb__Prop ***props, size_t *n_props,
                             ProtobufCMessage *msg)
{
    if (extra->doc)
        *doc = sb_onnx_text(extra->doc);
    if (extra->n_props > 0)
        SB_TRY(sb_onnx_write_props(s, extra->props, extra->n_props, props));
    *n_props = extra->n_props;
    return sb_wire_set_unknown(&s->arena, extra->unknown, msg);
}

/* ---- names -------------------------------------------------------------- */

static bool taken_outside(const save_scope *scope, const char *name)
{
    for (const save_scope *s = scope->parent; s; s = s->parent)
        if (sb_graph_find_value(s->graph, name) != SB_NONE)
            return true;
    return false;
}

static sb_status choose_name(save_scope *scope, sb_value_id id)
{
    const char *name = scope->graph->values[id].name;
    const char *free_name = name;

    for (unsigned n = 1;
         taken_outside(scope, free_name) ||
         (free_name != name &&
          sb_graph_find_value(scope->graph, free_name) != SB_NONE);
         n++) {
        free_name = sb_arena_printf(&scope->saver->arena, "%s_%u", name, n);
        if (!free_name)
            return SB_NO_MEMORY;
    }
    scope->names[id] = free_name;
    return SB_OK;
}

/* `outer` are the names of the captured values, in order. */
static sb_status choose_names(save_scope *scope, const char *const *outer)
{
    const sb_graph *g = scope->graph;

    scope->names = new_array(scope->saver, g->n_values);
    if (!scope->names)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_captures; i++)
        scope->names[g->captures[i]] = outer[i];
    for (size_t i = 0; i < g->n_values; i++)
        if (!g->values[i].is_capture)
            SB_TRY(choose_name(scope, (sb_value_id)i));
    return SB_OK;
}

/* ---- values ------------------------------------------------------------- */

static sb_status write_shape(save_scope *scope, const sb_shape *from,
                             Pb__Shape **out)
{
    sb_onnx_saver *s = scope->saver;
    Pb__Shape *shape = NULL;

    SB_TRY(NEW(s, Pb__Shape, pb__shape__init, shape));
    shape->dim = new_array(s, (size_t)from->rank);
    if (!shape->dim)
        return SB_NO_MEMORY;
    for (int i = 0; i < from->rank; i++) {
        Pb__Dim *d = NULL;
        const char *symbol = sb_graph_symbol_name(scope->graph, from->dim[i]);
        SB_TRY(NEW(s, Pb__Dim, pb__dim__init, d));
        if (sb_dim_known(from->dim[i])) {
            d->value_case = PB__DIM__VALUE_DIM_VALUE;
            d->dim_value = from->dim[i];
        } else if (symbol) {
            d->value_case = PB__DIM__VALUE_DIM_PARAM;
            d->dim_param = sb_onnx_text(symbol);
        }
        shape->dim[shape->n_dim++] = d;
    }
    *out = shape;
    return SB_OK;
}

/* Denotations of the type that the file gave, as far as the rank still fits. */
static sb_status write_denotations(sb_onnx_saver *s, const sb_value *v,
                                   Pb__Type *type)
{
    const ProtobufCMessage *msg = NULL;

    if (v->denoted_type.len == 0)
        return SB_OK;
    SB_TRY(sb_wire_unpack(&s->arena, v->name, &pb__type__descriptor,
                          v->denoted_type.data, v->denoted_type.len, &msg));
    const Pb__Type *from = (const Pb__Type *)msg;
    const Pb__Shape *old = from->tensor_type ? from->tensor_type->shape : NULL;
    Pb__Shape *now = type->tensor_type->shape;
    type->denotation = from->denotation;
    for (size_t i = 0; old && now && old->n_dim == now->n_dim && i < old->n_dim;
         i++)
        now->dim[i]->denotation = old->dim[i]->denotation;
    return SB_OK;
}

/* *out stays NULL if nothing is known. */
static sb_status write_type(save_scope *scope, const sb_value *v,
                            Pb__Type **out)
{
    sb_onnx_saver *s = scope->saver;
    Pb__Type *type = NULL;

    if (v->opaque_type.len > 0) {
        SB_TRY(NEW(s, Pb__Type, pb__type__init, type));
        SB_TRY(sb_wire_set_unknown(&s->arena, v->opaque_type, &type->base));
        *out = type;
        return SB_OK;
    }
    if (!sb_dtype_valid((int)v->type.dtype))
        return SB_OK;
    SB_TRY(NEW(s, Pb__Type, pb__type__init, type));
    SB_TRY(NEW(s, Pb__TensorType, pb__tensor_type__init, type->tensor_type));
    type->tensor_type->has_elem_type = 1;
    type->tensor_type->elem_type = (int32_t)v->type.dtype;
    if (v->type.shape.rank >= 0)
        SB_TRY(write_shape(scope, &v->type.shape, &type->tensor_type->shape));
    *out = type;
    return write_denotations(s, v, type);
}

static sb_status write_info(save_scope *scope, sb_value_id id,
                            Pb__ValueInfo **out)
{
    const sb_value *v = sb_graph_value(scope->graph, id);
    Pb__ValueInfo *info = NULL;

    SB_TRY(NEW(scope->saver, Pb__ValueInfo, pb__value_info__init, info));
    info->name = sb_onnx_text(scope->names[id]);
    SB_TRY(write_type(scope, v, &info->type));
    *out = info;
    return write_extra(scope->saver, &v->extra, &info->doc_string,
                       &info->metadata_props, &info->n_metadata_props,
                       &info->base);
}

static sb_status write_infos(save_scope *scope, const sb_value_id *ids,
                             size_t n, Pb__ValueInfo ***out, size_t *n_out)
{
    *out = new_array(scope->saver, n);
    if (!*out)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        SB_TRY(write_info(scope, ids[i], &(*out)[i]));
    *n_out = n;
    return SB_OK;
}

/* Results of nodes of which something is known. */
static sb_status write_value_infos(save_scope *scope, Pb__Graph *out)
{
    const sb_graph *g = scope->graph;

    out->value_info = new_array(scope->saver, g->n_values);
    if (!out->value_info)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_values; i++) {
        const sb_value *v = &g->values[i];
        bool known =
            sb_dtype_valid((int)v->type.dtype) || v->opaque_type.len > 0;
        if (v->producer != SB_NONE && !v->is_output && known)
            SB_TRY(write_info(scope, (sb_value_id)i,
                              &out->value_info[out->n_value_info++]));
    }
    return SB_OK;
}

/* Constants that nothing reads are left out, unless the graph has parts that
 * we do not understand and that might refer to them. */
static bool constant_needed(const sb_graph *g, const sb_value *v)
{
    return v->is_constant && (v->n_uses > 0 || v->is_output || v->is_input ||
                              g->extra.unknown.len > 0);
}

/* Only constants of the whole network: runtimes expect no others.  Not beside
 * external data, which only dense ones can be in. */
static bool constant_sparse(const save_scope *scope, const sb_value *v)
{
    return scope->graph->file_sparse && !scope->parent && !scope->saver->data &&
           !v->is_input && !v->is_output && sb_onnx_sparse_pays(&v->constant);
}

static sb_status write_initializers(save_scope *scope, Pb__Graph *out)
{
    const sb_graph *g = scope->graph;
    size_t n = 0;

    for (size_t i = 0; i < g->n_values; i++)
        n += constant_needed(g, &g->values[i]);
    out->initializer = new_array(scope->saver, n);
    out->sparse_initializer = new_array(scope->saver, n);
    if (!out->initializer || !out->sparse_initializer)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_values; i++) {
        const sb_value *v = &g->values[i];
        Pb__SparseTensor *sparse = NULL;
        Pb__Tensor *t = NULL;
        if (!constant_needed(g, v))
            continue;
        if (constant_sparse(scope, v)) {
            SB_TRY(sb_onnx_write_sparse(scope->saver, scope->names[i],
                                        &v->constant, &sparse));
            out->sparse_initializer[out->n_sparse_initializer++] = sparse;
            t = sparse->values;
        } else {
            SB_TRY(sb_onnx_write_tensor(scope->saver, scope->names[i],
                                        &v->constant, &t));
            out->initializer[out->n_initializer++] = t;
        }
        SB_TRY(write_extra(scope->saver, &v->const_extra, &t->doc_string,
                           &t->metadata_props, &t->n_metadata_props, &t->base));
    }
    return SB_OK;
}

/* ---- attributes --------------------------------------------------------- */

static sb_status write_scope(save_scope *scope, const char *const *outer,
                             Pb__Graph **out);

/* `*n_before` counts the captures of the bodies before this one. */
static sb_status write_body(const save_scope *scope, const sb_node *node,
                            const sb_graph *body, size_t *n_before,
                            Pb__Graph **out)
{
    sb_onnx_saver *s = scope->saver;
    save_scope inner = {.saver = s, .parent = scope, .graph = body};
    const char **outer = new_array(s, body->n_captures);

    if (!outer)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < body->n_captures; i++)
        outer[i] = scope->names[node->inputs[node->n_in + *n_before + i]];
    *n_before += body->n_captures;
    return write_scope(&inner, outer, out);
}

static sb_status write_strings(sb_onnx_saver *s, const sb_attr *a,
                               Pb__Attribute *out)
{
    out->strings = sb_arena_alloc(&s->arena, a->n, sizeof *out->strings);
    if (!out->strings)
        return SB_NO_MEMORY;
    out->n_strings = a->n;
    for (size_t i = 0; i < a->n; i++) {
        out->strings[i].len = a->strings[i].len;
        out->strings[i].data = (uint8_t *)sb_onnx_text(a->strings[i].data);
    }
    return SB_OK;
}

static sb_status write_lists(const save_scope *scope, const sb_node *node,
                             const sb_attr *a, size_t *n_before,
                             Pb__Attribute *out)
{
    sb_onnx_saver *s = scope->saver;

    switch (a->type) {
    case SB_ATTR_FLOATS:
        out->n_floats = a->n;
        out->floats =
            sb_arena_copy(&s->arena, a->floats, a->n * sizeof *a->floats);
        return out->floats ? SB_OK : SB_NO_MEMORY;
    case SB_ATTR_INTS:
        out->n_ints = a->n;
        out->ints = sb_arena_copy(&s->arena, a->ints, a->n * sizeof *a->ints);
        return out->ints ? SB_OK : SB_NO_MEMORY;
    case SB_ATTR_STRINGS:
        return write_strings(s, a, out);
    case SB_ATTR_TENSORS:
        out->tensors = new_array(s, a->n);
        if (!out->tensors)
            return SB_NO_MEMORY;
        for (; out->n_tensors < a->n; out->n_tensors++)
            SB_TRY(sb_onnx_write_tensor(s, NULL, &a->t[out->n_tensors],
                                        &out->tensors[out->n_tensors]));
        return SB_OK;
    default:
        out->graphs = new_array(s, a->n);
        if (!out->graphs)
            return SB_NO_MEMORY;
        for (; out->n_graphs < a->n; out->n_graphs++)
            SB_TRY(write_body(scope, node, a->graphs[out->n_graphs], n_before,
                              &out->graphs[out->n_graphs]));
        return SB_OK;
    }
}

static sb_status write_attr(const save_scope *scope, const sb_node *node,
                            const sb_attr *a, size_t *n_before,
                            Pb__Attribute **made)
{
    sb_onnx_saver *s = scope->saver;
    Pb__Attribute *out = NULL;

    SB_TRY(NEW(s, Pb__Attribute, pb__attribute__init, out));
    *made = out;
    if (a->type == SB_ATTR_OPAQUE) /* the whole message, name and all */
        return sb_wire_set_unknown(&s->arena, a->opaque, &out->base);
    out->name = sb_onnx_text(a->name);
    out->doc_string = sb_onnx_text(a->doc);
    out->has_type = 1;
    out->type = (int32_t)a->type;
    switch (a->type) {
    case SB_ATTR_FLOAT:
        out->has_f = 1;
        out->f = a->f;
        return SB_OK;
    case SB_ATTR_INT:
        out->has_i = 1;
        out->i = a->i;
        return SB_OK;
    case SB_ATTR_STRING:
        out->has_s = 1;
        out->s.len = a->s.len;
        out->s.data = (uint8_t *)sb_onnx_text(a->s.data);
        return SB_OK;
    case SB_ATTR_TENSOR:
        return sb_onnx_write_tensor(s, NULL, a->t, &out->t);
    case SB_ATTR_GRAPH:
        return write_body(scope, node, a->graphs[0], n_before, &out->g);
    default:
        return write_lists(scope, node, a, n_before, out);
    }
}

/* ---- nodes -------------------------------------------------------------- */

static sb_status write_names(const save_scope *scope, const sb_value_id *ids,
                             size_t n, char ***out, size_t *n_out)
{
    *out = new_array(scope->saver, n);
    if (!*out)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        (*out)[i] = sb_onnx_text(ids[i] == SB_NONE ? "" : scope->names[ids[i]]);
    *n_out = n;
    return SB_OK;
}

static sb_status write_node(const save_scope *scope, const sb_node *node,
                            Pb__Node **made)
{
    sb_onnx_saver *s = scope->saver;
    Pb__Node *out = NULL;
    size_t n_in = node->n_in;
    size_t n_before = 0;

    SB_TRY(NEW(s, Pb__Node, pb__node__init, out));
    *made = out;
    while (n_in > 0 && node->inputs[n_in - 1] == SB_NONE)
        n_in--;
    SB_TRY(write_names(scope, node->inputs, n_in, &out->input, &out->n_input));
    SB_TRY(write_names(scope, node->outputs, node->n_out, &out->output,
                       &out->n_output));
    out->op_type = sb_onnx_text(node->op);
    if (node->name[0])
        out->name = sb_onnx_text(node->name);
    if (node->domain[0])
        out->domain = sb_onnx_text(node->domain);
    if (node->overload[0])
        out->overload = sb_onnx_text(node->overload);
    out->attribute = new_array(s, node->n_attrs);
    if (!out->attribute)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < node->n_attrs; i++)
        SB_TRY(write_attr(scope, node, &node->attrs[i], &n_before,
                          &out->attribute[out->n_attribute++]));
    return write_extra(s, &node->extra, &out->doc_string, &out->metadata_props,
                       &out->n_metadata_props, &out->base);
}

static sb_status write_nodes(const save_scope *scope, Pb__Graph *out)
{
    const sb_graph *g = scope->graph;
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_order(g, &order, &n));
    out->node = new_array(scope->saver, n);
    sb_status status = out->node ? SB_OK : SB_NO_MEMORY;
    for (size_t i = 0; status == SB_OK && i < n; i++)
        status = write_node(scope, sb_graph_node(g, order[i]),
                            &out->node[out->n_node++]);
    sb_free(g->ctx, order);
    return status;
}

static sb_status write_scope(save_scope *scope, const char *const *outer,
                             Pb__Graph **made)
{
    const sb_graph *g = scope->graph;
    Pb__Graph *out = NULL;

    SB_TRY(NEW(scope->saver, Pb__Graph, pb__graph__init, out));
    *made = out;
    SB_TRY(choose_names(scope, outer));
    out->name = sb_onnx_text(g->name[0] ? g->name : "graph");
    SB_TRY(
        write_infos(scope, g->inputs, g->n_inputs, &out->input, &out->n_input));
    SB_TRY(write_infos(scope, g->outputs, g->n_outputs, &out->output,
                       &out->n_output));
    SB_TRY(write_initializers(scope, out));
    SB_TRY(write_nodes(scope, out));
    SB_TRY(write_value_infos(scope, out));
    return write_extra(scope->saver, &g->extra, &out->doc_string,
                       &out->metadata_props, &out->n_metadata_props,
                       &out->base);
}

sb_status sb_onnx_write_graph(sb_onnx_saver *s, Pb__Graph **out)
{
    save_scope scope = {.saver = s, .graph = s->root};

    return write_scope(&scope, NULL, out);
}
