/* Pages and charts: what is written must be whole, escaped, and the same in
 * every locale; and a profile must count what a network really does. */
#include "quanttest.h"

#include <math.h>

#include "report/html.h"

/* Every tag that is opened is closed, in order; attributes are quoted.  Enough
 * of XML to find what a browser would silently repair. */
static void assert_balanced(const char *text)
{
    static const char *const alone[] = {"!doctype", "meta", "html", "wbr"};
    char stack[32][16];
    int depth = 0;

    for (const char *p = strchr(text, '<'); p; p = strchr(p + 1, '<')) {
        char name[16] = "";
        bool closing = p[1] == '/', is_alone = false;
        const char *end = strchr(p, '>');

        assert_non_null(end);
        (void)sscanf(p + 1 + closing, "%15[a-z0-9!]", name);
        for (size_t i = 0; i < SB_COUNT(alone); i++)
            is_alone = is_alone || strcmp(name, alone[i]) == 0;
        if (is_alone || end[-1] == '/')
            continue;
        if (!closing) {
            assert_true(depth < 32);
            memcpy(stack[depth++], name, sizeof name);
        } else {
            assert_true(depth > 0);
            assert_string_equal(stack[--depth], name);
        }
    }
    assert_int_equal(depth, 0);
}

static void test_numbers_are_short(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *want;
    } cases[] = {
        {0, "0"},          {0.0123, "0.012"}, {1.234, "1.23"}, {9.999, "10.0"},
        {-12.34, "-12.3"}, {123.4, "123"},    {NAN, "–"},      {INFINITY, "–"},
    };
    sb_str s;

    sb_str_init(&s, test_ctx());
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_str_clear(&s);
        sb_html_short(&s, cases[i].value);
        assert_string_equal(sb_str_text(&s), cases[i].want);
    }
    sb_str_free(&s);
}

static void test_page_is_whole_whatever_the_texts_are(void **state)
{
    (void)state;
    static const char evil[] = "<script>\"'&\x01\x7f</script> \xff/\xe2\x82äöü "
                               "und noch viel mehr Text als Platz ist";
    const char *const heads[] = {evil, "n"};
    const sb_html_bar bars[] = {{evil, evil, evil, 3, 9},
                                {"zero", NULL, NULL, 0, 0},
                                {"none", NULL, NULL, NAN, 0}};
    const sb_html_block blocks[] = {{1, 0.5, evil, 0}, {0, 7, evil, 1}};
    sb_str s;

    sb_str_init(&s, test_ctx());
    sb_html_begin(&s, evil, evil);
    sb_html_facts_begin(&s);
    sb_html_fact(&s, evil, evil);
    sb_html_facts_end(&s);
    sb_html_section(&s, evil, evil);
    sb_html_table t = sb_html_table_begin(&s, "lr", heads);
    sb_html_cell(&t, evil);
    sb_html_cell_num(&t, 1.5, 1);
    sb_html_cell(&t, "");
    sb_html_cell_num(&t, NAN, -1);
    sb_html_table_end(&t);
    sb_html_bars(&s, evil, bars, SB_COUNT(bars));
    sb_html_bars(&s, "no bars", NULL, 0);
    sb_html_skyline(&s, evil, "ms", evil, blocks, SB_COUNT(blocks));
    sb_html_skyline(&s, "no blocks", "ms", "", NULL, 0);
    sb_html_end(&s);
    assert_ok(sb_str_status(&s));
    const char *text = sb_str_text(&s);
    assert_null(strstr(text, "<script"));
    assert_null(strchr(text, '\x01'));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    assert_balanced(text);
    for (size_t i = 0; i < s.len; i += sb_utf8_size(text + i, s.len - i))
        assert_true(sb_utf8_size(text + i, s.len - i) > 0);
    assert_non_null(strstr(text, "\uFFFD/<wbr>\uFFFD\uFFFDäöü"));
    sb_str_free(&s);
}

static void test_bars_are_as_long_as_their_values(void **state)
{
    (void)state;
    const sb_html_bar bars[] = {{"a", NULL, NULL, 4, 0},
                                {"b", NULL, NULL, 1, 1}};
    sb_str s;

    sb_str_init(&s, test_ctx());
    sb_html_bars(&s, "t", bars, 2);
    assert_non_null(strstr(sb_str_text(&s), "--v:1.0000\""));
    assert_non_null(strstr(sb_str_text(&s), "--v:0.2500\""));
    sb_str_free(&s);
}

