/* sb_session: the executor behind checks of what the caller hands in. */
#include "api/session.h"

#include <string.h>

#include "base/options.h"
#include "passes/pass.h"
#include "runtime/sim/sim.h"

/* Does the runtime that the file was written for compute it as our integer
 * kernels do?  A file of another tool is taken for one of the default
 * runtime's. */
static bool is_for_integers(const sb_graph *g)
{
    const char *name = sb_graph_prop(g, "sparsebit.target");
    const sb_target_def *target = name ? sb_target_find(name) : NULL;

    return !name || (target && target->integer_truth);
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

/* The graph as it runs: with the integer operators that a runtime makes of
 * Q/DQ groups, if asked, which must be seen as the file has them; then
 * simplified and fused, unless the caller wants to see every value. */
static sb_status session_lower(sb_session *s, bool fuse)
{
    if (s->integer)
        SB_TRY(sb_sim_to_integer(s->graph, sb_target_default()));
    if (!fuse)
        return SB_OK;
    return sb_passes_run(s->graph, "lower", NULL, NULL, NULL);
}

static sb_status session_setup(sb_session *s, const sb_model *model,
                               const sb_exec_options *opt)
{
    SB_TRY(sb_model_io_fill(&s->io, model->graph));
    s->outputs = sb_alloc(s->ctx, model->graph->n_outputs, sizeof(*s->outputs));
    if (!s->outputs)
        return SB_NO_MEMORY;
    SB_TRY(sb_graph_clone(model->graph, &s->graph));
    SB_TRY(session_lower(s, !opt->dump));
    return sb_exec_create(s->ctx, s->graph, opt, &s->exec);
}

sb_status sb_session_create(const sb_model *model,
                            const sb_session_options *options, sb_session **out)
{
    const sb_session_options defaults = SB_SESSION_OPTIONS_INIT;
    sb_ctx *ctx = model->ctx;
    sb_session_options opt;

    SB_TRY(sb_options_read(ctx, "sb_session_options", options, &defaults,
                           sizeof opt, &opt));
    sb_session *s = sb_alloc(ctx, 1, sizeof *s);
    if (!s)
        return SB_NO_MEMORY;
    const sb_exec_options exec_opt = {.dump = opt.dump,
                                      .dump_user = opt.dump_user,
                                      .exact = opt.exact != 0,
                                      .profile = opt.profile != 0};
    s->ctx = ctx;
    sb_feed_init(&s->feed, ctx, &s->io);
    s->integer = opt.integer == SB_INTEGER_MODE_BY_TARGET
                     ? has_q(model->graph) && is_for_integers(model->graph)
                     : opt.integer == SB_INTEGER_MODE_ON;
    sb_status status = session_setup(s, model, &exec_opt);
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
    for (size_t i = 0; s->gathered && i < s->io.n_outputs; i++)
        sb_tensor_drop(&s->gathered[i]);
    sb_free(s->ctx, s->gathered);
    sb_feed_clear(&s->feed);
    sb_exec_free(s->exec);
    sb_graph_free(s->graph);
    sb_model_io_free(&s->io);
    sb_free(s->ctx, s->outputs);
    sb_free(s->ctx, s);
}

/* ---- running ------------------------------------------------------------ */

static sb_status check_input(sb_ctx *ctx, const sb_value_info *want,
                             const sb_tensor *t)
{
    if (!t && want->is_constant)
        return SB_OK; /* its default stands */
    if (!t)
        return sb_fail(ctx, SB_BAD_ARG, "input '%s' is missing", want->name);
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

sb_status sb_session_run_all(sb_session *s, const sb_tensor *const *inputs)
{
    for (size_t i = 0; i < s->io.n_inputs; i++)
        SB_TRY(check_input(s->ctx, &s->io.inputs[i], inputs[i]));
    return sb_exec_run(s->exec, inputs, NULL, s->outputs);
}

static sb_status check_input_count(const sb_session *s, size_t n)
{
    if (n != s->io.n_inputs)
        return sb_fail(s->ctx, SB_BAD_ARG, "got %zu inputs, want %zu", n,
                       s->io.n_inputs);
    return SB_OK;
}

static sb_status check_output_count(const sb_session *s, size_t n_outputs)
{
    if (n_outputs > s->io.n_outputs)
        return sb_fail(s->ctx, SB_BAD_ARG, "got %zu outputs, want at most %zu",
                       n_outputs, s->io.n_outputs);
    return SB_OK;
}

sb_status sb_session_run(sb_session *s, const sb_tensor *const *inputs,
                         size_t n_inputs, const sb_tensor **outputs,
                         size_t n_outputs)
{
    SB_TRY(check_input_count(s, n_inputs));
    SB_TRY(check_output_count(s, n_outputs));
    SB_TRY(sb_session_run_all(s, inputs));
    for (size_t i = 0; i < n_outputs; i++)
        outputs[i] = s->outputs[i];
    return SB_OK;
}

static sb_status find_named(const sb_session *s, const char *what,
                            const sb_value_info *infos, size_t n,
                            const char *name, size_t *out)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(infos[i].name, name) == 0) {
            *out = i;
            return SB_OK;
        }
    return sb_fail(s->ctx, SB_BAD_ARG, "the model has no %s '%s'", what, name);
}

