/* eval.h - what is behind the public sb_eval: counters, and the ways in which
 * outputs of different tasks are compared. */
#ifndef SB_EVAL_EVAL_H
#define SB_EVAL_EVAL_H

#include <math.h>

#include <sparsebit/run.h>

#include "base/arena.h"
#include "tensor/tensor.h"

typedef enum sb_eval_task {
    SB_TASK_GUESS, /* not yet known */
    SB_TASK_NONE,
    SB_TASK_CLASSIFY,
    SB_TASK_DETECT,
    SB_TASK_EMBED,
    SB_TASK_SEGMENT,
    SB_TASK_TEXT,
    SB_TASK_LANGUAGE,
} sb_eval_task;

/* Where boxes and scores are in the outputs of a detector, and what they mean.
 * N samples, A places, C classes. */
typedef enum sb_box_layout {
    SB_BOXES_GUESS,
    SB_BOXES_YOLOV5, /* [N, A, 5 + C]: center, size, objectness, classes */
    SB_BOXES_YOLOV8, /* [N, 4 + C, A]: center, size, classes */
    SB_BOXES_YOLOX,  /* [N, A, 5 + C], on its grid unless decoded */
    SB_BOXES_PAIR,   /* [N, A, 4] and [N, A, C] in two outputs */
    SB_BOXES_NMS,    /* [N, A, 6], of a sample [A, 6]: corners, score, class */
    SB_BOXES_LISTS,  /* corners [.., A, 4], scores [.., A], classes [.., A]; of
                        a sample, or with N in front */
} sb_box_layout;

/* Sums over elements: products of both, squares of each, of the difference. */
typedef struct sb_products {
    double ab, aa, bb, noise;
} sb_products;

typedef struct sb_distance {
    double cosines; /* sum over comparisons */
    size_t n;
    double signal, noise;
} sb_distance;

/* One row (or channel) of an output over all samples. */
typedef struct sb_eval_row {
    sb_products sum;
    double largest; /* magnitude in the reference */
} sb_eval_row;

typedef struct sb_eval_rows {
    sb_eval_row *v; /* NULL: none */
    int axis;
    size_t n;
    bool off; /* shapes differ from batch to batch, or there are too many */
} sb_eval_rows;

/* What is counted of `targets` of batches. */
typedef struct sb_eval_targets {
    int64_t classes;              /* 0: none of pixels yet */
    double *right, *seen, *there; /* by class: agreed, predicted, in targets */
    double n, absolute, squared;  /* numbers, and sums over them */
    bool no_labels;               /* a target is neither 0 nor 1 */
    bool logits;                  /* an output is no probability */
    /* At the threshold for probabilities, and at 0. */
    struct {
        double both, found;
    } at[2];
    double positive;
} sb_eval_targets;

/* How boxes are read, found at the first comparison. */
typedef struct sb_box_reading {
    int64_t height, width; /* of the input */
    size_t boxes, scores;  /* outputs */
    size_t classes;        /* lists: another, or SB_NO_INDEX: one class */
    bool on_grid;          /* YOLOX: not decoded yet */
    bool corners;          /* pair: x1 y1 x2 y2, not center and size */
    bool background;       /* pair: class 0 is none */
    bool logits;           /* pair: scores before the sigmoid */
} sb_box_reading;

struct sb_eval {
    sb_ctx *ctx;
    size_t n_outputs;
    sb_eval_task task;
    sb_box_layout layout;
    bool guessed;
    double threshold, iou;
    size_t samples, labeled, hits1, hits5;
    size_t compared, uneven;
    sb_distance all;
    sb_distance *outputs;
    sb_eval_rows *rows;
    size_t places, equal; /* where classes were compared */
    sb_box_reading reading;
    size_t boxes, reference_boxes, matched_boxes;
    double *cosines; /* of vectors */
    size_t n_cosines, cap_cosines;
    size_t texts, texts_equal;
    size_t map_both, map_any; /* pixels above the threshold */
    size_t tokens;            /* of texts, predicted */
    double log_loss;          /* sum of -log p over them */
    double divergence;        /* sum over places */
    sb_eval_targets targets;
    sb_arena parts;
    sb_eval_result result;
    char task_text[32];
};

/* ---- elements ------------------------------------------------------------ */

