/* The public side of searches: models for all widths, and the result made
 * real. */
#include <math.h>

#include "api/model.h"
#include "base/file.h"
#include "base/options.h"
#include "quant/model/weight.h"
#include "quant/search/mixed_config.h"
#include "quant/search/search.h"

/* ---- the configuration --------------------------------------------------- */

static const char *default_text(const char *target)
{
    const sb_target_def *def = target ? sb_target_find(target) : NULL;

    if (!def || sb_target_takes(def, SB_USE_ACT, false))
        return "SCHEDULE: {FUSE_BN: true, BIAS_CORRECTION: true}\n"
               "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
               "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n";
    return "SCHEDULE: {FUSE_BN: true, BIAS_CORRECTION: true}\n"
           "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
           "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n";
}

/* Its text, and what messages call it. */
static sb_status search_read_config(sb_arena *arena,
                                    const sb_search_options *opt,
                                    const char **name, const char **text)
{
    sb_mapping file;

    *name = "config";
    *text = opt->config_text ? sb_arena_str(arena, opt->config_text)
                             : default_text(opt->target);
    if (opt->config) {
        SB_TRY(sb_file_map_input(arena->ctx, opt->config, &file));
        *name = sb_arena_str(arena, opt->config);
        *text = sb_arena_strn(arena, file.data ? file.data : "", file.size);
        sb_file_unmap(&file);
    }
    return *name && *text ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_search_float_config(sb_ctx *ctx, const sb_search_options *options,
                                 const char *const *floats, size_t n,
                                 char **out)
{
    const sb_search_options none = SB_SEARCH_OPTIONS_INIT;
    sb_search_options opt;
    const char *file = NULL, *text = NULL;
    sb_arena arena;
    sb_str made;

    SB_TRY(sb_options_read(ctx, "sb_search_options", options, &none, sizeof opt,
                           &opt));
    sb_arena_init(&arena, ctx);
    sb_str_init(&made, ctx);
    sb_status status = search_read_config(&arena, &opt, &file, &text);
    if (status == SB_OK)
        status = sb_floats_config(ctx, file, text, floats, n, &made);
    if (status == SB_OK)
        status = sb_str_copy_out(&made, out);
    sb_str_free(&made);
    sb_arena_free(&arena);
    return status;
}

/* A model of the network with these widths. */
static sb_status search_model(const sb_search *s, int bits,
                              const sb_mixed_width *own, size_t n_own,
                              sb_quant_model **out)
{
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    sb_str text;

    sb_str_init(&text, s->ctx);
    sb_status status =
        sb_mixed_config(s->ctx, s->file, s->text, bits, own, n_own, &text);
    opt.config_text = sb_str_text(&text);
    opt.target = s->opt.target;
    opt.calibrate = 1;
    opt.exclude = s->opt.exclude;
    opt.n_exclude = s->opt.n_exclude;
    if (status == SB_OK)
        status = sb_quant_model_create(s->model, &opt, out);
    sb_str_free(&text);
    return status;
}

/* ---- widths -------------------------------------------------------------- */

/* Bits of an element in the file, all weights together. */
static size_t stored_bits(const sb_quant_model *qm)
{
    size_t sum = 0;

    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];

        if (sb_quantizer_is_constant(qm, q))
            sum += sb_dtype_get(sb_quantizer_type(qm, q).dtype)->bits;
    }
    return sum;
}

/* A narrower width that files hold in as many bits as the one before only
 * loses. */
static sb_status check_saving(const sb_search *s, const sb_quant_model *qm,
                              int bits)
{
    size_t last = s->n_widths - 1;

    if (s->n_widths == 0 || stored_bits(qm) < stored_bits(s->models[last]))
        return SB_OK;
    return sb_fail(s->ctx, SB_UNSUPPORTED,
                   "files for target %s hold weights of %d bits in as many "
                   "bits as those of %d: leave %d out",
                   sb_quant_model_target(qm), bits, s->widths[last], bits);
}

