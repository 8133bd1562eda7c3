/* Pass "merge_convs": convolutions of one value that are summed become one.
 *
 *     Conv(x, w, b) + Conv(x, v, c)  ->  Conv(x, w + v, b + c)
 *
 * where every tap of v lies on one of w, and every channel that v reads is one
 * that w reads.  Beside a depthwise layer a batch normalization is such a
 * convolution, too, of one tap; beside others it would be one large weight in a
 * row of small ones, which then are lost when the row is rounded to integers.
 * Networks that are trained with parallel branches (RepVGG, MobileOne,
 * RepGhost) are often exported before the branches were merged.  Not where a
 * branch has another consumer, or a configuration says something of the one
 * whose name is lost. */
#include <string.h>

#include "ops/conv/window.h"
#include "passes/bn_channels.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "tensor/mapped.h"

typedef struct branch {
    sb_node_id node;
    int n; /* spatial dimensions */
    /* Channels out; groups, and channels in of each; taps of all dimensions. */
    int64_t rows, groups, per, taps;
    int64_t kernel[SB_MAX_SPATIAL], stride[SB_MAX_SPATIAL];
    int64_t dilation[SB_MAX_SPATIAL], pads[2 * SB_MAX_SPATIAL];
    const sb_tensor *w, *b; /* w NULL: a normalization; b NULL: none */
} branch;

/* ---- what there is ------------------------------------------------------- */

static const sb_tensor *merge_f32(const sb_graph *g, sb_value_id v)
{
    const sb_tensor *t = sb_const_of(g, v);

    return t && t->dtype == SB_DTYPE_F32 ? t : NULL;
}

static bool merge_read_conv(const sb_graph *g, sb_node_id id, branch *out)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_tensor *w = merge_f32(g, sb_node_in(node, 1));
    const sb_tensor *b = merge_f32(g, sb_node_in(node, 2));

    if (!sb_node_is(node, "Conv") || !w || w->rank < 3 ||
        (!b && sb_node_in(node, 2) != SB_NONE) ||
        (b && (b->rank != 1 || b->dims[0] != w->dims[0])) ||
        !sb_node_string_is(node, "auto_pad", "NOTSET", true))
        return false;
    *out = (branch){.node = id,
                    .n = w->rank - 2,
                    .rows = w->dims[0],
                    .groups = sb_node_int(node, "group", 1),
                    .per = w->dims[1],
                    .taps = sb_dims_product(w->dims, 2, w->rank),
                    .w = w,
                    .b = b};
    memcpy(out->kernel, w->dims + 2, (size_t)out->n * sizeof *out->kernel);
    size_t n = (size_t)out->n;
    return out->rows > 0 && out->groups > 0 && out->rows % out->groups == 0 &&
           sb_node_ints(node, "strides", n, 1, out->stride) &&
           sb_node_ints(node, "dilations", n, 1, out->dilation) &&
           sb_node_ints(node, "pads", 2 * n, 0, out->pads);
}

/* A normalization of what `like` reads. */
static bool merge_read_norm(const sb_graph *g, sb_node_id id,
                            const branch *like, branch *out)
{
    const sb_node *node = sb_graph_node(g, id);

    if (!sb_bn_is_plain(g, node, like->rows) || like->per != 1 ||
        like->groups != like->rows)
        return false;
    *out = (branch){.node = id,
                    .n = like->n,
                    .rows = like->rows,
                    .groups = like->rows,
                    .per = 1,
                    .taps = 1};
    for (int i = 0; i < out->n; i++)
        out->kernel[i] = out->stride[i] = out->dilation[i] = 1;
    return true;
}

/* For inputs of any size: as many results, and each tap on one of `wide`. */
static bool merge_fits(const branch *wide, const branch *v)
{
    if (wide->n != v->n || wide->rows != v->rows ||
        wide->per * wide->groups != v->per * v->groups ||
        v->groups % wide->groups != 0)
        return false;
    for (int i = 0; i < v->n; i++) {
        int64_t step = wide->dilation[i], first = wide->pads[i] - v->pads[i];
        int64_t reach = (v->kernel[i] - 1) * v->dilation[i];
        int64_t all = (wide->kernel[i] - 1) * step;

        if (step < 1 || wide->stride[i] != v->stride[i] || first < 0 ||
            first + reach > all || first % step != 0 ||
            (v->kernel[i] > 1 && v->dilation[i] % step != 0) ||
            wide->pads[i] + wide->pads[v->n + i] - all !=
                v->pads[i] + v->pads[v->n + i] - reach)
            return false;
    }
    return true;
}

/* ---- the sum ------------------------------------------------------------- */

/* Where tap `tap` of v is among those of `wide`. */
static int64_t merge_tap(const branch *wide, const branch *v, int64_t tap)
{
    int64_t at = 0, size = 1;

    for (int i = v->n - 1; i >= 0; i--) {
        int64_t k = tap % v->kernel[i];

        at += (wide->pads[i] - v->pads[i] + k * v->dilation[i]) /
              wide->dilation[i] * size;
        size *= wide->kernel[i];
        tap /= v->kernel[i];
    }
    return at;
}

