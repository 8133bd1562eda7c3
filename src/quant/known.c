/* Scales that a quantized file brings along.
 *
 * Where the target can hold them they are taken as they are, to the last bit,
 * so that writing such a file again gives the same file; else the range that
 * they stand for is quantized as the target wants it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "passes/rewrite.h"
#include "quant/dynamic.h"

/* ---- widths ------------------------------------------------------------- */

static const char *metadata(const sb_graph *g, const char *key)
{
    for (size_t i = 0; i < g->n_model_props; i++)
        if (strcmp(g->model_props[i].key, key) == 0)
            return g->model_props[i].value;
    return NULL;
}

/* The number behind `"name":` in {"name":8,...}; 0 if there is none. */
static sb_status width_in(sb_ctx *ctx, const char *text, const char *name,
                          int *bits)
{
    sb_str key;

    sb_str_init(&key, ctx);
    sb_str_add_json(&key, name);
    sb_str_add(&key, ":");
    sb_status status = sb_str_status(&key);
    const char *at = status == SB_OK ? strstr(text, sb_str_text(&key)) : NULL;
    *bits = 0;
    if (at) {
        at += strlen(sb_str_text(&key));
        while (*at >= '0' && *at <= '9' && *bits <= 16)
            *bits = *bits * 10 + (*at++ - '0');
    }
    sb_str_free(&key);
    return status;
}

sb_status sb_known_width(const sb_graph *g, const char *value, int *bits)
{
    const char *text = metadata(g, "sparsebit.bits");

    *bits = 0;
    if (text)
        SB_TRY(width_in(g->ctx, text, value, bits));
    if (*bits > 16)
        *bits = 0;
    return SB_OK;
}

sb_status sb_quant_known_widths(sb_quant_model *qm)
{
    for (size_t i = 0; i < qm->known.n; i++) {
        sb_known *k = &qm->known.v[i];
        int bits = 0;

        SB_TRY(sb_known_width(qm->graph, k->value, &bits));
        if (bits < 1 || k->dynamic)
            continue;
        /* Not believed if the integers say otherwise. */
        if (k->constant && (k->least < sb_qmin(bits, k->qparams.symmetric) ||
                            k->most > sb_qmax(bits, k->qparams.symmetric)))
            continue;
        k->qparams.bits = bits;
        k->qparams.qmin = sb_qmin(bits, k->qparams.symmetric);
        k->qparams.qmax = sb_qmax(bits, k->qparams.symmetric);
    }
    return SB_OK;
}

/* ---- constants that were changed ----------------------------------------- */

static float scaled(const sb_qparams *p, const sb_factors *f, int64_t i)
{
    float scale = p->scale[p->n == 1 ? 0 : i] * (f->n > 0 ? f->v[i] : f->one);

    /* Zeros are zeros at any scale. */
    return isfinite(scale) && scale != 0 ? scale : 1;
}

sb_status sb_quant_known_scaled(sb_quant_model *qm, const char *old,
                                const char *name, int axis,
                                const sb_factors *factors)
{
    sb_known_list *list = &qm->known;

    if (!sb_known_find(list, old) || sb_known_find(list, name))
        return SB_OK;
    SB_TRY(
        sb_grow(qm->ctx, &list->v, &list->cap, list->n + 1, sizeof *list->v));
    const sb_known *was = sb_known_find(list, old);
    const sb_qparams *p = &was->qparams;
    sb_known k = {.value = sb_arena_str(&qm->arena, name),
                  .least = was->least,
                  .most = was->most,
                  .constant = true,
                  .all = true};
    if (!k.value)
        return SB_NO_MEMORY;
    SB_TRY(sb_qparams_init(qm->ctx, &k.qparams,
                           factors->n > 0 ? factors->n : p->n, axis, p->bits,
                           p->symmetric));
    k.qparams.qmin = p->qmin;
    k.qparams.qmax = p->qmax;
    for (int64_t i = 0; i < k.qparams.n; i++) {
        k.qparams.scale[i] = scaled(p, factors, i);
        k.qparams.zero_point[i] = p->zero_point[p->n == 1 ? 0 : i];
    }
    list->v[list->n++] = k;
    return SB_OK;
}

