/* DequantizeLinear: y = (x - zero_point) * scale.
 *
 * Per tensor, per axis, or blocked, from any integer or small float type, in
 * chunks as in quantize_linear.c.  The difference is an exact integer (float
 * for float8 and float4), the product is rounded once to float32 and, if y is
 * float16 or bfloat16, once more to that. */
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/batch_rules.h"
#include "ops/quantized/quant_util.h"
#include "ops/tie/tie_rules.h"

typedef struct dequantize_attrs {
    int64_t axis, block_size, output_dtype;
} dequantize_attrs;

#define ATTR(field) offsetof(dequantize_attrs, field)

static const sb_attr_def dequantize_attr_defs[] = {
    {.name = "axis", SB_ATTR_INT, ATTR(axis), .i = 1},
    {.name = "block_size", SB_ATTR_INT, ATTR(block_size)},
    {.name = "output_dtype", SB_ATTR_INT, ATTR(output_dtype)},
    {0},
};

static sb_status dequantize_infer(sb_infer *in)
{
    const dequantize_attrs *a = in->attrs;
    sb_dtype dtype = in->in[1]->type.dtype;

    if (a->output_dtype != 0) {
        dtype = (sb_dtype)a->output_dtype;
        if (!sb_dtype_valid((int)a->output_dtype) || !sb_dtype_is_float(dtype))
            return sb_infer_fail(in, "output_dtype %lld is not a float type",
                                 (long long)a->output_dtype);
    }
    sb_infer_set(in, 0, dtype, &in->in[0]->type.shape);
    return SB_OK;
}

static bool is_source(sb_dtype dtype)
{
    const sb_dtype_info *info = sb_dtype_get(dtype);

    if (info->cls == SB_CLASS_FLOAT)
        return info->bits <= 8;
    return (info->cls == SB_CLASS_INT || info->cls == SB_CLASS_UINT) &&
           info->bits <= 32 && dtype != SB_DTYPE_U32;
}

