/* learntest.h - a small network with batch normalization, and what PyTorch made
 * of it (tests/fixtures/learner.npz, written by make_learner.py there). */
#ifndef SB_TESTS_LEARNTEST_H
#define SB_TESTS_LEARNTEST_H

#include "sbtest.h"

enum { TEST_LEARN_NAMES = 13 };

/* Parameters and statistics, as in the fixture. */
extern const char *const test_learn_names[TEST_LEARN_NAMES];
/* Images [N,3,8,8] to five classes. */
extern const char test_learn_cnn[];
/* The same as other exporters write it: a weight behind a Transpose, a bias in
 * a sum, probabilities at the end. */
extern const char test_learn_cnn_soft[];

/* Of a group of tests: read and free the fixture. */
int test_learn_setup(void **state);
int test_learn_teardown(void **state);
/* An array of it; `fmt` makes its name of `name`. */
const sb_tensor *test_learn_array(const char *fmt, const char *name);
/* Step i of an array by step; borrowed. */
sb_tensor test_learn_step_of(const char *name, size_t i);

sb_model *test_learn_parse(sb_ctx *ctx, const char *text);
/* The network with the parameters that PyTorch started with. */
sb_model *test_learn_started(sb_ctx *ctx, const char *text);
sb_learner *test_learn_make(const sb_model *model, const sb_learn_options *opt);

#endif
