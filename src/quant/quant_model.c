/* Making and freeing quantized models, and the list of quantizers. */
#include "quant/quant_model.h"

#include <assert.h>
#include <string.h>

#include "graph/op.h"
#include "passes/fold_columns.h"
#include "passes/pass.h"
#include "passes/relax_batch.h"
#include "passes/tile_resize.h"

/* ---- quantizers --------------------------------------------------------- */

bool sb_quantizer_is_constant(const sb_quant_model *qm, const sb_quantizer *q)
{
    return sb_graph_value(qm->graph, q->value)->is_constant;
}

bool sb_quantizer_enabled(const sb_quant_model *qm, const sb_quantizer *q)
{
    return !q->fake_fused &&
           (sb_quantizer_is_constant(qm, q) ? qm->weights_on : qm->features_on);
}

/* Would both give the same scale to the same data? */
static bool same_settings(const sb_quantizer *a, const sb_quantizer *b)
{
    const sb_quant_spec *s = &a->spec, *t = &b->spec;

    return a->value == b->value && a->axis == b->axis && a->block == b->block &&
           a->def == b->def && s->kind == t->kind &&
           s->granularity == t->granularity && s->symmetric == t->symmetric &&
           s->bits == t->bits && strcmp(s->observer, t->observer) == 0 &&
           s->percentile_alpha == t->percentile_alpha &&
           s->aciq_laplace == t->aciq_laplace && s->ema_ratio == t->ema_ratio;
}

/* The site of a quantizer: that of one like it, or a new one. */
static sb_status find_site(sb_quant_model *qm, const sb_quantizer *q,
                           bool alone, uint32_t *out)
{
    for (size_t i = 0; i < qm->n_sites && !alone; i++) {
        if (same_settings(q, &qm->quantizers[qm->sites[i].first])) {
            *out = (uint32_t)i;
            return SB_OK;
        }
    }
    SB_TRY(sb_grow(qm->ctx, &qm->sites, &qm->cap_sites, qm->n_sites + 1,
                   sizeof *qm->sites));
    qm->sites[qm->n_sites] = (sb_quant_site){
        .value = q->value,
        .first = (uint32_t)qm->n_quantizers,
        .same_as = (uint32_t)qm->n_sites,
    };
    *out = (uint32_t)qm->n_sites++;
    return SB_OK;
}

/* Groups cut the axis of a matrix that is summed over. */
static sb_status group_axis(const sb_quant_model *qm, const sb_node *node,
                            const sb_tensor *w, int64_t size, int *axis,
                            int64_t *block)
{
    const sb_op_def *op = sb_op_of(node);

    if (w->rank != 2)
        return sb_fail(qm->ctx, SB_BAD_CONFIG,
                       "node '%s' (%s): groups of columns are for weights of "
                       "rank 2, and this one has rank %d; use per-channel",
                       sb_node_label(qm->graph, node), node->op, w->rank);
    *axis = op && op->quant == SB_ROLE_TABLE ? 1 : 1 - *axis;
    *block = size > 0 && size < w->dims[*axis] ? size : w->dims[*axis];
    return SB_OK;
}

sb_status sb_quantizer_axis(const sb_quant_model *qm,
                            const sb_quant_spec *settings, sb_use use,
                            int *axis, int64_t *block)
{
    const sb_node *node = sb_graph_node(qm->graph, use.node);
    const sb_op_def *op = sb_op_of(node);
    const sb_value *v = sb_graph_value(qm->graph, node->inputs[use.input]);
    int rank = v->type.shape.rank;

    *axis = -1;
    *block = 0;
    if (settings->granularity == SB_QUANT_PER_TENSOR || rank == 0)
        return SB_OK;
    if (settings->kind == SB_QUANT_FEATURE) {
        *axis = settings->channel_axis;
        /* What is flat has its channels last. */
        if (rank > 0 && *axis >= rank)
            *axis = rank - 1;
        return SB_OK;
    }
    if (rank == 1) /* a vector that is summed over */
        return SB_OK;
    *axis = op && op->weight_axis ? op->weight_axis(node) : 0;
    if (*axis < 0)
        *axis += rank;
    if (settings->granularity != SB_QUANT_PER_GROUP)
        return SB_OK;
    return group_axis(qm, node, &v->constant, settings->group_size, axis,
                      block);
}

