/* Layered drawing, after Sugiyama: every box gets a layer, edges over several
 * layers a point in each between; the order within layers is improved by
 * barycenters, down and up in turn; then places are moved towards the mean of
 * their neighbors as far as the order allows, which is an isotonic regression
 * and solved exactly; and the layers are cut into columns.  Everything is
 * linear in boxes, edges and points but for the sorting, so a thousand boxes
 * take milliseconds. */
#include "report/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SWEEPS = 12,         /* for the order, and again for the places */
    POINTS_MOST = 60000, /* beyond that long edges go straight */
    ROWS_LEAST = 10      /* of a column, about */
};

static const float SHAPE = 1.5F; /* width to height that is looked for */

/* A box, or a point of an edge between two layers. */
typedef struct layout_item {
    uint32_t layer, place; /* place: index in its layer */
    float x;
    double key; /* sorted by it */
} layout_item;

typedef struct layout_work {
    sb_ctx *ctx;
    sb_layout_graph *l;
    layout_item *items; /* boxes, then points */
    uint32_t n_items;
    uint32_t *point;  /* [n_edges] first point of an edge */
    uint32_t *points; /* [n_edges] how many */
    /* Neighbors above and below of each item. */
    uint32_t *up_first, *up, *down_first, *down;
    uint32_t *order, *layer_first; /* items by layer and place */
    uint32_t n_layers;
    layout_item **sorting; /* [n_items] */
} layout_work;

/* ---- layers -------------------------------------------------------------- */

static void assign_layers(layout_work *w)
{
    const sb_layout_graph *l = w->l;

    /* All edges to a box come before those from it. */
    for (uint32_t k = 0; k < l->n_edges; k++) {
        layout_item *a = &w->items[l->from[k]], *b = &w->items[l->to[k]];
        if (b->layer <= a->layer)
            b->layer = a->layer + 1;
    }
    for (uint32_t i = 0; i < l->n; i++)
        if (w->items[i].layer + 1 > w->n_layers)
            w->n_layers = w->items[i].layer + 1;
}

/* What has nothing above it stands right above what reads it. */
static void lower_sources(layout_work *w, uint32_t *least)
{
    const sb_layout_graph *l = w->l;

    for (uint32_t i = 0; i < l->n; i++)
        least[i] = UINT32_MAX;
    for (uint32_t k = 0; k < l->n_edges; k++) {
        uint32_t layer = w->items[l->to[k]].layer;
        if (layer < least[l->from[k]])
            least[l->from[k]] = layer;
    }
    for (uint32_t k = 0; k < l->n_edges; k++)
        least[l->to[k]] = UINT32_MAX; /* has something above it */
    for (uint32_t i = 0; i < l->n; i++)
        if (least[i] != UINT32_MAX)
            w->items[i].layer = least[i] - 1;
}

/* Points where edges cross layers. */
static sb_status add_points(layout_work *w)
{
    const sb_layout_graph *l = w->l;
    size_t total = 0;

    for (uint32_t k = 0; k < l->n_edges; k++) {
        w->points[k] =
            w->items[l->to[k]].layer - w->items[l->from[k]].layer - 1;
        total += w->points[k];
    }
    if (total > POINTS_MOST) {
        memset(w->points, 0, l->n_edges * sizeof *w->points);
        total = 0;
    }
    layout_item *items = sb_alloc(w->ctx, l->n + total + 1, sizeof *items);
    if (!items)
        return SB_NO_MEMORY;
    memcpy(items, w->items, l->n * sizeof *items);
    sb_free(w->ctx, w->items);
    w->items = items;
    w->n_items = l->n;
    for (uint32_t k = 0; k < l->n_edges; k++) {
        w->point[k] = w->n_items;
        for (uint32_t i = 0; i < w->points[k]; i++)
            items[w->n_items++].layer = items[l->from[k]].layer + 1 + i;
    }
    return SB_OK;
}

/* ---- neighbors ----------------------------------------------------------- */

/* Calls `fn` for each pair of items that a line joins. */
static void each_link(const layout_work *w,
                      void (*fn)(layout_work *, uint32_t, uint32_t),
                      layout_work *user)
{
    for (uint32_t k = 0; k < w->l->n_edges; k++) {
        uint32_t a = w->l->from[k];
        for (uint32_t i = 0; i < w->points[k]; i++) {
            fn(user, a, w->point[k] + i);
            a = w->point[k] + i;
        }
        fn(user, a, w->l->to[k]);
    }
}

static void count_link(layout_work *w, uint32_t a, uint32_t b)
{
    w->down_first[a + 1]++;
    w->up_first[b + 1]++;
}

static void add_link(layout_work *w, uint32_t a, uint32_t b)
{
    w->down[w->down_first[a]++] = b;
    w->up[w->up_first[b]++] = a;
}

