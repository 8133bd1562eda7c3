/* Convolution by oneDNN: in the layouts as they are, by its direct kernels; the
 * same with a sum of our own behind, for kernels that cannot add after an
 * activation, or with biases; and in NCHW order, where it has only its slower
 * kernels. */
#include "ops/conv/conv.h"

#include <string.h>

#include "base/simd.h"
#include "base/threads.h"

static void copy_sizes(int64_t *to, const int64_t *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = from[i];
}

static sb_dnn_layout dnn_layout(const sb_tensor *t)
{
    return t->layout == SB_LAYOUT_CHANNELS_LAST ? t->dims[1] : SB_DNN_PLAIN;
}

sb_dnn_conv_desc sb_conv_desc(const sb_kernel *k, const sb_conv *c)
{
    sb_dnn_conv_desc d = {
        .what = sb_node_label(k->graph, k->node),
        .transposed = c->transposed,
        .n_spatial = c->w.n,
        .n_batch = c->n_batch,
        .in_channels = c->in_channels,
        .out_channels = c->out_channels,
        .groups = c->groups,
        .src_layout = dnn_layout(k->in[0]),
        .dst_layout = dnn_layout(k->out[0]),
        .direct = !c->transposed,
        .has_bias = sb_kernel_in(k, 2) != NULL,
    };

    copy_sizes(d.in, c->w.in, c->w.n);
    copy_sizes(d.out, c->w.out, c->w.n);
    copy_sizes(d.kernel, c->w.kernel, c->w.n);
    copy_sizes(d.stride, c->w.stride, c->w.n);
    copy_sizes(d.dilation, c->w.dilation, c->w.n);
    copy_sizes(d.pad_lo, c->w.pad_lo, c->w.n);
    return d;
}

static sb_dnn_conv_desc fused_desc(const sb_kernel *k, const sb_conv_state *s)
{
    sb_dnn_conv_desc d = sb_conv_desc(k, &s->conv);

    d.n_posts = s->posts.n;
    for (size_t i = 0; i < d.n_posts; i++)
        d.posts[i] = s->posts.post[i];
    return d;
}

/* ---- oneDNN does all ---------------------------------------------------- */

static sb_status onednn_make(const sb_kernel *k, const sb_dnn_conv_desc *d,
                             sb_conv_state *s)
{
    sb_dnn_conv *conv = NULL;

    SB_TRY(sb_dnn_conv_create(k->ctx, d, &conv));
    s->object = conv;
    return SB_OK;
}

static sb_status onednn_create(const sb_kernel *k, sb_conv_state *s)
{
    sb_dnn_conv_desc d = fused_desc(k, s);

    return onednn_make(k, &d, s);
}

/* Its kernels that are not direct want NCHW order. */
static sb_status onednn_plain_create(const sb_kernel *k, sb_conv_state *s)
{
    sb_dnn_conv_desc d = fused_desc(k, s);

    d.direct = false;
    d.src_layout = d.dst_layout = SB_DNN_PLAIN;
    return onednn_make(k, &d, s);
}

static const sb_dnn_packing *onednn_packing(const void *object)
{
    return sb_dnn_conv_packing(object);
}

static sb_status onednn_pack(void *object, const float *weights, void *packed,
                             void *scratch)
{
    return sb_dnn_conv_pack(object, weights, packed, scratch);
}

static size_t onednn_scratch(const void *object)
{
    return sb_dnn_conv_scratch(object);
}

static sb_status onednn_run(const sb_conv_state *s, const sb_conv_args *a)
{
    if (a->z && a->z != a->y)
        memcpy(a->y, a->z, a->n_out * sizeof *a->y);
    return sb_dnn_conv_run(s->object, a->x, a->w, a->b, a->y, a->scratch,
                           a->tap);
}

static void onednn_free(void *object)
{
    sb_dnn_conv_free(object);
}

const sb_conv_impl sb_conv_onednn = {
    .name = "onednn",
    .create = onednn_create,
    .packing = onednn_packing,
    .pack = onednn_pack,
    .scratch = onednn_scratch,
    .run = onednn_run,
    .free = onednn_free,
};

const sb_conv_impl sb_conv_onednn_plain = {
    .name = "onednn_plain",
    .order = SB_CONV_PLAIN,
    .create = onednn_plain_create,
    .packing = onednn_packing,
    .pack = onednn_pack,
    .scratch = onednn_scratch,
    .run = onednn_run,
    .free = onednn_free,
};

/* ---- biases are ours ---------------------------------------------------- */

/* What oneDNN does for biases behind a transposed convolution takes several
 * times as long as the convolution. */
