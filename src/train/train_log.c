/* The log: a row for each epoch, written anew after each. */
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "train/trainer.h"

static const struct {
    const char *name;
    size_t offset;
} columns[] = {
    {"learning_rate", offsetof(sb_train_row, rate)},
    {"loss", offsetof(sb_train_row, loss)},
    {"accuracy", offsetof(sb_train_row, accuracy)},
    {"validation", offsetof(sb_train_row, validation)},
    {"seconds", offsetof(sb_train_row, seconds)},
};

static double column_of(const sb_train_row *row, size_t i)
{
    return *(const double *)((const char *)row + columns[i].offset);
}

static void log_csv(const sb_trainer *t, sb_str *out)
{
    sb_str_add(out, "epoch");
    for (size_t i = 0; i < SB_COUNT(columns); i++)
        sb_str_addf(out, ",%s", columns[i].name);
    for (size_t e = 0; e < t->at.epoch; e++) {
        sb_str_addf(out, "\n%zu", e + 1);
        for (size_t i = 0; i < SB_COUNT(columns); i++) {
            double x = column_of(&t->at.rows[e], i);

            sb_str_add(out, ",");
            if (!isnan(x))
                sb_str_addf(out, "%.6g", x);
        }
    }
    sb_str_add(out, "\n");
}

static void log_json(const sb_trainer *t, sb_str *out)
{
    for (size_t e = 0; e < t->at.epoch; e++) {
        sb_str_addf(out, "{\"epoch\": %zu", e + 1);
        for (size_t i = 0; i < SB_COUNT(columns); i++) {
            double x = column_of(&t->at.rows[e], i);

            if (!isnan(x))
                sb_str_addf(out, ", \"%s\": %.6g", columns[i].name, x);
        }
        sb_str_add(out, "}\n");
    }
}

static sb_status log_save(const sb_trainer *t, const char *name,
                          const sb_str *text)
{
    char *path = sb_path_join(t->ctx, t->opt.folder, name);
    sb_writer *w = NULL;
    sb_status status = path ? sb_str_status(text) : SB_NO_MEMORY;

    if (status == SB_OK)
        status = sb_writer_open(t->ctx, path, &w);
    if (status == SB_OK) {
        sb_writer_put(w, text->data, text->len);
        status = sb_writer_commit(w);
    }
    sb_free(t->ctx, path);
    return status;
}

void sb_train_log_write(const sb_trainer *t)
{
    sb_str csv, json;

    if (!t->opt.folder || sb_ctx_rank(t->ctx) != 0)
        return;
    sb_str_init(&csv, t->ctx);
    sb_str_init(&json, t->ctx);
    log_csv(t, &csv);
    log_json(t, &json);
    if (log_save(t, "log.csv", &csv) != SB_OK ||
        log_save(t, "log.jsonl", &json) != SB_OK)
        sb_warn(t->ctx, "%s (the log is not up to date)", sb_ctx_error(t->ctx));
    sb_str_free(&csv);
    sb_str_free(&json);
}
