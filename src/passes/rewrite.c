/* What passes share: questions about constants and shapes, and changes that
 * keep names.
 *
 * A replacement takes over the output value of the node that it replaces, so
 * the value keeps its name, its type and its consumers, and an output of the
 * graph stays one. */
#include "passes/rewrite.h"

#include <math.h>
#include <string.h>

/* ---- constants ---------------------------------------------------------- */

/* The constant, if it is numeric. */
static const sb_tensor *const_tensor(const sb_graph *g, sb_value_id value)
{
    if (!sb_is_const(g, value))
        return NULL;
    const sb_tensor *t = &sb_graph_value(g, value)->constant;
    return sb_dtype_get(t->dtype)->cls != SB_CLASS_OTHER ? t : NULL;
}

bool sb_const_close(const sb_graph *g, sb_value_id value, double want)
{
    double got, tol;

    if (!sb_const_scalar(g, value, &got))
        return false;
    switch (sb_graph_value(g, value)->constant.dtype) {
    case SB_DTYPE_F32:
    case SB_DTYPE_F64:
        tol = 1e-5;
        break;
    case SB_DTYPE_F16:
        tol = 1e-3;
        break;
    case SB_DTYPE_BF16:
        tol = 8e-3;
        break;
    default:
        tol = 0;
        break;
    }
    return fabs(got - want) <= tol * fabs(want);
}

bool sb_const_all(const sb_graph *g, sb_value_id value, double want)
{
    const sb_tensor *t = const_tensor(g, value);

    if (!t)
        return false;
    int64_t n = sb_tensor_count(t);
    for (int64_t i = 0; i < n; i++)
        if (sb_tensor_get_f64(t, i) != want)
            return false;
    return n > 0;
}

int sb_const_ints(const sb_graph *g, sb_value_id value, int64_t *out, int max)
{
    const sb_tensor *t = const_tensor(g, value);

    if (!t || !sb_dtype_is_integral(t->dtype) || sb_tensor_count(t) > max)
        return -1;
    int n = (int)sb_tensor_count(t);
    for (int i = 0; i < n; i++)
        out[i] = sb_tensor_get_i64(t, i);
    return n;
}

sb_status sb_rewrite_ints(sb_graph *g, const char *stem, const int64_t *v,
                          int n, sb_value_id *out)
{
    const int64_t dims[] = {n};

    return sb_graph_add_constant(g, stem, SB_DTYPE_I64, 1, dims, v, out);
}

sb_status sb_rewrite_fill(sb_graph *g, const char *stem, sb_dtype dtype,
                          const sb_shape *shape, double number,
                          sb_value_id *out)
{
    sb_tensor t = sb_tensor_make(dtype, shape->rank, shape->dim);
    size_t size = sb_dtype_size(dtype);
    uint64_t one = 0;

    if (!sb_shape_known(shape) || !sb_tensor_size_ok(&t) || size == 0)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "cannot make a constant '%s' of this size", stem);
    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    sb_convert(SB_DTYPE_F64, &number, dtype, &one, 1);
    for (int64_t i = 0; i < sb_tensor_count(&t); i++)
        memcpy((char *)t.data + (size_t)i * size, &one, size);
    sb_status status = sb_graph_add_value_like(g, stem, out);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, *out, &t);
    sb_tensor_drop(&t);
    return status;
}

/* ---- attributes --------------------------------------------------------- */

sb_status sb_rewrite_set_float(sb_graph *g, sb_node_id node, const char *name,
                               float v)
{
    return sb_graph_set_attr(
        g, node, &(sb_attr){.name = name, .type = SB_ATTR_FLOAT, .f = v});
}

sb_status sb_rewrite_set_string(sb_graph *g, sb_node_id node, const char *name,
                                const char *text)
{
    sb_attr attr = {.name = name, .type = SB_ATTR_STRING};

    attr.s = (sb_bytes){text, strlen(text)};
    return sb_graph_set_attr(g, node, &attr);
}

/* ---- shapes ------------------------------------------------------------- */

bool sb_value_same_shape(const sb_graph *g, sb_value_id a, sb_value_id b)
{
    return sb_shape_same(&sb_graph_value(g, a)->type.shape,
                         &sb_graph_value(g, b)->type.shape);
}

bool sb_reshape_target(const sb_shape *from, const sb_shape *to,
                       int64_t *target)
{
    int n_guessed = 0;

    if (to->rank < 0)
        return false;
    for (int i = 0; i < to->rank; i++) {
        sb_dim d = to->dim[i];
        if (sb_dim_known(d)) {
            /* A dimension of 0 would be read as "keep". */
            if (d <= 0)
                return false;
            target[i] = d;
        } else if (from->rank > i && sb_dim_same(from->dim[i], d)) {
            target[i] = 0;
        } else if (n_guessed++ == 0) {
            target[i] = -1;
        } else {
            return false;
        }
    }
    return true;
}

