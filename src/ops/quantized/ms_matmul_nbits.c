/* com.microsoft MatMulNBits: y = A * dequantized(B)^T + bias.
 *
 * B [N, n_block, block_size * bits / 8] holds 2-, 3-, 4- or 8-bit weights
 * packed low bits first (ONNX Runtime has no kernel for 3), in blocks along K
 * with one scale each: w = (q - zero) * scale.  Zero points are absent (2^(bits
 * - 1)), packed like the weights with each row of blocks starting on a byte, or
 * floats.  With g_idx [K] column k belongs to block g_idx[k] instead of k /
 * block_size. (ONNX Runtime 1.31 on a CPU takes no notice of packed zero points
 * then.)
 *
 * With accuracy_level 4 activations are rounded to int8 in chunks, as ONNX
 * Runtime does (ops/int8/nbits_int8.h), unless results are to be exact.  Else
 * many rows of A are multiplied with tiles of B that become floats one after
 * the other, and for few rows pieces of B are dequantized on the stack: the
 * weights are never unpacked in memory as a whole. */
#include "base/simd.h"
#include "base/threads.h"
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"
#include "ops/infer_util.h"
#include "ops/int8/nbits_int8.h"
#include "ops/matmul/tiled_matmul.h"

enum { A, B, SCALES, ZEROS, G_IDX, BIAS };

typedef struct nbits_attrs {
    int64_t k, n, bits, block_size, accuracy_level;
} nbits_attrs;

#define ATTR(field) offsetof(nbits_attrs, field)

static const sb_attr_def nbits_attr_defs[] = {
    {.name = "K", SB_ATTR_INT, ATTR(k), .required = true},
    {.name = "N", SB_ATTR_INT, ATTR(n), .required = true},
    {.name = "accuracy_level", SB_ATTR_INT, ATTR(accuracy_level)},
    {.name = "bits", SB_ATTR_INT, ATTR(bits), .i = 4},
    {.name = "block_size", SB_ATTR_INT, ATTR(block_size), .required = true},
    {0},
};

static sb_status nbits_infer(sb_infer *in)
{
    const nbits_attrs *a = in->attrs;
    sb_shape out = in->in[A]->type.shape;

    if (a->k < 1 || a->n < 1 || a->block_size < 1)
        return sb_infer_fail(in, "K %lld, N %lld, block_size %lld: want > 0",
                             (long long)a->k, (long long)a->n,
                             (long long)a->block_size);
    if (out.rank == 0)
        return sb_infer_fail(in, "A has rank 0");
    if (out.rank > 0) {
        sb_dim k = out.dim[out.rank - 1];

        if (sb_dim_known(k) && k != a->k)
            return sb_infer_fail(in, "A has %lld columns, want K %lld",
                                 (long long)k, (long long)a->k);
        out.dim[out.rank - 1] = a->n;
    }
    sb_infer_set(in, 0, in->in[A]->type.dtype, &out);
    return SB_OK;
}

static int64_t n_block_of(const nbits_attrs *a)
{
    return a->k / a->block_size + (a->k % a->block_size != 0);
}

/* Bytes of the packed zero points of one row. */
static int64_t zero_row_of(const nbits_attrs *a)
{
    return (n_block_of(a) * a->bits + 7) / 8;
}

static sb_status check_count(const sb_kernel *k, uint32_t input, sb_dtype dtype,
                             int64_t per_row)
{
    const nbits_attrs *a = k->attrs;
    const sb_tensor *t = sb_kernel_in(k, input);
    int64_t want = 0;

    if (!t || t->dtype != dtype || !sb_mul_i64(a->n, per_row, &want) ||
        sb_tensor_count(t) != want)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "input %u does not hold %lld x %lld elements of "
                              "type %s",
                              input, (long long)a->n, (long long)per_row,
                              sb_dtype_name(dtype));
    return SB_OK;
}

/* One per column, or one more for each that fills up the last block. */
static sb_status check_groups(const sb_kernel *k)
{
    const nbits_attrs *a = k->attrs;
    const sb_tensor *g = sb_kernel_in(k, G_IDX);
    int64_t whole = 0, n = g ? sb_tensor_count(g) : 0;

    if (g && (g->dtype != SB_DTYPE_I32 ||
              !sb_mul_i64(n_block_of(a), a->block_size, &whole) ||
              (n != a->k && n != whole)))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "g_idx has %lld elements of type %s, want K %lld "
                              "of type int32",
                              (long long)n, sb_dtype_name(g->dtype),
                              (long long)a->k);
    return SB_OK;
}

