/* The layers that networks consist of, as nodes with random weights. */
#include "nets/net.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "graph/text.h"

/* ---- names -------------------------------------------------------------- */

const char *sb_net_pathf(sb_net *n, const char *fmt, ...)
{
    char text[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *path = sb_arena_strn(n->graph->arena, text, strlen(text));
    if (!path && n->status == SB_OK)
        n->status = SB_NO_MEMORY;
    return path ? path : "";
}

const char *sb_net_path(sb_net *n, const char *path, const char *name)
{
    return sb_net_pathf(n, "%s%s%s", path, *path ? "." : "", name);
}

/* `/layer1/layer1.0/conv1/Conv` for layer1.0.conv1, as PyTorch names nodes: a
 * number belongs to the list before it. */
static void node_name(sb_str *out, const char *path, const char *op)
{
    const char *list = path;

    for (const char *at = path; *at;) {
        size_t len = strcspn(at, ".");
        bool item = isdigit((unsigned char)*at) && at > path;
        const char *from = item ? list : at;

        sb_str_add(out, "/");
        sb_str_addn(out, from, (size_t)(at - from) + len);
        list = item ? list : at;
        at += len + (at[len] == '.');
    }
    sb_str_addf(out, "/%s", op);
}

/* ---- nodes -------------------------------------------------------------- */

static sb_status net_add(sb_net *n, const char *op, const char *path,
                         const sb_value_id *in, size_t n_in, const char *attrs,
                         sb_value_id *out)
{
    static const char tail[] = "_output";
    sb_attr *list = NULL;
    sb_node_spec spec = {.op = op,
                         .module = path,
                         .inputs = in,
                         .n_in = n_in,
                         .outputs = out,
                         .n_out = 1};
    sb_node_id id;
    sb_str name;

    if (attrs)
        SB_TRY(sb_graph_parse_attrs(n->graph, attrs, &list, &spec.n_attrs));
    spec.attrs = list;
    sb_str_init(&name, n->graph->ctx);
    node_name(&name, path, op);
    size_t len = name.len;
    sb_str_add(&name, tail);
    sb_status status = sb_str_status(&name);
    if (status == SB_OK)
        status = sb_graph_add_value_as(n->graph, name.data, out);
    if (status == SB_OK) {
        /* As many nodes of a module may have this operator as want. */
        const char *value = sb_graph_value(n->graph, *out)->name;

        name.len = len;
        sb_str_add(&name, value + len + strlen(tail));
        status = sb_str_status(&name);
    }
    if (status == SB_OK) {
        spec.name = name.data;
        status = sb_graph_add_node(n->graph, &spec, &id);
    }
    sb_str_free(&name);
    return status;
}

static sb_value_id net_op(sb_net *n, const char *op, const char *path,
                          const sb_value_id *in, size_t n_in, const char *attrs)
{
    sb_value_id out = SB_NONE;

    for (size_t i = 0; i < n_in && n->status == SB_OK; i++)
        assert(in[i] != SB_NONE);
    if (n->status == SB_OK)
        n->status = net_add(n, op, path, in, n_in, attrs, &out);
    return n->status == SB_OK ? out : SB_NONE;
}

sb_value_id sb_net_op1(sb_net *n, const char *op, const char *path,
                       sb_value_id a, const char *attrs)
{
    return net_op(n, op, path, &a, 1, attrs);
}

sb_value_id sb_net_op2(sb_net *n, const char *op, const char *path,
                       sb_value_id a, sb_value_id b, const char *attrs)
{
    return net_op(n, op, path, (sb_value_id[]){a, b}, 2, attrs);
}

sb_value_id sb_net_op3(sb_net *n, const char *op, const char *path,
                       sb_value_id a, sb_value_id b, sb_value_id c,
                       const char *attrs)
{
    return net_op(n, op, path, (sb_value_id[]){a, b, c}, 3, attrs);
}

/* ---- constants ---------------------------------------------------------- */

static sb_value_id net_constant(sb_net *n, const char *name, sb_tensor *t)
{
    sb_value_id id = SB_NONE;

    if (n->status == SB_OK)
        n->status = sb_graph_add_value(n->graph, name, &id);
    if (n->status == SB_OK)
        n->status = sb_graph_set_constant(n->graph, id, t);
    sb_tensor_drop(t);
    return n->status == SB_OK ? id : SB_NONE;
}

/* An empty tensor (no buffer) after a failure. */
static sb_tensor net_tensor(sb_net *n, sb_dtype dtype, int rank,
                            const int64_t *dims)
{
    sb_tensor t = sb_tensor_make(dtype, rank, dims);

    if (n->status == SB_OK)
        n->status = sb_tensor_alloc(n->graph->ctx, &t);
    return t;
}

sb_value_id sb_net_fill(sb_net *n, const char *name, int64_t count, float v)
{
    sb_tensor t = net_tensor(n, SB_DTYPE_F32, 1, &count);
    float *to = t.data;

    for (int64_t i = 0; n->status == SB_OK && i < count; i++)
        to[i] = v;
    return net_constant(n, name, &t);
}

sb_value_id sb_net_scalar(sb_net *n, const char *name, float v)
{
    sb_tensor t = net_tensor(n, SB_DTYPE_F32, 0, NULL);

    if (n->status == SB_OK)
        *(float *)t.data = v;
    return net_constant(n, name, &t);
}

sb_value_id sb_net_normal(sb_net *n, const char *name, int rank,
                          const int64_t *dims, double deviation)
{
    sb_tensor t = net_tensor(n, SB_DTYPE_F32, rank, dims);
    int64_t count = sb_tensor_count(&t);
    float *to = t.data;

    for (int64_t i = 0; n->status == SB_OK && i < count; i++)
        to[i] = (float)(sb_rng_normal(&n->rng) * deviation);
    return net_constant(n, name, &t);
}

sb_value_id sb_net_uniform(sb_net *n, const char *name, int rank,
                           const int64_t *dims, double bound)
{
    sb_tensor t = net_tensor(n, SB_DTYPE_F32, rank, dims);
    int64_t count = sb_tensor_count(&t);
    float *to = t.data;

    for (int64_t i = 0; n->status == SB_OK && i < count; i++)
        to[i] = (float)((2 * sb_rng_uniform(&n->rng) - 1) * bound);
    return net_constant(n, name, &t);
}

sb_value_id sb_net_ints(sb_net *n, const char *name, const int64_t *v,
                        int count)
{
    int64_t dims[] = {count};
    sb_tensor t = net_tensor(n, SB_DTYPE_I64, 1, dims);

    if (n->status == SB_OK)
        memcpy(t.data, v, (size_t)count * sizeof *v);
    return net_constant(n, name, &t);
}

/* ---- layers ------------------------------------------------------------- */

sb_value_id sb_net_conv(sb_net *n, sb_value_id x, const char *path,
                        const sb_net_conv_spec *s)
{
    int64_t group = s->group ? s->group : 1, stride = s->stride ? s->stride : 1;
    int64_t k = s->window, pad = k / 2;
    const int64_t dims[] = {s->out, s->in / group, k, k};
    double fan_out = (double)(s->out * k * k) / (double)group;
    sb_value_id w = sb_net_normal(n, sb_net_path(n, path, "weight"), 4, dims,
                                  sqrt(2 / fan_out));
    char attrs[160];

    snprintf(attrs, sizeof attrs,
             "group=%lld, kernel_shape=[%lld,%lld], pads=[%lld,%lld,%lld,%lld],"
             " strides=[%lld,%lld]",
             (long long)group, (long long)k, (long long)k, (long long)pad,
             (long long)pad, (long long)pad, (long long)pad, (long long)stride,
             (long long)stride);
    return sb_net_op2(n, "Conv", path, x, w, attrs);
}

sb_value_id sb_net_norm(sb_net *n, sb_value_id x, const char *path,
                        int64_t channels)
{
    sb_value_id in[] = {
        x,
        sb_net_fill(n, sb_net_path(n, path, "weight"), channels, 1),
        sb_net_fill(n, sb_net_path(n, path, "bias"), channels, 0),
        sb_net_fill(n, sb_net_path(n, path, "running_mean"), channels, 0),
        sb_net_fill(n, sb_net_path(n, path, "running_var"), channels, 1),
    };

    return net_op(n, "BatchNormalization", path, in, SB_COUNT(in),
                  "epsilon=1e-5, momentum=0.9");
}

sb_value_id sb_net_linear(sb_net *n, sb_value_id x, const char *path,
                          int64_t in, int64_t out)
{
    const int64_t dims[] = {out, in};
    double bound = 1 / sqrt((double)in);
    sb_value_id w =
        sb_net_uniform(n, sb_net_path(n, path, "weight"), 2, dims, bound);
    sb_value_id b =
        sb_net_uniform(n, sb_net_path(n, path, "bias"), 1, &out, bound);

    return sb_net_op3(n, "Gemm", path, x, w, b, "transB=1");
}
