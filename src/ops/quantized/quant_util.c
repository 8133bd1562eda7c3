/* What the operators on quantized tensors share. */
#include "ops/quantized/quant_util.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#include "base/threads.h"

int32_t sb_quant_min(sb_dtype dtype)
{
    const sb_dtype_info *info = sb_dtype_get(dtype);

    return info->cls == SB_CLASS_INT ? -(1 << (info->bits - 1)) : 0;
}

int32_t sb_quant_max(sb_dtype dtype)
{
    const sb_dtype_info *info = sb_dtype_get(dtype);
    int bits = info->cls == SB_CLASS_INT ? info->bits - 1 : info->bits;

    return (1 << bits) - 1;
}

sb_qparam sb_qparam_read(const sb_kernel *k, uint32_t scale, uint32_t zero)
{
    const sb_tensor *z = sb_kernel_in(k, zero);

    return (sb_qparam){
        .scale = *(const float *)k->in[scale]->data,
        .zero = z ? (int32_t)sb_tensor_get_i64(z, 0) : 0,
    };
}

sb_status sb_qparam_check(const sb_kernel *k, uint32_t scale, uint32_t zero,
                          sb_dtype dtype)
{
    const sb_tensor *s = sb_kernel_in(k, scale), *z = sb_kernel_in(k, zero);

    if (!s || s->dtype != SB_DTYPE_F32 || sb_tensor_count(s) != 1)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "input %u (a scale) must be one float", scale);
    if (z && (z->dtype != dtype || sb_tensor_count(z) != 1))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "input %u (a zero point) must be one %s", zero,
                              sb_dtype_name(dtype));
    return SB_OK;
}

sb_status sb_byte_check(const sb_kernel *k, uint32_t input)
{
    const sb_tensor *t = sb_kernel_in(k, input);

    if (!t)
        return sb_kernel_fail(k, SB_BAD_MODEL, "input %u is missing", input);
    if (!sb_is_byte(t->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "input %u has type %s, want uint8 or int8", input,
                              sb_dtype_name(t->dtype));
    return SB_OK;
}

/* ---- byte to byte ------------------------------------------------------- */

/* saturate(round(x / scale) + zero) for a uint8 or int8 result. */
static uint8_t quantize_byte(float x, sb_qparam q, sb_dtype dtype)
{
    float lo = (float)(sb_quant_min(dtype) - q.zero);
    float hi = (float)(sb_quant_max(dtype) - q.zero);

    return (uint8_t)(sb_round_clamp(x / q.scale, lo, hi) + q.zero);
}

void sb_byte_table(sb_dtype from, sb_qparam q_from, sb_dtype to, sb_qparam q_to,
                   float (*fn)(float x, float arg), float arg,
                   uint8_t table[256])
{
    for (int32_t i = 0; i < 256; i++) {
        int32_t q = from == SB_DTYPE_I8 && i > 127 ? i - 256 : i;
        float x = (float)(q - q_from.zero) * q_from.scale;

        table[i] = quantize_byte(fn ? fn(x, arg) : x, q_to, to);
    }
}

typedef struct lookup_job {
    const uint8_t *table, *x;
    uint8_t *y;
} lookup_job;

#if defined(__x86_64__) && defined(__GNUC__)
/* 64 at a time: a quarter of the table is a vector, from two of which one
 * instruction takes bytes.  Returns how many it did. */
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) static size_t
lookup_vbmi(const uint8_t *table, const uint8_t *x, uint8_t *y, size_t n)
{
    const __m512i t0 = _mm512_loadu_si512(table);
    const __m512i t1 = _mm512_loadu_si512(table + 64);
    const __m512i t2 = _mm512_loadu_si512(table + 128);
    const __m512i t3 = _mm512_loadu_si512(table + 192);
    size_t i = 0;

    for (; i + 64 <= n; i += 64) {
        __m512i at = _mm512_loadu_si512(x + i);
        __m512i low = _mm512_permutex2var_epi8(t0, at, t1);
        __m512i high = _mm512_permutex2var_epi8(t2, at, t3);

        _mm512_storeu_si512(
            y + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
    }
    return i;
}
#endif

static void lookup_range(void *arg, size_t begin, size_t end)
{
    const lookup_job *job = arg;
    size_t i = begin;

#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512bw"))
        i += lookup_vbmi(job->table, job->x + i, job->y + i, end - i);
#endif
    for (; i < end; i++)
        job->y[i] = job->table[job->x[i]];
}

void sb_byte_lookup(sb_ctx *ctx, const uint8_t table[256], const uint8_t *x,
                    uint8_t *y, int64_t n)
{
    lookup_job job = {table, x, y};

    sb_parallel_for(ctx, (size_t)n, 1 << 15, lookup_range, &job);
}

/* ---- layouts of parameters ---------------------------------------------- */

/* Blocked parameters have the shape of x, but for the axis. */
static sb_status layout_blocked(const sb_kernel *k, const sb_tensor *x,
                                const sb_tensor *scale, int axis, sb_qlayout *l)
{
    if (scale->rank != x->rank)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "blocked scale has rank %d, want %d", scale->rank,
                              x->rank);
    l->n_block = scale->dims[axis];
    for (int d = 0; d < x->rank; d++) {
        int64_t want = x->dims[d];

        if (d == axis)
            want = want / l->block + (want % l->block != 0);
        if (scale->dims[d] != want)
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "blocked scale has dimension %lld at %d, "
                                  "want %lld",
                                  (long long)scale->dims[d], d,
                                  (long long)want);
    }
    return SB_OK;
}

