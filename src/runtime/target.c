/* The table of targets, and questions to its rows. */
#include "runtime/target.h"

#include <string.h>

#include "config/param.h"
#include "ops/op_registry.h"
#include "passes/rewrite.h"

#define SB_TARGET(id, name) extern const sb_target_def sb_target_##id;
#define SB_TARGET_ALIAS(id, name)
#include "runtime/targets.def"
#undef SB_TARGET
#undef SB_TARGET_ALIAS

static const sb_target_def *const target_rows[] = {
#define SB_TARGET(id, name) &sb_target_##id,
#define SB_TARGET_ALIAS(id, name)
#include "runtime/targets.def"
#undef SB_TARGET
#undef SB_TARGET_ALIAS
};

const char *const sb_target_names[] = {
#define SB_TARGET(id, name)       name,
#define SB_TARGET_ALIAS(id, name) name,
#include "runtime/targets.def"
#undef SB_TARGET
#undef SB_TARGET_ALIAS
    NULL};

/* In the order of the names. */
static const sb_target_def *const target_by_name[] = {
#define SB_TARGET(id, name)       &sb_target_##id,
#define SB_TARGET_ALIAS(id, name) &sb_target_##id,
#include "runtime/targets.def"
#undef SB_TARGET
#undef SB_TARGET_ALIAS
};

/* ---- the table ---------------------------------------------------------- */

const sb_target_def *const *sb_target_all(size_t *n)
{
    *n = SB_COUNT(target_rows);
    return target_rows;
}

const sb_target_def *sb_target_find(const char *name)
{
    for (size_t i = 0; sb_target_names[i]; i++)
        if (strcmp(sb_target_names[i], name) == 0)
            return target_by_name[i];
    return NULL;
}

const sb_target_def *sb_target_default(void)
{
    size_t i = 0;

    while (i + 1 < SB_COUNT(target_rows) && !target_rows[i]->ops)
        i++;
    return target_rows[i];
}

sb_status sb_target_unknown(sb_ctx *ctx, const char *name)
{
    const char *near = sb_nearest(name, sb_target_names);

    return sb_fail(ctx, SB_BAD_ARG,
                   "there is no target '%.100s'%s%s%s (see `sparsebit list "
                   "targets`)",
                   name, near ? ", did you mean " : "", near ? near : "",
                   near ? "?" : "");
}

void sb_target_list(sb_str *out, bool (*has)(const sb_target_def *target),
                    const char *last)
{
    size_t n = 0, i = 0;

    for (size_t k = 0; k < SB_COUNT(target_rows); k++)
        n += target_rows[k]->ops && has(target_rows[k]);
    for (size_t k = 0; k < SB_COUNT(target_rows); k++) {
        if (!target_rows[k]->ops || !has(target_rows[k]))
            continue;
        if (i > 0)
            sb_str_addf(out, i + 1 < n ? ", " : " %s ", last);
        sb_str_add(out, target_rows[k]->name);
        i++;
    }
}

/* ---- settings ----------------------------------------------------------- */

bool sb_target_check(const sb_target_def *target,
                     const sb_target_setting *setting, sb_target_refusal *out)
{
    const sb_target_limits *l = &target->limits[setting->use];
    uint32_t bits = l->bits, schemes = l->schemes;

    if (setting->named && l->named_bits)
        bits = l->named_bits;
    if (setting->named && l->named_schemes)
        schemes = l->named_schemes;
    if (!(bits >> (unsigned)setting->bits & 1u)) {
        *out = (sb_target_refusal){true, bits, l->why_bits};
        return false;
    }
    if (!(schemes >> setting->scheme & 1u)) {
        *out = (sb_target_refusal){false, schemes, l->why_schemes};
        return false;
    }
    return true;
}

bool sb_target_has(const sb_target_def *target, sb_target_use use)
{
    return target->limits[use].bits != 0;
}

bool sb_target_takes(const sb_target_def *target, sb_target_use use,
                     bool symmetric)
{
    uint32_t schemes = target->limits[use].schemes;

    return (schemes & (symmetric ? SB_SCHEMES_SYMMETRIC : SB_SCHEMES_AFFINE)) !=
           0;
}

/* ---- operators ---------------------------------------------------------- */

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

const sb_fusion *sb_fusion_find(const sb_target_def *target,
                                const sb_node *node)
{
    const sb_target_op *op = sb_target_op_find(target, node);

    return op && op->fuse.kind != SB_FUSE_NONE ? &op->fuse : NULL;
}

bool sb_fusion_flag(const sb_target_def *target, const sb_node *node,
                    uint32_t flags)
{
    const sb_target_op *op = sb_target_op_find(target, node);

    return op && (op->fuse.flags & flags) != 0;
}

bool sb_target_is_weighted(const sb_target_op *op)
{
    return op->weight != 0 && op->fuse.kind != SB_FUSE_NORM;
}

int sb_target_weight_axis(const sb_target_op *op, const sb_node *node, int rank)
{
    int axis = op->per_tensor ? -1 : sb_op_weight_axis(node, rank);

    /* With groups, an axis behind the first holds the channels of one group
     * only. */
    return axis > 0 && sb_node_int(node, "group", 1) != 1 ? -1 : axis;
}

bool sb_target_is_data(const sb_target_op *op, uint32_t i)
{
    if (op->bias && i == op->bias)
        return false;
    return op->data == 0 || (i < 32 && (op->data >> i & 1u));
}
