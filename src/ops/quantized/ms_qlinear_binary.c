/* com.microsoft QLinearAdd and QLinearMul: elementwise with broadcasting on
 * bytes.  The arithmetic is the one of ONNX Runtime's kernels for AVX2, so that
 * results agree to the last bit:
 *
 *     add  round(fma(a, sa/sc, fma(b, sb/sc, c0))),
 *          c0 = zc - fma(sa/sc, za, (sb/sc) * zb)
 *     mul  round((a - za)(b - zb) * (sa * sb / sc) + zc)
 *
 * in float32, rounded half to even and saturated.  A fused product and sum of a
 * byte is exact in double precision, which every machine has.  Where b is one
 * element for a whole row, ONNX Runtime adds its part to c0 first; so do we. */
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#include "base/simd.h"
#include "base/threads.h"
#include "ops/quantized/quant_util.h"

enum { A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, C_SCALE, C_ZERO };

static sb_status qbinary_infer(sb_infer *in)
{
    sb_shape shape = in->in[A]->type.shape;

    if (!sb_shape_broadcast(&shape, &in->in[B]->type.shape))
        return sb_infer_fail(in, "inputs A and B do not broadcast");
    sb_infer_set(in, 0, in->in[A]->type.dtype, &shape);
    return SB_OK;
}

static sb_status qbinary_prepare(sb_kernel *k)
{
    sb_dtype dtype = k->in[A]->dtype;

    SB_TRY(sb_byte_check(k, A));
    if (k->in[B]->dtype != dtype)
        return sb_kernel_fail(k, SB_BAD_MODEL, "B has type %s, want %s",
                              sb_dtype_name(k->in[B]->dtype),
                              sb_dtype_name(dtype));
    SB_TRY(sb_qparam_check(k, A_SCALE, A_ZERO, dtype));
    SB_TRY(sb_qparam_check(k, B_SCALE, B_ZERO, dtype));
    return sb_qparam_check(k, C_SCALE, C_ZERO, dtype);
}

/* Does operand `t` lie as the result does, or repeat each of its channels? */
static bool qbinary_follows(const sb_tensor *t, const sb_tensor *y)
{
    bool same = t->rank == y->rank, pixel = same;

    for (int d = 0; d < y->rank && same; d++)
        same = t->dims[d] == y->dims[d];
    for (int d = 2; d < y->rank && pixel; d++)
        pixel = t->dims[d] == 1;
    return same || pixel;
}

/* Sums of which one operand is repeated add its part first, if it is repeated
 * along a row: only products may change what a row is. */
static void qmul_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const sb_tensor *a = k->in[A], *b = k->in[B], *y = k->out[0];

    if (y->rank < 3 || !qbinary_follows(a, y) || !qbinary_follows(b, y) ||
        (a->layout == SB_LAYOUT_PLAIN && b->layout == SB_LAYOUT_PLAIN))
        return;
    in[A] = in[B] = out[0] = SB_LAYOUT_CHANNELS_LAST;
}

static void qadd_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    if (sb_tensor_count(k->in[A]) == sb_tensor_count(k->in[B]))
        qmul_layout(k, in, out);
}

typedef struct qbinary_job qbinary_job;

/* One row: `a` and `b` advance by 0 or 1. */
typedef void (*qbinary_fn)(const qbinary_job *job, const int32_t *a,
                           const int32_t *b, bool a_one, bool b_one, int64_t n,
                           float *y);

struct qbinary_job {
    qbinary_fn fn;
    sb_qparam a, b, c;
    const sb_tensor *ta, *tb;
    sb_tensor *ty;
    int rank;
    int64_t dims[SB_MAX_RANK]; /* of the result, last one the row */
    int64_t a_step[SB_MAX_RANK], b_step[SB_MAX_RANK];
};

/* a * b + c, rounded once, for a byte a. */
static inline float byte_fma(int32_t a, float b, float c)
{
    return (float)((double)a * (double)b + (double)c);
}

SB_HOT static void add_one(const int32_t *x, float ratio, float c, int64_t n,
                           float *y)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = byte_fma(x[i], ratio, c);
}

SB_HOT static void add_two(const int32_t *a, float ra, const int32_t *b,
                           float rb, float c, int64_t n, float *y)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = byte_fma(a[i], ra, byte_fma(b[i], rb, c));
}

