/* What `sparsebit prune` tells. */
#include "prune_report.h"

#include <math.h>
#include <string.h>

/* What was removed, or could be where nothing was. */
static void print_layers(const sb_prune_report *r, bool done)
{
    cli_table *t = cli_table_new(done ? "llrrrl" : "llrrl");
    static const char *const head[] = {"layer", "operator", "size"};

    for (size_t i = 0; i < CLI_COUNT(head); i++)
        cli_table_add(t, "%s", head[i]);
    cli_table_add(t, done ? "removed" : "removable");
    if (done)
        cli_table_add(t, "left");
    cli_table_add(t, "%s", "");
    for (size_t i = 0; i < r->n_layers; i++) {
        const sb_prune_layer *l = r->layers[i];

        cli_table_add(t, "%s", l->name);
        cli_table_add(t, "%s", l->op);
        cli_table_add(t, "%lld", (long long)l->size);
        cli_table_add(t, "%lld", (long long)(done ? l->removed : l->removable));
        if (done)
            cli_table_add(t, "%lld", (long long)(l->size - l->removed));
        if (l->removable < l->size && l->reason)
            cli_table_add(t, "%s%s%s%s", l->reason, l->reason_node ? " (" : "",
                          l->reason_node ? l->reason_node : "",
                          l->reason_node ? ")" : "");
        else
            cli_table_add(t, "%s",
                          l->held ? "more would leave nothing, or no multiple "
                                    "of ROUND_TO"
                                  : "");
    }
    cli_table_print(t, "  ");
}

static void print_change(const char *what, double before, double after,
                         const char *(*words)(double, char *, size_t))
{
    char a[32], b[32];

    cli_put("%-11s %s -> %s (%.1f %%)\n", what, words(before, a, sizeof a),
            words(after, b, sizeof b), before > 0 ? 100 * after / before : 100);
}

/* One row for each group, one column for each ratio. */
static void print_scan(const sb_prune_scan *scan)
{
    size_t n = scan->n_groups ? scan->groups[0]->n_points : 0;
    bool labels = !isnan(scan->accuracy);
    char align[64] = "lr";
    cli_table *t;

    for (size_t i = 0; i < n && i + 3 < sizeof align; i++)
        strcat(align, "r");
    t = cli_table_new(align);
    cli_table_add(t, "group of");
    cli_table_add(t, "channels");
    for (size_t i = 0; i < n; i++)
        cli_table_add(t, "%.3g", scan->groups[0]->points[i]->ratio);
    for (size_t k = 0; k < scan->n_groups; k++) {
        const sb_prune_group *g = scan->groups[k];

        cli_table_add(t, "%s", g->name);
        cli_table_add(t, "%lld", (long long)g->channels);
        for (size_t i = 0; i < n; i++)
            cli_table_add(t, labels ? "%.2f %%" : "%.4f",
                          labels ? 100 * g->points[i]->accuracy
                                 : g->points[i]->error);
    }
    if (labels)
        cli_put("top-1 on %zu samples (%.2f %% before) with a share of one "
                "group removed:\n",
                scan->samples, 100 * scan->accuracy);
    else
        cli_put("relative error of the outputs on %zu samples with a share of "
                "one group removed:\n",
                scan->samples);
    cli_table_print(t, "  ");
}

/* Layers that would have been empty, or had less than ROUND_TO left. */
static void print_held(const sb_prune_report *r)
{
    size_t held = 0, first = 0;

    for (size_t i = r->n_layers; i-- > 0;)
        if (r->layers[i]->held) {
            held++;
            first = i;
        }
    if (held > 0)
        cli_put("%zu %s less than the ratio says, so that something, ROUND_TO "
                "channels at least, is left: '%s' keeps %lld%s\n",
                held, held == 1 ? "layer loses" : "layers lose",
                r->layers[first]->name,
                (long long)(r->layers[first]->size - r->layers[first]->removed),
                held == 1 ? "" : ", for instance");
}

