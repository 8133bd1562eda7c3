/* Observing a weight: all of it is here, so the row gets the values
 * themselves, channel by channel, and the result is exact. */
#include <assert.h>

#include "base/threads.h"
#include "quant/observe/observer_state.h"

typedef struct weight_job {
    sb_observer *obs;
    const sb_obs_view *view;
    const sb_minmax *found;
    size_t n;      /* values of a channel */
    size_t blocks; /* of SB_SCAN_BLOCK channels */
    size_t parts;
    float *room; /* [parts, SB_SCAN_BLOCK, n] if channels lie scattered */
    bool non_negative;
} weight_job;

static void weight_range(const weight_job *job, size_t c, const float *x)
{
    sb_observer *obs = job->obs;
    sb_obs_values v = {
        .ctx = obs->ctx,
        .spec = &obs->spec,
        .channel = (int64_t)c,
        .alone = obs->channels == 1,
        .range = sb_minmax_range(job->found[c]),
        .non_negative = job->non_negative,
        .per_sample = (double)job->n * (double)obs->channels,
        .x = x,
        .n = (int64_t)job->n,
    };

    obs->done[c] = obs->def->range(&v);
}

/* Copies a block of channels so that each lies in one piece. */
static void weight_gather(const weight_job *job, size_t c, size_t count,
                          float *room)
{
    const sb_obs_view *v = job->view;
    size_t channels = (size_t)v->channels, inner = (size_t)v->inner;

    for (size_t o = 0; o < (size_t)v->outer; o++)
        for (size_t k = 0; k < count; k++)
            memcpy(room + k * job->n + o * inner,
                   v->data + (o * channels + c + k) * inner,
                   inner * sizeof *room);
}

static void weight_part(void *arg, size_t begin, size_t end)
{
    const weight_job *job = arg;
    size_t channels = (size_t)job->obs->channels;

    for (size_t p = begin; p < end; p++)
        for (size_t b = p; b < job->blocks; b += job->parts) {
            size_t c = b * SB_SCAN_BLOCK, count = channels - c;
            if (count > SB_SCAN_BLOCK)
                count = SB_SCAN_BLOCK;
            const float *x = job->view->data + c * job->n;
            if (job->room) {
                float *room = job->room + p * SB_SCAN_BLOCK * job->n;
                weight_gather(job, c, count, room);
                x = room;
            }
            for (size_t k = 0; k < count; k++)
                weight_range(job, c + k, x + k * job->n);
        }
}

sb_status sb_observer_weight(sb_observer *obs, const sb_obs_view *view,
                             const sb_minmax *found)
{
    sb_ctx *ctx = obs->ctx;
    size_t channels = (size_t)obs->channels;
    weight_job job = {
        .obs = obs,
        .view = view,
        .found = found,
        .n = (size_t)(view->outer * view->inner),
        .blocks = (channels - 1) / SB_SCAN_BLOCK + 1,
        .non_negative = true,
    };
    bool scattered = channels > 1 && view->outer > 1;
    bool values = obs->needs & (SB_OBS_HISTOGRAM | SB_OBS_EXTREMES);

    assert(view->samples == 1);
    for (size_t c = 0; c < channels; c++)
        job.non_negative &= sb_minmax_range(found[c]).lo >= 0.0F;
    job.parts = (size_t)sb_ctx_threads(ctx);
    if (job.parts > job.blocks)
        job.parts = job.blocks;
    if (scattered && values) {
        job.room = sb_alloc_raw(ctx, job.parts * SB_SCAN_BLOCK,
                                job.n * sizeof *job.room);
        if (!job.room)
            return SB_NO_MEMORY;
    }
    sb_parallel_for(ctx, job.parts, sb_observer_grain(obs, job.parts),
                    weight_part, &job);
    sb_free(ctx, job.room);
    return SB_OK;
}
