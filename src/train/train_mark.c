/* Is it the same model?  A run that goes on from other weights than it began
 * with would mix two networks: calibrated scales and frozen weights are those
 * of the file.
 *
 * FNV-1a (64 bit) over words of eight bytes: a guard against mistakes, not
 * against malice. */
#include <string.h>

#include "api/model.h"
#include "train/trainer.h"

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

uint64_t sb_train_mark(const sb_model *model)
{
    const sb_graph *g = model->graph;
    uint64_t mark = 0xcbf29ce484222325u;

    for (sb_value_id v = 0; v < g->n_values; v++) {
        const sb_value *value = sb_graph_value(g, v);
        const sb_tensor *t = &value->constant;

        if (!value->is_constant || !t->data || t->dtype == SB_DTYPE_STRING)
            continue;
        mark = mark_bytes(mark, value->name, strlen(value->name));
        mark = mark_bytes(mark, t->data, sb_tensor_bytes(t));
    }
    return mark;
}
