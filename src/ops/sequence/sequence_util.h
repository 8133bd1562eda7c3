/* sequence_util.h - what operators on sequences share. */
#ifndef SB_OPS_SEQUENCE_SEQUENCE_UTIL_H
#define SB_OPS_SEQUENCE_SEQUENCE_UTIL_H

#include "ops/infer_util.h"
#include "tensor/sequence.h"

/* The type of a sequence, of which nothing else is known. */
sb_type sb_sequence_type(void);
/* Output 0 is a sequence: the infer function of operators that make one. */
sb_status sb_sequence_infer(sb_infer *in);
/* Input i as a sequence; SB_BAD_DATA if it is none. */
SB_MUST_USE sb_status sb_sequence_in(const sb_kernel *k, uint32_t i,
                                     sb_sequence *out);
/* Output i becomes the sequence of these elements; all must be of the type. */
SB_MUST_USE sb_status sb_sequence_give(sb_kernel *k, uint32_t i, sb_dtype dtype,
                                       const sb_tensor *items, size_t n);
/* The position in input i, counted from the end if negative, in [0, n). */
SB_MUST_USE sb_status sb_sequence_position(const sb_kernel *k, uint32_t i,
                                           int64_t n, int64_t *out);

#endif
