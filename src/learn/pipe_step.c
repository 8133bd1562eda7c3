/* A step of a pipeline: pieces of a batch through the stages and back. */
#include <math.h>
#include <string.h>

#include "base/ranks/comm.h"
#include "learn/pipe.h"

/* ---- parcels ------------------------------------------------------------ */

/* In front of the elements, which begin at a multiple of 64 bytes. */
typedef struct parcel_head {
    int64_t rank, dims[SB_MAX_RANK];
} parcel_head;

enum { HEAD_BYTES = (sizeof(parcel_head) + 63) / 64 * 64 };

static sb_status parcel_fill(sb_ctx *ctx, sb_parcel *p, const sb_tensor *t)
{
    size_t bytes = HEAD_BYTES + sb_tensor_bytes(t);
    parcel_head head = {.rank = t->rank};

    for (int i = 0; i < t->rank; i++)
        head.dims[i] = t->dims[i];
    SB_TRY(sb_grow(ctx, &p->data, &p->cap, bytes, 1));
    memcpy(p->data, &head, sizeof head);
    memcpy((char *)p->data + HEAD_BYTES, t->data, bytes - HEAD_BYTES);
    p->bytes = bytes;
    return SB_OK;
}

/* The tensor in bytes that came; it borrows them. */
static sb_status parcel_open(sb_ctx *ctx, void *data, size_t bytes,
                             sb_tensor *out)
{
    parcel_head head;

    if (bytes >= HEAD_BYTES) {
        memcpy(&head, data, sizeof head);
        if (head.rank >= 0 && head.rank <= SB_MAX_RANK) {
            *out = sb_tensor_make(SB_DTYPE_F32, (int)head.rank, head.dims);
            out->data = (char *)data + HEAD_BYTES;
            if (sb_tensor_size_ok(out) &&
                sb_tensor_bytes(out) == bytes - HEAD_BYTES)
                return SB_OK;
        }
    }
    return sb_fail(ctx, SB_BAD_DATA,
                   "%zu bytes of another rank are no tensor: is it the same "
                   "version?",
                   bytes);
}

/* ---- pieces ------------------------------------------------------------- */

static size_t target_counts(const sb_learner *l, const sb_tensor *target,
                            int64_t from, int64_t to)
{
    size_t n = 0;

    for (int64_t i = from; i < to; i++)
        n += sb_tensor_get_i64(target, i) != l->opt.ignore_index;
    return n;
}

/* The share of each piece in the mean over all labels that count.  A batch in
 * which none does is what the loss makes of it. */
static void pipe_weigh(sb_pipe *p, const sb_tensor *target)
{
    int64_t n = sb_tensor_count(target), each = n / (int64_t)p->pieces;
    size_t all = target_counts(p->l, target, 0, n);

    for (size_t m = 0; m < p->pieces; m++) {
        int64_t from = (int64_t)m * each;

        p->weights[m] =
            all ? (double)target_counts(p->l, target, from, from + each) /
                      (double)all
                : 1 / (double)p->pieces;
    }
}

/* Rows [m / pieces, (m + 1) / pieces) of a tensor, which is borrowed. */
static sb_tensor pipe_piece(const sb_pipe *p, const sb_tensor *t, size_t m)
{
    sb_tensor piece = *t;

    piece.buf = NULL;
    piece.dims[0] /= (int64_t)p->pieces;
    piece.data = (char *)t->data + m * sb_tensor_bytes(&piece);
    return piece;
}

static sb_status pipe_check_batch(const sb_pipe *p,
                                  const sb_tensor *const *inputs, size_t n,
                                  const sb_tensor *target)
{
    sb_ctx *ctx = p->l->ctx;
    int64_t rows = target->rank > 0 ? target->dims[0] : 0;

    for (size_t i = 0; i < n; i++)
        if (!inputs[i] || inputs[i]->rank < 1 || inputs[i]->dims[0] != rows)
            return sb_fail(
                ctx, SB_UNSUPPORTED,
                "input '%s' has not one row for each of the %lld "
                "samples: a pipeline cannot cut it into pieces",
                sb_graph_value(p->l->source, p->l->source->inputs[i])->name,
                (long long)rows);
    if (rows < 1 || rows % (int64_t)p->pieces != 0)
        return sb_fail(ctx, SB_BAD_ARG,
                       "a batch of %lld samples cannot be cut into %zu pieces "
                       "of the same size",
                       (long long)rows, p->pieces);
    return SB_OK;
}

/* ---- lanes -------------------------------------------------------------- */

