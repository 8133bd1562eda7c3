/* Compare (ours): how far b is from a, as sums over all elements,
 *
 *     y = [sum (a-b)^2, sum a^2, sum b^2, sum a*b, max |a-b|, elements]
 *
 * in double.  A result of the network and what quantization makes of it meet
 * here while both are alive, and only six numbers stay.  Sums are taken over
 * pieces of a fixed size and these added up in order, so they are the same for
 * any number of threads; within a piece eight sums run side by side, for the
 * compiler to do them at once without changing what is added to what. */
#include "ops/reduce/compare_sums.h"

#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/infer_util.h"

enum { PIECE = 8192, LANES = 8 };

static sb_status compare_infer(sb_infer *in)
{
    const sb_shape shape = {.rank = 1, .dim = {SB_COMPARE_SUMS}};

    sb_infer_set(in, 0, SB_DTYPE_F64, &shape);
    return SB_OK;
}

static size_t compare_pieces(const sb_tensor *a)
{
    int64_t n = sb_tensor_count(a);

    return (size_t)(n / PIECE + (n % PIECE != 0));
}

static sb_status compare_prepare(sb_kernel *k)
{
    const sb_tensor *a = k->in[0], *b = k->in[1];
    sb_shape x = sb_shape_of(a), y = sb_shape_of(b);
    size_t pieces = compare_pieces(a);

    if (a->dtype != SB_DTYPE_F32 || b->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "compares %s with %s",
                              sb_dtype_name(a->dtype), sb_dtype_name(b->dtype));
    if (!sb_shape_same(&x, &y))
        return sb_kernel_fail(k, SB_BAD_MODEL, "two shapes to be compared");
    k->scratch_size = (pieces + 1) * sizeof(double[SB_COMPARE_SUMS]);
    return SB_OK;
}

typedef struct compare_job {
    const float *a, *b;
    int64_t n;
    double (*sums)[SB_COMPARE_SUMS]; /* by piece */
} compare_job;

static inline void compare_add(double s[SB_COMPARE_MAX + 1][LANES], size_t lane,
                               double a, double b)
{
    double d = a - b, m = fabs(d);

    s[SB_COMPARE_DD][lane] += d * d;
    s[SB_COMPARE_AA][lane] += a * a;
    s[SB_COMPARE_BB][lane] += b * b;
    s[SB_COMPARE_AB][lane] += a * b;
    s[SB_COMPARE_MAX][lane] =
        m > s[SB_COMPARE_MAX][lane] ? m : s[SB_COMPARE_MAX][lane];
}

SB_HOT static void compare_piece(const compare_job *job, size_t piece)
{
    size_t at = piece * PIECE, left = (size_t)job->n - at, i = 0;
    size_t n = left < PIECE ? left : PIECE;
    const float *a = job->a + at, *b = job->b + at;
    double s[SB_COMPARE_MAX + 1][LANES] = {{0}};
    double *out = job->sums[piece];

    for (; i + LANES <= n; i += LANES) {
        SB_SIMD
        for (size_t k = 0; k < LANES; k++)
            compare_add(s, k, (double)a[i + k], (double)b[i + k]);
    }
    for (; i < n; i++)
        compare_add(s, i % LANES, (double)a[i], (double)b[i]);
    memset(out, 0, sizeof job->sums[piece]);
    for (size_t k = 0; k < LANES; k++) {
        for (size_t w = 0; w < SB_COMPARE_MAX; w++)
            out[w] += s[w][k];
        out[SB_COMPARE_MAX] = fmax(out[SB_COMPARE_MAX], s[SB_COMPARE_MAX][k]);
    }
}

static void compare_part(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        compare_piece(arg, i);
}

static sb_status compare_forward(sb_kernel *k)
{
    compare_job job = {.a = k->in[0]->data,
                       .b = k->in[1]->data,
                       .n = sb_tensor_count(k->in[0]),
                       .sums = k->scratch};
    size_t pieces = compare_pieces(k->in[0]);
    double *y = k->out[0]->data;

    sb_parallel_for(k->ctx, pieces, 4, compare_part, &job);
    memset(y, 0, sizeof(double[SB_COMPARE_SUMS]));
    for (size_t i = 0; i < pieces; i++) {
        for (size_t w = 0; w < SB_COMPARE_MAX; w++)
            y[w] += job.sums[i][w];
        y[SB_COMPARE_MAX] =
            fmax(y[SB_COMPARE_MAX], job.sums[i][SB_COMPARE_MAX]);
    }
    y[SB_COMPARE_COUNT] = (double)job.n;
    return SB_OK;
}

/* Any layout, if both have it. */
static void compare_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    (void)out;
    in[0] = in[1] = k->in[0]->layout;
}

const sb_op_def sb_op_compare = {
    .name = "Compare",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .infer = compare_infer,
    .layout = compare_layout,
    .prepare = compare_prepare,
    .forward = compare_forward,
};
