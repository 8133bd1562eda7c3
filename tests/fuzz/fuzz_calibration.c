/* Any bytes as a file of saved calibration, for a network with observers of
 * every kind.
 *
 * What must never happen: a crash, a hang, a leak, a message of more than one
 * line, and a scale that cannot be divided by. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/text.h"
#include "ops/op_registry.h"
#include "quant/calibrate/calibrate.h"

static const char net[] =
    "graph net(x: f32[N,2]) -> (y) {\nw: f32[2,2] = random(1)\n"
    "a = MatMul(x, w) \"a\"\nb = MatMul(a, w) \"b\"\nc = MatMul(b, w) \"c\"\n"
    "d = MatMul(c, w) \"d\"\ne = MatMul(d, w) \"e\"\ny = MatMul(e, w) \"f\"\n}";

static const char yaml[] =
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
    "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n"
    "  SPECIFIC:\n  - b: [OBSERVER.TYPE, moving_average]\n"
    "    c: [OBSERVER.TYPE, percentile]\n    d: [OBSERVER.TYPE, mse]\n"
    "    e: [OBSERVER.TYPE, kl_histogram, QSCHEME, per-tensor-symmetric]\n"
    "    f: [OBSERVER.TYPE, aciq]\n";

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static sb_quant_model *make(sb_ctx *ctx)
{
    sb_quant_config *config = NULL;
    sb_quant_model *qm = NULL;
    sb_graph *g = NULL;

    must(sb_graph_parse(ctx, net, &g) == SB_OK && sb_graph_infer(g) == SB_OK &&
             sb_quant_config_load_memory(ctx, "q.yaml", yaml, strlen(yaml),
                                         SB_QUANT_CONFIG_QUANT,
                                         &config) == SB_OK &&
             sb_quant_model_build(ctx, g, config, NULL, NULL, &qm) == SB_OK,
         "the network");
    sb_graph_free(g);
    return qm;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sb_ctx *ctx = NULL;

    if (sb_ctx_create(NULL, &ctx) != SB_OK)
        return 0;
    sb_ctx_set_threads(ctx, 1);
    sb_quant_model *qm = make(ctx);
    sb_status status = sb_calibration_load_memory(
        qm, "input", (const char *)data, size, false);
    if (status == SB_OK)
        status = sb_quant_model_calc_qparams(qm);
    if (status != SB_OK)
        must(!strchr(sb_ctx_error(ctx), '\n'), "a message of two lines");
    for (size_t i = 0; status == SB_OK && i < qm->place.n_quantizers; i++) {
        const sb_qparams *p = &qm->state.quantizers[i].qparams;
        for (int64_t k = 0; k < p->n; k++)
            must(isfinite(p->scale[k]) && p->scale[k] > 0.0F &&
                     isfinite(p->zero_point[k]),
                 "a scale");
    }
    sb_quant_model_free(qm);
    sb_ctx_free(ctx);
    return 0;
}
