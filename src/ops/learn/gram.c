/* sparsebit.Gram(g, count, x, w[, y]) -> g + sum of x x^T over all that a layer
 * multiplies its weight with, count + the number of terms; g is [groups, K, K].
 * With y, which is like x, the sum of y x^T.
 *
 *     rows 1   x is [..., groups * K]: the rows of a matrix product, of which
 *              only products within K columns that lie together are wanted
 *     rows 0   x is [N, C, D...]: the patches of a convolution with weight w
 *              and its attributes; K = C / groups * taps, in the order of w
 *     upper 1  of the sums of x x^T those below the diagonal are not wanted
 *     ones 1   a 1 stands behind the elements of each x and y, so that the last
 *              row and column, K is one more, are the sums of y and x
 *
 * With it the squared error of a layer's results is a quadratic form of the
 * error of its weight, whatever number of samples it was summed over; matrices
 * of two runs over different samples add up.  `w` gives sizes only.  Of a
 * convolution's places no more than `places` an image are looked at, evenly
 * spread, if that is not 0: neighbors are alike. */
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "dnn/bf16_product.h"
#include "dnn/dnn.h"
#include "ops/conv/window.h"

enum {
    GRAM_CHUNK = 1 << 21, /* elements of patches that are made at once */
    GRAM_SMALL = 64,      /* of K: below it, plain loops for each group */
    GRAM_BRIEF = 256,     /* from it on, bfloat16 is exact enough and faster */
};

typedef struct gram_attrs {
    sb_window_attrs window;
    int64_t group, rows, places, ones, upper;
} gram_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"group", SB_ATTR_INT, offsetof(gram_attrs, group), .i = 1},
    {"ones", SB_ATTR_INT, offsetof(gram_attrs, ones), .i = 0, .flag = true},
    {"places", SB_ATTR_INT, offsetof(gram_attrs, places), .i = 0},
    {"rows", SB_ATTR_INT, offsetof(gram_attrs, rows), .i = 0, .flag = true},
    {"upper", SB_ATTR_INT, offsetof(gram_attrs, upper), .i = 0, .flag = true},
    {0},
};

typedef struct gram_state {
    sb_window window;
    int64_t groups, k; /* matrices, and their size */
    int64_t filled;    /* of k, by elements of x: all, or all but one */
    int64_t per;       /* channels of a group */
    int64_t images, places, chunk;
    bool brief;                   /* products of bfloat16, of rows */
    sb_dnn_gemm *gemm;            /* else; NULL: loops */
    size_t at_patches, at_others; /* in the scratch memory */
} gram_state;

typedef struct gram_job {
    const gram_state *s;
    const float *x;
    float *patches; /* [chunk, groups, K] */
    float *others;  /* those of y, or the same */
    float *g;
    int64_t first, n; /* places */
    bool rows, last;  /* x has its channels last in memory */
} gram_job;

static sb_status gram_infer(sb_infer *in)
{
    in->out[0].type = in->in[0]->type;
    in->out[1].type = in->in[1]->type;
    return SB_OK;
}

/* ---- patches ------------------------------------------------------------ */

/* One tap of a patch: a channel every `step` elements of `from`. */
static void gram_tap(const gram_state *s, const float *from, int64_t step,
                     float *to)
{
    for (int64_t g = 0; g < s->groups; g++)
        for (int64_t c = 0; c < s->per; c++)
            to[g * s->k + c * s->window.taps] =
                from ? from[(g * s->per + c) * step] : 0;
}

