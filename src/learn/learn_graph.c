/* The learn graph: a copy of the network with its parameters as inputs, in
 * training form, with the loss and the gradients behind it.
 *
 * Parameters become inputs before anything is simplified: two biases that are
 * both zero at the start must not become one, and names must stay those of the
 * file. */
#include "learn/learn_graph.h"

#include <string.h>

#include "ops/grad/grad.h"
#include "ops/learn/loss.h"
#include "passes/learn/recompute.h"
#include "passes/learn/train_mode.h"
#include "passes/pass.h"

/* ---- graphs with states ------------------------------------------------- */

void sb_bound_graph_free(sb_bound_graph *b)
{
    if (!b->graph)
        return;
    sb_ctx *ctx = b->graph->ctx;
    sb_exec_free(b->exec);
    sb_free(ctx, b->states);
    sb_free(ctx, b->inputs);
    sb_free(ctx, b->outputs);
    sb_graph_free(b->graph);
    *b = (sb_bound_graph){0};
}

sb_status sb_bound_graph_bind(sb_bound_graph *b, sb_value_id in,
                              sb_value_id out, sb_state *state)
{
    SB_TRY(sb_grow(b->graph->ctx, &b->states, &b->cap_states, b->n_states + 1,
                   sizeof *b->states));
    b->states[b->n_states++] = (sb_exec_state){in, out, state};
    return SB_OK;
}

sb_status sb_bound_graph_open(sb_bound_graph *b, const sb_exec_options *opt)
{
    sb_ctx *ctx = b->graph->ctx;
    sb_exec_options with_states = *opt;

    with_states.states = b->states;
    with_states.n_states = b->n_states;
    b->inputs = sb_alloc(ctx, b->graph->n_inputs + 1, sizeof(*b->inputs));
    b->outputs = sb_alloc(ctx, b->graph->n_outputs + 1, sizeof(*b->outputs));
    if (!b->inputs || !b->outputs)
        return SB_NO_MEMORY;
    return sb_exec_create(ctx, b->graph, &with_states, &b->exec);
}

sb_status sb_bound_graph_run(sb_bound_graph *b)
{
    return sb_exec_run(b->exec, b->inputs, NULL, b->outputs);
}

/* ---- the loss ----------------------------------------------------------- */

typedef struct learn_build {
    sb_graph *g;
    sb_store *store;
    const sb_learn_options *opt;
    const sb_pipe_stage *stage; /* NULL: all of the network */
    sb_bound_graph *out;
    sb_learn_places *places;
    size_t n_outputs; /* of the network; features behind them */
    sb_value_id x;    /* what the loss is of */
    int axis;         /* of its classes */
    sb_value_id loss;
    sb_value_id *wrt, *grads; /* by trained parameter */
    size_t n_wrt;
} learn_build;

static sb_status learn_find_output(learn_build *b)
{
    const sb_graph *g = b->g;
    const char *name = b->opt->loss_output;

    for (size_t i = 0; i < b->n_outputs; i++)
        if (name ? strcmp(sb_graph_value(g, g->outputs[i])->name, name) == 0
                 : b->n_outputs == 1) {
            b->x = g->outputs[i];
            return SB_OK;
        }
    if (name)
        return sb_fail(g->ctx, SB_BAD_ARG, "the model has no output '%s'",
                       name);
    return sb_fail(g->ctx, SB_BAD_ARG,
                   "the model has %zu outputs, '%s' and others: say which one "
                   "the loss is of (OUTPUT of training, --loss-output of run, "
                   "loss_output of a learner)",
                   b->n_outputs,
                   b->n_outputs ? sb_graph_value(g, g->outputs[0])->name : "");
}

/* Losses are of float32: what a Cast at the end makes smaller (a network with
 * outputs of float16, computed in float32) is taken in front of it. */
static sb_status learn_skip_cast(learn_build *b)
{
    const sb_node *node = sb_graph_producer(b->g, b->x);
    sb_dtype dtype = sb_graph_value(b->g, b->x)->type.dtype;

    if (node && sb_node_is(node, "Cast") && sb_dtype_is_float(dtype) &&
        sb_graph_value(b->g, node->inputs[0])->type.dtype == SB_DTYPE_F32)
        b->x = node->inputs[0];
    else if (dtype != SB_DTYPE_F32 && dtype != SB_DTYPE_NONE)
        return sb_fail(b->g->ctx, SB_UNSUPPORTED,
                       "output '%s' is of type %s: a loss is of float",
                       sb_graph_value(b->g, b->x)->name,
                       sb_dtype_get(dtype)->onnx);
    return SB_OK;
}