static void add_row(const qbinary_job *job, const int32_t *a, const int32_t *b,
                    bool a_one, bool b_one, int64_t n, float *y)
{
    float ra = job->a.scale / job->c.scale, rb = job->b.scale / job->c.scale;
    float zc = (float)job->c.zero;

    if (a_one && !b_one) { /* the runtime swaps operands */
        float c = zc - byte_fma(job->b.zero, rb, ra * (float)job->a.zero);
        add_one(b, rb, byte_fma(a[0], ra, c), n, y);
        return;
    }
    float c = zc - byte_fma(job->a.zero, ra, rb * (float)job->b.zero);
    if (b_one && a_one)
        y[0] = byte_fma(a[0], ra, byte_fma(b[0], rb, c));
    else if (b_one)
        add_one(a, ra, byte_fma(b[0], rb, c), n, y);
    else
        add_two(a, ra, b, rb, c, n, y);
}

SB_HOT static void mul_row(const qbinary_job *job, const int32_t *a,
                           const int32_t *b, bool a_one, bool b_one, int64_t n,
                           float *y)
{
    float ratio = job->a.scale * job->b.scale / job->c.scale;

    SB_SIMD
    for (int64_t i = 0; i < n; i++) {
        int32_t product =
            (a[a_one ? 0 : i] - job->a.zero) * (b[b_one ? 0 : i] - job->b.zero);

        y[i] = (float)product * ratio + (float)job->c.zero;
    }
}

SB_HOT static void load_bytes(const sb_tensor *t, int64_t at, int64_t n,
                              int32_t *out)
{
    if (t->dtype == SB_DTYPE_I8)
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const int8_t *)t->data)[at + i];
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const uint8_t *)t->data)[at + i];
}

SB_HOT static void round_bytes(const float *v, int64_t n, float lo, float hi,
                               uint8_t *y)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = (uint8_t)sb_round_clamp(v[i], lo, hi);
}

/* ---- sums of whole rows, where the processor rounds products with sums once -
 */

typedef void (*add_bytes_fn)(const void *a, float ra, const void *b, float rb,
                             float c, int64_t n, float lo, float hi,
                             uint8_t *y);

#define ADD_BYTES(name, type, isa)                                            \
    __attribute__((target(isa))) static void name(                            \
        const void *a, float ra, const void *b, float rb, float c, int64_t n, \
        float lo, float hi, uint8_t *y)                                       \
    {                                                                         \
        const type *va = a, *vb = b;                                          \
                                                                              \
        SB_SIMD                                                               \
        for (int64_t i = 0; i < n; i++) {                                     \
            float part = __builtin_fmaf((float)vb[i], rb, c);                 \
            float sum = __builtin_fmaf((float)va[i], ra, part);               \
                                                                              \
            y[i] = (uint8_t)sb_round_clamp(sum, lo, hi);                      \
        }                                                                     \
    }

#if defined(__x86_64__) && defined(__GNUC__)
ADD_BYTES(add_u8_256, uint8_t, "avx2,fma")
ADD_BYTES(add_i8_256, int8_t, "avx2,fma")

#define ADD_512 __attribute__((target("avx512f,avx512bw")))

/* Sixteen bytes as floats. */
ADD_512 static inline __m512 load_512(const uint8_t *x, bool is_int8)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)x);

    return _mm512_cvtepi32_ps(is_int8 ? _mm512_cvtepi8_epi32(v)
                                      : _mm512_cvtepu8_epi32(v));
}

/* 64 at a time.  What is below the least, and NaN, becomes it when sums are
 * packed; packing leaves four of each vector side by side. */
