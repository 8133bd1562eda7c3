/* core.h - what the files of the extension share.
 *
 * The extension is thin: a function of the module stands for a function of the
 * library, takes and returns plain Python things, and knows about lifetimes,
 * locks and exceptions.  Classes, names and results are written in Python above
 * it.  Only public headers are used, and only the limited API of CPython 3.11,
 * so that one binary serves all later versions.
 *
 * Rules
 *   GIL     is released while the library works (call_begin, call_end), and
 *           kept in calls that only read.
 *   locks   A context serves one thread at a time, so each has a lock, which
 *           every call takes.  The lock is waited for without the GIL.
 *   life    Objects of the library are held by py_handle, which holds the
 *           context.  What is freed while a call is running is freed after it.
 *   errors  A callback that raises ends the call; its exception is kept in the
 *           context and raised by call_end, as it was. */
#ifndef SPARSEBIT_PYTHON_CORE_H
#define SPARSEBIT_PYTHON_CORE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <signal.h>
#include <stdbool.h>

#include <sparsebit/plugin.h>

/* ---- module ------------------------------------------------------------- */

/* Types and exceptions, made once when the module is imported. */
extern PyTypeObject *py_context_type, *py_handle_type, *py_tensor_type;

/* Makes the type of a file; -1 with an exception. */
int py_context_init(PyObject *module);
int py_handle_init(PyObject *module);
int py_tensor_init(PyObject *module);
int py_errors_init(PyObject *module);

/* Functions of the module, by file. */
extern PyMethodDef py_model_methods[], py_inspect_methods[],
    py_session_methods[], py_data_methods[], py_quant_methods[],
    py_analyze_methods[], py_learn_methods[], py_prune_methods[],
    py_language_methods[], py_report_methods[], py_plugin_methods[],
    py_array_methods[];

/* Raises the exception of a status with a line; always NULL. */
PyObject *py_raise(sb_status status, const char *line);

/* ---- contexts ----------------------------------------------------------- */

typedef struct py_trash py_trash; /* what is to be freed after a call */

typedef struct py_context {
    PyObject_HEAD sb_ctx *ctx;
    PyThread_type_lock lock;
    unsigned long owner; /* thread that has the lock; 0: none */
    pid_t pid;           /* its process */
    PyObject *log, *progress;
    PyObject *plugins; /* list: what plug-ins were made of */
    /* The exception of a callback, while it travels to call_end. */
    PyObject *error_type, *error_value, *error_trace;
    py_trash *trash, **trash_end; /* first come, first freed */
} py_context;

/* A context out of an argument; NULL with TypeError. */
py_context *py_context_get(PyObject *object);
/* Takes the lock, keeping the GIL; -1 with an exception. */
int py_lock(py_context *c);
void py_unlock(py_context *c);
/* Frees something now, or after the call that is running. */
void py_free_later(py_context *c, void (*release)(void *), void *pointer);
/* Keeps the exception that a callback raised, and ends the running call. */
void py_keep_error(py_context *c);

/* A call into the library that may take long: without the GIL. */
typedef struct py_call {
    py_context *context;
    PyThreadState *thread;
    sigset_t mask; /* of a thread that is not the main one */
    sb_ctx *outer; /* whose call an interrupt would have ended before */
    bool is_main;
} py_call;

/* Takes the lock, lets the GIL go; -1 with an exception. */
int py_call_begin(py_call *call, py_context *c);
/* The same where the lock is taken already. */
void py_call_begin_locked(py_call *call, py_context *c);
/* Takes the GIL back, lets the lock go; -1 with an exception if `status` is not
 * SB_OK or a callback raised. */
int py_call_end(py_call *call, sb_status status);
/* The same, but if all is well the lock stays, so that what the library lent
 * can be read; py_unlock follows. */
int py_call_finish(py_call *call, sb_status status);

/* Signals while the library works; see interrupt.c. */
void py_signals_begin(py_call *call);
/* Whether there was an interrupt since. */
bool py_signals_end(py_call *call);

/* ---- handles ------------------------------------------------------------ */

/* What a handle holds. */
typedef struct py_kind {
    const char *name;
    void (*release)(void *);
} py_kind;

extern const py_kind py_model_kind, py_session_kind, py_data_kind,
    py_batch_kind, py_quant_kind, py_errors_kind, py_search_kind,
    py_learner_kind, py_prune_kind, py_eval_kind, py_tokenizer_kind,
    py_generator_kind, py_report_kind, py_feed_kind;

