/* Whether samples or the model are to blame for a failure.
 *
 * What runs a network is given tensors, and its messages name inputs; which
 * file a tensor came from only the command knows.  So where a message is about
 * an input, or about a NaN that may come from one, the samples are read once
 * more, up to the one that is not what the input takes.  An infinity in another
 * input, such as a mask, is no mistake. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Does the message name the input, in quotes? */
static bool blame_names(const char *message, const char *input)
{
    size_t n = strlen(input);

    for (const char *p = strchr(message, '\''); p; p = strchr(p + 1, '\''))
        if (strncmp(p + 1, input, n) == 0 && p[n + 1] == '\'')
            return true;
    return false;
}

/* How many samples of the batch come before the element that is not finite;
 * SB_NO_INDEX: there is none. */
static size_t blame_element(const sb_tensor *t, int axis, float *found)
{
    const float *v = sb_tensor_data(t);
    const int64_t *dims = sb_tensor_dims(t);
    int64_t n = sb_tensor_elements(t), inner = 1;

    if (sb_tensor_dtype(t) != SB_DTYPE_F32)
        return SB_NO_INDEX;
    for (int d = axis + 1; d < sb_tensor_rank(t); d++)
        inner *= dims[d];
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(v[i]))
            continue;
        *found = v[i];
        return axis < 0 ? 0 : (size_t)(i / inner % dims[axis]);
    }
    return SB_NO_INDEX;
}

static bool blame_type(const sb_tensor *t, int axis, const sb_value_info *want)
{
    if (want->dtype != SB_DTYPE_NONE && sb_tensor_dtype(t) != want->dtype)
        return true;
    if (want->rank < 0)
        return false;
    if (sb_tensor_rank(t) != want->rank)
        return true;
    for (int d = 0; d < want->rank; d++)
        if (d != axis && want->dims[d] >= 0 &&
            sb_tensor_dims(t)[d] != want->dims[d])
            return true;
    return false;
}

/* Prints what is wrong with a sample of the batch, if something is. */
static bool blame_batch(const sb_model *model, const sb_batch *batch,
                        const sb_tensor *const *inputs, const char *path,
                        const char *message)
{
    for (size_t i = 0; i < sb_model_input_count(model); i++) {
        const sb_value_info *info = sb_model_input(model, i);
        size_t k = 0;
        float found = 0;

        while (k < batch->n_inputs && batch->inputs[k] != inputs[i])
            k++;
        if (k == batch->n_inputs)
            continue;
        bool named = blame_names(message, info->name);
        int axis = batch->whole ? -1 : batch->axes ? batch->axes[k] : 0;
        bool type = named && blame_type(inputs[i], axis, info);
        size_t at = type ? 0 : blame_element(inputs[i], axis, &found);
        if (at == SB_NO_INDEX || !(type || named || isnan(found)))
            continue;
        const char *name =
            batch->names && at < batch->count ? batch->names[at] : "?";
        if (type)
            (void)cli_error("%s: sample %zu (%s): %s", path, batch->first + at,
                            name, message);
        else
            (void)cli_error("%s: sample %zu (%s) holds %s for input '%s', want "
                            "finite numbers",
                            path, batch->first + at, name,
                            isnan(found) ? "NaN" : "an infinity", info->name);
        return true;
    }
    return false;
}

static bool blame_data(const sb_model *model, sb_data *data, const char *path,
                       const char *message)
{
    size_t n = sb_model_input_count(model);
    const sb_tensor **inputs = cli_alloc(n, sizeof(sb_tensor *));
    const sb_batch *batch = NULL;
    sb_feed *feed = NULL;
    sb_status status = sb_feed_create(model, &feed);
    bool blamed = false;

    sb_data_rewind(data);
    while (status == SB_OK && !blamed) {
        status = sb_data_next(data, &batch);
        if (status != SB_OK || batch->count == 0)
            break;
        status = sb_feed_inputs(feed, batch, inputs, n);
        if (status == SB_OK)
            blamed = blame_batch(model, batch, inputs, path, message);
    }
    sb_feed_free(feed);
    free(inputs);
    return blamed;
}

int cli_blame(const cli_env *env, const sb_model *model, const char *model_path,
              sb_data *data, const char *data_path)
{
    const char *said = sb_ctx_error(env->ctx);
    bool about_input = strstr(said, "NaN") != NULL;

    for (size_t i = 0; model && i < sb_model_input_count(model); i++)
        about_input =
            about_input || blame_names(said, sb_model_input(model, i)->name);
    if (!about_input || !data)
        return cli_fail(env, model_path);

    char *message = cli_printf("%s", said); /* reading on may say another */
    int rc = blame_data(model, data, data_path, message) ? CLI_FAILED
             : strstr(message, model_path)
                 ? cli_error("%s", message)
                 : cli_error("%s: %s", model_path, message);
    free(message);
    return rc;
}
