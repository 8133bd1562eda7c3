/* What ranks do together.
 *
 * Everything begins with a round: each rank gives a block of fixed size that
 * says what it is about to do, and all see all of them.  So a rank that has
 * failed can say so whatever the others are doing, ranks that do different
 * things find out instead of waiting forever, and small data is in the block
 * already.
 *
 * A large sum: the numbers are cut into as many slices as there are ranks, rank
 * r gets slice r of all (exchange), adds them in the order of ranks, and gives
 * the result to all (gather). */
#include "base/ranks/comm.h"

#include <string.h>

#include "base/alloc.h"
#include "base/options.h"

typedef enum comm_kind {
    COMM_FAIL,
    COMM_SUM_F32,
    COMM_SUM_F64,
    COMM_GATHER,
    COMM_BROADCAST,
    COMM_BARRIER,
    COMM_SEND_RECEIVE,
} comm_kind;

enum {
    INLINE_BYTES = 1000,
    SUM_PIECE = 1 << 20,    /* numbers that are moved at a time */
    SUM_TILE = 512,         /* sums that stay in the first cache */
    GATHER_PIECE = 1 << 22, /* bytes of a rank that are moved at a time */
    MOST_RANKS = 1 << 16,
};

typedef struct comm_block {
    uint32_t round;
    uint32_t kind;
    uint32_t status; /* of COMM_FAIL */
    uint32_t root;
    uint64_t bytes;
    char data[INLINE_BYTES]; /* of COMM_FAIL: the message */
} comm_block;

struct sb_comm_state {
    sb_comm comm;
    uint32_t round;
    bool ended;         /* a rank has failed */
    bool lost;          /* and nothing more can be heard of the others */
    comm_block *blocks; /* [size] of the last round */
    char *work;         /* for large sums */
    size_t work_size;
};

/* ---- life --------------------------------------------------------------- */

void sb_comm_forget(sb_ctx *ctx)
{
    struct sb_comm_state *s = ctx->comm;

    if (!s)
        return;
    ctx->comm = NULL;
    sb_free(ctx, s->work);
    sb_free(ctx, s->blocks);
    sb_free(ctx, s);
}

sb_status sb_ctx_set_comm(sb_ctx *ctx, const sb_comm *given)
{
    const sb_comm alone = SB_COMM_INIT;
    sb_comm comm;

    SB_TRY(sb_options_read(ctx, "sb_comm", given, &alone, sizeof comm, &comm));
    if (comm.size < 1 || comm.size > MOST_RANKS || comm.rank < 0 ||
        comm.rank >= comm.size)
        return sb_fail(ctx, SB_BAD_ARG,
                       "rank %d of %d, want one of 1 to %d ranks", comm.rank,
                       comm.size, MOST_RANKS);
    if (comm.size > 1 && (!comm.gather || !comm.exchange || !comm.broadcast))
        return sb_fail(ctx, SB_BAD_ARG,
                       "a comm needs gather, exchange and broadcast");
    sb_comm_forget(ctx);
    if (comm.size == 1)
        return SB_OK;
    struct sb_comm_state *s = sb_alloc(ctx, 1, sizeof *s);
    if (!s)
        return SB_NO_MEMORY;
    s->comm = comm;
    s->blocks = sb_alloc(ctx, (size_t)comm.size + 1, sizeof *s->blocks);
    if (!s->blocks) {
        sb_free(ctx, s);
        return SB_NO_MEMORY;
    }
    ctx->comm = s;
    return SB_OK;
}

struct sb_comm_state *sb_comm_hide(sb_ctx *ctx)
{
    struct sb_comm_state *s = ctx->comm;

    ctx->comm = NULL;
    return s;
}

void sb_comm_show(sb_ctx *ctx, struct sb_comm_state *hidden)
{
    ctx->comm = hidden;
}

int sb_ctx_rank(const sb_ctx *ctx)
{
    return ctx->comm ? ctx->comm->comm.rank : 0;
}

