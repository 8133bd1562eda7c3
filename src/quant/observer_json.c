/* An observer's state as JSON and back.
 *
 *     {"observer": "percentile", "target": "feature", "channels": 1,
 *      "samples": 64, "elements": 1048576, "lo": [0], "hi": [2.5],
 *      "histogram": {"bins": 65536, "exponent": [2], "zeros": [524288],
 *                    "counts": ["12 7 -30 1"]},
 *      "tails": {"high": ["401fffff..."], "low": [""]}, "own": [[...]]}
 *
 * Lists have an entry for each channel.  In counts, -30 stands for thirty bins
 * that are empty, and so are those after the last number; tails are the bits of
 * floats, eight hexadecimal digits each.  Weights have no more than their
 * settings and results, `range_lo` and `range_hi`. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"
#include "quant/observer_state.h"

/* Whole numbers up to this survive as doubles. */
static const double whole_most = 9007199254740992.0;

enum { EXPONENT_LEAST = -100, EXPONENT_MOST = 128 };

/* ---- saving -------------------------------------------------------------- */

/* cJSON allocates on its own; all that can go wrong there is memory. */
static sb_status made(sb_ctx *ctx, const void *item)
{
    return item ? SB_OK
                : sb_fail(ctx, SB_NO_MEMORY, "out of memory writing JSON");
}

static sb_status add_text(sb_ctx *ctx, cJSON *list, sb_str *text)
{
    SB_TRY(sb_str_status(text));
    cJSON *item = cJSON_CreateString(sb_str_text(text));

    SB_TRY(made(ctx, item));
    cJSON_AddItemToArray(list, item);
    return SB_OK;
}

static sb_status add_number(sb_ctx *ctx, cJSON *list, double number)
{
    cJSON *item = cJSON_CreateNumber(number);

    SB_TRY(made(ctx, item));
    cJSON_AddItemToArray(list, item);
    return SB_OK;
}

static void counts_text(const uint64_t *counts, size_t n, sb_str *out)
{
    size_t empty = 0;

    for (size_t i = 0; i < n; i++) {
        if (counts[i] == 0) {
            empty++;
            continue;
        }
        if (empty)
            sb_str_addf(out, "%s-%zu", out->len ? " " : "", empty);
        sb_str_addf(out, "%s%" PRIu64, out->len ? " " : "", counts[i]);
        empty = 0;
    }
}

