/* Target "virtual": no runtime in particular.  Every quantizer of the
 * configuration becomes a Q/DQ pair where it stands, as the original Sparsebit
 * writes them, except that weights are stored as integers. */
#include "quant/target.h"

const sb_target_def sb_target_virtual = {
    .name = "virtual",
    .summary = "no runtime in particular: the quantizers as configured",
    .act = SB_DTYPE_U8,
    .act_types = SB_TYPE(U8) | SB_TYPE(I8) | SB_TYPE(U16) | SB_TYPE(I16) |
                 SB_TYPE(U4) | SB_TYPE(I4),
    .act_schemes = SB_SCHEME_SYMMETRIC | SB_SCHEME_AFFINE,
    .act_per_channel = true,
    .weight = SB_DTYPE_I8,
    .weight_types = SB_TYPE(U8) | SB_TYPE(I8) | SB_TYPE(U16) | SB_TYPE(I16) |
                    SB_TYPE(U4) | SB_TYPE(I4) | SB_TYPE(U2) | SB_TYPE(I2),
    .weight_schemes = SB_SCHEME_SYMMETRIC | SB_SCHEME_AFFINE,
    .only_schemes = SB_SCHEME_SYMMETRIC | SB_SCHEME_AFFINE,
    .weight_form = SB_WEIGHT_INT,
    .bias = SB_BIAS_FLOAT,
    .residual = SB_RESIDUAL_BOTH,
    .opset = 13,
    .opset_wide = 21,
};
