/* Boxes of two detectors: decoded, reduced by non-maximum suppression, matched.
 *
 * A box counts from a score of 0.25 (--threshold).  Of boxes of one class that
 * overlap by more than 0.45 the one with the highest score stays, at most 300
 * in a sample, as YOLO's own tools have it.  Boxes of the model, best first,
 * take the box of the reference with the same class that they overlap most, if
 * by more than 0.5; each is taken once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"

enum { MOST_BOXES = 300, MOST_CANDIDATES = 30000 };

static const double overlap_of_one = 0.45;

typedef struct box {
    double x1, y1, x2, y2, score;
    int64_t class, at; /* at: its place, to order equal scores */
    bool taken;
} box;

typedef struct box_list {
    box *v;
    size_t n, cap;
} box_list;

/* ---- reading ------------------------------------------------------------- */

static sb_status add_box(sb_eval *e, box_list *list, const double *center,
                         bool corners, double score, int64_t class, int64_t at)
{
    double w = corners ? 0 : center[2] / 2, h = corners ? 0 : center[3] / 2;
    const box b = {.x1 = center[0] - w,
                   .y1 = center[1] - h,
                   .x2 = corners ? center[2] : center[0] + w,
                   .y2 = corners ? center[3] : center[1] + h,
                   .score = score,
                   .class = class,
                   .at = at};

    if (list->n >= MOST_CANDIDATES)
        return SB_OK;
    SB_TRY(sb_grow(e->ctx, &list->v, &list->cap, list->n + 1, sizeof *list->v));
    list->v[list->n++] = b;
    return SB_OK;
}

/* One place of [A, 5 + C] or [4 + C, A]: elements `step` apart. */
typedef struct place {
    const sb_tensor *t;
    int64_t first, step, n_classes;
    int head; /* elements before the classes: 4, or 5 with objectness */
} place;

static double place_get(const place *p, int64_t i)
{
    return sb_eval_element(p->t, p->first + i * p->step);
}

static double best_class(const place *p, int64_t *class)
{
    *class = sb_eval_largest(p->t, p->first + p->head * p->step, p->n_classes,
                             p->step);
    return place_get(p, p->head + *class) *
           (p->head == 5 ? place_get(p, 4) : 1.0);
}

/* YOLOX: an offset in its cell and the logarithm of the size, in cells. */
static void from_grid(const sb_box_reading *r, int64_t at, double *center)
{
    for (int64_t s = 8; s <= 64; s *= 2) {
        int64_t rows = r->height / s, columns = r->width / s;

        if (at >= rows * columns) {
            at -= rows * columns;
            continue;
        }
        center[0] = (center[0] + (double)(at % columns)) * (double)s;
        center[1] = (center[1] + (double)(at / columns)) * (double)s;
        center[2] = exp(center[2]) * (double)s;
        center[3] = exp(center[3]) * (double)s;
        return;
    }
}

static sb_status read_yolo(sb_eval *e, const sb_tensor *t, int64_t sample,
                           double bar, box_list *out)
{
    bool rows_first = e->layout == SB_BOXES_YOLOV8;
    int64_t places = t->dims[rows_first ? 2 : 1];
    int64_t width = t->dims[rows_first ? 1 : 2];
    place p = {
        .t = t, .step = rows_first ? places : 1, .head = rows_first ? 4 : 5};

    p.n_classes = width - p.head;
    for (int64_t a = 0; a < places; a++) {
        int64_t class = 0;

        p.first = sample * places * width + (rows_first ? a : a * width);
        double score = best_class(&p, &class);
        if (!(score > bar))
            continue;
        double center[4] = {place_get(&p, 0), place_get(&p, 1),
                            place_get(&p, 2), place_get(&p, 3)};
        if (e->reading.on_grid)
            from_grid(&e->reading, a, center);
        SB_TRY(add_box(e, out, center, false, score, class, a));
    }
    return SB_OK;
}

static sb_status read_final(sb_eval *e, const sb_tensor *t, int64_t sample,
                            double bar, box_list *out)
{
    const int64_t places = t->dims[t->rank - 2];

    for (int64_t a = 0; a < places; a++) {
        double v[6];

        for (int k = 0; k < 6; k++)
            v[k] = sb_eval_element(t, (sample * places + a) * 6 + k);
        if (v[4] > bar)
            SB_TRY(add_box(e, out, v, true, v[4],
                           v[5] > 0 && v[5] < 1e9 ? (int64_t)v[5] : 0, a));
    }
    return SB_OK;
}

