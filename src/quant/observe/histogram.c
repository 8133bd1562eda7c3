/* Histograms whose range grows (histogram.h).
 *
 * Counting is two loops over a few hundred values at a time: one computes the
 * places of all of them as vector code, one counts.  Zeros, of which there
 * are many behind a ReLU, would make each increment wait for the one before;
 * they go to a slot by their position instead. */
#include "quant/observe/histogram.h"

#include <math.h>

#include "base/simd.h"

enum {
    PLACES = 512,          /* values whose places are computed at a time */
    EXPONENT_LEAST = -100, /* below this all is one bin */
};

size_t sb_histogram_table_size(const sb_histogram *h)
{
    return 2 * (size_t)h->half + SB_HISTOGRAM_ZEROS;
}

/* Counters of all channels. */
static size_t histogram_size(const sb_histogram *h)
{
    return sb_histogram_table_size(h) * (size_t)h->channels;
}

sb_status sb_histogram_init(sb_ctx *ctx, sb_histogram *h, int64_t channels)
{
    int64_t bins = SB_HISTOGRAM_BINS;

    if (channels > 1) {
        bins = SB_HISTOGRAM_BINS_MOST;
        while (bins > SB_HISTOGRAM_BINS_LEAST &&
               bins > SB_HISTOGRAM_BINS_BUDGET / channels)
            bins /= 2;
    }
    *h = (sb_histogram){.channels = channels,
                        .half = (uint32_t)(bins / 2),
                        .unused = UINT32_MAX};
    h->exponent = sb_alloc(ctx, (size_t)channels, sizeof *h->exponent);
    if (!h->exponent)
        return SB_NO_MEMORY;
    for (int64_t c = 0; c < channels; c++)
        h->exponent[c] = SB_HISTOGRAM_UNSET;
    return SB_OK;
}

void sb_histogram_free(sb_ctx *ctx, sb_histogram *h)
{
    sb_free(ctx, h->exponent);
    sb_free(ctx, h->carry);
    sb_free_pages(ctx, h->counts, histogram_size(h) * sizeof *h->counts);
    *h = (sb_histogram){0};
}

size_t sb_histogram_bytes(const sb_histogram *h)
{
    return (size_t)h->channels * sizeof *h->exponent +
           (h->counts ? histogram_size(h) * sizeof *h->counts : 0) +
           (h->carry ? histogram_size(h) * sizeof *h->carry : 0);
}

