/* How far a long piece of work has come: a bar on a terminal, redrawn at most
 * ten times a second; elsewhere a plain line every ten seconds. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>
#include <unistd.h>

#include "cli.h"

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void cli_progress_begin(cli_progress *p, const cli_env *env, const char *what,
                        size_t total)
{
    *p = (cli_progress){.what = what, .total = total, .start = now()};
    p->silent = env->common.quiet;
    p->terminal = isatty(STDERR_FILENO) != 0;
    p->last = p->start;
}

static void draw_bar(const cli_progress *p, double seconds)
{
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    double share = p->total ? (double)p->done / (double)p->total : 0;
    double rate = seconds > 0 ? (double)p->done / seconds : 0;

    share = share > 1 ? 1 : share;
    for (int i = 0; i < WIDTH; i++)
        bar[i] = i < (int)(share * WIDTH) ? '#' : '.';
    bar[WIDTH] = '\0';
    (void)fprintf(stderr, "\r%s [%s] %zu/%zu  %.1f/s", p->what, bar, p->done,
                  p->total, rate);
    if (rate > 0 && p->done < p->total)
        (void)fprintf(stderr, "  %.0f s left",
                      (double)(p->total - p->done) / rate);
    (void)fprintf(stderr, "\033[K");
    (void)fflush(stderr);
}

void cli_progress_step(cli_progress *p, size_t done)
{
    double t = now();

    p->done = done;
    if (p->silent || t - p->last < (p->terminal ? 0.1 : 10))
        return;
    p->last = t;
    if (p->terminal)
        draw_bar(p, t - p->start);
    else
        (void)fprintf(stderr, "%s: %zu of %zu in %.0f s\n", p->what, p->done,
                      p->total, t - p->start);
    p->drawn = true;
}

double cli_progress_end(cli_progress *p)
{
    if (p->drawn && p->terminal)
        (void)fprintf(stderr, "\r\033[K");
    return now() - p->start;
}
