/* Pass "decompose": operators that are too new for the file become arithmetic.
 *
 * The simplified graph uses Swish (opset 24) and RMSNormalization (opset 23).
 * Writing them would lift the file to an opset that many runtimes refuse, so
 * before saving they are written out again, unless the file needs such an
 * opset anyway.  Up to OPSET_EVERYWHERE nothing is expanded: runtimes since
 * 2024 read it.  The other rows are for users who ask for an older opset. */
#include <string.h>

#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passes/recognize/recognize_norm.h"
#include "passes/rewrite.h"

enum { OPSET_EVERYWHERE = 21 };

typedef struct expansion {
    sb_graph *g;
    sb_node_id node;
    sb_type type; /* of what is computed at the moment */
} expansion;

/* What is written out, read and recognized and written out again has the same
 * names again. */
static sb_status name_after(const expansion *e, const char *op, sb_value_id v)
{
    const sb_node *node = sb_graph_node(e->g, e->node);
    const char *base = sb_graph_value(e->g, node->outputs[0])->name;
    sb_status status = SB_OK;
    bool named = false;

    for (int k = 1; k < 9 && !named && status == SB_OK; k++) {
        sb_str name;
        sb_str_init(&name, e->g->ctx);
        sb_str_addf(&name, "%s_%s", base, op);
        if (k > 1)
            sb_str_addf(&name, "_%d", k);
        status = sb_str_status(&name);
        if (status == SB_OK)
            status = sb_graph_claim_name(e->g, v, sb_str_text(&name));
        named = strcmp(sb_graph_value(e->g, v)->name, sb_str_text(&name)) == 0;
        sb_str_free(&name);
    }
    return status;
}

static sb_status decompose_compute(expansion *e, const char *op, sb_value_id a,
                                   sb_value_id b, sb_value_id *out)
{
    const sb_value_id in[2] = {a, b};
    sb_node_id node;

    SB_TRY(sb_rewrite_add(e->g, e->node, op, in, b == SB_NONE ? 1 : 2, &e->type,
                          &node));
    *out = sb_graph_node(e->g, node)->outputs[0];
    return name_after(e, op, *out);
}

static sb_status decompose_number(expansion *e, double v, sb_value_id *out)
{
    const sb_shape scalar = {.rank = 0};

    return sb_rewrite_fill(e->g, "number", e->type.dtype, &scalar, v, out);
}

static sb_status decompose_cast(expansion *e, sb_value_id x, sb_dtype to,
                                sb_value_id *out)
{
    e->type.dtype = to;
    SB_TRY(decompose_compute(e, "Cast", x, SB_NONE, out));
    sb_node_id node = sb_graph_value(e->g, *out)->producer;
    return sb_graph_set_attr_int(e->g, node, "to", (int64_t)to);
}

/* x * sigmoid(alpha x) */
static sb_status expand_swish(expansion *e, bool *done)
{
    const sb_node *node = sb_graph_node(e->g, e->node);
    sb_value_id in[2] = {node->inputs[0], SB_NONE};
    sb_value_id arg = in[0], c;
    float alpha = sb_node_float(node, "alpha", 1.0f);
    sb_node_id fresh;

    if (alpha != 1.0f) {
        SB_TRY(decompose_number(e, (double)alpha, &c));
        SB_TRY(decompose_compute(e, "Mul", arg, c, &arg));
    }
    SB_TRY(decompose_compute(e, "Sigmoid", arg, SB_NONE, &in[1]));
    *done = true;
    return sb_rewrite_node(e->g, e->node, "Mul", in, 2, &fresh);
}

static sb_status decompose_scale(expansion *e, const char *op, sb_value_id x,
                                 double by, sb_value_id *out)
{
    sb_value_id c;

    SB_TRY(decompose_number(e, by, &c));
    return decompose_compute(e, op, x, c, out);
}

/* x / 2 * (1 + erf(x / sqrt(2))), or with tanh(sqrt(2 / pi) (x + 0.044715 x^3))
 * in place of erf */
static sb_status expand_gelu(expansion *e, bool *done)
{
    const sb_node *node = sb_graph_node(e->g, e->node);
    sb_value_id x = node->inputs[0], v;
    sb_node_id fresh;

    if (sb_node_string_is(node, "approximate", "tanh", false)) {
        SB_TRY(decompose_compute(e, "Mul", x, x, &v));
        SB_TRY(decompose_compute(e, "Mul", v, x, &v));
        SB_TRY(decompose_scale(e, "Mul", v, 0.044715, &v));
        SB_TRY(decompose_compute(e, "Add", x, v, &v));
        SB_TRY(decompose_scale(e, "Mul", v, 0.7978845608028654, &v));
        SB_TRY(decompose_compute(e, "Tanh", v, SB_NONE, &v));
    } else {
        SB_TRY(decompose_scale(e, "Div", x, 1.4142135623730951, &v));
        SB_TRY(decompose_compute(e, "Erf", v, SB_NONE, &v));
    }
    SB_TRY(decompose_scale(e, "Add", v, 1, &v));
    SB_TRY(decompose_compute(e, "Mul", x, v, &v));
    SB_TRY(decompose_number(e, 0.5, &x));
    *done = true;
    return sb_rewrite_node(e->g, e->node, "Mul", (sb_value_id[]){v, x}, 2,
                           &fresh);
}

