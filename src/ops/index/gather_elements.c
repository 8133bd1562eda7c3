/* GatherElements: y[i][j] = x[indices[i][j]][j] for axis 0, and so on. */
#include <string.h>

#include "base/threads.h"
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/index/index_util.h"

typedef struct {
    int64_t axis;
} gather_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(gather_attrs, axis), .i = 0},
    {0},
};

static sb_status gather_elements_infer(sb_infer *in)
{
    const gather_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape, *idx = &in->in[1]->type.shape;
    int axis = 0;

    sb_infer_set(in, 0, in->in[0]->type.dtype, idx);
    if (x->rank < 0)
        return SB_OK;
    SB_TRY(sb_infer_axis(in, a->axis, x->rank, &axis));
    if (idx->rank < 0)
        sb_infer_set_rank(in, 0, x->rank);
    else if (idx->rank != x->rank)
        return sb_infer_fail(in, "indices of rank %d, want %d", idx->rank,
                             x->rank);
    return SB_OK;
}

typedef struct {
    sb_index_walk w;
    const char *src;
    char *dst;
    size_t elem;
} gather_job;

/* One row; a memcpy of constant size is one move. */
#define DEFINE_ROW(size)                                                       \
    static void row_##size(const gather_job *job, int64_t first, int64_t base) \
    {                                                                          \
        const sb_index_walk *w = &job->w;                                      \
        char *dst = job->dst + first * size;                                   \
                                                                               \
        for (int64_t j = 0; j < w->n_last; j++) {                              \
            int64_t at = base + j * w->step + sb_index_walk_add(w, first + j); \
            memcpy(dst + j * size, job->src + at * size, size);                \
        }                                                                      \
    }
DEFINE_ROW(1)
DEFINE_ROW(2)
DEFINE_ROW(4)
DEFINE_ROW(8)
DEFINE_ROW(16)
#undef DEFINE_ROW

static void gather_rows(void *arg, size_t begin, size_t end)
{
    const gather_job *job = arg;
    size_t e = job->elem;
    void (*row)(const gather_job *, int64_t, int64_t) = e == 1   ? row_1
                                                        : e == 2 ? row_2
                                                        : e == 4 ? row_4
                                                        : e == 8 ? row_8
                                                                 : row_16;

    for (size_t i = begin; i < end; i++)
        row(job, (int64_t)i * job->w.n_last,
            sb_index_walk_row(&job->w, (int64_t)i));
}

static sb_status gather_elements_forward(sb_kernel *k)
{
    const gather_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    gather_job job = {.src = x->data,
                      .dst = k->out[0]->data,
                      .elem = sb_dtype_size(x->dtype)};

    SB_TRY(sb_index_walk_init(k, x, k->in[1], sb_axis_norm(a->axis, x->rank),
                              &job.w));
    if (job.w.n_rows)
        sb_parallel_for(k->ctx, (size_t)job.w.n_rows,
                        (size_t)(4096 / job.w.n_last + 1), gather_rows, &job);
    return SB_OK;
}

const sb_op_def sb_op_gather_elements = {
    .name = "GatherElements",
    .since = 11,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_PICKS,
    .attrs_size = sizeof(gather_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_axis,
    .infer = gather_elements_infer,
    .prepare = sb_move_prepare,
    .forward = gather_elements_forward,
    .grad = sb_grad_gather_elements,
};
