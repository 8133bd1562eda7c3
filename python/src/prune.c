/* Pruning. */
#include "core.h"

static PyObject *prune_create(PyObject *self, PyObject *args,
                              PyObject *keywords)
{
    static char *names[] = {
        "",           "config",         "config_text", "exclude",
        "masks_only", "seed",           "target_macs", "target_params",
        "before",     "target_latency", "scan",        NULL};
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    unsigned long long seed = 0;
    PyObject *exclude = NULL, *result = NULL, *before = Py_None;
    py_strings patterns;
    py_handle *m, *untrained = NULL;
    sb_prune *prune = NULL;
    py_call call;

    (void)self;
    if (!py_parse_keywords(args, keywords, "O&|zzOpKddOdp", names, py_arg_model,
                           &m, &opt.config, &opt.config_text, &exclude,
                           &opt.masks_only, &seed, &opt.target_macs,
                           &opt.target_params, &before, &opt.target_latency,
                           &opt.scan) ||
        (before != Py_None && (!py_arg_model(before, &untrained) ||
                               py_same_context(m, untrained) != 0)) ||
        py_strings_open(&patterns, exclude) != 0)
        return NULL;
    opt.exclude = patterns.v;
    opt.n_exclude = patterns.n;
    opt.seed = seed;
    opt.before = untrained ? untrained->pointer : NULL;
    PyObject *keep =
        PyTuple_Pack(2, m->keep ? m->keep : Py_None,
                     untrained && untrained->keep ? untrained->keep : Py_None);
    if (keep && py_call_begin(&call, m->context) == 0) {
        sb_status s = sb_prune_create(m->pointer, &opt, &prune);
        result = py_call_end_new(&call, s, &py_prune_kind, prune, keep);
    }
    Py_XDECREF(keep);
    py_strings_close(&patterns);
    return result;
}

static PyObject *prune_wants_data(PyObject *self, PyObject *args)
{
    py_handle *h;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_prune, &h))
        return NULL;
    return PyLong_FromLong((long)sb_prune_wants_data(h->pointer));
}

static PyObject *prune_apply(PyObject *self, PyObject *args)
{
    py_handle *h;
    int more = 0;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_prune, &h) ||
        py_call_begin(&call, h->context) != 0 ||
        py_call_end(&call, sb_prune_apply(h->pointer, &more)) != 0)
        return NULL;
    return PyBool_FromLong(more);
}

static PyObject *prune_model(PyObject *self, PyObject *args)
{
    py_handle *h;
    sb_model *model = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_prune, &h) ||
        py_call_begin(&call, h->context) != 0)
        return NULL;
    sb_status s = sb_prune_model(h->pointer, &model);
    return py_call_end_new(&call, s, &py_model_kind, model, h->keep);
}

static PyObject *point_list(const sb_prune_group *g)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < g->n_points; i++) {
        const sb_prune_point *p = g->points[i];

        py_append(&list,
                  Py_BuildValue("{s:d,s:L,s:d,s:d,s:d,s:d}", "ratio", p->ratio,
                                "removed", (long long)p->removed, "error",
                                p->error, "accuracy", p->accuracy, "macs",
                                p->macs, "params", p->params));
    }
    return list;
}

static PyObject *group_list(const sb_prune_scan *s)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < s->n_groups; i++) {
        const sb_prune_group *g = s->groups[i];

        py_append(&list, Py_BuildValue("{s:N,s:N,s:L,s:N}", "name",
                                       py_text(g->name), "op", py_text(g->op),
                                       "channels", (long long)g->channels,
                                       "points", point_list(g)));
    }
    return list;
}

static PyObject *prune_scan(PyObject *self, PyObject *args)
{
    enum { MOST = 32 };
    py_handle *h;
    PyObject *sequence, *all;
    double ratios[MOST];
    const sb_prune_scan *s = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O", py_arg_prune, &h, &sequence) ||
        !(all = PySequence_Tuple(sequence)))
        return NULL;
    Py_ssize_t n = PyTuple_Size(all);
    for (Py_ssize_t i = 0; i < n && i < MOST; i++)
        ratios[i] = PyFloat_AsDouble(PyTuple_GetItem(all, i));
    Py_DECREF(all);
    if (n > MOST)
        PyErr_Format(PyExc_ValueError, "%zd ratios, at most %d", n, (int)MOST);
    if (PyErr_Occurred() || py_call_begin(&call, h->context) != 0 ||
        py_call_finish(&call, sb_prune_scan_groups(h->pointer, ratios,
                                                   (size_t)n, &s)) != 0)
        return NULL;
    PyObject *d =
        Py_BuildValue("{s:N,s:n,s:d,s:d,s:d}", "groups", group_list(s),
                      "samples", (Py_ssize_t)s->samples, "accuracy",
                      s->accuracy, "macs", s->macs, "params", s->params);
    py_unlock(h->context);
    return d;
}

static PyObject *layer_list(const sb_prune_report *r)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < r->n_layers; i++) {
        const sb_prune_layer *l = r->layers[i];
        PyObject *item = Py_BuildValue(
            "{s:N,s:N,s:N,s:L,s:L,s:L,s:N,s:N,s:N}", "name", py_text(l->name),
            "op", py_text(l->op), "weight", py_text(l->weight), "size",
            (long long)l->size, "removable", (long long)l->removable, "removed",
            (long long)l->removed, "reason", py_text(l->reason), "reason_node",
            py_text(l->reason_node), "held", PyBool_FromLong(l->held));
        py_append(&list, item);
    }
    return list;
}

static PyObject *cut_list(const sb_prune_report *r)
{
    static const char *const roles[] = {"makes", "reads", "other"};
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < r->n_cuts; i++) {
        const sb_prune_cut *c = r->cuts[i];
        PyObject *item =
            Py_BuildValue("{s:N,s:i,s:s,s:N}", "value", py_text(c->value),
                          "axis", c->axis, "role", roles[c->role], "indices",
                          py_int_list(c->indices, c->n_indices));
        py_append(&list, item);
    }
    return list;
}

static PyObject *prune_report(PyObject *self, PyObject *args)
{
    py_handle *h;
    const sb_prune_report *r = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_prune, &h) ||
        py_call_begin(&call, h->context) != 0 ||
        py_call_finish(&call, sb_prune_report_get(h->pointer, &r)) != 0)
        return NULL;
    PyObject *d = Py_BuildValue(
        "{s:N,s:N,s:L,s:L,s:L,s:d,s:N}", "layers", layer_list(r), "cuts",
        cut_list(r), "size", (long long)r->size, "removable",
        (long long)r->removable, "removed", (long long)r->removed, "ratio",
        r->ratio, "structured", PyBool_FromLong(r->structured));
    py_unlock(h->context);
    return d;
}

PyMethodDef py_prune_methods[] = {
    {"prune_create", PY_KEYWORDS(prune_create), METH_VARARGS | METH_KEYWORDS,
     "prune_create(model, **options)"},
    {"prune_wants_data", prune_wants_data, METH_VARARGS,
     "prune_wants_data(pruning): 0 unused, 1 helps, 2 needed"},
    {"prune_scan", prune_scan, METH_VARARGS, "prune_scan(pruning, ratios)"},
    {"prune_apply", prune_apply, METH_VARARGS,
     "prune_apply(pruning): is there more to do?"},
    {"prune_model", prune_model, METH_VARARGS, "prune_model(pruning)"},
    {"prune_report", prune_report, METH_VARARGS, "prune_report(pruning)"},
    {NULL, NULL, 0, NULL}};
