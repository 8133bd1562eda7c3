/* Col2Im: puts columns of patches back into images, adding where they overlap.
 *
 *     [N, C * prod(block), L] -> [N, C, image...]
 *
 * L is the number of places where the (dilated, padded, strided) block fits. */
#include <string.h>

#include "base/threads.h"
#include "ops/batch_rules.h"
#include "ops/move/move_util.h"

typedef struct {
    sb_ints dilations, pads, strides;
} col2im_attrs;

static const sb_attr_def attrs[] = {
    {"dilations", SB_ATTR_INTS, offsetof(col2im_attrs, dilations), .i = 0},
    {"pads", SB_ATTR_INTS, offsetof(col2im_attrs, pads), .i = 0},
    {"strides", SB_ATTR_INTS, offsetof(col2im_attrs, strides), .i = 0},
    {0},
};

static int64_t attr_or_1(const sb_ints *v, int i)
{
    return v->n ? v->v[i] : 1;
}

static sb_status check_attrs(const sb_infer *in, const col2im_attrs *a, int n)
{
    size_t want = (size_t)n;

    if ((a->dilations.n && a->dilations.n != want) ||
        (a->strides.n && a->strides.n != want) ||
        (a->pads.n && a->pads.n != 2 * want))
        return sb_infer_fail(in,
                             "%zu dilations, %zu strides, %zu pads for %d "
                             "axes",
                             a->dilations.n, a->strides.n, a->pads.n, n);
    for (int i = 0; i < n; i++)
        if (attr_or_1(&a->dilations, i) < 1 || attr_or_1(&a->strides, i) < 1)
            return sb_infer_fail(in, "dilations and strides must be positive");
    return SB_OK;
}

