/* Errors of layers: which are measured, running, and the results. */
#include "quant/analyze/errors.h"

#include <math.h>
#include <string.h>

#include "base/options.h"
#include "eval/eval.h"
#include "quant/model/weight.h"

/* ---- rows ---------------------------------------------------------------- */

static sb_status add_row(sb_quant_errors *e, sb_node_id node, sb_value_id value)
{
    const sb_graph *g = e->qm->graph;

    SB_TRY(sb_grow(e->ctx, &e->rows, &e->cap_rows, e->n_rows + 1,
                   sizeof *e->rows));
    sb_error_row *row = &e->rows[e->n_rows++];
    *row = (sb_error_row){.node = node, .value = value};
    for (int k = 0; k < SB_ERROR_KINDS; k++)
        row->sums[k].output = SB_NO_INDEX;
    row->info.output = sb_graph_value(g, value)->name;
    row->info.name = row->info.output;
    row->info.op = "Output";
    row->info.module = "";
    if (node != SB_NONE) {
        row->info.name = sb_node_label(g, sb_graph_node(g, node));
        row->info.op = sb_graph_node(g, node)->op;
        row->info.module = sb_graph_node(g, node)->module;
    }
    return SB_OK;
}

/* Marks the nodes that read a quantizer: bit 0 weights, bit 1 activations. */
static void mark_nodes(const sb_quant_model *qm, uint8_t *marks)
{
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];

        if (sb_quantizer_is_off(qm, q))
            continue;
        for (size_t k = 0; k < q->n_uses; k++)
            marks[q->uses[k].node] |= sb_quantizer_is_constant(qm, q) ? 1 : 2;
    }
}

/* Its result can be compared with that of a copy. */
static bool node_compares(const sb_graph *g, const sb_node *node)
{
    return node->n_out > 0 && node->outputs[0] != SB_NONE &&
           sb_graph_value(g, node->outputs[0])->type.dtype == SB_DTYPE_F32 &&
           !sb_node_body(node, 0);
}

static sb_status add_layers(sb_quant_errors *e, const uint8_t *marks)
{
    const sb_graph *g = e->qm->graph;

    for (size_t i = 0; i < e->n_order; i++) {
        sb_node_id id = e->order[i];
        const sb_node *node = sb_graph_node(g, id);

        if (!marks[id] || !node_compares(g, node))
            continue;
        SB_TRY(add_row(e, id, node->outputs[0]));
        e->rows[e->n_rows - 1].info.has_weights = marks[id] & 1;
        e->rows[e->n_rows - 1].info.has_activations = marks[id] >> 1;
    }
    return SB_OK;
}

static sb_status add_rows(sb_quant_errors *e)
{
    const sb_quant_model *qm = e->qm;
    uint8_t *marks = sb_alloc(e->ctx, qm->graph->n_nodes + 1, sizeof *marks);

    if (!marks)
        return SB_NO_MEMORY;
    mark_nodes(qm, marks);
    sb_status status = add_layers(e, marks);
    sb_free(e->ctx, marks);
    for (size_t i = 0; i < qm->place.n_quantizers && status == SB_OK; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        if (!q->at_output || sb_quantizer_is_off(qm, q))
            continue;
        status = add_row(e, SB_NONE, q->value);
        if (status == SB_OK)
            e->rows[e->n_rows - 1].info.has_activations = 1;
    }
    return status;
}

/* ---- counting values ----------------------------------------------------- */

static sb_status count_values(sb_ctx *ctx, struct sb_error_values *v,
                              const float *x, size_t n)
{
    sb_minmax m = sb_scan(x, n, SB_MINMAX_EMPTY);

    if (n == 0 || !sb_minmax_finite(m))
        return SB_OK;
    if (v->hist.channels == 0) {
        SB_TRY(sb_histogram_init(ctx, &v->hist, 1));
        v->range = SB_MINMAX_EMPTY;
    }
    SB_TRY(sb_histogram_reserve(ctx, &v->hist, n));
    sb_histogram_fit(&v->hist, 0, m);
    sb_histogram_table table = sb_histogram_table_of(&v->hist, 0);
    sb_histogram_count(&table, x, n);
    v->range = sb_minmax_join(v->range, m);
    return SB_OK;
}

