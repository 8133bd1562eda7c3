/* Contexts: the lock, calls without the GIL, callbacks, what is freed later. */
#include "core.h"

#include <stdlib.h>
#include <unistd.h>

struct py_trash {
    py_trash *next;
    void (*release)(void *);
    void *pointer;
};

PyTypeObject *py_context_type;

enum { WAIT_US = 100000 }; /* between looks at signals while waiting */

/* ---- lock --------------------------------------------------------------- */

static int lock_refused(const py_context *c)
{
    if (c->owner == 0)
        return 0;
    if (c->pid != getpid()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the context was in use by another thread when this "
                        "process was forked: make a new Context");
        return -1;
    }
    if (c->owner == PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "called from a callback of the same context, which is "
                        "still at work: use objects of another Context");
        return -1;
    }
    return 0;
}

int py_lock(py_context *c)
{
    while (!PyThread_acquire_lock(c->lock, NOWAIT_LOCK)) {
        PyLockStatus got = PY_LOCK_FAILURE;

        if (lock_refused(c) != 0)
            return -1;
        Py_BEGIN_ALLOW_THREADS got =
            PyThread_acquire_lock_timed(c->lock, WAIT_US, 1);
        Py_END_ALLOW_THREADS if (got == PY_LOCK_ACQUIRED) break;
        if (PyErr_CheckSignals() != 0)
            return -1;
    }
    c->owner = PyThread_get_thread_ident();
    c->pid = getpid();
    return 0;
}

/* Frees what could not be freed while the lock was taken.  Freeing may run
 * Python (a buffer is let go), so the list is taken off first. */
static void empty_trash(py_context *c)
{
    PyObject *type, *value, *trace;

    if (!c->trash)
        return;
    PyErr_Fetch(&type, &value, &trace); /* it must not see an exception */
    while (c->trash) {
        py_trash *t = c->trash;

        c->trash = t->next;
        if (!c->trash)
            c->trash_end = &c->trash;
        t->release(t->pointer);
        free(t);
    }
    PyErr_Restore(type, value, trace);
}

void py_unlock(py_context *c)
{
    empty_trash(c);
    c->owner = 0;
    PyThread_release_lock(c->lock);
}

void py_free_later(py_context *c, void (*release)(void *), void *pointer)
{
    if (!pointer)
        return;
    if (PyThread_acquire_lock(c->lock, NOWAIT_LOCK)) {
        c->owner = PyThread_get_thread_ident();
        c->pid = getpid();
        release(pointer);
        py_unlock(c);
        return;
    }
    py_trash *t = malloc(sizeof *t);
    if (!t)
        return; /* lost, with all memory */
    *t = (py_trash){NULL, release, pointer};
    *c->trash_end = t;
    c->trash_end = &t->next;
}

/* ---- calls -------------------------------------------------------------- */

void py_keep_error(py_context *c)
{
    if (c->error_type)
        PyErr_Clear(); /* the first one says why */
    else
        PyErr_Fetch(&c->error_type, &c->error_value, &c->error_trace);
    sb_ctx_interrupt(c->ctx);
}

int py_call_begin(py_call *call, py_context *c)
{
    if (py_lock(c) != 0)
        return -1;
    py_call_begin_locked(call, c);
    return 0;
}

void py_call_begin_locked(py_call *call, py_context *c)
{
    *call = (py_call){.context = c};
    /* First: a thread that gets the GIL now may already send a signal. */
    py_signals_begin(call);
    call->thread = PyEval_SaveThread();
}

/* Why a call failed that was told to end. */
static void raise_interrupt(py_context *c)
{
    if (PyErr_CheckSignals() == 0)
        py_raise(SB_INTERRUPTED, sb_ctx_error(c->ctx));
}

int py_call_finish(py_call *call, sb_status status)
{
    py_context *c = call->context;
    bool fired = py_signals_end(call);
    int result = 0;

    PyEval_RestoreThread(call->thread);
    if (c->error_type) {
        PyErr_Restore(c->error_type, c->error_value, c->error_trace);
        c->error_type = c->error_value = c->error_trace = NULL;
        sb_ctx_clear_interrupt(c->ctx);
        result = -1;
    } else if (status != SB_OK) {
        if (status == SB_INTERRUPTED)
            raise_interrupt(c);
        else
            py_raise(status, sb_ctx_error(c->ctx));
        result = -1;
    }
    if (fired || status == SB_INTERRUPTED)
        sb_ctx_clear_interrupt(c->ctx);
    if (result != 0)
        py_unlock(c);
    return result;
}

