/* conv.h - what the operators of the convolution family share. */
#ifndef SB_OPS_CONV_CONV_H
#define SB_OPS_CONV_CONV_H

#include "dnn/dnn.h"
#include "ops/conv/epilogue.h"
#include "ops/conv/window.h"
#include "ops/packed_input.h"

/* A convolution with all sizes known, for the plain loops and for oneDNN. */
typedef struct sb_conv {
    sb_window w;
    bool transposed;
    int64_t n_batch, in_channels, out_channels, groups;
} sb_conv;

typedef struct sb_conv_state sb_conv_state;

/* What an implementation computes with. */
typedef struct sb_conv_args {
    sb_ctx *ctx;
    const float *x;
    const float *w; /* packed, if it packs */
    const float *b; /* NULL: no bias */
    const float *z; /* addend in the order of y; NULL: none */
    float *y;
    size_t n_out; /* elements of y */
    void *scratch;
    const sb_tap *tap; /* NULL: none */
} sb_conv_args;

/* In which order an implementation has x and y. */
typedef enum sb_conv_order {
    SB_CONV_AS_GIVEN,
    SB_CONV_PLAIN,         /* else on copies, made here */
    SB_CONV_CHANNELS_LAST, /* the same */
} sb_conv_order;

/* One way to compute a convolution.  conv_select.c lists them, the most wanted
 * first. */
typedef struct sb_conv_impl {
    const char *name;
    sb_conv_order order;
    /* Writes y before it reads z, so that they must not lie in one place. */
    bool overwrites;
    /* (optional) Is it possible, and likely to be the fastest of those that
     * follow?  Without it: always worth a try. */
    bool (*suits)(const sb_kernel *k, const sb_conv *conv);
    /* (optional) Makes s->object from s->conv and s->posts; weights may be
     * unknown as yet.  SB_UNSUPPORTED: the next may try. */
    sb_status (*create)(const sb_kernel *k, sb_conv_state *s);
    /* (optional) How it wants weights; as they are otherwise. */
    const sb_dnn_packing *(*packing)(const void *object);
    sb_packer_fn pack;
    /* (optional) Bytes of scratch memory. */
    size_t (*scratch)(const void *object);
    sb_status (*run)(const sb_conv_state *s, const sb_conv_args *a);
    void (*free)(void *object); /* (optional) NULL is allowed */
} sb_conv_impl;

extern const sb_conv_impl sb_conv_winograd, sb_conv_1x1_padded, sb_conv_columns,
    sb_conv_onednn_biased, sb_conv_onednn, sb_conv_onednn_late, sb_conv_im2col,
    sb_conv_onednn_plain, sb_conv_naive;

/* The state of a convolution kernel. */
struct sb_conv_state {
    sb_conv conv;
    sb_epilogue posts;
    const sb_conv_impl *impl;
    void *object;
    sb_packed_input weights;
    bool around;             /* works on copies in order `copies` */
    sb_layout copies;        /* ... in the scratch memory */
    size_t at_x, at_y, at_z; /* copies of x, y and the addend */
};

/* A convolution without what follows it, as src/dnn wants it. */
sb_dnn_conv_desc sb_conv_desc(const sb_kernel *k, const sb_conv *conv);

/* Channels last for what oneDNN computes well. */
void sb_conv_layout(const sb_kernel *k, sb_layout *in, sb_layout *out);

/* Inference and sizes of Conv and its fused forms. */
SB_MUST_USE sb_status sb_conv_infer(sb_infer *in, const sb_window_attrs *a,
                                    int64_t group);
SB_MUST_USE sb_status sb_conv_sizes(const sb_kernel *k,
                                    const sb_window_attrs *a, int64_t group,
                                    sb_conv *out);

/* Makes k->state and k->scratch_size for a convolution whose inputs are x,
 * weights, bias (absent: NULL), with activations fused behind. */
SB_MUST_USE sb_status sb_conv_prepare(sb_kernel *k, const sb_conv *conv,
                                      const sb_dnn_post *posts, size_t n_posts);
/* Runs it: inputs 0, 1 and 2 to output 0; input 3, if there, is the addend. */
SB_MUST_USE sb_status sb_conv_forward(sb_kernel *k);
void sb_conv_release(sb_kernel *k);

double sb_conv_macs(const sb_kernel *k);

/* Which implementation a prepared kernel has. */
const char *sb_conv_impl_name(const sb_kernel *k);

#endif
