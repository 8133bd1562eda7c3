/* The pages of --report. */
#include "report_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *cli_base_name(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') /* of a folder */
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    return path + n;
}

const char *cli_name_beside(const char *path, const char *other)
{
    const char *name = path ? cli_base_name(path) : NULL;

    return path && other && strcmp(path, other) != 0 &&
                   strcmp(name, cli_base_name(other)) == 0
               ? path
               : name;
}

void cli_report_fact(sb_report *report, const char *label, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    char *text = cli_vprintf(fmt, args);
    va_end(args);
    sb_report_fact(report, label, text);
    free(text);
}

static void count_facts(sb_report *r, const cli_quant_page *p)
{
    size_t n[2] = {0};

    for (size_t i = 0; i < sb_quant_model_quantizer_count(p->qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(p->qm, i);
        n[q->is_weight != 0] += !q->fused;
    }
    cli_report_fact(r, "target", "%s", sb_quant_model_target(p->qm));
    cli_report_fact(r, "weights quantized", "%zu", n[1]);
    cli_report_fact(r, "activations quantized", "%zu", n[0]);
    if (p->samples > 0)
        cli_report_fact(r, "samples", "%zu", p->samples);
}

static void output_facts(sb_report *r, const cli_quant_page *p)
{
    const sb_output_error *o = sb_quant_errors_output(p->errors, 0);
    const sb_layer_error *l, *worst = NULL;

    if (p->samples == 0)
        return;
    if (o && o->difference && isfinite(o->difference->sqnr_db))
        cli_report_fact(r, "SQNR of the output", "%.1f dB",
                        o->difference->sqnr_db);
    if (o && isfinite(o->kl)) {
        cli_report_fact(r, "KL of the output", "%.3g", o->kl);
        cli_report_fact(r, "same class as float", "%.2f %%",
                        100 * o->agreement);
    }
    for (size_t i = 0; (l = sb_quant_errors_layer(p->errors, i)); i++)
        if (!worst || !(l->async->sqnr_db >= worst->async->sqnr_db))
            worst = l;
    if (worst && isfinite(worst->async->sqnr_db))
        cli_report_fact(r, "worst layer alone", "%s: %.1f dB", worst->name,
                        worst->async->sqnr_db);
}

/* What the target makes of the file, where that is known. */
static sb_status add_lint(sb_report *r, const cli_quant_page *p)
{
    const char *target = sb_quant_model_target(p->qm);
    const sb_lint *lint = NULL;
    sb_model *file = NULL;

    if (!sb_target_is_runtime(target))
        return SB_OK;
    sb_status status = sb_quant_model_export_model(p->qm, NULL, &file);
    if (status == SB_OK)
        status = sb_model_lint(file, target, &lint);
    if (status == SB_OK)
        sb_report_lint(r, lint);
    sb_model_free(file);
    return status;
}

int cli_report_quantization(cli_env *env, const cli_quant_page *p)
{
    char *title = cli_printf("%s, quantized", cli_base_name(p->model));
    char *below = cli_printf("sparsebit %s %s", sb_version(), p->command);
    sb_report *r = NULL;
    sb_status status = sb_report_create(env->ctx, title, below, &r);

    if (status == SB_OK) {
        count_facts(r, p);
        output_facts(r, p);
        status = sb_report_quantization(r, p->errors);
    }
    if (status == SB_OK)
        status = add_lint(r, p);
    if (status == SB_OK)
        status = sb_report_save(r, p->path);
    sb_report_free(r);
    free(title);
    free(below);
    return status == SB_OK ? CLI_OK : cli_fail(env, p->path);
}