/* What place `p` of all images meets, as it lies in the weight. */
static void gram_patch(const gram_job *j, int64_t p, float *to)
{
    const gram_state *s = j->s;
    const sb_window *w = &s->window;
    int64_t at[SB_MAX_SPATIAL];
    int64_t place = p % s->places * w->out_count / s->places;
    int64_t channels = s->groups * s->per;
    const float *image = j->x + p / s->places * channels * w->in_count;

    for (int i = w->n - 1; i >= 0; i--) {
        at[i] = place % w->out[i];
        place /= w->out[i];
    }
    for (int64_t tap = 0; tap < w->taps; tap++) {
        int64_t from = sb_window_pixel(w, at, tap);

        if (from < 0)
            gram_tap(s, NULL, 0, to + tap);
        else if (j->last)
            gram_tap(s, image + from * channels, 1, to + tap);
        else
            gram_tap(s, image + from, w->in_count, to + tap);
    }
}

static void gram_patches(void *arg, size_t begin, size_t end)
{
    const gram_job *j = arg;
    const gram_state *s = j->s;
    int64_t width = s->groups * s->k;

    for (size_t i = begin; i < end; i++) {
        float *to = j->patches + (int64_t)i * width;
        int64_t p = j->first + (int64_t)i;

        if ((int64_t)i >= j->n) {
            memset(to, 0, (size_t)width * sizeof *to);
            continue;
        }
        for (int64_t g = 0; g < s->groups && j->rows; g++)
            memcpy(to + g * s->k, j->x + (p * s->groups + g) * s->filled,
                   (size_t)s->filled * sizeof *to);
        if (!j->rows)
            gram_patch(j, p, to);
        for (int64_t g = 0; g < s->groups && s->filled < s->k; g++)
            to[g * s->k + s->filled] = 1;
    }
}

/* ---- sums --------------------------------------------------------------- */

SB_HOT static void gram_add(const float *u, const float *v, int64_t k, float *g)
{
    for (int64_t i = 0; i < k; i++) {
        float f = u[i];
        float *row = g + i * k;
        SB_SIMD
        for (int64_t c = 0; c < k; c++)
            row[c] += f * v[c];
    }
}

/* Items are groups. */
static void gram_groups(void *arg, size_t begin, size_t end)
{
    const gram_job *j = arg;
    const gram_state *s = j->s;
    float sum[GRAM_SMALL * GRAM_SMALL];

    for (size_t i = begin; i < end; i++) {
        float *g = j->g + (int64_t)i * s->k * s->k;

        memset(sum, 0, (size_t)(s->k * s->k) * sizeof *sum);
        for (int64_t p = 0; p < j->n; p++) {
            int64_t at = (p * s->groups + (int64_t)i) * s->k;
            gram_add(j->others + at, j->patches + at, s->k, sum);
        }
        for (int64_t c = 0; c < s->k * s->k; c++)
            g[c] += sum[c];
    }
}

static sb_status gram_multiply(const sb_kernel *k, gram_job *j)
{
    const gram_state *s = j->s;

    if (!s->gemm) {
        sb_parallel_for(k->ctx, (size_t)s->groups, 1, gram_groups, j);
        return SB_OK;
    }
    for (int64_t i = 0; i < s->groups; i++) {
        const sb_dnn_gemm_args args = {.a = j->others + i * s->k,
                                       .b = j->patches + i * s->k,
                                       .c = j->g + i * s->k * s->k,
                                       .scratch = k->scratch};
        SB_TRY(sb_dnn_gemm_run(s->gemm, &args));
    }
    return SB_OK;
}

/* The patches of one of the inputs, at `to`. */
static void gram_gather(const sb_kernel *k, const gram_job *job,
                        const sb_tensor *from, float *to)
{
    gram_job j = *job;

    j.x = from->data;
    j.patches = to;
    j.last = from->layout == SB_LAYOUT_CHANNELS_LAST;
    sb_parallel_for(k->ctx, (size_t)j.s->chunk, 16, gram_patches, &j);
}

