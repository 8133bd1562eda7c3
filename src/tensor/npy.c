/* NumPy's .npy format: magic, version, length, a Python dict as text, elements.
 *
 *     \x93NUMPY 1 0 <u16 length> {'descr': '<f4', 'fortran_order': False,
 *                                 'shape': (2, 3), }
 *
 * Versions 2 and 3 have a u32 length (3: the text is UTF-8).  Files come from
 * strangers: everything is checked against the size of the file. */
#include "tensor/npy.h"

#include <stdio.h>
#include <string.h>

#include "tensor/mapped.h"
#include "tensor/npy_internal.h"

enum { MAGIC_LEN = 6, HEADER_ALIGN = 64 };

static const char magic[] = "\x93NUMPY";

typedef struct {
    sb_ctx *ctx;
    const char *what;
    const char *at, *end; /* the dict */
    sb_dtype dtype;
    bool swapped; /* the other byte order than ours */
    bool fortran;
    int rank;
    int64_t dims[SB_MAX_RANK];
    bool has_descr, has_order, has_shape;
} header;

static bool host_is_little(void)
{
    const uint16_t one = 1;
    uint8_t first;

    memcpy(&first, &one, 1);
    return first == 1;
}

/* ---- the dict ----------------------------------------------------------- */

static void skip_space(header *h)
{
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\t' ||
                              *h->at == '\n' || *h->at == '\r'))
        h->at++;
}

static bool npy_accept(header *h, char c)
{
    skip_space(h);
    if (h->at == h->end || *h->at != c)
        return false;
    h->at++;
    return true;
}

static sb_status npy_bad(const header *h, const char *why)
{
    return sb_fail(h->ctx, SB_BAD_DATA, "%s: %s in the .npy header", h->what,
                   why);
}

/* A string in single or double quotes; no escapes occur in these headers. */
static bool read_string(header *h, const char **text, size_t *len)
{
    skip_space(h);
    if (h->at == h->end || (*h->at != '\'' && *h->at != '"'))
        return false;
    char quote = *h->at++;
    *text = h->at;
    while (h->at < h->end && *h->at != quote)
        h->at++;
    if (h->at == h->end)
        return false;
    *len = (size_t)(h->at++ - *text);
    return true;
}

static bool npy_same(const char *text, size_t len, const char *want)
{
    return len == strlen(want) && memcmp(text, want, len) == 0;
}

static sb_status read_descr(header *h)
{
    /* clang-format off */
    static const struct { const char *code; sb_dtype dtype; } rows[] = {
        {"b1", SB_DTYPE_BOOL}, {"i1", SB_DTYPE_I8},  {"i2", SB_DTYPE_I16},
        {"i4", SB_DTYPE_I32},  {"i8", SB_DTYPE_I64}, {"u1", SB_DTYPE_U8},
        {"u2", SB_DTYPE_U16},  {"u4", SB_DTYPE_U32}, {"u8", SB_DTYPE_U64},
        {"f2", SB_DTYPE_F16},  {"f4", SB_DTYPE_F32}, {"f8", SB_DTYPE_F64},
        {"c8", SB_DTYPE_C64},  {"c16", SB_DTYPE_C128},
    };
    /* clang-format on */
    const char *text = NULL;
    size_t len = 0;

    if (!read_string(h, &text, &len))
        return sb_fail(h->ctx, SB_UNSUPPORTED,
                       "%s: records in a .npy file, want plain numbers",
                       h->what);
    char order = '=';
    if (len > 0 && strchr("<>|=", text[0])) {
        order = text[0];
        text++;
        len--;
    }
    h->swapped = (order == '<' && !host_is_little()) ||
                 (order == '>' && host_is_little());
    for (size_t i = 0; i < SB_COUNT(rows); i++)
        if (npy_same(text, len, rows[i].code))
            h->dtype = rows[i].dtype;
    if (h->dtype == SB_DTYPE_NONE)
        return sb_fail(h->ctx, SB_UNSUPPORTED,
                       "%s: elements of type '%.*s', want numbers", h->what,
                       len < 40 ? (int)len : 40, text);
    h->has_descr = true;
    return SB_OK;
}

