/* The public side of configs and data files: check, default, and the tables of
 * keys. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/data.h"
#include "quant/quant_config.h"

/* ---- check -------------------------------------------------------------- */

static void add_spec(sb_str *out, const char *what, const sb_quant_spec *s)
{
    sb_str_add(out, what);
    if (s->disabled) {
        sb_str_add(out, ": float\n");
        return;
    }
    if (s->dynamic) {
        sb_str_add(out, ": 8 bit, ranges are taken at run time\n");
        return;
    }
    sb_str_addf(out, ": %d bit, %s", s->bits,
                sb_quant_scheme_name(s->granularity, s->symmetric));
    if (s->granularity == SB_QUANT_PER_GROUP && s->group_size > 0)
        sb_str_addf(out, " of %lld", (long long)s->group_size);
    sb_str_addf(out, ", %s, %s", s->quantizer, s->observer);
    if (strcmp(s->observer, "percentile") == 0)
        sb_str_addf(out, " %.6g", s->percentile_alpha);
    if (strcmp(s->observer, "aciq") == 0)
        sb_str_add(out, s->aciq_laplace ? " laplace" : " gaus");
    if (strcmp(s->observer, "moving_average") == 0)
        sb_str_addf(out, " %.6g", s->ema_ratio);
    sb_str_add(out, "\n");
}

static void add_side(sb_str *out, const sb_quant_config *cfg,
                     sb_quant_kind kind)
{
    sb_param_strings patterns = sb_quant_config_patterns(cfg, kind);
    sb_quant_spec spec;

    sb_quant_config_spec(cfg, kind, NULL, &spec);
    add_spec(out, kind == SB_QUANT_WEIGHT ? "weights" : "activations", &spec);
    for (size_t i = 0; i < patterns.n; i++) {
        sb_quant_config_pattern_spec(cfg, kind, i, &spec);
        sb_str_add(out, "  ");
        add_spec(out, patterns.v[i], &spec);
    }
}

static void add_summary(sb_str *out, const sb_quant_config *cfg)
{
    sb_param_strings skip = sb_quant_config_skip_patterns(cfg);
    sb_quant_schedule schedule = sb_quant_config_schedule(cfg);

    if (sb_quant_config_has_quant(cfg)) {
        sb_str_addf(out, "backend: %s\n",
                    sb_quant_backend_name(sb_quant_config_backend(cfg)));
        add_side(out, cfg, SB_QUANT_WEIGHT);
        add_side(out, cfg, SB_QUANT_FEATURE);
        sb_str_addf(out, "additions: %s\n",
                    sb_quant_config_qadd(cfg) ? "quantized" : "float");
        sb_str_addf(out, "batch normalisation: %s\n",
                    schedule.bn_tuning ? "tuned, then folded"
                    : schedule.fuse_bn ? "folded"
                                       : "kept");
    }
    for (size_t i = 0; i < skip.n; i++)
        sb_str_addf(out, "left alone: %s\n", skip.v[i]);
    if (sb_quant_config_has_sparse(cfg)) {
        sb_sparse_config s = sb_quant_config_sparse(cfg);

        sb_str_addf(out, "pruning: %s, %s, ratio %.6g\n",
                    s.structured ? "structured" : "unstructured", s.strategy,
                    s.ratio);
    }
}

static sb_status check_config(sb_ctx *ctx, const char *path, const sb_str *text,
                              sb_str *out)
{
    sb_quant_config *cfg = NULL;

    SB_TRY(sb_quant_config_load_memory(ctx, path, sb_str_text(text), text->len,
                                       SB_QUANT_CONFIG_ANY, &cfg));
    add_summary(out, cfg);
    sb_quant_config_free(cfg);
    return SB_OK;
}