static sb_status save_hist(const sb_observer *obs, cJSON *to)
{
    sb_ctx *ctx = obs->ctx;
    const sb_hist *h = &obs->hist;
    size_t bins = 2 * (size_t)h->half;
    cJSON *hist = cJSON_AddObjectToObject(to, "histogram");
    SB_TRY(made(ctx, hist));
    SB_TRY(made(ctx, cJSON_AddNumberToObject(hist, "bins", (double)bins)));
    cJSON *exponent = cJSON_AddArrayToObject(hist, "exponent");
    cJSON *zeros = cJSON_AddArrayToObject(hist, "zeros");
    cJSON *counts = cJSON_AddArrayToObject(hist, "counts");
    SB_TRY(made(ctx, exponent && zeros ? counts : NULL));

    uint64_t *work = sb_alloc_raw(ctx, bins, sizeof *work), n_zero;
    sb_status status = work ? SB_OK : SB_NO_MEMORY;
    for (int64_t c = 0; c < obs->channels && status == SB_OK; c++) {
        sb_str text;
        sb_str_init(&text, ctx);
        sb_hist_counts(h, c, work, &n_zero);
        counts_text(work, bins, &text);
        status = add_text(ctx, counts, &text);
        sb_str_free(&text);
        if (status == SB_OK)
            status = add_number(ctx, exponent, (double)h->exponent[c]);
        if (status == SB_OK)
            status = add_number(ctx, zeros, (double)n_zero);
    }
    sb_free(ctx, work);
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
static sb_status save_tail(sb_ctx *ctx, const sb_obs_tail *t, size_t keep,
                           cJSON *list)
{
    sb_str text;
    uint32_t *v = sb_alloc_raw(ctx, t->n, sizeof *v);

    if (!v)
        return SB_NO_MEMORY;
    if (t->n)
        memcpy(v, t->v, t->n * sizeof *v);
    qsort(v, t->n, sizeof *v, greater_first);
    sb_str_init(&text, ctx);
    for (size_t i = 0; i < t->n && i < keep; i++)
        sb_str_addf(&text, "%08" PRIx32, v[i]);
    sb_status status = add_text(ctx, list, &text);
    sb_str_free(&text);
    sb_free(ctx, v);
    return status;
}

static sb_status save_tails(const sb_observer *obs, cJSON *to)
{
    cJSON *tails = cJSON_AddObjectToObject(to, "tails");
    SB_TRY(made(obs->ctx, tails));
    cJSON *high = cJSON_AddArrayToObject(tails, "high");
    cJSON *low = cJSON_AddArrayToObject(tails, "low");
    SB_TRY(made(obs->ctx, high ? low : NULL));
    for (int64_t c = 0; c < obs->channels; c++) {
        const sb_obs_tails *t = &obs->tails[c];
        SB_TRY(save_tail(obs->ctx, &t->high, t->keep, high));
        SB_TRY(save_tail(obs->ctx, &t->low, t->keep, low));
    }
    return SB_OK;
}

enum { OWN_MOST = 16 };

static sb_status save_own(const sb_observer *obs, cJSON *to)
{
    double numbers[OWN_MOST];
    cJSON *own = cJSON_AddArrayToObject(to, "own");

    SB_TRY(made(obs->ctx, own));
    for (int64_t c = 0; c < obs->channels; c++) {
        obs->def->own_save(sb_observer_own(obs, c), numbers);
        cJSON *item = cJSON_CreateDoubleArray(numbers, obs->def->own_numbers);
        SB_TRY(made(obs->ctx, item));
        cJSON_AddItemToArray(own, item);
    }
    return SB_OK;
}

static sb_status save_ranges(const sb_observer *obs, cJSON *to)
{
    cJSON *lo = cJSON_AddArrayToObject(to, "lo");
    cJSON *hi = cJSON_AddArrayToObject(to, "hi");

    SB_TRY(made(obs->ctx, lo ? hi : NULL));
    for (int64_t c = 0; obs->elements && c < obs->channels; c++) {
        sb_range r = sb_obs_keys_range(obs->keys[c]);
        SB_TRY(add_number(obs->ctx, lo, (double)r.lo));
        SB_TRY(add_number(obs->ctx, hi, (double)r.hi));
    }
    return SB_OK;
}

static sb_status save_weight(const sb_observer *obs, cJSON *to)
{
    const sb_quant_spec *s = &obs->spec;
    sb_ctx *ctx = obs->ctx;

    SB_TRY(made(ctx, cJSON_AddNumberToObject(to, "bits", s->bits)));
    SB_TRY(made(ctx, cJSON_AddBoolToObject(to, "symmetric", s->symmetric)));
    SB_TRY(
        made(ctx, cJSON_AddNumberToObject(to, "alpha", s->percentile_alpha)));
    SB_TRY(made(ctx, cJSON_AddBoolToObject(to, "laplace", s->aciq_laplace)));
    cJSON *lo = cJSON_AddArrayToObject(to, "range_lo");
    cJSON *hi = cJSON_AddArrayToObject(to, "range_hi");
    SB_TRY(made(ctx, lo ? hi : NULL));
    for (int64_t c = 0; obs->elements && c < obs->channels; c++) {
        SB_TRY(add_number(ctx, lo, (double)obs->done[c].lo));
        SB_TRY(add_number(ctx, hi, (double)obs->done[c].hi));
    }
    return SB_OK;
}

static sb_status save_all(const sb_observer *obs, cJSON *to)
{
    sb_ctx *ctx = obs->ctx;
    const char *target = obs->done ? "weight" : "feature";

    SB_TRY(made(ctx, cJSON_AddStringToObject(to, "observer", obs->def->name)));
    SB_TRY(made(ctx, cJSON_AddStringToObject(to, "target", target)));
    SB_TRY(made(
        ctx, cJSON_AddNumberToObject(to, "channels", (double)obs->channels)));
    SB_TRY(made(ctx,
                cJSON_AddNumberToObject(to, "samples", (double)obs->samples)));
    SB_TRY(made(
        ctx, cJSON_AddNumberToObject(to, "elements", (double)obs->elements)));
    SB_TRY(save_ranges(obs, to));
    if (obs->done)
        return save_weight(obs, to);
    if (obs->elements == 0)
        return SB_OK;
    if (obs->needs & SB_OBS_HISTOGRAM)
        SB_TRY(save_hist(obs, to));
    if (obs->tails)
        SB_TRY(save_tails(obs, to));
    if (obs->own)
        SB_TRY(save_own(obs, to));
    return SB_OK;
}

sb_status sb_observer_save(const sb_observer *obs, cJSON **out)
{
    cJSON *json = cJSON_CreateObject();

    SB_TRY(made(obs->ctx, json));
    sb_status status = save_all(obs, json);
    if (status == SB_OK)
        *out = json;
    else
        cJSON_Delete(json);
    return status;
}

/* ---- loading ------------------------------------------------------------- */

typedef struct load_job {
    sb_observer *obs; /* empty at first */
    const char *what;
} load_job;

static sb_status bad(const load_job *job, const char *key, const char *why)
{
    return sb_fail(job->obs->ctx, SB_BAD_DATA, "calibration of '%s': %s: %s",
                   job->what, key, why);
}

static bool is_whole(const cJSON *item, double lo, double hi)
{
    return cJSON_IsNumber(item) && item->valuedouble >= lo &&
           item->valuedouble <= hi &&
           item->valuedouble == floor(item->valuedouble);
}

static sb_status load_whole(const load_job *job, const cJSON *from,
                            const char *key, int64_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, key);

    if (!is_whole(item, 0.0, whole_most))
        return bad(job, key, "want a whole number");
    *out = (int64_t)item->valuedouble;
    return SB_OK;
}

