/* Searches: the solver against all mixtures, configurations as text, and a
 * whole search on a small network. */
#include "quanttest.h"

#include <math.h>

#include "base/rng.h"
#include "quant/search/mixed_config.h"
#include "quant/search/solve.h"

enum { THINGS = 7, CHOICES = 3, MIXTURES = 2187 /* 3^7 */ };

static void add_mixture(int mixture, const double *size, const double *error,
                        double *all_size, double *all_error)
{
    *all_size = *all_error = 0;
    for (int i = 0; i < THINGS; i++, mixture /= CHOICES) {
        *all_size += size[i * CHOICES + mixture % CHOICES];
        *all_error += error[i * CHOICES + mixture % CHOICES];
    }
}

static void test_solutions_are_the_best_of_all_mixtures(void **state)
{
    (void)state;
    double size[THINGS * CHOICES], error[THINGS * CHOICES];
    sb_rng rng;
    sb_frontier f;
    size_t n = 0;

    sb_rng_init(&rng, 11);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < THINGS * CHOICES; i++) {
            size[i] = (double)sb_rng_below(&rng, 50);
            error[i] = (double)sb_rng_below(&rng, 50);
        }
        assert_ok(
            sb_frontier_make(test_ctx(), THINGS, CHOICES, size, error, &f));
        const sb_solution *list = sb_frontier_solutions(&f, &n);
        assert_true(n > 0);
        for (double limit = list[0].size; limit < 7 * 50; limit += 13) {
            double best = INFINITY, found = INFINITY, s, e;
            for (int m = 0; m < MIXTURES; m++) {
                add_mixture(m, size, error, &s, &e);
                if (s <= limit)
                    best = fmin(best, e);
            }
            for (size_t i = 0; i < n && list[i].size <= limit; i++)
                found = list[i].error;
            assert_true(found == best);
        }
        for (size_t i = 0; i < n; i++) { /* choices add up */
            uint32_t choices[THINGS];
            double s = 0, e = 0;
            sb_frontier_choices(&f, i, choices);
            for (int k = 0; k < THINGS; k++) {
                s += size[k * CHOICES + (int)choices[k]];
                e += error[k * CHOICES + (int)choices[k]];
            }
            assert_true(s == list[i].size && e == list[i].error);
        }
        sb_frontier_free(&f);
    }
}

/* Too many mixtures to keep: what is returned still adds up and fits. */
static void test_many_things_are_nearly_exact(void **state)
{
    (void)state;
    enum { MANY = 60 };
    double size[MANY * 2], error[MANY * 2], low = 0, all = 0;
    sb_rng rng;
    sb_frontier f;
    size_t n = 0;

    sb_rng_init(&rng, 12);
    for (int i = 0; i < MANY; i++) {
        size[2 * i] = 1 + sb_rng_uniform(&rng);
        error[2 * i] = 0;
        size[2 * i + 1] = 0.5 * size[2 * i];
        /* The same loss for each unit: the best error is known within one
         * thing. */
        error[2 * i + 1] = size[2 * i] - size[2 * i + 1];
        low += size[2 * i + 1];
        all += size[2 * i];
    }
    assert_ok(sb_frontier_make(test_ctx(), MANY, 2, size, error, &f));
    const sb_solution *list = sb_frontier_solutions(&f, &n);
    assert_true(n > 1000);
    assert_close("smallest", list[0].size, low, 1e-9);
    for (size_t i = 0; i < n; i++)
        assert_close("loss", list[i].size + list[i].error, all, 1e-9);
    for (size_t i = 1; i < n; i++)
        assert_true(list[i].size - list[i - 1].size < 0.01 * all);
    sb_frontier_free(&f);
}

/* ---- configurations ------------------------------------------------------ */

