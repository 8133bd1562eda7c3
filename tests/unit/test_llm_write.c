/* Language models written and read again: logits stay those that transformers
 * computed with the model that was read first, in every format that holds its
 * weights; and what a format cannot hold is refused by name.
 *
 * Expected values and models: tests/fixtures/llm/make. */
#define _DEFAULT_SOURCE
#include "sbtest.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparsebit/sparsebit.h>

#include "api/model.h"
#include "llm/gguf.h"
#include "llm/llm_checkpoint.h"
#include "tensor/npy.h"

#define FIXTURES "tests/fixtures/llm/"

static char folder[] = "/tmp/sparsebit-llm-XXXXXX";
static char path[512];
static uint64_t shard_bytes = 20000;
static int gptq_version; /* 0: by what the weights need */

static const char *in_folder(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Bytes of a file in the folder; it must be there. */
static char *read_text(const char *name, char *text, size_t size)
{
    FILE *f = fopen(in_folder(name), "r");

    assert_non_null(f);
    text[fread(text, 1, size - 1, f)] = '\0';
    assert_int_equal(fclose(f), 0);
    return text;
}

static double distance(const char *model_path, const char *fixture)
{
    sb_tensor *ids = NULL, *want = NULL;
    sb_model *model = NULL;
    sb_session *session = NULL;
    const sb_tensor *got = NULL;
    char logits[512];
    double worst = 0;

    assert_ok(sb_model_load(test_ctx(), model_path, &model));
    assert_ok(sb_tensor_load(test_ctx(), FIXTURES "ids.npy", &ids));
    (void)snprintf(logits, sizeof logits,
                   strstr(fixture, ".gguf") ? FIXTURES "%s.logits.npy"
                                            : FIXTURES "%s/logits.npy",
                   fixture);
    assert_ok(sb_tensor_load(test_ctx(), logits, &want));
    assert_ok(sb_session_create(model, NULL, &session));
    assert_ok(
        sb_session_run(session, (const sb_tensor *const[]){ids}, 1, &got, 1));
    assert_int_equal(sb_tensor_count(got), sb_tensor_count(want));
    for (int64_t i = 0; i < sb_tensor_count(want); i++)
        worst = fmax(worst, fabs(sb_tensor_get_f64(got, i) -
                                 sb_tensor_get_f64(want, i)));
    sb_session_free(session);
    sb_model_free(model);
    sb_tensor_free(ids);
    sb_tensor_free(want);
    return worst;
}

static sb_status convert(const char *from, const char *to,
                         sb_language_format format, const char *float_as)
{
    sb_language_options opt = SB_LANGUAGE_OPTIONS_INIT;
    sb_model *model = NULL;

    assert_ok(sb_model_load(test_ctx(), from, &model));
    opt.format = format;
    opt.tokenizer = FIXTURES "tiny.gguf"; /* any that has as many tokens */
    opt.float_as = float_as;
    opt.shard_bytes = shard_bytes;
    opt.gptq_version = gptq_version;
    sb_status status = sb_model_save_language(model, to, &opt);
    sb_model_free(model);
    return status;
}

static void assert_refused(sb_status status, sb_status want, const char *part)
{
    assert_status(status, want);
    assert_error_has(part);
}

static void assert_same(const char *model_path, const char *fixture)
{
    double worst = distance(model_path, fixture);

    if (!(worst < 3e-5))
        fail_msg("%s of %s: logits differ by %g", model_path, fixture, worst);
}

static void test_packed_folders_are_read(void **state)
{
    static const char *const names[] = {"gptq", "gptq_order", "gptq3", "awq"};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        char from[256];

        (void)snprintf(from, sizeof from, FIXTURES "%s", names[i]);
        assert_same(from, names[i]);
    }
}

/* Columns in the order of g_idx, multiplied out and in the same order again. */
static void test_order_of_columns(void **state)
{
    char made[300];

    (void)state;
    strcpy(made, in_folder("ordered_floats"));
    assert_ok(convert(FIXTURES "gptq_order", made, SB_LANGUAGE_FLOAT, NULL));
    assert_same(made, "gptq_order");
    strcpy(made, in_folder("ordered"));
    assert_ok(convert(FIXTURES "gptq_order", made, SB_LANGUAGE_GPTQ, NULL));
    assert_same(made, "gptq_order");
}

