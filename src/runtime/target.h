/* target.h - what each runtime wants of a quantized file and what it makes of
 * it, as rows of data.
 *
 * A target lives in one file, src/runtime/<name>.c: which bit widths and
 * schemes it takes, and for each operator where Q/DQ pairs belong (`place`),
 * which input is the weight, and which kernel replaces the operator with the
 * Q/DQ around it (`fuse`).  The configuration is checked against these rows,
 * the exporter places Q/DQ by them, and the simulation (sim/sim.h), behind
 * `lint` and integer execution, asks them what fuses.
 *
 * An operator that a target does not list stays in float there: Q/DQ around it
 * would cost time and accuracy and gain nothing.
 *
 * To add a target: src/runtime/<name>.c with its row, a line in targets.def,
 * a test. */
#ifndef SB_RUNTIME_TARGET_H
#define SB_RUNTIME_TARGET_H

#include "base/str.h"
#include "graph/graph.h"
#include "passes/deploy/deploy.h"

/* ---- operators ---------------------------------------------------------- */

/* Where Q/DQ pairs go around an operator. */
typedef enum sb_place {
    SB_PLACE_FLOAT, /* nowhere; the row says only what fuses */
    /* On every data input and on the result: one kernel replaces the group
     * (DQ, DQ -> Conv -> Q). */
    SB_PLACE_BOTH,
    /* On every data input; the result is quantized by its consumers, where
     * they want it. */
    SB_PLACE_INPUTS,
    /* On input 0 and the result, both with the same scale and zero point: the
     * operator only moves elements, and then runs on integers. */
    SB_PLACE_SHARE,
    /* The same, with one scale and zero point for all data inputs and the
     * result (Concat). */
    SB_PLACE_SHARE_ALL,
    /* Nowhere, but the runtime carries quantization through: what stands
     * before and after it counts as one tensor. */
    SB_PLACE_THROUGH,
    /* On no side, and the range of its result is given to whatever produces
     * its input: a following Q makes it redundant (Relu, Clip). */
    SB_PLACE_FOLD,
} sb_place;

/* A range that a result has by nature, whatever calibration saw. */
typedef enum sb_natural_range {
    SB_RANGE_NONE,
    SB_RANGE_UNIT,   /* [0, 1]: scale 1/2^bits, zero point qmin */
    SB_RANGE_SIGNED, /* [-1, 1]: scale 2/2^bits, zero point in the middle */
} sb_natural_range;

/* The group of nodes that one kernel replaces, and its conditions. */
typedef enum sb_fusion_kind {
    SB_FUSE_NONE,    /* nothing */
    SB_FUSE_CONV,    /* DQ x, DQ w [, DQ int32 b] -> op -> Q */
    SB_FUSE_MATMUL,  /* DQ, DQ -> op [-> Q] */
    SB_FUSE_GEMM,    /* DQ, DQ [, DQ int32] -> op [-> Q] */
    SB_FUSE_ALL,     /* DQ on every input -> op -> Q, one type throughout */
    SB_FUSE_FIRST,   /* DQ on one input -> op -> Q, one type */
    SB_FUSE_WHERE,   /* cond, DQ, DQ -> op -> Q, one type */
    SB_FUSE_SPLIT,   /* DQ -> op -> Q on each result, the same parameters */
    SB_FUSE_DROP,    /* DQ -> op -> Q with the same parameters: both go away */
    SB_FUSE_DROP_DQ, /* DQ -> op: the DQ goes away */
    SB_FUSE_WEIGHT,  /* DQ on a constant weight only -> op */
    SB_FUSE_NORM,    /* DQ x, DQ scale [, DQ int32 bias] -> op -> Q */
    /* Of runtimes whose steps are SB_SIM_INPUTS: */
    SB_FUSE_INPUTS,  /* DQ on all inputs but the bias -> op; Q is not asked */
    SB_FUSE_BOTH,    /* the same, and a Q behind it */
    SB_FUSE_THROUGH, /* quantization passes through; needs no Q/DQ */
} sb_fusion_kind;

