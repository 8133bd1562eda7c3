/* The pool: every item once, on as many threads as wanted, also when jobs
 * follow each other quickly, are nested, or the number of threads changes. */
#include "sbtest.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_short_jobs),
        cmocka_unit_test(test_lanes_are_not_shared),
        cmocka_unit_test(test_work_inside_of_work),
        cmocka_unit_test(test_number_of_threads_may_change),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
