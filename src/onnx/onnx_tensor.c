/* TensorProto to tensor.
 *
 * Elements come in one of four ways: external file, raw bytes that stayed in
 * the mapped file (see wire.h), raw bytes in the message, or numbers in a
 * typed field, which int32_data shares between all types of 32 bits and less.
 * Each is checked against the product of the dimensions. */
#include "onnx/onnx_tensor.h"
#include "tensor/sequence.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/onnx.h"
#include "tensor/mapped.h"

enum {
    LOCATION_EXTERNAL = 1,
    /* Misaligned tensors up to this size are copied at once. */
    COPY_MAX = 1 << 16,
};

static const char *tensor_label(const Pb__Tensor *t)
{
    return t->name && t->name[0] ? t->name : "(unnamed)";
}

#define TENSOR_FAIL(src, t, code, fmt, ...)                         \
    sb_fail((src)->ctx, code, "%s: tensor '%s': " fmt, (src)->what, \
            tensor_label(t), __VA_ARGS__)

static sb_status read_dims(sb_onnx_source *src, const Pb__Tensor *t,
                           sb_tensor *out)
{
    if (!sb_dtype_valid(t->data_type))
        return TENSOR_FAIL(src, t, SB_UNSUPPORTED,
                           "element type %d, known are 1 to %d", t->data_type,
                           SB_DTYPE_COUNT - 1);
    if (t->segment)
        return TENSOR_FAIL(src, t, SB_UNSUPPORTED, "%s",
                           "it is one segment of a larger tensor");
    if (t->n_dims > SB_MAX_RANK)
        return TENSOR_FAIL(src, t, SB_UNSUPPORTED, "rank %zu, at most %d",
                           t->n_dims, SB_MAX_RANK);
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] < 0)
            return TENSOR_FAIL(src, t, SB_BAD_MODEL,
                               "dimension %zu is negative: %lld", i,
                               (long long)t->dims[i]);
    *out = sb_tensor_make((sb_dtype)t->data_type, (int)t->n_dims, t->dims);
    if (!sb_tensor_size_ok(out))
        return TENSOR_FAIL(src, t, SB_BAD_MODEL, "%s",
                           "its dimensions are absurdly large");
    return SB_OK;
}

static sb_status check_bytes(sb_onnx_source *src, const Pb__Tensor *t,
                             const sb_tensor *out, uint64_t found)
{
    size_t want = sb_tensor_bytes(out);
    char text[128];

    if (out->dtype == SB_DTYPE_STRING)
        return TENSOR_FAIL(src, t, SB_BAD_MODEL, "%s",
                           "strings cannot be raw data");
    if (found != want)
        return TENSOR_FAIL(src, t, SB_BAD_MODEL, "%llu bytes, %s wants %zu",
                           (unsigned long long)found,
                           sb_tensor_describe(out, text, sizeof text), want);
    return SB_OK;
}

static sb_status copy_elements(sb_ctx *ctx, const void *data, sb_tensor *out)
{
    size_t bytes = sb_tensor_bytes(out);

    SB_TRY(sb_tensor_alloc(ctx, out));
    if (bytes)
        memcpy(out->data, data, bytes);
    return SB_OK;
}

/* Elements inside a shared buffer, at a place that was checked. */
static sb_status view_elements(sb_onnx_source *src, sb_buf *buf, size_t offset,
                               sb_tensor *out)
{
    size_t bytes = sb_tensor_bytes(out);

    if (bytes == 0)
        return sb_tensor_alloc(src->ctx, out);
    out->data = (unsigned char *)sb_buf_data(buf) + offset;
    if (!sb_tensor_is_aligned(out) && (bytes <= COPY_MAX || !src->path)) {
        const void *data = out->data;
        return copy_elements(src->ctx, data, out);
    }
    out->buf = sb_buf_ref(buf);
    return SB_OK;
}

/* ---- external data ------------------------------------------------------ */

static sb_status parse_number(sb_onnx_source *src, const Pb__Tensor *t,
                              const Pb__Prop *prop, uint64_t *out)
{
    char *end = NULL;

    errno = 0;
    unsigned long long v = strtoull(prop->value, &end, 10);
    if (prop->value[0] < '0' || prop->value[0] > '9' || *end || errno)
        return TENSOR_FAIL(src, t, SB_BAD_MODEL,
                           "external %s '%s' is not a size", prop->key,
                           prop->value);
    *out = v;
    return SB_OK;
}