/* More conditions of a group. */
enum {
    SB_FUSE_16BIT = 1 << 0,     /* 16-bit types are taken too */
    SB_FUSE_4BIT = 1 << 1,      /* 4-bit types are taken too */
    SB_FUSE_POSITIVE = 1 << 2,  /* only with a positive scale */
    SB_FUSE_NEAREST = 1 << 3,   /* of Resize only what copies elements */
    SB_FUSE_ANY_INT8 = 1 << 4,  /* int8 activations whatever the machine */
    SB_FUSE_MOVABLE = 1 << 5,   /* Q goes backwards and DQ forwards over it */
    SB_FUSE_QUANT_BIAS = 1 << 6 /* float weight and bias become integers by
                                   themselves where the rest fits */
};

typedef struct sb_fusion {
    sb_fusion_kind kind;
    const char *kernel; /* what it becomes; NULL: keeps its name, on integers */
    const char *kernel_domain; /* "" is the main domain */
    uint32_t flags;            /* SB_FUSE_16BIT ... */
} sb_fusion;

typedef struct sb_target_op {
    const char *op; /* of the main domain */
    sb_place place;
    /* Bit i: input i is data that is quantized (weights included, biases
     * not); the others are shapes, indices, conditions.  0 means all. */
    uint32_t data;
    /* Inputs that may be a constant weight, and that is added to the int32
     * sums; 0: none, since input 0 is always the activation. */
    uint8_t weight, bias;
    bool per_tensor; /* the weight may have only one scale */
    sb_natural_range range;
    /* A Q/DQ pair on the result may be left out, and the operator then gives
     * float from integers (MatMul without Q in ONNX Runtime). */
    bool result_optional;
    /* Where shapes are fixed, the runtime takes the Add of a constant behind
     * it for its bias, and then wants it as integers. */
    bool bias_behind;
    /* Inputs that have no other consumer take the scale of the result
     * (place_concat.c). */
    bool join;
    /* `A: none`: the weight (of a table input 0) may be integers behind a DQ
     * while the rest stays float, and that is worth it. */
    bool weight_only;
    bool dynamic; /* `A: dynamic`: has an integer kernel for that */
    /* What the runtime makes of it with Q/DQ around it, and, where the group
     * is not complete, with a DQ on its weight alone. */
    sb_fusion fuse, fuse_weight;
} sb_target_op;

/* ---- settings ----------------------------------------------------------- */

/* Sets of schemes: a bit for each pair of granularity and symmetry, in the
 * order of their names in a configuration. */
enum {
    SB_SCHEME_TENSOR_SYMMETRIC = 1 << 0,
    SB_SCHEME_TENSOR_AFFINE = 1 << 1,
    SB_SCHEME_CHANNEL_SYMMETRIC = 1 << 2,
    SB_SCHEME_CHANNEL_AFFINE = 1 << 3,
    SB_SCHEME_GROUP_SYMMETRIC = 1 << 4,
    SB_SCHEME_GROUP_AFFINE = 1 << 5,
    SB_SCHEMES_PER_TENSOR =
        SB_SCHEME_TENSOR_SYMMETRIC | SB_SCHEME_TENSOR_AFFINE,
    SB_SCHEMES_PER_CHANNEL =
        SB_SCHEME_CHANNEL_SYMMETRIC | SB_SCHEME_CHANNEL_AFFINE,
    SB_SCHEMES_PER_GROUP = SB_SCHEME_GROUP_SYMMETRIC | SB_SCHEME_GROUP_AFFINE,
    SB_SCHEMES_ALL =
        SB_SCHEMES_PER_TENSOR | SB_SCHEMES_PER_CHANNEL | SB_SCHEMES_PER_GROUP,
    SB_SCHEMES_SYMMETRIC = SB_SCHEME_TENSOR_SYMMETRIC |
                           SB_SCHEME_CHANNEL_SYMMETRIC |
                           SB_SCHEME_GROUP_SYMMETRIC,
    SB_SCHEMES_AFFINE = SB_SCHEME_TENSOR_AFFINE | SB_SCHEME_CHANNEL_AFFINE |
                        SB_SCHEME_GROUP_AFFINE,
};

#define SB_BITS(b)       (1u << (b))
#define SB_BITS_UP_TO(b) ((2u << (b)) - 2u) /* 1..b */

/* What a setting is for: activations, weights beside calibrated activations,
 * with `A: none`, with `A: dynamic`. */
typedef enum sb_target_use {
    SB_USE_ACT,
    SB_USE_WEIGHT,
    SB_USE_WEIGHT_ONLY,
    SB_USE_WEIGHT_DYNAMIC,
    SB_USE_COUNT
} sb_target_use;

