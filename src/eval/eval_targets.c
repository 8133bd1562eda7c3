/* Outputs against what samples have instead of a class each.
 *
 *   classes of pixels   share that is right; mean over the classes that occur,
 *                       in either, of intersection / union over all samples
 *   numbers             mean magnitude and mean square of the difference; F1 of
 *                       labels if all are 0 or 1
 *
 * Places whose class is below 0 do not count, nor do numbers that are ignored.
 */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

static bool fits_without(const sb_tensor *output, const sb_tensor *target,
                         int axis)
{
    bool fits = target->rank == output->rank - 1;

    for (int i = 0; fits && i < target->rank; i++)
        fits = target->dims[i] == output->dims[i < axis ? i : i + 1];
    return fits;
}

int sb_eval_class_axis(const sb_tensor *output, const sb_tensor *target)
{
    int last = output->rank - 1;

    if (target->dtype != SB_DTYPE_I64 || output->rank < 2)
        return -1;
    if (output->dims[1] > 1 && fits_without(output, target, 1))
        return 1;
    return output->dims[last] > 1 && fits_without(output, target, last) ? last
                                                                        : -1;
}

/* ---- classes of pixels -------------------------------------------------- */

/* Places of an output: `outer` times `step` of them, `classes` apart. */
typedef struct target_places {
    int64_t outer, classes, step;
} target_places;

static target_places places_of(const sb_tensor *t, int axis)
{
    return (target_places){sb_dims_product(t->dims, 0, axis), t->dims[axis],
                           sb_dims_product(t->dims, axis + 1, t->rank)};
}

/* The class that the output has at place `i`. */
static int64_t class_at(const sb_tensor *t, const target_places *p, int64_t i)
{
    int64_t first = i / p->step * p->classes * p->step + i % p->step;

    return sb_eval_largest(t, first, p->classes, p->step);
}

void sb_eval_count_places(const sb_tensor *output, const sb_tensor *target,
                          size_t *right, size_t *seen)
{
    const int64_t *label = target->data;
    int axis = sb_eval_class_axis(output, target);

    if (axis < 0)
        return;
    target_places p = places_of(output, axis);
    for (int64_t i = 0; i < p.outer * p.step; i++)
        if (label[i] >= 0) {
            *right += class_at(output, &p, i) == label[i];
            ++*seen;
        }
}

static sb_status targets_room(sb_eval *e, int64_t classes)
{
    sb_eval_targets *t = &e->targets;

    if (t->classes == classes)
        return SB_OK;
    if (t->classes)
        return sb_fail(e->ctx, SB_BAD_DATA,
                       "the output has %lld classes, that of the first batch "
                       "had %lld",
                       (long long)classes, (long long)t->classes);
    t->right = sb_alloc(e->ctx, 3 * (size_t)classes, sizeof *t->right);
    if (!t->right)
        return SB_NO_MEMORY;
    t->seen = t->right + classes;
    t->there = t->seen + classes;
    t->classes = classes;
    return SB_OK;
}

static sb_status add_classes(sb_eval *e, const sb_batch *b,
                             const sb_tensor *output, int axis)
{
    const int64_t *label = b->targets->data;
    target_places p = places_of(output, axis);
    int64_t all = p.outer * p.step,
            each = b->count ? all / (int64_t)b->count : 0;
    sb_eval_targets *t = &e->targets;

    SB_TRY(targets_room(e, p.classes));
    for (int64_t i = 0; i < all; i++) {
        if (label[i] < 0)
            continue;
        if (label[i] >= p.classes)
            return sb_fail(e->ctx, SB_BAD_DATA,
                           "'%s' has label %lld, the model has %lld classes "
                           "(IGNORE_LABEL: what does not count)",
                           b->names ? b->names[i / each] : "a sample",
                           (long long)label[i], (long long)p.classes);
        int64_t found = class_at(output, &p, i);
        t->right[label[i]] += found == label[i];
        t->seen[found]++;
        t->there[label[i]]++;
    }
    return SB_OK;
}

/* ---- numbers ------------------------------------------------------------ */

/* The same but for dimensions of 1. */
static bool targets_alike(const sb_tensor *a, const sb_tensor *b)
{
    int i = 0, k = 0;

    for (;; i++, k++) {
        while (i < a->rank && a->dims[i] == 1)
            i++;
        while (k < b->rank && b->dims[k] == 1)
            k++;
        if (i == a->rank || k == b->rank)
            return i == a->rank && k == b->rank;
        if (a->dims[i] != b->dims[k])
            return false;
    }
}

static bool is_ignored(const sb_tensor *target, int64_t i)
{
    return target->dtype == SB_DTYPE_I64 &&
           ((const int64_t *)target->data)[i] == SB_LABEL_IGNORED;
}

static void add_numbers(sb_eval *e, const sb_tensor *target,
                        const sb_tensor *output)
{
    sb_eval_targets *t = &e->targets;

    for (int64_t i = 0; i < sb_tensor_count(output); i++) {
        if (is_ignored(target, i))
            continue;
        double x = sb_eval_element(output, i), y = sb_eval_element(target, i);
        const double above[] = {e->threshold >= 0 ? e->threshold : 0.5, 0};

        t->n++;
        t->absolute += fabs(x - y);
        t->squared += (x - y) * (x - y);
        t->no_labels |= y != 0 && y != 1;
        t->logits |= !(x >= 0 && x <= 1);
        t->positive += y == 1;
        for (int k = 0; k < 2; k++) {
            t->at[k].found += x > above[k];
            t->at[k].both += x > above[k] && y == 1;
        }
    }
}

sb_status sb_eval_add_targets(sb_eval *e, const sb_batch *b,
                              const sb_tensor *output)
{
    int axis = sb_eval_class_axis(output, b->targets);
    char has[128], want[128];

    if (axis >= 0)
        return add_classes(e, b, output, axis);
    if (!targets_alike(b->targets, output))
        return sb_fail(e->ctx, SB_BAD_DATA,
                       "the first output is %s, which does not fit labels of "
                       "%s",
                       sb_tensor_describe(output, has, sizeof has),
                       sb_tensor_describe(b->targets, want, sizeof want));
    add_numbers(e, b->targets, output);
    return SB_OK;
}

/* ---- results ------------------------------------------------------------ */

static void classes_result(const sb_eval_targets *t, sb_eval_result *r)
{
    double right = 0, all = 0, sum = 0;
    int64_t n = 0;

    for (int64_t c = 0; c < t->classes; c++) {
        double either = t->seen[c] + t->there[c] - t->right[c];

        right += t->right[c];
        all += t->there[c];
        n += either > 0;
        sum += either > 0 ? t->right[c] / either : 0;
    }
    r->pixels = (size_t)all;
    r->pixel_accuracy = all > 0 ? 100 * right / all : (double)NAN;
    r->mean_iou = n ? 100 * sum / (double)n : (double)NAN;
}

void sb_eval_targets_result(const sb_eval *e, sb_eval_result *r)
{
    const sb_eval_targets *t = &e->targets;
    double found = t->at[t->logits].found + t->positive;

    classes_result(t, r);
    r->numbers = (size_t)t->n;
    r->mean_absolute_error = t->n > 0 ? t->absolute / t->n : (double)NAN;
    r->mean_squared_error = t->n > 0 ? t->squared / t->n : (double)NAN;
    r->label_f1 = t->n > 0 && !t->no_labels && found > 0
                      ? 200 * t->at[t->logits].both / found
                      : (double)NAN;
}
