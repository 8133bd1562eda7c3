/* The scales of the channels of a value.
 *
 * Rounding x to steps D of its range and a row of weights to steps d of its own
 * adds noise to what a layer computes, on average
 *
 *     D^2 / 12 * sum over c of s_c^2 |w_c|^2
 *         + sum over rows of d^2 / 12 * sum over c of E[x_c^2] / s_c^2
 *
 * if channel c is divided by s_c in x and multiplied in w; D and d follow from
 * the largest channels.  As in G. Xiao et al., SmoothQuant (arXiv 2211.10438)
 *
 *     s_c = max|x_c|^a / max|w_c|^(1-a)
 *
 * but `a` is the one with the least noise, for each value.  Where the weight of
 * the layer before has one scale for all its rows, which are divided too, its
 * noise counts as well, and its rows may take the place of x: for a = 1/2 that
 * is cross-layer equalization (M. Nagel et al., arXiv 1906.04721). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/simd.h"
#include "quant/correct/equalize.h"
#include "quant/place/place.h"
#include "tensor/mapped.h"

typedef struct reader_sums {
    float *peak; /* [rows, channels of a group]: largest of its taps */
    int64_t rows, groups, taps;
    double steps; /* of integers from one end to the other */
    bool per_row; /* has each row a scale? */
} reader_sums;

typedef struct scale_search {
    const sb_link *l;
    const sb_link_stats *seen;
    reader_sums readers[SB_LINK_READERS];
    double *squares;      /* [channels] of all readers' weights */
    float *size, *weight; /* [channels] largest of x and of the readers */
    float *row;           /* [channels] largest of the maker's weight */
    double row_steps;     /* of its integers, if it has one scale; else 0 */
    double row_terms, row_energy; /* elements of a row, E of what it reads */
    float *sorted;                /* [channels] */
    double x_steps;
    bool symmetric;
} scale_search;

enum { SCALE_ROWS = 16 };

/* What samples do not show may still come: no channel grows to more than so
 * many times what it was, beside the largest.  Where half of them are farther
 * below it than that, a few channels are too large rather than all others too
 * small: they may shrink to where the median one is, which does not grow. */
static const float SCALE_MOST = 16;

/* ---- what is known of the weights --------------------------------------- */

static double scale_steps(const sb_quantizer *q)
{
    return ldexp(1, q->spec.bits) - 1;
}

/* The weights of a row for channel k of its group. */
static void scale_add_taps(const scale_search *s, const sb_link_reader *r,
                           const sb_tensor *t, int64_t row, int64_t k,
                           float *peak)
{
    int64_t per = s->l->channels / r->groups;
    int64_t first =
        r->transposed ? k * r->rows + row : (row * per + k) * r->taps;
    int64_t c = row / (r->rows / r->groups) * per + k;
    float most = 0;

    for (int64_t tap = 0; tap < r->taps; tap++) {
        float w = sb_tensor_float(t, first + tap), size = fabsf(w);

        most = size > most ? size : most;
        s->squares[c] += (double)w * (double)w;
    }
    *peak = most;
    s->weight[c] = most > s->weight[c] ? most : s->weight[c];
}

static sb_status scale_add_reader(const sb_quant_model *qm, scale_search *s,
                                  const sb_link_reader *r, reader_sums *out)
{
    const sb_tensor *t = &sb_graph_value(qm->graph, r->weight)->constant;
    const sb_quantizer *q = sb_quantizer_on(qm, r->node, 1);
    int64_t per = s->l->channels / r->groups;

    *out = (reader_sums){.rows = r->rows,
                         .groups = r->groups,
                         .taps = r->taps,
                         .steps = scale_steps(q),
                         .per_row = q->axis >= 0};
    out->peak = sb_alloc(qm->ctx, (size_t)(r->rows * per), sizeof *out->peak);
    if (!out->peak)
        return SB_NO_MEMORY;
    /* Some rows at a time: in a matrix that is transposed they are side by
     * side. */
    for (int64_t some = 0; some < r->rows; some += SCALE_ROWS)
        for (int64_t k = 0; k < per; k++)
            for (int64_t i = some; i < some + SCALE_ROWS && i < r->rows; i++)
                scale_add_taps(s, r, t, i, k, &out->peak[i * per + k]);
    return SB_OK;
}

