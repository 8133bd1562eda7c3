/* How far the outputs of a quantized network are from those of the float one,
 * sample by sample: what decides whether a method stays. */
#include <math.h>
#include <string.h>

#include "quant/calibrate/batch_store.h"
#include "quant/calibrate/replay.h"
#include "quant/correct/correct.h"

/* ---- the float network -------------------------------------------------- */

static sb_status reference_fill(sb_reference *r, sb_replay *replay)
{
    size_t n = sb_batch_store_count(r->qm->state.batches);

    r->batch = sb_alloc(r->qm->ctx, n + 1, sizeof *r->batch);
    if (!r->batch)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        if (!sb_replay_is_for(r->qm, SB_REPLAY_JUDGED, i))
            continue;
        SB_TRY(sb_ctx_poll(r->qm->ctx));
        SB_TRY(sb_replay_run(replay, i));
        SB_TRY(sb_batch_store_take(r->outputs, replay->outputs));
        r->batch[r->n_batches++] = i;
        r->n_samples += (size_t)sb_batch_store_samples(r->qm->state.batches, i);
    }
    return SB_OK;
}

/* What kind of numbers the outputs are, and how large. */
static sb_status reference_look(const sb_reference *r, bool count)
{
    const sb_tensor *const *t = NULL;

    for (size_t i = 0; i < r->n_batches; i++) {
        SB_TRY(sb_batch_store_get(r->outputs, i, &t));
        for (size_t k = 0; k < r->qm->graph->n_outputs; k++)
            if (count)
                sb_output_form_count(&r->forms[k], t[k]);
            else
                SB_TRY(sb_output_form_see(r->qm->ctx, t[k], &r->forms[k]));
    }
    return SB_OK;
}

sb_status sb_reference_open(sb_quant_model *qm, sb_reference *r)
{
    sb_graph *g = NULL;
    sb_replay replay = {0};

    *r = (sb_reference){.qm = qm};
    r->forms = sb_alloc(qm->ctx, qm->graph->n_outputs + 1, sizeof *r->forms);
    if (!r->forms)
        return SB_NO_MEMORY;
    SB_TRY(sb_batch_store_create(qm->ctx, qm->graph->n_outputs,
                                 qm->state.calibration.memory_limit,
                                 &r->outputs));
    SB_TRY(sb_replay_float(qm, &g));
    sb_status status = sb_replay_open(qm, g, NULL, &replay);
    if (status == SB_OK)
        status = reference_fill(r, &replay);
    sb_replay_close(&replay);
    if (status == SB_OK)
        status = reference_look(r, false);
    return status == SB_OK ? reference_look(r, true) : status;
}

void sb_reference_close(sb_reference *r)
{
    if (!r->qm)
        return;
    sb_batch_store_free(r->outputs);
    for (size_t k = 0; r->forms && k < r->qm->graph->n_outputs; k++)
        sb_free(r->qm->ctx, r->forms[k].sums);
    sb_free(r->qm->ctx, r->forms);
    sb_free(r->qm->ctx, r->batch);
    *r = (sb_reference){0};
}

/* ---- the quantized one -------------------------------------------------- */

/* Adds what one output of a batch says to the errors of its samples; an output
 * that does not count samples says the same of all. */
static void reference_add(const sb_reference *r, const sb_output_form *f,
                          const sb_tensor *want, const sb_tensor *got,
                          int64_t samples, double *errors)
{
    int64_t n = sb_tensor_count(want);
    bool apart = want->rank > 1 && want->dims[0] == samples;
    double share = (apart ? 1 : (double)samples) / (double)r->n_samples;
    double error = 0;

    if (!f->counts || got->dtype != want->dtype || sb_tensor_count(got) != n)
        return;
    for (int64_t s = 0; s < samples; s++) {
        if (apart)
            error = sb_output_form_error(f, want, got, s * (n / samples),
                                         n / samples, share);
        else if (s == 0)
            error = sb_output_form_error(f, want, got, 0, n, share);
        errors[s] += error;
    }
}

static sb_status reference_compare(const sb_reference *r, sb_replay *replay,
                                   double *errors)
{
    const sb_tensor *const *want = NULL;

    for (size_t i = 0; i < r->n_batches; i++) {
        int64_t n = sb_batch_store_samples(r->qm->state.batches, r->batch[i]);

        SB_TRY(sb_ctx_poll(r->qm->ctx));
        SB_TRY(sb_replay_run(replay, r->batch[i]));
        SB_TRY(sb_batch_store_get(r->outputs, i, &want));
        for (size_t k = 0; k < r->qm->graph->n_outputs; k++)
            reference_add(r, &r->forms[k], want[k], replay->outputs[k], n,
                          errors);
        errors += n;
    }
    return SB_OK;
}

sb_status sb_reference_errors(const sb_reference *r, double *errors)
{
    double outputs = 0;
    sb_graph *g = NULL;
    sb_replay replay = {0};

    memset(errors, 0, r->n_samples * sizeof *errors);
    sb_status status = sb_replay_quantized(r->qm, &g);
    if (status == SB_OK)
        status = sb_replay_open(r->qm, g, NULL, &replay);
    if (status == SB_OK)
        status = reference_compare(r, &replay, errors);
    sb_replay_close(&replay);
    for (size_t k = 0; k < r->qm->graph->n_outputs; k++)
        outputs += r->forms[k].counts;
    for (size_t i = 0; i < r->n_samples && outputs > 0; i++)
        errors[i] /= outputs;
    return status;
}

double sb_errors_mean(const double *errors, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += errors[i];
    return n > 0 ? sum / (double)n : 0;
}

bool sb_errors_fell(const double *before, const double *after, size_t n,
                    bool clearly)
{
    const double least = 0.02;
    double sum = 0, squares = 0, count = 0;

    for (size_t i = 0; i < n; i++) {
        if (!(before[i] > 0) || !(after[i] > 0))
            continue;
        double change = log(after[i] / before[i]);
        sum += change;
        squares += change * change;
        count++;
    }
    if (!(sb_errors_mean(after, n) < sb_errors_mean(before, n)))
        return false;
    if (count < 3) /* too few to tell how sure it is */
        return true;
    double mean = sum / count;
    double spread = fmax(squares / count - mean * mean, 0) / (count - 1);
    return mean < (clearly ? -fmax(sqrt(spread), least) : 0);
}
