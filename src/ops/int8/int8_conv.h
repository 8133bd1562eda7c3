/* int8_conv.h - convolution of 8-bit tensors, for ConvInteger and QLinearConv.
 *
 * One to three spatial dimensions, all treated as three.  x [N, C, D, H, W],
 * w [M, C / group, KD, KH, KW], y [N, M, OD, OH, OW]. */
#ifndef SB_OPS_INT8_INT8_CONV_H
#define SB_OPS_INT8_INT8_CONV_H

#include "base/simd.h"
#include "ops/int8/int8_gemm.h"
#include "ops/quantized/quant_util.h"

typedef struct sb_int8_conv_attrs {
    const char *auto_pad;
    sb_ints dilations, kernel_shape, pads, strides;
    int64_t group;
} sb_int8_conv_attrs;

extern const sb_attr_def sb_int8_conv_attr_defs[];

/* One spatial dimension of a sliding window. */
typedef struct sb_axis_window {
    int64_t kernel, stride, dilation, pad, out;
    bool ceil; /* round the number of positions up */
} sb_axis_window;

/* The window along spatial axis d of `n` over an input of length x; `kernel`
 * and `ceil` are set by the caller.  Returns NULL, or what is wrong. */
const char *sb_int8_axis_window(const sb_int8_conv_attrs *a, size_t n, size_t d,
                                int64_t x, sb_axis_window *w);
/* Do the lengths of all attributes fit `n` spatial dimensions? */
bool sb_int8_conv_lengths_fit(const sb_int8_conv_attrs *a, size_t n);

/* Which inputs of the node are which. */
typedef struct sb_int8_conv_inputs {
    uint32_t x, w, x_zero, w_zero;
} sb_int8_conv_inputs;

typedef struct sb_int8_direct sb_int8_direct;
typedef struct sb_int8_last sb_int8_last;

typedef struct sb_int8_conv {
    sb_int8_conv_inputs in;
    int64_t n_batch, group;
    int64_t c_in, c_out; /* channels of one group */
    int64_t x[3], kernel[3], stride[3], dilation[3], pad[3], y[3];
    int64_t k;       /* c_in * kernel volume: length of one sum */
    int64_t n_pixel; /* of one output image */
    bool x_signed, w_signed;
    bool w_across; /* weights are [k, c_out], as of a product of matrices */
    int64_t n_w_zero;
    uint8_t *packed;        /* weights, if known; the executor's */
    int64_t wave;           /* panels packed at a time */
    sb_int8_direct *direct; /* without panels: int8_conv_direct.h; or NULL */
    sb_int8_last *last;     /* channels last: int8_conv_last.h; or NULL */
    size_t scratch, at_zero, at_w, at_panel;
} sb_int8_conv;

/* What becomes of the sums of one output channel m:
 *   int32        the sum
 *   float        (sum + bias[m]) * multiplier[m] + add[m]
 *   uint8, int8  saturate(round_half_even((sum + bias[m]) * multiplier[m])
 *                         + zero)  in float32 */
typedef struct sb_int8_conv_end {
    sb_dtype dtype;
    void *y;
    const int32_t *bias; /* NULL: none */
    const float *multiplier;
    int32_t zero;
    const float *add; /* for channels last; NULL: none */
} sb_int8_conv_end;

/* Sums of output channel m to bytes. */
static inline void sb_int8_conv_requantize(const sb_int8_conv_end *e, int64_t m,
                                           const int32_t *acc, int64_t n,
                                           uint8_t *y)
{
    bool is_int8 = e->dtype == SB_DTYPE_I8;
    float lo = (float)((is_int8 ? -128 : 0) - e->zero);
    float hi = (float)((is_int8 ? 127 : 255) - e->zero);
    uint32_t bias = e->bias ? (uint32_t)e->bias[m] : 0;
    float multiplier = e->multiplier[m];
    int32_t zero = e->zero;

    SB_SIMD
    for (int64_t j = 0; j < n; j++) {
        int32_t sum = (int32_t)((uint32_t)acc[j] + bias);

        y[j] =
            (uint8_t)(sb_round_clamp((float)sum * multiplier, lo, hi) + zero);
    }
}

SB_MUST_USE sb_status sb_int8_conv_infer(sb_infer *in,
                                         const sb_int8_conv_inputs *which,
                                         sb_dtype dtype);
/* Allocates the state with sb_alloc; packs constant weights and says so in
 * k->packed. */
SB_MUST_USE sb_status sb_int8_conv_create(sb_kernel *k,
                                          const sb_int8_conv_inputs *which,
                                          sb_int8_conv **out);
void sb_int8_conv_run(const sb_kernel *k, const sb_int8_conv *c,
                      const sb_int8_conv_end *end);
/* Frees k->state, a convolution or NULL. */
void sb_int8_conv_release(sb_kernel *k);
double sb_int8_conv_macs(const sb_kernel *k, const sb_int8_conv_inputs *which);

#endif
