/* Looking at activations: one pass over the data, on all threads.
 *
 * A single channel is cut into chunks that stay in the first cache: its least
 * and greatest value are found, and when they fit the histogram's range, as
 * they nearly always do after the first batch, its values are counted at once.
 * The others wait until the whole view is known and the range has grown.  If
 * the view turns out to hold NaN or infinity, what was counted is taken back.
 * Outermost values are picked in the same way; bars that the histogram gives
 * keep nearly all others out.
 *
 * Several channels are looked at twice, first for their ranges. */
#include <assert.h>

#include "base/threads.h"
#include "quant/observer_state.h"

enum {
    CHUNK = 8192, /* elements: 32 KB */
    BLOCKS = CHUNK / SB_HIST_BLOCK,
    ITEM = 4,         /* chunks that a thread takes at a time */
    GUESS = 32,       /* one in so many chunks is looked at first */
    ALONE = 8 * CHUNK /* elements that are not worth a second thread */
};

/* ---- a single channel ---------------------------------------------------- */

typedef struct tensor_job {
    sb_observer *obs;
    const float *data;
    size_t per_sample; /* elements */
    size_t chunks;     /* of a sample */
    size_t n;          /* chunks in all */
    size_t elements;   /* in all */
    bool first;        /* there are no bars yet: lists are filled at the end */
    size_t lanes;      /* threads at a time, each with its own table */
    sb_obs_keys *keys; /* [n] */
    unsigned char *counted; /* [n] number of the table, from 1; 0: not yet */
    sb_obs_tails tails[SB_HIST_PARTS];
} tensor_job;

static const float *job_chunk(const tensor_job *job, size_t i, size_t *n,
                              size_t *ahead)
{
    size_t s = i / job->chunks, at = i % job->chunks * CHUNK;
    size_t from = s * job->per_sample + at;

    *n = job->per_sample - at < CHUNK ? job->per_sample - at : CHUNK;
    *ahead = job->elements - from;
    return job->data + from;
}

/* Takes what passes of a chunk, block by block. */
static void pick(sb_obs_tails *tails, const float *x, size_t n,
                 const sb_obs_keys *blocks)
{
    for (size_t at = 0; at < n; at += SB_HIST_BLOCK, blocks++)
        if (sb_obs_tails_want(tails, *blocks))
            sb_obs_tails_take(tails, x + at,
                              n - at < SB_HIST_BLOCK ? n - at : SB_HIST_BLOCK);
}

static void look_at_chunk(tensor_job *job, size_t lane, size_t i)
{
    sb_observer *obs = job->obs;
    sb_obs_keys blocks[BLOCKS], keys = SB_OBS_KEYS_EMPTY;
    size_t n, ahead;
    const float *x = job_chunk(job, i, &n, &ahead);

    job->counted[i] = 0;
    if (!(obs->needs & SB_OBS_HISTOGRAM)) {
        job->keys[i] = sb_obs_scan(x, n);
        return;
    }
    if (sb_hist_look(&obs->hist, (int)lane, x, n, ahead, blocks)) {
        job->counted[i] = (unsigned char)(lane + 1);
        if (obs->tails && !job->first)
            pick(&job->tails[lane], x, n, blocks);
    }
    for (size_t b = 0; b * SB_HIST_BLOCK < n; b++)
        keys = sb_obs_keys_join(keys, blocks[b]);
    job->keys[i] = keys;
}

static void take_back_chunk(tensor_job *job, size_t lane, size_t i)
{
    size_t n, ahead;
    const float *x = job_chunk(job, i, &n, &ahead);

    /* Whoever does it, it is the table of then; so this is not for threads. */
    (void)lane;
    if (job->counted[i])
        sb_hist_remove(&job->obs->hist, job->counted[i] - 1, x, n);
}

static void count_chunk(tensor_job *job, size_t lane, size_t i)
{
    size_t n, ahead;
    const float *x = job_chunk(job, i, &n, &ahead);

    if (!job->counted[i])
        sb_hist_add(&job->obs->hist, (int)lane, x, n);
}

static void take_chunk(tensor_job *job, size_t lane, size_t i)
{
    size_t n, ahead;
    const float *x = job_chunk(job, i, &n, &ahead);

    if ((job->first || !job->counted[i]) &&
        sb_obs_tails_want(&job->tails[lane], job->keys[i]))
        sb_obs_tails_take(&job->tails[lane], x, n);
}

/* Items are a few chunks each. */
#define DEFINE_ITEMS(name, act)                                                \
    static void name(void *arg, size_t lane, size_t item)                      \
    {                                                                          \
        tensor_job *job = arg;                                                 \
        for (size_t i = item * ITEM; i < job->n && i < (item + 1) * ITEM; i++) \
            act(job, lane, i);                                                 \
    }
DEFINE_ITEMS(look_at_items, look_at_chunk)
DEFINE_ITEMS(take_back_items, take_back_chunk)
DEFINE_ITEMS(count_items, count_chunk)
DEFINE_ITEMS(take_items, take_chunk)

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

