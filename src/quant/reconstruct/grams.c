/* Gram matrices of the inputs of layers, summed up by nodes of the network:
 * memory depends on the layers, not on the number of samples. */
#include <string.h>

#include "ops/op_registry.h"
#include "quant/correct/correct.h"
#include "quant/reconstruct/reconstruct.h"

/* ---- layers ------------------------------------------------------------- */

static bool layer_set_conv(const sb_tensor *w, const sb_node *node,
                           sb_round_layer *out, const char **why_not)
{
    if (sb_op_weight_axis(node, w->rank) != 0) {
        *why_not = "it is a transposed convolution";
        return false;
    }
    out->groups = sb_node_int(node, "group", 1);
    if (out->groups < 1 || w->dims[0] % out->groups != 0) {
        *why_not = "its groups do not divide its channels";
        return false;
    }
    out->conv = true;
    out->rows = w->dims[0] / out->groups;
    out->cols = sb_dims_product(w->dims, 1, w->rank);
    return true;
}

static bool layer_set_product(const sb_tensor *w, const sb_node *node,
                              sb_round_layer *out, const char **why_not)
{
    if (w->rank != 2 || sb_node_int(node, "transA", 0) != 0) {
        *why_not = w->rank != 2 ? "its weight is a stack of matrices"
                                : "its input is transposed";
        return false;
    }
    out->transposed = sb_op_weight_axis(node, 2) == 1;
    out->groups = 1;
    out->rows = w->dims[out->transposed ? 1 : 0];
    out->cols = w->dims[out->transposed ? 0 : 1];
    return true;
}

bool sb_round_layer_set(const sb_graph *g, sb_node_id id, sb_value_id weight,
                        sb_round_layer *out, const char **why_not)
{
    const sb_node *node = id != SB_NONE ? sb_graph_node(g, id) : NULL;
    const sb_tensor *w = &sb_graph_value(g, weight)->constant;

    *out = (sb_round_layer){.node = id, .weight = weight};
    if (!node || sb_node_role(node) != SB_ROLE_WEIGHTED ||
        sb_node_in(node, 1) != weight) {
        *why_not = "it is not the weight of a convolution or matrix product";
        return false;
    }
    if (sb_graph_value(g, weight)->n_uses != 1) {
        *why_not = "several layers share it";
        return false;
    }
    return sb_node_flag(node, SB_OP_CONV)
               ? layer_set_conv(w, node, out, why_not)
               : layer_set_product(w, node, out, why_not);
}

bool sb_round_layer_find(const sb_quant_model *qm, const sb_quantizer *q,
                         sb_round_layer *out, const char **why_not)
{
    bool found =
        sb_round_layer_set(qm->graph, q->n_uses > 0 ? q->uses[0].node : SB_NONE,
                           q->value, out, why_not);

    out->q = q;
    return found;
}

/* ---- the list ----------------------------------------------------------- */

bool sb_round_fits_bias(const sb_quant_model *qm, const sb_round_layer *layer)
{
    sb_bias_layer found;

    return sb_quant_config_schedule(qm->config).bias_correction &&
           sb_bias_layer_find(qm->graph, layer->node, &found);
}

static bool grams_biased(const sb_grams *list, const sb_round_layer *layer)
{
    return list->fit && sb_round_fits_bias(list->qm, layer);
}

/* Sums that serve the layer as well: those of products of the same value,
 * behind the same quantizer. */
static sb_gram *grams_find(const sb_grams *list, const sb_round_layer *layer)
{
    const sb_graph *g = list->qm->graph;
    sb_value_id x = sb_graph_node(g, layer->node)->inputs[0];

    for (size_t i = 0; i < list->n && !layer->conv; i++)
        if (!list->v[i].conv && list->v[i].x == x &&
            list->v[i].biased == grams_biased(list, layer) &&
            list->qm->place.of_value[x].first ==
                list->qm->place.of_value[x].last)
            return &list->v[i];
    return NULL;
}

/* Elements of the sums of one kind. */
static size_t grams_elements(const sb_grams *list, const sb_round_layer *layer)
{
    size_t size = (size_t)layer->cols + grams_biased(list, layer);

    return (size_t)layer->groups * size * size;
}

size_t sb_grams_bytes(const sb_grams *list, const sb_round_layer *layer)
{
    size_t kinds = list->fit ? 2 : 1;

    return grams_find(list, layer)
               ? 0
               : kinds * grams_elements(list, layer) * sizeof(float);
}