sb_status sb_quant_model_add(sb_quant_model *qm, const sb_quantizer_spec *spec,
                             sb_quantizer **out)
{
    const sb_quant_spec *settings = spec->settings;
    bool weight = settings->kind == SB_QUANT_WEIGHT;
    sb_quantizer q = {
        .name = sb_arena_str(&qm->arena, spec->name),
        .spec = *settings,
        .def = sb_quantizer_find(settings->quantizer),
        .value = spec->value,
        .uses = sb_arena_copy(&qm->arena, spec->uses,
                              spec->n_uses * sizeof *spec->uses),
        .n_uses = spec->n_uses,
        .axis = spec->axis,
        .block = spec->block,
    };

    const sb_value *v = sb_graph_value(qm->graph, spec->value);
    if (v->type.dtype != SB_DTYPE_F32)
        return sb_fail(qm->ctx, SB_UNSUPPORTED,
                       "'%s' is of type %s: only float32 networks can be "
                       "quantized; export the model in float32",
                       v->name, sb_dtype_name(v->type.dtype));
    if (v->is_constant && sb_tensor_count(&v->constant) == 0)
        return sb_fail(qm->ctx, SB_UNSUPPORTED,
                       "the weight '%s' has no elements, so it has no scale",
                       v->name);
    if (!q.name || (!q.uses && q.n_uses > 0))
        return SB_NO_MEMORY;
    if (!q.def || !(weight ? q.def->for_weights : q.def->for_features))
        return sb_fail(qm->ctx, SB_UNSUPPORTED,
                       "%s: QUANTIZER.TYPE '%s' cannot be used for %s by this "
                       "version",
                       sb_quant_config_file(qm->config), settings->quantizer,
                       weight ? "weights" : "activations");
    SB_TRY(sb_grow(qm->ctx, &qm->quantizers, &qm->cap_quantizers,
                   qm->n_quantizers + 1, sizeof *qm->quantizers));
    SB_TRY(find_site(qm, &q, spec->alone, &q.site));
    qm->quantizers[qm->n_quantizers] = q;
    *out = &qm->quantizers[qm->n_quantizers++];
    return SB_OK;
}

/* ---- models ------------------------------------------------------------- */

static sb_status run_passes(sb_graph *g, const char *passes)
{
    sb_pass_result *results = NULL;
    size_t n = 0;

    SB_TRY(sb_passes_run(g, passes, NULL, &results, &n));
    sb_free(g->ctx, results);
    return SB_OK;
}

/* Does the target compute the node on integers, if it does so around it? */
static bool has_kernel(const sb_quant_model *qm, const sb_node *node)
{
    const sb_target_op *row = node ? sb_target_op_find(qm->target, node) : NULL;

    return row && row->place != SB_PLACE_FLOAT &&
           !sb_quant_config_skips(qm->config, node);
}

static bool between_kernels(const sb_quant_model *qm, const sb_graph *g,
                            const sb_node *node)
{
    const sb_value *y = sb_graph_value(g, node->outputs[0]);
    bool all = has_kernel(qm, sb_graph_producer(g, node->inputs[0]));

    for (uint32_t i = 0; i < y->n_uses; i++)
        all = all && has_kernel(qm, sb_graph_node(g, y->uses[i].node));
    return all && y->n_uses > 0 && !y->is_output;
}

/* What the target's integer kernels are slow with. */
static sb_status help_kernels(const sb_quant_model *qm, sb_graph *g)
{
    sb_quant_spec act, weight;

    for (size_t i = 0, n = g->n_nodes; i < n; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        bool done = false;

        if (node->dead || sb_quant_config_skips(qm->config, node))
            continue;
        sb_quant_config_spec(qm->config, SB_QUANT_FEATURE, node, &act);
        sb_quant_config_spec(qm->config, SB_QUANT_WEIGHT, node, &weight);
        if (act.disabled || weight.disabled)
            continue;
        if (sb_node_is(node, "Conv"))
            SB_TRY(sb_fold_columns(g, (sb_node_id)i, &done));
        else if (sb_node_is(node, "Resize") && between_kernels(qm, g, node))
            SB_TRY(sb_tile_resize(g, (sb_node_id)i, &done));
    }
    return SB_OK;
}

/* The network in a form with which runtimes are fast; not where a file came
 * with scales, which belong to its values as they are. */
static sb_status help_runtime(const sb_quant_model *qm, sb_graph *g)
{
    if (!qm->target->ops || qm->known.n > 0)
        return SB_OK;
    SB_TRY(run_passes(g, "focus_to_conv,chain_pools"));
    return qm->target->channels_last ? help_kernels(qm, g) : SB_OK;
}