static sb_status lane_open(sb_pipe *p, size_t i)
{
    sb_learner *l = p->l;
    sb_lane *lane = &p->lanes[i];
    sb_bound_graph *b = &l->learn;
    const sb_exec_options opt = {.exact = l->opt.exact != 0,
                                 .states = b->states,
                                 .n_states = b->n_states,
                                 .like = b->exec};

    if (lane->exec)
        return SB_OK;
    if (!lane->pieces)
        lane->pieces =
            sb_alloc(l->ctx, l->source->n_inputs + 1, sizeof *lane->pieces);
    if (i > 0 && !lane->inputs)
        lane->inputs =
            sb_alloc(l->ctx, b->graph->n_inputs + 1, sizeof(*lane->inputs));
    if (i > 0 && !lane->outputs)
        lane->outputs =
            sb_alloc(l->ctx, b->graph->n_outputs + 1, sizeof(*lane->outputs));
    if (!lane->pieces || (i > 0 && (!lane->inputs || !lane->outputs)))
        return SB_NO_MEMORY;
    if (i > 0)
        return sb_exec_create(l->ctx, b->graph, &opt, &lane->exec);
    lane->exec = b->exec;
    lane->inputs = b->inputs;
    lane->outputs = b->outputs;
    return SB_OK;
}

/* The inputs of piece `m`, of which every one has other random numbers. */
static sb_status lane_fill(sb_pipe *p, sb_lane *lane, size_t m,
                           const sb_tensor *const *inputs)
{
    sb_learner *l = p->l;

    for (size_t i = 0; i < l->source->n_inputs; i++) {
        lane->pieces[i] = pipe_piece(p, inputs[i], m);
        lane->inputs[i] = &lane->pieces[i];
    }
    lane->count = l->count ^ (int64_t)(m * UINT64_C(0x9e3779b97f4a7c15));
    lane->counter = l->counter;
    lane->counter.data = &lane->count;
    if (l->places.counter != SIZE_MAX)
        lane->inputs[l->places.counter] = &lane->counter;
    if (l->places.hidden == SIZE_MAX)
        return SB_OK;
    sb_memory_free(lane->hidden_memory);
    lane->hidden_memory = p->from_previous;
    p->from_previous = NULL;
    SB_TRY(parcel_open(l->ctx, lane->hidden_memory, p->from_previous_bytes,
                       &lane->hidden));
    lane->inputs[l->places.hidden] = &lane->hidden;
    return SB_OK;
}

/* ---- forward and back --------------------------------------------------- */

/* A run has left gradients: they count as much as their piece. */
static sb_status pipe_ended(sb_pipe *p, const sb_lane *lane, size_t m)
{
    sb_learner *l = p->l;
    const float *g = l->store.gradients.data;
    float weight = (float)p->weights[m];
    int64_t n = sb_tensor_count(&l->store.gradients);

    for (int64_t i = 0; i < n; i++)
        p->sum[i] += weight * g[i];
    if (l->places.hidden_gradient == SIZE_MAX)
        return SB_OK;
    return parcel_fill(l->ctx, &p->previous,
                       lane->outputs[l->places.hidden_gradient]);
}

/* The last stage: forward, loss and back. */
static sb_status pipe_whole(sb_pipe *p, sb_lane *lane, size_t m,
                            const sb_tensor *target)
{
    sb_learner *l = p->l;
    sb_tensor *piece = &lane->pieces[l->source->n_inputs];

    *piece = pipe_piece(p, target, m);
    lane->inputs[l->places.target] = piece;
    SB_TRY(sb_exec_run(lane->exec, lane->inputs, NULL, lane->outputs));
    double loss =
        (double)*(const float *)lane->outputs[SB_LEARN_OUT_LOSS]->data;
    if (!isfinite(loss))
        return sb_learner_blame(l, "the loss", loss);
    p->loss += p->weights[m] * loss;
    return pipe_ended(p, lane, m);
}

/* Another stage: forward, until the gradient is wanted.  The first one may have
 * nothing to learn. */
static sb_status pipe_forward(sb_pipe *p, sb_lane *lane)
{
    const sb_learn_places *at = &p->l->places;

    lane->paused = NULL;
    if (at->pause == SB_NONE) {
        SB_TRY(sb_exec_run(lane->exec, lane->inputs, NULL, lane->outputs));
        return parcel_fill(p->l->ctx, &p->next, lane->outputs[at->hidden_out]);
    }
    SB_TRY(sb_exec_run_to(lane->exec, lane->inputs, at->pause, &lane->paused));
    return parcel_fill(p->l->ctx, &p->next, lane->paused->in[0]);
}

