/* The graph that is trained: the float graph with quantizers as nodes. */
#include "quant/train/qat.h"

#include <math.h>

#include "graph/op.h"
#include "ops/op_registry.h"
#include "quant/model/instrument.h"
#include "quant/model/overlay.h"

/* The Relu or Clip that makes the values of a point, and that the runtime
 * leaves to their rounding; NULL if there is none.  A scale that several values
 * share is that of all of them. */
static const sb_node *qat_fold(const sb_quant_model *qm, uint32_t point)
{
    const sb_quant_point *p = &qm->place.points[point];
    const sb_node *node = sb_graph_producer(qm->graph, p->value);
    const sb_target_op *row = node ? sb_target_op_find(qm->target, node) : NULL;

    return row && row->place == SB_PLACE_FOLD && p->same_as == point &&
                   p->followers == SB_NONE
               ? node
               : NULL;
}

float sb_qat_most(const sb_quant_model *qm, uint32_t point)
{
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    const sb_node *node = qat_fold(qm, point);
    double lo, hi, most = (double)INFINITY;

    if (!node || p->n != 1 || !sb_node_range(qm->graph, node, &lo, &hi))
        return 0;
    double zero = (double)p->zero_point[0];
    if (isfinite(hi) && (double)p->qmax > zero)
        most = hi / ((double)p->qmax - zero);
    if (isfinite(lo) && zero > (double)p->qmin)
        most = fmin(most, -lo / (zero - (double)p->qmin));
    return isfinite(most) && most > 0 ? (float)most : 0;
}

const sb_quant_training *sb_qat_training(const sb_quant_model *qm,
                                         uint32_t point)
{
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    uint32_t root = qm->place.points[point].same_as;
    const sb_quantizer *of = sb_point_quantizer(&qm->place, root);
    const sb_quant_training *t = of->def->training[of->spec.kind];

    if (sb_quantizer_is_off(qm, q))
        return NULL;
    if (t && t->folded && qat_fold(qm, root))
        t = t->folded;
    /* The range of a Softmax is known. */
    return qm->place.points[root].natural && t && t->learned[0]
               ? &sb_quant_training_fixed
               : t;
}

/* ---- what is known before ----------------------------------------------- */

/* Moments of the elements of a constant that share scale `i`. */
static sb_qat_moments qat_constant_moments(const sb_tensor *w, int axis,
                                           int64_t i, double *deviation)
{
    int64_t n = sb_tensor_count(w), inner = 1, channels = 1, count = 0;
    sb_qat_moments m = {.lowest = (double)INFINITY};
    double square = 0;

    if (axis >= 0) {
        channels = w->dims[axis];
        inner = sb_dims_product(w->dims, axis + 1, w->rank);
    }
    for (int64_t at = axis < 0 ? 0 : i * inner; at < n;
         at += axis < 0 ? n : channels * inner)
        for (int64_t k = 0; k < (axis < 0 ? n : inner); k++) {
            double v = sb_tensor_get_f64(w, at + k);
            m.mean += v;
            m.mean_abs += fabs(v);
            m.lowest = fmin(m.lowest, v);
            count++;
        }
    m.mean /= (double)count;
    m.mean_abs /= (double)count;
    for (int64_t at = axis < 0 ? 0 : i * inner; at < n;
         at += axis < 0 ? n : channels * inner)
        for (int64_t k = 0; k < (axis < 0 ? n : inner); k++) {
            double d = sb_tensor_get_f64(w, at + k) - m.mean;
            square += d * d;
        }
    *deviation = sqrt(square / (double)(count > 1 ? count - 1 : 1));
    return m;
}

