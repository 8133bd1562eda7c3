/* Bias correction without samples (M. Nagel et al., Data-free quantization
 * through weight equalization and bias correction, arXiv 1906.04721, section
 * 4.2): what a layer reads behind a batch norm has the mean and the deviation
 * that the norm gives each channel, beta and |gamma|, and Relu or Clip cuts off
 * the ends of what is taken for a normal distribution.  Rounding a weight w to
 * r shifts the mean of the layer's results by (r - w) times the mean of what it
 * reads; padding is not counted. */
#include <math.h>

#include "ops/op_registry.h"
#include "passes/bn_channels.h"
#include "quant/correct/correct.h"
#include "quant/correct/equalize.h"
#include "quant/model/overlay.h"
#include "quant/model/weight.h"
#include "quant/place/place.h"

/* ---- what the norms of the file say ------------------------------------- */

static bool norms_wanted(const sb_quant_model *qm)
{
    /* Static quantization has samples, which know better. */
    return sb_quant_config_schedule(qm->config).bias_correction &&
           sb_quant_config_mode(qm->config) != SB_QUANT_STATIC &&
           qm->known.n == 0;
}

static int64_t norms_channels(const sb_graph *g, sb_value_id v)
{
    const sb_shape *s = &sb_graph_value(g, v)->type.shape;

    return s->rank > 1 && sb_dim_known(s->dim[1]) ? s->dim[1] : 0;
}

sb_status sb_norms_keep(sb_quant_model *qm)
{
    const sb_graph *file = qm->file;

    if (!norms_wanted(qm))
        return SB_OK;
    qm->norms =
        sb_arena_alloc(&qm->arena, qm->graph->n_values, sizeof(*qm->norms));
    if (!qm->norms)
        return SB_NO_MEMORY;
    for (sb_node_id id = 0; id < file->n_nodes; id++) {
        const sb_node *node = sb_graph_node(file, id);
        sb_value_id v = SB_NONE;

        if (!node->dead && sb_node_role(node) == SB_ROLE_NORM)
            v = sb_graph_find_value(
                qm->graph, sb_graph_value(file, node->outputs[0])->name);
        int64_t n = v == SB_NONE ? 0 : norms_channels(qm->graph, v);
        if (n > 0 && sb_bn_is_plain(file, node, n))
            SB_TRY(sb_bn_read(file, node, n, &qm->norms[v]));
    }
    return SB_OK;
}

void sb_norms_free(sb_quant_model *qm)
{
    for (size_t i = 0; qm->norms && i < qm->graph->n_values; i++)
        sb_free(qm->ctx, qm->norms[i]);
}

/* ---- means and variances ------------------------------------------------ */

typedef struct moments {
    double mean, variance;
} moments;

/* Of a value: one for each channel, NULL if they are not known. */
typedef struct norm_walk {
    sb_quant_model *qm;
    sb_arena arena;
    moments **of;
} norm_walk;

/* Of a normal distribution what is within the bounds, the ends being moved onto
 * them. */
static moments moments_clipped(moments x, double lo, double hi)
{
    double s = sqrt(x.variance), a = (lo - x.mean) / s, b = (hi - x.mean) / s;
    const double root = sqrt(0.5), height = sqrt(0.5 / acos(-1.0));

    if (!(s > 0))
        return (moments){fmin(fmax(x.mean, lo), hi), 0};
    double below = 0.5 * erfc(-a * root), above = 0.5 * erfc(b * root);
    double at_a = height * exp(-0.5 * a * a), at_b = height * exp(-0.5 * b * b);
    double within = 1 - below - above;
    /* An end without a bound is never reached. */
    double low = isfinite(lo) ? lo : 0, high = isfinite(hi) ? hi : 0;
    double mean =
        low * below + high * above + x.mean * within + s * (at_a - at_b);
    double square = low * low * below + high * high * above +
                    (x.mean * x.mean + x.variance) * within +
                    s * ((x.mean + low) * at_a - (x.mean + high) * at_b);

    return (moments){mean, fmax(square - mean * mean, 0)};
}

/* Are the bounds of a Clip, which may be computed, numbers? */
static bool moments_bounded(const sb_graph *g, const sb_node *node,
                            const sb_result_range *range)
{
    const uint32_t in[] = {range->lo_in, range->hi_in};
    bool known = true;
    double bound;

    for (size_t i = 0; i < SB_COUNT(in); i++) {
        sb_value_id v = in[i] ? sb_node_in(node, in[i]) : SB_NONE;

        known = known && (v == SB_NONE || sb_const_scalar(g, v, &bound));
    }
    return known;
}

