/* The page of `sparsebit search --report`. */
#include <math.h>
#include <stdlib.h>

#include "report_page.h"

/* Points of a curve. */
typedef struct {
    double *x, *y;
    char **notes;
    size_t n;
} search_curve;

static search_curve curve_new(const sb_search_point *const *points, size_t n)
{
    search_curve c = {cli_alloc(n + 1, sizeof(double)),
                      cli_alloc(n + 1, sizeof(double)),
                      cli_alloc(n + 1, sizeof(char *)), n};

    for (size_t i = 0; i < n; i++) {
        c.x[i] = points[i]->bits;
        c.y[i] = -10 * log10(points[i]->error);
        c.notes[i] =
            cli_printf("%.3f bits, %.0f bytes of weights, error %.4g",
                       points[i]->bits, points[i]->bytes, points[i]->error);
    }
    return c;
}

static void curve_free(search_curve *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->notes[i]);
    free(c->notes);
    free(c->x);
    free(c->y);
}

static sb_report_line curve_line(const search_curve *c, const char *name,
                                 bool dots)
{
    sb_report_line line = SB_REPORT_LINE_INIT;

    line.name = name;
    line.x = c->x;
    line.y = c->y;
    line.notes = (const char *const *)c->notes;
    line.n = c->n;
    line.dots = dots;
    return line;
}

static sb_status add_curves(sb_report *r, const sb_search_result *result)
{
    search_curve best = curve_new(result->points, result->n_points);
    search_curve same = curve_new(result->uniform, result->n_uniform);
    search_curve found = curve_new(&result->found, 1);
    const sb_report_line lines[] = {
        curve_line(&best, "best mixtures, by sums of what layers cost", false),
        curve_line(&same, "all layers alike, measured", true),
        curve_line(&found, "found, measured", true)};

    sb_report_section(
        r, "Size and error",
        "Signal to noise of the outputs against the mean bits of a "
        "weight: the higher the better. The line adds up what "
        "layers cost alone; points were measured.");
    sb_status status = sb_report_lines(
        r, "size and error", "mean bits of a weight", "SQNR of the outputs, dB",
        (const sb_report_line *const[]){&lines[0], &lines[1], &lines[2]}, 3);
    curve_free(&best);
    curve_free(&same);
    curve_free(&found);
    return status;
}

int cli_report_search(cli_env *env, const char *path, const char *model,
                      const sb_search *search, const sb_search_result *result)
{
    char *title = cli_printf("%s, mixed widths", cli_base_name(model));
    char *below = cli_printf("sparsebit %s search", sb_version());
    sb_report *r = NULL;
    char bytes[32];
    sb_status status = sb_report_create(env->ctx, title, below, &r);

    if (status == SB_OK) {
        cli_report_fact(r, "mean bits of a weight", "%.3f",
                        result->found->bits);
        cli_report_fact(r, "error of the outputs", "%.4g", result->error);
        cli_report_fact(r, "size of the file", "%s",
                        cli_bytes(result->file_bytes, bytes, sizeof bytes));
        cli_report_fact(r, "runs of all samples", "%zu", result->runs);
        status = add_curves(r, result);
    }
    if (status == SB_OK)
        status = sb_report_search(r, search);
    if (status == SB_OK)
        status = sb_report_save(r, path);
    sb_report_free(r);
    free(title);
    free(below);
    return status == SB_OK ? CLI_OK : cli_fail(env, path);
}
