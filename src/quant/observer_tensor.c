/* Looking at activations that have one range: in two steps.
 *
 * The first step sees every value: least and greatest of each sample and, of
 * large tensors, the values above bars that keep nearly all others out.
 * Whoever makes the tensor can do it a piece at a time, while the piece is in
 * the cache of its thread (sb_observer_tap); else it is a pass over memory, on
 * all threads.  Nothing of the state changes yet, so bad data leaves no trace.
 *
 * The second step counts into the histogram, whose range is known now.  Small
 * tensors are counted whole.  Of large ones the values above the bars are
 * counted one by one; of the others one line of 16 out of `stride` is, `stride`
 * times.  Lines are copied in the first step, so the second need not follow at
 * once: it waits until all tensors of a batch are there, each of which is then
 * counted by one thread (sb_observer_settle).
 *
 * What results depend on most, the outermost values, is exact that way: a
 * percentile is among them, unless values shrink later; what is clipped is
 * counted, not estimated.  Bars follow from the counts of the samples before
 * number 8, 64, 512, ..., those before number 8 from lines of the very first:
 * too late for who looks at these, who therefore guesses (obs_guess.c). */
#include "quant/obs_job.h"

enum {
    MARGIN = 2,         /* bars let so many times pass what is to be cut, */
    MARGIN_MORE = 64,   /* and so many more, */
    MARGIN_TAILS = 256, /* or so many if they are to be cut; */
    MARGIN_WHOLE = 8,   /* the same if all is counted */
    MARGIN_WHOLE_MORE = 1024,
    SEGMENT = 8, /* times as many samples have the next bars */
};

/* ---- bars ------------------------------------------------------------------ */

double sb_obs_fraction(const sb_observer *obs)
{
    return obs->tails ? obs->spec.percentile_alpha : 1.0 / 8192;
}

/* The segment of samples that share their bars. */
static int64_t segment_of(int64_t sample)
{
    int64_t first = 1;

    while (SEGMENT * first <= sample)
        first *= SEGMENT;
    return first;
}

/* How many of n values on a side shall pass the bar: what is to be cut surely
 * is among them, unless values shrink a lot. */
double sb_obs_want(const sb_observer *obs, double n, bool whole)
{
    double part = sb_obs_fraction(obs);
    double want = MARGIN_WHOLE * part * n + MARGIN_WHOLE_MORE;

    if (!whole)
        return MARGIN * part * n + (obs->tails ? MARGIN_TAILS : MARGIN_MORE);
    return want < SB_TAIL_KEEP ? want : SB_TAIL_KEEP; /* for lists alone */
}

/* Zeros never pass: that a rank is among them says the histogram. */
static int32_t not_below_zero(int32_t bar)
{
    return bar > 0 ? bar : 0;
}

static void set_bars(sb_observer *obs, int64_t sample, uint64_t seen,
                     bool whole)
{
    /* Who does not cut does not count how many are on which side. */
    double above = (double)(obs->tails ? seen - obs->below : seen);
    double below = (double)(obs->tails ? obs->below : seen);

    if (obs->bars_from == segment_of(sample))
        return;
    obs->bars_from = segment_of(sample);
    above = sb_obs_want(obs, above, whole);
    below = sb_obs_want(obs, below, whole);
    obs->bar_high =
        not_below_zero(sb_hist_bar(&obs->hist, 0, false, (uint64_t)above));
    obs->bar_low =
        not_below_zero(sb_hist_bar(&obs->hist, 0, true, (uint64_t)below));
}

typedef struct first_job {
    sb_observer *obs;
    const float *x;
    size_t n;
    double part;     /* of a sample that they are */
    double count[2]; /* values of a sample above zero, below */
    bool whole;
} first_job;

static void first_bar(void *arg, size_t begin, size_t end)
{
    const first_job *job = arg;

    for (size_t side = begin; side < end; side++) {
        double want = sb_obs_want(job->obs, job->count[side], job->whole);
        *(side ? &job->obs->bar_low : &job->obs->bar_high) =
            sb_obs_bar(job->x, job->n, side == 1, job->part * want);
    }
}

