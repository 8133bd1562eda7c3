/* Pass "fold_constants": nodes whose inputs are all known are computed now.
 *
 * Not folded: what is random; what has sub-graphs; DequantizeLinear and
 * QuantizeLinear, whose constants are the point of a quantized model; and
 * results that would make the file noticeably bigger: beyond ALWAYS_BYTES each,
 * and GROWTH of all constants together. */
#include <string.h>

#include "exec/exec.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { ALWAYS_BYTES = 64 * 1024, GROWTH = 32, MAX_IN = 64, MAX_OUT = 16 };

static bool fold_constants_kept(const sb_node *node)
{
    return sb_node_is(node, "DequantizeLinear") ||
           sb_node_is(node, "QuantizeLinear") ||
           sb_node_is(node, "DynamicQuantizeLinear");
}

/* Bytes of a result of this type; ALWAYS_BYTES if that is unknown, since then
 * the values decide and big ones are not to be expected. */
static uint64_t type_bytes(const sb_type *type)
{
    size_t bytes;

    if (type->dtype == SB_DTYPE_NONE || !sb_shape_known(&type->shape))
        return ALWAYS_BYTES;
    sb_tensor t =
        sb_tensor_make(type->dtype, type->shape.rank, type->shape.dim);
    if (!sb_tensor_size_ok(&t) ||
        !sb_dtype_bytes(t.dtype, sb_tensor_count(&t), &bytes))
        return UINT64_MAX;
    return bytes;
}

/* Bytes of all results, by types found anew since inputs may have become
 * constant a moment ago.  UINT64_MAX if the node is wrong. */
static uint64_t result_bytes(const sb_graph *g, const sb_node *node)
{
    sb_fact facts[MAX_IN], out[MAX_OUT];
    const sb_fact *in[MAX_IN];
    uint64_t sum = 0;

    for (uint32_t i = 0; i < node->n_in; i++) {
        in[i] = NULL;
        if (node->inputs[i] == SB_NONE)
            continue;
        facts[i] = sb_fact_of(&sb_graph_value(g, node->inputs[i])->constant);
        in[i] = &facts[i];
    }
    if (sb_op_infer(g->ctx, g, node, in, out) != SB_OK)
        return UINT64_MAX;
    for (uint32_t i = 0; i < node->n_out; i++) {
        if (out[i].type.dtype == SB_DTYPE_SEQUENCE)
            return UINT64_MAX; /* no initializer can be one */
        uint64_t bytes = type_bytes(&out[i].type);
        sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
    }
    return sum;
}

/* A constant that others use too stays, so it frees nothing. */
static uint64_t freed_bytes(const sb_graph *g, const sb_node *node)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < node->n_in; i++) {
        if (node->inputs[i] == SB_NONE)
            continue;
        const sb_value *v = sb_graph_value(g, node->inputs[i]);
        if (v->n_uses == 1 && !v->is_output && !v->is_input)
            sum += sb_tensor_bytes(&v->constant);
    }
    return sum;
}

/* One result, or several none of which has to be made by a node. */
static bool results_free(const sb_graph *g, const sb_node *node)
{
    if (node->n_out == 0 || node->n_out > MAX_OUT)
        return false;
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->outputs[i] == SB_NONE ||
            (node->n_out > 1 && sb_graph_value(g, node->outputs[i])->is_output))
            return false;
    return true;
}

/* `budget`: bytes by which the file may still grow through big results. */
static bool fold_constants_foldable(const sb_graph *g, const sb_node *node,
                                    uint64_t *budget)
{
    const sb_op_def *op = sb_op_of(node);

    if (node->dead || !op || !op->forward || (op->flags & SB_OP_IMPURE) ||
        fold_constants_kept(node) || node->n_implicit > 0 ||
        sb_node_body(node, 0) || node->n_in == 0 || node->n_in > MAX_IN ||
        !results_free(g, node))
        return false;
    for (uint32_t i = 0; i < node->n_in; i++)
        if (node->inputs[i] != SB_NONE && !sb_is_const(g, node->inputs[i]))
            return false;
    uint64_t bytes = result_bytes(g, node);
    if (bytes <= ALWAYS_BYTES)
        return true;
    uint64_t freed = freed_bytes(g, node);
    uint64_t growth = bytes > freed ? bytes - freed : 0;
    if (growth > *budget)
        return false;
    *budget -= growth;
    return true;
}

static uint64_t constant_bytes(const sb_graph *g)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < g->n_values; i++) {
        const sb_value *v = sb_graph_value(g, (sb_value_id)i);
        if (v->is_constant && v->n_uses > 0)
            sum += sb_tensor_bytes(&v->constant);
    }
    return sum;
}

/* An Identity of a constant that keeps the name of an output is done. */
static bool fold_constants_settled(const sb_graph *g, const sb_node *node)
{
    return sb_node_is(node, "Identity") && node->n_out > 0 &&
           sb_graph_value(g, node->outputs[0])->is_output;
}

static sb_status set_results(sb_graph *g, sb_node_id id, const sb_tensor *out)
{
    const sb_node old = *sb_graph_node(g, id);

    if (old.n_out == 1)
        return sb_rewrite_constant(g, id, &out[0]);
    sb_graph_remove_node(g, id);
    for (uint32_t i = 0; i < old.n_out; i++)
        SB_TRY(sb_graph_set_constant(g, old.outputs[i], &out[i]));
    return SB_OK;
}

static sb_status fold_node(sb_graph *g, sb_node_id id, size_t *changes)
{
    const sb_node *node = sb_graph_node(g, id);
    uint32_t n_out = node->n_out;
    const sb_tensor *in[MAX_IN];
    sb_tensor out[MAX_OUT] = {{.dtype = SB_DTYPE_NONE}};
    bool complete = true;

    for (uint32_t i = 0; i < node->n_in; i++)
        in[i] = node->inputs[i] == SB_NONE
                    ? NULL
                    : &sb_graph_value(g, node->inputs[i])->constant;
    sb_status status = sb_exec_eval(g->ctx, g, node, in, out);
    if (status == SB_NO_MEMORY || status == SB_INTERRUPTED)
        return status;
    /* What we cannot compute may still be right elsewhere: leave it. */
    if (status != SB_OK)
        return SB_OK;
    for (uint32_t i = 0; i < n_out; i++)
        complete = complete && out[i].data && out[i].buf;
    if (complete)
        status = set_results(g, id, out);
    *changes += complete && status == SB_OK;
    for (uint32_t i = 0; i < n_out; i++)
        sb_tensor_drop(&out[i]);
    return status;
}

static sb_status fold_constants_run(sb_graph *g, size_t *changes)
{
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_order(g, &order, &n));
    uint64_t budget = constant_bytes(g) / GROWTH;
    sb_status status = SB_OK;
    for (size_t i = 0; i < n && status == SB_OK; i++) {
        const sb_node *node = sb_graph_node(g, order[i]);
        if (!fold_constants_settled(g, node) &&
            fold_constants_foldable(g, node, &budget))
            status = fold_node(g, order[i], changes);
    }
    sb_free(g->ctx, order);
    return status;
}

const sb_pass_def sb_pass_fold_constants = {
    .name = "fold_constants",
    .summary = "compute nodes whose inputs are all constant",
    .run = fold_constants_run,
};
