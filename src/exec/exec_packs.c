/* Inputs of kernels in other forms: packed weights.
 *
 * What lasts (constants and states) is packed once for all steps and plans that
 * want the same form of it, and kept as long as one of them does.  What is
 * computed or given anew at each run gets a place in the workspace, filled at
 * each run.
 *
 * If the program chose how much memory there may be, packs that would take more
 * than half of it lie in temporary files; steps give their pages back. */
#include "exec/plan.h"

#include <string.h>

#include "tensor/mapped.h"

struct sb_pack_entry {
    sb_pack pack;
    sb_value_id value;
    /* The plan's arena, if the value is a constant of that plan alone. */
    const sb_arena *owner;
    sb_pack_form form; /* its bytes follow the struct */
    sb_tensor t;       /* its bytes */
    size_t refs;       /* steps that use it */
    sb_pack_entry *next;
};

static const uint64_t pack_forever = 1; /* the version of a constant */

bool sb_exec_is_const(const sb_exec *exec, sb_value_id v)
{
    const sb_value *value = sb_graph_value(exec->graph, v);

    return exec->consts[v].folded || (value->is_constant && !value->is_input &&
                                      !(exec->state_in && exec->state_in[v]));
}

size_t sb_exec_packed_bytes(const sb_exec *exec)
{
    size_t bytes = 0;

    for (sb_value_id v = 0; v < exec->graph->n_values; v++)
        for (const sb_pack_entry *e = exec->packs[v]; e; e = e->next)
            bytes += e->form.bytes;
    return bytes;
}

/* ---- shared ------------------------------------------------------------- */

static bool pack_same_form(const sb_pack_form *a, const sb_pack_form *b)
{
    return a->bytes == b->bytes && a->at == b->at &&
           a->form_size == b->form_size &&
           memcmp(a->form, b->form, a->form_size) == 0;
}

static sb_status pack_alloc(sb_ctx *ctx, sb_tensor *t)
{
    const size_t code = (size_t)8 << 20; /* that oneDNN wants to be free */
    size_t half = sb_memory_share(ctx, 2, SIZE_MAX);
    size_t used = sb_ctx_memory(ctx) + code;

    return used < half && sb_tensor_bytes(t) <= half - used
               ? sb_tensor_alloc_raw(ctx, t)
               : sb_tensor_alloc_weight_raw(ctx, t);
}

static sb_status pack_create(sb_exec *exec, sb_value_id v,
                             const sb_pack_form *form, sb_pack_entry **out)
{
    sb_pack_entry *e = sb_alloc(exec->ctx, sizeof *e + form->form_size, 1);

    if (!e)
        return SB_NO_MEMORY;
    e->value = v;
    e->form = *form;
    e->form.form = memcpy(e + 1, form->form, form->form_size);
    e->t = sb_tensor_make(SB_DTYPE_U8, 1, &(int64_t){(int64_t)form->bytes});
    sb_status status = pack_alloc(exec->ctx, &e->t);
    if (status != SB_OK) {
        sb_free(exec->ctx, e);
        return status;
    }
    e->pack.data = e->t.data;
    e->pack.version = UINT64_MAX;
    e->next = exec->packs[v];
    exec->packs[v] = e;
    *out = e;
    return SB_OK;
}

static void pack_unref(sb_exec *exec, sb_pack_entry *e)
{
    if (!e || --e->refs > 0)
        return;
    sb_pack_entry **at = &exec->packs[e->value];
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    sb_tensor_drop(&e->t);
    sb_free(exec->ctx, e);
}

/* One more reference to the form of value `v`. */
static sb_status pack_share(sb_exec *exec, sb_value_id v, const sb_arena *owner,
                            const sb_pack_form *form, sb_pack_entry **out)
{
    sb_pack_entry *e = exec->packs[v];

    while (e && (e->owner != owner || !pack_same_form(&e->form, form)))
        e = e->next;
    if (!e)
        SB_TRY(pack_create(exec, v, form, &e));
    e->owner = owner;
    e->refs++;
    *out = e;
    return SB_OK;
}

/* ---- steps -------------------------------------------------------------- */

/* The place of the next pack that the step asks for. */
static sb_status pack_next(sb_step *st, sb_step_pack **out)
{
    if (!st->ask)
        st->ask = &st->packs;
    if (!*st->ask) {
        *st->ask = sb_arena_alloc(st->arena, 1, sizeof **st->ask);
        if (!*st->ask)
            return SB_NO_MEMORY;
    }
    *out = *st->ask;
    st->ask = &(*out)->next;
    return SB_OK;
}

/* Memory of a pack that does not last.  A dynamic step is run at once; a static
 * one gets its place when the plan is laid out. */
static sb_status pack_private(sb_step *st, sb_step_pack *p,
                              const sb_pack_form *form, sb_pack **out)
{
    p->own = (sb_pack){0};
    p->bytes = form->bytes;
    if (st->dynamic && (!p->buf || sb_buf_size(p->buf) < form->bytes)) {
        sb_buf_unref(p->buf);
        p->buf = NULL;
        SB_TRY(sb_buf_create_raw(st->k.ctx, form->bytes, &p->buf));
    }
    if (st->dynamic)
        p->own.data = sb_buf_data(p->buf);
    *out = &p->own;
    return SB_OK;
}

sb_status sb_step_pack_input(sb_step *st, uint32_t i, const sb_pack_form *form,
                             sb_pack **out)
{
    sb_exec *exec = st->exec;
    const sb_slot *s = st->in[i];
    sb_value_id v = st->k.node->inputs[i];
    sb_pack_entry *shared = NULL;
    sb_step_pack *p = NULL;

    SB_TRY(pack_next(st, &p));
    if (st->k.lasting >> i & 1)
        SB_TRY(pack_share(exec, v,
                          s->kind == SLOT_CONST && !sb_exec_is_const(exec, v)
                              ? st->arena
                              : NULL,
                          form, &shared));
    pack_unref(exec, p->shared);
    p->shared = shared;
    if (!shared)
        return pack_private(st, p, form, out);
    shared->pack.current =
        s->kind == SLOT_CONST ? &pack_forever : &s->root->state->state->version;
    *out = &shared->pack;
    return SB_OK;
}

void sb_step_release_pages(const sb_step *st)
{
    for (const sb_step_pack *p = st->packs; p; p = p->next)
        if (p->shared)
            sb_tensor_release_pages(&p->shared->t);
}

void sb_step_drop_packs(sb_step *st)
{
    for (sb_step_pack *p = st->packs; p; p = p->next) {
        pack_unref(st->exec, p->shared);
        p->shared = NULL;
        sb_buf_unref(p->buf);
        p->buf = NULL;
    }
}
