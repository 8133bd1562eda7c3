/* Tensor: elements of the library's as a Python object, with the buffer
 * protocol (NumPy, memoryview) and DLPack (PyTorch, JAX and others). */
#include "core.h"

#include <string.h>

PyTypeObject *py_tensor_type;

static const struct {
    sb_dtype dtype;
    const char *format, *name; /* of the struct module; of NumPy */
} types[] = {
    {SB_DTYPE_F32, "f", "float32"},    {SB_DTYPE_F64, "d", "float64"},
    {SB_DTYPE_F16, "e", "float16"},    {SB_DTYPE_I8, "b", "int8"},
    {SB_DTYPE_U8, "B", "uint8"},       {SB_DTYPE_I16, "h", "int16"},
    {SB_DTYPE_U16, "H", "uint16"},     {SB_DTYPE_I32, "i", "int32"},
    {SB_DTYPE_U32, "I", "uint32"},     {SB_DTYPE_I64, "q", "int64"},
    {SB_DTYPE_U64, "Q", "uint64"},     {SB_DTYPE_BOOL, "?", "bool"},
    {SB_DTYPE_C64, "Zf", "complex64"}, {SB_DTYPE_C128, "Zd", "complex128"},
};

const char *py_dtype_format(sb_dtype dtype)
{
    for (size_t i = 0; i < PY_COUNT(types); i++)
        if (types[i].dtype == dtype)
            return types[i].format;
    return NULL;
}

sb_dtype py_dtype_of_format(const char *format, Py_ssize_t size)
{
    if (!format)
        return SB_DTYPE_U8; /* as the protocol says */
    if (*format == '@' || *format == '=' || *format == '<' || *format == '|')
        format++;
    if (strcmp(format, "l") == 0)
        return size == 8 ? SB_DTYPE_I64 : SB_DTYPE_I32;
    if (strcmp(format, "L") == 0)
        return size == 8 ? SB_DTYPE_U64 : SB_DTYPE_U32;
    for (size_t i = 0; i < PY_COUNT(types); i++)
        if (strcmp(types[i].format, format) == 0)
            return types[i].dtype;
    return SB_DTYPE_NONE;
}

