/* The methods that run after scales are known, in their order.
 *
 * Each is measured on some calibration samples.  Without a configuration of the
 * user no method has seen these, and one that does not bring the outputs nearer
 * to those of the float network is taken back; learned blocks are taken back
 * with a configuration, too.
 *
 * How much a method must help depends on what it can break.  Rounding and bias
 * correction lower the error of every layer, so they only must not raise that
 * of the outputs.  Methods that clip values, or that make all channels fill
 * their ranges, may lose values of other samples: these must clearly help.
 *
 * A method that stays in any case is not measured if the network is too large
 * to be in memory as a whole, which measuring takes. */
#include <math.h>

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
    sb_status (*settle)(sb_quant_model *qm); /* when it helped; or NULL */
    /* It must clearly help: by so many times the uncertainty. */
    double sure;
    double left; /* and leave no more than this of the error; 0: any less */
} refine_method;

typedef struct refiner {
    sb_quant_model *qm;
    bool measures;
    sb_reference reference;
    double *now, *tried; /* errors of the samples that judge */
    double error;        /* of all of them now */
    size_t given_up;     /* after how many of them a method was; or 0 */
} refiner;

static bool refine_wants_biases(const sb_quant_model *qm)
{
    const sb_quant_schedule schedule = sb_quant_config_schedule(qm->config);

    /* Biases of a quantized file are its own; layers that a configuration has
     * fitted or learned have theirs from that. */
    return schedule.bias_correction && qm->known.n == 0 &&
           !(schedule.blockwise.scale_rate > 0 && sb_learns_blocks(qm)) &&
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

/* Once more without offsets, if it was with them that it was taken back. */
static bool refine_wants_factors(const sb_quant_model *qm)
{
    return qm->state.absorbed && !qm->equalized && refine_wants_channels(qm);
}

static bool refine_wants_norms(const sb_quant_model *qm)
{
    return sb_quant_config_schedule(qm->config).bn_tuning && qm->known.n == 0;
}

/* It chooses nothing by the samples, so others gain as they do; but layers in
 * float take room, so half of the error must be theirs. */
static const refine_method float_start = {.name = "first layers in float",
                                          .wanted = sb_float_start_wanted,
                                          .run = sb_float_start,
                                          .left = 0.5};

static const refine_method channel_methods[] = {
    {.name = "batch norm statistics",
     .wanted = refine_wants_norms,
     .run = sb_tune_norms,
     .sure = 1},
    {.name = "equalization",
     .wanted = refine_wants_channels,
     .run = sb_equalize,
     .settle = sb_equalize_settle,
     .sure = 1},
    {.name = "equalization without offsets",
     .wanted = refine_wants_factors,
     .run = sb_equalize,
     .settle = sb_equalize_settle,
     .sure = 1},
};

static const refine_method weight_methods[] = {
    {.name = "rounding of weights",
     .wanted = sb_rounds_weights,
     .run = sb_round_weights},
    {.name = "learning of blocks",
     .wanted = sb_learns_blocks,
     .run = sb_learn_blocks},
};

static const refine_method correction = {.name = "bias correction",
                                         .wanted = refine_wants_biases,
                                         .run = sb_correct_biases};

/* In place of rounding.  It has more to choose from the samples, and may choose
 * what suits no others. */
static const refine_method fitting = {.name = "weights fitted layer by layer",
                                      .wanted = sb_rounds_weights,
                                      .run = sb_round_weights,
                                      .sure = 1};

static const refine_method clipping = {.name = "clipping of ranges",
                                       .wanted = sb_ranges_wanted,
                                       .run = sb_clip_ranges,
                                       .sure = 1};

bool sb_refine_wanted(const sb_quant_model *qm)
{
    for (size_t i = 0; i < SB_COUNT(channel_methods); i++)
        if (channel_methods[i].wanted(qm))
            return true;
    for (size_t i = 0; i < SB_COUNT(weight_methods); i++)
        if (weight_methods[i].wanted(qm))
            return true;
    return correction.wanted(qm) || clipping.wanted(qm);
}

bool sb_refine_measures(const sb_quant_model *qm)
{
    size_t limit = sb_memory_share(qm->ctx, 16, SIZE_MAX), bytes = 0;

    if (!qm->asked)
        return true;
    /* A journal is for language models, whose outputs take more time than all
     * of their layers, unless weights are learned, which takes yet more. */
    if (qm->state.calibration.journal && !sb_learns_weights(qm))
        return false;
    for (size_t i = 0; i < qm->graph->n_values; i++)
        if (qm->graph->values[i].is_constant)
            bytes += sb_tensor_bytes(&qm->graph->values[i].constant);
    return bytes <= limit;
}

/* Batches that judge learned blocks are kept from methods only if there will be
 * a judgment, and others to learn from. */
static void refine_set_apart(sb_quant_model *qm, bool measures)
{
    bool learns = qm->asked && sb_learns_blocks(qm);
    bool several = sb_batch_store_count(qm->state.batches) > 1;

    qm->state.apart = learns && measures && several;
    if (learns && !measures)
        sb_warn(qm->ctx, "BLOCKWISE: learned blocks are not judged: outputs "
                         "of this model are not compared");
    else if (learns && !several)
        sb_warn(qm->ctx, "BLOCKWISE: there is one batch: blocks are judged by "
                         "the samples that they learn from");
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

/* The network as it is now, on all samples that judge. */
static sb_status refine_look(refiner *r)
{
    size_t seen = 0;

    r->error = (double)NAN;
    if (!r->measures)
        return SB_OK;
    SB_TRY(sb_reference_errors(&r->reference, NULL, 1, r->now, &seen));
    r->error = sb_errors_mean(r->now, seen);
    return SB_OK;
}

/* Judges what a method has done. */
static sb_status refine_measure(refiner *r, const refine_method *method,
                                sb_quant_step *step)
{
    size_t seen = r->given_up;

    if (step->layers == 0)
        return SB_OK;
    step->kept = true;
    step->after = (double)NAN;
    if (!r->measures)
        return SB_OK;
    if (seen == 0)
        SB_TRY(sb_reference_errors(&r->reference, r->qm->asked ? NULL : r->now,
                                   method->left > 0 ? method->left : 1,
                                   r->tried, &seen));
    step->after = sb_errors_mean(r->tried, seen);
    double same = sb_errors_mean(r->now, seen);
    if (seen < r->reference.n_samples && same > 0)
        step->after *= step->before / same; /* the others rose as much */
    step->kept =
        (r->qm->asked && method->run != sb_learn_blocks) ||
        (sb_errors_fell(r->now, r->tried, seen, method->sure) &&
         (!(method->left > 0) || step->after < method->left * step->before));
    return SB_OK;
}

/* Judged once more as it is then. */
static sb_status refine_settle(refiner *r, const refine_method *method,
                               sb_quant_step *step)
{
    size_t seen = 0;

    if (!method->settle || !step->kept)
        return SB_OK;
    SB_TRY(method->settle(r->qm));
    sb_calibrate_fit_biases(r->qm);
    if (!r->measures)
        return SB_OK;
    SB_TRY(sb_reference_errors(&r->reference, NULL, 1, r->tried, &seen));
    step->after = sb_errors_mean(r->tried, seen);
    step->kept = r->qm->asked || sb_errors_fell(r->now, r->tried, seen, 0);
    return SB_OK;
}

/* *kept: does what it has done stay?  *error: of the outputs with it. */
static sb_status refine_try(refiner *r, const refine_method *method, bool *kept,
                            double *error)
{
    sb_quant_step step = {.name = method->name};
    sb_snapshot before;
    sb_status status = sb_snapshot_take(r->qm, &before);

    step.before = r->error;
    if (status == SB_OK)
        status = method->run(r->qm, &step.layers);
    /* It is judged with the biases that the file will have. */
    if (status == SB_OK)
        sb_calibrate_fit_biases(r->qm);
    if (status == SB_OK)
        status = refine_measure(r, method, &step);
    if (status == SB_OK)
        status = refine_settle(r, method, &step);
    bool keep = status == SB_OK && step.kept;

    *kept = keep;
    *error = step.after;
    sb_snapshot_settle(r->qm, &before, keep);
    if (keep) {
        double *now = r->tried;

        r->tried = r->now;
        r->now = now;
        r->error = step.after;
    }
    if (status == SB_OK && step.layers > 0)
        status = refine_note(r->qm, &step);
    return status;
}

static sb_status refine_run(refiner *r, const refine_method *method, bool *kept)
{
    double error;

    return refine_try(r, method, kept, &error);
}

/* Clips the ranges of list[first, end), and no others, if that helps. */
static sb_status refine_clip(refiner *r, const sb_range_choice *list,
                             size_t first, size_t end, bool *kept,
                             double *error)
{
    sb_quant_state *s = &r->qm->state;

    for (uint32_t i = 0; i < r->qm->place.n_points; i++)
        s->points[i].clip = 1;
    for (size_t i = first; i < end; i++)
        s->points[list[i].point].clip = list[i].share;
    return refine_try(r, &clipping, kept, error);
}

/* Leaves those that are to be narrower. */
static size_t refine_drop_whole(sb_range_choice *list, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        if (list[i].share < 1)
            list[kept++] = list[i];
    return kept;
}

/* Ranges of all values; if that does not help and they are many, of the first
 * half of them; and of the second, if all were nearer than the first half
 * alone: it is what they differ in. */
static sb_status refine_clip_some(refiner *r, sb_range_choice *list)
{
    const size_t many = 8;
    double all = 0, some = 0;
    size_t n = 0;
    bool kept = false;

    SB_TRY(sb_ranges_list(r->qm, list, &n));
    if (n == 0)
        return SB_OK;
    SB_TRY(sb_ranges_choose(r->qm, list, n));
    n = refine_drop_whole(list, n);
    SB_TRY(refine_clip(r, list, 0, n, &kept, &all));
    if (kept || n < many)
        return SB_OK;
    SB_TRY(refine_clip(r, list, 0, n / 2, &kept, &some));
    return all >= some ? SB_OK : refine_clip(r, list, n / 2, n, &kept, &some);
}

static sb_status refine_ranges(refiner *r)
{
    sb_quant_model *qm = r->qm;

    if (!clipping.wanted(qm))
        return SB_OK;
    sb_range_choice *list =
        sb_alloc(qm->ctx, qm->place.n_points + 1, sizeof *list);
    sb_status status = list ? refine_clip_some(r, list) : SB_NO_MEMORY;
    sb_free(qm->ctx, list);
    return status;
}

static sb_status refine_list(refiner *r, const refine_method *list, size_t n)
{
    bool kept = false;

    for (size_t i = 0; i < n; i++)
        if (list[i].wanted(r->qm))
            SB_TRY(refine_run(r, &list[i], &kept));
    return SB_OK;
}

/* Outputs that are far off say that layers read what has little to do with what
 * the float network has there.  Rounding takes that as it is; only weights that
 * are fitted to the float network make up for it; `always`: the preset has them
 * fitted anyway.  A configuration of the user has rounding do it. */
static bool refine_fits(const refiner *r, bool always)
{
    const double far = 0.05;

    return !r->qm->asked && r->measures && fitting.wanted(r->qm) &&
           (always || r->error > far);
}

/* Do the layers that are fitted so far clearly help already?  Where
 * fitting helps, the first ones do most of it. */
static sb_status refine_goes_on(void *user, bool *out)
{
    refiner *r = user;
    size_t seen = 0;

    sb_calibrate_fit_biases(r->qm);
    SB_TRY(sb_reference_errors(&r->reference, r->now, 1, r->tried, &seen));
    *out = sb_errors_fell(r->now, r->tried, seen, fitting.sure);
    r->given_up = *out ? 0 : seen;
    return SB_OK;
}

/* Fitted, or else rounded; then biases corrected. */
static sb_status refine_weights(refiner *r)
{
    sb_quant_config *config = r->qm->config;
    const bool always = sb_quant_config_schedule(config).layerwise;
    const sb_round_watch watch = {.goes_on = refine_goes_on, .user = r};
    refine_method fit = fitting;
    bool kept = false;
    sb_status status = SB_OK;

    fit.sure = always ? 0 : fitting.sure;
    if (refine_fits(r, always)) {
        sb_quant_config_set_layerwise(config, true);
        if (!always)
            r->qm->state.watch = &watch;
        status = refine_run(r, &fit, &kept);
        r->qm->state.watch = NULL;
        r->given_up = 0;
        sb_quant_config_set_layerwise(config, false);
    }
    if (!kept && status == SB_OK)
        status = refine_list(r, weight_methods, SB_COUNT(weight_methods));
    if (status == SB_OK) /* of layers that were not fitted */
        status = refine_list(r, &correction, 1);
    sb_quant_config_set_layerwise(config, always);
    return status;
}

/* Where steps are taken back, by whom is that decided? */
static void refine_tell_few(const refiner *r)
{
    const sb_quant_model *qm = r->qm;

    if (qm->asked || !r->measures)
        return;
    if (sb_batch_store_count(qm->state.batches) == 1)
        sb_warn(qm->ctx, "there is one batch of samples: what each step gains "
                         "is judged by those that it ran over; give more "
                         "samples, or smaller batches");
    else if (r->reference.n_samples < 3)
        sb_warn(qm->ctx,
                "what each step gains is judged by %zu sample%s, "
                "which tells little: give 32 samples or more",
                r->reference.n_samples, r->reference.n_samples == 1 ? "" : "s");
}

static sb_status refine_all(refiner *r)
{
    sb_quant_model *qm = r->qm;

    r->measures = sb_refine_measures(qm);
    qm->state.absorbed = false;
    refine_set_apart(qm, r->measures);
    if (r->measures)
        SB_TRY(sb_reference_open(qm, &r->reference));
    refine_tell_few(r);
    r->now = sb_alloc(qm->ctx, r->reference.n_samples + 1, sizeof *r->now);
    r->tried = sb_alloc(qm->ctx, r->reference.n_samples + 1, sizeof *r->tried);
    if (!r->now || !r->tried)
        return SB_NO_MEMORY;
    SB_TRY(refine_look(r));
    if (r->measures) {
        SB_TRY(refine_list(r, &float_start, 1));
        SB_TRY(refine_ranges(r));
    }
    SB_TRY(refine_list(r, channel_methods, SB_COUNT(channel_methods)));
    return refine_weights(r);
}

/* A configuration that asks for what cannot be done is told so. */
static void refine_tell_channels(const sb_quant_model *qm)
{
    const sb_quant_schedule schedule = sb_quant_config_schedule(qm->config);

    if (!qm->asked || qm->known.n > 0)
        return;
    if (schedule.equalization_idle)
        sb_warn(qm->ctx, "EQUALIZATION: channels stay as they are: activations "
                         "have no calibrated scales that they share");
    if (schedule.equalization && !refine_wants_channels(qm))
        sb_warn(qm->ctx,
                "EQUALIZATION: channels stay as they are: they are observed "
                "anew on all samples, which %s does not allow",
                qm->state.loaded ? "a loaded calibration" : "--asym");
}

/* Means that batch norms tell are all there is. */
static sb_status refine_without_samples(sb_quant_model *qm)
{
    sb_quant_step step = {.name = "bias correction by batch norms",
                          .before = (double)NAN,
                          .after = (double)NAN,
                          .kept = true};

    if (!qm->norms || !refine_wants_biases(qm))
        return SB_OK;
    SB_TRY(sb_correct_biases_by_norms(qm, &step.layers));
    sb_calibrate_fit_biases(qm);
    qm->state.n_steps = 0; /* scales may be computed anew without samples */
    if (step.layers > 0)
        return refine_note(qm, &step);
    sb_warn(qm->ctx, "BIAS_CORRECTION: there are neither samples nor batch "
                     "norms in front of layers: biases stay as they are");
    return SB_OK;
}

sb_status sb_refine_start(sb_quant_model *qm)
{
    size_t layers = 0;

    if (!sb_rounds_weights(qm))
        return SB_OK;
    SB_TRY(sb_round_weights(qm, &layers));
    sb_calibrate_fit_biases(qm);
    return SB_OK;
}

sb_status sb_refine(sb_quant_model *qm)
{
    refiner r = {.qm = qm};
    sb_workspace rooms[2] = {0};

    if (qm->asked && (sb_rounds_weights(qm) || sb_learns_blocks(qm)) &&
        sb_batch_store_count(qm->state.batches) == 0)
        return sb_fail(qm->ctx, SB_BAD_DATA,
                       "weights are to be rounded by what their layers see: "
                       "feed calibration samples");
    refine_tell_channels(qm);
    if (sb_batch_store_count(qm->state.batches) == 0)
        return refine_without_samples(qm);
    if (!sb_refine_wanted(qm))
        return SB_OK;
    if (!qm->state.calibration.memory_limit &&
        sb_memory_share(qm->ctx, 1, SIZE_MAX) == SIZE_MAX)
        qm->state.rooms = rooms; /* takes more than each by itself */
    sb_status status = refine_all(&r);
    qm->state.rooms = NULL;
    for (size_t i = 0; i < SB_COUNT(rooms); i++)
        sb_workspace_free(qm->ctx, &rooms[i]);
    sb_reference_close(&r.reference);
    sb_free(qm->ctx, r.now);
    sb_free(qm->ctx, r.tried);
    return status;
}
