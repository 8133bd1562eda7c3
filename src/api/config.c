/* The public side of configs and data files: check, default, and the tables of
 * keys. */
#include <stdio.h>
#include <string.h>

#include <sparsebit/quantize.h>

#include "base/file.h"
#include "data/data.h"
#include "prune/prune_config.h"
#include "quant/config/quant_config.h"
#include "quant/observe/observer_def.h"
#include "quant/quantize/quantizer.h"

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
    sb_str_addf(out, ", %s", s->quantizer->name);
    sb_params_words(s->quantizer->params, s->quantizer_params, out);
    sb_str_addf(out, ", %s", s->observer->name);
    sb_params_words(s->observer->params, s->observer_params, out);
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
        sb_str_addf(out, "backend: %s\n", sb_quant_config_target(cfg)->name);
        add_side(out, cfg, SB_QUANT_WEIGHT);
        add_side(out, cfg, SB_QUANT_ACTIVATION);
        sb_str_addf(out, "additions: %s\n",
                    sb_quant_config_qadd(cfg) ? "quantized" : "float");
        sb_str_addf(out, "batch normalization: %s\n",
                    schedule.bn_tuning || schedule.fuse_bn ? "folded" : "kept");
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
                sb_data_has_labels(data) ? "with labels" : "no labels",
                (long long)data->keys.batch);
    sb_data_free(data);
    return SB_OK;
}

/* An sconfig.yaml. */
static sb_status check_pruning(sb_ctx *ctx, const char *path,
                               const sb_str *text, sb_str *out)
{
    sb_prune_config *cfg = NULL;

    SB_TRY(sb_prune_config_load_memory(ctx, path, sb_str_text(text), text->len,
                                       &cfg));
    sb_str_addf(out, "pruning: %s, %s, ratio %.6g\n",
                cfg->type == SB_PRUNE_STRUCTURED ? "structured"
                                                 : "unstructured",
                cfg->criterion->name, cfg->file.ratio);
    sb_prune_config_free(cfg);
    return SB_OK;
}

/* Which of the three it is, only the text says. */
static sb_status check_text(sb_ctx *ctx, const char *path, const sb_str *text,
                            sb_str *out)
{
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_str_status(text));
    SB_TRY(sb_yaml_load_memory(ctx, path, sb_str_text(text), text->len, &doc));
    bool is_data = sb_yaml_get(doc->root, "SOURCE") != NULL;
    bool prunes = sb_yaml_get(doc->root, "SPARSER") && doc->root->n == 1;
    sb_yaml_free(doc);
    return is_data  ? check_data(ctx, path, text, out)
           : prunes ? check_pruning(ctx, path, text, out)
                    : check_config(ctx, path, text, out);
}

sb_status sb_config_check(sb_ctx *ctx, const char *path, char **summary)
{
    sb_mapping map;
    sb_str text, out;

    SB_TRY(sb_file_map_input(ctx, path, &map));
    sb_str_init(&text, ctx);
    sb_str_init(&out, ctx);
    sb_str_addn(&text, map.data, map.size);
    sb_file_unmap(&map);
    sb_status status = check_text(ctx, path, &text, &out);
    if (status == SB_OK && summary)
        status = sb_str_copy_out(&out, summary);
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
        status = sb_str_copy_out(&text, out);
    sb_str_free(&text);
    return status;
}

/* ---- keys --------------------------------------------------------------- */

enum { KEY_MOST = 256, KEYS_MOST = 256 };

/* Rows found so far; texts lie behind each other in `text`, by offset. */
typedef struct collector {
    sb_arena arena; /* of `config` */
    const sb_param_def *config;
    const sb_param_def *rows[KEYS_MOST];
    size_t key_at[KEYS_MOST], allowed_at[KEYS_MOST];
    size_t help_at[KEYS_MOST], more_at[KEYS_MOST];
    size_t n;
    sb_str text;
} collector;