/* What a target takes for one use.  All 0: not at all, and `why_bits` says
 * why. */
typedef struct sb_target_limits {
    /* What a file for it can hold; a width that it has no type for is stored
     * in the next wider one. */
    uint32_t bits, schemes;
    /* What a configuration that names the target may ask for, where that is
     * less: what the runtime gains something from.  0: the same. */
    uint32_t named_bits, named_schemes;
    const char *why_bits, *why_schemes; /* halves of sentences, for people */
} sb_target_limits;

/* One setting to check: the scheme by its number, granularity * 2 + affine. */
typedef struct sb_target_setting {
    sb_target_use use;
    int bits;
    unsigned scheme;
    bool named; /* by a configuration with this target as BACKEND */
} sb_target_setting;

typedef struct sb_target_refusal {
    bool of_bits;     /* else it is the scheme */
    uint32_t allowed; /* bit b: b bits; or bits of schemes */
    const char *why;
} sb_target_refusal;

typedef enum sb_bias_policy {
    SB_BIAS_FLOAT, /* stays a float constant */
    SB_BIAS_INT32, /* int32 constant + DQ, scale s_x * s_w, zero point 0 */
} sb_bias_policy;

/* Which inputs of an Add that joins two branches get a Q/DQ pair. */
typedef enum sb_residual_policy {
    SB_RESIDUAL_BOTH,
    SB_RESIDUAL_SKIP, /* only the one that does not come from the convolution
                         into which the Add is fused */
} sb_residual_policy;

/* ---- what a runtime does with a file ------------------------------------ */

/* How the simulation finds what fuses. */
typedef enum sb_sim_steps {
    SB_SIM_UNKNOWN, /* nothing is known of fusion */
    SB_SIM_UNITS,   /* groups are looked for as they stand in the file */
    SB_SIM_ORT,     /* after ONNX Runtime's own graph transformations */
    SB_SIM_INPUTS,  /* by inputs alone, with quantization carried through */
} sb_sim_steps;

enum {
    SB_SIM_S8_TO_U8 = 1 << 0, /* int8 Q -> DQ with one use become uint8 */
    SB_SIM_INT8 = 1 << 1,     /* int8 activations have kernels */
};

/* A reason for staying float: what is wrong and what helps. */
typedef struct sb_sim_reason {
    const char *rule;   /* short, stable: "relu-zero-point" */
    const char *why;    /* one sentence without full stop */
    const char *remedy; /* the same */
} sb_sim_reason;

typedef struct sb_sim sb_sim;

/* What a runtime with SB_SIM_INPUTS says to nodes that stay float. */
typedef struct sb_sim_inputs_rules {
    const sb_sim_reason *input;   /* not every input is quantized */
    const sb_sim_reason *skip;    /* no branch of a sum is */
    const sb_sim_reason *between; /* Q/DQ between a layer and its activation */
    const sb_sim_reason *both;    /* int8 in, but float out */
    const sb_sim_reason *concat;  /* branches of different scales */
    bool concat_zero_points;      /* their zero points count as well */
    /* Further conditions of a layer with quantized inputs; NULL if it is
     * taken. */
    const sb_sim_reason *(*layer)(const sb_sim *sim, const sb_node *node);
} sb_sim_inputs_rules;

