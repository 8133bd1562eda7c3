/* The operator table: ops.def read twice, once to declare, once to list. */
#include "ops/op_registry.h"

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

static int compare(const char *domain, const char *name, const sb_op_def *op)
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
        int cmp = compare(domain, name, table[mid]);

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
    return sb_op_find(node->domain, node->op);
}

const sb_op_def *const *sb_op_all(size_t *n)
{
    *n = SB_COUNT(table);
    return table;
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
        store_attr(def, a, (char *)out + def->offset);
    }
    return SB_OK;
}

/* ---- opset -------------------------------------------------------------- */

int64_t sb_graph_min_opset(const sb_graph *graph)
{
    int64_t least = 1;

    for (sb_node_id id = 0; id < graph->n_nodes; id++) {
        const sb_node *node = sb_graph_node(graph, id);
        const sb_op_def *op = sb_op_of(node);

        if (node->dead)
            continue;
        if (op && !op->domain && op->since > least)
            least = op->since;
        for (uint32_t a = 0; a < node->n_attrs; a++) {
            const sb_attr *attr = &node->attrs[a];
            size_t n = attr->type == SB_ATTR_GRAPH    ? 1
                       : attr->type == SB_ATTR_GRAPHS ? attr->n
                                                      : 0;
            for (size_t i = 0; i < n; i++) {
                int64_t inner = sb_graph_min_opset(attr->graphs[i]);
                least = inner > least ? inner : least;
            }
        }
    }
    return least;
}
