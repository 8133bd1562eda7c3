/* The life of a pipeline: which rank has which parameters, and what all have.
 */
#include "learn/pipe.h"

#include <string.h>

#include "base/ranks/comm.h"

/* ---- refusals ----------------------------------------------------------- */

static sb_status pipe_check(const sb_learner *l)
{
    const sb_learn_options *o = &l->opt;

    if (!sb_comm_sends(l->ctx))
        return sb_fail(l->ctx, SB_UNSUPPORTED,
                       "a pipeline needs send_receive of the sb_comm that "
                       "connects the ranks, which it has not: set it, or train "
                       "without a pipeline");
    if (o->loss != SB_LEARN_LOSS_CROSS_ENTROPY || o->n_features)
        return sb_fail(l->ctx, SB_UNSUPPORTED,
                       "a pipeline learns labels only: no teacher, no loss of "
                       "the caller, no features");
    for (size_t i = 0; i < l->store.n; i++)
        if (l->store.all[i].info.trained &&
            l->store.all[i].info.role == SB_PARAMETER_ROLE_STATISTIC)
            return sb_fail(l->ctx, SB_UNSUPPORTED,
                           "'%s': batch normalization goes by the whole batch, "
                           "which a pipeline never has",
                           l->store.all[i].info.name);
    return SB_OK;
}

/* ---- stages ------------------------------------------------------------- */

/* Which rank trains what. */
static sb_status pipe_owners(sb_pipe *p, const sb_pipe_stage *stage, int rank)
{
    const sb_store *store = &p->l->store;
    sb_map reads;

    sb_map_init(&reads, store->ctx);
    sb_status status = sb_pipe_stage_constants(p->l->source, stage, &reads);
    for (size_t i = 0; i < store->n && status == SB_OK; i++) {
        const sb_parameter_info *info = &store->all[i].info;

        if (sb_map_get(&reads, info->name) == SB_MAP_NONE)
            continue;
        if (info->trained && p->owner[i] >= 0)
            status = sb_fail(store->ctx, SB_UNSUPPORTED,
                             "'%s' is read by the stages of rank %d and rank "
                             "%d: a pipeline cannot train it",
                             info->name, p->owner[i], rank);
        p->owner[i] = rank;
    }
    sb_map_free(&reads);
    return status;
}

static sb_status pipe_stages(sb_pipe *p)
{
    const sb_graph *g = p->l->source;
    sb_ctx *ctx = p->l->ctx;
    sb_value_id *cut = sb_alloc(ctx, p->ranks, sizeof *cut);
    sb_status status = cut ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK)
        status = sb_pipe_stages_find(g, p->ranks, cut);
    for (size_t i = 0; i < p->l->store.n; i++)
        p->owner[i] = -1;
    for (size_t r = 0; r < p->ranks && status == SB_OK; r++) {
        const sb_pipe_stage stage = sb_pipe_stage_at(g, cut, p->ranks, r);

        status = pipe_owners(p, &stage, (int)r);
        if (r == p->rank)
            p->stage = stage;
    }
    if (status == SB_OK)
        status = sb_pipe_stage_constants(g, &p->stage, &p->reads);
    sb_free(ctx, cut);
    return status;
}

static size_t pipe_lanes(const sb_pipe *p)
{
    size_t behind = p->ranks - 1 - p->rank, most = behind ? 2 * behind : 1;

    return p->pieces < most ? p->pieces : most;
}

/* A model that was read in part is trained by the rank whose part it is. */
static sb_status pipe_check_part(const sb_learner *l)
{
    const sb_graph *g = l->source;
    size_t ranks = l->opt.pipeline ? (size_t)sb_ctx_ranks(l->ctx) : 1;

    if (g->parts == ranks && g->part == (size_t)sb_ctx_rank(l->ctx))
        return SB_OK;
    return sb_graph_check_whole(g);
}

sb_status sb_pipe_open(sb_learner *l)
{
    sb_ctx *ctx = l->ctx;

    SB_TRY(pipe_check_part(l));
    if (l->opt.pipeline == 0 || sb_ctx_ranks(ctx) == 1)
        return SB_OK;
    SB_TRY(pipe_check(l));
    sb_pipe *p = sb_alloc(ctx, 1, sizeof *p);
    if (!p)
        return SB_NO_MEMORY;
    l->pipe = p;
    p->l = l;
    p->rank = (size_t)sb_ctx_rank(ctx);
    p->ranks = (size_t)sb_ctx_ranks(ctx);
    p->pieces = l->opt.pipeline;
    sb_map_init(&p->reads, ctx);
    int64_t n = sb_tensor_count(&l->store.gradients);
    p->owner = sb_alloc(ctx, l->store.n + 1, sizeof *p->owner);
    p->n_lanes = pipe_lanes(p);
    p->lanes = sb_alloc(ctx, p->n_lanes, sizeof *p->lanes);
    p->weights = sb_alloc(ctx, p->pieces, sizeof *p->weights);
    p->sum = sb_alloc(ctx, (size_t)n + 1, sizeof *p->sum);
    if (!p->owner || !p->lanes || !p->weights || !p->sum)
        return SB_NO_MEMORY;
    return pipe_stages(p);
}

void sb_pipe_drop(sb_learner *l)
{
    sb_pipe *p = l->pipe;

    if (!p || !p->lanes)
        return;
    /* The first one's executor is the learner's own, whose packed weights the
     * others share. */
    for (size_t i = p->n_lanes; i-- > 0;) {
        sb_lane *lane = &p->lanes[i];

        if (i > 0) {
            sb_exec_free(lane->exec);
            sb_free(l->ctx, lane->inputs);
            sb_free(l->ctx, lane->outputs);
        }
        sb_free(l->ctx, lane->pieces);
        sb_memory_free(lane->hidden_memory);
        *lane = (sb_lane){0};
    }
}

void sb_pipe_close(sb_learner *l)
{
    sb_pipe *p = l->pipe;

    if (!p)
        return;
    sb_pipe_drop(l);
    sb_free(l->ctx, p->next.data);
    sb_free(l->ctx, p->previous.data);
    sb_memory_free(p->from_next);
    sb_memory_free(p->from_previous);
    sb_map_free(&p->reads);
    sb_free(l->ctx, p->sum);
    sb_free(l->ctx, p->weights);
    sb_free(l->ctx, p->lanes);
    sb_free(l->ctx, p->owner);
    sb_free(l->ctx, p);
    l->pipe = NULL;
}

/* ---- what all have ------------------------------------------------------ */

sb_status sb_learner_collect(sb_learner *l)
{
    for (size_t i = 0; l->pipe && i < l->store.n; i++) {
        int owner = l->pipe->owner[i];

        SB_TRY(
            sb_store_share(&l->store, &l->store.all[i], owner < 0 ? 0 : owner));
    }
    return SB_OK;
}

int sb_learner_reads(const sb_learner *l, const char *name)
{
    return !l->pipe || sb_map_get(&l->pipe->reads, name) != SB_MAP_NONE;
}
