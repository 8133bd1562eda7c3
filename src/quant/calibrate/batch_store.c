/* Batches of inputs, kept. */
#include "quant/calibrate/batch_store.h"

#include "tensor/spill.h"

struct sb_batch_store {
    sb_ctx *ctx;
    sb_spill *spill;
    size_t n_inputs;
    sb_spilled_tensor *kept; /* [n_batches][n_inputs] */
    size_t n_batches, cap;
    sb_tensor *loaded;       /* [n_inputs] */
    const sb_tensor **given; /* [n_inputs] */
};

sb_status sb_batch_store_create(sb_ctx *ctx, size_t n, size_t limit,
                                sb_batch_store **out)
{
    sb_batch_store *s = sb_alloc(ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    s->ctx = ctx;
    s->n_inputs = n;
    s->loaded = sb_alloc(ctx, n + 1, sizeof *s->loaded);
    s->given = sb_alloc(ctx, n + 1, sizeof *s->given);
    sb_status status = s->loaded && s->given ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK)
        status = sb_spill_create(ctx, limit, &s->spill);
    if (status == SB_OK)
        *out = s;
    else
        sb_batch_store_free(s);
    return status;
}

void sb_batch_store_share(sb_batch_store *s, size_t *used)
{
    sb_spill_share(s->spill, used);
}

static void batch_store_unload(sb_batch_store *s)
{
    for (size_t i = 0; i < s->n_inputs; i++) {
        if (s->given[i])
            sb_tensor_drop(&s->loaded[i]);
        s->given[i] = NULL;
    }
}

static void batch_store_drop(sb_batch_store *s, size_t batch)
{
    for (size_t i = 0; i < s->n_inputs; i++)
        sb_spill_drop(s->spill, &s->kept[batch * s->n_inputs + i]);
}

void sb_batch_store_free(sb_batch_store *s)
{
    if (!s)
        return;
    if (s->loaded && s->given)
        batch_store_unload(s);
    for (size_t i = 0; i < s->n_batches; i++)
        batch_store_drop(s, i);
    sb_spill_free(s->spill);
    sb_free(s->ctx, s->kept);
    sb_free(s->ctx, s->loaded);
    sb_free(s->ctx, s->given);
    sb_free(s->ctx, s);
}

sb_status sb_batch_store_take(sb_batch_store *s, const sb_tensor *const *inputs)
{
    sb_status status = SB_OK;
    size_t want = (s->n_batches + 1) * s->n_inputs;

    SB_TRY(sb_grow(s->ctx, &s->kept, &s->cap, want, sizeof *s->kept));
    sb_spilled_tensor *kept = s->kept + s->n_batches * s->n_inputs;
    for (size_t i = 0; i < s->n_inputs; i++)
        kept[i] = (sb_spilled_tensor){0};
    for (size_t i = 0; i < s->n_inputs && status == SB_OK; i++)
        if (inputs[i])
            status = sb_spill_put(s->spill, inputs[i], &kept[i]);
    if (status == SB_OK)
        s->n_batches++;
    else /* as if it had not come */
        batch_store_drop(s, s->n_batches);
    return status;
}

size_t sb_batch_store_count(const sb_batch_store *s)
{
    return s ? s->n_batches : 0;
}

int64_t sb_batch_store_samples(const sb_batch_store *s, size_t batch)
{
    const sb_spilled_tensor *kept = s->kept + batch * s->n_inputs;

    for (size_t i = 0; i < s->n_inputs; i++)
        if (kept[i].there && kept[i].t.rank > 0)
            return kept[i].t.dims[0];
    return 1;
}

sb_status sb_batch_store_get(sb_batch_store *s, size_t batch,
                             const sb_tensor *const **inputs)
{
    const sb_spilled_tensor *kept = s->kept + batch * s->n_inputs;

    batch_store_unload(s);
    for (size_t i = 0; i < s->n_inputs; i++) {
        if (!kept[i].there)
            continue;
        SB_TRY(sb_spill_get(s->spill, &kept[i], &s->loaded[i]));
        s->given[i] = &s->loaded[i];
    }
    *inputs = s->given;
    return SB_OK;
}
