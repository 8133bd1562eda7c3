/* An allocator that counts what lives and refuses one request. */
#include "sbtest.h"

#include <stdlib.h>

static void *heap_resize(void *user, void *ptr, size_t size)
{
    test_heap *heap = user;

    if (++heap->calls == heap->fail_at) {
        heap->failed++;
        return NULL;
    }
    void *p = realloc(ptr, size ? size : 1);
    if (p && !ptr)
        heap->live++;
    return p;
}

static void heap_free(void *user, void *ptr)
{
    test_heap *heap = user;

    if (ptr)
        heap->live--;
    free(ptr);
}

sb_allocator test_heap_hooks(test_heap *heap)
{
    return (sb_allocator){sizeof(sb_allocator), heap, heap_resize, heap_free};
}

/* One try; true if the n-th request was never reached. */
static bool try_once(const char *what, size_t n,
                     sb_status (*scenario)(sb_ctx *ctx))
{
    test_heap heap = {.fail_at = n};
    sb_allocator hooks = test_heap_hooks(&heap);
    sb_ctx *ctx = NULL;
    sb_status status = sb_ctx_create(&hooks, &ctx);

    if (status == SB_OK)
        status = scenario(ctx);
    if (heap.failed == 0 && status != SB_OK) {
        print_error("%s: fails by itself: %s\n", what, sb_ctx_error(ctx));
        fail();
    }
    if (heap.failed > 0 && status != SB_NO_MEMORY && status != SB_OK) {
        print_error("%s: request %zu refused: status '%s', message '%s'\n",
                    what, n, sb_status_text(status), sb_ctx_error(ctx));
        fail();
    }
    sb_ctx_free(ctx);
    if (heap.live != 0) {
        print_error("%s: request %zu refused: %zu blocks leak\n", what, n,
                    heap.live);
        fail();
    }
    return heap.failed == 0;
}

#if defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__) /* gcc */
#define HAS_ASAN 1
#endif
#ifndef HAS_ASAN
#define HAS_ASAN 0
#endif

/* With a sanitizer, thirty times as slow, later requests are refused in part;
 * other builds refuse each. */
static size_t next_request(size_t n)
{
    return n + 1 + (HAS_ASAN ? n / 256 : 0);
}

void test_every_allocation(const char *what, sb_status (*scenario)(sb_ctx *ctx))
{
    size_t tries = 0;

    for (size_t n = 1; !try_once(what, n, scenario); n = next_request(n))
        tries++;
    print_message("%s: survives each of %zu refusals\n", what, tries);
}
