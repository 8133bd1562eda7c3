/* parts.h - the graph of a language model taken apart: its numbers, matrices
 * and vectors by module, named as Hugging Face names them.
 *
 * What arch.h builds is what is looked for, so a graph that went through
 * quantization, or an ONNX file made from such a graph, can be taken apart as
 * well: modules keep their names, and the model's properties its numbers. */
#ifndef SB_LLM_WRITE_PARTS_H
#define SB_LLM_WRITE_PARTS_H

#include "graph/graph.h"
#include "llm/llm_config.h"
#include "llm/write/matrix.h"

typedef struct sb_part {
    const char *name;   /* of the module */
    const char *ending; /* "weight" or "bias" */
    bool table;         /* rows are picked, not multiplied */
    bool vector;        /* `m.t` has m.rows floats */
    sb_matrix m;
} sb_part;

typedef struct sb_parts {
    sb_ctx *ctx;
    sb_arena arena;
    sb_llm_config config;
    const char *config_text; /* config.json */
    bool neighbors;          /* rotary pairs are neighbors */
    bool early;              /* weights are still to be quantized */
    sb_part *v;
    size_t n, cap;
} sb_parts;

/* Free it even if this fails.  The graph is borrowed.  SB_BAD_MODEL if it is no
 * language model that was read by this library.  `early`: its weights are
 * floats that are still to be quantized. */
SB_MUST_USE sb_status sb_parts_take(sb_parts *p, const sb_graph *g, bool early);
void sb_parts_free(sb_parts *p);
/* Takes q and k in the order that a file wants; SB_BAD_MODEL if they are not of
 * the size that the numbers say. */
SB_MUST_USE sb_status sb_parts_set_rotary(sb_parts *p, bool neighbors);

#endif
