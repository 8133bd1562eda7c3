/* Signals: Ctrl-C, kill, a terminal that closes, a file that shrinks while it
 * is mapped.
 *
 * The first three are waited for by a thread of its own.  A handler would run
 * on the stack of a computing thread, and oneDNN's kernels use the stack
 * pointer for other things: the signal frame would be written into the middle
 * of the heap. */
#define _GNU_SOURCE /* sigaltstack, SA_ONSTACK */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum {
    TWIN_NS = 100000000,  /* signals closer than this are one */
    GRACE_NS = 600000000, /* for the work to see that it is to end */
    STACK_BYTES = 1 << 16,
    LINE_BYTES = 512,
};

static atomic_int caught; /* the signal that ends the program; 0: none */
static atomic_bool told;  /* the user knows */

/* ---- asked to end ------------------------------------------------------- */

/* Ctrl-C, kill, and a terminal that closes, unless nohup says otherwise. */
static void signals_watched(sigset_t *set)
{
    struct sigaction hang_up;

    (void)sigemptyset(set);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)
        (void)sigaddset(set, SIGHUP);
}

/* A shell goes on with a loop unless the program ended by the signal. */
static _Noreturn void end_by_signal(int number)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, number);
    (void)signal(number, SIG_DFL);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    (void)raise(number);
    _exit(128 + number); /* the first process of a container is not ended */
}

bool cli_signals_told(void)
{
    return atomic_exchange(&told, true);
}

/* The first signal asks the work to stop.  The second one ends the program, and
 * so does work that waits for something and has not seen the first. */
static void *watch_signals(void *ctx)
{
    static const char message[] = "sparsebit: interrupted\n";
    sigset_t set;
    int number;

    signals_watched(&set);
    if (sigwait(&set, &number) != 0)
        return NULL;
    atomic_store(&caught, number);
    sb_ctx_interrupt(ctx);
    /* Some senders signal the process and its group: two at once are one. */
    (void)nanosleep(&(struct timespec){.tv_nsec = TWIN_NS}, NULL);
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0)
        continue;
    (void)sigtimedwait(&set, NULL, &(struct timespec){.tv_nsec = GRACE_NS});
    if (!cli_signals_told())
        (void)!write(STDERR_FILENO, message, sizeof message - 1);
    end_by_signal(number);
}

/* ---- files that shrink -------------------------------------------------- */

static void say_text(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static uintptr_t read_hex(const char **p)
{
    uintptr_t n = 0;

    for (;; (*p)++) {
        char c = **p;
        if (c >= '0' && c <= '9')
            n = 16 * n + (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            n = 16 * n + (uintptr_t)(c - 'a' + 10);
        else
            return n;
    }
}

/* The path in a line of /proc/self/maps, "from-to rights ... /path", if `at`
 * lies there. */
static const char *path_in_line(const char *line, uintptr_t at)
{
    uintptr_t from = read_hex(&line);
    uintptr_t to = *line == '-' ? (line++, read_hex(&line)) : 0;

    return from <= at && at < to ? strchr(line, '/') : NULL;
}

/* Looks for the file that is mapped at an address, with nothing but what a
 * handler may call, and says what happened to it. */
static bool say_shrunk(uintptr_t at)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    char buffer[4096], line[LINE_BYTES];
    size_t used = 0;
    ssize_t n;

    while (fd >= 0 && (n = read(fd, buffer, sizeof buffer)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (buffer[i] != '\n') {
                if (used < sizeof line - 1)
                    line[used++] = (char)(buffer[i] < ' ' ? '?' : buffer[i]);
                continue;
            }
            line[used] = '\0';
            used = 0;
            const char *path = path_in_line(line, at);
            if (path) {
                say_text("sparsebit: ");
                say_text(path);
                say_text(": became shorter while it was read\n");
                return true;
            }
        }
    return false;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code == BUS_ADRERR && say_shrunk((uintptr_t)info->si_addr))
        _exit(CLI_FAILED);
    (void)signal(number, SIG_DFL); /* it comes again, and ends the program */
}

static void catch_bus_errors(void)
{
    static char stack[STACK_BYTES];
    struct sigaction action = {.sa_sigaction = on_bus_error,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK};
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};

    (void)sigaltstack(&own, NULL);
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, NULL);
}

/* ------------------------------------------------------------------------- */

void cli_signals_catch(sb_ctx *ctx)
{
    pthread_t thread;
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write */
    (void)signal(SIGXFSZ, SIG_IGN); /* and so is a file that may not grow */
    catch_bus_errors();
    signals_watched(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, watch_signals, ctx) == 0)
        (void)pthread_detach(thread);
    else
        (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void cli_signals_end(void)
{
    int number = atomic_load(&caught);

    if (number)
        end_by_signal(number);
}
