/* conv_attrs.h - what the operators of the convolution family share. */
#ifndef SB_OPS_CONV_ATTRS_H
#define SB_OPS_CONV_ATTRS_H

#include "dnn/dnn.h"
#include "ops/post.h"
#include "ops/window.h"

/* A convolution with all sizes known, for the plain loops and for oneDNN. */
typedef struct sb_conv {
    sb_window w;
    bool transposed;
    int64_t n_batch, in_channels, out_channels, groups;
} sb_conv;

/* The state of a convolution kernel: one of the pointers, or none of them for
 * loops. */
typedef struct sb_conv_state {
    sb_conv conv;
    sb_dnn_conv *dnn;
    struct sb_winograd *winograd;
    struct sb_conv_frame *frame;
    struct sb_conv_patches *patches;
    sb_posts posts;
    bool around;             /* works on copies in order `copies` */
    sb_layout copies;        /* ... in the scratch memory */
    bool late;               /* oneDNN writes to scratch, `posts` follow */
    size_t at_x, at_y, at_z; /* copies of x, y and the addend */
} sb_conv_state;

/* Channels last for what oneDNN computes well with weights packed ahead. */
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

#endif
