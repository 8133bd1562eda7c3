/* equalize.h - values whose channels can be scaled without changing what the
 * network computes.
 *
 *     layer or norm -> Relu, pools, ... -> layers
 *
 * or, where what makes a value cannot be divided, a product with factors that
 * is put in front of matrix products (equalize_factors.c).
 *
 * Dividing channel c of the first by s_c > 0 and multiplying what the layers
 * behind multiply it with by s_c changes nothing in float; but channels of
 * equal size lose less where one scale serves them all. */
#ifndef SB_QUANT_CORRECT_EQUALIZE_H
#define SB_QUANT_CORRECT_EQUALIZE_H

#include "quant/model/quant_model.h"

enum { SB_LINK_CHAIN = 12, SB_LINK_READERS = 16 };

/* A layer that reads the value: its weight, and where the channels that it
 * reads are in it. */
typedef struct sb_link_reader {
    sb_node_id node;
    sb_value_id weight;
    bool transposed; /* [channels, rows] instead of [rows, channels, taps] */
    int64_t groups, rows, taps;
} sb_link_reader;

typedef struct sb_link {
    sb_value_id value; /* what is quantized, and read by all of `readers` */
    int axis;          /* of its channels */
    int64_t channels;
    double bound; /* a Clip cuts off at it; infinite if there is none */
    /* Whose channels are divided: a weight, or the gains of a norm, and a bias
     * or SB_NONE.  No maker: a product that the network has not yet. */
    sb_node_id maker;
    sb_value_id weight, bias;
    int weight_axis;
    /* Values that are divided, the last is `value`. */
    sb_value_id chain[SB_LINK_CHAIN];
    size_t n_chain;
    sb_link_reader readers[SB_LINK_READERS];
    size_t n_readers;
    bool absorbs; /* high biases are looked for (equalize_absorb.c) */
} sb_link;

/* What was seen of the channels of a link's value. */
typedef struct sb_link_stats {
    float *lo, *hi; /* [channels], zero between them in the end */
    double *square; /* [channels] mean */
    double count;   /* elements of a channel */
    /* [channels] NULL unless the link absorbs. */
    double *mean;
    float *offset; /* c of equalize_absorb.c */
    double left;   /* of the range without offsets */
} sb_link_stats;

/* equalize_links.c: the link that begins at a node; false if there is none. */
bool sb_link_find(const sb_quant_model *qm, sb_node_id maker, sb_link *out);
/* The layer at one use of the link's value; false if it is none whose weight
 * has the channels along an axis. */
bool sb_link_reader_set(const sb_graph *g, const sb_link *l, sb_use use,
                        sb_link_reader *out);
/* The same of a layer that runs on integers. */
bool sb_link_takes(const sb_quant_model *qm, const sb_link *l, sb_use use,
                   sb_link_reader *out);
/* Has every quantizer on the value a range that can be observed anew, for
 * itself? */
bool sb_link_observable(const sb_quant_model *qm, sb_value_id v);
/* The channel that element `e` of a reader's weight is multiplied with. */
int64_t sb_link_channel(const sb_link *l, const sb_link_reader *r, int64_t e);

/* equalize_scales.c: scales [channels] with which the layers behind are
 * expected to lose least; *gain is what is left of the expected noise, 1 if
 * nothing is to be gained. */
SB_MUST_USE sb_status sb_link_scales(const sb_quant_model *qm, const sb_link *l,
                                     const sb_link_stats *seen, float *scales,
                                     double *gain);

/* ---- factors (equalize_factors.c) --------------------------------------- */

/* A value that is read by matrix products, and rounded for them alone, behind
 * an operator that runs in float. */
bool sb_factors_find(const sb_quant_model *qm, uint32_t point, sb_link *out);
/* Divides it by `scales` in front of them; *out is the product. */
SB_MUST_USE sb_status sb_factors_put(sb_quant_model *qm, const sb_link *l,
                                     const float *scales, sb_value_id *out);

/* ---- high biases (equalize_absorb.c) ------------------------------------ */

/* Is the value Relu(maker + bias), read by layers with biases of their own that
 * pad nothing?  Offsets change nothing in float only while no channel falls
 * below its own. */
bool sb_link_absorbs(const sb_graph *g, const sb_link *l);
/* From the statistics, of which lo is the least number seen: offsets, and the
 * statistics without them.  Returns how much of the range is left; 1: no offset
 * is worth it. */
double sb_link_offsets(const sb_link *l, sb_link_stats *s);
/* Adds what a reader with the weight `w` makes of offsets to its bias. */
void sb_link_add_offsets(const sb_tensor *w, const sb_link *l,
                         const sb_link_reader *r, const float *offset,
                         float *bias);

#endif
