/* quantizer.h - kinds of quantizers, as rows.
 *
 * Every kind ends in the same rounding (ops/fake_quant.c); what differs is the
 * domain in which values are observed and rounded, and, in training, what is
 * learned.  To add one: src/quant/quantizer_<name>.c with its row, a line in
 * quantizers.def, a test. */
#ifndef SB_QUANT_QUANTIZER_H
#define SB_QUANT_QUANTIZER_H

#include "graph/graph.h"

typedef struct sb_quantizer_def {
    const char *name;
    const char *summary;
    bool for_weights, for_features;
    /* (optional) Brings a weight of n elements into the domain, in place.
     * Without it: as it is. */
    void (*map_weight)(float *w, int64_t n);
    /* (optional) Adds the nodes that bring `x`, read by the node `like`, into
     * the domain.  Without it: as it is. */
    sb_status (*map_feature)(sb_graph *g, sb_node_id like, sb_value_id x,
                             sb_value_id *out);
} sb_quantizer_def;

/* NULL if there is none such. */
const sb_quantizer_def *sb_quantizer_find(const char *name);
const sb_quantizer_def *const *sb_quantizer_all(size_t *n);

#endif
