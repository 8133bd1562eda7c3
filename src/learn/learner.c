/* The learner: steps over the graphs of learn_graph.h.
 *
 * A step runs the learn graph, which changes nothing but gradients and the next
 * values of statistics.  Only when loss and gradients were seen to be finite
 * the update runs, and is not interrupted: so parameters are always those after
 * a complete step. */
#include "learn/learner.h"

#include <math.h>
#include <string.h>

#include "base/options.h"
#include "base/ranks/comm.h"
#include "learn/pipe.h"
#include "passes/pass.h"

/* ---- options ------------------------------------------------------------ */

static sb_status learner_check_options(sb_ctx *ctx, const sb_learn_options *o)
{
    const double most = 1e30;

    if ((unsigned)o->loss > SB_LEARN_LOSS_BCE ||
        (unsigned)o->optimizer > SB_OPTIMIZER_ADAMW ||
        (unsigned)o->norm > SB_LEARN_NORM_MODEL)
        return sb_fail(ctx, SB_BAD_ARG,
                       "loss %d, optimizer %d or norm %d does not exist",
                       (int)o->loss, (int)o->optimizer, (int)o->norm);
    SB_TRY(sb_options_range(ctx, "label_smoothing", o->label_smoothing, 0, 1));
    SB_TRY(sb_options_range(ctx, "temperature", o->temperature, 1e-6, most));
    SB_TRY(sb_options_range(ctx, "learning_rate", o->learning_rate, 0, most));
    SB_TRY(sb_options_range(ctx, "momentum", o->momentum, 0, 1));
    SB_TRY(sb_options_range(ctx, "beta1", o->beta1, 0, 0.999999));
    SB_TRY(sb_options_range(ctx, "beta2", o->beta2, 0, 0.999999));
    SB_TRY(sb_options_range(ctx, "epsilon", o->epsilon, 0, most));
    SB_TRY(sb_options_range(ctx, "weight_decay", o->weight_decay, 0, most));
    SB_TRY(sb_options_range(ctx, "clip_norm", o->clip_norm, 0, most));
    SB_TRY(sb_options_range(ctx, "feature_weight", o->feature_weight, 0, most));
    if (o->n_features && o->loss == SB_LEARN_LOSS_CUSTOM)
        return sb_fail(ctx, SB_BAD_ARG,
                       "features are part of a loss, and the caller computes "
                       "it");
    SB_TRY(sb_options_range(ctx, "scale_rate", o->scale_rate, 0, most));
    SB_TRY(sb_options_range(ctx, "ema_decay", o->ema_decay, 0, 1));
    SB_TRY(sb_options_range(ctx, "pipeline", (double)o->pipeline, 0, 1e6));
    return sb_options_range(ctx, "accumulate", (double)o->accumulate, 1, 1e6);
}

static sb_status learner_copy_features(sb_learner *l,
                                       const sb_learn_options *opt)
{
    size_t n = opt->n_features;
    const char **names = sb_arena_alloc(&l->arena, n + 1, sizeof *names);

    l->features = sb_arena_alloc(&l->arena, n + 1, sizeof *l->features);
    if (!names || !l->features)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        l->features[i] = NULL;
        names[i] = sb_arena_str(&l->arena, opt->features[i]);
        if (!names[i])
            return SB_NO_MEMORY;
    }
    l->opt.features = names;
    return SB_OK;
}

/* What the options refer to is needed again when the norm is changed. */
static sb_status learner_copy_options(sb_learner *l,
                                      const sb_learn_options *opt)
{
    l->opt = *opt;
    SB_TRY(learner_copy_features(l, opt));
    l->opt.train = l->opt.freeze = NULL;
    l->opt.groups = NULL;
    l->opt.n_train = l->opt.n_freeze = l->opt.n_groups = 0;
    if (opt->loss_output) {
        l->opt.loss_output = sb_arena_str(&l->arena, opt->loss_output);
        if (!l->opt.loss_output)
            return SB_NO_MEMORY;
    }
    return SB_OK;
}

/* ---- life --------------------------------------------------------------- */

static const sb_pipe_stage *learner_stage(const sb_learner *l)
{
    return l->pipe ? &l->pipe->stage : NULL;
}

/* A stage may have nothing that is trained. */
static bool learner_learns(const sb_learner *l)
{
    for (size_t i = 0; i < l->store.n; i++)
        if (l->store.all[i].info.gradient)
            return true;
    return !l->pipe;
}

