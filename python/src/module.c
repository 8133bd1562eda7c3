/* The module: its functions, its exceptions, and small helpers. */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- exceptions --------------------------------------------------------- */

static struct {
    const char *name, *doc;
    PyObject **also; /* the built-in exception that it is as well; or NULL */
    PyObject *type;
} errors[SB_STATUS_COUNT] = {
    [SB_NO_MEMORY] = {"NoMemoryError", "There is not enough memory.",
                      &PyExc_MemoryError, NULL},
    [SB_BAD_ARG] = {"ArgumentError", "An argument is not valid.",
                    &PyExc_ValueError, NULL},
    [SB_BAD_MODEL] = {"ModelError", "A model is not valid.", &PyExc_ValueError,
                      NULL},
    [SB_BAD_CONFIG] = {"ConfigError", "A configuration is not valid.",
                       &PyExc_ValueError, NULL},
    [SB_BAD_DATA] = {"DataError", "Data does not match the model.",
                     &PyExc_ValueError, NULL},
    [SB_UNSUPPORTED] = {"UnsupportedError", "This version cannot do it.",
                        &PyExc_NotImplementedError, NULL},
    [SB_IO] = {"FileError", "A file cannot be read or written.", &PyExc_OSError,
               NULL},
    [SB_BACKEND] = {"BackendError", "A call of oneDNN failed.", NULL, NULL},
    [SB_INTERRUPTED] = {"Interrupted",
                        "The call was ended by Context.interrupt().", NULL,
                        NULL},
};

static PyObject *error_base;

PyObject *py_raise(sb_status status, const char *line)
{
    PyObject *type =
        (size_t)status < SB_STATUS_COUNT ? errors[status].type : NULL;
    PyObject *text = py_text(line);

    if (text)
        PyErr_SetObject(type ? type : error_base, text);
    Py_XDECREF(text);
    return NULL;
}

static PyObject *make_error(const char *name, const char *doc, PyObject *also,
                            int status)
{
    char full[64];
    PyObject *bases =
        also ? PyTuple_Pack(2, error_base, also) : PyTuple_Pack(1, error_base);
    PyObject *dict =
        Py_BuildValue("{s:i,s:s}", "status", status, "__module__", "sparsebit");
    PyObject *type = NULL;

    (void)PyOS_snprintf(full, sizeof full, "sparsebit.%s", name);
    if (bases && dict)
        type = PyErr_NewExceptionWithDoc(full, doc, bases, dict);
    Py_XDECREF(bases);
    Py_XDECREF(dict);
    return type;
}

int py_errors_init(PyObject *module)
{
    error_base = PyErr_NewExceptionWithDoc(
        "sparsebit.Error",
        "A call of the library failed; its text is the library's line.", NULL,
        NULL);
    if (!error_base || PyModule_AddObjectRef(module, "Error", error_base) != 0)
        return -1;
    for (int i = 1; i < SB_STATUS_COUNT; i++) {
        errors[i].type = make_error(errors[i].name, errors[i].doc,
                                    errors[i].also ? *errors[i].also : NULL, i);
        if (!errors[i].type ||
            PyModule_AddObjectRef(module, errors[i].name, errors[i].type) != 0)
            return -1;
    }
    return 0;
}

/* ---- helpers ------------------------------------------------------------ */

PyObject *py_text(const char *text)
{
    if (!text)
        return Py_NewRef(Py_None);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text),
                                "backslashreplace");
}

PyObject *py_text_taken(char *text)
{
    PyObject *result = py_text(text);

    sb_memory_free(text);
    return result;
}

int py_set(PyObject *dict, const char *key, PyObject *value)
{
    int result = dict && value ? PyDict_SetItemString(dict, key, value) : -1;

    Py_XDECREF(value);
    return result;
}

PyObject *py_int_list(const int64_t *v, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);

    for (size_t i = 0; list && i < n; i++) {
        PyObject *item = PyLong_FromLongLong(v[i]);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) != 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *py_float_list(const float *v, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);

    for (size_t i = 0; list && i < n; i++) {
        PyObject *item = PyFloat_FromDouble((double)v[i]);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) != 0)
            Py_CLEAR(list);
    }
    return list;
}

