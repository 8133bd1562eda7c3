/* Options about a loss. */
#include <string.h>

#include "learn_args.h"

int cli_learn_options(const cli_cmd *cmd, const cli_learn_args *args,
                      sb_learn_options *opt)
{
    static const struct {
        const char *name;
        sb_learn_loss loss;
    } kinds[] = {{"cross-entropy", SB_LEARN_LOSS_CROSS_ENTROPY},
                 {"mse", SB_LEARN_LOSS_MSE},
                 {"kl", SB_LEARN_LOSS_KL},
                 {"l1", SB_LEARN_LOSS_L1},
                 {"smooth-l1", SB_LEARN_LOSS_SMOOTH_L1},
                 {"bce", SB_LEARN_LOSS_BCE}};

    opt->loss_output = args->output;
    for (size_t i = 0; i < CLI_COUNT(kinds); i++)
        if (!args->loss || strcmp(args->loss, kinds[i].name) == 0) {
            opt->loss = kinds[i].loss;
            return CLI_OK;
        }
    return cli_usage(cmd,
                     "--loss: '%s' is none of cross-entropy, mse, kl, l1, "
                     "smooth-l1, bce",
                     args->loss);
}

sb_status cli_learn_target(sb_ctx *ctx, const sb_learn_options *opt,
                           const sb_tensor *output, sb_tensor **out)
{
    int rank = sb_tensor_rank(output), n = 0;
    int64_t dims[SB_RANK_MAX];
    bool labels = opt->loss == SB_LEARN_LOSS_CROSS_ENTROPY;

    for (int i = 0; i < rank; i++)
        if (!labels || i != 1)
            dims[n++] = sb_tensor_dims(output)[i];
    return sb_tensor_create(ctx, labels ? SB_DTYPE_I64 : SB_DTYPE_F32, n, dims,
                            out);
}
