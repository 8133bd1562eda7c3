/* lora.h - low-rank adapters (arXiv 2106.09685): beside a layer y = W x whose
 * weight stays as it is, packed or not, two small matrices are learned:
 *
 *     y = W x + alpha / rank * B (A x)
 *
 * They are nodes and constants of the graph, named as PEFT names them, so the
 * learner trains them like other parameters, and files of PEFT are read and
 * written. */
#ifndef SB_LLM_LORA_LORA_H
#define SB_LLM_LORA_LORA_H

#include "graph/graph.h"

typedef struct sb_lora {
    int64_t rank;
    double alpha;
} sb_lora;

/* A layer with an adapter. */
typedef struct sb_lora_layer {
    sb_node_id base; /* Gemm or MatMulNBits */
    sb_node_id join; /* Gemm(A x, B, y) */
    sb_value_id a, b;
    const char *module;
    double factor; /* alpha / rank */
} sb_lora_layer;

typedef struct sb_lora_list {
    sb_lora_layer *v;
    size_t n, cap;
} sb_lora_list;

/* Adds adapters to the layers that `layers` names: the last parts of their
 * names, or whole ones, with `*` and `?`, and `|` between them.  A is random, B
 * zero.  SB_BAD_ARG if there are none such. */
SB_MUST_USE sb_status sb_lora_add(sb_graph *g, const char *layers,
                                  const sb_lora *lora, uint64_t seed);
/* The layers that have one; sb_free() `out->v`. */
SB_MUST_USE sb_status sb_lora_find(const sb_graph *g, sb_lora_list *out);
/* Layers become single products again, of floats, with the same results but
 * for rounding. */
SB_MUST_USE sb_status sb_lora_merge(sb_graph *g);

/* lora_file.c: a folder with adapter_model.safetensors and
 * adapter_config.json. */
SB_MUST_USE sb_status sb_lora_save(const sb_graph *g, const char *folder);
/* Adds the adapters of such a folder. */
SB_MUST_USE sb_status sb_lora_load(sb_graph *g, const char *folder);

#endif
