/* feed_data.h - all batches of a data set through something that takes inputs.
 */
#ifndef CLI_FEED_DATA_H
#define CLI_FEED_DATA_H

#include "cli.h"

typedef struct cli_feed {
    cli_env *env;
    const sb_model *model;
    sb_data *data;
    /* sb_quant_model_forward(), sb_quant_errors_run() ... */
    sb_status (*run)(void *user, const sb_tensor *const *inputs, size_t n_in,
                     const sb_tensor **outputs, size_t n_out);
    void *user;
    size_t passes;    /* over the data, which the caller makes; 0: one */
    const char *what; /* for the progress bar: a static word */
    size_t most;      /* it ends with the batch that has this sample; 0: all */
    size_t samples;   /* run so far */
    bool in_data;     /* a failure was one of the data, not of the model */
    double seconds;
} cli_feed;

sb_status cli_feed_all(cli_feed *f);
/* Prints why it failed. */
int cli_feed_fail(const cli_feed *f, const char *model_path,
                  const char *data_path);

/* `run` of a quantized model that calibrates. */
sb_status cli_feed_forward(void *qm, const sb_tensor *const *inputs,
                           size_t n_in, const sb_tensor **outputs,
                           size_t n_out);
/* `run` that measures errors. */
sb_status cli_feed_errors(void *errors, const sb_tensor *const *inputs,
                          size_t n_in, const sb_tensor **outputs, size_t n_out);

#endif
