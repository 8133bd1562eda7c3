/* Calibration: run the network, observe, compute scales.
 *
 * One pass over the data updates the observers of all activations at once, as
 * the values are made; memory is that of one run and of the observers, however
 * many batches come.  Weights need no data: with asym_weights they are
 * quantized before the pass, else observed when scales are computed.  With
 * asym_features a value is observed behind quantizers that have to be ready
 * first, so the network runs block by block (calibrate_blocks.c). */
#include <math.h>

#include "graph/op.h"
#include "quant/export.h"

/* ---- what observers see ------------------------------------------------- */

/* [samples, outer, channels, inner] of a tensor in the order of its memory.
 * A channel axis of -1 makes one channel of all. */
static sb_obs_view view_of(const sb_tensor *x, int axis, bool samples)
{
    sb_tensor lies = sb_tensor_as_lies(x);
    sb_obs_view v = {
        .data = x->data, .samples = 1, .outer = 1, .channels = 1, .inner = 1};

    if (axis < 0 || x->rank == 0) {
        bool many = samples && x->rank > 0;
        v.samples = many ? lies.dims[0] : 1;
        v.inner = sb_dims_product(lies.dims, many ? 1 : 0, x->rank);
        return v;
    }
    int place = sb_tensor_place(x, axis);
    bool many = samples && place > 0;
    v.samples = many ? lies.dims[0] : 1;
    v.outer = sb_dims_product(lies.dims, many ? 1 : 0, place);
    v.channels = lies.dims[place];
    v.inner = sb_dims_product(lies.dims, place + 1, x->rank);
    return v;
}

static bool is_constant(const sb_quant_model *qm, const sb_quant_site *site)
{
    return sb_graph_value(qm->graph, site->value)->is_constant;
}

sb_status sb_calibrate_observer(sb_quant_model *qm, sb_quant_site *site,
                                int64_t channels)
{
    sb_quant_spec spec = qm->quantizers[site->first].spec;

    if (site->observer)
        return SB_OK;
    spec.all_values = qm->calibration.all_values != 0;
    SB_TRY(sb_observer_create(qm->ctx, &spec, channels, &site->observer));
    sb_observer_share(site->observer, &qm->room);
    return SB_OK;
}

static sb_status observe(sb_quant_model *qm, sb_quant_site *site,
                         const sb_obs_view *view)
{
    const sb_quantizer *q = &qm->quantizers[site->first];
    const char *what = sb_graph_value(qm->graph, q->value)->name;

    SB_TRY(sb_calibrate_observer(qm, site, view->channels));
    site->channels = view->channels;
    SB_TRY(sb_observer_update(site->observer, view, what, site->samples));
    site->samples += view->samples;
    return SB_OK;
}

/* ---- features ----------------------------------------------------------- */

sb_status sb_calibrate_observe(void *user, int64_t id, const sb_tensor *x)
{
    sb_quant_model *qm = user;
    sb_quant_site *site = &qm->sites[id];
    sb_obs_view view = view_of(x, qm->quantizers[site->first].axis, true);

    return sb_tensor_count(x) == 0 ? SB_OK : observe(qm, site, &view);
}

sb_status sb_calibrate_tap(void *user, int64_t id, const sb_tensor *x,
                           sb_tap *tap)
{
    sb_quant_model *qm = user;
    sb_quant_site *site = &qm->sites[id];
    sb_obs_view view = view_of(x, qm->quantizers[site->first].axis, true);

    if (sb_tensor_count(x) == 0)
        return SB_OK;
    SB_TRY(sb_calibrate_observer(qm, site, view.channels));
    return sb_observer_tap(site->observer, &view, tap);
}

bool sb_calibrate_observes(const sb_quant_model *qm, uint32_t site)
{
    const sb_quant_site *s = &qm->sites[site];
    const sb_quantizer *q = &qm->quantizers[s->first];

    return !sb_quantizer_is_constant(qm, q) && !q->fake_fused &&
           !q->spec.dynamic && !s->natural && !s->known && s->same_as == site;
}

sb_status sb_calibrate_put(const sb_quant_model *qm, sb_graph *g, uint32_t site,
                           sb_node_id like, sb_value_id x, sb_value_id *watched)
{
    const sb_quantizer *q = &qm->quantizers[qm->sites[site].first];
    const sb_attr id = {.name = "id", .type = SB_ATTR_INT, .i = site};

    if (q->def->map_feature)
        SB_TRY(q->def->map_feature(g, like, x, &x));
    const sb_node_spec spec = {
        .op = "Observe",
        .domain = SB_FUSED_DOMAIN,
        .name = q->name,
        .inputs = &x,
        .n_in = 1,
        .attrs = &id,
        .n_attrs = 1,
    };
    return sb_quant_add_node(g, like, &spec, x, watched);
}

