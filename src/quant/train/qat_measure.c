/* What quantizers start from, and statistics of norms: means over batches, each
 * computed by nodes behind the values. */
#include <math.h>

#include "graph/op.h"
#include "ops/grad/grad.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "quant/calibrate/replay.h"
#include "quant/model/instrument.h"
#include "quant/train/qat.h"

enum { MEAN, MEAN_ABS, MEAN_SQUARE, LOWEST, MOMENTS };

/* ---- values of quantizers ----------------------------------------------- */

/* Is something learned that starts from what was seen of an activation? */
static bool measure_wants(const sb_quant_model *qm, uint32_t point)
{
    const sb_quant_training *t = sb_qat_training(qm, point);

    return t && t->start && qm->place.points[point].same_as == point &&
           !sb_quantizer_is_constant(qm, sb_point_quantizer(&qm->place, point));
}

/* A reduction over all axes but that of the channels. */
static sb_value_id measure_reduce(sb_grad *g, const char *op, sb_value_id x,
                                  int axis)
{
    int64_t axes[SB_MAX_RANK];
    int n = 0;

    for (int i = 0; axis >= 0 && i < sb_grad_type(g, x)->shape.rank; i++)
        if (i != axis)
            axes[n++] = i;
    return sb_emit_with(g, op, x, n ? sb_grad_ints(g, axes, n) : SB_NONE,
                        SB_EMIT_INT("keepdims", 0));
}

static sb_status measure_point(sb_graph *graph, const sb_quantizer *q)
{
    sb_grad g = {.graph = graph};
    sb_value_id x = q->value;
    const sb_value_id out[MOMENTS] = {
        [MEAN] = measure_reduce(&g, "ReduceMean", x, q->axis),
        [MEAN_ABS] =
            measure_reduce(&g, "ReduceMean", sb_emit1(&g, "Abs", x), q->axis),
        [MEAN_SQUARE] = measure_reduce(&g, "ReduceMean",
                                       sb_emit2(&g, "Mul", x, x), q->axis),
        [LOWEST] = measure_reduce(&g, "ReduceMin", x, q->axis),
    };

    SB_TRY(g.status);
    for (int i = 0; i < MOMENTS; i++)
        SB_TRY(sb_graph_add_output(graph, out[i]));
    return SB_OK;
}

static sb_status measure_room(sb_qat *qat, uint32_t point)
{
    sb_qat_point *p = &qat->points[point];
    const sb_quantizer *q = sb_point_quantizer(&qat->qm->place, point);

    p->n_seen = sb_quantizer_qparams(qat->qm, q)->n;
    p->seen =
        sb_arena_alloc(&qat->arena, (size_t)p->n_seen + 1, sizeof *p->seen);
    if (!p->seen)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < p->n_seen; i++)
        p->seen[i] = (sb_qat_moments){.lowest = (double)INFINITY};
    return SB_OK;
}

static void measure_take(sb_qat_point *p, const sb_tensor *const *out,
                         double share)
{
    for (int64_t i = 0; i < p->n_seen; i++) {
        sb_qat_moments *m = &p->seen[i];

        m->mean += share * sb_tensor_get_f64(out[MEAN], i);
        m->mean_abs += share * sb_tensor_get_f64(out[MEAN_ABS], i);
        m->mean_square += share * sb_tensor_get_f64(out[MEAN_SQUARE], i);
        m->lowest = fmin(m->lowest, sb_tensor_get_f64(out[LOWEST], i));
    }
}

/* ---- statistics --------------------------------------------------------- */

/* Mean and variance over the batch of each channel of `x`, as two results; the
 * first result is x normalized. */
static sb_status statistics_add(sb_graph *g, const sb_value_id *in,
                                sb_value_id y, float epsilon, sb_value_id *out)
{
    const sb_attr attrs[] = {SB_EMIT_FLOAT("momentum", 0),
                             SB_EMIT_FLOAT("epsilon", epsilon)};
    sb_node_id node = SB_NONE;

    out[0] = y;
    for (int i = y == SB_NONE ? 0 : 1; i < 5; i++)
        SB_TRY(sb_graph_add_value_as(g, "statistics", &out[i]));
    SB_TRY(sb_graph_add_node(g,
                             &(sb_node_spec){.op = "BatchNormTrain",
                                             .domain = SB_FUSED_DOMAIN,
                                             .inputs = in,
                                             .n_in = 5,
                                             .outputs = out,
                                             .n_out = 5,
                                             .attrs = attrs,
                                             .n_attrs = SB_COUNT(attrs)},
                             &node));
    SB_TRY(sb_graph_add_output(g, out[3]));
    return sb_graph_add_output(g, out[4]);
}

