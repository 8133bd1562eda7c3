/* The text form: what is printed reads back, and garbage gives a line. */
#include "sbtest.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "graph/text.h"

static char *printed(const sb_graph *g)
{
    sb_str text;
    char *out = NULL;

    sb_str_init(&text, test_ctx());
    assert_ok(sb_graph_print(g, &text));
    assert_ok(sb_str_take(&text, &out));
    return out;
}

/* print(parse(print(g))) == print(g) */
static void assert_round_trip(const sb_graph *g)
{
    char *first = printed(g);
    sb_graph *back = NULL;

    assert_ok(sb_graph_parse(test_ctx(), first, &back));
    char *second = printed(back);
    assert_string_equal(second, first);
    sb_graph_free(back);
    sb_free(test_ctx(), first);
    sb_free(test_ctx(), second);
}

/* Already as the printer writes it. */
static const char *const as_printed[] = {
    "graph main() -> () {\n}\n",
    "graph ``() -> () {\n}\n",
    "graph main(x: f32[N,3,8,8]) -> (y: f32[N,4,8,8]) {\n"
    "    w: f32[4,3,3,3] = {...}\n"
    "    b: f32[4] = [0, 1, -2.5, 4]\n"
    "    c = Conv(x, w, b) {pads=[1,1,1,1]} \"conv1\" @ layer1.conv1\n"
    "    y = com.example::Foo(c, _) {alpha=0.5, mode=\"half\"}\n"
    "}\n",
    /* types */
    "graph g(a, b: f16[*], c: i64[], d: bool[?,2], e: none[3], f: f32[`a b`,"
    "`3`,n/2]) -> () {\n"
    "}\n",
    /* names in need of quotes */
    "graph g(`onnx::Conv_1`, `_`, `a\\`b`) -> (`x y`) {\n"
    "    `x y` = Add(`onnx::Conv_1`, `_`)\n"
    "}\n",
    "graph g(/a/b.0/Relu_output_0, 123) -> (z) {\n"
    "    z = Add(/a/b.0/Relu_output_0, 123) \"/z/Add\"\n"
    "}\n",
    /* outputs: absent, none at all, the same twice */
    "graph g(x) -> (a, a) {\n"
    "    a, _, b = Split(x)\n"
    "    () = Print(x)\n"
    "}\n",
    /* elements of every kind */
    "graph g() -> () {\n"
    "    a: f32[] = 0.1\n"
    "    b: f64[3] = [0.1, 1e+300, -inf]\n"
    "    c: f16[2] = [nan, 6.1035156e-05]\n"
    "    d: u64[1] = [18446744073709551615]\n"
    "    e: i64[1] = [-9223372036854775808]\n"
    "    f: i4[3] = [-8, 7, 0]\n"
    "    g: u2[5] = [0, 1, 2, 3, 3]\n"
    "    h: bool[2] = [0, 1]\n"
    "    i: f8e4m3fn[2] = [448, -0.015625]\n"
    "    j: f32[0,3] = []\n"
    "    k: str[2] = [\"\", \"line\\nbreak\"]\n"
    "    l: str[] = \"one\"\n"
    "    m: c64[2] = {...}\n"
    "    n: bf16[2] = [3, -0]\n"
    "}\n",
    /* attributes of every kind */
    "graph g(x) -> (y) {\n"
    "    y = Foo(x) {a=1, b=-1.0, c=1e-05, d=inf, e=\"q\\\"\\\\\\x7f\", "
    "f=[1,2], g=[1.0,2.5], h=[\"a\",\"b\"], i=[], j=floats [], k=strings [], "
    "l=tensors [], m=graphs [], n=tensor i64[2] = [1, 2], o=[tensor f32[] = "
    "1,tensor f32[] = 2], p=opaque \"\\x00\\xff\", `odd name`=3}\n"
    "}\n",
    /* sub-graphs that read values of the enclosing graphs */
    "graph g(c, x: f32[2]) -> (y) {\n"
    "    k: f32[2] = [1, 2]\n"
    "    y = If(c) {then_branch=graph t() -> (o) {\n"
    "        o = If(c) {then_branch=graph tt() -> (k: f32[2]) {\n"
    "        }, else_branch=graph u() -> (m) {\n"
    "            m = Neg(x)\n"
    "        }}\n"
    "    }, else_branch=graph e() -> (n: f32[1]) {\n"
    "        n: f32[1] = [5]\n"
    "    }}\n"
    "    z = Multi(x) {bodies=[graph a(i: f32[2]) -> (i: f32[2]) {\n"
    "    },graph b(j) -> (l) {\n"
    "        l = Add(j, x)\n"
    "    }]}\n"
    "}\n",
    /* a default for an input */
    "graph g(x: f32[1]) -> (x: f32[1]) {\n"
    "    x: f32[1] = [3]\n"
    "}\n",
};

