/* What ranks that train together tell each other: gradients at each step, and
 * what one of them has of parameters. */
#include <string.h>

#include "base/ranks/comm.h"
#include "learn/learner.h"

sb_status sb_learner_join(sb_learner *l, double *loss)
{
    sb_store *store = &l->store;
    int ranks = sb_ctx_ranks(l->ctx);
    float *g = store->gradients.data;
    int64_t n = sb_tensor_count(&store->gradients);

    if (ranks == 1)
        return SB_OK;
    SB_TRY(sb_comm_sum_f64(l->ctx, loss, 1));
    SB_TRY(sb_comm_sum_f32(l->ctx, g, (size_t)n));
    *loss /= ranks;
    for (int64_t i = 0; i < n; i++)
        g[i] /= (float)ranks;
    for (size_t i = 0; i < store->n; i++)
        store->all[i].kept[SB_STORE_GRADIENT].version++;
    return SB_OK;
}

static sb_status share_note(sb_store *store)
{
    int64_t length = store->note ? (int64_t)strlen(store->note) : 0;

    SB_TRY(sb_comm_broadcast(store->ctx, &length, sizeof length, 0));
    char *text = sb_alloc(store->ctx, (size_t)length + 1, 1);
    if (!text)
        return SB_NO_MEMORY;
    if (store->note && sb_ctx_rank(store->ctx) == 0)
        memcpy(text, store->note, (size_t)length);
    sb_status status = sb_comm_broadcast(store->ctx, text, (size_t)length, 0);
    if (status == SB_OK)
        status = sb_store_set_note(store, text, (size_t)length);
    sb_free(store->ctx, text);
    return status;
}

sb_status sb_store_share(sb_store *store, sb_parameter *p, int root)
{
    static const sb_store_kind kinds[] = {SB_STORE_VALUE,    SB_STORE_MEAN,
                                          SB_STORE_MOMENTUM, SB_STORE_SQUARE,
                                          SB_STORE_AVERAGE,  SB_STORE_MASK};

    for (size_t k = 0; p->info.trained && k < SB_COUNT(kinds); k++) {
        sb_state *s = &p->kept[kinds[k]];
        if (!sb_parameter_has(p, kinds[k]))
            continue;
        SB_TRY(sb_comm_broadcast(store->ctx, s->t.data, sb_tensor_bytes(&s->t),
                                 root));
        s->version++;
    }
    return SB_OK;
}

sb_status sb_learner_share(sb_learner *l)
{
    sb_store *store = &l->store;
    int64_t counters[] = {store->runs, store->updates, store->waiting};

    if (sb_ctx_ranks(l->ctx) == 1)
        return SB_OK;
    SB_TRY(sb_comm_broadcast(l->ctx, counters, sizeof counters, 0));
    SB_TRY(share_note(store));
    for (size_t i = 0; i < store->n; i++)
        SB_TRY(sb_store_share(store, &store->all[i], 0));
    store->runs = counters[0];
    store->updates = counters[1];
    store->waiting = counters[2];
    return SB_OK;
}
