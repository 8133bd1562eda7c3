/* Language models from files: logits as Hugging Face's transformers compute
 * them, blocks as gguf-py reads them, and headers that lie.
 *
 * Expected values and the small random models come from
 * tests/fixtures/llm/make. */
#define _POSIX_C_SOURCE 200809L
#include "ggufbytes.h"
#include "sbtest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sparsebit/sparsebit.h>

#include "base/alloc.h"
#include "llm/arch.h"
#include "llm/gguf.h"
#include "llm/llama2c.h"
#include "tensor/npy.h"

#define FIXTURES "tests/fixtures/llm/"

/* ---- logits ------------------------------------------------------------- */

static void assert_logits(const char *name)
{
    char path[256];
    sb_tensor *ids = NULL, *want = NULL;
    sb_model *model = NULL;
    sb_session *session = NULL;
    const sb_tensor *got = NULL;
    double worst = 0;

    (void)snprintf(path, sizeof path, FIXTURES "%s", name);
    assert_ok(sb_model_load(test_ctx(), path, &model));
    assert_ok(sb_tensor_load(test_ctx(), FIXTURES "ids.npy", &ids));
    (void)snprintf(path, sizeof path,
                   strstr(name, ".gguf") ? FIXTURES "%s.logits.npy"
                                         : FIXTURES "%s/logits.npy",
                   name);
    assert_ok(sb_tensor_load(test_ctx(), path, &want));
    assert_ok(sb_session_create(model, NULL, &session));
    assert_ok(
        sb_session_run(session, (const sb_tensor *const[]){ids}, 1, &got, 1));
    assert_int_equal(sb_tensor_count(got), sb_tensor_count(want));
    for (int64_t i = 0; i < sb_tensor_count(want); i++)
        worst = fmax(worst, fabs(sb_tensor_get_f64(got, i) -
                                 sb_tensor_get_f64(want, i)));
    if (!(worst < 2e-5))
        fail_msg("%s: logits differ by %g", name, worst);
    sb_session_free(session);
    sb_model_free(model);
    sb_tensor_free(ids);
    sb_tensor_free(want);
}

static void test_logits_are_those_of_transformers(void **state)
{
    static const char *const names[] = {
        "llama", "mistral",       "qwen2",       "qwen3",    "gemma3",
        "gpt2",  "gemma3_window", "gpt2_untied", "tiny.gguf"};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(names); i++)
        assert_logits(names[i]);
}

/* ---- GGUF --------------------------------------------------------------- */

static void assert_block(const sb_checkpoint *c, const char *name)
{
    char path[256];
    const sb_weight *w = sb_checkpoint_find(c, name);
    sb_tensor *want = NULL;
    float got[3 * 512], back[3 * 512];

    assert_non_null(w);
    (void)snprintf(path, sizeof path, FIXTURES "blocks.npz:%s", name);
    assert_ok(sb_tensor_load(test_ctx(), path, &want));
    assert_int_equal(sb_weight_count(w), SB_COUNT(got));
    sb_weight_to_f32(w->format, sb_weight_data(w), got, SB_COUNT(got));
    assert_all_close(name, got, want->data, SB_COUNT(got), 1e-6);
    if (w->format->unpack) {
        static uint8_t codes[3 * 512];
        static float scales[3 * 512 / 16], zeros[3 * 512 / 16];
        const sb_weight_format *f = w->format;

        sb_weight_to_nbits(f, sb_weight_data(w), SB_COUNT(got), codes, scales,
                           zeros);
        for (size_t i = 0; i < SB_COUNT(got); i++) {
            int code = 0;
            for (size_t b = 0, at = i * f->bits; b < f->bits; b++, at++)
                code |= (codes[at / 8] >> (at % 8) & 1) << b;
            size_t g = i / f->group;
            float zero = f->symmetric ? (float)(1 << (f->bits - 1)) : zeros[g];
            back[i] = ((float)code - zero) * scales[g];
        }
        assert_all_close(name, back, want->data, SB_COUNT(got), 2e-5);
    }
    sb_tensor_free(want);
}

