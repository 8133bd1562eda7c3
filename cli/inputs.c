/* Inputs of a model: from .npy and .npz files, or random. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum { MAX_RANK = 12 };

/* If `word` is NAME=rest for this name, returns rest. */
static const char *after_name(const char *word, const char *name)
{
    size_t len = strlen(name);

    return strncmp(word, name, len) == 0 && word[len] == '=' ? word + len + 1
                                                             : NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);

    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Every word must name an input (or need no name). */
static int check_names(const cli_cmd *cmd, const sb_model *model,
                       const cli_list *list, const char *option)
{
    size_t n = sb_model_input_count(model);

    for (size_t k = 0; list && k < list->n; k++) {
        bool found = n == 1 && !strchr(list->v[k], '=');

        for (size_t i = 0; i < n && !found; i++)
            found = after_name(list->v[k], sb_model_input(model, i).name) ||
                    ends_with(list->v[k], ".npz");
        /* With one input, `a=b.npy` may be a file of that name. */
        if (!found && !(n == 1 && strcmp(option, "input") == 0 &&
                        access(list->v[k], F_OK) == 0))
            return cli_usage(cmd,
                             "--%s '%s' names no input of the model, which "
                             "has '%s'%s",
                             option, list->v[k],
                             n ? sb_model_input(model, 0).name : "none",
                             n > 1 ? " and others" : "");
    }
    return CLI_OK;
}

/* The file that holds input `name`, free() it; NULL: none was given. */
static char *file_of(const cli_list *files, const char *name, bool only)
{
    for (size_t k = 0; files && k < files->n; k++) {
        const char *rest = after_name(files->v[k], name);

        if (rest)
            return cli_printf("%s", rest);
        if (ends_with(files->v[k], ".npz") && !only)
            return cli_printf("%s:%s", files->v[k], name);
        if (only)
            return cli_printf("%s", files->v[k]);
    }
    return NULL;
}

/* Reads "1x3x224x224"; -1 if it is not that. */
static int parse_shape(const char *text, int64_t *dims)
{
    int rank = 0;

    while (*text) {
        char *end;

        errno = 0;
        long long d = strtoll(text, &end, 10);
        if (rank == MAX_RANK || *text < '0' || *text > '9' || errno ||
            (*end && (*end != 'x' || !end[1])))
            return -1;
        dims[rank++] = d;
        text = *end ? end + 1 : end;
    }
    return rank;
}

/* The shape to make up for an input: given, else unknown dimensions 1. */
static int choose_shape(const cli_cmd *cmd, const cli_input_spec *spec,
                        const sb_value_info *in, bool only, int64_t *dims,
                        int *rank)
{
    const char *text = NULL;

    for (size_t k = 0; spec->shapes && k < spec->shapes->n; k++) {
        text = after_name(spec->shapes->v[k], in->name);
        if (!text && only)
            text = spec->shapes->v[k];
        if (text)
            break;
    }
    if (text) {
        *rank = parse_shape(text, dims);
        if (*rank < 0)
            return cli_usage(cmd, "--shape: '%s' is not like 1x3x224x224",
                             text);
        return CLI_OK;
    }
    if (in->rank < 0)
        return cli_usage(cmd,
                         "input '%s' has no shape in the file: give "
                         "--shape %s=...",
                         in->name, in->name);
    *rank = in->rank;
    for (int i = 0; i < in->rank; i++) {
        dims[i] = in->dims[i] >= 0 ? in->dims[i] : 1;
        if (i == 0 && in->dims[0] < 0 && spec->batch > 0)
            dims[0] = spec->batch;
    }
    if (spec->batch > 0 && in->rank > 0 && dims[0] != spec->batch)
        return cli_usage(cmd, "--batch %u: input '%s' is fixed to %s",
                         spec->batch, in->name, in->text);
    return CLI_OK;
}

/* The array of a file, in the type that the model wants if that can be. */
static int load_one(cli_env *env, const char *file, sb_dtype want,
                    sb_tensor **out)
{
    sb_tensor *loaded = NULL;

    if (sb_tensor_load(env->ctx, file, &loaded) != SB_OK)
        return cli_fail(env, file);
    sb_dtype found = sb_tensor_dtype(loaded);
    if (want == SB_DTYPE_NONE || want == found || found == SB_DTYPE_STRING) {
        *out = loaded;
        return CLI_OK;
    }
    sb_status status = sb_tensor_fit(env->ctx, loaded, want, out);
    sb_tensor_free(env->ctx, loaded);
    return status == SB_OK ? CLI_OK : cli_fail(env, file);
}

static int make_one(cli_env *env, const cli_cmd *cmd, const sb_model *model,
                    const cli_input_spec *spec, size_t i, sb_tensor **out)
{
    sb_value_info in = sb_model_input(model, i);
    bool only = sb_model_input_count(model) == 1;
    int64_t dims[MAX_RANK];
    int rank = 0;
    char *file = file_of(spec->files, in.name, only);

    if (file) {
        int rc = load_one(env, file, in.dtype, out);

        free(file);
        return rc;
    }
    if (spec->files && spec->files->n > 0)
        return cli_usage(cmd, "no --input for '%s', %s", in.name, in.text);
    int rc = choose_shape(cmd, spec, &in, only, dims, &rank);
    if (rc != CLI_OK)
        return rc;
    if (in.dtype == SB_DTYPE_NONE || in.dtype == SB_DTYPE_STRING)
        return cli_error("input '%s' is %s: cannot make it up", in.name,
                         in.text);
    if (sb_tensor_create(env->ctx, in.dtype, rank, dims, out) != SB_OK)
        return cli_fail(env, in.name);
    sb_tensor_fill_random(*out, spec->seed + i);
    return CLI_OK;
}

int cli_inputs_make(cli_env *env, const cli_cmd *cmd, const sb_model *model,
                    const cli_input_spec *spec, sb_tensor ***out)
{
    size_t n = sb_model_input_count(model);
    sb_tensor **inputs = NULL;
    int rc = check_names(cmd, model, spec->files, "input");

    if (rc == CLI_OK)
        rc = check_names(cmd, model, spec->shapes, "shape");
    if (rc != CLI_OK)
        return rc;
    inputs = cli_alloc(n, sizeof(sb_tensor *));
    for (size_t i = 0; i < n && rc == CLI_OK; i++)
        rc = make_one(env, cmd, model, spec, i, &inputs[i]);
    if (rc == CLI_OK)
        *out = inputs;
    else
        cli_inputs_free(env, model, inputs);
    return rc;
}

void cli_inputs_free(cli_env *env, const sb_model *model, sb_tensor **inputs)
{
    for (size_t i = 0; inputs && i < sb_model_input_count(model); i++)
        sb_tensor_free(env->ctx, inputs[i]);
    free(inputs);
}
