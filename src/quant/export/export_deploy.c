/* The stage "deploy": the network as the kernels of the target want it.
 *
 * What learns from data saw the network as it was; here a copy of it is
 * rewritten, quantizers are placed on the copy, and each takes the scales of
 * the value that its own came from.  A rewritten weight is a gather of the old
 * one with zeros between (deploy.h): channel c has the scale of the channel
 * that its elements were in, and roundings that were learned move in the same
 * way. */
#include "passes/deploy/deploy.h"
#include "passes/pass.h"
#include "quant/calibrate/calibrate.h"
#include "quant/export/export.h"
#include "quant/model/overlay.h"
#include "quant/model/stages.h"
#include "quant/place/place.h"

typedef struct deployer {
    const sb_quant_model *qm;
    const sb_rewrite_def *rewrite; /* the one that runs */
    sb_origins origins;            /* by values of the copy of qm->graph */
    sb_value_id *old_of; /* by value of the new model, that of the copy */
    sb_quant_model *out;
} deployer;

/* ---- what may be rewritten ---------------------------------------------- */

static const sb_origin *deploy_origin(const deployer *d, sb_value_id v)
{
    for (size_t i = 0; i < d->origins.n; i++)
        if (d->origins.v[i].value == v)
            return &d->origins.v[i];
    return NULL;
}

/* Is it a layer whose weight, wherever that came from, stays as it is? */
static bool deploy_is_float(const deployer *d, const sb_node *node)
{
    const sb_placement *p = &d->qm->place;
    sb_value_id v = sb_node_in(node, 1);
    const sb_origin *o;

    while (v != SB_NONE && (o = deploy_origin(d, v)))
        v = o->from;
    if (v == SB_NONE || v >= d->qm->graph->n_values)
        return false;
    uint32_t point = p->of_value[v].first;
    return point != SB_NONE &&
           sb_quantizer_is_off(d->qm, sb_point_quantizer(p, point));
}

static bool deploy_may(void *user, const sb_graph *g, const sb_node *node)
{
    const deployer *d = user;
    sb_quant_config *config = d->qm->config;
    sb_quant_spec act, weight;

    if (sb_quant_config_skips(config, node))
        return false;
    sb_quant_config_spec(config, SB_QUANT_ACTIVATION, node, &act);
    sb_quant_config_spec(config, SB_QUANT_WEIGHT, node, &weight);
    return !act.disabled && !weight.disabled &&
           !(d->rewrite->integers && deploy_is_float(d, node)) &&
           (!d->rewrite->between_kernels ||
            sb_quant_between_kernels(d->qm, g, node));
}

static sb_status deploy_rewrite(deployer *d, sb_graph *g, size_t *changes)
{
    const sb_deploy how = {
        .may = deploy_may, .user = d, .origins = &d->origins};

    for (size_t i = 0; d->qm->target->rewrites[i]; i++) {
        size_t before = *changes;

        d->rewrite = d->qm->target->rewrites[i];
        SB_TRY(d->rewrite->run(g, &how, changes));
        if (*changes > before)
            SB_TRY(sb_graph_infer(g));
    }
    return SB_OK;
}

/* ---- scales ------------------------------------------------------------- */

static bool deploy_same_settings(const sb_quantizer *a, const sb_quantizer *b)
{
    return a->spec.kind == b->spec.kind && a->spec.bits == b->spec.bits &&
           a->spec.symmetric == b->spec.symmetric &&
           (a->axis < 0) == (b->axis < 0);
}

/* What `first` takes from elements that `second` took from others. */
static sb_status deploy_compose(const deployer *d, const sb_quantizer *q,
                                const int32_t *first, const int32_t *second,
                                const int32_t **out)
{
    const sb_value *w = sb_graph_value(d->out->graph, q->value);
    int64_t n = sb_tensor_count(&w->constant);
    int32_t *both = sb_arena_alloc(&d->out->arena, (size_t)n, sizeof *both);

    if (!both)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < n; i++)
        both[i] = first[i] < 0 ? -1 : second[first[i]];
    *out = both;
    return SB_OK;
}