/* The layer before, if its weight has one scale. */
static void scale_set_maker(const sb_quant_model *qm, scale_search *s)
{
    const sb_link *l = s->l;
    const sb_quantizer *q =
        l->maker != SB_NONE ? sb_quantizer_on(qm, l->maker, 1) : NULL;
    double squares = 0, energy = 0;

    if (!q || q->axis >= 0)
        return;
    const sb_tensor *t = &sb_graph_value(qm->graph, l->weight)->constant;
    int64_t inner = sb_dims_product(t->dims, l->weight_axis + 1, t->rank);
    for (int64_t e = 0; e < sb_tensor_count(t); e++) {
        float *row = &s->row[e / inner % l->channels];
        float w = sb_tensor_float(t, e);

        *row = fmaxf(*row, fabsf(w));
        squares += (double)w * (double)w;
    }
    for (int64_t c = 0; c < l->channels; c++)
        energy += s->seen->square[c];
    s->row_steps = scale_steps(q);
    s->row_terms = (double)(sb_tensor_count(t) / l->channels);
    s->row_energy = squares > 0 ? energy / squares : 0;
}

/* ---- noise -------------------------------------------------------------- */

/* What rounding the weights of a row is multiplied with: E[x^2] of the channels
 * of its group. */
static double scale_energy(const scale_search *s, int64_t first, int64_t n,
                           const float *scales)
{
    double all = 0;

    for (int64_t c = first; c < first + n; c++) {
        double by = (double)scales[c];

        all += s->seen->square[c] / (by * by);
    }
    return all;
}

SB_HOT static float scale_largest(const float *peak, const float *scales,
                                  int64_t n)
{
    float largest = 0;

    SB_SIMD_LARGEST
    for (int64_t c = 0; c < n; c++) {
        float w = peak[c] * scales[c];

        largest = w > largest ? w : largest;
    }
    return largest;
}

static double scale_reader_noise(const scale_search *s, const reader_sums *r,
                                 const float *scales)
{
    int64_t per = s->l->channels / r->groups, rows = r->rows / r->groups;
    double noise = 0, most = 0, energy = 0, all = 0;

    for (int64_t row = 0; row < r->rows; row++) {
        int64_t first = row / rows * per;

        if (row % rows == 0)
            all = scale_energy(s, first, per, scales);
        float largest = scale_largest(r->peak + row * per, scales + first, per);
        double step = 2 * (double)largest / r->steps;
        most = fmax(most, step);
        energy += all;
        noise += step * step * all;
    }
    return (r->per_row ? noise : most * most * energy) * (double)r->taps;
}

static double scale_noise(const scale_search *s, const float *scales)
{
    double lo = 0, hi = 0, row = 0, weighted = 0, noise = 0;

    for (int64_t c = 0; c < s->l->channels; c++) {
        double by = (double)scales[c];
        lo = fmin(lo, (double)s->seen->lo[c] / by);
        hi = fmax(hi, (double)s->seen->hi[c] / by);
        row = fmax(row, (double)s->row[c] / by);
        weighted += by * by * s->squares[c];
    }
    double x = (s->symmetric ? 2 * fmax(-lo, hi) : hi - lo) / s->x_steps;
    noise = x * x * weighted;
    if (s->row_steps > 0) {
        double d = 2 * row / s->row_steps;
        noise += d * d * s->row_terms * s->row_energy * weighted;
    }
    for (size_t i = 0; i < s->l->n_readers; i++)
        noise += scale_reader_noise(s, &s->readers[i], scales);
    return noise;
}

/* ---- search ------------------------------------------------------------- */

/* Neither dead channels nor lone peaks may take all of a range. */
static float scale_floor(const float *v, int64_t n)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, v[i]);
    return most > 0 ? most * 1e-3F : 1;
}

