/* The executor: plans by input shape, and runs. */
#include "exec/exec.h"

#include <string.h>

#include "exec/plan.h"
#include "tensor/align.h"

/* ---- making ------------------------------------------------------------- */

/* Walks the order backwards: a node is needed if something needed reads it. */
static void mark_needed(sb_exec *exec)
{
    const sb_graph *g = exec->graph;

    for (size_t i = 0; i < g->n_outputs; i++)
        exec->last_use[g->outputs[i]] = POSITION_END;
    for (size_t i = exec->n_order; i-- > 0;) {
        const sb_node *node = sb_graph_node(g, exec->order[i]);
        bool needed = exec->opt.dump != NULL;

        for (uint32_t j = 0; j < node->n_out; j++)
            if (node->outputs[j] != SB_NONE &&
                exec->last_use[node->outputs[j]] > 0)
                needed = true;
        exec->needed[exec->order[i]] = needed;
        for (uint32_t j = 0; needed && j < node->n_in + node->n_implicit; j++) {
            sb_value_id v = node->inputs[j];
            /* Position 0 reads at time 1 at the earliest: 0 means unused. */
            if (v != SB_NONE && exec->last_use[v] < i + 1)
                exec->last_use[v] = (uint32_t)i + 1;
        }
    }
    /* Back to positions. */
    for (sb_value_id v = 0; v < g->n_values; v++)
        if (exec->last_use[v] != 0 && exec->last_use[v] != POSITION_END)
            exec->last_use[v]--;
}

static sb_status create(sb_exec *exec)
{
    const sb_graph *g = exec->graph;
    sb_ctx *ctx = exec->ctx;

    SB_TRY(sb_graph_order(g, &exec->order, &exec->n_order));
    exec->needed = sb_alloc(ctx, g->n_nodes + 1, sizeof *exec->needed);
    exec->last_use = sb_alloc(ctx, g->n_values + 1, sizeof *exec->last_use);
    exec->consts = sb_alloc(ctx, g->n_values + 1, sizeof *exec->consts);
    if (!exec->needed || !exec->last_use || !exec->consts)
        return SB_NO_MEMORY;
    mark_needed(exec);
    /* Say at once what cannot be run, before anybody gathers data for it. */
    for (size_t i = 0; i < exec->n_order; i++)
        if (exec->needed[exec->order[i]])
            SB_TRY(
                step_check_runnable(ctx, g, sb_graph_node(g, exec->order[i])));
    return SB_OK;
}

sb_status sb_exec_create(sb_ctx *ctx, const sb_graph *graph,
                         const sb_exec_options *opt, sb_exec **out)
{
    sb_exec *exec = sb_alloc(ctx, 1, sizeof *exec);

    if (!exec)
        return SB_NO_MEMORY;
    exec->ctx = ctx;
    exec->graph = graph;
    if (opt)
        exec->opt = *opt;
    sb_status status = create(exec);
    if (status == SB_OK)
        *out = exec;
    else
        sb_exec_free(exec);
    return status;
}

void sb_exec_free(sb_exec *exec)
{
    if (!exec)
        return;
    for (size_t i = 0; i < exec->n_plans; i++)
        plan_free(exec->plans[i]);
    for (sb_value_id v = 0; exec->consts && v < exec->graph->n_values; v++)
        exec_const_drop(exec, v);
    sb_free(exec->ctx, exec->plans);
    sb_free(exec->ctx, exec->consts);
    sb_free(exec->ctx, exec->last_use);
    sb_free(exec->ctx, exec->needed);
    sb_free(exec->ctx, exec->order);
    sb_free(exec->ctx, exec);
}

size_t sb_exec_workspace(const sb_exec *exec)
{
    return exec->last ? exec->last->workspace_size : 0;
}

/* ---- choosing a plan ---------------------------------------------------- */

static bool fits(const sb_tensor *key, const sb_tensor *t)
{
    if (!t)
        return key->rank == -1;
    return key->dtype == t->dtype && key->rank == t->rank &&
           memcmp(key->dims, t->dims, sizeof t->dims[0] * (size_t)t->rank) == 0;
}

static bool plan_fits(const sb_plan *plan, const sb_tensor *const *inputs,
                      const sb_tensor *const *captured)
{
    const sb_graph *g = plan->exec->graph;

    for (size_t i = 0; i < g->n_inputs; i++)
        if (!fits(&plan->key[i], inputs[i]))
            return false;
    for (size_t i = 0; i < g->n_captures; i++)
        if (!fits(&plan->key[g->n_inputs + i], captured[i]))
            return false;
    return true;
}

/* The least recently used plan makes room for a new one. */
static void evict(sb_exec *exec)
{
    size_t oldest = 0;

    if (exec->n_plans < PLANS_MOST)
        return;
    for (size_t i = 1; i < exec->n_plans; i++)
        if (exec->plans[i]->used < exec->plans[oldest]->used)
            oldest = i;
    plan_free(exec->plans[oldest]);
    exec->plans[oldest] = exec->plans[--exec->n_plans];
}

