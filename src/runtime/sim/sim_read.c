/* Q and DQ nodes read: parameters, comparisons, and what stands around. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "ops/quantized/quant_util.h"
#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

static bool is_ms(const sb_node *node)
{
    return strcmp(node->domain, "com.microsoft") == 0;
}

bool sb_is_q(const sb_node *node)
{
    return strcmp(node->op, "QuantizeLinear") == 0 &&
           (!*node->domain || is_ms(node));
}

bool sb_is_dq(const sb_node *node)
{
    return strcmp(node->op, "DequantizeLinear") == 0 &&
           (!*node->domain || is_ms(node));
}

/* Rank 0 or one element in rank 1; `rank0` is cleared for the second. */
static bool is_scalar(const sb_graph *g, sb_value_id value, bool *rank0)
{
    const sb_shape *s = &sb_graph_value(g, value)->type.shape;
    int rank = s->rank;
    sb_dim first = rank == 1 ? s->dim[0] : 1;

    if (sb_graph_value(g, value)->is_constant) {
        const sb_tensor *t = &sb_graph_value(g, value)->constant;
        rank = t->rank;
        first = rank == 1 ? t->dims[0] : 1;
    }
    if (rank != 0)
        *rank0 = false;
    return rank == 0 || (rank == 1 && first == 1);
}

static sb_dtype type_of(const sb_graph *g, const sb_node *node,
                        sb_value_id zero)
{
    if (zero != SB_NONE) {
        const sb_value *v = sb_graph_value(g, zero);
        sb_dtype t = v->is_constant ? v->constant.dtype : v->type.dtype;
        if (t != SB_DTYPE_NONE)
            return t;
    }
    if (sb_is_q(node)) {
        int64_t t = sb_node_int(node, "output_dtype", 0);
        return t > 0 && sb_dtype_valid((int)t) ? (sb_dtype)t : SB_DTYPE_U8;
    }
    const sb_value *x = sb_graph_value(g, node->inputs[0]);
    return x->is_constant ? x->constant.dtype : x->type.dtype;
}

void sb_qdq_read(const sb_graph *g, const sb_node *node, sb_qdq *out)
{
    *out = (sb_qdq){.scale = sb_node_in(node, 1),
                    .zero = sb_node_in(node, 2),
                    .is_constant = true,
                    .is_scalar = true,
                    .is_rank0 = true};
    out->type = type_of(g, node, out->zero);
    if (out->scale == SB_NONE) { /* a broken file */
        out->is_constant = out->is_scalar = out->is_rank0 = false;
        return;
    }
    out->is_constant = sb_is_const(g, out->scale);
    out->is_scalar = is_scalar(g, out->scale, &out->is_rank0);
    if (out->zero != SB_NONE) {
        out->is_constant = out->is_constant && sb_is_const(g, out->zero);
        out->is_scalar =
            is_scalar(g, out->zero, &out->is_rank0) && out->is_scalar;
    }
    if (!out->is_constant || !out->is_scalar)
        return;
    out->s =
        (float)sb_tensor_get_f64(&sb_graph_value(g, out->scale)->constant, 0);
    if (out->zero != SB_NONE)
        out->z = sb_tensor_get_i64(&sb_graph_value(g, out->zero)->constant, 0);
}

bool sb_qdq_same(const sb_qdq *a, const sb_qdq *b)
{
    return a->zero != SB_NONE && b->zero != SB_NONE && a->is_constant &&
           b->is_constant && a->is_scalar && b->is_scalar &&
           a->type == b->type && a->s == b->s && a->z == b->z;
}

bool sb_shared_constant(const sb_graph *g, sb_value_id a, sb_value_id b)
{
    if (!sb_is_const(g, a) || !sb_is_const(g, b))
        return false;
    const sb_tensor *x = &sb_graph_value(g, a)->constant;
    const sb_tensor *y = &sb_graph_value(g, b)->constant;
    bool type = x->dtype == SB_DTYPE_F32 || x->dtype == SB_DTYPE_I64 ||
                x->dtype == SB_DTYPE_I32 || x->dtype == SB_DTYPE_F16;
    if (!type || x->dtype != y->dtype || x->rank != y->rank || x->rank > 1 ||
        sb_tensor_count(x) > 8 || sb_tensor_count(x) != sb_tensor_count(y))
        return false;
    return memcmp(x->data, y->data, sb_tensor_bytes(x)) == 0;
}

