/* Quantizer "adaround": decides for each weight whether to round up or down, so
 * that the layer's output changes least (M. Nagel et al., Up or down? Adaptive
 * rounding for post-training quantization, arXiv 2004.10568).
 *
 * The loss (soft_rounding.h) is |y' - y|^2, summed over channels, mean over the
 * rest.  With the Gram matrix G of the inputs it is tr(D G D^T) for the error D
 * of the weight: a step costs one product of [rows, cols] and [cols, cols] for
 * any number of samples, and has no noise.
 *
 * Its curvature along h of element i is 2 G[i,i] scale^2.  Half of that is the
 * unit of the element's slope and of LAMBDA, so that what is learned does not
 * depend on the units of inputs and weights, nor on other rows; a LAMBDA above
 * 1/4 brings each h to a side.  (With one LAMBDA for absolute losses, layers
 * with outputs in the hundreds stay at their fractions to the end, where the
 * loss is zero, and are then rounded to nearest.)
 *
 * A row that comes out worse than rounded to nearest is rounded to nearest. */
#include <float.h>

#include "dnn/dnn.h"
#include "quant/quantize/quantizer.h"
#include "quant/quantize/soft_rounding.h"

enum { ADAROUND_POLL = 16 };

typedef struct adaround_params {
    int64_t steps;
    double rate, lambda;
} adaround_params;

static const sb_param_def adaround_table[] = {
    {.name = "STEPS",
     .type = SB_PARAM_INT,
     .offset = offsetof(adaround_params, steps),
     .preset = "20000",
     .min = 1,
     .max = 1e7,
     .help = "steps of learning, for each layer"},
    {.name = "LEARNING_RATE",
     .type = SB_PARAM_FLOAT,
     .offset = offsetof(adaround_params, rate),
     .preset = "0",
     .max = 1,
     .help =
         "of Adam; 0: the rate that goes with STEPS, 40 / STEPS and at most "
         "0.1"},
    {.name = "LAMBDA",
     .type = SB_PARAM_FLOAT,
     .offset = offsetof(adaround_params, lambda),
     .preset = "1",
     .max = 1e6,
     .help = "weight of the term that drives weights to one side; the unit is "
             "what one step of the weight alone adds to the loss"},
    {0},
};

typedef struct adaround_job {
    const sb_rounding *r;
    sb_soft_rounding soft;
    float *error, *grad; /* D, and D G */
    double *nearest;     /* [rows] losses, rounded to nearest */
    sb_dnn_gemm *gemm;
    sb_dnn_gemm_args args;
} adaround_job;

static void adaround_start(adaround_job *j)
{
    const sb_rounding *r = j->r;
    int64_t n = sb_rounding_groups(r);

    for (int64_t i = 0; i < r->rows * r->cols; i++) {
        int64_t col = i % r->cols, at = i / r->cols * n + col / r->group;
        float curve = r->gram[col * (r->cols + 1)] * r->scale[at];

        sb_soft_set(&j->soft, (size_t)i, r->w[i], r->scale[at],
                    r->zero_point[at], r->qmin, r->qmax);
        j->soft.slope[i] = curve >= FLT_MIN ? 1 / curve : 0;
    }
}

static sb_status adaround_learn(adaround_job *j)
{
    const adaround_params *p = j->r->params;
    /* Gradients without noise may be followed back and forth: of 10, 40 and
     * 100, on layers of five networks, 10 leaves a larger loss after 2,000
     * steps; after 20,000 all are alike. */
    const double way = 40;
    sb_soft_step how = {.steps = p->steps,
                        .rate = sb_soft_rate(p->rate, way, p->steps),
                        .lambda = p->lambda,
                        .gradient = j->grad,
                        .factor = 2};

    for (; how.step < p->steps; how.step++) {
        if (how.step % ADAROUND_POLL == 0)
            SB_TRY(sb_ctx_poll(j->r->ctx));
        sb_soft_values(&j->soft, j->r->w, j->error);
        SB_TRY(sb_dnn_gemm_run(j->gemm, &j->args));
        sb_soft_learn(&j->soft, &how);
    }
    return SB_OK;
}

/* The loss of a row, by D and D G. */
static double adaround_loss(const adaround_job *j, int64_t row)
{
    int64_t n = j->r->cols;
    double sum = 0;

    for (int64_t i = row * n; i < (row + 1) * n; i++)
        sum += (double)j->error[i] * (double)j->grad[i];
    return sum;
}

