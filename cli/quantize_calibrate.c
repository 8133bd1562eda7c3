/* How `sparsebit quantize` calibrates: samples of a data file, of every rank,
 * of saved calibrations, and scales from all of them. */
#include <string.h>

#include "feed_data.h"
#include "quantize_job.h"

/* Each rank runs its part of the samples. */
static sb_status share_data(quantize_job *j, int rank, int ranks)
{
    return sb_data_share(j->data, SB_DATA_PART_BATCHES, rank, ranks);
}

/* After that all know what each has seen. */
static sb_status share_calibration(quantize_job *j)
{
    double samples = (double)j->samples;
    sb_status status = sb_comm_sum_f64(j->env->ctx, &samples, 1);

    if (status == SB_OK && j->data)
        status = share_data(j, 0, 1);
    if (status == SB_OK)
        status = sb_quant_model_share_calibration(j->qm);
    j->samples = (size_t)samples;
    return status;
}

/* Runs all batches, then other versions of them. */
static sb_status quantize_feed(quantize_job *j, bool blocks)
{
    cli_feed f = {.env = j->env,
                  .model = j->model,
                  .data = j->data,
                  .run = cli_feed_forward,
                  .user = j->qm,
                  .passes = 1 + (size_t)j->args->augment,
                  .what = blocks ? "reading samples" : "calibrating"};
    sb_status status = cli_feed_all(&f);

    for (unsigned i = 0; i < j->args->augment && status == SB_OK; i++) {
        sb_data_start_epoch(j->data, i);
        status = cli_feed_all(&f);
    }
    if (j->args->augment)
        sb_data_rewind(j->data);
    j->subject = f.in_data ? j->args->data.path : j->args->model;
    j->samples = f.samples;
    return status;
}

static sb_status quantize_save(quantize_job *j)
{
    if (!j->args->save || sb_ctx_rank(j->env->ctx) > 0)
        return SB_OK;
    j->subject = j->args->save;
    return sb_quant_model_save_calibration(j->qm, j->args->save);
}

/* Rounding a language model may take hours, learning weights minutes: what is
 * done stays beside the output until that is written, so that the same command
 * goes on. */
static void quantize_keep(quantize_job *j)
{
    const quantize_args *a = j->args;
    bool onnx = cli_ends_with(a->model, ".onnx");
    bool learns = sb_quant_model_learns(j->qm);

    /* --accuracy-drop rounds several times, each time other layers. */
    if (!a->output || a->drop || (onnx && !quantize_is_language(a) && !learns))
        return;
    size_t n = strlen(a->output);
    for (; n > 1 && a->output[n - 1] == '/';)
        n--;
    j->journal = cli_printf("%.*s.rounding", (int)n, a->output);
}

/* Everything before scales are computed. */
static sb_status quantize_observe(quantize_job *j)
{
    const quantize_args *a = j->args;
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
    sb_ctx *ctx = j->env->ctx;

    opt.asym_weights = quantize_asym_has(j, 'w');
    opt.asym_activations = quantize_asym_has(j, 'a');
    opt.memory_limit = (size_t)a->memory << 20;
    opt.seed = j->env->common.seed;
    quantize_keep(j);
    opt.journal = j->journal;
    sb_status status = sb_quant_model_prepare_calibration(j->qm, &opt);
    if (status == SB_OK && j->data)
        status = share_data(j, sb_ctx_rank(ctx), sb_ctx_ranks(ctx));
    if (status == SB_OK && j->data)
        status = quantize_feed(j, opt.asym_activations);
    bool self = a->calibrate && sb_quant_model_can_calibrate(j->qm);
    if (status == SB_OK && self)
        status = quantize_feed_self(j);
    if (status == SB_OK && (j->data || self))
        status = share_calibration(j);
    for (size_t i = 0; status == SB_OK && i < a->load.n; i++) {
        j->subject = a->load.v[i];
        status = sb_quant_model_load_calibration(j->qm, j->subject);
    }
    /* Block by block, values are observed while scales are computed. */
    if (status == SB_OK && !opt.asym_activations)
        status = quantize_save(j);
    return status;
}

int quantize_blame(quantize_job *j)
{
    const quantize_args *a = j->args;

    return j->subject == a->model
               ? cli_blame(j->env, j->model, a->model, j->data, a->data.path)
               : cli_fail(j->env, j->subject);
}

int quantize_calibrate(quantize_job *j)
{
    const quantize_args *a = j->args;
    bool blocks = quantize_asym_has(j, 'a'),
         needs = sb_quant_model_needs_calibration(j->qm);
    cli_progress progress;

    if (needs && !a->data.path && a->load.n == 0 && !a->calibrate)
        return cli_usage(j->cmd, "quantization needs samples to be "
                                 "calibrated on: give --data, "
                                 "--load-calibration or, for a "
                                 "language model, --calibrate self");
    if ((sb_quant_model_can_calibrate(j->qm) || a->drop) && a->data.path) {
        int rc = cli_data_open(j->env, j->cmd, j->model, &a->data,
                               sb_quant_model_fixed_batch(j->qm), &j->data);
        if (rc != CLI_OK)
            return rc;
    }
    if (a->augment && !j->data)
        return cli_usage(j->cmd, "--augment: there are no samples to change: "
                                 "give --data, and a config that needs it");
    if (a->augment && !sb_data_varies(j->data))
        return cli_usage(j->cmd, "--augment needs a data file of images with "
                                 "AUGMENT");
    j->subject = a->model;
    double start = cli_seconds();
    sb_status status = quantize_observe(j);
    cli_progress_begin(&progress, j->env, "calibrating", 0);
    if (status == SB_OK) {
        j->subject = a->model;
        status = sb_quant_model_calc_qparams(j->qm);
    }
    if (status == SB_OK && blocks)
        status = quantize_save(j);
    (void)cli_progress_end(&progress);
    j->calibrate = cli_seconds() - start;
    return status == SB_OK ? CLI_OK : quantize_blame(j);
}