static sb_status measure_norm(sb_graph *g, const sb_qat_norm *norm)
{
    const sb_shape shape = {.rank = 1, .dim = {norm->layer.channels}};
    sb_value_id in[5] = {norm->layer.result}, out[5];

    for (int i = 1; i < 5; i++)
        SB_TRY(sb_rewrite_fill(g, "statistics", SB_DTYPE_F32, &shape, i == 1,
                               &in[i]));
    return statistics_add(g, in, SB_NONE, 1e-5f, out);
}

/* Adds what batch means and variances `out` say to mean and variance around
 * zero, of which `share` are these. */
static void statistics_take(double *mean, double *var, int64_t n,
                            const sb_tensor *const *out, double share)
{
    for (int64_t c = 0; c < n; c++) {
        double m = sb_tensor_get_f64(out[0], c);

        mean[c] += share * m;
        var[c] += share * (sb_tensor_get_f64(out[1], c) + m * m);
    }
}

static void statistics_center(const double *mean, double *var, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        var[c] = fmax(var[c] - mean[c] * mean[c], 0);
}

/* ---- the float network -------------------------------------------------- */

static sb_status measure_graph(sb_qat *qat, sb_graph *g)
{
    const sb_quant_model *qm = qat->qm;

    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        if (!measure_wants(qm, i))
            continue;
        SB_TRY(measure_room(qat, i));
        SB_TRY(measure_point(g, sb_point_quantizer(&qm->place, i)));
    }
    for (size_t i = 0; i < qat->n_norms; i++)
        SB_TRY(measure_norm(g, &qat->norms[i]));
    return SB_OK;
}

static void measure_batch(sb_qat *qat, const sb_replay *r, double share)
{
    const sb_quant_model *qm = qat->qm;
    const sb_tensor *const *out = r->outputs + qm->graph->n_outputs;

    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        if (!measure_wants(qm, i))
            continue;
        measure_take(&qat->points[i], out, share);
        out += MOMENTS;
    }
    for (size_t i = 0; i < qat->n_norms; i++, out += 2) {
        sb_qat_norm *norm = &qat->norms[i];
        statistics_take(norm->mean, norm->var, norm->layer.channels, out,
                        share);
    }
}

/* Training starts from all batches; other methods have their share. */
static bool measure_takes(const sb_quant_model *qm, size_t i)
{
    return qm->train || sb_replay_is_for(qm, SB_REPLAY_USED, i);
}

static sb_status measure_batches(sb_qat *qat, sb_replay *r)
{
    sb_batch_store *batches = qat->qm->state.batches;
    size_t n = sb_batch_store_count(batches);
    double all = 0;

    for (size_t i = 0; i < n; i++)
        if (measure_takes(qat->qm, i))
            all += (double)sb_batch_store_samples(batches, i);
    for (size_t i = 0; i < n; i++) {
        if (!measure_takes(qat->qm, i))
            continue;
        SB_TRY(sb_progress(qat->qm->ctx, "statistics", i, n));
        SB_TRY(sb_replay_run(r, i));
        measure_batch(qat, r, (double)sb_batch_store_samples(batches, i) / all);
    }
    for (size_t i = 0; i < qat->n_norms; i++)
        statistics_center(qat->norms[i].mean, qat->norms[i].var,
                          qat->norms[i].layer.channels);
    return SB_OK;
}

sb_status sb_qat_measure(sb_qat *qat)
{
    sb_quant_model *qm = qat->qm;
    sb_replay r = {0};
    sb_graph *g = NULL;

    if (sb_batch_store_count(qm->state.batches) == 0)
        return sb_fail(qm->ctx, SB_BAD_DATA,
                       "training starts from what calibration saw: feed "
                       "samples before it");
    SB_TRY(sb_replay_float(qm, &g));
    sb_status status = measure_graph(qat, g);
    if (status == SB_OK)
        status = sb_replay_open(qm, g, NULL, &r);
    else
        sb_graph_free(g);
    if (status == SB_OK)
        status = measure_batches(qat, &r);
    sb_replay_close(&r);
    return status;
}

/* ---- the learned network ------------------------------------------------ */

struct sb_qat_statistics {
    const sb_qat *qat;
    sb_graph *learned; /* to be changed */
    sb_graph *graph;
    sb_exec *exec;
    const sb_tensor **outputs;
    double *sums;  /* mean and variance of each channel of each norm */
    double weight; /* of all batches */
};

/* The value of a norm's constant in a graph with the same names. */
static sb_value_id statistics_of(const sb_qat *qat, const sb_graph *g,
                                 size_t norm, int param)
{
    sb_value_id own = qat->norms[norm].params[param];

    return sb_graph_find_value(g, sb_graph_value(qat->graph, own)->name);
}

