/* base.h - what every part of the interface needs: statuses, the context,
 * tensors, lists of what there is.  Part of sparsebit.h, whose rules hold. */
#ifndef SPARSEBIT_BASE_H
#define SPARSEBIT_BASE_H

#include <stddef.h>
#include <stdint.h>

#include <sparsebit/export.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_ctx sb_ctx;         /* allocator, threads, last error */
typedef struct sb_model sb_model;     /* one ONNX network */
typedef struct sb_session sb_session; /* a model made ready to run */
typedef struct sb_tensor sb_tensor;   /* an array of elements */
typedef struct sb_data sb_data;       /* samples to run a model on */
typedef struct sb_quant_model sb_quant_model; /* a model being quantized */

/* ---- status ------------------------------------------------------------- */

/* clang-format off */
#define SB_STATUS_MAP(X)                                                       \
    X(OK,          "success")                                                  \
    X(NO_MEMORY,   "out of memory")                                            \
    X(BAD_ARG,     "the caller passed an invalid argument")                    \
    X(BAD_MODEL,   "the ONNX file breaks its own specification")               \
    X(BAD_CONFIG,  "the configuration is not valid")                           \
    X(BAD_DATA,    "the data does not fit")                                    \
    X(UNSUPPORTED, "valid, but this version cannot do it")                     \
    X(IO,          "a file could not be read or written")                      \
    X(BACKEND,     "a oneDNN call failed")                                     \
    X(INTERRUPTED, "interrupted")
/* clang-format on */

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
 *  Data sets with decoding threads call them from those threads as well. */
typedef struct sb_allocator {
    void *user;
    void *(*resize)(void *user, void *ptr, size_t size);
    void (*free)(void *user, void *ptr);
} sb_allocator;

/** Receives warnings, one line each, without newline. */
typedef void (*sb_log_fn)(void *user, const char *line);

/** @param alloc NULL for malloc; copied */
SB_API SB_MUST_USE sb_status sb_ctx_create(const sb_allocator *alloc,
                                           sb_ctx **out);
/** Frees a context after everything made with it; NULL is allowed. */
SB_API void sb_ctx_free(sb_ctx *ctx);
/** Why the last call on `ctx` failed; never NULL; valid until the next one. */
SB_API const char *sb_ctx_error(const sb_ctx *ctx);
SB_API void sb_ctx_set_log(sb_ctx *ctx, sb_log_fn log, void *user);
/** Threads to use; 0 means one per core.  Results do not depend on it. */
SB_API void sb_ctx_set_threads(sb_ctx *ctx, int n_threads);
SB_API int sb_ctx_threads(const sb_ctx *ctx);
/** Makes the running call (and later ones) return SB_INTERRUPTED soon.
 *  Signal handlers need a stack of their own (SA_ONSTACK) on threads that
 *  compute, or better a thread that waits for signals: oneDNN's kernels do not
 *  keep the stack pointer where a handler could use it. */
SB_API void sb_ctx_interrupt(sb_ctx *ctx);
/** "0.1.0" */
SB_API const char *sb_version(void);

/** Bytes of the UTF-8 character at the start of `text`; 0 if there is none.
 *  Names come from files as they are, and may be anything. */
SB_API size_t sb_utf8_length(const char *text, size_t size);

/* ---- tensors ------------------------------------------------------------ */

/** Element types; the numbers are ONNX's. */
typedef enum sb_dtype {
    SB_DTYPE_NONE = 0,
    SB_DTYPE_F32 = 1,
    SB_DTYPE_U8 = 2,
    SB_DTYPE_I8 = 3,
    SB_DTYPE_U16 = 4,
    SB_DTYPE_I16 = 5,
    SB_DTYPE_I32 = 6,
    SB_DTYPE_I64 = 7,
    SB_DTYPE_STRING = 8,
    SB_DTYPE_BOOL = 9,
    SB_DTYPE_F16 = 10,
    SB_DTYPE_F64 = 11,
    SB_DTYPE_U32 = 12,
    SB_DTYPE_U64 = 13,
    SB_DTYPE_C64 = 14,
    SB_DTYPE_C128 = 15,
    SB_DTYPE_BF16 = 16,
    SB_DTYPE_F8E4M3FN = 17,
    SB_DTYPE_F8E4M3FNUZ = 18,
    SB_DTYPE_F8E5M2 = 19,
    SB_DTYPE_F8E5M2FNUZ = 20,
    SB_DTYPE_U4 = 21,
    SB_DTYPE_I4 = 22,
    SB_DTYPE_F4E2M1 = 23,
    SB_DTYPE_F8E8M0 = 24,
    SB_DTYPE_U2 = 25,
    SB_DTYPE_I2 = 26,
    SB_DTYPE_COUNT
} sb_dtype;

/** "float", "int8", ... as ONNX writes them. */
SB_API const char *sb_dtype_name(sb_dtype dtype);
/** Bits of an element: 4 for SB_DTYPE_I4; 0 for strings. */
SB_API int sb_dtype_bits(sb_dtype dtype);

/** A new zeroed tensor; rank at most 12. */
SB_API SB_MUST_USE sb_status sb_tensor_create(sb_ctx *ctx, sb_dtype dtype,
                                              int rank, const int64_t *dims,
                                              sb_tensor **out);
SB_API void sb_tensor_free(sb_ctx *ctx, sb_tensor *tensor);
SB_API sb_dtype sb_tensor_dtype(const sb_tensor *tensor);
SB_API int sb_tensor_rank(const sb_tensor *tensor);
SB_API const int64_t *sb_tensor_dims(const sb_tensor *tensor);
SB_API int64_t sb_tensor_elements(const sb_tensor *tensor);
SB_API size_t sb_tensor_size(const sb_tensor *tensor);
/** Row-major elements, aligned to 64 bytes unless mapped from a file. */
SB_API void *sb_tensor_data(const sb_tensor *tensor);
/** Reads a .npy file, or `ARCHIVE.npz:NAME` (the only array if no name). */
SB_API SB_MUST_USE sb_status sb_tensor_load(sb_ctx *ctx, const char *path,
                                            sb_tensor **out);
/** A copy for an input of type `dtype`: any number becomes a float of any
 *  width, an integer another one that holds it; what cannot keeps its type. */
SB_API SB_MUST_USE sb_status sb_tensor_fit(sb_ctx *ctx, const sb_tensor *tensor,
                                           sb_dtype dtype, sb_tensor **out);
/** Writes a .npy file. */
SB_API SB_MUST_USE sb_status sb_tensor_save(sb_ctx *ctx, const char *path,
                                            const sb_tensor *tensor);
/** Fills with numbers that depend only on the seed: floats normal(0, 1),
 *  integers 0 or 1. */
SB_API void sb_tensor_fill_random(sb_tensor *tensor, uint64_t seed);
/** Writes several tensors as one .npz archive. */
SB_API SB_MUST_USE sb_status
sb_tensors_save_npz(sb_ctx *ctx, const char *path, const char *const *names,
                    const sb_tensor *const *tensors, size_t n);

/* ---- registries --------------------------------------------------------- */

typedef struct sb_listing {
    const char *name;
    const char *domain;  /**< of an operator; "" for ai.onnx and passes */
    const char *summary; /**< of a pass or target; "" for operators */
    int since;           /**< of an operator: opset of the form that we run */
} sb_listing;

/** Row `i` of the list "ops", "passes", "observers", "quantizers", "sources" or
 *  "targets"; 0 past the end, or if there is no such list.  The texts are
 *  static. */
SB_API int sb_list_row(const char *what, size_t i, sb_listing *out);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_BASE_H */
