/* Parameter tables: defaults, every type, messages, words. */
#include "sbtest.h"

#include <locale.h>
#include <math.h>

#include "config/param.h"

typedef struct {
    int64_t depth;
    int color;
} inner;

typedef struct {
    bool flag;
    int64_t count;
    double ratio;
    const char *path;
    int mode;
    sb_param_ints sizes;
    sb_param_floats mean;
    sb_param_strings skip;
    inner in;
    const sb_yaml *raw;
} options;

static const char *const modes[] = {"fast", "exact", "lsq+", NULL};
static const char *const colors[] = {"RGB", "BGR", NULL};

#define AT(field) offsetof(options, field)

static const sb_param_def inner_table[] = {
    {.name = "DEPTH",
     .type = SB_PARAM_INT,
     .offset = offsetof(inner, depth),
     .preset = "-1",
     .min = -1,
     .max = 9,
     .help = "how deep"},
    {.name = "COLOR",
     .type = SB_PARAM_ENUM,
     .offset = offsetof(inner, color),
     .preset = "RGB",
     .names = colors,
     .help = "order"},
    {0},
};

static const sb_param_def table[] = {
    {.name = "FLAG",
     .type = SB_PARAM_BOOL,
     .offset = AT(flag),
     .preset = "true",
     .help = "a flag"},
    {.name = "COUNT",
     .type = SB_PARAM_INT,
     .offset = AT(count),
     .preset = "3",
     .min = 1,
     .max = INFINITY,
     .help = "how many"},
    {.name = "RATIO",
     .type = SB_PARAM_FLOAT,
     .offset = AT(ratio),
     .preset = "0.25",
     .min = 0,
     .max = 1,
     .help = "a share"},
    {.name = "PATH",
     .type = SB_PARAM_STRING,
     .offset = AT(path),
     .help = "where"},
    {.name = "MODE",
     .type = SB_PARAM_ENUM,
     .offset = AT(mode),
     .names = modes,
     .help = "how"},
    {.name = "SIZES",
     .type = SB_PARAM_INTS,
     .offset = AT(sizes),
     .preset = "[224, 224]",
     .min = 1,
     .max = 512,
     .n_min = 1,
     .n_max = 2,
     .help = "height and width"},
    {.name = "MEAN",
     .type = SB_PARAM_FLOATS,
     .offset = AT(mean),
     .preset = "0.5",
     .help = "to subtract"},
    {.name = "SKIP",
     .type = SB_PARAM_STRINGS,
     .offset = AT(skip),
     .preset = "[]",
     .help = "patterns"},
    {.name = "IN",
     .type = SB_PARAM_MAP,
     .offset = AT(in),
     .fields = inner_table,
     .help = "inside"},
    {.name = "RAW",
     .type = SB_PARAM_NODE,
     .offset = AT(raw),
     .values = "any",
     .help = "as it is"},
    {0},
};

static const sb_param_def needy[] = {
    {.name = "MUST", .type = SB_PARAM_INT, .required = true, .help = "needed"},
    {0},
};

static sb_yaml_doc *load(const char *text)
{
    sb_yaml_doc *doc = NULL;

    assert_ok(
        sb_yaml_load_memory(test_ctx(), "t.yaml", text, strlen(text), &doc));
    return doc;
}

static void test_missing_keys_have_defaults(void **state)
{
    sb_yaml_doc *doc = load("{}");
    options o;

    (void)state;
    memset(&o, 0x55, sizeof o);
    assert_ok(sb_params_read(doc, doc->root, "", table, &o));
    assert_true(o.flag);
    assert_int_equal(o.count, 3);
    assert_close("ratio", o.ratio, 0.25, 0);
    assert_null(o.path);
    assert_int_equal(o.mode, -1);
    assert_int_equal(o.sizes.n, 2);
    assert_int_equal(o.sizes.v[1], 224);
    assert_int_equal(o.mean.n, 1);
    assert_close("mean", o.mean.v[0], 0.5, 0);
    assert_int_equal(o.skip.n, 0);
    assert_int_equal(o.in.depth, -1);
    assert_int_equal(o.in.color, 0);
    assert_null(o.raw);
    sb_yaml_free(doc);
}

