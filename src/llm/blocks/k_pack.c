/* Bytes of the formats that have 256 elements in a block.  The reading side,
 * with the layouts, is in weight_format.c. */
#include <math.h>
#include <string.h>

#include "llm/blocks/blocks.h"

static void k_put_half(uint8_t *p, float x)
{
    uint16_t h = sb_f32_to_f16(x);

    p[0] = (uint8_t)(h & 255);
    p[1] = (uint8_t)(h >> 8);
}

/* ---- numbers that share a factor ----------------------------------------- */

/* The nearest multiples of d within [lo, hi]; false if one is not the number
 * itself.  Offsets went through a division and are off by a rounding or two. */
static bool k_multiples(const float *x, int n, int lo, int hi, float d, int *k)
{
    bool same = true;

    for (int i = 0; i < n; i++) {
        float m = fabsf(d) > 0 ? rintf(x[i] / d) : 0;

        m = fminf(fmaxf(m, (float)lo), (float)hi);
        k[i] = (int)m;
        same = same && fabsf(m * d - x[i]) <= fabsf(x[i]) * 0x1p-20F;
    }
    return same;
}

/* x[i] = d k[i]: the factor, a float16.  The largest one is taken for hi or lo,
 * whichever is further from zero, then for less, until all are multiples. */
static float k_split(const float *x, int n, int lo, int hi, int *k)
{
    int at = 0, most = lo < -hi ? lo : hi;

    for (int i = 1; i < n; i++)
        at = fabsf(x[i]) > fabsf(x[at]) ? i : at;
    float first = sb_f16_to_f32(sb_f32_to_f16(x[at] / (float)most));
    for (int m = most; m != 0; m += m > 0 ? -1 : 1) {
        float d = sb_f16_to_f32(sb_f32_to_f16(x[at] / (float)m));

        if (k_multiples(x, n, lo, hi, d, k))
            return d;
    }
    (void)k_multiples(x, n, lo, hi, first, k);
    return first;
}

/* The same of offsets, which are subtracted. */
static float k_split_offsets(const sb_block *b, int n, int hi, int *k)
{
    float low[SB_BLOCK_GROUPS];

    for (int i = 0; i < n; i++)
        low[i] = -b->offset[i];
    return k_split(low, n, 0, hi, k);
}

/* ---- codes --------------------------------------------------------------- */

/* Two bits of each element at `shift`, four elements 32 apart in a byte. */
static void k_put_quarters(const sb_block *b, int less, uint8_t *to)
{
    memset(to, 0, 64);
    for (int i = 0; i < 256; i++) {
        uint8_t *p = &to[i / 128 * 32 + i % 32];

        *p = (uint8_t)(*p | ((b->code[i] - less) & 3) << (2 * (i % 128 / 32)));
    }
}

/* Bit `bit` of element i is bit i / 32 of byte i % 32. */
static void k_put_bits(const sb_block *b, int less, int bit, uint8_t *to)
{
    memset(to, 0, 32);
    for (int i = 0; i < 256; i++)
        to[i % 32] = (uint8_t)(to[i % 32] | ((b->code[i] - less) >> bit & 1)
                                                << (i / 32));
}

static void k_put_halves(const sb_block *b, uint8_t *to)
{
    for (int i = 0; i < 128; i++) {
        const uint8_t *code = b->code + i / 32 * 64 + i % 32;

        to[i] = (uint8_t)((code[0] & 15) | (code[32] & 15) << 4);
    }
}

/* Eight scales and minimums of six bits in twelve bytes. */
static void k_put_scales(const sb_block *b, uint8_t *to)
{
    int scale[8], low[8];

    k_put_half(to, k_split(b->scale, 8, 0, 63, scale));
    k_put_half(to + 2, k_split_offsets(b, 8, 63, low));
    for (int g = 0; g < 4; g++) {
        to[4 + g] = (uint8_t)(scale[g] | scale[g + 4] >> 4 << 6);
        to[8 + g] = (uint8_t)(low[g] | low[g + 4] >> 4 << 6);
        to[12 + g] = (uint8_t)((scale[g + 4] & 15) | (low[g + 4] & 15) << 4);
    }
}

/* ---- blocks -------------------------------------------------------------- */

void sb_pack_q2_k(const sb_block *from, uint8_t *to)
{
    int scale[16], low[16];

    k_put_half(to + 80, k_split(from->scale, 16, 0, 15, scale));
    k_put_half(to + 82, k_split_offsets(from, 16, 15, low));
    for (int g = 0; g < 16; g++)
        to[g] = (uint8_t)(scale[g] | low[g] << 4);
    k_put_quarters(from, 0, to + 16);
}

void sb_pack_q3_k(const sb_block *from, uint8_t *to)
{
    int scale[16];

    k_put_half(to + 108, k_split(from->scale, 16, -32, 31, scale));
    memset(to + 96, 0, 12);
    for (int g = 0; g < 16; g++) {
        int u = scale[g] + 32;
        uint8_t *low = &to[96 + g % 8], *high = &to[104 + g % 4];

        *low = (uint8_t)(*low | (u & 15) << (g / 8 * 4));
        *high = (uint8_t)(*high | u >> 4 << (g / 4 * 2));
    }
    k_put_bits(from, 0, 2, to);
    k_put_quarters(from, 0, to + 32);
}

void sb_pack_q4_k(const sb_block *from, uint8_t *to)
{
    k_put_scales(from, to);
    k_put_halves(from, to + 16);
}

void sb_pack_q5_k(const sb_block *from, uint8_t *to)
{
    k_put_scales(from, to);
    k_put_bits(from, 0, 4, to + 16);
    k_put_halves(from, to + 48);
}

void sb_pack_q6_k(const sb_block *from, uint8_t *to)
{
    int scale[16];

    k_put_half(to + 208, k_split(from->scale, 16, -128, 127, scale));
    for (int g = 0; g < 16; g++)
        to[192 + g] = (uint8_t)(scale[g] & 255);
    memset(to, 0, 192);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, part = i % 128 / 32, at = i % 32;
        int code = from->code[i] - (128 - 32);
        uint8_t *low = &to[half * 64 + part % 2 * 32 + at];
        uint8_t *high = &to[128 + half * 32 + at];

        *low = (uint8_t)(*low | (code & 15) << (part / 2 * 4));
        *high = (uint8_t)(*high | (code >> 4 & 3) << (2 * part));
    }
}
