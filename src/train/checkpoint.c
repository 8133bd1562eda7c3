/* Checkpoints: the learner's file with a note that holds the rest.
 *
 *     FOLDER/last.npz   parameters, moments, counters; the note: where training
 *                       is, the log so far, options, seeds, the model
 *     FOLDER/best.npz   the same after the best epoch
 *
 * Both are renamed into place, best.npz first.  If the process dies between
 * the two, the epoch is repeated from last.npz and writes the same best.npz
 * again.
 *
 * Of several ranks the first one reads and writes, and tells the others; so
 * they need not see the folder. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "train/trainer.h"

static const char last_name[] = "last.npz", best_name[] = "best.npz";

/* ---- writing ------------------------------------------------------------ */

static void add_number(sb_str *out, const char *key, double x)
{
    sb_str_addf(out, ", \"%s\": ", key);
    if (isnan(x))
        sb_str_add(out, "null");
    else
        sb_json_add_number(out, x);
}

/* What decides which samples come when, and what is learned from them. */
static void add_data(sb_str *out, const sb_trainer *t)
{
    add_number(out, "samples", (double)sb_data_count(t->train));
    add_number(out, "valid_samples",
               t->valid ? (double)sb_data_count(t->valid) : 0);
    add_number(out, "steps", (double)t->steps);
    sb_str_addf(out, ", \"seed\": \"%" PRIu64 "\"", t->opt.seed);
    sb_str_addf(out, ", \"data_seed\": \"%" PRIu64 "\"",
                sb_data_seed(t->train));
    sb_str_addf(out, ", \"teacher\": \"%s\"", t->opt.teacher ? "yes" : "no");
    sb_str_addf(out, ", \"quantized\": \"%s\"", t->qm ? "yes" : "no");
    sb_str_addf(out, ", \"network\": \"%016" PRIx64 "\"", t->network);
    sb_str_addf(out, ", \"weights\": \"%016" PRIx64 "\"", t->weights);
    sb_str_addf(out, ", \"teacher_weights\": \"%016" PRIx64 "\"",
                t->teacher_weights);
    sb_str_addf(out, ", \"pruning\": %s",
                t->pruning.len ? sb_str_text(&t->pruning) : "[]");
    if (t->qm)
        sb_train_quant_describe(t->qm, out);
}

static void add_rows(sb_str *out, const sb_train_progress *at)
{
    sb_str_add(out, ", \"rows\": [");
    for (size_t i = 0; i < at->epoch; i++) {
        const sb_train_row *row = &at->rows[i];

        sb_str_addf(out, "%s{\"epoch\": %zu", i ? ", " : "", i + 1);
        add_number(out, "rate", row->rate);
        add_number(out, "loss", row->loss);
        add_number(out, "accuracy", row->accuracy);
        add_number(out, "validation", row->validation);
        add_number(out, "seconds", row->seconds);
        sb_str_add(out, "}");
    }
    sb_str_add(out, "]");
}

static void write_note(const sb_trainer *t, sb_str *out)
{
    const sb_train_progress *at = &t->at;

    sb_str_add(out, "{\"version\": 1, \"options\": ");
    sb_params_json(sb_train_table, &t->keys, out);
    add_data(out, t);
    add_number(out, "ranks", (double)sb_ctx_ranks(t->ctx));
    add_number(out, "epoch", (double)at->epoch);
    add_number(out, "step", (double)at->step);
    add_number(out, "loss", at->loss);
    add_number(out, "right", (double)at->right);
    add_number(out, "seen", (double)at->seen);
    add_number(out, "best", at->best);
    add_number(out, "best_epoch", (double)at->best_epoch);
    add_number(out, "worse", (double)at->worse);
    add_number(out, "seconds", at->seconds + sb_seconds_now() - t->began);
    add_rows(out, at);
    sb_str_add(out, "}");
}

static bool checkpoint_write(sb_trainer *t, const char *name)
{
    char *path = sb_path_join(t->ctx, t->opt.folder, name);
    sb_str note;

    sb_str_init(&note, t->ctx);
    write_note(t, &note);
    sb_status status = path ? sb_str_status(&note) : SB_NO_MEMORY;
    if (status == SB_OK)
        status = sb_learner_set_note(t->learner, sb_str_text(&note));
    if (status == SB_OK)
        status = sb_learner_save(t->learner, path);
    if (status != SB_OK)
        sb_warn(t->ctx, "no checkpoint: %s (training goes on)",
                sb_ctx_error(t->ctx));
    sb_str_free(&note);
    sb_free(t->ctx, path);
    return status == SB_OK;
}

