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
    EXPONENT_LEAST =
        -100 /* below this all is one bin, for the products' sake */
};

static size_t table_size(const sb_hist *h)
{
    return 2 * (size_t)h->half + SB_HIST_ZEROS;
}

static size_t tables_size(const sb_hist *h)
{
    return table_size(h) * (size_t)h->channels;
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
    *h = (sb_hist){
        .channels = channels, .half = (uint32_t)(bins / 2), .room = UINT32_MAX};
    h->exponent = sb_alloc(ctx, (size_t)channels, sizeof *h->exponent);
    if (!h->exponent)
        return SB_NO_MEMORY;
    for (int64_t c = 0; c < channels; c++)
        h->exponent[c] = SB_HIST_UNSET;
    return SB_OK;
}

void sb_hist_free(sb_ctx *ctx, sb_hist *h)
{
    sb_free(ctx, h->exponent);
    sb_free(ctx, h->carry);
    for (int p = 0; p < SB_HIST_PARTS; p++)
        sb_free(ctx, h->tables[p]);
    *h = (sb_hist){0};
}

size_t sb_hist_bytes(const sb_hist *h)
{
    size_t n = (size_t)h->channels * sizeof *h->exponent;

    for (int p = 0; p < SB_HIST_PARTS; p++)
        n += h->tables[p] ? 2 * tables_size(h) * sizeof *h->tables[p] : 0;
    return n + (h->carry ? tables_size(h) * sizeof *h->carry : 0);
}

static sb_status need_carry(sb_ctx *ctx, sb_hist *h)
{
    if (!h->carry)
        h->carry = sb_alloc(ctx, tables_size(h), sizeof *h->carry);
    return h->carry ? SB_OK : SB_NO_MEMORY;
}

/* Counter i of all counters of a table. */
static uint32_t table_get(const sb_hist *h, const uint16_t *table, size_t i)
{
    return (uint32_t)table[tables_size(h) + i] << 16 | table[i];
}

static void table_put(const sb_hist *h, uint16_t *table, size_t i, uint32_t n)
{
    table[i] = (uint16_t)n;
    table[tables_size(h) + i] = (uint16_t)(n >> 16);
}

static void move_to_carry(sb_hist *h)
{
    size_t n = tables_size(h);

    for (int p = 0; p < SB_HIST_PARTS; p++)
        for (size_t i = 0; h->tables[p] && i < n; i++) {
            h->carry[i] += table_get(h, h->tables[p], i);
            table_put(h, h->tables[p], i, 0);
        }
    h->room = UINT32_MAX;
}

sb_status sb_hist_reserve(sb_ctx *ctx, sb_hist *h, int parts, uint64_t elements)
{
    assert(parts <= SB_HIST_PARTS && (h->channels == 1 || parts == 1));
    if (elements > UINT32_MAX)
        return sb_fail(
            ctx, SB_UNSUPPORTED, "a tensor of %llu elements, want at most %llu",
            (unsigned long long)elements, (unsigned long long)UINT32_MAX);
    for (int p = 0; p < parts; p++) {
        if (!h->tables[p])
            h->tables[p] = sb_alloc(ctx, tables_size(h), 2 * sizeof(uint16_t));
        if (!h->tables[p])
            return SB_NO_MEMORY;
    }
    if (h->room < elements) {
        SB_TRY(need_carry(ctx, h));
        move_to_carry(h);
    }
    h->room -= elements;
    return SB_OK;
}

