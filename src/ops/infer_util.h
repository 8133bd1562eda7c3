/* infer_util.h - what shape inference functions share. */
#ifndef SB_OPS_INFER_UTIL_H
#define SB_OPS_INFER_UTIL_H

#include "ops/op_registry.h"

/* Fails with "node 'NAME' (OP): ..." and SB_BAD_MODEL. */
sb_status sb_infer_fail(const sb_infer *in, const char *fmt, ...)
    SB_PRINTF(2, 3);
/* The same from prepare/forward. */
sb_status sb_kernel_fail(const sb_kernel *k, sb_status code, const char *fmt,
                         ...) SB_PRINTF(3, 4);

/* Input i, or NULL if it is absent. */
const sb_fact *sb_infer_in(const sb_infer *in, uint32_t i);
sb_tensor *sb_kernel_in(const sb_kernel *k, uint32_t i);
sb_tensor *sb_kernel_out(const sb_kernel *k, uint32_t i);

/* Output i gets a dtype and shape; ignored if the node has no such output. */
void sb_infer_set(sb_infer *in, uint32_t i, sb_dtype dtype,
                  const sb_shape *shape);
/* Input i, if it is there, must have integers: axes, shapes, sizes. */
SB_MUST_USE sb_status sb_infer_want_ints(const sb_infer *in, uint32_t i);
/* Input i, if it is there, must be one element of that type (NONE: any). */
SB_MUST_USE sb_status sb_infer_want_one(const sb_infer *in, uint32_t i,
                                        sb_dtype dtype);
/* Output 0 is like input 0; the infer function of unary operators. */
sb_status sb_infer_same(sb_infer *in);
/* NumPy broadcasting of all inputs to output 0, dtype of input 0. */
sb_status sb_infer_broadcast(sb_infer *in);
/* The same with dtype bool. */
sb_status sb_infer_compare(sb_infer *in);

/* Broadcasts b into a; false if they can never fit. */
bool sb_shape_broadcast(sb_shape *a, const sb_shape *b);
sb_shape sb_shape_unknown(void);          /* rank -1 */
sb_shape sb_shape_of_rank(int rank);      /* all dimensions unknown */
sb_shape sb_shape_of(const sb_tensor *t); /* all known */
/* a * b, a + b where both are numbers; unknown otherwise or on overflow.
 * Keeps symbols through x * 1 and x + 0. */
sb_dim sb_dim_mul(sb_dim a, sb_dim b);
sb_dim sb_dim_add(sb_dim a, sb_dim b);

/* Normalizes an axis to [0, rank); SB_BAD_MODEL if outside. */
SB_MUST_USE sb_status sb_infer_axis(const sb_infer *in, int64_t axis, int rank,
                                    int *out);
/* The elements of integer input i as int64, if they are known: returns the
 * count and fills at most `max`; -1 if unknown or absent. */
int64_t sb_infer_ints(const sb_infer *in, uint32_t i, int64_t *out,
                      int64_t max);
/* The same from a kernel's input, whose data must be there. */
int64_t sb_kernel_ints(const sb_kernel *k, uint32_t i, int64_t *out,
                       int64_t max);

#endif
