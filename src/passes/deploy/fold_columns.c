/* Pass "fold_columns": a convolution of an image with fewer than 4 channels,
 * several columns at a time.
 *
 *     before:  y = Relu(Conv(x, w, b))        x: [N, 3, H, W], stride 2, w 3x3
 *     after:   x as [N, H, W/4, 12] in memory, columns side by side
 *              z = Relu(Conv(x', w', b'))     w': [2 M, 12, 3, 2], z: 2 columns
 *              y = z as [N, M, H/2, W/2]
 *
 * In a tensor that lies channels last, g neighboring columns of C channels are
 * one column of g C channels: a Reshape, which costs nothing.  The convolution
 * then makes f = g / stride columns of its result at once, which lie side by
 * side in the same way.  Its weights are the old ones, once for each of the f,
 * moved by the stride and with zeros around.
 *
 * Why: kernels for 8 bits that read the image where it lies want channels in
 * fours, and pay for each position of the kernel.  ONNX Runtime's (MLAS,
 * ConvSym) take 16 results and more at once; for 3 channels it copies every
 * patch instead, and takes three times as long.  The Transposes around are not
 * executed there: its integer convolutions are channels last anyway.
 *
 * Columns that are missing to a whole group are padded with zeros, those too
 * many cut off.  Not by itself in any pipeline: for float it is slower. */
#include "passes/deploy/deploy.h"

#include "passes/pass.h"
#include "passes/rewrite.h"

/* What the kernels want of the numbers of channels, and how much larger the
 * sums may become on that account. */
enum { IN_CHANNELS = 4, OUT_CHANNELS = 8, LEAST_OUT = 16, MOST_WORK = 4 };

typedef struct fold {
    const sb_deploy *how;
    sb_node_id conv;
    sb_node_id act; /* Relu or Clip behind it, or SB_NONE */
    int64_t c, h, w, m, kh, kw, sy, sx, ho, wo;
    int64_t pads[4]; /* top, left, bottom, right */
    int64_t f, g;    /* columns of the result and of the image in a group */
    int64_t n_in;    /* groups of the image */
    int64_t n_out;   /* groups of the result */
    int64_t first;   /* the first group that a group of results reads: <= 0 */
    int64_t width;   /* and how many */
} fold;

static int64_t fold_columns_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t fold_columns_down(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -fold_columns_up(-a, b);
}

/* ---- is it one of those? ------------------------------------------------ */

/* The integers of an attribute, small enough to be computed with. */
static bool small_ints(const sb_node *node, const char *name, size_t n,
                       int64_t absent, int64_t *out)
{
    if (!sb_node_ints(node, name, n, absent, out))
        return false;
    for (size_t i = 0; i < n; i++)
        if (out[i] < 0 || out[i] > INT16_MAX)
            return false;
    return true;
}

static const sb_tensor *f32_const(const sb_graph *g, sb_value_id v, int rank)
{
    if (!sb_is_const(g, v))
        return NULL;
    const sb_tensor *t = &sb_graph_value(g, v)->constant;
    return t->dtype == SB_DTYPE_F32 && t->rank == rank ? t : NULL;
}

/* Known dimensions 1 to 3, of a size that cannot overflow anything here. */
static bool known_image(const sb_graph *g, sb_value_id v)
{
    const sb_type *t = &sb_graph_value(g, v)->type;

    if (t->dtype != SB_DTYPE_F32 || t->shape.rank != 4)
        return false;
    for (int i = 1; i < 4; i++)
        if (!sb_dim_known(t->shape.dim[i]) || t->shape.dim[i] < 1 ||
            t->shape.dim[i] > INT16_MAX)
            return false;
    return true;
}

static bool read_conv(const sb_graph *g, sb_node_id id, fold *p)
{
    const sb_node *node = sb_graph_node(g, id);
    int64_t strides[2], dilations[2];

    if (node->dead || !sb_node_is(node, "Conv") || node->n_out != 1 ||
        sb_node_int(node, "group", 1) != 1 ||
        !sb_node_string_is(node, "auto_pad", "NOTSET", true) ||
        !small_ints(node, "strides", 2, 1, strides) ||
        !small_ints(node, "dilations", 2, 1, dilations) ||
        !small_ints(node, "pads", 4, 0, p->pads) || strides[0] < 1 ||
        strides[1] < 1 || dilations[0] != 1 || dilations[1] != 1)
        return false;
    sb_value_id x = node->inputs[0], bias = sb_node_in(node, 2);
    const sb_tensor *w = f32_const(g, sb_node_in(node, 1), 4);
    if (!w || sb_is_const(g, x) || !known_image(g, x) ||
        !known_image(g, node->outputs[0]) ||
        (bias != SB_NONE && !f32_const(g, bias, 1)))
        return false;
    const sb_dim *in = sb_graph_value(g, x)->type.shape.dim;
    const sb_dim *out = sb_graph_value(g, node->outputs[0])->type.shape.dim;
    p->conv = id;
    p->c = in[1], p->h = in[2], p->w = in[3];
    p->m = w->dims[0], p->kh = w->dims[2], p->kw = w->dims[3];
    p->ho = out[2], p->wo = out[3];
    p->sy = strides[0], p->sx = strides[1];
    return w->dims[1] == p->c && out[1] == p->m && p->kh >= 1 && p->kw >= 1 &&
           p->kw <= INT16_MAX && p->c < IN_CHANNELS && p->kh * p->kw > 1 &&
           (bias == SB_NONE ||
            sb_graph_value(g, bias)->constant.dims[0] == p->m);
}

