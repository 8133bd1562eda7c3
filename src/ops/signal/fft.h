/* fft.h - discrete Fourier transform of any length, in double precision.
 *
 * Powers of two go by radix 2.  Other lengths are turned into a convolution of
 * a power-of-two length (Bluestein, "A linear filtering approach to the
 * computation of discrete Fourier transform", 1970), except short ones, for
 * which the sum itself is cheaper.  Double precision throughout makes the
 * float32 result right to the last bit or nearly so. */
#ifndef SB_OPS_SIGNAL_FFT_H
#define SB_OPS_SIGNAL_FFT_H

#include "base/alloc.h"

/* n complex numbers are 2n doubles: re, im, re, im ... */
typedef struct sb_fft {
    int64_t n;
    int64_t size;   /* power of two used inside; 0: plain sums */
    double *roots;  /* exp(-2 pi i j / size); of n if size is 0 */
    double *chirp;  /* [n] exp(-pi i j^2 / n); NULL unless Bluestein */
    double *filter; /* [size] transform of the conjugate chirp */
} sb_fft;

void sb_fft_free(sb_ctx *ctx, sb_fft *fft); /* NULL is allowed */
/* Transforms x in place, `work` being what follows the numbers in a slot.  The
 * inverse is scaled by 1 / n. */
void sb_fft_run(const sb_fft *fft, bool inverse, double *x, double *work);

/* A plan, and memory for several transforms at the same time: each slot holds
 * the numbers and the workspace of one. */
typedef struct sb_fft_slots {
    sb_fft *fft;
    int64_t n;   /* slots: parts that run at the same time */
    size_t size; /* of one, in doubles */
} sb_fft_slots;

/* Receives the bytes of all slots. */
SB_MUST_USE sb_status sb_fft_slots_make(sb_ctx *ctx, int64_t n,
                                        sb_fft_slots *out, size_t *bytes);

#endif
