/* Rounding and learning that was ended and goes on: the same weights as in one
 * run, wherever it ends; files of other runs, or that are damaged, are not
 * used. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quanttest.h"

enum { LAYERS = 4, ROWS = 64 };

static const char NET[] =
    "graph main(x: f32[N,3]) -> (y) {\n"
    "a: f32[3,4] = [1, -0.3, 0.2, 0.7, 0.1, 0.9, -0.4, 0.3, 0.6, 0.5, 0.8, 0]\n"
    "b: f32[4,2] = [0.3, -1, 0.2, 0.6, 0.9, -0.7, 0.1, 0.4]\n"
    "c: f32[4,2] = [0.7, 0.5, -0.2, 0.3, 0.1, 0.9, -0.6, 0.8]\n"
    "d: f32[2,2] = [0.4, 0.9, -0.8, 0.3]\n"
    "h = MatMul(x, a) \"la\"\nr = Relu(h)\ns = MatMul(r, b) \"lb\"\n"
    "t = MatMul(r, c) \"lc\"\nu = Add(s, t)\ny = MatMul(u, d) \"ld\"\n}";

static char folder[] = "/tmp/journal_test_XXXXXX", journal[64];

typedef struct stop {
    int left; /* calls until the run is ended; negative: never */
    int seen;
    const char *stage; /* NULL: "round" */
} stop;

static int watch(void *user, const char *stage, size_t done, size_t total)
{
    stop *s = user;

    (void)done;
    (void)total;
    if (strcmp(stage, s->stage ? s->stage : "round") != 0)
        return 0;
    s->seen++;
    return s->left-- == 0;
}

/* The outputs of the quantized network; false if the run was ended. */
static bool outputs_net(const char *net, const char *config, uint64_t seed,
                        bool with_journal, stop *s, float out[2 * ROWS])
{
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
    const sb_tensor *x = test_random(SB_DTYPE_F32, "64x3", 4);
    sb_quant_model *qm = test_quant(net, config, NULL);

    opt.journal = with_journal ? journal : NULL;
    opt.seed = seed;
    assert_int_equal(sb_quant_model_prepare_calibration(qm, &opt), SB_OK);
    assert_int_equal(sb_quant_model_forward(qm, &x, 1, NULL, 0), SB_OK);
    sb_ctx_set_progress(test_ctx(), watch, s);
    sb_status status = sb_quant_model_calc_qparams(qm);
    sb_ctx_set_progress(test_ctx(), NULL, NULL);
    if (status == SB_OK) {
        sb_quant_model_set_quant(qm, 1, 1);
        const sb_tensor *y = test_quant_forward(qm, x);
        memcpy(out, y->data, 2 * ROWS * sizeof *out);
    } else {
        assert_int_equal(status, SB_INTERRUPTED);
    }
    sb_quant_model_free(qm);
    return status == SB_OK;
}

static bool outputs_of(const char *config, uint64_t seed, bool with_journal,
                       stop *s, float out[2 * ROWS])
{
    return outputs_net(NET, config, seed, with_journal, s, out);
}

static bool outputs(const char *bits, bool with_journal, stop *s,
                    float out[2 * ROWS])
{
    char config[256];

    (void)snprintf(config, sizeof config,
                   "W: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: gptq, "
                   "BIT: %s}}\nA: none\n",
                   bits);
    return outputs_of(config, 0, with_journal, s, out);
}

static void end_journal(void)
{
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
    sb_quant_model *qm = test_quant(
        NET,
        "W: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: gptq, BIT: 3}}"
        "\nA: none\n",
        NULL);

    opt.journal = journal;
    assert_int_equal(sb_quant_model_prepare_calibration(qm, &opt), SB_OK);
    assert_int_equal(sb_quant_model_end_journal(qm), SB_OK);
    assert_int_not_equal(access(journal, F_OK), 0);
    sb_quant_model_free(qm);
}

static int files(const char *kind)
{
    char path[96];
    int n = 0;

    for (int i = 0; i < LAYERS; i++) {
        (void)snprintf(path, sizeof path, "%s/%s-%06d", journal, kind, i);
        n += access(path, F_OK) == 0;
    }
    return n;
}