static sb_status find_neighbors(layout_work *w)
{
    size_t links = w->l->n_edges + (w->n_items - w->l->n);

    w->up_first = sb_alloc(w->ctx, w->n_items + 2, sizeof *w->up_first);
    w->down_first = sb_alloc(w->ctx, w->n_items + 2, sizeof *w->down_first);
    w->up = sb_alloc(w->ctx, links + 1, sizeof *w->up);
    w->down = sb_alloc(w->ctx, links + 1, sizeof *w->down);
    if (!w->up_first || !w->down_first || !w->up || !w->down)
        return SB_NO_MEMORY;
    each_link(w, count_link, w);
    for (uint32_t i = 0; i < w->n_items; i++) {
        w->up_first[i + 1] += w->up_first[i];
        w->down_first[i + 1] += w->down_first[i];
    }
    each_link(w, add_link, w);
    /* Filling moved each start to the next one's. */
    memmove(w->up_first + 1, w->up_first, w->n_items * sizeof *w->up_first);
    memmove(w->down_first + 1, w->down_first,
            w->n_items * sizeof *w->down_first);
    w->up_first[0] = w->down_first[0] = 0;
    return SB_OK;
}

/* ---- order within layers ------------------------------------------------- */

static sb_status first_order(layout_work *w)
{
    w->layer_first = sb_alloc(w->ctx, w->n_layers + 2, sizeof *w->layer_first);
    w->order = sb_alloc(w->ctx, w->n_items + 1, sizeof *w->order);
    w->sorting = sb_alloc(w->ctx, w->n_items + 1, sizeof(layout_item *));
    if (!w->layer_first || !w->order || !w->sorting)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < w->n_items; i++)
        w->layer_first[w->items[i].layer + 1]++;
    for (uint32_t i = 0; i < w->n_layers; i++)
        w->layer_first[i + 1] += w->layer_first[i];
    for (uint32_t i = 0; i < w->n_items; i++) {
        uint32_t *next = &w->layer_first[w->items[i].layer];
        w->order[(*next)++] = i;
    }
    memmove(w->layer_first + 1, w->layer_first,
            w->n_layers * sizeof *w->layer_first);
    w->layer_first[0] = 0;
    for (uint32_t y = 0; y < w->n_layers; y++)
        for (uint32_t i = w->layer_first[y]; i < w->layer_first[y + 1]; i++)
            w->items[w->order[i]].place = i - w->layer_first[y];
    return SB_OK;
}

static int layout_by_key(const void *a, const void *b)
{
    const layout_item *x = *(const layout_item *const *)a;
    const layout_item *y = *(const layout_item *const *)b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Sorts a layer by the mean place of its neighbors on one side. */
static void sort_layer(layout_work *w, uint32_t y, const uint32_t *first,
                       const uint32_t *neighbors)
{
    uint32_t begin = w->layer_first[y], n = w->layer_first[y + 1] - begin;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t item = w->order[begin + i];
        uint32_t a = first[item], b = first[item + 1];
        double sum = 0;

        for (uint32_t k = a; k < b; k++)
            sum += w->items[neighbors[k]].place;
        w->items[item].key = b > a ? sum / (b - a) : w->items[item].place;
        w->sorting[i] = &w->items[item];
    }
    qsort(w->sorting, n, sizeof(layout_item *), layout_by_key);
    for (uint32_t i = 0; i < n; i++) {
        w->sorting[i]->place = i;
        w->order[begin + i] = (uint32_t)(w->sorting[i] - w->items);
    }
}

/* ---- places -------------------------------------------------------------- */

/* Runs of items that touch, moved as one. */
typedef struct layout_run {
    double sum, weight;
    uint32_t n;
} layout_run;

/* Room between the middle of an item and of the one to its right. */
static float layout_gap(const layout_work *w, uint32_t a, uint32_t b)
{
    const sb_layout_graph *l = w->l;
    float half = l->box_width / 2, thin = 6;

    return (a < l->n ? half : thin) + (b < l->n ? half : thin) + l->gap_x;
}

/* Where an item would like to be: at the mean of its neighbors. */
static double layout_wish(const layout_work *w, uint32_t item, bool from_above)
{
    double sum = 0, n = 0;

    for (uint32_t k = w->up_first[item]; k < w->up_first[item + 1]; k++) {
        sum += (from_above ? 2.0 : 1.0) * (double)w->items[w->up[k]].x;
        n += from_above ? 2 : 1;
    }
    for (uint32_t k = w->down_first[item]; k < w->down_first[item + 1]; k++) {
        sum += (from_above ? 1.0 : 2.0) * (double)w->items[w->down[k]].x;
        n += from_above ? 1 : 2;
    }
    return n > 0 ? sum / n : (double)w->items[item].x;
}

