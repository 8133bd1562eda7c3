/* Language models that a file makes up: nodes whose sizes and types do not fit,
 * and numbers that no format holds, are refused when they are written. */
#define _DEFAULT_SOURCE
#include "sbtest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sparsebit/sparsebit.h>

#include "api/model.h"
#include "llm/write/llm_write.h"

#define FIXTURES "tests/fixtures/llm/"

static char folder[] = "/tmp/sparsebit-llm-XXXXXX";
static char path[512];

static const char *in_folder(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void assert_refused(sb_status status, sb_status want, const char *part)
{
    assert_status(status, want);
    assert_error_has(part);
}

/* ---- graphs that a file may hold, and that no kernel has seen ------------ */

enum { B = 1, SCALES, ZEROS };

static sb_node_id find_op(const sb_graph *g, const char *op)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (strcmp(sb_graph_node(g, id)->op, op) == 0)
            return id;
    fail_msg("there is no %s", op);
    return SB_NONE;
}

static sb_tensor *input_of(sb_graph *g, sb_node_id id, uint32_t input)
{
    return &sb_graph_value(g, sb_node_in(sb_graph_node(g, id), input))
                ->constant;
}

static sb_status save(sb_model *model, const char *to,
                      sb_language_format format, int round)
{
    sb_language_options opt = SB_LANGUAGE_OPTIONS_INIT;

    opt.format = format;
    opt.tokenizer = FIXTURES "tiny.gguf";
    opt.round = round;
    return sb_model_save_language(model, to, &opt);
}

static void fewer_zeros(sb_graph *g, sb_node_id id)
{
    input_of(g, id, ZEROS)->dims[0] /= 2;
}

static void zeros_of_int32(sb_graph *g, sb_node_id id)
{
    input_of(g, id, ZEROS)->dtype = SB_DTYPE_I32;
}

static void scales_of_int32(sb_graph *g, sb_node_id id)
{
    input_of(g, id, SCALES)->dtype = SB_DTYPE_I32;
}

static void no_bits(sb_graph *g, sb_node_id id)
{
    assert_ok(sb_graph_set_attr_int(g, id, "bits", 0));
}

static void many_columns(sb_graph *g, sb_node_id id)
{
    assert_ok(sb_graph_set_attr_int(g, id, "K", INT64_MAX));
}

static void more_rows(sb_graph *g, sb_node_id id)
{
    assert_ok(sb_graph_set_attr_int(g, id, "N", INT64_MAX / 2));
}

static void computed_zeros(sb_graph *g, sb_node_id id)
{
    assert_ok(
        sb_graph_set_input(g, id, ZEROS, sb_node_in(sb_graph_node(g, id), 0)));
}

/* Any value does: none is looked at. */
static void ordered(sb_graph *g, sb_node_id id)
{
    sb_node *node = sb_graph_node(g, id);
    static sb_value_id inputs[5];

    memcpy(inputs, node->inputs, 4 * sizeof *inputs);
    inputs[4] = inputs[3];
    node->inputs = inputs;
    node->n_in = 5;
}

static void no_scales(sb_graph *g, sb_node_id id)
{
    sb_graph_node(g, id)->n_in = 2;
}

static void infinite_scale(sb_graph *g, sb_node_id id)
{
    ((float *)input_of(g, id, SCALES)->data)[3] = 1e6F;
}

static void no_number_as_scale(sb_graph *g, sb_node_id id)
{
    ((float *)input_of(g, id, SCALES)->data)[3] = NAN;
}

static void tiny_scale(sb_graph *g, sb_node_id id)
{
    ((float *)input_of(g, id, SCALES)->data)[3] = 2e-8F;
}

