/* Scales that a quantized file brings along.
 *
 * Where the target can hold them they are taken as they are, to the last bit,
 * so that writing such a file again gives the same file; else the range that
 * they stand for is quantized as the target wants it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/op_registry.h"
#include "quant/import/import_linear.h"
#include "quant/place/place.h"

/* ---- widths ------------------------------------------------------------- */

static const char *import_scales_metadata(const sb_graph *g, const char *key)
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

sb_status sb_imported_bits(const sb_graph *g, const char *value, int *bits)
{
    const char *text = import_scales_metadata(g, "sparsebit.bits");

    *bits = 0;
    if (text)
        SB_TRY(width_in(g->ctx, text, value, bits));
    if (*bits > 16)
        *bits = 0;
    return SB_OK;
}

/* The width of one entry; not believed if the integers say otherwise. */
static void take_bits(sb_imported_qparams *k, int bits)
{
    bool symmetric = k->qparams.symmetric;

    if (bits < 1 || k->dynamic ||
        (k->constant && (k->least < sb_qmin(bits, symmetric) ||
                         k->most > sb_qmax(bits, symmetric))))
        return;
    k->qparams.bits = bits;
    k->qparams.qmin = sb_qmin(bits, symmetric);
    k->qparams.qmax = sb_qmax(bits, symmetric);
}

sb_status sb_imported_read_bits(const sb_graph *g, sb_imported_list *known)
{
    for (size_t i = 0; i < g->n_values; i++) {
        const sb_value *v = &g->values[i];
        int bits = 0;

        if (v->origin == 0)
            continue;
        SB_TRY(sb_imported_bits(g, v->name, &bits));
        take_bits(&known->v[v->origin - 1], bits);
    }
    return SB_OK;
}

/* ---- constants that were changed ----------------------------------------- */

/* Do the scales follow the factors?  Those of blocks do not, nor those along
 * another axis. */
static bool may_rescale(const sb_imported_qparams *k, const sb_rescale *r)
{
    const sb_qparams *p = &k->qparams;

    return k->block == 0 &&
           (r->axis < 0 || p->axis < 0 || (p->axis == r->axis && p->n == r->n));
}

sb_status sb_imported_rescale(sb_imported_list *known, sb_graph *g,
                              const sb_rescale *r, int axis)
{
    const sb_imported_qparams *was = sb_imported_find(known, g, r->from);
    sb_imported_qparams *k = NULL;

    if (!was || !may_rescale(was, r))
        return SB_OK;
    size_t from = (size_t)(was - known->v);
    SB_TRY(sb_imported_new(g->ctx, known, &k));
    was = &known->v[from];
    const sb_qparams *p = &was->qparams;
    SB_TRY(sb_qparams_init(g->ctx, &k->qparams, r->n > p->n ? r->n : p->n, axis,
                           p->bits, p->symmetric));
    k->least = was->least;
    k->most = was->most;
    k->constant = k->all = true;
    k->qparams.qmin = p->qmin;
    k->qparams.qmax = p->qmax;
    for (int64_t i = 0; i < k->qparams.n; i++) {
        int64_t at = p->n == 1 ? 0 : i;
        float scale = p->scale[at] * r->factor[r->n == 1 ? 0 : i];

        /* Zeros are zeros at any scale. */
        k->qparams.scale[i] = isfinite(scale) && scale != 0 ? scale : 1;
        k->qparams.zero_point[i] = p->zero_point[at];
    }
    sb_graph_value(g, r->to)->origin = (uint32_t)known->n;
    return SB_OK;
}

/* ---- settings ----------------------------------------------------------- */

static bool scheme_allowed(const sb_quant_model *qm, const sb_quantizer *q,
                           bool symmetric)
{
    return sb_target_takes(qm->target,
                           q->spec.kind == SB_QUANT_WEIGHT ? SB_USE_WEIGHT
                                                           : SB_USE_ACT,
                           symmetric);
}

/* Are there as many scales as the constant needs?  It may have been changed
 * since. */
static bool has_shape(const sb_imported_qparams *k, const sb_tensor *w)
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
static bool fits_product(const sb_quant_model *qm, const sb_imported_qparams *k,
                         const sb_quantizer *q)
{
    const sb_qparams *p = &k->qparams;
    bool conv =
        sb_node_flag(sb_graph_node(qm->graph, q->uses[0].node), SB_OP_CONV);

    return k->block == 0 && p->bits <= 8 &&
           (p->axis < 0 || p->axis == (conv ? 0 : 1)) &&
           (!conv || one_zero_point(p));
}

