/* The largest values of either sign (extremes.h). */
#include "quant/observe/extremes.h"

#include <assert.h>

#include "base/simd.h"

enum {
    BLOCK = 32,      /* values that are tested at a time */
    CHUNK = 1 << 16, /* values whose number fits 32 bits */
};

size_t sb_extremes_keep(int64_t channels)
{
    size_t keep = SB_EXTREMES_KEEP;

    if (channels > 1)
        keep = (size_t)(SB_EXTREMES_KEEP_BUDGET / channels);
    if (keep > SB_EXTREMES_KEEP)
        keep = SB_EXTREMES_KEEP;
    return keep < SB_EXTREMES_KEEP_LEAST ? SB_EXTREMES_KEEP_LEAST : keep;
}

void sb_extremes_init(sb_extremes *e, size_t keep)
{
    /* Zeros belong to the upper side; below, only what is below zero. */
    *e = (sb_extremes){.keep = keep, .high.threshold = -1, .low.threshold = 0};
}

void sb_extremes_free(sb_ctx *ctx, sb_extremes *e)
{
    sb_free(ctx, e->high.v);
    sb_free(ctx, e->low.v);
    *e = (sb_extremes){0};
}

size_t sb_extremes_bytes(const sb_extremes *e)
{
    return (e->high.cap + e->low.cap) * sizeof *e->high.v;
}

/* ---- selecting ------------------------------------------------------------ */

/* How many are at least `least`, as integers, after `turn` of the sign. */
SB_HOT static size_t count_from(const char *x, size_t n, uint32_t turn,
                                int32_t least)
{
    size_t all = 0;

    for (size_t at = 0; at < n; at += CHUNK) {
        uint32_t found = 0;
        size_t m = n - at < CHUNK ? n - at : CHUNK;
        for (size_t i = 0; i < m; i++) {
            uint32_t bits;
            memcpy(&bits, x + sizeof bits * (at + i), sizeof bits);
            found += (int32_t)(bits ^ turn) >= least;
        }
        all += found;
    }
    return all;
}

/* Bits of the sign that is asked for order like the magnitudes, those of the
 * other are below zero.  So the answer is found bit by bit: each is set if r
 * values are still that large. */
float sb_extremes_select(const void *x, size_t n, bool low, size_t r)
{
    uint32_t turn = low ? 1U << 31 : 0, found = 0;
    float out;

    for (uint32_t bit = 1U << 30; bit; bit >>= 1)
        if (count_from(x, n, turn, (int32_t)(found | bit)) >= r)
            found |= bit;
    memcpy(&out, &found, sizeof out);
    return out;
}

/* Keeps the `keep` largest, or some more where that is known sooner. */
static void side_cut(sb_extremes_side *t, size_t keep)
{
    size_t most = keep + keep / 8, from = t->n, n = 0;
    uint32_t least = 0;

    for (uint32_t bit = 1U << 30; bit && from > most; bit >>= 1) {
        size_t found =
            count_from((const char *)t->v, t->n, 0, (int32_t)(least | bit));
        least |= found >= keep ? bit : 0;
        from = found >= keep ? found : from;
    }
    for (size_t i = 0; i < t->n; i++) {
        uint32_t v = t->v[i];
        t->v[n] = v;
        n += v > least;
    }
    /* Equal ones that are too many are not needed. */
    t->n = from > most ? keep : from;
    t->threshold = (int32_t)least - (from > most ? 0 : 1);
    while (n < t->n)
        t->v[n++] = least;
}

/* ---- taking --------------------------------------------------------------- */

static sb_status side_reserve(sb_ctx *ctx, sb_extremes_side *t, size_t keep,
                              size_t n)
{
    size_t most = keep + keep / 2; /* then the list is cut */
    size_t want = t->n < most && n < most - t->n ? t->n + n : most;

    if (t->threshold == INT32_MAX)
        want = 0; /* nothing will come */
    if (t->cap >= want)
        return SB_OK;
    /* Doubling would go beyond what can ever be used. */
    want = want < 2 * t->cap && 2 * t->cap < most ? 2 * t->cap : want;
    uint32_t *v = sb_alloc_raw(ctx, want, sizeof *v);
    if (!v)
        return SB_NO_MEMORY;
    if (t->n)
        memcpy(v, t->v, t->n * sizeof *v);
    sb_free(ctx, t->v);
    t->v = v;
    t->cap = want;
    return SB_OK;
}

sb_status sb_extremes_reserve(sb_ctx *ctx, sb_extremes *e, size_t n)
{
    SB_TRY(side_reserve(ctx, &e->high, e->keep, n));
    return side_reserve(ctx, &e->low, e->keep, n);
}

