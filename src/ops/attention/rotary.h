/* rotary.h - the rotation of one head by its position, for the operators that
 * do it themselves. */
#ifndef SB_OPS_ATTENTION_ROTARY_H
#define SB_OPS_ATTENTION_ROTARY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sb_rotation {
    int64_t size, half; /* of a head; half of what is rotated */
    bool interleaved;   /* pairs are neighbors */
} sb_rotation;

/* y = x with its pairs rotated by angles of these cosines and sines; y may be
 * x. */
void sb_rotate_head(const sb_rotation *r, const float *x, const float *c,
                    const float *s, float *y);

#endif
