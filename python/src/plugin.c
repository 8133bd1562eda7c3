/* Observers, quantizers and criteria written in Python.
 *
 * The library calls them on the calling thread, without the GIL, while the
 * lock is taken.  What they get is a copy, so that keeping it does no harm. */
#include "core.h"

#include <string.h>

typedef struct {
    py_context *context;
    PyObject *call; /* borrowed: the capsule's context holds it */
    sb_plugin_param *params;
    const sb_plugin_param **list;
    size_t n_params;
} py_plugin;

static void plugin_free(py_plugin *p)
{
    PyMem_Free(p->params);
    PyMem_Free(p->list);
    PyMem_Free(p);
}

static void plugin_drop(PyObject *capsule)
{
    plugin_free(PyCapsule_GetPointer(capsule, NULL));
}

/* Parameters as (key, help, preset, min, max). */
static int read_params(py_plugin *p, PyObject *object)
{
    p->n_params = (size_t)PyTuple_Size(object);
    p->params = PyMem_Calloc(p->n_params + 1, sizeof *p->params);
    p->list = PyMem_Calloc(p->n_params + 1, sizeof *p->list);
    if (!p->params || !p->list) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < p->n_params; i++) {
        sb_plugin_param *to = &p->params[i];

        *to = (sb_plugin_param)SB_PLUGIN_PARAM_INIT;
        p->list[i] = to;
        if (!PyArg_ParseTuple(PyTuple_GetItem(object, (Py_ssize_t)i), "ssddd",
                              &to->key, &to->help, &to->preset, &to->min,
                              &to->max))
            return -1;
    }
    return 0;
}

/* A plug-in, and what it was made of, in the list of the context: names and
 * functions live as long as that.  NULL with an exception. */
static py_plugin *plugin_make(py_context *c, PyObject *args, PyObject *call,
                              PyObject *params)
{
    py_plugin *p = PyMem_Calloc(1, sizeof *p);

    if (!p) {
        PyErr_NoMemory();
        return NULL;
    }
    p->context = c;
    p->call = call;
    if (read_params(p, params) != 0) {
        plugin_free(p);
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(p, NULL, plugin_drop);
    if (!capsule) {
        plugin_free(p);
        return NULL;
    }
    int failed = PyList_Append(c->plugins, args) != 0 ||
                 PyList_Append(c->plugins, capsule) != 0;
    Py_DECREF(capsule);
    return failed ? NULL : p;
}

/* What adding a plug-in ends with. */
static PyObject *plugin_added(py_context *c, sb_status status)
{
    if (status != SB_OK)
        py_raise(status, sb_ctx_error(c->ctx));
    py_unlock(c);
    return status == SB_OK ? Py_NewRef(Py_None) : NULL;
}

static PyObject *float_tuple(const double *v, size_t n)
{
    PyObject *t = PyTuple_New((Py_ssize_t)n);

    for (size_t i = 0; t && i < n; i++) {
        PyObject *item = PyFloat_FromDouble(v[i]);
        if (!item || PyTuple_SetItem(t, (Py_ssize_t)i, item) != 0)
            Py_CLEAR(t);
    }
    return t;
}

/* A copy of numbers as a memoryview. */
static PyObject *numbers_copy(const void *v, size_t n, size_t size,
                              const char *format)
{
    PyObject *bytes = PyByteArray_FromStringAndSize(v, (Py_ssize_t)(n * size));
    PyObject *view = bytes ? PyMemoryView_FromObject(bytes) : NULL;
    PyObject *cast =
        view ? PyObject_CallMethod(view, "cast", "s", format) : NULL;

    Py_XDECREF(bytes);
    Py_XDECREF(view);
    return cast;
}

/* ---- observers ---------------------------------------------------------- */

static int read_range(PyObject *result, float *least, float *most)
{
    double low, high;

    if (!PyTuple_Check(result) ||
        !PyArg_ParseTuple(result, "dd", &low, &high)) {
        PyErr_Clear();
        PyErr_SetString(PyExc_TypeError,
                        "an observer returns a tuple of two numbers: least "
                        "and greatest value");
        return -1;
    }
    *least = (float)low;
    *most = (float)high;
    return 0;
}

static sb_status observer_range(void *user, const sb_observer_values *v,
                                float *least, float *most)
{
    const py_plugin *p = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *x = numbers_copy(v->x, v->n, sizeof(float), "f");
    PyObject *count = v->count
                          ? numbers_copy(v->count, v->n, sizeof(double), "d")
                          : Py_NewRef(Py_None);
    PyObject *params = float_tuple(v->params, p->n_params);
    PyObject *result = NULL;

    if (x && count && params)
        result = PyObject_CallFunction(
            p->call, "{s:N,s:i,s:N,s:n,s:O,s:f,s:f,s:O,s:O,s:d}", "is_weight",
            PyBool_FromLong(v->is_weight), "bits", v->bits, "is_symmetric",
            PyBool_FromLong(v->is_symmetric), "channel", (Py_ssize_t)v->channel,
            "params", params, "least", (double)v->least, "most",
            (double)v->most, "x", x, "count", count, "bin_width", v->bin_width);
    bool ok = result && read_range(result, least, most) == 0;
    if (!ok)
        py_keep_error(p->context);
    Py_XDECREF(x);
    Py_XDECREF(count);
    Py_XDECREF(params);
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return ok ? SB_OK : SB_INTERRUPTED;
}

/* add_observer(context, name, summary, function, weights, activations,
 * params) */
static PyObject *plugin_add_observer(PyObject *self, PyObject *args)
{
    sb_observer_plugin o = SB_OBSERVER_PLUGIN_INIT;
    PyObject *call, *params;
    py_context *c;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&ssOppO!", py_arg_context, &c, &o.name,
                          &o.summary, &call, &o.for_weights, &o.for_activations,
                          &PyTuple_Type, &params))
        return NULL;
    py_plugin *p = plugin_make(c, args, call, params);
    if (!p || py_lock(c) != 0)
        return NULL;
    o.user = p;
    o.params = p->list;
    o.n_params = p->n_params;
    o.range = observer_range;
    return plugin_added(c, sb_ctx_add_observer(c->ctx, &o));
}

