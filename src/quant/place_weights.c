/* Which edges get a quantizer where nothing is calibrated:
 *
 *   A: none     constant weights alone; activations stay float
 *   A: dynamic  weights, and the activations that meet them, whose scales are
 *               found anew at each run
 *
 * The rows of operators say what a weight is, those of the target for which of
 * them it has a kernel.  Elsewhere the weight stays float: integers would have
 * to be turned into floats at every run. */
#include <assert.h>
#include <string.h>

#include "graph/op.h"
#include "passes/rewrite.h"
#include "quant/dynamic.h"
#include "quant/quant_model.h"

typedef struct placer {
    sb_quant_model *qm;
    sb_quant_mode mode;
    sb_node_id id;
    const sb_node *node;
    bool table;          /* the weight is input 0, rows of an embedding */
    bool dynamic;        /* its activation is quantized at each run */
    const char *skipped; /* a layer that the target has no kernel for */
} placer;

/* ---- questions ---------------------------------------------------------- */

static uint32_t weight_input(const placer *p)
{
    return p->table ? 0 : 1;
}

static const sb_tensor *weight_of(const placer *p)
{
    const sb_graph *g = p->qm->graph;
    sb_value_id v = sb_node_in(p->node, weight_input(p));

    if (!sb_is_const(g, v) ||
        !sb_dtype_is_float(sb_graph_value(g, v)->type.dtype))
        return NULL;
    return &sb_graph_value(g, v)->constant;
}

/* Does a product read the value, perhaps after it was moved about?  ONNX
 * Runtime would take the DQ of a table for that of a quantized activation, and
 * with weights of 2 and 4 bit make nodes that it cannot run itself. */
static bool product_reads(const sb_quant_model *qm, sb_value_id value,
                          int depth)
{
    const sb_value *v = sb_graph_value(qm->graph, value);

    for (uint32_t i = 0; i < v->n_uses && depth < 16; i++) {
        const sb_node *node = sb_graph_node(qm->graph, v->uses[i].node);
        const sb_op_def *op = sb_op_of(node);

        if (op && op->quant == SB_ROLE_WEIGHTED)
            return true;
        if (op && op->quant == SB_ROLE_PASS && node->n_out > 0 &&
            product_reads(qm, node->outputs[0], depth + 1))
            return true;
    }
    return false;
}

/* Has the target a kernel for this weight?  One without rows takes all. */
static bool has_kernel(const placer *p)
{
    const sb_target_def *target = p->qm->target;
    const sb_target_op *row = sb_target_op_find(target, p->node);
    bool matrix = weight_of(p)->rank == 2;

    if (p->table && target->ops && p->mode == SB_QUANT_WEIGHTS_ONLY &&
        product_reads(p->qm, p->node->outputs[0], 0))
        return false;
    if (p->dynamic)
        return sb_dynamic_kernel(p->qm->graph, p->node) &&
               (!target->ops || (row && row->dynamic));
    return !target->ops || (row && row->weight_only && matrix);
}

/* ---- settings ----------------------------------------------------------- */

static sb_status refuse(const placer *p, const char *what, const char *wanted)
{
    const sb_quant_model *qm = p->qm;

    return sb_fail(qm->ctx, SB_BAD_CONFIG,
                   "%s: target %s cannot take %s (node '%s'); it wants %s",
                   sb_quant_config_file(qm->config), qm->target->name, what,
                   sb_node_label(qm->graph, p->node), wanted);
}

static sb_status check_dynamic(const placer *p, const sb_quant_spec *s)
{
    if (s->bits > 8)
        return refuse(p, "weights of more than 8 bit with `A: dynamic`",
                      "W.QUANTIZER.BIT at most 8");
    if (s->granularity == SB_QUANT_PER_GROUP)
        return refuse(p, "groups with `A: dynamic`",
                      "W.QSCHEME per-tensor-* or per-channel-*");
    if (s->granularity == SB_QUANT_PER_CHANNEL && !s->symmetric &&
        sb_node_is(p->node, "Conv"))
        return refuse(p, "a zero point a channel in ConvInteger",
                      "W.QSCHEME per-channel-symmetric or per-tensor-*");
    return SB_OK;
}

