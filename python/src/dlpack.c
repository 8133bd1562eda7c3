/* DLPack: arrays between libraries without a copy.  The structs are those of
 * its ABI (https://dmlc.github.io/dlpack), versions 0 and 1. */
#include "core.h"

#include <string.h>

typedef struct {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* in elements; strides NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *manager;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

enum { CPU = 1, READ_ONLY = 1 };

static const struct {
    sb_dtype dtype;
    uint8_t code, bits;
} types[] = {
    {SB_DTYPE_I8, 0, 8},   {SB_DTYPE_I16, 0, 16},   {SB_DTYPE_I32, 0, 32},
    {SB_DTYPE_I64, 0, 64}, {SB_DTYPE_U8, 1, 8},     {SB_DTYPE_U16, 1, 16},
    {SB_DTYPE_U32, 1, 32}, {SB_DTYPE_U64, 1, 64},   {SB_DTYPE_F16, 2, 16},
    {SB_DTYPE_F32, 2, 32}, {SB_DTYPE_F64, 2, 64},   {SB_DTYPE_BF16, 4, 16},
    {SB_DTYPE_C64, 5, 64}, {SB_DTYPE_C128, 5, 128}, {SB_DTYPE_BOOL, 6, 8},
};

/* ---- out ---------------------------------------------------------------- */

/* Consumers may be without the GIL, and may free what they hold when the
 * process ends: after the interpreter, which has freed all else. */
static void let_go(void *owner, void *managed)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE gil = PyGILState_Ensure();

    PyMem_Free(managed);
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(gil);
}

static void managed_delete(dl_managed *m)
{
    let_go(m->manager, m);
}

static void versioned_delete(dl_versioned *m)
{
    let_go(m->manager, m);
}

/* A capsule that was not taken still has its name. */
static void managed_drop(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        managed_delete(PyCapsule_GetPointer(capsule, "dltensor"));
}

static void versioned_drop(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        versioned_delete(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static int fill_tensor(dl_tensor *d, const py_tensor *t, int64_t *strides)
{
    sb_dtype dtype = sb_tensor_dtype(t->tensor);
    const int64_t *dims = sb_tensor_dims(t->tensor);
    int64_t step = 1;
    size_t i = 0;

    while (i < PY_COUNT(types) && types[i].dtype != dtype)
        i++;
    if (i == PY_COUNT(types)) {
        PyErr_Format(PyExc_BufferError, "elements of type %s: not in DLPack",
                     sb_dtype_name(dtype));
        return -1;
    }
    d->data = sb_tensor_data_mutable(t->tensor);
    d->device.type = CPU;
    d->ndim = sb_tensor_rank(t->tensor);
    d->dtype.code = types[i].code;
    d->dtype.bits = types[i].bits;
    d->dtype.lanes = 1;
    d->shape = (int64_t *)(uintptr_t)dims; /* only read */
    d->strides = strides;
    for (int k = d->ndim - 1; k >= 0; k--) {
        strides[k] = step;
        step *= dims[k] > 0 ? dims[k] : 1;
    }
    return 0;
}

PyObject *py_dlpack_export(py_tensor *t, bool versioned)
{
    size_t head = versioned ? sizeof(dl_versioned) : sizeof(dl_managed);
    size_t room = (size_t)sb_tensor_rank(t->tensor) * sizeof(int64_t);
    dl_managed *m = PyMem_Calloc(1, head + room);
    dl_versioned *v = (dl_versioned *)(void *)m;

    if (!m)
        return PyErr_NoMemory();
    if (fill_tensor(versioned ? &v->tensor : &m->tensor, t,
                    (int64_t *)(void *)((char *)m + head)) != 0) {
        PyMem_Free(m);
        return NULL;
    }
    if (versioned) {
        v->version.major = 1;
        v->manager = t;
        v->deleter = versioned_delete;
    } else {
        m->manager = t;
        m->deleter = managed_delete;
    }
    PyObject *capsule =
        versioned ? PyCapsule_New(v, "dltensor_versioned", versioned_drop)
                  : PyCapsule_New(m, "dltensor", managed_drop);
    if (!capsule) {
        PyMem_Free(m);
        return NULL;
    }
    Py_INCREF((PyObject *)t);
    return capsule;
}

/* ---- in ----------------------------------------------------------------- */

/* -1 if the memory is not in row-major order. */
static int check_strides(const dl_tensor *d)
{
    int64_t step = 1;

    if (!d->strides)
        return 0;
    for (int i = 0; i < d->ndim; i++)
        if (d->shape[i] == 0)
            return 0;
    for (int i = d->ndim - 1; i >= 0; i--) {
        if (d->shape[i] != 1 && d->strides[i] != step)
            return -1;
        step *= d->shape[i];
    }
    return 0;
}

static sb_dtype find_dtype(const dl_tensor *d)
{
    for (size_t i = 0; i < PY_COUNT(types); i++)
        if (types[i].code == d->dtype.code && types[i].bits == d->dtype.bits &&
            d->dtype.lanes == 1)
            return types[i].dtype;
    return SB_DTYPE_NONE;
}

int py_dlpack_import(py_array *a, PyObject *capsule, bool writable)
{
    const dl_tensor *d = NULL;
    uint64_t flags = 0;

    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        const dl_versioned *v =
            PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (v->version.major > 1) {
            PyErr_Format(PyExc_BufferError, "DLPack version %u, at most 1",
                         (unsigned)v->version.major);
            return -1;
        }
        d = &v->tensor;
        flags = v->flags;
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        const dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");
        d = &m->tensor;
    } else {
        PyErr_SetString(PyExc_BufferError, "no DLPack capsule");
        return -1;
    }
    if (d->device.type != CPU) {
        PyErr_SetString(PyExc_BufferError,
                        "the array is not in the memory of the CPU: bring it "
                        "there first, e.g. with .cpu()");
        return -1;
    }
    if (writable && (flags & READ_ONLY)) {
        PyErr_SetString(PyExc_ValueError, "the output array is read-only");
        return -1;
    }
    a->dtype = find_dtype(d);
    if (a->dtype == SB_DTYPE_NONE) {
        PyErr_Format(
            PyExc_TypeError,
            "elements with DLPack code %d and %d bits: no type of ours",
            d->dtype.code, d->dtype.bits);
        return -1;
    }
    if (d->ndim < 0 || d->ndim > SB_RANK_MAX) {
        PyErr_Format(PyExc_ValueError, "%d dimensions, at most %d", d->ndim,
                     SB_RANK_MAX);
        return -1;
    }
    a->rank = d->ndim;
    for (int i = 0; i < d->ndim; i++)
        a->dims[i] = d->shape[i];
    a->data = (char *)d->data + d->byte_offset;
    return check_strides(d) != 0;
}
