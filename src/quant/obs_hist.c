/* Histograms that grow their range (obs_hist.h).
 *
 * Counting is two loops over a few hundred values at a time: one computes the
 * places of all of them as vector code, one counts.  Zeros, of which there
 * are many behind a ReLU, would make each increment wait for the one before;
 * they go to a slot by their position instead. */
#include "quant/obs_hist.h"

#include <assert.h>
#include <math.h>

#include "base/simd.h"

enum {
    RUN = 512,     /* values whose places are computed at a time */
    BAR_RUN = 256, /* bins that are added up at a time */
    BLOCK = 16,    /* bins that are skipped at a time if they are empty */
    EXPONENT_LEAST = -100, /* below this all is one bin */
};

static size_t table_size(const sb_hist *h)
{
    return 2 * (size_t)h->half + SB_HIST_ZEROS;
}

static size_t tables_size(const sb_hist *h)
{
    return table_size(h) * (size_t)h->channels;
}

static size_t table_bytes(const sb_hist *h)
{
    return 2 * tables_size(h) * sizeof(uint16_t);
}

sb_status sb_hist_init(sb_ctx *ctx, sb_hist *h, int64_t channels)
{
    int64_t bins = SB_HIST_BINS;

    if (channels > 1) {
        bins = SB_HIST_BINS_MOST;
        while (bins > SB_HIST_BINS_LEAST &&
               bins > SB_HIST_BINS_BUDGET / channels)
            bins /= 2;
    }
    *h = (sb_hist){.ctx = ctx,
                   .channels = channels,
                   .half = (uint32_t)(bins / 2),
                   .room = UINT32_MAX};
    h->exponent = sb_alloc(ctx, (size_t)channels, sizeof *h->exponent);
    if (!h->exponent)
        return SB_NO_MEMORY;
    for (int64_t c = 0; c < channels; c++)
        h->exponent[c] = SB_HIST_UNSET;
    return SB_OK;
}

static void free_tables(sb_ctx *ctx, sb_hist *h)
{
    sb_free(ctx, h->carry);
    for (int p = 0; p < SB_HIST_PARTS; p++)
        sb_free_pages(ctx, h->tables[p], table_bytes(h));
}

void sb_hist_free(sb_ctx *ctx, sb_hist *h)
{
    sb_free(ctx, h->exponent);
    free_tables(ctx, h);
    *h = (sb_hist){0};
}

size_t sb_hist_bytes(const sb_hist *h)
{
    size_t n = (size_t)h->channels * sizeof *h->exponent;

    for (int p = 0; p < SB_HIST_PARTS; p++)
        n += h->tables[p] ? table_bytes(h) : 0;
    return n + (h->carry ? tables_size(h) * sizeof *h->carry : 0);
}

static sb_status need_carry(sb_ctx *ctx, sb_hist *h)
{
    if (!h->carry)
        h->carry = sb_alloc(ctx, tables_size(h), sizeof *h->carry);
    return h->carry ? SB_OK : SB_NO_MEMORY;
}

/* Counter i of all counters of a table.  Higher bits that are all zero are not
 * touched: they need no memory yet. */
static uint32_t table_get(const sb_hist *h, int part, size_t i)
{
    const uint16_t *table = h->tables[part];

    return (h->wide[part] ? (uint32_t)table[tables_size(h) + i] << 16 : 0) |
           table[i];
}

static void table_put(sb_hist *h, int part, size_t i, uint32_t n)
{
    uint16_t *table = h->tables[part];

    table[i] = (uint16_t)n;
    if (n >> 16)
        h->wide[part] = true;
    if (h->wide[part])
        table[tables_size(h) + i] = (uint16_t)(n >> 16);
}

/* Bins of both sides, or of the one that has values. */
static size_t used_bins(const sb_hist *h)
{
    return (h->has_low ? 2 : 1) * (size_t)h->half;
}

static void move_to_carry(sb_hist *h)
{
    size_t n = tables_size(h);

    for (int p = 0; p < SB_HIST_PARTS; p++)
        for (size_t i = 0; h->tables[p] && i < n; i++) {
            h->carry[i] += table_get(h, p, i);
            table_put(h, p, i, 0);
        }
    h->room = UINT32_MAX;
}

