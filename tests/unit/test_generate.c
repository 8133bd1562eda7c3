/* Generating text: a model that takes a text piece by piece says what it says
 * of the whole text, sampling, stop texts, streaming, and wrong usage. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sparsebit/sparsebit.h>

#include "api/model.h"
#include "base/alloc.h"
#include "llm/generator.h"

#define FIXTURES "tests/fixtures/llm/"

/* ---- the cache ---------------------------------------------------------- */

/* Leaves so many positions in the tables of a network. */
static void cut_positions(sb_graph *g, int64_t positions)
{
    size_t seen = 0;

    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);

        for (uint32_t i = 1; i <= 2 && sb_node_is(node, "RotaryEmbedding");
             i++) {
            sb_graph_value(g, node->inputs[i])->constant.dims[0] = positions;
            seen++;
        }
    }
    assert_true(seen > 0);
}

/* Takes the first text of ids.npy in pieces, and compares the logits behind
 * each piece with those that transformers computed for the whole.  `context`:
 * of the cache; the network has no more positions, 0: both have enough. */
static void assert_pieces(const char *name, const char *logits, double tol,
                          int64_t context, const size_t *pieces, size_t n)
{
    sb_model *model = NULL;
    sb_tensor *ids = NULL, *want = NULL;
    sb_kv_cache cache = {0};
    size_t at = 0;

    assert_ok(sb_model_load(test_ctx(), name, &model));
    assert_ok(sb_tensor_load(test_ctx(), FIXTURES "ids.npy", &ids));
    assert_ok(sb_tensor_load(test_ctx(), logits, &want));
    if (context)
        cut_positions(model->graph, context);
    assert_ok(
        sb_kv_cache_create(model->graph, context ? context : 40, 1, &cache));
    for (size_t i = 0; i < n; i++) {
        const sb_tensor *got = NULL;
        uint32_t tokens[16];
        int64_t width = want->dims[2];

        for (size_t k = 0; k < pieces[i]; k++)
            tokens[k] = (uint32_t)sb_tensor_get_i64(ids, (int64_t)(at + k));
        assert_ok(sb_kv_cache_take(&cache, tokens, pieces[i], &got));
        at += pieces[i];
        assert_int_equal(sb_tensor_count(got), width);
        assert_all_close(name, got->data,
                         (const float *)want->data + (int64_t)(at - 1) * width,
                         (size_t)width, tol);
    }
    sb_kv_cache_free(&cache);
    sb_model_free(model);
    sb_tensor_free(ids);
    sb_tensor_free(want);
}

static void test_pieces_give_what_the_whole_text_gives(void **state)
{
    static const char *const names[][2] = {
        {FIXTURES "llama", FIXTURES "llama/logits.npy"},
        {FIXTURES "mistral", FIXTURES "mistral/logits.npy"},
        {FIXTURES "qwen2", FIXTURES "qwen2/logits.npy"},
        {FIXTURES "qwen3", FIXTURES "qwen3/logits.npy"},
        {FIXTURES "gemma3", FIXTURES "gemma3/logits.npy"},
        {FIXTURES "gpt2", FIXTURES "gpt2/logits.npy"},
        {FIXTURES "tiny.gguf", FIXTURES "tiny.gguf.logits.npy"},
    };
    static const size_t one[] = {12}, some[] = {5, 1, 1, 4, 1};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        /* Packed weights take activations that are rounded to int8. */
        double tol = strstr(names[i][0], ".gguf") ? 0.08 : 2e-5;

        assert_pieces(names[i][0], names[i][1], tol, 0, one, SB_COUNT(one));
        assert_pieces(names[i][0], names[i][1], tol, 0, some, SB_COUNT(some));
    }
}

/* A piece that is filled up does not reach beyond the last position. */
static void test_texts_reach_the_last_position(void **state)
{
    static const size_t nearly[] = {9, 1}, all[] = {10}, late[] = {7, 2, 1},
                        end[] = {8, 2};
    const char *name = FIXTURES "llama", *logits = FIXTURES "llama/logits.npy";

    (void)state;
    assert_pieces(name, logits, 2e-5, 10, nearly, SB_COUNT(nearly));
    assert_pieces(name, logits, 2e-5, 10, all, SB_COUNT(all));
    assert_pieces(name, logits, 2e-5, 10, late, SB_COUNT(late));
    assert_pieces(name, logits, 2e-5, 10, end, SB_COUNT(end));
}

