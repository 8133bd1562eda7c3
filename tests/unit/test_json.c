/* JSON: what the standard allows is read, all else is refused in one line that
 * names the place.  Expected values are those of Python's json. */
#include "sbtest.h"

#include <locale.h>
#include <math.h>

#include "base/json.h"
#include "base/number.h"

static sb_status read_bytes(const char *text, size_t size, sb_json_doc **doc)
{
    return sb_json_read(test_ctx(), "f.json", text, size, doc);
}

static sb_json_doc *must_read(const char *text)
{
    sb_json_doc *doc = NULL;

    assert_ok(read_bytes(text, strlen(text), &doc));
    return doc;
}

static void test_values_of_every_kind(void **state)
{
    (void)state;
    sb_json_doc *doc = must_read(" {\"a\": [1, -0.5e1, true "
                                 ",false,null],\r\n\t\"b\":{}, \"\":\"x\"} \n");
    const sb_json *a = sb_json_get(doc->root, "a"), *item = a->child;

    assert_int_equal(doc->root->kind, SB_JSON_OBJECT);
    assert_int_equal(doc->root->n, 3);
    assert_int_equal(a->n, 5);
    assert_true(item->kind == SB_JSON_NUMBER && item->number == 1.0);
    item = item->next;
    assert_true(item->kind == SB_JSON_NUMBER && item->number == -5.0);
    item = item->next;
    assert_true(item->kind == SB_JSON_BOOL && item->number == 1.0);
    item = item->next;
    assert_true(item->kind == SB_JSON_BOOL && item->number == 0.0);
    item = item->next;
    assert_true(item->kind == SB_JSON_NULL && !item->next);
    assert_int_equal(sb_json_get(doc->root, "b")->n, 0);
    assert_string_equal(sb_json_text(sb_json_get(doc->root, "")), "x");
    assert_null(sb_json_get(doc->root, "c"));
    assert_null(sb_json_get(a, "a"));
    assert_null(sb_json_get(NULL, "a"));
    assert_null(sb_json_text(a));
    assert_status(sb_json_fail(doc, sb_json_get(doc->root, "b"), "no %d", 1),
                  SB_BAD_DATA);
    assert_string_equal(sb_ctx_error(test_ctx()), "f.json:2:6: no 1");
    sb_json_free(doc);
}

static void test_escapes_are_decoded(void **state)
{
    static const struct {
        const char *json, *want;
    } cases[] = {
        {"\"\"", ""},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"",
         "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"",
         "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f"},
        {"\"\\udcff\"", "\xff"}, /* a byte that was no UTF-8 */
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_json_doc *doc = must_read(cases[i].json);
        assert_string_equal(sb_json_text(doc->root), cases[i].want);
        sb_json_free(doc);
    }
}

/* Any bytes that a name may have survive. */
static void test_texts_return(void **state)
{
    char name[300];
    sb_json_doc *doc;
    sb_str text;

    (void)state;
    for (size_t i = 0; i < 255; i++)
        name[i] = (char)(i + 1);
    (void)snprintf(name + 255, sizeof name - 255,
                   "\xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80 \xe2\x82 \xf0\x9f");
    sb_str_init(&text, test_ctx());
    sb_str_add_json(&text, name);
    assert_ok(sb_str_status(&text));
    assert_ok(read_bytes(text.data, text.len, &doc));
    assert_string_equal(sb_json_text(doc->root), name);
    sb_json_free(doc);
    sb_str_free(&text);
}

static void check_numbers(void)
{
    static const double numbers[] = {0.0,
                                     1.0,
                                     -1.0,
                                     0.1,
                                     1.0 / 3.0,
                                     1e15,
                                     9007199254740992.0,
                                     1e-310,
                                     0x1.fffffep127,
                                     5e-324,
                                     0.30000000000000004};

    for (size_t i = 0; i < SB_COUNT(numbers); i++) {
        sb_str text;
        sb_json_doc *doc;
        sb_str_init(&text, test_ctx());
        sb_json_add_number(&text, numbers[i]);
        assert_ok(read_bytes(text.data, text.len, &doc));
        assert_true(doc->root->number == numbers[i]);
        sb_json_free(doc);
        sb_str_free(&text);
    }
}

static void test_numbers_are_read_in_any_locale(void **state)
{
    double x;

    (void)state;
    check_numbers();
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8")) { /* 0,5 */
        check_numbers();
        assert_true(sb_number_read("0.5", &x) && x == 0.5);
        assert_false(sb_number_read("0,5", &x));
        (void)setlocale(LC_NUMERIC, "C");
    }
}