/* Losses over classes take logits, so a Softmax at the end is left out; for BCE
 * a Sigmoid is. */
static void learn_skip_softmax(learn_build *b)
{
    const sb_node *node = sb_graph_producer(b->g, b->x);
    bool classes = b->opt->loss == SB_LEARN_LOSS_CROSS_ENTROPY ||
                   b->opt->loss == SB_LEARN_LOSS_KL;

    b->axis = b->opt->class_axis ? b->opt->class_axis : 1;
    if (!node)
        return;
    if (b->opt->loss == SB_LEARN_LOSS_BCE && sb_node_is(node, "Sigmoid"))
        b->x = node->inputs[0];
    if (!classes ||
        !(sb_node_is(node, "Softmax") || sb_node_is(node, "LogSoftmax")))
        return;
    if (!b->opt->class_axis)
        b->axis = (int)sb_node_int(node, "axis", -1);
    b->x = node->inputs[0];
}

static sb_status learn_add_target(learn_build *b, sb_value_id *out)
{
    sb_graph *g = b->g;
    bool labels = b->opt->loss == SB_LEARN_LOSS_CROSS_ENTROPY;
    sb_type type = sb_graph_value(g, b->x)->type;
    sb_shape *shape = &type.shape;
    int axis = b->axis < 0 ? b->axis + shape->rank : b->axis;

    if (shape->rank < 0)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "the rank of output '%s' is not known",
                       sb_graph_value(g, b->x)->name);
    if (labels && axis >= 0 && axis < shape->rank) {
        type.dtype = SB_DTYPE_I64;
        shape->rank--;
        for (int i = axis; i < shape->rank; i++)
            shape->dim[i] = shape->dim[i + 1];
    }
    SB_TRY(sb_graph_add_value_as(g, "target", out));
    sb_graph_value(g, *out)->type = type;
    b->places->target = g->n_inputs;
    b->places->target_dtype = type.dtype;
    return sb_graph_add_input(g, *out);
}

/* ---- features ----------------------------------------------------------- */

/* Features are outputs while the graph is simplified, so that they stay. */
static sb_status learn_keep_features(learn_build *b)
{
    sb_graph *g = b->g;

    b->n_outputs = g->n_outputs;
    for (size_t i = 0; i < b->opt->n_features; i++) {
        const char *name = b->opt->features[i];
        sb_value_id v = sb_graph_find_value(g, name);

        if (v == SB_NONE || sb_graph_value(g, v)->is_constant ||
            sb_graph_value(g, v)->type.dtype != SB_DTYPE_F32)
            return sb_fail(g->ctx, SB_BAD_ARG,
                           "the model has no result '%s' of floats to learn",
                           name);
        SB_TRY(sb_graph_add_output(g, v));
    }
    return SB_OK;
}

/* Its mean squared difference from an input of the same shape. */
static sb_status learn_add_feature(learn_build *b, size_t i, double weight)
{
    sb_graph *g = b->g;
    const sb_loss_options mse = {.kind = SB_LOSS_MSE};
    sb_value_id x = g->outputs[b->n_outputs + i], target, loss = SB_NONE;
    sb_grad to = {.graph = g};

    SB_TRY(sb_graph_add_value_as(g, "feature", &target));
    sb_graph_value(g, target)->type = sb_graph_value(g, x)->type;
    SB_TRY(sb_graph_add_input(g, target));
    SB_TRY(sb_graph_add_loss(g, &mse, x, target, &loss));
    loss = sb_emit2(&to, "Mul", loss, sb_grad_scalar(&to, loss, weight));
    b->loss = sb_emit2(&to, "Add", b->loss, loss);
    return to.status;
}

static sb_status learn_add_features(learn_build *b)
{
    size_t n = b->opt->n_features;

    b->places->features = b->g->n_inputs;
    for (size_t i = 0; i < n; i++)
        SB_TRY(learn_add_feature(b, i, b->opt->feature_weight / (double)n));
    return SB_OK;
}

