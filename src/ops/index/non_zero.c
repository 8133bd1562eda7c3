/* NonZero: the positions of all elements that are not 0, int64 [rank, n]. */
#include "ops/move/move_util.h"

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

/* The bits of an element that make it other than 0: all of them, the sign of a
 * float aside (-0 is 0). */
static bool is_set(const char *e, size_t elem, bool is_float)
{
    uint64_t lo = 0, hi = 0;

    switch (elem) {
    case 1:
        memcpy(&lo, e, 1);
        break;
    case 2:
        memcpy(&lo, e, 2);
        break;
    case 4:
        memcpy(&lo, e, 4);
        break;
    case 8:
        memcpy(&lo, e, 8);
        break;
    default: /* complex: the sign of either part may be set */
        memcpy(&lo, e, 8);
        memcpy(&hi, e + 8, 8);
        return (lo << 1 | hi << 1) != 0;
    }
    return is_float ? lo << (65 - 8 * elem) != 0 : lo != 0;
}

static sb_status non_zero_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    const char *data = x->data;
    size_t elem = sb_dtype_size(x->dtype);
    bool is_float = sb_dtype_is_float(x->dtype);
    int64_t n = sb_tensor_count(x), found = 0, at = 0;
    int rank = x->rank ? x->rank : 1;

    for (int64_t i = 0; i < n; i++)
        found += is_set(data + (size_t)i * elem, elem, is_float);
    SB_TRY(k->host->resize_out(k, 0, SB_DTYPE_I64, 2,
                               (const int64_t[]){rank, found}));
    int64_t *y = k->out[0]->data, last = x->rank ? x->dims[x->rank - 1] : 1;
    for (int64_t row = 0; row < n / (last ? last : 1); row++) {
        int64_t place[SB_MAX_RANK], rest = row;
        for (int d = rank - 2; d >= 0; d--) {
            place[d] = rest % x->dims[d];
            rest /= x->dims[d];
        }
        for (int64_t j = 0; j < last; j++) {
            if (!is_set(data + (size_t)(row * last + j) * elem, elem, is_float))
                continue;
            for (int d = 0; d < rank - 1; d++)
                y[d * found + at] = place[d];
            y[(rank - 1) * found + at++] = j;
        }
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
    .flags = SB_OP_DATA_SHAPE | SB_OP_FLAT,
    .infer = non_zero_infer,
    .prepare = sb_move_prepare,
    .forward = non_zero_forward,
};
