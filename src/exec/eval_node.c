/* Computing one node whose inputs are all known: a dynamic step on its own. */
#include <string.h>

#include "base/simd.h"
#include "exec/plan.h"
#include "tensor/mapped.h"

typedef struct eval {
    sb_exec exec; /* stands in for a real one: context and graph only */
    sb_arena arena;
    sb_slot *slots;
    sb_step *st;
} eval;

static sb_status add_slot(eval *e, sb_slot_kind kind, sb_slot **out)
{
    SB_TRY(sb_slot_create(&e->arena, &e->slots, out));
    (*out)->kind = kind;
    return SB_OK;
}

static sb_status connect_in(eval *e, uint32_t i, const sb_tensor *t)
{
    sb_step *st = e->st;
    sb_slot *temp = NULL;

    if (!t)
        return SB_OK;
    SB_TRY(add_slot(e, SLOT_CONST, &st->in[i]));
    /* Weights may lie anywhere in a mapped file. */
    if (sb_tensor_is_aligned(t))
        st->in[i]->t = sb_tensor_share(t);
    else
        SB_TRY(sb_const_copy(e->exec.ctx, t, t->dtype, &st->in[i]->t));
    st->k_in[i] = &st->in[i]->t;
    if (!sb_step_converts(st->k.op, t->dtype))
        return SB_OK;
    SB_TRY(add_slot(e, SLOT_DYNAMIC, &temp));
    st->before[st->n_before++] = (sb_conversion){st->in[i], temp};
    st->k_in[i] = &temp->t;
    return SB_OK;
}

static sb_status connect_out(eval *e, uint32_t i, sb_dtype dtype)
{
    sb_step *st = e->st;
    sb_slot *temp = NULL;

    SB_TRY(add_slot(e, SLOT_DYNAMIC, &st->out[i]));
    st->k_out[i] = &st->out[i]->t;
    if (!sb_step_converts(st->k.op, dtype))
        return SB_OK;
    SB_TRY(add_slot(e, SLOT_DYNAMIC, &temp));
    st->after[st->n_after++] = (sb_conversion){temp, st->out[i]};
    st->k_out[i] = &temp->t;
    return SB_OK;
}

static sb_status eval_node_prepare(eval *e, const sb_node *node,
                                   const sb_tensor *const *in)
{
    sb_ctx *ctx = e->exec.ctx;
    size_t n = (size_t)node->n_in + node->n_out;

    SB_TRY(sb_step_check_runnable(ctx, e->exec.graph, node));
    SB_TRY(sb_step_create(&e->arena, &e->exec, node, &e->st));
    sb_step *st = e->st;
    st->dynamic = true;
    st->facts = sb_arena_alloc(&e->arena, n, sizeof *st->facts);
    st->in_facts = sb_arena_alloc(&e->arena, node->n_in + 1, sizeof(sb_fact *));
    if (!st->facts || !st->in_facts)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++)
        SB_TRY(connect_in(e, i, in[i]));
    for (uint32_t i = 0; i < node->n_in; i++) {
        st->in_facts[i] = NULL;
        if (st->in[i]) {
            st->facts[i] = sb_fact_of(&st->in[i]->t);
            st->in_facts[i] = &st->facts[i];
        }
    }
    /* Once ahead of the run, only to learn the element types. */
    sb_fact *outs = st->facts + node->n_in;
    SB_TRY(sb_op_infer(ctx, e->exec.graph, node, st->in_facts, outs));
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE)
            SB_TRY(connect_out(e, i, outs[i].type.dtype));
    return add_slot(e, SLOT_DYNAMIC, &st->scratch);
}

/* What is the same as the first input to the last bit, as rounded weights are
 * when they are rounded again, is that buffer. */
static void eval_share_same(const sb_tensor *in, sb_tensor *out)
{
    enum { LEAST = 64 << 10 }; /* bytes that are worth it */

    if (!in || !in->buf || !out->buf || in->dtype != out->dtype ||
        in->rank != out->rank || sb_tensor_bytes(out) < LEAST ||
        memcmp(in->dims, out->dims, sizeof in->dims[0] * (size_t)in->rank) ||
        memcmp(in->data, out->data, sb_tensor_bytes(out)) != 0)
        return;
    sb_tensor_drop(out);
    *out = sb_tensor_share(in);
}

/* Hands over the memory of each output. */
static sb_status take_outputs(eval *e, const sb_node *node,
                              const sb_tensor *const *in, sb_tensor *out)
{
    sb_status status = SB_OK;

    for (uint32_t i = 0; i < node->n_out; i++) {
        sb_slot *s = e->st->out[i];
        out[i] = (sb_tensor){0};
        if (!s)
            continue;
        out[i] = s->t;
        out[i].buf = s->store;
        s->store = NULL;
    }
    if (node->n_in > 0)
        eval_share_same(in[0], &out[0]);
    for (uint32_t i = 0; i < node->n_in; i++)
        if (in[i])
            sb_tensor_release_pages(in[i]);
    for (uint32_t i = 0; i < node->n_out && status == SB_OK; i++)
        status = sb_tensor_settle_weight(e->exec.ctx, &out[i]);
    for (uint32_t i = 0; i < node->n_out && status != SB_OK; i++)
        sb_tensor_drop(&out[i]);
    return status;
}

/* A view of a constant is the same buffer under another shape. */
static bool share_view(eval *e, const sb_node *node, const sb_tensor *const *in,
                       sb_tensor *out)
{
    const sb_type *type = &e->st->facts[node->n_in].type;

    if (!(e->st->k.op->flags & SB_OP_VIEW) || node->n_out != 1 ||
        node->outputs[0] == SB_NONE || !in[0]->buf ||
        type->dtype != in[0]->dtype || !sb_shape_known(&type->shape))
        return false;
    sb_tensor t =
        sb_tensor_make(type->dtype, type->shape.rank, type->shape.dim);
    if (!sb_tensor_size_ok(&t) || sb_tensor_bytes(&t) != sb_tensor_bytes(in[0]))
        return false;
    t.data = in[0]->data;
    t.buf = sb_buf_ref(in[0]->buf);
    out[0] = t;
    return true;
}

sb_status sb_exec_eval(sb_ctx *ctx, const sb_graph *graph, const sb_node *node,
                       const sb_tensor *const *in, sb_tensor *out)
{
    eval e = {.exec = {.ctx = ctx, .graph = graph}};

    sb_arena_init(&e.arena, ctx);
    sb_status status = eval_node_prepare(&e, node, in);
    if (status == SB_OK && !share_view(&e, node, in, out)) {
        uint64_t before = sb_subnormals_off();
        status = sb_step_run(e.st);
        sb_subnormals_restore(before);
        if (status == SB_OK)
            status = take_outputs(&e, node, in, out);
    }
    if (e.st)
        sb_step_release(e.st);
    for (sb_slot *s = e.slots; s; s = s->next)
        sb_slot_free(s);
    sb_arena_free(&e.arena);
    return status;
}