/* The places closest to the wishes of a layer, in squares, that keep order and
 * distance: with the distances taken off, the closest rising sequence. */
static void place_layer(layout_work *w, uint32_t y, bool from_above,
                        layout_run *runs)
{
    uint32_t begin = w->layer_first[y], n = w->layer_first[y + 1] - begin;
    const uint32_t *items = &w->order[begin];
    double off = 0;
    uint32_t n_runs = 0, at = 0;

    for (uint32_t i = 0; i < n; i++) {
        double weight = items[i] < w->l->n ? 1 : 2; /* lines stay straight */
        if (i > 0)
            off += (double)layout_gap(w, items[i - 1], items[i]);
        runs[n_runs++] = (layout_run){
            (layout_wish(w, items[i], from_above) - off) * weight, weight, 1};
        while (n_runs > 1 &&
               runs[n_runs - 2].sum * runs[n_runs - 1].weight >
                   runs[n_runs - 1].sum * runs[n_runs - 2].weight) {
            runs[n_runs - 2].sum += runs[n_runs - 1].sum;
            runs[n_runs - 2].weight += runs[n_runs - 1].weight;
            runs[n_runs - 2].n += runs[n_runs - 1].n;
            n_runs--;
        }
    }
    off = 0;
    for (uint32_t r = 0; r < n_runs; r++)
        for (uint32_t i = 0; i < runs[r].n; i++, at++) {
            if (at > 0)
                off += (double)layout_gap(w, items[at - 1], items[at]);
            w->items[items[at]].x = (float)(runs[r].sum / runs[r].weight + off);
        }
}

static sb_status place_items(layout_work *w)
{
    layout_run *runs = sb_alloc(w->ctx, w->n_items + 1, sizeof *runs);

    if (!runs)
        return SB_NO_MEMORY;
    for (uint32_t y = 0; y < w->n_layers; y++)
        for (uint32_t i = w->layer_first[y]; i < w->layer_first[y + 1]; i++)
            w->items[w->order[i]].x = (float)(i - w->layer_first[y]) *
                                      (w->l->box_width + w->l->gap_x);
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (uint32_t i = 0; i < w->n_layers; i++) {
            bool down = sweep % 2 == 0;
            place_layer(w, down ? i : w->n_layers - 1 - i, down, runs);
        }
    sb_free(w->ctx, runs);
    return SB_OK;
}

/* ---- columns -------------------------------------------------------------
 * Networks are far deeper than wide: their layers are cut into columns that
 * stand side by side, so that the whole has the shape of a page. */

/* Lines between a layer and the next. */
static uint32_t layer_links(const layout_work *w, uint32_t y)
{
    uint32_t n = 0;

    for (uint32_t i = w->layer_first[y]; i < w->layer_first[y + 1]; i++)
        n += w->down_first[w->order[i] + 1] - w->down_first[w->order[i]];
    return n;
}

/* The end of a column of at most `rows` layers: where few lines are cut. */
static uint32_t column_end(const layout_work *w, uint32_t begin, uint32_t rows)
{
    uint32_t best = begin + rows, least = UINT32_MAX;

    if (best >= w->n_layers)
        return w->n_layers;
    for (uint32_t y = begin + (rows * 3 + 3) / 4; y <= begin + rows; y++)
        if (layer_links(w, y - 1) <= least) {
            least = layer_links(w, y - 1);
            best = y;
        }
    return best;
}

/* The least and the greatest x of the layers [begin, end). */
static void column_span(const layout_work *w, uint32_t begin, uint32_t end,
                        float *left, float *right)
{
    *left = INFINITY;
    *right = -INFINITY;
    for (uint32_t i = w->layer_first[begin]; i < w->layer_first[end]; i++) {
        float x = w->items[w->order[i]].x;
        float half = w->order[i] < w->l->n ? w->l->box_width / 2 : 6;
        *left = fminf(*left, x - half);
        *right = fmaxf(*right, x + half);
    }
}

static float columns_width(const layout_work *w, uint32_t rows)
{
    float width = 0, left, right;

    for (uint32_t y = 0, end; y < w->n_layers; y = end) {
        end = column_end(w, y, rows);
        column_span(w, y, end, &left, &right);
        width += right - left + 3 * w->l->gap_x;
    }
    return width;
}

/* Layers in a column: as many as make the whole somewhat wider than high. */
static uint32_t column_rows(const layout_work *w)
{
    uint32_t rows = w->n_layers;
    float row = w->l->box_height + w->l->gap_y;

    for (uint32_t columns = 2; rows > ROWS_LEAST; columns++) {
        if (columns_width(w, rows) >= SHAPE * row * (float)rows)
            break;
        rows = (w->n_layers + columns - 1) / columns;
    }
    return rows > 0 ? rows : 1;
}

