/* quantize_job.h - what `sparsebit quantize` was asked for and what came of
 * it. */
#ifndef CLI_QUANTIZE_JOB_H
#define CLI_QUANTIZE_JOB_H

#include <string.h>

#include "report_page.h"

typedef struct quantize_args {
    const char *model, *config, *output, *target, *weights;
    const char *save, *format, *asym, *reduce, *report, *preset;
    const char *tokenizer, *float_as, *drop, *calibrate, *gguf_type;
    cli_data_spec data;
    cli_list load, dump_after, exclude, values;
    unsigned memory, opset, level, version, augment;
    size_t limit; /* bytes of memory; 0: none */
    bool exact, extra_info, dry_run, force;
} quantize_args;

/* What --accuracy-drop asked for, and what came of it, in per cent. */
typedef struct quantize_drop {
    double most;
    double before, lost; /* with all layers quantized, and in the end */
    const char *what;    /* of what; NULL: not asked for */
    size_t n_layers, n;  /* layers; how many of them stay in float */
    char **names;        /* patterns, the worst layer first */
    size_t *ends;        /* [n_layers + 1]: names of the first layers */
} quantize_drop;

typedef struct quantize_job {
    cli_env *env;
    const cli_cmd *cmd; /* that asks for it */
    const quantize_args *args;
    const char *config_text; /* instead of the file, or NULL */
    sb_model *model;
    sb_quant_model *qm;
    sb_data *data;
    size_t samples;
    double load, calibrate, write; /* seconds */
    const char *subject;           /* of a failure: the file it is about */
    double bytes;                  /* of the model file */
    quantize_drop drop;
    char *journal; /* what is rounded already, or NULL */
} quantize_job;

/* Does --asym name `w` or `a`? */
static inline bool quantize_asym_has(const quantize_job *j, char what)
{
    return j->args->asym && strchr(j->args->asym, what);
}

/* Feeds what the language model writes by itself: --calibrate self
 * (quantize_self.c). */
sb_status quantize_feed_self(quantize_job *j);

/* Runs the samples, and computes scales (quantize_calibrate.c). */
int quantize_calibrate(quantize_job *j);
/* Prints why that, or a comparison with the float model, failed. */
int quantize_blame(quantize_job *j);

/* Is a file of a language model asked for, and no ONNX (cmd_quantize.c)? */
bool quantize_is_language(const quantize_args *a);
/* The parts of the work: the model is read, then quantized, with as few layers
 * in float as --accuracy-drop takes (cmd_quantize.c). */
int quantize_check_drop(const cli_cmd *cmd, const quantize_args *a,
                        const sb_ctx *ctx);
int quantize_load(quantize_job *j);
int quantize_all_but(quantize_job *j);
void quantize_free(quantize_job *j);

/* Quantizes anew with further nodes in float; `qm` is NULL if nothing is left
 * to quantize. */
typedef int (*quantize_redo_fn)(quantize_job *j, const char *const *floats,
                                size_t n);
/* Keeps layers in float until no more is lost than --accuracy-drop allows
 * (quantize_drop.c). */
int quantize_limit_drop(quantize_job *j, quantize_redo_fn redo);

/* What it led to (quantize_report.c). */
void quantize_print_drop(const quantize_drop *d);
void quantize_json_drop(cli_json *out, const quantize_drop *d);

/* What would be done, after --dry-run; what was done (quantize_report.c). */
void quantize_print_plan(const quantize_job *j);
void quantize_print_json(const quantize_job *j);
void quantize_print_text(const quantize_job *j);
/* The page of --report. */
int quantize_write_report(const quantize_job *j);

#endif
