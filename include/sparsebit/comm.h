/* comm.h - many processes that work as one: ranks.
 * Part of sparsebit.h, whose rules hold.
 *
 * A program that runs as one of several processes gives its context an sb_comm,
 * which moves bytes between them (MPI, or whatever it has).  From then on
 * training steps and sharing of calibrations are done by all ranks together:
 * each makes the same calls in the same order, each on its part of the samples,
 * and all get the same result.
 *
 * What is added up is added in the order of ranks, so that a result can be
 * repeated whatever algorithm moves the bytes.  Every call below tells all
 * ranks whether one of them has failed: then it fails on all of them, with the
 * message of that rank. */
#ifndef SPARSEBIT_COMM_H
#define SPARSEBIT_COMM_H

#include <sparsebit/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes that a function of an sb_comm is given at most, for each rank. */
#define SB_COMM_BYTES ((size_t)1 << 26)

/** How bytes go from rank to rank.  Functions are called on the thread of the
 *  call on the context, by all ranks in the same order, and return 0, or
 *  anything else if the others cannot be reached. */
typedef struct sb_comm {
    size_t struct_size; /**< set by the INIT macro */
    void *user;
    int rank, size; /**< this one, from 0 on; how many there are */
    /** From every rank `bytes` to every rank: all[r * bytes ...] is that of
     *  rank r. */
    int (*gather)(void *user, const void *mine, void *all, size_t bytes);
    /** From every rank other `bytes` to each: what it has at `to` + r * bytes
     *  goes to rank r, where it is put at `from` + its own rank * bytes. */
    int (*exchange)(void *user, const void *to, void *from, size_t bytes);
    /** From rank `root` to all others. */
    int (*broadcast)(void *user, void *data, size_t bytes, int root);
    /** (optional) Ends it; for the program, the library does not call it. */
    void (*close)(void *user);
    /** (optional) From rank to rank, both ways at the same time: sends `bytes`
     *  to rank `to`, and receives `other_bytes` from rank `from`; -1: does not.
     *  All ranks call it, also those that do neither.  Only training in a
     *  pipeline needs it. */
    int (*send_receive)(void *user, const void *mine, size_t bytes, int to,
                        void *other, size_t other_bytes, int from);
} sb_comm;

#define SB_COMM_INIT                                              \
    {                                                             \
        sizeof(sb_comm), NULL, 0, 1, NULL, NULL, NULL, NULL, NULL \
    }

/** What a shared object that the command loads has under the name
 *  `sparsebit_comm_open`: it fills in *out (which comes as SB_COMM_INIT makes
 *  it) and returns 0, or writes one line of at most `size` bytes to `error`. */
typedef int (*sb_comm_open_fn)(sb_comm *out, char *error, size_t size);

/** Makes the context one of several ranks.
 *  @param comm copied; NULL: alone, as at first
 *  @return SB_BAD_ARG for a rank out of range, or functions that are missing */
SB_API SB_MUST_USE sb_status sb_ctx_set_comm(sb_ctx *ctx, const sb_comm *comm);
/** Which rank this is; 0 if it is alone. */
SB_API int sb_ctx_rank(const sb_ctx *ctx);
/** How many ranks there are; 1 if it is alone. */
SB_API int sb_ctx_ranks(const sb_ctx *ctx);

/** Adds up the numbers of all ranks, place by place, in the order of ranks and
 *  in double precision; all get the same. */
SB_API SB_MUST_USE sb_status sb_comm_sum_f32(sb_ctx *ctx, float *x, size_t n);
/** The same for doubles. */
SB_API SB_MUST_USE sb_status sb_comm_sum_f64(sb_ctx *ctx, double *x, size_t n);
/** The bytes of all ranks, as many as each wants to give, one after another.
 *  @param sizes receives how many of each rank, `sb_ctx_ranks()` numbers
 *  @param all   freed with sb_memory_free() */
SB_API SB_MUST_USE sb_status sb_comm_gather(sb_ctx *ctx, const void *mine,
                                            size_t bytes, size_t *sizes,
                                            void **all);
/** Gives all ranks the bytes of rank `root`; the number is the same on all. */
SB_API SB_MUST_USE sb_status sb_comm_broadcast(sb_ctx *ctx, void *data,
                                               size_t bytes, int root);
/** From rank to rank: gives `bytes` to rank `to` and takes what rank `from`
 *  gives to this one; -1: none.  Called by all ranks together, also by those
 *  that do neither.
 *  @param other       receives what was taken, freed with sb_memory_free();
 *                     NULL if it is nothing
 *  @param other_bytes receives how many
 *  @return SB_UNSUPPORTED if the sb_comm has no send_receive */
SB_API SB_MUST_USE sb_status sb_comm_send_receive(sb_ctx *ctx, const void *mine,
                                                  size_t bytes, int to,
                                                  int from, void **other,
                                                  size_t *other_bytes);
/** Waits until all ranks are here. */
SB_API SB_MUST_USE sb_status sb_comm_barrier(sb_ctx *ctx);

/** Tells the other ranks, in the next call that they make together, that this
 *  one has failed with what sb_ctx_error() says, and waits until they know.
 *  For a program that ends; after this, or after such a call has failed, the
 *  ranks do nothing together any more. */
SB_API void sb_comm_give_up(sb_ctx *ctx);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_COMM_H */