static inline double sb_eval_element(const sb_tensor *t, int64_t i)
{
    return t->dtype == SB_DTYPE_F32 ? (double)((const float *)t->data)[i]
                                    : sb_tensor_get_f64(t, i);
}

/* How far from 1 the sum of probabilities may be: one that is nearly 1 may be
 * off by 2^-9 in bfloat16, and the others by as much together. */
static inline double sb_eval_sum_slack(const sb_tensor *t)
{
    return t->dtype == SB_DTYPE_BF16 ? 4e-3 : 1e-3;
}

/* NaN is smaller than everything. */
static inline bool sb_eval_larger(double a, double b)
{
    return a > b || (a == a && b != b);
}

/* Signal to noise; infinite without noise, even if there is no signal. */
static inline double sb_eval_decibel(double signal, double noise)
{
    return noise == 0 ? (double)INFINITY : 10 * log10(signal / noise);
}

/* Which of `n` elements, `step` apart, is the largest; the first of equals. */
int64_t sb_eval_largest(const sb_tensor *t, int64_t first, int64_t n,
                        int64_t step);
/* Classes of an output [samples, ...]: its only axis of more than one, else the
 * second of an image [samples, classes, height, width], else the last.  *step
 * receives the distance between classes; 0 classes: there are none. */
int64_t sb_eval_classes(const sb_tensor *t, int64_t *step);
double sb_eval_cosine(const sb_products *p);

/* ---- tasks --------------------------------------------------------------- */

/* eval_task.c.  Reads `detect:yolov8`; NULL is SB_TASK_GUESS. */
SB_MUST_USE sb_status sb_eval_read_task(sb_eval *e, const char *text);
/* Boxes, scores and classes in outputs of their own: which are they?  And are
 * those of another batch the same ones? */
bool sb_eval_find_lists(sb_eval *e, int64_t count,
                        const sb_tensor *const *outputs);
bool sb_eval_are_lists(const sb_eval *e, int64_t count,
                       const sb_tensor *const *outputs);
/* Decides what the outputs are, once; `outputs` are the reference's. */
SB_MUST_USE sb_status sb_eval_guess(sb_eval *e, const sb_batch *batch,
                                    const sb_tensor *const *outputs);
const char *sb_eval_task_text(sb_eval *e);

/* eval_rows.c.  Adds one sample, elements [first, first + n) of output `i`, to
 * its rows, and returns the sums over all of them. */
SB_MUST_USE sb_status sb_eval_add_rows(sb_eval *e, size_t i, const sb_tensor *a,
                                       const sb_tensor *b, int64_t first,
                                       int64_t n, sb_products *out);

/* eval_boxes.c, eval_vectors.c: outputs of a batch of `count` samples. */
SB_MUST_USE sb_status sb_eval_boxes_start(sb_eval *e, const sb_batch *batch,
                                          const sb_tensor *const *outputs);
SB_MUST_USE sb_status sb_eval_boxes(sb_eval *e, int64_t count,
                                    const sb_tensor *const *outputs,
                                    const sb_tensor *const *reference);
SB_MUST_USE sb_status sb_eval_vectors(sb_eval *e, int64_t count,
                                      const sb_tensor *a, const sb_tensor *b);
SB_MUST_USE sb_status sb_eval_texts(sb_eval *e, int64_t count,
                                    const sb_tensor *a, const sb_tensor *b);
/* eval_language.c: of a batch of texts. */
SB_MUST_USE sb_status sb_eval_language(sb_eval *e, const sb_batch *b,
                                       const sb_tensor *logits);
SB_MUST_USE sb_status sb_eval_language_compare(sb_eval *e, const sb_batch *b,
                                               const sb_tensor *logits,
                                               const sb_tensor *reference);
/* eval_targets.c: of a batch with targets. */
SB_MUST_USE sb_status sb_eval_add_targets(sb_eval *e, const sb_batch *b,
                                          const sb_tensor *output);
void sb_eval_targets_result(const sb_eval *e, sb_eval_result *r);
/* The axis of classes if `target` has a class for each place of the rest, else
 * -1. */
int sb_eval_class_axis(const sb_tensor *output, const sb_tensor *target);
/* How many of these are right, of those that count. */
void sb_eval_count_places(const sb_tensor *output, const sb_tensor *target,
                          size_t *right, size_t *seen);
void sb_eval_maps(sb_eval *e, const sb_tensor *a, const sb_tensor *b);

#endif
