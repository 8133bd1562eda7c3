/* base.h - what every part of the interface needs: statuses and the context.
 * Part of sparsebit.h, whose rules hold. */
#ifndef SPARSEBIT_BASE_H
#define SPARSEBIT_BASE_H

#include <stddef.h>
#include <stdint.h>

#include <sparsebit/export.h>
#include <sparsebit/version.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_ctx sb_ctx; /* allocator, threads, callbacks, last error */

/* ---- status ------------------------------------------------------------- */

/* clang-format off */
#define SB_STATUS_MAP(X)                                                       \
    X(OK,          "success")                                                  \
    X(NO_MEMORY,   "out of memory")                                            \
    X(BAD_ARG,     "invalid argument")                                         \
    X(BAD_MODEL,   "invalid ONNX model")                                       \
    X(BAD_CONFIG,  "invalid configuration")                                    \
    X(BAD_DATA,    "data does not match the model")                            \
    X(UNSUPPORTED, "not supported by this version")                            \
    X(IO,          "cannot read or write a file")                              \
    X(BACKEND,     "a oneDNN call failed")                                     \
    X(INTERRUPTED, "interrupted")
/* clang-format on */

/** The result of a call: SB_OK, SB_NO_MEMORY, ...  Numbers never change; new
 *  ones are added at the end. */
typedef enum sb_status {
#define X(name, text) SB_##name,
    SB_STATUS_MAP(X)
#undef X
        SB_STATUS_COUNT
} sb_status;

/** What a status means in general. */
SB_API const char *sb_status_text(sb_status status);

/* ---- context ------------------------------------------------------------ */

/** Memory hooks.  `resize` is realloc (NULL pointer: malloc), `free` is free.
 *  Data sets with decoding threads call them from those threads as well.
 *
 *  Not from the hooks comes: what oneDNN, libyaml and libjpeg allocate inside
 *  their calls, the stacks of threads, and files that are mapped.  zlib, libpng
 *  and protobuf-c use the hooks. */
typedef struct sb_allocator {
    size_t struct_size; /**< set by the INIT macro */
    void *user;
    void *(*resize)(void *user, void *ptr, size_t size);
    void (*free)(void *user, void *ptr);
} sb_allocator;

#define SB_ALLOCATOR_INIT                      \
    {                                          \
        sizeof(sb_allocator), NULL, NULL, NULL \
    }

/** A new context.
 *  @param alloc NULL for malloc and free; copied
 *  @return SB_NO_MEMORY, or SB_BAD_ARG for an allocator without functions */
SB_API SB_MUST_USE sb_status sb_ctx_create(const sb_allocator *alloc,
                                           sb_ctx **out);
/** Frees a context, after everything that was made with it and after clones of
 *  its models in other contexts; NULL is allowed. */
SB_API void sb_ctx_free(sb_ctx *ctx);
/** Why the last failed call on `ctx` failed, in one line; never NULL, also if
 *  `ctx` is.  Valid until the next failure. */
SB_API const char *sb_ctx_error(const sb_ctx *ctx);
/** The status of the last failed call; SB_OK if none has failed yet. */
SB_API sb_status sb_ctx_status(const sb_ctx *ctx);

/** How much a line of the log matters. */
typedef enum sb_log_level {
    SB_LOG_LEVEL_INFO = 1,    /**< what was asked for, e.g. a dumped graph */
    SB_LOG_LEVEL_WARNING = 2, /**< the result may not be what was meant */
} sb_log_level;

/** Receives the log, one line at a time, without newline.  Called on the thread
 *  that made the call, never on threads of the library. */
typedef void (*sb_log_fn)(void *user, sb_log_level level, const char *line);

/** Where the log goes; NULL (the default): discarded. */
SB_API void sb_ctx_set_log(sb_ctx *ctx, sb_log_fn log, void *user);

