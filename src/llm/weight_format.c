/* Formats of weights.  Layouts of the blocks: gguf-py/gguf/quants.py and
 * ggml-common.h of llama.cpp describe them; all numbers are little-endian. */
#define _POSIX_C_SOURCE 200809L
#include "llm/weight_format.h"

#include <string.h>
#include <strings.h>

#include "llm/blocks/blocks.h"

static float half_at(const uint8_t *p)
{
    return sb_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* Sixteen bytes: low halves are elements 0 to 15, high ones 16 to 31. */
static void unpack_halves(const uint8_t *from, uint8_t *code)
{
    for (int i = 0; i < 16; i++) {
        code[i] = from[i] & 15;
        code[i + 16] = from[i] >> 4;
    }
}

/* Four bytes: the fifth bit of element i is bit i. */
static void add_fifth_bits(const uint8_t *from, uint8_t *code)
{
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)(code[i] | (from[i / 8] >> (i % 8) & 1) << 4);
}

static void shift_codes(sb_block *to, int n, int by)
{
    for (int i = 0; i < n; i++)
        to->code[i] = (uint8_t)(to->code[i] + by);
}

static void unpack_q4_0(const uint8_t *from, sb_block *to)
{
    to->scale[0] = half_at(from);
    to->offset[0] = -8 * to->scale[0];
    unpack_halves(from + 2, to->code);
}

static void unpack_q4_1(const uint8_t *from, sb_block *to)
{
    to->scale[0] = half_at(from);
    to->offset[0] = half_at(from + 2);
    unpack_halves(from + 4, to->code);
}

static void unpack_q5_0(const uint8_t *from, sb_block *to)
{
    to->scale[0] = half_at(from);
    to->offset[0] = -128 * to->scale[0];
    unpack_halves(from + 6, to->code);
    add_fifth_bits(from + 2, to->code);
    shift_codes(to, 32, 128 - 16);
}

static void unpack_q5_1(const uint8_t *from, sb_block *to)
{
    to->scale[0] = half_at(from);
    to->offset[0] = half_at(from + 2);
    unpack_halves(from + 8, to->code);
    add_fifth_bits(from + 4, to->code);
}

static void unpack_q8_0(const uint8_t *from, sb_block *to)
{
    to->scale[0] = half_at(from);
    to->offset[0] = -128 * to->scale[0];
    for (int i = 0; i < 32; i++)
        to->code[i] = from[2 + i] ^ 0x80; /* int8 plus 128 */
}

/* Eight scales and minimums of six bits each in twelve bytes: those of groups
 * 0 to 3 whole, the upper bits of the others above them. */
static void unpack_k_scales(const uint8_t *from, sb_block *to)
{
    const uint8_t *q = from + 4;
    float d = half_at(from), d_min = half_at(from + 2);

    for (int g = 0; g < 8; g++) {
        int scale = g < 4 ? q[g] & 63 : (q[g + 4] & 15) | q[g - 4] >> 6 << 4;
        int low = g < 4 ? q[g + 4] & 63 : q[g + 4] >> 4 | q[g] >> 6 << 4;
        to->scale[g] = d * (float)scale;
        to->offset[g] = -d_min * (float)low;
    }
}

/* Each 32 bytes hold one group in their low halves, the next in their high. */
static void unpack_k_halves(const uint8_t *from, uint8_t *code)
{
    for (int i = 0; i < 128; i++) {
        code[i / 32 * 64 + i % 32] = from[i] & 15;
        code[i / 32 * 64 + 32 + i % 32] = from[i] >> 4;
    }
}

static void unpack_q4_k(const uint8_t *from, sb_block *to)
{
    unpack_k_scales(from, to);
    unpack_k_halves(from + 16, to->code);
}

static void unpack_q5_k(const uint8_t *from, sb_block *to)
{
    unpack_k_scales(from, to);
    unpack_k_halves(from + 48, to->code);
    for (int i = 0; i < 256; i++)
        to->code[i] =
            (uint8_t)(to->code[i] | (from[16 + i % 32] >> (i / 32) & 1) << 4);
}

static void unpack_q6_k(const uint8_t *from, sb_block *to)
{
    const uint8_t *high = from + 128, *scales = from + 192;
    float d = half_at(from + 208);

    for (int i = 0; i < 256; i++) {
        int half = i / 128, part = i % 128 / 32, at = i % 32;
        uint8_t low = from[half * 64 + part % 2 * 32 + at];
        int code = part < 2 ? low & 15 : low >> 4;
        code |= (high[half * 32 + at] >> (2 * part) & 3) << 4;
        to->code[i] = (uint8_t)(code + 128 - 32);
    }
    for (int g = 0; g < 16; g++) {
        int scale = scales[g] < 128 ? scales[g] : scales[g] - 256;
        to->scale[g] = d * (float)scale;
        to->offset[g] = -128 * to->scale[g];
    }
}

