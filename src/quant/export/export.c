/* Q/DQ graphs of calibrated models.
 *
 *     activation x  -> [Clip ->] QuantizeLinear -> DequantizeLinear -> consumer
 *     constant w    -> integers -> DequantizeLinear -> consumer
 *
 * One Q for each tensor; one DQ for each consumer where the target wants that.
 * Zero points and axes are always written: runtimes differ in what they
 * assume. */
#include "quant/export/export.h"

#include <math.h>
#include <string.h>

#include "graph/op.h"
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "quant/model/instrument.h"
#include "quant/model/overlay.h"
#include "quant/model/weight.h"
#include "quant/place/place.h"
#include "runtime/sim/sim.h"

typedef struct exporter {
    const sb_quant_model *qm;
    const sb_export_choice *choice;
    sb_graph *g;
    int64_t min_opset;
    bool silent; /* not what the user waits for */
} exporter;

/* ---- nodes -------------------------------------------------------------- */

/* Blocks, 4 and 16 bit came with opset 21, 2 bit with 25. */
static void raise_opset(exporter *e, const sb_quantizer *q)
{
    int bits = sb_dtype_get(sb_quantizer_type(e->qm, q).dtype)->bits;
    int64_t least = bits == 2 ? 25 : bits != 8 || q->block > 0 ? 21 : 0;

    e->min_opset = e->min_opset < least ? least : e->min_opset;
}

/* The value's name in the float graph: at outputs it changes on the way. */
static const char *base_name(const exporter *e, const sb_quantizer *q)
{
    return sb_graph_value(e->qm->graph, q->value)->name;
}

static sb_status add_qdq(exporter *e, const char *op, const sb_quantizer *q,
                         sb_node_id beside, const sb_value_id *in,
                         sb_dtype dtype, sb_value_id *out)
{
    sb_attr attrs[3] = {
        {.name = "axis", .type = SB_ATTR_INT, .i = q->axis < 0 ? 0 : q->axis}};
    sb_node_spec spec = {
        .op = op, .inputs = in, .n_in = 3, .attrs = attrs, .n_attrs = 1};

    if (q->block > 0)
        attrs[spec.n_attrs++] =
            (sb_attr){.name = "block_size", .type = SB_ATTR_INT, .i = q->block};
    if (e->choice->extra_info)
        attrs[spec.n_attrs++] =
            (sb_attr){.name = "bits", .type = SB_ATTR_INT, .i = q->spec.bits};
    SB_TRY(sb_export_node(e->g, beside, &spec, in[0], base_name(e, q),
                          dtype == SB_DTYPE_F32 ? "_dequantized" : "_quantized",
                          out));
    sb_graph_value(e->g, *out)->type.dtype = dtype;
    raise_opset(e, q);
    return SB_OK;
}

/* Keeps what is quantized within the bounds of a width that the type
 * exceeds. */
static sb_status add_clip(exporter *e, const sb_quantizer *q, sb_node_id beside,
                          sb_value_id x, sb_value_id *out)
{
    const sb_qparams *p = sb_quantizer_qparams(e->qm, q);
    sb_value_id in[3] = {x};

    if (p->n != 1)
        return sb_fail(e->qm->ctx, SB_UNSUPPORTED,
                       "quantizer '%s': activations of %d bit with a scale a "
                       "channel cannot be written; use per-tensor, or 8 bit",
                       q->name, p->bits);
    float lo = ((float)p->qmin - p->zero_point[0]) * p->scale[0];
    float hi = ((float)p->qmax - p->zero_point[0]) * p->scale[0];
    const sb_tensor scalar = sb_tensor_make(SB_DTYPE_F32, 0, NULL);
    SB_TRY(sb_export_array(e->g, base_name(e, q), "_clip_min", &scalar, &lo,
                           &in[1]));
    SB_TRY(sb_export_array(e->g, base_name(e, q), "_clip_max", &scalar, &hi,
                           &in[2]));
    const sb_node_spec spec = {.op = "Clip", .inputs = in, .n_in = 3};
    return sb_export_node(e->g, beside, &spec, x, base_name(e, q), "_clipped",
                          out);
}

/* ---- points -------------------------------------------------------------- */

