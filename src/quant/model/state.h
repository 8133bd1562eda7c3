/* state.h - what calibration found out: observers, scales.  Arrays go by the
 * numbers of quantizers and points in the placement. */
#ifndef SB_QUANT_MODEL_STATE_H
#define SB_QUANT_MODEL_STATE_H

#include <sparsebit/quantize.h>

#include "exec/exec.h"
#include "quant/calibrate/batch_store.h"
#include "quant/observe/observer.h"
#include "quant/quantize/qparams.h"

typedef struct sb_quantizer_state {
    sb_qparams qparams; /* n 0: not known yet */
    /* Bounds of the integers as in the placement, or narrower ones, for
     * --reduce-range. */
    int32_t qmin, qmax;
    bool left_out; /* off: for want of data, or as it is better in float */
    sb_quantizer_info info; /* what the caller of the library sees of it */
} sb_quantizer_state;

typedef struct sb_point_state {
    sb_observer *observer; /* NULL: nothing seen yet */
    sb_observer *given;    /* of the value before it was equalized, or NULL */
    int64_t channels;      /* of the observer */
    int64_t samples;       /* seen so far */
    /* Of an activation: 1 if nothing is clipped, 0 as the observer says, or
     * between these. */
    float whole;
    float clip; /* what sb_clip_ranges() is to make of it */
} sb_point_state;

/* Asked once, when a quarter of the weights that are rounded by samples is
 * decided: is it worth going on?  Not of a few layers, of which the first have
 * next to nothing before them to make up for. */
typedef struct sb_round_watch {
    sb_status (*goes_on)(void *user, bool *out);
    void *user;
} sb_round_watch;

typedef struct sb_blocks sb_blocks; /* calibrate_blocks.c */

typedef struct sb_quant_state {
    sb_quantizer_state *quantizers;
    sb_point_state *points;
    sb_observer_slots slots; /* of all observers */
    float *weight;           /* one after another, while they are observed */
    size_t weight_size;      /* bytes */
    bool calibrating;
    sb_calibration_options calibration;
    bool shared;   /* by the ranks of the context */
    bool loaded;   /* some of what was seen is from files */
    bool apart;    /* batches that judge learned blocks are kept from methods */
    bool anew;     /* a network was observed that was equalized */
    bool absorbed; /* equalization with offsets was tried last */
    sb_blocks *blocks; /* while calibrating block by block, else NULL */
    size_t kept;       /* bytes in memory of all that is kept for another run */
    sb_batch_store *batches; /* kept for sb_refine(), else NULL */
    /* What the float network made of them; NULL if that is too large, or was
     * not computed. */
    sb_batch_store *outputs;
    sb_tensor *overlay; /* by value (overlay.h) */
    /* [2] While sb_refine() runs: memory of networks that run one after the
     * other, and of those beside them; NULL: each has its own.  New pages cost
     * as much as a good part of a run. */
    sb_workspace *rooms;
    /* While weights are fitted on trial, or NULL. */
    const sb_round_watch *watch;
    bool told;            /* which weights are rounded to nearest, and why */
    sb_quant_step *steps; /* what sb_refine() did */
    size_t n_steps, cap_steps;
} sb_quant_state;

/* Nothing observed, no scales, for the quantizers that are placed. */
SB_MUST_USE sb_status sb_quant_state_init(sb_quant_model *qm);
/* The same again. */
void sb_quant_state_reset(sb_quant_model *qm);
void sb_quant_state_free(sb_quant_model *qm);

#endif