/* NumPy's name of a type, or ONNX's. */
sb_dtype py_dtype_of_name(const char *name)
{
    for (size_t i = 0; i < PY_COUNT(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].dtype;
    for (int d = 1; d < SB_DTYPE_COUNT; d++)
        if (strcmp(sb_dtype_name((sb_dtype)d), name) == 0)
            return (sb_dtype)d;
    return SB_DTYPE_NONE;
}

static const char *dtype_name(sb_dtype dtype)
{
    for (size_t i = 0; i < PY_COUNT(types); i++)
        if (types[i].dtype == dtype)
            return types[i].name;
    return sb_dtype_name(dtype);
}

static void tensor_release(void *p)
{
    sb_tensor_free(p);
}

PyObject *py_tensor_new(py_context *c, sb_tensor *tensor)
{
    allocfunc make = (allocfunc)PyType_GetSlot(py_tensor_type, Py_tp_alloc);
    py_tensor *t = (py_tensor *)make(py_tensor_type, 0);

    if (!t) {
        py_free_later(c, tensor_release, tensor);
        return NULL;
    }
    t->tensor = tensor;
    t->context = (py_context *)Py_NewRef((PyObject *)c);
    return (PyObject *)t;
}

/* call_end; frees the tensors if it fails. */
static int end_with(py_call *call, sb_status status, sb_tensor **tensors,
                    size_t n)
{
    PyObject *type, *value, *trace;

    if (py_call_end(call, status) == 0)
        return 0;
    PyErr_Fetch(&type, &value, &trace);
    for (size_t i = 0; i < n; i++)
        py_free_later(call->context, tensor_release, tensors[i]);
    PyErr_Restore(type, value, trace);
    return -1;
}

PyObject *py_call_end_tensor(py_call *call, sb_status status, sb_tensor *tensor)
{
    return end_with(call, status, &tensor, 1) == 0
               ? py_tensor_new(call->context, tensor)
               : NULL;
}

/* A list out of an array, of which it takes all. */
static PyObject *tensor_list(py_context *c, sb_tensor **tensors, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);

    for (size_t i = 0; i < n; i++) {
        sb_tensor *t = tensors[i];
        PyObject *item = NULL;

        tensors[i] = NULL;
        if (!list) {
            py_free_later(c, tensor_release, t);
            continue;
        }
        item = t ? py_tensor_new(c, t) : Py_NewRef(Py_None);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) != 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *py_call_end_tensors(py_call *call, sb_status status,
                              sb_tensor **tensors, size_t n)
{
    return end_with(call, status, tensors, n) == 0
               ? tensor_list(call->context, tensors, n)
               : NULL;
}

static void tensor_dealloc(PyObject *self)
{
    py_tensor *t = (py_tensor *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc give_back = (freefunc)PyType_GetSlot(type, Py_tp_free);

    if (t->context)
        py_free_later(t->context, tensor_release, t->tensor);
    PyMem_Free(t->strides);
    Py_XDECREF((PyObject *)t->context);
    give_back(self);
    Py_DECREF((PyObject *)type);
}

/* ---- buffer protocol ---------------------------------------------------- */

static int make_strides(py_tensor *t)
{
    int rank = sb_tensor_rank(t->tensor);
    const int64_t *dims = sb_tensor_dims(t->tensor);
    int64_t step = sb_dtype_bits(sb_tensor_dtype(t->tensor)) / 8;

    if (t->strides)
        return 0;
    t->strides = PyMem_Calloc((size_t)rank + 1, sizeof *t->strides);
    if (!t->strides) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = rank - 1; i >= 0; i--) {
        t->strides[i] = step;
        step *= dims[i] > 0 ? dims[i] : 1;
    }
    return 0;
}

/* Row-major order is column-major, too, where it has one way to go. */
static bool is_column_major(const sb_tensor *t)
{
    int longer = 0;

    for (int i = 0; i < sb_tensor_rank(t); i++)
        longer += sb_tensor_dims(t)[i] > 1;
    return longer < 2 || sb_tensor_elements(t) == 0;
}

static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "shapes are shared");

static int tensor_buffer(PyObject *self, Py_buffer *view, int flags)
{
    py_tensor *t = (py_tensor *)self;
    sb_dtype dtype = sb_tensor_dtype(t->tensor);
    const char *format = py_dtype_format(dtype);
    static char nothing[1];

    view->obj = NULL;
    if (!format) {
        PyErr_Format(PyExc_BufferError,
                     "elements of type %s have no buffer: use tolist(), or "
                     "DLPack for bfloat16",
                     dtype_name(dtype));
        return -1;
    }
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS &&
        !is_column_major(t->tensor)) {
        PyErr_SetString(PyExc_BufferError, "elements lie in row-major order");
        return -1;
    }
    if (make_strides(t) != 0)
        return -1;
    void *data = sb_tensor_data_mutable(t->tensor);
    view->buf = data ? data : nothing;
    view->len = (Py_ssize_t)sb_tensor_size(t->tensor);
    view->itemsize = sb_dtype_bits(dtype) / 8;
    view->readonly = 0;
    view->ndim = sb_tensor_rank(t->tensor);
    /* Formats are only read. */
    view->format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL;
    view->shape = flags & PyBUF_ND
                      ? (Py_ssize_t *)(uintptr_t)sb_tensor_dims(t->tensor)
                      : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES
                        ? (Py_ssize_t *)t->strides
                        : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    view->obj = Py_NewRef(self);
    return 0;
}

/* ---- attributes and methods --------------------------------------------- */

static PyObject *tensor_shape(PyObject *self, void *unused)
{
    const sb_tensor *t = ((py_tensor *)self)->tensor;
    int rank = sb_tensor_rank(t);
    PyObject *shape = PyTuple_New(rank);

    (void)unused;
    for (int i = 0; shape && i < rank; i++) {
        PyObject *item = PyLong_FromLongLong(sb_tensor_dims(t)[i]);
        if (!item || PyTuple_SetItem(shape, i, item) != 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *tensor_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(
        dtype_name(sb_tensor_dtype(((py_tensor *)self)->tensor)));
}

static PyObject *tensor_onnx_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(
        sb_dtype_name(sb_tensor_dtype(((py_tensor *)self)->tensor)));
}

static PyObject *tensor_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(sb_tensor_size(((py_tensor *)self)->tensor));
}

