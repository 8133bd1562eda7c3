/* NonMaxSuppression: picks boxes by falling score and drops those that overlap
 * one already picked, for each class of each batch item.
 *
 * Equal scores go by index; "overlap" is intersection over union greater than
 * the threshold.  Both as in ONNX Runtime, so that lists agree row by row. */
#include <math.h>

#include "ops/move/move_util.h"

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
_Static_assert(sizeof(box) == 2 * sizeof(int64_t), "as scratch counts it");

static box read_box(const float *p, bool center)
{
    if (center)
        return (box){p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2,
                     p[0] + p[2] / 2};
    return (box){fminf(p[0], p[2]), fminf(p[1], p[3]), fmaxf(p[0], p[2]),
                 fmaxf(p[1], p[3])};
}

static bool non_max_suppression_overlap(const box *a, const box *b, float limit)
{
    float h = fminf(a->y1, b->y1) - fmaxf(a->y0, b->y0);
    float w = fminf(a->x1, b->x1) - fmaxf(a->x0, b->x0);
    float area_a = (a->y1 - a->y0) * (a->x1 - a->x0);
    float area_b = (b->y1 - b->y0) * (b->x1 - b->x0);

    if (h <= 0 || w <= 0 || area_a <= 0 || area_b <= 0)
        return false;
    float both = area_a + area_b - h * w;
    return both > 0 && h * w / both > limit;
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
        !sb_add_size(total, 2 * (size_t)a.most, &total) ||
        !sb_mul_size(total, sizeof(int64_t), &k->scratch_size))
        return sb_kernel_fail(k, SB_NO_MEMORY, "too many boxes");
    return SB_OK;
}

/* Picks boxes of one class; returns how many. */
static int64_t non_max_suppression_pick(const nms_args *a, const float *boxes,
                                        const float *score, int64_t *heap,
                                        box *kept, int64_t *picked)
{
    int64_t n = 0, n_picked = 0;

    for (int64_t i = 0; i < a->n_box; i++)
        if (!a->has_min_score || score[i] > a->min_score)
            heap[n++] = i;
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift_down(heap, n, i, score);
    while (n > 0 && n_picked < a->most) {
        int64_t i = pop_best(heap, &n, score);
        box b = read_box(boxes + 4 * i, a->center);
        bool keep = true;
        for (int64_t p = 0; keep && p < n_picked; p++)
            keep = !non_max_suppression_overlap(&b, &kept[p], a->iou);
        if (keep) {
            kept[n_picked] = b;
            picked[n_picked++] = i;
        }
    }
    return n_picked;
}

static sb_status nms_forward(sb_kernel *k)
{
    const float *boxes = k->in[0]->data, *scores = k->in[1]->data;
    nms_args a;

    SB_TRY(nms_read(k, &a));
    int64_t *heap = k->scratch, *counts = heap + a.n_box + 2 * a.most;
    box *kept = (box *)(void *)(heap + a.n_box);
    int64_t n = a.n_batch * a.n_class, total = 0;
    int64_t *picked = counts + n;
    for (int64_t i = 0; i < n; i++) {
        counts[i] = non_max_suppression_pick(
            &a, boxes + i / a.n_class * a.n_box * 4, scores + i * a.n_box, heap,
            kept, picked + i * a.most);
        total += counts[i];
        SB_TRY(sb_ctx_poll(k->ctx));
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
