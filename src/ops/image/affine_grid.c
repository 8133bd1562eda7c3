/* AffineGrid: the places where GridSample must read to apply an affine map.
 *
 *     grid[n, h, w] = theta[n] (x_w, y_h, 1)      theta: [N, 2, 3]
 *
 * and with one more axis for volumes, theta: [N, 3, 4]. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"

typedef struct {
    int64_t align_corners;
} affine_attrs;

static const sb_attr_def attrs[] = {
    {"align_corners", SB_ATTR_INT, offsetof(affine_attrs, align_corners),
     .i = 0, .flag = true},
    {0},
};

static sb_status affine_infer(sb_infer *in)
{
    const sb_shape *theta = &in->in[0]->type.shape;
    sb_shape size = {0}, out = {.rank = 0};

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (theta->rank >= 0 && theta->rank != 3)
        return sb_infer_fail(in, "theta of rank %d, want 3", theta->rank);
    if (!sb_infer_content(in, 1, &size))
        return SB_OK;
    if (size.rank != 4 && size.rank != 5)
        return sb_infer_fail(in, "size has %d numbers, want 4 or 5", size.rank);
    int n = size.rank - 2;
    const sb_dim want[3] = {size.dim[0], n, n + 1};
    for (int i = 0; i < theta->rank; i++)
        if (sb_dim_known(theta->dim[i]) && sb_dim_known(want[i]) &&
            theta->dim[i] != want[i])
            return sb_infer_fail(in, "dimension %d of theta is %lld, want %lld",
                                 i, (long long)theta->dim[i],
                                 (long long)want[i]);
    out.dim[out.rank++] = size.dim[0];
    for (int i = 2; i < size.rank; i++) {
        if (sb_dim_known(size.dim[i]) && size.dim[i] < 0)
            return sb_infer_fail(in, "size[%d] is %lld", i,
                                 (long long)size.dim[i]);
        out.dim[out.rank++] = size.dim[i];
    }
    out.dim[out.rank++] = n;
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

/* The middle (or, aligned, the corner) of pixel i of n in [-1, 1]. */
static float affine_grid_place(int64_t i, int64_t n, bool align)
{
    if (align)
        return n > 1 ? -1 + 2 * (float)i / (float)(n - 1) : 0;
    return (2 * (float)i + 1) / (float)n - 1;
}

static sb_status affine_forward(sb_kernel *k)
{
    const affine_attrs *a = k->attrs;
    const sb_tensor *y = k->out[0];
    int n = y->rank - 2;
    int64_t n_points = sb_dims_product(y->dims, 1, y->rank - 1);
    const float *theta = k->in[0]->data;
    float *grid = y->data;

    for (int64_t batch = 0; batch < y->dims[0]; batch++) {
        for (int64_t point = 0; point < n_points; point++) {
            float p[4] = {0, 0, 0, 1};
            int64_t rest = point;
            for (int i = 0; i < n; i++) { /* x, the last axis, first */
                int64_t dim = y->dims[n - i];
                p[i] =
                    affine_grid_place(rest % dim, dim, a->align_corners != 0);
                rest /= dim;
            }
            p[n] = 1;
            for (int r = 0; r < n; r++) {
                float sum = 0;
                for (int c = 0; c <= n; c++)
                    sum += theta[r * (n + 1) + c] * p[c];
                *grid++ = sum;
            }
        }
        theta += n * (n + 1);
    }
    return SB_OK;
}

static sb_status affine_prepare(sb_kernel *k)
{
    const sb_tensor *theta = k->in[0], *y = k->out[0];

    if (theta->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "theta of type %s",
                              sb_dtype_name(theta->dtype));
    if (theta->dims[0] != y->dims[0] || theta->dims[1] != y->rank - 2)
        return sb_kernel_fail(k, SB_BAD_DATA, "theta does not fit the size");
    return SB_OK;
}

const sb_op_def sb_op_affine_grid = {
    .name = "AffineGrid",
    .since = 20,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << 1,
    .attrs_size = sizeof(affine_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = affine_infer,
    .prepare = affine_prepare,
    .forward = affine_forward,
    .grad = sb_grad_affine_grid,
};
