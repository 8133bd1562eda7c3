/* Zeroing weights: by count, by N:M, in blocks; exact counts, equal scores by
 * position. */
#include "prune/mask.h"

#include <math.h>
#include <string.h>

#include "prune/lowest.h"

/* ---- which weights ----------------------------------------------------------- */

/* One entry for each float weight that makes or reads channels. */
sb_status sb_mask_weights(const sb_channels *ch, sb_masked **out, size_t *n)
{
    const sb_graph *g = ch->graph;
    sb_masked *list = NULL;
    size_t count = 0, cap = 0;
    sb_status status = SB_OK;

    for (size_t i = 0; i < ch->n_axes && status == SB_OK; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        if (a->value == SB_NONE || !sb_is_const(g, a->value) ||
            (a->maker == SB_NONE && a->reader == SB_NONE))
            continue;
        const sb_tensor *t = sb_const_of(g, a->value);
        if (t->rank < 2 || !sb_dtype_is_float(t->dtype))
            continue;
        if (count == 0 || list[count - 1].weight != a->value) {
            status = sb_grow(g->ctx, &list, &cap, count + 1, sizeof *list);
            if (status != SB_OK)
                break;
            list[count++] = (sb_masked){.weight = a->value,
                                        .node = a->maker,
                                        .made = -1,
                                        .summed = -1,
                                        .count = sb_tensor_count(t)};
        }
        sb_masked *m = &list[count - 1];
        m->node = m->node == SB_NONE ? a->reader : m->node;
        if (a->maker != SB_NONE)
            m->made = a->axis;
        else
            m->summed = a->axis;
    }
    if (status != SB_OK) {
        sb_free(g->ctx, list);
        return status;
    }
    *out = list;
    *n = count;
    return SB_OK;
}

/* ---- units of a weight --------------------------------------------------------- */

/* Elements that go together: blocks along the made and the summed axis. */
typedef struct units {
    const sb_tensor *t;
    int made, summed;
    int64_t rows, cols;     /* of a block */
    int64_t across, others; /* blocks along the summed axis; other places */
    int64_t n;
    bool plain; /* each element by itself, in the order of memory */
} units;

static units units_of(const sb_tensor *t, const sb_masked *m,
                      const sb_prune_config *cfg)
{
    units u = {.t = t,
               .made = m->made,
               .summed = m->summed,
               .rows = m->made < 0 ? 1 : cfg->block_rows,
               .cols = m->summed < 0 ? 1 : cfg->block_cols,
               .across = 1,
               .others = 1};
    int64_t down = 1;

    for (int a = 0; a < t->rank; a++) {
        if (a == m->made)
            down = (t->dims[a] + u.rows - 1) / u.rows;
        else if (a == m->summed)
            u.across = (t->dims[a] + u.cols - 1) / u.cols;
        else
            u.others *= t->dims[a];
    }
    u.n = down * u.across * u.others;
    u.plain = u.rows == 1 && u.cols == 1 && !cfg->criterion->by_output;
    return u;
}

/* The unit that element `at` belongs to. */
static int64_t unit_at(const units *u, int64_t at)
{
    int64_t row = 0, col = 0, other = 0, scale = 1;

    if (u->plain)
        return at;
    for (int a = u->t->rank - 1; a >= 0; a--) {
        int64_t i = at % u->t->dims[a];
        at /= u->t->dims[a];
        if (a == u->made) {
            row = i / u->rows;
        } else if (a == u->summed) {
            col = i / u->cols;
        } else {
            other += i * scale;
            scale *= u->t->dims[a];
        }
    }
    return (row * u->across + col) * u->others + other;
}

/* ---- one weight ---------------------------------------------------------------- */

static sb_status mask_weigh(const sb_channels *ch, const sb_prune_args *args,
                            const sb_masked *m, float *out)
{
    const sb_criterion_ask ask = {.ctx = ch->graph->ctx,
                                  .criterion = args->cfg->criterion,
                                  .channels = ch,
                                  .weight = m->weight,
                                  .made = m->made,
                                  .summed = m->summed,
                                  .seen = args->seen,
                                  .origin = args->origin,
                                  .seed = args->seed};

    const sb_tensor *t = sb_const_of(ch->graph, m->weight);
    bool single = args->cfg->block_rows * args->cfg->block_cols == 1;

    SB_TRY(args->cfg->criterion->weigh(&ask, out));
    int64_t unknown = 0;
    for (int64_t i = 0; i < m->count; i++) {
        unknown += !isfinite(out[i]);
        out[i] = isfinite(out[i]) ? out[i] : HUGE_VALF;
        if (single && sb_weight_at(t, i) == 0)
            out[i] = -HUGE_VALF; /* it costs nothing */
    }
    if (unknown > 0)
        sb_warn(ch->graph->ctx,
                "%lld of %lld elements of '%s' stay: their scores are not "
                "finite; does a weight hold NaN?",
                (long long)unknown, (long long)m->count,
                sb_graph_value(ch->graph, m->weight)->name);
    return SB_OK;
}

