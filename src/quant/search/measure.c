/* The executor with exchangeable weights, and the samples it runs on. */
#include "quant/search/measure.h"

#include <math.h>
#include <string.h>

#include "eval/eval.h"
#include "passes/pass.h"
#include "quant/calibrate/calibrate.h"
#include "quant/model/simulate.h"
#include "quant/model/weight.h"

static const sb_graph *measure_graph(const sb_measure *m)
{
    return m->models[0]->graph;
}

/* ---- samples ------------------------------------------------------------- */

sb_status sb_measure_keep(sb_measure *m, const sb_tensor *const *inputs,
                          const sb_tensor *const *outputs)
{
    size_t n_in = measure_graph(m)->n_inputs,
           n_out = measure_graph(m)->n_outputs;

    SB_TRY(sb_grow(m->ctx, &m->batches, &m->cap_batches, m->n_batches + 1,
                   sizeof *m->batches));
    sb_tensor *t = sb_alloc(m->ctx, n_in + n_out, sizeof *t);
    if (!t)
        return SB_NO_MEMORY;
    m->batches[m->n_batches++].tensors = t;
    for (size_t i = 0; i < n_in; i++)
        if (inputs[i])
            SB_TRY(sb_tensor_clone(m->ctx, inputs[i], &t[i]));
    for (size_t i = 0; i < n_out; i++)
        if (outputs[i] && sb_dtype_size(outputs[i]->dtype) > 0)
            SB_TRY(sb_tensor_clone(m->ctx, outputs[i], &t[n_in + i]));
    return SB_OK;
}

/* ---- layers -------------------------------------------------------------- */

/* Multiply-accumulates: each element of the result sums over what belongs to
 * one output channel of the weight. */
static double layer_macs(const sb_graph *g, const sb_node *node,
                         const sb_tensor *w)
{
    const sb_shape *s = &sb_graph_value(g, node->outputs[0])->type.shape;
    int axis = sb_op_weight_axis(node, w->rank);
    double n = 1;

    for (int i = 0; i < s->rank; i++)
        n *= sb_dim_known(s->dim[i]) ? (double)s->dim[i] : 1;
    if (axis < 0 || axis >= w->rank || w->dims[axis] == 0)
        return 0;
    return n * (double)(sb_tensor_count(w) / w->dims[axis]);
}

static sb_status add_layers(sb_measure *m)
{
    const sb_quant_model *qm = m->models[0];
    const sb_placement *p = &qm->place;

    m->layers = sb_alloc(m->ctx, p->n_points + 1, sizeof *m->layers);
    if (!m->layers)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < p->n_points; i++) {
        const sb_quantizer *q = sb_point_quantizer(p, i);
        if (!sb_quantizer_is_constant(qm, q) || sb_quantizer_is_off(qm, q) ||
            q->n_uses == 0)
            continue;
        const sb_tensor *w = &sb_graph_value(qm->graph, q->value)->constant;
        sb_mixed_layer *l = &m->layers[m->n_layers++];
        *l = (sb_mixed_layer){.point = i,
                              .node = q->uses[0].node,
                              .elements = (double)sb_tensor_count(w)};
        l->macs = layer_macs(qm->graph, sb_graph_node(qm->graph, l->node), w);
        l->weights = sb_alloc(m->ctx, m->n_models, sizeof *l->weights);
        l->bits = sb_alloc(m->ctx, m->n_models, sizeof *l->bits);
        if (!l->weights || !l->bits)
            return SB_NO_MEMORY;
    }
    return SB_OK;
}

/* The value that a node of a simulated graph reads as its weight. */
static sb_status rounded_weight(sb_ctx *ctx, const sb_graph *g, sb_value_id v,
                                sb_tensor *out)
{
    const sb_node *node = sb_graph_producer(g, v);
    const sb_tensor *in[4] = {NULL};

    if (!node)
        return sb_tensor_clone(ctx, &sb_graph_value(g, v)->constant, out);
    for (uint32_t i = 0; i < node->n_in && i < 4; i++)
        in[i] = &sb_graph_value(g, node->inputs[i])->constant;
    return sb_exec_eval(ctx, g, node, in, out);
}

/* Equalization has changed weights of the first model, which has seen samples:
 * those of another width go together with them only if they are the same in
 * float. */
