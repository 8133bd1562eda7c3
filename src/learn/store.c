/* The store: memory of parameters, and their way into a graph and back. */
#include "learn/store.h"

#include <string.h>

void sb_store_init(sb_store *store, sb_ctx *ctx)
{
    *store = (sb_store){.ctx = ctx};
    sb_arena_init(&store->arena, ctx);
    sb_map_init(&store->by_name, ctx);
}

void sb_store_free(sb_store *store)
{
    for (size_t i = 0; i < store->n; i++)
        for (int k = 0; k < SB_STORE_KINDS; k++)
            sb_tensor_drop(&store->all[i].kept[k].t);
    sb_tensor_drop(&store->gradients);
    sb_free(store->ctx, store->all);
    sb_free(store->ctx, store->note);
    sb_map_free(&store->by_name);
    sb_arena_free(&store->arena);
}

sb_status sb_store_set_note(sb_store *store, const char *text, size_t len)
{
    char *note = sb_alloc(store->ctx, len + 1, 1);

    if (!note)
        return SB_NO_MEMORY;
    if (len)
        memcpy(note, text, len);
    sb_free(store->ctx, store->note);
    store->note = note;
    return SB_OK;
}

sb_parameter *sb_store_get(const sb_store *store, const char *name)
{
    uint32_t at = sb_map_get(&store->by_name, name);

    return at == SB_MAP_NONE ? NULL : &store->all[at];
}

sb_status sb_store_get_trained(const sb_store *store, const char *name,
                               const char *what, const sb_tensor *value,
                               sb_parameter **out)
{
    sb_parameter *p = sb_store_get(store, name);
    char got[128], want[128];

    if (!p || !p->info.trained)
        return sb_fail(store->ctx, SB_BAD_ARG,
                       "there is no trained parameter '%s'", name);
    const sb_tensor *t = &p->kept[SB_STORE_VALUE].t;
    if (value->dtype != t->dtype || value->rank != t->rank ||
        memcmp(value->dims, t->dims, (size_t)t->rank * sizeof t->dims[0]) != 0)
        return sb_fail(store->ctx, SB_BAD_DATA, "%s '%s': got %s, want %s",
                       what, name, sb_tensor_describe(value, got, sizeof got),
                       sb_tensor_describe(t, want, sizeof want));
    *out = p;
    return SB_OK;
}

void sb_parameter_set(sb_parameter *p, sb_store_kind kind, const void *data)
{
    sb_state *s = &p->kept[kind];

    memcpy(s->t.data, data, sb_tensor_bytes(&s->t));
    s->version++;
}

/* ---- memory ------------------------------------------------------------- */

/* Zeros in the shape of the value. */
static sb_status store_room(sb_parameter *p, sb_ctx *ctx, sb_store_kind kind)
{
    const sb_tensor *like = &p->kept[SB_STORE_VALUE].t;
    sb_state *s = &p->kept[kind];

    s->t = sb_tensor_make(SB_DTYPE_F32, like->rank, like->dims);
    return sb_tensor_alloc(ctx, &s->t);
}

static sb_status store_rooms(sb_parameter *p, sb_ctx *ctx,
                             const sb_learn_options *opt)
{
    bool statistic = p->info.role == SB_PARAMETER_ROLE_STATISTIC;
    bool sgd = opt->optimizer == SB_OPTIMIZER_SGD;

    if (opt->ema_decay > 0) {
        SB_TRY(store_room(p, ctx, SB_STORE_AVERAGE));
        sb_parameter_set(p, SB_STORE_AVERAGE, p->kept[SB_STORE_VALUE].t.data);
    }
    if (statistic)
        return store_room(p, ctx, SB_STORE_NEXT);
    if (opt->accumulate > 1)
        SB_TRY(store_room(p, ctx, SB_STORE_MEAN));
    if (!sgd || opt->momentum > 0)
        SB_TRY(store_room(p, ctx, SB_STORE_MOMENTUM));
    return sgd ? SB_OK : store_room(p, ctx, SB_STORE_SQUARE);
}