/* Fewest columns with which the channels come out right. */
static bool fold_columns_choose(const sb_graph *g, fold *p)
{
    for (p->f = 1; p->f <= 8; p->f *= 2) {
        p->g = p->f * p->sx;
        if (p->g > 1 && p->c * p->g % IN_CHANNELS == 0 &&
            p->m * p->f % OUT_CHANNELS == 0 && p->m * p->f >= LEAST_OUT)
            break;
    }
    if (p->f > 8)
        return false;
    p->n_in = fold_columns_up(p->w, p->g);
    p->n_out = fold_columns_up(p->wo, p->f);
    p->first = fold_columns_down(-p->pads[1], p->g);
    p->width =
        fold_columns_down((p->f - 1) * p->sx - p->pads[1] + p->kw - 1, p->g) -
        p->first + 1;
    bool image =
        sb_graph_value(g, sb_graph_node(g, p->conv)->inputs[0])->is_input;
    return p->width * p->g <= MOST_WORK * p->kw &&
           p->n_out - p->n_in + p->width - 1 + p->first >= 0 &&
           (image || p->n_in * p->g == p->w);
}

/* A Relu or Clip that alone reads the result goes with the convolution. */
static sb_node_id fold_columns_activation(const sb_graph *g, sb_node_id conv)
{
    const sb_value *y = sb_graph_value(g, sb_graph_node(g, conv)->outputs[0]);

    if (y->n_uses != 1 || y->is_output || y->uses[0].input != 0)
        return SB_NONE;
    const sb_node *node = sb_graph_node(g, y->uses[0].node);
    return sb_node_is(node, "Relu") || sb_node_is(node, "Clip")
               ? y->uses[0].node
               : SB_NONE;
}

/* ---- weights ------------------------------------------------------------ */

/* w' [f M, g C, kh, width]: row o M + i is row i of w for column o of a
 * group. */
static void fold_columns_spread(const fold *p, int32_t *gather)
{
    int64_t row = p->g * p->c * p->kh * p->width;

    for (int64_t o = 0; o < p->f; o++)
        for (int64_t x = 0; x < p->kw; x++) {
            int64_t column = o * p->sx - p->pads[1] + x;
            int64_t group = fold_columns_down(column, p->g);
            int64_t place = column - group * p->g;
            for (int64_t i = 0; i < p->m; i++)
                for (int64_t c = 0; c < p->c; c++)
                    for (int64_t y = 0; y < p->kh; y++)
                        gather[(o * p->m + i) * row +
                               ((place * p->c + c) * p->kh + y) * p->width +
                               group - p->first] =
                            (int32_t)(((i * p->c + c) * p->kh + y) * p->kw + x);
        }
}

/* The old name goes with it, if nothing else has it. */
static sb_status fold_constant(sb_graph *g, const fold *p, uint32_t input,
                               int rank, const int64_t *dims,
                               const int32_t *gather)
{
    sb_value_id old = sb_graph_node(g, p->conv)->inputs[input];

    SB_TRY(sb_deploy_constant(g, p->how, p->conv, input, rank, dims, gather));
    return sb_graph_value(g, old)->n_uses > 0
               ? SB_OK
               : sb_graph_claim_name(g,
                                     sb_graph_node(g, p->conv)->inputs[input],
                                     sb_graph_value(g, old)->name);
}

static sb_status fold_weight(sb_graph *g, const fold *p)
{
    int64_t dims[4] = {p->f * p->m, p->g * p->c, p->kh, p->width};
    int32_t *gather = NULL;

    SB_TRY(sb_deploy_gather(g, sb_dims_product(dims, 0, 4), &gather));
    fold_columns_spread(p, gather);
    return fold_constant(g, p, 1, 4, dims, gather);
}

