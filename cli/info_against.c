/* info --against: how much smaller and faster a model is than its original. */
#include "info_against.h"

#include <stdlib.h>

enum { RUNS = 15 };

typedef struct {
    const char *path;
    sb_model *model;
    sb_session *session;
    double params, macs, bytes;
    double ms[RUNS]; /* of each run */
} against_side;

static int against_load(cli_env *env, const cli_cmd *cmd, const char *path,
                        const cli_list *shapes, const cli_list *values,
                        against_side *s)
{
    const sb_model_info *info = NULL;

    s->path = path;
    if (sb_model_load(env->ctx, path, &s->model) != SB_OK)
        return cli_fail(env, path);
    int rc = cli_model_fix(env, cmd, s->model, shapes, values);
    if (rc != CLI_OK)
        return rc;
    if (sb_model_info_get(s->model, &info) != SB_OK ||
        sb_session_create(s->model, NULL, &s->session) != SB_OK)
        return cli_fail(env, path);
    s->params = (double)info->params;
    s->macs = info->macs;
    s->bytes = (double)info->file_bytes;
    return CLI_OK;
}

static int against_time(cli_env *env, against_side *s, sb_tensor *const *in,
                        int run)
{
    size_t n_in = sb_model_input_count(s->model);
    size_t n_out = sb_model_output_count(s->model);
    const sb_tensor **out = cli_alloc(n_out, sizeof(sb_tensor *));
    double start = cli_seconds();
    sb_status status = sb_session_run(s->session, (const sb_tensor *const *)in,
                                      n_in, out, n_out);

    s->ms[run < 0 ? 0 : run] = 1e3 * (cli_seconds() - start);
    free(out);
    return status == SB_OK ? CLI_OK : cli_fail(env, s->path);
}

static int against_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* In turn, after a first run each that counts for nothing: what else the
 * machine does then falls on both. */
static int against_measure(cli_env *env, const cli_cmd *cmd, against_side *both)
{
    const cli_input_spec spec = {.seed = env->common.seed};
    sb_tensor **in = NULL;
    int rc = cli_inputs_make(env, cmd, both[0].model, &spec, &in);

    if (sb_model_input_count(both[0].model) !=
        sb_model_input_count(both[1].model))
        rc = rc != CLI_OK ? rc
                          : cli_error("%s and %s have different inputs",
                                      both[0].path, both[1].path);
    for (int run = -1; run < RUNS && rc == CLI_OK; run++)
        for (int i = 0; i < 2 && rc == CLI_OK; i++)
            rc = against_time(env, &both[i], in, run);
    for (int i = 0; i < 2; i++)
        qsort(both[i].ms, RUNS, sizeof(double), against_compare);
    if (in)
        cli_inputs_free(both[0].model, in);
    return rc;
}

static void against_row(cli_table *t, const char *what, const char *a,
                        const char *b, double share)
{
    cli_table_add(t, "%s", what);
    cli_table_add(t, "%s", a);
    cli_table_add(t, "%s", b);
    cli_table_add(t, "%.1f %%", 100 * share);
}

static double against_share(double now, double before)
{
    return before > 0 ? now / before : 1;
}

static void against_print(const against_side *now, const against_side *was)
{
    cli_table *t = cli_table_new("lrrr");
    char a[32], b[32];
    double ms = now->ms[RUNS / 2], before = was->ms[RUNS / 2];

    putchar('\n');
    cli_put("%s, against %s\n", now->path, was->path);
    against_row(t, "parameters", cli_si(now->params, a, sizeof a),
                cli_si(was->params, b, sizeof b),
                against_share(now->params, was->params));
    against_row(t, "MACs", cli_si(now->macs, a, sizeof a),
                cli_si(was->macs, b, sizeof b),
                against_share(now->macs, was->macs));
    against_row(t, "file", cli_bytes(now->bytes, a, sizeof a),
                cli_bytes(was->bytes, b, sizeof b),
                against_share(now->bytes, was->bytes));
    snprintf(a, sizeof a, "%.3g ms", ms);
    snprintf(b, sizeof b, "%.3g ms", before);
    against_row(t, "latency", a, b, against_share(ms, before));
    cli_table_print(t, "  ");
}

int cli_info_against(cli_env *env, const cli_cmd *cmd,
                     const cli_info_pair *pair, cli_json *json)
{
    against_side both[2] = {{0}};
    int rc = against_load(env, cmd, pair->model, pair->shapes, pair->values,
                          &both[0]);

    if (rc == CLI_OK)
        rc = against_load(env, cmd, pair->against, pair->shapes, pair->values,
                          &both[1]);
    if (rc == CLI_OK)
        rc = against_measure(env, cmd, both);
    if (rc == CLI_OK && json) {
        cli_json_open(json, "against", '{');
        cli_json_str(json, "model", pair->against);
        cli_json_num(json, "params", both[1].params);
        cli_json_num(json, "macs", both[1].macs);
        cli_json_num(json, "file_bytes", both[1].bytes);
        cli_json_num(json, "latency_ms", both[1].ms[RUNS / 2]);
        cli_json_close(json, '}');
        cli_json_num(json, "latency_ms", both[0].ms[RUNS / 2]);
    } else if (rc == CLI_OK) {
        against_print(&both[0], &both[1]);
    }
    for (int i = 0; i < 2; i++) {
        sb_session_free(both[i].session);
        sb_model_free(both[i].model);
    }
    return rc;
}