static void test_values_of_every_type(void **state)
{
    sb_yaml_doc *doc = load("FLAG: Off\nCOUNT: 9007199254740993\nRATIO: 1e-3\n"
                            "PATH: a b\nMODE: LSQ+\nSIZES: 64\n"
                            "MEAN: [1, -.5, +2.]\nSKIP: [\"a.*\", b]\n"
                            "IN: {DEPTH: 9, COLOR: bgr}\nRAW: [1]\n");
    options o;

    (void)state;
    assert_ok(sb_params_read(doc, doc->root, "", table, &o));
    assert_false(o.flag);
    assert_true(o.count == 9007199254740993);
    assert_close("ratio", o.ratio, 1e-3, 0);
    assert_string_equal(o.path, "a b");
    assert_int_equal(o.mode, 2);
    assert_int_equal(o.sizes.n, 1);
    assert_int_equal(o.sizes.v[0], 64);
    assert_int_equal(o.mean.n, 3);
    assert_close("mean", o.mean.v[1], -0.5, 0);
    assert_close("mean", o.mean.v[2], 2, 0);
    assert_string_equal(o.skip.v[1], "b");
    assert_int_equal(o.in.depth, 9);
    assert_int_equal(o.in.color, 1);
    assert_int_equal(o.raw->n, 1);
    sb_yaml_free(doc);
}

/* A choice that has `true` among its names takes the words of a flag. */
static void test_choices_take_the_words_of_flags(void **state)
{
    static const char *const names[] = {"auto", "true", "false", NULL};
    static const sb_param_def choice[] = {
        {.name = "DO", .type = SB_PARAM_ENUM, .names = names, .help = "it"},
        {0},
    };
    static const struct {
        const char *text;
        int is;
    } cases[] = {{"DO: yes", 1}, {"DO: On", 1},  {"DO: True", 1},
                 {"DO: no", 2},  {"DO: off", 2}, {"DO: false", 2},
                 {"DO: AUTO", 0}};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_yaml_doc *doc = load(cases[i].text);
        int is = -1;
        assert_ok(sb_params_read(doc, doc->root, "", choice, &is));
        assert_int_equal(is, cases[i].is);
        sb_yaml_free(doc);
    }
    sb_yaml_doc *doc = load("MODE: yes");
    options o;
    assert_int_equal(sb_params_read(doc, doc->root, "", table, &o),
                     SB_BAD_CONFIG);
    sb_yaml_free(doc);
}

/* As yacs decodes them. */
static void test_quoted_values_are_decoded(void **state)
{
    sb_yaml_doc *doc = load("FLAG: 'False'\nCOUNT: \"8\"\nRATIO: '1e-3'\n"
                            "SIZES: ['64', 32]\n");
    options o;

    (void)state;
    assert_ok(sb_params_read(doc, doc->root, "", table, &o));
    assert_false(o.flag);
    assert_int_equal(o.count, 8);
    assert_close("ratio", o.ratio, 1e-3, 0);
    assert_int_equal(o.sizes.v[0], 64);
    sb_yaml_free(doc);
}

