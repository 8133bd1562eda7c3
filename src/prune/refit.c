/* Re-fitting: what a removed channel carried is expressed, as well as least
 * squares can, by the channels that stay, and added to their weights:
 *
 *     x_gone = A x_kept + b   =>   w_kept += w_gone A,   bias += w_gone b
 *
 * A and b come from the second moments that data showed (seen.h), the same for
 * every kernel position and every layer that reads the value.  The constant b
 * is used where the layer has a bias to put it in; where not, the best A
 * without it. */
#include "prune/refit.h"

#include <string.h>

#include "base/threads.h"
#include "prune/linear.h"

/* A small part of the mean variance keeps the solution sane where channels are
 * copies of each other. */
static const double ridge = 1e-4;

typedef struct fit {
    sb_ctx *ctx;
    const sb_seen_value *seen;
    int64_t n, kept, gone; /* channels; `kept` with the constant, if any */
    int64_t *keep, *drop;  /* their indices; the constant is n */
    double *l;             /* factor of the moments of what is kept */
    double *a;             /* [gone, kept] */
} fit;

static double refit_moment(const sb_seen_value *s, int64_t i, int64_t j)
{
    return i >= j ? s->gram[i * (s->n + 1) + j] : s->gram[j * (s->n + 1) + i];
}

static void fit_free(fit *f)
{
    sb_free(f->ctx, f->keep);
    sb_free(f->ctx, f->drop);
    sb_free(f->ctx, f->l);
    sb_free(f->ctx, f->a);
}

static void fit_rows(void *arg, size_t begin, size_t end)
{
    fit *f = arg;

    for (size_t r = begin; r < end; r++) {
        double *row = f->a + (int64_t)r * f->kept;
        for (int64_t k = 0; k < f->kept; k++)
            row[k] = refit_moment(f->seen, f->drop[r], f->keep[k]);
        sb_cholesky_solve(f->l, f->kept, row);
    }
}

/* Fills keep, drop, and solves for A; false in *done if that cannot be. */
static sb_status fit_solve(fit *f, bool *done)
{
    double trace = 0;
    int64_t n = f->kept;

    f->l = sb_alloc(f->ctx, (size_t)(n * n), sizeof *f->l);
    f->a = sb_alloc(f->ctx, (size_t)(f->gone * n), sizeof *f->a);
    if (!f->l || !f->a)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++)
            f->l[i * n + j] = refit_moment(f->seen, f->keep[i], f->keep[j]);
        trace += f->keep[i] < f->n ? f->l[i * n + i] : 0;
    }
    for (int64_t i = 0; i < n; i++)
        f->l[i * n + i] += ridge * trace / (double)n + 1e-30;
    *done = sb_cholesky(f->l, n);
    if (*done) {
        bool outer = sb_ctx_cut_allow(f->ctx);
        sb_parallel_for(f->ctx, (size_t)f->gone, 1, fit_rows, f);
        SB_TRY(sb_ctx_cut_end(f->ctx, outer));
    }
    return SB_OK;
}

static sb_status fit_make(fit *f, const uint8_t *gone, bool constant)
{
    f->keep = sb_alloc(f->ctx, (size_t)f->n + 1, sizeof *f->keep);
    f->drop = sb_alloc(f->ctx, (size_t)f->n, sizeof *f->drop);
    if (!f->keep || !f->drop)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < f->n; i++)
        if (gone[i])
            f->drop[f->gone++] = i;
        else
            f->keep[f->kept++] = i;
    if (constant)
        f->keep[f->kept++] = f->n;
    return SB_OK;
}

/* ---- applying ------------------------------------------------------------------ */

typedef struct apply {
    const fit *f;
    sb_tensor *w;
    int axis, made;
    float *bias; /* or NULL */
} apply;

/* One vector along the summed axis: w[kept] += w[gone] A, and the same with the
 * constant into the bias. */
static void apply_vector(const apply *p, int64_t base, int64_t step,
                         int64_t row, double *add)
{
    const fit *f = p->f;
    int64_t kept = f->kept - (p->bias != NULL);
    float *x = p->w->data;

    for (int64_t k = 0; k < f->kept; k++)
        add[k] = 0;
    for (int64_t d = 0; d < f->gone; d++) {
        double v = (double)x[base + f->drop[d] * step];
        const double *a = f->a + d * f->kept;
        for (int64_t k = 0; k < f->kept; k++)
            add[k] += v * a[k];
    }
    for (int64_t k = 0; k < kept; k++)
        x[base + f->keep[k] * step] += (float)add[k];
    if (p->bias)
        p->bias[row] += (float)add[kept];
}

static sb_status apply_weight(const apply *p)
{
    const int64_t *dims = p->w->dims;
    int64_t inner = sb_dims_product(dims, p->axis + 1, p->w->rank);
    int64_t outer = sb_dims_product(dims, 0, p->axis);
    int64_t below =
        p->made < 0 ? 1 : sb_dims_product(dims, p->made + 1, p->w->rank);
    double *add = sb_alloc(p->f->ctx, (size_t)p->f->kept, sizeof *add);

    if (!add)
        return SB_NO_MEMORY;
    for (int64_t o = 0; o < outer * inner; o++) {
        int64_t base = o / inner * p->f->n * inner + o % inner;
        int64_t row = p->made < 0 ? 0 : base / below % dims[p->made];
        apply_vector(p, base, inner, row, add);
    }
    sb_free(p->f->ctx, add);
    return SB_OK;
}