static sb_status nbits_check(sb_kernel *k)
{
    const nbits_attrs *a = k->attrs;
    const sb_tensor *zeros = sb_kernel_in(k, ZEROS);
    int64_t row = 0, n_block = n_block_of(a);

    if (a->bits != 2 && a->bits != 3 && a->bits != 4 && a->bits != 8)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "bits is %lld, want 2, 3, 4 or 8",
                              (long long)a->bits);
    if (a->block_size % 16 != 0 || a->block_size > 1 << 20)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "block_size is %lld, want a multiple of 16",
                              (long long)a->block_size);
    SB_TRY(check_groups(k));
    if (!sb_mul_i64(n_block, a->block_size * a->bits / 8, &row))
        return sb_kernel_fail(k, SB_BAD_MODEL, "K is too large");
    SB_TRY(check_count(k, B, SB_DTYPE_U8, row));
    SB_TRY(check_count(k, SCALES, SB_DTYPE_F32, n_block));
    if (zeros && zeros->dtype == SB_DTYPE_U8)
        SB_TRY(check_count(k, ZEROS, SB_DTYPE_U8, zero_row_of(a)));
    else if (zeros)
        SB_TRY(check_count(k, ZEROS, SB_DTYPE_F32, n_block));
    return sb_kernel_in(k, BIAS) ? check_count(k, BIAS, SB_DTYPE_F32, 1)
                                 : SB_OK;
}

/* ---- running ------------------------------------------------------------ */

enum { PIECE = 128, TILE = 64, MANY = 16, INT8_LEVEL = 4 };

typedef struct nbits_job {
    const nbits_attrs *attrs;
    int64_t m, n_block;
    const float *a, *bias; /* of the product */
    const float *scales;
    const uint8_t *b, *zero_bits; /* packed zero points, or NULL */
    const float *zero_floats;     /* or NULL */
    const int32_t *groups;        /* of columns, or NULL */
    float *y;
} nbits_job;

static float zero_of(const nbits_job *job, int64_t n, int64_t block)
{
    int64_t bits = job->attrs->bits;

    if (job->zero_floats)
        return job->zero_floats[n * job->n_block + block];
    if (job->zero_bits)
        return (float)sb_nbits_code(
            job->zero_bits + n * zero_row_of(job->attrs), block, bits);
    return (float)(1 << (bits - 1));
}

/* Elements [k, k + count) of row n, all in one block; count is even but for
 * the end of the row. */
static void matmul_nbits_unpack(const nbits_job *job, int64_t n, int64_t k,
                                int64_t count, float *w)
{
    int64_t bits = job->attrs->bits, block = k / job->attrs->block_size;
    int64_t row = job->n_block * job->attrs->block_size * bits / 8;
    const uint8_t *from = job->b + n * row + k * bits / 8;

    if (job->groups) {
        for (int64_t i = 0; i < count; i++) {
            block = job->groups[k + i];
            w[i] =
                ((float)sb_nbits_code(from, i, bits) - zero_of(job, n, block)) *
                job->scales[n * job->n_block + block];
        }
        return;
    }
    float scale = job->scales[n * job->n_block + block];
    float zero = zero_of(job, n, block);

    if (bits == 4) {
        for (int64_t i = 0; i + 1 < count; i += 2) {
            unsigned byte = from[i / 2];

            w[i] = ((float)(byte & 15u) - zero) * scale;
            w[i + 1] = ((float)(byte >> 4) - zero) * scale;
        }
        if (count % 2 != 0)
            w[count - 1] = ((float)(from[count / 2] & 15u) - zero) * scale;
        return;
    }
    for (int64_t i = 0; i < count; i++)
        w[i] = ((float)sb_nbits_code(from, i, bits) - zero) * scale;
}

/* Eight partial sums, added in a fixed order. */
SB_HOT static float dot(const float *a, const float *w, int64_t n)
{
    float sum[8] = {0};
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] += a[i + j] * w[i + j];
    for (; i < n; i++)
        sum[i % 8] += a[i] * w[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) +
           ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

static void nbits_rows(void *arg, size_t begin, size_t end)
{
    const nbits_job *job = arg;
    const nbits_attrs *at = job->attrs;
    float w[PIECE];

    for (size_t item = begin; item < end; item++) {
        int64_t n = (int64_t)item;

        for (int64_t m0 = 0; m0 < job->m; m0 += TILE) {
            int64_t tile = job->m - m0 < TILE ? job->m - m0 : TILE;
            float sum[TILE] = {0};

            for (int64_t k = 0; k < at->k;) {
                int64_t count = at->block_size - k % at->block_size;

                count = count < PIECE ? count : PIECE;
                count = count < at->k - k ? count : at->k - k;
                matmul_nbits_unpack(job, n, k, count, w);
                for (int64_t m = 0; m < tile; m++)
                    sum[m] += dot(job->a + (m0 + m) * at->k + k, w, count);
                k += count;
            }
            for (int64_t m = 0; m < tile; m++)
                job->y[(m0 + m) * at->n + n] =
                    job->bias ? sum[m] + job->bias[n] : sum[m];
        }
    }
}

