/* Pad: grows (or, with negative pads, cuts) a tensor along some axes.
 *
 * Cutting comes first; what is left is then continued by a constant, by its
 * edge, or by itself mirrored (reflect) or repeated (wrap).  A pad may be
 * longer than the tensor: the mirror then goes to and fro.  Axes do not
 * influence each other, so one table for each axis says which input element
 * every output element comes from. */
#include <string.h>

#include "base/threads.h"
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    const char *mode;
} pad_attrs;

static const sb_attr_def attrs[] = {
    {"mode", SB_ATTR_STRING, offsetof(pad_attrs, mode), .s = "constant"},
    {0},
};

typedef enum {
    PAD_CONSTANT,
    PAD_EDGE,
    PAD_REFLECT,
    PAD_WRAP,
    PAD_BAD
} pad_mode;

static pad_mode pad_mode_of(const char *name)
{
    static const char *const names[] = {"constant", "edge", "reflect", "wrap"};

    for (int i = 0; i < PAD_BAD; i++)
        if (strcmp(name, names[i]) == 0)
            return (pad_mode)i;
    return PAD_BAD;
}

/* Pads of every axis; those that are not known become unknown. */
static sb_status pad_infer_pads(const sb_infer *in, int rank, sb_dim *begin,
                                sb_dim *end, bool *known)
{
    int64_t axes[SB_MAX_RANK], pads[2 * SB_MAX_RANK];
    int64_t n_axes = rank, n = sb_infer_ints(in, 1, pads, 2 * SB_MAX_RANK);

    *known = false;
    for (int i = 0; i < rank; i++)
        begin[i] = end[i] = 0;
    if (sb_infer_in(in, 3)) {
        n_axes = sb_infer_ints(in, 3, axes, SB_MAX_RANK);
        if (n_axes < 0)
            return SB_OK;
        if (n_axes > rank)
            return sb_infer_fail(in, "%lld axes for rank %d", (long long)n_axes,
                                 rank);
    } else {
        for (int i = 0; i < rank; i++)
            axes[i] = i;
    }
    if (n >= 0 && n != 2 * n_axes)
        return sb_infer_fail(in, "%lld pads for %lld axes", (long long)n,
                             (long long)n_axes);
    for (int64_t i = 0; i < n_axes; i++) {
        int axis = 0;
        SB_TRY(sb_infer_axis(in, axes[i], rank, &axis));
        begin[axis] = n >= 0 ? pads[i] : SB_DIM_UNKNOWN;
        end[axis] = n >= 0 ? pads[i + n_axes] : SB_DIM_UNKNOWN;
    }
    *known = true;
    return SB_OK;
}

