/* quanttest.h - quantized models for tests, from texts. */
#ifndef SB_TESTS_QUANTTEST_H
#define SB_TESTS_QUANTTEST_H

#include "sbtest.h"

#include "quant/model/quant_model.h"

/* Weights in 8 bit per channel, activations in 8 bit with one scale. */
#define TEST_W8 "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
#define TEST_A8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n"

/* A model of the graph (graph/text.h) under a config; `target` NULL: as the
 * config says.  Free it with sb_quant_model_free(). */
sb_status test_quant_try(sb_ctx *ctx, const char *graph, const char *yaml,
                         const char *target, sb_quant_model **out);
sb_quant_model *test_quant(const char *graph, const char *yaml,
                           const char *target);
/* One that will be trained. */
sb_status test_quant_try_train(sb_ctx *ctx, const char *graph, const char *yaml,
                               const char *target, sb_quant_model **out);

/* A config that is right, but names what this version cannot run: a model of
 * it is refused, and the message has `want`. */
void test_quant_config_only(const char *yaml, const char *want);

/* A file name of this program alone; what is there is removed at exit. */
const char *test_quant_file(void);
/* Quantizes, without calibration, and writes that file. */
sb_status test_quant_write(sb_ctx *ctx, const char *graph, const char *yaml,
                           const char *target, sb_export_format format);

/* A line for each quantizer, "name: value bits scheme"; " fused" behind those
 * that are; valid until the next call. */
const char *test_quant_list(const sb_quant_model *qm);
/* The quantizer of that name; fails if there is none. */
sb_quantizer_info test_quantizer(const sb_quant_model *qm, const char *name);

/* Calibrates with these batches of the only input; NULL ends them. */
void test_calibrate(sb_quant_model *qm, const sb_calibration_options *opt,
                    const sb_tensor *const *batches);
/* Runs with all inputs that the model wants; all outputs. */
sb_status test_quant_run(sb_quant_model *qm, const sb_tensor *const *inputs,
                         const sb_tensor **outputs);
/* A copy of the first output for the only input; freed at exit. */
sb_tensor *test_quant_forward(sb_quant_model *qm, const sb_tensor *x);

/* Scale and rounding by their definition, in double precision. */
typedef struct test_scale {
    double scale, zero, qmin, qmax;
} test_scale;

test_scale test_affine8(double lo, double hi);
test_scale test_symmetric8(double most);
double test_fake(test_scale q, double x);

#endif