/* ---- weights quantized alone ---------------------------------------------- */

bool sb_weight_blocks_fit(const sb_graph *g, const sb_node *dq)
{
    const sb_tensor *w = &sb_graph_value(g, dq->inputs[0])->constant;
    const sb_tensor *s = &sb_graph_value(g, dq->inputs[1])->constant;
    sb_value_id zero = sb_node_in(dq, 2);
    const sb_tensor *z =
        zero == SB_NONE ? NULL : &sb_graph_value(g, zero)->constant;
    int64_t block = sb_node_int(dq, "block_size", 0);
    int64_t axis = sb_node_int(dq, "axis", 1);

    if (w->rank != 2)
        return false;
    if (block > 0)
        return axis == 0 && block >= 16 && block <= 256 &&
               (block & (block - 1)) == 0 && s->rank == 2 &&
               (w->dims[0] + block - 1) / block == s->dims[0] &&
               w->dims[1] == s->dims[1] &&
               (!z || (z->rank == 2 && z->dims[0] == s->dims[0] &&
                       z->dims[1] == s->dims[1]));
    if (s->rank == 0)
        return !z || z->rank == 0;
    return s->rank == 1 && s->dims[0] == w->dims[1] && axis == 1 &&
           (!z || (z->rank == 1 && z->dims[0] == w->dims[1]));
}

bool sb_const_elsewhere(const sb_graph *g, sb_value_id value)
{
    if (sb_graph_value(g, value)->n_uses > 1)
        return true;
    for (size_t i = 0; i < g->n_values; i++)
        if (i != value && g->values[i].n_uses > 0 &&
            sb_shared_constant(g, (sb_value_id)i, value))
            return true;
    return false;
}

/* ---- around a node ------------------------------------------------------ */

sb_node *sb_dq_of(const sb_graph *g, const sb_node *node, uint32_t i)
{
    sb_value_id in = sb_node_in(node, i);
    sb_node *from = in == SB_NONE ? NULL : sb_graph_producer(g, in);

    return from && sb_is_dq(from) ? from : NULL;
}

bool sb_qdq_from_const(const sb_graph *g, sb_value_id value)
{
    for (int depth = 0; depth < 8; depth++) {
        if (value == SB_NONE)
            return false;
        if (sb_is_const(g, value))
            return true;
        const sb_node *from = sb_graph_producer(g, value);
        if (!from ||
            (!sb_is_qdq(from) && !sb_node_is(from, "Transpose") &&
             !sb_node_is(from, "Reshape") && !sb_node_is(from, "Identity")))
            return false;
        value = sb_node_in(from, 0);
    }
    return false;
}

size_t sb_node_edges(const sb_graph *g, const sb_node *node)
{
    size_t n = 0;

    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE)
            n += sb_graph_value(g, node->outputs[i])->n_uses;
    return n;
}

bool sb_node_makes_output(const sb_graph *g, const sb_node *node)
{
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE &&
            sb_graph_value(g, node->outputs[i])->is_output)
            return true;
    return false;
}

/* ---- Relu and Clip ------------------------------------------------------ */

/* A limit: absent, a constant of one element, or such a constant behind a DQ.
 */
static bool clip_limit(const sb_graph *g, sb_value_id value, float *out)
{
    double v;

    if (value == SB_NONE)
        return true;
    if (sb_is_const(g, value)) {
        sb_dtype t = sb_graph_value(g, value)->constant.dtype;
        if ((t != SB_DTYPE_F32 && t != SB_DTYPE_F16) ||
            !sb_const_scalar(g, value, &v))
            return false;
        *out = (float)v;
        return true;
    }
    const sb_node *dq = sb_graph_producer(g, value);
    sb_qdq p;
    if (!dq || !sb_is_dq(dq) || !sb_const_scalar(g, dq->inputs[0], &v))
        return false;
    sb_qdq_read(g, dq, &p);
    if (p.zero == SB_NONE || !p.is_constant || !p.is_scalar)
        return false;
    *out = ((float)v - (float)p.z) * p.s;
    return true;
}

