/* Empirical bias correction (M. Nagel et al., Data-free quantization through
 * weight equalization and bias correction, arXiv 1906.04721, section 4.2).
 *
 * Rounding shifts the mean of what a layer computes; adding the difference to
 * its bias takes the shift away.  Layers are corrected through the quantized
 * network: what a layer reads was already corrected.  One pass over the batches
 * does all layers.  All batches run in float first, which gives the means that
 * are wanted (ChannelMean), so that only one network has its weights packed;
 * then quantized, where CorrectMean behind each layer adds what was missing on
 * average so far; without a configuration of the user as far as samples agree
 * on it. */
#include "ops/quantized/channel_mean.h"
#include "quant/calibrate/replay.h"
#include "quant/correct/correct.h"
#include "quant/model/instrument.h"
#include "quant/model/overlay.h"
#include "quant/place/place.h"
#include "tensor/spill.h"

typedef struct corrector {
    sb_quant_model *qm;
    sb_bias_layer *layers;
    size_t n;
    sb_state *states; /* what was seen, and of how many samples */
    sb_exec_state *bound;
    sb_value_id *wanted; /* input of the quantized graph, of each layer */
    sb_spill *spill;
    sb_spilled_tensor *means; /* of the layers, batch by batch */
    sb_replay plain, quantized;
} corrector;

/* Was the bias fitted with its layer? */
static bool correct_is_fitted(const sb_quant_model *qm, sb_value_id bias)
{
    return sb_overlay_constant(qm, bias) !=
           &sb_graph_value(qm->graph, bias)->constant;
}

static sb_status correct_find(corrector *c)
{
    const sb_graph *g = c->qm->graph;

    c->layers = sb_alloc(c->qm->ctx, g->n_nodes + 1, sizeof *c->layers);
    if (!c->layers)
        return SB_NO_MEMORY;
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (sb_bias_layer_find(g, id, &c->layers[c->n]) &&
            !correct_is_fitted(c->qm, c->layers[c->n].bias) &&
            (sb_quantizer_on(c->qm, id, 0) || sb_quantizer_on(c->qm, id, 1)))
            c->n++;
    return SB_OK;
}

/* ---- graphs ------------------------------------------------------------- */

static sb_status correct_add_value(sb_graph *g, sb_shape shape,
                                   sb_value_id *out)
{
    SB_TRY(sb_graph_add_value(g, NULL, out));
    sb_graph_value(g, *out)->type =
        (sb_type){.dtype = SB_DTYPE_F32, .shape = shape};
    return SB_OK;
}

/* Of means for each sample, of what was seen, of a count. */
static sb_shape correct_shape(const sb_bias_layer *l, size_t k)
{
    if (k == 2)
        return (sb_shape){.rank = 1, .dim = {1}};
    return (sb_shape){.rank = 2,
                      .dim = {k == 0 ? SB_DIM_UNKNOWN : 2, l->channels}};
}

/* `sure`: what may be chance is not corrected. */
static sb_status correct_add_node(sb_graph *g, const sb_bias_layer *l,
                                  bool sure, sb_node_spec *spec)
{
    const sb_attr attrs[] = {
        {.name = "axis", .type = SB_ATTR_INT, .i = l->axis},
        {.name = "sure", .type = SB_ATTR_INT, .i = sure}};
    sb_node_id made = SB_NONE;

    spec->domain = SB_FUSED_DOMAIN;
    spec->attrs = attrs;
    spec->n_attrs = SB_COUNT(attrs);
    spec->position =
        sb_graph_node(g, sb_graph_value(g, l->result)->producer)->position;
    return sb_graph_add_node(g, spec, &made);
}

/* The float network with the means of all layers as further outputs. */
static sb_status correct_float_graph(const corrector *c, sb_graph *g)
{
    for (size_t i = 0; i < c->n; i++) {
        const sb_bias_layer *l = &c->layers[i];
        sb_value_id mean = SB_NONE;
        sb_node_spec spec = {.op = "ChannelMean",
                             .inputs = &l->result,
                             .n_in = 1,
                             .outputs = &mean,
                             .n_out = 1};

        SB_TRY(correct_add_value(g, correct_shape(l, 0), &mean));
        SB_TRY(correct_add_node(g, l, false, &spec));
        SB_TRY(sb_graph_add_output(g, mean));
    }
    return SB_OK;
}

