/* The public tensor calls.  A tensor that a caller owns always has a buffer,
 * which knows the context. */
#include <string.h>

#include "tensor/sequence.h"

/* ---- making ------------------------------------------------------------- */

static sb_status check_type(sb_ctx *ctx, sb_dtype dtype, int rank,
                            const int64_t *dims)
{
    if (!sb_dtype_valid((int)dtype))
        return sb_fail(ctx, SB_BAD_ARG, "tensor: element type %d, want 1..%d",
                       (int)dtype, SB_DTYPE_COUNT - 1);
    if (rank < 0 || rank > SB_MAX_RANK)
        return sb_fail(ctx, SB_BAD_ARG, "tensor: rank %d, want 0..%d", rank,
                       SB_MAX_RANK);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0)
            return sb_fail(ctx, SB_BAD_ARG,
                           "tensor: dimension %d is %lld, want 0 or more", i,
                           (long long)dims[i]);
    return SB_OK;
}

/* Moves the tensor into memory of its own; drops it on failure. */
static sb_status give_tensor(sb_ctx *ctx, sb_tensor *tensor, sb_tensor **out)
{
    sb_tensor *t = sb_alloc(ctx, 1, sizeof *t);

    if (!t) {
        sb_tensor_drop(tensor);
        return SB_NO_MEMORY;
    }
    *t = *tensor;
    *out = t;
    return SB_OK;
}

sb_status sb_tensor_create(sb_ctx *ctx, sb_dtype dtype, int rank,
                           const int64_t *dims, sb_tensor **out)
{
    SB_TRY(check_type(ctx, dtype, rank, dims));
    sb_tensor t = sb_tensor_make(dtype, rank, dims);
    SB_TRY(sb_tensor_alloc(ctx, &t));
    for (int64_t i = 0; dtype == SB_DTYPE_STRING && i < sb_tensor_count(&t);
         i++)
        ((sb_bytes *)t.data)[i] = (sb_bytes){"", 0};
    return give_tensor(ctx, &t, out);
}

sb_status sb_tensor_create_strings(sb_ctx *ctx, int rank, const int64_t *dims,
                                   const char *const *strings, sb_tensor **out)
{
    SB_TRY(check_type(ctx, SB_DTYPE_STRING, rank, dims));
    sb_tensor t = sb_tensor_make(SB_DTYPE_STRING, rank, dims);
    if (!sb_tensor_size_ok(&t))
        return sb_fail(ctx, SB_NO_MEMORY, "out of memory: too many strings");
    size_t n = (size_t)sb_tensor_count(&t);
    sb_bytes *rows = sb_alloc_raw(ctx, n, sizeof *rows);
    if (!rows)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        rows[i] = (sb_bytes){strings[i], strlen(strings[i])};
    sb_status status = sb_tensor_alloc_strings(ctx, &t, rows);
    sb_free(ctx, rows);
    return status == SB_OK ? give_tensor(ctx, &t, out) : status;
}

sb_status sb_tensor_wrap(sb_ctx *ctx, sb_dtype dtype, int rank,
                         const int64_t *dims, void *data,
                         void (*release)(void *user), void *user,
                         sb_tensor **out)
{
    SB_TRY(check_type(ctx, dtype, rank, dims));
    sb_tensor t = sb_tensor_make(dtype, rank, dims);
    if (dtype == SB_DTYPE_STRING)
        return sb_fail(ctx, SB_BAD_ARG, "tensor: strings cannot be wrapped");
    if (!sb_tensor_size_ok(&t))
        return sb_fail(ctx, SB_BAD_ARG, "tensor: too many elements");
    if (!data && sb_tensor_bytes(&t) > 0)
        return sb_fail(ctx, SB_BAD_ARG, "tensor: no memory to wrap");
    sb_tensor *wrapped = sb_alloc(ctx, 1, sizeof *wrapped);
    if (!wrapped)
        return SB_NO_MEMORY;
    t.data = data;
    sb_status status =
        sb_buf_wrap(ctx, data, sb_tensor_bytes(&t), release, user, &t.buf);
    if (status != SB_OK) {
        sb_free(ctx, wrapped);
        return status;
    }
    *wrapped = t;
    *out = wrapped;
    return SB_OK;
}

sb_status sb_tensor_clone(sb_ctx *ctx, const sb_tensor *from, sb_tensor *out)
{
    sb_tensor t = sb_tensor_make(from->dtype, from->rank, from->dims);

    if (from->dtype == SB_DTYPE_STRING) {
        SB_TRY(sb_tensor_alloc_strings(ctx, &t, from->data));
    } else {
        SB_TRY(sb_tensor_alloc_raw(ctx, &t));
        if (sb_tensor_bytes(from) > 0)
            memcpy(t.data, from->data, sb_tensor_bytes(from));
    }
    *out = t;
    return SB_OK;
}

