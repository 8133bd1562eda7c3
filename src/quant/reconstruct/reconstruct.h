/* reconstruct.h - weights rounded by what their layers compute. */
#ifndef SB_QUANT_RECONSTRUCT_RECONSTRUCT_H
#define SB_QUANT_RECONSTRUCT_RECONSTRUCT_H

#include "graph/part.h"
#include "quant/model/quant_model.h"

/* Has a weight a quantizer that decides its rounding from samples? */
bool sb_rounds_weights(const sb_quant_model *qm);
/* Is any of them learned, by itself or with its block, in many steps?  Not
 * with weight-only quantization, as that of language models is. */
bool sb_learns_weights(const sb_quant_model *qm);
/* Lays rounded weights over those of such quantizers, from the batches that
 * were kept; *layers is how many.  Layers for which there is no such method are
 * named in the log and rounded to nearest. */
SB_MUST_USE sb_status sb_round_weights(sb_quant_model *qm, size_t *layers);
/* SB_NO_MEMORY if that would need more than the memory that was chosen for the
 * context; says how much it needs. */
SB_MUST_USE sb_status sb_round_check_memory(sb_quant_model *qm);

/* ---- blocks of layers that are learned (blocks.h) ----------------------- */

/* Does the configuration ask for it? */
bool sb_learns_blocks(const sb_quant_model *qm);
/* Why it asks for it in vain, or NULL. */
const char *sb_learns_no_blocks(const sb_quant_model *qm);
/* Lays rounded weights and biases over those of the network and sets scales of
 * activations; *layers is how many weights were learned.  What cannot be is
 * named in the log and rounded to nearest. */
SB_MUST_USE sb_status sb_learn_blocks(sb_quant_model *qm, size_t *layers);

/* ---- what a layer multiplies its weight with (grams.c) ------------------ */

/* A layer and the matrices of its weight: `groups` of [rows, cols].  With
 * `parts` they are pieces of the columns of one matrix, which are rounded each
 * by itself. */
typedef struct sb_round_layer {
    const sb_quantizer *q; /* or NULL */
    sb_node_id node;
    sb_value_id weight;
    bool conv;
    bool transposed; /* the weight is [cols, rows] */
    int64_t groups, rows, cols;
    bool parts;
    uint32_t gram; /* of the list */
    int32_t level; /* how many layers before it are rounded */
} sb_round_layer;

/* Sums of products of one layer's inputs, or of several that read the same.
 *
 * To fit layers to the float network, whose inputs are y where those of the
 * quantized one are x, there are also sums of y x^T; if there is a bias, a 1
 * stands behind each x and y, so that sums of x and y are in the last row and
 * column. */
typedef struct sb_gram {
    sb_value_id x; /* of the float graph */
    bool conv;
    bool parts;  /* groups are pieces of the columns of one matrix */
    bool biased; /* the layer has a bias that takes up what means differ by */
    bool upper;  /* sums are made down to the diagonal: sb_gram_mirror() */
    bool many;   /* layers that read x have more rows than columns */
    bool solved; /* cross is that times the inverse of the damped sums */
    bool brief;  /* weights times cross may be products of bfloat16 */
    int64_t groups, cols;
    sb_node_id node;
    sb_value_id weight;
    float *sums;  /* [groups, size, size], size = cols, one more if biased */
    float *cross; /* the same of y x^T, or NULL */
    float *means; /* [groups, 2, cols]: of x and of y, or NULL */
    float count;  /* of terms */
} sb_gram;

typedef struct sb_grams {
    sb_quant_model *qm;
    sb_gram *v;
    size_t n, cap;
    size_t bytes;
    bool fit; /* with `cross` */
} sb_grams;

/* The matrices of a layer and its weight; else *why_not says why there are
 * none. */
bool sb_round_layer_set(const sb_graph *g, sb_node_id node, sb_value_id weight,
                        sb_round_layer *out, const char **why_not);
/* [rows, cols] to [cols, rows]. */
void sb_round_transpose(const float *from, int64_t rows, int64_t cols,
                        float *to);