static sb_status dequantize_prepare(sb_kernel *k)
{
    const dequantize_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *scale = k->in[1];
    const sb_tensor *zero = sb_kernel_in(k, 2);
    sb_qlayout layout;
    size_t bytes = 0;

    if (!is_source(x->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "input has type %s",
                              sb_dtype_name(x->dtype));
    if (!sb_dtype_is_float(scale->dtype))
        return sb_kernel_fail(k, SB_BAD_MODEL, "scale has type %s",
                              sb_dtype_name(scale->dtype));
    SB_TRY(sb_qlayout_make(k, x, scale, a->axis, a->block_size, &layout));
    if (zero &&
        (zero->dtype != x->dtype || sb_tensor_count(zero) != layout.n_param))
        return sb_kernel_fail(
            k, SB_BAD_MODEL,
            "zero point has %lld elements of type %s, want "
            "%lld of type %s",
            (long long)sb_tensor_count(zero), sb_dtype_name(zero->dtype),
            (long long)layout.n_param, sb_dtype_name(x->dtype));
    if (!sb_mul_size((size_t)layout.n_param, 2 * sizeof(float), &bytes))
        return sb_kernel_fail(k, SB_BAD_MODEL, "too many scales");
    k->scratch_size = bytes;
    return SB_OK;
}

/* ---- one chunk ---------------------------------------------------------- */

enum { CHUNK = 512 };

typedef struct dequantize_job {
    sb_qlayout layout;
    const sb_tensor *x;
    sb_tensor *y;
    const float *scale;      /* [n_param] */
    const int32_t *zero;     /* [n_param]; NULL for small floats */
    const float *zero_float; /* [n_param]; NULL for integers */
} dequantize_job;

/* q - zero as float; the subtraction wraps as int32 does in ONNX Runtime. */
static float dequantize_linear_difference(int32_t q, int32_t zero)
{
    return (float)(int32_t)((uint32_t)q - (uint32_t)zero);
}

SB_HOT static void dequantize_ints(const dequantize_job *job, sb_qrun run,
                                   const int32_t *q, float *v)
{
    const float *scale = job->scale + run.param;
    const int32_t *zero = job->zero + run.param;

    if (run.step == 0) {
        float s = scale[0];
        int32_t z = zero[0];
        SB_SIMD
        for (int64_t i = 0; i < run.count; i++)
            v[i] = dequantize_linear_difference(q[i], z) * s;
    } else {
        SB_SIMD
        for (int64_t i = 0; i < run.count; i++)
            v[i] = dequantize_linear_difference(q[i], zero[i]) * scale[i];
    }
}

static void dequantize_floats(const dequantize_job *job, sb_qrun run, float *v)
{
    const float *scale = job->scale + run.param;
    const float *zero = job->zero_float + run.param;

    for (int64_t i = 0; i < run.count; i++)
        v[i] = (v[i] - zero[i * run.step]) * scale[i * run.step];
}

/* `n` elements from element `first` on as int32. */
SB_HOT static void load_ints(const sb_tensor *x, int64_t first, int64_t n,
                             int32_t *q)
{
    if (x->dtype == SB_DTYPE_U8) {
        const uint8_t *from = (const uint8_t *)x->data + first;
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            q[i] = from[i];
    } else if (x->dtype == SB_DTYPE_I8) {
        const int8_t *from = (const int8_t *)x->data + first;
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            q[i] = from[i];
    } else {
        size_t offset = (size_t)first * sb_dtype_get(x->dtype)->bits / 8;
        sb_convert(x->dtype, (const char *)x->data + offset, SB_DTYPE_I32, q,
                   (size_t)n);
    }
}

static void dequantize_chunks(void *arg, size_t begin, size_t end)
{
    const dequantize_job *job = arg;
    const sb_tensor *x = job->x;
    int64_t total = sb_tensor_count(x);
    float room[CHUNK];
    int32_t q[CHUNK];

    for (size_t c = begin; c < end; c++) {
        int64_t first = (int64_t)c * CHUNK;
        int64_t n = total - first < CHUNK ? total - first : CHUNK;
        size_t x_offset = (size_t)first * sb_dtype_get(x->dtype)->bits / 8;
        size_t y_offset = (size_t)first * sb_dtype_size(job->y->dtype);
        void *to = (char *)job->y->data + y_offset;
        float *v = job->y->dtype == SB_DTYPE_F32 ? to : room;

        if (job->zero)
            load_ints(x, first, n, q);
        else
            sb_convert(x->dtype, (const char *)x->data + x_offset, SB_DTYPE_F32,
                       v, (size_t)n);
        for (int64_t i = 0; i < n;) {
            sb_qrun run = sb_qlayout_run(&job->layout, first + i, first + n);

            if (job->zero)
                dequantize_ints(job, run, q + i, v + i);
            else
                dequantize_floats(job, run, v + i);
            i += run.count;
        }
        if (v == room)
            sb_convert(SB_DTYPE_F32, v, job->y->dtype, to, (size_t)n);
    }
}

static sb_status dequantize_forward(sb_kernel *k)
{
    const dequantize_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *scale = k->in[1];
    const sb_tensor *zero = sb_kernel_in(k, 2);
    dequantize_job job = {.x = x, .y = k->out[0]};

    SB_TRY(sb_qlayout_make(k, x, scale, a->axis, a->block_size, &job.layout));
    size_t n_param = (size_t)job.layout.n_param;
    float *scales = k->scratch;
    void *zeros = scales + n_param;
    bool ints = !sb_dtype_is_float(x->dtype);
    sb_dtype wide = ints ? SB_DTYPE_I32 : SB_DTYPE_F32;

    sb_convert(scale->dtype, scale->data, SB_DTYPE_F32, scales, n_param);
    if (zero)
        sb_convert(zero->dtype, zero->data, wide, zeros, n_param);
    else
        memset(zeros, 0, n_param * sizeof(float));
    job.scale = scales;
    job.zero = ints ? zeros : NULL;
    job.zero_float = ints ? NULL : zeros;
    int64_t total = sb_tensor_count(x);
    size_t n_chunk = (size_t)(total / CHUNK + (total % CHUNK != 0));
    sb_parallel_for(k->ctx, n_chunk, 32, dequantize_chunks, &job);
    return SB_OK;
}

static void dequantize_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const dequantize_attrs *a = k->attrs;

    sb_qlayout_layout(k, a->block_size, in, out);
}

const sb_op_def sb_op_dequantize_linear = {
    .name = "DequantizeLinear",
    .quant = SB_ROLE_DEQUANTIZE,
    .since = 13,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(dequantize_attrs),
    .attrs = dequantize_attr_defs,
    .batch = sb_batch_same,
    .infer = dequantize_infer,
    .layout = dequantize_layout,
    .prepare = dequantize_prepare,
    .forward = dequantize_forward,
    .tie = sb_tie_quantize,
};

const sb_op_def sb_op_ms_dequantize_linear = {
    .name = "DequantizeLinear",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(dequantize_attrs),
    .attrs = dequantize_attr_defs,
    .batch = sb_batch_same,
    .infer = dequantize_infer,
    .layout = dequantize_layout,
    .prepare = dequantize_prepare,
    .forward = dequantize_forward,
    .tie = sb_tie_quantize,
};