static sb_status make_table(sb_ctx *ctx, sb_hist *h, int part)
{
    uint16_t *table = sb_alloc_pages(ctx, table_bytes(h));

    if (!table)
        return SB_NO_MEMORY;
    h->tables[part] = table;
    h->wide[part] = h->channels > 1; /* one table, many threads */
    if (h->channels == 1)
        sb_take_pages(ctx, table, h->half * sizeof *table);
    return SB_OK;
}

sb_status sb_hist_reserve(sb_ctx *ctx, sb_hist *h, int parts, uint64_t elements)
{
    assert(parts <= SB_HIST_PARTS && (h->channels == 1 || parts == 1));
    if (elements > UINT32_MAX)
        return sb_fail(
            ctx, SB_UNSUPPORTED, "a tensor of %llu elements, want at most %llu",
            (unsigned long long)elements, (unsigned long long)UINT32_MAX);
    for (int p = 0; p < parts; p++)
        if (!h->tables[p])
            SB_TRY(make_table(ctx, h, p));
    if (h->room < elements) {
        SB_TRY(need_carry(ctx, h));
        move_to_carry(h);
    }
    h->room -= elements;
    return SB_OK;
}

/* ---- range --------------------------------------------------------------- */

/* The least e with 2^e above every magnitude. */
static int exponent_of(sb_obs_keys keys)
{
    sb_range r = sb_obs_keys_range(keys);
    float most = -r.lo > r.hi ? -r.lo : r.hi;
    int e;

    (void)frexpf(most, &e); /* most = m * 2^e, m in [0.5, 1) */
    return most > 0.0F && e > EXPONENT_LEAST ? e : EXPONENT_LEAST;
}

/* Adds bins together: bin i goes to i >> by. */
static void fold_table(sb_hist *h, int part, size_t at, int by)
{
    for (size_t begin = 0; begin < used_bins(h);
         begin += h->half, at += h->half)
        for (uint32_t i = 1; i < h->half; i++) {
            size_t to = at + (by < 32 ? i >> by : 0);
            uint32_t n = table_get(h, part, at + i);
            if (n == 0)
                continue;
            table_put(h, part, at + i, 0);
            table_put(h, part, to, table_get(h, part, to) + n);
        }
}

static void fold_carry(const sb_hist *h, uint64_t *table, int by)
{
    for (int side = 0; side < 2; side++, table += h->half)
        for (uint32_t i = 1; i < h->half; i++) {
            uint64_t n = table[i];
            table[i] = 0;
            table[by < 32 ? i >> by : 0] += n;
        }
}

static void widen(sb_hist *h, int64_t c, int e)
{
    size_t at = (size_t)c * table_size(h);

    if (h->exponent[c] == SB_HIST_UNSET) {
        h->exponent[c] = e;
        return;
    }
    int by = e - h->exponent[c];
    if (by <= 0)
        return;
    for (int p = 0; p < SB_HIST_PARTS; p++)
        if (h->tables[p])
            fold_table(h, p, at, by);
    if (h->carry)
        fold_carry(h, h->carry + at, by);
    h->exponent[c] = e;
}

void sb_hist_fit(sb_hist *h, int64_t c, sb_obs_keys keys)
{
    if (sb_obs_keys_empty(keys))
        return;
    if (keys.lo < -1 && !h->has_low) { /* -1 is that of -0 */
        h->has_low = true;
        for (int p = 0; p < SB_HIST_PARTS && h->channels == 1; p++)
            if (h->tables[p])
                sb_take_pages(h->ctx, h->tables[p] + h->half,
                              h->half * sizeof *h->tables[p]);
    }
    widen(h, c, exponent_of(keys));
}

/* Magnitudes whose bits are below this fit. */
static int32_t fit_limit(const sb_hist *h, int64_t c)
{
    return h->exponent[c] == SB_HIST_UNSET
               ? 0
               : sb_obs_key(ldexpf(1.0F, h->exponent[c]));
}

bool sb_hist_fits(const sb_hist *h, int64_t c, sb_obs_keys keys)
{
    int32_t limit = fit_limit(h, c);

    return keys.hi < limit && ~keys.lo < limit;
}