/** Says how far a long call has come, and can end it.  Called on the thread
 *  that made the call, at least once in each of its steps; it must not call
 *  functions on objects of the context.
 *  @param stage what is being done: "load", "passes", "prepare", "calibrate",
 *               "scales", "export", "save"; more may be added
 *  @param total 0 if not known beforehand
 *  @return 0 to go on; anything else ends the call with SB_INTERRUPTED */
typedef int (*sb_progress_fn)(void *user, const char *stage, size_t done,
                              size_t total);

/** Sets the progress callback of every long call on the context: loading,
 *  saving, simplifying, creating and running sessions, calibrating, computing
 *  scales, exporting.  NULL (the default): no callback. */
SB_API void sb_ctx_set_progress(sb_ctx *ctx, sb_progress_fn progress,
                                void *user);

/** Most memory that everything made with the context may have at a time, in
 *  bytes; a call that would need more fails with SB_NO_MEMORY and says which
 *  node or file wanted how much.  Counted is what comes from the hooks, and
 *  tables of which only a part is used as a whole; not counted is what the
 *  comment of sb_allocator excepts.  0 (as at first): the memory and swap space
 *  of the machine, or of the control group that the process runs in.  SIZE_MAX:
 *  no limit. */
SB_API void sb_ctx_set_max_memory(sb_ctx *ctx, size_t bytes);
/** Bytes that everything made with the context has at the moment. */
SB_API size_t sb_ctx_memory(const sb_ctx *ctx);

/** Whether files are read into memory instead of being mapped; 0 at first.
 *  Models, their data files and arrays of more than a megabyte are mapped while
 *  they are in use: that is quick and takes little memory, but the system ends
 *  the process with SIGBUS if such a file is made shorter meanwhile, for
 *  example by copying another one over it (renaming one over it is harmless).
 *  A file that is read takes memory of its size, and one that shrinks is SB_IO.
 */
SB_API void sb_ctx_set_copy_files(sb_ctx *ctx, int on);

/** Threads to use; 0 means one per core.  Results do not depend on it. */
SB_API void sb_ctx_set_threads(sb_ctx *ctx, int n_threads);
/** How many threads are used. */
SB_API int sb_ctx_threads(const sb_ctx *ctx);

/** Makes the running call, and all later ones that take long, return
 *  SB_INTERRUPTED soon, until sb_ctx_clear_interrupt().  Runs look for it every
 *  few milliseconds, also inside of operators, files that are written every 16
 *  MB; what cannot be cut is a call of oneDNN (some transposed convolutions)
 *  and operators that move elements on one thread, some seconds for each GB.
 *  May be called from any thread and from signal handlers.  Those need a stack
 *  of their own (SA_ONSTACK) on threads that compute, or better a thread for
 *  signals: oneDNN's kernels do not keep the stack pointer where a handler
 *  could use it. */
SB_API void sb_ctx_interrupt(sb_ctx *ctx);
/** Calls work again.  Objects whose call was interrupted stay valid: what a
 *  call would have changed is as it was before, or as its comment says. */
SB_API void sb_ctx_clear_interrupt(sb_ctx *ctx);

/** Frees text or bytes that a function handed over through an out parameter of
 *  type char ** or void **; NULL is allowed. */
SB_API void sb_memory_free(void *memory);

/* ---- lists -------------------------------------------------------------- */

/** An entry of sb_list_get(). */
typedef struct sb_listing {
    const char *name;
    const char *domain;  /**< of an operator; "" for ai.onnx and passes */
    const char *summary; /**< of an operator: what gradient it has */
    int since;           /**< of an operator: opset of the form that is run */
} sb_listing;

/** Entry `i` of the list "nets", "ops", "passes", "observers", "quantizers",
 *  "sources", "stages" or "targets"; NULL past the end, or if there is no such
 *  list.  What plug-ins have added to the context comes last.  Valid until the
 *  next call. */
SB_API const sb_listing *sb_list_get(sb_ctx *ctx, const char *list, size_t i);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_BASE_H */