static sb_status learn_add_loss(learn_build *b)
{
    static const sb_loss_kind kinds[] = {
        [SB_LEARN_LOSS_CROSS_ENTROPY] = SB_LOSS_CROSS_ENTROPY,
        [SB_LEARN_LOSS_MSE] = SB_LOSS_MSE,
        [SB_LEARN_LOSS_KL] = SB_LOSS_KL,
        [SB_LEARN_LOSS_L1] = SB_LOSS_L1,
        [SB_LEARN_LOSS_SMOOTH_L1] = SB_LOSS_SMOOTH_L1,
        [SB_LEARN_LOSS_BCE] = SB_LOSS_BCE,
    };
    sb_value_id target = SB_NONE;

    SB_TRY(learn_find_output(b));
    SB_TRY(learn_skip_cast(b));
    learn_skip_softmax(b);
    SB_TRY(learn_add_target(b, &target));
    const sb_loss_options opt = {
        .kind = kinds[b->opt->loss],
        .axis = b->axis,
        .smoothing = (float)b->opt->label_smoothing,
        .temperature = (float)b->opt->temperature,
        .ignore_index = b->opt->ignore_index,
        .beta = 1,
    };
    SB_TRY(sb_graph_add_loss(b->g, &opt, b->x, target, &b->loss));
    return learn_add_features(b);
}

/* ---- a loss of the caller ----------------------------------------------- */

/* Which outputs it may be of: floats, and only the one that is named. */
bool sb_learn_is_custom(const sb_graph *g, const sb_learn_options *opt,
                        size_t i)
{
    const sb_value *v = sb_graph_value(g, g->outputs[i]);

    return v->type.dtype == SB_DTYPE_F32 &&
           (!opt->loss_output || strcmp(v->name, opt->loss_output) == 0);
}

/* sum(y dy), of which dy are the gradients; the sum itself is not computed. */
static sb_status learn_add_custom(learn_build *b)
{
    sb_graph *graph = b->g;
    sb_ctx *ctx = graph->ctx;
    size_t n = 0;
    sb_value_id *y = sb_alloc(ctx, 2 * graph->n_outputs + 1, sizeof *y);
    sb_value_id *dy = y ? y + graph->n_outputs : NULL;
    sb_grad g = {.graph = graph};

    if (!y)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < graph->n_outputs; i++)
        if (sb_learn_is_custom(graph, b->opt, i))
            y[n++] = graph->outputs[i];
    if (n > 0)
        (void)sb_emit(&g, &(sb_emit_spec){.op = "OutputGrad",
                                          .more_in = y,
                                          .n_in = n,
                                          .n_out = n,
                                          .more_out = dy});
    b->loss = SB_NONE;
    for (size_t i = 0; i < n; i++) {
        sb_value_id sum =
            sb_emit_with(&g, "ReduceSum", sb_emit2(&g, "Mul", y[i], dy[i]),
                         SB_NONE, SB_EMIT_INT("keepdims", 0));
        b->loss = i ? sb_emit2(&g, "Add", b->loss, sum) : sum;
    }
    sb_free(ctx, y);
    if (n == 0)
        return sb_fail(ctx, SB_BAD_ARG, "the model has no output of floats%s%s",
                       b->opt->loss_output ? " named " : "",
                       b->opt->loss_output ? b->opt->loss_output : "");
    return g.status;
}

static void learn_find_pause(const learn_build *b)
{
    const sb_op_def *row = sb_op_find(SB_FUSED_DOMAIN, "OutputGrad");

    for (sb_node_id id = 0; id < b->g->n_nodes; id++)
        if (!sb_graph_node(b->g, id)->dead &&
            sb_op_of(sb_graph_node(b->g, id)) == row)
            b->places->pause = id;
}

/* ---- gradients and statistics ------------------------------------------- */

