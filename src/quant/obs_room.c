/* What observers have yet to count (observer.h).
 *
 * The lines that are kept of one tensor are counted when those of many are
 * there, so that each tensor can be counted by one thread, into one table,
 * without waiting for the others.  Not too many, though: what was copied
 * shall still be in the cache. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/threads.h"
#include "quant/obs_job.h"

enum { ROOM = 1 << 19 }; /* values */

typedef struct settle_job {
    sb_observer *const *list;
    size_t n;
    atomic_size_t next;
} settle_job;

/* One item for each thread: it takes from the list until nothing is left. */
static void settle_some(void *arg, size_t lane, size_t item)
{
    settle_job *job = arg;

    (void)lane;
    (void)item;
    for (;;) {
        size_t i = atomic_fetch_add(&job->next, 1);
        if (i >= job->n)
            break;
        sb_observer_settle(job->list[i]);
    }
}

static int more_lines(const void *a, const void *b)
{
    size_t x = (*(sb_observer *const *)a)->job->groups;
    size_t y = (*(sb_observer *const *)b)->job->groups;

    return (x < y) - (x > y);
}

/* The largest first, so that threads end at the same time. */
void sb_obs_room_settle(sb_ctx *ctx, sb_obs_room *room)
{
    size_t lanes = (size_t)sb_ctx_threads(ctx);
    settle_job job = {.list = room->waiting, .n = room->n_waiting};

    qsort(room->waiting, room->n_waiting, sizeof *room->waiting, more_lines);
    sb_parallel_lanes(ctx, job.n < lanes ? job.n : lanes, lanes, settle_some,
                      &job);
    for (size_t i = 0; i < job.n; i++)
        room->waiting[i]->job->listed = false;
    room->n_waiting = 0;
    if (room->n_looking == 0)
        room->used = 0;
}

void sb_obs_room_free(sb_ctx *ctx, sb_obs_room *room)
{
    sb_free(ctx, room->lines);
    *room = (sb_obs_room){0};
}

/* Room for n values, or NULL: no memory, or others are in the way. */
float *sb_obs_room_lines(sb_observer *obs, size_t n)
{
    sb_obs_room *room = obs->room;

    if (!room)
        return NULL;
    if (room->size - room->used < n)
        sb_obs_room_settle(obs->ctx, room);
    if (room->size < n && room->used == 0) {
        size_t size = n > ROOM ? n : ROOM;
        sb_free(obs->ctx, room->lines);
        room->lines = sb_alloc_raw(obs->ctx, size, sizeof *room->lines);
        room->size = room->lines ? size : 0;
    }
    if (room->size - room->used < n)
        return NULL;
    float *lines = room->lines + room->used;
    room->used += n;
    room->n_looking++;
    return lines;
}

void sb_obs_room_wait(sb_observer *obs)
{
    sb_obs_room *room = obs->room;

    if (!room || obs->job->listed) /* that it was settled since is no matter */
        return;
    if (room->n_waiting == SB_OBS_WAITING)
        sb_obs_room_settle(obs->ctx, room);
    room->waiting[room->n_waiting++] = obs;
    obs->job->listed = true;
}

void sb_obs_room_leave(sb_observer *obs)
{
    sb_obs_room *room = obs->room;

    for (size_t i = 0; room && i < room->n_waiting; i++)
        if (room->waiting[i] == obs)
            room->waiting[i--] = room->waiting[--room->n_waiting];
}
