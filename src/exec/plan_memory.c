/* Places in the workspace: greedy by size.
 *
 * Slots are placed largest first, each at the lowest offset where it does not
 * meet a slot that is in use at the same time (the method that TensorFlow Lite
 * and XNNPACK use; within a few per cent of the lower bound on real networks).
 * Scratch memory of a step is a slot that lives for that one step.
 *
 * That takes the square of the number of slots, so that only the GREEDY_MOST
 * largest are placed so, all of any network that people run.  The others lie
 * above them, in pools of equal sizes, in the order of time. */
#include "exec/plan.h"

#include <stdlib.h>

enum { GREEDY_MOST = 4096 };

static int by_size(const void *a, const void *b)
{
    const sb_slot *x = *(sb_slot *const *)a, *y = *(sb_slot *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->last < y->last ? -1 : x->last > y->last;
}

static int by_offset(const sb_slot *a, const sb_slot *b)
{
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* `placed` is kept sorted by offset, so one sweep finds the first gap. */
static size_t first_gap(sb_slot *const *placed, size_t n, const sb_slot *s)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        const sb_slot *p = placed[i];
        if (p->last < s->first || s->last < p->first)
            continue;
        if (p->offset >= at && p->offset - at >= s->bytes)
            break;
        if (p->offset + p->bytes > at)
            at = p->offset + p->bytes;
    }
    return at;
}

static void insert_sorted(sb_slot **placed, size_t n, sb_slot *s)
{
    size_t i = n;

    while (i > 0 && by_offset(placed[i - 1], s) > 0) {
        placed[i] = placed[i - 1];
        i--;
    }
    placed[i] = s;
}

/* Slots that need a place of their own, sizes rounded up to the alignment. */
static size_t plan_memory_collect(const sb_plan *plan, sb_slot **out)
{
    size_t n = 0;

    for (sb_slot *s = plan->slots; s; s = s->next) {
        if (s->kind != SLOT_STATIC || s->root != s)
            continue;
        size_t bytes = sb_tensor_bytes(&s->t);
        s->bytes =
            bytes ? (bytes + SB_ALIGN - 1) & ~(size_t)(SB_ALIGN - 1) : SB_ALIGN;
        if (out)
            out[n] = s;
        n++;
    }
    return n;
}

static sb_status place_too_large(const sb_plan *plan)
{
    return sb_fail(plan->exec->ctx, SB_NO_MEMORY,
                   "the network's activations are too large");
}

/* Each where it fits; `placed` is room for `n`. */
static sb_status place_greedily(sb_plan *plan, sb_slot **todo, sb_slot **placed,
                                size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sb_slot *s = todo[i];
        size_t end = 0;
        s->offset = first_gap(placed, i, s);
        if (!sb_add_size(s->offset, s->bytes, &end))
            return place_too_large(plan);
        insert_sorted(placed, i, s);
        if (end > plan->workspace_size)
            plan->workspace_size = end;
    }
    return SB_OK;
}

static int by_end(const void *a, const void *b)
{
    const sb_slot *x = *(sb_slot *const *)a, *y = *(sb_slot *const *)b;

    return x->last < y->last ? -1 : x->last > y->last;
}

/* Slots of one size, sorted by `first`; `ends` is room for as many.  A slot
 * takes the place of the one that ended first, if one has. */
static sb_status place_pool(sb_plan *plan, sb_slot **todo, sb_slot **ends,
                            size_t n)
{
    size_t over = 0;

    for (size_t i = 0; i < n; i++)
        ends[i] = todo[i];
    qsort(ends, n, sizeof(sb_slot *), by_end);
    for (size_t i = 0; i < n; i++) {
        sb_slot *s = todo[i];
        if (ends[over]->last < s->first) {
            s->offset = ends[over++]->offset;
            continue;
        }
        s->offset = plan->workspace_size;
        if (!sb_add_size(s->offset, s->bytes, &plan->workspace_size))
            return place_too_large(plan);
    }
    return SB_OK;
}

