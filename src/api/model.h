/* model.h - what is behind the public sb_model: a graph and answers about it.
 *
 * Answers belong to the model and are borrowed by the caller, so they are kept:
 * names and shapes of inputs and outputs are renewed with every change, each
 * other answer when its question is asked again. */
#ifndef SB_API_MODEL_H
#define SB_API_MODEL_H

#include <sparsebit/sparsebit.h>

#include "graph/graph.h"

/* Inputs and outputs of a graph; inputs with a default are left out. */
typedef struct sb_model_io {
    sb_arena arena;
    sb_value_info *inputs, *outputs;
    size_t n_inputs, n_outputs;
} sb_model_io;

/* values.c.  Free it even if this fails. */
SB_MUST_USE sb_status sb_model_io_fill(sb_model_io *io, const sb_graph *g);
void sb_model_io_free(sb_model_io *io);

typedef enum sb_model_question {
    SB_QUESTION_INFO,
    SB_QUESTION_LINT,
    SB_QUESTION_QUANTIZED,
    SB_QUESTION_NODES,
    SB_QUESTION_VALUES,
    SB_QUESTION_PASSES,
    SB_QUESTIONS
} sb_model_question;

struct sb_model {
    sb_ctx *ctx;
    sb_graph *graph;
    uint64_t file_bytes;
    char *path; /* it was read from; NULL: from none */
    sb_model_io io;
    sb_arena answers[SB_QUESTIONS];
};

/* A model of a complete graph, whose shapes are inferred.  Takes the graph,
 * also on failure. */
SB_MUST_USE sb_status sb_model_wrap(sb_graph *graph, sb_model **out);
/* Renews names and shapes of inputs and outputs after a change. */
SB_MUST_USE sb_status sb_model_refresh(sb_model *model);
/* Takes the place of the model's graph, which is freed; on failure the old one
 * stays and `graph` is freed. */
SB_MUST_USE sb_status sb_model_replace(sb_model *model, sb_graph *graph);
/* An empty arena for an answer; the one before is forgotten. */
sb_arena *sb_model_answer(sb_model *model, sb_model_question question);
/* SB_BAD_ARG if files are not written in this opset. */
SB_MUST_USE sb_status sb_model_check_opset(sb_ctx *ctx, int64_t opset);
/* Writes a graph, or its bytes to memory if `path` is NULL. */
SB_MUST_USE sb_status sb_model_write(const sb_graph *graph, int64_t min_opset,
                                     const char *path, void **out,
                                     size_t *size);

#endif
