/* Reduction engine: which elements go into which output, in which runs.
 *
 * Neighboring dimensions that are both kept or both reduced are merged, so
 * the input is seen as alternating groups.  If the innermost group is reduced,
 * each output folds contiguous rows; if it is kept, a block of neighboring
 * outputs is folded together, row by row, so memory is read in order in both
 * cases.  Each output is computed by one thread in a fixed order.  Dimensions
 * are taken in the order in which they lie in memory. */
#include "ops/reduce/reduce.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "ops/move/move_util.h"

enum {
    REDUCE_BLOCK = 128, /* outputs folded together */
    REDUCE_CHUNK = 256, /* elements converted at once */
    REDUCE_GRAIN = 16 * 1024,
};

typedef struct reduce_group {
    size_t n, stride; /* in elements of the input */
} reduce_group;

typedef struct reduce_walk {
    const sb_reduce_fns *fns;
    const sb_reduce_def *def;
    const sb_tensor *x;
    sb_tensor *y;
    sb_dtype as;
    size_t x_size, y_size;
    reduce_group kept[SB_MAX_RANK], folded[SB_MAX_RANK];
    int n_kept, n_folded;
    size_t width;  /* neighboring outputs per row; 1 if rows are reduced */
    size_t run;    /* contiguous elements folded at once; 1 if kept */
    size_t steps;  /* runs per output */
    size_t blocks; /* blocks of outputs per kept index */
    int64_t count; /* elements per output */
} reduce_walk;

/* ---- axes --------------------------------------------------------------- */

/* Bit d of `mask` is set if dimension d is reduced; false if an axis is
 * outside. */
static bool axes_mask(const int64_t *axes, int64_t n, int rank, bool noop,
                      uint32_t *mask)
{
    *mask = 0;
    if (n <= 0) {
        *mask = noop ? 0 : (uint32_t)((1u << rank) - 1);
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        if (axes[i] < -rank || axes[i] >= rank)
            return false;
        *mask |= 1u << (axes[i] < 0 ? axes[i] + rank : axes[i]);
    }
    return true;
}

/* ---- inference ---------------------------------------------------------- */

/* Folds the elements of a shape vector: Shape -> ReduceProd counts elements. */
static void reduce_content(sb_infer *in, const sb_reduce_def *def)
{
    sb_shape x, out = {.rank = 1};

    if (!def->content || in->in[0]->type.shape.rank != 1 ||
        !sb_infer_content(in, 0, &x) || x.rank < 1)
        return;
    out.dim[0] = x.dim[0];
    for (int i = 1; i < x.rank; i++)
        out.dim[0] = def->content(out.dim[0], x.dim[i]);
    sb_infer_set_content(in, 0, &out);
}

/* The axes are not known: only the rank may be. */
static void reduce_infer_rank(sb_infer *in, const sb_reduce_attrs *a)
{
    const sb_shape *x = &in->in[0]->type.shape;
    int64_t n_axes = sb_infer_length(in, 1);
    sb_shape out = sb_shape_unknown();

    if (x->rank >= 0 && a->keepdims)
        out = sb_shape_of_rank(x->rank);
    else if (x->rank >= 0 && n_axes > 0 && n_axes <= x->rank)
        out = sb_shape_of_rank(x->rank - (int)n_axes);
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
}

