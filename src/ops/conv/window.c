/* The geometry of sliding windows. */
#include "ops/conv/window.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Sizes, strides and pads beyond this are refused, so that sums of a few
 * products of two of them cannot overflow. */
#define WINDOW_MOST ((int64_t)1 << 31)
/* So are windows of more taps than this that lie in the pads for the most
 * part: no model means them, and kernels go through them tap by tap. */
#define TAPS_OUTSIDE 65536

static sb_status who_fail(const sb_window_who *who, const char *fmt, ...)
    SB_PRINTF(2, 3);

static sb_status who_fail(const sb_window_who *who, const char *fmt, ...)
{
    char text[SB_ERROR_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sb_fail(who->ctx, SB_BAD_MODEL, "node '%s' (%s): %s",
                   sb_node_label(who->graph, who->node), who->node->op, text);
}

/* Attribute `name` into out[0, n), all in [least, WINDOW_MOST]; `dflt` where it
 * is absent. */
static sb_status read_ints(const sb_window_who *who, const char *name,
                           sb_ints list, size_t n, int64_t least, int64_t dflt,
                           int64_t *out)
{
    if (list.n && list.n != n)
        return who_fail(who, "%s has %zu numbers, want %zu", name, list.n, n);
    for (size_t i = 0; i < n; i++) {
        out[i] = list.n ? list.v[i] : dflt;
        if (out[i] < least || out[i] > WINDOW_MOST)
            return who_fail(who, "%s[%zu] is %lld, want %lld to %lld", name, i,
                            (long long)out[i], (long long)least,
                            (long long)WINDOW_MOST);
    }
    return SB_OK;
}

sb_status sb_window_auto_pad(const sb_window_who *who, const sb_window_attrs *a,
                             sb_auto_pad *out)
{
    static const char *const names[] = {"NOTSET", "VALID", "SAME_UPPER",
                                        "SAME_LOWER"};

    for (size_t i = 0; i < SB_COUNT(names); i++)
        if (strcmp(a->auto_pad, names[i]) == 0) {
            *out = (sb_auto_pad)i;
            return SB_OK;
        }
    if (a->auto_pad[0] == '\0') {
        *out = SB_PAD_NOTSET;
        return SB_OK;
    }
    return who_fail(who,
                    "auto_pad is '%s', want NOTSET, VALID, SAME_UPPER or "
                    "SAME_LOWER",
                    a->auto_pad);
}

static sb_status read_kernel(const sb_window_who *who, const sb_window_attrs *a,
                             const sb_shape *weights, sb_window *w)
{
    if (a->kernel_shape.n) {
        SB_TRY(read_ints(who, "kernel_shape", a->kernel_shape, (size_t)w->n, 1,
                         1, w->kernel));
        for (int i = 0; weights && weights->rank == w->n + 2 && i < w->n; i++)
            if (sb_dim_known(weights->dim[i + 2]) &&
                weights->dim[i + 2] != w->kernel[i])
                return who_fail(who,
                                "kernel_shape[%d] is %lld, but the "
                                "weights have %lld",
                                i, (long long)w->kernel[i],
                                (long long)weights->dim[i + 2]);
        return SB_OK;
    }
    if (!weights)
        return who_fail(who, "attribute 'kernel_shape' is missing");
    for (int i = 0; i < w->n; i++) {
        if (weights->rank < 0 || !sb_dim_known(weights->dim[i + 2])) {
            w->n = 0;
            return SB_OK;
        }
        w->kernel[i] = weights->dim[i + 2];
        if (w->kernel[i] < 1 || w->kernel[i] > WINDOW_MOST)
            return who_fail(who, "kernel size %d is %lld", i,
                            (long long)w->kernel[i]);
    }
    return SB_OK;
}

/* The rank of the input: attributes are checked even if only the weights or
 * kernel_shape tell it, for passes compute with them. */
static int window_rank(const sb_window_attrs *a, const sb_shape *x,
                       const sb_shape *weights)
{
    if (x->rank >= 0)
        return x->rank;
    if (weights && weights->rank >= 0)
        return weights->rank;
    if (a->kernel_shape.n == 0)
        return -1;
    return a->kernel_shape.n < SB_MAX_SPATIAL ? (int)a->kernel_shape.n + 2
                                              : SB_MAX_RANK;
}

sb_status sb_window_read(const sb_window_who *who, const sb_window_attrs *a,
                         const sb_shape *x, const sb_shape *weights,
                         sb_window *out)
{
    sb_window w = {.n = 0};
    int64_t pads[2 * SB_MAX_SPATIAL] = {0};
    int rank = window_rank(a, x, weights);

    *out = w;
    if (rank >= 0 && rank < 3)
        return who_fail(who, "input of rank %d, want at least 3", rank);
    if (weights && weights->rank >= 0 && weights->rank != rank)
        return who_fail(who, "weights of rank %d, want %d", weights->rank,
                        rank);
    if (rank < 0)
        return SB_OK;
    w.n = rank - 2;
    SB_TRY(read_kernel(who, a, weights, &w));
    if (w.n == 0)
        return SB_OK;
    SB_TRY(read_ints(who, "strides", a->strides, (size_t)w.n, 1, 1, w.stride));
    SB_TRY(read_ints(who, "dilations", a->dilations, (size_t)w.n, 1, 1,
                     w.dilation));
    SB_TRY(read_ints(who, "pads", a->pads, (size_t)w.n * 2, -WINDOW_MOST, 0,
                     pads));
    for (int i = 0; i < w.n; i++) {
        w.pad_lo[i] = pads[i];
        w.pad_hi[i] = pads[i + w.n];
        w.in[i] = x->rank < 0 ? SB_DIM_UNKNOWN : x->dim[i + 2];
        w.out[i] = SB_DIM_UNKNOWN;
        if (sb_dim_known(w.in[i]) && w.in[i] > WINDOW_MOST)
            return who_fail(who, "input size %lld is too large",
                            (long long)w.in[i]);
        int64_t reach = 0;
        if (!sb_mul_i64(w.kernel[i], w.dilation[i], &reach) ||
            reach > WINDOW_MOST)
            return who_fail(who, "kernel %lld with dilation %lld is too large",
                            (long long)w.kernel[i], (long long)w.dilation[i]);
    }
    *out = w;
    return SB_OK;
}

/* Pads and number of windows in dimension i, whose input size is known. */
static sb_status set_out(const sb_window_who *who, sb_auto_pad mode,
                         bool ceil_mode, bool is_pool, sb_window *w, int i)
{
    int64_t in = w->in[i], s = w->stride[i];
    int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;

    if (w->kernel[i] > TAPS_OUTSIDE && w->kernel[i] / 4 > in)
        return who_fail(who, "a window of %lld for an input of %lld",
                        (long long)reach, (long long)in);
    if (mode == SB_PAD_SAME_UPPER || mode == SB_PAD_SAME_LOWER) {
        int64_t want = (in + s - 1) / s;
        int64_t pad = (want - 1) * s + reach - in;

        /* Strides beyond the window give negative pads: ONNX Runtime's pools
         * crop by them, as the formula says; frameworks that export such
         * convolutions mean none. */
        pad = pad > 0 || is_pool ? pad : 0;
        w->pad_lo[i] = mode == SB_PAD_SAME_LOWER ? (pad + 1) / 2 : pad / 2;
        w->pad_hi[i] = pad - w->pad_lo[i];
    }
    int64_t room = in + w->pad_lo[i] + w->pad_hi[i] - reach;
    if (room < 0) {
        /* An empty batch of signals may be shorter than the window. */
        if (in == 0) {
            w->out[i] = 0;
            return SB_OK;
        }
        /* With ceil_mode a pool has one window that begins inside. */
        if (ceil_mode && room > -s && in + w->pad_lo[i] > 0) {
            w->out[i] = 1;
            return SB_OK;
        }
        return who_fail(who,
                        "a window of %lld does not fit into %lld with "
                        "pads %lld and %lld",
                        (long long)reach, (long long)in,
                        (long long)w->pad_lo[i], (long long)w->pad_hi[i]);
    }
    w->out[i] = room / s + 1;
    if (ceil_mode && room % s) {
        w->out[i]++;
        if ((w->out[i] - 1) * s >= in + w->pad_lo[i])
            w->out[i]--;
    }
    return SB_OK;
}

sb_status sb_window_set(const sb_window_who *who, const sb_window_attrs *a,
                        const sb_shape *x, const sb_shape *weights,
                        sb_window *out)
{
    sb_auto_pad mode;

    SB_TRY(sb_window_auto_pad(who, a, &mode));
    SB_TRY(sb_window_read(who, a, x, weights, out));
    for (int i = 0; i < out->n; i++) {
        if (mode != SB_PAD_NOTSET)
            out->pad_lo[i] = out->pad_hi[i] = 0;
        if (sb_dim_known(out->in[i]))
            SB_TRY(set_out(who, mode, a->ceil_mode, !weights, out, i));
        else if (out->stride[i] == 1 &&
                 (mode >= SB_PAD_SAME_UPPER ||
                  out->pad_lo[i] + out->pad_hi[i] ==
                      (out->kernel[i] - 1) * out->dilation[i]))
            out->out[i] = out->in[i]; /* keeps the symbol */
    }
    return SB_OK;
}

sb_status sb_window_count(const sb_window_who *who, sb_window *w)
{
    w->in_count = w->out_count = w->taps = 1;
    for (int i = 0; i < w->n; i++)
        if (!sb_mul_i64(w->in_count, w->in[i], &w->in_count) ||
            !sb_mul_i64(w->out_count, w->out[i], &w->out_count) ||
            !sb_mul_i64(w->taps, w->kernel[i], &w->taps))
            return who_fail(who, "sizes overflow");
    return SB_OK;
}

void sb_window_infer_out(sb_infer *in, uint32_t i, sb_dtype dtype,
                         const sb_window *w, sb_dim n, sb_dim channels)
{
    int rank = in->in[0]->type.shape.rank;
    sb_shape shape = sb_shape_of_rank(rank);

    if (rank < 0) {
        sb_infer_set(in, i, dtype, &shape);
        return;
    }
    shape.dim[0] = n;
    shape.dim[1] = channels;
    for (int d = 0; d < w->n; d++)
        shape.dim[d + 2] = w->out[d];
    sb_infer_set(in, i, dtype, &shape);
}