/* The graphs that depend on what has a gradient. */
static sb_status learner_build(sb_learner *l)
{
    const sb_exec_options exec = {.exact = l->opt.exact != 0,
                                  .profile = l->opt.profile != 0};
    sb_exec_options learn = exec;

    learn.ranks = !l->pipe;
    SB_TRY(sb_learn_graph_build(l->source, &l->store, &l->opt, learner_stage(l),
                                true, &l->learn, &l->places));
    SB_TRY(sb_bound_graph_open(&l->learn, &learn));
    if (!learner_learns(l))
        return SB_OK;
    if (l->opt.accumulate > 1) {
        SB_TRY(sb_accumulate_graph_build(&l->store, &l->accumulate));
        SB_TRY(sb_bound_graph_open(&l->accumulate, &exec));
    }
    SB_TRY(sb_norm_graph_build(&l->store, &l->opt, &l->norm));
    SB_TRY(sb_bound_graph_open(&l->norm, &exec));
    SB_TRY(sb_update_graph_build(&l->store, &l->opt, &l->update));
    return sb_bound_graph_open(&l->update, &exec);
}

static void learner_drop(sb_learner *l)
{
    l->output = NULL;
    sb_pipe_drop(l);
    sb_bound_graph_free(&l->learn);
    sb_bound_graph_free(&l->accumulate);
    sb_bound_graph_free(&l->norm);
    sb_bound_graph_free(&l->update);
}

static sb_status learner_setup(sb_learner *l, const sb_graph *graph,
                               const sb_learn_options *opt, const sb_map *roles)
{
    SB_TRY(learner_check_options(l->ctx, opt));
    SB_TRY(learner_copy_options(l, opt));
    l->rate = opt->learning_rate;
    SB_TRY(sb_graph_clone(graph, &l->source));
    SB_TRY(sb_store_untie(l->source));
    SB_TRY(sb_store_find(&l->store, l->source, opt, roles));
    SB_TRY(sb_store_alloc(&l->store, l->source, opt));
    SB_TRY(sb_pipe_open(l));
    return learner_build(l);
}

sb_status sb_learner_create_graph(sb_ctx *ctx, const sb_graph *graph,
                                  const sb_learn_options *opt,
                                  const sb_map *roles, sb_learner **out)
{
    sb_learner *l = sb_alloc(ctx, 1, sizeof *l);

    if (!l)
        return SB_NO_MEMORY;
    l->ctx = ctx;
    sb_arena_init(&l->arena, ctx);
    sb_arena_init(&l->profile, ctx);
    sb_store_init(&l->store, ctx);
    sb_status status = learner_setup(l, graph, opt, roles);
    if (status == SB_OK)
        *out = l;
    else
        sb_learner_free(l);
    return status;
}

void sb_learner_free(sb_learner *l)
{
    if (!l)
        return;
    learner_drop(l);
    sb_pipe_close(l);
    sb_bound_graph_free(&l->eval);
    sb_tensor_drop(&l->wide);
    sb_free(l->ctx, l->eval_states);
    sb_store_free(&l->store);
    sb_graph_free(l->source);
    sb_arena_free(&l->profile);
    sb_arena_free(&l->arena);
    sb_free(l->ctx, l);
}

sb_status sb_learner_set_norm(sb_learner *l, sb_learn_norm norm)
{
    sb_learn_norm before = l->opt.norm;

    if (norm == before)
        return SB_OK;
    l->opt.norm = norm;
    learner_drop(l);
    sb_status status = learner_build(l);
    if (status != SB_OK) {
        l->opt.norm = before;
        learner_drop(l);
    }
    return status;
}

/* ---- a step ------------------------------------------------------------- */

/* The counter that random numbers depend on: another one for each seed and
 * step. */
static int64_t learner_counter(const sb_learner *l)
{
    uint64_t x =
        l->opt.seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)l->store.runs;

    return (int64_t)(x ^ x >> 29);
}

sb_status sb_learner_set_inputs(sb_learner *l, const sb_tensor *const *inputs,
                                size_t n)
{
    if (!l->learn.exec) /* an earlier change of the norm failed */
        SB_TRY(learner_build(l));
    if (n != l->source->n_inputs)
        return sb_fail(l->ctx, SB_BAD_ARG, "got %zu inputs, want %zu", n,
                       l->source->n_inputs);
    sb_tensor_drop(&l->wide);
    for (size_t i = 0; i < n; i++)
        l->learn.inputs[i] = inputs[i];
    l->count = learner_counter(l);
    l->counter = sb_tensor_make(SB_DTYPE_I64, 0, NULL);
    l->counter.data = &l->count;
    if (l->places.counter != SIZE_MAX)
        l->learn.inputs[l->places.counter] = &l->counter;
    l->output = NULL;
    l->paused = NULL;
    return SB_OK;
}

