/* An observer's state from JSON, as observer_save.c writes it.  The file may be
 * not trusted: every number is checked before it is used. */
#include <math.h>
#include <stdlib.h>

#include "quant/observe/observer_state.h"

/* Whole numbers up to this survive as doubles. */
static const double whole_most = 9007199254740992.0;

enum { EXPONENT_LEAST = -100, EXPONENT_MOST = 128 };

typedef struct load_job {
    sb_observer *obs; /* empty at first */
    const sb_json_doc *doc;
} load_job;

static sb_status load_bad(const load_job *job, const sb_json *at,
                          const char *key, const char *why)
{
    return sb_json_fail(job->doc, at, "%s: %s", key, why);
}

/* A member of an object; complains about the object if it is not there. */
static sb_status load_item(const load_job *job, const sb_json *from,
                           const char *key, sb_json_kind kind,
                           const sb_json **out)
{
    static const char *const names[] = {"null",   "a truth value", "a number",
                                        "a text", "a list",        "an object"};
    const sb_json *item = sb_json_get(from, key);

    if (!sb_json_is(item, kind))
        return sb_json_fail(job->doc, item ? item : from, "%s: %s, want %s",
                            key, item ? "another kind of value" : "missing",
                            names[kind]);
    *out = item;
    return SB_OK;
}

static bool is_whole(const sb_json *item, double lo, double hi)
{
    return sb_json_is(item, SB_JSON_NUMBER) && item->number >= lo &&
           item->number <= hi && item->number == floor(item->number);
}

static sb_status load_whole(const load_job *job, const sb_json *from,
                            const char *key, int64_t *out)
{
    const sb_json *item;

    SB_TRY(load_item(job, from, key, SB_JSON_NUMBER, &item));
    if (!is_whole(item, 0.0, whole_most))
        return load_bad(job, item, key, "want a whole number");
    *out = (int64_t)item->number;
    return SB_OK;
}

/* A list with an entry for each channel. */
static sb_status load_list(const load_job *job, const sb_json *from,
                           const char *key, const sb_json **out)
{
    const sb_json *list;

    SB_TRY(load_item(job, from, key, SB_JSON_LIST, &list));
    if ((int64_t)list->n != job->obs->channels)
        return load_bad(job, list, key,
                        "want a list with an entry for each channel");
    *out = list->child;
    return SB_OK;
}

static bool is_float(const sb_json *item)
{
    return sb_json_is(item, SB_JSON_NUMBER) &&
           fabs(item->number) <= 0x1.fffffep127;
}

static sb_status load_pairs(const load_job *job, const sb_json *from,
                            const char *key_lo, const char *key_hi,
                            sb_range *out)
{
    const sb_json *lo, *hi;

    SB_TRY(load_list(job, from, key_lo, &lo));
    SB_TRY(load_list(job, from, key_hi, &hi));
    for (; lo && hi; lo = lo->next, hi = hi->next, out++) {
        if (!is_float(lo) || !is_float(hi) || lo->number > hi->number)
            return load_bad(job, lo, key_lo,
                            "want finite numbers, not above the upper");
        *out = (sb_range){(float)lo->number, (float)hi->number};
    }
    return SB_OK;
}

/* Reads counts; false if the text is not a list that fits. */
static bool read_counts(const char *text, uint64_t *counts, size_t n)
{
    size_t at = 0;

    memset(counts, 0, n * sizeof *counts);
    while (*text) {
        bool skip = *text == '-';
        uint64_t number = 0;
        text += skip;
        if (*text < '0' || *text > '9')
            return false;
        for (; *text >= '0' && *text <= '9'; text++) {
            number = number * 10 + (uint64_t)(*text - '0');
            if (number > (uint64_t)1 << 53)
                return false;
        }
        if (*text == ' ')
            text++;
        else if (*text)
            return false;
        if (skip ? number > n - at : at >= n)
            return false;
        if (!skip)
            counts[at] = number;
        at += skip ? (size_t)number : 1;
    }
    return true;
}

