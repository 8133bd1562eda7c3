/* placement.h - which edges of the float graph are quantized, and how.
 *
 * Made once when a quantized model is built, and not changed after but for
 * points that move behind factors (quant/correct/equalize_factors.c); scales
 * and what observers saw are kept apart (state.h).
 *
 * Quantizers of the same value with the same settings share a quantization
 * point: it is observed once, and one node serves all their edges. */
#ifndef SB_QUANT_MODEL_PLACEMENT_H
#define SB_QUANT_MODEL_PLACEMENT_H

#include "graph/graph.h"
#include "quant/import/import.h"
#include "quant/quantize/quantizer.h"

typedef struct sb_quantizer {
    const char *name; /* "layer1.0.conv1.input_quantizer" */
    sb_quant_spec spec;
    const sb_quantizer_def *def;
    sb_value_id value; /* what it quantizes */
    sb_use *uses;      /* the edges that read its result */
    size_t n_uses;
    bool at_output;  /* an output of the graph reads it, too */
    int axis;        /* of channels or groups in the value; -1: none */
    int64_t block;   /* indices of `axis` that share a scale, if by group */
    bool fake_fused; /* inside a chain that runs as one: never on */
    /* Bounds of the integers, if narrower than `bits` allows; else both 0. */
    int32_t qmin, qmax;
    /* The blocks of a GGUF file that a weight will be; NULL: none. */
    const struct sb_weight_format *blocks;
    uint32_t point;
    uint32_t next; /* the next quantizer of its point; SB_NONE: the last */
} sb_quantizer;

typedef struct sb_quant_point {
    sb_value_id value;
    uint32_t head;    /* its quantizers, in order, linked by `next` */
    uint32_t tail;    /* the last of them */
    uint32_t first;   /* the first that is not fake-fused, if there is one */
    uint32_t same_as; /* the point whose scales it has; often itself */
    uint32_t next;    /* the next point of the same value; SB_NONE: the last */
    /* The first other point that has its scales, and the next that has those
     * of the same point; SB_NONE: none. */
    uint32_t followers, next_follower;
    /* The value before a product with factors that equalization has put there;
     * SB_NONE: `value` is the network's own. */
    sb_value_id unscaled;
    const sb_imported_qparams
        *known;   /* what a quantized file said of it, or NULL */
    bool natural; /* `range` is known without data */
    sb_range range;
} sb_quant_point;

typedef struct sb_placement {
    sb_quantizer *quantizers;
    size_t n_quantizers, cap_quantizers;
    sb_quant_point *points;
    size_t n_points, cap_points;
    /* By value of the float graph: its first and its last point, SB_NONE if it
     * has none. */
    struct sb_value_points {
        uint32_t first, last;
    } * of_value;
    /* (optional) A layer that stays in float for its logarithm. */
    const char *before_log;
} sb_placement;

/* The quantizer that speaks for a point: it has its settings and scales. */
static inline const sb_quantizer *sb_point_quantizer(const sb_placement *p,
                                                     uint32_t point)
{
    return &p->quantizers[p->points[point].first];
}

#endif
