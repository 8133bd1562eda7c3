/* placer.h - what places quantizers for a target knows of the nodes. */
#ifndef SB_QUANT_PLACE_PLACER_H
#define SB_QUANT_PLACE_PLACER_H

#include "quant/place/place.h"

/* Is the logarithm taken of what is computed of a value? */
typedef enum sb_log_way {
    SB_LOG_NONE,
    SB_LOG_FAR,  /* with a layer in between */
    SB_LOG_NEAR, /* without */
} sb_log_way;

typedef struct sb_placer {
    sb_quant_model *qm;
    const sb_graph *g;
    const sb_target_def *target;
    sb_node_id *order;
    size_t n_order;
    const sb_target_op **row; /* by node; NULL: stays float */
    bool *integer;            /* by node: runs on integers */
    bool *anchor;             /* by node */
    bool *made;               /* by value: comes from an integer kernel */
    bool *result;             /* by value: and is stored as integers */
    uint32_t *point;          /* by value: of its quantizer; SB_NONE */
    sb_log_way *log;          /* by value */
} sb_placer;

/* Decides which nodes run on integers, and which results are stored so. */
void sb_placer_choose(sb_placer *t);
/* Takes away the anchors whose result goes into a logarithm (place_logs.c). */
void sb_placer_leave_logs(sb_placer *t);
bool sb_placer_has(const sb_placer *t, sb_node_id id, sb_place place);
/* The value at which the result of a node is quantized: behind a Relu or Clip
 * that alone reads it. */
sb_value_id sb_placer_result(const sb_placer *t, sb_node_id id);
/* Does a node that runs on integers read one of the results? */
bool sb_placer_is_useful(const sb_placer *t, sb_node_id id);
/* Does the node read the value as integers, and through which input? */
bool sb_placer_reads(const sb_placer *t, sb_use use);

#endif
