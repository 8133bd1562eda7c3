/* Calibration: run the network, observe, compute scales.
 *
 * One pass over the data updates the observers of all activations at once, as
 * the values are made; memory is that of one run and of the observers, however
 * many batches come.  Weights need no data: with asym_weights they are
 * quantized before the pass, else observed when scales are computed.  With
 * asym_activations a value is observed behind quantizers that have to be ready
 * first, so the network runs block by block (calibrate_blocks.c). */
#include "quant/calibrate/calibrate.h"

#include <math.h>
#include <string.h>

#include "base/options.h"
#include "base/ranks/comm.h"
#include "base/simd.h"
#include "base/threads.h"
#include "graph/op.h"
#include "quant/correct/correct.h"
#include "quant/model/instrument.h"
#include "quant/model/overlay.h"
#include "quant/model/simulate.h"
#include "quant/model/weight.h"
#include "quant/reconstruct/reconstruct.h"
#include "tensor/mapped.h"

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

static bool point_is_constant(const sb_quant_model *qm, uint32_t point)
{
    return sb_graph_value(qm->graph, qm->place.points[point].value)
        ->is_constant;
}

sb_status sb_calibrate_observer(sb_quant_model *qm, uint32_t point,
                                int64_t channels)
{
    const sb_quant_spec *spec = &sb_point_quantizer(&qm->place, point)->spec;
    sb_point_state *state = &qm->state.points[point];

    if (state->observer)
        return SB_OK;
    SB_TRY(sb_observer_create(qm->ctx, spec, channels, &state->observer));
    sb_observer_share(state->observer, &qm->state.slots);
    return SB_OK;
}

static sb_status calibrate_observe(sb_quant_model *qm, uint32_t point,
                                   const sb_obs_view *view)
{
    sb_value_id value = qm->place.points[point].value;
    sb_point_state *state = &qm->state.points[point];
    const char *what = sb_graph_value(qm->graph, value)->name;

    SB_TRY(sb_calibrate_observer(qm, point, view->channels));
    state->channels = view->channels;
    SB_TRY(sb_observer_update(state->observer, view, what, state->samples));
    state->samples += view->samples;
    return SB_OK;
}

/* ---- activations -------------------------------------------------------- */

sb_obs_view sb_calibrate_view(const sb_tensor *x, int axis)
{
    return view_of(x, axis, true);
}

sb_status sb_calibrate_observe(void *user, int64_t id, const sb_tensor *x)
{
    sb_quant_model *qm = user;
    uint32_t point = (uint32_t)id;
    int axis = sb_point_quantizer(&qm->place, point)->axis;
    sb_obs_view view = view_of(x, axis, true);

    return sb_tensor_count(x) == 0 ? SB_OK
                                   : calibrate_observe(qm, point, &view);
}

sb_status sb_calibrate_tap(void *user, int64_t id, const sb_tensor *x,
                           sb_tap *tap)
{
    sb_quant_model *qm = user;
    uint32_t point = (uint32_t)id;
    int axis = sb_point_quantizer(&qm->place, point)->axis;
    sb_obs_view view = view_of(x, axis, true);

    if (sb_tensor_count(x) == 0)
        return SB_OK;
    SB_TRY(sb_calibrate_observer(qm, point, view.channels));
    return sb_observer_tap(qm->state.points[point].observer, &view, tap);
}

bool sb_calibrate_observes(const sb_quant_model *qm, uint32_t point)
{
    const sb_quant_point *s = &qm->place.points[point];
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);

    return !sb_quantizer_is_constant(qm, q) && !sb_quantizer_is_off(qm, q) &&
           !q->spec.dynamic && !s->natural && !s->known && s->same_as == point;
}

sb_status sb_calibrate_put(const sb_quant_model *qm, sb_graph *g,
                           uint32_t point, sb_node_id beside, sb_value_id x,
                           sb_value_id *watched)
{
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);

    if (q->def->map_activation)
        SB_TRY(q->def->map_activation(&q->spec, g, beside, x, &x));
    return sb_quant_add_observe(g, beside, point, q->name, x, watched);
}

