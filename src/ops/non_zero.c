/* NonZero: the positions of all elements that are not 0, int64 [rank, n]. */
#include "ops/move_util.h"

#include <string.h>

static sb_status non_zero_infer(sb_infer *in)
{
    sb_shape out = sb_shape_of_rank(2);
    int rank = in->in[0]->type.shape.rank;

    if (rank >= 0)
        out.dim[0] = rank ? rank : 1;
    sb_infer_set(in, 0, SB_DTYPE_I64, &out);
    return SB_OK;
}

/* Any bit set, the sign of a float aside: -0 is zero. */
static bool is_set(const unsigned char *e, size_t elem, bool is_float)
{
    unsigned char bits = is_float ? e[elem - 1] & 0x7f : e[elem - 1];

    for (size_t i = 0; i + 1 < elem; i++)
        bits |= e[i];
    return bits != 0;
}

static sb_status non_zero_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    const unsigned char *data = x->data;
    size_t elem = sb_dtype_size(x->dtype);
    bool is_float = sb_dtype_is_float(x->dtype);
    int64_t n = sb_tensor_count(x), found = 0, at = 0;
    int rank = x->rank ? x->rank : 1;

    for (int64_t i = 0; i < n; i++)
        found += is_set(data + (size_t)i * elem, elem, is_float);
    SB_TRY(k->host->resize_out(k, 0, SB_DTYPE_I64, 2,
                               (const int64_t[]){rank, found}));
    int64_t *y = k->out[0]->data;
    for (int64_t i = 0; i < n; i++) {
        if (!is_set(data + (size_t)i * elem, elem, is_float))
            continue;
        int64_t rest = i;
        for (int d = rank - 1; d >= 0; d--) {
            int64_t dim = x->rank ? x->dims[d] : 1;
            y[d * found + at] = rest % dim;
            rest /= dim;
        }
        at++;
    }
    return SB_OK;
}

const sb_op_def sb_op_non_zero = {
    .name = "NonZero",
    .since = 9,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_DATA_SHAPE,
    .infer = non_zero_infer,
    .prepare = sb_move_prepare,
    .forward = non_zero_forward,
};
