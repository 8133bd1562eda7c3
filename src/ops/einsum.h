/* einsum.h - the equation of Einsum, read into labels. */
#ifndef SB_OPS_EINSUM_H
#define SB_OPS_EINSUM_H

#include "ops/infer_util.h"

enum {
    SB_EINSUM_MAX_IN = 16,
    SB_EINSUM_LETTERS = 52,
    /* The dimensions of the ellipsis come first, then the letters. */
    SB_EINSUM_LABELS = SB_MAX_RANK + SB_EINSUM_LETTERS,
};

/* The label of each dimension of one operand. */
typedef struct sb_einsum_term {
    int n;
    uint8_t label[SB_MAX_RANK];
} sb_einsum_term;

typedef struct sb_einsum_terms {
    sb_einsum_term in[SB_EINSUM_MAX_IN], out;
    sb_dim size[SB_EINSUM_LABELS]; /* of each label; 1 where it is not used */
    uint64_t used;                 /* bit i: label i appears in an input */
} sb_einsum_terms;

/* Reads `equation` for operands of these shapes, whose ranks are known.  False,
 * with a reason in *why, if it does not fit them. */
bool sb_einsum_parse(const char *equation, uint32_t n_in,
                     const sb_shape *shapes, sb_einsum_terms *terms,
                     const char **why);

#endif