void sb_extremes_drop(sb_ctx *ctx, sb_extremes_side *side)
{
    sb_free(ctx, side->v);
    *side = (sb_extremes_side){.threshold = INT32_MAX};
}

/* Lower magnitudes are keys inverted. */
bool sb_extremes_wants(const sb_extremes *e, sb_minmax m)
{
    return m.hi > e->high.threshold || ~m.lo > e->low.threshold;
}

static inline void side_put(sb_extremes_side *t, size_t keep, int32_t v)
{
    if (v <= t->threshold)
        return;
    if (t->n == t->cap)
        side_cut(t, keep);
    if (v > t->threshold)
        t->v[t->n++] = (uint32_t)v;
}

/* The first block from i on that has a value that passes, and which do: bit k
 * for value k.  Bits without a sign order like the values, those with one like
 * the magnitudes, above all others if it counts as a digit. */
SB_HOT static size_t next_block(const float *x, size_t i, size_t n,
                                int32_t high, int32_t low, uint32_t *which)
{
    uint32_t below = 1U << 31 | (uint32_t)low, any = 0;

    for (; i + BLOCK <= n && any == 0; i += BLOCK) {
        SB_SIMD_ANY
        for (size_t k = 0; k < BLOCK; k++) {
            int32_t bits;
            memcpy(&bits, &x[i + k], sizeof bits);
            bool passes = (bits > high) | ((uint32_t)bits > below);
            any |= passes ? 1U << k : 0;
        }
    }
    *which = any;
    return any ? i - BLOCK : i;
}

/* The number of the lowest bit that is set. */
static inline size_t lowest_bit(uint32_t bits)
{
#ifdef __GNUC__
    return (size_t)__builtin_ctz(bits);
#else
    size_t k = 0;

    while (!(bits >> k & 1))
        k++;
    return k;
#endif
}

static inline void take_value(sb_extremes *e, float x)
{
    int32_t key = sb_float_key(x);

    side_put(&e->high, e->keep, key);
    side_put(&e->low, e->keep, ~key);
}

void sb_extremes_take(sb_extremes *e, const float *x, size_t n)
{
    size_t i = 0;
    uint32_t which = 0;

    for (;; i += BLOCK) {
        i = next_block(x, i, n, e->high.threshold, e->low.threshold, &which);
        if (which == 0)
            break;
        for (; which; which &= which - 1)
            take_value(e, x[i + lowest_bit(which)]);
    }
    for (; i < n; i++)
        take_value(e, x[i]);
}

/* The first row from r on that has a value that passes. */
SB_HOT static size_t next_row(const float *x, size_t r, size_t n_row,
                              size_t stride, const int32_t *high,
                              const int32_t *low)
{
    for (; r < n_row; r++) {
        const float *row = x + r * stride;
        int32_t any = 0;
        SB_SIMD_ANY
        for (size_t k = 0; k < SB_SCAN_BLOCK; k++) {
            int32_t key = sb_float_key(row[k]);
            any |= (key > high[k]) | (key < low[k]);
        }
        if (any)
            break;
    }
    return r;
}

void sb_extremes_take_rows(sb_extremes *e, const float *x, size_t n_row,
                           size_t stride, size_t n_channel)
{
    /* In terms of keys: above `high` is for the upper list, below `low` for the
     * lower one, whose magnitudes are the keys inverted. */
    int32_t high[SB_SCAN_BLOCK], low[SB_SCAN_BLOCK];

    for (size_t k = 0; k < n_channel; k++) {
        high[k] = e[k].high.threshold;
        low[k] = ~e[k].low.threshold;
    }
    for (size_t r = 0; r < n_row; r++) {
        if (n_channel == SB_SCAN_BLOCK)
            r = next_row(x, r, n_row, stride, high, low);
        for (size_t k = 0; r < n_row && k < n_channel; k++) {
            take_value(&e[k], x[r * stride + k]);
            high[k] = e[k].high.threshold;
            low[k] = ~e[k].low.threshold;
        }
    }
}

/* ---- merging -------------------------------------------------------------- */

void sb_extremes_begin(sb_extremes *e, const sb_extremes *into)
{
    e->high.n = e->low.n = 0;
    e->high.threshold = into->high.threshold;
    e->low.threshold = into->low.threshold;
}

static void side_merge(sb_extremes_side *into, size_t keep,
                       const sb_extremes_side *from)
{
    for (size_t i = 0; i < from->n; i++)
        side_put(into, keep, (int32_t)from->v[i]);
}

void sb_extremes_merge(sb_extremes *into, const sb_extremes *from)
{
    assert(into->keep <= from->keep);
    side_merge(&into->high, into->keep, &from->high);
    side_merge(&into->low, into->keep, &from->low);
}