static sb_status put_observe(void *user, sb_graph *g, uint32_t site,
                             sb_node_id like, sb_value_id x, sb_value_id *y)
{
    const sb_quant_model *qm = user;
    const sb_quantizer *q = &qm->quantizers[qm->sites[site].first];
    sb_value_id watched = SB_NONE;

    *y = x;
    if (qm->calibration.asym_weights && sb_quantizer_is_constant(qm, q) &&
        q->qparams.n > 0)
        return sb_quant_put_fake(qm, g, site, like, x, y);
    if (!sb_calibrate_observes(qm, site))
        return SB_OK;
    SB_TRY(sb_calibrate_put(qm, g, site, like, x, &watched));
    /* A domain of its own is only watched: the network runs on x. */
    if (q->def->map_feature)
        return sb_graph_add_output(g, watched);
    *y = watched;
    return SB_OK;
}

sb_status sb_calibrate_graph(sb_quant_model *qm, sb_exec_options *opt,
                             sb_graph **out)
{
    opt->observe = sb_calibrate_observe;
    opt->tap = sb_calibrate_tap;
    opt->observe_user = qm;
    return sb_quant_derive(qm, put_observe, qm, out);
}

/* ---- weights ------------------------------------------------------------ */

/* Groups of `block` indices along the axis, one after another, the last of
 * each row filled up with zeros, which no range leaves out: [groups, block] in
 * the order of their scales. */
static void gather_groups(const sb_tensor *w, int axis, int64_t block,
                          float *to)
{
    const float *from = w->data;
    int64_t n = w->dims[axis], other = w->dims[1 - axis];
    int64_t n_block = (n + block - 1) / block;

    for (int64_t o = 0; o < other; o++)
        for (int64_t b = 0; b < n_block; b++) {
            int64_t group = axis == 1 ? o * n_block + b : b * other + o;
            for (int64_t i = 0; i < block; i++) {
                int64_t k = b * block + i;
                int64_t at = axis == 1 ? o * n + k : k * other + o;
                to[group * block + i] = k < n ? from[at] : 0;
            }
        }
}

static sb_status observe_groups(sb_quant_model *qm, sb_quant_site *site,
                                const sb_tensor *w)
{
    const sb_quantizer *q = &qm->quantizers[site->first];
    int64_t n_block = (w->dims[q->axis] + q->block - 1) / q->block;
    int64_t n = n_block * w->dims[1 - q->axis];
    float *groups =
        sb_alloc(qm->ctx, (size_t)n, (size_t)q->block * sizeof(float));

    if (!groups)
        return SB_NO_MEMORY;
    gather_groups(w, q->axis, q->block, groups);
    sb_obs_view view = {groups, 1, 1, n, q->block};
    sb_status status = observe(qm, site, &view);
    sb_free(qm->ctx, groups);
    return status;
}

static sb_status observe_weight(sb_quant_model *qm, sb_quant_site *site)
{
    const sb_quantizer *q = &qm->quantizers[site->first];
    const sb_tensor *own = &sb_graph_value(qm->graph, q->value)->constant;
    sb_tensor w;

    if (own->dtype == SB_DTYPE_F32 && !q->def->map_weight && q->block == 0 &&
        (uintptr_t)own->data % sizeof(float) == 0) {
        sb_obs_view as_is = view_of(own, q->axis, false);
        return observe(qm, site, &as_is);
    }
    /* Memory of its own for each weight would be fresh pages each time. */
    size_t bytes = (size_t)sb_tensor_count(own) * sizeof(float);
    SB_TRY(sb_grow(qm->ctx, &qm->weight, &qm->weight_size, bytes, 1));
    w = sb_tensor_make(SB_DTYPE_F32, own->rank, own->dims);
    w.data = qm->weight;
    sb_quantizer_map_weight(q, own, w.data);
    sb_obs_view view = view_of(&w, q->axis, false);
    return q->block > 0 ? observe_groups(qm, site, &w)
                        : observe(qm, site, &view);
}

/* ---- scales ------------------------------------------------------------- */

/* Scales for bounds that are narrower than the width allows. */
static void narrow(sb_quantizer *q, const sb_range *ranges)
{
    sb_qparams *p = &q->qparams;

    if (q->qmin == 0 && q->qmax == 0)
        return;
    p->qmin = q->qmin;
    p->qmax = q->qmax;
    for (int64_t i = 0; i < p->n; i++) {
        float most = fmaxf(fmaxf(-ranges[i].lo, ranges[i].hi), 0);
        p->scale[i] = fmaxf(most / ((float)(q->qmax - q->qmin) / 2), 1e-6f);
    }
}

static sb_status set_qparams(sb_quant_model *qm, const sb_quant_site *site,
                             sb_quantizer *q)
{
    int64_t n = site->natural ? 1 : site->channels;
    sb_range *ranges = sb_alloc(qm->ctx, (size_t)n, sizeof *ranges);
    sb_status status = SB_OK;

    if (!ranges)
        return SB_NO_MEMORY;
    if (site->natural)
        ranges[0] = site->range;
    else
        status = sb_observer_ranges(site->observer, ranges);
    if (status == SB_OK && !site->natural && n == 1)
        sb_quant_cut_tails(qm, site, q->spec.bits, &ranges[0]);
    if (status == SB_OK) {
        sb_qparams_free(qm->ctx, &q->qparams);
        status = sb_qparams_init(qm->ctx, &q->qparams, n, q->axis, q->spec.bits,
                                 q->spec.symmetric);
    }
    if (status == SB_OK) {
        bool again = false;

        sb_reduce_all(qm, q);
        sb_qparams_set(&q->qparams, ranges);
        narrow(q, ranges);
        status = sb_reduce_auto(qm, q, &again);
        if (again)
            narrow(q, ranges);
    }
    sb_free(qm->ctx, ranges);
    return status;
}

