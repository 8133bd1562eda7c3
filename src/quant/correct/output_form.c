/* One output of a network, compared with that of the float network.
 *
 * It is compared part by part, so that large numbers (corners of boxes) do not
 * hide small ones (scores): noise / signal of each index along the axis of its
 * channels.  In their mean a part weighs by its magnitude: classes of which no
 * sample shows anything are all noise.  Of probabilities what counts is by how
 * much the largest leads: the noise of the differences of logarithms between it
 * and the next ones. Divergences of single samples differ by magnitudes, and
 * say less. */
#include "quant/correct/output_form.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

enum { OUTPUT_PARTS = 1024, OUTPUT_RIVALS = 5 };

static bool output_row_sums_to_one(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] >= 0))
            return false;
        sum += (double)x[i];
    }
    return n > 1 && fabs(sum - 1) < 1e-3;
}

static bool output_is_probability(const sb_tensor *t)
{
    int64_t n = sb_tensor_count(t);
    int64_t row = t->rank > 1 ? t->dims[t->rank - 1] : n;

    for (int64_t i = 0; i < n; i += row)
        if (!output_row_sums_to_one((const float *)t->data + i, row))
            return false;
    return n > 0;
}

static double output_log(float p)
{
    return isnan(p) ? (double)INFINITY : log(fmax((double)p, 1e-7));
}

/* Squares of by how much the largest leads, and of how wrong that is. */
static void output_add_lead(const float *want, const float *got, int64_t n,
                            double *signal, double *noise)
{
    int64_t top[OUTPUT_RIVALS + 1];
    int count = 0;

    for (int64_t i = 0; i < n; i++) {
        int at = count;

        while (at > 0 && want[i] > want[top[at - 1]])
            at--;
        if (at > OUTPUT_RIVALS)
            continue;
        count += count <= OUTPUT_RIVALS;
        memmove(top + at + 1, top + at, (size_t)(count - 1 - at) * sizeof *top);
        top[at] = i;
    }
    for (int k = 1; k < count; k++) {
        double lead = output_log(want[top[0]]) - output_log(want[top[k]]);
        double now = output_log(got[top[0]]) - output_log(got[top[k]]);

        *signal += lead * lead;
        *noise +=
            isfinite(now) ? (now - lead) * (now - lead) : (double)INFINITY;
    }
}

/* Adds the squares of `n` numbers of one sample to those of their parts. */
static void output_add_numbers(const sb_output_form *f, const sb_tensor *shape,
                               const float *want, const float *got, int64_t n,
                               double *signal, double *noise)
{
    int64_t inner = sb_dims_product(shape->dims, f->axis + 1, shape->rank);

    for (int64_t i = 0; i < n; i++) {
        double d = (double)want[i] - (double)got[i];
        int64_t part = i / inner % f->parts;

        if (!isfinite(want[i])) /* as masks are */
            continue;
        signal[part] += (double)want[i] * (double)want[i];
        noise[part] += isfinite(d) ? d * d : (double)INFINITY;
    }
}

static void output_add(const sb_output_form *f, const sb_tensor *shape,
                       const float *want, const float *got, int64_t n,
                       double *signal, double *noise)
{
    int64_t row = shape->rank > 1 ? shape->dims[shape->rank - 1] : n;

    if (!f->probability)
        output_add_numbers(f, shape, want, got, n, signal, noise);
    for (int64_t i = 0; i < n && f->probability; i += row)
        output_add_lead(want + i, got + i, row, signal, noise);
}

/* Rank 2 has none: few samples tell little of one number of an output. */
static void form_set_parts(const sb_tensor *t, sb_output_form *f)
{
    f->axis = 0;
    f->parts = 1;
    if (t->rank < 3 || f->probability)
        return;
    int axis = t->dims[1] <= t->dims[t->rank - 1] ? 1 : t->rank - 1;
    if (t->dims[axis] < 1 || t->dims[axis] > OUTPUT_PARTS)
        return;
    f->axis = axis;
    f->parts = t->dims[axis];
}

sb_status sb_output_form_see(sb_ctx *ctx, const sb_tensor *t, sb_output_form *f)
{
    bool first = !f->sums;

    if (!first && !f->counts)
        return SB_OK;
    f->counts = t && t->dtype == SB_DTYPE_F32 && sb_tensor_count(t) > 0;
    f->probability =
        f->counts && (first || f->probability) && output_is_probability(t);
    if (!first || !f->counts)
        return SB_OK;
    form_set_parts(t, f);
    f->sums = sb_alloc(ctx, 3 * (size_t)f->parts, sizeof *f->sums);
    return f->sums ? SB_OK : SB_NO_MEMORY;
}

void sb_output_form_count(const sb_output_form *f, const sb_tensor *t)
{
    if (f->counts)
        output_add(f, t, t->data, t->data, sb_tensor_count(t), f->sums,
                   f->sums + f->parts);
}

/* Squares of one sample relative to what its share of all samples has, the mean
 * over parts. */
static double form_mean(const sb_output_form *f, const double *squares,
                        double share)
{
    double sum = 0, parts = 0;

    for (int64_t p = 0; p < f->parts; p++)
        if (f->sums[p] > 0) {
            double weight = sqrt(f->sums[p]);

            sum += weight * squares[p] / (f->sums[p] * share);
            parts += weight;
        }
    return parts > 0 ? sum / parts : 0;
}

double sb_output_form_error(const sb_output_form *f, const sb_tensor *want,
                            const sb_tensor *got, int64_t at, int64_t n,
                            double share, double *level)
{
    double *noise = f->sums + f->parts, *signal = noise + f->parts;

    memset(noise, 0, 2 * (size_t)f->parts * sizeof *noise);
    output_add(f, want, (const float *)want->data + at,
               (const float *)got->data + at, n, signal, noise);
    /* A small lead is a sample of which the network is not sure, no small
     * output. */
    *level = f->probability ? 1 : form_mean(f, signal, share);
    return form_mean(f, noise, share);
}
