/* calibrate.h - from samples to scales. */
#ifndef SB_QUANT_CALIBRATE_CALIBRATE_H
#define SB_QUANT_CALIBRATE_CALIBRATE_H

#include "exec/exec.h"
#include "quant/model/quant_model.h"

/* ---- observing (calibrate.c) -------------------------------------------- */

/* The float graph with Observe nodes, and in `opt` the functions they call. */
SB_MUST_USE sb_status sb_calibrate_graph(sb_quant_model *qm,
                                         sb_exec_options *opt, sb_graph **out);
/* Are the scales of this point computed from data? */
bool sb_calibrate_observes(const sb_quant_model *qm, uint32_t point);
/* An Observe node on `x`; *watched is its result.  A point in a domain of its
 * own is observed there, then *watched is of no use to the network. */
SB_MUST_USE sb_status sb_calibrate_put(const sb_quant_model *qm, sb_graph *g,
                                       uint32_t point, sb_node_id beside,
                                       sb_value_id x, sb_value_id *watched);
/* A tensor of samples as observers see it; axis -1: all its channels as one. */
sb_obs_view sb_calibrate_view(const sb_tensor *x, int axis);
/* What Observe nodes call: sb_observe_fn, `qm` the user. */
sb_status sb_calibrate_observe(void *qm, int64_t point, const sb_tensor *x);
/* And before the tensor is computed: sb_tap_fn. */
sb_status sb_calibrate_tap(void *qm, int64_t point, const sb_tensor *x,
                           sb_tap *tap);
/* Makes the observer of a point, unless it has one. */
SB_MUST_USE sb_status sb_calibrate_observer(sb_quant_model *qm, uint32_t point,
                                            int64_t channels);
/* Scales of the quantizers whose range comes from point `root`. */
SB_MUST_USE sb_status sb_calibrate_calc(sb_quant_model *qm, uint32_t root);
/* Scales of a weight as if it were `w`, of its shape; as they are if others
 * have the same. */
SB_MUST_USE sb_status sb_calibrate_weight(sb_quant_model *qm,
                                          const sb_quantizer *q,
                                          const sb_tensor *w);
/* Scales of a weight of blocks (block_scales.c), for `w`, of its shape.  `gram`
 * [cols, cols] or NULL: elements weigh what its diagonal says. */
SB_MUST_USE sb_status sb_block_scales(const sb_quant_model *qm,
                                      const sb_quantizer *q, const sb_tensor *w,
                                      const float *gram);

/* calibration_file.c: what a file of saved calibration holds; `path` is what
 * messages say.  Unless it is a part, all points must be there. */
SB_MUST_USE sb_status sb_calibration_load_memory(sb_quant_model *qm,
                                                 const char *path,
                                                 const char *text, size_t size,
                                                 bool part);
/* Such a text of the points whose group is `which`, by point; NULL: of all. */
SB_MUST_USE sb_status sb_calibration_save_memory(const sb_quant_model *qm,
                                                 const int32_t *group,
                                                 int32_t which, sb_str *out);
/* calibrate_ranks.c: the observers of these points, on all ranks, become what
 * one rank would have that has seen all samples. */
SB_MUST_USE sb_status sb_calibrate_join(sb_quant_model *qm,
                                        const int32_t *group, int32_t which);

/* ---- block by block (calibrate_blocks.c) -------------------------------- */

SB_MUST_USE sb_status sb_blocks_create(sb_quant_model *qm, sb_blocks **out);
void sb_blocks_free(sb_blocks *b); /* NULL is allowed */
/* Keeps a batch; one tensor per graph input, NULL where a default stands. */
SB_MUST_USE sb_status sb_blocks_take(sb_blocks *b,
                                     const sb_tensor *const *inputs);
/* Observes all points, each behind quantizers that are ready, and computes
 * their scales. */
SB_MUST_USE sb_status sb_blocks_run(sb_blocks *b);

/* ---- scales ------------------------------------------------------------- */

/* range_saturation.c: cuts off what the consumers of the value of a point
 * cannot tell apart; `bits` is its bit width. */
void sb_range_clip_to_saturation(const sb_quant_model *qm,
                                 const sb_quant_point *point, int bits,
                                 sb_range *range);

/* reduce_range.c: narrower bounds of a weight, before its scale is computed,
 * and larger scales after it. */
void sb_reduce_all(const sb_quant_model *qm, const sb_quantizer *q);
SB_MUST_USE sb_status sb_reduce_auto(const sb_quant_model *qm,
                                     const sb_quantizer *q);
/* Scales that came from a file are kept, as its integers are, unless narrower
 * bounds are asked for: must those of this weight be computed anew? */
bool sb_reduce_known(const sb_quant_model *qm, const sb_quantizer *q);

/* fit_bias.c: a layer with scales of its activation and its weight, and a
 * bias that a kernel adds as integers. */
typedef struct sb_biased_layer {
    const sb_quantizer *x, *w;
    sb_value_id bias;
    sb_use use; /* the edge of the bias */
    int64_t n;  /* elements of the bias */
} sb_biased_layer;

/* The layer of a weight quantizer; false if its bias cannot be integers. */
bool sb_biased_layer_find(const sb_quant_model *qm, const sb_quantizer *w,
                          sb_biased_layer *out);
/* The scale of the integer of element `i` of the bias: s_x * s_w. */
float sb_biased_layer_scale(const sb_quant_model *qm, const sb_biased_layer *l,
                            int64_t i);
/* Enlarges scales of weights whose bias would not fit into int32, where the
 * target has such biases; done with the scales, so that simulation has them
 * too. */
void sb_calibrate_fit_biases(sb_quant_model *qm);

#endif