static sb_status col2im_infer(sb_infer *in)
{
    const sb_shape *x = &in->in[0]->type.shape;
    sb_shape image = {0}, block = {0}, out = {.rank = 2};
    sb_dim per = 1;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (x->rank >= 0 && x->rank != 3)
        return sb_infer_fail(in, "input of rank %d, want 3", x->rank);
    if (!sb_infer_content(in, 1, &image) || !sb_infer_content(in, 2, &block))
        return SB_OK;
    if (image.rank != block.rank || image.rank < 1 ||
        image.rank > SB_MAX_RANK - 2)
        return sb_infer_fail(in, "an image of rank %d with blocks of rank %d",
                             image.rank, block.rank);
    SB_TRY(check_attrs(in, in->attrs, image.rank));
    for (int i = 0; i < block.rank; i++) {
        if ((sb_dim_known(block.dim[i]) && block.dim[i] < 1) ||
            (sb_dim_known(image.dim[i]) && image.dim[i] < 0))
            return sb_infer_fail(in, "axis %d: block %lld, image %lld", i,
                                 (long long)block.dim[i],
                                 (long long)image.dim[i]);
        per = sb_dim_mul(per, block.dim[i]);
        out.dim[out.rank++] = image.dim[i];
    }
    out.dim[0] = x->rank == 3 ? x->dim[0] : SB_DIM_UNKNOWN;
    out.dim[1] = SB_DIM_UNKNOWN;
    if (x->rank == 3 && sb_dim_known(x->dim[1]) && sb_dim_known(per)) {
        if (x->dim[1] % per)
            return sb_infer_fail(in, "%lld channels do not divide by %lld",
                                 (long long)x->dim[1], (long long)per);
        out.dim[1] = x->dim[1] / per;
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

/* Everything about the axes, for the loop. */
typedef struct {
    const float *x;
    float *y;
    int n;
    int64_t image[SB_MAX_RANK], block[SB_MAX_RANK], places[SB_MAX_RANK];
    int64_t pad[SB_MAX_RANK], stride[SB_MAX_RANK], dilation[SB_MAX_RANK];
    int64_t n_image, n_block, n_place;
} col2im_job;

static sb_status make_job(const sb_kernel *k, col2im_job *job)
{
    const col2im_attrs *a = k->attrs;
    const sb_tensor *y = k->out[0];
    int n = y->rank - 2;

    *job = (col2im_job){.x = k->in[0]->data,
                        .y = y->data,
                        .n = n,
                        .n_image = 1,
                        .n_block = 1,
                        .n_place = 1};
    for (int i = 0; i < n; i++) {
        int64_t pads = 0, reach = 0, room = 0;
        job->image[i] = y->dims[i + 2];
        job->block[i] = sb_index_at(k->in[2], i);
        job->pad[i] = a->pads.n ? a->pads.v[i] : 0;
        job->stride[i] = attr_or_1(&a->strides, i);
        job->dilation[i] = attr_or_1(&a->dilations, i);
        if (a->pads.n)
            pads = a->pads.v[i + n];
        if (!sb_mul_i64(job->block[i] - 1, job->dilation[i], &reach) ||
            !sb_add_i64(job->image[i], pads, &room) ||
            !sb_add_i64(room, job->pad[i], &room) ||
            !sb_add_i64(room, -reach, &room))
            room = 0;
        job->places[i] = room > 0 ? (room - 1) / job->stride[i] + 1 : 0;
        if (!sb_mul_i64(job->n_place, job->places[i], &job->n_place))
            job->n_place = -1;
        job->n_image *= job->image[i];
        job->n_block *= job->block[i];
    }
    if (job->n_place != k->in[0]->dims[2])
        return sb_kernel_fail(k, SB_BAD_DATA, "%lld columns, want %lld",
                              (long long)k->in[0]->dims[2],
                              (long long)job->n_place);
    return SB_OK;
}

/* Where element b of the block at place p of the outer axes lies: the start of
 * a row of the image, or -1 if that row is outside. */
static int64_t image_row(const col2im_job *job, int64_t b, int64_t p)
{
    int64_t at = 0, step = job->image[job->n - 1];

    for (int i = job->n - 2; i >= 0; i--) {
        int64_t x = p % job->places[i] * job->stride[i] - job->pad[i] +
                    b % job->block[i] * job->dilation[i];
        if (x < 0 || x >= job->image[i])
            return -1;
        at += x * step;
        step *= job->image[i];
        p /= job->places[i];
        b /= job->block[i];
    }
    return at;
}

/* Adds one row of places. */
static void add_row(const col2im_job *job, int64_t first, const float *x,
                    float *y)
{
    int last = job->n - 1;
    int64_t stride = job->stride[last], n = job->image[last];

    for (int64_t p = 0; p < job->places[last]; p++) {
        int64_t at = first + p * stride;
        if (at >= 0 && at < n)
            y[at] += x[p];
    }
}

/* An item is one channel of one image. */
static void col2im_range(void *arg, size_t begin, size_t end)
{
    const col2im_job *job = arg;
    int last = job->n - 1;
    int64_t n_row = job->n_place / job->places[last];

    for (size_t item = begin; item < end; item++) {
        float *y = job->y + (int64_t)item * job->n_image;
        const float *x = job->x + (int64_t)item * job->n_block * job->n_place;
        memset(y, 0, (size_t)job->n_image * sizeof *y);
        for (int64_t b = 0; b < job->n_block; b++) {
            int64_t first =
                b % job->block[last] * job->dilation[last] - job->pad[last];
            for (int64_t r = 0; r < n_row; r++, x += job->places[last]) {
                int64_t at = image_row(job, b / job->block[last], r);
                if (at >= 0)
                    add_row(job, first, x, y + at);
            }
        }
    }
}

static sb_status col2im_forward(sb_kernel *k)
{
    col2im_job job;

    SB_TRY(make_job(k, &job));
    if (job.n_place == 0 && sb_tensor_count(k->out[0]))
        memset(k->out[0]->data, 0, sb_tensor_bytes(k->out[0]));
    else if (sb_tensor_count(k->out[0]))
        sb_parallel_for(k->ctx,
                        (size_t)(k->out[0]->dims[0] * k->out[0]->dims[1]), 1,
                        col2im_range, &job);
    return SB_OK;
}

static sb_status col2im_prepare(sb_kernel *k)
{
    if (k->in[0]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    return SB_OK;
}

const sb_op_def sb_op_col2im = {
    .name = "Col2Im",
    .since = 18,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << 1 | 1u << 2,
    .attrs_size = sizeof(col2im_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = col2im_infer,
    .prepare = col2im_prepare,
    .forward = col2im_forward,
};
