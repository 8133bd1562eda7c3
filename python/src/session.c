/* Running networks, and counting how well they do. */
#include "core.h"

/* ---- sessions ----------------------------------------------------------- */

static PyObject *session_create(PyObject *self, PyObject *args,
                                PyObject *keywords)
{
    static char *names[] = {"", "exact", "profile", "integer", NULL};
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    int integer = SB_INTEGER_MODE_BY_TARGET;
    py_handle *m;
    sb_session *session = NULL;
    py_call call;

    (void)self;
    if (!py_parse_keywords(args, keywords, "O&|ppi", names, py_arg_model, &m,
                           &opt.exact, &opt.profile, &integer) ||
        py_call_begin(&call, m->context) != 0)
        return NULL;
    opt.integer = (sb_integer_mode)integer;
    sb_status s = sb_session_create(m->pointer, &opt, &session);
    /* Weights may belong to the context that the model was cloned from. */
    return py_call_end_new(&call, s, &py_session_kind, session, m->keep);
}

/* Runs a function like sb_session_run(); outputs are copied or written to. */
typedef sb_status run_fn(void *object, const sb_tensor *const *inputs,
                         size_t n_inputs, sb_tensor **outputs, size_t n);

static sb_status run_session(void *object, const sb_tensor *const *inputs,
                             size_t n_inputs, sb_tensor **outputs, size_t n)
{
    return sb_session_run_into(object, inputs, n_inputs, outputs, n);
}

/* What was asked for as outputs: a number of new ones, or arrays to fill. */
typedef struct {
    py_arrays given;
    PyObject *sequence; /* of the given ones */
    size_t n;
    sb_tensor **tensors;
} run_outputs;

static int outputs_open(run_outputs *o, PyObject *object, size_t n)
{
    *o = (run_outputs){.n = n};
    if (object && object != Py_None) {
        if (py_arrays_open(&o->given, object, true) != 0)
            return -1;
        o->n = o->given.n;
    }
    o->tensors = PyMem_Calloc(o->n + 1, sizeof *o->tensors);
    if (!o->tensors) {
        py_arrays_close(&o->given);
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* The result: new tensors, and the arrays that were given. */
static PyObject *outputs_close(run_outputs *o, py_context *c, bool ok)
{
    PyObject *list = ok ? PyList_New((Py_ssize_t)o->n) : NULL;

    for (size_t i = 0; i < o->n; i++) {
        PyObject *given = i < o->given.n ? o->given.items[i].object : NULL;
        PyObject *item = NULL;

        if (given)
            item = Py_NewRef(given);
        else if (o->tensors[i])
            item = py_tensor_new(c, o->tensors[i]);
        if (!list)
            Py_XDECREF(item);
        else if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) != 0)
            Py_CLEAR(list);
    }
    PyMem_Free(o->tensors);
    py_arrays_close(&o->given);
    return list;
}

static PyObject *run_with(run_fn *run, py_handle *h, PyObject *inputs,
                          PyObject *outputs, size_t n_outputs)
{
    py_arrays in;
    run_outputs out;
    py_call call;

    if (py_arrays_open(&in, inputs, false) != 0)
        return NULL;
    if (outputs_open(&out, outputs, n_outputs) != 0) {
        py_arrays_close(&in);
        return NULL;
    }
    if (py_call_begin(&call, h->context) != 0) {
        (void)outputs_close(&out, h->context, false);
        py_arrays_close(&in);
        return NULL;
    }
    sb_ctx *ctx = h->context->ctx;
    sb_status s = py_arrays_wrap(&in, ctx);
    if (s == SB_OK)
        s = py_arrays_wrap(&out.given, ctx);
    for (size_t i = 0; s == SB_OK && i < out.given.n; i++)
        out.tensors[i] = out.given.items[i].tensor;
    if (s == SB_OK)
        s = run(h->pointer, in.tensors, in.n, out.tensors, out.n);
    py_arrays_unwrap(&out.given);
    py_arrays_unwrap(&in);
    int failed = py_call_end(&call, s);
    PyObject *list = outputs_close(&out, h->context, !failed);
    py_arrays_close(&in);
    return list;
}