static sb_status place_all(sb_plan *plan, sb_slot **todo, sb_slot **room,
                           size_t n)
{
    size_t i = n < GREEDY_MOST ? n : GREEDY_MOST;

    plan->workspace_size = 0;
    qsort(todo, n, sizeof(sb_slot *), by_size);
    SB_TRY(place_greedily(plan, todo, room, i));
    while (i < n) {
        size_t end = i + 1;
        while (end < n && todo[end]->bytes == todo[i]->bytes)
            end++;
        SB_TRY(place_pool(plan, todo + i, room, end - i));
        i = end;
    }
    return SB_OK;
}

/* Says which node wants most of the memory that there is not. */
static sb_status workspace_blame(const sb_plan *plan)
{
    const sb_slot *most = NULL;
    const sb_node *node = NULL;

    for (const sb_slot *s = plan->slots; s; s = s->next)
        if (s->kind == SLOT_STATIC && s->root == s &&
            (!most || s->bytes > most->bytes))
            most = s;
    for (size_t i = 0; most && i < plan->n_steps; i++)
        if (plan->steps[i]->position <= most->first)
            node = plan->steps[i]->k.node;
    if (!node)
        return SB_NO_MEMORY;
    return sb_note(plan->exec->ctx, SB_NO_MEMORY,
                   "for activations; node '%s' alone wants %.1f MB",
                   sb_node_label(plan->exec->graph, node),
                   (double)most->bytes / (1 << 20));
}

/* Only one plan runs at a time, so that all share the memory of the largest. */
static sb_status workspace_grow(const sb_plan *plan)
{
    sb_status status = sb_workspace_reserve(
        plan->exec->ctx, plan->workspace_size, plan->exec->workspace);

    return status == SB_OK ? status : workspace_blame(plan);
}

sb_status sb_workspace_reserve(sb_ctx *ctx, size_t size, sb_workspace *w)
{
    if (w->memory && w->size >= size)
        return SB_OK;
    sb_workspace_free(ctx, w);
    w->memory = sb_alloc_raw(ctx, size + SB_ALIGN, 1);
    if (!w->memory)
        return SB_NO_MEMORY;
    uintptr_t at = (uintptr_t)w->memory;
    w->base = (char *)w->memory + ((SB_ALIGN - at % SB_ALIGN) % SB_ALIGN);
    w->size = size;
    return SB_OK;
}

void sb_workspace_free(sb_ctx *ctx, sb_workspace *w)
{
    sb_free(ctx, w->memory);
    *w = (sb_workspace){0};
}

sb_status sb_plan_settle(sb_plan *plan)
{
    sb_exec *exec = plan->exec;

    SB_TRY(workspace_grow(plan));
    if (plan->base == exec->workspace->base)
        return SB_OK;
    plan->base = exec->workspace->base;
    for (sb_slot *s = plan->slots; s; s = s->next)
        if (s->kind == SLOT_STATIC && s->root->kind == SLOT_STATIC)
            s->t.data = exec->workspace->base + s->root->offset;
    for (size_t i = 0; i < plan->n_steps; i++) {
        sb_step *st = plan->steps[i];
        if (st->scratch && !st->dynamic)
            st->k.scratch = st->scratch->t.data;
        for (sb_step_pack *p = st->packs; p; p = p->next)
            if (p->room)
                p->own.data = p->room->t.data;
    }
    return SB_OK;
}

sb_status sb_plan_memory(sb_plan *plan)
{
    sb_ctx *ctx = plan->exec->ctx;
    size_t n = plan_memory_collect(plan, NULL);
    sb_slot **todo = sb_alloc(ctx, 2 * n + 1, sizeof *todo);

    if (!todo)
        return SB_NO_MEMORY;
    (void)plan_memory_collect(plan, todo);
    sb_status status = place_all(plan, todo, todo + n, n);
    sb_free(ctx, todo);
    SB_TRY(status);
    return sb_plan_settle(plan);
}
