/* Equalization: channels that share a scale are brought to similar sizes, by
 * factors that the layers around them undo (equalize.h).
 *
 * Factors come from what the float network computes.  Where they promise
 * something, constants of the float graph, which stays the same function, are
 * exchanged; then the values in between are observed anew, at first only on the
 * batches that factors come from, and not on those that judge: with equal
 * channels all of them fill the range, and what other samples lose beyond it
 * must show. */
#include <math.h>
#include <string.h>

#include "quant/calibrate/batch_store.h"
#include "quant/calibrate/calibrate.h"
#include "quant/calibrate/replay.h"
#include "quant/correct/correct.h"
#include "quant/correct/equalize.h"
#include "quant/model/instrument.h"
#include "quant/place/place.h"
#include "tensor/mapped.h"

/* The factors of a value are applied if they are expected to leave less than
 * EQUALIZE_WORTH of its noise; less than EQUALIZE_MUCH if the network gets a
 * product for them.  What was applied is then observed and judged, which takes
 * runs: only if one value is left with less than EQUALIZE_MUCH of its noise, or
 * the shares taken from all values are more than EQUALIZE_ALL_WORTH for each
 * layer. */
static const double EQUALIZE_WORTH = 0.9, EQUALIZE_MUCH = 0.5,
                    EQUALIZE_ALL_WORTH = 0.02;

typedef struct equalizer {
    sb_quant_model *qm;
    sb_link *links;
    sb_link_stats *stats; /* of each link */
    size_t n;
    uint32_t *link_of; /* by value: its link; SB_NONE */
    bool *changed;     /* by value: to be observed anew */
    double gained;     /* shares of noise that factors promise to take away */
    bool much;         /* one of them is large */
    bool absorbed;     /* a link has offsets */
    bool adds;         /* a link has no maker, so that peaks matter more */
} equalizer;

/* ---- links -------------------------------------------------------------- */

/* Offsets are right for what was seen: only what is judged may have them, and
 * not again if they were taken back. */
static bool equalize_absorbs(const sb_quant_model *qm, const sb_link *l)
{
    return !qm->asked && !qm->state.absorbed && sb_link_absorbs(qm->graph, l);
}

static void equalize_add_link(equalizer *e)
{
    sb_link *l = &e->links[e->n];

    e->link_of[l->value] = (uint32_t)e->n++;
    e->adds = e->adds || l->maker == SB_NONE;
    l->absorbs = l->maker != SB_NONE && equalize_absorbs(e->qm, l);
}

static sb_status equalize_find(equalizer *e)
{
    const sb_graph *g = e->qm->graph;
    const size_t n_points = e->qm->place.n_points;
    size_t links = g->n_nodes + n_points + 1;
    /* A product with factors has two more values. */
    size_t values = g->n_values + 2 * n_points + 1;

    e->links = sb_alloc(e->qm->ctx, links, sizeof *e->links);
    e->stats = sb_alloc(e->qm->ctx, links, sizeof *e->stats);
    e->link_of = sb_alloc(e->qm->ctx, values, sizeof *e->link_of);
    e->changed = sb_alloc(e->qm->ctx, values, sizeof *e->changed);
    if (!e->links || !e->stats || !e->link_of || !e->changed)
        return SB_NO_MEMORY;
    for (size_t v = 0; v < values; v++)
        e->link_of[v] = SB_NONE;
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (sb_link_find(e->qm, id, &e->links[e->n]))
            equalize_add_link(e);
    for (uint32_t i = 0; i < n_points; i++)
        if (e->link_of[e->qm->place.points[i].value] == SB_NONE &&
            sb_factors_find(e->qm, i, &e->links[e->n]))
            equalize_add_link(e);
    return SB_OK;
}

/* ---- what is seen ------------------------------------------------------- */