static sb_status calc_quantizer(sb_quant_model *qm, sb_quantizer *q)
{
    sb_quant_site *site = &qm->sites[qm->sites[q->site].same_as];

    if (q->fake_fused || q->spec.dynamic)
        return SB_OK;
    SB_TRY(sb_ctx_poll(qm->ctx));
    if (site->known && !site->observer) {
        bool again = false;

        SB_TRY(sb_quant_use_known(qm, site->known, q));
        SB_TRY(sb_reduce_known(qm, q, &again));
        if (!again)
            return SB_OK;
    }
    if (!site->observer && is_constant(qm, site))
        SB_TRY(observe_weight(qm, site));
    if (!site->observer && !site->natural && sb_known_calibrated(&qm->known)) {
        sb_warn(qm->ctx,
                "quantizer '%s' is left out: the file has no scale there, and "
                "no data was given",
                q->name);
        q->fake_fused = q->left_out = true;
        return SB_OK;
    }
    if (!site->observer && !site->natural)
        return sb_fail(qm->ctx, SB_BAD_DATA,
                       "quantizer '%s' has seen no data: feed calibration "
                       "samples first",
                       q->name);
    return set_qparams(qm, site, q);
}

sb_status sb_calibrate_calc(sb_quant_model *qm, uint32_t root)
{
    for (size_t i = 0; i < qm->n_quantizers; i++)
        if (qm->sites[qm->quantizers[i].site].same_as == root)
            SB_TRY(calc_quantizer(qm, &qm->quantizers[i]));
    return SB_OK;
}

static sb_status calc_weights(sb_quant_model *qm)
{
    for (size_t i = 0; i < qm->n_sites; i++)
        if (is_constant(qm, &qm->sites[i]))
            SB_TRY(sb_calibrate_calc(qm, (uint32_t)i));
    return SB_OK;
}

/* ---- life --------------------------------------------------------------- */

static void forget(sb_quant_model *qm)
{
    sb_quant_run_drop(qm);
    sb_blocks_free(qm->blocks);
    qm->blocks = NULL;
    for (size_t i = 0; i < qm->n_sites; i++) {
        sb_observer_free(qm->sites[i].observer);
        qm->sites[i].observer = NULL;
        qm->sites[i].samples = 0;
    }
    for (size_t i = 0; i < qm->n_quantizers; i++) {
        sb_quantizer *q = &qm->quantizers[i];

        sb_qparams_free(qm->ctx, &q->qparams);
        if (q->left_out) /* data may come this time */
            q->fake_fused = q->left_out = false;
    }
}

sb_status sb_quant_model_prepare_calibration(sb_quant_model *qm,
                                             const sb_calibration_options *opt)
{
    sb_calibration_options none = SB_CALIBRATION_OPTIONS_INIT;

    forget(qm);
    qm->calibration = opt ? *opt : none;
    qm->calibrating = true;
    if (qm->calibration.asym_weights)
        SB_TRY(calc_weights(qm));
    if (qm->calibration.asym_features)
        SB_TRY(sb_blocks_create(qm, &qm->blocks));
    return SB_OK;
}

static sb_status prepare_ranges(sb_quant_model *qm)
{
    sb_observer **list = sb_alloc_raw(qm->ctx, qm->n_sites, sizeof(*list));

    if (!list)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < qm->n_sites; i++)
        list[i] = qm->sites[i].observer;
    sb_status status = sb_observers_prepare(qm->ctx, list, qm->n_sites);
    sb_free(qm->ctx, list);
    return status;
}

static sb_status calc_all(sb_quant_model *qm)
{
    if (qm->blocks)
        SB_TRY(sb_blocks_run(qm->blocks));
    else
        SB_TRY(prepare_ranges(qm));
    for (size_t i = 0; !qm->blocks && i < qm->n_quantizers; i++)
        SB_TRY(calc_quantizer(qm, &qm->quantizers[i]));
    return SB_OK;
}

sb_status sb_quant_model_calc_qparams(sb_quant_model *qm)
{
    sb_quant_run_drop(qm);
    sb_status status = calc_all(qm);
    sb_free(qm->ctx, qm->weight);
    qm->weight = NULL;
    qm->weight_size = 0;
    if (status != SB_OK) {
        if (qm->blocks) /* half observed */
            forget(qm);
        return status;
    }
    sb_blocks_free(qm->blocks);
    qm->blocks = NULL;
    if (qm->target->bias == SB_BIAS_INT32)
        sb_quant_fit_biases(qm);
    qm->calibrating = false;
    return SB_OK;
}
