/* quant_model.h - a float network and the quantizers on its edges; what is
 * behind the public sb_quant_model.
 *
 * The float graph is prepared once, stage by stage (stages.h), and stays the
 * same function after; only equalization exchanges constants of it, and puts
 * products with factors in front of layers.  What runs, and what is exported,
 * is a copy of it with one more node on the edges where quantizers stand:
 * Observe while calibrating, FakeQuant in simulation, QuantizeLinear and
 * DequantizeLinear in a file. */
#ifndef SB_QUANT_MODEL_QUANT_MODEL_H
#define SB_QUANT_MODEL_QUANT_MODEL_H

#include <sparsebit/quantize.h>

#include "quant/import/import.h"
#include "quant/model/placement.h"
#include "quant/model/run.h"
#include "quant/model/state.h"
#include "runtime/target.h"

struct sb_quant_model {
    sb_ctx *ctx;
    sb_arena arena;         /* names */
    const sb_graph *file;   /* as it was loaded; NULL once the model is built */
    const char *dump_after; /* NULL, or stages after which to log the graph */
    sb_graph *graph;
    sb_quant_config *config;
    const sb_target_def *target;
    sb_imported_list known; /* of a file that was quantized already */
    /* Samples in a run if the network takes no other number; 0: any. */
    int64_t fixed_batch;
    int64_t file_batch; /* the number that the file had; 0: none */
    sb_dim *batches;    /* first dimension of each input in the file */
    sb_reduce_range reduce_range;
    bool exact;         /* no faster algorithms that round differently */
    bool follow;        /* what the file quantizes is quantized, nothing else */
    bool asked;         /* the configuration is the user's */
    bool choose_ranges; /* of activations: by the outputs (correct.h) */
    bool train;         /* to be trained */
    struct sb_qat *qat; /* how (quant/train/qat.h); NULL: not yet */
    bool equalized;     /* constants of the graph are not those of the file */
    /* For a file of a language model: scales of weights are float16 numbers,
     * embeddings stay in float, and no layer gets a bias that it has not. */
    bool half_scales;
    /* By value: the batch norm of the file that made it, to correct biases
     * without samples (correct.h); NULL: not kept. */
    struct sb_bn_channel **norms;
    /* What linear layers will be in a GGUF file; NULL: as configured. */
    const struct sb_block_mix *blocks;
    sb_placement place;
    sb_quant_state state;
    sb_quant_run run;
};

typedef struct sb_build_options {
    /* The file is quantized already, without calibrated activations: what it
     * quantizes is quantized, under a configuration of its own mode. */
    bool follow;
    /* The configuration is the user's: what a quantized file has must not be
     * kept against it. */
    bool asked;
    const char *dump_after; /* NULL, or stages separated by commas or spaces */
    bool train;             /* it will be trained */
    bool half_scales;       /* this and the next as in the model */
    const struct sb_block_mix *blocks;
} sb_build_options;

/* A quantized model of `graph`, which is copied (weights are shared).  The
 * configuration becomes the model's own, whether the call succeeds or not.
 * `target` NULL: as the configuration says; `opt` may be NULL. */
SB_MUST_USE sb_status sb_quant_model_build(sb_ctx *ctx, const sb_graph *graph,
                                           sb_quant_config *config,
                                           const sb_target_def *target,
                                           const sb_build_options *opt,
                                           sb_quant_model **out);

/* ---- questions ---------------------------------------------------------- */

/* Is its value a constant? */
bool sb_quantizer_is_constant(const sb_quant_model *qm, const sb_quantizer *q);
/* Does it never quantize: fused away, or without a scale for want of data? */
bool sb_quantizer_is_off(const sb_quant_model *qm, const sb_quantizer *q);
/* Is it on in simulation, as sb_quant_model_set_quant() says? */
bool sb_quantizer_enabled(const sb_quant_model *qm, const sb_quantizer *q);

static inline sb_quantizer_state *
sb_quantizer_state_of(const sb_quant_model *qm, const sb_quantizer *q)
{
    return &qm->state.quantizers[q - qm->place.quantizers];
}

/* Its scales; n is 0 if they are not known yet. */
static inline const sb_qparams *sb_quantizer_qparams(const sb_quant_model *qm,
                                                     const sb_quantizer *q)
{
    return &sb_quantizer_state_of(qm, q)->qparams;
}

#endif
