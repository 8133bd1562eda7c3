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
#include "quant/correct/correct.h"
#include "quant/model/overlay.h"
#include "quant/quantize/cholesky.h"
#include "quant/reconstruct/reconstruct.h"

/* ---- covariances -------------------------------------------------------- */

/* Of one group, [size, size] to [cols, cols], all in the same memory: what is
 * written lies before what is still to be read. */
static void refit_center_group(const float *sums, const float *cross,
                               int64_t cols, bool biased, float *c, float *d,
                               float *means)
{
    int64_t size = cols + 1;
    double n = (double)sums[size * size - 1];
    double scale = n > 0 ? 1 / n : 0;
    float *mean_x = means, *mean_y = means + cols;

    for (int64_t i = 0; i < cols; i++) {
        mean_x[i] = (float)((double)sums[cols * size + i] * scale);
        mean_y[i] = (float)((double)cross[i * size + cols] * scale);
    }
    for (int64_t i = 0; i < cols; i++)
        for (int64_t j = 0; j < cols; j++) {
            double xx = (double)sums[i * size + j] * scale;
            double yx = (double)cross[i * size + j] * scale;

            if (biased) {
                xx -= (double)mean_x[i] * (double)mean_x[j];
                yx -= (double)mean_y[i] * (double)mean_x[j];
            }
            c[i * cols + j] = (float)xx;
            d[i * cols + j] = (float)(yx - xx);
        }
}

void sb_refit_center(sb_gram *gram)
{
    int64_t cols = gram->cols, size = cols + 1;

    for (int64_t g = 0; g < gram->groups; g++)
        refit_center_group(
            gram->sums + g * size * size, gram->cross + g * size * size, cols,
            gram->biased, gram->sums + g * cols * cols,
            gram->cross + g * cols * cols, gram->means + 2 * g * cols);
}

/* ---- weights ------------------------------------------------------------ */

typedef struct refit_job {
    const float *w, *d; /* [rows, cols], [cols, cols] */
    float *x;           /* their product */
    int64_t cols;
} refit_job;

SB_HOT static void refit_add(const float *row, float factor, int64_t n,
                             float *to)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        to[i] += factor * row[i];
}

static void refit_multiply(void *arg, size_t begin, size_t end)
{
    const refit_job *j = arg;

    for (int64_t r = (int64_t)begin; r < (int64_t)end; r++) {
        float *x = j->x + r * j->cols;

        memset(x, 0, (size_t)j->cols * sizeof *x);
        for (int64_t i = 0; i < j->cols; i++)
            refit_add(j->d + i * j->cols, j->w[r * j->cols + i], j->cols, x);
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

/* The damped matrix's factor; false if it has none. */
static sb_status refit_factor(sb_ctx *ctx, const sb_gram *gram, int64_t group,
                              float *h, bool *done)
{
    int64_t n = gram->cols;
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
    return sb_cholesky_upper(ctx, h, n, done);
}

sb_status sb_refit_weight(sb_quant_model *qm, const sb_round_layer *l,
                          const sb_gram *gram, float *w)
{
    size_t n = (size_t)l->cols, rows = (size_t)l->rows;
    float *h = sb_alloc(qm->ctx, n, n * sizeof *h);
    float *x = sb_alloc(qm->ctx, rows, n * sizeof *x);
    sb_status status = h && x ? SB_OK : SB_NO_MEMORY;

    for (int64_t g = 0; g < l->groups && status == SB_OK; g++) {
        float *of_group = w + g * l->rows * l->cols;
        refit_job job = {of_group, gram->cross + g * l->cols * l->cols, x,
                         l->cols};
        bool done = false;

        status = refit_factor(qm->ctx, gram, g, h, &done);
        if (status != SB_OK || !done)
            continue;
        sb_parallel_for(qm->ctx, rows, 4, refit_multiply, &job);
        sb_cholesky_solve_rows(qm->ctx, h, l->cols, x, l->rows);
        refit_add(x, 1, l->rows * l->cols, of_group);
    }
    sb_free(qm->ctx, h);
    sb_free(qm->ctx, x);
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

sb_status sb_refit_bias(sb_quant_model *qm, const sb_round_layer *l,
                        const sb_gram *gram, const float *was, const float *now)
{
    sb_bias_layer found;

    if (!gram->biased || !sb_bias_layer_find(qm->graph, l->node, &found) ||
        found.channels != l->groups * l->rows)
        return SB_OK;
    const sb_tensor *own = &sb_graph_value(qm->graph, found.bias)->constant;
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, own->rank, own->dims);
    SB_TRY(sb_tensor_alloc(qm->ctx, &t));
    for (int64_t c = 0; c < found.channels; c++) {
        const float *means = gram->means + c / l->rows * 2 * l->cols;
        int64_t at = c * l->cols;

        ((float *)t.data)[c] =
            (float)(sb_tensor_get_f64(own, c) +
                    refit_dot(was + at, means + l->cols, l->cols) -
                    refit_dot(now + at, means, l->cols));
    }
    sb_overlay_set(qm, found.bias, &t);
    sb_tensor_drop(&t);
    return SB_OK;
}