static sb_status equalize_make_stats(equalizer *e, const sb_link *l,
                                     sb_link_stats *s)
{
    size_t n = (size_t)l->channels;

    s->lo = sb_alloc(e->qm->ctx, n, sizeof *s->lo);
    s->hi = sb_alloc(e->qm->ctx, n, sizeof *s->hi);
    s->square = sb_alloc(e->qm->ctx, n, sizeof *s->square);
    s->left = 1;
    if (!s->lo || !s->hi || !s->square)
        return SB_NO_MEMORY;
    if (!l->absorbs)
        return SB_OK;
    s->mean = sb_alloc(e->qm->ctx, n, sizeof *s->mean);
    s->offset = sb_alloc(e->qm->ctx, n, sizeof *s->offset);
    for (size_t c = 0; c < n; c++)
        s->lo[c] = HUGE_VALF;
    return s->mean && s->offset ? SB_OK : SB_NO_MEMORY;
}

/* One number of each channel, as they lie channels last. */
static void equalize_see_row(const sb_link_stats *s, const float *x, int64_t n)
{
    float *restrict lo = s->lo, *restrict hi = s->hi;
    double *restrict square = s->square;

    for (int64_t c = 0; c < n; c++) {
        float v = x[c];

        lo[c] = v < lo[c] ? v : lo[c];
        hi[c] = v > hi[c] ? v : hi[c];
        square[c] += (double)(v * v);
    }
    for (int64_t c = 0; c < n && s->mean; c++)
        s->mean[c] += (double)x[c];
}

/* Numbers of one channel. */
static void equalize_see_line(const sb_link_stats *s, int64_t c, const float *x,
                              int64_t n)
{
    float lo = s->lo[c], hi = s->hi[c];
    double square = 0, sum = 0;

    for (int64_t i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        square += (double)(x[i] * x[i]);
        sum += (double)x[i];
    }
    if (s->mean)
        s->mean[c] += sum;
    s->lo[c] = lo;
    s->hi[c] = hi;
    s->square[c] += square;
}

/* sb_observe_fn: `id` is that of a link. */
static sb_status equalize_see(void *user, int64_t id, const sb_tensor *x)
{
    const equalizer *e = user;
    sb_link_stats *s = &e->stats[id];
    sb_obs_view v = sb_calibrate_view(x, e->links[id].axis);

    for (int64_t o = 0; o < v.samples * v.outer; o++) {
        const float *at = v.data + o * v.channels * v.inner;

        if (v.inner == 1)
            equalize_see_row(s, at, v.channels);
        for (int64_t c = 0; c < v.channels && v.inner != 1; c++)
            equalize_see_line(s, c, at + c * v.inner, v.inner);
    }
    s->count += (double)(v.samples * v.outer * v.inner);
    return SB_OK;
}

static sb_status equalize_put_seen(void *user, sb_graph *g, uint32_t point,
                                   sb_node_id beside, sb_value_id x,
                                   sb_value_id *y)
{
    const equalizer *e = user;
    uint32_t link = e->link_of[e->qm->place.points[point].value];

    *y = x;
    return link == SB_NONE ? SB_OK
                           : sb_quant_add_observe(g, beside, link, NULL, x, y);
}

/* Is the node seen through, or does one that is read it? */
static bool equalize_needs(const sb_graph *g, const sb_node *node,
                           const bool *needed)
{
    bool found = strcmp(node->op, "Observe") == 0 &&
                 strcmp(node->domain, SB_FUSED_DOMAIN) == 0;

    for (uint32_t k = 0; k < node->n_out && !found; k++) {
        if (node->outputs[k] == SB_NONE)
            continue;
        const sb_value *v = sb_graph_value(g, node->outputs[k]);
        for (uint32_t i = 0; i < v->n_uses && !found; i++)
            found = needed[v->uses[i].node];
    }
    return found;
}

/* Does any node read a result of it?  Of those that are needed only observers,
 * which have one result, may have no reader. */
static bool equalize_is_read(const sb_graph *g, const sb_node *node)
{
    bool found = false;

    for (uint32_t k = 0; k < node->n_out && !found; k++)
        found = node->outputs[k] != SB_NONE &&
                sb_graph_value(g, node->outputs[k])->n_uses > 0;
    return found;
}

