/* Resize: images (or tensors of any rank) enlarged or reduced.
 *
 * Axes are independent of each other, so each gets a table (resize_table.h).
 * Nearest looks every element up once.  Linear and cubic go axis by axis:
 * first those that shrink, slowest varying first, then those that grow,
 * innermost first, which keeps the tensors in between small.  Only positions
 * outside the region of tf_crop_and_resize are written afterwards. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/image/resize_run.h"
#include "ops/image/resize_table.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    const char *mode, *coord, *round, *policy;
    float cubic_a, extrapolation;
    int64_t exclude_outside, antialias;
    sb_ints axes;
} resize_attrs;

#define AT(field) offsetof(resize_attrs, field)
static const sb_attr_def attrs[] = {
    {"mode", SB_ATTR_STRING, AT(mode), .s = "nearest"},
    {"coordinate_transformation_mode", SB_ATTR_STRING, AT(coord),
     .s = "half_pixel"},
    {"nearest_mode", SB_ATTR_STRING, AT(round), .s = "round_prefer_floor"},
    {"keep_aspect_ratio_policy", SB_ATTR_STRING, AT(policy), .s = "stretch"},
    {"cubic_coeff_a", SB_ATTR_FLOAT, AT(cubic_a), .f = -0.75f},
    {"extrapolation_value", SB_ATTR_FLOAT, AT(extrapolation), .f = 0},
    {"exclude_outside", SB_ATTR_INT, AT(exclude_outside), .i = 0, .flag = true},
    {"antialias", SB_ATTR_INT, AT(antialias), .i = 0, .flag = true},
    {"axes", SB_ATTR_INTS, AT(axes), .i = 0},
    {0},
};
#undef AT

/* Dimensions beyond this are nonsense, and unsafe to convert. */
#define SIZE_MOST 1e15f

/* Wrong names are reported by infer(), which always comes first. */
static bool config_of(const resize_attrs *a, sb_resize_config *c)
{
    c->cubic_a = a->cubic_a;
    c->exclude_outside = a->exclude_outside != 0;
    c->antialias = a->antialias != 0;
    return sb_resize_mode_find(a->mode, &c->mode) &&
           sb_resize_coord_find(a->coord, &c->coord) &&
           sb_resize_round_find(a->round, &c->round);
}

/* ---- sizes -------------------------------------------------------------- */

/* What roi, scales and sizes say of every axis, as far as they are known. */
typedef struct {
    sb_dim out[SB_MAX_RANK];
    float scale[SB_MAX_RANK]; /* 0: not known */
    float lo[SB_MAX_RANK], hi[SB_MAX_RANK];
} resize_plan;

/* The inputs of the operator, seen alike by infer() and prepare(). */
typedef struct {
    const resize_attrs *a;
    int rank;
    const sb_dim *dims;
    const sb_tensor *roi, *scales; /* NULL if absent, empty or unknown */
    sb_shape sizes;                /* rank -1 likewise */
    bool has_scales, has_sizes;
} resize_args;

static int axis_count(const resize_args *r)
{
    return r->a->axes.n ? (int)r->a->axes.n : r->rank;
}

static int axis_at(const resize_args *r, int i)
{
    return r->a->axes.n ? sb_axis_norm(r->a->axes.v[i], r->rank) : i;
}

/* One scale for all axes: the smallest (not_larger) or the largest. */
static float common_scale(const resize_args *r)
{
    bool least = strcmp(r->a->policy, "not_larger") == 0;
    float scale = 0;

    for (int i = 0; i < axis_count(r); i++) {
        sb_dim n = r->dims[axis_at(r, i)], m = r->sizes.dim[i];
        if (!sb_dim_known(n) || !sb_dim_known(m) || n <= 0)
            return 0;
        float s = (float)m / (float)n;
        if (i == 0 || (least ? s < scale : s > scale))
            scale = s;
    }
    return scale;
}

static void plan_by_sizes(const resize_args *r, resize_plan *p)
{
    bool stretch = strcmp(r->a->policy, "stretch") == 0;
    float common = stretch ? 0 : common_scale(r);

    for (int i = 0; i < axis_count(r); i++) {
        int axis = axis_at(r, i);
        sb_dim n = r->dims[axis], m = r->sizes.dim[i];
        if (!stretch) {
            float size = floorf(common * (float)n + 0.5f);
            m = common > 0 && size < SIZE_MOST ? (int64_t)size : SB_DIM_UNKNOWN;
        }
        p->out[axis] = m;
        p->scale[axis] = !stretch ? common
                         : sb_dim_known(n) && sb_dim_known(m) && n > 0
                             ? (float)m / (float)n
                             : 0;
    }
}

