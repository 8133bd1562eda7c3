/* onnx_tensor.h - TensorProto to tensor. */
#ifndef SB_ONNX_ONNX_TENSOR_H
#define SB_ONNX_ONNX_TENSOR_H

#include "onnx/onnx_source.h"
#include "onnx/wire.h"

/* The elements of `t`, which was unpacked from `src`: a view into the file
 * where possible, else a copy.  `out` holds a reference; drop it.
 * A view may be misaligned, see tensor/mapped.h. */
SB_MUST_USE sb_status sb_onnx_tensor(sb_onnx_source *src, const Pb__Tensor *t,
                                     sb_tensor *out);
/* A sparse tensor may not become larger than this when made dense. */
enum { SB_ONNX_DENSE_MAX = 1 << 28 };

/* The same as a dense tensor. */
SB_MUST_USE sb_status sb_onnx_sparse(sb_onnx_source *src,
                                     const Pb__SparseTensor *t, sb_tensor *out);

#endif
