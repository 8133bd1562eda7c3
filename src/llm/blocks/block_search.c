/* Scales of blocks, searched.
 *
 * A group of elements by itself: for several widths of its range elements are
 * rounded to codes, then scale and offset are those of least squares for these
 * codes; the best pair stays.  Formats of 256 elements hold scales and offsets
 * as whole numbers times a factor of all of its groups: near each group's own
 * the best whole numbers are taken, then the factor of least squares, and once
 * more. */
#include <math.h>
#include <string.h>

#include "llm/blocks/blocks.h"

enum { K_ROUNDS = 3 };

typedef struct search {
    const sb_weight_format *f;
    const float *x, *weight; /* of the block; weights NULL: all 1 */
    int groups;
    float *scale, *offset; /* by group */
} search;

static float half_of(float x)
{
    const float least = 0x1p-24F, most = 65504;
    float h = sb_f16_to_f32(sb_f32_to_f16(fminf(fabsf(x), most)));

    return copysignf(h < least ? least : h, x);
}

static float weight_at(const search *s, int i)
{
    return s->weight ? s->weight[i] : 1;
}

static float code_for(const sb_weight_format *f, float x, float scale,
                      float offset)
{
    float v = rintf((x - offset) / scale);

    return fminf(fmaxf(v, (float)f->lo), (float)f->hi);
}

/* ---- one group ----------------------------------------------------------- */

/* Sums over the elements of a group and their codes. */
typedef struct sums {
    double w, l, ll, x, xl;
} sums;

static sums group_sums(const search *s, int g, float scale, float offset)
{
    sums t = {0};

    for (int i = g * s->f->group; i < (g + 1) * s->f->group; i++) {
        double w = (double)weight_at(s, i), x = (double)s->x[i];
        double l = (double)code_for(s->f, s->x[i], scale, offset);

        t.w += w;
        t.l += w * l;
        t.ll += w * l * l;
        t.x += w * x;
        t.xl += w * x * l;
    }
    return t;
}

static double group_error(const search *s, int g, float scale, float offset)
{
    double sum = 0;

    for (int i = g * s->f->group; i < (g + 1) * s->f->group; i++) {
        float l = code_for(s->f, s->x[i], scale, offset);
        double e = (double)(l * scale + offset - s->x[i]);

        sum += (double)weight_at(s, i) * e * e;
    }
    return sum;
}

/* Takes scale and offset for the group if they are better than `least`. */
static void group_take(search *s, int g, double scale, double offset,
                       double *least)
{
    if (!(fabs(scale) >= 0x1p-126))
        return;
    double error = group_error(s, g, (float)scale, (float)offset);
    if (error < *least) {
        *least = error;
        s->scale[g] = (float)scale;
        s->offset[g] = (float)offset;
    }
}

/* Least squares for the codes that a first guess gives.  Offsets of 256 are
 * subtracted and not negative. */
static void group_try(search *s, int g, float scale, float offset,
                      double *least)
{
    sums t;

    if (!(fabsf(scale) >= 0x1p-126F))
        return;
    t = group_sums(s, g, scale, offset);
    if (s->f->symmetric) {
        group_take(s, g, t.ll > 0 ? t.xl / t.ll : 0, 0, least);
        return;
    }
    double det = t.w * t.ll - t.l * t.l;
    double a = det > 0 ? (t.w * t.xl - t.l * t.x) / det : (double)scale;
    double b = det > 0 ? (t.ll * t.x - t.l * t.xl) / det : (double)offset;
    if (b > 0 && s->f->block > 32) {
        a = t.ll > 0 ? t.xl / t.ll : 0;
        b = 0;
    }
    group_take(s, g, a, b, least);
}

static void group_search(search *s, int g)
{
    const int steps = 16;
    float lo = 0, hi = 0, top = (float)s->f->hi;
    double least = HUGE_VAL;

    for (int i = g * s->f->group; i < (g + 1) * s->f->group; i++) {
        lo = fminf(lo, s->x[i]);
        hi = fmaxf(hi, s->x[i]);
    }
    s->scale[g] = 0;
    s->offset[g] = s->f->symmetric ? 0 : lo;
    for (int k = 0; k <= steps; k++) {
        float more = -1 + 2 * (float)k / (float)steps;

        if (s->f->symmetric) { /* the larger side has one code more */
            float end = -lo > hi ? lo : hi;
            group_try(s, g, end / ((float)s->f->lo + more), 0, &least);
            group_try(s, g, -end / ((float)s->f->lo + more), 0, &least);
            continue;
        }
        for (int j = 0; j < (top > 3 ? 1 : 4); j++) {
            float low = lo * (1 - 0.1F * (float)j);
            group_try(s, g, (hi - low) / (top + more * fminf(1, top / 6)), low,
                      &least);
        }
    }
}

/* ---- 256 together -------------------------------------------------------- */

/* What whole numbers of the groups may be. */
typedef struct k_bounds {
    int scale_lo, scale_hi, offset_hi;
} k_bounds;

static k_bounds bounds_of(const sb_weight_format *f)
{
    if (f->symmetric)
        return f->hi > 7 ? (k_bounds){-128, 127, 0} : (k_bounds){-32, 31, 0};
    return f->hi > 3 ? (k_bounds){1, 63, 63} : (k_bounds){1, 15, 15};
}

static int clamp_to(float x, int lo, int hi)
{
    return x > (float)lo ? x < (float)hi ? (int)rintf(x) : hi : lo;
}

