/* Tokenizers and generating text. */
#include "core.h"

#include <string.h>

static PyObject *tokenizer_open(PyObject *self, PyObject *args)
{
    py_context *c;
    PyObject *path = NULL, *result = NULL;
    sb_tokenizer *tokenizer = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", py_arg_context, &c, py_arg_path, &path))
        return NULL;
    if (py_call_begin(&call, c) == 0) {
        sb_status s =
            sb_tokenizer_open(c->ctx, PyBytes_AsString(path), &tokenizer);
        result = py_call_end_new(&call, s, &py_tokenizer_kind, tokenizer, NULL);
    }
    Py_DECREF(path);
    return result;
}

static PyObject *tokenizer_size(PyObject *self, PyObject *args)
{
    py_handle *h;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&", py_arg_tokenizer, &h))
        return NULL;
    return PyLong_FromSize_t(sb_tokenizer_size(h->pointer));
}

static PyObject *tokenizer_encode(PyObject *self, PyObject *args)
{
    py_handle *h;
    const char *text;
    Py_ssize_t len;
    int special;
    int64_t *ids = NULL;
    size_t n = 0;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&s#p", py_arg_tokenizer, &h, &text, &len,
                          &special) ||
        py_call_begin(&call, h->context) != 0 ||
        py_call_end(&call, sb_tokenizer_encode(h->pointer, text, (size_t)len,
                                               special, &ids, &n)) != 0)
        return NULL;
    PyObject *list = py_int_list(ids, n);
    sb_memory_free(ids);
    return list;
}

static PyObject *tokenizer_decode(PyObject *self, PyObject *args)
{
    py_handle *h;
    PyObject *sequence, *all;
    char *text = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O", py_arg_tokenizer, &h, &sequence))
        return NULL;
    all = PySequence_Tuple(sequence);
    if (!all)
        return NULL;
    size_t n = (size_t)PyTuple_Size(all);
    int64_t *ids = PyMem_Calloc(n + 1, sizeof *ids);
    for (size_t i = 0; ids && i < n; i++)
        ids[i] = PyLong_AsLongLong(PyTuple_GetItem(all, (Py_ssize_t)i));
    Py_DECREF(all);
    if (!ids || PyErr_Occurred()) {
        PyMem_Free(ids);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    int failed = py_call_begin(&call, h->context);
    if (!failed)
        failed =
            py_call_end(&call, sb_tokenizer_decode(h->pointer, ids, n, &text));
    PyMem_Free(ids);
    return failed ? NULL : py_text_taken(text);
}

/* ---- generating --------------------------------------------------------- */

static PyObject *generator_create(PyObject *self, PyObject *args)
{
    py_handle *m, *t;
    size_t context;
    sb_generator *generator = NULL;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&O&", py_arg_model, &m, py_arg_tokenizer,
                          &t, py_arg_count, &context) ||
        py_same_context(m, t) != 0)
        return NULL;
    PyObject *keep = PyTuple_Pack(2, (PyObject *)m, (PyObject *)t);
    PyObject *result = NULL;
    if (keep && py_call_begin(&call, m->context) == 0) {
        sb_status s =
            sb_generator_create(m->pointer, t->pointer, context, &generator);
        result = py_call_end_new(&call, s, &py_generator_kind, generator, keep);
    }
    Py_XDECREF(keep);
    return result;
}

typedef struct {
    py_context *context;
    PyObject *call;
} text_user;

/* Text may end inside of a character, when its tokens do. */
static PyObject *written_text(const char *text, size_t len)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "backslashreplace");
}

static int text_write(void *user, const char *text, size_t len)
{
    const text_user *u = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *piece = written_text(text, len);
    PyObject *result =
        piece ? PyObject_CallFunctionObjArgs(u->call, piece, NULL) : NULL;
    int stop = !result || result == Py_False;

    if (!result)
        py_keep_error(u->context);
    Py_XDECREF(piece);
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return stop;
}