static PyObject *tensor_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(sb_tensor_elements(((py_tensor *)self)->tensor));
}

static PyObject *tensor_ndim(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(sb_tensor_rank(((py_tensor *)self)->tensor));
}

static PyObject *tensor_pointer(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(
        sb_tensor_data_mutable(((py_tensor *)self)->tensor));
}

/* Element i as a Python object. */
static PyObject *element_get(const sb_tensor *t, int64_t i)
{
    sb_dtype dtype = sb_tensor_dtype(t);
    double real = 0;
    int64_t integer = 0;
    size_t len = 0;

    switch (dtype) {
    case SB_DTYPE_STRING: {
        const char *s = sb_tensor_string(t, i, &len);
        return PyUnicode_DecodeUTF8(s, (Py_ssize_t)len, "backslashreplace");
    }
    case SB_DTYPE_C64: {
        const float *v = (const float *)sb_tensor_data(t) + 2 * i;
        return PyComplex_FromDoubles((double)v[0], (double)v[1]);
    }
    case SB_DTYPE_C128: {
        const double *v = (const double *)sb_tensor_data(t) + 2 * i;
        return PyComplex_FromDoubles(v[0], v[1]);
    }
    case SB_DTYPE_BOOL:
        return PyBool_FromLong(((const unsigned char *)sb_tensor_data(t))[i]);
    case SB_DTYPE_U64:
        return PyLong_FromUnsignedLongLong(
            ((const uint64_t *)sb_tensor_data(t))[i]);
    case SB_DTYPE_I8:
    case SB_DTYPE_U8:
    case SB_DTYPE_I16:
    case SB_DTYPE_U16:
    case SB_DTYPE_I32:
    case SB_DTYPE_U32:
    case SB_DTYPE_I64:
    case SB_DTYPE_I4:
    case SB_DTYPE_U4:
    case SB_DTYPE_I2:
    case SB_DTYPE_U2:
        (void)sb_tensor_read_i64(t, i, 1, &integer);
        return PyLong_FromLongLong(integer);
    default:
        (void)sb_tensor_read_f64(t, i, 1, &real);
        return PyFloat_FromDouble(real);
    }
}

