/* RotaryEmbedding: pairs of elements of each head are rotated by an angle that
 * depends on the position (arXiv 2104.09864):
 *
 *     (x1, x2) -> (c x1 - s x2, s x1 + c x2)
 *
 * The pair is (i, i + half), or (2i, 2i + 1) if interleaved; elements beyond
 * rotary_embedding_dim are kept. */
#include "ops/attention/rotary.h"
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/infer_util.h"
#include "ops/tie/tie_rules.h"

#include "base/threads.h"

typedef struct {
    int64_t interleaved, num_heads, rotary_embedding_dim;
} rotary_attrs;

static const sb_attr_def attrs[] = {
    {"interleaved", SB_ATTR_INT, offsetof(rotary_attrs, interleaved), .i = 0,
     .flag = true},
    {"num_heads", SB_ATTR_INT, offsetof(rotary_attrs, num_heads), .i = 0},
    {"rotary_embedding_dim", SB_ATTR_INT,
     offsetof(rotary_attrs, rotary_embedding_dim), .i = 0},
    {0},
};

static sb_status rotary_infer(sb_infer *in)
{
    const rotary_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;

    if (x->rank >= 0 && x->rank != 3 && x->rank != 4)
        return sb_infer_fail(in, "input of rank %d, want 3 or 4", x->rank);
    if (x->rank == 3 && (a->num_heads < 1 ||
                         (sb_dim_known(x->dim[2]) && x->dim[2] % a->num_heads)))
        return sb_infer_fail(in,
                             "num_heads is %lld, which does not divide the "
                             "hidden size",
                             (long long)a->num_heads);
    int want = in->n_in > 3 && in->in[3] ? 2 : 3;
    for (uint32_t i = 1; i <= 2; i++) {
        int rank = in->in[i]->type.shape.rank;
        if (rank >= 0 && rank != want)
            return sb_infer_fail(in, "input %u of rank %d, want %d", i, rank,
                                 want);
    }
    return sb_infer_same(in);
}

typedef struct {
    int64_t n_batch, len, heads, size, half; /* half the rotated elements */
    int64_t head_step, pos_step, batch_step;
    bool by_position;  /* the caches are looked up by position_ids */
    int64_t positions; /* rows of a cache that is looked up */
} rotary_state;

static rotary_state rotary_sizes(const sb_kernel *k)
{
    const rotary_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    rotary_state s = {.n_batch = x->dims[0]};

    if (x->rank == 4) {
        s.heads = x->dims[1];
        s.len = x->dims[2];
        s.size = x->dims[3];
        s.head_step = s.len * s.size;
        s.pos_step = s.size;
    } else {
        s.heads = a->num_heads;
        s.len = x->dims[1];
        s.size = x->dims[2] / a->num_heads;
        s.head_step = s.size;
        s.pos_step = x->dims[2];
    }
    s.batch_step = s.heads * s.len * s.size;
    s.half = (a->rotary_embedding_dim ? a->rotary_embedding_dim : s.size) / 2;
    s.by_position = sb_kernel_in(k, 3) != NULL;
    s.positions = s.by_position ? k->in[1]->dims[0] : 0;
    return s;
}

static sb_status rotary_prepare(sb_kernel *k)
{
    const sb_tensor *ids = sb_kernel_in(k, 3);
    rotary_state s = rotary_sizes(k);

    if (s.half < 0 || 2 * s.half > s.size)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "rotary_embedding_dim exceeds the head size");
    for (int i = 1; i <= 2; i++) {
        const sb_tensor *t = k->in[i];
        bool fits = s.by_position ? t->rank == 2 && t->dims[0] == s.positions
                                  : t->rank == 3 && t->dims[0] == s.n_batch &&
                                        t->dims[1] == s.len;
        if (!fits || t->dims[t->rank - 1] != s.half)
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "input %d does not fit the positions", i);
    }
    if (ids && (ids->dtype != SB_DTYPE_I64 || ids->rank != 2 ||
                ids->dims[0] != s.n_batch || ids->dims[1] != s.len))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "position_ids wants int64 [batch, length]");
    return SB_OK;
}

void sb_rotate_head(const sb_rotation *r, const float *x, const float *c,
                    const float *s, float *y)
{
    for (int64_t i = 0; i < r->half; i++) {
        int64_t p = r->interleaved ? 2 * i : i;
        int64_t q = r->interleaved ? 2 * i + 1 : i + r->half;
        float x1 = x[p], x2 = x[q];
        y[p] = c[i] * x1 - s[i] * x2;
        y[q] = s[i] * x1 + c[i] * x2;
    }
    for (int64_t i = 2 * r->half; i < r->size; i++)
        y[i] = x[i];
}

static void rotary_range(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    const rotary_attrs *a = k->attrs;
    rotary_state s = rotary_sizes(k);
    const sb_rotation turn = {s.size, s.half, a->interleaved != 0};
    const sb_tensor *ids = sb_kernel_in(k, 3);

    for (size_t i = begin; i < end; i++) {
        int64_t b = (int64_t)i / s.len, p = (int64_t)i % s.len;
        int64_t row = ids ? ((const int64_t *)ids->data)[i] : (int64_t)i;
        const float *c = (const float *)k->in[1]->data + row * s.half;
        const float *sn = (const float *)k->in[2]->data + row * s.half;
        for (int64_t h = 0; h < s.heads; h++) {
            int64_t at = b * s.batch_step + h * s.head_step + p * s.pos_step;
            sb_rotate_head(&turn, (const float *)k->in[0]->data + at, c, sn,
                           (float *)k->out[0]->data + at);
        }
    }
}

static sb_status rotary_forward(sb_kernel *k)
{
    rotary_state s = rotary_sizes(k);
    const sb_tensor *ids = sb_kernel_in(k, 3);
    int64_t n = s.n_batch * s.len;

    for (int64_t i = 0; ids && i < n; i++) {
        int64_t p = ((const int64_t *)ids->data)[i];
        if (p < 0 || p >= s.positions)
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "position %lld is outside the cache of %lld",
                                  (long long)p, (long long)s.positions);
    }
    sb_parallel_for(k->ctx, (size_t)n,
                    (size_t)(8192 / (s.heads * s.size + 1) + 1), rotary_range,
                    k);
    return SB_OK;
}

const sb_op_def sb_op_rotary_embedding = {
    .name = "RotaryEmbedding",
    .since = 23,
    .in_min = 3,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .any_type = 1u << 3,
    .attrs_size = sizeof(rotary_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = rotary_infer,
    .prepare = rotary_prepare,
    .forward = rotary_forward,
    .grad = sb_grad_rotary,
    .tie = sb_tie_rotary,
    .recut = sb_recut_heads,
};