void cli_prune_text(const cli_env *env, const cli_prune_told *j)
{
    const sb_prune_report *r = j->report;

    if (j->scan)
        print_scan(j->scan);

    if (env->common.verbose || j->dry_run)
        print_layers(r, j->done);
    if (env->common.quiet && !j->dry_run)
        return;
    cli_put("%lld of %lld %s can be removed (%.1f %%)\n",
            (long long)r->removable, (long long)r->size,
            r->structured ? "channels" : "weights",
            r->size ? 100.0 * (double)r->removable / (double)r->size : 0);
    if (!j->done)
        return;
    cli_put(r->ratio > 0 ? "%lld removed, ratio %.3g\n" : "%lld removed\n",
            (long long)r->removed, r->ratio);
    if (r->removed == 0 && !r->asked && !j->scan)
        cli_put("nothing was asked for: RATIO is 0, or not given\n");
    print_held(r);
    print_change("parameters", j->params[0], j->params[1], cli_si);
    print_change("MACs", j->macs[0], j->macs[1], cli_si);
    if (j->output) {
        print_change("file", (double)j->bytes[0], (double)j->bytes[1],
                     cli_bytes);
        cli_put("written to %s\n", j->output);
    }
}

static void json_layers(cli_json *o, const sb_prune_report *r)
{
    cli_json_open(o, "layers", '[');
    for (size_t i = 0; i < r->n_layers; i++) {
        const sb_prune_layer *l = r->layers[i];

        cli_json_open(o, NULL, '{');
        cli_json_str(o, "name", l->name);
        cli_json_str(o, "operator", l->op);
        cli_json_str(o, "weight", l->weight);
        cli_json_int(o, "size", l->size);
        cli_json_int(o, "removable", l->removable);
        cli_json_int(o, "removed", l->removed);
        cli_json_bool(o, "held", l->held != 0);
        if (l->reason)
            cli_json_str(o, "reason", l->reason);
        if (l->reason_node)
            cli_json_str(o, "reason_node", l->reason_node);
        cli_json_close(o, '}');
    }
    cli_json_close(o, ']');
}

static void json_cuts(cli_json *o, const sb_prune_report *r)
{
    static const char *const roles[] = {"makes", "reads", "other"};

    cli_json_open(o, "cuts", '[');
    for (size_t i = 0; i < r->n_cuts; i++) {
        const sb_prune_cut *c = r->cuts[i];

        cli_json_open(o, NULL, '{');
        cli_json_str(o, "initializer", c->value);
        cli_json_int(o, "axis", c->axis);
        cli_json_str(o, "role", roles[c->role]);
        cli_json_ints(o, "indices", c->indices, c->n_indices);
        cli_json_close(o, '}');
    }
    cli_json_close(o, ']');
}

static void json_scan(cli_json *o, const sb_prune_scan *scan)
{
    cli_json_open(o, "scan", '{');
    cli_json_int(o, "samples", (long long)scan->samples);
    if (!isnan(scan->accuracy))
        cli_json_num(o, "accuracy", scan->accuracy);
    cli_json_open(o, "groups", '[');
    for (size_t k = 0; k < scan->n_groups; k++) {
        const sb_prune_group *g = scan->groups[k];

        cli_json_open(o, NULL, '{');
        cli_json_str(o, "name", g->name);
        cli_json_int(o, "channels", g->channels);
        cli_json_open(o, "points", '[');
        for (size_t i = 0; i < g->n_points; i++) {
            const sb_prune_point *p = g->points[i];

            cli_json_open(o, NULL, '{');
            cli_json_num(o, "ratio", p->ratio);
            cli_json_int(o, "removed", p->removed);
            cli_json_num(o, "error", p->error);
            if (!isnan(p->accuracy))
                cli_json_num(o, "accuracy", p->accuracy);
            cli_json_num(o, "macs", p->macs);
            cli_json_num(o, "params", p->params);
            cli_json_close(o, '}');
        }
        cli_json_close(o, ']');
        cli_json_close(o, '}');
    }
    cli_json_close(o, ']');
    cli_json_close(o, '}');
}

void cli_prune_json(const cli_prune_told *j)
{
    const sb_prune_report *r = j->report;
    cli_json o = {0};

    cli_json_begin(&o, "prune");
    cli_json_str(&o, "model", j->model);
    if (j->output)
        cli_json_str(&o, "output", j->output);
    cli_json_int(&o, "size", r->size);
    cli_json_int(&o, "removable", r->removable);
    cli_json_int(&o, "removed", r->removed);
    if (j->done) {
        cli_json_num(&o, "ratio", r->ratio);
        cli_json_num(&o, "params_before", j->params[0]);
        cli_json_num(&o, "params_after", j->params[1]);
        cli_json_num(&o, "macs_before", j->macs[0]);
        cli_json_num(&o, "macs_after", j->macs[1]);
    }
    if (j->scan)
        json_scan(&o, j->scan);
    json_layers(&o, r);
    json_cuts(&o, r);
    cli_json_end(&o);
}
