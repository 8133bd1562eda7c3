/* Where: y = condition ? a : b, for elements of any type, which are only
 * copied: one strip function per element size. */
#include <string.h>

#include "ops/elementwise/elementwise.h"
#include "ops/move/move_util.h"
#include "ops/shape_values.h"

typedef struct {
    uint64_t v[2];
} wide;

/* An index times 0 or 1 serves broadcast operands. */
#define SELECT(id, T)                                             \
    static void id(const sb_strip *s)                             \
    {                                                             \
        const uint8_t *c = s->x[0];                               \
        const T *a = s->x[1], *b = s->x[2];                       \
        T *y = s->y;                                              \
        size_t sc = !s->one[0], sa = !s->one[1], sb = !s->one[2]; \
        if (sc && sa && sb) {                                     \
            SB_SIMD                                               \
            for (size_t i = 0; i < s->n; i++)                     \
                y[i] = c[i] ? a[i] : b[i];                        \
        } else {                                                  \
            for (size_t i = 0; i < s->n; i++)                     \
                y[i] = c[i * sc] ? a[i * sa] : b[i * sb];         \
        }                                                         \
    }

SELECT(select_1, uint8_t)
SELECT(select_2, uint16_t)
SELECT(select_4, uint32_t)
SELECT(select_8, uint64_t)
SELECT(select_16, wide)

static sb_strip_fn where_strip(sb_dtype dtype)
{
    switch (sb_dtype_size(dtype)) {
    case 1:
        return select_1;
    case 2:
        return select_2;
    case 4:
        return select_4;
    case 8:
        return select_8;
    case 16:
        return select_16;
    default:
        return NULL;
    }
}

static sb_status where_infer(sb_infer *in)
{
    SB_TRY(sb_infer_broadcast(in));
    in->out[0].type.dtype = in->in[1]->type.dtype;
    sb_shape x[3], out = {0};
    if (!sb_shape_values_load(in, 3, x, &out.rank))
        return SB_OK;
    for (int j = 0; j < out.rank; j++) {
        sb_dim c = sb_shape_values_at(&x[0], j);
        sb_dim a = sb_shape_values_at(&x[1], j),
               b = sb_shape_values_at(&x[2], j);

        if (sb_dim_known(c))
            out.dim[j] = c ? a : b;
        else
            out.dim[j] = sb_dim_same(a, b) ? a : SB_DIM_UNKNOWN;
    }
    sb_infer_set_content(in, 0, &out);
    return SB_OK;
}

static sb_status where_prepare(sb_kernel *k)
{
    if (k->in[0]->dtype != SB_DTYPE_BOOL || k->in[1]->dtype != k->in[2]->dtype)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "inputs of type %s, %s, %s; want bool and twice "
                              "the same",
                              sb_dtype_name(k->in[0]->dtype),
                              sb_dtype_name(k->in[1]->dtype),
                              sb_dtype_name(k->in[2]->dtype));
    if (!where_strip(k->in[1]->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->in[1]->dtype));
    return SB_OK;
}

static sb_status where_forward(sb_kernel *k)
{
    sb_dtype t = k->in[1]->dtype;
    sb_ew_call call = {.fn = where_strip(t),
                       .n_in = 3,
                       .in = {k->in[0], k->in[1], k->in[2]},
                       .in_as = {SB_DTYPE_BOOL, t, t},
                       .out = k->out[0],
                       .out_as = t};

    return sb_ew_run(k, &call);
}

const sb_op_def sb_op_where = {
    .name = "Where",
    .since = 9,
    .quant = SB_ROLE_PASS,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_ELEMENTWISE,
    .infer = where_infer,
    .prepare = where_prepare,
    .forward = where_forward,
    .grad = sb_grad_where,
};