static PyObject *nested_list(const sb_tensor *t, int axis, int64_t *next)
{
    if (axis == sb_tensor_rank(t))
        return element_get(t, (*next)++);
    int64_t n = sb_tensor_dims(t)[axis];
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (int64_t i = 0; list && i < n; i++) {
        PyObject *item = nested_list(t, axis + 1, next);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *sequence_list(py_tensor *self, int64_t n)
{
    PyObject *list = PyList_New(0);

    for (int64_t i = 0; list && i < n; i++) {
        sb_tensor *t = NULL;
        PyObject *item = NULL, *inner = NULL;

        if (py_lock(self->context) != 0) {
            Py_CLEAR(list);
            break;
        }
        sb_status s = sb_sequence_at(self->context->ctx, self->tensor, i, &t);
        if (s != SB_OK)
            py_raise(s, sb_ctx_error(self->context->ctx));
        py_unlock(self->context);
        inner = s == SB_OK ? py_tensor_new(self->context, t) : NULL;
        item = inner ? PyObject_CallMethod(inner, "tolist", NULL) : NULL;
        Py_XDECREF(inner);
        py_append(&list, item);
    }
    return list;
}

static PyObject *tensor_tolist(PyObject *self, PyObject *unused)
{
    py_tensor *t = (py_tensor *)self;
    int64_t next = 0, n = sb_sequence_length(t->tensor);

    (void)unused;
    return n >= 0 ? sequence_list(t, n) : nested_list(t->tensor, 0, &next);
}

static PyObject *tensor_as(PyObject *self, const char *module,
                           const char *function)
{
    PyObject *other = PyImport_ImportModule(module);
    PyObject *result =
        other ? PyObject_CallMethod(other, function, "O", self) : NULL;

    Py_XDECREF(other);
    return result;
}

static PyObject *tensor_numpy(PyObject *self, PyObject *unused)
{
    (void)unused;
    return tensor_as(self, "numpy", "asarray");
}

static PyObject *tensor_torch(PyObject *self, PyObject *unused)
{
    (void)unused;
    return tensor_as(self, "torch", "from_dlpack");
}

static PyObject *tensor_dlpack(PyObject *self, PyObject *args,
                               PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = NULL, *version = NULL, *device = NULL, *copy = NULL;
    long major = 0;

    if (!py_parse_keywords(args, keywords, "|$OOOO", names, &stream, &version,
                           &device, &copy))
        return NULL;
    if (version && version != Py_None) {
        PyObject *first = PySequence_GetItem(version, 0);
        major = first ? PyLong_AsLong(first) : -1;
        Py_XDECREF(first);
        if (major == -1 && PyErr_Occurred())
            return NULL;
    }
    if (copy == Py_True) {
        PyErr_SetString(PyExc_BufferError, "copy=True: copy the tensor first");
        return NULL;
    }
    return py_dlpack_export((py_tensor *)self, major >= 1);
}

static PyObject *tensor_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("(ii)", 1, 0); /* kDLCPU */
}

static Py_ssize_t tensor_length(PyObject *self)
{
    const sb_tensor *t = ((py_tensor *)self)->tensor;
    int64_t n = sb_sequence_length(t);

    if (n >= 0)
        return (Py_ssize_t)n;
    if (sb_tensor_rank(t) == 0) {
        PyErr_SetString(PyExc_TypeError, "len() of a scalar");
        return -1;
    }
    return (Py_ssize_t)sb_tensor_dims(t)[0];
}

static PyObject *tensor_repr(PyObject *self)
{
    const sb_tensor *t = ((py_tensor *)self)->tensor;
    PyObject *shape = tensor_shape(self, NULL);
    PyObject *text =
        shape ? PyUnicode_FromFormat("<sparsebit.Tensor %s %R>",
                                     dtype_name(sb_tensor_dtype(t)), shape)
              : NULL;

    Py_XDECREF(shape);
    return text;
}

static PyMethodDef methods[] = {
    {"tolist", tensor_tolist, METH_NOARGS,
     "The elements as nested lists of Python numbers or strings."},
    {"numpy", tensor_numpy, METH_NOARGS,
     "A NumPy array that shares the memory."},
    {"torch", tensor_torch, METH_NOARGS,
     "A PyTorch tensor that shares the memory."},
    {"__dlpack__", PY_KEYWORDS(tensor_dlpack), METH_VARARGS | METH_KEYWORDS,
     "A capsule for from_dlpack(); the memory is shared."},
    {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS, "The CPU."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef attributes[] = {
    {"shape", tensor_shape, NULL, "The dimensions.", NULL},
    {"dtype", tensor_dtype, NULL, "NumPy's name of the type, else ONNX's.",
     NULL},
    {"onnx_dtype", tensor_onnx_dtype, NULL, "ONNX's name of the type.", NULL},
    {"ndim", tensor_ndim, NULL, "Number of dimensions.", NULL},
    {"size", tensor_size, NULL, "Number of elements.", NULL},
    {"nbytes", tensor_nbytes, NULL, "Bytes of the elements.", NULL},
    {"data_ptr", tensor_pointer, NULL, "Address of the elements.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Elements in row-major order.  numpy.asarray(), memoryview() "
                "and torch.from_dlpack() share its memory."},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_repr, tensor_repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {Py_sq_length, tensor_length},
    {Py_bf_getbuffer, tensor_buffer},
    {0, NULL}};

static PyType_Spec spec = {
    "sparsebit._core.Tensor", sizeof(py_tensor), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int py_tensor_init(PyObject *module)
{
    py_tensor_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return py_tensor_type ? PyModule_AddType(module, py_tensor_type) : -1;
}