/* x * tanh(softplus(x)) */
static sb_status expand_mish(expansion *e, bool *done)
{
    sb_value_id x = sb_graph_node(e->g, e->node)->inputs[0], v;
    sb_node_id fresh;

    SB_TRY(decompose_compute(e, "Softplus", x, SB_NONE, &v));
    SB_TRY(decompose_compute(e, "Tanh", v, SB_NONE, &v));
    *done = true;
    return sb_rewrite_node(e->g, e->node, "Mul", (sb_value_id[]){x, v}, 2,
                           &fresh);
}

/* x * clip(x / 6 + 1/2, 0, 1) */
static sb_status expand_hardswish(expansion *e, bool *done)
{
    sb_value_id x = sb_graph_node(e->g, e->node)->inputs[0], v;
    sb_node_id fresh;
    sb_attr alpha = {.name = "alpha", .type = SB_ATTR_FLOAT, .f = 1.0f / 6};

    SB_TRY(decompose_compute(e, "HardSigmoid", x, SB_NONE, &v));
    SB_TRY(sb_graph_set_attr(e->g, sb_graph_value(e->g, v)->producer, &alpha));
    *done = true;
    return sb_rewrite_node(e->g, e->node, "Mul", (sb_value_id[]){x, v}, 2,
                           &fresh);
}

/* 1 / sqrt(mean(x^2) + eps) over the last n axes */
static sb_status inverse_rms(expansion *e, sb_value_id x, int n,
                             sb_value_id *out)
{
    int64_t axes[SB_MAX_RANK];
    double eps =
        (double)sb_node_float(sb_graph_node(e->g, e->node), "epsilon", 1e-5f);
    const sb_type whole = e->type;
    sb_value_id v, c;

    for (int i = 0; i < n; i++)
        axes[i] = i - n;
    SB_TRY(decompose_compute(e, "Mul", x, x, &v));
    e->type.shape = (sb_shape){.rank = -1}; /* to be inferred */
    SB_TRY(sb_rewrite_ints(e->g, "axes", axes, n, &c));
    SB_TRY(decompose_compute(e, "ReduceMean", v, c, &v));
    SB_TRY(decompose_number(e, eps, &c));
    SB_TRY(decompose_compute(e, "Add", v, c, &v));
    SB_TRY(decompose_compute(e, "Sqrt", v, SB_NONE, &v));
    SB_TRY(decompose_compute(e, "Reciprocal", v, SB_NONE, out));
    e->type = whole;
    return SB_OK;
}

/* x / rms(x) * scale, half precision normalized in single */
static sb_status expand_rmsnorm(expansion *e, bool *done)
{
    const sb_node *node = sb_graph_node(e->g, e->node);
    sb_value_id x = node->inputs[0], scale = sb_node_in(node, 1), r;
    sb_dtype dtype = e->type.dtype;
    int n = sb_norm_node_axes(e->g, node);
    bool half = dtype == SB_DTYPE_F16 || dtype == SB_DTYPE_BF16;
    sb_node_id fresh;

    if (n < 1 || scale == SB_NONE || sb_node_int(node, "stash_type", 1) != 1)
        return SB_OK;
    if (half)
        SB_TRY(decompose_cast(e, x, SB_DTYPE_F32, &x));
    SB_TRY(inverse_rms(e, x, n, &r));
    *done = true;
    /* A scale of ones was put in when the node was recognized. */
    if (!half && sb_const_all(e->g, scale, 1))
        return sb_rewrite_node(e->g, e->node, "Mul", (sb_value_id[]){x, r}, 2,
                               &fresh);
    SB_TRY(decompose_compute(e, "Mul", x, r, &x));
    if (half)
        SB_TRY(decompose_cast(e, x, dtype, &x));
    return sb_rewrite_node(e->g, e->node, "Mul", (sb_value_id[]){x, scale}, 2,
                           &fresh);
}

/* x - mean(x) over the last n axes */
static sb_status decompose_center(expansion *e, sb_value_id x, int n,
                                  sb_value_id *out)
{
    int64_t axes[SB_MAX_RANK];
    const sb_type whole = e->type;
    sb_value_id v, c;

    for (int i = 0; i < n; i++)
        axes[i] = i - n;
    e->type.shape = (sb_shape){.rank = -1}; /* to be inferred */
    SB_TRY(sb_rewrite_ints(e->g, "axes", axes, n, &c));
    SB_TRY(decompose_compute(e, "ReduceMean", x, c, &v));
    e->type = whole;
    return decompose_compute(e, "Sub", x, v, out);
}

