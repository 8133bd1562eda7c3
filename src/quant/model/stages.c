/* The stages between a loaded file and a model whose quantizers are placed.
 *
 * Everything that learns from data (calibration, simulation, error analysis)
 * sees the graph that the last stage leaves. */
#include "quant/model/stages.h"

#include <string.h>

#include "base/str.h"
#include "graph/text.h"
#include "passes/batch/dynamic_batch.h"
#include "passes/deploy/bn_to_conv.h"
#include "passes/pass.h"
#include "quant/correct/correct.h"
#include "quant/model/quant_view.h"
#include "quant/place/place.h"

/* ---- import ------------------------------------------------------------- */

/* Scales are those of float32. */
static sb_status stage_widen(sb_quant_model *qm)
{
    sb_pass_result *results = NULL;
    size_t n = 0;

    SB_TRY(sb_passes_run(qm->graph, "widen_half", NULL, &results, &n));
    if (n > 0 && results[0].changes > 0)
        sb_warn(qm->ctx, "the model holds float16 or bfloat16: it is quantized "
                         "in float32; its inputs and outputs keep their types");
    sb_free(qm->ctx, results);
    return SB_OK;
}

static sb_status stage_import(sb_quant_model *qm)
{
    SB_TRY(stage_widen(qm));
    qm->known.apart = !qm->target->ops; /* it joins nothing by itself */
    SB_TRY(sb_passes_run(qm->graph,
                         "integer_to_qdq,dynamic_to_qdq,nbits_to_qdq", NULL,
                         NULL, NULL));
    SB_TRY(sb_quant_import(qm->graph, &qm->known));
    return sb_quant_check_float(qm, qm->graph);
}

/* ---- simplify ----------------------------------------------------------- */

/* A runtime sees SiLU as it stands in the file, as a product with a sigmoid,
 * so quantizers for it are placed on that form, and nothing is recognized that
 * the file could not hold. */
static const char *stage_simplify_passes(const sb_quant_model *qm)
{
    if (!qm->target->ops)
        return "simplify";
    return sb_graph_holds(qm->graph, "Swish") ? "simplify"
           : sb_graph_holds(qm->graph, "RMSNormalization")
               ? "simplify,-recognize_silu"
               : "simplify,-recognize_silu,-recognize_rmsnorm";
}

static bool stage_names(const void *config, const sb_node *node)
{
    return sb_quant_config_means(config, node);
}

static sb_status stage_simplify(sb_quant_model *qm)
{
    sb_quant_schedule schedule = sb_quant_config_schedule(qm->config);
    const char *passes = stage_simplify_passes(qm);

    /* Training puts norms back where they help it. */
    bool fuse_bn = schedule.fuse_bn || schedule.bn_tuning || qm->train;
    sb_str spec;

    sb_str_init(&spec, qm->ctx);
    /* Scales of a quantized file are those of its own values. */
    bool fold = fuse_bn && qm->target->ops && qm->known.n == 0;
    sb_str_addf(&spec, "%s,-flush_subnormals%s%s", passes,
                fuse_bn ? ",fuse_bn" : "",
                fold ? ",merge_convs,fold_affine" : "");
    sb_status status = sb_str_status(&spec);
    qm->graph->is_named = stage_names;
    qm->graph->is_named_user = qm->config;
    if (status == SB_OK)
        status = sb_passes_run(qm->graph, sb_str_text(&spec), NULL, NULL, NULL);
    qm->graph->is_named = NULL;
    sb_str_free(&spec);
    return status;
}

/* ---- canonicalize ------------------------------------------------------- */

/* Normalizations that no layer took: as layers of their own, between integer
 * kernels; not where a file came with scales, which belong to its values as
 * they are. */
static sb_status stage_write_norms(sb_quant_model *qm, sb_graph *g)
{
    sb_quant_spec act, weight;

    if (!qm->target->norm_as_conv || qm->known.n > 0)
        return SB_OK;
    for (size_t i = 0, n = g->n_nodes; i < n; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        bool done = false;

        if (node->dead || sb_node_role(node) != SB_ROLE_NORM ||
            sb_quant_config_skips(qm->config, node) ||
            !sb_quant_between_kernels(qm, g, node))
            continue;
        sb_quant_config_spec(qm->config, SB_QUANT_ACTIVATION, node, &act);
        sb_quant_config_spec(qm->config, SB_QUANT_WEIGHT, node, &weight);
        if (!act.disabled && !weight.disabled)
            SB_TRY(sb_bn_to_conv(g, (sb_node_id)i, &done));
    }
    return SB_OK;
}

