/* Values that live in memory of the caller, across runs.
 *
 * A state that is read is a slot like a graph input's, only that its shape is
 * known when the executor is made.  One that is written takes the place of the
 * slot that its kernel writes, if no step reads the old elements afterwards. */
#include "exec/plan.h"

#include <string.h>

#include "tensor/mapped.h"

/* ---- checks ------------------------------------------------------------- */

static sb_status state_check_in(const sb_exec *exec, const sb_exec_state *st)
{
    const sb_graph *g = exec->graph;
    const sb_value *v = st->in < g->n_values ? sb_graph_value(g, st->in) : NULL;

    if (!v || (!v->is_input && !v->is_constant))
        return sb_fail(exec->ctx, SB_BAD_ARG,
                       "state '%s' is neither a graph input nor a constant",
                       v ? v->name : "");
    if (v->is_input)
        return sb_exec_check_input(exec->ctx, v, &st->state->t);
    const sb_tensor *c = &v->constant, *t = &st->state->t;
    if (c->dtype != t->dtype || c->rank != t->rank ||
        memcmp(c->dims, t->dims, sizeof c->dims[0] * (size_t)c->rank) != 0)
        return sb_fail(exec->ctx, SB_BAD_ARG,
                       "state '%s' has another type or shape than the constant",
                       v->name);
    return SB_OK;
}

/* One value has one binding. */
static sb_status state_enter(const sb_exec *exec,
                             const sb_exec_state **by_value, sb_value_id v,
                             const sb_exec_state *st)
{
    if (by_value[v])
        return sb_fail(exec->ctx, SB_BAD_ARG, "two states for value '%s'",
                       sb_graph_value(exec->graph, v)->name);
    by_value[v] = st;
    return SB_OK;
}

static sb_status state_bind(const sb_exec *exec, const sb_exec_state *st)
{
    const sb_graph *g = exec->graph;

    if (st->in != SB_NONE) {
        SB_TRY(state_check_in(exec, st));
        SB_TRY(state_enter(exec, exec->state_in, st->in, st));
    }
    if (st->out == SB_NONE)
        return SB_OK;
    if (st->out >= g->n_values || !sb_graph_value(g, st->out)->is_output)
        return sb_fail(exec->ctx, SB_BAD_ARG,
                       "state '%s' is not written by a graph output",
                       st->out < g->n_values ? sb_graph_value(g, st->out)->name
                                             : "");
    return state_enter(exec, exec->state_out, st->out, st);
}

sb_status sb_exec_bind_states(sb_exec *exec, const sb_exec_options *opt)
{
    size_t n = opt->n_states, n_values = exec->graph->n_values + 1;

    if (n == 0)
        return SB_OK;
    exec->states = sb_alloc(exec->ctx, n, sizeof *exec->states);
    exec->state_in = sb_alloc(exec->ctx, n_values, sizeof *exec->state_in);
    exec->state_out = sb_alloc(exec->ctx, n_values, sizeof *exec->state_out);
    if (!exec->states || !exec->state_in || !exec->state_out)
        return SB_NO_MEMORY;
    memcpy(exec->states, opt->states, n * sizeof *exec->states);
    exec->n_states = n;
    for (size_t i = 0; i < n; i++)
        SB_TRY(state_bind(exec, &exec->states[i]));
    return SB_OK;
}

/* ---- planning ----------------------------------------------------------- */

static sb_status state_slot(sb_plan_builder *b, const sb_exec_state *st,
                            uint32_t last, sb_slot **out)
{
    SB_TRY(sb_plan_new_slot(b, SLOT_STATE, &st->state->t, 0, last, out));
    (*out)->state = st;
    b->plan->states[b->plan->n_states++] = *out;
    return SB_OK;
}

sb_status sb_plan_add_states(sb_plan_builder *b)
{
    const sb_exec *exec = b->exec;
    sb_plan *plan = b->plan;

    plan->states = sb_arena_alloc(&plan->arena,
                                  exec->n_states + exec->graph->n_outputs + 1,
                                  sizeof(sb_slot *));
    if (!plan->states)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < exec->n_states; i++) {
        const sb_exec_state *st = &exec->states[i];
        if (st->in != SB_NONE)
            SB_TRY(state_slot(b, st, exec->last_use[st->in],
                              &plan->values[st->in]));
    }
    return SB_OK;
}

/* The step at a position of the order. */
static const sb_step *step_at(const sb_plan *plan, uint32_t position)
{
    size_t lo = 0, hi = plan->n_steps;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (plan->steps[mid]->position < position)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < plan->n_steps && plan->steps[lo]->position == position
               ? plan->steps[lo]
               : NULL;
}

/* The input that the kernel may write over with what lies in `root`; SB_NONE if
 * there is none. */
