/* What lint's counts say of the speed of a file. */
#include "cli.h"

void cli_judge_speed(const sb_lint *lint)
{
    size_t left = lint->n_q_left + lint->n_dq_left;

    if (!lint->left_known || lint->n_q == 0 || left == 0)
        return;
    if (lint->n_weighted_integer == 0)
        cli_put("slower than the float model on %s: no layer with weights runs "
                "as integers, and Q and DQ nodes are executed besides\n",
                lint->target);
    else if (left >= lint->n_weighted_integer)
        cli_put(
            "%zu conversion%s between float and integers beside %zu integer "
            "layer%s: on %s a small network can be slower than the float "
            "model; measure it\n",
            left, left == 1 ? "" : "s", lint->n_weighted_integer,
            lint->n_weighted_integer == 1 ? "" : "s", lint->target);
}