/* Leaves what leads to observers; the last of these are the outputs then. */
static sb_status equalize_cut(sb_graph *g, const sb_node_id *order, size_t n,
                              bool *needed)
{
    sb_graph_clear_outputs(g);
    for (size_t i = n; i-- > 0;) {
        const sb_node *node = sb_graph_node(g, order[i]);

        needed[order[i]] = equalize_needs(g, node, needed);
        if (!needed[order[i]])
            sb_graph_remove_node(g, order[i]);
        else if (!equalize_is_read(g, node))
            SB_TRY(sb_graph_add_output(g, node->outputs[0]));
    }
    return SB_OK;
}

static sb_status equalize_shorten(sb_graph *g)
{
    sb_node_id *order = NULL;
    size_t n = 0;
    bool *needed = sb_alloc(g->ctx, g->n_nodes + 1, sizeof *needed);
    sb_status status = needed ? sb_graph_order(g, &order, &n) : SB_NO_MEMORY;

    if (status == SB_OK)
        status = equalize_cut(g, order, n, needed);
    sb_free(g->ctx, order);
    sb_free(g->ctx, needed);
    return status;
}

/* Takes the graph. */
static sb_status equalize_replay(sb_quant_model *qm, sb_graph *g,
                                 const sb_exec_options *opt,
                                 sb_replay_part part)
{
    size_t batches = sb_batch_store_count(qm->state.batches);
    sb_replay replay = {0};
    sb_status status = equalize_shorten(g);

    if (status != SB_OK || g->n_outputs == 0) {
        sb_graph_free(g);
        return status;
    }
    status = sb_replay_open(qm, g, opt, &replay);
    for (size_t i = 0; i < batches && status == SB_OK; i++) {
        if (!sb_replay_is_for(qm, part, i))
            continue;
        status = sb_progress(qm->ctx, "equalize", i, batches);
        if (status == SB_OK)
            status = sb_replay_run(&replay, i);
    }
    sb_replay_close(&replay);
    return status;
}

static sb_status equalize_look(equalizer *e)
{
    const sb_exec_options opt = {.observe = equalize_see, .observe_user = e};
    sb_graph *g = NULL;

    for (size_t i = 0; i < e->n; i++)
        SB_TRY(equalize_make_stats(e, &e->links[i], &e->stats[i]));
    SB_TRY(sb_quant_derive(e->qm, equalize_put_seen, e, &g));
    SB_TRY(equalize_replay(e->qm, g, &opt,
                           e->adds ? SB_REPLAY_WIDE : SB_REPLAY_USED));
    for (size_t i = 0; i < e->n; i++) {
        sb_link_stats *s = &e->stats[i];

        for (int64_t c = 0; c < e->links[i].channels; c++) {
            s->square[c] /= fmax(s->count, 1);
            if (s->mean)
                s->mean[c] /= fmax(s->count, 1);
        }
        if (s->mean)
            s->left = sb_link_offsets(&e->links[i], s);
    }
    return SB_OK;
}

/* ---- exchanging constants ----------------------------------------------- */

static sb_status equalize_copy(const equalizer *e, sb_value_id v,
                               sb_tensor *out)
{
    const sb_tensor *own = &sb_graph_value(e->qm->graph, v)->constant;

    *out = sb_tensor_make(SB_DTYPE_F32, own->rank, own->dims);
    SB_TRY(sb_tensor_alloc_weight_raw(e->qm->ctx, out));
    memcpy(out->data, own->data, sb_tensor_bytes(out));
    sb_tensor_release_pages(own);
    return SB_OK;
}

static sb_status equalize_exchange(equalizer *e, sb_value_id v, sb_tensor *t)
{
    sb_status status = sb_graph_set_constant(e->qm->graph, v, t);

    e->changed[v] = true;
    sb_tensor_release_pages(t);
    sb_tensor_drop(t);
    return status;
}

/* Divides a constant by the factors of the channels along `axis`. */
static sb_status equalize_divide(equalizer *e, sb_value_id v, int axis,
                                 const float *scales)
{
    sb_tensor t;

    if (v == SB_NONE)
        return SB_OK;
    SB_TRY(equalize_copy(e, v, &t));
    int64_t inner = sb_dims_product(t.dims, axis + 1, t.rank);
    float *w = t.data;
    for (int64_t i = 0; i < sb_tensor_count(&t); i++)
        w[i] /= scales[i / inner % t.dims[axis]];
    return equalize_exchange(e, v, &t);
}

