/* STFT: Fourier transforms of windowed frames of a signal.
 *
 * signal [batch, length, 1 or 2] -> [batch, frames, bins, 2], where
 * frames = (length - frame_length) / frame_step + 1.  A real signal may also be
 * [batch, length]: exporters write that and ONNX Runtime takes it. */
#include <string.h>

#include "base/threads.h"
#include "ops/infer_util.h"
#include "ops/signal/fft.h"

enum { SIGNAL, STEP, WINDOW, LENGTH };

typedef struct stft_attrs {
    int64_t onesided;
} stft_attrs;

static const sb_attr_def stft_attr_defs[] = {
    {.name = "onesided",
     SB_ATTR_INT,
     offsetof(stft_attrs, onesided),
     .i = 1,
     .flag = true},
    {0},
};

/* Frame length from the inputs; unknown if they are. */
static sb_dim frame_length(const sb_infer *in)
{
    const sb_fact *window = sb_infer_in(in, WINDOW);
    int64_t n = 0;

    if (sb_infer_in(in, LENGTH))
        return sb_infer_ints(in, LENGTH, &n, 1) == 1 ? n : SB_DIM_UNKNOWN;
    if (window)
        return window->type.shape.rank == 1 ? window->type.shape.dim[0]
                                            : SB_DIM_UNKNOWN;
    return in->in[SIGNAL]->type.shape.dim[1];
}

static sb_status stft_infer(sb_infer *in)
{
    const stft_attrs *a = in->attrs;
    const sb_shape *x = &in->in[SIGNAL]->type.shape;
    sb_shape out = sb_shape_of_rank(4);
    int64_t step = 0;

    out.dim[3] = 2;
    if (x->rank < 0) {
        sb_infer_set(in, 0, in->in[SIGNAL]->type.dtype, &out);
        return SB_OK;
    }
    if (x->rank != 2 && x->rank != 3)
        return sb_infer_fail(in, "signal has rank %d, want 2 or 3", x->rank);
    sb_dim n = frame_length(in);
    out.dim[0] = x->dim[0];
    if (sb_dim_known(n)) {
        if (n < 1)
            return sb_infer_fail(in, "frame length is %lld", (long long)n);
        out.dim[2] = a->onesided ? n / 2 + 1 : n;
    }
    if (sb_infer_ints(in, STEP, &step, 1) == 1) {
        if (step < 1)
            return sb_infer_fail(in, "frame step is %lld", (long long)step);
        if (sb_dim_known(n) && sb_dim_known(x->dim[1])) {
            if (x->dim[1] < n)
                return sb_infer_fail(in,
                                     "signal of %lld is shorter than a "
                                     "frame of %lld",
                                     (long long)x->dim[1], (long long)n);
            out.dim[1] = (x->dim[1] - n) / step + 1;
        }
    }
    sb_infer_set(in, 0, in->in[SIGNAL]->type.dtype, &out);
    return SB_OK;
}

typedef struct stft_state {
    sb_fft_slots slots;
    int64_t step;
} stft_state;

static sb_status stft_prepare(sb_kernel *k)
{
    const sb_tensor *x = k->in[SIGNAL], *window = sb_kernel_in(k, WINDOW);
    int64_t n = window ? sb_tensor_count(window) : x->dims[1];
    int64_t step = 0;

    if (sb_kernel_ints(k, STEP, &step, 1) != 1 || step < 1)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "frame_step must be one known integer > 0");
    if (sb_kernel_in(k, LENGTH) && sb_kernel_ints(k, LENGTH, &n, 1) != 1)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "frame_length must be one known integer");
    int64_t parts = x->rank == 3 ? x->dims[2] : 1;
    if ((x->rank != 2 && x->rank != 3) || parts < 1 || parts > 2 || n < 1 ||
        n > x->dims[1])
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "signal must be [batch, length, 1 or 2] with "
                              "length at least %lld",
                              (long long)n);
    if (window && sb_tensor_count(window) != n)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "window has %lld elements, want %lld",
                              (long long)sb_tensor_count(window), (long long)n);

    stft_state *s = sb_alloc(k->ctx, 1, sizeof *s);
    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    s->step = step;
    return sb_fft_slots_make(k->ctx, n, &s->slots, &k->scratch_size);
}

static void stft_release(sb_kernel *k)
{
    stft_state *s = k->state;

    if (s)
        sb_fft_free(k->ctx, s->slots.fft);
    sb_free(k->ctx, s);
    k->state = NULL;
}

typedef struct stft_job {
    const stft_state *s;
    const float *x, *window;
    float *y;
    double *scratch;
    int64_t n_batch, n_frame, n_bin, length, x_part;
} stft_job;

static void stft_frame(const stft_job *j, int64_t frame, double *v)
{
    int64_t n = j->s->slots.fft->n, batch = frame / j->n_frame;
    int64_t start = frame % j->n_frame * j->s->step;
    const float *x = j->x + (batch * j->length + start) * j->x_part;
    float *y = j->y + frame * j->n_bin * 2;

    for (int64_t i = 0; i < n; i++) {
        double w = j->window ? (double)j->window[i] : 1;

        v[2 * i] = w * (double)x[i * j->x_part];
        v[2 * i + 1] = j->x_part > 1 ? w * (double)x[2 * i + 1] : 0;
    }
    sb_fft_run(j->s->slots.fft, false, v, v + 2 * n);
    for (int64_t i = 0; i < 2 * j->n_bin; i++)
        y[i] = (float)v[i];
}

static void stft_slots(void *arg, size_t begin, size_t end)
{
    const stft_job *j = arg;
    int64_t total = j->n_batch * j->n_frame;

    for (size_t slot = begin; slot < end; slot++) {
        double *v = j->scratch + slot * j->s->slots.size;
        int64_t last = (int64_t)(slot + 1) * total / j->s->slots.n;

        for (int64_t f = (int64_t)slot * total / j->s->slots.n; f < last; f++)
            stft_frame(j, f, v);
    }
}

static sb_status stft_forward(sb_kernel *k)
{
    const stft_state *s = k->state;
    const sb_tensor *x = k->in[SIGNAL], *window = sb_kernel_in(k, WINDOW);
    const sb_tensor *y = k->out[0];
    stft_job job = {
        .s = s,
        .x = x->data,
        .window = window ? window->data : NULL,
        .y = y->data,
        .scratch = k->scratch,
        .n_batch = x->dims[0],
        .n_frame = y->dims[1],
        .n_bin = y->dims[2],
        .length = x->dims[1],
        .x_part = x->rank == 3 ? x->dims[2] : 1,
    };

    sb_parallel_for(k->ctx, (size_t)s->slots.n, 1, stft_slots, &job);
    return SB_OK;
}

const sb_op_def sb_op_stft = {
    .name = "STFT",
    .since = 17,
    .in_min = 2,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << STEP | 1u << LENGTH,
    .attrs_size = sizeof(stft_attrs),
    .attrs = stft_attr_defs,
    .infer = stft_infer,
    .prepare = stft_prepare,
    .forward = stft_forward,
    .release = stft_release,
};
