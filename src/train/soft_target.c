/* Targets that are distributions over classes: mixed samples (H. Zhang et al.,
 * mixup, arXiv 1710.09412), and labels beside what a teacher says.
 *
 * The cross-entropy with a distribution q differs from the divergence of q by
 * the entropy of q alone, so that one loss serves them all: its target are the
 * logarithms of q.  Since cross-entropy is linear in q, labels that take a
 * share of q count as much as a second loss with that weight. */
#include <math.h>
#include <string.h>

#include "api/model.h"
#include "base/rng.h"
#include "train/trainer.h"

/* ---- how much of each --------------------------------------------------- */

/* G. Marsaglia, W. Tsang, A simple method for generating gamma variables, 2000;
 * below 1 by the power that lifts it there. */
static double gamma_draw(sb_rng *rng, double shape)
{
    double lift = 1;

    if (shape < 1)
        lift = pow(1 - sb_rng_uniform(rng), 1 / shape);
    double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = sb_rng_normal(rng), v = 1 + c * x;
        double u = 1 - sb_rng_uniform(rng);

        v = v * v * v;
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return lift * d * v;
    }
}

double sb_mixup_share(double alpha, uint64_t seed, size_t epoch, size_t step)
{
    sb_rng rng;

    sb_rng_init(&rng, seed * UINT64_C(0x9e3779b97f4a7c15) +
                          (uint64_t)epoch * UINT64_C(0xbf58476d1ce4e5b9) +
                          (uint64_t)step);
    double a = gamma_draw(&rng, alpha), b = gamma_draw(&rng, alpha);
    double share = a + b > 0 ? a / (a + b) : 1;
    return share < 0.5 ? 1 - share : share;
}

/* ---- samples ------------------------------------------------------------ */

/* Samples are mixed two by two, so that ranks with a slice of even size each
 * have the pairs of the whole batch; the last of an odd number stays alone. */
static size_t mix_partner(size_t row, size_t rows)
{
    size_t other = row ^ 1;

    return other < rows ? other : row;
}

static void mix_rows(const sb_tensor *from, double share, sb_tensor *to)
{
    const float *x = from->data;
    float *y = to->data, own = (float)share, other = (float)(1 - share);
    int64_t rows = from->dims[0], n = rows ? sb_tensor_count(from) / rows : 0;

    for (int64_t r = 0; r < rows; r++) {
        const float *with =
            x + (int64_t)mix_partner((size_t)r, (size_t)rows) * n;

        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = own * x[r * n + i] + other * with[i];
    }
}

static void mix_free(sb_batch *mixed, const sb_batch *batch, sb_ctx *ctx)
{
    for (size_t i = 0; mixed->inputs && i < mixed->n_inputs; i++)
        if (mixed->inputs[i] != batch->inputs[i])
            sb_tensor_free((sb_tensor *)(uintptr_t)mixed->inputs[i]);
    sb_free(ctx, (void *)(uintptr_t)mixed->inputs);
}

/* Inputs of floats that count the samples in the first axis. */
static sb_status mix_inputs(sb_trainer *t, const sb_batch *batch, double share,
                            sb_batch *out)
{
    const sb_tensor **inputs =
        sb_alloc(t->ctx, batch->n_inputs + 1, sizeof *inputs);
    bool mixed = false;

    *out = *batch;
    out->inputs = inputs;
    if (!inputs)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < batch->n_inputs; i++)
        inputs[i] = batch->inputs[i];
    for (size_t i = 0; i < batch->n_inputs; i++) {
        const sb_tensor *x = batch->inputs[i];
        sb_tensor *y = NULL;

        if (x->dtype != SB_DTYPE_F32 || x->rank < 1 || batch->whole ||
            (batch->axes && batch->axes[i] != 0) ||
            x->dims[0] != (int64_t)batch->count)
            continue;
        SB_TRY(sb_tensor_copy(t->ctx, x, &y));
        inputs[i] = y;
        mix_rows(x, share, y);
        mixed = true;
    }
    if (!mixed)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "MIXUP: no input can be mixed, want one of float32 "
                       "with samples in the first axis");
    return SB_OK;
}

/* ---- targets ------------------------------------------------------------ */

static sb_status soft_check_label(const sb_trainer *t, int64_t label,
                                  int64_t classes)
{
    if (label >= 0 && label < classes)
        return SB_OK;
    return sb_fail(t->ctx, SB_BAD_DATA,
                   "label %lld: the network has classes 0 to %lld",
                   (long long)label, (long long)(classes - 1));
}

