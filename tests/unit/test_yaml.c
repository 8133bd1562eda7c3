/* YAML trees: what comes out of documents, and what is refused where. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/str.h"
#include "config/yaml.h"

/* The tree in one line: scalars bare or quoted, [lists], {maps}. */
static void flatten(const sb_yaml *node, sb_str *out)
{
    if (node->kind == SB_YAML_SCALAR) {
        sb_str_addf(out, node->quoted ? "\"%s\"" : "%s", node->text);
        return;
    }
    sb_str_add(out, node->kind == SB_YAML_LIST ? "[" : "{");
    for (size_t i = 0; i < node->n; i++) {
        sb_str_add(out, i ? ", " : "");
        if (node->keys) {
            flatten(node->keys[i], out);
            sb_str_add(out, ": ");
        }
        flatten(node->items[i], out);
    }
    sb_str_add(out, node->kind == SB_YAML_LIST ? "]" : "}");
}

static const struct {
    const char *text, *want;
} trees[] = {
    {"a: 1", "{a: 1}"},
    {"# only\na: 'x'\nb: \"y\"\n", "{a: \"x\", b: \"y\"}"},
    {"z: 1\na: 2\nm: 3", "{z: 1, a: 2, m: 3}"}, /* order of the file */
    {"- 1\n- [2, 3]\n- {k: v}", "[1, [2, 3], {k: v}]"},
    {"a:\nb: ~\nc: null", "{a: , b: ~, c: null}"},
    {"a: |\n  two\n  lines\n", "{a: \"two\nlines\n\"}"},
    {"a: [\n  \"x\",\n]", "{a: [\"x\"]}"},
    {"S: [{ # why\n  \"*norm\": [\"Q.D\", True],\n }]",
     "{S: [{\"*norm\": [\"Q.D\", True]}]}"},
    {"just text", "just text"},
    {"a: {}\nb: []", "{a: {}, b: []}"},
    {"---\na: 1\n...\n", "{a: 1}"},
    {"\xef\xbb\xbf"
     "a: 1",
     "{a: 1}"},
    {"\"\\u00e9\": caf\xc3\xa9", "{\"\xc3\xa9\": caf\xc3\xa9}"},
};

static void test_documents_become_trees(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(trees); i++) {
        sb_yaml_doc *doc = NULL;
        sb_str text;

        assert_ok(sb_yaml_load_memory(test_ctx(), "t.yaml", trees[i].text,
                                      strlen(trees[i].text), &doc));
        sb_str_init(&text, test_ctx());
        flatten(doc->root, &text);
        assert_string_equal(sb_str_text(&text), trees[i].want);
        sb_str_free(&text);
        sb_yaml_free(doc);
    }
}

static const struct {
    const char *text, *want;
} refused[] = {
    {"", "t.yaml: the file is empty"},
    {"# nothing\n", "t.yaml: the file is empty"},
    {"a: 1\nb: 2\na: 3\n", "t.yaml:3: key 'a' is given twice, first in line 1"},
    {"x: {k: 1,\n 'k': 2}",
     "t.yaml:2: key 'k' is given twice, first in line 1"},
    {"a: &x 1\nb: *x\n", "t.yaml:1: anchor '&x': anchors are not supported, "
                         "write the value out"},
    {"\na: &x [1]\n", "t.yaml:2: anchor '&x': anchors are not supported, "
                      "write the value out"},
    {"a: *x\n", "t.yaml:1: alias '*x': aliases are not supported, write the "
                "value out"},
    {"*x : 1\n", "t.yaml:1: alias '*x': aliases are not supported, write the "
                 "value out"},
    {"a: !!int 3\n",
     "t.yaml:1: tag 'tag:yaml.org,2002:int': tags are not supported"},
    {"a: 1\nb: !x {}\n", "t.yaml:2: tag '!x': tags are not supported"},
    {"a: 1\n---\nb: 2\n", "t.yaml:2: a second document, want one"},
    {"? [a, b]\n: 1\n", "t.yaml:1: a key that is a list or a map, want a name"},
    {"a: 1\n\tb: 2\n",
     "t.yaml:2: not YAML: found a tab character that violates indentation "
     "while scanning a plain scalar"},
    {"a: 1\nb: *\n",
     "t.yaml:2: not YAML: did not find expected alphabetic or numeric "
     "character while scanning an alias"},
    {"a: 1\nb: @x\n",
     "t.yaml:2: not YAML: found character that cannot start any token (a tab, "
     "or a special character without quotes?)"},
    {"a: [1, 2\nb: 3\n",
     "t.yaml:2: not YAML: did not find expected ',' or ']' while parsing a "
     "flow sequence"},
    {"a: 'open\n\n", "t.yaml:3: not YAML: found unexpected end of stream while "
                     "scanning a quoted scalar"},
    {"a: 1\nb: \xff\xfe\n",
     "t.yaml:2: not a text in UTF-8: invalid leading UTF-8 octet"},
    {"a: \"\\0\"\n", "t.yaml:1: a text with a zero byte"},
};

