/* Criterion "reconstruction": how much the results of the layers that read a
 * channel change without it, after the best that least squares can do with the
 * others:
 *
 *     |w_c|^2 / (G^-1)_cc
 *
 * with G the second moments of what the layer reads, w_c its weights for the
 * channel.  The residual 1 / (G^-1)_cc is small for channels that others can
 * stand in for.  Channels that no weight reads, only another activation, are
 * scored by the weights that make them. */
#include "prune/criterion/axis_norm.h"
#include "prune/linear.h"
#include "prune/seen.h"

/* What is left of each channel when the others have explained it. */
static sb_status reconstruction_residuals(sb_ctx *ctx, const sb_seen_value *s,
                                          double *out)
{
    int64_t n = s->n;
    double *l = sb_alloc(ctx, (size_t)(n * n), sizeof *l), trace = 0;
    double *work = sb_alloc(ctx, (size_t)n, sizeof *work);
    sb_status status = l && work ? SB_OK : SB_NO_MEMORY;

    for (int64_t i = 0; i < n && status == SB_OK; i++) {
        for (int64_t j = 0; j <= i; j++)
            l[i * n + j] = s->gram[i * (n + 1) + j];
        trace += l[i * n + i];
    }
    for (int64_t i = 0; i < n && status == SB_OK; i++)
        l[i * n + i] += 1e-4 * trace / (double)n + 1e-30;
    if (status == SB_OK && sb_cholesky(l, n))
        sb_cholesky_inverse_diagonal(l, n, out, work);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = 1;
    for (int64_t i = 0; i < n && status == SB_OK; i++)
        out[i] = 1 / out[i];
    sb_free(ctx, l);
    sb_free(ctx, work);
    return status;
}

/* The error of one layer for each of its inputs. */
static sb_status reconstruction_axis(const sb_criterion_ask *ask,
                                     const sb_prune_axis *a, const sb_tensor *t,
                                     double *out)
{
    const sb_seen_value *s = sb_seen_of(ask->seen, a->read.value, a->read.axis);

    sb_axis_sums(t, a->axis, true, out);
    if (!s || s->n != t->dims[a->axis])
        return SB_OK;
    double *rest = sb_alloc(ask->ctx, (size_t)s->n, sizeof *rest);
    if (!rest)
        return SB_NO_MEMORY;
    sb_status status = reconstruction_residuals(ask->ctx, s, rest);
    for (int64_t i = 0; i < s->n && status == SB_OK; i++)
        out[i] *= rest[i];
    sb_free(ask->ctx, rest);
    return status;
}

static sb_status reconstruction_makers(const sb_criterion_ask *ask,
                                       const sb_prune_axis *a,
                                       const sb_tensor *t, double *out)
{
    (void)ask;
    sb_axis_sums(t, a->axis, true, out);
    return SB_OK;
}

static sb_status reconstruction_score(const sb_criterion_ask *ask, double *out)
{
    bool found;

    SB_TRY(
        sb_score_by_axis(ask, SB_AXIS_READ, reconstruction_axis, out, &found));
    return found ? SB_OK
                 : sb_score_by_axis(ask, SB_AXIS_MADE, reconstruction_makers,
                                    out, &found);
}

const sb_criterion_def sb_criterion_reconstruction = {
    .name = "reconstruction",
    .summary = "what the next layers lose, others standing in (needs data)",
    .needs_data = true,
    .score = reconstruction_score,
};
