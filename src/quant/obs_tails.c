/* The largest values of either side (obs_tails.h). */
#include "quant/obs_tails.h"

#include <assert.h>

#include "base/simd.h"

/* As SB_SIMD, for a loop that asks whether any element is so. */
#ifdef _OPENMP
#define SIMD_ANY _Pragma("omp simd reduction(| : any)")
#else
#define SIMD_ANY
#endif

enum {
    LOOK = SB_TAIL_SLACK, /* values that are tested at a time */
    FEW = 512,            /* values that are selected from directly */
};

size_t sb_obs_tails_keep(int64_t channels)
{
    size_t keep = SB_TAIL_KEEP;

    if (channels > 1)
        keep = (size_t)(SB_TAIL_KEEP_BUDGET / channels);
    if (keep > SB_TAIL_KEEP)
        keep = SB_TAIL_KEEP;
    return keep < SB_TAIL_KEEP_LEAST ? SB_TAIL_KEEP_LEAST : keep;
}

void sb_obs_tails_init(sb_obs_tails *t, size_t keep)
{
    /* Zeros belong to the upper side; below, only what is below zero. */
    *t = (sb_obs_tails){.keep = keep, .high.bar = -1, .low.bar = 0};
}

void sb_obs_tails_clear(sb_obs_tails *t)
{
    t->high.n = t->low.n = 0;
    t->high.bar = -1;
    t->low.bar = 0;
}

void sb_obs_tails_free(sb_ctx *ctx, sb_obs_tails *t)
{
    sb_free(ctx, t->high.v);
    sb_free(ctx, t->low.v);
    *t = (sb_obs_tails){0};
}

size_t sb_obs_tails_bytes(const sb_obs_tails *t)
{
    return (t->high.cap + t->low.cap) * sizeof *t->high.v;
}

/* A value as its magnitude on the side that is asked for; others have the
 * highest bit. */
static uint32_t on_side(const unsigned char *x, size_t i, uint32_t turn)
{
    uint32_t v;

    memcpy(&v, x + 4 * i, sizeof v);
    return (v == 1U << 31 ? 0 : v) ^ turn; /* -0 is 0 */
}

/* The r-th largest of a few, which are moved about. */
static uint32_t select_few(uint32_t *v, size_t n, size_t r)
{
    for (;;) {
        uint32_t middle = v[n / 2];
        size_t above = 0, equal = 0, to = 0;
        for (size_t i = 0; i < n; i++) {
            above += v[i] > middle;
            equal += v[i] == middle;
        }
        if (r > above && r <= above + equal)
            return middle;
        bool high = r <= above;
        for (size_t i = 0; i < n; i++)
            if (high ? v[i] > middle : v[i] < middle)
                v[to++] = v[i];
        r -= high ? 0 : above + equal;
        n = to;
    }
}

/* Digits of eleven, eleven and ten bits, the highest first: after each, the
 * values that share the digits found so far remain, soon a few. */
float sb_obs_select(const void *x, size_t n, bool low, size_t r)
{
    static const int shift[] = {21, 10, 0}, width[] = {11, 11, 10};
    uint32_t found = 0, fixed = 1U << 31, turn = low ? 1U << 31 : 0;
    size_t left = n;
    float out;

    for (int d = 0; d < 3 && left > FEW; d++) {
        uint32_t mask = (1U << width[d]) - 1, digit = mask;
        uint32_t count[1 << 11] = {0};
        for (size_t i = 0; i < n; i++) {
            uint32_t v = on_side(x, i, turn);
            count[v >> shift[d] & mask] += (v & fixed) == found;
        }
        while (count[digit] < r) {
            assert(digit > 0);
            r -= count[digit--];
        }
        left = count[digit];
        found |= digit << shift[d];
        fixed |= mask << shift[d];
    }
    if (left <= FEW) {
        uint32_t few[FEW + 1];
        size_t k = 0;
        for (size_t i = 0; i < n && k < left; i++) {
            few[k] = on_side(x, i, turn);
            k += (few[k] & fixed) == found;
        }
        assert(r >= 1 && r <= k);
        found = select_few(few, k, r);
    }
    memcpy(&out, &found, sizeof out);
    return out;
}