sb_status sb_qlayout_make(const sb_kernel *k, const sb_tensor *x,
                          const sb_tensor *scale, int64_t axis, int64_t block,
                          sb_qlayout *out)
{
    sb_qlayout l = {.n_param = sb_tensor_count(scale), .block = block};

    if (block < 0)
        return sb_kernel_fail(k, SB_BAD_MODEL, "block_size is %lld",
                              (long long)block);
    if (block == 0 && l.n_param == 1 && scale->rank <= 1) {
        l.per_tensor = true;
        *out = l;
        return SB_OK;
    }
    if (axis < -x->rank || axis >= x->rank)
        return sb_kernel_fail(k, SB_BAD_MODEL, "axis %lld is outside rank %d",
                              (long long)axis, x->rank);
    int a = (int)(axis < 0 ? axis + x->rank : axis);
    l.n_axis = x->dims[a];
    sb_tensor lies = sb_tensor_as_lies(x);
    int place = sb_tensor_place(x, a);
    l.n_inner = sb_dims_product(lies.dims, place + 1, x->rank);
    if (block > 0)
        SB_TRY(layout_blocked(k, x, scale, a, &l));
    else if (scale->rank != 1 || l.n_param != l.n_axis)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "scale has rank %d and %lld elements, want 1 "
                              "and %lld",
                              scale->rank, (long long)l.n_param,
                              (long long)l.n_axis);
    *out = l;
    return SB_OK;
}

/* Blocks are cut in NCHW order only. */
void sb_qlayout_layout(const sb_kernel *k, int64_t block, sb_layout *in,
                       sb_layout *out)
{
    if (k->in[0]->rank < 3 || k->in[0]->layout == SB_LAYOUT_PLAIN || block != 0)
        return;
    in[0] = out[0] = SB_LAYOUT_CHANNELS_LAST;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

sb_qrun sb_qlayout_run(const sb_qlayout *l, int64_t i, int64_t end)
{
    if (l->per_tensor)
        return (sb_qrun){.count = end - i};

    int64_t row = i / l->n_inner, inner = i % l->n_inner;
    int64_t outer = row / l->n_axis, a = row % l->n_axis;
    sb_qrun run = {.count = l->n_inner - inner};

    if (l->n_block == 0) {
        run.param = a;
        if (l->n_inner == 1) {
            run.count = l->n_axis - a;
            run.step = 1;
        }
    } else if (l->n_inner == 1) {
        run.param = outer * l->n_block + a / l->block;
        run.count = min_i64(l->block - a % l->block, l->n_axis - a);
    } else {
        run.param = (outer * l->n_block + a / l->block) * l->n_inner + inner;
        run.step = 1;
    }
    run.count = min_i64(run.count, end - i);
    return run;
}