static void test_configurations_keep_everything_else(void **state)
{
    (void)state;
    static const char text[] =
        "BACKEND: virtual\nSKIP_TRACE_MODULES: [\"a*\", b]\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: uniform, BIT: "
        "8}}\nA: none\n";
    static const char want[] =
        "BACKEND: virtual\nSKIP_TRACE_MODULES: [\"a*\", b]\nW:\n"
        "  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    TYPE: uniform\n"
        "    BIT: 4\n  SPECIFIC:\n  - \"x[*]\\\"y\": [QUANTIZER.BIT, 8]\n"
        "    \"z[[]0]\": [QUANTIZER.BIT, 2]\n"
        "    \"?é???\": [QUANTIZER.BIT, 2]\nA: none\n";
    /* The last has a byte that is no letter, and U+FFFF. */
    const sb_mixed_width own[] = {
        {"x*\"y", 8}, {"z[0]", 2}, {"\xffé\xef\xbf\xbf", 2}};
    sb_str out;

    sb_str_init(&out, test_ctx());
    assert_ok(sb_mixed_config(test_ctx(), "q.yaml", text, 4, own, 3, &out));
    assert_string_equal(sb_str_text(&out), want);
    sb_str_clear(&out);
    assert_int_equal(
        sb_mixed_config(test_ctx(), "q.yaml", want, 4, NULL, 0, &out),
        SB_BAD_CONFIG);
    assert_non_null(strstr(sb_ctx_error(test_ctx()), "W.SPECIFIC"));
    sb_str_free(&out);
}

/* ---- a search ------------------------------------------------------------ */

/* Layer `b` adds little to the result. */
static const char net[] =
    "graph net(x: f32[N,4]) -> (y) {\n"
    "u: f32[4,4] = random(1)\nm = MatMul(x, u) \"a\" @ a\n"
    "v: f32[4,4] = random(3)\nl = MatMul(m, v) \"b\" @ b\n"
    "k: f32 = [0.001]\nt = Mul(l, k)\nn = Add(m, t)\n"
    "w: f32[4,4] = random(2)\ny = MatMul(n, w) \"c\" @ c\n}";

static sb_search *search_with(const sb_model *model, const char *config,
                              double limit, sb_search_budget budget)
{
    sb_search_options opt = SB_SEARCH_OPTIONS_INIT;
    const int64_t dims[] = {16, 4};
    const int widths[] = {8, 4};
    sb_search *s = NULL;
    sb_tensor *x = NULL;

    opt.config_text = config;
    opt.budget = budget;
    opt.limit = limit;
    opt.bits = widths;
    opt.n_bits = 2;
    assert_ok(sb_search_create(model, &opt, &s));
    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 2, dims, &x));
    sb_tensor_fill_random(x, 9);
    assert_ok(sb_search_add(s, (const sb_tensor *[]){x}, 1, NULL, 0));
    sb_tensor_free(x);
    return s;
}

static sb_search *search_net(const sb_model *model, double limit,
                             sb_search_budget budget)
{
    return search_with(model, TEST_W8 "A: none\n", limit, budget);
}

static void test_more_outputs_than_there_are_are_refused(void **state)
{
    (void)state;
    const int64_t dims[] = {16, 4};
    const sb_tensor *outputs[9] = {NULL};
    sb_model *model = NULL;
    sb_tensor *x = NULL;

    assert_ok(sb_model_parse(test_ctx(), net, &model));
    sb_search *s = search_net(model, 1e9, SB_SEARCH_BUDGET_SIZE);
    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 2, dims, &x));
    assert_status(sb_search_add(s, (const sb_tensor *[]){x}, 1, outputs,
                                SB_COUNT(outputs)),
                  SB_BAD_ARG);
    assert_error_has("got 9 outputs, want at most 1");
    assert_ok(sb_search_add(s, (const sb_tensor *[]){x}, 1, outputs, 1));
    assert_non_null(outputs[0]);
    sb_tensor_free(x);
    sb_search_free(s);
    sb_model_free(model);
}

static void test_outputs_of_zeros_are_refused(void **state)
{
    (void)state;
    const sb_search_result *r = NULL;
    sb_model *model = NULL;

    assert_ok(sb_model_parse(test_ctx(),
                             "graph zeros(x: f32[N,4]) -> (y) {\n"
                             "u: f32[4,4] = random(1)\nm = MatMul(x, u)\n"
                             "a = Abs(m)\nb = Neg(a)\ny = Relu(b)\n}",
                             &model));
    sb_search *s = search_net(model, 1e9, SB_SEARCH_BUDGET_SIZE);
    assert_status(sb_search_run(s, &r), SB_BAD_DATA);
    assert_error_has("only zeros");
    sb_search_free(s);
    sb_model_free(model);
}