int py_call_end(py_call *call, sb_status status)
{
    int result = py_call_finish(call, status);

    if (result == 0)
        py_unlock(call->context);
    return result;
}

/* ---- callbacks ---------------------------------------------------------- */

static void context_log(void *user, sb_log_level level, const char *line)
{
    py_context *c = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *text = c->log ? py_text(line) : NULL;
    PyObject *result =
        text ? PyObject_CallFunction(c->log, "iO",
                                     level == SB_LOG_LEVEL_WARNING, text)
             : NULL;

    if (c->log && !result)
        py_keep_error(c);
    Py_XDECREF(text);
    Py_XDECREF(result);
    PyGILState_Release(gil);
}

static int context_progress(void *user, const char *stage, size_t done,
                            size_t total)
{
    py_context *c = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *call = c->progress;
    int stop = 0;

    if (call && !c->error_type) {
        Py_INCREF(call); /* it may be replaced while it runs */
        PyObject *result =
            PyObject_CallFunction(call, "sKK", stage, (unsigned long long)done,
                                  (unsigned long long)total);
        if (!result) {
            py_keep_error(c);
            stop = 1;
        }
        Py_XDECREF(result);
        Py_DECREF(call);
    }
    PyGILState_Release(gil);
    return stop;
}

/* ---- the type ----------------------------------------------------------- */

py_context *py_context_get(PyObject *object)
{
    if (!PyObject_TypeCheck(object, py_context_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a Context");
        return NULL;
    }
    return (py_context *)object;
}

int py_arg_context(PyObject *object, void *out)
{
    py_context *c = py_context_get(object);

    *(py_context **)out = c;
    return c != NULL;
}

static PyObject *context_new(PyTypeObject *type, PyObject *args,
                             PyObject *keywords)
{
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    py_context *c = (py_context *)make(type, 0);

    (void)args;
    (void)keywords;
    if (!c)
        return NULL;
    c->trash_end = &c->trash;
    c->lock = PyThread_allocate_lock();
    c->plugins = PyList_New(0);
    if (!c->lock || !c->plugins || sb_ctx_create(NULL, &c->ctx) != SB_OK) {
        Py_DECREF((PyObject *)c);
        return PyErr_NoMemory();
    }
    return (PyObject *)c;
}

static int context_traverse(PyObject *self, visitproc visit, void *arg)
{
    py_context *c = (py_context *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->log);
    Py_VISIT(c->progress);
    Py_VISIT(c->plugins);
    Py_VISIT(c->error_type);
    Py_VISIT(c->error_value);
    Py_VISIT(c->error_trace);
    return 0;
}

static int context_clear(PyObject *self)
{
    py_context *c = (py_context *)self;

    Py_CLEAR(c->log);
    Py_CLEAR(c->progress);
    Py_CLEAR(c->error_type);
    Py_CLEAR(c->error_value);
    Py_CLEAR(c->error_trace);
    return 0;
}

static void context_dealloc(PyObject *self)
{
    py_context *c = (py_context *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc give_back = (freefunc)PyType_GetSlot(type, Py_tp_free);

    PyObject_GC_UnTrack(self);
    (void)context_clear(self);
    empty_trash(c);
    sb_ctx_free(c->ctx);
    Py_CLEAR(c->plugins); /* after all that could call them */
    if (c->lock)
        PyThread_free_lock(c->lock);
    give_back(self);
    Py_DECREF((PyObject *)type);
}

/* A callable, or NULL for None. */
static int set_callable(PyObject **place, PyObject *value)
{
    if (value && value != Py_None && !PyCallable_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "expected a callable, or None");
        return -1;
    }
    PyObject *old = *place;
    *place = value && value != Py_None ? value : NULL;
    Py_XINCREF(*place);
    Py_XDECREF(old);
    return 0;
}

static int context_set_log(PyObject *self, PyObject *value, void *unused)
{
    py_context *c = (py_context *)self;

    (void)unused;
    if (py_lock(c) != 0)
        return -1;
    int result = set_callable(&c->log, value);
    sb_ctx_set_log(c->ctx, c->log ? context_log : NULL, c);
    py_unlock(c);
    return result;
}

static int context_set_progress(PyObject *self, PyObject *value, void *unused)
{
    py_context *c = (py_context *)self;

    (void)unused;
    if (py_lock(c) != 0)
        return -1;
    int result = set_callable(&c->progress, value);
    sb_ctx_set_progress(c->ctx, c->progress ? context_progress : NULL, c);
    py_unlock(c);
    return result;
}

static PyObject *context_get_log(PyObject *self, void *unused)
{
    PyObject *value = ((py_context *)self)->log;

    (void)unused;
    return Py_NewRef(value ? value : Py_None);
}

static PyObject *context_get_progress(PyObject *self, void *unused)
{
    PyObject *value = ((py_context *)self)->progress;

    (void)unused;
    return Py_NewRef(value ? value : Py_None);
}

static PyObject *context_get_threads(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(sb_ctx_threads(((py_context *)self)->ctx));
}

static int context_set_threads(PyObject *self, PyObject *value, void *unused)
{
    py_context *c = (py_context *)self;
    long n = value ? PyLong_AsLong(value) : -1;

    (void)unused;
    if (n == -1 && PyErr_Occurred())
        return -1;
    if (n < 0 || n > 1 << 16) {
        PyErr_SetString(PyExc_ValueError, "threads: want 0 (one per core) or "
                                          "more");
        return -1;
    }
    if (py_lock(c) != 0)
        return -1;
    sb_ctx_set_threads(c->ctx, (int)n);
    py_unlock(c);
    return 0;
}

static PyObject *context_get_memory(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(sb_ctx_memory(((py_context *)self)->ctx));
}

static PyObject *context_get_busy(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((py_context *)self)->owner != 0);
}