typedef struct sb_target_def {
    const char *name;    /* "onnxruntime-x86"; as in targets.def */
    const char *summary; /* one line, for `list targets` */
    /* By sb_target_use. */
    sb_target_limits limits[SB_USE_COUNT];
    /* Every type that is written (bit 1 << sb_dtype).  `weight_narrow` leaves
     * out the lowest number of weights, so that the range is [-127, 127]. */
    uint32_t act_types, weight_types;
    bool weight_narrow;
    /* May pairs of uint8 x int8 products overflow int16 on some processors of
     * this target, so that `--reduce-range auto` has work to do? */
    bool pairs_saturate;
    sb_bias_policy bias;
    sb_residual_policy residual;
    bool one_dq_per_use; /* each consumer has a DQ of its own */
    /* (optional) Rewrites with which its kernels are faster, in their order,
     * NULL at the end; they run at export. */
    const sb_rewrite_def *const *rewrites;
    /* (optional) Passes over the finished graph of a file, without which it
     * would compute something else. */
    const char *passes;
    /* A BatchNormalization between integer kernels is fastest as a convolution
     * of one weight a channel (passes/deploy/bn_to_conv.c). */
    bool norm_as_conv;
    /* A depthwise convolution whose input comes from a float operator and
     * whose result goes to one (HardSwish, say) is faster in float: it
     * multiplies so little that integers save less than Q and DQ cost.  So is,
     * or nearly so, the first convolution with an activation of its own that
     * is not folded into it, which runs over the largest values. */
    bool fast_float;
    /* Convolutions whose groups have fewer channels, in or out, are faster in
     * float; depthwise ones only if they have fewer groups than this. */
    int min_group;
    /* What only depthwise convolutions read may have one scale for each
     * channel: they run on integers all the same. */
    bool depthwise_channels;
    /* It has QLinearConv and the like, so that files may be written with
     * them. */
    bool qoperator;
    /* It computes Q/DQ groups with integers just as our own kernels do, so
     * that its files are evaluated so.  Other runtimes have arithmetic of
     * their own, to which float with rounding is as near. */
    bool integer_truth;
    int opset; /* of the file for 8-bit types */
    /* NULL: the configuration alone decides (no runtime in particular). */
    const sb_target_op *ops;
    size_t n_ops;
    sb_sim_steps steps;
    uint32_t sim_flags;
    const sb_sim_inputs_rules *inputs; /* of SB_SIM_INPUTS */
    /* (optional) The rule of its parser that a Q or DQ node breaks, or
     * NULL. */
    const sb_sim_reason *(*broken)(const sb_graph *g, const sb_node *node);
} sb_target_def;

/* ---- questions ---------------------------------------------------------- */

/* By name, as targets.def has it; NULL if there is none such. */
const sb_target_def *sb_target_find(const char *name);
const sb_target_def *const *sb_target_all(size_t *n);
/* Every name in order, other spellings included; ends with NULL. */
extern const char *const sb_target_names[];
/* The first of the list that is a runtime: for those who name none. */
const sb_target_def *sb_target_default(void);
/* Fails with SB_BAD_ARG, and names the target that may be meant. */
SB_MUST_USE sb_status sb_target_unknown(sb_ctx *ctx, const char *name);
/* Runtimes for which `has` holds: "a, b and c", with that last word. */
void sb_target_list(sb_str *out, bool (*has)(const sb_target_def *target),
                    const char *last);

/* What a configuration may ask for, in words, the uses apart: "weights 8 bit,
 * per channel, symmetric; activations ...". */
void sb_target_describe(const sb_target_def *target, sb_str *out);

/* Does the target take the setting?  If not, *out says what it takes. */
bool sb_target_check(const sb_target_def *target,
                     const sb_target_setting *setting, sb_target_refusal *out);
/* Has it anything at all for this use? */
bool sb_target_has(const sb_target_def *target, sb_target_use use);
/* Does it take symmetric, or affine, scales of some granularity? */
bool sb_target_takes(const sb_target_def *target, sb_target_use use,
                     bool symmetric);

/* The row of an operator; NULL: it stays float, or the target has no rows. */
const sb_target_op *sb_target_op_find(const sb_target_def *target,
                                      const sb_node *node);
/* What the runtime makes of the operator; NULL: nothing. */
const sb_fusion *sb_fusion_find(const sb_target_def *target,
                                const sb_node *node);
/* Has the row of the operator one of these flags (SB_FUSE_16BIT ...)? */
bool sb_fusion_flag(const sb_target_def *target, const sb_node *node,
                    uint32_t flags);
/* Is input 1 a weight, if it is a constant, that kernels multiply by? */
bool sb_target_is_weighted(const sb_target_op *op);
/* The axis along which the weight of `node`, of this rank, has scales; -1 if
 * it may have only one. */
int sb_target_weight_axis(const sb_target_op *op, const sb_node *node,
                          int rank);
/* Is input `i` of the node quantized by this row (bias not counted)? */
bool sb_target_is_data(const sb_target_op *op, uint32_t i);

static inline bool sb_target_has_type(uint32_t types, sb_dtype dtype)
{
    return (types >> (unsigned)dtype & 1u) != 0;
}

#define SB_TYPE(name) (1u << SB_DTYPE_##name)

#endif
