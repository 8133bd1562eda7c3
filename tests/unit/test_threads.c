/* The pool: every item once, on as many threads as wanted, also when jobs
 * follow each other quickly, are nested, or the number of threads changes. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/threads.h"

enum { ITEMS = 1000 };

typedef struct counts {
    sb_ctx *ctx;
    atomic_int hits[ITEMS];
    atomic_int in_lane[8];
    atomic_int clashes;
    size_t lanes;
} counts;

static void count_range(void *arg, size_t begin, size_t end)
{
    counts *c = arg;

    for (size_t i = begin; i < end; i++)
        atomic_fetch_add(&c->hits[i], 1);
}

static void assert_each(const counts *c, size_t n, int times)
{
    for (size_t i = 0; i < ITEMS; i++)
        assert_int_equal(atomic_load(&c->hits[i]), i < n ? times : 0);
}

static void test_many_short_jobs(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        sb_ctx *ctx = NULL;
        assert_ok(sb_ctx_create(NULL, &ctx));
        sb_ctx_set_threads(ctx, threads);
        for (size_t n = 0; n < 40; n++) {
            counts c = {0};
            for (int i = 0; i < 100; i++)
                sb_parallel_for(ctx, n, 1 + n % 3, count_range, &c);
            assert_each(&c, n, 100);
        }
        sb_ctx_free(ctx);
    }
}

/* No two items run in the same lane at once, and no lane is beyond the
 * number wanted. */
static void count_item(void *arg, size_t lane, size_t item)
{
    counts *c = arg;

    if (lane >= c->lanes || atomic_fetch_add(&c->in_lane[lane], 1) != 0)
        atomic_fetch_add(&c->clashes, 1);
    for (volatile int i = 0; i < 100; i++) {
    }
    atomic_fetch_add(&c->hits[item], 1);
    if (lane < c->lanes)
        atomic_fetch_sub(&c->in_lane[lane], 1);
}

static void test_lanes_are_not_shared(void **state)
{
    (void)state;
    sb_ctx *ctx = NULL;

    assert_ok(sb_ctx_create(NULL, &ctx));
    for (size_t lanes = 1; lanes <= 6; lanes++) {
        counts c = {.lanes = lanes};
        sb_ctx_set_threads(ctx, 4);
        for (int i = 0; i < 20; i++)
            sb_parallel_lanes(ctx, ITEMS, lanes, count_item, &c);
        assert_each(&c, ITEMS, 20);
        assert_int_equal(atomic_load(&c.clashes), 0);
    }
    sb_ctx_free(ctx);
}

static void nested(void *arg, size_t begin, size_t end)
{
    counts *c = arg;

    for (size_t i = begin; i < end; i++)
        sb_parallel_for(c->ctx, ITEMS, 1, count_range, c);
}

static void test_work_inside_of_work(void **state)
{
    (void)state;
    sb_ctx *ctx = NULL;

    assert_ok(sb_ctx_create(NULL, &ctx));
    sb_ctx_set_threads(ctx, 3);
    counts c = {.ctx = ctx};
    sb_parallel_for(ctx, 7, 1, nested, &c);
    assert_each(&c, ITEMS, 7);
    sb_ctx_free(ctx);
}

static void test_number_of_threads_may_change(void **state)
{
    (void)state;
    sb_ctx *ctx = NULL;
    counts c = {0};

    assert_ok(sb_ctx_create(NULL, &ctx));
    for (int i = 0; i < 30; i++) {
        sb_ctx_set_threads(ctx, 1 + i % 4);
        assert_int_equal(sb_ctx_threads(ctx), 1 + i % 4);
        sb_parallel_for(ctx, ITEMS, 1, count_range, &c);
    }
    assert_each(&c, ITEMS, 30);
    sb_ctx_free(ctx);
}

/* A child process has none of the threads; it gets its own when it needs them,
 * and frees what it has without waiting for the others. */