/* The quantizer of the old model that has the scales for `q`, NULL if there is
 * none, and the gather between their constants. */
static sb_status deploy_source(const deployer *d, const sb_quantizer *q,
                               const sb_quantizer **out, const int32_t **gather)
{
    const sb_placement *was = &d->qm->place, *is = &d->out->place;
    uint32_t root = is->points[q->point].same_as;
    sb_value_id v = d->old_of[is->points[root].value];

    *gather = NULL;
    *out = NULL;
    for (size_t i = 0; i <= d->origins.n; i++) {
        uint32_t point =
            v < d->qm->graph->n_values ? was->of_value[v].first : SB_NONE;
        if (point != SB_NONE &&
            deploy_same_settings(q, sb_point_quantizer(was, point))) {
            *out = sb_point_quantizer(was, point);
            return SB_OK;
        }
        const sb_origin *o = deploy_origin(d, v);
        if (!o)
            return SB_OK;
        if (*gather && o->gather)
            SB_TRY(deploy_compose(d, q, *gather, o->gather, gather));
        else if (o->gather)
            *gather = o->gather;
        v = o->from;
    }
    return SB_OK;
}

/* The channel of `from` that the elements of channel c came from. */
static int64_t deploy_channel(const sb_tensor *to, const sb_tensor *from,
                              int axis, const int32_t *gather, int64_t c)
{
    int64_t inner = sb_dims_product(to->dims, axis + 1, to->rank);
    int64_t was_inner = sb_dims_product(from->dims, axis + 1, from->rank);

    for (int64_t i = 0; i < sb_tensor_count(to); i++)
        if (i / inner % to->dims[axis] == c && gather[i] >= 0)
            return gather[i] / was_inner % from->dims[axis];
    return 0; /* all zeros: any scale will do */
}

static sb_status deploy_carry(const deployer *d, const sb_quantizer *q,
                              const sb_quantizer *from, const int32_t *gather)
{
    const sb_qparams *old = sb_quantizer_qparams(d->qm, from);
    sb_quantizer_state *state = sb_quantizer_state_of(d->out, q);
    const sb_tensor *w = &sb_graph_value(d->out->graph, q->value)->constant;
    const sb_tensor *was = &sb_graph_value(d->qm->graph, from->value)->constant;
    bool many = q->axis >= 0 && gather;
    int64_t n = many ? w->dims[q->axis] : old->n;
    sb_qparams *p = &state->qparams;

    state->left_out = sb_quantizer_state_of(d->qm, from)->left_out;
    if (old->n == 0)
        return SB_OK;
    SB_TRY(
        sb_qparams_init(d->out->ctx, p, n, q->axis, old->bits, old->symmetric));
    p->qmin = old->qmin;
    p->qmax = old->qmax;
    /* Training may have made it symmetric, and left a weight in the domain of
     * its quantizer. */
    d->out->place.quantizers[q - d->out->place.quantizers].spec.symmetric =
        old->symmetric;
    if (q->def->map_weight && d->qm->state.overlay[from->value].buf)
        sb_overlay_set(d->out, q->value, w);
    for (int64_t c = 0; c < n; c++) {
        int64_t m = many ? deploy_channel(w, was, q->axis, gather, c) : c;
        p->scale[c] = old->scale[old->n == 1 ? 0 : m];
        p->zero_point[c] = old->zero_point[old->n == 1 ? 0 : m];
    }
    return SB_OK;
}

/* *done is false if a quantizer of the rewritten network has no source: then
 * the network stays as it was. */