static void test_blocks_are_read_as_gguf_py_does(void **state)
{
    static const char *const names[] = {"F32",  "F16",  "BF16", "Q4_0", "Q4_1",
                                        "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K",
                                        "Q6_K", "Q2_K", "Q3_K"};
    sb_gguf g = {0};
    sb_checkpoint c;
    sb_gguf_text *words = NULL;
    double x = 0;

    (void)state;
    sb_checkpoint_init(&c, test_ctx(), "blocks.gguf");
    assert_ok(sb_gguf_open(&g, test_ctx(), FIXTURES "blocks.gguf"));
    assert_ok(sb_gguf_weights(&g, &c));
    for (size_t i = 0; i < SB_COUNT(names); i++)
        assert_block(&c, names[i]);
    assert_true(sb_gguf_number(&g, "test.negative", &x));
    assert_close("int32", x, -7, 0);
    assert_true(sb_gguf_number(&g, "test.float", &x));
    assert_close("float", x, 0.25, 0);
    const sb_gguf_value *v = sb_gguf_find(&g, "test.words");
    assert_ok(sb_gguf_strings(&g, v, &words));
    assert_int_equal(v->n, 3);
    assert_int_equal(words[1].len, 0);
    assert_memory_equal(words[2].data,
                        "Gr\xc3\xb6\xc3\x9f"
                        "e",
                        7);
    sb_checkpoint_free(&c);
    sb_gguf_free(&g);
}

/* A group of equal elements in a format with offsets has the scale 0. */
static void test_blocks_without_scale_keep_their_offset(void **state)
{
    static const uint8_t block[20] = {0, 0, 0, 0x3c, 0x21, 0x43}; /* m = 1 */
    const sb_weight_format *f = sb_weight_format_gguf(3);
    uint8_t codes[16];
    float scale, zero;

    (void)state;
    sb_weight_to_nbits(f, block, 32, codes, &scale, &zero);
    for (int i = 0; i < 32; i++) {
        int code = codes[i / 2] >> (i % 2 * 4) & 15;
        assert_close("element", ((float)code - zero) * scale, 1, 0);
    }
}

/* ---- headers that lie --------------------------------------------------- */

static sb_status load_safetensors(const char *header, size_t data)
{
    char bytes[1024] = {0};
    size_t n = strlen(header);
    sb_checkpoint c;

    bytes[0] = (char)n;
    bytes[1] = (char)(n >> 8);
    memcpy(bytes + 8, header, n);
    sb_checkpoint_init(&c, test_ctx(), "x");
    sb_status status = sb_safetensors_load(&c, write_file(bytes, 8 + n + data));
    sb_checkpoint_free(&c);
    (void)remove(tmp_path);
    return status;
}

static void test_safetensors_headers_that_lie_are_refused(void **state)
{
    static const struct {
        const char *header, *want;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,12]}}",
         "two data_offsets inside the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
         "has 4 bytes, want 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
         "two data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1e300],\"data_offsets\":[0,8]}}",
         "a dimension is no whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9e15,9e15],"
         "\"data_offsets\":[0,8]}}",
         "ends beyond the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}",
         "a dimension is no whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,2],"
         "\"data_offsets\":[0,8]}}",
         "at most 4 numbers"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "has no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"a\":{}}",
         "a key that is given twice"},
        /* As the safetensors library refuses them. */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         "tensor 'b' begins at byte 4, want 8"},
        {"{\"b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[6,8]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "tensor 'b' begins at byte 6, want 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         "tensor 'a' begins at byte 4, want 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "tensors of 4 bytes, but 8 are there"},
        {"[1]", "the header is no object"},
        {"{", "the file ends"},
    };

    (void)state;
    assert_ok(load_safetensors("{\"__metadata__\":{\"format\":\"pt\"},\"a\":{"
                               "\"dtype\":\"F32\",\"shape\":[2],"
                               "\"data_offsets\":[0,8]}}",
                               8));
    assert_ok(load_safetensors(
        "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        8));
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        assert_status(load_safetensors(cases[i].header, 8), SB_BAD_DATA);
        assert_error_has(cases[i].want);
    }
    sb_checkpoint c;
    sb_checkpoint_init(&c, test_ctx(), "x");
    assert_status(
        sb_safetensors_load(&c, write_file("\xff\xff\xff\xff\0\0\0\0{}", 10)),
        SB_BAD_DATA);
    assert_error_has("a header of 4294967295 bytes in a file of 10");
    sb_checkpoint_free(&c);
    (void)remove(tmp_path);
}

static sb_status load_gguf(const gguf_bytes *b)
{
    sb_gguf g = {0};
    sb_checkpoint c;

    sb_checkpoint_init(&c, test_ctx(), "x");
    sb_status status = sb_gguf_open(&g, test_ctx(), write_file(b->data, b->n));
    if (status == SB_OK)
        status = sb_gguf_weights(&g, &c);
    sb_checkpoint_free(&c);
    sb_gguf_free(&g);
    (void)remove(tmp_path);
    return status;
}

static gguf_bytes gguf_tensor(uint64_t dim, uint32_t type, uint64_t at)
{
    gguf_bytes b = gguf_start(1, 0);

    put_text(&b, "w");
    put(&b, 1, 4);
    put(&b, dim, 8);
    put(&b, type, 4);
    put(&b, at, 8);
    put(&b, 0, (int)(64 - b.n));
    return b;
}