static sb_status learn_add_gradients(learn_build *b)
{
    const sb_store *store = b->store;
    sb_ctx *ctx = b->g->ctx;
    bool used = false;

    b->wrt = sb_alloc(ctx, store->n + 2, sizeof *b->wrt);
    b->grads = sb_alloc(ctx, store->n + 2, sizeof *b->grads);
    if (!b->wrt || !b->grads)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < store->n; i++)
        if (sb_parameter_has(&store->all[i], SB_STORE_GRADIENT))
            b->wrt[b->n_wrt++] =
                sb_graph_find_value(b->g, store->all[i].info.name);
    if (b->stage && b->stage->in)
        b->wrt[b->n_wrt++] = sb_graph_find_value(b->g, b->stage->in);
    for (size_t i = 0; i < b->n_wrt; i++) {
        b->grads[i] = SB_NONE;
        used = used || sb_graph_value(b->g, b->wrt[i])->n_uses > 0;
    }
    if (!used && b->stage) /* the first stage, and all is learned behind it */
        return SB_OK;
    return sb_graph_gradient(b->g, b->loss, b->wrt, b->n_wrt, b->grads);
}

/* The output that is the next value of a statistic; SB_NONE: it stays. */
static sb_value_id learn_next_of(const sb_graph *g, sb_value_id v)
{
    const sb_value *value = sb_graph_value(g, v);

    for (uint32_t u = 0; u < value->n_uses; u++) {
        const sb_node *node = sb_graph_node(g, value->uses[u].node);
        const sb_op_def *op = sb_op_of(node);
        uint32_t i = value->uses[u].input;
        if (op && i < 32 && (op->statistics >> i & 1) && i < node->n_out &&
            node->domain[0])
            return node->outputs[i];
    }
    return SB_NONE;
}

/* What goes to the stages beside this one. */
static sb_status learn_set_hidden(learn_build *b, sb_value_id out)
{
    sb_value_id grad = b->stage->in ? b->grads[b->n_wrt - 1] : SB_NONE;

    if (grad != SB_NONE) {
        b->places->hidden_gradient = b->g->n_outputs;
        SB_TRY(sb_graph_add_output(b->g, grad));
    }
    if (!b->stage->out)
        return SB_OK;
    b->places->hidden_out = b->g->n_outputs;
    return sb_graph_add_output(b->g, out);
}

/* Loss, output, gradients, statistics: the outputs, and what they go to. */
static sb_status learn_set_outputs(learn_build *b)
{
    sb_graph *g = b->g;
    sb_value_id first = g->outputs[0];
    size_t at = 0;

    sb_graph_clear_outputs(g);
    if (b->opt->loss != SB_LEARN_LOSS_CUSTOM) {
        SB_TRY(sb_graph_add_output(g, b->loss));
        SB_TRY(sb_graph_add_output(g, b->x));
    }
    for (size_t i = 0; i < b->store->n; i++) {
        sb_parameter *p = &b->store->all[i];
        if (!sb_parameter_has(p, SB_STORE_GRADIENT))
            continue;
        sb_value_id grad = b->grads[at++];
        p->info.gradient =
            grad == SB_NONE ? NULL : &p->kept[SB_STORE_GRADIENT].t;
        if (grad != SB_NONE)
            SB_TRY(sb_graph_add_output(g, grad));
    }
    for (size_t i = 0; i < b->store->n; i++) {
        sb_parameter *p = &b->store->all[i];
        sb_value_id next = SB_NONE;
        if (sb_parameter_has(p, SB_STORE_NEXT))
            next = learn_next_of(g, sb_graph_find_value(g, p->info.name));
        p->next_made = next != SB_NONE;
        if (next != SB_NONE)
            SB_TRY(sb_graph_add_output(g, next));
    }
    return b->stage ? learn_set_hidden(b, first) : SB_OK;
}

/* Passes may change values, but neither names of inputs nor the order of
 * outputs. */
static sb_status learn_bind(learn_build *b)
{
    sb_graph *g = b->g;
    size_t at =
        b->opt->loss == SB_LEARN_LOSS_CUSTOM ? 0 : SB_LEARN_OUT_GRADIENTS;

    for (size_t i = 0; i < b->store->n; i++) {
        sb_parameter *p = &b->store->all[i];
        sb_value_id v = sb_graph_find_value(g, p->info.name);
        if (p->info.trained && v != SB_NONE && sb_graph_value(g, v)->is_input)
            SB_TRY(sb_bound_graph_bind(b->out, v, SB_NONE,
                                       &p->kept[SB_STORE_VALUE]));
    }
    for (size_t i = 0; i < b->store->n; i++)
        if (b->store->all[i].info.gradient)
            SB_TRY(
                sb_bound_graph_bind(b->out, SB_NONE, g->outputs[at++],
                                    &b->store->all[i].kept[SB_STORE_GRADIENT]));
    for (size_t i = 0; i < b->store->n; i++)
        if (b->store->all[i].next_made)
            SB_TRY(sb_bound_graph_bind(b->out, SB_NONE, g->outputs[at++],
                                       &b->store->all[i].kept[SB_STORE_NEXT]));
    return SB_OK;
}

