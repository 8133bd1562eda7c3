/* Which edges get a quantizer where nothing is calibrated:
 *
 *   A: none     weight-only; activations stay float
 *   A: dynamic  weights, and the activations that meet them, whose scales are
 *               found anew at each run
 *
 * The rows of operators say what a weight is, those of the target for which of
 * them it has a kernel.  Elsewhere the weight stays float: integers would have
 * to be turned into floats at every run. */
#include <assert.h>
#include <string.h>

#include "graph/op.h"
#include "llm/blocks/blocks.h"
#include "passes/rewrite.h"
#include "quant/place/place.h"

typedef struct placer {
    sb_quant_model *qm;
    sb_quant_mode mode;
    sb_node_id id;
    const sb_node *node;
    uint32_t input;      /* which is the weight */
    bool table;          /* rows of an embedding */
    bool recurrent;      /* one of the two of an LSTM */
    bool dynamic;        /* its activation is quantized at each run */
    const char *skipped; /* a layer that the target has no kernel for */
    sb_block_place at;   /* of blocks of GGUF files */
} placer;

/* ---- questions ---------------------------------------------------------- */

static const sb_tensor *weight_of(const placer *p)
{
    const sb_graph *g = p->qm->graph;
    sb_value_id v = sb_node_in(p->node, p->input);

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

    for (uint32_t i = 0; i < v->n_uses && depth < SB_WALK_MOST; i++) {
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
    bool fits = weight_of(p)->rank == (p->recurrent ? 3 : 2);

    if (p->table && target->ops && p->mode == SB_QUANT_WEIGHTS_ONLY &&
        product_reads(p->qm, p->node->outputs[0], 0))
        return false;
    if (p->dynamic)
        return sb_dynamic_kernel(p->qm->graph, p->node) &&
               (!target->ops || (row && row->dynamic));
    return !target->ops || (row && row->weight_only && fits);
}

/* Where there is none, recurrent weights are bytes that become floats again. */
static bool has_recurrent_kernel(const placer *p)
{
    const sb_target_op *row = sb_target_op_find(p->qm->target, p->node);

    return row && row->dynamic && sb_dynamic_kernel(p->qm->graph, p->node);
}

/* ---- settings ----------------------------------------------------------- */

static sb_status place_weights_refuse(const placer *p, const char *what,
                                      const char *wanted)
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
        return place_weights_refuse(
            p, "weights of more than 8 bit with `A: dynamic`",
            "W.QUANTIZER.BIT at most 8");
    if (s->granularity == SB_QUANT_PER_GROUP)
        return place_weights_refuse(p, "groups with `A: dynamic`",
                                    "W.QSCHEME per-tensor-* or per-channel-*");
    if (s->granularity == SB_QUANT_PER_CHANNEL && !s->symmetric &&
        (sb_node_flag(p->node, SB_OP_CONV) || p->recurrent))
        return place_weights_refuse(
            p,
            p->recurrent ? "a zero point a channel in DynamicQuantizeLSTM"
                         : "a zero point a channel in ConvInteger",
            "W.QSCHEME per-channel-symmetric or per-tensor-*");
    return SB_OK;
}

static sb_status place_weights_check(const placer *p, const sb_quant_spec *s)
{
    const sb_quant_model *qm = p->qm;

    if (p->dynamic)
        return check_dynamic(p, s);
    return sb_quant_config_check_node(qm->config, qm->target, s,
                                      sb_node_label(qm->graph, p->node));
}

/* Groups are of matrices; the whole row is a channel. */
static void place_weights_settle(const placer *p, sb_quant_spec *s)
{
    const sb_tensor *w = weight_of(p);

    if (s->granularity == SB_QUANT_PER_GROUP &&
        (s->group_size <= 0 || w->rank != 2))
        s->granularity = SB_QUANT_PER_CHANNEL;
    if (p->table && w->rank < 2)
        s->granularity = SB_QUANT_PER_TENSOR;
    /* Nothing packs them tighter than bytes there. */
    if ((p->table || p->recurrent) && p->qm->target->ops && s->bits < 8)
        s->bits = 8;
}

/* ---- blocks of GGUF files ----------------------------------------------- */

/* Is the product that of an embedding with itself turned round, as the last one
 * of many language models?  Such a matrix is in a file once. */
