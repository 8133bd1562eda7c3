/* gram_stages.h - Gram matrices of all layers that are rounded, level by
 * level. */
#ifndef SB_QUANT_RECONSTRUCT_GRAM_STAGES_H
#define SB_QUANT_RECONSTRUCT_GRAM_STAGES_H

#include "quant/calibrate/staged.h"
#include "quant/reconstruct/reconstruct.h"

typedef struct sb_gram_stages {
    sb_grams *grams;
    size_t n_layers;
    int32_t n_levels;
    sb_staged quantized, plain; /* plain: the float network, to fit layers */
} sb_gram_stages;

/* Sets the levels of the layers and puts them in their order. */
SB_MUST_USE sb_status sb_gram_stages_order(const sb_quant_model *qm,
                                           sb_round_layer *layers, size_t n);
/* The same, and takes the batches.
 * sb_gram_stages_clear() in any case. */
SB_MUST_USE sb_status sb_gram_stages_init(sb_grams *grams,
                                          sb_round_layer *layers, size_t n,
                                          sb_gram_stages *s);
/* Runs the nodes of a level over all batches and sums up for the layers in the
 * list.  `again`: it will run once more, for others. */
SB_MUST_USE sb_status sb_gram_stages_run(sb_gram_stages *s, int32_t level,
                                         bool again);
void sb_gram_stages_clear(sb_gram_stages *s);

#endif
