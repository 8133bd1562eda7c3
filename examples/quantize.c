/* quantize MODEL.onnx DATA.yaml OUT.onnx - quantization in 8 bit from C.
 *
 * Shows the life of a quantized model: create, calibrate on batches, compute
 * scales, look at the simulated result, export. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <sparsebit/sparsebit.h>

/* Runs all batches through the model; returns the status of the last call.  If
 * `sum` is not NULL it receives the sum of all first outputs. */
static sb_status run_all(sb_quant_model *qm, sb_data *data,
                         const sb_model *model, double *sum)
{
    size_t n = sb_model_input_count(model);
    const sb_tensor **in = calloc(n + 1, sizeof(sb_tensor *));
    const sb_tensor *out = NULL;
    const sb_batch *batch = NULL;
    sb_status status = in ? SB_OK : SB_NO_MEMORY;

    sb_data_rewind(data);
    while (status == SB_OK) {
        status = sb_data_next(data, &batch);
        if (status != SB_OK || batch->count == 0)
            break;
        status = sb_model_batch_inputs(model, batch, in, n);
        if (status == SB_OK)
            status = sb_quant_model_forward(qm, in, n, &out, 1);
        for (int64_t i = 0; status == SB_OK && sum; i++) {
            double y;

            if (!sb_tensor_read_f64(out, i, 1, &y))
                break; /* past the last element */
            *sum += fabs(y);
        }
    }
    free(in);
    return status;
}

static sb_status quantize(sb_quant_model *qm, sb_data *data,
                          const sb_model *model, const char *path)
{
    double plain = 0, rounded = 0;
    sb_status status = sb_quant_model_prepare_calibration(qm, NULL);

    if (status == SB_OK)
        status = run_all(qm, data, model, NULL);
    if (status == SB_OK)
        status = sb_quant_model_calc_qparams(qm);
    for (size_t i = 0; status == SB_OK && i < 3; i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);

        if (q && q->n > 0)
            printf("%s: %d bit, %s, scale %g\n", q->name, q->bits, q->scheme,
                   (double)q->scale[0]);
    }
    if (status == SB_OK) /* in float: nothing is switched on yet */
        status = run_all(qm, data, model, &plain);
    sb_quant_model_set_quant(qm, 1, 1);
    if (status == SB_OK)
        status = run_all(qm, data, model, &rounded);
    if (status == SB_OK)
        printf("sum of |outputs|: %.4g in float, %.4g quantized\n", plain,
               rounded);
    return status == SB_OK ? sb_quant_model_export(qm, path, NULL) : status;
}

int main(int argc, char **argv)
{
    sb_data_options data_options = SB_DATA_OPTIONS_INIT;
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;
    sb_quant_model *qm = NULL;
    sb_data *data = NULL;

    if (argc != 4) {
        (void)fprintf(stderr,
                      "usage: quantize MODEL.onnx DATA.yaml OUT.onnx\n");
        return 2;
    }
    if (sb_ctx_create(NULL, &ctx) != SB_OK)
        return 1;
    data_options.samples = 64;
    sb_status status = sb_model_load(ctx, argv[1], &model);
    if (status == SB_OK) /* NULL: 8 bit, as `sparsebit config default` */
        status = sb_quant_model_create(model, NULL, &qm);
    if (status == SB_OK)
        status = sb_data_open(ctx, argv[2], &data_options, &data);
    if (status == SB_OK) /* any numbers, in the types of the inputs */
        status = sb_data_set_model(data, model);
    if (status == SB_OK)
        status = quantize(qm, data, model, argv[3]);
    if (status != SB_OK)
        (void)fprintf(stderr, "quantize: %s\n", sb_ctx_error(ctx));
    sb_data_free(data);
    sb_quant_model_free(qm);
    sb_model_free(model);
    sb_ctx_free(ctx);
    return status == SB_OK ? 0 : 1;
}
