/* prunetest.h - what tests of pruning share. */
#ifndef PRUNETEST_H
#define PRUNETEST_H

#include "sbtest.h"

#include <sparsebit/prune.h>

#define CONFIG(keys) "SPARSER: {" keys "}\n"

/* Layers fc1 and fc2: rows of `a` have norms 1, 2, 3, 4; `b` reads them with 1,
 * 1, 1, 1. */
extern const char chain[];

sb_model *prune_parse(const char *text);
sb_status prune_try(const char *text, const char *config, sb_prune **out);
/* Pruned on these inputs (NULL: without data); the report is the pruner's. */
sb_prune *prune_net(const char *text, const char *config,
                    const sb_tensor *data);
const sb_prune_report *prune_report(sb_prune *p);
const sb_prune_layer *prune_layer(sb_prune *p, const char *name);
/* "0,2": the indices cut from an axis of an initializer. */
void assert_cut(sb_prune *p, const char *value, int axis, const char *want);
/* The one output of a model. */
sb_tensor *prune_run_model(const sb_model *model, const sb_tensor *x);
sb_tensor *prune_run(sb_prune *p, const sb_tensor *x);
/* Of sb_ctx_set_log(): keeps the last line in `user`, which has 256 bytes. */
void keep_line(void *user, sb_log_level level, const char *line);
void assert_weight(sb_prune *p, const char *name, const double *want,
                   int64_t n);

#endif
