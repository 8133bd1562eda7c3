/* Places in the workspace: greedy by size.
 *
 * Slots are placed largest first, each at the lowest offset where it does not
 * meet a slot that is in use at the same time (the method that TensorFlow Lite
 * and XNNPACK use; within a few per cent of the lower bound on real networks).
 * Scratch memory of a step is a slot that lives for that one step. */
#include "exec/plan.h"

#include <stdlib.h>
#include <unistd.h>

static int by_size(const void *a, const void *b)
{
    const slot *x = *(slot *const *)a, *y = *(slot *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->last < y->last ? -1 : x->last > y->last;
}

static int by_offset(const slot *a, const slot *b)
{
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* `placed` is kept sorted by offset, so one sweep finds the first gap. */
static size_t first_gap(slot *const *placed, size_t n, const slot *s)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        const slot *p = placed[i];
        if (p->last < s->first || s->last < p->first)
            continue;
        if (p->offset >= at && p->offset - at >= s->bytes)
            break;
        if (p->offset + p->bytes > at)
            at = p->offset + p->bytes;
    }
    return at;
}

static void insert_sorted(slot **placed, size_t n, slot *s)
{
    size_t i = n;

    while (i > 0 && by_offset(placed[i - 1], s) > 0) {
        placed[i] = placed[i - 1];
        i--;
    }
    placed[i] = s;
}

/* Slots that need a place of their own, sizes rounded up to the alignment. */
static size_t collect(const sb_plan *plan, slot **out)
{
    size_t n = 0;

    for (slot *s = plan->slots; s; s = s->next) {
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

static sb_status place_all(sb_plan *plan, slot **todo, slot **placed, size_t n)
{
    size_t size = 0;

    qsort(todo, n, sizeof(slot *), by_size);
    for (size_t i = 0; i < n; i++) {
        slot *s = todo[i];
        size_t end = 0;
        s->offset = first_gap(placed, i, s);
        if (!sb_add_size(s->offset, s->bytes, &end))
            return sb_fail(plan->exec->ctx, SB_NO_MEMORY,
                           "the network's activations are too large");
        insert_sorted(placed, i, s);
        size = end > size ? end : size;
    }
    plan->workspace_size = size;
    return SB_OK;
}

/* More than the machine has is refused here, because the system would promise
 * it and end the process later. */
static sb_status allocate(sb_plan *plan)
{
    sb_ctx *ctx = plan->exec->ctx;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    if (pages > 0 && page > 0 &&
        plan->workspace_size / (size_t)page > (size_t)pages)
        return sb_fail(ctx, SB_NO_MEMORY,
                       "the network needs %zu MB for activations; this "
                       "machine has %zu MB",
                       plan->workspace_size >> 20,
                       (size_t)pages / 1024 * (size_t)page / 1024);
    plan->workspace = sb_alloc_raw(ctx, plan->workspace_size + SB_ALIGN, 1);
    if (!plan->workspace)
        return SB_NO_MEMORY;
    uintptr_t at = (uintptr_t)plan->workspace;
    plan->base =
        (char *)plan->workspace + ((SB_ALIGN - at % SB_ALIGN) % SB_ALIGN);
    return SB_OK;
}

sb_status plan_memory(sb_plan *plan)
{
    sb_ctx *ctx = plan->exec->ctx;
    size_t n = collect(plan, NULL);
    slot **todo = sb_alloc(ctx, 2 * n + 1, sizeof *todo);

    if (!todo)
        return SB_NO_MEMORY;
    (void)collect(plan, todo);
    sb_status status = place_all(plan, todo, todo + n, n);
    sb_free(ctx, todo);
    SB_TRY(status);
    SB_TRY(allocate(plan));
    for (slot *s = plan->slots; s; s = s->next)
        if (s->kind == SLOT_STATIC && s->root->kind == SLOT_STATIC)
            s->t.data = plan->base + s->root->offset;
    return SB_OK;
}
