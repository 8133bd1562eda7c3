/* From a graph and concrete input shapes to a list of steps.
 *
 * One walk over the nodes in order.  What can be computed now is computed now
 * (weights behind DequantizeLinear, shape arithmetic); what has a known shape
 * becomes a static step; the rest becomes a dynamic step that finds its shapes
 * at the run.  Then lifetimes turn into places in the workspace. */
#include "exec/plan.h"

#include <string.h>

/* A folded result may be this much larger than what it came from. */
enum { FOLD_BYTES = 1 << 20, FOLD_FACTOR = 4 };

/* ---- slots -------------------------------------------------------------- */

sb_status sb_plan_new_slot(sb_plan_builder *b, sb_slot_kind kind,
                           const sb_tensor *like, uint32_t first, uint32_t last,
                           sb_slot **out)
{
    sb_slot *s = NULL;

    SB_TRY(sb_slot_create(&b->plan->arena, &b->plan->slots, &s));
    s->kind = kind;
    s->t = *like;
    s->t.buf = NULL;
    s->t.data = NULL;
    s->first = first;
    s->last = last;
    *out = s;
    return SB_OK;
}

/* The slot of a value; constants of the graph get theirs at first use. */
static sb_status slot_of(sb_plan_builder *b, sb_value_id v, sb_slot **out)
{
    sb_slot **place = &b->plan->values[v];
    const sb_tensor *t = NULL;

    if (!*place) {
        SB_TRY(sb_exec_const(b->exec, v, false, &t));
        SB_TRY(sb_plan_new_slot(b, SLOT_CONST, t, 0, 0, place));
        (*place)->t.data = t->data;
    }
    *out = *place;
    return SB_OK;
}

static bool shape_known_now(const sb_slot *s)
{
    return s->kind != SLOT_DYNAMIC;
}

/* ---- folding ------------------------------------------------------------ */

static bool can_fold(const sb_step *st)
{
    const sb_op_def *op = st->k.op;
    uint32_t n = st->k.node->n_in + st->k.node->n_implicit;

    if (!sb_node_is_pure(st->k.node))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const sb_slot *s = st->in[i];
        bool shape_is_enough = i == 0 && (op->flags & SB_OP_SHAPE_ONLY);
        if (s && s->kind != SLOT_CONST &&
            !(shape_is_enough && shape_known_now(s)))
            return false;
    }
    return true;
}

/* Not where a small input would become a huge constant. */
static bool worth_folding(const sb_step *st, const sb_fact *outs)
{
    size_t in_bytes = 0, out_bytes = 0;

    for (uint32_t i = 0; i < st->k.n_in; i++)
        if (st->in[i])
            in_bytes += sb_tensor_bytes(&st->in[i]->t);
    for (uint32_t i = 0; i < st->k.n_out; i++) {
        const sb_type *type = &outs[i].type;
        if (type->dtype == SB_DTYPE_NONE || !sb_shape_known(&type->shape))
            continue;
        sb_tensor t =
            sb_tensor_make(type->dtype, type->shape.rank, type->shape.dim);
        if (!sb_tensor_size_ok(&t))
            return false;
        out_bytes += sb_tensor_bytes(&t);
    }
    return out_bytes <= FOLD_BYTES || out_bytes / FOLD_FACTOR <= in_bytes;
}

/* Keeps a computed tensor: with the executor if it holds for all plans, else
 * with this plan.  Takes the reference of `t`. */
static sb_status keep_folded(sb_plan_builder *b, sb_value_id v, sb_tensor *t,
                             bool for_all)
{
    sb_slot *s = NULL;
    sb_status status = sb_plan_new_slot(b, SLOT_CONST, t, 0, 0, &s);

    if (status != SB_OK) {
        sb_tensor_drop(t);
        return status;
    }
    if (for_all) {
        sb_const_entry *e = &b->exec->consts[v];
        if (e->folded) /* another plan reads that one */
            sb_tensor_drop(t);
        else
            *e = (sb_const_entry){.aligned = *t, .folded = true};
        s->t.data = e->aligned.data;
    } else {
        s->t = *t; /* the slot owns the reference */
    }
    b->plan->values[v] = s;
    b->plan->folded[b->plan->n_folded++] = v;
    return SB_OK;
}

