/* What the outputs of a network are: said by the caller, or guessed from their
 * shapes and from the reference's first values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/eval.h"

static const struct {
    const char *name;
    sb_eval_task task;
    sb_box_layout layout;
} tasks[] = {
    {"none", SB_TASK_NONE, SB_BOXES_GUESS},
    {"classify", SB_TASK_CLASSIFY, SB_BOXES_GUESS},
    {"detect", SB_TASK_DETECT, SB_BOXES_GUESS},
    {"detect:yolov5", SB_TASK_DETECT, SB_BOXES_YOLOV5},
    {"detect:yolov8", SB_TASK_DETECT, SB_BOXES_YOLOV8},
    {"detect:yolox", SB_TASK_DETECT, SB_BOXES_YOLOX},
    {"detect:pair", SB_TASK_DETECT, SB_BOXES_PAIR},
    {"detect:nms", SB_TASK_DETECT, SB_BOXES_NMS},
    {"detect:lists", SB_TASK_DETECT, SB_BOXES_LISTS},
    {"embed", SB_TASK_EMBED, SB_BOXES_GUESS},
    {"segment", SB_TASK_SEGMENT, SB_BOXES_GUESS},
    {"text", SB_TASK_TEXT, SB_BOXES_GUESS},
    {"language", SB_TASK_LANGUAGE, SB_BOXES_GUESS},
};

enum { N_TASKS = sizeof tasks / sizeof tasks[0] };

sb_status sb_eval_read_task(sb_eval *e, const char *text)
{
    e->guessed = text == NULL;
    for (size_t i = 0; text && i < N_TASKS; i++)
        if (strcmp(tasks[i].name, text) == 0) {
            e->task = tasks[i].task;
            e->layout = tasks[i].layout;
            return SB_OK;
        }
    if (!text)
        return SB_OK;
    return sb_fail(
        e->ctx, SB_BAD_ARG,
        "task '%s': want none, classify, detect (:yolov5, :yolov8, "
        ":yolox, :pair, :nms, :lists), embed, segment, text or language",
        text);
}

const char *sb_eval_task_text(sb_eval *e)
{
    const char *name = "";

    for (size_t i = 0; i < N_TASKS; i++)
        if (tasks[i].task == e->task && tasks[i].layout == e->layout)
            name = tasks[i].name;
    (void)snprintf(e->task_text, sizeof e->task_text, "%s", name);
    return e->task_text;
}

/* ---- detectors ----------------------------------------------------------- */

/* Places of a grid of cells of 8, 16 and 32 pixels, and of 64. */
static int64_t grid_places(const sb_box_reading *r, int64_t coarsest)
{
    int64_t n = 0;

    for (int64_t s = 8; s <= coarsest; s *= 2)
        n += (r->height / s) * (r->width / s);
    return n;
}

static bool is_grid(const sb_box_reading *r, int64_t places, int64_t anchors)
{
    return places > 0 && (places == anchors * grid_places(r, 32) ||
                          places == anchors * grid_places(r, 64));
}

static void find_input_size(sb_box_reading *r, const sb_batch *batch)
{
    for (size_t i = 0; i < batch->n_inputs; i++) {
        const sb_tensor *t = batch->inputs ? batch->inputs[i] : NULL;
        int axis = t && t->rank == 4 && t->dims[1] > 4 ? 1 : 2;

        if (t && t->rank == 4) {
            r->height = t->dims[axis];
            r->width = t->dims[axis + 1];
            return;
        }
    }
}

/* Two outputs [N, A, 4] and [N, A, C]. */
static bool find_pair(sb_eval *e, const sb_tensor *const *outputs)
{
    for (size_t i = 0; i < e->n_outputs; i++)
        for (size_t k = 0; k < e->n_outputs; k++) {
            const sb_tensor *b = outputs[i], *s = outputs[k];

            if (i != k && b->rank == 3 && s->rank == 3 && b->dims[2] == 4 &&
                b->dims[1] > 1 && b->dims[0] == s->dims[0] &&
                b->dims[1] == s->dims[1]) {
                e->reading.boxes = i;
                e->reading.scores = k;
                return true;
            }
        }
    return false;
}

/* All but the last axis of `b`, and as many boxes. */
static bool is_list_of(const sb_tensor *t, const sb_tensor *b)
{
    return t->rank == b->rank - 1 &&
           memcmp(t->dims, b->dims, (size_t)t->rank * sizeof *t->dims) == 0 &&
           sb_dtype_size(t->dtype) > 0;
}

static bool is_float(const sb_tensor *t)
{
    return t->dtype == SB_DTYPE_F32 || t->dtype == SB_DTYPE_F16 ||
           t->dtype == SB_DTYPE_BF16 || t->dtype == SB_DTYPE_F64;
}

/* Corners [A, 4] of a sample, or with samples in front? */
static bool are_corners(const sb_tensor *t, int64_t count)
{
    return is_float(t) && t->rank >= 2 && t->dims[t->rank - 1] == 4 &&
           (t->rank == 3 ? t->dims[0] == count : t->rank == 2 && count == 1);
}