static bool is_tied(const placer *p)
{
    const sb_graph *g = p->qm->graph;
    const char *dot = p->node->name ? strrchr(p->node->name, '.') : NULL;
    size_t n = dot ? (size_t)(dot - p->node->name) + 1 : 0;

    for (sb_node_id id = 0; n > 0 && id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        const sb_op_def *op = node->dead ? NULL : sb_op_of(node);

        if (op && op->quant == SB_ROLE_TABLE && node->name &&
            sb_is_const(g, sb_node_in(node, 0)) &&
            strncmp(node->name, p->node->name, n) == 0 &&
            !strchr(node->name + n, '.'))
            return true;
    }
    return false;
}

/* Layers, and how many heads of queries share one of values, by the sizes of
 * their weights. */
static sb_block_place blocks_measure(placer *p)
{
    const sb_graph *g = p->qm->graph;
    sb_block_place at = {0, 1};
    int64_t queries = 0, values = 0;

    p->input = 1;
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        p->node = sb_graph_node(g, id);
        const sb_op_def *op = p->node->dead ? NULL : sb_op_of(p->node);
        bool weighted = op && op->quant == SB_ROLE_WEIGHTED;
        const sb_tensor *w = weighted ? weight_of(p) : NULL;
        const char *name = w ? sb_quant_base_name(g, p->node) : NULL;
        int64_t layer = name ? sb_block_mix_layer(name) : -1;

        if (layer < 0)
            continue;
        at.layers = layer >= at.layers ? layer + 1 : at.layers;
        if (strstr(name, ".q_proj"))
            queries = sb_tensor_count(w);
        if (strstr(name, ".v_proj"))
            values = sb_tensor_count(w);
    }
    if (values > 0)
        at.sharing = queries / values;
    return at;
}

/* The format that a weight will have; NULL: it stays in float.  Embeddings
 * do: few of their rows are read. */
static const sb_weight_format *blocks_for(const placer *p)
{
    const sb_tensor *w = weight_of(p);
    const sb_weight_format *f = NULL;
    const sb_use use = {p->id, p->input};
    sb_quant_spec groups = {.granularity = SB_QUANT_PER_GROUP,
                            .group_size = 32};
    int axis = 0;
    int64_t block = 0;

    if (!p->table && !p->recurrent && w->rank == 2 && !is_tied(p) &&
        sb_place_axis(p->qm, &groups, use, &axis, &block) == SB_OK &&
        (axis == 0 || axis == 1))
        f = sb_block_format(
            sb_block_mix_for(p->qm->blocks,
                             sb_quant_base_name(p->qm->graph, p->node), &p->at),
            w->dims[axis]);
    return f;
}

/* Before hours of work: what comes out, if it is not one format that was asked
 * for. */
static void blocks_say(const sb_quant_model *qm)
{
    const sb_weight_format *most = sb_block_mix_most(qm->blocks);
    bool mixed = sb_block_mix_is_mixed(qm->blocks);
    double bits = 0, all = 0;
    size_t n = 0;
    const sb_quantizer *other = NULL;

    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        double count = (double)sb_tensor_count(
            &sb_graph_value(qm->graph, q->value)->constant);

        bits += count * sb_block_bits(q->blocks);
        all += count;
        if (q->blocks != most) {
            other = other ? other : q;
            n++;
        }
    }
    if (other)
        sb_warn(qm->ctx,
                "%zu of %zu weights become %s%s instead of %s, the first is "
                "'%s': %s; %.2f bits a weight instead of %.2f",
                n, qm->place.n_quantizers, mixed ? "others, such as " : "",
                other->blocks->name, most->name, other->name,
                mixed ? "as llama.cpp mixes types, and where 256 does not "
                        "divide rows"
                      : "rows are no multiple of 256",
                bits / all, sb_block_bits(most));
}

static void place_weights_block(const sb_weight_format *f, sb_quant_spec *s)
{
    s->bits = 0;
    for (int levels = f->hi - f->lo; levels > 0; levels /= 2)
        s->bits++;
    s->symmetric = f->symmetric;
    s->granularity = SB_QUANT_PER_GROUP;
    s->group_size = f->group;
}

/* ---- as a file has it --------------------------------------------------- */