/* `places` has room for all inputs and all outputs. */
static sb_status run_named(sb_session *s, const char *const *input_names,
                           const sb_tensor *const *inputs, size_t n_inputs,
                           const char *const *output_names,
                           const sb_tensor **outputs, size_t n_outputs,
                           const sb_tensor **places)
{
    size_t at = 0;

    SB_TRY(check_output_count(s, n_outputs));
    for (size_t i = 0; i < n_inputs; i++) {
        SB_TRY(find_named(s, "input", s->io.inputs, s->io.n_inputs,
                          input_names[i], &at));
        places[at] = inputs[i];
    }
    for (size_t i = 0; i < n_outputs; i++)
        SB_TRY(find_named(s, "output", s->io.outputs, s->io.n_outputs,
                          output_names[i], &at));
    SB_TRY(sb_session_run_all(s, places));
    for (size_t i = 0; i < n_outputs; i++) {
        SB_TRY(find_named(s, "output", s->io.outputs, s->io.n_outputs,
                          output_names[i], &at));
        outputs[i] = s->outputs[at];
    }
    return SB_OK;
}

sb_status sb_session_run_named(sb_session *s, const char *const *input_names,
                               const sb_tensor *const *inputs, size_t n_inputs,
                               const char *const *output_names,
                               const sb_tensor **outputs, size_t n_outputs)
{
    const sb_tensor **places =
        sb_alloc(s->ctx, s->io.n_inputs, sizeof(*places));

    if (!places)
        return SB_NO_MEMORY;
    sb_status status = run_named(s, input_names, inputs, n_inputs, output_names,
                                 outputs, n_outputs, places);
    sb_free(s->ctx, places);
    return status;
}

/* ---- outputs of the caller ---------------------------------------------- */

static sb_status check_output(const sb_session *s, size_t i,
                              const sb_tensor *to)
{
    const sb_tensor *from = s->outputs[i];
    char got[128], want[128];

    if (!to || (to->dtype == from->dtype && to->rank == from->rank &&
                memcmp(to->dims, from->dims,
                       (size_t)to->rank * sizeof to->dims[0]) == 0 &&
                to->dtype != SB_DTYPE_STRING))
        return SB_OK;
    return sb_fail(
        s->ctx, SB_BAD_DATA, "output '%s': is %s, the tensor for it %s",
        s->io.outputs[i].name, sb_tensor_describe(from, want, sizeof want),
        sb_tensor_describe(to, got, sizeof got));
}

static sb_status copy_outputs(sb_session *s, sb_tensor **outputs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const sb_tensor *from = s->outputs[i];

        if (!outputs[i])
            SB_TRY(sb_tensor_copy(s->ctx, from, &outputs[i]));
        else if (sb_tensor_bytes(from) > 0)
            memcpy(outputs[i]->data, from->data, sb_tensor_bytes(from));
    }
    return SB_OK;
}

sb_status sb_session_run_into(sb_session *s, const sb_tensor *const *inputs,
                              size_t n_inputs, sb_tensor **outputs,
                              size_t n_outputs)
{
    sb_tensor **made = NULL;

    SB_TRY(check_input_count(s, n_inputs));
    SB_TRY(check_output_count(s, n_outputs));
    SB_TRY(sb_session_run_all(s, inputs));
    for (size_t i = 0; i < n_outputs; i++)
        SB_TRY(check_output(s, i, outputs[i]));
    made = sb_alloc(s->ctx, n_outputs, sizeof(*made));
    if (!made)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n_outputs; i++)
        made[i] = outputs[i];
    sb_status status = copy_outputs(s, made, n_outputs);
    for (size_t i = 0; i < n_outputs; i++)
        if (status != SB_OK && made[i] != outputs[i])
            sb_tensor_free(made[i]);
        else
            outputs[i] = made[i];
    sb_free(s->ctx, made);
    return status;
}

size_t sb_session_workspace(const sb_session *s)
{
    return sb_exec_workspace(s->exec);
}

sb_status sb_session_profile(sb_session *s, const sb_profile **out)
{
    return sb_exec_profile(s->exec, out);
}