/* Has the target kernels for the settings of a constant? */
static bool target_takes(const sb_quant_model *qm, const sb_imported_qparams *k,
                         const sb_quantizer *q)
{
    const sb_qparams *p = &k->qparams;

    if (sb_quantizer_is_dynamic(qm, q))
        return fits_product(qm, k, q);
    if (!qm->target->ops)
        return true;
    if (sb_quant_config_mode(qm->config) != SB_QUANT_STATIC)
        return sb_target_takes(qm->target, SB_USE_WEIGHT_ONLY, p->symmetric) &&
               p->bits <= 8;
    return scheme_allowed(qm, q, p->symmetric) && k->block == 0 &&
           p->bits <= 8 && all_positive(p) &&
           (q->spec.kind != SB_QUANT_ACTIVATION || p->axis < 0);
}

sb_status sb_imported_check_spec(const sb_quant_model *qm,
                                 const sb_imported_qparams *k,
                                 const sb_quant_spec *spec, const char *value)
{
    const sb_qparams *p = &k->qparams;
    char side = k->constant ? 'W' : 'A';
    bool fits = k->constant && k->least >= sb_qmin(spec->bits, p->symmetric) &&
                k->most <= sb_qmax(spec->bits, p->symmetric);

    if (!qm->asked)
        return SB_OK;
    if (spec->bits != p->bits && !fits)
        return sb_fail(qm->ctx, SB_BAD_CONFIG,
                       "%s: %c.QUANTIZER.BIT is %d, but '%s' is quantized to "
                       "%d bits already; quantize the float model, or leave "
                       "out the configuration to keep what the file has",
                       sb_quant_config_file(qm->config), side, spec->bits,
                       value, p->bits);
    if (k->constant && spec->granularity == SB_QUANT_PER_GROUP &&
        spec->group_size > 0 && k->block != spec->group_size)
        return sb_fail(
            qm->ctx, SB_BAD_CONFIG,
            "%s: %c.QUANTIZER.GROUP_SIZE is %lld, but '%s' has "
            "%s%lld already; quantize the float model, or leave "
            "out the configuration to keep what the file has",
            sb_quant_config_file(qm->config), side, (long long)spec->group_size,
            value,
            k->block > 0 ? "groups of " : "no groups: ", (long long)k->block);
    return SB_OK;
}

/* Settings of a constant become those of the file; false if the target cannot
 * take them, and the constant is quantized anew. */
static bool import_scales_adopt(const sb_quant_model *qm,
                                const sb_imported_qparams *k, sb_quantizer *q)
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
static void import_scales_follow(const sb_quant_model *qm,
                                 const sb_imported_qparams *k, sb_quantizer *q)
{
    if (!scheme_allowed(qm, q, k->qparams.symmetric))
        return;
    q->spec.symmetric = k->qparams.symmetric;
    if (!qm->target->ops)
        q->spec.bits = k->qparams.bits;
}

sb_status sb_quant_apply_imported(sb_quant_model *qm)
{
    for (size_t i = 0; i < qm->place.n_quantizers && qm->known.n > 0; i++) {
        sb_quantizer *q = &qm->place.quantizers[i];
        uint32_t of = qm->place.points[q->point].same_as;
        const sb_value *v =
            sb_graph_value(qm->graph, qm->place.points[of].value);
        const sb_imported_qparams *k =
            sb_imported_find(&qm->known, qm->graph, qm->place.points[of].value);

        if (!k || k->dynamic || k->constant != v->is_constant)
            continue;
        if (of != q->point) { /* has the scales of another */
            if (!k->constant)
                import_scales_follow(qm, k, q);
            continue;
        }
        const sb_quant_spec asked = q->spec;
        if (k->constant && !import_scales_adopt(qm, k, q))
            continue;
        if (k->constant && !q->fake_fused)
            SB_TRY(sb_imported_check_spec(qm, k, &asked, v->name));
        if (!k->constant)
            import_scales_follow(qm, k, q);
        qm->place.points[q->point].known = k;
    }
    return SB_OK;
}

/* Nothing below 0 comes out of a Relu, so it needs no integers. */
static void import_scales_bound(const sb_graph *g, sb_value_id value,
                                sb_range *r)
{
    const sb_node *node = sb_graph_producer(g, value);
    double lo, hi;

    if (!node)
        return;
    const sb_result_range *range = sb_node_range(g, node, &lo, &hi);
    if (!range || !range->clips)
        return;
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

static bool import_scales_fits(const sb_imported_qparams *k,
                               const sb_quantizer *q)
{
    const sb_qparams *p = &k->qparams;

    return p->symmetric == q->spec.symmetric && p->bits == q->spec.bits &&
           p->axis == q->axis && k->block == q->block;
}

sb_status sb_quant_use_imported(const sb_quant_model *qm,
                                const sb_imported_qparams *known,
                                const sb_quantizer *q)
{
    const sb_qparams *k = &known->qparams;
    sb_qparams *p = &sb_quantizer_state_of(qm, q)->qparams;
    bool same = import_scales_fits(known, q);
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
        import_scales_bound(qm->graph, q->value, &r);
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