/* From each architecture to GGUF, to a folder, and from one to the other. */
static void test_floats_there_and_back(void **state)
{
    static const char *const names[] = {"llama", "mistral", "qwen2",
                                        "qwen3", "gemma3",  "gpt2"};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        bool gpt2 = strcmp(names[i], "gpt2") == 0;
        char from[256], gguf[300], hf[300], name[32];

        (void)snprintf(from, sizeof from, FIXTURES "%s", names[i]);
        (void)snprintf(name, sizeof name, "%s.gguf", names[i]);
        strcpy(gguf, in_folder(name));
        strcpy(hf, in_folder(names[i]));
        if (strcmp(names[i], "gemma3") == 0) {
            assert_refused(convert(from, gguf, SB_LANGUAGE_GGUF, NULL),
                           SB_UNSUPPORTED, "attention is scaled");
            assert_ok(convert(from, hf, SB_LANGUAGE_FLOAT, NULL));
            assert_same(hf, names[i]);
            continue;
        }
        assert_ok(convert(from, gguf, SB_LANGUAGE_GGUF, NULL));
        /* llama.cpp has no window in this architecture. */
        if (strcmp(names[i], "mistral") != 0)
            assert_same(gguf, names[i]);
        if (gpt2) {
            assert_refused(convert(from, hf, SB_LANGUAGE_FLOAT, NULL),
                           SB_UNSUPPORTED, "gpt2");
            continue;
        }
        assert_ok(convert(from, hf, SB_LANGUAGE_FLOAT, NULL));
        assert_same(hf, names[i]);
        (void)snprintf(hf, sizeof hf, "%s/%s.back", folder, names[i]);
        if (i == 0) { /* frequencies that only GGUF can say */
            assert_refused(convert(gguf, hf, SB_LANGUAGE_FLOAT, NULL),
                           SB_UNSUPPORTED, "tensor of a GGUF file");
            continue;
        }
        assert_ok(convert(gguf, hf, SB_LANGUAGE_FLOAT, "f32"));
        if (strcmp(names[i], "mistral") != 0)
            assert_same(hf, names[i]);
    }
}

/* The first layer sees 3 positions, the second all. */
static void assert_windows(const char *model_path)
{
    sb_model *model = NULL;
    int64_t windows[2];
    size_t n = 0, layer = 0;

    assert_ok(sb_model_load(test_ctx(), model_path, &model));
    const sb_graph *g = model->graph;
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (node->dead || !sb_node_is(node, "Attention"))
            continue;
        assert_int_equal(sscanf(node->name, "model.layers.%zu", &layer), 1);
        assert_true(layer < SB_COUNT(windows));
        windows[layer] = sb_node_int(node, "left_window_size", -1);
        n++;
    }
    assert_int_equal(n, 2);
    assert_int_equal(windows[0], 2); /* behind the token itself */
    assert_int_equal(windows[1], -1);
    sb_model_free(model);
}

static void keep_line(void *user, sb_log_level level, const char *text)
{
    (void)level;
    (void)snprintf(user, 256, "%s", text);
}

