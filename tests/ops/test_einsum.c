/* Einsum against the definition: every combination of indices is visited. */
#include "sbtest.h"

#include <stdio.h>
#include <string.h>

#include "exec/exec.h"
#include "graph/text.h"

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

enum { LETTERS = 128 };

/* ---- the definition, for explicit equations without ellipsis ------------ */

static int64_t offset(const sb_tensor *t, const char *letters,
                      const int64_t index[LETTERS])
{
    int64_t at = 0;

    for (int d = 0; d < t->rank; d++)
        at = at * t->dims[d] +
             (t->dims[d] == 1 ? 0 : index[(unsigned char)letters[d]]);
    return at;
}

/* Adds the product at every index to `y`, which starts as zeros. */
static void reference(const char *const terms[], const sb_tensor *const in[],
                      size_t n_in, double *y, const sb_tensor *shape)
{
    int64_t size[LETTERS] = {0}, index[LETTERS] = {0};
    bool more = true;

    for (size_t i = 0; i < n_in; i++)
        for (int d = 0; d < in[i]->rank; d++) {
            unsigned char c = (unsigned char)terms[i][d];
            if (in[i]->dims[d] > size[c])
                size[c] = in[i]->dims[d];
        }
    while (more) {
        double product = 1;

        for (size_t i = 0; i < n_in; i++)
            product *= sb_tensor_get_f64(in[i], offset(in[i], terms[i], index));
        y[offset(shape, terms[n_in], index)] += product;
        more = false;
        for (int c = 0; c < LETTERS && !more; c++) {
            if (size[c] == 0)
                continue;
            more = ++index[c] < size[c];
            if (!more)
                index[c] = 0;
        }
    }
}

typedef struct {
    const char *equation;
    const char *terms[4]; /* of the inputs, then of the output */
    const char *shapes[3];
} einsum_case;

static const einsum_case cases[] = {
    {"ij,jk->ik", {"ij", "jk", "ik"}, {"3x4", "4x5"}},
    {"ij,jk", {"ij", "jk", "ik"}, {"3x4", "4x5"}},
    {"bij,bjk->bik", {"bij", "bjk", "bik"}, {"2x3x4", "2x4x5"}},
    {"bhqd,bhkd->bhqk", {"bhqd", "bhkd", "bhqk"}, {"2x3x4x5", "2x3x6x5"}},
    {"bhqk,bkhd->bqhd", {"bhqk", "bkhd", "bqhd"}, {"2x3x4x6", "2x6x3x5"}},
    {"ij->ji", {"ij", "ji"}, {"3x4"}},
    {"ij->", {"ij", ""}, {"3x4"}},
    {"ii->i", {"ii", "i"}, {"4x4"}},
    {"ii->", {"ii", ""}, {"4x4"}},
    {"bii->bi", {"bii", "bi"}, {"3x4x4"}},
    {"i,i->", {"i", "i", ""}, {"5", "5"}},
    {"i,j->ij", {"i", "j", "ij"}, {"3", "5"}},
    {"i,j->ji", {"i", "j", "ji"}, {"3", "5"}},
    {"ij,ij->ij", {"ij", "ij", "ij"}, {"3x4", "3x4"}},
    {"ij,j->i", {"ij", "j", "i"}, {"3x4", "4"}},
    {"ijk,j->k", {"ijk", "j", "k"}, {"3x4x5", "4"}},
    {"ij,kl->", {"ij", "kl", ""}, {"2x3", "4x2"}},
    {"ij,jk->ik", {"ij", "jk", "ik"}, {"3x1", "4x5"}},
    {"ab,bc,cd->ad", {"ab", "bc", "cd", "ad"}, {"2x3", "3x4", "4x5"}},
    {"ab,ab,b->a", {"ab", "ab", "b", "a"}, {"2x3", "2x3", "3"}},
    {"bik,bkj->bij", {"bik", "bkj", "bij"}, {"2x40x40", "2x40x20"}},
    {"ki,kj->ji", {"ki", "kj", "ji"}, {"90x40", "90x30"}},
    {"aAb,bc->cA", {"aAb", "bc", "cA"}, {"2x3x4", "4x5"}},
};

/* The text of a graph with the equation over `n` inputs of a type. */
static void print_graph(const einsum_case *c, size_t n, const char *type,
                        char text[512])
{
    static const char *const names[] = {"a", "b", "c"};
    char types[64] = "", inputs[16] = "";

    for (size_t i = 0; i < n; i++) {
        size_t at = strlen(types);

        (void)snprintf(types + at, sizeof types - at, "%s%s: %s[*]",
                       i ? ", " : "", names[i], type);
        at = strlen(inputs);
        (void)snprintf(inputs + at, sizeof inputs - at, "%s%s", i ? ", " : "",
                       names[i]);
    }
    (void)snprintf(text, 512,
                   "graph g(%s) -> (y: %s[*]) {\n"
                   "  y = Einsum(%s) {equation=\"%s\"}\n}\n",
                   types, type, inputs, c->equation);
}

