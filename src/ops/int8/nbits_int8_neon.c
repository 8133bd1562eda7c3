/* Packed weights times rounded activations on NEON: a quarter of a group at a
 * time, 16 bytes of each plane, which give four lanes.  With the instruction
 * for dot products of bytes (armv8.2), and without.
 *
 * Codes are signed here: those of 8 bits less 128, zero points as well. */
#include "ops/int8/nbits_int8.h"

#if defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)
#include <arm_neon.h>
#include <string.h>
#include <sys/auxv.h>

#include <asm/hwcap.h>

#define NEON_INLINE __attribute__((always_inline)) static inline

enum { QUARTERS = 4, QUARTER = SB_NBITS_PLANE / QUARTERS, LANES = 4 };

/* 12 bytes as 16 pairs of 3-bit codes, a pair to a byte. */
NEON_INLINE uint8x16_t neon_pairs(const uint8_t *p)
{
    static const uint8_t first[16] = {0, 1, 0, 1, 1, 2, 2, 3,
                                      3, 4, 3, 4, 4, 5, 5, 6};
    static const int16_t down[8] = {0, -6, -4, -2, 0, -6, -4, -2};
    uint8_t bytes[16] = {0};

    memcpy(bytes, p, 12);
    uint8x16_t v = vld1q_u8(bytes), at = vld1q_u8(first);
    uint8x16_t a = vqtbl1q_u8(v, at);
    uint8x16_t b = vqtbl1q_u8(v, vaddq_u8(at, vdupq_n_u8(6)));
    int16x8_t by = vld1q_s16(down);

    return vcombine_u8(vmovn_u16(vshlq_u16(vreinterpretq_u16_u8(a), by)),
                       vmovn_u16(vshlq_u16(vreinterpretq_u16_u8(b), by)));
}

/* A quarter of each plane. */
NEON_INLINE void neon_codes(const uint8_t *p, int64_t bits, int8x16_t out[4])
{
    const uint8x16_t mask = vdupq_n_u8((uint8_t)((1 << bits) - 1));
    uint8x16_t v = bits == 3 ? neon_pairs(p) : vld1q_u8(p);

    if (bits == 8) {
        out[0] = vreinterpretq_s8_u8(veorq_u8(v, vdupq_n_u8(128)));
        return;
    }
    out[0] = vreinterpretq_s8_u8(vandq_u8(v, mask));
    if (bits == 3)
        out[1] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(v, 3), mask));
    if (bits == 4)
        out[1] = vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
    if (bits == 2) {
        out[1] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(v, 2), mask));
        out[2] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(v, 4), mask));
        out[3] = vreinterpretq_s8_u8(vshrq_n_u8(v, 6));
    }
}

/* Adds products of four bytes to each lane.  The instruction is spelled out, as
 * a function for other processors cannot be inlined into one for all. */
NEON_INLINE int32x4_t neon_dot(int32x4_t d, int8x16_t a, int8x16_t b,
                               bool dotprod)
{
    if (!dotprod)
        return vpadalq_s16(d,
                           vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)),
                                      vmull_high_s8(a, b)));
    __asm__(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.16b"
            : "+w"(d)
            : "w"(a), "w"(b));
    return d;
}

