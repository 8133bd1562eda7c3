/* Looking into models: what is in them, as dicts and lists. */
#include "core.h"

static PyObject *value_dict(const sb_value_info *v)
{
    PyObject *d = Py_BuildValue(
        "{s:s,s:N,s:N,s:i,s:i,s:i,s:n}", "dtype", sb_dtype_name(v->dtype),
        "name", py_text(v->name), "text", py_text(v->text), "is_input",
        v->is_input, "is_output", v->is_output, "is_constant", v->is_constant,
        "consumers", (Py_ssize_t)v->n_consumers);

    if (d && (py_set(d, "shape",
                     v->rank >= 0 ? py_int_list(v->dims, (size_t)v->rank)
                                  : Py_NewRef(Py_None)) != 0 ||
              py_set(d, "producer",
                     v->producer == SB_NO_INDEX
                         ? Py_NewRef(Py_None)
                         : PyLong_FromSize_t(v->producer)) != 0))
        Py_CLEAR(d);
    return d;
}

static PyObject *inspect_ends(PyObject *args, size_t (*count)(const sb_model *),
                              const sb_value_info *(*get)(const sb_model *,
                                                          size_t))
{
    py_handle *m;

    if (!PyArg_ParseTuple(args, "O&", py_arg_model, &m) ||
        py_lock(m->context) != 0)
        return NULL;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count(m->pointer); i++)
        py_append(&list, value_dict(get(m->pointer, i)));
    py_unlock(m->context);
    return list;
}

static PyObject *inspect_inputs(PyObject *self, PyObject *args)
{
    (void)self;
    return inspect_ends(args, sb_model_input_count, sb_model_input);
}

static PyObject *inspect_outputs(PyObject *self, PyObject *args)
{
    (void)self;
    return inspect_ends(args, sb_model_output_count, sb_model_output);
}

static PyObject *inspect_values(PyObject *self, PyObject *args)
{
    py_handle *m;
    const sb_value_info *const *values = NULL;
    size_t n = 0;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_model, &m) ||
        py_call_begin(&call, m->context) != 0 ||
        py_call_finish(&call, sb_model_values(m->pointer, &values, &n)) != 0)
        return NULL;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < n; i++)
        py_append(&list, value_dict(values[i]));
    py_unlock(m->context);
    return list;
}

/* ---- nodes -------------------------------------------------------------- */

static PyObject *text_list(const char *const *v, size_t n)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < n; i++)
        py_append(&list, py_text(v[i]));
    return list;
}

static PyObject *tensor_copies(py_context *c, const sb_attr_info *a)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < a->n; i++) {
        sb_tensor *copy = NULL;
        sb_status s = sb_tensor_copy(c->ctx, a->tensors[i], &copy);
        py_append(&list, s == SB_OK ? py_tensor_new(c, copy)
                                    : py_raise(s, sb_ctx_error(c->ctx)));
    }
    return list;
}

/* One value of a single attribute, a list of the others, None for graphs. */
static PyObject *attr_value(py_context *c, const sb_attr_info *a)
{
    PyObject *list = NULL;
    bool single = false;

    switch (a->type) {
    case SB_ATTR_FLOAT:
    case SB_ATTR_FLOATS:
        list = py_float_list(a->floats, a->n);
        single = a->type == SB_ATTR_FLOAT;
        break;
    case SB_ATTR_INT:
    case SB_ATTR_INTS:
        list = py_int_list(a->ints, a->n);
        single = a->type == SB_ATTR_INT;
        break;
    case SB_ATTR_STRING:
    case SB_ATTR_STRINGS:
        list = text_list(a->strings, a->n);
        single = a->type == SB_ATTR_STRING;
        break;
    case SB_ATTR_TENSOR:
    case SB_ATTR_TENSORS:
        list = tensor_copies(c, a);
        single = a->type == SB_ATTR_TENSOR;
        break;
    default:
        return Py_NewRef(Py_None);
    }
    if (!list || !single)
        return list;
    PyObject *first = PyList_GetItem(list, 0);
    Py_XINCREF(first);
    Py_DECREF(list);
    return first;
}

