/* The graph of a block that is learned, and its learner.
 *
 * The block is cut out of the quantized network.  Its weights are parameters,
 * whose elements the caller sets before each step from what it learns
 * (soft_rounding.h); activations go through FakeQuant with scales that are
 * parameters, and behind it through MixTrain, which lets some pass as they are.
 * Each output is multiplied by what makes its mean square 1, over all channels,
 * so that losses of all networks are of one size. */
#include <math.h>
#include <string.h>

#include "graph/op.h"
#include "ops/grad/grad.h"
#include "quant/correct/correct.h"
#include "quant/model/instrument.h"
#include "quant/model/overlay.h"
#include "quant/model/simulate.h"
#include "quant/reconstruct/blocks.h"
#include "quant/train/qat.h"
#include "tensor/mapped.h"

/* ---- what is learned ---------------------------------------------------- */

/* Is all that a point serves in the block? */
static bool block_holds(const sb_layer_block *b, uint32_t point)
{
    const sb_placement *p = &b->walk->qm->place;
    const sb_quantizer *q;

    for (uint32_t i = p->points[point].head; i != SB_NONE; i = q->next) {
        q = &p->quantizers[i];
        for (size_t u = 0; u < q->n_uses; u++)
            if (!sb_stage_has(&b->stage, q->uses[u].node))
                return false;
        if (q->at_output)
            return false;
    }
    return true;
}

/* Scales of ranges that are known are right as they are. */
static bool block_learns_scale(const sb_layer_block *b, uint32_t point)
{
    const sb_quant_model *qm = b->walk->qm;
    const sb_quant_point *p = &qm->place.points[point];
    const sb_quantizer *q = sb_point_quantizer(&qm->place, p->same_as);

    if (!(b->walk->how.scale_rate > 0) ||
        qm->place.points[p->same_as].natural || p->known ||
        q->def->map_activation || q->block > 0)
        return false;
    for (uint32_t i = qm->place.points[p->same_as].followers; i != SB_NONE;
         i = qm->place.points[i].next_follower)
        if (!block_holds(b, i))
            return false;
    return block_holds(b, p->same_as);
}

static const sb_block_scale *block_find_scale(const sb_layer_block *b,
                                              uint32_t root)
{
    for (size_t i = 0; i < b->n_scales; i++)
        if (b->scales[i].point == root)
            return &b->scales[i];
    return NULL;
}

static sb_status block_moments(sb_ctx *ctx, int64_t n, sb_block_moments *out)
{
    out->m = sb_alloc(ctx, 2 * (size_t)n + 1, sizeof *out->m);
    out->u = out->m ? out->m + n : NULL;
    return out->m ? SB_OK : SB_NO_MEMORY;
}

/* A weight, and its bias if that is as in the float network. */
static sb_status block_add_weight(sb_layer_block *b, const sb_quantizer *q)
{
    const sb_quant_model *qm = b->walk->qm;
    const sb_tensor *t = &sb_graph_value(qm->graph, q->value)->constant;
    sb_block_weight *w = &b->weights[b->n_weights++];
    sb_bias_layer layer;
    double sum = 0;

    *w = (sb_block_weight){.q = q, .bias = SB_NONE};
    if (q->n_uses != 1 || !(b->walk->how.scale_rate > 0) ||
        !sb_bias_layer_find(qm->graph, q->uses[0].node, &layer))
        return SB_OK;
    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        sum += pow((double)sb_tensor_float(t, i), 2);
    w->unit = sqrt(sum / (double)layer.channels);
    w->bias = layer.bias;
    return block_moments(qm->ctx, layer.channels, &w->moments);
}

static sb_status block_add_scale(sb_layer_block *b, sb_graph *g, uint32_t root,
                                 sb_value_id *out)
{
    const sb_quant_model *qm = b->walk->qm;
    const sb_quantizer *q = sb_point_quantizer(&qm->place, root);
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    sb_block_scale *s = &b->scales[b->n_scales];

    *s = (sb_block_scale){.point = root, .most = sb_qat_most(qm, root)};
    b->n_scales++;
    SB_TRY(block_moments(qm->ctx, p->n, &s->moments));
    SB_TRY(sb_graph_add_constant(g, "learned_scale", SB_DTYPE_F32,
                                 q->axis >= 0 ? 1 : 0, &p->n, p->scale,
                                 &s->value));
    *out = s->value;
    return SB_OK;
}

/* ---- nodes -------------------------------------------------------------- */

