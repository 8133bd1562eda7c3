/* What tests of pruning share. */
#include "prunetest.h"

const char chain[] = "graph net(x: f32[1,2]) -> (y: f32[1,3]) {\n"
                     "a: f32[2,4] = [1,2,0,-4, 0,0,3,0]\n"
                     "ab: f32[4] = [10,20,30,40]\n"
                     "b: f32[4,3] = [1,1,1, 1,1,1, 1,1,1, 1,1,1]\n"
                     "h = Gemm(x, a, ab) \"fc1\" @ head.fc1\n"
                     "r = Relu(h) \"act\"\n"
                     "y = MatMul(r, b) \"fc2\" @ head.fc2\n}";

sb_model *prune_parse(const char *text)
{
    sb_model *model = NULL;

    assert_ok(sb_model_parse(test_ctx(), text, &model));
    return model;
}

sb_status prune_try(const char *text, const char *config, sb_prune **out)
{
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    sb_model *model = prune_parse(text);

    opt.config_text = config;
    opt.seed = 3;
    sb_status status = sb_prune_create(model, &opt, out);
    sb_model_free(model);
    return status;
}

sb_prune *prune_net(const char *text, const char *config, const sb_tensor *data)
{
    sb_prune *p = NULL;

    assert_ok(prune_try(text, config, &p));
    if (data)
        assert_ok(sb_prune_forward(p, &data, 1));
    assert_ok(sb_prune_apply(p, NULL));
    return p;
}

const sb_prune_report *prune_report(sb_prune *p)
{
    const sb_prune_report *r = NULL;

    assert_ok(sb_prune_report_get(p, &r));
    return r;
}

const sb_prune_layer *prune_layer(sb_prune *p, const char *name)
{
    const sb_prune_report *r = prune_report(p);

    for (size_t i = 0; i < r->n_layers; i++)
        if (strcmp(r->layers[i]->name, name) == 0)
            return r->layers[i];
    fail_msg("no layer '%s'", name);
    return NULL;
}

void assert_cut(sb_prune *p, const char *value, int axis, const char *want)
{
    const sb_prune_report *r = prune_report(p);
    char got[256] = "";

    for (size_t i = 0; i < r->n_cuts; i++)
        if (strcmp(r->cuts[i]->value, value) == 0 && r->cuts[i]->axis == axis)
            for (size_t k = 0; k < r->cuts[i]->n_indices; k++)
                snprintf(got + strlen(got), sizeof got - strlen(got), "%s%lld",
                         k ? "," : "", (long long)r->cuts[i]->indices[k]);
    assert_string_equal(got, want);
}

sb_tensor *prune_run_model(const sb_model *model, const sb_tensor *x)
{
    sb_session *session = NULL;
    const sb_tensor *y = NULL;
    sb_tensor *copy = NULL;
    double v[256];

    assert_ok(sb_session_create(model, NULL, &session));
    assert_ok(sb_session_run(session, &x, 1, &y, 1));
    int64_t n = sb_tensor_count(y);
    assert_true(n <= 256);
    assert_true(sb_tensor_read_f64(y, 0, n, v));
    copy = test_tensor(SB_DTYPE_F32, "1x256", NULL);
    for (int64_t i = 0; i < n; i++)
        ((float *)copy->data)[i] = (float)v[i];
    sb_session_free(session);
    return copy;
}

sb_tensor *prune_run(sb_prune *p, const sb_tensor *x)
{
    sb_model *model = NULL;

    assert_ok(sb_prune_model(p, &model));
    sb_tensor *y = prune_run_model(model, x);
    sb_model_free(model);
    return y;
}

void keep_line(void *user, sb_log_level level, const char *line)
{
    (void)level;
    (void)snprintf(user, 256, "%s", line);
}

void assert_weight(sb_prune *p, const char *name, const double *want, int64_t n)
{
    sb_model *model = NULL;
    double got[256];

    assert_ok(sb_prune_model(p, &model));
    const sb_tensor *t = sb_model_weight(model, name);
    assert_non_null(t);
    assert_int_equal(sb_tensor_count(t), n);
    assert_true(sb_tensor_read_f64(t, 0, n, got));
    for (int64_t i = 0; i < n; i++)
        assert_close(name, got[i], want[i], 1e-6);
    sb_model_free(model);
}
