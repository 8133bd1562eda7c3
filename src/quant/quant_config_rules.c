/* Combinations that cannot work: what each quantizer and observer is for, and
 * what each backend can run.
 *
 * Every complaint ends with the reason, since the reader sees two settings that
 * are fine by themselves. */
#include <stdio.h>
#include <string.h>

#include "quant/observer_def.h"
#include "quant/quant_config_file.h"

enum { PATH_MOST = 320 };

/* ---- backends ----------------------------------------------------------- */

/* Bit b: width b; bit s: scheme s. */
#define BITS(b)      (1u << (b))
#define ALL_BITS     0x1fffeu
#define PT_SYMMETRIC (1u << 0)
#define PT_AFFINE    (1u << 1)
#define PC_SYMMETRIC (1u << 2)
#define PC_AFFINE    (1u << 3)
#define PG_SYMMETRIC (1u << 4)
#define PG_AFFINE    (1u << 5)
#define PER_TENSOR   (PT_SYMMETRIC | PT_AFFINE)
#define PER_CHANNEL  (PC_SYMMETRIC | PC_AFFINE)
#define PER_GROUP    (PG_SYMMETRIC | PG_AFFINE)

typedef struct backend_rule {
    /* What may be calibrated, and weights if activations stay float. */
    uint32_t w_bits, w_schemes, a_bits, a_schemes, only_bits, only_schemes;
    bool weights_only, dynamic;
    const char *why_bits; /* one half of a sentence */
    const char *why_schemes;
} backend_rule;

#define ONNXRUNTIME_RULE                                                    \
    {                                                                       \
        .w_bits = BITS(8) | BITS(4), .w_schemes = PER_TENSOR | PER_CHANNEL, \
        .a_bits = BITS(8), .a_schemes = PER_TENSOR,                         \
        .only_bits = BITS(8) | BITS(4) | BITS(2),                           \
        .only_schemes = PER_TENSOR | PER_CHANNEL | PER_GROUP,               \
        .weights_only = true, .dynamic = true,                              \
        .why_bits = "onnxruntime has no kernels for other widths",          \
        .why_schemes = "onnxruntime wants one scale for an activation "     \
                       "and groups only with A: none",                      \
    }

static const backend_rule rules[SB_BACKEND_COUNT] = {
    [SB_BACKEND_VIRTUAL] = {.w_bits = ALL_BITS,
                            .w_schemes = PER_TENSOR | PER_CHANNEL | PER_GROUP,
                            .a_bits = ALL_BITS,
                            .a_schemes = PER_TENSOR | PER_CHANNEL,
                            .only_bits = ALL_BITS,
                            .only_schemes =
                                PER_TENSOR | PER_CHANNEL | PER_GROUP,
                            .weights_only = true,
                            .dynamic = true,
                            .why_bits = "",
                            .why_schemes = ""},
    [SB_BACKEND_ONNXRUNTIME] = ONNXRUNTIME_RULE,
    [SB_BACKEND_ONNXRUNTIME_X86] = ONNXRUNTIME_RULE,
    [SB_BACKEND_ONNXRUNTIME_ARM] = ONNXRUNTIME_RULE,
    [SB_BACKEND_TENSORRT] =
        {.w_bits = BITS(8),
         .w_schemes = PC_SYMMETRIC,
         .a_bits = BITS(8),
         .a_schemes = PT_SYMMETRIC,
         .only_bits = BITS(8) | BITS(4),
         .only_schemes = PC_SYMMETRIC | PG_SYMMETRIC,
         .weights_only = true,
         .why_bits = "tensorrt runs int8 only",
         .why_schemes = "tensorrt wants zero points 0, weights per channel, "
                        "activations per tensor"},
    [SB_BACKEND_OPENVINO] =
        {.w_bits = BITS(8),
         .w_schemes = PER_TENSOR | PER_CHANNEL,
         .a_bits = BITS(8),
         .a_schemes = PER_TENSOR,
         .only_bits = BITS(8) | BITS(4),
         .only_schemes = PER_TENSOR | PER_CHANNEL | PER_GROUP,
         .weights_only = true,
         .why_bits = "openvino runs 8 bit, and 4 for weights with A: none",
         .why_schemes = "openvino wants one scale for an activation and groups "
                        "only with A: none"},
    [SB_BACKEND_QNN] = {.w_bits = BITS(8) | BITS(4),
                        .w_schemes = PER_TENSOR | PER_CHANNEL,
                        .a_bits = BITS(8) | BITS(16),
                        .a_schemes = PER_TENSOR,
                        .why_bits = "qnn has weights of 8 and 4 bit, "
                                    "activations of 8 and 16",
                        .why_schemes = "qnn wants one scale for an activation, "
                                       "and has no groups"},
};

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
static sb_status complain(const sb_quant_check *c, const char *key,
                          const char *text)
{
    char path[PATH_MOST];

    (void)snprintf(path, sizeof path, "%s.%s", c->path, key);
    return sb_yaml_fail(c->doc,
                        c->place ? c->place : place_of(c->doc->root, path),
                        "%s: %s", path, text);
}

