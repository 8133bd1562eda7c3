/* The context of a test program, its tensors, and its assertions. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static struct {
    sb_ctx *ctx;
    sb_tensor **tensors;
    size_t n_tensors, cap_tensors;
} state;

static void state_free(void)
{
    for (size_t i = 0; i < state.n_tensors; i++)
        sb_tensor_free(state.tensors[i]);
    sb_free(state.ctx, state.tensors);
    sb_ctx_free(state.ctx);
    memset(&state, 0, sizeof state);
}

sb_ctx *test_ctx(void)
{
    if (!state.ctx) {
        if (sb_ctx_create(NULL, &state.ctx) != SB_OK)
            abort();
        (void)atexit(state_free);
    }
    return state.ctx;
}

/* ---- assertions --------------------------------------------------------- */

void test_assert_ok(sb_status status, const char *expr, const char *file,
                    int line)
{
    if (status == SB_OK)
        return;
    print_error("%s: %s: %s\n", expr, sb_status_text(status),
                sb_ctx_error(test_ctx()));
    _fail(file, line);
}

void test_assert_status(sb_status status, sb_status want, const char *expr,
                        const char *file, int line)
{
    const char *error = sb_ctx_error(test_ctx());

    if (status != want) {
        print_error("%s: got '%s', want '%s'; message: %s\n", expr,
                    sb_status_text(status), sb_status_text(want), error);
        _fail(file, line);
    }
    if (want != SB_OK && (!*error || strchr(error, '\n'))) {
        print_error("%s: the message is not one line: '%s'\n", expr, error);
        _fail(file, line);
    }
}

void test_assert_error_has(const char *part, const char *file, int line)
{
    if (strstr(sb_ctx_error(test_ctx()), part))
        return;
    print_error("message '%s' lacks '%s'\n", sb_ctx_error(test_ctx()), part);
    _fail(file, line);
}

static bool close_enough(double got, double want, double tol)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return want == got;
    return fabs(got - want) <= tol;
}

void test_assert_close(const char *what, long index, double got, double want,
                       double tol, const char *file, int line)
{
    if (close_enough(got, want, tol))
        return;
    if (index < 0)
        print_error("%s: got %.9g, want %.9g\n", what, got, want);
    else
        print_error("%s: element %ld: got %.9g, want %.9g\n", what, index, got,
                    want);
    _fail(file, line);
}

void test_assert_all_close(const char *what, const float *got,
                           const float *want, size_t n, double tol,
                           const char *file, int line)
{
    for (size_t i = 0; i < n; i++)
        test_assert_close(what, (long)i, (double)got[i], (double)want[i],
                          tol + tol * fabs((double)want[i]), file, line);
}

void test_assert_tensor(const char *what, const sb_tensor *got,
                        const sb_tensor *want, double tol, const char *file,
                        int line)
{
    char got_text[128], want_text[128];
    sb_tensor_describe(got, got_text, sizeof got_text);
    sb_tensor_describe(want, want_text, sizeof want_text);

    if (strcmp(got_text, want_text) != 0) {
        print_error("%s: got %s, want %s\n", what, got_text, want_text);
        _fail(file, line);
    }
    for (int64_t i = 0; i < sb_tensor_count(want); i++) {
        double w = sb_tensor_get_f64(want, i);

        test_assert_close(what, (long)i, sb_tensor_get_f64(got, i), w,
                          tol + tol * fabs(w), file, line);
    }
}

/* ---- tensors ------------------------------------------------------------ */

static sb_tensor *keep(sb_tensor *t)
{
    assert_ok(sb_grow(test_ctx(), &state.tensors, &state.cap_tensors,
                      state.n_tensors + 1, sizeof(sb_tensor *)));
    state.tensors[state.n_tensors++] = t;
    return t;
}

sb_tensor *test_tensor(sb_dtype dtype, const char *shape, const double *v)
{
    int64_t dims[SB_MAX_RANK];
    int rank = 0;
    sb_tensor *t = NULL;

    for (const char *p = shape; *p; rank++) {
        char *end;

        assert_true(rank < SB_MAX_RANK);
        dims[rank] = strtoll(p, &end, 10);
        assert_true(end != p && (*end == 'x' || *end == '\0'));
        p = *end ? end + 1 : end;
    }
    assert_ok(sb_tensor_create(test_ctx(), dtype, rank, dims, &t));
    if (v)
        sb_convert(SB_DTYPE_F64, v, dtype, t->data, (size_t)sb_tensor_count(t));
    return keep(t);
}

/* SplitMix64, so that tests do not lean on the library's own generator. */
static uint64_t next_random(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

sb_tensor *test_random(sb_dtype dtype, const char *shape, uint64_t seed)
{
    sb_tensor *t = test_tensor(dtype, shape, NULL);
    size_t n = (size_t)sb_tensor_count(t);
    double *v = sb_alloc(test_ctx(), n, sizeof *v);

    assert_non_null(v);
    for (size_t i = 0; i < n; i++) {
        double u = (double)(next_random(&seed) >> 11) * 0x1p-53;

        v[i] = sb_dtype_is_float(dtype) ? 4 * u - 2 : floor(8 * u);
    }
    sb_convert(SB_DTYPE_F64, v, dtype, t->data, n);
    sb_free(test_ctx(), v);
    return t;
}
