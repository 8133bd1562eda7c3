/* FusedAttention: softmax(scale q k' + mask) v, each operand taken where its
 * projection left it, so that no head is ever transposed in memory.
 *
 * Comes from the pass fuse_attention.  How an operand lies is given by a code:
 *     0  [B, heads, S, size]
 *     1  [B, S, heads, size]
 *     2  [B, S, parts, heads, size], with the number of the part */
#include "ops/attention/attention_util.h"

typedef struct {
    sb_ints layouts; /* of q, k, v, and of the result (0 or 1) */
    sb_ints parts;   /* of q, k, v; only read for layout 2 */
    float scale;
} fused_attention_attrs;

static const sb_attr_def attrs[] = {
    {"layouts", SB_ATTR_INTS, offsetof(fused_attention_attrs, layouts),
     .required = true},
    {"parts", SB_ATTR_INTS, offsetof(fused_attention_attrs, parts),
     .required = true},
    {"scale", SB_ATTR_FLOAT, offsetof(fused_attention_attrs, scale), .f = 1},
    {0},
};

/* What is known of one operand. */
typedef struct {
    sb_dim batch, heads, len, size;
} operand;

static operand operand_of(const sb_shape *s, int64_t layout)
{
    const sb_dim *d = s->dim;

    if (layout == 0)
        return (operand){d[0], d[1], d[2], d[3]};
    if (layout == 1)
        return (operand){d[0], d[2], d[1], d[3]};
    return (operand){d[0], d[3], d[1], d[4]};
}

static bool layouts_ok(const fused_attention_attrs *a)
{
    if (a->layouts.n != 4 || a->parts.n != 3)
        return false;
    for (size_t i = 0; i < 4; i++)
        if (a->layouts.v[i] < 0 || a->layouts.v[i] > (i < 3 ? 2 : 1))
            return false;
    return true;
}

static sb_status fused_attention_infer(sb_infer *in)
{
    const fused_attention_attrs *a = in->attrs;
    operand x[3];

    if (!layouts_ok(a))
        return sb_infer_fail(in, "layouts or parts are not what they must be");
    for (uint32_t i = 0; i < 3; i++) {
        const sb_shape *s = &in->in[i]->type.shape;
        if (s->rank != (a->layouts.v[i] == 2 ? 5 : 4))
            return sb_infer_fail(in, "input %u has rank %d", i, s->rank);
        x[i] = operand_of(s, a->layouts.v[i]);
    }
    sb_shape y = {4, {x[0].batch, x[0].heads, x[0].len, x[2].size}};
    if (a->layouts.v[3] == 1) {
        y.dim[1] = x[0].len;
        y.dim[2] = x[0].heads;
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &y);
    return SB_OK;
}

typedef struct {
    sb_attention att;
    int64_t start[3];     /* of q, k, v in their tensors */
    int64_t mask_step[4]; /* strides of the mask by (b, h, query, key) */
} fused_attention_state;

static sb_heads heads_of(const sb_tensor *t, int64_t layout)
{
    const int64_t *d = t->dims;

    if (layout == 0)
        return (sb_heads){d[1] * d[2] * d[3], d[2] * d[3], d[3]};
    if (layout == 1)
        return (sb_heads){d[1] * d[2] * d[3], d[3], d[2] * d[3]};
    return (sb_heads){d[1] * d[2] * d[3] * d[4], d[4], d[2] * d[3] * d[4]};
}

static sb_status plan_mask(sb_kernel *k, fused_attention_state *s)
{
    const sb_tensor *mask = sb_kernel_in(k, 3);
    const sb_attention *a = &s->att;
    int64_t want[4] = {a->n_batch, a->q_heads, a->q_len, a->k_len}, step = 1;

    for (int d = 3, o = mask ? mask->rank - 1 : -1; o >= 0; d--, o--) {
        int64_t n = mask->dims[o];
        if (d < 0 || (n != 1 && n != want[d]))
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "dimension %d of the mask is %lld", o,
                                  (long long)n);
        s->mask_step[d] = n == 1 ? 0 : step;
        step *= n;
    }
    return SB_OK;
}