static void test_layers_in_float_are_added(void **state)
{
    (void)state;
    static const struct {
        const char *config, *want; /* NULL: is refused */
    } cases[] = {
        {"A: none\n", "A: none\nSKIP_TRACE_MODULES:\n  - \"x\"\n"},
        {"SKIP_TRACE_MODULES: [a, b]\n",
         "SKIP_TRACE_MODULES:\n  - a\n  - b\n  - \"x\"\n"},
        {"SKIP_TRACE_MODULES: a\n", "SKIP_TRACE_MODULES:\n  - a\n  - \"x\"\n"},
        {"SKIP_TRACE_MODULES:\n", "SKIP_TRACE_MODULES:\n  - \"x\"\n"},
        {"[a]", NULL},
        {"a", NULL},
    };

    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_search_options opt = SB_SEARCH_OPTIONS_INIT;
        const char *more = "x";
        char *yaml = NULL;

        opt.config_text = cases[i].config;
        sb_status status =
            sb_search_float_config(test_ctx(), &opt, &more, 1, &yaml);
        if (cases[i].want) {
            assert_ok(status);
            assert_string_equal(yaml, cases[i].want);
        } else {
            assert_status(status, SB_BAD_CONFIG);
            assert_error_has("want a map of keys");
        }
        sb_memory_free(yaml);
    }
}

static void test_the_layer_that_matters_least_is_small(void **state)
{
    (void)state;
    sb_model *model = NULL;
    const sb_search_result *r = NULL;
    char *yaml = NULL;

    assert_ok(sb_model_parse(test_ctx(), net, &model));
    sb_search *s = search_net(model, 7, SB_SEARCH_BUDGET_BITS);
    assert_ok(sb_search_run(s, &r));
    assert_int_equal(r->n_layers, 3);
    assert_int_equal(r->layers[0]->bits, 8);
    assert_int_equal(r->layers[1]->bits, 4);
    assert_int_equal(r->layers[2]->bits, 8);
    assert_close("bits", r->found->bits, 20.0 / 3, 1e-9);
    assert_true(r->found->error < r->uniform[1]->error);
    assert_close("macs", r->layers[0]->macs, 16, 0);
    /* What is measured with exchanged weights is what quantizing gives. */
    assert_close("error", r->error, r->found->error, 1e-3 * r->error);
    assert_ok(sb_search_config(s, &yaml));
    assert_non_null(strstr(yaml, "\"b\": [QUANTIZER.BIT, 4]"));
    assert_null(strstr(yaml, "\"a\""));
    sb_memory_free(yaml);
    sb_search_free(s);
    sb_model_free(model);
}

/* Channels that one scale serves are equalized: constants in front of `a`, and
 * a product in front of `b`.  That changes the weights of all widths. */
static void test_equalized_weights(void **state)
{
    (void)state;
    static const char uneven[] =
        "graph net(x: f32[N,4]) -> (y) {\n"
        "g: f32[4] = [50, 1, 0.5, 2]\nb: f32[4] = [1, 0, -1, 0]\n"
        "n = LayerNormalization(x, g, b)\n"
        "u: f32[4,4] = random(1)\nm = MatMul(n, u) \"a\" @ a\n"
        "o = LayerNormalization(m, g, b)\ne = Gelu(o)\n"
        "w: f32[4,4] = random(2)\ny = MatMul(e, w) \"b\" @ b\n}";
    sb_model *model = NULL;
    const sb_search_result *r = NULL;

    assert_ok(sb_model_parse(test_ctx(), uneven, &model));
    sb_search *s =
        search_with(model, "SCHEDULE: {EQUALIZATION: true}\n" TEST_W8 TEST_A8,
                    4, SB_SEARCH_BUDGET_BITS);
    assert_ok(sb_search_run(s, &r));
    /* Not far from what quantizing gives, whose factors are chosen for this
     * width. */
    assert_true(r->found->error < 4 * r->error);
    sb_search_free(s);
    sb_model_free(model);
}

/* What is not less than x: all of it in float, half of it with weights that
 * are rounded to less than 1.  Outputs of which others are left are all noise.
 */
static void test_another_shape(void **state)
{
    (void)state;
    static const char kept[] =
        "graph net(x: f32[N,4]) -> (z) {\n"
        "w: f32[4,4] = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]\n"
        "y = MatMul(x, w) \"a\" @ a\ng = GreaterOrEqual(y, x)\n"
        "all: i64[1] = [-1]\nc = Reshape(g, all)\nz = Compress(y, c)\n}";
    sb_model *model = NULL;
    const sb_search_result *r = NULL;

    assert_ok(sb_model_parse(test_ctx(), kept, &model));
    sb_search *s = search_net(model, 8, SB_SEARCH_BUDGET_BITS);
    assert_ok(sb_search_run(s, &r));
    assert_close("8 bit", r->uniform[0]->error, 1, 0);
    assert_close("4 bit", r->uniform[1]->error, 1, 0);
    assert_close("quantized", r->error, 1, 0);
    sb_search_free(s);
    sb_model_free(model);
}