/* Bars of the first samples: from lines of the very first. */
static void first_bars(sb_obs_job *job)
{
    size_t stride = job->stride, whole;
    float *lines = job->lines;
    first_job first = {.obs = job->obs,
                       .x = job->data,
                       .n = job->per_sample,
                       .whole = stride == 1};
    uint32_t last;

    if (stride > 1) {
        job->lines += job->samples * job->groups * SB_OBS_LINE;
        first.x = job->lines;
        sb_obs_job_stride(job, sb_obs_first_stride(job));
        sb_obs_keep_lines(job, 0, 0, job->per_sample);
        first.n = sb_obs_kept(job, 0, &whole, &last);
        sb_obs_job_stride(job, stride);
        job->lines = lines;
    }
    double all = (double)job->per_sample;
    first.part = (double)first.n / all;
    /* Who does not cut does not care for sides. */
    first.count[0] = first.count[1] = all;
    if (job->obs->tails) {
        first.count[1] = (double)sb_obs_below(first.x, first.n) / first.part;
        first.count[0] = all - first.count[1];
    }
    sb_parallel_for(job->obs->ctx, 2, 1, first_bar, &first);
    job->obs->bars_from = segment_of(0);
}

/* ---- counting ------------------------------------------------------------- */

/* A list that is not long enough for its rank will never be again. */
static void drop_tail(const sb_observer *obs, sb_obs_tail *t, double n)
{
    if (n * obs->spec.percentile_alpha <= (double)obs->tails->keep + 1.0)
        return;
    t->n = 0;
    t->bar = SB_TAIL_NONE;
}

/* Did more pass the bars than there was room for? */
static bool lists_were_cut(const sb_obs_job *job)
{
    for (size_t i = 0; i < job->n_lanes; i++)
        if (job->lanes[i].tails.high.bar != job->obs->bar_high ||
            job->lanes[i].tails.low.bar != job->obs->bar_low)
            return true;
    return false;
}

static void keep_taken(sb_obs_job *job)
{
    sb_observer *obs = job->obs;
    sb_obs_tails *to = obs->tails;

    sb_obs_tails_raise(to, obs->bar_high, obs->bar_low);
    for (size_t i = 0; i < job->n_lanes; i++)
        sb_obs_tails_merge(to, &job->lanes[i].tails);
    /* Lanes that had to cut their lists, which are as long as this one at
     * least, did it below where this one ends. */
    if (lists_were_cut(job))
        sb_obs_tails_cut(to);
    drop_tail(obs, &to->high, (double)obs->elements - (double)obs->below);
    drop_tail(obs, &to->low, (double)obs->below);
}

void sb_observer_settle(sb_observer *obs)
{
    sb_obs_job *job = obs->job;

    if (!job || job->wait == job->wait_end)
        return;
    sb_obs_count_waiting(job);
    if (job->bars && obs->tails)
        keep_taken(job);
    job->wait = job->wait_end = 0;
}

/* Did so much pass the bars, in some sample, that they are of no use? */
static bool too_many(const sb_obs_job *job, size_t begin, size_t end)
{
    for (size_t s = begin; s < end; s++) {
        size_t taken = 0;
        for (size_t i = 0; i < job->n_lanes; i++)
            taken += job->lanes[i].found[s].taken;
        if (taken >= job->take_each)
            return true;
    }
    return lists_were_cut(job);
}

static void look_again(sb_obs_job *job, size_t begin, size_t end)
{
    sb_observer_settle(job->obs);
    sb_obs_look_all(job, begin, end);
}

/* Takes in samples [begin, end), which were looked at and are finite. */
static void take_samples(sb_obs_job *job, size_t begin, size_t end,
                         const sb_obs_keys *keys)
{
    sb_observer *obs = job->obs;
    bool full = job->bars && job->stride > 1 && too_many(job, begin, end);

    if (full && end - begin > 1) {
        /* One by one: so it does not depend on batches which are full. */
        for (size_t s = begin; s < end; s++) {
            look_again(job, s, s + 1);
            take_samples(job, s, s + 1, keys);
        }
        return;
    }
    job->wait_keys = SB_OBS_KEYS_EMPTY;
    for (size_t s = begin; s < end; s++)
        job->wait_keys = sb_obs_keys_join(job->wait_keys, keys[s]);
    for (size_t s = begin; s < end; s++)
        for (size_t i = 0; i < job->n_lanes; i++)
            obs->below += job->lanes[i].found[s].below;
    if (job->lines && !full) {
        obs->sampled |= job->stride > 1;
        job->wait = begin;
        job->wait_end = end;
        sb_obs_room_wait(obs);
        return;
    }
    sb_hist_fit(&obs->hist, 0, job->wait_keys);
    sb_obs_count_all(job, begin, end);
    if (job->bars && obs->tails)
        keep_taken(job);
}

