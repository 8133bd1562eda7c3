/* Pages about what was done to a model. */
#include "core.h"

static PyObject *report_create(PyObject *self, PyObject *args)
{
    py_context *c;
    const char *title, *subtitle;
    sb_report *report = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&ss", py_arg_context, &c, &title,
                          &subtitle) ||
        py_call_begin(&call, c) != 0)
        return NULL;
    sb_status s = sb_report_create(c->ctx, title, subtitle, &report);
    return py_call_end_new(&call, s, &py_report_kind, report, NULL);
}

static PyObject *report_fact(PyObject *self, PyObject *args)
{
    py_handle *h;
    const char *label, *value;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&ss", py_arg_report, &h, &label, &value) ||
        py_lock(h->context) != 0)
        return NULL;
    sb_report_fact(h->pointer, label, value);
    py_unlock(h->context);
    Py_RETURN_NONE;
}

static PyObject *report_section(PyObject *self, PyObject *args)
{
    py_handle *h;
    const char *heading, *text;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&sz", py_arg_report, &h, &heading, &text) ||
        py_lock(h->context) != 0)
        return NULL;
    sb_report_section(h->pointer, heading, text);
    py_unlock(h->context);
    Py_RETURN_NONE;
}

static PyObject *report_quantization(PyObject *self, PyObject *args)
{
    py_handle *h, *errors;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", py_arg_report, &h, py_arg_errors,
                          &errors) ||
        py_same_context(h, errors) != 0 ||
        py_call_begin(&call, h->context) != 0 ||
        py_call_end(&call,
                    sb_report_quantization(h->pointer, errors->pointer)) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *report_save(PyObject *self, PyObject *args)
{
    py_handle *h;
    PyObject *path = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", py_arg_report, &h, py_arg_path, &path))
        return NULL;
    int failed = py_call_begin(&call, h->context);
    if (!failed)
        failed = py_call_end(
            &call, sb_report_save(h->pointer, PyBytes_AsString(path)));
    Py_DECREF(path);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef py_report_methods[] = {
    {"report_create", report_create, METH_VARARGS,
     "report_create(context, title, subtitle)"},
    {"report_fact", report_fact, METH_VARARGS,
     "report_fact(report, label, value)"},
    {"report_section", report_section, METH_VARARGS,
     "report_section(report, heading, text)"},
    {"report_quantization", report_quantization, METH_VARARGS,
     "report_quantization(report, errors)"},
    {"report_save", report_save, METH_VARARGS, "report_save(report, path)"},
    {NULL, NULL, 0, NULL}};
