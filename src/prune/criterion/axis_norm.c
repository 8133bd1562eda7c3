/* Sizes of the slices of a weight. */
#include "prune/criterion/axis_norm.h"

#include <math.h>

void sb_axis_sums(const sb_tensor *t, int axis, bool squares, double *out)
{
    int64_t outer = sb_dims_product(t->dims, 0, axis), n = t->dims[axis];
    int64_t inner = sb_dims_product(t->dims, axis + 1, t->rank), at = 0;

    for (int64_t i = 0; i < n; i++)
        out[i] = 0;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < inner; k++) {
                double w = sb_weight_at(t, at++);
                out[i] += squares ? w * w : fabs(w);
            }
}
