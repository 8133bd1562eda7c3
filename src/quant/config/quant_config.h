/* quant_config.h - the configuration of quantization (qconfig.yaml, the keys
 * of Sparsebit) and what it says about one quantizer.
 *
 *     sb_quant_config *cfg;
 *     SB_TRY(sb_quant_config_load(ctx, "q.yaml", SB_QUANT_CONFIG_QUANT, &cfg));
 *     sb_quant_spec spec;
 *     sb_quant_config_spec(cfg, SB_QUANT_WEIGHT, node, &spec);
 *     ...
 *     sb_quant_config_free(cfg);
 *
 * A config that was loaded is whole: every combination that can come out of
 * it, overrides by SPECIFIC included, was checked. */
#ifndef SB_QUANT_CONFIG_QUANT_CONFIG_H
#define SB_QUANT_CONFIG_QUANT_CONFIG_H

#include "config/param.h"
#include "runtime/target.h"

typedef enum sb_quant_kind {
    SB_QUANT_WEIGHT,     /* a constant: key W */
    SB_QUANT_ACTIVATION, /* an activation: key A */
} sb_quant_kind;

typedef enum sb_quant_granularity {
    SB_QUANT_PER_TENSOR,
    SB_QUANT_PER_CHANNEL,
    SB_QUANT_PER_GROUP, /* weights only: group_size columns share a scale */
} sb_quant_granularity;

/* How activations are treated: `A:` as a map, `A: none`, `A: dynamic`. */
typedef enum sb_quant_mode {
    SB_QUANT_STATIC,       /* calibrated */
    SB_QUANT_WEIGHTS_ONLY, /* activations stay in float */
    SB_QUANT_DYNAMIC,      /* ranges are taken from the data at each run */
} sb_quant_mode;

typedef struct sb_quantizer_def sb_quantizer_def; /* quantize/quantizer.h */
typedef struct sb_observer_def sb_observer_def;   /* observe/observer_def.h */

/* The resolved settings of one quantizer.  Texts are static or live as long
 * as the config. */
typedef struct sb_quant_spec {
    sb_quant_kind kind;
    bool disabled; /* leave this value in float; the rest says nothing then */
    bool dynamic;  /* activation of an `A: dynamic` config: no observer */
    sb_quant_granularity granularity;
    bool symmetric;
    int bits;           /* 1..16 */
    int64_t group_size; /* per group: 16..256 columns, or -1 for all */
    /* Rows, and the parameters that their own tables describe (NULL if they
     * have none), which live as long as the config. */
    const sb_quantizer_def *quantizer;
    const void *quantizer_params;
    const sb_observer_def *observer;
    const void *observer_params;
    /* Channel axis of an activation by LAYOUT: NCHW 1, NLC 2; -1 for weights,
     * where the operator knows. */
    int channel_axis;
    bool qadd;           /* A.QADD.ENABLE_QUANT: quantize inputs of adds */
    const char *pattern; /* of SPECIFIC that matched; NULL if none */
} sb_quant_spec;

/* Have both the same quantizer and observer, with the same parameters? */
bool sb_quant_spec_same_rows(const sb_quant_spec *a, const sb_quant_spec *b);

/* What SPARSER says (sconfig.yaml). */
typedef struct sb_sparse_config {
    bool structured;
    const char *strategy; /* "l1norm" */
    double ratio;         /* 0..1 */
} sb_sparse_config;

typedef struct sb_quant_config sb_quant_config;

/* What a file must hold; the rest is checked as far as it is there. */
enum {
    SB_QUANT_CONFIG_ANY = 0,
    SB_QUANT_CONFIG_QUANT = 1 << 0,  /* W and A */
    SB_QUANT_CONFIG_SPARSE = 1 << 1, /* SPARSER */
};

/* SB_IO or SB_BAD_CONFIG (`file:line: key: found, allowed`) on failure. */
SB_MUST_USE sb_status sb_quant_config_load(sb_ctx *ctx, const char *path,
                                           unsigned need,
                                           sb_quant_config **out);
/* From text in memory, which is copied; `file` is what messages say. */
SB_MUST_USE sb_status sb_quant_config_load_memory(sb_ctx *ctx, const char *file,
                                                  const char *text, size_t size,
                                                  unsigned need,
                                                  sb_quant_config **out);
void sb_quant_config_free(sb_quant_config *cfg); /* NULL is allowed */

bool sb_quant_config_has_quant(const sb_quant_config *cfg);
bool sb_quant_config_has_sparse(const sb_quant_config *cfg);
sb_sparse_config sb_quant_config_sparse(const sb_quant_config *cfg);

/* Settings for a weight or activation quantizer of `node`; NULL gives what W or
 * A say without SPECIFIC.  The first pattern in file order that matches wins.
 */
