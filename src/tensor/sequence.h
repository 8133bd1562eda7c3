/* sequence.h - a list of tensors in one piece of memory.
 *
 * Values that are sequences are tensors of type SB_DTYPE_SEQUENCE: bytes that
 * hold a head, a record for each element, and the elements.  There are no
 * pointers inside, so that whatever copies, keeps or frees tensors does the
 * right thing with sequences as well, and those who read one check it first. */
#ifndef SB_TENSOR_SEQUENCE_H
#define SB_TENSOR_SEQUENCE_H

#include "tensor/tensor.h"

/* An open sequence; borrows the tensor's memory. */
typedef struct sb_sequence {
    sb_dtype dtype; /* of all elements */
    int64_t n;
    char *data;
    size_t size;
} sb_sequence;

/* False if the tensor is not a sequence, or not a sound one. */
bool sb_sequence_open(const sb_tensor *t, sb_sequence *out);
/* Element i, borrowed; i must be in [0, n). */
sb_tensor sb_sequence_get(const sb_sequence *s, int64_t i);

/* Bytes of a sequence of these elements; false if they are too many, or of a
 * type that sequences do not have (strings). */
bool sb_sequence_size(sb_dtype dtype, const sb_tensor *items, size_t n,
                      size_t *out);
/* Writes it into memory of so many bytes, aligned to SB_ALIGN.  Elements
 * without data are left to the caller. */
void sb_sequence_fill(sb_dtype dtype, const sb_tensor *items, size_t n,
                      void *out);

#endif