/* The weights of a node, checked as far as that needs elements. */
static sb_status nbits_weights(const sb_kernel *k, nbits_job *job)
{
    const nbits_attrs *attrs = k->attrs;
    const sb_tensor *zeros = sb_kernel_in(k, ZEROS);
    const sb_tensor *groups = sb_kernel_in(k, G_IDX);
    bool packed = zeros && zeros->dtype == SB_DTYPE_U8;

    *job = (nbits_job){
        .attrs = attrs,
        .n_block = n_block_of(attrs),
        .b = k->in[B]->data,
        .scales = k->in[SCALES]->data,
        .zero_bits = packed ? zeros->data : NULL,
        .zero_floats = zeros && !packed ? zeros->data : NULL,
        .groups = groups ? groups->data : NULL,
        .y = k->out[0]->data,
    };
    for (int64_t i = 0; groups && i < attrs->k; i++)
        if (job->groups[i] < 0 || job->groups[i] >= job->n_block)
            return sb_kernel_fail(
                k, SB_BAD_MODEL, "g_idx[%lld] is %d, want less than %lld",
                (long long)i, (int)job->groups[i], (long long)job->n_block);
    return SB_OK;
}

static int64_t rows_of(const sb_kernel *k)
{
    return sb_dims_product(k->in[A]->dims, 0, k->in[A]->rank - 1);
}

static bool is_int8(const sb_kernel *k)
{
    const nbits_attrs *a = k->attrs;

    return !k->exact && a->accuracy_level == INT8_LEVEL &&
           !sb_kernel_in(k, G_IDX);
}

/* One of both. */
typedef struct nbits_state {
    sb_tiled_matmul tiled;
    size_t lanes; /* for which there is memory, of int8 */
} nbits_state;

static sb_status nbits_prepare(sb_kernel *k)
{
    const nbits_attrs *a = k->attrs;
    int64_t m = rows_of(k);

    SB_TRY(nbits_check(k));
    if (!is_int8(k) && m < MANY)
        return SB_OK;
    nbits_state *s = sb_alloc(k->ctx, 1, sizeof *s);
    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    if (is_int8(k)) {
        sb_nbits_shape shape = sb_nbits_shape_of(a->bits, a->block_size, a->k);

        s->lanes = (size_t)sb_ctx_threads(k->ctx);
        k->scratch_size = sb_nbits_room(&shape, m, s->lanes);
        return SB_OK;
    }
    SB_TRY(sb_tiled_matmul_plan(k, sb_kernel_in(k, BIAS) != NULL, m, a->n, a->k,
                                &s->tiled));
    k->scratch_size = s->tiled.scratch;
    return SB_OK;
}

static void nbits_release(sb_kernel *k)
{
    nbits_state *s = k->state;

    if (s)
        sb_tiled_matmul_free(&s->tiled);
    sb_free(k->ctx, s);
}

/* Rows of B as floats. */
static void nbits_float_rows(const void *arg, int64_t first, int64_t count,
                             float *out)
{
    const nbits_job *job = arg;
    const nbits_attrs *at = job->attrs;

    for (int64_t n = first; n < first + count; n++, out += at->k)
        for (int64_t k = 0; k < at->k;) {
            int64_t len = at->block_size - k % at->block_size;

            len = len < at->k - k ? len : at->k - k;
            matmul_nbits_unpack(job, n, k, len, out + k);
            k += len;
        }
}

static void nbits_run_int8(const sb_kernel *k, const nbits_job *job)
{
    const nbits_attrs *a = k->attrs;
    const sb_nbits_weights w = {.n = a->n,
                                .k = a->k,
                                .block = a->block_size,
                                .n_block = job->n_block,
                                .bits = a->bits,
                                .codes = job->b,
                                .scales = job->scales,
                                .zeros = job->zero_floats,
                                .zero_bits = job->zero_bits};

    const nbits_state *state = k->state;
    const sb_nbits_product product = {.w = &w,
                                      .m = job->m,
                                      .a = job->a,
                                      .bias = job->bias,
                                      .y = job->y,
                                      .lanes = state->lanes,
                                      .room = k->scratch};

    sb_nbits_int8_run(k->ctx, &product);
}

