/* A loss that is not finite: the same step once more, looking at every value
 * as it is made. */
#include "learn/learner.h"

#include <math.h>

#include "base/ranks/comm.h"

typedef struct blame_search {
    const sb_graph *g;
    bool nan;         /* is it that, or infinity? */
    const char *name; /* of the first value */
} blame_search;

static bool blame_has(const sb_tensor *t, bool nan)
{
    const float *v = t->data;

    if (t->dtype != SB_DTYPE_F32)
        return false;
    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        if (nan ? isnan(v[i]) : isinf(v[i]))
            return true;
    return false;
}

/* Ends the run at the first value: there is nothing more to learn. */
static sb_status blame_look(void *user, const char *name, const sb_tensor *t)
{
    blame_search *s = user;

    if (s->name || !blame_has(t, s->nan))
        return SB_OK;
    s->name = name;
    return SB_BAD_DATA;
}

static const char *blame_input(const sb_learner *l, bool nan)
{
    for (size_t i = 0; i < l->source->n_inputs; i++)
        if (l->learn.inputs[i] && blame_has(l->learn.inputs[i], nan))
            return sb_graph_value(l->source, l->source->inputs[i])->name;
    return NULL;
}

/* Has the stage before made it?  Either kind becomes the other on its way. */
static bool blame_hidden(const sb_learner *l)
{
    size_t at = l->places.hidden;
    const sb_tensor *t = at != SIZE_MAX ? l->learn.inputs[at] : NULL;

    return t && (blame_has(t, true) || blame_has(t, false));
}

/* Statistics and gradients are written again, with the same numbers. */
static sb_status blame_run(sb_learner *l, blame_search *s)
{
    const sb_bound_graph *b = &l->learn;
    const sb_exec_options opt = {.dump = blame_look,
                                 .dump_user = s,
                                 .exact = l->opt.exact != 0,
                                 .states = b->states,
                                 .n_states = b->n_states};
    sb_exec *exec = NULL;

    SB_TRY(sb_exec_create(l->ctx, b->graph, &opt, &exec));
    sb_status status = sb_exec_run(exec, b->inputs, NULL, b->outputs);
    sb_exec_free(exec);
    l->output = NULL;
    return s->name ? SB_OK : status;
}

sb_status sb_learner_blame(sb_learner *l, const char *what, double value)
{
    blame_search s = {.g = l->learn.graph, .nan = isnan(value)};
    const char *input = blame_input(l, s.nan);
    const char *kind = s.nan ? "not a number" : "infinite";
    const sb_node *node = NULL;

    if (input)
        return sb_fail(l->ctx, SB_BAD_DATA,
                       "step %lld: %s is %s, since input '%s' is",
                       (long long)l->store.runs + 1, what, kind, input);
    if (blame_hidden(l))
        return sb_fail(l->ctx, SB_BAD_DATA,
                       "step %lld: %s is %s; it comes from the stage of rank "
                       "%d, whose result is not finite",
                       (long long)l->store.runs + 1, what, kind,
                       sb_ctx_rank(l->ctx) - 1);
    /* A run that waits for gradients cannot be repeated here. */
    if (l->places.pause != SB_NONE)
        return sb_fail(l->ctx, SB_BAD_DATA, "step %lld: %s is %s",
                       (long long)l->store.runs + 1, what, kind);
    SB_TRY(blame_run(l, &s));
    /* Kernels that sum in another order, without what is looked at in between,
     * make NaN of values that overflow here. */
    if (!s.name && s.nan) {
        s.nan = false;
        SB_TRY(blame_run(l, &s));
    }
    if (s.name)
        node = sb_graph_producer(s.g, sb_graph_find_value(s.g, s.name));
    if (!node)
        return sb_fail(l->ctx, SB_BAD_DATA, "step %lld: %s is %s",
                       (long long)l->store.runs + 1, what, kind);
    if (!s.nan && isnan(value))
        return sb_fail(l->ctx, SB_BAD_DATA,
                       "step %lld: %s is %s; the first node to make an "
                       "infinite value is '%s' (%s)",
                       (long long)l->store.runs + 1, what, kind,
                       sb_node_label(s.g, node), node->op);
    return sb_fail(l->ctx, SB_BAD_DATA,
                   "step %lld: %s is %s; the first node to make such a value "
                   "is '%s' (%s)",
                   (long long)l->store.runs + 1, what, kind,
                   sb_node_label(s.g, node), node->op);
}