static sb_status add_width(sb_search *s, int bits, bool must)
{
    sb_calibration_options weights = SB_CALIBRATION_OPTIONS_INIT;
    sb_quant_model *qm = NULL;

    if (s->n_widths > 0 && bits >= s->widths[s->n_widths - 1])
        return sb_fail(s->ctx, SB_BAD_ARG,
                       "bit width %d after %d, want them descending, each once",
                       bits, s->widths[s->n_widths - 1]);
    if (s->n_widths == SB_SEARCH_WIDTHS_MOST)
        return sb_fail(s->ctx, SB_BAD_ARG, "more than %d bit widths",
                       SB_SEARCH_WIDTHS_MOST);
    sb_status status = search_model(s, bits, NULL, 0, &qm);
    if (status == SB_OK)
        status = check_saving(s, qm, bits);
    if (status == SB_BAD_CONFIG || status == SB_UNSUPPORTED) {
        sb_quant_model_free(qm);
        return must ? status : SB_OK; /* the target does not take it */
    }
    SB_TRY(status);
    s->models[s->n_widths] = qm;
    s->widths[s->n_widths++] = bits;
    /* Scales of weights need no samples; those of the first are calibrated. */
    weights.asym_weights = s->n_widths > 1;
    return sb_quant_model_prepare_calibration(qm, &weights);
}

static sb_status search_widths(sb_search *s)
{
    static const int usual[] = {8, 4, 2};
    const int *bits = s->opt.bits ? s->opt.bits : usual;
    size_t n = s->opt.bits ? s->opt.n_bits : SB_COUNT(usual);

    for (size_t i = 0; i < n; i++)
        SB_TRY(add_width(s, bits[i], s->opt.bits || i == 0));
    if (s->n_widths < 2)
        return sb_fail(s->ctx, SB_BAD_ARG,
                       "%d is the only bit width of weights for target %s: "
                       "there is nothing to choose",
                       s->widths[0], sb_quant_model_target(s->models[0]));
    s->m.models = s->models;
    s->m.n_models = s->n_widths;
    return SB_OK;
}

/* ---- life ---------------------------------------------------------------- */

sb_status sb_search_create(const sb_model *model,
                           const sb_search_options *options, sb_search **out)
{
    const sb_search_options none = SB_SEARCH_OPTIONS_INIT;
    sb_search_options opt;
    sb_ctx *ctx = model->ctx;

    SB_TRY(sb_options_read(ctx, "sb_search_options", options, &none, sizeof opt,
                           &opt));
    if (!(opt.limit > 0) || !isfinite(opt.limit))
        return sb_fail(ctx, SB_BAD_ARG, "the limit is %g, want more than 0",
                       opt.limit);
    sb_search *s = sb_alloc(ctx, 1, sizeof *s);
    if (!s)
        return SB_NO_MEMORY;
    s->ctx = ctx;
    s->m.ctx = ctx;
    s->model = model;
    s->opt = opt;
    sb_arena_init(&s->arena, ctx);
    sb_status status =
        search_read_config(&s->arena, &s->opt, &s->file, &s->text);
    if (status == SB_OK)
        status = search_widths(s);
    s->opt.bits = NULL; /* the caller's */
    if (status == SB_OK)
        *out = s;
    else
        sb_search_free(s);
    return status;
}

void sb_search_free(sb_search *s)
{
    if (!s)
        return;
    sb_measure_free(&s->m);
    for (size_t i = 0; i < s->n_widths; i++)
        sb_quant_model_free(s->models[i]);
    sb_free(s->ctx, s->errors);
    sb_free(s->ctx, s->sizes);
    sb_free(s->ctx, s->choices);
    sb_free(s->ctx, s->trial);
    sb_arena_free(&s->arena);
    sb_free(s->ctx, s);
}

int64_t sb_search_fixed_batch(const sb_search *s)
{
    return sb_quant_model_fixed_batch(s->models[0]);
}

