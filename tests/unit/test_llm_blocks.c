/* Blocks of GGUF files: bytes that hold what gguf-py reads from them
 * (tests/fixtures/llm/make), and scales that leave no larger errors than those
 * of llama.cpp. */
#include "sbtest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <sparsebit/sparsebit.h>

#include "graph/text.h"
#include "llm/blocks/blocks.h"
#include "llm/gguf.h"
#include "llm/llm_checkpoint.h"
#include "quant/model/quant_model.h"

#define FIXTURES "tests/fixtures/llm/"

static const char *const names[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
                                    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"};

/* Blocks of another program, taken apart and put together again. */
static void test_bytes_are_read_as_gguf_py_does(void **state)
{
    sb_gguf g = {0};
    sb_checkpoint c;

    (void)state;
    sb_checkpoint_init(&c, test_ctx(), "blocks.gguf");
    assert_ok(sb_gguf_open(&g, test_ctx(), FIXTURES "blocks.gguf"));
    assert_ok(sb_gguf_weights(&g, &c));
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        const sb_weight *w = sb_checkpoint_find(&c, names[i]);
        const sb_weight_format *f = w->format;
        uint8_t bytes[256];
        float got[256];
        sb_tensor *want = NULL;
        char path[256];

        (void)snprintf(path, sizeof path, FIXTURES "blocks.npz:%s", names[i]);
        assert_ok(sb_tensor_load(test_ctx(), path, &want));
        for (int64_t at = 0; at < sb_weight_count(w); at += f->block) {
            sb_block b;

            f->unpack((const uint8_t *)sb_weight_data(w) +
                          at / f->block * f->bytes,
                      &b);
            f->pack(&b, bytes);
            sb_weight_to_f32(f, bytes, got, f->block);
            assert_all_close(names[i], got, (const float *)want->data + at,
                             f->block, 1e-6);
        }
        sb_tensor_free(want);
    }
    sb_checkpoint_free(&c);
    sb_gguf_free(&g);
}

/* Many small numbers and few large ones. */
static void fill(float *x, size_t n)
{
    uint32_t s = 1;

    for (size_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        double v = ((double)(s >> 16) - 32768) / 32768;

        x[i] = (float)(v * v * v * 0.1);
    }
}

static double error_of(const sb_weight_format *f, const float *x, size_t n)
{
    double sum = 0, all = 0;
    uint8_t bytes[256];
    float back[256];
    sb_block b = {{0}, {0}, {0}};

    for (size_t at = 0; at < n; at += f->block) {
        sb_block_search(f, x + at, NULL, 1, &b);
        f->pack(&b, bytes);
        sb_weight_to_f32(f, bytes, back, f->block);
        for (size_t i = 0; i < f->block; i++) {
            double e = (double)back[i] - (double)x[at + i];

            sum += e * e;
            all += (double)x[at + i] * (double)x[at + i];
        }
    }
    return sum / all;
}

/* The share of squares that ggml_quantize_chunk() of libllama 0.5.0 loses of
 * the same numbers, read by gguf-py. */
static void test_scales_are_as_good_as_those_of_ggml(void **state)
{
    static const double theirs[] = {
        0.006401033, 0.006975405, 0.001592914, 0.001605386, 2.716079e-05,
        0.1293036,   0.01954349,  0.005389466, 0.001441724, 0.0002967562};
    static float x[4096];

    (void)state;
    fill(x, SB_COUNT(x));
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        double ours = error_of(sb_weight_format_find(names[i]), x, SB_COUNT(x));

        if (ours > theirs[i])
            fail_msg("%s: %g, ggml's %g", names[i], ours, theirs[i]);
        assert_true(ours > 0);
    }
}

/* Blocks are searched side by side; none changes another, and what weighs more
 * is nearer. */
