/* The table of quantizers: quantizers.def read twice. */
#include "quant/quantizer.h"

#include <string.h>

#define SB_QUANTIZER(id) extern const sb_quantizer_def sb_quantizer_##id;
#include "quant/quantizers.def"
#undef SB_QUANTIZER

static const sb_quantizer_def *const table[] = {
#define SB_QUANTIZER(id) &sb_quantizer_##id,
#include "quant/quantizers.def"
#undef SB_QUANTIZER
};

const sb_quantizer_def *sb_quantizer_find(const char *name)
{
    for (size_t i = 0; i < SB_COUNT(table); i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

const sb_quantizer_def *const *sb_quantizer_all(size_t *n)
{
    *n = SB_COUNT(table);
    return table;
}