/* 33 letters of 8.5 and the dots: what is left of 300 in front of a bar on a
 * page of 1000. */
static void test_long_labels_keep_their_ends(void **state)
{
    (void)state;
    const sb_html_bar bar = {"/features/layer4.0/downsample/downsample.1/Conv",
                             NULL, NULL, 1, 0};
    sb_str s;

    sb_str_init(&s, test_ctx());
    sb_html_bars(&s, "t", &bar, 1);
    assert_non_null(
        strstr(sb_str_text(&s), ">…r4.0/downsample/downsample.1/Conv<"));
    sb_str_free(&s);
}

/* Between two epochs there is none; losses have fractions. */
static void test_counts_have_no_fractions(void **state)
{
    (void)state;
    const double epochs[] = {1, 2, 3}, between[] = {1, 1.5, 3},
                 loss[] = {4, 4.25, 5};
    sb_html_line line = {.name = "loss", .x = epochs, .y = loss, .n = 3};
    sb_str s;

    sb_str_init(&s, test_ctx());
    sb_html_lines(&s, "t", "epoch", "loss", &line, 1);
    assert_non_null(strstr(sb_str_text(&s), ">2</text>"));
    assert_null(strstr(sb_str_text(&s), ">1.2</text>"));
    assert_non_null(strstr(sb_str_text(&s), ">4.2</text>"));
    sb_str_free(&s);
    sb_str_init(&s, test_ctx());
    line.x = between;
    sb_html_lines(&s, "t", "size", "loss", &line, 1);
    assert_non_null(strstr(sb_str_text(&s), ">1.2</text>"));
    sb_str_free(&s);
}

/* A point in the middle is in the middle of any page; and nothing is wider than
 * a phone: what lies across is in per cent. */
static void test_plots_take_any_width(void **state)
{
    (void)state;
    const double x[] = {0, 1, 4}, y[] = {0, 10, 5};
    const sb_html_line line = {.name = "loss", .x = x, .y = y, .n = 3};
    const sb_html_block blocks[] = {{3, 0.5, NULL, 0}, {1, 1, NULL, 1}};
    sb_str s;

    sb_str_init(&s, test_ctx());
    sb_html_lines(&s, "t", "epoch", "loss", &line, 1);
    const char *text = sb_str_text(&s);
    /* 16 pixels of room above 240: 10 is at the top, 5 in the middle */
    assert_non_null(strstr(text, "cx=\"25.00%\" cy=\"16.0\""));
    assert_non_null(strstr(text, "cx=\"100.00%\" cy=\"136.0\""));
    assert_non_null(strstr(text, "M0.0 240.0L250.0 0.0L1000.0 120.0"));
    assert_non_null(strstr(text, "↑ loss<"));
    assert_non_null(strstr(text, ">epoch →<"));
    assert_balanced(text);
    sb_html_skyline(&s, "t", "ms", "", blocks, SB_COUNT(blocks));
    text = sb_str_text(&s);
    assert_non_null(strstr(text, "width=\"75.00%\" height=\"100.0\""));
    assert_non_null(strstr(text, "x=\"75.00%\" y=\"16.0\" width=\"25.00%\""));
    assert_null(strstr(text, "min-width"));
    sb_str_free(&s);
}

static void test_names_break_behind_their_separators(void **state)
{
    (void)state;
    const char *const heads[] = {"name", "type"};
    sb_str s;

    sb_str_init(&s, test_ctx());
    sb_html_table t = sb_html_table_begin(&s, "ln", heads);
    sb_html_cell(&t, "/layer1/conv_2.weight/");
    sb_html_cell(&t, "a/b");
    sb_html_table_end(&t);
    assert_non_null(strstr(sb_str_text(&s),
                           ">/<wbr>layer1/<wbr>conv_<wbr>2.<wbr>weight/<"));
    assert_non_null(strstr(sb_str_text(&s), ">a/b<"));
    sb_str_free(&s);
}

static void test_blocks_above_the_peak_are_marked(void **state)
{
    (void)state;
    const sb_html_block blocks[] = {
        {1, 1, NULL, 0}, {1, 1.5, NULL, 1}, {1, 0, NULL, 1}};
    sb_str s;

    sb_str_init(&s, test_ctx());
    sb_html_skyline(&s, "t", "ms", "", blocks, SB_COUNT(blocks));
    const char *mark = strstr(sb_str_text(&s), "class=\"o\"");
    assert_non_null(mark);
    assert_null(strstr(mark + 1, "class=\"o\""));
    sb_str_free(&s);
}

