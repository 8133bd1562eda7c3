/* Elements of parameters that stay zero, whatever the optimizer does. */
#include <string.h>

#include "learn/learner.h"

static void mask_elements(sb_parameter *p, sb_store_kind kind)
{
    float *v = p->kept[kind].t.data;
    const float *mask = p->kept[SB_STORE_MASK].t.data;
    int64_t n = sb_tensor_count(&p->kept[SB_STORE_MASK].t);

    if (!v)
        return;
    for (int64_t i = 0; i < n; i++)
        v[i] = mask[i] != 0 ? v[i] : 0.0f;
    p->kept[kind].version++;
}

/* Moments as well, so that an element that is free again starts anew. */
void sb_parameter_apply_mask(sb_parameter *p)
{
    static const sb_store_kind kinds[] = {SB_STORE_VALUE, SB_STORE_MEAN,
                                          SB_STORE_MOMENTUM, SB_STORE_SQUARE,
                                          SB_STORE_AVERAGE};

    for (size_t i = 0;
         sb_parameter_has(p, SB_STORE_MASK) && i < SB_COUNT(kinds); i++)
        mask_elements(p, kinds[i]);
}

sb_status sb_learner_set_mask(sb_learner *l, const char *name,
                              const sb_tensor *mask)
{
    sb_parameter *p = NULL;

    SB_TRY(sb_store_get_trained(&l->store, name, "the mask of parameter", mask,
                                &p));
    const sb_tensor *t = &p->kept[SB_STORE_VALUE].t;
    if (!sb_parameter_has(p, SB_STORE_MASK)) {
        sb_tensor *own = &p->kept[SB_STORE_MASK].t;

        *own = sb_tensor_make(SB_DTYPE_F32, t->rank, t->dims);
        SB_TRY(sb_tensor_alloc_raw(l->ctx, own));
    }
    sb_parameter_set(p, SB_STORE_MASK, mask->data);
    sb_parameter_apply_mask(p);
    return SB_OK;
}

const sb_tensor *sb_learner_mask(const sb_learner *l, const char *name)
{
    const sb_parameter *p = sb_store_get(&l->store, name);

    return p && sb_parameter_has(p, SB_STORE_MASK) ? &p->kept[SB_STORE_MASK].t
                                                   : NULL;
}
