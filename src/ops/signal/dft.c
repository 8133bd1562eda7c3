/* DFT: discrete Fourier transform along one axis of [..., 1 or 2].
 *
 * The last dimension holds real and imaginary part.  One-sided forward
 * transforms return the first n/2 + 1 bins; the one-sided inverse completes a
 * half spectrum by symmetry and returns real numbers. */
#include <string.h>

#include "base/threads.h"
#include "ops/infer_util.h"
#include "ops/signal/fft.h"

typedef struct dft_attrs {
    int64_t inverse, onesided;
} dft_attrs;

static const sb_attr_def dft_attr_defs[] = {
    {.name = "inverse",
     SB_ATTR_INT,
     offsetof(dft_attrs, inverse),
     .flag = true},
    {.name = "onesided",
     SB_ATTR_INT,
     offsetof(dft_attrs, onesided),
     .flag = true},
    {0},
};

static sb_status dft_infer(sb_infer *in)
{
    const dft_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    bool half = a->onesided != 0, inverse = a->inverse != 0;
    int64_t axis = -2, n = 0;
    int at = 0;

    if (x->rank < 0 ||
        (sb_infer_in(in, 2) && sb_infer_ints(in, 2, &axis, 1) < 1)) {
        sb_shape out =
            x->rank < 0 ? sb_shape_unknown() : sb_shape_of_rank(x->rank);
        sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
        return SB_OK;
    }
    sb_shape out = *x;
    SB_TRY(sb_infer_axis(in, axis, x->rank, &at));
    if (at == x->rank - 1)
        return sb_infer_fail(in, "axis %lld is that of the complex parts",
                             (long long)axis);
    if (!sb_infer_in(in, 1)) {
        if (half && inverse && sb_dim_known(x->dim[at]))
            out.dim[at] = 2 * (x->dim[at] - 1);
        else if (half && inverse)
            out.dim[at] = SB_DIM_UNKNOWN;
    } else if (sb_infer_ints(in, 1, &n, 1) == 1) {
        out.dim[at] = n;
    } else {
        out.dim[at] = SB_DIM_UNKNOWN;
    }
    if (sb_dim_known(out.dim[at]) && out.dim[at] < 1)
        return sb_infer_fail(in, "length of the transform is %lld",
                             (long long)out.dim[at]);
    if (half && !inverse)
        out.dim[at] =
            sb_dim_known(out.dim[at]) ? out.dim[at] / 2 + 1 : SB_DIM_UNKNOWN;
    out.dim[out.rank - 1] = half && inverse ? 1 : 2;
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

typedef struct dft_state {
    sb_fft_slots slots;
    int axis;
} dft_state;

static sb_status dft_length(const sb_kernel *k, int axis, int64_t *n)
{
    const dft_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];

    *n = x->dims[axis];
    if (a->onesided && a->inverse)
        *n = 2 * (*n - 1);
    if (sb_kernel_in(k, 1) && sb_kernel_ints(k, 1, n, 1) != 1)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "dft_length must be one known integer");
    if (*n < 1)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "length of the transform is %lld", (long long)*n);
    return SB_OK;
}

static sb_status dft_prepare(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    int64_t axis = -2, n = 0;
    int64_t parts = x->rank > 0 ? x->dims[x->rank - 1] : 0;

    if (x->rank < 2 || parts < 1 || parts > 2)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "input must have 1 or 2 as last dimension");
    if (sb_kernel_in(k, 2) && sb_kernel_ints(k, 2, &axis, 1) != 1)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "axis must be one known integer");
    axis += axis < 0 ? x->rank : 0;
    if (axis < 0 || axis >= x->rank - 1)
        return sb_kernel_fail(k, SB_BAD_MODEL, "axis is outside the signal");
    SB_TRY(dft_length(k, (int)axis, &n));

    dft_state *s = sb_alloc(k->ctx, 1, sizeof *s);
    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    s->axis = (int)axis;
    return sb_fft_slots_make(k->ctx, n, &s->slots, &k->scratch_size);
}