static sb_status put_observe(void *user, sb_graph *g, uint32_t point,
                             sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    const sb_quant_model *qm = user;
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    sb_value_id watched = SB_NONE;

    *y = x;
    if (qm->state.calibration.asym_weights && sb_quantizer_is_constant(qm, q) &&
        sb_quantizer_qparams(qm, q)->n > 0)
        return sb_quant_put_fake(qm, g, point, beside, x, y);
    if (!sb_calibrate_observes(qm, point))
        return SB_OK;
    SB_TRY(sb_calibrate_put(qm, g, point, beside, x, &watched));
    /* A domain of its own is only watched: the network runs on x. */
    if (q->def->map_activation)
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

typedef struct group_job {
    const float *from;
    float *to;
    int64_t n, other; /* along the axis, and of the other one */
    int64_t block, n_block;
    int axis;
} group_job;

/* Columns of a block of rows, as rows of their own. */
static void gather_columns(const group_job *j, int64_t b)
{
    enum { TILE = 16 }; /* columns whose results stay in the cache */
    int64_t first = b * j->block, left = j->n - first;
    int64_t rows = left < j->block ? left : j->block;
    float *to = j->to + b * j->other * j->block;

    for (int64_t o = 0; o < j->other; o += TILE) {
        int64_t end = o + TILE < j->other ? o + TILE : j->other;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t c = o; c < end; c++)
                to[c * j->block + i] = j->from[(first + i) * j->other + c];
    }
}

static void gather_part(void *arg, size_t begin, size_t end)
{
    const group_job *j = arg;

    for (size_t i = begin; i < end; i++)
        if (j->axis == 0)
            gather_columns(j, (int64_t)i);
        else
            memcpy(j->to + (int64_t)i * j->n_block * j->block,
                   j->from + (int64_t)i * j->n, (size_t)j->n * sizeof *j->to);
}

/* Groups of `block` indices along the axis, one after another, the last of
 * each row filled up with zeros, which no range leaves out: [groups, block] in
 * the order of their scales.  `to` comes zeroed. */
static void gather_groups(sb_ctx *ctx, const sb_tensor *w, int axis,
                          int64_t block, float *to)
{
    group_job job = {.from = w->data,
                     .to = to,
                     .n = w->dims[axis],
                     .other = w->dims[1 - axis],
                     .block = block,
                     .n_block = (w->dims[axis] + block - 1) / block,
                     .axis = axis};
    size_t items = (size_t)(axis == 0 ? job.n_block : job.other);
    size_t work = (size_t)(axis == 0 ? job.other * block : job.n);

    sb_parallel_for(ctx, items, 65536 / (work + 1) + 1, gather_part, &job);
}

static sb_status observe_groups(sb_quant_model *qm, uint32_t point,
                                const sb_tensor *w)
{
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    int64_t n_block = (w->dims[q->axis] + q->block - 1) / q->block;
    int64_t n = n_block * w->dims[1 - q->axis];
    const int64_t dims[] = {n, q->block};
    sb_tensor groups = sb_tensor_make(SB_DTYPE_F32, 2, dims);
    sb_obs_view view = {w->data, 1, 1, n, q->block};

    if (q->axis == 1 && w->dims[1] % q->block == 0) /* as they lie */
        return calibrate_observe(qm, point, &view);
    SB_TRY(sb_tensor_alloc_weight(qm->ctx, &groups));
    gather_groups(qm->ctx, w, q->axis, q->block, groups.data);
    view.data = groups.data;
    sb_status status = calibrate_observe(qm, point, &view);
    sb_tensor_drop(&groups);
    return status;
}