/* Rows need no patches: they are rounded where they are. */
static void gram_brief(const sb_kernel *k, const gram_job *j,
                       const sb_tensor *y)
{
    const gram_attrs *a = k->attrs;
    const gram_state *s = j->s;
    int64_t width = s->groups * s->filled;

    for (int64_t i = 0; i < s->groups; i++) {
        int64_t at = j->first * width + i * s->filled;
        sb_bf16_source from = {.x = (const float *)k->in[2]->data + at,
                               .row = width,
                               .col = 1,
                               .k = j->n,
                               .n = s->filled};
        sb_bf16_product p = {.m = s->k,
                             .n = s->k,
                             .k = j->n,
                             .a = (uint32_t *)(void *)j->others,
                             .a_panels = true,
                             .b = (uint32_t *)(void *)j->patches,
                             .c = j->g + i * s->k * s->k,
                             .c_row = s->k,
                             .add = true,
                             .upper = a->upper && !y};

        sb_bf16_pack(k->ctx, &from, (uint32_t *)(void *)j->patches);
        if (y) {
            from.x = (const float *)y->data + at;
            sb_bf16_pack(k->ctx, &from, (uint32_t *)(void *)j->others);
        }
        sb_bf16_multiply(k->ctx, &p);
    }
}

static sb_status gram_forward(sb_kernel *k)
{
    const gram_attrs *a = k->attrs;
    const gram_state *s = k->state;
    const sb_tensor *y = k->n_in > 4 ? k->in[4] : NULL;
    int64_t total = s->images * s->places;
    char *scratch = k->scratch;
    gram_job job = {.s = s,
                    .patches = (float *)(void *)(scratch + s->at_patches),
                    .others = (float *)(void *)(scratch + s->at_others),
                    .g = k->out[0]->data,
                    .rows = a->rows != 0};

    if (k->out[0]->data != k->in[0]->data)
        memcpy(k->out[0]->data, k->in[0]->data, sb_tensor_bytes(k->in[0]));
    if (k->out[1])
        *(float *)k->out[1]->data =
            *(const float *)k->in[1]->data + (float)total;
    for (; job.first < total; job.first += s->chunk) {
        int64_t left = total - job.first;

        job.n = left < s->chunk ? left : s->chunk;
        if (s->brief) {
            gram_brief(k, &job, y);
            continue;
        }
        gram_gather(k, &job, k->in[2], job.patches);
        if (y)
            gram_gather(k, &job, y, job.others);
        SB_TRY(gram_multiply(k, &job));
    }
    return SB_OK;
}

/* ---- sizes -------------------------------------------------------------- */

static sb_status gram_sizes(const sb_kernel *k, gram_state *s)
{
    const gram_attrs *a = k->attrs;
    const sb_tensor *x = k->in[2];
    sb_window_who who = sb_window_who_kernel(k);
    sb_shape shape = sb_shape_of(x), weight = sb_shape_of(k->in[3]);

    s->groups = a->group;
    s->images = 1;
    int64_t channels = a->rows ? (x->rank > 0 ? x->dims[x->rank - 1] : 1)
                               : (x->rank > 1 ? x->dims[1] : 0);
    if (a->group < 1 || channels % a->group != 0)
        return sb_kernel_fail(k, SB_BAD_MODEL, "%lld channels in %lld groups",
                              (long long)channels, (long long)a->group);
    s->per = channels / a->group;
    if (a->rows) {
        s->filled = s->per;
        s->places = channels > 0 ? sb_tensor_count(x) / channels : 0;
        s->k = s->filled + (a->ones != 0);
        return SB_OK;
    }
    SB_TRY(sb_window_set(&who, &a->window, &shape, &weight, &s->window));
    SB_TRY(sb_window_count(&who, &s->window));
    s->filled = s->per * s->window.taps;
    s->k = s->filled + (a->ones != 0);
    s->images = x->dims[0];
    s->places = s->window.out_count;
    if (a->places > 0 && a->places < s->places)
        s->places = a->places;
    return SB_OK;
}