static const struct {
    const char *json, *want;
} wrong[] = {
    {"", "f.json:1:1: the file ends, want a value"},
    {" \n ", "f.json:2:2: the file ends, want a value"},
    {"{\"a\":1}\n}", "f.json:2:1: found '}', want the end of the file"},
    {"[1,2", "f.json:1:5: the file ends, want ',' or ']'"},
    {"[1,]", "f.json:1:4: found ']', want a value"},
    {"[1 2]", "f.json:1:4: found '2', want ',' or ']'"},
    {"{\"a\":1", "f.json:1:7: the file ends, want ',' or '}'"},
    {"{\"a\" 1}", "f.json:1:6: found '1', want ':'"},
    {"{a:1}", "f.json:1:2: found 'a', want a key in quotes"},
    {"{\"a\":1,}", "f.json:1:8: found '}', want a key in quotes"},
    {"{\"a\":1,\n \"b\":2, \"a\":3}", "f.json:2:9: a key that is given twice"},
    {"{\"a\":1,\"\\u0061\":3}", "f.json:1:8: a key that is given twice"},
    {"\"abc", "f.json:1:1: a text without end"},
    {"\"abc\\", "f.json:1:1: a text without end"},
    {"\"a\nb\"", "f.json:1:3: a control character in a text"},
    {"\"\\x\"",
     "f.json:1:3: found 'x', want one of \"\\/bfnrtu after a backslash"},
    {"\"\\u12\"", "f.json:1:6: found '\"', want four hexadecimal digits"},
    {"\"\\u0000\"", "f.json:1:8: a text with a zero byte"},
    {"\"\\ud800\"", "f.json:1:8: half of a surrogate pair"},
    {"\"\\ud800\\u0041\"", "f.json:1:14: half of a surrogate pair"},
    {"\"\\udc00\"", "f.json:1:8: half of a surrogate pair"},
    {"\"\xff\"", "f.json:1:2: a text that is not UTF-8"},
    {"\"a\xc3\"", "f.json:1:3: a text that is not UTF-8"},
    {"\"\xc0\x80\"", "f.json:1:2: a text that is not UTF-8"},
    {"\"\xed\xa0\x80\"", "f.json:1:2: a text that is not UTF-8"},
    {"01", "f.json:1:3: a number with leading zeros"},
    {"+1", "f.json:1:1: found '+', want a value"},
    {"-", "f.json:1:2: the file ends, want a value"},
    {"1.", "f.json:1:3: the file ends, want a digit"},
    {".5", "f.json:1:1: found '.', want a value"},
    {"1e", "f.json:1:3: the file ends, want a digit"},
    {"1e+x", "f.json:1:4: found 'x', want a digit"},
    {"[1e999]", "f.json:1:2: a number that is too long or too large"},
    {"0x10", "f.json:1:2: found 'x', want the end of the file"},
    {"NaN", "f.json:1:1: found 'N', want a value"},
    {"nul", "f.json:1:1: found 'n', want a value"},
    {"True", "f.json:1:1: found 'T', want a value"},
    {"[\x01]", "f.json:1:2: found a byte 0x01, want a value"},
    {"\xef\xbb\xbf[]", "f.json:1:1: found a byte 0xef, want a value"},
    {"// no\n1", "f.json:1:1: found '/', want a value"},
};

static void test_what_is_wrong_gets_a_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(wrong); i++) {
        sb_json_doc *doc = NULL;
        assert_status(read_bytes(wrong[i].json, strlen(wrong[i].json), &doc),
                      SB_BAD_DATA);
        assert_string_equal(sb_ctx_error(test_ctx()), wrong[i].want);
        assert_null(doc);
    }
}

static void test_zero_byte(void **state)
{
    sb_json_doc *doc;

    (void)state;
    assert_status(read_bytes("[1]\0", 4, &doc), SB_BAD_DATA);
    assert_error_has("found a byte 0x00");
    assert_status(read_bytes("\"a\0b\"", 5, &doc), SB_BAD_DATA);
    assert_error_has("control character");
}

static void test_depth_and_size_are_limited(void **state)
{
    char text[4000];
    sb_json_doc *doc;

    (void)state;
    memset(text, '[', sizeof text);
    memset(text + SB_JSON_DEPTH, ']', SB_JSON_DEPTH);
    assert_ok(read_bytes(text, (size_t)2 * SB_JSON_DEPTH, &doc));
    sb_json_free(doc);
    memset(text, '[', sizeof text);
    assert_status(read_bytes(text, sizeof text, &doc), SB_BAD_DATA);
    assert_error_has("f.json:1:33: too many levels");
    memset(text, '1', sizeof text);
    assert_status(read_bytes(text, sizeof text, &doc), SB_BAD_DATA);
    assert_error_has("f.json:1:1: a number that is too long");
}

/* As many as a vocabulary has; the last one is there twice. */
static void test_objects_have_any_number_of_keys(void **state)
{
    enum { KEYS = 20000 };
    static char text[KEYS * 16];
    sb_json_doc *doc;
    size_t n = 0;

    (void)state;
    text[n++] = '{';
    for (int i = 0; i < KEYS; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "\"%d\":%d,", i, i);
    text[n - 1] = '}';
    assert_ok(read_bytes(text, n, &doc));
    assert_int_equal(doc->root->n, KEYS);
    assert_true(sb_json_get(doc->root, "19999")->number == 19999);
    sb_json_free(doc);
    n += (size_t)snprintf(text + n - 1, sizeof text - n, ",\"7\":0}") - 1;
    assert_status(read_bytes(text, n, &doc), SB_BAD_DATA);
    assert_error_has("a key that is given twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_of_every_kind),
        cmocka_unit_test(test_escapes_are_decoded),
        cmocka_unit_test(test_texts_return),
        cmocka_unit_test(test_numbers_are_read_in_any_locale),
        cmocka_unit_test(test_what_is_wrong_gets_a_line),
        cmocka_unit_test(test_zero_byte),
        cmocka_unit_test(test_depth_and_size_are_limited),
        cmocka_unit_test(test_objects_have_any_number_of_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
