/* The executor: plans by input shape, and runs. */
#include "exec/exec.h"

#include <string.h>

#include "base/simd.h"
#include "exec/plan.h"
#include "exec/prepare.h"
#include "tensor/mapped.h"

/* ---- making ------------------------------------------------------------- */

/* Walks the order backwards: a node is needed if something needed reads it.
 * One that reads only the shape of a value needs it, but not its memory. */
static void mark_needed(sb_exec *exec)
{
    const sb_graph *g = exec->graph;

    for (size_t i = 0; i < g->n_outputs; i++)
        exec->last_use[g->outputs[i]] = POSITION_END;
    for (size_t i = exec->n_order; i-- > 0;) {
        const sb_node *node = sb_graph_node(g, exec->order[i]);
        const sb_op_def *op = sb_op_of(node);
        bool shape_only = op && (op->flags & SB_OP_SHAPE_ONLY);
        bool needed = exec->opt.dump != NULL;

        for (uint32_t j = 0; j < node->n_out; j++)
            if (node->outputs[j] != SB_NONE &&
                exec->last_use[node->outputs[j]] > 0)
                needed = true;
        exec->needed[exec->order[i]] = needed;
        for (uint32_t j = 0; needed && j < node->n_in + node->n_implicit; j++) {
            sb_value_id v = node->inputs[j];
            /* Position 0 reads at time 1 at the earliest: 0 means unused. */
            uint32_t at = j == 0 && shape_only ? 1 : (uint32_t)i + 1;
            if (v != SB_NONE && exec->last_use[v] < at)
                exec->last_use[v] = at;
        }
    }
    /* Back to positions. */
    for (sb_value_id v = 0; v < g->n_values; v++)
        if (exec->last_use[v] != 0 && exec->last_use[v] != POSITION_END)
            exec->last_use[v]--;
}

static sb_status exec_create(sb_exec *exec)
{
    const sb_graph *g = exec->graph;
    sb_ctx *ctx = exec->ctx;

    SB_TRY(sb_graph_order(g, &exec->order, &exec->n_order));
    exec->needed = sb_alloc(ctx, g->n_nodes + 1, sizeof *exec->needed);
    exec->last_use = sb_alloc(ctx, g->n_values + 1, sizeof *exec->last_use);
    exec->consts = sb_alloc(ctx, g->n_values + 1, sizeof *exec->consts);
    exec->packs = exec->opt.like
                      ? exec->opt.like->packs
                      : sb_alloc(ctx, g->n_values + 1, sizeof *exec->packs);
    if (!exec->needed || !exec->last_use || !exec->consts || !exec->packs)
        return SB_NO_MEMORY;
    SB_TRY(sb_exec_bind_states(exec, &exec->opt));
    mark_needed(exec);
    /* Say at once what cannot be run, before data is gathered for it. */
    for (size_t i = 0; i < exec->n_order; i++)
        if (exec->needed[exec->order[i]])
            SB_TRY(sb_step_check_runnable(ctx, g,
                                          sb_graph_node(g, exec->order[i])));
    return SB_OK;
}