void sb_hist_clear(sb_hist *h)
{
    size_t n = tables_size(h);

    for (int p = 0; p < SB_HIST_PARTS; p++)
        if (h->tables[p])
            memset(h->tables[p], 0, 2 * n * sizeof *h->tables[p]);
    if (h->carry)
        memset(h->carry, 0, n * sizeof *h->carry);
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
static void fold_table(const sb_hist *h, uint16_t *table, size_t at, int by)
{
    for (int side = 0; side < 2; side++, at += h->half)
        for (uint32_t i = 1; i < h->half; i++) {
            size_t to = at + (by < 32 ? i >> by : 0);
            uint32_t n = table_get(h, table, at + i);
            table_put(h, table, at + i, 0);
            table_put(h, table, to, table_get(h, table, to) + n);
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
            fold_table(h, h->tables[p], at, by);
    if (h->carry)
        fold_carry(h, h->carry + at, by);
    h->exponent[c] = e;
}

void sb_hist_fit(sb_hist *h, int64_t c, sb_obs_keys keys)
{
    if (!sb_obs_keys_empty(keys))
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
    float factor;
    uint32_t half;
} hist_table;

static hist_table hist_table_of(const sb_hist *h, int part, int64_t c)
{
    uint16_t *low = h->tables[part] + (size_t)c * table_size(h);

    return (hist_table){low, low + tables_size(h), hist_factor(h, c), h->half};
}

static inline void count_places(const hist_table *t, const uint32_t *place,
                                size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (++t->low[place[i]] == 0)
            t->high[place[i]]++;
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

void sb_hist_add_weighted(sb_hist *h, int part, const float *x, size_t n,
                          uint32_t weight)
{
    hist_table t = hist_table_of(h, part, 0);
    uint32_t place[RUN];

    for (size_t at = 0; at < n; at += RUN) {
        size_t m = n - at < RUN ? n - at : RUN;
        hist_places(x + at, m, t.factor, t.half, place);
        for (size_t i = 0; i < m; i++) {
            uint32_t sum = t.low[place[i]] + weight;
            t.low[place[i]] = (uint16_t)sum;
            if (sum >> 16)
                t.high[place[i]]++;
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
                    t[k].high[to]++;
            }
    }
}

/* ---- results ------------------------------------------------------------- */

void sb_hist_counts(const sb_hist *h, int64_t c, uint64_t *out, uint64_t *zeros)
{
    size_t bins = 2 * (size_t)h->half, at = (size_t)c * table_size(h);

    *zeros = 0;
    for (size_t i = 0; i < bins; i++)
        out[i] = h->carry ? h->carry[at + i] : 0;
    for (size_t i = 0; h->carry && i < SB_HIST_ZEROS; i++)
        *zeros += h->carry[at + bins + i];
    for (int p = 0; p < SB_HIST_PARTS; p++) {
        const uint16_t *table = h->tables[p];
        for (size_t i = 0; table && i < bins; i++)
            out[i] += table_get(h, table, at + i);
        for (size_t i = 0; table && i < SB_HIST_ZEROS; i++)
            *zeros += table_get(h, table, at + bins + i);
    }
}

sb_status sb_hist_add_counts(sb_ctx *ctx, sb_hist *h, int64_t c, int e,
                             const uint64_t *counts, uint64_t zeros)
{
    uint32_t half = h->half;
    size_t at = (size_t)c * table_size(h);

    SB_TRY(need_carry(ctx, h));
    widen(h, c, e);
    int by = h->exponent[c] - e;
    for (uint32_t side = 0; side < 2; side++)
        for (uint32_t i = 0; i < half; i++) {
            uint32_t to = by < 32 ? i >> by : 0;
            h->carry[at + side * half + to] += counts[side * half + i];
        }
    h->carry[at + 2 * half] += zeros;
    return SB_OK;
}

SB_HOT static uint64_t sum_of(const uint16_t *low, const uint16_t *high,
                              size_t n)
{
    uint32_t sum = 0, sum_high = 0;

    for (size_t i = 0; i < n; i++) {
        sum += low[i];
        sum_high += high[i];
    }
    return ((uint64_t)sum_high << 16) + sum;
}

/* Counters [i, i + n) of all, n at most RUN. */
static uint64_t counts_of(const sb_hist *h, size_t i, size_t n)
{
    uint64_t sum = 0;

    for (size_t k = 0; h->carry && k < n; k++)
        sum += h->carry[i + k];
    for (int p = 0; p < SB_HIST_PARTS; p++)
        if (h->tables[p])
            sum +=
                sum_of(h->tables[p] + i, h->tables[p] + tables_size(h) + i, n);
    return sum;
}

int32_t sb_hist_bar(const sb_hist *h, int64_t c, bool low, uint64_t keep)
{
    size_t at = (size_t)c * table_size(h) + (low ? h->half : 0);
    size_t i = h->half; /* bins from here on are added up */
    uint64_t n = 0;

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

int64_t sb_hist_values(const sb_hist *h, int64_t c, sb_range range,
                       uint64_t *work, float *x, double *count)
{
    int64_t n = 0, half = (int64_t)h->half;
    uint64_t zeros;
    double width = sb_hist_width(h, c);

    sb_hist_counts(h, c, work, &zeros);
    for (int64_t i = -half; i <= half; i++) {
        uint64_t found = i == 0 ? zeros : work[i < 0 ? half - i - 1 : i - 1];
        if (found == 0)
            continue;
        float at = (float)(((double)(i < 0 ? i : i - 1) + 0.5) * width);
        if (i == 0)
            at = 0.0F;
        at = at < range.lo ? range.lo : at;
        x[n] = at > range.hi ? range.hi : at;
        count[n++] = (double)found;
    }
    return n;
}
