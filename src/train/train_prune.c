/* Pruning in a training run.
 *
 * Channels that go at once are cut, and what reads them is fitted anew, before
 * training begins: the smaller network is faster to train.  What goes little by
 * little, and single weights, is held at zero by masks of the learner. */
#include <math.h>

#include "api/prune/prune_state.h"
#include "train/trainer.h"

enum { LOOK_SAMPLES = 512 }; /* that criteria, and the re-fit, are given */

/* Some training samples through the network as it is now. */
static sb_status look_at_samples(sb_trainer *t)
{
    size_t seen = 0;

    sb_data_start_epoch(t->train, t->at.epoch);
    while (seen < LOOK_SAMPLES) {
        const sb_batch *batch = NULL;

        SB_TRY(sb_data_next(t->train, &batch));
        if (batch->count == 0)
            break;
        SB_TRY(sb_prune_forward_batch(t->prune, batch));
        seen += batch->count;
    }
    return SB_OK;
}

/* Where the last step of training begins, in epochs. */
static double last_step(const sb_trainer *t)
{
    return (double)t->keys.epochs - 1 / (double)t->steps;
}

/* Without END pruning ends at half of the epochs: but not behind the last step,
 * if there is one only. */
static double share_now(const sb_trainer *t, double steps)
{
    return sb_prune_share(t->prune, steps / (double)t->steps,
                          fmin((double)t->keys.epochs, 2 * last_step(t)));
}

static double step_number(const sb_trainer *t)
{
    return (double)(t->at.epoch * t->steps + t->at.step);
}

/* Is everything gone before the last step of training? */
static sb_status check_end(const sb_trainer *t)
{
    const sb_prune_config *cfg = t->prune->pruner.cfg;
    const sb_prune_file *f = &cfg->file;
    double last = (double)t->keys.epochs * (double)t->steps - 1;
    bool begin = f->begin > f->end; /* as it is if there is no END */
    const char *key = begin ? "BEGIN" : "END";

    if (!sb_prune_is_gradual(t->prune) || share_now(t, last) >= 1)
        return SB_OK;
    return sb_yaml_fail(
        cfg->doc, sb_yaml_get(sb_yaml_get(cfg->doc->root, "SPARSER"), key),
        "SPARSER.%s: found %g, want at most %g, where the last step of "
        "training begins (EPOCHS is %lld), so that all is pruned before",
        key, begin ? f->begin : f->end, last_step(t),
        (long long)t->keys.epochs);
}

/* What pruning does not go with. */
static sb_status check_prune(const sb_trainer *t)
{
    if (t->qm)
        return sb_fail(t->ctx, SB_BAD_ARG,
                       "a quantized model is not pruned while it is trained: "
                       "prune the float model, then train it with quantizers");
    if (sb_ctx_ranks(t->ctx) > 1 && sb_prune_is_gradual(t->prune) &&
        sb_prune_wants_data(t->prune) == SB_PRUNE_DATA_NEEDED)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "criteria that look at samples while the network is "
                       "trained want one process, found %d",
                       sb_ctx_ranks(t->ctx));
    return check_end(t);
}

static sb_status make_source(sb_trainer *t)
{
    int more = 1;

    if (sb_prune_is_gradual(t->prune))
        return sb_prune_source(t->prune, &t->source);
    while (more) {
        if (sb_prune_wants_data(t->prune) != SB_PRUNE_DATA_UNUSED)
            SB_TRY(look_at_samples(t));
        SB_TRY(sb_prune_apply(t->prune, &more));
    }
    SB_TRY(sb_prune_model(t->prune, &t->source));
    sb_prune_free(t->prune);
    t->prune = NULL;
    return SB_OK;
}

sb_status sb_train_prune_open(sb_trainer *t)
{
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;

    opt.config = t->opt.prune;
    opt.config_text = t->opt.prune_text;
    opt.seed = t->opt.seed;
    opt.before = t->model;
    SB_TRY(sb_prune_create(t->model, &opt, &t->prune));
    SB_TRY(check_prune(t));
    SB_TRY(sb_prune_config_describe(t->prune->pruner.cfg, &t->pruning));
    SB_TRY(sb_data_set_model(t->train, t->model));
    SB_TRY(make_source(t));
    t->model = t->source;
    return SB_OK;
}

sb_status sb_train_prune_attach(sb_trainer *t)
{
    return sb_prune_attach(t->prune, t->learner);
}

void sb_train_prune_resume(sb_trainer *t)
{
    double at = step_number(t);

    t->share = at > 0 ? share_now(t, at - 1) : 0;
}

sb_status sb_train_prune_step(sb_trainer *t, bool *moved)
{
    double share = share_now(t, step_number(t));
    int more = 1;

    if (share <= t->share)
        return SB_OK;
    SB_TRY(sb_prune_follow(t->prune, t->learner));
    while (more) {
        if (sb_prune_wants_data(t->prune) == SB_PRUNE_DATA_NEEDED) {
            SB_TRY(look_at_samples(t));
            *moved = true;
        }
        SB_TRY(sb_prune_mask(t->prune, t->learner, share, &more));
    }
    t->share = share;
    return SB_OK;
}

sb_status sb_train_prune_finish(sb_trainer *t, sb_model **model)
{
    sb_model *cut = NULL;
    sb_status status = sb_prune_finish(t->prune, t->learner, *model, &cut);

    sb_model_free(*model);
    *model = cut;
    return status;
}
