/* Target "virtual": no runtime in particular.  Every quantizer of the
 * configuration becomes a Q/DQ pair where it stands, as the original Sparsebit
 * writes them, except that weights are stored as integers. */
#include "runtime/target.h"

#define EVERYTHING                                                           \
    {                                                                        \
        SB_BITS_UP_TO(16), SB_SCHEMES_ALL, .why_bits = "", .why_schemes = "" \
    }

const sb_target_def sb_target_virtual = {
    .name = "virtual",
    .summary = "no runtime in particular: the quantizers as configured",
    .limits = {[SB_USE_ACT] = EVERYTHING,
               [SB_USE_WEIGHT] = EVERYTHING,
               [SB_USE_WEIGHT_ONLY] = EVERYTHING,
               [SB_USE_WEIGHT_DYNAMIC] = EVERYTHING},
    .act_types = SB_TYPE(U8) | SB_TYPE(I8) | SB_TYPE(U16) | SB_TYPE(I16) |
                 SB_TYPE(U4) | SB_TYPE(I4),
    .weight_types = SB_TYPE(U8) | SB_TYPE(I8) | SB_TYPE(U16) | SB_TYPE(I16) |
                    SB_TYPE(U4) | SB_TYPE(I4) | SB_TYPE(U2) | SB_TYPE(I2),
    .bias = SB_BIAS_FLOAT,
    .residual = SB_RESIDUAL_BOTH,
    .opset = 13,
};
