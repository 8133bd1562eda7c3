/* A ring of samples between decoding threads and the caller.
 *
 *     taken <= number < given out <= taken + slots
 *
 * The caller holds the slot that it took last until it takes the next one. */
#define _POSIX_C_SOURCE 200809L
#include "data/prefetch.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/threads.h"

enum { MOST_THREADS = 64 };

typedef struct {
    sb_made made;
    bool ready;
} slot;

typedef struct {
    pthread_t thread;
    sb_ctx *ctx; /* the thread's own: contexts are not shared */
    sb_prefetch *p;
} worker;

struct sb_prefetch {
    sb_ctx *ctx;
    sb_make_fn make;
    const void *user;
    size_t end;
    slot *ring;
    size_t slots;
    pthread_mutex_t lock;
    pthread_cond_t room, ready;
    bool locks_made;
    /* under the lock */
    size_t next;  /* next number to be given to a thread */
    size_t taken; /* numbers below are done with */
    bool stop;
    worker workers[MOST_THREADS];
    int n_workers;
    unsigned forks; /* of the process when they were started */
    bool holding;   /* the caller has slot `taken` */
};

static void make_sample(const sb_prefetch *p, sb_ctx *ctx, size_t i,
                        sb_made *out)
{
    out->status = p->make(p->user, ctx, i, out->pixels);
    out->error[0] = '\0';
    if (out->status != SB_OK)
        memcpy(out->error, sb_ctx_error(ctx), strlen(sb_ctx_error(ctx)) + 1);
}

static void *prefetch_work(void *arg)
{
    worker *w = arg;
    sb_prefetch *p = w->p;

    (void)pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && p->next < p->end && p->next >= p->taken + p->slots)
            (void)pthread_cond_wait(&p->room, &p->lock);
        if (p->stop || p->next >= p->end)
            break;
        size_t i = p->next++;
        slot *s = &p->ring[i % p->slots];
        (void)pthread_mutex_unlock(&p->lock);
        make_sample(p, w->ctx, i, &s->made);
        (void)pthread_mutex_lock(&p->lock);
        s->ready = true;
        (void)pthread_cond_signal(&p->ready);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* In a child process there are no threads any more, and their locks and samples
 * may be in any state: the caller goes on alone. */
static void leave_parent(sb_prefetch *p)
{
    if (p->forks == sb_threads_forks())
        return;
    p->forks = sb_threads_forks();
    for (int i = 0; i < p->n_workers; i++)
        sb_ctx_free(p->workers[i].ctx);
    if (p->n_workers > 0) {
        memset(p->ring, 0, p->slots * sizeof *p->ring);
        p->next = p->taken + p->holding;
    }
    p->n_workers = 0;
    p->locks_made = false;
}

/* Fewer threads than asked for are no failure. */
static void start_workers(sb_prefetch *p, int threads)
{
    for (int i = 0; i < threads && i < MOST_THREADS; i++) {
        worker *w = &p->workers[p->n_workers];

        w->p = p;
        if (sb_ctx_create_child(p->ctx, &w->ctx) != SB_OK)
            return;
        sb_ctx_set_threads(w->ctx, 1);
        if (pthread_create(&w->thread, NULL, prefetch_work, w) != 0) {
            sb_ctx_free(w->ctx);
            return;
        }
        p->n_workers++;
    }
}

/* Waits by a clock that is never set. */
static void init_ready(pthread_cond_t *ready)
{
    pthread_condattr_t attr;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(ready, &attr);
    (void)pthread_condattr_destroy(&attr);
}

sb_status sb_prefetch_start(sb_ctx *ctx, size_t begin, size_t end, size_t slots,
                            int threads, sb_make_fn make, const void *user,
                            sb_prefetch **out)
{
    sb_prefetch *p = sb_alloc(ctx, 1, sizeof *p);

    if (!p)
        return SB_NO_MEMORY;
    p->ctx = ctx;
    p->make = make;
    p->user = user;
    p->end = end;
    p->next = p->taken = begin;
    p->forks = sb_threads_forks();
    p->slots = threads > 0 && slots > 1 ? slots : 1;
    p->ring = sb_alloc(ctx, p->slots, sizeof *p->ring);
    if (!p->ring) {
        sb_free(ctx, p);
        return SB_NO_MEMORY;
    }
    if (p->slots > 1) {
        p->locks_made = true;
        (void)pthread_mutex_init(&p->lock, NULL);
        (void)pthread_cond_init(&p->room, NULL);
        init_ready(&p->ready);
        start_workers(p, threads);
    }
    *out = p;
    return SB_OK;
}

/* Wakes up now and then to see whether the user pressed Ctrl-C. */
static sb_status wait_for(sb_prefetch *p, const slot *s)
{
    sb_status status = SB_OK;

    while (!s->ready && status == SB_OK) {
        struct timespec until;

        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 100000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&p->ready, &p->lock, &until);
        status = sb_ctx_poll(p->ctx);
    }
    return status;
}

sb_status sb_prefetch_take(sb_prefetch *p, const sb_made **out)
{
    sb_status status = SB_OK;

    SB_TRY(sb_ctx_poll(p->ctx));
    leave_parent(p);
    if (p->n_workers == 0) {
        make_sample(p, p->ctx, p->next++, &p->ring[0].made);
        *out = &p->ring[0].made;
        return SB_OK;
    }
    (void)pthread_mutex_lock(&p->lock);
    if (p->holding) {
        p->ring[p->taken % p->slots].ready = false;
        p->taken++;
        p->holding = false;
        (void)pthread_cond_signal(&p->room);
    }
    slot *s = &p->ring[p->taken % p->slots];
    status = wait_for(p, s);
    p->holding = status == SB_OK;
    (void)pthread_mutex_unlock(&p->lock);
    *out = &s->made;
    return status;
}

void sb_prefetch_stop(sb_prefetch *p)
{
    if (!p)
        return;
    leave_parent(p);
    if (p->locks_made) {
        (void)pthread_mutex_lock(&p->lock);
        p->stop = true;
        (void)pthread_cond_broadcast(&p->room);
        (void)pthread_mutex_unlock(&p->lock);
        for (int i = 0; i < p->n_workers; i++) {
            (void)pthread_join(p->workers[i].thread, NULL);
            sb_ctx_free(p->workers[i].ctx);
        }
        (void)pthread_cond_destroy(&p->ready);
        (void)pthread_cond_destroy(&p->room);
        (void)pthread_mutex_destroy(&p->lock);
    }
    for (size_t i = 0; i < p->slots; i++)
        for (int k = 0; k < SB_MADE; k++)
            sb_free(p->ctx, p->ring[i].made.pixels[k].data);
    sb_free(p->ctx, p->ring);
    sb_free(p->ctx, p);
}
