/* learn_args.h - options about a loss, for the commands that have one. */
#ifndef SB_CLI_LEARN_ARGS_H
#define SB_CLI_LEARN_ARGS_H

#include "cli.h"

typedef struct cli_learn_args {
    const char *loss, *output;
} cli_learn_args;

#define CLI_LEARN_LOSS(offset, when)                                     \
    {                                                                    \
        CLI_STRING, 0, "loss", offset, "KIND",                           \
            when ": cross-entropy, mse, l1, smooth-l1, bce or kl", false \
    }
#define CLI_LEARN_OUTPUT(offset, when)                  \
    {                                                   \
        CLI_STRING, 0, "loss-output", offset, "NAME",   \
            when ": which output the loss is of", false \
    }

/* What they say; cross-entropy if no loss is named. */
int cli_learn_options(const cli_cmd *cmd, const cli_learn_args *args,
                      sb_learn_options *opt);
/* Some target for a network whose results are like `output`: class 0, or
 * zeros. */
sb_status cli_learn_target(sb_ctx *ctx, const sb_learn_options *opt,
                           const sb_tensor *output, sb_tensor **out);

#endif
