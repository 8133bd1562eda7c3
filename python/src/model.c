/* Models: loading, saving, changing. */
#include "core.h"

static PyObject *model_load(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "", "keep_inputs", NULL};
    sb_load_options opt = SB_LOAD_OPTIONS_INIT;
    PyObject *path = NULL;
    py_context *c;
    sb_model *model = NULL;
    py_call call;

    (void)self;
    if (!py_parse_keywords(args, keywords, "O&O&|p", names, py_arg_context, &c,
                           py_arg_path, &path, &opt.keep_inputs))
        return NULL;
    if (py_call_begin(&call, c) != 0) {
        Py_DECREF(path);
        return NULL;
    }
    sb_status s =
        sb_model_load_with(c->ctx, PyBytes_AsString(path), &opt, &model);
    PyObject *result = py_call_end_new(&call, s, &py_model_kind, model, NULL);
    Py_DECREF(path);
    return result;
}

static PyObject *model_load_memory(PyObject *self, PyObject *args)
{
    py_context *c;
    const char *folder = NULL;
    Py_buffer data;
    sb_model *model = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&y*|z", py_arg_context, &c, &data, &folder))
        return NULL;
    if (py_call_begin(&call, c) != 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    sb_status s = sb_model_load_memory(c->ctx, data.buf, (size_t)data.len,
                                       folder, &model);
    PyObject *result = py_call_end_new(&call, s, &py_model_kind, model, NULL);
    PyBuffer_Release(&data);
    return result;
}

static PyObject *model_parse(PyObject *self, PyObject *args)
{
    py_context *c;
    const char *text;
    sb_model *model = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&s", py_arg_context, &c, &text) ||
        py_call_begin(&call, c) != 0)
        return NULL;
    sb_status s = sb_model_parse(c->ctx, text, &model);
    return py_call_end_new(&call, s, &py_model_kind, model, NULL);
}

static PyObject *model_new(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"",      "",        "channels", "height",
                            "width", "classes", "seed",     NULL};
    sb_new_options opt = SB_NEW_OPTIONS_INIT;
    long long channels = 0, height = 0, width = 0, classes = 0;
    unsigned long long seed = 0;
    const char *name;
    py_context *c;
    sb_model *model = NULL;
    py_call call;

    (void)self;
    if (!py_parse_keywords(args, keywords, "O&s|LLLLK", names, py_arg_context,
                           &c, &name, &channels, &height, &width, &classes,
                           &seed) ||
        py_call_begin(&call, c) != 0)
        return NULL;
    opt.channels = channels;
    opt.height = height;
    opt.width = width;
    opt.classes = classes;
    opt.seed = seed;
    sb_status s = sb_model_new(c->ctx, name, &opt, &model);
    return py_call_end_new(&call, s, &py_model_kind, model, NULL);
}

/* Both locks, in an order that two threads agree on. */
static int lock_both(py_context *a, py_context *b)
{
    py_context *first = a < b ? a : b, *second = a < b ? b : a;

    if (py_lock(first) != 0)
        return -1;
    if (first != second && py_lock(second) != 0) {
        py_unlock(first);
        return -1;
    }
    return 0;
}

/* A clone shares weights, so the context of the original stays, and what that
 * shared them with. */
static PyObject *model_clone(PyObject *self, PyObject *args)
{
    py_context *c;
    py_handle *from;
    sb_model *model = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", py_arg_context, &c, py_arg_model,
                          &from))
        return NULL;
    PyObject *keep = PyTuple_Pack(2, (PyObject *)from->context,
                                  from->keep ? from->keep : Py_None);
    if (!keep || lock_both(c, from->context) != 0) {
        Py_XDECREF(keep);
        return NULL;
    }
    py_call_begin_locked(&call, c);
    sb_status s = sb_model_clone(c->ctx, from->pointer, &model);
    PyObject *result = py_call_end_new(&call, s, &py_model_kind, model, keep);
    Py_DECREF(keep);
    if (c != from->context)
        py_unlock(from->context);
    return result;
}

static PyObject *model_save(PyObject *self, PyObject *args)
{
    py_handle *m;
    PyObject *path = NULL;
    int sparse = 0;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&|p", py_arg_model, &m, py_arg_path, &path,
                          &sparse))
        return NULL;
    if (py_call_begin(&call, m->context) != 0) {
        Py_DECREF(path);
        return NULL;
    }
    sb_model_set_sparse(m->pointer, sparse);
    int failed =
        py_call_end(&call, sb_model_save(m->pointer, PyBytes_AsString(path)));
    Py_DECREF(path);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *model_save_memory(PyObject *self, PyObject *args)
{
    py_handle *m;
    void *bytes = NULL;
    size_t size = 0;
    int sparse = 0;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&|p", py_arg_model, &m, &sparse) ||
        py_call_begin(&call, m->context) != 0)
        return NULL;
    sb_model_set_sparse(m->pointer, sparse);
    sb_status s = sb_model_save_memory(m->pointer, &bytes, &size);
    int failed = py_call_end(&call, s);
    PyObject *result =
        failed ? NULL : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
    sb_memory_free(bytes);
    return result;
}

