/* What a target takes, in words: for `config explain` and the documentation,
 * from the same limits that settings are checked with. */
#include "runtime/target.h"

enum { SYMMETRIC = 1, AFFINE = 2, BOTH = 3 };

/* "8 bit", "8 or 4 bit", "1..16 bit". */
static void text_add_bits(sb_str *out, uint32_t bits)
{
    int most = 31, left = 0;

    while (!(bits >> most & 1u))
        most--;
    if (bits == SB_BITS_UP_TO(most) && most > 1) {
        sb_str_addf(out, "1..%d bit", most);
        return;
    }
    for (int b = 1; b <= most; b++)
        left += (int)(bits >> b & 1u);
    for (int b = most; b > 0; b--) {
        if (!(bits >> b & 1u))
            continue;
        left--;
        sb_str_addf(out, "%d%s", b,
                    left == 0  ? " bit"
                    : left > 1 ? ", "
                               : " or ");
    }
}

/* "every scheme"; "per tensor or channel, symmetric"; where they differ, "per
 * tensor symmetric or channel affine". */
static void text_add_schemes(sb_str *out, uint32_t schemes)
{
    static const char *const grains[] = {"tensor", "channel", "group"};
    static const char *const kinds[] = {"", "symmetric", "affine", ""};
    unsigned of[SB_COUNT(grains)], first = 0, n = 0, left;
    bool alike = true;

    if (schemes == SB_SCHEMES_ALL) {
        sb_str_add(out, "every scheme");
        return;
    }
    for (size_t i = 0; i < SB_COUNT(grains); i++) {
        of[i] = schemes >> 2 * i & BOTH;
        n += of[i] != 0;
        first = first ? first : of[i];
        alike = alike && (of[i] == 0 || of[i] == first);
    }
    left = n;
    for (size_t i = 0; i < SB_COUNT(grains); i++) {
        if (!of[i])
            continue;
        sb_str_addf(out, "%s%s%s%s",
                    left == n  ? "per "
                    : left > 1 ? ", "
                               : " or ",
                    grains[i], alike || of[i] == BOTH ? "" : " ",
                    alike ? "" : kinds[of[i]]);
        left--;
    }
    if (alike && first != BOTH)
        sb_str_addf(out, ", %s", kinds[first]);
}

void sb_target_describe(const sb_target_def *target, sb_str *out)
{
    static const struct {
        sb_target_use use;
        const char *name;
        uint32_t schemes; /* that this use can have at all */
    } uses[] = {
        {SB_USE_WEIGHT, "weights", SB_SCHEMES_ALL},
        {SB_USE_ACT, "activations",
         SB_SCHEMES_PER_TENSOR | SB_SCHEMES_PER_CHANNEL},
        {SB_USE_WEIGHT_ONLY, "A: none", SB_SCHEMES_ALL},
        {SB_USE_WEIGHT_DYNAMIC, "A: dynamic", SB_SCHEMES_ALL},
    };
    const char *between = "";

    for (size_t i = 0; i < SB_COUNT(uses); i++) {
        const sb_target_limits *l = &target->limits[uses[i].use];

        if (!sb_target_has(target, uses[i].use))
            continue;
        sb_str_addf(out, "%s%s ", between, uses[i].name);
        text_add_bits(out, l->named_bits ? l->named_bits : l->bits);
        sb_str_add(out, ", ");
        text_add_schemes(out,
                         (l->named_schemes ? l->named_schemes : l->schemes) &
                             uses[i].schemes);
        between = "; ";
    }
}
