/* Training with quantizers: a calibrated model becomes a learner, what it
 * learned goes back, and what the model then exports is compared with it. */
#include <math.h>

#include "api/model.h"
#include "base/options.h"
#include "data/data.h"
#include "eval/eval.h"
#include "learn/learner.h"
#include "quant/train/qat.h"
#include "train/trainer.h"

/* ---- learners of quantized models --------------------------------------- */

sb_status sb_quant_model_learner(sb_quant_model *qm,
                                 const sb_learn_options *options,
                                 sb_train_bn bn, sb_learner **out)
{
    const sb_learn_options defaults = SB_LEARN_OPTIONS_INIT;
    sb_learn_options opt;
    sb_qat *qat = NULL;

    SB_TRY(sb_options_read(qm->ctx, "sb_learn_options", options, &defaults,
                           sizeof opt, &opt));
    if (!qm->train)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "the model was not created to be trained");
    if ((unsigned)bn > SB_TRAIN_BN_FOLDED)
        return sb_fail(qm->ctx, SB_BAD_ARG, "sb_train_bn %d does not exist",
                       (int)bn);
    SB_TRY(sb_qat_create(qm, (sb_qat_bn)bn, &qat));
    sb_status status =
        sb_learner_create_graph(qm->ctx, qat->graph, &opt, &qat->roles, out);
    if (status != SB_OK) {
        sb_qat_free(qat);
        return status;
    }
    sb_qat_free(qm->qat);
    qm->qat = qat;
    sb_batch_store_free(qm->state.batches); /* they served to start */
    qm->state.batches = NULL;
    return SB_OK;
}

static sb_status quant_need(const sb_quant_model *qm)
{
    if (qm->qat)
        return SB_OK;
    return sb_fail(qm->ctx, SB_BAD_ARG, "the model has no learner yet");
}

sb_status sb_quant_model_take(sb_quant_model *qm, const sb_learner *learner,
                              sb_learn_values values)
{
    sb_graph *learned = NULL;

    SB_TRY(quant_need(qm));
    SB_TRY(sb_learner_overlay(learner, values, &learned));
    sb_status status = sb_qat_settle(qm->qat, learned);
    sb_graph_free(learned);
    return status;
}

/* ---- calibration -------------------------------------------------------- */

typedef sb_status (*batch_fn)(void *user, const sb_tensor *const *inputs,
                              size_t n);

/* Hands over samples of an epoch until there are `most`; those that do not fill
 * a batch are left out, as in training. */
static sb_status quant_epoch(sb_trainer *t, uint64_t epoch, size_t most,
                             batch_fn fn, void *user, const sb_tensor **inputs,
                             size_t *seen)
{
    size_t n = sb_model_input_count(t->model), full = 0;
    const sb_batch *batch = NULL;

    sb_data_start_epoch(t->train, epoch);
    while (*seen < most) {
        SB_TRY(sb_data_next(t->train, &batch));
        if (batch->count == 0 || batch->count < full)
            break;
        full = batch->count;
        SB_TRY(sb_model_batch_inputs(t->model, batch, inputs, n));
        SB_TRY(fn(user, inputs, n));
        *seen += batch->count;
    }
    return SB_OK;
}

/* The same of the first epoch, and of others if their samples are others. */
static sb_status quant_each_batch(sb_trainer *t, size_t most, batch_fn fn,
                                  void *user)
{
    size_t n = sb_model_input_count(t->model), seen = 0, before;
    const sb_tensor **inputs = sb_alloc(t->ctx, n + 1, sizeof *inputs);
    sb_status status = inputs ? SB_OK : SB_NO_MEMORY;
    uint64_t epoch = 0;

    do {
        before = seen;
        if (status == SB_OK)
            status = quant_epoch(t, epoch++, most, fn, user, inputs, &seen);
    } while (status == SB_OK && seen > before && seen < most &&
             sb_data_varies(t->train));
    sb_free(t->ctx, inputs);
    return status;
}

