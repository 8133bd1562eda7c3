/* Progress: a bar that is drawn over itself on a terminal; elsewhere a line now
 * and then, so that a log of a long run shows that it lives. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { BAR = 24 };

static const double redraw_s = 0.1, line_s = 10;

double cli_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cli_progress_begin(cli_progress *p, cli_env *env, const char *what,
                        size_t total)
{
    *p = (cli_progress){.env = env, .what = what, .total = total};
    p->start = p->last = cli_seconds();
    p->terminal = isatty(STDERR_FILENO) == 1;
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

static void draw(cli_progress *p, double now)
{
    char bar[BAR + 1];
    size_t full = p->total ? BAR * p->done / p->total : 0;

    memset(bar, ' ', BAR);
    memset(bar, '#', full);
    bar[BAR] = '\0';
    (void)fprintf(stderr, "\r%s [%s] ", p->what, bar);
    print_state(p, now);
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
        draw(p, now);
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
