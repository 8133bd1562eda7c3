/* Observe (ours): y = x, and the observer of the run sees x.
 *
 * Stands on the edges whose values calibration has to see.  It is a view, so
 * it costs nothing itself; since no pass knows it, nothing is fused across it,
 * and everything else is fused as in any run. */
#include <string.h>

#include "ops/infer_util.h"

typedef struct observe_attrs {
    int64_t id;
} observe_attrs;

static const sb_attr_def attrs[] = {
    {"id", SB_ATTR_INT, offsetof(observe_attrs, id), .required = true},
    {0},
};

static sb_status observe_forward(sb_kernel *k)
{
    const observe_attrs *a = k->attrs;

    SB_TRY(k->host->observe(k, a->id, k->in[0]));
    if (k->out[0]->data != k->in[0]->data)
        memcpy(k->out[0]->data, k->in[0]->data, sb_tensor_bytes(k->in[0]));
    return SB_OK;
}

static sb_status observe_tap(sb_kernel *k, sb_tap *tap)
{
    const observe_attrs *a = k->attrs;

    return k->host->tap(k, a->id, k->in[0], tap);
}

const sb_op_def sb_op_observe = {
    .name = "Observe",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_VIEW | SB_OP_ELEMENTWISE | SB_OP_IMPURE,
    .attrs_size = sizeof(observe_attrs),
    .attrs = attrs,
    .infer = sb_infer_same,
    .forward = observe_forward,
    .tap = observe_tap,
};