static sb_status read_lists(sb_eval *e, const sb_tensor *const *outputs,
                            int64_t sample, double bar, box_list *out)
{
    const sb_box_reading *r = &e->reading;
    const sb_tensor *b = outputs[r->boxes], *s = outputs[r->scores];
    int64_t places = b->dims[b->rank - 2];

    for (int64_t a = sample * places; a < (sample + 1) * places; a++) {
        double score = sb_eval_element(s, a), v[4], class = 0;

        if (!(score > bar))
            continue;
        for (int k = 0; k < 4; k++)
            v[k] = sb_eval_element(b, 4 * a + k);
        if (r->classes != SB_NO_INDEX)
            class = sb_eval_element(outputs[r->classes], a);
        SB_TRY(add_box(e, out, v, true, score,
                       class > 0 && class < 1e9 ? (int64_t) class : 0, a));
    }
    return SB_OK;
}

static sb_status read_pair(sb_eval *e, const sb_tensor *b, const sb_tensor *s,
                           int64_t sample, double bar, box_list *out)
{
    const sb_box_reading *r = &e->reading;
    int64_t places = s->dims[1], n = s->dims[2], from = r->background ? 1 : 0;

    for (int64_t a = 0; a < places; a++) {
        int64_t first = (sample * places + a) * n + from;
        int64_t class = from + sb_eval_largest(s, first, n - from, 1);
        double score = sb_eval_element(s, first - from + class), v[4];

        score = r->logits ? 1 / (1 + exp(-score)) : score;
        if (!(score > bar))
            continue;
        for (int k = 0; k < 4; k++)
            v[k] = sb_eval_element(b, (sample * places + a) * 4 + k);
        SB_TRY(add_box(e, out, v, r->corners, score, class, a));
    }
    return SB_OK;
}

/* ---- one sample ---------------------------------------------------------- */

static double boxes_overlap(const box *a, const box *b)
{
    double w = fmin(a->x2, b->x2) - fmax(a->x1, b->x1);
    double h = fmin(a->y2, b->y2) - fmax(a->y1, b->y1);
    double both = w > 0 && h > 0 ? w * h : 0;
    double any = (a->x2 - a->x1) * (a->y2 - a->y1) +
                 (b->x2 - b->x1) * (b->y2 - b->y1) - both;

    return any > 0 ? both / any : 0;
}

static int by_score(const void *a, const void *b)
{
    const box *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void boxes_suppress(box_list *list)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->n && kept < MOST_BOXES; i++) {
        bool good = true;

        for (size_t k = 0; k < kept && good; k++)
            good = list->v[k].class != list->v[i].class ||
                   !(boxes_overlap(&list->v[k], &list->v[i]) > overlap_of_one);
        if (good)
            list->v[kept++] = list->v[i];
    }
    list->n = kept;
}

static sb_status find_boxes(sb_eval *e, const sb_tensor *const *outputs,
                            int64_t sample, box_list *out)
{
    double bar = e->threshold >= 0 ? e->threshold : 0.25;
    const sb_box_reading *r = &e->reading;

    out->n = 0;
    if (e->layout == SB_BOXES_PAIR)
        SB_TRY(read_pair(e, outputs[r->boxes], outputs[r->scores], sample, bar,
                         out));
    else if (e->layout == SB_BOXES_LISTS)
        SB_TRY(read_lists(e, outputs, sample, bar, out));
    else if (e->layout == SB_BOXES_NMS)
        SB_TRY(read_final(e, outputs[0], sample, bar, out));
    else
        SB_TRY(read_yolo(e, outputs[0], sample, bar, out));
    if (out->n)
        qsort(out->v, out->n, sizeof *out->v, by_score);
    if (e->layout != SB_BOXES_NMS && e->layout != SB_BOXES_LISTS)
        boxes_suppress(out);
    return SB_OK;
}

static void match_boxes(sb_eval *e, const box_list *boxes, box_list *reference)
{
    for (size_t i = 0; i < boxes->n; i++) {
        double best = e->iou;
        box *match = NULL;

        for (size_t k = 0; k < reference->n; k++) {
            box *b = &reference->v[k];
            double both =
                b->taken || b->class != boxes->v[i].class ? 0
                                                          : boxes_overlap(
                                                                &boxes->v[i],
                                                                b);

            if (both > best) {
                best = both;
                match = b;
            }
        }
        if (match) {
            match->taken = true;
            e->matched_boxes++;
        }
    }
    e->boxes += boxes->n;
    e->reference_boxes += reference->n;
}

/* ---- batches ------------------------------------------------------------- */

