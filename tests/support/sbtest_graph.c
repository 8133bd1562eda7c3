/* Running a graph given as text, through the internals. */
#include "sbtest.h"

#include "api/session.h"

#include <stdio.h>
#include <string.h>

#include "exec/exec.h"
#include "graph/text.h"

enum { MAX_OUTPUTS = 64 };

/* Runs and copies the outputs; `outputs` may be NULL. */
static sb_status run(sb_graph *graph, const sb_tensor *const *inputs,
                     sb_tensor **outputs, size_t n_outputs)
{
    const sb_tensor *got[MAX_OUTPUTS];
    const sb_exec_options opt = {0};
    sb_exec *exec = NULL;

    SB_TRY(sb_graph_infer(graph));
    assert_true(graph->n_outputs <= MAX_OUTPUTS);
    SB_TRY(sb_exec_create(test_ctx(), graph, &opt, &exec));
    sb_status status = sb_exec_run(exec, inputs, NULL, got);
    if (status == SB_OK && outputs) {
        assert_int_equal(graph->n_outputs, n_outputs);
        for (size_t i = 0; i < n_outputs; i++) {
            char shape[16 * SB_MAX_RANK] = "";

            for (int d = 0; d < got[i]->rank; d++) {
                size_t used = strlen(shape);
                (void)snprintf(shape + used, sizeof shape - used, "%s%lld",
                               d ? "x" : "", (long long)got[i]->dims[d]);
            }
            outputs[i] = test_tensor(got[i]->dtype, shape, NULL);
            if (sb_tensor_bytes(got[i]) > 0)
                memcpy(outputs[i]->data, got[i]->data, sb_tensor_bytes(got[i]));
        }
    }
    sb_exec_free(exec);
    return status;
}

void test_run(const char *text, const sb_tensor *const *inputs,
              sb_tensor **outputs, size_t n_outputs)
{
    sb_graph *graph = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &graph));
    assert_ok(run(graph, inputs, outputs, n_outputs));
    sb_graph_free(graph);
}

sb_tensor *test_run1(const char *text, const sb_tensor *const *inputs)
{
    sb_tensor *out = NULL;

    test_run(text, inputs, &out, 1);
    return out;
}

sb_status test_try_run(const char *text, const sb_tensor *const *inputs)
{
    sb_graph *graph = NULL;
    sb_status status = sb_graph_parse(test_ctx(), text, &graph);

    if (status == SB_OK)
        status = run(graph, inputs, NULL, 0);
    sb_graph_free(graph);
    return status;
}

sb_status test_session_run(sb_session *session, const sb_tensor *const *inputs,
                           const sb_tensor **outputs)
{
    return sb_session_run(session, inputs, session->io.n_inputs, outputs,
                          session->io.n_outputs);
}
