/* What rounding has decided and blocks have learned, on disk; see journal.h. */
#define _POSIX_C_SOURCE 200809L
#include "quant/reconstruct/journal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/threads.h"
#include "dnn/bf16_product.h"
#include "quant/calibrate/batch_store.h"
#include "quant/calibrate/replay.h"
#include "quant/correct/correct.h"
#include "quant/model/overlay.h"
#include "tensor/mapped.h"
#include "tensor/mark.h"

static const char LAYER[] = "layer", BLOCK[] = "block";
enum { JOURNAL_NAME = 32 };

static void journal_name(const char *kind, size_t at, char name[JOURNAL_NAME])
{
    (void)snprintf(name, JOURNAL_NAME, "%s-%06zu", kind, at);
}

/* Of the file that says which run it is. */
static void journal_run_name(const char *kind, char name[JOURNAL_NAME])
{
    (void)snprintf(name, JOURNAL_NAME, "%s-run", kind);
}

/* ---- which run ---------------------------------------------------------- */

static uint64_t journal_hash_tensor(uint64_t h, const sb_tensor *t)
{
    h = sb_mark(h, t->dims, (size_t)t->rank * sizeof *t->dims);
    return sb_mark(h, t->data, sb_tensor_bytes(t));
}

static uint64_t journal_hash_qparams(uint64_t h, const sb_qparams *p)
{
    const int32_t bounds[] = {p->qmin, p->qmax};
    size_t bytes = (size_t)p->n * sizeof *p->scale;

    h = sb_mark(h, bounds, sizeof bounds);
    h = sb_mark(h, p->scale, bytes);
    return sb_mark(h, p->zero_point, bytes);
}

/* Which layers, and how they are rounded. */
static uint64_t journal_hash_layers(uint64_t h, const sb_quant_model *qm,
                                    const sb_round_layer *layers, size_t n)
{
    const sb_quant_schedule s = sb_quant_config_schedule(qm->config);
    const bool how[] = {s.layerwise, s.bias_correction};

    h = sb_mark(h, how, sizeof how);
    for (size_t i = 0; i < n; i++) {
        const sb_quantizer *q = layers[i].q;

        h = sb_mark(h, q->name, strlen(q->name));
        h = sb_mark(h, q->def->name, strlen(q->def->name));
        if (q->spec.quantizer_params)
            h = sb_mark(h, q->spec.quantizer_params, q->def->params_size);
    }
    return h;
}

static uint64_t journal_hash_blocks(uint64_t h, const sb_quant_model *qm,
                                    const sb_quant_blockwise *how)
{
    const double numbers[] = {(double)how->steps, (double)how->batch,
                              how->rate,          how->scale_rate,
                              how->lambda,        how->drop};

    h = sb_mark(h, numbers, sizeof numbers);
    return sb_mark(h, &qm->state.calibration.seed,
                   sizeof qm->state.calibration.seed);
}

typedef struct journal_marks {
    const sb_quant_model *qm;
    uint64_t *of; /* [value] */
} journal_marks;

/* Of a value's weight, as it is now. */
static void journal_mark_value(void *arg, size_t lane, size_t v)
{
    const journal_marks *m = arg;
    const sb_value *value = sb_graph_value(m->qm->graph, (sb_value_id)v);

    (void)lane;
    if (!value->is_constant || value->constant.dtype == SB_DTYPE_STRING)
        return;
    const sb_tensor *t = sb_overlay_constant(m->qm, (sb_value_id)v);
    m->of[v] = journal_hash_tensor(SB_MARK_BEGIN, t);
    sb_tensor_release_pages(t);
}

static sb_status journal_hash_weights(const sb_quant_model *qm, uint64_t *h)
{
    size_t n = qm->graph->n_values;
    journal_marks m = {qm, sb_alloc(qm->ctx, n + 1, sizeof *m.of)};

    if (!m.of)
        return SB_NO_MEMORY;
    sb_parallel_lanes(qm->ctx, n, (size_t)sb_ctx_threads(qm->ctx),
                      journal_mark_value, &m);
    *h = sb_mark(*h, m.of, n * sizeof *m.of);
    sb_free(qm->ctx, m.of);
    return sb_ctx_poll(qm->ctx);
}