static void test_goes_on(void **state)
{
    float want[2 * ROWS], got[2 * ROWS];
    stop never = {.left = -1};
    int most = 0;

    (void)state;
    assert_true(outputs("3", false, &never, want));
    assert_int_equal(never.seen, 3); /* levels, one batch each */
    for (int end = 0; end < 3; end++) {
        stop s = {.left = end}, rest = {.left = -1};

        assert_false(outputs("3", true, &s, got));
        most = files("layer") > most ? files("layer") : most;
        assert_true(outputs("3", true, &rest, got));
        assert_memory_equal(got, want, sizeof got);
        assert_int_equal(files("layer"), LAYERS);
        stop none = {.left = -1}; /* all of it is there */
        assert_true(outputs("3", true, &none, got));
        assert_int_equal(none.seen, 0);
        assert_memory_equal(got, want, sizeof got);
        end_journal();
    }
    assert_int_equal(most, 3);
}

static void test_other_files_are_not_used(void **state)
{
    float want[2][2 * ROWS], got[2 * ROWS];
    char path[96];
    stop s = {.left = -1};

    (void)state;
    assert_true(outputs("3", false, &s, want[0]));
    assert_true(outputs("2", false, &s, want[1]));
    assert_memory_not_equal(want[0], want[1], sizeof got);
    assert_true(outputs("3", true, &s, got));
    assert_true(outputs("2", true, &s, got)); /* another run */
    assert_memory_equal(got, want[1], sizeof got);
    (void)snprintf(path, sizeof path, "%s/layer-%06d", journal, 1);
    assert_int_equal(truncate(path, 5), 0);
    assert_true(outputs("2", true, &s, got));
    assert_memory_equal(got, want[1], sizeof got);
    (void)snprintf(path, sizeof path, "%s/layer-run", journal);
    assert_int_equal(truncate(path, 3), 0);
    assert_true(outputs("2", true, &s, got));
    assert_memory_equal(got, want[1], sizeof got);
    end_journal();
}

/* Layers that were computed another way are not gone on with: the file of the
 * run says which. */
static void test_other_products_are_refused(void **state)
{
    float got[2 * ROWS];
    char path[96];
    stop s = {.left = -1};
    const sb_tensor *x = test_random(SB_DTYPE_F32, "64x3", 4);
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;

    (void)state;
    assert_true(outputs("3", true, &s, got));
    (void)snprintf(path, sizeof path, "%s/layer-run", journal);
    for (int how = 0; how < 3; how++) {
        FILE *f = fopen(path, "r+b");
        int was = 0;

        assert_non_null(f);
        assert_int_equal(fseek(f, 8, SEEK_SET), 0);
        was = fgetc(f);
        assert_in_range(was, 0, 2);
        assert_int_equal(fseek(f, 8, SEEK_SET), 0);
        assert_int_equal(fputc((was + how) % 3, f), (was + how) % 3);
        assert_int_equal(fclose(f), 0);
        sb_quant_model *qm = test_quant(
            NET,
            "W: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: gptq, BIT: 3}}"
            "\nA: none\n",
            NULL);
        opt.journal = journal;
        assert_int_equal(sb_quant_model_prepare_calibration(qm, &opt), SB_OK);
        assert_int_equal(sb_quant_model_forward(qm, &x, 1, NULL, 0), SB_OK);
        if (how == 0) {
            assert_int_equal(sb_quant_model_calc_qparams(qm), SB_OK);
        } else {
            assert_int_equal(sb_quant_model_calc_qparams(qm), SB_UNSUPPORTED);
            assert_error_has("go on as it was begun, or remove the folder");
            assert_int_equal(files("layer"), LAYERS); /* nothing is lost */
        }
        sb_quant_model_free(qm);
        f = fopen(path, "r+b");
        assert_non_null(f);
        assert_int_equal(fseek(f, 8, SEEK_SET), 0);
        assert_int_equal(fputc(was, f), was);
        assert_int_equal(fclose(f), 0);
    }
    end_journal();
}

/* ---- blocks ------------------------------------------------------------- */

/* Two blocks of two layers, the second one a branch; progress four times. */
#define LEARNED(more)                                        \
    "SCHEDULE: {BLOCKWISE: {STEPS: 16, BATCH: 4" more "}}\n" \
    "W: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 3}}\n" \
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n"

static bool learned(const char *config, uint64_t seed, bool with_journal,
                    stop *s, float out[2 * ROWS])
{
    s->stage = "learn blocks";
    return outputs_of(config, seed, with_journal, s, out);
}

