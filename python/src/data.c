/* Data sets, batches, and bringing batches to what takes inputs. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* A batch of a data set, which is valid until the next one, or one made of the
 * caller's arrays. */
typedef struct {
    const sb_batch *batch;
    sb_batch own;
    py_arrays arrays;
    py_strings names;
    int64_t *labels;
} py_batch;

/* Runs with the GIL, as all releases do. */
static void batch_release(void *p)
{
    py_batch *b = p;

    py_arrays_unwrap(&b->arrays);
    py_arrays_close(&b->arrays);
    py_strings_close(&b->names);
    PyMem_Free(b->labels);
    PyMem_Free(b);
}

const py_kind py_batch_kind = {"batch", batch_release};

const sb_batch *py_batch_lock(py_handle *h)
{
    const py_batch *b = h->pointer;

    if (py_lock(h->context) != 0)
        return NULL;
    if (h->keep && ((py_handle *)h->keep)->version != h->version) {
        PyErr_SetString(PyExc_ValueError,
                        "the batch is gone: the data set went on to another");
        py_unlock(h->context);
        return NULL;
    }
    return b->batch;
}

/* ---- data sets ---------------------------------------------------------- */

static PyObject *data_make(PyObject *args, PyObject *keywords, bool is_text)
{
    static char *names[] = {"",     "",      "",       "samples",
                            "skip", "batch", "strict", "threads",
                            "seed", "keys",  NULL};
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    unsigned long long samples = 0, skip = 0, batch = 0, seed = 0;
    PyObject *path = NULL;
    const char *text;
    py_context *c;
    sb_data *data = NULL;
    py_call call;

    if (!py_parse_keywords(args, keywords, "O&zO&|KKKpiKz", names,
                           py_arg_context, &c, &text, py_arg_path, &path,
                           &samples, &skip, &batch, &opt.strict, &opt.threads,
                           &seed, &opt.keys))
        return NULL;
    opt.samples = samples;
    opt.skip = skip;
    opt.batch = batch;
    opt.seed = seed;
    if (py_call_begin(&call, c) != 0) {
        Py_DECREF(path);
        return NULL;
    }
    const char *file = PyBytes_AsString(path);
    sb_status s = is_text ? sb_data_parse(c->ctx, text, file, &opt, &data)
                          : sb_data_open(c->ctx, file, &opt, &data);
    PyObject *result = py_call_end_new(&call, s, &py_data_kind, data, NULL);
    Py_DECREF(path);
    return result;
}

static PyObject *data_open(PyObject *self, PyObject *args, PyObject *keywords)
{
    (void)self;
    return data_make(args, keywords, false);
}

static PyObject *data_parse(PyObject *self, PyObject *args, PyObject *keywords)
{
    (void)self;
    return data_make(args, keywords, true);
}

static PyObject *data_describe(PyObject *self, PyObject *args)
{
    py_handle *m;
    PyObject *path = NULL;
    const char *keys;
    char *text = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&z", py_arg_model, &m, py_arg_path, &path,
                          &keys))
        return NULL;
    if (py_call_begin(&call, m->context) != 0) {
        Py_DECREF(path);
        return NULL;
    }
    int failed =
        py_call_end(&call, sb_data_describe(m->pointer, PyBytes_AsString(path),
                                            keys, &text));
    Py_DECREF(path);
    return failed ? NULL : py_text_taken(text);
}

static PyObject *data_set_model(PyObject *self, PyObject *args)
{
    py_handle *d, *m;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", py_arg_data, &d, py_arg_model, &m) ||
        py_same_context(d, m) != 0 || py_lock(d->context) != 0)
        return NULL;
    sb_status s = sb_data_set_model(d->pointer, m->pointer);
    if (s != SB_OK)
        py_raise(s, sb_ctx_error(d->context->ctx));
    py_unlock(d->context);
    if (s != SB_OK)
        return NULL;
    Py_RETURN_NONE;
}

