/* output_form.h - what kind of numbers an output of a network is, and how far
 * such an output is from that of the float network. */
#ifndef SB_QUANT_CORRECT_OUTPUT_FORM_H
#define SB_QUANT_CORRECT_OUTPUT_FORM_H

#include "tensor/tensor.h"

typedef struct sb_output_form {
    bool counts;      /* it can be compared */
    bool probability; /* all rows are probabilities */
    int axis;         /* of the parts */
    int64_t parts;    /* that are compared apart */
    double *sums;     /* [3, parts]: signal of all samples, and room */
    double least;     /* signal of a sample that errors are relative to */
    float *room;      /* for two outputs that are not float32 */
    size_t cap_room;
} sb_output_form;

/* Are elements of this type compared? */
bool sb_output_form_takes(sb_dtype dtype);
/* Looks at an output of the float network for one batch; `f` starts as zero. */
SB_MUST_USE sb_status sb_output_form_see(sb_ctx *ctx, const sb_tensor *t,
                                         sb_output_form *f);
void sb_output_form_free(sb_ctx *ctx, sb_output_form *f);
/* Counts it, when all have been seen. */
void sb_output_form_count(const sb_output_form *f, const sb_tensor *t);
/* Noise of `n` numbers from `at` on relative to their `share` of the signal of
 * all, the mean over parts; and *level, their own signal relative to it. */
double sb_output_form_error(const sb_output_form *f, const sb_tensor *want,
                            const sb_tensor *got, int64_t at, int64_t n,
                            double share, double *level);

#endif
