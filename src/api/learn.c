/* The functions of learn.h that take or make models and batches. */
#include <string.h>

#include "api/feed.h"
#include "api/model.h"
#include "base/options.h"
#include "learn/learner.h"

sb_status sb_learner_create(const sb_model *model,
                            const sb_learn_options *options, sb_learner **out)
{
    const sb_learn_options defaults = SB_LEARN_OPTIONS_INIT;
    sb_learn_options opt;

    SB_TRY(sb_options_read(model->ctx, "sb_learn_options", options, &defaults,
                           sizeof opt, &opt));
    return sb_learner_create_graph(model->ctx, model->graph, &opt, NULL, out);
}

sb_status sb_learner_model(const sb_learner *l, sb_learn_values values,
                           sb_model **out)
{
    sb_graph *g = NULL;

    SB_TRY(sb_learner_overlay(l, values, &g));
    return sb_model_wrap(g, out);
}

sb_status sb_learner_graph(sb_learner *l, sb_model **out)
{
    sb_graph *g = NULL;

    SB_TRY(sb_learner_show(l, &g));
    return sb_model_wrap(g, out);
}

/* ---- batches ------------------------------------------------------------ */

static sb_status learn_step_labels(sb_learner *l, const sb_bound_batch *f,
                                   double *loss)
{
    const int64_t count = (int64_t)f->batch.count;
    sb_tensor target = sb_tensor_make(SB_DTYPE_I64, 1, &count);

    if (!f->batch.labels)
        return sb_fail(l->ctx, SB_BAD_DATA,
                       "the samples have no labels to learn");
    sb_buf *buf = NULL;
    SB_TRY(sb_buf_create_raw(l->ctx, sb_tensor_bytes(&target), &buf));
    target.buf = buf;
    target.data = sb_buf_data(buf);
    memcpy(target.data, f->batch.labels, sb_tensor_bytes(&target));
    sb_status status =
        sb_learner_step(l, f->inputs, f->io.n_inputs, &target, loss);
    sb_tensor_drop(&target);
    return status;
}

sb_status sb_learner_step_batch_to(sb_learner *l, const sb_batch *batch,
                                   const sb_tensor *target, double *loss)
{
    sb_bound_batch f;
    sb_status status = sb_bound_batch_open(l->ctx, l->source, batch, &f);

    if (status == SB_OK)
        status = target
                     ? sb_learner_step(l, f.inputs, f.io.n_inputs, target, loss)
                     : learn_step_labels(l, &f, loss);
    sb_bound_batch_close(l->ctx, &f);
    return status;
}

sb_status sb_learner_step_batch(sb_learner *l, const sb_batch *batch,
                                double *loss)
{
    return sb_learner_step_batch_to(l, batch, NULL, loss);
}

sb_status sb_learner_eval_batch(sb_learner *l, sb_learn_values values,
                                const sb_batch *batch,
                                const sb_tensor **outputs, size_t n_outputs)
{
    sb_bound_batch f;
    sb_status status = sb_bound_batch_open(l->ctx, l->source, batch, &f);

    if (status == SB_OK)
        status = sb_learner_eval(l, values, f.inputs, f.io.n_inputs, outputs,
                                 n_outputs);
    sb_bound_batch_close(l->ctx, &f);
    return status;
}