typedef struct py_handle {
    PyObject_HEAD const py_kind *kind;
    py_context *context;
    void *pointer;
    PyObject *keep; /* what must outlive it; or NULL */
    size_t version; /* of data: counts batches; of a batch: which one it is */
} py_handle;

/* A new handle, which owns `pointer`; frees it and returns NULL on failure. */
PyObject *py_handle_new(const py_kind *kind, py_context *c, void *pointer,
                        PyObject *keep);
/* The handle in an argument; NULL with an exception. */
py_handle *py_handle_get(PyObject *object, const py_kind *kind);
/* call_end and py_handle_new in one. */
PyObject *py_call_end_new(py_call *call, sb_status status, const py_kind *kind,
                          void *pointer, PyObject *keep);
/* Takes the lock for a call with a batch, which may be out of date; NULL with
 * an exception, without the lock. */
const sb_batch *py_batch_lock(py_handle *batch);
/* Do all objects belong to one context?  -1 with an exception if not. */
int py_same_context(const py_handle *a, const py_handle *b);

/* Converters for PyArg_Parse's `O&`: a handle of one kind. */
int py_arg_context(PyObject *object, void *out);
int py_arg_model(PyObject *object, void *out);
int py_arg_session(PyObject *object, void *out);
int py_arg_data(PyObject *object, void *out);
int py_arg_batch(PyObject *object, void *out);
int py_arg_quant(PyObject *object, void *out);
int py_arg_errors(PyObject *object, void *out);
int py_arg_search(PyObject *object, void *out);
int py_arg_learner(PyObject *object, void *out);
int py_arg_prune(PyObject *object, void *out);
int py_arg_eval(PyObject *object, void *out);
int py_arg_tokenizer(PyObject *object, void *out);
int py_arg_generator(PyObject *object, void *out);
int py_arg_report(PyObject *object, void *out);
int py_arg_feed(PyObject *object, void *out);

/* ---- tensors ------------------------------------------------------------ */

typedef struct py_tensor {
    PyObject_HEAD sb_tensor *tensor;
    py_context *context;
    int64_t *strides; /* in bytes, for buffers; made when first asked for */
} py_tensor;

/* A tensor object that owns `tensor`; frees it and returns NULL on failure. */
PyObject *py_tensor_new(py_context *c, sb_tensor *tensor);
/* call_end and py_tensor_new in one. */
PyObject *py_call_end_tensor(py_call *call, sb_status status,
                             sb_tensor *tensor);
/* The same for several, as a list, with None for NULL. */
PyObject *py_call_end_tensors(py_call *call, sb_status status,
                              sb_tensor **tensors, size_t n);

/* An array of the caller's, for the time of a call: its memory is used as it
 * is.  Arrays that are not contiguous are copied. */
typedef struct py_array {
    PyObject *object; /* a reference; NULL: nothing is held */
    sb_tensor *tensor;
    bool own; /* the wrapping tensor is ours, not the object's */
    bool writable;
    sb_dtype dtype;
    int rank;
    int64_t dims[SB_RANK_MAX];
    void *data;
    void *copy;          /* of what was not contiguous */
    Py_buffer view;      /* obj NULL if not used */
    PyObject *capsule;   /* of DLPack */
    const void *managed; /* in it */
} py_array;

/* Looks into an array (with the GIL); -1 with an exception.
 * @param writable it will be written to: no copy will do */
int py_array_open(py_array *a, PyObject *object, bool writable);
/* Makes its tensor (with the lock). */
sb_status py_array_wrap(py_array *a, sb_ctx *ctx);
/* Frees the tensor (with the lock). */
void py_array_unwrap(py_array *a);
/* Lets the caller's memory go (with the GIL). */
void py_array_close(py_array *a);

/* Several of them; entries that are None have no tensor. */
typedef struct py_arrays {
    py_array *items;
    const sb_tensor **tensors; /* after py_arrays_wrap */
    size_t n;
} py_arrays;

int py_arrays_open(py_arrays *a, PyObject *sequence, bool writable);
sb_status py_arrays_wrap(py_arrays *a, sb_ctx *ctx);
void py_arrays_unwrap(py_arrays *a);
void py_arrays_close(py_arrays *a);

/* The letter of the struct module for a type, or NULL; and back. */
const char *py_dtype_format(sb_dtype dtype);
sb_dtype py_dtype_of_format(const char *format, Py_ssize_t size);
sb_dtype py_dtype_of_name(const char *name);

