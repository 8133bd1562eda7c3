/* The methods that run after scales are known, in their order.
 *
 * Each is measured on the first calibration samples; without a configuration of
 * the user, what does not bring the outputs nearer to those of the float
 * network is taken back. */
#include "quant/calibrate/batch_store.h"
#include "quant/calibrate/calibrate.h"
#include "quant/correct/correct.h"
#include "quant/model/overlay.h"
#include "quant/reconstruct/reconstruct.h"
#include "quant/train/qat.h"

typedef struct refine_method {
    const char *name;
    bool (*wanted)(const sb_quant_model *qm);
    /* Changes overlays and scales; *layers is of how many. */
    sb_status (*run)(sb_quant_model *qm, size_t *layers);
} refine_method;

static bool refine_wants_biases(const sb_quant_model *qm)
{
    const sb_quant_schedule schedule = sb_quant_config_schedule(qm->config);

    /* Biases of a quantized file are its own; layers that are fitted have
     * theirs from that. */
    return schedule.bias_correction && qm->known.n == 0 &&
           !(schedule.layerwise && sb_rounds_weights(qm));
}

/* Not where what observers saw is not all in the batches: then it could not be
 * observed anew. */
static bool refine_wants_channels(const sb_quant_model *qm)
{
    return sb_quant_config_schedule(qm->config).equalization &&
           qm->known.n == 0 && !qm->state.loaded &&
           !qm->state.calibration.asym_weights &&
           !qm->state.calibration.asym_activations;
}

static bool refine_wants_norms(const sb_quant_model *qm)
{
    return sb_quant_config_schedule(qm->config).bn_tuning && qm->known.n == 0;
}

static const refine_method methods[] = {
    {"batch norm statistics", refine_wants_norms, sb_tune_norms},
    {"equalization", refine_wants_channels, sb_equalize},
    {"rounding of weights", sb_rounds_weights, sb_round_weights},
    {"bias correction", refine_wants_biases, sb_correct_biases},
};

bool sb_refine_wanted(const sb_quant_model *qm)
{
    for (size_t i = 0; i < SB_COUNT(methods); i++)
        if (methods[i].wanted(qm))
            return true;
    return false;
}

/* ---- the walk ----------------------------------------------------------- */

static sb_status refine_note(sb_quant_model *qm, const sb_quant_step *step)
{
    sb_quant_state *s = &qm->state;

    SB_TRY(sb_grow(qm->ctx, &s->steps, &s->cap_steps, s->n_steps + 1,
                   sizeof *s->steps));
    s->steps[s->n_steps++] = *step;
    return SB_OK;
}

static sb_status refine_run(sb_quant_model *qm, const sb_reference *reference,
                            const refine_method *method, double *error)
{
    sb_quant_step step = {.name = method->name, .before = *error};
    sb_snapshot before;
    sb_status status = sb_snapshot_take(qm, &before);

    if (status == SB_OK)
        status = method->run(qm, &step.layers);
    if (status == SB_OK && step.layers > 0)
        status = sb_reference_error(reference, &step.after);
    step.kept = status == SB_OK && step.layers > 0 &&
                (qm->asked || step.after < step.before);
    sb_snapshot_settle(qm, &before, step.kept);
    if (status == SB_OK && step.layers > 0)
        status = refine_note(qm, &step);
    if (step.kept)
        *error = step.after;
    return status;
}

static sb_status refine_all(sb_quant_model *qm, sb_reference *reference)
{
    double error = 0;

    SB_TRY(sb_reference_open(qm, reference));
    SB_TRY(sb_reference_error(reference, &error));
    for (size_t i = 0; i < SB_COUNT(methods); i++)
        if (methods[i].wanted(qm))
            SB_TRY(refine_run(qm, reference, &methods[i], &error));
    if (qm->target->bias == SB_BIAS_INT32)
        sb_calibrate_fit_biases(qm);
    return SB_OK;
}

sb_status sb_refine(sb_quant_model *qm)
{
    sb_reference reference = {0};

    if (qm->asked && sb_rounds_weights(qm) &&
        sb_batch_store_count(qm->state.batches) == 0)
        return sb_fail(qm->ctx, SB_BAD_DATA,
                       "weights are to be rounded by what their layers see: "
                       "feed calibration samples");
    if (!sb_refine_wanted(qm) || sb_batch_store_count(qm->state.batches) == 0)
        return SB_OK;
    sb_status status = refine_all(qm, &reference);
    sb_reference_close(&reference);
    return status;
}