static sb_status read_order(header *h)
{
    skip_space(h);
    size_t left = (size_t)(h->end - h->at);
    if (left >= 4 && memcmp(h->at, "True", 4) == 0) {
        h->fortran = true;
        h->at += 4;
    } else if (left >= 5 && memcmp(h->at, "False", 5) == 0) {
        h->at += 5;
    } else {
        return npy_bad(h, "fortran_order is neither True nor False");
    }
    h->has_order = true;
    return SB_OK;
}

static sb_status read_dim(header *h, int64_t *out)
{
    int64_t d = 0;

    skip_space(h);
    if (h->at == h->end || *h->at < '0' || *h->at > '9')
        return npy_bad(h, "a dimension that is not a number");
    for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++)
        if (!sb_mul_i64(d, 10, &d) || !sb_add_i64(d, *h->at - '0', &d))
            return npy_bad(h, "a dimension beyond 64 bits");
    (void)npy_accept(h, 'L'); /* Python 2 wrote longs so */
    *out = d;
    return SB_OK;
}

static sb_status read_shape(header *h)
{
    if (!npy_accept(h, '('))
        return npy_bad(h, "a shape that is not a tuple");
    h->rank = 0;
    while (!npy_accept(h, ')')) {
        if (h->rank == SB_MAX_RANK)
            return sb_fail(h->ctx, SB_UNSUPPORTED,
                           "%s: more than %d dimensions", h->what, SB_MAX_RANK);
        SB_TRY(read_dim(h, &h->dims[h->rank++]));
        if (!npy_accept(h, ',')) {
            if (!npy_accept(h, ')'))
                return npy_bad(h, "a shape without end");
            break;
        }
    }
    h->has_shape = true;
    return SB_OK;
}

static sb_status read_dict(header *h)
{
    if (!npy_accept(h, '{'))
        return npy_bad(h, "no dict");
    while (!npy_accept(h, '}')) {
        const char *key = NULL;
        size_t len = 0;
        if (!read_string(h, &key, &len) || !npy_accept(h, ':'))
            return npy_bad(h, "a key that is not a string");
        if (npy_same(key, len, "descr"))
            SB_TRY(read_descr(h));
        else if (npy_same(key, len, "fortran_order"))
            SB_TRY(read_order(h));
        else if (npy_same(key, len, "shape"))
            SB_TRY(read_shape(h));
        else
            return npy_bad(h, "an unknown key");
        if (!npy_accept(h, ',')) {
            if (!npy_accept(h, '}'))
                return npy_bad(h, "a dict without end");
            break;
        }
    }
    if (!h->has_descr || !h->has_order || !h->has_shape)
        return npy_bad(h, "descr, fortran_order or shape missing");
    return SB_OK;
}

/* Checks everything but the elements; *offset is where those begin. */
static sb_status read_header(header *h, const unsigned char *data, size_t size,
                             size_t *offset)
{
    size_t len = 0, start = 10;

    if (size < 10 || memcmp(data, magic, MAGIC_LEN) != 0)
        return sb_fail(h->ctx, SB_BAD_DATA, "%s: not a .npy file", h->what);
    if (data[6] < 1 || data[6] > 3)
        return sb_fail(h->ctx, SB_UNSUPPORTED,
                       "%s: .npy version %u, want 1, 2 or 3", h->what,
                       (unsigned)data[6]);
    len = (size_t)data[8] | (size_t)data[9] << 8;
    if (data[6] > 1) {
        if (size < 12)
            return sb_fail(h->ctx, SB_BAD_DATA, "%s: truncated", h->what);
        len |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
        start = 12;
    }
    if (len > size - start)
        return sb_fail(h->ctx, SB_BAD_DATA,
                       "%s: truncated, %zu bytes of header, want %zu", h->what,
                       size - start, len);
    h->at = (const char *)data + start;
    h->end = h->at + len;
    SB_TRY(read_dict(h));
    *offset = start + len;
    return SB_OK;
}

/* ---- elements ----------------------------------------------------------- */

static void swap_bytes(unsigned char *p, size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++, p += size)
        for (size_t k = 0; k < size / 2; k++) {
            unsigned char t = p[k];
            p[k] = p[size - 1 - k];
            p[size - 1 - k] = t;
        }
}

/* Column-major to row-major: walk the result in order, the source by strides.
 */