/* ---- a colored graph ----------------------------------------------------- */

/* Names that are no HTML, a value that is not known, one of no node. */
static const char chain[] = "graph net(x: f32[2,3]) -> (e: f32[2,3]) {\n"
                            "  a = Relu(x) \"<b>&\"\n"
                            "  b = Neg(a) \"two\"\n"
                            "  c = Neg(b) \"three\"\n"
                            "  d = Neg(c) \"four\"\n"
                            "  e = Neg(d) \"five\"\n"
                            "}\n";
static const char *const chain_results[] = {"a", "b", "c", "c", "d", "x", "no"};
static const double chain_values[] = {0, 1, 2.5, 0, NAN, 9, 9};

static const char *page_text(sb_report *r)
{
    static char page[100000];

    assert_ok(sb_report_save(r, test_quant_file()));
    sb_report_free(r);
    FILE *f = fopen(test_quant_file(), "rb");
    assert_non_null(f);
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    (void)fclose(f);
    return page;
}

static void test_graphs_are_colored_by_values(void **state)
{
    (void)state;
    const sb_report_marks none = SB_REPORT_MARKS_INIT;
    const sb_report_marks marks = {.struct_size = none.struct_size,
                                   .n = 7,
                                   .results = chain_results,
                                   .values = chain_values,
                                   .limits = {1, 2, 3, 4},
                                   .texts = {"<1", "1", "2", "3", "4"},
                                   .none = "<none>",
                                   .jump = "\"most\""};
    const char *const heads[] = {"h"}, *const cells[] = {"p", "q", "r"};
    const char *const rows[] = {"b", NULL, "no"};
    sb_model *model = NULL;
    sb_report *r = NULL;

    assert_ok(sb_model_parse(test_ctx(), chain, &model));
    assert_ok(sb_report_create(test_ctx(), "t", "s", &r));
    assert_ok(sb_report_graph(r, model, &marks));
    sb_report_nodes(r, model, rows, "l", heads, cells, 3);
    const char *text = page_text(r);
    assert_non_null(strstr(text, "class=\"n a1 s0\" id=\"n0\""));
    assert_non_null(strstr(text, "class=\"n a2 s0\" id=\"n1\""));
    assert_non_null(strstr(text, "class=\"n a3 s0\" id=\"n2\"")); /* not 0 */
    assert_non_null(strstr(text, "class=\"n a0 s0\" id=\"n3\""));
    assert_non_null(strstr(text, "class=\"n a0 s0\" id=\"n4\""));
    assert_non_null(
        strstr(text, "data-most=\"2\" data-jump=\"&quot;most&quot;\""));
    assert_non_null(strstr(text, "Relu &lt;b&gt;&amp;\n2x3</title>"));
    assert_non_null(strstr(text, ">&lt;1</span>"));
    assert_non_null(strstr(text, ">&lt;none&gt;</span>"));
    assert_non_null(strstr(text, "<tr data-node=\"1\"><td class=\"l\">p<"));
    assert_non_null(strstr(text, "<tr><td class=\"l\">q<"));
    assert_non_null(strstr(text, "<tr><td class=\"l\">r<"));
    sb_model_free(model);
}

/* Without texts: decibels, of which few are bad. */
static void test_graphs_are_colored_by_noise(void **state)
{
    (void)state;
    static const double db[] = {INFINITY, 25, 5, 35, NAN, 0, 0};
    sb_report_marks marks = SB_REPORT_MARKS_INIT;
    sb_model *model = NULL;
    sb_report *r = NULL;

    marks.n = 7;
    marks.results = chain_results;
    marks.values = db;
    marks.jump = "worst";
    assert_ok(sb_model_parse(test_ctx(), chain, &model));
    assert_ok(sb_report_create(test_ctx(), "t", "s", &r));
    assert_ok(sb_report_graph(r, model, &marks));
    const char *text = page_text(r);
    assert_non_null(strstr(text, "class=\"n a1 s0\" id=\"n0\""));
    assert_non_null(strstr(text, "class=\"n a3 s0\" id=\"n1\""));
    assert_non_null(strstr(text, "class=\"n a5 s0\" id=\"n2\""));
    assert_non_null(strstr(text, "class=\"n a0 s0\" id=\"n3\""));
    assert_non_null(strstr(text, "data-most=\"2\""));
    sb_model_free(model);
}

