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

#include <sparsebit/base.h>

#define SB_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#if defined(__GNUC__)
#define SB_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define SB_PRINTF(fmt, args)
#endif

enum { SB_ERROR_MAX = 1024 };

/* What plug-ins can add to a context: rows like those of the library's own
 * tables, which are asked after these. */
typedef enum sb_row_kind {
    SB_ROW_OP,
    SB_ROW_PASS,
    SB_ROW_OBSERVER,
    SB_ROW_QUANTIZER,
    SB_ROW_SOURCE,
    SB_ROW_CRITERION,
    SB_ROW_KINDS
} sb_row_kind;

typedef struct sb_row_list {
    void **v;
    size_t n, cap;
} sb_row_list;

/* What the memory of a context, and of those of its threads, sums up to. */
typedef struct sb_budget {
    atomic_size_t used;
    atomic_size_t most; /* 0: what the machine has, not asked for yet */
    bool chosen;        /* by the program */
} sb_budget;

struct sb_ctx {
    sb_allocator alloc;
    sb_budget own_budget;
    sb_budget *budget; /* the own one, or that of the parent */
    bool copy_files;   /* read files instead of mapping them */
    int n_threads;
    struct sb_pool *pool;       /* NULL until there is work for several */
    struct sb_comm_state *comm; /* the other ranks; NULL: there are none */
    sb_log_fn log;
    void *log_user;
    int muted; /* above 0: nothing is logged */
    sb_progress_fn progress;
    void *progress_user;
    sb_status status; /* of the last failure */
    atomic_int interrupted;
    int held;        /* above 0: interruptions wait */
    bool may_cut;    /* work on threads may end half done when interrupted */
    atomic_bool cut; /* ... and did */
    sb_row_list rows[SB_ROW_KINDS];
    sb_listing listing; /* what sb_list_get() returned last */
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

/* Hands a warning to the caller's log function, if there is one. */
void sb_warn(sb_ctx *ctx, const char *fmt, ...) SB_PRINTF(2, 3);
/* Hands one line of any length to it, as it is. */
void sb_log(sb_ctx *ctx, sb_log_level level, const char *line);
/* Does anyone read the log? */
bool sb_log_wanted(const sb_ctx *ctx);
/* Nothing is logged until `on` is false again; may be nested. */
void sb_log_mute(sb_ctx *ctx, bool on);

/* Tells the caller how far a call has come; SB_INTERRUPTED if it is to end.
 * On the thread of the call only. */
SB_MUST_USE sb_status sb_progress(sb_ctx *ctx, const char *stage, size_t done,
                                  size_t total);

/* SB_INTERRUPTED once sb_ctx_interrupt() was called; long loops ask this. */
sb_status sb_ctx_poll(sb_ctx *ctx);

/* Until `on` is false again an interruption waits: for work that must be done
 * as a whole.  May be nested; keep it short. */
void sb_ctx_hold(sb_ctx *ctx, bool on);

/* A context for a thread of `parent`, with the same allocator and budget, so
 * that memory may go from one to the other. */
SB_MUST_USE sb_status sb_ctx_create_child(sb_ctx *parent, sb_ctx **out);

/* Between these two calls sb_parallel_for() and sb_parallel_lanes() leave work
 * undone once sb_ctx_interrupt() was called: a single kernel may take minutes.
 * Then the second returns SB_INTERRUPTED, and what was computed is not to be
 * used.  `outer` is what the first returned, as they may be nested. */
bool sb_ctx_cut_allow(sb_ctx *ctx);
SB_MUST_USE sb_status sb_ctx_cut_end(sb_ctx *ctx, bool outer);

/* Keeps a row, which sb_alloc() made, until the context is freed; on failure
 * it is freed at once. */
SB_MUST_USE sb_status sb_ctx_add_row(sb_ctx *ctx, sb_row_kind kind, void *row);
/* The i-th row of a kind in the order of adding; NULL past the end. */
const void *sb_ctx_row(const sb_ctx *ctx, sb_row_kind kind, size_t i);

/* By a clock that is never set: differences say how long something took. */
double sb_seconds_now(void);

/* Forwards a failure.  The only macro that hides control flow. */
#define SB_TRY(expr)                       \
    do {                                   \
        sb_status sb_try_status_ = (expr); \
        if (sb_try_status_ != SB_OK)       \
            return sb_try_status_;         \
    } while (0)

#endif
