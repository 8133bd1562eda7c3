/* Constant: a value written in an attribute.  The importer turns most of these
 * into initializers; what remains comes from the builder or a pass. */
#include <string.h>

#include "ops/move/move_util.h"

typedef struct {
    const sb_tensor *value;
    sb_floats floats;
    sb_ints ints;
} constant_attrs;

static const sb_attr_def attrs[] = {
    {"value", SB_ATTR_TENSOR, offsetof(constant_attrs, value), .i = 0},
    {"value_floats", SB_ATTR_FLOATS, offsetof(constant_attrs, floats), .i = 0},
    {"value_ints", SB_ATTR_INTS, offsetof(constant_attrs, ints), .i = 0},
    {0},
};

/* Type of the value, and its elements as the attribute holds them; NULL if the
 * node has none that we can read (strings, sparse tensors). */
static const void *constant_get(const sb_node *node, const constant_attrs *a,
                                sb_type *type)
{
    const sb_attr *one = sb_node_attr(node, "value_float");

    *type = (sb_type){.shape = {.rank = -1}};
    if (a->value) {
        type->dtype = a->value->dtype;
        type->shape = sb_shape_of(a->value);
        return a->value->data;
    }
    type->shape.rank = 0;
    if (one && one->type == SB_ATTR_FLOAT) {
        type->dtype = SB_DTYPE_F32;
        return &one->f;
    }
    one = sb_node_attr(node, "value_int");
    if (one && one->type == SB_ATTR_INT) {
        type->dtype = SB_DTYPE_I64;
        return &one->i;
    }
    type->shape.rank = 1;
    if (sb_node_attr(node, "value_floats")) {
        type->dtype = SB_DTYPE_F32;
        type->shape.dim[0] = (int64_t)a->floats.n;
        return a->floats.v;
    }
    if (sb_node_attr(node, "value_ints")) {
        type->dtype = SB_DTYPE_I64;
        type->shape.dim[0] = (int64_t)a->ints.n;
        return a->ints.v;
    }
    type->shape.rank = -1;
    return NULL;
}

static sb_status constant_infer(sb_infer *in)
{
    const void *data = constant_get(in->node, in->attrs, &in->out[0].type);
    const sb_type *t = &in->out[0].type;

    if (!data || t->dtype != SB_DTYPE_I64 || t->shape.rank > 1 ||
        (t->shape.rank == 1 && t->shape.dim[0] > SB_MAX_RANK))
        return SB_OK;
    sb_shape content = {.rank = t->shape.rank ? (int)t->shape.dim[0] : 1};
    for (int i = 0; i < content.rank; i++) {
        int64_t v = 0;
        memcpy(&v, (const char *)data + (size_t)i * sizeof v, sizeof v);
        content.dim[i] = sb_dim_known(v) ? v : SB_DIM_KNOWN_MIN;
    }
    sb_infer_set_content(in, 0, &content);
    return SB_OK;
}

static sb_status constant_forward(sb_kernel *k)
{
    sb_type type;
    const void *data = constant_get(k->node, k->attrs, &type);
    size_t bytes = sb_tensor_bytes(k->out[0]);

    if (type.dtype == SB_DTYPE_NONE || type.dtype == SB_DTYPE_STRING)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "only tensors, numbers and lists of numbers");
    if (bytes)
        memcpy(k->out[0]->data, data, bytes);
    return SB_OK;
}

const sb_op_def sb_op_constant = {
    .name = "Constant",
    .since = 12,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(constant_attrs),
    .attrs = attrs,
    .infer = constant_infer,
    .forward = constant_forward,
};
