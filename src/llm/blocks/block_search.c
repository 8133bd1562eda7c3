/* Scales of blocks, searched.
 *
 * A group of elements by itself: for several widths of its range elements are
 * rounded to codes, then scale and offset are those of least squares for these
 * codes; the pair with the least error stays, and elements are rounded with it
 * and fitted again.  Formats of 256 elements hold scales and offsets as whole
 * numbers times a factor of all of its groups: near each group's own the best
 * whole numbers are taken, then the factor and the groups' own are those of
 * least squares for the codes that these give, and so on.
 *
 * Groups are searched side by side, one in each lane of a vector: all of them
 * do the same, and sums over a group are in the order of its elements on any
 * machine.  Sums are of what rounding leaves, which is small, so floats hold
 * them. */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "llm/blocks/blocks.h"

enum {
    LANES = SB_BLOCK_GROUPS,
    ELEMENTS = 32, /* of a group, at most */
    REFITS = 2,
    K_ROUNDS = 4,
};

/* Adding and subtracting this rounds a float below 2^22 to even. */
static const float rounder = 12582912.0F;

/* Scales and offsets of groups, and the errors that they leave. */
typedef struct fits {
    float scale[LANES], offset[LANES], left[LANES];
} fits;

typedef struct search {
    const sb_weight_format *f;
    int groups, blocks;            /* of a block; searched at once */
    float x[ELEMENTS][LANES];      /* element i of each group */
    float weight[ELEMENTS][LANES]; /* at most 1 */
    float all[LANES];              /* sums of weights */
    fits best;
} search;

static const float half_most = 65504;

static float half_of(float x)
{
    const float least = 0x1p-24F, most = half_most;
    float h = sb_f16_to_f32(sb_f32_to_f16(fminf(fabsf(x), most)));

    return copysignf(h < least ? least : h, x);
}

/* The code, `at` being steps from the offset; of no number, the least. */
static inline float code_at(float at, float lo, float hi)
{
    at = at > lo ? at : lo;
    at = at < hi ? at : hi;
    return (at + rounder) - rounder;
}

/* ---- sums ---------------------------------------------------------------- */

/* Over the elements of each group, times their weights: codes l and errors e.
 */
typedef struct sums {
    float l[LANES], ll[LANES], e[LANES], el[LANES], ee[LANES];
} sums;

static void lanes_inverse(const float *scale, float *inverse)
{
    for (int k = 0; k < LANES; k++)
        inverse[k] = 1 / scale[k];
}

SB_HOT static void lanes_sum(const search *s, const float *scale,
                             const float *offset, sums *out)
{
    const float lo = s->f->lo, hi = s->f->hi;
    float inverse[LANES];
    sums t = {{0}, {0}, {0}, {0}, {0}};

    lanes_inverse(scale, inverse);
    for (int i = 0; i < s->f->group; i++) {
        const float *x = s->x[i], *w = s->weight[i];

        SB_SIMD
        for (int k = 0; k < LANES; k++) {
            float above = x[k] - offset[k];
            float code = code_at(above * inverse[k], lo, hi);
            float rest = above - code * scale[k];

            t.l[k] += w[k] * code;
            t.ll[k] += w[k] * code * code;
            t.e[k] += w[k] * rest;
            t.el[k] += w[k] * rest * code;
            t.ee[k] += w[k] * rest * rest;
        }
    }
    *out = t;
}

/* The same where offsets are 0: only what symmetric groups need. */
SB_HOT static void lanes_sum_symmetric(const search *s, const float *scale,
                                       sums *out)
{
    const float lo = s->f->lo, hi = s->f->hi;
    float inverse[LANES];
    sums t = {{0}, {0}, {0}, {0}, {0}};

    lanes_inverse(scale, inverse);
    for (int i = 0; i < s->f->group; i++) {
        const float *x = s->x[i], *w = s->weight[i];

        SB_SIMD
        for (int k = 0; k < LANES; k++) {
            float code = code_at(x[k] * inverse[k], lo, hi);
            float rest = x[k] - code * scale[k];

            t.ll[k] += w[k] * code * code;
            t.el[k] += w[k] * rest * code;
            t.ee[k] += w[k] * rest * rest;
        }
    }
    *out = t;
}

/* Of errors alone. */
SB_HOT static void lanes_error(const search *s, const float *scale,
                               const float *offset, float *out)
{
    const float lo = s->f->lo, hi = s->f->hi;
    float inverse[LANES], ee[LANES] = {0};

    lanes_inverse(scale, inverse);
    for (int i = 0; i < s->f->group; i++) {
        const float *x = s->x[i], *w = s->weight[i];

        SB_SIMD
        for (int k = 0; k < LANES; k++) {
            float above = x[k] - offset[k];
            float code = code_at(above * inverse[k], lo, hi);
            float rest = above - code * scale[k];

            ee[k] += w[k] * rest * rest;
        }
    }
    memcpy(out, ee, sizeof ee);
}

