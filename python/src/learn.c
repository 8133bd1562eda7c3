/* Training: steps of one's own, and the whole loop. */
#include "core.h"

/* ---- learners ----------------------------------------------------------- */

/* What a learner is made of. */
typedef struct {
    sb_learn_options opt;
    sb_train_bn norms;
    py_strings train, freeze;
} learner_settings;

static char *learner_options[] = {
    "loss",        "loss_output", "label_smoothing",
    "temperature", "optimizer",   "learning_rate",
    "momentum",    "nesterov",    "beta1",
    "beta2",       "epsilon",     "weight_decay",
    "clip_norm",   "ema_decay",   "norm",
    "dropout",     "train",       "freeze",
    "accumulate",  "recompute",   "exact",
    "seed",        "scale_rate",  "norms",
    NULL};

static int settings_open(learner_settings *l, PyObject *keywords)
{
    int loss = SB_LEARN_LOSS_CROSS_ENTROPY, optimizer = SB_OPTIMIZER_SGD;
    int norm = SB_LEARN_NORM_BATCH, norms = SB_TRAIN_BN_AUTO;
    unsigned long long accumulate = 1, recompute = 0, seed = 0;
    PyObject *train = NULL, *freeze = NULL, *none = PyTuple_New(0);
    sb_learn_options *o = &l->opt;

    *l = (learner_settings){.opt = SB_LEARN_OPTIONS_INIT};
    if (!none)
        return -1;
    int ok = py_parse_keywords(
        none, keywords, "|$izddiddpddddddipOOKKpKdi", learner_options, &loss,
        &o->loss_output, &o->label_smoothing, &o->temperature, &optimizer,
        &o->learning_rate, &o->momentum, &o->nesterov, &o->beta1, &o->beta2,
        &o->epsilon, &o->weight_decay, &o->clip_norm, &o->ema_decay, &norm,
        &o->dropout, &train, &freeze, &accumulate, &recompute, &o->exact, &seed,
        &o->scale_rate, &norms);
    Py_DECREF(none);
    if (!ok || py_strings_open(&l->train, train) != 0)
        return -1;
    if (py_strings_open(&l->freeze, freeze) != 0) {
        py_strings_close(&l->train);
        return -1;
    }
    o->loss = (sb_learn_loss)loss;
    o->optimizer = (sb_optimizer)optimizer;
    o->norm = (sb_learn_norm)norm;
    o->train = l->train.v;
    o->n_train = l->train.n;
    o->freeze = l->freeze.v;
    o->n_freeze = l->freeze.n;
    o->accumulate = accumulate;
    o->recompute = recompute;
    o->seed = seed;
    l->norms = (sb_train_bn)norms;
    return 0;
}

static void settings_close(learner_settings *l)
{
    py_strings_close(&l->train);
    py_strings_close(&l->freeze);
}

/* A model, or a quantized one, which the learner then needs. */
static int arg_network(PyObject *object, void *out)
{
    if (PyObject_TypeCheck(object, py_handle_type) &&
        ((py_handle *)object)->kind == &py_quant_kind)
        return py_arg_quant(object, out);
    return py_arg_model(object, out);
}

static PyObject *learner_create(PyObject *self, PyObject *args,
                                PyObject *keywords)
{
    PyObject *result = NULL;
    learner_settings l;
    sb_learner *learner = NULL;
    py_handle *h;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", arg_network, &h) ||
        settings_open(&l, keywords) != 0)
        return NULL;
    bool quant = h->kind == &py_quant_kind;
    if (py_call_begin(&call, h->context) == 0) {
        sb_status s = quant ? sb_quant_model_learner(h->pointer, &l.opt,
                                                     l.norms, &learner)
                            : sb_learner_create(h->pointer, &l.opt, &learner);
        result = py_call_end_new(&call, s, &py_learner_kind, learner,
                                 quant ? (PyObject *)h : h->keep);
    }
    settings_close(&l);
    return result;
}

static PyObject *quant_take(PyObject *self, PyObject *args)
{
    py_handle *q, *learner;
    int average;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&p", py_arg_quant, &q, py_arg_learner,
                          &learner, &average) ||
        py_same_context(q, learner) != 0 ||
        py_call_begin(&call, q->context) != 0 ||
        py_call_end(&call,
                    sb_quant_model_take(q->pointer, learner->pointer,
                                        average ? SB_LEARN_VALUES_AVERAGE
                                                : SB_LEARN_VALUES_LAST)) != 0)
        return NULL;
    Py_RETURN_NONE;
}

