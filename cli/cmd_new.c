/* sparsebit new - an untrained network to start training with. */
#include "cli.h"

typedef struct {
    const char *net, *output, *input;
    unsigned classes;
} new_args;

#define ARG(field) offsetof(new_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_STRING, 0,   NULL,      ARG(net),     "NET",    "a network of `sparsebit list nets`", true},
    {CLI_OUT,    'o', "output",  ARG(output),  "FILE",   "ONNX file to write", true},
    {CLI_STRING, 0,   "input",   ARG(input),   "3x32x32", "channels, height and width of the image (default: as is usual for the network)", false},
    {CLI_UINT,   0,   "classes", ARG(classes), "N",      "how many classes there are (default: as is usual)", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit new resnet20 -o resnet20.onnx", "A residual network for CIFAR-10, with random weights"},
    {"sparsebit new mobilenetv2 --input 3x96x96 --classes 5 -o flowers.onnx", "Other images and classes; --seed gives other weights"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_new;

static int new_run(cli_env *env, const void *parsed)
{
    const new_args *args = parsed;
    sb_new_options opt = SB_NEW_OPTIONS_INIT;
    const sb_model_info *info = NULL;
    sb_model *model = NULL;
    int64_t dims[SB_RANK_MAX];
    int rc = CLI_OK;

    if (args->input) {
        if (cli_parse_shape(args->input, dims) != 3)
            return cli_usage(&cmd_new, "--input: '%s' is not like 3x32x32",
                             args->input);
        opt.channels = dims[0];
        opt.height = dims[1];
        opt.width = dims[2];
    }
    opt.classes = args->classes;
    opt.seed = env->common.seed;
    sb_status status = sb_model_new(env->ctx, args->net, &opt, &model);
    if (status == SB_BAD_ARG)
        rc = cli_usage(&cmd_new, "%s", sb_ctx_error(env->ctx));
    else if (status != SB_OK || sb_model_info_get(model, &info) != SB_OK)
        rc = cli_fail(env, args->net);
    else if (sb_model_save(model, args->output) != SB_OK)
        rc = cli_fail(env, args->output);
    else if (env->common.json) {
        cli_json j = {0};

        cli_json_begin(&j, "new");
        cli_json_str(&j, "net", args->net);
        cli_json_str(&j, "output", args->output);
        cli_json_int(&j, "parameters", (long long)info->params);
        cli_json_end(&j);
    } else if (!env->common.quiet)
        cli_put("%s: %lld parameters, not trained, written to %s\n", args->net,
                (long long)info->params, args->output);
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_new = {
    .name = "new",
    .summary = "write an untrained network",
    .description =
        "Writes a network of a well-known kind with random weights, to be "
        "trained. Layers and weights have the names that PyTorch gives them. "
        "The same seed gives the same file.",
    .args_size = sizeof(new_args),
    .opts = opts,
    .examples = examples,
    .run = new_run,
};