static sb_status pad_infer(sb_infer *in)
{
    const pad_attrs *a = in->attrs;
    sb_dim begin[SB_MAX_RANK], end[SB_MAX_RANK];
    sb_shape out = in->in[0]->type.shape;
    pad_mode mode = pad_mode_of(a->mode);
    bool known = false;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (mode == PAD_BAD)
        return sb_infer_fail(in,
                             "mode '%s', want constant, edge, reflect or "
                             "wrap",
                             a->mode);
    SB_TRY(sb_infer_want_ints(in, 1));
    SB_TRY(sb_infer_want_ints(in, 3));
    if (out.rank < 0)
        return SB_OK;
    SB_TRY(pad_infer_pads(in, out.rank, begin, end, &known));
    for (int i = 0; i < out.rank; i++) {
        sb_dim x = out.dim[i];
        sb_dim left = sb_dim_add(
            x, sb_dim_known(begin[i]) && begin[i] < 0 ? begin[i] : 0);
        left =
            sb_dim_add(left, sb_dim_known(end[i]) && end[i] < 0 ? end[i] : 0);
        out.dim[i] = known ? sb_dim_add(sb_dim_add(x, begin[i]), end[i])
                           : SB_DIM_UNKNOWN;
        if (!sb_dim_known(x) || !sb_dim_known(out.dim[i]))
            continue;
        if (out.dim[i] < 0 || left < 0 ||
            (left == 0 && out.dim[i] > 0 && mode != PAD_CONSTANT))
            return sb_infer_fail(in,
                                 "axis %d of %lld cannot be padded by %lld "
                                 "and %lld",
                                 i, (long long)x, (long long)begin[i],
                                 (long long)end[i]);
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

static void pad_read(const sb_kernel *k, int64_t *begin, int64_t *end)
{
    const sb_tensor *pads = k->in[1], *axes = sb_kernel_in(k, 3);
    int rank = k->in[0]->rank;
    int64_t n = axes ? sb_tensor_count(axes) : rank;

    for (int i = 0; i < rank; i++)
        begin[i] = end[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        int axis = sb_axis_norm(axes ? sb_index_at(axes, i) : i, rank);
        begin[axis] = sb_index_at(pads, i);
        end[axis] = sb_index_at(pads, i + n);
    }
}

static sb_status pad_prepare(sb_kernel *k)
{
    const sb_tensor *y = k->out[0];
    size_t n = 0;

    for (int i = 0; i < y->rank; i++)
        n += (size_t)y->dims[i];
    k->scratch_size = n * sizeof(int64_t);
    return sb_move_prepare(k);
}

static sb_status pad_value(const sb_kernel *k, void *value)
{
    const sb_tensor *x = k->in[0], *v = sb_kernel_in(k, 2);

    memset(value, 0, 16);
    if (!v || !v->data)
        return SB_OK;
    if (v->dtype != x->dtype || sb_tensor_count(v) < 1)
        return sb_kernel_fail(k, SB_BAD_MODEL, "constant_value is %s, want %s",
                              sb_dtype_name(v->dtype), sb_dtype_name(x->dtype));
    memcpy(value, v->data, sb_dtype_size(x->dtype));
    return SB_OK;
}

/* Where position i of an axis with n elements comes from; -1: a constant. */
static int64_t pad_source(pad_mode mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    if (mode == PAD_CONSTANT)
        return -1;
    if (mode == PAD_EDGE || n == 1)
        return i < 0 ? 0 : n - 1;
    int64_t period = mode == PAD_WRAP ? n : 2 * (n - 1);
    int64_t m = i % period;
    m = m < 0 ? m + period : m;
    return m < n ? m : period - m;
}

typedef struct {
    const char *src;
    char *dst;
    size_t elem;
    int rank;
    int64_t dims[SB_MAX_RANK];         /* of y, as it lies */
    const int64_t *table[SB_MAX_RANK]; /* offsets in x, in elements; or -1 */
    int64_t lead, inside; /* of the last axis: pads before x, elements of x */
    unsigned char value[16];
} pad_job;

/* Elements [from, to) of a row, outside x. */
static void pad_edge(const pad_job *job, const char *src, char *dst,
                     int64_t from, int64_t to)
{
    const int64_t *table = job->table[job->rank - 1];
    size_t elem = job->elem;

    if (from < to && table[from] < 0) {
        sb_fill(dst + (size_t)from * elem, elem, job->value, to - from);
        return;
    }
    for (int64_t j = from; j < to; j++)
        memcpy(dst + (size_t)j * elem, src + (size_t)table[j] * elem, elem);
}

static void pad_rows(void *arg, size_t begin, size_t end)
{
    const pad_job *job = arg;
    int last = job->rank - 1;
    int64_t n = job->dims[last];
    const int64_t *table = job->table[last];
    size_t elem = job->elem;

    for (size_t row = begin; row < end; row++) {
        int64_t rest = (int64_t)row, at = 0;
        bool outside = false;
        for (int i = last - 1; i >= 0; i--) {
            int64_t from = job->table[i][rest % job->dims[i]];
            outside = outside || from < 0;
            at += from;
            rest /= job->dims[i];
        }
        char *dst = job->dst + row * (size_t)n * elem;
        if (outside || job->inside == 0) {
            sb_fill(dst, elem, job->value, n);
            continue;
        }
        const char *src = job->src + (size_t)at * elem;
        pad_edge(job, src, dst, 0, job->lead);
        memcpy(dst + (size_t)job->lead * elem,
               src + (size_t)table[job->lead] * elem,
               (size_t)job->inside * elem);
        pad_edge(job, src, dst, job->lead + job->inside, n);
    }
}

static sb_status pad_forward(sb_kernel *k)
{
    const pad_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    sb_tensor *y = k->out[0];
    pad_mode mode = pad_mode_of(a->mode);
    int64_t begin[SB_MAX_RANK], end[SB_MAX_RANK], stride[SB_MAX_RANK];
    int64_t *table = k->scratch;
    pad_job job = {.src = x->data,
                   .dst = y->data,
                   .elem = sb_dtype_size(x->dtype),
                   .rank = y->rank};

    if (sb_tensor_count(y) == 0)
        return SB_OK;
    if (x->rank == 0)
        return sb_view_forward(k);
    SB_TRY(pad_value(k, job.value));
    pad_read(k, begin, end);
    sb_tensor_strides(x, stride);
    for (int i = 0; i < x->rank; i++) {
        int d = sb_tensor_dim_at(x, i);
        int64_t cut = begin[d] < 0 ? -begin[d] : 0;
        int64_t n = x->dims[d] - cut + (end[d] < 0 ? end[d] : 0);
        int64_t lead = begin[d] > 0 ? begin[d] : 0;
        job.dims[i] = y->dims[d];
        job.table[i] = table;
        for (int64_t j = 0; j < y->dims[d]; j++) {
            int64_t from = pad_source(mode, j - lead, n);
            *table++ = from < 0 ? -1 : (from + cut) * stride[d];
        }
        job.lead = lead;
        job.inside = n > 0 ? n : 0;
    }
    int64_t row = job.dims[y->rank - 1];
    sb_parallel_for(k->ctx, (size_t)(sb_tensor_count(y) / row),
                    (size_t)(8192 / row + 1), pad_rows, &job);
    return SB_OK;
}

const sb_op_def sb_op_pad = {
    .name = "Pad",
    .since = 19, /* 18 without "wrap" */
    .quant = SB_ROLE_PASS,
    .in_min = 2,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(pad_attrs),
    .attrs = attrs,
    .batch = sb_batch_pad,
    .infer = pad_infer,
    .layout = sb_move_layout,
    .prepare = pad_prepare,
    .forward = pad_forward,
    .grad = sb_grad_pad,
    .tie = sb_tie_pad,
    .recut = sb_recut_pad,
};