static void test_printed_reads_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(as_printed); i++) {
        sb_graph *g = NULL;
        assert_ok(sb_graph_parse(test_ctx(), as_printed[i], &g));
        char *text = printed(g);
        /* The bytes \xff are printed as they are, all else is the same. */
        if (!strstr(as_printed[i], "\\xff"))
            assert_string_equal(text, as_printed[i]);
        sb_free(test_ctx(), text);
        assert_round_trip(g);
        sb_graph_free(g);
    }
}

static void test_spaces_and_defaults_are_free(void **state)
{
    (void)state;
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(
        test_ctx(),
        "# a comment\n"
        "graph g(x:float[2])->(y){w:f32[3,3]=random(7) f:i64[3]=4\n"
        "z:f32=zeros() t:f32[N]=ai.onnx::Relu(x)y=Add(t,w)}",
        &g));
    const sb_value *w = sb_graph_value(g, sb_graph_find_value(g, "w"));
    sb_tensor *want = test_tensor(SB_DTYPE_F32, "3x3", NULL);
    sb_tensor_fill_random(want, 7);
    assert_tensor("random", &w->constant, want, 0);
    const sb_value *f = sb_graph_value(g, sb_graph_find_value(g, "f"));
    assert_tensor("filled", &f->constant, test_i64("3", 4, 4, 4), 0);
    const sb_value *t = sb_graph_value(g, sb_graph_find_value(g, "t"));
    assert_true(sb_node_is(sb_graph_node(g, t->producer), "Relu"));
    assert_int_equal(t->type.dtype, SB_DTYPE_F32);
    assert_round_trip(g);
    sb_graph_free(g);
}

static void test_errors_name_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "line 1"},
        {"hello", "line 1"},
        {"graph g", "line 1: the text ends"},
        {"graph g()\n-> (y) {\n  y = \n}", "line 4"},
        {"graph g() -> () {\n  y = Relu(x\n}", "line 3"},
        {"graph g() -> () {\n\n  y: f99[2] = [1]\n}", "line 3: found 'f99'"},
        {"graph g() -> () {\n  y: f32[2] = [1]\n}", "line 2"},
        {"graph g() -> () {\n  y: f32[2] = [1,2,3]\n}", "line 2"},
        {"graph g() -> () {\n  y: f32[N] = [1]\n}", "line 2: a constant needs"},
        {"graph g() -> () {\n  y: u8[1] = [300]\n}", "line 2: 300"},
        {"graph g() -> () {\n  y: u8[1] = [1.5]\n}", "line 2"},
        {"graph g() -> () {\n  y: i8[1] = [18446744073709551615]\n}", "line 2"},
        {"graph g() -> () {\n  y: f32[99999999999] = zeros()\n}", "line 2"},
        {"graph g() -> () {\n y: f32[99999999999999999999]=1\n}", "too large"},
        {"graph g() -> () {\n y: f32[1,1,1,1,1,1,1,1,1,1,1,1,1]=1\n}",
         "dimensions"},
        {"graph g(x) -> () {\n  y = Foo(x) {a=1, a=2}\n}", "twice"},
        {"graph g(x) -> () {\n  y = Foo(x) {a=}\n}", "line 2"},
        {"graph g(x) -> () {\n  y = Foo(x) {a=0x10}\n}", "line 2"},
        {"graph g(x) -> () {\n  y = Foo(x) {a=99999999999999999999}\n}",
         "line 2"},
        {"graph g(x) -> () {\n  y = Foo(x) {a=\"open\n}\n}", "not closed"},
        {"graph g(x) -> () {\n  y = Foo(x) {a=\"\\q\"}\n}", "escape"},
        {"graph g(x) -> () {\n  y = Foo(x) {a=[1,\"b\"]}\n}", "line 2"},
        {"graph g(x, x) -> () {\n}", "'x'"},
        {"graph g(x) -> () {\n  y = A(x)\n  y = B(x)\n}", "line 4"},
        {"graph g(x) -> () {\n  x = A(x)\n}", "graph input"},
        {"graph g() -> (y) {\n}", "'y'"},
        {"graph g() -> (y) {\n  y = A(nothing)\n}", "'nothing'"},
        {"graph g() -> () {\n}\nmore", "line 3"},
        {"graph g(`a\\x00b`) -> () {\n}", "zero byte"},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        sb_graph *g = NULL;
        sb_status status = sb_graph_parse(test_ctx(), rows[i].text, &g);
        if (status != SB_BAD_MODEL)
            fail_msg("status %d for:\n%s", (int)status, rows[i].text);
        assert_error_has(rows[i].part);
    }
}