/* sb_observe_fn */
static sb_status errors_observe(void *user, int64_t id, const sb_tensor *x)
{
    sb_quant_errors *e = user;
    struct sb_error_values *v = &e->values[id];

    if (v->axis >= 0)
        SB_TRY(sb_errors_see_channels(e->ctx, v, x));
    return e->counts
               ? count_values(e->ctx, v, x->data, (size_t)sb_tensor_count(x))
               : SB_OK;
}

/* Bins of one width from the least value to the greatest. */
static sb_status spread_values(sb_ctx *ctx, const struct sb_error_values *v,
                               size_t n, double *counts, double *lo, double *hi)
{
    size_t most = (size_t)v->hist.half * 2 + 2;
    float *x = sb_alloc_raw(ctx, most, sizeof *x);
    double *c = sb_alloc_raw(ctx, most, sizeof *c);
    const sb_range range = sb_minmax_range(v->range);
    sb_status status = x && c ? SB_OK : SB_NO_MEMORY;

    *lo = (double)range.lo;
    *hi = (double)range.hi > *lo ? (double)range.hi : *lo + 1e-6;
    memset(counts, 0, n * sizeof *counts);
    if (status == SB_OK) {
        int64_t used = sb_histogram_values(&v->hist, 0, range, x, c);
        for (int64_t i = 0; i < used; i++) {
            double at = ((double)x[i] - *lo) / (*hi - *lo) * (double)n;
            counts[at < 0 ? 0 : at >= (double)n ? n - 1 : (size_t)at] += c[i];
        }
    }
    sb_free(ctx, x);
    sb_free(ctx, c);
    return status;
}

sb_status sb_errors_histogram(const sb_quant_errors *e, uint32_t point,
                              size_t n, double *counts, double *lo, double *hi,
                              bool *there)
{
    const sb_quantizer *q = sb_point_quantizer(&e->qm->place, point);
    struct sb_error_values own = {0};
    const struct sb_error_values *v = &e->values[point];
    sb_status status = SB_OK;

    if (sb_quantizer_is_constant(e->qm, q)) {
        sb_tensor w;
        SB_TRY(sb_quantizer_weight(e->qm, q, &w));
        status =
            count_values(e->ctx, &own, w.data, (size_t)sb_tensor_count(&w));
        sb_tensor_drop(&w);
        v = &own;
    }
    *there = v->hist.channels > 0;
    if (status == SB_OK && *there)
        status = spread_values(e->ctx, v, n, counts, lo, hi);
    sb_histogram_free(e->ctx, &own.hist);
    return status;
}

/* ---- life ---------------------------------------------------------------- */

static sb_status errors_make(sb_quant_errors *e)
{
    const sb_exec_options opt = {
        .exact = e->qm->exact, .observe = errors_observe, .observe_user = e};
    size_t n = e->qm->graph->n_outputs;

    e->results = sb_alloc(e->ctx, n + 1, sizeof *e->results);
    e->values = sb_alloc(e->ctx, e->qm->place.n_points + 1, sizeof *e->values);
    if (!e->results || !e->values)
        return SB_NO_MEMORY;
    sb_errors_channels(e);
    SB_TRY(sb_graph_order(e->qm->graph, &e->order, &e->n_order));
    SB_TRY(add_rows(e));
    SB_TRY(sb_errors_graph(e));
    e->outputs = sb_alloc(e->ctx, e->graph->n_outputs + 1, sizeof(sb_tensor *));
    if (!e->outputs)
        return SB_NO_MEMORY;
    return sb_exec_create(e->ctx, e->graph, &opt, &e->exec);
}

sb_status sb_quant_errors_create(const sb_quant_model *qm,
                                 const sb_quant_errors_options *options,
                                 sb_quant_errors **out)
{
    const sb_quant_errors_options none = SB_QUANT_ERRORS_OPTIONS_INIT;
    sb_quant_errors_options opt;

    SB_TRY(sb_options_read(qm->ctx, "sb_quant_errors_options", options, &none,
                           sizeof opt, &opt));
    sb_quant_errors *e = sb_alloc(qm->ctx, 1, sizeof *e);
    if (!e)
        return SB_NO_MEMORY;
    e->ctx = qm->ctx;
    e->qm = qm;
    e->counts = opt.histograms != 0;
    sb_status status = errors_make(e);
    if (status == SB_OK)
        *out = e;
    else
        sb_quant_errors_free(e);
    return status;
}