static sb_status observe_weight(sb_quant_model *qm, uint32_t point,
                                const sb_tensor *own)
{
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    sb_tensor w;

    if (own->dtype == SB_DTYPE_F32 && !q->def->map_weight &&
        (uintptr_t)own->data % sizeof(float) == 0) {
        sb_obs_view as_is = view_of(own, q->axis, false);
        sb_status status = q->block > 0 ? observe_groups(qm, point, own)
                                        : calibrate_observe(qm, point, &as_is);
        sb_tensor_release_pages(own);
        return status;
    }
    /* Memory of its own for each weight would be fresh pages each time. */
    size_t bytes = (size_t)sb_tensor_count(own) * sizeof(float);
    SB_TRY(
        sb_grow(qm->ctx, &qm->state.weight, &qm->state.weight_size, bytes, 1));
    w = sb_tensor_make(SB_DTYPE_F32, own->rank, own->dims);
    w.data = qm->state.weight;
    sb_quantizer_map_weight(q, own, w.data);
    sb_obs_view view = view_of(&w, q->axis, false);
    return q->block > 0 ? observe_groups(qm, point, &w)
                        : calibrate_observe(qm, point, &view);
}

/* ---- scales ------------------------------------------------------------- */

/* Scales for bounds that are narrower than the bit width allows. */
static void calibrate_narrow(sb_quantizer_state *state, const sb_range *ranges)
{
    sb_qparams *p = &state->qparams;

    if (state->qmin == 0 && state->qmax == 0)
        return;
    p->qmin = state->qmin;
    p->qmax = state->qmax;
    for (int64_t i = 0; i < p->n; i++) {
        float most = fmaxf(fmaxf(-ranges[i].lo, ranges[i].hi), 0);
        float half = (float)(state->qmax - state->qmin) / 2;
        p->scale[i] = fmaxf(most / half, 1e-6f);
    }
}

/* To the nearest float16 that is not 0. */
static void calibrate_halve(sb_qparams *p)
{
    const float least = 0x1p-24F, most = 65504;

    for (int64_t i = 0; i < p->n; i++) {
        float s = sb_f16_to_f32(sb_f32_to_f16(p->scale[i]));

        p->scale[i] = s < least ? least : s > most ? most : s;
    }
}

static sb_status calibrate_from_ranges(const sb_quant_model *qm,
                                       const sb_quantizer *q, int64_t n,
                                       const sb_range *ranges)
{
    sb_quantizer_state *state = sb_quantizer_state_of(qm, q);

    sb_qparams_free(qm->ctx, &state->qparams);
    SB_TRY(sb_qparams_init(qm->ctx, &state->qparams, n, q->axis, q->spec.bits,
                           q->spec.symmetric));
    sb_reduce_all(qm, q);
    sb_qparams_set(&state->qparams, ranges);
    calibrate_narrow(state, ranges);
    if (qm->half_scales && !q->blocks && sb_quantizer_is_constant(qm, q))
        calibrate_halve(&state->qparams);
    return sb_reduce_auto(qm, q);
}

/* What the observer says, all that it saw, or what is between. */
static sb_status point_ranges(const sb_quant_model *qm, uint32_t root,
                              sb_range *out)
{
    const sb_point_state *p = &qm->state.points[root];
    const float share = point_is_constant(qm, root) ? 0 : p->whole;
    sb_range *whole = NULL;

    if (share == 0)
        return sb_observer_ranges(p->observer, out);
    SB_TRY(sb_observer_whole_ranges(p->observer, out));
    if (share == 1)
        return SB_OK;
    whole = sb_alloc(qm->ctx, (size_t)p->channels, sizeof *whole);
    if (!whole)
        return SB_NO_MEMORY;
    memcpy(whole, out, (size_t)p->channels * sizeof *whole);
    sb_status status = sb_observer_ranges(p->observer, out);
    for (int64_t c = 0; c < p->channels && status == SB_OK; c++) {
        out[c].lo += share * (whole[c].lo - out[c].lo);
        out[c].hi += share * (whole[c].hi - out[c].hi);
    }
    sb_free(qm->ctx, whole);
    return status;
}

