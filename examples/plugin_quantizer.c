/* plugin_quantizer - a quantizer of one's own.
 *
 * "clipped" cuts weights off at LIMIT before they are observed and rounded, so
 * that a few large ones do not cost the others their precision. */
#include <stdio.h>

#include <sparsebit/plugin.h>

static void clipped_map_weight(void *user, const double *params, float *weight,
                               size_t n)
{
    float limit = (float)params[0];

    (void)user;
    for (size_t i = 0; i < n; i++)
        weight[i] = weight[i] > limit    ? limit
                    : weight[i] < -limit ? -limit
                                         : weight[i];
}

static const char text[] = "graph g(x: f32[N,4]) -> (y) {\n"
                           "  w: f32[4,1] = [1, -1, 0.5, 100]\n"
                           "  y = MatMul(x, w) \"fc\"\n"
                           "}\n";

static const char config[] =
    "W: {QSCHEME: per-tensor-symmetric,\n"
    "    QUANTIZER: {TYPE: clipped, BIT: 8, CLIPPED: {LIMIT: 2}}}\n"
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n";

/* Runs once with quantized weights. */
static sb_status simulate(sb_ctx *ctx, sb_quant_model *qm)
{
    float numbers[] = {1, 2, 4, 1};
    const int64_t dims[] = {1, 4};
    const sb_tensor *y = NULL;
    sb_tensor *x = NULL;
    double sum = 0;
    sb_status s =
        sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, dims, numbers, NULL, NULL, &x);

    if (s == SB_OK)
        s = sb_quant_model_prepare_calibration(qm, NULL);
    if (s == SB_OK)
        s = sb_quant_model_forward(qm, (const sb_tensor *[]){x}, 1, NULL, 0);
    if (s == SB_OK)
        s = sb_quant_model_calc_qparams(qm);
    sb_quant_model_set_quant(qm, 1, 0);
    if (s == SB_OK)
        s = sb_quant_model_forward(qm, (const sb_tensor *[]){x}, 1, &y, 1);
    if (s == SB_OK && sb_tensor_read_f64(y, 0, 1, &sum)) /* 1 - 2 + 2 + 2 */
        printf("y is %.1f, 3 with the weight cut off at 2\n", sum);
    sb_tensor_free(x);
    return s;
}

int main(void)
{
    sb_plugin_param param = SB_PLUGIN_PARAM_INIT;
    const sb_plugin_param *params[] = {&param};
    sb_quantizer_plugin quantizer = SB_QUANTIZER_PLUGIN_INIT;
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;
    sb_quant_model *qm = NULL;

    param.key = "LIMIT";
    param.help = "magnitude at which weights are cut off";
    param.preset = 1;
    param.min = 1e-6;
    param.max = 1e6;
    quantizer.name = "clipped";
    quantizer.summary = "cuts weights off, then rounds";
    quantizer.for_activations = 0;
    quantizer.params = params;
    quantizer.n_params = 1;
    quantizer.map_weight = clipped_map_weight;
    opt.config_text = config;
    sb_status s = sb_ctx_create(NULL, &ctx);
    if (s == SB_OK)
        s = sb_ctx_add_quantizer(ctx, &quantizer);
    if (s == SB_OK)
        s = sb_model_parse(ctx, text, &model);
    if (s == SB_OK)
        s = sb_quant_model_create(model, &opt, &qm);
    if (s == SB_OK)
        s = simulate(ctx, qm);
    for (size_t i = 0; s == SB_OK && i < sb_quant_model_quantizer_count(qm);
         i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);

        if (q->is_weight) /* 2 / 127.5 */
            printf("%s: %s, scale %.5f\n", q->name, q->quantizer,
                   (double)q->scale[0]);
    }
    if (s != SB_OK)
        printf("%s\n", sb_ctx_error(ctx));
    sb_quant_model_free(qm);
    sb_model_free(model);
    sb_ctx_free(ctx);
    return s != SB_OK;
}
