/* Quantized models for tests (quanttest.h). */
#define _DEFAULT_SOURCE
#include "quanttest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph/text.h"
#include "ops/op_registry.h"

static sb_status quant_build(sb_ctx *ctx, const char *graph, const char *yaml,
                             const char *target, const sb_build_options *build,
                             sb_quant_model **out)
{
    sb_quant_config *config = NULL;
    sb_graph *g = NULL;

    SB_TRY(sb_graph_parse(ctx, graph, &g));
    sb_status status = sb_graph_infer(g);
    if (status == SB_OK)
        status =
            sb_quant_config_load_memory(ctx, "test.yaml", yaml, strlen(yaml),
                                        SB_QUANT_CONFIG_QUANT, &config);
    if (status == SB_OK)
        status = sb_quant_model_build(
            ctx, g, config, target ? sb_target_find(target) : NULL, build, out);
    sb_graph_free(g);
    return status;
}

sb_status test_quant_try(sb_ctx *ctx, const char *graph, const char *yaml,
                         const char *target, sb_quant_model **out)
{
    return quant_build(ctx, graph, yaml, target, NULL, out);
}

sb_status test_quant_try_train(sb_ctx *ctx, const char *graph, const char *yaml,
                               const char *target, sb_quant_model **out)
{
    const sb_build_options build = {.train = true};

    return quant_build(ctx, graph, yaml, target, &build, out);
}

static char file[] = "/tmp/sparsebit-test-XXXXXX";

static void remove_file(void)
{
    (void)unlink(file);
}

void test_quant_config_only(const char *yaml, const char *want)
{
    sb_quant_config *cfg = NULL;
    sb_quant_model *qm = NULL;

    assert_ok(sb_quant_config_load_memory(
        test_ctx(), "q.yaml", yaml, strlen(yaml), SB_QUANT_CONFIG_QUANT, &cfg));
    sb_quant_config_free(cfg);
    assert_status(test_quant_try(test_ctx(),
                                 "graph main(x: f32[N,2]) -> (y) {\n"
                                 "w: f32[2,2] = random(1)\n"
                                 "y = MatMul(x, w) \"fc\"\n}",
                                 yaml, NULL, &qm),
                  SB_UNSUPPORTED);
    assert_error_has(want);
}

const char *test_quant_file(void)
{
    static bool made;

    if (!made) {
        int fd = mkstemp(file);
        if (fd < 0 || close(fd) != 0)
            abort();
        (void)atexit(remove_file);
        made = true;
    }
    return file;
}

sb_status test_quant_write(sb_ctx *ctx, const char *graph, const char *yaml,
                           const char *target, sb_export_format format)
{
    sb_export_options opt = SB_EXPORT_OPTIONS_INIT;
    sb_quant_model *qm = NULL;

    opt.format = format;
    SB_TRY(test_quant_try(ctx, graph, yaml, target, &qm));
    sb_status status = sb_quant_model_calc_qparams(qm);
    if (status == SB_OK)
        status = sb_quant_model_export(qm, test_quant_file(), &opt);
    sb_quant_model_free(qm);
    return status;
}

sb_quant_model *test_quant(const char *graph, const char *yaml,
                           const char *target)
{
    sb_quant_model *qm = NULL;

    assert_ok(test_quant_try(test_ctx(), graph, yaml, target, &qm));
    return qm;
}

const char *test_quant_list(const sb_quant_model *qm)
{
    static char text[8192];
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < sb_quant_model_quantizer_count(qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);

        assert_true(used < sizeof text - 256);
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%s: %s %d %s%s\n", q->name, q->value, q->bits,
                                 q->scheme, q->fused ? " fused" : "");
    }
    return text;
}

sb_quantizer_info test_quantizer(const sb_quant_model *qm, const char *name)
{
    for (size_t i = 0; i < sb_quant_model_quantizer_count(qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);
        if (strcmp(q->name, name) == 0)
            return *q;
    }
    fail_msg("no quantizer '%s' among\n%s", name, test_quant_list(qm));
    return (sb_quantizer_info){0};
}

void test_calibrate(sb_quant_model *qm, const sb_calibration_options *opt,
                    const sb_tensor *const *batches)
{
    const sb_tensor *out[8] = {0};

    assert_ok(sb_quant_model_prepare_calibration(qm, opt));
    for (; *batches; batches++)
        assert_ok(test_quant_run(qm, batches, out));
    assert_ok(sb_quant_model_calc_qparams(qm));
}

sb_status test_quant_run(sb_quant_model *qm, const sb_tensor *const *inputs,
                         const sb_tensor **outputs)
{
    const sb_graph *g = qm->graph;
    size_t n = 0;

    for (size_t i = 0; i < g->n_inputs; i++)
        n += !sb_graph_value(g, g->inputs[i])->is_constant;
    return sb_quant_model_forward(qm, inputs, n, outputs, g->n_outputs);
}

sb_tensor *test_quant_forward(sb_quant_model *qm, const sb_tensor *x)
{
    const sb_tensor *out[8] = {0};
    char shape[128] = "";
    size_t used = 0;

    assert_ok(test_quant_run(qm, &x, out));
    for (int i = 0; i < out[0]->rank; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld",
                                 i ? "x" : "", (long long)out[0]->dims[i]);
    sb_tensor *copy = test_tensor(out[0]->dtype, shape, NULL);
    memcpy(copy->data, out[0]->data, sb_tensor_bytes(copy));
    return copy;
}

test_scale test_affine8(double lo, double hi)
{
    test_scale q = {.qmin = 0, .qmax = 255};

    lo = fmin(lo, 0);
    hi = fmax(hi, 0);
    q.scale = fmax((hi - lo) / 255, 1e-6);
    q.zero = rint(-lo / q.scale);
    return q;
}

test_scale test_symmetric8(double most)
{
    return (test_scale){fmax(most * 2 / 255, 1e-6), 0, -128, 127};
}

double test_fake(test_scale q, double x)
{
    /* In float, as runtimes divide: the largest weight is 127.5 steps. */
    double v = (double)rintf((float)x / (float)q.scale) + q.zero;

    return (fmin(fmax(v, q.qmin), q.qmax) - q.zero) * q.scale;
}