ADD_512 static inline void add_512(const void *a, float ra, const void *b,
                                   float rb, float c, int64_t n, float hi,
                                   bool is_int8, uint8_t *y)
{
    const __m512i order =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512 va = _mm512_set1_ps(ra), vb = _mm512_set1_ps(rb);
    const __m512 vc = _mm512_set1_ps(c), most = _mm512_set1_ps(hi);

    for (int64_t i = 0; i + 64 <= n; i += 64) {
        __m512i v[4];

        for (int j = 0; j < 4; j++) {
            const int64_t at = i + 16 * j;
            __m512 part = _mm512_fmadd_ps(
                load_512((const uint8_t *)b + at, is_int8), vb, vc);
            __m512 sum = _mm512_fmadd_ps(
                load_512((const uint8_t *)a + at, is_int8), va, part);

            v[j] = _mm512_cvtps_epi32(_mm512_min_ps(most, sum));
        }
        __m512i low = _mm512_packs_epi32(v[0], v[1]);
        __m512i high = _mm512_packs_epi32(v[2], v[3]);
        __m512i bytes = is_int8 ? _mm512_packs_epi16(low, high)
                                : _mm512_packus_epi16(low, high);
        _mm512_storeu_si512(y + i, _mm512_permutexvar_epi32(order, bytes));
    }
}

ADD_512 static void add_u8_512(const void *a, float ra, const void *b, float rb,
                               float c, int64_t n, float lo, float hi,
                               uint8_t *y)
{
    int64_t done = n / 64 * 64;

    add_512(a, ra, b, rb, c, n, hi, false, y);
    add_u8_256((const uint8_t *)a + done, ra, (const uint8_t *)b + done, rb, c,
               n - done, lo, hi, y + done);
}

ADD_512 static void add_i8_512(const void *a, float ra, const void *b, float rb,
                               float c, int64_t n, float lo, float hi,
                               uint8_t *y)
{
    int64_t done = n / 64 * 64;

    add_512(a, ra, b, rb, c, n, hi, true, y);
    add_i8_256((const uint8_t *)a + done, ra, (const uint8_t *)b + done, rb, c,
               n - done, lo, hi, y + done);
}
#endif

/* NULL: there is none. */
static add_bytes_fn add_bytes_choose(sb_dtype dtype)
{
    bool is_int8 = dtype == SB_DTYPE_I8;

#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512bw"))
        return is_int8 ? add_i8_512 : add_u8_512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return is_int8 ? add_i8_256 : add_u8_256;
#endif
    (void)is_int8;
    return NULL;
}

/* A row is cut into pieces: without broadcasting there is only one. */
enum { PIECE = 8192, CHUNK = 256 };

static int64_t qlinear_binary_pieces(const qbinary_job *job)
{
    return (job->dims[job->rank - 1] + PIECE - 1) / PIECE;
}

static void sum_of_bytes(const qbinary_job *job, add_bytes_fn add, int64_t at_a,
                         int64_t at_b, int64_t n, uint8_t *y)
{
    float ra = job->a.scale / job->c.scale, rb = job->b.scale / job->c.scale;
    float c =
        (float)job->c.zero - byte_fma(job->a.zero, ra, rb * (float)job->b.zero);

    add((const uint8_t *)job->ta->data + at_a, ra,
        (const uint8_t *)job->tb->data + at_b, rb, c, n,
        (float)sb_quant_min(job->ty->dtype),
        (float)sb_quant_max(job->ty->dtype), y);
}

static void qbinary_pieces(void *arg, size_t begin, size_t end)
{
    const qbinary_job *job = arg;
    int last = job->rank - 1;
    int64_t n = job->dims[last];
    bool a_one = job->a_step[last] == 0, b_one = job->b_step[last] == 0;
    float lo = (float)sb_quant_min(job->ty->dtype);
    float hi = (float)sb_quant_max(job->ty->dtype);
    add_bytes_fn add = job->fn == add_row && !a_one && !b_one
                           ? add_bytes_choose(job->ty->dtype)
                           : NULL;

    for (size_t item = begin; item < end; item++) {
        int64_t at_a = 0, at_b = 0,
                rest = (int64_t)item / qlinear_binary_pieces(job);
        int64_t first = (int64_t)item % qlinear_binary_pieces(job) * PIECE;
        int64_t stop = n - first < PIECE ? n : first + PIECE;
        uint8_t *y = (uint8_t *)job->ty->data + rest * n;

        for (int d = last - 1; d >= 0; d--) {
            at_a += rest % job->dims[d] * job->a_step[d];
            at_b += rest % job->dims[d] * job->b_step[d];
            rest /= job->dims[d];
        }
        if (add) {
            sum_of_bytes(job, add, at_a + first, at_b + first, stop - first,
                         y + first);
            continue;
        }
        for (int64_t i = first; i < stop; i += CHUNK) {
            int32_t a[CHUNK], b[CHUNK];
            float v[CHUNK];
            int64_t count = stop - i < CHUNK ? stop - i : CHUNK;

            load_bytes(job->ta, at_a + (a_one ? 0 : i), a_one ? 1 : count, a);
            load_bytes(job->tb, at_b + (b_one ? 0 : i), b_one ? 1 : count, b);
            job->fn(job, a, b, a_one, b_one, count, v);
            round_bytes(v, count, lo, hi, y + i);
        }
    }
}

