/* The first layers in float.
 *
 * The first convolution reads pixels, and its channels are as different as
 * edges, colors and brightness are: one scale for all of them loses more there
 * than anywhere else, and all that follows is made of what is left.  Where its
 * result goes through a function that is not folded into it (SiLU, HardSwish,
 * LeakyRelu) a runtime may be as fast with the layer, the function, and a
 * depthwise layer behind them in float (target.h: fast_float). */
#include "ops/op_registry.h"
#include "passes/rewrite.h"
#include "quant/correct/correct.h"
#include "quant/place/place.h"

/* What a node belongs to; the greatest of what it reads. */
typedef enum start_part {
    START_INPUTS, /* no layer leads there */
    START_FIRST,  /* the first layer, and what follows it */
    START_SECOND, /* a depthwise layer behind that, and what follows it */
    START_REST,
} start_part;

typedef struct starter {
    const sb_quant_model *qm;
    start_part *of; /* by node */
    size_t layers, others;
    bool fits; /* all first layers are such as can begin it */
} starter;

static start_part start_source(const starter *s, const sb_node *node)
{
    const sb_graph *g = s->qm->graph;
    start_part part = START_INPUTS;

    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++) {
        if (node->inputs[i] == SB_NONE)
            continue;
        sb_node_id from = sb_graph_value(g, node->inputs[i])->producer;
        if (from != SB_NONE && s->of[from] > part)
            part = s->of[from];
    }
    return part;
}

/* A convolution on integers whose own result is quantized, before any
 * function. */
static bool start_begins(const sb_quant_model *qm, sb_node_id id)
{
    const sb_node *node = sb_graph_node(qm->graph, id);

    return sb_node_flag(node, SB_OP_CONV) && sb_quantizer_on(qm, id, 0) &&
           sb_quantizer_on(qm, id, 1) &&
           qm->place.of_value[node->outputs[0]].first != SB_NONE;
}

static void start_mark(starter *s, sb_node_id id)
{
    const sb_node *node = sb_graph_node(s->qm->graph, id);
    start_part from = start_source(s, node);

    s->of[id] = from;
    if (sb_node_role(node) != SB_ROLE_WEIGHTED ||
        !sb_is_const(s->qm->graph, sb_node_in(node, 1)))
        return;
    if (from == START_INPUTS) {
        s->of[id] = START_FIRST;
        s->fits = s->fits && start_begins(s->qm, id);
    } else if (from == START_FIRST && sb_is_depthwise(s->qm->graph, node, 1)) {
        s->of[id] = START_SECOND;
    } else {
        s->of[id] = START_REST;
    }
    if (s->of[id] == START_REST)
        s->others++;
    else
        s->layers++;
}

/* Switches off what only nodes before the rest read. */
static void start_leave(const starter *s)
{
    const sb_placement *p = &s->qm->place;

    for (size_t i = 0; i < p->n_quantizers; i++) {
        const sb_quantizer *q = &p->quantizers[i];
        bool all = !q->at_output && q->n_uses > 0;

        for (size_t k = 0; k < q->n_uses; k++)
            all = all && s->of[q->uses[k].node] != START_REST;
        if (all)
            sb_quantizer_state_of(s->qm, q)->left_out = true;
    }
}

bool sb_float_start_wanted(const sb_quant_model *qm)
{
    return qm->target->fast_float && qm->choose_ranges && qm->known.n == 0;
}

sb_status sb_float_start(sb_quant_model *qm, size_t *layers)
{
    const size_t few = 4; /* less than a fifth of all layers */
    starter s = {.qm = qm, .fits = true};
    sb_node_id *order = NULL;
    size_t n = 0;

    *layers = 0;
    s.of = sb_alloc(qm->ctx, qm->graph->n_nodes + 1, sizeof *s.of);
    sb_status status =
        s.of ? sb_graph_order(qm->graph, &order, &n) : SB_NO_MEMORY;
    for (size_t i = 0; i < n && status == SB_OK; i++)
        start_mark(&s, order[i]);
    if (status == SB_OK && s.fits && s.others > few * s.layers) {
        start_leave(&s);
        *layers = s.layers;
    }
    sb_free(qm->ctx, order);
    sb_free(qm->ctx, s.of);
    return status;
}