static void test_windows_of_some_layers(void **state)
{
    static const char config[] =
        "{\"model_type\":\"qwen2\",\"architectures\":[\"Qwen2ForCausalLM\"],"
        "\"hidden_size\":32,\"intermediate_size\":48,\"vocab_size\":64,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"sliding_window\":3,"
        "\"use_sliding_window\":true,\"tie_word_embeddings\":false,"
        "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}";
    char hf[300], gguf[300], back[300], line[256] = "";

    (void)state;
    strcpy(hf, in_folder("windows"));
    strcpy(gguf, in_folder("windows.gguf"));
    strcpy(back, in_folder("windows.back"));
    assert_ok(convert(FIXTURES "qwen2", hf, SB_LANGUAGE_FLOAT, NULL));
    FILE *f = fopen(in_folder("windows/config.json"), "w");
    assert_non_null(f);
    assert_true(fputs(config, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_windows(hf);
    sb_ctx_set_log(test_ctx(), keep_line, line);
    assert_ok(convert(hf, gguf, SB_LANGUAGE_GGUF, NULL));
    sb_ctx_set_log(test_ctx(), NULL, NULL);
    assert_non_null(strstr(line, "llama.cpp does not know the window"));
    assert_windows(gguf);
    assert_ok(convert(gguf, back, SB_LANGUAGE_FLOAT, NULL));
    assert_windows(back);
    /* In an ONNX file of opset 23 it is a mask. */
    sb_model *model = NULL;
    strcpy(back, in_folder("windows.onnx"));
    assert_ok(sb_model_load(test_ctx(), hf, &model));
    assert_ok(sb_model_save(model, back));
    sb_model_free(model);
    assert_windows(back);
}

/* Its language model is the whole of what is written: transformers 5.23 would
 * not find the weights of a Gemma3ForConditionalGeneration in it. */
static void test_part_of_a_network_that_sees(void **state)
{
    char text[8192], whole[8400], from[300];

    (void)state;
    strcpy(from, in_folder("sees"));
    assert_ok(convert(FIXTURES "gemma3", from, SB_LANGUAGE_FLOAT, NULL));
    (void)snprintf(whole, sizeof whole,
                   "{\"model_type\":\"gemma3\",\"architectures\":["
                   "\"Gemma3ForConditionalGeneration\"],\"text_config\":%s,"
                   "\"vision_config\":{}}",
                   read_text("sees/config.json", text, sizeof text));
    FILE *f = fopen(in_folder("sees/config.json"), "w");
    assert_non_null(f);
    assert_true(fputs(whole, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_ok(convert(from, in_folder("alone"), SB_LANGUAGE_FLOAT, NULL));
    assert_same(path, "gemma3");
    (void)read_text("alone/config.json", text, sizeof text);
    assert_non_null(strstr(text, "[\"Gemma3ForCausalLM\"]"));
    assert_non_null(strstr(text, "\"model_type\": \"gemma3_text\""));
    assert_null(strstr(text, "_config"));
}

static void test_blocks_keep_their_values(void **state)
{
    (void)state;
    assert_ok(convert(FIXTURES "tiny.gguf", in_folder("tiny.gguf"),
                      SB_LANGUAGE_GGUF, NULL));
    assert_same(path, "tiny.gguf");
    assert_ok(convert(FIXTURES "tiny.gguf", in_folder("tiny"),
                      SB_LANGUAGE_FLOAT, "f32"));
    assert_same(path, "tiny.gguf");
    assert_ok(
        convert(FIXTURES "gptq", in_folder("gptq"), SB_LANGUAGE_GPTQ, NULL));
    assert_same(path, "gptq");
    assert_ok(
        convert(FIXTURES "gptq3", in_folder("gptq3"), SB_LANGUAGE_GPTQ, NULL));
    assert_same(path, "gptq3");
    /* Offsets that are no float16: five bits around zero hold them. */
    assert_ok(convert(FIXTURES "gptq", in_folder("gptq.gguf"), SB_LANGUAGE_GGUF,
                      NULL));
    assert_same(path, "gptq");
    assert_ok(
        convert(FIXTURES "awq", in_folder("awq"), SB_LANGUAGE_GPTQ, NULL));
    assert_same(path, "awq");
}

static void test_what_is_not_held_is_refused(void **state)
{
    (void)state;
    /* Q4_1 has offsets that are no multiples of its scales. */
    assert_refused(
        convert(FIXTURES "tiny.gguf", in_folder("no"), SB_LANGUAGE_GPTQ, NULL),
        SB_UNSUPPORTED, "multiples of 32");
    assert_int_not_equal(access(path, F_OK), 0);
    assert_refused(convert(FIXTURES "gptq_order", in_folder("no.gguf"),
                           SB_LANGUAGE_GGUF, NULL),
                   SB_UNSUPPORTED, "g_idx");
    assert_refused(
        convert(FIXTURES "llama", in_folder("no.gguf"), SB_LANGUAGE_GGUF, "q9"),
        SB_BAD_ARG, "q9");
    assert_refused(
        convert(FIXTURES "llama", in_folder("no"), SB_LANGUAGE_GPTQ, NULL),
        SB_BAD_MODEL, "no weight is quantized");
    assert_refused(convert(FIXTURES "llama", in_folder("no.gguf"),
                           SB_LANGUAGE_GGUF, "i32"),
                   SB_BAD_ARG, "want f32, f16, bf16, or blocks");
    assert_refused(
        convert(FIXTURES "llama", in_folder("no"), SB_LANGUAGE_FLOAT, "i32"),
        SB_BAD_ARG, "want f32, f16 or bf16");
}

/* The blocks of gguf-py, taken apart and put together. */
static void test_blocks_are_those_of_gguf_py(void **state)
{
    static const char *const names[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"};
    sb_gguf g = {0};
    sb_checkpoint c;

    (void)state;
    sb_checkpoint_init(&c, test_ctx(), "blocks");
    assert_ok(sb_gguf_open(&g, test_ctx(), FIXTURES "blocks.gguf"));
    assert_ok(sb_gguf_weights(&g, &c));
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        const sb_weight *w = sb_checkpoint_find(&c, names[i]);
        const uint8_t *at = sb_weight_data(w);

        for (size_t k = 0; k < w->bytes; k += w->format->bytes) {
            uint8_t back[64];
            sb_block b;

            w->format->unpack(at + k, &b);
            w->format->pack(&b, back);
            assert_memory_equal(back, at + k, w->format->bytes);
        }
    }
    sb_gguf_free(&g);
    sb_checkpoint_free(&c);
}

static void cut_packing(const char *name)
{
    char text[8192];
    char *at =
        strstr(read_text(name, text, sizeof text), "\"quantization_config\"");
    FILE *f = fopen(in_folder(name), "w");

    assert_true(f && at);
    while (*--at != ',')
        ;
    assert_true(fwrite(text, 1, (size_t)(at - text), f) > 0);
    assert_int_equal(fputs("}\n", f) < 0 || fclose(f) != 0, 0);
}

/* Who wrote no version wrote the first one; quantize_config.json may say it. */
static void test_packing_that_config_does_not_say(void **state)
{
    char text[8192];

    (void)state;
    gptq_version = 1;
    assert_ok(
        convert(FIXTURES "gptq", in_folder("old"), SB_LANGUAGE_GPTQ, NULL));
    gptq_version = 0;
    assert_non_null(strstr(
        read_text("old/quantize_config.json", text, sizeof text), "\"gptq\""));
    cut_packing("old/config.json");
    assert_same(in_folder("old"), "gptq");
    assert_int_equal(unlink(in_folder("old/quantize_config.json")), 0);
    assert_same(in_folder("old"), "gptq");
    assert_ok(
        convert(FIXTURES "gptq3", in_folder("new"), SB_LANGUAGE_GPTQ, NULL));
    cut_packing("new/config.json");
    assert_same(in_folder("new"), "gptq3"); /* of the second version */
}

static bool is_there(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

static int count_shards(const char *name)
{
    DIR *d = opendir(in_folder(name));
    struct dirent *entry;
    int n = 0;

    assert_non_null(d);
    while ((entry = readdir(d)))
        n += strncmp(entry->d_name, "model-0", 7) == 0;
    assert_int_equal(closedir(d), 0);
    return n;
}

static void test_no_files_of_earlier_models(void **state)
{
    (void)state;
    assert_ok(
        convert(FIXTURES "gptq", in_folder("twice"), SB_LANGUAGE_GPTQ, NULL));
    assert_true(is_there("twice/model.safetensors.index.json"));
    assert_true(is_there("twice/quantize_config.json"));
    assert_true(count_shards("twice") > 1);
    FILE *other = fopen(in_folder("twice/model-1-of-2.safetensors"), "w");
    assert_non_null(other);
    assert_int_equal(fclose(other), 0);
    shard_bytes = 0;
    assert_ok(
        convert(FIXTURES "qwen2", in_folder("twice"), SB_LANGUAGE_FLOAT, NULL));
    shard_bytes = 20000;
    assert_false(is_there("twice/model.safetensors.index.json"));
    assert_false(is_there("twice/quantize_config.json"));
    assert_true(is_there("twice/model.safetensors"));
    assert_int_equal(count_shards("twice"), 0);
    assert_true(is_there("twice/model-1-of-2.safetensors"));
    assert_same(in_folder("twice"), "qwen2");
    assert_ok(
        convert(FIXTURES "gptq", in_folder("twice"), SB_LANGUAGE_GPTQ, NULL));
    assert_false(is_there("twice/model.safetensors"));
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[600];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_folders_are_read),
        cmocka_unit_test(test_order_of_columns),
        cmocka_unit_test(test_floats_there_and_back),
        cmocka_unit_test(test_windows_of_some_layers),
        cmocka_unit_test(test_part_of_a_network_that_sees),
        cmocka_unit_test(test_blocks_keep_their_values),
        cmocka_unit_test(test_what_is_not_held_is_refused),
        cmocka_unit_test(test_blocks_are_those_of_gguf_py),
        cmocka_unit_test(test_packing_that_config_does_not_say),
        cmocka_unit_test(test_no_files_of_earlier_models),
    };
    return cmocka_run_group_tests_name("llm_write", tests, set_up, tear_down);
}