static const struct {
    const char *text, *want;
} wrong[] = {
    {"FLAG: 1", "t.yaml:1: FLAG: found 1, allowed true or false"},
    {"FLAG: \"true\"", "t.yaml:1: FLAG: found \"true\", allowed true or false"},
    {"FLAG:", "t.yaml:1: FLAG: found nothing, allowed true or false"},
    {"\nCOUNT: 0", "t.yaml:2: COUNT: found 0, allowed a whole number of at "
                   "least 1"},
    {"COUNT: 1.5", "t.yaml:1: COUNT: found 1.5, allowed a whole number of at "
                   "least 1"},
    {"COUNT: 010", "t.yaml:1: COUNT: found 010, allowed a whole number of at "
                   "least 1"},
    {"COUNT: 99999999999999999999",
     "t.yaml:1: COUNT: found 99999999999999999999, allowed a whole number of "
     "at least 1"},
    {"COUNT: \"0\"", "t.yaml:1: COUNT: found \"0\", allowed a whole number of "
                     "at least 1"},
    {"COUNT: []", "t.yaml:1: COUNT: found a list, allowed a whole number of at "
                  "least 1"},
    {"RATIO: 1.01", "t.yaml:1: RATIO: found 1.01, allowed a number 0..1"},
    {"RATIO: nan", "t.yaml:1: RATIO: found nan, allowed a number 0..1"},
    {"RATIO: 0x1", "t.yaml:1: RATIO: found 0x1, allowed a number 0..1"},
    {"RATIO: 1e999", "t.yaml:1: RATIO: found 1e999, allowed a number 0..1"},
    {"RATIO: -.", "t.yaml:1: RATIO: found -., allowed a number 0..1"},
    {"PATH: {}", "t.yaml:1: PATH: found a map, allowed a text"},
    {"PATH: ~", "t.yaml:1: PATH: found nothing, allowed a text"},
    {"MODE: exakt", "t.yaml:1: MODE: found exakt, allowed fast, exact or lsq+; "
                    "did you mean exact?"},
    {"MODE: 7", "t.yaml:1: MODE: found 7, allowed fast, exact or lsq+"},
    {"SIZES: [1, 2, 3]", "t.yaml:1: SIZES: found 3 elements, allowed 1 to 2"},
    {"SIZES: []", "t.yaml:1: SIZES: found 0 elements, allowed 1 to 2"},
    {"SIZES: [1,\n 513]", "t.yaml:2: SIZES: found 513, allowed a list of 1 to "
                          "2 whole numbers 1..512"},
    {"MEAN: [a]", "t.yaml:1: MEAN: found a, allowed a list of numbers"},
    {"SKIP: [[a]]", "t.yaml:1: SKIP: found a list, allowed a list of strings"},
    {"IN: 4", "t.yaml:1: IN: found 4, allowed a map"},
    {"IN:\n  DEPHT: 2", "t.yaml:2: IN.DEPHT: unknown key, allowed DEPTH, "
                        "COLOR; did you mean DEPTH?"},
    {"IN:\n  DEPTH: 10", "t.yaml:2: IN.DEPTH: found 10, allowed a whole number "
                         "-1..9"},
    {"flag: true", "t.yaml:1: flag: unknown key, allowed FLAG, COUNT, RATIO, "
                   "PATH, MODE, SIZES, MEAN, SKIP, IN, RAW; did you mean "
                   "FLAG?"},
    {"DEPTH: 1", "t.yaml:1: DEPTH: unknown key, allowed FLAG, COUNT, RATIO, "
                 "PATH, MODE, SIZES, MEAN, SKIP, IN, RAW; did you mean "
                 "IN.DEPTH?"},
    {"QQ: 1", "t.yaml:1: QQ: unknown key, allowed FLAG, COUNT, RATIO, PATH, "
              "MODE, SIZES, MEAN, SKIP, IN, RAW"},
    {"[1]", "t.yaml:1: found a list, allowed a map"},
    {"text", "t.yaml:1: found text, allowed a map"},
};

static void test_wrong_values_get_a_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(wrong); i++) {
        sb_yaml_doc *doc = load(wrong[i].text);
        options o;

        assert_status(sb_params_read(doc, doc->root, "", table, &o),
                      SB_BAD_CONFIG);
        assert_string_equal(sb_ctx_error(test_ctx()), wrong[i].want);
        sb_yaml_free(doc);
    }
}

