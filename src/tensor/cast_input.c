/* Elements of samples as a model's inputs want them.
 *
 * NumPy makes doubles and 64-bit integers unless told otherwise, images are
 * often kept as bytes, tokenizers give 32 or 64 bits: none of that should stop
 * a run.  So any number becomes a float of any width, and an integer becomes
 * another integer that can hold it.  A float never becomes an integer. */
#include "tensor/cast_input.h"

#include <string.h>

static bool is_number(sb_dtype dtype)
{
    return sb_dtype_size(dtype) != 0 &&
           sb_dtype_get(dtype)->cls != SB_CLASS_OTHER;
}

static bool is_integer(sb_dtype dtype)
{
    sb_dtype_class cls = sb_dtype_get(dtype)->cls;

    return cls == SB_CLASS_INT || cls == SB_CLASS_UINT;
}

sb_dtype sb_cast_input_dtype(sb_dtype from, sb_dtype want)
{
    if (want == SB_DTYPE_NONE)
        return from == SB_DTYPE_F64 ? SB_DTYPE_F32 : from;
    if (!is_number(from) || !is_number(want))
        return from;
    if (sb_dtype_is_float(want) ||
        (is_integer(want) && sb_dtype_is_integral(from)))
        return want;
    return from;
}

/* A 64-bit unsigned number that is larger than any signed one looks negative
 * when read; it fits into nothing but its own type. */
static bool cast_input_holds(sb_dtype dtype, bool is_unsigned, int64_t x)
{
    const sb_dtype_info *info = sb_dtype_get(dtype);
    bool to_unsigned = info->cls == SB_CLASS_UINT;

    if (x < 0 && (is_unsigned || to_unsigned))
        return false;
    if (info->bits >= 64)
        return true;
    int64_t most = ((int64_t)1 << (info->bits - (to_unsigned ? 0 : 1))) - 1;
    return x <= most && x >= -most - 1;
}

sb_status sb_cast_input_copy(sb_ctx *ctx, const sb_tensor *from, sb_dtype dtype,
                             void *to)
{
    int64_t n = sb_tensor_count(from);
    bool is_unsigned = sb_dtype_get(from->dtype)->cls == SB_CLASS_UINT;

    if (n == 0)
        return SB_OK;
    if (from->dtype == dtype) {
        memcpy(to, from->data, sb_tensor_bytes(from));
        return SB_OK;
    }
    for (int64_t i = 0; is_integer(dtype) && i < n; i++) {
        int64_t x = sb_tensor_get_i64(from, i);
        if (!cast_input_holds(dtype, is_unsigned, x))
            return sb_fail(ctx, SB_BAD_DATA,
                           "the model wants %s, which does not hold %s%llu",
                           sb_dtype_get(dtype)->onnx,
                           x < 0 && !is_unsigned ? "-" : "",
                           x < 0 && !is_unsigned ? 0ULL - (uint64_t)x
                                                 : (unsigned long long)x);
    }
    sb_convert(from->dtype, from->data, dtype, to, (size_t)n);
    return SB_OK;
}

sb_status sb_tensor_cast(sb_ctx *ctx, const sb_tensor *t, sb_dtype dtype,
                         sb_tensor **out)
{
    sb_tensor *copy = NULL;
    sb_dtype as = sb_cast_input_dtype(t->dtype, dtype);

    if (sb_dtype_size(as) == 0)
        return sb_fail(ctx, SB_UNSUPPORTED, "a copy of elements of type %s",
                       sb_dtype_name(as));
    SB_TRY(sb_tensor_create(ctx, as, t->rank, t->dims, &copy));
    sb_status status = sb_cast_input_copy(ctx, t, as, copy->data);
    if (status == SB_OK)
        *out = copy;
    else
        sb_tensor_free(copy);
    return status;
}
