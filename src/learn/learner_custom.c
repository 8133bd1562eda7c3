/* Steps whose loss the caller computes: the run of the learn graph stops at the
 * node that stands for it. */
#include <math.h>
#include <string.h>

#include "learn/learner.h"

sb_status sb_learner_forward(sb_learner *l, const sb_tensor *const *inputs,
                             size_t n_inputs, const sb_tensor **outputs,
                             size_t n_outputs)
{
    const sb_graph *g = l->source;
    const sb_kernel *at = NULL;
    uint32_t k = 0;

    if (l->opt.loss != SB_LEARN_LOSS_CUSTOM)
        return sb_fail(l->ctx, SB_BAD_ARG,
                       "the learner computes the loss itself: it was not made "
                       "with SB_LEARN_LOSS_CUSTOM");
    if (n_outputs > g->n_outputs)
        return sb_fail(l->ctx, SB_BAD_ARG, "got %zu outputs, want at most %zu",
                       n_outputs, g->n_outputs);
    l->paused = NULL;
    SB_TRY(sb_learner_set_inputs(l, inputs, n_inputs));
    SB_TRY(
        sb_exec_run_to(l->learn.exec, l->learn.inputs, l->places.pause, &at));
    for (size_t i = 0; i < n_outputs; i++)
        outputs[i] = sb_learn_is_custom(g, &l->opt, i) ? at->in[k++] : NULL;
    l->paused = at;
    return SB_OK;
}

static sb_status custom_fill(const sb_learner *l, size_t i, sb_tensor *to,
                             const sb_tensor *from)
{
    char got[128], want[128];

    if (!from) {
        memset(to->data, 0, sb_tensor_bytes(to));
        return SB_OK;
    }
    if (from->dtype != to->dtype || from->rank != to->rank ||
        memcmp(from->dims, to->dims, (size_t)to->rank * sizeof to->dims[0]) !=
            0)
        return sb_fail(l->ctx, SB_BAD_DATA, "gradient %zu: got %s, want %s", i,
                       sb_tensor_describe(from, got, sizeof got),
                       sb_tensor_describe(to, want, sizeof want));
    for (int64_t e = 0; e < sb_tensor_count(from); e++)
        if (!isfinite(((const float *)from->data)[e]))
            return sb_fail(l->ctx, SB_BAD_DATA,
                           "step %lld: gradient %zu is not finite",
                           (long long)l->store.runs + 1, i);
    memcpy(to->data, from->data, sb_tensor_bytes(to));
    return SB_OK;
}

sb_status sb_learner_backward(sb_learner *l, const sb_tensor *const *gradients,
                              size_t n)
{
    const sb_graph *g = l->source;
    const sb_kernel *at = l->paused;
    uint32_t k = 0;

    l->paused = NULL;
    if (!at)
        return sb_fail(l->ctx, SB_BAD_ARG,
                       "there was no sb_learner_forward() before");
    if (n > g->n_outputs)
        return sb_fail(l->ctx, SB_BAD_ARG,
                       "got %zu gradients, want at most %zu", n, g->n_outputs);
    for (size_t i = 0; i < g->n_outputs; i++) {
        bool custom = sb_learn_is_custom(g, &l->opt, i);
        const sb_tensor *from = i < n ? gradients[i] : NULL;
        if (custom && at->out[k])
            SB_TRY(custom_fill(l, i, at->out[k], from));
        else if (!custom && from)
            return sb_fail(l->ctx, SB_BAD_ARG,
                           "output '%s' has no gradient: it is not of floats, "
                           "or another one is named",
                           sb_graph_value(g, g->outputs[i])->name);
        k += custom;
    }
    SB_TRY(sb_exec_run_on(l->learn.exec, l->learn.outputs));
    double none = 0;
    SB_TRY(sb_learner_join(l, &none));
    return sb_learner_finish(l);
}
