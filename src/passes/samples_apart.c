/* Do the samples of a batch keep apart?
 *
 * Shapes do not tell.  For one sample, [1, T, C] to [T, 1, C] is a Reshape as
 * much as a Transpose, and simplifying prefers the Reshape, which mixes the
 * samples of a larger batch; so does a mean over the whole tensor.  Seen is
 * it in the results: of two samples one is exchanged, and what comes out for
 * the other must stay the same to the bit. */
#include <string.h>

#include "exec/exec.h"
#include "passes/relax_batch.h"

enum { SAMPLES = 2, SIZE = 4 /* of other dimensions that are not known */ };

/* ---- is there any doubt? ------------------------------------------------- */

/* Is something other than the first dimension unknown? */
static bool inner_unknown(const sb_shape *s)
{
    for (int i = 1; i < s->rank; i++)
        if (!sb_dim_known(s->dim[i]))
            return true;
    return s->rank < 0;
}

static bool is_batched(const sb_graph *g, sb_value_id id)
{
    if (id == SB_NONE || sb_graph_value(g, id)->is_constant)
        return false;
    const sb_shape *s = &sb_graph_value(g, id)->type.shape;
    return s->rank < 0 || (s->rank > 0 && !sb_dim_known(s->dim[0]));
}

/* Every result must have its samples along the first dimension.  Shapes do not
 * count, and what goes along the first dimension itself is not trusted. */
static bool node_in_doubt(const sb_graph *g, const sb_node *node)
{
    static const char *const walkers[] = {"LSTM", "GRU", "RNN",   "Scan",
                                          "Loop", "If",  "CumSum"};
    bool batched = false;

    for (size_t i = 0; i < SB_COUNT(walkers); i++)
        if (sb_node_is(node, walkers[i]))
            return true;
    for (uint32_t i = 0; i < node->n_in; i++)
        batched = batched || is_batched(g, node->inputs[i]);
    for (uint32_t i = 0; i < node->n_out; i++) {
        if (node->outputs[i] == SB_NONE)
            continue;
        const sb_type *t = &sb_graph_value(g, node->outputs[i])->type;
        if (inner_unknown(&t->shape) ||
            (batched && !is_batched(g, node->outputs[i]) &&
             t->dtype != SB_DTYPE_I64))
            return true;
    }
    return false;
}

bool sb_samples_in_doubt(const sb_graph *g)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (!g->nodes[id].dead && node_in_doubt(g, sb_graph_node(g, id)))
            return true;
    return false;
}

/* ---- trying it ----------------------------------------------------------- */

typedef struct trial {
    sb_ctx *ctx;
    const sb_graph *g;
    sb_exec *exec;
    sb_tensor *in;          /* one a graph input */
    const sb_tensor **args; /* the same as sb_exec_run() wants them */
    const sb_tensor **out;
    sb_tensor *last; /* copies of the outputs of the last run */
    uint64_t seed;
} trial;

/* New random elements for one sample. */
static void exchange(trial *t, size_t sample)
{
    for (size_t i = 0; i < t->g->n_inputs; i++) {
        sb_tensor part = t->in[i];

        if (!part.data)
            continue;
        part.dims[0] = 1;
        part.data = (char *)part.data + sample * sb_tensor_bytes(&part);
        sb_tensor_fill_random(&part, ++t->seed);
    }
}

static sb_status make_input(trial *t, size_t i)
{
    const sb_value *v = sb_graph_value(t->g, t->g->inputs[i]);
    sb_tensor *x = &t->in[i];

    t->args[i] = v->is_constant ? &v->constant : x;
    if (v->is_constant)
        return SB_OK;
    *x = (sb_tensor){.dtype = v->type.dtype, .rank = v->type.shape.rank};
    if (x->rank < 1 || x->dtype == SB_DTYPE_STRING || x->dtype == SB_DTYPE_NONE)
        return SB_UNSUPPORTED;
    for (int k = 0; k < x->rank; k++) {
        sb_dim d = v->type.shape.dim[k];
        x->dims[k] = k == 0 ? SAMPLES : sb_dim_known(d) ? d : SIZE;
    }
    return sb_tensor_alloc(t->ctx, x);
}

/* Keeps a copy of what came out, with the samples along dimension 0. */
static sb_status keep(trial *t, size_t i)
{
    const sb_tensor *y = t->out[i];
    sb_tensor *copy = &t->last[i];

    if (y->dtype == SB_DTYPE_STRING || y->rank < 1 || y->dims[0] % SAMPLES)
        return SB_UNSUPPORTED;
    sb_tensor_drop(copy);
    *copy = sb_tensor_make(y->dtype, y->rank, y->dims);
    SB_TRY(sb_tensor_alloc(t->ctx, copy));
    if (sb_tensor_bytes(copy))
        memcpy(copy->data, y->data, sb_tensor_bytes(copy));
    return SB_OK;
}

/* Runs, and compares the results of `sample` with those of the last run; a
 * negative one compares nothing. */
static sb_status run(trial *t, int sample, bool *apart)
{
    SB_TRY(sb_exec_run(t->exec, t->args, NULL, t->out));
    for (size_t i = 0; i < t->g->n_outputs; i++) {
        const sb_tensor *y = t->out[i], *last = &t->last[i];
        size_t bytes = sb_tensor_bytes(y), half = bytes / SAMPLES;

        if (sample >= 0) {
            size_t at = (size_t)sample * half;
            *apart =
                *apart && sb_tensor_bytes(last) == bytes &&
                (!half || memcmp((const char *)y->data + at,
                                 (const char *)last->data + at, half) == 0);
        }
        SB_TRY(keep(t, i));
    }
    return SB_OK;
}

static sb_status try_samples(trial *t, bool *apart)
{
    const sb_exec_options opt = {0};

    t->in = sb_alloc(t->ctx, t->g->n_inputs, sizeof *t->in);
    t->args = sb_alloc(t->ctx, t->g->n_inputs, sizeof *t->args);
    t->out = sb_alloc(t->ctx, t->g->n_outputs, sizeof *t->out);
    t->last = sb_alloc(t->ctx, t->g->n_outputs, sizeof *t->last);
    if (!t->in || !t->args || !t->out || !t->last)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < t->g->n_inputs; i++)
        SB_TRY(make_input(t, i));
    SB_TRY(sb_exec_create(t->ctx, t->g, &opt, &t->exec));
    exchange(t, 0);
    exchange(t, 1);
    SB_TRY(run(t, -1, apart));
    exchange(t, 1);
    SB_TRY(run(t, 0, apart));
    exchange(t, 0);
    return run(t, 1, apart);
}

sb_status sb_samples_apart(sb_ctx *ctx, const sb_graph *g, bool *apart)
{
    trial t = {.ctx = ctx, .g = g};

    *apart = true;
    sb_status status = try_samples(&t, apart);
    sb_exec_free(t.exec);
    for (size_t i = 0; t.in && i < g->n_inputs; i++)
        sb_tensor_drop(&t.in[i]);
    for (size_t i = 0; t.last && i < g->n_outputs; i++)
        sb_tensor_drop(&t.last[i]);
    sb_free(ctx, t.in);
    sb_free(ctx, t.args);
    sb_free(ctx, t.out);
    sb_free(ctx, t.last);
    if (status == SB_NO_MEMORY || status == SB_INTERRUPTED)
        return status;
    *apart = *apart && status == SB_OK;
    return SB_OK;
}