/* ---- groups -------------------------------------------------------------- */

/* Least squares of scales for the codes that those before gave. */
SB_HOT static void fit_symmetric(const sums *t, fits *f)
{
    SB_SIMD
    for (int k = 0; k < LANES; k++) {
        float more = t->ll[k] > 0 ? t->el[k] / t->ll[k] : 0;

        f->scale[k] += more;
        f->left[k] = t->ee[k] - more * t->el[k];
    }
}

/* The same with offsets; `most` is the largest that one may be, where it is not
 * more than 0 itself. */
SB_HOT static void fit_affine(const search *s, const sums *t, float most,
                              fits *f)
{
    SB_SIMD
    for (int k = 0; k < LANES; k++) {
        float w = s->all[k], l = t->l[k], ll = t->ll[k], e = t->e[k];
        float el = t->el[k], ee = t->ee[k], at = f->offset[k];
        float det = w * ll - l * l;
        float part = det > 0 ? 1 / det : 0;
        float a = (w * el - l * e) * part, b = (ll * e - l * el) * part;
        bool over = at + b > most;
        /* Without an offset: errors with 0 instead of it. */
        float alone = el + at * l;
        float only = ll > 0 ? alone / ll : 0;
        float without = ee + at * (2 * e + at * w) - only * alone;

        f->scale[k] += over ? only : a;
        f->offset[k] = over ? 0 : at + b;
        f->left[k] = over ? without : ee - (a * el + b * e);
    }
}

SB_HOT static void fits_take(const fits *f, fits *best)
{
    const float least = 0x1p-126F;

    SB_SIMD
    for (int k = 0; k < LANES; k++) {
        bool good = f->left[k] < best->left[k] &&
                    (f->scale[k] >= least || f->scale[k] <= -least);

        best->left[k] = good ? f->left[k] : best->left[k];
        best->scale[k] = good ? f->scale[k] : best->scale[k];
        best->offset[k] = good ? f->offset[k] : best->offset[k];
    }
}

static void search_fit(const search *s, const sums *t, fits *f)
{
    if (s->f->symmetric)
        fit_symmetric(t, f);
    else
        fit_affine(s, t, s->f->block > 32 ? 0 : HUGE_VALF, f);
}

/* For the codes that scales and offsets give, those of least squares; they are
 * taken where less is left.  A scale of 0 leaves no number. */
static void lanes_try(search *s, fits f)
{
    sums t;

    if (s->f->symmetric)
        lanes_sum_symmetric(s, f.scale, &t);
    else
        lanes_sum(s, f.scale, f.offset, &t);
    search_fit(s, &t, &f);
    fits_take(&f, &s->best);
}

/* Ends of the groups, zero among them. */
static void lanes_ends(const search *s, float *lo, float *hi)
{
    for (int k = 0; k < LANES; k++)
        lo[k] = hi[k] = 0;
    for (int i = 0; i < s->f->group; i++)
        for (int k = 0; k < LANES; k++) {
            lo[k] = s->x[i][k] < lo[k] ? s->x[i][k] : lo[k];
            hi[k] = s->x[i][k] > hi[k] ? s->x[i][k] : hi[k];
        }
}

/* Steps of the search: the range is `codes` wide. */
static void try_symmetric(search *s, const float *lo, const float *hi,
                          float codes)
{
    fits f = {{0}, {0}, {0}};

    for (int sign = -1; sign <= 1; sign += 2) {
        for (int k = 0; k < LANES; k++) /* the larger side has a code more */
            f.scale[k] = (float)sign * (-lo[k] > hi[k] ? lo[k] : hi[k]) / codes;
        lanes_try(s, f);
    }
}

static void try_affine(search *s, const float *lo, const float *hi, float codes)
{
    fits f = {{0}, {0}, {0}};

    /* Of few codes the lowest is not best at the end. */
    for (int j = 0; j < (s->f->hi > 3 ? 1 : 4); j++) {
        for (int k = 0; k < LANES; k++) {
            f.offset[k] = lo[k] * (1 - 0.1F * (float)j);
            f.scale[k] = (hi[k] - f.offset[k]) / codes;
        }
        lanes_try(s, f);
    }
}