/* The next batch, None after the last. */
static PyObject *data_next(PyObject *self, PyObject *args)
{
    py_handle *d;
    const sb_batch *batch = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_data, &d) ||
        py_call_begin(&call, d->context) != 0 ||
        py_call_finish(&call,
                       (d->version++, sb_data_next(d->pointer, &batch))) != 0)
        return NULL;
    size_t version = d->version;
    bool is_end = batch->count == 0;
    py_unlock(d->context);
    if (is_end)
        Py_RETURN_NONE;
    py_batch *b = PyMem_Calloc(1, sizeof *b);
    if (!b)
        return PyErr_NoMemory();
    b->batch = batch;
    py_handle *h = (py_handle *)py_handle_new(&py_batch_kind, d->context, b,
                                              (PyObject *)d);
    if (h)
        h->version = version;
    return (PyObject *)h;
}

static PyObject *data_rewind(PyObject *self, PyObject *args)
{
    py_handle *d;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_data, &d) ||
        py_lock(d->context) != 0)
        return NULL;
    d->version++;
    sb_data_rewind(d->pointer);
    py_unlock(d->context);
    Py_RETURN_NONE;
}

static PyObject *data_start_epoch(PyObject *self, PyObject *args)
{
    py_handle *d;
    unsigned long long epoch;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&K", py_arg_data, &d, &epoch) ||
        py_lock(d->context) != 0)
        return NULL;
    d->version++;
    sb_data_start_epoch(d->pointer, epoch);
    py_unlock(d->context);
    Py_RETURN_NONE;
}

static PyObject *data_info(PyObject *self, PyObject *args)
{
    py_handle *d;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_data, &d) ||
        py_lock(d->context) != 0)
        return NULL;
    PyObject *broken = PyList_New(0);
    for (size_t i = 0; broken && i < sb_data_broken_count(d->pointer); i++) {
        PyObject *name = py_text(sb_data_broken(d->pointer, i));
        if (!name || PyList_Append(broken, name) != 0)
            Py_CLEAR(broken);
        Py_XDECREF(name);
    }
    PyObject *dict =
        broken
            ? Py_BuildValue(
                  "{s:n,s:n,s:N,s:N,s:N}", "samples",
                  (Py_ssize_t)sb_data_count(d->pointer), "batch",
                  (Py_ssize_t)sb_data_batch_size(d->pointer), "has_labels",
                  PyBool_FromLong(sb_data_has_labels(d->pointer)), "varies",
                  PyBool_FromLong(sb_data_varies(d->pointer)), "broken", broken)
            : NULL;
    py_unlock(d->context);
    return dict;
}

/* ---- batches ------------------------------------------------------------ */

static int read_labels(py_batch *b, PyObject *object)
{
    py_array a;

    if (object == Py_None)
        return 0;
    if (py_array_open(&a, object, false) != 0)
        return -1;
    int64_t n = a.rank == 1 ? a.dims[0] : -1;
    if (n != (int64_t)b->own.count || a.dtype != SB_DTYPE_I64 || !a.own) {
        PyErr_Format(PyExc_ValueError,
                     "labels: want %zu integers of 64 bits, one for each "
                     "sample",
                     b->own.count);
        py_array_close(&a);
        return -1;
    }
    b->labels = PyMem_Malloc((size_t)n * sizeof *b->labels + 1);
    if (b->labels)
        memcpy(b->labels, a.data, (size_t)n * sizeof *b->labels);
    else
        PyErr_NoMemory();
    b->own.labels = b->labels;
    py_array_close(&a);
    return b->labels ? 0 : -1;
}

/* batch_new(context, arrays, names or None, labels or None, count, first,
 * whole) */
