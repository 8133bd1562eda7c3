/* Testing passes. */
#include "passtest.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "exec/exec.h"
#include "graph/text.h"
#include "passes/pass.h"

enum { MAX_VALUES = 16, SYMBOL_SIZE = 3 };

static void fail_case(const char *what, const char *want, const char *got)
{
    print_error("case '%s'\nwant:\n%s\ngot:\n%s\n", what, want, got);
    fail();
}

/* ---- text --------------------------------------------------------------- */

/* The body of the printed graph without its indent. */
static void body_text(const sb_graph *g, sb_str *out)
{
    sb_str all;

    sb_str_init(&all, test_ctx());
    assert_ok(sb_graph_print(g, &all));
    const char *p = strchr(sb_str_text(&all), '\n') + 1;
    while (strncmp(p, "    ", 4) == 0) {
        const char *end = strchr(p, '\n');
        sb_str_addn(out, p + 4, (size_t)(end - p) - 3);
        p = end + 1;
    }
    sb_str_free(&all);
}

/* ---- results ------------------------------------------------------------ */

static sb_tensor *random_input(const sb_value *v, uint64_t seed)
{
    char shape[16 * SB_MAX_RANK] = "";

    for (int i = 0; i < v->type.shape.rank; i++) {
        sb_dim d = v->type.shape.dim[i];
        size_t used = strlen(shape);
        (void)snprintf(shape + used, sizeof shape - used, "%s%lld",
                       i ? "x" : "",
                       (long long)(sb_dim_known(d) ? d : SYMBOL_SIZE));
    }
    return test_random(v->type.dtype, shape, seed);
}

static void run(const char *what, const sb_graph *g, sb_tensor *out)
{
    const sb_tensor *in[MAX_VALUES], *got[MAX_VALUES];
    const sb_exec_options opt = {0};
    sb_exec *exec = NULL;

    assert_true(g->n_inputs <= MAX_VALUES && g->n_outputs <= MAX_VALUES);
    for (size_t i = 0; i < g->n_inputs; i++)
        in[i] = random_input(sb_graph_value(g, g->inputs[i]), 7 + i);
    assert_ok(sb_exec_create(test_ctx(), g, &opt, &exec));
    sb_status status = sb_exec_run(exec, in, NULL, got);
    if (status != SB_OK)
        fail_case(what, "a run", sb_ctx_error(test_ctx()));
    for (size_t i = 0; i < g->n_outputs; i++) {
        out[i] = sb_tensor_make(got[i]->dtype, got[i]->rank, got[i]->dims);
        assert_ok(sb_tensor_alloc(test_ctx(), &out[i]));
        memcpy(out[i].data, got[i]->data, sb_tensor_bytes(got[i]));
    }
    sb_exec_free(exec);
}

static void compare(const char *what, const sb_graph *g,
                    const sb_tensor *before)
{
    sb_tensor after[MAX_VALUES];

    run(what, g, after);
    for (size_t i = 0; i < g->n_outputs; i++) {
        double tol = before[i].dtype == SB_DTYPE_F16 ? 4e-3 : 1e-5;
        assert_tensor(what, &after[i], &before[i], tol);
        sb_tensor_drop(&after[i]);
    }
}

/* ---- cases -------------------------------------------------------------- */

static void run_passes(const char *what, sb_graph *g, const char *passes)
{
    sb_pass_result *results = NULL;
    size_t n = 0;

    sb_status status = sb_passes_run(g, passes, NULL, &results, &n);
    if (status != SB_OK)
        fail_case(what, "the passes to run", sb_ctx_error(test_ctx()));
    sb_free(test_ctx(), results);
    assert_ok(sb_graph_verify(g));
}

static void one_case(const char *passes, const pass_case *c)
{
    sb_tensor before[MAX_VALUES];
    sb_graph *g = NULL;
    sb_str want, got;

    sb_str_init(&want, test_ctx());
    sb_str_init(&got, test_ctx());
    if (sb_graph_parse(test_ctx(), c->before, &g) != SB_OK)
        fail_case(c->what, "a graph", sb_ctx_error(test_ctx()));
    assert_ok(sb_graph_infer(g));
    if (!c->no_run)
        run(c->what, g, before);
    if (c->after)
        sb_str_add(&want, c->after);
    else
        body_text(g, &want);
    run_passes(c->what, g, passes);
    run_passes(c->what, g, "remove_dead");
    body_text(g, &got);
    if (strcmp(sb_str_text(&want), sb_str_text(&got)) != 0)
        fail_case(c->what, sb_str_text(&want), sb_str_text(&got));
    if (!c->no_run) {
        compare(c->what, g, before);
        for (size_t i = 0; i < g->n_outputs; i++)
            sb_tensor_drop(&before[i]);
    }
    sb_graph_free(g);
    sb_str_free(&want);
    sb_str_free(&got);
}

void test_passes(const char *passes, const pass_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        one_case(passes, &cases[i]);
}

void test_pass_removes(const char *passes, const char *what, const char *text,
                       const char *op)
{
    sb_tensor before[MAX_VALUES];
    sb_graph *g = NULL;

    if (sb_graph_parse(test_ctx(), text, &g) != SB_OK)
        fail_case(what, "a graph", sb_ctx_error(test_ctx()));
    assert_ok(sb_graph_infer(g));
    run(what, g, before);
    run_passes(what, g, passes);
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (!sb_graph_node(g, id)->dead && sb_node_is(sb_graph_node(g, id), op))
            fail_case(what, "it to be gone", op);
    compare(what, g, before);
    for (size_t i = 0; i < g->n_outputs; i++)
        sb_tensor_drop(&before[i]);
    sb_graph_free(g);
}

size_t test_pass_chain(const char *passes, const char *type, const char *consts,
                       const char *link, size_t n)
{
    sb_graph *g = NULL;
    sb_str text;

    sb_str_init(&text, test_ctx());
    sb_str_addf(&text, "graph main(v0: %s) -> (v%zu: %s) {\n%s", type, n, type,
                consts);
    for (size_t i = 0; i < n; i++)
        for (const char *p = link; *p; p++) {
            /* "%o" is the number of the output, "%i" of the input. */
            bool out = p[0] == '%' && p[1] == 'o';
            bool in = p[0] == '%' && p[1] == 'i';
            if (out || in)
                sb_str_addf(&text, "%zu", out ? i + 1 : i);
            else
                sb_str_addn(&text, p, 1);
            p += out || in;
        }
    sb_str_add(&text, "}\n");
    assert_ok(sb_str_status(&text));
    assert_ok(sb_graph_parse(test_ctx(), sb_str_text(&text), &g));
    run_passes("chain", g, passes);
    size_t left = sb_graph_live_nodes(g);
    sb_graph_free(g);
    sb_str_free(&text);
    return left;
}