/* All texts of ids.npy together, token by token. */
static void test_texts_go_on_together(void **state)
{
    static const char *const names[] = {"llama", "mistral", "gemma3", "gpt2"};
    sb_tensor *ids = NULL;

    (void)state;
    assert_ok(sb_tensor_load(test_ctx(), FIXTURES "ids.npy", &ids));
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        sb_model *model = NULL;
        sb_tensor *want = NULL;
        sb_kv_cache cache = {0};
        char path[128];
        int64_t n = ids->dims[0], len = ids->dims[1], next[8];

        (void)snprintf(path, sizeof path, FIXTURES "%s", names[i]);
        assert_ok(sb_model_load(test_ctx(), path, &model));
        (void)snprintf(path, sizeof path, FIXTURES "%s/logits.npy", names[i]);
        assert_ok(sb_tensor_load(test_ctx(), path, &want));
        assert_true(n > 1 && n <= 8);
        assert_ok(sb_kv_cache_create(model->graph, 40, n, &cache));
        for (int64_t at = 0; at < len; at++) {
            const sb_tensor *got = NULL;
            int64_t width = want->dims[2];

            for (int64_t r = 0; r < n; r++)
                next[r] = sb_tensor_get_i64(ids, r * len + at);
            assert_ok(sb_kv_cache_step(&cache, next, &got));
            for (int64_t r = 0; r < n; r++)
                assert_all_close(names[i], (const float *)got->data + r * width,
                                 (const float *)want->data +
                                     (r * len + at) * width,
                                 (size_t)width, 2e-5);
        }
        sb_kv_cache_free(&cache);
        sb_model_free(model);
        sb_tensor_free(want);
    }
    sb_tensor_free(ids);
}

/* Tokens that a model writes by itself, for any number of threads. */
static void test_texts_of_its_own(void **state)
{
    enum { N = 40, WINDOW = 12 };
    static int64_t first[N * WINDOW], again[N * WINDOW];
    sb_model *model = NULL;
    sb_tokenizer *t = NULL;
    size_t same = 0;

    (void)state;
    assert_ok(sb_model_load(test_ctx(), FIXTURES "tiny.gguf", &model));
    assert_ok(sb_tokenizer_open(test_ctx(), FIXTURES "tiny.gguf", &t));
    sb_ctx_set_threads(test_ctx(), 1);
    assert_ok(sb_model_sample_tokens(model, t, N, WINDOW, 5, first));
    sb_ctx_set_threads(test_ctx(), 3);
    assert_ok(sb_model_sample_tokens(model, t, N, WINDOW, 5, again));
    sb_ctx_set_threads(test_ctx(), 0);
    assert_memory_equal(first, again, sizeof first);
    for (size_t r = 0; r < N; r++) {
        for (size_t i = 0; i < WINDOW; i++)
            assert_true(first[r * WINDOW + i] >= 0 &&
                        first[r * WINDOW + i] < (int64_t)sb_tokenizer_size(t));
        same += r > 0 &&
                memcmp(first, first + r * WINDOW, WINDOW * sizeof *first) == 0;
    }
    assert_int_equal(same, 0);
    assert_ok(sb_model_sample_tokens(model, t, N, WINDOW, 6, again));
    assert_true(memcmp(first, again, sizeof first) != 0);
    assert_status(sb_model_sample_tokens(model, t, 1, 0, 0, again), SB_BAD_ARG);
    sb_tokenizer_free(t);
    sb_model_free(model);
}