static sb_status quant_calibrate_batch(void *user,
                                       const sb_tensor *const *inputs, size_t n)
{
    return sb_quant_model_forward(user, inputs, n, NULL, 0);
}

static bool quant_has_scales(const sb_quant_model *qm)
{
    const sb_quantizer_info *q;

    for (size_t i = 0; (q = sb_quant_model_quantizer(qm, i)) != NULL; i++)
        if (q->n > 0)
            return true;
    return false;
}

sb_status sb_train_quant_open(sb_trainer *t, const sb_learn_options *learn)
{
    int64_t fixed = t->qm->fixed_batch;

    if (fixed > 0 && fixed != (int64_t)sb_data_batch_size(t->train))
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "the model takes %lld samples at a time, no more and no "
                       "less, and batches have %zu",
                       (long long)fixed, sb_data_batch_size(t->train));
    if (!quant_has_scales(t->qm)) {
        SB_TRY(sb_quant_model_prepare_calibration(t->qm, NULL));
        SB_TRY(quant_each_batch(t, (size_t)t->keys.calibrate,
                                quant_calibrate_batch, t->qm));
        SB_TRY(sb_quant_model_calc_qparams(t->qm));
    }
    return sb_quant_model_learner(t->qm, learn, (sb_train_bn)t->keys.bn,
                                  &t->learner);
}

/* ---- the end ------------------------------------------------------------ */

static sb_status quant_take_statistics(void *user,
                                       const sb_tensor *const *inputs, size_t n)
{
    (void)n;
    return sb_qat_statistics_take(user, inputs, 1);
}

/* Norms that followed the batches while weights changed get statistics of the
 * weights as they are now; frozen ones were learned with. */
static sb_status quant_restate(sb_trainer *t, sb_model *learned)
{
    const sb_train_keys *keys = &t->keys;
    size_t samples = (size_t)keys->bn_batches * sb_data_batch_size(t->train);
    sb_qat_statistics *s = NULL;

    if (t->qm->qat->n_norms == 0 || samples == 0 ||
        (keys->freeze_norms >= 0 && keys->freeze_norms < keys->epochs))
        return SB_OK;
    SB_TRY(sb_qat_statistics_open(t->qm->qat, learned->graph, &s));
    sb_status status = quant_each_batch(t, samples, quant_take_statistics, s);
    if (status == SB_OK)
        status = sb_qat_statistics_set(s);
    sb_qat_statistics_free(s);
    return status;
}

typedef struct quant_sums {
    double noise, signal;
    size_t same;
} quant_sums;

static void quant_compare(const sb_tensor *a, const sb_tensor *b,
                          sb_train_check *check, quant_sums *sums)
{
    int64_t n = sb_tensor_elements(a);
    int64_t rows = sb_tensor_rank(a) > 0 ? sb_tensor_dims(a)[0] : 1;
    int64_t row = rows > 0 ? n / rows : 0;

    for (int64_t i = 0; i < n; i++) {
        double x = sb_eval_element(a, i), d = x - sb_eval_element(b, i);

        sums->noise += d * d;
        sums->signal += x * x;
    }
    for (int64_t i = 0; i < rows && row > 0; i++)
        sums->same += sb_eval_largest(a, i * row, row, 1) ==
                      sb_eval_largest(b, i * row, row, 1);
    check->samples += (size_t)rows;
}

/* Runs both over the same samples. */
static sb_status quant_compare_all(sb_trainer *t, sb_session *learned,
                                   sb_session *exported, sb_train_check *check)
{
    enum { SAMPLES = 1000 };
    sb_data *data = t->valid ? t->valid : t->train;
    const sb_batch *batch = NULL;
    quant_sums sums = {0};

    sb_data_rewind(data);
    while (check->samples < SAMPLES) {
        const sb_tensor *a = NULL, *b = NULL;

        SB_TRY(sb_data_next(data, &batch));
        if (batch->count == 0)
            break;
        SB_TRY(sb_session_run_batch(learned, batch, &a, 1));
        SB_TRY(sb_session_run_batch(exported, batch, &b, 1));
        if (!sb_dtype_is_float(a->dtype) || a->dtype != b->dtype ||
            sb_tensor_elements(a) != sb_tensor_elements(b))
            return sb_fail(t->ctx, SB_BAD_MODEL,
                           "the first output of the exported model has other "
                           "elements than that of the trained one");
        quant_compare(a, b, check, &sums);
    }
    check->agreement =
        check->samples ? (double)sums.same / (double)check->samples : 0;
    check->error = sums.signal > 0 ? sqrt(sums.noise / sums.signal) : 0;
    return SB_OK;
}

