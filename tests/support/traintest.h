/* traintest.h - a small network, samples for it in a folder of their own, and
 * runs of the training loop over both. */
#ifndef SB_TESTS_TRAINTEST_H
#define SB_TESTS_TRAINTEST_H

#include "sbtest.h"

#include <sparsebit/train.h>

/* Of a group of tests: make and remove the folder with the samples. */
int test_train_setup(void **state);
int test_train_teardown(void **state);
/* A file in it; eight names are kept. */
const char *test_train_path(const char *name);

sb_data *test_train_samples(size_t batch, size_t samples);
sb_model *test_train_net(void);

/* ---- runs --------------------------------------------------------------- */

/* What is told of a run, and when it is ended. */
typedef struct {
    size_t stop_after;  /* steps; 0: never */
    size_t stop_epochs; /* the same for epochs */
    size_t steps, epochs;
    sb_train_state last;
} test_train_watch;

/* How all runs train; tests set it back. */
extern const char test_train_standard[]; /* settings at the start */
extern const char *test_train_settings;
extern const char *test_train_config;  /* NULL: in float */
extern const char *test_train_sparser; /* of runs that are refused; or NULL */
extern bool test_train_teaches;        /* the network as it was teaches */

extern const char test_train_lsq4[]; /* a configuration */

/* The bytes of the trained model; NULL if training was ended. */
void *test_train_bytes(const char *folder, int resume, test_train_watch *w,
                       size_t *size);
void *test_train_pruned(const char *folder, int resume, const char *prune,
                        test_train_watch *w, size_t *size);
/* The run fails with this status and a message that has `message` in it. */
void test_train_refused(const char *text, const char *folder, int resume,
                        size_t batch, uint64_t seed, sb_status status,
                        const char *message);

#endif
