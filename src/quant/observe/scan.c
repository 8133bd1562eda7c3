/* Least and greatest values (scan.h). */
#include "quant/observe/scan.h"

#include "base/simd.h"
#include "base/threads.h"

SB_HOT static void scan_values(const float *x, size_t n, int32_t *lo,
                               int32_t *hi)
{
    int32_t least = INT32_MAX, most = INT32_MIN;

    for (size_t i = 0; i < n; i++) {
        int32_t key = sb_float_key(x[i]);
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    *lo = least;
    *hi = most;
}

sb_minmax sb_scan(const float *x, size_t n, sb_minmax m)
{
    sb_minmax found;

    scan_values(x, n, &found.lo, &found.hi);
    return sb_minmax_join(m, found);
}

/* A whole block of channels: its loop has a fixed length. */
SB_HOT static void scan_rows(const float *x, size_t n_row, size_t stride,
                             int32_t *lo, int32_t *hi)
{
    for (size_t r = 0; r < n_row; r++, x += stride) {
        SB_SIMD
        for (size_t c = 0; c < SB_SCAN_BLOCK; c++) {
            int32_t key = sb_float_key(x[c]);
            lo[c] = key < lo[c] ? key : lo[c];
            hi[c] = key > hi[c] ? key : hi[c];
        }
    }
}

static void scan_block(const float *x, size_t n_row, size_t stride,
                       size_t n_channel, sb_minmax *m)
{
    int32_t lo[SB_SCAN_BLOCK], hi[SB_SCAN_BLOCK];

    for (size_t c = 0; c < SB_SCAN_BLOCK; c++) {
        lo[c] = INT32_MAX;
        hi[c] = INT32_MIN;
    }
    if (n_channel == SB_SCAN_BLOCK) {
        scan_rows(x, n_row, stride, lo, hi);
    } else {
        for (size_t r = 0; r < n_row; r++)
            for (size_t c = 0; c < n_channel; c++) {
                int32_t key = sb_float_key(x[r * stride + c]);
                lo[c] = key < lo[c] ? key : lo[c];
                hi[c] = key > hi[c] ? key : hi[c];
            }
    }
    for (size_t c = 0; c < n_channel; c++)
        m[c] = sb_minmax_join(m[c], (sb_minmax){lo[c], hi[c]});
}

typedef struct scan_job {
    const sb_obs_view *view;
    sb_minmax *found;
    size_t n_block; /* of a sample; channels-last only */
} scan_job;

/* Items are pairs of sample and block of channels. */
static void scan_last(void *arg, size_t begin, size_t end)
{
    const scan_job *job = arg;
    const sb_obs_view *v = job->view;
    size_t channels = (size_t)v->channels, outer = (size_t)v->outer;

    for (size_t i = begin; i < end; i++) {
        size_t s = i / job->n_block, c = i % job->n_block * SB_SCAN_BLOCK;
        size_t left = channels - c;
        sb_minmax *m = job->found + s * channels + c;
        if (left > SB_SCAN_BLOCK)
            left = SB_SCAN_BLOCK;
        for (size_t k = 0; k < left; k++)
            m[k] = SB_MINMAX_EMPTY;
        scan_block(v->data + s * outer * channels + c, outer, channels, left,
                   m);
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
        job->found[i] = SB_MINMAX_EMPTY;
        for (size_t o = 0; o < outer; o++) {
            size_t run = (s * outer + o) * channels + c;
            job->found[i] =
                sb_scan(v->data + run * inner, inner, job->found[i]);
        }
    }
}

void sb_scan_channels(sb_ctx *ctx, const sb_obs_view *view, sb_minmax *m)
{
    scan_job job = {.view = view, .found = m};
    size_t samples = (size_t)view->samples, channels = (size_t)view->channels;
    size_t work = (size_t)(view->outer * view->inner);

    if (view->inner == 1) {
        job.n_block = (channels + SB_SCAN_BLOCK - 1) / SB_SCAN_BLOCK;
        work *= SB_SCAN_BLOCK;
        sb_parallel_for(ctx, samples * job.n_block, 16384 / work + 1, scan_last,
                        &job);
    } else {
        sb_parallel_for(ctx, samples * channels, 16384 / work + 1, scan_first,
                        &job);
    }
}
