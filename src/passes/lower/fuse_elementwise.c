/* Pass "fuse_elementwise": chains and trees of elementwise operators become one
 * node of the executor's own domain, which goes over memory once.
 *
 *     y = Mul(Sigmoid(Add(x, b)), x)   =>   y = ElementwiseChain(x, b)
 *
 * A group grows from its last node backwards: a node joins when all that read
 * its result are in the group already, so nothing leaves the group but the last
 * result, and the order of joining, backwards, is an order of computation.
 * Everything is float32 and of the last result's shape, except that an operand
 * may be a single element.  Comes after the fusions that want these operators
 * behind a convolution or a product.  For running only: the node means nothing
 * to other programs. */
#include <string.h>

#include "ops/elementwise/elementwise.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { MAX_INPUTS = SB_CHAIN_STEPS * SB_EW_INPUTS };

typedef struct group {
    sb_node_id node[SB_CHAIN_STEPS]; /* the last one first */
    size_t n;
    sb_value_id in[MAX_INPUTS]; /* from outside, each once */
    size_t n_in;
} group;

/* ---- what may join ------------------------------------------------------ */

static bool is_single(const sb_shape *s)
{
    for (int i = 0; i < s->rank; i++)
        if (s->dim[i] != 1)
            return false;
    return s->rank >= 0;
}

/* Can the node be a step whose result has the shape of `y`? */
static bool is_step(const sb_graph *g, const sb_node *node, sb_value_id y)
{
    const sb_op_def *op = sb_op_of(node);

    if (node->dead || !op || op->domain || node->n_out != 1 ||
        node->n_implicit > 0 || !sb_ew_chain_fn(op, node->n_in))
        return false;
    sb_value_id result = node->outputs[0];
    if (result == SB_NONE ||
        sb_graph_value(g, result)->type.dtype != SB_DTYPE_F32 ||
        !sb_value_same_shape(g, result, y))
        return false;
    bool full = false;
    for (uint32_t i = 0; i < node->n_in; i++) {
        sb_value_id x = node->inputs[i];
        bool single_only = sb_ew_chain_single(op, i);
        if (x == SB_NONE && single_only)
            continue;
        if (x == SB_NONE || sb_graph_value(g, x)->type.dtype != SB_DTYPE_F32)
            return false;
        bool single = is_single(&sb_graph_value(g, x)->type.shape);
        bool same = sb_value_same_shape(g, x, y);
        if (single_only ? !single : !single && !same)
            return false;
        full = full || same;
    }
    return full;
}

static bool in_group(const group *gr, sb_node_id node)
{
    for (size_t i = 0; i < gr->n; i++)
        if (gr->node[i] == node)
            return true;
    return false;
}

/* The node that makes `v`, if it may join; SB_NONE otherwise. */
static sb_node_id fuse_elementwise_joining(const sb_graph *g, const group *gr,
                                           sb_value_id v)
{
    sb_value_id y = sb_graph_node(g, gr->node[0])->outputs[0];

    if (v == SB_NONE)
        return SB_NONE;
    const sb_value *value = sb_graph_value(g, v);
    if (value->producer == SB_NONE || value->is_output ||
        in_group(gr, value->producer) ||
        !is_step(g, sb_graph_node(g, value->producer), y))
        return SB_NONE;
    for (uint32_t i = 0; i < value->n_uses; i++)
        if (!in_group(gr, value->uses[i].node))
            return SB_NONE;
    return value->producer;
}

static void fuse_elementwise_grow(const sb_graph *g, group *gr)
{
    bool grown = true;

    while (grown) {
        grown = false;
        for (size_t k = 0; k < gr->n; k++) {
            const sb_node *node = sb_graph_node(g, gr->node[k]);
            for (uint32_t i = 0; i < node->n_in; i++) {
                sb_node_id id =
                    fuse_elementwise_joining(g, gr, node->inputs[i]);
                if (id == SB_NONE || gr->n == SB_CHAIN_STEPS)
                    continue;
                gr->node[gr->n++] = id;
                grown = true;
            }
        }
    }
}

/* ---- writing the chain -------------------------------------------------- */

static void add_input(group *gr, sb_value_id v)
{
    for (size_t i = 0; i < gr->n_in; i++)
        if (gr->in[i] == v)
            return;
    gr->in[gr->n_in++] = v;
}

/* The inputs in the order in which steps read them, but a computed one of full
 * shape (or, if there is none, a constant one) first: the result has its shape
 * and may take its place. */
static bool collect_inputs(const sb_graph *g, group *gr)
{
    sb_value_id y = sb_graph_node(g, gr->node[0])->outputs[0], v;
    size_t first = MAX_INPUTS;

    for (size_t k = gr->n; k-- > 0;) {
        const sb_node *node = sb_graph_node(g, gr->node[k]);
        for (uint32_t i = 0; i < node->n_in; i++) {
            v = node->inputs[i];
            if (v != SB_NONE && (sb_graph_value(g, v)->producer == SB_NONE ||
                                 !in_group(gr, sb_graph_value(g, v)->producer)))
                add_input(gr, v);
        }
    }
    for (size_t i = gr->n_in; i-- > 0;)
        if (sb_value_same_shape(g, gr->in[i], y) &&
            (first == MAX_INPUTS || !sb_is_const(g, gr->in[i])))
            first = i;
    if (first == MAX_INPUTS)
        return false;
    v = gr->in[first];
    memmove(gr->in + 1, gr->in, first * sizeof *gr->in);
    gr->in[0] = v;
    return true;
}