bool sb_eval_find_lists(sb_eval *e, int64_t count,
                        const sb_tensor *const *outputs)
{
    sb_box_reading *r = &e->reading;

    r->scores = SB_NO_INDEX;
    /* Four scores [1, 4] look like corners, too, but have no list. */
    for (size_t b = 0; b < e->n_outputs && r->scores == SB_NO_INDEX; b++) {
        r->boxes = b;
        r->classes = SB_NO_INDEX;
        for (size_t i = 0; i < e->n_outputs; i++) {
            if (!are_corners(outputs[b], count) ||
                !is_list_of(outputs[i], outputs[b]))
                continue;
            size_t *to = is_float(outputs[i]) && r->scores == SB_NO_INDEX
                             ? &r->scores
                             : &r->classes;
            *to = *to == SB_NO_INDEX ? i : *to;
        }
    }
    return r->scores != SB_NO_INDEX;
}

bool sb_eval_are_lists(const sb_eval *e, int64_t count,
                       const sb_tensor *const *outputs)
{
    const sb_box_reading *r = &e->reading;

    if (r->scores == SB_NO_INDEX)
        return false;
    const sb_tensor *b = outputs[r->boxes];
    return are_corners(b, count) && is_list_of(outputs[r->scores], b) &&
           (r->classes == SB_NO_INDEX || is_list_of(outputs[r->classes], b));
}

static sb_box_layout guess_layout(sb_eval *e, int64_t count,
                                  const sb_tensor *const *outputs)
{
    const sb_tensor *t = outputs[0];
    const sb_box_reading *r = &e->reading;

    if (find_pair(e, outputs))
        return SB_BOXES_PAIR;
    if (sb_eval_find_lists(e, count, outputs) &&
        e->reading.classes != SB_NO_INDEX)
        return SB_BOXES_LISTS;
    if (t->rank != 3)
        return SB_BOXES_GUESS;
    if (t->dims[1] > 4 && is_grid(r, t->dims[2], 1))
        return SB_BOXES_YOLOV8;
    if (t->dims[2] > 5 && is_grid(r, t->dims[1], 3))
        return SB_BOXES_YOLOV5;
    if (t->dims[2] > 5 && is_grid(r, t->dims[1], 1))
        return SB_BOXES_YOLOX;
    if (t->dims[2] == 6 && t->dims[1] >= 10 && t->dims[1] <= 1000 &&
        r->height > 0)
        return SB_BOXES_NMS;
    return SB_BOXES_GUESS;
}

/* ---- the others ---------------------------------------------------------- */

/* Sums and norms of the vectors along the last axis, of the first few. */
typedef struct looks {
    bool probabilities; /* not negative, sums of 1 */
    bool unit;          /* with negative numbers, norms of 1 */
} looks;

static looks look_at(const sb_tensor *t, int64_t length)
{
    int64_t n = length > 0 ? sb_tensor_count(t) / length : 0;
    looks l = {n > 0, n > 0};
    bool negative = false;

    for (int64_t v = 0; v < n && v < 64; v++) {
        double sum = 0, squares = 0;

        for (int64_t i = v * length; i < (v + 1) * length; i++) {
            double x = sb_eval_element(t, i);

            negative |= x < 0;
            sum += x;
            squares += x * x;
        }
        if (!(fabs(sum - 1) < 0.01))
            l.probabilities = false;
        if (!(fabs(squares - 1) < 0.01))
            l.unit = false;
    }
    l.probabilities &= !negative;
    l.unit &= negative;
    return l;
}

/* Lengths of embeddings, and hardly ever numbers of classes. */
static bool is_embedding_length(int64_t n)
{
    return n >= 64 && n <= 8192 && n % 32 == 0;
}

static sb_eval_task guess_other(sb_eval *e, const sb_batch *batch,
                                const sb_tensor *t)
{
    int64_t step, n = sb_eval_classes(t, &step);
    int64_t last = t->rank > 0 ? t->dims[t->rank - 1] : 0;

    if (t->rank < 2 || n < 2 || t->dims[0] != (int64_t)batch->count)
        return SB_TASK_NONE;
    if (n * t->dims[0] == sb_tensor_count(t)) { /* one vector a sample */
        looks l = look_at(t, n);

        if (e->labeled || l.probabilities)
            return SB_TASK_CLASSIFY;
        return l.unit || is_embedding_length(n) ? SB_TASK_EMBED
                                                : SB_TASK_CLASSIFY;
    }
    if (t->rank == 4) /* texts of [time, 1, characters] have no image */
        return t->dims[2] > 1 && t->dims[3] > 1 ? SB_TASK_SEGMENT
                                                : SB_TASK_NONE;
    if (t->rank != 3 || e->n_outputs > 1)
        return SB_TASK_NONE;
    if (look_at(t, last).probabilities)
        return SB_TASK_TEXT;
    return is_embedding_length(last) ? SB_TASK_EMBED : SB_TASK_NONE;
}

sb_status sb_eval_guess(sb_eval *e, const sb_batch *batch,
                        const sb_tensor *const *outputs)
{
    if (e->compared > 0)
        return SB_OK;
    find_input_size(&e->reading, batch);
    if (e->task == SB_TASK_GUESS && batch->text_from > 0) {
        e->task = SB_TASK_LANGUAGE; /* no guess: the data say so */
        e->guessed = false;
    }
    if (e->task == SB_TASK_GUESS) {
        e->layout = guess_layout(e, (int64_t)batch->count, outputs);
        e->task = e->layout != SB_BOXES_GUESS
                      ? SB_TASK_DETECT
                      : guess_other(e, batch, outputs[0]);
    }
    if (e->task == SB_TASK_DETECT && e->layout == SB_BOXES_GUESS)
        e->layout = guess_layout(e, (int64_t)batch->count, outputs);
    return e->task == SB_TASK_DETECT ? sb_eval_boxes_start(e, batch, outputs)
                                     : SB_OK;
}
