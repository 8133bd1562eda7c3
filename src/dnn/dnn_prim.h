/* dnn_prim.h - one oneDNN primitive with its arguments; private to src/dnn. */
#ifndef SB_DNN_DNN_PRIM_H
#define SB_DNN_DNN_PRIM_H

#include <oneapi/dnnl/dnnl.h>

#include "base/alloc.h"
#include "dnn/dnn.h"

enum { SB_DNN_MAX_ARGS = 6, SB_DNN_WHAT_MAX = 96 };

/* A primitive, a stream to run it on, and a memory object for each argument.
 * Zeroed is empty. */
typedef struct sb_dnn_prim {
    dnnl_primitive_t prim;
    dnnl_stream_t stream;
    int n_args;
    dnnl_exec_arg_t args[SB_DNN_MAX_ARGS];
    void *handles[SB_DNN_MAX_ARGS]; /* what the memory objects point at */
} sb_dnn_prim;

/* SB_OK, or a failure that names the object and the call.  "Unimplemented" and
 * "invalid arguments" are SB_UNSUPPORTED: sizes were checked by the caller. */
sb_status sb_dnn_check(sb_ctx *ctx, dnnl_status_t status, const char *what,
                       const char *call);

/* OpenMP's width for the calls to oneDNN that follow; returns the old one. */
int sb_dnn_set_width(int n_threads);

#define SB_DNN_ANY ((sb_dnn_layout)-1) /* what the primitive likes best */

/* A memory description of [N, C, D...] in a layout. */
dnnl_status_t sb_dnn_md(dnnl_memory_desc_t *md, int rank, const int64_t *dims,
                        sb_dnn_layout layout);

/* oneDNN's name of a kernel, "" if it has none. */
const char *sb_dnn_kernel_name(const_dnnl_primitive_desc_t pd);

/* A kernel for a matrix product: BRGEMM's if there is one, since the first use
 * of the older GEMM compiles all its variants, which takes longer than many a
 * network runs; else the first. */
dnnl_status_t sb_dnn_matmul_pd(const dnnl_matmul_desc_t *op,
                               dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                               dnnl_primitive_desc_t *out);

/* Primitive and stream from a description, which stays the caller's. */
SB_MUST_USE sb_status sb_dnn_prim_make(sb_ctx *ctx, const char *what,
                                       dnnl_engine_t engine,
                                       const_dnnl_primitive_desc_t pd,
                                       sb_dnn_prim *out);
/* Adds an argument (DNNL_ARG_...) described by `md`. */
SB_MUST_USE sb_status sb_dnn_prim_arg(sb_ctx *ctx, const char *what,
                                      dnnl_engine_t engine, sb_dnn_prim *prim,
                                      int arg, const dnnl_memory_desc_t *md);
/* Adds the scratchpad if the primitive wants one; returns its bytes. */
SB_MUST_USE sb_status sb_dnn_prim_scratch(sb_ctx *ctx, const char *what,
                                          dnnl_engine_t engine,
                                          sb_dnn_prim *prim,
                                          const_dnnl_primitive_desc_t pd,
                                          size_t *bytes);
/* Runs with one pointer for each argument, in the order they were added.
 * Touches no context, so that several threads may run different primitives. */
dnnl_status_t sb_dnn_prim_run(sb_dnn_prim *prim, void *const *pointers);
void sb_dnn_prim_free(sb_dnn_prim *prim);

/* A reorder between two descriptions; scratchpad as the third argument. */
SB_MUST_USE sb_status sb_dnn_prim_reorder(sb_ctx *ctx, const char *what,
                                          dnnl_engine_t engine,
                                          const dnnl_memory_desc_t *from,
                                          const dnnl_memory_desc_t *to,
                                          sb_dnn_prim *out, size_t *scratch);

/* ---- forms of packed weights -------------------------------------------- */
enum { SB_DNN_FORM_RANK = 6, SB_DNN_FORM_BLOCKS = 12 };

/* A memory description in plain numbers: those of oneDNN have members that
 * depend on how they came about. */
typedef struct sb_dnn_md_form {
    int64_t rank, offset, n_blocks, flags;
    int64_t dims[SB_DNN_FORM_RANK], padded[SB_DNN_FORM_RANK];
    int64_t strides[SB_DNN_FORM_RANK];
    int64_t blocks[SB_DNN_FORM_BLOCKS], block_dims[SB_DNN_FORM_BLOCKS];
} sb_dnn_md_form;

/* What packed weights look like and what they were made from; zeroed at
 * first. */
typedef struct sb_dnn_form {
    char kind[8];
    int64_t sizes[6]; /* what the kind needs beside */
    sb_dnn_md_form from, to[2];
} sb_dnn_form;

/* Completes a form by the descriptions of plain and packed weights (`other`:
 * of the last part where it differs, or NULL) and puts it into the packing.
 * SB_UNSUPPORTED if one of them is not made of blocks. */
SB_MUST_USE sb_status sb_dnn_form_seal(sb_ctx *ctx, const char *what,
                                       sb_dnn_form *form,
                                       const dnnl_memory_desc_t *from,
                                       const dnnl_memory_desc_t *to,
                                       const dnnl_memory_desc_t *other,
                                       sb_dnn_packing *packing);

/* How many posts, from the front, oneDNN computes as ONNX has them.  The caller
 * applies the others to the result of a primitive, while it is in the cache. */
size_t sb_dnn_posts_inside(const sb_dnn_post *posts, size_t n);
/* All of `posts`, none of them SUM, to `count` elements in place. */
void sb_dnn_posts_row(const sb_dnn_post *posts, size_t n, float *x,
                      size_t count);

/* Attributes with a scratchpad lent by the caller and the posts that oneDNN is
 * given.  SB_UNSUPPORTED if SUM is not among them: what it adds is overwritten
 * before the caller could. */
SB_MUST_USE sb_status sb_dnn_attr(sb_ctx *ctx, const char *what,
                                  const sb_dnn_post *posts, size_t n_posts,
                                  dnnl_primitive_attr_t *out);

/* Without const: oneDNN's memory objects serve reading and writing alike. */
void *sb_dnn_mutable(const void *p);
/* `base + offset`; NULL if there is no memory because none is needed. */
static inline char *sb_dnn_at(void *base, size_t offset)
{
    return base ? (char *)base + offset : NULL;
}

/* The bytes of a description, rounded up to whole cache lines. */
size_t sb_dnn_md_bytes(const dnnl_memory_desc_t *md);
/* Reserves `bytes` at the end of a scratch of *total bytes; the offset. */
size_t sb_dnn_reserve(size_t *total, size_t bytes);

#endif