/* ---- settings ----------------------------------------------------------- */

static bool scheme_allowed(const sb_quant_model *qm, const sb_quantizer *q,
                           bool symmetric)
{
    uint32_t schemes = q->spec.kind == SB_QUANT_WEIGHT
                           ? qm->target->weight_schemes
                           : qm->target->act_schemes;

    return (schemes & (symmetric ? SB_SCHEME_SYMMETRIC : SB_SCHEME_AFFINE)) !=
           0;
}

/* Are there as many scales as the constant needs?  It may have been changed
 * since. */
static bool has_shape(const sb_known *k, const sb_tensor *w)
{
    const sb_qparams *p = &k->qparams;
    int64_t n = 1;

    if (p->axis < 0)
        return p->n == 1;
    if (p->axis >= w->rank)
        return false;
    n = w->dims[p->axis];
    if (k->block > 0) {
        n = n / k->block + (n % k->block != 0);
        for (int d = 0; d < w->rank; d++)
            n *= d == p->axis ? 1 : w->dims[d];
    }
    return p->n == n;
}

/* Scales of some tools are negative, so as to use all numbers of a type that
 * has one more below 0 than above. */
static bool all_positive(const sb_qparams *p)
{
    for (int64_t i = 0; i < p->n; i++)
        if (!(p->scale[i] > 0))
            return false;
    return true;
}

static bool one_zero_point(const sb_qparams *p)
{
    for (int64_t i = 1; i < p->n; i++)
        if (p->zero_point[i] != p->zero_point[0])
            return false;
    return true;
}

/* Can the integer product of a dynamic layer take the weight?  Its scales are
 * multiplied into the result, so they must be those of its channels.
 * ConvInteger has one zero point. */
static bool fits_product(const sb_quant_model *qm, const sb_known *k,
                         const sb_quantizer *q)
{
    const sb_qparams *p = &k->qparams;
    bool conv = sb_node_is(sb_graph_node(qm->graph, q->uses[0].node), "Conv");

    return k->block == 0 && p->bits <= 8 &&
           (p->axis < 0 || p->axis == (conv ? 0 : 1)) &&
           (!conv || one_zero_point(p));
}

/* Has the target kernels for the settings of a constant? */
static bool target_takes(const sb_quant_model *qm, const sb_known *k,
                         const sb_quantizer *q)
{
    const sb_qparams *p = &k->qparams;
    uint32_t scheme = p->symmetric ? SB_SCHEME_SYMMETRIC : SB_SCHEME_AFFINE;

    if (sb_quantizer_is_dynamic(qm, q))
        return fits_product(qm, k, q);
    if (!qm->target->ops)
        return true;
    if (sb_quant_config_mode(qm->config) != SB_QUANT_STATIC)
        return (qm->target->only_schemes & scheme) != 0 && p->bits <= 8;
    return scheme_allowed(qm, q, p->symmetric) && k->block == 0 &&
           p->bits <= 8 && all_positive(p) &&
           (q->spec.kind != SB_QUANT_FEATURE || p->axis < 0 ||
            qm->target->act_per_channel);
}

/* Settings of a constant become those of the file; false if the target cannot
 * take them, and the constant is quantized anew. */
static bool adopt(const sb_quant_model *qm, const sb_known *k, sb_quantizer *q)
{
    const sb_qparams *p = &k->qparams;

    if (!has_shape(k, &sb_graph_value(qm->graph, q->value)->constant) ||
        !target_takes(qm, k, q))
        return false;
    q->spec.bits = p->bits;
    q->spec.symmetric = p->symmetric;
    q->spec.granularity = k->block > 0   ? SB_QUANT_PER_GROUP
                          : p->axis >= 0 ? SB_QUANT_PER_CHANNEL
                                         : SB_QUANT_PER_TENSOR;
    q->axis = p->axis;
    q->block = k->block;
    q->qmin = p->qmin;
    q->qmax = p->qmax;
    return true;
}

/* What an activation is quantized like follows the file, where the target
 * allows it. */
