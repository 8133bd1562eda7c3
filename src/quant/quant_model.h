/* quant_model.h - a float network and the quantizers on its edges; what is
 * behind the public sb_quant_model.
 *
 * The float graph is simplified once and never changed after.  What runs, and
 * what is exported, is a copy of it with one more node on the edges where
 * quantizers stand: Observe while calibrating, FakeQuant in simulation,
 * QuantizeLinear and DequantizeLinear in a file.
 *
 * Quantizers of the same value with the same settings share a site: it is
 * observed once, and one node serves all their edges. */
#ifndef SB_QUANT_QUANT_MODEL_H
#define SB_QUANT_QUANT_MODEL_H

#include "exec/exec.h"
#include "quant/import.h"
#include "quant/observer.h"
#include "quant/quantizer.h"
#include "quant/target.h"

typedef struct sb_quantizer {
    const char *name; /* "layer1.0.conv1.input_quantizer" */
    sb_quant_spec spec;
    const sb_quantizer_def *def;
    sb_value_id value; /* what it quantizes */
    sb_use *uses;      /* the edges that read what it makes */
    size_t n_uses;
    bool at_output;  /* an output of the graph reads it, too */
    int axis;        /* of channels or groups in the value; -1: none */
    int64_t block;   /* indices of `axis` that share a scale, if by group */
    bool fake_fused; /* inside a chain that runs as one: never on */
    bool left_out;   /* the same, for want of data, until there is some */
    /* Bounds of the integers, if narrower than `bits` allows; else both 0. */
    int32_t qmin, qmax;
    uint32_t site;
    sb_qparams qparams; /* n 0: not known yet */
} sb_quantizer;

typedef struct sb_quant_site {
    sb_value_id value;
    uint32_t first;   /* a quantizer that belongs to it, fake-fused only if all
                         are */
    uint32_t same_as; /* the site whose scales it has; often itself */
    const sb_known *known; /* what a quantized file said of it, or NULL */
    bool natural;          /* `range` is known without data */
    sb_range range;
    sb_observer *observer; /* NULL: nothing seen yet */
    int64_t channels;      /* of the observer */
    int64_t samples;       /* seen so far */
} sb_quant_site;

/* A derived graph, ready to run. */
typedef struct sb_quant_run {
    sb_graph *graph;
    sb_exec *exec;
    const sb_tensor **inputs;  /* one a graph input, defaults included */
    const sb_tensor **outputs; /* those of the model first */
} sb_quant_run;

typedef struct sb_blocks sb_blocks; /* calibrate_blocks.c */

struct sb_quant_model {
    sb_ctx *ctx;
    sb_arena arena; /* names */
    sb_graph *graph;
    sb_quant_config *config;
    const sb_target_def *target;
    sb_known_list known; /* of a file that was quantized already */
    sb_obs_room room;    /* of all observers */
    float *weight;       /* one after another, while they are observed */
    size_t weight_size;  /* bytes */
    sb_quantizer *quantizers;
    size_t n_quantizers, cap_quantizers;
    sb_quant_site *sites;
    size_t n_sites, cap_sites;
    /* Samples in a run if the network takes no other number; 0: any. */
    int64_t fixed_batch;
    int64_t file_batch; /* the number that the file had; 0: none */
    sb_dim *batches;    /* first dimension of each input in the file */
    sb_quant_run run;   /* of the present state; made at the first forward */
    bool calibrating;
    sb_calibration_options calibration;
    sb_blocks *blocks; /* while calibrating block by block, else NULL */
    sb_reduce_range reduce_range;
    bool exact; /* no faster algorithms that round differently */
    bool weights_on, features_on;
    bool follow; /* what the file quantizes is quantized, nothing else */
};

/* A quantized model of `graph`, which is copied (weights are shared).  The
 * configuration becomes the model's own, whether the call succeeds or not.
 * `target` NULL: as the configuration says. */
SB_MUST_USE sb_status sb_quant_model_build(sb_ctx *ctx, const sb_graph *graph,
                                           sb_quant_config *config,
                                           const sb_target_def *target,
                                           sb_quant_model **out);
/* The same for a file that is quantized already, without calibrated
 * activations: what it quantizes is quantized, under a configuration of its
 * own mode. */
SB_MUST_USE sb_status sb_quant_model_again(sb_ctx *ctx, const sb_graph *graph,
                                           sb_quant_config *config,
                                           const sb_target_def *target,
                                           sb_quant_model **out);
/* file_mode.c: how a file treats activations; SB_QUANT_STATIC for float
 * networks, too. */
sb_quant_mode sb_quant_file_mode(const sb_graph *g);

/* A quantizer to be: on the edges `uses`, all of which read `value`.  `axis`
 * and `block` as above. */
