/* tensor.h - shapes, buffers and tensors.
 *
 * sb_buf is the only reference-counted type: weights are shared by the file
 * mapping, the graph, clones of the graph and plans.  sb_tensor is a plain
 * value that points at elements; if `buf` is set the tensor holds one
 * reference to it, otherwise the memory belongs to someone else (a plan's
 * workspace, the caller). */
#ifndef SB_TENSOR_TENSOR_H
#define SB_TENSOR_TENSOR_H

#include <sparsebit/tensor.h>

#include "base/arena.h"
#include "tensor/dtype.h"

enum { SB_MAX_RANK = SB_RANK_MAX, SB_ALIGN = 64 };

/* ---- dimensions ---------------------------------------------------------
 * A dimension is a number, or unknown, or a named unknown (symbol).  All three
 * fit an int64: values below SB_DIM_KNOWN_MIN are not numbers. */
typedef int64_t sb_dim;

#define SB_DIM_UNKNOWN   INT64_MIN
#define SB_DIM_KNOWN_MIN (INT64_MIN / 2)

static inline bool sb_dim_known(sb_dim d)
{
    return d >= SB_DIM_KNOWN_MIN;
}

/* The i-th symbol of a graph as a dimension, and back (-1: not a symbol). */
static inline sb_dim sb_dim_symbol(uint32_t i)
{
    return INT64_MIN + 1 + (int64_t)i;
}

static inline int64_t sb_dim_symbol_index(sb_dim d)
{
    return sb_dim_known(d) || d == SB_DIM_UNKNOWN ? -1 : d - INT64_MIN - 1;
}

/* Same number or same symbol. */
static inline bool sb_dim_same(sb_dim a, sb_dim b)
{
    return a == b && a != SB_DIM_UNKNOWN;
}

typedef struct sb_shape {
    int rank; /* -1: not even the rank is known */
    sb_dim dim[SB_MAX_RANK];
} sb_shape;

bool sb_shape_known(const sb_shape *s); /* rank and all dimensions */
bool sb_shape_same(const sb_shape *a, const sb_shape *b);

/* ---- buffers ------------------------------------------------------------ */
typedef struct sb_buf sb_buf;

/* `size` bytes aligned to SB_ALIGN, zeroed. */
SB_MUST_USE sb_status sb_buf_create(sb_ctx *ctx, size_t size, sb_buf **out);
/* The same, not zeroed: for what is written before it is read. */
SB_MUST_USE sb_status sb_buf_create_raw(sb_ctx *ctx, size_t size, sb_buf **out);
/* Wraps foreign memory; `release(user)` is called with the last reference
 * (optional). */
SB_MUST_USE sb_status sb_buf_wrap(sb_ctx *ctx, void *data, size_t size,
                                  void (*release)(void *user), void *user,
                                  sb_buf **out);
/* Says that wrapped memory is a mapped file that is never written to, so that
 * its pages may be given back at any time. */
void sb_buf_set_mapped(sb_buf *buf);
bool sb_buf_is_mapped(const sb_buf *buf);
sb_buf *sb_buf_ref(sb_buf *buf);
/* Are there other references to it? */
bool sb_buf_is_shared(const sb_buf *buf);
void sb_buf_unref(sb_buf *buf); /* NULL is allowed */
void *sb_buf_data(const sb_buf *buf);
size_t sb_buf_size(const sb_buf *buf);
sb_ctx *sb_buf_ctx(const sb_buf *buf);

/* ---- tensors ------------------------------------------------------------ */

/* How elements lie in memory.  PLAIN is row-major.  CHANNELS_LAST moves
 * dimension 1 innermost: [N, C, H, W] lies as [N, H, W, C]; `dims` stay as they
 * are.  Only the executor and operators that ask for it see it: convolution
 * chains run in it from end to end, and unlike blocked layouts it needs no
 * padding, so elementwise work and statistics read the buffer as it is. */
typedef enum sb_layout { SB_LAYOUT_PLAIN, SB_LAYOUT_CHANNELS_LAST } sb_layout;

struct sb_tensor {
    sb_dtype dtype;
    int rank;
    int64_t dims[SB_MAX_RANK];
    sb_layout layout;
    void *data;  /* NULL: not there yet */
    sb_buf *buf; /* owner of data, or NULL if borrowed */
};

/* Elements; tensors in memory never overflow. */
int64_t sb_tensor_count(const sb_tensor *t);
/* Bytes of `data`. */
size_t sb_tensor_bytes(const sb_tensor *t);
/* False if count or bytes overflow or a dimension is negative. */
bool sb_tensor_size_ok(const sb_tensor *t);
/* Product of dims[begin, end). */
int64_t sb_dims_product(const int64_t *dims, int begin, int end);
/* A plain tensor description without data. */
sb_tensor sb_tensor_make(sb_dtype dtype, int rank, const int64_t *dims);
/* Elements between neighbors along each dimension, in the memory layout of `t`.
 */
void sb_tensor_strides(const sb_tensor *t, int64_t stride[SB_MAX_RANK]);
/* The dimension that is `at`-th in memory, from the slowest varying. */
int sb_tensor_dim_at(const sb_tensor *t, int at);
/* The opposite: how many dimensions lie outside of dimension `dim`. */
int sb_tensor_place(const sb_tensor *t, int dim);
/* The same memory as a plain tensor, dimensions in the order in which they
 * lie; borrows. */
sb_tensor sb_tensor_as_lies(const sb_tensor *t);
/* Copies the elements of `from` into `to`, which has the same type and
 * dimensions but may have another layout; threaded. */
void sb_tensor_reorder(sb_ctx *ctx, const sb_tensor *from, sb_tensor *to);
/* Do both layouts of these dimensions put the elements in the same order? */
bool sb_tensor_same_order(const sb_tensor *t);
/* Gives `t` fresh zeroed memory of its own. */
SB_MUST_USE sb_status sb_tensor_alloc(sb_ctx *ctx, sb_tensor *t);
/* The same, not zeroed: to be written before it is read. */
SB_MUST_USE sb_status sb_tensor_alloc_raw(sb_ctx *ctx, sb_tensor *t);
/* Drops the reference to the buffer, if any. */
void sb_tensor_drop(sb_tensor *t);
/* A plain copy with memory of its own; drop it. */
SB_MUST_USE sb_status sb_tensor_clone(sb_ctx *ctx, const sb_tensor *from,
                                      sb_tensor *out);
/* Same elements, one more reference. */
sb_tensor sb_tensor_share(const sb_tensor *t);
/* Element i of an integral or float tensor as int64 / double; 0 of others,
 * since files may put them where an index belongs. */
int64_t sb_tensor_get_i64(const sb_tensor *t, int64_t i);
double sb_tensor_get_f64(const sb_tensor *t, int64_t i);
/* Numbers that depend only on the seed: floats normal(0, 1), integers 0 or 1;
 * nothing for other types. */
void sb_tensor_randomize(sb_tensor *t, uint64_t seed);
/* "f32[2,3,4]" into `out`, always terminated; returns out. */
const char *sb_tensor_describe(const sb_tensor *t, char *out, size_t size);

/* Elements of a string tensor: data points at `count` of these. */
typedef struct sb_bytes {
    const char *data; /* NUL-terminated beyond `len` */
    size_t len;
} sb_bytes;

/* Gives a string tensor copies of `count` texts, in one buffer of its own. */
SB_MUST_USE sb_status sb_tensor_alloc_strings(sb_ctx *ctx, sb_tensor *t,
                                              const sb_bytes *texts);

#endif