static void dft_release(sb_kernel *k)
{
    dft_state *s = k->state;

    if (s)
        sb_fft_free(k->ctx, s->slots.fft);
    sb_free(k->ctx, s);
    k->state = NULL;
}

typedef struct dft_job {
    const dft_state *s;
    const float *x;
    float *y;
    double *scratch;
    int64_t n_line, inner;  /* transforms; step along the axis, in elements */
    int64_t x_axis, y_axis; /* lengths along the axis */
    int64_t x_part, y_part; /* 1 or 2 */
    bool inverse, complete; /* complete: half spectrum in, real numbers out */
} dft_job;

static void load_line(const dft_job *j, int64_t line, double *v)
{
    int64_t n = j->s->slots.fft->n, take = j->complete ? n / 2 + 1 : n;
    int64_t outer = line / j->inner, in = line % j->inner;

    take = take < j->x_axis ? take : j->x_axis;
    memset(v, 0, (size_t)n * 2 * sizeof *v);
    for (int64_t i = 0; i < take; i++) {
        int64_t at = ((outer * j->x_axis + i) * j->inner + in) * j->x_part;

        v[2 * i] = (double)j->x[at];
        v[2 * i + 1] = j->x_part > 1 ? (double)j->x[at + 1] : 0;
    }
    if (!j->complete)
        return;
    v[1] = 0; /* the ends of a real signal's spectrum are real */
    if (n % 2 == 0)
        v[n + 1] = 0;
    for (int64_t i = n / 2 + 1; i < n; i++) {
        v[2 * i] = v[2 * (n - i)];
        v[2 * i + 1] = -v[2 * (n - i) + 1];
    }
}

static void dft_slots(void *arg, size_t begin, size_t end)
{
    const dft_job *j = arg;

    for (size_t slot = begin; slot < end; slot++) {
        double *v = j->scratch + slot * j->s->slots.size;
        int64_t first = (int64_t)slot * j->n_line / j->s->slots.n;
        int64_t last = (int64_t)(slot + 1) * j->n_line / j->s->slots.n;

        for (int64_t line = first; line < last; line++) {
            int64_t outer = line / j->inner, in = line % j->inner;

            load_line(j, line, v);
            sb_fft_run(j->s->slots.fft, j->inverse, v,
                       v + 2 * j->s->slots.fft->n);
            for (int64_t i = 0; i < j->y_axis; i++) {
                int64_t at =
                    ((outer * j->y_axis + i) * j->inner + in) * j->y_part;

                j->y[at] = (float)v[2 * i];
                if (j->y_part > 1)
                    j->y[at + 1] = (float)v[2 * i + 1];
            }
        }
    }
}

static sb_status dft_forward(sb_kernel *k)
{
    const dft_attrs *a = k->attrs;
    const dft_state *s = k->state;
    const sb_tensor *x = k->in[0], *y = k->out[0];
    dft_job job = {
        .s = s,
        .x = x->data,
        .y = y->data,
        .scratch = k->scratch,
        .inner = sb_dims_product(x->dims, s->axis + 1, x->rank - 1),
        .x_axis = x->dims[s->axis],
        .y_axis = y->dims[s->axis],
        .x_part = x->dims[x->rank - 1],
        .y_part = y->dims[y->rank - 1],
        .inverse = a->inverse != 0,
        .complete = a->inverse && a->onesided,
    };

    job.n_line = sb_dims_product(x->dims, 0, s->axis) * job.inner;
    sb_parallel_for(k->ctx, (size_t)s->slots.n, 1, dft_slots, &job);
    return SB_OK;
}

const sb_op_def sb_op_dft = {
    .name = "DFT",
    .since = 20,
    .in_min = 1,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << 1 | 1u << 2,
    .attrs_size = sizeof(dft_attrs),
    .attrs = dft_attr_defs,
    .infer = dft_infer,
    .prepare = dft_prepare,
    .forward = dft_forward,
    .release = dft_release,
};
