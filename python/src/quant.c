/* Quantized models, configurations, lint. */
#include "core.h"

/* ---- life --------------------------------------------------------------- */

static PyObject *quant_create(PyObject *self, PyObject *args,
                              PyObject *keywords)
{
    static char *names[] = {"",           "config",  "config_text",
                            "target",     "exact",   "reduce_range",
                            "calibrate",  "exclude", "preset",
                            "dump_after", "train",   "half_scales",
                            NULL};
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    int reduce = SB_REDUCE_RANGE_AUTO;
    PyObject *exclude = NULL;
    py_strings patterns;
    py_handle *m;
    sb_quant_model *qm = NULL;
    py_call call;

    (void)self;
    if (!py_parse_keywords(args, keywords, "O&|zzzpipOzzpp", names,
                           py_arg_model, &m, &opt.config, &opt.config_text,
                           &opt.target, &opt.exact, &reduce, &opt.calibrate,
                           &exclude, &opt.preset, &opt.dump_after, &opt.train,
                           &opt.half_scales) ||
        py_strings_open(&patterns, exclude) != 0)
        return NULL;
    opt.reduce_range = (sb_reduce_range)reduce;
    opt.exclude = patterns.v;
    opt.n_exclude = patterns.n;
    PyObject *result = NULL;
    if (py_call_begin(&call, m->context) == 0) {
        sb_status s = sb_quant_model_create(m->pointer, &opt, &qm);
        result = py_call_end_new(&call, s, &py_quant_kind, qm, m->keep);
    }
    py_strings_close(&patterns);
    return result;
}

/* Lets the text of a path live as long as the model. */
static int quant_keep(py_handle *q, PyObject *path)
{
    PyObject *before = q->keep ? q->keep : Py_None;
    PyObject *keep = PyTuple_Pack(2, before, path);

    if (!keep)
        return -1;
    Py_XDECREF(q->keep);
    q->keep = keep;
    return 0;
}

static PyObject *quant_prepare(PyObject *self, PyObject *args)
{
    py_handle *q;
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
    unsigned long long limit = 0;
    PyObject *journal = Py_None, *path = NULL, *result = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&pp|KO", py_arg_quant, &q, &opt.asym_weights,
                          &opt.asym_activations, &limit, &journal) ||
        (journal != Py_None && !py_arg_path(journal, &path)))
        return NULL;
    opt.memory_limit = limit;
    opt.journal = path ? PyBytes_AsString(path) : NULL;
    if ((!path || quant_keep(q, path) == 0) &&
        py_call_begin(&call, q->context) == 0)
        result = py_call_end_none(
            &call, sb_quant_model_prepare_calibration(q->pointer, &opt));
    Py_XDECREF(path);
    return result;
}

static sb_status forward_run(void *quant, const sb_tensor *const *inputs,
                             size_t n_in, const sb_tensor **outputs,
                             size_t n_out)
{
    return sb_quant_model_forward(quant, inputs, n_in, outputs, n_out);
}

static PyObject *quant_forward(PyObject *self, PyObject *args)
{
    py_handle *q;
    PyObject *inputs;
    size_t n;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&OO&", py_arg_quant, &q, &inputs,
                          py_arg_count, &n))
        return NULL;
    return py_call_outputs(q, inputs, n, forward_run);
}

PY_OBJECT_CALL(quant, quant_calc_qparams, sb_quant_model_calc_qparams);

static PyObject *quant_set_quant(PyObject *self, PyObject *args)
{
    py_handle *q;
    int weights, activations;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&pp", py_arg_quant, &q, &weights,
                          &activations) ||
        py_lock(q->context) != 0)
        return NULL;
    sb_quant_model_set_quant(q->pointer, weights, activations);
    py_unlock(q->context);
    Py_RETURN_NONE;
}

PY_PATH_CALL(quant, quant_save_calibration, sb_quant_model_save_calibration);
PY_PATH_CALL(quant, quant_load_calibration, sb_quant_model_load_calibration);
/* The folder of quant_prepare(). */
PY_OBJECT_CALL(quant, quant_end_journal, sb_quant_model_end_journal);

