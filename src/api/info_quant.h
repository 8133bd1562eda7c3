/* info_quant.h - what is quantized in a model, for sb_model_info_get(). */
#ifndef SB_API_INFO_QUANT_H
#define SB_API_INFO_QUANT_H

#include "api/model.h"

typedef struct sb_info_quant {
    sb_ctx *ctx;
    size_t n_quantize, n_dequantize, n_integer;
    /* 0: weights, 1: activations; grown by sb_grow */
    sb_quant_count *rows[2];
    size_t n[2], cap[2];
} sb_info_quant;

/* Counts what a node says. */
SB_MUST_USE sb_status sb_info_quant_node(sb_info_quant *q, const sb_graph *g,
                                         sb_node_id id);
/* Hands the counts over; rows are copied into the arena. */
SB_MUST_USE sb_status sb_info_quant_keep(const sb_info_quant *q,
                                         const sb_graph *g, sb_arena *arena,
                                         sb_model_info *out);
/* info_values.c: how many bits of a type a value uses, by the attribute `bits`
 * of the node or the metadata of a file of ours. */
SB_MUST_USE sb_status sb_info_width(const sb_graph *g, const sb_node *node,
                                    const char *name, sb_dtype dtype,
                                    int *bits);
void sb_info_quant_free(sb_info_quant *q);

#endif