/* Zeroes elements of a copy of the weight in the graph. */
static sb_status zero_elements(sb_graph *g, sb_value_id weight, const units *u,
                               const uint8_t *gone)
{
    sb_tensor t;
    const sb_tensor *old = &sb_graph_value(g, weight)->constant;

    SB_TRY(sb_tensor_clone(g->ctx, old, &t));
    size_t size = sb_dtype_size(t.dtype);
    for (int64_t i = 0; i < sb_tensor_count(&t); i++)
        if (gone[u ? unit_at(u, i) : i])
            memset((char *)t.data + (size_t)i * size, 0, size);
    sb_status status = sb_graph_set_constant(g, weight, &t);
    sb_tensor_drop(&t);
    return status;
}

void sb_mask_count(const sb_graph *g, sb_masked *m)
{
    const sb_tensor *t = &sb_graph_value(g, m->weight)->constant;

    m->zeroed = 0;
    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        m->zeroed += sb_weight_at(t, i) == 0;
}

/* Of M consecutive ones along the summed axis the N highest stay; what is left
 * over at the end stays as it is. */
static void mark_nm(const sb_tensor *t, int axis, int n_of, int m_of,
                    const float *scores, uint8_t *gone)
{
    int64_t size = t->dims[axis];
    int64_t inner = sb_dims_product(t->dims, axis + 1, t->rank);
    int64_t outer = sb_dims_product(t->dims, 0, axis);

    for (int64_t o = 0; o < outer * inner; o++) {
        int64_t base = o / inner * size * inner + o % inner;
        for (int64_t i = 0; i + m_of <= size; i += m_of)
            for (int drop = 0; drop < m_of - n_of; drop++) {
                int64_t low = -1;
                for (int k = 0; k < m_of; k++) {
                    int64_t at = base + (i + k) * inner;
                    if (!gone[at] && (low < 0 || scores[at] < scores[low]))
                        low = at;
                }
                gone[low] = scores[low] < HUGE_VALF; /* without: it stays */
            }
    }
}

/* The same share of every index of the made axis, whose elements come one
 * after the other in `sums` (units_of() counts so). */
static sb_status mark_units(const sb_channels *ch, const sb_prune_args *args,
                            const units *u, const float *sums, double ratio,
                            uint8_t *gone)
{
    bool apart = args->cfg->criterion->by_output && u->made >= 0;
    size_t each = (size_t)(apart ? u->across * u->others : u->n);
    size_t count = (size_t)floor(ratio * (double)each + 1e-9);

    for (size_t at = 0; at < (size_t)u->n; at += each)
        SB_TRY(
            sb_mark_lowest(ch->graph->ctx, sums + at, each, count, gone + at));
    return SB_OK;
}

sb_status sb_mask_layer(const sb_channels *ch, const sb_prune_args *args,
                        double ratio, sb_masked *m, sb_graph *out)
{
    sb_ctx *ctx = ch->graph->ctx;
    const sb_tensor *t = sb_const_of(ch->graph, m->weight);
    units u = units_of(t, m, args->cfg);
    float *scores = sb_alloc(ctx, (size_t)m->count, sizeof *scores);
    float *sums = sb_alloc(ctx, (size_t)u.n, sizeof *sums);
    uint8_t *gone = sb_alloc(ctx, (size_t)m->count, 1);
    sb_status status = scores && sums && gone ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK)
        status = mask_weigh(ch, args, m, scores);
    if (status == SB_OK && args->cfg->m_of) {
        mark_nm(t, m->summed, sb_prune_args_n_of(args), args->cfg->m_of, scores,
                gone);
        status = zero_elements(out, m->weight, NULL, gone);
    } else if (status == SB_OK) {
        for (int64_t i = 0; i < m->count; i++)
            sums[unit_at(&u, i)] += scores[i];
        status = mark_units(ch, args, &u, sums, ratio, gone);
        if (status == SB_OK)
            status = zero_elements(out, m->weight, &u, gone);
    }
    sb_free(ctx, scores);
    sb_free(ctx, sums);
    sb_free(ctx, gone);
    sb_mask_count(out, m);
    return status;
}

/* ---- all weights at once --------------------------------------------------------- */

typedef struct masking {
    const sb_channels *ch;
    const sb_prune_args *args;
    sb_masked *list;
    size_t n;
    bool *part; /* by weight: it is compared with the others */
    sb_graph *out;
} masking;