static sb_status external_elements(sb_onnx_source *src, const Pb__Tensor *t,
                                   sb_tensor *out)
{
    const char *location = "";
    uint64_t offset = 0;
    uint64_t length = UINT64_MAX;
    sb_buf *buf = NULL;

    for (size_t i = 0; i < t->n_external_data; i++) {
        const Pb__Prop *p = t->external_data[i];
        if (!p->key || !p->value)
            continue;
        if (strcmp(p->key, "location") == 0)
            location = p->value;
        else if (strcmp(p->key, "offset") == 0)
            SB_TRY(parse_number(src, t, p, &offset));
        else if (strcmp(p->key, "length") == 0)
            SB_TRY(parse_number(src, t, p, &length));
    }
    SB_TRY(sb_source_external(src, tensor_label(t), location, &buf));
    size_t size = sb_buf_size(buf);
    uint64_t left = offset <= size ? size - offset : 0;
    if (length == UINT64_MAX) /* not given: up to the end of the file */
        length = sb_tensor_bytes(out) < left ? sb_tensor_bytes(out) : left;
    if (offset > size || length > left)
        return TENSOR_FAIL(src, t, SB_BAD_MODEL,
                           "bytes %llu + %llu lie outside of '%s', which has "
                           "%zu",
                           (unsigned long long)offset,
                           (unsigned long long)length, location, size);
    SB_TRY(check_bytes(src, t, out, length));
    return view_elements(src, buf, (size_t)offset, out);
}

/* ---- data in the message ------------------------------------------------ */

static sb_status mapped_elements(sb_onnx_source *src, const Pb__Tensor *t,
                                 sb_tensor *out)
{
    bool fits = t->mapped_field == SB_WIRE_RAW_DATA;

    if (t->mapped_field == SB_WIRE_FLOAT_DATA)
        fits = out->dtype == SB_DTYPE_F32 || out->dtype == SB_DTYPE_C64;
    else if (t->mapped_field == SB_WIRE_DOUBLE_DATA)
        fits = out->dtype == SB_DTYPE_F64 || out->dtype == SB_DTYPE_C128;
    if (!fits)
        return TENSOR_FAIL(src, t, SB_BAD_MODEL,
                           "elements of type %s in the wrong field",
                           sb_dtype_name(out->dtype));
    SB_TRY(check_bytes(src, t, out, t->mapped_size));
    return view_elements(src, src->buf, (size_t)t->mapped_offset, out);
}

/* Where a type keeps its elements if they are not raw. */
typedef struct typed_field {
    const char *name;
    const void *data;
    size_t count;
    size_t unit;  /* bytes of one number in the message */
    size_t store; /* of which the low ones are stored */
} typed_field;

static typed_field typed_of(const Pb__Tensor *t, sb_dtype dtype)
{
    unsigned bits = sb_dtype_get(dtype)->bits;

    switch (dtype) {
    case SB_DTYPE_F32:
    case SB_DTYPE_C64:
        return (typed_field){"float_data", t->float_data, t->n_float_data, 4,
                             4};
    case SB_DTYPE_F64:
    case SB_DTYPE_C128:
        return (typed_field){"double_data", t->double_data, t->n_double_data, 8,
                             8};
    case SB_DTYPE_I64:
        return (typed_field){"int64_data", t->int64_data, t->n_int64_data, 8,
                             8};
    case SB_DTYPE_U32:
    case SB_DTYPE_U64:
        return (typed_field){"uint64_data", t->uint64_data, t->n_uint64_data, 8,
                             bits / 8};
    default:
        /* Sub-byte types: each number holds one packed byte. */
        return (typed_field){"int32_data", t->int32_data, t->n_int32_data, 4,
                             bits >= 8 ? bits / 8 : 1};
    }
}

