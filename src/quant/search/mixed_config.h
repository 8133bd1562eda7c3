/* mixed_config.h - a configuration with other bit widths, or with more layers
 * in float, as text. */
#ifndef SB_QUANT_SEARCH_MIXED_CONFIG_H
#define SB_QUANT_SEARCH_MIXED_CONFIG_H

#include "base/str.h"

/* A layer with a bit width of its own. */
typedef struct sb_mixed_width {
    const char *name; /* of the node, or its module path */
    int bits;
} sb_mixed_width;

/* The configuration `text` (`file` is what messages say) with weights of `bits`
 * bits, but those of `own`, which become SPECIFIC entries.  SB_BAD_CONFIG if W
 * has some already. */
SB_MUST_USE sb_status sb_mixed_config(sb_ctx *ctx, const char *file,
                                      const char *text, int bits,
                                      const sb_mixed_width *own, size_t n_own,
                                      sb_str *out);
/* The same with nodes that stay in float, by patterns. */
SB_MUST_USE sb_status sb_floats_config(sb_ctx *ctx, const char *file,
                                       const char *text,
                                       const char *const *patterns, size_t n,
                                       sb_str *out);

#endif