static sb_status learner_check_target(const sb_learner *l,
                                      const sb_tensor *target)
{
    if (l->opt.loss == SB_LEARN_LOSS_CUSTOM)
        return sb_fail(l->ctx, SB_BAD_ARG,
                       "the caller computes the loss: call "
                       "sb_learner_forward() and sb_learner_backward()");
    if (!target)
        return sb_fail(l->ctx, SB_BAD_ARG, "the loss has no target");
    bool fits =
        l->places.target_dtype == SB_DTYPE_I64
            ? target->dtype == SB_DTYPE_I64 || target->dtype == SB_DTYPE_I32
            : target->dtype == l->places.target_dtype;
    if (fits)
        return SB_OK;
    return sb_fail(l->ctx, SB_BAD_DATA, "the target has type %s, want %s",
                   sb_dtype_name(target->dtype),
                   sb_dtype_name(l->places.target_dtype));
}

/* Labels of int32 become int64, kept until the next inputs: a step that fails
 * at its end looks at them again. */
static sb_status learner_widen(sb_learner *l, const sb_tensor **target)
{
    const sb_tensor *from = *target;
    sb_tensor t = sb_tensor_make(SB_DTYPE_I64, from->rank, from->dims);

    if (from->dtype != SB_DTYPE_I32)
        return SB_OK;
    SB_TRY(sb_tensor_alloc_raw(l->ctx, &t));
    sb_convert(from->dtype, from->data, SB_DTYPE_I64, t.data,
               (size_t)sb_tensor_count(from));
    l->wide = t;
    *target = &l->wide;
    return SB_OK;
}

sb_status sb_learner_set_features(sb_learner *l,
                                  const sb_tensor *const *features, size_t n)
{
    if (n != l->opt.n_features)
        return sb_fail(l->ctx, SB_BAD_ARG, "got %zu features, want %zu", n,
                       l->opt.n_features);
    for (size_t i = 0; i < n; i++)
        l->features[i] = features[i];
    return SB_OK;
}

/* They serve one step. */
static sb_status learner_use_features(sb_learner *l)
{
    for (size_t i = 0; i < l->opt.n_features; i++) {
        if (!l->features[i])
            return sb_fail(l->ctx, SB_BAD_ARG,
                           "feature '%s' has no target: call "
                           "sb_learner_set_features() before each step",
                           l->opt.features[i]);
        l->learn.inputs[l->places.features + i] = l->features[i];
        l->features[i] = NULL;
    }
    return SB_OK;
}

static sb_status learner_run_pieces(sb_learner *l,
                                    const sb_tensor *const *inputs, size_t n,
                                    const sb_tensor *target, double *loss)
{
    double own = 0;

    if (!target ||
        (target->dtype != SB_DTYPE_I64 && target->dtype != SB_DTYPE_I32))
        return sb_fail(l->ctx, SB_BAD_DATA,
                       "a pipeline learns labels: the target has type %s, want "
                       "int64",
                       target ? sb_dtype_name(target->dtype) : "none");
    SB_TRY(learner_widen(l, &target));
    SB_TRY(sb_pipe_gradient(l, inputs, n, target, &own));
    /* The last look at signals: all ranks make the update, or none. */
    SB_TRY(sb_ctx_poll(l->ctx));
    SB_TRY(sb_comm_sum_f64(l->ctx, &own, 1));
    if (loss)
        *loss = own;
    return SB_OK;
}

/* Loss, gradients and next statistics. */
static sb_status learner_run(sb_learner *l, const sb_tensor *target,
                             double *loss)
{
    sb_bound_graph *b = &l->learn;

    SB_TRY(learner_check_target(l, target));
    SB_TRY(learner_use_features(l));
    SB_TRY(learner_widen(l, &target));
    b->inputs[l->places.target] = target;
    SB_TRY(sb_bound_graph_run(b));
    double v = (double)*(const float *)b->outputs[SB_LEARN_OUT_LOSS]->data;
    l->output = b->outputs[SB_LEARN_OUT_OUTPUT];
    if (!isfinite(v))
        return sb_learner_blame(l, "the loss", v);
    SB_TRY(sb_learner_join(l, &v));
    if (loss)
        *loss = v;
    return SB_OK;
}

sb_status sb_learner_gradient(sb_learner *l, const sb_tensor *const *inputs,
                              size_t n_inputs, const sb_tensor *target,
                              double *loss)
{
    SB_TRY(sb_learner_set_inputs(l, inputs, n_inputs));
    return l->pipe ? learner_run_pieces(l, inputs, n_inputs, target, loss)
                   : learner_run(l, target, loss);
}

/* ---- the update --------------------------------------------------------- */

static sb_tensor learner_scalar(float *v)
{
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 0, NULL);

    t.data = v;
    return t;
}

static sb_status learner_accumulate(sb_learner *l)
{
    int64_t i = l->store.waiting + 1;
    float weight = (float)((double)(i - 1) / (double)i);
    const sb_tensor t = learner_scalar(&weight);

    l->accumulate.inputs[0] = &t;
    return sb_bound_graph_run(&l->accumulate);
}