/* ---- export ------------------------------------------------------------- */

/* Where a model is written to. */
typedef enum {
    TO_FILE,
    TO_BYTES,
    TO_MODEL,
    TO_NOTHING /* only whether it could be */
} export_to;

typedef struct {
    PyObject *path;
    void *bytes;
    size_t size;
    sb_model *model;
} export_result;

static sb_status export_run(export_to to, const sb_quant_model *qm,
                            const sb_export_options *opt, export_result *r)
{
    switch (to) {
    case TO_FILE:
        return sb_quant_model_export(qm, PyBytes_AsString(r->path), opt);
    case TO_BYTES:
        return sb_quant_model_export_memory(qm, opt, &r->bytes, &r->size);
    case TO_MODEL:
        return sb_quant_model_export_model(qm, opt, &r->model);
    case TO_NOTHING:
        break;
    }
    return sb_quant_model_check_export(qm, opt);
}

/* quant_export(quant, to, path or None, **options) */
static PyObject *quant_export(PyObject *self, PyObject *args,
                              PyObject *keywords)
{
    static char *names[] = {"",           "",       "",      "float_weights",
                            "extra_info", "format", "opset", "accuracy_level",
                            NULL};
    sb_export_options opt = SB_EXPORT_OPTIONS_INIT;
    int format = SB_EXPORT_FORMAT_QDQ, to;
    long long opset = 0;
    PyObject *path, *result = NULL;
    export_result r = {0};
    py_handle *q;
    py_call call;

    (void)self;
    if (!py_parse_keywords(args, keywords, "O&iO|ppiLi", names, py_arg_quant,
                           &q, &to, &path, &opt.float_weights, &opt.extra_info,
                           &format, &opset, &opt.accuracy_level) ||
        (to == TO_FILE && !py_arg_path(path, &r.path)))
        return NULL;
    opt.format = (sb_export_format)format;
    opt.opset = opset;
    if (py_call_begin(&call, q->context) == 0) {
        sb_status s = export_run((export_to)to, q->pointer, &opt, &r);
        if (to == TO_MODEL)
            result =
                py_call_end_new(&call, s, &py_model_kind, r.model, q->keep);
        else if (py_call_end(&call, s) == 0)
            result =
                to == TO_BYTES
                    ? PyBytes_FromStringAndSize(r.bytes, (Py_ssize_t)r.size)
                    : Py_NewRef(Py_None);
    }
    sb_memory_free(r.bytes);
    Py_XDECREF(r.path);
    return result;
}

/* ---- looking ------------------------------------------------------------ */

static PyObject *quantizer_dict(const sb_quant_model *qm, size_t i)
{
    const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);

    return Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:i,s:s,s:s,s:s,s:i,s:L,s:i,s:i,s:N,s:N,s:L}", "name",
        py_text(q->name), "value", py_text(q->value), "is_weight",
        PyBool_FromLong(q->is_weight), "fused", PyBool_FromLong(q->fused),
        "bits", q->bits, "scheme", q->scheme, "quantizer", q->quantizer,
        "observer", q->observer, "axis", q->axis, "group_size",
        (long long)q->group_size, "qmin", (int)q->qmin, "qmax", (int)q->qmax,
        "scale", py_float_list(q->scale, q->n), "zero_point",
        py_float_list(q->zero_point, q->n), "elements",
        (long long)sb_quant_model_quantizer_elements(qm, i));
}

static PyObject *quant_quantizers(PyObject *self, PyObject *args)
{
    py_handle *q;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_quant, &q) ||
        py_lock(q->context) != 0)
        return NULL;
    PyObject *list = PyList_New(0);
    size_t n = sb_quant_model_quantizer_count(q->pointer);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *item = quantizer_dict(q->pointer, i);
        py_append(&list, item);
    }
    py_unlock(q->context);
    return list;
}