static void test_gguf_headers_that_lie_are_refused(void **state)
{
    gguf_bytes b = gguf_tensor(8, 0, 0);

    (void)state;
    b.n = 64 + 32;
    assert_ok(load_gguf(&b));
    b.n--;
    assert_status(load_gguf(&b), SB_BAD_DATA);
    assert_error_has("tensor 'w' ends beyond the file of 95 bytes");
    b = gguf_tensor(8, 0, UINT64_MAX - 4);
    assert_status(load_gguf(&b), SB_BAD_DATA);
    b = gguf_tensor(UINT64_MAX / 4 + 1, 0, 0);
    assert_status(load_gguf(&b), SB_BAD_DATA);
    b = gguf_tensor(33, 2, 0);
    assert_status(load_gguf(&b), SB_BAD_DATA);
    assert_error_has("rows of 33 elements, want a multiple of 32 for Q4_0");
    b = gguf_tensor(8, 99, 0);
    assert_status(load_gguf(&b), SB_UNSUPPORTED);
    assert_error_has("GGUF type 99; known are F32, F16");
    b = gguf_start(UINT64_MAX, 0);
    assert_status(load_gguf(&b), SB_BAD_DATA);
    assert_error_has("ends inside the list of tensors");
    b = gguf_start(0, UINT64_MAX);
    assert_status(load_gguf(&b), SB_BAD_DATA);
    assert_error_has("ends inside a key");
    b = gguf_start(0, 1);
    put_text(&b, "k");
    put(&b, 9, 4);
    put(&b, 8, 4);
    put(&b, UINT64_MAX, 8);
    assert_status(load_gguf(&b), SB_BAD_DATA);
    assert_error_has("ends inside k");
    b = gguf_start(0, 1);
    put_text(&b, "k");
    put(&b, 77, 4);
    put(&b, 0, 8);
    assert_status(load_gguf(&b), SB_BAD_DATA);
    assert_error_has("key 'k' has a value of type 77");
    b = gguf_start(0, 0);
    b.data[4] = 9;
    assert_status(load_gguf(&b), SB_UNSUPPORTED);
    assert_error_has("GGUF version 9, want 2 or 3");
}

/* ---- weights ------------------------------------------------------------- */

/* A network of hidden size 256 with these weights. */
static sb_status build_llama(const sb_checkpoint *c, const char *member,
                             sb_graph **g)
{
    sb_json_doc *doc = NULL;
    sb_llm_config config;
    char json[256];

    (void)snprintf(json, sizeof json,
                   "{\"model_type\":\"llama\",\"num_hidden_layers\":1,"
                   "\"hidden_size\":256,\"intermediate_size\":256,"
                   "\"vocab_size\":256,\"num_attention_heads\":4%s}",
                   member);
    assert_ok(
        sb_json_read(test_ctx(), "config.json", json, strlen(json), &doc));
    assert_ok(sb_llm_config_read_hf(&config, doc));
    sb_status status = sb_arch_build(test_ctx(), c, &config, NULL, g);
    sb_json_free(doc);
    return status;
}

/* The one that is wanted, and no other. */
static void test_weights_of_unknown_types_are_named(void **state)
{
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"model.embed_tokens.weight",
         ": tensor 'model.embed_tokens.weight' is F8_E4M3; known are F32, F16, "
         "BF16, I32"},
        {"language_model.model.embed_tokens.weight",
         ": tensor 'language_model.model.embed_tokens.weight' is F8_E4M3; "},
        {"other.weight", ": there is no tensor 'model.embed_tokens.weight'"},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char file[256] = {0};
        sb_checkpoint c;
        sb_graph *g = NULL;
        int n = snprintf(file + 8, sizeof file - 8,
                         "{\"%s\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],"
                         "\"data_offsets\":[0,2]}}",
                         cases[i].name);

        file[0] = (char)n;
        sb_checkpoint_init(&c, test_ctx(), "x");
        assert_ok(sb_safetensors_load(&c, write_file(file, (size_t)n + 10)));
        assert_status(build_llama(&c, "", &g), SB_BAD_DATA);
        assert_error_has(cases[i].want);
        if (strstr(cases[i].name, "other"))
            assert_null(strstr(sb_ctx_error(test_ctx()), "F8"));
        sb_checkpoint_free(&c);
        (void)remove(tmp_path);
    }
}

enum { SIDE = 256, MATRICES = 8, PACKED = SIDE * SIDE / 32 * 34 };

/* All that the network has, zeros in blocks; its last layer is the embedding.
 */
