/* reduce.h - the engine behind ReduceSum and its family.
 *
 * A member of the family says how to fold elements into accumulator cells and
 * how to finish; the engine finds the runs in memory, converts types and
 * threads.  Floats accumulate in double, integers in 64 bits that wrap. */
#ifndef SB_OPS_REDUCE_REDUCE_H
#define SB_OPS_REDUCE_REDUCE_H

#include "ops/infer_util.h"

typedef union sb_cell {
    double f;
    int64_t i;
    uint64_t u;
} sb_cell;

/* Two cells per output, because LogSumExp carries a maximum beside the sum. */
typedef struct sb_reduce_fns {
    sb_cell start, start2;
    /* Folds n neighbors into one output's cells. */
    void (*row)(const void *x, size_t n, sb_cell *acc, sb_cell *acc2);
    /* Folds x[j] into the cells of output j, for n outputs. */
    void (*col)(const void *x, size_t n, sb_cell *acc, sb_cell *acc2);
    /* (optional) The result from the cells; `count` elements were folded. */
    sb_cell (*finish)(sb_cell acc, sb_cell acc2, int64_t count);
} sb_reduce_fns;

/* The functions for each class of types, as in elementwise.h.  Integers are
 * computed in double if i64 is absent. */
typedef struct sb_reduce_def {
    const sb_reduce_fns *f32, *f64, *i64, *u64;
    bool bools;      /* bool is allowed */
    int empty_limit; /* -1, +1: nothing to fold gives the type's least or
                        largest value; 0: what finish() makes of `start` */
    sb_dim (*content)(sb_dim a, sb_dim b); /* (optional) folds shape vectors */
} sb_reduce_def;

typedef struct sb_reduce_attrs {
    int64_t keepdims, noop;
} sb_reduce_attrs;

extern const sb_attr_def sb_reduce_table[];

/* Members of rows whose `aux` is an sb_reduce_def. */
sb_status sb_reduce_infer(sb_infer *in);
void sb_reduce_layout(const sb_kernel *k, sb_layout *in, sb_layout *out);
sb_status sb_reduce_prepare(sb_kernel *k);
sb_status sb_reduce_forward(sb_kernel *k);

/* The same for operators that find out themselves which dimensions of input 0
 * are folded into output 0 (bit d of `mask`). */
sb_status sb_reduce_check(sb_kernel *k, const sb_reduce_def *def);
sb_status sb_reduce_run(sb_kernel *k, const sb_reduce_def *def, uint32_t mask);
extern const sb_reduce_def sb_reduce_sum_def;

#endif