static sb_status histogram_need_carry(sb_ctx *ctx, sb_histogram *h)
{
    if (!h->carry)
        h->carry = sb_alloc(ctx, histogram_size(h), sizeof *h->carry);
    return h->carry ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_histogram_reserve(sb_ctx *ctx, sb_histogram *h, uint64_t elements)
{
    size_t n = histogram_size(h);

    if (elements > UINT32_MAX)
        return sb_fail(
            ctx, SB_UNSUPPORTED, "a tensor of %llu elements, want at most %llu",
            (unsigned long long)elements, (unsigned long long)UINT32_MAX);
    if (!h->counts)
        h->counts = sb_alloc_pages(ctx, n * sizeof *h->counts);
    if (!h->counts)
        return SB_NO_MEMORY;
    if (h->unused < elements) {
        SB_TRY(histogram_need_carry(ctx, h));
        for (size_t i = 0; i < n; i++)
            h->carry[i] += h->counts[i];
        memset(h->counts, 0, n * sizeof *h->counts);
        h->unused = UINT32_MAX;
    }
    h->unused -= elements;
    return SB_OK;
}

/* ---- range --------------------------------------------------------------- */

/* The least e with 2^e above every magnitude. */
static int exponent_of(sb_minmax m)
{
    sb_range r = sb_minmax_range(m);
    float most = -r.lo > r.hi ? -r.lo : r.hi;
    int e;

    (void)frexpf(most, &e); /* most = f * 2^e, f in [0.5, 1) */
    return most > 0.0F && e > EXPONENT_LEAST ? e : EXPONENT_LEAST;
}

/* Adds neighboring bins together: bin i of either side goes to i >> by. */
static void histogram_widen(sb_histogram *h, int64_t c, int e)
{
    size_t at = (size_t)c * sb_histogram_table_size(h);

    if (h->exponent[c] == SB_HISTOGRAM_UNSET)
        h->exponent[c] = e;
    if (h->exponent[c] >= e)
        return;
    int by = e - h->exponent[c];
    h->exponent[c] = e;
    for (int side = 0; side < 2; side++, at += h->half)
        for (uint32_t i = 1; i < h->half; i++) {
            size_t from = at + i, to = at + (by < 32 ? i >> by : 0);
            if (h->counts && h->counts[from]) {
                uint32_t n = h->counts[from];
                h->counts[from] = 0;
                h->counts[to] += n;
            }
            if (h->carry) {
                uint64_t n = h->carry[from];
                h->carry[from] = 0;
                h->carry[to] += n;
            }
        }
}

void sb_histogram_fit(sb_histogram *h, int64_t c, sb_minmax m)
{
    if (!sb_minmax_empty(m))
        histogram_widen(h, c, exponent_of(m));
}

bool sb_histogram_fits(const sb_histogram *h, int64_t c, sb_minmax m)
{
    return h->exponent[c] != SB_HISTOGRAM_UNSET &&
           exponent_of(m) <= h->exponent[c];
}

double sb_histogram_width(const sb_histogram *h, int64_t c)
{
    if (h->exponent[c] == SB_HISTOGRAM_UNSET)
        return 0.0;
    return ldexp(1.0 / (double)h->half, h->exponent[c]);
}

/* ---- counting ------------------------------------------------------------ */

/* The place of x in a table.  The product is exact, and cut towards zero, so
 * bins are closed at their end nearer to zero. */
static inline uint32_t histogram_place(float x, float factor, uint32_t half,
                                       uint32_t zero_slot)
{
    uint32_t bits, magnitude;
    float size;

    memcpy(&bits, &x, sizeof bits);
    magnitude = bits & INT32_MAX;
    memcpy(&size, &magnitude, sizeof size);
    size *= factor;
    size = size < (float)half ? size : 0.0F; /* never outside the table */
    uint32_t place = (uint32_t)(int32_t)size | (bits >> 31) * half;
    return magnitude == 0 ? 2 * half + zero_slot : place;
}

SB_HOT static void histogram_places(const float *x, size_t n, float factor,
                                    uint32_t half, uint32_t *place)
{
    for (size_t i = 0; i < n; i++)
        place[i] = histogram_place(x[i], factor, half,
                                   (uint32_t)i & (SB_HISTOGRAM_ZEROS - 1));
}

sb_histogram_table sb_histogram_table_of(const sb_histogram *h, int64_t c)
{
    return (sb_histogram_table){
        h->counts + (size_t)c * sb_histogram_table_size(h), h->half,
        ldexpf((float)h->half, -h->exponent[c])};
}

/* Places are read two at a time: the loads of the counters and of the places
 * compete for the same ports. */
static void histogram_increment(uint32_t *counts, const uint32_t *place,
                                size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        uint64_t two[2];
        memcpy(two, place + i, sizeof two);
        counts[(uint32_t)two[0]]++;
        counts[two[0] >> 32]++;
        counts[(uint32_t)two[1]]++;
        counts[two[1] >> 32]++;
    }
    for (; i < n; i++)
        counts[place[i]]++;
}

void sb_histogram_count(const sb_histogram_table *t, const float *x, size_t n)
{
    uint32_t place[PLACES];

    for (size_t at = 0; at < n; at += PLACES) {
        size_t m = n - at < PLACES ? n - at : PLACES;
        histogram_places(x + at, m, t->factor, t->half, place);
        histogram_increment(t->counts, place, m);
    }
}

/* Places of whole rows: each channel has a factor of its own. */
SB_HOT static void histogram_row_places(const float *x, size_t n_row,
                                        size_t stride, const float *factor,
                                        uint32_t half, uint16_t *place)
{
    for (size_t r = 0; r < n_row; r++, x += stride, place += SB_SCAN_BLOCK) {
        SB_SIMD
        for (size_t c = 0; c < SB_SCAN_BLOCK; c++)
            place[c] = (uint16_t)histogram_place(
                x[c], factor[c], half, (uint32_t)r & (SB_HISTOGRAM_ZEROS - 1));
    }
}

/* Many rows at a time: places of all, then channel by channel, so that one
 * table is in the first cache. */
