/* Every key of a config: its type, default, limits and meaning.
 *
 * Keys and defaults are Sparsebit's; GROUP_SIZE, per-group schemes, `A: none`,
 * `A: dynamic` and the backends after tensorrt are ours. */
#include "quant/observer_def.h"
#include "quant/quant_config_file.h"

const char *const sb_quant_scheme_names[] = {"per-tensor-symmetric",
                                             "per-tensor-affine",
                                             "per-channel-symmetric",
                                             "per-channel-affine",
                                             "per-group-symmetric",
                                             "per-group-affine",
                                             NULL};

const char *const sb_quant_quantizer_names[] = {
    "uniform", "dorefa", "lsq", "lsq+", "pact", "adaround", NULL};

const char *const sb_quant_observer_names[] = {
#define SB_OBSERVER(id) #id,
#include "quant/observers.def"
#undef SB_OBSERVER
    NULL};

static const char *weight_observer(const char *name)
{
    const sb_observer_def *def = sb_observer_find(name);

    return def->flags & SB_OBS_WEIGHT ? def->summary : NULL;
}

static const char *feature_observer(const char *name)
{
    const sb_observer_def *def = sb_observer_find(name);

    return def->flags & SB_OBS_FEATURE ? def->summary : NULL;
}

/* In the order of sb_quant_backend. */
const char *const sb_quant_backend_names[] = {"virtual",
                                              "onnxruntime",
                                              "onnxruntime-x86",
                                              "onnxruntime-arm",
                                              "tensorrt",
                                              "openvino",
                                              "qnn",
                                              NULL};

const char *const sb_quant_strategy_names[] = {"l1norm", "l2norm", "slimming",
                                               "taylor", "fisher", "hrank",
                                               "random", NULL};

static const char *const distributions[] = {"GAUS", "LAPLACE", NULL};
static const char *const layouts[] = {"NCHW", "NLC", NULL};
static const char *const sparsers[] = {"structed", "unstructed", "structured",
                                       "unstructured", NULL};

/* clang-format off */

/* ---- what names stand for ------------------------------------------------ */

#define SCHEMES_MORE                                                           \
    "per-tensor   one scale for the whole tensor\n"                            \
    "per-channel  one scale for each channel\n"
#define SCHEMES_MORE_END                                                       \
    "symmetric    zero is number 0: -2^(b-1) .. 2^(b-1)-1\n"                   \
    "affine       zero is the zero point: 0 .. 2^b-1"
#define QUANTIZERS_MORE                                                        \
    "uniform   rounds to the nearest step of the observed range\n"             \
    "dorefa    tanh first, then uniform (training at few bits)\n"              \
    "lsq       learns the scale\n"                                             \
    "lsq+      learns the scale, and the zero point of activations\n"
#define SPECIFIC_MORE                                                          \
    "Patterns (*, ?, [set]) match the module path (layer1.0.conv1), the same\n" \
    "with _ (layer1_0_conv1), the node's name (/layer1/conv1/Conv) or the\n"   \
    "function (softmax).  Keys are relative to W or A:\n"                      \
    "  SPECIFIC: {\"head*\": [QUANTIZER.BIT, 8], \"*norm\": [QUANTIZER.DISABLE, true]}"

#define SIDE(field) offsetof(sb_quant_side, field)
#define TOP(field)  offsetof(sb_quant_file, field)

/* ---- what W and A share -------------------------------------------------- */

#define ROW_DISABLE                                                            \
    {.name = "DISABLE", .type = SB_PARAM_BOOL, .offset = SIDE(disable),        \
     .preset = "false", .help = "leave all of these in float"}
#define ROW_BIT                                                                \
    {.name = "BIT", .type = SB_PARAM_INT, .offset = SIDE(bit),                 \
     .preset = "-1", .sample = "8", .min = -1, .max = 16,                      \
     .values = "1..16, or 0 for float",                                        \
     .help = "width in bits; must be set"}
#define ROW_OBSERVER(meanings)                                                 \
    {.name = "TYPE", .type = SB_PARAM_ENUM, .offset = SIDE(observer),          \
     .preset = "MINMAX", .sample = "minmax", .names = sb_quant_observer_names, \
     .meaning = meanings, .help = "how the range is found"}

static const sb_param_def percentile_table[] = {
    {.name = "ALPHA", .type = SB_PARAM_FLOAT, .offset = SIDE(percentile_alpha),
     .preset = "0.001", .max = 0.5,
     .help = "fraction of the values that is cut off on each side"},
    {0},
};

static const sb_param_def aciq_table[] = {
    {.name = "DISTRIBUTION", .type = SB_PARAM_ENUM, .offset = SIDE(aciq),
     .preset = "GAUS", .names = distributions,
     .help = "what the values are assumed to be spread like"},
    {0},
};