static void npy_reorder(const sb_tensor *t, const unsigned char *src,
                        unsigned char *dst)
{
    size_t size = sb_dtype_size(t->dtype);
    int64_t index[SB_MAX_RANK] = {0};
    int64_t stride[SB_MAX_RANK] = {0};
    int64_t at = 0, step = 1;

    for (int i = 0; i < t->rank; i++) {
        stride[i] = step;
        step *= t->dims[i];
    }
    for (int64_t n = sb_tensor_count(t); n > 0; n--) {
        memcpy(dst, src + (size_t)at * size, size);
        dst += size;
        for (int i = t->rank - 1; i >= 0; i--) {
            at += stride[i];
            if (++index[i] < t->dims[i])
                break;
            at -= stride[i] * t->dims[i];
            index[i] = 0;
        }
    }
}

static sb_status copy_elements(const header *h, const unsigned char *src,
                               sb_tensor *t)
{
    size_t bytes = sb_tensor_bytes(t);
    size_t size = sb_dtype_size(t->dtype);

    SB_TRY(sb_tensor_alloc(h->ctx, t));
    if (bytes == 0)
        return SB_OK;
    unsigned char *dst = t->data;
    if (h->fortran && t->rank > 1)
        npy_reorder(t, src, dst);
    else
        memcpy(dst, src, bytes);
    if (t->dtype == SB_DTYPE_C64 || t->dtype == SB_DTYPE_C128)
        size /= 2; /* real and imaginary parts are swapped apart */
    if (h->swapped)
        swap_bytes(dst, bytes / size, size);
    if (t->dtype == SB_DTYPE_BOOL)
        for (size_t i = 0; i < bytes; i++)
            dst[i] = dst[i] != 0;
    return SB_OK;
}

/* The description of the array, and where its elements are. */
static sb_status read_array(header *h, const unsigned char *data, size_t size,
                            sb_tensor *t, size_t *offset)
{
    SB_TRY(read_header(h, data, size, offset));
    *t = sb_tensor_make(h->dtype, h->rank, h->dims);
    if (!sb_tensor_size_ok(t))
        return npy_bad(h, "a shape that is too large");
    if (sb_tensor_bytes(t) > size - *offset)
        return sb_fail(h->ctx, SB_BAD_DATA,
                       "%s: truncated, %zu bytes of elements, want %zu",
                       h->what, size - *offset, sb_tensor_bytes(t));
    return SB_OK;
}

sb_status sb_npy_parse(sb_ctx *ctx, const char *what, const void *data,
                       size_t size, sb_tensor *out)
{
    header h = {.ctx = ctx, .what = what};
    size_t offset = 0;
    sb_tensor t;

    SB_TRY(read_array(&h, data, size, &t, &offset));
    SB_TRY(copy_elements(&h, (const unsigned char *)data + offset, &t));
    *out = t;
    return SB_OK;
}

/* ---- files -------------------------------------------------------------- */

/* Elements stay in the file if they can be computed with as they are. */
static sb_status npy_load(sb_ctx *ctx, const char *path, bool read_only,
                          sb_tensor *out)
{
    header h = {.ctx = ctx, .what = path};
    sb_buf *file = NULL;
    size_t offset = 0;
    sb_tensor t;

    SB_TRY(read_only ? sb_buf_map_file(ctx, path, false, &file)
                     : sb_buf_map_input(ctx, path, &file));
    unsigned char *data = sb_buf_data(file);
    sb_status status = read_array(&h, data, sb_buf_size(file), &t, &offset);
    if (status == SB_OK) {
        bool as_is = !h.swapped && (!h.fortran || t.rank < 2) &&
                     t.dtype != SB_DTYPE_BOOL &&
                     offset % sb_dtype_size(t.dtype) == 0 &&
                     sb_tensor_bytes(&t) > 0;
        if (as_is) {
            t.buf = sb_buf_ref(file);
            t.data = data + offset;
        } else {
            status = copy_elements(&h, data + offset, &t);
        }
    }
    sb_buf_unref(file);
    if (status == SB_OK)
        *out = t;
    return status;
}

sb_status sb_npy_load(sb_ctx *ctx, const char *path, sb_tensor *out)
{
    return npy_load(ctx, path, false, out);
}

