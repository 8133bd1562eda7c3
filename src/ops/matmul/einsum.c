/* Einsum: sums of products named by letters, "bij,bjk->bik".
 *
 * Every letter, and every dimension of an ellipsis, is a label with a size.
 * Operands are contracted from left to right.  For each pair the labels fall
 * into four kinds: batch (in both, needed later), rows (left only), columns
 * (right only), inner (in both, not needed later); labels of one operand that
 * are not needed are summed while it is packed.  Packed as [batch, rows, inner]
 * and [batch, inner, columns] the pair is a batch of matrix products.  A
 * repeated letter in one operand walks its diagonal; an operand of size 1
 * where the label is larger is repeated by leaving the label out. */
#include "ops/matmul/einsum.h"
#include "ops/grad/grad_rules.h"

#include <string.h>

#include "base/threads.h"
#include "ops/infer_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    const char *equation;
} einsum_attrs;

static const sb_attr_def attrs[] = {
    {"equation", SB_ATTR_STRING, offsetof(einsum_attrs, equation),
     .required = true},
    {0},
};

/* ---- shapes ------------------------------------------------------------- */

static sb_status einsum_infer(sb_infer *in)
{
    const einsum_attrs *a = in->attrs;
    sb_shape shapes[SB_EINSUM_MAX_IN], out = sb_shape_unknown();
    sb_einsum_terms terms;
    const char *why = NULL;
    bool ranks = true;

    if (in->n_in > SB_EINSUM_MAX_IN)
        return sb_infer_fail(in, "%u inputs, want at most %d", in->n_in,
                             SB_EINSUM_MAX_IN);
    for (uint32_t i = 0; i < in->n_in; i++) {
        if (!in->in[i])
            return sb_infer_fail(in, "input %u is absent", i);
        shapes[i] = in->in[i]->type.shape;
        ranks = ranks && shapes[i].rank >= 0;
    }
    if (ranks) {
        if (!sb_einsum_parse(a->equation, in->n_in, shapes, &terms, &why))
            return sb_infer_fail(in, "equation '%s': %s", a->equation, why);
        out.rank = terms.out.n;
        for (int d = 0; d < out.rank; d++)
            out.dim[d] = terms.size[terms.out.label[d]];
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

/* ---- views -------------------------------------------------------------- */

/* An operand: distinct labels with strides in elements. */
typedef struct einsum_view {
    int n;
    uint8_t label[SB_EINSUM_LABELS];
    size_t stride[SB_EINSUM_LABELS];
    sb_dtype dtype; /* of the elements in memory */
    const void *data;
} einsum_view;

typedef uint64_t label_set; /* bit i: label i */

_Static_assert(SB_EINSUM_LABELS <= 64, "a label set is a uint64");

/* What prepare() leaves: for the pair that takes in input i, a product by
 * oneDNN, empty where our own loops serve. */
typedef struct einsum_state {
    sb_einsum_gemm gemm[SB_EINSUM_MAX_IN];
} einsum_state;

typedef struct einsum_run {
    sb_kernel *k;
    const sb_einsum_terms *terms;
    sb_dtype as;         /* F32, F64 or I64: what is computed with */
    size_t size;         /* bytes of it */
    char *memory;        /* scratch; NULL while only measuring */
    size_t used, most;   /* bytes of scratch */
    sb_status status;    /* of the first thing that failed */
    einsum_state *state; /* oneDNN's products, one for each pair */
} einsum_run;

static size_t label_size(const einsum_run *r, int label)
{
    return (size_t)r->terms->size[label];
}

static einsum_view view_of(const einsum_run *r, uint32_t i)
{
    const sb_tensor *t = r->k->in[i];
    const sb_einsum_term *term = &r->terms->in[i];
    einsum_view v = {.dtype = t->dtype, .data = t->data};
    size_t stride = 1;

    for (int d = t->rank - 1; d >= 0; d--) {
        int label = term->label[d], at = 0;

        if (t->dims[d] == 1 && label_size(r, label) != 1)
            continue; /* repeated along this label */
        while (at < v.n && v.label[at] != label)
            at++;
        if (at == v.n) {
            v.label[v.n] = (uint8_t)label;
            v.stride[v.n++] = 0;
        }
        v.stride[at] += stride; /* twice: the diagonal */
        stride *= (size_t)t->dims[d];
    }
    return v;
}

static label_set labels_of(const einsum_view *v)
{
    label_set set = 0;

    for (int i = 0; i < v->n; i++)
        set |= UINT64_C(1) << v->label[i];
    return set;
}

static size_t stride_of(const einsum_view *v, int label)
{
    for (int i = 0; i < v->n; i++)
        if (v->label[i] == label)
            return v->stride[i];
    return 0;
}

/* ---- packing ------------------------------------------------------------ */

typedef struct einsum_loop {
    size_t n, stride;
} einsum_loop;

/* Copies a view into order `label[0..n)`, row-major; its other labels are
 * summed. */
typedef struct einsum_pack {
    einsum_loop outer[SB_EINSUM_LABELS], sum[SB_EINSUM_LABELS];
    int n_outer, n_sum;
    size_t count, terms; /* results, and elements summed for each */
    const einsum_view *v;
    size_t v_size;
    sb_dtype as;
    void *out;
} einsum_pack;

static size_t loop_offset(const einsum_loop *loops, int n, size_t i)
{
    size_t at = 0;

    for (int l = n - 1; l >= 0; l--) {
        at += i % loops[l].n * loops[l].stride;
        i /= loops[l].n;
    }
    return at;
}

#define PACK(id, T)                                                         \
    static void id(const einsum_pack *p, size_t begin, size_t end)          \
    {                                                                       \
        T *out = p->out;                                                    \
        bool direct = p->v->dtype == p->as;                                 \
        for (size_t i = begin; i < end; i++) {                              \
            size_t at = loop_offset(p->outer, p->n_outer, i);               \
            T total = 0;                                                    \
            for (size_t s = 0; s < p->terms; s++) {                         \
                size_t from = at + loop_offset(p->sum, p->n_sum, s);        \
                T x;                                                        \
                if (direct)                                                 \
                    x = ((const T *)p->v->data)[from];                      \
                else                                                        \
                    sb_convert(p->v->dtype,                                 \
                               (const char *)p->v->data + from * p->v_size, \
                               p->as, &x, 1);                               \
                total += x;                                                 \
            }                                                               \
            out[i] = total;                                                 \
        }                                                                   \
    }

PACK(pack_f32, float)
PACK(pack_f64, double)
PACK(pack_i64, uint64_t)

static void pack_range(void *arg, size_t begin, size_t end)
{
    const einsum_pack *p = arg;

    if (p->as == SB_DTYPE_F32)
        pack_f32(p, begin, end);
    else if (p->as == SB_DTYPE_F64)
        pack_f64(p, begin, end);
    else
        pack_i64(p, begin, end);
}

static einsum_pack pack_plan(const einsum_run *r, const einsum_view *v,
                             const uint8_t *label, int n)
{
    einsum_pack p = {.count = 1,
                     .terms = 1,
                     .v = v,
                     .as = r->as,
                     .v_size = sb_dtype_size(v->dtype)};
    label_set wanted = 0;

    for (int i = 0; i < n; i++) {
        einsum_loop loop = {label_size(r, label[i]), stride_of(v, label[i])};
        wanted |= UINT64_C(1) << label[i];
        p.count *= loop.n;
        p.outer[p.n_outer++] = loop;
    }
    for (int i = 0; i < v->n; i++) {
        if (wanted >> v->label[i] & 1)
            continue;
        p.sum[p.n_sum++] =
            (einsum_loop){label_size(r, v->label[i]), v->stride[i]};
        p.terms *= label_size(r, v->label[i]);
    }
    return p;
}

/* Is the view already what packing would make of it? */
static bool pack_is_free(const einsum_pack *p)
{
    size_t stride = 1;

    if (p->v->dtype != p->as || p->n_sum > 0)
        return false;
    for (int l = p->n_outer - 1; l >= 0; l--) {
        if (p->outer[l].n != 1 && p->outer[l].stride != stride)
            return false;
        stride *= p->outer[l].n;
    }
    return true;
}

/* ---- scratch ------------------------------------------------------------ */
/* The same code runs to measure (memory is NULL) and to compute. */

static void einsum_too_large(einsum_run *r)
{
    r->status = sb_kernel_fail(r->k, SB_NO_MEMORY,
                               "intermediate results are too large");
}

static void *einsum_take(einsum_run *r, size_t count)
{
    size_t at = r->used, bytes = 0;

    if (!sb_mul_size(count, r->size, &bytes) ||
        !sb_add_size(bytes, SB_ALIGN - 1, &bytes) ||
        !sb_add_size(r->used, bytes / SB_ALIGN * SB_ALIGN, &r->used)) {
        einsum_too_large(r);
        return NULL;
    }
    if (r->used > r->most)
        r->most = r->used;
    return r->memory ? r->memory + at : NULL;
}

static bool set_size(const einsum_run *r, label_set set, size_t *out)
{
    *out = 1;
    for (int l = 0; l < SB_EINSUM_LABELS; l++)
        if (set >> l & 1 && !sb_mul_size(*out, label_size(r, l), out))
            return false;
    return true;
}

/* The view as packed elements: itself if it is so already. */
static const void *einsum_packed(einsum_run *r, const einsum_view *v,
                                 const uint8_t *label, int n)
{
    einsum_pack p = pack_plan(r, v, label, n);

    if (pack_is_free(&p))
        return v->data;
    p.out = einsum_take(r, p.count);
    if (r->memory)
        sb_parallel_for(r->k->ctx, p.count, 4096, pack_range, &p);
    return p.out;
}

/* ---- pairs -------------------------------------------------------------- */

/* Computes the packed pair i; while measuring, makes ready for it. */
static void einsum_multiply(einsum_run *r, uint32_t i,
                            const sb_einsum_product *p)
{
    sb_einsum_gemm *gemm = &r->state->gemm[i];
    void *scratch = NULL;

    if (!r->memory && r->status == SB_OK)
        r->status = sb_einsum_gemm_create(r->k->ctx, p, gemm);
    if (r->status == SB_OK && gemm->gemm)
        scratch = einsum_take(r, sb_dnn_gemm_scratch(gemm->gemm) / r->size + 1);
    if (r->memory && r->status == SB_OK)
        r->status = sb_einsum_product_run(r->k->ctx, p, gemm, scratch);
}

/* Appends the labels of a set in order. */
static int add_labels(uint8_t *label, int n, label_set set)
{
    for (int l = 0; l < SB_EINSUM_LABELS; l++)
        if (set >> l & 1)
            label[n++] = (uint8_t)l;
    return n;
}

/* left := left * input i, keeping the labels in `needed`. */
static void einsum_pair(einsum_run *r, einsum_view *left, uint32_t i,
                        label_set needed)
{
    einsum_view right = view_of(r, i);
    label_set a = labels_of(left), b = labels_of(&right);
    label_set batch = a & b & needed, inner = a & b & ~needed;
    label_set rows = a & ~b & needed, cols = b & ~a & needed;
    uint8_t label[SB_EINSUM_LABELS];
    sb_einsum_product p = {.as = r->as};
    size_t count = 0;

    if (!set_size(r, batch, &p.batch) || !set_size(r, rows, &p.rows) ||
        !set_size(r, inner, &p.inner) || !set_size(r, cols, &p.cols) ||
        !set_size(r, batch | rows | cols, &count)) {
        einsum_too_large(r);
        return;
    }
    p.c = einsum_take(r, count);
    size_t keep = r->used; /* the packed operands go when the pair is done */
    int n = add_labels(label, add_labels(label, 0, batch), rows);
    p.a = einsum_packed(r, left, label, add_labels(label, n, inner));
    n = add_labels(label, add_labels(label, 0, batch), inner);
    p.b = einsum_packed(r, &right, label, add_labels(label, n, cols));
    einsum_multiply(r, i, &p);
    r->used = keep;

    *left = (einsum_view){.dtype = r->as, .data = p.c};
    left->n = add_labels(left->label, add_labels(left->label, 0, batch), rows);
    left->n = add_labels(left->label, left->n, cols);
    size_t stride = 1;
    for (int d = left->n - 1; d >= 0; d--) {
        left->stride[d] = stride;
        stride *= label_size(r, left->label[d]);
    }
}

/* All pairs, then the order of the output. */
static void einsum_all(einsum_run *r, sb_tensor *y)
{
    einsum_view left = view_of(r, 0);

    for (uint32_t i = 1; i < r->k->n_in && r->status == SB_OK; i++) {
        label_set needed = 0;

        for (int d = 0; d < r->terms->out.n; d++)
            needed |= UINT64_C(1) << r->terms->out.label[d];
        for (uint32_t j = i + 1; j < r->k->n_in; j++) {
            einsum_view later = view_of(r, j);
            needed |= labels_of(&later);
        }
        einsum_pair(r, &left, i, needed);
    }
    if (r->status != SB_OK)
        return;
    einsum_pack p = pack_plan(r, &left, r->terms->out.label, r->terms->out.n);
    p.out = y->dtype == r->as ? y->data : einsum_take(r, p.count);
    if (!r->memory || p.count == 0)
        return;
    sb_parallel_for(r->k->ctx, p.count, 4096, pack_range, &p);
    if (y->dtype != r->as)
        sb_convert(r->as, p.out, y->dtype, y->data, p.count);
}

/* ---- the operator ------------------------------------------------------- */

static sb_status einsum_start(sb_kernel *k, sb_einsum_terms *terms,
                              einsum_run *run)
{
    const einsum_attrs *a = k->attrs;
    sb_dtype t = k->in[0]->dtype;
    sb_shape shapes[SB_EINSUM_MAX_IN];
    const char *why = NULL;

    for (uint32_t i = 0; i < k->n_in; i++)
        shapes[i] = sb_shape_of(k->in[i]);
    if (!sb_einsum_parse(a->equation, k->n_in, shapes, terms, &why))
        return sb_kernel_fail(k, SB_BAD_MODEL, "equation '%s': %s", a->equation,
                              why);
    *run = (einsum_run){.k = k, .terms = terms};
    run->as = t == SB_DTYPE_F64         ? SB_DTYPE_F64
              : sb_dtype_is_integral(t) ? SB_DTYPE_I64
                                        : SB_DTYPE_F32;
    run->size = sb_dtype_size(run->as);
    return SB_OK;
}

static sb_status einsum_prepare(sb_kernel *k)
{
    sb_einsum_terms terms;
    einsum_run run;

    if (k->n_in > SB_EINSUM_MAX_IN)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "%u inputs, at most %d",
                              k->n_in, SB_EINSUM_MAX_IN);
    for (uint32_t i = 0; i < k->n_in; i++) {
        sb_dtype_class cls = sb_dtype_get(k->in[i]->dtype)->cls;

        if (cls == SB_CLASS_OTHER || cls == SB_CLASS_BOOL ||
            sb_dtype_size(k->in[i]->dtype) == 0 ||
            k->in[i]->dtype != k->in[0]->dtype)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "input %u of type %s", i,
                                  sb_dtype_name(k->in[i]->dtype));
    }
    SB_TRY(einsum_start(k, &terms, &run));
    k->state = run.state = sb_alloc(k->ctx, 1, sizeof *run.state);
    if (!run.state)
        return SB_NO_MEMORY;
    einsum_all(&run, k->out[0]);
    /* Nothing is NULL in a run, so that NULL can mean measuring. */
    k->scratch_size = run.most + SB_ALIGN;
    return run.status;
}

