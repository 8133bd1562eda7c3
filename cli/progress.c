/* Progress: a bar that is drawn over itself on a terminal, less than that on a
 * narrow one; elsewhere a line now and then, so that a log of a long run shows
 * that it lives. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { BAR = 24, WIDTH = 80, WIDTH_BAR = 72, WIDTH_STATE = 48 };

static const double redraw_s = 0.1, line_s = 10;

double cli_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Can it move the cursor? */
static bool is_terminal(void)
{
    const char *kind = getenv("TERM");

    return isatty(STDERR_FILENO) == 1 && !(kind && strcmp(kind, "dumb") == 0);
}

/* Asked anew each time: windows change. */
static int progress_columns(void)
{
    struct winsize size;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
               ? size.ws_col
               : WIDTH;
}

void cli_progress_begin(cli_progress *p, cli_env *env, const char *what,
                        size_t total)
{
    *p = (cli_progress){.env = env, .what = what, .total = total};
    p->start = p->last = cli_seconds();
    p->terminal = is_terminal();
    p->silent = env->common.quiet || (env->common.json && !p->terminal);
    env->progress = p;
}

/* "1:02:03" or "2:03". */
static void print_time(double s)
{
    long t = s < 1e7 ? (long)(s + 0.5) : 9999999;

    if (t >= 3600)
        (void)fprintf(stderr, "%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    else
        (void)fprintf(stderr, "%ld:%02ld", t / 60, t % 60);
}

static void print_state(const cli_progress *p, double now)
{
    double passed = now - p->start;
    double rate = passed > 0 ? (double)p->done / passed : 0;

    (void)fprintf(stderr, "%zu/%zu", p->done, p->total);
    if (rate > 0) {
        (void)fprintf(stderr, "  %.*f/s  ", rate < 10 ? 1 : 0, rate);
        print_time((double)(p->total - p->done) / rate);
        (void)fprintf(stderr, " left");
    }
}

static void progress_draw(cli_progress *p, double now)
{
    char bar[BAR + 1];
    size_t full = p->total ? BAR * p->done / p->total : 0;
    int width = progress_columns();

    memset(bar, ' ', BAR);
    memset(bar, '#', full);
    bar[BAR] = '\0';
    (void)fprintf(stderr, "\r%s ", p->what);
    if (width >= WIDTH_BAR)
        (void)fprintf(stderr, "[%s] ", bar);
    if (width >= WIDTH_STATE)
        print_state(p, now);
    else
        (void)fprintf(stderr, "%zu/%zu", p->done, p->total);
    (void)fprintf(stderr, "\033[K");
    (void)fflush(stderr);
    p->drawn = true;
}

void cli_progress_step(cli_progress *p, size_t done)
{
    double now = cli_seconds();

    p->done = done < p->total ? done : p->total;
    if (p->silent || now - p->last < (p->terminal ? redraw_s : line_s))
        return;
    p->last = now;
    if (p->terminal) {
        progress_draw(p, now);
        return;
    }
    (void)fprintf(stderr, "%s: ", p->what);
    print_state(p, now);
    (void)fputc('\n', stderr);
}

void cli_progress_clear(cli_progress *p)
{
    if (!p || !p->drawn)
        return;
    (void)fprintf(stderr, "\r\033[K");
    (void)fflush(stderr);
    p->drawn = false;
}

double cli_progress_end(cli_progress *p)
{
    cli_progress_clear(p);
    p->env->progress = NULL;
    return cli_seconds() - p->start;
}
