/* train_mode.h - what the pass "train_mode" adds to a graph. */
#ifndef SB_PASSES_LEARN_TRAIN_MODE_H
#define SB_PASSES_LEARN_TRAIN_MODE_H

/* An int64 without dimensions, another one in each step; there if elements are
 * dropped. */
#define SB_COUNTER_INPUT "sparsebit.counter"

#endif