static sb_status load_hist_channel(const load_job *job, int64_t c,
                                   const sb_json *text, const sb_json *exponent,
                                   const sb_json *zeros, uint64_t *work)
{
    sb_observer *obs = job->obs;
    size_t bins = 2 * (size_t)obs->hist.half;

    if (!is_whole(exponent, EXPONENT_LEAST, EXPONENT_MOST))
        return load_bad(job, exponent, "exponent", "want -100 to 128");
    if (!is_whole(zeros, 0.0, whole_most))
        return load_bad(job, zeros, "zeros", "want whole numbers");
    if (!sb_json_text(text) || !read_counts(text->text, work, bins))
        return load_bad(job, text, "counts",
                        "not a list of counts for all bins");
    uint64_t sum = (uint64_t)zeros->number;
    for (size_t i = 0; i < bins; i++)
        sum += work[i];
    uint64_t want = (uint64_t)(obs->elements / obs->channels);
    if (sum != want)
        return load_bad(job, text, "counts",
                        "they do not add up to the elements");
    int e = (int)exponent->number;
    SB_TRY(sb_histogram_add_counts(obs->ctx, &obs->hist, c, e, work,
                                   (uint64_t)zeros->number));
    if (!sb_histogram_fits(&obs->hist, c, obs->minmax[c]))
        return load_bad(job, exponent, "exponent",
                        "the range is outside the histogram");
    return SB_OK;
}

static sb_status load_hist(const load_job *job, const sb_json *from)
{
    sb_observer *obs = job->obs;
    const sb_json *hist, *counts, *exponent, *zeros;
    int64_t found;

    SB_TRY(load_item(job, from, "histogram", SB_JSON_OBJECT, &hist));
    SB_TRY(load_whole(job, hist, "bins", &found));
    size_t bins = 2 * (size_t)obs->hist.half;
    if (found != (int64_t)bins)
        return load_bad(job, hist, "bins", "another number of bins");
    SB_TRY(load_list(job, hist, "counts", &counts));
    SB_TRY(load_list(job, hist, "exponent", &exponent));
    SB_TRY(load_list(job, hist, "zeros", &zeros));
    uint64_t *work = sb_alloc_raw(obs->ctx, bins, sizeof *work);
    sb_status status = work ? SB_OK : SB_NO_MEMORY;
    for (int64_t c = 0; c < obs->channels && status == SB_OK; c++) {
        status = load_hist_channel(job, c, counts, exponent, zeros, work);
        counts = counts->next;
        exponent = exponent->next;
        zeros = zeros->next;
    }
    sb_free(obs->ctx, work);
    return status;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static sb_status load_side(const load_job *job, const sb_json *item,
                           sb_extremes_side *t, size_t keep)
{
    const char *text = sb_json_text(item) ? item->text : "?";
    size_t n = strlen(text);

    if (n % 8 || n / 8 > keep)
        return load_bad(job, item, "extremes",
                        "want at most as many values as are kept");
    t->v = sb_alloc_raw(job->obs->ctx, n / 8, sizeof *t->v);
    if (!t->v)
        return SB_NO_MEMORY;
    t->cap = n / 8;
    for (size_t i = 0; i < n; i += 8) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 8; k++) {
            int digit = hex_digit(text[i + k]);
            if (digit < 0)
                return load_bad(job, item, "extremes",
                                "want hexadecimal digits");
            bits = bits << 4 | (uint32_t)digit;
        }
        if (bits >= 0x7f800000)
            return load_bad(job, item, "extremes", "want finite numbers");
        t->v[t->n++] = bits;
    }
    return SB_OK;
}

static sb_status load_extremes(const load_job *job, const sb_json *from)
{
    sb_observer *obs = job->obs;
    const sb_json *extremes, *high, *low;

    SB_TRY(load_item(job, from, "extremes", SB_JSON_OBJECT, &extremes));
    SB_TRY(load_list(job, extremes, "high", &high));
    SB_TRY(load_list(job, extremes, "low", &low));
    for (int64_t c = 0; c < obs->channels; c++) {
        sb_extremes *e = &obs->extremes[c];
        SB_TRY(load_side(job, high, &e->high, e->keep));
        SB_TRY(load_side(job, low, &e->low, e->keep));
        high = high->next;
        low = low->next;
    }
    return SB_OK;
}

static sb_status load_state(const load_job *job, const sb_json *from)
{
    sb_observer *obs = job->obs;
    size_t n = obs->def->state_size;
    const sb_json *own;

    SB_TRY(load_list(job, from, "own", &own));
    for (int64_t c = 0; c < obs->channels; c++, own = own->next) {
        double *state = sb_observer_state(obs, c);
        bool fits = sb_json_is(own, SB_JSON_LIST) && own->n == n;
        const sb_json *item = fits ? own->child : NULL;

        for (size_t i = 0; i < n && fits; i++, item = item->next) {
            fits = is_float(item);
            state[i] = fits ? item->number : 0.0;
        }
        if (!fits)
            return load_bad(job, own, "own", "not what this observer keeps");
    }
    return SB_OK;
}

