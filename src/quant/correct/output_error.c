/* How far the outputs of a quantized network are from those of the float one,
 * sample by sample: what decides whether a method stays. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/calibrate/batch_store.h"
#include "quant/calibrate/replay.h"
#include "quant/correct/correct.h"
#include "quant/export/export.h"

static double errors_sum(const double *errors, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += errors[i];
    return sum;
}

/* ---- the float network -------------------------------------------------- */

/* `replay` NULL: outputs are there. */
static sb_status reference_fill(sb_reference *r, sb_replay *replay)
{
    size_t n = sb_batch_store_count(r->qm->state.batches);

    for (size_t i = 0; i < n; i++) {
        if (!sb_replay_is_for(r->qm, SB_REPLAY_JUDGED, i))
            continue;
        SB_TRY(sb_ctx_poll(r->qm->ctx));
        if (replay) {
            SB_TRY(sb_replay_run(replay, i));
            SB_TRY(sb_batch_store_take(r->outputs, replay->outputs));
        }
        r->batch[r->n_batches++] = i;
        r->n_samples += (size_t)sb_batch_store_samples(r->qm->state.batches, i);
    }
    return SB_OK;
}

/* Did calibration keep what is judged of all batches?  (Of several ranks each
 * kept its own.) */
static bool reference_is_kept(const sb_reference *r)
{
    const sb_quant_model *qm = r->qm;
    size_t n = qm->graph->n_outputs;

    return qm->state.outputs && r->judged.n == n &&
           memcmp(r->judged.v, qm->graph->outputs, n * sizeof *r->judged.v) ==
               0 &&
           sb_batch_store_count(qm->state.outputs) ==
               sb_batch_store_count(qm->state.batches);
}

/* What is judged takes the place of the network's outputs, and at the second
 * call they are back: for graphs that are derived in between. */
static void reference_swap(sb_reference *r)
{
    sb_graph *g = r->qm->graph;
    const sb_judged was = {g->outputs, g->n_outputs, g->cap_outputs};

    for (size_t k = 0; k < g->n_outputs; k++)
        sb_graph_value(g, g->outputs[k])->is_output = false;
    g->outputs = r->judged.v;
    g->n_outputs = r->judged.n;
    g->cap_outputs = r->judged.cap;
    r->judged = was;
    for (size_t k = 0; k < g->n_outputs; k++)
        sb_graph_value(g, g->outputs[k])->is_output = true;
}

static sb_status reference_get(const sb_reference *r, size_t i,
                               const sb_tensor *const **out)
{
    bool kept = r->outputs == r->qm->state.outputs;

    return sb_batch_store_get(r->outputs, kept ? r->batch[i] : i, out);
}

static sb_status reference_run(sb_reference *r)
{
    sb_quant_model *qm = r->qm;
    sb_graph *g = NULL;
    sb_replay replay = {0};

    SB_TRY(sb_batch_store_create(
        qm->ctx, r->judged.n, qm->state.calibration.memory_limit, &r->outputs));
    reference_swap(r);
    sb_status status = sb_replay_float(qm, &g);
    reference_swap(r);
    if (status == SB_OK)
        status = sb_replay_open(qm, g, NULL, &replay);
    if (status == SB_OK)
        status = reference_fill(r, &replay);
    sb_replay_close(&replay);
    return status;
}

/* What kind of numbers the outputs are, and how large. */
static sb_status reference_look(const sb_reference *r, bool count)
{
    const sb_tensor *const *t = NULL;

    for (size_t i = 0; i < r->n_batches; i++) {
        SB_TRY(reference_get(r, i, &t));
        for (size_t k = 0; k < r->judged.n; k++)
            if (count)
                sb_output_form_count(&r->forms[k], t[k]);
            else
                SB_TRY(sb_output_form_see(r->qm->ctx, t[k], &r->forms[k]));
    }
    return SB_OK;
}

/* How many of the values count. */
static double reference_counts(const sb_reference *r)
{
    double outputs = 0;

    for (size_t k = 0; k < r->judged.n; k++)
        outputs += r->forms[k].counts;
    return outputs;
}

/* ---- one sample --------------------------------------------------------- */

/* Adds what one output of a batch says to the errors of its samples; an output
 * that does not count samples says the same of all.  One of another shape, as
 * boxes have of which others were kept, is all noise.  `levels`: signals of the
 * samples instead. */
