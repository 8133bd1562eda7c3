/* The table of quantizers: quantizers.def read twice. */
#include "quant/quantize/quantizer.h"

#include <string.h>

#define SB_QUANTIZER(id) extern const sb_quantizer_def sb_quantizer_##id;
#include "quant/quantize/quantizers.def"
#undef SB_QUANTIZER

static const sb_quantizer_def *const quantizers[] = {
#define SB_QUANTIZER(id) &sb_quantizer_##id,
#include "quant/quantize/quantizers.def"
#undef SB_QUANTIZER
};

const sb_quantizer_def *sb_quantizer_find(const sb_ctx *ctx, const char *name)
{
    const sb_quantizer_def *row;

    for (size_t i = 0; (row = sb_quantizer_at(ctx, i)) != NULL; i++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

const sb_quantizer_def *sb_quantizer_at(const sb_ctx *ctx, size_t i)
{
    if (i < SB_COUNT(quantizers))
        return quantizers[i];
    return ctx ? sb_ctx_row(ctx, SB_ROW_QUANTIZER, i - SB_COUNT(quantizers))
               : NULL;
}