static sb_status fold_node(sb_plan_builder *b, const sb_node *node,
                           const sb_step *st)
{
    sb_ctx *ctx = b->exec->ctx;
    uint32_t n = node->n_in + node->n_implicit;
    const sb_tensor **ins = sb_alloc(ctx, n + 1, sizeof *ins);
    sb_tensor *outs = sb_alloc(ctx, node->n_out, sizeof *outs);
    bool for_all = !(st->k.op->flags & SB_OP_SHAPE_ONLY);
    sb_status status = ins && outs ? SB_OK : SB_NO_MEMORY;

    for (uint32_t i = 0; i < n && status == SB_OK; i++) {
        ins[i] = st->in[i] ? &st->in[i]->t : NULL;
        if (st->in[i] && !sb_exec_is_const(b->exec, node->inputs[i]))
            for_all = false;
    }
    if (status == SB_OK)
        status = sb_exec_eval(ctx, b->exec->graph, node, ins, outs);
    bool evaluated = status == SB_OK;
    for (uint32_t i = 0; evaluated && i < node->n_out; i++) {
        if (node->outputs[i] == SB_NONE || status != SB_OK)
            sb_tensor_drop(&outs[i]);
        else
            status = keep_folded(b, node->outputs[i], &outs[i], for_all);
    }
    sb_free(ctx, ins);
    sb_free(ctx, outs);
    return status;
}

/* A result of an earlier plan that holds for this one too. */
static sb_status reuse_folded(sb_plan_builder *b, const sb_node *node,
                              bool *done)
{
    *done = true;
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE &&
            !b->exec->consts[node->outputs[i]].folded)
            *done = false;
    for (uint32_t i = 0; *done && i < node->n_out; i++) {
        sb_slot *s = NULL;
        if (node->outputs[i] == SB_NONE)
            continue;
        SB_TRY(slot_of(b, node->outputs[i], &s));
        b->plan->folded[b->plan->n_folded++] = node->outputs[i];
    }
    return SB_OK;
}

/* ---- static and dynamic steps ------------------------------------------- */

static sb_status make_outputs(sb_plan_builder *b, const sb_node *node,
                              sb_step *st, const sb_fact *outs)
{
    for (uint32_t i = 0; i < node->n_out; i++) {
        sb_value_id v = node->outputs[i];
        const sb_type *type = &outs[i].type;
        bool known = type->dtype != SB_DTYPE_NONE &&
                     sb_shape_known(&type->shape) &&
                     !(st->k.op->flags & SB_OP_DATA_SHAPE);
        if (v == SB_NONE)
            continue;
        sb_tensor like = {.dtype = type->dtype};
        if (known) {
            like =
                sb_tensor_make(type->dtype, type->shape.rank, type->shape.dim);
            if (!sb_tensor_size_ok(&like))
                return sb_fail(b->exec->ctx, SB_BAD_MODEL,
                               "node '%s' (%s): output %u is too large",
                               sb_node_label(b->exec->graph, node), node->op,
                               i);
        } else {
            st->dynamic = true;
        }
        uint32_t last = b->exec->last_use[v];
        SB_TRY(sb_plan_new_slot(
            b, known ? SLOT_STATIC : SLOT_DYNAMIC, &like, b->position,
            last < b->position ? b->position : last, &b->plan->values[v]));
        st->out[i] = b->plan->values[v];
        if (i == 0)
            st->out[i]->producer = st;
    }
    return SB_OK;
}

/* No other input lies in the same memory.  The very same value twice is fine
 * where elements meet one to one, but not as a convolution's input. */
static bool only_this_input(const sb_step *st, const sb_slot *x)
{
    bool one_to_one = st->k.op->flags & SB_OP_ELEMENTWISE;
    uint32_t n = st->k.node->n_in + st->k.node->n_implicit, seen = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (!st->in[i] || st->in[i]->root != x->root)
            continue;
        if (st->in[i] != x || (seen++ && !one_to_one))
            return false;
    }
    return true;
}

static bool is_view(const sb_step *st, const sb_slot *x, const sb_slot *y)
{
    if (st->k.op->is_view)
        return st->k.op->is_view(&st->k);
    return (st->k.op->flags & SB_OP_VIEW) && x->t.layout == y->t.layout;
}

/* `y` lies where `x` lies, for as long as it lives. */
void sb_slot_alias(sb_slot *y, const sb_slot *x)
{
    sb_slot *root = x->root;

    y->root = root;
    y->version = x->version;
    y->t.data = x->t.data; /* of a constant; NULL otherwise */
    if ((root->kind == SLOT_STATIC || root->kind == SLOT_STATE) &&
        root->last < y->last)
        root->last = y->last;
}

/* Lets output 0 lie where an input lies: a view always, a result in place when
 * the input has no later consumer. */
