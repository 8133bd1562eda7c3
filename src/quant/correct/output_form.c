/* One output of a network, compared with that of the float network.
 *
 * It is compared part by part, so that large numbers (corners of boxes) do not
 * hide small ones (scores): noise / signal of each index along the axis of its
 * channels.  In the mean of parts each weighs by its magnitude: parts that are
 * nearly zero in all samples, as classes that none of them shows, would be
 * nothing but noise.
 *
 * Probabilities are compared by their logarithms, weighted by cube roots, so
 * that all classes that may come first count, not the first alone.  (The
 * Kullback-Leibler divergence differs by orders of magnitude from sample to
 * sample, so that a few samples would decide.)
 *
 * Numbers of float16, bfloat16 and double are made float32 sample by sample, in
 * room that is there once all batches have been seen. */
#include "quant/correct/output_form.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "eval/eval.h"

enum { OUTPUT_PARTS = 1024 };

static bool output_row_sums_to_one(const float *x, int64_t n, double slack)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] >= 0))
            return false;
        sum += (double)x[i];
    }
    return n > 1 && fabs(sum - 1) < slack;
}

/* `n` elements from `at` on. */
static const float *output_floats(const sb_tensor *t, int64_t at, int64_t n,
                                  float *room)
{
    const size_t size = sb_dtype_size(t->dtype);

    if (t->dtype == SB_DTYPE_F32)
        return (const float *)t->data + at;
    sb_convert(t->dtype, (const char *)t->data + (size_t)at * size,
               SB_DTYPE_F32, room, (size_t)n);
    return room;
}

static bool output_is_probability(const sb_tensor *t, float *room)
{
    int64_t n = sb_tensor_count(t);
    int64_t row = t->rank > 1 ? t->dims[t->rank - 1] : n;
    const float *x = output_floats(t, 0, n, room);

    for (int64_t i = 0; i < n; i += row)
        if (!output_row_sums_to_one(x + i, row, sb_eval_sum_slack(t)))
            return false;
    return n > 0;
}

/* Smaller probabilities are taken for this one: of two in float16 that are so
 * small the digits do not tell by what factor they differ. */
static double output_least(sb_dtype dtype)
{
    return dtype == SB_DTYPE_F16 ? 0x1p-14 : 1e-10;
}

/* The variance of logarithms over the classes, and that of how wrong they are.
 * What they have in common changes no probability. */
static void output_add_chances(const float *want, const float *got, int64_t n,
                               double least, double *signal, double *noise)
{
    double all = 0, mean = 0, square = 0, off = 0, error = 0;

    for (int64_t i = 0; i < n; i++) {
        double weight = cbrt((double)want[i]);
        double x = log(fmax((double)want[i], least));
        double d = log(fmax((double)got[i], least)) - x;

        all += weight;
        mean += weight * x;
        square += weight * x * x;
        off += weight * d;
        error += isfinite(got[i]) ? weight * d * d : (double)INFINITY;
    }
    *signal += square / all - mean / all * (mean / all);
    *noise += isfinite(error) ? error / all - off / all * (off / all) : error;
}

/* Adds the squares of `n` numbers of one sample to those of their parts. */
static void output_add_numbers(const sb_output_form *f, const sb_tensor *shape,
                               const float *want, const float *got, int64_t n,
                               double *signal, double *noise)
{
    int64_t inner = sb_dims_product(shape->dims, f->axis + 1, shape->rank);
    int64_t part = 0, left = inner; /* elements of this part that follow */

    for (int64_t i = 0; i < n; i++, left--) {
        double d = (double)want[i] - (double)got[i];

        if (left == 0) {
            part = part + 1 < f->parts ? part + 1 : 0;
            left = inner;
        }
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
        output_add_chances(want + i, got + i, row, output_least(shape->dtype),
                           signal, noise);
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

bool sb_output_form_takes(sb_dtype dtype)
{
    return dtype == SB_DTYPE_F32 || dtype == SB_DTYPE_F16 ||
           dtype == SB_DTYPE_BF16 || dtype == SB_DTYPE_F64;
}

/* Room for two outputs of this many elements, if they are not floats. */
static sb_status form_make_room(sb_ctx *ctx, const sb_tensor *t,
                                sb_output_form *f)
{
    size_t n = (size_t)sb_tensor_count(t);

    if (t->dtype == SB_DTYPE_F32)
        return SB_OK;
    return sb_grow(ctx, &f->room, &f->cap_room, 2 * n, sizeof *f->room);
}

sb_status sb_output_form_see(sb_ctx *ctx, const sb_tensor *t, sb_output_form *f)
{
    bool first = !f->sums;

    if (!first && !f->counts)
        return SB_OK;
    f->counts = t && sb_output_form_takes(t->dtype) && sb_tensor_count(t) > 0;
    if (f->counts)
        SB_TRY(form_make_room(ctx, t, f));
    f->probability = f->counts && (first || f->probability) &&
                     output_is_probability(t, f->room);
    if (!first || !f->counts)
        return SB_OK;
    form_set_parts(t, f);
    f->sums = sb_alloc(ctx, 3 * (size_t)f->parts, sizeof *f->sums);
    return f->sums ? SB_OK : SB_NO_MEMORY;
}

void sb_output_form_free(sb_ctx *ctx, sb_output_form *f)
{
    sb_free(ctx, f->sums);
    sb_free(ctx, f->room);
    f->sums = NULL;
    f->room = NULL;
}

void sb_output_form_count(const sb_output_form *f, const sb_tensor *t)
{
    int64_t n = sb_tensor_count(t);

    if (!f->counts)
        return;
    const float *x = output_floats(t, 0, n, f->room);
    output_add(f, t, x, x, n, f->sums, f->sums + f->parts);
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

    float *other = f->room ? f->room + n : NULL;

    memset(noise, 0, 2 * (size_t)f->parts * sizeof *noise);
    output_add(f, want, output_floats(want, at, n, f->room),
               output_floats(got, at, n, other), n, signal, noise);
    /* Classes that are alike are a sample of which the network is not sure, no
     * small output. */
    *level = f->probability ? 1 : form_mean(f, signal, share);
    return form_mean(f, noise, share);
}