int sb_node_perm(const sb_graph *g, const sb_node *node, int64_t *perm)
{
    const sb_attr *a = sb_node_attr(node, "perm");
    int rank = sb_graph_value(g, node->inputs[0])->type.shape.rank;
    unsigned seen = 0;

    if (!a || a->type != SB_ATTR_INTS) {
        for (int i = 0; i < rank; i++)
            perm[i] = rank - 1 - i;
        return rank;
    }
    if (a->n > SB_MAX_RANK || (rank >= 0 && a->n != (size_t)rank))
        return -1;
    for (size_t i = 0; i < a->n; i++) {
        perm[i] = a->ints[i];
        if (perm[i] < 0 || (size_t)perm[i] >= a->n)
            return -1;
        seen |= 1u << perm[i];
    }
    return seen == (1u << a->n) - 1 ? (int)a->n : -1;
}

/* ---- changes ------------------------------------------------------------ */

sb_status sb_rewrite_as(sb_graph *g, sb_node_id node, sb_node_id like,
                        const sb_value_id *in, size_t n_in)
{
    const sb_node old = *sb_graph_node(g, like); /* it may be the same */
    sb_node_id fresh = SB_NONE;

    SB_TRY(sb_rewrite_node(g, node, old.op, in, n_in, &fresh));
    sb_node *made = sb_graph_node(g, fresh);
    made->name = old.name;
    made->module = old.module;
    made->origin = old.origin;
    for (uint32_t i = 0; i < old.n_attrs; i++)
        SB_TRY(sb_graph_set_attr(g, fresh, &old.attrs[i]));
    return SB_OK;
}

sb_status sb_rewrite_output(sb_graph *g, sb_node_id node, uint32_t k,
                            const char *op, const sb_value_id *in, size_t n_in,
                            sb_node_id *out)
{
    const sb_node old = *sb_graph_node(g, node);
    const sb_value_id result = old.outputs[k];
    sb_node_spec spec = {.op = op,
                         .name = old.name,
                         .module = old.module,
                         .inputs = in,
                         .n_in = n_in,
                         .outputs = &result,
                         .n_out = 1,
                         .position = old.position};

    sb_graph_remove_node(g, node);
    SB_TRY(sb_graph_add_node(g, &spec, out));
    sb_graph_node(g, *out)->extra = old.extra;
    sb_graph_node(g, *out)->origin = old.origin;
    return SB_OK;
}

sb_status sb_rewrite_node(sb_graph *g, sb_node_id node, const char *op,
                          const sb_value_id *in, size_t n_in, sb_node_id *out)
{
    return sb_rewrite_output(g, node, 0, op, in, n_in, out);
}

sb_status sb_rewrite_add(sb_graph *g, sb_node_id like, const char *op,
                         const sb_value_id *in, size_t n_in,
                         const sb_type *type, sb_node_id *out)
{
    const sb_node old = *sb_graph_node(g, like);
    sb_value_id result;
    const char *stem = sb_graph_value(g, old.outputs[0])->name;

    SB_TRY(sb_graph_add_value_like(g, stem, &result));
    sb_graph_value(g, result)->type = *type;
    sb_node_spec spec = {.op = op,
                         .module = old.module,
                         .inputs = in,
                         .n_in = n_in,
                         .outputs = &result,
                         .n_out = 1,
                         .position = old.position};
    return sb_graph_add_node(g, &spec, out);
}

sb_status sb_rewrite_forward(sb_graph *g, sb_node_id node, sb_value_id value,
                             bool *done)
{
    sb_value_id result = sb_graph_node(g, node)->outputs[0];

    *done = false;
    SB_TRY(sb_graph_replace_value(g, result, value, done));
    return *done ? sb_rewrite_prune(g, node) : SB_OK;
}

sb_status sb_rewrite_prune(sb_graph *g, sb_node_id node)
{
    sb_node_id *list = NULL;
    size_t n = 0, cap = 0;
    sb_status status = sb_grow(g->ctx, &list, &cap, 1, sizeof *list);

    if (status == SB_OK)
        list[n++] = node;
    while (n > 0 && status == SB_OK) {
        sb_node_id id = list[--n];
        const sb_node *old = sb_graph_node(g, id);
        if (old->dead || sb_graph_node_needed(g, old))
            continue;
        uint32_t n_in = old->n_in + old->n_implicit;
        status = sb_grow(g->ctx, &list, &cap, n + n_in, sizeof *list);
        for (uint32_t i = 0; i < n_in && status == SB_OK; i++) {
            sb_value_id in = old->inputs[i];
            if (in != SB_NONE && sb_graph_value(g, in)->producer != SB_NONE)
                list[n++] = sb_graph_value(g, in)->producer;
        }
        sb_graph_remove_node(g, id);
    }
    sb_free(g->ctx, list);
    return status;
}

sb_status sb_rewrite_constant(sb_graph *g, sb_node_id node, const sb_tensor *t)
{
    const sb_node old = *sb_graph_node(g, node);
    sb_value_id result = old.outputs[0], value;
    sb_node_id fresh;

    if (!sb_graph_value(g, result)->is_output) {
        sb_graph_remove_node(g, node);
        return sb_graph_set_constant(g, result, t);
    }
    const char *stem = sb_graph_value(g, result)->name;
    SB_TRY(sb_graph_add_value_like(g, stem, &value));
    SB_TRY(sb_graph_set_constant(g, value, t));
    return sb_rewrite_node(g, node, "Identity", &value, 1, &fresh);
}