double sb_hist_width(const sb_hist *h, int64_t c)
{
    if (h->exponent[c] == SB_HIST_UNSET)
        return 0.0;
    return ldexp(1.0 / (double)h->half, h->exponent[c]);
}

/* Bins per unit. */
static float hist_factor(const sb_hist *h, int64_t c)
{
    return ldexpf((float)h->half, -h->exponent[c]);
}

/* ---- counting ------------------------------------------------------------ */

/* The place of x in a table.  The product is exact, and cut towards zero, so
 * bins are closed at their end nearer to zero. */
static inline uint32_t hist_place(float x, float factor, uint32_t half,
                                  uint32_t zero_slot)
{
    uint32_t bits, magnitude;
    float size;

    memcpy(&bits, &x, sizeof bits);
    magnitude = bits & INT32_MAX;
    memcpy(&size, &magnitude, sizeof size);
    size *= factor;
    size = size < (float)half ? size : 0.0F; /* what does not fit, and NaN */
    uint32_t place = (uint32_t)(int32_t)size | (bits >> 31) * half;
    return magnitude == 0 ? 2 * half + zero_slot : place;
}

SB_HOT static void hist_places(const float *x, size_t n, float factor,
                               uint32_t half, uint32_t *place)
{
    for (size_t i = 0; i < n; i++)
        place[i] =
            hist_place(x[i], factor, half, (uint32_t)i & (SB_HIST_ZEROS - 1));
}

/* The counters of one channel. */
typedef struct hist_table {
    uint16_t *low, *high;
    bool *wide;
    float factor;
    uint32_t half;
} hist_table;

static hist_table hist_table_of(sb_hist *h, int part, int64_t c)
{
    uint16_t *low = h->tables[part] + (size_t)c * table_size(h);

    return (hist_table){low, low + tables_size(h), &h->wide[part],
                        hist_factor(h, c), h->half};
}

/* Higher bits: seldom. */
static void carry_over(const hist_table *t, size_t place)
{
    if (!*t->wide)
        *t->wide = true;
    t->high[place]++;
}

static inline void count_places(const hist_table *t, const uint32_t *place,
                                size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (++t->low[place[i]] == 0)
            carry_over(t, place[i]);
}

static void count_run(hist_table t, const float *x, size_t n)
{
    uint32_t place[RUN];

    for (size_t at = 0; at < n; at += RUN) {
        size_t m = n - at < RUN ? n - at : RUN;
        hist_places(x + at, m, t.factor, t.half, place);
        count_places(&t, place, m);
    }
}

void sb_hist_add(sb_hist *h, int part, const float *x, size_t n)
{
    count_run(hist_table_of(h, part, 0), x, n);
}

void sb_hist_add_channel(sb_hist *h, int64_t c, const float *x, size_t n)
{
    count_run(hist_table_of(h, 0, c), x, n);
}

/* As hist_places(), and how often each counts. */
SB_HOT static void places_below(const float *x, size_t n, const hist_table *t,
                                uint32_t weight, int32_t high, int32_t low,
                                uint32_t *place, uint32_t *by)
{
    hist_places(x, n, t->factor, t->half, place);
    for (size_t i = 0; i < n; i++) {
        int32_t key = sb_obs_key(x[i]);
        by[i] = ((key > high) | (~key > low)) ? 0 : weight;
    }
}

void sb_hist_add_below(sb_hist *h, const float *x, size_t n, uint32_t weight,
                       int32_t high, int32_t low)
{
    hist_table t = hist_table_of(h, 0, 0);
    uint32_t place[RUN], by[RUN];

    for (size_t at = 0; at < n; at += RUN) {
        size_t m = n - at < RUN ? n - at : RUN;
        places_below(x + at, m, &t, weight, high, low, place, by);
        for (size_t i = 0; i < m; i++) {
            uint32_t sum = t.low[place[i]] + by[i];
            t.low[place[i]] = (uint16_t)sum;
            if (sum >> 16)
                carry_over(&t, place[i]);
        }
    }
}

