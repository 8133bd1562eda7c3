/* Statistics of batch norms after a cut.
 *
 * What is left of a network has other means and variances than those that its
 * norms remember.  They are measured on the samples, which run through the
 * pruned network once, each norm going by its batch as in training. */
#include <string.h>

#include "api/prune/prune_state.h"
#include "exec/exec.h"
#include "graph/op.h"
#include "ops/grad/grad.h"
#include "passes/batch/dynamic_batch.h"
#include "passes/bn_channels.h"
#include "passes/pass.h"
#include "quant/train/qat.h"

/* Layers behind a norm see what it makes of the batch: too few samples say
 * nothing of the others.  Smaller batches are put together, where the network
 * takes any number. */
enum { BATCH_LEAST = 8, BATCH_MOST = 64 };

typedef struct norm {
    const char *mean, *var; /* names, in the arena of the graph */
    int64_t n;
} norm;

struct sb_prune_norms {
    sb_ctx *ctx;
    sb_graph *graph; /* what runs */
    sb_exec *exec;
    bool any; /* it takes any number of samples */
    norm *norms;
    size_t n, first; /* norms; outputs before theirs */
    const sb_tensor **outputs;
    double *sums; /* mean and square of each channel of each norm */
    double weight;
    /* Samples that are not enough yet, by input. */
    sb_tensor *room;
    int64_t waiting;
};

static int64_t norm_channels(const sb_graph *g, const sb_node *node)
{
    const sb_tensor *scale = sb_const_of(g, sb_node_in(node, 1));

    return scale && scale->rank == 1 ? scale->dims[0] : 0;
}

/* A norm whose statistics no other node reads. */
static bool norm_is_own(const sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);

    return sb_bn_is_plain(g, node, norm_channels(g, node)) &&
           sb_graph_value(g, node->inputs[3])->n_uses == 1 &&
           sb_graph_value(g, node->inputs[4])->n_uses == 1;
}

bool sb_prune_has_norms(const sb_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (norm_is_own(g, (sb_node_id)i))
            return true;
    return false;
}

/* The norm goes by the batch and tells its mean and variance. */
static sb_status norm_by_batch(sb_graph *g, sb_node_id id)
{
    const sb_node old = *sb_graph_node(g, id);
    const sb_attr attrs[] = {
        SB_EMIT_FLOAT("momentum", 0),
        SB_EMIT_FLOAT("epsilon", sb_node_float(&old, "epsilon", 1e-5f))};
    sb_value_id out[5] = {old.outputs[0]};
    sb_node_id fresh = SB_NONE;

    for (int i = 1; i < 5; i++)
        SB_TRY(sb_graph_add_value_as(g, "statistics", &out[i]));
    sb_graph_remove_node(g, id);
    SB_TRY(sb_graph_add_node(g,
                             &(sb_node_spec){.op = "BatchNormTrain",
                                             .domain = SB_FUSED_DOMAIN,
                                             .inputs = old.inputs,
                                             .n_in = 5,
                                             .outputs = out,
                                             .n_out = 5,
                                             .attrs = attrs,
                                             .n_attrs = SB_COUNT(attrs)},
                             &fresh));
    SB_TRY(sb_graph_add_output(g, out[3]));
    return sb_graph_add_output(g, out[4]);
}

static sb_status norms_rewrite(sb_prune_norms *s)
{
    sb_graph *g = s->graph;
    size_t n = g->n_nodes, channels = 0;

    s->norms = sb_alloc(s->ctx, n + 1, sizeof *s->norms);
    if (!s->norms)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        if (!norm_is_own(g, (sb_node_id)i))
            continue;
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        norm *one = &s->norms[s->n++];
        one->mean = sb_graph_value(g, node->inputs[3])->name;
        one->var = sb_graph_value(g, node->inputs[4])->name;
        one->n = norm_channels(g, node);
        channels += (size_t)one->n;
        SB_TRY(norm_by_batch(g, (sb_node_id)i));
    }
    s->sums = sb_alloc(s->ctx, channels + 1, 2 * sizeof *s->sums);
    return s->sums ? SB_OK : SB_NO_MEMORY;
}

static sb_status norms_setup(sb_prune_norms *s, const sb_graph *g)
{
    const sb_exec_options opt = {0};

    s->first = g->n_outputs;
    SB_TRY(sb_graph_make_batch_dynamic(g, &s->graph));
    s->any = s->graph != NULL;
    if (!s->any)
        SB_TRY(sb_graph_clone(g, &s->graph));
    SB_TRY(norms_rewrite(s));
    SB_TRY(sb_passes_run(s->graph, "lower", NULL, NULL, NULL));
    s->outputs = sb_alloc(s->ctx, s->graph->n_outputs + 1, sizeof *s->outputs);
    s->room = sb_alloc(s->ctx, s->graph->n_inputs + 1, sizeof *s->room);
    if (!s->outputs || !s->room)
        return SB_NO_MEMORY;
    return sb_exec_create(s->ctx, s->graph, &opt, &s->exec);
}