static sb_status fused_attention_prepare(sb_kernel *k)
{
    const fused_attention_attrs *t = k->attrs;
    fused_attention_state *s = sb_alloc(k->ctx, 1, sizeof *s);
    operand x[3];
    sb_heads h[3];

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    for (int i = 0; i < 3; i++) {
        sb_shape shape = sb_shape_of(k->in[i]);
        int64_t layout = t->layouts.v[i], part = t->parts.v[i];
        x[i] = operand_of(&shape, layout);
        h[i] = heads_of(k->in[i], layout);
        if (layout == 2 && (part < 0 || part >= shape.dim[2]))
            return sb_kernel_fail(k, SB_BAD_MODEL, "input %d has no part %lld",
                                  i, (long long)part);
        s->start[i] = layout == 2 ? part * x[i].heads * x[i].size : 0;
    }
    if (x[1].batch != x[0].batch || x[2].batch != x[0].batch ||
        x[1].heads != x[0].heads || x[2].heads != x[0].heads ||
        x[1].size != x[0].size || x[2].len != x[1].len)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the shapes of q, k and v do not fit");
    s->att = (sb_attention){.n_batch = x[0].batch,
                            .q_heads = x[0].heads,
                            .kv_heads = x[0].heads,
                            .q_len = x[0].len,
                            .k_len = x[1].len,
                            .head_size = x[0].size,
                            .v_head_size = x[2].size,
                            .q = h[0],
                            .k = h[1],
                            .v = h[2],
                            .y = heads_of(k->out[0], t->layouts.v[3]),
                            .scale = t->scale};
    SB_TRY(plan_mask(k, s));
    SB_TRY(sb_attention_plan(k, &s->att));
    k->scratch_size = s->att.scratch;
    return SB_OK;
}

static void add_mask(const void *arg, int64_t b, int64_t h, int64_t query,
                     float *row, int64_t n)
{
    const sb_kernel *k = arg;
    const fused_attention_state *s = k->state;
    const float *mask = (const float *)k->in[3]->data + b * s->mask_step[0] +
                        h * s->mask_step[1] + query * s->mask_step[2];

    for (int64_t i = 0; i < n; i++)
        row[i] += mask[i * s->mask_step[3]];
}

static sb_status fused_attention_forward(sb_kernel *k)
{
    const fused_attention_state *s = k->state;
    sb_attention_args args = {
        .q = (const float *)k->in[0]->data + s->start[0],
        .k = (const float *)k->in[1]->data + s->start[1],
        .v = (const float *)k->in[2]->data + s->start[2],
        .y = k->out[0]->data,
        .scratch = k->scratch,
        .bias = sb_kernel_in(k, 3) ? add_mask : NULL,
        .bias_arg = k,
    };

    return sb_attention_run(k->ctx, &s->att, &args);
}

static void fused_attention_release(sb_kernel *k)
{
    fused_attention_state *s = k->state;

    if (s)
        sb_attention_free(k->ctx, &s->att);
    sb_free(k->ctx, s);
}

static double fused_attention_macs(const sb_kernel *k)
{
    const fused_attention_attrs *t = k->attrs;
    sb_shape q = sb_shape_of(k->in[0]), key = sb_shape_of(k->in[1]);
    operand x = operand_of(&q, t->layouts.v[0]);
    operand y = operand_of(&key, t->layouts.v[1]);

    return 2.0 * (double)x.batch * (double)x.heads * (double)x.len *
           (double)y.len * (double)x.size;
}

const sb_op_def sb_op_fused_attention = {
    .name = "FusedAttention",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 3,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(fused_attention_attrs),
    .attrs = attrs,
    .infer = fused_attention_infer,
    .prepare = fused_attention_prepare,
    .forward = fused_attention_forward,
    .release = fused_attention_release,
    .macs = fused_attention_macs,
};
