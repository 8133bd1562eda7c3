/* Running a network beside Gram matrices, and thinning out its layers by them.
 */
#include "prune/thin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "passes/pass.h"
#include "quant/reconstruct/reconstruct.h"

static const size_t THIN_LIMIT = (size_t)1 << 30; /* bytes of matrices */

typedef struct thin_layer {
    sb_round_layer shape;
    sb_masked *m;
    double ratio;
} thin_layer;

struct sb_thinner {
    sb_ctx *ctx;
    const sb_channels *ch;
    const sb_prune_args *args;
    sb_graph *graph; /* with what was done so far */
    thin_layer *layers;
    size_t n, first, end; /* those that are looked at */
    /* Of these: */
    sb_gram *grams;
    sb_state *states;
    sb_exec_state *bound;
    sb_graph *beside;
    sb_exec *exec;
    const sb_tensor **inputs, **outputs;
};

/* ---- layers ----------------------------------------------------------------- */

static int thin_order(const void *a, const void *b)
{
    sb_node_id x = ((const thin_layer *)a)->shape.node;
    sb_node_id y = ((const thin_layer *)b)->shape.node;

    return x < y ? -1 : x > y;
}

static sb_status thin_list(sb_thinner *t, sb_masked *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        thin_layer *l = &t->layers[t->n];
        const char *why = NULL;
        bool stated;

        *l = (thin_layer){.m = &list[i]};
        l->ratio = sb_mask_ratio(t->ch, t->args, l->m, &stated);
        if (l->m->left)
            continue;
        if (sb_round_layer_set(t->graph, l->m->node, l->m->weight, &l->shape,
                               &why) &&
            sb_const_of(t->graph, l->m->weight)->dtype == SB_DTYPE_F32) {
            t->n++;
            continue;
        }
        sb_warn(t->ctx, "%s: '%s' goes by magnitude: %s",
                t->args->cfg->criterion->name,
                sb_graph_value(t->graph, l->m->weight)->name,
                why ? why : "it is not of float32");
        SB_TRY(sb_mask_layer(t->ch, t->args, l->ratio, l->m, t->graph));
    }
    qsort(t->layers, t->n, sizeof *t->layers, thin_order);
    return SB_OK;
}

/* ---- a part of the layers --------------------------------------------------- */

static void part_close(sb_thinner *t)
{
    sb_exec_free(t->exec);
    sb_graph_free(t->beside);
    for (size_t i = t->first; t->grams && i < t->end; i++)
        sb_free(t->ctx, t->grams[i - t->first].sums);
    sb_free(t->ctx, t->grams);
    sb_free(t->ctx, t->states);
    sb_free(t->ctx, t->bound);
    sb_free(t->ctx, t->inputs);
    sb_free(t->ctx, t->outputs);
    t->exec = NULL;
    t->beside = NULL;
    t->grams = NULL;
    t->states = NULL;
    t->bound = NULL;
    t->inputs = t->outputs = NULL;
}

static size_t layer_bytes(const thin_layer *l)
{
    size_t cols = (size_t)l->shape.cols;

    return (size_t)l->shape.groups * cols * cols * sizeof(float);
}

/* As many layers from `first` on as have room; at least one. */
static void part_choose(sb_thinner *t)
{
    size_t bytes = 0;

    for (t->end = t->first; t->end < t->n; t->end++) {
        bytes += layer_bytes(&t->layers[t->end]);
        if (t->end > t->first && bytes > THIN_LIMIT)
            break;
    }
}

static sb_status part_grams(sb_thinner *t)
{
    for (size_t i = t->first; i < t->end; i++) {
        const sb_round_layer *s = &t->layers[i].shape;
        sb_gram *gram = &t->grams[i - t->first];

        *gram = (sb_gram){.x = sb_graph_node(t->graph, s->node)->inputs[0],
                          .conv = s->conv,
                          .groups = s->groups,
                          .cols = s->cols,
                          .node = s->node,
                          .weight = s->weight};
        gram->sums =
            sb_alloc(t->ctx, layer_bytes(&t->layers[i]) / sizeof(float),
                     sizeof *gram->sums);
        if (!gram->sums)
            return SB_NO_MEMORY;
    }
    return SB_OK;
}

static sb_status part_open(sb_thinner *t)
{
    part_choose(t);
    size_t n = t->end - t->first;
    if (n == 0)
        return SB_OK;
    t->grams = sb_alloc(t->ctx, n, sizeof *t->grams);
    t->states = sb_alloc(t->ctx, 2 * n, sizeof *t->states);
    t->bound = sb_alloc(t->ctx, 2 * n, sizeof *t->bound);
    if (!t->grams || !t->states || !t->bound)
        return SB_NO_MEMORY;
    SB_TRY(part_grams(t));
    SB_TRY(sb_graph_clone(t->graph, &t->beside));
    SB_TRY(sb_gram_nodes(t->beside, t->grams, n, t->states, t->bound));
    SB_TRY(sb_passes_run(t->beside, "lower", NULL, NULL, NULL));
    t->inputs =
        sb_alloc(t->ctx, t->beside->n_inputs, sizeof(const sb_tensor *));
    t->outputs =
        sb_alloc(t->ctx, t->beside->n_outputs, sizeof(const sb_tensor *));
    if (!t->inputs || !t->outputs)
        return SB_NO_MEMORY;
    const sb_exec_options opt = {.states = t->bound, .n_states = 2 * n};
    return sb_exec_create(t->ctx, t->beside, &opt, &t->exec);
}