/* Moves offsets from the bias of the layer into those of its readers. */
static sb_status equalize_absorb(equalizer *e, const sb_link *l,
                                 const float *offset)
{
    sb_bias_layer reader;
    sb_tensor t;

    SB_TRY(equalize_copy(e, l->bias, &t));
    for (int64_t c = 0; c < l->channels; c++)
        ((float *)t.data)[c] -= offset[c];
    SB_TRY(equalize_exchange(e, l->bias, &t));
    for (size_t i = 0; i < l->n_readers; i++) {
        const sb_link_reader *r = &l->readers[i];

        if (!sb_bias_layer_find(e->qm->graph, r->node, &reader))
            continue; /* not so: sb_link_absorbs() */
        SB_TRY(equalize_copy(e, reader.bias, &t));
        sb_link_add_offsets(&sb_graph_value(e->qm->graph, r->weight)->constant,
                            l, r, offset, t.data);
        SB_TRY(equalize_exchange(e, reader.bias, &t));
    }
    return SB_OK;
}

/* Divides the value by the factors where it is made, or read. */
static sb_status equalize_make(equalizer *e, const sb_link *l,
                               const float *scales)
{
    sb_value_id product = SB_NONE;

    if (l->maker == SB_NONE) {
        SB_TRY(sb_factors_put(e->qm, l, scales, &product));
        e->changed[product] = true;
        return SB_OK;
    }
    for (size_t i = 0; i < l->n_chain; i++)
        e->changed[l->chain[i]] = true;
    SB_TRY(equalize_divide(e, l->weight, l->weight_axis, scales));
    return equalize_divide(e, l->bias, 0, scales);
}

static sb_status equalize_apply(equalizer *e, const sb_link *l,
                                const sb_link_stats *s, const float *scales)
{
    sb_tensor t;

    if (s->left < 1) {
        e->absorbed = true;
        SB_TRY(equalize_absorb(e, l, s->offset));
    }
    SB_TRY(equalize_make(e, l, scales));
    for (size_t i = 0; i < l->n_readers; i++) {
        const sb_link_reader *r = &l->readers[i];

        SB_TRY(equalize_copy(e, r->weight, &t));
        float *w = t.data;
        for (int64_t k = 0; k < sb_tensor_count(&t); k++)
            w[k] *= scales[sb_link_channel(l, r, k)];
        SB_TRY(equalize_exchange(e, r->weight, &t));
    }
    return SB_OK;
}

static sb_status equalize_link(equalizer *e, size_t i, size_t *done)
{
    const sb_link *l = &e->links[i];
    const double worth = l->maker != SB_NONE ? EQUALIZE_WORTH : EQUALIZE_MUCH;
    double gain = 1;
    float *scales = sb_alloc(e->qm->ctx, (size_t)l->channels, sizeof *scales);
    sb_status status = scales ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK)
        status = sb_link_scales(e->qm, l, &e->stats[i], scales, &gain);
    gain *= e->stats[i].left * e->stats[i].left;
    if (status == SB_OK && gain < worth) {
        status = equalize_apply(e, l, &e->stats[i], scales);
        e->gained += 1 - gain;
        e->much = e->much || gain < EQUALIZE_MUCH;
        ++*done;
    }
    sb_free(e->qm->ctx, scales);
    return status;
}

/* ---- observing anew ----------------------------------------------------- */

static bool equalize_observes(const equalizer *e, uint32_t point)
{
    return e->changed[e->qm->place.points[point].value] &&
           sb_calibrate_observes(e->qm, point);
}

static sb_status equalize_put_observed(void *user, sb_graph *g, uint32_t point,
                                       sb_node_id beside, sb_value_id x,
                                       sb_value_id *y)
{
    const equalizer *e = user;

    *y = x;
    return equalize_observes(e, point)
               ? sb_calibrate_put(e->qm, g, point, beside, x, y)
               : SB_OK;
}

