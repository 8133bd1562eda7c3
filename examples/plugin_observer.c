/* plugin_observer - an observer of one's own, with a parameter, by the name in
 * a configuration.
 *
 * "sigmas" takes the mean plus and minus SIGMAS standard deviations, within
 * what was seen. */
#include <math.h>
#include <stdio.h>

#include <sparsebit/plugin.h>

static sb_status sigmas_range(void *user, const sb_observer_values *v,
                              float *least, float *most)
{
    double n = 0, sum = 0, squares = 0;

    (void)user;
    for (size_t i = 0; i < v->n; i++) {
        double count = v->count ? v->count[i] : 1, x = (double)v->x[i];

        n += count;
        sum += count * x;
        squares += count * x * x;
    }
    double mean = sum / n, sigma = sqrt(fmax(squares / n - mean * mean, 0));
    *least = (float)fmax((double)v->least, mean - v->params[0] * sigma);
    *most = (float)fmin((double)v->most, mean + v->params[0] * sigma);
    return SB_OK;
}

static const char text[] = "graph g(x: f32[N,4]) -> (y) {\n"
                           "  w: f32[4,1] = [1, -1, 1, -1]\n"
                           "  y = MatMul(x, w) \"fc\"\n"
                           "}\n";

static const char config[] =
    "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n"
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8},\n"
    "    OBSERVER: {TYPE: sigmas, SIGMAS: {SIGMAS: 1}}}\n";

static sb_status calibrate(sb_ctx *ctx, sb_quant_model *qm)
{
    /* mean 0, variance (1 + 1 + 9 + 9) / 4 = 5 */
    float numbers[] = {-1, 1, -3, 3};
    const int64_t dims[] = {1, 4};
    sb_tensor *x = NULL;
    sb_status s =
        sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, dims, numbers, NULL, NULL, &x);

    if (s == SB_OK)
        s = sb_quant_model_prepare_calibration(qm, NULL);
    if (s == SB_OK)
        s = sb_quant_model_forward(qm, (const sb_tensor *[]){x}, 1, NULL, 0);
    if (s == SB_OK)
        s = sb_quant_model_calc_qparams(qm);
    sb_tensor_free(x);
    return s;
}

int main(void)
{
    sb_plugin_param param = SB_PLUGIN_PARAM_INIT;
    const sb_plugin_param *params[] = {&param};
    sb_observer_plugin observer = SB_OBSERVER_PLUGIN_INIT;
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;
    sb_quant_model *qm = NULL;

    param.key = "SIGMAS";
    param.help = "how many standard deviations on each side of the mean";
    param.preset = 3;
    param.min = 0.1;
    param.max = 100;
    observer.name = "sigmas";
    observer.summary = "mean plus and minus some standard deviations";
    observer.on_threads = 1; /* sigmas_range() changes nothing that is shared */
    observer.params = params;
    observer.n_params = 1;
    observer.range = sigmas_range;
    opt.config_text = config;
    sb_status s = sb_ctx_create(NULL, &ctx);
    if (s == SB_OK)
        s = sb_ctx_add_observer(ctx, &observer);
    if (s == SB_OK)
        s = sb_model_parse(ctx, text, &model);
    if (s == SB_OK)
        s = sb_quant_model_create(model, &opt, &qm);
    if (s == SB_OK)
        s = calibrate(ctx, qm);
    for (size_t i = 0; s == SB_OK && i < sb_quant_model_quantizer_count(qm);
         i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);

        printf("%s: %s, scale %.4f\n", q->name, q->observer,
               (double)q->scale[0]);
    }
    if (s == SB_OK) /* bins are about 1/8000 of the range wide */
        printf("wanted: %.4f\n", 2 * sqrt(5) / 255);
    else
        printf("%s\n", sb_ctx_error(ctx));
    sb_quant_model_free(qm);
    sb_model_free(model);
    sb_ctx_free(ctx);
    return s != SB_OK;
}
