/* The page of `train --report`: curves from the log, which has all epochs, also
 * those before the run was resumed, and what became of the layers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report_page.h"

enum { EPOCH, RATE, LOSS, ACCURACY, VALIDATION, SECONDS, COLUMNS };

typedef struct {
    double *v[COLUMNS]; /* by epoch */
    size_t n;
} train_curves;

bool cli_metric_is_share(const sb_train_state *s)
{
    return strcmp(s->metric, "MSE") != 0 && strcmp(s->metric, "MAE") != 0;
}

/* One line of the log; an empty field is unknown. */
static bool read_row(char *line, double *out)
{
    for (int i = 0; i < COLUMNS; i++) {
        char *end = strpbrk(line, ",\n");

        if (!end)
            return false;
        out[i] = end == line ? (double)NAN : strtod(line, NULL);
        line = end + 1;
    }
    return true;
}

static void add_row(train_curves *c, const double *row, bool share)
{
    for (int i = 0; i < COLUMNS; i++) {
        double *more = cli_alloc(c->n + 1, sizeof *more);

        if (c->n)
            memcpy(more, c->v[i], c->n * sizeof *more);
        more[c->n] =
            row[i] * (i == ACCURACY || (i == VALIDATION && share) ? 100 : 1);
        free(c->v[i]);
        c->v[i] = more;
    }
    c->n++;
}

static bool read_log(const char *path, bool share, train_curves *c)
{
    char line[512];
    double row[COLUMNS];
    FILE *f = fopen(path, "r");

    if (!f)
        return false;
    bool good = fgets(line, sizeof line, f) != NULL; /* heads */
    while (good && fgets(line, sizeof line, f)) {
        good = read_row(line, row);
        if (good)
            add_row(c, row, share);
    }
    (void)fclose(f);
    return good;
}

static bool is_known(const train_curves *c, int column)
{
    for (size_t i = 0; i < c->n; i++)
        if (!isnan(c->v[column][i]))
            return true;
    return false;
}

/* A heading and its chart, of those columns that say something. */
static sb_status add_chart(sb_report *r, const char *title, const char *unit,
                           const train_curves *c, const int *columns,
                           const char *const *names, size_t most)
{
    size_t n = 0;
    sb_report_line lines[2] = {SB_REPORT_LINE_INIT, SB_REPORT_LINE_INIT};
    const sb_report_line *list[2] = {&lines[0], &lines[1]};

    for (size_t i = 0; i < most; i++) {
        if (!is_known(c, columns[i]))
            continue;
        lines[n].name = names[i];
        lines[n].x = c->v[EPOCH];
        lines[n].y = c->v[columns[i]];
        lines[n++].n = c->n;
    }
    if (n == 0)
        return SB_OK;
    sb_report_section(r, title, NULL);
    return sb_report_lines(r, title, "epoch", unit, list, n);
}

static sb_status add_charts(sb_report *r, const train_curves *c,
                            const sb_train_state *s)
{
    static const int loss[] = {LOSS}, right[] = {ACCURACY, VALIDATION},
                     rate[] = {RATE};
    static const char *const loss_names[] = {"loss"};
    static const char *const names[] = {"training", "validation"};
    static const char *const rate_names[] = {"learning rate"};
    sb_status status =
        add_chart(r, "Loss", "mean of the epoch", c, loss, loss_names, 1);

    if (status == SB_OK && cli_metric_is_share(s))
        status = add_chart(r, "Accuracy", "%", c, right, names, 2);
    else if (status == SB_OK)
        status = add_chart(r, s->metric, "on the validation samples", c,
                           right + 1, names + 1, 1);
    if (status == SB_OK)
        status = add_chart(r, "Learning rate", "at the end of the epoch", c,
                           rate, rate_names, 1);
    return status;
}

static void add_table(sb_report *r, const train_curves *c,
                      const sb_train_state *s)
{
    const char *const heads[COLUMNS] = {"epoch",
                                        "learning rate",
                                        "loss",
                                        "accuracy, %",
                                        cli_metric_is_share(s) ? "validation, %"
                                                               : s->metric,
                                        "seconds"};
    char **cells = cli_alloc(c->n * COLUMNS + 1, sizeof *cells);

    for (size_t k = 0; k < c->n * COLUMNS; k++) {
        double v = c->v[k % COLUMNS][k / COLUMNS];
        cells[k] = isnan(v) ? cli_printf("%s", "") : cli_printf("%.6g", v);
    }
    sb_report_section(r, "Epochs", NULL);
    sb_report_table(r, "rrrrrr", heads, (const char *const *)cells, c->n);
    for (size_t k = 0; k < c->n * COLUMNS; k++)
        free(cells[k]);
    free(cells);
}

static void add_facts(sb_report *r, const cli_train_page *p,
                      const train_curves *c)
{
    double seconds = 0;
    bool share = cli_metric_is_share(p->last);

    for (size_t i = 0; i < c->n; i++)
        seconds += c->v[SECONDS][i];
    cli_report_fact(r, "epochs", "%zu", c->n);
    cli_report_fact(r, "seconds of training", "%.0f", seconds);
    if (!isnan(p->last->best))
        cli_report_fact(
            r, "best validation",
            share ? "%s %.2f %% (epoch %zu)" : "%s %.4g (epoch %zu)",
            p->last->metric, share ? 100 * p->last->best : p->last->best,
            p->last->best_epoch + 1);
    if (!p->qm)
        return;
    cli_report_fact(r, "target", "%s", sb_quant_model_target(p->qm));
    cli_report_fact(r, "file and trained network agree", "%.2f %%",
                    100 * p->check->agreement);
}

int cli_report_training(cli_env *env, const cli_train_page *p)
{
    char *log = cli_printf("%s/log.csv", p->folder);
    char *title = cli_printf("%s, trained", cli_base_name(p->model));
    char *below = cli_printf("sparsebit %s train: %s", sb_version(),
                             cli_base_name(p->output));
    train_curves curves = {0};
    sb_report *r = NULL;
    bool good = read_log(log, cli_metric_is_share(p->last), &curves);
    sb_status status =
        good ? sb_report_create(env->ctx, title, below, &r) : SB_OK;

    if (good && status == SB_OK) {
        add_facts(r, p, &curves);
        status = add_charts(r, &curves, p->last);
    }
    if (good && status == SB_OK) {
        add_table(r, &curves, p->last);
        if (p->qm)
            sb_report_section(r, "Quantizers",
                              "What they do to the trained network, against "
                              "the same weights in float. It has learned to "
                              "live with these errors: where accuracy is good, "
                              "they do no harm.");
        status = p->qm ? sb_report_quantization(r, p->errors)
                       : cli_report_moved(r, p->before, p->after);
    }
    if (good && status == SB_OK)
        status = sb_report_save(r, p->path);
    int rc = !good             ? cli_error("%s: cannot be read", log)
             : status == SB_OK ? CLI_OK
                               : cli_fail(env, p->path);
    sb_report_free(r);
    for (int i = 0; i < COLUMNS; i++)
        free(curves.v[i]);
    free(log);
    free(title);
    free(below);
    return rc;
}