static void share_memory(sb_plan_builder *b, sb_step *st)
{
    uint32_t flags = st->k.op->flags;
    uint32_t from = flags & SB_OP_INPLACE_SUM ? 3 : 0;
    sb_slot *x = from < st->k.n_in ? st->in[from] : NULL, *y = st->out[0];

    if (!x || !y || st->dynamic || x->kind == SLOT_DYNAMIC ||
        sb_step_converts(st->k.op, x->t.dtype) ||
        sb_tensor_bytes(&x->t) != sb_tensor_bytes(&y->t))
        return;
    sb_slot *root = x->root;
    if (is_view(st, x, y)) {
        sb_slot_alias(y, x);
    } else if ((flags & (SB_OP_INPLACE | SB_OP_INPLACE_SUM)) &&
               x->t.layout == y->t.layout && root->kind == SLOT_STATIC &&
               root->last == b->position && only_this_input(st, x)) {
        root->writes++; /* what is there is not the old value any more */
        y->root = root;
        y->version = root->writes;
        root->last = y->last;
    }
}

/* Input i as the kernel sees it, through a temporary in f32 if need be. */
static sb_status connect_input(sb_plan_builder *b, sb_step *st, uint32_t i)
{
    sb_slot *s = st->in[i];

    if (!s)
        return SB_OK;
    st->k_in[i] = &s->t;
    if (i >= st->k.n_in || !sb_step_converts(st->k.op, s->t.dtype))
        return SB_OK;
    sb_tensor like = s->t;
    like.dtype = SB_DTYPE_F32;
    sb_slot *temp = NULL;
    sb_value_id v = st->k.node->inputs[i];
    if (s->kind == SLOT_CONST && sb_exec_is_const(b->exec, v) && !st->dynamic) {
        const sb_tensor *c = NULL;
        SB_TRY(sb_exec_const(b->exec, v, true, &c));
        SB_TRY(sb_plan_new_slot(b, SLOT_CONST, &like, 0, 0, &temp));
        temp->t.data = c->data;
    } else {
        SB_TRY(sb_plan_new_slot(b, st->dynamic ? SLOT_DYNAMIC : SLOT_STATIC,
                                &like, b->position, b->position, &temp));
        st->before[st->n_before++] = (sb_conversion){s, temp};
    }
    st->k_in[i] = &temp->t;
    return SB_OK;
}

static sb_status connect_output(sb_plan_builder *b, sb_step *st, uint32_t i)
{
    sb_slot *s = st->out[i];

    if (!s)
        return SB_OK;
    st->k_out[i] = &s->t;
    if ((st->k.op->flags & SB_OP_DATA_SHAPE) ||
        !sb_step_converts(st->k.op, s->t.dtype))
        return SB_OK;
    sb_tensor like = s->t;
    like.dtype = SB_DTYPE_F32;
    sb_slot *temp = NULL;
    SB_TRY(sb_plan_new_slot(b, st->dynamic ? SLOT_DYNAMIC : SLOT_STATIC, &like,
                            b->position, b->position, &temp));
    st->after[st->n_after++] = (sb_conversion){temp, s};
    st->k_out[i] = &temp->t;
    return SB_OK;
}

/* Places for inputs that are packed at each run. */
static sb_status add_pack_rooms(sb_plan_builder *b, sb_step *st)
{
    for (sb_step_pack *p = st->packs; p; p = p->next) {
        if (p->shared)
            continue;
        sb_tensor like =
            sb_tensor_make(SB_DTYPE_U8, 1, &(int64_t){(int64_t)p->bytes});
        SB_TRY(sb_plan_new_slot(b, SLOT_STATIC, &like, b->position, b->position,
                                &p->room));
    }
    return SB_OK;
}

static sb_status prepare_step(sb_plan_builder *b, sb_step *st)
{
    sb_kernel *k = &st->k;

    if (st->dynamic) {
        size_t n = (size_t)k->n_in + k->n_out;
        st->facts = sb_arena_alloc(&b->plan->arena, n, sizeof *st->facts);
        st->in_facts =
            sb_arena_alloc(&b->plan->arena, k->n_in + 1, sizeof(sb_fact *));
        if (!st->facts || !st->in_facts)
            return SB_NO_MEMORY;
        return sb_plan_new_slot(b, SLOT_DYNAMIC, &(sb_tensor){0}, 0, 0,
                                &st->scratch);
    }
    SB_TRY(sb_step_check_types(k));
    if (k->op->prepare)
        SB_TRY(k->op->prepare(k));
    SB_TRY(add_pack_rooms(b, st));
    if (k->scratch_size == 0)
        return SB_OK;
    sb_tensor like =
        sb_tensor_make(SB_DTYPE_U8, 1, &(int64_t){(int64_t)k->scratch_size});
    return sb_plan_new_slot(b, SLOT_STATIC, &like, b->position, b->position,
                            &st->scratch);
}

