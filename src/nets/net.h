/* net.h - untrained networks to start from, and what they are written with.
 *
 * A network is a row with a function that adds its layers to a graph.  The
 * functions below keep the first failure in net->status and add nothing after
 * it, so that networks read as lists of layers:
 *
 *     x = sb_net_conv(n, x, "conv1", &(sb_net_conv_spec){3, 16, 3, 0, 0});
 *     x = sb_net_norm(n, x, "bn1", 16);
 *
 * Layers and their weights have the names that PyTorch gives them, so module
 * patterns of configurations fit.  The same seed gives the same file.
 *
 * To add one: write src/nets/net_<name>.c ending with its row, add a line to
 * nets.def (sorted), add a line to the table of tests/unit/test_nets.c. */
#ifndef SB_NETS_NET_H
#define SB_NETS_NET_H

#include "base/rng.h"
#include "graph/graph.h"

/* What a network is made for. */
typedef struct sb_net_size {
    int64_t channels, height, width; /* of the image */
    int64_t classes;
} sb_net_size;

typedef struct sb_net {
    sb_graph *graph;
    sb_net_size size;
    sb_rng rng;
    sb_status status;
} sb_net;

typedef struct sb_net_def {
    const char *name;
    const char *summary;
    sb_net_size size; /* unless the user says otherwise */
    int64_t multiple; /* height and width are multiples of it */
    /* From the image to the scores of the classes. */
    sb_value_id (*build)(sb_net *n, sb_value_id image);
} sb_net_def;

const sb_net_def *const *sb_net_all(size_t *n);
/* Builds network `name`; fields of `size` that are 0 are as in its row.  Its
 * input is "image", [N, C, H, W], its output "logits", [N, classes]. */
SB_MUST_USE sb_status sb_net_create(sb_ctx *ctx, const char *name,
                                    const sb_net_size *size, uint64_t seed,
                                    sb_graph **out);

/* ---- layers ------------------------------------------------------------- */

/* A node of module `path`; `attrs` in text form, or NULL. */
sb_value_id sb_net_op1(sb_net *n, const char *op, const char *path,
                       sb_value_id a, const char *attrs);
sb_value_id sb_net_op2(sb_net *n, const char *op, const char *path,
                       sb_value_id a, sb_value_id b, const char *attrs);
sb_value_id sb_net_op3(sb_net *n, const char *op, const char *path,
                       sb_value_id a, sb_value_id b, sb_value_id c,
                       const char *attrs);

/* Constants: of this number, also without a dimension; normal; uniform within
 * +-bound; integers. */
sb_value_id sb_net_fill(sb_net *n, const char *name, int64_t count, float v);
sb_value_id sb_net_scalar(sb_net *n, const char *name, float v);
sb_value_id sb_net_normal(sb_net *n, const char *name, int rank,
                          const int64_t *dims, double deviation);
sb_value_id sb_net_uniform(sb_net *n, const char *name, int rank,
                           const int64_t *dims, double bound);
sb_value_id sb_net_ints(sb_net *n, const char *name, const int64_t *v,
                        int count);

typedef struct sb_net_conv_spec {
    int64_t in, out, window;
    int64_t stride; /* 0: 1; the image is padded to keep its size at 1 */
    int64_t group;  /* 0: 1 */
} sb_net_conv_spec;

/* Without bias, by Kaiming's rule for the outputs. */
sb_value_id sb_net_conv(sb_net *n, sb_value_id x, const char *path,
                        const sb_net_conv_spec *spec);
sb_value_id sb_net_norm(sb_net *n, sb_value_id x, const char *path,
                        int64_t channels);
/* [N, in] to [N, out], as PyTorch starts them. */
sb_value_id sb_net_linear(sb_net *n, sb_value_id x, const char *path,
                          int64_t in, int64_t out);

/* `path.name`, for as long as the graph lives; "" when memory is out. */
const char *sb_net_path(sb_net *n, const char *path, const char *name);
const char *sb_net_pathf(sb_net *n, const char *fmt, ...) SB_PRINTF(2, 3);

#endif
