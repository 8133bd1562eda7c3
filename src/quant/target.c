/* The table of targets, and questions to its rows. */
#include "quant/target.h"

#include <string.h>

#include "config/param.h"
#include "passes/rewrite.h"

#define SB_TARGET(id) extern const sb_target_def sb_target_##id;
#include "quant/targets.def"
#undef SB_TARGET

static const sb_target_def *const table[] = {
#define SB_TARGET(id) &sb_target_##id,
#include "quant/targets.def"
#undef SB_TARGET
};

const sb_target_def *const *sb_target_all(size_t *n)
{
    *n = SB_COUNT(table);
    return table;
}

const sb_target_def *sb_target_find(const char *name)
{
    for (size_t i = 0; i < SB_COUNT(table); i++)
        if (strcmp(table[i]->name, name) == 0 ||
            (table[i]->alias && strcmp(table[i]->alias, name) == 0))
            return table[i];
    return NULL;
}

sb_status sb_target_unknown(sb_ctx *ctx, const char *name)
{
    const char *names[SB_COUNT(table) + 1] = {0};

    for (size_t i = 0; i < SB_COUNT(table); i++)
        names[i] = table[i]->name;
    const char *near = sb_nearest(name, names);
    return sb_fail(ctx, SB_BAD_ARG,
                   "there is no target '%.100s'%s%s%s (see `sparsebit list "
                   "targets`)",
                   name, near ? ", did you mean " : "", near ? near : "",
                   near ? "?" : "");
}

const sb_target_op *sb_target_op_find(const sb_target_def *target,
                                      const sb_node *node)
{
    if (*node->domain)
        return NULL;
    for (size_t i = 0; i < target->n_ops; i++)
        if (strcmp(target->ops[i].op, node->op) == 0)
            return &target->ops[i];
    return NULL;
}

int sb_target_weight_axis(const sb_target_op *op, const sb_node *node, int rank)
{
    switch (op->axis) {
    case SB_AXIS_0:
        return rank > 0 ? 0 : -1;
    case SB_AXIS_1:
        /* With groups the axis holds the channels of one group only. */
        return rank > 1 && sb_node_int(node, "group", 1) == 1 ? 1 : -1;
    case SB_AXIS_GEMM:
        return rank == 2 ? (sb_node_int(node, "transB", 0) ? 0 : 1) : -1;
    case SB_AXIS_LAST:
        return rank > 1 ? rank - 1 : -1;
    case SB_AXIS_TENSOR:
        break;
    }
    return -1;
}

bool sb_target_is_data(const sb_target_op *op, uint32_t i)
{
    if (op->bias && i == op->bias)
        return false;
    return op->data == 0 || (i < 32 && (op->data >> i & 1u));
}