/* One row of weights, `rows` of activations. */
NEON_INLINE void neon_row(const sb_nbits_weights *w, int64_t bits, int64_t n,
                          const sb_nbits_acts *a, int64_t m, int rows,
                          bool dotprod, float *out)
{
    const sb_nbits_shape *s = &a->shape;
    const int planes = bits == 2 ? 4 : bits == 8 ? 1 : 2;
    const float32x4_t less = vdupq_n_f32(bits == 8 ? 128 : 0);
    float32x4_t acc[SB_NBITS_ROWS];

    for (int r = 0; r < rows; r++)
        acc[r] = vdupq_n_f32(0);
    for (int64_t g = 0; g < s->groups; g++) {
        const uint8_t *from = w->codes + n * s->row + g * s->bytes;
        float scales[SB_NBITS_LANES], zeros[SB_NBITS_LANES];
        uint8_t last[SB_NBITS_PLANE] = {0};

        sb_nbits_lanes(w, s, n, g, scales, zeros);
        if ((g + 1) * s->bytes > s->row)
            from = memcpy(last, from, (size_t)(s->row - g * s->bytes));
        for (int q = 0; q < QUARTERS; q++) {
            float32x4_t scale = vld1q_f32(scales + q * LANES);
            float32x4_t zero = vsubq_f32(vld1q_f32(zeros + q * LANES), less);
            int8x16_t codes[4];

            neon_codes(from + q * s->bytes / QUARTERS, bits, codes);
            for (int r = 0; r < rows; r++) {
                int64_t at = (m + r) * s->stride + g;
                int64_t lane = at * SB_NBITS_LANES + q * LANES;
                const int8_t *x = a->codes + at * planes * SB_NBITS_PLANE +
                                  (int64_t)q * QUARTER;
                int32x4_t d = vdupq_n_s32(0);

                for (int p = 0; p < planes; p++)
                    d = neon_dot(d, codes[p], vld1q_s8(x + p * SB_NBITS_PLANE),
                                 dotprod);
                float32x4_t y =
                    vmulq_f32(vcvtq_f32_s32(d), vld1q_f32(a->scales + lane));
                y = vfmsq_f32(y, zero, vld1q_f32(a->sums + lane));
                acc[r] = vfmaq_f32(acc[r], scale, y);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        out[r] = vaddvq_f32(acc[r]);
}

NEON_INLINE void neon_tile(const sb_nbits_weights *w, int64_t bits, int64_t n,
                           int64_t cols, const sb_nbits_acts *a, int64_t m,
                           int64_t rows, bool dotprod, float *out)
{
    for (int64_t c = 0; c < cols; c++) {
        float sums[SB_NBITS_ROWS];

        if (rows == SB_NBITS_ROWS)
            neon_row(w, bits, n + c, a, m, SB_NBITS_ROWS, dotprod, sums);
        else
            for (int64_t r = 0; r < rows; r++)
                neon_row(w, bits, n + c, a, m + r, 1, dotprod, sums + r);
        for (int64_t r = 0; r < rows; r++)
            out[r * SB_NBITS_COLS + c] = sums[r];
    }
}

NEON_INLINE void neon_bits(const sb_nbits_weights *w, int64_t n, int64_t cols,
                           const sb_nbits_acts *a, int64_t m, int64_t rows,
                           bool dotprod, float *out)
{
    if (w->bits == 2)
        neon_tile(w, 2, n, cols, a, m, rows, dotprod, out);
    else if (w->bits == 3)
        neon_tile(w, 3, n, cols, a, m, rows, dotprod, out);
    else if (w->bits == 4)
        neon_tile(w, 4, n, cols, a, m, rows, dotprod, out);
    else
        neon_tile(w, 8, n, cols, a, m, rows, dotprod, out);
}

static void neon_run(const sb_nbits_weights *w, int64_t n, int64_t cols,
                     const sb_nbits_acts *a, int64_t m, int64_t rows,
                     float *out)
{
    neon_bits(w, n, cols, a, m, rows, false, out);
}

static void dotprod_run(const sb_nbits_weights *w, int64_t n, int64_t cols,
                        const sb_nbits_acts *a, int64_t m, int64_t rows,
                        float *out)
{
    neon_bits(w, n, cols, a, m, rows, true, out);
}

static bool suits_neon(void)
{
    return true; /* part of the architecture */
}

static bool suits_dotprod(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

const sb_nbits_kernel *sb_nbits_neon(void)
{
    static const sb_nbits_kernel kernel = {
        .name = "neon", .suits = suits_neon, .fn = neon_run};

    return &kernel;
}

const sb_nbits_kernel *sb_nbits_dotprod(void)
{
    static const sb_nbits_kernel kernel = {
        .name = "dotprod", .suits = suits_dotprod, .fn = dotprod_run};

    return &kernel;
}
#else
const sb_nbits_kernel *sb_nbits_neon(void)
{
    return NULL;
}

const sb_nbits_kernel *sb_nbits_dotprod(void)
{
    return NULL;
}
#endif
