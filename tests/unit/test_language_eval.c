/* Texts as data, and perplexity: windows of both styles by hand, sums over
 * logits of transformers by NumPy. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sparsebit/sparsebit.h>

#define FIXTURES "tests/fixtures/llm/"

/* ---- windows ------------------------------------------------------------ */

static char text_path[512];

static void write_text(const char *text)
{
    const char *folder = getenv("TMPDIR");

    (void)snprintf(text_path, sizeof text_path, "%s/sb-text-%ld",
                   folder ? folder : "/tmp", (long)getpid());
    FILE *f = fopen(text_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static sb_status open_text(const char *more, sb_data **out)
{
    char cwd[512], yaml[2048];

    assert_non_null(getcwd(cwd, sizeof cwd));
    (void)snprintf(yaml, sizeof yaml,
                   "SOURCE: text\nPATH: %s\nTOKENIZER: %s/" FIXTURES
                   "tiny.gguf\nBATCH: 2\n%s",
                   text_path, cwd, more);
    return sb_data_parse(test_ctx(), yaml, "test.yaml", NULL, out);
}

static void assert_windows(const char *more, size_t from, const int64_t *want)
{
    sb_data *data = NULL;
    const sb_batch *b = NULL;

    assert_ok(open_text(more, &data));
    assert_int_equal(sb_data_count(data), 2);
    assert_ok(sb_data_next(data, &b));
    assert_int_equal(b->count, 2);
    assert_int_equal(b->text_from, from);
    assert_int_equal(b->inputs[0]->dtype, SB_DTYPE_I64);
    for (int64_t i = 0; i < 8; i++)
        assert_int_equal(sb_tensor_get_i64(b->inputs[0], i), want[i]);
    sb_data_free(data);
}

/* In this vocabulary 1 begins a text and 23 is " ab". */
static void test_windows_follow_the_style(void **state)
{
    sb_data *data = NULL;

    (void)state;
    write_text("ab ab ab ab ab ab ab ab ab");
    assert_windows("WINDOW: 4\n", 1,
                   (int64_t[]){1, 23, 23, 23, 23, 23, 23, 23});
    assert_windows("WINDOW: 4\nSTYLE: llama.cpp\n", 3,
                   (int64_t[]){1, 23, 23, 23, 1, 23, 23, 23});
    write_text("ab ab##  ab\n## ab ab ab");
    assert_windows("WINDOW: 4\nDOCUMENT: \"##\"\n", 1,
                   (int64_t[]){1, 23, 23, 1, 23, 1, 23, 23});
    assert_status(open_text("WINDOW: 400\n", &data), SB_BAD_CONFIG);
    assert_error_has("tokens, want a WINDOW of 400");
    assert_status(open_text("WINDOW: 1\n", &data), SB_BAD_CONFIG);
    assert_error_has("WINDOW: found 1, want 2 or more");
    write_text("ab \xff");
    assert_status(open_text("WINDOW: 2\n", &data), SB_BAD_DATA);
    assert_error_has("not UTF-8 at byte 3");
    (void)remove(text_path);
}

/* ---- sums --------------------------------------------------------------- */

static void assert_sums(size_t from, size_t tokens, double perplexity,
                        double divergence)
{
    sb_tensor *ids = NULL, *a = NULL, *b = NULL;
    sb_eval *e = NULL;
    sb_batch batch = SB_BATCH_INIT;

    assert_ok(sb_tensor_load(test_ctx(), FIXTURES "ids.npy", &ids));
    assert_ok(sb_tensor_load(test_ctx(), FIXTURES "llama/logits.npy", &a));
    assert_ok(sb_tensor_load(test_ctx(), FIXTURES "qwen2/logits.npy", &b));
    assert_ok(sb_eval_create(test_ctx(), 1, NULL, &e));
    batch.count = 2;
    batch.n_inputs = 1;
    batch.inputs = (const sb_tensor *const[]){ids};
    batch.text_from = from;
    assert_ok(sb_eval_add(e, &batch, (const sb_tensor *const[]){a}));
    assert_ok(sb_eval_compare(e, &batch, (const sb_tensor *const[]){a},
                              (const sb_tensor *const[]){b}));
    const sb_eval_result *r = sb_eval_get(e);
    assert_string_equal(r->task, "language");
    assert_int_equal(r->tokens, tokens);
    assert_close("perplexity", r->perplexity, perplexity, 1e-6 * perplexity);
    assert_close("divergence", r->divergence, divergence, 1e-6);
    assert_close("same token", r->agreement, 0, 0);
    ((int64_t *)ids->data)[3] = 64;
    assert_status(sb_eval_add(e, &batch, (const sb_tensor *const[]){a}),
                  SB_BAD_DATA);
    assert_error_has("token 64, the model knows 64");
    sb_eval_free(e);
    sb_tensor_free(ids);
    sb_tensor_free(a);
    sb_tensor_free(b);
}

static void test_sums_are_those_of_numpy(void **state)
{
    (void)state;
    assert_sums(1, 22, 316.49727103279355, 2.293821584438958);
    assert_sums(7, 10, 468.00190929164745, 2.2786422486512796);
}

/* Of a text of two tokens, one predicted: p of the reference, q of the model.
 */
static double divergence_of(const float p[3], const float q[3])
{
    int64_t tokens[] = {0, 1};
    float a[6] = {0}, b[6] = {0};
    sb_tensor ids = sb_tensor_make(SB_DTYPE_I64, 2, (int64_t[]){1, 2});
    sb_tensor x = sb_tensor_make(SB_DTYPE_F32, 3, (int64_t[]){1, 2, 3}), y = x;
    sb_batch batch = SB_BATCH_INIT;
    sb_eval *e = NULL;

    memcpy(a, q, 3 * sizeof *q);
    memcpy(b, p, 3 * sizeof *p);
    ids.data = tokens;
    x.data = a;
    y.data = b;
    assert_ok(sb_eval_create(test_ctx(), 1, NULL, &e));
    batch.count = 1;
    batch.n_inputs = 1;
    batch.inputs = (const sb_tensor *const[]){&ids};
    batch.text_from = 1;
    assert_ok(sb_eval_compare(e, &batch, (const sb_tensor *const[]){&x},
                              (const sb_tensor *const[]){&y}));
    double d = sb_eval_get(e)->divergence;
    sb_eval_free(e);
    return d;
}

/* Logits of float16: p is 1/3 each, q e, 1 and 1 of e + 2. */
static void test_logits_may_be_half(void **state)
{
    const double zero[6] = {0}, one[6] = {1};
    sb_tensor *ids = test_i64("1x2", 0, 1);
    sb_tensor *p = test_tensor(SB_DTYPE_F16, "1x2x3", zero);
    sb_tensor *q = test_tensor(SB_DTYPE_F16, "1x2x3", one);
    sb_batch batch = SB_BATCH_INIT;
    sb_eval *e = NULL;

    (void)state;
    assert_ok(sb_eval_create(test_ctx(), 1, NULL, &e));
    batch.count = 1;
    batch.n_inputs = 1;
    batch.inputs = (const sb_tensor *const[]){ids};
    batch.text_from = 1;
    assert_ok(sb_eval_add(e, &batch, (const sb_tensor *const[]){q}));
    assert_ok(sb_eval_compare(e, &batch, (const sb_tensor *const[]){q},
                              (const sb_tensor *const[]){p}));
    assert_close("perplexity", sb_eval_get(e)->perplexity, exp(1) + 2, 1e-9);
    assert_close("divergence", sb_eval_get(e)->divergence,
                 log(exp(1) + 2) - log(3) - 1.0 / 3, 1e-9);
    sb_eval_free(e);
}

/* 1/2 ln(1/2 : 3/4) + 1/2 ln(1/2 : 1/4), and a token that cannot be; what is
 * not a number is not taken for no difference. */
static void test_divergence_of_logits_that_are_not_finite(void **state)
{
    const float p[] = {0, 0, -INFINITY}, q[] = {1.0986123F, 0, -INFINITY};
    const float nan[] = {NAN, 0, 0};

    (void)state;
    assert_close("divergence", divergence_of(p, q), 0.14384103622, 1e-7);
    assert_true(isnan(divergence_of(p, nan)));
    assert_true(isnan(divergence_of(nan, q)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_follow_the_style),
        cmocka_unit_test(test_sums_are_those_of_numpy),
        cmocka_unit_test(test_logits_may_be_half),
        cmocka_unit_test(test_divergence_of_logits_that_are_not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