static bool checkpoint_is_ours(const sb_trainer *t)
{
    return t->opt.folder && sb_ctx_rank(t->ctx) == 0;
}

/* The first member of two objects, or of objects in them, that differs. */
static const char *first_difference(const sb_json *a, const sb_json *b)
{
    for (; a && b; a = a->next, b = b->next) {
        const char *x = sb_json_text(a), *y = sb_json_text(b), *inside;

        if (a->kind != b->kind || a->number != b->number || a->n != b->n ||
            (x && y && strcmp(x, y) != 0))
            return a->key ? a->key : ""; /* of a list */
        inside = first_difference(a->child, b->child);
        if (inside)
            return inside[0] || !a->key ? inside : a->key;
    }
    return a || b ? "" : NULL;
}

/* Says what rank r has, a text of `n` bytes, that rank 0 has otherwise. */
static sb_status ranks_differ(const sb_trainer *t, const char *first,
                              size_t n_first, int rank, const char *other,
                              size_t n)
{
    sb_json_doc *a = NULL, *b = NULL;
    sb_status status = sb_json_read(t->ctx, "rank 0", first, n_first, &a);

    if (status == SB_OK)
        status = sb_json_read(t->ctx, "another rank", other, n, &b);
    if (status == SB_OK) {
        const char *key = first_difference(a->root->child, b->root->child);

        status = sb_fail(t->ctx, SB_BAD_DATA,
                         "rank %d has not the '%s' of rank 0: start all ranks "
                         "with the same files and options",
                         rank, key ? key : "");
    }
    sb_json_free(b);
    sb_json_free(a);
    return status;
}

sb_status sb_checkpoint_compare(const sb_trainer *t)
{
    int ranks = sb_ctx_ranks(t->ctx);
    size_t *sizes = NULL;
    void *all = NULL;
    sb_str own;

    if (ranks == 1)
        return SB_OK;
    sb_str_init(&own, t->ctx);
    sb_str_add(&own, "{\"options\": ");
    sb_params_json(sb_train_table, &t->keys, &own);
    add_data(&own, t);
    sb_str_add(&own, "}");
    sizes = sb_alloc(t->ctx, (size_t)ranks, sizeof *sizes);
    sb_status status = sizes ? sb_str_status(&own) : SB_NO_MEMORY;
    if (status == SB_OK)
        status = sb_comm_gather(t->ctx, own.data, own.len, sizes, &all);
    const char *at = all;
    for (int r = 0; r < ranks && status == SB_OK; at += sizes[r++])
        if (sizes[r] != sizes[0] || memcmp(at, all, sizes[0]) != 0)
            status = ranks_differ(t, all, sizes[0], r, at, sizes[r]);
    sb_memory_free(all);
    sb_free(t->ctx, sizes);
    sb_str_free(&own);
    return status;
}

/* A last.npz that names a best epoch whose file could not be written would go
 * on from a wrong one: the folder stays at the epoch before. */
void sb_checkpoint_save(sb_trainer *t)
{
    if (!checkpoint_is_ours(t)) /* rank 0 warns if it cannot */
        t->saved = true;
    else if (!t->best_lost && checkpoint_write(t, last_name))
        t->saved = true;
}

void sb_checkpoint_save_best(sb_trainer *t)
{
    if (checkpoint_is_ours(t))
        t->best_lost = !checkpoint_write(t, best_name);
}

sb_status sb_checkpoint_folder(sb_trainer *t)
{
    if (!checkpoint_is_ours(t))
        return SB_OK;
    char *path = sb_path_join(t->ctx, t->opt.folder, last_name);

    if (!path)
        return SB_NO_MEMORY;
    bool taken = sb_path_exists(path);
    sb_free(t->ctx, path);
    if (taken)
        return sb_fail(t->ctx, SB_BAD_ARG,
                       "%s holds a training run already: resume it (--resume), "
                       "remove it, or choose another folder",
                       t->opt.folder);
    t->made_folder = mkdir(t->opt.folder, 0777) == 0;
    if (!t->made_folder && errno != EEXIST)
        return sb_fail(t->ctx, SB_IO, "%s: cannot be made: %s", t->opt.folder,
                       strerror(errno));
    if (!sb_is_folder(t->opt.folder))
        return sb_fail(t->ctx, SB_IO, "%s: is no folder", t->opt.folder);
    return SB_OK;
}