/* Two bits of each element, four elements 32 apart in a byte. */
static int k_quarter(const uint8_t *from, int i)
{
    return from[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

static void unpack_q2_k(const uint8_t *from, sb_block *to)
{
    float d = half_at(from + 80), d_min = half_at(from + 82);

    for (int i = 0; i < 256; i++)
        to->code[i] = (uint8_t)k_quarter(from + 16, i);
    for (int g = 0; g < 16; g++) {
        to->scale[g] = d * (float)(from[g] & 15);
        to->offset[g] = -d_min * (float)(from[g] >> 4);
    }
}

/* The third bit of element i is bit i / 32 of the first 32 bytes; of the
 * sixteen scales four bits are in eight bytes, two above them in four. */
static void unpack_q3_k(const uint8_t *from, sb_block *to)
{
    const uint8_t *low = from + 96, *high = from + 104;
    float d = half_at(from + 108);

    for (int i = 0; i < 256; i++)
        to->code[i] = (uint8_t)(k_quarter(from + 32, i) +
                                4 * (from[i % 32] >> (i / 32) & 1));
    for (int g = 0; g < 16; g++) {
        int scale = (low[g % 8] >> (g / 8 * 4) & 15) |
                    (high[g % 4] >> (g / 4 * 2) & 3) << 4;
        to->scale[g] = d * (float)(scale - 32);
        to->offset[g] = -4 * to->scale[g];
    }
}

/* ---- packing ------------------------------------------------------------ */

static void put_half(uint8_t *p, float x)
{
    uint16_t h = sb_f32_to_f16(x);

    p[0] = (uint8_t)(h & 255);
    p[1] = (uint8_t)(h >> 8);
}

static void pack_halves(const uint8_t *code, int subtract, uint8_t *to)
{
    for (int i = 0; i < 16; i++) {
        int low = code[i] - subtract, high = code[i + 16] - subtract;

        to[i] = (uint8_t)((low & 15) | (high & 15) << 4);
    }
}

static void pack_fifth_bits(const uint8_t *code, int subtract, uint8_t *to)
{
    memset(to, 0, 4);
    for (int i = 0; i < 32; i++)
        to[i / 8] =
            (uint8_t)(to[i / 8] | ((code[i] - subtract) >> 4 & 1) << (i % 8));
}

static void pack_q4_0(const sb_block *from, uint8_t *to)
{
    put_half(to, from->scale[0]);
    pack_halves(from->code, 0, to + 2);
}

static void pack_q4_1(const sb_block *from, uint8_t *to)
{
    put_half(to, from->scale[0]);
    put_half(to + 2, from->offset[0]);
    pack_halves(from->code, 0, to + 4);
}

static void pack_q5_0(const sb_block *from, uint8_t *to)
{
    put_half(to, from->scale[0]);
    pack_fifth_bits(from->code, 128 - 16, to + 2);
    pack_halves(from->code, 128 - 16, to + 6);
}

static void pack_q5_1(const sb_block *from, uint8_t *to)
{
    put_half(to, from->scale[0]);
    put_half(to + 2, from->offset[0]);
    pack_fifth_bits(from->code, 0, to + 4);
    pack_halves(from->code, 0, to + 8);
}

static void pack_q8_0(const sb_block *from, uint8_t *to)
{
    put_half(to, from->scale[0]);
    for (int i = 0; i < 32; i++)
        to[2 + i] = from->code[i] ^ 0x80;
}

#define BLOCKS(name) unpack_##name, pack_##name

enum { NOT_IN_GGUF = -1 };

/* clang-format off */
static const sb_weight_format formats[] = {
    {"F32",  0,  SB_DTYPE_F32,  1, 4, 0, 0, false, 0, 0, NULL, NULL, 0},
    {"F16",  1,  SB_DTYPE_F16,  1, 2, 0, 0, false, 0, 0, NULL, NULL, 1},
    {"BF16", 30, SB_DTYPE_BF16, 1, 2, 0, 0, false, 0, 0, NULL, NULL, 32},
    {"I32", NOT_IN_GGUF, SB_DTYPE_I32, 1, 4, 0, 0, false, 0, 0, NULL, NULL, 0}, /* packed codes of GPTQ */
    {"Q4_0", 2,  SB_DTYPE_NONE, 32, 18, 4, 32, true, -8, 7, BLOCKS(q4_0), 2},
    {"Q4_1", 3,  SB_DTYPE_NONE, 32, 20, 4, 32, false, 0, 15, BLOCKS(q4_1), 3},
    {"Q5_0", 6,  SB_DTYPE_NONE, 32, 22, 8, 32, true, -16, 15, BLOCKS(q5_0), 8},
    {"Q5_1", 7,  SB_DTYPE_NONE, 32, 24, 8, 32, false, 0, 31, BLOCKS(q5_1), 9},
    {"Q8_0", 8,  SB_DTYPE_NONE, 32, 34, 8, 32, true, -128, 127, BLOCKS(q8_0), 7},
    {"Q2_K", 10, SB_DTYPE_NONE, 256, 84, 2, 16, false, 0, 3, unpack_q2_k, sb_pack_q2_k, 10},
    {"Q3_K", 11, SB_DTYPE_NONE, 256, 110, 3, 16, true, -4, 3, unpack_q3_k, sb_pack_q3_k, 12},
    {"Q4_K", 12, SB_DTYPE_NONE, 256, 144, 4, 32, false, 0, 15, unpack_q4_k, sb_pack_q4_k, 15},
    {"Q5_K", 13, SB_DTYPE_NONE, 256, 176, 8, 32, false, 0, 31, unpack_q5_k, sb_pack_q5_k, 17},
    {"Q6_K", 14, SB_DTYPE_NONE, 256, 210, 8, 16, true, -32, 31, unpack_q6_k, sb_pack_q6_k, 18},
};
/* clang-format on */

const sb_weight_format *sb_weight_format_gguf(uint32_t number)
{
    for (size_t i = 0; i < SB_COUNT(formats); i++)
        if (formats[i].gguf >= 0 && (uint32_t)formats[i].gguf == number)
            return &formats[i];
    return NULL;
}

const sb_weight_format *sb_weight_format_plain(sb_dtype dtype)
{
    for (size_t i = 0; i < SB_COUNT(formats); i++)
        if (formats[i].dtype == dtype && dtype != SB_DTYPE_NONE)
            return &formats[i];
    return NULL;
}

const sb_weight_format *sb_weight_format_find(const char *name)
{
    for (size_t i = 0; i < SB_COUNT(formats); i++)
        if (strcasecmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

const char *sb_weight_format_names(void)
{
    return "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, "
           "Q5_K, "
           "Q6_K";
}

void sb_weight_to_f32(const sb_weight_format *f, const void *from, float *to,
                      size_t n)
{
    const uint8_t *p = from;
    sb_block b;

    if (!f->unpack) {
        sb_convert(f->dtype, from, SB_DTYPE_F32, to, n);
        return;
    }
    for (size_t i = 0; i < n; i += f->block, p += f->bytes, to += f->block) {
        f->unpack(p, &b);
        for (size_t e = 0; e < f->block; e++) {
            float scale = b.scale[e / f->group];
            to[e] = f->symmetric
                        ? (float)(b.code[e] - (1 << (f->bits - 1))) * scale
                        : (float)b.code[e] * scale + b.offset[e / f->group];
        }
    }
}

/* A group of equal elements has no scale, but may have an offset. */
static void make_zero(const sb_weight_format *f, sb_block *b, size_t g,
                      float *scale, float *zero)
{
    if (b->scale[g] < 0 || b->scale[g] > 0) {
        *scale = b->scale[g];
        *zero = -b->offset[g] / b->scale[g];
        return;
    }
    memset(b->code + g * f->group, 0, f->group);
    *scale = -b->offset[g];
    *zero = 1;
}

/* Low bits first; returns the end. */
static uint8_t *put_codes(const uint8_t *code, size_t n, unsigned bits,
                          uint8_t *to)
{
    unsigned have = 0, word = 0;

    for (size_t i = 0; bits == 4 && i < n; i += 2)
        *to++ = (uint8_t)(code[i] | code[i + 1] << 4);
    for (size_t i = 0; bits != 4 && i < n; i++) {
        word |= (unsigned)code[i] << have;
        for (have += bits; have >= 8; have -= 8, word >>= 8)
            *to++ = (uint8_t)(word & 255);
    }
    return to;
}

void sb_weight_to_nbits(const sb_weight_format *f, const void *from, size_t n,
                        uint8_t *codes, float *scales, float *zeros)
{
    const uint8_t *p = from;
    size_t groups = f->block / f->group;
    sb_block b;

    for (size_t i = 0; i < n; i += f->block, p += f->bytes) {
        f->unpack(p, &b);
        for (size_t g = 0; g < groups; g++) {
            *scales = b.scale[g];
            if (!f->symmetric)
                make_zero(f, &b, g, scales, zeros++);
            scales++;
        }
        codes = put_codes(b.code, f->block, f->bits, codes);
    }
}