/* Keeps the `keep` largest, in the order they have. */
static void tail_cut(sb_obs_tail *t, size_t keep)
{
    if (t->n < keep)
        return;
    float last = sb_obs_select(t->v, t->n, false, keep);
    uint32_t least;
    memcpy(&least, &last, sizeof least);
    size_t above = 0, n = 0;
    for (size_t i = 0; i < t->n; i++)
        above += t->v[i] > least;
    size_t equal = keep - above;
    for (size_t i = 0; i < t->n; i++) {
        uint32_t v = t->v[i];
        if (v > least)
            t->v[n++] = v;
        else if (v == least && equal > 0) {
            t->v[n++] = v;
            equal--;
        }
    }
    t->n = n;
    t->bar = (int32_t)least > t->bar ? (int32_t)least : t->bar;
}

void sb_obs_tails_cut(sb_obs_tails *t)
{
    tail_cut(&t->high, t->keep);
    tail_cut(&t->low, t->keep);
}

static sb_status tail_reserve(sb_ctx *ctx, sb_obs_tail *t, size_t keep,
                              size_t n)
{
    size_t most = keep + keep / 2; /* then the list is cut */
    size_t want = t->n < most && n < most - t->n ? t->n + n : most;

    want += SB_TAIL_SLACK;
    most += SB_TAIL_SLACK;
    if (t->bar == SB_TAIL_NONE) { /* nothing will come */
        sb_free(ctx, t->v);
        t->v = NULL;
        t->cap = 0;
        return SB_OK;
    }
    if (t->cap >= want)
        return SB_OK;
    /* Doubling would go beyond what can ever be used. */
    size_t cap = 2 * t->cap < most ? 2 * t->cap : most;
    cap = cap < want ? want : cap;
    uint32_t *v = sb_alloc_raw(ctx, cap, sizeof *v);
    if (!v)
        return SB_NO_MEMORY;
    if (t->n)
        memcpy(v, t->v, t->n * sizeof *v);
    sb_free(ctx, t->v);
    t->v = v;
    t->cap = cap;
    return SB_OK;
}

sb_status sb_obs_tails_reserve(sb_ctx *ctx, sb_obs_tails *t, size_t n)
{
    SB_TRY(tail_reserve(ctx, &t->high, t->keep, n));
    return tail_reserve(ctx, &t->low, t->keep, n);
}

static bool tail_room(sb_obs_tail *t, size_t keep, size_t n)
{
    if (t->n + n + SB_TAIL_SLACK > t->cap)
        tail_cut(t, keep);
    return t->n + n + SB_TAIL_SLACK <= t->cap;
}

bool sb_obs_tails_room(sb_obs_tails *t, size_t n)
{
    bool high = tail_room(&t->high, t->keep, n);

    return tail_room(&t->low, t->keep, n) && high;
}

/* Room for SB_TAIL_SLACK more? */
static inline void tail_make_room(sb_obs_tail *t, size_t keep)
{
    if (t->n + SB_TAIL_SLACK > t->cap)
        tail_cut(t, keep);
}

static inline void tail_put(sb_obs_tail *t, size_t keep, int32_t v)
{
    if (v <= t->bar)
        return;
    tail_make_room(t, keep);
    if (v > t->bar)
        t->v[t->n++] = (uint32_t)v;
}

/* In terms of keys: above `high` is for the upper list, below `low` for the
 * lower one, whose magnitudes are the keys turned over. */
static inline int32_t key_low(const sb_obs_tails *t)
{
    return ~t->low.bar;
}

bool sb_obs_tails_want(const sb_obs_tails *t, sb_obs_keys keys)
{
    return keys.hi > t->high.bar || keys.lo < key_low(t);
}

void sb_obs_tails_raise(sb_obs_tails *t, int32_t high, int32_t low)
{
    t->high.bar = high > t->high.bar ? high : t->high.bar;
    t->low.bar = low > t->low.bar ? low : t->low.bar;
}