/* The same of x - mean(x), and a bias. */
static sb_status expand_layernorm(expansion *e, bool *done)
{
    const sb_node *node = sb_graph_node(e->g, e->node);
    sb_value_id x = node->inputs[0], scale = sb_node_in(node, 1), r;
    sb_value_id bias = sb_node_in(node, 2);
    int n = sb_norm_node_axes(e->g, node);
    sb_node_id fresh;

    for (uint32_t i = 1; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE)
            return SB_OK;
    if (n < 1 || scale == SB_NONE || e->type.dtype != SB_DTYPE_F32)
        return SB_OK;
    SB_TRY(decompose_center(e, x, n, &x));
    SB_TRY(inverse_rms(e, x, n, &r));
    SB_TRY(decompose_compute(e, "Mul", x, r, &x));
    *done = true;
    if (bias == SB_NONE)
        return sb_rewrite_node(e->g, e->node, "Mul", (sb_value_id[]){x, scale},
                               2, &fresh);
    SB_TRY(decompose_compute(e, "Mul", x, scale, &x));
    return sb_rewrite_node(e->g, e->node, "Add", (sb_value_id[]){x, bias}, 2,
                           &fresh);
}

static const struct {
    const char *op;
    sb_status (*expand)(expansion *e, bool *done);
} table[] = {
    {"Gelu", expand_gelu},
    {"HardSwish", expand_hardswish},
    {"LayerNormalization", expand_layernorm},
    {"Mish", expand_mish},
    {"RMSNormalization", expand_rmsnorm},
    {"Swish", expand_swish},
};

static int find_row(const sb_node *node)
{
    for (size_t i = 0; i < SB_COUNT(table); i++)
        if (sb_node_is(node, table[i].op))
            return (int)i;
    return -1;
}

/* The opset that the nodes need which stay as they are. */
static int64_t needed_opset(const sb_graph *g)
{
    int64_t need = 1;

    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        const sb_graph *body;
        if (node->dead)
            continue;
        int64_t since = sb_node_since(g, node);
        if (since > need && find_row(node) < 0)
            need = since;
        for (size_t k = 0; (body = sb_node_body(node, k)) != NULL; k++) {
            int64_t inner = needed_opset(body);
            need = inner > need ? inner : need;
        }
    }
    return need;
}

static int64_t target_opset(const sb_graph *g)
{
    while (g->parent)
        g = g->parent;
    int64_t need = needed_opset(g);
    int64_t target =
        g->file_opset > OPSET_EVERYWHERE ? g->file_opset : OPSET_EVERYWHERE;
    return need > target ? need : target;
}

static bool too_new(const sb_node *node, int64_t target)
{
    const sb_op_def *op = sb_op_of(node);

    return !node->dead && op && op->since > target && find_row(node) >= 0 &&
           sb_node_in(node, 0) != SB_NONE;
}

static bool any_too_new(const sb_graph *g, int64_t target)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        const sb_graph *body;
        if (too_new(node, target))
            return true;
        if (node->dead)
            continue;
        for (size_t k = 0; (body = sb_node_body(node, k)) != NULL; k++)
            if (any_too_new(body, target))
                return true;
    }
    return false;
}

bool sb_graph_holds(const sb_graph *graph, const char *op)
{
    const sb_op_def *def = sb_op_find("", op);

    return graph->file_opset == 0 || !def || def->since <= target_opset(graph);
}

bool sb_graph_wants_decompose(const sb_graph *graph)
{
    /* A graph that was never in a file is written as it was built. */
    return graph->file_opset > 0 && any_too_new(graph, target_opset(graph));
}

static sb_status decompose_write(sb_graph *g, sb_node_id id, bool *done)
{
    const sb_node *node = sb_graph_node(g, id);
    expansion e = {g, id, sb_graph_value(g, node->inputs[0])->type};

    return sb_dtype_is_float(e.type.dtype)
               ? table[find_row(node)].expand(&e, done)
               : SB_OK;
}

sb_status sb_decompose_node(sb_graph *graph, sb_node_id id)
{
    bool done = false;

    return decompose_write(graph, id, &done);
}

sb_status sb_graph_decompose(sb_graph *g, int64_t opset)
{
    sb_graph *body;

    for (size_t i = 0, n = g->n_nodes; i < n; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        bool done = false;

        for (size_t k = 0;
             !node->dead && (body = sb_node_body(node, k)) != NULL; k++)
            SB_TRY(sb_graph_decompose(body, opset));
        if (too_new(node, opset))
            SB_TRY(decompose_write(g, (sb_node_id)i, &done));
    }
    (void)sb_graph_remove_dead(g);
    return SB_OK;
}

static sb_status expand_run(sb_graph *g, size_t *changes)
{
    int64_t target = target_opset(g);

    for (size_t i = 0, n = g->n_nodes; i < n; i++) {
        bool done = false;

        if (too_new(sb_graph_node(g, (sb_node_id)i), target))
            SB_TRY(decompose_write(g, (sb_node_id)i, &done));
        *changes += done;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_decompose = {
    .name = "decompose",
    .summary = "write out operators that would need a newer opset",
    .run = expand_run,
};