/* More plans would mean one for each token. */
static void test_tokens_share_their_plans_and_their_memory(void **state)
{
    sb_model *model = NULL;
    sb_kv_cache cache = {0};
    const sb_tensor *got = NULL;
    uint32_t id = 3;

    (void)state;
    assert_ok(sb_model_load(test_ctx(), FIXTURES "llama", &model));
    assert_ok(sb_kv_cache_create(model->graph, 30, 1, &cache));
    assert_ok(sb_kv_cache_take(&cache, &id, 1, &got));
    size_t workspace = sb_exec_workspace(cache.exec);
    /* Less than one of the four caches: they are written in place. */
    assert_true(workspace < sb_tensor_bytes(&cache.states[0].t));
    for (int i = 1; i < 30; i++)
        assert_ok(sb_kv_cache_take(&cache, &id, 1, &got));
    assert_int_equal(sb_exec_workspace(cache.exec), workspace);
    assert_status(sb_kv_cache_take(&cache, &id, 1, &got), SB_BAD_ARG);
    assert_error_has("1 tokens after 30, want 1 to 30 in all");
    sb_kv_cache_rewind(&cache, 29);
    assert_ok(sb_kv_cache_take(&cache, &id, 1, &got));
    sb_kv_cache_free(&cache);
    sb_model_free(model);
}

/* Keys and values of many texts that are larger than the memory there may be
 * lie in files, and the tokens stay the same. */
static void test_caches_beyond_the_memory(void **state)
{
    enum { TEXTS = 8, LIMIT = 16 << 20 };
    const int64_t ids[TEXTS] = {3, 1, 4, 1, 5, 9, 2, 6};
    const sb_tensor *want = NULL, *got = NULL;
    sb_kv_cache small = {0}, large = {0};
    sb_model *model = NULL;
    size_t bytes = 0;

    (void)state;
    assert_ok(sb_model_load(test_ctx(), FIXTURES "llama", &model));
    assert_ok(sb_kv_cache_create(model->graph, 20000, TEXTS, &small));
    for (size_t i = 0; i < small.n_states; i++)
        bytes += sb_tensor_bytes(&small.states[i].t);
    assert_true(bytes > LIMIT);
    assert_ok(sb_kv_cache_step(&small, ids, &want));
    size_t n = (size_t)sb_tensor_count(want) * sizeof(float);
    float *kept = malloc(n);
    assert_non_null(kept);
    memcpy(kept, want->data, n);
    sb_kv_cache_free(&small);
    sb_ctx_set_max_memory(test_ctx(), sb_ctx_memory(test_ctx()) + LIMIT);
    assert_ok(sb_kv_cache_create(model->graph, 20000, TEXTS, &large));
    assert_ok(sb_kv_cache_step(&large, ids, &got));
    assert_memory_equal(got->data, kept, n);
    sb_kv_cache_free(&large);
    sb_ctx_set_max_memory(test_ctx(), 0);
    sb_model_free(model);
    free(kept);
}

/* Is the cache of the model in files if there may be `limit` bytes of memory?
 * *bytes is how large it is. */
static bool cache_in_files(const sb_model *model, size_t limit, size_t *bytes)
{
    sb_kv_cache cache = {0};
    size_t mapped = 0;

    sb_ctx_set_max_memory(test_ctx(), limit);
    assert_ok(sb_kv_cache_create(model->graph, 20000, 1, &cache));
    *bytes = 0;
    for (size_t i = 0; i < cache.n_states; i++) {
        const sb_tensor *t = &cache.states[i].t;

        *bytes += sb_tensor_bytes(t);
        mapped += t->buf && sb_buf_is_mapped(t->buf);
    }
    assert_true(mapped == 0 || mapped == cache.n_states);
    sb_kv_cache_free(&cache);
    sb_ctx_set_max_memory(test_ctx(), 0);
    return mapped > 0;
}

/* One that takes more than a quarter of the memory that was chosen is in files;
 * without a choice none is. */
static void test_caches_above_a_quarter(void **state)
{
    sb_model *model = NULL;
    size_t bytes = 0, again = 0;

    (void)state;
    assert_ok(sb_model_load(test_ctx(), FIXTURES "llama", &model));
    assert_false(cache_in_files(model, 0, &bytes));
    assert_true(bytes > 1 << 20);
    assert_false(cache_in_files(model, 4 * bytes + 4096, &again));
    assert_int_equal(again, bytes);
    assert_true(cache_in_files(model, 4 * bytes - 4096, &again));
    sb_model_free(model);
}