/* A runtime sees Swish as it stands in the file, as a product with a sigmoid,
 * so quantizers for it are placed on that form. */
static sb_status simplify(sb_quant_model *qm, sb_graph *g)
{
    sb_quant_schedule schedule = sb_quant_config_schedule(qm->config);
    bool fuse_bn = schedule.fuse_bn && !schedule.bn_tuning;

    if (fuse_bn)
        SB_TRY(sb_quant_fuse_bn(qm, g));
    else
        SB_TRY(run_passes(g, "simplify"));
    if (qm->target->ops && sb_graph_wants_expand(g))
        SB_TRY(run_passes(g, "expand"));
    if (sb_quant_config_mode(qm->config) != SB_QUANT_STATIC)
        return sb_quant_straighten(qm, g);
    SB_TRY(sb_quant_merge_biases(qm, g));
    return help_runtime(qm, g);
}

/* The number of samples that the file fixes; 0 if it leaves it open. */
static int64_t batch_of(const sb_graph *g)
{
    for (size_t i = 0; i < g->n_inputs; i++) {
        const sb_value *v = sb_graph_value(g, g->inputs[i]);
        if (!v->is_constant && v->type.shape.rank > 0 &&
            sb_dim_known(v->type.shape.dim[0]))
            return v->type.shape.dim[0];
    }
    return 0;
}

/* Is the operator one of a quantized network that cannot be read back? */
static bool is_integer_op(const sb_node *node)
{
    static const char *const ops[] = {
        "DynamicQuantize", "QLinear", "ConvInteger", "MatMulInteger",
        "MatMulNBits",     "QGemm",   "QAttention",
    };

    for (size_t i = 0; i < SB_COUNT(ops); i++)
        if (strncmp(node->op, ops[i], strlen(ops[i])) == 0)
            return true;
    return false;
}

/* What kept the passes from reading it, where that is known. */
static const char *why_not(const sb_node *node)
{
    enum { G_IDX = 4 };
    bool nbits = strcmp(node->op, "MatMulNBits") == 0;

    return nbits && node->n_in > G_IDX && node->inputs[G_IDX] != SB_NONE
               ? " whose g_idx does not fill its blocks"
               : "";
}

static sb_status check_float(const sb_quant_model *qm, const sb_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = &g->nodes[i];

        if (!node->dead && is_integer_op(node) &&
            !sb_quant_config_skips(qm->config, node))
            return sb_fail(qm->ctx, SB_BAD_MODEL,
                           "the model is quantized already (node '%s' is a "
                           "%s%s): start from the float model it was made of, "
                           "or name its modules in SKIP_TRACE_MODULES",
                           sb_node_label(g, node), node->op, why_not(node));
    }
    return SB_OK;
}

/* The first dimension of each input, as the file has it. */
static sb_status keep_batches(sb_quant_model *qm, const sb_graph *g)
{
    qm->batches = sb_arena_alloc(&qm->arena, g->n_inputs, sizeof *qm->batches);
    if (!qm->batches)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_inputs; i++) {
        const sb_shape *s = &sb_graph_value(g, g->inputs[i])->type.shape;
        qm->batches[i] = s->rank > 0 ? s->dim[0] : SB_DIM_UNKNOWN;
    }
    return SB_OK;
}

/* Simplified, for any batch if it can be, and copied once more: nothing dead
 * is left then, so that later copies have the same numbers. */
static sb_status take_graph(sb_quant_model *qm, const sb_graph *graph)
{
    sb_graph *work = NULL, *relaxed = NULL;
    bool calibrates = sb_quant_config_mode(qm->config) == SB_QUANT_STATIC;

    SB_TRY(sb_graph_clone(graph, &work));
    qm->known.arena = &qm->arena;
    qm->known.apart = !qm->target->ops; /* it joins nothing by itself */
    sb_status status =
        run_passes(work, "integer_to_qdq,dynamic_to_qdq,nbits_to_qdq");
    if (status == SB_OK)
        status = sb_quant_import(work, &qm->known);
    if (status == SB_OK)
        status = check_float(qm, work);
    if (status == SB_OK)
        status = simplify(qm, work);
    if (status == SB_OK)
        status = sb_graph_relax_batch(work, calibrates, &relaxed);
    if (status == SB_OK && relaxed) /* it may have brought equal constants */
        status = run_passes(relaxed, "cse");
    if (status == SB_OK) {
        qm->file_batch = batch_of(work);
        status = keep_batches(qm, work);
    }
    if (status == SB_OK) {
        qm->fixed_batch = relaxed ? 0 : qm->file_batch;
        status = sb_graph_clone_sorted(relaxed ? relaxed : work, &qm->graph);
    }
    sb_graph_free(relaxed);
    sb_graph_free(work);
    return status;
}