/* What is known of scale `i` of a point, and of its values. */
static sb_quant_seen qat_seen(const sb_qat *qat, uint32_t point, int64_t i)
{
    const sb_quant_model *qm = qat->qm;
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    const sb_qat_point *own = &qat->points[point];
    sb_quant_seen seen = {.spec = &q->spec,
                          .qmin = p->qmin,
                          .qmax = p->qmax,
                          .most = sb_qat_most(qm, point),
                          .scale = p->scale[i],
                          .zero_point = p->zero_point[i]};
    sb_qat_moments m = {0};
    float f = sb_qat_factor(qat, q, i);

    if (sb_quantizer_is_constant(qm, q) && q->block == 0) {
        m = qat_constant_moments(&sb_graph_value(qm->graph, q->value)->constant,
                                 p->n > 1 ? q->axis : -1, i, &seen.deviation);
    } else if (own->seen) {
        m = own->seen[i];
        seen.deviation = sqrt(fmax(m.mean_square - m.mean * m.mean, 0));
    }
    seen.mean = m.mean * (double)f;
    seen.mean_abs = m.mean_abs * (double)f;
    seen.deviation *= (double)f;
    seen.scale *= f;
    return seen;
}

/* ---- symmetric instead of affine ---------------------------------------- */

static void qat_make_symmetric(sb_quant_model *qm, uint32_t point)
{
    sb_quantizer *q;

    for (uint32_t i = qm->place.points[point].head; i != SB_NONE; i = q->next) {
        q = &qm->place.quantizers[i];
        sb_qparams *p = &qm->state.quantizers[i].qparams;

        q->spec.symmetric = p->symmetric = true;
        p->qmin = sb_qmin(p->bits, true);
        p->qmax = sb_qmax(p->bits, true);
        for (int64_t k = 0; k < p->n; k++)
            p->zero_point[k] = 0;
    }
}

/* Was anything below zero seen of the values of the point? */
static bool qat_goes_below_zero(const sb_qat *qat, uint32_t point)
{
    const sb_qat_point *own = &qat->points[point];
    const sb_quantizer *q = sb_point_quantizer(&qat->qm->place, point);
    const sb_tensor *w = &sb_graph_value(qat->qm->graph, q->value)->constant;
    double unused;

    if (sb_quantizer_is_constant(qat->qm, q))
        return qat_constant_moments(w, -1, 0, &unused).lowest < 0;
    for (int64_t i = 0; own->seen && i < own->n_seen; i++)
        if (own->seen[i].lowest < 0)
            return true;
    return false;
}

static void qat_fall_back(sb_qat *qat)
{
    sb_quant_model *qm = qat->qm;

    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        const sb_quant_training *t = sb_qat_training(qm, i);

        if (!t || !t->no_zero_point || qm->place.points[i].same_as != i ||
            sb_point_quantizer(&qm->place, i)->spec.symmetric ||
            !qat_goes_below_zero(qat, i))
            continue;
        qat_make_symmetric(qm, i);
        for (uint32_t k = qm->place.points[i].followers; k != SB_NONE;
             k = qm->place.points[k].next_follower)
            qat_make_symmetric(qm, k);
    }
}

/* ---- nodes -------------------------------------------------------------- */

/* A constant called QUANTIZER.NAME, with a number for each scale; `role` as
 * sb_qat.roles has it.  Those that are `scaled` follow their weights. */
static sb_status qat_constant(sb_qat *qat, sb_graph *g, const sb_quantizer *q,
                              const char *name, const float *numbers,
                              bool scaled, uint32_t role, sb_value_id *out)
{
    const sb_qparams *p = sb_quantizer_qparams(qat->qm, q);
    const sb_tensor *x = &sb_graph_value(qat->qm->graph, q->value)->constant;
    const char *full = sb_arena_printf(&qat->arena, "%s.%s", q->name, name);
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, q->axis >= 0 ? 1 : 0, &p->n);

    if (!full)
        return SB_NO_MEMORY;
    if (q->block > 0) { /* blocked: the rank of the weight */
        t = sb_tensor_make(SB_DTYPE_F32, x->rank, x->dims);
        t.dims[q->axis] = (t.dims[q->axis] + q->block - 1) / q->block;
    }
    SB_TRY(sb_graph_add_value_as(g, full, out));
    SB_TRY(sb_tensor_alloc_raw(g->ctx, &t));
    for (int64_t i = 0; i < p->n; i++)
        ((float *)t.data)[i] =
            numbers[i] * (scaled ? sb_qat_factor(qat, q, i) : 1);
    sb_status status = sb_graph_set_constant(g, *out, &t);
    sb_tensor_drop(&t);
    SB_TRY(status);
    full = sb_arena_str(&qat->arena, sb_graph_value(g, *out)->name);
    return full ? sb_map_put(&qat->roles, full, role) : SB_NO_MEMORY;
}