static int in_child(sb_ctx *ctx, bool runs)
{
    pid_t child = fork();
    int status = -1;

    if (child == 0) {
        counts c = {0};
        (void)alarm(20);
        if (runs)
            sb_parallel_for(ctx, ITEMS, 1, count_range, &c);
        sb_ctx_free(ctx);
        _exit(runs && atomic_load(&c.hits[ITEMS - 1]) != 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

static void meet_range(void *arg, size_t begin, size_t end)
{
    atomic_int *arrived = arg;
    time_t last = time(NULL) + 10;

    (void)begin;
    (void)end;
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < 4 && time(NULL) < last)
        (void)sched_yield();
}

static void test_forked_child(void **state)
{
    (void)state;
    sb_ctx *ctx = NULL;
    counts c = {0};
    atomic_int arrived = 0;

    assert_ok(sb_ctx_create(NULL, &ctx));
    sb_ctx_set_threads(ctx, 4);
    /* A thread that has just begun may have locks of a sanitizer, which a child
     * would wait for: all four are at work first. */
    sb_parallel_for(ctx, ITEMS, 1, meet_range, &arrived);
    for (int i = 0; i < 10; i++) {
        sb_parallel_for(ctx, ITEMS, 1, count_range, &c);
        assert_int_equal(in_child(ctx, i % 2), 0);
    }
    assert_each(&c, ITEMS, 10);
    sb_ctx_free(ctx);
}

static size_t hits_of(const counts *c)
{
    size_t n = 0;

    for (size_t i = 0; i < ITEMS; i++)
        n += (size_t)atomic_load(&c->hits[i]);
    return n;
}

/* Interrupts after its first items. */
static void interrupt_range(void *arg, size_t begin, size_t end)
{
    counts *c = arg;

    count_range(arg, begin, end);
    sb_ctx_interrupt(c->ctx);
}

static void interrupt_item(void *arg, size_t lane, size_t item)
{
    (void)lane;
    interrupt_range(arg, item, item + 1);
}

static void test_interrupted_work_ends_where_that_is_allowed(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads += 3) {
        sb_ctx *ctx = NULL;
        assert_ok(sb_ctx_create(NULL, &ctx));
        sb_ctx_set_threads(ctx, threads);
        counts a = {.ctx = ctx}, b = {.ctx = ctx}, all = {.ctx = ctx};

        bool outer = sb_ctx_cut_allow(ctx);
        sb_parallel_for(ctx, ITEMS, 1, interrupt_range, &a);
        assert_int_equal(sb_ctx_cut_end(ctx, outer), SB_INTERRUPTED);
        assert_in_range(hits_of(&a), 1, ITEMS / 2);
        sb_ctx_clear_interrupt(ctx);

        outer = sb_ctx_cut_allow(ctx);
        bool inner = sb_ctx_cut_allow(ctx);
        sb_parallel_lanes(ctx, ITEMS, 4, interrupt_item, &b);
        sb_ctx_clear_interrupt(ctx); /* too late for what is undone */
        assert_int_equal(sb_ctx_cut_end(ctx, inner), SB_INTERRUPTED);
        assert_int_equal(sb_ctx_cut_end(ctx, outer), SB_INTERRUPTED);
        assert_in_range(hits_of(&b), 1, ITEMS / 2);

        /* Elsewhere nothing is left out. */
        sb_parallel_for(ctx, ITEMS, 1, interrupt_range, &all);
        sb_parallel_lanes(ctx, ITEMS, 4, interrupt_item, &all);
        assert_each(&all, ITEMS, 2);
        outer = sb_ctx_cut_allow(ctx);
        assert_ok(sb_ctx_cut_end(ctx, outer));
        sb_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_short_jobs),
        cmocka_unit_test(test_lanes_are_not_shared),
        cmocka_unit_test(test_work_inside_of_work),
        cmocka_unit_test(test_number_of_threads_may_change),
        cmocka_unit_test(test_forked_child),
        cmocka_unit_test(test_interrupted_work_ends_where_that_is_allowed),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
