/* The context: error messages, log, interruption. */
#include "base/ctx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

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

/* Who cut says so in `cut`: the interruption itself may be taken back by then.
 */
sb_status sb_ctx_cut_end(sb_ctx *ctx, bool outer)
{
    ctx->may_cut = outer;
    if (!atomic_load(&ctx->cut))
        return SB_OK;
    if (!outer)
        atomic_store(&ctx->cut, false);
    return sb_fail(ctx, SB_INTERRUPTED, "interrupted");
}
