/* ranktest.h - several ranks in one process: a thread and a context for each,
 * and an sb_comm that copies between them. */
#ifndef SB_TESTS_RANKTEST_H
#define SB_TESTS_RANKTEST_H

#include "sbtest.h"

enum { TEST_RANKS = 8 };

/* What a rank does.  It must not use cmocka's assertions, which belong to the
 * thread of the test; what it returns and leaves in `user` is looked at there.
 */
typedef sb_status (*test_rank_fn)(sb_ctx *ctx, int rank, void *user);

/* How it ended. */
typedef struct test_rank {
    sb_status status;
    char error[SB_ERROR_MAX];
} test_rank;

/* Runs `fn` on all ranks at once; out[r] is of rank r.  With one rank the
 * context is alone.  A rank that fails gives up (sb_comm_give_up()). */
void test_ranks_run(int ranks, test_rank_fn fn, void *user, test_rank *out);
/* The same, while a request for memory of one rank is refused: the one that
 * heap->fail_at says.  The heap tells what is left of it. */
void test_ranks_run_short(int ranks, int rank, test_heap *heap, test_rank_fn fn,
                          void *user, test_rank *out);

#endif