static PyObject *batch_new(PyObject *self, PyObject *args)
{
    py_context *c;
    PyObject *arrays, *names, *labels;
    Py_ssize_t count, first;
    int whole;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&OOOnnp", py_arg_context, &c, &arrays, &names,
                          &labels, &count, &first, &whole))
        return NULL;
    py_batch *b = PyMem_Calloc(1, sizeof *b);
    if (!b)
        return PyErr_NoMemory();
    b->own = (sb_batch)SB_BATCH_INIT;
    b->own.count = (size_t)count;
    b->own.first = (size_t)first;
    b->own.whole = whole;
    b->batch = &b->own;
    if (py_arrays_open(&b->arrays, arrays, false) != 0 ||
        py_strings_open(&b->names, names) != 0 || read_labels(b, labels) != 0 ||
        py_lock(c) != 0) {
        batch_release(b);
        return NULL;
    }
    sb_status s = py_arrays_wrap(&b->arrays, c->ctx);
    if (s != SB_OK)
        py_raise(s, sb_ctx_error(c->ctx));
    py_unlock(c);
    b->own.n_inputs = b->arrays.n;
    b->own.inputs = b->arrays.tensors;
    b->own.input_names = b->names.n ? b->names.v : NULL;
    if (s == SB_OK && b->names.n && b->names.n != b->arrays.n) {
        PyErr_SetString(PyExc_ValueError, "as many names as arrays");
        s = SB_BAD_ARG;
    }
    if (s != SB_OK) {
        py_free_later(c, batch_release, b);
        return NULL;
    }
    return py_handle_new(&py_batch_kind, c, b, NULL);
}

/* What is in a batch; tensors are copied. */
static PyObject *batch_get(PyObject *self, PyObject *args)
{
    py_handle *h;
    PyObject *inputs = NULL, *names = NULL, *labels = NULL, *samples = NULL;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_batch, &h))
        return NULL;
    const sb_batch *b = py_batch_lock(h);
    if (!b)
        return NULL;
    inputs = PyList_New(0);
    names = b->input_names ? PyList_New(0) : Py_NewRef(Py_None);
    samples = b->names ? PyList_New(0) : Py_NewRef(Py_None);
    labels = b->labels ? py_int_list(b->labels, b->count) : Py_NewRef(Py_None);
    for (size_t i = 0; inputs && names && i < b->n_inputs; i++) {
        sb_tensor *copy = NULL;
        sb_status s = sb_tensor_copy(h->context->ctx, b->inputs[i], &copy);
        PyObject *item = s == SB_OK
                             ? py_tensor_new(h->context, copy)
                             : py_raise(s, sb_ctx_error(h->context->ctx));
        py_append(&inputs, item);
        if (b->input_names)
            py_append(&names, py_text(b->input_names[i]));
    }
    for (size_t i = 0; samples && b->names && i < b->count; i++) {
        PyObject *item = py_text(b->names[i]);
        py_append(&samples, item);
    }
    Py_ssize_t count = (Py_ssize_t)b->count;
    py_unlock(h->context);
    if (inputs && names && labels && samples)
        return Py_BuildValue("{s:n,s:N,s:N,s:N,s:N}", "count", count, "inputs",
                             inputs, "input_names", names, "labels", labels,
                             "names", samples);
    Py_XDECREF(inputs);
    Py_XDECREF(names);
    Py_XDECREF(labels);
    Py_XDECREF(samples);
    return NULL;
}

static PyObject *batch_count(PyObject *self, PyObject *args)
{
    py_handle *h;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_batch, &h))
        return NULL;
    const sb_batch *b = py_batch_lock(h);
    if (!b)
        return NULL;
    size_t count = b->count;
    py_unlock(h->context);
    return PyLong_FromSize_t(count);
}

/* ---- feeding ------------------------------------------------------------ */

static PyObject *feed_create(PyObject *self, PyObject *args)
{
    py_handle *m;
    sb_feed *feed = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_model, &m) ||
        py_call_begin(&call, m->context) != 0)
        return NULL;
    sb_status s = sb_feed_create(m->pointer, &feed);
    return py_call_end_new(&call, s, &py_feed_kind, feed, (PyObject *)m);
}

static sb_status feed_quant(void *object, const sb_tensor *const *inputs,
                            size_t n_in, const sb_tensor **outputs,
                            size_t n_out)
{
    return sb_quant_model_forward(object, inputs, n_in, outputs, n_out);
}

static sb_status feed_errors(void *object, const sb_tensor *const *inputs,
                             size_t n_in, const sb_tensor **outputs,
                             size_t n_out)
{
    return sb_quant_errors_run(object, inputs, n_in, outputs, n_out);
}

static sb_status feed_search(void *object, const sb_tensor *const *inputs,
                             size_t n_in, const sb_tensor **outputs,
                             size_t n_out)
{
    return sb_search_add(object, inputs, n_in, outputs, n_out);
}