static sb_status finish_step(sb_plan_builder *b, const sb_node *node,
                             sb_step *st, const sb_fact *outs)
{
    uint32_t n = node->n_in + node->n_implicit;

    for (uint32_t i = 0; i < n; i++)
        if (st->in[i] && st->in[i]->kind == SLOT_DYNAMIC)
            st->dynamic = true;
    SB_TRY(make_outputs(b, node, st, outs));
    SB_TRY(sb_plan_settle_layouts(b, node, st));
    share_memory(b, st);
    for (uint32_t i = 0; i < n; i++)
        SB_TRY(connect_input(b, st, i));
    for (uint32_t i = 0; i < node->n_out; i++)
        SB_TRY(connect_output(b, st, i));
    for (uint32_t i = 0; i < st->k.n_in && i < 32; i++)
        if (st->in[i] && (st->in[i]->kind == SLOT_CONST ||
                          st->in[i]->root->kind == SLOT_STATE))
            st->k.lasting |= 1u << i;
    return prepare_step(b, st);
}

/* Facts for inference; unknown where the shape comes only at the run. */
static void gather_facts(sb_plan_builder *b, const sb_step *st)
{
    for (uint32_t i = 0; i < st->k.n_in; i++) {
        const sb_slot *s = st->in[i];
        b->ins[i] = NULL;
        if (!s)
            continue;
        b->facts[i] = sb_fact_unknown();
        if (shape_known_now(s)) {
            sb_tensor t = s->t;
            if (s->kind != SLOT_CONST)
                t.data = NULL;
            b->facts[i] = sb_fact_of(&t);
            if (s->kind == SLOT_CONST)
                b->facts[i].constant = &s->t;
        } else {
            b->facts[i].type.dtype = s->t.dtype;
        }
        b->ins[i] = &b->facts[i];
    }
}

static sb_status add_node(sb_plan_builder *b, const sb_node *node)
{
    sb_exec *exec = b->exec;
    uint32_t n = node->n_in + node->n_implicit;
    sb_fact *outs = b->facts + node->n_in;
    sb_step *st = NULL;
    bool reused = false;

    SB_TRY(sb_step_check_runnable(exec->ctx, exec->graph, node));
    SB_TRY(reuse_folded(b, node, &reused));
    if (reused)
        return SB_OK;
    SB_TRY(sb_step_create(&b->plan->arena, exec, node, &st));
    for (uint32_t i = 0; i < n; i++)
        if (node->inputs[i] != SB_NONE)
            SB_TRY(slot_of(b, node->inputs[i], &st->in[i]));
    gather_facts(b, st);
    SB_TRY(sb_op_infer(exec->ctx, exec->graph, node, b->ins, outs));
    bool folds = can_fold(st) && worth_folding(st, outs);
    if (folds) {
        SB_TRY(fold_node(b, node, st));
    } else {
        st->position = b->position;
        b->plan->steps[b->plan->n_steps++] = st;
        SB_TRY(finish_step(b, node, st, outs));
    }
    sb_plan_drop_packed(b, node, folds ? NULL : st);
    return SB_OK;
}

/* ---- the plan ----------------------------------------------------------- */

static sb_status add_all_given(sb_plan_builder *b,
                               const sb_tensor *const *inputs,
                               const sb_tensor *const *captured)
{
    const sb_graph *g = b->exec->graph;
    sb_plan *plan = b->plan;
    size_t n = g->n_inputs + g->n_captures;

    plan->key = sb_arena_alloc(&plan->arena, n + 1, sizeof *plan->key);
    if (!plan->key)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        bool input = i < g->n_inputs;
        const sb_tensor *t = input ? inputs[i] : captured[i - g->n_inputs];
        plan->key[i] = (sb_tensor){.rank = -1};
        if (!t) /* the default of an optional input stands */
            continue;
        plan->key[i] = *t;
        plan->key[i].buf = NULL;
        plan->key[i].data = NULL;
        sb_value_id v = input ? g->inputs[i] : g->captures[i - g->n_inputs];
        SB_TRY(sb_plan_new_slot(b, SLOT_GIVEN, t, 0, POSITION_END,
                                &plan->values[v]));
    }
    return SB_OK;
}