typedef sb_status step_fn(sb_learner *learner, const sb_tensor *const *inputs,
                          size_t n_inputs, const sb_tensor *target,
                          double *loss);

static PyObject *step_with(PyObject *args, step_fn *step)
{
    py_handle *h;
    PyObject *inputs, *target;
    py_arrays in;
    py_array to;
    double loss = 0;
    py_call call;

    if (!PyArg_ParseTuple(args, "O&OO", py_arg_learner, &h, &inputs, &target) ||
        py_arrays_open(&in, inputs, false) != 0)
        return NULL;
    if (py_array_open(&to, target, false) != 0) {
        py_arrays_close(&in);
        return NULL;
    }
    int failed = py_call_begin(&call, h->context);
    if (!failed) {
        sb_ctx *ctx = h->context->ctx;
        sb_status s = py_arrays_wrap(&in, ctx);
        if (s == SB_OK)
            s = py_array_wrap(&to, ctx);
        if (s == SB_OK)
            s = step(h->pointer, in.tensors, in.n, to.tensor, &loss);
        py_array_unwrap(&to);
        py_arrays_unwrap(&in);
        failed = py_call_end(&call, s);
    }
    py_array_close(&to);
    py_arrays_close(&in);
    return failed ? NULL : PyFloat_FromDouble(loss);
}

static sb_status step_update(sb_learner *l, const sb_tensor *const *in,
                             size_t n, const sb_tensor *target, double *loss)
{
    return sb_learner_step(l, in, n, target, loss);
}

static sb_status step_gradient(sb_learner *l, const sb_tensor *const *in,
                               size_t n, const sb_tensor *target, double *loss)
{
    return sb_learner_gradient(l, in, n, target, loss);
}

static PyObject *learner_step(PyObject *self, PyObject *args)
{
    (void)self;
    return step_with(args, step_update);
}

static PyObject *learner_gradient(PyObject *self, PyObject *args)
{
    (void)self;
    return step_with(args, step_gradient);
}

static sb_status forward_run(void *learner, const sb_tensor *const *inputs,
                             size_t n_in, const sb_tensor **outputs,
                             size_t n_out)
{
    return sb_learner_forward(learner, inputs, n_in, outputs, n_out);
}

static sb_status eval_last(void *learner, const sb_tensor *const *inputs,
                           size_t n_in, const sb_tensor **outputs, size_t n_out)
{
    return sb_learner_eval(learner, SB_LEARN_VALUES_LAST, inputs, n_in, outputs,
                           n_out);
}

static sb_status eval_average(void *learner, const sb_tensor *const *inputs,
                              size_t n_in, const sb_tensor **outputs,
                              size_t n_out)
{
    return sb_learner_eval(learner, SB_LEARN_VALUES_AVERAGE, inputs, n_in,
                           outputs, n_out);
}

/* In training form. */
static PyObject *learner_forward(PyObject *self, PyObject *args)
{
    py_handle *h;
    PyObject *inputs;
    size_t n;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&OO&", py_arg_learner, &h, &inputs,
                          py_arg_count, &n))
        return NULL;
    return py_call_outputs(h, inputs, n, forward_run);
}

/* In inference form. */
static PyObject *learner_eval(PyObject *self, PyObject *args)
{
    py_handle *h;
    PyObject *inputs;
    size_t n;
    int average = 0;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&OO&|p", py_arg_learner, &h, &inputs,
                          py_arg_count, &n, &average))
        return NULL;
    return py_call_outputs(h, inputs, n, average ? eval_average : eval_last);
}

static PyObject *learner_backward(PyObject *self, PyObject *args)
{
    py_handle *h;
    PyObject *gradients, *result = NULL;
    py_arrays in;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O", py_arg_learner, &h, &gradients) ||
        py_arrays_open(&in, gradients, false) != 0)
        return NULL;
    if (py_call_begin(&call, h->context) == 0) {
        sb_status s = py_arrays_wrap(&in, h->context->ctx);
        if (s == SB_OK)
            s = sb_learner_backward(h->pointer, in.tensors, in.n);
        py_arrays_unwrap(&in);
        result = py_call_end_none(&call, s);
    }
    py_arrays_close(&in);
    return result;
}

