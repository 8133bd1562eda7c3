/* onnx_save.h - what the parts of the writer share. */
#ifndef SB_ONNX_ONNX_SAVE_H
#define SB_ONNX_ONNX_SAVE_H

#include "base/file.h"
#include "base/str.h"
#include "graph/graph.h"
#include "onnx/wire.h"

typedef struct sb_onnx_saver {
    sb_ctx *ctx;
    sb_arena arena; /* the message; tensor data is pointed at, not copied */
    const sb_graph *root;
    sb_writer *data; /* external data, or NULL: all in one file */
    char *data_path; /* its end is what the tensors call it; the digits of the
                        hash come when the data is complete */
    uint64_t data_hash;
} sb_onnx_saver;

/* protobuf-c has no const; it only reads what it packs. */
char *sb_onnx_text(const char *text);

/* ---- onnx_save_graph.c -------------------------------------------------- */
SB_MUST_USE sb_status sb_onnx_write_graph(sb_onnx_saver *s, Pb__Graph **out);
SB_MUST_USE sb_status sb_onnx_write_props(sb_onnx_saver *s,
                                          const sb_prop *props, size_t n,
                                          Pb__Prop ***out);

/* ---- onnx_save_tensor.c ------------------------------------------------- */
/* The elements stay where they are, or go to the external file. */
SB_MUST_USE sb_status sb_onnx_write_tensor(sb_onnx_saver *s, const char *name,
                                           const sb_tensor *t,
                                           Pb__Tensor **out);
/* Does a file get smaller if only the elements that are not zero are written,
 * with their places? */
bool sb_onnx_sparse_pays(const sb_tensor *t);
SB_MUST_USE sb_status sb_onnx_write_sparse(sb_onnx_saver *s, const char *name,
                                           const sb_tensor *t,
                                           Pb__SparseTensor **out);

/* ---- onnx_save_data.c --------------------------------------------------- */
/* Opens the file of external data for the model `path`. */
SB_MUST_USE sb_status sb_onnx_data_open(sb_onnx_saver *s, const char *path);
void sb_onnx_data_put(sb_onnx_saver *s, const void *data, size_t size);
/* What the tensors call it; the text changes when it is complete. */
const char *sb_onnx_data_name(const sb_onnx_saver *s);
/* All bytes are there: gives it its name, under which it appears when it is
 * committed. */
SB_MUST_USE sb_status sb_onnx_data_finish(sb_onnx_saver *s);

/* Files of data that the model at `path` refers to and that are called after
 * it, as separate texts with a NUL each and one more at the end. */
SB_MUST_USE sb_status sb_onnx_data_old(sb_onnx_saver *s, const char *path,
                                       sb_str *out);
/* Removes them, but for the one that was just written. */
void sb_onnx_data_remove(const sb_onnx_saver *s, const char *path,
                         const sb_str *old);

#endif
