/* A card for every quantized tensor: how its values are spread, which of them
 * the integers can hold, and for weights with several scales the channels. */
#include <math.h>

#include "quant/model/weight.h"
#include "report/quant_page.h"

enum { BINS = 96 };

/* What the integers of scale `i` can hold. */
static void card_limits(const sb_qparams *p, int64_t i, double *lo, double *hi)
{
    double scale = (double)p->scale[i], zero = (double)p->zero_point[i];

    *lo = (p->qmin - zero) * scale;
    *hi = (p->qmax - zero) * scale;
}

/* Share of the counted values outside of the limits. */
static double card_clipped(const sb_html_histogram *h)
{
    double all = 0, out = 0, width = (h->hi - h->lo) / (double)h->n;

    for (size_t i = 0; i < h->n; i++) {
        double at = h->lo + width * ((double)i + 0.5);
        all += h->counts[i];
        if (at < h->clip_lo || at > h->clip_hi)
            out += h->counts[i];
    }
    return all > 0 ? out / all : 0;
}

static void card_describe(const sb_quant_model *qm, const sb_quantizer *q,
                          const sb_html_histogram *h, sb_str *out)
{
    const sb_qparams *p = sb_quantizer_qparams(qm, q);

    sb_str_addf(out, "%d bit, %s", q->spec.bits,
                q->spec.dynamic ? "dynamic"
                                : sb_quant_scheme_name(q->spec.granularity,
                                                       q->spec.symmetric));
    if (p->n == 1) {
        sb_str_add(out, ", scale ");
        sb_html_general(out, (double)p->scale[0]);
    } else if (p->n > 1) {
        sb_str_addf(out, ", %lld scales", (long long)p->n);
    }
    sb_str_add(out, "; values ");
    sb_html_general(out, h->lo);
    sb_str_add(out, " to ");
    sb_html_general(out, h->hi);
    if (p->n == 1) {
        sb_str_add(out, ", ");
        sb_html_general(out, 100 * card_clipped(h));
        sb_str_add(out, " % clipped");
    }
}

/* ---- channels ------------------------------------------------------------ */

/* Least and greatest element of each index of an axis. */
static void channel_ranges(const sb_tensor *w, int axis, sb_html_range *out)
{
    int64_t outer = sb_dims_product(w->dims, 0, axis), n = w->dims[axis];
    int64_t inner = sb_dims_product(w->dims, axis + 1, w->rank);
    const float *x = w->data;

    for (int64_t c = 0; c < n; c++)
        out[c] = (sb_html_range){.lo = INFINITY, .hi = -INFINITY};
    for (int64_t o = 0; o < outer; o++)
        for (int64_t c = 0; c < n; c++)
            for (int64_t i = 0; i < inner; i++, x++) {
                out[c].lo = fminf(out[c].lo, *x);
                out[c].hi = fmaxf(out[c].hi, *x);
            }
}

/* The axis whose channels are shown: that of the scales, else the first. */
static sb_status card_channels(const sb_quant_model *qm, const sb_quantizer *q,
                               sb_str *out)
{
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    int axis = q->axis >= 0 ? q->axis : 0;
    sb_tensor w;

    if (q->block > 0)
        return SB_OK;
    SB_TRY(sb_quantizer_weight(qm, q, &w));
    int64_t n = w.rank > 0 ? w.dims[axis] : 0;
    sb_html_range *ranges = sb_alloc(qm->ctx, (size_t)n + 1, sizeof *ranges);
    if (ranges && n > 1 && (p->n == 1 || p->n == n)) {
        channel_ranges(&w, axis, ranges);
        for (int64_t c = 0; c < n; c++) {
            double lo, hi;
            card_limits(p, p->n == 1 ? 0 : c, &lo, &hi);
            ranges[c].limit_lo = (float)lo;
            ranges[c].limit_hi = (float)hi;
        }
        sb_str_addf(out, "<span>range of each of %lld channels</span>",
                    (long long)n);
        sb_html_ranges(out, "ranges of channels", ranges, (size_t)n);
    }
    sb_status status = ranges ? SB_OK : SB_NO_MEMORY;
    sb_free(qm->ctx, ranges);
    sb_tensor_drop(&w);
    return status;
}

/* ---- cards --------------------------------------------------------------- */

/* The nodes that a point serves: a click on one shows the card. */
static void card_begin(const sb_quant_model *qm, uint32_t point,
                       const sb_quantizer *q, sb_str *out)
{
    const sb_quantizer *each;
    const char *space = "";

    sb_str_add(out, "<figure class=\"card\" data-nodes=\"");
    for (uint32_t i = qm->place.points[point].head; i != SB_NONE;
         i = each->next) {
        each = &qm->place.quantizers[i];
        for (size_t k = 0; k < each->n_uses; k++) {
            sb_str_addf(out, "%s%u", space, each->uses[k].node);
            space = " ";
        }
    }
    sb_str_add(out, "\"><b>");
    sb_html_text(out, sb_graph_value(qm->graph, q->value)->name);
    sb_str_add(out, "</b><span>");
    sb_html_text(out, q->name);
    sb_str_add(out, "</span><span>");
}

static sb_status add_card(const sb_quant_errors *e, uint32_t point, sb_str *out)
{
    const sb_quant_model *qm = e->qm;
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    double counts[BINS];
    sb_html_histogram h = {.counts = counts,
                           .n = BINS,
                           .clip_lo = -(double)INFINITY,
                           .clip_hi = (double)INFINITY};
    bool there = false;

    SB_TRY(sb_errors_histogram(e, point, BINS, counts, &h.lo, &h.hi, &there));
    if (!there)
        return SB_OK;
    if (p->n == 1) {
        card_limits(p, 0, &h.clip_lo, &h.clip_hi);
        h.step = (double)p->scale[0];
    }
    card_begin(qm, point, q, out);
    card_describe(qm, q, &h, out);
    sb_str_add(out, "</span>\n");
    sb_html_histogram_add(out, "histogram", &h);
    if (sb_quantizer_is_constant(qm, q))
        SB_TRY(card_channels(qm, q, out));
    sb_str_add(out, "</figure>\n");
    return SB_OK;
}

static sb_status add_cards(const sb_quant_errors *e, bool weights, sb_str *out)
{
    const sb_quant_model *qm = e->qm;
    sb_status status = SB_OK;

    sb_str_add(out, "<div class=\"cards\">\n");
    for (uint32_t i = 0; i < qm->place.n_points && status == SB_OK; i++) {
        const sb_quantizer *q = sb_point_quantizer(&qm->place, i);
        if (sb_quantizer_is_off(qm, q) ||
            sb_quantizer_is_constant(qm, q) != weights)
            continue;
        status = sb_ctx_poll(e->ctx);
        if (status == SB_OK)
            status = add_card(e, i, out);
    }
    sb_str_add(out, "</div>\n");
    return status;
}

sb_status sb_page_tensors(const sb_quant_errors *e, sb_str *out)
{
    sb_html_section(out, "Activations",
                    "How often values come (heights are square roots, to show "
                    "the tails). Red lines enclose what the integers can hold; "
                    "values in the red area are clipped. Marks below are the "
                    "numbers that integers stand for, where there is room.");
    SB_TRY(add_cards(e, false, out));
    sb_html_section(out, "Weights",
                    "The same for weights, and the range of each output "
                    "channel. With one scale for all of them, channels much "
                    "smaller than the largest have few numbers left.");
    return add_cards(e, true, out);
}
