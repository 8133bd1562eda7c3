/* Running a network and collecting what pruning wants to know of its values.
 *
 * The network runs as in inference, fused and in the layouts of its kernels,
 * with an Observe node behind each value that is looked at.
 *
 * Of each value that a layer with a constant weight reads, along the axis that
 * is summed over: the second moments of its channels, from at most
 * POSITIONS_MOST places of a sample (evenly spread), which is plenty for
 * least squares over channels.  Sums are in double and in a fixed order. */
#include "prune/seen.h"

#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "passes/pass.h"
#include "prune/linear.h"
#include "quant/model/instrument.h"

enum { POSITIONS_MOST = 256, GRAM_MOST = 8192, LANES = 16 };

/* ---- what is watched --------------------------------------------------------- */

static sb_status seen_watch(struct sb_prune_seen *s, sb_value_id v, int axis,
                            bool rank)
{
    const sb_type *type = &sb_graph_value(s->graph, v)->type;
    int64_t n = type->shape.dim[axis];

    if (s->at[v] != SB_NONE || n < 1 || n > GRAM_MOST ||
        type->dtype != SB_DTYPE_F32 || sb_is_const(s->graph, v))
        return SB_OK;
    SB_TRY(sb_grow(s->ctx, &s->values, &s->cap, s->n + 1, sizeof *s->values));
    sb_seen_value *w = &s->values[s->n];
    *w = (sb_seen_value){.value = v, .axis = axis, .n = n};
    w->gram = sb_alloc(s->ctx, (size_t)((n + 1) * (n + 1)), sizeof *w->gram);
    s->at[v] = (uint32_t)s->n++;
    if (!w->gram)
        return SB_NO_MEMORY;
    if (!rank)
        return SB_OK;
    w->rank = sb_alloc(s->ctx, (size_t)n, sizeof *w->rank);
    return w->rank ? SB_OK : SB_NO_MEMORY;
}

static sb_status seen_watch_all(struct sb_prune_seen *s, const sb_channels *ch)
{
    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        bool image = s->ranks && a->value != SB_NONE &&
                     sb_graph_value(ch->graph, a->value)->type.shape.rank == 4;
        if (image && a->axis == 1 &&
            sb_graph_value(ch->graph, a->value)->producer != SB_NONE)
            SB_TRY(seen_watch(s, a->value, 1, true));
        else if (a->reader != SB_NONE && a->read.value != SB_NONE)
            SB_TRY(seen_watch(s, a->read.value, a->read.axis, false));
    }
    return SB_OK;
}

/* All nodes that read the value read what an Observe node shows of it. */
static sb_status seen_put(struct sb_prune_seen *s, uint32_t id)
{
    sb_value_id x = s->values[id].value, y = SB_NONE;

    for (size_t n = 0; n < s->graph->n_nodes; n++) {
        const sb_node *node = sb_graph_node(s->graph, (sb_node_id)n);
        for (uint32_t i = 0; !node->dead && i < node->n_in; i++) {
            if (node->inputs[i] != x)
                continue;
            if (y == SB_NONE)
                SB_TRY(sb_quant_add_observe(s->beside, (sb_node_id)n, id, NULL,
                                            x, &y));
            SB_TRY(sb_graph_set_input(s->beside, (sb_node_id)n, i, y));
        }
    }
    return SB_OK;
}

static sb_status seen_see(void *user, int64_t id, const sb_tensor *t);

static sb_status seen_graph(struct sb_prune_seen *s)
{
    const sb_exec_options opt = {.observe = seen_see, .observe_user = s};

    SB_TRY(sb_graph_clone(s->graph, &s->beside));
    for (size_t i = 0; i < s->n; i++)
        SB_TRY(seen_put(s, (uint32_t)i));
    SB_TRY(sb_passes_run(s->beside, "lower", NULL, NULL, NULL));
    return sb_exec_create(s->ctx, s->beside, &opt, &s->exec);
}

/* ---- collecting -------------------------------------------------------------- */

typedef struct gram_job {
    const float *x; /* [n + 1][count], count a multiple of LANES */
    int64_t n, count;
    double *gram;
} gram_job;

static void gram_rows(void *arg, size_t begin, size_t end)
{
    const gram_job *j = arg;

    for (size_t r = begin; r < end; r++) {
        const float *a = j->x + (int64_t)r * j->count;
        for (int64_t c = 0; c <= (int64_t)r; c++) {
            const float *b = j->x + c * j->count;
            float lane[LANES] = {0}, sum = 0;
            for (int64_t k = 0; k < j->count; k += LANES) {
                SB_SIMD
                for (int64_t l = 0; l < LANES; l++)
                    lane[l] += a[k + l] * b[k + l];
            }
            for (int l = 0; l < LANES; l++)
                sum += lane[l];
            j->gram[(int64_t)r * (j->n + 1) + c] += (double)sum;
        }
    }
}

/* The positions of one sample into [channel][position], ones below; `t` as it
 * lies. */
static void seen_gather(const sb_tensor *t, int axis, int64_t sample,
                        int64_t step, int64_t count, float *out)
{
    int64_t wide = (count + LANES - 1) / LANES * LANES;
    int64_t outer = sb_dims_product(t->dims, 1, axis), n = t->dims[axis];
    int64_t inner = sb_dims_product(t->dims, axis + 1, t->rank);
    const float *x = (const float *)t->data + sample * outer * n * inner;

    for (int64_t k = 0; k < count; k++) {
        int64_t p = k * step, o = p / inner, i = p % inner;
        for (int64_t c = 0; c < n; c++)
            out[c * wide + k] = x[(o * n + c) * inner + i];
        out[n * wide + k] = 1;
    }
}

