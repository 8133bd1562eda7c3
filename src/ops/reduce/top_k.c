/* TopK: the k largest (or least) elements along an axis and where they are,
 * best first; of equal elements the one with the lower index comes first.
 *
 * Each element becomes a 64-bit key that orders like the element, so one heap
 * serves all types: it holds the k best so far with the worst on top, which
 * costs n log k, and is emptied from the worst to the best at the end. */
#include <string.h>

#include "base/threads.h"
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/infer_util.h"
#include "ops/move/move_util.h"
#include "ops/reduce/axis_walk.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t axis, largest, sorted;
} top_k_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(top_k_attrs, axis), .i = -1},
    {"largest", SB_ATTR_INT, offsetof(top_k_attrs, largest), .i = 1,
     .flag = true},
    {"sorted", SB_ATTR_INT, offsetof(top_k_attrs, sorted), .i = 1,
     .flag = true},
    {0},
};

typedef struct top_entry {
    uint64_t key;
    int64_t index;
} top_entry;

typedef struct top_job {
    sb_axis_walk walk;
    const sb_tensor *x;
    sb_tensor *values; /* NULL if it is no output */
    int64_t *indices;  /* NULL if it is no output */
    top_entry *heaps;  /* k entries for each part */
    size_t k, size, rows, parts;
    bool largest;
} top_job;

/* ---- keys --------------------------------------------------------------- */

/* Unsigned order of the result is the order of doubles; NaN is largest. */
static uint64_t key_of_f64(double v)
{
    uint64_t bits;

    v += 0.0; /* -0 equals 0 */
    memcpy(&bits, &v, sizeof bits);
    if (v != v)
        return UINT64_MAX;
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

static uint64_t key_at(const top_job *job, size_t at)
{
    sb_dtype t = job->x->dtype;
    uint64_t key;

    if (t == SB_DTYPE_F32) {
        key = key_of_f64((double)((const float *)job->x->data)[at]);
    } else if (sb_dtype_is_float(t)) {
        key = key_of_f64(sb_tensor_get_f64(job->x, (int64_t)at));
    } else if (t == SB_DTYPE_U64) {
        key = ((const uint64_t *)job->x->data)[at];
    } else {
        key = (uint64_t)sb_tensor_get_i64(job->x, (int64_t)at) ^ UINT64_C(1)
                                                                     << 63;
    }
    return job->largest ? key : ~key;
}

/* ---- the heap ----------------------------------------------------------- */

static bool top_k_worse(const top_entry *a, const top_entry *b)
{
    return a->key != b->key ? a->key < b->key : a->index > b->index;
}

/* Lets the entry at the top sink to its place among n. */
static void top_k_sink(top_entry *heap, size_t n, size_t i)
{
    top_entry e = heap[i];

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && top_k_worse(&heap[child + 1], &heap[child]))
            child++;
        if (!top_k_worse(&heap[child], &e))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = e;
}

static void top_row(const top_job *job, size_t base, top_entry *heap)
{
    size_t n = job->walk.n, k = job->k;

    for (size_t i = 0; i < k; i++)
        heap[i] =
            (top_entry){key_at(job, base + i * job->walk.inner), (int64_t)i};
    for (size_t i = k / 2; i-- > 0;)
        top_k_sink(heap, k, i);
    for (size_t i = k; i < n; i++) {
        top_entry e = {key_at(job, base + i * job->walk.inner), (int64_t)i};
        if (top_k_worse(&heap[0], &e)) {
            heap[0] = e;
            top_k_sink(heap, k, 0);
        }
    }
    for (size_t left = k; left > 1; left--) {
        top_entry worst = heap[0];
        heap[0] = heap[left - 1];
        heap[left - 1] = worst;
        top_k_sink(heap, left - 1, 0);
    }
}