/* DLPack, see dlpack.c. */
PyObject *py_dlpack_export(py_tensor *t, bool versioned);
/* Fills type, shape and data from a capsule; 1 if it is not contiguous, -1 with
 * an exception. */
int py_dlpack_import(py_array *a, PyObject *capsule, bool writable);

/* ---- calls of a common shape --------------------------------------------- */

typedef sb_status py_object_fn(void *object);
typedef sb_status py_path_fn(void *object, const char *path);
typedef sb_status py_array_fn(void *object, const char *name,
                              const sb_tensor *array);
typedef sb_status py_outputs_fn(void *object, const sb_tensor *const *inputs,
                                size_t n_inputs, const sb_tensor **outputs,
                                size_t n_outputs);

/* call_end; None if all is well. */
PyObject *py_call_end_none(py_call *call, sb_status status);
/* The whole of a function whose arguments are an object of `kind`; with a path;
 * with a name and an array. */
PyObject *py_call_object(PyObject *args, const py_kind *kind,
                         py_object_fn *run);
PyObject *py_call_path(PyObject *args, const py_kind *kind, py_path_fn *run);
PyObject *py_call_array(PyObject *args, const py_kind *kind, py_array_fn *run);
/* Runs on inputs; a list with copies of n outputs, None for those that are not
 * known yet. */
PyObject *py_call_outputs(py_handle *h, PyObject *inputs, size_t n,
                          py_outputs_fn *run);

/* Such functions, of which the library has one with the right arguments. */
#define PY_OBJECT_CALL(noun, name, function)                        \
    static sb_status name##_run(void *object)                       \
    {                                                               \
        return function(object);                                    \
    }                                                               \
    static PyObject *name(PyObject *self, PyObject *args)           \
    {                                                               \
        (void)self;                                                 \
        return py_call_object(args, &py_##noun##_kind, name##_run); \
    }                                                               \
    static_assert(sizeof(py_handle), "a type")
#define PY_PATH_CALL(noun, name, function)                        \
    static sb_status name##_run(void *object, const char *path)   \
    {                                                             \
        return function(object, path);                            \
    }                                                             \
    static PyObject *name(PyObject *self, PyObject *args)         \
    {                                                             \
        (void)self;                                               \
        return py_call_path(args, &py_##noun##_kind, name##_run); \
    }                                                             \
    static_assert(sizeof(py_handle), "a type")
#define PY_ARRAY_CALL(noun, name, function)                        \
    static sb_status name##_run(void *object, const char *value,   \
                                const sb_tensor *array)            \
    {                                                              \
        return function(object, value, array);                     \
    }                                                              \
    static PyObject *name(PyObject *self, PyObject *args)          \
    {                                                              \
        (void)self;                                                \
        return py_call_array(args, &py_##noun##_kind, name##_run); \
    }                                                              \
    static_assert(sizeof(py_handle), "a type")

/* ---- small things ------------------------------------------------------- */

/* Adds a new reference, which is taken over, to a list; the list becomes NULL
 * with an exception, also if the item is NULL. */
void py_append(PyObject **list, PyObject *item);

/* Text of the library, which may be anything, as str; None for NULL. */
PyObject *py_text(const char *text);
/* None for NULL; frees it with sb_memory_free(). */
PyObject *py_text_taken(char *text);
/* Sets a key of a dict to a new reference, which is taken over; -1 with an
 * exception, also if the value is NULL. */
int py_set(PyObject *dict, const char *key, PyObject *value);
PyObject *py_int_list(const int64_t *v, size_t n);
PyObject *py_float_list(const float *v, size_t n);

/* Strings out of a sequence, or none for None. */
typedef struct py_strings {
    PyObject *sequence;
    const char **v;
    size_t n;
} py_strings;

int py_strings_open(py_strings *s, PyObject *object);
void py_strings_close(py_strings *s);
/* A path: str, bytes or os.PathLike; a new reference to bytes. */
#define py_arg_path PyUnicode_FSConverter
/* A size_t; ValueError if it is negative. */
int py_arg_count(PyObject *object, void *out);
/* PyArg_ParseTupleAndKeywords(), but a wrong type is told with the name of the
 * argument, not its number, which is none that the caller counts. */
int py_parse_keywords(PyObject *args, PyObject *keywords, const char *format,
                      char **names, ...);

#define PY_COUNT(a) (sizeof(a) / sizeof((a)[0]))
/* A function with keywords in a method table. */
#define PY_KEYWORDS(f) ((PyCFunction)(void (*)(void))(f))

#endif
