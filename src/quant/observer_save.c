/* An observer's state as JSON; observer_load.c reads it back.
 *
 *     {"observer": "percentile", "target": "feature", "channels": 1,
 *      "samples": 64, "elements": 1048576, "lo": [0], "hi": [2.5],
 *      "histogram": {"bins": 65536, "exponent": [2], "zeros": [524288],
 *                    "counts": ["12 7 -30 1"]},
 *      "tails": {"high": ["401fffff..."], "low": [""]}, "own": [[...]]}
 *
 * If only a part of the values was counted, the histogram has "sampled": true.
 * Tails that are not complete say above which bars they are, and how many
 * values are below zero: "bars": ["3f800000", "00000000"], "below": 0.
 *
 * Lists have an entry for each channel.  In counts, -30 stands for thirty bins
 * that are empty, and so are those after the last number; tails are the bits of
 * floats, eight hexadecimal digits each.  Weights have no more than their
 * settings and results, `range_lo` and `range_hi`. */
#include <inttypes.h>
#include <stdlib.h>

#include "quant/observer_state.h"

/* Members of the same object follow each other with commas. */
static void add_key(sb_str *out, const char *key)
{
    char last = out->len ? out->data[out->len - 1] : '{';

    sb_str_addf(out, "%s\"%s\":", last == '{' ? "" : ",", key);
}

static void add_number(sb_str *out, const char *key, double number)
{
    add_key(out, key);
    sb_json_add_number(out, number);
}

static void add_text(sb_str *out, const char *key, const char *text)
{
    add_key(out, key);
    sb_str_add_json(out, text);
}

static void add_bool(sb_str *out, const char *key, bool truth)
{
    add_key(out, key);
    sb_str_add(out, truth ? "true" : "false");
}

static void add_counts(sb_str *out, const uint64_t *counts, size_t n)
{
    size_t empty = 0;
    const char *space = "";

    sb_str_add(out, "\"");
    for (size_t i = 0; i < n; i++) {
        if (counts[i] == 0) {
            empty++;
            continue;
        }
        if (empty) {
            sb_str_addf(out, "%s-%zu", space, empty);
            space = " ";
        }
        sb_str_addf(out, "%s%" PRIu64, space, counts[i]);
        space = " ";
        empty = 0;
    }
    sb_str_add(out, "\"");
}

static sb_status save_hist(const sb_observer *obs, sb_str *out)
{
    const sb_hist *h = &obs->hist;
    size_t bins = 2 * (size_t)h->half;
    uint64_t *work = sb_alloc_raw(obs->ctx, bins, sizeof *work), n_zero;
    sb_str counts;

    if (!work)
        return SB_NO_MEMORY;
    sb_str_init(&counts, obs->ctx);
    add_key(out, "histogram");
    sb_str_add(out, "{");
    add_number(out, "bins", (double)bins);
    if (obs->sampled)
        add_bool(out, "sampled", true);
    add_key(out, "exponent");
    for (int64_t c = 0; c < obs->channels; c++)
        sb_str_addf(out, "%c%d", c ? ',' : '[', (int)h->exponent[c]);
    sb_str_add(out, "]");
    add_key(out, "zeros");
    for (int64_t c = 0; c < obs->channels; c++) {
        sb_hist_counts(h, c, work, &n_zero);
        sb_str_addf(out, "%c%" PRIu64, c ? ',' : '[', n_zero);
        sb_str_add(&counts, c ? "," : "[");
        add_counts(&counts, work, bins);
    }
    sb_str_add(out, "]");
    add_key(out, "counts");
    sb_str_addn(out, sb_str_text(&counts), counts.len);
    sb_str_add(out, "]}");
    sb_status status = sb_str_status(&counts);
    sb_str_free(&counts);
    sb_free(obs->ctx, work);
    return status;
}

static int greater_first(const void *a, const void *b)
{
    uint32_t x, y;

    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x < y) - (x > y);
}

/* Sorted and cut, so that the text does not depend on how things went. */
static sb_status add_tail(sb_ctx *ctx, const sb_obs_tail *t, size_t keep,
                          sb_str *out)
{
    uint32_t *v = sb_alloc_raw(ctx, t->n, sizeof *v);

    if (!v)
        return SB_NO_MEMORY;
    if (t->n)
        memcpy(v, t->v, t->n * sizeof *v);
    qsort(v, t->n, sizeof *v, greater_first);
    sb_str_add(out, "\"");
    for (size_t i = 0; i < t->n && i < keep; i++)
        sb_str_addf(out, "%08" PRIx32, v[i]);
    sb_str_add(out, "\"");
    sb_free(ctx, v);
    return SB_OK;
}