/* What DequantizeLinear reads: integers, scale, zero point. */
static sb_status add_integers(exporter *e, const sb_quantizer *q,
                              sb_node_id beside, sb_value_id x, sb_value_id *in)
{
    sb_integer_type type = sb_quantizer_type(e->qm, q);
    sb_value_id from[3] = {x};
    sb_tensor w;

    SB_TRY(sb_export_params(e->g, e->qm, q, &in[1], &in[2]));
    from[1] = in[1];
    from[2] = in[2];
    if (!sb_quantizer_is_constant(e->qm, q)) {
        if (q->def->map_activation)
            SB_TRY(q->def->map_activation(&q->spec, e->g, beside, x, &from[0]));
        if (type.clip)
            SB_TRY(add_clip(e, q, beside, from[0], &from[0]));
        return add_qdq(e, "QuantizeLinear", q, beside, from, type.dtype,
                       &in[0]);
    }
    if (e->choice->float_weights && !q->def->map_weight)
        return add_qdq(e, "QuantizeLinear", q, beside, from, type.dtype,
                       &in[0]);
    SB_TRY(sb_quantizer_integers(e->qm, q, &w));
    sb_status status =
        sb_export_constant(e->g, base_name(e, q), "_quantized", &w, &in[0]);
    sb_tensor_drop(&w);
    return status;
}

static sb_status add_dequantize(exporter *e, const sb_quantizer *q,
                                sb_node_id beside, const sb_value_id *in,
                                sb_value_id *out)
{
    SB_TRY(add_qdq(e, "DequantizeLinear", q, beside, in, SB_DTYPE_F32, out));
    return SB_OK;
}

/* The pair's result takes the place and the name of the output. */
static sb_status move_output(exporter *e, const sb_quantizer *q, sb_value_id y)
{
    sb_value_id spare = SB_NONE;

    SB_TRY(sb_quant_add_value(e->g, base_name(e, q), "_float", &spare));
    return sb_quant_move_output_as(e->g, q->value, y, spare);
}

/* Points the consumers of one quantizer at DQ nodes: one each, or *shared. */
static sb_status export_redirect(exporter *e, const sb_quantizer *q,
                                 const sb_value_id *in, sb_value_id *shared)
{
    bool each = e->qm->target->one_dq_per_use;
    sb_node_id beside = sb_quantizer_beside(e->g, q);
    sb_value_id y = *shared;

    for (size_t i = 0; i < q->n_uses; i++) {
        if (each || y == SB_NONE)
            SB_TRY(add_dequantize(e, q, q->uses[i].node, in, &y));
        SB_TRY(sb_graph_set_input(e->g, q->uses[i].node, q->uses[i].input, y));
    }
    if (q->at_output) {
        if (each || y == SB_NONE)
            SB_TRY(add_dequantize(e, q, beside, in, &y));
        SB_TRY(move_output(e, q, y));
    }
    *shared = y;
    return SB_OK;
}

static sb_status export_point(exporter *e, uint32_t point)
{
    const sb_quant_model *qm = e->qm;
    sb_value_id in[3] = {SB_NONE, SB_NONE, SB_NONE}, shared = SB_NONE;
    const sb_quantizer *q;

    for (uint32_t i = qm->place.points[point].head; i != SB_NONE; i = q->next) {
        q = &qm->place.quantizers[i];
        if (sb_quantizer_is_off(qm, q) || q->spec.dynamic)
            continue;
        if (sb_quantizer_qparams(qm, q)->n == 0)
            return sb_fail(qm->ctx, SB_BAD_ARG,
                           "quantizer '%s' has no scale yet: calibrate before "
                           "exporting",
                           q->name);
        if (sb_quantizer_is_dynamic(qm, q)) /* written with its layer */
            continue;
        if (in[0] == SB_NONE)
            SB_TRY(
                add_integers(e, q, sb_quantizer_beside(e->g, q), q->value, in));
        SB_TRY(export_redirect(e, q, in, &shared));
    }
    return SB_OK;
}

/* ---- the file's facts --------------------------------------------------- */

/* The batch that the file had, if it was let go for calibration. */
static void restore_batch(const exporter *e)
{
    const sb_quant_model *qm = e->qm;

    if (qm->file_batch == 0 || qm->fixed_batch != 0)
        return;
    for (size_t i = 0; i < e->g->n_inputs; i++) {
        sb_value *v = sb_graph_value(e->g, e->g->inputs[i]);
        if (!v->is_constant && v->type.shape.rank > 0)
            v->type.shape.dim[0] = qm->batches[i];
    }
}

/* Is it the first quantizer of its value that is not off? */
static bool speaks_for_value(const sb_quant_model *qm, size_t index)
{
    const sb_placement *p = &qm->place;
    sb_value_id value = p->quantizers[index].value;

    for (uint32_t k = p->of_value[value].first; k != SB_NONE;
         k = p->points[k].next)
        for (uint32_t i = p->points[k].head; i < index;
             i = p->quantizers[i].next)
            if (!sb_quantizer_is_off(qm, &p->quantizers[i]))
                return false;
    return !sb_quantizer_is_off(qm, &p->quantizers[index]);
}

