/* plugin_criterion - a criterion of one's own, by the name in a configuration.
 *
 * "spread" scores a channel by the difference of its greatest and its least
 * weight: a channel whose weights are all alike goes first, however large they
 * are. */
#include <math.h>
#include <stdio.h>

#include <sparsebit/plugin.h>

static sb_status spread_score(void *user, const sb_tensor *weight, int axis,
                              double *out)
{
    const int64_t *dims = sb_tensor_dims(weight);
    int64_t inner = 1, n = sb_tensor_elements(weight);
    double least, most, v = 0;

    (void)user;
    for (int a = axis + 1; a < sb_tensor_rank(weight); a++)
        inner *= dims[a];
    for (int64_t c = 0; c < dims[axis]; c++) {
        least = INFINITY;
        most = -INFINITY;
        for (int64_t i = 0; i < n; i++)
            if (i / inner % dims[axis] == c &&
                sb_tensor_read_f64(weight, i, 1, &v)) {
                least = fmin(least, v);
                most = fmax(most, v);
            }
        out[c] = most - least;
    }
    return SB_OK;
}

static const char text[] = "graph g(x: f32[N,2]) -> (y) {\n"
                           "  w1: f32[2,4] = [9, 1, 9, 2, 9, -1, 8, 0]\n"
                           "  w2: f32[4,1] = [1, 2, 3, 4]\n"
                           "  h = MatMul(x, w1) \"fc1\"\n"
                           "  r = Relu(h)\n"
                           "  y = MatMul(r, w2) \"fc2\"\n"
                           "}\n";

static const char config[] =
    "SPARSER: {TYPE: structured, STRATEGY: spread, RATIO: 0.5}\n";

static void print_weight(sb_model *model, const char *name)
{
    const sb_tensor *t = sb_model_weight(model, name);
    double v = 0;

    printf("%s:", name);
    for (int64_t i = 0; t && i < sb_tensor_elements(t); i++)
        if (sb_tensor_read_f64(t, i, 1, &v))
            printf(" %g", v);
    printf("\n");
}

int main(void)
{
    sb_criterion_plugin criterion = SB_CRITERION_PLUGIN_INIT;
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    sb_ctx *ctx = NULL;
    sb_model *model = NULL, *small = NULL;
    sb_prune *prune = NULL;

    criterion.name = "spread";
    criterion.summary = "greatest weight less the least";
    criterion.score = spread_score;
    opt.config_text = config;
    sb_status s = sb_ctx_create(NULL, &ctx);
    if (s == SB_OK)
        s = sb_ctx_add_criterion(ctx, &criterion);
    if (s == SB_OK)
        s = sb_model_parse(ctx, text, &model);
    if (s == SB_OK)
        s = sb_prune_create(model, &opt, &prune);
    if (s == SB_OK)
        s = sb_prune_apply(prune, NULL);
    if (s == SB_OK)
        s = sb_prune_model(prune, &small);
    if (s == SB_OK) {
        print_weight(small, "w1");
        print_weight(small, "w2");
    } else {
        printf("%s\n", sb_ctx_error(ctx));
    }
    sb_model_free(small);
    sb_prune_free(prune);
    sb_model_free(model);
    sb_ctx_free(ctx);
    return s != SB_OK;
}
