/* Convolution in plain loops, of any rank, and the choice between it, oneDNN
 * and the others.
 *
 * The loops are only for what all others refuse (more than three spatial
 * dimensions, weights that are computed), so clarity comes before speed; they
 * are threaded all the same. */
#include "ops/conv_attrs.h"

#include <assert.h>
#include <string.h>

#include "base/threads.h"
#include "ops/conv_frame.h"
#include "ops/conv_patches.h"
#include "ops/winograd.h"

typedef struct loops_job {
    const sb_conv *conv;
    const float *x, *w, *b;
    float *y;
} loops_job;

/* Advances a position inside the box `size`; false after the last. */
static bool next_place(int n, const int64_t *size, int64_t *at)
{
    for (int i = n - 1; i >= 0; i--) {
        if (++at[i] < size[i])
            return true;
        at[i] = 0;
    }
    return false;
}

/* sum over the taps of x[place(tap)] * w[tap] for one input channel. */
static double window_dot(const sb_window *win, const int64_t *at,
                         const float *x, const float *w)
{
    int64_t tap[SB_MAX_SPATIAL] = {0};
    int64_t index = 0;
    double sum = 0;

    do {
        int64_t from = 0;
        bool inside = true;
        for (int i = 0; i < win->n && inside; i++) {
            int64_t p = at[i] * win->stride[i] - win->pad_lo[i] +
                        tap[i] * win->dilation[i];
            inside = p >= 0 && p < win->in[i];
            from = from * win->in[i] + p;
        }
        if (inside)
            sum += (double)x[from] * (double)w[index];
        index++;
    } while (next_place(win->n, win->kernel, tap));
    return sum;
}

/* Transposed: y[at] collects every x[p], w[tap] with
 * p * stride - pad + tap * dilation = at. */
static double window_gather(const sb_window *win, const int64_t *at,
                            const float *x, const float *w)
{
    int64_t tap[SB_MAX_SPATIAL] = {0};
    int64_t index = 0;
    double sum = 0;

    do {
        int64_t from = 0;
        bool inside = true;
        for (int i = 0; i < win->n && inside; i++) {
            int64_t p = at[i] + win->pad_lo[i] - tap[i] * win->dilation[i];
            inside = p >= 0 && p % win->stride[i] == 0 &&
                     p / win->stride[i] < win->in[i];
            from = from * win->in[i] + p / win->stride[i];
        }
        if (inside)
            sum += (double)x[from] * (double)w[index];
        index++;
    } while (next_place(win->n, win->kernel, tap));
    return sum;
}

/* One (image, output channel). */
static void loops_plane(const loops_job *job, int64_t item)
{
    const sb_conv *c = job->conv;
    const sb_window *win = &c->w;
    int64_t in = c->in_channels / c->groups, out = c->out_channels / c->groups;
    int64_t n = item / c->out_channels, m = item % c->out_channels;
    int64_t g = m / out;
    const float *x = job->x + (n * c->in_channels + g * in) * win->in_count;
    float *y = job->y + item * win->out_count;
    int64_t at[SB_MAX_SPATIAL] = {0};

    for (int64_t o = 0; o < win->out_count; o++) {
        double sum = job->b ? (double)job->b[m] : 0;
        for (int64_t i = 0; i < in; i++) {
            const float *plane = x + i * win->in_count;
            if (c->transposed)
                sum += window_gather(win, at, plane,
                                     job->w + ((g * in + i) * out + m % out) *
                                                  win->taps);
            else
                sum += window_dot(win, at, plane,
                                  job->w + (m * in + i) * win->taps);
        }
        y[o] = (float)sum;
        (void)next_place(win->n, win->out, at);
    }
}

static void loops_range(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        loops_plane(arg, (int64_t)i);
}

/* y = conv(x, w) + b in plain loops, threaded over (image, channel). */
static void conv_loops(sb_ctx *ctx, const sb_conv *conv, const float *x,
                       const float *w, const float *b, float *y)
{
    loops_job job = {conv, x, w, b, y};

    if (conv->w.out_count > 0)
        sb_parallel_for(ctx, (size_t)(conv->n_batch * conv->out_channels), 1,
                        loops_range, &job);
}

/* ---- oneDNN or loops ---------------------------------------------------- */

static void copy_sizes(int64_t *to, const int64_t *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = from[i];
}

