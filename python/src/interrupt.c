/* Signals while the library works.
 *
 * Python's own handler only takes a note, which the interpreter looks at
 * between two instructions: a call that runs for a minute would not notice
 * Ctrl-C.  So on the main thread, for the time of a call, a handler stands
 * before Python's: it interrupts the context and then calls Python's.  The
 * library returns, and the note becomes KeyboardInterrupt.
 *
 * Kernels of oneDNN do not keep the stack as a handler needs it.  The main
 * thread gets a second stack for handlers (CPython asks for it, SA_ONSTACK);
 * other threads take no signals while they compute. */
#define _GNU_SOURCE
#include "core.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STACK = 1 << 16 };

static _Atomic(sb_ctx *) running; /* of the main thread */
static volatile sig_atomic_t fired;
static struct sigaction pythons; /* what SIGINT did before */

static void interrupt_running(int number, siginfo_t *info, void *context)
{
    sb_ctx *ctx = atomic_load(&running);

    fired = 1;
    if (ctx)
        sb_ctx_interrupt(ctx);
    if (pythons.sa_flags & SA_SIGINFO)
        pythons.sa_sigaction(number, info, context);
    else
        pythons.sa_handler(number);
}

static bool is_main_thread(void)
{
    return (pid_t)syscall(SYS_gettid) == getpid();
}

/* A second stack, unless there is one (the module faulthandler makes one). */
static void provide_stack(void)
{
    static bool provided;
    static char memory[STACK];
    stack_t now;

    if (provided)
        return;
    provided = true;
    if (sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE)) {
        stack_t ours = {.ss_sp = memory, .ss_size = sizeof memory};
        (void)sigaltstack(&ours, NULL);
    }
}

static void block_signals(sigset_t *before)
{
    /* Those that a thread brings upon itself it has to take. */
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP};
    sigset_t others;

    (void)sigfillset(&others);
    for (size_t i = 0; i < PY_COUNT(own); i++)
        (void)sigdelset(&others, own[i]);
    (void)pthread_sigmask(SIG_SETMASK, &others, before);
}

void py_signals_begin(py_call *call)
{
    call->is_main = is_main_thread();
    if (!call->is_main) {
        block_signals(&call->mask);
        return;
    }
    provide_stack();
    /* A callback of another context may have brought us here. */
    call->outer = atomic_exchange(&running, call->context->ctx);
    if (call->outer)
        return;
    fired = 0;
    struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    ours.sa_sigaction = interrupt_running;
    (void)sigemptyset(&ours.sa_mask);
    if (sigaction(SIGINT, NULL, &pythons) != 0 ||
        (!(pythons.sa_flags & SA_SIGINFO) &&
         (pythons.sa_handler == SIG_DFL || pythons.sa_handler == SIG_IGN)))
        return; /* Python does not want it: as it was */
    (void)sigaction(SIGINT, &ours, NULL);
}

bool py_signals_end(py_call *call)
{
    struct sigaction now;

    if (!call->is_main) {
        (void)pthread_sigmask(SIG_SETMASK, &call->mask, NULL);
        return false;
    }
    atomic_store(&running, call->outer);
    if (call->outer)
        return fired;
    /* A callback may have asked for another handler meanwhile. */
    if (sigaction(SIGINT, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
        now.sa_sigaction == interrupt_running)
        (void)sigaction(SIGINT, &pythons, NULL);
    return fired;
}