static void test_several_tables_read_one_map(void **state)
{
    sb_yaml_doc *doc = load("MUST: 4\nDEPTH: 5\n");
    sb_yaml_doc *bad = load("MUST: 4\nDEPHT: 5\n");
    sb_yaml_doc *none = load("DEPTH: 5\n");
    int64_t must;
    inner in;
    const sb_param_set sets[] = {{needy, &must}, {inner_table, &in}};

    (void)state;
    assert_ok(sb_params_read_sets(doc, doc->root, "", sets, 2));
    assert_int_equal(must, 4);
    assert_int_equal(in.depth, 5);
    assert_status(sb_params_read_sets(bad, bad->root, "X", sets, 2),
                  SB_BAD_CONFIG);
    assert_string_equal(sb_ctx_error(test_ctx()),
                        "t.yaml:2: X.DEPHT: unknown key, allowed MUST, DEPTH, "
                        "COLOR; did you mean DEPTH?");
    assert_status(sb_params_read_sets(none, none->root, "", sets, 2),
                  SB_BAD_CONFIG);
    assert_string_equal(sb_ctx_error(test_ctx()),
                        "t.yaml:1: MUST: missing, allowed a whole number");
    sb_yaml_free(doc);
    sb_yaml_free(bad);
    sb_yaml_free(none);
}

static void test_one_key_is_set_by_its_path(void **state)
{
    sb_yaml_doc *doc = load("[IN.DEPTH, 7, IN.DEPHT, 7, IN.DEPTH, x, COUNT.X, "
                            "1, [a], 1]");
    const sb_yaml *const *v = doc->root->items;
    options o;

    (void)state;
    assert_ok(sb_params_defaults(&doc->arena, table, &o));
    assert_ok(sb_params_set(doc, "A", v[0], v[1], table, &o));
    assert_int_equal(o.in.depth, 7);
    assert_status(sb_params_set(doc, "A", v[2], v[3], table, &o),
                  SB_BAD_CONFIG);
    assert_string_equal(sb_ctx_error(test_ctx()),
                        "t.yaml:1: A.IN.DEPHT: unknown key, allowed DEPTH, "
                        "COLOR; did you mean DEPTH?");
    assert_status(sb_params_set(doc, "A", v[4], v[5], table, &o),
                  SB_BAD_CONFIG);
    assert_string_equal(sb_ctx_error(test_ctx()),
                        "t.yaml:1: A.IN.DEPTH: found x, allowed a whole number "
                        "-1..9");
    assert_status(sb_params_set(doc, "A", v[6], v[7], table, &o),
                  SB_BAD_CONFIG);
    assert_error_has("A.COUNT.X: unknown key");
    assert_status(sb_params_set(doc, "A", v[8], v[9], table, &o),
                  SB_BAD_CONFIG);
    assert_string_equal(sb_ctx_error(test_ctx()),
                        "t.yaml:1: A: found a list, allowed a key");
    sb_yaml_free(doc);
}

static void test_keys_are_found_by_path(void **state)
{
    size_t offset = 0;

    (void)state;
    assert_ptr_equal(sb_params_find(table, "IN.COLOR", &offset),
                     &inner_table[1]);
    assert_int_equal(offset, AT(in) + offsetof(inner, color));
    assert_ptr_equal(sb_params_find(table, "IN", NULL), &table[8]);
    assert_null(sb_params_find(table, "IN.", NULL));
    assert_null(sb_params_find(table, "", NULL));
    assert_null(sb_params_find(table, "COUNT.IN", NULL));
}

/* A sample file is complete, and reading it gives the defaults. */
static void test_a_sample_file_reads_as_the_defaults(void **state)
{
    sb_yaml_doc *doc;
    options o;
    sb_str text;

    (void)state;
    sb_str_init(&text, test_ctx());
    sb_params_sample(table, &text);
    assert_ok(sb_str_status(&text));
    for (size_t i = 0; table[i].name; i++)
        assert_non_null(strstr(sb_str_text(&text), table[i].name));
    doc = load(sb_str_text(&text));
    assert_ok(sb_params_read(doc, doc->root, "", table, &o));
    assert_int_equal(o.in.depth, -1);
    assert_int_equal(o.sizes.n, 2);
    sb_yaml_free(doc);
    sb_str_free(&text);
}