/* A list with an entry for each channel. */
static sb_status load_list(const load_job *job, const cJSON *from,
                           const char *key, const cJSON **out)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(from, key);

    if (!cJSON_IsArray(list) ||
        (int64_t)cJSON_GetArraySize(list) != job->obs->channels)
        return bad(job, key, "want a list with an entry for each channel");
    *out = list->child;
    return SB_OK;
}

static bool is_float(const cJSON *item)
{
    return cJSON_IsNumber(item) && fabs(item->valuedouble) <= 0x1.fffffep127;
}

static sb_status load_pairs(const load_job *job, const cJSON *from,
                            const char *key_lo, const char *key_hi,
                            sb_range *out)
{
    const cJSON *lo, *hi;

    SB_TRY(load_list(job, from, key_lo, &lo));
    SB_TRY(load_list(job, from, key_hi, &hi));
    for (; lo && hi; lo = lo->next, hi = hi->next, out++) {
        if (!is_float(lo) || !is_float(hi) || lo->valuedouble > hi->valuedouble)
            return bad(job, key_lo, "want finite numbers, not above the upper");
        *out = (sb_range){(float)lo->valuedouble, (float)hi->valuedouble};
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
                                   const cJSON *text, const cJSON *exponent,
                                   const cJSON *zeros, uint64_t *work)
{
    sb_observer *obs = job->obs;
    size_t bins = 2 * (size_t)obs->hist.half;

    if (!is_whole(exponent, EXPONENT_LEAST, EXPONENT_MOST))
        return bad(job, "exponent", "want -100 to 128");
    if (!is_whole(zeros, 0.0, whole_most))
        return bad(job, "zeros", "want whole numbers");
    if (!cJSON_IsString(text) || !read_counts(text->valuestring, work, bins))
        return bad(job, "counts", "not a list of counts for all bins");
    uint64_t sum = (uint64_t)zeros->valuedouble;
    for (size_t i = 0; i < bins; i++)
        sum += work[i];
    if (sum != (uint64_t)(obs->elements / obs->channels))
        return bad(job, "counts", "they do not add up to the elements");
    int e = (int)exponent->valuedouble;
    SB_TRY(sb_hist_add_counts(obs->ctx, &obs->hist, c, e, work,
                              (uint64_t)zeros->valuedouble));
    if (!sb_hist_fits(&obs->hist, c, obs->keys[c]))
        return bad(job, "exponent", "the range is outside the histogram");
    return SB_OK;
}

static sb_status load_hist(const load_job *job, const cJSON *from)
{
    sb_observer *obs = job->obs;
    const cJSON *hist = cJSON_GetObjectItemCaseSensitive(from, "histogram");
    const cJSON *counts, *exponent, *zeros;
    size_t bins = 2 * (size_t)obs->hist.half;
    int64_t found;

    SB_TRY(load_whole(job, hist, "bins", &found));
    if (found != (int64_t)bins)
        return bad(job, "bins", "another number of bins");
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

static sb_status load_tail(const load_job *job, const cJSON *item,
                           sb_obs_tail *t, size_t keep)
{
    const char *text = cJSON_IsString(item) ? item->valuestring : "?";
    size_t n = strlen(text);

    if (n % 8 || n / 8 > keep)
        return bad(job, "tails", "want at most as many values as are kept");
    t->v = sb_alloc_raw(job->obs->ctx, n / 8, sizeof *t->v);
    if (!t->v)
        return SB_NO_MEMORY;
    t->cap = n / 8;
    for (size_t i = 0; i < n; i += 8) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 8; k++) {
            int digit = hex_digit(text[i + k]);
            if (digit < 0)
                return bad(job, "tails", "want hexadecimal digits");
            bits = bits << 4 | (uint32_t)digit;
        }
        if (bits >= 0x7f800000)
            return bad(job, "tails", "want finite numbers");
        t->v[t->n++] = bits;
    }
    return SB_OK;
}

