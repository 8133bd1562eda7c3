/* calls.c - the shapes that most functions of the module have: an object and
 * nothing else, an object and a path, an object and an array by name, an object
 * and inputs. */
#include "core.h"

PyObject *py_call_end_none(py_call *call, sb_status status)
{
    return py_call_end(call, status) == 0 ? Py_NewRef(Py_None) : NULL;
}

PyObject *py_call_object(PyObject *args, const py_kind *kind, py_object_fn *run)
{
    PyObject *object;
    py_handle *h;
    py_call call;

    if (!PyArg_ParseTuple(args, "O", &object) ||
        !(h = py_handle_get(object, kind)) ||
        py_call_begin(&call, h->context) != 0)
        return NULL;
    return py_call_end_none(&call, run(h->pointer));
}

PyObject *py_call_path(PyObject *args, const py_kind *kind, py_path_fn *run)
{
    PyObject *object, *path = NULL, *result = NULL;
    py_handle *h;
    py_call call;

    if (!PyArg_ParseTuple(args, "OO&", &object, py_arg_path, &path))
        return NULL;
    h = py_handle_get(object, kind);
    if (h && py_call_begin(&call, h->context) == 0)
        result =
            py_call_end_none(&call, run(h->pointer, PyBytes_AsString(path)));
    Py_DECREF(path);
    return result;
}

PyObject *py_call_array(PyObject *args, const py_kind *kind, py_array_fn *run)
{
    PyObject *object, *array, *result = NULL;
    const char *name;
    py_handle *h;
    py_array a;
    py_call call;

    if (!PyArg_ParseTuple(args, "OsO", &object, &name, &array) ||
        !(h = py_handle_get(object, kind)) ||
        py_array_open(&a, array, false) != 0)
        return NULL;
    if (py_call_begin(&call, h->context) == 0) {
        sb_status s = py_array_wrap(&a, h->context->ctx);
        if (s == SB_OK)
            s = run(h->pointer, name, a.tensor);
        py_array_unwrap(&a);
        result = py_call_end_none(&call, s);
    }
    py_array_close(&a);
    return result;
}

PyObject *py_call_outputs(py_handle *h, PyObject *inputs, size_t n,
                          py_outputs_fn *run)
{
    PyObject *list = NULL;
    py_arrays in;
    py_call call;

    if (py_arrays_open(&in, inputs, false) != 0)
        return NULL;
    const sb_tensor **out = PyMem_Calloc(n + 1, sizeof *out);
    sb_tensor **copies = PyMem_Calloc(n + 1, sizeof *copies);
    if (!out || !copies)
        PyErr_NoMemory();
    else if (py_call_begin(&call, h->context) == 0) {
        sb_ctx *ctx = h->context->ctx;
        sb_status s = py_arrays_wrap(&in, ctx);
        if (s == SB_OK)
            s = run(h->pointer, in.tensors, in.n, out, n);
        for (size_t i = 0; s == SB_OK && i < n; i++)
            if (out[i])
                s = sb_tensor_copy(ctx, out[i], &copies[i]);
        py_arrays_unwrap(&in);
        list = py_call_end_tensors(&call, s, copies, n);
    }
    PyMem_Free(out);
    PyMem_Free(copies);
    py_arrays_close(&in);
    return list;
}

void py_append(PyObject **list, PyObject *item)
{
    if (*list && (!item || PyList_Append(*list, item) != 0))
        Py_CLEAR(*list);
    Py_XDECREF(item);
}