static int count_layers(void *user, const char *stage, size_t done,
                        size_t total)
{
    (void)done;
    (void)total;
    *(size_t *)user += strcmp(stage, "layers") == 0;
    return 0;
}

static void test_budgets_are_met_or_refused(void **state)
{
    (void)state;
    static const struct {
        sb_search_budget budget;
        double limit;
        const char *want; /* NULL: is met */
    } cases[] = {
        {SB_SEARCH_BUDGET_BITS, 4, NULL},
        {SB_SEARCH_BUDGET_BITS, 3.9, "the smallest has 4"},
        {SB_SEARCH_BUDGET_SIZE, 100, "the smallest has"},
        {SB_SEARCH_BUDGET_SIZE, 100000, NULL},
        {SB_SEARCH_BUDGET_MAC_BITS, 48 * 4, NULL},
        {SB_SEARCH_BUDGET_MAC_BITS, 100, "the smallest has 192"},
        {SB_SEARCH_BUDGET_ERROR, 1, NULL},
        {SB_SEARCH_BUDGET_ERROR, 1e-12, "the smallest is"},
    };
    sb_model *model = NULL;

    assert_ok(sb_model_parse(test_ctx(), net, &model));
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const sb_search_result *r = NULL;
        sb_search *s = search_net(model, cases[i].limit, cases[i].budget);

        size_t measured = 0;
        sb_ctx_set_progress(test_ctx(), count_layers, &measured);
        if (cases[i].want) {
            assert_int_equal(sb_search_run(s, &r), SB_BAD_ARG);
            assert_non_null(strstr(sb_ctx_error(test_ctx()), cases[i].want));
            if (cases[i].budget != SB_SEARCH_BUDGET_ERROR)
                assert_int_equal(measured, 0); /* it needs no measuring */
        } else {
            assert_ok(sb_search_run(s, &r));
            assert_true(
                (cases[i].budget == SB_SEARCH_BUDGET_BITS   ? r->found->bits
                 : cases[i].budget == SB_SEARCH_BUDGET_SIZE ? r->file_bytes
                 : cases[i].budget == SB_SEARCH_BUDGET_MAC_BITS
                     ? r->found->mac_bits
                     : r->found->error) <= cases[i].limit + 1e-9);
        }
        sb_ctx_set_progress(test_ctx(), NULL, NULL);
        sb_search_free(s);
    }
    sb_model_free(model);
}

/* The smallest file is the one that has the smallest width throughout. */
static void test_the_smallest_file_can_be_had(void **state)
{
    (void)state;
    const sb_search_result *r = NULL;
    sb_model *model = NULL;
    char want[64];

    assert_ok(sb_model_parse(test_ctx(), net, &model));
    sb_search *s = search_net(model, 4, SB_SEARCH_BUDGET_BITS);
    assert_ok(sb_search_run(s, &r));
    double smallest = r->file_bytes;
    sb_search_free(s);
    s = search_net(model, smallest - 1, SB_SEARCH_BUDGET_SIZE);
    assert_int_equal(sb_search_run(s, &r), SB_BAD_ARG);
    (void)snprintf(want, sizeof want, "the smallest has %.0f", smallest);
    assert_non_null(strstr(sb_ctx_error(test_ctx()), want));
    sb_search_free(s);
    s = search_net(model, smallest, SB_SEARCH_BUDGET_SIZE);
    assert_ok(sb_search_run(s, &r));
    assert_true(r->file_bytes == smallest);
    sb_search_free(s);
    sb_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_solutions_are_the_best_of_all_mixtures),
        cmocka_unit_test(test_many_things_are_nearly_exact),
        cmocka_unit_test(test_configurations_keep_everything_else),
        cmocka_unit_test(test_more_outputs_than_there_are_are_refused),
        cmocka_unit_test(test_outputs_of_zeros_are_refused),
        cmocka_unit_test(test_layers_in_float_are_added),
        cmocka_unit_test(test_the_layer_that_matters_least_is_small),
        cmocka_unit_test(test_equalized_weights),
        cmocka_unit_test(test_another_shape),
        cmocka_unit_test(test_budgets_are_met_or_refused),
        cmocka_unit_test(test_the_smallest_file_can_be_had),
    };
    return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}
