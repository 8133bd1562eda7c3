/* Files that a command may write, data sets as commands take them, and outputs
 * of a whole data set: gathered for a file, or read from one to compare with.
 * An array has the name of its output and the samples in its first axis. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "cli.h"

/* ---- files that are written ---------------------------------------------- */

bool cli_same_file(const char *a, const char *b)
{
    struct stat x, y;

    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool cli_same_output(const char *a, const char *b)
{
    struct stat st;

    if (!a || !b || (stat(a, &st) == 0 && !S_ISREG(st.st_mode)))
        return false; /* a device takes anything */
    if (cli_same_file(a, b))
        return true;
    const char *a_slash = strrchr(a, '/'), *b_slash = strrchr(b, '/');
    if (strcmp(a_slash ? a_slash + 1 : a, b_slash ? b_slash + 1 : b) != 0)
        return false;
    char *a_folder =
        cli_printf("%.*s.", a_slash ? (int)(a_slash + 1 - a) : 0, a);
    char *b_folder =
        cli_printf("%.*s.", b_slash ? (int)(b_slash + 1 - b) : 0, b);
    bool same = cli_same_file(a_folder, b_folder);

    free(a_folder);
    free(b_folder);
    return same;
}

double cli_path_bytes(const char *path)
{
    struct stat st;
    DIR *dir = opendir(path);
    double bytes = 0;

    if (!dir)
        return stat(path, &st) == 0 ? (double)st.st_size : 0;
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char *file = cli_printf("%s/%s", path, e->d_name);

        if (stat(file, &st) == 0 && S_ISREG(st.st_mode))
            bytes += (double)st.st_size;
        free(file);
    }
    (void)closedir(dir);
    return bytes;
}

bool cli_folder_is_empty(const char *path)
{
    DIR *dir = opendir(path);
    bool empty = true;

    for (const struct dirent *e; dir && empty && (e = readdir(dir));)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    if (dir)
        (void)closedir(dir);
    return empty;
}

/* ---- opening ------------------------------------------------------------- */

/* Does one of the lines "KEY: VALUE" begin with these `n` characters? */
static bool has_key(const char *lines, const char *key, size_t n)
{
    for (const char *p = lines; p && *p; p = strchr(p, '\n'), p += p != NULL)
        if (strncmp(p, key, n) == 0 && p[n] == ':')
            return true;
    return false;
}

int cli_set_lines(const cli_cmd *cmd, const char *first, const cli_list *set,
                  char **out)
{
    char *text = cli_printf("%s", first);

    for (size_t k = 0; set && k < set->n; k++) {
        const char *word = set->v[k], *eq = strchr(word, '=');
        size_t n = eq ? (size_t)(eq - word) : 0;
        int rc = CLI_OK;

        if (n == 0 || strchr(word, '\n'))
            rc = cli_usage(cmd, "--set: found '%s', want KEY=VALUE", word);
        else if (has_key(first, word, n))
            rc = cli_usage(cmd, "--set: another option gives '%.*s' already",
                           (int)n, word);
        else if (has_key(text, word, n))
            rc = cli_usage(cmd, "--set: '%.*s' is given twice", (int)n, word);
        if (rc != CLI_OK) {
            free(text);
            return rc;
        }
        char *more = cli_printf("%s%.*s: %s\n", text, (int)n, word, eq + 1);
        free(text);
        text = more;
    }
    *out = text;
    return CLI_OK;
}

/* A folder, or a file that holds samples itself. */
static bool is_samples(const sb_model *model, const char *path)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".jpe",
                                          ".png", ".npy",  ".npz"};
    struct stat st;
    size_t len = strlen(path);

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return true;
    if (len > 4 && strcasecmp(path + len - 4, ".txt") == 0)
        return sb_model_positions(model) > 0; /* a text, for such a model */
    for (size_t i = 0; i < CLI_COUNT(endings); i++) {
        size_t n = strlen(endings[i]);

        if (len > n && strcasecmp(path + len - n, endings[i]) == 0)
            return true;
    }
    return false;
}

/* The assumed data file in one line; not again for a command that opens the
 * same data several times. */
static void tell_assumption(cli_env *env, const char *path, const char *text,
                            const char *keys)
{
    char *lines = cli_printf("%s%s", text, keys);
    bool told = env->assumed && strcmp(env->assumed, path) == 0;

    env->assumed = path;
    if (!env->common.quiet && !told) {
        (void)fprintf(stderr, "sparsebit: %s: no data file, assumed", path);
        for (char *p = strtok(lines, "\n"); p; p = strtok(NULL, "\n"))
            if (strncmp(p, "PATH:", 5) != 0)
                (void)fprintf(stderr, "%s %s", p == lines ? "" : ",", p);
        (void)fprintf(stderr, " (--set KEY=VALUE changes it)\n");
    }
    free(lines);
}

static sb_status open_samples(cli_env *env, const sb_model *model,
                              const char *path, const sb_data_options *opt,
                              sb_data **out)
{
    char *text = NULL;
    sb_status status = sb_data_describe(model, path, opt->keys, &text);

    if (status == SB_OK)
        /* What is assumed is right by itself. */
        status = sb_data_parse(env->ctx, text, *opt->keys ? "--set" : "--data",
                               opt, out);
    if (status == SB_OK)
        status = sb_data_set_model(*out, model);
    if (status == SB_OK)
        tell_assumption(env, path, text, opt->keys);
    sb_memory_free(text);
    return status;
}

