/* com.microsoft GatherBlockQuantized: rows of a quantized table, as floats.
 *
 * The table [rows, cols * bits / 8] holds 4- or 8-bit codes packed low bits
 * first, in blocks along its rows with one scale each: w = (q - zero) * scale.
 * Zero points are absent (2^(bits - 1)), packed like the codes, or (unlike in
 * ONNX Runtime) floats.  The common form only: whole rows of a table of bytes
 * are gathered. */
#include "base/threads.h"
#include "ops/index/index_util.h"
#include "ops/infer_util.h"

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

static sb_status gather_block_infer(sb_infer *in)
{
    const gather_attrs *a = in->attrs;
    const sb_shape *x = &in->in[DATA]->type.shape;
    const sb_shape *idx = &in->in[INDICES]->type.shape;
    sb_shape out = {.rank = -1};

    if (a->bits != 4 && a->bits != 8)
        return sb_infer_fail(in, "bits is %lld, want 4 or 8",
                             (long long)a->bits);
    if (x->rank >= 0 && x->rank != 2)
        return sb_infer_fail(in, "data of rank %d, want 2", x->rank);
    if (x->rank == 2 && idx->rank >= 0) {
        if (idx->rank >= SB_MAX_RANK)
            return sb_infer_fail(in, "indices of rank %d", idx->rank);
        out = *idx;
        out.dim[out.rank++] = sb_dim_known(x->dim[1])
                                  ? x->dim[1] * (8 / a->bits)
                                  : SB_DIM_UNKNOWN;
    }
    sb_infer_set(in, 0, in->in[SCALES]->type.dtype, &out);
    return SB_OK;
}

typedef struct {
    int64_t rows, cols, blocks;
} gather_sizes;

static gather_sizes sizes_of(const sb_kernel *k)
{
    const gather_attrs *a = k->attrs;
    int64_t cols = k->in[DATA]->dims[1] * (8 / a->bits);

    return (gather_sizes){k->in[DATA]->dims[0], cols,
                          (cols + a->block_size - 1) / a->block_size};
}

static bool blocks_fit(const sb_tensor *t, sb_dtype dtype, int64_t rows,
                       int64_t cols)
{
    return t->dtype == dtype && t->rank == 2 && t->dims[0] == rows &&
           t->dims[1] == cols;
}

static sb_status gather_block_prepare(sb_kernel *k)
{
    const gather_attrs *a = k->attrs;
    const sb_tensor *zeros = sb_kernel_in(k, ZEROS);

    if (a->gather_axis != 0 ||
        (a->quantize_axis != 1 && a->quantize_axis != -1) ||
        k->in[DATA]->dtype != SB_DTYPE_U8 || k->in[DATA]->rank != 2)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "gather_axis %lld, quantize_axis %lld, data of "
                              "type %s: want 0, 1, uint8",
                              (long long)a->gather_axis,
                              (long long)a->quantize_axis,
                              sb_dtype_name(k->in[DATA]->dtype));
    if (a->block_size < 16 || a->block_size > 1 << 20)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "block_size is %lld, want 16 "
                              "or more",
                              (long long)a->block_size);
    gather_sizes s = sizes_of(k);
    if (!blocks_fit(k->in[SCALES], SB_DTYPE_F32, s.rows, s.blocks))
        return sb_kernel_fail(k, SB_BAD_MODEL, "want scales [%lld, %lld]",
                              (long long)s.rows, (long long)s.blocks);
    if (zeros && !blocks_fit(zeros, SB_DTYPE_F32, s.rows, s.blocks) &&
        !blocks_fit(zeros, SB_DTYPE_U8, s.rows, (s.blocks * a->bits + 7) / 8))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the zero points do not fit [%lld, %lld] blocks",
                              (long long)s.rows, (long long)s.blocks);
    return SB_OK;
}

/* Code `i` of a packed row. */
static int code_at(const uint8_t *row, int64_t i, int64_t bits)
{
    return bits == 8 ? row[i] : row[i / 2] >> (i % 2 * 4) & 15;
}

static float zero_at(const sb_kernel *k, const gather_sizes *s, int64_t row,
                     int64_t block)
{
    const gather_attrs *a = k->attrs;
    const sb_tensor *zeros = sb_kernel_in(k, ZEROS);

    if (!zeros)
        return (float)(1 << (a->bits - 1));
    if (zeros->dtype == SB_DTYPE_F32)
        return ((const float *)zeros->data)[row * s->blocks + block];
    return (float)code_at((const uint8_t *)zeros->data + row * zeros->dims[1],
                          block, a->bits);
}

static void gather_block_range(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    const gather_attrs *a = k->attrs;
    gather_sizes s = sizes_of(k);
    const float *scales = k->in[SCALES]->data;

    for (size_t i = begin; i < end; i++) {
        int64_t row = sb_index_at(k->in[INDICES], (int64_t)i);
        row = row < 0 ? row + s.rows : row;
        const uint8_t *codes =
            (const uint8_t *)k->in[DATA]->data + row * k->in[DATA]->dims[1];
        float *y = (float *)k->out[0]->data + (int64_t)i * s.cols;

        for (int64_t c = 0; c < s.cols; c++) {
            int64_t block = c / a->block_size;

            y[c] = ((float)code_at(codes, c, a->bits) -
                    zero_at(k, &s, row, block)) *
                   scales[row * s.blocks + block];
        }
    }
}

static sb_status gather_block_forward(sb_kernel *k)
{
    gather_sizes s = sizes_of(k);

    SB_TRY(sb_index_check_all(k, k->in[INDICES], s.rows));
    sb_parallel_for(k->ctx, (size_t)sb_tensor_count(k->in[INDICES]),
                    (size_t)(8192 / (s.cols + 1) + 1), gather_block_range, k);
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