void sb_quant_errors_free(sb_quant_errors *e)
{
    if (!e)
        return;
    sb_exec_free(e->exec);
    sb_graph_free(e->graph);
    for (int k = 0; k < SB_ERROR_SYNC; k++)
        sb_graph_free(e->simulated[k]);
    for (size_t i = 0; e->values && i < e->qm->place.n_points; i++) {
        sb_histogram_free(e->ctx, &e->values[i].hist);
        sb_free(e->ctx, e->values[i].reach);
    }
    sb_free(e->ctx, e->values);
    sb_free(e->ctx, e->outputs);
    sb_free(e->ctx, e->order);
    sb_free(e->ctx, e->results);
    sb_free(e->ctx, e->rows);
    sb_free(e->ctx, e);
}

/* ---- running ------------------------------------------------------------- */

static void errors_add(double *to, const double *sum)
{
    for (int w = 0; w < SB_COMPARE_SUMS; w++)
        to[w] = w == SB_COMPARE_MAX ? fmax(to[w], sum[w]) : to[w] + sum[w];
}

/* Is every row of classes a distribution already?  *p is one, softmax or not,
 * element by element. */
static double class_weight(const sb_tensor *t, int64_t first, int64_t n,
                           int64_t step, bool *ready, double *most)
{
    double sum = 0, low = 0;

    *most = -(double)INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double x = sb_eval_element(t, first + i * step);
        sum += x;
        low = fmin(low, x);
        *most = fmax(*most, x);
    }
    *ready = low >= 0 && fabs(sum - 1) < sb_eval_sum_slack(t);
    if (*ready)
        return sum;
    sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp(sb_eval_element(t, first + i * step) - *most);
    return sum;
}

static double row_kl(const sb_tensor *a, const sb_tensor *b, int64_t first,
                     int64_t n, int64_t step)
{
    bool ready, ready_b;
    double most_a, most_b, kl = 0;
    double sum_a = class_weight(a, first, n, step, &ready, &most_a);
    double sum_b = class_weight(b, first, n, step, &ready_b, &most_b);

    for (int64_t i = 0; i < n; i++) {
        double x = sb_eval_element(a, first + i * step);
        double y = sb_eval_element(b, first + i * step);
        double p = ready ? x / sum_a : exp(x - most_a) / sum_a;
        double log_p = ready ? log(fmax(p, 1e-12)) : x - most_a - log(sum_a);
        double log_q = ready ? log(fmax(y, 1e-12) / fmax(sum_b, 1e-12))
                             : y - most_b - log(sum_b);
        if (p > 0)
            kl += p * (log_p - log_q);
    }
    return kl;
}

/* Both outputs of a run: every row of classes, by place. */
static void add_classes(sb_error_output *r, const sb_tensor *a,
                        const sb_tensor *b)
{
    int64_t step = 0, n = sb_eval_classes(a, &step);
    int64_t count = sb_tensor_count(a);

    if (n < 2 || !sb_dtype_is_float(a->dtype))
        return;
    for (int64_t at = 0; at < count; at += n * step)
        for (int64_t k = 0; k < step; k++) {
            r->kl += row_kl(a, b, at + k, n, step);
            r->equal += sb_eval_largest(a, at + k, n, step) ==
                        sb_eval_largest(b, at + k, n, step);
            r->places++;
        }
}

static void add_output(sb_error_output *r, const sb_tensor *a,
                       const sb_tensor *b)
{
    int64_t n = sb_tensor_count(a);
    double sum[SB_COMPARE_SUMS] = {0};

    if (n != sb_tensor_count(b) || sb_dtype_size(a->dtype) == 0)
        return; /* boxes that were kept, say: nothing to compare one by one */
    for (int64_t i = 0; i < n; i++) {
        double x = sb_eval_element(a, i), y = sb_eval_element(b, i);
        sum[SB_COMPARE_DD] += (x - y) * (x - y);
        sum[SB_COMPARE_AA] += x * x;
        sum[SB_COMPARE_BB] += y * y;
        sum[SB_COMPARE_AB] += x * y;
        sum[SB_COMPARE_MAX] = fmax(sum[SB_COMPARE_MAX], fabs(x - y));
    }
    sum[SB_COMPARE_COUNT] = (double)n;
    errors_add(r->sum, sum);
    add_classes(r, a, b);
}

