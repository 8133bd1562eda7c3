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

/* What the first rank that knows a constant says of it. */
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
            status = sb_fail(ctx, SB_BAD_DATA,
                             "rank %d has another model than rank 0", r);
    for (size_t i = 0; i < n && status == SB_OK; i++)
        for (int r = ranks; r-- > 0;) {
            uint64_t one = ((const uint64_t *)all)[(size_t)r * n + i];

            marks[i] = one ? one : marks[i];
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
    if (status == SB_OK && learner)
        status = mark_join(g->ctx, marks, g->n_values);
    *out = MARK_START;
    for (sb_value_id v = 0; status == SB_OK && v < g->n_values; v++)
        if (marks[v])
            *out = mark_bytes(*out, &marks[v], sizeof marks[v]);
    sb_free(g->ctx, marks);
    return status;
}