static sb_status block_input(sb_graph *g, const char *name, sb_dtype dtype,
                             sb_value_id *out)
{
    SB_TRY(sb_graph_add_value_as(g, name, out));
    sb_graph_value(g, *out)->type = (sb_type){.dtype = dtype};
    return sb_graph_add_input(g, *out);
}

/* Behind the quantizer: some elements as they were before it. */
static sb_status block_put_mix(sb_layer_block *b, sb_graph *g, sb_grad *to,
                               uint32_t point, sb_value_id x, sb_value_id *y)
{
    static const char *const names[] = {"learn_counter", "learn_share"};
    sb_value_id in[2];
    const sb_attr attr = SB_EMIT_INT("stream", (int64_t)point + 1);

    if (!(b->walk->how.drop > 0))
        return SB_OK;
    for (int i = 0; i < 2; i++) {
        in[i] = sb_graph_find_value(g, names[i]);
        if (in[i] == SB_NONE)
            SB_TRY(block_input(g, names[i], i ? SB_DTYPE_F32 : SB_DTYPE_I64,
                               &in[i]));
    }
    b->drops = true;
    *y = sb_emit(to, &(sb_emit_spec){.op = "MixTrain",
                                     .in = {in[0], in[1], x, *y},
                                     .n_in = 4,
                                     .attrs = &attr,
                                     .n_attrs = 1});
    return to->status;
}

static sb_status block_put_scale(sb_layer_block *b, sb_graph *g, uint32_t point,
                                 sb_node_id beside, sb_value_id x,
                                 sb_value_id *y)
{
    const sb_quant_model *qm = b->walk->qm;
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    uint32_t root = qm->place.points[point].same_as;
    const sb_block_scale *known = block_find_scale(b, root);
    sb_grad to = {.graph = g};
    sb_quant_nodes n = {.to = &to,
                        .like = beside,
                        .spec = &q->spec,
                        .x = x,
                        .qmin = p->qmin,
                        .qmax = p->qmax,
                        .axis = q->axis < 0 ? 0 : q->axis};
    size_t first = g->n_nodes;

    if (known)
        n.scale = known->value;
    else
        SB_TRY(block_add_scale(b, g, root, &n.scale));
    SB_TRY(sb_graph_add_constant(g, "zero_point", SB_DTYPE_F32,
                                 q->axis >= 0 ? 1 : 0, &p->n, p->zero_point,
                                 &n.zero_point));
    *y = sb_quant_add_fake(&n, x, n.scale, n.zero_point, SB_FAKE_PLAIN);
    SB_TRY(to.status);
    SB_TRY(block_put_mix(b, g, &to, point, x, y));
    sb_qat_claim_nodes(g, first, beside);
    return SB_OK;
}

static sb_status block_put(void *user, sb_graph *g, uint32_t point,
                           sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    sb_layer_block *b = user;
    const sb_quant_model *qm = b->walk->qm;
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);

    *y = x;
    if (!sb_stage_reads(&b->stage, &qm->place, point))
        return SB_OK;
    if (sb_quantizer_is_constant(qm, q)) {
        if (!b->walk->learn[x])
            return sb_quant_put_simulated(qm, g, point, beside, x, y);
        return block_add_weight(b, q);
    }
    if (block_learns_scale(b, point))
        return block_put_scale(b, g, point, beside, x, y);
    size_t first = g->n_nodes;
    sb_grad to = {.graph = g};
    SB_TRY(sb_quant_put_simulated(qm, g, point, beside, x, y));
    SB_TRY(block_put_mix(b, g, &to, point, x, y));
    sb_qat_claim_nodes(g, first, beside);
    return SB_OK;
}

/* ---- the loss ----------------------------------------------------------- */

/* The mean square of a value in float. */
static sb_status block_power(const sb_layer_block *b, sb_value_id v,
                             double *out)
{
    const sb_staged *s = &b->walk->plain;
    double sum = 0, n = 0;

    for (size_t i = 0; i < s->n_batches; i++) {
        sb_tensor t;

        SB_TRY(sb_spill_get(s->spill, &s->kept[v][i], &t));
        int64_t count = sb_tensor_count(&t);
        const float *x = t.data;
        for (int64_t k = 0; k < count; k++)
            sum += (double)x[k] * (double)x[k];
        n += (double)count;
        sb_tensor_drop(&t);
    }
    *out = n > 0 ? sum / n : 0;
    return SB_OK;
}

/* How many of a sample's elements are channels. */
static double block_channels(const sb_tensor *t)
{
    return t->rank < 2 ? 1 : (double)t->dims[t->rank > 3 ? 1 : t->rank - 1];
}

