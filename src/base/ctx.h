/* ctx.h - the context: allocator, threads, interruption, and the last error.
 *
 * Every call that can fail takes a context and records its message there, so
 * two contexts never see each other's errors and no global state exists.
 * A context is used by one thread at a time; only sb_ctx_interrupt() may be
 * called from a signal handler or from another thread. */
#ifndef SB_BASE_CTX_H
#define SB_BASE_CTX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sparsebit/sparsebit.h>

#define SB_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#if defined(__GNUC__)
#define SB_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define SB_PRINTF(fmt, args)
#endif

enum { SB_ERROR_MAX = 1024 };

struct sb_ctx {
    sb_allocator alloc;
    int n_threads;
    struct sb_pool *pool; /* NULL until there is work for several */
    sb_log_fn log;
    void *log_user;
    sb_status status; /* of the last failure */
    atomic_int interrupted;
    char error[SB_ERROR_MAX];
};

/* Records a failure and returns `code`, so that a function can write
 * `return sb_fail(ctx, SB_IO, "...")`.  The message is one line, lower case,
 * without full stop, and names the thing, what was found, what is wanted. */
sb_status sb_fail(sb_ctx *ctx, sb_status code, const char *fmt, ...)
    SB_PRINTF(3, 4);

/* Appends " (while ...)" to the recorded message; returns `code` unchanged. */
sb_status sb_note(sb_ctx *ctx, sb_status code, const char *fmt, ...)
    SB_PRINTF(3, 4);

/* Hands one line to the caller's log function, if there is one. */
void sb_warn(sb_ctx *ctx, const char *fmt, ...) SB_PRINTF(2, 3);

/* SB_INTERRUPTED once sb_ctx_interrupt() was called; long loops ask this. */
sb_status sb_ctx_poll(sb_ctx *ctx);

/* Forwards a failure.  The only macro that hides control flow. */
#define SB_TRY(expr)                       \
    do {                                   \
        sb_status sb_try_status_ = (expr); \
        if (sb_try_status_ != SB_OK)       \
            return sb_try_status_;         \
    } while (0)

#endif