/* CorrectMean behind a layer of the quantized network. */
static sb_status correct_put(const corrector *c, sb_graph *g, size_t i)
{
    const sb_bias_layer *l = &c->layers[i];
    sb_value_id in[4] = {l->result}, out[3];
    bool done = false;

    for (size_t k = 1; k < 4; k++)
        SB_TRY(correct_add_value(g, correct_shape(l, k - 1), &in[k]));
    SB_TRY(sb_graph_add_value(g, NULL, &out[0]));
    sb_graph_value(g, out[0])->type = sb_graph_value(g, l->result)->type;
    for (size_t k = 1; k < 3; k++)
        SB_TRY(correct_add_value(g, correct_shape(l, k), &out[k]));
    SB_TRY(sb_graph_replace_value(g, l->result, out[0], &done));
    sb_node_spec spec = {.op = "CorrectMean",
                         .inputs = in,
                         .n_in = SB_COUNT(in),
                         .outputs = out,
                         .n_out = SB_COUNT(out)};
    SB_TRY(correct_add_node(g, l, !c->qm->asked, &spec));
    c->wanted[i] = in[1];
    for (size_t k = 0; k < 2; k++)
        c->bound[2 * i + k] = (sb_exec_state){
            .in = in[2 + k], .out = out[1 + k], .state = &c->states[2 * i + k]};
    return SB_OK;
}

/* The quantized network: inputs of the model, what is wanted of each layer,
 * then the states. */
static sb_status correct_quantized_graph(const corrector *c, sb_graph *g)
{
    for (size_t i = 0; i < c->n; i++)
        SB_TRY(correct_put(c, g, i));
    for (size_t i = 0; i < c->n; i++)
        SB_TRY(sb_graph_add_input(g, c->wanted[i]));
    for (size_t i = 0; i < 2 * c->n; i++) {
        SB_TRY(sb_graph_add_input(g, c->bound[i].in));
        SB_TRY(sb_graph_add_output(g, c->bound[i].out));
    }
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

static sb_status correct_make_states(corrector *c)
{
    c->states = sb_alloc(c->qm->ctx, 2 * c->n + 1, sizeof *c->states);
    c->bound = sb_alloc(c->qm->ctx, 2 * c->n + 1, sizeof *c->bound);
    c->wanted = sb_alloc(c->qm->ctx, c->n + 1, sizeof *c->wanted);
    if (!c->states || !c->bound || !c->wanted)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < 2 * c->n; i++) {
        const int64_t dims[] = {2, c->layers[i / 2].channels}, one = 1;

        c->states[i].t = i % 2 == 0 ? sb_tensor_make(SB_DTYPE_F32, 2, dims)
                                    : sb_tensor_make(SB_DTYPE_F32, 1, &one);
        SB_TRY(sb_tensor_alloc(c->qm->ctx, &c->states[i].t));
    }
    return SB_OK;
}

static sb_status correct_open_plain(corrector *c)
{
    const sb_quant_model *qm = c->qm;
    sb_graph *g = NULL;

    SB_TRY(sb_spill_create(qm->ctx, qm->state.calibration.memory_limit,
                           &c->spill));
    c->means =
        sb_alloc(qm->ctx, c->n * sb_replay_batches(qm) + 1, sizeof *c->means);
    if (!c->means)
        return SB_NO_MEMORY;
    SB_TRY(sb_replay_float(qm, &g));
    sb_status status = correct_float_graph(c, g);
    if (status != SB_OK) {
        sb_graph_free(g);
        return status;
    }
    return sb_replay_open(c->qm, g, NULL, &c->plain);
}

static sb_status correct_open_quantized(corrector *c)
{
    sb_graph *g = NULL;
    sb_exec_options opt = {.n_states = 2 * c->n};

    SB_TRY(correct_make_states(c));
    opt.states = c->bound;
    SB_TRY(sb_replay_quantized(c->qm, &g));
    sb_status status = correct_quantized_graph(c, g);
    if (status != SB_OK) {
        sb_graph_free(g);
        return status;
    }
    return sb_replay_open(c->qm, g, &opt, &c->quantized);
}