/* That of a list which is full, whether it was cut yet or not, is its last
 * value that counts. */
static int32_t tail_bar(const sb_obs_tail *t, size_t keep)
{
    int32_t bar = t->bar < 0 ? 0 : t->bar;

    if (t->n >= keep) {
        int32_t last = sb_obs_key(sb_obs_select(t->v, t->n, false, keep));
        bar = last > bar ? last : bar;
    }
    return bar;
}

static void save_bars(const sb_observer *obs, sb_str *out)
{
    const sb_obs_tails *t = obs->tails;
    int32_t high = tail_bar(&t->high, t->keep);
    int32_t low = tail_bar(&t->low, t->keep);

    if (obs->channels != 1 || (!obs->sampled && high == 0 && low == 0))
        return;
    add_key(out, "bars");
    sb_str_addf(out, "[\"%08" PRIx32 "\",\"%08" PRIx32 "\"]", (uint32_t)high,
                (uint32_t)low);
    add_number(out, "below", (double)obs->below);
}

static sb_status save_tails(const sb_observer *obs, sb_str *out)
{
    add_key(out, "tails");
    for (int high = 1; high >= 0; high--) {
        sb_str_add(out, high ? "{\"high\":" : ",\"low\":");
        for (int64_t c = 0; c < obs->channels; c++) {
            const sb_obs_tails *t = &obs->tails[c];
            sb_str_add(out, c ? "," : "[");
            SB_TRY(add_tail(obs->ctx, high ? &t->high : &t->low, t->keep, out));
        }
        sb_str_add(out, "]");
    }
    save_bars(obs, out);
    sb_str_add(out, "}");
    return SB_OK;
}

static void save_own(const sb_observer *obs, sb_str *out)
{
    double numbers[SB_OBS_OWN_MOST];

    add_key(out, "own");
    for (int64_t c = 0; c < obs->channels; c++) {
        obs->def->own_save(sb_observer_own(obs, c), numbers);
        sb_str_add(out, c ? "," : "[");
        for (int i = 0; i < obs->def->own_numbers; i++) {
            sb_str_add(out, i ? "," : "[");
            sb_json_add_number(out, numbers[i]);
        }
        sb_str_add(out, "]");
    }
    sb_str_add(out, "]");
}

/* Two lists, of lower and of upper ends; empty if nothing was seen. */
static void save_ranges(const sb_observer *obs, bool done, sb_str *out)
{
    for (int upper = 0; upper < 2; upper++) {
        add_key(out, done ? (upper ? "range_hi" : "range_lo")
                          : (upper ? "hi" : "lo"));
        sb_str_add(out, "[");
        for (int64_t c = 0; obs->elements && c < obs->channels; c++) {
            sb_range r = done ? obs->done[c] : sb_obs_keys_range(obs->keys[c]);
            sb_str_add(out, c ? "," : "");
            sb_json_add_number(out, (double)(upper ? r.hi : r.lo));
        }
        sb_str_add(out, "]");
    }
}

static void save_weight(const sb_observer *obs, sb_str *out)
{
    const sb_quant_spec *s = &obs->spec;

    add_number(out, "bits", s->bits);
    add_bool(out, "symmetric", s->symmetric);
    add_number(out, "alpha", s->percentile_alpha);
    add_bool(out, "laplace", s->aciq_laplace);
    save_ranges(obs, true, out);
}

static sb_status save_feature(const sb_observer *obs, sb_str *out)
{
    if (obs->elements == 0)
        return SB_OK;
    if (obs->needs & SB_OBS_HISTOGRAM)
        SB_TRY(save_hist(obs, out));
    if (obs->tails)
        SB_TRY(save_tails(obs, out));
    if (obs->own)
        save_own(obs, out);
    return SB_OK;
}

sb_status sb_observer_save(sb_observer *obs, sb_str *out)
{
    sb_observer_settle(obs);
    sb_str_add(out, "{");
    add_text(out, "observer", obs->def->name);
    add_text(out, "target", obs->done ? "weight" : "feature");
    add_number(out, "channels", (double)obs->channels);
    add_number(out, "samples", (double)obs->samples);
    add_number(out, "elements", (double)obs->elements);
    save_ranges(obs, false, out);
    if (obs->done)
        save_weight(obs, out);
    else
        SB_TRY(save_feature(obs, out));
    sb_str_add(out, "}");
    return sb_str_status(out);
}
