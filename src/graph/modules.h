/* modules.h - which module of the author's program a node came from.
 *
 * ONNX has no modules, but exporters leave their paths in several places;
 * node->module gets a dotted path such as `layer1.0.conv1`. */
#ifndef SB_GRAPH_MODULES_H
#define SB_GRAPH_MODULES_H

#include "graph/graph.h"

/* Gives every node without a module its path, or leaves it "" if none can be
 * found; sub-graphs included.  In this order from
 *   1. metadata `pkg.torch.onnx.name_scopes` (PyTorch's newer exporter),
 *   2. node names like `/layer1/layer1.0/conv1/Conv` (its older one),
 *   3. names of weights like `layer1.0.conv1.weight`,
 *   4. node names like `model/block1/conv/Conv2D` (TensorFlow). */
SB_MUST_USE sb_status sb_graph_assign_modules(sb_graph *g);

/* Does the pattern match the node's module path, the same path with `_` for
 * `.`, or the node's name? */
bool sb_node_matches(const sb_node *node, const char *pattern);

#endif