static PyObject *quant_steps(PyObject *self, PyObject *args)
{
    py_handle *q;
    const sb_quant_step *s;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_quant, &q) ||
        py_lock(q->context) != 0)
        return NULL;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && (s = sb_quant_model_step(q->pointer, i)); i++) {
        PyObject *item =
            Py_BuildValue("{s:s,s:n,s:d,s:d,s:N}", "name", s->name, "layers",
                          (Py_ssize_t)s->layers, "before", s->before, "after",
                          s->after, "kept", PyBool_FromLong(s->kept));
        py_append(&list, item);
    }
    py_unlock(q->context);
    return list;
}

static PyObject *quant_facts(PyObject *self, PyObject *args)
{
    py_handle *q;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_quant, &q) ||
        py_lock(q->context) != 0)
        return NULL;
    PyObject *d = Py_BuildValue(
        "{s:N,s:N,s:s,s:L}", "needs_calibration",
        PyBool_FromLong(sb_quant_model_needs_calibration(q->pointer)),
        "can_calibrate",
        PyBool_FromLong(sb_quant_model_can_calibrate(q->pointer)), "target",
        sb_quant_model_target(q->pointer), "fixed_batch",
        (long long)sb_quant_model_fixed_batch(q->pointer));
    py_unlock(q->context);
    return d;
}

static PyObject *quant_print(PyObject *self, PyObject *args)
{
    py_handle *q;
    int format;
    char *text = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&i", py_arg_quant, &q, &format) ||
        py_call_begin(&call, q->context) != 0 ||
        py_call_end(&call,
                    sb_quant_model_print(q->pointer, (sb_graph_format)format,
                                         &text)) != 0)
        return NULL;
    return py_text_taken(text);
}

/* ---- configuration ------------------------------------------------------ */

static PyObject *config_check(PyObject *self, PyObject *args)
{
    py_context *c;
    PyObject *path = NULL;
    char *summary = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", py_arg_context, &c, py_arg_path, &path))
        return NULL;
    int failed = py_call_begin(&call, c);
    if (!failed)
        failed = py_call_end(
            &call, sb_config_check(c->ctx, PyBytes_AsString(path), &summary));
    Py_DECREF(path);
    return failed ? NULL : py_text_taken(summary);
}

/* A key and those below it. */
static PyObject *config_keys(PyObject *self, PyObject *args)
{
    py_context *c;
    const char *key;
    sb_key_list *keys = NULL;
    const sb_config_key *k;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&z", py_arg_context, &c, &key) ||
        py_call_begin(&call, c) != 0 ||
        py_call_end(&call, sb_config_keys(c->ctx, key, &keys)) != 0)
        return NULL;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && (k = sb_key_list_get(keys, i)); i++)
        py_append(&list,
                  Py_BuildValue("{s:s,s:z,s:s,s:s,s:s,s:N}", "key", k->key,
                                "preset", k->preset, "allowed", k->allowed,
                                "help", k->help, "more", k->more, "section",
                                PyBool_FromLong(k->section)));
    if (py_lock(c) != 0) {
        Py_XDECREF(list);
        return NULL;
    }
    sb_key_list_free(keys);
    py_unlock(c);
    return list;
}

static PyObject *config_default(PyObject *self, PyObject *args)
{
    py_context *c;
    char *text = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_context, &c) ||
        py_call_begin(&call, c) != 0 ||
        py_call_end(&call, sb_config_default(c->ctx, &text)) != 0)
        return NULL;
    return py_text_taken(text);
}

/* ---- lint --------------------------------------------------------------- */