static sb_status typed_elements(sb_onnx_source *src, const Pb__Tensor *t,
                                sb_tensor *out)
{
    typed_field f = typed_of(t, out->dtype);
    size_t bytes = sb_tensor_bytes(out);
    char text[128];

    if (f.count != bytes / f.store)
        return TENSOR_FAIL(src, t, SB_BAD_MODEL,
                           "%zu numbers in %s, %s wants %zu", f.count, f.name,
                           sb_tensor_describe(out, text, sizeof text),
                           bytes / f.store);
    SB_TRY(sb_tensor_alloc(src->ctx, out));
    const unsigned char *from = f.data;
    unsigned char *to = out->data;
    if (f.store == f.unit && bytes)
        memcpy(to, from, bytes);
    else /* little-endian: the low bytes come first */
        for (size_t i = 0; i < f.count; i++)
            memcpy(to + i * f.store, from + i * f.unit, f.store);
    return SB_OK;
}

static sb_status string_elements(sb_onnx_source *src, const Pb__Tensor *t,
                                 sb_tensor *out)
{
    size_t n = t->n_string_data;

    if ((int64_t)n != sb_tensor_count(out))
        return TENSOR_FAIL(src, t, SB_BAD_MODEL, "%zu strings, want %lld", n,
                           (long long)sb_tensor_count(out));
    sb_bytes *texts = sb_alloc(src->ctx, n, sizeof *texts);
    if (!texts)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        texts[i] = (sb_bytes){(const char *)t->string_data[i].data,
                              t->string_data[i].len};
    sb_status status = sb_tensor_alloc_strings(src->ctx, out, texts);
    sb_free(src->ctx, texts);
    return status;
}

sb_status sb_onnx_tensor(sb_onnx_source *src, const Pb__Tensor *t,
                         sb_tensor *out)
{
    SB_TRY(read_dims(src, t, out));
    if (t->data_location == LOCATION_EXTERNAL)
        return external_elements(src, t, out);
    if (t->has_mapped_offset)
        return mapped_elements(src, t, out);
    if (out->dtype == SB_DTYPE_STRING)
        return string_elements(src, t, out);
    if (t->has_raw_data) {
        SB_TRY(check_bytes(src, t, out, t->raw_data.len));
        return copy_elements(src->ctx, t->raw_data.data, out);
    }
    return typed_elements(src, t, out);
}

/* ---- sparse ------------------------------------------------------------- */

/* The place of the i-th value in the dense tensor, or -1.  Indices are either
 * linear or one row of coordinates a value. */
static int64_t dense_index(const sb_tensor *dense, const sb_tensor *indices,
                           int64_t i)
{
    int64_t at = 0;

    if (indices->rank == 1) {
        at = sb_tensor_get_i64(indices, i);
        return at >= 0 && at < sb_tensor_count(dense) ? at : -1;
    }
    for (int d = 0; d < dense->rank; d++) {
        int64_t x = sb_tensor_get_i64(indices, i * dense->rank + d);
        if (x < 0 || x >= dense->dims[d])
            return -1;
        at = at * dense->dims[d] + x;
    }
    return at;
}

static sb_status fill_dense(sb_onnx_source *src, const Pb__Tensor *label,
                            const sb_tensor *values, const sb_tensor *indices,
                            sb_tensor *out)
{
    int64_t n = sb_tensor_count(values);
    size_t size = sb_dtype_size(values->dtype);

    if (size == 0)
        return TENSOR_FAIL(src, label, SB_UNSUPPORTED, "sparse tensor of %s",
                           sb_dtype_name(values->dtype));
    if (values->rank != 1 || indices->dtype != SB_DTYPE_I64 ||
        !(indices->rank == 1 ||
          (indices->rank == 2 && indices->dims[1] == out->rank)) ||
        indices->dims[0] != n)
        return TENSOR_FAIL(src, label, SB_BAD_MODEL, "%s",
                           "values and indices of the sparse tensor do not "
                           "fit each other");
    SB_TRY(sb_tensor_alloc(src->ctx, out));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = dense_index(out, indices, i);
        if (at < 0)
            return TENSOR_FAIL(src, label, SB_BAD_MODEL,
                               "index %lld of the sparse tensor is outside",
                               (long long)i);
        memcpy((unsigned char *)out->data + (size_t)at * size,
               (const unsigned char *)values->data + (size_t)i * size, size);
    }
    return SB_OK;
}

