/* Cutting a network into stages. */
#include "learn/pipe_stages.h"

#include "base/alloc.h"
#include "ops/op_registry.h"

/* ---- work ---------------------------------------------------------------- */

typedef struct stage_walk {
    const sb_graph *g;
    sb_node_id *order;
    size_t n;
    bool *fixed;    /* [value] no input of the network has an influence */
    bool *product;  /* [value] something that it is made of was multiplied with
                       a weight */
    uint32_t *left; /* [value] uses to come */
} stage_walk;

static void walk_close(stage_walk *w)
{
    sb_ctx *ctx = w->g->ctx;

    sb_free(ctx, w->order);
    sb_free(ctx, w->fixed);
    sb_free(ctx, w->product);
    sb_free(ctx, w->left);
}

/* Close it in any case. */
static sb_status walk_open(stage_walk *w, const sb_graph *g)
{
    *w = (stage_walk){.g = g};
    w->fixed = sb_alloc(g->ctx, g->n_values + 1, sizeof *w->fixed);
    w->product = sb_alloc(g->ctx, g->n_values + 1, sizeof *w->product);
    w->left = sb_alloc(g->ctx, g->n_values + 1, sizeof *w->left);
    if (!w->fixed || !w->product || !w->left)
        return SB_NO_MEMORY;
    for (sb_value_id v = 0; v < g->n_values; v++)
        w->fixed[v] = sb_is_const(g, v);
    return sb_graph_order(g, &w->order, &w->n);
}

static int64_t weight_size(const sb_shape *shape)
{
    int64_t n = 1;

    for (int i = 0; i < shape->rank; i++)
        if (!sb_dim_known(shape->dim[i]) || !sb_mul_i64(n, shape->dim[i], &n))
            return 0;
    return shape->rank < 2 ? 0 : n;
}

/* Elements of the weight that a node multiplies each token with; -1: it is no
 * such node.  Adapters count nothing: a network is cut where it was cut before
 * it had any, when its weights were read. */
static int64_t node_work(const stage_walk *w, const sb_node *node)
{
    const sb_op_def *op = sb_op_find(node->domain, node->op);
    bool packed = op && op->flags & SB_OP_INTEGER && op->weight_input;

    if (!packed && (!op || op->quant != SB_ROLE_WEIGHTED))
        return -1;
    uint32_t at = packed ? op->weight_input : 1;
    sb_value_id weight = node->n_in > at ? node->inputs[at] : SB_NONE;
    if (weight == SB_NONE || !w->fixed[weight])
        return -1;
    const sb_value *v = sb_graph_value(w->g, weight);
    if (sb_name_is_adapter(v->name))
        return 0;
    int64_t n = sb_node_int(node, "N", 0), k = sb_node_int(node, "K", 0);
    if (packed && n > 0 && k > 0) /* several in a byte */
        return n < INT64_MAX / k ? n * k : 0;
    return weight_size(&v->type.shape);
}

/* What the results of a node are, from what its inputs are. */
static int64_t walk_node(stage_walk *w, const sb_node *node)
{
    int64_t work = node_work(w, node);
    bool fixed = node->n_in > 0, product = work >= 0;

    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++) {
        sb_value_id v = node->inputs[i];
        if (v == SB_NONE)
            continue;
        fixed = fixed && w->fixed[v];
        product = product || w->product[v];
    }
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE) {
            w->fixed[node->outputs[i]] = fixed;
            w->product[node->outputs[i]] = product && !fixed;
        }
    return work > 0 ? work : 0;
}

/* ---- where it can be cut ------------------------------------------------- */

typedef struct stage_place {
    sb_value_id value;
    int64_t before; /* work in front of it */
} stage_place;

typedef struct stage_places {
    stage_place *v;
    size_t n, cap;
    int64_t work; /* of the whole network */
} stage_places;

/* Values that were made and will be read: how many, and the sum of their
 * numbers, which is the number of the only one. */
typedef struct stage_open {
    size_t n;
    uint64_t sum;
} stage_open;

static void open_node(stage_walk *w, const sb_node *node, stage_open *open)
{
    const sb_graph *g = w->g;

    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++) {
        sb_value_id v = node->inputs[i];
        if (v != SB_NONE && w->product[v] && --w->left[v] == 0) {
            open->n--;
            open->sum -= v;
        }
    }
    for (uint32_t i = 0; i < node->n_out; i++) {
        sb_value_id v = node->outputs[i];
        if (v == SB_NONE || !w->product[v])
            continue;
        w->left[v] =
            sb_graph_value(g, v)->n_uses + sb_graph_value(g, v)->is_output;
        open->n += w->left[v] > 0;
        open->sum += w->left[v] > 0 ? v : 0;
    }
}

/* All places with work on both sides, the first of those that divide it
 * alike. */
