/* eval_job.h - what `sparsebit eval` was asked for and what came of it. */
#ifndef CLI_EVAL_JOB_H
#define CLI_EVAL_JOB_H

#include "report_page.h"

typedef struct eval_args {
    const char *model, *data, *against, *against_outputs, *save_outputs, *task;
    const char *report;
    double threshold;
    unsigned samples, skip, batch;
    bool strict, exact, integer, simulate;
    cli_list values, set;
} eval_args;

/* One of the two models. */
typedef struct eval_side {
    const char *path, *name; /* as it is called in tables */
    sb_model *model;
    sb_session *session;
    sb_eval *eval;
    const sb_tensor **outputs;
    double seconds; /* running, without waiting for data */
} eval_side;

typedef struct eval_job {
    const eval_args *args;
    eval_side main, other; /* other.path NULL: none */
    sb_data *data;
    cli_saved *saved;
    const sb_tensor **reference; /* outputs of `saved` */
    cli_gather *gather;
    double seconds;
} eval_job;

static inline bool eval_compares(const eval_job *j)
{
    return j->other.path || j->saved;
}

/* eval_print.c */
int eval_print_text(cli_env *env, const eval_job *j);
int eval_print_json(cli_env *env, const eval_job *j);
/* The page of --report. */
int eval_write_report(cli_env *env, const eval_job *j);

/* eval_layers.c: results of nodes against those of the other model, on the
 * first samples. */
typedef struct eval_layers eval_layers;

/* To be freed also on failure. */
sb_status eval_layers_measure(const eval_job *j, eval_layers **out);
/* Signal to noise in dB; NaN if the value is not in both, or not alike. */
double eval_layers_sqnr(const eval_layers *layers, const char *result);
void eval_layers_free(eval_layers *layers);

#endif
