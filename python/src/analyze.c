/* Errors of layers, and the search for bit widths. */
#include "core.h"

/* ---- errors ------------------------------------------------------------- */

static PyObject *errors_create(PyObject *self, PyObject *args)
{
    py_handle *q;
    sb_quant_errors_options opt = SB_QUANT_ERRORS_OPTIONS_INIT;
    sb_quant_errors *errors = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&p", py_arg_quant, &q, &opt.histograms) ||
        py_call_begin(&call, q->context) != 0)
        return NULL;
    sb_status s = sb_quant_errors_create(q->pointer, &opt, &errors);
    return py_call_end_new(&call, s, &py_errors_kind, errors, (PyObject *)q);
}

static PyObject *difference_dict(const sb_difference *d)
{
    if (!d)
        return Py_NewRef(Py_None);
    return Py_BuildValue("{s:d,s:d,s:d,s:d}", "mse", d->mse, "sqnr_db",
                         d->sqnr_db, "cosine", d->cosine, "largest",
                         d->largest);
}

static PyObject *layer_dict(const sb_layer_error *l)
{
    return Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:d,s:d}", "name", py_text(l->name),
        "op", py_text(l->op), "module", py_text(l->module), "output",
        py_text(l->output), "alone", difference_dict(l->async), "weights",
        difference_dict(l->weights), "activations",
        difference_dict(l->activations), "together", difference_dict(l->sync),
        "added", l->sync_added, "channel_spread", l->channel_spread);
}

static PyObject *output_dict(const sb_output_error *o)
{
    return Py_BuildValue("{s:N,s:N,s:d,s:d}", "name", py_text(o->name),
                         "difference", difference_dict(o->difference), "kl",
                         o->kl, "agreement", o->agreement);
}

/* (layers, outputs) */
static PyObject *errors_get(PyObject *self, PyObject *args)
{
    py_handle *h;
    const sb_output_error *o;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_errors, &h) ||
        py_lock(h->context) != 0)
        return NULL;
    PyObject *layers = PyList_New(0), *outputs = PyList_New(0);
    for (size_t i = 0; layers && i < sb_quant_errors_count(h->pointer); i++) {
        PyObject *item = layer_dict(sb_quant_errors_layer(h->pointer, i));
        py_append(&layers, item);
    }
    for (size_t i = 0;
         outputs && (o = sb_quant_errors_output(h->pointer, i)) != NULL; i++) {
        PyObject *item = output_dict(o);
        py_append(&outputs, item);
    }
    py_unlock(h->context);
    if (layers && outputs)
        return Py_BuildValue("(NN)", layers, outputs);
    Py_XDECREF(layers);
    Py_XDECREF(outputs);
    return NULL;
}

/* ---- search ------------------------------------------------------------- */

/* Widths out of a sequence; NULL with an exception. */
static int *read_widths(PyObject *object, size_t *n)
{
    PyObject *all = PySequence_Tuple(object);
    int *widths = NULL;

    if (!all)
        return NULL;
    *n = (size_t)PyTuple_Size(all);
    widths = PyMem_Calloc(*n + 1, sizeof *widths);
    if (!widths)
        PyErr_NoMemory();
    for (size_t i = 0; widths && i < *n; i++)
        widths[i] = (int)PyLong_AsLong(PyTuple_GetItem(all, (Py_ssize_t)i));
    Py_DECREF(all);
    if (PyErr_Occurred()) {
        PyMem_Free(widths);
        return NULL;
    }
    return widths;
}

static PyObject *search_create(PyObject *self, PyObject *args,
                               PyObject *keywords)
{
    static char *names[] = {"",       "budget",      "limit",
                            "config", "config_text", "target",
                            "bits",   "exclude",     NULL};
    sb_search_options opt = SB_SEARCH_OPTIONS_INIT;
    int budget = 0, *widths = NULL;
    PyObject *bits = NULL, *exclude = NULL, *result = NULL;
    py_strings patterns;
    py_handle *m;
    sb_search *search = NULL;
    py_call call;

    (void)self;
    if (!py_parse_keywords(args, keywords, "O&id|zzzOO", names, py_arg_model,
                           &m, &budget, &opt.limit, &opt.config,
                           &opt.config_text, &opt.target, &bits, &exclude))
        return NULL;
    if (bits && bits != Py_None) {
        widths = read_widths(bits, &opt.n_bits);
        if (!widths)
            return NULL;
        opt.bits = widths;
    }
    opt.budget = (sb_search_budget)budget;
    if (py_strings_open(&patterns, exclude) != 0) {
        PyMem_Free(widths);
        return NULL;
    }
    opt.exclude = patterns.v;
    opt.n_exclude = patterns.n;
    if (py_call_begin(&call, m->context) == 0) {
        sb_status s = sb_search_create(m->pointer, &opt, &search);
        result =
            py_call_end_new(&call, s, &py_search_kind, search, (PyObject *)m);
    }
    py_strings_close(&patterns);
    PyMem_Free(widths);
    return result;
}