sb_status sb_exec_create(sb_ctx *ctx, const sb_graph *graph,
                         const sb_exec_options *opt, sb_exec **out)
{
    SB_TRY(sb_graph_check_whole(graph));
    sb_exec *exec = sb_alloc(ctx, 1, sizeof *exec);

    if (!exec)
        return SB_NO_MEMORY;
    exec->ctx = ctx;
    exec->graph = graph;
    if (opt)
        exec->opt = *opt;
    exec->workspace = exec->opt.workspace ? exec->opt.workspace : &exec->own;
    sb_status status = exec_create(exec);
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
        sb_plan_free(exec->plans[i]);
    for (sb_value_id v = 0; exec->consts && v < exec->graph->n_values; v++)
        sb_exec_const_drop(exec, v);
    sb_free(exec->ctx, exec->plans);
    sb_workspace_free(exec->ctx, &exec->own);
    sb_free(exec->ctx, exec->states);
    sb_free(exec->ctx, exec->state_in);
    sb_free(exec->ctx, exec->state_out);
    if (!exec->opt.like)
        sb_free(exec->ctx, exec->packs);
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

static bool exec_fits(const sb_tensor *key, const sb_tensor *t)
{
    if (!t)
        return key->rank == -1;
    return key->dtype == t->dtype && key->rank == t->rank &&
           key->layout == t->layout &&
           memcmp(key->dims, t->dims, sizeof t->dims[0] * (size_t)t->rank) == 0;
}

static bool plan_fits(const sb_plan *plan, const sb_tensor *const *inputs,
                      const sb_tensor *const *captured)
{
    const sb_graph *g = plan->exec->graph;

    for (size_t i = 0; i < g->n_inputs; i++)
        if (!exec_fits(&plan->key[i], inputs[i]))
            return false;
    for (size_t i = 0; i < g->n_captures; i++)
        if (!exec_fits(&plan->key[g->n_inputs + i], captured[i]))
            return false;
    return true;
}

/* The least recently used plan makes room for a new one. */
static void exec_evict(sb_exec *exec)
{
    size_t oldest = 0;

    if (exec->n_plans < PLANS_MOST)
        return;
    for (size_t i = 1; i < exec->n_plans; i++)
        if (exec->plans[i]->used < exec->plans[oldest]->used)
            oldest = i;
    sb_plan_free(exec->plans[oldest]);
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
    exec_evict(exec);
    SB_TRY(sb_grow(exec->ctx, &exec->plans, &exec->cap_plans, exec->n_plans + 1,
                   sizeof(sb_plan *)));
    SB_TRY(sb_plan_build(exec, inputs, captured, out));
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

/* Points a given slot at this run's data; copies only what is not aligned. */
static sb_status set_given(sb_exec *exec, sb_slot *s, const sb_tensor *t)
{
    if (sb_tensor_is_aligned(t)) {
        s->t.data = t->data;
        return SB_OK;
    }
    SB_TRY(sb_slot_resize(exec->ctx, s, t));
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
    SB_TRY(sb_plan_set_states(plan));
    for (sb_slot *s = plan->slots; s; s = s->next)
        if (s->root != s &&
            (s->root->kind == SLOT_GIVEN || s->root->kind == SLOT_STATE))
            s->t.data = s->root->t.data;
    return SB_OK;
}

static sb_status dump_value(const sb_exec *exec, sb_value_id v,
                            const sb_tensor *t)
{
    return exec->opt.dump(exec->opt.dump_user,
                          sb_graph_value(exec->graph, v)->name, t);
}

static sb_status dump_step(const sb_exec *exec, const sb_step *st)
{
    for (uint32_t i = 0; i < st->k.n_out; i++)
        if (st->out[i])
            SB_TRY(dump_value(exec, st->k.node->outputs[i], &st->out[i]->t));
    return SB_OK;
}

void sb_plan_finish(sb_plan *plan)
{
    for (size_t i = 0; i < plan->n_finals; i++)
        sb_run_conversion(plan->exec->ctx, &plan->finals[i]);
    for (size_t i = 0; i < plan->n_writes; i++)
        sb_run_conversion(plan->exec->ctx, &plan->writes[i]);
}

/* Steps [from, to). */
static sb_status run_steps(sb_plan *plan, size_t from, size_t to)
{
    sb_exec *exec = plan->exec;

    for (size_t i = from; i < to; i++) {
        SB_TRY(sb_step_run(plan->steps[i]));
        if (exec->opt.dump)
            SB_TRY(dump_step(exec, plan->steps[i]));
    }
    return SB_OK;
}

static sb_status run_plan(sb_plan *plan)
{
    sb_exec *exec = plan->exec;

    if (plan->profile && !exec->opt.dump)
        return sb_profile_run(plan);
    for (size_t i = 0; exec->opt.dump && i < plan->n_folded; i++)
        SB_TRY(dump_value(exec, plan->folded[i],
                          &plan->values[plan->folded[i]]->t));
    SB_TRY(run_steps(plan, 0, plan->n_steps));
    sb_plan_finish(plan);
    return SB_OK;
}

/* NULL stands for a default or a state. */
static sb_status exec_check_inputs(const sb_exec *exec,
                                   const sb_tensor *const *inputs)
{
    const sb_graph *g = exec->graph;

    for (size_t i = 0; i < g->n_inputs; i++) {
        const sb_value *v = sb_graph_value(g, g->inputs[i]);
        if (!exec->state_in || !exec->state_in[g->inputs[i]])
            SB_TRY(sb_exec_check_input(exec->ctx, v, inputs[i]));
        else if (inputs[i])
            return sb_fail(exec->ctx, SB_BAD_ARG,
                           "input '%s' is a state: it cannot be given",
                           v->name);
    }
    return SB_OK;
}

/* The plan for these inputs, which are in their places. */
static sb_status exec_ready(sb_exec *exec, const sb_tensor *const *inputs,
                            const sb_tensor *const *captured, sb_plan **out)
{
    exec->paused = 0;
    SB_TRY(plan_for(exec, inputs, captured, out));
    exec->last = *out;
    (*out)->used = ++exec->clock;
    SB_TRY(sb_plan_settle(*out));
    return set_all_given(*out, inputs, captured);
}

static void exec_hand_out(const sb_plan *plan, const sb_tensor **outputs)
{
    for (size_t i = 0; i < plan->exec->graph->n_outputs; i++)
        outputs[i] = &plan->outputs[i]->t;
}

static sb_status exec_plan_and_run(sb_exec *exec,
                                   const sb_tensor *const *inputs,
                                   const sb_tensor *const *captured,
                                   const sb_tensor **outputs)
{
    sb_plan *plan = NULL;

    SB_TRY(exec_ready(exec, inputs, captured, &plan));
    SB_TRY(run_plan(plan));
    exec_hand_out(plan, outputs);
    return SB_OK;
}

sb_status sb_exec_run(sb_exec *exec, const sb_tensor *const *inputs,
                      const sb_tensor *const *captured,
                      const sb_tensor **outputs)
{
    SB_TRY(exec_check_inputs(exec, inputs));
    uint64_t before = sb_subnormals_off();
    sb_status status = exec_plan_and_run(exec, inputs, captured, outputs);
    sb_subnormals_restore(before);
    return status;
}

sb_status sb_exec_prepare(sb_exec *exec, const sb_tensor *const *inputs)
{
    sb_plan *plan = NULL;

    SB_TRY(exec_check_inputs(exec, inputs));
    uint64_t before = sb_subnormals_off(); /* constants are folded */
    sb_status status = exec_ready(exec, inputs, NULL, &plan);
    sb_subnormals_restore(before);
    return status;
}

/* ---- in parts ----------------------------------------------------------- */

static sb_status exec_plan_and_pause(sb_exec *exec,
                                     const sb_tensor *const *inputs,
                                     const sb_node *node, const sb_kernel **at)
{
    sb_plan *plan = NULL;
    size_t i = 0;

    SB_TRY(exec_ready(exec, inputs, NULL, &plan));
    while (i < plan->n_steps && plan->steps[i]->k.node != node)
        i++;
    if (i == plan->n_steps || plan->steps[i]->dynamic)
        return sb_fail(exec->ctx, SB_UNSUPPORTED,
                       "node '%s' (%s): a run cannot stop here, its shapes "
                       "depend on data",
                       sb_node_label(exec->graph, node), node->op);
    SB_TRY(run_steps(plan, 0, i));
    sb_step_before(plan->steps[i]);
    exec->paused = i + 1;
    *at = &plan->steps[i]->k;
    return SB_OK;
}

sb_status sb_exec_run_to(sb_exec *exec, const sb_tensor *const *inputs,
                         sb_node_id node, const sb_kernel **at)
{
    SB_TRY(exec_check_inputs(exec, inputs));
    uint64_t before = sb_subnormals_off();
    sb_status status =
        exec_plan_and_pause(exec, inputs, sb_graph_node(exec->graph, node), at);
    sb_subnormals_restore(before);
    return status;
}

sb_status sb_exec_run_on(sb_exec *exec, const sb_tensor **outputs)
{
    size_t paused = exec->paused;

    if (!paused)
        return sb_fail(exec->ctx, SB_BAD_ARG, "no run has stopped half way");
    exec->paused = 0;
    uint64_t before = sb_subnormals_off();
    sb_step_after(exec->last->steps[paused - 1]);
    sb_status status = run_steps(exec->last, paused, exec->last->n_steps);
    if (status == SB_OK)
        sb_plan_finish(exec->last);
    sb_subnormals_restore(before);
    if (status == SB_OK)
        exec_hand_out(exec->last, outputs);
    return status;
}
