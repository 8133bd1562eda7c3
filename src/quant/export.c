/* Q/DQ graphs of calibrated models.
 *
 *     activation x   -> [Clip ->] QuantizeLinear -> DequantizeLinear -> reader
 *     constant w     -> integers -> DequantizeLinear -> reader
 *
 * One Q a tensor; one DQ a reader where the target wants that.  Zero points
 * and axes are always written: runtimes differ in what they assume. */
#include "quant/export.h"

#include <string.h>

#include "graph/op.h"
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "quant/dynamic.h"

typedef struct exporter {
    const sb_quant_model *qm;
    const sb_export_choice *choice;
    sb_graph *g;
    int64_t min_opset;
} exporter;

/* ---- nodes -------------------------------------------------------------- */

/* Blocks, 4 and 16 bit came with opset 21, 2 bit with 25. */
static void raise_opset(exporter *e, const sb_quantizer *q)
{
    int bits = sb_dtype_get(sb_export_type_of(e->qm, q).dtype)->bits;
    int64_t least = bits == 2 ? 25 : bits != 8 || q->block > 0 ? 21 : 0;

    e->min_opset = e->min_opset < least ? least : e->min_opset;
}

/* The value's name in the float graph: at outputs it changes on the way. */
static const char *base_name(const exporter *e, const sb_quantizer *q)
{
    return sb_graph_value(e->qm->graph, q->value)->name;
}

static sb_status add_qdq(exporter *e, const char *op, const sb_quantizer *q,
                         sb_node_id like, const sb_value_id *in, sb_dtype dtype,
                         sb_value_id *out)
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
    SB_TRY(sb_export_node(e->g, like, &spec, in[0], base_name(e, q),
                          dtype == SB_DTYPE_F32 ? "_dequantized" : "_quantized",
                          out));
    sb_graph_value(e->g, *out)->type.dtype = dtype;
    raise_opset(e, q);
    return SB_OK;
}

/* Keeps what is quantized within the bounds of a width that the type
 * exceeds. */
static sb_status add_clip(exporter *e, const sb_quantizer *q, sb_node_id like,
                          sb_value_id x, sb_value_id *out)
{
    const sb_qparams *p = &q->qparams;
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
    return sb_export_node(e->g, like, &spec, x, base_name(e, q), "_clipped",
                          out);
}

/* ---- sites -------------------------------------------------------------- */

/* What DequantizeLinear reads: integers, scale, zero point. */
static sb_status add_integers(exporter *e, const sb_quantizer *q,
                              sb_node_id like, sb_value_id x, sb_value_id *in)
{
    sb_export_type type = sb_export_type_of(e->qm, q);
    sb_value_id from[3] = {x};
    sb_tensor w;

    SB_TRY(sb_export_params(e->g, e->qm, q, &in[1], &in[2]));
    from[1] = in[1];
    from[2] = in[2];
    if (!sb_quantizer_is_constant(e->qm, q)) {
        if (type.clip)
            SB_TRY(add_clip(e, q, like, x, &from[0]));
        return add_qdq(e, "QuantizeLinear", q, like, from, type.dtype, &in[0]);
    }
    if (e->choice->float_weights && !q->def->map_weight)
        return add_qdq(e, "QuantizeLinear", q, like, from, type.dtype, &in[0]);
    SB_TRY(sb_export_integers(e->qm, q, &w));
    sb_status status =
        sb_export_constant(e->g, base_name(e, q), "_quantized", &w, &in[0]);
    sb_tensor_drop(&w);
    return status;
}

static sb_status add_dequantize(exporter *e, const sb_quantizer *q,
                                sb_node_id like, const sb_value_id *in,
                                sb_value_id *out)
{
    SB_TRY(add_qdq(e, "DequantizeLinear", q, like, in, SB_DTYPE_F32, out));
    return SB_OK;
}

/* The pair's result takes the place and the name of the output. */
static sb_status move_output(exporter *e, const sb_quantizer *q, sb_value_id y)
{
    sb_value_id spare = SB_NONE;

    SB_TRY(sb_export_value(e->g, base_name(e, q), "_float", &spare));
    return sb_quant_move_output_as(e->g, q->value, y, spare);
}

/* Points the readers of one quantizer at DQ nodes: one each, or *shared. */
static sb_status redirect(exporter *e, const sb_quantizer *q,
                          const sb_value_id *in, sb_value_id *shared)
{
    bool each = e->qm->target->one_dq_per_use;
    sb_node_id like = sb_quant_like(e->g, q);
    sb_value_id y = *shared;

    for (size_t i = 0; i < q->n_uses; i++) {
        if (each || y == SB_NONE)
            SB_TRY(add_dequantize(e, q, q->uses[i].node, in, &y));
        SB_TRY(sb_graph_set_input(e->g, q->uses[i].node, q->uses[i].input, y));
    }
    if (q->at_output) {
        if (each || y == SB_NONE)
            SB_TRY(add_dequantize(e, q, like, in, &y));
        SB_TRY(move_output(e, q, y));
    }
    *shared = y;
    return SB_OK;
}