static PyObject *search_batch(PyObject *self, PyObject *args)
{
    py_handle *h;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_search, &h))
        return NULL;
    return PyLong_FromLongLong(sb_search_fixed_batch(h->pointer));
}

static PyObject *point_dict(const sb_search_point *p)
{
    if (!p)
        return Py_NewRef(Py_None);
    return Py_BuildValue("{s:d,s:d,s:d,s:d,s:N,s:i}", "bits", p->bits, "bytes",
                         p->bytes, "mac_bits", p->mac_bits, "error", p->error,
                         "measured", PyBool_FromLong(p->measured), "uniform",
                         p->uniform);
}

static PyObject *point_list(const sb_search_point *const *v, size_t n)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < n; i++) {
        PyObject *item = point_dict(v[i]);
        py_append(&list, item);
    }
    return list;
}

/* By width. */
static PyObject *layer_errors(const sb_search_result *r,
                              const sb_search_layer *l)
{
    PyObject *dict = PyDict_New();

    for (size_t i = 0; dict && i < r->n_widths; i++) {
        PyObject *key = PyLong_FromLong(r->widths[i]);
        PyObject *value = PyFloat_FromDouble(l->errors[i]);
        if (!key || !value || PyDict_SetItem(dict, key, value) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *layer_list(const sb_search_result *r)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < r->n_layers; i++) {
        const sb_search_layer *l = r->layers[i];
        PyObject *item = Py_BuildValue(
            "{s:N,s:N,s:d,s:d,s:i,s:N}", "name", py_text(l->name), "op",
            py_text(l->op), "elements", l->elements, "macs", l->macs, "bits",
            l->bits, "errors", layer_errors(r, l));
        py_append(&list, item);
    }
    return list;
}

static PyObject *search_run(PyObject *self, PyObject *args)
{
    py_handle *h;
    const sb_search_result *r = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_search, &h) ||
        py_call_begin(&call, h->context) != 0 ||
        py_call_finish(&call, sb_search_run(h->pointer, &r)) != 0)
        return NULL;
    PyObject *d =
        Py_BuildValue("{s:N,s:N,s:N,s:N,s:d,s:d,s:n}", "layers", layer_list(r),
                      "points", point_list(r->points, r->n_points), "uniform",
                      point_list(r->uniform, r->n_uniform), "found",
                      point_dict(r->found), "error", r->error, "file_bytes",
                      r->file_bytes, "runs", (Py_ssize_t)r->runs);
    py_unlock(h->context);
    return d;
}

static PyObject *search_config(PyObject *self, PyObject *args)
{
    py_handle *h;
    char *text = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_search, &h) ||
        py_call_begin(&call, h->context) != 0 ||
        py_call_end(&call, sb_search_config(h->pointer, &text)) != 0)
        return NULL;
    return py_text_taken(text);
}

PyMethodDef py_analyze_methods[] = {
    {"errors_create", errors_create, METH_VARARGS,
     "errors_create(quant, histograms)"},
    {"errors_get", errors_get, METH_VARARGS,
     "errors_get(errors): layers and outputs"},
    {"search_create", PY_KEYWORDS(search_create), METH_VARARGS | METH_KEYWORDS,
     "search_create(model, budget, limit, **options)"},
    {"search_fixed_batch", search_batch, METH_VARARGS,
     "search_fixed_batch(search)"},
    {"search_run", search_run, METH_VARARGS, "search_run(search)"},
    {"search_config", search_config, METH_VARARGS, "search_config(search)"},
    {NULL, NULL, 0, NULL}};
