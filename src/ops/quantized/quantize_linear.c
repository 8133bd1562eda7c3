/* QuantizeLinear: y = saturate(round_half_even(x / scale) + zero_point).
 *
 * Per tensor, per axis, or blocked.  Elements are handled in chunks: whatever
 * the type of x, a chunk becomes float32 on the stack, is quantized run by run
 * of equal parameters, and is stored in the type of y; so every pair of types
 * goes through the same few loops.  A chunk starts at a multiple of 8 elements,
 * so threads never share a byte of a packed type.
 *
 * Rounding is that of ONNX Runtime's CPU kernels: the quotient in float32
 * (also for float16 scales, unless the attribute `precision` asks for less),
 * ties to even, then the zero point.  For float8 and float4 results the
 * quotient is cast and there is no zero point.  com.microsoft has the same
 * operator without the newer attributes. */
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/batch_rules.h"
#include "ops/quantized/quant_util.h"
#include "ops/tie/tie_rules.h"

typedef struct quantize_attrs {
    int64_t axis, block_size, output_dtype, precision, saturate;
} quantize_attrs;

#define ATTR(field) offsetof(quantize_attrs, field)

static const sb_attr_def quantize_attr_defs[] = {
    {.name = "axis", SB_ATTR_INT, ATTR(axis), .i = 1},
    {.name = "block_size", SB_ATTR_INT, ATTR(block_size)},
    {.name = "output_dtype", SB_ATTR_INT, ATTR(output_dtype)},
    {.name = "precision", SB_ATTR_INT, ATTR(precision)},
    {.name = "saturate", SB_ATTR_INT, ATTR(saturate), .i = 1, .flag = true},
    {0},
};

static sb_status quantize_infer(sb_infer *in)
{
    const quantize_attrs *a = in->attrs;
    const sb_fact *zero = sb_infer_in(in, 2);
    sb_dtype dtype = SB_DTYPE_U8;

    if (!sb_dtype_valid((int)a->output_dtype) && a->output_dtype != 0)
        return sb_infer_fail(in, "output_dtype %lld is not a type",
                             (long long)a->output_dtype);
    if (zero)
        dtype = zero->type.dtype;
    else if (a->output_dtype != 0)
        dtype = (sb_dtype)a->output_dtype;
    sb_infer_set(in, 0, dtype, &in->in[0]->type.shape);
    return SB_OK;
}

static bool is_small_float(sb_dtype dtype)
{
    return sb_dtype_is_float(dtype) && sb_dtype_get(dtype)->bits <= 8;
}

static bool is_quantized(sb_dtype dtype)
{
    const sb_dtype_info *info = sb_dtype_get(dtype);

    return is_small_float(dtype) ||
           ((info->cls == SB_CLASS_INT || info->cls == SB_CLASS_UINT) &&
            info->bits <= 16);
}