int sb_ctx_ranks(const sb_ctx *ctx)
{
    return ctx->comm ? ctx->comm->comm.size : 1;
}

/* ---- a round ------------------------------------------------------------ */

static sb_status comm_lost(sb_ctx *ctx)
{
    ctx->comm->ended = ctx->comm->lost = true;
    return sb_fail(ctx, SB_IO, "rank %d of %d cannot reach the others",
                   sb_ctx_rank(ctx), sb_ctx_ranks(ctx));
}

static bool comm_swap_blocks(struct sb_comm_state *s, const comm_block *mine)
{
    /* The last one is where this rank's own is put together. */
    comm_block *own = &s->blocks[s->comm.size];

    *own = *mine;
    own->round = s->round++;
    return s->comm.gather(s->comm.user, own, s->blocks, sizeof *own) == 0;
}

/* The failure of the first rank that has one. */
static sb_status comm_failed(sb_ctx *ctx, int rank)
{
    comm_block *b = &ctx->comm->blocks[rank];
    sb_status status = b->status < SB_STATUS_COUNT && b->status != SB_OK
                           ? (sb_status)b->status
                           : SB_IO;

    ctx->comm->ended = true;
    b->data[sizeof b->data - 1] = '\0';
    if (status == SB_INTERRUPTED)
        return sb_fail(ctx, status, "interrupted (rank %d)", rank);
    return sb_fail(ctx, status, "rank %d: %s", rank, b->data);
}

static sb_status comm_differs(sb_ctx *ctx, int rank)
{
    ctx->comm->ended = true;
    return sb_fail(ctx, SB_BAD_ARG,
                   "rank %d does something else than rank 0: have they the "
                   "same files, options and version?",
                   rank);
}

static sb_status comm_check(sb_ctx *ctx)
{
    const struct sb_comm_state *s = ctx->comm;
    const comm_block *first = &s->blocks[0];

    for (int r = 0; r < s->comm.size; r++)
        if (s->blocks[r].kind == COMM_FAIL)
            return comm_failed(ctx, r);
    for (int r = 1; r < s->comm.size; r++) {
        const comm_block *b = &s->blocks[r];

        if (b->round != first->round || b->kind != first->kind ||
            b->root != first->root ||
            (b->bytes != first->bytes && b->kind != COMM_GATHER))
            return comm_differs(ctx, r);
    }
    return SB_OK;
}

static sb_status comm_round(sb_ctx *ctx, comm_kind kind, const void *data,
                            size_t bytes, int root)
{
    struct sb_comm_state *s = ctx->comm;
    comm_block mine = {
        .kind = kind, .bytes = bytes, .root = (uint32_t)root, .data = ""};

    if (s->ended)
        return sb_fail(ctx, SB_IO, "the ranks have ended before");
    if (data && bytes && bytes <= sizeof mine.data)
        memcpy(mine.data, data, bytes);
    if (!comm_swap_blocks(s, &mine))
        return comm_lost(ctx);
    return comm_check(ctx);
}

void sb_comm_give_up(sb_ctx *ctx)
{
    struct sb_comm_state *s = ctx->comm;
    comm_block mine = {.kind = COMM_FAIL, .status = (uint32_t)ctx->status};
    const char *text = sb_ctx_error(ctx);
    size_t n = strlen(text);

    if (!s || s->ended)
        return;
    memcpy(mine.data, text,
           n < sizeof mine.data ? n + 1 : sizeof mine.data - 1);
    s->ended = true;
    s->lost = !comm_swap_blocks(s, &mine);
}

bool sb_comm_reopen(sb_ctx *ctx)
{
    struct sb_comm_state *s = ctx->comm;
    bool told = false;

    if (!s || !s->ended || s->lost)
        return false;
    for (int r = 0; r < s->comm.size; r++) {
        if (s->blocks[r].kind != COMM_FAIL)
            continue;
        if (s->blocks[r].status != SB_INTERRUPTED)
            return false;
        told = true;
    }
    s->ended = !told;
    return told;
}

