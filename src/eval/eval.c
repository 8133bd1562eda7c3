/* Evaluation: right answers, and how far outputs are from a reference.
 *
 *   top-k    a label is among the k largest elements of the first output (of
 *            equal ones the first counts as the largest), if that has a number
 *            for each class and nothing else
 *   cosine   <a, b> / (|a| |b|) of a sample's outputs; 1 if both are zero
 *   SQNR     10 log10(sum of b^2 / sum of (a - b)^2) over all samples
 *
 * and what fits the task: equal classes, boxes, vectors, maps, texts.  Sums run
 * in double and in the order of the samples, so results do not depend on
 * threads or batches. */
#include "eval/eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"

sb_status sb_eval_create(sb_ctx *ctx, size_t n_outputs,
                         const sb_eval_options *options, sb_eval **out)
{
    const sb_eval_options defaults = SB_EVAL_OPTIONS_INIT;
    sb_eval_options opt;

    if (n_outputs == 0)
        return sb_fail(ctx, SB_BAD_ARG,
                       "evaluation: 0 outputs, want 1 or more");
    SB_TRY(sb_options_read(ctx, "sb_eval_options", options, &defaults,
                           sizeof opt, &opt));
    SB_TRY(sb_options_range(ctx, "threshold", opt.threshold, -1, 1e30));
    SB_TRY(sb_options_range(ctx, "iou", opt.iou, 0, 1));
    sb_eval *e = sb_alloc(ctx, 1, sizeof *e);
    if (!e)
        return SB_NO_MEMORY;
    e->ctx = ctx;
    e->n_outputs = n_outputs;
    e->threshold = opt.threshold;
    e->iou = opt.iou;
    sb_arena_init(&e->parts, ctx);
    e->outputs = sb_alloc(ctx, n_outputs, sizeof *e->outputs);
    e->rows = sb_alloc(ctx, n_outputs, sizeof *e->rows);
    sb_status status =
        e->outputs && e->rows ? sb_eval_read_task(e, opt.task) : SB_NO_MEMORY;
    if (status == SB_OK)
        *out = e;
    else
        sb_eval_free(e);
    return status;
}

void sb_eval_free(sb_eval *e)
{
    if (!e)
        return;
    for (size_t i = 0; e->rows && i < e->n_outputs; i++)
        sb_free(e->ctx, e->rows[i].v);
    sb_arena_free(&e->parts);
    sb_free(e->ctx, e->rows);
    sb_free(e->ctx, e->outputs);
    sb_free(e->ctx, e->cosines);
    sb_free(e->ctx, e->targets.right);
    sb_free(e->ctx, e);
}

/* ---- elements ------------------------------------------------------------ */

int64_t sb_eval_classes(const sb_tensor *t, int64_t *step)
{
    int axis = -1, n = 0;

    *step = 1;
    for (int i = 1; i < t->rank; i++)
        if (t->dims[i] != 1) {
            axis = i;
            n++;
        }
    if (n > 1)
        axis = t->rank >= 4 && t->dims[1] > 1 ? 1 : t->rank - 1;
    if (axis < 0)
        return 0;
    *step = sb_dims_product(t->dims, axis + 1, t->rank);
    return t->dims[axis];
}

int64_t sb_eval_largest(const sb_tensor *t, int64_t first, int64_t n,
                        int64_t step)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (sb_eval_larger(sb_eval_element(t, first + i * step),
                           sb_eval_element(t, first + best * step)))
            best = i;
    return best;
}

double sb_eval_cosine(const sb_products *p)
{
    double norms = sqrt(p->aa) * sqrt(p->bb);

    return norms > 0 ? p->ab / norms : p->aa == 0 && p->bb == 0 ? 1.0 : 0.0;
}

/* ---- right answers ------------------------------------------------------- */

