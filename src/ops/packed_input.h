/* packed_input.h - inputs that a kernel reads in a form of its own: weights in
 * the order that oneDNN likes.
 *
 * prepare() asks for one; forward() gets its elements.  A constant is packed
 * in prepare(), once for all plans of the executor.  What changes between runs
 * is packed in forward(), and only if it has changed since. */
#ifndef SB_OPS_PACKED_INPUT_H
#define SB_OPS_PACKED_INPUT_H

#include "dnn/dnn.h"
#include "graph/op.h"

/* Writes `weights` in the form that `object` reads. */
typedef sb_status (*sb_packer_fn)(void *object, const float *weights,
                                  void *packed, void *scratch);

typedef struct sb_packed_input {
    uint32_t input;
    int64_t at; /* first element */
    void *object;
    sb_packer_fn fn;
    sb_pack *pack;  /* NULL: the elements are read as they are */
    size_t scratch; /* bytes that sb_packed_input_get() is to be lent */
} sb_packed_input;

/* `p` comes with the first four members set.  Sets the bit of the input in
 * k->packed if a constant was packed. */
SB_MUST_USE sb_status sb_packed_input_prepare(sb_kernel *k, sb_packed_input *p,
                                              const sb_dnn_packing *how);
/* The elements as the object reads them, packed anew if they have changed. */
SB_MUST_USE sb_status sb_packed_input_get(const sb_kernel *k,
                                          const sb_packed_input *p,
                                          void *scratch, const float **out);

/* `p` for the right side of a matrix product. */
SB_MUST_USE sb_status sb_packed_input_gemm(sb_kernel *k, uint32_t input,
                                           int64_t at, sb_dnn_gemm *gemm,
                                           sb_packed_input *p);

#endif