static PyObject *context_set_max_memory(PyObject *self, PyObject *value)
{
    py_context *c = (py_context *)self;
    size_t bytes = PyLong_AsSize_t(value);

    if (bytes == (size_t)-1 && PyErr_Occurred())
        return NULL;
    if (py_lock(c) != 0)
        return NULL;
    sb_ctx_set_max_memory(c->ctx, bytes);
    py_unlock(c);
    Py_RETURN_NONE;
}

static PyObject *context_set_copy_files(PyObject *self, PyObject *value)
{
    py_context *c = (py_context *)self;
    int on = PyObject_IsTrue(value);

    if (on < 0 || py_lock(c) != 0)
        return NULL;
    sb_ctx_set_copy_files(c->ctx, on);
    py_unlock(c);
    Py_RETURN_NONE;
}

/* The one function that another thread calls while a call is running. */
static PyObject *context_interrupt(PyObject *self, PyObject *unused)
{
    (void)unused;
    sb_ctx_interrupt(((py_context *)self)->ctx);
    Py_RETURN_NONE;
}

static PyObject *context_list(PyObject *self, PyObject *args)
{
    py_context *c = (py_context *)self;
    PyObject *list = NULL;
    const sb_listing *row;
    const char *name;

    if (!PyArg_ParseTuple(args, "s", &name) || py_lock(c) != 0)
        return NULL;
    list = PyList_New(0);
    for (size_t i = 0; list && (row = sb_list_get(c->ctx, name, i)); i++) {
        PyObject *item = Py_BuildValue("{s:s,s:s,s:s,s:i}", "name", row->name,
                                       "domain", row->domain, "summary",
                                       row->summary, "since", row->since);
        py_append(&list, item);
    }
    py_unlock(c);
    return list;
}

static PyMethodDef methods[] = {
    {"interrupt", context_interrupt, METH_NOARGS,
     "End the call that is running on another thread, or the next one."},
    {"list", context_list, METH_VARARGS,
     "What this version has: 'ops', 'passes', 'observers', 'quantizers', "
     "'targets', 'sources', 'nets', 'presets' or 'stages'."},
    {"set_max_memory", context_set_max_memory, METH_O,
     "Most bytes that all objects of the context may have; 0: the machine's."},
    {"set_copy_files", context_set_copy_files, METH_O,
     "Whether files are read into memory instead of being mapped."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef attributes[] = {
    {"log", context_get_log, context_set_log,
     "Called with (is_warning, line); or None.", NULL},
    {"progress", context_get_progress, context_set_progress,
     "Called with (stage, done, total) during long calls; or None.", NULL},
    {"threads", context_get_threads, context_set_threads,
     "Threads to use; setting 0 means one per core.", NULL},
    {"is_busy", context_get_busy, NULL, "Whether a call is running.", NULL},
    {"memory", context_get_memory, NULL,
     "Bytes that all objects of the context have at the moment.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Threads, log, progress and memory of the library's objects. "
                "Calls on objects of one context wait for each other."},
    {Py_tp_new, context_new},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_traverse, context_traverse},
    {Py_tp_clear, context_clear},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0, NULL}};

static PyType_Spec spec = {
    "sparsebit._core.Context", sizeof(py_context), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, slots};

int py_context_init(PyObject *module)
{
    py_context_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return py_context_type ? PyModule_AddType(module, py_context_type) : -1;
}
