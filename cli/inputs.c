/* Inputs of a model: from .npy and .npz files, or random. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* If `word` is NAME=rest for this name, returns rest. */
static const char *after_name(const char *word, const char *name)
{
    size_t len = strlen(name);

    return strncmp(word, name, len) == 0 && word[len] == '=' ? word + len + 1
                                                             : NULL;
}

bool cli_ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);

    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Does input `i` have no default, and all others one?  Then it need not be
 * named. */
static bool is_only_input(const sb_model *model, size_t i)
{
    for (size_t k = 0; k < sb_model_input_count(model); k++)
        if (!sb_model_input(model, k)->is_constant != (k == i))
            return false;
    return true;
}

/* Every word must name an input (or need no name). */
static int check_names(const cli_cmd *cmd, const sb_model *model,
                       const cli_list *list, const char *option)
{
    size_t n = sb_model_input_count(model);
    bool one = false;

    for (size_t i = 0; i < n && !one; i++)
        one = is_only_input(model, i);
    for (size_t k = 0; list && k < list->n; k++) {
        bool found = one && !strchr(list->v[k], '=');

        for (size_t i = 0; i < n && !found; i++)
            found = after_name(list->v[k], sb_model_input(model, i)->name) ||
                    cli_ends_with(list->v[k], ".npz");
        if (!found && n > 1 && !strchr(list->v[k], '='))
            return cli_usage(cmd,
                             "--%s '%s' does not say for which input: write "
                             "NAME=..., the model has '%s' and others",
                             option, list->v[k],
                             sb_model_input(model, 0)->name);
        /* With one input, `a=b.npy` may be a file of that name. */
        if (!found && !(one && strcmp(option, "input") == 0 &&
                        access(list->v[k], F_OK) == 0))
            return cli_usage(cmd,
                             "--%s '%s' names no input of the model, which "
                             "has '%s'%s",
                             option, list->v[k],
                             n ? sb_model_input(model, 0)->name : "none",
                             n > 1 ? " and others" : "");
    }
    return CLI_OK;
}

/* The file that holds an input, free() it; NULL: none was given.  One that has
 * a default must be named; archives need not have it. */
static char *file_of(const cli_list *files, const sb_value_info *in, bool only)
{
    const char *name = in->name;

    for (size_t k = 0; files && k < files->n; k++) {
        const char *rest = after_name(files->v[k], name);

        if (rest)
            return cli_printf("%s", rest);
        if (cli_ends_with(files->v[k], ".npz") && !only && !in->is_constant)
            return cli_printf("%s:%s", files->v[k], name);
        if (only)
            return cli_printf("%s", files->v[k]);
    }
    return NULL;
}

/* Reads "1x3x224x224"; -1 if it is not that. */
int cli_parse_shape(const char *text, int64_t *dims)
{
    int rank = 0;

    while (*text) {
        char *end;

        errno = 0;
        long long d = strtoll(text, &end, 10);
        if (rank == SB_RANK_MAX || *text < '0' || *text > '9' || errno ||
            (*end && (*end != 'x' || !end[1])))
            return -1;
        dims[rank++] = d;
        text = *end ? end + 1 : end;
    }
    return rank;
}

/* The shape that --shape gives an input; *rank is -1 if it gives none. */
static int given_shape(const cli_cmd *cmd, const cli_list *shapes,
                       const char *name, bool only, int64_t *dims, int *rank)
{
    const char *text = NULL;

    *rank = -1;
    for (size_t k = 0; shapes && k < shapes->n && !text; k++) {
        text = after_name(shapes->v[k], name);
        if (!text && only)
            text = shapes->v[k];
    }
    if (!text)
        return CLI_OK;
    *rank = cli_parse_shape(text, dims);
    if (*rank < 0)
        return cli_usage(cmd, "--shape: '%s' is not like 1x3x224x224", text);
    return CLI_OK;
}

/* ---- shapes that are made up --------------------------------------------- */

/* Dimension `i` as the text of a type has it, "float[batch,3,H + 1]"; free()
 * it. */
static char *dim_text(const char *type, int i)
{
    const char *p = strchr(type, '['), *start = p ? p + 1 : type;
    int depth = 0;

    for (p = start; *p && (depth > 0 || *p != ']'); p++) {
        depth += (*p == '(') - (*p == ')');
        if (*p == ',' && depth == 0) {
            if (i-- == 0)
                break;
            start = p + 1;
        }
    }
    return cli_printf("%.*s", (int)(p - start), start);
}