typedef struct bias_job {
    const float *b;
    float *y;
    size_t channels;
} bias_job;

static bool biased_suits(const sb_kernel *k, const sb_conv *c)
{
    return c->transposed && sb_kernel_in(k, 2) && !sb_kernel_in(k, 3) &&
           k->out[0]->layout == SB_LAYOUT_CHANNELS_LAST;
}

static sb_status biased_create(const sb_kernel *k, sb_conv_state *s)
{
    sb_dnn_conv_desc d = fused_desc(k, s);

    d.has_bias = false;
    return d.n_posts > 0 ? SB_UNSUPPORTED : onednn_make(k, &d, s);
}

/* Items are places, with all their channels. */
SB_HOT static void biased_add(void *arg, size_t begin, size_t end)
{
    const bias_job *j = arg;

    for (size_t i = begin; i < end; i++) {
        float *y = j->y + i * j->channels;

        SB_SIMD
        for (size_t c = 0; c < j->channels; c++)
            y[c] += j->b[c];
    }
}

static sb_status biased_run(const sb_conv_state *s, const sb_conv_args *a)
{
    bias_job job = {a->b, a->y, (size_t)s->conv.out_channels};

    SB_TRY(
        sb_dnn_conv_run(s->object, a->x, a->w, NULL, a->y, a->scratch, NULL));
    sb_parallel_for(a->ctx, a->n_out / job.channels, 16384 / job.channels + 1,
                    biased_add, &job);
    return SB_OK;
}

const sb_conv_impl sb_conv_onednn_biased = {
    .name = "onednn_biased",
    .suits = biased_suits,
    .create = biased_create,
    .packing = onednn_packing,
    .pack = onednn_pack,
    .scratch = onednn_scratch,
    .run = biased_run,
    .free = onednn_free,
};

/* ---- the sum is ours ---------------------------------------------------- */

/* oneDNN writes to scratch memory, because the addend may lie in y. */
typedef struct late {
    sb_ctx *ctx;
    sb_dnn_conv *conv;
    sb_epilogue rest; /* the sum and what follows */
    size_t at_y, y_bytes;
} late;

static void late_free(void *object)
{
    late *l = object;

    if (!l)
        return;
    sb_dnn_conv_free(l->conv);
    sb_free(l->ctx, l);
}

static sb_status late_create(const sb_kernel *k, sb_conv_state *s)
{
    sb_dnn_conv_desc d = fused_desc(k, s);
    size_t n = d.n_posts, at = 0;

    while (at < n && d.posts[at].kind != SB_DNN_SUM)
        at++;
    if (at == 0 || at == n)
        return SB_UNSUPPORTED;
    late *l = sb_alloc(k->ctx, 1, sizeof *l);
    if (!l)
        return SB_NO_MEMORY;
    l->ctx = k->ctx;
    l->y_bytes = sb_tensor_bytes(k->out[0]);
    l->rest.n = n - at;
    for (size_t i = 0; i < l->rest.n; i++)
        l->rest.post[i] = d.posts[at + i];
    d.n_posts = at;
    sb_status status = sb_dnn_conv_create(k->ctx, &d, &l->conv);
    if (status != SB_OK) {
        late_free(l);
        return status;
    }
    l->at_y = sb_dnn_conv_scratch(l->conv);
    l->at_y = (l->at_y + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    s->object = l;
    return SB_OK;
}

static const sb_dnn_packing *late_packing(const void *object)
{
    return sb_dnn_conv_packing(((const late *)object)->conv);
}

static sb_status late_pack(void *object, const float *weights, void *packed,
                           void *scratch)
{
    return sb_dnn_conv_pack(((late *)object)->conv, weights, packed, scratch);
}

static size_t late_scratch(const void *object)
{
    const late *l = object;

    return l->at_y + l->y_bytes;
}

static sb_status late_run(const sb_conv_state *s, const sb_conv_args *a)
{
    const late *l = s->object;
    float *own = (float *)(void *)((char *)a->scratch + l->at_y);

    SB_TRY(sb_dnn_conv_run(l->conv, a->x, a->w, a->b, own, a->scratch, NULL));
    sb_epilogue_apply(a->ctx, &l->rest, own, a->z, a->n_out);
    memcpy(a->y, own, a->n_out * sizeof *a->y);
    return SB_OK;
}

const sb_conv_impl sb_conv_onednn_late = {
    .name = "onednn_late",
    .create = late_create,
    .packing = late_packing,
    .pack = late_pack,
    .scratch = late_scratch,
    .run = late_run,
    .free = late_free,
};