/* A batch in float; `done` were before it. */
static sb_status correct_run_plain(corrector *c, size_t batch, size_t done)
{
    SB_TRY(sb_replay_run(&c->plain, batch));
    for (size_t k = 0; k < c->n; k++)
        SB_TRY(sb_spill_put(c->spill,
                            c->plain.outputs[c->qm->graph->n_outputs + k],
                            &c->means[done * c->n + k]));
    return SB_OK;
}

static sb_status correct_run_quantized(corrector *c, size_t batch, size_t done)
{
    const sb_tensor **wanted = &c->quantized.inputs[c->qm->graph->n_inputs];
    sb_tensor *t = sb_alloc(c->qm->ctx, c->n, sizeof *t);
    sb_status status = t ? SB_OK : SB_NO_MEMORY;

    for (size_t k = 0; k < c->n && status == SB_OK; k++) {
        status = sb_spill_get(c->spill, &c->means[done * c->n + k], &t[k]);
        wanted[k] = &t[k];
    }
    if (status == SB_OK)
        status = sb_replay_run(&c->quantized, batch);
    for (size_t k = 0; t && k < c->n; k++)
        sb_tensor_drop(&t[k]);
    sb_free(c->qm->ctx, t);
    return status;
}

static sb_status correct_run(corrector *c,
                             sb_status (*run)(corrector *, size_t, size_t))
{
    size_t n = sb_batch_store_count(c->qm->state.batches), done = 0;

    for (size_t i = 0; i < n; i++) {
        if (!sb_replay_is_for(c->qm, SB_REPLAY_USED, i))
            continue;
        SB_TRY(
            sb_progress(c->qm->ctx, "correct", done, sb_replay_batches(c->qm)));
        SB_TRY(run(c, i, done++));
    }
    return SB_OK;
}

static sb_status correct_both(corrector *c)
{
    SB_TRY(correct_open_plain(c));
    SB_TRY(correct_run(c, correct_run_plain));
    sb_replay_close(&c->plain);
    SB_TRY(correct_open_quantized(c));
    return correct_run(c, correct_run_quantized);
}

static sb_status correct_lay_over(const corrector *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const sb_bias_layer *l = &c->layers[i];
        const sb_tensor *was = sb_overlay_constant(c->qm, l->bias);
        const float *seen = c->states[2 * i].t.data;
        double count = (double)*(const float *)c->states[2 * i + 1].t.data;
        sb_tensor t = sb_tensor_make(SB_DTYPE_F32, was->rank, was->dims);

        SB_TRY(sb_tensor_alloc(c->qm->ctx, &t));
        for (int64_t k = 0; k < l->channels; k++)
            ((float *)t.data)[k] = (float)sb_tensor_get_f64(was, k) +
                                   sb_correct_mean_shift(seen, l->channels, k,
                                                         count, !c->qm->asked);
        sb_overlay_set(c->qm, l->bias, &t);
        sb_tensor_drop(&t);
    }
    return SB_OK;
}

sb_status sb_correct_biases(sb_quant_model *qm, size_t *layers)
{
    corrector c = {.qm = qm};
    sb_status status = correct_find(&c);

    if (status == SB_OK && c.n > 0)
        status = correct_both(&c);
    if (status == SB_OK)
        status = correct_lay_over(&c);
    sb_replay_close(&c.plain);
    sb_replay_close(&c.quantized);
    for (size_t i = 0; c.states && i < 2 * c.n; i++)
        if (c.states[i].t.buf)
            sb_tensor_drop(&c.states[i].t);
    for (size_t i = 0; c.means && i < c.n * sb_replay_batches(qm); i++)
        sb_spill_drop(c.spill, &c.means[i]);
    sb_spill_free(c.spill);
    *layers = c.n;
    sb_free(qm->ctx, c.means);
    sb_free(qm->ctx, c.states);
    sb_free(qm->ctx, c.bound);
    sb_free(qm->ctx, c.wanted);
    sb_free(qm->ctx, c.layers);
    return status;
}