static sb_status stage_canonicalize(sb_quant_model *qm)
{
    sb_graph *g = qm->graph;

    if (qm->target->ops && !sb_graph_holds(g, "Swish"))
        SB_TRY(sb_passes_run(g, "write_silu", NULL, NULL, NULL));
    if (sb_quant_config_mode(qm->config) != SB_QUANT_STATIC)
        return sb_canonicalize_gemm(qm, g);
    SB_TRY(stage_write_norms(qm, g));
    return sb_quant_merge_biases(qm, g);
}

/* ---- batch -------------------------------------------------------------- */

/* The number of samples that the file fixes; 0 if it leaves it open. */
static int64_t stage_file_batch(const sb_graph *g)
{
    for (size_t i = 0; i < g->n_inputs; i++) {
        const sb_value *v = sb_graph_value(g, g->inputs[i]);
        if (!v->is_constant && v->type.shape.rank > 0 &&
            sb_dim_known(v->type.shape.dim[0]))
            return v->type.shape.dim[0];
    }
    return 0;
}

/* The first dimension of each input, as the file has it. */
static sb_status stage_keep_batches(sb_quant_model *qm)
{
    const sb_graph *g = qm->graph;

    qm->file_batch = stage_file_batch(g);
    qm->batches = sb_arena_alloc(&qm->arena, g->n_inputs, sizeof *qm->batches);
    if (!qm->batches)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_inputs; i++) {
        const sb_shape *s = &sb_graph_value(g, g->inputs[i])->type.shape;
        qm->batches[i] = s->rank > 0 ? s->dim[0] : SB_DIM_UNKNOWN;
    }
    return SB_OK;
}

static void stage_replace_graph(sb_quant_model *qm, sb_graph *g)
{
    sb_graph_free(qm->graph);
    qm->graph = g;
}

/* For any batch, if it can be; and sorted, with no dead nodes or values, so
 * that nodes and values of later copies have the same IDs. */
static sb_status stage_batch(sb_quant_model *qm)
{
    sb_graph *dynamic = NULL, *sorted = NULL;

    SB_TRY(stage_keep_batches(qm));
    SB_TRY(sb_graph_make_batch_dynamic(qm->graph, &dynamic));
    qm->fixed_batch = dynamic ? 0 : qm->file_batch;
    if (dynamic) {
        stage_replace_graph(qm, dynamic);
        /* Constants of shapes may be equal now. */
        SB_TRY(sb_passes_run(qm->graph, "cse", NULL, NULL, NULL));
    }
    const sb_quant_schedule schedule = sb_quant_config_schedule(qm->config);
    /* For correction, and for training, which must not tie biases that happen
     * to be equal; a quantized file keeps the biases that it has, and one of a
     * language model has those of its architecture. */
    if ((schedule.bias_correction || schedule.bn_tuning ||
         schedule.blockwise.steps > 0 || qm->train) &&
        qm->known.n == 0 && !qm->half_scales)
        SB_TRY(sb_bias_layers_complete(qm->graph));
    SB_TRY(sb_graph_clone_sorted(qm->graph, &sorted));
    stage_replace_graph(qm, sorted);
    return SB_OK;
}

/* ---- place -------------------------------------------------------------- */

/* Layers with a constant weight inside If, Loop and Scan. */
typedef struct body_layers {
    size_t n;
    const char *first; /* one of them */
    const char *owner; /* the operator whose body it is in */
} body_layers;

/* Is it a constant, of the graph or of one around it? */
static bool stage_is_constant(const sb_graph *g, sb_value_id v)
{
    while (v != SB_NONE && sb_graph_value(g, v)->is_capture && g->parent) {
        v = sb_graph_find_value(g->parent, sb_graph_value(g, v)->name);
        g = g->parent;
    }
    return sb_is_const(g, v);
}

static void stage_count_layers(const sb_graph *g, const char *owner,
                               body_layers *found)
{
    const sb_graph *body;

    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (node->dead)
            continue;
        if (owner && sb_node_role(node) == SB_ROLE_WEIGHTED &&
            stage_is_constant(g, sb_node_in(node, 1)) && found->n++ == 0) {
            found->first = sb_node_label(g, node);
            found->owner = owner;
        }
        for (size_t i = 0; (body = sb_node_body(node, i)) != NULL; i++)
            stage_count_layers(body, node->op, found);
    }
}