/* ---- W -------------------------------------------------------------------- */

static const sb_param_def w_quantizer_table[] = {
    {.name = "TYPE", .type = SB_PARAM_ENUM, .offset = SIDE(quantizer),
     .preset = "uniform", .names = sb_quant_quantizer_names,
     .values = "uniform, dorefa, lsq, lsq+ or adaround",
     .more = QUANTIZERS_MORE
             "adaround  decides for each weight whether to round up or down",
     .help = "how values are rounded; all but uniform need training or "
             "reconstruction"},
    ROW_BIT,
    ROW_DISABLE,
    {.name = "GROUP_SIZE", .type = SB_PARAM_INT, .offset = SIDE(group_size),
     .preset = "128", .min = -1, .max = 256,
     .values = "16, 32, 64, 128, 256, or -1 for a whole row",
     .help = "per-group schemes: how many columns share a scale"},
    {0},
};

static const sb_param_def w_observer_table[] = {
    ROW_OBSERVER(weight_observer),
    {.name = "PERCENTILE", .type = SB_PARAM_MAP, .fields = percentile_table,
     .help = "settings of percentile"},
    {.name = "ACIQ", .type = SB_PARAM_MAP, .fields = aciq_table,
     .help = "settings of aciq"},
    {0},
};

#define SPECIFIC_VALUES "a map from pattern to [key, value, ...], or a list of such maps"

const sb_param_def sb_quant_w_table[] = {
    {.name = "QSCHEME", .type = SB_PARAM_ENUM, .offset = SIDE(scheme),
     .sample = "per-channel-symmetric", .names = sb_quant_scheme_names,
     .more = SCHEMES_MORE
             "per-group    one scale for each QUANTIZER.GROUP_SIZE columns\n"
             SCHEMES_MORE_END,
     .help = "how many values share a scale, and is there a zero point; must be set"},
    {.name = "QUANTIZER", .type = SB_PARAM_MAP, .fields = w_quantizer_table,
     .help = "rounding of weights"},
    {.name = "OBSERVER", .type = SB_PARAM_MAP, .fields = w_observer_table,
     .help = "ranges of weights"},
    {.name = "SPECIFIC", .type = SB_PARAM_NODE, .offset = SIDE(specific),
     .preset = "[]", .values = SPECIFIC_VALUES, .more = SPECIFIC_MORE,
     .help = "other settings for the weights of some nodes; the first pattern that matches wins"},
    {0},
};

/* ---- A -------------------------------------------------------------------- */

static const sb_param_def pact_table[] = {
    {.name = "ALPHA_VALUE", .type = SB_PARAM_FLOAT, .offset = SIDE(pact_alpha),
     .preset = "10", .min = 1e-6, .max = 1e6,
     .help = "clipping value that training starts from"},
    {0},
};

static const sb_param_def a_quantizer_table[] = {
    {.name = "TYPE", .type = SB_PARAM_ENUM, .offset = SIDE(quantizer),
     .preset = "uniform", .names = sb_quant_quantizer_names,
     .values = "uniform, dorefa, lsq, lsq+ or pact",
     .more = QUANTIZERS_MORE "pact      learns where to clip",
     .help = "how values are rounded; all but uniform need training"},
    ROW_BIT,
    ROW_DISABLE,
    {.name = "PACT", .type = SB_PARAM_MAP, .fields = pact_table,
     .help = "settings of pact"},
    {0},
};

static const sb_param_def moving_average_table[] = {
    {.name = "EMA_RATIO", .type = SB_PARAM_FLOAT, .offset = SIDE(ema_ratio),
     .preset = "0.9", .max = 1,
     .help = "share of the old range that each sample keeps"},
    {0},
};

static const sb_param_def a_observer_table[] = {
    ROW_OBSERVER(feature_observer),
    {.name = "PERCENTILE", .type = SB_PARAM_MAP, .fields = percentile_table,
     .help = "settings of percentile"},
    {.name = "ACIQ", .type = SB_PARAM_MAP, .fields = aciq_table,
     .help = "settings of aciq"},
    {.name = "MOVING_AVERAGE", .type = SB_PARAM_MAP,
     .fields = moving_average_table, .help = "settings of moving_average"},
    {.name = "LAYOUT", .type = SB_PARAM_ENUM, .offset = SIDE(layout),
     .preset = "NCHW", .names = layouts,
     .help = "where the channels are: axis 1 (NCHW) or axis 2 (NLC)"},
    {0},
};