static sb_status set_qparams(sb_quant_model *qm, uint32_t root,
                             const sb_quantizer *q)
{
    const sb_quant_point *point = &qm->place.points[root];
    int64_t n = point->natural ? 1 : qm->state.points[root].channels;
    sb_range *ranges = sb_alloc(qm->ctx, (size_t)n, sizeof *ranges);
    sb_status status = SB_OK;

    if (!ranges)
        return SB_NO_MEMORY;
    if (point->natural)
        ranges[0] = point->range;
    else
        status = point_ranges(qm, root, ranges);
    if (status == SB_OK && !point->natural && n == 1)
        sb_range_clip_to_saturation(qm, point, q->spec.bits, &ranges[0]);
    if (status == SB_OK)
        status = calibrate_from_ranges(qm, q, n, ranges);
    sb_free(qm->ctx, ranges);
    return status;
}

static sb_status calc_quantizer(sb_quant_model *qm, const sb_quantizer *q)
{
    uint32_t root = qm->place.points[q->point].same_as;
    const sb_quant_point *point = &qm->place.points[root];
    const sb_point_state *state = &qm->state.points[root];

    if (sb_quantizer_is_off(qm, q) || q->spec.dynamic)
        return SB_OK;
    SB_TRY(sb_ctx_poll(qm->ctx));
    if (point->known && !state->observer) {
        SB_TRY(sb_quant_use_imported(qm, point->known, q));
        if (!sb_reduce_known(qm, q))
            return SB_OK;
    }
    if (!state->observer && point_is_constant(qm, root))
        SB_TRY(observe_weight(
            qm, root, &sb_graph_value(qm->graph, point->value)->constant));
    if (!state->observer && !point->natural &&
        sb_imported_calibrated(&qm->known)) {
        sb_warn(qm->ctx,
                "quantizer '%s' is left out: the file has no scale there, and "
                "no data was given",
                q->name);
        sb_quantizer_state_of(qm, q)->left_out = true;
        return SB_OK;
    }
    if (!state->observer && !point->natural)
        return sb_fail(qm->ctx, SB_BAD_DATA,
                       "quantizer '%s' has seen no data: feed calibration "
                       "samples first",
                       q->name);
    SB_TRY(set_qparams(qm, root, q));
    return q->blocks
               ? sb_block_scales(qm, q, sb_overlay_constant(qm, q->value), NULL)
               : SB_OK;
}

static sb_status calc_point(sb_quant_model *qm, uint32_t point)
{
    const sb_quantizer *q;

    for (uint32_t i = qm->place.points[point].head; i != SB_NONE; i = q->next) {
        q = &qm->place.quantizers[i];
        SB_TRY(calc_quantizer(qm, q));
    }
    return SB_OK;
}

sb_status sb_calibrate_calc(sb_quant_model *qm, uint32_t root)
{
    const sb_quant_point *points = qm->place.points;

    if (points[root].same_as == root)
        SB_TRY(calc_point(qm, root));
    for (uint32_t i = points[root].followers; i != SB_NONE;
         i = points[i].next_follower)
        SB_TRY(calc_point(qm, i));
    return SB_OK;
}

sb_status sb_calibrate_weight(sb_quant_model *qm, const sb_quantizer *q,
                              const sb_tensor *w)
{
    const sb_quant_point *point = &qm->place.points[q->point];
    sb_point_state *state = &qm->state.points[q->point];

    if (point->same_as != q->point || point->followers != SB_NONE ||
        !state->observer)
        return SB_OK;
    sb_observer_free(state->observer);
    *state = (sb_point_state){.channels = state->channels};
    SB_TRY(observe_weight(qm, q->point, w));
    SB_TRY(sb_observers_prepare(qm->ctx, &state->observer, 1));
    return calc_point(qm, q->point);
}

static sb_status calc_weights(sb_quant_model *qm)
{
    uint64_t before = sb_subnormals_off();
    sb_status status = SB_OK;

    for (size_t i = 0; i < qm->place.n_quantizers && status == SB_OK; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];

        if (point_is_constant(qm, qm->place.points[q->point].same_as))
            status = calc_quantizer(qm, q);
    }
    sb_subnormals_restore(before);
    return status;
}

/* ---- life --------------------------------------------------------------- */

static void calibrate_forget(sb_quant_model *qm)
{
    sb_quant_run_drop(qm);
    sb_quant_state_reset(qm);
}