/* ---- one layer -------------------------------------------------------------- */

/* The zeros of matrix g, such that all together have the share of the layer. */
static int64_t matrix_zeros(const thin_layer *l, int64_t g)
{
    double each = (double)(l->shape.rows * l->shape.cols);

    return (int64_t)floor(l->ratio * each * (double)(g + 1) + 1e-9) -
           (int64_t)floor(l->ratio * each * (double)g + 1e-9);
}

static sb_status thin_matrices(sb_thinner *t, const thin_layer *l,
                               const sb_gram *gram, float *w)
{
    const sb_round_layer *s = &l->shape;
    const sb_tensor *own = sb_const_of(t->graph, s->weight);
    sb_thin_matrix m = {
        .ctx = t->ctx,
        .rows = s->rows,
        .cols = s->cols,
        .taps = s->conv ? sb_dims_product(own->dims, 2, own->rank) : 1,
        .n_of = t->args->cfg->n_of,
        .m_of = t->args->cfg->m_of};

    for (int64_t g = 0; g < s->groups; g++) {
        m.w = w + g * s->rows * s->cols;
        m.gram = gram->sums + g * s->cols * s->cols;
        m.zeros = matrix_zeros(l, g);
        SB_TRY(t->args->cfg->criterion->thin(&m));
        if (m.why_not)
            return sb_fail(t->ctx, SB_BAD_DATA, "'%s': %s",
                           sb_graph_value(t->graph, s->weight)->name,
                           m.why_not);
    }
    return SB_OK;
}

static sb_status thin_one(sb_thinner *t, const thin_layer *l,
                          const sb_gram *gram)
{
    const sb_round_layer *s = &l->shape;
    sb_tensor w, rows = {0};

    SB_TRY(sb_tensor_clone(t->ctx, sb_const_of(t->graph, s->weight), &w));
    sb_status status = SB_OK;
    if (s->transposed) {
        rows = sb_tensor_make(SB_DTYPE_F32, w.rank, w.dims);
        status = sb_tensor_alloc_raw(t->ctx, &rows);
        if (status == SB_OK)
            sb_round_transpose(w.data, s->cols, s->rows, rows.data);
    }
    if (status == SB_OK)
        status = thin_matrices(t, l, gram, s->transposed ? rows.data : w.data);
    if (status == SB_OK && s->transposed)
        sb_round_transpose(rows.data, s->rows, s->cols, w.data);
    if (status == SB_OK)
        status = sb_graph_set_constant(t->graph, s->weight, &w);
    sb_tensor_drop(&w);
    sb_tensor_drop(&rows);
    if (status == SB_OK)
        sb_mask_count(t->graph, l->m);
    return status;
}

/* ---- all of it -------------------------------------------------------------- */

sb_status sb_thinner_create(const sb_channels *ch, const sb_prune_args *args,
                            sb_masked *list, size_t n, sb_thinner **out)
{
    sb_ctx *ctx = ch->graph->ctx;
    sb_thinner *t = sb_alloc(ctx, 1, sizeof *t);

    if (!t)
        return SB_NO_MEMORY;
    *t = (sb_thinner){.ctx = ctx, .ch = ch, .args = args};
    t->layers = sb_alloc(ctx, n, sizeof *t->layers);
    sb_status status = t->layers ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK)
        status = sb_graph_clone(ch->graph, &t->graph);
    if (status == SB_OK)
        status = thin_list(t, list, n);
    if (status == SB_OK)
        status = part_open(t);
    if (status == SB_OK)
        *out = t;
    else
        sb_thinner_free(t);
    return status;
}

void sb_thinner_free(sb_thinner *t)
{
    if (!t)
        return;
    part_close(t);
    sb_graph_free(t->graph);
    sb_free(t->ctx, t->layers);
    sb_free(t->ctx, t);
}

sb_status sb_thinner_run(sb_thinner *t, const sb_tensor *const *inputs)
{
    if (!t->exec)
        return SB_OK;
    memset(t->inputs, 0, t->beside->n_inputs * sizeof(const sb_tensor *));
    for (size_t i = 0; i < t->graph->n_inputs; i++)
        t->inputs[i] = inputs[i];
    return sb_exec_run(t->exec, t->inputs, NULL, t->outputs);
}

sb_status sb_thinner_apply(sb_thinner *t, bool *more)
{
    for (size_t i = t->first; i < t->end; i++) {
        thin_layer *l = &t->layers[i];
        bool stated;
        SB_TRY(sb_progress(t->ctx, "pruning weights", i, t->n));
        /* A schedule may have gone on since the samples ran. */
        l->ratio = sb_mask_ratio(t->ch, t->args, l->m, &stated);
        SB_TRY(thin_one(t, l, &t->grams[i - t->first]));
    }
    part_close(t);
    t->first = t->end;
    *more = t->first < t->n;
    return *more ? part_open(t) : SB_OK;
}

const sb_graph *sb_thinner_graph(const sb_thinner *t)
{
    return t->graph;
}