/* ---- sums --------------------------------------------------------------- */

/* sum[i] += x[i] */
static void add_numbers(bool wide, const void *x, size_t n, double *sum)
{
    if (wide)
        for (size_t i = 0; i < n; i++)
            sum[i] += ((const double *)x)[i];
    else
        for (size_t i = 0; i < n; i++)
            sum[i] += (double)((const float *)x)[i];
}

/* out[i] = the sum over ranks, in their order, of element i of from + r *
 * stride bytes. */
static void add_ranks(const struct sb_comm_state *s, bool wide,
                      const char *from, size_t stride, void *out, size_t n)
{
    size_t each = wide ? sizeof(double) : sizeof(float);
    double sum[SUM_TILE];

    for (size_t at = 0; at < n; at += SUM_TILE) {
        size_t m = n - at < SUM_TILE ? n - at : SUM_TILE;
        char *to = (char *)out + at * each;

        memset(sum, 0, sizeof sum);
        for (int r = 0; r < s->comm.size; r++)
            add_numbers(wide, from + (size_t)r * stride + at * each, m, sum);
        if (wide)
            memcpy(to, sum, m * sizeof *sum);
        for (size_t i = 0; i < m && !wide; i++)
            ((float *)(void *)to)[i] = (float)sum[i];
    }
}

/* Adds up `n` numbers, at most SUM_PIECE. */
static bool sum_piece(const struct sb_comm_state *s, bool wide, char *x,
                      size_t n)
{
    const sb_comm *c = &s->comm;
    size_t ranks = (size_t)c->size, each = wide ? sizeof(double) : 4;
    size_t slice = (n + ranks - 1) / ranks, bytes = slice * each;
    char *to = s->work, *from = to + ranks * bytes;

    memcpy(to, x, n * each);
    memset(to + n * each, 0, ranks * bytes - n * each);
    if (c->exchange(c->user, to, from, bytes) != 0)
        return false;
    add_ranks(s, wide, from, bytes, to, slice);
    if (c->gather(c->user, to, from, bytes) != 0)
        return false;
    memcpy(x, from, n * each);
    return true;
}

static sb_status comm_sum(sb_ctx *ctx, comm_kind kind, void *x, size_t n)
{
    struct sb_comm_state *s = ctx->comm;
    bool wide = kind == COMM_SUM_F64;
    size_t each = wide ? sizeof(double) : sizeof(float);

    if (!s || n == 0)
        return SB_OK;
    size_t piece = n < SUM_PIECE ? n : SUM_PIECE;
    bool small = n * each <= INLINE_BYTES;
    if (!small)
        SB_TRY(sb_grow(ctx, &s->work, &s->work_size,
                       2 * (piece + (size_t)s->comm.size) * each, 1));
    SB_TRY(comm_round(ctx, kind, x, n * each, 0));
    if (small)
        add_ranks(s, wide, s->blocks[0].data, sizeof *s->blocks, x, n);
    for (size_t at = 0; at < n && !small; at += piece) {
        size_t left = n - at;
        if (!sum_piece(s, wide, (char *)x + at * each,
                       left < piece ? left : piece))
            return comm_lost(ctx);
    }
    return SB_OK;
}

sb_status sb_comm_sum_f32(sb_ctx *ctx, float *x, size_t n)
{
    return comm_sum(ctx, COMM_SUM_F32, x, n);
}

sb_status sb_comm_sum_f64(sb_ctx *ctx, double *x, size_t n)
{
    return comm_sum(ctx, COMM_SUM_F64, x, n);
}

/* ---- gather ------------------------------------------------------------- */

