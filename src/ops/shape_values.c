/* Symbolic elements of small integer tensors. */
#include "ops/shape_values.h"

#include "ops/move/move_util.h"

bool sb_shape_values_load(const sb_infer *in, uint32_t n, sb_shape *out,
                          int *count)
{
    *count = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (!sb_infer_content(in, i, &out[i]))
            return false;
        if (out[i].rank == 1)
            continue;
        if (*count != 1 && *count != out[i].rank)
            return false;
        *count = out[i].rank;
    }
    return true;
}

sb_dim sb_shape_values_at(const sb_shape *content, int j)
{
    return content->dim[content->rank == 1 ? 0 : j];
}

void sb_shape_values_binary(sb_infer *in, sb_dim (*fn)(sb_dim a, sb_dim b))
{
    sb_shape x[2], out = {0};

    if (!sb_shape_values_load(in, 2, x, &out.rank))
        return;
    for (int j = 0; j < out.rank; j++)
        out.dim[j] =
            fn(sb_shape_values_at(&x[0], j), sb_shape_values_at(&x[1], j));
    sb_infer_set_content(in, 0, &out);
}