static sb_status adaround_measure_nearest(adaround_job *j)
{
    const sb_rounding *r = j->r;

    for (int64_t i = 0; i < r->rows * r->cols; i++)
        j->error[i] =
            sb_rounding_nearest(r, i / r->cols, i % r->cols, r->w[i]) - r->w[i];
    SB_TRY(sb_dnn_gemm_run(j->gemm, &j->args));
    for (int64_t row = 0; row < r->rows; row++)
        j->nearest[row] = adaround_loss(j, row);
    return SB_OK;
}

static sb_status adaround_take(adaround_job *j)
{
    const sb_rounding *r = j->r;
    int64_t n = r->cols;

    sb_soft_rounded(&j->soft, j->error);
    for (int64_t i = 0; i < r->rows * n; i++)
        j->error[i] -= r->w[i];
    SB_TRY(sb_dnn_gemm_run(j->gemm, &j->args));
    for (int64_t row = 0; row < r->rows; row++)
        j->nearest[row] -= adaround_loss(j, row);
    sb_soft_rounded(&j->soft, j->error);
    for (int64_t i = 0; i < r->rows * n; i++) /* a loss may be no number */
        r->w[i] = j->nearest[i / n] >= 0
                      ? j->error[i]
                      : sb_rounding_nearest(r, i / n, i % n, r->w[i]);
    return SB_OK;
}

/* The product D G, with G packed once. */
static sb_status adaround_run(adaround_job *j)
{
    const sb_rounding *r = j->r;
    const sb_dnn_gemm_desc desc = {.what = "adaround",
                                   .m = r->rows,
                                   .n = r->cols,
                                   .k = r->cols,
                                   .a_row = r->cols,
                                   .a_col = 1,
                                   .b_row = r->cols,
                                   .b_col = 1,
                                   .c_row = r->cols,
                                   .pack = true};
    void *packed = NULL, *scratch = NULL, *once = NULL;

    SB_TRY(sb_dnn_gemm_create(r->ctx, &desc, &j->gemm));
    const sb_dnn_packing *packing = sb_dnn_gemm_packing(j->gemm);
    packed = sb_alloc(r->ctx, packing->bytes + 1, 1);
    once = sb_alloc(r->ctx, packing->scratch + 1, 1);
    scratch = sb_alloc(r->ctx, sb_dnn_gemm_scratch(j->gemm) + 1, 1);
    sb_status status = packed && once && scratch ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK && packing->bytes > 0)
        status = sb_dnn_gemm_pack(j->gemm, r->gram, packed, once);
    j->args = (sb_dnn_gemm_args){.a = j->error,
                                 .b = packing->bytes ? packed : r->gram,
                                 .c = j->grad,
                                 .scratch = scratch};
    if (status == SB_OK)
        status = adaround_measure_nearest(j);
    if (status == SB_OK)
        status = adaround_learn(j);
    if (status == SB_OK)
        status = adaround_take(j);
    sb_free(r->ctx, packed);
    sb_free(r->ctx, once);
    sb_free(r->ctx, scratch);
    sb_dnn_gemm_free(j->gemm);
    return status;
}

enum { OWN_ARRAYS = 2 };

static sb_status adaround_round(sb_rounding *r)
{
    size_t n = (size_t)(r->rows * r->cols);
    adaround_job job = {.r = r};
    float *both = sb_alloc(r->ctx, n + 1, OWN_ARRAYS * sizeof *both);
    sb_status status = sb_soft_init(r->ctx, n, &job.soft);

    job.nearest = sb_alloc(r->ctx, (size_t)r->rows, sizeof *job.nearest);
    if (status == SB_OK && (!both || !job.nearest))
        status = SB_NO_MEMORY;
    if (status == SB_OK) {
        job.error = both;
        job.grad = both + n;
        adaround_start(&job);
        status = adaround_run(&job);
    }
    sb_soft_free(&job.soft);
    sb_free(r->ctx, both);
    sb_free(r->ctx, job.nearest);
    return status;
}

const sb_quantizer_def sb_quantizer_adaround = {
    .name = "adaround",
    .summary =
        "learns for each weight whether to round up or down; needs samples",
    .uses = {[SB_QUANT_WEIGHT] = {.schemes = SB_SCHEMES_ALL},
             [SB_QUANT_ACTIVATION] = {0, "adaround decides for each weight "
                                         "which way to round"}},
    .params = adaround_table,
    .params_size = sizeof(adaround_params),
    .round = adaround_round,
    .round_arrays = SB_SOFT_ARRAYS + OWN_ARRAYS,
    .round_squares = 2, /* the packed one, and what packing takes */
    .round_learns = true,
    .training = {[SB_QUANT_WEIGHT] = &sb_quant_training_fixed},
};
