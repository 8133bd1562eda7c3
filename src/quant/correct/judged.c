/* By which values the quantized network is compared with the float one.
 *
 * Its outputs, if they are floats whose shape does not depend on what the
 * samples hold.  Boxes that are left after suppression, or words up to the end
 * of a sentence, differ in number as soon as anything is rounded, and then say
 * nothing of how much; classes say it only where they change.  In their place
 * stands what they are computed from: going back from them, the first values
 * that can be compared and depend on what is quantized. */
#include "ops/op_registry.h"
#include "quant/calibrate/batch_store.h"
#include "quant/correct/correct.h"

typedef struct judged_finder {
    const sb_quant_model *qm;
    const sb_graph *g;  /* of qm */
    sb_fact *facts;     /* by value, for the shapes of one batch */
    bool *depends;      /* by value: on what is quantized */
    bool *seen;         /* by value */
    sb_value_id *queue; /* values to be gone back from */
    size_t n_queue;
    sb_judged *out;
} judged_finder;

/* What shapes follow from those of the first batch?  Not those that depend on
 * what it holds. */
static sb_status judged_infer(judged_finder *f)
{
    const sb_tensor *const *inputs = NULL;
    sb_graph *g = NULL;

    SB_TRY(sb_batch_store_get(f->qm->state.batches, 0, &inputs));
    SB_TRY(sb_graph_clone(f->g, &g));
    for (size_t i = 0; i < g->n_inputs; i++) {
        sb_value *v = sb_graph_value(g, g->inputs[i]);

        if (inputs[i])
            v->type = sb_fact_of(inputs[i]).type;
    }
    sb_status status = sb_graph_infer_facts(g, &f->facts);
    sb_graph_free(g);
    return status;
}

/* A quantized weight makes the results of its layer depend, too. */
static sb_status judged_depend(judged_finder *f)
{
    const sb_placement *place = &f->qm->place;
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_order(f->g, &order, &n));
    for (size_t i = 0; i < place->n_quantizers; i++)
        f->depends[place->quantizers[i].value] = true;
    for (size_t i = 0; i < n; i++) {
        const sb_node *node = sb_graph_node(f->g, order[i]);
        const sb_op_def *op = sb_op_of(node);
        bool depends = false;

        for (uint32_t k = 0; k < node->n_in + node->n_implicit; k++)
            depends |=
                node->inputs[k] != SB_NONE && f->depends[node->inputs[k]];
        if (!depends || (op && op->flags & SB_OP_SHAPE_ONLY))
            continue;
        for (uint32_t k = 0; k < node->n_out; k++)
            if (node->outputs[k] != SB_NONE)
                f->depends[node->outputs[k]] = true;
    }
    sb_free(f->g->ctx, order);
    return SB_OK;
}

static bool judged_compares(const judged_finder *f, sb_value_id v)
{
    const sb_type *type = &f->facts[v].type;

    return sb_output_form_takes(type->dtype) && sb_shape_known(&type->shape);
}

static sb_status judged_add(judged_finder *f, sb_value_id v)
{
    sb_judged *list = f->out;

    SB_TRY(
        sb_grow(f->g->ctx, &list->v, &list->cap, list->n + 1, sizeof *list->v));
    list->v[list->n++] = v;
    return SB_OK;
}

static void judged_queue(judged_finder *f, sb_value_id v)
{
    if (v == SB_NONE || f->seen[v] || !f->depends[v] ||
        !sb_graph_producer(f->g, v))
        return;
    f->seen[v] = true;
    f->queue[f->n_queue++] = v;
}

/* A slice for each class says less than all classes together. */
static sb_value_id judged_source(const judged_finder *f, const sb_node *node)
{
    const sb_op_def *op = sb_op_of(node);
    sb_value_id x = sb_node_in(node, 0);

    if (!op || !(op->quant == SB_ROLE_PASS || op->flags & SB_OP_PICKS))
        return SB_NONE;
    return x != SB_NONE && f->depends[x] && judged_compares(f, x) &&
                   sb_graph_producer(f->g, x)
               ? x
               : SB_NONE;
}

