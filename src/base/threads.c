/* A pool of threads that take pieces of work until there are none.
 *
 * Why not OpenMP's: its loops give each thread its share beforehand, and all
 * wait for the slowest.  On a machine that is busy with something else the
 * slowest is one that has no core at the moment, and the others spin for whole
 * time slices after every step of a network.  Here
 * the caller works too, and takes whatever the others have not begun; it waits
 * only for pieces that other threads have begun, and then it sleeps.
 *
 * The pieces of a job are dealt out evenly at first, so that a thread finds
 * in its cache the neighborhood of what it wrote in the step before; a thread
 * that is done takes pieces from the others.
 *
 * A job is open while `open` holds its number.  A thread that wants to join
 * counts itself in first and looks at `open` then; the caller closes first and
 * looks at the count then.  So either the thread sees that it came too late, or
 * the caller sees the thread and waits for it (all atomics here are
 * sequentially consistent). */
#define _GNU_SOURCE
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/simd.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum {
    THREADS_MOST = 1024,
    SIGNAL_STACK = 1 << 16,
    PIECES = 4, /* of each thread, so that there is something to take */
    IDLE_SPIN_NS = 100000, /* before a thread without work sleeps: longer than
                              most gaps between the steps of a network */
    WAIT_SPIN_NS = 20000,  /* before the caller sleeps */
    SPINS = 16,            /* between looks at the clock */
    LOOKS = 16, /* grains between two looks at the interruption: some tenths of
                   a millisecond, so that looking costs nothing */
    LINE = 64,
    COPY_PIECE = 1 << 18, /* bytes worth a thread */
};

/* The pieces of one thread: the next and the last, on a line of their own. */
typedef struct share {
    _Alignas(LINE) atomic_size_t next;
    size_t end;
} share;

typedef struct job {
    sb_ctx *ctx;
    sb_range_fn range; /* or */
    sb_lane_fn item;
    void *arg;
    size_t n, pieces, lanes;
    size_t step; /* items of a range between two looks at the interruption */
} job;

struct sb_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_bool busy; /* a job is being done */
    atomic_uint open; /* its number; 0: none */
    atomic_size_t inside;
    atomic_size_t sleeping;
    atomic_bool waiting; /* the caller sleeps */
    atomic_bool stop;
    unsigned number;
    unsigned forks; /* of the process when the threads were made */
    job job;
    size_t n_workers, n_shares;
    share *shares; /* aligned, in `memory` */
    void *memory;
    struct worker {
        struct sb_pool *pool;
        pthread_t thread;
        size_t lane;
        void *stack; /* for handlers of signals */
    } * workers;
};

/* ---- forks -------------------------------------------------------------- */

/* A child process has none of its parent's threads.  That is a fact of the
 * process, and asking the system for its number at each job would cost more
 * than many jobs do: so this one counter is not in the context. */
static atomic_uint forks;
static pthread_once_t forks_watched = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
}

unsigned sb_threads_forks(void)
{
    (void)pthread_once(&forks_watched, watch_forks);
    return atomic_load(&forks);
}

/* ---- doing a job -------------------------------------------------------- */

/* Is the rest to be left undone? */
static bool job_is_cut(const job *j)
{
    if (!j->ctx->may_cut ||
        !atomic_load_explicit(&j->ctx->interrupted, memory_order_relaxed))
        return false;
    atomic_store(&j->ctx->cut, true);
    return true;
}

static void do_range(const job *j, size_t begin, size_t end)
{
    while (begin < end && !job_is_cut(j)) {
        size_t to = end - begin > j->step ? begin + j->step : end;
        j->range(j->arg, begin, to);
        begin = to;
    }
}

static void do_piece(const job *j, size_t lane, size_t piece)
{
    if (!j->item)
        do_range(j, j->n * piece / j->pieces, j->n * (piece + 1) / j->pieces);
    else if (!job_is_cut(j))
        j->item(j->arg, lane, piece);
}

static void do_shares(struct sb_pool *p, size_t lane)
{
    const job *j = &p->job;

    for (size_t k = 0; k < j->lanes; k++) {
        share *s = &p->shares[(lane + k) % j->lanes];
        while (atomic_load(&s->next) < s->end) {
            size_t piece = atomic_fetch_add(&s->next, 1);
            if (piece < s->end)
                do_piece(j, lane, piece);
        }
    }
}

static void pause_a_little(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- threads ------------------------------------------------------------ */

static bool has_news(struct sb_pool *p, unsigned seen)
{
    unsigned open = atomic_load(&p->open);

    return (open != 0 && open != seen) || atomic_load(&p->stop);
}

/* Returns when there is a job that was not seen yet, or the end has come. */
static void wait_for_job(struct sb_pool *p, unsigned seen)
{
    int64_t until = now_ns() + IDLE_SPIN_NS;

    do {
        for (int i = 0; i < SPINS; i++) {
            if (has_news(p, seen))
                return;
            pause_a_little();
        }
    } while (now_ns() < until);
    (void)pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleeping, 1);
    while (!has_news(p, seen))
        (void)pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleeping, 1);
    (void)pthread_mutex_unlock(&p->lock);
}

