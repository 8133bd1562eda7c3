/* sb_data: the public side of data sets. */
#include "base/alloc.h"

sb_status sb_data_open(sb_ctx *ctx, const char *path,
                       const sb_data_options *opt, sb_data **out)
{
    (void)opt;
    (void)out;
    return sb_fail(ctx, SB_UNSUPPORTED, "%s: data sets are not there yet",
                   path);
}

sb_status sb_data_parse(sb_ctx *ctx, const char *text, const char *path,
                        const sb_data_options *opt, sb_data **out)
{
    (void)text;
    return sb_data_open(ctx, path, opt, out);
}

void sb_data_free(sb_data *data)
{
    (void)data;
}

sb_status sb_data_next(sb_data *data, sb_batch *out)
{
    (void)data;
    *out = (sb_batch){0};
    return SB_OK;
}

void sb_data_rewind(sb_data *data)
{
    (void)data;
}

size_t sb_data_count(const sb_data *data)
{
    (void)data;
    return 0;
}

int sb_data_labelled(const sb_data *data)
{
    (void)data;
    return 0;
}

size_t sb_data_broken_count(const sb_data *data)
{
    (void)data;
    return 0;
}

const char *sb_data_broken(const sb_data *data, size_t i)
{
    (void)data;
    (void)i;
    return "";
}

sb_status sb_batch_inputs(sb_ctx *ctx, const sb_batch *batch,
                          const char *const *names, size_t n,
                          const sb_tensor **out)
{
    (void)names;
    if (batch->n_inputs != n)
        return sb_fail(ctx, SB_BAD_DATA, "%zu inputs, want %zu",
                       batch->n_inputs, n);
    for (size_t i = 0; i < n; i++)
        out[i] = batch->inputs[i];
    return SB_OK;
}
