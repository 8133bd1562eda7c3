/* npy.h - NumPy's .npy and .npz files. */
#ifndef SB_TENSOR_NPY_H
#define SB_TENSOR_NPY_H

#include "base/file.h"
#include "tensor/tensor.h"

/* Reads one array that the caller of the library named, also from a pipe.  The
 * elements stay in the mapped file where alignment and byte order allow.
 * Fortran order and big-endian are converted. */
SB_MUST_USE sb_status sb_npy_load(sb_ctx *ctx, const char *path,
                                  sb_tensor *out);
/* The same for an array of a data file, from a regular file, that is never
 * written to: sb_tensor_release_pages() may give its memory back, since it can
 * be read again. */
SB_MUST_USE sb_status sb_npy_load_const(sb_ctx *ctx, const char *path,
                                        sb_tensor *out);
/* Parses an array from memory, copying the elements; `what` names it. */
SB_MUST_USE sb_status sb_npy_parse(sb_ctx *ctx, const char *what,
                                   const void *data, size_t size,
                                   sb_tensor *out);
/* Types that NumPy lacks are widened: bfloat16 and small floats to float32,
 * int4 to int8. */
SB_MUST_USE sb_status sb_npy_save(sb_ctx *ctx, const char *path,
                                  const sb_tensor *t);

/* One array of an archive; free with sb_npz_free. */
typedef struct sb_npz_item {
    char *name; /* without .npy */
    sb_tensor tensor;
} sb_npz_item;

/* All arrays of an archive that a data file names. */
SB_MUST_USE sb_status sb_npz_load(sb_ctx *ctx, const char *path,
                                  sb_npz_item **items, size_t *count);
/* One array of an archive that the caller named: the one of that name, or the
 * only one if `name` is NULL. */
SB_MUST_USE sb_status sb_npz_load_one(sb_ctx *ctx, const char *path,
                                      const char *name, sb_tensor *out);
void sb_npz_free(sb_ctx *ctx, sb_npz_item *items, size_t count);
/* Writes stored (not compressed) members, as numpy.savez does. */
SB_MUST_USE sb_status sb_npz_save(sb_ctx *ctx, const char *path,
                                  const sb_npz_item *items, size_t count);

#endif