/* What is left in float without anyone having asked for it. */
static void stage_name_bodies(const sb_quant_model *qm)
{
    body_layers found = {0};

    stage_count_layers(qm->graph, NULL, &found);
    if (found.n > 0)
        sb_warn(qm->ctx,
                "layers with weights in bodies of If, Loop or Scan stay in "
                "float: %zu, such as '%s' in %s (an If whose condition is "
                "constant is inlined; --value makes an input constant)",
                found.n, found.first, found.owner);
}

/* To patterns, nodes without a name are what messages call them. */
static void stage_name_nodes(sb_quant_model *qm)
{
    sb_graph *g = qm->graph;

    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        sb_node *node = sb_graph_node(g, id);

        if (!node->dead && !node->name[0] &&
            sb_quant_config_names(qm->config, sb_node_label(g, node)))
            node->name = sb_node_label(g, node);
    }
}

static sb_status stage_place(sb_quant_model *qm)
{
    stage_name_nodes(qm);
    SB_TRY(sb_quant_config_check_excluded(qm->config, qm->file, qm->graph));
    sb_quant_config_warn_unused(qm->config, qm->file, qm->graph);
    stage_name_bodies(qm);
    SB_TRY(sb_norms_keep(qm));
    SB_TRY(sb_quant_place(qm));
    return sb_quant_state_init(qm);
}

/* ---- the list ----------------------------------------------------------- */

static const sb_quant_stage stages[] = {
    {"import", "a quantized file as a float graph; its scales are kept",
     stage_import},
    {"simplify", "fewer nodes, same function; batch norm into layers",
     stage_simplify},
    {"canonicalize", "the forms on which the target places quantizers",
     stage_canonicalize},
    {"batch", "any number of samples, where samples do not mix", stage_batch},
    {"place", "quantizers on the edges of the graph", stage_place},
    {"deploy", "at export: rewrites for the kernels of the target", NULL},
};

const sb_quant_stage *sb_quant_stages(size_t *n)
{
    *n = SB_COUNT(stages);
    return stages;
}

/* Is the stage among names separated by commas or spaces? */
static bool stage_is_named(const char *names, const char *stage)
{
    size_t len = strlen(stage);

    for (const char *p = names; p && *p; p += strspn(p, ", ")) {
        size_t n = strcspn(p, ", ");
        if (n == len && strncmp(p, stage, n) == 0)
            return true;
        p += n;
    }
    return false;
}

/* SB_BAD_ARG, and the names of the stages, unless all of `names`, separated by
 * commas or spaces, are stages. */
static sb_status stages_check(sb_ctx *ctx, const char *names)
{
    for (const char *p = names; p && *p; p += strspn(p, ", ")) {
        size_t n = strcspn(p, ", "), i = 0;

        while (i < SB_COUNT(stages) && (strlen(stages[i].name) != n ||
                                        strncmp(p, stages[i].name, n) != 0))
            i++;
        if (i == SB_COUNT(stages)) {
            sb_str list;
            sb_str_init(&list, ctx);
            for (i = 0; i < SB_COUNT(stages); i++)
                sb_str_addf(&list, "%s%s", i ? ", " : "", stages[i].name);
            sb_status status = sb_fail(
                ctx, SB_BAD_ARG, "there is no stage '%.*s'; stages are %s",
                n < 64 ? (int)n : 64, p, sb_str_text(&list));
            sb_str_free(&list);
            return status;
        }
        p += n;
    }
    return SB_OK;
}

sb_status sb_quant_stage_dump(const sb_quant_model *qm, const char *stage)
{
    sb_graph *view = NULL;

    if (!stage_is_named(qm->dump_after, stage))
        return SB_OK;
    /* With quantizers as nodes, once they are placed. */
    if (!qm->place.of_value)
        return sb_graph_log(qm->graph);
    SB_TRY(sb_quant_view(qm, &view));
    sb_status status = sb_graph_log(view);
    sb_graph_free(view);
    return status;
}

sb_status sb_quant_stages_run(sb_quant_model *qm)
{
    SB_TRY(stages_check(qm->ctx, qm->dump_after));
    for (size_t i = 0; i < SB_COUNT(stages) && stages[i].run; i++) {
        SB_TRY(stages[i].run(qm));
        SB_TRY(sb_quant_stage_dump(qm, stages[i].name));
    }
    return SB_OK;
}