/* Outputs are handed out in NCHW order, unless they are wanted as they are. */
static sb_status add_outputs(sb_plan_builder *b)
{
    const sb_graph *g = b->exec->graph;
    sb_plan *plan = b->plan;
    size_t n = g->n_outputs + 1;

    plan->outputs = sb_arena_alloc(&plan->arena, n, sizeof(sb_slot *));
    plan->finals = sb_arena_alloc(&plan->arena, 2 * n, sizeof *plan->finals);
    plan->writes = sb_arena_alloc(&plan->arena, n, sizeof *plan->writes);
    if (!plan->outputs || !plan->finals || !plan->writes)
        return SB_NO_MEMORY;
    b->position = POSITION_END;
    for (size_t i = 0; i < g->n_outputs; i++) {
        sb_slot *s = NULL;
        SB_TRY(slot_of(b, g->outputs[i], &s));
        plan->outputs[i] = s;
        if (s->kind != SLOT_DYNAMIC && !b->exec->opt.as_made)
            SB_TRY(sb_plan_in_layout(b, s, SB_LAYOUT_PLAIN, plan->finals,
                                     &plan->n_finals, &plan->outputs[i]));
        SB_TRY(sb_plan_bind_output(b, i, &plan->outputs[i]));
    }
    return SB_OK;
}

/* A step that only scans a value may see it while it is produced. */
static void find_watchers(sb_plan *plan)
{
    for (size_t i = 1; i < plan->n_steps; i++) {
        sb_step *st = plan->steps[i];
        if (!st->k.op->tap || st->dynamic || st->n_before > 0 ||
            st->in[0]->kind != SLOT_STATIC)
            continue;
        sb_step *producer = st->in[0]->producer;
        if (producer && !producer->dynamic && producer->n_after == 0 &&
            !producer->watcher)
            producer->watcher = st;
    }
}

static sb_status build_steps(sb_plan_builder *b, const sb_tensor *const *inputs,
                             const sb_tensor *const *captured)
{
    sb_exec *exec = b->exec;
    const sb_graph *g = exec->graph;
    sb_plan *plan = b->plan;
    sb_arena *arena = &plan->arena;
    size_t most = 1;

    plan->values = sb_arena_alloc(arena, g->n_values + 1, sizeof(sb_slot *));
    plan->steps = sb_arena_alloc(arena, exec->n_order + 1, sizeof(sb_step *));
    plan->folded = sb_arena_alloc(arena, g->n_values + 1, sizeof *plan->folded);
    for (size_t i = 0; i < exec->n_order; i++) {
        const sb_node *node = sb_graph_node(g, exec->order[i]);
        size_t n = (size_t)node->n_in + node->n_implicit + node->n_out;
        most = n > most ? n : most;
    }
    b->facts = sb_arena_alloc(arena, most, sizeof *b->facts);
    b->ins = sb_arena_alloc(arena, most, sizeof *b->ins);
    if (!plan->values || !plan->steps || !plan->folded || !b->facts || !b->ins)
        return SB_NO_MEMORY;
    SB_TRY(sb_plan_find_kept(b));
    SB_TRY(sb_plan_add_states(b));
    SB_TRY(add_all_given(b, inputs, captured));
    for (size_t i = 0; i < exec->n_order; i++) {
        SB_TRY(sb_progress(exec->ctx, "prepare", i, exec->n_order));
        b->position = (uint32_t)i;
        if (exec->needed[exec->order[i]])
            SB_TRY(add_node(b, sb_graph_node(g, exec->order[i])));
    }
    SB_TRY(add_outputs(b));
    SB_TRY(sb_plan_memory(plan));
    if (exec->opt.tap)
        find_watchers(plan);
    if (exec->opt.profile)
        SB_TRY(sb_profile_create(plan));
    return SB_OK;
}

sb_status sb_plan_build(sb_exec *exec, const sb_tensor *const *inputs,
                        const sb_tensor *const *captured, sb_plan **out)
{
    sb_plan *plan = sb_alloc(exec->ctx, 1, sizeof *plan);

    if (!plan)
        return SB_NO_MEMORY;
    plan->exec = exec;
    sb_arena_init(&plan->arena, exec->ctx);
    sb_plan_builder b = {.exec = exec, .plan = plan};
    sb_status status = build_steps(&b, inputs, captured);
    if (status == SB_OK)
        *out = plan;
    else
        sb_plan_free(plan);
    return status;
}

void sb_plan_free(sb_plan *plan)
{
    if (!plan)
        return;
    sb_ctx *ctx = plan->exec->ctx;
    for (size_t i = 0; i < plan->n_steps; i++)
        sb_step_release(plan->steps[i]);
    for (sb_slot *s = plan->slots; s; s = s->next)
        sb_slot_free(s);
    sb_profile_free(plan);
    sb_arena_free(&plan->arena);
    sb_free(ctx, plan);
}
