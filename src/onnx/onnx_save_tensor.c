/* Tensors to TensorProto: raw bytes for all types but strings. */
#include "onnx/onnx_save.h"

#include <string.h>

#include "onnx/onnx_tensor.h"

enum {
    EXTERNAL_MIN = 1024, /* smaller tensors stay in the model */
    SPARSE_MIN = 1024,   /* smaller ones are not worth it */
    PAGE = 4096,         /* so that readers can map what begins here */
    LOCATION_EXTERNAL = 1,
};

char *sb_onnx_text(const char *text)
{
    union {
        const char *in;
        char *out;
    } u = {text};

    return u.out;
}

static sb_status put_prop(sb_onnx_saver *s, Pb__Tensor *t, const char *key,
                          const char *value)
{
    Pb__Prop *p = sb_arena_alloc(&s->arena, 1, sizeof *p);

    if (!p || !value)
        return SB_NO_MEMORY;
    pb__prop__init(p);
    p->key = sb_onnx_text(key);
    p->value = sb_onnx_text(value);
    t->external_data[t->n_external_data++] = p;
    return SB_OK;
}

static sb_status put_external(sb_onnx_saver *s, const sb_tensor *from,
                              Pb__Tensor *to)
{
    static const unsigned char zeros[PAGE];
    size_t bytes = sb_tensor_bytes(from);
    size_t align = bytes >= PAGE ? PAGE : SB_ALIGN;
    size_t past = (size_t)(sb_writer_size(s->data) % align);

    sb_onnx_data_put(s, zeros, past ? align - past : 0);
    uint64_t offset = sb_writer_size(s->data);
    sb_onnx_data_put(s, from->data, bytes);
    to->external_data = sb_arena_alloc(&s->arena, 3, sizeof(Pb__Prop *));
    if (!to->external_data)
        return SB_NO_MEMORY;
    to->has_data_location = 1;
    to->data_location = LOCATION_EXTERNAL;
    SB_TRY(put_prop(s, to, "location", sb_onnx_data_name(s)));
    SB_TRY(put_prop(
        s, to, "offset",
        sb_arena_printf(&s->arena, "%llu", (unsigned long long)offset)));
    return put_prop(s, to, "length", sb_arena_printf(&s->arena, "%zu", bytes));
}

static sb_status put_strings(sb_onnx_saver *s, const sb_tensor *from,
                             Pb__Tensor *to)
{
    const sb_bytes *strings = from->data;
    size_t n = (size_t)sb_tensor_count(from);

    to->string_data = sb_arena_alloc(&s->arena, n, sizeof *to->string_data);
    if (!to->string_data)
        return SB_NO_MEMORY;
    to->n_string_data = n;
    for (size_t i = 0; i < n; i++) {
        to->string_data[i].len = strings[i].len;
        to->string_data[i].data = (uint8_t *)sb_onnx_text(strings[i].data);
    }
    return SB_OK;
}

/* Type and shape, without elements. */
static sb_status tensor_message(sb_onnx_saver *s, const char *name,
                                const sb_tensor *t, Pb__Tensor **out)
{
    Pb__Tensor *to = sb_arena_alloc(&s->arena, 1, sizeof *to);

    if (!to)
        return SB_NO_MEMORY;
    pb__tensor__init(to);
    to->dims =
        sb_arena_copy(&s->arena, t->dims, (size_t)t->rank * sizeof *t->dims);
    if (!to->dims)
        return SB_NO_MEMORY;
    to->n_dims = (size_t)t->rank;
    to->has_data_type = 1;
    to->data_type = (int32_t)t->dtype;
    to->name = sb_onnx_text(name);
    *out = to;
    return SB_OK;
}

static void put_raw(const sb_tensor *from, Pb__Tensor *to)
{
    to->has_raw_data = 1;
    to->raw_data.len = sb_tensor_bytes(from);
    to->raw_data.data = from->data;
}

sb_status sb_onnx_write_tensor(sb_onnx_saver *s, const char *name,
                               const sb_tensor *t, Pb__Tensor **out)
{
    SB_TRY(tensor_message(s, name, t, out));
    if (t->dtype == SB_DTYPE_STRING)
        return put_strings(s, t, *out);
    if (s->data && sb_tensor_bytes(t) >= EXTERNAL_MIN)
        return put_external(s, t, *out);
    put_raw(t, *out);
    return SB_OK;
}

/* ---- sparse ------------------------------------------------------------- */

/* All bits zero: a negative zero is written. */
static bool element_zero(const unsigned char *p, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (p[i])
            return false;
    return true;
}

static size_t count_elements(const sb_tensor *t)
{
    size_t size = sb_dtype_size(t->dtype), n = (size_t)sb_tensor_count(t);
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += !element_zero((unsigned char *)t->data + i * size, size);
    return count;
}

bool sb_onnx_sparse_pays(const sb_tensor *t)
{
    size_t bytes = sb_tensor_bytes(t), size = sb_dtype_size(t->dtype);

    /* Readers know sparse tensors of whole bytes and at least one dimension. */
    return t->dtype != SB_DTYPE_STRING && size > 0 && t->rank > 0 &&
           bytes >= SPARSE_MIN && bytes <= SB_ONNX_DENSE_MAX &&
           count_elements(t) < bytes / (size + sizeof(int64_t));
}

sb_status sb_onnx_write_sparse(sb_onnx_saver *s, const char *name,
                               const sb_tensor *t, Pb__SparseTensor **out)
{
    size_t size = sb_dtype_size(t->dtype), all = (size_t)sb_tensor_count(t);
    size_t n = count_elements(t), k = 0;
    Pb__SparseTensor *to = sb_arena_alloc(&s->arena, 1, sizeof *to);
    unsigned char *values = sb_arena_alloc(&s->arena, n + 1, size);
    int64_t *places = sb_arena_alloc(&s->arena, n + 1, sizeof *places);
    const int64_t count = (int64_t)n;

    if (!to || !values || !places)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < all; i++) {
        const unsigned char *p = (unsigned char *)t->data + i * size;
        if (element_zero(p, size))
            continue;
        memcpy(values + k * size, p, size);
        places[k++] = (int64_t)i;
    }
    pb__sparse_tensor__init(to);
    to->n_dims = (size_t)t->rank;
    to->dims =
        sb_arena_copy(&s->arena, t->dims, (size_t)t->rank * sizeof *t->dims);
    if (!to->dims)
        return SB_NO_MEMORY;
    sb_tensor v = sb_tensor_make(t->dtype, 1, &count);
    sb_tensor at = sb_tensor_make(SB_DTYPE_I64, 1, &count);
    v.data = values;
    at.data = places;
    *out = to;
    SB_TRY(tensor_message(s, name, &v, &to->values));
    SB_TRY(tensor_message(s, NULL, &at, &to->indices));
    put_raw(&v, to->values);
    put_raw(&at, to->indices);
    return SB_OK;
}
