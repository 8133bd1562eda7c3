/* bench/train_step: the time of training steps.
 *
 *     train_step MODEL [STEPS [THREADS]] [lsq] [profile]
 *
 * Forward, backward and an SGD update on random data and classes, at the batch
 * that the file has.  `lsq` puts 4-bit quantizers with learned scales on the
 * input and the weight of each convolution and linear layer, as LSQ does.
 * Prints one line of JSON: milliseconds of the best and the median step,
 * samples, peak memory in MB; `profile` says before it where the time goes, as
 * `sparsebit bench --train --profile` does for a file.  Used by
 * bench/vs_pytorch_train.  Target `bench_train_step`. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/rng.h"
#include "learn/learner.h"
#include "onnx/onnx.h"
#include "ops/infer_util.h"

enum { STEPS = 6, STEPS_MOST = 1000, INPUTS_MOST = 8 };

static sb_ctx *ctx;

static void must(sb_status status)
{
    if (status == SB_OK)
        return;
    fprintf(stderr, "train_step: %s\n", sb_ctx_error(ctx));
    exit(1);
}

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* ---- quantizers --------------------------------------------------------- */

static sb_value_id add_numbers(sb_graph *g, const char *name, int rank,
                               int64_t n, float v)
{
    float *all = malloc((size_t)n * sizeof *all);
    sb_value_id id = SB_NONE;

    for (int64_t i = 0; all && i < n; i++)
        all[i] = v;
    must(all ? sb_graph_add_constant(g, name, SB_DTYPE_F32, rank, &n, all, &id)
             : SB_NO_MEMORY);
    free(all);
    return id;
}

/* The constant that a node reads, if need be behind a Transpose. */
static const sb_tensor *weight_of(const sb_graph *g, sb_value_id v)
{
    const sb_value *w = sb_graph_value(g, v);
    const sb_node *from =
        w->producer == SB_NONE ? NULL : sb_graph_node(g, w->producer);

    if (from && sb_node_is(from, "Transpose"))
        w = sb_graph_value(g, from->inputs[0]);
    return w->is_constant && w->type.shape.rank > 1 ? &w->constant : NULL;
}

/* Where LSQ starts, of the whole weight: too small a scale makes constants of
 * activations, and batch normalization gradients of 1e8 of those. */
static float first_scale(const sb_tensor *w, double qmax)
{
    double sum = 0;

    for (int64_t i = 0; i < sb_tensor_count(w); i++)
        sum += fabs(sb_tensor_get_f64(w, i));
    return (float)(2 * sum / (double)sb_tensor_count(w) / sqrt(qmax));
}

/* A quantizer on input `i` of the node: of the channels along `axis` of a
 * weight, or of an activation that is not negative. */
static void add_quantizer(sb_graph *g, sb_node_id node, uint32_t i, int axis)
{
    bool weight = i == 1;
    sb_value_id x = sb_graph_node(g, node)->inputs[i], y;
    int64_t n = weight ? sb_graph_value(g, x)->type.shape.dim[axis] : 1;
    const sb_value_id in[] = {
        x,
        add_numbers(g, "lsq.scale", weight, n,
                    weight ? first_scale(weight_of(g, x), 7) : 0.2f),
        add_numbers(g, "lsq.zero", weight, n, 0)};
    sb_node_id id;

    must(sb_graph_add_value_as(g, "lsq", &y));
    must(sb_graph_add_node(g,
                           &(sb_node_spec){.op = "FakeQuant",
                                           .domain = SB_FUSED_DOMAIN,
                                           .inputs = in,
                                           .n_in = 3,
                                           .outputs = &y,
                                           .n_out = 1},
                           &id));
    must(sb_graph_set_attr_int(g, id, "qmin", weight ? -8 : 0));
    must(sb_graph_set_attr_int(g, id, "qmax", weight ? 7 : 15));
    must(sb_graph_set_attr_int(g, id, "axis", weight ? axis : 0));
    must(sb_graph_set_attr_int(g, id, "grad_by_count", 1));
    must(sb_graph_set_input(g, node, i, y));
}