/* First values of what a point learns, [learned, scale]. */
static sb_status qat_start(sb_qat *qat, sb_graph *g, uint32_t root)
{
    const sb_quantizer *q = sb_point_quantizer(&qat->qm->place, root);
    const sb_quant_training *t = sb_qat_training(qat->qm, root);
    int64_t n = sb_quantizer_qparams(qat->qm, q)->n;
    float *all =
        sb_alloc(qat->qm->ctx, (size_t)n + 1, SB_LEARNED_MOST * sizeof *all);
    sb_status status = all ? SB_OK : SB_NO_MEMORY;

    for (int64_t i = 0; all && i < n; i++) {
        sb_quant_seen seen = qat_seen(qat, root, i);
        float one[SB_LEARNED_MOST] = {0};

        t->start(&seen, one);
        for (int k = 0; k < SB_LEARNED_MOST; k++)
            all[k * n + i] = one[k];
    }
    for (int k = 0; k < SB_LEARNED_MOST && t->learned[k]; k++)
        if (status == SB_OK)
            status = qat_constant(qat, g, q, t->learned[k], all + k * n, false,
                                  SB_PARAMETER_ROLE_SCALE + 1,
                                  &qat->points[root].learned[k]);
    sb_free(qat->qm->ctx, all);
    return status;
}

void sb_qat_claim_nodes(sb_graph *g, size_t first, sb_node_id beside)
{
    for (size_t i = first; i < g->n_nodes; i++) {
        sb_node *node = sb_graph_node(g, (sb_node_id)i);
        node->module = sb_graph_node(g, beside)->module;
        node->position = sb_graph_node(g, beside)->position;
    }
}

/* The result has the name of the quantizer. */
static sb_status qat_settle_nodes(sb_graph *g, size_t first, sb_node_id beside,
                                  const char *name, sb_value_id y)
{
    sb_qat_claim_nodes(g, first, beside);
    return sb_graph_find_value(g, name) == SB_NONE
               ? sb_graph_rename_value(g, y, name)
               : SB_OK;
}

static sb_status qat_put(void *user, sb_graph *g, uint32_t point,
                         sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    sb_qat *qat = user;
    const sb_quant_model *qm = qat->qm;
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    const sb_quant_training *t = sb_qat_training(qm, point);
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    uint32_t root = qm->place.points[point].same_as;
    sb_grad to = {.graph = g};
    sb_quant_nodes n = {.to = &to,
                        .like = beside,
                        .spec = &q->spec,
                        .x = x,
                        .qmin = p->qmin,
                        .qmax = p->qmax,
                        .most = sb_qat_most(qm, root),
                        .axis = q->axis < 0 ? 0 : q->axis,
                        .block = q->block};
    size_t first = g->n_nodes;

    if (t->learned[0] && qat->points[root].learned[0] == SB_NONE)
        SB_TRY(qat_start(qat, g, root));
    for (int k = 0; k < SB_LEARNED_MOST; k++)
        n.learned[k] = qat->points[root].learned[k];
    SB_TRY(qat_constant(qat, g, q, "calibrated_scale", p->scale, true, 0,
                        &n.scale));
    SB_TRY(qat_constant(qat, g, q, "calibrated_zero_point", p->zero_point,
                        false, 0, &n.zero_point));
    qat->points[point].scale = n.scale;
    qat->points[point].zero_point = n.zero_point;
    if (sb_quantizer_is_constant(qm, q) && q->spec.kind == SB_QUANT_WEIGHT)
        SB_TRY(sb_map_put(&qat->roles, sb_graph_value(qm->graph, x)->name,
                          SB_PARAMETER_ROLE_WEIGHT + 1));
    *y = t->add(&n);
    SB_TRY(to.status);
    return qat_settle_nodes(g, first, beside, q->name, *y);
}