sb_status sb_search_add(sb_search *s, const sb_tensor *const *inputs,
                        size_t n_inputs, const sb_tensor **outputs,
                        size_t n_outputs)
{
    size_t n = s->models[0]->graph->n_outputs;

    SB_TRY(sb_quant_run_check(s->models[0], inputs, n_inputs, n_outputs));
    const sb_tensor **all = sb_alloc(s->ctx, n + 1, sizeof(sb_tensor *));
    if (!all)
        return SB_NO_MEMORY;
    sb_status status =
        sb_quant_model_forward(s->models[0], inputs, n_inputs, all, n);
    if (status == SB_OK)
        status = sb_measure_keep(&s->m, inputs, all);
    for (size_t i = 0; status == SB_OK && i < n_outputs; i++)
        outputs[i] = all[i];
    sb_free(s->ctx, all);
    return status;
}

/* ---- the result ---------------------------------------------------------- */

/* The configuration that was found: the most frequent width for all, others by
 * name. */
static void search_mixture(const sb_search *s, sb_mixed_width *own,
                           size_t *n_own, int *bits)
{
    const sb_graph *g = s->models[0]->graph;
    size_t count[SB_SEARCH_WIDTHS_MOST] = {0}, best = 0;

    for (size_t i = 0; i < s->m.n_layers; i++)
        count[s->choices[i]]++;
    for (size_t c = 1; c < s->n_widths; c++)
        best = count[c] > count[best] ? c : best;
    *bits = s->widths[best];
    *n_own = 0;
    for (size_t i = 0; i < s->m.n_layers; i++) {
        const sb_node *node = sb_graph_node(g, s->m.layers[i].node);
        if (s->choices[i] == best)
            continue;
        const char *name = !*node->name && *node->module
                               ? node->module
                               : sb_node_label(g, node);
        own[(*n_own)++] = (sb_mixed_width){name, s->widths[s->choices[i]]};
    }
}

/* Quantizes with the mixture: the error of the outputs, and the file. */
static sb_status search_quantize(sb_search *s, sb_quant_model *qm,
                                 double *error, double *bytes)
{
    size_t n_in = qm->graph->n_inputs, n_out = qm->graph->n_outputs, size = 0;
    const sb_tensor **in =
        sb_alloc(s->ctx, n_in + n_out + 1, sizeof(sb_tensor *));
    double *sums = sb_alloc(s->ctx, 2 * n_out + 1, sizeof *sums);
    void *file = NULL;
    sb_status status = in && sums ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK)
        status = sb_quant_model_prepare_calibration(qm, NULL);
    for (int pass = 0; pass < 2 && status == SB_OK; pass++) {
        for (size_t b = 0; b < s->m.n_batches && status == SB_OK; b++) {
            const sb_tensor *t = s->m.batches[b].tensors;
            for (size_t i = 0; i < n_in; i++)
                in[i] = t[i].data ? &t[i] : NULL;
            status = sb_quant_model_forward(qm, in, n_in, in + n_in, n_out);
            if (status == SB_OK && pass == 1)
                sb_measure_add(&s->m, b, in + n_in, sums);
        }
        if (status == SB_OK && pass == 0)
            status = sb_quant_model_calc_qparams(qm);
        sb_quant_model_set_quant(qm, 1, 1);
    }
    if (status == SB_OK)
        status = sb_quant_model_export_memory(qm, NULL, &file, &size);
    if (status == SB_OK)
        status = sb_measure_error(&s->m, sums, error);
    *bytes = (double)size;
    sb_memory_free(file);
    sb_free(s->ctx, sums);
    sb_free(s->ctx, in);
    return status;
}

static sb_status search_realize(sb_search *s, double *error, double *bytes)
{
    sb_mixed_width *own = sb_alloc(s->ctx, s->m.n_layers + 1, sizeof *own);
    sb_quant_model *qm = NULL;
    size_t n_own = 0;
    int bits = 0;
    if (!own)
        return SB_NO_MEMORY;
    search_mixture(s, own, &n_own, &bits);
    sb_status status = search_model(s, bits, own, n_own, &qm);
    if (status == SB_OK)
        status = search_quantize(s, qm, error, bytes);
    sb_quant_model_free(qm);
    sb_free(s->ctx, own);
    return status;
}