static sb_status check_layout(sb_eval *e, int64_t count,
                              const sb_tensor *const *outputs)
{
    const sb_box_reading *r = &e->reading;
    const sb_tensor *t = outputs[0];
    char found[128];
    bool good = t->rank == 3 && t->dims[0] == count;

    switch (e->layout) {
    case SB_BOXES_YOLOV8:
        good = good && t->dims[1] > 4;
        break;
    case SB_BOXES_YOLOV5:
    case SB_BOXES_YOLOX:
        good = good && t->dims[2] > 5;
        break;
    case SB_BOXES_NMS:
        good = (good && t->dims[2] == 6) ||
               (count == 1 && t->rank == 2 && t->dims[1] == 6);
        break;
    case SB_BOXES_LISTS:
        good = sb_eval_are_lists(e, count, outputs);
        break;
    case SB_BOXES_PAIR:
        good = r->boxes != r->scores && outputs[r->boxes]->rank == 3 &&
               outputs[r->scores]->rank == 3 &&
               outputs[r->boxes]->dims[0] == count &&
               outputs[r->scores]->dims[0] == count &&
               outputs[r->boxes]->dims[2] == 4 &&
               outputs[r->boxes]->dims[1] == outputs[r->scores]->dims[1] &&
               outputs[r->scores]->dims[2] > (r->background ? 1 : 0);
        break;
    default:
        good = false;
    }
    if (good)
        return SB_OK;
    return sb_fail(e->ctx, SB_BAD_DATA,
                   "--task detect: output 0 is %s, want [N, A, 5 + C] "
                   "(:yolov5, :yolox), [N, 4 + C, A] (:yolov8), [N, A, 6] "
                   "(:nms), [N, A, 4] and [N, A, C] in two outputs (:pair), or "
                   "[A, 4], [A] and [A], N of them or 1 (:lists)",
                   sb_tensor_describe(t, found, sizeof found));
}

static double largest_size(const sb_tensor *t)
{
    double largest = 0;

    for (int64_t a = 0; a < t->dims[0] * t->dims[1]; a++)
        for (int k = 2; k < 4; k++)
            largest = fmax(largest, sb_eval_element(t, a * t->dims[2] + k));
    return largest;
}

/* Most boxes of a pair have their second point behind the first: corners. */
static bool has_corners(const sb_tensor *t)
{
    int64_t n = t->dims[0] * t->dims[1], behind = 0;

    for (int64_t a = 0; a < n; a++)
        behind +=
            sb_eval_element(t, 4 * a + 2) >= sb_eval_element(t, 4 * a) &&
            sb_eval_element(t, 4 * a + 3) >= sb_eval_element(t, 4 * a + 1);
    return 10 * behind > 9 * n;
}

static void look_at_scores(const sb_tensor *t, sb_box_reading *r)
{
    int64_t n = t->dims[0] * t->dims[1], c = t->dims[2];

    r->background = c > 1;
    for (int64_t a = 0; a < n; a++) {
        double sum = 0;

        for (int64_t k = 0; k < c; k++) {
            double x = sb_eval_element(t, a * c + k);

            sum += x;
            r->logits |= x < 0 || x > 1;
        }
        if (!(fabs(sum - 1) < 0.01))
            r->background = false; /* not the result of a softmax */
    }
}

sb_status sb_eval_boxes_start(sb_eval *e, const sb_batch *batch,
                              const sb_tensor *const *outputs)
{
    sb_box_reading *r = &e->reading;

    if (e->layout == SB_BOXES_PAIR && r->boxes == r->scores) {
        r->boxes = 0;
        r->scores = e->n_outputs > 1 ? 1 : 0;
    }
    if (e->layout == SB_BOXES_LISTS)
        (void)sb_eval_find_lists(e, (int64_t)batch->count, outputs);
    SB_TRY(check_layout(e, (int64_t)batch->count, outputs));
    /* In cells sizes are logarithms; decoded ones are pixels. */
    if (e->layout == SB_BOXES_YOLOX)
        r->on_grid = r->height > 0 && largest_size(outputs[0]) < 12;
    if (e->layout == SB_BOXES_PAIR) {
        r->corners = has_corners(outputs[r->boxes]);
        look_at_scores(outputs[r->scores], r);
    }
    return SB_OK;
}

sb_status sb_eval_boxes(sb_eval *e, int64_t count,
                        const sb_tensor *const *outputs,
                        const sb_tensor *const *reference)
{
    box_list a = {0}, b = {0};
    sb_status status = check_layout(e, count, outputs);

    if (status == SB_OK)
        status = check_layout(e, count, reference);
    for (int64_t s = 0; s < count && status == SB_OK; s++) {
        status = find_boxes(e, outputs, s, &a);
        if (status == SB_OK)
            status = find_boxes(e, reference, s, &b);
        if (status == SB_OK)
            match_boxes(e, &a, &b);
    }
    sb_free(e->ctx, a.v);
    sb_free(e->ctx, b.v);
    return status;
}