/* Scores of all that take part, one after the other. */
static sb_status mask_global(masking *k, double ratio)
{
    sb_ctx *ctx = k->ch->graph->ctx;
    size_t total = 0, at = 0;
    sb_status status = SB_OK;

    for (size_t i = 0; i < k->n; i++)
        total += k->part[i] ? (size_t)k->list[i].count : 0;
    float *scores = sb_alloc_raw(ctx, total, sizeof *scores);
    uint8_t *gone = sb_alloc(ctx, total, 1);
    if (!scores || !gone)
        status = SB_NO_MEMORY;
    for (size_t i = 0; i < k->n && status == SB_OK; i++) {
        if (!k->part[i])
            continue;
        status = mask_weigh(k->ch, k->args, &k->list[i], scores + at);
        at += (size_t)k->list[i].count;
    }
    if (status == SB_OK)
        status =
            sb_mark_lowest(ctx, scores, total,
                           (size_t)floor(ratio * (double)total + 1e-9), gone);
    at = 0;
    for (size_t i = 0; i < k->n && status == SB_OK; i++) {
        if (!k->part[i])
            continue;
        status = zero_elements(k->out, k->list[i].weight, NULL, gone + at);
        sb_mask_count(k->out, &k->list[i]);
        at += (size_t)k->list[i].count;
    }
    sb_free(ctx, scores);
    sb_free(ctx, gone);
    return status;
}

double sb_mask_ratio(const sb_channels *ch, const sb_prune_args *args,
                     sb_masked *m, bool *stated)
{
    const sb_prune_config *cfg = args->cfg;
    const sb_tensor *t = sb_const_of(ch->graph, m->weight);
    double r =
        sb_prune_config_ratio(cfg, sb_graph_node(ch->graph, m->node), stated);

    if (cfg->m_of && !(*stated && r == 0))
        r = 1; /* N:M says how much */
    m->left = cfg->m_of && (m->summed < 0 || t->dims[m->summed] < cfg->m_of)
                  ? "fewer inputs than M"
              : r == 0 ? "ratio 0"
                       : NULL;
    m->over = cfg->m_of && !m->left ? m->count / t->dims[m->summed] *
                                          (t->dims[m->summed] % cfg->m_of)
                                    : 0;
    return r * args->share;
}

static sb_status mask_all(masking *k)
{
    const sb_prune_config *cfg = k->args->cfg;
    bool global = cfg->scope == SB_SCOPE_GLOBAL && !cfg->m_of;

    for (size_t i = 0; i < k->n; i++) {
        sb_masked *m = &k->list[i];
        bool stated;
        double r = sb_mask_ratio(k->ch, k->args, m, &stated);

        SB_TRY(sb_progress(k->ch->graph->ctx, "pruning weights", i, k->n));
        k->part[i] = global && !stated && !m->left;
        if (!m->left && !k->part[i])
            SB_TRY(sb_mask_layer(k->ch, k->args, r, m, k->out));
    }
    return global ? mask_global(k, cfg->file.ratio * k->args->share) : SB_OK;
}

sb_status sb_mask_apply(const sb_channels *ch, const sb_prune_args *args,
                        sb_masked *list, size_t n, sb_graph **out)
{
    masking k = {.ch = ch, .args = args, .list = list, .n = n};

    k.part = sb_alloc(ch->graph->ctx, n, sizeof *k.part);
    sb_status status =
        k.part ? sb_graph_clone(ch->graph, &k.out) : SB_NO_MEMORY;
    if (status == SB_OK)
        status = mask_all(&k);
    sb_free(ch->graph->ctx, k.part);
    if (status == SB_OK)
        *out = k.out;
    else
        sb_graph_free(k.out);
    return status;
}

/* ---- channels -------------------------------------------------------------------- */

void sb_mask_axis(const sb_channels *ch, const sb_prune_axis *a,
                  const uint8_t *gone, sb_tensor *t)
{
    size_t inner = (size_t)sb_dims_product(t->dims, a->axis + 1, t->rank) *
                   sb_dtype_size(t->dtype);
    int64_t outer = sb_dims_product(t->dims, 0, a->axis);
    char *at = t->data;

    for (int64_t o = 0; o < outer; o++)
        for (uint32_t i = 0; i < a->n; i++, at += inner) {
            uint32_t c = ch->channel_of[a->first + i];
            if (c != SB_NONE && gone[c])
                memset(at, 0, inner);
        }
}

static sb_status zero_slices(const sb_channels *ch, const sb_prune_axis *a,
                             const uint8_t *gone, sb_graph *g)
{
    const sb_value *weight = sb_graph_value(g, a->value);
    sb_tensor t;

    if (!sb_dtype_is_float(weight->constant.dtype))
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "weight '%s' is quantized: its channels can be removed, "
                       "not set to zero",
                       weight->name);
    SB_TRY(sb_tensor_clone(g->ctx, &weight->constant, &t));
    sb_mask_axis(ch, a, gone, &t);
    sb_status status = sb_graph_set_constant(g, a->value, &t);
    sb_tensor_drop(&t);
    return status;
}

sb_status sb_mask_channels(const sb_channels *ch, const uint8_t *gone,
                           sb_graph **out)
{
    sb_graph *g = NULL;
    sb_status status = sb_graph_clone(ch->graph, &g);

    for (size_t i = 0; i < ch->n_axes && status == SB_OK; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        if (a->maker != SB_NONE && sb_is_const(ch->graph, a->value))
            status = zero_slices(ch, a, gone, g);
    }
    if (status == SB_OK)
        *out = g;
    else
        sb_graph_free(g);
    return status;
}