/* `norm`: of its channels, if v is a normalization. */
static void merge_add(const branch *wide, const branch *v,
                      const sb_bn_channel *norm, float *w, float *b)
{
    for (int64_t m = 0; m < v->rows; m++) {
        int64_t begin = m / (v->rows / v->groups) * v->per -
                        m / (wide->rows / wide->groups) * wide->per;
        float *row = w + (m * wide->per + begin) * wide->taps;

        if (norm)
            b[m] += sb_bn_bias(&norm[m], 0);
        else if (v->b)
            b[m] += sb_tensor_float(v->b, m);
        for (int64_t c = 0; c < v->per; c++)
            for (int64_t k = 0; k < v->taps; k++)
                row[c * wide->taps + merge_tap(wide, v, k)] +=
                    norm
                        ? sb_bn_factor(&norm[m])
                        : sb_tensor_float(v->w, (m * v->per + c) * v->taps + k);
    }
}

static sb_status merge_constants(sb_graph *g, const branch *wide,
                                 const branch *v, sb_value_id *w_out,
                                 sb_value_id *b_out)
{
    const char *stem =
        sb_graph_value(g, sb_graph_node(g, wide->node)->inputs[1])->name;
    int64_t n = wide->rows * wide->per * wide->taps;
    float *w = sb_alloc(g->ctx, (size_t)(n + wide->rows), sizeof *w);
    sb_bn_channel *norm = NULL;
    sb_status status = w ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK && !v->w)
        status = sb_bn_read(g, sb_graph_node(g, v->node), v->rows, &norm);
    if (status == SB_OK) {
        merge_add(wide, wide, NULL, w, w + n);
        merge_add(wide, v, norm, w, w + n);
        const sb_tensor *like = wide->w;
        status = sb_graph_add_constant(g, stem, SB_DTYPE_F32, like->rank,
                                       like->dims, w, w_out);
    }
    if (status == SB_OK)
        status = sb_graph_add_constant(g, stem, SB_DTYPE_F32, 1, &wide->rows,
                                       w + n, b_out);
    sb_free(g->ctx, norm);
    sb_free(g->ctx, w);
    return status;
}

/* The convolution takes the place of the sum. */
static sb_status merge_replace(sb_graph *g, sb_node_id sum, const branch *wide,
                               const branch *v)
{
    sb_value_id in[3] = {sb_graph_node(g, wide->node)->inputs[0], SB_NONE,
                         SB_NONE};

    SB_TRY(merge_constants(g, wide, v, &in[1], &in[2]));
    SB_TRY(sb_rewrite_as(g, sum, wide->node, in, 3));
    SB_TRY(sb_rewrite_prune(g, wide->node));
    return sb_rewrite_prune(g, v->node);
}

/* ---- all ----------------------------------------------------------------- */

/* The node that makes input `i` of the sum, and nothing else. */
static sb_node_id merge_maker(const sb_graph *g, const sb_node *sum, uint32_t i)
{
    const sb_value *v = sb_graph_value(g, sum->inputs[i]);

    return v->n_uses == 1 && !v->is_output ? v->producer : SB_NONE;
}

/* Is the second named, and not the first, whose name stays? */
static bool merge_loses_name(const sb_graph *g, sb_node_id stays, sb_node_id v)
{
    return g->is_named && g->is_named(g->is_named_user, sb_graph_node(g, v)) &&
           !g->is_named(g->is_named_user, sb_graph_node(g, stays));
}

static sb_status merge_try(sb_graph *g, sb_node_id id, uint32_t first,
                           bool *done)
{
    const sb_node *sum = sb_graph_node(g, id);
    sb_node_id a = merge_maker(g, sum, first);
    sb_node_id b = merge_maker(g, sum, 1 - first);
    branch wide, v;

    if (a == SB_NONE || b == SB_NONE || !merge_read_conv(g, a, &wide) ||
        sb_graph_node(g, a)->inputs[0] != sb_node_in(sb_graph_node(g, b), 0) ||
        (!merge_read_conv(g, b, &v) && !merge_read_norm(g, b, &wide, &v)) ||
        !merge_fits(&wide, &v) || merge_loses_name(g, a, b))
        return SB_OK;
    *done = true;
    return merge_replace(g, id, &wide, &v);
}

static sb_status merge_convs_run(sb_graph *g, size_t *changes)
{
    size_t n_nodes = g->n_nodes;

    for (sb_node_id id = 0; id < n_nodes; id++)
        for (uint32_t first = 0; first < 2; first++) {
            const sb_node *node = sb_graph_node(g, id);
            bool done = false;

            if (node->dead || node->n_in != 2 || !sb_node_is(node, "Add"))
                continue;
            SB_TRY(merge_try(g, id, first, &done));
            *changes += done;
        }
    return SB_OK;
}

const sb_pass_def sb_pass_merge_convs = {
    .name = "merge_convs",
    .summary = "summed convolutions of one value become one",
    .run = merge_convs_run,
};
