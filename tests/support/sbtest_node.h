/* sbtest_node.h - running one node, and random sizes, for operator tests. */
#ifndef SB_TESTS_SBTEST_NODE_H
#define SB_TESTS_SBTEST_NODE_H

#include "sbtest.h"

#include "base/rng.h"

enum { TEST_NODE_MOST = 12 };

typedef struct test_node {
    const char *op, *domain;             /* NULL: the main domain */
    const char *attrs;                   /* `group=2, pads=[1,1]`, or NULL */
    const sb_tensor *in[TEST_NODE_MOST]; /* NULL: absent */
    size_t n_in, n_out;
    uint32_t constant; /* bit i: input i is a constant of the graph */
} test_node;

/* Makes a graph of the node, infers, runs; copies of the outputs, freed at
 * exit. */
sb_status test_node_try(const test_node *node, sb_tensor **out);
void test_node_run(const test_node *node, sb_tensor **out);
/* Runs with 1 to 4 threads, inputs constant or not; all results must have the
 * same bytes where constness is the same.  `out` gets those of one thread. */
void test_node_threads(const test_node *node, sb_tensor **out);

/* A number in [lo, hi]. */
int64_t test_pick(sb_rng *rng, int64_t lo, int64_t hi);
/* A float tensor of this shape, elements in [-1, 1). */
sb_tensor *test_floats(sb_rng *rng, int rank, const int64_t *dims);
/* The seed of this run: $SB_TEST_SEED, else `dflt`; printed, so that a failure
 * can be repeated. */
uint64_t test_seed(uint64_t dflt);
/* "[1,2,3]" into `out`, appended after `name=`; returns out. */
const char *test_ints(char *out, size_t size, const char *name, int n,
                      const int64_t *v);

/* Runs this program again for each instruction set that oneDNN can be told to
 * use; 0 if all of them succeed.  -1: this is such a run, go on. */
int test_every_isa(int argc, char **argv);

#endif