sb_status sb_reduce_infer(sb_infer *in)
{
    const sb_reduce_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    int64_t axes[SB_MAX_RANK], n = 0;
    uint32_t mask;

    SB_TRY(sb_infer_want_ints(in, 1));
    if (sb_infer_in(in, 1))
        n = sb_infer_ints(in, 1, axes, SB_MAX_RANK);
    if (n > SB_MAX_RANK)
        return sb_infer_fail(in, "%lld axes, want at most %d", (long long)n,
                             SB_MAX_RANK);
    if (n < 0 || x->rank < 0) {
        reduce_infer_rank(in, a);
        return SB_OK;
    }
    if (!axes_mask(axes, n, x->rank, a->noop != 0, &mask))
        return sb_infer_fail(in, "an axis is outside rank %d", x->rank);
    sb_shape out = {.rank = 0};
    for (int d = 0; d < x->rank; d++) {
        if (!(mask >> d & 1))
            out.dim[out.rank++] = x->dim[d];
        else if (a->keepdims)
            out.dim[out.rank++] = 1;
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    if (mask)
        reduce_content(in, sb_op_of(in->node)->aux);
    return SB_OK;
}

/* ---- types -------------------------------------------------------------- */

/* The functions for elements of `dtype`, and the type they read. */
static const sb_reduce_fns *reduce_pick(const sb_reduce_def *def,
                                        sb_dtype dtype, sb_dtype *as)
{
    sb_dtype_class cls = sb_dtype_get(dtype)->cls;

    if (sb_dtype_size(dtype) == 0 || cls == SB_CLASS_OTHER ||
        (cls == SB_CLASS_BOOL && !def->bools))
        return NULL;
    if (cls == SB_CLASS_FLOAT && dtype != SB_DTYPE_F64) {
        *as = SB_DTYPE_F32;
        return def->f32;
    }
    if (cls == SB_CLASS_FLOAT || !def->i64) {
        *as = SB_DTYPE_F64;
        return def->f64;
    }
    *as = dtype == SB_DTYPE_U64 ? SB_DTYPE_U64 : SB_DTYPE_I64;
    return dtype == SB_DTYPE_U64 && def->u64 ? def->u64 : def->i64;
}

sb_status sb_reduce_check(sb_kernel *k, const sb_reduce_def *def)
{
    sb_dtype as;

    if (!reduce_pick(def, k->in[0]->dtype, &as))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    return SB_OK;
}

sb_status sb_reduce_prepare(sb_kernel *k)
{
    return sb_reduce_check(k, k->op->aux);
}

/* ---- the walk ----------------------------------------------------------- */

/* Offset in the input of index `i` counted over `groups`, innermost first. */
static size_t group_offset(const reduce_group *groups, int n, size_t i)
{
    size_t at = 0;

    for (int g = 0; g < n; g++) {
        at += i % groups[g].n * groups[g].stride;
        i /= groups[g].n;
    }
    return at;
}

/* Splits the dimensions of x into merged groups, the innermost apart; returns
 * the number of results. */
static size_t reduce_groups(reduce_walk *w, uint32_t mask)
{
    const sb_tensor lies = sb_tensor_as_lies(w->x);
    size_t stride = 1;
    int last = -1; /* kind of the group found before: 1 reduced, 0 kept */
    reduce_group *group = NULL;

    w->width = w->run = w->steps = 1;
    for (int at = w->x->rank - 1; at >= 0; at--) {
        size_t n = (size_t)lies.dims[at];
        int kind = mask >> sb_tensor_dim_at(w->x, at) & 1;

        if (n == 1)
            continue;
        if (kind == last && group) {
            group->n *= n;
        } else if (kind == last || last < 0) {
            if (kind)
                w->run *= n;
            else
                w->width *= n;
        } else {
            group = kind ? &w->folded[w->n_folded++] : &w->kept[w->n_kept++];
            *group = (reduce_group){n, stride};
        }
        last = kind;
        stride *= n;
    }
    for (int g = 0; g < w->n_folded; g++)
        w->steps *= w->folded[g].n;
    size_t results = w->width;
    for (int g = 0; g < w->n_kept; g++)
        results *= w->kept[g].n;
    return results;
}

/* Reads n elements at `at` as the type that the functions take. */
static const void *reduce_read(const reduce_walk *w, size_t at, size_t n,
                               void *buffer)
{
    const char *x = (const char *)w->x->data + at * w->x_size;

    if (w->x->dtype == w->as)
        return x;
    sb_convert(w->x->dtype, x, w->as, buffer, n);
    return buffer;
}

/* Folds everything that belongs to `n` neighboring outputs. */
static void reduce_fold(const reduce_walk *w, size_t at, size_t n, sb_cell *acc,
                        sb_cell *acc2)
{
    uint64_t buffer[REDUCE_CHUNK];
    bool direct = w->x->dtype == w->as;

    for (size_t step = 0; step < w->steps; step++) {
        size_t from = at + group_offset(w->folded, w->n_folded, step);

        if (w->run == 1) {
            w->fns->col(reduce_read(w, from, n, buffer), n, acc, acc2);
            continue;
        }
        size_t chunk = direct ? w->run : REDUCE_CHUNK;
        for (size_t i = 0; i < w->run; i += chunk) {
            size_t some = w->run - i < chunk ? w->run - i : chunk;
            w->fns->row(reduce_read(w, from + i, some, buffer), some, acc,
                        acc2);
        }
    }
}

static void reduce_blocks(void *arg, size_t begin, size_t end)
{
    const reduce_walk *w = arg;
    sb_cell acc[REDUCE_BLOCK], acc2[REDUCE_BLOCK];
    uint64_t out[REDUCE_BLOCK]; /* results as w->as */

    for (size_t item = begin; item < end; item++) {
        size_t row = item / w->blocks, col = item % w->blocks * REDUCE_BLOCK;
        size_t n =
            w->width - col < REDUCE_BLOCK ? w->width - col : REDUCE_BLOCK;
        char *y = (char *)w->y->data + (row * w->width + col) * w->y_size;

        for (size_t j = 0; j < n; j++) {
            acc[j] = w->fns->start;
            acc2[j] = w->fns->start2;
        }
        reduce_fold(w, group_offset(w->kept, w->n_kept, row) + col, n, acc,
                    acc2);
        for (size_t j = 0; j < n; j++) {
            sb_cell r = w->fns->finish
                            ? w->fns->finish(acc[j], acc2[j], w->count)
                            : acc[j];
            if (w->as == SB_DTYPE_F32)
                ((float *)(void *)out)[j] = (float)r.f;
            else
                out[j] = r.u;
        }
        sb_convert(w->as, out, w->y->dtype, y, n);
    }
}

/* ---- nothing to fold ---------------------------------------------------- */

/* The least (sign < 0) or largest value of a type, into 8 bytes. */
static void type_limit(sb_dtype dtype, int sign, void *out)
{
    const sb_dtype_info *info = sb_dtype_get(dtype);
    double f = sign < 0 ? -(double)INFINITY : (double)INFINITY;
    uint64_t top = UINT64_C(1) << (info->bits - 1);
    uint64_t u = sign < 0 ? 0 : top | (top - 1);

    if (info->cls == SB_CLASS_FLOAT) {
        sb_convert(SB_DTYPE_F64, &f, dtype, out, 1);
        return;
    }
    if (info->cls == SB_CLASS_INT)
        u = sign < 0 ? top : top - 1;
    if (info->cls == SB_CLASS_BOOL)
        u = sign > 0;
    sb_convert(SB_DTYPE_U64, &u, dtype, out, 1);
}

/* The inputs are empty but the output is not. */
static void reduce_nothing(const reduce_walk *w)
{
    uint64_t value = 0;
    float f = 0;
    sb_cell r = w->fns->start;

    if (w->fns->finish)
        r = w->fns->finish(w->fns->start, w->fns->start2, 0);
    f = w->as == SB_DTYPE_F32 ? (float)r.f : 0;
    if (w->def->empty_limit)
        type_limit(w->y->dtype, w->def->empty_limit, &value);
    else
        sb_convert(w->as, w->as == SB_DTYPE_F32 ? (void *)&f : (void *)&r.u,
                   w->y->dtype, &value, 1);
    sb_fill(w->y->data, w->y_size, &value, sb_tensor_count(w->y));
}

/* The mask of a kernel whose axes are known; false if they do not fit. */
static bool kernel_mask(const sb_kernel *k, uint32_t *mask)
{
    const sb_reduce_attrs *a = k->attrs;
    int64_t axes[SB_MAX_RANK];
    int64_t n =
        sb_kernel_in(k, 1) ? sb_kernel_ints(k, 1, axes, SB_MAX_RANK) : 0;

    return n >= 0 && n <= SB_MAX_RANK &&
           axes_mask(axes, n, k->in[0]->rank, a->noop != 0, mask);
}

/* What is left lies in channels-last order if it has channels, and in front of
 * them the images; without channels it is plain. */
void sb_reduce_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const sb_reduce_attrs *a = k->attrs;
    const sb_tensor *axes = sb_kernel_in(k, 1);
    uint32_t mask;

    if (k->in[0]->layout == SB_LAYOUT_PLAIN || (axes && !axes->data) ||
        !kernel_mask(k, &mask))
        return;
    bool images = a->keepdims || !(mask & 1);
    bool channels = a->keepdims || !(mask & 2);
    bool places = a->keepdims || k->out[0]->rank > images + channels;
    if (channels && places && !images)
        return;
    in[0] = SB_LAYOUT_CHANNELS_LAST;
    if (channels && places)
        out[0] = SB_LAYOUT_CHANNELS_LAST;
}