static sb_status fold_bias(sb_graph *g, const fold *p)
{
    int64_t n = p->f * p->m;
    int32_t *gather = NULL;

    if (sb_node_in(sb_graph_node(g, p->conv), 2) == SB_NONE)
        return SB_OK;
    SB_TRY(sb_deploy_gather(g, n, &gather));
    for (int64_t i = 0; i < n; i++)
        gather[i] = (int32_t)(i % p->m);
    return fold_constant(g, p, 2, 1, &n, gather);
}

/* ---- nodes -------------------------------------------------------------- */

typedef struct chain {
    sb_graph *g;
    sb_node_id like;
    sb_value_id v; /* the value so far, and its type */
    sb_type type;
} chain;

/* Adds a node that reads the value and, unless it is SB_NONE, `more`. */
static sb_status chain_add(chain *k, const char *op, sb_value_id more,
                           const int64_t dims[3], sb_node_id *out)
{
    sb_value_id in[2] = {k->v, more};

    for (int i = 0; i < 3; i++)
        k->type.shape.dim[i + 1] = dims[i];
    SB_TRY(sb_rewrite_add(k->g, k->like, op, in, more == SB_NONE ? 1 : 2,
                          &k->type, out));
    k->v = sb_graph_node(k->g, *out)->outputs[0];
    return SB_OK;
}

static sb_status chain_transpose(chain *k, bool channels_last)
{
    static const int64_t perms[2][4] = {{0, 3, 1, 2}, {0, 2, 3, 1}};
    const int64_t *perm = perms[channels_last];
    int64_t dims[3];
    sb_node_id node = SB_NONE;

    for (int i = 0; i < 3; i++)
        dims[i] = k->type.shape.dim[perm[i + 1]];
    SB_TRY(chain_add(k, "Transpose", SB_NONE, dims, &node));
    return sb_graph_set_attr_ints(k->g, node, "perm", perm, 4);
}

static sb_status chain_reshape(chain *k, const int64_t dims[3])
{
    int64_t target[4] = {0, dims[0], dims[1], dims[2]};
    sb_value_id shape = SB_NONE;
    sb_node_id node = SB_NONE;

    SB_TRY(sb_rewrite_ints(k->g, "shape", target, 4, &shape));
    return chain_add(k, "Reshape", shape, dims, &node);
}

/* Zero columns on the right, so that the image has whole groups. */
static sb_status chain_pad(chain *k, const fold *p)
{
    int64_t pads[8] = {0, 0, 0, 0, 0, 0, 0, p->n_in * p->g - p->w};
    int64_t dims[3] = {p->c, p->h, p->n_in * p->g};
    sb_value_id more = SB_NONE;
    sb_node_id node = SB_NONE;

    if (pads[7] == 0)
        return SB_OK;
    SB_TRY(sb_rewrite_ints(k->g, "pads", pads, 8, &more));
    return chain_add(k, "Pad", more, dims, &node);
}

/* Columns too many go away; in a tensor that lies channels last. */
static sb_status chain_cut(chain *k, const fold *p)
{
    const int64_t from = 0, to = p->wo, axis = 2;
    sb_value_id in[4] = {k->v, SB_NONE, SB_NONE, SB_NONE};
    sb_node_id node = SB_NONE;

    if (p->n_out * p->f == p->wo)
        return SB_OK;
    SB_TRY(sb_rewrite_ints(k->g, "starts", &from, 1, &in[1]));
    SB_TRY(sb_rewrite_ints(k->g, "ends", &to, 1, &in[2]));
    SB_TRY(sb_rewrite_ints(k->g, "axes", &axis, 1, &in[3]));
    k->type.shape.dim[2] = p->wo;
    SB_TRY(sb_rewrite_add(k->g, k->like, "Slice", in, 4, &k->type, &node));
    k->v = sb_graph_node(k->g, node)->outputs[0];
    return SB_OK;
}

static sb_status fold_input(sb_graph *g, const fold *p)
{
    sb_value_id x = sb_graph_node(g, p->conv)->inputs[0];
    chain k = {g, p->conv, x, sb_graph_value(g, x)->type};
    const int64_t dims[3] = {p->h, p->n_in, p->g * p->c};

    SB_TRY(chain_pad(&k, p));
    SB_TRY(chain_transpose(&k, true));
    SB_TRY(chain_reshape(&k, dims));
    SB_TRY(chain_transpose(&k, false));
    SB_TRY(sb_deploy_origin(g, p->how, k.v, x, NULL));
    return sb_graph_set_input(g, p->conv, 0, k.v);
}

