/* A quantized model as people see it: quantizers on the edges they serve, and
 * modules that are kept in float as one node. */
#include "quanttest.h"

#include <stdlib.h>

#include "graph/text.h"
#include "ops/op_registry.h"
#include "quant/model/quant_view.h"

#define HEAD "graph net(x: f32[N,4]) -> (y) {\nw: f32[4,4] = random(1)\n"
#define Q(name)                                                            \
    " {bits=8, scheme=\"per-tensor-affine\", observer=\"minmax\"} \"" name \
    ".input_quantizer\""
#define QW(name)                                                               \
    " {bits=8, scheme=\"per-channel-symmetric\", observer=\"minmax\"} \"" name \
    ".weight_quantizer\""

static const struct {
    const char *what, *skip, *graph, *want;
} cases[] = {
    {"a module in the middle", "body*",
     HEAD "a = MatMul(x, w) \"fc1\" @ stem\n"
          "b = MatMul(a, w) \"fc2\" @ body.fc\nc = Relu(b) @ body.act\n"
          "d = MatMul(c, w) \"fc3\" @ body.fc2\ne = Add(d, a) @ body\n"
          "y = MatMul(e, w) \"fc4\" @ head\n}",
     "x_0 = sparsebit::Quantizer(x)" Q(
         "stem") " @ stem\n"
                 "w_1 = sparsebit::Quantizer(w)" QW(
                     "stem") " @ stem\n"
                             "a = MatMul(x_0, w_1) \"fc1\" @ stem\n"
                             "e = sparsebit::Module(a) \"body\" @ body\n"
                             "e_2 = sparsebit::Quantizer(e)" Q(
                                 "head") " @ head\n"
                                         "y = MatMul(e_2, w_1) \"fc4\" @ "
                                         "head\n"},
    {"two results, two inputs", "m",
     "graph net(x: f32[N,4], z: f32[N,4]) -> (y) {\nw: f32[4,4] = random(1)\n"
     "a = Neg(x) @ m.p\nb = Exp(z) @ m.q\ny = Mul(a, b) \"mul\"\n}",
     "a, b = sparsebit::Module(x, z) \"m\" @ m\n"
     "a_0 = sparsebit::Quantizer(a)" Q(
         "mul_identity0") "\n"
                          "b_1 = sparsebit::Quantizer(b)" Q(
                              "mul_identity1") "\n"
                                               "y = Mul(a_0, b_1) \"mul\"\n"},
    {"a way out and back: shown as it is", "m*",
     HEAD "a = Neg(x) @ m.p\nb = MatMul(a, w) \"fc\" @ other\n"
          "c = Neg(b) @ m.q\ny = Add(c, a) @ m.r\n}",
     "a = Neg(x) @ m.p\n"
     "a_0 = sparsebit::Quantizer(a)" Q(
         "other") " @ other\n"
                  "w_1 = sparsebit::Quantizer(w)" QW(
                      "other") " @ other\n"
                               "b = MatMul(a_0, w_1) \"fc\" @ other\n"
                               "c = Neg(b) @ m.q\ny = Add(c, a) @ m.r\n"},
    {"the top-level module that is meant", "m.p.*",
     HEAD "a = Neg(x) @ m.p.one\nb = Exp(a) @ m.p.one\n"
          "y = MatMul(b, w) \"fc\" @ m.fc\n}",
     "b = sparsebit::Module(x) \"m.p.one\" @ m.p.one\n"
     "b_0 = sparsebit::Quantizer(b)" Q(
         "m.fc") " @ m.fc\n"
                 "w_1 = sparsebit::Quantizer(w)" QW(
                     "m.fc") " @ m.fc\n"
                             "y = MatMul(b_0, w_1) \"fc\" @ m.fc\n"},
};

/* The lines of nodes, without indent. */
static void nodes_of(const char *text, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");
        const char *start = line + strspn(line, " ");
        bool is_node = strstr(start, " = ") && strchr(start, '(') &&
                       strchr(start, '(') < line + len &&
                       memcmp(start, "graph ", 6) != 0;
        if (is_node) {
            size_t n = (size_t)(line + len - start) + 1;
            assert_true(used + n < size);
            memcpy(out + used, start, n);
            used += n;
            out[used] = '\0';
        }
        line += len + (line[len] == '\n');
    }
}

static void test_views_show_quantizers_on_edges(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char yaml[256], got[4096], *text = NULL;

        (void)snprintf(yaml, sizeof yaml,
                       "SKIP_TRACE_MODULES: [\"%s\"]\n" TEST_W8 TEST_A8,
                       cases[i].skip);
        sb_quant_model *qm = test_quant(cases[i].graph, yaml, NULL);
        assert_ok(sb_quant_model_print(qm, SB_GRAPH_FORMAT_TEXT, &text));
        nodes_of(text, got, sizeof got);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%s: got\n%swant\n%s", cases[i].what, got, cases[i].want);
        sb_memory_free(text);
        sb_quant_model_free(qm);
    }
}

static void test_mermaid_file(void **state)
{
    (void)state;
    sb_quant_model *qm =
        test_quant(cases[0].graph,
                   "SKIP_TRACE_MODULES: [\"body*\"]\n" TEST_W8 TEST_A8, NULL);
    const sb_tensor *data[] = {test_f32("1x4", 0, 1, 2, 255), NULL};
    char path[64], text[4096] = "";

    test_calibrate(qm, NULL, data);
    (void)snprintf(path, sizeof path, "/tmp/sparsebit-view-%p", (void *)qm);
    assert_ok(sb_quant_model_dump_mermaid(qm, path));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    (void)fclose(f);
    (void)remove(path);
    assert_memory_equal(text, "flowchart TD\n", 13);
    assert_non_null(strstr(text, "[\"body<br/>in float\"]"));
    assert_non_null(strstr(text, "{{\"8 bit per-tensor-affine<br/>"
                                 "stem.input_quantizer\"}}"));
    char *view = NULL;
    assert_ok(sb_quant_model_print(qm, SB_GRAPH_FORMAT_TEXT, &view));
    assert_non_null(strstr(view, "scale=1.0, zero_point=0.0"));
    sb_memory_free(view);
    assert_status(sb_quant_model_dump_mermaid(qm, "/nowhere/at/all"), SB_IO);
    sb_quant_model_free(qm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views_show_quantizers_on_edges),
        cmocka_unit_test(test_mermaid_file),
    };

    return cmocka_run_group_tests_name("quant_view", tests, NULL, NULL);
}