static sb_status pipe_backward(sb_pipe *p, sb_lane *lane, size_t m)
{
    sb_ctx *ctx = p->l->ctx;
    sb_tensor from;

    SB_TRY(parcel_open(ctx, p->from_next, p->from_next_bytes, &from));
    if (!lane->paused)
        return SB_OK;
    sb_tensor *to = lane->paused->out[0];
    if (from.rank != to->rank ||
        memcmp(from.dims, to->dims, (size_t)to->rank * sizeof to->dims[0]) != 0)
        return sb_fail(ctx, SB_BAD_DATA,
                       "the gradient of the next rank has not the shape of "
                       "what it was given");
    memcpy(to->data, from.data, sb_tensor_bytes(to));
    lane->paused = NULL;
    SB_TRY(sb_exec_run_on(lane->exec, lane->outputs));
    return pipe_ended(p, lane, m);
}

/* ---- ticks -------------------------------------------------------------- */

/* Which piece goes forward, or back, on a rank in a tick; SIZE_MAX: none. */
static size_t piece_at(const sb_pipe *p, size_t tick, size_t rank, bool back)
{
    size_t first = back ? 2 * (p->ranks - 1) - rank : rank;

    if (rank >= p->ranks || tick < first || tick - first >= p->pieces ||
        p->weights[tick - first] <= 0)
        return SIZE_MAX;
    return tick - first;
}

/* What was made goes to the neighbors. */
static sb_status pipe_exchange(sb_pipe *p, size_t tick)
{
    sb_ctx *ctx = p->l->ctx;
    size_t r = p->rank;
    int here = (int)r;
    bool last = r + 1 == p->ranks;
    bool gives = !last && piece_at(p, tick, r, false) != SIZE_MAX;
    bool takes = r > 0 && piece_at(p, tick, r - 1, false) != SIZE_MAX;

    sb_memory_free(p->from_previous);
    SB_TRY(sb_comm_send_receive(ctx, p->next.data, p->next.bytes,
                                gives ? here + 1 : -1, takes ? here - 1 : -1,
                                &p->from_previous, &p->from_previous_bytes));
    gives = r > 0 && piece_at(p, tick, r, true) != SIZE_MAX;
    takes = !last && piece_at(p, tick, r + 1, true) != SIZE_MAX;
    sb_memory_free(p->from_next);
    return sb_comm_send_receive(ctx, p->previous.data, p->previous.bytes,
                                gives ? here - 1 : -1, takes ? here + 1 : -1,
                                &p->from_next, &p->from_next_bytes);
}

static sb_status pipe_tick(sb_pipe *p, size_t tick,
                           const sb_tensor *const *inputs,
                           const sb_tensor *target)
{
    bool last = p->rank + 1 == p->ranks;
    size_t back = piece_at(p, tick, p->rank, true);
    size_t forward = piece_at(p, tick, p->rank, false);

    if (!last && back != SIZE_MAX)
        SB_TRY(pipe_backward(p, &p->lanes[back % p->n_lanes], back));
    if (forward != SIZE_MAX) {
        sb_lane *lane = &p->lanes[forward % p->n_lanes];

        SB_TRY(lane_open(p, forward % p->n_lanes));
        SB_TRY(lane_fill(p, lane, forward, inputs));
        SB_TRY(last ? pipe_whole(p, lane, forward, target)
                    : pipe_forward(p, lane));
    }
    return pipe_exchange(p, tick);
}

static void pipe_take_sum(sb_pipe *p)
{
    sb_store *store = &p->l->store;

    memcpy(store->gradients.data, p->sum, sb_tensor_bytes(&store->gradients));
    for (size_t i = 0; i < store->n; i++)
        store->all[i].kept[SB_STORE_GRADIENT].version++;
}

sb_status sb_pipe_gradient(sb_learner *l, const sb_tensor *const *inputs,
                           size_t n, const sb_tensor *target, double *loss)
{
    sb_pipe *p = l->pipe;

    SB_TRY(pipe_check_batch(p, inputs, n, target));
    pipe_weigh(p, target);
    memset(p->sum, 0, sb_tensor_bytes(&l->store.gradients));
    p->loss = 0;
    for (size_t t = 0; t < p->pieces + 2 * (p->ranks - 1); t++)
        SB_TRY(pipe_tick(p, t, inputs, target));
    pipe_take_sum(p);
    *loss = p->loss;
    return SB_OK;
}