/* Does the file compute what was trained? */
static sb_status quant_check(sb_trainer *t, const sb_model *learned,
                             sb_train_check *check)
{
    sb_model *exported = NULL;
    sb_session *a = NULL, *b = NULL;

    *check = (sb_train_check)SB_TRAIN_CHECK_INIT;
    sb_status status = sb_quant_model_export_model(t->qm, NULL, &exported);
    if (status == SB_OK)
        status = sb_session_create(learned, NULL, &a);
    if (status == SB_OK)
        status = sb_session_create(exported, NULL, &b);
    if (status == SB_OK)
        status = quant_compare_all(t, a, b, check);
    sb_session_free(a);
    sb_session_free(b);
    sb_model_free(exported);
    return status;
}

static sb_status quant_finish(sb_trainer *t, sb_train_check *check)
{
    sb_model *learned = NULL;

    SB_TRY(sb_trainer_model(t, &learned));
    sb_status status = quant_restate(t, learned);
    if (status == SB_OK)
        status = sb_qat_settle(t->qm->qat, learned->graph);
    if (status == SB_OK)
        status = quant_check(t, learned, check);
    sb_model_free(learned);
    return status;
}

sb_status sb_quant_model_train(sb_quant_model *qm, sb_data *train,
                               sb_data *valid, const sb_train_options *options,
                               sb_train_check *check)
{
    const sb_train_options defaults = SB_TRAIN_OPTIONS_INIT;
    sb_trainer t = {.ctx = qm->ctx, .train = train, .valid = valid, .qm = qm};
    const sb_train_check none = SB_TRAIN_CHECK_INIT;
    sb_train_check found;
    sb_graph *g = NULL;
    sb_model *model = NULL;

    SB_TRY(sb_options_read(qm->ctx, "sb_train_options", options, &defaults,
                           sizeof t.opt, &t.opt));
    SB_TRY(sb_options_read(qm->ctx, "sb_train_check", check, &none,
                           sizeof found, &found));
    SB_TRY(sb_graph_clone(qm->graph, &g));
    SB_TRY(sb_model_wrap(g, &model));
    sb_status status = sb_trainer_run(&t, model);
    if (status == SB_OK) {
        status = quant_finish(&t, &found);
        if (status == SB_INTERRUPTED && t.opt.folder)
            status = sb_fail(qm->ctx, SB_INTERRUPTED,
                             "interrupted after the last epoch; %s holds all "
                             "of it (--resume)",
                             t.opt.folder);
    }
    if (status == SB_OK && check)
        sb_options_write(&found, sizeof found, check);
    sb_trainer_close(&t);
    sb_model_free(model);
    return status;
}

/* ---- checkpoints -------------------------------------------------------- */

void sb_train_quant_describe(const sb_quant_model *qm, sb_str *out)
{
    const sb_quantizer_info *q;

    sb_str_add(out, ", \"quantizers\": [");
    sb_str_add_json(out, sb_quant_model_target(qm));
    for (size_t i = 0; (q = sb_quant_model_quantizer(qm, i)) != NULL; i++) {
        sb_str line;

        sb_str_init(&line, qm->ctx);
        sb_str_addf(&line, "%s: %s%s, %s, %d bit (%d..%d), %s", q->name,
                    q->fused ? "off, " : "", q->quantizer, q->scheme, q->bits,
                    q->qmin, q->qmax, q->observer);
        sb_str_add(out, ", ");
        sb_str_add_json(out, sb_str_text(&line));
        sb_str_free(&line);
    }
    sb_str_add(out, "]");
}