/* {"value": bits, ...} */
static void export_describe(const sb_quant_model *qm, sb_str *text)
{
    bool first = true;

    sb_str_add(text, "{");
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        if (!speaks_for_value(qm, i))
            continue;
        sb_str_add(text, first ? "" : ",");
        sb_str_add_json(text, sb_graph_value(qm->graph, q->value)->name);
        sb_str_addf(text, ":%d", q->spec.bits);
        first = false;
    }
    sb_str_add(text, "}");
}

/* Target and widths go into the metadata, where every tool can read them. */
static sb_status add_metadata(exporter *e)
{
    sb_graph *g = e->g;
    size_t n = 0;
    sb_prop *props =
        sb_arena_alloc(g->arena, g->n_model_props + 2, sizeof *props);
    sb_str text;

    if (!props)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_model_props; i++)
        if (strcmp(g->model_props[i].key, "sparsebit.target") != 0 &&
            strcmp(g->model_props[i].key, "sparsebit.bits") != 0)
            props[n++] = g->model_props[i];
    sb_str_init(&text, g->ctx);
    export_describe(e->qm, &text);
    props[n++] = (sb_prop){"sparsebit.target",
                           sb_arena_str(g->arena, e->qm->target->name)};
    props[n++] =
        (sb_prop){"sparsebit.bits", sb_arena_str(g->arena, sb_str_text(&text))};
    sb_status status = sb_str_status(&text);
    sb_str_free(&text);
    if (status != SB_OK)
        return status;
    if (!props[n - 1].value || !props[n - 2].value)
        return SB_NO_MEMORY;
    g->model_props = props;
    g->n_model_props = n;
    return SB_OK;
}

/* Modes that calibrate nothing, and their formats. */
static sb_status build_uncalibrated(exporter *e)
{
    const sb_quant_model *qm = e->qm;

    SB_TRY(sb_export_dynamic(qm, e->g));
    if (e->choice->format == SB_EXPORT_FORMAT_MATMULNBITS)
        SB_TRY(sb_export_nbits(qm, e->g, e->choice->accuracy_level));
    (void)sb_graph_remove_dead(e->g);
    return SB_OK;
}

/* Weights may keep scales below 0 that their file had, or that blocks take:
 * some tools write them so as to use all codes of a type that has one more
 * below 0 than above. */
static sb_status check_scales(const sb_quant_model *qm)
{
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        const sb_qparams *p = sb_quantizer_qparams(qm, q);
        bool from_file = q->blocks || (sb_quantizer_is_constant(qm, q) &&
                                       qm->place.points[q->point].known);

        for (int64_t c = 0; c < p->n && !sb_quantizer_is_off(qm, q); c++)
            SB_TRY(sb_export_check_scale(
                qm->ctx, sb_graph_value(qm->graph, q->value)->name, c,
                from_file ? fabsf(p->scale[c]) : p->scale[c]));
    }
    return SB_OK;
}

static bool has_qoperator(const sb_target_def *target)
{
    return target->qoperator;
}

static sb_status refuse_qoperator(const sb_quant_model *qm)
{
    sb_str others;

    sb_str_init(&others, qm->ctx);
    sb_target_list(&others, has_qoperator, "or");
    sb_status status = sb_str_status(&others);
    if (status == SB_OK)
        status = sb_fail(qm->ctx, SB_BAD_ARG,
                         "format qoperator is what ONNX Runtime runs: it needs "
                         "target %s, not %s",
                         sb_str_text(&others), qm->target->name);
    sb_str_free(&others);
    return status;
}

static sb_status check_qoperator(const sb_quant_model *qm)
{
    if (!qm->target->qoperator)
        return refuse_qoperator(qm);
    if (sb_quant_config_mode(qm->config) != SB_QUANT_STATIC)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "format qoperator needs calibrated activations, not "
                       "the `A: none` or `A: dynamic` of %s",
                       sb_quant_config_file(qm->config));
    return SB_OK;
}

/* What ONNX Runtime makes of the Q/DQ nodes when it loads them. */
static sb_status use_integer_operators(exporter *e)
{
    SB_TRY(sb_sim_to_integer(e->g, e->qm->target));
    (void)sb_graph_remove_dead(e->g);
    return SB_OK;
}

/* All Q and DQ nodes. */
static sb_status export_points(exporter *e)
{
    for (size_t i = 0; i < e->qm->place.n_points; i++) {
        SB_TRY(e->silent ? sb_ctx_poll(e->qm->ctx)
                         : sb_progress(e->qm->ctx, "export", i,
                                       e->qm->place.n_points));
        SB_TRY(export_point(e, (uint32_t)i));
    }
    SB_TRY(sb_export_biases(e->qm, e->g));
    return sb_export_floats(e->qm, e->g);
}