/* The size of a cropped region does not count, as in ONNX Runtime. */
static void plan_by_scales(const resize_args *r, resize_plan *p)
{
    for (int i = 0; i < axis_count(r); i++) {
        int axis = axis_at(r, i);
        sb_dim n = r->dims[axis];
        float s = r->scales ? (float)sb_tensor_get_f64(r->scales, i) : 0;
        p->scale[axis] = s;
        if (s == 1)
            continue;
        p->out[axis] = SB_DIM_UNKNOWN;
        float m = (float)n * s;
        if (sb_dim_known(n) && m >= 0 && m < SIZE_MOST && s > 0)
            p->out[axis] = (int64_t)m;
    }
}

static void make_plan(const resize_args *r, resize_plan *p)
{
    int n = axis_count(r);

    *p = (resize_plan){0};
    for (int i = 0; i < r->rank; i++) {
        p->out[i] = r->dims[i];
        p->scale[i] = 1;
        p->lo[i] = 0;
        p->hi[i] = 1;
    }
    for (int i = 0; r->roi && i < n; i++) {
        p->lo[axis_at(r, i)] = (float)sb_tensor_get_f64(r->roi, i);
        p->hi[axis_at(r, i)] = (float)sb_tensor_get_f64(r->roi, i + n);
    }
    if (r->has_sizes)
        plan_by_sizes(r, p);
    else
        plan_by_scales(r, p);
}

/* ---- inference ---------------------------------------------------------- */

static bool is_real(const sb_tensor *t)
{
    return sb_dtype_get(t->dtype)->cls == SB_CLASS_FLOAT &&
           sb_dtype_get(t->dtype)->bits >= 8;
}

/* An empty tensor counts as absent. */
static bool is_given(const sb_infer *in, uint32_t i)
{
    const sb_fact *f = sb_infer_in(in, i);

    return f && !(f->type.shape.rank == 1 && f->type.shape.dim[0] == 0);
}

static sb_status check_attrs(const sb_infer *in, const resize_attrs *a)
{
    sb_resize_config c;

    if (!config_of(a, &c) ||
        (strcmp(a->policy, "stretch") && strcmp(a->policy, "not_larger") &&
         strcmp(a->policy, "not_smaller")))
        return sb_infer_fail(in,
                             "mode '%s', coordinates '%s', rounding '%s', "
                             "policy '%s': one of these is not known",
                             a->mode, a->coord, a->round, a->policy);
    return SB_OK;
}

static sb_status check_axes(const sb_infer *in, const resize_args *r)
{
    bool seen[SB_MAX_RANK] = {false};

    if (r->a->axes.n > (size_t)r->rank)
        return sb_infer_fail(in, "%zu axes for rank %d", r->a->axes.n, r->rank);
    for (size_t i = 0; i < r->a->axes.n; i++) {
        int axis = 0;
        SB_TRY(sb_infer_axis(in, r->a->axes.v[i], r->rank, &axis));
        if (seen[axis])
            return sb_infer_fail(in, "axis %d is given twice", axis);
        seen[axis] = true;
    }
    return SB_OK;
}

static sb_status read_roi(const sb_infer *in, const sb_fact *roi,
                          resize_args *r)
{
    const sb_shape *s = &roi->type.shape;
    int n = 2 * axis_count(r);

    if ((s->rank >= 0 && s->rank != 1) ||
        (s->rank == 1 && sb_dim_known(s->dim[0]) && s->dim[0] != n) ||
        (roi->type.dtype && !sb_dtype_is_float(roi->type.dtype)))
        return sb_infer_fail(in, "roi is not a list of %d floats", n);
    r->roi = roi->constant;
    return SB_OK;
}

/* Reads roi, scales, sizes and checks their lengths. */
static sb_status read_args(const sb_infer *in, resize_args *r)
{
    const sb_fact *roi = sb_infer_in(in, 1), *scales = sb_infer_in(in, 2);
    int n = axis_count(r);

    r->has_scales = is_given(in, 2);
    r->has_sizes = is_given(in, 3);
    if (r->has_scales == r->has_sizes)
        return sb_infer_fail(in, "want either scales or sizes");
    if (is_given(in, 1) && strcmp(r->a->coord, "tf_crop_and_resize") == 0)
        SB_TRY(read_roi(in, roi, r));
    if (r->has_scales && scales->constant) {
        if (!is_real(scales->constant) ||
            sb_tensor_count(scales->constant) != n)
            return sb_infer_fail(in, "%lld scales for %d axes",
                                 (long long)sb_tensor_count(scales->constant),
                                 n);
        r->scales = scales->constant;
        for (int i = 0; i < n; i++)
            if (!(sb_tensor_get_f64(r->scales, i) > 0))
                return sb_infer_fail(in, "scales[%d] is %g", i,
                                     sb_tensor_get_f64(r->scales, i));
    }
    if (r->has_sizes && !sb_infer_content(in, 3, &r->sizes))
        r->sizes = sb_shape_of_rank(n);
    if (r->has_sizes && r->sizes.rank != n)
        return sb_infer_fail(in, "%d sizes for %d axes", r->sizes.rank, n);
    return SB_OK;
}

