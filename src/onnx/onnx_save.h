/* onnx_save.h - what the parts of the writer share. */
#ifndef SB_ONNX_SAVE_H
#define SB_ONNX_SAVE_H

#include "base/file.h"
#include "graph/graph.h"
#include "onnx/wire.h"

typedef struct sb_onnx_saver {
    sb_ctx *ctx;
    sb_arena arena; /* the message; tensor data is pointed at, not copied */
    const sb_graph *root;
    sb_writer *data;       /* external data, or NULL: all in one file */
    const char *data_name; /* as the tensors refer to it */
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

#endif