/* Everything else that results depend on: weights, scales and samples. */
static sb_status journal_hash_model(sb_quant_model *qm, uint64_t *h)
{
    const int mode = (int)sb_quant_config_mode(qm->config);

    *h = sb_mark(*h, &mode, sizeof mode);
    SB_TRY(journal_hash_weights(qm, h));
    for (size_t i = 0; i < qm->place.n_quantizers; i++)
        *h = journal_hash_qparams(
            *h, sb_quantizer_qparams(qm, &qm->place.quantizers[i]));
    for (size_t i = 0; i < sb_batch_store_count(qm->state.batches); i++) {
        const sb_tensor *const *inputs = NULL;

        if (!sb_replay_is_for(qm, SB_REPLAY_USED, i))
            continue;
        SB_TRY(sb_batch_store_get(qm->state.batches, i, &inputs));
        for (size_t k = 0; k < qm->graph->n_inputs; k++)
            if (inputs[k])
                *h = journal_hash_tensor(*h, inputs[k]);
    }
    return SB_OK;
}

/* What the file of the run holds: which one it is, and how its products of
 * matrices are made.  Half of the layers one way and half the other would be
 * neither. */
typedef struct journal_mark {
    uint64_t run, how;
} journal_mark;

static const char *const HOW[] = {"in float32", "in bfloat16", "exactly"};
enum { IN_FLOAT32, IN_BFLOAT16, EXACTLY };

static uint64_t journal_how(const sb_quant_model *qm)
{
    return qm->exact ? EXACTLY : sb_bf16_is_fast() ? IN_BFLOAT16 : IN_FLOAT32;
}

/* ---- files -------------------------------------------------------------- */

static sb_status journal_write(const sb_journal *j, const char *name,
                               const sb_journal_part *parts, size_t n)
{
    char *path = sb_path_join(j->qm->ctx, j->folder, name);
    sb_writer *w = NULL;

    if (!path)
        return SB_NO_MEMORY;
    sb_status status = sb_writer_open(j->qm->ctx, path, &w);
    sb_free(j->qm->ctx, path);
    SB_TRY(status);
    for (size_t i = 0; i < n; i++)
        sb_writer_put(w, parts[i].data, parts[i].bytes);
    return sb_writer_commit(w);
}

/* *buf stays NULL unless there is such a file of this size. */
static sb_status journal_map(const sb_journal *j, const char *name, size_t size,
                             sb_buf **buf)
{
    char *path = sb_path_join(j->qm->ctx, j->folder, name);
    struct stat st;
    sb_status status = SB_OK;

    *buf = NULL;
    if (!path)
        return SB_NO_MEMORY;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= 0 &&
        (uint64_t)st.st_size == size)
        status = sb_buf_map_file(j->qm->ctx, path, false, buf);
    sb_free(j->qm->ctx, path);
    return status;
}

static sb_status journal_unlink(sb_ctx *ctx, const char *folder,
                                const char *name)
{
    char *path = sb_path_join(ctx, folder, name);
    sb_status status = SB_OK;

    if (!path)
        return SB_NO_MEMORY;
    if (unlink(path) != 0 && errno != ENOENT)
        status = sb_fail(ctx, SB_IO, "%s: cannot be removed: %s", path,
                         strerror(errno));
    sb_free(ctx, path);
    return status;
}

/* Is what the folder holds of this run?  Refused if it is, but made another
 * way. */
static sb_status journal_is_same(const sb_journal *j, const char *name,
                                 const journal_mark *mark, bool *same)
{
    journal_mark was = {0};
    sb_buf *buf = NULL;

    *same = false;
    SB_TRY(journal_map(j, name, sizeof was, &buf));
    if (!buf)
        return SB_OK;
    memcpy(&was, sb_buf_data(buf), sizeof was);
    sb_buf_unref(buf);
    if (was.run != mark->run || was.how >= SB_COUNT(HOW))
        return SB_OK;
    if (was.how != mark->how)
        return sb_fail(j->qm->ctx, SB_UNSUPPORTED,
                       "%s: its layers were computed %s, the rest would be %s "
                       "(%s): go on as it was begun, or remove the folder",
                       j->folder, HOW[was.how], HOW[mark->how],
                       was.how == EXACTLY || mark->how == EXACTLY
                           ? "--exact"
                           : "another processor");
    *same = true;
    return SB_OK;
}