/* Moves a piece of every rank; those that have less give anything. */
static bool gather_piece(const struct sb_comm_state *s, const char *mine,
                         size_t at, size_t most, const size_t *sizes, char *all)
{
    const sb_comm *c = &s->comm;
    size_t own = sizes[c->rank], bytes = most - at;
    char *to = s->work, *from = to + GATHER_PIECE;

    bytes = bytes < GATHER_PIECE ? bytes : GATHER_PIECE;
    if (at < own)
        memcpy(to, mine + at, own - at < bytes ? own - at : bytes);
    if (c->gather(c->user, to, from, bytes) != 0)
        return false;
    for (int r = 0; r < c->size; all += sizes[r++])
        if (at < sizes[r])
            memcpy(all + at, from + (size_t)r * bytes,
                   sizes[r] - at < bytes ? sizes[r] - at : bytes);
    return true;
}

static sb_status gather_large(sb_ctx *ctx, const void *mine, size_t most,
                              const size_t *sizes, char *all)
{
    struct sb_comm_state *s = ctx->comm;

    SB_TRY(sb_grow(ctx, &s->work, &s->work_size,
                   ((size_t)s->comm.size + 1) * GATHER_PIECE, 1));
    /* Every rank has the memory that it needs. */
    SB_TRY(comm_round(ctx, COMM_BARRIER, NULL, 0, 0));
    memset(s->work, 0, GATHER_PIECE);
    for (size_t at = 0; at < most; at += GATHER_PIECE)
        if (!gather_piece(s, mine, at, most, sizes, all))
            return comm_lost(ctx);
    return SB_OK;
}

static sb_status gather_all(sb_ctx *ctx, const void *mine, size_t *sizes,
                            void **all)
{
    const struct sb_comm_state *s = ctx->comm;
    size_t total = 0, most = 0;
    char *out = NULL;

    for (int r = 0; r < s->comm.size; r++) {
        sizes[r] = (size_t)s->blocks[r].bytes;
        most = sizes[r] > most ? sizes[r] : most;
        if (!sb_add_size(total, sizes[r], &total))
            return sb_fail(ctx, SB_NO_MEMORY, "out of memory: data of ranks");
    }
    SB_TRY(sb_memory_create(ctx, NULL, total, &out));
    sb_status status = SB_OK;
    if (most > INLINE_BYTES)
        status = gather_large(ctx, mine, most, sizes, out);
    else
        for (size_t r = 0, at = 0; r < (size_t)s->comm.size; at += sizes[r++])
            memcpy(out + at, s->blocks[r].data, sizes[r]);
    if (status == SB_OK)
        *all = out;
    else
        sb_memory_free(out);
    return status;
}

sb_status sb_comm_gather(sb_ctx *ctx, const void *mine, size_t bytes,
                         size_t *sizes, void **all)
{
    if (!ctx->comm) {
        SB_TRY(sb_memory_create(ctx, mine, bytes, all));
        sizes[0] = bytes;
        return SB_OK;
    }
    SB_TRY(comm_round(ctx, COMM_GATHER, mine, bytes, 0));
    return gather_all(ctx, mine, sizes, all);
}

/* ---- the rest ----------------------------------------------------------- */

sb_status sb_comm_broadcast(sb_ctx *ctx, void *data, size_t bytes, int root)
{
    struct sb_comm_state *s = ctx->comm;

    if (root < 0 || root >= sb_ctx_ranks(ctx))
        return sb_fail(ctx, SB_BAD_ARG, "there is no rank %d", root);
    if (!s || bytes == 0)
        return SB_OK;
    SB_TRY(comm_round(ctx, COMM_BROADCAST, data, bytes, root));
    if (bytes <= INLINE_BYTES) {
        memcpy(data, s->blocks[root].data, bytes);
        return SB_OK;
    }
    for (size_t at = 0; at < bytes; at += SB_COMM_BYTES) {
        size_t left = bytes - at;
        if (s->comm.broadcast(s->comm.user, (char *)data + at,
                              left < SB_COMM_BYTES ? left : SB_COMM_BYTES,
                              root) != 0)
            return comm_lost(ctx);
    }
    return SB_OK;
}

/* ---- from rank to rank --------------------------------------------------- */