static sb_dnn_conv_desc conv_desc(const sb_kernel *k, const sb_conv *c)
{
    sb_dnn_conv_desc d = {
        .what = sb_node_label(k->graph, k->node),
        .transposed = c->transposed,
        .n_spatial = c->w.n,
        .n_batch = c->n_batch,
        .in_channels = c->in_channels,
        .out_channels = c->out_channels,
        .groups = c->groups,
        .direct = k->in[1]->data && !c->transposed,
        .has_bias = sb_kernel_in(k, 2) != NULL,
        .weights = k->in[1]->data,
    };

    copy_sizes(d.in, c->w.in, c->w.n);
    copy_sizes(d.out, c->w.out, c->w.n);
    copy_sizes(d.kernel, c->w.kernel, c->w.n);
    copy_sizes(d.stride, c->w.stride, c->w.n);
    copy_sizes(d.dilation, c->w.dilation, c->w.n);
    copy_sizes(d.pad_lo, c->w.pad_lo, c->w.n);
    return d;
}

void sb_conv_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const sb_tensor *x = k->in[0], *y = k->out[0];

    if (x->rank < 4 || x->rank > 2 + SB_DNN_MAX_SPATIAL || !k->in[1]->data ||
        sb_tensor_count(x) == 0 || sb_tensor_count(y) == 0)
        return;
    in[0] = SB_LAYOUT_CHANNELS_LAST;
    out[0] = SB_LAYOUT_CHANNELS_LAST;
}

static sb_dnn_layout dnn_layout(const sb_tensor *t)
{
    return t->layout == SB_LAYOUT_CHANNELS_LAST ? t->dims[1] : SB_DNN_PLAIN;
}

/* Copies in the order that the kernel wants, if x and y have another; and for
 * kernels that add afterwards, as the addend may lie where they write. */