/* These, and tables behind them. */
static sb_status export_points_and_tables(exporter *e)
{
    SB_TRY(export_points(e));
    if (!e->qm->target->ops &&
        sb_quant_config_mode(e->qm->config) != SB_QUANT_DYNAMIC)
        return SB_OK;
    return sb_export_tables(e->qm, e->g, &e->min_opset);
}

static sb_status export_build(exporter *e)
{
    SB_TRY(export_points_and_tables(e));
    if (sb_quant_config_mode(e->qm->config) != SB_QUANT_STATIC)
        SB_TRY(build_uncalibrated(e));
    restore_batch(e);
    SB_TRY(sb_graph_infer(e->g));
    if (e->qm->target->passes)
        SB_TRY(sb_passes_run(e->g, e->qm->target->passes, NULL, NULL, NULL));
    if (e->choice->opset)
        SB_TRY(sb_graph_decompose(e->g, e->choice->opset));
    else if (sb_graph_wants_decompose(e->g))
        SB_TRY(sb_passes_run(e->g, "decompose", NULL, NULL, NULL));
    if (e->choice->format == SB_EXPORT_FORMAT_QOPERATOR)
        SB_TRY(use_integer_operators(e));
    return add_metadata(e);
}

/* The lowest opset that holds the graph: what the nodes need, and the types of
 * Q and DQ. */
static sb_status export_opset(const exporter *e, sb_graph *g,
                              int64_t *min_opset)
{
    int64_t least = sb_graph_min_opset(g), opset = e->choice->opset;

    if (opset && opset < e->min_opset)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "opset %lld cannot hold these QuantizeLinear and "
                       "DequantizeLinear nodes, which need opset %lld",
                       (long long)opset, (long long)e->min_opset);
    if (opset) {
        SB_TRY(sb_graph_check_opset(g, opset));
        g->file_opset = opset;
    }
    *min_opset = least > e->min_opset ? least : e->min_opset;
    return SB_OK;
}

static sb_status export_write(exporter *e, sb_graph **out, int64_t *min_opset)
{
    SB_TRY(sb_graph_clone(e->qm->graph, &e->g));
    sb_status status = sb_overlay_apply(e->qm, e->g);
    if (status == SB_OK)
        status = sb_export_drop_biases(e->qm, e->g);
    if (status == SB_OK)
        status = export_build(e);
    if (status == SB_OK)
        status = sb_graph_clone_sorted(e->g, out);
    if (status == SB_OK) {
        status = export_opset(e, *out, min_opset);
        if (status != SB_OK) {
            sb_graph_free(*out);
            *out = NULL;
        }
    }
    sb_graph_free(e->g);
    return status;
}

sb_status sb_export_check(const sb_quant_model *qm,
                          const sb_export_choice *choice)
{
    if (choice->format == SB_EXPORT_FORMAT_QOPERATOR)
        SB_TRY(check_qoperator(qm));
    if (choice->format == SB_EXPORT_FORMAT_MATMULNBITS &&
        sb_quant_config_mode(qm->config) != SB_QUANT_WEIGHTS_ONLY)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "format matmulnbits holds integer weights and float "
                       "activations: it needs `A: none` in %s",
                       sb_quant_config_file(qm->config));
    if (qm->blocks && choice->format != SB_EXPORT_FORMAT_MATMULNBITS)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "blocks of GGUF files are written in format "
                       "matmulnbits, no other holds them");
    return SB_OK;
}

sb_status sb_export_graph(const sb_quant_model *qm,
                          const sb_export_choice *choice, sb_graph **out,
                          int64_t *min_opset)
{
    exporter e = {.qm = qm, .choice = choice, .min_opset = qm->target->opset};
    sb_quant_model *deployed = NULL;
    sb_status status;

    SB_TRY(sb_export_check(qm, choice));
    SB_TRY(check_scales(qm));
    SB_TRY(sb_export_deploy(qm, &deployed));
    e.qm = deployed ? deployed : qm;
    status = export_write(&e, out, min_opset);
    sb_export_deployed_free(deployed);
    return status;
}

sb_status sb_export_integers(const sb_quant_model *qm, sb_graph **out)
{
    const sb_export_choice choice = {.format = SB_EXPORT_FORMAT_QOPERATOR};
    exporter e = {.qm = qm, .choice = &choice, .silent = true};

    SB_TRY(check_scales(qm));
    SB_TRY(sb_graph_clone(qm->graph, &e.g));
    sb_status status = sb_overlay_apply(qm, e.g);
    if (status == SB_OK)
        status = export_points_and_tables(&e);
    if (status == SB_OK)
        status = sb_graph_infer(e.g);
    if (status == SB_OK)
        status = use_integer_operators(&e);
    if (status == SB_OK)
        *out = e.g;
    else
        sb_graph_free(e.g);
    return status;
}