/* Pruning takes whole batches, for their labels. */
static const struct {
    const py_kind *kind;
    py_outputs_fn *run;
} takers[] = {
    {&py_quant_kind, feed_quant},
    {&py_errors_kind, feed_errors},
    {&py_search_kind, feed_search},
    {&py_prune_kind, NULL},
};

/* What batches can be fed to. */
static int arg_taker(PyObject *object, void *out)
{
    py_handle *h = (py_handle *)object;

    for (size_t i = 0;
         PyObject_TypeCheck(object, py_handle_type) && i < PY_COUNT(takers);
         i++) {
        if (takers[i].kind == h->kind) {
            *(py_handle **)out = h;
            return 1;
        }
    }
    PyErr_SetString(PyExc_TypeError, "expected what samples can be given to");
    return 0;
}

static sb_status feed_batch(sb_feed *feed, const sb_batch *batch,
                            const sb_model *model, const py_handle *taker,
                            const sb_tensor **tensors)
{
    size_t n_in = sb_model_input_count(model), i = 0;
    size_t n_out = batch->n_states ? sb_model_output_count(model) : 0;

    while (takers[i].kind != taker->kind)
        i++;
    if (!takers[i].run)
        return sb_prune_forward_batch(taker->pointer, batch);
    sb_status s = sb_feed_inputs(feed, batch, tensors, n_in);
    if (s == SB_OK)
        s = takers[i].run(taker->pointer, tensors, n_in, tensors + n_in, n_out);
    if (s == SB_OK && n_out > 0)
        s = sb_feed_keep(feed, batch, tensors + n_in, n_out);
    return s;
}

/* feed_run(feed, batch, taker) */
static PyObject *feed_run(PyObject *self, PyObject *args)
{
    py_handle *feed, *batch, *taker;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&O&", py_arg_feed, &feed, py_arg_batch,
                          &batch, arg_taker, &taker) ||
        py_same_context(feed, batch) != 0 || py_same_context(feed, taker) != 0)
        return NULL;
    const sb_model *model = ((py_handle *)feed->keep)->pointer;
    size_t n = sb_model_input_count(model) + sb_model_output_count(model);
    const sb_tensor **tensors = PyMem_Calloc(n + 1, sizeof *tensors);
    if (!tensors)
        return PyErr_NoMemory();
    const sb_batch *samples = py_batch_lock(batch);
    int failed = !samples;
    if (!failed) {
        py_call_begin_locked(&call, feed->context);
        failed = py_call_end(
            &call, feed_batch(feed->pointer, samples, model, taker, tensors));
    }
    PyMem_Free(tensors);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef py_data_methods[] = {
    {"data_open", PY_KEYWORDS(data_open), METH_VARARGS | METH_KEYWORDS,
     "data_open(context, None, path, **options)"},
    {"data_parse", PY_KEYWORDS(data_parse), METH_VARARGS | METH_KEYWORDS,
     "data_parse(context, text, path, **options)"},
    {"data_describe", data_describe, METH_VARARGS,
     "data_describe(model, path, keys)"},
    {"data_set_model", data_set_model, METH_VARARGS,
     "data_set_model(data, model)"},
    {"data_next", data_next, METH_VARARGS, "data_next(data): a batch or None"},
    {"data_rewind", data_rewind, METH_VARARGS, "data_rewind(data)"},
    {"data_start_epoch", data_start_epoch, METH_VARARGS,
     "data_start_epoch(data, epoch)"},
    {"data_info", data_info, METH_VARARGS, "data_info(data)"},
    {"batch_new", batch_new, METH_VARARGS,
     "batch_new(context, arrays, names, labels, count, first, whole)"},
    {"batch_get", batch_get, METH_VARARGS, "batch_get(batch)"},
    {"batch_count", batch_count, METH_VARARGS, "batch_count(batch)"},
    {"feed_create", feed_create, METH_VARARGS, "feed_create(model)"},
    {"feed_run", feed_run, METH_VARARGS, "feed_run(feed, batch, taker)"},
    {NULL, NULL, 0, NULL}};