sb_status sb_reduce_forward(sb_kernel *k)
{
    uint32_t mask;

    if (!kernel_mask(k, &mask))
        return sb_kernel_fail(k, SB_BAD_DATA, "axes do not fit rank %d",
                              k->in[0]->rank);
    return sb_reduce_run(k, k->op->aux, mask);
}

sb_status sb_reduce_run(sb_kernel *k, const sb_reduce_def *def, uint32_t mask)
{
    reduce_walk w = {.def = def, .x = k->in[0], .y = k->out[0]};

    w.fns = reduce_pick(w.def, w.x->dtype, &w.as);
    w.x_size = sb_dtype_size(w.x->dtype);
    w.y_size = sb_dtype_size(w.y->dtype);
    if (sb_tensor_count(w.y) == 0)
        return SB_OK;
    if (sb_tensor_count(w.x) == 0) {
        reduce_nothing(&w);
        return SB_OK;
    }
    /* Axes that come at the run may repeat, and are fewer then than their
     * number promised. */
    if (reduce_groups(&w, mask) != (size_t)sb_tensor_count(w.y))
        return sb_kernel_fail(k, SB_BAD_DATA, "an axis is given twice");
    w.count = sb_tensor_count(w.x) / sb_tensor_count(w.y);
    w.blocks = (w.width + REDUCE_BLOCK - 1) / REDUCE_BLOCK;
    size_t items = (size_t)sb_tensor_count(w.y) / w.width * w.blocks;
    size_t each = (size_t)sb_tensor_count(w.x) / items;
    sb_parallel_for(k->ctx, items,
                    (REDUCE_GRAIN + each - 1) / (each ? each : 1),
                    reduce_blocks, &w);
    return SB_OK;
}

const sb_attr_def sb_reduce_table[] = {
    {"keepdims", SB_ATTR_INT, offsetof(sb_reduce_attrs, keepdims), .i = 1,
     .flag = true},
    {"noop_with_empty_axes", SB_ATTR_INT, offsetof(sb_reduce_attrs, noop),
     .i = 0, .flag = true},
    {0},
};