static PyObject *node_dict(py_context *c, const sb_node_info *n)
{
    PyObject *attrs = PyDict_New();

    for (size_t i = 0; attrs && i < n->n_attrs; i++) {
        if (py_set(attrs, n->attrs[i]->name, attr_value(c, n->attrs[i])) != 0)
            Py_CLEAR(attrs);
    }
    if (!attrs)
        return NULL;
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:N,s:N,s:N}", "name",
                         py_text(n->name), "op", py_text(n->op), "domain",
                         py_text(n->domain), "module", py_text(n->module),
                         "inputs", text_list(n->inputs, n->n_inputs), "outputs",
                         text_list(n->outputs, n->n_outputs), "attrs", attrs);
}

static PyObject *inspect_nodes(PyObject *self, PyObject *args)
{
    py_handle *m;
    const sb_node_info *const *nodes = NULL;
    size_t n = 0;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_model, &m) ||
        py_call_begin(&call, m->context) != 0 ||
        py_call_finish(&call, sb_model_nodes(m->pointer, &nodes, &n)) != 0)
        return NULL;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < n; i++)
        py_append(&list, node_dict(m->context, nodes[i]));
    py_unlock(m->context);
    return list;
}

/* ---- counts ------------------------------------------------------------- */

static PyObject *count_list(const sb_count *const *v, size_t n)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < n; i++)
        py_append(&list,
                  Py_BuildValue("{s:N,s:N,s:n,s:L,s:d,s:N}", "name",
                                py_text(v[i]->name), "domain",
                                py_text(v[i]->domain), "nodes",
                                (Py_ssize_t)v[i]->nodes, "params",
                                (long long)v[i]->params, "macs", v[i]->macs,
                                "runnable", PyBool_FromLong(v[i]->runnable)));
    return list;
}

static PyObject *quant_count_list(const sb_quant_count *const *v, size_t n)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < n; i++)
        py_append(&list,
                  Py_BuildValue("{s:s,s:i,s:s,s:n,s:L}", "dtype",
                                sb_dtype_name(v[i]->dtype), "bits", v[i]->bits,
                                "granularity", v[i]->granularity, "values",
                                (Py_ssize_t)v[i]->values, "elements",
                                (long long)v[i]->elements));
    return list;
}

static PyObject *info_dict(const sb_model_info *i)
{
    PyObject *d = Py_BuildValue(
        "{s:N,s:N,s:N,s:L,s:L,s:n,s:L,s:K,s:K,s:d,s:N}", "name",
        py_text(i->name), "producer", py_text(i->producer), "doc",
        py_text(i->doc), "ir_version", (long long)i->ir_version, "opset",
        (long long)i->opset, "nodes", (Py_ssize_t)i->nodes, "params",
        (long long)i->params, "weight_bytes",
        (unsigned long long)i->weight_bytes, "file_bytes",
        (unsigned long long)i->file_bytes, "macs", i->macs, "macs_assumed",
        PyBool_FromLong(i->macs_assumed));

    if (d &&
        (py_set(d, "ops", count_list(i->ops, i->n_ops)) != 0 ||
         py_set(d, "modules", count_list(i->modules, i->n_modules)) != 0 ||
         py_set(d, "quantize_nodes", PyLong_FromSize_t(i->quantize_nodes)) !=
             0 ||
         py_set(d, "dequantize_nodes",
                PyLong_FromSize_t(i->dequantize_nodes)) != 0 ||
         py_set(d, "integer_nodes", PyLong_FromSize_t(i->integer_nodes)) != 0 ||
         py_set(d, "target", py_text(i->target)) != 0 ||
         py_set(d, "quant_weights",
                quant_count_list(i->quant_weights, i->n_quant_weights)) != 0 ||
         py_set(d, "quant_activations",
                quant_count_list(i->quant_activations,
                                 i->n_quant_activations)) != 0))
        Py_CLEAR(d);
    return d;
}

static PyObject *inspect_info(PyObject *self, PyObject *args)
{
    py_handle *m;
    const sb_model_info *info = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_model, &m) ||
        py_call_begin(&call, m->context) != 0 ||
        py_call_finish(&call, sb_model_info_get(m->pointer, &info)) != 0)
        return NULL;
    PyObject *dict = info_dict(info);
    py_unlock(m->context);
    return dict;
}

