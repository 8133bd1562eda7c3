/* Outputs of a whole data set: gathered for a file, or read from one to compare
 * with.  An array has the name of its output and the samples in its first
 * axis. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MAX_RANK = 12 };

/* ---- gathering ----------------------------------------------------------- */

typedef struct {
    char *data;
    size_t size, cap; /* bytes */
    int rank;
    int64_t dims[MAX_RANK]; /* the first grows */
    sb_dtype dtype;
} gathered;

struct cli_gather {
    const sb_model *model;
    gathered *outputs;
};

cli_gather *cli_gather_new(const sb_model *model)
{
    cli_gather *g = cli_alloc(1, sizeof *g);

    g->model = model;
    g->outputs = cli_alloc(sb_model_output_count(model), sizeof *g->outputs);
    return g;
}

void cli_gather_free(cli_gather *g)
{
    for (size_t i = 0; g && i < sb_model_output_count(g->model); i++)
        free(g->outputs[i].data);
    if (g)
        free(g->outputs);
    free(g);
}

static void append(gathered *o, const void *data, size_t size)
{
    if (o->size + size > o->cap) {
        size_t cap = 2 * o->cap + size;
        char *more = cli_alloc(cap, 1);

        if (o->size)
            memcpy(more, o->data, o->size);
        free(o->data);
        o->data = more;
        o->cap = cap;
    }
    if (size)
        memcpy(o->data + o->size, data, size);
    o->size += size;
}

int cli_gather_add(cli_gather *g, const sb_tensor *const *outputs)
{
    for (size_t i = 0; i < sb_model_output_count(g->model); i++) {
        const sb_tensor *t = outputs[i];
        gathered *o = &g->outputs[i];
        const int64_t *dims = sb_tensor_dims(t);
        int rank = sb_tensor_rank(t);

        if (o->rank == 0 && rank > 0) {
            o->rank = rank;
            o->dtype = sb_tensor_dtype(t);
            memcpy(o->dims, dims, (size_t)rank * sizeof *dims);
            o->dims[0] = 0;
        }
        bool same =
            rank > 0 && rank == o->rank && sb_tensor_dtype(t) == o->dtype &&
            memcmp(dims + 1, o->dims + 1, (size_t)(rank - 1) * sizeof *dims) ==
                0;
        if (!same)
            return cli_error("output '%s' has not the same shape for all "
                             "samples: it does not fit one array",
                             sb_model_output(g->model, i).name);
        append(o, sb_tensor_data(t), sb_tensor_size(t));
        o->dims[0] += dims[0];
    }
    return CLI_OK;
}

int cli_gather_save(cli_env *env, cli_gather *g, const char *path)
{
    size_t n = sb_model_output_count(g->model);
    const char **names = cli_alloc(n, sizeof *names);
    sb_tensor **tensors = cli_alloc(n, sizeof *tensors);
    int rc = CLI_OK;

    for (size_t i = 0; i < n && rc == CLI_OK; i++) {
        gathered *o = &g->outputs[i];

        names[i] = sb_model_output(g->model, i).name;
        if (sb_tensor_create(env->ctx, o->dtype, o->rank, o->dims,
                             &tensors[i]) != SB_OK)
            rc = cli_fail(env, path);
        else if (o->size)
            memcpy(sb_tensor_data(tensors[i]), o->data, o->size);
    }
    if (rc == CLI_OK &&
        sb_tensors_save_npz(env->ctx, path, names,
                            (const sb_tensor *const *)tensors, n) != SB_OK)
        rc = cli_fail(env, path);
    for (size_t i = 0; i < n; i++)
        sb_tensor_free(env->ctx, tensors[i]);
    free(tensors);
    free(names);
    return rc;
}

/* ---- comparing with a file ----------------------------------------------- */

struct cli_saved {
    cli_env *env;
    const char *path;
    size_t n;
    sb_tensor **all;   /* as they are in the file */
    sb_tensor **batch; /* the rows of one batch */
};

int cli_saved_open(cli_env *env, const char *path, const sb_model *model,
                   cli_saved **out)
{
    cli_saved *s = cli_alloc(1, sizeof *s);
    int rc = CLI_OK;

    s->env = env;
    s->path = path;
    s->n = sb_model_output_count(model);
    s->all = cli_alloc(s->n, sizeof *s->all);
    s->batch = cli_alloc(s->n, sizeof *s->batch);
    for (size_t i = 0; i < s->n && rc == CLI_OK; i++) {
        char *member =
            cli_printf("%s:%s", path, sb_model_output(model, i).name);

        if (sb_tensor_load(env->ctx, member, &s->all[i]) != SB_OK)
            rc = cli_fail(env, path);
        free(member);
    }
    *out = s;
    return rc;
}

int cli_saved_rows(cli_saved *s, size_t first, size_t count,
                   const sb_tensor **out)
{
    for (size_t i = 0; i < s->n; i++) {
        const sb_tensor *t = s->all[i];
        int rank = sb_tensor_rank(t);
        int64_t dims[MAX_RANK] = {0};
        int64_t have = rank > 0 ? sb_tensor_dims(t)[0] : 0;

        if (rank < 1 || (uint64_t)have < first + count)
            return cli_error("%s: outputs of %lld samples, the data set has "
                             "more",
                             s->path, (long long)have);
        memcpy(dims, sb_tensor_dims(t), (size_t)rank * sizeof *dims);
        dims[0] = (int64_t)count;
        sb_tensor_free(s->env->ctx, s->batch[i]);
        s->batch[i] = NULL;
        if (sb_tensor_create(s->env->ctx, sb_tensor_dtype(t), rank, dims,
                             &s->batch[i]) != SB_OK)
            return cli_fail(s->env, s->path);
        size_t row = sb_tensor_size(t) / (size_t)have;
        memcpy(sb_tensor_data(s->batch[i]),
               (const char *)sb_tensor_data(t) + first * row, count * row);
        out[i] = s->batch[i];
    }
    return CLI_OK;
}

void cli_saved_free(cli_saved *s)
{
    for (size_t i = 0; s && i < s->n; i++) {
        sb_tensor_free(s->env->ctx, s->all[i]);
        sb_tensor_free(s->env->ctx, s->batch[i]);
    }
    if (s) {
        free(s->all);
        free(s->batch);
    }
    free(s);
}