static PyObject *lint_nodes(const sb_lint_node *const *v, size_t n)
{
    static const char *const fates[] = {"float", "integer", "moves",
                                        "absorbed"};
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < n; i++) {
        PyObject *item = Py_BuildValue(
            "{s:N,s:N,s:N,s:s,s:s,s:s,s:N,s:N,s:N,s:N,s:N}", "name",
            py_text(v[i]->name), "output", py_text(v[i]->output), "op",
            py_text(v[i]->op), "fate",
            (size_t)v[i]->fate < PY_COUNT(fates) ? fates[v[i]->fate] : "",
            "kernel", v[i]->kernel, "rule", v[i]->rule, "why",
            py_text(v[i]->why), "remedy", py_text(v[i]->remedy), "weighted",
            PyBool_FromLong(v[i]->weighted), "overhead",
            PyBool_FromLong(v[i]->overhead), "saturates",
            PyBool_FromLong(v[i]->saturates));
        py_append(&list, item);
    }
    return list;
}

static PyObject *model_lint(PyObject *self, PyObject *args)
{
    py_handle *m;
    const char *target;
    const sb_lint *l = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&z", py_arg_model, &m, &target) ||
        py_call_begin(&call, m->context) != 0 ||
        py_call_finish(&call, sb_model_lint(m->pointer, target, &l)) != 0)
        return NULL;
    PyObject *d = Py_BuildValue(
        "{s:s,s:N,s:N,s:n,s:n,s:n,s:n,s:N,s:n,s:n}", "target", l->target,
        "nodes", lint_nodes(l->nodes, l->n_nodes), "broken",
        lint_nodes(l->broken, l->n_broken), "weighted",
        (Py_ssize_t)l->n_weighted, "weighted_integer",
        (Py_ssize_t)l->n_weighted_integer, "quantize_nodes", (Py_ssize_t)l->n_q,
        "dequantize_nodes", (Py_ssize_t)l->n_dq, "left_known",
        PyBool_FromLong(l->left_known), "quantize_left",
        (Py_ssize_t)l->n_q_left, "dequantize_left", (Py_ssize_t)l->n_dq_left);
    py_unlock(m->context);
    return d;
}

PyMethodDef py_quant_methods[] = {
    {"quant_create", PY_KEYWORDS(quant_create), METH_VARARGS | METH_KEYWORDS,
     "quant_create(model, **options)"},
    {"quant_prepare", quant_prepare, METH_VARARGS,
     "quant_prepare(quant, asym_weights, asym_activations, memory_limit=0, "
     "journal=None)"},
    {"quant_forward", quant_forward, METH_VARARGS,
     "quant_forward(quant, inputs, n_outputs)"},
    {"quant_calc_qparams", quant_calc_qparams, METH_VARARGS,
     "quant_calc_qparams(quant)"},
    {"quant_set_quant", quant_set_quant, METH_VARARGS,
     "quant_set_quant(quant, weights, activations)"},
    {"quant_save_calibration", quant_save_calibration, METH_VARARGS,
     "quant_save_calibration(quant, path)"},
    {"quant_load_calibration", quant_load_calibration, METH_VARARGS,
     "quant_load_calibration(quant, path)"},
    {"quant_end_journal", quant_end_journal, METH_VARARGS,
     "quant_end_journal(quant)"},
    {"quant_export", PY_KEYWORDS(quant_export), METH_VARARGS | METH_KEYWORDS,
     "quant_export(quant, to, path, **options): 0 file, 1 bytes, 2 model, 3 "
     "only check"},
    {"quant_quantizers", quant_quantizers, METH_VARARGS,
     "quant_quantizers(quant)"},
    {"quant_steps", quant_steps, METH_VARARGS, "quant_steps(quant)"},
    {"quant_facts", quant_facts, METH_VARARGS, "quant_facts(quant)"},
    {"quant_print", quant_print, METH_VARARGS, "quant_print(quant, format)"},
    {"config_check", config_check, METH_VARARGS, "config_check(context, path)"},
    {"config_keys", config_keys, METH_VARARGS, "config_keys(context, key)"},
    {"config_default", config_default, METH_VARARGS, "config_default(context)"},
    {"model_lint", model_lint, METH_VARARGS, "model_lint(model, target)"},
    {NULL, NULL, 0, NULL}};