static sb_status deploy_carry_all(const deployer *d, bool *done)
{
    const sb_placement *p = &d->out->place;

    *done = true;
    for (size_t i = 0; i < p->n_quantizers && *done; i++) {
        const sb_quantizer *q = &p->quantizers[i];
        const int32_t *gather = NULL;

        if (q->fake_fused)
            continue;
        const sb_quantizer *from = NULL;
        SB_TRY(deploy_source(d, q, &from, &gather));
        *done = from != NULL;
        if (from)
            SB_TRY(deploy_carry(d, q, from, gather));
        /* Other neighbors are added now. */
        if (from && gather)
            SB_TRY(sb_reduce_auto(d->out, q));
    }
    return SB_OK;
}

/* ---- the model ---------------------------------------------------------- */

/* Sorted as all graphs of models are, and which value is which. */
static sb_status deploy_sort(deployer *d, const sb_graph *g)
{
    sb_value_id *new_of = NULL;

    SB_TRY(sb_graph_clone_sorted_ids(g, &d->out->graph, &new_of));
    d->old_of =
        sb_alloc(g->ctx, d->out->graph->n_values + 1, sizeof *d->old_of);
    for (sb_value_id v = 0; d->old_of && v < g->n_values; v++)
        if (new_of[v] != SB_NONE)
            d->old_of[new_of[v]] = v;
    sb_free(g->ctx, new_of);
    return d->old_of ? SB_OK : SB_NO_MEMORY;
}

static sb_status deploy_build(deployer *d, sb_graph *g, bool *done)
{
    const sb_quant_model *qm = d->qm;
    size_t changes = 0;

    *done = false;
    SB_TRY(deploy_rewrite(d, g, &changes));
    if (changes == 0)
        return SB_OK;
    if (qm->fixed_batch == 0) /* as in the stage "batch" */
        SB_TRY(sb_passes_run(g, "cse", NULL, NULL, NULL));
    d->out = sb_alloc(qm->ctx, 1, sizeof *d->out);
    if (!d->out)
        return SB_NO_MEMORY;
    d->out->ctx = qm->ctx;
    sb_arena_init(&d->out->arena, qm->ctx);
    d->out->config = qm->config;
    d->out->target = qm->target;
    d->out->batches = qm->batches;
    d->out->file_batch = qm->file_batch;
    d->out->fixed_batch = qm->fixed_batch;
    d->out->dump_after = qm->dump_after;
    d->out->reduce_range = qm->reduce_range;
    d->out->train = qm->train;
    /* Integers of a file stay, as those that a configuration asks for do. */
    d->out->asked = qm->asked || qm->known.n > 0;
    SB_TRY(deploy_sort(d, g));
    SB_TRY(sb_quant_place(d->out));
    SB_TRY(sb_quant_state_init(d->out));
    return deploy_carry_all(d, done);
}

void sb_export_deployed_free(sb_quant_model *deployed)
{
    if (deployed)
        deployed->config = NULL; /* borrowed */
    sb_quant_model_free(deployed);
}

sb_status sb_export_deploy(const sb_quant_model *qm, sb_quant_model **out)
{
    deployer d = {.qm = qm};
    sb_graph *g = NULL;
    bool done = false;

    *out = NULL;
    /* Scales of a quantized file belong to its values as they are. */
    if (!qm->target->rewrites || qm->known.n > 0 ||
        sb_quant_config_mode(qm->config) != SB_QUANT_STATIC)
        return SB_OK;
    SB_TRY(sb_graph_clone(qm->graph, &g));
    sb_status status = sb_overlay_apply(qm, g);
    if (status == SB_OK)
        status = deploy_build(&d, g, &done);
    sb_free(qm->ctx, d.origins.v);
    sb_free(qm->ctx, d.old_of);
    sb_graph_free(g);
    if (status == SB_OK && done)
        status = sb_quant_stage_dump(d.out, "deploy");
    if (status == SB_OK && done)
        *out = d.out;
    else
        sb_export_deployed_free(d.out);
    return status;
}