static void test_against_definition(void **state)
{
    static const sb_dtype types[] = {SB_DTYPE_F32, SB_DTYPE_F64, SB_DTYPE_I32};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases) * SB_COUNT(types); i++) {
        size_t c = i / SB_COUNT(types), n_in = 0;
        sb_dtype type = types[i % SB_COUNT(types)];
        char text[512];
        const sb_tensor *in[3];
        double want[2048] = {0};

        while (n_in < 3 && cases[c].shapes[n_in]) {
            in[n_in] = test_random(type, cases[c].shapes[n_in], 10 + i + n_in);
            n_in++;
        }
        print_graph(&cases[c], n_in, sb_dtype_get(type)->name, text);
        sb_tensor *y = test_run1(text, in);
        assert_true(sb_tensor_count(y) <= 2048);
        reference(cases[c].terms, in, n_in, want, y);
        for (int64_t j = 0; j < sb_tensor_count(y); j++)
            assert_close(cases[c].equation, sb_tensor_get_f64(y, j), want[j],
                         1e-4);
    }
}

static void test_ellipsis_stands_for_any_axes(void **state)
{
    (void)state;
    sb_tensor *a = test_random(SB_DTYPE_F32, "2x3x4", 1);
    sb_tensor *b = test_random(SB_DTYPE_F32, "2x4x5", 2);
    sb_tensor *dots = test_run1("graph g(a: f32[*], b: f32[*]) -> (y: f32[*])"
                                " {\n  y = Einsum(a, b) "
                                "{equation=\"...ij,...jk->...ik\"}\n}\n",
                                INPUTS(a, b));
    sb_tensor *letters =
        test_run1("graph g(a: f32[*], b: f32[*]) -> (y: f32[*])"
                  " {\n  y = Einsum(a, b) "
                  "{equation=\"bij,bjk->bik\"}\n}\n",
                  INPUTS(a, b));
    assert_tensor("ellipsis", dots, letters, 0);
    /* An ellipsis broadcasts from the right: [2,3,1] with [4]. */
    sb_tensor *y =
        test_run1("graph g(a: f32[*], b: f32[*]) -> (y: f32[*])"
                  " {\n  y = Einsum(a, b) "
                  "{equation=\"...,...->...\"}\n}\n",
                  INPUTS(test_f32("2x1", 2, 3), test_f32("3", 1, 10, 100)));
    assert_tensor("broadcast", y, test_f32("2x3", 2, 20, 200, 3, 30, 300), 0);
}

static void test_bad_equations_are_refused(void **state)
{
    static const char *const bad[] = {
        "ij,jk->il", "ij->ij",   "ij,jk,kl->il", "i.j,jk->ik",  "ij,jk->ii",
        "ijk,jk->i", "ij,jk-ik", "i1,jk->ik",    "....,jk->jk", "ii,jk->ik",
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(bad); i++) {
        char text[256];

        (void)snprintf(text, sizeof text,
                       "graph g(a: f32[2,3], b: f32[3,4]) -> (y: f32[*]) {\n"
                       "  y = Einsum(a, b) {equation=\"%s\"}\n}\n",
                       bad[i]);
        assert_status(
            test_try_run(text, INPUTS(test_random(SB_DTYPE_F32, "2x3", 1),
                                      test_random(SB_DTYPE_F32, "3x4", 2))),
            SB_BAD_MODEL);
        assert_error_has("equation");
    }
}

/* Large enough for oneDNN. */
static sb_status run_once(sb_ctx *ctx)
{
    const char *text = "graph g(a: f32[2,40,40], b: f32[2,40,20]) -> "
                       "(y: f32[2,20,40]) {\n"
                       "  y = Einsum(a, b) {equation=\"bik,bkj->bji\"}\n}\n";
    const sb_tensor *in[] = {test_random(SB_DTYPE_F32, "2x40x40", 1),
                             test_random(SB_DTYPE_F32, "2x40x20", 2)};
    const sb_exec_options opt = {0};
    const sb_tensor *out;
    sb_graph *graph = NULL;
    sb_exec *exec = NULL;

    sb_status status = sb_graph_parse(ctx, text, &graph);
    if (status == SB_OK)
        status = sb_graph_infer(graph);
    if (status == SB_OK)
        status = sb_exec_create(ctx, graph, &opt, &exec);
    if (status == SB_OK)
        status = sb_exec_run(exec, in, NULL, &out);
    sb_exec_free(exec);
    sb_graph_free(graph);
    return status;
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    test_every_allocation("einsum", run_once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_definition),
        cmocka_unit_test(test_ellipsis_stands_for_any_axes),
        cmocka_unit_test(test_bad_equations_are_refused),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests_name("einsum", tests, NULL, NULL);
}