/* The number by which the chain calls a value. */
static int64_t operand_of(const sb_graph *g, const group *gr, sb_value_id v)
{
    for (size_t i = 0; i < gr->n_in; i++)
        if (gr->in[i] == v)
            return (int64_t)i;
    for (size_t k = 0; v != SB_NONE && k < gr->n; k++)
        if (sb_graph_node(g, gr->node[k])->outputs[0] == v)
            return (int64_t)(gr->n_in + gr->n - 1 - k);
    return -1;
}

/* The program as attributes of the chain. */
typedef struct program {
    sb_bytes ops[SB_CHAIN_STEPS];
    int64_t operands[MAX_INPUTS];
    float params[SB_CHAIN_STEPS * SB_CHAIN_PARAM / sizeof(float)];
    size_t n, n_params;
} program;

static sb_status write_step(const sb_graph *g, const group *gr, sb_node_id id,
                            program *p)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_op_def *op = sb_op_of(node);
    double fields[SB_CHAIN_PARAM / sizeof(double)] = {0};

    SB_TRY(sb_op_read_attrs(g->ctx, g, node, op, fields));
    for (const sb_attr_def *d = op->attrs; d && d->name; d++)
        memcpy(&p->params[p->n_params++], (const char *)fields + d->offset,
               sizeof(float));
    for (uint32_t i = 0; i < SB_EW_INPUTS; i++)
        p->operands[p->n * SB_EW_INPUTS + i] =
            operand_of(g, gr, sb_node_in(node, i));
    p->ops[p->n++] = (sb_bytes){op->name, strlen(op->name)};
    return SB_OK;
}

static sb_status set_program(sb_graph *g, sb_node_id id, const program *p)
{
    sb_attr ops = {.name = "ops", .type = SB_ATTR_STRINGS, .n = p->n};
    sb_attr params = {
        .name = "params", .type = SB_ATTR_FLOATS, .n = p->n_params};

    ops.strings = sb_arena_copy(g->arena, p->ops, p->n * sizeof *p->ops);
    params.floats = sb_arena_copy(g->arena, p->params, sizeof p->params);
    if (!ops.strings || !params.floats)
        return SB_NO_MEMORY;
    SB_TRY(sb_graph_set_attr(g, id, &ops));
    SB_TRY(sb_graph_set_attr_ints(g, id, "operands", p->operands,
                                  p->n * SB_EW_INPUTS));
    return p->n_params ? sb_graph_set_attr(g, id, &params) : SB_OK;
}

static sb_status fuse_elementwise_apply(sb_graph *g, const group *gr)
{
    const sb_node root = *sb_graph_node(g, gr->node[0]);
    program p = {.n = 0};
    sb_node_id id = SB_NONE;
    sb_node_spec spec = {.op = "ElementwiseChain",
                         .domain = SB_FUSED_DOMAIN,
                         .name = root.name,
                         .module = root.module,
                         .inputs = gr->in,
                         .n_in = gr->n_in,
                         .outputs = root.outputs,
                         .n_out = 1,
                         .position = root.position};

    for (size_t k = gr->n; k-- > 0;)
        SB_TRY(write_step(g, gr, gr->node[k], &p));
    sb_graph_remove_node(g, gr->node[0]);
    SB_TRY(sb_graph_add_node(g, &spec, &id));
    SB_TRY(set_program(g, id, &p));
    for (size_t k = 1; k < gr->n; k++)
        SB_TRY(sb_rewrite_prune(g, gr->node[k]));
    return SB_OK;
}

/* From the end, so that a group is as long as it can be. */
static sb_status fuse_all(sb_graph *g, const sb_node_id *order, size_t n,
                          size_t *changes)
{
    for (size_t i = n; i-- > 0;) {
        const sb_node *node = sb_graph_node(g, order[i]);
        group gr = {.node = {order[i]}, .n = 1};

        if (node->dead || node->n_out != 1 || node->outputs[0] == SB_NONE ||
            !is_step(g, node, node->outputs[0]))
            continue;
        fuse_elementwise_grow(g, &gr);
        if (gr.n < 2 || !collect_inputs(g, &gr))
            continue;
        SB_TRY(fuse_elementwise_apply(g, &gr));
        (*changes)++;
    }
    return SB_OK;
}

static sb_status fuse_elementwise_run(sb_graph *g, size_t *changes)
{
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_order(g, &order, &n));
    sb_status status = fuse_all(g, order, n, changes);
    sb_free(g->ctx, order);
    return status;
}

const sb_pass_def sb_pass_fuse_elementwise = {
    .name = "fuse_elementwise",
    .summary = "chains of elementwise operators in one (for running)",
    .run = fuse_elementwise_run,
    .last = true,
};
