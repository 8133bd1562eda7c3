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
static sb_status run_all(sb_ctx *ctx, sb_quant_model *qm, sb_data *data,
                         const sb_model *model, double *sum)
{
    size_t n_in = sb_model_input_count(model);
    size_t n_out = sb_model_output_count(model);
    const char **names = calloc(n_in + 1, sizeof *names);
    const sb_tensor **in = calloc(n_in + 1, sizeof(sb_tensor *));
    const sb_tensor **out = calloc(n_out + 1, sizeof(sb_tensor *));
    sb_status status = names && in && out ? SB_OK : SB_NO_MEMORY;
    sb_batch batch;

    for (size_t i = 0; status == SB_OK && i < n_in; i++)
        names[i] = sb_model_input(model, i).name;
    sb_data_rewind(data);
    while (status == SB_OK) {
        status = sb_data_next(data, &batch);
        if (status != SB_OK || batch.count == 0)
            break;
        status = sb_batch_inputs(ctx, &batch, names, n_in, in);
        if (status == SB_OK)
            status = sb_quant_model_forward(qm, in, out);
        const float *y = status == SB_OK && sum ? sb_tensor_data(out[0]) : NULL;
        for (int64_t i = 0; y && i < sb_tensor_elements(out[0]); i++)
            *sum += fabs((double)y[i]);
    }
    free(names);
    free(in);
    free(out);
    return status;
}

static sb_status quantize(sb_ctx *ctx, sb_quant_model *qm, sb_data *data,
                          const sb_model *model, const char *path)
{
    double plain = 0, rounded = 0;
    sb_status status = sb_quant_model_prepare_calibration(qm, NULL);

    if (status == SB_OK)
        status = run_all(ctx, qm, data, model, NULL);
    if (status == SB_OK)
        status = sb_quant_model_calc_qparams(qm);
    for (size_t i = 0; status == SB_OK && i < 3; i++) {
        if (i >= sb_quant_model_quantizer_count(qm))
            break;
        sb_quantizer_info q = sb_quant_model_quantizer(qm, i);
        if (q.n > 0)
            printf("%s: %d bit, %s, scale %g\n", q.name, q.bits, q.scheme,
                   (double)q.scale[0]);
    }
    if (status == SB_OK) /* in float: nothing is switched on yet */
        status = run_all(ctx, qm, data, model, &plain);
    sb_quant_model_set_quant(qm, 1, 1);
    if (status == SB_OK)
        status = run_all(ctx, qm, data, model, &rounded);
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
        status = sb_quant_model_create(ctx, model, NULL, &qm);
    if (status == SB_OK)
        status = sb_data_open(ctx, argv[2], &data_options, &data);
    if (status == SB_OK) {
        sb_data_fit(data, model); /* any numbers, in the types of the inputs */
        status = quantize(ctx, qm, data, model, argv[3]);
    }
    if (status != SB_OK)
        (void)fprintf(stderr, "quantize: %s\n", sb_ctx_error(ctx));
    sb_data_free(data);
    sb_quant_model_free(qm);
    sb_model_free(model);
    sb_ctx_free(ctx);
    return status == SB_OK ? 0 : 1;
}