static sb_status fold_attrs(sb_graph *g, const fold *p)
{
    const int64_t kernel[2] = {p->kh, p->width}, strides[2] = {p->sy, 1};
    const int64_t pads[4] = {
        p->pads[0],
        -p->first,
        p->pads[2],
        p->n_out - p->n_in + p->width - 1 + p->first,
    };

    SB_TRY(sb_graph_set_attr_ints(g, p->conv, "kernel_shape", kernel, 2));
    SB_TRY(sb_graph_set_attr_ints(g, p->conv, "strides", strides, 2));
    return sb_graph_set_attr_ints(g, p->conv, "pads", pads, 4);
}

/* The node once more, with a fresh result; the old result is left without a
 * producer. */
static sb_status give_up_result(sb_graph *g, sb_node_id *id,
                                const sb_type *type, sb_value_id *old_result)
{
    const sb_node old = *sb_graph_node(g, *id);
    sb_value_id result = SB_NONE, in[3] = {SB_NONE, SB_NONE, SB_NONE};

    *old_result = old.outputs[0];
    for (uint32_t i = 0; i < old.n_in && i < 3; i++)
        in[i] = old.inputs[i];
    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, old.outputs[0])->name,
                                   &result));
    sb_graph_value(g, result)->type = *type;
    sb_graph_remove_node(g, *id);
    sb_node_spec spec = {.op = old.op,
                         .name = old.name,
                         .module = old.module,
                         .inputs = in,
                         .n_in = old.n_in,
                         .outputs = &result,
                         .n_out = 1,
                         .attrs = old.attrs,
                         .n_attrs = old.n_attrs,
                         .position = old.position};
    return sb_graph_add_node(g, &spec, id);
}

/* What the convolution, or the activation behind it, made is now made by the
 * last Transpose. */
static sb_status fold_result(sb_graph *g, const fold *p)
{
    sb_node_id last = p->act != SB_NONE ? p->act : p->conv, node = SB_NONE;
    sb_value_id y = SB_NONE;
    sb_type type = sb_graph_value(g, sb_graph_node(g, last)->outputs[0])->type;
    const int64_t dims[3] = {p->ho, p->n_out * p->f, p->m};
    static const int64_t perm[4] = {0, 3, 1, 2};

    type.shape.dim[1] = p->f * p->m;
    type.shape.dim[3] = p->n_out;
    if (p->act != SB_NONE) /* and the one before it */
        sb_graph_value(g, sb_graph_node(g, p->conv)->outputs[0])->type = type;
    SB_TRY(give_up_result(g, &last, &type, &y));
    SB_TRY(sb_deploy_origin(g, p->how, sb_graph_node(g, last)->outputs[0], y,
                            NULL));
    chain k = {g, last, sb_graph_node(g, last)->outputs[0], type};
    SB_TRY(chain_transpose(&k, true));
    SB_TRY(chain_reshape(&k, dims));
    SB_TRY(chain_cut(&k, p));
    sb_node_spec spec = {.op = "Transpose",
                         .module = sb_graph_node(g, last)->module,
                         .inputs = &k.v,
                         .n_in = 1,
                         .outputs = &y,
                         .n_out = 1,
                         .position = sb_graph_node(g, last)->position};
    SB_TRY(sb_graph_add_node(g, &spec, &node));
    return sb_graph_set_attr_ints(g, node, "perm", perm, 4);
}

static sb_status fold_columns_apply(sb_graph *g, const sb_deploy *how,
                                    sb_node_id conv, bool *done)
{
    fold p = {.how = how, .act = SB_NONE};

    *done = read_conv(g, conv, &p) && fold_columns_choose(g, &p) &&
            sb_deploy_may(how, g, sb_graph_node(g, conv));
    if (!*done)
        return SB_OK;
    p.act = fold_columns_activation(g, conv);
    SB_TRY(fold_input(g, &p));
    SB_TRY(fold_weight(g, &p));
    SB_TRY(fold_bias(g, &p));
    SB_TRY(fold_attrs(g, &p));
    return fold_result(g, &p);
}

static sb_status fold_columns_rewrite(sb_graph *g, const sb_deploy *how,
                                      size_t *changes)
{
    size_t n = g->n_nodes;

    for (sb_node_id id = 0; id < n; id++) {
        bool done = false;
        SB_TRY(fold_columns_apply(g, how, id, &done));
        *changes += done;
    }
    return SB_OK;
}

static sb_status fold_columns_run(sb_graph *g, size_t *changes)
{
    return fold_columns_rewrite(g, NULL, changes);
}

const sb_rewrite_def sb_rewrite_fold_columns = {
    .name = "fold_columns",
    .integers = true,
    .run = fold_columns_rewrite,
};

const sb_pass_def sb_pass_fold_columns = {
    .name = "fold_columns",
    .summary = "convolve images of few channels several columns at a time",
    .run = fold_columns_run,
};
