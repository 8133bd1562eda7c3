/* Evaluation: right answers, and how far outputs are from a reference.
 *
 *   top-k    a label is among the k largest elements of the first output (of
 *            equal ones the first counts as the largest), if that has a number
 *            for each class and nothing else
 *   cosine   <a, b> / (|a| |b|) of a sample's outputs; 1 if both are zero
 *   SQNR     10 log10(sum of b^2 / sum of (a - b)^2) over all samples
 *
 * Sums run in double and in the order of the samples, so results do not depend
 * on threads or batches. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/tensor.h"

typedef struct {
    double cosines; /* sum over samples */
    double signal, noise;
} distance;

struct sb_eval {
    sb_ctx *ctx;
    size_t n_outputs;
    size_t samples, labelled, hits1, hits5;
    size_t compared;
    size_t places, equal; /* where classes were compared */
    distance all;
    distance *outputs;
};

sb_status sb_eval_create(sb_ctx *ctx, size_t n_outputs, sb_eval **out)
{
    sb_eval *e = sb_alloc(ctx, 1, sizeof *e);

    if (!e)
        return SB_NO_MEMORY;
    e->ctx = ctx;
    e->n_outputs = n_outputs;
    e->outputs = sb_alloc(ctx, n_outputs, sizeof *e->outputs);
    if (!e->outputs) {
        sb_free(ctx, e);
        return SB_NO_MEMORY;
    }
    *out = e;
    return SB_OK;
}

void sb_eval_free(sb_eval *e)
{
    if (!e)
        return;
    sb_free(e->ctx, e->outputs);
    sb_free(e->ctx, e);
}

/* ---- elements ------------------------------------------------------------ */

static double element(const sb_tensor *t, int64_t i)
{
    return t->dtype == SB_DTYPE_F32 ? (double)((const float *)t->data)[i]
                                    : sb_tensor_get_f64(t, i);
}

/* NaN is smaller than everything. */
static bool larger(double a, double b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* Classes of an output [samples, ...]: its only axis of more than one, else the
 * second of an image [samples, classes, height, width], else the last.  *step
 * receives the distance between classes. */
static int64_t classes_of(const sb_tensor *t, int64_t *step)
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

/* ---- right answers ------------------------------------------------------- */

/* How many of `n` elements come before element `at` in falling order. */
static int64_t rank_of(const sb_tensor *t, int64_t first, int64_t n, int64_t at)
{
    double score = element(t, first + at);
    int64_t before = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = element(t, first + i);

        if (larger(x, score) || (i < at && !larger(score, x)))
            before++;
    }
    return before;
}

sb_status sb_eval_add(sb_eval *e, const sb_batch *batch,
                      const sb_tensor *const *outputs)
{
    const sb_tensor *t = outputs[0];
    int64_t count = (int64_t)batch->count;

    e->samples += batch->count;
    if (count == 0)
        return SB_OK;
    int64_t step, n = classes_of(t, &step);
    if (t->rank < 2 || t->dims[0] != count || sb_tensor_count(t) != n * count)
        return SB_OK; /* not one number a class */
    for (int64_t i = 0; i < count; i++) {
        int64_t label = batch->labels ? batch->labels[i] : -1;

        if (label < 0)
            continue;
        if (label >= n)
            return sb_fail(e->ctx, SB_BAD_DATA,
                           "'%s' has label %lld, the model has %lld classes",
                           batch->names[i], (long long)label, (long long)n);
        int64_t before = rank_of(t, i * n, n, label);
        e->labelled++;
        e->hits1 += before < 1;
        e->hits5 += before < 5;
    }
    return SB_OK;
}

/* ---- comparing ----------------------------------------------------------- */

typedef struct {
    double ab, aa, bb, noise;
} products;

static void multiply(const sb_tensor *a, const sb_tensor *b, int64_t first,
                     int64_t n, products *p)
{
    for (int64_t i = first; i < first + n; i++) {
        double x = element(a, i), y = element(b, i);

        p->ab += x * y;
        p->aa += x * x;
        p->bb += y * y;
        p->noise += (x - y) * (x - y);
    }
}

