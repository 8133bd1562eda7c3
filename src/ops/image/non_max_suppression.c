/* NonMaxSuppression: picks boxes by falling score and drops those that overlap
 * one already picked, for each class of each batch item.
 *
 * Equal scores go by index; "overlap" is intersection over union greater than
 * the threshold.  Both as in ONNX Runtime, so that lists agree row by row.
 *
 * Detectors that keep thousands of boxes compare each with all before it, so
 * picked ones lie as five rows of numbers, which vectors go through. */
#include <math.h>

#include "base/simd.h"
#include "ops/move/move_util.h"

enum {
    BLOCK = 64,  /* boxes compared before asking whether one overlaps */
    LOOKS = 256, /* candidates between two looks at the interruption */
    ROWS = 5     /* y0, x0, y1, x1, area */
};

typedef struct {
    int64_t center_point_box;
} nms_attrs;

static const sb_attr_def attrs[] = {
    {"center_point_box", SB_ATTR_INT, offsetof(nms_attrs, center_point_box),
     .i = 0, .flag = true},
    {0},
};

static bool dims_differ(sb_dim a, sb_dim b)
{
    return sb_dim_known(a) && sb_dim_known(b) && a != b;
}

static sb_status nms_infer(sb_infer *in)
{
    const sb_shape *boxes = &in->in[0]->type.shape;
    const sb_shape *scores = &in->in[1]->type.shape;
    sb_shape out = sb_shape_of_rank(2);

    out.dim[1] = 3;
    sb_infer_set(in, 0, SB_DTYPE_I64, &out);
    if ((boxes->rank >= 0 && boxes->rank != 3) ||
        (scores->rank >= 0 && scores->rank != 3))
        return sb_infer_fail(in, "boxes of rank %d, scores of rank %d, want 3",
                             boxes->rank, scores->rank);
    if (boxes->rank == 3 && dims_differ(boxes->dim[2], 4))
        return sb_infer_fail(in, "boxes of %lld numbers, want 4",
                             (long long)boxes->dim[2]);
    if (boxes->rank == 3 && scores->rank == 3 &&
        (dims_differ(boxes->dim[0], scores->dim[0]) ||
         dims_differ(boxes->dim[1], scores->dim[2])))
        return sb_infer_fail(in, "boxes and scores differ in number");
    return SB_OK;
}

/* ---- boxes -------------------------------------------------------------- */

typedef struct {
    float y0, x0, y1, x1;
} box;

/* Boxes that were picked: ROWS rows of `room` numbers. */
typedef struct {
    float *v;
    int64_t room, n;
} box_rows;

static box read_box(const float *p, bool center)
{
    if (center)
        return (box){p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2,
                     p[0] + p[2] / 2};
    return (box){fminf(p[0], p[2]), fminf(p[1], p[3]), fmaxf(p[0], p[2]),
                 fmaxf(p[1], p[3])};
}

static float box_area(const box *b)
{
    return (b->y1 - b->y0) * (b->x1 - b->x0);
}

/* As fminf() and fmaxf() do it, without a call. */
static inline float nms_min(float a, float b)
{
    return a < b || b != b ? a : b;
}

static inline float nms_max(float a, float b)
{
    return a > b || b != b ? a : b;
}

/* Does the box overlap one of the picked [begin, end)? */
SB_HOT static bool overlaps_block(const box_rows *rows, int64_t begin,
                                  int64_t end, const box *b, float limit)
{
    const float *y0 = rows->v, *x0 = y0 + rows->room, *y1 = x0 + rows->room;
    const float *x1 = y1 + rows->room, *area = x1 + rows->room;
    const box a = *b;
    const float area_a = box_area(b);
    int any = 0;

    SB_SIMD_ANY
    for (int64_t i = begin; i < end; i++) {
        float h = nms_min(a.y1, y1[i]) - nms_max(a.y0, y0[i]);
        float w = nms_min(a.x1, x1[i]) - nms_max(a.x0, x0[i]);
        float both = area_a + area[i] - h * w;
        int apart = (h <= 0) | (w <= 0) | (area_a <= 0) | (area[i] <= 0);
        any |= !apart & (both > 0) & (h * w / both > limit);
    }
    return any != 0;
}

static bool overlaps_any(const box_rows *rows, const box *b, float limit)
{
    for (int64_t i = 0; i < rows->n; i += BLOCK) {
        int64_t end = i + BLOCK < rows->n ? i + BLOCK : rows->n;
        if (overlaps_block(rows, i, end, b, limit))
            return true;
    }
    return false;
}

static void box_rows_add(box_rows *rows, const box *b)
{
    const float v[ROWS] = {b->y0, b->x0, b->y1, b->x1, box_area(b)};

    for (int i = 0; i < ROWS; i++)
        rows->v[i * rows->room + rows->n] = v[i];
    rows->n++;
}

/* ---- a heap of candidates, best on top ---------------------------------- */

static bool non_max_suppression_better(const float *score, int64_t a, int64_t b)
{
    return score[a] > score[b] || (score[a] == score[b] && a < b);
}

