/* Biases as int32 constants behind a DequantizeLinear (fit_bias.c), or left out
 * where there is nothing in them. */
#include <math.h>

#include "ops/op_registry.h"
#include "quant/calibrate/calibrate.h"
#include "quant/export/export.h"
#include "quant/model/overlay.h"
#include "tensor/mapped.h"

/* What is read back is a float again; large integers are those of that float,
 * so that they come out the same the next time. */
static int32_t bias_integer(float b, float scale)
{
    int32_t q = 0;

    for (int i = 0; i < 8; i++) {
        double r = rint((double)b / (double)scale);
        int32_t next = (int32_t)fmin(fmax(r, -2147483647.0), 2147483647.0);
        if (next == q)
            break;
        q = next;
        b = (float)q * scale;
    }
    return q;
}

static sb_status add_bias(const sb_quant_model *qm, sb_graph *g,
                          const sb_biased_layer *l)
{
    const sb_value *bias = sb_graph_value(qm->graph, l->bias);
    const sb_tensor *numbers = sb_overlay_constant(qm, l->bias);
    const sb_qparams *w = sb_quantizer_qparams(qm, l->w);
    size_t n = (size_t)l->n, n_scale = (size_t)w->n;
    int64_t dims[] = {w->n}, full[] = {l->n};
    int32_t *q = sb_alloc(qm->ctx, n, sizeof *q);
    int32_t *zero = sb_alloc(qm->ctx, n_scale, sizeof *zero);
    float *scale = sb_alloc(qm->ctx, n_scale, sizeof *scale);
    int rank = w->n == 1 ? 0 : 1;
    sb_value_id in[3], y = SB_NONE;
    sb_status status = q && zero && scale ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; status == SB_OK && i < n; i++)
        q[i] = bias_integer((float)sb_tensor_get_f64(numbers, (int64_t)i),
                            sb_biased_layer_scale(qm, l, (int64_t)i));
    for (size_t i = 0; status == SB_OK && i < n_scale; i++) {
        scale[i] = sb_biased_layer_scale(qm, l, (int64_t)i);
        status =
            sb_export_check_scale(qm->ctx, bias->name, (int64_t)i, scale[i]);
    }
    const sb_tensor ints = sb_tensor_make(SB_DTYPE_I32, 1, full);
    const sb_tensor params = sb_tensor_make(SB_DTYPE_F32, rank, dims);
    const sb_tensor zeros = sb_tensor_make(SB_DTYPE_I32, rank, dims);
    if (status == SB_OK)
        status = sb_export_array(g, bias->name, "_quantized", &ints, q, &in[0]);
    if (status == SB_OK)
        status =
            sb_export_array(g, bias->name, "_scale", &params, scale, &in[1]);
    if (status == SB_OK)
        status =
            sb_export_array(g, bias->name, "_zero_point", &zeros, zero, &in[2]);
    const sb_attr axis = {.name = "axis", .type = SB_ATTR_INT, .i = 0};
    const sb_node_spec spec = {.op = "DequantizeLinear",
                               .inputs = in,
                               .n_in = 3,
                               .attrs = &axis,
                               .n_attrs = 1};
    if (status == SB_OK)
        status = sb_export_node(g, l->use.node, &spec, l->bias, bias->name,
                                "_dequantized", &y);
    if (status == SB_OK)
        status = sb_graph_set_input(g, l->use.node, l->use.input, y);
    sb_free(qm->ctx, q);
    sb_free(qm->ctx, zero);
    sb_free(qm->ctx, scale);
    return status;
}

sb_status sb_export_biases(const sb_quant_model *qm, sb_graph *g)
{
    if (qm->target->bias != SB_BIAS_INT32)
        return SB_OK;
    for (size_t k = 0; k < qm->place.n_quantizers; k++) {
        sb_biased_layer l;

        if (sb_biased_layer_find(qm, &qm->place.quantizers[k], &l))
            SB_TRY(add_bias(qm, g, &l));
    }
    return SB_OK;
}

enum { BIAS_INPUT = 2 };

static bool bias_is_zero(const sb_graph *g, sb_value_id v)
{
    const sb_tensor *t = sb_const_of(g, v);
    bool zero = t && t->dtype == SB_DTYPE_F32;

    for (int64_t i = 0; zero && i < sb_tensor_count(t); i++)
        zero = sb_tensor_float(t, i) == 0;
    return zero;
}

sb_status sb_export_drop_biases(const sb_quant_model *qm, sb_graph *g)
{
    if (!sb_quant_config_schedule(qm->config).bias_correction ||
        sb_quant_config_mode(qm->config) == SB_QUANT_STATIC)
        return SB_OK;
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (!node->dead && node->n_in > BIAS_INPUT &&
            sb_node_role(node) == SB_ROLE_WEIGHTED &&
            bias_is_zero(g, sb_node_in(node, BIAS_INPUT)))
            SB_TRY(sb_graph_set_input(g, id, BIAS_INPUT, SB_NONE));
    }
    return SB_OK;
}