/* ---- a view --------------------------------------------------------------- */

/* Joins what the lanes found of each sample; returns whether all is finite. */
static bool join_keys(const sb_obs_job *job, sb_obs_keys *keys)
{
    bool finite = true;

    for (size_t s = 0; s < job->samples; s++) {
        keys[s] = SB_OBS_KEYS_EMPTY;
        for (size_t i = 0; i < job->n_lanes; i++)
            keys[s] = sb_obs_keys_join(keys[s], job->lanes[i].found[s].keys);
        finite &= sb_obs_keys_finite(keys[s]);
    }
    return finite;
}

/* In segments that share their bars, which the ones before tell. */
static void take_segments(sb_obs_job *job, const sb_obs_keys *keys)
{
    sb_observer *obs = job->obs;
    int64_t from = obs->samples;

    for (size_t begin = 0; begin < job->samples;) {
        int64_t sample = from + (int64_t)begin;
        size_t end = (size_t)(SEGMENT * segment_of(sample) - from);
        end = end < job->samples ? end : job->samples;
        sb_observer_settle(obs);
        if (sample == 0)
            first_bars(job);
        else
            set_bars(obs, sample,
                     (uint64_t)obs->elements + begin * job->per_sample,
                     job->stride == 1);
        bool looked = job->guess && sb_obs_guessed(job, end);
        job->bars = true;
        job->guess = false;
        if (!looked)
            sb_obs_look_all(job, begin, end);
        take_samples(job, begin, end, keys);
        begin = end;
    }
}

/* Are there bars for such views? */
static bool has_bars(const sb_obs_job *job)
{
    return job->obs->tails || job->stride > 1;
}

/* Before looking: with bars if all samples of the view share them and the ones
 * before tell them. */
static void begin_looking(sb_obs_job *job)
{
    sb_observer *obs = job->obs;
    int64_t last = obs->samples + (int64_t)job->samples - 1;

    job->bars = has_bars(job) && obs->samples > 0 &&
                segment_of(obs->samples) == segment_of(last);
    if (job->bars)
        set_bars(obs, obs->samples, (uint64_t)obs->elements, job->stride == 1);
    sb_obs_job_clear(job);
}

/* Was this view shown while it was made, all of it? */
static bool was_shown(const sb_obs_job *job, const sb_obs_view *view)
{
    uint64_t seen = 0;

    if (!job || !job->tapped || job->data != view->data ||
        job->samples != (size_t)view->samples)
        return false;
    for (size_t i = 0; i < job->n_lanes; i++)
        seen += job->lanes[i].seen;
    return seen == (uint64_t)(view->samples * view->outer * view->inner);
}

sb_status sb_observer_tensor(sb_observer *obs, const sb_obs_view *view,
                             sb_obs_keys *keys)
{
    size_t elements = (size_t)(view->samples * view->outer * view->inner);

    if (!was_shown(obs->job, view)) {
        sb_observer_settle(obs);
        SB_TRY(sb_obs_job_begin(obs, view, sb_obs_lanes(obs, elements)));
        begin_looking(obs->job);
        sb_obs_look_all(obs->job, 0, obs->job->samples);
    }
    sb_obs_job *job = obs->job;
    job->tapped = false;
    /* The caller sees in the keys what is not finite. */
    bool count = join_keys(job, keys) && (obs->needs & SB_OBS_HISTOGRAM);
    if (count && has_bars(job) && !job->bars)
        take_segments(job, keys);
    else if (count)
        take_samples(job, 0, job->samples, keys);
    sb_obs_job_end(job);
    return SB_OK;
}

void sb_observer_share(sb_observer *obs, sb_obs_room *room)
{
    obs->room = room;
}

sb_status sb_observer_tap(sb_observer *obs, const sb_obs_view *view,
                          sb_tap *tap)
{
    size_t lanes = (size_t)sb_ctx_threads(obs->ctx);

    *tap = (sb_tap){0};
    if (obs->channels != 1 || view->channels != 1 || obs->done ||
        view->samples < 1 || view->outer * view->inner < 1 ||
        lanes > SB_OBS_LANES_MOST)
        return SB_OK;
    sb_observer_settle(obs);
    SB_TRY(sb_obs_job_begin(obs, view, lanes));
    begin_looking(obs->job);
    obs->job->tapped = true;
    *tap = (sb_tap){.look = sb_obs_look, .arg = obs->job};
    return SB_OK;
}
