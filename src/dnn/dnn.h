/* dnn.h - convolution, matrix product and pooling by oneDNN.
 *
 * The only door to oneDNN; its types stay inside this folder, so that another
 * version (or none) needs no change elsewhere.  It knows tensors as pointers
 * with sizes, not graphs.
 *
 * Life of an object:  _create (picks a primitive; needs sizes, not elements) ->
 * _packing (how it wants its weights) -> _pack, whenever weights have changed
 * -> _scratch (bytes that the caller lends to each run) -> _run, many times,
 * which allocates nothing -> _free (NULL is allowed).
 *
 * Results do not depend on the number of threads.  oneDNN's kernels do not all
 * keep that promise: GEMM divides sums among threads.  So matrix products are
 * cut here into tiles that depend on the sizes alone, each tile computed by one
 * thread; convolutions use the direct kernels, and what only GEMM can do is cut
 * into images and groups in the same way.
 *
 * Failures: SB_UNSUPPORTED if oneDNN has no kernel for the request (callers
 * then use their plain loops), SB_BACKEND if a call fails, SB_NO_MEMORY. */
#ifndef SB_DNN_DNN_H
#define SB_DNN_DNN_H

#include "base/threads.h"
#include "tensor/tensor.h"

/* ---- layouts --------------------------------------------------------------
 * How many channels lie innermost: none, or all (channels last). */
typedef int64_t sb_dnn_layout;

#define SB_DNN_PLAIN ((sb_dnn_layout)0) /* [N, C, D...] */

/* ---- what follows the main work in the same pass ------------------------ */
typedef enum sb_dnn_post_kind {
    SB_DNN_RELU,    /* x < 0 ? alpha * x : x */
    SB_DNN_CLIP,    /* min(max(x, alpha), beta) */
    SB_DNN_LINEAR,  /* alpha * x + beta */
    SB_DNN_SWISH,   /* x * sigmoid(alpha * x) */
    SB_DNN_SIGMOID, /* 1 / (1 + exp(-x)) */
    SB_DNN_TANH,
    SB_DNN_HARDSWISH, /* x * clip(x + 3, 0, 6) / 6 */
    SB_DNN_GELU_ERF,  /* x * (1 + erf(x / sqrt 2)) / 2 */
    SB_DNN_GELU_TANH, /* its approximation by tanh */
    SB_DNN_SUM,       /* x + alpha * (what dst held before) */
} sb_dnn_post_kind;

typedef struct sb_dnn_post {
    sb_dnn_post_kind kind;
    float alpha, beta;
} sb_dnn_post;

/* The function itself of n elements in place, for loops that do without oneDNN;
 * not of SUM.  NaN stays NaN; CLIP with alpha > beta gives beta. */
void sb_dnn_post_row(const sb_dnn_post *post, float *y, size_t n);

enum { SB_DNN_MAX_POSTS = 4, SB_DNN_MAX_SPATIAL = 3 };

/* ---- packed weights -------------------------------------------------------
 * Primitives read weights in an order of their own.  An object says how many
 * bytes that takes and packs into memory of the caller, who passes packed
 * weights to _run.  Objects whose forms are equal, byte by byte, may share
 * them. */
typedef struct sb_dnn_packing {
    size_t bytes;   /* 0: weights are read as they are; do not pack */
    size_t scratch; /* bytes that the caller lends to _pack */
    const void *form;
    size_t form_size;
} sb_dnn_packing;

/* ---- convolution ----------------------------------------------------------
 * src [N, C, D...], dst [N, M, E...].  Weights [M, C/groups, K...]; of a
 * transposed convolution [C, M/groups, K...], as ONNX has them. */
typedef struct sb_dnn_conv_desc {
    const char *what; /* for messages; copied */
    bool transposed;
    int n_spatial;
    int64_t n_batch, in_channels, out_channels, groups;
    int64_t in[SB_DNN_MAX_SPATIAL], out[SB_DNN_MAX_SPATIAL];
    int64_t kernel[SB_DNN_MAX_SPATIAL], stride[SB_DNN_MAX_SPATIAL];
    int64_t dilation[SB_DNN_MAX_SPATIAL]; /* 1 is dense */
    int64_t pad_lo[SB_DNN_MAX_SPATIAL];   /* the high pad follows from `out` */
    sb_dnn_layout src_layout, dst_layout;
    bool direct; /* SB_UNSUPPORTED if there are only GEMM and reference kernels,
                  * which compute image by image on a thread each */
    bool has_bias;
    size_t n_posts;
    sb_dnn_post posts[SB_DNN_MAX_POSTS];
} sb_dnn_conv_desc;

typedef struct sb_dnn_conv sb_dnn_conv;

SB_MUST_USE sb_status sb_dnn_conv_create(sb_ctx *ctx,
                                         const sb_dnn_conv_desc *desc,
                                         sb_dnn_conv **out);
size_t sb_dnn_conv_scratch(const sb_dnn_conv *conv);
const sb_dnn_packing *sb_dnn_conv_packing(const sb_dnn_conv *conv);
SB_MUST_USE sb_status sb_dnn_conv_pack(sb_dnn_conv *conv, const float *weights,
                                       void *packed, void *scratch);
