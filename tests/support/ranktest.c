#define _POSIX_C_SOURCE 200809L
#include "ranktest.h"

#include <pthread.h>

#include "base/ranks/comm.h"

typedef struct shared {
    pthread_barrier_t barrier;
    const char *from[TEST_RANKS]; /* what each rank shows to the others */
    int ranks;
} shared;

typedef struct one_rank {
    shared *all;
    int rank;
    test_rank_fn fn;
    void *user;
    test_rank *out;
    test_heap *heap; /* or NULL */
} one_rank;

/* All have shown their memory; then all have read it. */
static void rank_meet(one_rank *r)
{
    (void)pthread_barrier_wait(&r->all->barrier);
}

static int rank_gather(void *user, const void *mine, void *all, size_t bytes)
{
    one_rank *r = user;

    r->all->from[r->rank] = mine;
    rank_meet(r);
    for (int i = 0; i < r->all->ranks; i++)
        memcpy((char *)all + (size_t)i * bytes, r->all->from[i], bytes);
    rank_meet(r);
    return 0;
}

static int rank_exchange(void *user, const void *to, void *from, size_t bytes)
{
    one_rank *r = user;

    r->all->from[r->rank] = to;
    rank_meet(r);
    for (int i = 0; i < r->all->ranks; i++)
        memcpy((char *)from + (size_t)i * bytes,
               r->all->from[i] + (size_t)r->rank * bytes, bytes);
    rank_meet(r);
    return 0;
}

static int rank_broadcast(void *user, void *data, size_t bytes, int root)
{
    one_rank *r = user;

    r->all->from[r->rank] = data;
    rank_meet(r);
    if (r->rank != root)
        memcpy(data, r->all->from[root], bytes);
    rank_meet(r);
    return 0;
}

static int rank_send_receive(void *user, const void *mine, size_t bytes, int to,
                             void *other, size_t other_bytes, int from)
{
    one_rank *r = user;

    (void)bytes, (void)to;
    r->all->from[r->rank] = mine;
    rank_meet(r);
    if (from >= 0)
        memcpy(other, r->all->from[from], other_bytes);
    rank_meet(r);
    return 0;
}

static sb_status rank_work(one_rank *r, sb_ctx *ctx)
{
    sb_comm comm = SB_COMM_INIT;

    comm.user = r;
    comm.rank = r->rank;
    comm.size = r->all->ranks;
    comm.gather = rank_gather;
    comm.exchange = rank_exchange;
    comm.broadcast = rank_broadcast;
    comm.send_receive = rank_send_receive;
    sb_ctx_set_threads(ctx, 1);
    SB_TRY(sb_ctx_set_comm(ctx, &comm));
    return r->fn(ctx, r->rank, r->user);
}

static void *rank_thread(void *arg)
{
    one_rank *r = arg;
    sb_ctx *ctx = NULL;
    sb_allocator hooks = SB_ALLOCATOR_INIT;

    if (r->heap)
        hooks = test_heap_hooks(r->heap);
    r->out->status = sb_ctx_create(r->heap ? &hooks : NULL, &ctx);
    if (r->out->status != SB_OK)
        return NULL;
    r->out->status = rank_work(r, ctx);
    if (r->out->status != SB_OK)
        sb_comm_give_up(ctx);
    (void)snprintf(r->out->error, sizeof r->out->error, "%s",
                   r->out->status == SB_OK ? "" : sb_ctx_error(ctx));
    sb_ctx_free(ctx);
    return NULL;
}

void test_ranks_run(int ranks, test_rank_fn fn, void *user, test_rank *out)
{
    test_ranks_run_short(ranks, -1, NULL, fn, user, out);
}

void test_ranks_run_short(int ranks, int rank, test_heap *heap, test_rank_fn fn,
                          void *user, test_rank *out)
{
    shared all = {.ranks = ranks};
    one_rank list[TEST_RANKS];
    pthread_t threads[TEST_RANKS];

    assert_true(ranks >= 1 && ranks <= TEST_RANKS);
    assert_int_equal(pthread_barrier_init(&all.barrier, NULL, (unsigned)ranks),
                     0);
    for (int r = 0; r < ranks; r++) {
        list[r] =
            (one_rank){&all, r, fn, user, &out[r], r == rank ? heap : NULL};
        assert_int_equal(
            pthread_create(&threads[r], NULL, rank_thread, &list[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&all.barrier), 0);
}
