/* The context: its life, error messages, log, interruption. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "base/ctx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/options.h"
#include "base/ranks/comm.h"
#include "base/str.h"
#include "base/threads.h"

#define CTX_TEXT_OF(x) #x
#define CTX_TEXT(x)    CTX_TEXT_OF(x)

const char *sb_version(void)
{
    return CTX_TEXT(SB_VERSION_MAJOR) "." CTX_TEXT(
        SB_VERSION_MINOR) "." CTX_TEXT(SB_VERSION_PATCH);
}

int sb_version_number(void)
{
    return SB_VERSION_NUMBER;
}

static const char *const status_texts[] = {
#define X(name, text) text,
    SB_STATUS_MAP(X)
#undef X
};

const char *sb_status_text(sb_status status)
{
    if ((unsigned)status >= SB_COUNT(status_texts))
        return "unknown status";
    return status_texts[status];
}

/* ---- life --------------------------------------------------------------- */

/* The context itself is the one object that exists before a context does. */
sb_status sb_ctx_create(const sb_allocator *alloc, sb_ctx **out)
{
    sb_allocator a;
    sb_ctx none = {.n_threads = 0}; /* for the message, which is not read */

    SB_TRY(sb_options_read(&none, "sb_allocator", alloc, &sb_default_allocator,
                           sizeof a, &a));
    if (!a.resize || !a.free)
        return SB_BAD_ARG;
    sb_ctx *ctx = a.resize(a.user, NULL, sizeof *ctx);
    if (!ctx)
        return SB_NO_MEMORY;
    memset(ctx, 0, sizeof *ctx);
    ctx->alloc = a;
    ctx->budget = &ctx->own_budget;
    sb_ctx_set_threads(ctx, 0);
    *out = ctx;
    return SB_OK;
}

sb_status sb_ctx_create_child(sb_ctx *parent, sb_ctx **out)
{
    SB_TRY(sb_ctx_create(&parent->alloc, out));
    (*out)->budget = parent->budget;
    (*out)->copy_files = parent->copy_files;
    return SB_OK;
}

static void ctx_rows_free(sb_ctx *ctx)
{
    for (size_t k = 0; k < SB_ROW_KINDS; k++) {
        for (size_t i = 0; i < ctx->rows[k].n; i++)
            sb_free(ctx, ctx->rows[k].v[i]);
        sb_free(ctx, ctx->rows[k].v);
    }
}

void sb_ctx_free(sb_ctx *ctx)
{
    if (ctx) {
        sb_allocator a = ctx->alloc;
        sb_threads_stop(ctx);
        sb_comm_forget(ctx);
        ctx_rows_free(ctx);
        a.free(a.user, ctx);
    }
}

sb_status sb_ctx_add_row(sb_ctx *ctx, sb_row_kind kind, void *row)
{
    sb_row_list *list = &ctx->rows[kind];
    sb_status status =
        sb_grow(ctx, &list->v, &list->cap, list->n + 1, sizeof *list->v);

    if (status == SB_OK)
        list->v[list->n++] = row;
    else
        sb_free(ctx, row);
    return status;
}

const void *sb_ctx_row(const sb_ctx *ctx, sb_row_kind kind, size_t i)
{
    return i < ctx->rows[kind].n ? ctx->rows[kind].v[i] : NULL;
}

/* ---- messages ----------------------------------------------------------- */

sb_status sb_fail(sb_ctx *ctx, sb_status code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(ctx->error, sizeof ctx->error, fmt, args);
    va_end(args);
    sb_text_make_printable(ctx->error);
    ctx->status = code;
    return code;
}

sb_status sb_note(sb_ctx *ctx, sb_status code, const char *fmt, ...)
{
    size_t used = strlen(ctx->error);
    char text[SB_ERROR_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sb_text_make_printable(text);
    (void)snprintf(ctx->error + used, sizeof ctx->error - used, " (%s)", text);
    return code;
}

void sb_warn(sb_ctx *ctx, const char *fmt, ...)
{
    char text[SB_ERROR_MAX];
    va_list args;

    if (!sb_log_wanted(ctx))
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sb_text_make_printable(text);
    sb_log(ctx, SB_LOG_LEVEL_WARNING, text);
}

void sb_log(sb_ctx *ctx, sb_log_level level, const char *line)
{
    if (sb_log_wanted(ctx))
        ctx->log(ctx->log_user, level, line);
}

bool sb_log_wanted(const sb_ctx *ctx)
{
    return ctx->log && ctx->muted == 0;
}

void sb_log_mute(sb_ctx *ctx, bool on)
{
    ctx->muted += on ? 1 : -1;
}

/* ---- progress and interruption ------------------------------------------ */

sb_status sb_progress(sb_ctx *ctx, const char *stage, size_t done, size_t total)
{
    SB_TRY(sb_ctx_poll(ctx));
    if (ctx->progress && ctx->progress(ctx->progress_user, stage, done, total))
        return sb_fail(ctx, SB_INTERRUPTED, "ended by the progress callback");
    return SB_OK;
}

const char *sb_ctx_error(const sb_ctx *ctx)
{
    if (!ctx)
        return "there is no context";
    return ctx->error[0] ? ctx->error : sb_status_text(ctx->status);
}

sb_status sb_ctx_status(const sb_ctx *ctx)
{
    return ctx->status;
}

void sb_ctx_set_log(sb_ctx *ctx, sb_log_fn log, void *user)
{
    ctx->log = log;
    ctx->log_user = user;
}

void sb_ctx_set_copy_files(sb_ctx *ctx, int on)
{
    ctx->copy_files = on != 0;
}

void sb_ctx_interrupt(sb_ctx *ctx)
{
    atomic_store_explicit(&ctx->interrupted, 1, memory_order_relaxed);
}

void sb_ctx_clear_interrupt(sb_ctx *ctx)
{
    atomic_store_explicit(&ctx->interrupted, 0, memory_order_relaxed);
}

void sb_ctx_set_progress(sb_ctx *ctx, sb_progress_fn progress, void *user)
{
    ctx->progress = progress;
    ctx->progress_user = user;
}

sb_status sb_ctx_poll(sb_ctx *ctx)
{
    if (ctx->held == 0 &&
        atomic_load_explicit(&ctx->interrupted, memory_order_relaxed))
        return sb_fail(ctx, SB_INTERRUPTED, "interrupted");
    return SB_OK;
}

void sb_ctx_hold(sb_ctx *ctx, bool on)
{
    ctx->held += on ? 1 : -1;
}

bool sb_ctx_cut_allow(sb_ctx *ctx)
{
    bool outer = ctx->may_cut;

    ctx->may_cut = ctx->held == 0;
    return outer;
}

/* Asks `cut`, not the interruption itself, which may be taken back by then. */
sb_status sb_ctx_cut_end(sb_ctx *ctx, bool outer)
{
    ctx->may_cut = outer;
    if (!atomic_load(&ctx->cut))
        return SB_OK;
    if (!outer)
        atomic_store(&ctx->cut, false);
    return sb_fail(ctx, SB_INTERRUPTED, "interrupted");
}

double sb_seconds_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