static sb_status check(const placer *p, const sb_quant_spec *s)
{
    const sb_target_def *target = p->qm->target;
    uint32_t scheme = s->symmetric ? SB_SCHEME_SYMMETRIC : SB_SCHEME_AFFINE;
    sb_dtype type = s->bits == 2   ? SB_DTYPE_I2
                    : s->bits == 4 ? SB_DTYPE_I4
                                   : SB_DTYPE_I8;

    if (p->dynamic)
        return check_dynamic(p, s);
    if (!target->ops)
        return SB_OK;
    if (!(target->only_schemes & scheme))
        return refuse(p, s->symmetric ? "symmetric weights" : "affine weights",
                      s->symmetric ? "W.QSCHEME per-*-affine"
                                   : "W.QSCHEME per-*-symmetric");
    if ((s->bits != 2 && s->bits != 4 && s->bits != 8) ||
        !sb_target_has_type(target->weight_types, type))
        return refuse(p, "weights of this width",
                      sb_target_has_type(target->weight_types, SB_DTYPE_I2)
                          ? "W.QUANTIZER.BIT 2, 4 or 8"
                          : "W.QUANTIZER.BIT 4 or 8");
    return SB_OK;
}

/* Groups are of matrices; the whole row is a channel. */
static void settle(const placer *p, sb_quant_spec *s)
{
    const sb_tensor *w = weight_of(p);

    if (s->granularity == SB_QUANT_PER_GROUP &&
        (s->group_size <= 0 || w->rank != 2))
        s->granularity = SB_QUANT_PER_CHANNEL;
    if (p->table && w->rank < 2)
        s->granularity = SB_QUANT_PER_TENSOR;
    /* Gather takes no less than bytes there. */
    if (p->table && p->qm->target->ops && s->bits < 8)
        s->bits = 8;
}

/* ---- as a file has it --------------------------------------------------- */

static const sb_known *known_weight(const placer *p)
{
    sb_value_id v = sb_node_in(p->node, weight_input(p));
    const sb_known *k =
        sb_known_find(&p->qm->known, sb_graph_value(p->qm->graph, v)->name);

    return k && k->constant ? k : NULL;
}

static bool was_dynamic(const placer *p)
{
    const sb_graph *g = p->qm->graph;
    sb_value_id x = sb_node_in(p->node, 0);
    const sb_known *k =
        x == SB_NONE ? NULL
                     : sb_known_find(&p->qm->known, sb_graph_value(g, x)->name);

    return k && k->dynamic && (k->all || sb_known_read_by(g, k, p->node));
}

/* The settings of the file, as near as the target has them: known.c takes them
 * over whole where it can. */
static void follow(const placer *p, const sb_known *k, sb_quant_spec *s)
{
    const sb_target_def *target = p->qm->target;
    const sb_qparams *q = &k->qparams;
    bool two = sb_target_has_type(target->weight_types, SB_DTYPE_I2);

    s->bits = q->bits;
    s->symmetric = q->symmetric;
    s->granularity = k->block > 0   ? SB_QUANT_PER_GROUP
                     : q->axis >= 0 ? SB_QUANT_PER_CHANNEL
                                    : SB_QUANT_PER_TENSOR;
    s->group_size = k->block;
    if (p->dynamic) {
        s->bits = s->bits > 8 ? 8 : s->bits;
        if (s->granularity == SB_QUANT_PER_GROUP)
            s->granularity = SB_QUANT_PER_CHANNEL;
        if (s->granularity == SB_QUANT_PER_CHANNEL &&
            sb_node_is(p->node, "Conv"))
            s->symmetric = true;
        return;
    }
    if (!target->ops)
        return;
    s->bits = s->bits <= 2 && two ? 2 : s->bits <= 4 ? 4 : 8;
    if (!(target->only_schemes &
          (s->symmetric ? SB_SCHEME_SYMMETRIC : SB_SCHEME_AFFINE)))
        s->symmetric = !s->symmetric;
}

/* ---- quantizers --------------------------------------------------------- */

static sb_status add(const placer *p, sb_quantizer_spec *spec,
                     const char *suffix, sb_quantizer **out)
{
    sb_str name;

    sb_str_init(&name, p->qm->ctx);
    sb_str_addf(&name, "%s%s", sb_quant_base_name(p->qm->graph, p->node),
                suffix);
    spec->name = sb_str_text(&name);
    sb_status status = sb_str_status(&name);
    if (status == SB_OK)
        status = sb_quant_model_add(p->qm, spec, out);
    sb_str_free(&name);
    return status;
}

