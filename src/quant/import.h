/* import.h - a quantized file as a float graph and what was known of it. */
#ifndef SB_QUANT_IMPORT_H
#define SB_QUANT_IMPORT_H

#include "graph/graph.h"
#include "quant/qparams.h"

/* The scales that a file has for one value. */
typedef struct sb_known {
    const char *value; /* its name in the float graph */
    sb_qparams qparams;
    int64_t block; /* indices of the axis that share a scale; 0: one each */
    int32_t least, most; /* integers that the constant has */
    bool constant;
    bool dynamic; /* scales are found at each run: `qparams` is empty */
    /* Who reads it quantized, by the names of their first results; `all` if
     * nobody reads it otherwise. */
    const char **readers;
    size_t n_readers, cap_readers;
    bool all, at_output;
} sb_known;

typedef struct sb_known_list {
    sb_arena *arena; /* of names; set by the owner */
    /* Set by the owner: what only a Concat reads again, with the scale of the
     * whole, keeps that scale.  Other values with two scales always do: the
     * second stays in the graph, as Q and DQ. */
    bool apart;
    sb_known *v;
    size_t n, cap;
} sb_known_list;

/* Takes QuantizeLinear and DequantizeLinear out of the graph: constants behind
 * them become float, activations lose the detour.  What they said is added to
 * `known`, by the name of the value.  A graph without such nodes stays as it
 * is.  Integer operators of a file (QLinearConv ...) must have been rewritten
 * before; those that are left keep their Q and DQ nodes. */
SB_MUST_USE sb_status sb_quant_import(sb_graph *g, sb_known_list *known);
/* Gives `value`, which stands for the integers `ints`, the name that they were
 * named after (export_names.c). */
SB_MUST_USE sb_status sb_import_name(sb_graph *g, sb_value_id ints,
                                     sb_value_id value);
/* import_table.c: tables whose rows are taken before they are dequantized, the
 * other way round; for sb_quant_import(). */
SB_MUST_USE sb_status sb_quant_import_tables(sb_graph *g);
/* import_check.c: SB_BAD_MODEL if a Q or DQ node contradicts itself; for
 * sb_quant_import(). */
SB_MUST_USE sb_status sb_quant_import_check(const sb_graph *g);
void sb_known_free(sb_ctx *ctx, sb_known_list *known);
/* NULL if the file said nothing about it. */
const sb_known *sb_known_find(const sb_known_list *known, const char *value);
/* known.c: the width that the metadata of a file of ours tell of a value; 0 if
 * they do not. */
SB_MUST_USE sb_status sb_known_width(const sb_graph *g, const char *value,
                                     int *bits);
/* Does the file have scales of activations? */
bool sb_known_calibrated(const sb_known_list *known);
/* place_known.c: is the node among those that read it quantized? */
bool sb_known_read_by(const sb_graph *g, const sb_known *k,
                      const sb_node *node);

#endif
