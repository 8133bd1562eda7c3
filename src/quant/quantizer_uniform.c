/* Quantizer "uniform": values as they are, rounded with the observed scale. */
#include "quant/quantizer.h"

const sb_quantizer_def sb_quantizer_uniform = {
    .name = "uniform",
    .summary = "rounds to evenly spaced values in the observed range",
    .for_weights = true,
    .for_features = true,
};
