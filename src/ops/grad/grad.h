/* grad.h - gradients as nodes of the same graph.
 *
 * sb_graph_gradient() walks from the loss backwards and calls grad() of each
 * node's row.  What it added is planned, fused and run like everything else.
 *
 * A rule is written with the functions below.  Each adds a node with its type
 * and returns the result; after a failure, which they keep in g->status, they
 * add nothing and return SB_NONE, so that rules read as formulas:
 *
 *     g->dx[0] = sb_grad_sum_to(g, sb_emit2(g, "Mul", dy, b), a);
 */
#ifndef SB_OPS_GRAD_GRAD_H
#define SB_OPS_GRAD_GRAD_H

#include "ops/op_registry.h"

/* Adds the gradients of `loss`, a float of one element, with respect to `n`
 * values.  out[i] is a value of its own, named `grad.NAME`, which nothing reads
 * yet; SB_NONE if the loss does not depend on wrt[i].  If there are nodes that
 * cannot be learned through, SB_UNSUPPORTED names them all; after a failure the
 * graph computes what it did before. */
SB_MUST_USE sb_status sb_graph_gradient(sb_graph *graph, sb_value_id loss,
                                        const sb_value_id *wrt, size_t n,
                                        sb_value_id *out);

/* Can nodes of this row be on the way from a loss to what is learned? */
typedef enum sb_op_learn {
    SB_LEARN_NO,
    SB_LEARN_FLAT, /* gradients are zero */
    SB_LEARN_YES,
} sb_op_learn;
sb_op_learn sb_op_learns(const sb_op_def *op);

/* ---- reading ------------------------------------------------------------ */
static inline const sb_type *sb_grad_type(const sb_grad *g, sb_value_id v)
{
    return &sb_graph_value(g->graph, v)->type;
}

/* Input i of the node; SB_NONE if it is absent. */
static inline sb_value_id sb_grad_in(const sb_grad *g, uint32_t i)
{
    return sb_node_in(g->node, i);
}

static inline bool sb_grad_wants(const sb_grad *g, uint32_t i)
{
    return i < g->node->n_in && g->wanted[i];
}

/* This node cannot be learned through, for this reason. */
sb_status sb_grad_refuse(sb_grad *g, const char *fmt, ...) SB_PRINTF(2, 3);

/* ---- adding nodes ------------------------------------------------------- */
enum { SB_EMIT_INPUTS = 8 };

typedef struct sb_emit_spec {
    const char *op;     /* of the main domain, else of SB_FUSED_DOMAIN */
    const char *domain; /* (optional) instead */
    sb_value_id in[SB_EMIT_INPUTS];
    size_t n_in;
    const sb_value_id *more_in; /* (optional) `n_in` of them instead of `in` */
    const sb_attr *attrs;       /* lists are copied */
    size_t n_attrs;
    size_t n_out;          /* 0: 1 */
    sb_value_id *more_out; /* for n_out above 1 */
    const sb_type *type;   /* (optional) of the first result, if it is known
                              better than infer() finds out */
} sb_emit_spec;

sb_value_id sb_emit(sb_grad *g, const sb_emit_spec *spec);

/* Attributes for it. */
#define SB_EMIT_INT(name_, v) \
    ((sb_attr){.name = name_, .type = SB_ATTR_INT, .i = (v)})
#define SB_EMIT_FLOAT(name_, v) \
    ((sb_attr){.name = name_, .type = SB_ATTR_FLOAT, .f = (v)})
#define SB_EMIT_INTS(name_, v, count) \
    ((sb_attr){.name = name_,         \
               .type = SB_ATTR_INTS,  \
               .ints = (v),           \
               .n = (size_t)(count)})
#define SB_EMIT_STRING(name_, v) \
    ((sb_attr){.name = name_, .type = SB_ATTR_STRING, .s = {v, sizeof(v) - 1}})

/* Operators without attributes. */
sb_value_id sb_emit1(sb_grad *g, const char *op, sb_value_id a);
sb_value_id sb_emit2(sb_grad *g, const char *op, sb_value_id a, sb_value_id b);
sb_value_id sb_emit3(sb_grad *g, const char *op, sb_value_id a, sb_value_id b,
                     sb_value_id c);
/* With one attribute. */
sb_value_id sb_emit_with(sb_grad *g, const char *op, sb_value_id a,
                         sb_value_id b, sb_attr attr);

/* A constant of one element and no dimension, of the type of `like`. */
sb_value_id sb_grad_scalar(sb_grad *g, sb_value_id like, double v);
/* A constant vector of int64. */
sb_value_id sb_grad_ints(sb_grad *g, const int64_t *v, int n);
/* The dimensions of `v` as a vector: a constant, if they are known. */
sb_value_id sb_grad_shape(sb_grad *g, sb_value_id v);
/* One dimension as a vector of one element. */
sb_value_id sb_grad_dim(sb_grad *g, sb_value_id v, int axis);
/* Zeros of the shape and type of `like`. */
sb_value_id sb_grad_zeros(sb_grad *g, sb_value_id like);
/* `v` in the shape of `like`: the sum over broadcast dimensions; broadcast;
 * the same elements. */
sb_value_id sb_grad_sum_to(sb_grad *g, sb_value_id v, sb_value_id like);
sb_value_id sb_grad_expand(sb_grad *g, sb_value_id v, sb_value_id like);
sb_value_id sb_grad_reshape(sb_grad *g, sb_value_id v, sb_value_id like);
/* Of [N, C, ...], of that rank: the sum over everything but the channels, [C];
 * and [C] as [C, 1, ...], to go with it. */
sb_value_id sb_grad_channel_sum(sb_grad *g, sb_value_id v, int rank);
sb_value_id sb_grad_channel_column(sb_grad *g, sb_value_id v, int rank);

#endif
