/* sb_session: the executor behind checks of what the caller hands in. */
#include "api/session.h"

#include "base/file.h"
#include "base/peak.h"
#include "passes/pass.h"
#include "report/profile_page.h"

#include <string.h>

/* A copy of the graph after these passes.  The weights are shared. */
static sb_status lower(sb_session *s, const char *passes)
{
    sb_pass_result *results = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_clone(s->model->graph, &s->lowered));
    SB_TRY(sb_passes_run(s->lowered, passes, NULL, &results, &n));
    sb_free(s->ctx, results);
    return SB_OK;
}

/* Simplified and fused for running; a caller who wants to see every value gets
 * the graph as it is. */
static const char *passes_for(const sb_exec_options *opt, bool integer)
{
    if (opt->dump)
        return integer ? "qdq_to_integer" : NULL;
    return integer ? "integer" : "lower";
}

/* Would whoever this file was written for compute it as integers, as ONNX
 * Runtime does?  Other runtimes have arithmetic of their own, to which float
 * with rounding is as near. */
static bool is_for_integers(const sb_graph *g)
{
    for (size_t i = 0; i < g->n_model_props; i++)
        if (strcmp(g->model_props[i].key, "sparsebit.target") == 0)
            return strncmp(g->model_props[i].value, "onnxruntime", 11) == 0;
    return true;
}

static bool has_q(const sb_graph *g)
{
    for (sb_node_id i = 0; i < g->n_nodes; i++) {
        const sb_node *node = sb_graph_node(g, i);
        if (!node->dead && sb_node_is(node, "QuantizeLinear"))
            return true;
    }
    return false;
}

sb_status sb_session_create(sb_ctx *ctx, const sb_model *model,
                            const sb_session_options *opt, sb_session **out)
{
    sb_exec_options exec_opt = {0};
    sb_session *s = sb_alloc(ctx, 1, sizeof *s);
    bool integer = false;

    if (!s)
        return SB_NO_MEMORY;
    if (opt) {
        exec_opt.dump = opt->dump;
        exec_opt.dump_user = opt->dump_user;
        exec_opt.exact = opt->exact != 0;
        if (opt->struct_size > offsetof(sb_session_options, profile))
            exec_opt.profile = opt->profile != 0;
        if (opt->struct_size > offsetof(sb_session_options, integer))
            integer = opt->integer == SB_INTEGER_BY_TARGET
                          ? has_q(model->graph) && is_for_integers(model->graph)
                          : opt->integer != 0;
    }
    s->ctx = ctx;
    s->model = model;
    s->integer = integer;
    s->inputs = sb_alloc(ctx, model->graph->n_inputs, sizeof *s->inputs);
    sb_status status = s->inputs ? SB_OK : SB_NO_MEMORY;
    const char *passes = passes_for(&exec_opt, integer);
    if (status == SB_OK && passes)
        status = lower(s, passes);
    if (status == SB_OK)
        status = sb_exec_create(ctx, s->lowered ? s->lowered : model->graph,
                                &exec_opt, &s->exec);
    if (status == SB_OK)
        *out = s;
    else
        sb_session_free(s);
    return status;
}

int sb_session_is_integer(const sb_session *session)
{
    return session->integer;
}

void sb_session_free(sb_session *s)
{
    if (!s)
        return;
    for (size_t i = 0; s->gathered && i < s->model->n_outputs; i++)
        sb_tensor_drop(&s->gathered[i]);
    sb_free(s->ctx, s->gathered);
    sb_exec_free(s->exec);
    sb_graph_free(s->lowered);
    sb_free(s->ctx, s->inputs);
    sb_free(s->ctx, s);
}

static sb_status check_input(sb_ctx *ctx, const sb_value_info *want,
                             const sb_tensor *t)
{
    bool fits = (want->dtype == SB_DTYPE_NONE || want->dtype == t->dtype) &&
                (want->rank < 0 || want->rank == t->rank);
    char got[128];

    for (int i = 0; fits && i < want->rank; i++)
        fits = want->dims[i] < 0 || want->dims[i] == t->dims[i];
    if (fits)
        return SB_OK;
    return sb_fail(ctx, SB_BAD_DATA, "input '%s': got %s, want %s", want->name,
                   sb_tensor_describe(t, got, sizeof got), want->text);
}

sb_status sb_session_run(sb_session *s, const sb_tensor *const *inputs,
                         const sb_tensor **outputs)
{
    const sb_graph *g = s->model->graph;
    size_t given = 0;

    for (size_t i = 0; i < g->n_inputs; i++) {
        const sb_value *v = sb_graph_value(g, g->inputs[i]);

        if (v->is_constant) {
            s->inputs[i] = NULL; /* its default stands */
            continue;
        }
        SB_TRY(check_input(s->ctx, &s->model->inputs[given], inputs[given]));
        s->inputs[i] = inputs[given++];
    }
    return sb_exec_run(s->exec, s->inputs, NULL, outputs);
}

size_t sb_session_workspace(const sb_session *s)
{
    return sb_exec_workspace(s->exec);
}

sb_status sb_session_profile(sb_session *s, sb_profile *out)
{
    return sb_exec_profile(s->exec, out);
}

double sb_peak_measure(sb_ctx *ctx, const char **how)
{
    const char *unused = NULL;

    return sb_peak_gflops(ctx, how ? how : &unused);
}

static sb_status save_text(sb_ctx *ctx, const char *path, const sb_str *text)
{
    sb_writer *w = NULL;

    SB_TRY(sb_str_status(text));
    SB_TRY(sb_writer_open(ctx, path, &w));
    sb_writer_put(w, sb_str_text(text), text->len);
    return sb_writer_commit(w);
}

sb_status sb_session_profile_save(sb_session *s, const char *title,
                                  const char *subtitle, double peak_gflops,
                                  const char *path)
{
    sb_profile profile;
    sb_str page;

    SB_TRY(sb_exec_profile(s->exec, &profile));
    sb_str_init(&page, s->ctx);
    sb_report_profile(&profile, title, subtitle, peak_gflops, &page);
    sb_status status = save_text(s->ctx, path, &page);
    sb_str_free(&page);
    return status;
}
