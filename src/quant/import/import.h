/* import.h - a quantized file as a float graph and what was known of it.
 *
 * What the file said of a value is found by the value's `origin`, a number that
 * graphs keep through rewrites and copies; so the list serves the graph that
 * was read and all that is made from it. */
#ifndef SB_QUANT_IMPORT_IMPORT_H
#define SB_QUANT_IMPORT_IMPORT_H

#include <sparsebit/quantize.h>

#include "graph/graph.h"
#include "quant/config/quant_config.h"
#include "quant/quantize/qparams.h"

/* The scales that a file has for one value. */
typedef struct sb_imported_qparams {
    sb_qparams qparams;
    int64_t block; /* indices of the axis that share a scale; 0: one each */
    int32_t least, most; /* integers that the constant has */
    bool constant;
    bool dynamic; /* scales are found at each run: `qparams` is empty */
    /* The nodes that read it quantized, by their `origin`; `all` if there are
     * no other consumers. */
    uint32_t *consumers;
    size_t n_consumers, cap_consumers;
    bool all, at_output;
} sb_imported_qparams;

typedef struct sb_imported_list {
    /* Set by the owner: what only a Concat reads again, with the scale of the
     * whole, keeps that scale.  Other values with two scales always do: the
     * second stays in the graph, as Q and DQ. */
    bool apart;
    sb_imported_qparams *v; /* that of a value is v[origin - 1] */
    size_t n, cap;
    uint32_t n_nodes; /* so many nodes have an origin */
} sb_imported_list;

/* Takes QuantizeLinear and DequantizeLinear out of the graph: constants behind
 * them become float, activations lose the detour.  What they said is added to
 * `known`, which follows from then on what passes do to `g`, and must stay
 * where it is as long as they may.  A graph without such nodes stays as it is.
 * Integer operators of a file (QLinearConv ...) must have been rewritten
 * before; those that are left keep their Q and DQ nodes. */
SB_MUST_USE sb_status sb_quant_import(sb_graph *g, sb_imported_list *known);
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
void sb_imported_free(sb_ctx *ctx, sb_imported_list *known);
/* NULL if the file said nothing about it.  The value may be SB_NONE. */
const sb_imported_qparams *sb_imported_find(const sb_imported_list *known,
                                            const sb_graph *g,
                                            sb_value_id value);
/* import_scales.c: `to` is the constant `from` times factors: the same
 * integers, with scales that are multiplied as well.  `axis` is that of the
 * scales in `to`, if they have one.  Nothing is done where scales do not
 * follow. */
SB_MUST_USE sb_status sb_imported_rescale(sb_imported_list *known, sb_graph *g,
                                          const sb_rescale *r, int axis);
/* import_scales.c: widths that the metadata of a file of ours tell; for
 * sb_quant_import(). */
SB_MUST_USE sb_status sb_imported_read_bits(const sb_graph *g,
                                            sb_imported_list *known);
/* The width that they tell of a value, by its name; 0 if they do not. */
SB_MUST_USE sb_status sb_imported_bits(const sb_graph *g, const char *value,
                                       int *bits);
/* Does the file have scales of activations? */
bool sb_imported_calibrated(const sb_imported_list *known);
/* Is the node among those that read it quantized? */
bool sb_imported_consumed_by(const sb_imported_qparams *k, const sb_node *node);
/* Is it quantized at each run, where the node reads it?  `k` may be NULL. */
bool sb_imported_dynamic_for(const sb_imported_qparams *k, const sb_node *node);
/* import_mode.c: how a file treats activations; SB_QUANT_STATIC for float
 * networks, too. */
sb_quant_mode sb_import_mode(const sb_graph *g);

/* ---- for a quantized model ---------------------------------------------- */

struct sb_quantizer;

/* import_check.c: SB_BAD_MODEL if an integer operator is left, outside of what
 * the configuration skips. */
SB_MUST_USE sb_status sb_quant_check_float(const sb_quant_model *qm,
                                           const sb_graph *g);
/* import_scales.c: gives quantizers and points what a quantized file said of
 * their values; part of placement.  SB_BAD_CONFIG as below. */
SB_MUST_USE sb_status sb_quant_apply_imported(sb_quant_model *qm);
/* SB_BAD_CONFIG if the user asked for another width or group size than the file
 * has: its integers cannot become others without the floats. */
SB_MUST_USE sb_status sb_imported_check_spec(const sb_quant_model *qm,
                                             const sb_imported_qparams *k,
                                             const sb_quant_spec *spec,
                                             const char *value);
/* Scales of a quantizer from that. */
SB_MUST_USE sb_status sb_quant_use_imported(const sb_quant_model *qm,
                                            const sb_imported_qparams *known,
                                            const struct sb_quantizer *q);
/* canonicalize_gemm.c: constant weights of Gemm as [K, N], factors multiplied
 * in; what is known of them follows. */
SB_MUST_USE sb_status sb_canonicalize_gemm(sb_quant_model *qm, sb_graph *g);
/* Is the matmul one without transposed inputs and factors? */
bool sb_gemm_is_canonical(const sb_node *node);
/* merge_bias.c: biases of layers of a dynamic file back into them. */
SB_MUST_USE sb_status sb_quant_merge_biases(const sb_quant_model *qm,
                                            sb_graph *g);

#endif