static void test_codes_are_checked(void **state)
{
    static const struct {
        void (*change)(sb_graph *g, sb_node_id id);
        const char *part;
    } rows[] = {{fewer_zeros, "do not fit"},
                {zeros_of_int32, "do not fit"},
                {scales_of_int32, "do not fit"},
                {no_bits, "codes of 0 bits"},
                {many_columns, "do not fit"},
                {more_rows, "do not fit"},
                {computed_zeros, "no constants"},
                {no_scales, "no constants"},
                {ordered, "g_idx"},
                {infinite_scale, "beyond float16"},
                {no_number_as_scale, "beyond float16"},
                {tiny_scale, "would be 0 as float16"}};

    (void)state;
    for (size_t i = 0; i < 2 * SB_COUNT(rows); i++) {
        sb_model *model = NULL;
        bool gguf = i % 2;

        assert_ok(sb_model_load(test_ctx(), FIXTURES "gptq", &model));
        sb_node_id id = find_op(model->graph, "MatMulNBits");
        uint32_t n_in = sb_graph_node(model->graph, id)->n_in;
        rows[i / 2].change(model->graph, id);
        sb_status status = save(model, in_folder("no"),
                                gguf ? SB_LANGUAGE_GGUF : SB_LANGUAGE_GPTQ, 1);
        assert_int_not_equal(status, SB_OK);
        assert_error_has(rows[i / 2].part);
        assert_int_not_equal(access(path, F_OK), 0);
        sb_graph_node(model->graph, id)->n_in = n_in;
        sb_model_free(model);
    }
}

/* Its configuration says something else. */
static sb_status save_as(const char *fixture, const char *word,
                         const char *other)
{
    char config[4096], from[256];
    sb_model *model = NULL;

    (void)snprintf(from, sizeof from, FIXTURES "%s", fixture);
    assert_ok(sb_model_load(test_ctx(), from, &model));
    const char *text = sb_graph_prop(model->graph, SB_PROP_CONFIG);
    const char *at = strstr(text, word);
    assert_non_null(at);
    (void)snprintf(config, sizeof config, "%.*s%s%s", (int)(at - text), text,
                   other, at + strlen(word));
    const sb_prop props[] = {
        {SB_PROP_CONFIG, config},
        {SB_PROP_ROTARY, sb_graph_prop(model->graph, SB_PROP_ROTARY)}};
    model->graph->model_props = props;
    model->graph->n_model_props = 2;
    sb_status status = save(
        model, in_folder("no"),
        strstr(other, "partial") ? SB_LANGUAGE_FLOAT : SB_LANGUAGE_GGUF, 0);
    sb_model_free(model);
    return status;
}

static void test_heads_fit_the_configuration(void **state)
{
    (void)state;
    assert_refused(save_as("gptq", "\"head_dim\": 16", "\"head_dim\": 32"),
                   SB_BAD_MODEL, "64 rows, want 4 heads of 32");
    assert_refused(save_as("gptq", "\"head_dim\": 16",
                           "\"head_dim\": 16, "
                           "\"partial_rotary_factor\": 0.5"),
                   SB_UNSUPPORTED, "8 of the 16 elements");
    assert_refused(save_as("gptq", "\"head_dim\": 16",
                           "\"head_dim\": 16, "
                           "\"partial_rotary_factor\": 1e300"),
                   SB_BAD_DATA, "partial_rotary_factor");
}

static void test_rotated_part_is_kept_in_numbers(void **state)
{
    sb_llm_config c = {.layers = 1,
                       .hidden = 98,
                       .feed_forward = 8,
                       .heads = 1,
                       .kv_heads = 1,
                       .vocabulary = 8,
                       .positions = 8,
                       .norm_epsilon = 1e-5,
                       .rope = {.theta = 1e4, .factor = 1},
                       .head_size = 98,
                       .rope_size = 2},
                  back;
    sb_json_doc *doc = NULL;
    sb_str text;

    (void)state;
    assert_ok(sb_llm_arch_find(test_ctx(), "here", "llama", false, &c.arch));
    sb_str_init(&text, test_ctx());
    sb_llm_config_write_hf(&c, &text);
    assert_ok(
        sb_json_read(test_ctx(), "here", sb_str_text(&text), text.len, &doc));
    assert_ok(sb_llm_config_read_hf(&back, doc));
    assert_int_equal(back.rope_size, 2);
    sb_json_free(doc);
    sb_str_free(&text);
}

static sb_json_doc *read_json(const char *name, sb_mapping *map)
{
    sb_json_doc *doc = NULL;

    assert_ok(sb_file_map(test_ctx(), in_folder(name), map));
    assert_ok(sb_json_read(test_ctx(), path, map->data, map->size, &doc));
    return doc;
}

/* All zero points one above the middle: less one, they would look like those of
 * a program that subtracts nothing.  One matrix needs two bits only, so that
 * its name is a pattern in the settings. */
