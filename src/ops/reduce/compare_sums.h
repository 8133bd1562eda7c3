/* compare_sums.h - what the operator Compare returns. */
#ifndef SB_OPS_REDUCE_COMPARE_SUMS_H
#define SB_OPS_REDUCE_COMPARE_SUMS_H

enum {
    SB_COMPARE_DD,    /* sum of squared differences */
    SB_COMPARE_AA,    /* of squares of a */
    SB_COMPARE_BB,    /* of squares of b */
    SB_COMPARE_AB,    /* of products */
    SB_COMPARE_MAX,   /* largest difference */
    SB_COMPARE_COUNT, /* elements */
    SB_COMPARE_SUMS,
};

#endif
