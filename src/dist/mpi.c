/* Ranks by MPI: a module that the command loads when mpirun has started it, so
 * that neither it nor the library depends on MPI.
 *
 * The collectives do not block: MPI's own waiting spins, which takes the core
 * of a rank that still computes wherever there are more threads than cores.
 * Here a rank looks again and again, more and more seldom. */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include <sparsebit/comm.h>

enum {
    LOOKS = 200,       /* without a pause: data is on its way */
    YIELDS = 1000,     /* others may run in between */
    PAUSE_NS = 200000, /* then a sleep, which takes nothing from others */
};

static int mpi_wait(MPI_Request *request)
{
    int done = 0;

    for (int looks = 0;; looks++) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return 1;
        if (done)
            return 0;
        if (looks >= YIELDS)
            (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        else if (looks >= LOOKS)
            (void)sched_yield();
    }
}

static int mpi_gather(void *user, const void *mine, void *all, size_t bytes)
{
    MPI_Request request;

    (void)user;
    return MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                          MPI_COMM_WORLD, &request) != MPI_SUCCESS ||
           mpi_wait(&request) != 0;
}

static int mpi_exchange(void *user, const void *to, void *from, size_t bytes)
{
    MPI_Request request;

    (void)user;
    return MPI_Ialltoall(to, (int)bytes, MPI_BYTE, from, (int)bytes, MPI_BYTE,
                         MPI_COMM_WORLD, &request) != MPI_SUCCESS ||
           mpi_wait(&request) != 0;
}

static int mpi_broadcast(void *user, void *data, size_t bytes, int root)
{
    MPI_Request request;

    (void)user;
    return MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD,
                      &request) != MPI_SUCCESS ||
           mpi_wait(&request) != 0;
}

static int mpi_send_receive(void *user, const void *mine, size_t bytes, int to,
                            void *other, size_t other_bytes, int from)
{
    MPI_Request sent = MPI_REQUEST_NULL, received = MPI_REQUEST_NULL;

    (void)user;
    if (from >= 0 && MPI_Irecv(other, (int)other_bytes, MPI_BYTE, from, 0,
                               MPI_COMM_WORLD, &received) != MPI_SUCCESS)
        return 1;
    if (to >= 0 && MPI_Isend(mine, (int)bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD,
                             &sent) != MPI_SUCCESS)
        return 1;
    return mpi_wait(&received) != 0 || mpi_wait(&sent) != 0;
}

static void mpi_close(void *user)
{
    (void)user;
    (void)MPI_Finalize();
}

static int mpi_fail(const char *what, int code, char *error, size_t size)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    (void)MPI_Error_string(code, text, &length);
    (void)snprintf(error, size, "MPI: %s: %s", what, text);
    return 1;
}

int sparsebit_comm_open(sb_comm *out, char *error, size_t size);

__attribute__((visibility("default"))) int
sparsebit_comm_open(sb_comm *out, char *error, size_t size)
{
    int level = 0, code;

    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS)
        return mpi_fail("cannot start", code, error, size);
    /* An error ends all ranks, as MPI does by itself: one that went on alone
     * would wait for the others in MPI_Finalize() for ever. */
    code = MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(MPI_COMM_WORLD, &out->size);
    if (code != MPI_SUCCESS)
        return mpi_fail("which rank this is", code, error, size);
    out->gather = mpi_gather;
    out->exchange = mpi_exchange;
    out->broadcast = mpi_broadcast;
    out->close = mpi_close;
    out->send_receive = mpi_send_receive;
    return 0;
}