static PyObject *session_run(PyObject *self, PyObject *args)
{
    py_handle *h;
    PyObject *inputs, *outputs = NULL;
    size_t n;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&OO&|O", py_arg_session, &h, &inputs,
                          py_arg_count, &n, &outputs))
        return NULL;
    return run_with(run_session, h, inputs, outputs, n);
}

static PyObject *session_is_integer(PyObject *self, PyObject *args)
{
    py_handle *h;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_session, &h))
        return NULL;
    return PyBool_FromLong(sb_session_is_integer(h->pointer));
}

static PyObject *session_workspace(PyObject *self, PyObject *args)
{
    py_handle *h;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_session, &h) ||
        py_lock(h->context) != 0)
        return NULL;
    size_t bytes = sb_session_workspace(h->pointer);
    py_unlock(h->context);
    return PyLong_FromSize_t(bytes);
}

static PyObject *profile_rows(const sb_profile_row *const *v, size_t n)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < n; i++) {
        PyObject *item = Py_BuildValue(
            "{s:N,s:N,s:N,s:n,s:d,s:d,s:d,s:d}", "name", py_text(v[i]->name),
            "op", py_text(v[i]->op), "shape", py_text(v[i]->shape), "nodes",
            (Py_ssize_t)v[i]->nodes, "best_ms", v[i]->best_ms, "median_ms",
            v[i]->median_ms, "macs", v[i]->macs, "bytes", v[i]->bytes);
        py_append(&list, item);
    }
    return list;
}

static PyObject *session_profile(PyObject *self, PyObject *args)
{
    py_handle *h;
    const sb_profile *p = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_session, &h) ||
        py_call_begin(&call, h->context) != 0 ||
        py_call_finish(&call, sb_session_profile(h->pointer, &p)) != 0)
        return NULL;
    PyObject *d =
        Py_BuildValue("{s:n,s:d,s:d,s:N,s:N}", "runs", (Py_ssize_t)p->runs,
                      "best_ms", p->best_ms, "median_ms", p->median_ms, "nodes",
                      profile_rows(p->nodes, p->n_nodes), "types",
                      profile_rows(p->types, p->n_types));
    py_unlock(h->context);
    return d;
}

/* ---- evaluation --------------------------------------------------------- */

static PyObject *eval_create(PyObject *self, PyObject *args)
{
    py_context *c;
    sb_eval_options opt = SB_EVAL_OPTIONS_INIT;
    size_t n;
    sb_eval *eval = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&zdd", py_arg_context, &c, py_arg_count, &n,
                          &opt.task, &opt.threshold, &opt.iou) ||
        py_call_begin(&call, c) != 0)
        return NULL;
    sb_status s = sb_eval_create(c->ctx, n, &opt, &eval);
    return py_call_end_new(&call, s, &py_eval_kind, eval, NULL);
}

/* What a batch is run through and counted by; the second is the reference. */
typedef struct {
    py_handle *session[2], *eval[2];
    const sb_tensor **outputs;
    size_t n;
} eval_job;

static sb_status eval_run(const eval_job *j, const sb_batch *batch)
{
    sb_status s = SB_OK;

    for (size_t i = 0; s == SB_OK && i < 2 && j->session[i]; i++) {
        s = sb_session_run_batch(j->session[i]->pointer, batch,
                                 j->outputs + i * j->n, j->n);
        if (s == SB_OK)
            s = sb_eval_add(j->eval[i]->pointer, batch, j->outputs + i * j->n);
    }
    if (s == SB_OK && j->session[1])
        s = sb_eval_compare(j->eval[0]->pointer, batch, j->outputs,
                            j->outputs + j->n);
    return s;
}

/* eval_batch(batch, n_outputs, session, evaluation, reference session or None,
 * its evaluation or None) */