static void add_distance(distance *d, const products *p)
{
    double norms = sqrt(p->aa) * sqrt(p->bb);
    bool both_zero = p->aa == 0 && p->bb == 0;

    d->cosines += norms > 0 ? p->ab / norms : both_zero ? 1.0 : 0.0;
    d->signal += p->bb;
    d->noise += p->noise;
}

static int64_t largest(const sb_tensor *t, int64_t first, int64_t n,
                       int64_t step)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (larger(element(t, first + i * step),
                   element(t, first + best * step)))
            best = i;
    return best;
}

static void compare_classes(sb_eval *e, const sb_tensor *a, const sb_tensor *b)
{
    int64_t step, n = classes_of(a, &step);
    int64_t block = n * step;

    if (n < 2 || step < 1)
        return;
    for (int64_t o = 0; o < sb_tensor_count(a) / block; o++)
        for (int64_t i = 0; i < step; i++) {
            int64_t first = o * block + i;

            e->places++;
            e->equal +=
                largest(a, first, n, step) == largest(b, first, n, step);
        }
}

static sb_status check_pair(sb_eval *e, size_t i, int64_t count,
                            const sb_tensor *a, const sb_tensor *b)
{
    char got[128], want[128];
    bool same =
        a->rank == b->rank && a->rank > 0 && a->dims[0] == count &&
        memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;

    if (same && sb_dtype_size(a->dtype) && sb_dtype_size(b->dtype))
        return SB_OK;
    return sb_fail(e->ctx, SB_BAD_DATA,
                   "output %zu is %s, the reference has %s", i,
                   sb_tensor_describe(a, got, sizeof got),
                   sb_tensor_describe(b, want, sizeof want));
}

sb_status sb_eval_compare(sb_eval *e, const sb_tensor *const *outputs,
                          const sb_tensor *const *reference)
{
    int64_t count = outputs[0]->rank > 0 ? outputs[0]->dims[0] : 0;

    for (size_t i = 0; i < e->n_outputs; i++)
        SB_TRY(check_pair(e, i, count, outputs[i], reference[i]));
    for (int64_t s = 0; s < count; s++) {
        products all = {0};

        for (size_t i = 0; i < e->n_outputs; i++) {
            int64_t n = sb_tensor_count(outputs[i]) / count;
            products one = {0};

            multiply(outputs[i], reference[i], s * n, n, &one);
            add_distance(&e->outputs[i], &one);
            all.ab += one.ab;
            all.aa += one.aa;
            all.bb += one.bb;
            all.noise += one.noise;
        }
        add_distance(&e->all, &all);
    }
    e->compared += (size_t)count;
    compare_classes(e, outputs[0], reference[0]);
    return SB_OK;
}

/* ---- results ------------------------------------------------------------- */

static double share(size_t part, size_t all)
{
    return all ? 100.0 * (double)part / (double)all : (double)NAN;
}

static double decibel(const distance *d)
{
    return 10.0 * log10(d->signal / d->noise);
}

static double mean_cosine(const sb_eval *e, const distance *d)
{
    return e->compared ? d->cosines / (double)e->compared : (double)NAN;
}

sb_eval_result sb_eval_get(const sb_eval *e)
{
    return (sb_eval_result){
        .samples = e->samples,
        .labelled = e->labelled,
        .top1 = share(e->hits1, e->labelled),
        .top5 = share(e->hits5, e->labelled),
        .compared = e->compared,
        .agreement = share(e->equal, e->places),
        .cosine = mean_cosine(e, &e->all),
        .sqnr_db = decibel(&e->all),
    };
}

void sb_eval_output(const sb_eval *e, size_t i, double *cosine, double *sqnr_db)
{
    *cosine = mean_cosine(e, &e->outputs[i]);
    *sqnr_db = decibel(&e->outputs[i]);
}
