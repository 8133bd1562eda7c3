/* npy_internal.h - what .npy and .npz writing share. */
#ifndef SB_TENSOR_NPY_INTERNAL_H
#define SB_TENSOR_NPY_INTERNAL_H

#include "tensor/tensor.h"

/* A .npy file in two pieces.  `tensor` holds a reference: drop it. */
typedef struct sb_npy_image {
    unsigned char header[512]; /* enough for 12 dimensions of 20 digits */
    size_t header_size;
    sb_tensor tensor;
} sb_npy_image;

SB_MUST_USE sb_status sb_npy_encode(sb_ctx *ctx, const char *what,
                                    const sb_tensor *t, sb_npy_image *out);

/* What the member of an array is called in an archive, to be freed: its name,
 * without the slashes if a program that unpacks archives could be led outside
 * of its folder by it. */
char *sb_npz_member_name(sb_ctx *ctx, const char *name);

#endif
