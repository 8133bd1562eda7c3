/* Ranks: sums in order, gathering, broadcasts, and how all learn that one has
 * failed. */
#include "ranktest.h"

#include "base/alloc.h"
#include "base/ranks/comm.h"

/* A number of rank r at place i, such that the order of adding shows. */
static double number_at(int rank, size_t i)
{
    return ((double)(i * 2654435761u % 1000003) - 5e5) / (7 + 3 * rank) *
           (rank == 1 ? 1e7 : 1);
}

/* ---- from rank to rank -------------------------------------------------- */

typedef struct {
    size_t bytes;
    int ranks, wrong[TEST_RANKS];
    bool bad; /* rank 1 waits for one that gives it nothing */
} ring_case;

/* To the rank behind, but for the last one, which only takes. */
static sb_status ring_rank(sb_ctx *ctx, int rank, void *user)
{
    ring_case *c = user;
    bool last = rank + 1 == c->ranks;
    size_t own = c->bytes + (size_t)rank, n = 0;
    unsigned char *mine = sb_alloc(ctx, own + 1, 1), *other = NULL;
    void *taken = NULL;

    if (!mine)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < own; i++)
        mine[i] = (unsigned char)(i * 7 + (size_t)rank);
    sb_status status =
        sb_comm_send_receive(ctx, mine, own, last ? -1 : rank + 1,
                             c->bad && rank == 1 ? 2 : rank - 1, &taken, &n);
    other = taken;
    if (status == SB_OK && rank > 0) {
        c->wrong[rank] += n != own - 1;
        for (size_t i = 0; i < n; i++)
            c->wrong[rank] +=
                other[i] != (unsigned char)(i * 7 + (size_t)rank - 1);
    } else if (status == SB_OK) {
        c->wrong[rank] += n != 0 || taken != NULL;
    }
    sb_memory_free(taken);
    sb_free(ctx, mine);
    return status;
}

static void test_from_rank_to_rank(void **state)
{
    static const size_t sizes[] = {0, 1, 1000, 3000000};
    test_rank out[TEST_RANKS];

    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++)
        for (size_t i = 0; i < SB_COUNT(sizes); i++) {
            ring_case c = {.bytes = sizes[i], .ranks = ranks};

            test_ranks_run(ranks, ring_rank, &c, out);
            for (int r = 0; r < ranks; r++) {
                assert_string_equal(out[r].error, "");
                assert_int_equal(c.wrong[r], 0);
            }
        }
    ring_case c = {.bytes = 10, .ranks = 3, .bad = true};
    test_ranks_run(3, ring_rank, &c, out);
    for (int r = 0; r < 3; r++)
        assert_non_null(strstr(out[r].error, "does something else"));
}

/* ---- sums --------------------------------------------------------------- */

typedef struct {
    size_t n;
    int ranks;
    int wrong[TEST_RANKS]; /* places that differ */
} sum_case;

static sb_status sum_rank(sb_ctx *ctx, int rank, void *user)
{
    sum_case *c = user;
    float *x = sb_alloc(ctx, c->n, sizeof *x);
    double *y = sb_alloc(ctx, c->n, sizeof *y);
    sb_status status = x && y ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; status == SB_OK && i < c->n; i++) {
        y[i] = number_at(rank, i);
        x[i] = (float)y[i];
    }
    if (status == SB_OK)
        status = sb_comm_sum_f32(ctx, x, c->n);
    if (status == SB_OK)
        status = sb_comm_sum_f64(ctx, y, c->n);
    for (size_t i = 0; status == SB_OK && i < c->n; i++) {
        double wide = 0, narrow = 0;

        for (int r = 0; r < c->ranks; r++) {
            wide += number_at(r, i);
            narrow += (double)(float)number_at(r, i);
        }
        c->wrong[rank] += x[i] != (float)narrow || y[i] != wide;
    }
    sb_free(ctx, x);
    sb_free(ctx, y);
    return status;
}

static void test_sums(void **state)
{
    static const size_t sizes[] = {0, 1, 3, 125, 126, 251, 10007, 1048583};

    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++)
        for (size_t i = 0; i < SB_COUNT(sizes); i++) {
            sum_case c = {.n = sizes[i], .ranks = ranks};
            test_rank out[TEST_RANKS];

            if (sizes[i] > 100000 && ranks != 3)
                continue;
            test_ranks_run(ranks, sum_rank, &c, out);
            for (int r = 0; r < ranks; r++) {
                assert_int_equal(out[r].status, SB_OK);
                assert_int_equal(c.wrong[r], 0);
            }
        }
}

/* ---- gathering and broadcasting ----------------------------------------- */

/* Rank r gives so many bytes, of which the last ones are in a piece of their
 * own. */
static size_t bytes_of(int rank)
{
    static const size_t sizes[] = {0, 17, 5000, 4194304 + 99, 1, 1000};

    return sizes[rank % 6];
}

static unsigned char byte_at(int rank, size_t i)
{
    return (unsigned char)(i * 131 + i / 251 + (size_t)rank * 17);
}

typedef struct {
    int ranks, first; /* sizes are those of ranks from `first` on */
    size_t wrong[TEST_RANKS];
} move_case;