void sb_checkpoint_leave(const sb_trainer *t)
{
    if (t->made_folder)
        (void)rmdir(t->opt.folder); /* fails if there is something in it */
}

/* ---- reading ------------------------------------------------------------ */

/* A number of the note; NaN for null. */
static sb_status read_number(const sb_json_doc *doc, const sb_json *object,
                             const char *key, double *out)
{
    const sb_json *node = sb_json_get(object, key);

    *out = (double)NAN;
    if (sb_json_is(node, SB_JSON_NULL))
        return SB_OK;
    if (!sb_json_is(node, SB_JSON_NUMBER))
        return sb_json_fail(doc, node, "'%s' is no number", key);
    *out = node->number;
    return SB_OK;
}

static sb_status read_count(const sb_json_doc *doc, const char *key,
                            double most, size_t *out)
{
    double x;

    SB_TRY(read_number(doc, doc->root, key, &x));
    if (!(x >= 0 && x <= most) || x != floor(x))
        return sb_json_fail(doc, sb_json_get(doc->root, key),
                            "'%s': found %g, allowed are whole numbers up to "
                            "%g",
                            key, x, most);
    *out = (size_t)x;
    return SB_OK;
}

/* The same quantizers, or settings of pruning? */
static sb_status check_list(const sb_trainer *t, const sb_json_doc *doc,
                            const sb_json *found, const sb_json *want)
{
    const sb_json *a = found ? found->child : NULL, *b = want->child;
    const char *there, *here;

    for (; a && b; a = a->next, b = b->next)
        if (!a->text || strcmp(a->text, b->text) != 0)
            break;
    if (!a && !b)
        return SB_OK;
    there = a && a->text ? a->text : "none";
    here = b ? b->text : "none";
    return sb_fail(t->ctx, SB_BAD_DATA,
                   "%s: the run there has in %s '%s', this one '%s'; go on "
                   "with the same",
                   doc->file, want->key, there, here);
}

/* The same number or text?  Marks say nothing to a reader. */
static sb_status check_item(const sb_trainer *t, const sb_json_doc *doc,
                            const sb_json *found, const sb_json *want)
{
    bool is_text = want->kind == SB_JSON_TEXT;
    bool model =
        strcmp(want->key, "network") == 0 || strcmp(want->key, "weights") == 0;
    char number[2][32];

    if (!found || found->kind != want->kind)
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "%s: says nothing of '%s': another version of "
                       "sparsebit wrote it; resume it with that one, or train "
                       "anew in another folder (--folder)",
                       doc->file, want->key);
    if (is_text ? strcmp(found->text, want->text) == 0
                : found->number == want->number)
        return SB_OK;
    if (model || strcmp(want->key, "teacher_weights") == 0)
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "%s: the run there began with another %s (its %s "
                       "differ); resume it with the same file, options and "
                       "version of sparsebit, or train anew in another folder "
                       "(--folder)",
                       doc->file, model ? "model" : "teacher",
                       strcmp(want->key, "network") == 0
                           ? "nodes or their attributes"
                           : "weights");
    (void)snprintf(number[0], sizeof number[0], "%g", found->number);
    (void)snprintf(number[1], sizeof number[1], "%g", want->number);
    return sb_fail(t->ctx, SB_BAD_DATA,
                   "%s: the run there has %s %s, this one %s; go on with the "
                   "same",
                   doc->file, want->key, is_text ? found->text : number[0],
                   is_text ? want->text : number[1]);
}

/* The same samples in the same order, for the same model? */
static sb_status check_data(const sb_trainer *t, const sb_json_doc *doc)
{
    sb_json_doc *own = NULL;
    sb_str text;

    sb_str_init(&text, t->ctx);
    sb_str_add(&text, "{\"version\": 1");
    add_data(&text, t);
    sb_str_add(&text, "}");
    sb_status status = sb_str_status(&text);
    if (status == SB_OK)
        status = sb_json_read(t->ctx, "now", text.data, text.len, &own);
    for (const sb_json *want = own ? own->root->child : NULL;
         want && status == SB_OK; want = want->next) {
        const sb_json *found = sb_json_get(doc->root, want->key);

        status = want->kind == SB_JSON_LIST ? check_list(t, doc, found, want)
                                            : check_item(t, doc, found, want);
    }
    sb_json_free(own);
    sb_str_free(&text);
    return status;
}