void sb_quant_config_spec(const sb_quant_config *cfg, sb_quant_kind kind,
                          const sb_node *node, sb_quant_spec *out);

/* Patterns of SPECIFIC in file order: to say which of them matched nothing. */
sb_param_strings sb_quant_config_patterns(const sb_quant_config *cfg,
                                          sb_quant_kind kind);
/* What pattern i of them stands for. */
void sb_quant_config_pattern_spec(const sb_quant_config *cfg,
                                  sb_quant_kind kind, size_t i,
                                  sb_quant_spec *out);

/* Nodes and modules that stay in float beside those of SKIP_TRACE_MODULES, by
 * patterns of the same kind, which are copied. */
SB_MUST_USE sb_status sb_quant_config_exclude(sb_quant_config *cfg,
                                              const char *const *patterns,
                                              size_t n);
/* SB_BAD_ARG if one of these means no node of either graph. */
SB_MUST_USE sb_status sb_quant_config_check_excluded(const sb_quant_config *cfg,
                                                     const sb_graph *before,
                                                     const sb_graph *after);
/* Is the node excluded, or inside a module of SKIP_TRACE_MODULES? */
bool sb_quant_config_skips(const sb_quant_config *cfg, const sb_node *node);
/* Does any pattern, those of SPECIFIC included, mean this node? */
bool sb_quant_config_means(const sb_quant_config *cfg, const sb_node *node);
/* Does any pattern mean a node of this name? */
bool sb_quant_config_names(const sb_quant_config *cfg, const char *name);
sb_param_strings sb_quant_config_skip_patterns(const sb_quant_config *cfg);

/* Does a pattern of SPECIFIC mean this node?  As sb_node_matches(), and as the
 * original names things: module paths in snake case (`encoder_layer_norm` for
 * `encoder.LayerNorm`), functions by their own (`softmax` for Softmax). */
bool sb_quant_node_matches(const sb_node *node, const char *pattern);

/* Hands a line to the log for each pattern of SPECIFIC and SKIP_TRACE_MODULES
 * that means no node, or none that an earlier pattern does not take.  The graph
 * is asked as it was in the file and as it is after simplification, which puts
 * layers together and folds others away. */
void sb_quant_config_warn_unused(const sb_quant_config *cfg,
                                 const sb_graph *before, const sb_graph *after);

/* The target that BACKEND names. */
const sb_target_def *sb_quant_config_target(const sb_quant_config *cfg);
sb_quant_mode sb_quant_config_mode(const sb_quant_config *cfg);

/* Blocks of layers learned together (SCHEDULE.BLOCKWISE). */
typedef struct sb_quant_blockwise {
    int64_t steps; /* for each block; 0: none are */
    int64_t batch;
    double rate;       /* of rounding; 0: by the number of steps */
    double scale_rate; /* of scales of activations */
    double lambda;     /* as in quantize/soft_rounding.h */
    double drop;       /* share of activations that is not rounded */
} sb_quant_blockwise;

typedef struct sb_quant_schedule {
    bool fuse_bn;
    bool bn_tuning; /* fold it once it is tuned, which nothing does yet */
    bool disable_unnecessary_quant;
    bool bias_correction;   /* of calibrated models */
    bool equalization;      /* the same */
    bool equalization_idle; /* asked for, of models that are not calibrated */
    bool layerwise;         /* rounding, and fitted to the float network */
    int64_t refine_samples; /* for it, and for rounding; 0: all */
    sb_quant_blockwise blockwise;
} sb_quant_schedule;

sb_quant_schedule sb_quant_config_schedule(const sb_quant_config *cfg);
/* Another SCHEDULE.LAYERWISE, where the user has not said one. */
void sb_quant_config_set_layerwise(sb_quant_config *cfg, bool on);
/* A.QADD.ENABLE_QUANT */
bool sb_quant_config_qadd(const sb_quant_config *cfg);
/* Refuses settings for a node that the target, be it that of BACKEND or
 * another, cannot take. */
SB_MUST_USE sb_status sb_quant_config_check_node(const sb_quant_config *cfg,
                                                 const sb_target_def *target,
                                                 const sb_quant_spec *spec,
                                                 const char *node);
/* As given to the load; for messages. */
const char *sb_quant_config_file(const sb_quant_config *cfg);

/* "per-channel-symmetric" */
const char *sb_quant_scheme_name(sb_quant_granularity granularity,
                                 bool symmetric);

/* A file with every key, explained in comments, that loads as it is. */
SB_MUST_USE sb_status sb_quant_config_default_text(sb_str *out);
/* The table of all keys, for explanations and the reference; what it is made
 * of lives in the arena. */
SB_MUST_USE sb_status sb_quant_config_table(sb_arena *arena,
                                            const sb_param_def **out);

#endif