static sb_status place_weight(const placer *p, sb_quant_spec *settings)
{
    const sb_use use = {p->id, weight_input(p)};
    const sb_target_def *target = p->qm->target;
    sb_quantizer *q = NULL;
    /* A runtime gives up constants that several nodes read. */
    sb_quantizer_spec spec = {.settings = settings,
                              .value = p->node->inputs[use.input],
                              .uses = &use,
                              .n_uses = 1,
                              .alone = target->ops != NULL};

    SB_TRY(sb_quantizer_axis(p->qm, settings, use, &spec.axis, &spec.block));
    /* A size that runtimes know, even if the matrix ends before. */
    if (spec.block > 0)
        spec.block = settings->group_size;
    SB_TRY(add(p, &spec, ".weight_quantizer", &q));
    if (p->dynamic && target->weight_narrow && settings->symmetric &&
        settings->bits > 1) {
        q->qmax = sb_qmax(settings->bits, true);
        q->qmin = -q->qmax;
    }
    return SB_OK;
}

static sb_status place_feature(const placer *p)
{
    const sb_use use = {p->id, 0};
    sb_quant_spec settings;
    sb_quantizer *q = NULL;
    sb_quantizer_spec spec = {.settings = &settings,
                              .value = p->node->inputs[0],
                              .uses = &use,
                              .n_uses = 1,
                              .axis = -1};

    sb_quant_config_spec(p->qm->config, SB_QUANT_FEATURE, p->node, &settings);
    assert(settings.dynamic);
    settings.granularity = SB_QUANT_PER_TENSOR;
    return add(p, &spec, ".input_quantizer", &q);
}

static sb_status place_node(placer *p)
{
    const sb_op_def *op = sb_op_of(p->node);
    sb_quant_spec settings;

    if (!op || sb_quant_config_skips(p->qm->config, p->node) ||
        (op->quant != SB_ROLE_WEIGHTED && op->quant != SB_ROLE_TABLE))
        return SB_OK;
    p->table = op->quant == SB_ROLE_TABLE;
    sb_quant_config_spec(p->qm->config, SB_QUANT_WEIGHT, p->node, &settings);
    if (settings.disabled || !weight_of(p))
        return SB_OK;
    const sb_known *k = p->qm->follow ? known_weight(p) : NULL;
    if (p->qm->follow && !k)
        return SB_OK;
    p->dynamic = p->mode == SB_QUANT_DYNAMIC && !p->table &&
                 (!p->qm->follow || was_dynamic(p));
    if (k)
        follow(p, k, &settings);
    if (!has_kernel(p)) {
        p->skipped = p->node->op;
        return SB_OK;
    }
    settle(p, &settings);
    SB_TRY(check(p, &settings));
    if (p->dynamic)
        SB_TRY(place_feature(p));
    return place_weight(p, &settings);
}

/* ---- all of them -------------------------------------------------------- */

static sb_status check_target(const sb_quant_model *qm, sb_quant_mode mode)
{
    const sb_target_def *t = qm->target;
    bool dynamic = mode == SB_QUANT_DYNAMIC;

    for (size_t i = 0; i < t->n_ops; i++)
        if (dynamic ? t->ops[i].dynamic : t->ops[i].weight_only)
            return SB_OK;
    if (!t->ops)
        return SB_OK;
    if (qm->follow)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "the file quantizes %s, and target %s has no kernels "
                       "for that; calibrate its activations on data",
                       dynamic ? "activations at each run" : "weights alone",
                       t->name);
    return sb_fail(qm->ctx, SB_BAD_CONFIG,
                   "%s: A: found %s, but target %s has no kernels for that; "
                   "%s have",
                   sb_quant_config_file(qm->config),
                   dynamic ? "dynamic" : "none", t->name,
                   dynamic ? "onnxruntime-x86 and onnxruntime-arm"
                           : "onnxruntime-x86, onnxruntime-arm, openvino and "
                             "tensorrt");
}

sb_status sb_quant_place_weights(sb_quant_model *qm)
{
    placer p = {.qm = qm, .mode = sb_quant_config_mode(qm->config)};
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(check_target(qm, p.mode));
    SB_TRY(sb_graph_order(qm->graph, &order, &n));
    sb_status status = SB_OK;
    for (size_t i = 0; i < n && status == SB_OK; i++) {
        p.id = order[i];
        p.node = sb_graph_node(qm->graph, p.id);
        status = place_node(&p);
    }
    sb_free(qm->ctx, order);
    if (status == SB_OK && qm->n_quantizers == 0 && p.skipped)
        return sb_fail(qm->ctx, SB_BAD_MODEL,
                       "nothing to quantize: with `A: %s` target %s has no "
                       "kernel for the weights of %s, nor are there others",
                       p.mode == SB_QUANT_DYNAMIC ? "dynamic" : "none",
                       qm->target->name, p.skipped);
    return status;
}