static void test_the_nearest_word_is_proposed(void **state)
{
    static const char *const names[] = {"minmax", "mse", "percentile", NULL};

    (void)state;
    assert_string_equal(sb_nearest("MINMAX", names), "minmax");
    assert_string_equal(sb_nearest("percentil", names), "percentile");
    assert_string_equal(sb_nearest("ms", names), "mse");
    assert_null(sb_nearest("entropy", names));
    assert_null(sb_nearest("", names));
}

/* Files have points, whatever the user's language writes. */
static void test_locale_does_not_matter(void **state)
{
    sb_yaml_doc *doc = load("RATIO: 0.75");
    options o;

    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8"))
        print_message("no German locale here: in C only\n");
    assert_ok(sb_params_read(doc, doc->root, "", table, &o));
    (void)setlocale(LC_NUMERIC, "C");
    assert_close("ratio", o.ratio, 0.75, 0);
    sb_yaml_free(doc);
}

/* ---- values ------------------------------------------------------------- */

/* Rows of `table` without map and node. */
static const sb_param_def *flat_table(void)
{
    static sb_param_def flat[16];

    for (size_t i = 0, n = 0; table[i].name; i++)
        if (table[i].type != SB_PARAM_MAP && table[i].type != SB_PARAM_NODE)
            flat[n++] = table[i];
    return flat;
}

#define FLAT                                                         \
    "FLAG: true\nCOUNT: 7\nRATIO: 0.1\nPATH: 'a \"b'\nMODE: EXACT\n" \
    "SIZES: [64, 32]\nMEAN: [0.5, -1]\nSKIP: [x, y]\n"

static const char flat_json[] =
    "{\"FLAG\":true,\"COUNT\":7,\"RATIO\":0.1,"
    "\"PATH\":\"a \\\"b\",\"MODE\":\"exact\",\"SIZES\":[64,32],"
    "\"MEAN\":[0.5,-1],\"SKIP\":[\"x\",\"y\"]}";

static void test_values_are_compared(void **state)
{
    static const char *const others[] = {
        "FLAG: false\n",     "COUNT: 8\n",        "RATIO: 0.2\n",
        "PATH: a\n",         "PATH:\n",           "MODE: fast\n",
        "SIZES: [64, 33]\n", "SIZES: 64\n",       "MEAN: [0.5]\n",
        "MEAN: [0.5, 1]\n",  "SKIP: [x, y, z]\n", "SKIP: [x, z]\n",
    };
    sb_yaml_doc *doc = load(FLAT);
    options a, b;

    (void)state;
    assert_ok(sb_params_read(doc, doc->root, "", flat_table(), &a));
    assert_ok(sb_params_read(doc, doc->root, "", flat_table(), &b));
    assert_true(sb_params_equal(flat_table(), &a, &b));
    assert_true(sb_params_equal(NULL, NULL, NULL));
    for (size_t i = 0; i < SB_COUNT(others); i++) {
        size_t n = strcspn(others[i], ":");
        char text[300] = "", *end;

        /* FLAT with that line instead of its own */
        for (const char *line = FLAT; *line; line = strchr(line, '\n') + 1)
            if (strncmp(line, others[i], n + 1) != 0)
                (void)strncat(text, line, strcspn(line, "\n") + 1);
        end = text + strlen(text);
        if (strcmp(others[i], "PATH:\n") != 0)
            (void)snprintf(end, sizeof text - strlen(text), "%s", others[i]);
        sb_yaml_doc *other = load(text);
        assert_ok(sb_params_read(other, other->root, "", flat_table(), &b));
        assert_false(sb_params_equal(flat_table(), &a, &b));
        sb_yaml_free(other);
    }
    sb_yaml_free(doc);
}