static void lanes_search(search *s)
{
    const int steps = 16;
    float lo[LANES], hi[LANES], top = (float)s->f->hi;

    lanes_ends(s, lo, hi);
    for (int k = 0; k < LANES; k++) {
        s->best.left[k] = HUGE_VALF;
        s->best.scale[k] = 0;
        s->best.offset[k] = s->f->symmetric ? 0 : lo[k];
    }
    for (int j = 0; j <= steps; j++) {
        float more = -1 + 2 * (float)j / (float)steps;

        if (s->f->symmetric)
            try_symmetric(s, lo, hi, (float)s->f->lo + more);
        else
            try_affine(s, lo, hi, top + more * fminf(1, top / 6));
    }
    for (int j = 0; j < REFITS; j++)
        lanes_try(s, s->best);
}

/* ---- 256 together -------------------------------------------------------- */

/* What whole numbers of the groups may be. */
typedef struct k_bounds {
    float scale_lo, scale_hi, offset_hi;
} k_bounds;

/* Factors of the block of each group, and the group's numbers. */
typedef struct k_parts {
    float d[LANES], d_min[LANES];
    float scale[LANES], low[LANES];
} k_parts;

static k_bounds bounds_of(const sb_weight_format *f)
{
    if (f->symmetric)
        return f->hi > 7 ? (k_bounds){-128, 127, 0} : (k_bounds){-32, 31, 0};
    return f->hi > 3 ? (k_bounds){1, 63, 63} : (k_bounds){1, 15, 15};
}

/* The numbers nearest to the groups' own scales and offsets. */
SB_HOT static void k_nearest(const search *s, const k_bounds *b, k_parts *p)
{
    SB_SIMD
    for (int k = 0; k < LANES; k++) {
        p->scale[k] =
            code_at(s->best.scale[k] / p->d[k], b->scale_lo, b->scale_hi);
        p->low[k] = code_at(-s->best.offset[k] / p->d_min[k], 0, b->offset_hi);
    }
}

/* Those beside them, and what they stand for; no scale is 0. */
SB_HOT static void k_beside(const k_parts *p, const k_bounds *b, float scale,
                            float low, k_parts *to, fits *f)
{
    SB_SIMD
    for (int k = 0; k < LANES; k++) {
        float at = code_at(p->scale[k] + scale, b->scale_lo, b->scale_hi);

        to->scale[k] = at < 0 || at > 0 ? at : 1;
        to->low[k] = code_at(p->low[k] + low, 0, b->offset_hi);
        f->scale[k] = p->d[k] * to->scale[k];
        f->offset[k] = -p->d_min[k] * to->low[k];
    }
}

/* The best numbers of the groups, given the factors. */
static void k_numbers(const search *s, const k_bounds *b, k_parts *p, fits *out)
{
    const int wide = s->f->symmetric ? 0 : 1;
    k_parts best = *p, at = *p;
    fits f;

    k_nearest(s, b, p);
    for (int k = 0; k < LANES; k++)
        out->left[k] = HUGE_VALF;
    for (int i = -1; i <= 1; i++)
        for (int j = -wide; j <= wide; j++) {
            k_beside(p, b, (float)i, (float)j, &at, &f);
            lanes_error(s, f.scale, f.offset, f.left);
            for (int k = 0; k < LANES; k++) {
                bool good = f.left[k] < out->left[k];

                best.scale[k] = good ? at.scale[k] : best.scale[k];
                best.low[k] = good ? at.low[k] : best.low[k];
            }
            fits_take(&f, out);
        }
    *p = best;
}

/* Factors of least squares for the codes that whole numbers give, of the block
 * whose groups begin at `first`. */
static void k_refit(const search *s, const sums *t, k_parts *p, int first)
{
    double aa = 0, ab = 0, bb = 0, ae = 0, be = 0;

    for (int k = first; k < first + s->groups; k++) {
        double a = (double)p->scale[k], b = -(double)p->low[k];

        aa += a * a * (double)t->ll[k];
        ab += a * b * (double)t->l[k];
        bb += b * b * (double)s->all[k];
        ae += a * (double)t->el[k];
        be += b * (double)t->e[k];
    }
    double det = aa * bb - ab * ab, d = (double)p->d[first],
           d_min = (double)p->d_min[first];
    if (bb > 0 && det > 1e-9 * aa * bb) {
        d += (bb * ae - ab * be) / det;
        d_min += (aa * be - ab * ae) / det;
    } else if (aa > 0) {
        d += ae / aa;
    }
    for (int k = first; k < first + s->groups; k++) {
        p->d[k] = half_of((float)d);
        p->d_min[k] = half_of(fmaxf((float)d_min, 0));
    }
}

/* The factors to begin with: the largest number is the largest that fits. */
static void k_start(const search *s, const k_bounds *b, k_parts *p, int first)
{
    float scale = 0, low = 0;

    for (int k = first; k < first + s->groups; k++) {
        if (fabsf(s->best.scale[k]) > fabsf(scale))
            scale = s->best.scale[k];
        low = fmaxf(low, -s->best.offset[k]);
    }
    scale /= s->f->symmetric ? b->scale_lo : b->scale_hi;
    low = b->offset_hi > 0 ? low / b->offset_hi : 0;
    for (int k = first; k < first + s->groups; k++) {
        p->d[k] = half_of(scale);
        p->d_min[k] = half_of(low);
    }
}