/* What a rank is about to move, in its block. */
typedef struct comm_route {
    int32_t to, from; /* -1: none */
    uint64_t bytes;
} comm_route;

static comm_route route_of(const struct sb_comm_state *s, int rank)
{
    comm_route route;

    memcpy(&route, s->blocks[rank].data, sizeof route);
    return route;
}

/* Does every rank take what is given, and nothing else?  All see all routes, so
 * no rank waits for what does not come. */
static sb_status route_check(sb_ctx *ctx, size_t *most)
{
    const struct sb_comm_state *s = ctx->comm;

    *most = 0;
    for (int r = 0; r < s->comm.size; r++) {
        comm_route route = route_of(s, r);
        bool outside = route.to >= s->comm.size || route.from >= s->comm.size;

        if (outside || route.to == r || route.from == r ||
            (route.to >= 0 && route_of(s, route.to).from != r) ||
            (route.from >= 0 && route_of(s, route.from).to != r))
            return comm_differs(ctx, r);
        if (route.to >= 0 && route.bytes > *most)
            *most = (size_t)route.bytes;
    }
    return SB_OK;
}

static size_t route_piece(uint64_t bytes, size_t at)
{
    uint64_t left = bytes > at ? bytes - at : 0;

    return left < SB_COMM_BYTES ? (size_t)left : SB_COMM_BYTES;
}

/* Ranks that have nothing left to move take part, too. */
static sb_status route_move(sb_ctx *ctx, const char *mine, char *other,
                            const comm_route *route, size_t incoming,
                            size_t most)
{
    const sb_comm *c = &ctx->comm->comm;

    for (size_t at = 0; at < most; at += SB_COMM_BYTES) {
        size_t out = route_piece(route->bytes, at);
        size_t in = route_piece(incoming, at);

        if (c->send_receive(c->user, out ? mine + at : NULL, out,
                            out ? route->to : -1, in ? other + at : NULL, in,
                            in ? route->from : -1) != 0)
            return comm_lost(ctx);
    }
    return SB_OK;
}

bool sb_comm_sends(const sb_ctx *ctx)
{
    return !ctx->comm || ctx->comm->comm.send_receive;
}

sb_status sb_comm_send_receive(sb_ctx *ctx, const void *mine, size_t bytes,
                               int to, int from, void **other,
                               size_t *other_bytes)
{
    struct sb_comm_state *s = ctx->comm;
    const comm_route route = {to < 0 ? -1 : to, from < 0 ? -1 : from,
                              to < 0 ? 0 : bytes};
    size_t most = 0, incoming = 0;
    char *taken = NULL;

    *other = NULL;
    *other_bytes = 0;
    if (!s)
        return to < 0 && from < 0
                   ? SB_OK
                   : sb_fail(ctx, SB_BAD_ARG, "there is no other rank");
    if (!sb_comm_sends(ctx))
        return sb_fail(ctx, SB_UNSUPPORTED,
                       "what connects the ranks has no send_receive");
    SB_TRY(comm_round(ctx, COMM_SEND_RECEIVE, &route, sizeof route, 0));
    SB_TRY(route_check(ctx, &most));
    if (most == 0)
        return SB_OK;
    if (from >= 0)
        incoming = (size_t)route_of(s, from).bytes;
    if (incoming)
        SB_TRY(sb_memory_create(ctx, NULL, incoming, &taken));
    /* Every rank has the memory that it needs. */
    sb_status status = comm_round(ctx, COMM_BARRIER, NULL, 0, 0);
    if (status == SB_OK)
        status = route_move(ctx, mine, taken, &route, incoming, most);
    if (status != SB_OK) {
        sb_memory_free(taken);
        return status;
    }
    *other = taken;
    *other_bytes = incoming;
    return SB_OK;
}

/* ---- waiting ------------------------------------------------------------- */

sb_status sb_comm_barrier(sb_ctx *ctx)
{
    return ctx->comm ? comm_round(ctx, COMM_BARRIER, NULL, 0, 0) : SB_OK;
}