/* Each part has its heap and a fixed share of the rows. */
static void top_parts(void *arg, size_t begin, size_t end)
{
    const top_job *job = arg;
    size_t inner = job->walk.inner;

    for (size_t p = begin; p < end; p++) {
        top_entry *heap = job->heaps + p * job->k;
        size_t last = job->rows * (p + 1) / job->parts;

        for (size_t r = job->rows * p / job->parts; r < last; r++) {
            size_t from = r / inner * job->walk.n * inner + r % inner;
            size_t to = r / inner * job->k * inner + r % inner;

            top_row(job, from, heap);
            for (size_t i = 0; i < job->k; i++) {
                size_t src = from + (size_t)heap[i].index * inner;
                size_t dst = to + i * inner;

                if (job->indices)
                    job->indices[dst] = heap[i].index;
                if (job->values)
                    memcpy((char *)job->values->data + dst * job->size,
                           (const char *)job->x->data + src * job->size,
                           job->size);
            }
        }
    }
}

/* ---- the operator ------------------------------------------------------- */

static sb_status top_k_infer(sb_infer *in)
{
    const top_k_attrs *a = in->attrs;
    sb_shape out = in->in[0]->type.shape, content;
    int axis;

    SB_TRY(sb_infer_want_ints(in, 1));
    if (out.rank >= 0) {
        SB_TRY(sb_infer_axis(in, a->axis, out.rank, &axis));
        sb_dim n = out.dim[axis];

        out.dim[axis] = SB_DIM_UNKNOWN;
        if (sb_infer_content(in, 1, &content) && content.rank == 1)
            out.dim[axis] = content.dim[0];
        sb_dim k = out.dim[axis];
        if (sb_dim_known(k) && (k < 0 || (sb_dim_known(n) && k > n)))
            return sb_infer_fail(in, "k is %lld, the axis has %lld elements",
                                 (long long)k,
                                 (long long)(sb_dim_known(n) ? n : -1));
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    sb_infer_set(in, 1, SB_DTYPE_I64, &out);
    return SB_OK;
}

static const sb_tensor *top_k_result(const sb_kernel *k)
{
    return sb_kernel_out(k, 0) ? k->out[0] : sb_kernel_out(k, 1);
}

static top_job top_k_job(const sb_kernel *k)
{
    const top_k_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *result = top_k_result(k);
    sb_tensor *indices = sb_kernel_out(k, 1);
    int axis = sb_axis_norm(a->axis, x->rank);
    top_job job = {.walk = sb_axis_walk_make(x, axis),
                   .x = x,
                   .values = sb_kernel_out(k, 0),
                   .indices = indices ? indices->data : NULL,
                   .k = (size_t)result->dims[axis],
                   .size = sb_dtype_size(x->dtype),
                   .largest = a->largest != 0};

    job.rows = job.walk.outer * job.walk.inner;
    job.parts = job.rows < SB_REDUCE_PARTS ? job.rows : SB_REDUCE_PARTS;
    return job;
}

static sb_status top_k_prepare(sb_kernel *k)
{
    sb_dtype_class cls = sb_dtype_get(k->in[0]->dtype)->cls;

    if (cls == SB_CLASS_OTHER || sb_dtype_size(k->in[0]->dtype) == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    if (!top_k_result(k) || sb_tensor_count(top_k_result(k)) == 0)
        return SB_OK;
    top_job job = top_k_job(k);
    if (job.k > job.walk.n)
        return sb_kernel_fail(k, SB_BAD_DATA,
                              "k is %zu, the axis has %zu elements", job.k,
                              job.walk.n);
    k->scratch_size = job.parts * job.k * sizeof(top_entry);
    return SB_OK;
}

static sb_status top_k_forward(sb_kernel *k)
{
    if (!top_k_result(k) || sb_tensor_count(top_k_result(k)) == 0)
        return SB_OK;
    top_job job = top_k_job(k);
    job.heaps = k->scratch;
    sb_parallel_for(k->ctx, job.parts, 1, top_parts, &job);
    return SB_OK;
}

const sb_op_def sb_op_top_k = {
    .name = "TopK",
    .since = 11,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 2,
    .attrs_size = sizeof(top_k_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_axis,
    .infer = top_k_infer,
    .prepare = top_k_prepare,
    .forward = top_k_forward,
    .grad = sb_grad_top_k,
    .tie = sb_tie_but_axis,
};