/* Frees it with collector_free() in any case. */
static sb_status collector_init(collector *c, sb_ctx *ctx)
{
    c->n = 0;
    sb_str_init(&c->text, ctx);
    sb_arena_init(&c->arena, ctx);
    return sb_quant_config_table(&c->arena, &c->config);
}

static void collector_free(collector *c)
{
    sb_str_free(&c->text);
    sb_arena_free(&c->arena);
}

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
    c->help_at[c->n] = c->text.len;
    sb_str_addn(&c->text, row->help, strlen(row->help) + 1);
    c->more_at[c->n] = c->text.len;
    sb_param_more(row, &c->text);
    sb_str_addn(&c->text, "", 1);
    c->n++;
}

static void config_collect(collector *c, const sb_param_def *rows,
                           const char *path)
{
    for (; rows->name; rows++) {
        char full[KEY_MOST];

        (void)snprintf(full, sizeof full, "%s%s%s", path, *path ? "." : "",
                       rows->name);
        collect_row(c, rows, full);
        if (rows->fields)
            config_collect(c, rows->fields, full);
    }
}

struct sb_key_list {
    sb_ctx *ctx;
    size_t n;
    sb_config_key *keys; /* in the same block, the texts behind them */
};

/* One block: the list, the array, then the texts. */
static sb_status config_pack(sb_ctx *ctx, const collector *c, sb_key_list **out)
{
    size_t head = sizeof(sb_key_list) + c->n * sizeof(sb_config_key);
    sb_key_list *list = sb_alloc(ctx, 1, head + c->text.len);

    if (!list)
        return SB_NO_MEMORY;
    char *texts = (char *)list + head;
    memcpy(texts, sb_str_text(&c->text), c->text.len);
    list->ctx = ctx;
    list->n = c->n;
    list->keys = (sb_config_key *)(list + 1);
    for (size_t i = 0; i < c->n; i++)
        list->keys[i] = (sb_config_key){
            .key = texts + c->key_at[i],
            .preset = c->rows[i]->fields ? NULL : c->rows[i]->preset,
            .allowed = texts + c->allowed_at[i],
            .help = texts + c->help_at[i],
            .more = texts + c->more_at[i],
            .section = c->rows[i]->fields != NULL,
        };
    *out = list;
    return SB_OK;
}

/* Every key of data files; those of one source say so. */
static void collect_data(collector *c)
{
    size_t n = 0;
    const sb_source_def *const *sources = sb_source_all(&n);

    config_collect(c, sb_data_table, "");
    config_collect(c, sb_transform_table, "");
    config_collect(c, sb_array_table, "");
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
    const sb_param_def *row = sb_params_find(c->config, key, NULL);
    size_t len = strlen(key), n = 0;
    collector data = {.n = 0};

    if (row) {
        collect_row(c, row, key);
        if (row->fields)
            config_collect(c, row->fields, key);
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
    collector c;
    sb_status status = collector_init(&c, ctx);

    if (status == SB_OK) {
        config_collect(&c, c.config, "");
        collect_data(&c);
        status = sb_str_status(&c.text);
    }
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
    collector_free(&c);
    return status;
}

sb_status sb_config_keys(sb_ctx *ctx, const char *key, sb_key_list **out)
{
    collector c;
    sb_status status = collector_init(&c, ctx);

    if (status == SB_OK && !key)
        config_collect(&c, c.config, "");
    else if (status == SB_OK && strcmp(key, "data") == 0)
        collect_data(&c);
    else if (status == SB_OK)
        collect_key(&c, key);
    if (status == SB_OK)
        status = sb_str_status(&c.text);
    if (status == SB_OK && c.n == 0)
        status = no_such_key(ctx, key);
    if (status == SB_OK)
        status = config_pack(ctx, &c, out);
    collector_free(&c);
    return status;
}

size_t sb_key_list_count(const sb_key_list *keys)
{
    return keys->n;
}

const sb_config_key *sb_key_list_get(const sb_key_list *keys, size_t i)
{
    return i < keys->n ? &keys->keys[i] : NULL;
}

void sb_key_list_free(sb_key_list *keys)
{
    if (keys)
        sb_free(keys->ctx, keys);
}