/* Another number of ranks adds up in another order. */
static sb_status check_ranks(const sb_trainer *t, const sb_json_doc *doc)
{
    double before = 1;
    int now = sb_ctx_ranks(t->ctx);

    if (sb_json_get(doc->root, "ranks"))
        SB_TRY(read_number(doc, doc->root, "ranks", &before));
    if (before != (double)now && sb_ctx_rank(t->ctx) == 0)
        sb_warn(t->ctx,
                "%s: the run had %g ranks, now it has %d; the result is not "
                "the same to the last bit",
                doc->file, before, now);
    return SB_OK;
}

static sb_status read_rows(sb_trainer *t, const sb_json_doc *doc)
{
    const sb_json *rows = sb_json_get(doc->root, "rows");
    sb_train_row *to = t->at.rows;

    if (!sb_json_is(rows, SB_JSON_LIST) || rows->n != t->at.epoch)
        return sb_json_fail(doc, rows, "'rows' has not one for each epoch");
    for (const sb_json *row = rows->child; row; row = row->next, to++) {
        SB_TRY(read_number(doc, row, "rate", &to->rate));
        SB_TRY(read_number(doc, row, "loss", &to->loss));
        SB_TRY(read_number(doc, row, "accuracy", &to->accuracy));
        SB_TRY(read_number(doc, row, "validation", &to->validation));
        SB_TRY(read_number(doc, row, "seconds", &to->seconds));
    }
    return SB_OK;
}

static sb_status read_progress(sb_trainer *t, const sb_json_doc *doc)
{
    sb_train_progress *at = &t->at;
    const double most = 9007199254740992.0; /* pixels, too, are counted */

    SB_TRY(sb_params_check_json(doc, sb_json_get(doc->root, "options"),
                                sb_train_table, &t->keys));
    SB_TRY(check_data(t, doc));
    SB_TRY(check_ranks(t, doc));
    SB_TRY(read_count(doc, "epoch", (double)t->keys.epochs, &at->epoch));
    SB_TRY(read_count(doc, "step", (double)t->steps, &at->step));
    SB_TRY(read_count(doc, "seen", most, &at->seen));
    SB_TRY(read_count(doc, "right", (double)at->seen, &at->right));
    SB_TRY(
        read_count(doc, "best_epoch", (double)t->keys.epochs, &at->best_epoch));
    SB_TRY(read_count(doc, "worse", (double)t->keys.epochs, &at->worse));
    SB_TRY(read_number(doc, doc->root, "loss", &at->loss));
    SB_TRY(read_number(doc, doc->root, "best", &at->best));
    SB_TRY(read_number(doc, doc->root, "seconds", &at->seconds));
    return read_rows(t, doc);
}

/* From the first rank to all. */
static sb_status load_learner(sb_trainer *t, const char *path)
{
    if (sb_ctx_rank(t->ctx) == 0)
        SB_TRY(sb_learner_load(t->learner, path));
    return sb_learner_share(t->learner);
}

static sb_status load_best(sb_trainer *t)
{
    char *path = sb_path_join(t->ctx, t->opt.folder, best_name);
    sb_status status = path ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK)
        status = load_learner(t, path);
    if (status == SB_OK)
        status = sb_learner_model(t->learner, sb_trainer_values(t), &t->best);
    sb_free(t->ctx, path);
    return status;
}

sb_status sb_checkpoint_load(sb_trainer *t)
{
    char *path = sb_path_join(t->ctx, t->opt.folder, last_name);
    sb_json_doc *doc = NULL;
    sb_status status = path ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK && checkpoint_is_ours(t) && !sb_path_exists(path))
        status = sb_fail(t->ctx, SB_IO,
                         "%s: there is no training run to resume", path);
    if (status == SB_OK)
        status = load_learner(t, path);
    if (status == SB_OK) {
        const char *note = sb_learner_note(t->learner);

        status = sb_json_read(t->ctx, path, note, strlen(note), &doc);
    }
    if (status == SB_OK)
        status = read_progress(t, doc);
    t->saved = status == SB_OK;
    /* The best one goes through the learner, so the last comes after it. */
    if (status == SB_OK && !isnan(t->at.best)) {
        status = load_best(t);
        if (status == SB_OK)
            status = load_learner(t, path);
    }
    sb_json_free(doc);
    sb_free(t->ctx, path);
    return status;
}