static void test_deep_nesting_is_refused(void **state)
{
    (void)state;
    sb_graph *g = NULL;
    sb_str text;

    sb_str_init(&text, test_ctx());
    sb_str_add(&text, "graph g(x) -> () {\n");
    for (int i = 0; i < 10000; i++)
        sb_str_add(&text, "y = If(x) {b=graph g() -> () {\n");
    assert_status(sb_graph_parse(test_ctx(), sb_str_text(&text), &g),
                  SB_BAD_MODEL);
    assert_error_has("nested");
    sb_str_free(&text);
}

static void test_attribute_list(void **state)
{
    (void)state;
    sb_graph *g = NULL;
    sb_attr *attrs = NULL;
    size_t n = 0;

    assert_ok(sb_graph_create(test_ctx(), "g", &g));
    assert_ok(sb_graph_parse_attrs(g,
                                   " kernel_shape=[3,3], group=2 , "
                                   "mode=\"linear\" ",
                                   &attrs, &n));
    assert_int_equal(n, 3);
    assert_string_equal(attrs[0].name, "kernel_shape");
    assert_int_equal(attrs[0].type, SB_ATTR_INTS);
    assert_int_equal(attrs[0].ints[1], 3);
    assert_int_equal(attrs[1].i, 2);
    assert_string_equal(attrs[2].s.data, "linear");
    assert_ok(sb_graph_parse_attrs(g, "", &attrs, &n));
    assert_int_equal(n, 0);
    assert_status(sb_graph_parse_attrs(g, "a=1 b=2", &attrs, &n), SB_BAD_MODEL);
    assert_status(sb_graph_parse_attrs(g, "a=1,", &attrs, &n), SB_BAD_MODEL);
    sb_graph_free(g);
}

/* A program may have set a locale that writes 0,5. */
static void test_locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",
                                        "fr_FR.UTF-8", "fr_FR.utf8"};
    const char *set = NULL;
    sb_graph *g = NULL;

    for (size_t i = 0; i < SB_COUNT(names) && !set; i++)
        set = setlocale(LC_NUMERIC, names[i]);
    if (!set)
        skip(); /* none of them is installed */
    assert_ok(sb_graph_parse(test_ctx(), as_printed[2], &g));
    char *text = printed(g);
    (void)setlocale(LC_NUMERIC, "C");
    assert_string_equal(text, as_printed[2]);
    sb_free(test_ctx(), text);
    sb_graph_free(g);
}

/* Random damage: an error or a graph that prints and reads back. */
static void test_damaged_text(void **state)
{
    (void)state;
    sb_rng rng;
    size_t good = 0;

    sb_rng_init(&rng, 1);
    for (int round = 0; round < 6000; round++) {
        const char *text = as_printed[sb_rng_below(&rng, SB_COUNT(as_printed))];
        size_t len = strlen(text);
        char copy[2048];
        assert_true(len < sizeof copy);
        memcpy(copy, text, len + 1);
        for (int k = 0; k <= round % 3; k++) {
            char *at = copy + sb_rng_below(&rng, len);
            switch (sb_rng_below(&rng, 3)) {
            case 0:
                *at = (char)sb_rng_next(&rng);
                break;
            case 1:
                *at = text[sb_rng_below(&rng, len)];
                break;
            default:
                memmove(at, at + 1, strlen(at));
            }
        }
        sb_graph *g = NULL;
        if (sb_graph_parse(test_ctx(), copy, &g) == SB_OK) {
            assert_round_trip(g);
            sb_graph_free(g);
            good++;
        }
    }
    assert_true(good > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_printed_reads_back),
        cmocka_unit_test(test_spaces_and_defaults_are_free),
        cmocka_unit_test(test_errors_name_the_line),
        cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_attribute_list),
        cmocka_unit_test(test_locale_does_not_matter),
        cmocka_unit_test(test_damaged_text),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