void sb_histogram_count_rows(const sb_histogram_table *t, const float *x,
                             size_t n_row, size_t stride, size_t n_channel)
{
    uint16_t place[PLACES * SB_SCAN_BLOCK];
    float factor[SB_SCAN_BLOCK];
    uint32_t half = t->half;

    for (size_t k = 0; k < n_channel; k++)
        factor[k] = t[k].factor;
    for (size_t at = 0; at < n_row; at += PLACES) {
        size_t rows = n_row - at < PLACES ? n_row - at : PLACES;
        const float *row = x + at * stride;
        if (n_channel == SB_SCAN_BLOCK)
            histogram_row_places(row, rows, stride, factor, half, place);
        else
            for (size_t i = 0; i < rows; i++)
                for (size_t k = 0; k < n_channel; k++)
                    place[i * SB_SCAN_BLOCK + k] = (uint16_t)histogram_place(
                        row[i * stride + k], factor[k], half,
                        (uint32_t)i & (SB_HISTOGRAM_ZEROS - 1));
        for (size_t k = 0; k < n_channel; k++)
            for (size_t i = 0; i < rows; i++)
                t[k].counts[place[i * SB_SCAN_BLOCK + k]]++;
    }
}

SB_HOT static void histogram_move(uint32_t *from, size_t n, uint32_t *to)
{
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
        from[i] = 0;
    }
}

void sb_histogram_add_table(sb_histogram *h, int64_t c, uint32_t *table,
                            sb_minmax m)
{
    sb_histogram_table to = sb_histogram_table_of(h, c);
    sb_range r = sb_minmax_range(m);

    /* Only bins that can hold something: the others need no memory. */
    if (r.hi > 0.0F)
        histogram_move(table,
                       histogram_place(r.hi, to.factor, h->half, 0) + (size_t)1,
                       to.counts);
    if (r.lo < 0.0F)
        histogram_move(table + h->half,
                       histogram_place(-r.lo, to.factor, h->half, 0) +
                           (size_t)1,
                       to.counts + h->half);
    histogram_move(table + 2 * (size_t)h->half, SB_HISTOGRAM_ZEROS,
                   to.counts + 2 * (size_t)h->half);
}

/* ---- results ------------------------------------------------------------- */

static uint64_t histogram_counter(const sb_histogram *h, size_t at)
{
    return (h->counts ? h->counts[at] : 0) + (h->carry ? h->carry[at] : 0);
}

static uint64_t histogram_zeros(const sb_histogram *h, int64_t c)
{
    size_t at = (size_t)c * sb_histogram_table_size(h) + 2 * (size_t)h->half;
    uint64_t zeros = 0;

    for (size_t i = 0; i < SB_HISTOGRAM_ZEROS; i++)
        zeros += histogram_counter(h, at + i);
    return zeros;
}

uint64_t sb_histogram_side(const sb_histogram *h, int64_t c, bool low)
{
    size_t at = (size_t)c * sb_histogram_table_size(h) + (low ? h->half : 0);
    uint64_t n = low ? 0 : histogram_zeros(h, c);

    for (size_t i = 0; i < h->half; i++)
        n += histogram_counter(h, at + i);
    return n;
}

void sb_histogram_counts(const sb_histogram *h, int64_t c, uint64_t *out,
                         uint64_t *zeros)
{
    size_t at = (size_t)c * sb_histogram_table_size(h);

    for (size_t i = 0; i < 2 * (size_t)h->half; i++)
        out[i] = histogram_counter(h, at + i);
    *zeros = histogram_zeros(h, c);
}

sb_status sb_histogram_add_counts(sb_ctx *ctx, sb_histogram *h, int64_t c,
                                  int e, const uint64_t *counts, uint64_t zeros)
{
    size_t at = (size_t)c * sb_histogram_table_size(h);

    SB_TRY(histogram_need_carry(ctx, h));
    histogram_widen(h, c, e);
    int by = h->exponent[c] - e;
    for (int side = 0; side < 2; side++, at += h->half, counts += h->half)
        for (uint32_t i = 0; i < h->half; i++)
            h->carry[at + (by < 32 ? i >> by : 0)] += counts[i];
    h->carry[at] += zeros;
    return SB_OK;
}

int64_t sb_histogram_values(const sb_histogram *h, int64_t c, sb_range range,
                            float *x, double *count)
{
    size_t at = (size_t)c * sb_histogram_table_size(h);
    int64_t half = h->half, n = 0;
    double width = sb_histogram_width(h, c);

    /* From the last bin below zero over zero to the last above. */
    for (int64_t i = -half; i <= half; i++) {
        size_t bin = (size_t)(i < 0 ? half - 1 - i : i - 1);
        uint64_t found =
            i == 0 ? histogram_zeros(h, c) : histogram_counter(h, at + bin);
        if (found == 0)
            continue;
        double center = i < 0 ? (double)i + 0.5 : (double)i - 0.5;
        float value = i == 0 ? 0.0F : (float)(center * width);
        value = value < range.lo ? range.lo : value;
        x[n] = value > range.hi ? range.hi : value;
        count[n++] = (double)found;
    }
    return n;
}