static size_t learn_input_at(const sb_graph *g, const char *name)
{
    for (size_t i = 0; i < g->n_inputs; i++)
        if (strcmp(sb_graph_value(g, g->inputs[i])->name, name) == 0)
            return i;
    return SIZE_MAX;
}

static sb_status learn_run_build(learn_build *b, bool lowered)
{
    const char *mode = b->opt->dropout ? "train_mode" : "eval_mode,train_mode";

    if (b->stage)
        SB_TRY(sb_pipe_stage_cut(b->g, b->stage));
    SB_TRY(learn_keep_features(b));
    SB_TRY(sb_store_lift(b->store, b->g, b->opt->norm));
    SB_TRY(sb_passes_run(b->g, mode, NULL, NULL, NULL));
    SB_TRY(sb_passes_run(b->g, "simplify,-flush_subnormals", NULL, NULL, NULL));
    SB_TRY(sb_passes_run(b->g, "unbind", NULL, NULL, NULL));
    SB_TRY(b->opt->loss == SB_LEARN_LOSS_CUSTOM ? learn_add_custom(b)
                                                : learn_add_loss(b));
    size_t n_forward = b->g->n_nodes;
    SB_TRY(learn_add_gradients(b));
    if (b->opt->recompute > 1)
        SB_TRY(sb_graph_recompute(b->g, n_forward, b->opt->recompute));
    SB_TRY(learn_set_outputs(b));
    if (lowered)
        SB_TRY(sb_passes_run(b->g, "learn", NULL, NULL, NULL));
    else
        (void)sb_graph_remove_dead(b->g);
    learn_find_pause(b);
    b->places->counter = learn_input_at(b->g, SB_COUNTER_INPUT);
    if (b->stage && b->stage->in)
        b->places->hidden = learn_input_at(b->g, b->stage->in);
    return learn_bind(b);
}

sb_status sb_learn_graph_build(const sb_graph *source, sb_store *store,
                               const sb_learn_options *opt,
                               const sb_pipe_stage *stage, bool lowered,
                               sb_bound_graph *out, sb_learn_places *places)
{
    sb_learn_options own = *opt;
    learn_build b = {.store = store,
                     .opt = &own,
                     .stage = stage,
                     .out = out,
                     .places = places};

    *out = (sb_bound_graph){0};
    *places = (sb_learn_places){.target = SIZE_MAX,
                                .counter = SIZE_MAX,
                                .target_dtype = SB_DTYPE_NONE,
                                .pause = SB_NONE,
                                .hidden = SIZE_MAX,
                                .hidden_gradient = SIZE_MAX,
                                .hidden_out = SIZE_MAX};
    if (stage && stage->out) {
        own.loss = SB_LEARN_LOSS_CUSTOM;
        own.loss_output = NULL;
    }
    SB_TRY(sb_graph_clone(source, &out->graph));
    b.g = out->graph;
    sb_status status = learn_run_build(&b, lowered);
    sb_free(b.g->ctx, b.wrt);
    sb_free(b.g->ctx, b.grads);
    if (status != SB_OK)
        sb_bound_graph_free(out);
    return status;
}

/* ---- inference ---------------------------------------------------------- */

sb_status sb_eval_graph_build(const sb_graph *source, const sb_store *store,
                              sb_bound_graph *out)
{
    *out = (sb_bound_graph){0};
    SB_TRY(sb_graph_clone(source, &out->graph));
    sb_status status = sb_store_lift(store, out->graph, SB_LEARN_NORM_BATCH);
    if (status == SB_OK)
        status = sb_passes_run(out->graph, "eval_mode", NULL, NULL, NULL);
    if (status == SB_OK)
        status = sb_passes_run(out->graph, "lower", NULL, NULL, NULL);
    if (status != SB_OK)
        sb_bound_graph_free(out);
    return status;
}
