/* prune_config.h - sconfig.yaml: the table SPARSER. */
#ifndef SB_PRUNE_PRUNE_CONFIG_H
#define SB_PRUNE_PRUNE_CONFIG_H

#include "config/param.h"
#include "graph/graph.h"
#include "prune/criterion/criterion.h"

typedef enum sb_prune_type {
    SB_PRUNE_STRUCTURED,  /* whole channels */
    SB_PRUNE_UNSTRUCTURED /* single weights, which become zero */
} sb_prune_type;

typedef enum sb_prune_scope { SB_SCOPE_LAYER, SB_SCOPE_GLOBAL } sb_prune_scope;

typedef enum sb_prune_schedule {
    SB_SCHEDULE_ONE_SHOT,
    SB_SCHEDULE_LINEAR,
    SB_SCHEDULE_CUBIC
} sb_prune_schedule;

/* The file as it is read. */
typedef struct sb_prune_file {
    int type; /* both spellings of each, see the table */
    const char *strategy;
    double ratio;
    const sb_yaml *specific;
    int scope;
    int64_t round_to, iterations;
    int schedule;
    double begin, end;
    const char *nm;
    sb_param_ints block;
    sb_param_strings exclude;
    bool statistics;
    bool refit;
} sb_prune_file;

/* The ratio for nodes that match a pattern. */
typedef struct sb_prune_specific {
    const char *pattern;
    double ratio;
    const sb_yaml *key;
} sb_prune_specific;

typedef struct sb_prune_config {
    sb_ctx *ctx;
    sb_yaml_doc *doc;
    sb_prune_file file;
    sb_prune_type type;
    sb_prune_scope scope;
    const sb_criterion_def *criterion;
    int n_of, m_of; /* NM: at most n of m consecutive weights stay */
    int64_t block_rows, block_cols; /* 1, 1: single weights */
    sb_prune_specific *specific;
    size_t n_specific;
    sb_param_strings excluded; /* by the caller, beside EXCLUDE */
} sb_prune_config;

/* What decides how much of which layer goes. */
typedef struct sb_prune_args {
    const sb_prune_config *cfg;
    const sb_prune_seen *seen; /* or NULL */
    const sb_graph *origin;    /* the network before training, or NULL */
    uint64_t seed;
    double share; /* of every ratio: how far a schedule has come, at most 1 */
    /* Of several steps: what the earlier ones took of every ratio, and by group
     * the channels that might go before the first, which ratios are of; NULL:
     * to be inferred from what is left. */
    double before;
    const uint32_t *first;
} sb_prune_args;

/* For `sparsebit config` and the reference. */
extern const sb_param_def sb_prune_table[];

SB_MUST_USE sb_status sb_prune_config_load(sb_ctx *ctx, const char *path,
                                           sb_prune_config **out);
SB_MUST_USE sb_status sb_prune_config_load_memory(sb_ctx *ctx, const char *name,
                                                  const void *data, size_t size,
                                                  sb_prune_config **out);
void sb_prune_config_free(sb_prune_config *cfg); /* NULL is allowed */
/* More patterns like those of EXCLUDE; copied. */
SB_MUST_USE sb_status sb_prune_config_exclude(sb_prune_config *cfg,
                                              const char *const *patterns,
                                              size_t n);
/* A list of JSON, in an empty string, with a line for each setting. */
SB_MUST_USE sb_status sb_prune_config_describe(const sb_prune_config *cfg,
                                               sb_str *out);
/* SB_BAD_CONFIG if a pattern matches no node, with names that are close. */
SB_MUST_USE sb_status sb_prune_config_check(const sb_prune_config *cfg,
                                            const sb_graph *graph);
/* The share of every ratio that is gone after `x` of the steps, 0 to 1. */
double sb_prune_config_share(const sb_prune_config *cfg, double x);
/* How many of M stay: fewer as the schedule goes on. */
int sb_prune_args_n_of(const sb_prune_args *args);
/* The ratio for a node; 0 if it is excluded.  `stated`: a pattern says so. */
double sb_prune_config_ratio(const sb_prune_config *cfg, const sb_node *node,
                             bool *stated);

#endif