/* What --shape says about a symbol, by the inputs that have it; else 1. */
static int64_t symbol_value(const cli_cmd *cmd, const sb_model *model,
                            const cli_list *shapes, const char *symbol)
{
    size_t n = sb_model_input_count(model);
    int64_t value = -1;

    for (size_t k = 0; k < n && shapes && shapes->n && value < 0; k++) {
        const sb_value_info *in = sb_model_input(model, k);
        int64_t dims[SB_RANK_MAX];
        int rank = -1;

        if (given_shape(cmd, shapes, in->name, n == 1, dims, &rank) != CLI_OK)
            continue;
        for (int i = 0; i < rank && i < in->rank && value < 0; i++) {
            char *text = dim_text(in->text, i);

            if (strcmp(text, symbol) == 0)
                value = dims[i];
            free(text);
        }
    }
    return value < 0 ? 1 : value;
}

/* A dimension that the file leaves open: a symbol, or a sum of symbols and
 * numbers, as decoders have it for the length of their cache. */
static int64_t open_dim(const cli_cmd *cmd, const sb_model *model,
                        const cli_list *shapes, const sb_value_info *in, int i)
{
    char *text = dim_text(in->text, i), *rest = text;
    int64_t sum = 0;

    if (strpbrk(text, "(*/-")) { /* more than a sum */
        free(text);
        return 1;
    }
    while (rest) {
        char *plus = strchr(rest, '+'), *end;

        if (plus)
            *plus = '\0';
        rest += strspn(rest, " ");
        rest[strcspn(rest, " ")] = '\0';
        long long number = strtoll(rest, &end, 10);
        sum += *rest && !*end ? number : symbol_value(cmd, model, shapes, rest);
        rest = plus ? plus + 1 : NULL;
    }
    free(text);
    return sum > 0 ? sum : 1;
}

/* Height of an image [N, C, H, W] or [N, H, W, C] of any size; -1: it is none.
 * One pixel goes through hardly any network. */
static int image_axis(const sb_value_info *in)
{
    for (int axis = 2; axis >= 1 && in->rank == 4; axis--) {
        int64_t c = in->dims[axis == 2 ? 1 : 3];

        if ((c == 1 || c == 3 || c == 4) && in->dims[axis] < 0 &&
            in->dims[axis + 1] < 0)
            return axis;
    }
    return -1;
}

/* The shape to make up for an input: given, else what its symbols are
 * elsewhere, else 1 for unknown dimensions and 224 for sides of images. */
static int choose_shape(const cli_cmd *cmd, const sb_model *model,
                        const cli_input_spec *spec, const sb_value_info *in,
                        int64_t *dims, int *rank)
{
    enum { IMAGE_SIDE = 224 };
    bool only = sb_model_input_count(model) == 1;
    int rc = given_shape(cmd, spec->shapes, in->name, only, dims, rank);

    if (rc != CLI_OK || *rank >= 0)
        return rc;
    if (in->rank < 0)
        return cli_usage(cmd,
                         "input '%s' has no shape in the file: give "
                         "--shape %s=...",
                         in->name, in->name);
    int side = image_axis(in);
    *rank = in->rank;
    for (int i = 0; i < in->rank; i++) {
        bool open = in->dims[i] < 0;

        dims[i] =
            !open ? in->dims[i] : open_dim(cmd, model, spec->shapes, in, i);
        if (side >= 0 && (i == side || i == side + 1) && dims[i] == 1)
            dims[i] = IMAGE_SIDE;
        if (i == 0 && open && spec->batch > 0)
            dims[0] = spec->batch;
    }
    if (spec->batch > 0 && in->rank > 0 && dims[0] != spec->batch)
        return cli_usage(cmd, "--batch %u: input '%s' is fixed to %s",
                         spec->batch, in->name, in->text);
    return CLI_OK;
}

/* Was a size made up for this input? */
static bool is_made_up(const cli_input_spec *spec, const sb_value_info *in,
                       bool only)
{
    bool open = false;

    for (int i = 0; i < in->rank; i++)
        open = open || in->dims[i] < 0;
    for (size_t k = 0; spec->shapes && k < spec->shapes->n; k++)
        if (only || after_name(spec->shapes->v[k], in->name))
            return false;
    return open && !(spec->files && spec->files->n);
}

int cli_inputs_fail(const cli_env *env, const char *subject,
                    const sb_model *model, const cli_input_spec *spec,
                    sb_tensor *const *inputs)
{
    size_t n = sb_model_input_count(model);
    sb_status status = sb_ctx_status(env->ctx);
    bool by_shape = status != SB_IO && status != SB_INTERRUPTED;

    for (size_t i = 0; i < n && by_shape; i++) {
        const sb_value_info *in = sb_model_input(model, i);
        char shape[256];
        int used = 0;

        if (!inputs[i] || !is_made_up(spec, in, n == 1))
            continue;
        for (int d = 0; d < sb_tensor_rank(inputs[i]); d++)
            used +=
                snprintf(shape + used, sizeof shape - (size_t)used, "%s%lld",
                         d ? "x" : "", (long long)sb_tensor_dims(inputs[i])[d]);
        return cli_error("%s: %s; the file leaves sizes open (%s is %s), tried "
                         "was --shape %s=%s: give another",
                         subject, sb_ctx_error(env->ctx), in->name, in->text,
                         in->name, shape);
    }
    return cli_fail(env, subject);
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
    sb_status status = sb_tensor_cast(env->ctx, loaded, want, out);
    sb_tensor_free(loaded);
    return status == SB_OK ? CLI_OK : cli_fail(env, file);
}

