/* com.microsoft GatherBlockQuantized: Gather from a quantized table, as floats.
 *
 * The table holds 2-, 3-, 4- or 8-bit codes packed low bits first, in blocks
 * along one axis with one scale each: w = (q - zero) * scale.  As bytes it is
 * packed along its last axis, which is the one with blocks, and rows are
 * gathered; as elements of 4 bits any axis may be either.  Zero points are
 * absent (2^(bits - 1) for bytes, else 0), packed like the codes, or (unlike in
 * ONNX Runtime) floats. */
#include "base/threads.h"
#include "ops/index/index_util.h"
#include "ops/infer_util.h"
#include "ops/int8/nbits_int8.h"

enum { DATA, INDICES, SCALES, ZEROS };

typedef struct {
    int64_t bits, block_size, gather_axis, quantize_axis;
} gather_attrs;

#define ATTR(field) offsetof(gather_attrs, field)

static const sb_attr_def gather_attr_defs[] = {
    {.name = "bits", SB_ATTR_INT, ATTR(bits), .i = 4},
    {.name = "block_size", SB_ATTR_INT, ATTR(block_size), .i = 128},
    {.name = "gather_axis", SB_ATTR_INT, ATTR(gather_axis), .i = 0},
    {.name = "quantize_axis", SB_ATTR_INT, ATTR(quantize_axis), .i = 1},
    {0},
};

/* Codes in `n` elements of the table. */
static int64_t codes_in(const gather_attrs *a, sb_dtype dtype, int64_t n)
{
    return dtype == SB_DTYPE_U8 ? n * 8 / a->bits : n;
}

static sb_dim codes_dim(const gather_attrs *a, sb_dtype dtype, sb_dim n)
{
    if (sb_dim_known(n) && n < INT64_MAX / 8)
        return codes_in(a, dtype, n);
    if (dtype == SB_DTYPE_U8 && 8 % a->bits != 0)
        return SB_DIM_UNKNOWN;
    return sb_dim_mul(n, codes_in(a, dtype, 1));
}

static sb_status gather_block_infer(sb_infer *in)
{
    const gather_attrs *a = in->attrs;
    const sb_shape *x = &in->in[DATA]->type.shape;
    const sb_shape *idx = &in->in[INDICES]->type.shape;
    sb_shape out = {.rank = -1};
    int axis = 0;

    if (a->bits != 2 && a->bits != 3 && a->bits != 4 && a->bits != 8)
        return sb_infer_fail(in, "bits is %lld, want 2, 3, 4 or 8",
                             (long long)a->bits);
    if (x->rank >= 0)
        SB_TRY(sb_infer_axis(in, a->gather_axis, x->rank, &axis));
    if (x->rank >= 0 && idx->rank >= 0) {
        if (x->rank + idx->rank - 1 > SB_MAX_RANK)
            return sb_infer_fail(in, "data of rank %d with indices of rank %d",
                                 x->rank, idx->rank);
        out.rank = 0;
        for (int i = 0; i < axis; i++)
            out.dim[out.rank++] = x->dim[i];
        for (int i = 0; i < idx->rank; i++)
            out.dim[out.rank++] = idx->dim[i];
        for (int i = axis + 1; i < x->rank; i++)
            out.dim[out.rank++] = x->dim[i];
        if (axis + 1 < x->rank)
            out.dim[out.rank - 1] =
                codes_dim(a, in->in[DATA]->type.dtype, out.dim[out.rank - 1]);
    }
    sb_infer_set(in, 0, in->in[SCALES]->type.dtype, &out);
    return SB_OK;
}

/* The table as [outer, rows, inner] to gather from and as [.., len, step] with
 * blocks along `len`; in codes. */
typedef struct {
    int64_t outer, rows, inner, len, step, blocks;
} gather_sizes;

/* One scale, and zero point if there are such, for each block along axis q. */
static sb_status gather_check_scales(const sb_kernel *k, const gather_sizes *s,
                                     int q)
{
    const gather_attrs *a = k->attrs;
    const sb_tensor *x = k->in[DATA], *scales = k->in[SCALES];
    const sb_tensor *zeros = sb_kernel_in(k, ZEROS);
    bool bytes = x->dtype == SB_DTYPE_U8;
    int rank = x->rank;
    bool fits = scales->rank == rank && scales->dtype == SB_DTYPE_F32;
    for (int i = 0; fits && i < rank; i++)
        fits = scales->dims[i] == (i == q ? s->blocks : x->dims[i]);
    if (!fits)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the scales do not fit %lld blocks along axis "
                              "%d of the data",
                              (long long)s->blocks, q);
    int64_t last = bytes ? (s->blocks * a->bits + 7) / 8 : 0;
    fits = !zeros || (zeros->rank == rank && (zeros->dtype == x->dtype ||
                                              zeros->dtype == SB_DTYPE_F32));
    for (int i = 0; zeros && fits && i < rank; i++)
        fits =
            zeros->dims[i] == (bytes && i == q && zeros->dtype != SB_DTYPE_F32
                                   ? last
                                   : scales->dims[i]);
    if (!fits)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the zero points do not fit the scales");
    return SB_OK;
}