bool sb_clip_limits(const sb_graph *g, const sb_node *clip, float *lo,
                    float *hi)
{
    *lo = -FLT_MAX;
    *hi = FLT_MAX;
    return clip_limit(g, sb_node_in(clip, 1), lo) &&
           clip_limit(g, sb_node_in(clip, 2), hi);
}

bool sb_clip_redundant(const sb_graph *g, const sb_node *clip, const sb_node *q)
{
    float lo, hi;
    sb_qdq p;

    sb_qdq_read(g, q, &p);
    if (!p.is_constant || !p.is_rank0 ||
        sb_graph_value(g, p.scale)->constant.dtype != SB_DTYPE_F32)
        return false;
    switch (p.type) {
    case SB_DTYPE_U8:
    case SB_DTYPE_I8:
    case SB_DTYPE_U16:
    case SB_DTYPE_I16:
        break;
    default:
        return false;
    }
    if (sb_node_is(clip, "Relu"))
        return p.z == sb_quant_min(p.type);
    if (!sb_clip_limits(g, clip, &lo, &hi) || !(p.s > 0))
        return false;
    double q_lo = rint((double)(lo / p.s)), q_hi = rint((double)(hi / p.s));
    /* It becomes an int32; what is too large, as a limit that is absent,
     * becomes the least of them. */
    if (!(q_hi <= INT32_MAX))
        return false;
    q_lo += (double)p.z;
    q_hi += (double)p.z;
    return q_lo <= sb_quant_min(p.type) && q_hi >= sb_quant_max(p.type);
}

/* ---- saturation --------------------------------------------------------- */

/* The weights of one output along k, the axis that is summed over, in the order
 * in which kernels take them. */
typedef struct k_line {
    const int8_t *v;
    int64_t n;     /* elements */
    int64_t inner; /* index i is at (i % inner) * step + (i / inner) * far */
    int64_t step, far;
} k_line;

static int larger_of(int a, int b)
{
    return a > b ? a : b;
}

/* Of two neighbors of one sign: such products add up, others cancel. */
static inline int pair_of(int a, int b)
{
    int up = (a > 0 ? a : 0) + (b > 0 ? b : 0);
    int down = (a < 0 ? -a : 0) + (b < 0 ? -b : 0);

    return up > down ? up : down;
}

/* The largest sum; the last of an odd number stands alone. */
static int pair_sum(const k_line *line)
{
    const int8_t *at = line->v;
    int64_t left = line->inner; /* until the next one is far away */
    int most = 0, first = 0;

    for (int64_t i = 0; i < line->n; i++) {
        if (left-- == 0) {
            at += line->far - line->inner * line->step;
            left = line->inner - 1;
        }
        if (i % 2 != 0 || i + 1 == line->n)
            most = larger_of(most, pair_of(*at, i % 2 != 0 ? first : 0));
        first = *at;
        at += line->step;
    }
    return most;
}

/* The same for each of `columns` of a matrix with k rows of n: a column by
 * itself would fetch a line of the cache for each of its elements. */
SB_HOT static void pair_sum_columns(const int8_t *w, int64_t k, int64_t n,
                                    int64_t columns, int *most)
{
    for (int64_t i = 0; i + 1 < k; i += 2) {
        const int8_t *a = w + i * n, *b = a + n;

        SB_SIMD
        for (int64_t j = 0; j < columns; j++) {
            int sum = pair_of(a[j], b[j]);

            most[j] = most[j] > sum ? most[j] : sum;
        }
    }
    for (int64_t j = 0; j < columns && k % 2 != 0; j++)
        most[j] = larger_of(most[j], pair_of(w[(k - 1) * n + j], 0));
}