static int make_one(cli_env *env, const cli_cmd *cmd, const sb_model *model,
                    const cli_input_spec *spec, size_t i, sb_tensor **out)
{
    const sb_value_info *in = sb_model_input(model, i);
    bool only = is_only_input(model, i);
    int64_t dims[SB_RANK_MAX];
    int rank = 0;
    char *file = file_of(spec->files, in, only);

    if (file) {
        int rc = load_one(env, file, in->dtype, out);

        free(file);
        return rc;
    }
    if (in->is_constant)
        return CLI_OK; /* what the file says */
    if (spec->files && spec->files->n > 0)
        return cli_usage(cmd, "no --input for '%s', %s", in->name, in->text);
    if (in->dtype == SB_DTYPE_NONE || in->dtype == SB_DTYPE_STRING ||
        in->dtype == SB_DTYPE_SEQUENCE)
        return cli_error("input '%s' is %s: cannot make it up", in->name,
                         in->text);
    int rc = choose_shape(cmd, model, spec, in, dims, &rank);
    if (rc != CLI_OK)
        return rc;
    if (sb_tensor_create(env->ctx, in->dtype, rank, dims, out) != SB_OK)
        return cli_fail(env, in->name);
    sb_tensor_fill_random(*out, spec->seed + i);
    return CLI_OK;
}

/* ---- fixed for good ------------------------------------------------------ */

/* Numbers with commas between them, in brackets or not; `true` and `false`
 * count as numbers.  How many there are, and the first `room` of them; -1 if
 * something else stands there. */
static int64_t parse_numbers(const char *text, double *out, int64_t room)
{
    bool bracket = *text == '[';
    int64_t n = 0;

    for (text += bracket; *text; n++) {
        char *end;
        double v = strtod(text, &end);

        for (int b = 0; b < 2 && end == text; b++) {
            const char *word = b ? "true" : "false";
            if (strncmp(text, word, strlen(word)) == 0) {
                v = b;
                end += strlen(word);
            }
        }
        if (end == text)
            return -1;
        if (n < room)
            out[n] = v;
        end += strspn(end, " ");
        if (bracket && strcmp(end, "]") == 0)
            end++;
        else if (*end != ',' && (*end || bracket))
            return -1;
        else if (*end && !end[1])
            return -1;
        text = *end ? end + 1 + strspn(end + 1, " ") : end;
    }
    return n;
}

/* The shape of a value of `n` numbers for an input: one number fills whatever
 * shape the file gives, with 1 for unknown dimensions; several must be as many
 * as the file says, or make the only axis. */
static int value_shape(const cli_cmd *cmd, const sb_value_info *in, int64_t n,
                       int64_t *dims, int *rank)
{
    int64_t count = 1;

    *rank = in->rank >= 0 ? in->rank : n > 1;
    for (int i = 0; i < *rank; i++) {
        bool known = in->rank >= 0 && in->dims[i] >= 0;

        dims[i] = known ? in->dims[i] : *rank == 1 ? n : 1;
        count *= dims[i] < INT32_MAX ? dims[i] : INT32_MAX;
        if (count > INT32_MAX)
            break;
    }
    if (count > INT32_MAX || (n != 1 && n != count))
        return cli_usage(cmd,
                         "--value: found %lld numbers for '%s', which is %s; "
                         "give %s=@FILE.npy",
                         (long long)n, in->name, in->text, in->name);
    return CLI_OK;
}

/* Floats may round; integers must be what was asked for. */
static bool value_is_kept(sb_dtype dtype, double wanted, double got)
{
    bool rounds = dtype == SB_DTYPE_F32 || dtype == SB_DTYPE_F64 ||
                  dtype == SB_DTYPE_F16 || dtype == SB_DTYPE_BF16;

    return rounds || wanted == got;
}