/* What a step computes, as a model to look at. */
static PyObject *learner_graph(PyObject *self, PyObject *args)
{
    py_handle *h;
    sb_model *model = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_learner, &h) ||
        py_call_begin(&call, h->context) != 0)
        return NULL;
    sb_status s = sb_learner_graph(h->pointer, &model);
    return py_call_end_new(&call, s, &py_model_kind, model, h->keep);
}

static PyObject *learner_model(PyObject *self, PyObject *args)
{
    py_handle *h;
    int average;
    sb_model *model = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&p", py_arg_learner, &h, &average) ||
        py_call_begin(&call, h->context) != 0)
        return NULL;
    sb_status s = sb_learner_model(
        h->pointer, average ? SB_LEARN_VALUES_AVERAGE : SB_LEARN_VALUES_LAST,
        &model);
    return py_call_end_new(&call, s, &py_model_kind, model, h->keep);
}

static PyObject *learner_rate(PyObject *self, PyObject *args)
{
    py_handle *h;
    double rate = -1;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&|d", py_arg_learner, &h, &rate) ||
        py_lock(h->context) != 0)
        return NULL;
    if (rate >= 0)
        sb_learner_set_learning_rate(h->pointer, rate);
    rate = sb_learner_learning_rate(h->pointer);
    py_unlock(h->context);
    return PyFloat_FromDouble(rate);
}

/* ---- parameters --------------------------------------------------------- */

static PyObject *tensor_copy(py_context *c, const sb_tensor *t)
{
    sb_tensor *copy = NULL;

    if (!t)
        return Py_NewRef(Py_None);
    sb_status s = sb_tensor_copy(c->ctx, t, &copy);
    return s == SB_OK ? py_tensor_new(c, copy)
                      : py_raise(s, sb_ctx_error(c->ctx));
}

static PyObject *learner_parameters(PyObject *self, PyObject *args)
{
    static const char *const roles[] = {"weight", "scale", "statistic"};
    py_handle *h;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_learner, &h) ||
        py_lock(h->context) != 0)
        return NULL;
    PyObject *list = PyList_New(0);
    size_t n = sb_learner_parameter_count(h->pointer);
    for (size_t i = 0; list && i < n; i++) {
        const sb_parameter_info *p = sb_learner_parameter(h->pointer, i);
        PyObject *item = Py_BuildValue("{s:N,s:s,s:N,s:d,s:d}", "name",
                                       py_text(p->name), "role", roles[p->role],
                                       "trained", PyBool_FromLong(p->trained),
                                       "rate", p->rate, "decay", p->decay);
        py_append(&list, item);
    }
    py_unlock(h->context);
    return list;
}

/* (value, gradient or None) of one parameter; copies */
static PyObject *learner_parameter(PyObject *self, PyObject *args)
{
    py_handle *h;
    const char *name;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&s", py_arg_learner, &h, &name) ||
        py_lock(h->context) != 0)
        return NULL;
    const sb_parameter_info *p = sb_learner_find_parameter(h->pointer, name);
    PyObject *value = p ? tensor_copy(h->context, p->value) : NULL;
    PyObject *gradient = value ? tensor_copy(h->context, p->gradient) : NULL;
    py_unlock(h->context);
    if (!p)
        PyErr_Format(PyExc_KeyError, "no parameter has the name '%s'", name);
    if (value && gradient)
        return Py_BuildValue("(NN)", value, gradient);
    Py_XDECREF(value);
    return NULL;
}

PY_ARRAY_CALL(learner, learner_set_parameter, sb_learner_set_parameter);
PY_PATH_CALL(learner, learner_save, sb_learner_save);
PY_PATH_CALL(learner, learner_load, sb_learner_load);

/* ---- the whole loop ----------------------------------------------------- */

typedef struct {
    py_context *context;
    PyObject *call;
} watch_user;

static int train_watch(void *user, const sb_train_state *t)
{
    const watch_user *u = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *result = PyObject_CallFunction(
        u->call, "{s:n,s:n,s:n,s:n,s:d,s:d,s:d,s:d,s:d,s:n,s:d,s:d,s:d,s:s}",
        "epoch", (Py_ssize_t)t->epoch, "epochs", (Py_ssize_t)t->epochs, "step",
        (Py_ssize_t)t->step, "steps", (Py_ssize_t)t->steps, "learning_rate",
        t->learning_rate, "loss", t->loss, "accuracy", t->accuracy,
        "validation", t->validation, "best", t->best, "best_epoch",
        (Py_ssize_t)t->best_epoch, "samples_per_second", t->samples_per_second,
        "seconds_left", t->seconds_left, "pruned", t->pruned, "metric",
        t->metric);

    if (!result)
        py_keep_error(u->context);
    int stop = !result;
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return stop;
}