/* The text of a str that a C string can hold; NULL with an exception. */
static const char *string_of(PyObject *item)
{
    Py_ssize_t len = 0;
    const char *text = NULL;

    if (!PyUnicode_Check(item))
        PyErr_Format(PyExc_TypeError, "expected a string, found %R", item);
    else
        text = PyUnicode_AsUTF8AndSize(item, &len);
    if (text && strlen(text) != (size_t)len) {
        PyErr_SetString(PyExc_ValueError, "embedded null character");
        text = NULL;
    }
    return text;
}

int py_strings_open(py_strings *s, PyObject *object)
{
    *s = (py_strings){0};
    if (!object || object == Py_None)
        return 0;
    if (PyUnicode_Check(object)) { /* one that was meant as a list of it */
        s->sequence = PyTuple_Pack(1, object);
    } else {
        s->sequence = PySequence_Tuple(object);
    }
    if (!s->sequence)
        return -1;
    s->n = (size_t)PyTuple_Size(s->sequence);
    s->v = PyMem_Calloc(s->n + 1, sizeof *s->v);
    if (!s->v) {
        PyErr_NoMemory();
        py_strings_close(s);
        return -1;
    }
    for (size_t i = 0; i < s->n; i++) {
        PyObject *item = PyTuple_GetItem(s->sequence, (Py_ssize_t)i);
        s->v[i] = string_of(item);
        if (!s->v[i]) {
            py_strings_close(s);
            return -1;
        }
    }
    return 0;
}

void py_strings_close(py_strings *s)
{
    PyMem_Free(s->v);
    Py_XDECREF(s->sequence);
    *s = (py_strings){0};
}

int py_arg_count(PyObject *object, void *out)
{
    Py_ssize_t n = PyNumber_AsSsize_t(object, PyExc_OverflowError);

    if (n == -1 && PyErr_Occurred())
        return 0;
    if (n < 0) {
        PyErr_Format(PyExc_ValueError, "want 0 or more, found %zd", n);
        return 0;
    }
    *(size_t *)out = (size_t)n;
    return 1;
}

static void name_argument(char **names)
{
    PyObject *type, *value, *trace;
    int number = 0, end = 0;

    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *line = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    if (line && sscanf(line, "argument %d%n", &number, &end) == 1 &&
        *names[number - 1]) {
        PyErr_Format(PyExc_TypeError, "%s%s", names[number - 1], line + end);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    } else {
        PyErr_Restore(type, value, trace);
    }
    Py_XDECREF(text);
}

int py_parse_keywords(PyObject *args, PyObject *keywords, const char *format,
                      char **names, ...)
{
    va_list out;

    va_start(out, names);
    int ok = PyArg_VaParseTupleAndKeywords(args, keywords, format, names, out);
    va_end(out);
    if (!ok && PyErr_ExceptionMatches(PyExc_TypeError))
        name_argument(names);
    return ok;
}

/* ---- the module --------------------------------------------------------- */

static PyObject *module_version(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyUnicode_FromString(sb_version());
}

static PyMethodDef methods[] = {
    {"version", module_version, METH_NOARGS, "version(): of the library"},
    {NULL, NULL, 0, NULL}};

/* The library has no state outside of contexts, but the types here are shared
 * by all, so there is one module for a process. */
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sparsebit._core",
    .m_doc = "The library's functions; use the package sparsebit instead.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyMethodDef *const tables[] = {
        py_model_methods,  py_inspect_methods, py_session_methods,
        py_data_methods,   py_quant_methods,   py_analyze_methods,
        py_learn_methods,  py_prune_methods,   py_language_methods,
        py_report_methods, py_plugin_methods,  py_array_methods};
    PyObject *module = PyModule_Create(&definition);

    if (!module)
        return NULL;
    if (py_errors_init(module) != 0 || py_context_init(module) != 0 ||
        py_handle_init(module) != 0 || py_tensor_init(module) != 0) {
        Py_DECREF(module);
        return NULL;
    }
    for (size_t i = 0; i < PY_COUNT(tables); i++) {
        if (PyModule_AddFunctions(module, tables[i]) != 0) {
            Py_DECREF(module);
            return NULL;
        }
    }
    return module;
}