sb_status sb_npy_load_const(sb_ctx *ctx, const char *path, sb_tensor *out)
{
    return npy_load(ctx, path, true, out);
}

/* ---- writing ------------------------------------------------------------ */

/* What NumPy has instead of a type that it lacks. */
static sb_dtype npy_widened(sb_dtype dtype)
{
    const sb_dtype_info *info = sb_dtype_get(dtype);

    if (info->bits < 8 && info->cls == SB_CLASS_INT)
        return SB_DTYPE_I8;
    if (info->bits < 8 && info->cls == SB_CLASS_UINT)
        return SB_DTYPE_U8;
    if (dtype == SB_DTYPE_BF16 ||
        (info->cls == SB_CLASS_FLOAT && info->bits <= 8))
        return SB_DTYPE_F32;
    return dtype;
}

static const char *code_of(sb_dtype dtype)
{
    static const char *const codes[SB_DTYPE_COUNT] = {
        [SB_DTYPE_BOOL] = "b1", [SB_DTYPE_I8] = "i1",    [SB_DTYPE_I16] = "i2",
        [SB_DTYPE_I32] = "i4",  [SB_DTYPE_I64] = "i8",   [SB_DTYPE_U8] = "u1",
        [SB_DTYPE_U16] = "u2",  [SB_DTYPE_U32] = "u4",   [SB_DTYPE_U64] = "u8",
        [SB_DTYPE_F16] = "f2",  [SB_DTYPE_F32] = "f4",   [SB_DTYPE_F64] = "f8",
        [SB_DTYPE_C64] = "c8",  [SB_DTYPE_C128] = "c16",
    };

    return (unsigned)dtype < SB_DTYPE_COUNT ? codes[dtype] : NULL;
}

sb_status sb_npy_encode(sb_ctx *ctx, const char *what, const sb_tensor *t,
                        sb_npy_image *out)
{
    sb_tensor wide = sb_tensor_make(npy_widened(t->dtype), t->rank, t->dims);
    const char *code = code_of(wide.dtype);
    size_t used = 10;
    char *text = (char *)out->header;

    if (!code)
        return sb_fail(ctx, SB_UNSUPPORTED,
                       "%s: elements of type %s have no place in .npy files",
                       what, sb_dtype_name(t->dtype));
    if (wide.dtype == t->dtype) {
        wide = sb_tensor_share(t);
    } else {
        SB_TRY(sb_tensor_alloc(ctx, &wide));
        sb_convert(t->dtype, t->data, wide.dtype, wide.data,
                   (size_t)sb_tensor_count(t));
    }
    char order = sb_dtype_size(wide.dtype) == 1 ? '|'
                 : host_is_little()             ? '<'
                                                : '>';
    used += (size_t)snprintf(
        text + used, sizeof out->header - used,
        "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order, code);
    for (int i = 0; i < t->rank; i++)
        used += (size_t)snprintf(text + used, sizeof out->header - used,
                                 i == 0 ? "%lld," : " %lld,",
                                 (long long)t->dims[i]);
    if (t->rank > 1)
        used--; /* only (3,) keeps its comma */
    used += (size_t)snprintf(text + used, sizeof out->header - used, "), }");
    /* The elements begin on a multiple of 64 bytes. */
    size_t total = (used + 1 + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    memset(text + used, ' ', total - used);
    text[total - 1] = '\n';
    memcpy(text, magic, MAGIC_LEN);
    text[6] = 1;
    text[7] = 0;
    out->header[8] = (unsigned char)((total - 10) & 0xff);
    out->header[9] = (unsigned char)((total - 10) >> 8);
    out->header_size = total;
    out->tensor = wide;
    return SB_OK;
}

sb_status sb_npy_save(sb_ctx *ctx, const char *path, const sb_tensor *t)
{
    sb_npy_image image;
    sb_writer *w = NULL;

    SB_TRY(sb_npy_encode(ctx, path, t, &image));
    sb_status status = sb_writer_open(ctx, path, &w);
    if (status == SB_OK) {
        sb_writer_put(w, image.header, image.header_size);
        sb_writer_put(w, image.tensor.data, sb_tensor_bytes(&image.tensor));
        status = sb_writer_commit(w);
    }
    sb_tensor_drop(&image.tensor);
    return status;
}
