/* Option structs of any size, and objects of another context. */
#include "base/options.h"

#include <string.h>

static bool options_tail_is_zero(const unsigned char *from, size_t begin,
                                 size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (from[i])
            return false;
    return true;
}

sb_status sb_options_read(sb_ctx *ctx, const char *name, const void *from,
                          const void *defaults, size_t size, void *out)
{
    size_t given = 0;

    memcpy(out, defaults, size);
    if (!from)
        return SB_OK;
    memcpy(&given, from, sizeof given);
    if (given < sizeof given)
        return sb_fail(ctx, SB_BAD_ARG,
                       "%s: struct_size is %zu: initialize it with its INIT "
                       "macro",
                       name, given);
    if (given > size && !options_tail_is_zero(from, size, given))
        return sb_fail(ctx, SB_BAD_ARG,
                       "%s: sets fields that version %s does not have "
                       "(struct_size %zu, want at most %zu)",
                       name, sb_version(), given, size);
    memcpy((unsigned char *)out + sizeof given,
           (const unsigned char *)from + sizeof given,
           (given < size ? given : size) - sizeof given);
    return SB_OK;
}

void sb_options_write(const void *from, size_t size, void *out)
{
    size_t given = 0;

    memcpy(&given, out, sizeof given);
    memcpy((unsigned char *)out + sizeof given,
           (const unsigned char *)from + sizeof given,
           (given < size ? given : size) - sizeof given);
}

sb_status sb_options_range(sb_ctx *ctx, const char *name, double v, double lo,
                           double hi)
{
    if (v >= lo && v <= hi)
        return SB_OK;
    return sb_fail(ctx, SB_BAD_ARG, "%s is %g, want %g to %g", name, v, lo, hi);
}

sb_status sb_ctx_check(sb_ctx *ctx, const sb_ctx *other, const char *what)
{
    if (ctx == other)
        return SB_OK;
    return sb_fail(ctx, SB_BAD_ARG,
                   "the %s belongs to another context (sb_model_clone() brings "
                   "a model here)",
                   what);
}