static int scale_compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Where a Clip cuts off, scales are at most 1, and what is twice as large as
 * all that was seen still passes as before; what was never seen may be as large
 * as the bound. */
static void scale_limit(const scale_search *s, float *scales)
{
    size_t n = (size_t)s->l->channels;
    float bound = (float)s->l->bound;

    memcpy(s->sorted, scales, n * sizeof *scales);
    qsort(s->sorted, n, sizeof *scales, scale_compare);
    float most = s->sorted[n - 1];
    float least = fminf(most / SCALE_MOST, s->sorted[n / 2]);
    for (size_t c = 0; c < n; c++) {
        scales[c] = fmaxf(scales[c], least);
        if (!isfinite(bound))
            continue;
        float hi = s->seen->hi[c] > 0 ? 2 * s->seen->hi[c] / bound : 1;
        scales[c] = fmaxf(scales[c] / most, fminf(hi, 1));
    }
}

static void scale_try(const scale_search *s, const float *size, double a,
                      float *scales)
{
    int64_t n = s->l->channels;
    double least = (double)scale_floor(size, n);
    double weak = (double)scale_floor(s->weight, n), mean = 0;

    for (int64_t c = 0; c < n; c++) {
        double x = log(fmax((double)size[c], least));
        double w = log(fmax((double)s->weight[c], weak));
        double v = a * x - (1 - a) * w;

        scales[c] = (float)v;
        mean += v / (double)n;
    }
    for (int64_t c = 0; c < n; c++)
        scales[c] = expf(scales[c] - (float)mean);
    scale_limit(s, scales);
}

static void scale_search_all(const scale_search *s, float *tried, float *best,
                             double *gain)
{
    int64_t n = s->l->channels;

    for (int64_t c = 0; c < n; c++)
        best[c] = 1;
    double before = scale_noise(s, best), least = before;
    for (int k = 0; k <= 10; k++)
        for (int family = 0; family < (s->row_steps > 0 ? 2 : 1); family++) {
            scale_try(s, family ? s->row : s->size, k / 10.0, tried);
            double noise = scale_noise(s, tried);
            if (!(noise < least))
                continue;
            least = noise;
            for (int64_t c = 0; c < n; c++)
                best[c] = tried[c];
        }
    *gain = before > 0 ? least / before : 1;
}

/* How large a channel may be: what few samples show of a rare peak is chance,
 * so it is taken to reach ten times its mean magnitude at least. */
static float scale_reach(const sb_link_stats *seen, size_t c)
{
    const float most = 10;

    return fmaxf(fmaxf(-seen->lo[c], seen->hi[c]),
                 most * sqrtf((float)seen->square[c]));
}

sb_status sb_link_scales(const sb_quant_model *qm, const sb_link *l,
                         const sb_link_stats *seen, float *scales, double *gain)
{
    const sb_quantizer *x = sb_quantizer_on(qm, l->readers[0].node, 0);
    size_t n = (size_t)l->channels;
    float *room = sb_alloc(qm->ctx, 5 * n, sizeof *room);
    scale_search s = {.l = l,
                      .seen = seen,
                      .squares = sb_alloc(qm->ctx, n, sizeof *s.squares),
                      .x_steps = scale_steps(x),
                      .symmetric = x->spec.symmetric};
    sb_status status = room && s.squares ? SB_OK : SB_NO_MEMORY;

    *gain = 1;
    for (size_t i = 0; i < l->n_readers && status == SB_OK; i++) {
        s.size = room;
        s.weight = room + n;
        s.row = room + 2 * n;
        s.sorted = room + 4 * n;
        status = scale_add_reader(qm, &s, &l->readers[i], &s.readers[i]);
    }
    if (status == SB_OK) {
        for (size_t c = 0; c < n; c++)
            s.size[c] = scale_reach(seen, c);
        scale_set_maker(qm, &s);
        scale_search_all(&s, room + 3 * n, scales, gain);
    }
    for (size_t i = 0; i < l->n_readers; i++)
        sb_free(qm->ctx, s.readers[i].peak);
    sb_free(qm->ctx, s.squares);
    sb_free(qm->ctx, room);
    return status;
}