static void einsum_release(sb_kernel *k)
{
    einsum_state *state = k->state;

    for (int i = 0; i < SB_EINSUM_MAX_IN; i++)
        sb_einsum_gemm_free(k->ctx, &state->gemm[i]);
    sb_free(k->ctx, state);
}

static sb_status einsum_forward(sb_kernel *k)
{
    sb_einsum_terms terms;
    einsum_run run;

    SB_TRY(einsum_start(k, &terms, &run));
    run.memory = k->scratch;
    run.state = k->state;
    einsum_all(&run, k->out[0]);
    return run.status;
}

static double einsum_macs(const sb_kernel *k)
{
    const einsum_attrs *a = k->attrs;
    sb_shape shapes[SB_EINSUM_MAX_IN];
    sb_einsum_terms terms;
    const char *why = NULL;
    double macs = k->n_in > 1 ? 1 : 0;

    if (k->n_in > SB_EINSUM_MAX_IN)
        return 0;
    for (uint32_t i = 0; i < k->n_in; i++)
        shapes[i] = sb_shape_of(k->in[i]);
    if (!sb_einsum_parse(a->equation, k->n_in, shapes, &terms, &why))
        return 0;
    for (int l = 0; l < SB_EINSUM_LABELS; l++)
        if (terms.used >> l & 1)
            macs *= (double)terms.size[l];
    return macs;
}

const sb_op_def sb_op_einsum = {
    .name = "Einsum",
    .since = 12,
    .in_min = 1,
    .in_max = SB_ARITY_ANY,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(einsum_attrs),
    .attrs = attrs,
    .infer = einsum_infer,
    .prepare = einsum_prepare,
    .forward = einsum_forward,
    .release = einsum_release,
    .macs = einsum_macs,
    .grad = sb_grad_einsum,
    .tie = sb_tie_einsum,
};