static void test_what_is_refused_gets_a_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(refused); i++) {
        sb_yaml_doc *doc = NULL;

        assert_status(sb_yaml_load_memory(test_ctx(), "t.yaml", refused[i].text,
                                          strlen(refused[i].text), &doc),
                      SB_BAD_CONFIG);
        assert_string_equal(sb_ctx_error(test_ctx()), refused[i].want);
        assert_null(doc);
    }
}

static void test_nodes_know_their_lines(void **state)
{
    static const char text[] = "a: 1\nb:\n  c: [x,\n    y]\n";
    sb_yaml_doc *doc = NULL;

    (void)state;
    assert_ok(sb_yaml_load_memory(test_ctx(), "t", text, strlen(text), &doc));
    const sb_yaml *c = sb_yaml_get(sb_yaml_get(doc->root, "b"), "c");
    assert_int_equal(c->line, 3);
    assert_int_equal(c->column, 6);
    assert_int_equal(c->items[1]->line, 4);
    assert_int_equal(c->items[1]->column, 5);
    assert_null(sb_yaml_get(doc->root, "c"));
    assert_null(sb_yaml_get(c, "c"));
    assert_null(sb_yaml_get(NULL, "c"));
    sb_yaml_free(doc);
    sb_yaml_free(NULL);
}

static sb_status load_bytes(const char *data, size_t n)
{
    sb_yaml_doc *doc = NULL;
    sb_status status = sb_yaml_load_memory(test_ctx(), "t", data, n, &doc);

    sb_yaml_free(doc);
    return status;
}

static void test_depth_and_size_are_limited(void **state)
{
    enum { BIG = SB_YAML_SIZE + 1 };
    char *text = malloc(BIG);

    (void)state;
    assert_non_null(text);
    memset(text, '[', BIG);
    assert_status(load_bytes(text, 1000), SB_BAD_CONFIG);
    assert_error_has("t:1: more than 32 levels deep");
    memset(text + SB_YAML_DEPTH, ']', SB_YAML_DEPTH);
    assert_ok(load_bytes(text, (size_t)2 * SB_YAML_DEPTH));
    memset(text, 'x', BIG);
    assert_status(load_bytes(text, BIG), SB_BAD_CONFIG);
    assert_error_has("t: 1048577 bytes, want at most 1048576");
    assert_ok(load_bytes(text, BIG - 1));
    /* Many keys, each different: checking them must not take long. */
    size_t n = 0;
    for (int i = 0; n + 16 < BIG; i++)
        n += (size_t)snprintf(text + n, BIG - n, "%x:\n", (unsigned)i);
    assert_ok(load_bytes(text, n));
    free(text);
}

static void test_files_are_read(void **state)
{
    char path[] = "/tmp/sbtest-yaml-XXXXXX";
    int fd = mkstemp(path);
    sb_yaml_doc *doc = NULL;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "k: v\n", 5), 5);
    (void)close(fd);
    assert_ok(sb_yaml_load(test_ctx(), path, &doc));
    assert_string_equal(doc->file, path);
    assert_string_equal(sb_yaml_get(doc->root, "k")->text, "v");
    sb_yaml_free(doc);
    (void)unlink(path);
    assert_status(sb_yaml_load(test_ctx(), path, &doc), SB_IO);
    assert_status(sb_yaml_load(test_ctx(), "/tmp", &doc), SB_IO);
}

static sb_status load_scenario(sb_ctx *ctx)
{
    static const char text[] = "a: {b: [1, 2, {c: d}], e: f}\ng: 'h'\n";
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_yaml_load_memory(ctx, "t", text, sizeof text - 1, &doc));
    sb_yaml_free(doc);
    return SB_OK;
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("yaml", load_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents_become_trees),
        cmocka_unit_test(test_what_is_refused_gets_a_line),
        cmocka_unit_test(test_nodes_know_their_lines),
        cmocka_unit_test(test_depth_and_size_are_limited),
        cmocka_unit_test(test_files_are_read),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests_name("yaml", tests, NULL, NULL);
}