static sb_status gather_block_prepare(sb_kernel *k)
{
    const gather_attrs *a = k->attrs;
    const sb_tensor *x = k->in[DATA];
    int64_t rank = x->rank;
    int64_t g = a->gather_axis + (a->gather_axis < 0 ? rank : 0);
    int64_t q = a->quantize_axis + (a->quantize_axis < 0 ? rank : 0);
    bool bytes = x->dtype == SB_DTYPE_U8;
    bool small = x->dtype == SB_DTYPE_U4 || x->dtype == SB_DTYPE_I4;

    if (q < 0 || q >= rank || (!bytes && (!small || a->bits != 4)) ||
        (bytes && (g != 0 || q != rank - 1 || rank < 2)))
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "gather_axis %lld, quantize_axis %lld, %lld-bit "
                              "codes as %s: want bytes with 0 and the last, or "
                              "elements of 4 bits",
                              (long long)a->gather_axis,
                              (long long)a->quantize_axis, (long long)a->bits,
                              sb_dtype_name(x->dtype));
    if (bytes && a->bits == 3 && x->dims[rank - 1] % 3)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "rows of %lld bytes hold no whole number of "
                              "3-bit codes",
                              (long long)x->dims[rank - 1]);
    if (a->block_size < 16 || a->block_size > 1 << 20)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "block_size is %lld, want 16 or more",
                              (long long)a->block_size);
    gather_sizes *s = sb_alloc(k->ctx, 1, sizeof *s);
    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    s->outer = sb_dims_product(x->dims, 0, (int)g);
    s->rows = x->dims[g];
    s->inner =
        codes_in(a, x->dtype, sb_dims_product(x->dims, (int)g + 1, (int)rank));
    s->len = codes_in(a, x->dtype, x->dims[q]);
    s->step = sb_dims_product(x->dims, (int)q + 1, (int)rank);
    s->blocks = (s->len + a->block_size - 1) / a->block_size;
    return gather_check_scales(k, s, (int)q);
}

/* Code `i` of packed ones, signed if they are so. */
static int code_at(const uint8_t *codes, int64_t i, int64_t bits, bool sign)
{
    int code = (int)sb_nbits_code(codes, i, bits);

    return sign && code >= 1 << (bits - 1) ? code - (1 << bits) : code;
}

/* Zero point number `at`, that of `block` in its row of the table. */
static float zero_at(const sb_kernel *k, const gather_sizes *s, int64_t at)
{
    const gather_attrs *a = k->attrs;
    const sb_tensor *zeros = sb_kernel_in(k, ZEROS);
    sb_dtype dtype = k->in[DATA]->dtype;

    if (!zeros)
        return dtype == SB_DTYPE_U8 ? (float)(1 << (a->bits - 1)) : 0;
    if (zeros->dtype == SB_DTYPE_F32)
        return ((const float *)zeros->data)[at];
    const uint8_t *codes = zeros->data;
    if (dtype == SB_DTYPE_U8) {
        codes += at / s->blocks * ((s->blocks * a->bits + 7) / 8);
        at %= s->blocks;
    }
    return (float)code_at(codes, at, a->bits, dtype == SB_DTYPE_I4);
}

/* Codes [at, at + n) of the table as floats. */
static void unpack_codes(const sb_kernel *k, int64_t at, int64_t n, float *y)
{
    const gather_attrs *a = k->attrs;
    const gather_sizes *s = k->state;
    const uint8_t *codes = k->in[DATA]->data;
    const float *scales = k->in[SCALES]->data;
    bool sign = k->in[DATA]->dtype == SB_DTYPE_I4;

    while (n > 0) {
        int64_t in = at / s->step % s->len, block = in / a->block_size;
        int64_t which = (at / s->step / s->len * s->blocks + block) * s->step +
                        at % s->step;
        int64_t run = s->step > 1 ? 1 : (block + 1) * a->block_size - in;
        float scale = scales[which], zero = zero_at(k, s, which);

        run = run < s->len - in || s->step > 1 ? run : s->len - in;
        run = run < n ? run : n;
        for (int64_t i = 0; i < run; i++)
            y[i] =
                ((float)code_at(codes, at + i, a->bits, sign) - zero) * scale;
        at += run;
        y += run;
        n -= run;
    }
}

static void gather_block_range(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    const gather_sizes *s = k->state;
    int64_t count = sb_tensor_count(k->in[INDICES]);

    for (size_t i = begin; i < end; i++) {
        int64_t row = sb_index_at(k->in[INDICES], (int64_t)i % count);
        int64_t from = (int64_t)i / count * s->rows;

        unpack_codes(k, (from + (row < 0 ? row + s->rows : row)) * s->inner,
                     s->inner,
                     (float *)k->out[0]->data + (int64_t)i * s->inner);
    }
}

static sb_status gather_block_forward(sb_kernel *k)
{
    const gather_sizes *s = k->state;

    SB_TRY(sb_index_check_all(k, k->in[INDICES], s->rows));
    sb_parallel_for(k->ctx,
                    (size_t)(s->outer * sb_tensor_count(k->in[INDICES])),
                    (size_t)(8192 / (s->inner + 1) + 1), gather_block_range, k);
    return SB_OK;
}

const sb_op_def sb_op_ms_gather_block_quantized = {
    .name = "GatherBlockQuantized",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 3,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INTEGER,
    .any_type = 1u << DATA | 1u << INDICES | 1u << ZEROS,
    .attrs_size = sizeof(gather_attrs),
    .attrs = gather_attr_defs,
    .infer = gather_block_infer,
    .prepare = gather_block_prepare,
    .forward = gather_block_forward,
};
