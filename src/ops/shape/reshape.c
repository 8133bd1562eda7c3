/* Reshape: the same elements in another shape.
 *
 * In the target, 0 copies the input's dimension (unless allowzero) and one -1
 * stands for whatever is left.  Both work on symbolic dimensions as well: the
 * element count is kept as a number times a bag of symbols, and what the
 * target names is cancelled out of it. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t allowzero;
} reshape_attrs;

static const sb_attr_def attrs[] = {
    {"allowzero", SB_ATTR_INT, offsetof(reshape_attrs, allowzero), .i = 0,
     .flag = true},
    {0},
};

/* A product of dimensions: number times symbols. */
typedef struct {
    int64_t number;
    int n_symbols;
    sb_dim symbols[SB_MAX_RANK];
    bool known; /* false: a factor is unknown, or overflow */
} dim_product;

static void product_mul(dim_product *p, sb_dim d)
{
    if (d == SB_DIM_UNKNOWN)
        p->known = false;
    else if (!sb_dim_known(d))
        p->symbols[p->n_symbols++] = d;
    else if (!sb_mul_i64(p->number, d, &p->number))
        p->known = false;
}

static dim_product product_of(const sb_shape *s, int skip)
{
    dim_product p = {.number = 1, .known = s->rank >= 0};

    for (int i = 0; i < s->rank; i++)
        if (i != skip)
            product_mul(&p, s->dim[i]);
    return p;
}

/* Takes the symbols of b out of a; those that are not there stay in b. */
static void product_cancel(dim_product *a, dim_product *b)
{
    int kept = 0;

    for (int i = 0; i < b->n_symbols; i++) {
        int j = 0;
        while (j < a->n_symbols && a->symbols[j] != b->symbols[i])
            j++;
        if (j < a->n_symbols)
            a->symbols[j] = a->symbols[--a->n_symbols];
        else
            b->symbols[kept++] = b->symbols[i];
    }
    b->n_symbols = kept;
}

/* The one dimension of `out` that is left open: all / named. */
static sb_status reshape_solve(const sb_infer *in, sb_shape *out, int open)
{
    dim_product all = product_of(&in->in[0]->type.shape, -1);
    dim_product named = product_of(out, open);

    if (!all.known || !named.known)
        return SB_OK;
    product_cancel(&all, &named);
    if (named.n_symbols)
        return SB_OK;
    if (all.n_symbols == 0) {
        if (named.number == 0)
            return all.number == 0 ? SB_OK
                                   : sb_infer_fail(in,
                                                   "%lld elements do not "
                                                   "fit a shape with 0",
                                                   (long long)all.number);
        if (all.number % named.number)
            return sb_infer_fail(
                in, "%lld elements do not divide by %lld, the other dimensions",
                (long long)all.number, (long long)named.number);
        out->dim[open] = all.number / named.number;
    } else if (all.n_symbols == 1 && all.number == named.number &&
               named.number) {
        out->dim[open] = all.symbols[0];
    }
    return SB_OK;
}

static sb_status reshape_check(const sb_infer *in, const sb_shape *out)
{
    dim_product a = product_of(&in->in[0]->type.shape, -1);
    dim_product b = product_of(out, -1);

    if (!a.known || !b.known)
        return SB_OK;
    product_cancel(&a, &b);
    if (a.n_symbols || b.n_symbols || a.number == b.number)
        return SB_OK;
    return sb_infer_fail(in, "%lld elements do not fit a shape of %lld",
                         (long long)a.number, (long long)b.number);
}

/* Fills `out` from the target; the index of the open dimension, -1 if none,
 * -2 if there is more than one. */
static sb_status reshape_target(const sb_infer *in, const sb_shape *target,
                                sb_shape *out, int *open)
{
    const reshape_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    int n_minus = 0, n_unknown = 0;

    *open = -1;
    out->rank = target->rank;
    for (int i = 0; i < target->rank; i++) {
        sb_dim d = target->dim[i];
        out->dim[i] = d;
        if (d == 0 && !a->allowzero) {
            if (x->rank >= 0 && i >= x->rank)
                return sb_infer_fail(
                    in, "shape[%d] is 0 but the input has rank %d", i, x->rank);
            out->dim[i] = x->rank < 0 ? SB_DIM_UNKNOWN : x->dim[i];
            continue;
        }
        if (sb_dim_known(d) && d < -1)
            return sb_infer_fail(in, "shape[%d] is %lld", i, (long long)d);
        if (d == -1) {
            out->dim[i] = SB_DIM_UNKNOWN;
            *open = i;
            if (++n_minus > 1)
                return sb_infer_fail(in, "the shape has more than one -1");
        } else if (d == SB_DIM_UNKNOWN) {
            n_unknown++;
            if (n_minus == 0)
                *open = i;
        }
    }
    if (n_minus + n_unknown > 1)
        *open = -2;
    return SB_OK;
}

static sb_status reshape_infer(sb_infer *in)
{
    const sb_fact *x = in->in[0];
    sb_shape target = {0}, out = sb_shape_unknown();
    int open = -1;

    SB_TRY(sb_infer_want_ints(in, 1));
    if (!sb_infer_content(in, 1, &target)) {
        int64_t n = sb_infer_length(in, 1);
        if (n > SB_MAX_RANK)
            return sb_infer_fail(in, "rank %lld, want at most %d", (long long)n,
                                 SB_MAX_RANK);
        sb_infer_set(in, 0, x->type.dtype, &out);
        return SB_OK;
    }
    SB_TRY(reshape_target(in, &target, &out, &open));
    if (open >= 0)
        SB_TRY(reshape_solve(in, &out, open));
    SB_TRY(reshape_check(in, &out));
    sb_infer_set(in, 0, x->type.dtype, &out);
    if (x->content.rank >= 0)
        sb_infer_set_content(in, 0, &x->content);
    return SB_OK;
}

const sb_op_def sb_op_reshape = {
    .name = "Reshape",
    .since = 14,
    .quant = SB_ROLE_PASS,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_VIEW,
    .attrs_size = sizeof(reshape_attrs),
    .attrs = attrs,
    .batch = sb_batch_reshape,
    .infer = reshape_infer,
    .layout = sb_view_layout,
    .forward = sb_view_forward,
    .grad = sb_grad_view,
    .tie = sb_tie_reshape,
    .recut = sb_recut_reshape,
};
