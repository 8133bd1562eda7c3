/* Layers fitted to the float network before they are rounded.
 *
 * Where the float network's layer W, b reads y, that of the quantized network
 * reads x, which is not the same any more.  The weight that makes the best of x
 * is that of least squares, with covariances C:
 *
 *     W' = W C_yx C_xx^-1 = W + W (C_yx - C_xx) C_xx^-1
 *
 * with C_xx damped in the second form, so that what the samples do not tell
 * stays as it was.  The error that is left to a rounded weight V is a quadratic
 * form of V - W' with C_xx, which is what methods of rounding lower; and the
 * bias b + W mean(y) - V mean(x) takes up what means differ by.  (Layer by
 * layer, as in H. Li et al., GPTAQ, arXiv 2504.02692, with means apart.) */
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "dnn/bf16_product.h"
#include "quant/correct/correct.h"
#include "quant/model/overlay.h"
#include "quant/quantize/cholesky.h"
#include "quant/reconstruct/reconstruct.h"

/* ---- covariances -------------------------------------------------------- */

/* Of one group, [size, size] to [cols, cols], all in the same memory: what is
 * written lies before what is still to be read.  `means` NULL: as if they were
 * zero. */
static void refit_center_group(const float *sums, const float *cross,
                               int64_t cols, double scale, float *c, float *d,
                               float *means)
{
    int64_t size = means ? cols + 1 : cols;
    const float *mean_x = means, *mean_y = means ? means + cols : NULL;

    for (int64_t i = 0; i < cols && means; i++) {
        means[i] = (float)((double)sums[cols * size + i] * scale);
        means[cols + i] = (float)((double)cross[i * size + cols] * scale);
    }
    for (int64_t i = 0; i < cols; i++)
        for (int64_t j = 0; j < cols; j++) {
            double xx = (double)sums[i * size + j] * scale;
            double yx = (double)cross[i * size + j] * scale;

            if (means) {
                xx -= (double)mean_x[i] * (double)mean_x[j];
                yx -= (double)mean_y[i] * (double)mean_x[j];
            }
            c[i * cols + j] = (float)xx;
            d[i * cols + j] = (float)(yx - xx);
        }
}

void sb_refit_center(sb_gram *gram)
{
    int64_t cols = gram->cols, size = cols + gram->biased;
    double scale = gram->count > 0 ? 1 / (double)gram->count : 0;

    for (int64_t g = 0; g < gram->groups; g++)
        refit_center_group(
            gram->sums + g * size * size, gram->cross + g * size * size, cols,
            scale, gram->sums + g * cols * cols, gram->cross + g * cols * cols,
            gram->biased ? gram->means + 2 * g * cols : NULL);
}

/* ---- weights ------------------------------------------------------------ */

enum { REFIT_TILE = 16, REFIT_COLS = 512, REFIT_BRIEF = 256 };

typedef struct refit_job {
    const float *w, *d; /* [rows, cols], [cols, cols] */
    float *x;           /* their product */
    int64_t rows, cols;
} refit_job;

SB_HOT static void refit_add(const float *row, float factor, int64_t n,
                             float *to)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        to[i] += factor * row[i];
}

/* Items are tiles of rows: what they have in common is read once, and of their
 * results as many columns at a time as stay in the cache. */
static void refit_multiply(void *arg, size_t begin, size_t end)
{
    const refit_job *j = arg;
    int64_t n = j->cols;

    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++) {
        int64_t first = t * REFIT_TILE, last = first + REFIT_TILE;

        last = last < j->rows ? last : j->rows;
        memset(j->x + first * n, 0, (size_t)((last - first) * n) * 4);
        for (int64_t c = 0; c < n; c += REFIT_COLS) {
            int64_t width = n - c < REFIT_COLS ? n - c : REFIT_COLS;

            for (int64_t i = 0; i < n; i++)
                for (int64_t r = first; r < last; r++)
                    refit_add(j->d + i * n + c, j->w[r * n + i], width,
                              j->x + r * n + c);
        }
    }
}

/* How much is added to the diagonal, as a share of its mean: more if there are
 * few terms for so many columns. */
static double refit_damping(const sb_gram *gram)
{
    const double least = 0.1, few = 8;
    double share = few * (double)gram->cols / ((double)gram->count + 1);

    return share > least ? share : least;
}

