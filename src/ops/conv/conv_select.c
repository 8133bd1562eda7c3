/* Which implementation computes a convolution, and what all of them share:
 * copies in the order that it wants, packed weights, running, release. */
#include "ops/conv/conv.h"

/* The most wanted first.  The last takes everything. */
static const sb_conv_impl *const impls[] = {
    &sb_conv_winograd,      &sb_conv_1x1_padded,   &sb_conv_columns,
    &sb_conv_onednn_biased, &sb_conv_onednn,       &sb_conv_onednn_late,
    &sb_conv_im2col,        &sb_conv_onednn_plain, &sb_conv_naive,
};

void sb_conv_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const sb_tensor *x = k->in[0], *y = k->out[0];

    if (x->rank < 3 || x->rank > 2 + SB_DNN_MAX_SPATIAL ||
        sb_tensor_count(x) == 0 || sb_tensor_count(y) == 0)
        return;
    in[0] = SB_LAYOUT_CHANNELS_LAST;
    out[0] = SB_LAYOUT_CHANNELS_LAST;
}

/* ---- choice ------------------------------------------------------------- */

/* Something to compute, in as many dimensions as oneDNN knows. */
static bool conv_is_regular(const sb_conv *c)
{
    return c->n_batch > 0 && c->in_channels > 0 && c->out_channels > 0 &&
           c->w.out_count > 0 && c->w.in_count > 0 &&
           c->w.n <= SB_DNN_MAX_SPATIAL;
}

static sb_status conv_choose(const sb_kernel *k, sb_conv_state *s)
{
    size_t last = SB_COUNT(impls) - 1;
    size_t i = conv_is_regular(&s->conv) ? 0 : last;

    for (;; i++) {
        const sb_conv_impl *impl = impls[i];
        if (impl->suits && !impl->suits(k, &s->conv))
            continue;
        sb_status status = impl->create ? impl->create(k, s) : SB_OK;
        if (status == SB_OK)
            s->impl = impl;
        if (status != SB_UNSUPPORTED || i == last)
            return status;
    }
}

static size_t round_up(size_t n)
{
    return (n + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
}

/* Copies in the order that the implementation wants, if x and y have another;
 * and where it adds afterwards, as the addend may lie where it writes. */
static void plan_copies(sb_kernel *k, sb_conv_state *s)
{
    if (s->impl->order == SB_CONV_AS_GIVEN)
        return;
    s->copies = s->impl->order == SB_CONV_PLAIN ? SB_LAYOUT_PLAIN
                                                : SB_LAYOUT_CHANNELS_LAST;
    s->around = (s->impl->overwrites && sb_kernel_in(k, 3)) ||
                k->in[0]->layout != s->copies || k->out[0]->layout != s->copies;
    if (!s->around)
        return;
    s->at_x = round_up(k->scratch_size);
    s->at_y = round_up(s->at_x + sb_tensor_bytes(k->in[0]));
    s->at_z = round_up(s->at_y + sb_tensor_bytes(k->out[0]));
    k->scratch_size = s->at_z + sb_tensor_bytes(k->out[0]);
}

static sb_status prepare_weights(sb_kernel *k, sb_conv_state *s)
{
    const sb_dnn_packing *how =
        s->impl->packing ? s->impl->packing(s->object) : NULL;

    s->weights =
        (sb_packed_input){.input = 1, .object = s->object, .fn = s->impl->pack};
    if (how)
        SB_TRY(sb_packed_input_prepare(k, &s->weights, how));
    if (k->scratch_size < s->weights.scratch)
        k->scratch_size = s->weights.scratch;
    return SB_OK;
}

sb_status sb_conv_prepare(sb_kernel *k, const sb_conv *conv,
                          const sb_dnn_post *posts, size_t n_posts)
{
    sb_conv_state *s = sb_alloc(k->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    s->conv = *conv;
    k->state = s;
    s->posts.n = n_posts;
    for (size_t i = 0; i < n_posts; i++)
        s->posts.post[i] = posts[i];
    SB_TRY(conv_choose(k, s));
    k->scratch_size = s->impl->scratch ? s->impl->scratch(s->object) : 0;
    SB_TRY(prepare_weights(k, s));
    plan_copies(k, s);
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

/* On copies, and back. */
static sb_status run_around(sb_kernel *k, sb_conv_args *a)
{
    const sb_conv_state *s = k->state;
    const sb_tensor *addend = sb_kernel_in(k, 3);
    sb_tensor x = *k->in[0], y = *k->out[0];
    char *scratch = k->scratch;

    x.data = scratch + s->at_x;
    y.data = scratch + s->at_y;
    x.layout = y.layout = s->copies;
    sb_tensor_reorder(k->ctx, k->in[0], &x);
    if (addend) {
        sb_tensor z = y;
        z.data = scratch + s->at_z;
        sb_tensor_reorder(k->ctx, addend, &z);
        a->z = z.data;
    }
    a->x = x.data;
    a->y = y.data;
    a->tap = NULL;
    SB_TRY(s->impl->run(s, a));
    sb_tensor_reorder(k->ctx, &y, k->out[0]);
    return SB_OK;
}

sb_status sb_conv_forward(sb_kernel *k)
{
    const sb_conv_state *s = k->state;
    const sb_tensor *b = sb_kernel_in(k, 2), *z = sb_kernel_in(k, 3);
    sb_conv_args a = {.ctx = k->ctx,
                      .x = k->in[0]->data,
                      .b = b ? b->data : NULL,
                      .z = z ? z->data : NULL,
                      .y = k->out[0]->data,
                      .n_out = (size_t)sb_tensor_count(k->out[0]),
                      .scratch = k->scratch,
                      .tap = k->tap};

    if (a.n_out == 0)
        return SB_OK;
    SB_TRY(sb_packed_input_get(k, &s->weights, k->scratch, &a.w));
    return s->around ? run_around(k, &a) : s->impl->run(s, &a);
}

void sb_conv_release(sb_kernel *k)
{
    sb_conv_state *s = k->state;

    if (s && s->impl && s->impl->free)
        s->impl->free(s->object);
    sb_free(k->ctx, s);
}

const char *sb_conv_impl_name(const sb_kernel *k)
{
    const sb_conv_state *s = k->state;

    return s->impl->name;
}

double sb_conv_macs(const sb_kernel *k)
{
    const sb_tensor *x = k->in[0], *w = k->in[1], *y = k->out[0];
    bool transposed = sb_node_is(k->node, "ConvTranspose");
    const sb_tensor *moved = transposed ? x : y;
    double macs = 1;

    /* Every element of the side that the window moves over meets all the
     * weights of its channel. */
    for (int i = 0; i < moved->rank; i++)
        macs *= (double)moved->dims[i];
    for (int i = 1; i < w->rank; i++)
        macs *= (double)w->dims[i];
    return macs;
}