static void test_other_models_cannot_generate(void **state)
{
    sb_model *model = NULL;
    sb_kv_cache cache = {0};

    (void)state;
    assert_ok(sb_model_parse(test_ctx(),
                             "graph g(x: f32[2]) -> (y: f32[2]) {\n"
                             "  y = Relu(x)\n}\n",
                             &model));
    assert_status(sb_kv_cache_create(model->graph, 8, 1, &cache),
                  SB_UNSUPPORTED);
    assert_error_has("one input 'input_ids' and one output 'logits'");
    sb_kv_cache_free(&cache);
    sb_model_free(model);
}

/* ---- sampling ----------------------------------------------------------- */

static void count_picks(double temperature, size_t top_k, double top_p,
                        size_t counts[4])
{
    /* Probabilities 0.1, 0.6, 0.3 and none. */
    const float logits[4] = {logf(0.1f), logf(0.6f), logf(0.3f), -INFINITY};
    sb_sampler s = {.temperature = temperature, .top_k = top_k, .top_p = top_p};

    memset(counts, 0, 4 * sizeof *counts);
    sb_rng_init(&s.rng, 5);
    for (int i = 0; i < 10000; i++) {
        uint32_t id = 9;

        assert_ok(sb_sampler_pick(test_ctx(), &s, logits, 4, &id));
        counts[id]++;
    }
    sb_sampler_free(test_ctx(), &s);
}

static void test_tokens_are_picked_as_often_as_they_are_likely(void **state)
{
    size_t n[4];

    (void)state;
    count_picks(0, 0, 1, n);
    assert_int_equal(n[1], 10000);
    count_picks(1, 0, 1, n);
    assert_close("0.1", (double)n[0] / 1e4, 0.1, 0.015);
    assert_close("0.6", (double)n[1] / 1e4, 0.6, 0.02);
    assert_int_equal(n[3], 0);
    count_picks(1, 2, 1, n); /* 2/3 and 1/3 */
    assert_int_equal(n[0], 0);
    assert_close("2/3", (double)n[1] / 1e4, 2.0 / 3, 0.02);
    count_picks(1, 0, 0.61, n); /* 0.6 is not enough */
    assert_int_equal(n[0], 0);
    assert_true(n[2] > 2000);
    count_picks(1, 0, 0.5, n);
    assert_int_equal(n[1], 10000);
    count_picks(0.5, 0, 1, n); /* squares: 1, 36, 9 of 46 */
    assert_close("36/46", (double)n[1] / 1e4, 36.0 / 46, 0.02);
}

static void test_logits_of_which_none_is_a_number(void **state)
{
    float logits[3] = {NAN, NAN, NAN};
    sb_sampler s = {.temperature = 0, .top_p = 1};
    uint32_t id = 9;

    (void)state;
    assert_status(sb_sampler_pick(test_ctx(), &s, logits, 3, &id),
                  SB_BAD_MODEL);
    assert_error_has("none of 3 logits is a number");
    logits[1] = -5;
    assert_ok(sb_sampler_pick(test_ctx(), &s, logits, 3, &id));
    assert_int_equal(id, 1);
}

/* ---- text --------------------------------------------------------------- */

typedef struct heard {
    char text[4096];
    size_t n, most;
} heard;

static int hear(void *user, const char *text, size_t len)
{
    heard *h = user;

    assert_true(h->n + len < sizeof h->text);
    memcpy(h->text + h->n, text, len);
    h->n += len;
    h->text[h->n] = '\0';
    return h->most && h->n >= h->most;
}

static void keep_line(void *user, sb_log_level level, const char *text)
{
    (void)level;
    (void)snprintf(user, 256, "%s", text);
}