static sb_status refuse(const sb_quant_check *c, const char *key,
                        const char *found, const char *allowed, const char *why)
{
    char text[SB_ERROR_MAX];

    (void)snprintf(text, sizeof text, "found %s, allowed %s: %s", found,
                   allowed, why);
    return complain(c, key, text);
}

/* The widths, or the names, of a mask: "8", "4 or 8", "a, b or c". */
static void list_mask(uint32_t mask, const char *const *names, char *out,
                      size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < 32 && used < size; i++) {
        int n;

        if (!(mask >> i & 1u))
            continue;
        const char *between = used == 0 ? "" : (mask >> i) > 1 ? ", " : " or ";
        if (names)
            n = snprintf(out + used, size - used, "%s%s", between, names[i]);
        else
            n = snprintf(out + used, size - used, "%s%u", between, i);
        used += n > 0 ? (size_t)n : 0;
    }
}

/* ---- rules -------------------------------------------------------------- */

static sb_status check_set(const sb_quant_check *c, const sb_quant_side *side)
{
    if (side->bit < 0)
        return complain(c, "QUANTIZER.BIT",
                        "not set, allowed 1..16, or 0 for float");
    if (side->scheme < 0)
        return complain(c, "QSCHEME",
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
    unsigned need = weight ? SB_OBS_WEIGHT : SB_OBS_FEATURE;
    uint32_t mask = 0;
    char allowed[160];

    if (sb_observer_find(spec->observer)->flags & need)
        return SB_OK;
    for (unsigned i = 0; i < 32 && sb_quant_observer_names[i]; i++)
        if (sb_observer_find(sb_quant_observer_names[i])->flags & need)
            mask |= 1u << i;
    list_mask(mask, sb_quant_observer_names, allowed, sizeof allowed);
    return refuse(c, "OBSERVER.TYPE", spec->observer, allowed,
                  weight ? "a weight does not change from sample to sample"
                         : "it watches weights only");
}

static sb_status check_weight(const sb_quant_check *c,
                              const sb_quant_side *side,
                              const sb_quant_spec *spec)
{
    int64_t n = side->group_size;

    if (strcmp(spec->quantizer, "pact") == 0)
        return refuse(c, "QUANTIZER.TYPE", spec->quantizer,
                      "uniform, dorefa, lsq, lsq+ or adaround",
                      "pact learns where to clip activations");
    if (spec->granularity != SB_QUANT_PER_GROUP)
        return SB_OK;
    if (n != -1 && (n < 16 || (n & (n - 1)) != 0)) {
        char found[32];

        (void)snprintf(found, sizeof found, "%lld", (long long)n);
        return refuse(c, "QUANTIZER.GROUP_SIZE", found,
                      "16, 32, 64, 128, 256 or -1",
                      "runtimes read groups of these sizes");
    }
    if (strcmp(spec->quantizer, "uniform") != 0)
        return refuse(c, "QUANTIZER.TYPE", spec->quantizer, "uniform",
                      "QSCHEME is per group, and only uniform has groups");
    return SB_OK;
}

static sb_status check_feature(const sb_quant_check *c,
                               const sb_quant_side *side,
                               const sb_quant_spec *spec)
{
    if (strcmp(spec->quantizer, "adaround") == 0)
        return refuse(c, "QUANTIZER.TYPE", spec->quantizer,
                      "uniform, dorefa, lsq, lsq+ or pact",
                      "adaround decides for each weight which way to round");
    if (spec->granularity == SB_QUANT_PER_GROUP)
        return refuse(c, "QSCHEME", sb_quant_scheme_names[side->scheme],
                      "per-{tensor,channel}-{symmetric,affine}",
                      "groups are columns of a weight");
    if (strcmp(spec->quantizer, "pact") == 0 &&
        spec->granularity != SB_QUANT_PER_TENSOR)
        return refuse(c, "QSCHEME", sb_quant_scheme_names[side->scheme],
                      "per-tensor-symmetric or per-tensor-affine",
                      "pact has one clipping value for a tensor");
    return SB_OK;
}

static sb_status check_lsq_plus(const sb_quant_check *c,
                                const sb_quant_side *side,
                                const sb_quant_spec *spec)
{
    bool weight = spec->kind == SB_QUANT_WEIGHT;
    const char *want = weight ? "per-channel-symmetric" : "per-tensor-affine";

    if (strcmp(spec->quantizer, "lsq+") != 0 ||
        strcmp(sb_quant_scheme_names[side->scheme], want) == 0)
        return SB_OK;
    return refuse(c, "QSCHEME", sb_quant_scheme_names[side->scheme], want,
                  weight ? "lsq+ learns one scale a channel for weights"
                         : "lsq+ learns one scale and zero point for "
                           "activations");
}

static sb_status check_backend(const sb_quant_check *c,
                               const sb_quant_side *side)
{
    const backend_rule *rule = &rules[c->backend];
    bool only = c->mode == SB_QUANT_WEIGHTS_ONLY;
    bool weight = c->kind == SB_QUANT_WEIGHT;
    uint32_t bits = !weight ? rule->a_bits
                    : only  ? rule->only_bits
                            : rule->w_bits;
    uint32_t schemes = !weight ? rule->a_schemes
                       : only  ? rule->only_schemes
                               : rule->w_schemes;
    char allowed[160], found[32];

    if (!(bits >> side->bit & 1u)) {
        (void)snprintf(found, sizeof found, "%lld", (long long)side->bit);
        list_mask(bits, NULL, allowed, sizeof allowed);
        return refuse(c, "QUANTIZER.BIT", found, allowed, rule->why_bits);
    }
    if (c->mode == SB_QUANT_DYNAMIC && c->backend != SB_BACKEND_VIRTUAL &&
        side->bit != 8) {
        (void)snprintf(found, sizeof found, "%lld", (long long)side->bit);
        return refuse(c, "QUANTIZER.BIT", found, "8",
                      "A: dynamic multiplies 8-bit numbers");
    }
    if (!(schemes >> side->scheme & 1u)) {
        list_mask(schemes, sb_quant_scheme_names, allowed, sizeof allowed);
        return refuse(c, "QSCHEME", sb_quant_scheme_names[side->scheme],
                      allowed, rule->why_schemes);
    }
    return SB_OK;
}

sb_status sb_quant_check_side(const sb_quant_check *check,
                              const sb_quant_side *side)
{
    sb_quant_spec spec;

    if (side->disable || side->bit == 0)
        return SB_OK;
    SB_TRY(check_set(check, side));
    sb_quant_side_resolve(side, check->kind, &spec);
    if (check->kind == SB_QUANT_WEIGHT)
        SB_TRY(check_weight(check, side, &spec));
    else
        SB_TRY(check_feature(check, side, &spec));
    SB_TRY(check_observer(check, &spec));
    SB_TRY(check_lsq_plus(check, side, &spec));
    return check_backend(check, side);
}

sb_status sb_quant_check_mode(const sb_quant_check *check, const sb_yaml *a)
{
    const backend_rule *rule = &rules[check->backend];
    const char *name = sb_quant_backend_names[check->backend];

    if (check->mode == SB_QUANT_WEIGHTS_ONLY && !rule->weights_only)
        return sb_yaml_fail(check->doc, a,
                            "A: found none, allowed a map: %s runs the whole "
                            "graph quantized",
                            name);
    if (check->mode == SB_QUANT_DYNAMIC && !rule->dynamic)
        return sb_yaml_fail(check->doc, a,
                            "A: found dynamic, allowed a map%s: %s wants "
                            "ranges that are known beforehand",
                            rule->weights_only ? " or none" : "", name);
    return SB_OK;
}