static void test_blocks_are_as_alone(void **state)
{
    static float x[4096], weight[4096];

    (void)state;
    fill(x, SB_COUNT(x));
    for (size_t i = 0; i < SB_COUNT(x); i++)
        weight[i] = i % 4 == 0 ? 100.0F : 1.0F;
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        const sb_weight_format *f = sb_weight_format_find(names[i]);
        sb_block all[SB_BLOCK_GROUPS], one;
        uint8_t a[256], b[256];
        double heavy = 0, plain = 0;
        int n = sb_block_batch(f);

        for (int part = n; part > 0; part -= n > 1 ? n - 1 : 1) {
            sb_block_search(f, x, weight, part, all);
            for (int k = 0; k < part; k++) {
                sb_block_search(f, x + k * f->block, weight, 1, &one);
                f->pack(&all[k], a);
                f->pack(&one, b);
                assert_memory_equal(a, b, f->bytes);
            }
        }
        for (size_t at = 0; at < SB_COUNT(x); at += f->block)
            for (int w = 0; w < 2; w++) {
                float back[256];

                sb_block_search(f, x + at, w ? weight : NULL, 1, &one);
                f->pack(&one, a);
                sb_weight_to_f32(f, a, back, f->block);
                for (size_t k = 0; k < f->block; k += 4)
                    *(w ? &heavy : &plain) +=
                        pow((double)back[k] - (double)x[at + k], 2);
            }
        if (!(heavy < 0.95 * plain))
            fail_msg("%s: %g, without weights %g", names[i], heavy, plain);
    }
}

/* Zeros, one number many times, numbers that float16 does not hold. */
static void test_odd_blocks(void **state)
{
    static const float all[] = {0, 1, -1, 0.37F, 1e-9F, -1e-30F, 3e4F, -3e4F};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(names); i++)
        for (size_t k = 0; k < SB_COUNT(all); k++) {
            const sb_weight_format *f = sb_weight_format_find(names[i]);
            sb_block b = {{0}, {0}, {0}};
            float x[256], back[256];
            uint8_t bytes[256];

            for (size_t n = 0; n < f->block; n++)
                x[n] = all[k];
            sb_block_search(f, x, NULL, 1, &b);
            for (int g = 0; g < f->block / f->group; g++)
                assert_true(fabsf(b.scale[g]) > 0 && isfinite(b.scale[g]));
            f->pack(&b, bytes);
            sb_weight_to_f32(f, bytes, back, f->block);
            for (size_t n = 0; n < f->block; n++)
                assert_close(names[i], back[n], all[k],
                             1e-5 + 0.01 * fabs((double)all[k]));
        }
}

/* The largest numbers that float16 scales reach, and beyond. */
static void test_large_elements(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        const sb_weight_format *f = sb_weight_format_find(names[i]);
        const float most = 65504 * (f->symmetric ? (float)f->hi : 1);
        static const float beyond[] = {1e18F, 3e38F, INFINITY, NAN};
        sb_block b = {{0}, {0}, {0}};
        float x[256], back[256];
        uint8_t bytes[256];

        for (size_t n = 0; n < f->block; n++)
            x[n] = n % 2 ? most : -most;
        assert_true(sb_block_holds(f, x, f->block));
        sb_block_search(f, x, NULL, 1, &b);
        f->pack(&b, bytes);
        sb_weight_to_f32(f, bytes, back, f->block);
        for (size_t n = 0; n < f->block; n++)
            assert_close(names[i], back[n], x[n], 0.3 * (double)most);
        for (size_t k = 0; k < SB_COUNT(beyond); k++) {
            x[5] = beyond[k];
            assert_false(sb_block_holds(f, x, f->block));
        }
    }
}

/* A weight that no block holds is named. */
static void test_weights_beyond_blocks(void **state)
{
    static const char config[] =
        "W: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 4, GROUP_SIZE: 32}}\n"
        "A: none\n";
    const sb_build_options build = {.half_scales = true,
                                    .blocks = sb_block_mix_find("q4_1")};
    sb_quant_config *cfg = NULL;
    sb_quant_model *qm = NULL;
    sb_graph *g = NULL;

    (void)state;
    assert_ok(sb_graph_parse(test_ctx(),
                             "graph main(x: f32[N,32]) -> (y) {\n"
                             "w: f32[2,32] = random(1)\n"
                             "y = Gemm(x, w) {transB=1} \"fc\"\n}",
                             &g));
    assert_ok(sb_graph_infer(g));
    sb_value_id w = sb_graph_find_value(g, "w");
    ((float *)sb_graph_value(g, w)->constant.data)[40] = -7e4F;
    assert_ok(sb_quant_config_load_memory(test_ctx(), "q.yaml", config,
                                          strlen(config), SB_QUANT_CONFIG_QUANT,
                                          &cfg));
    assert_ok(sb_quant_model_build(test_ctx(), g, cfg, NULL, &build, &qm));
    assert_int_equal(sb_quant_model_calc_qparams(qm), SB_BAD_MODEL);
    assert_string_equal(sb_ctx_error(test_ctx()),
                        "'fc.weight_quantizer': the weight has elements beyond "
                        "what Q4_1 holds");
    sb_quant_model_free(qm);
    sb_graph_free(g);
}