/* ---- a profile through the public calls --------------------------------- */

static const char net[] = "graph net(x: f32[1,8,16,16]) -> (y: f32[*]) {\n"
                          "  w: f32[16,8,3,3] = random(1)\n"
                          "  b: f32[16] = random(2)\n"
                          "  v: f32[16,16,1,1] = random(3)\n"
                          "  s: i64[2] = [1, -1]\n"
                          "  c = Conv(x, w, b) {pads=[1,1,1,1]} \"first\"\n"
                          "  r = Relu(c)\n"
                          "  d = Conv(r, v) \"second\"\n"
                          "  a = Add(d, r)\n"
                          "  y = Reshape(a, s)\n"
                          "}\n";

static const sb_profile_row *find(const sb_profile *p, const char *op)
{
    for (size_t i = 0; i < p->n_types; i++)
        if (strcmp(p->types[i]->op, op) == 0)
            return p->types[i];
    return NULL;
}

static void test_profiles_count_what_runs(void **state)
{
    (void)state;
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    const sb_tensor *in = test_random(SB_DTYPE_F32, "1x8x16x16", 1), *out;
    sb_model *model = NULL;
    sb_session *session = NULL;
    const sb_profile *p = NULL;
    double sum = 0;

    opt.profile = 1;
    assert_ok(sb_model_parse(test_ctx(), net, &model));
    assert_ok(sb_session_create(model, &opt, &session));
    assert_ok(test_session_run(session, &in, &out));
    assert_status(sb_session_profile(session, &p), SB_BAD_ARG);
    for (int i = 0; i < 5; i++)
        assert_ok(test_session_run(session, &in, &out));
    assert_ok(sb_session_profile(session, &p));
    assert_int_equal(p->runs, 5);
    const sb_profile_row *first = find(p, "Conv+Relu");
    const sb_profile_row *second = find(p, "Conv+Add");
    assert_non_null(first);
    assert_non_null(second);
    /* out elements x taps x input channels */
    assert_close("macs", first->macs, 16 * 16 * 16 * 9 * 8, 0);
    assert_close("macs", second->macs, 16 * 16 * 16 * 16, 0);
    /* x, weights, bias, result */
    assert_close("bytes", first->bytes,
                 4 * (8 * 256 + 16 * 8 * 9 + 16 + 16 * 256), 0);
    for (size_t i = 0; i < p->n_nodes; i++) {
        assert_true(p->nodes[i]->best_ms <= p->nodes[i]->median_ms);
        sum += p->nodes[i]->best_ms;
    }
    assert_true(sum <= p->best_ms * 1.0001 + 1e-6);
    sb_session_free(session);
    sb_model_free(model);
}

static void test_no_profile_unless_asked(void **state)
{
    (void)state;
    const sb_tensor *in = test_random(SB_DTYPE_F32, "1x8x16x16", 1), *out;
    sb_model *model = NULL;
    sb_session *session = NULL;
    const sb_profile *p = NULL;

    assert_ok(sb_model_parse(test_ctx(), net, &model));
    assert_ok(sb_session_create(model, NULL, &session));
    assert_ok(test_session_run(session, &in, &out));
    assert_ok(test_session_run(session, &in, &out));
    assert_status(sb_session_profile(session, &p), SB_BAD_ARG);
    sb_session_free(session);
    sb_model_free(model);
}

static void test_peak_is_a_sane_number(void **state)
{
    (void)state;
    const char *how = NULL;
    double peak = sb_peak_measure(test_ctx(), &how);

    /* Between a slow scalar core and a hundred fast ones. */
    assert_true(peak > 0.1 && peak < 1e5);
    assert_non_null(how);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_short),
        cmocka_unit_test(test_page_is_whole_whatever_the_texts_are),
        cmocka_unit_test(test_bars_are_as_long_as_their_values),
        cmocka_unit_test(test_long_labels_keep_their_ends),
        cmocka_unit_test(test_counts_have_no_fractions),
        cmocka_unit_test(test_plots_take_any_width),
        cmocka_unit_test(test_names_break_behind_their_separators),
        cmocka_unit_test(test_blocks_above_the_peak_are_marked),
        cmocka_unit_test(test_graphs_are_colored_by_values),
        cmocka_unit_test(test_graphs_are_colored_by_noise),
        cmocka_unit_test(test_profiles_count_what_runs),
        cmocka_unit_test(test_no_profile_unless_asked),
        cmocka_unit_test(test_peak_is_a_sane_number),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