/* 465 tokens for a model of 64. */
static void test_tokenizer_of_another_model(void **state)
{
    sb_model *model = NULL;
    sb_tokenizer *t = NULL;
    sb_generator *g = NULL;
    char line[256] = "";

    (void)state;
    assert_ok(sb_model_load(test_ctx(), FIXTURES "tiny.gguf", &model));
    sb_ctx_set_log(test_ctx(), keep_line, line);
    assert_ok(sb_tokenizer_open(test_ctx(), FIXTURES "tiny.gguf", &t));
    assert_ok(sb_generator_create(model, t, 0, &g));
    assert_string_equal(line, "");
    sb_generator_free(g);
    sb_tokenizer_free(t);
    assert_ok(sb_tokenizer_open(test_ctx(), FIXTURES "tok_llama.json", &t));
    assert_ok(sb_generator_create(model, t, 0, &g));
    sb_ctx_set_log(test_ctx(), NULL, NULL);
    assert_non_null(strstr(line, "is it the model's own tokenizer?"));
    sb_generator_free(g);
    sb_tokenizer_free(t);
    sb_model_free(model);
}

static void test_text_streams_and_stops(void **state)
{
    sb_model *model = NULL;
    sb_tokenizer *t = NULL;
    sb_generator *g = NULL;
    const sb_generation *r = NULL;
    sb_generate_options opt = SB_GENERATE_OPTIONS_INIT;
    heard h = {.n = 0};

    (void)state;
    assert_ok(sb_model_load(test_ctx(), FIXTURES "tiny.gguf", &model));
    assert_ok(sb_tokenizer_open(test_ctx(), FIXTURES "tiny.gguf", &t));
    assert_ok(sb_generator_create(model, t, 0, &g));
    opt.max_tokens = 20;
    opt.ignore_end = 1;
    opt.temperature = 1;
    opt.seed = 11;
    opt.text = hear;
    opt.text_user = &h;
    assert_ok(sb_generator_run(g, "ab", &opt, &r));
    assert_int_equal(r->tokens, 20);
    assert_string_equal(r->end, "tokens");
    assert_string_equal(r->text, h.text);
    assert_true(r->len > 20);
    char *before = strdup(r->text), stop[4] = "";
    memcpy(stop, before + 15, 3);
    size_t first = (size_t)(strstr(before, stop) - before);
    h.n = 0;
    opt.stop = (const char *const[]){stop};
    opt.n_stop = 1;
    assert_ok(sb_generator_run(g, "ab", &opt, &r));
    assert_string_equal(r->end, "stop");
    assert_int_equal(r->len, first);
    assert_memory_equal(r->text, before, first);
    assert_string_equal(r->text, h.text);
    opt.n_stop = 0;
    h = (heard){.most = 5};
    assert_ok(sb_generator_run(g, "ab", &opt, &r));
    assert_string_equal(r->end, "caller");
    opt.text = NULL;
    opt.max_tokens = 1000;
    assert_ok(sb_generator_run(g, "ab", &opt, &r));
    assert_string_equal(r->end, "context");
    opt.top_p = 2;
    assert_status(sb_generator_run(g, "ab", &opt, &r), SB_BAD_ARG);
    assert_error_has("top_p 2");
    assert_status(sb_generator_run(g, "\xff", NULL, &r), SB_BAD_DATA);
    assert_error_has("not UTF-8 at byte 0");
    free(before);
    sb_generator_free(g);
    sb_tokenizer_free(t);
    sb_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_give_what_the_whole_text_gives),
        cmocka_unit_test(test_texts_reach_the_last_position),
        cmocka_unit_test(test_texts_go_on_together),
        cmocka_unit_test(test_texts_of_its_own),
        cmocka_unit_test(test_tokens_share_their_plans_and_their_memory),
        cmocka_unit_test(test_caches_beyond_the_memory),
        cmocka_unit_test(test_caches_above_a_quarter),
        cmocka_unit_test(test_other_models_cannot_generate),
        cmocka_unit_test(test_tokens_are_picked_as_often_as_they_are_likely),
        cmocka_unit_test(test_logits_of_which_none_is_a_number),
        cmocka_unit_test(test_tokenizer_of_another_model),
        cmocka_unit_test(test_text_streams_and_stops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