/* Places of whole rows: each channel has a factor of its own. */
SB_HOT static void block_places(const float *x, size_t n_row, size_t stride,
                                const float *factor, uint32_t half,
                                uint16_t *place)
{
    for (size_t r = 0; r < n_row; r++, x += stride, place += SB_OBS_BLOCK) {
        SB_SIMD
        for (size_t c = 0; c < SB_OBS_BLOCK; c++)
            place[c] =
                (uint16_t)hist_place(x[c], factor[c], half, (uint32_t)r & 15);
    }
}

/* Rows at a time: places of all, then channel by channel, so that one table is
 * in the first cache. */
void sb_hist_add_block(sb_hist *h, int64_t c, const float *x, size_t n_row,
                       size_t stride, size_t n_channel)
{
    uint16_t place[RUN * SB_OBS_BLOCK];
    hist_table t[SB_OBS_BLOCK];
    float factor[SB_OBS_BLOCK];

    for (size_t k = 0; k < n_channel; k++) {
        t[k] = hist_table_of(h, 0, c + (int64_t)k);
        factor[k] = t[k].factor;
    }
    for (size_t at = 0; at < n_row; at += RUN) {
        size_t rows = n_row - at < RUN ? n_row - at : RUN;
        const float *row = x + at * stride;
        if (n_channel == SB_OBS_BLOCK)
            block_places(row, rows, stride, factor, h->half, place);
        else
            for (size_t i = 0; i < rows; i++)
                for (size_t k = 0; k < n_channel; k++)
                    place[i * SB_OBS_BLOCK + k] = (uint16_t)hist_place(
                        row[i * stride + k], factor[k], h->half,
                        (uint32_t)i & (SB_HIST_ZEROS - 1));
        for (size_t k = 0; k < n_channel; k++)
            for (size_t i = 0; i < rows; i++) {
                size_t to = place[i * SB_OBS_BLOCK + k];
                if (++t[k].low[to] == 0)
                    carry_over(&t[k], to);
            }
    }
}

/* ---- results ------------------------------------------------------------- */

static uint64_t counter(const sb_hist *h, size_t at)
{
    uint64_t sum = h->carry ? h->carry[at] : 0;

    for (int p = 0; p < SB_HIST_PARTS && h->tables[p]; p++)
        sum += table_get(h, p, at);
    return sum;
}

static uint64_t zeros_of(const sb_hist *h, int64_t c)
{
    size_t at = (size_t)c * table_size(h) + 2 * (size_t)h->half;
    uint64_t zeros = 0;

    for (size_t i = 0; i < SB_HIST_ZEROS; i++)
        zeros += counter(h, at + i);
    return zeros;
}

void sb_hist_counts(const sb_hist *h, int64_t c, uint64_t *out, uint64_t *zeros)
{
    size_t bins = 2 * (size_t)h->half, at = (size_t)c * table_size(h);

    for (size_t i = 0; i < bins; i++)
        out[i] = i < used_bins(h) ? counter(h, at + i) : 0;
    *zeros = zeros_of(h, c);
}

sb_status sb_hist_add_counts(sb_ctx *ctx, sb_hist *h, int64_t c, int e,
                             uint32_t from_half, const uint64_t *counts,
                             uint64_t zeros)
{
    size_t at = (size_t)c * table_size(h);

    SB_TRY(need_carry(ctx, h));
    widen(h, c, e);
    int by = h->exponent[c] - e;
    for (uint32_t n = from_half; n > h->half; n /= 2)
        by++;
    for (uint32_t side = 0; side < 2; side++)
        for (uint32_t i = 0; i < from_half; i++) {
            uint64_t found = counts[side * from_half + i];
            h->carry[at + side * h->half + (by < 32 ? i >> by : 0)] += found;
            h->has_low |= side && found;
        }
    h->carry[at + 2 * (size_t)h->half] += zeros;
    return SB_OK;
}

