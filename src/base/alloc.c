/* Allocation through the context's hooks, with checked size arithmetic.
 * This is the only file that calls malloc. */
#define _DEFAULT_SOURCE
#include "base/alloc.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum {
    HUGE_PAGE = 2 << 20,
    HUGE_LEAST = 4 << 20,
    UNASKED_MOST = 256 << 20, /* every machine has this */
};

/* Asks for large pages in a large piece of memory: fewer faults while it is
 * filled, fewer misses while it is used.  The system may decline. */
static void advise_huge_pages(void *ptr, size_t size)
{
#ifdef MADV_HUGEPAGE
    uintptr_t begin = ((uintptr_t)ptr + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t end = ((uintptr_t)ptr + size) / HUGE_PAGE * HUGE_PAGE;

    if (end > begin)
        (void)madvise((char *)ptr + (begin - (uintptr_t)ptr), end - begin,
                      MADV_HUGEPAGE);
#else
    (void)ptr;
    (void)size;
#endif
}

static void *default_realloc(void *user, void *ptr, size_t size)
{
    void *p = realloc(ptr, size);

    (void)user;
    if (p && size >= HUGE_LEAST)
        advise_huge_pages(p, size);
    return p;
}

static void default_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

const sb_allocator sb_default_allocator = {sizeof(sb_allocator), NULL,
                                           default_realloc, default_free};

static const sb_allocator *allocator_of(const sb_ctx *ctx)
{
    return ctx->alloc.resize ? &ctx->alloc : &sb_default_allocator;
}

bool sb_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool sb_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool sb_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool sb_add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static void *no_memory(sb_ctx *ctx, size_t bytes)
{
    (void)sb_fail(ctx, SB_NO_MEMORY, "out of memory: wanted %zu bytes", bytes);
    return NULL;
}

/* ---- what the machine has ----------------------------------------------- */

/* The number at the start of a small file, or `none`. */
static size_t number_in_file(const char *path, size_t none)
{
    char text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        (void)close(fd);
    if (n <= 0 || text[0] < '0' || text[0] > '9') /* "max": no limit */
        return none;
    unsigned long long value = strtoull(text, NULL, 10);
    return value < none ? (size_t)value : none;
}

/* The least limit of a group and those that it lies in. */
static size_t limit_of_group(const char *root, char *group, const char *file,
                             size_t most)
{
    char path[PATH_MAX];

    for (;;) {
        (void)snprintf(path, sizeof path, "%s%s/%s", root, group, file);
        most = number_in_file(path, most);
        char *slash = strrchr(group, '/');
        if (!slash)
            return most;
        *slash = '\0';
    }
}

/* What the control groups of this process allow, in both versions: lines
 * `0::/group` and `4:memory:/group` of /proc/self/cgroup. */
static size_t limit_of_groups(size_t most)
{
    char text[4096];
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n");
        char *names = line + strcspn(line, ":");
        char *group = *names ? strchr(names + 1, ':') : NULL;
        char *next = end + (*end == '\n');
        *end = '\0';
        if (group && group < end && strncmp(line, "0::", 3) == 0)
            most =
                limit_of_group("/sys/fs/cgroup", group + 1, "memory.max", most);
        else if (group && group < end && strncmp(names, ":memory:", 8) == 0)
            most = limit_of_group("/sys/fs/cgroup/memory", group + 1,
                                  "memory.limit_in_bytes", most);
        line = next;
    }
    return most;
}

/* Memory and swap space, or less if this process may not have them. */
static size_t machine_memory(void)
{
    struct sysinfo info;
    size_t most = SIZE_MAX;

    if (sysinfo(&info) == 0 &&
        (!sb_add_size(info.totalram, info.totalswap, &most) ||
         !sb_mul_size(most, info.mem_unit, &most)))
        most = SIZE_MAX;
    return limit_of_groups(most);
}

/* ---- the budget --------------------------------------------------------- */

static size_t budget_most(sb_budget *b)
{
    size_t most = atomic_load_explicit(&b->most, memory_order_relaxed);

    if (most == 0) {
        most = machine_memory();
        atomic_store_explicit(&b->most, most, memory_order_relaxed);
    }
    return most;
}

static void budget_give(sb_ctx *ctx, size_t size)
{
    (void)atomic_fetch_sub_explicit(&ctx->budget->used, size,
                                    memory_order_relaxed);
}