static sb_status job_prepare(tensor_job *job)
{
    sb_observer *obs = job->obs;
    sb_ctx *ctx = obs->ctx;

    job->keys = sb_alloc_raw(ctx, job->n, sizeof *job->keys);
    job->counted = sb_alloc_raw(ctx, job->n, 1);
    if (!job->keys || !job->counted)
        return SB_NO_MEMORY;
    if (obs->tails) {
        SB_TRY(sb_obs_tails_reserve(ctx, obs->tails, job->elements));
        for (size_t p = 0; p < job->lanes; p++) {
            sb_obs_tails_init(&job->tails[p], obs->tails->keep);
            sb_obs_tails_raise(&job->tails[p], obs->tails->high.bar,
                               obs->tails->low.bar);
            SB_TRY(sb_obs_tails_reserve(ctx, &job->tails[p], job->elements));
        }
    }
    if (obs->needs & SB_OBS_HISTOGRAM)
        SB_TRY(
            sb_hist_reserve(ctx, &obs->hist, (int)job->lanes, job->elements));
    return SB_OK;
}

static void job_tails(tensor_job *job)
{
    sb_observer *obs = job->obs;

    if (raise_now(obs, job->elements))
        raise_bars(obs, 0, obs->tails);
    for (size_t p = 0; p < job->lanes; p++)
        sb_obs_tails_raise(&job->tails[p], obs->tails->high.bar,
                           obs->tails->low.bar);
    sb_parallel_lanes(obs->ctx, (job->n - 1) / ITEM + 1, job->lanes, take_items,
                      job);
    for (size_t p = 0; p < job->lanes; p++)
        sb_obs_tails_merge(obs->tails, &job->tails[p]);
}

/* Before anything is known a few chunks say how large values are, so that most
 * of the first view, too, is counted as it is looked at. */
static void job_guess(tensor_job *job)
{
    sb_obs_keys keys = SB_OBS_KEYS_EMPTY;
    size_t n, ahead;

    for (size_t i = 0; i < job->n; i += GUESS) {
        const float *x = job_chunk(job, i, &n, &ahead);
        keys = sb_obs_keys_join(keys, sb_obs_scan(x, n));
    }
    if (sb_obs_keys_finite(keys))
        sb_hist_fit(&job->obs->hist, 0, keys);
}

static void job_run(tensor_job *job, int64_t samples, sb_obs_keys *keys)
{
    sb_observer *obs = job->obs;
    sb_ctx *ctx = obs->ctx;
    size_t items = (job->n - 1) / ITEM + 1;
    sb_obs_keys all = SB_OBS_KEYS_EMPTY;

    if ((obs->needs & SB_OBS_HISTOGRAM) && job->first)
        job_guess(job);
    sb_parallel_lanes(ctx, items, job->lanes, look_at_items, job);
    for (size_t s = 0; s < (size_t)samples; s++) {
        keys[s] = SB_OBS_KEYS_EMPTY;
        for (size_t i = 0; i < job->chunks; i++)
            keys[s] = sb_obs_keys_join(keys[s], job->keys[s * job->chunks + i]);
        all = sb_obs_keys_join(all, keys[s]);
    }
    if (!sb_obs_keys_finite(all)) {
        sb_parallel_lanes(ctx, items, 1, take_back_items, job);
        if ((obs->needs & SB_OBS_HISTOGRAM) && job->first)
            obs->hist.exponent[0] = SB_HIST_UNSET;
        return; /* the caller sees it in the keys */
    }
    if (!(obs->needs & SB_OBS_HISTOGRAM))
        return;
    sb_hist_fit(&obs->hist, 0, all);
    sb_parallel_lanes(ctx, items, job->lanes, count_items, job);
    if (obs->tails)
        job_tails(job);
}

sb_status sb_observer_tensor(sb_observer *obs, const sb_obs_view *view,
                             sb_obs_keys *keys)
{
    size_t per_sample = (size_t)(view->outer * view->inner);
    size_t samples = (size_t)view->samples;
    tensor_job job = {
        .obs = obs,
        .data = view->data,
        .per_sample = per_sample,
        .chunks = (per_sample + CHUNK - 1) / CHUNK,
        .elements = samples * per_sample,
        .first = obs->elements == 0,
        .lanes = samples * per_sample / ALONE + 1,
    };

    job.n = samples * job.chunks;
    if (job.lanes > (size_t)sb_ctx_threads(obs->ctx))
        job.lanes = (size_t)sb_ctx_threads(obs->ctx);
    if (job.lanes > SB_HIST_PARTS)
        job.lanes = SB_HIST_PARTS;
    sb_status status = job_prepare(&job);
    if (status == SB_OK)
        job_run(&job, view->samples, keys);
    for (size_t p = 0; p < SB_HIST_PARTS; p++)
        sb_obs_tails_free(obs->ctx, &job.tails[p]);
    sb_free(obs->ctx, job.keys);
    sb_free(obs->ctx, job.counted);
    return status;
}

/* ---- several channels ---------------------------------------------------- */

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