static sb_status load_tails(const load_job *job, const cJSON *from)
{
    sb_observer *obs = job->obs;
    const cJSON *tails = cJSON_GetObjectItemCaseSensitive(from, "tails");
    const cJSON *high, *low;

    SB_TRY(load_list(job, tails, "high", &high));
    SB_TRY(load_list(job, tails, "low", &low));
    for (int64_t c = 0; c < obs->channels; c++) {
        sb_obs_tails *t = &obs->tails[c];
        SB_TRY(load_tail(job, high, &t->high, t->keep));
        SB_TRY(load_tail(job, low, &t->low, t->keep));
        high = high->next;
        low = low->next;
    }
    return SB_OK;
}

static sb_status load_own(const load_job *job, const cJSON *from)
{
    sb_observer *obs = job->obs;
    const cJSON *own;

    SB_TRY(load_list(job, from, "own", &own));
    for (int64_t c = 0; c < obs->channels; c++, own = own->next) {
        double numbers[OWN_MOST];
        int n = 0;
        const cJSON *item = cJSON_IsArray(own) ? own->child : NULL;
        for (; item && n < obs->def->own_numbers; item = item->next) {
            if (!cJSON_IsNumber(item))
                break;
            numbers[n++] = item->valuedouble;
        }
        if (item || n != obs->def->own_numbers ||
            !obs->def->own_load(sb_observer_own(obs, c), numbers))
            return bad(job, "own", "not what this observer keeps");
    }
    return SB_OK;
}

static sb_status load_weight(const load_job *job, const cJSON *from)
{
    sb_observer *obs = job->obs;
    const sb_quant_spec *s = &obs->spec;
    const cJSON *bits = cJSON_GetObjectItemCaseSensitive(from, "bits");
    const cJSON *sym = cJSON_GetObjectItemCaseSensitive(from, "symmetric");
    const cJSON *alpha = cJSON_GetObjectItemCaseSensitive(from, "alpha");
    const cJSON *laplace = cJSON_GetObjectItemCaseSensitive(from, "laplace");

    if (!is_whole(bits, s->bits, s->bits) || !cJSON_IsBool(sym) ||
        cJSON_IsTrue(sym) != s->symmetric || !cJSON_IsNumber(alpha) ||
        alpha->valuedouble != s->percentile_alpha || !cJSON_IsBool(laplace) ||
        cJSON_IsTrue(laplace) != s->aciq_laplace)
        return bad(job, "bits", "made with other settings");
    return load_pairs(job, from, "range_lo", "range_hi", obs->done);
}

static sb_status load_all(const load_job *job, const cJSON *from)
{
    sb_observer *obs = job->obs;
    const char *target = obs->done ? "weight" : "feature";
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(from, "observer");
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(from, "target");
    int64_t channels;

    if (!cJSON_IsString(name) || strcmp(name->valuestring, obs->def->name) != 0)
        return bad(job, "observer", "made with another observer");
    if (!cJSON_IsString(kind) || strcmp(kind->valuestring, target) != 0)
        return bad(job, "target", "made for another kind of tensor");
    SB_TRY(load_whole(job, from, "channels", &channels));
    if (channels != obs->channels)
        return bad(job, "channels", "another number of channels");
    SB_TRY(load_whole(job, from, "samples", &obs->samples));
    SB_TRY(load_whole(job, from, "elements", &obs->elements));
    if (obs->elements == 0)
        return SB_OK;
    if (obs->samples == 0 || obs->elements % obs->channels != 0)
        return bad(job, "elements", "no possible number");
    sb_range *ranges = sb_alloc_raw(obs->ctx, (size_t)channels, sizeof *ranges);
    if (!ranges)
        return SB_NO_MEMORY;
    sb_status status = load_pairs(job, from, "lo", "hi", ranges);
    for (int64_t c = 0; status == SB_OK && c < channels; c++)
        obs->keys[c] =
            (sb_obs_keys){sb_obs_key(ranges[c].lo), sb_obs_key(ranges[c].hi)};
    sb_free(obs->ctx, ranges);
    SB_TRY(status);
    if (obs->done)
        return load_weight(job, from);
    if (obs->needs & SB_OBS_HISTOGRAM)
        SB_TRY(load_hist(job, from));
    if (obs->tails)
        SB_TRY(load_tails(job, from));
    return obs->own ? load_own(job, from) : SB_OK;
}

sb_status sb_observer_load(sb_observer *obs, const cJSON *json,
                           const char *what)
{
    load_job job = {.what = what};

    SB_TRY(sb_observer_create(obs->ctx, &obs->spec, obs->channels, &job.obs));
    sb_status status = load_all(&job, json);
    if (status == SB_OK)
        status = sb_observer_merge(obs, job.obs);
    sb_observer_free(job.obs);
    return status;
}
