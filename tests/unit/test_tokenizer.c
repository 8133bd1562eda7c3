/* Tokenizers: the same tokens as Hugging Face's `tokenizers` and Google's
 * `sentencepiece` (tests/fixtures/llm/make_tokenizers wrote the vectors), texts
 * that come back, and files that are wrong.
 *
 * test_tokenizer TOKENIZER VECTORS compares with vectors of another one. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "llm/tokenizer/tokenizer.h"

#define FIXTURES "tests/fixtures/llm/"

/* ---- vectors ------------------------------------------------------------ */

static bool same_ids(const sb_ids *got, const sb_json *want)
{
    size_t i = 0;

    if (got->n != want->n)
        return false;
    for (const sb_json *v = want->child; v; v = v->next, i++)
        if ((double)got->v[i] < v->number || (double)got->v[i] > v->number)
            return false;
    return true;
}

static void show_ids(const sb_ids *got, const sb_json *want)
{
    print_message("got ");
    for (size_t i = 0; i < got->n; i++)
        print_message(" %u", got->v[i]);
    print_message("\nwant");
    for (const sb_json *v = want->child; v; v = v->next)
        print_message(" %.0f", v->number);
    print_message("\n");
}

/* How many texts of the file give other tokens. */
static size_t compare_vectors(const char *path, const char *vectors)
{
    sb_tokenizer *t = NULL;
    sb_mapping map = {0};
    sb_json_doc *doc = NULL;
    size_t wrong = 0, seen = 0;

    assert_ok(sb_tokenizer_open(test_ctx(), path, &t));
    assert_ok(sb_file_map(test_ctx(), vectors, &map));
    assert_ok(sb_json_read(test_ctx(), vectors, map.data, map.size, &doc));
    for (const sb_json *row = doc->root->child; row; row = row->next, seen++) {
        const char *text = sb_json_text(sb_json_get(row, "text"));
        const sb_json *want = sb_json_get(row, "ids");
        sb_ids ids = {0};

        assert_ok(sb_tokenize(t, text, strlen(text), true, &ids));
        if (!same_ids(&ids, want)) {
            print_message("%s: text %zu '%s'\n", path, seen, text);
            show_ids(&ids, want);
            wrong++;
        }
        sb_free(test_ctx(), ids.v);
    }
    assert_true(seen > 30);
    sb_json_free(doc);
    sb_file_unmap(&map);
    sb_tokenizer_free(t);
    return wrong;
}

static const char *const files[][2] = {
    {FIXTURES "tok_gpt2.json", FIXTURES "tok_gpt2.vectors.json"},
    {FIXTURES "tok_smollm.json", FIXTURES "tok_smollm.vectors.json"},
    {FIXTURES "tok_llama3.json", FIXTURES "tok_llama3.vectors.json"},
    {FIXTURES "tok_qwen2.json", FIXTURES "tok_qwen2.vectors.json"},
    {FIXTURES "tok_llama.json", FIXTURES "tok_llama.vectors.json"},
    {FIXTURES "tok_unigram.json", FIXTURES "tok_unigram.vectors.json"},
    {FIXTURES "tok_metaspace.json", FIXTURES "tok_metaspace.vectors.json"},
    {FIXTURES "tok_words.json", FIXTURES "tok_words.vectors.json"},
    {FIXTURES "tok_runs.json", FIXTURES "tok_runs.vectors.json"},
    {FIXTURES "tok_bert.json", FIXTURES "tok_bert.vectors.json"},
    {FIXTURES "tok_bert.gguf", FIXTURES "tok_bert.vectors.json"},
    {FIXTURES "tok_bert_cased.json", FIXTURES "tok_bert_cased.vectors.json"},
    {FIXTURES "tok_bert_accents.json",
     FIXTURES "tok_bert_accents.vectors.json"},
    {FIXTURES "spm_bpe.model", FIXTURES "spm_bpe.vectors.json"},
    {FIXTURES "spm_unigram.model", FIXTURES "spm_unigram.vectors.json"},
};

static void test_tokens_are_those_of_the_libraries(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(files); i++)
        assert_int_equal(compare_vectors(files[i][0], files[i][1]), 0);
}

/* ---- files that are wrong ----------------------------------------------- */

static sb_status open_text(const char *text, sb_tokenizer **out)
{
    char folder[] = "/tmp/tokenizer_test_XXXXXX", path[64];

    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    sb_status status = sb_tokenizer_open(test_ctx(), path, out);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    return status;
}

static void assert_json(const char *vocab, const char *merges, const char *want)
{
    sb_tokenizer *t = NULL;
    char text[1024];

    (void)snprintf(text, sizeof text,
                   "{\"model\":{\"type\":\"BPE\",\"vocab\":%s,"
                   "\"merges\":%s}}",
                   vocab, merges);
    assert_int_equal(open_text(text, &t), want ? SB_BAD_DATA : SB_OK);
    if (want && !strstr(sb_ctx_error(test_ctx()), want))
        fail_msg("'%s' is not in '%s'", want, sb_ctx_error(test_ctx()));
    sb_tokenizer_free(t);
}

/* Files that `tokenizers` reads, and that we would read wrongly. */
static void test_what_is_not_known_is_refused(void **state)
{
    static const struct {
        const char *part, *want;
    } cases[] = {
        {"\"added_tokens\":[{\"id\":1,\"content\":\"b\",\"single_word\":true}]",
         "added token 'b' is a single_word"},
        {"\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":"
         "\"Removed\"}",
         "Punctuation with behavior 'Removed'"},
        {"\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
         "{\"type\":\"WhitespaceSplit\"},"
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}]}",
         "pre-tokenizer 'ByteLevel' changes spaces behind another one"},
        {"\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
         "{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\","
         "\"replacement\":\"_\",\"prepend_scheme\":\"never\"}]}",
         "pre-tokenizer 'Metaspace' changes spaces behind another one"},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_tokenizer *t = NULL;
        char text[1024];

        (void)snprintf(text, sizeof text,
                       "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
                       "\"b\":1},\"merges\":[]},%s}",
                       cases[i].part);
        assert_status(open_text(text, &t), SB_UNSUPPORTED);
        assert_error_has(cases[i].want);
    }
}

/* `tokenizers` 0.23 refuses these, too. */
static void test_wrong_files_are_refused(void **state)
{
    static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2}";

    (void)state;
    assert_json(vocab, "[\"a b\"]", NULL);
    assert_json(vocab, "[\"a c\"]", "a merge of 'a' and 'c': want tokens");
    assert_json(vocab, "[[\"c\",\"b\"]]", "a merge of 'c' and 'b'");
    assert_json(vocab, "[[\"b\",\"a\"]]", "a merge of 'b' and 'a'");
    assert_json(vocab, "[\"ab\"]", "want a merge of two tokens");
    assert_json("{\"a\":0.5}", "[]", "want an ID");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_are_those_of_the_libraries),
        cmocka_unit_test(test_wrong_files_are_refused),
        cmocka_unit_test(test_what_is_not_known_is_refused),
    };

    if (argc == 3)
        return compare_vectors(argv[1], argv[2]) != 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