static const sb_imported_qparams *known_weight(const placer *p)
{
    sb_value_id v = sb_node_in(p->node, p->input);
    const sb_imported_qparams *k =
        sb_imported_find(&p->qm->known, p->qm->graph, v);

    return k && k->constant ? k : NULL;
}

static bool was_dynamic(const placer *p)
{
    return sb_imported_dynamic_for(
        sb_imported_find(&p->qm->known, p->qm->graph, sb_node_in(p->node, 0)),
        p->node);
}

/* The settings of the file, as near as the target has them: import_scales.c
 * takes them over whole where it can. */
static void place_weights_follow(const placer *p, const sb_imported_qparams *k,
                                 sb_quant_spec *s)
{
    const sb_target_def *target = p->qm->target;
    const sb_qparams *q = &k->qparams;
    bool two = (target->limits[SB_USE_WEIGHT_ONLY].bits & SB_BITS(2)) != 0;

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
            (sb_node_flag(p->node, SB_OP_CONV) || p->recurrent))
            s->symmetric = true;
        return;
    }
    if (!target->ops)
        return;
    s->bits = s->bits <= 2 && two ? 2 : s->bits <= 4 ? 4 : 8;
    if (!sb_target_takes(target, SB_USE_WEIGHT_ONLY, s->symmetric))
        s->symmetric = !s->symmetric;
}

/* ---- quantizers --------------------------------------------------------- */

static sb_status place_weights_add(const placer *p, sb_quantizer_spec *spec,
                                   const char *suffix, sb_quantizer **out)
{
    const char *base = sb_quant_base_name(p->qm->graph, p->node);

    return sb_place_add_named(p->qm, spec, base, suffix, out);
}

static sb_status place_weight(const placer *p, sb_quant_spec *settings,
                              const sb_weight_format *blocks)
{
    const sb_use use = {p->id, p->input};
    const sb_target_def *target = p->qm->target;
    sb_quantizer *q = NULL;
    /* A runtime gives up constants that several nodes read. */
    sb_quantizer_spec spec = {.settings = settings,
                              .value = p->node->inputs[use.input],
                              .uses = &use,
                              .n_uses = 1,
                              .alone = target->ops != NULL};

    SB_TRY(sb_place_axis(p->qm, settings, use, &spec.axis, &spec.block));
    /* A size that runtimes know, even if the matrix ends before. */
    if (spec.block > 0)
        spec.block = settings->group_size;
    SB_TRY(place_weights_add(p, &spec,
                             p->recurrent && p->input == 2
                                 ? ".recurrence_quantizer"
                                 : ".weight_quantizer",
                             &q));
    q->blocks = blocks;
    if (p->dynamic && target->weight_narrow && settings->symmetric &&
        settings->bits > 1) {
        q->qmax = sb_qmax(settings->bits, true);
        q->qmin = -q->qmax;
    }
    return SB_OK;
}

static sb_status place_activation(const placer *p)
{
    const sb_use use = {p->id, 0};
    sb_quant_spec settings;
    sb_quantizer *q = NULL;
    sb_quantizer_spec spec = {.settings = &settings,
                              .value = p->node->inputs[0],
                              .uses = &use,
                              .n_uses = 1,
                              .axis = -1};

    sb_quant_config_spec(p->qm->config, SB_QUANT_ACTIVATION, p->node,
                         &settings);
    assert(settings.dynamic);
    settings.granularity = SB_QUANT_PER_TENSOR;
    return place_weights_add(p, &spec, ".input_quantizer", &q);
}

