/* How far the outputs of a quantized network are from those of the float one,
 * on the first calibration batches: what decides whether a method stays. */
#include <math.h>

#include "quant/calibrate/batch_store.h"
#include "quant/calibrate/replay.h"
#include "quant/correct/correct.h"

static sb_status reference_fill(sb_reference *r, sb_replay *replay)
{
    size_t n = sb_batch_store_count(r->qm->state.batches);
    int64_t seen = 0;

    for (size_t i = 0; i < n && seen < SB_REFERENCE_SAMPLES; i++) {
        SB_TRY(sb_ctx_poll(r->qm->ctx));
        SB_TRY(sb_replay_run(replay, i));
        SB_TRY(sb_batch_store_take(r->outputs, replay->outputs));
        seen += sb_batch_store_samples(r->qm->state.batches, i);
    }
    return SB_OK;
}

sb_status sb_reference_open(sb_quant_model *qm, sb_reference *r)
{
    sb_graph *g = NULL;
    sb_replay replay = {0};

    *r = (sb_reference){.qm = qm};
    SB_TRY(sb_batch_store_create(qm->ctx, qm->graph->n_outputs,
                                 qm->state.calibration.memory_limit,
                                 &r->outputs));
    SB_TRY(sb_replay_float(qm, &g));
    sb_status status = sb_replay_open(qm, g, NULL, &replay);
    if (status == SB_OK)
        status = reference_fill(r, &replay);
    sb_replay_close(&replay);
    return status;
}

void sb_reference_close(sb_reference *r)
{
    sb_batch_store_free(r->outputs);
    *r = (sb_reference){0};
}

/* ---- one output --------------------------------------------------------- */

typedef struct output_sums {
    double signal, noise;     /* squares of it, and of the difference */
    double divergence, count; /* of rows that are probabilities */
    bool other;               /* there were rows that are none */
} output_sums;

static bool output_is_probability(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] >= 0))
            return false;
        sum += (double)x[i];
    }
    return n > 1 && fabs(sum - 1) < 1e-3;
}

/* Kullback and Leibler's divergence of two rows of probabilities. */
static double output_divergence(const float *p, const float *q, int64_t n)
{
    const double least = 1e-9;
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double a = fmax((double)p[i], least), b = fmax((double)q[i], least);
        sum += a * log(a / b);
    }
    return fmax(sum, 0);
}

static void output_add_row(const float *want, const float *got, int64_t n,
                           output_sums *s)
{
    if (output_is_probability(want, n)) {
        s->divergence += output_divergence(want, got, n);
        s->count++;
        return;
    }
    s->other = true;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)want[i] - (double)got[i];
        if (!isfinite(d)) /* infinite in both, as masks are */
            continue;
        s->signal += (double)want[i] * (double)want[i];
        s->noise += d * d;
    }
}

static void output_add(const sb_tensor *want, const sb_tensor *got,
                       output_sums *s)
{
    int64_t n = sb_tensor_count(want);
    int64_t row = want->rank > 1 ? want->dims[want->rank - 1] : n;
    const float *a = want->data, *b = got->data;

    if (want->dtype != SB_DTYPE_F32 || got->dtype != SB_DTYPE_F32 ||
        sb_tensor_count(got) != n)
        return;
    for (int64_t i = 0; i < n; i += row)
        output_add_row(a + i, b + i, row, s);
}

/* ---- all of them -------------------------------------------------------- */

static sb_status reference_compare(const sb_reference *r, sb_replay *replay,
                                   output_sums *sums)
{
    const sb_tensor *const *want = NULL;

    for (size_t i = 0; i < sb_batch_store_count(r->outputs); i++) {
        SB_TRY(sb_ctx_poll(r->qm->ctx));
        SB_TRY(sb_replay_run(replay, i));
        SB_TRY(sb_batch_store_get(r->outputs, i, &want));
        for (size_t k = 0; k < r->qm->graph->n_outputs; k++)
            output_add(want[k], replay->outputs[k], &sums[k]);
    }
    return SB_OK;
}

static double reference_mean(const output_sums *sums, size_t n)
{
    double total = 0;
    size_t counted = 0;

    for (size_t k = 0; k < n; k++) {
        const output_sums *s = &sums[k];

        if (s->other && s->signal > 0)
            total += s->noise / s->signal;
        else if (!s->other && s->count > 0)
            total += s->divergence / s->count;
        else
            continue;
        counted++;
    }
    return counted > 0 ? total / (double)counted : 0;
}

sb_status sb_reference_error(const sb_reference *r, double *error)
{
    size_t n = r->qm->graph->n_outputs;
    output_sums *sums = sb_alloc(r->qm->ctx, n + 1, sizeof *sums);
    sb_graph *g = NULL;
    sb_replay replay = {0};

    if (!sums)
        return SB_NO_MEMORY;
    sb_status status = sb_replay_quantized(r->qm, &g);
    if (status == SB_OK)
        status = sb_replay_open(r->qm, g, NULL, &replay);
    if (status == SB_OK)
        status = reference_compare(r, &replay, sums);
    sb_replay_close(&replay);
    *error = reference_mean(sums, n);
    sb_free(r->qm->ctx, sums);
    return status;
}