static sb_status open_file(cli_env *env, const sb_model *model,
                           const char *path, const sb_data_options *opt,
                           sb_data **out)
{
    sb_status status = sb_data_open(env->ctx, path, opt, out);

    return status == SB_OK ? sb_data_set_model(*out, model) : status;
}

int cli_data_open(cli_env *env, const cli_cmd *cmd, const sb_model *model,
                  const cli_data_spec *spec, int64_t fixed, sb_data **out)
{
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    char *keys = NULL;
    int rc = cli_set_lines(cmd, "", &spec->set, &keys);

    if (rc != CLI_OK)
        return rc;
    opt.samples = spec->samples;
    opt.skip = spec->skip;
    opt.batch = fixed > 0 ? (size_t)fixed : spec->batch;
    opt.strict = spec->strict;
    opt.seed = env->common.seed;
    opt.keys = keys;
    sb_status status = (is_samples(model, spec->path)
                            ? open_samples
                            : open_file)(env, model, spec->path, &opt, out);
    free(keys);
    return status == SB_OK ? CLI_OK : cli_fail(env, spec->path);
}

/* ---- gathering ----------------------------------------------------------- */

typedef struct {
    char *data;
    size_t size, cap; /* bytes */
    int rank;
    int64_t dims[SB_RANK_MAX]; /* the first grows */
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

static void outputs_append(gathered *o, const void *data, size_t size)
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

/* The dimensions of an output behind an axis that counts samples; the first one
 * does, but an output of one run as it is gets one in front. */
static int row_dims(const sb_tensor *t, bool whole, int64_t *dims)
{
    int rank = sb_tensor_rank(t);

    if (rank > SB_RANK_MAX - whole || rank + whole < 1)
        return 0;
    memcpy(dims + whole, sb_tensor_dims(t), (size_t)rank * sizeof *dims);
    if (whole)
        dims[0] = 1;
    return rank + whole;
}

int cli_gather_add(cli_gather *g, const sb_batch *batch,
                   const sb_tensor *const *outputs)
{
    for (size_t i = 0; i < sb_model_output_count(g->model); i++) {
        const sb_tensor *t = outputs[i];
        gathered *o = &g->outputs[i];
        int64_t dims[SB_RANK_MAX];
        bool whole = batch->whole || batch->n_states;
        int rank = row_dims(t, whole, dims);

        if (!whole && rank > 0 && dims[0] != (int64_t)batch->count)
            return cli_error("output '%s' has no samples in its first axis: it "
                             "cannot be saved beside the others",
                             sb_model_output(g->model, i)->name);
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
                             sb_model_output(g->model, i)->name);
        outputs_append(o, sb_tensor_data(t), sb_tensor_size(t));
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

        names[i] = sb_model_output(g->model, i)->name;
        if (sb_tensor_create(env->ctx, o->dtype, o->rank, o->dims,
                             &tensors[i]) != SB_OK)
            rc = cli_fail(env, path);
        else if (o->size)
            memcpy(sb_tensor_data_mutable(tensors[i]), o->data, o->size);
    }
    if (rc == CLI_OK &&
        sb_tensors_save_npz(env->ctx, path, names,
                            (const sb_tensor *const *)tensors, n) != SB_OK)
        rc = cli_fail(env, path);
    for (size_t i = 0; i < n; i++)
        sb_tensor_free(tensors[i]);
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
            cli_printf("%s:%s", path, sb_model_output(model, i)->name);

        if (sb_tensor_load(env->ctx, member, &s->all[i]) != SB_OK)
            rc = cli_fail(env, path);
        free(member);
    }
    *out = s;
    return rc;
}

int cli_saved_rows(cli_saved *s, size_t first, const sb_batch *batch,
                   const sb_tensor **out)
{
    size_t count = batch->count;
    bool whole = batch->whole || batch->n_states;

    for (size_t i = 0; i < s->n; i++) {
        const sb_tensor *t = s->all[i];
        int rank = sb_tensor_rank(t);
        int64_t dims[SB_RANK_MAX] = {0};
        int64_t have = rank > 0 ? sb_tensor_dims(t)[0] : 0;

        if (rank < 1 || (uint64_t)have < first + count)
            return cli_error("%s: outputs of %lld samples, the data set has "
                             "more",
                             s->path, (long long)have);
        memcpy(dims, sb_tensor_dims(t), (size_t)rank * sizeof *dims);
        dims[0] = (int64_t)count;
        sb_tensor_free(s->batch[i]);
        s->batch[i] = NULL;
        if (sb_tensor_create(s->env->ctx, sb_tensor_dtype(t), rank - whole,
                             dims + whole, &s->batch[i]) != SB_OK)
            return cli_fail(s->env, s->path);
        size_t row = sb_tensor_size(t) / (size_t)have;
        memcpy(sb_tensor_data_mutable(s->batch[i]),
               (const char *)sb_tensor_data(t) + first * row, count * row);
        out[i] = s->batch[i];
    }
    return CLI_OK;
}

void cli_saved_free(cli_saved *s)
{
    for (size_t i = 0; s && i < s->n; i++) {
        sb_tensor_free(s->all[i]);
        sb_tensor_free(s->batch[i]);
    }
    if (s) {
        free(s->all);
        free(s->batch);
    }
    free(s);
}
