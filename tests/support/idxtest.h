/* idxtest.h - a small set of images to train on. */
#ifndef SB_TESTS_IDXTEST_H
#define SB_TESTS_IDXTEST_H

/* Writes x.idx and y.idx into a folder, in the format of MNIST: images of
 * `side` x `side` with noise, of which those of class c have column c bright.
 */
void test_write_idx(const char *folder, int samples, int side, int classes);

#endif
