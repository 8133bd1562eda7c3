/* blocks.h - blocks of layers that are learned to compute, quantized, what they
 * compute in float (Y. Li et al., BRECQ: pushing the limit of post-training
 * quantization by block reconstruction, arXiv 2102.05426). */
#ifndef SB_QUANT_RECONSTRUCT_BLOCKS_H
#define SB_QUANT_RECONSTRUCT_BLOCKS_H

#include "learn/learner.h"
#include "quant/calibrate/staged.h"
#include "quant/model/quant_model.h"
#include "quant/quantize/soft_rounding.h"
#include "quant/reconstruct/journal.h"

/* ---- which nodes belong together (find_blocks.c) ------------------------ */

/* Gives each node the block that it is in as its level; `layer` says which
 * nodes have a weight to be learned.  Returns how many there are in *n. */
SB_MUST_USE sb_status sb_find_blocks(sb_staged *s, const bool *layer,
                                     int32_t *n);

/* ---- one block ---------------------------------------------------------- */

typedef struct sb_layer_block sb_layer_block;

typedef struct sb_blocks_walk {
    sb_quant_model *qm;
    sb_quant_blockwise how;
    /* By batch of these: a sample, or several that cannot be taken apart. */
    sb_staged quantized, plain;
    bool samples;               /* each is one sample, and may be joined */
    const sb_quantizer **learn; /* [value] of a weight; NULL: not learned */
    int32_t n_blocks;
    sb_journal journal; /* of blocks that are learned */
    /* (optional) Called for each block that was learned. */
    void (*report)(void *user, const sb_layer_block *b);
    void *report_user;
} sb_blocks_walk;

/* As sb_learn_blocks(), of a walk with `qm`, `how` and nothing else but a
 * report. */
SB_MUST_USE sb_status sb_blocks_walk_run(sb_blocks_walk *w, size_t *layers);

/* What Adam remembers of n numbers. */
typedef struct sb_block_moments {
    double *m, *u;
} sb_block_moments;

/* A weight that is learned, and the bias behind it. */
typedef struct sb_block_weight {
    const sb_quantizer *q;
    sb_parameter *p; /* as it is now */
    sb_soft_rounding soft;
    sb_value_id bias;     /* SB_NONE: there is none of its own */
    sb_parameter *bias_p; /* NULL: it is not learned */
    double unit;          /* of the bias: what an input of 1 makes */
    sb_block_moments moments;
} sb_block_weight;

/* A scale of activations, or those of its channels. */
typedef struct sb_block_scale {
    uint32_t point;
    sb_value_id value; /* in the graph of the block */
    sb_parameter *p;
    float most;               /* that a scale may be; 0: anything */
    sb_block_moments moments; /* of logarithms */
} sb_block_scale;

struct sb_layer_block {
    sb_blocks_walk *walk;
    sb_stage stage; /* its graph is that of the block, quantized */
    size_t n_fixed; /* behind stage.in: values that are constants here */
    sb_block_weight *weights;
    size_t n_weights;
    size_t n_learned; /* of them, in front: outputs depend on them */
    sb_block_scale *scales;
    size_t n_scales;
    bool drops; /* inputs for counter and share come last */
    /* Results that are to be those in float: all of float32 that are finite. */
    sb_value_id *loss;
    size_t n_loss;
    double *gain;      /* [n_loss] what it is multiplied by in the loss */
    const char **name; /* [n_loss] */
    sb_learner *learner;
    /* The loss rounded to nearest and as learned: noise of each output, summed
     * over channels, for a mean square of 1. */
    double before, after;
};

/* The graph of block stage.level, and a learner over it (block_graph.c).
 * sb_block_close() in any case. */
SB_MUST_USE sb_status sb_block_open(sb_layer_block *b);
void sb_block_close(sb_layer_block *b);
/* Learns it, and takes the result over if that is better (learn_block.c). */
SB_MUST_USE sb_status sb_block_learn(sb_layer_block *b);

#endif