static void add_zeros(sb_checkpoint *c)
{
    static const char *const names[] = {
        "embed_tokens",
        "layers.0.self_attn.q_proj",
        "layers.0.self_attn.k_proj",
        "layers.0.self_attn.v_proj",
        "layers.0.self_attn.o_proj",
        "layers.0.mlp.gate_proj",
        "layers.0.mlp.up_proj",
        "layers.0.mlp.down_proj",
        "layers.0.input_layernorm",
        "layers.0.post_attention_layernorm",
        "norm",
    };
    const sb_weight_format *q8 = sb_weight_format_find("Q8_0");
    sb_buf *file = NULL;

    assert_ok(sb_buf_create(test_ctx(), PACKED, &file));
    assert_ok(sb_checkpoint_keep(c, file));
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        bool matrix = i < MATRICES;
        char name[64];
        sb_weight w = {.format =
                           matrix ? q8 : sb_weight_format_plain(SB_DTYPE_F32),
                       .rank = matrix ? 2 : 1,
                       .dims = {SIDE, matrix ? SIDE : 0},
                       .bytes = matrix ? PACKED : SIDE * sizeof(float),
                       .buf = file};

        (void)snprintf(name, sizeof name, "model.%s.weight", names[i]);
        assert_ok(sb_checkpoint_add(c, "x", name, &w));
    }
}

/* Eight weights of 64 KiB, each with scales of 8 KiB; norms and angles are half
 * a megabyte. */
static void test_packed_weights_take_little_more_than_their_size(void **state)
{
    sb_checkpoint c;
    sb_graph *g = NULL;

    (void)state;
    sb_checkpoint_init(&c, test_ctx(), "x");
    add_zeros(&c);
    size_t before = atomic_load(&test_ctx()->budget->used);
    assert_ok(build_llama(&c, "", &g));
    size_t used = atomic_load(&test_ctx()->budget->used) - before;
    assert_true(used >= MATRICES * (SIDE * SIDE + SIDE * 8 * sizeof(float)));
    assert_true(used < 2 << 20);
    sb_graph_free(g);
    sb_checkpoint_free(&c);
}

/* transformers would make up a last layer of random numbers. */
static void test_a_last_layer_that_is_said_to_be_there(void **state)
{
    sb_checkpoint c;
    sb_graph *g = NULL;

    (void)state;
    sb_checkpoint_init(&c, test_ctx(), "x");
    add_zeros(&c);
    assert_status(build_llama(&c, ",\"tie_word_embeddings\":false", &g),
                  SB_BAD_DATA);
    assert_error_has("there is no tensor 'lm_head.weight', and "
                     "tie_word_embeddings is false");
    sb_checkpoint_free(&c);
}

/* Heads of 64 have 32 frequencies. */
static void test_divisors_of_frequencies_are_checked(void **state)
{
    static const struct {
        int64_t n;
        const char *want;
    } cases[] = {{16, "'rope_freqs.weight' has 16 elements of F32, want 32"},
                 {32, "'rope_freqs.weight' has 0 at place 0, want numbers "}};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_checkpoint c;
        sb_graph *g = NULL;
        sb_weight w = {.format = sb_weight_format_plain(SB_DTYPE_F32),
                       .rank = 1,
                       .dims = {cases[i].n},
                       .bytes = (size_t)cases[i].n * sizeof(float)};

        sb_checkpoint_init(&c, test_ctx(), "x");
        add_zeros(&c);
        w.buf = c.files[0];
        assert_ok(sb_checkpoint_add(&c, "x", "rope_freqs.weight", &w));
        assert_status(build_llama(&c, "", &g), SB_BAD_DATA);
        assert_error_has(cases[i].want);
        sb_checkpoint_free(&c);
    }
}

static void test_missing_and_odd_weights_are_named(void **state)
{
    sb_model *model = NULL;

    (void)state;
    assert_status(sb_model_load(test_ctx(), FIXTURES "blocks.gguf", &model),
                  SB_BAD_DATA);
    assert_error_has("hidden elements");
    assert_status(sb_model_load(test_ctx(), "tests/fixtures", &model), SB_IO);
    assert_error_has("tests/fixtures: a folder without config.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_are_those_of_transformers),
        cmocka_unit_test(test_blocks_are_read_as_gguf_py_does),
        cmocka_unit_test(test_blocks_without_scale_keep_their_offset),
        cmocka_unit_test(test_safetensors_headers_that_lie_are_refused),
        cmocka_unit_test(test_gguf_headers_that_lie_are_refused),
        cmocka_unit_test(test_weights_of_unknown_types_are_named),
        cmocka_unit_test(test_packed_weights_take_little_more_than_their_size),
        cmocka_unit_test(test_a_last_layer_that_is_said_to_be_there),
        cmocka_unit_test(test_divisors_of_frequencies_are_checked),
        cmocka_unit_test(test_missing_and_odd_weights_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
