/* Sequences as inputs and outputs of kernels. */
#include "ops/sequence/sequence_util.h"

#include "ops/move/move_util.h"

sb_type sb_sequence_type(void)
{
    return (sb_type){.dtype = SB_DTYPE_SEQUENCE, .shape = sb_shape_of_rank(1)};
}

sb_status sb_sequence_infer(sb_infer *in)
{
    in->out[0].type = sb_sequence_type();
    return SB_OK;
}

sb_status sb_sequence_in(const sb_kernel *k, uint32_t i, sb_sequence *out)
{
    if (sb_sequence_open(k->in[i], out))
        return SB_OK;
    return sb_kernel_fail(k, SB_BAD_DATA, "input %u is not a sequence: %s", i,
                          sb_dtype_name(k->in[i]->dtype));
}

sb_status sb_sequence_give(sb_kernel *k, uint32_t i, sb_dtype dtype,
                           const sb_tensor *items, size_t n)
{
    size_t bytes = 0;

    for (size_t j = 0; j < n; j++)
        if (items[j].dtype != dtype)
            return sb_kernel_fail(
                k, SB_BAD_DATA, "a sequence of %s cannot hold %s",
                sb_dtype_name(dtype), sb_dtype_name(items[j].dtype));
    if (!sb_sequence_size(dtype, items, n, &bytes))
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "no sequence of %zu tensors of type %s", n,
                              sb_dtype_name(dtype));
    SB_TRY(k->host->resize_out(k, i, SB_DTYPE_SEQUENCE, 1,
                               &(int64_t){(int64_t)bytes}));
    sb_sequence_fill(dtype, items, n, k->out[i]->data);
    return SB_OK;
}

sb_status sb_sequence_position(const sb_kernel *k, uint32_t i, int64_t n,
                               int64_t *out)
{
    const sb_tensor *t = k->in[i];

    if (sb_tensor_count(t) != 1 || !sb_dtype_is_integral(t->dtype))
        return sb_kernel_fail(k, SB_BAD_DATA, "the position is not one number");
    return sb_index_check(k, sb_index_at(t, 0), n, out);
}