static sb_status places_find(stage_walk *w, stage_places *out)
{
    const sb_graph *g = w->g;
    stage_open open = {0};

    for (size_t i = 0; i < w->n; i++) {
        const sb_node *node = sb_graph_node(g, w->order[i]);

        out->work += walk_node(w, node);
        open_node(w, node, &open);
        const sb_value *v =
            open.n == 1 ? sb_graph_value(g, (sb_value_id)open.sum) : NULL;
        if (!v || v->type.dtype != SB_DTYPE_F32 || v->is_output ||
            out->work == 0 ||
            (out->n && out->v[out->n - 1].before == out->work))
            continue;
        SB_TRY(sb_grow(g->ctx, &out->v, &out->cap, out->n + 1, sizeof *out->v));
        out->v[out->n++] = (stage_place){(sb_value_id)open.sum, out->work};
    }
    while (out->n && out->v[out->n - 1].before == out->work)
        out->n--;
    return SB_OK;
}

/* The place that is nearest to each share of the work. */
static void places_choose(const stage_places *p, size_t n, sb_value_id *cut)
{
    size_t from = 0;

    for (size_t k = 1; k < n; k++) {
        double want = (double)p->work * (double)k / (double)n;
        size_t best = from, last = p->n - (n - 1 - k);

        for (size_t i = from; i < last; i++) {
            double d = (double)p->v[i].before - want;
            double b = (double)p->v[best].before - want;
            if ((d < 0 ? -d : d) < (b < 0 ? -b : b))
                best = i;
        }
        cut[k - 1] = p->v[best].value;
        from = best + 1;
    }
}

sb_status sb_pipe_stages_find(const sb_graph *g, size_t n, sb_value_id *cut)
{
    stage_walk w;
    stage_places places = {0};
    sb_status status = walk_open(&w, g);

    if (status == SB_OK)
        status = places_find(&w, &places);
    if (status == SB_OK && places.n + 1 < n)
        status = sb_fail(g->ctx, SB_UNSUPPORTED,
                         "the network can be cut into %zu stages at most, "
                         "there are %zu ranks",
                         places.n + 1, n);
    if (status == SB_OK)
        places_choose(&places, n, cut);
    sb_free(g->ctx, places.v);
    walk_close(&w);
    return status;
}

sb_pipe_stage sb_pipe_stage_at(const sb_graph *g, const sb_value_id *cut,
                               size_t n, size_t k)
{
    return (sb_pipe_stage){
        .in = k > 0 ? sb_graph_value(g, cut[k - 1])->name : NULL,
        .out = k + 1 < n ? sb_graph_value(g, cut[k])->name : NULL};
}

/* ---- a stage ------------------------------------------------------------- */

/* Nodes behind `in` that the results need; `needed` is by value. */
static void stage_mark(const sb_graph *g, const sb_node_id *order, size_t n,
                       sb_value_id in, bool *needed)
{
    for (size_t i = n; i-- > 0;) {
        const sb_node *node = sb_graph_node(g, order[i]);
        bool runs = false;

        for (uint32_t k = 0; k < node->n_out; k++)
            if (node->outputs[k] != SB_NONE && node->outputs[k] != in)
                runs = runs || needed[node->outputs[k]];
        for (uint32_t k = 0; runs && k < node->n_in + node->n_implicit; k++)
            if (node->inputs[k] != SB_NONE)
                needed[node->inputs[k]] = true;
    }
}

sb_status sb_pipe_stage_constants(const sb_graph *g, const sb_pipe_stage *stage,
                                  sb_map *names)
{
    bool *needed = sb_alloc(g->ctx, g->n_values + 1, sizeof *needed);
    sb_node_id *order = NULL;
    size_t n = 0;
    sb_status status = needed ? sb_graph_order(g, &order, &n) : SB_NO_MEMORY;

    if (status == SB_OK) {
        if (stage->out)
            needed[sb_graph_find_value(g, stage->out)] = true;
        for (size_t i = 0; !stage->out && i < g->n_outputs; i++)
            needed[g->outputs[i]] = true;
        stage_mark(g, order, n,
                   stage->in ? sb_graph_find_value(g, stage->in) : SB_NONE,
                   needed);
    }
    for (sb_value_id v = 0; status == SB_OK && v < g->n_values; v++)
        if (needed[v] && sb_graph_value(g, v)->is_constant)
            status = sb_map_put(names, sb_graph_value(g, v)->name, v);
    sb_free(g->ctx, order);
    sb_free(g->ctx, needed);
    return status;
}

sb_status sb_pipe_stage_cut(sb_graph *g, const sb_pipe_stage *stage)
{
    if (stage->in) {
        sb_value_id in = sb_graph_find_value(g, stage->in);

        sb_graph_remove_node(g, sb_graph_value(g, in)->producer);
        SB_TRY(sb_graph_add_input(g, in));
    }
    if (stage->out) {
        sb_graph_clear_outputs(g);
        SB_TRY(sb_graph_add_output(g, sb_graph_find_value(g, stage->out)));
    }
    (void)sb_graph_remove_dead(g);
    g->parts = 0; /* all that is left was read */
    return SB_OK;
}