static sb_status block_scale_outputs(sb_layer_block *b)
{
    sb_graph *g = b->stage.graph;
    sb_ctx *ctx = g->ctx;
    size_t n = b->stage.n_out;
    sb_grad to = {.graph = g};

    b->loss = sb_alloc(ctx, n + 1, sizeof *b->loss);
    b->gain = sb_alloc(ctx, n + 1, sizeof *b->gain);
    b->name = sb_alloc(ctx, n + 1, sizeof *b->name);
    if (!b->loss || !b->gain || !b->name)
        return SB_NO_MEMORY;
    sb_graph_clear_outputs(g);
    for (size_t i = 0; i < n; i++) {
        sb_value_id v = b->stage.out[i];
        const sb_tensor *t = &b->walk->plain.kept[v][0].t;
        double power = 0;

        if (t->dtype != SB_DTYPE_F32)
            continue; /* masks, indices */
        SB_TRY(block_power(b, v, &power));
        if (!isfinite(power))
            continue; /* masks of -inf */
        size_t k = b->n_loss++;
        b->loss[k] = v;
        b->gain[k] = sqrt(block_channels(t) / fmax(power, 1e-12));
        v = sb_emit2(&to, "Mul", v, sb_grad_scalar(&to, v, b->gain[k]));
        SB_TRY(to.status);
        SB_TRY(sb_graph_add_output(g, v));
        b->name[k] = sb_graph_value(g, v)->name;
    }
    return b->n_loss > 0
               ? SB_OK
               : sb_fail(ctx, SB_UNSUPPORTED,
                         "none of the results of their block is of float32 "
                         "and finite");
}

/* ---- the learner -------------------------------------------------------- */

static sb_status block_roles(const sb_layer_block *b, sb_map *roles)
{
    const sb_graph *g = b->stage.graph;

    for (sb_value_id v = 0; v < g->n_values; v++)
        if (sb_graph_value(g, v)->is_constant)
            SB_TRY(sb_map_put(roles, sb_graph_value(g, v)->name, 0));
    for (size_t i = 0; i < b->n_weights; i++) {
        const sb_block_weight *w = &b->weights[i];

        SB_TRY(sb_map_put(roles, sb_graph_value(g, w->q->value)->name,
                          SB_PARAMETER_ROLE_WEIGHT + 1));
        if (w->bias != SB_NONE)
            SB_TRY(sb_map_put(roles, sb_graph_value(g, w->bias)->name,
                              SB_PARAMETER_ROLE_WEIGHT + 1));
    }
    for (size_t i = 0; i < b->n_scales; i++)
        SB_TRY(sb_map_put(roles, sb_graph_value(g, b->scales[i].value)->name,
                          SB_PARAMETER_ROLE_SCALE + 1));
    return SB_OK;
}

static sb_status block_learner(sb_layer_block *b)
{
    sb_ctx *ctx = b->walk->qm->ctx;
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    sb_map roles;

    opt.loss = SB_LEARN_LOSS_MSE;
    opt.loss_output = b->name[0];
    opt.features = b->name + 1;
    opt.n_features = b->n_loss - 1;
    opt.feature_weight = (double)opt.n_features;
    opt.momentum = 0;
    opt.norm = SB_LEARN_NORM_FROZEN;
    opt.dropout = 0;
    opt.exact = b->walk->qm->exact;
    sb_map_init(&roles, ctx);
    sb_status status = block_roles(b, &roles);
    if (status == SB_OK)
        status = sb_learner_create_graph(ctx, b->stage.graph, &opt, &roles,
                                         &b->learner);
    sb_map_free(&roles);
    return status;
}

static sb_parameter *block_parameter(const sb_layer_block *b, sb_value_id v)
{
    sb_parameter *p = sb_store_get(&b->learner->store,
                                   sb_graph_value(b->stage.graph, v)->name);

    return p && p->info.gradient ? p : NULL;
}

/* Parameters that the outputs depend on; others are left as they are. */
static void block_find_parameters(sb_layer_block *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->n_weights; i++) {
        sb_block_weight w = b->weights[i];

        w.p = block_parameter(b, w.q->value);
        w.bias_p = w.bias != SB_NONE ? block_parameter(b, w.bias) : NULL;
        if (w.p) { /* in front, those that are not behind them */
            b->weights[i] = b->weights[n];
            b->weights[n++] = w;
        }
    }
    b->n_learned = n;
    for (size_t i = 0; i < b->n_scales; i++)
        b->scales[i].p = block_parameter(b, b->scales[i].value);
}

