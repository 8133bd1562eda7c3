/* Arrays of the caller: anything with the buffer protocol or DLPack, and what
 * NumPy makes an array of.  Their memory is used as it is, for the time of a
 * call; what is not contiguous is copied. */
#include "core.h"

#include <string.h>

/* ---- looking into an array ---------------------------------------------- */

static int check_shape(const py_array *a)
{
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] < 0) {
            PyErr_SetString(PyExc_ValueError, "a dimension is negative");
            return -1;
        }
    }
    return 0;
}

/* A copy in row-major order. */
static int copy_buffer(py_array *a)
{
    a->copy = PyMem_Malloc((size_t)a->view.len + 1);
    if (!a->copy) {
        PyErr_NoMemory();
        return -1;
    }
    a->data = a->copy;
    return PyBuffer_ToContiguous(a->copy, &a->view, a->view.len, 'C');
}

static int open_buffer(py_array *a, PyObject *object, bool writable)
{
    int flags = writable ? PyBUF_RECORDS : PyBUF_RECORDS_RO;

    if (PyObject_GetBuffer(object, &a->view, flags) != 0) {
        a->view.obj = NULL;
        if (writable && PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Clear();
            PyErr_SetString(PyExc_ValueError, "the output array is read-only");
        }
        return -1;
    }
    a->dtype = py_dtype_of_format(a->view.format, a->view.itemsize);
    if (a->dtype == SB_DTYPE_NONE) {
        PyErr_Format(PyExc_TypeError,
                     "an array of format '%s' has no type of ours: numbers of "
                     "8 to 64 bits in this machine's byte order are allowed",
                     a->view.format);
        return -1;
    }
    if (a->view.ndim > SB_RANK_MAX) {
        PyErr_Format(PyExc_ValueError, "%d dimensions, at most %d",
                     a->view.ndim, SB_RANK_MAX);
        return -1;
    }
    a->rank = a->view.ndim;
    for (int i = 0; i < a->rank; i++)
        a->dims[i] = a->view.shape[i];
    a->data = a->view.buf;
    if (PyBuffer_IsContiguous(&a->view, 'C'))
        return check_shape(a);
    if (writable) {
        PyErr_SetString(PyExc_ValueError, "the output array is not contiguous");
        return -1;
    }
    return copy_buffer(a);
}

/* PyTorch: what is part of a graph of gradients, or not contiguous, must be
 * asked for otherwise.  A new reference. */
static PyObject *plain_form(PyObject *object, const char *method)
{
    if (!PyObject_HasAttrString(object, method))
        return Py_NewRef(object);
    return PyObject_CallMethod(object, method, NULL);
}

static int open_capsule(py_array *a, PyObject *object, bool writable)
{
    a->capsule = PyObject_CallMethod(object, "__dlpack__", NULL);
    return a->capsule ? py_dlpack_import(a, a->capsule, writable) : -1;
}

static int open_dlpack(py_array *a, PyObject *object, bool writable)
{
    PyObject *detached = plain_form(object, "detach"), *whole = NULL;
    int result = detached ? open_capsule(a, detached, writable) : -1;

    if (result == 1 && writable) {
        PyErr_SetString(PyExc_ValueError, "the output array is not contiguous");
        result = -1;
    } else if (result == 1) {
        Py_CLEAR(a->capsule);
        whole = plain_form(detached, "contiguous");
        result = whole ? open_capsule(a, whole, false) : -1;
        if (result == 1)
            PyErr_SetString(PyExc_ValueError, "the array is not contiguous");
    }
    Py_XDECREF(detached);
    Py_XDECREF(whole);
    return result == 0 ? check_shape(a) : -1;
}