static int value_from_text(cli_env *env, const cli_cmd *cmd,
                           const sb_value_info *in, const char *text,
                           sb_tensor **out)
{
    int64_t dims[SB_RANK_MAX], n = parse_numbers(text, NULL, 0);
    sb_dtype dtype = in->dtype == SB_DTYPE_NONE ? SB_DTYPE_F32 : in->dtype;
    int rank = 0;

    if (n < 1)
        return cli_usage(cmd,
                         "--value: found '%s' for '%s', want a number, "
                         "numbers with commas, or @FILE.npy",
                         text, in->name);
    int rc = value_shape(cmd, in, n, dims, &rank);
    if (rc != CLI_OK)
        return rc;
    if (sb_tensor_create(env->ctx, dtype, rank, dims, out) != SB_OK)
        return cli_fail(env, in->name);
    double *numbers = cli_alloc((size_t)n, sizeof *numbers);
    (void)parse_numbers(text, numbers, n);
    int64_t count = sb_tensor_elements(*out);
    for (int64_t i = 0; i < count && rc == CLI_OK; i++) {
        double back, v = numbers[n > 1 ? i : 0];

        if (!sb_tensor_write_f64(*out, i, 1, &v) ||
            !sb_tensor_read_f64(*out, i, 1, &back))
            rc = cli_error("--value: input '%s' is %s: it takes no numbers",
                           in->name, in->text);
        else if (!value_is_kept(dtype, v, back))
            rc = cli_error("--value: %.17g for '%s', which is %s: it would "
                           "become %.17g",
                           v, in->name, in->text, back);
    }
    free(numbers);
    return rc;
}

static int fix_value(cli_env *env, const cli_cmd *cmd, sb_model *model,
                     size_t i, const char *text)
{
    const sb_value_info *in = sb_model_input(model, i);
    char *name = cli_printf("%s", in->name);
    sb_tensor *value = NULL;
    int rc = *text == '@' ? load_one(env, text + 1, in->dtype, &value)
                          : value_from_text(env, cmd, in, text, &value);

    if (rc == CLI_OK && sb_model_fix_value(model, name, value) != SB_OK)
        rc = cli_fail(env, "--value");
    sb_tensor_free(value);
    free(name);
    return rc;
}

static int fix_shape(cli_env *env, const cli_cmd *cmd, sb_model *model,
                     const cli_list *shapes, size_t i)
{
    const char *name = sb_model_input(model, i)->name;
    bool only = sb_model_input_count(model) == 1;
    int64_t dims[SB_RANK_MAX];
    int rank = -1;
    int rc = given_shape(cmd, shapes, name, only, dims, &rank);

    if (rc != CLI_OK || rank < 0)
        return rc;
    char *copy = cli_printf("%s", name);
    if (sb_model_fix_shape(model, copy, rank, dims) != SB_OK)
        rc = cli_fail(env, "--shape");
    free(copy);
    return rc;
}

/* The input that `word` is NAME=... for, and what follows; NULL if none. */
static const char *named_input(const sb_model *model, const char *word,
                               size_t *out)
{
    for (size_t i = 0; i < sb_model_input_count(model); i++) {
        const char *rest = after_name(word, sb_model_input(model, i)->name);

        if (rest) {
            *out = i;
            return rest;
        }
    }
    return NULL;
}

bool cli_names_input(const sb_model *model, const char *word)
{
    size_t i;

    return named_input(model, word, &i) != NULL;
}

int cli_model_fix(cli_env *env, const cli_cmd *cmd, sb_model *model,
                  const cli_list *shapes, const cli_list *values)
{
    int rc = check_names(cmd, model, shapes, "shape");

    for (size_t k = 0; values && k < values->n && rc == CLI_OK; k++) {
        size_t i = 0;
        const char *text = named_input(model, values->v[k], &i);

        if (!text)
            return cli_usage(
                cmd,
                "--value: found '%s', want NAME=VALUE with an "
                "input of the model%s%s",
                values->v[k], sb_model_input_count(model) ? ", such as " : "",
                sb_model_input_count(model) ? sb_model_input(model, 0)->name
                                            : "");
        rc = fix_value(env, cmd, model, i, text);
    }
    for (size_t i = 0; i < sb_model_input_count(model) && rc == CLI_OK; i++)
        rc = fix_shape(env, cmd, model, shapes, i);
    return rc;
}

int cli_model_open(cli_env *env, const cli_cmd *cmd, const char *path,
                   const cli_list *values, sb_model **out)
{
    if (sb_model_load(env->ctx, path, out) != SB_OK)
        return cli_fail(env, path);
    return cli_model_fix(env, cmd, *out, NULL, values);
}

int cli_want_language(const sb_model *model, const char *path)
{
    if (sb_model_positions(model) > 0)
        return CLI_OK;
    return cli_error("%s: no language model: want a Hugging Face folder, a "
                     "GGUF file, a llama2.c checkpoint, or an ONNX file that "
                     "sparsebit made from one",
                     path);
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
        cli_inputs_free(model, inputs);
    return rc;
}

void cli_inputs_free(const sb_model *model, sb_tensor **inputs)
{
    for (size_t i = 0; inputs && i < sb_model_input_count(model); i++)
        sb_tensor_free(inputs[i]);
    free(inputs);
}