/* Of weights [M, C, ...] axis 0 counts the outputs, of matrices [K, M] 1. */
static void add_quantizers(sb_graph *g)
{
    size_t n = g->n_nodes;

    must(sb_graph_infer(g));
    for (size_t i = 0; i < n; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        bool product =
            sb_node_is(node, "MatMul") ||
            (sb_node_is(node, "Gemm") && sb_node_int(node, "transB", 0) == 0);

        if (node->dead ||
            !(product || sb_node_is(node, "Gemm") ||
              sb_node_is(node, "Conv")) ||
            !weight_of(g, node->inputs[1]))
            continue;
        add_quantizer(g, (sb_node_id)i, 0, 0);
        add_quantizer(g, (sb_node_id)i, 1, product ? 1 : 0);
    }
}

/* ---- data --------------------------------------------------------------- */

static sb_tensor *random_tensor(const sb_type *type, int64_t classes)
{
    sb_tensor *t = NULL;
    sb_rng rng;

    must(sb_tensor_create(ctx, type->dtype, type->shape.rank, type->shape.dim,
                          &t));
    sb_rng_init(&rng, 1);
    for (int64_t i = 0; i < sb_tensor_count(t); i++) {
        double v = sb_rng_uniform(&rng);
        v = classes ? floor(v * (double)classes) : 2 * v - 1;
        (void)sb_tensor_write_f64(t, i, 1, &v);
    }
    return t;
}

static int by_size(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;

    return (d > 0) - (d < 0);
}

static void print_profile(sb_learner *learner)
{
    const sb_profile *p = NULL;

    must(sb_learner_profile(learner, &p));
    for (size_t i = 0; i < p->n_types; i++)
        printf("%9.2f ms  %4zu x  %s\n", p->types[i]->best_ms,
               p->types[i]->nodes, p->types[i]->op);
}

static void run(const sb_graph *g, int steps, bool profile)
{
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    const sb_shape *y = &sb_graph_value(g, g->outputs[0])->type.shape;
    const sb_tensor *in[INPUTS_MOST];
    sb_learner *learner = NULL;
    double times[STEPS_MOST], loss = 0;
    struct rusage use;

    opt.learning_rate = 1e-5;
    opt.weight_decay = 1e-4;
    opt.profile = profile;
    if (y->rank < 2 || g->n_inputs > INPUTS_MOST)
        must(sb_fail(ctx, SB_UNSUPPORTED, "no classes, or too many inputs"));
    for (size_t i = 0; i < g->n_inputs; i++)
        in[i] = random_tensor(&sb_graph_value(g, g->inputs[i])->type, 0);
    const sb_type labels = {SB_DTYPE_I64, {1, {y->dim[0]}}};
    sb_tensor *target = random_tensor(&labels, y->dim[1]);
    must(sb_learner_create_graph(ctx, g, &opt, NULL, &learner));
    for (int i = 0; i < steps; i++) {
        double begin = now();
        must(sb_learner_step(learner, in, g->n_inputs, target, &loss));
        times[i] = now() - begin;
    }
    qsort(times, (size_t)steps, sizeof *times, by_size);
    (void)getrusage(RUSAGE_SELF, &use);
    if (profile)
        print_profile(learner);
    printf("{\"best\": %.2f, \"median\": %.2f, \"samples\": %lld, \"rss\": "
           "%.0f, \"loss\": %.6g}\n",
           times[0], times[steps / 2], (long long)y->dim[0],
           (double)use.ru_maxrss / 1024, loss);
    sb_learner_free(learner);
    sb_tensor_free(target);
    for (size_t i = 0; i < g->n_inputs; i++)
        sb_tensor_free((sb_tensor *)(uintptr_t)in[i]);
}

int main(int argc, char **argv)
{
    int steps = STEPS, threads = 0, at = 2;
    bool lsq = false, profile = false;
    sb_graph *g = NULL;

    if (argc < 2) {
        fputs("usage: train_step MODEL [STEPS [THREADS]] [lsq] [profile]\n",
              stderr);
        return 2;
    }
    if (at < argc && atoi(argv[at]) > 0)
        steps = atoi(argv[at++]);
    if (at < argc && atoi(argv[at]) > 0)
        threads = atoi(argv[at++]);
    for (; at < argc; at++) {
        lsq = lsq || strcmp(argv[at], "lsq") == 0;
        profile = profile || strcmp(argv[at], "profile") == 0;
    }
    must(sb_ctx_create(NULL, &ctx));
    sb_ctx_set_threads(ctx, threads);
    must(sb_onnx_load(ctx, argv[1], &g));
    if (lsq)
        add_quantizers(g);
    must(sb_graph_infer(g));
    run(g, steps < STEPS_MOST ? steps : STEPS_MOST, profile);
    sb_graph_free(g);
    sb_ctx_free(ctx);
    return 0;
}
