/* quant_config_file.h - a config as it stands in the file; only for the files
 * quant_config*.c. */
#ifndef SB_QUANT_QUANT_CONFIG_FILE_H
#define SB_QUANT_QUANT_CONFIG_FILE_H

#include "quant/quant_config.h"

/* W or A, before it is made an sb_quant_spec.  Numbers of ENUMs count in the
 * name lists of quant_config_table.c. */
typedef struct sb_quant_side {
    int scheme; /* granularity * 2 + affine; -1 if not set */
    int quantizer;
    int64_t bit; /* -1 if not set */
    bool disable;
    int64_t group_size;
    double pact_alpha;
    int observer;
    double percentile_alpha;
    int aciq;
    double ema_ratio;
    int layout;
    bool qadd;
    const sb_yaml *specific;
} sb_quant_side;

typedef struct sb_quant_file {
    int backend;
    sb_param_strings skip;
    bool fuse_bn, bn_tuning, disable_unnecessary;
    const sb_yaml *w, *a;
    int sparser, strategy; /* -1 if not set */
    double ratio;
} sb_quant_file;

/* W or A, resolved. */
typedef struct sb_quant_config_side {
    sb_quant_side side;
    sb_quant_spec spec;
    /* SPECIFIC: patterns, what each stands for, where it is in the file. */
    sb_param_strings patterns;
    sb_quant_spec *specs;
    const sb_yaml **places;
    unsigned char *uses; /* what sb_quant_config_warn_unused() found out */
} sb_quant_config_side;

struct sb_quant_config {
    sb_ctx *ctx;
    sb_yaml_doc *doc; /* texts and lists live in its arena */
    sb_quant_file file;
    sb_quant_mode mode;
    bool has_quant, has_sparse;
    sb_quant_config_side sides[2]; /* by sb_quant_kind */
};

extern const char *const sb_quant_scheme_names[];
extern const char *const sb_quant_quantizer_names[];
extern const char *const sb_quant_observer_names[];
extern const char *const sb_quant_backend_names[];
extern const char *const sb_quant_strategy_names[];

extern const sb_param_def sb_quant_w_table[];
extern const sb_param_def sb_quant_a_table[];

void sb_quant_side_resolve(const sb_quant_side *side, sb_quant_kind kind,
                           sb_quant_spec *out);

/* What the rules need to know about one set of settings. */
typedef struct sb_quant_check {
    const sb_yaml_doc *doc;
    sb_quant_backend backend;
    sb_quant_mode mode;
    sb_quant_kind kind;
    const char *path;     /* "W", or "W.SPECIFIC['conv1']" */
    const sb_yaml *place; /* NULL: where `path` and the key are in the file */
} sb_quant_check;

/* Refuses settings that cannot work, and says why. */
SB_MUST_USE sb_status sb_quant_check_side(const sb_quant_check *check,
                                          const sb_quant_side *side);
/* `A: none` and `A: dynamic` against the backend. */
SB_MUST_USE sb_status sb_quant_check_mode(const sb_quant_check *check,
                                          const sb_yaml *a);

#endif
