/* quantizer.h - kinds of quantizers, as rows.
 *
 * Every kind ends in the same rounding (ops/quantized/fake_quant.c); what
 * differs is the domain in which values are observed and rounded, and, in
 * training, what is learned.
 *
 * To add one: write src/quant/quantize/quantizer_<name>.c (quantizer_dorefa.c
 * shows the callbacks, quantizer_pact.c a parameter), add a line to
 * quantizers.def, add tests/unit/test_quantizer_<name>.c. */
#ifndef SB_QUANT_QUANTIZE_QUANTIZER_H
#define SB_QUANT_QUANTIZE_QUANTIZER_H

#include "quant/config/quant_config.h"
#include "quant/quantize/rounding.h"
#include "quant/quantize/training.h"

/* What a kind is for: weights, or activations. */
typedef struct sb_quantizer_use {
    unsigned schemes; /* that it takes, SB_SCHEME_...; 0: not for these */
    const char *why;  /* it takes no others: half a sentence, for messages */
} sb_quantizer_use;

struct sb_quantizer_def {
    const char *name;         /* as in QUANTIZER.TYPE, lower case */
    const char *summary;      /* one line */
    sb_quantizer_use uses[2]; /* by sb_quant_kind */
    /* (optional) By sb_quant_kind: how it is trained.  Without it networks that
     * have it are not trained. */
    const sb_quant_training *training[2];
    /* Only training gives it scales. */
    bool needs_training;
    /* (optional) Keys of QUANTIZER.<NAME>, and the size of the struct that they
     * fill: what the callbacks get as spec->quantizer_params. */
    const sb_param_def *params;
    size_t params_size;
    /* (optional) Brings a weight of n elements into the domain, in place.
     * Without it: as it is. */
    void (*map_weight)(const sb_quant_spec *spec, float *w, int64_t n);
    /* (optional) Adds the nodes that bring `x`, read by the node `like`, into
     * the domain.  Without it: as it is. */
    sb_status (*map_activation)(const sb_quant_spec *spec, sb_graph *g,
                                sb_node_id like, sb_value_id x,
                                sb_value_id *out);
    /* (optional) Decides for each element of a weight how it is rounded, with
     * scales that are known and what the layer was seen to multiply it with
     * (rounding.h).  Without it: to nearest, and no samples are needed. */
    sb_status (*round)(sb_rounding *r);
    /* What `round` takes, so that a limit of memory is checked before the work:
     * arrays of the size of r->w, and of r->gram. */
    size_t round_arrays, round_squares;
    /* `round` takes many steps, and minutes for a network. */
    bool round_learns;
};

/* The row by its name, of the list or of those that plug-ins added to the
 * context (NULL: only the list); NULL if there is none. */
const sb_quantizer_def *sb_quantizer_find(const sb_ctx *ctx, const char *name);
/* Row i in order of the list, then of adding; NULL past the end. */
const sb_quantizer_def *sb_quantizer_at(const sb_ctx *ctx, size_t i);

#endif