static sb_status collect_gram(struct sb_prune_seen *s, sb_seen_value *w,
                              const sb_tensor *t)
{
    sb_tensor lies = sb_tensor_as_lies(t);
    int axis = sb_tensor_place(t, w->axis);
    int64_t samples = axis == 0 ? 1 : lies.dims[0];
    int64_t places = samples > 0 ? sb_tensor_count(t) / (samples * w->n) : 0;
    int64_t step = (places + POSITIONS_MOST - 1) / POSITIONS_MOST;
    int64_t count = places > 0 ? (places + step - 1) / step : 0;

    if (count == 0 || axis == 0)
        return SB_OK;
    int64_t wide = (count + LANES - 1) / LANES * LANES;
    float *x = sb_alloc(s->ctx, (size_t)((w->n + 1) * wide), sizeof *x);
    if (!x)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < samples; i++) {
        gram_job j = {x, w->n, wide, w->gram};
        seen_gather(&lies, axis, i, step, count, x);
        sb_parallel_for(s->ctx, (size_t)w->n + 1, 8, gram_rows, &j);
    }
    w->samples += samples;
    sb_free(s->ctx, x);
    return SB_OK;
}

typedef struct rank_job {
    const sb_tensor *t;
    sb_seen_value *w;
} rank_job;

static void rank_channels(void *arg, size_t begin, size_t end)
{
    const rank_job *j = arg;
    const int64_t *d = j->t->dims;

    for (size_t c = begin; c < end; c++)
        for (int64_t i = 0; i < d[0]; i++)
            j->w->rank[c] +=
                sb_matrix_rank((const float *)j->t->data +
                                   (i * d[1] + (int64_t)c) * d[2] * d[3],
                               d[2], d[3]);
}

static sb_status collect_ranks(struct sb_prune_seen *s, sb_seen_value *w,
                               const sb_tensor *t)
{
    sb_tensor plain = sb_tensor_make(t->dtype, t->rank, t->dims);

    SB_TRY(sb_tensor_alloc_raw(s->ctx, &plain));
    sb_tensor_reorder(s->ctx, t, &plain);
    rank_job j = {&plain, w};
    sb_parallel_for(s->ctx, (size_t)w->n, 1, rank_channels, &j);
    sb_tensor_drop(&plain);
    return SB_OK;
}

static sb_status seen_see(void *user, int64_t id, const sb_tensor *t)
{
    struct sb_prune_seen *s = user;
    sb_seen_value *w = &s->values[id];

    SB_TRY(sb_ctx_poll(s->ctx));
    if (t->dtype != SB_DTYPE_F32 || t->rank <= w->axis ||
        t->dims[w->axis] != w->n)
        return SB_OK;
    if (w->rank && t->rank == 4)
        SB_TRY(collect_ranks(s, w, t));
    return collect_gram(s, w, t);
}

/* ---- all of it --------------------------------------------------------------- */

sb_status sb_seen_create(const sb_channels *ch, const sb_prune_config *cfg,
                         uint64_t seed, struct sb_prune_seen **out)
{
    sb_ctx *ctx = ch->graph->ctx;
    struct sb_prune_seen *s = sb_alloc(ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    *s = (struct sb_prune_seen){
        .ctx = ctx, .graph = ch->graph, .ranks = cfg->criterion->needs_ranks};
    s->at = sb_alloc(ctx, ch->graph->n_values, sizeof *s->at);
    sb_status status = s->at ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK) {
        memset(s->at, 0xff, ch->graph->n_values * sizeof *s->at);
        status = seen_watch_all(s, ch);
    }
    if (status == SB_OK && cfg->criterion->needs_slopes)
        status = sb_slopes_create(ch, cfg, seed, &s->slopes);
    if (status == SB_OK)
        status = seen_graph(s);
    if (status == SB_OK)
        *out = s;
    else
        sb_seen_free(s);
    return status;
}

void sb_seen_free(struct sb_prune_seen *s)
{
    if (!s)
        return;
    sb_exec_free(s->exec);
    sb_graph_free(s->beside);
    sb_slopes_free(s->slopes);
    for (size_t i = 0; i < s->n; i++) {
        sb_free(s->ctx, s->values[i].gram);
        sb_free(s->ctx, s->values[i].rank);
    }
    sb_free(s->ctx, s->values);
    sb_free(s->ctx, s->at);
    sb_free(s->ctx, s);
}

sb_status sb_seen_run(struct sb_prune_seen *s, const sb_tensor *const *inputs,
                      const int64_t *labels, size_t n)
{
    const sb_tensor **outputs =
        sb_alloc(s->ctx, s->graph->n_outputs, sizeof *outputs);

    if (!outputs)
        return SB_NO_MEMORY;
    sb_status status = sb_exec_run(s->exec, inputs, NULL, outputs);
    sb_free(s->ctx, outputs);
    if (status == SB_OK && s->slopes)
        status = sb_slopes_run(s->slopes, inputs, labels, n);
    return status;
}

const sb_seen_value *sb_seen_of(const struct sb_prune_seen *s,
                                sb_value_id value, int axis)
{
    if (value == SB_NONE || s->at[value] == SB_NONE)
        return NULL;
    const sb_seen_value *w = &s->values[s->at[value]];
    return w->axis == axis && w->samples > 0 ? w : NULL;
}
