/* Learning from a teacher: its outputs instead of labels, and results in
 * between, which become outputs of a copy of it. */
#include <math.h>
#include <string.h>

#include "api/model.h"
#include "base/str.h"
#include "train/trainer.h"

/* ---- life --------------------------------------------------------------- */

sb_status sb_distill_features(sb_trainer *t, sb_learn_options *out)
{
    const sb_param_strings *names = &t->keys.features;

    if (names->n && !t->opt.teacher)
        return sb_yaml_fail(
            t->doc, sb_yaml_get(t->doc->root, "FEATURES"),
            "FEATURES are learned from a teacher, and there is none");
    t->features = sb_alloc(t->ctx, names->n + 1, sizeof *t->features);
    if (!t->features)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < names->n; i++) {
        size_t len = strcspn(names->v[i], "=");
        char *own = sb_alloc(t->ctx, len + 1, 1);

        if (!own)
            return SB_NO_MEMORY;
        memcpy(own, names->v[i], len);
        t->features[i] = own;
    }
    out->features = t->features;
    out->n_features = names->n;
    out->feature_weight = t->keys.feature_weight;
    return SB_OK;
}

/* The teacher with features behind its outputs. */
static sb_status distill_outputs(const sb_trainer *t, sb_graph *g)
{
    for (size_t i = 0; i < t->keys.features.n; i++) {
        const char *equals = strchr(t->keys.features.v[i], '=');
        const char *name = equals ? equals + 1 : t->keys.features.v[i];
        sb_value_id v = sb_graph_find_value(g, name);

        if (v == SB_NONE || sb_graph_value(g, v)->is_constant)
            return sb_yaml_fail(t->doc, sb_yaml_get(t->doc->root, "FEATURES"),
                                "FEATURES: the teacher has no result '%s'",
                                name);
        SB_TRY(sb_graph_add_output(g, v));
    }
    return SB_OK;
}

sb_status sb_distill_open(sb_trainer *t)
{
    sb_graph *g = NULL;
    sb_model *model = NULL;

    SB_TRY(sb_graph_clone(t->opt.teacher->graph, &g));
    sb_status status = distill_outputs(t, g);
    if (status != SB_OK) {
        sb_graph_free(g);
        return status;
    }
    t->n_teacher_out = g->n_outputs;
    SB_TRY(sb_model_wrap(g, &model));
    t->teacher_out =
        sb_alloc(t->ctx, t->n_teacher_out + 1, sizeof *t->teacher_out);
    status = t->teacher_out ? sb_session_create(model, NULL, &t->teacher)
                            : SB_NO_MEMORY;
    sb_model_free(model);
    return status;
}

void sb_distill_close(sb_trainer *t)
{
    for (size_t i = 0; t->features && i < t->keys.features.n; i++)
        sb_free(t->ctx, (void *)(uintptr_t)t->features[i]);
    sb_free(t->ctx, t->features);
    sb_free(t->ctx, t->teacher_out);
    sb_session_free(t->teacher);
}

/* ---- steps -------------------------------------------------------------- */

/* Does the teacher end with probabilities?  Their logarithms are logits. */
static bool are_probabilities(const sb_tensor *y)
{
    const float *v = sb_tensor_data(y);
    const int64_t *dims = sb_tensor_dims(y);
    int64_t n = sb_tensor_elements(y), rows = n ? dims[0] : 0;

    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;

        for (int64_t k = 0; k < n / rows; k++, v++) {
            if (!(*v >= 0))
                return false;
            sum += (double)*v;
        }
        if (fabs(sum - 1) > 1e-3)
            return false;
    }
    return rows > 0;
}

/* The teacher's first output for the batch, borrowed. */
static sb_status ask_teacher(sb_trainer *t, const sb_batch *batch,
                             const sb_tensor **out)
{
    SB_TRY(sb_session_run_batch(t->teacher, batch, t->teacher_out,
                                t->n_teacher_out));
    *out = t->teacher_out[0];
    if (!sb_dtype_is_float((*out)->dtype) || sb_tensor_rank(*out) < 1)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "the teacher's first output has type %s, want float",
                       sb_dtype_name(sb_tensor_dtype(*out)));
    return SB_OK;
}

sb_status sb_distill_target(sb_trainer *t, const sb_batch *batch)
{
    const sb_tensor *y = NULL;

    SB_TRY(ask_teacher(t, batch, &y));
    sb_tensor_free(t->target);
    t->target = NULL;
    SB_TRY(sb_tensor_create(t->ctx, SB_DTYPE_F32, sb_tensor_rank(y),
                            sb_tensor_dims(y), &t->target));
    float *v = sb_tensor_data_mutable(t->target);
    int64_t n = sb_tensor_elements(t->target);

    sb_convert(y->dtype, y->data, SB_DTYPE_F32, v, (size_t)n);
    if (t->keys.loss <= SB_TRAIN_LOSS_CROSS_ENTROPY &&
        are_probabilities(t->target))
        for (int64_t i = 0; i < n; i++)
            v[i] = logf(fmaxf(v[i], 1e-30f));
    size_t more = t->keys.features.n;
    return sb_learner_set_features(
        t->learner, t->teacher_out + (t->n_teacher_out - more), more);
}

sb_status sb_distill_classes(sb_trainer *t, const sb_batch *batch, int64_t *out)
{
    const sb_tensor *y = NULL;

    SB_TRY(ask_teacher(t, batch, &y));
    const float *v = sb_tensor_data(y);
    int64_t per_row = sb_tensor_elements(y) / (int64_t)batch->count;
    for (size_t i = 0; i < batch->count; i++, v += per_row) {
        out[i] = per_row > 0 ? 0 : -1;
        for (int64_t c = 1; c < per_row; c++)
            out[i] = v[c] > v[out[i]] ? c : out[i];
    }
    return SB_OK;
}