static void test_ambiguous_zero_points_and_names(void **state)
{
    sb_model *model = NULL;
    sb_mapping map = {0};

    (void)state;
    assert_ok(sb_model_load(test_ctx(), FIXTURES "gptq", &model));
    sb_graph *g = model->graph;
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (strcmp(sb_graph_node(g, id)->op, "MatMulNBits") == 0)
            memset(input_of(g, id, ZEROS)->data, 0x99,
                   sb_tensor_bytes(input_of(g, id, ZEROS)));
    sb_node_id id = find_op(g, "MatMulNBits");
    memset(input_of(g, id, ZEROS)->data, 0x11,
           sb_tensor_bytes(input_of(g, id, ZEROS)));
    memset(input_of(g, id, B)->data, 0, sb_tensor_bytes(input_of(g, id, B)));
    sb_graph_node(g, id)->name = "a+\"b\".MatMulNBits";
    assert_ok(save(model, in_folder("nine"), SB_LANGUAGE_GPTQ, 0));
    sb_model_free(model);

    sb_json_doc *doc = read_json("nine/config.json", &map);
    const sb_json *q = sb_json_get(doc->root, "quantization_config");
    assert_string_equal(sb_json_text(sb_json_get(q, "checkpoint_format")),
                        "gptq_v2");
    assert_non_null(sb_json_get(sb_json_get(q, "dynamic"), "+:^a\\+\"b\"$"));
    sb_json_free(doc);
    sb_file_unmap(&map);
}

static void test_rows_beyond_a_format(void **state)
{
    float x[32] = {0};
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 2, (int64_t[]){1, 32});
    const sb_part part = {.name = "part",
                          .m = {.rows = 1, .cols = 32, .t = &t}};
    const sb_weight_format *f = sb_weight_format_find("q8_0");
    static const float bad[] = {NAN, INFINITY, 1e7F, 3e38F};
    uint8_t to[34];

    (void)state;
    t.data = x;
    for (size_t i = 0; i < SB_COUNT(bad); i++) {
        x[7] = bad[i];
        assert_refused(sb_gguf_fill(test_ctx(), &part, f, to), SB_BAD_MODEL,
                       "'part' has elements beyond what Q8_0 holds");
    }
    x[7] = 1e-40F; /* rounds to nothing */
    assert_ok(sb_gguf_fill(test_ctx(), &part, f, to));
    for (size_t i = 0; i < sizeof to; i++)
        assert_int_equal(to[i], 0);
}

static void test_doubles_become_floats(void **state)
{
    sb_tensor t = sb_tensor_make(SB_DTYPE_F64, 2, (int64_t[]){1, 32});
    const sb_part part = {.name = "part",
                          .m = {.rows = 1, .cols = 32, .t = &t}};
    const sb_parts parts = {.ctx = test_ctx()};
    const sb_llm_write_options opt = {0};
    const sb_weight_format *f = NULL;

    (void)state;
    assert_ok(sb_gguf_choose(&parts, &part, &opt, &f));
    assert_non_null(f);
    assert_string_equal(f->name, "F32");
}

static void test_zero_points_that_are_no_numbers(void **state)
{
    uint8_t codes[16] = {0};
    float scale = 1, zero = NAN;
    sb_tensor t = sb_tensor_make(SB_DTYPE_U8, 2, (int64_t[]){1, 16});
    sb_tensor s = sb_tensor_make(SB_DTYPE_F32, 2, (int64_t[]){1, 1}), z = s;
    const sb_matrix m = {.rows = 1,
                         .cols = 32,
                         .t = &t,
                         .bits = 4,
                         .group = 32,
                         .scales = &s,
                         .zeros = &z};
    sb_matrix_facts facts;

    (void)state;
    t.data = codes;
    s.data = &scale;
    z.data = &zero;
    assert_ok(sb_matrix_look(test_ctx(), &m, &facts));
    assert_false(facts.whole);
    zero = INFINITY;
    assert_ok(sb_matrix_look(test_ctx(), &m, &facts));
    assert_false(facts.whole);
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
        cmocka_unit_test(test_codes_are_checked),
        cmocka_unit_test(test_heads_fit_the_configuration),
        cmocka_unit_test(test_rotated_part_is_kept_in_numbers),
        cmocka_unit_test(test_ambiguous_zero_points_and_names),
        cmocka_unit_test(test_rows_beyond_a_format),
        cmocka_unit_test(test_doubles_become_floats),
        cmocka_unit_test(test_zero_points_that_are_no_numbers),
    };
    return cmocka_run_group_tests_name("llm_write_checks", tests, set_up,
                                       tear_down);
}
