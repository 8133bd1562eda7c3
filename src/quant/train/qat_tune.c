/* Batch norms tuned after calibration: the way of training without its steps.
 *
 * Norms are restored behind convolutions, their statistics taken from what the
 * quantized network computes, one after another in one run, and folded again.
 * So each channel has the mean and the variance that it has in float. */
#include "quant/calibrate/batch_store.h"
#include "quant/calibrate/replay.h"
#include "quant/train/qat.h"

/* Layers behind a norm see it with the statistics of the batch. */
enum { TUNE_SAMPLES = 8 };

static sb_status tune_statistics(const sb_qat *qat)
{
    sb_quant_model *qm = qat->qm;
    sb_batch_store *batches = qm->state.batches;
    size_t n = sb_batch_store_count(batches);
    int64_t samples = sb_batch_store_samples(batches, 0);
    sb_qat_statistics *s = NULL;

    if (samples < TUNE_SAMPLES)
        return sb_fail(qm->ctx, SB_BAD_DATA,
                       "SCHEDULE.BN_TUNING: batches of %lld samples, want %d "
                       "or more: statistics are those of batches",
                       (long long)samples, TUNE_SAMPLES);
    sb_status status = sb_qat_statistics_open(qat, qat->graph, &s);

    for (size_t i = 0; i < n && status == SB_OK; i++) {
        const sb_tensor *const *inputs;

        if (!sb_replay_is_for(qm, SB_REPLAY_USED, i))
            continue;
        status = sb_progress(qm->ctx, "batch norms", i, n);
        if (status == SB_OK)
            status = sb_batch_store_get(batches, i, &inputs);
        if (status == SB_OK)
            status = sb_qat_statistics_take(
                s, inputs, (double)sb_batch_store_samples(batches, i));
    }
    if (status == SB_OK)
        status = sb_qat_statistics_set(s);
    sb_qat_statistics_free(s);
    return status;
}

sb_status sb_tune_norms(sb_quant_model *qm, size_t *layers)
{
    sb_qat *qat = NULL;

    SB_TRY(sb_qat_create(qm, SB_QAT_BN_RESTORE, &qat));
    *layers = qat->n_norms;
    sb_status status = *layers > 0 ? tune_statistics(qat) : SB_OK;
    if (status == SB_OK && *layers > 0)
        status = sb_qat_settle(qat, qat->graph);
    sb_qat_free(qat);
    return status;
}
