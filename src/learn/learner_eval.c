/* Evaluation with the present parameters, in place.
 *
 * The eval graph has states of its own that point at the memory of the store,
 * at values or at their averages; a new version at each change tells packed
 * copies that they are stale. */
#include "learn/learner.h"

#include <string.h>

#include "passes/pass.h"

static sb_status eval_open(sb_learner *l)
{
    const sb_exec_options exec = {.exact = l->opt.exact != 0};
    sb_bound_graph *b = &l->eval;

    if (b->exec)
        return SB_OK;
    sb_bound_graph_free(b);
    sb_free(l->ctx, l->eval_states);
    l->eval_states = sb_alloc(l->ctx, l->store.n + 1, sizeof *l->eval_states);
    if (!l->eval_states)
        return SB_NO_MEMORY;
    SB_TRY(sb_eval_graph_build(l->source, &l->store, b));
    for (size_t i = 0; i < l->store.n; i++) {
        const sb_parameter *p = &l->store.all[i];
        l->eval_states[i].t = p->kept[SB_STORE_VALUE].t;
        if (p->info.trained)
            SB_TRY(sb_bound_graph_bind(
                b, sb_graph_find_value(b->graph, p->info.name), SB_NONE,
                &l->eval_states[i]));
    }
    return sb_bound_graph_open(b, &exec);
}

/* Versions of the store only grow, those of values and of averages alike. */
static void eval_point(sb_learner *l, sb_store_kind kind)
{
    for (size_t i = 0; i < l->store.n; i++) {
        const sb_state *from = &l->store.all[i].kept[kind];
        sb_state *to = &l->eval_states[i];
        uint64_t version = 2 * from->version + (kind == SB_STORE_AVERAGE);

        if (!from->t.data)
            continue;
        to->t.data = from->t.data;
        to->version = version + 1;
    }
}

sb_status sb_learner_eval(sb_learner *l, sb_learn_values values,
                          const sb_tensor *const *inputs, size_t n_inputs,
                          const sb_tensor **outputs, size_t n_outputs)
{
    bool average = values == SB_LEARN_VALUES_AVERAGE;

    if (l->pipe)
        return sb_fail(l->ctx, SB_UNSUPPORTED,
                       "a learner with a stage of a pipeline cannot evaluate: "
                       "run the model that it makes after "
                       "sb_learner_collect()");
    if (average && !(l->opt.ema_decay > 0))
        return sb_fail(l->ctx, SB_BAD_ARG,
                       "there is no moving average: ema_decay is 0");
    if (n_inputs != l->source->n_inputs)
        return sb_fail(l->ctx, SB_BAD_ARG, "got %zu inputs, want %zu", n_inputs,
                       l->source->n_inputs);
    if (n_outputs > l->source->n_outputs)
        return sb_fail(l->ctx, SB_BAD_ARG, "got %zu outputs, want at most %zu",
                       n_outputs, l->source->n_outputs);
    SB_TRY(eval_open(l));
    eval_point(l, average ? SB_STORE_AVERAGE : SB_STORE_VALUE);
    for (size_t i = 0; i < n_inputs; i++)
        l->eval.inputs[i] = inputs[i];
    SB_TRY(sb_bound_graph_run(&l->eval));
    for (size_t i = 0; i < n_outputs; i++)
        outputs[i] = l->eval.outputs[i];
    return SB_OK;
}

/* ---- parameters --------------------------------------------------------- */

size_t sb_learner_parameter_count(const sb_learner *l)
{
    return l->store.n;
}

const sb_parameter_info *sb_learner_parameter(const sb_learner *l, size_t i)
{
    return i < l->store.n ? &l->store.all[i].info : NULL;
}

const sb_parameter_info *sb_learner_find_parameter(const sb_learner *l,
                                                   const char *name)
{
    const sb_parameter *p = sb_store_get(&l->store, name);

    return p ? &p->info : NULL;
}

sb_status sb_learner_set_parameter(sb_learner *l, const char *name,
                                   const sb_tensor *value)
{
    sb_parameter *p = NULL;

    SB_TRY(sb_store_get_trained(&l->store, name, "parameter", value, &p));
    sb_parameter_set(p, SB_STORE_VALUE, value->data);
    return SB_OK;
}

sb_status sb_learner_set_note(sb_learner *l, const char *text)
{
    return sb_store_set_note(&l->store, text, strlen(text));
}

const char *sb_learner_note(const sb_learner *l)
{
    return l->store.note ? l->store.note : "";
}

sb_status sb_learner_save(const sb_learner *l, const char *path)
{
    return sb_store_save(&l->store, path);
}

sb_status sb_learner_load(sb_learner *l, const char *path)
{
    return sb_store_load(&l->store, path);
}