static sb_status equalize_observe_part(equalizer *e, sb_replay_part part)
{
    sb_quant_model *qm = e->qm;
    const sb_exec_options opt = {.observe = sb_calibrate_observe,
                                 .tap = sb_calibrate_tap,
                                 .observe_user = qm};
    sb_graph *g = NULL;

    SB_TRY(sb_quant_derive(qm, equalize_put_observed, e, &g));
    SB_TRY(equalize_replay(qm, g, &opt, part));
    for (uint32_t i = 0; i < qm->place.n_points; i++)
        if (equalize_observes(e, i)) {
            SB_TRY(sb_observers_prepare(qm->ctx, &qm->state.points[i].observer,
                                        1));
            SB_TRY(sb_calibrate_calc(qm, i));
        }
    return SB_OK;
}

/* The scales of all that has changed.  What observers of activations saw
 * belongs to the snapshot now. */
static sb_status equalize_observe(equalizer *e)
{
    sb_quant_model *qm = e->qm;

    for (uint32_t i = 0; i < qm->place.n_points; i++)
        if (equalize_observes(e, i))
            qm->state.points[i] =
                (sb_point_state){.given = qm->state.points[i].observer,
                                 .channels = qm->state.points[i].channels,
                                 .whole = qm->state.points[i].whole};
    /* Ranges of few samples would cut off what those that judge have, and what
     * equal channels gain would not show. */
    SB_TRY(
        equalize_observe_part(e, qm->asked ? SB_REPLAY_SEEN : SB_REPLAY_WIDE));
    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        const sb_quantizer *q = sb_point_quantizer(&qm->place, i);

        if (e->changed[q->value] && sb_quantizer_is_constant(qm, q))
            SB_TRY(sb_calibrate_weight(
                qm, q, &sb_graph_value(qm->graph, q->value)->constant));
    }
    return SB_OK;
}

sb_status sb_equalize_settle(sb_quant_model *qm)
{
    equalizer e = {.qm = qm};
    sb_status status = SB_OK;

    if (!sb_replay_judges_apart(qm))
        return SB_OK;
    e.changed = sb_alloc(qm->ctx, qm->graph->n_values + 1, sizeof *e.changed);
    if (!e.changed)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < qm->place.n_points; i++)
        if (qm->state.points[i].given)
            e.changed[qm->place.points[i].value] = true;
    status = equalize_observe_part(&e, qm->asked ? SB_REPLAY_JUDGED
                                                 : SB_REPLAY_REST);
    sb_free(qm->ctx, e.changed);
    return status;
}

/* ---- all ---------------------------------------------------------------- */

static void equalize_free(equalizer *e)
{
    sb_ctx *ctx = e->qm->ctx;

    for (size_t i = 0; i < e->n; i++) {
        sb_free(ctx, e->stats[i].lo);
        sb_free(ctx, e->stats[i].hi);
        sb_free(ctx, e->stats[i].square);
        sb_free(ctx, e->stats[i].mean);
        sb_free(ctx, e->stats[i].offset);
    }
    sb_free(ctx, e->links);
    sb_free(ctx, e->stats);
    sb_free(ctx, e->link_of);
    sb_free(ctx, e->changed);
}

/* Is it worth the runs that it takes to observe and to judge it? */
static bool equalize_promises(const equalizer *e)
{
    const sb_placement *p = &e->qm->place;
    double weights = 0;

    for (size_t i = 0; i < p->n_quantizers; i++)
        weights += sb_quantizer_is_constant(e->qm, &p->quantizers[i]);
    return e->qm->asked || e->much || e->gained > EQUALIZE_ALL_WORTH * weights;
}

sb_status sb_equalize(sb_quant_model *qm, size_t *layers)
{
    equalizer e = {.qm = qm};
    sb_status status = equalize_find(&e);

    *layers = 0;
    if (status == SB_OK && e.n > 0)
        status = equalize_look(&e);
    for (size_t i = 0; i < e.n && status == SB_OK; i++)
        status = equalize_link(&e, i, layers);
    if (!equalize_promises(&e))
        *layers = 0;
    if (status == SB_OK && *layers > 0) {
        qm->equalized = true;
        qm->state.absorbed = e.absorbed;
        status = equalize_observe(&e);
    }
    equalize_free(&e);
    return status;
}
