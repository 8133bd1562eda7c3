/* import_linear.h - Q and DQ nodes of a file, one at a time; for import*.c. */
#ifndef SB_QUANT_IMPORT_IMPORT_LINEAR_H
#define SB_QUANT_IMPORT_IMPORT_LINEAR_H

#include "graph/op.h"
#include "quant/import/import.h"

/* What the inputs 1 and 2 of a Q or DQ node say.  The tensors are borrowed: the
 * graph holds their elements, so they stay when values are added to it. */
typedef struct sb_linear {
    sb_tensor scale, zero; /* zero.data NULL: the node has no zero point */
    sb_dtype dtype;        /* of the integers */
    int axis;              /* -1: one scale */
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
bool sb_node_lives(const sb_graph *g, sb_node_id id, sb_quant_role role);

/* A new entry, empty and not yet that of any value; *out is valid until the
 * next call. */
SB_MUST_USE sb_status sb_imported_new(sb_ctx *ctx, sb_imported_list *known,
                                      sb_imported_qparams **out);
/* Adds what a node says of a value of which nothing was said before. */
SB_MUST_USE sb_status sb_imported_add(sb_graph *g, sb_imported_list *known,
                                      sb_value_id value, const sb_linear *l,
                                      sb_bounds b, sb_imported_qparams **out);
/* Notes the consumers of the result of a DQ. */
SB_MUST_USE sb_status sb_imported_consumers(sb_graph *g,
                                            sb_imported_list *known,
                                            sb_imported_qparams *k,
                                            sb_value_id y);
/* Has the file other scales for the same value? */
bool sb_imported_contradicts(const sb_imported_qparams *k, const sb_linear *l);

/* import_constant.c: a DQ behind a constant, or behind the Q of one. */
SB_MUST_USE sb_status sb_import_constant(sb_graph *g, sb_imported_list *known,
                                         sb_node_id id);

#endif