static void reference_add(const sb_reference *r, const sb_output_form *f,
                          const sb_tensor *want, const sb_tensor *got,
                          int64_t samples, double *errors, double *levels)
{
    int64_t n = sb_tensor_count(want);
    bool apart = want->rank > 1 && want->dims[0] == samples;
    double share = (apart ? 1 : (double)samples) / (double)r->n_samples;
    bool same = got->dtype == want->dtype && sb_tensor_count(got) == n;
    double error = 0, level = 0;

    if (!f->counts)
        return;
    for (int64_t s = 0; s < samples && !same; s++)
        errors[s] += 1;
    for (int64_t s = 0; s < samples && same; s++) {
        if (apart)
            error = sb_output_form_error(f, want, got, s * (n / samples),
                                         n / samples, share, &level);
        else if (s == 0)
            error = sb_output_form_error(f, want, got, 0, n, share, &level);
        if (levels)
            levels[s] = level;
        else
            errors[s] += error / fmax(level, f->least);
    }
}

static int signal_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double sb_least_signal(double *signals, size_t n)
{
    const double share = 0.1;
    double sum = errors_sum(signals, n);

    qsort(signals, n, sizeof *signals, signal_compare);
    if (n > 0 && signals[n / 2] > 0)
        return share * signals[n / 2];
    return sum > 0 ? share * sum / (double)n : 1;
}

static sb_status reference_levels(const sb_reference *r)
{
    const sb_tensor *const *t = NULL;
    double *levels = sb_alloc(r->qm->ctx, r->n_samples + 1, sizeof *levels);
    sb_status status = levels ? SB_OK : SB_NO_MEMORY;

    for (size_t k = 0; k < r->judged.n && status == SB_OK; k++) {
        size_t seen = 0;

        memset(levels, 0, r->n_samples * sizeof *levels);
        for (size_t i = 0; i < r->n_batches && status == SB_OK; i++) {
            int64_t n =
                sb_batch_store_samples(r->qm->state.batches, r->batch[i]);

            status = reference_get(r, i, &t);
            if (status == SB_OK)
                reference_add(r, &r->forms[k], t[k], t[k], n, NULL,
                              levels + seen);
            seen += (size_t)n;
        }
        r->forms[k].least = sb_least_signal(levels, seen);
    }
    sb_free(r->qm->ctx, levels);
    return status;
}

sb_status sb_reference_open(sb_quant_model *qm, sb_reference *r)
{
    size_t n = sb_batch_store_count(qm->state.batches);

    *r = (sb_reference){.qm = qm};
    if (n > 0)
        SB_TRY(sb_judged_values(qm, &r->judged));
    r->forms = sb_alloc(qm->ctx, r->judged.n + 1, sizeof *r->forms);
    r->batch = sb_alloc(qm->ctx, n + 1, sizeof *r->batch);
    if (!r->forms || !r->batch)
        return SB_NO_MEMORY;
    if (reference_is_kept(r)) {
        r->outputs = qm->state.outputs;
        SB_TRY(reference_fill(r, NULL));
    } else {
        SB_TRY(reference_run(r));
    }
    SB_TRY(reference_look(r, false));
    SB_TRY(reference_look(r, true));
    if (reference_counts(r) == 0)
        sb_warn(qm->ctx, "no output of the network is float: what methods "
                         "gain cannot be measured, and only those that a "
                         "configuration asks for are kept");
    return reference_levels(r);
}

void sb_reference_close(sb_reference *r)
{
    if (!r->qm)
        return;
    if (r->outputs != r->qm->state.outputs)
        sb_batch_store_free(r->outputs);
    for (size_t k = 0; r->forms && k < r->judged.n; k++)
        sb_output_form_free(r->qm->ctx, &r->forms[k]);
    sb_free(r->qm->ctx, r->forms);
    sb_free(r->qm->ctx, r->batch);
    sb_free(r->qm->ctx, r->judged.v);
    *r = (sb_reference){0};
}

/* ---- more or less ------------------------------------------------------- */

double sb_errors_mean(const double *errors, size_t n)
{
    return n > 0 ? errors_sum(errors, n) / (double)n : 0;
}

/* By what factor the errors of samples changed.  Of some samples a network is
 * sure whatever is rounded: to each error a tenth of the mean is added, so that
 * those far below it do not count as much as those that make it. */
typedef struct error_change {
    double count;  /* of samples that say something of it */
    double mean;   /* of the logarithms */
    double sure;   /* uncertainty of the mean */
    double broken; /* how many more are not finite now */
    double was;    /* the sum of those that are finite */
    double more;   /* what these have more now */
} error_change;

static double errors_least(const double *errors, size_t n)
{
    const double share = 0.1;
    double sum = 0, count = 0;

    for (size_t i = 0; i < n; i++)
        if (isfinite(errors[i])) {
            sum += errors[i];
            count++;
        }
    return count > 0 ? share * sum / count : 0;
}

/* One sample; an error that is not finite is a hundred times one that is. */
static double errors_factor(double before, double after, double least)
{
    const double broken = log(100);

    if (isfinite(before) && isfinite(after))
        return log((after + least) / (before + least));
    return broken * (!isfinite(after) - !isfinite(before));
}