/* Have the products that read what the layer reads more rows than columns in
 * all?  Those that are done already count, so that a run that goes on computes
 * as one that was not ended. */
static bool grams_many(const sb_grams *list, const sb_round_layer *layer)
{
    const sb_graph *g = list->qm->graph;
    const sb_value *x =
        sb_graph_value(g, sb_graph_node(g, layer->node)->inputs[0]);
    sb_round_layer other;
    const char *why_not;
    int64_t rows = 0;

    for (uint32_t i = 0; i < x->n_uses; i++) {
        sb_value_id w = sb_node_in(sb_graph_node(g, x->uses[i].node), 1);

        if (w != SB_NONE && sb_graph_value(g, w)->is_constant &&
            sb_round_layer_set(g, x->uses[i].node, w, &other, &why_not))
            rows += other.rows;
    }
    return !layer->conv && layer->groups == 1 && rows >= layer->cols;
}

sb_status sb_grams_add(sb_grams *list, sb_round_layer *layer)
{
    const sb_gram *found = grams_find(list, layer);
    size_t bytes = sb_grams_bytes(list, layer);
    size_t n = grams_elements(list, layer);

    if (found) {
        layer->gram = (uint32_t)(found - list->v);
        return SB_OK;
    }
    SB_TRY(sb_grow(list->qm->ctx, &list->v, &list->cap, list->n + 1,
                   sizeof *list->v));
    sb_gram gram = {
        .x = sb_graph_node(list->qm->graph, layer->node)->inputs[0],
        .conv = layer->conv,
        .parts = layer->parts,
        .biased = grams_biased(list, layer),
        .upper = true,
        .many = grams_many(list, layer),
        .brief = !list->qm->exact,
        .groups = layer->groups,
        .cols = layer->cols,
        .node = layer->node,
        .weight = layer->weight,
        .sums = sb_alloc(list->qm->ctx, n, sizeof(float)),
    };
    if (list->fit) {
        size_t means = 2 * (size_t)(layer->groups * layer->cols);
        gram.cross = sb_alloc(list->qm->ctx, n, sizeof(float));
        gram.means = sb_alloc(list->qm->ctx, means, sizeof(float));
    }
    layer->gram = (uint32_t)list->n;
    list->v[list->n++] = gram;
    list->bytes += bytes;
    bool all = gram.sums && (!list->fit || (gram.cross && gram.means));
    return all ? SB_OK : SB_NO_MEMORY;
}

void sb_grams_clear(sb_grams *list)
{
    for (size_t i = 0; i < list->n; i++) {
        sb_free(list->qm->ctx, list->v[i].sums);
        sb_free(list->qm->ctx, list->v[i].cross);
        sb_free(list->qm->ctx, list->v[i].means);
    }
    sb_free(list->qm->ctx, list->v);
    *list = (sb_grams){.qm = list->qm, .fit = list->fit};
}

/* ---- running ------------------------------------------------------------ */

/* Of an image, for convolutions: more for larger matrices. */
static int64_t grams_places(const sb_gram *gram)
{
    enum { LEAST = 32, MOST = 256 };
    int64_t n = 2 * gram->cols;

    return n < LEAST ? LEAST : n > MOST ? MOST : n;
}

/* A Gram node beside the layer, which reads what the layer reads, and `y`
 * unless that is SB_NONE; `io` are its sums and count, before and after. */