static PyObject *train_run(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {
        "",       "",           "",        "options", "options_text",
        "folder", "resume",     "teacher", "seed",    "watch",
        "prune",  "prune_text", NULL};
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    unsigned long long seed = 0;
    PyObject *valid_object, *teacher_object = NULL, *watch = NULL;
    py_handle *m, *data, *valid = NULL, *teacher = NULL;
    sb_model *model = NULL;
    py_call call;

    (void)self;
    if (!py_parse_keywords(args, keywords, "O&O&O|zzzpOKOzz", names,
                           arg_network, &m, py_arg_data, &data, &valid_object,
                           &opt.options, &opt.options_text, &opt.folder,
                           &opt.resume, &teacher_object, &seed, &watch,
                           &opt.prune, &opt.prune_text) ||
        (valid_object != Py_None && !py_arg_data(valid_object, &valid)) ||
        (teacher_object && teacher_object != Py_None &&
         !py_arg_model(teacher_object, &teacher)) ||
        py_same_context(m, data) != 0 ||
        (valid && py_same_context(m, valid) != 0) ||
        (teacher && py_same_context(m, teacher) != 0))
        return NULL;
    watch_user user = {m->context, watch};
    opt.seed = seed;
    opt.teacher = teacher ? teacher->pointer : NULL;
    if (watch && watch != Py_None) {
        opt.watch = train_watch;
        opt.watch_user = &user;
    }
    if (py_call_begin(&call, m->context) != 0)
        return NULL;
    data->version++; /* batches of it are gone */
    if (valid)
        valid->version++;
    if (m->kind == &py_quant_kind) {
        sb_train_check check = {.struct_size = sizeof check};
        sb_status s =
            sb_quant_model_train(m->pointer, data->pointer,
                                 valid ? valid->pointer : NULL, &opt, &check);
        return py_call_end(&call, s) != 0
                   ? NULL
                   : Py_BuildValue("{s:n,s:d,s:d}", "samples",
                                   (Py_ssize_t)check.samples, "agreement",
                                   check.agreement, "error", check.error);
    }
    sb_status s = sb_train(m->pointer, data->pointer,
                           valid ? valid->pointer : NULL, &opt, &model);
    return py_call_end_new(&call, s, &py_model_kind, model, m->keep);
}

PyMethodDef py_learn_methods[] = {
    {"learner_create", PY_KEYWORDS(learner_create),
     METH_VARARGS | METH_KEYWORDS, "learner_create(model or quant, **options)"},
    {"quant_take", quant_take, METH_VARARGS,
     "quant_take(quant, learner, average)"},
    {"learner_step", learner_step, METH_VARARGS,
     "learner_step(learner, inputs, target): the loss"},
    {"learner_gradient", learner_gradient, METH_VARARGS,
     "learner_gradient(learner, inputs, target): the loss"},
    {"learner_forward", learner_forward, METH_VARARGS,
     "learner_forward(learner, inputs, n_outputs)"},
    {"learner_backward", learner_backward, METH_VARARGS,
     "learner_backward(learner, gradients)"},
    {"learner_eval", learner_eval, METH_VARARGS,
     "learner_eval(learner, inputs, n_outputs, average=False)"},
    {"learner_model", learner_model, METH_VARARGS,
     "learner_model(learner, average)"},
    {"learner_graph", learner_graph, METH_VARARGS, "learner_graph(learner)"},
    {"learner_rate", learner_rate, METH_VARARGS,
     "learner_rate(learner, rate=None)"},
    {"learner_parameters", learner_parameters, METH_VARARGS,
     "learner_parameters(learner)"},
    {"learner_parameter", learner_parameter, METH_VARARGS,
     "learner_parameter(learner, name): value and gradient"},
    {"learner_set_parameter", learner_set_parameter, METH_VARARGS,
     "learner_set_parameter(learner, name, array)"},
    {"learner_save", learner_save, METH_VARARGS, "learner_save(learner, path)"},
    {"learner_load", learner_load, METH_VARARGS, "learner_load(learner, path)"},
    {"train", PY_KEYWORDS(train_run), METH_VARARGS | METH_KEYWORDS,
     "train(model or quant, data, validation or None, **options): a model, or "
     "of a quantized one how the exported network compares"},
    {NULL, NULL, 0, NULL}};