/* The weight that is p->input. */
static sb_status place_input(placer *p)
{
    sb_quant_spec settings;

    sb_quant_config_spec(p->qm->config, SB_QUANT_WEIGHT, p->node, &settings);
    if (settings.disabled || !weight_of(p))
        return SB_OK;
    /* Files of language models have no integers for embeddings, nor for a head
     * that is the embedding. */
    if (p->qm->half_scales && (p->table || is_tied(p)))
        return SB_OK;
    const sb_imported_qparams *k = p->qm->follow ? known_weight(p) : NULL;
    if (p->qm->follow && !k)
        return SB_OK;
    p->dynamic = p->mode == SB_QUANT_DYNAMIC && !p->table &&
                 (!p->recurrent || has_recurrent_kernel(p)) &&
                 (!p->qm->follow || was_dynamic(p));
    if (k)
        place_weights_follow(p, k, &settings);
    if (!has_kernel(p)) {
        p->skipped = p->node->op;
        return SB_OK;
    }
    const sb_weight_format *blocks = NULL;
    if (p->qm->blocks) {
        blocks = blocks_for(p);
        if (!blocks)
            return SB_OK;
        place_weights_block(blocks, &settings);
    }
    place_weights_settle(p, &settings);
    if (!blocks)
        SB_TRY(place_weights_check(p, &settings));
    if (p->dynamic && p->input == 1)
        SB_TRY(place_activation(p));
    return place_weight(p, &settings, blocks);
}

static sb_status place_node(placer *p)
{
    const sb_op_def *op = sb_op_of(p->node);
    sb_quant_role role = op ? op->quant : SB_ROLE_UNKNOWN;

    if (sb_quant_config_skips(p->qm->config, p->node) ||
        (role != SB_ROLE_WEIGHTED && role != SB_ROLE_TABLE &&
         role != SB_ROLE_RECURRENT))
        return SB_OK;
    p->table = role == SB_ROLE_TABLE;
    p->recurrent = role == SB_ROLE_RECURRENT;
    p->input = p->table ? 0 : 1;
    SB_TRY(place_input(p));
    p->input = 2;
    return p->recurrent ? place_input(p) : SB_OK;
}

/* ---- all of them -------------------------------------------------------- */

static bool has_dynamic(const sb_target_def *target)
{
    return sb_target_has(target, SB_USE_WEIGHT_DYNAMIC);
}

static bool has_weight_only(const sb_target_def *target)
{
    return sb_target_has(target, SB_USE_WEIGHT_ONLY);
}

static sb_status check_target(const sb_quant_model *qm, sb_quant_mode mode)
{
    const sb_target_def *t = qm->target;
    bool dynamic = mode == SB_QUANT_DYNAMIC;
    sb_str others;

    if (dynamic ? has_dynamic(t) : has_weight_only(t))
        return SB_OK;
    if (qm->follow)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "the file quantizes %s, and target %s has no kernels "
                       "for that; calibrate its activations on data",
                       dynamic ? "activations at each run" : "weights only",
                       t->name);
    sb_str_init(&others, qm->ctx);
    sb_target_list(&others, dynamic ? has_dynamic : has_weight_only, "and");
    sb_status status = sb_str_status(&others);
    if (status == SB_OK)
        status = sb_fail(qm->ctx, SB_BAD_CONFIG,
                         "%s: A: found %s, but target %s has no kernels for "
                         "that; %s have",
                         sb_quant_config_file(qm->config),
                         dynamic ? "dynamic" : "none", t->name,
                         sb_str_text(&others));
    sb_str_free(&others);
    return status;
}

sb_status sb_quant_place_weights(sb_quant_model *qm)
{
    placer p = {.qm = qm, .mode = sb_quant_config_mode(qm->config)};
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(check_target(qm, p.mode));
    if (qm->blocks && p.mode != SB_QUANT_WEIGHTS_ONLY)
        return sb_fail(qm->ctx, SB_BAD_CONFIG,
                       "blocks of GGUF files hold weights and no activations: "
                       "they need `A: none`");
    if (qm->blocks)
        p.at = blocks_measure(&p);
    SB_TRY(sb_graph_order(qm->graph, &order, &n));
    sb_status status = SB_OK;
    for (size_t i = 0; i < n && status == SB_OK; i++) {
        p.id = order[i];
        p.node = sb_graph_node(qm->graph, p.id);
        status = place_node(&p);
    }
    sb_free(qm->ctx, order);
    if (status == SB_OK && qm->blocks)
        blocks_say(qm);
    if (status == SB_OK && qm->place.n_quantizers == 0 && p.skipped)
        return sb_fail(qm->ctx, SB_BAD_MODEL,
                       "nothing to quantize: with `A: %s` target %s has no "
                       "kernel for the weights of %s, nor are there others",
                       p.mode == SB_QUANT_DYNAMIC ? "dynamic" : "none",
                       qm->target->name, p.skipped);
    return status;
}
