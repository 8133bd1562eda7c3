/* Lists of what there is: the library's own rows, then those of plug-ins. */
#include <string.h>

#include "data/source.h"
#include "nets/net.h"
#include "ops/grad/grad.h"
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "prune/criterion/criterion.h"
#include "quant/config/preset.h"
#include "quant/model/stages.h"
#include "quant/observe/observer.h"
#include "quant/quantize/quantizer.h"
#include "runtime/target.h"

static const char *list_learning(const sb_op_def *op)
{
    switch (sb_op_learns(op)) {
    case SB_LEARN_YES:
        return "has a gradient";
    case SB_LEARN_FLAT:
        return "gradient is zero";
    default:
        return "no gradient";
    }
}

static bool list_op(const sb_ctx *ctx, size_t i, sb_listing *out)
{
    size_t n = 0;
    const sb_op_def *const *ops = sb_op_all(&n);
    const sb_op_def *op = i < n ? ops[i] : sb_ctx_row(ctx, SB_ROW_OP, i - n);

    if (op)
        *out = (sb_listing){op->name, op->domain ? op->domain : "",
                            list_learning(op), op->since};
    return op != NULL;
}

static bool list_net(const sb_ctx *ctx, size_t i, sb_listing *out)
{
    size_t n = 0;
    const sb_net_def *const *rows = sb_net_all(&n);

    (void)ctx;
    if (i < n)
        *out = (sb_listing){rows[i]->name, "", rows[i]->summary, 0};
    return i < n;
}

static bool list_pass(const sb_ctx *ctx, size_t i, sb_listing *out)
{
    size_t n = 0;
    const sb_pass_def *const *rows = sb_pass_all(&n);
    const sb_pass_def *row =
        i < n ? rows[i] : sb_ctx_row(ctx, SB_ROW_PASS, i - n);

    if (row)
        *out = (sb_listing){row->name, "", row->summary, 0};
    return row != NULL;
}

static bool list_source(const sb_ctx *ctx, size_t i, sb_listing *out)
{
    size_t n = 0;
    const sb_source_def *const *rows = sb_source_all(&n);
    const sb_source_def *row =
        i < n ? rows[i] : sb_ctx_row(ctx, SB_ROW_SOURCE, i - n);

    if (row)
        *out = (sb_listing){row->name, "", row->summary, 0};
    return row != NULL;
}

static bool list_target(const sb_ctx *ctx, size_t i, sb_listing *out)
{
    size_t n = 0;
    const sb_target_def *const *rows = sb_target_all(&n);

    (void)ctx;
    if (i < n)
        *out = (sb_listing){rows[i]->name, "", rows[i]->summary, 0};
    return i < n;
}

static bool list_observer(const sb_ctx *ctx, size_t i, sb_listing *out)
{
    const sb_observer_def *row = sb_observer_at(ctx, i);

    if (row)
        *out = (sb_listing){sb_observer_name(row), "", sb_observer_summary(row),
                            0};
    return row != NULL;
}

static bool list_criterion(const sb_ctx *ctx, size_t i, sb_listing *out)
{
    const sb_criterion_def *row = sb_criterion_at(ctx, i);

    if (row)
        *out = (sb_listing){row->name, "", row->summary, 0};
    return row != NULL;
}

static bool list_stage(const sb_ctx *ctx, size_t i, sb_listing *out)
{
    size_t n = 0;
    const sb_quant_stage *rows = sb_quant_stages(&n);

    (void)ctx;
    if (i < n)
        *out = (sb_listing){rows[i].name, "", rows[i].summary, 0};
    return i < n;
}

static bool list_preset(const sb_ctx *ctx, size_t i, sb_listing *out)
{
    const sb_quant_preset *row = sb_quant_preset_at(i);

    (void)ctx;
    if (row)
        *out = (sb_listing){row->name, "", row->summary, 0};
    return row != NULL;
}

static bool list_quantizer(const sb_ctx *ctx, size_t i, sb_listing *out)
{
    const sb_quantizer_def *row = sb_quantizer_at(ctx, i);

    if (row)
        *out = (sb_listing){row->name, "", row->summary, 0};
    return row != NULL;
}

static const struct {
    const char *name;
    bool (*row)(const sb_ctx *ctx, size_t i, sb_listing *out);
} lists[] = {
    {"nets", list_net},
    {"ops", list_op},
    {"passes", list_pass},
    {"observers", list_observer},
    {"criteria", list_criterion},
    {"presets", list_preset},
    {"quantizers", list_quantizer},
    {"sources", list_source},
    {"stages", list_stage},
    {"targets", list_target},
};

const sb_listing *sb_list_get(sb_ctx *ctx, const char *list, size_t i)
{
    for (size_t k = 0; k < SB_COUNT(lists); k++)
        if (strcmp(list, lists[k].name) == 0)
            return lists[k].row(ctx, i, &ctx->listing) ? &ctx->listing : NULL;
    return NULL;
}
