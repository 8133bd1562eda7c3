/* The context: error messages, log, interruption. */
#include "base/ctx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

/* Names in messages come from files: keep the message one printable line. */
static void make_printable(char *text)
{
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

sb_status sb_fail(sb_ctx *ctx, sb_status code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(ctx->error, sizeof ctx->error, fmt, args);
    va_end(args);
    make_printable(ctx->error);
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
    make_printable(text);
    (void)snprintf(ctx->error + used, sizeof ctx->error - used, " (%s)", text);
    return code;
}

void sb_warn(sb_ctx *ctx, const char *fmt, ...)
{
    char text[SB_ERROR_MAX];
    va_list args;

    if (!ctx->log)
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    make_printable(text);
    ctx->log(ctx->log_user, text);
}

const char *sb_ctx_error(const sb_ctx *ctx)
{
    return ctx->error[0] ? ctx->error : sb_status_text(ctx->status);
}

void sb_ctx_set_log(sb_ctx *ctx, sb_log_fn log, void *user)
{
    ctx->log = log;
    ctx->log_user = user;
}

void sb_ctx_interrupt(sb_ctx *ctx)
{
    atomic_store_explicit(&ctx->interrupted, 1, memory_order_relaxed);
}

sb_status sb_ctx_poll(sb_ctx *ctx)
{
    if (atomic_load_explicit(&ctx->interrupted, memory_order_relaxed))
        return sb_fail(ctx, SB_INTERRUPTED, "interrupted");
    return SB_OK;
}