static sb_status gram_make_gemm(const sb_kernel *k, gram_state *s)
{
    const sb_dnn_gemm_desc desc = {.what = sb_node_label(k->graph, k->node),
                                   .m = s->k,
                                   .n = s->k,
                                   .k = s->chunk,
                                   .a_row = 1,
                                   .a_col = s->groups * s->k,
                                   .b_row = s->groups * s->k,
                                   .b_col = 1,
                                   .c_row = s->k,
                                   .n_posts = 1,
                                   .posts = {{SB_DNN_SUM, 1, 0}}};

    return s->k < GRAM_SMALL ? SB_OK
                             : sb_dnn_gemm_create(k->ctx, &desc, &s->gemm);
}

/* Places at a time: equal parts, so that few rows of the last are empty. */
static int64_t gram_chunk(const gram_state *s)
{
    int64_t total = s->images * s->places;
    int64_t most = GRAM_CHUNK / (s->groups * s->k + 1);

    most = most < 64 ? 64 : most > 4096 ? 4096 : most;
    int64_t parts = (total + most - 1) / most;
    return parts > 0 ? (total + parts - 1) / parts : 1;
}

static void gram_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const gram_attrs *a = k->attrs;

    (void)out;
    for (size_t i = 2; i < k->n_in && !a->rows; i += 2)
        if (k->in[i] && k->in[i]->rank > 2)
            in[i] = k->in[i]->layout;
}

/* Where means are taken from the sums (a 1 stands behind x for that) what is
 * left may be small beside what was rounded. */
static bool gram_is_brief(const sb_kernel *k, const gram_state *s)
{
    const gram_attrs *a = k->attrs;

    return k->brief && a->rows && !a->ones && s->k >= GRAM_BRIEF &&
           s->chunk > 1 && sb_bf16_is_fast();
}

static sb_status gram_prepare(sb_kernel *k)
{
    gram_state *s = sb_alloc(k->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    SB_TRY(gram_sizes(k, s));
    bool two = k->n_in > 4 && k->in[4];
    const sb_shape x = sb_shape_of(k->in[2]),
                   y = sb_shape_of(k->in[two ? 4 : 2]);
    if (!sb_shape_same(&x, &y))
        return sb_kernel_fail(k, SB_BAD_MODEL, "x and y differ in shape");
    if (sb_tensor_count(k->in[1]) != 1 ||
        sb_tensor_count(k->in[0]) != s->groups * s->k * s->k)
        return sb_kernel_fail(
            k, SB_BAD_MODEL, "%lld sums, want %lld x %lld x %lld",
            (long long)sb_tensor_count(k->in[0]), (long long)s->groups,
            (long long)s->k, (long long)s->k);
    s->chunk = gram_chunk(s);
    size_t patches = (size_t)(s->chunk * s->groups * s->k) * sizeof(float);
    s->brief = gram_is_brief(k, s) && sb_bf16_bytes(s->chunk, s->k, &patches);
    if (!s->brief)
        SB_TRY(gram_make_gemm(k, s));
    s->at_patches = s->gemm ? sb_dnn_gemm_scratch(s->gemm) : 0;
    s->at_patches = (s->at_patches + 63) / 64 * 64;
    s->at_others = s->at_patches + (two ? patches : 0);
    k->scratch_size = s->at_others + patches;
    return SB_OK;
}

static void gram_release(sb_kernel *k)
{
    gram_state *s = k->state;

    if (s)
        sb_dnn_gemm_free(s->gemm);
    sb_free(k->ctx, s);
}

const sb_op_def sb_op_gram = {
    .name = "Gram",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 4,
    .in_max = 5,
    .out_min = 2,
    .out_max = 2,
    .flags = SB_OP_F32 | SB_OP_INPLACE_EACH,
    .attrs_size = sizeof(gram_attrs),
    .attrs = attrs,
    .infer = gram_infer,
    .layout = gram_layout,
    .prepare = gram_prepare,
    .forward = gram_forward,
    .release = gram_release,
};