static sb_status check_data(sb_ctx *ctx, const char *path, const sb_str *text,
                            sb_str *out)
{
    const sb_data_options opt = SB_DATA_OPTIONS_INIT;
    sb_data *data = NULL;

    SB_TRY(sb_data_parse(ctx, sb_str_text(text), path, &opt, &data));
    sb_str_addf(out, "data: %s, %zu samples, %s, batches of %lld\n",
                data->keys.source, sb_data_count(data),
                sb_data_labelled(data) ? "with labels" : "no labels",
                (long long)data->keys.batch);
    sb_data_free(data);
    return SB_OK;
}

/* Which of the two it is, only the text says. */
static sb_status check_text(sb_ctx *ctx, const char *path, const sb_str *text,
                            sb_str *out)
{
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_str_status(text));
    SB_TRY(sb_yaml_load_memory(ctx, path, sb_str_text(text), text->len, &doc));
    bool is_data = sb_yaml_get(doc->root, "SOURCE") != NULL;
    sb_yaml_free(doc);
    return is_data ? check_data(ctx, path, text, out)
                   : check_config(ctx, path, text, out);
}

sb_status sb_config_check(sb_ctx *ctx, const char *path, char **summary)
{
    sb_mapping map;
    sb_str text, out;

    SB_TRY(sb_file_map(ctx, path, &map));
    sb_str_init(&text, ctx);
    sb_str_init(&out, ctx);
    sb_str_addn(&text, map.data, map.size);
    sb_file_unmap(&map);
    sb_status status = check_text(ctx, path, &text, &out);
    if (status == SB_OK && summary)
        status = sb_str_take(&out, summary);
    sb_str_free(&out);
    sb_str_free(&text);
    return status;
}

sb_status sb_config_default(sb_ctx *ctx, char **out)
{
    sb_str text;

    sb_str_init(&text, ctx);
    sb_status status = sb_quant_config_default_text(&text);
    if (status == SB_OK)
        status = sb_str_take(&text, out);
    sb_str_free(&text);
    return status;
}

/* ---- keys --------------------------------------------------------------- */

enum { KEY_MOST = 256, KEYS_MOST = 256 };

/* Rows found so far; texts lie behind each other in `text`, by offset. */
typedef struct collector {
    const sb_param_def *rows[KEYS_MOST];
    size_t key_at[KEYS_MOST], allowed_at[KEYS_MOST], more_at[KEYS_MOST];
    size_t n;
    sb_str text;
} collector;

static void collect_row(collector *c, const sb_param_def *row, const char *path)
{
    if (c->n == KEYS_MOST)
        return;
    c->rows[c->n] = row;
    c->key_at[c->n] = c->text.len;
    sb_str_addn(&c->text, path, strlen(path) + 1);
    c->allowed_at[c->n] = c->text.len;
    sb_param_allowed(row, &c->text);
    sb_str_addn(&c->text, "", 1);
    c->more_at[c->n] = c->text.len;
    sb_param_more(row, &c->text);
    sb_str_addn(&c->text, "", 1);
    c->n++;
}

static void collect(collector *c, const sb_param_def *rows, const char *path)
{
    for (; rows->name; rows++) {
        char full[KEY_MOST];

        (void)snprintf(full, sizeof full, "%s%s%s", path, *path ? "." : "",
                       rows->name);
        collect_row(c, rows, full);
        if (rows->fields)
            collect(c, rows->fields, full);
    }
}

/* One block: the array, then the texts. */
static sb_status pack(sb_ctx *ctx, const collector *c, sb_config_key **out)
{
    size_t head = c->n * sizeof(sb_config_key);
    sb_config_key *keys = sb_alloc(ctx, 1, head + c->text.len);

    if (!keys)
        return SB_NO_MEMORY;
    char *texts = (char *)keys + head;
    memcpy(texts, sb_str_text(&c->text), c->text.len);
    for (size_t i = 0; i < c->n; i++)
        keys[i] = (sb_config_key){
            .key = texts + c->key_at[i],
            .preset = c->rows[i]->fields ? NULL : c->rows[i]->preset,
            .allowed = texts + c->allowed_at[i],
            .help = c->rows[i]->help,
            .more = texts + c->more_at[i],
            .section = c->rows[i]->fields != NULL,
        };
    *out = keys;
    return SB_OK;
}