static void test_blocks_go_on(void **state)
{
    static const char config[] = LEARNED("");
    float want[2 * ROWS], got[2 * ROWS];
    stop never = {.left = -1};
    int most = 0;

    (void)state;
    assert_true(learned(config, 1, false, &never, want));
    for (int end = 0; end < never.seen; end++) {
        stop s = {.left = end}, rest = {.left = -1}, none = {.left = -1};

        assert_false(learned(config, 1, true, &s, got));
        int done = files("block");
        most = done > most ? done : most;
        assert_true(learned(config, 1, true, &rest, got));
        assert_memory_equal(got, want, sizeof got);
        /* A block takes two calls. */
        assert_int_equal(rest.seen, never.seen - 2 * done);
        assert_true(learned(config, 1, true, &none, got));
        assert_int_equal(none.seen, 0);
        assert_memory_equal(got, want, sizeof got);
        end_journal();
    }
    assert_int_equal(2 * (most + 1), never.seen);
}

static void test_blocks_of_other_runs(void **state)
{
    static const struct {
        const char *config;
        uint64_t seed;
    } other[] = {{LEARNED(""), 2},
                 {LEARNED(", DROP: 0"), 1},
                 {LEARNED(", LEARNING_RATE: 0.03"), 1}};
    float want[2 * ROWS], got[2 * ROWS];

    (void)state;
    for (size_t i = 0; i < SB_COUNT(other); i++) {
        stop s = {.left = -1};

        assert_true(learned(other[i].config, other[i].seed, false, &s, want));
        assert_true(learned(LEARNED(""), 1, true, &s, got));
        assert_memory_not_equal(got, want, sizeof got);
        assert_true(learned(other[i].config, other[i].seed, true, &s, got));
        assert_memory_equal(got, want, sizeof got);
    }
    end_journal();
}

/* Layers without biases, which are what no file has. */
static void test_biases_to_correct(void **state)
{
    static const char config[] =
        "SCHEDULE: {BIAS_CORRECTION: true}\n"
        "W: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: gptq, BIT: 3}}\n"
        "A: none\n";
    float want[2 * ROWS], got[2 * ROWS];
    stop s = {.left = 2}, rest = {.left = -1};

    (void)state;
    assert_true(outputs("3", false, &rest, want));
    assert_false(outputs_of(config, 0, true, &s, got));
    assert_true(files("layer") > 0);
    assert_true(outputs_of(config, 0, true, &rest, got));
    assert_memory_equal(got, want, sizeof got);
    end_journal();
}

/* Those that layers have are fitted with them, and are in the files, too. */
static void test_fitted_biases(void **state)
{
    static const char net[] =
        "graph main(x: f32[N,3]) -> (y) {\n"
        "a: f32[4,3] = random(1)\nb: f32[4] = random(2)\n"
        "c: f32[4,2] = random(3)\n"
        "e: f32[2,2] = random(5)\nf: f32[2] = random(6)\n"
        "g = Gemm(x, a, b) {transB=1} \"la\"\nh = Relu(g)\n"
        "i = MatMul(h, c) \"lb\"\nj = Relu(i)\n"
        "y = Gemm(j, e, f) {transB=1} \"lc\"\n}";
    static const char config[] =
        "SCHEDULE: {BIAS_CORRECTION: %s, LAYERWISE: true}\n"
        "W: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: gptq, BIT: 8}}\n"
        "A: none\n";
    float want[2][2 * ROWS], got[2 * ROWS];
    char text[2][256];
    stop never = {.left = -1};

    (void)state;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(text[i], sizeof text[i], config, i ? "true" : "false");
        assert_true(outputs_net(net, text[i], 0, false, &never, want[i]));
    }
    assert_memory_not_equal(want[0], want[1], sizeof got);
    for (int end = 1; end < 3; end++) {
        stop s = {.left = end}, rest = {.left = -1};

        assert_false(outputs_net(net, text[1], 0, true, &s, got));
        assert_int_equal(files("layer"), end);
        assert_true(outputs_net(net, text[1], 0, true, &rest, got));
        assert_memory_equal(got, want[1], sizeof got);
        end_journal();
        /* What a run without them must not take, of no layer. */
        s = (stop){.left = end};
        assert_false(outputs_net(net, text[1], 0, true, &s, got));
        assert_true(outputs_net(net, text[0], 0, true, &rest, got));
        assert_memory_equal(got, want[0], sizeof got);
        end_journal();
    }
}

static int make(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    (void)snprintf(journal, sizeof journal, "%s/rounding", folder);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_other_files_are_not_used),
        cmocka_unit_test(test_other_products_are_refused),
        cmocka_unit_test(test_blocks_go_on),
        cmocka_unit_test(test_blocks_of_other_runs),
        cmocka_unit_test(test_biases_to_correct),
        cmocka_unit_test(test_fitted_biases),
    };

    return cmocka_run_group_tests_name("journal", tests, make, clean);
}
