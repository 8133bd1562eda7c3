/* onnx.h - reading and writing ONNX files. */
#ifndef SB_ONNX_ONNX_H
#define SB_ONNX_ONNX_H

#include "graph/graph.h"

/* Loads, verifies, inlines functions, upgrades the main domain to
 * SB_CANONICAL_OPSET.  Constant nodes become constants.  Shapes are not
 * inferred.  The file stays mapped while any weight points into it. */
SB_MUST_USE sb_status sb_onnx_load(sb_ctx *ctx, const char *path,
                                   sb_graph **out);
/* The same, with what a caller may want otherwise. */
typedef struct sb_onnx_load_options {
    /* Inputs that have an initializer stay inputs, with a default; by default
     * they are constants and no inputs. */
    bool keep_inputs;
} sb_onnx_load_options;
SB_MUST_USE sb_status sb_onnx_load_with(sb_ctx *ctx, const char *path,
                                        const sb_onnx_load_options *opt,
                                        sb_graph **out);
/* From memory (copied); external data is looked up in `folder`, or refused if
 * that is NULL; `what` names it in errors. */
SB_MUST_USE sb_status sb_onnx_load_memory(sb_ctx *ctx, const char *what,
                                          const char *folder, const void *data,
                                          size_t size, sb_graph **out);

typedef struct sb_onnx_save_options {
    /* Lowest opset that can hold the graph (sb_graph_min_opset() knows); the
     * file gets this or the opset it was loaded with, whichever is higher. */
    int64_t min_opset;
    uint64_t external_above; /* move weights to `<path>.data` if they sum to
                                more; 0 for the default of about 2 GB */
} sb_onnx_save_options;

/* The opset that the file gets. */
int64_t sb_onnx_save_opset(const sb_graph *graph,
                           const sb_onnx_save_options *opt);

SB_MUST_USE sb_status sb_onnx_save(const sb_graph *graph, const char *path,
                                   const sb_onnx_save_options *opt);
/* The bytes of that file, for sb_memory_free(); SB_UNSUPPORTED if weights would
 * go to a file beside it. */
SB_MUST_USE sb_status sb_onnx_save_memory(const sb_graph *graph,
                                          const sb_onnx_save_options *opt,
                                          void **out, size_t *size);

/* TensorProto and SequenceProto files (.pb), as the conformance suite has them.
 */
SB_MUST_USE sb_status sb_onnx_load_tensor(sb_ctx *ctx, const char *path,
                                          sb_tensor *out);
SB_MUST_USE sb_status sb_onnx_load_sequence(sb_ctx *ctx, const char *path,
                                            sb_tensor *out);

#endif