/* The first block from i on that has a value that passes.  Bits without a sign
 * order like the values, those with one like the magnitudes, above all
 * others if it counts as a digit. */
SB_HOT static size_t next_block(const float *x, size_t i, size_t n,
                                int32_t high, int32_t low)
{
    uint32_t below = 1U << 31 | (uint32_t)low;

    for (; i + LOOK <= n; i += LOOK) {
        int32_t any = 0;
        SIMD_ANY
        for (size_t k = 0; k < LOOK; k++) {
            int32_t bits;
            memcpy(&bits, &x[i + k], sizeof bits);
            any |= (bits > high) | ((uint32_t)bits > below);
        }
        if (any)
            break;
    }
    return i;
}

/* Each value is written behind both lists, which grow if it passes: cheaper
 * than branches that nobody can predict. */
static void take_values(sb_obs_tails *t, const float *x, size_t n)
{
    tail_make_room(&t->high, t->keep);
    tail_make_room(&t->low, t->keep);
    uint32_t *high = t->high.v + t->high.n, *low = t->low.v + t->low.n;
    int32_t high_bar = t->high.bar, low_bar = t->low.bar;
    for (size_t i = 0; i < n; i++) {
        int32_t key = sb_obs_key(x[i]);
        *high = (uint32_t)key;
        high += key > high_bar;
        *low = (uint32_t)~key;
        low += ~key > low_bar;
    }
    t->high.n = (size_t)(high - t->high.v);
    t->low.n = (size_t)(low - t->low.v);
}

void sb_obs_tails_take(sb_obs_tails *t, const float *x, size_t n)
{
    size_t i = 0;

    for (;;) {
        i = next_block(x, i, n, t->high.bar, t->low.bar);
        if (i + LOOK > n)
            break;
        take_values(t, x + i, LOOK);
        i += LOOK;
    }
    take_values(t, x + i, n - i);
}

/* The first row from r on that has a value that passes. */
SB_HOT static size_t next_row(const float *x, size_t r, size_t n_row,
                              size_t stride, const int32_t *high,
                              const int32_t *low)
{
    for (; r < n_row; r++) {
        const float *row = x + r * stride;
        int32_t any = 0;
        SIMD_ANY
        for (size_t k = 0; k < SB_OBS_BLOCK; k++) {
            int32_t key = sb_obs_key(row[k]);
            any |= (key > high[k]) | (key < low[k]);
        }
        if (any)
            break;
    }
    return r;
}

static void take_row(sb_obs_tails *t, const float *row, size_t n_channel,
                     int32_t *high, int32_t *low)
{
    for (size_t k = 0; k < n_channel; k++) {
        int32_t key = sb_obs_key(row[k]);
        tail_put(&t[k].high, t[k].keep, key);
        tail_put(&t[k].low, t[k].keep, ~key);
        high[k] = t[k].high.bar;
        low[k] = key_low(&t[k]);
    }
}

void sb_obs_tails_take_block(sb_obs_tails *t, const float *x, size_t n_row,
                             size_t stride, size_t n_channel)
{
    int32_t high[SB_OBS_BLOCK], low[SB_OBS_BLOCK];

    for (size_t k = 0; k < n_channel; k++) {
        high[k] = t[k].high.bar;
        low[k] = key_low(&t[k]);
    }
    for (size_t r = 0; r < n_row; r++) {
        if (n_channel == SB_OBS_BLOCK)
            r = next_row(x, r, n_row, stride, high, low);
        if (r < n_row)
            take_row(t, x + r * stride, n_channel, high, low);
    }
}

static void tail_join(sb_obs_tail *into, size_t keep, const sb_obs_tail *from)
{
    for (size_t i = 0; i < from->n; i++)
        tail_put(into, keep, (int32_t)from->v[i]);
}

void sb_obs_tails_merge(sb_obs_tails *into, const sb_obs_tails *from)
{
    assert(into->keep <= from->keep);
    tail_join(&into->high, into->keep, &from->high);
    tail_join(&into->low, into->keep, &from->low);
}