/* ---- the result ---------------------------------------------------------- */

/* Where the layers of a column begin. */
typedef struct layout_column {
    float shift;
    uint32_t first;
} layout_column;

static sb_layout_point point_of(const layout_work *w, const layout_item *item,
                                const layout_column *column_of)
{
    const sb_layout_graph *l = w->l;
    const layout_column *c = &column_of[item->layer];

    return (sb_layout_point){item->x + c->shift,
                             (float)(item->layer - c->first) *
                                     (l->box_height + l->gap_y) +
                                 l->gap_y / 2 + l->box_height / 2};
}

/* Puts the columns side by side; `column_of` by layer. */
static void layout_columns(layout_work *w, layout_column *column_of)
{
    sb_layout_graph *l = w->l;
    uint32_t rows = column_rows(w);

    for (uint32_t y = 0, end; y < w->n_layers; y = end) {
        float left, right;

        end = column_end(w, y, rows);
        column_span(w, y, end, &left, &right);
        l->columns[l->n_columns++] = l->width;
        for (uint32_t i = y; i < end; i++)
            column_of[i] = (layout_column){l->width + 2 * l->gap_x - left, y};
        l->width += right - left + 3 * l->gap_x;
    }
    l->width += l->gap_x;
    l->height = (float)rows * (l->box_height + l->gap_y);
}

static sb_status layout_result(layout_work *w)
{
    sb_layout_graph *l = w->l;
    layout_column *column_of =
        sb_alloc(w->ctx, w->n_layers + 1, sizeof *column_of);

    l->columns = sb_alloc(w->ctx, w->n_layers + 1, sizeof *l->columns);
    l->at = sb_alloc(w->ctx, l->n + 1, sizeof *l->at);
    l->first = sb_alloc(w->ctx, l->n_edges + 1, sizeof *l->first);
    l->bends = sb_alloc(w->ctx, w->n_items - l->n + 1, sizeof *l->bends);
    if (!column_of || !l->columns || !l->at || !l->first || !l->bends) {
        sb_free(w->ctx, column_of);
        return SB_NO_MEMORY;
    }
    layout_columns(w, column_of);
    for (uint32_t i = 0; i < l->n; i++)
        l->at[i] = point_of(w, &w->items[i], column_of);
    for (uint32_t i = l->n; i < w->n_items; i++)
        l->bends[i - l->n] = point_of(w, &w->items[i], column_of);
    for (uint32_t k = 0; k < l->n_edges; k++)
        l->first[k] = w->point[k] - l->n;
    l->first[l->n_edges] = w->n_items - l->n;
    sb_free(w->ctx, column_of);
    return SB_OK;
}

static sb_status layout_run_all(layout_work *w)
{
    const sb_layout_graph *l = w->l;

    w->items = sb_alloc(w->ctx, l->n + 1, sizeof *w->items);
    w->point = sb_alloc(w->ctx, l->n_edges + l->n + 1, sizeof *w->point);
    w->points = sb_alloc(w->ctx, l->n_edges + 1, sizeof *w->points);
    if (!w->items || !w->point || !w->points)
        return SB_NO_MEMORY;
    assign_layers(w);
    lower_sources(w, w->point);
    SB_TRY(add_points(w));
    SB_TRY(find_neighbors(w));
    SB_TRY(first_order(w));
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (uint32_t i = 0; i < w->n_layers; i++) {
            if (sweep % 2 == 0)
                sort_layer(w, i, w->up_first, w->up);
            else
                sort_layer(w, w->n_layers - 1 - i, w->down_first, w->down);
        }
    SB_TRY(place_items(w));
    return layout_result(w);
}

sb_status sb_layout_make(sb_ctx *ctx, sb_layout_graph *l)
{
    layout_work w = {.ctx = ctx, .l = l};
    sb_status status = layout_run_all(&w);

    sb_free(ctx, w.sorting);
    sb_free(ctx, w.order);
    sb_free(ctx, w.layer_first);
    sb_free(ctx, w.down);
    sb_free(ctx, w.up);
    sb_free(ctx, w.down_first);
    sb_free(ctx, w.up_first);
    sb_free(ctx, w.points);
    sb_free(ctx, w.point);
    sb_free(ctx, w.items);
    if (status != SB_OK)
        sb_layout_free(ctx, l);
    return status;
}

void sb_layout_free(sb_ctx *ctx, sb_layout_graph *l)
{
    sb_free(ctx, l->columns);
    sb_free(ctx, l->at);
    sb_free(ctx, l->first);
    sb_free(ctx, l->bends);
    l->columns = NULL;
    l->at = NULL;
    l->first = NULL;
    l->bends = NULL;
}