typedef struct sb_quantizer_spec {
    const char *name; /* copied */
    const sb_quant_spec *settings;
    sb_value_id value;
    const sb_use *uses; /* copied */
    size_t n_uses;
    int axis;
    int64_t block;
    bool alone; /* a site of its own, whatever others there are */
} sb_quantizer_spec;

/* *out is valid until the next call. */
SB_MUST_USE sb_status sb_quant_model_add(sb_quant_model *qm,
                                         const sb_quantizer_spec *spec,
                                         sb_quantizer **out);
/* Axis and block of the quantizer on an input of a node, as its settings and
 * the row of the operator say. */
SB_MUST_USE sb_status sb_quantizer_axis(const sb_quant_model *qm,
                                        const sb_quant_spec *settings,
                                        sb_use use, int *axis, int64_t *block);
/* Is the quantizer on, as weights_on and features_on say? */
bool sb_quantizer_enabled(const sb_quant_model *qm, const sb_quantizer *q);
/* Is its value a constant? */
bool sb_quantizer_is_constant(const sb_quant_model *qm, const sb_quantizer *q);

/* place_config.c: quantizers as the configuration and the rows of operators
 * say; no runtime in particular. */
SB_MUST_USE sb_status sb_quant_place_config(sb_quant_model *qm);
/* place_known.c: quantizers where a quantized file has them. */
SB_MUST_USE sb_status sb_quant_place_known(sb_quant_model *qm);
/* known.c: widths that the metadata of a file of ours tell. */
SB_MUST_USE sb_status sb_quant_known_widths(sb_quant_model *qm);
/* known.c: gives quantizers what a quantized file said of their values. */
void sb_quant_apply_known(sb_quant_model *qm);
/* Scales of a quantizer from that. */
SB_MUST_USE sb_status sb_quant_use_known(sb_quant_model *qm,
                                         const sb_known *known,
                                         sb_quantizer *q);
/* Numbers that a constant was multiplied by: n along an axis, or one. */
typedef struct sb_factors {
    int64_t n;
    const float *v;
    float one; /* if n is 0 */
} sb_factors;
/* The constant `name` is what `old` was, times `factors`: the same integers,
 * with scales that are multiplied as well, now along `axis`. */
SB_MUST_USE sb_status sb_quant_known_scaled(sb_quant_model *qm, const char *old,
                                            const char *name, int axis,
                                            const sb_factors *factors);
/* place_target.c: quantizers where the target fuses them. */
SB_MUST_USE sb_status sb_quant_place_target(sb_quant_model *qm);
/* place_join.c: inputs of `node` that nobody else reads take the scale of its
 * result; `site_of` by value. */
void sb_quant_join_scales(sb_quant_model *qm, const sb_node *node,
                          sb_value_id result, const uint32_t *site_of);
/* flat_tails.c: cuts off what the functions that read the value of a site
 * cannot tell apart; `bits` is its width. */
void sb_quant_cut_tails(const sb_quant_model *qm, const sb_quant_site *site,
                        int bits, sb_range *range);
/* place_weights.c: weights, and activations that are quantized at each run:
 * for configurations that calibrate nothing. */
SB_MUST_USE sb_status sb_quant_place_weights(sb_quant_model *qm);
/* straight_gemm.c: constant weights of Gemm as [K, N], factors multiplied
 * in; what is known of them follows. */
SB_MUST_USE sb_status sb_quant_straighten(sb_quant_model *qm, sb_graph *g);
/* known_bn.c: the passes "simplify" and "fuse_bn"; what is known of weights
 * follows. */
SB_MUST_USE sb_status sb_quant_fuse_bn(sb_quant_model *qm, sb_graph *g);
/* merge_bias.c: biases of layers of a dynamic file back into them. */
SB_MUST_USE sb_status sb_quant_merge_biases(const sb_quant_model *qm,
                                            sb_graph *g);
/* The start of the names of a node's quantizers: its module, if no other node
 * that may be quantized shares it, else the node's own name. */
const char *sb_quant_base_name(const sb_graph *g, const sb_node *node);

/* reduce_range.c: bounds of a weight before its scale is computed, and after
 * it: *again if it has to be computed once more, for narrower bounds. */
void sb_reduce_all(const sb_quant_model *qm, sb_quantizer *q);
/* The same for a weight whose scales came from a file. */
SB_MUST_USE sb_status sb_reduce_known(const sb_quant_model *qm, sb_quantizer *q,
                                      bool *again);
SB_MUST_USE sb_status sb_reduce_auto(const sb_quant_model *qm, sb_quantizer *q,
                                     bool *again);

/* ---- derived graphs (derive.c) ------------------------------------------ */

/* Puts something on the edges of a site: nodes that turn `x`, read by the node
 * `like`, into *y.  *y = x leaves the edges alone. */
