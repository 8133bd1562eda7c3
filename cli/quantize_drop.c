/* --accuracy-drop: layers stay in float, worst first, until the quantized model
 * is as good on the given data as was asked for.
 *
 * How bad a layer is, is measured once, with all of them quantized; how many
 * must stay is found by doubling and halving, each time with a model quantized
 * anew, so that what the others are corrected for is right. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "feed_data.h"
#include "quantize_job.h"

typedef struct {
    quantize_job *j;
    quantize_redo_fn redo;
    sb_model *model; /* in float */
    sb_session *session;
    const sb_tensor **outputs, **reference, **inputs;
    size_t n_out;
    char **names; /* as quantize_drop's */
    size_t *ends;
    size_t n; /* layers */
} dropper;

/* ---- how good it is ------------------------------------------------------ */

/* Per cent lost, by what the outputs are. */
static double drop_of(const sb_eval_result *plain, const sb_eval_result *r,
                      const char **what)
{
    if (r->labeled > 0 && plain->labeled > 0) {
        *what = "top-1";
        return plain->top1 - r->top1;
    }
    *what = "agreement of classes";
    if (!isnan(r->agreement))
        return 100 - r->agreement;
    *what = "F1 of boxes";
    if (r->reference_boxes > 0)
        return 100 * (1 - (isnan(r->f1) ? 0 : r->f1));
    *what = "overlap of maps";
    if (!isnan(r->map_iou))
        return 100 * (1 - r->map_iou);
    *what = "equal texts";
    if (r->texts > 0)
        return 100 - r->texts_equal;
    *what = "cosine of the outputs";
    return 100 * (1 - r->cosine);
}

static sb_status drop_batch(dropper *d, sb_feed *feed, const sb_batch *batch,
                            sb_eval *const evals[2])
{
    size_t n_in = sb_model_input_count(d->j->model);
    sb_status status =
        sb_session_run_batch(d->session, batch, d->reference, d->n_out);

    if (status == SB_OK)
        status = sb_feed_inputs(feed, batch, d->inputs, n_in);
    if (status == SB_OK)
        status = sb_quant_model_forward(d->j->qm, d->inputs, n_in, d->outputs,
                                        d->n_out);
    if (status == SB_OK)
        status = sb_feed_keep(feed, batch, d->outputs, d->n_out);
    if (status == SB_OK)
        status = sb_eval_add(evals[0], batch, d->reference);
    if (status == SB_OK)
        status = sb_eval_add(evals[1], batch, d->outputs);
    return status == SB_OK
               ? sb_eval_compare(evals[1], batch, d->outputs, d->reference)
               : status;
}

static sb_status drop_run(dropper *d, sb_eval *const evals[2])
{
    quantize_job *j = d->j;
    const sb_batch *batch = NULL;
    sb_feed *feed = NULL;
    cli_progress progress;
    sb_status status = sb_feed_create(j->model, &feed);
    size_t done = 0;

    cli_progress_begin(&progress, j->env, "comparing", sb_data_count(j->data));
    sb_data_rewind(j->data);
    while (status == SB_OK) {
        j->subject = j->args->data.path;
        status = sb_data_next(j->data, &batch);
        if (status != SB_OK || batch->count == 0)
            break;
        j->subject = j->args->model;
        status = drop_batch(d, feed, batch, evals);
        done += batch->count;
        cli_progress_step(&progress, done);
    }
    (void)cli_progress_end(&progress);
    sb_feed_free(feed);
    return status;
}

