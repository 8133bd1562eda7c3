/* Nodes that stand for integer operators (integer_util.h). */
#include "passes/readback/integer_util.h"

#include "passes/rewrite.h"

sb_status sb_put_node(sb_graph *g, const sb_node *like, const char *op,
                      const sb_value_id *in, size_t n_in, sb_value_id y,
                      sb_node_id *out)
{
    const sb_node_spec spec = {.op = op,
                               .module = like->module,
                               .inputs = in,
                               .n_in = n_in,
                               .outputs = &y,
                               .n_out = 1,
                               .position = like->position};

    return sb_graph_add_node(g, &spec, out);
}

sb_status sb_put_value(sb_graph *g, sb_value_id x, sb_dtype dtype,
                       sb_value_id *out)
{
    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, x)->name, out));
    sb_graph_value(g, *out)->type = sb_graph_value(g, x)->type;
    sb_graph_value(g, *out)->type.dtype = dtype;
    return SB_OK;
}

/* *v, one number, becomes a vector of n. */
static sb_status integer_util_repeat(sb_graph *g, sb_value_id *v, int64_t n)
{
    const sb_tensor *t = sb_const_of(g, *v);
    const sb_shape shape = {.rank = 1, .dim = {n}};

    return sb_rewrite_fill(g, sb_graph_value(g, *v)->name, t->dtype, &shape,
                           sb_tensor_get_f64(t, 0), v);
}

static sb_status make_even(sb_graph *g, sb_value_id *scale, sb_value_id *zero)
{
    const sb_tensor *s = sb_const_of(g, *scale), *z = sb_const_of(g, *zero);

    if (!s || !z || !sb_dtype_is_float(s->dtype) ||
        !sb_dtype_is_integral(z->dtype))
        return SB_OK;
    int64_t n = sb_tensor_count(s), m = sb_tensor_count(z);
    if (n > 1 && m == 1 && s->rank == 1)
        return integer_util_repeat(g, zero, n);
    if (n == 1 && m > 1 && z->rank == 1)
        return integer_util_repeat(g, scale, m);
    return SB_OK;
}

sb_status sb_put_dequantize(sb_graph *g, const sb_node *like,
                            const sb_value_id *in, int64_t axis,
                            sb_value_id *out)
{
    sb_value_id all[3] = {in[0], in[1], in[2]};
    sb_node_id dq;

    if (all[2] != SB_NONE)
        SB_TRY(make_even(g, &all[1], &all[2]));
    SB_TRY(sb_put_value(g, in[0], SB_DTYPE_F32, out));
    SB_TRY(sb_put_node(g, like, "DequantizeLinear", all,
                       in[2] == SB_NONE ? 2 : 3, *out, &dq));
    return sb_graph_set_attr_int(g, dq, "axis", axis);
}