typedef sb_status (*sb_site_fn)(void *user, sb_graph *g, uint32_t site,
                                sb_node_id like, sb_value_id x, sb_value_id *y);
/* A copy of the float graph with `fn` applied to every site; only edges of
 * quantizers that are not fake-fused are redirected. */
SB_MUST_USE sb_status sb_quant_derive(const sb_quant_model *qm, sb_site_fn fn,
                                      void *user, sb_graph **out);
/* Adds a node with the one result `y`, of the type of `x`, in the module and
 * place of `like`. */
SB_MUST_USE sb_status sb_quant_put_node(sb_graph *g, sb_node_id like,
                                        const sb_node_spec *spec, sb_value_id x,
                                        sb_value_id y);
/* The same with a new value, named like `x`. */
SB_MUST_USE sb_status sb_quant_add_node(sb_graph *g, sb_node_id like,
                                        const sb_node_spec *spec, sb_value_id x,
                                        sb_value_id *y);

/* A node beside which to put those of a quantizer. */
sb_node_id sb_quant_like(const sb_graph *g, const sb_quantizer *q);
/* The output of the graph that was `x` is now `y`, under the same name; the
 * other one gives `x` the name of `spare`, which nobody uses. */
SB_MUST_USE sb_status sb_quant_move_output(sb_graph *g, sb_value_id x,
                                           sb_value_id y);
SB_MUST_USE sb_status sb_quant_move_output_as(sb_graph *g, sb_value_id x,
                                              sb_value_id y, sb_value_id spare);

/* ---- calibration (calibrate.c) ------------------------------------------ */

/* The float graph with Observe nodes, and in `opt` who sees them. */
SB_MUST_USE sb_status sb_calibrate_graph(sb_quant_model *qm,
                                         sb_exec_options *opt, sb_graph **out);
/* Is it computed from data what the scales of this site are? */
bool sb_calibrate_observes(const sb_quant_model *qm, uint32_t site);
/* An Observe node on `x`; *watched is its result.  A site in a domain of its
 * own is observed there, then *watched is of no use to the network. */
SB_MUST_USE sb_status sb_calibrate_put(const sb_quant_model *qm, sb_graph *g,
                                       uint32_t site, sb_node_id like,
                                       sb_value_id x, sb_value_id *watched);
/* What Observe nodes call: sb_observe_fn, `qm` the user. */
sb_status sb_calibrate_observe(void *qm, int64_t site, const sb_tensor *x);
/* And before the tensor is made: sb_tap_fn. */
sb_status sb_calibrate_tap(void *qm, int64_t site, const sb_tensor *x,
                           sb_tap *tap);
/* Makes the observer of a site, unless it has one. */
SB_MUST_USE sb_status sb_calibrate_observer(sb_quant_model *qm,
                                            sb_quant_site *site,
                                            int64_t channels);
/* Scales of the quantizers whose range comes from site `root`. */
SB_MUST_USE sb_status sb_calibrate_calc(sb_quant_model *qm, uint32_t root);

/* calibration_file.c: what a file of saved calibration holds; `path` is what
 * messages say. */
SB_MUST_USE sb_status sb_calibration_load_memory(sb_quant_model *qm,
                                                 const char *path,
                                                 const char *text, size_t size);

/* ---- calibration block by block (calibrate_blocks.c) -------------------- */

SB_MUST_USE sb_status sb_blocks_create(sb_quant_model *qm, sb_blocks **out);
void sb_blocks_free(sb_blocks *b); /* NULL is allowed */
/* Keeps a batch; one tensor a graph input, NULL where a default stands. */
SB_MUST_USE sb_status sb_blocks_take(sb_blocks *b,
                                     const sb_tensor *const *inputs);
/* Observes all sites, each behind quantizers that are ready, and computes
 * their scales. */
SB_MUST_USE sb_status sb_blocks_run(sb_blocks *b);

/* ---- running (quant_run.c) ---------------------------------------------- */

/* A FakeQuant node for a site whose scales are known. */
SB_MUST_USE sb_status sb_quant_put_fake(const sb_quant_model *qm, sb_graph *g,
                                        uint32_t site, sb_node_id like,
                                        sb_value_id x, sb_value_id *y);
void sb_quant_run_drop(sb_quant_model *qm);
/* The elements of a weight in the quantizer's domain. */
void sb_quantizer_map_weight(const sb_quantizer *q, const sb_tensor *w,
                             float *to);
/* The weight of a quantizer in its domain, as float32; sb_tensor_drop() it. */
SB_MUST_USE sb_status sb_quantizer_weight(const sb_quant_model *qm,
                                          const sb_quantizer *q,
                                          sb_tensor *out);

#endif
