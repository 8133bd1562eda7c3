/* Collecting what observers keep of activations that have one range.
 *
 * First every value is scanned for the least and the greatest of each sample:
 * tile by tile while the tensor is produced (sb_observer_tap), else in a pass
 * over memory.  Nothing of the state changes, so bad data leaves no trace.
 *
 * Then every value is counted in the histogram, whose range is known now, and
 * the extremes are taken.  Worker slots count chunks into tables and lists of
 * their own, which stay in the cache from tensor to tensor, and are added to
 * the observer's at the end.  Sums of counts and the largest of all values do
 * not depend on which slot had which chunk. */
#include "base/threads.h"
#include "quant/observe/observer_state.h"

enum {
    CHUNK = 1 << 14, /* values that a worker takes at a time */
    CACHED = 4096,   /* values that stay in the first cache between loops */
};

/* ---- scanning ------------------------------------------------------------- */

/* What one worker slot has scanned of a view. */
struct sb_slot_scan {
    uint64_t seen;       /* values */
    sb_minmax sample[1]; /* [samples] */
};

static sb_slot_scan *scan_slot(const sb_view_scan *scan, size_t slot)
{
    return (sb_slot_scan *)(void *)(scan->slots + slot * scan->step);
}

static sb_status scan_begin(sb_observer *obs, const sb_obs_view *view)
{
    sb_view_scan *scan = &obs->scan;
    size_t line = 64, n = (size_t)view->samples;

    scan->data = view->data;
    scan->samples = n;
    scan->per_sample = (size_t)(view->outer * view->inner);
    scan->n_slot = (size_t)sb_ctx_threads(obs->ctx);
    /* Slots are a cache line apart, so that threads do not share one. */
    scan->step = sizeof(sb_slot_scan) + n * sizeof(sb_minmax);
    scan->step = (scan->step + 2 * line - 1) / line * line;
    SB_TRY(sb_grow(obs->ctx, &scan->slots, &scan->size,
                   scan->n_slot * scan->step, 1));
    for (size_t i = 0; i < scan->n_slot; i++) {
        sb_slot_scan *slot = scan_slot(scan, i);
        slot->seen = 0;
        for (size_t s = 0; s < n; s++)
            slot->sample[s] = SB_MINMAX_EMPTY;
    }
    return SB_OK;
}

/* An sb_tap's: x is a part of the view. */
static void scan_values(void *arg, size_t slot, const float *x, size_t n)
{
    const sb_view_scan *scan = arg;
    sb_slot_scan *to = scan_slot(scan, slot);
    size_t at = (size_t)(x - scan->data), end = at + n;

    to->seen += n;
    while (at < end) {
        size_t s = at / scan->per_sample;
        size_t next = (s + 1) * scan->per_sample;
        next = next < end ? next : end;
        to->sample[s] = sb_scan(scan->data + at, next - at, to->sample[s]);
        at = next;
    }
}

static void scan_chunk(void *arg, size_t slot, size_t chunk)
{
    const sb_view_scan *scan = arg;
    size_t at = chunk * CHUNK;
    size_t left = scan->samples * scan->per_sample - at;

    scan_values(arg, slot, scan->data + at, left < CHUNK ? left : CHUNK);
}

sb_status sb_observer_tap(sb_observer *obs, const sb_obs_view *view,
                          sb_tap *tap)
{
    *tap = (sb_tap){0};
    if (obs->channels != 1 || view->channels != 1 || obs->done ||
        view->samples < 1 || view->outer * view->inner < 1)
        return SB_OK;
    SB_TRY(scan_begin(obs, view));
    *tap = (sb_tap){.look = scan_values, .arg = &obs->scan};
    return SB_OK;
}

/* Were all values of this view shown while it was produced? */
static bool scan_is_done(const sb_view_scan *scan, const sb_obs_view *view)
{
    uint64_t seen = 0;

    if (scan->data != view->data || scan->samples != (size_t)view->samples)
        return false;
    for (size_t i = 0; i < scan->n_slot; i++)
        seen += scan_slot(scan, i)->seen;
    return seen == (uint64_t)(view->samples * view->outer * view->inner);
}

sb_status sb_observer_scan(sb_observer *obs, const sb_obs_view *view,
                           sb_minmax *found)
{
    sb_view_scan *scan = &obs->scan;
    size_t n = (size_t)(view->samples * view->outer * view->inner);

    if (!scan_is_done(scan, view)) {
        SB_TRY(scan_begin(obs, view));
        sb_parallel_lanes(obs->ctx, (n - 1) / CHUNK + 1, scan->n_slot,
                          scan_chunk, scan);
    }
    scan->data = NULL; /* the next view may have the same memory */
    for (size_t s = 0; s < scan->samples; s++) {
        found[s] = SB_MINMAX_EMPTY;
        for (size_t i = 0; i < scan->n_slot; i++)
            found[s] = sb_minmax_join(found[s], scan_slot(scan, i)->sample[s]);
    }
    return SB_OK;
}