/* Every norm goes by the batch and tells its statistics. */
static sb_status statistics_rewrite(const sb_qat_statistics *s)
{
    sb_graph *g = s->graph;

    for (size_t i = 0; i < s->qat->n_norms; i++) {
        sb_node_id id =
            sb_qat_norm_node(g, statistics_of(s->qat, g, i, SB_QAT_MEAN));
        const sb_node old = *sb_graph_node(g, id);
        sb_value_id out[5];

        sb_graph_remove_node(g, id);
        SB_TRY(statistics_add(g, old.inputs, old.outputs[0],
                              sb_node_float(&old, "epsilon", 1e-5f), out));
    }
    return SB_OK;
}

static sb_status statistics_setup(sb_qat_statistics *s)
{
    const sb_qat *qat = s->qat;
    sb_ctx *ctx = qat->qm->ctx;
    const sb_exec_options exec = {.exact = qat->qm->exact};
    int64_t channels = 0;

    for (size_t i = 0; i < qat->n_norms; i++)
        channels += qat->norms[i].layer.channels;
    s->sums = sb_alloc(ctx, (size_t)channels + 1, 2 * sizeof *s->sums);
    SB_TRY(sb_graph_clone(s->learned, &s->graph));
    SB_TRY(statistics_rewrite(s));
    SB_TRY(sb_passes_run(s->graph, "lower", NULL, NULL, NULL));
    s->outputs = sb_alloc(ctx, s->graph->n_outputs, sizeof *s->outputs);
    if (!s->sums || !s->outputs)
        return SB_NO_MEMORY;
    return sb_exec_create(ctx, s->graph, &exec, &s->exec);
}

sb_status sb_qat_statistics_open(const sb_qat *qat, sb_graph *learned,
                                 sb_qat_statistics **out)
{
    sb_qat_statistics *s = sb_alloc(qat->qm->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    s->qat = qat;
    s->learned = learned;
    sb_status status = statistics_setup(s);
    if (status == SB_OK)
        *out = s;
    else
        sb_qat_statistics_free(s);
    return status;
}

sb_status sb_qat_statistics_take(sb_qat_statistics *s,
                                 const sb_tensor *const *inputs, double weight)
{
    double *at = s->sums;

    SB_TRY(sb_exec_run(s->exec, inputs, NULL, s->outputs));
    const sb_tensor *const *out = s->outputs + s->learned->n_outputs;
    for (size_t i = 0; i < s->qat->n_norms; i++, out += 2) {
        int64_t n = s->qat->norms[i].layer.channels;

        for (int64_t c = 0; c < n; c++, at += 2) {
            double mean = sb_tensor_get_f64(out[0], c);

            at[0] += weight * mean;
            at[1] += weight * (sb_tensor_get_f64(out[1], c) + mean * mean);
        }
    }
    s->weight += weight;
    return SB_OK;
}

sb_status sb_statistics_put(sb_graph *g, sb_value_id value, bool variance,
                            const double *sums, double weight)
{
    sb_tensor t;

    SB_TRY(sb_tensor_clone(g->ctx, &sb_graph_value(g, value)->constant, &t));
    for (int64_t c = 0; c < sb_tensor_count(&t); c++) {
        double mean = sums[2 * c] / weight, square = sums[2 * c + 1] / weight;

        ((float *)t.data)[c] =
            (float)(variance ? fmax(square - mean * mean, 0) : mean);
    }
    sb_status status = sb_graph_set_constant(g, value, &t);
    sb_tensor_drop(&t);
    return status;
}

sb_status sb_qat_statistics_set(sb_qat_statistics *s)
{
    const sb_qat *qat = s->qat;
    const double *at = s->sums;

    for (size_t i = 0; s->weight > 0 && i < qat->n_norms; i++) {
        SB_TRY(sb_statistics_put(s->learned,
                                 statistics_of(qat, s->learned, i, SB_QAT_MEAN),
                                 false, at, s->weight));
        SB_TRY(sb_statistics_put(s->learned,
                                 statistics_of(qat, s->learned, i, SB_QAT_VAR),
                                 true, at, s->weight));
        at += 2 * qat->norms[i].layer.channels;
    }
    return SB_OK;
}

void sb_qat_statistics_free(sb_qat_statistics *s)
{
    if (!s)
        return;
    sb_ctx *ctx = s->qat->qm->ctx;
    sb_exec_free(s->exec);
    sb_graph_free(s->graph);
    sb_free(ctx, s->outputs);
    sb_free(ctx, s->sums);
    sb_free(ctx, s);
}
