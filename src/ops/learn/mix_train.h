/* mix_train.h - elements of one of two tensors, chosen at random. */
#ifndef SB_OPS_LEARN_MIX_TRAIN_H
#define SB_OPS_LEARN_MIX_TRAIN_H

#include "base/ctx.h"

/* Another choice for each counter and stream. */
typedef struct sb_mix_choice {
    uint64_t counter, stream;
    double share; /* probability of q, 0 to 1 */
} sb_mix_choice;

/* y is q or x, element by element, as sparsebit.MixTrain chooses. */
void sb_mix(sb_ctx *ctx, const sb_mix_choice *choice, const float *x,
            const float *q, float *y, int64_t n);

#endif
