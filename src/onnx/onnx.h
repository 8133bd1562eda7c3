/* onnx.h - reading and writing ONNX files. */
#ifndef SB_ONNX_ONNX_H
#define SB_ONNX_ONNX_H

#include "graph/graph.h"

/* Loads, verifies, inlines functions, upgrades the main domain to
 * SB_CANONICAL_OPSET.  Constant nodes become constants.  Shapes are not
 * inferred.  The file stays mapped while any weight points into it. */
SB_MUST_USE sb_status sb_onnx_load(sb_ctx *ctx, const char *path,
                                   sb_graph **out);
/* From memory (copied); external data is refused; `what` names it in errors. */
SB_MUST_USE sb_status sb_onnx_load_memory(sb_ctx *ctx, const char *what,
                                          const void *data, size_t size,
                                          sb_graph **out);

typedef struct sb_onnx_save_options {
    /* Lowest opset that can hold the graph (sb_graph_min_opset() knows); the
     * file gets this or the opset it was loaded with, whichever is higher. */
    int64_t min_opset;
    uint64_t external_above; /* move weights to `<path>.data` if they sum to
                                more; 0 for the default of about 2 GB */
} sb_onnx_save_options;

SB_MUST_USE sb_status sb_onnx_save(const sb_graph *graph, const char *path,
                                   const sb_onnx_save_options *opt);

/* A TensorProto file (.pb), as the conformance suite has them. */
SB_MUST_USE sb_status sb_onnx_load_tensor(sb_ctx *ctx, const char *path,
                                          sb_tensor *out);

#endif