sb_status sb_search_config(const sb_search *s, char **out)
{
    sb_mixed_width *own = sb_alloc(s->ctx, s->m.n_layers + 1, sizeof *own);
    size_t n_own = 0;
    int bits = 0;
    sb_str text;

    if (!own)
        return SB_NO_MEMORY;
    sb_str_init(&text, s->ctx);
    sb_status status = s->result.found ? SB_OK
                                       : sb_fail(s->ctx, SB_BAD_ARG,
                                                 "sb_search_run() comes first");
    if (status == SB_OK) {
        search_mixture(s, own, &n_own, &bits);
        status =
            sb_mixed_config(s->ctx, s->file, s->text, bits, own, n_own, &text);
    }
    if (status == SB_OK)
        status = sb_str_copy_out(&text, out);
    sb_str_free(&text);
    sb_free(s->ctx, own);
    return status;
}

/* ---- running ------------------------------------------------------------- */

/* What is in the file beside weights grows with their widths, too (zero
 * points): it is known with the smallest and with the largest. */
static sb_status search_weigh_file(sb_search *s)
{
    double error, most, weights = 0;

    for (size_t i = 0; i < s->m.n_layers; i++)
        weights += s->m.layers[i].elements * s->m.layers[i].bits[0] / 8;
    SB_TRY(search_realize(s, &error, &most));
    s->least_weights = sb_search_least(s, s->choices) / 8;
    SB_TRY(search_realize(s, &error, &s->least_bytes));
    memset(s->choices, 0, s->m.n_layers * sizeof *s->choices);
    s->per_byte = weights > s->least_weights && most > s->least_bytes
                      ? (most - s->least_bytes) / (weights - s->least_weights)
                      : 1;
    return SB_OK;
}

static sb_status search_prepare(sb_search *s)
{
    SB_TRY(sb_quant_model_calc_qparams(s->models[0]));
    SB_TRY(sb_measure_make(&s->m));
    size_t n = s->m.n_layers;
    s->errors = sb_alloc(s->ctx, n * s->n_widths + 1, sizeof *s->errors);
    s->sizes = sb_alloc(s->ctx, n * s->n_widths + 1, sizeof *s->sizes);
    s->choices = sb_alloc(s->ctx, n + 1, sizeof *s->choices);
    s->trial = sb_alloc(s->ctx, n + 1, sizeof *s->trial);
    if (!s->errors || !s->sizes || !s->choices || !s->trial)
        return SB_NO_MEMORY;
    return s->opt.budget == SB_SEARCH_BUDGET_SIZE ? search_weigh_file(s)
                                                  : SB_OK;
}

/* Names and scales of the mixture differ from those of one width for all.  The
 * last time only the smallest file is left, which fits. */
static void search_tighten(sb_search *s, double bytes, bool last)
{
    double most = floor(s->opt.limit) - s->least_bytes;
    double more = s->excess + ceil(bytes - s->opt.limit);

    s->excess = last || more > most ? most : more;
}

sb_status sb_search_run(sb_search *s, const sb_search_result **out)
{
    enum { TIMES = 4 };
    double error = 0, bytes = 0;

    if (s->m.n_batches == 0)
        return sb_fail(s->ctx, SB_BAD_DATA, "no samples were given");
    if (s->result.found)
        return sb_fail(s->ctx, SB_BAD_ARG, "the search was run already");
    SB_TRY(search_prepare(s));
    SB_TRY(sb_search_check(s));
    SB_TRY(sb_search_measure(s));
    SB_TRY(sb_search_choose(s));
    SB_TRY(sb_search_curve(s));
    for (int again = 1; again <= TIMES; again++) {
        SB_TRY(sb_search_refine(s));
        SB_TRY(search_realize(s, &error, &bytes));
        if (s->opt.budget != SB_SEARCH_BUDGET_SIZE || bytes <= s->opt.limit)
            break;
        search_tighten(s, bytes, again == TIMES - 1);
    }
    SB_TRY(sb_search_report(s, error, bytes));
    *out = &s->result;
    return SB_OK;
}
