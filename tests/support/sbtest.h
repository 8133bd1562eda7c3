/* sbtest.h - what every C test includes: cmocka, a context, assertions.
 *
 * A test program has one context, made at first use and freed at exit; tensors
 * made by test_tensor() and friends live as long. */
#ifndef SB_TESTS_SBTEST_H
#define SB_TESTS_SBTEST_H

/* cmocka wants these first, in this order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* and tests nearly always want these */
#include <stdio.h>
#include <string.h>

#include <sparsebit/experimental.h>

#include "base/ctx.h"
#include "tensor/tensor.h"

/* The program's context. */
sb_ctx *test_ctx(void);

/* ---- assertions --------------------------------------------------------- */

/* A call on test_ctx() must succeed; its message is printed if it does not. */
#define assert_ok(expr) test_assert_ok((expr), #expr, __FILE__, __LINE__)
/* It must fail with this status, and leave a message of one line. */
#define assert_status(expr, want) \
    test_assert_status((expr), (want), #expr, __FILE__, __LINE__)
/* The last message must contain `part`. */
#define assert_error_has(part) test_assert_error_has(part, __FILE__, __LINE__)
/* |got - want| <= tol; NaN equals NaN, infinities equal themselves. */
#define assert_close(what, got, want, tol)                       \
    test_assert_close((what), -1, (double)(got), (double)(want), \
                      (double)(tol), __FILE__, __LINE__)
/* The same for `n` floats, with |got - want| <= tol + tol * |want|. */
#define assert_all_close(what, got, want, n, tol)                              \
    test_assert_all_close((what), (got), (want), (n), (double)(tol), __FILE__, \
                          __LINE__)
/* Same dtype, shape and elements (floats within tol + tol * |want|). */
#define assert_tensor(what, got, want, tol) \
    test_assert_tensor((what), (got), (want), (double)(tol), __FILE__, __LINE__)

void test_assert_ok(sb_status status, const char *expr, const char *file,
                    int line);
void test_assert_status(sb_status status, sb_status want, const char *expr,
                        const char *file, int line);
void test_assert_error_has(const char *part, const char *file, int line);
void test_assert_close(const char *what, long index, double got, double want,
                       double tol, const char *file, int line);
void test_assert_all_close(const char *what, const float *got,
                           const float *want, size_t n, double tol,
                           const char *file, int line);
void test_assert_tensor(const char *what, const sb_tensor *got,
                        const sb_tensor *want, double tol, const char *file,
                        int line);

/* ---- tensors ------------------------------------------------------------ */

/* A tensor of shape "2x3" ("" for a scalar) with these elements converted to
 * `dtype` (any numeric one); NULL gives zeros.  Freed at exit. */
sb_tensor *test_tensor(sb_dtype dtype, const char *shape, const double *v);
/* Shorthands: test_f32("2x2", 1, 2, 3, 4). */
#define test_f32(shape, ...) \
    test_tensor(SB_DTYPE_F32, shape, (const double[]){__VA_ARGS__})
#define test_i64(shape, ...) \
    test_tensor(SB_DTYPE_I64, shape, (const double[]){__VA_ARGS__})

/* Random elements that depend on the seed only: floats in [-2, 2), integers in
 * [0, 8). */
sb_tensor *test_random(sb_dtype dtype, const char *shape, uint64_t seed);

/* ---- whole graphs (text form, see graph/text.h) ------------------------- */

/* Parses, infers and runs a graph; fails the test if that fails.  Outputs are
 * copies, freed at exit. */
void test_run(const char *text, const sb_tensor *const *inputs,
              sb_tensor **outputs, size_t n_outputs);
/* For one output: `test_run1(text, (const sb_tensor *[]){x, w})`. */
sb_tensor *test_run1(const char *text, const sb_tensor *const *inputs);
/* The status of parse + infer + run, for what must be refused. */
sb_status test_try_run(const char *text, const sb_tensor *const *inputs);

/* ---- an allocator that counts and fails --------------------------------- */

typedef struct test_heap {
    size_t calls;   /* requests so far */
    size_t live;    /* blocks not yet freed */
    size_t fail_at; /* this request (from 1) and no other fails; 0: none */
    size_t failed;  /* how many requests were refused */
} test_heap;

/* Hooks over `heap`, which must outlive the context made with them. */
sb_allocator test_heap_hooks(test_heap *heap);

/* Runs `scenario` on a fresh context with the first, second, ... request
 * failing, until it gets through; checks each time that it reports
 * SB_NO_MEMORY and that nothing leaks. */
void test_every_allocation(const char *what,
                           sb_status (*scenario)(sb_ctx *ctx));

/* Runs a session with all inputs that its model wants; all outputs. */
sb_status test_session_run(sb_session *session, const sb_tensor *const *inputs,
                           const sb_tensor **outputs);

#endif