sb_status sb_hist_coarsen(sb_ctx *ctx, sb_hist *h)
{
    sb_hist old = *h;
    uint64_t *counts, zeros;

    assert(h->channels == 1);
    if (h->half <= SB_HIST_BINS_COARSE / 2)
        return SB_OK;
    if (!h->tables[0] && !h->carry) {
        h->half = SB_HIST_BINS_COARSE / 2;
        return SB_OK;
    }
    counts = sb_alloc_raw(ctx, 2 * (size_t)old.half, sizeof *counts);
    if (!counts)
        return SB_NO_MEMORY;
    sb_hist_counts(&old, 0, counts, &zeros);
    memset(h->tables, 0, sizeof h->tables);
    memset(h->wide, 0, sizeof h->wide);
    h->carry = NULL;
    h->half = SB_HIST_BINS_COARSE / 2;
    sb_status status =
        sb_hist_add_counts(ctx, h, 0, h->exponent[0], old.half, counts, zeros);
    sb_free(ctx, counts);
    if (status == SB_OK) {
        free_tables(ctx, &old);
        h->room = UINT32_MAX;
    } else {
        *h = old;
    }
    return status;
}

SB_HOT static uint32_t sum_of(const uint16_t *x, size_t n)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* Counters [i, i + n) of all, n at most RUN. */
static uint64_t counts_of(const sb_hist *h, size_t i, size_t n)
{
    uint64_t sum = 0;

    for (size_t k = 0; h->carry && k < n; k++)
        sum += h->carry[i + k];
    for (int p = 0; p < SB_HIST_PARTS; p++) {
        const uint16_t *table = h->tables[p];
        if (table)
            sum += sum_of(table + i, n);
        if (table && h->wide[p])
            sum += (uint64_t)sum_of(table + tables_size(h) + i, n) << 16;
    }
    return sum;
}

int32_t sb_hist_bar(const sb_hist *h, int64_t c, bool low, uint64_t keep)
{
    size_t at = (size_t)c * table_size(h) + (low ? h->half : 0);
    size_t i = h->half; /* bins from here on are added up */
    uint64_t n = 0;

    if (low && !h->has_low)
        return 0;
    for (size_t step = BAR_RUN; step > 0; step = step > 1 ? 1 : 0)
        while (i > step) {
            uint64_t more = counts_of(h, at + i - step, step);
            if (n + more >= keep && step > 1)
                break;
            n += more;
            i -= step;
            if (n >= keep)
                return sb_obs_key((float)((double)i * sb_hist_width(h, c))) - 1;
        }
    return low ? 0 : -1;
}

/* BLOCK counters from `at` on; false if all are zero. */
static bool block_counts(const sb_hist *h, size_t at, uint64_t *out)
{
    const uint16_t *low = h->tables[0];
    uint64_t any[BLOCK / 4], all = 0;

    if (!low || h->tables[1] || h->wide[0] || h->carry) {
        for (size_t i = 0; i < BLOCK; i++)
            all |= out[i] = counter(h, at + i);
        return all != 0;
    }
    memcpy(any, low + at, sizeof any);
    for (size_t i = 0; i < SB_COUNT(any); i++)
        all |= any[i];
    for (size_t i = 0; all && i < BLOCK; i++)
        out[i] = low[at + i];
    return all != 0;
}

/* One side, bins by magnitude: below zero from the last to the first. */
static int64_t side_values(const sb_hist *h, int64_t c, bool low,
                           sb_range range, float *x, double *count)
{
    size_t base = (size_t)c * table_size(h) + (low ? h->half : 0);
    double width = low ? -sb_hist_width(h, c) : sb_hist_width(h, c);
    uint64_t found[BLOCK];
    int64_t n = 0;

    for (size_t b = 0; b < h->half; b += BLOCK) {
        size_t first = low ? h->half - BLOCK - b : b;
        if (!block_counts(h, base + first, found))
            continue;
        for (size_t k = 0; k < BLOCK; k++) {
            size_t i = low ? BLOCK - 1 - k : k;
            float at = (float)(((double)(first + i) + 0.5) * width);
            at = at < range.lo ? range.lo : at;
            x[n] = at > range.hi ? range.hi : at;
            count[n] = (double)found[i];
            n += found[i] > 0;
        }
    }
    return n;
}

int64_t sb_hist_values(const sb_hist *h, int64_t c, sb_range range, float *x,
                       double *count)
{
    uint64_t zeros = zeros_of(h, c);
    int64_t n = 0;

    if (h->has_low)
        n = side_values(h, c, true, range, x, count);
    x[n] = 0.0F;
    count[n] = (double)zeros;
    n += zeros > 0;
    return n + side_values(h, c, false, range, x + n, count + n);
}
