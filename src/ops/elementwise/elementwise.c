/* Elementwise engine: broadcast, collapse, cut into strips, convert, thread.
 *
 * The output's dimensions are walked with one stride per input, 0 where the
 * input is broadcast.  Neighboring dimensions over which every input moves
 * the same way are merged, so equal shapes become one long strip, and a
 * per-channel operand becomes [N*C] strips of H*W with one element repeated.
 * In the innermost dimension each input then has stride 1 or 0, which is all
 * that strip functions must know. */
#include "ops/elementwise/elementwise.h"

#include <assert.h>
#include <string.h>

#include "base/threads.h"

enum {
    EW_STRIP = 4096,      /* elements per strip when nothing is converted */
    EW_STRIP_CONV = 256,  /* the same through buffers: all stay in L1 */
    EW_GRAIN = 16 * 1024, /* elements worth a thread */
};

/* One merged dimension of the walk, slowest varying first. */
typedef struct ew_dim {
    size_t n;
    size_t stride[SB_EW_INPUTS]; /* in elements */
} ew_dim;

typedef struct ew_walk {
    const sb_ew_call *call;
    ew_dim dim[SB_MAX_RANK];
    int rank;                               /* at least 1 */
    size_t strip;                           /* elements per strip */
    size_t per_row;                         /* strips per innermost run */
    size_t items;                           /* strips in all */
    size_t in_size[SB_EW_INPUTS], out_size; /* bytes of an element */
    bool all_one; /* every input is broadcast along the innermost dimension */
} ew_walk;

/* ---- collapsing --------------------------------------------------------- */

/* Strides of `t` seen with the dimensions of `out`; false if it does not
 * broadcast to them. */
static bool input_strides(const sb_tensor *t, const sb_tensor *out,
                          size_t stride[SB_MAX_RANK])
{
    int64_t step[SB_MAX_RANK];

    if (t->rank > out->rank)
        return false;
    sb_tensor_strides(t, step);
    for (int d = out->rank - 1; d >= 0; d--) {
        int own = d - (out->rank - t->rank);
        int64_t dim = own < 0 ? 1 : t->dims[own];

        if (dim != out->dims[d] && dim != 1)
            return false;
        stride[d] = dim == 1 ? 0 : (size_t)step[own];
    }
    return true;
}

/* Can dimension `d` continue `outer`, so that both are one? */
static bool elementwise_mergeable(const ew_dim *outer, const ew_dim *d,
                                  size_t n_in)
{
    for (size_t i = 0; i < n_in; i++)
        if (outer->stride[i] != d->stride[i] * d->n)
            return false;
    return true;
}

static bool elementwise_collapse(const sb_ew_call *call, ew_walk *w)
{
    size_t stride[SB_EW_INPUTS][SB_MAX_RANK];

    w->rank = 0;
    for (size_t i = 0; i < call->n_in; i++)
        if (!input_strides(call->in[i], call->out, stride[i]))
            return false;
    for (int at = 0; at < call->out->rank; at++) {
        int d = sb_tensor_dim_at(call->out, at);
        ew_dim dim = {.n = (size_t)call->out->dims[d]};

        if (dim.n == 1)
            continue;
        for (size_t i = 0; i < call->n_in; i++)
            dim.stride[i] = stride[i][d];
        if (w->rank > 0 &&
            elementwise_mergeable(&w->dim[w->rank - 1], &dim, call->n_in)) {
            dim.n *= w->dim[w->rank - 1].n;
            w->rank--;
        }
        w->dim[w->rank++] = dim;
    }
    if (w->rank == 0) {
        w->dim[0] = (ew_dim){.n = 1};
        for (size_t i = 0; i < call->n_in; i++)
            w->dim[0].stride[i] = 1;
        w->rank = 1;
    }
    return true;
}

/* ---- one strip ---------------------------------------------------------- */