/* Every key of data files; those of one source say so. */
static void collect_data(collector *c)
{
    size_t n = 0;
    const sb_source_def *const *sources = sb_source_all(&n);

    collect(c, sb_data_table, "");
    collect(c, sb_transform_table, "");
    for (size_t i = 0; i < n; i++)
        for (const sb_param_def *d = sources[i]->table; d && d->name; d++) {
            char name[KEY_MOST];

            (void)snprintf(name, sizeof name, "%s (%s)", d->name,
                           sources[i]->name);
            collect_row(c, d, name);
        }
}

/* The key and what is below it, in configs or else in data files; nothing if
 * there is no such key. */
static void collect_key(collector *c, const char *key)
{
    const sb_param_def *row =
        sb_params_find(sb_quant_config_table(), key, NULL);
    size_t len = strlen(key), n = 0;
    collector data = {.n = 0};

    if (row) {
        collect_row(c, row, key);
        if (row->fields)
            collect(c, row->fields, key);
        return;
    }
    sb_str_init(&data.text, c->text.ctx);
    collect_data(&data);
    if (sb_str_status(&data.text) != SB_OK)
        c->text.failed = true;
    else
        n = data.n;
    for (size_t i = 0; i < n; i++) {
        const char *name = sb_str_text(&data.text) + data.key_at[i];

        if (strncmp(name, key, len) == 0 && (!name[len] || name[len] == ' '))
            collect_row(c, data.rows[i], name);
    }
    sb_str_free(&data.text);
}

/* With the whole key that is most like it, or that ends with it. */
static sb_status no_such_key(sb_ctx *ctx, const char *key)
{
    const char *names[KEYS_MOST + 1] = {0};
    const char *near = NULL;
    collector c = {.n = 0};

    sb_str_init(&c.text, ctx);
    collect(&c, sb_quant_config_table(), "");
    collect_data(&c);
    sb_status status = sb_str_status(&c.text);
    if (status == SB_OK) {
        for (size_t i = 0; i < c.n; i++)
            names[i] = sb_str_text(&c.text) + c.key_at[i];
        near = sb_nearest(key, names);
        for (size_t i = 0; i < c.n && !near; i++) {
            const char *last = strrchr(names[i], '.');

            if (last && strcmp(last + 1, key) == 0)
                near = names[i];
        }
        for (size_t i = 0; i < c.n && !near; i++) {
            const char *last = strrchr(names[i], '.');

            if (last && sb_nearest(key, (const char *[]){last + 1, NULL}))
                near = names[i];
        }
        status = sb_fail(ctx, SB_BAD_ARG, "no key '%.100s'%s%s%s", key,
                         near ? ", did you mean " : "", near ? near : "",
                         near ? "?" : "");
    }
    sb_str_free(&c.text);
    return status;
}

sb_status sb_config_keys(sb_ctx *ctx, const char *key, sb_config_key **out,
                         size_t *n)
{
    collector c = {.n = 0};

    sb_str_init(&c.text, ctx);
    if (!key)
        collect(&c, sb_quant_config_table(), "");
    else if (strcmp(key, "data") == 0)
        collect_data(&c);
    else
        collect_key(&c, key);
    sb_status status = sb_str_status(&c.text);
    if (status == SB_OK && c.n == 0)
        status = no_such_key(ctx, key);
    if (status == SB_OK)
        status = pack(ctx, &c, out);
    if (status == SB_OK)
        *n = c.n;
    sb_str_free(&c.text);
    return status;
}

void sb_config_keys_free(sb_ctx *ctx, sb_config_key *keys)
{
    sb_free(ctx, keys);
}