/* What clipping multiplies gradients by. */
static sb_status learner_scale(sb_learner *l, float *scale)
{
    double sum = 0;

    if (l->norm.exec) {
        SB_TRY(sb_bound_graph_run(&l->norm));
        sum = (double)*(const float *)l->norm.outputs[0]->data;
    }
    if (!isfinite(sum))
        return sb_learner_blame(l, "the norm of the gradients", sum);
    if (l->pipe)
        SB_TRY(sb_comm_sum_f64(l->ctx, &sum, 1));
    l->gradient_norm = sqrt(sum);
    *scale = 1;
    if (l->opt.clip_norm > 0 && l->gradient_norm > l->opt.clip_norm)
        *scale = (float)(l->opt.clip_norm / (l->gradient_norm + 1e-6));
    return SB_OK;
}

static sb_status learner_update(sb_learner *l, float scale)
{
    float rate = (float)l->rate, step = (float)(l->store.updates + 1);
    const sb_tensor numbers[] = {[SB_UPDATE_RATE] = learner_scalar(&rate),
                                 [SB_UPDATE_STEP] = learner_scalar(&step),
                                 [SB_UPDATE_SCALE] = learner_scalar(&scale)};

    for (size_t i = 0; i < SB_UPDATE_NUMBERS; i++)
        l->update.inputs[i] = &numbers[i];
    return sb_bound_graph_run(&l->update);
}

static void learner_take_statistics(sb_learner *l)
{
    for (size_t i = 0; i < l->store.n; i++) {
        sb_parameter *p = &l->store.all[i];
        if (p->next_made)
            sb_parameter_set(p, SB_STORE_VALUE, p->kept[SB_STORE_NEXT].t.data);
    }
}

/* What changes the state, as a whole. */
static sb_status learner_commit(sb_learner *l)
{
    bool mean = l->opt.accumulate > 1;
    bool last = l->store.waiting + 1 >= (int64_t)l->opt.accumulate;
    float scale = 1;

    if (mean && l->accumulate.exec)
        SB_TRY(learner_accumulate(l));
    if (last) {
        SB_TRY(learner_scale(l, &scale));
        if (l->update.exec)
            SB_TRY(learner_update(l, scale));
        for (size_t i = 0; i < l->store.n; i++)
            sb_parameter_apply_mask(&l->store.all[i]);
    }
    learner_take_statistics(l);
    l->store.runs++;
    l->store.waiting = last ? 0 : l->store.waiting + 1;
    l->store.updates += last;
    return SB_OK;
}

sb_status sb_learner_finish(sb_learner *l)
{
    if (!l->pipe)
        SB_TRY(sb_ctx_poll(l->ctx));
    sb_ctx_hold(l->ctx, true);
    sb_status status = learner_commit(l);
    sb_ctx_hold(l->ctx, false);
    return status;
}

sb_status sb_learner_step(sb_learner *l, const sb_tensor *const *inputs,
                          size_t n_inputs, const sb_tensor *target,
                          double *loss)
{
    SB_TRY(sb_learner_gradient(l, inputs, n_inputs, target, loss));
    return sb_learner_finish(l);
}

const sb_tensor *sb_learner_output(const sb_learner *l)
{
    return l->output;
}

void sb_learner_set_learning_rate(sb_learner *l, double rate)
{
    l->rate = rate;
}

double sb_learner_learning_rate(const sb_learner *l)
{
    return l->rate;
}

int64_t sb_learner_updates(const sb_learner *l)
{
    return l->store.updates;
}

double sb_learner_gradient_norm(const sb_learner *l)
{
    return l->gradient_norm;
}

size_t sb_learner_workspace(const sb_learner *l)
{
    return l->learn.exec ? sb_exec_workspace(l->learn.exec) : 0;
}

/* ---- graphs for the caller ---------------------------------------------- */

sb_status sb_learner_overlay(const sb_learner *l, sb_learn_values values,
                             sb_graph **out)
{
    sb_graph *g = NULL;

    if (values == SB_LEARN_VALUES_AVERAGE && !(l->opt.ema_decay > 0))
        return sb_fail(l->ctx, SB_BAD_ARG,
                       "there is no moving average: ema_decay is 0");
    SB_TRY(sb_graph_clone(l->source, &g));
    sb_status status = sb_passes_run(g, "eval_mode", NULL, NULL, NULL);
    if (status == SB_OK)
        status = sb_store_overlay(&l->store, g, values);
    if (status == SB_OK)
        *out = g;
    else
        sb_graph_free(g);
    return status;
}

sb_status sb_learner_show(sb_learner *l, sb_graph **out)
{
    sb_bound_graph b;
    sb_learn_places places;

    SB_TRY(sb_learn_graph_build(l->source, &l->store, &l->opt, learner_stage(l),
                                false, &b, &places));
    *out = b.graph;
    b.graph = NULL;
    sb_free(l->ctx, b.states);
    return SB_OK;
}
