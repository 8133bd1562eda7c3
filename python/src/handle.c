/* Handles: objects of the library as Python objects, one type for all kinds. */
#include "core.h"

PyTypeObject *py_handle_type;

/* Frees are functions of their own type in the library. */
#define RELEASE(noun)                   \
    static void noun##_release(void *p) \
    {                                   \
        sb_##noun##_free(p);            \
    }                                   \
    static_assert(sizeof(sb_##noun *), "a type")

RELEASE(model);
RELEASE(session);
RELEASE(data);
RELEASE(quant_model);
RELEASE(quant_errors);
RELEASE(search);
RELEASE(learner);
RELEASE(prune);
RELEASE(eval);
RELEASE(tokenizer);
RELEASE(generator);
RELEASE(report);
RELEASE(feed);

const py_kind py_model_kind = {"model", model_release};
const py_kind py_session_kind = {"session", session_release};
const py_kind py_data_kind = {"data set", data_release};
const py_kind py_quant_kind = {"quantized model", quant_model_release};
const py_kind py_errors_kind = {"errors", quant_errors_release};
const py_kind py_search_kind = {"search", search_release};
const py_kind py_learner_kind = {"learner", learner_release};
const py_kind py_prune_kind = {"pruning", prune_release};
const py_kind py_eval_kind = {"evaluation", eval_release};
const py_kind py_tokenizer_kind = {"tokenizer", tokenizer_release};
const py_kind py_generator_kind = {"generator", generator_release};
const py_kind py_report_kind = {"report", report_release};
const py_kind py_feed_kind = {"feed", feed_release};

PyObject *py_handle_new(const py_kind *kind, py_context *c, void *pointer,
                        PyObject *keep)
{
    allocfunc make = (allocfunc)PyType_GetSlot(py_handle_type, Py_tp_alloc);
    py_handle *h = (py_handle *)make(py_handle_type, 0);

    if (!h) {
        py_free_later(c, kind->release, pointer);
        return NULL;
    }
    h->kind = kind;
    h->context = (py_context *)Py_NewRef((PyObject *)c);
    h->pointer = pointer;
    h->keep = keep;
    Py_XINCREF(keep);
    return (PyObject *)h;
}

PyObject *py_call_end_new(py_call *call, sb_status status, const py_kind *kind,
                          void *pointer, PyObject *keep)
{
    py_context *c = call->context;

    if (py_call_end(call, status) != 0) {
        PyObject *type, *value, *trace;

        PyErr_Fetch(&type, &value, &trace);
        py_free_later(c, kind->release, pointer);
        PyErr_Restore(type, value, trace);
        return NULL;
    }
    return py_handle_new(kind, c, pointer, keep);
}

py_handle *py_handle_get(PyObject *object, const py_kind *kind)
{
    py_handle *h = (py_handle *)object;

    if (!PyObject_TypeCheck(object, py_handle_type)) {
        PyErr_Format(PyExc_TypeError, "expected a %s", kind->name);
        return NULL;
    }
    if (h->kind != kind) {
        PyErr_Format(PyExc_TypeError, "expected a %s, found a %s", kind->name,
                     h->kind->name);
        return NULL;
    }
    return h;
}

int py_same_context(const py_handle *a, const py_handle *b)
{
    if (a->context == b->context)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "the %s and the %s are of different contexts", a->kind->name,
                 b->kind->name);
    return -1;
}

#define ARGUMENT(noun)                                           \
    int py_arg_##noun(PyObject *object, void *out)               \
    {                                                            \
        py_handle *h = py_handle_get(object, &py_##noun##_kind); \
                                                                 \
        *(py_handle **)out = h;                                  \
        return h != NULL;                                        \
    }                                                            \
    static_assert(sizeof(py_handle), "a type")

ARGUMENT(model);
ARGUMENT(session);
ARGUMENT(data);
ARGUMENT(batch);
ARGUMENT(quant);
ARGUMENT(errors);
ARGUMENT(search);
ARGUMENT(learner);
ARGUMENT(prune);
ARGUMENT(eval);
ARGUMENT(tokenizer);
ARGUMENT(generator);
ARGUMENT(report);
ARGUMENT(feed);

/* ---- the type ----------------------------------------------------------- */

static int handle_traverse(PyObject *self, visitproc visit, void *arg)
{
    py_handle *h = (py_handle *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)h->context);
    Py_VISIT(h->keep);
    return 0;
}

static void keep_release(void *p)
{
    Py_DECREF((PyObject *)p);
}

/* The object of the library goes first, then what that needs, then the context.
 * There is no clear: the collector would free in an order of its own, and every
 * cycle goes through a context, which breaks it. */
static void handle_dealloc(PyObject *self)
{
    py_handle *h = (py_handle *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc give_back = (freefunc)PyType_GetSlot(type, Py_tp_free);

    PyObject_GC_UnTrack(self);
    if (h->context) {
        py_free_later(h->context, h->kind->release, h->pointer);
        py_free_later(h->context, keep_release, h->keep);
    }
    Py_XDECREF((PyObject *)h->context);
    give_back(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *handle_context(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef((PyObject *)((py_handle *)self)->context);
}

static PyGetSetDef attributes[] = {
    {"context", handle_context, NULL, "The context it belongs to.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_doc, "An object of the library."},
                              {Py_tp_dealloc, handle_dealloc},
                              {Py_tp_traverse, handle_traverse},
                              {Py_tp_getset, attributes},
                              {0, NULL}};

static PyType_Spec spec = {"sparsebit._core.Handle", sizeof(py_handle), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                               Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           slots};

int py_handle_init(PyObject *module)
{
    py_handle_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return py_handle_type ? PyModule_AddType(module, py_handle_type) : -1;
}
