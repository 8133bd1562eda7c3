/* import_linear.h - Q and DQ nodes of a file, one at a time; for import*.c. */
#ifndef SB_QUANT_IMPORT_LINEAR_H
#define SB_QUANT_IMPORT_LINEAR_H

#include "quant/import.h"

/* What the inputs 1 and 2 of a Q or DQ node say. */
typedef struct sb_linear {
    const sb_tensor *scale, *zero; /* zero may be NULL */
    sb_dtype dtype;                /* of the integers */
    int axis;                      /* -1: one scale */
    int64_t block;
    int bits; /* 0: as the type */
} sb_linear;

/* Numbers of integers: those that a value may have, and those that a constant
 * has. */
typedef struct sb_bounds {
    int32_t lo, hi;
    int32_t least, most; /* both 0: not looked at */
} sb_bounds;

/* False if the node is neither, or its scales are not constants. */
bool sb_linear_read(const sb_graph *g, const sb_node *node, sb_linear *out);
/* Do two nodes have the same scales? */
bool sb_linear_same(const sb_linear *a, const sb_linear *b);
/* Can a quantizer have these scales? */
bool sb_linear_usable(const sb_linear *l);
/* Least and greatest number of a type; false for what is not quantized. */
bool sb_type_bounds(sb_dtype dtype, sb_bounds *out);
bool sb_node_lives(const sb_graph *g, sb_node_id id, const char *op);

/* Adds what a node says of a value, if nothing was said of it before. */
SB_MUST_USE sb_status sb_known_add(sb_graph *g, sb_known_list *known,
                                   sb_value_id value, const sb_linear *l,
                                   sb_bounds b);
/* Notes who reads the result of a DQ. */
SB_MUST_USE sb_status sb_known_readers(const sb_graph *g, sb_known_list *known,
                                       sb_known *k, sb_value_id y);
/* Has the file other scales for the same value? */
bool sb_known_contradicts(const sb_known *k, const sb_linear *l);

/* import_constant.c: a DQ behind a constant, or behind the Q of one. */
SB_MUST_USE sb_status sb_import_constant(sb_graph *g, sb_known_list *known,
                                         sb_node_id id);

#endif