static uint32_t input_in_place(const sb_step *st, const sb_slot *root)
{
    if (st->k.op->flags & SB_OP_INPLACE_EACH)
        for (uint32_t i = 0; i < st->k.node->n_out; i++)
            if (st->out[i] && st->out[i]->root == root)
                return i < st->k.node->n_in ? i : SB_NONE;
    return st->k.op->flags & SB_OP_INPLACE ? 0 : SB_NONE;
}

/* A kernel that may write `root` over its input, and this is the old state. */
static bool writes_in_place(const sb_step *st, const sb_slot *root,
                            const sb_slot *old)
{
    uint32_t n = st->k.node->n_in + st->k.node->n_implicit;
    uint32_t at = input_in_place(st, root);

    if (at == SB_NONE || st->n_before > 0 || st->n_after > 0 || !st->in[at] ||
        st->in[at]->root != old)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (i != at && st->in[i] && st->in[i]->root == old)
            return false;
    return true;
}

/* May the memory that `s` lies in be the state's, from its first write on? */
static bool can_write_directly(const sb_plan *plan, const sb_slot *s,
                               const sb_exec_state *st)
{
    const sb_slot *root = s->root;
    const sb_slot *old = st->in == SB_NONE ? NULL : plan->values[st->in];

    if (s->kind != SLOT_STATIC || root->kind != SLOT_STATIC ||
        s->t.layout != SB_LAYOUT_PLAIN ||
        sb_tensor_bytes(&root->t) != sb_tensor_bytes(&s->t))
        return false;
    if (!old || old->last < root->first)
        return true;
    const sb_step *producer = step_at(plan, root->first);
    return old->last == root->first && producer &&
           writes_in_place(producer, root, old);
}

static sb_status state_check_out(const sb_plan_builder *b, size_t i,
                                 const sb_slot *s, const sb_exec_state *st)
{
    const sb_tensor *want = &st->state->t;
    char made[128], bound[128];

    if (s->kind != SLOT_DYNAMIC && s->t.dtype == want->dtype &&
        s->t.rank == want->rank &&
        memcmp(s->t.dims, want->dims,
               sizeof want->dims[0] * (size_t)want->rank) == 0)
        return SB_OK;
    (void)sb_tensor_describe(want, bound, sizeof bound);
    if (s->kind == SLOT_DYNAMIC)
        (void)strcpy(made, "of a shape that depends on data");
    else
        (void)sb_tensor_describe(&s->t, made, sizeof made);
    return sb_fail(
        b->exec->ctx, s->kind == SLOT_DYNAMIC ? SB_UNSUPPORTED : SB_BAD_DATA,
        "output '%s' is %s, its state is %s",
        sb_graph_value(b->exec->graph, b->exec->graph->outputs[i])->name, made,
        bound);
}

sb_status sb_plan_bind_output(sb_plan_builder *b, size_t i, sb_slot **s)
{
    sb_plan *plan = b->plan;
    sb_slot *made = *s, *to = NULL;
    sb_value_id v = b->exec->graph->outputs[i];
    const sb_exec_state *st = b->exec->state_out ? b->exec->state_out[v] : NULL;

    if (!st || (made->root->kind == SLOT_STATE && made->root->state == st))
        return SB_OK; /* not bound, or it lies there already */
    SB_TRY(state_check_out(b, i, made, st));
    if (can_write_directly(plan, made, st)) {
        made->root->kind = SLOT_STATE;
        made->root->state = st;
        plan->states[plan->n_states++] = made->root;
        return SB_OK;
    }
    /* What lies in another state must be read before that is written. */
    if (made->root->kind == SLOT_STATE) {
        SB_TRY(sb_plan_new_slot(b, SLOT_STATIC, &made->t, b->position,
                                b->position, &to));
        plan->finals[plan->n_finals++] = (sb_conversion){made, to};
        made = to;
    }
    SB_TRY(state_slot(b, st, POSITION_END, &to));
    plan->writes[plan->n_writes++] = (sb_conversion){made, to};
    *s = to;
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

sb_status sb_plan_set_states(const sb_plan *plan)
{
    const sb_exec *exec = plan->exec;

    for (size_t i = 0; i < plan->n_states; i++) {
        sb_slot *s = plan->states[i];
        const sb_tensor *t = &s->state->state->t;
        if (t->dtype != s->t.dtype || !t->data || !sb_tensor_is_aligned(t) ||
            sb_tensor_bytes(t) != sb_tensor_bytes(&s->t))
            return sb_fail(exec->ctx, SB_BAD_ARG,
                           "state %zu has no memory, or not as planned",
                           (size_t)(s->state - exec->states));
        s->t.data = t->data;
    }
    for (size_t i = 0; i < exec->n_states; i++)
        if (exec->states[i].out != SB_NONE)
            exec->states[i].state->version++;
    return SB_OK;
}