/* A node for each list of sums beside its layer, which adds to it in every run;
 * no other outputs are left.  Two states for each. */
SB_MUST_USE sb_status sb_gram_nodes(sb_graph *g, sb_gram *grams, size_t n,
                                    sb_state *states, sb_exec_state *bound);
/* The same of a quantizer's weight. */
bool sb_round_layer_find(const sb_quant_model *qm, const sb_quantizer *q,
                         sb_round_layer *out, const char **why_not);
/* Has the layer a bias that is fitted with it, if layers are? */
bool sb_round_fits_bias(const sb_quant_model *qm, const sb_round_layer *layer);
/* Bytes that one more layer would add. */
size_t sb_grams_bytes(const sb_grams *list, const sb_round_layer *layer);
/* Room for the sums of a layer, all zero; sets layer->gram. */
SB_MUST_USE sb_status sb_grams_add(sb_grams *list, sb_round_layer *layer);
/* A node for each list of sums in a copy of the network, which adds to it in
 * every run, with the inputs it needs behind those of the network: what each
 * layer reads in float, if layers are fitted, then states, four for a layer.
 * `spare` is a place for counts of no use.  `part`: the network's part that the
 * copy is. */
SB_MUST_USE sb_status sb_grams_attach(const sb_grams *list,
                                      const sb_graph_part *part, sb_graph *g,
                                      sb_state *states, sb_exec_state *bound,
                                      float *spare, size_t *n_states);
/* After all runs: the other half of the sums. */
void sb_gram_mirror(sb_gram *gram);
void sb_grams_clear(sb_grams *list);

/* ---- fitting to the float network (fit_layer.c) ------------------------- */

/* Of sums that are complete makes means and covariances: sums becomes [groups,
 * cols, cols], and cross the same of y - x with x. */
void sb_refit_center(sb_gram *gram);
/* The factor of a group's damped sums, in h [cols, cols]; *done false: it has
 * none, and the weight stays as it is.  Many rows are solved here once, in
 * `cross`, instead of each by itself. */
SB_MUST_USE sb_status sb_refit_factor(sb_ctx *ctx, sb_gram *gram, int64_t group,
                                      float *h, bool *done);
/* Changes rows of a group's weight, [rows, cols], so that the layer computes
 * from x what comes nearest to what the float network computes from y. */
SB_MUST_USE sb_status sb_refit_rows(sb_ctx *ctx, const sb_gram *gram,
                                    int64_t group, const float *h, float *w,
                                    int64_t rows);
/* A bias to be laid over *value when it is filled; without memory if the layer
 * has none that may be changed. */
SB_MUST_USE sb_status sb_refit_bias_open(sb_quant_model *qm,
                                         const sb_round_layer *l,
                                         const sb_gram *gram, sb_tensor *bias,
                                         sb_value_id *value);
/* Changes it for the rows from `first` on, of a group, that were `was` and are
 * `now`, rounded. */
void sb_refit_bias_rows(const sb_gram *gram, int64_t group, int64_t first,
                        int64_t rows, const float *was, const float *now,
                        sb_tensor *bias);

/* ---- one layer (round_layer.c) ------------------------------------------ */

/* All layers that are rounded so; sb_free() the list in any case.  `warn`:
 * names weights for which there is no such method. */
SB_MUST_USE sb_status sb_round_list(const sb_quant_model *qm, bool warn,
                                    sb_round_layer **out, size_t *n);
/* Rows that are fitted and rounded at a time. */
int64_t sb_round_part(const sb_round_layer *l);
/* Lays the rounded weight, and the bias that belongs to it, over those of the
 * network. */
SB_MUST_USE sb_status sb_round_layer_run(sb_quant_model *qm,
                                         const sb_round_layer *l,
                                         sb_gram *gram);
/* Says that a weight is rounded to nearest. */
void sb_round_warn(const sb_quant_model *qm, const sb_quantizer *q,
                   const char *why);

#endif