/* ---- counting ------------------------------------------------------------- */

typedef struct count_job {
    sb_observer *obs;
    const float *x;
    size_t n;
    bool extremes; /* there may be some */
} count_job;

static void count_values(const sb_histogram_table *table, sb_extremes *extremes,
                         const float *x, size_t n)
{
    for (size_t at = 0; at < n; at += CACHED) {
        size_t m = n - at < CACHED ? n - at : CACHED;
        sb_histogram_count(table, x + at, m);
        if (extremes)
            sb_extremes_take(extremes, x + at, m);
    }
}

static void count_chunk(void *arg, size_t slot, size_t chunk)
{
    const count_job *job = arg;
    sb_observer *obs = job->obs;
    sb_slot_counts *own = &obs->slots->slot[slot];
    sb_histogram_table table = sb_histogram_table_of(&obs->hist, 0);
    size_t at = chunk * CHUNK;

    table.counts = own->table;
    count_values(&table, job->extremes ? &own->extremes : NULL, job->x + at,
                 job->n - at < CHUNK ? job->n - at : CHUNK);
}

/* Tables are zeros between counts. */
static sb_status slots_reserve(sb_observer *obs, size_t n)
{
    sb_observer_slots *slots = obs->slots;
    size_t size = sb_histogram_table_size(&obs->hist);

    if (slots->n < n) {
        size_t old = slots->n;
        SB_TRY(
            sb_grow(obs->ctx, &slots->slot, &slots->n, n, sizeof *slots->slot));
        memset(slots->slot + old, 0, (slots->n - old) * sizeof *slots->slot);
    }
    for (size_t i = 0; i < n; i++) {
        sb_slot_counts *slot = &slots->slot[i];
        if (!slot->table)
            slot->table = sb_alloc(obs->ctx, size, sizeof *slot->table);
        if (!slot->table)
            return SB_NO_MEMORY;
        if (!obs->extremes)
            continue;
        slot->extremes.keep = obs->extremes->keep;
        sb_extremes_begin(&slot->extremes, obs->extremes);
        SB_TRY(sb_extremes_reserve(obs->ctx, &slot->extremes, SIZE_MAX));
    }
    return SB_OK;
}

void sb_observer_slots_free(sb_ctx *ctx, sb_observer_slots *slots)
{
    for (size_t i = 0; i < slots->n; i++) {
        sb_free(ctx, slots->slot[i].table);
        sb_extremes_free(ctx, &slots->slot[i].extremes);
    }
    sb_free(ctx, slots->slot);
    *slots = (sb_observer_slots){0};
}

/* How many slots count n values: none if they are a single chunk, and not more
 * than have values for all the bins that are added up. */
static size_t slots_for(const sb_observer *obs, size_t n)
{
    size_t threads = (size_t)sb_ctx_threads(obs->ctx);
    size_t most = n / SB_HISTOGRAM_BINS + 1;

    return n <= CHUNK ? 0 : threads < most ? threads : most;
}

static void count_in_slots(count_job *job, size_t slots, sb_minmax all)
{
    sb_observer *obs = job->obs;

    sb_parallel_lanes(obs->ctx, (job->n - 1) / CHUNK + 1, slots, count_chunk,
                      job);
    for (size_t i = 0; i < slots; i++) {
        sb_slot_counts *slot = &obs->slots->slot[i];
        sb_histogram_add_table(&obs->hist, 0, slot->table, all);
        if (job->extremes)
            sb_extremes_merge(obs->extremes, &slot->extremes);
    }
}

sb_status sb_observer_count(sb_observer *obs, const sb_obs_view *view,
                            const sb_minmax *found)
{
    size_t n = (size_t)(view->samples * view->outer * view->inner);
    size_t slots = slots_for(obs, n);
    count_job job = {.obs = obs, .x = view->data, .n = n};
    sb_minmax all = SB_MINMAX_EMPTY;

    if (!(obs->needs & SB_OBS_HISTOGRAM))
        return SB_OK;
    SB_TRY(slots_reserve(obs, slots));
    if (obs->extremes)
        SB_TRY(sb_extremes_reserve(obs->ctx, obs->extremes, n));
    SB_TRY(sb_histogram_reserve(obs->ctx, &obs->hist, n));
    for (int64_t s = 0; s < view->samples; s++)
        all = sb_minmax_join(all, found[s]);
    sb_histogram_fit(&obs->hist, 0, all);
    job.extremes = obs->extremes && sb_extremes_wants(obs->extremes, all);
    sb_histogram_table table = sb_histogram_table_of(&obs->hist, 0);
    if (slots > 0)
        count_in_slots(&job, slots, all);
    else
        count_values(&table, job.extremes ? obs->extremes : NULL, view->data,
                     n);
    return SB_OK;
}