static sb_status equalize_weights(const sb_measure *m, sb_quant_model *qm)
{
    for (size_t i = 0; m->models[0]->equalized && i < m->n_layers; i++) {
        const sb_quantizer *q =
            sb_point_quantizer(&qm->place, m->layers[i].point);
        const sb_tensor *w =
            &sb_graph_value(measure_graph(m), q->value)->constant;

        SB_TRY(sb_graph_set_constant(qm->graph, q->value, w));
        SB_TRY(sb_calibrate_weight(qm, q, w));
    }
    return SB_OK;
}

static sb_status take_weights(sb_measure *m, size_t model)
{
    sb_quant_model *qm = m->models[model];
    sb_graph *g = NULL;
    sb_status status = SB_OK;

    if (qm->place.n_points != m->models[0]->place.n_points)
        return sb_fail(m->ctx, SB_UNSUPPORTED,
                       "other values are quantized with another bit width");
    if (model > 0)
        SB_TRY(equalize_weights(m, qm));
    sb_quant_model view = *qm; /* borrows all but the two flags */
    view.run.weights_on = true;
    view.run.activations_on = false;
    SB_TRY(sb_quant_simulated(&view, &g));
    for (size_t i = 0; i < m->n_layers && status == SB_OK; i++) {
        sb_mixed_layer *l = &m->layers[i];
        const sb_quantizer *q = sb_point_quantizer(&qm->place, l->point);
        const sb_use use = q->uses[0];

        l->bits[model] =
            (double)sb_dtype_get(sb_quantizer_type(qm, q).dtype)->bits;
        status = rounded_weight(m->ctx, g,
                                sb_graph_node(g, use.node)->inputs[use.input],
                                &l->weights[model]);
    }
    sb_graph_free(g);
    return status;
}

/* ---- the graph ----------------------------------------------------------- */

/* The weight of a layer becomes an input. */
static sb_status open_weight(const sb_measure *m, const sb_mixed_layer *l)
{
    const sb_placement *p = &m->models[0]->place;
    const sb_quantizer *q;
    sb_value_id v = SB_NONE;

    SB_TRY(sb_graph_add_value_like(m->graph, "sparsebit.weight", &v));
    sb_type *type = &sb_graph_value(m->graph, v)->type;
    type->dtype = l->weights[0].dtype;
    type->shape.rank = l->weights[0].rank;
    for (int i = 0; i < l->weights[0].rank; i++)
        type->shape.dim[i] = l->weights[0].dims[i];
    SB_TRY(sb_graph_add_input(m->graph, v));
    for (uint32_t i = p->points[l->point].head; i != SB_NONE; i = q->next) {
        q = &p->quantizers[i];
        for (size_t k = 0; k < q->n_uses; k++)
            SB_TRY(sb_graph_set_input(m->graph, q->uses[k].node,
                                      q->uses[k].input, v));
    }
    return SB_OK;
}

static sb_status measure_exec(sb_measure *m)
{
    size_t first = measure_graph(m)->n_inputs;
    sb_exec_state *bound = sb_alloc(m->ctx, m->n_layers + 1, sizeof *bound);

    m->states = sb_alloc(m->ctx, m->n_layers + 1, sizeof *m->states);
    m->in = sb_alloc(m->ctx, m->graph->n_inputs + 1, sizeof(sb_tensor *));
    m->outputs = sb_alloc(m->ctx, m->graph->n_outputs + 1, sizeof(sb_tensor *));
    sb_status status =
        bound && m->states && m->in && m->outputs ? SB_OK : SB_NO_MEMORY;
    for (size_t i = 0; status == SB_OK && i < m->n_layers; i++) {
        m->states[i].t = m->layers[i].weights[0];
        m->states[i].t.buf = NULL; /* borrowed */
        bound[i] = (sb_exec_state){m->graph->inputs[first + i], SB_NONE,
                                   &m->states[i]};
    }
    const sb_exec_options opt = {
        .exact = m->models[0]->exact, .states = bound, .n_states = m->n_layers};
    if (status == SB_OK)
        status = sb_exec_create(m->ctx, m->graph, &opt, &m->exec);
    sb_free(m->ctx, bound);
    return status;
}

