/* High biases (M. Nagel et al., Data-free quantization through weight
 * equalization and bias correction, arXiv 1906.04721, section 4.1.3).
 *
 *     w2 Relu(w1 x + b1) + b2 = w2 Relu(w1 x + b1 - c) + (b2 + w2 c)
 *
 * as long as no channel of w1 x + b1 is less than its c >= 0; below it the two
 * differ.  What lies below all numbers of a channel takes part of the range
 * that its rounding could use.  The paper has c from batch norms, three
 * deviations below the mean; here these are of what was seen, and c is not
 * above the least that was seen. */
#include <math.h>

#include "ops/op_registry.h"
#include "quant/correct/correct.h"
#include "quant/correct/equalize.h"

/* Zeros around an image have no c. */
static bool absorb_pads(const sb_node *node)
{
    const sb_attr *pads = sb_node_attr(node, "pads");

    for (size_t i = 0; pads && i < pads->n; i++)
        if (pads->ints[i] != 0)
            return true;
    return !sb_node_string_is(node, "auto_pad", "NOTSET", true) &&
           !sb_node_string_is(node, "auto_pad", "VALID", false);
}

/* From the layer with its bias one Relu leads to the value. */
static bool absorb_is_relu(const sb_graph *g, const sb_link *l)
{
    double lo, hi;
    sb_bias_layer made;
    const sb_node *relu = sb_graph_producer(g, l->value);
    const sb_result_range *range =
        relu ? sb_node_range(g, relu, &lo, &hi) : NULL;

    return range && range->clips && lo == 0 && !isfinite(hi) &&
           l->bias != SB_NONE && sb_bias_layer_find(g, l->maker, &made) &&
           relu->inputs[0] == made.result;
}

/* Can its bias take offsets, so that all that it computes stays as it is?  What
 * a product has before a bias is added behind it would not. */
static bool absorb_is_reader(const sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_bias_layer reader;

    return sb_bias_layer_find(g, id, &reader) &&
           reader.result == node->outputs[0] &&
           sb_node_float(node, "alpha", 1) == 1 && !absorb_pads(node);
}

bool sb_link_absorbs(const sb_graph *g, const sb_link *l)
{
    for (size_t i = 0; i < l->n_readers; i++)
        if (!absorb_is_reader(g, l->readers[i].node))
            return false;
    return absorb_is_relu(g, l);
}

static float absorb_offset(const sb_link_stats *s, int64_t c)
{
    const double few = 64; /* numbers, which tell nothing of others */
    double deviation = sqrt(fmax(s->square[c] - s->mean[c] * s->mean[c], 0));
    double low = s->mean[c] - 3 * deviation;

    return s->count >= few && low > 0 ? fminf(s->lo[c], (float)low) : 0;
}

double sb_link_offsets(const sb_link *l, sb_link_stats *s)
{
    const double worth = 0.05; /* of the range */
    float was = 0, is = 0;

    for (int64_t c = 0; c < l->channels; c++) {
        s->offset[c] = absorb_offset(s, c);
        was = fmaxf(was, s->hi[c]);
        is = fmaxf(is, s->hi[c] - s->offset[c]);
    }
    bool pays = (double)is < (1 - worth) * (double)was;
    for (int64_t c = 0; c < l->channels; c++) {
        double offset = pays ? (double)s->offset[c] : 0;

        s->offset[c] = (float)offset;
        s->hi[c] -= (float)offset;
        s->lo[c] = fminf(s->lo[c], 0);
        s->square[c] -= offset * (2 * s->mean[c] - offset);
    }
    return pays ? (double)(is / was) : 1;
}

void sb_link_add_offsets(const sb_tensor *w, const sb_link *l,
                         const sb_link_reader *r, const float *offset,
                         float *bias)
{
    int64_t each = sb_tensor_count(w) / r->rows;
    int64_t step = r->transposed ? r->rows : 1;

    for (int64_t row = 0; row < r->rows; row++) {
        double sum = (double)bias[row];
        int64_t e = r->transposed ? row : row * each;

        for (int64_t i = 0; i < each; i++, e += step)
            sum += sb_tensor_get_f64(w, e) *
                   (double)offset[sb_link_channel(l, r, e)];
        bias[row] = (float)sum;
    }
}
