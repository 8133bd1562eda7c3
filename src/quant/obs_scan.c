/* Least and greatest values (obs_scan.h). */
#include "quant/obs_scan.h"

#include "base/simd.h"
#include "base/threads.h"

SB_HOT static void scan_most(const float *x, size_t n, int32_t *most,
                             uint32_t *most_low)
{
    int32_t high = INT32_MIN;
    uint32_t low = 0;

    for (size_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        high = bits > high ? bits : high;
        low = (uint32_t)bits > low ? (uint32_t)bits : low;
    }
    *most = high;
    *most_low = low;
}

SB_HOT static void scan_least(const float *x, size_t n, int32_t *least)
{
    int32_t found = INT32_MAX;

    for (size_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        found = bits < found ? bits : found;
    }
    *least = sb_obs_key_turn(found);
}

/* Bits with a sign order backwards as integers, and above all others as numbers
 * without one.  So the greatest of either kind are the extremes if there are
 * values of both signs.  Else the extreme nearer to zero is the least integer,
 * which is looked for only if values came as near as that before. */
sb_obs_keys sb_obs_scan_rest(const float *x, size_t n, int32_t most,
                             uint32_t most_low, sb_obs_keys keys)
{
    bool any_low = most_low >> 31, any_high = most >= 0;
    int32_t lo = keys.lo, hi = keys.hi;

    if (any_low)
        lo = sb_obs_key_turn((int32_t)most_low);
    else if (keys.lo > 0)
        scan_least(x, n, &lo);
    if (any_high)
        hi = most;
    else if (keys.hi < -1) /* that of -0 */
        scan_least(x, n, &hi);
    return sb_obs_keys_join(keys, (sb_obs_keys){lo, hi});
}

sb_obs_keys sb_obs_scan(const float *x, size_t n, sb_obs_keys keys)
{
    int32_t most;
    uint32_t most_low;

    if (n == 0)
        return keys;
    scan_most(x, n, &most, &most_low);
    return sb_obs_scan_rest(x, n, most, most_low, keys);
}

/* A whole block of channels: its loop has a fixed length. */
SB_HOT static void scan_rows(const float *x, size_t n_row, size_t stride,
                             int32_t *lo, int32_t *hi)
{
    for (size_t r = 0; r < n_row; r++, x += stride) {
        SB_SIMD
        for (size_t c = 0; c < SB_OBS_BLOCK; c++) {
            int32_t key = sb_obs_key(x[c]);
            lo[c] = key < lo[c] ? key : lo[c];
            hi[c] = key > hi[c] ? key : hi[c];
        }
    }
}

void sb_obs_scan_block(const float *x, size_t n_row, size_t stride,
                       size_t n_channel, sb_obs_keys *keys)
{
    int32_t lo[SB_OBS_BLOCK], hi[SB_OBS_BLOCK];

    for (size_t c = 0; c < SB_OBS_BLOCK; c++) {
        lo[c] = INT32_MAX;
        hi[c] = INT32_MIN;
    }
    if (n_channel == SB_OBS_BLOCK) {
        scan_rows(x, n_row, stride, lo, hi);
    } else {
        for (size_t r = 0; r < n_row; r++)
            for (size_t c = 0; c < n_channel; c++) {
                int32_t key = sb_obs_key(x[r * stride + c]);
                lo[c] = key < lo[c] ? key : lo[c];
                hi[c] = key > hi[c] ? key : hi[c];
            }
    }
    for (size_t c = 0; c < n_channel; c++)
        keys[c] = sb_obs_keys_join(keys[c], (sb_obs_keys){lo[c], hi[c]});
}

typedef struct scan_job {
    const sb_obs_view *view;
    sb_obs_keys *keys;
    size_t n_block; /* of a sample; channels-last only */
} scan_job;

/* Items are pairs of sample and block of channels. */
static void scan_last(void *arg, size_t begin, size_t end)
{
    const scan_job *job = arg;
    const sb_obs_view *v = job->view;
    size_t channels = (size_t)v->channels, outer = (size_t)v->outer;

    for (size_t i = begin; i < end; i++) {
        size_t s = i / job->n_block, c = i % job->n_block * SB_OBS_BLOCK;
        size_t left = channels - c;
        sb_obs_keys *keys = job->keys + s * channels + c;
        if (left > SB_OBS_BLOCK)
            left = SB_OBS_BLOCK;
        for (size_t k = 0; k < left; k++)
            keys[k] = SB_OBS_KEYS_EMPTY;
        sb_obs_scan_block(v->data + s * outer * channels + c, outer, channels,
                          left, keys);
    }
}

/* Items are pairs of sample and channel. */
static void scan_first(void *arg, size_t begin, size_t end)
{
    const scan_job *job = arg;
    const sb_obs_view *v = job->view;
    size_t channels = (size_t)v->channels, outer = (size_t)v->outer;
    size_t inner = (size_t)v->inner;

    for (size_t i = begin; i < end; i++) {
        size_t s = i / channels, c = i % channels;
        job->keys[i] = SB_OBS_KEYS_EMPTY;
        for (size_t o = 0; o < outer; o++) {
            size_t run = (s * outer + o) * channels + c;
            job->keys[i] =
                sb_obs_scan(v->data + run * inner, inner, job->keys[i]);
        }
    }
}

void sb_obs_scan_channels(sb_ctx *ctx, const sb_obs_view *view,
                          sb_obs_keys *keys)
{
    scan_job job = {.view = view, .keys = keys};
    size_t samples = (size_t)view->samples, channels = (size_t)view->channels;
    size_t work = (size_t)(view->outer * view->inner);

    if (view->inner == 1) {
        job.n_block = (channels + SB_OBS_BLOCK - 1) / SB_OBS_BLOCK;
        work *= SB_OBS_BLOCK;
        sb_parallel_for(ctx, samples * job.n_block, 16384 / work + 1, scan_last,
                        &job);
    } else {
        sb_parallel_for(ctx, samples * channels, 16384 / work + 1, scan_first,
                        &job);
    }
}
