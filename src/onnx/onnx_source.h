/* onnx_source.h - where the bytes of a model lie: its own file, and the files
 * of external tensor data beside it, each mapped once and shared. */
#ifndef SB_ONNX_ONNX_SOURCE_H
#define SB_ONNX_ONNX_SOURCE_H

#include "base/file.h"
#include "tensor/tensor.h"

typedef struct sb_source_file {
    char *path; /* resolved: no links, no `..` */
    sb_buf *buf;
} sb_source_file;

typedef struct sb_onnx_source {
    sb_ctx *ctx;
    const char
        *what; /* for messages: the path, or a name given by the caller */
    const char *path; /* NULL: from memory, so nothing lies beside it */
    sb_buf *buf;      /* the model itself */
    char *folder;     /* resolved; set with the first external tensor */
    sb_source_file *files;
    size_t n_files, cap_files;
} sb_onnx_source;

/* Maps a file.  Close the source even if this fails. */
SB_MUST_USE sb_status sb_source_open(sb_onnx_source *src, sb_ctx *ctx,
                                     const char *path);
/* Copies a model from memory, to an aligned place. */
SB_MUST_USE sb_status sb_source_copy(sb_onnx_source *src, sb_ctx *ctx,
                                     const char *what, const void *data,
                                     size_t size);
/* Drops the source's own references; tensors keep theirs. */
void sb_source_close(sb_onnx_source *src);

/* The mapped file called `location` by the tensor `tensor`.  Borrowed.
 * Refused (SB_BAD_MODEL): absolute paths, and paths that leave the folder of
 * the model, by `..` or by a link. */
SB_MUST_USE sb_status sb_source_external(sb_onnx_source *src,
                                         const char *tensor,
                                         const char *location, sb_buf **out);

#endif