static sb_status gather_rank(sb_ctx *ctx, int rank, void *user)
{
    move_case *c = user;
    size_t n = bytes_of(rank + c->first), sizes[TEST_RANKS] = {0};
    unsigned char *mine = sb_alloc(ctx, n, 1);
    void *all = NULL;

    if (!mine)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        mine[i] = byte_at(rank, i);
    sb_status status = sb_comm_gather(ctx, mine, n, sizes, &all);
    const unsigned char *at = all;
    for (int r = 0; r < c->ranks && status == SB_OK; at += sizes[r++]) {
        c->wrong[rank] += sizes[r] != bytes_of(r + c->first);
        for (size_t i = 0; i < sizes[r]; i++)
            c->wrong[rank] += at[i] != byte_at(r, i);
    }
    sb_memory_free(all);
    sb_free(ctx, mine);
    return status;
}

static sb_status broadcast_rank(sb_ctx *ctx, int rank, void *user)
{
    move_case *c = user;

    for (int root = 0; root < c->ranks; root++) {
        size_t n = bytes_of(root + c->first);
        unsigned char *data = sb_alloc(ctx, n, 1);

        if (!data)
            return SB_NO_MEMORY;
        for (size_t i = 0; i < n && rank == root; i++)
            data[i] = byte_at(root, i);
        sb_status status = sb_comm_broadcast(ctx, data, n, root);
        for (size_t i = 0; i < n; i++)
            c->wrong[rank] += data[i] != byte_at(root, i);
        sb_free(ctx, data);
        SB_TRY(status);
        SB_TRY(sb_comm_barrier(ctx));
    }
    return SB_OK;
}

static void test_moving_bytes(void **state)
{
    static const test_rank_fn functions[] = {gather_rank, broadcast_rank};

    (void)state;
    for (size_t f = 0; f < SB_COUNT(functions); f++)
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int first = 0; first < 6; first += 2) {
                move_case c = {.ranks = ranks, .first = first};
                test_rank out[TEST_RANKS];

                test_ranks_run(ranks, functions[f], &c, out);
                for (int r = 0; r < ranks; r++) {
                    assert_int_equal(out[r].status, SB_OK);
                    assert_int_equal(c.wrong[r], 0);
                }
            }
}

/* ---- failing ------------------------------------------------------------ */

/* Rank 1 fails after two sums, the others go on. */
static sb_status fail_rank(sb_ctx *ctx, int rank, void *user)
{
    double x = 1;
    int *later = user;

    for (int i = 0; i < 5; i++) {
        if (rank == 1 && i == 2)
            return sb_fail(ctx, SB_BAD_DATA, "sample 7 is broken");
        SB_TRY(sb_comm_sum_f64(ctx, &x, 1));
        ++*(later + rank);
    }
    return SB_OK;
}

static void test_one_fails(void **state)
{
    int done[TEST_RANKS] = {0};
    test_rank out[TEST_RANKS];

    (void)state;
    test_ranks_run(4, fail_rank, done, out);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(done[r], 2);
        assert_int_equal(out[r].status, SB_BAD_DATA);
        assert_string_equal(out[r].error, r == 1
                                              ? "sample 7 is broken"
                                              : "rank 1: sample 7 is broken");
    }
}

static sb_status differ_rank(sb_ctx *ctx, int rank, void *user)
{
    double x[3] = {0};
    sb_status first = sb_comm_sum_f64(ctx, x, rank == 2 ? 3 : 2);

    /* And nothing works after that. */
    *((sb_status *)user + rank) = sb_comm_barrier(ctx);
    return first;
}

static void test_ranks_that_differ(void **state)
{
    sb_status later[TEST_RANKS];
    test_rank out[TEST_RANKS];

    (void)state;
    test_ranks_run(3, differ_rank, later, out);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(out[r].status, SB_BAD_ARG);
        assert_int_equal(later[r], SB_IO);
    }
}

static int lost_gather(void *user, const void *mine, void *all, size_t bytes)
{
    (void)user, (void)mine, (void)all, (void)bytes;
    return 1;
}

static int lost_exchange(void *user, const void *to, void *from, size_t bytes)
{
    return lost_gather(user, to, from, bytes);
}

static int lost_broadcast(void *user, void *data, size_t bytes, int root)
{
    (void)user, (void)data, (void)bytes, (void)root;
    return 1;
}

static void test_lost(void **state)
{
    sb_comm comm = SB_COMM_INIT;
    double x = 0;

    (void)state;
    comm.size = 2;
    assert_status(sb_ctx_set_comm(test_ctx(), &comm), SB_BAD_ARG);
    assert_error_has("needs gather");
    comm.gather = lost_gather;
    comm.exchange = lost_exchange;
    comm.broadcast = lost_broadcast;
    comm.rank = 2;
    assert_status(sb_ctx_set_comm(test_ctx(), &comm), SB_BAD_ARG);
    assert_error_has("rank 2 of 2");
    comm.rank = 1;
    assert_ok(sb_ctx_set_comm(test_ctx(), &comm));
    assert_int_equal(sb_ctx_rank(test_ctx()), 1);
    assert_int_equal(sb_ctx_ranks(test_ctx()), 2);
    assert_status(sb_comm_sum_f64(test_ctx(), &x, 1), SB_IO);
    assert_error_has("rank 1 of 2 cannot reach the others");
    sb_comm_give_up(test_ctx()); /* does nothing */
    assert_false(sb_comm_reopen(test_ctx()));
    assert_ok(sb_ctx_set_comm(test_ctx(), NULL));
    assert_int_equal(sb_ctx_ranks(test_ctx()), 1);
    assert_ok(sb_comm_sum_f64(test_ctx(), &x, 1));
    assert_status(sb_comm_broadcast(test_ctx(), &x, sizeof x, 1), SB_BAD_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_moving_bytes),
        cmocka_unit_test(test_from_rank_to_rank),
        cmocka_unit_test(test_one_fails),
        cmocka_unit_test(test_ranks_that_differ),
        cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}