/* The bias of a layer, of one element for each index of the made axis and read
 * by nothing else; SB_NONE if it has none. */
static sb_value_id bias_of(const sb_graph *g, sb_node_id reader, int64_t rows)
{
    const sb_node *n = sb_graph_node(g, reader);
    sb_value_id v = sb_node_in(n, 2);
    const sb_tensor *t = sb_const_of(g, v);

    return t && t->rank == 1 && t->dims[0] == rows &&
                   t->dtype == SB_DTYPE_F32 &&
                   sb_graph_value(g, v)->n_uses == 1 &&
                   sb_node_float(n, "alpha", 1) == 1.0f &&
                   sb_node_float(n, "beta", 1) == 1.0f
               ? v
               : SB_NONE;
}

/* The axis of the same weight that makes channels; -1: none. */
static int made_axis(const sb_channels *ch, const sb_prune_axis *a)
{
    const sb_shape *s = &sb_graph_value(ch->graph, a->value)->type.shape;

    for (int k = 0; k < s->rank; k++) {
        uint32_t first =
            ch->atoms.first[(size_t)a->value * SB_MAX_RANK + (size_t)k];
        if (first != SB_NONE && sb_channels_axis(ch, first)->maker != SB_NONE)
            return k;
    }
    return -1;
}

static sb_status refit_copy(sb_graph *g, sb_value_id v, sb_tensor *out)
{
    SB_TRY(sb_tensor_clone(g->ctx, &sb_graph_value(g, v)->constant, out));
    sb_status status = sb_graph_set_constant(g, v, out);
    if (status != SB_OK)
        sb_tensor_drop(out);
    return status;
}

/* One weight that reads a value of which channels are gone. */
static sb_status refit_axis(const sb_channels *ch, const sb_prune_axis *a,
                            const sb_seen_value *seen, const uint8_t *gone,
                            sb_graph *g)
{
    int made = made_axis(ch, a);
    const sb_tensor *old = sb_const_of(g, a->value);
    sb_value_id bias =
        made < 0 ? SB_NONE : bias_of(g, a->reader, old->dims[made]);
    fit f = {.ctx = g->ctx, .seen = seen, .n = seen->n};
    sb_tensor w = {0}, b = {0};
    bool done = false;
    sb_status status = fit_make(&f, gone, bias != SB_NONE);

    if (status == SB_OK && f.gone > 0 && f.kept > 0)
        status = fit_solve(&f, &done);
    if (status == SB_OK && done)
        status = refit_copy(g, a->value, &w);
    if (status == SB_OK && done && bias != SB_NONE)
        status = refit_copy(g, bias, &b);
    if (status == SB_OK && done)
        status = apply_weight(&(apply){&f, &w, a->axis, made, b.data});
    sb_tensor_drop(&w);
    sb_tensor_drop(&b);
    fit_free(&f);
    return status;
}

/* Is the weight of the one type that is fitted, and its layer's own?  One that
 * is rounded on the way keeps its range: the scales were chosen for it. */
static bool refit_may(const sb_graph *g, sb_value_id v)
{
    const sb_tensor *t = sb_const_of(g, v);
    bool may = t && t->dtype == SB_DTYPE_F32;

    for (size_t i = 0; may && i < sb_graph_value(g, v)->n_uses; i++)
        may = !sb_tie_quantizes(
            sb_graph_node(g, sb_graph_value(g, v)->uses[i].node));
    return may;
}

/* Weights that read what goes, but are not fitted. */
static void refit_warn(const sb_channels *ch, const uint8_t *gone,
                       const sb_graph *g)
{
    sb_value_id last = SB_NONE;
    size_t n = 0;

    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        bool reads = false;
        for (uint32_t k = 0; a->reader != SB_NONE && k < a->n; k++) {
            uint32_t c = ch->channel_of[a->first + k];
            reads |= c != SB_NONE && gone[c];
        }
        if (reads && sb_is_const(g, a->value) && !refit_may(g, a->value) &&
            a->value != last) {
            n++;
            last = a->value;
        }
    }
    if (n > 0)
        sb_warn(g->ctx,
                "not fitted to the samples, since they are not plain floats: "
                "%zu of the weights, such as '%s'",
                n, sb_graph_value(g, last)->name);
}

sb_status sb_refit(const sb_channels *ch, const struct sb_prune_seen *seen,
                   const uint8_t *gone, sb_graph *g)
{
    sb_status status = SB_OK;

    refit_warn(ch, gone, g);
    for (size_t i = 0; i < ch->n_axes && status == SB_OK; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        const sb_seen_value *s =
            a->reader != SB_NONE && refit_may(g, a->value)
                ? sb_seen_of(seen, a->read.value, a->read.axis)
                : NULL;
        if (!s || s->n != a->n)
            continue;
        uint8_t *flags = sb_alloc(g->ctx, a->n, 1);
        if (!flags)
            return SB_NO_MEMORY;
        for (uint32_t k = 0; k < a->n; k++) {
            uint32_t c = ch->channel_of[a->first + k];
            flags[k] = c != SB_NONE && gone[c];
        }
        status = sb_progress(g->ctx, "fitting weights", i, ch->n_axes);
        if (status == SB_OK)
            status = refit_axis(ch, a, s, flags, g);
        sb_free(g->ctx, flags);
    }
    return status;
}