static void test_rows_that_256_does_not_divide(void **state)
{
    const sb_weight_format *f = sb_weight_format_find("q4_k");

    (void)state;
    assert_ptr_equal(sb_block_format(f, 512), f);
    assert_string_equal(sb_block_format(f, 288)->name, "Q5_0");
    assert_null(sb_block_format(f, 100));
    assert_close("bits", sb_block_bits(f), 4.5, 0);
    assert_close("bits", sb_block_bits(sb_weight_format_find("q2_k")), 2.625,
                 0);
}

/* Of two networks, 17 layers with four heads of queries for each of values and
 * 9 layers with two: how many matrices of their layers libllama 0.5.0 made Q2_K
 * to Q6_K in files of these types. */
static const struct {
    const char *name;
    int want[2][5];
} mixtures[] = {
    {"q2_k", {{68, 34, 17, 0, 0}, {36, 27, 0, 0, 0}}},
    {"q3_k_s", {{0, 119, 0, 0, 0}, {0, 63, 0, 0, 0}}},
    {"q3_k_m", {{0, 68, 48, 3, 0}, {0, 36, 25, 2, 0}}},
    {"q3_k_l", {{0, 68, 0, 51, 0}, {0, 36, 0, 27, 0}}},
    {"q4_k_s", {{0, 0, 113, 6, 0}, {0, 0, 58, 5, 0}}},
    {"q4_k_m", {{0, 0, 101, 0, 18}, {0, 0, 53, 0, 10}}},
    {"Q5_K_M", {{0, 0, 0, 101, 18}, {0, 0, 0, 53, 10}}},
    {"q2_k_pure", {{119, 0, 0, 0, 0}, {63, 0, 0, 0, 0}}},
};

static void test_files_are_mixed_as_llama_cpp_mixes_them(void **state)
{
    static const char *const ends[] = {"self_attn.q_proj", "self_attn.k_proj",
                                       "self_attn.v_proj", "self_attn.o_proj",
                                       "mlp.gate_proj",    "mlp.up_proj",
                                       "mlp.down_proj"};
    const sb_block_place at[] = {{17, 4}, {9, 2}};
    char name[64];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(mixtures); i++)
        for (size_t k = 0; k < SB_COUNT(at); k++) {
            const sb_block_mix *mix = sb_block_mix_find(mixtures[i].name);
            int count[5] = {0};

            assert_non_null(mix);
            for (size_t m = 0; m < (size_t)at[k].layers * SB_COUNT(ends); m++) {
                snprintf(name, sizeof name, "model.layers.%zu.%s",
                         m / SB_COUNT(ends), ends[m % SB_COUNT(ends)]);
                count[sb_block_mix_for(mix, name, &at[k])->gguf - 10]++;
            }
            assert_memory_equal(count, mixtures[i].want[k], sizeof count);
        }
    const sb_block_mix *m = sb_block_mix_find("q4_k_m");
    assert_string_equal(
        sb_block_mix_for(m, "model.layers.4.mlp.down_proj", &at[0])->name,
        "Q6_K");
    assert_string_equal(
        sb_block_mix_for(m, "model.layers.5.mlp.down_proj", &at[0])->name,
        "Q4_K");
    assert_string_equal(sb_block_mix_for(m, "lm_head", &at[0])->name, "Q6_K");
    assert_string_equal(
        sb_block_mix_for(m, "transformer.h.3.attn.c_attn", &at[0])->name,
        "Q5_K");
    assert_null(sb_block_mix_find("q2_k_x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_read_as_gguf_py_does),
        cmocka_unit_test(test_scales_are_as_good_as_those_of_ggml),
        cmocka_unit_test(test_blocks_are_as_alone),
        cmocka_unit_test(test_odd_blocks),
        cmocka_unit_test(test_large_elements),
        cmocka_unit_test(test_weights_beyond_blocks),
        cmocka_unit_test(test_rows_that_256_does_not_divide),
        cmocka_unit_test(test_files_are_mixed_as_llama_cpp_mixes_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