/* Makes probabilities of the teacher's logits, or zeros, in place. */
static void soft_begin(const sb_soft_rows *r, float *q, bool teacher)
{
    double sum = 0, most = (double)q[0];

    for (int64_t c = 1; c < r->classes; c++)
        most = fmax(most, (double)q[c]);
    for (int64_t c = 0; c < r->classes; c++)
        sum += exp((double)q[c] - most);
    for (int64_t c = 0; c < r->classes; c++)
        q[c] = teacher ? (float)(exp((double)q[c] - most) / sum) : 0;
}

double sb_soft_fill(const sb_soft_rows *r, float *logits)
{
    double labels = r->labels_share, entropy = 0;

    for (size_t i = 0; i < r->rows; i++) {
        float *q = logits + (int64_t)i * r->classes;
        int64_t own = r->labels[i], other = r->labels[mix_partner(i, r->rows)];

        soft_begin(r, q, labels < 1);
        for (int64_t c = 0; c < r->classes; c++) {
            double hard =
                (c == own ? r->mix : 0) + (c == other ? 1 - r->mix : 0);
            double p =
                hard * (1 - r->smoothing) + r->smoothing / (double)r->classes;

            p = labels * p + (1 - labels) * (double)q[c];
            entropy -= p > 0 ? p * log(p) / (double)r->rows : 0;
            q[c] = (float)log(fmax(p, 1e-30));
        }
    }
    return labels < 1 ? 0 : entropy;
}

/* A distribution for each sample without a teacher. */
static sb_status soft_room(sb_trainer *t, const sb_batch *batch)
{
    const sb_value_info *out = sb_model_output(t->model, 0);
    int64_t dims[2] = {(int64_t)batch->count, 0};

    if (out && out->rank == 2)
        dims[1] = out->dims[1];
    if (dims[1] < 1)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "MIXUP: the output is %s, want samples by a known "
                       "number of classes",
                       out ? out->text : "missing");
    sb_tensor_free(t->target);
    t->target = NULL;
    return sb_tensor_create(t->ctx, SB_DTYPE_F32, 2, dims, &t->target);
}

static sb_status soft_labels(sb_trainer *t, const sb_batch *batch, double mix,
                             double *entropy)
{
    sb_soft_rows rows = {.labels = batch->labels,
                         .rows = batch->count,
                         .mix = mix,
                         .smoothing = t->keys.smoothing,
                         .labels_share = t->teacher ? t->keys.labels : 1};

    char found[128];

    *entropy = 0;
    if (t->teacher && !(t->keys.labels > 0))
        return SB_OK;
    if (!batch->labels)
        return sb_fail(t->ctx, SB_BAD_DATA, "the samples have no labels");
    if (!t->teacher)
        SB_TRY(soft_room(t, batch));
    else if (t->target->rank != 2 ||
             t->target->dims[0] != (int64_t)batch->count)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "LABELS: the teacher's first output is %s, want samples "
                       "by classes",
                       sb_tensor_describe(t->target, found, sizeof found));
    rows.classes =
        batch->count ? sb_tensor_count(t->target) / (int64_t)batch->count : 0;
    for (size_t i = 0; i < batch->count; i++)
        SB_TRY(soft_check_label(t, batch->labels[i], rows.classes));
    *entropy = sb_soft_fill(&rows, t->target->data);
    return SB_OK;
}

bool sb_soft_wanted(const sb_train_keys *keys, bool teacher)
{
    return keys->mixup > 0 || teacher;
}

sb_status sb_soft_step(sb_trainer *t, const sb_batch *batch, double *loss)
{
    bool mixes = t->keys.mixup > 0;
    double entropy = 0, mix = mixes ? sb_mixup_share(t->keys.mixup, t->opt.seed,
                                                     t->at.epoch, t->at.step)
                                    : 1;
    sb_batch used = *batch;
    sb_status status = mixes ? mix_inputs(t, batch, mix, &used) : SB_OK;

    if (status == SB_OK && t->teacher)
        status = sb_distill_target(t, &used);
    if (status == SB_OK)
        status = soft_labels(t, batch, mix, &entropy);
    if (status == SB_OK)
        status = sb_learner_step_batch_to(t->learner, &used, t->target, loss);
    if (status == SB_OK)
        *loss += entropy;
    if (mixes)
        mix_free(&used, batch, t->ctx);
    return status;
}
