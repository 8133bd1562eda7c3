/* attention_util.h - softmax(scale q k' + bias) v for many heads.
 *
 * Heads are taken in chunks so that the scores [heads, q_len, k_len] stay of
 * moderate size: one batched product, the softmax row by row, one more batched
 * product.  Where queries see no later keys, this is done for strips of them,
 * each with the keys that its last query sees.  Where tensors lie is given by
 * strides, so that heads that are slices of a hidden dimension need no
 * transposition. */
#ifndef SB_OPS_ATTENTION_ATTENTION_UTIL_H
#define SB_OPS_ATTENTION_ATTENTION_UTIL_H

#include "dnn/dnn.h"
#include "ops/infer_util.h"

/* Element (batch, head, position, i) is at batch * b + head * h + position * s
 * + i. */
typedef struct sb_heads {
    int64_t b, h, s;
} sb_heads;

/* With four strips 5/8 of all products are made where queries see no later
 * keys; more of them would be smaller products for little less work. */
enum { SB_ATTENTION_STRIPS = 4 };

typedef struct sb_attention_strip {
    int64_t first, rows; /* queries */
    int64_t keys;
    sb_dnn_gemm *qk, *pv;
} sb_attention_strip;

typedef struct sb_attention {
    int64_t n_batch, q_heads, kv_heads; /* q_heads is a multiple of the other */
    int64_t q_len, k_len, head_size, v_head_size;
    sb_heads q, k, v, y;
    float scale, softcap; /* softcap 0: none */
    /* Query i sees no key behind past + i: the bias says so as well, and scores
     * are not shown. */
    bool causal;
    int64_t past;
    /* Set by sb_attention_plan(). */
    sb_attention_strip strips[SB_ATTENTION_STRIPS];
    int64_t n_strips;
    int64_t chunk;
    int64_t *at; /* starts of q, k, v, y for each (batch, head), and of scores
                    for each strip */
    size_t scratch, at_gemm, gemm;
} sb_attention;

/* What the optional output of scores shows. */
typedef enum sb_attention_show {
    SB_SHOW_SCORES,  /* scale q k' */
    SB_SHOW_CAPPED,  /* after the soft cap */
    SB_SHOW_BIASED,  /* after the bias */
    SB_SHOW_SOFTMAX, /* the weights */
} sb_attention_show;

typedef struct sb_attention_args {
    const float *q, *k, *v;
    float *y;
    void *scratch;
    /* (optional) Adds the bias to the scores of one query. */
    void (*bias)(const void *arg, int64_t batch, int64_t head, int64_t query,
                 float *row, int64_t n);
    const void *bias_arg;
    float *show; /* (optional) [n_batch, q_heads, q_len, k_len] */
    sb_attention_show what;
} sb_attention_args;

/* Makes the products and the scratch size.  Free in any case. */
SB_MUST_USE sb_status sb_attention_plan(const sb_kernel *k, sb_attention *att);
SB_MUST_USE sb_status sb_attention_run(sb_ctx *ctx, const sb_attention *att,
                                       const sb_attention_args *args);
void sb_attention_free(sb_ctx *ctx, sb_attention *att);

#endif
