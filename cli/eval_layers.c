/* How far the results of nodes are from those of the same name in another
 * model: where in the network two files part.
 *
 * Some batches run once more in both, with a callback for each result.  Of each
 * a bounded number of elements is kept, evenly spread: 128 KB for a node. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval_job.h"

/* Elements of a result in a batch; samples at least. */
enum { KEPT_MOST = 16384, SAMPLES = 16 };

typedef struct layer {
    const char *result; /* a value of both models */
    double *kept;       /* of the reference */
    size_t n_kept;
    int rank;
    int64_t dims[SB_RANK_MAX];
    bool seen;          /* in this batch */
    bool known, failed; /* failed: shapes differ, or there are no numbers */
    double signal, noise;
} layer;

struct eval_layers {
    layer *v; /* by name */
    size_t n;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const layer *)a)->result, ((const layer *)b)->result);
}

static layer *layer_find(const eval_layers *l, const char *name)
{
    const layer key = {.result = name};

    return l->n ? bsearch(&key, l->v, l->n, sizeof *l->v, by_name) : NULL;
}

/* Element k of those that are looked at. */
static double layer_element(const sb_tensor *t, size_t k, size_t n)
{
    double x = (double)NAN;
    double step = (double)sb_tensor_elements(t) / (double)n;

    (void)sb_tensor_read_f64(t, (int64_t)((double)k * step), 1, &x);
    return x;
}

static sb_status layer_keep(void *user, const char *name, const sb_tensor *t)
{
    layer *l = layer_find(user, name);
    int64_t n = sb_tensor_elements(t);

    /* A model for one sample runs once for each: the first will do. */
    if (!l || l->seen || n <= 0 || !cli_is_float(t))
        return SB_OK;
    l->seen = true;
    l->rank = sb_tensor_rank(t);
    memcpy(l->dims, sb_tensor_dims(t), (size_t)l->rank * sizeof *l->dims);
    l->n_kept = n < KEPT_MOST ? (size_t)n : KEPT_MOST;
    free(l->kept);
    l->kept = cli_alloc(l->n_kept, sizeof *l->kept);
    for (size_t k = 0; k < l->n_kept; k++)
        l->kept[k] = layer_element(t, k, l->n_kept);
    return SB_OK;
}

static sb_status layer_compare(void *user, const char *name, const sb_tensor *t)
{
    layer *l = layer_find(user, name);

    if (!l || !l->seen)
        return SB_OK;
    l->failed |= !cli_is_float(t) || l->rank != sb_tensor_rank(t) ||
                 memcmp(l->dims, sb_tensor_dims(t),
                        (size_t)l->rank * sizeof *l->dims) != 0;
    for (size_t k = 0; !l->failed && k < l->n_kept; k++) {
        double d = layer_element(t, k, l->n_kept) - l->kept[k];
        l->signal += l->kept[k] * l->kept[k];
        l->noise += d * d;
    }
    l->known = true;
    l->seen = false;
    return SB_OK;
}

/* Values that nodes of both models make. */
static sb_status find_layers(eval_layers *l, sb_model *a, sb_model *b)
{
    const sb_value_info *const *values = NULL;
    size_t n = 0, k = 0;
    sb_status status = sb_model_values(b, &values, &n);

    if (status != SB_OK)
        return status;
    l->v = cli_alloc(n + 1, sizeof *l->v);
    for (size_t i = 0; i < n; i++)
        if (values[i]->producer != SB_NO_INDEX)
            l->v[l->n++] = (layer){.result = values[i]->name};
    qsort(l->v, l->n, sizeof *l->v, by_name);
    status = sb_model_values(a, &values, &n);
    for (size_t i = 0; status == SB_OK && i < n; i++) {
        layer *one = layer_find(l, values[i]->name);
        if (one && values[i]->producer != SB_NO_INDEX)
            one->known = true;
    }
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].known) {
            l->v[k] = l->v[i];
            l->v[k++].known = false;
        }
    l->n = k;
    return status;
}

static sb_status open_session(const eval_side *s, sb_dump_fn dump, void *user,
                              sb_session **out)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;

    opt.dump = dump;
    opt.dump_user = user;
    return sb_session_create(s->model, &opt, out);
}

static sb_status run_layers(const eval_job *j, sb_session *main,
                            sb_session *other)
{
    size_t n = sb_model_output_count(j->main.model), done = 0;
    const sb_batch *batch = NULL;
    sb_status status = SB_OK;

    sb_data_rewind(j->data);
    while (done < SAMPLES) {
        status = sb_data_next(j->data, &batch);
        if (status != SB_OK || batch->count == 0)
            break;
        status = sb_session_run_batch(other, batch, j->other.outputs, n);
        if (status == SB_OK)
            status = sb_session_run_batch(main, batch, j->main.outputs, n);
        if (status != SB_OK)
            break;
        done += batch->count;
    }
    return status;
}

sb_status eval_layers_measure(const eval_job *j, eval_layers **out)
{
    sb_session *main = NULL, *other = NULL;
    eval_layers *l = cli_alloc(1, sizeof *l);

    *l = (eval_layers){0};
    *out = l;
    sb_status status = find_layers(l, j->main.model, j->other.model);
    if (status == SB_OK)
        status = open_session(&j->other, layer_keep, l, &other);
    if (status == SB_OK)
        status = open_session(&j->main, layer_compare, l, &main);
    if (status == SB_OK)
        status = run_layers(j, main, other);
    sb_session_free(main);
    sb_session_free(other);
    return status;
}

double eval_layers_sqnr(const eval_layers *l, const char *result)
{
    const layer *one = layer_find(l, result);

    if (!one || !one->known || one->failed || !(one->signal > 0))
        return (double)NAN;
    return isnan(one->noise) ? -(double)INFINITY
                             : 10 * log10(one->signal / one->noise);
}

void eval_layers_free(eval_layers *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i].kept);
    free(l->v);
    free(l);
}