/* Sets what was lost with the model as it is quantized now. */
static int drop_measure(dropper *d)
{
    quantize_job *j = d->j;
    sb_eval *evals[2] = {NULL, NULL};
    sb_status status = sb_eval_create(j->env->ctx, d->n_out, NULL, &evals[0]);

    if (status == SB_OK)
        status = sb_eval_create(j->env->ctx, d->n_out, NULL, &evals[1]);
    sb_quant_model_set_quant(j->qm, 1, 1);
    if (status == SB_OK)
        status = drop_run(d, evals);
    if (status == SB_OK)
        j->drop.lost = drop_of(sb_eval_get(evals[0]), sb_eval_get(evals[1]),
                               &j->drop.what);
    sb_quant_model_set_quant(j->qm, 0, 0);
    sb_eval_free(evals[0]);
    sb_eval_free(evals[1]);
    return status == SB_OK ? CLI_OK : quantize_blame(j);
}

/* ---- which layers hurt --------------------------------------------------- */

typedef struct {
    const sb_layer_error *layer;
    size_t place;
} drop_row;

static int drop_compare(const void *a, const void *b)
{
    const drop_row *x = a, *y = b;
    double u = x->layer->async->sqnr_db, v = y->layer->async->sqnr_db;

    u = isnan(u) ? -(double)INFINITY : u;
    v = isnan(v) ? -(double)INFINITY : v;
    if (u != v)
        return u < v ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* A pattern that means this name alone; `?` for what YAML has no letter for. */
static char *drop_pattern(const char *name)
{
    char *out = cli_alloc(3 * strlen(name) + 1, 1), *to = out;

    for (; *name; name++) {
        bool special = strchr("*?[", *name) != NULL;

        if (special)
            *to++ = '[';
        *to++ = *name;
        if (special)
            *to++ = ']';
    }
    *to = '\0';
    sb_make_printable(out);
    return out;
}

/* The activation that finishes a layer: quantized by itself, before it runs,
 * once the layer is in float, which costs more than the layer did.  Its name
 * is that of its quantizer. */
static void drop_follower(dropper *d, const sb_layer_error *layer,
                          size_t *n_names)
{
    static const char suffix[] = ".input_quantizer";

    for (size_t i = 0; i < sb_quant_model_quantizer_count(d->j->qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(d->j->qm, i);
        size_t n = strlen(q->name), end = sizeof suffix - 1;

        if (!q->fused || strcmp(q->value, layer->output) != 0 || n <= end ||
            strcmp(q->name + n - end, suffix) != 0)
            continue;
        char *name = cli_alloc(n - end + 1, 1);
        memcpy(name, q->name, n - end);
        d->names[(*n_names)++] = drop_pattern(name);
        free(name);
    }
}

static void drop_sort(dropper *d, const sb_quant_errors *errors)
{
    size_t n = sb_quant_errors_count(errors), kept = 0, n_names = 0;
    drop_row *rows = cli_alloc(n + 1, sizeof *rows);

    for (size_t i = 0; i < n; i++) {
        const sb_layer_error *l = sb_quant_errors_layer(errors, i);

        if (strcmp(l->op, "Output") != 0)
            rows[kept++] = (drop_row){l, i};
    }
    qsort(rows, kept, sizeof *rows, drop_compare);
    d->names = cli_alloc(kept + sb_quant_model_quantizer_count(d->j->qm) + 1,
                         sizeof *d->names);
    d->ends = cli_alloc(kept + 1, sizeof *d->ends);
    for (size_t i = 0; i < kept; i++) {
        d->names[n_names++] = drop_pattern(rows[i].layer->name);
        drop_follower(d, rows[i].layer, &n_names);
        d->ends[++d->n] = n_names;
    }
    free(rows);
}

static int drop_rank(dropper *d)
{
    quantize_job *j = d->j;
    sb_quant_errors *errors = NULL;
    cli_feed f = {.env = j->env,
                  .model = j->model,
                  .data = j->data,
                  .run = cli_feed_errors,
                  .what = "looking for the worst layers"};
    int rc = CLI_OK;

    if (sb_quant_errors_create(j->qm, NULL, &errors) != SB_OK)
        return cli_fail(j->env, j->args->model);
    f.user = errors;
    sb_data_rewind(j->data);
    if (cli_feed_all(&f) != SB_OK)
        rc = cli_feed_fail(&f, j->args->model, j->args->data.path);
    else
        drop_sort(d, errors);
    sb_quant_errors_free(errors);
    return rc;
}

/* ---- how many must stay -------------------------------------------------- */

typedef enum { DROP_TOO_FEW, DROP_ENOUGH, DROP_NONE_LEFT } drop_outcome;

/* Quantizes all but the worst `n` layers: is that enough? */
static int drop_try(dropper *d, size_t n, drop_outcome *out)
{
    quantize_job *j = d->j;
    int rc = d->redo(j, (const char *const *)d->names, d->ends[n]);

    if (rc == CLI_OK && j->qm)
        rc = drop_measure(d);
    *out = !j->qm                         ? DROP_NONE_LEFT
           : j->drop.lost <= j->drop.most ? DROP_ENOUGH
                                          : DROP_TOO_FEW;
    j->drop.n = n;
    return rc;
}

/* Operators that only go with others, such as pooling, are no longer quantized
 * once those stay in float: none may be left long before `n` is that of all. */
static int drop_search(dropper *d)
{
    quantize_job *j = d->j;
    size_t few = 0, many = d->n; /* too few; enough or too many */
    size_t best = 0;
    double lost = j->drop.before; /* with `few` */
    int rc = CLI_OK;

    while (rc == CLI_OK && many - few > 1) {
        size_t n = many < d->n      ? few + (many - few) / 2
                   : few == 0       ? 1
                   : 2 * few < many ? 2 * few
                                    : many - 1;
        drop_outcome outcome;

        rc = drop_try(d, n, &outcome);
        if (outcome == DROP_TOO_FEW) {
            few = n;
            lost = j->drop.lost;
        } else {
            many = n;
            best = outcome == DROP_ENOUGH ? n : best;
        }
    }
    if (rc == CLI_OK && best == 0)
        return cli_error("%s: --accuracy-drop %g cannot be met: with %zu of "
                         "%zu layers in float %s still drops by %.4g%s",
                         j->args->model, j->drop.most, few, d->n, j->drop.what,
                         lost, many < d->n ? ", with more none is left" : "");
    if (rc == CLI_OK && j->drop.n != best)
        rc = drop_try(d, best, &(drop_outcome){0});
    return rc;
}

static int drop_open(dropper *d)
{
    quantize_job *j = d->j;
    int dynamic = 0;
    int rc = cli_model_open(j->env, j->cmd, j->args->model, &j->args->values,
                            &d->model);

    if (rc != CLI_OK)
        return rc;
    if (sb_model_make_batch_dynamic(d->model, &dynamic) != SB_OK ||
        sb_session_create(d->model, NULL, &d->session) != SB_OK)
        return cli_fail(j->env, j->args->model);
    d->n_out = sb_model_output_count(d->model);
    d->outputs = cli_alloc(d->n_out + 1, sizeof *d->outputs);
    d->reference = cli_alloc(d->n_out + 1, sizeof *d->reference);
    d->inputs =
        cli_alloc(sb_model_input_count(j->model) + 1, sizeof *d->inputs);
    return CLI_OK;
}

int quantize_limit_drop(quantize_job *j, quantize_redo_fn redo)
{
    dropper d = {.j = j, .redo = redo};
    int rc = drop_open(&d);

    if (rc == CLI_OK)
        rc = drop_measure(&d);
    j->drop.before = j->drop.lost;
    bool missed = rc == CLI_OK && !(j->drop.lost <= j->drop.most);
    if (missed)
        rc = drop_rank(&d);
    if (missed && rc == CLI_OK)
        rc = drop_search(&d);
    j->drop.names = d.names; /* of the job from now on */
    j->drop.ends = d.ends;
    j->drop.n_layers = d.n;
    free(d.outputs);
    free(d.reference);
    free(d.inputs);
    sb_session_free(d.session);
    sb_model_free(d.model);
    return rc;
}