static sb_status export_site(exporter *e, uint32_t site)
{
    const sb_quant_model *qm = e->qm;
    sb_value_id in[3] = {SB_NONE, SB_NONE, SB_NONE}, shared = SB_NONE;

    for (size_t i = 0; i < qm->n_quantizers; i++) {
        const sb_quantizer *q = &qm->quantizers[i];

        if (q->site != site || q->fake_fused || q->spec.dynamic)
            continue;
        if (q->qparams.n == 0)
            return sb_fail(qm->ctx, SB_BAD_ARG,
                           "quantizer '%s' has no scale yet: calibrate before "
                           "exporting",
                           q->name);
        if (sb_quantizer_is_dynamic(qm, q)) /* written with its layer */
            continue;
        if (in[0] == SB_NONE)
            SB_TRY(add_integers(e, q, sb_quant_like(e->g, q), q->value, in));
        SB_TRY(redirect(e, q, in, &shared));
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

/* Is there an earlier quantizer of the same value? */
static bool told_before(const sb_quant_model *qm, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (qm->quantizers[k].value == qm->quantizers[i].value &&
            !qm->quantizers[k].fake_fused)
            return true;
    return false;
}

/* {"value": bits, ...} */
static void describe(const sb_quant_model *qm, sb_str *text)
{
    bool first = true;

    sb_str_add(text, "{");
    for (size_t i = 0; i < qm->n_quantizers; i++) {
        const sb_quantizer *q = &qm->quantizers[i];
        if (q->fake_fused || told_before(qm, i))
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
        if (strncmp(g->model_props[i].key, "sparsebit.", 10) != 0)
            props[n++] = g->model_props[i];
    sb_str_init(&text, g->ctx);
    describe(e->qm, &text);
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
    if (qm->target->ops || sb_quant_config_mode(qm->config) == SB_QUANT_DYNAMIC)
        SB_TRY(sb_export_tables(qm, e->g, &e->min_opset));
    if (e->choice->format == SB_EXPORT_MATMULNBITS)
        SB_TRY(sb_export_nbits(qm, e->g));
    (void)sb_graph_remove_dead(e->g);
    return SB_OK;
}

/* Only ONNX Runtime has these operators. */
static sb_status check_qoperator(const exporter *e)
{
    const sb_quant_model *qm = e->qm;
    const sb_target_def *target = qm->target;

    if (!target->rules || !(target->rules->flags & SB_QDQ_STEPS_ORT))
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "format qoperator is what ONNX Runtime runs: it needs "
                       "target onnxruntime-x86 or onnxruntime-arm, not %s",
                       target->name);
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
    size_t changes = 0;

    SB_TRY(sb_qdq_to_integer(e->g, e->qm->target->rules, &changes));
    (void)sb_graph_remove_dead(e->g);
    return sb_graph_infer(e->g);
}

static sb_status build(exporter *e)
{
    for (size_t i = 0; i < e->qm->n_sites; i++)
        SB_TRY(export_site(e, (uint32_t)i));
    SB_TRY(sb_export_biases(e->qm, e->g));
    if (sb_quant_config_mode(e->qm->config) != SB_QUANT_STATIC)
        SB_TRY(build_uncalibrated(e));
    restore_batch(e);
    SB_TRY(sb_graph_infer(e->g));
    if (sb_graph_wants_expand(e->g)) {
        sb_pass_result *results = NULL;
        size_t n = 0;

        SB_TRY(sb_passes_run(e->g, "expand", NULL, &results, &n));
        sb_free(e->qm->ctx, results);
    }
    if (e->choice->format == SB_EXPORT_QOPERATOR)
        SB_TRY(use_integer_operators(e));
    return add_metadata(e);
}

sb_status sb_export_graph(const sb_quant_model *qm,
                          const sb_export_choice *choice, sb_graph **out,
                          int64_t *min_opset)
{
    exporter e = {.qm = qm, .choice = choice, .min_opset = qm->target->opset};

    if (choice->format == SB_EXPORT_QOPERATOR)
        SB_TRY(check_qoperator(&e));
    if (choice->format == SB_EXPORT_MATMULNBITS &&
        sb_quant_config_mode(qm->config) != SB_QUANT_WEIGHTS_ONLY)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "format matmulnbits holds integer weights and float "
                       "activations: it needs `A: none` in %s",
                       sb_quant_config_file(qm->config));
    SB_TRY(sb_graph_clone(qm->graph, &e.g));
    sb_status status = build(&e);
    if (status == SB_OK)
        status = sb_graph_clone_sorted(e.g, out);
    if (status == SB_OK) {
        int64_t least = sb_graph_min_opset(*out);
        *min_opset = least > e.min_opset ? least : e.min_opset;
    }
    sb_graph_free(e.g);
    return status;
}
