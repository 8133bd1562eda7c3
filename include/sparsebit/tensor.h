/* tensor.h - element types and tensors.  Part of sparsebit.h, whose rules hold,
 * with one exception: a tensor is memory and belongs to no thread; functions on
 * objects of any context may read it while nothing changes it. */
#ifndef SPARSEBIT_TENSOR_H
#define SPARSEBIT_TENSOR_H

#include <sparsebit/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_tensor sb_tensor; /* an array of elements */

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
    SB_DTYPE_COUNT,
    SB_DTYPE_SEQUENCE = 100 /**< no elements but a list of tensors; not ONNX's
                                 number.  See sb_sequence_length(). */
} sb_dtype;

/** "float", "int8", ... as ONNX writes them; "undefined" for other numbers. */
SB_API const char *sb_dtype_name(sb_dtype dtype);
/** Bits of an element: 4 for SB_DTYPE_I4; 0 for strings. */
SB_API int sb_dtype_bits(sb_dtype dtype);

/** The most dimensions that a tensor has. */
#define SB_RANK_MAX 12

/** A new zeroed tensor; strings are empty.  Its elements are packed: two of 4
 *  bits, the first in the low half, make a byte. */
SB_API SB_MUST_USE sb_status sb_tensor_create(sb_ctx *ctx, sb_dtype dtype,
                                              int rank, const int64_t *dims,
                                              sb_tensor **out);
/** Frees a tensor that the caller owns; NULL is allowed. */
SB_API void sb_tensor_free(sb_tensor *tensor);
/** A tensor in memory of the caller, which is not copied.
 *
 *  `data` holds the elements in row-major order and must stay until `release`
 *  is called (or, without it, until sb_tensor_free()).  Inputs that are not
 *  aligned to 64 bytes are copied once in each run.  Not for strings.
 *  @param release NULL, or called with `user` when the last reference is gone;
 *                 not called if this function fails */
SB_API SB_MUST_USE sb_status sb_tensor_wrap(sb_ctx *ctx, sb_dtype dtype,
                                            int rank, const int64_t *dims,
                                            void *data,
                                            void (*release)(void *user),
                                            void *user, sb_tensor **out);
/** A copy with memory of its own, e.g. of a borrowed output. */
SB_API SB_MUST_USE sb_status sb_tensor_copy(sb_ctx *ctx,
                                            const sb_tensor *tensor,
                                            sb_tensor **out);
/** A tensor of strings, which are copied.
 *  @param strings one for each element, each ended by NUL */
SB_API SB_MUST_USE sb_status
sb_tensor_create_strings(sb_ctx *ctx, int rank, const int64_t *dims,
                         const char *const *strings, sb_tensor **out);

/** Type of the elements. */
SB_API sb_dtype sb_tensor_dtype(const sb_tensor *tensor);
/** Number of dimensions. */
SB_API int sb_tensor_rank(const sb_tensor *tensor);
/** The dimensions, sb_tensor_rank() of them. */
SB_API const int64_t *sb_tensor_dims(const sb_tensor *tensor);
/** Number of elements. */
SB_API int64_t sb_tensor_elements(const sb_tensor *tensor);
/** Bytes of the elements. */
SB_API size_t sb_tensor_size(const sb_tensor *tensor);
/** The elements in row-major order, aligned to 64 bytes unless the tensor came
 *  from a file or from sb_tensor_wrap().  NULL for strings, which are read with
 *  sb_tensor_string(), and for sequences. */
SB_API const void *sb_tensor_data(const sb_tensor *tensor);
/** The same, to write to; only of tensors that the caller owns. */
SB_API void *sb_tensor_data_mutable(sb_tensor *tensor);
/** Element `i` of a tensor of strings, ended by NUL; NULL out of range or if
 *  the elements are not strings.
 *  @param len receives its bytes, NULs inside included; may be NULL */
SB_API const char *sb_tensor_string(const sb_tensor *tensor, int64_t i,
                                    size_t *len);
/** Elements [first, first + n) of any number type as doubles, converted as ONNX
 *  Cast does.
 *  @return 0, with nothing written, out of range or if they are no numbers
 *          (strings, complex) */
SB_API int sb_tensor_read_f64(const sb_tensor *tensor, int64_t first, int64_t n,
                              double *out);
/** The same as 64-bit integers. */
SB_API int sb_tensor_read_i64(const sb_tensor *tensor, int64_t first, int64_t n,
                              int64_t *out);
/** Sets elements [first, first + n), converted as ONNX Cast does.
 *  @return as sb_tensor_read_f64() */
SB_API int sb_tensor_write_f64(sb_tensor *tensor, int64_t first, int64_t n,
                               const double *values);
/** The same from 64-bit integers. */
SB_API int sb_tensor_write_i64(sb_tensor *tensor, int64_t first, int64_t n,
                               const int64_t *values);
/** A copy for an input of type `dtype`: any number becomes a float of any
 *  width, an integer another one that holds it; what cannot keeps its type. */
SB_API SB_MUST_USE sb_status sb_tensor_cast(sb_ctx *ctx,
                                            const sb_tensor *tensor,
                                            sb_dtype dtype, sb_tensor **out);

/** How many tensors a sequence holds, as models with sequences take and give
 *  them; -1 if the tensor is not a sequence. */
SB_API int64_t sb_sequence_length(const sb_tensor *tensor);
/** A copy of tensor `i` of a sequence. */
SB_API SB_MUST_USE sb_status sb_sequence_at(sb_ctx *ctx,
                                            const sb_tensor *tensor, int64_t i,
                                            sb_tensor **out);
/** A sequence of tensors of one type, whatever their shapes, which are copied;
 *  not for strings. */
SB_API SB_MUST_USE sb_status
sb_sequence_create(sb_ctx *ctx, sb_dtype dtype,
                   const sb_tensor *const *elements, size_t n, sb_tensor **out);

/** Reads a .npy file, or `ARCHIVE.npz:NAME` (the only array if no name). */
SB_API SB_MUST_USE sb_status sb_tensor_load(sb_ctx *ctx, const char *path,
                                            sb_tensor **out);
/** Writes a .npy file. */
SB_API SB_MUST_USE sb_status sb_tensor_save(sb_ctx *ctx, const char *path,
                                            const sb_tensor *tensor);
/** Writes several tensors as one .npz archive. */
SB_API SB_MUST_USE sb_status
sb_tensors_save_npz(sb_ctx *ctx, const char *path, const char *const *names,
                    const sb_tensor *const *tensors, size_t n);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_TENSOR_H */
