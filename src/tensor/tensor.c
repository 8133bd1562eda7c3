/* Shapes, reference-counted buffers, tensors. */
#include "tensor/tensor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"

/* ---- shapes ------------------------------------------------------------- */

bool sb_shape_known(const sb_shape *s)
{
    if (s->rank < 0)
        return false;
    for (int i = 0; i < s->rank; i++)
        if (!sb_dim_known(s->dim[i]))
            return false;
    return true;
}

bool sb_shape_same(const sb_shape *a, const sb_shape *b)
{
    if (a->rank < 0 || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (!sb_dim_same(a->dim[i], b->dim[i]))
            return false;
    return true;
}

/* ---- buffers ------------------------------------------------------------ */

struct sb_buf {
    sb_ctx *ctx;
    atomic_uint refs;
    size_t size;
    void *data;
    void (*release)(void *user);
    void *user;
    bool mapped;
};

sb_status sb_buf_create_raw(sb_ctx *ctx, size_t size, sb_buf **out)
{
    size_t total = 0;

    if (!sb_add_size(size, sizeof(sb_buf) + SB_ALIGN, &total))
        return sb_fail(ctx, SB_NO_MEMORY, "out of memory: wanted %zu bytes",
                       size);
    /* Header and elements in one piece; the elements start at the first
     * aligned byte behind the header. */
    sb_buf *buf = sb_alloc_raw(ctx, total, 1);
    if (!buf)
        return SB_NO_MEMORY;
    memset(buf, 0, sizeof *buf);
    uintptr_t end = (uintptr_t)(buf + 1);
    size_t pad = (SB_ALIGN - end % SB_ALIGN) % SB_ALIGN;
    buf->ctx = ctx;
    buf->size = size;
    buf->data = (unsigned char *)(buf + 1) + pad;
    atomic_init(&buf->refs, 1);
    *out = buf;
    return SB_OK;
}

sb_status sb_buf_create(sb_ctx *ctx, size_t size, sb_buf **out)
{
    sb_buf *buf = NULL;

    SB_TRY(sb_buf_create_raw(ctx, size, &buf));
    memset(buf->data, 0, size);
    *out = buf;
    return SB_OK;
}

sb_status sb_buf_wrap(sb_ctx *ctx, void *data, size_t size,
                      void (*release)(void *user), void *user, sb_buf **out)
{
    sb_buf *buf = sb_alloc(ctx, 1, sizeof *buf);

    if (!buf)
        return SB_NO_MEMORY;
    buf->ctx = ctx;
    buf->size = size;
    buf->data = data;
    buf->release = release;
    buf->user = user;
    atomic_init(&buf->refs, 1);
    *out = buf;
    return SB_OK;
}

void sb_buf_set_mapped(sb_buf *buf)
{
    buf->mapped = true;
}

bool sb_buf_is_mapped(const sb_buf *buf)
{
    return buf->mapped;
}

sb_buf *sb_buf_ref(sb_buf *buf)
{
    (void)atomic_fetch_add_explicit(&buf->refs, 1, memory_order_relaxed);
    return buf;
}

bool sb_buf_is_shared(const sb_buf *buf)
{
    return atomic_load(&buf->refs) > 1;
}

void sb_buf_unref(sb_buf *buf)
{
    if (!buf)
        return;
    /* The last owner must see what the others wrote before it frees. */
    if (atomic_fetch_sub_explicit(&buf->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (buf->release)
        buf->release(buf->user);
    sb_free(buf->ctx, buf);
}

void *sb_buf_data(const sb_buf *buf)
{
    return buf->data;
}

size_t sb_buf_size(const sb_buf *buf)
{
    return buf->size;
}

sb_ctx *sb_buf_ctx(const sb_buf *buf)
{
    return buf->ctx;
}

/* ---- tensors ------------------------------------------------------------ */

int64_t sb_dims_product(const int64_t *dims, int begin, int end)
{
    int64_t product = 1;

    for (int i = begin; i < end; i++)
        product *= dims[i];
    return product;
}

int64_t sb_tensor_count(const sb_tensor *t)
{
    return sb_dims_product(t->dims, 0, t->rank);
}

/* Elements in memory; false on overflow. */
static bool stored_count(const sb_tensor *t, int64_t *out)
{
    int64_t count = 1;
    bool empty = false;

    for (int i = 0; i < t->rank; i++) {
        int64_t d = t->dims[i];
        if (d < 0)
            return false;
        if (d == 0) {
            /* Counted as 1, so that products of the other dimensions, which
             * kernels form, cannot overflow either. */
            empty = true;
            d = 1;
        }
        if (!sb_mul_i64(count, d, &count))
            return false;
    }
    if (empty)
        count = 0;
    *out = count;
    return true;
}

size_t sb_tensor_bytes(const sb_tensor *t)
{
    int64_t count = 0;
    size_t bytes = 0;

    if (!stored_count(t, &count) || !sb_dtype_bytes(t->dtype, count, &bytes))
        assert(false && "tensors in memory never overflow");
    return bytes;
}

bool sb_tensor_size_ok(const sb_tensor *t)
{
    int64_t count = 0;
    size_t bytes = 0;

    return t->rank >= 0 && t->rank <= SB_MAX_RANK && stored_count(t, &count) &&
           sb_dtype_bytes(t->dtype, count, &bytes) && bytes <= PTRDIFF_MAX;
}

sb_tensor sb_tensor_make(sb_dtype dtype, int rank, const int64_t *dims)
{
    sb_tensor t = {.dtype = dtype, .rank = rank};

    assert(rank >= 0 && rank <= SB_MAX_RANK);
    for (int i = 0; i < rank; i++)
        t.dims[i] = dims[i];
    return t;
}

sb_status sb_tensor_alloc_raw(sb_ctx *ctx, sb_tensor *t)
{
    sb_buf *buf = NULL;
    char text[128];

    if (!sb_tensor_size_ok(t))
        return sb_fail(ctx, SB_NO_MEMORY, "out of memory: a tensor of %s",
                       sb_tensor_describe(t, text, sizeof text));
    SB_TRY(sb_buf_create_raw(ctx, sb_tensor_bytes(t), &buf));
    t->buf = buf;
    t->data = sb_buf_data(buf);
    return SB_OK;
}

sb_status sb_tensor_alloc(sb_ctx *ctx, sb_tensor *t)
{
    SB_TRY(sb_tensor_alloc_raw(ctx, t));
    memset(t->data, 0, sb_tensor_bytes(t));
    return SB_OK;
}

sb_status sb_tensor_alloc_strings(sb_ctx *ctx, sb_tensor *t,
                                  const sb_bytes *texts)
{
    size_t count = (size_t)sb_tensor_count(t);
    size_t total = count * sizeof(sb_bytes);
    sb_buf *buf = NULL;

    for (size_t i = 0; i < count; i++)
        if (!sb_add_size(total, texts[i].len, &total) ||
            !sb_add_size(total, 1, &total))
            return sb_fail(ctx, SB_NO_MEMORY, "out of memory: %zu strings",
                           count);
    SB_TRY(sb_buf_create(ctx, total, &buf));
    sb_bytes *row = sb_buf_data(buf);
    char *at = (char *)(row + count);
    for (size_t i = 0; i < count; i++) {
        row[i] = (sb_bytes){at, texts[i].len};
        if (texts[i].len)
            memcpy(at, texts[i].data, texts[i].len);
        at += texts[i].len + 1;
    }
    t->buf = buf;
    t->data = row;
    return SB_OK;
}

void sb_tensor_drop(sb_tensor *t)
{
    sb_buf_unref(t->buf);
    t->buf = NULL;
    t->data = NULL;
}

sb_tensor sb_tensor_share(const sb_tensor *t)
{
    if (t->buf)
        (void)sb_buf_ref(t->buf);
    return *t;
}

/* Copies the bytes that hold element i, since mapped tensors need not be
 * aligned; returns which element it is from there. */
static size_t tensor_fetch(const sb_tensor *t, int64_t i, void *out)
{
    unsigned bits = sb_dtype_get(t->dtype)->bits;
    size_t per_byte = bits < 8 ? 8 / bits : 1;
    size_t step = bits < 8 ? 1 : bits / 8;

    memcpy(out, (const unsigned char *)t->data + (size_t)i / per_byte * step,
           step);
    return (size_t)i % per_byte;
}

int64_t sb_tensor_get_i64(const sb_tensor *t, int64_t i)
{
    int64_t v[4] = {0}, bytes[2];
    if (sb_dtype_get(t->dtype)->cls == SB_CLASS_OTHER)
        return 0;
    size_t within = tensor_fetch(t, i, bytes);
    sb_convert(t->dtype, bytes, SB_DTYPE_I64, v, within + 1);
    return v[within];
}

double sb_tensor_get_f64(const sb_tensor *t, int64_t i)
{
    double v[4] = {0};
    int64_t bytes[2];
    if (sb_dtype_get(t->dtype)->cls == SB_CLASS_OTHER)
        return 0;
    size_t within = tensor_fetch(t, i, bytes);
    sb_convert(t->dtype, bytes, SB_DTYPE_F64, v, within + 1);
    return v[within];
}

const char *sb_tensor_describe(const sb_tensor *t, char *out, size_t size)
{
    size_t used = 0;

    for (int i = -1; i <= t->rank && used < size; i++) {
        int n = 0;
        if (i < 0)
            n = snprintf(out, size, "%s[", sb_dtype_get(t->dtype)->name);
        else if (i < t->rank)
            n = snprintf(out + used, size - used, "%s%lld", i ? "," : "",
                         (long long)t->dims[i]);
        else
            n = snprintf(out + used, size - used, "]");
        used += n > 0 ? (size_t)n : 0;
    }
    return out;
}

void sb_tensor_randomize(sb_tensor *tensor, uint64_t seed)
{
    enum { BLOCK = 256 }; /* a whole number of bytes in any packed type */
    float numbers[BLOCK];
    int64_t count = sb_tensor_count(tensor);
    bool is_float = sb_dtype_is_float(tensor->dtype);
    sb_rng rng;

    if (!is_float && !sb_dtype_is_integral(tensor->dtype))
        return;
    sb_rng_init(&rng, seed);
    for (int64_t first = 0; first < count; first += BLOCK) {
        size_t n = count - first < BLOCK ? (size_t)(count - first) : BLOCK;
        size_t offset = 0;
        for (size_t i = 0; i < n; i++)
            numbers[i] = is_float ? (float)sb_rng_normal(&rng)
                                  : (float)(sb_rng_next(&rng) >> 63);
        (void)sb_dtype_bytes(tensor->dtype, first, &offset);
        sb_convert(SB_DTYPE_F32, numbers, tensor->dtype,
                   (unsigned char *)tensor->data + offset, n);
    }
}