static sb_status judged_go_back(judged_finder *f)
{
    while (f->n_queue > 0) {
        sb_value_id v = f->queue[--f->n_queue];
        const sb_node *node = sb_graph_producer(f->g, v);
        bool compares = judged_compares(f, v);
        sb_value_id from = compares ? judged_source(f, node) : SB_NONE;

        if (from != SB_NONE)
            judged_queue(f, from);
        else if (compares)
            SB_TRY(judged_add(f, v));
        for (uint32_t i = 0; !compares && i < node->n_in + node->n_implicit;
             i++)
            judged_queue(f, node->inputs[i]);
    }
    return SB_OK;
}

/* A loop may run equally often for all samples, which no inference tells.  If
 * calibration kept the outputs: did output k have one shape in all batches of
 * as many samples as the first, and elements?  `first` is room for shapes. */
static sb_status judged_look(const judged_finder *f, sb_shape *first,
                             bool *steady)
{
    const sb_quant_state *state = &f->qm->state;
    size_t n = sb_batch_store_count(state->batches);
    const sb_tensor *const *outputs = NULL;

    if (!state->outputs || sb_batch_store_count(state->outputs) != n)
        return SB_OK;
    for (size_t i = 0; i < n; i++) {
        if (sb_batch_store_samples(state->batches, i) !=
            sb_batch_store_samples(state->batches, 0))
            continue;
        SB_TRY(sb_batch_store_get(state->outputs, i, &outputs));
        for (size_t k = 0; k < f->g->n_outputs; k++) {
            sb_shape shape = {.rank = -1};

            if (outputs[k] && sb_tensor_count(outputs[k]) > 0)
                shape = sb_fact_of(outputs[k]).type.shape;
            first[k] = i == 0 ? shape : first[k];
            steady[k] = (i == 0 || steady[k]) && sb_shape_known(&shape) &&
                        sb_shape_same(&shape, &first[k]);
        }
    }
    return SB_OK;
}

static sb_status judged_outputs(judged_finder *f, const bool *steady)
{
    for (size_t i = 0; i < f->g->n_outputs; i++) {
        const sb_value_id v = f->g->outputs[i];
        sb_dtype dtype = f->facts[v].type.dtype;
        bool is_float = dtype == SB_DTYPE_NONE || sb_output_form_takes(dtype);

        if (judged_compares(f, v) || (is_float && steady[i])) {
            f->seen[v] = true;
            SB_TRY(judged_add(f, v));
        } else if (is_float) {
            judged_queue(f, v);
        }
    }
    return judged_go_back(f);
}

static sb_status judged_find(judged_finder *f)
{
    const sb_graph *g = f->g;

    SB_TRY(judged_infer(f));
    SB_TRY(judged_depend(f));
    bool *steady = sb_alloc(g->ctx, g->n_outputs + 1, sizeof *steady);
    sb_shape *shapes = sb_alloc(g->ctx, g->n_outputs + 1, sizeof *shapes);
    sb_status status =
        steady && shapes ? judged_look(f, shapes, steady) : SB_NO_MEMORY;
    if (status == SB_OK)
        status = judged_outputs(f, steady);
    sb_free(g->ctx, steady);
    sb_free(g->ctx, shapes);
    SB_TRY(status);
    for (size_t i = 0; f->out->n == 0 && i < g->n_outputs; i++)
        judged_queue(f, g->outputs[i]); /* integers, if there is nothing else */
    SB_TRY(judged_go_back(f));
    for (size_t i = 0, n = f->out->n; n == 0 && i < g->n_outputs; i++)
        SB_TRY(judged_add(f, g->outputs[i]));
    return SB_OK;
}

sb_status sb_judged_values(const sb_quant_model *qm, sb_judged *out)
{
    const sb_graph *g = qm->graph;
    judged_finder f = {.qm = qm, .g = g, .out = out};

    f.depends = sb_alloc(qm->ctx, g->n_values + 1, sizeof *f.depends);
    f.seen = sb_alloc(qm->ctx, g->n_values + 1, sizeof *f.seen);
    f.queue = sb_alloc(qm->ctx, g->n_values + 1, sizeof *f.queue);
    sb_status status =
        f.depends && f.seen && f.queue ? judged_find(&f) : SB_NO_MEMORY;
    sb_free(qm->ctx, f.facts);
    sb_free(qm->ctx, f.depends);
    sb_free(qm->ctx, f.seen);
    sb_free(qm->ctx, f.queue);
    return status;
}
