/* mapped.h - tensors whose elements lie in a mapped file.
 *
 * ONNX does not align weights, so most of them start at an odd byte.  They can
 * be printed and saved from there; code that computes makes an aligned copy
 * first (src/exec/exec_const.c), once for each weight that it really uses. */
#ifndef SB_TENSOR_MAPPED_H
#define SB_TENSOR_MAPPED_H

#include <string.h>

#include "tensor/tensor.h"

/* May the elements be read through a pointer of their own type? */
bool sb_tensor_is_aligned(const sb_tensor *t);

/* Element `i` of float32, wherever it lies. */
static inline float sb_tensor_float(const sb_tensor *t, int64_t i)
{
    float v;

    memcpy(&v, (const char *)t->data + (size_t)i * sizeof v, sizeof v);
    return v;
}

/* Gives the pages of a mapped tensor back to the system after its elements
 * were copied or packed; they are read from the file again if need be.  Does
 * nothing to tensors in other memory. */
void sb_tensor_release_pages(const sb_tensor *t);

/* Memory for a copy of a weight, zeroed: as sb_tensor_alloc(), but in a
 * temporary file if the program chose how much memory there may be, so that
 * sb_tensor_release_pages() gives it back. */
SB_MUST_USE sb_status sb_tensor_alloc_weight(sb_ctx *ctx, sb_tensor *t);
/* The same without zeroing, for one that is filled at once. */
SB_MUST_USE sb_status sb_tensor_alloc_weight_raw(sb_ctx *ctx, sb_tensor *t);
/* Moves one that was computed in memory to where those would have it. */
SB_MUST_USE sb_status sb_tensor_settle_weight(sb_ctx *ctx, sb_tensor *t);

/* A file as a buffer, mapped or read as base/file.h says; `pipes`: also pipes,
 * for what the caller of the library named. */
SB_MUST_USE sb_status sb_buf_map_file(sb_ctx *ctx, const char *path, bool pipes,
                                      sb_buf **out);
/* The same, pipes included, to be written to: its pages are never given back
 * while it is there. */
SB_MUST_USE sb_status sb_buf_map_input(sb_ctx *ctx, const char *path,
                                       sb_buf **out);

#endif