/* How many of `n` elements come before element `at` in falling order. */
static int64_t rank_of(const sb_tensor *t, int64_t first, int64_t n, int64_t at)
{
    double score = sb_eval_element(t, first + at);
    int64_t before = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = sb_eval_element(t, first + i);

        if (sb_eval_larger(x, score) || (i < at && !sb_eval_larger(score, x)))
            before++;
    }
    return before;
}

static sb_status eval_bad_label(const sb_eval *e, const sb_batch *batch,
                                int64_t i, int64_t n)
{
    char number[32];

    (void)snprintf(number, sizeof number, "%zu", batch->first + (size_t)i);
    return sb_fail(e->ctx, SB_BAD_DATA,
                   "'%s' has label %lld, the model has %lld classes",
                   batch->names ? batch->names[i] : number,
                   (long long)batch->labels[i], (long long)n);
}

sb_status sb_eval_add(sb_eval *e, const sb_batch *given,
                      const sb_tensor *const *outputs)
{
    const sb_batch empty = SB_BATCH_INIT;
    const sb_tensor *t = outputs[0];
    sb_batch read, *batch = &read;

    SB_TRY(
        sb_options_read(e->ctx, "sb_batch", given, &empty, sizeof read, &read));
    int64_t count = (int64_t)batch->count;
    e->samples += batch->count;
    if (count == 0)
        return SB_OK;
    if (batch->text_from > 0)
        return sb_eval_language(e, batch, t);
    if (batch->targets)
        return sb_eval_add_targets(e, batch, t);
    int64_t step, n = sb_eval_classes(t, &step);
    if (t->rank < 2 || t->dims[0] != count || sb_tensor_count(t) != n * count)
        return SB_OK; /* not one number a class */
    for (int64_t i = 0; i < count; i++) {
        int64_t label = batch->labels ? batch->labels[i] : -1;

        if (label < 0)
            continue;
        if (label >= n)
            return eval_bad_label(e, batch, i, n);
        int64_t before = rank_of(t, i * n, n, label);
        e->labeled++;
        e->hits1 += before < 1;
        e->hits5 += before < 5;
    }
    return SB_OK;
}

/* ---- comparing ----------------------------------------------------------- */

static void add_distance(sb_distance *d, const sb_products *p)
{
    d->cosines += sb_eval_cosine(p);
    d->n++;
    d->signal += p->bb;
    d->noise += p->noise;
}

static void compare_classes(sb_eval *e, const sb_tensor *a, const sb_tensor *b)
{
    int64_t step, n = sb_eval_classes(a, &step);
    int64_t block = n * step;

    if (n < 2 || step < 1)
        return;
    for (int64_t o = 0; o < sb_tensor_count(a) / block; o++)
        for (int64_t i = 0; i < step; i++) {
            int64_t first = o * block + i;

            e->places++;
            e->equal += sb_eval_largest(a, first, n, step) ==
                        sb_eval_largest(b, first, n, step);
        }
}

/* Do the outputs differ in nothing but their length, as boxes of one sample do
 * of which others were kept? */