sb_status sb_tensor_copy(sb_ctx *ctx, const sb_tensor *tensor, sb_tensor **out)
{
    sb_tensor t;

    SB_TRY(sb_tensor_clone(ctx, tensor, &t));
    return give_tensor(ctx, &t, out);
}

void sb_tensor_free(sb_tensor *tensor)
{
    if (tensor) {
        sb_ctx *ctx = sb_buf_ctx(tensor->buf);

        sb_tensor_drop(tensor);
        sb_free(ctx, tensor);
    }
}

/* ---- facts -------------------------------------------------------------- */

sb_dtype sb_tensor_dtype(const sb_tensor *tensor)
{
    return tensor->dtype;
}

int sb_tensor_rank(const sb_tensor *tensor)
{
    return tensor->rank;
}

const int64_t *sb_tensor_dims(const sb_tensor *tensor)
{
    return tensor->dims;
}

int64_t sb_tensor_elements(const sb_tensor *tensor)
{
    return sb_tensor_count(tensor);
}

size_t sb_tensor_size(const sb_tensor *tensor)
{
    return sb_tensor_bytes(tensor);
}

static bool has_elements(const sb_tensor *t)
{
    return t->dtype != SB_DTYPE_STRING && t->dtype != SB_DTYPE_SEQUENCE;
}

const void *sb_tensor_data(const sb_tensor *tensor)
{
    return has_elements(tensor) ? tensor->data : NULL;
}

void *sb_tensor_data_mutable(sb_tensor *tensor)
{
    return has_elements(tensor) ? tensor->data : NULL;
}

const char *sb_tensor_string(const sb_tensor *tensor, int64_t i, size_t *len)
{
    if (tensor->dtype != SB_DTYPE_STRING || i < 0 ||
        i >= sb_tensor_count(tensor))
        return NULL;
    const sb_bytes *row = (const sb_bytes *)tensor->data + i;
    if (len)
        *len = row->len;
    return row->data;
}

/* ---- sequences ---------------------------------------------------------- */

int64_t sb_sequence_length(const sb_tensor *tensor)
{
    sb_sequence s;

    return sb_sequence_open(tensor, &s) ? s.n : -1;
}

sb_status sb_sequence_at(sb_ctx *ctx, const sb_tensor *tensor, int64_t i,
                         sb_tensor **out)
{
    sb_sequence s;

    if (!sb_sequence_open(tensor, &s))
        return sb_fail(ctx, SB_BAD_ARG, "sequence: got %s",
                       sb_dtype_name(tensor->dtype));
    if (i < 0 || i >= s.n)
        return sb_fail(ctx, SB_BAD_ARG, "sequence: element %lld of %lld",
                       (long long)i, (long long)s.n);
    sb_tensor t = sb_sequence_get(&s, i);
    return sb_tensor_copy(ctx, &t, out);
}

sb_status sb_sequence_create(sb_ctx *ctx, sb_dtype dtype,
                             const sb_tensor *const *elements, size_t n,
                             sb_tensor **out)
{
    sb_tensor *items = sb_alloc(ctx, n + 1, sizeof *items), t = {0};
    sb_status status = items ? SB_OK : SB_NO_MEMORY;
    size_t bytes = 0;

    for (size_t i = 0; i < n && status == SB_OK; i++) {
        items[i] = *elements[i];
        if (items[i].dtype != dtype)
            status =
                sb_fail(ctx, SB_BAD_ARG, "sequence: element %zu is %s, want %s",
                        i, sb_dtype_name(items[i].dtype), sb_dtype_name(dtype));
    }
    if (status == SB_OK && !sb_sequence_size(dtype, items, n, &bytes))
        status = sb_fail(ctx, SB_BAD_ARG,
                         "sequence: of %zu elements of type "
                         "%s",
                         n, sb_dtype_name(dtype));
    if (status == SB_OK) {
        t = sb_tensor_make(SB_DTYPE_SEQUENCE, 1, &(int64_t){(int64_t)bytes});
        status = sb_tensor_alloc_raw(ctx, &t);
    }
    if (status == SB_OK) {
        sb_sequence_fill(dtype, items, n, t.data);
        status = give_tensor(ctx, &t, out);
    }
    sb_free(ctx, items);
    return status;
}

