/* What a configuration asks for against what a target takes.
 *
 * The limits and their reasons are in the target's own row
 * (runtime/target.h).  They are asked twice: when a file is read, of the target
 * that it names as BACKEND, with the line to change; and when quantizers are
 * placed, of the target that the model is written for, which may be another,
 * with the node at which it matters. */
#include <stdio.h>

#include "quant/config/quant_config_file.h"

static sb_target_use use_of(sb_quant_kind kind, sb_quant_mode mode)
{
    if (kind != SB_QUANT_WEIGHT)
        return SB_USE_ACT;
    return mode == SB_QUANT_STATIC         ? SB_USE_WEIGHT
           : mode == SB_QUANT_WEIGHTS_ONLY ? SB_USE_WEIGHT_ONLY
                                           : SB_USE_WEIGHT_DYNAMIC;
}

/* ---- a file ------------------------------------------------------------- */

sb_status sb_quant_check_target(const sb_quant_check *c,
                                const sb_quant_side *side)
{
    const sb_target_setting setting = {.use = use_of(c->kind, c->mode),
                                       .bits = (int)side->bit,
                                       .scheme = (unsigned)side->scheme,
                                       .named = true};
    sb_target_refusal no;
    char allowed[160], found[32];

    if (sb_target_check(c->target, &setting, &no))
        return SB_OK;
    sb_quant_list_mask(no.allowed, no.of_bits ? NULL : sb_quant_scheme_names,
                       allowed, sizeof allowed);
    if (!no.of_bits)
        return sb_quant_check_refuse(
            c, "QSCHEME", sb_quant_scheme_names[side->scheme], allowed, no.why);
    (void)snprintf(found, sizeof found, "%d", setting.bits);
    return sb_quant_check_refuse(c, "QUANTIZER.BIT", found, allowed, no.why);
}

sb_status sb_quant_check_mode(const sb_quant_check *check, const sb_yaml *a)
{
    sb_target_use use = use_of(SB_QUANT_WEIGHT, check->mode);

    if (sb_target_has(check->target, use))
        return SB_OK;
    return sb_yaml_fail(
        check->doc, a, "A: found %s, allowed a map%s: %s",
        use == SB_USE_WEIGHT_ONLY ? "none" : "dynamic",
        sb_target_has(check->target, SB_USE_WEIGHT_ONLY) ? " or none" : "",
        check->target->limits[use].why_bits);
}

/* ---- a node ------------------------------------------------------------- */

/* "affine weights" where no symmetry will do, else "per-channel weights". */
static void describe_scheme(const sb_quant_spec *spec, uint32_t allowed,
                            char *out, size_t size)
{
    static const char *const per[] = {"per-tensor", "per-channel", "per-group"};
    bool some = (allowed & (spec->symmetric ? SB_SCHEMES_SYMMETRIC
                                            : SB_SCHEMES_AFFINE)) != 0;

    (void)snprintf(out, size, "%s %s",
                   some              ? per[spec->granularity]
                   : spec->symmetric ? "symmetric"
                                     : "affine",
                   spec->kind == SB_QUANT_WEIGHT ? "weights" : "activations");
}

sb_status sb_quant_config_check_node(const sb_quant_config *cfg,
                                     const sb_target_def *target,
                                     const sb_quant_spec *spec,
                                     const char *node)
{
    const sb_target_setting setting = {
        .use = use_of(spec->kind, cfg->mode),
        .bits = spec->bits,
        .scheme = (unsigned)spec->granularity * 2 + !spec->symmetric};
    bool weight = spec->kind == SB_QUANT_WEIGHT;
    sb_target_refusal no;
    char what[64], allowed[160];

    if (sb_target_check(target, &setting, &no))
        return SB_OK;
    (void)snprintf(what, sizeof what, "%s of this width",
                   weight ? "weights" : "activations");
    if (!no.of_bits)
        describe_scheme(spec, no.allowed, what, sizeof what);
    sb_quant_list_mask(no.allowed, no.of_bits ? NULL : sb_quant_scheme_names,
                       allowed, sizeof allowed);
    return sb_fail(cfg->ctx, SB_BAD_CONFIG,
                   "%s: target %s cannot take %s (node '%s'); it wants %s.%s "
                   "%s",
                   cfg->doc->file, target->name, what, node, weight ? "W" : "A",
                   no.of_bits ? "QUANTIZER.BIT" : "QSCHEME", allowed);
}