static void sift_down(int64_t *heap, int64_t n, int64_t at, const float *score)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n)
            return;
        if (child + 1 < n &&
            non_max_suppression_better(score, heap[child + 1], heap[child]))
            child++;
        if (!non_max_suppression_better(score, heap[child], heap[at]))
            return;
        int64_t t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
        at = child;
    }
}

static int64_t pop_best(int64_t *heap, int64_t *n, const float *score)
{
    int64_t best = heap[0];

    heap[0] = heap[--*n];
    sift_down(heap, *n, 0, score);
    return best;
}

/* ---- running ------------------------------------------------------------ */

typedef struct {
    int64_t n_batch, n_class, n_box, most;
    float iou, min_score;
    bool has_min_score, center;
} nms_args;

static sb_status nms_read(const sb_kernel *k, nms_args *a)
{
    const nms_attrs *at = k->attrs;
    const sb_tensor *most = sb_kernel_in(k, 2), *iou = sb_kernel_in(k, 3);
    const sb_tensor *score = sb_kernel_in(k, 4);

    *a = (nms_args){.n_batch = k->in[1]->dims[0],
                    .n_class = k->in[1]->dims[1],
                    .n_box = k->in[1]->dims[2],
                    .center = at->center_point_box != 0};
    if ((most && sb_tensor_count(most) != 1) ||
        (iou && sb_tensor_count(iou) != 1) ||
        (score && sb_tensor_count(score) != 1))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "limits and thresholds must be single numbers");
    a->most = most ? sb_index_at(most, 0) : 0;
    a->most = a->most < 0 ? 0 : a->most > a->n_box ? a->n_box : a->most;
    a->iou = iou ? (float)sb_tensor_get_f64(iou, 0) : 0;
    a->has_min_score = score != NULL;
    a->min_score = score ? (float)sb_tensor_get_f64(score, 0) : 0;
    return SB_OK;
}

/* Scratch: the heap, the boxes picked in one class, then for each class the
 * numbers of the picked ones and their count. */
static sb_status nms_prepare(sb_kernel *k)
{
    nms_args a;
    size_t n = 0, total = 0;

    SB_TRY(nms_read(k, &a));
    if (k->in[0]->dtype != SB_DTYPE_F32 || k->in[1]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "boxes of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    if (!sb_mul_size((size_t)a.n_batch, (size_t)a.n_class, &n) ||
        !sb_mul_size(n, (size_t)a.most + 1, &total) ||
        !sb_add_size(total, (size_t)a.n_box, &total) ||
        !sb_add_size(total, ROWS * (size_t)a.most, &total) ||
        !sb_mul_size(total, sizeof(int64_t), &k->scratch_size))
        return sb_kernel_fail(k, SB_NO_MEMORY, "too many boxes");
    return SB_OK;
}

/* Picks boxes of one class; `rows` holds them in the end. */
static sb_status nms_pick(const sb_kernel *k, const nms_args *a,
                          const float *boxes, const float *score, int64_t *heap,
                          box_rows *rows, int64_t *picked)
{
    int64_t n = 0;

    rows->n = 0;
    for (int64_t i = 0; i < a->n_box; i++)
        if (!a->has_min_score || score[i] > a->min_score)
            heap[n++] = i;
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift_down(heap, n, i, score);
    while (n > 0 && rows->n < a->most) {
        int64_t i = pop_best(heap, &n, score);
        box b = read_box(boxes + 4 * i, a->center);
        if (n % LOOKS == 0)
            SB_TRY(sb_ctx_poll(k->ctx));
        if (overlaps_any(rows, &b, a->iou))
            continue;
        picked[rows->n] = i;
        box_rows_add(rows, &b);
    }
    return SB_OK;
}

static sb_status nms_forward(sb_kernel *k)
{
    const float *boxes = k->in[0]->data, *scores = k->in[1]->data;
    nms_args a;

    SB_TRY(nms_read(k, &a));
    int64_t *heap = k->scratch, *counts = heap + a.n_box + ROWS * a.most;
    box_rows rows = {(float *)(void *)(heap + a.n_box), a.most, 0};
    int64_t n = a.n_batch * a.n_class, total = 0;
    int64_t *picked = counts + n;
    for (int64_t i = 0; i < n; i++) {
        SB_TRY(nms_pick(k, &a, boxes + i / a.n_class * a.n_box * 4,
                        scores + i * a.n_box, heap, &rows,
                        picked + i * a.most));
        counts[i] = rows.n;
        total += rows.n;
    }
    SB_TRY(k->host->resize_out(k, 0, SB_DTYPE_I64, 2,
                               (const int64_t[]){total, 3}));
    int64_t *y = k->out[0]->data;
    for (int64_t i = 0; i < n; i++)
        for (int64_t p = 0; p < counts[i]; p++) {
            *y++ = i / a.n_class;
            *y++ = i % a.n_class;
            *y++ = picked[i * a.most + p];
        }
    return SB_OK;
}

const sb_op_def sb_op_non_max_suppression = {
    .name = "NonMaxSuppression",
    .since = 10,
    .in_min = 2,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_DATA_SHAPE | SB_OP_FLAT,
    .any_type = 1u << 2,
    .attrs_size = sizeof(nms_attrs),
    .attrs = attrs,
    .infer = nms_infer,
    .prepare = nms_prepare,
    .forward = nms_forward,
};