sb_status sb_quant_model_prepare_calibration(sb_quant_model *qm,
                                             const sb_calibration_options *opt)
{
    const sb_calibration_options none = SB_CALIBRATION_OPTIONS_INIT;
    sb_calibration_options given;

    SB_TRY(sb_options_read(qm->ctx, "sb_calibration_options", opt, &none,
                           sizeof given, &given));
    if (given.journal && !sb_learns_weights(qm)) /* language models */
        SB_TRY(sb_round_check_memory(qm));
    calibrate_forget(qm);
    qm->state.calibration = given;
    qm->state.shared = false;
    qm->state.loaded = false;
    /* Until clipping is seen to help, which not every calibration can. */
    for (uint32_t i = 0; i < qm->place.n_points; i++)
        qm->state.points[i].whole = qm->choose_ranges ? 1 : 0;
    qm->state.anew = qm->equalized;
    qm->state.calibrating = true;
    if (qm->state.calibration.asym_weights)
        SB_TRY(calc_weights(qm));
    if (qm->state.calibration.asym_activations)
        SB_TRY(sb_blocks_create(qm, &qm->state.blocks));
    if (sb_refine_wanted(qm) || qm->train)
        SB_TRY(sb_batch_store_create(qm->ctx, qm->graph->n_inputs,
                                     given.memory_limit, &qm->state.batches));
    if (qm->state.batches && !qm->train && !qm->state.blocks &&
        !given.asym_weights && sb_refine_measures(qm))
        SB_TRY(sb_batch_store_create(qm->ctx, qm->graph->n_outputs,
                                     given.memory_limit, &qm->state.outputs));
    /* A limit that was named is one for all. */
    if (qm->state.batches && given.memory_limit)
        sb_batch_store_share(qm->state.batches, &qm->state.kept);
    if (qm->state.outputs && given.memory_limit)
        sb_batch_store_share(qm->state.outputs, &qm->state.kept);
    return SB_OK;
}

static sb_status prepare_ranges(sb_quant_model *qm)
{
    size_t n = qm->place.n_points;
    sb_observer **list = sb_alloc_raw(qm->ctx, n, sizeof(*list));

    if (!list)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        list[i] = qm->state.points[i].observer;
    sb_status status = sb_observers_prepare(qm->ctx, list, n);
    sb_free(qm->ctx, list);
    return status;
}

static sb_status calc_all(sb_quant_model *qm)
{
    if (qm->state.blocks)
        return sb_blocks_run(qm->state.blocks);
    SB_TRY(prepare_ranges(qm));
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        SB_TRY(sb_progress(qm->ctx, "scales", i, qm->place.n_quantizers));
        SB_TRY(calc_quantizer(qm, &qm->place.quantizers[i]));
    }
    return SB_OK;
}

static sb_status calibrate_refine(sb_quant_model *qm)
{
    /* All ranks have the same batches, and each does all of it. */
    struct sb_comm_state *ranks = sb_comm_hide(qm->ctx);
    sb_status status = qm->train ? sb_refine_start(qm) : sb_refine(qm);

    sb_comm_show(qm->ctx, ranks);
    if (qm->train) /* batches serve to start */
        return status;
    sb_batch_store_free(qm->state.batches);
    qm->state.batches = NULL;
    sb_batch_store_free(qm->state.outputs);
    qm->state.outputs = NULL;
    return status;
}

sb_status sb_quant_model_calc_qparams(sb_quant_model *qm)
{
    sb_quant_run_drop(qm);
    uint64_t before = sb_subnormals_off();
    sb_status status = calc_all(qm);
    sb_subnormals_restore(before);
    sb_free(qm->ctx, qm->state.weight);
    qm->state.weight = NULL;
    qm->state.weight_size = 0;
    if (status != SB_OK) {
        if (qm->state.blocks) /* half observed */
            calibrate_forget(qm);
        return status;
    }
    sb_blocks_free(qm->state.blocks);
    qm->state.blocks = NULL;
    sb_calibrate_fit_biases(qm);
    qm->state.calibrating = false;
    return calibrate_refine(qm);
}