sb_status sb_onnx_sparse(sb_onnx_source *src, const Pb__SparseTensor *t,
                         sb_tensor *out)
{
    Pb__Tensor shape = PB__TENSOR__INIT;
    sb_tensor values = {0};
    sb_tensor indices = {0};

    if (!t->values || !t->indices)
        return sb_fail(src->ctx, SB_BAD_MODEL,
                       "%s: a sparse tensor lacks values or indices",
                       src->what);
    shape.name = t->values->name;
    shape.n_dims = t->n_dims;
    shape.dims = t->dims;
    shape.data_type = t->values->data_type;
    SB_TRY(read_dims(src, &shape, out));
    if (sb_tensor_bytes(out) > SB_ONNX_DENSE_MAX)
        return TENSOR_FAIL(src, &shape, SB_UNSUPPORTED,
                           "sparse tensor of %zu bytes, at most %d",
                           sb_tensor_bytes(out), SB_ONNX_DENSE_MAX);
    sb_status status = sb_onnx_tensor(src, t->values, &values);
    if (status == SB_OK)
        status = sb_onnx_tensor(src, t->indices, &indices);
    if (status == SB_OK)
        status = fill_dense(src, &shape, &values, &indices, out);
    if (status != SB_OK)
        sb_tensor_drop(out);
    sb_tensor_drop(&values);
    sb_tensor_drop(&indices);
    return status;
}

/* ---- .pb files ---------------------------------------------------------- */

static sb_status read_sequence(sb_onnx_source *src, const Pb__Sequence *seq,
                               sb_tensor *out)
{
    size_t n = seq->n_tensor_values, bytes = 0;
    sb_tensor *items = sb_alloc(src->ctx, n + 1, sizeof *items);
    sb_status status = items ? SB_OK : SB_NO_MEMORY;
    sb_dtype dtype = SB_DTYPE_F32; /* of an empty one that says nothing */

    for (size_t i = 0; i < n && status == SB_OK; i++) {
        status = sb_onnx_tensor(src, seq->tensor_values[i], &items[i]);
        dtype = items[i].dtype;
        if (status == SB_OK && items[i].dtype != items[0].dtype)
            status = sb_fail(src->ctx, SB_BAD_DATA,
                             "%s: tensors of several types", src->what);
    }
    if (status == SB_OK && !sb_sequence_size(dtype, items, n, &bytes))
        status = sb_fail(src->ctx, SB_UNSUPPORTED, "%s: tensors of type %s",
                         src->what, sb_dtype_name(dtype));
    if (status == SB_OK) {
        *out = sb_tensor_make(SB_DTYPE_SEQUENCE, 1, &(int64_t){(int64_t)bytes});
        status = sb_tensor_alloc_raw(src->ctx, out);
    }
    if (status == SB_OK)
        sb_sequence_fill(dtype, items, n, out->data);
    for (size_t i = 0; items && i < n; i++)
        sb_tensor_drop(&items[i]);
    sb_free(src->ctx, items);
    return status;
}

static sb_status load_pb(sb_ctx *ctx, const char *path,
                         const ProtobufCMessageDescriptor *descriptor,
                         sb_tensor *out)
{
    const ProtobufCMessage *msg = NULL;
    sb_onnx_source src;
    sb_arena arena;

    sb_arena_init(&arena, ctx);
    sb_status status = sb_source_open(&src, ctx, path);
    if (status == SB_OK)
        status = sb_wire_unpack(&arena, path, descriptor, sb_buf_data(src.buf),
                                sb_buf_size(src.buf), &msg);
    if (status == SB_OK && descriptor == &pb__sequence__descriptor)
        status = read_sequence(&src, (const Pb__Sequence *)msg, out);
    else if (status == SB_OK)
        status = sb_onnx_tensor(&src, (const Pb__Tensor *)msg, out);
    sb_source_close(&src);
    sb_arena_free(&arena);
    return status;
}

sb_status sb_onnx_load_tensor(sb_ctx *ctx, const char *path, sb_tensor *out)
{
    return load_pb(ctx, path, &pb__tensor__descriptor, out);
}

sb_status sb_onnx_load_sequence(sb_ctx *ctx, const char *path, sb_tensor *out)
{
    return load_pb(ctx, path, &pb__sequence__descriptor, out);
}