sb_status sb_measure_make(sb_measure *m)
{
    sb_quant_model view = *m->models[0];

    SB_TRY(add_layers(m));
    for (size_t i = 0; i < m->n_models; i++)
        SB_TRY(take_weights(m, i));
    view.run.weights_on = false;
    view.run.activations_on = true;
    SB_TRY(sb_quant_simulated(&view, &m->graph));
    for (size_t i = 0; i < m->n_layers; i++)
        SB_TRY(open_weight(m, &m->layers[i]));
    SB_TRY(sb_passes_run(m->graph, "lower", NULL, NULL, NULL));
    return measure_exec(m);
}

void sb_measure_free(sb_measure *m)
{
    size_t n = 0;

    if (m->n_models)
        n = measure_graph(m)->n_inputs + measure_graph(m)->n_outputs;
    sb_exec_free(m->exec);
    sb_graph_free(m->graph);
    for (size_t i = 0; i < m->n_layers; i++) {
        for (size_t k = 0; m->layers[i].weights && k < m->n_models; k++)
            sb_tensor_drop(&m->layers[i].weights[k]);
        sb_free(m->ctx, m->layers[i].weights);
        sb_free(m->ctx, m->layers[i].bits);
    }
    for (size_t i = 0; i < m->n_batches; i++) {
        for (size_t k = 0; k < n; k++)
            sb_tensor_drop(&m->batches[i].tensors[k]);
        sb_free(m->ctx, m->batches[i].tensors);
    }
    sb_free(m->ctx, m->layers);
    sb_free(m->ctx, m->states);
    sb_free(m->ctx, m->in);
    sb_free(m->ctx, m->outputs);
    sb_free(m->ctx, m->batches);
}

/* ---- running ------------------------------------------------------------- */

void sb_measure_add(const sb_measure *m, size_t batch,
                    const sb_tensor *const *outputs, double *sums)
{
    const sb_tensor *want =
        m->batches[batch].tensors + measure_graph(m)->n_inputs;

    for (size_t k = 0; k < measure_graph(m)->n_outputs; k++) {
        int64_t n = want[k].data ? sb_tensor_count(&want[k]) : 0;
        /* Of boxes, others may be kept: all of them are noise then. */
        bool same = n == sb_tensor_count(outputs[k]);

        if (!sb_dtype_is_float(want[k].dtype) ||
            outputs[k]->dtype != want[k].dtype)
            continue;
        for (int64_t i = 0; i < n; i++) {
            double a = sb_eval_element(&want[k], i);
            double d = same ? a - sb_eval_element(outputs[k], i) : a;

            sums[2 * k] += d * d;
            sums[2 * k + 1] += a * a;
        }
    }
}

sb_status sb_measure_error(const sb_measure *m, const double *sums,
                           double *error)
{
    double sum = 0, n = 0;

    for (size_t k = 0; k < measure_graph(m)->n_outputs; k++)
        if (sums[2 * k + 1] > 0) {
            sum += sums[2 * k] / sums[2 * k + 1];
            n++;
        }
    if (n == 0)
        return sb_fail(m->ctx, SB_BAD_DATA,
                       "the float network has only zeros or no numbers at its "
                       "outputs for all samples, from which no error can be "
                       "told: give samples like those it was trained on");
    *error = sum / n;
    return SB_OK;
}

sb_status sb_measure_run(sb_measure *m, const uint32_t *choices, double *error)
{
    size_t n_in = measure_graph(m)->n_inputs;
    double *sums =
        sb_alloc(m->ctx, 2 * measure_graph(m)->n_outputs + 1, sizeof *sums);
    sb_status status = sums ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; i < m->n_layers; i++) {
        void *data = m->layers[i].weights[choices[i]].data;
        if (m->states[i].t.data == data && m->states[i].version > 0)
            continue;
        m->states[i].t.data = data;
        m->states[i].version++;
    }
    for (size_t b = 0; b < m->n_batches && status == SB_OK; b++) {
        const sb_tensor *t = m->batches[b].tensors;
        for (size_t i = 0; i < n_in; i++)
            m->in[i] = t[i].data ? &t[i] : NULL;
        status = sb_exec_run(m->exec, m->in, NULL, m->outputs);
        if (status == SB_OK)
            sb_measure_add(m, b, m->outputs, sums);
    }
    if (status == SB_OK)
        status = sb_measure_error(m, sums, error);
    m->runs++;
    sb_free(m->ctx, sums);
    return status;
}
