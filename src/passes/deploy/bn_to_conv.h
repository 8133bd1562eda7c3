/* bn_to_conv.h - BatchNormalization as a convolution; see bn_to_conv.c. */
#ifndef SB_PASSES_DEPLOY_BN_TO_CONV_H
#define SB_PASSES_DEPLOY_BN_TO_CONV_H

#include "graph/graph.h"

/* Rewrites the node if it is such a BatchNormalization; *done says whether. */
SB_MUST_USE sb_status sb_bn_to_conv(sb_graph *g, sb_node_id bn, bool *done);

#endif