/* Unless the thread has one already, as it does under AddressSanitizer. */
static void take_signal_stack(const struct worker *w)
{
    const stack_t own = {.ss_sp = w->stack, .ss_size = SIGNAL_STACK};
    stack_t now;

    if (w->stack && sigaltstack(NULL, &now) == 0 && now.ss_flags & SS_DISABLE)
        (void)sigaltstack(&own, NULL);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct sb_pool *p = w->pool;
    unsigned seen = 0;

    (void)sb_subnormals_off();
#ifdef _OPENMP
    omp_set_num_threads(1); /* for oneDNN, which asks at the call */
#endif
    take_signal_stack(w);
    for (;;) {
        wait_for_job(p, seen);
        if (atomic_load(&p->stop))
            return NULL;
        atomic_fetch_add(&p->inside, 1);
        unsigned open = atomic_load(&p->open);
        if (open != 0) {
            seen = open;
            if (w->lane < p->job.lanes)
                do_shares(p, w->lane);
        }
        if (atomic_fetch_sub(&p->inside, 1) == 1 && atomic_load(&p->waiting)) {
            (void)pthread_mutex_lock(&p->lock);
            (void)pthread_cond_signal(&p->done);
            (void)pthread_mutex_unlock(&p->lock);
        }
    }
}

static bool pool_is_ours(const struct sb_pool *p)
{
    return p->forks == sb_threads_forks();
}

static void pool_free(sb_ctx *ctx, struct sb_pool *p)
{
    if (pool_is_ours(p)) {
        (void)pthread_cond_destroy(&p->wake);
        (void)pthread_cond_destroy(&p->done);
        (void)pthread_mutex_destroy(&p->lock);
    }
    for (size_t i = 0; p->workers && i < p->n_workers; i++)
        sb_free(ctx, p->workers[i].stack);
    sb_free(ctx, p->workers);
    sb_free(ctx, p->memory);
    sb_free(ctx, p);
}

/* Signals are for the program's own threads: oneDNN's kernels do not keep the
 * stack as a handler needs it.  Those that a thread brings upon itself, as by
 * reading a mapped file that became shorter, it has to take, on another stack
 * if the handler asks for that. */
static void start_workers(sb_ctx *ctx, struct sb_pool *p, size_t n)
{
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP};
    sigset_t others, before;

    (void)sigfillset(&others);
    for (size_t i = 0; i < SB_COUNT(own); i++)
        (void)sigdelset(&others, own[i]);
    (void)pthread_sigmask(SIG_SETMASK, &others, &before);
    for (; p->n_workers < n; p->n_workers++) {
        struct worker *w = &p->workers[p->n_workers];
        *w = (struct worker){.pool = p, .lane = p->n_workers + 1};
        w->stack = sb_alloc_raw(ctx, SIGNAL_STACK, 1);
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            sb_free(ctx, w->stack);
            break; /* those that there are will do */
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* NULL if memory is out: then the caller works alone. */
static struct sb_pool *pool_of(sb_ctx *ctx)
{
    struct sb_pool *p = ctx->pool;
    size_t n = (size_t)ctx->n_threads;

    if (p && pool_is_ours(p))
        return p;
    sb_threads_stop(ctx);
    p = sb_alloc(ctx, 1, sizeof *p);
    if (!p)
        return NULL;
    p->forks = sb_threads_forks();
    p->workers = sb_alloc(ctx, n, sizeof *p->workers);
    p->memory = sb_alloc(ctx, n + 1, sizeof(share));
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->wake, NULL);
    (void)pthread_cond_init(&p->done, NULL);
    if (!p->workers || !p->memory) {
        pool_free(ctx, p);
        return NULL;
    }
    uintptr_t at = (uintptr_t)p->memory;
    p->shares =
        (share *)(void *)((char *)p->memory + (LINE - at % LINE) % LINE);
    p->n_shares = n;
    start_workers(ctx, p, n - 1);
    ctx->pool = p;
    return p;
}

void sb_threads_stop(sb_ctx *ctx)
{
    struct sb_pool *p = ctx->pool;

    if (!p)
        return;
    if (pool_is_ours(p)) {
        (void)pthread_mutex_lock(&p->lock);
        atomic_store(&p->stop, true);
        (void)pthread_cond_broadcast(&p->wake);
        (void)pthread_mutex_unlock(&p->lock);
        for (size_t i = 0; i < p->n_workers; i++)
            (void)pthread_join(p->workers[i].thread, NULL);
    }
    pool_free(ctx, p);
    ctx->pool = NULL;
}