static PyObject *generator_run(PyObject *self, PyObject *args,
                               PyObject *keywords)
{
    static char *names[] = {"",           "",      "max_tokens", "temperature",
                            "top_k",      "top_p", "seed",       "stop",
                            "ignore_end", "text",  NULL};
    sb_generate_options opt = SB_GENERATE_OPTIONS_INIT;
    unsigned long long max = 128, top_k = 0, seed = 0;
    PyObject *stop = NULL, *call_back = NULL, *d = NULL;
    const sb_generation *g = NULL;
    const char *prompt;
    py_strings stops;
    py_handle *h;
    py_call call;

    (void)self;
    if (!py_parse_keywords(args, keywords, "O&s|KdKdKOpO", names,
                           py_arg_generator, &h, &prompt, &max,
                           &opt.temperature, &top_k, &opt.top_p, &seed, &stop,
                           &opt.ignore_end, &call_back) ||
        py_strings_open(&stops, stop) != 0)
        return NULL;
    opt.max_tokens = max;
    opt.top_k = top_k;
    opt.seed = seed;
    opt.stop = stops.v;
    opt.n_stop = stops.n;
    text_user user = {h->context, call_back};
    if (call_back && call_back != Py_None) {
        opt.text = text_write;
        opt.text_user = &user;
    }
    if (py_call_begin(&call, h->context) == 0 &&
        py_call_finish(&call, sb_generator_run(h->pointer, prompt, &opt, &g)) ==
            0) {
        d = Py_BuildValue(
            "{s:N,s:n,s:n,s:d,s:d,s:s}", "text", written_text(g->text, g->len),
            "prompt_tokens", (Py_ssize_t)g->prompt_tokens, "tokens",
            (Py_ssize_t)g->tokens, "prompt_seconds", g->prompt_seconds,
            "seconds", g->seconds, "end", g->end);
        py_unlock(h->context);
    }
    py_strings_close(&stops);
    return d;
}

/* ---- files and adapters ------------------------------------------------- */

static PyObject *model_save_language(PyObject *self, PyObject *args,
                                     PyObject *keywords)
{
    static char *names[] = {"",         "",      "format",      "tokenizer",
                            "float_as", "round", "shard_bytes", "gptq_version",
                            NULL};
    sb_language_options opt = SB_LANGUAGE_OPTIONS_INIT;
    int format = SB_LANGUAGE_GGUF;
    unsigned long long shard = 0;
    PyObject *path = NULL, *result = NULL;
    py_handle *m;
    py_call call;

    (void)self;
    if (!py_parse_keywords(args, keywords, "O&O&|izzpKi", names, py_arg_model,
                           &m, py_arg_path, &path, &format, &opt.tokenizer,
                           &opt.float_as, &opt.round, &shard,
                           &opt.gptq_version))
        return NULL;
    opt.format = (sb_language_format)format;
    opt.shard_bytes = shard;
    if (py_call_begin(&call, m->context) == 0)
        result = py_call_end_none(
            &call,
            sb_model_save_language(m->pointer, PyBytes_AsString(path), &opt));
    Py_DECREF(path);
    return result;
}

static PyObject *model_add_lora(PyObject *self, PyObject *args)
{
    sb_lora_options opt = SB_LORA_OPTIONS_INIT;
    unsigned long long seed;
    py_handle *m;
    py_call call;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&sO&dK", py_arg_model, &m, &opt.layers,
                          py_arg_count, &opt.rank, &opt.alpha, &seed) ||
        py_call_begin(&call, m->context) != 0)
        return NULL;
    opt.seed = seed;
    return py_call_end_none(&call, sb_model_add_lora(m->pointer, &opt));
}

PY_PATH_CALL(model, model_load_lora, sb_model_load_lora);
PY_PATH_CALL(model, model_save_lora, sb_model_save_lora);
PY_OBJECT_CALL(model, model_merge_lora, sb_model_merge_lora);

PyMethodDef py_language_methods[] = {
    {"model_save_language", PY_KEYWORDS(model_save_language),
     METH_VARARGS | METH_KEYWORDS,
     "model_save_language(model, path, **options): format 0 GGUF, 1 a folder "
     "of floats, 2 of GPTQ"},
    {"model_add_lora", model_add_lora, METH_VARARGS,
     "model_add_lora(model, layers, rank, alpha, seed)"},
    {"model_load_lora", model_load_lora, METH_VARARGS,
     "model_load_lora(model, folder)"},
    {"model_save_lora", model_save_lora, METH_VARARGS,
     "model_save_lora(model, folder)"},
    {"model_merge_lora", model_merge_lora, METH_VARARGS,
     "model_merge_lora(model)"},
    {"tokenizer_open", tokenizer_open, METH_VARARGS,
     "tokenizer_open(context, path)"},
    {"tokenizer_size", tokenizer_size, METH_VARARGS,
     "tokenizer_size(tokenizer)"},
    {"tokenizer_encode", tokenizer_encode, METH_VARARGS,
     "tokenizer_encode(tokenizer, text, special)"},
    {"tokenizer_decode", tokenizer_decode, METH_VARARGS,
     "tokenizer_decode(tokenizer, ids)"},
    {"generator_create", generator_create, METH_VARARGS,
     "generator_create(model, tokenizer, context)"},
    {"generator_run", PY_KEYWORDS(generator_run), METH_VARARGS | METH_KEYWORDS,
     "generator_run(generator, prompt, **options)"},
    {NULL, NULL, 0, NULL}};