static sb_status resize_infer(sb_infer *in)
{
    sb_shape out = in->in[0]->type.shape;
    resize_args r = {.a = in->attrs, .rank = out.rank, .dims = out.dim};
    resize_plan p;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    SB_TRY(check_attrs(in, r.a));
    if (out.rank < 0)
        return SB_OK;
    SB_TRY(check_axes(in, &r));
    SB_TRY(read_args(in, &r));
    make_plan(&r, &p);
    for (int i = 0; i < out.rank; i++) {
        if (sb_dim_known(p.out[i]) &&
            (p.out[i] < 0 || (out.dim[i] == 0 && p.out[i] > 0)))
            return sb_infer_fail(in, "axis %d of %lld cannot become %lld", i,
                                 (long long)out.dim[i], (long long)p.out[i]);
    }
    memcpy(out.dim, p.out, sizeof out.dim);
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

static const sb_tensor *resize_given(const sb_kernel *k, uint32_t i)
{
    const sb_tensor *t = sb_kernel_in(k, i);

    return t && t->data && sb_tensor_count(t) > 0 ? t : NULL;
}

/* Scale and region of every axis; the sizes are those of the output. */
static void kernel_plan(const sb_kernel *k, resize_plan *p)
{
    const sb_tensor *x = k->in[0], *y = k->out[0], *sizes = sb_kernel_in(k, 3);
    resize_args r = {.a = k->attrs, .rank = x->rank, .dims = x->dims};

    if (strcmp(r.a->coord, "tf_crop_and_resize") == 0)
        r.roi = resize_given(k, 1);
    r.scales = resize_given(k, 2);
    r.has_sizes = !r.scales;
    r.sizes = sb_shape_of_rank(axis_count(&r));
    if (sizes && sizes->data && sb_tensor_count(sizes) == r.sizes.rank)
        for (int i = 0; i < r.sizes.rank; i++)
            r.sizes.dim[i] = sb_index_at(sizes, i);
    make_plan(&r, p);
    for (int i = 0; i < x->rank; i++) {
        p->out[i] = y->dims[i];
        if (!(p->scale[i] > 0))
            p->scale[i] =
                x->dims[i] ? (float)y->dims[i] / (float)x->dims[i] : 1;
    }
}

static bool needs_roi(const sb_kernel *k)
{
    const resize_attrs *a = k->attrs;
    const sb_tensor *roi = sb_kernel_in(k, 1);

    return strcmp(a->coord, "tf_crop_and_resize") == 0 && roi && !roi->data;
}

static sb_status resize_prepare(sb_kernel *k)
{
    const resize_attrs *a = k->attrs;
    sb_resize_config c = {0};
    resize_plan p;

    SB_TRY(sb_move_prepare(k));
    (void)config_of(a, &c);
    if (c.mode != SB_RESIZE_NEAREST &&
        sb_dtype_get(k->in[0]->dtype)->cls == SB_CLASS_OTHER)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    kernel_plan(k, &p);
    SB_TRY(sb_resize_create(k, &c, p.scale, a->extrapolation));
    if (!needs_roi(k))
        sb_resize_set_region(k->state, p.lo, p.hi);
    return SB_OK;
}

static sb_status resize_forward(sb_kernel *k)
{
    const resize_attrs *a = k->attrs;
    resize_plan p;

    if (sb_tensor_count(k->out[0]) == 0)
        return SB_OK;
    /* A region that was not a constant is known only now. */
    if (strcmp(a->coord, "tf_crop_and_resize") == 0) {
        kernel_plan(k, &p);
        sb_resize_set_region(k->state, p.lo, p.hi);
    }
    sb_resize_run(k);
    return SB_OK;
}

static bool resize_interpolates(const sb_node *node)
{
    return !sb_node_string_is(node, "mode", "nearest", true);
}

const sb_op_def sb_op_resize = {
    .name = "Resize",
    .interpolates = resize_interpolates,
    .since = 19,
    .quant = SB_ROLE_SINGLE,
    .in_min = 1,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(resize_attrs),
    .attrs = attrs,
    .batch = sb_batch_if_kept,
    .infer = resize_infer,
    .layout = sb_move_layout,
    .prepare = resize_prepare,
    .forward = resize_forward,
    .grad = sb_grad_resize,
    .tie = sb_tie_resize,
    .recut = sb_recut_resize,
};