/* ---- life --------------------------------------------------------------- */

/* A quantizer that has the scale of another learns with it. */
static sb_status qat_check_root(const sb_quant_model *qm, const sb_quantizer *q)
{
    const sb_quantizer *root =
        sb_point_quantizer(&qm->place, qm->place.points[q->point].same_as);

    if (sb_quantizer_is_off(qm, root))
        return sb_fail(qm->ctx, SB_UNSUPPORTED,
                       "quantizer '%s' has the scale of '%s', which is off: "
                       "switch both on, or both off",
                       q->name, root->name);
    if (q->def->map_activation != root->def->map_activation)
        return sb_fail(qm->ctx, SB_UNSUPPORTED,
                       "quantizer '%s' of TYPE %s has the scale of '%s' of "
                       "TYPE %s: want the same TYPE for both",
                       q->name, q->def->name, root->name, root->def->name);
    return SB_OK;
}

/* Every quantizer that is on can be trained, and has a scale. */
static sb_status qat_check(const sb_quant_model *qm)
{
    if (!qm->train && !sb_quant_config_schedule(qm->config).bn_tuning)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "the model was not created to be trained");
    if (sb_quant_config_mode(qm->config) == SB_QUANT_DYNAMIC)
        return sb_fail(qm->ctx, SB_UNSUPPORTED,
                       "%s: `A: dynamic` cannot be trained: its scales are "
                       "those of each run; use a map, or none",
                       sb_quant_config_file(qm->config));
    if (qm->known.n > 0)
        return sb_fail(qm->ctx, SB_UNSUPPORTED,
                       "the model is quantized already: train the float model "
                       "that it was made from");
    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        const sb_quantizer *q = sb_point_quantizer(&qm->place, i);

        if (sb_quantizer_is_off(qm, q))
            continue;
        SB_TRY(qat_check_root(qm, q));
        if (!sb_qat_training(qm, i))
            return sb_fail(qm->ctx, SB_UNSUPPORTED,
                           "quantizer '%s' is of TYPE %s, which cannot be "
                           "trained",
                           q->name, q->def->name);
        if (sb_quantizer_qparams(qm, q)->n == 0)
            return sb_fail(qm->ctx, SB_BAD_ARG,
                           "quantizer '%s' has no scale yet: calibrate before "
                           "training",
                           q->name);
    }
    return SB_OK;
}

static sb_status qat_setup(sb_qat *qat, sb_qat_bn bn)
{
    sb_quant_model *qm = qat->qm;
    size_t n = qm->place.n_points;

    SB_TRY(qat_check(qm));
    qat->points = sb_arena_alloc(&qat->arena, n + 1, sizeof *qat->points);
    if (!qat->points)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < SB_LEARNED_MOST; k++)
            qat->points[i].learned[k] = SB_NONE;
    SB_TRY(sb_qat_find_norms(qat, bn));
    SB_TRY(sb_qat_measure(qat));
    qat_fall_back(qat);
    SB_TRY(sb_quant_derive(qm, qat_put, qat, &qat->graph));
    SB_TRY(sb_overlay_apply(qm, qat->graph));
    SB_TRY(sb_qat_add_norms(qat));
    SB_TRY(sb_qat_add_biases(qat));
    return sb_graph_infer(qat->graph);
}

sb_status sb_qat_create(sb_quant_model *qm, sb_qat_bn bn, sb_qat **out)
{
    sb_qat *qat = sb_alloc(qm->ctx, 1, sizeof *qat);

    if (!qat)
        return SB_NO_MEMORY;
    qat->qm = qm;
    sb_arena_init(&qat->arena, qm->ctx);
    sb_map_init(&qat->roles, qm->ctx);
    sb_status status = qat_setup(qat, bn);
    if (status == SB_OK)
        *out = qat;
    else
        sb_qat_free(qat);
    return status;
}

void sb_qat_free(sb_qat *qat)
{
    if (!qat)
        return;
    sb_graph_free(qat->graph);
    sb_map_free(&qat->roles);
    sb_arena_free(&qat->arena);
    sb_free(qat->qm->ctx, qat);
}
