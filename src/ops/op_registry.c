/* The operator table: ops.def read twice, once to declare, once to list. */
#include "ops/op_registry.h"

#include <math.h>
#include <string.h>

#define SB_OP(id) extern const sb_op_def sb_op_##id;
#include "ops/ops.def"
#undef SB_OP

static const sb_op_def *const table[] = {
#define SB_OP(id) &sb_op_##id,
#include "ops/ops.def"
#undef SB_OP
};

static const char *domain_of(const sb_op_def *op)
{
    return op->domain ? op->domain : "";
}

static int op_registry_compare(const char *domain, const char *name,
                               const sb_op_def *op)
{
    int by_domain = strcmp(domain, domain_of(op));

    return by_domain ? by_domain : strcmp(name, op->name);
}

const sb_op_def *sb_op_find(const char *domain, const char *name)
{
    size_t lo = 0, hi = SB_COUNT(table);

    if (strcmp(domain, "ai.onnx") == 0)
        domain = "";
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int cmp = op_registry_compare(domain, name, table[mid]);

        if (cmp == 0)
            return table[mid];
        if (cmp < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const sb_op_def *sb_op_of(const sb_node *node)
{
    return node->added ? node->added : sb_op_find(node->domain, node->op);
}

sb_quant_role sb_node_role(const sb_node *node)
{
    const sb_op_def *op = sb_op_of(node);

    return op ? op->quant : SB_ROLE_UNKNOWN;
}

bool sb_node_adds(const sb_node *node)
{
    return sb_node_role(node) == SB_ROLE_SUM &&
           sb_node_flag(node, SB_OP_COMMUTES);
}

bool sb_node_flag(const sb_node *node, uint32_t flags)
{
    const sb_op_def *op = sb_op_of(node);

    return op && (op->flags & flags) != 0;
}

static bool graph_is_pure(const sb_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead && !sb_node_is_pure(&g->nodes[i]))
            return false;
    return true;
}

bool sb_node_is_pure(const sb_node *node)
{
    const sb_graph *body;

    if (sb_node_flag(node, SB_OP_IMPURE))
        return false;
    for (size_t i = 0; (body = sb_node_body(node, i)) != NULL; i++)
        if (!graph_is_pure(body))
            return false;
    return true;
}

const sb_result_range *sb_node_range(const sb_graph *g, const sb_node *node,
                                     double *lo, double *hi)
{
    const sb_op_def *op = sb_op_of(node);
    const sb_result_range *r = op ? op->range : NULL;

    *lo = r ? r->lo : -(double)INFINITY;
    *hi = r ? r->hi : (double)INFINITY;
    if (r && r->lo_in)
        (void)sb_const_scalar(g, sb_node_in(node, r->lo_in), lo);
    if (r && r->hi_in)
        (void)sb_const_scalar(g, sb_node_in(node, r->hi_in), hi);
    return r;
}

const sb_op_def *const *sb_op_all(size_t *n)
{
    *n = SB_COUNT(table);
    return table;
}

/* ---- facts -------------------------------------------------------------- */

int sb_op_weight_axis(const sb_node *node, int rank)
{
    const sb_op_def *op = sb_op_of(node);
    int axis = op && op->weight_axis ? op->weight_axis(node) : 0;

    if (rank < 0) /* not known */
        return axis < 0 ? -1 : axis;
    if (axis < 0)
        axis += rank;
    return rank > 1 && axis < rank ? axis : -1;
}

bool sb_op_is_integer(const sb_node *node, uint32_t *weight)
{
    /* Of ONNX Runtime, without a row here. */
    static const struct {
        const char *name;
        uint32_t weight;
    } others[] = {
        {"QAttention", 1},
        {"QLinearConv", 3},
    };
    const sb_op_def *op = sb_op_of(node);
    bool found = op && (op->flags & SB_OP_INTEGER);
    uint32_t input = found ? op->weight_input : 0;

    if (!op && strcmp(node->domain, "com.microsoft") == 0) {
        found = strncmp(node->op, "QLinear", 7) == 0;
        for (size_t i = 0; i < SB_COUNT(others); i++)
            if (strcmp(node->op, others[i].name) == 0) {
                found = true;
                input = others[i].weight;
            }
    }
    if (weight)
        *weight = input;
    return found;
}

/* ---- attributes --------------------------------------------------------- */

/* Writes the value (or the default if `a` is NULL) into the struct field. */
static void store_attr(const sb_attr_def *def, const sb_attr *a, void *field)
{
    switch (def->type) {
    case SB_ATTR_INT:
        *(int64_t *)field = a ? a->i : def->i;
        break;
    case SB_ATTR_FLOAT:
        *(float *)field = a ? a->f : def->f;
        break;
    case SB_ATTR_STRING:
        *(const char **)field = a ? a->s.data : def->s;
        break;
    case SB_ATTR_INTS:
        *(sb_ints *)field = a ? (sb_ints){a->ints, a->n} : (sb_ints){0};
        break;
    case SB_ATTR_FLOATS:
        *(sb_floats *)field = a ? (sb_floats){a->floats, a->n} : (sb_floats){0};
        break;
    case SB_ATTR_STRINGS:
        *(sb_strings *)field =
            a ? (sb_strings){a->strings, a->n} : (sb_strings){0};
        break;
    case SB_ATTR_TENSOR:
        *(const sb_tensor **)field = a ? a->t : NULL;
        break;
    case SB_ATTR_GRAPH:
        *(sb_graph **)field = a ? a->graphs[0] : NULL;
        break;
    default:
        break;
    }
}

sb_status sb_op_read_attrs(sb_ctx *ctx, const sb_graph *graph,
                           const sb_node *node, const sb_op_def *op, void *out)
{
    for (const sb_attr_def *def = op->attrs; def && def->name; def++) {
        const sb_attr *a = sb_node_attr(node, def->name);

        if (!a && def->required)
            return sb_fail(ctx, SB_BAD_MODEL,
                           "node '%s' (%s): attribute '%s' is missing",
                           sb_node_label(graph, node), node->op, def->name);
        if (a && a->type != def->type)
            return sb_fail(ctx, SB_BAD_MODEL,
                           "node '%s' (%s): attribute '%s' has type %d, want "
                           "%d",
                           sb_node_label(graph, node), node->op, def->name,
                           (int)a->type, (int)def->type);
        if (a && def->flag && a->i != 0 && a->i != 1)
            return sb_fail(ctx, SB_BAD_MODEL,
                           "node '%s' (%s): attribute '%s' is %lld, want 0 or "
                           "1",
                           sb_node_label(graph, node), node->op, def->name,
                           (long long)a->i);
        store_attr(def, a, (char *)out + def->offset);
    }
    return SB_OK;
}

int64_t sb_op_int(const sb_op_def *op, const sb_node *node, const char *name)
{
    const sb_attr *a = sb_node_attr(node, name);

    if (a && a->type == SB_ATTR_INT)
        return a->i;
    for (const sb_attr_def *d = op ? op->attrs : NULL; d && d->name; d++)
        if (strcmp(d->name, name) == 0)
            return d->i;
    return 0;
}