static PyObject *inspect_quantized(PyObject *self, PyObject *args)
{
    py_handle *m;
    const sb_quant_value *const *v = NULL;
    size_t n = 0;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_model, &m) ||
        py_call_begin(&call, m->context) != 0 ||
        py_call_finish(&call, sb_model_list_quantized(m->pointer, &v, &n)) != 0)
        return NULL;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < n; i++)
        py_append(&list,
                  Py_BuildValue("{s:N,s:N,s:s,s:i,s:s,s:n,s:f,s:f,s:f,s:f}",
                                "name", py_text(v[i]->name), "is_weight",
                                PyBool_FromLong(v[i]->is_weight), "dtype",
                                sb_dtype_name(v[i]->dtype), "bits", v[i]->bits,
                                "granularity", v[i]->granularity, "scales",
                                (Py_ssize_t)v[i]->n_scales, "scale_min",
                                (double)v[i]->scale_min, "scale_max",
                                (double)v[i]->scale_max, "zero_min",
                                (double)v[i]->zero_min, "zero_max",
                                (double)v[i]->zero_max));
    py_unlock(m->context);
    return list;
}

/* ---- weights, metadata, text -------------------------------------------- */

static PyObject *inspect_weight(PyObject *self, PyObject *args)
{
    py_handle *m;
    const char *name;
    sb_tensor *copy = NULL;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&s", py_arg_model, &m, &name) ||
        py_lock(m->context) != 0)
        return NULL;
    const sb_tensor *t = sb_model_weight(m->pointer, name);
    sb_status s = t ? sb_tensor_copy(m->context->ctx, t, &copy) : SB_OK;
    if (s != SB_OK)
        py_raise(s, sb_ctx_error(m->context->ctx));
    py_unlock(m->context);
    if (s == SB_OK && !t)
        PyErr_Format(PyExc_KeyError, "no constant has the name '%s'", name);
    return copy ? py_tensor_new(m->context, copy) : NULL;
}

static PyObject *inspect_metadata(PyObject *self, PyObject *args)
{
    py_handle *m;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_model, &m) ||
        py_lock(m->context) != 0)
        return NULL;
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sb_model_metadata_count(m->pointer); i++) {
        const char *key = sb_model_metadata_key(m->pointer, i);
        if (py_set(dict, key, py_text(sb_model_metadata(m->pointer, key))) != 0)
            Py_CLEAR(dict);
    }
    py_unlock(m->context);
    return dict;
}

static PyObject *inspect_print(PyObject *self, PyObject *args)
{
    py_handle *m;
    int format;
    char *text = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&i", py_arg_model, &m, &format) ||
        py_call_begin(&call, m->context) != 0 ||
        py_call_end(&call, sb_model_print(m->pointer, (sb_graph_format)format,
                                          &text)) != 0)
        return NULL;
    return py_text_taken(text);
}

static PyObject *inspect_file_bytes(PyObject *self, PyObject *args)
{
    py_handle *m;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_model, &m))
        return NULL;
    return PyLong_FromUnsignedLongLong(sb_model_file_bytes(m->pointer));
}

PyMethodDef py_inspect_methods[] = {
    {"model_inputs", inspect_inputs, METH_VARARGS, "model_inputs(model)"},
    {"model_outputs", inspect_outputs, METH_VARARGS, "model_outputs(model)"},
    {"model_values", inspect_values, METH_VARARGS, "model_values(model)"},
    {"model_nodes", inspect_nodes, METH_VARARGS, "model_nodes(model)"},
    {"model_info", inspect_info, METH_VARARGS, "model_info(model)"},
    {"model_quantized", inspect_quantized, METH_VARARGS,
     "model_quantized(model)"},
    {"model_weight", inspect_weight, METH_VARARGS,
     "model_weight(model, name): a copy"},
    {"model_metadata", inspect_metadata, METH_VARARGS, "model_metadata(model)"},
    {"model_print", inspect_print, METH_VARARGS, "model_print(model, format)"},
    {"model_file_bytes", inspect_file_bytes, METH_VARARGS,
     "model_file_bytes(model)"},
    {NULL, NULL, 0, NULL}};