/* ---- quantizers --------------------------------------------------------- */

static void quantizer_map(void *user, const double *params, float *weight,
                          size_t n)
{
    const py_plugin *p = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *x = numbers_copy(weight, n, sizeof *weight, "f");
    PyObject *numbers = float_tuple(params, p->n_params);
    PyObject *result =
        x && numbers ? PyObject_CallFunction(p->call, "OO", x, numbers) : NULL;
    py_array a = {0};
    int opened = result ? py_array_open(&a, result, false) : -1;

    if (opened == 0 &&
        (a.dtype != SB_DTYPE_F32 || a.rank != 1 || a.dims[0] != (int64_t)n)) {
        PyErr_Format(PyExc_ValueError,
                     "a quantizer returns %zu floats of 32 bits, in one "
                     "dimension",
                     n);
        py_array_close(&a);
        opened = -1;
    }
    if (opened == 0) {
        memcpy(weight, a.data, n * sizeof *weight);
        py_array_close(&a);
    } else {
        py_keep_error(p->context);
    }
    Py_XDECREF(x);
    Py_XDECREF(numbers);
    Py_XDECREF(result);
    PyGILState_Release(gil);
}

/* add_quantizer(context, name, summary, function or None, operator or None,
 * weights, activations, params) */
static PyObject *plugin_add_quantizer(PyObject *self, PyObject *args)
{
    sb_quantizer_plugin q = SB_QUANTIZER_PLUGIN_INIT;
    PyObject *call, *params;
    py_context *c;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&ssOzppO!", py_arg_context, &c, &q.name,
                          &q.summary, &call, &q.map_activation, &q.for_weights,
                          &q.for_activations, &PyTuple_Type, &params))
        return NULL;
    py_plugin *p = plugin_make(c, args, call, params);
    if (!p || py_lock(c) != 0)
        return NULL;
    q.user = p;
    q.params = p->list;
    q.n_params = p->n_params;
    q.map_weight = call != Py_None ? quantizer_map : NULL;
    return plugin_added(c, sb_ctx_add_quantizer(c->ctx, &q));
}

/* ---- criteria ----------------------------------------------------------- */

