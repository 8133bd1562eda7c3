/* Every allocation fails once while finished layers and blocks are kept in a
 * folder; what such a run leaves there is gone on with (slow). */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quanttest.h"

enum { ROWS = 8, OUT = 2 * ROWS };

static const char net[] =
    "graph main(x: f32[N,3]) -> (y) {\n"
    "a: f32[3,4] = random(1)\nb: f32[4,2] = random(2)\n"
    "h = MatMul(x, a) \"la\"\nr = Relu(h)\ny = MatMul(r, b) \"lb\"\n}";

/* One kind of files in the folder each. */
static const char layers[] =
    "W: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: gptq, BIT: 3}}\n"
    "A: none\n";
static const char blocks[] =
    "SCHEDULE: {BLOCKWISE: {STEPS: 2, BATCH: 4}}\n"
    "W: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 3}}\n"
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n";

/* In memory where there is such a folder: every file is synchronized. */
static char folder[64], journal[96];

/* Quantizes and gives the outputs; `end` also removes the folder. */
static sb_status quantize(sb_ctx *ctx, const char *config, bool end,
                          float out[OUT])
{
    static float values[3 * ROWS];
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
    sb_tensor x = sb_tensor_make(SB_DTYPE_F32, 2, (int64_t[]){ROWS, 3});
    const sb_tensor *in[] = {&x}, *y[1];
    sb_quant_model *qm = NULL;
    sb_status s = test_quant_try(ctx, net, config, NULL, &qm);

    for (int i = 0; i < 3 * ROWS; i++)
        values[i] = (float)((i * 29) % 23) / 11 - 1;
    x.data = values;
    opt.journal = journal;
    if (s == SB_OK)
        s = sb_quant_model_prepare_calibration(qm, &opt);
    if (s == SB_OK)
        s = test_quant_run(qm, in, y);
    if (s == SB_OK)
        s = sb_quant_model_calc_qparams(qm);
    if (s == SB_OK) {
        sb_quant_model_set_quant(qm, 1, 1);
        s = test_quant_run(qm, in, y);
    }
    if (s == SB_OK)
        memcpy(out, y[0]->data, OUT * sizeof *out);
    if (s == SB_OK && end)
        s = sb_quant_model_end_journal(qm);
    sb_quant_model_free(qm);
    return s;
}

/* A run, another one that finds its files, and the end.  Whatever a refused
 * request has left behind, a run with memory gives the same and removes it. */
static sb_status kept(sb_ctx *ctx, const char *config, const float want[OUT])
{
    float got[OUT];
    sb_status s = quantize(ctx, config, false, got);

    if (s == SB_OK)
        s = quantize(ctx, config, true, got);
    if (access(journal, F_OK) != 0)
        return s;
    assert_int_not_equal(s, SB_OK);
    assert_ok(quantize(test_ctx(), config, true, got));
    assert_memory_equal(got, want, sizeof got);
    assert_int_not_equal(access(journal, F_OK), 0);
    return s;
}

static float wanted[2][OUT];

static sb_status kept_layers(sb_ctx *ctx)
{
    return kept(ctx, layers, wanted[0]);
}

static sb_status kept_blocks(sb_ctx *ctx)
{
    return kept(ctx, blocks, wanted[1]);
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    assert_ok(quantize(test_ctx(), layers, true, wanted[0]));
    assert_ok(quantize(test_ctx(), blocks, true, wanted[1]));
    test_every_allocation("layers in a journal", kept_layers);
    test_every_allocation("blocks in a journal", kept_blocks);
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "%s/sparsebit-oom-journal-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(journal, sizeof journal, "%s/rounding", folder);
    return 0;
}

/* Fails if anything was left behind. */
static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_every_failed_allocation_is_reported, make_folder,
            remove_folder),
    };

    return cmocka_run_group_tests_name("oom_journal", tests, NULL, NULL);
}