sb_status sb_refit_factor(sb_ctx *ctx, sb_gram *gram, int64_t group, float *h,
                          bool *done)
{
    int64_t n = gram->cols;

    *done = gram->solved;
    if (*done)
        return SB_OK;
    const float *c = gram->sums + group * n * n;
    double share = refit_damping(gram), mean = 0;

    for (int64_t i = 0; i < n; i++)
        mean += (double)c[i * (n + 1)] / (double)n;
    *done = mean > 0;
    if (!*done)
        return SB_OK;
    memcpy(h, c, (size_t)(n * n) * sizeof *h);
    for (int64_t i = 0; i < n; i++)
        h[i * (n + 1)] += (float)(share * mean);
    SB_TRY(sb_cholesky_upper(ctx, h, n, done));
    if (*done && gram->many) {
        sb_cholesky_solve_rows(ctx, h, n, gram->cross, n);
        gram->solved = true;
    }
    return sb_ctx_poll(ctx);
}

/* x = w d, with factors of bfloat16, some columns at a time. */
static sb_status refit_multiply_brief(sb_ctx *ctx, const refit_job *j)
{
    int64_t n = j->cols, some = n < REFIT_COLS ? n : REFIT_COLS;
    size_t a = (size_t)(j->rows * sb_bf16_pairs(n)), b = 0;

    if (!sb_bf16_bytes(n, some, &b))
        return SB_NO_MEMORY;
    uint32_t *room = sb_alloc_raw(ctx, a * sizeof *room + b, 1);
    if (!room)
        return SB_NO_MEMORY;
    sb_bf16_rows(ctx, j->w, n, j->rows, n, room);
    for (int64_t c = 0; c < n; c += some) {
        const sb_bf16_source from = {
            .x = j->d + c,
            .row = n,
            .col = 1,
            .k = n,
            .n = n - c < some ? n - c : some,
        };
        const sb_bf16_product p = {.m = j->rows,
                                   .n = from.n,
                                   .k = n,
                                   .a = room,
                                   .b = room + a,
                                   .c = j->x + c,
                                   .c_row = n};

        sb_bf16_pack(ctx, &from, room + a);
        sb_bf16_multiply(ctx, &p);
    }
    sb_free(ctx, room);
    return SB_OK;
}

sb_status sb_refit_rows(sb_ctx *ctx, const sb_gram *gram, int64_t group,
                        const float *h, float *w, int64_t rows)
{
    int64_t n = gram->cols;
    float *x = sb_alloc_raw(ctx, (size_t)rows, (size_t)n * sizeof *x);
    refit_job job = {w, gram->cross + group * n * n, x, rows, n};

    if (!x)
        return SB_NO_MEMORY;
    sb_status status = SB_OK;
    if (gram->brief && n >= REFIT_BRIEF && sb_bf16_is_fast())
        status = refit_multiply_brief(ctx, &job);
    else
        sb_parallel_for(ctx, (size_t)((rows + REFIT_TILE - 1) / REFIT_TILE), 1,
                        refit_multiply, &job);
    if (status == SB_OK && !gram->solved)
        sb_cholesky_solve_rows(ctx, h, n, x, rows);
    if (status == SB_OK)
        refit_add(x, 1, rows * n, w);
    sb_free(ctx, x);
    return status;
}

/* ---- biases ------------------------------------------------------------- */

static double refit_dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

sb_status sb_refit_bias_open(sb_quant_model *qm, const sb_round_layer *l,
                             const sb_gram *gram, sb_tensor *bias,
                             sb_value_id *value)
{
    sb_bias_layer found;

    *bias = (sb_tensor){0};
    if (!gram->cross || !gram->biased ||
        !sb_bias_layer_find(qm->graph, l->node, &found) ||
        found.channels != l->groups * l->rows)
        return SB_OK;
    const sb_tensor *own = &sb_graph_value(qm->graph, found.bias)->constant;
    *bias = sb_tensor_make(SB_DTYPE_F32, own->rank, own->dims);
    SB_TRY(sb_tensor_alloc(qm->ctx, bias));
    sb_convert(own->dtype, own->data, SB_DTYPE_F32, bias->data,
               (size_t)found.channels);
    *value = found.bias;
    return SB_OK;
}

void sb_refit_bias_rows(const sb_gram *gram, int64_t group, int64_t first,
                        int64_t rows, const float *was, const float *now,
                        sb_tensor *bias)
{
    int64_t n = gram->cols;
    const float *means = gram->means + 2 * group * n;
    float *b = (float *)bias->data + first;

    for (int64_t r = 0; r < rows; r++)
        b[r] = (float)((double)b[r] + refit_dot(was + r * n, means + n, n) -
                       refit_dot(now + r * n, means, n));
}
