/* Factors in front of matrix products.
 *
 * What LayerNormalization makes is often read by a residual sum, too, and
 * between a layer and the next may be a function that knows no factors (Gelu):
 * there no constant can be divided.  But where an operator runs in float, and
 * its result is rounded only to be multiplied with a matrix, one more product
 * in float is little beside that of the matrix.  So the network gets one. */
#include <math.h>
#include <string.h>

#include "passes/rewrite.h"
#include "quant/correct/correct.h"
#include "quant/correct/equalize.h"
#include "quant/model/instrument.h"
#include "quant/place/place.h"

/* ---- where -------------------------------------------------------------- */

/* Does an operator make it that reads nothing that is rounded? */
static bool factors_after_float(const sb_quant_model *qm, sb_value_id v)
{
    sb_node_id id = sb_graph_value(qm->graph, v)->producer;
    bool plain = id != SB_NONE;

    for (uint32_t i = 0; plain && i < sb_graph_node(qm->graph, id)->n_in; i++)
        plain = !sb_quantizer_on(qm, id, i);
    return plain;
}

/* Are all edges of the point such of matrix products on integers? */
static bool factors_set_readers(const sb_quant_model *qm, uint32_t point,
                                sb_link *l)
{
    const sb_quantizer *q;

    for (uint32_t i = qm->place.points[point].head; i != SB_NONE; i = q->next) {
        q = &qm->place.quantizers[i];
        if (q->fake_fused || q->at_output)
            return false;
        for (size_t k = 0; k < q->n_uses; k++)
            if (l->n_readers == SB_LINK_READERS ||
                !sb_link_takes(qm, l, q->uses[k], &l->readers[l->n_readers++]))
                return false;
    }
    return l->n_readers > 0;
}

bool sb_factors_find(const sb_quant_model *qm, uint32_t point, sb_link *out)
{
    const sb_quant_point *p = &qm->place.points[point];
    const sb_value *v = sb_graph_value(qm->graph, p->value);
    const int axis = v->type.shape.rank - 1;

    if (v->is_constant || p->natural || axis < 1 ||
        v->type.shape.dim[axis] < 1 ||
        qm->place.of_value[p->value].first !=
            qm->place.of_value[p->value].last ||
        !sb_link_observable(qm, p->value) || !factors_after_float(qm, p->value))
        return false;
    *out = (sb_link){.value = p->value,
                     .axis = axis,
                     .channels = v->type.shape.dim[axis],
                     .bound = HUGE_VAL,
                     .maker = SB_NONE,
                     .weight = SB_NONE,
                     .bias = SB_NONE};
    return factors_set_readers(qm, point, out);
}

/* ---- putting them there, and taking them away --------------------------- */

/* What is kept by value gets room for `more` of them. */
static sb_status factors_make_room(sb_quant_model *qm, size_t more)
{
    const size_t n = qm->graph->n_values, all = n + more + 1;
    struct sb_value_points *of = sb_alloc(qm->ctx, all, sizeof *of);
    sb_tensor *overlay = sb_alloc(qm->ctx, all, sizeof *overlay);

    if (!of || !overlay) {
        sb_free(qm->ctx, of);
        sb_free(qm->ctx, overlay);
        return SB_NO_MEMORY;
    }
    memcpy(of, qm->place.of_value, n * sizeof *of);
    memcpy(overlay, qm->state.overlay, n * sizeof *overlay);
    for (size_t v = n; v < all; v++)
        of[v].first = of[v].last = SB_NONE;
    sb_free(qm->ctx, qm->place.of_value);
    sb_free(qm->ctx, qm->state.overlay);
    qm->place.of_value = of;
    qm->state.overlay = overlay;
    return SB_OK;
}

/* The edges of a point, and what is known of it, are those of value `to`. */
static sb_status factors_move(sb_quant_model *qm, uint32_t point,
                              sb_value_id to)
{
    sb_placement *p = &qm->place;
    const sb_value_id from = p->points[point].value;

    for (uint32_t i = p->points[point].head; i != SB_NONE;
         i = p->quantizers[i].next) {
        sb_quantizer *q = &p->quantizers[i];

        for (size_t k = 0; k < q->n_uses; k++)
            SB_TRY(sb_graph_set_input(qm->graph, q->uses[k].node,
                                      q->uses[k].input, to));
        q->value = to;
    }
    p->points[point].value = to;
    p->of_value[from].first = p->of_value[from].last = SB_NONE;
    p->of_value[to].first = p->of_value[to].last = point;
    return SB_OK;
}

static sb_status factors_add_constant(sb_graph *g, const char *base,
                                      const float *scales, int64_t n,
                                      sb_value_id *out)
{
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 1, &n);

    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    for (int64_t c = 0; c < n; c++)
        ((float *)t.data)[c] = 1 / scales[c];
    sb_status status = sb_quant_add_value(g, base, ".factors", out);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, *out, &t);
    sb_tensor_drop(&t);
    return status;
}

sb_status sb_factors_put(sb_quant_model *qm, const sb_link *l,
                         const float *scales, sb_value_id *out)
{
    const uint32_t point = qm->place.of_value[l->value].first;
    const char *base = sb_graph_value(qm->graph, l->value)->name;
    sb_value_id in[2] = {l->value, SB_NONE}, y = SB_NONE;
    const sb_node_spec spec = {.op = "Mul", .inputs = in, .n_in = 2};

    SB_TRY(factors_make_room(qm, 2));
    SB_TRY(factors_add_constant(qm->graph, base, scales, l->channels, &in[1]));
    SB_TRY(sb_quant_add_value(qm->graph, base, ".scaled", &y));
    SB_TRY(
        sb_quant_put_node(qm->graph, l->readers[0].node, &spec, l->value, y));
    SB_TRY(factors_move(qm, point, y));
    qm->place.points[point].unscaled = l->value;
    *out = y;
    return SB_OK;
}

void sb_factors_take_back(sb_quant_model *qm, size_t n_nodes)
{
    for (uint32_t i = 0; i < qm->place.n_points; i++) {
        sb_quant_point *p = &qm->place.points[i];
        sb_node_id id = sb_graph_value(qm->graph, p->value)->producer;

        if (p->unscaled == SB_NONE || id == SB_NONE || id < n_nodes)
            continue;
        (void)factors_move(qm, i, p->unscaled);
        p->unscaled = SB_NONE;
    }
    for (sb_node_id id = (sb_node_id)n_nodes; id < qm->graph->n_nodes; id++)
        sb_graph_remove_node(qm->graph, id);
    sb_graph_trim(qm->graph);
}