/* ---- elements ----------------------------------------------------------- */

/* Elements that are converted at once: a whole number of bytes in any type. */
enum { CHUNK = 64 };

/* A part of a tensor that begins with a whole byte. */
typedef struct tensor_chunk {
    int64_t first, within,
        n;                /* elements [first + within, first + within + n) */
    unsigned char *bytes; /* where `first` lies */
    size_t size;          /* bytes of all of them */
} tensor_chunk;

static bool tensor_in_range(const sb_tensor *t, int64_t first, int64_t n)
{
    int64_t count = sb_tensor_count(t);

    return sb_dtype_get(t->dtype)->cls != SB_CLASS_OTHER && first >= 0 &&
           n >= 0 && first <= count && n <= count - first;
}

static tensor_chunk tensor_chunk_at(const sb_tensor *t, int64_t at, int64_t end)
{
    unsigned bits = sb_dtype_get(t->dtype)->bits;
    int64_t per_byte = bits < 8 ? 8 / bits : 1;
    tensor_chunk c = {.first = at / per_byte * per_byte};
    size_t offset = 0;

    c.within = at - c.first;
    c.n = end - at < CHUNK - c.within ? end - at : CHUNK - c.within;
    (void)sb_dtype_bytes(t->dtype, c.first, &offset);
    (void)sb_dtype_bytes(t->dtype, c.within + c.n, &c.size);
    c.bytes = (unsigned char *)t->data + offset;
    return c;
}

/* Converts into doubles or 64-bit integers, by way of aligned memory: weights
 * in mapped files, and memory of the caller, may lie anywhere. */
static int tensor_read(const sb_tensor *t, int64_t first, int64_t n,
                       sb_dtype as, unsigned char *out)
{
    uint64_t raw[CHUNK], as_read[CHUNK];

    if (!tensor_in_range(t, first, n))
        return 0;
    for (int64_t at = first; at < first + n;) {
        tensor_chunk c = tensor_chunk_at(t, at, first + n);

        memcpy(raw, c.bytes, c.size);
        sb_convert(t->dtype, raw, as, as_read, (size_t)(c.within + c.n));
        memcpy(out, as_read + c.within, (size_t)c.n * sizeof *as_read);
        out += (size_t)c.n * sizeof *as_read;
        at += c.n;
    }
    return 1;
}

/* The same the other way; elements of the same byte before and behind stay. */
static int tensor_write(const sb_tensor *t, int64_t first, int64_t n,
                        sb_dtype as, const unsigned char *from)
{
    uint64_t raw[CHUNK], given[CHUNK];
    unsigned bits = sb_dtype_get(t->dtype)->bits;

    if (!tensor_in_range(t, first, n))
        return 0;
    for (int64_t at = first; at < first + n;) {
        tensor_chunk c = tensor_chunk_at(t, at, first + n);
        unsigned used = (unsigned)(c.within + c.n) * bits;
        unsigned char last = c.bytes[c.size - 1];

        memcpy(raw, c.bytes, c.size);
        sb_convert(t->dtype, raw, as, given, (size_t)c.within);
        memcpy(given + c.within, from, (size_t)c.n * sizeof *given);
        sb_convert(as, given, t->dtype, raw, (size_t)(c.within + c.n));
        memcpy(c.bytes, raw, c.size);
        if (used % 8) {
            unsigned char mine = (unsigned char)((1u << used % 8) - 1);
            c.bytes[c.size - 1] =
                (unsigned char)((c.bytes[c.size - 1] & mine) | (last & ~mine));
        }
        from += (size_t)c.n * sizeof *given;
        at += c.n;
    }
    return 1;
}

int sb_tensor_read_f64(const sb_tensor *tensor, int64_t first, int64_t n,
                       double *out)
{
    return tensor_read(tensor, first, n, SB_DTYPE_F64, (unsigned char *)out);
}

int sb_tensor_read_i64(const sb_tensor *tensor, int64_t first, int64_t n,
                       int64_t *out)
{
    return tensor_read(tensor, first, n, SB_DTYPE_I64, (unsigned char *)out);
}

int sb_tensor_write_f64(sb_tensor *tensor, int64_t first, int64_t n,
                        const double *values)
{
    return tensor_write(tensor, first, n, SB_DTYPE_F64,
                        (const unsigned char *)values);
}

int sb_tensor_write_i64(sb_tensor *tensor, int64_t first, int64_t n,
                        const int64_t *values)
{
    return tensor_write(tensor, first, n, SB_DTYPE_I64,
                        (const unsigned char *)values);
}
