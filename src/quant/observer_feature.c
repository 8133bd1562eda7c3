/* Looking at activations of several channels: first for their ranges
 * (obs_scan.h), then to count them, a channel or a block of channels to each
 * thread.  For a single channel see observer_tensor.c. */
#include "base/threads.h"
#include "quant/observer_state.h"

static void raise_bars(const sb_observer *obs, int64_t c, sb_obs_tails *t)
{
    sb_obs_tails_raise(t, sb_hist_bar(&obs->hist, c, false, t->keep),
                       sb_hist_bar(&obs->hist, c, true, t->keep));
}

/* Is it worth while?  Asking costs a walk over the histogram. */
static bool raise_now(sb_observer *obs, size_t more)
{
    int64_t elements = obs->elements + (int64_t)more;

    if (elements < obs->raised + obs->raised / 4)
        return false;
    obs->raised = elements;
    return true;
}

typedef struct channels_job {
    sb_observer *obs;
    const sb_obs_view *view;
    bool raise; /* bars */
} channels_job;

/* Items are blocks of channels in channels-last order. */
static void count_last(void *arg, size_t begin, size_t end)
{
    const channels_job *job = arg;
    sb_observer *obs = job->obs;
    size_t channels = (size_t)obs->channels;
    size_t rows = (size_t)(job->view->samples * job->view->outer);

    for (size_t b = begin; b < end; b++) {
        size_t c = b * SB_OBS_BLOCK, left = channels - c;
        if (left > SB_OBS_BLOCK)
            left = SB_OBS_BLOCK;
        const float *x = job->view->data + c;
        sb_hist_add_block(&obs->hist, (int64_t)c, x, rows, channels, left);
        if (!obs->tails)
            continue;
        for (size_t k = 0; job->raise && k < left; k++)
            raise_bars(obs, (int64_t)(c + k), &obs->tails[c + k]);
        sb_obs_tails_take_block(&obs->tails[c], x, rows, channels, left);
    }
}

/* Items are channels, each in runs of neighbours. */
static void count_first(void *arg, size_t begin, size_t end)
{
    const channels_job *job = arg;
    sb_observer *obs = job->obs;
    size_t channels = (size_t)obs->channels, n = (size_t)job->view->inner;
    size_t runs = (size_t)(job->view->samples * job->view->outer);

    for (size_t c = begin; c < end; c++) {
        const float *x = job->view->data + c * n;
        for (size_t r = 0; r < runs; r++)
            sb_hist_add_channel(&obs->hist, (int64_t)c, x + r * channels * n,
                                n);
        if (!obs->tails)
            continue;
        if (job->raise)
            raise_bars(obs, (int64_t)c, &obs->tails[c]);
        for (size_t r = 0; r < runs; r++)
            sb_obs_tails_take(&obs->tails[c], x + r * channels * n, n);
    }
}

sb_status sb_observer_channels(sb_observer *obs, const sb_obs_view *view,
                               const sb_obs_keys *keys)
{
    sb_ctx *ctx = obs->ctx;
    int64_t channels = obs->channels;
    size_t each = (size_t)(view->samples * view->outer * view->inner);
    channels_job job = {.obs = obs, .view = view};

    if (!(obs->needs & SB_OBS_HISTOGRAM))
        return SB_OK;
    for (int64_t c = 0; obs->tails && c < channels; c++)
        SB_TRY(sb_obs_tails_reserve(ctx, &obs->tails[c], each));
    SB_TRY(sb_hist_reserve(ctx, &obs->hist, 1, each));
    for (int64_t i = 0; i < view->samples * channels; i++)
        sb_hist_fit(&obs->hist, i % channels, keys[i]);
    job.raise = obs->tails && raise_now(obs, each * (size_t)channels);
    if (view->inner == 1)
        sb_parallel_for(ctx, (size_t)(channels - 1) / SB_OBS_BLOCK + 1, 1,
                        count_last, &job);
    else
        sb_parallel_for(ctx, (size_t)channels, 1, count_first, &job);
    return SB_OK;
}