/* Fills y[1..n) with copies of y[0]. */
static void elementwise_repeat(char *y, size_t size, size_t n)
{
    size_t done = 1;

    while (done < n) {
        size_t more = done < n - done ? done : n - done;
        memcpy(y + done * size, y, more * size);
        done += more;
    }
}

static void run_strip(const ew_walk *w, const size_t in_at[SB_EW_INPUTS],
                      size_t out_at, size_t n)
{
    /* Eight bytes hold an element of any class. */
    uint64_t buffer[SB_EW_INPUTS + 1][EW_STRIP_CONV];
    const sb_ew_call *call = w->call;
    const ew_dim *inner = &w->dim[w->rank - 1];
    char *y = (char *)call->out->data + out_at * w->out_size;
    sb_strip s = {.n = w->all_one ? 1 : n, .y = y, .param = call->param};
    bool convert_out = call->out->dtype != call->out_as;

    for (size_t i = 0; i < call->n_in; i++) {
        const sb_tensor *t = call->in[i];
        const char *x = (const char *)t->data + in_at[i] * w->in_size[i];

        s.one[i] = inner->stride[i] == 0;
        s.x[i] = x;
        if (t->dtype != call->in_as[i]) {
            sb_convert(t->dtype, x, call->in_as[i], buffer[i],
                       s.one[i] ? 1 : s.n);
            s.x[i] = buffer[i];
        }
    }
    if (w->all_one)
        memset(s.one, 0, sizeof s.one);
    if (convert_out)
        s.y = buffer[SB_EW_INPUTS];
    call->fn(&s);
    if (convert_out)
        sb_convert(call->out_as, s.y, call->out->dtype, y, s.n);
    if (w->all_one)
        elementwise_repeat(y, w->out_size, n);
}

/* Strips [begin, end) of the walk. */
static void run_strips(void *arg, size_t begin, size_t end)
{
    const ew_walk *w = arg;
    const ew_dim *inner = &w->dim[w->rank - 1];

    for (size_t item = begin; item < end; item++) {
        size_t row = item / w->per_row, start = item % w->per_row * w->strip;
        size_t n = inner->n - start < w->strip ? inner->n - start : w->strip;
        size_t at[SB_EW_INPUTS] = {0};
        size_t rest = row;

        for (int d = w->rank - 2; d >= 0; d--) {
            size_t index = rest % w->dim[d].n;

            rest /= w->dim[d].n;
            for (size_t i = 0; i < w->call->n_in; i++)
                at[i] += index * w->dim[d].stride[i];
        }
        for (size_t i = 0; i < w->call->n_in; i++)
            at[i] += start * inner->stride[i];
        run_strip(w, at, row * inner->n + start, n);
    }
}

/* ---- entry points ------------------------------------------------------- */

static sb_status ew_sizes(const sb_kernel *k, const sb_ew_call *call,
                          ew_walk *w)
{
    w->strip = EW_STRIP;
    w->out_size = sb_dtype_size(call->out->dtype);
    if (call->out->dtype != call->out_as)
        w->strip = EW_STRIP_CONV;
    if (w->out_size == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "output of type %s",
                              sb_dtype_name(call->out->dtype));
    for (size_t i = 0; i < call->n_in; i++) {
        w->in_size[i] = sb_dtype_size(call->in[i]->dtype);
        if (w->in_size[i] == 0)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "input %zu of type %s", i,
                                  sb_dtype_name(call->in[i]->dtype));
        if (call->in[i]->dtype != call->in_as[i])
            w->strip = EW_STRIP_CONV;
    }
    return SB_OK;
}