static void make_copies(sb_kernel *k, sb_conv_state *s)
{
    bool addend = sb_kernel_in(k, 3) && !s->dnn;

    s->copies = s->patches ? SB_LAYOUT_CHANNELS_LAST : SB_LAYOUT_PLAIN;
    s->around = addend || k->in[0]->layout != s->copies ||
                k->out[0]->layout != s->copies;
    if (!s->around)
        return;
    s->at_x = (k->scratch_size + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    s->at_y = s->at_x + sb_tensor_bytes(k->in[0]);
    s->at_y = (s->at_y + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    s->at_z = s->at_y + sb_tensor_bytes(k->out[0]);
    s->at_z = (s->at_z + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    k->scratch_size = s->at_z + sb_tensor_bytes(k->out[0]);
}

static sb_status make_patches(sb_kernel *k, sb_conv_state *s)
{
    SB_TRY(sb_conv_patches_create(k->ctx, sb_node_label(k->graph, k->node),
                                  &s->conv, k->in[1]->data, &s->patches));
    k->scratch_size = sb_conv_patches_scratch(s->patches);
    k->packed |= 1u << 1;
    return SB_OK;
}

/* oneDNN has no direct kernel for these layouts: one of our own, or oneDNN's
 * others for plain order (the loops, if there is no `desc`). */
static sb_status conv_around(sb_kernel *k, sb_conv_state *s,
                             sb_dnn_conv_desc *desc)
{
    sb_status status = desc ? make_patches(k, s) : SB_UNSUPPORTED;

    if (desc && status == SB_UNSUPPORTED) {
        desc->direct = false;
        desc->src_layout = desc->dst_layout = SB_DNN_PLAIN;
        status = sb_dnn_conv_create(k->ctx, desc, &s->dnn);
        if (status == SB_OK)
            k->scratch_size = sb_dnn_conv_scratch(s->dnn);
    }
    if (status != SB_OK && status != SB_UNSUPPORTED)
        return status;
    make_copies(k, s);
    return SB_OK;
}

/* A kernel that cannot add after an activation: it writes to scratch memory,
 * because the addend may lie in y, and the sum is ours. */
static sb_status conv_late(sb_kernel *k, sb_conv_state *s,
                           const sb_dnn_conv_desc *full)
{
    sb_dnn_conv_desc desc = *full;
    size_t at = 0;

    while (at < desc.n_posts && desc.posts[at].kind != SB_DNN_SUM)
        at++;
    if (at == 0 || at == desc.n_posts)
        return SB_UNSUPPORTED;
    desc.n_posts = at;
    SB_TRY(sb_dnn_conv_create(k->ctx, &desc, &s->dnn));
    s->late = true;
    s->posts.n = full->n_posts - at;
    for (size_t i = 0; i < s->posts.n; i++)
        s->posts.post[i] = full->posts[at + i];
    s->at_y = sb_dnn_conv_scratch(s->dnn);
    s->at_y = (s->at_y + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    k->scratch_size = s->at_y + sb_tensor_bytes(k->out[0]);
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
    bool empty = conv->n_batch == 0 || conv->in_channels == 0 ||
                 conv->out_channels == 0 || conv->w.out_count == 0 ||
                 conv->w.in_count == 0;
    if (empty || conv->w.n > SB_DNN_MAX_SPATIAL)
        return conv_around(k, s, NULL);
    if (sb_winograd_suits(k, conv)) {
        sb_status made = sb_winograd_create(k, conv, &s->posts, &s->winograd);
        if (made == SB_OK) {
            k->scratch_size = sb_winograd_scratch(s->winograd);
            k->packed |= 1u << 1;
        }
        if (made != SB_UNSUPPORTED)
            return made;
    }
    sb_dnn_conv_desc desc = conv_desc(k, conv);
    desc.src_layout = dnn_layout(k->in[0]);
    desc.dst_layout = dnn_layout(k->out[0]);
    if (sb_conv_frame_suits(k, conv)) {
        sb_status made =
            sb_conv_frame_create(k->ctx, conv, &desc, &s->posts, &s->frame);
        if (made == SB_OK) {
            k->scratch_size = sb_conv_frame_scratch(s->frame);
            k->packed |= 1u << 1;
        }
        if (made != SB_UNSUPPORTED)
            return made;
    }
    desc.n_posts = n_posts;
    for (size_t i = 0; i < n_posts; i++)
        desc.posts[i] = posts[i];
    sb_status status = sb_dnn_conv_create(k->ctx, &desc, &s->dnn);
    if (status == SB_OK)
        k->scratch_size = sb_dnn_conv_scratch(s->dnn);
    if (status == SB_UNSUPPORTED)
        status = conv_late(k, s, &desc);
    if (status == SB_UNSUPPORTED)
        status = conv_around(k, s, &desc);
    if (status == SB_OK && s->dnn && sb_dnn_conv_packed(s->dnn))
        k->packed |= 1u << 1;
    return status;
}

/* `z` is the addend in the order of y, or NULL; it may be y itself. */
static sb_status conv_run(sb_kernel *k, const float *x, const float *z,
                          float *y)
{
    const sb_conv_state *s = k->state;
    const sb_tensor *bias = sb_kernel_in(k, 2);
    const float *b = bias ? bias->data : NULL;
    size_t n = (size_t)sb_tensor_count(k->out[0]);

    if (s->winograd)
        return sb_winograd_run(s->winograd, x, b, z, y, k->scratch);
    if (s->frame)
        return sb_conv_frame_run(s->frame, x, k->in[1]->data, b, z, y,
                                 k->scratch);
    if (s->late) {
        float *own = (float *)(void *)((char *)k->scratch + s->at_y);

        SB_TRY(sb_dnn_conv_run(s->dnn, x, k->in[1]->data, b, own, k->scratch,
                               NULL));
        sb_posts_apply(k->ctx, &s->posts, own, z, n);
        memcpy(y, own, n * sizeof *y);
        return SB_OK;
    }
    if (s->dnn) {
        if (z && z != y)
            memcpy(y, z, n * sizeof *y);
        return sb_dnn_conv_run(s->dnn, x, k->in[1]->data, b, y, k->scratch,
                               s->around ? NULL : k->tap);
    }
    /* These overwrite y, so the addend must lie elsewhere. */
    assert(!z || z != y);
    if (s->patches)
        SB_TRY(sb_conv_patches_run(s->patches, x, b, y, k->scratch));
    else
        conv_loops(k->ctx, &s->conv, x, k->in[1]->data, b, y);
    sb_posts_apply(k->ctx, &s->posts, y, z, n);
    return SB_OK;
}

sb_status sb_conv_forward(sb_kernel *k)
{
    const sb_conv_state *s = k->state;
    const sb_tensor *z = sb_kernel_in(k, 3);
    sb_tensor x = *k->in[0], y = *k->out[0];

    if (sb_tensor_count(&y) == 0)
        return SB_OK;
    if (!s->around)
        return conv_run(k, x.data, z ? z->data : NULL, y.data);
    x.data = (char *)k->scratch + s->at_x;
    y.data = (char *)k->scratch + s->at_y;
    x.layout = y.layout = s->copies;
    sb_tensor_reorder(k->ctx, k->in[0], &x);
    if (z) {
        sb_tensor copy = y;
        copy.data = (char *)k->scratch + s->at_z;
        sb_tensor_reorder(k->ctx, z, &copy);
        SB_TRY(conv_run(k, x.data, copy.data, y.data));
    } else {
        SB_TRY(conv_run(k, x.data, NULL, y.data));
    }
    sb_tensor_reorder(k->ctx, &y, k->out[0]);
    return SB_OK;
}

void sb_conv_release(sb_kernel *k)
{
    sb_conv_state *s = k->state;

    if (s) {
        sb_dnn_conv_free(s->dnn);
        sb_winograd_free(s->winograd);
        sb_conv_frame_free(s->frame);
        sb_conv_patches_free(s->patches);
    }
    sb_free(k->ctx, s);
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
