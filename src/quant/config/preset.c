/* Presets. */
#include "quant/config/preset.h"

#include <string.h>

#include "base/str.h"

/* The default second: what `sparsebit config default` prints. */
static const sb_quant_preset presets[] = {
    {"fast", "scales from ranges, weights rounded to nearest", "false",
     "uniform", "false", 0, "minmax"},
    {"balanced",
     "averaged ranges, channels equalized, GPTQ, biases corrected; 8 samples",
     "true", "gptq", "false", 8, "moving_average"},
    {"best",
     "clipped ranges, channels equalized, layers fitted, GPTQ; all samples",
     "true", "gptq", "true", 0, "mse"},
};

const sb_quant_preset *sb_quant_preset_at(size_t i)
{
    return i < SB_COUNT(presets) ? &presets[i] : NULL;
}

sb_status sb_quant_preset_find(sb_ctx *ctx, const char *name,
                               const sb_quant_preset **out)
{
    sb_str names;

    for (size_t i = 0; i < SB_COUNT(presets); i++)
        if (strcmp(presets[i].name, name ? name : "balanced") == 0) {
            *out = &presets[i];
            return SB_OK;
        }
    sb_str_init(&names, ctx);
    for (size_t i = 0; i < SB_COUNT(presets); i++)
        sb_str_addf(&names, "%s%s", i ? ", " : "", presets[i].name);
    sb_status status =
        sb_fail(ctx, SB_BAD_ARG, "there is no preset '%s'; presets are %s",
                name, sb_str_text(&names));
    sb_str_free(&names);
    return status;
}

sb_status sb_quant_preset_config(sb_ctx *ctx, const sb_target_def *target,
                                 const sb_quant_preset *preset,
                                 sb_quant_config **out)
{
    bool affine = !target || sb_target_takes(target, SB_USE_ACT, false);
    sb_str text;

    sb_str_init(&text, ctx);
    sb_str_addf(
        &text,
        "SCHEDULE: {FUSE_BN: true, EQUALIZATION: %s, BIAS_CORRECTION: %s, "
        "LAYERWISE: %s, SAMPLES: %d}\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8, TYPE: "
        "%s}}\n"
        "A: {QSCHEME: per-tensor-%s, QUANTIZER: {BIT: 8}, OBSERVER: {TYPE: "
        "%s}}\n",
        preset->correct, preset->correct, preset->layerwise, preset->samples,
        preset->quantizer, affine ? "affine" : "symmetric", preset->observer);
    sb_status status = sb_str_status(&text);
    if (status == SB_OK)
        status =
            sb_quant_config_load_memory(ctx, "default", sb_str_text(&text),
                                        text.len, SB_QUANT_CONFIG_QUANT, out);
    sb_str_free(&text);
    return status;
}