static error_change errors_change(const double *before, const double *after,
                                  size_t n)
{
    const double least = errors_least(before, n);
    error_change c = {0};
    double sum = 0, squares = 0, was = 0, is = 0;

    for (size_t i = 0; i < n; i++) {
        bool whole = isfinite(before[i]) && isfinite(after[i]);

        c.broken += !isfinite(after[i]) - !isfinite(before[i]);
        was += whole ? before[i] : 0;
        is += whole ? after[i] : 0;
        if (whole && (!(before[i] > 0) || !(after[i] > 0)))
            continue;
        double change = errors_factor(before[i], after[i], least);
        sum += change;
        squares += change * change;
        c.count++;
    }
    c.was = was;
    c.more = is - was;
    if (c.count == 0)
        return c;
    c.mean = sum / c.count;
    if (c.count > 1)
        c.sure =
            sqrt(fmax(squares / c.count - c.mean * c.mean, 0) / (c.count - 1));
    return c;
}

bool sb_errors_fell(const double *before, const double *after, size_t n,
                    double sure)
{
    /* A few samples may be like each other by chance, and their uncertainty
     * next to nothing. */
    const double least = 0.02;
    const error_change c = errors_change(before, after, n);

    if (c.broken > 0 ||
        (c.broken == 0 && !(c.more < (sure > 0 ? -least * c.was : 0))))
        return false;
    if (c.count < 3) /* too few to tell how sure it is */
        return !(sure > 0);
    return c.mean < (sure > 0 ? -fmax(sure * c.sure, least) : 0);
}

bool sb_errors_rose(const double *before, const double *after, size_t n)
{
    const double few = 4, least = 0.01;
    const error_change c = errors_change(before, after, n);

    return c.count >= few && c.mean > fmax(2 * c.sure, least);
}

/* ---- the quantized one -------------------------------------------------- */

static sb_status reference_compare(const sb_reference *r, sb_replay *replay,
                                   const double *before, double left,
                                   double *errors, size_t *seen)
{
    const sb_tensor *const *want = NULL;
    const double outputs = reference_counts(r);
    /* More than all samples may have: it cannot become less. */
    const double allowed = before ? left * errors_sum(before, r->n_samples) : 0;

    for (size_t i = 0; i < r->n_batches; i++) {
        int64_t n = sb_batch_store_samples(r->qm->state.batches, r->batch[i]);
        double *at = errors + *seen;

        SB_TRY(sb_ctx_poll(r->qm->ctx));
        SB_TRY(sb_replay_run(replay, r->batch[i]));
        SB_TRY(reference_get(r, i, &want));
        for (size_t k = 0; k < r->judged.n; k++)
            reference_add(r, &r->forms[k], want[k], replay->outputs[k], n, at,
                          NULL);
        for (int64_t s = 0; s < n && outputs > 0; s++)
            at[s] /= outputs;
        *seen += (size_t)n;
        if (before &&
            (sb_errors_rose(before, errors, *seen) ||
             (isfinite(allowed) && !(errors_sum(errors, *seen) < allowed))))
            break;
    }
    return SB_OK;
}

/* As the target computes it, where its integer kernels are known: they take a
 * third of the time of rounded floats.  A configuration of the user may ask for
 * what no file holds. */
static bool reference_integers(const sb_quant_model *qm)
{
    return !qm->asked && qm->target->qoperator &&
           sb_quant_config_mode(qm->config) == SB_QUANT_STATIC;
}

/* What no file holds is worse than anything. */
static void reference_refuse(const sb_reference *r, double *errors,
                             size_t *seen)
{
    for (size_t i = 0; i < r->n_samples; i++)
        errors[i] = (double)INFINITY;
    *seen = r->n_samples;
}

/* The quantized network up to what is judged. */
static sb_status reference_derive(sb_reference *r, bool integers,
                                  sb_graph **out)
{
    reference_swap(r);
    sb_status status = integers ? sb_export_integers(r->qm, out)
                                : sb_replay_quantized(r->qm, out);
    reference_swap(r);
    return status;
}

sb_status sb_reference_errors(sb_reference *r, const double *before,
                              double left, double *errors, size_t *seen)
{
    sb_graph *g = NULL;
    sb_replay replay = {0};

    *seen = 0;
    memset(errors, 0, r->n_samples * sizeof *errors);
    const bool integers = reference_integers(r->qm);
    sb_status status = reference_derive(r, integers, &g);
    if (integers && status == SB_BAD_ARG) {
        reference_refuse(r, errors, seen);
        return SB_OK;
    }
    if (status == SB_OK)
        status = sb_replay_open(r->qm, g, NULL, &replay);
    if (status == SB_OK)
        status = reference_compare(r, &replay, before, left, errors, seen);
    sb_replay_close(&replay);
    return status;
}