static void test_values_are_printed(void **state)
{
    sb_yaml_doc *doc = load(FLAT);
    sb_str text;
    options o;

    (void)state;
    sb_str_init(&text, test_ctx());
    assert_ok(sb_params_read(doc, doc->root, "", flat_table(), &o));
    sb_params_words(flat_table(), &o, &text);
    assert_string_equal(sb_str_text(&text),
                        " flag true count 7 ratio 0.1 path a \"b mode exact "
                        "sizes 64,32 mean 0.5,-1 skip x,y");
    sb_str_clear(&text);
    sb_params_words(NULL, NULL, &text);
    assert_string_equal(sb_str_text(&text), "");
    sb_params_json(flat_table(), &o, &text);
    assert_string_equal(sb_str_text(&text), flat_json);
    sb_str_free(&text);
    sb_yaml_free(doc);
}

static void test_values_in_files(void **state)
{
    static const struct {
        const char *from, *to, *want;
    } edits[] = {
        {"true", "1",
         "j:1:9: FLAG: another value, 1; want that of the configuration, true"},
        {"\"COUNT\":7", "\"COUNT\":8", "j:1:22: COUNT"},
        {"\"exact\"", "1", "MODE"},
        {"[64,32]", "[64]", "SIZES"},
        {"[64,32]", "64", "SIZES"},
        {"\"y\"", "\"z\"", "SKIP"},
        {"\"MEAN\"", "\"MEAM\"", "j:1:1: MEAN: missing"},
        {"{", "{\"MORE\":1,", "9 parameters, want 8"},
    };
    sb_yaml_doc *doc = load(FLAT);
    sb_json_doc *json = NULL;
    options o;

    (void)state;
    assert_ok(sb_params_read(doc, doc->root, "", flat_table(), &o));
    assert_ok(
        sb_json_read(test_ctx(), "j", flat_json, strlen(flat_json), &json));
    assert_ok(sb_params_check_json(json, json->root, flat_table(), &o));
    sb_json_free(json);
    for (size_t i = 0; i < SB_COUNT(edits); i++) {
        const char *at = strstr(flat_json, edits[i].from);
        char text[300];

        assert_non_null(at);
        (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - flat_json),
                       flat_json, edits[i].to, at + strlen(edits[i].from));
        assert_ok(sb_json_read(test_ctx(), "j", text, strlen(text), &json));
        assert_status(sb_params_check_json(json, json->root, flat_table(), &o),
                      SB_BAD_DATA);
        assert_error_has(edits[i].want);
        sb_json_free(json);
    }
    sb_yaml_free(doc);
}

static sb_status read_scenario(sb_ctx *ctx)
{
    static const char text[] = "SIZES: [1, 2]\nIN: {DEPTH: 1}\nSKIP: [a]\n";
    static const char bad[] = "MODE: exakt\n";
    sb_yaml_doc *doc = NULL;
    options o;

    SB_TRY(sb_yaml_load_memory(ctx, "t", text, sizeof text - 1, &doc));
    sb_status status = sb_params_read(doc, doc->root, "", table, &o);
    sb_yaml_free(doc);
    if (status != SB_OK)
        return status;
    SB_TRY(sb_yaml_load_memory(ctx, "t", bad, sizeof bad - 1, &doc));
    status = sb_params_read(doc, doc->root, "", table, &o);
    sb_yaml_free(doc);
    return status == SB_BAD_CONFIG ? SB_OK : status;
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("parameters", read_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_keys_have_defaults),
        cmocka_unit_test(test_values_of_every_type),
        cmocka_unit_test(test_choices_take_the_words_of_flags),
        cmocka_unit_test(test_quoted_values_are_decoded),
        cmocka_unit_test(test_wrong_values_get_a_line),
        cmocka_unit_test(test_several_tables_read_one_map),
        cmocka_unit_test(test_one_key_is_set_by_its_path),
        cmocka_unit_test(test_keys_are_found_by_path),
        cmocka_unit_test(test_a_sample_file_reads_as_the_defaults),
        cmocka_unit_test(test_the_nearest_word_is_proposed),
        cmocka_unit_test(test_locale_does_not_matter),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
        cmocka_unit_test(test_values_are_compared),
        cmocka_unit_test(test_values_are_printed),
        cmocka_unit_test(test_values_in_files),
    };
    return cmocka_run_group_tests_name("param", tests, NULL, NULL);
}
