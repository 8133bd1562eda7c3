/* Rows of an output, each on its own: where boxes of hundreds of pixels and
 * scores below one share a tensor, one figure for all of it says nothing about
 * the scores.  Rows run along the shorter axis beside the samples: the 84 of
 * [1, 84, 8400], the 85 of [1, 25200, 85], the channels of an image. */
#include <math.h>
#include <string.h>

#include "base/str.h"
#include "eval/eval.h"

enum {
    MOST_ROWS = 4096,
    MAGNITUDES = 30, /* rows smaller than the largest by this are apart */
    MOST_RANGES = 4  /* of rows that a text names */
};

static int row_axis(const sb_tensor *t)
{
    if (t->rank < 3)
        return t->rank - 1;
    return t->dims[t->rank - 1] < t->dims[1] ? t->rank - 1 : 1;
}

/* Rows as the output has them; none where outputs differ in shape. */
static sb_status make_rows(sb_eval *e, size_t i, const sb_tensor *t)
{
    sb_eval_rows *rows = &e->rows[i];
    int axis = row_axis(t);

    if (rows->off)
        return SB_OK;
    if (axis < 1 || t->dims[axis] > MOST_ROWS ||
        (rows->v && (rows->axis != axis || rows->n != (size_t)t->dims[axis]))) {
        rows->off = true;
        return SB_OK;
    }
    if (rows->v)
        return SB_OK;
    rows->axis = axis;
    rows->n = (size_t)t->dims[axis];
    rows->v = sb_alloc(e->ctx, rows->n, sizeof *rows->v);
    return rows->v ? SB_OK : SB_NO_MEMORY;
}

static void add_elements(const sb_tensor *a, const sb_tensor *b, int64_t first,
                         int64_t n, sb_eval_row *row)
{
    sb_products p = {0};
    double largest = row->largest;

    for (int64_t i = first; i < first + n; i++) {
        double x = sb_eval_element(a, i), y = sb_eval_element(b, i);

        p.ab += x * y;
        p.aa += x * x;
        p.bb += y * y;
        p.noise += (x - y) * (x - y);
        largest = fabs(y) > largest ? fabs(y) : largest;
    }
    row->sum.ab += p.ab;
    row->sum.aa += p.aa;
    row->sum.bb += p.bb;
    row->sum.noise += p.noise;
    row->largest = largest;
}

static void add_products(sb_products *to, const sb_products *p)
{
    to->ab += p->ab;
    to->aa += p->aa;
    to->bb += p->bb;
    to->noise += p->noise;
}

sb_status sb_eval_add_rows(sb_eval *e, size_t i, const sb_tensor *a,
                           const sb_tensor *b, int64_t first, int64_t n,
                           sb_products *out)
{
    sb_eval_rows *rows = &e->rows[i];
    sb_eval_row all = {0};

    SB_TRY(make_rows(e, i, a));
    if (rows->off || n == 0) {
        add_elements(a, b, first, n, &all);
        *out = all.sum;
        return SB_OK;
    }
    int64_t inner = sb_dims_product(a->dims, rows->axis + 1, a->rank);
    int64_t block = inner * (int64_t)rows->n;
    for (int64_t o = first; block > 0 && o < first + n; o += block)
        for (size_t r = 0; r < rows->n; r++) {
            sb_eval_row one = {.largest = rows->v[r].largest};

            add_elements(a, b, o + (int64_t)r * inner, inner, &one);
            add_products(&rows->v[r].sum, &one.sum);
            add_products(&all.sum, &one.sum);
            rows->v[r].largest = one.largest;
        }
    *out = all.sum;
    return SB_OK;
}

/* ---- parts --------------------------------------------------------------- */

/* "0..3, 84" of the rows that are small, or not. */
static sb_status name_rows(sb_eval *e, const sb_eval_rows *rows,
                           const bool *small, bool want, const char **out)
{
    sb_str text;
    size_t ranges = 0;

    sb_str_init(&text, e->ctx);
    for (size_t r = 0; r < rows->n && ranges <= MOST_RANGES; r++) {
        size_t first = r;

        if (small[r] != want)
            continue;
        while (r + 1 < rows->n && small[r + 1] == want)
            r++;
        sb_str_add(&text, ranges ? ", " : "");
        if (++ranges > MOST_RANGES)
            sb_str_add(&text, "...");
        else if (r > first)
            sb_str_addf(&text, "%zu..%zu", first, r);
        else
            sb_str_addf(&text, "%zu", first);
    }
    sb_status status = sb_str_status(&text);
    if (status == SB_OK) {
        *out = sb_arena_str(&e->parts, sb_str_text(&text));
        status = *out ? SB_OK : SB_NO_MEMORY;
    }
    sb_str_free(&text);
    return status;
}

static sb_status make_part(sb_eval *e, size_t output, const bool *small,
                           bool want, sb_eval_part *out)
{
    const sb_eval_rows *rows = &e->rows[output];
    sb_products p = {0};

    *out = (sb_eval_part){.output = output, .axis = rows->axis};
    for (size_t r = 0; r < rows->n; r++) {
        if (small[r] != want)
            continue;
        add_products(&p, &rows->v[r].sum);
        out->n_rows++;
        if (rows->v[r].largest > out->largest)
            out->largest = rows->v[r].largest;
    }
    out->cosine = sb_eval_cosine(&p);
    out->sqnr_db = sb_eval_decibel(p.bb, p.noise);
    return name_rows(e, rows, small, want, &out->rows);
}

/* Which rows are smaller by magnitudes; false if none is, or all of those are
 * zero. */
static bool find_small(const sb_eval_rows *rows, bool *small)
{
    double largest = 0, rest = 0;

    for (size_t r = 0; r < rows->n; r++)
        largest = rows->v[r].largest > largest ? rows->v[r].largest : largest;
    for (size_t r = 0; r < rows->n; r++) {
        small[r] = rows->v[r].largest * MAGNITUDES < largest;
        if (small[r])
            rest += rows->v[r].sum.aa + rows->v[r].sum.bb;
    }
    return rest > 0;
}

sb_status sb_eval_parts(sb_eval *e, const sb_eval_part *const **out, size_t *n)
{
    /* Classes that are rare have small scores, too. */
    bool wanted = e->task == SB_TASK_DETECT || e->task == SB_TASK_NONE;

    sb_arena_free(&e->parts);
    sb_arena_init(&e->parts, e->ctx);
    sb_eval_part *v = sb_arena_alloc(&e->parts, 2 * e->n_outputs, sizeof *v);
    const sb_eval_part **list =
        sb_arena_alloc(&e->parts, 2 * e->n_outputs, sizeof(*list));
    size_t count = 0;

    if (!v || !list)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < e->n_outputs && wanted; i++) {
        const sb_eval_rows *rows = &e->rows[i];

        if (!rows->v || rows->off)
            continue;
        bool *small = sb_arena_alloc(&e->parts, rows->n, sizeof *small);
        if (!small)
            return SB_NO_MEMORY;
        if (!find_small(rows, small))
            continue;
        for (int k = 0; k < 2; k++, count++) {
            SB_TRY(make_part(e, i, small, k == 1, &v[count]));
            list[count] = &v[count];
        }
    }
    *out = list;
    *n = count;
    return SB_OK;
}
