/* Questions about one node or one constant. */
#include <string.h>

#include "graph/graph.h"

/* ---- attributes and inputs ---------------------------------------------- */

size_t sb_attr_bytes(const sb_attr *a, const void **data)
{
    switch (a->type) {
    case SB_ATTR_FLOATS:
        *data = a->floats;
        return a->n * sizeof *a->floats;
    case SB_ATTR_INTS:
        *data = a->ints;
        return a->n * sizeof *a->ints;
    case SB_ATTR_STRING:
        *data = a->s.data;
        return a->s.len;
    case SB_ATTR_FLOAT:
        *data = &a->f;
        return sizeof a->f;
    case SB_ATTR_INT:
        *data = &a->i;
        return sizeof a->i;
    default:
        *data = NULL;
        return 0;
    }
}

int64_t sb_node_int(const sb_node *node, const char *name, int64_t absent)
{
    const sb_attr *a = sb_node_attr(node, name);

    return a && a->type == SB_ATTR_INT ? a->i : absent;
}

float sb_node_float(const sb_node *node, const char *name, float absent)
{
    const sb_attr *a = sb_node_attr(node, name);

    return a && a->type == SB_ATTR_FLOAT ? a->f : absent;
}

bool sb_node_string_is(const sb_node *node, const char *name, const char *text,
                       bool absent)
{
    const sb_attr *a = sb_node_attr(node, name);

    if (!a || a->type != SB_ATTR_STRING)
        return absent;
    return a->s.len == strlen(text) && memcmp(a->s.data, text, a->s.len) == 0;
}

bool sb_node_ints(const sb_node *node, const char *name, size_t n,
                  int64_t absent, int64_t *out)
{
    const sb_attr *a = sb_node_attr(node, name);

    if (a && (a->type != SB_ATTR_INTS || a->n != n))
        return false;
    for (size_t i = 0; i < n; i++)
        out[i] = a ? a->ints[i] : absent;
    return true;
}

sb_value_id sb_node_in(const sb_node *node, uint32_t i)
{
    return i < node->n_in ? node->inputs[i] : SB_NONE;
}

/* ---- constants ---------------------------------------------------------- */

bool sb_is_const(const sb_graph *g, sb_value_id value)
{
    if (value == SB_NONE)
        return false;
    const sb_value *v = sb_graph_value(g, value);
    return v->is_constant && !v->is_input && v->constant.data;
}

const sb_tensor *sb_const_of(const sb_graph *g, sb_value_id value)
{
    return sb_is_const(g, value) ? &sb_graph_value(g, value)->constant : NULL;
}

bool sb_const_scalar(const sb_graph *g, sb_value_id value, double *out)
{
    const sb_tensor *t = sb_const_of(g, value);

    if (!t || sb_dtype_get(t->dtype)->cls == SB_CLASS_OTHER ||
        sb_tensor_count(t) != 1)
        return false;
    *out = sb_tensor_get_f64(t, 0);
    return true;
}
