/* nbits_vnni.h - packed codes as vectors, for the two kernels of AVX-512 VNNI.
 */
#ifndef SB_OPS_INT8_NBITS_VNNI_H
#define SB_OPS_INT8_NBITS_VNNI_H

#include <immintrin.h>

#include "ops/int8/nbits_int8.h"

#define VNNI_TARGET \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,fma,avx2")))
#define VNNI_INLINE __attribute__((always_inline)) static inline VNNI_TARGET

VNNI_INLINE int vnni_planes(int bits)
{
    return bits == 2 ? 4 : bits == 8 ? 1 : 2;
}

/* 48 bytes as 64 pairs of 3-bit codes, a pair to a byte.  Each 16-bit lane gets
 * the two bytes its pair is in, and moves it up and down again. */
VNNI_INLINE __m512i vnni_pairs(__m512i v)
{
    const __m512i spread =
        _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
    const __m512i first = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 1, 0, 1, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6));
    const __m512i down = _mm512_set1_epi64((int64_t)0x0002000400060000);
    const __m512i mask = _mm512_set1_epi16(63);

    v = _mm512_permutexvar_epi32(spread, v);
    __m512i a = _mm512_shuffle_epi8(v, first);
    __m512i b =
        _mm512_shuffle_epi8(v, _mm512_add_epi8(first, _mm512_set1_epi8(6)));
    return _mm512_packus_epi16(
        _mm512_and_si512(_mm512_srlv_epi16(a, down), mask),
        _mm512_and_si512(_mm512_srlv_epi16(b, down), mask));
}

/* Some of the 64 bytes that hold the planes of a group; of 3 bits these are
 * pairs. */
VNNI_INLINE __m512i vnni_bytes(const uint8_t *p, __mmask64 bytes, int bits)
{
    __m512i v = bytes == ~(__mmask64)0 ? _mm512_loadu_si512(p)
                                       : _mm512_maskz_loadu_epi8(bytes, p);

    return bits == 3 ? vnni_pairs(v) : v;
}

VNNI_INLINE void vnni_codes(__m512i v, int bits, __m512i *out)
{
    const __m512i mask = _mm512_set1_epi8((char)((1 << bits) - 1));

    out[0] = bits == 8 ? v : _mm512_and_si512(v, mask);
    if (bits == 3)
        out[1] = _mm512_and_si512(_mm512_srli_epi16(v, 3), mask);
    if (bits == 4)
        out[1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
    if (bits == 2) {
        out[1] = _mm512_and_si512(_mm512_srli_epi16(v, 2), mask);
        out[2] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
        out[3] = _mm512_and_si512(_mm512_srli_epi16(v, 6), mask);
    }
}

/* What sb_nbits_kernel says of `many`. */
void sb_nbits_panel_run(const sb_nbits_weights *w, int64_t n, int64_t cols,
                        const sb_nbits_acts *a, int64_t rows, void *room,
                        float *out);

#endif
