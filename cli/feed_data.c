/* All batches of a data set through something that takes inputs. */
#include "feed_data.h"

#include <stdlib.h>

static sb_status feed_batch(cli_feed *f, sb_feed *feed, const sb_batch *batch)
{
    size_t n_in = sb_model_input_count(f->model);
    size_t n_out = batch->n_states ? sb_model_output_count(f->model) : 0;
    const sb_tensor **inputs = cli_alloc(n_in + n_out, sizeof(sb_tensor *));
    const sb_tensor **outputs = inputs + n_in;
    sb_status status = sb_feed_inputs(feed, batch, inputs, n_in);

    if (status == SB_OK) {
        f->in_data = false;
        status = f->run(f->user, inputs, n_in, outputs, n_out);
    }
    if (status == SB_OK && n_out > 0)
        status = sb_feed_keep(feed, batch, outputs, n_out);
    free(inputs);
    return status;
}

sb_status cli_feed_all(cli_feed *f)
{
    const sb_batch *batch = NULL;
    sb_feed *feed = NULL;
    cli_progress progress;
    sb_status status = sb_feed_create(f->model, &feed);

    size_t all = sb_data_count(f->data) * (f->passes ? f->passes : 1);

    cli_progress_begin(&progress, f->env, f->what,
                       f->most && f->most < all ? f->most : all);
    while (status == SB_OK && (!f->most || f->samples < f->most)) {
        f->in_data = true;
        status = sb_data_next(f->data, &batch);
        if (status != SB_OK || batch->count == 0)
            break;
        status = feed_batch(f, feed, batch);
        f->samples += batch->count;
        cli_progress_step(&progress, f->samples);
    }
    f->seconds += cli_progress_end(&progress);
    sb_feed_free(feed);
    return status;
}

int cli_feed_fail(const cli_feed *f, const char *model_path,
                  const char *data_path)
{
    return f->in_data
               ? cli_fail(f->env, data_path)
               : cli_blame(f->env, f->model, model_path, f->data, data_path);
}

sb_status cli_feed_forward(void *qm, const sb_tensor *const *inputs,
                           size_t n_in, const sb_tensor **outputs, size_t n_out)
{
    return sb_quant_model_forward(qm, inputs, n_in, outputs, n_out);
}

sb_status cli_feed_errors(void *errors, const sb_tensor *const *inputs,
                          size_t n_in, const sb_tensor **outputs, size_t n_out)
{
    return sb_quant_errors_run(errors, inputs, n_in, outputs, n_out);
}