static sb_status grams_put(sb_graph *g, const sb_gram *gram, sb_value_id y,
                           sb_value_id io[4])
{
    const sb_node layer = *sb_graph_node(g, gram->node);
    const int64_t size = gram->cols + gram->biased;
    const sb_shape sums = {.rank = 3, .dim = {gram->groups, size, size}};
    const sb_shape one = {.rank = 1, .dim = {1}};
    sb_node_id made = SB_NONE;

    for (int k = 0; k < 4; k++) {
        SB_TRY(sb_graph_add_value(g, NULL, &io[k]));
        sb_graph_value(g, io[k])->type =
            (sb_type){.dtype = SB_DTYPE_F32, .shape = k % 2 == 0 ? sums : one};
    }
    const sb_value_id in[] = {io[0], io[1], layer.inputs[0], gram->weight, y};
    const sb_node_spec spec = {
        .op = "Gram",
        .domain = SB_FUSED_DOMAIN,
        .name = layer.name,
        .inputs = in,
        .n_in = y == SB_NONE ? 4 : 5,
        .outputs = io + 2,
        .n_out = 2,
        .attrs = gram->conv ? layer.attrs : NULL,
        .n_attrs = gram->conv ? layer.n_attrs : 0,
        .position = layer.position,
    };
    SB_TRY(sb_graph_add_node(g, &spec, &made));
    SB_TRY(sb_graph_set_attr_int(g, made, "ones", gram->biased));
    SB_TRY(sb_graph_set_attr_int(g, made, "upper", gram->upper));
    if (gram->parts)
        SB_TRY(sb_graph_set_attr_int(g, made, "group", gram->groups));
    return gram->conv
               ? sb_graph_set_attr_int(g, made, "places", grams_places(gram))
               : sb_graph_set_attr_int(g, made, "rows", 1);
}

/* One node; `sums` and `count` are where its two states are. */
static sb_status grams_bind(sb_graph *g, const sb_gram *gram, sb_value_id y,
                            float *sums, float *count, sb_state *states,
                            sb_exec_state *bound)
{
    const int64_t size = gram->cols + gram->biased, one = 1;
    const int64_t dims[] = {gram->groups, size, size};
    sb_value_id io[4];

    SB_TRY(grams_put(g, gram, y, io));
    for (size_t k = 0; k < 2; k++) {
        SB_TRY(sb_graph_add_input(g, io[k]));
        SB_TRY(sb_graph_add_output(g, io[2 + k]));
        states[k].t = k == 0 ? sb_tensor_make(SB_DTYPE_F32, 3, dims)
                             : sb_tensor_make(SB_DTYPE_F32, 1, &one);
        states[k].t.data = k == 0 ? sums : count;
        bound[k] = (sb_exec_state){io[k], io[2 + k], &states[k]};
    }
    return SB_OK;
}

sb_status sb_gram_nodes(sb_graph *g, sb_gram *grams, size_t n, sb_state *states,
                        sb_exec_state *bound)
{
    sb_graph_clear_outputs(g);
    for (size_t i = 0; i < n; i++)
        SB_TRY(grams_bind(g, &grams[i], SB_NONE, grams[i].sums, &grams[i].count,
                          &states[2 * i], &bound[2 * i]));
    return SB_OK;
}

void sb_gram_mirror(sb_gram *gram)
{
    int64_t n = gram->cols + gram->biased;

    for (int64_t g = 0; g < gram->groups; g++) {
        float *sums = gram->sums + g * n * n;

        for (int64_t i = 1; i < n; i++)
            for (int64_t j = 0; j < i; j++)
                sums[i * n + j] = sums[j * n + i];
    }
}

/* What the layer reads in float, as an input. */
static sb_status grams_add_float(const sb_grams *list, size_t i, sb_graph *g,
                                 sb_value_id *y)
{
    SB_TRY(sb_graph_add_value(g, NULL, y));
    sb_graph_value(g, *y)->type =
        sb_graph_value(list->qm->graph, list->v[i].x)->type;
    return sb_graph_add_input(g, *y);
}

/* Inputs of the model, then what layers read in float, then states. */
sb_status sb_grams_attach(const sb_grams *list, const sb_graph_part *part,
                          sb_graph *g, sb_state *states, sb_exec_state *bound,
                          float *spare, size_t *n_states)
{
    size_t n = list->fit ? list->n : 0, at = 0;
    sb_value_id *y = sb_alloc(g->ctx, n + 1, sizeof *y);
    sb_status status = y ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = grams_add_float(list, i, g, &y[i]);
    for (size_t i = 0; i < list->n + n && status == SB_OK; i++, at += 2) {
        bool cross = i >= list->n;
        sb_gram gram = list->v[cross ? i - list->n : i];

        gram.node = sb_graph_part_node(part, gram.node);
        gram.weight = sb_graph_part_value(part, gram.weight);
        status = grams_bind(g, &gram, cross ? y[i - list->n] : SB_NONE,
                            cross ? gram.cross : gram.sums,
                            cross ? spare : &list->v[i].count, &states[at],
                            &bound[at]);
    }
    *n_states = at;
    sb_free(g->ctx, y);
    return status;
}