/* Which dimension is the d-th in memory. */
static int dim_at(const sb_tensor *t, int d)
{
    if (t->layout == SB_LAYOUT_PLAIN || d == 0)
        return d;
    return d == t->rank - 1 ? 1 : d + 1;
}

/* Strides of an operand over the result, in elements. */
static void set_steps(const sb_tensor *t, const qbinary_job *job, int64_t *step)
{
    int64_t stride = 1;

    for (int d = job->rank - 1; d >= 0; d--) {
        int i = d - (job->rank - t->rank);
        int64_t n = i < 0 ? 1 : t->dims[dim_at(t, i)];

        step[d] = n == 1 ? 0 : stride;
        stride *= n;
    }
}

/* Drops dimensions of 1, and joins neighboring ones that both operands walk
 * through alike. */
static void join_dims(qbinary_job *job)
{
    int to = 0;

    for (int d = 1; d < job->rank; d++) {
        if (job->dims[d] == 1)
            continue;
        bool joins = job->a_step[to] == job->a_step[d] * job->dims[d] &&
                     job->b_step[to] == job->b_step[d] * job->dims[d] &&
                     (job->a_step[to] != 0) == (job->a_step[d] != 0) &&
                     (job->b_step[to] != 0) == (job->b_step[d] != 0);

        if (joins) {
            job->dims[to] *= job->dims[d];
        } else {
            to += job->dims[to] != 1;
            job->dims[to] = job->dims[d];
        }
        job->a_step[to] = job->a_step[d];
        job->b_step[to] = job->b_step[d];
    }
    job->rank = to + 1;
}

static sb_status qbinary_forward(sb_kernel *k)
{
    const qbinary_fn *fn = k->op->aux;
    qbinary_job job = {
        .fn = *fn,
        .a = sb_qparam_read(k, A_SCALE, A_ZERO),
        .b = sb_qparam_read(k, B_SCALE, B_ZERO),
        .c = sb_qparam_read(k, C_SCALE, C_ZERO),
        .ta = k->in[A],
        .tb = k->in[B],
        .ty = k->out[0],
        .rank = k->out[0]->rank,
    };
    int64_t total = sb_tensor_count(k->out[0]);

    if (total == 0)
        return SB_OK;
    for (int d = 0; d < job.rank; d++)
        job.dims[d] = k->out[0]->dims[dim_at(k->out[0], d)];
    if (job.rank == 0) {
        job.rank = 1;
        job.dims[0] = 1;
    } else {
        set_steps(k->in[A], &job, job.a_step);
        set_steps(k->in[B], &job, job.b_step);
        join_dims(&job);
    }
    int64_t row = job.dims[job.rank - 1];
    int64_t grain = 16384 / row;

    sb_parallel_for(k->ctx, (size_t)(total / row * qlinear_binary_pieces(&job)),
                    (size_t)(grain > 0 ? grain : 1), qbinary_pieces, &job);
    return SB_OK;
}

static const qbinary_fn add_fn = add_row, mul_fn = mul_row;

const sb_op_def sb_op_ms_qlinear_add = {
    .name = "QLinearAdd",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 7,
    .in_max = 8,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .aux = &add_fn,
    .infer = qbinary_infer,
    .layout = qadd_layout,
    .prepare = qbinary_prepare,
    .forward = qbinary_forward,
};

const sb_op_def sb_op_ms_qlinear_mul = {
    .name = "QLinearMul",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 7,
    .in_max = 8,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .aux = &mul_fn,
    .infer = qbinary_infer,
    .layout = qmul_layout,
    .prepare = qbinary_prepare,
    .forward = qbinary_forward,
};
