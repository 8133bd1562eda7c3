/* Calibration by several ranks, each on its part of the samples.
 *
 * What observers of all ranks have seen is merged in the order of ranks, on all
 * of them; states are integers and values that were seen (for moving averages,
 * the ranges of all samples), so that is what one rank would have after all
 * samples.  Batches that were kept for methods that run the network again go
 * from every rank to all, and each computes the rest alone: those methods take
 * batches in order, and sums of floats would be others. */
#include <stdio.h>
#include <string.h>

#include "base/ranks/comm.h"
#include "quant/calibrate/batch_store.h"
#include "quant/calibrate/calibrate.h"
#include "quant/calibrate/replay.h"

/* ---- observers ---------------------------------------------------------- */

static void join_forget(sb_quant_model *qm, const int32_t *group, int32_t which)
{
    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        sb_point_state *state = &qm->state.points[i];

        if (!sb_calibrate_observes(qm, i) || (group && group[i] != which))
            continue;
        sb_observer_free(state->observer);
        state->observer = NULL;
        state->samples = 0;
    }
}

static sb_status join_load(sb_quant_model *qm, const char *text,
                           const size_t *sizes)
{
    for (int r = 0; r < sb_ctx_ranks(qm->ctx); text += sizes[r++]) {
        char name[32];

        (void)snprintf(name, sizeof name, "rank %d", r);
        SB_TRY(sb_calibration_load_memory(qm, name, text, sizes[r], true));
    }
    return SB_OK;
}

sb_status sb_calibrate_join(sb_quant_model *qm, const int32_t *group,
                            int32_t which)
{
    size_t ranks = (size_t)sb_ctx_ranks(qm->ctx);
    size_t *sizes = sb_alloc(qm->ctx, ranks, sizeof *sizes);
    void *all = NULL;
    sb_str own;

    sb_str_init(&own, qm->ctx);
    sb_status status = sizes ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK)
        status = sb_calibration_save_memory(qm, group, which, &own);
    if (status == SB_OK)
        status = sb_comm_gather(qm->ctx, own.data, own.len, sizes, &all);
    sb_str_free(&own);
    if (status == SB_OK) {
        join_forget(qm, group, which);
        status = join_load(qm, all, sizes);
    }
    sb_memory_free(all);
    sb_free(qm->ctx, sizes);
    return status;
}

/* ---- batches ------------------------------------------------------------ */

/* One tensor of `root`, NULL there for none; *out is dropped by the caller. */
static sb_status send_tensor(sb_ctx *ctx, int root, const sb_tensor *t,
                             sb_tensor *out)
{
    int64_t head[3 + SB_MAX_RANK] = {0};

    *out = (sb_tensor){0};
    if (t) {
        head[0] = 1;
        head[1] = (int64_t)t->dtype;
        head[2] = t->rank;
        memcpy(head + 3, t->dims, (size_t)t->rank * sizeof head[0]);
    }
    SB_TRY(sb_comm_broadcast(ctx, head, sizeof head, root));
    if (!head[0])
        return SB_OK;
    *out = sb_tensor_make((sb_dtype)head[1], (int)head[2], head + 3);
    SB_TRY(sb_tensor_alloc(ctx, out));
    if (t)
        memcpy(out->data, t->data, sb_tensor_bytes(out));
    return sb_comm_broadcast(ctx, out->data, sb_tensor_bytes(out), root);
}

/* Batch `i` of rank `root`, into `to` of all ranks. */
static sb_status send_batch(sb_quant_model *qm, int root, size_t i,
                            sb_batch_store *to)
{
    size_t n = qm->graph->n_inputs;
    bool own = sb_ctx_rank(qm->ctx) == root;
    const sb_tensor *const *from = NULL;
    sb_tensor *t = sb_alloc(qm->ctx, n + 1, sizeof *t);
    const sb_tensor **given = sb_alloc(qm->ctx, n + 1, sizeof(*given));
    sb_status status = t && given ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK && own)
        status = sb_batch_store_get(qm->state.batches, i, &from);
    for (size_t k = 0; k < n && status == SB_OK; k++) {
        status = send_tensor(qm->ctx, root, own ? from[k] : NULL, &t[k]);
        given[k] = t[k].data ? &t[k] : NULL;
    }
    if (status == SB_OK)
        status = sb_batch_store_take(to, given);
    for (size_t k = 0; t && k < n; k++)
        sb_tensor_drop(&t[k]);
    sb_free(qm->ctx, t);
    sb_free(qm->ctx, given);
    return status;
}

/* The batches of all ranks, in their order. */
static sb_status join_batches(sb_quant_model *qm, sb_batch_store *to)
{
    double counts[1];

    for (int r = 0; r < sb_ctx_ranks(qm->ctx); r++) {
        bool own = sb_ctx_rank(qm->ctx) == r;

        counts[0] = own ? (double)sb_batch_store_count(qm->state.batches) : 0;
        SB_TRY(sb_comm_sum_f64(qm->ctx, counts, 1));
        for (size_t i = 0; i < (size_t)counts[0]; i++)
            SB_TRY(send_batch(qm, r, i, to));
    }
    return SB_OK;
}

sb_status sb_quant_model_share_calibration(sb_quant_model *qm)
{
    sb_batch_store *to = NULL;
    sb_status status = SB_OK;

    if (sb_ctx_ranks(qm->ctx) == 1)
        return SB_OK;
    if (!qm->state.calibrating)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "there is nothing to share: calibrate first");
    qm->state.shared = true;
    if (!qm->state.blocks)
        SB_TRY(sb_calibrate_join(qm, NULL, 0));
    if (!qm->state.batches)
        return SB_OK;
    SB_TRY(sb_batch_store_create(qm->ctx, qm->graph->n_inputs,
                                 qm->state.calibration.memory_limit, &to));
    status = join_batches(qm, to);
    sb_batch_store_free(status == SB_OK ? qm->state.batches : to);
    if (status == SB_OK)
        qm->state.batches = to;
    return status;
}