/* Channel c of the node's result; false if nothing is known of it. */
static bool moments_of(const norm_walk *w, const sb_node *node, int64_t c,
                       moments *out)
{
    const sb_graph *g = w->qm->graph;
    sb_value_id y = node->outputs[0], a = sb_node_in(node, 0),
                b = sb_node_in(node, 1);
    const moments *x = a != SB_NONE ? w->of[a] : NULL;
    double lo = 0, hi = 0;
    const sb_result_range *range = sb_node_range(g, node, &lo, &hi);

    if (w->qm->norms[y]) {
        double gamma = (double)w->qm->norms[y][c].gamma;

        *out = (moments){(double)w->qm->norms[y][c].beta, gamma * gamma};
    } else if (x && range && range->clips && moments_bounded(g, node, range)) {
        *out = moments_clipped(x[c], lo, hi);
    } else if (x && b != SB_NONE && w->of[b] && sb_node_adds(node) &&
               norms_channels(g, a) == norms_channels(g, y) &&
               norms_channels(g, b) == norms_channels(g, y)) {
        /* Branches of a network are taken for independent. */
        *out = (moments){x[c].mean + w->of[b][c].mean,
                         x[c].variance + w->of[b][c].variance};
    } else {
        return false;
    }
    return true;
}

static sb_status moments_walk(norm_walk *w)
{
    const sb_graph *g = w->qm->graph;

    w->of = sb_arena_alloc(&w->arena, g->n_values, sizeof(*w->of));
    if (!w->of)
        return SB_NO_MEMORY;
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        moments first;
        int64_t n = node->n_out == 1 ? norms_channels(g, node->outputs[0]) : 0;

        if (n == 0 || !moments_of(w, node, 0, &first))
            continue;
        moments *y = sb_arena_alloc(&w->arena, (size_t)n, sizeof *y);
        if (!y)
            return SB_NO_MEMORY;
        for (int64_t c = 0; c < n; c++)
            (void)moments_of(w, node, c, &y[c]);
        w->of[node->outputs[0]] = y;
    }
    return SB_OK;
}

/* ---- layers ------------------------------------------------------------- */

/* Adds to the bias what the layer makes of the means with its weight, and takes
 * away what it makes of them with the rounded one. */
static sb_status norms_shift(const norm_walk *w, const sb_link *l,
                             const sb_link_reader *r, const sb_quantizer *q,
                             float *bias)
{
    const moments *x = w->of[l->value];
    sb_ctx *ctx = w->qm->ctx;
    sb_tensor rounded;

    SB_TRY(sb_quantizer_rounded(w->qm, q, &rounded));
    float *mean = sb_alloc(ctx, (size_t)l->channels, sizeof *mean);
    for (int64_t c = 0; mean && c < l->channels; c++)
        mean[c] = (float)x[c].mean;
    if (mean)
        sb_link_add_offsets(&sb_graph_value(w->qm->graph, r->weight)->constant,
                            l, r, mean, bias);
    for (int64_t c = 0; mean && c < l->channels; c++)
        mean[c] = -mean[c];
    if (mean)
        sb_link_add_offsets(&rounded, l, r, mean, bias);
    sb_tensor_drop(&rounded);
    sb_free(ctx, mean);
    return mean ? SB_OK : SB_NO_MEMORY;
}

/* *done: the bias of this node was corrected. */
static sb_status norms_correct(const norm_walk *w, sb_node_id id, bool *done)
{
    sb_quant_model *qm = w->qm;
    const sb_quantizer *q = sb_quantizer_on(qm, id, 1);
    sb_value_id x = sb_node_in(sb_graph_node(qm->graph, id), 0);
    sb_bias_layer layer;
    sb_link_reader reader;
    sb_tensor t;

    *done = false;
    if (!q || q->def->map_weight || x == SB_NONE || !w->of[x] ||
        !sb_bias_layer_find(qm->graph, id, &layer) ||
        sb_node_float(sb_graph_node(qm->graph, id), "alpha", 1) != 1)
        return SB_OK;
    const sb_link l = {
        .value = x, .axis = 1, .channels = norms_channels(qm->graph, x)};
    if (!sb_link_reader_set(qm->graph, &l, (sb_use){id, 0}, &reader))
        return SB_OK;
    /* Of the file: what an earlier call laid over it is corrected already. */
    SB_TRY(sb_tensor_clone(
        qm->ctx, &sb_graph_value(qm->graph, layer.bias)->constant, &t));
    sb_status status = norms_shift(w, &l, &reader, q, t.data);
    if (status == SB_OK)
        sb_overlay_set(qm, layer.bias, &t);
    *done = status == SB_OK;
    sb_tensor_drop(&t);
    return status;
}

sb_status sb_correct_biases_by_norms(sb_quant_model *qm, size_t *layers)
{
    norm_walk w = {.qm = qm};

    *layers = 0;
    sb_arena_init(&w.arena, qm->ctx);
    sb_status status = moments_walk(&w);
    for (sb_node_id id = 0; id < qm->graph->n_nodes && status == SB_OK; id++) {
        bool done = false;

        status = norms_correct(&w, id, &done);
        *layers += done;
    }
    sb_arena_free(&w.arena);
    return status;
}
