/* plugin_operator - an operator of one's own, in a network that uses it.
 *
 * com.example::ScaledTanh computes a * tanh(b * x) for any floats.  The network
 * is built here; one from a file works the same way. */
#include <math.h>
#include <stdio.h>

#include <sparsebit/plugin.h>

/* The output has the type of the input, whatever is known of it. */
static sb_status scaled_tanh_infer(void *user, sb_op_call *call)
{
    int64_t dims[SB_RANK_MAX];
    sb_dtype dtype;
    int rank;

    (void)user;
    if (!sb_op_input_type(call, 0, &dtype, &rank, dims))
        return sb_op_fail(call, SB_BAD_MODEL, "the input is missing");
    if (dtype != SB_DTYPE_NONE && dtype != SB_DTYPE_F32)
        return sb_op_fail(call, SB_BAD_MODEL, "want a tensor of float");
    return sb_op_set_output(call, 0, SB_DTYPE_F32, rank, dims);
}

static sb_status scaled_tanh_run(void *user, sb_op_call *call)
{
    const sb_tensor *x = sb_op_input(call, 0);
    sb_tensor *y = sb_op_output(call, 0);
    float a = sb_op_attr_float(call, "a", 1);
    float b = sb_op_attr_float(call, "b", 1);
    const float *from = sb_tensor_data(x);
    float *to = sb_tensor_data_mutable(y);
    int *runs = user;

    for (int64_t i = 0; i < sb_tensor_elements(x); i++)
        to[i] = a * tanhf(b * from[i]);
    ++*runs;
    return SB_OK;
}

/* x -> ScaledTanh -> Neg -> y */
static sb_status build(sb_ctx *ctx, sb_model **out)
{
    const int64_t dims[] = {-1, 2};
    const char *x = "x", *t = "t", *y = "y";
    sb_model *m = NULL;
    sb_status s = sb_model_create(ctx, "tanh", &m);

    if (s == SB_OK)
        s = sb_model_add_input(m, x, SB_DTYPE_F32, 2, dims);
    if (s == SB_OK)
        s = sb_model_add_node(m, "com.example::ScaledTanh", &x, 1, &t, 1,
                              "a=2.0, b=0.5");
    if (s == SB_OK)
        s = sb_model_add_node(m, "Neg", &t, 1, &y, 1, NULL);
    if (s == SB_OK)
        s = sb_model_add_output(m, y);
    if (s == SB_OK)
        s = sb_model_finish(m);
    *out = m;
    return s;
}

static sb_status run(sb_ctx *ctx, const sb_model *model)
{
    float numbers[] = {0, 1, -2, 100};
    const int64_t dims[] = {2, 2};
    const sb_tensor *y = NULL;
    sb_tensor *x = NULL;
    sb_session *session = NULL;
    double v[4];
    sb_status s =
        sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, dims, numbers, NULL, NULL, &x);

    if (s == SB_OK)
        s = sb_session_create(model, NULL, &session);
    if (s == SB_OK)
        s = sb_session_run(session, (const sb_tensor *[]){x}, 1, &y, 1);
    if (s == SB_OK && sb_tensor_read_f64(y, 0, 4, v))
        printf("%.4f %.4f %.4f %.4f\n", v[0] + 0.0, v[1], v[2], v[3]);
    sb_session_free(session);
    sb_tensor_free(x);
    return s;
}

int main(void)
{
    sb_op_plugin op = SB_OP_PLUGIN_INIT;
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;
    int runs = 0;

    op.domain = "com.example";
    op.name = "ScaledTanh";
    op.user = &runs;
    op.min_inputs = op.max_inputs = 1;
    op.infer = scaled_tanh_infer;
    op.run = scaled_tanh_run;
    sb_status s = sb_ctx_create(NULL, &ctx);
    if (s == SB_OK)
        s = sb_ctx_add_op(ctx, &op);
    if (s == SB_OK)
        s = build(ctx, &model);
    if (s == SB_OK) {
        printf("y is %s\n", sb_model_output(model, 0)->text);
        s = run(ctx, model);
    }
    if (s == SB_OK)
        printf("called %d time%s\n", runs, runs == 1 ? "" : "s");
    else
        printf("%s\n", sb_ctx_error(ctx));
    sb_model_free(model);
    sb_ctx_free(ctx);
    return s != SB_OK;
}