static bool differs_in_length(const sb_eval *e, int64_t count,
                              const sb_tensor *a, const sb_tensor *b)
{
    bool listed = e->task == SB_TASK_NONE || e->task == SB_TASK_DETECT ||
                  e->task == SB_TASK_TEXT;
    int differ = 0;

    if (!listed || count != 1 || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            differ += sb_dims_product(a->dims, 0, i) == 1 ? 1 : 2;
    return differ == 1;
}

/* *uneven: one is longer. */
static sb_status check_pair(sb_eval *e, size_t i, int64_t count,
                            const sb_tensor *a, const sb_tensor *b,
                            bool *uneven)
{
    char got[128], want[128];
    bool same =
        a->rank == b->rank &&
        memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
    bool numbers = sb_dtype_size(a->dtype) && sb_dtype_size(b->dtype);

    *uneven = !same;
    if (numbers && (same || differs_in_length(e, count, a, b)))
        return SB_OK;
    return sb_fail(e->ctx, SB_BAD_DATA,
                   "output %zu is %s, the reference has %s%s", i,
                   sb_tensor_describe(a, got, sizeof got),
                   sb_tensor_describe(b, want, sizeof want),
                   same ? ": only numbers can be compared" : "");
}

/* Does the first axis count the samples?  An output of which it does not (the
 * state of a recurrent network) is compared as a whole. */
static bool counts_samples(const sb_tensor *t, int64_t count)
{
    return t->rank > 0 && t->dims[0] == count;
}

/* The sum of squares from element `first` on. */
static double rest_of(const sb_tensor *t, int64_t first)
{
    double sum = 0;

    for (int64_t i = first; i < sb_tensor_count(t); i++)
        sum += sb_eval_element(t, i) * sb_eval_element(t, i);
    return sum;
}

/* Outputs of one sample, of which one goes on where the other has ended. */
static sb_status compare_uneven(sb_eval *e, size_t i, const sb_tensor *a,
                                const sb_tensor *b, sb_products *out)
{
    int64_t n = sb_tensor_count(a), m = sb_tensor_count(b);
    int64_t both = n < m ? n : m;

    e->rows[i].off = true;
    SB_TRY(sb_eval_add_rows(e, i, a, b, 0, both, out));
    double more = rest_of(a, both), less = rest_of(b, both);
    out->aa += more;
    out->bb += less;
    out->noise += more + less;
    return SB_OK;
}

static sb_status compare_output(sb_eval *e, size_t i, int64_t s, int64_t count,
                                const sb_tensor *a, const sb_tensor *b,
                                sb_products *all)
{
    bool counts = counts_samples(a, count);
    int64_t n = sb_tensor_count(a) / (counts ? count : 1);
    sb_products one = {0};

    if (!counts && s > 0)
        return SB_OK;
    if (sb_tensor_count(a) != sb_tensor_count(b))
        SB_TRY(compare_uneven(e, i, a, b, &one));
    else
        SB_TRY(sb_eval_add_rows(e, i, a, b, counts ? s * n : 0, n, &one));
    add_distance(&e->outputs[i], &one);
    all->ab += one.ab;
    all->aa += one.aa;
    all->bb += one.bb;
    all->noise += one.noise;
    return SB_OK;
}

static sb_status compare_sample(sb_eval *e, int64_t s, int64_t count,
                                const sb_tensor *const *outputs,
                                const sb_tensor *const *reference)
{
    sb_products all = {0};

    for (size_t i = 0; i < e->n_outputs; i++)
        SB_TRY(compare_output(e, i, s, count, outputs[i], reference[i], &all));
    add_distance(&e->all, &all);
    return SB_OK;
}

static sb_status compare_task(sb_eval *e, const sb_batch *batch,
                              const sb_tensor *const *outputs,
                              const sb_tensor *const *reference)
{
    const sb_tensor *a = outputs[0], *b = reference[0];
    int64_t count = (int64_t)batch->count;

    switch (e->task) {
    case SB_TASK_CLASSIFY:
        compare_classes(e, a, b);
        return SB_OK;
    case SB_TASK_SEGMENT:
        if (a->rank == 4 && a->dims[1] == 1)
            sb_eval_maps(e, a, b);
        else
            compare_classes(e, a, b);
        return SB_OK;
    case SB_TASK_DETECT:
        return sb_eval_boxes(e, count, outputs, reference);
    case SB_TASK_EMBED:
        return sb_eval_vectors(e, count, a, b);
    case SB_TASK_TEXT:
        return sb_eval_texts(e, count, a, b);
    case SB_TASK_LANGUAGE:
        return sb_eval_language_compare(e, batch, a, b);
    default:
        return SB_OK;
    }
}

sb_status sb_eval_compare(sb_eval *e, const sb_batch *given,
                          const sb_tensor *const *outputs,
                          const sb_tensor *const *reference)
{
    const sb_batch empty = SB_BATCH_INIT;
    sb_batch batch;

    SB_TRY(sb_options_read(e->ctx, "sb_batch", given, &empty, sizeof batch,
                           &batch));
    int64_t count = (int64_t)batch.count;
    bool uneven = false, any = false;
    if (count > 0)
        SB_TRY(sb_eval_guess(e, &batch, reference));
    for (size_t i = 0; i < e->n_outputs; i++) {
        SB_TRY(check_pair(e, i, count, outputs[i], reference[i], &uneven));
        any |= uneven;
    }
    if (count == 0)
        return SB_OK;
    e->uneven += any;
    for (int64_t s = 0; s < count; s++)
        SB_TRY(compare_sample(e, s, count, outputs, reference));
    e->compared += batch.count;
    return compare_task(e, &batch, outputs, reference);
}

/* ---- results ------------------------------------------------------------- */

static double eval_share(size_t part, size_t all)
{
    return all ? (double)part / (double)all : (double)NAN;
}

static double eval_decibel(const sb_distance *d)
{
    return d->n > 0 ? sb_eval_decibel(d->signal, d->noise) : (double)NAN;
}

static double mean_cosine(const sb_distance *d)
{
    return d->n ? d->cosines / (double)d->n : (double)NAN;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Mean, and the greatest cosine that no more than a hundredth lie below of. */
static void summarize_vectors(sb_eval *e, sb_eval_result *r)
{
    double sum = 0;

    r->vectors = e->n_cosines;
    r->vector_cosine = r->vector_cosine_p1 = (double)NAN;
    if (e->n_cosines == 0)
        return;
    qsort(e->cosines, e->n_cosines, sizeof *e->cosines, by_size);
    for (size_t i = 0; i < e->n_cosines; i++)
        sum += e->cosines[i];
    r->vector_cosine = sum / (double)e->n_cosines;
    r->vector_cosine_p1 = e->cosines[e->n_cosines / 100];
}

const sb_eval_result *sb_eval_get(sb_eval *e)
{
    double recall = eval_share(e->matched_boxes, e->reference_boxes);
    double precision = eval_share(e->matched_boxes, e->boxes);

    e->result = (sb_eval_result){
        .samples = e->samples,
        .labeled = e->labeled,
        .top1 = 100.0 * eval_share(e->hits1, e->labeled),
        .top5 = 100.0 * eval_share(e->hits5, e->labeled),
        .compared = e->compared,
        .cosine = mean_cosine(&e->all),
        .sqnr_db = eval_decibel(&e->all),
        .task = sb_eval_task_text(e),
        .task_guessed = e->guessed,
        .agreement = 100.0 * eval_share(e->equal, e->places),
        .map_iou = eval_share(e->map_both, e->map_any),
        .boxes = e->boxes,
        .reference_boxes = e->reference_boxes,
        .matched_boxes = e->matched_boxes,
        .recall = recall,
        .precision = precision,
        .f1 = eval_share(2 * e->matched_boxes, e->boxes + e->reference_boxes),
        .texts = e->texts,
        .texts_equal = 100.0 * eval_share(e->texts_equal, e->texts),
        .tokens = e->tokens,
        .perplexity =
            e->tokens ? exp(e->log_loss / (double)e->tokens) : (double)NAN,
        .divergence = e->task == SB_TASK_LANGUAGE && e->places
                          ? e->divergence / (double)e->places
                          : (double)NAN,
    };
    e->result.uneven = e->uneven;
    summarize_vectors(e, &e->result);
    sb_eval_targets_result(e, &e->result);
    return &e->result;
}

int sb_eval_output(const sb_eval *e, size_t i, double *cosine, double *sqnr_db)
{
    if (i >= e->n_outputs)
        return 0;
    *cosine = mean_cosine(&e->outputs[i]);
    *sqnr_db = eval_decibel(&e->outputs[i]);
    return 1;
}
