/* Batch normalisation behind a layer whose weight came with its scales.
 *
 * The pass "fuse_bn" multiplies the weight by a factor a channel and gives it
 * another name.  Its integers do not change by that, only the scales do, by the
 * same factors; so what was known of the old weight is known of the new one.
 * And the layer has the result of the normalisation now: it is under that name
 * that it reads its input. */
#include <math.h>
#include <string.h>

#include "passes/integer_util.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "quant/quant_model.h"

/* A normalisation that may go into the layer before it. */
typedef struct fused {
    const char *before, *result; /* names of its input and its result */
    const char *weight;          /* of the layer */
    float *factor;
    int64_t n;
    int axis; /* of the weight's channels; -1: nothing is known of it */
} fused;

static int channel_axis(const sb_node *node)
{
    if (sb_node_is(node, "Conv"))
        return 0;
    if (sb_node_is(node, "Gemm"))
        return sb_node_int(node, "transB", 0) ? 0 : 1;
    if (sb_node_is(node, "MatMul") || (sb_node_is(node, "ConvTranspose") &&
                                       sb_node_int(node, "group", 1) == 1))
        return 1;
    return -1;
}

/* As "fuse_bn" computes them. */
static float factor_of(const sb_graph *g, const sb_node *bn, int64_t c)
{
    float gamma = (float)sb_tensor_get_f64(sb_const_of(g, bn->inputs[1]), c);
    float var = (float)sb_tensor_get_f64(sb_const_of(g, bn->inputs[4]), c);

    return gamma * (1.0F / sqrtf(var + sb_node_float(bn, "epsilon", 1e-5f)));
}

static sb_status read_fused(const sb_quant_model *qm, sb_graph *g,
                            const sb_node *bn, fused *out)
{
    const sb_node *layer = sb_graph_producer(g, sb_node_in(bn, 0));
    const sb_tensor *gamma = sb_const_of(g, sb_node_in(bn, 1));
    const sb_tensor *var = sb_const_of(g, sb_node_in(bn, 4));

    *out = (fused){.axis = -1};
    if (!layer || !gamma || !var || bn->n_out < 1 ||
        !sb_is_const(g, sb_node_in(layer, 1)))
        return SB_OK;
    out->before =
        sb_arena_str(g->arena, sb_graph_value(g, bn->inputs[0])->name);
    out->result =
        sb_arena_str(g->arena, sb_graph_value(g, bn->outputs[0])->name);
    if (!out->before || !out->result)
        return SB_NO_MEMORY;
    const sb_value *w = sb_graph_value(g, layer->inputs[1]);
    int axis = channel_axis(layer);
    if (axis < 0 || axis >= w->constant.rank ||
        sb_tensor_count(gamma) != w->constant.dims[axis] ||
        sb_tensor_count(var) != w->constant.dims[axis] ||
        !sb_known_find(&qm->known, w->name))
        return SB_OK;
    int64_t n = w->constant.dims[axis];
    out->weight = sb_arena_str(g->arena, w->name);
    out->factor = sb_arena_alloc(g->arena, (size_t)n, sizeof(float));
    out->n = n;
    out->axis = axis;
    if (!out->weight || !out->factor)
        return SB_NO_MEMORY;
    for (int64_t c = 0; c < n; c++)
        out->factor[c] = factor_of(g, bn, c);
    return SB_OK;
}

static sb_status add_scaled(sb_quant_model *qm, const fused *f,
                            const char *name)
{
    const sb_known *old = sb_known_find(&qm->known, f->weight);
    const sb_factors factors = {.n = f->n, .v = f->factor};

    if (old->block > 0 ||
        (old->qparams.axis >= 0 &&
         (old->qparams.axis != f->axis || old->qparams.n != f->n)))
        return SB_OK;
    return sb_quant_known_scaled(qm, f->weight, name, f->axis, &factors);
}

static sb_status rename_reader(sb_quant_model *qm, const fused *f)
{
    for (size_t i = 0; i < qm->known.n; i++) {
        sb_known *k = &qm->known.v[i];
        for (size_t r = 0; r < k->n_readers; r++) {
            if (strcmp(k->readers[r], f->before) != 0)
                continue;
            k->readers[r] = sb_arena_str(&qm->arena, f->result);
            if (!k->readers[r])
                return SB_NO_MEMORY;
        }
    }
    return SB_OK;
}

/* Has the layer that now makes the result another weight? */
static sb_status follow(sb_quant_model *qm, const sb_graph *g, const fused *f)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = &g->nodes[i];

        if (node->dead || node->n_out == 0 || node->outputs[0] == SB_NONE ||
            strcmp(sb_graph_value(g, node->outputs[0])->name, f->result) != 0)
            continue;
        if (!sb_node_is(node, "BatchNormalization"))
            SB_TRY(rename_reader(qm, f));
        const sb_tensor *w = sb_const_of(g, sb_node_in(node, 1));
        if (!w || f->axis < 0 || channel_axis(node) != f->axis ||
            f->axis >= w->rank || w->dims[f->axis] != f->n)
            return SB_OK;
        return add_scaled(qm, f, sb_graph_value(g, node->inputs[1])->name);
    }
    return SB_OK;
}

static sb_status run_pass(sb_graph *g)
{
    sb_pass_result *results = NULL;
    size_t n = 0;

    SB_TRY(sb_passes_run(g, "simplify,fuse_bn", NULL, &results, &n));
    sb_free(g->ctx, results);
    return SB_OK;
}

sb_status sb_quant_fuse_bn(sb_quant_model *qm, sb_graph *g)
{
    fused *list = NULL;
    size_t n = 0, cap = 0;
    sb_status status = SB_OK;

    for (size_t i = 0; i < g->n_nodes && status == SB_OK; i++) {
        const sb_node *node = &g->nodes[i];
        fused f;

        if (qm->known.n == 0 || node->dead ||
            !sb_node_is(node, "BatchNormalization"))
            continue;
        status = read_fused(qm, g, node, &f);
        if (status == SB_OK && f.before)
            status = sb_grow(qm->ctx, &list, &cap, n + 1, sizeof *list);
        if (status == SB_OK && f.before)
            list[n++] = f;
    }
    if (status == SB_OK)
        status = run_pass(g);
    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = follow(qm, g, &list[i]);
    sb_free(qm->ctx, list);
    return status;
}