/* A site speaks through a quantizer that is on, if there is one. */
static void settle_sites(sb_quant_model *qm)
{
    for (size_t i = qm->n_quantizers; i-- > 0;)
        if (!qm->quantizers[i].fake_fused)
            qm->sites[qm->quantizers[i].site].first = (uint32_t)i;
}

static sb_status place(sb_quant_model *qm)
{
    sb_quant_mode mode = sb_quant_config_mode(qm->config);

    if (mode == SB_QUANT_WEIGHTS_ONLY && qm->follow && !qm->target->ops)
        return sb_quant_place_known(qm);
    if (mode != SB_QUANT_STATIC)
        return sb_quant_place_weights(qm);
    if (qm->target->ops)
        return sb_quant_place_target(qm);
    return sb_known_calibrated(&qm->known) ? sb_quant_place_known(qm)
                                           : sb_quant_place_config(qm);
}

/* Is there a quantizer that can be on? */
static bool has_live(const sb_quant_model *qm)
{
    for (size_t i = 0; i < qm->n_quantizers; i++)
        if (!qm->quantizers[i].fake_fused)
            return true;
    return false;
}

static sb_status build(sb_quant_model *qm, const sb_graph *graph)
{
    SB_TRY(take_graph(qm, graph));
    sb_quant_config_warn_unused(qm->config, graph, qm->graph);
    SB_TRY(sb_quant_known_widths(qm));
    SB_TRY(place(qm));
    sb_quant_apply_known(qm);
    settle_sites(qm);
    if (!has_live(qm))
        return sb_fail(qm->ctx, SB_BAD_MODEL,
                       "nothing to quantize: the model has no operator with a "
                       "quantizer under this configuration");
    return SB_OK;
}

static sb_status make(sb_ctx *ctx, const sb_graph *graph,
                      sb_quant_config *config, const sb_target_def *target,
                      bool follow, sb_quant_model **out)
{
    sb_quant_model *qm = sb_alloc(ctx, 1, sizeof *qm);

    if (!qm) {
        sb_quant_config_free(config);
        return SB_NO_MEMORY;
    }
    qm->ctx = ctx;
    qm->config = config;
    qm->follow = follow;
    qm->target = target ? target
                        : sb_target_find(sb_quant_backend_name(
                              sb_quant_config_backend(config)));
    assert(qm->target);
    sb_arena_init(&qm->arena, ctx);
    sb_status status = build(qm, graph);
    if (status == SB_OK)
        *out = qm;
    else
        sb_quant_model_free(qm);
    return status;
}

sb_status sb_quant_model_build(sb_ctx *ctx, const sb_graph *graph,
                               sb_quant_config *config,
                               const sb_target_def *target,
                               sb_quant_model **out)
{
    return make(ctx, graph, config, target, false, out);
}

sb_status sb_quant_model_again(sb_ctx *ctx, const sb_graph *graph,
                               sb_quant_config *config,
                               const sb_target_def *target,
                               sb_quant_model **out)
{
    return make(ctx, graph, config, target, true, out);
}

void sb_quant_model_free(sb_quant_model *qm)
{
    if (!qm)
        return;
    sb_quant_run_drop(qm);
    sb_blocks_free(qm->blocks);
    for (size_t i = 0; i < qm->n_sites; i++)
        sb_observer_free(qm->sites[i].observer);
    sb_obs_room_free(qm->ctx, &qm->room);
    sb_free(qm->ctx, qm->weight);
    for (size_t i = 0; i < qm->n_quantizers; i++)
        sb_qparams_free(qm->ctx, &qm->quantizers[i].qparams);
    sb_free(qm->ctx, qm->sites);
    sb_free(qm->ctx, qm->quantizers);
    sb_graph_free(qm->graph);
    sb_known_free(qm->ctx, &qm->known);
    sb_quant_config_free(qm->config);
    sb_arena_free(&qm->arena);
    sb_free(qm->ctx, qm);
}