sb_status sb_quant_errors_run(sb_quant_errors *e,
                              const sb_tensor *const *inputs, size_t n_inputs,
                              const sb_tensor **outputs, size_t n_outputs)
{
    SB_TRY(sb_quant_run_check(e->qm, inputs, n_inputs, n_outputs));
    SB_TRY(sb_exec_run(e->exec, inputs, NULL, e->outputs));
    for (size_t i = 0; i < e->n_rows; i++)
        for (int k = 0; k < SB_ERROR_KINDS; k++) {
            sb_error_sum *s = &e->rows[i].sums[k];
            if (s->output != SB_NO_INDEX)
                errors_add(s->sum, e->outputs[s->output]->data);
        }
    for (size_t i = 0; i < e->qm->graph->n_outputs; i++) {
        sb_error_output *r = &e->results[i];
        if (r->quantized != SB_NO_INDEX)
            add_output(r, e->outputs[i], e->outputs[r->quantized]);
    }
    if (n_outputs)
        memcpy(outputs, e->outputs, n_outputs * sizeof *outputs);
    for (size_t i = 0; i < e->n_rows; i++)
        SB_TRY(sb_errors_spread(e, e->rows[i].node,
                                &e->rows[i].info.channel_spread));
    return sb_errors_added(e);
}

/* ---- results ------------------------------------------------------------- */

/* Sums as a public struct. */
static sb_difference errors_difference(const double s[SB_COMPARE_SUMS])
{
    double n = s[SB_COMPARE_COUNT] > 0 ? s[SB_COMPARE_COUNT] : 1;
    double norms = sqrt(s[SB_COMPARE_AA]) * sqrt(s[SB_COMPARE_BB]);
    double d = s[SB_COMPARE_DD];

    return (sb_difference){
        .mse = d / n,
        .sqnr_db = sb_eval_decibel(s[SB_COMPARE_AA], d),
        .cosine = d == 0      ? 1
                  : norms > 0 ? s[SB_COMPARE_AB] / norms
                              : 0,
        .largest = s[SB_COMPARE_MAX],
    };
}

size_t sb_quant_errors_count(const sb_quant_errors *e)
{
    return e->n_rows;
}

const sb_layer_error *sb_quant_errors_layer(const sb_quant_errors *e, size_t i)
{
    if (i >= e->n_rows)
        return NULL;
    sb_error_row *row = &e->rows[i];
    sb_error_sum *s = row->sums;

    for (int k = 0; k < SB_ERROR_KINDS; k++)
        s[k].result = errors_difference(s[k].sum);
    bool apart = s[SB_ERROR_WEIGHTS].output != SB_NO_INDEX;
    row->info.async = &s[SB_ERROR_ASYNC].result;
    row->info.weights =
        row->info.has_weights ? &s[apart ? SB_ERROR_WEIGHTS : 0].result : NULL;
    row->info.activations = row->info.has_activations
                                ? &s[apart ? SB_ERROR_ACTIVATIONS : 0].result
                                : NULL;
    row->info.sync = s[SB_ERROR_SYNC].output == SB_NO_INDEX
                         ? NULL
                         : &s[SB_ERROR_SYNC].result;
    return &row->info;
}

const sb_output_error *sb_quant_errors_output(const sb_quant_errors *e,
                                              size_t i)
{
    if (i >= e->qm->graph->n_outputs)
        return NULL;
    sb_error_output *r = &e->results[i];

    r->result = errors_difference(r->sum);
    r->info = (sb_output_error){
        .name = sb_graph_value(e->qm->graph, e->qm->graph->outputs[i])->name,
        .difference = r->quantized == SB_NO_INDEX ? NULL : &r->result,
        .kl = r->places ? r->kl / (double)r->places : (double)NAN,
        .agreement =
            r->places ? (double)r->equal / (double)r->places : (double)NAN,
    };
    return &r->info;
}
