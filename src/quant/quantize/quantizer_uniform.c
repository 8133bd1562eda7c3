/* Quantizer "uniform": values as they are, rounded with the observed scale. */
#include "quant/quantize/quantizer.h"

const sb_quantizer_def sb_quantizer_uniform = {
    .name = "uniform",
    .summary = "rounds to evenly spaced values in the observed range",
    .uses = {[SB_QUANT_WEIGHT] = {.schemes = SB_SCHEMES_PER_TENSOR |
                                             SB_SCHEMES_PER_CHANNEL |
                                             SB_SCHEMES_PER_GROUP},
             [SB_QUANT_ACTIVATION] = {.schemes = SB_SCHEMES_PER_TENSOR |
                                                 SB_SCHEMES_PER_CHANNEL}},
    .training = {&sb_quant_training_fixed, &sb_quant_training_fixed},
};
