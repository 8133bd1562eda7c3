/* quant_config_file.h - a config as it stands in the file; only for the files
 * quant_config*.c. */
#ifndef SB_QUANT_CONFIG_QUANT_CONFIG_FILE_H
#define SB_QUANT_CONFIG_QUANT_CONFIG_FILE_H

#include "quant/config/quant_config.h"

/* W or A, before it is made an sb_quant_spec.  Behind it in memory are the
 * parameters of every quantizer and observer, as sb_quant_tables says. */
typedef struct sb_quant_side {
    int scheme;    /* granularity * 2 + affine; -1 if not set */
    int quantizer; /* row, as sb_quantizer_at() counts */
    int64_t bit;   /* -1 if not set */
    bool disable;
    int64_t group_size;
    int observer; /* row, as sb_observer_at() counts */
    int layout;
    bool qadd;
    const sb_yaml *specific;
} sb_quant_side;

/* SCHEDULE.LAYERWISE: by itself where only weights are quantized. */
typedef enum sb_layerwise {
    SB_LAYERWISE_AUTO,
    SB_LAYERWISE_ON,
    SB_LAYERWISE_OFF
} sb_layerwise;

typedef struct sb_quant_file {
    int backend; /* in sb_target_names */
    sb_param_strings skip;
    bool fuse_bn, bn_tuning, disable_unnecessary, bias_correction, equalization;
    int layerwise; /* sb_layerwise */
    int64_t refine_samples;
    sb_quant_blockwise blockwise;
    const sb_yaml *w, *a;
    int sparser, strategy; /* -1 if not set */
    double ratio;
} sb_quant_file;

/* The keys: those that are always there, and those that quantizers and
 * observers bring (quant_config_table.c). */
typedef struct sb_quant_tables {
    const sb_param_def *file;
    const sb_param_def *sides[2]; /* by sb_quant_kind */
    size_t side_size;             /* of an sb_quant_side with all parameters */
    /* By row: its name, and where in a side its parameters are; 0: none. */
    sb_ctx *ctx; /* whose rows are in them */
    const char **quantizer_names, **observer_names;
    size_t *quantizer_at, *observer_at;
} sb_quant_tables;

SB_MUST_USE sb_status sb_quant_tables_make(sb_arena *arena,
                                           sb_quant_tables *out);

/* W or A, resolved. */
typedef struct sb_quant_config_side {
    sb_quant_side *side;
    sb_quant_spec spec;
    /* SPECIFIC: patterns, what each stands for, where it is in the file. */
    sb_param_strings patterns;
    sb_quant_spec *specs;
    const sb_yaml **places;
    unsigned char *uses; /* what sb_quant_config_warn_unused() found out */
} sb_quant_config_side;

struct sb_quant_config {
    sb_ctx *ctx;
    sb_yaml_doc *doc; /* texts, lists and parameters live in its arena */
    sb_quant_tables tables;
    sb_quant_file file;
    sb_param_strings excluded; /* as file.skip, by sb_quant_config_exclude() */
    sb_quant_mode mode;
    bool has_quant, has_sparse;
    sb_quant_config_side sides[2]; /* by sb_quant_kind */
};

extern const char *const sb_quant_scheme_names[];
extern const char *const sb_quant_strategy_names[];

void sb_quant_side_resolve(const sb_quant_tables *tables,
                           const sb_quant_side *side, sb_quant_kind kind,
                           sb_quant_spec *out);

/* What the rules need to know about one set of settings. */
typedef struct sb_quant_check {
    const sb_yaml_doc *doc;
    const sb_quant_tables *tables;
    const sb_target_def *target;
    sb_quant_mode mode;
    sb_quant_kind kind;
    const char *path;     /* "W", or "W.SPECIFIC['conv1']" */
    const sb_yaml *place; /* NULL: where `path` and the key are in the file */
} sb_quant_check;

/* Refuses settings that cannot work, and says why. */
SB_MUST_USE sb_status sb_quant_check_side(const sb_quant_check *check,
                                          const sb_quant_side *side);
/* The same against what the target takes (quant_config_target.c). */
SB_MUST_USE sb_status sb_quant_check_target(const sb_quant_check *check,
                                            const sb_quant_side *side);
/* `path.key: found, allowed: why` with its line. */
SB_MUST_USE sb_status sb_quant_check_refuse(const sb_quant_check *check,
                                            const char *key, const char *found,
                                            const char *allowed,
                                            const char *why);
/* The numbers, or the names, of a mask: "8", "4 or 8", "a, b or c"; three and
 * more numbers in a row are "1..8". */
void sb_quant_list_mask(uint32_t mask, const char *const *names, char *out,
                        size_t size);
/* `A: none` and `A: dynamic` against the target. */
SB_MUST_USE sb_status sb_quant_check_mode(const sb_quant_check *check,
                                          const sb_yaml *a);

#endif