static void k_search(search *s)
{
    const k_bounds b = bounds_of(s->f);
    const size_t size = (size_t)s->groups * sizeof(float);
    k_parts p = {{0}, {0}, {0}, {0}};
    fits f = s->best, best = s->best;
    double least[LANES];
    sums t;

    for (int first = 0; first < LANES; first += s->groups) {
        k_start(s, &b, &p, first);
        least[first] = HUGE_VAL;
    }
    for (int round = 0; round < K_ROUNDS; round++) {
        k_numbers(s, &b, &p, &f);
        lanes_sum(s, f.scale, f.offset, &t);
        for (int first = 0; first < LANES; first += s->groups) {
            double sum = 0;

            for (int k = first; k < first + s->groups; k++)
                sum += (double)f.left[k];
            if (sum < least[first]) {
                least[first] = sum;
                memcpy(best.scale + first, f.scale + first, size);
                memcpy(best.offset + first, f.offset + first, size);
            }
            k_refit(s, &t, &p, first);
        }
        search_fit(s, &t, &f);
        s->best = f;
    }
    s->best = best;
}

/* ---- all ----------------------------------------------------------------- */

int sb_block_batch(const sb_weight_format *f)
{
    return LANES * f->group / f->block;
}

/* Weights as parts of the largest of their block: squares of errors times them
 * are floats.  The least still decide where there are no others. */
static void read_weights(search *s, const float *weight)
{
    const float least = 0x1p-40F;
    const int n = s->f->group;

    for (int first = 0; first < s->blocks * s->groups; first += s->groups) {
        const float *of = weight + first * n;
        float most = 0;

        for (int i = 0; i < s->f->block; i++)
            most = of[i] > most ? of[i] : most;
        for (int i = 0; i < s->f->block; i++) {
            float w = of[i] / most;

            s->weight[i % n][first + i / n] = w > least ? w : least;
        }
    }
}

static void read_block(search *s, const float *x, const float *weight)
{
    int n = s->f->group, there = s->blocks * s->groups;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < LANES; k++) {
            s->x[i][k] = k < there ? x[k * n + i] : 0;
            s->weight[i][k] = 1;
        }
    if (weight)
        read_weights(s, weight);
    for (int k = 0; k < LANES; k++) {
        s->all[k] = 0;
        for (int i = 0; i < n; i++)
            s->all[k] += s->weight[i][k];
    }
}

/* Codes to nearest, of what the format holds. */
SB_HOT static void write_group(const sb_weight_format *f, const float *x,
                               float scale, float offset, uint8_t *code)
{
    const float lo = f->lo, hi = f->hi;
    const int middle = f->symmetric ? 1 << (f->bits - 1) : 0;

    SB_SIMD
    for (int i = 0; i < f->group; i++)
        code[i] =
            (uint8_t)((int)code_at((x[i] - offset) / scale, lo, hi) + middle);
}

static void write_block(const search *s, int block, const float *x,
                        sb_block *out)
{
    const sb_weight_format *f = s->f;

    for (int g = 0; g < s->groups; g++) {
        float scale = s->best.scale[block * s->groups + g];
        float offset = s->best.offset[block * s->groups + g];

        if (f->block <= 32) {
            scale = half_of(scale);
            offset = fminf(fmaxf(offset, -half_most), half_most);
            offset = f->symmetric ? 0 : sb_f16_to_f32(sb_f32_to_f16(offset));
        }
        write_group(f, x + g * f->group, scale, offset,
                    out->code + g * f->group);
        out->scale[g] = scale;
        out->offset[g] =
            f->symmetric ? -(float)(1 << (f->bits - 1)) * scale : offset;
    }
}

void sb_block_search(const sb_weight_format *f, const float *x,
                     const float *weight, int n, sb_block *out)
{
    search s = {.f = f, .groups = f->block / f->group, .blocks = n};

    read_block(&s, x, weight);
    lanes_search(&s);
    if (f->block > 32)
        k_search(&s);
    for (int i = 0; i < n; i++)
        write_block(&s, i, x + i * f->block, &out[i]);
}

bool sb_block_holds(const sb_weight_format *f, const float *x, size_t n)
{
    const float beyond = 65520; /* as float16 it is infinite */
    const float most = f->symmetric ? beyond * (float)f->hi : beyond;
    bool holds = true;

    for (size_t i = 0; i < n; i++)
        holds &= fabsf(x[i]) < most;
    return holds;
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