static const sb_param_def qadd_table[] = {
    {.name = "ENABLE_QUANT", .type = SB_PARAM_BOOL, .offset = SIDE(qadd),
     .preset = "false", .help = "quantize the inputs of element-wise additions"},
    {0},
};

const sb_param_def sb_quant_a_table[] = {
    {.name = "QSCHEME", .type = SB_PARAM_ENUM, .offset = SIDE(scheme),
     .sample = "per-tensor-affine", .names = sb_quant_scheme_names,
     .more = SCHEMES_MORE SCHEMES_MORE_END,
     .values = "per-tensor-symmetric, per-tensor-affine, per-channel-symmetric "
               "or per-channel-affine",
     .help = "how many values share a scale, and is there a zero point; must be set"},
    {.name = "QUANTIZER", .type = SB_PARAM_MAP, .fields = a_quantizer_table,
     .help = "rounding of activations"},
    {.name = "OBSERVER", .type = SB_PARAM_MAP, .fields = a_observer_table,
     .help = "ranges of activations"},
    {.name = "QADD", .type = SB_PARAM_MAP, .fields = qadd_table,
     .help = "additions"},
    {.name = "SPECIFIC", .type = SB_PARAM_NODE, .offset = SIDE(specific),
     .preset = "[]", .values = SPECIFIC_VALUES, .more = SPECIFIC_MORE,
     .help = "other settings for the inputs of some nodes; the first pattern that matches wins"},
    {0},
};

/* ---- the file ------------------------------------------------------------- */

static const sb_param_def schedule_table[] = {
    {.name = "FUSE_BN", .type = SB_PARAM_BOOL, .offset = TOP(fuse_bn),
     .preset = "false", .sample = "true",
     .help = "fold batch normalisation into the convolution or product before it"},
    {.name = "BN_TUNING", .type = SB_PARAM_BOOL, .offset = TOP(bn_tuning),
     .preset = "false",
     .help = "fold it only after its statistics were tuned; needs weights per channel"},
    {.name = "DISABLE_UNNECESSARY_QUANT", .type = SB_PARAM_BOOL,
     .offset = TOP(disable_unnecessary), .preset = "true",
     .help = "no quantizers inside convolution + normalisation + activation"},
    {0},
};

static const sb_param_def sparser_table[] = {
    {.name = "TYPE", .type = SB_PARAM_ENUM, .offset = TOP(sparser),
     .names = sparsers, .sample = "structured", .required = true,
     .help = "whole channels or single weights"},
    {.name = "STRATEGY", .type = SB_PARAM_ENUM, .offset = TOP(strategy),
     .names = sb_quant_strategy_names, .sample = "l1norm", .required = true,
     .help = "what decides which go first"},
    {.name = "RATIO", .type = SB_PARAM_FLOAT, .offset = TOP(ratio),
     .preset = "0.0", .max = 1, .help = "share that goes"},
    {0},
};

static const sb_param_def file_table[] = {
    {.name = "BACKEND", .type = SB_PARAM_ENUM, .offset = TOP(backend),
     .preset = "virtual", .names = sb_quant_backend_names,
     .more = "virtual          simulation: every width and scheme\n"
             "onnxruntime      the same as onnxruntime-x86\n"
             "onnxruntime-x86  8 bit, weights also 4; activations per tensor\n"
             "onnxruntime-arm  the same on ARM\n"
             "tensorrt         8 bit, symmetric, weights per channel\n"
             "openvino         8 bit; activations per tensor\n"
             "qnn              weights 4 or 8 bit, activations 8 or 16",
     .help = "where the model will run; virtual allows everything"},
    {.name = "SKIP_TRACE_MODULES", .type = SB_PARAM_STRINGS, .offset = TOP(skip),
     .preset = "[]", .values = "a list of patterns, such as \"head.*\"",
     .help = "modules that stay whole and in float"},
    {.name = "SCHEDULE", .type = SB_PARAM_MAP, .fields = schedule_table,
     .help = "what happens to the graph before calibration"},
    {.name = "W", .type = SB_PARAM_NODE, .offset = TOP(w),
     .fields = sb_quant_w_table, .values = "a map", .help = "weights"},
    {.name = "A", .type = SB_PARAM_NODE, .offset = TOP(a),
     .fields = sb_quant_a_table, .values = "a map, none or dynamic",
     .more = "none     activations stay in float, only weights are quantized\n"
             "dynamic  activations are quantized at run time; no calibration",
     .help = "activations; instead of a map: none (weights only) or dynamic "
             "(ranges at run time)"},
    {.name = "SPARSER", .type = SB_PARAM_MAP, .fields = sparser_table,
     .sample = "#", .help = "pruning"},
    {0},
};
/* clang-format on */

const sb_param_def *sb_quant_config_table(void)
{
    return file_table;
}
