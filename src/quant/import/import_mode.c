/* What kind of quantization a file has, so that it can be kept where no
 * configuration says otherwise. */
#include <string.h>

#include "ops/op_registry.h"
#include "quant/model/quant_model.h"

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Integers that stand for a weight or for rows of one; biases have 32 bit and
 * say nothing. */
static bool is_weight(const sb_graph *g, sb_value_id v)
{
    const sb_node *rows = v == SB_NONE ? NULL : sb_graph_producer(g, v);
    const sb_tensor *t = sb_const_of(
        g,
        rows && sb_node_role(rows) == SB_ROLE_TABLE ? sb_node_in(rows, 0) : v);

    return t && sb_dtype_is_integral(t->dtype) &&
           sb_dtype_get(t->dtype)->bits <= 16;
}

sb_quant_mode sb_import_mode(const sb_graph *g)
{
    bool calibrated = false, dynamic = false, weights = false;

    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = &g->nodes[i];
        sb_value_id x = sb_node_in(node, 0);

        if (node->dead)
            continue;
        if (starts_with(node->op, "DynamicQuantize"))
            dynamic = true;
        else if (starts_with(node->op, "QLinear") ||
                 starts_with(node->op, "QGemm"))
            calibrated = true;
        else if (sb_node_role(node) == SB_ROLE_QUANTIZE)
            *(sb_is_const(g, x) ? &weights : &calibrated) = true;
        else if (sb_node_role(node) == SB_ROLE_DEQUANTIZE)
            weights |= is_weight(g, x);
        else if (strcmp(node->op, "MatMulNBits") == 0) /* packed weights */
            weights = true;
    }
    if (calibrated)
        return SB_QUANT_STATIC;
    return dynamic   ? SB_QUANT_DYNAMIC
           : weights ? SB_QUANT_WEIGHTS_ONLY
                     : SB_QUANT_STATIC;
}
