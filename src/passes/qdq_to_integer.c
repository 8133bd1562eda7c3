/* Pass "qdq_to_integer": Q/DQ groups become the integer operators that ONNX
 * Runtime on x86 runs in their place.
 *
 *     before:  y = QuantizeLinear(Conv(DequantizeLinear(x), ...))
 *     after:   y = QLinearConv(x, ...)
 *
 * Running the result gives what the runtime gives, its roundings included,
 * where running the Q/DQ nodes themselves gives the float result rounded. */
#include "passes/pass.h"
#include "passes/qdq_groups.h"

static sb_status qdq_to_integer_run(sb_graph *graph, size_t *changes)
{
    return sb_qdq_to_integer(graph, &sb_qdq_rules_ort_x86, changes);
}

const sb_pass_def sb_pass_qdq_to_integer = {
    .name = "qdq_to_integer",
    .summary =
        "Q/DQ groups as the integer operators ONNX Runtime makes of them",
    .run = qdq_to_integer_run,
    .once = true,
};