/* The file of the run goes first: without it the others are of no run. */
static sb_status journal_empty(sb_ctx *ctx, const char *folder,
                               const char *kind, size_t n)
{
    char name[JOURNAL_NAME];

    journal_run_name(kind, name);
    SB_TRY(journal_unlink(ctx, folder, name));
    for (size_t i = 0; i < n; i++) {
        journal_name(kind, i, name);
        SB_TRY(journal_unlink(ctx, folder, name));
    }
    return SB_OK;
}

/* Makes the folder for n files of the run that `h` is the hash of so far. */
static sb_status journal_start(const sb_journal *j, size_t n, uint64_t h)
{
    sb_ctx *ctx = j->qm->ctx;
    journal_mark mark = {.run = h, .how = journal_how(j->qm)};
    char name[JOURNAL_NAME];
    bool same = false;

    SB_TRY(journal_hash_model(j->qm, &mark.run));
    if (mkdir(j->folder, 0777) != 0 && errno != EEXIST)
        return sb_fail(ctx, SB_IO, "%s: the folder cannot be made: %s",
                       j->folder, strerror(errno));
    journal_run_name(j->kind, name);
    SB_TRY(journal_is_same(j, name, &mark, &same));
    if (same)
        return SB_OK;
    SB_TRY(journal_empty(ctx, j->folder, j->kind, n));
    sb_status status =
        journal_write(j, name, &(sb_journal_part){&mark, sizeof mark}, 1);
    if (status != SB_OK)
        (void)rmdir(j->folder); /* if there is nothing in it */
    return status;
}

/* ---- layers ------------------------------------------------------------- */

/* The bias that is fitted with a layer; false if there is none. */
static bool journal_bias(const sb_quant_model *qm, const sb_round_layer *l,
                         sb_bias_layer *out)
{
    return sb_quant_config_schedule(qm->config).layerwise &&
           sb_round_fits_bias(qm, l) &&
           sb_bias_layer_find(qm->graph, l->node, out);
}

sb_status sb_journal_open(sb_quant_model *qm, const sb_round_layer *layers,
                          size_t n, sb_journal *j)
{
    *j = (sb_journal){.qm = qm, .kind = LAYER};
    if (n == 0 || qm->state.shared)
        return SB_OK;
    j->folder = qm->state.calibration.journal;
    return j->folder
               ? journal_start(
                     j, n, journal_hash_layers(SB_MARK_BEGIN, qm, layers, n))
               : SB_OK;
}

/* A weight, then scales, zero points and the bias, all float32. */
static size_t journal_bytes(const sb_quant_model *qm, const sb_round_layer *l)
{
    const sb_qparams *p = sb_quantizer_qparams(qm, l->q);
    sb_bias_layer bias = {0};

    (void)journal_bias(qm, l, &bias);
    return ((size_t)(l->groups * l->rows * l->cols + bias.channels) +
            2 * (size_t)p->n) *
           sizeof(float);
}

/* Lays numbers of a file over a constant. */
static void journal_lay(const sb_journal *j, sb_value_id v, sb_buf *buf,
                        size_t first)
{
    const sb_tensor *own = &sb_graph_value(j->qm->graph, v)->constant;
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, own->rank, own->dims);

    t.data = (float *)sb_buf_data(buf) + first;
    t.buf = buf;
    sb_overlay_set(j->qm, v, &t);
}

sb_status sb_journal_get(sb_journal *j, const sb_round_layer *l, size_t at,
                         bool *there)
{
    char name[JOURNAL_NAME];
    sb_buf *buf = NULL;
    sb_bias_layer bias;

    *there = false;
    if (!j->folder)
        return SB_OK;
    journal_name(j->kind, at, name);
    SB_TRY(journal_map(j, name, journal_bytes(j->qm, l), &buf));
    if (!buf)
        return SB_OK;
    const sb_qparams *p = sb_quantizer_qparams(j->qm, l->q);
    size_t n = (size_t)p->n, weight = (size_t)(l->groups * l->rows * l->cols);
    const float *scale = (const float *)sb_buf_data(buf) + weight;
    memcpy(p->scale, scale, n * sizeof *scale);
    memcpy(p->zero_point, scale + n, n * sizeof *scale);
    journal_lay(j, l->q->value, buf, 0);
    if (journal_bias(j->qm, l, &bias))
        journal_lay(j, bias.bias, buf, weight + 2 * n);
    sb_buf_unref(buf);
    j->found++;
    *there = true;
    return SB_OK;
}