/* Lists and numbers, by way of NumPy. */
static int open_by_numpy(py_array *a, PyObject *object)
{
    PyObject *numpy = NULL, *made = NULL;
    int result = -1;

    if (PyUnicode_Check(object) || PyDict_Check(object) || object == Py_None) {
        PyErr_Format(PyExc_TypeError, "expected an array, found %R",
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    numpy = PyImport_ImportModule("numpy");
    if (!numpy) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError,
                     "expected an array with the buffer protocol or DLPack, "
                     "found %R (NumPy, which might convert it, is not "
                     "installed)",
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    made = PyObject_CallMethod(numpy, "asarray", "OOs", object, Py_None, "C");
    Py_DECREF(numpy);
    if (made) {
        result = open_buffer(a, made, false);
        if (result != 0 && !PyErr_ExceptionMatches(PyExc_MemoryError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "no array can be made of %R",
                         (PyObject *)Py_TYPE(object));
        }
    }
    Py_XDECREF(made);
    return result;
}

/* Where the elements are: by the first way that the object offers. */
static int open_foreign(py_array *a, PyObject *object, bool writable)
{
    if (PyObject_CheckBuffer(object) && !PyBytes_Check(object))
        return open_buffer(a, object, writable);
    if (PyObject_HasAttrString(object, "__dlpack__"))
        return open_dlpack(a, object, writable);
    if (writable) {
        PyErr_Format(PyExc_TypeError, "expected an array to write to, found %R",
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    return open_by_numpy(a, object);
}

int py_array_open(py_array *a, PyObject *object, bool writable)
{
    *a = (py_array){.writable = writable};
    if (PyObject_TypeCheck(object, py_tensor_type)) {
        a->tensor = ((py_tensor *)object)->tensor;
        a->dtype = sb_tensor_dtype(a->tensor);
        a->rank = sb_tensor_rank(a->tensor);
        for (int i = 0; i < a->rank; i++)
            a->dims[i] = sb_tensor_dims(a->tensor)[i];
        a->data = (void *)(uintptr_t)sb_tensor_data(a->tensor);
    } else {
        a->own = true;
        if (open_foreign(a, object, writable) != 0) {
            py_array_close(a);
            return -1;
        }
    }
    a->object = Py_NewRef(object);
    return 0;
}

sb_status py_array_wrap(py_array *a, sb_ctx *ctx)
{
    static char nothing[64];

    if (!a->own || !a->object)
        return SB_OK;
    return sb_tensor_wrap(ctx, a->dtype, a->rank, a->dims,
                          a->data ? a->data : nothing, NULL, NULL, &a->tensor);
}

void py_array_unwrap(py_array *a)
{
    if (a->own)
        sb_tensor_free(a->tensor);
    if (a->own)
        a->tensor = NULL;
}

void py_array_close(py_array *a)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace); /* letting go may run Python */
    if (a->view.obj)
        PyBuffer_Release(&a->view);
    Py_XDECREF(a->capsule);
    PyMem_Free(a->copy);
    Py_XDECREF(a->object);
    *a = (py_array){0};
    PyErr_Restore(type, value, trace);
}

/* ---- several ------------------------------------------------------------ */

int py_arrays_open(py_arrays *a, PyObject *sequence, bool writable)
{
    PyObject *all = PySequence_Tuple(sequence);

    *a = (py_arrays){0};
    if (!all)
        return -1;
    size_t n = (size_t)PyTuple_Size(all);
    a->items = PyMem_Calloc(n + 1, sizeof *a->items);
    a->tensors = PyMem_Calloc(n + 1, sizeof *a->tensors);
    if (!a->items || !a->tensors) {
        PyErr_NoMemory();
        py_arrays_close(a);
        Py_DECREF(all);
        return -1;
    }
    for (; a->n < n; a->n++) {
        PyObject *item = PyTuple_GetItem(all, (Py_ssize_t)a->n);

        if (item != Py_None &&
            py_array_open(&a->items[a->n], item, writable) != 0) {
            py_arrays_close(a);
            Py_DECREF(all);
            return -1;
        }
    }
    Py_DECREF(all);
    return 0;
}

sb_status py_arrays_wrap(py_arrays *a, sb_ctx *ctx)
{
    for (size_t i = 0; i < a->n; i++) {
        sb_status s = py_array_wrap(&a->items[i], ctx);

        if (s != SB_OK)
            return s;
        a->tensors[i] = a->items[i].tensor;
    }
    return SB_OK;
}

void py_arrays_unwrap(py_arrays *a)
{
    for (size_t i = 0; i < a->n; i++)
        py_array_unwrap(&a->items[i]);
}

void py_arrays_close(py_arrays *a)
{
    for (size_t i = 0; i < a->n; i++)
        py_array_close(&a->items[i]);
    PyMem_Free(a->items);
    PyMem_Free(a->tensors);
    *a = (py_arrays){0};
}

/* ---- functions of the module -------------------------------------------- */

/* What a tensor that wraps memory of an array lets go in the end. */
static void wrapped_release(void *user)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    py_array *a = user;

    py_array_close(a);
    PyMem_Free(a);
    PyGILState_Release(gil);
}

static PyObject *array_tensor(PyObject *self, PyObject *args)
{
    py_context *c;
    PyObject *object;
    sb_tensor *t = NULL;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O", py_arg_context, &c, &object))
        return NULL;
    if (PyObject_TypeCheck(object, py_tensor_type))
        return Py_NewRef(object);
    py_array *a = PyMem_Calloc(1, sizeof *a);
    if (!a)
        return PyErr_NoMemory();
    if (py_array_open(a, object, false) != 0) {
        PyMem_Free(a);
        return NULL;
    }
    if (py_lock(c) != 0) {
        wrapped_release(a);
        return NULL;
    }
    /* A buffer may say read-only; then nothing may write to ours either. */
    sb_status s = a->view.obj && a->view.readonly && !a->copy
                      ? sb_tensor_create(c->ctx, a->dtype, a->rank, a->dims, &t)
                      : sb_tensor_wrap(c->ctx, a->dtype, a->rank, a->dims,
                                       a->data, wrapped_release, a, &t);
    if (s == SB_OK && a->view.obj && a->view.readonly && !a->copy) {
        memcpy(sb_tensor_data_mutable(t), a->data, sb_tensor_size(t));
        wrapped_release(a);
    } else if (s != SB_OK) {
        py_raise(s, sb_ctx_error(c->ctx));
        wrapped_release(a);
    }
    py_unlock(c);
    return s == SB_OK ? py_tensor_new(c, t) : NULL;
}

/* A shape out of a sequence; -1 with an exception. */
static int read_shape(PyObject *object, int64_t *dims)
{
    Py_ssize_t n = PySequence_Size(object);

    if (n > SB_RANK_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd dimensions, at most %d", n,
                     SB_RANK_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        dims[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
    }
    return (int)n;
}

static PyObject *array_strings(PyObject *self, PyObject *args)
{
    py_context *c;
    PyObject *shape, *list;
    int64_t dims[SB_RANK_MAX] = {0}, elements = 1;
    py_strings strings;
    sb_tensor *t = NULL;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&OO", py_arg_context, &c, &shape, &list))
        return NULL;
    int rank = read_shape(shape, dims);
    if (rank < 0 || py_strings_open(&strings, list) != 0)
        return NULL;
    for (int i = 0; i < rank; i++)
        elements *= dims[i];
    if (elements != (int64_t)strings.n) {
        PyErr_Format(PyExc_ValueError, "%zu strings, the shape wants %lld",
                     strings.n, (long long)elements);
        py_strings_close(&strings);
        return NULL;
    }
    if (py_lock(c) != 0) {
        py_strings_close(&strings);
        return NULL;
    }
    sb_status s = sb_tensor_create_strings(c->ctx, rank, dims, strings.v, &t);
    if (s != SB_OK)
        py_raise(s, sb_ctx_error(c->ctx));
    py_unlock(c);
    py_strings_close(&strings);
    return s == SB_OK ? py_tensor_new(c, t) : NULL;
}

static PyObject *array_empty(PyObject *self, PyObject *args)
{
    py_context *c;
    PyObject *shape;
    const char *name;
    int64_t dims[SB_RANK_MAX] = {0};
    sb_tensor *t = NULL;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&Os", py_arg_context, &c, &shape, &name))
        return NULL;
    sb_dtype dtype = py_dtype_of_name(name);
    if (dtype == SB_DTYPE_NONE) {
        PyErr_Format(PyExc_ValueError, "no element type '%s'", name);
        return NULL;
    }
    int rank = read_shape(shape, dims);
    if (rank < 0 || py_lock(c) != 0)
        return NULL;
    sb_status s = sb_tensor_create(c->ctx, dtype, rank, dims, &t);
    if (s != SB_OK)
        py_raise(s, sb_ctx_error(c->ctx));
    py_unlock(c);
    return s == SB_OK ? py_tensor_new(c, t) : NULL;
}

static PyObject *array_load(PyObject *self, PyObject *args)
{
    py_context *c;
    PyObject *path = NULL;
    sb_tensor *t = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", py_arg_context, &c, py_arg_path, &path))
        return NULL;
    if (py_call_begin(&call, c) != 0) {
        Py_DECREF(path);
        return NULL;
    }
    sb_status s = sb_tensor_load(c->ctx, PyBytes_AsString(path), &t);
    PyObject *result = py_call_end_tensor(&call, s, t);
    Py_DECREF(path);
    return result;
}

/* A copy, or an element type that a model's input asks for. */
static PyObject *array_cast(PyObject *self, PyObject *args)
{
    py_context *c;
    PyObject *object;
    const char *name;
    py_array a;
    sb_tensor *t = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&Os", py_arg_context, &c, &object, &name))
        return NULL;
    sb_dtype dtype = py_dtype_of_name(name);
    if (py_array_open(&a, object, false) != 0)
        return NULL;
    if (py_call_begin(&call, c) != 0) {
        py_array_close(&a);
        return NULL;
    }
    sb_status s = py_array_wrap(&a, c->ctx);
    if (s == SB_OK)
        s = sb_tensor_cast(c->ctx, a.tensor, dtype, &t);
    py_array_unwrap(&a);
    PyObject *result = py_call_end_tensor(&call, s, t);
    py_array_close(&a);
    return result;
}

PyMethodDef py_array_methods[] = {
    {"tensor", array_tensor, METH_VARARGS,
     "tensor(context, array): a Tensor that shares the array's memory."},
    {"tensor_strings", array_strings, METH_VARARGS,
     "tensor_strings(context, shape, strings)"},
    {"tensor_zeros", array_empty, METH_VARARGS,
     "tensor_zeros(context, shape, dtype)"},
    {"tensor_load", array_load, METH_VARARGS,
     "tensor_load(context, path): a .npy file, or ARCHIVE.npz:NAME."},
    {"tensor_cast", array_cast, METH_VARARGS,
     "tensor_cast(context, array, dtype): a copy, cast as inputs allow."},
    {NULL, NULL, 0, NULL}};