/* [M, C, kernel...] or, transposed, [C, M, kernel...]: channels are innermost
 * where it is summed.  Depthwise kernels multiply one by one. */
static int conv_pair_sum(const sb_tensor *w, int axis, int64_t m)
{
    int64_t c = w->dims[1 - axis], size = sb_dims_product(w->dims, 2, w->rank);

    if (c == 1)
        return 0;
    k_line line = {.v = (const int8_t *)w->data + m * size * (axis ? 1 : c),
                   .n = c * size,
                   .inner = c,
                   .step = size * (axis ? w->dims[1] : 1),
                   .far = 1};
    return pair_sum(&line);
}

bool sb_weight_saturates(const sb_graph *g, const sb_node *node,
                         const sb_node *dq)
{
    sb_value_id value = sb_node_in(dq, 0);
    if (!sb_is_const(g, value))
        return false;
    int most;
    return sb_integers_pair_sums(node, &sb_graph_value(g, value)->constant, -1,
                                 &most);
}

/* Rows of matrices [..., N, K]: a weight that is transposed. */
static void pair_sums_rows(const sb_tensor *w, int64_t first, int64_t end,
                           int *sums)
{
    int64_t n = w->dims[w->rank - 2], k = w->dims[w->rank - 1];
    int64_t batch = sb_dims_product(w->dims, 0, w->rank - 2);

    for (int64_t b = 0; b < batch; b++)
        for (int64_t j = first; j < end; j++) {
            const k_line line = {.v = (const int8_t *)w->data + (b * n + j) * k,
                                 .n = k,
                                 .inner = k,
                                 .step = 1};
            sums[j - first] = larger_of(sums[j - first], pair_sum(&line));
        }
}

/* Columns of matrices [..., K, N]. */
static void pair_sums_columns(const sb_tensor *w, int64_t first, int64_t end,
                              int *sums)
{
    int64_t n = w->dims[w->rank - 1], k = w->dims[w->rank - 2];
    int64_t batch = sb_dims_product(w->dims, 0, w->rank - 2);

    for (int64_t b = 0; b < batch; b++)
        pair_sum_columns((const int8_t *)w->data + b * n * k + first, k, n,
                         end - first, sums);
}

/* Of outputs [first, end), in `sums`, which are 0. */
static void pair_sums_some(const sb_tensor *w, int outputs, int64_t first,
                           int64_t end, int *sums)
{
    if (w->rank > 2 && outputs < w->rank - 1)
        for (int64_t i = first; i < end; i++)
            sums[i - first] = conv_pair_sum(w, outputs, i);
    else if (outputs < w->rank - 1)
        pair_sums_rows(w, first, end, sums);
    else
        pair_sums_columns(w, first, end, sums);
}

bool sb_integers_pair_sums(const sb_node *node, const sb_tensor *w, int axis,
                           int *most)
{
    enum { AT_ONCE = 64 }; /* a line of the cache */
    int outputs = sb_op_weight_axis(node, w->rank);
    bool over = false;

    for (int64_t i = 0; i < (axis < 0 ? 1 : w->dims[axis]); i++)
        most[i] = 0;
    if (w->dtype != SB_DTYPE_I8 || w->rank < 2 ||
        sb_node_role(node) != SB_ROLE_WEIGHTED ||
        (axis >= 0 && axis != outputs))
        return false;
    for (int64_t i = 0; i < w->dims[outputs]; i += AT_ONCE) {
        int64_t left = w->dims[outputs] - i,
                n = left < AT_ONCE ? left : AT_ONCE;
        int sums[AT_ONCE] = {0};

        pair_sums_some(w, outputs, i, i + n, sums);
        for (int64_t k = 0; k < n; k++) {
            int *at = &most[axis < 0 ? 0 : i + k];
            *at = larger_of(*at, sums[k]);
            over = over || sums[k] > SB_PAIR_SUM_MOST;
        }
    }
    return over;
}