static sb_status quantize_prepare(sb_kernel *k)
{
    const quantize_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *scale = k->in[1];
    const sb_tensor *zero = sb_kernel_in(k, 2);
    sb_qlayout layout;
    size_t bytes = 0;

    if (!sb_dtype_is_float(x->dtype) && x->dtype != SB_DTYPE_I32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "input has type %s",
                              sb_dtype_name(x->dtype));
    if (!sb_dtype_is_float(scale->dtype))
        return sb_kernel_fail(k, SB_BAD_MODEL, "scale has type %s",
                              sb_dtype_name(scale->dtype));
    if (!is_quantized(k->out[0]->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "output has type %s",
                              sb_dtype_name(k->out[0]->dtype));
    SB_TRY(sb_qlayout_make(k, x, scale, a->axis, a->block_size, &layout));
    if (zero && sb_tensor_count(zero) != layout.n_param)
        return sb_kernel_fail(
            k, SB_BAD_MODEL, "zero point has %lld elements, want %lld",
            (long long)sb_tensor_count(zero), (long long)layout.n_param);
    if (!sb_mul_size((size_t)layout.n_param, sizeof(float) + sizeof(int32_t),
                     &bytes))
        return sb_kernel_fail(k, SB_BAD_MODEL, "too many scales");
    k->scratch_size = bytes;
    return SB_OK;
}

/* ---- one chunk ---------------------------------------------------------- */

enum { CHUNK = 512 };

typedef struct quantize_job {
    sb_qlayout layout;
    const sb_tensor *x;
    sb_tensor *y;
    const float *scale;  /* [n_param] */
    const int32_t *zero; /* [n_param] */
    sb_dtype precision;  /* f16, bf16: the quotient is rounded to it */
    int32_t lo, hi;
    bool saturate;
} quantize_job;

/* `x` may be `v` itself. */
SB_HOT static void quotient_run(const quantize_job *job, sb_qrun run,
                                const float *x, float *v)
{
    const float *scale = job->scale + run.param;

    if (run.step == 0) {
        float s = scale[0];
        SB_SIMD
        for (int64_t i = 0; i < run.count; i++)
            v[i] = x[i] / s;
    } else {
        SB_SIMD
        for (int64_t i = 0; i < run.count; i++)
            v[i] = x[i] / scale[i];
    }
    if (job->precision == SB_DTYPE_F16)
        for (int64_t i = 0; i < run.count; i++)
            v[i] = sb_f16_to_f32(sb_f32_to_f16(v[i]));
    else if (job->precision == SB_DTYPE_BF16)
        for (int64_t i = 0; i < run.count; i++)
            v[i] = sb_bf16_to_f32(sb_f32_to_bf16(v[i]));
}

SB_HOT static void round_run(const quantize_job *job, sb_qrun run,
                             const float *v, int32_t *q)
{
    const int32_t *zero = job->zero + run.param;
    const int32_t lo = job->lo, hi = job->hi;

    if (run.step == 0) {
        const int32_t z = zero[0];
        const float least = (float)(lo - z), most = (float)(hi - z);

        SB_SIMD
        for (int64_t i = 0; i < run.count; i++)
            q[i] = sb_round_clamp(v[i], least, most) + z;
        return;
    }
    SB_SIMD
    for (int64_t i = 0; i < run.count; i++)
        q[i] =
            sb_round_clamp(v[i], (float)(lo - zero[i]), (float)(hi - zero[i])) +
            zero[i];
}

/* Integers of at most 16 bits into their type, from element `first` on. */
SB_HOT static void store_ints(sb_tensor *y, int64_t first, const int32_t *q,
                              int64_t n)
{
    if (sb_is_byte(y->dtype)) {
        uint8_t *to = (uint8_t *)y->data + first;
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            to[i] = (uint8_t)q[i];
        return;
    }
    size_t offset = (size_t)first * sb_dtype_get(y->dtype)->bits / 8;
    sb_convert(SB_DTYPE_I32, q, y->dtype, (char *)y->data + offset, (size_t)n);
}

static void store_floats(const quantize_job *job, int64_t first, const float *v,
                         int64_t n)
{
    sb_dtype dtype = job->y->dtype;
    int bits = sb_dtype_get(dtype)->bits;
    uint8_t *to = (uint8_t *)job->y->data + first * bits / 8;

    for (int64_t i = 0; i < n; i++) {
        unsigned code = sb_f32_to_small_float(dtype, v[i], job->saturate);

        if (bits == 8)
            to[i] = (uint8_t)code;
        else if (i % 2 == 0)
            to[i / 2] = (uint8_t)(code & 15u);
        else
            to[i / 2] = (uint8_t)(to[i / 2] | code << 4);
    }
}

static void quantize_chunks(void *arg, size_t begin, size_t end)
{
    const quantize_job *job = arg;
    const sb_tensor *x = job->x;
    int64_t total = sb_tensor_count(x);
    float v[CHUNK];
    int32_t q[CHUNK];

    for (size_t c = begin; c < end; c++) {
        int64_t first = (int64_t)c * CHUNK;
        int64_t n = total - first < CHUNK ? total - first : CHUNK;
        size_t offset = (size_t)first * sb_dtype_get(x->dtype)->bits / 8;
        const void *from = (const char *)x->data + offset;
        const float *floats = x->dtype == SB_DTYPE_F32 ? from : v;

        if (x->dtype != SB_DTYPE_F32)
            sb_convert(x->dtype, from, SB_DTYPE_F32, v, (size_t)n);
        for (int64_t i = 0; i < n;) {
            sb_qrun run = sb_qlayout_run(&job->layout, first + i, first + n);

            quotient_run(job, run, floats + i, v + i);
            if (job->zero)
                round_run(job, run, v + i, q + i);
            i += run.count;
        }
        if (job->zero)
            store_ints(job->y, first, q, n);
        else
            store_floats(job, first, v, n);
    }
}

static sb_status quantize_forward(sb_kernel *k)
{
    const quantize_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *scale = k->in[1];
    const sb_tensor *zero = sb_kernel_in(k, 2);
    quantize_job job = {.x = x, .y = k->out[0], .saturate = a->saturate != 0};

    SB_TRY(sb_qlayout_make(k, x, scale, a->axis, a->block_size, &job.layout));
    size_t n_param = (size_t)job.layout.n_param;
    float *scales = k->scratch;
    int32_t *zeros = (int32_t *)(scales + n_param);

    sb_convert(scale->dtype, scale->data, SB_DTYPE_F32, scales, n_param);
    job.scale = scales;
    job.precision = (sb_dtype)a->precision;
    if (!is_small_float(k->out[0]->dtype)) {
        if (zero)
            sb_convert(zero->dtype, zero->data, SB_DTYPE_I32, zeros, n_param);
        else
            memset(zeros, 0, n_param * sizeof(int32_t));
        job.zero = zeros;
        job.lo = sb_quant_min(k->out[0]->dtype);
        job.hi = sb_quant_max(k->out[0]->dtype);
    }
    int64_t total = sb_tensor_count(x);
    size_t n_chunk = (size_t)(total / CHUNK + (total % CHUNK != 0));
    sb_parallel_for(k->ctx, n_chunk, 32, quantize_chunks, &job);
    return SB_OK;
}

static void quantize_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const quantize_attrs *a = k->attrs;

    sb_qlayout_layout(k, a->block_size, in, out);
}

const sb_op_def sb_op_quantize_linear = {
    .name = "QuantizeLinear",
    .quant = SB_ROLE_QUANTIZE,
    .since = 13,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(quantize_attrs),
    .attrs = quantize_attr_defs,
    .batch = sb_batch_same,
    .infer = quantize_infer,
    .layout = quantize_layout,
    .prepare = quantize_prepare,
    .forward = quantize_forward,
    .tie = sb_tie_quantize,
};

const sb_op_def sb_op_ms_quantize_linear = {
    .name = "QuantizeLinear",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(quantize_attrs),
    .attrs = quantize_attr_defs,
    .batch = sb_batch_same,
    .infer = quantize_infer,
    .layout = quantize_layout,
    .prepare = quantize_prepare,
    .forward = quantize_forward,
    .tie = sb_tie_quantize,
};