static sb_status plan_for(sb_exec *exec, const sb_tensor *const *inputs,
                          const sb_tensor *const *captured, sb_plan **out)
{
    for (size_t i = 0; i < exec->n_plans; i++) {
        if (plan_fits(exec->plans[i], inputs, captured)) {
            *out = exec->plans[i];
            return SB_OK;
        }
    }
    exec->last = NULL;
    evict(exec);
    SB_TRY(sb_grow(exec->ctx, &exec->plans, &exec->cap_plans, exec->n_plans + 1,
                   sizeof(sb_plan *)));
    SB_TRY(plan_build(exec, inputs, captured, out));
    exec->plans[exec->n_plans++] = *out;
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

/* Element type and every number among the declared dimensions must agree. */
sb_status sb_exec_check_input(sb_ctx *ctx, const sb_value *value,
                              const sb_tensor *t)
{
    const sb_type *want = &value->type;
    char found[128];

    if (!t)
        return value->is_constant
                   ? SB_OK
                   : sb_fail(ctx, SB_BAD_ARG, "input '%s' is missing",
                             value->name);
    (void)sb_tensor_describe(t, found, sizeof found);
    if (want->dtype != SB_DTYPE_NONE && want->dtype != t->dtype)
        return sb_fail(ctx, SB_BAD_DATA, "input '%s': got %s, want %s",
                       value->name, found, sb_dtype_get(want->dtype)->name);
    if (want->shape.rank < 0)
        return SB_OK;
    if (want->shape.rank != t->rank)
        return sb_fail(ctx, SB_BAD_DATA, "input '%s': got %s, want rank %d",
                       value->name, found, want->shape.rank);
    for (int i = 0; i < t->rank; i++)
        if (sb_dim_known(want->shape.dim[i]) &&
            want->shape.dim[i] != t->dims[i])
            return sb_fail(ctx, SB_BAD_DATA,
                           "input '%s': got %s, want %lld in dimension %d",
                           value->name, found, (long long)want->shape.dim[i],
                           i);
    return SB_OK;
}

/* Points a given slot at this run's data; copies only what lies askew. */
static sb_status set_given(sb_exec *exec, slot *s, const sb_tensor *t)
{
    if (sb_tensor_is_aligned(t)) {
        s->t.data = t->data;
        return SB_OK;
    }
    SB_TRY(slot_resize(exec->ctx, s, t));
    memcpy(s->t.data, t->data, sb_tensor_bytes(t));
    return SB_OK;
}

static sb_status set_all_given(sb_plan *plan, const sb_tensor *const *inputs,
                               const sb_tensor *const *captured)
{
    sb_exec *exec = plan->exec;
    const sb_graph *g = exec->graph;

    for (size_t i = 0; i < g->n_inputs; i++)
        if (inputs[i])
            SB_TRY(set_given(exec, plan->values[g->inputs[i]], inputs[i]));
    for (size_t i = 0; i < g->n_captures; i++)
        SB_TRY(set_given(exec, plan->values[g->captures[i]], captured[i]));
    for (slot *s = plan->slots; s; s = s->next)
        if (s->root != s && s->root->kind == SLOT_GIVEN)
            s->t.data = s->root->t.data;
    return SB_OK;
}

static sb_status dump_value(const sb_exec *exec, sb_value_id v,
                            const sb_tensor *t)
{
    return exec->opt.dump(exec->opt.dump_user,
                          sb_graph_value(exec->graph, v)->name, t);
}

static sb_status dump_step(const sb_exec *exec, const step *st)
{
    for (uint32_t i = 0; i < st->k.n_out; i++)
        if (st->out[i])
            SB_TRY(dump_value(exec, st->k.node->outputs[i], &st->out[i]->t));
    return SB_OK;
}

static sb_status run_plan(sb_plan *plan)
{
    sb_exec *exec = plan->exec;

    if (plan->profile && !exec->opt.dump)
        return profile_run(plan);
    for (size_t i = 0; exec->opt.dump && i < plan->n_folded; i++)
        SB_TRY(dump_value(exec, plan->folded[i],
                          &plan->values[plan->folded[i]]->t));
    for (size_t i = 0; i < plan->n_steps; i++) {
        SB_TRY(step_run(plan->steps[i]));
        if (exec->opt.dump)
            SB_TRY(dump_step(exec, plan->steps[i]));
    }
    for (size_t i = 0; i < plan->n_finals; i++)
        run_conversion(exec->ctx, &plan->finals[i]);
    return SB_OK;
}

sb_status sb_exec_run(sb_exec *exec, const sb_tensor *const *inputs,
                      const sb_tensor *const *captured,
                      const sb_tensor **outputs)
{
    const sb_graph *g = exec->graph;
    sb_plan *plan = NULL;

    for (size_t i = 0; i < g->n_inputs; i++)
        SB_TRY(sb_exec_check_input(exec->ctx, sb_graph_value(g, g->inputs[i]),
                                   inputs[i]));
    SB_TRY(plan_for(exec, inputs, captured, &plan));
    exec->last = plan;
    plan->used = ++exec->clock;
    SB_TRY(set_all_given(plan, inputs, captured));
    SB_TRY(run_plan(plan));
    for (size_t i = 0; i < g->n_outputs; i++)
        outputs[i] = &plan->outputs[i]->t;
    return SB_OK;
}
