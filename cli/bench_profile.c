/* Where the time of a run goes: tables and JSON. */
#include "bench_profile.h"

#include <stdlib.h>

static double total_ms(const sb_profile *p)
{
    double sum = 0;

    for (size_t i = 0; i < p->n_types; i++)
        sum += p->types[i]->median_ms;
    return sum > 0 ? sum : 1;
}

static double bench_profile_gflops(const sb_profile_row *r)
{
    return r->median_ms > 0 ? 2e-6 * r->macs / r->median_ms : 0;
}

static double gb_per_s(const sb_profile_row *r)
{
    return r->median_ms > 0 ? 1e-6 * r->bytes / r->median_ms : 0;
}

/* In percent. */
static double peak_share(const sb_profile_row *r, const bench_peak *peak)
{
    return peak->gflops > 0 ? 100 * bench_profile_gflops(r) / peak->gflops : 0;
}

static void add_numbers(cli_table *t, const sb_profile_row *r, double total,
                        const bench_peak *peak)
{
    cli_table_add(t, "%.3f", r->median_ms);
    cli_table_add(t, "%.3f", r->best_ms);
    cli_table_add(t, "%.1f", 100 * r->median_ms / total);
    if (r->macs > 0) {
        cli_table_add(t, "%.1f", bench_profile_gflops(r));
        double share = peak_share(r, peak);

        cli_table_add(t, share > 100.5 ? "*%.0f" : "%.0f", share);
    } else {
        cli_table_add(t, "-");
        cli_table_add(t, "-");
    }
    if (r->bytes > 0) {
        cli_table_add(t, "%.2f", 1e-6 * r->bytes);
        cli_table_add(t, "%.1f", gb_per_s(r));
    } else {
        cli_table_add(t, "-");
        cli_table_add(t, "-");
    }
}

static void add_heads(cli_table *t)
{
    static const char *const heads[] = {
        "ms", "best", "share %", "GFLOPS", "% of peak", "MB", "GB/s"};

    for (size_t i = 0; i < CLI_COUNT(heads); i++)
        cli_table_add(t, "%s", heads[i]);
}

static int by_time(const void *a, const void *b)
{
    const sb_profile_row *x = *(const sb_profile_row *const *)a;
    const sb_profile_row *y = *(const sb_profile_row *const *)b;

    if (x->median_ms != y->median_ms)
        return x->median_ms < y->median_ms ? 1 : -1;
    return (x > y) - (x < y);
}

static void print_types(const sb_profile *p, const bench_peak *peak,
                        double total)
{
    cli_table *t = cli_table_new("lrrrrrrrr");

    cli_table_add(t, "operator");
    cli_table_add(t, "steps");
    add_heads(t);
    for (size_t i = 0; i < p->n_types; i++) {
        cli_table_add(t, "%s", p->types[i]->op);
        cli_table_add(t, "%zu", p->types[i]->nodes);
        add_numbers(t, p->types[i], total, peak);
    }
    cli_table_print(t, "  ");
}

static void print_nodes(const sb_profile *p, const bench_peak *peak,
                        double total, size_t top)
{
    const sb_profile_row **rows =
        cli_alloc(p->n_nodes + 1, sizeof(sb_profile_row *));
    size_t n = top && top < p->n_nodes ? top : p->n_nodes;
    cli_table *t = cli_table_new("lllrrrrrrr");

    for (size_t i = 0; i < p->n_nodes; i++)
        rows[i] = p->nodes[i];
    if (top)
        qsort(rows, p->n_nodes, sizeof(sb_profile_row *), by_time);
    cli_table_add(t, "step");
    cli_table_add(t, "operator");
    cli_table_add(t, "result");
    add_heads(t);
    for (size_t i = 0; i < n; i++) {
        cli_table_add(t, "%s", rows[i]->name);
        cli_table_add(t, "%s", rows[i]->op);
        cli_table_add(t, "%s", rows[i]->shape);
        add_numbers(t, rows[i], total, peak);
    }
    cli_table_print(t, "  ");
    if (n < p->n_nodes)
        printf("  ... and %zu more (--all shows them)\n", p->n_nodes - n);
    free(rows);
}

void bench_profile_print(const sb_profile *p, const bench_peak *peak,
                         size_t top)
{
    double total = total_ms(p);

    printf("  peak       %.1f GFLOPS, measured with %s\n\n", peak->gflops,
           peak->how);
    printf("Time by operator type (median of %zu runs)\n", p->runs);
    print_types(p, peak, total);
    printf(top ? "\nMost expensive steps\n"
               : "\nSteps in order of execution\n");
    print_nodes(p, peak, total, top);
    for (size_t i = 0; i < p->n_nodes; i++)
        if (peak_share(p->nodes[i], peak) > 100.5) {
            printf("  * more than the peak of floats: integers, or Winograd's "
                   "algorithm, which needs fewer\n"
                   "    multiplications than are counted; else the peak was "
                   "measured while the machine was busy\n");
            break;
        }
}

static void json_rows(cli_json *j, const char *key,
                      const sb_profile_row *const *rows, size_t n, double total,
                      bool by_node)
{
    cli_json_open(j, key, '[');
    for (size_t i = 0; i < n; i++) {
        const sb_profile_row *r = rows[i];

        cli_json_open(j, NULL, '{');
        if (by_node)
            cli_json_str(j, "name", r->name);
        cli_json_str(j, "op", r->op);
        if (by_node)
            cli_json_str(j, "shape", r->shape);
        else
            cli_json_int(j, "steps", (long long)r->nodes);
        cli_json_num(j, "median_ms", r->median_ms);
        cli_json_num(j, "best_ms", r->best_ms);
        cli_json_num(j, "share", r->median_ms / total);
        cli_json_num(j, "macs", r->macs);
        cli_json_num(j, "gflops", bench_profile_gflops(r));
        cli_json_num(j, "bytes", r->bytes);
        cli_json_num(j, "gb_per_s", gb_per_s(r));
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
}

void bench_profile_json(cli_json *j, const sb_profile *p,
                        const bench_peak *peak)
{
    double total = total_ms(p);

    cli_json_open(j, "profile", '{');
    cli_json_int(j, "runs", (long long)p->runs);
    cli_json_num(j, "median_ms", p->median_ms);
    cli_json_num(j, "best_ms", p->best_ms);
    cli_json_num(j, "peak_gflops", peak->gflops);
    cli_json_str(j, "peak_how", peak->how);
    json_rows(j, "types", p->types, p->n_types, total, false);
    json_rows(j, "steps", p->nodes, p->n_nodes, total, true);
    cli_json_close(j, '}');
}
