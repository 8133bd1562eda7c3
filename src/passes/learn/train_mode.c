/* Passes "train_mode" and "eval_mode": the forms that a network has while it is
 * trained, and otherwise.
 *
 *     BatchNormalization  with statistics of the batch (BatchNormTrain), if its
 *                         running ones are parameters: graph inputs with a
 *                         default; else with the running ones
 *     Dropout             drops elements (DropoutTrain), as the graph input
 *                         SB_COUNTER_INPUT says; else does nothing
 *
 * Exporters write the form that the network was in, so each pass goes both
 * ways. */
#include "passes/learn/train_mode.h"

#include <string.h>

#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

static bool mode_is_parameter(const sb_graph *g, sb_value_id v)
{
    return v != SB_NONE && sb_graph_value(g, v)->is_input &&
           sb_graph_value(g, v)->is_constant;
}

/* Outputs behind the first have readers. */
static bool mode_others_read(const sb_graph *g, const sb_node *node)
{
    for (uint32_t i = 1; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE &&
            (sb_graph_value(g, node->outputs[i])->n_uses > 0 ||
             sb_graph_value(g, node->outputs[i])->is_output))
            return true;
    return false;
}

/* ---- batch normalization ------------------------------------------------ */

/* Always by the batch: a network that normalizes its weights so computes what
 * stands in for running statistics. */
static bool mode_bn_stays(const sb_graph *g, const sb_node *node)
{
    return sb_node_int(node, "training_mode", 0) != 0 && node->n_in >= 5 &&
           sb_graph_producer(g, node->inputs[3]) &&
           sb_graph_producer(g, node->inputs[4]);
}

/* The inference form; statistics that the file hands out are left out. */
static sb_status mode_bn_eval(sb_graph *g, sb_node_id id, size_t *changes)
{
    const sb_node *node = sb_graph_node(g, id);
    float epsilon = sb_node_float(node, "epsilon", 1e-5f);
    float momentum = sb_node_float(node, "momentum", 0.9f);
    sb_node_id fresh = SB_NONE;

    if (sb_node_int(node, "training_mode", 0) == 0 || mode_bn_stays(g, node) ||
        mode_others_read(g, node))
        return SB_OK;
    SB_TRY(
        sb_rewrite_node(g, id, "BatchNormalization", node->inputs, 5, &fresh));
    SB_TRY(sb_rewrite_set_float(g, fresh, "epsilon", epsilon));
    SB_TRY(sb_rewrite_set_float(g, fresh, "momentum", momentum));
    ++*changes;
    return SB_OK;
}

static sb_status mode_bn_train(sb_graph *g, sb_node_id id, size_t *changes)
{
    const sb_node old = *sb_graph_node(g, id);
    sb_value_id out[5];
    const sb_attr attrs[] = {
        {.name = "epsilon",
         .type = SB_ATTR_FLOAT,
         .f = sb_node_float(&old, "epsilon", 1e-5f)},
        {.name = "momentum",
         .type = SB_ATTR_FLOAT,
         .f = sb_node_float(&old, "momentum", 0.9f)},
    };

    if (old.n_in < 5 || mode_others_read(g, &old) ||
        !(mode_bn_stays(g, &old) || (mode_is_parameter(g, old.inputs[3]) &&
                                     mode_is_parameter(g, old.inputs[4]))))
        return mode_bn_eval(g, id, changes);
    out[0] = old.outputs[0];
    for (uint32_t i = 1; i < SB_COUNT(out); i++)
        SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, out[0])->name,
                                       &out[i]));
    sb_graph_remove_node(g, id);
    const sb_node_spec spec = {.op = "BatchNormTrain",
                               .domain = SB_FUSED_DOMAIN,
                               .name = old.name,
                               .module = old.module,
                               .inputs = old.inputs,
                               .n_in = 5,
                               .outputs = out,
                               .n_out = SB_COUNT(out),
                               .attrs = attrs,
                               .n_attrs = SB_COUNT(attrs),
                               .position = old.position};
    sb_node_id fresh = SB_NONE;
    SB_TRY(sb_graph_add_node(g, &spec, &fresh));
    ++*changes;
    return SB_OK;
}

