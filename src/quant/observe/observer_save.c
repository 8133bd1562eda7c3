/* An observer's state as JSON; observer_load.c reads it back.
 *
 *     {"observer": "percentile", "target": "activation", "channels": 1,
 *      "samples": 64, "elements": 1048576, "lo": [0], "hi": [2.5],
 *      "histogram": {"bins": 65536, "exponent": [2], "zeros": [524288],
 *                    "counts": ["12 7 -30 1"]},
 *      "extremes": {"high": ["401fffff..."], "low": [""]}, "own": [[...]]}
 *
 * Where parameters show in the state, they stand in it by their keys:
 * "parameters": {"EMA_RATIO": 0.9}; "own" are numbers that the row keeps. Among
 * ranks "log" has the ends of each sample's range, one after another.
 *
 * Lists have an entry for each channel.  In counts, -30 stands for thirty bins
 * that are empty, and so are those after the last number; extremes are the bits
 * of floats, eight hexadecimal digits each.  Weights have no more than their
 * settings and results, `range_lo` and `range_hi`. */
#include <inttypes.h>
#include <stdlib.h>

#include "quant/observe/observer_state.h"

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
    const sb_histogram *h = &obs->hist;
    size_t bins = 2 * (size_t)h->half;
    uint64_t *work = sb_alloc_raw(obs->ctx, bins, sizeof *work), n_zero;
    sb_str counts;

    if (!work)
        return SB_NO_MEMORY;
    sb_str_init(&counts, obs->ctx);
    add_key(out, "histogram");
    sb_str_add(out, "{");
    add_number(out, "bins", (double)bins);
    add_key(out, "exponent");
    for (int64_t c = 0; c < obs->channels; c++)
        sb_str_addf(out, "%c%d", c ? ',' : '[', (int)h->exponent[c]);
    sb_str_add(out, "]");
    add_key(out, "zeros");
    for (int64_t c = 0; c < obs->channels; c++) {
        sb_histogram_counts(h, c, work, &n_zero);
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

/* Sorted and cut, so that the text does not depend on the order of the data. */
static sb_status save_side(sb_ctx *ctx, const sb_extremes_side *t, size_t keep,
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

static sb_status save_extremes(const sb_observer *obs, sb_str *out)
{
    add_key(out, "extremes");
    for (int high = 1; high >= 0; high--) {
        sb_str_add(out, high ? "{\"high\":" : ",\"low\":");
        for (int64_t c = 0; c < obs->channels; c++) {
            const sb_extremes *e = &obs->extremes[c];
            sb_str_add(out, c ? "," : "[");
            SB_TRY(
                save_side(obs->ctx, high ? &e->high : &e->low, e->keep, out));
        }
        sb_str_add(out, "]");
    }
    sb_str_add(out, "}");
    return SB_OK;
}

static void save_state(const sb_observer *obs, sb_str *out)
{
    add_key(out, "own");
    for (int64_t c = 0; c < obs->channels; c++) {
        sb_str_add(out, c ? "," : "[");
        for (size_t i = 0; i < obs->def->state_size; i++) {
            sb_str_add(out, i ? "," : "[");
            sb_json_add_number(out, sb_observer_state(obs, c)[i]);
        }
        sb_str_add(out, "]");
    }
    sb_str_add(out, "]");
}

static void save_log(const sb_observer *obs, sb_str *out)
{
    add_key(out, "log");
    for (size_t i = 0; i < obs->n_log; i++) {
        sb_str_add(out, i ? "," : "[");
        sb_json_add_number(out, (double)obs->log[i].lo);
        sb_str_add(out, ",");
        sb_json_add_number(out, (double)obs->log[i].hi);
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
            sb_range r = done ? obs->done[c] : sb_minmax_range(obs->minmax[c]);
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
    save_ranges(obs, true, out);
}

static sb_status save_activation(const sb_observer *obs, sb_str *out)
{
    if (obs->elements == 0)
        return SB_OK;
    if (obs->needs & SB_OBS_HISTOGRAM)
        SB_TRY(save_hist(obs, out));
    if (obs->extremes)
        SB_TRY(save_extremes(obs, out));
    if (obs->state)
        save_state(obs, out);
    if (obs->n_log > 0)
        save_log(obs, out);
    return SB_OK;
}

sb_status sb_observer_save(const sb_observer *obs, sb_str *out)
{
    sb_str_add(out, "{");
    add_text(out, "observer", obs->def->name);
    add_text(out, "target", obs->done ? "weight" : "activation");
    add_number(out, "channels", (double)obs->channels);
    add_number(out, "samples", (double)obs->samples);
    add_number(out, "elements", (double)obs->elements);
    if (sb_observer_keeps_params(obs)) {
        add_key(out, "parameters");
        sb_params_json(obs->def->params, obs->spec.observer_params, out);
    }
    save_ranges(obs, false, out);
    if (obs->done)
        save_weight(obs, out);
    else
        SB_TRY(save_activation(obs, out));
    sb_str_add(out, "}");
    return sb_str_status(out);
}
