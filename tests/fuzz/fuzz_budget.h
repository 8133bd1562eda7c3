/* fuzz_budget.h - an allocator with a limit, so that an absurd tensor is an
 * error and not minutes of work. */
#ifndef SB_TESTS_FUZZ_BUDGET_H
#define SB_TESTS_FUZZ_BUDGET_H

#include <stddef.h>
#include <stdlib.h>

enum { MOST_BYTES = 64 << 20 };

/* The size before each block, so that what lives can be added up. */
typedef struct {
    size_t live;
} budget;

typedef union {
    size_t size;
    max_align_t align;
} header;

static void budget_free(void *user, void *ptr)
{
    if (ptr) {
        header *h = (header *)ptr - 1;

        ((budget *)user)->live -= h->size;
        free(h);
    }
}

static void *budget_resize(void *user, void *ptr, size_t size)
{
    budget *b = user;
    header *old = ptr ? (header *)ptr - 1 : NULL;
    size_t before = old ? old->size : 0;

    if (size > MOST_BYTES || b->live - before + size > MOST_BYTES)
        return NULL;
    header *h = realloc(old, sizeof *h + size);
    if (!h)
        return NULL;
    b->live += size - before;
    h->size = size;
    return h + 1;
}

#endif
