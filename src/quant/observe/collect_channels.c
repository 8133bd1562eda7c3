/* Counting activations of several channels, whose least and greatest values are
 * known (scan.h): a channel, or a block of channels, is the work of one thread.
 * For a single channel see collect.c. */
#include "base/threads.h"
#include "quant/observe/observer_state.h"

typedef struct channels_job {
    sb_observer *obs;
    const sb_obs_view *view;
} channels_job;

/* Items are blocks of channels in channels-last order. */
static void count_last(void *arg, size_t begin, size_t end)
{
    const channels_job *job = arg;
    sb_observer *obs = job->obs;
    size_t channels = (size_t)obs->channels;
    size_t rows = (size_t)(job->view->samples * job->view->outer);

    for (size_t b = begin; b < end; b++) {
        size_t c = b * SB_SCAN_BLOCK, left = channels - c;
        if (left > SB_SCAN_BLOCK)
            left = SB_SCAN_BLOCK;
        const float *x = job->view->data + c;
        sb_histogram_table t[SB_SCAN_BLOCK];
        for (size_t k = 0; k < left; k++)
            t[k] = sb_histogram_table_of(&obs->hist, (int64_t)(c + k));
        sb_histogram_count_rows(t, x, rows, channels, left);
        if (obs->extremes)
            sb_extremes_take_rows(&obs->extremes[c], x, rows, channels, left);
    }
}

/* Items are channels, each in runs of neighbors. */
static void count_first(void *arg, size_t begin, size_t end)
{
    const channels_job *job = arg;
    sb_observer *obs = job->obs;
    size_t channels = (size_t)obs->channels, n = (size_t)job->view->inner;
    size_t runs = (size_t)(job->view->samples * job->view->outer);

    for (size_t c = begin; c < end; c++) {
        const float *x = job->view->data + c * n;
        sb_histogram_table t = sb_histogram_table_of(&obs->hist, (int64_t)c);
        for (size_t r = 0; r < runs; r++)
            sb_histogram_count(&t, x + r * channels * n, n);
        for (size_t r = 0; obs->extremes && r < runs; r++)
            sb_extremes_take(&obs->extremes[c], x + r * channels * n, n);
    }
}

sb_status sb_observer_count_channels(sb_observer *obs, const sb_obs_view *view,
                                     const sb_minmax *found)
{
    sb_ctx *ctx = obs->ctx;
    int64_t channels = obs->channels;
    size_t each = (size_t)(view->samples * view->outer * view->inner);
    channels_job job = {.obs = obs, .view = view};

    if (!(obs->needs & SB_OBS_HISTOGRAM))
        return SB_OK;
    for (int64_t c = 0; obs->extremes && c < channels; c++)
        SB_TRY(sb_extremes_reserve(ctx, &obs->extremes[c], each));
    SB_TRY(sb_histogram_reserve(ctx, &obs->hist, each));
    for (int64_t i = 0; i < view->samples * channels; i++)
        sb_histogram_fit(&obs->hist, i % channels, found[i]);
    if (view->inner == 1)
        sb_parallel_for(ctx, (size_t)(channels - 1) / SB_SCAN_BLOCK + 1, 1,
                        count_last, &job);
    else
        sb_parallel_for(ctx, (size_t)channels, 1, count_first, &job);
    return SB_OK;
}