/* `weights` are packed if the packing has bytes; `bias` is not read if the
 * description says so.  `tap` (NULL: none) sees dst while it is made, where
 * that is possible. */
SB_MUST_USE sb_status sb_dnn_conv_run(sb_dnn_conv *conv, const float *src,
                                      const float *weights, const float *bias,
                                      float *dst, void *scratch,
                                      const sb_tap *tap);
void sb_dnn_conv_free(sb_dnn_conv *conv);

/* ---- gradient of a convolution's weights ----------------------------------
 * dw[M, C/groups, K...], plain: the sum over images and pixels of ddst times
 * src.  The description is that of the convolution, channels last, without
 * posts and not transposed; else SB_UNSUPPORTED. */
typedef struct sb_dnn_conv_dw sb_dnn_conv_dw;

SB_MUST_USE sb_status sb_dnn_conv_dw_create(sb_ctx *ctx,
                                            const sb_dnn_conv_desc *desc,
                                            sb_dnn_conv_dw **out);
size_t sb_dnn_conv_dw_scratch(const sb_dnn_conv_dw *conv);
SB_MUST_USE sb_status sb_dnn_conv_dw_run(sb_dnn_conv_dw *conv, const float *src,
                                         const float *ddst, float *dw,
                                         void *scratch);
void sb_dnn_conv_dw_free(sb_dnn_conv_dw *conv);

/* ---- matrix product -------------------------------------------------------
 * c[m, n] = sum_k a[m, k] b[k, n] (+ bias[n]), for each item of a batch.
 * a and b are given by strides, one of which must be 1. */
typedef struct sb_dnn_gemm_desc {
    const char *what; /* for messages; copied */
    int64_t m, n, k;
    int64_t a_row, a_col; /* a[i, j] is at a[i * a_row + j * a_col] */
    int64_t b_row, b_col;
    int64_t c_row;
    bool has_bias;
    bool pack;      /* b is one matrix for all of the batch, worth packing */
    bool alone;     /* the batch is one item, which threads have to share */
    bool brief;     /* factors may be rounded to bfloat16, if that is faster */
    size_t n_posts; /* SUM at the front adds to what c holds: c += a b */
    sb_dnn_post posts[SB_DNN_MAX_POSTS];
} sb_dnn_gemm_desc;

typedef struct sb_dnn_gemm_args {
    const float *a;
    const float *b; /* packed, if the packing has bytes */
    const float *bias;
    float *c;
    int64_t n_batch; /* 0 means 1 */
    /* Where each item starts, in elements; NULL: all zero. */
    const int64_t *a_at, *b_at, *c_at;
    void *scratch;
} sb_dnn_gemm_args;

typedef struct sb_dnn_gemm sb_dnn_gemm;

SB_MUST_USE sb_status sb_dnn_gemm_create(sb_ctx *ctx,
                                         const sb_dnn_gemm_desc *desc,
                                         sb_dnn_gemm **out);
size_t sb_dnn_gemm_scratch(const sb_dnn_gemm *gemm);
const sb_dnn_packing *sb_dnn_gemm_packing(const sb_dnn_gemm *gemm);
SB_MUST_USE sb_status sb_dnn_gemm_pack(sb_dnn_gemm *gemm, const float *b,
                                       void *packed, void *scratch);
SB_MUST_USE sb_status sb_dnn_gemm_run(sb_dnn_gemm *gemm,
                                      const sb_dnn_gemm_args *args);
void sb_dnn_gemm_free(sb_dnn_gemm *gemm);

/* ---- a stack of matrix products -------------------------------------------
 * c[i] = a[i] b[i] for i in [0, depth), b packed.  a is [depth, rows, k], b
 * [depth, k, n], c [depth, rows, n].  A run uses the calling thread only.
 */
typedef struct sb_dnn_stack_desc {
    const char *what;
    int64_t depth, rows, k, n;
} sb_dnn_stack_desc;

typedef struct sb_dnn_stack sb_dnn_stack;

SB_MUST_USE sb_status sb_dnn_stack_create(sb_ctx *ctx,
                                          const sb_dnn_stack_desc *desc,
                                          sb_dnn_stack **out);
const sb_dnn_packing *sb_dnn_stack_packing(const sb_dnn_stack *stack);
SB_MUST_USE sb_status sb_dnn_stack_pack(sb_dnn_stack *stack, const float *b,
                                        void *packed, void *scratch);
/* How many threads may call at once, each with a lane of its own. */
size_t sb_dnn_stack_lanes(const sb_dnn_stack *stack);
/* Scratch bytes of one lane. */
size_t sb_dnn_stack_scratch(const sb_dnn_stack *stack);
/* False if oneDNN fails. */
bool sb_dnn_stack_run(sb_dnn_stack *stack, size_t lane, const float *a,
                      const float *packed, float *c, void *scratch);
void sb_dnn_stack_free(sb_dnn_stack *stack);

#endif