/* The ranges of all samples, if they are there. */
static sb_status load_log(const load_job *job, const sb_json *from)
{
    sb_observer *obs = job->obs;
    const sb_json *log = sb_json_get(from, "log");
    double want = 2 * (double)obs->samples * (double)obs->channels;

    if (!log)
        return SB_OK;
    if (!sb_json_is(log, SB_JSON_LIST) || (double)log->n != want)
        return load_bad(job, log, "log", "not one range for each sample");
    SB_TRY(sb_grow(obs->ctx, &obs->log, &obs->cap_log, log->n / 2,
                   sizeof *obs->log));
    for (const sb_json *lo = log->child; lo; lo = lo->next->next) {
        if (!is_float(lo) || !is_float(lo->next))
            return load_bad(job, lo, "log", "not finite numbers");
        obs->log[obs->n_log++] =
            (sb_range){(float)lo->number, (float)lo->next->number};
    }
    return SB_OK;
}

static sb_status load_params(const load_job *job, const sb_json *from)
{
    const sb_observer *obs = job->obs;
    const sb_json *params;

    if (!sb_observer_keeps_params(obs))
        return SB_OK;
    SB_TRY(load_item(job, from, "parameters", SB_JSON_OBJECT, &params));
    return sb_params_check_json(job->doc, params, obs->def->params,
                                obs->spec.observer_params);
}

static sb_status load_weight(const load_job *job, const sb_json *from)
{
    sb_observer *obs = job->obs;
    const sb_quant_spec *s = &obs->spec;
    const sb_json *bits, *sym;

    SB_TRY(load_item(job, from, "bits", SB_JSON_NUMBER, &bits));
    SB_TRY(load_item(job, from, "symmetric", SB_JSON_BOOL, &sym));
    if (bits->number != s->bits || (sym->number != 0.0) != s->symmetric)
        return load_bad(job, from, "bits", "made with other settings");
    return load_pairs(job, from, "range_lo", "range_hi", obs->done);
}

/* What it is the state of, and how much it has seen. */
static sb_status load_head(const load_job *job, const sb_json *from)
{
    sb_observer *obs = job->obs;
    const sb_json *name, *kind;
    int64_t channels;

    SB_TRY(load_item(job, from, "observer", SB_JSON_TEXT, &name));
    if (strcmp(name->text, obs->def->name) != 0)
        return load_bad(job, name, "observer", "made with another observer");
    SB_TRY(load_item(job, from, "target", SB_JSON_TEXT, &kind));
    if (strcmp(kind->text, obs->done ? "weight" : "activation") != 0)
        return load_bad(job, kind, "target", "made for another kind of tensor");
    SB_TRY(load_whole(job, from, "channels", &channels));
    if (channels != obs->channels)
        return load_bad(job, from, "channels", "another number of channels");
    SB_TRY(load_whole(job, from, "samples", &obs->samples));
    SB_TRY(load_whole(job, from, "elements", &obs->elements));
    if (obs->elements != 0 &&
        (obs->samples == 0 || obs->elements % obs->channels != 0))
        return load_bad(job, from, "elements", "no possible number");
    return load_params(job, from);
}

static sb_status load_minmax(const load_job *job, const sb_json *from)
{
    sb_observer *obs = job->obs;
    sb_range *ranges =
        sb_alloc_raw(obs->ctx, (size_t)obs->channels, sizeof *ranges);

    if (!ranges)
        return SB_NO_MEMORY;
    sb_status status = load_pairs(job, from, "lo", "hi", ranges);
    for (int64_t c = 0; status == SB_OK && c < obs->channels; c++)
        obs->minmax[c] =
            (sb_minmax){sb_float_key(ranges[c].lo), sb_float_key(ranges[c].hi)};
    sb_free(obs->ctx, ranges);
    return status;
}

static sb_status load_all(const load_job *job, const sb_json *from)
{
    sb_observer *obs = job->obs;

    SB_TRY(load_head(job, from));
    if (obs->elements == 0)
        return SB_OK;
    SB_TRY(load_minmax(job, from));
    if (obs->done)
        return load_weight(job, from);
    if (obs->needs & SB_OBS_HISTOGRAM)
        SB_TRY(load_hist(job, from));
    if (obs->extremes)
        SB_TRY(load_extremes(job, from));
    if (!obs->state)
        return SB_OK;
    SB_TRY(load_state(job, from));
    return load_log(job, from);
}

sb_status sb_observer_load(sb_observer *obs, const sb_json_doc *doc,
                           const sb_json *json)
{
    load_job job = {.doc = doc};

    SB_TRY(sb_observer_create(obs->ctx, &obs->spec, obs->channels, &job.obs));
    sb_status status = load_all(&job, json);
    if (status == SB_OK)
        status = sb_observer_merge(obs, job.obs);
    sb_observer_free(job.obs);
    return status;
}
