/* Quantizer "adaround": decides for each weight whether to round up or down, so
 * that the layer's output changes least (M. Nagel et al., Up or down? Adaptive
 * rounding for post-training quantization, arXiv 2004.10568).
 *
 * The loss (soft_rounding.h) is |y' - y|^2, summed over channels, mean over the
 * rest.  With the Gram matrix G of the inputs it is tr(D G D^T) for the error D
 * of the weight: a step costs one product of [rows, cols] and [cols, cols] for
 * any number of samples, and has no noise. */
#include <math.h>

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
     .preset = "0.001",
     .min = 1e-9,
     .max = 1,
     .help = "of Adam"},
    {.name = "LAMBDA",
     .type = SB_PARAM_FLOAT,
     .offset = offsetof(adaround_params, lambda),
     .preset = "0.001",
     .min = 0,
     .max = 1e6,
     .help = "weight of the term that drives weights to one side"},
    {0},
};

typedef struct adaround_job {
    const sb_rounding *r;
    sb_soft_rounding soft;
    float *error, *grad; /* D, and D G */
} adaround_job;

static void adaround_start(adaround_job *j)
{
    const sb_rounding *r = j->r;
    int64_t n = sb_rounding_groups(r);

    for (int64_t i = 0; i < r->rows * r->cols; i++) {
        int64_t at = i / r->cols * n + i % r->cols / r->group;

        sb_soft_set(&j->soft, (size_t)i, r->w[i], r->scale[at],
                    r->zero_point[at], r->qmin, r->qmax);
    }
}

static sb_status adaround_learn(adaround_job *j, sb_dnn_gemm *gemm,
                                const sb_dnn_gemm_args *args)
{
    const adaround_params *p = j->r->params;
    sb_soft_step how = {.steps = p->steps,
                        .rate = p->rate,
                        .lambda = p->lambda,
                        .gradient = j->grad,
                        .factor = 2 / fmax(j->r->count, 1)};

    for (; how.step < p->steps; how.step++) {
        if (how.step % ADAROUND_POLL == 0)
            SB_TRY(sb_ctx_poll(j->r->ctx));
        sb_soft_values(&j->soft, j->r->w, j->error);
        SB_TRY(sb_dnn_gemm_run(gemm, args));
        sb_soft_learn(&j->soft, &how);
    }
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
    sb_dnn_gemm *gemm = NULL;
    void *packed = NULL, *scratch = NULL, *once = NULL;

    SB_TRY(sb_dnn_gemm_create(r->ctx, &desc, &gemm));
    const sb_dnn_packing *packing = sb_dnn_gemm_packing(gemm);
    packed = sb_alloc(r->ctx, packing->bytes + 1, 1);
    once = sb_alloc(r->ctx, packing->scratch + 1, 1);
    scratch = sb_alloc(r->ctx, sb_dnn_gemm_scratch(gemm) + 1, 1);
    sb_status status = packed && once && scratch ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK && packing->bytes > 0)
        status = sb_dnn_gemm_pack(gemm, r->gram, packed, once);
    const sb_dnn_gemm_args args = {.a = j->error,
                                   .b = packing->bytes ? packed : r->gram,
                                   .c = j->grad,
                                   .scratch = scratch};
    if (status == SB_OK)
        status = adaround_learn(j, gemm, &args);
    sb_free(r->ctx, packed);
    sb_free(r->ctx, once);
    sb_free(r->ctx, scratch);
    sb_dnn_gemm_free(gemm);
    return status;
}

enum { OWN_ARRAYS = 2 };

static sb_status adaround_round(sb_rounding *r)
{
    size_t n = (size_t)(r->rows * r->cols);
    adaround_job job = {.r = r};
    float *both = sb_alloc(r->ctx, n + 1, OWN_ARRAYS * sizeof *both);
    sb_status status = sb_soft_init(r->ctx, n, &job.soft);

    if (status == SB_OK && both) {
        job.error = both;
        job.grad = both + n;
        adaround_start(&job);
        status = adaround_run(&job);
    }
    if (status == SB_OK && both)
        sb_soft_rounded(&job.soft, r->w);
    sb_soft_free(&job.soft);
    sb_free(r->ctx, both);
    return both ? status : SB_NO_MEMORY;
}

const sb_quantizer_def sb_quantizer_adaround = {
    .name = "adaround",
    .summary = "decides for each weight whether to round up or down, by "
               "learning; needs samples",
    .uses = {[SB_QUANT_WEIGHT] = {.schemes = SB_SCHEMES_ALL},
             [SB_QUANT_ACTIVATION] = {0, "adaround decides for each weight "
                                         "which way to round"}},
    .params = adaround_table,
    .params_size = sizeof(adaround_params),
    .round = adaround_round,
    .round_arrays = SB_SOFT_ARRAYS + OWN_ARRAYS,
    .round_squares = 2, /* the packed one, and what packing takes */
    .round_learns = true,
};
