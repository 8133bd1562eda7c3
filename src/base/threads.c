/* A pool of threads that take pieces of work until there are none.
 *
 * Why not OpenMP's: its loops give each thread its share beforehand, and all
 * wait for the slowest.  On a machine that is busy with something else the
 * slowest is one that has no core at the moment, and the others wait whole
 * time slices, turning round and round, after every step of a network.  Here
 * the caller works too, and takes whatever the others have not begun; it waits
 * only for pieces that somebody is in the middle of, and then it sleeps.
 *
 * The pieces of a job are dealt out evenly at first, so that a thread finds
 * the neighbourhood of what it wrote the step before in its cache; who is done
 * takes from the others.
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
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum {
    THREADS_MOST = 1024,
    PIECES = 4, /* of each thread, so that there is something to take */
    IDLE_SPIN_NS = 100000, /* before a thread without work sleeps: longer than
                              most gaps between the steps of a network */
    WAIT_SPIN_NS = 20000,  /* before the caller sleeps */
    SPINS = 16,            /* between looks at the clock */
    LINE = 64,
};

/* The pieces of one thread: the next and the last, on a line of their own. */
typedef struct share {
    _Alignas(LINE) atomic_size_t next;
    size_t end;
} share;

typedef struct job {
    sb_range_fn range; /* or */
    sb_lane_fn item;
    void *arg;
    size_t n, pieces, lanes;
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
    job job;
    size_t n_workers, n_shares;
    share *shares; /* aligned, in `memory` */
    void *memory;
    struct worker {
        struct sb_pool *pool;
        pthread_t thread;
        size_t lane;
    } * workers;
};

/* ---- doing a job -------------------------------------------------------- */

static void do_piece(const job *j, size_t lane, size_t piece)
{
    if (j->item)
        j->item(j->arg, lane, piece);
    else
        j->range(j->arg, j->n * piece / j->pieces,
                 j->n * (piece + 1) / j->pieces);
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

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct sb_pool *p = w->pool;
    unsigned seen = 0;

#ifdef _OPENMP
    omp_set_num_threads(1); /* for oneDNN, which asks at the call */
#endif
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

static void pool_free(sb_ctx *ctx, struct sb_pool *p)
{
    (void)pthread_cond_destroy(&p->wake);
    (void)pthread_cond_destroy(&p->done);
    (void)pthread_mutex_destroy(&p->lock);
    sb_free(ctx, p->workers);
    sb_free(ctx, p->memory);
    sb_free(ctx, p);
}

/* Signals are for the program's own threads: oneDNN's kernels do not keep the
 * stack as a handler needs it. */
static void start_workers(struct sb_pool *p, size_t n)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; p->n_workers < n; p->n_workers++) {
        struct worker *w = &p->workers[p->n_workers];
        *w = (struct worker){.pool = p, .lane = p->n_workers + 1};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
            break; /* those that there are will do */
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* NULL if memory is out: then the caller works alone. */
static struct sb_pool *pool_of(sb_ctx *ctx)
{
    struct sb_pool *p = ctx->pool;
    size_t n = (size_t)ctx->n_threads;

    if (p)
        return p;
    p = sb_alloc(ctx, 1, sizeof *p);
    if (!p)
        return NULL;
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
    start_workers(p, n - 1);
    ctx->pool = p;
    return p;
}

void sb_threads_stop(sb_ctx *ctx)
{
    struct sb_pool *p = ctx->pool;

    if (!p)
        return;
    (void)pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    (void)pthread_cond_broadcast(&p->wake);
    (void)pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < p->n_workers; i++)
        (void)pthread_join(p->workers[i].thread, NULL);
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

static void run_job(sb_ctx *ctx, const job *j)
{
    struct sb_pool *p = j->lanes > 1 ? pool_of(ctx) : NULL;

    /* Work inside of work stays where it is. */
    if (!p || p->n_workers == 0 || atomic_exchange(&p->busy, true)) {
        if (j->item)
            for (size_t i = 0; i < j->pieces; i++)
                j->item(j->arg, 0, i);
        else
            j->range(j->arg, 0, j->n);
        return;
    }
    open_job(p, j);
    do_shares(p, 0);
    close_job(p);
    atomic_store(&p->busy, false);
}

void sb_parallel_for(sb_ctx *ctx, size_t n, size_t grain, sb_range_fn fn,
                     void *arg)
{
    size_t lanes = (size_t)ctx->n_threads;
    size_t most = n / (grain ? grain : 1);

    if (n == 0)
        return;
    job j = {.range = fn, .arg = arg, .n = n, .lanes = lanes};
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
    job j = {.item = fn, .arg = arg, .n = n, .pieces = n};

    j.lanes = lanes < threads ? lanes : threads;
    j.lanes = n < j.lanes ? n : j.lanes;
    if (n > 0)
        run_job(ctx, &j);
}

/* ---- how many ----------------------------------------------------------- */

/* The processors that this program may use. */
static int processors(void)
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
        n_threads = processors();
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
