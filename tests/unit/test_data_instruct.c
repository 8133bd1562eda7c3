/* Samples of questions and answers: the tokens of both, and which of them are
 * to be predicted. */
#define _DEFAULT_SOURCE
#include "sbtest.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sparsebit/sparsebit.h>

#define FIXTURES "tests/fixtures/llm/"

static char folder_path[] = "/tmp/sparsebit-instruct-XXXXXX";
static char path[512];

static const char *test_path(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", folder_path, name);
    return path;
}

static void test_write(const char *to, const char *text)
{
    FILE *f = fopen(to, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

enum { WINDOW = 24 };

static void test_only_answers_are_learned(void **state)
{
    char text[1024], here[512];
    sb_data *data = NULL;
    const sb_batch *b = NULL;
    sb_tokenizer *tok = NULL;
    int64_t *ask = NULL, *answer = NULL;
    size_t n_ask = 0, n_answer = 0;

    (void)state;
    assert_non_null(getcwd(here, sizeof here));
    (void)snprintf(text, sizeof text,
                   "SOURCE: %s\nPATH: qa.json\n"
                   "TOKENIZER: %s/" FIXTURES "tiny.gguf\nWINDOW: 24\n"
                   "PROMPT: \"a{q}\\n\\nb{more}\\n\\nc\"\n",
                   "instruct", here);
    test_write(test_path("qa.json"),
               "{\"q\": \"ab\", \"more\": \"\", \"output\": \"ba\"}\n"
               "{\"q\": \"ab\", \"more\": \"a\", \"output\": \"b\"}\n");
    assert_ok(
        sb_data_parse(test_ctx(), text, test_path("data.yaml"), NULL, &data));
    assert_int_equal(sb_data_count(data), 2);
    assert_ok(sb_data_next(data, &b));
    assert_int_equal(b->n_inputs, 1);
    assert_int_equal(b->text_from, 1);
    assert_ok(sb_tokenizer_open(test_ctx(), FIXTURES "tiny.gguf", &tok));
    assert_ok(sb_tokenizer_encode(tok, "aab\n\nc", 6, 1, &ask, &n_ask));
    assert_ok(sb_tokenizer_encode(tok, "ba", 2, 0, &answer, &n_answer));
    const int64_t *ids = sb_tensor_data(b->inputs[0]);
    const int64_t *labels = sb_tensor_data(b->text_labels);
    for (size_t i = 0; i < WINDOW; i++) {
        if (i < n_ask)
            assert_int_equal(ids[i], ask[i]);
        else if (i < n_ask + n_answer)
            assert_int_equal(ids[i], answer[i - n_ask]);
        if (i < n_ask || i > n_ask + n_answer)
            assert_int_equal(labels[i], -100);
        else if (i < n_ask + n_answer)
            assert_int_equal(labels[i], ids[i]);
    }
    sb_memory_free(ask);
    sb_memory_free(answer);
    sb_tokenizer_free(tok);
    sb_data_free(data);
}

static void test_files_that_say_too_little(void **state)
{
    static const char text[] = "SOURCE: instruct\nPATH: qa.json\nWINDOW: 24\n";
    sb_data *data = NULL;

    (void)state;
    assert_status(
        sb_data_parse(test_ctx(), text, test_path("data.yaml"), NULL, &data),
        SB_BAD_CONFIG);
    assert_error_has("TOKENIZER");
    sb_data_free(data);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder_path) ? 0 : -1;
}

static int teardown(void **state)
{
    char command[600];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder_path);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_answers_are_learned),
        cmocka_unit_test(test_files_that_say_too_little),
    };
    return cmocka_run_group_tests_name("data_instruct", tests, setup, teardown);
}