sb_status sb_ew_run(const sb_kernel *k, const sb_ew_call *call)
{
    ew_walk w = {.call = call};

    SB_TRY(ew_sizes(k, call, &w));
    if (sb_tensor_count(call->out) == 0)
        return SB_OK;
    if (!elementwise_collapse(call, &w))
        return sb_kernel_fail(k, SB_BAD_DATA,
                              "an input does not broadcast to the output");
    const ew_dim *inner = &w.dim[w.rank - 1];
    w.all_one = true;
    for (size_t i = 0; i < call->n_in; i++)
        w.all_one = w.all_one && inner->stride[i] == 0;
    w.per_row = (inner->n + w.strip - 1) / w.strip;
    w.items = (size_t)sb_tensor_count(call->out) / inner->n * w.per_row;
    size_t each = inner->n < w.strip ? inner->n : w.strip;
    sb_parallel_for(k->ctx, w.items, (EW_GRAIN + each - 1) / each, run_strips,
                    &w);
    return SB_OK;
}

sb_strip_fn sb_ew_pick(const sb_ew_def *def, sb_dtype dtype, sb_dtype *as)
{
    sb_strip_fn fn = NULL;

    switch (sb_dtype_get(dtype)->cls) {
    case SB_CLASS_FLOAT:
        fn = def->f32;
        *as = SB_DTYPE_F32;
        if (dtype == SB_DTYPE_F64 && def->f64) {
            fn = def->f64;
            *as = SB_DTYPE_F64;
        }
        break;
    case SB_CLASS_INT:
    case SB_CLASS_UINT:
        fn = dtype == SB_DTYPE_U64 ? def->u64 : def->i64;
        *as = dtype == SB_DTYPE_U64 ? SB_DTYPE_U64 : SB_DTYPE_I64;
        break;
    case SB_CLASS_BOOL:
        fn = def->b8;
        *as = SB_DTYPE_BOOL;
        break;
    default:
        break;
    }
    return fn;
}

sb_strip_fn sb_ew_chain_fn(const sb_op_def *op, uint32_t n_in)
{
    const sb_ew_def *def = op->aux;
    bool any = op->in_max == SB_ARITY_ANY;

    if (!(op->flags & SB_OP_STRIPS) || def->predicate ||
        op->attrs_size > SB_CHAIN_PARAM || n_in > SB_EW_INPUTS ||
        n_in < (any ? 2 : op->in_min) || n_in > (any ? 2 : op->in_max))
        return NULL;
    for (const sb_attr_def *a = op->attrs; a && a->name; a++)
        if (a->type != SB_ATTR_FLOAT)
            return NULL;
    return def->f32;
}

bool sb_ew_chain_single(const sb_op_def *op, uint32_t i)
{
    return op->in_max != SB_ARITY_ANY && i >= op->in_min;
}

sb_status sb_ew_prepare(sb_kernel *k)
{
    sb_dtype as, dtype = k->in[0]->dtype;

    assert(k->n_in <= SB_EW_INPUTS);
    for (uint32_t i = 1; i < k->n_in; i++)
        if (k->in[i]->dtype != dtype)
            return sb_kernel_fail(
                k, SB_BAD_MODEL, "input %u has type %s, input 0 %s", i,
                sb_dtype_name(k->in[i]->dtype), sb_dtype_name(dtype));
    if (!sb_ew_pick(k->op->aux, dtype, &as) || sb_dtype_size(dtype) == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(dtype));
    return SB_OK;
}

sb_status sb_ew_forward(sb_kernel *k)
{
    const sb_ew_def *def = k->op->aux;
    sb_dtype as = SB_DTYPE_NONE;
    sb_ew_call call = {.fn = sb_ew_pick(def, k->in[0]->dtype, &as),
                       .param = k->attrs,
                       .n_in = k->n_in,
                       .out = k->out[0],
                       .out_as = def->predicate ? SB_DTYPE_BOOL : as};

    for (uint32_t i = 0; i < k->n_in; i++) {
        call.in[i] = k->in[i];
        call.in_as[i] = as;
    }
    return sb_ew_run(k, &call);
}

sb_status sb_infer_predicate(sb_infer *in)
{
    sb_infer_set(in, 0, SB_DTYPE_BOOL, &in->in[0]->type.shape);
    return SB_OK;
}
