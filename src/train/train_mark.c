/* Is it the same model?  A run that goes on from other weights than it began
 * with would mix two networks: calibrated scales and frozen weights are those
 * of the file.
 *
 * FNV-1a (64 bit) over words of eight bytes: a guard against mistakes, not
 * against malice. */
#include <string.h>

#include "api/model.h"
#include "train/trainer.h"

#define MARK_START UINT64_C(0xcbf29ce484222325)

static uint64_t mark_bytes(uint64_t mark, const void *bytes, size_t n)
{
    const uint64_t prime = 0x100000001b3u;
    const unsigned char *at = bytes;

    for (; n > 0;) {
        uint64_t word = 0;
        size_t part = n < sizeof word ? n : sizeof word;

        memcpy(&word, at, part);
        mark = (mark ^ word) * prime;
        mark ^= mark >> 29; /* high bits count, too */
        at += part;
        n -= part;
    }
    return mark;
}

/* The mark of a constant; 0: of none, or another rank knows it. */
static uint64_t mark_constant(const sb_value *value, const sb_learner *learner)
{
    const sb_tensor *t = &value->constant;

    if (!value->is_constant || !t->data || t->dtype == SB_DTYPE_STRING ||
        (learner && !sb_learner_reads(learner, value->name)))
        return 0;
    uint64_t mark = mark_bytes(MARK_START, value->name, strlen(value->name));
    return mark_bytes(mark, t->data, sb_tensor_bytes(t)) | 1;
}

/* What every rank knows of a model: the size of its file, and names, types and
 * shapes of its constants. */
static uint64_t mark_outline(const sb_model *model)
{
    const sb_graph *g = model->graph;
    uint64_t bytes = model->file_bytes;
    uint64_t mark = mark_bytes(MARK_START, &bytes, sizeof bytes);

    for (sb_value_id v = 0; v < g->n_values; v++) {
        const sb_value *value = sb_graph_value(g, v);
        const sb_tensor *t = &value->constant;
        const int64_t type[] = {t->dtype, t->rank};

        if (!value->is_constant)
            continue;
        mark = mark_bytes(mark, value->name, strlen(value->name));
        mark = mark_bytes(mark, type, sizeof type);
        mark = mark_bytes(mark, t->dims, (size_t)t->rank * sizeof t->dims[0]);
    }
    return mark | 1;
}

static sb_status mark_differs(sb_ctx *ctx, int rank)
{
    return sb_fail(ctx, SB_BAD_DATA,
                   "rank %d has another model than the ranks before it", rank);
}

/* Each mark becomes that of the ranks that know it, who must agree. */
static sb_status mark_join(sb_ctx *ctx, uint64_t *marks, size_t n)
{
    int ranks = sb_ctx_ranks(ctx);
    size_t *sizes = sb_alloc(ctx, (size_t)ranks, sizeof *sizes);
    void *all = NULL;
    sb_status status =
        sizes ? sb_comm_gather(ctx, marks, n * sizeof *marks, sizes, &all)
              : SB_NO_MEMORY;

    for (int r = 0; r < ranks && status == SB_OK; r++)
        if (sizes[r] != n * sizeof *marks)
            status = mark_differs(ctx, r);
    for (size_t i = 0; i < n * (size_t)ranks && status == SB_OK; i++) {
        uint64_t one = ((const uint64_t *)all)[i], *mark = &marks[i % n];

        if (i < n) /* of rank 0 */
            *mark = one;
        else if (one && *mark && one != *mark)
            status = mark_differs(ctx, (int)(i / n));
        else if (one)
            *mark = one;
    }
    sb_memory_free(all);
    sb_free(ctx, sizes);
    return status;
}

sb_status sb_train_mark(const sb_model *model, const sb_learner *learner,
                        uint64_t *out)
{
    const sb_graph *g = model->graph;
    uint64_t *marks = sb_alloc(g->ctx, g->n_values + 1, sizeof *marks);
    sb_status status = marks ? SB_OK : SB_NO_MEMORY;

    for (sb_value_id v = 0; status == SB_OK && v < g->n_values; v++)
        marks[v] = mark_constant(sb_graph_value(g, v), learner);
    if (status == SB_OK)
        marks[g->n_values] = mark_outline(model);
    if (status == SB_OK && learner)
        status = mark_join(g->ctx, marks, g->n_values + 1);
    *out = MARK_START;
    for (sb_value_id v = 0; status == SB_OK && v < g->n_values; v++)
        if (marks[v])
            *out = mark_bytes(*out, &marks[v], sizeof marks[v]);
    sb_free(g->ctx, marks);
    return status;
}