static double alloc_megabytes(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* Counts `size` more bytes; false, with a message, if they are too many. */
static bool budget_take(sb_ctx *ctx, size_t size)
{
    sb_budget *b = ctx->budget;
    size_t used =
        atomic_fetch_add_explicit(&b->used, size, memory_order_relaxed);

    if (!b->chosen && size <= UNASKED_MOST && used <= UNASKED_MOST)
        return true;
    size_t most = budget_most(b);
    if (used <= most && size <= most - used)
        return true;
    budget_give(ctx, size);
    (void)sb_fail(ctx, SB_NO_MEMORY,
                  "out of memory: wanted %.1f MB more with %.1f MB in use, "
                  "%s %.1f MB",
                  alloc_megabytes(size), alloc_megabytes(used),
                  b->chosen ? "the limit is" : "this machine has",
                  alloc_megabytes(most));
    return false;
}

void sb_ctx_set_max_memory(sb_ctx *ctx, size_t bytes)
{
    ctx->budget->chosen = bytes > 0;
    atomic_store(&ctx->budget->most, bytes);
}

size_t sb_memory_share(const sb_ctx *ctx, size_t part, size_t none)
{
    size_t most = atomic_load(&ctx->budget->most);

    return ctx->budget->chosen && most != SIZE_MAX ? most / part : none;
}

size_t sb_ctx_memory(const sb_ctx *ctx)
{
    return atomic_load(&ctx->budget->used);
}

/* ---- memory ------------------------------------------------------------- */

/* Lies before all memory, so that the budget gets back what it gave. */
typedef union alloc_head {
    size_t size;
    max_align_t align;
} alloc_head;

static void *alloc_resize(sb_ctx *ctx, void *ptr, size_t size)
{
    const sb_allocator *a = allocator_of(ctx);
    alloc_head *head = ptr ? (alloc_head *)ptr - 1 : NULL;
    size_t old = head ? head->size : 0, bytes = 0;

    if (!sb_add_size(size, sizeof *head, &bytes))
        return no_memory(ctx, size);
    if (size > old && !budget_take(ctx, size - old))
        return NULL;
    head = a->resize(a->user, head, bytes);
    if (!head) {
        if (size > old)
            budget_give(ctx, size - old);
        return no_memory(ctx, size);
    }
    if (size < old)
        budget_give(ctx, old - size);
    head->size = size;
    return head + 1;
}

void *sb_alloc_raw(sb_ctx *ctx, size_t count, size_t size)
{
    size_t bytes = 0;

    if (!sb_mul_size(count, size, &bytes)) {
        (void)sb_fail(ctx, SB_NO_MEMORY, "out of memory: %zu x %zu bytes",
                      count, size);
        return NULL;
    }
    return alloc_resize(ctx, NULL, bytes);
}

void *sb_alloc(sb_ctx *ctx, size_t count, size_t size)
{
    void *p = sb_alloc_raw(ctx, count, size);

    if (p)
        memset(p, 0, count * size);
    return p;
}

void sb_free(sb_ctx *ctx, void *ptr)
{
    const sb_allocator *a = allocator_of(ctx);
    alloc_head *head = ptr;

    if (!ptr)
        return;
    budget_give(ctx, head[-1].size);
    a->free(a->user, head - 1);
}

/* What lies before memory that the caller frees. */
typedef union memory_head {
    sb_ctx *ctx;
    max_align_t align;
} memory_head;

sb_status sb_memory_create(sb_ctx *ctx, const void *data, size_t size,
                           void *out)
{
    size_t bytes = 0;

    if (!sb_add_size(size, sizeof(memory_head) + 1, &bytes))
        return sb_fail(ctx, SB_NO_MEMORY, "out of memory: wanted %zu bytes",
                       size);
    memory_head *head = sb_alloc_raw(ctx, bytes, 1);
    if (!head)
        return SB_NO_MEMORY;
    head->ctx = ctx;
    char *memory = (char *)(head + 1);
    if (data && size)
        memcpy(memory, data, size);
    memory[size] = '\0';
    memcpy(out, &memory, sizeof memory);
    return SB_OK;
}

void sb_memory_free(void *memory)
{
    memory_head *head = memory;

    if (head)
        sb_free(head[-1].ctx, head - 1);
}

static void *map_pages(size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Does the program bring hooks of its own? */
static bool has_hooks(const sb_ctx *ctx)
{
    return allocator_of(ctx)->resize != default_realloc;
}

void *sb_alloc_pages(sb_ctx *ctx, size_t bytes)
{
    if (has_hooks(ctx))
        return sb_alloc(ctx, bytes, 1);
    if (!budget_take(ctx, bytes))
        return NULL;
    void *p = map_pages(bytes);
    if (p != MAP_FAILED)
        return p;
    budget_give(ctx, bytes);
    return no_memory(ctx, bytes);
}

void sb_free_pages(sb_ctx *ctx, void *ptr, size_t bytes)
{
    if (has_hooks(ctx)) {
        sb_free(ctx, ptr);
    } else if (ptr) {
        budget_give(ctx, bytes);
        (void)munmap(ptr, bytes);
    }
}

sb_status sb_expect_memory(sb_ctx *ctx, size_t bytes)
{
    if (!budget_take(ctx, bytes))
        return SB_NO_MEMORY;
    budget_give(ctx, bytes);
    void *p = map_pages(bytes);
    if (p == MAP_FAILED) {
        (void)no_memory(ctx, bytes);
        return SB_NO_MEMORY;
    }
    (void)munmap(p, bytes);
    return SB_OK;
}

/* The next capacity; below `want` if that is too much. */
static size_t room_for(size_t cap, size_t want)
{
    size_t n = cap ? cap : 8;

#ifdef SB_GROW_EXACT
    /* Long arrays double here as well, else building one takes quadratic
     * time. */
    enum { EXACT_MOST = 1024 };
    if (want <= EXACT_MOST)
        return want;
#endif
    while (n < want && n <= SIZE_MAX / 2)
        n *= 2;
    return n;
}

sb_status sb_grow(sb_ctx *ctx, void *ptr_to_array, size_t *cap, size_t want,
                  size_t size)
{
    size_t bytes = 0;
    size_t n = room_for(*cap, want);
    void *old = NULL;

    if (want <= *cap)
        return SB_OK;
    if (n < want || !sb_mul_size(n, size, &bytes))
        return sb_fail(ctx, SB_NO_MEMORY, "out of memory: %zu x %zu bytes",
                       want, size);
    /* The caller's pointer may have any type; copy it without aliasing it. */
    memcpy(&old, ptr_to_array, sizeof old);
    void *p = alloc_resize(ctx, old, bytes);
    if (!p)
        return SB_NO_MEMORY;
    memcpy(ptr_to_array, &p, sizeof p);
    *cap = n;
    return SB_OK;
}
