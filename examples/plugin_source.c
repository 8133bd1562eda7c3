/* plugin_source - calibration samples that a program makes itself.
 *
 * The source "waves" makes sine waves; any iterator, database or camera can
 * stand in its place.  A network is calibrated on it and quantized. */
#include <math.h>
#include <stdio.h>

#include <sparsebit/plugin.h>

enum { SAMPLES = 8, LENGTH = 16 };

typedef struct {
    sb_ctx *ctx;
    float values[LENGTH];
    sb_tensor *tensor; /* around `values` */
    int opened, closed;
} waves;

static sb_status waves_open(void *user, sb_source_call *call, void **state)
{
    const int64_t dims[] = {LENGTH};
    waves *w = user;
    sb_status s = sb_source_set_count(call, SAMPLES, 1, NULL, NULL);

    if (s == SB_OK)
        s = sb_tensor_wrap(w->ctx, SB_DTYPE_F32, 1, dims, w->values, NULL, NULL,
                           &w->tensor);
    w->opened += s == SB_OK;
    *state = w;
    return s;
}

static void waves_close(void *user, void *state)
{
    waves *w = state;

    (void)user;
    sb_tensor_free(w->tensor);
    w->closed++;
}

static sb_status waves_sample(void *user, void *state, size_t i,
                              const sb_tensor **tensors)
{
    waves *w = state;

    (void)user;
    for (int k = 0; k < LENGTH; k++)
        w->values[k] = (float)(i + 1) * sinf((float)k * 0.5f);
    tensors[0] = w->tensor;
    return SB_OK;
}

static const char text[] = "graph g(x: f32[N,16]) -> (y) {\n"
                           "  w: f32[16,4] = random(1)\n"
                           "  y = MatMul(x, w) \"fc\"\n"
                           "}\n";

static sb_status calibrate(sb_quant_model *qm, sb_data *data)
{
    const sb_batch *batch = NULL;
    sb_status s = sb_quant_model_prepare_calibration(qm, NULL);

    while (s == SB_OK && (s = sb_data_next(data, &batch)) == SB_OK &&
           batch->count > 0) {
        printf("batch of %zu, from sample %zu\n", batch->count, batch->first);
        s = sb_quant_model_forward(qm, batch->inputs, batch->n_inputs, NULL, 0);
    }
    return s == SB_OK ? sb_quant_model_calc_qparams(qm) : s;
}

int main(void)
{
    sb_source_plugin source = SB_SOURCE_PLUGIN_INIT;
    waves w = {NULL, {0}, NULL, 0, 0};
    sb_model *model = NULL;
    sb_quant_model *qm = NULL;
    sb_data *data = NULL;
    sb_status s = sb_ctx_create(NULL, &w.ctx);

    source.name = "waves";
    source.summary = "sine waves that grow";
    source.user = &w;
    source.open = waves_open;
    source.close = waves_close;
    source.sample = waves_sample;
    if (s == SB_OK)
        s = sb_ctx_add_source(w.ctx, &source);
    if (s == SB_OK)
        s = sb_data_parse(w.ctx, "SOURCE: waves\nBATCH: 5\n", "waves.yaml",
                          NULL, &data);
    if (s == SB_OK)
        s = sb_model_parse(w.ctx, text, &model);
    if (s == SB_OK)
        s = sb_quant_model_create(model, NULL, &qm);
    if (s == SB_OK)
        s = calibrate(qm, data);
    const sb_quantizer_info *q =
        s == SB_OK ? sb_quant_model_quantizer(qm, 0) : NULL;
    if (q) /* of the largest wave: 8 (max - min) / 255 */
        printf("%s: scale %.5f\n", q->name, (double)q->scale[0]);
    else
        printf("%s\n", sb_ctx_error(w.ctx));
    sb_quant_model_free(qm);
    sb_model_free(model);
    sb_data_free(data);
    printf("opened %d, closed %d\n", w.opened, w.closed);
    sb_ctx_free(w.ctx);
    return s != SB_OK;
}
