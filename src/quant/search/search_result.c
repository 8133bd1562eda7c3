/* What a search found, for its caller. */
#include <math.h>

#include "quant/search/search.h"
#include "quant/search/solve.h"

enum { POINTS_MOST = 48 };

static void point_of(const sb_search *s, const uint32_t *choices,
                     sb_search_point *out)
{
    double elements = 0, bits = 0;

    for (size_t i = 0; i < s->m.n_layers; i++) {
        const sb_mixed_layer *l = &s->m.layers[i];
        elements += l->elements;
        bits += l->elements * l->bits[choices[i]];
        out->mac_bits += l->macs * l->bits[choices[i]];
    }
    out->bits = elements > 0 ? bits / elements : 0;
    out->bytes = bits / 8;
}

/* An array of n new points, and pointers to them. */
static sb_status add_points(sb_search *s, size_t n, sb_search_point **points,
                            const sb_search_point *const **list)
{
    sb_search_point *p = sb_arena_alloc(&s->arena, n + 1, sizeof *p);
    const sb_search_point **at =
        sb_arena_alloc(&s->arena, n + 1, sizeof(sb_search_point *));

    if (!p || !at)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        p[i] = (sb_search_point){0};
        at[i] = &p[i];
    }
    *points = p;
    *list = at;
    return SB_OK;
}

sb_status sb_search_curve(sb_search *s)
{
    sb_search_point *p = NULL;
    sb_frontier f;
    size_t n = 0;
    sb_status status = sb_frontier_make(s->ctx, s->m.n_layers, s->n_widths,
                                        s->sizes, s->errors, &f);

    if (status == SB_OK) {
        const sb_solution *list = sb_frontier_solutions(&f, &n);
        size_t most = n < POINTS_MOST ? n : POINTS_MOST;

        status = add_points(s, most, &p, &s->result.points);
        for (size_t i = 0; status == SB_OK && i < most; i++) {
            size_t at = most > 1 ? i * (n - 1) / (most - 1) : 0;
            sb_frontier_choices(&f, at, s->trial);
            point_of(s, s->trial, &p[i]);
            p[i].error = s->floor + list[at].error;
        }
        s->result.n_points = status == SB_OK ? most : 0;
    }
    sb_frontier_free(&f);
    return status;
}

static sb_status report_uniform(sb_search *s)
{
    sb_search_point *p = NULL;

    SB_TRY(add_points(s, s->n_widths, &p, &s->result.uniform));
    for (size_t c = 0; c < s->n_widths; c++) {
        for (size_t i = 0; i < s->m.n_layers; i++)
            s->trial[i] = (uint32_t)c;
        point_of(s, s->trial, &p[c]);
        p[c].measured = 1;
        p[c].uniform = s->widths[c];
        SB_TRY(sb_measure_run(&s->m, s->trial, &p[c].error));
    }
    s->result.n_uniform = s->n_widths;
    return SB_OK;
}

static sb_status report_layers(sb_search *s)
{
    const sb_graph *g = s->models[0]->graph;
    size_t n = s->m.n_layers;
    sb_search_layer *rows = sb_arena_alloc(&s->arena, n + 1, sizeof *rows);
    const sb_search_layer **list =
        sb_arena_alloc(&s->arena, n + 1, sizeof(sb_search_layer *));

    if (!rows || !list)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const sb_mixed_layer *l = &s->m.layers[i];
        const sb_node *node = sb_graph_node(g, l->node);
        rows[i] = (sb_search_layer){.name = sb_node_label(g, node),
                                    .op = node->op,
                                    .elements = l->elements,
                                    .macs = l->macs,
                                    .bits = s->widths[s->choices[i]],
                                    .errors = s->errors + i * s->n_widths};
        list[i] = &rows[i];
    }
    s->result.layers = list;
    s->result.n_layers = n;
    return SB_OK;
}

sb_status sb_search_report(sb_search *s, double error, double file_bytes)
{
    const sb_search_point *const *list = NULL;
    sb_search_point *found = NULL;

    SB_TRY(report_uniform(s));
    SB_TRY(report_layers(s));
    SB_TRY(add_points(s, 1, &found, &list));
    point_of(s, s->choices, found);
    found->measured = 1;
    found->error = s->error;
    s->result.found = found;
    s->result.widths = s->widths;
    s->result.n_widths = s->n_widths;
    s->result.error = error;
    s->result.file_bytes = file_bytes;
    s->result.runs = s->m.runs;
    return SB_OK;
}
