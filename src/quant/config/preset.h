/* preset.h - configurations for those who have none: how much is done for
 * accuracy, and for how long. */
#ifndef SB_QUANT_CONFIG_PRESET_H
#define SB_QUANT_CONFIG_PRESET_H

#include "quant/config/quant_config.h"

typedef struct sb_quant_preset {
    const char *name;
    const char *summary;   /* one line */
    const char *correct;   /* SCHEDULE.EQUALIZATION, .BIAS_CORRECTION */
    const char *quantizer; /* W.QUANTIZER.TYPE */
    const char *layerwise; /* SCHEDULE.LAYERWISE */
    int samples;           /* SCHEDULE.SAMPLES */
    const char *observer;  /* A.OBSERVER.TYPE */
} sb_quant_preset;

/* Row i; NULL past the end. */
const sb_quant_preset *sb_quant_preset_at(size_t i);
/* NULL is the default; SB_BAD_ARG, with the names, if there is none such. */
SB_MUST_USE sb_status sb_quant_preset_find(sb_ctx *ctx, const char *name,
                                           const sb_quant_preset **out);
/* 8 bit, weights per channel, activations as the target (NULL: none) takes
 * them. */
SB_MUST_USE sb_status sb_quant_preset_config(sb_ctx *ctx,
                                             const sb_target_def *target,
                                             const sb_quant_preset *preset,
                                             sb_quant_config **out);

#endif
