/* Gemm as kernels for integer weights want it: y = A B + C with B [K, N].
 *
 * Files often hold B transposed, and factors beside it.  Where B is a constant
 * it is turned and multiplied here, once, before quantizers are placed; so
 * groups of rows of K are groups along axis 0 everywhere after.  Layers that
 * are to stay in float stay as they are: a head may share the memory of its
 * embedding. */
#include <string.h>

#include "base/threads.h"
#include "passes/rewrite.h"
#include "quant/model/quant_model.h"
#include "tensor/mapped.h"

enum { TURN_TILE = 16 };

/* to [K, N] = factor * from [N, K] or [K, N]. */
typedef struct turn_job {
    const char *from; /* floats anywhere in a mapped file */
    bool transposed;
    float factor;
    int64_t k, n;
    float *to;
} turn_job;

/* Items are tiles of N: what is written together lies together. */
static void turn_tiles(void *arg, size_t begin, size_t end)
{
    const turn_job *t = arg;
    int64_t k = t->k, n = t->n;

    for (size_t tile = begin; tile < end; tile++) {
        int64_t first = (int64_t)tile * TURN_TILE, last = first + TURN_TILE;

        last = last < n ? last : n;
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = first; j < last; j++) {
                int64_t at = t->transposed ? j * k + i : i * n + j;
                float w;

                memcpy(&w, t->from + (size_t)at * sizeof w, sizeof w);
                t->to[i * n + j] = t->factor * w;
            }
    }
}

static void canonicalize_gemm_turn(sb_ctx *ctx, turn_job *t)
{
    sb_parallel_for(ctx, (size_t)((t->n + TURN_TILE - 1) / TURN_TILE), 1,
                    turn_tiles, t);
}

static sb_status set_input(sb_graph *g, sb_node_id id, uint32_t input,
                           const sb_tensor *t)
{
    sb_value_id old = sb_graph_node(g, id)->inputs[input], value = SB_NONE;

    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, old)->name, &value));
    SB_TRY(sb_graph_set_constant(g, value, t));
    return sb_graph_set_input(g, id, input, value);
}

static bool is_f32(const sb_graph *g, sb_value_id v)
{
    return sb_is_const(g, v) &&
           sb_graph_value(g, v)->constant.dtype == SB_DTYPE_F32;
}

/* What is known of the weight `old`, which was turned (or not) and multiplied,
 * is known of that of the node. */
static sb_status canonicalize_gemm_follow(sb_quant_model *qm, sb_graph *g,
                                          sb_value_id old, sb_node_id id,
                                          bool transposed, float factor)
{
    const sb_imported_qparams *k = sb_imported_find(&qm->known, g, old);
    int axis = k ? k->qparams.axis : -1;
    const sb_rescale r = {.from = old,
                          .to = sb_graph_node(g, id)->inputs[1],
                          .axis = -1,
                          .factor = &factor,
                          .n = 1};

    return sb_imported_rescale(&qm->known, g, &r,
                               axis >= 0 && transposed ? 1 - axis : axis);
}

static sb_status turn_weight(sb_quant_model *qm, sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_tensor *w = &sb_graph_value(g, node->inputs[1])->constant;
    bool transposed = sb_node_int(node, "transB", 0) != 0;
    float alpha = sb_node_float(node, "alpha", 1);
    int64_t n = w->dims[transposed ? 0 : 1], k = w->dims[transposed ? 1 : 0];
    int64_t dims[2] = {k, n};
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 2, dims);

    if (!transposed && alpha == 1)
        return SB_OK;
    SB_TRY(sb_tensor_alloc_weight_raw(g->ctx, &t));
    canonicalize_gemm_turn(
        g->ctx, &(turn_job){w->data, transposed, alpha, k, n, t.data});
    sb_tensor_release_pages(w);
    sb_tensor_release_pages(&t);
    sb_value_id old = node->inputs[1];
    sb_status status = set_input(g, id, 1, &t);
    sb_tensor_drop(&t);
    if (status == SB_OK)
        status = canonicalize_gemm_follow(qm, g, old, id, transposed, alpha);
    if (status != SB_OK)
        return status;
    sb_graph_remove_attr(g, id, "transB");
    sb_graph_remove_attr(g, id, "alpha");
    return SB_OK;
}

static sb_status scale_bias(sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    float beta = sb_node_float(node, "beta", 1);
    sb_value_id c = sb_node_in(node, 2);

    if (beta == 1 || !is_f32(g, c))
        return SB_OK;
    const sb_tensor *b = &sb_graph_value(g, c)->constant;
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, b->rank, b->dims);
    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    canonicalize_gemm_turn(g->ctx, &(turn_job){b->data, false, beta, 1,
                                               sb_tensor_count(b), t.data});
    sb_status status = set_input(g, id, 2, &t);
    sb_tensor_drop(&t);
    if (status == SB_OK)
        sb_graph_remove_attr(g, id, "beta");
    return status;
}

bool sb_gemm_is_canonical(const sb_node *node)
{
    return sb_node_int(node, "transA", 0) == 0 &&
           sb_node_int(node, "transB", 0) == 0 &&
           sb_node_float(node, "alpha", 1) == 1 &&
           sb_node_float(node, "beta", 1) == 1;
}

sb_status sb_canonicalize_gemm(sb_quant_model *qm, sb_graph *g)
{
    for (size_t i = 0, n = g->n_nodes; i < n; i++) {
        sb_node_id id = (sb_node_id)i;
        const sb_node *node = sb_graph_node(g, id);

        /* By name: the attributes are those of Gemm and of nothing else. */
        if (node->dead || !sb_node_is(node, "Gemm") ||
            sb_quant_config_skips(qm->config, node) ||
            !is_f32(g, sb_node_in(node, 1)) ||
            sb_graph_value(g, node->inputs[1])->constant.rank != 2)
            continue;
        SB_TRY(turn_weight(qm, g, id));
        SB_TRY(scale_bias(g, id));
    }
    return SB_OK;
}