static sb_status nbits_forward(sb_kernel *k)
{
    const nbits_attrs *attrs = k->attrs;
    const sb_tensor *bias = sb_kernel_in(k, BIAS);
    nbits_job job;

    SB_TRY(nbits_weights(k, &job));
    job.m = rows_of(k);
    job.a = k->in[A]->data;
    job.bias = bias ? bias->data : NULL;
    if (is_int8(k))
        nbits_run_int8(k, &job);
    else if (k->state)
        return sb_tiled_matmul_run(k->ctx, &((nbits_state *)k->state)->tiled,
                                   nbits_float_rows, &job, job.a, job.bias,
                                   job.y, k->scratch);
    else
        sb_parallel_for(k->ctx, (size_t)attrs->n, 8, nbits_rows, &job);
    return SB_OK;
}

static double nbits_macs(const sb_kernel *k)
{
    const nbits_attrs *a = k->attrs;

    return (double)sb_tensor_count(k->out[0]) * (double)a->k;
}

/* Weights of so few bits stay as they are: only that of A, dy times them. */
static sb_status nbits_grad(sb_grad *g)
{
    sb_emit_spec spec = {.op = "UnpackNBits",
                         .n_in = g->node->n_in < BIAS ? g->node->n_in : BIAS,
                         .attrs = g->node->attrs,
                         .n_attrs = g->node->n_attrs};

    if (sb_grad_wants(g, SCALES) || sb_grad_wants(g, ZEROS))
        return sb_grad_refuse(g, "its scales and zero points");
    spec.in[0] = g->dy[0];
    for (uint32_t i = B; i < spec.n_in; i++)
        spec.in[i] = sb_grad_in(g, i);
    if (g->wanted[A])
        g->dx[A] = sb_emit2(g, "MatMul", g->dy[0], sb_emit(g, &spec));
    if (sb_grad_wants(g, BIAS))
        g->dx[BIAS] = sb_grad_sum_to(g, g->dy[0], sb_grad_in(g, BIAS));
    return SB_OK;
}

const sb_op_def sb_op_ms_matmul_nbits = {
    .name = "MatMulNBits",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 3,
    .in_max = 6,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INTEGER,
    .weight_input = 1,
    .any_type = 1u << B | 1u << ZEROS | 1u << G_IDX,
    .attrs_size = sizeof(nbits_attrs),
    .attrs = nbits_attr_defs,
    .infer = nbits_infer,
    .prepare = nbits_prepare,
    .forward = nbits_forward,
    .release = nbits_release,
    .macs = nbits_macs,
    .grad = nbits_grad,
};

/* ---- weights unpacked, for the gradient ------------------------------- */

static void nbits_unpack_rows(void *arg, size_t begin, size_t end)
{
    const nbits_job *job = arg;
    const nbits_attrs *at = job->attrs;

    for (int64_t n = (int64_t)begin; n < (int64_t)end; n++)
        for (int64_t k = 0; k < at->k;) {
            int64_t count = at->block_size - k % at->block_size;

            count = count < at->k - k ? count : at->k - k;
            matmul_nbits_unpack(job, n, k, count, job->y + n * at->k + k);
            k += count;
        }
}

static sb_status nbits_unpack_forward(sb_kernel *k)
{
    const nbits_attrs *attrs = k->attrs;
    nbits_job job;

    SB_TRY(nbits_weights(k, &job));
    sb_parallel_for(k->ctx, (size_t)attrs->n, 8, nbits_unpack_rows, &job);
    return SB_OK;
}

static sb_status nbits_unpack_infer(sb_infer *in)
{
    const nbits_attrs *a = in->attrs;
    sb_shape out = {.rank = 2, .dim = {a->n, a->k}};

    if (a->k < 1 || a->n < 1 || a->block_size < 1)
        return sb_infer_fail(in, "K %lld, N %lld, block_size %lld: want > 0",
                             (long long)a->k, (long long)a->n,
                             (long long)a->block_size);
    sb_infer_set(in, 0, SB_DTYPE_F32, &out);
    return SB_OK;
}

/* UnpackNBits: the weights of a MatMulNBits as floats, [N, K].  Input 0 is the
 * gradient of its result, which is not read: so weights that are constants are
 * not unpacked once and for all. */
const sb_op_def sb_op_unpack_nbits = {
    .name = "UnpackNBits",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 3,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INTEGER,
    .any_type = 1u << B | 1u << ZEROS | 1u << G_IDX,
    .attrs_size = sizeof(nbits_attrs),
    .attrs = nbits_attr_defs,
    .infer = nbits_unpack_infer,
    .prepare = nbits_check,
    .forward = nbits_unpack_forward,
};