static PyObject *model_set_opset(PyObject *self, PyObject *args)
{
    py_handle *m;
    long long opset;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&L", py_arg_model, &m, &opset) ||
        py_call_begin(&call, m->context) != 0 ||
        py_call_end(&call, sb_model_set_opset(m->pointer, opset)) != 0)
        return NULL;
    Py_RETURN_NONE;
}

PY_ARRAY_CALL(model, model_set_weight, sb_model_set_weight);

static PyObject *model_set_metadata(PyObject *self, PyObject *args)
{
    py_handle *m;
    const char *key, *value;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&sz", py_arg_model, &m, &key, &value) ||
        py_call_begin(&call, m->context) != 0 ||
        py_call_end(&call, sb_model_set_metadata(m->pointer, key, value)) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *model_fix_shape(PyObject *self, PyObject *args)
{
    py_handle *m;
    const char *name;
    PyObject *shape;
    int64_t dims[SB_RANK_MAX] = {0};
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&sO", py_arg_model, &m, &name, &shape))
        return NULL;
    Py_ssize_t n = PySequence_Size(shape);
    if (n < 0 || n > SB_RANK_MAX) {
        if (n >= 0)
            PyErr_Format(PyExc_ValueError, "%zd dimensions, at most %d", n,
                         SB_RANK_MAX);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(shape, i);
        dims[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
    }
    if (PyErr_Occurred() || py_call_begin(&call, m->context) != 0 ||
        py_call_end(&call,
                    sb_model_fix_shape(m->pointer, name, (int)n, dims)) != 0)
        return NULL;
    Py_RETURN_NONE;
}

PY_ARRAY_CALL(model, model_fix_value, sb_model_fix_value);

static PyObject *model_simplify(PyObject *self, PyObject *args)
{
    py_handle *m;
    sb_simplify_options opt = SB_SIMPLIFY_OPTIONS_INIT;
    const sb_pass_result *const *results = NULL;
    size_t n = 0;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&|s", py_arg_model, &m, &opt.passes) ||
        py_call_begin(&call, m->context) != 0 ||
        py_call_finish(&call,
                       sb_model_simplify(m->pointer, &opt, &results, &n)) != 0)
        return NULL;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *item = Py_BuildValue(
            "{s:s,s:n,s:d}", "name", results[i]->name, "changes",
            (Py_ssize_t)results[i]->changes, "seconds", results[i]->seconds);
        py_append(&list, item);
    }
    py_unlock(m->context);
    return list;
}

static PyObject *model_dynamic(PyObject *self, PyObject *args)
{
    py_handle *m;
    int done = 0;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_model, &m) ||
        py_call_begin(&call, m->context) != 0 ||
        py_call_end(&call, sb_model_make_batch_dynamic(m->pointer, &done)) != 0)
        return NULL;
    return PyBool_FromLong(done);
}

PyMethodDef py_model_methods[] = {
    {"model_load", PY_KEYWORDS(model_load), METH_VARARGS | METH_KEYWORDS,
     "model_load(context, path, keep_inputs=False)"},
    {"model_load_memory", model_load_memory, METH_VARARGS,
     "model_load_memory(context, bytes, folder=None)"},
    {"model_parse", model_parse, METH_VARARGS, "model_parse(context, text)"},
    {"model_new", PY_KEYWORDS(model_new), METH_VARARGS | METH_KEYWORDS,
     "model_new(context, name, channels, height, width, classes, seed)"},
    {"model_clone", model_clone, METH_VARARGS, "model_clone(context, model)"},
    {"model_save", model_save, METH_VARARGS,
     "model_save(model, path, sparse=False)"},
    {"model_save_memory", model_save_memory, METH_VARARGS,
     "model_save_memory(model, sparse=False)"},
    {"model_set_opset", model_set_opset, METH_VARARGS,
     "model_set_opset(model, opset)"},
    {"model_set_weight", model_set_weight, METH_VARARGS,
     "model_set_weight(model, name, array)"},
    {"model_set_metadata", model_set_metadata, METH_VARARGS,
     "model_set_metadata(model, key, value)"},
    {"model_fix_shape", model_fix_shape, METH_VARARGS,
     "model_fix_shape(model, name, shape)"},
    {"model_fix_value", model_fix_value, METH_VARARGS,
     "model_fix_value(model, name, array)"},
    {"model_simplify", model_simplify, METH_VARARGS,
     "model_simplify(model, passes='simplify')"},
    {"model_make_batch_dynamic", model_dynamic, METH_VARARGS,
     "model_make_batch_dynamic(model)"},
    {NULL, NULL, 0, NULL}};
