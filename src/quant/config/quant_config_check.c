/* Combinations that cannot work: what each quantizer and observer is for.  What
 * the target takes is asked in quant_config_target.c.
 *
 * Every complaint ends with the reason, since the reader sees two settings that
 * are fine by themselves. */
#include <stdio.h>
#include <string.h>

#include "quant/config/quant_config_file.h"
#include "quant/observe/observer_def.h"
#include "quant/quantize/quantizer.h"

enum { PATH_MOST = 320 };

/* ---- complaints --------------------------------------------------------- */

/* The deepest node on a dotted path, for its line. */
static const sb_yaml *place_of(const sb_yaml *root, const char *path)
{
    const sb_yaml *at = root;

    for (;;) {
        char key[64];
        size_t len = strcspn(path, ".");

        (void)snprintf(key, sizeof key, "%.*s", (int)len, path);
        const sb_yaml *next = sb_yaml_get(at, key);
        if (!next)
            return at;
        at = next;
        if (!path[len])
            return at;
        path += len + 1;
    }
}

/* `file:line: PATH.KEY: text` */
static sb_status config_check_complain(const sb_quant_check *c, const char *key,
                                       const char *text)
{
    char path[PATH_MOST];

    (void)snprintf(path, sizeof path, "%s.%s", c->path, key);
    return sb_yaml_fail(c->doc,
                        c->place ? c->place : place_of(c->doc->root, path),
                        "%s: %s", path, text);
}

sb_status sb_quant_check_refuse(const sb_quant_check *c, const char *key,
                                const char *found, const char *allowed,
                                const char *why)
{
    char text[SB_ERROR_MAX];

    (void)snprintf(text, sizeof text, "found %s, allowed %s: %s", found,
                   allowed, why);
    return config_check_complain(c, key, text);
}

void sb_quant_list_mask(uint32_t mask, const char *const *names, char *out,
                        size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < 32 && used < size; i++) {
        int n;

        if (!(mask >> i & 1u))
            continue;
        unsigned last = i;
        while (!names && (mask >> i & 7u) == 7 && (mask >> last & 3u) == 3)
            last++;
        const char *between = used == 0            ? ""
                              : (mask >> last) > 1 ? ", "
                                                   : " or ";
        if (names)
            n = snprintf(out + used, size - used, "%s%s", between, names[i]);
        else if (last > i)
            n = snprintf(out + used, size - used, "%s%u..%u", between, i, last);
        else
            n = snprintf(out + used, size - used, "%s%u", between, i);
        used += n > 0 ? (size_t)n : 0;
        i = last;
    }
}

/* ---- rules -------------------------------------------------------------- */

static sb_status check_set(const sb_quant_check *c, const sb_quant_side *side)
{
    if (side->bit < 0)
        return config_check_complain(c, "QUANTIZER.BIT",
                                     "not set, allowed 1..16, or 0 for float");
    if (side->scheme < 0)
        return config_check_complain(
            c, "QSCHEME",
            c->kind == SB_QUANT_WEIGHT
                ? "not set, allowed "
                  "per-{tensor,channel,group}-{symmetric,affine}"
                : "not set, allowed "
                  "per-{tensor,channel}-{symmetric,affine}");
    return SB_OK;
}

/* The observer's row says what it can watch. */
static sb_status check_observer(const sb_quant_check *c,
                                const sb_quant_spec *spec)
{
    bool weight = spec->kind == SB_QUANT_WEIGHT;
    unsigned need = weight ? SB_OBS_WEIGHT : SB_OBS_ACTIVATION;
    const sb_observer_def *row;
    uint32_t mask = 0;
    char allowed[160];

    if (spec->observer->flags & need)
        return SB_OK;
    for (unsigned i = 0;
         i < 32 && (row = sb_observer_at(c->tables->ctx, i)) != NULL; i++)
        if (row->flags & need)
            mask |= 1u << i;
    sb_quant_list_mask(mask, c->tables->observer_names, allowed,
                       sizeof allowed);
    return sb_quant_check_refuse(c, "OBSERVER.TYPE", spec->observer->name,
                                 allowed, spec->observer->why_one);
}

/* Quantizers that take one of these schemes on this side. */
static void list_quantizers(const sb_quant_check *c, unsigned schemes,
                            char *out, size_t size)
{
    const sb_quantizer_def *row;
    uint32_t mask = 0;

    for (unsigned i = 0;
         i < 32 && (row = sb_quantizer_at(c->tables->ctx, i)) != NULL; i++)
        if (row->uses[c->kind].schemes & schemes)
            mask |= 1u << i;
    sb_quant_list_mask(mask, c->tables->quantizer_names, out, size);
}

static sb_status check_groups(const sb_quant_check *c,
                              const sb_quant_side *side,
                              const sb_quant_spec *spec)
{
    int64_t n = side->group_size;
    char found[32], allowed[160], why[SB_ERROR_MAX];

    if (spec->kind == SB_QUANT_ACTIVATION)
        return sb_quant_check_refuse(c, "QSCHEME",
                                     sb_quant_scheme_names[side->scheme],
                                     "per-{tensor,channel}-{symmetric,affine}",
                                     "groups are columns of a weight");
    if (n != -1 && (n < 16 || (n & (n - 1)) != 0)) {
        (void)snprintf(found, sizeof found, "%lld", (long long)n);
        return sb_quant_check_refuse(c, "QUANTIZER.GROUP_SIZE", found,
                                     "16, 32, 64, 128, 256 or -1",
                                     "runtimes read groups of these sizes");
    }
    if (spec->quantizer->uses[c->kind].schemes & SB_SCHEMES_PER_GROUP)
        return SB_OK;
    list_quantizers(c, SB_SCHEMES_PER_GROUP, allowed, sizeof allowed);
    (void)snprintf(why, sizeof why,
                   "QSCHEME is per group, and only %s has groups", allowed);
    return sb_quant_check_refuse(c, "QUANTIZER.TYPE", spec->quantizer->name,
                                 allowed, why);
}

/* The quantizer's row says what it is for, and which schemes it takes. */
static sb_status check_quantizer(const sb_quant_check *c,
                                 const sb_quant_side *side,
                                 const sb_quant_spec *spec)
{
    const sb_quantizer_use *use = &spec->quantizer->uses[c->kind];
    char allowed[160];

    if (use->schemes == 0) {
        list_quantizers(c, ~0u, allowed, sizeof allowed);
        return sb_quant_check_refuse(c, "QUANTIZER.TYPE", spec->quantizer->name,
                                     allowed, use->why);
    }
    if (spec->granularity == SB_QUANT_PER_GROUP)
        SB_TRY(check_groups(c, side, spec));
    if (use->schemes >> side->scheme & 1u)
        return SB_OK;
    sb_quant_list_mask(use->schemes, sb_quant_scheme_names, allowed,
                       sizeof allowed);
    return sb_quant_check_refuse(
        c, "QSCHEME", sb_quant_scheme_names[side->scheme], allowed, use->why);
}

sb_status sb_quant_check_side(const sb_quant_check *check,
                              const sb_quant_side *side)
{
    sb_quant_spec spec;

    if (side->disable || side->bit == 0)
        return SB_OK;
    SB_TRY(check_set(check, side));
    sb_quant_side_resolve(check->tables, side, check->kind, &spec);
    SB_TRY(check_quantizer(check, side, &spec));
    SB_TRY(check_observer(check, &spec));
    return sb_quant_check_target(check, side);
}