/* A copy of a weight as a memoryview of its shape. */
static PyObject *weight_copy(const sb_tensor *weight)
{
    int64_t n = sb_tensor_elements(weight);
    PyObject *shape = PyList_New(0), *view = NULL, *cast = NULL;
    float *v = PyMem_Malloc((size_t)n * sizeof *v + 1);

    for (int a = 0; shape && a < sb_tensor_rank(weight); a++) {
        PyObject *dim = PyLong_FromLongLong(sb_tensor_dims(weight)[a]);
        if (!dim || PyList_Append(shape, dim) != 0)
            Py_CLEAR(shape);
        Py_XDECREF(dim);
    }
    if (!v && shape)
        PyErr_NoMemory();
    for (int64_t i = 0; v && i < n; i++) {
        double x = 0;

        (void)sb_tensor_read_f64(weight, i, 1, &x);
        v[i] = (float)x;
    }
    if (v && shape)
        view = numbers_copy(v, (size_t)n, sizeof *v, "B");
    if (view)
        cast = PyObject_CallMethod(view, "cast", "sO", "f", shape);
    PyMem_Free(v);
    Py_XDECREF(view);
    Py_XDECREF(shape);
    return cast;
}

/* What a criterion returned: n floats of 32 or 64 bits, in `out32` or
 * `out64`. */
static int read_scores(PyObject *result, int64_t n, double *out64, float *out32)
{
    py_array a = {0};
    int64_t count = 1;

    if (py_array_open(&a, result, false) != 0)
        return -1;
    for (int i = 0; i < a.rank; i++)
        count *= a.dims[i];
    bool ok =
        count == n && (a.dtype == SB_DTYPE_F32 || a.dtype == SB_DTYPE_F64);
    for (int64_t i = 0; ok && i < n; i++) {
        double x = a.dtype == SB_DTYPE_F64 ? ((const double *)a.data)[i]
                                           : (double)((const float *)a.data)[i];
        if (out64)
            out64[i] = x;
        else
            out32[i] = (float)x;
    }
    py_array_close(&a);
    if (!ok)
        PyErr_Format(PyExc_ValueError,
                     "a criterion returns %lld floats of 32 or 64 bits here",
                     (long long)n);
    return ok ? 0 : -1;
}

/* Calls the function with a weight and an axis, or -1 for single elements. */
static sb_status criterion_call(const py_plugin *p, const sb_tensor *weight,
                                int axis, double *out64, float *out32)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    int64_t n =
        axis < 0 ? sb_tensor_elements(weight) : sb_tensor_dims(weight)[axis];
    PyObject *w = weight_copy(weight);
    PyObject *result = w ? PyObject_CallFunction(p->call, "Oi", w, axis) : NULL;
    bool ok = result && read_scores(result, n, out64, out32) == 0;

    if (!ok)
        py_keep_error(p->context);
    Py_XDECREF(w);
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return ok ? SB_OK : SB_INTERRUPTED;
}

static sb_status criterion_score(void *user, const sb_tensor *weight, int axis,
                                 double *out)
{
    return criterion_call(user, weight, axis, out, NULL);
}

static sb_status criterion_weigh(void *user, const sb_tensor *weight,
                                 float *out)
{
    return criterion_call(user, weight, -1, NULL, out);
}

/* add_criterion(context, name, summary, function, channels, elements) */
static PyObject *plugin_add_criterion(PyObject *self, PyObject *args)
{
    sb_criterion_plugin k = SB_CRITERION_PLUGIN_INIT;
    PyObject *call, *none = PyTuple_New(0);
    int channels, elements;
    py_context *c;

    (void)self;
    if (!none || !PyArg_ParseTuple(args, "O&ssOpp", py_arg_context, &c, &k.name,
                                   &k.summary, &call, &channels, &elements)) {
        Py_XDECREF(none);
        return NULL;
    }
    py_plugin *p = plugin_make(c, args, call, none);
    Py_DECREF(none);
    if (!p || py_lock(c) != 0)
        return NULL;
    k.user = p;
    k.score = channels ? criterion_score : NULL;
    k.weigh = elements ? criterion_weigh : NULL;
    return plugin_added(c, sb_ctx_add_criterion(c->ctx, &k));
}

PyMethodDef py_plugin_methods[] = {
    {"add_criterion", plugin_add_criterion, METH_VARARGS,
     "add_criterion(context, name, summary, function, channels, elements)"},
    {"add_observer", plugin_add_observer, METH_VARARGS,
     "add_observer(context, name, summary, function, weights, activations, "
     "params)"},
    {"add_quantizer", plugin_add_quantizer, METH_VARARGS,
     "add_quantizer(context, name, summary, function, operator, weights, "
     "activations, params)"},
    {NULL, NULL, 0, NULL}};