/* ---- the caller --------------------------------------------------------- */

static void open_job(struct sb_pool *p, const job *j)
{
    p->job = *j;
    for (size_t i = 0; i < j->lanes; i++) {
        atomic_store(&p->shares[i].next, j->pieces * i / j->lanes);
        p->shares[i].end = j->pieces * (i + 1) / j->lanes;
    }
    p->number = p->number == UINT32_MAX ? 1 : p->number + 1;
    atomic_store(&p->open, p->number);
    if (atomic_load(&p->sleeping) == 0)
        return;
    (void)pthread_mutex_lock(&p->lock);
    (void)pthread_cond_broadcast(&p->wake);
    (void)pthread_mutex_unlock(&p->lock);
}

static void close_job(struct sb_pool *p)
{
    int64_t until = 0;

    atomic_store(&p->open, 0);
    while (atomic_load(&p->inside) > 0) {
        for (int i = 0; i < SPINS && atomic_load(&p->inside) > 0; i++)
            pause_a_little();
        int64_t now = now_ns();
        if (until == 0)
            until = now + WAIT_SPIN_NS;
        if (now >= until)
            break;
    }
    if (atomic_load(&p->inside) == 0)
        return;
    (void)pthread_mutex_lock(&p->lock);
    atomic_store(&p->waiting, true);
    while (atomic_load(&p->inside) > 0)
        (void)pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->waiting, false);
    (void)pthread_mutex_unlock(&p->lock);
}

static void run_alone(const job *j)
{
    if (!j->item)
        do_range(j, 0, j->n);
    for (size_t i = 0; j->item && i < j->pieces; i++)
        do_piece(j, 0, i);
}

static void run_job(sb_ctx *ctx, const job *j)
{
    struct sb_pool *p = j->lanes > 1 ? pool_of(ctx) : NULL;
    uint64_t before = sb_subnormals_off();

    /* Work inside of work stays where it is. */
    if (!p || p->n_workers == 0 || atomic_exchange(&p->busy, true)) {
        run_alone(j);
    } else {
        open_job(p, j);
        do_shares(p, 0);
        close_job(p);
        atomic_store(&p->busy, false);
    }
    sb_subnormals_restore(before);
}

void sb_parallel_for(sb_ctx *ctx, size_t n, size_t grain, sb_range_fn fn,
                     void *arg)
{
    size_t lanes = (size_t)ctx->n_threads;
    size_t most = n / (grain ? grain : 1);
    size_t step = grain < SIZE_MAX / LOOKS ? LOOKS * grain : grain;

    if (n == 0)
        return;
    job j = {.ctx = ctx, .range = fn, .arg = arg, .n = n, .lanes = lanes};
    j.step = step ? step : LOOKS;
    j.lanes = most < lanes ? most : lanes;
    if (j.lanes > 1) /* equally many for each */
        j.pieces =
            j.lanes * (most / j.lanes < PIECES ? most / j.lanes : PIECES);
    run_job(ctx, &j);
}

void sb_parallel_lanes(sb_ctx *ctx, size_t n, size_t lanes, sb_lane_fn fn,
                       void *arg)
{
    size_t threads = (size_t)ctx->n_threads;
    job j = {.ctx = ctx, .item = fn, .arg = arg, .n = n, .pieces = n};

    j.lanes = lanes < threads ? lanes : threads;
    j.lanes = n < j.lanes ? n : j.lanes;
    if (n > 0)
        run_job(ctx, &j);
}

typedef struct copy_job {
    char *to;
    const char *from;
    size_t size;
} copy_job;

/* Items are pieces of COPY_PIECE bytes. */
static void copy_pieces(void *arg, size_t begin, size_t end)
{
    const copy_job *j = arg;
    size_t first = begin * COPY_PIECE, last = end * COPY_PIECE;

    last = last < j->size ? last : j->size;
    memcpy(j->to + first, j->from + first, last - first);
}

void sb_parallel_copy(sb_ctx *ctx, void *to, const void *from, size_t size)
{
    copy_job j = {to, from, size};
    size_t rest = size % COPY_PIECE != 0;

    sb_parallel_for(ctx, size / COPY_PIECE + rest, 1, copy_pieces, &j);
}

/* ---- how many ----------------------------------------------------------- */

/* The processors that this program may use. */
static int threads_processors(void)
{
#ifdef __linux__
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > THREADS_MOST ? THREADS_MOST : (int)n;
}

void sb_ctx_set_threads(sb_ctx *ctx, int n_threads)
{
    if (n_threads <= 0)
        n_threads = threads_processors();
    if (n_threads > THREADS_MOST)
        n_threads = THREADS_MOST;
    if (n_threads != ctx->n_threads)
        sb_threads_stop(ctx);
    ctx->n_threads = n_threads;
}

int sb_ctx_threads(const sb_ctx *ctx)
{
    return ctx->n_threads;
}
