/* MelWeightMatrix: triangular filters [dft_length / 2 + 1, num_mel_bins].
 *
 * The edges of the triangles are spaced evenly on the mel scale,
 * mel = 2595 log10(1 + hertz / 700), and rounded down to bins of the
 * spectrum.  As in the operator's reference the spacing is the mel range
 * divided by num_mel_bins + 2. */
#include <math.h>
#include <string.h>

#include "ops/infer_util.h"

enum { MEL_BINS, DFT_LENGTH, SAMPLE_RATE, LOWER, UPPER };

typedef struct mel_attrs {
    int64_t output_datatype;
} mel_attrs;

static const sb_attr_def mel_attr_defs[] = {
    {.name = "output_datatype",
     SB_ATTR_INT,
     offsetof(mel_attrs, output_datatype),
     .i = SB_DTYPE_F32},
    {0},
};

static sb_status mel_infer(sb_infer *in)
{
    const mel_attrs *a = in->attrs;
    sb_shape out = sb_shape_of_rank(2);
    int64_t bins = 0, length = 0;

    if (!sb_dtype_valid((int)a->output_datatype) ||
        sb_dtype_size((sb_dtype)a->output_datatype) == 0)
        return sb_infer_fail(in, "output_datatype is %lld",
                             (long long)a->output_datatype);
    if (sb_infer_ints(in, DFT_LENGTH, &length, 1) == 1) {
        if (length < 0)
            return sb_infer_fail(in, "dft_length is %lld", (long long)length);
        out.dim[0] = length / 2 + 1;
    }
    if (sb_infer_ints(in, MEL_BINS, &bins, 1) == 1) {
        if (bins < 0)
            return sb_infer_fail(in, "num_mel_bins is %lld", (long long)bins);
        out.dim[1] = bins;
    }
    sb_infer_set(in, 0, (sb_dtype)a->output_datatype, &out);
    return SB_OK;
}

static sb_status mel_prepare(sb_kernel *k)
{
    for (uint32_t i = MEL_BINS; i <= UPPER; i++) {
        const sb_tensor *t = sb_kernel_in(k, i);
        bool fits = t && sb_tensor_count(t) == 1 &&
                    (i < LOWER ? sb_dtype_is_integral(t->dtype)
                               : sb_dtype_is_float(t->dtype));

        if (!fits)
            return sb_kernel_fail(k, SB_BAD_MODEL, "input %u must be one %s", i,
                                  i < LOWER ? "integer" : "float");
    }
    return SB_OK;
}

typedef struct mel_scale {
    double low, step;
    double n_bin, rate; /* bin = n_bin * hertz / rate */
} mel_scale;

/* Spectrum bin of edge number i. */
static int64_t mel_edge(const mel_scale *m, int64_t i)
{
    double hertz = 700 * (pow(10, (m->low + (double)i * m->step) / 2595) - 1);
    double bin = floor(m->n_bin * hertz / m->rate);

    return bin > -1e9 && bin < 1e9 ? (int64_t)bin : -1;
}

static double to_mel(double hertz)
{
    return 2595 * log10(1 + hertz / 700);
}

static void mel_weight_matrix_put(sb_tensor *y, int64_t row, int64_t col,
                                  double v)
{
    size_t bytes = sb_dtype_size(y->dtype);

    if (row >= 0 && row < y->dims[0])
        sb_convert(SB_DTYPE_F64, &v, y->dtype,
                   (char *)y->data + (size_t)(row * y->dims[1] + col) * bytes,
                   1);
}

static sb_status mel_forward(sb_kernel *k)
{
    sb_tensor *y = k->out[0];
    int64_t bins = y->dims[1];
    int64_t length = sb_tensor_get_i64(k->in[DFT_LENGTH], 0);
    int64_t rate = sb_tensor_get_i64(k->in[SAMPLE_RATE], 0);
    double low = to_mel(sb_tensor_get_f64(k->in[LOWER], 0));
    double high = to_mel(sb_tensor_get_f64(k->in[UPPER], 0));
    const mel_scale m = {
        .low = low,
        .step = (high - low) / (double)(bins + 2),
        .n_bin = (double)length + 1,
        .rate = (double)rate,
    };

    if (rate <= 0)
        return sb_kernel_fail(k, SB_BAD_DATA, "sample_rate is %lld",
                              (long long)rate);
    memset(y->data, 0, sb_tensor_bytes(y));
    for (int64_t i = 0; i < bins; i++) {
        int64_t left = mel_edge(&m, i), center = mel_edge(&m, i + 1);
        int64_t right = mel_edge(&m, i + 2);

        if (left < 0 || right > y->dims[0] || center < left || right < center)
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "mel bin %lld lies outside the spectrum",
                                  (long long)i);
        if (left == center)
            mel_weight_matrix_put(y, center, i, 1);
        for (int64_t j = left; left < center && j <= center; j++)
            mel_weight_matrix_put(y, j, i,
                                  (double)(j - left) / (double)(center - left));
        for (int64_t j = center; j < right; j++)
            mel_weight_matrix_put(
                y, j, i, (double)(right - j) / (double)(right - center));
    }
    return SB_OK;
}

const sb_op_def sb_op_mel_weight_matrix = {
    .name = "MelWeightMatrix",
    .since = 17,
    .in_min = 5,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(mel_attrs),
    .attrs = mel_attr_defs,
    .infer = mel_infer,
    .prepare = mel_prepare,
    .forward = mel_forward,
};