static PyObject *eval_batch(PyObject *self, PyObject *args)
{
    PyObject *session, *eval;
    eval_job j = {0};
    py_handle *batch;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&O&O&OO", py_arg_batch, &batch,
                          py_arg_count, &j.n, py_arg_session, &j.session[0],
                          py_arg_eval, &j.eval[0], &session, &eval) ||
        (session != Py_None && (!py_arg_session(session, &j.session[1]) ||
                                !py_arg_eval(eval, &j.eval[1]))))
        return NULL;
    for (int i = 0; i < 2 && j.session[i]; i++)
        if (py_same_context(batch, j.session[i]) != 0 ||
            py_same_context(batch, j.eval[i]) != 0)
            return NULL;
    j.outputs = PyMem_Calloc(2 * j.n + 1, sizeof *j.outputs);
    if (!j.outputs)
        return PyErr_NoMemory();
    const sb_batch *samples = py_batch_lock(batch);
    int failed = !samples;
    if (!failed) {
        py_call_begin_locked(&call, batch->context);
        failed = py_call_end(&call, eval_run(&j, samples));
    }
    PyMem_Free(j.outputs);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *eval_dict(const sb_eval_result *r)
{
    return Py_BuildValue(
        "{s:n,s:n,s:d,s:d,s:n,s:d,s:d,s:z,s:N,s:d,s:d,s:n,s:n,s:n,s:d,s:d,s:d,"
        "s:n,s:d,s:d,s:n,s:d,s:n,s:d,s:d,s:n,s:n,s:d,s:d,s:n,s:d,s:d,s:d}",
        "samples", (Py_ssize_t)r->samples, "labeled", (Py_ssize_t)r->labeled,
        "top1", r->top1, "top5", r->top5, "compared", (Py_ssize_t)r->compared,
        "cosine", r->cosine, "sqnr_db", r->sqnr_db, "task", r->task,
        "task_guessed", PyBool_FromLong(r->task_guessed), "agreement",
        r->agreement, "map_iou", r->map_iou, "boxes", (Py_ssize_t)r->boxes,
        "reference_boxes", (Py_ssize_t)r->reference_boxes, "matched_boxes",
        (Py_ssize_t)r->matched_boxes, "recall", r->recall, "precision",
        r->precision, "f1", r->f1, "vectors", (Py_ssize_t)r->vectors,
        "vector_cosine", r->vector_cosine, "vector_cosine_p1",
        r->vector_cosine_p1, "texts", (Py_ssize_t)r->texts, "texts_equal",
        r->texts_equal, "tokens", (Py_ssize_t)r->tokens, "perplexity",
        r->perplexity, "divergence", r->divergence, "uneven",
        (Py_ssize_t)r->uneven, "pixels", (Py_ssize_t)r->pixels,
        "pixel_accuracy", r->pixel_accuracy, "mean_iou", r->mean_iou, "numbers",
        (Py_ssize_t)r->numbers, "mean_absolute_error", r->mean_absolute_error,
        "mean_squared_error", r->mean_squared_error, "label_f1", r->label_f1);
}

static PyObject *eval_get(PyObject *self, PyObject *args)
{
    py_handle *h;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_eval, &h) ||
        py_lock(h->context) != 0)
        return NULL;
    PyObject *d = eval_dict(sb_eval_get(h->pointer));
    py_unlock(h->context);
    return d;
}

PyMethodDef py_session_methods[] = {
    {"session_create", PY_KEYWORDS(session_create),
     METH_VARARGS | METH_KEYWORDS,
     "session_create(model, exact=False, profile=False, integer=2)"},
    {"session_run", session_run, METH_VARARGS,
     "session_run(session, inputs, n_outputs, outputs=None)"},
    {"session_is_integer", session_is_integer, METH_VARARGS,
     "session_is_integer(session)"},
    {"session_workspace", session_workspace, METH_VARARGS,
     "session_workspace(session)"},
    {"session_profile", session_profile, METH_VARARGS,
     "session_profile(session)"},
    {"eval_create", eval_create, METH_VARARGS,
     "eval_create(context, n_outputs, task, threshold, iou)"},
    {"eval_batch", eval_batch, METH_VARARGS,
     "eval_batch(batch, n_outputs, session, evaluation, reference or None, "
     "its evaluation or None)"},
    {"eval_get", eval_get, METH_VARARGS, "eval_get(evaluation)"},
    {NULL, NULL, 0, NULL}};