sb_status sb_prune_norms_open(const sb_graph *g, sb_prune_norms **out)
{
    sb_prune_norms *s = sb_alloc(g->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    s->ctx = g->ctx;
    sb_status status = norms_setup(s, g);
    if (status == SB_OK)
        *out = s;
    else
        sb_prune_norms_free(s);
    return status;
}

static sb_status norms_run(sb_prune_norms *s, const sb_tensor *const *inputs,
                           int64_t samples)
{
    double *at = s->sums, weight = (double)samples;

    if (samples < BATCH_LEAST)
        return SB_OK;
    SB_TRY(sb_exec_run(s->exec, inputs, NULL, s->outputs));
    for (size_t i = 0; i < s->n; i++) {
        const sb_tensor *const *out = s->outputs + s->first + 2 * i;
        for (int64_t c = 0; c < s->norms[i].n; c++, at += 2) {
            double mean = sb_tensor_get_f64(out[0], c);
            at[0] += weight * mean;
            at[1] += weight * (sb_tensor_get_f64(out[1], c) + mean * mean);
        }
    }
    s->weight += weight;
    return SB_OK;
}

/* Runs what waits. */
static sb_status norms_flush(sb_prune_norms *s)
{
    size_t n = s->graph->n_inputs;
    const sb_tensor **inputs = sb_alloc(s->ctx, n + 1, sizeof *inputs);
    sb_status status = inputs ? SB_OK : SB_NO_MEMORY;

    for (size_t k = 0; k < n && status == SB_OK; k++) {
        s->room[k].dims[0] = s->waiting;
        inputs[k] = &s->room[k];
    }
    if (status == SB_OK)
        status = norms_run(s, inputs, s->waiting);
    sb_free(s->ctx, inputs);
    s->waiting = 0;
    return status;
}

/* The bytes of one sample. */
static size_t sample_bytes(const sb_tensor *t)
{
    return (size_t)sb_dims_product(t->dims, 1, t->rank) *
           sb_dtype_size(t->dtype);
}

/* Do the samples have the shapes of those that wait? */
static bool room_fits(const sb_prune_norms *s, const sb_tensor *const *inputs)
{
    for (size_t k = 0; k < s->graph->n_inputs; k++) {
        const sb_tensor *a = &s->room[k], *b = inputs[k];
        if (a->rank != b->rank)
            return false;
        for (int d = 1; d < a->rank; d++)
            if (a->dims[d] != b->dims[d])
                return false;
    }
    return true;
}

static sb_status room_make(sb_prune_norms *s, const sb_tensor *const *inputs)
{
    for (size_t k = 0; k < s->graph->n_inputs; k++) {
        int64_t dims[SB_MAX_RANK];
        memcpy(dims, inputs[k]->dims, sizeof dims);
        dims[0] = BATCH_MOST;
        sb_tensor_drop(&s->room[k]);
        s->room[k] = sb_tensor_make(inputs[k]->dtype, inputs[k]->rank, dims);
        SB_TRY(sb_tensor_alloc(s->ctx, &s->room[k]));
    }
    return SB_OK;
}

sb_status sb_prune_norms_take(sb_prune_norms *s, const sb_tensor *const *inputs)
{
    size_t n = s->graph->n_inputs;
    int64_t count =
        n > 0 && inputs[0] && inputs[0]->rank > 0 ? inputs[0]->dims[0] : 0;
    bool alike = s->any && count > 0 && count < BATCH_MOST;

    for (size_t k = 0; k < n && alike; k++)
        alike = inputs[k] && inputs[k]->rank > 0 && inputs[k]->dims[0] == count;
    if (!alike)
        return norms_run(s, inputs, count);
    if (s->waiting > 0 &&
        (s->waiting + count > BATCH_MOST || !room_fits(s, inputs)))
        SB_TRY(norms_flush(s));
    if (s->waiting == 0)
        SB_TRY(room_make(s, inputs));
    for (size_t k = 0; k < n; k++) {
        size_t bytes = sample_bytes(inputs[k]);
        memcpy((char *)s->room[k].data + (size_t)s->waiting * bytes,
               inputs[k]->data, (size_t)count * bytes);
    }
    s->waiting += count;
    return SB_OK;
}

sb_status sb_prune_norms_set(sb_prune_norms *s, sb_graph *g)
{
    const double *at = s->sums;

    if (s->waiting > 0)
        SB_TRY(norms_flush(s));
    for (size_t i = 0; s->weight >= BATCH_MOST && i < s->n; i++) {
        const norm *one = &s->norms[i];
        SB_TRY(sb_statistics_put(g, sb_graph_find_value(g, one->mean), false,
                                 at, s->weight));
        SB_TRY(sb_statistics_put(g, sb_graph_find_value(g, one->var), true, at,
                                 s->weight));
        at += 2 * one->n;
    }
    return SB_OK;
}

void sb_prune_norms_free(sb_prune_norms *s)
{
    if (!s)
        return;
    for (size_t k = 0; s->room && k < s->graph->n_inputs; k++)
        sb_tensor_drop(&s->room[k]);
    sb_exec_free(s->exec);
    sb_graph_free(s->graph);
    sb_free(s->ctx, s->room);
    sb_free(s->ctx, s->norms);
    sb_free(s->ctx, s->outputs);
    sb_free(s->ctx, s->sums);
    sb_free(s->ctx, s);
}