/* ---- dropout ------------------------------------------------------------ */

static sb_status mode_dropout_eval(sb_graph *g, sb_node_id id, size_t *changes)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_node_id fresh = SB_NONE;

    if (mode_others_read(g, node))
        return SB_OK;
    SB_TRY(sb_rewrite_node(g, id, "Identity", node->inputs, 1, &fresh));
    ++*changes;
    return SB_OK;
}

/* The graph input that counts steps. */
static sb_status mode_counter(sb_graph *g, sb_value_id *out)
{
    *out = sb_graph_find_value(g, SB_COUNTER_INPUT);
    if (*out != SB_NONE)
        return SB_OK;
    SB_TRY(sb_graph_add_value(g, SB_COUNTER_INPUT, out));
    sb_graph_value(g, *out)->type =
        (sb_type){.dtype = SB_DTYPE_I64, .shape = {.rank = 0}};
    return sb_graph_add_input(g, *out);
}

static sb_status mode_dropout_train(sb_graph *g, sb_node_id id, size_t *changes)
{
    const sb_node old = *sb_graph_node(g, id);
    double ratio = 0.5;
    sb_value_id in[2] = {old.inputs[0], SB_NONE};

    if (sb_node_in(&old, 1) != SB_NONE &&
        !sb_const_scalar(g, old.inputs[1], &ratio))
        return mode_dropout_eval(g, id, changes);
    if (!(ratio > 0 && ratio < 1) || g->parent || mode_others_read(g, &old))
        return mode_dropout_eval(g, id, changes);
    SB_TRY(mode_counter(g, &in[1]));
    const sb_attr attrs[] = {
        {.name = "ratio", .type = SB_ATTR_FLOAT, .f = (float)ratio},
        {.name = "stream", .type = SB_ATTR_INT, .i = (int64_t)id},
    };
    sb_graph_remove_node(g, id);
    const sb_node_spec spec = {.op = "DropoutTrain",
                               .domain = SB_FUSED_DOMAIN,
                               .name = old.name,
                               .module = old.module,
                               .inputs = in,
                               .n_in = 2,
                               .outputs = old.outputs,
                               .n_out = 1,
                               .attrs = attrs,
                               .n_attrs = SB_COUNT(attrs),
                               .position = old.position};
    sb_node_id fresh = SB_NONE;
    SB_TRY(sb_graph_add_node(g, &spec, &fresh));
    ++*changes;
    return SB_OK;
}

/* ---- passes ------------------------------------------------------------- */

typedef sb_status (*mode_fn)(sb_graph *g, sb_node_id id, size_t *changes);

static sb_status mode_run(sb_graph *g, mode_fn bn, mode_fn dropout,
                          size_t *changes)
{
    size_t n = g->n_nodes;

    for (sb_node_id id = 0; id < n; id++) {
        const sb_node *node = sb_graph_node(g, id);
        if (node->dead)
            continue;
        if (sb_node_is(node, "BatchNormalization"))
            SB_TRY(bn(g, id, changes));
        else if (sb_node_is(node, "Dropout"))
            SB_TRY(dropout(g, id, changes));
    }
    return SB_OK;
}

static sb_status train_mode_run(sb_graph *g, size_t *changes)
{
    return mode_run(g, mode_bn_train, mode_dropout_train, changes);
}

static sb_status eval_mode_run(sb_graph *g, size_t *changes)
{
    return mode_run(g, mode_bn_eval, mode_dropout_eval, changes);
}

const sb_pass_def sb_pass_train_mode = {
    .name = "train_mode",
    .summary = "batch normalization and dropout as they are in training",
    .run = train_mode_run,
};

const sb_pass_def sb_pass_eval_mode = {
    .name = "eval_mode",
    .summary = "batch normalization and dropout as they are in inference",
    .run = eval_mode_run,
};