static void follow(const sb_quant_model *qm, const sb_known *k, sb_quantizer *q)
{
    if (!scheme_allowed(qm, q, k->qparams.symmetric))
        return;
    q->spec.symmetric = k->qparams.symmetric;
    if (!qm->target->ops)
        q->spec.bits = k->qparams.bits;
}

void sb_quant_apply_known(sb_quant_model *qm)
{
    for (size_t i = 0; i < qm->n_quantizers && qm->known.n > 0; i++) {
        sb_quantizer *q = &qm->quantizers[i];
        uint32_t of = qm->sites[q->site].same_as;
        const sb_value *v = sb_graph_value(qm->graph, qm->sites[of].value);
        const sb_known *k = sb_known_find(&qm->known, v->name);

        if (!k || k->dynamic || k->constant != v->is_constant)
            continue;
        if (of != q->site) { /* has the scales of another */
            if (!k->constant)
                follow(qm, k, q);
            continue;
        }
        if (k->constant && !adopt(qm, k, q))
            continue;
        if (!k->constant)
            follow(qm, k, q);
        qm->sites[q->site].known = k;
    }
}

/* What a value can be at all: nothing below 0 comes out of a Relu. */
static void bound(const sb_graph *g, sb_value_id value, sb_range *r)
{
    const sb_node *node = sb_graph_producer(g, value);
    double lo = -(double)INFINITY, hi = (double)INFINITY;

    if (!node)
        return;
    if (sb_node_is(node, "Relu"))
        lo = 0;
    if (sb_node_is(node, "Clip")) {
        (void)sb_const_scalar(g, sb_node_in(node, 1), &lo);
        (void)sb_const_scalar(g, sb_node_in(node, 2), &hi);
    }
    r->lo = fmaxf(r->lo, (float)lo);
    r->hi = fminf(r->hi, (float)hi);
}

/* What the integers of channel i stand for, within what floats can span. */
static sb_range range_of(const sb_qparams *k, int64_t i)
{
    const float most = FLT_MAX / 4;
    float a = ((float)k->qmin - k->zero_point[i]) * k->scale[i];
    float b = ((float)k->qmax - k->zero_point[i]) * k->scale[i];

    return (sb_range){fmaxf(fminf(a, b), -most), fminf(fmaxf(a, b), most)};
}

static bool fits(const sb_known *k, const sb_quantizer *q)
{
    const sb_qparams *p = &k->qparams;

    return p->symmetric == q->spec.symmetric && p->bits == q->spec.bits &&
           p->axis == q->axis && k->block == q->block;
}

sb_status sb_quant_use_known(sb_quant_model *qm, const sb_known *known,
                             sb_quantizer *q)
{
    const sb_qparams *k = &known->qparams;
    sb_qparams *p = &q->qparams;
    bool same = fits(known, q);
    bool along = q->axis >= 0 && q->axis == k->axis && q->block == known->block;
    int64_t n = same || along ? k->n : 1;

    sb_qparams_free(qm->ctx, p);
    SB_TRY(sb_qparams_init(qm->ctx, p, n, q->axis, q->spec.bits,
                           q->spec.symmetric));
    if (same) {
        memcpy(p->scale, k->scale, (size_t)n * sizeof(float));
        memcpy(p->zero_point, k->zero_point, (size_t)n * sizeof(float));
        if (known->constant) {
            p->qmin = k->qmin;
            p->qmax = k->qmax;
        }
        return SB_OK;
    }
    sb_range all = {0, 0};
    for (int64_t i = 0; i < k->n; i++) {
        sb_range r = range_of(k, i);
        bound(qm->graph, q->value, &r);
        all.lo = fminf(all.lo, r.lo);
        all.hi = fmaxf(all.hi, r.hi);
        if (n > 1)
            sb_qparams_from_range(r, p->bits, p->symmetric, &p->scale[i],
                                  &p->zero_point[i]);
    }
    if (n == 1)
        sb_qparams_from_range(all, p->bits, p->symmetric, &p->scale[0],
                              &p->zero_point[0]);
    return SB_OK;
}