/* ---- shapes ------------------------------------------------------------- */

/* Is a value of those that shapes are computed from the same for all units? */
static sb_status block_is_fixed(const sb_layer_block *b, sb_value_id v,
                                bool *fixed)
{
    const sb_staged *s = &b->walk->plain;
    const sb_tensor *first = &s->kept[v][0].t;
    sb_tensor t[2] = {0};
    sb_status status = SB_OK;

    *fixed = first->rank < 2 &&
             (first->dtype == SB_DTYPE_I64 || first->dtype == SB_DTYPE_I32);
    if (*fixed)
        status = sb_spill_get(s->spill, &s->kept[v][0], &t[0]);
    for (size_t i = 1; i < s->n_batches && *fixed && status == SB_OK; i++) {
        size_t bytes = sb_tensor_bytes(&t[0]);

        status = sb_spill_get(s->spill, &s->kept[v][i], &t[1]);
        *fixed = status == SB_OK && sb_tensor_bytes(&t[1]) == bytes &&
                 memcmp(t[1].data, t[0].data, bytes) == 0;
        sb_tensor_drop(&t[1]);
    }
    sb_tensor_drop(&t[0]);
    return status;
}

/* Puts what is fixed behind the inputs of the block. */
static sb_status block_find_fixed(sb_layer_block *b)
{
    sb_stage *k = &b->stage;

    for (size_t i = k->n_in; i-- > 0;) {
        sb_value_id v = k->in[i];
        bool fixed = false;

        SB_TRY(block_is_fixed(b, v, &fixed));
        if (!fixed)
            continue;
        memmove(k->in + i, k->in + i + 1, (k->n_in - i - 1) * sizeof *k->in);
        k->in[--k->n_in] = v;
        b->n_fixed++;
    }
    return SB_OK;
}

/* As constants, so that gradients have shapes before the block runs: a shape
 * that another block computed (that of the tokens of a language model) would
 * come as data. */
static sb_status block_set_fixed(const sb_layer_block *b)
{
    const sb_staged *s = &b->walk->plain;

    for (size_t i = b->stage.n_in; i < b->stage.n_in + b->n_fixed; i++) {
        sb_value_id v = b->stage.in[i];
        sb_tensor t = {0};

        SB_TRY(sb_spill_get(s->spill, &s->kept[v][0], &t));
        sb_status status = sb_graph_set_constant(b->stage.graph, v, &t);
        sb_tensor_drop(&t);
        SB_TRY(status);
    }
    return SB_OK;
}

sb_status sb_block_open(sb_layer_block *b)
{
    sb_quant_model *qm = b->walk->qm;
    size_t points = qm->place.n_points + 1;

    b->weights = sb_alloc(qm->ctx, points, sizeof *b->weights);
    b->scales = sb_alloc(qm->ctx, points, sizeof *b->scales);
    if (!b->weights || !b->scales)
        return SB_NO_MEMORY;
    SB_TRY(sb_stage_open(&b->stage, 0));
    SB_TRY(sb_stage_list(&b->stage));
    if (b->stage.n_out == 0)
        return SB_OK;
    SB_TRY(sb_quant_derive(qm, block_put, b, &b->stage.graph));
    if (b->n_weights == 0)
        return SB_OK;
    SB_TRY(sb_overlay_apply(qm, b->stage.graph));
    SB_TRY(block_find_fixed(b));
    SB_TRY(sb_stage_cut(&b->stage, NULL));
    SB_TRY(block_set_fixed(b));
    SB_TRY(sb_graph_infer(b->stage.graph));
    SB_TRY(block_scale_outputs(b));
    SB_TRY(block_learner(b));
    block_find_parameters(b);
    return SB_OK;
}

void sb_block_close(sb_layer_block *b)
{
    sb_ctx *ctx = b->walk->qm->ctx;

    sb_learner_free(b->learner);
    for (size_t i = 0; i < b->n_weights; i++) {
        sb_soft_free(&b->weights[i].soft);
        sb_free(ctx, b->weights[i].moments.m);
    }
    for (size_t i = 0; i < b->n_scales; i++)
        sb_free(ctx, b->scales[i].moments.m);
    sb_free(ctx, b->weights);
    sb_free(ctx, b->scales);
    sb_free(ctx, b->loss);
    sb_free(ctx, b->gain);
    sb_free(ctx, b->name);
    sb_stage_clear(&b->stage);
}