/* Gradients are one piece of memory, so that ranks can add them up at once. */
static sb_status store_gradients(sb_store *store)
{
    const int64_t align = SB_ALIGN / (int64_t)sizeof(float);
    int64_t n = 0;

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            store->gradients = sb_tensor_make(SB_DTYPE_F32, 1, &n);
            SB_TRY(sb_tensor_alloc(store->ctx, &store->gradients));
        }
        n = 0;
        for (size_t i = 0; i < store->n; i++) {
            sb_parameter *p = &store->all[i];
            sb_tensor *t = &p->kept[SB_STORE_GRADIENT].t;
            const sb_tensor *like = &p->kept[SB_STORE_VALUE].t;

            if (!p->info.trained || p->info.role == SB_PARAMETER_ROLE_STATISTIC)
                continue;
            if (pass == 1) {
                *t = sb_tensor_make(SB_DTYPE_F32, like->rank, like->dims);
                t->buf = sb_buf_ref(store->gradients.buf);
                t->data = (float *)store->gradients.data + n;
            }
            n += (sb_tensor_count(like) + align - 1) / align * align;
        }
    }
    return SB_OK;
}

sb_status sb_store_alloc(sb_store *store, const sb_graph *graph,
                         const sb_learn_options *opt)
{
    for (size_t i = 0; i < store->n; i++) {
        sb_parameter *p = &store->all[i];
        sb_tensor *value = &p->kept[SB_STORE_VALUE].t;
        sb_value_id v = sb_graph_find_value(graph, p->info.name);
        const sb_tensor *from = &sb_graph_value(graph, v)->constant;

        value->data = NULL;
        if (p->info.trained)
            SB_TRY(sb_tensor_clone(store->ctx, from, value));
        else
            *value = sb_tensor_share(from); /* never written */
        if (p->info.trained)
            SB_TRY(store_rooms(p, store->ctx, opt));
        p->info.value = value;
        if (sb_parameter_has(p, SB_STORE_AVERAGE))
            p->info.average = &p->kept[SB_STORE_AVERAGE].t;
    }
    return store_gradients(store);
}

/* ---- graphs ------------------------------------------------------------- */

/* Does a node read the statistic that says it goes by the batch? */
static bool store_in_training(const sb_graph *g, sb_value_id v)
{
    const sb_value *value = sb_graph_value(g, v);

    for (uint32_t u = 0; u < value->n_uses; u++)
        if (sb_node_int(sb_graph_node(g, value->uses[u].node), "training_mode",
                        0) != 0)
            return true;
    return false;
}

sb_status sb_store_lift(const sb_store *store, sb_graph *graph,
                        sb_learn_norm norm)
{
    for (size_t i = 0; i < store->n; i++) {
        const sb_parameter_info *info = &store->all[i].info;
        sb_value_id v = sb_graph_find_value(graph, info->name);
        if (info->trained &&
            (info->role != SB_PARAMETER_ROLE_STATISTIC ||
             norm == SB_LEARN_NORM_BATCH ||
             (norm == SB_LEARN_NORM_MODEL && store_in_training(graph, v))))
            SB_TRY(sb_graph_add_input(graph, v));
    }
    return SB_OK;
}

sb_status sb_store_overlay(const sb_store *store, sb_graph *graph,
                           sb_learn_values values)
{
    sb_store_kind kind =
        values == SB_LEARN_VALUES_AVERAGE ? SB_STORE_AVERAGE : SB_STORE_VALUE;

    for (size_t i = 0; i < store->n; i++) {
        const sb_parameter *p = &store->all[i];
        sb_value_id v = sb_graph_find_value(graph, p->info.name);
        sb_tensor copy;
        if (!p->info.trained || v == SB_NONE)
            continue;
        SB_TRY(sb_tensor_clone(store->ctx, &p->kept[kind].t, &copy));
        sb_status status = sb_graph_set_constant(graph, v, &copy);
        sb_tensor_drop(&copy);
        SB_TRY(status);
    }
    return SB_OK;
}