sb_status sb_journal_put(const sb_journal *j, const sb_round_layer *l,
                         size_t at)
{
    char name[JOURNAL_NAME];
    sb_buf *buf = NULL;
    sb_bias_layer bias;

    if (!j->folder)
        return SB_OK;
    const sb_qparams *p = sb_quantizer_qparams(j->qm, l->q);
    const sb_tensor *w = sb_overlay_constant(j->qm, l->q->value), *b = NULL;
    size_t scales = (size_t)p->n * sizeof *p->scale;

    if (journal_bias(j->qm, l, &bias))
        b = sb_overlay_constant(j->qm, bias.bias);
    const sb_journal_part parts[] = {
        {w->data, sb_tensor_bytes(w)},
        {p->scale, scales},
        {p->zero_point, scales},
        {b ? b->data : NULL, b ? sb_tensor_bytes(b) : 0}};
    journal_name(j->kind, at, name);
    SB_TRY(journal_write(j, name, parts, SB_COUNT(parts)));
    SB_TRY(journal_map(j, name, journal_bytes(j->qm, l), &buf));
    if (buf)
        journal_lay(j, l->q->value, buf, 0);
    sb_buf_unref(buf);
    return SB_OK;
}

/* ---- blocks ------------------------------------------------------------- */

sb_status sb_journal_open_blocks(sb_quant_model *qm,
                                 const sb_quant_blockwise *how, size_t n,
                                 sb_journal *j)
{
    *j = (sb_journal){.qm = qm, .kind = BLOCK};
    if (n == 0 || qm->state.shared)
        return SB_OK;
    j->folder = qm->state.calibration.journal;
    return j->folder ? journal_start(
                           j, n, journal_hash_blocks(SB_MARK_BEGIN, qm, how))
                     : SB_OK;
}

sb_status sb_journal_read(sb_journal *j, size_t at,
                          const sb_journal_part *parts, size_t n, bool *there)
{
    char name[JOURNAL_NAME];
    size_t size = 0;
    sb_buf *buf = NULL;

    *there = false;
    if (!j->folder)
        return SB_OK;
    for (size_t i = 0; i < n; i++)
        size += parts[i].bytes;
    journal_name(j->kind, at, name);
    SB_TRY(journal_map(j, name, size, &buf));
    if (!buf)
        return SB_OK;
    const char *from = sb_buf_data(buf);
    for (size_t i = 0; i < n; from += parts[i++].bytes)
        memcpy(parts[i].data, from, parts[i].bytes);
    sb_buf_unref(buf);
    j->found++;
    *there = true;
    return SB_OK;
}

sb_status sb_journal_write(const sb_journal *j, size_t at,
                           const sb_journal_part *parts, size_t n)
{
    char name[JOURNAL_NAME];

    if (!j->folder)
        return SB_OK;
    journal_name(j->kind, at, name);
    return journal_write(j, name, parts, n);
}

/* ---- the end ------------------------------------------------------------ */

sb_status sb_quant_model_end_journal(sb_quant_model *qm)
{
    const char *folder = qm->state.calibration.journal;

    if (!folder || !sb_is_folder(folder))
        return SB_OK;
    SB_TRY(journal_empty(qm->ctx, folder, LAYER, qm->place.n_quantizers));
    SB_TRY(journal_empty(qm->ctx, folder, BLOCK, qm->graph->n_nodes));
    if (rmdir(folder) != 0 && errno != ENOTEMPTY && errno != EEXIST)
        return sb_fail(qm->ctx, SB_IO, "%s: cannot be removed: %s", folder,
                       strerror(errno));
    return SB_OK;
}