/* The numbers of one group, given the factors. */
static double k_group(const search *s, int g, float d, float d_min,
                      const k_bounds *b, int *scale, int *low)
{
    int at = clamp_to(s->scale[g] / d, b->scale_lo, b->scale_hi);
    int off =
        s->f->symmetric ? 0 : clamp_to(-s->offset[g] / d_min, 0, b->offset_hi);
    double least = HUGE_VAL;

    for (int i = at - 1; i <= at + 1; i++)
        for (int j = off - 1; j <= off + 1; j++) {
            if (i < b->scale_lo || i > b->scale_hi || i == 0 || j < 0 ||
                j > b->offset_hi)
                continue;
            double e = group_error(s, g, d * (float)i, -d_min * (float)j);
            if (e < least) {
                least = e;
                *scale = i;
                *low = j;
            }
        }
    return least;
}

/* Factors of least squares for the codes that whole numbers give. */
static void k_refit(const search *s, const int *scale, const int *low, float *d,
                    float *d_min)
{
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;

    for (int i = 0; i < s->f->block; i++) {
        int g = i / s->f->group;
        float l = code_for(s->f, s->x[i], *d * (float)scale[g],
                           -*d_min * (float)low[g]);
        double a = (double)l * scale[g], b = -(double)low[g];
        double w = (double)weight_at(s, i), x = (double)s->x[i];

        aa += w * a * a;
        ab += w * a * b;
        bb += w * b * b;
        ax += w * a * x;
        bx += w * b * x;
    }
    double det = aa * bb - ab * ab;
    if (bb > 0 && det > 1e-9 * aa * bb) {
        *d = (float)((bb * ax - ab * bx) / det);
        *d_min = (float)((aa * bx - ab * ax) / det);
    } else if (aa > 0) {
        *d = (float)(ax / aa);
    }
}

/* The factors to begin with: the largest number is the largest that fits. */
static void k_start(const search *s, const k_bounds *b, float *d, float *d_min)
{
    float scale = 0, low = 0;

    for (int g = 0; g < s->groups; g++) {
        if (fabsf(s->scale[g]) > fabsf(scale))
            scale = s->scale[g];
        low = fmaxf(low, -s->offset[g]);
    }
    *d = scale / (float)(s->f->symmetric ? b->scale_lo : b->scale_hi);
    *d_min = b->offset_hi > 0 ? low / (float)b->offset_hi : 0;
}

static void k_search(search *s)
{
    const k_bounds b = bounds_of(s->f);
    float d, d_min, best_d = 0, best_min = 0;
    int scale[SB_BLOCK_GROUPS] = {0}, low[SB_BLOCK_GROUPS] = {0};
    int best_scale[SB_BLOCK_GROUPS], best_low[SB_BLOCK_GROUPS];
    double least = HUGE_VAL;

    k_start(s, &b, &d, &d_min);
    for (int round = 0; round < K_ROUNDS; round++) {
        double sum = 0;

        d = half_of(d);
        d_min = half_of(fmaxf(d_min, 0));
        for (int g = 0; g < s->groups; g++)
            sum += k_group(s, g, d, d_min, &b, &scale[g], &low[g]);
        if (sum < least) {
            least = sum;
            best_d = d;
            best_min = d_min;
            memcpy(best_scale, scale, sizeof scale);
            memcpy(best_low, low, sizeof low);
        }
        k_refit(s, scale, low, &d, &d_min);
    }
    for (int g = 0; isfinite(least) && g < s->groups; g++) {
        s->scale[g] = best_d * (float)best_scale[g];
        s->offset[g] = -best_min * (float)best_low[g];
    }
}

/* ---- all ----------------------------------------------------------------- */

void sb_block_search(const sb_weight_format *f, const float *x,
                     const float *weight, sb_block *out)
{
    search s = {f, x, weight, f->block / f->group, out->scale, out->offset};
    int middle = f->symmetric ? 1 << (f->bits - 1) : 0;

    for (int g = 0; g < s.groups; g++)
        group_search(&s, g);
    if (f->block > 32)
        k_search(&s);
    for (int g = 0; f->block <= 32 && g < s.groups; g++) {
        s.scale[g] = half_of(s.scale[g]);
        s.offset[g] =
            f->symmetric ? 0 : sb_f16_to_f32(sb_f32_to_f16(s.offset[g]));
    }
    for (int i = 0; i < f->block; i++) {
        int g = i / f->group;

        out->code[i] =
            (uint8_t)((int)code_for(f, x[i], s.scale[g], s.offset[g]) + middle);
    }
    for (int g = 0; f->symmetric && g < s.groups; g++)
        s.offset[g] = -(float)middle * s.scale[g];
}

double sb_block_bits(const sb_weight_format *f)
{
    return 8.0 * f->bytes / f->block;
}

/* Rows that are no multiple of 256 take blocks of 32, of a size like those that
 * llama.cpp takes there. */
const sb_weight_format *sb_block_format(const sb_weight_format *f, int64_t cols)
{
    static const char *const instead[][2] = {
        {"Q2_K", "Q4_0"}, {"Q3_K", "Q4_0"}, {"Q4_K", "Q5_0"},
        {"Q5_K", "Q5_1"}, {"Q6_K", "Q8_0"},
    };

    if (cols % f->block == 0)
        return f;
    for (size_t i = 0; i < SB_COUNT(instead); i++)
        if (strcmp(instead[i][0], f->name) == 0 && cols % 32 == 0)
            return sb_weight_format_find(instead[i][1]);
    return NULL;
}
