/* Products with packed weights: com.microsoft MatMulNBits in place of a MatMul
 * or Gemm whose weight was quantized alone (`A: none`).
 *
 *     y = A B + bias,   B [K, N] in blocks along K
 *
 * It holds B as [N, n_block, block * bits / 8] bytes, codes low bits first
 * along K, scales as [N, n_block], zero points as [N, n_block] codes packed the
 * same way, each row starting on a byte; without them zero is 2^(bits - 1).
 * Codes are unsigned: signed ones move up by that.  Widths between take the
 * next of 2, 4 and 8.  A scale for all of K stands in each block. */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "passes/rewrite.h"
#include "quant/export/export.h"
#include "quant/model/instrument.h"
#include "quant/model/weight.h"
#include "tensor/mapped.h"

typedef struct product {
    const sb_quant_model *qm;
    sb_graph *g;
    const sb_quantizer *q;
    const sb_qparams *qparams;
    sb_node_id id;
    int64_t k, n, block, n_block;
    int bits;
    int level; /* attribute accuracy_level */
} product;

/* ---- packing ------------------------------------------------------------ */

static void put_code(uint8_t *row, int64_t i, int bits, unsigned code)
{
    row[i * bits / 8] |= (uint8_t)(code << (unsigned)(i * bits % 8));
}

/* Which scale belongs to element [k, n]. */
static int64_t param_at(const product *p, int64_t k, int64_t n)
{
    if (p->q->axis < 0)
        return 0;
    return p->q->block > 0 ? k / p->block * p->n + n : n;
}

static unsigned offset_of(const product *p)
{
    return p->qparams->symmetric ? 1u << (p->bits - 1) : 0;
}

enum {
    NBITS_TILE = 16, /* columns that are read together */
    NBITS_ROWS = 16  /* and at most so many elements of each */
};

/* Codes of `rows` elements, which lie in one block, of each of `n` columns from
 * `from` on; `at` is the scale of the first. */
SB_HOT static void code_tile(const product *p, const float *from, int64_t rows,
                             int64_t n, int64_t at,
                             uint8_t codes[NBITS_ROWS][NBITS_TILE])
{
    const sb_qparams *q = p->qparams;
    const float lo = (float)q->qmin, hi = (float)q->qmax;
    const int offset = (int)offset_of(p);
    float scale[NBITS_TILE], zero[NBITS_TILE];

    for (int64_t c = 0; c < n; c++) {
        int64_t k = p->q->axis < 0 ? 0 : at + c;
        scale[c] = q->scale[k];
        zero[c] = q->zero_point[k];
    }
    for (int64_t i = 0; i < rows; i++, from += p->n) {
        SB_SIMD
        for (int64_t c = 0; c < n; c++) {
            float whole = floorf(zero[c]);
            float v = rintf(from[c] / scale[c] + (zero[c] - whole)) + whole;
            v = v > lo ? v : lo;
            v = v < hi ? v : hi;
            codes[i][c] = (uint8_t)((int)v + offset);
        }
    }
}

typedef struct pack_job {
    const product *p;
    const float *w;
    uint8_t *to;
} pack_job;

static void pack_tile(const pack_job *job, int64_t first)
{
    const product *p = job->p;
    int64_t row = p->n_block * p->block * p->bits / 8;
    int64_t n = p->n - first < NBITS_TILE ? p->n - first : NBITS_TILE;
    uint8_t codes[NBITS_ROWS][NBITS_TILE];

    for (int64_t k = 0, rows; k < p->k; k += rows) {
        rows = p->block - k % p->block;
        rows = rows < p->k - k ? rows : p->k - k;
        rows = rows < NBITS_ROWS ? rows : NBITS_ROWS;
        code_tile(p, job->w + k * p->n + first, rows, n, param_at(p, k, first),
                  codes);
        for (int64_t c = 0; c < n; c++)
            for (int64_t i = 0; i < rows; i++)
                put_code(job->to + (first + c) * row, k + i, p->bits,
                         codes[i][c]);
    }
}

static void pack_tiles(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        pack_tile(arg, (int64_t)i * NBITS_TILE);
}

static void pack_weight(const product *p, const float *w, uint8_t *to)
{
    pack_job job = {p, w, to};

    sb_parallel_for(p->g->ctx, (size_t)((p->n - 1) / NBITS_TILE + 1),
                    (size_t)(4096 / p->k + 1), pack_tiles, &job);
}

/* ---- constants ---------------------------------------------------------- */

static sb_status add_constant(const product *p, const char *suffix,
                              const sb_tensor *t, sb_value_id *out)
{
    return sb_export_constant(
        p->g, sb_graph_value(p->qm->graph, p->q->value)->name, suffix, t, out);
}

static sb_status add_weight(const product *p, sb_value_id *out)
{
    int64_t dims[] = {p->n, p->n_block, p->block * p->bits / 8};
    sb_tensor t = sb_tensor_make(SB_DTYPE_U8, 3, dims), w;

    SB_TRY(sb_quantizer_weight(p->qm, p->q, &w));
    sb_status status = sb_tensor_alloc_weight(p->g->ctx, &t); /* zeroed */
    if (status == SB_OK) {
        pack_weight(p, w.data, t.data);
        sb_tensor_release_pages(&w);
        sb_tensor_release_pages(&t);
        status = add_constant(p, "_packed", &t, out);
        sb_tensor_drop(&t);
    }
    sb_tensor_drop(&w);
    return status;
}

/* Scales of all blocks, or zero points that are no whole numbers. */
static sb_status add_floats(const product *p, const char *suffix,
                            const float *from, sb_value_id *out)
{
    int64_t dims[] = {p->n, p->n_block};
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 2, dims);

    SB_TRY(sb_tensor_alloc(p->g->ctx, &t));
    float *to = t.data;
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t b = 0; b < p->n_block; b++)
            *to++ = from[param_at(p, b * p->block, n)];
    sb_status status = add_constant(p, suffix, &t, out);
    sb_tensor_drop(&t);
    return status;
}

static sb_status add_zeros(const product *p, sb_value_id *out)
{
    int64_t dims[] = {p->n, (p->n_block * p->bits + 7) / 8};
    sb_tensor t = sb_tensor_make(SB_DTYPE_U8, 2, dims);

    *out = SB_NONE;
    if (p->qparams->symmetric) /* in the middle, as is assumed */
        return SB_OK;
    if (p->q->blocks)
        return add_floats(p, "_zero_point", p->qparams->zero_point, out);
    SB_TRY(sb_tensor_alloc(p->g->ctx, &t));
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t b = 0; b < p->n_block; b++)
            put_code(
                (uint8_t *)t.data + n * dims[1], b, p->bits,
                (unsigned)p->qparams->zero_point[param_at(p, b * p->block, n)]);
    sb_status status = add_constant(p, "_zero_point", &t, out);
    sb_tensor_drop(&t);
    return status;
}

/* The bias as [N], if it is a constant of that many. */
static sb_status add_bias(const product *p, sb_value_id c, sb_value_id *out)
{
    *out = SB_NONE;
    if (!sb_is_const(p->g, c))
        return SB_OK;
    sb_tensor b = sb_graph_value(p->g, c)->constant;
    if (b.dtype != SB_DTYPE_F32 || sb_tensor_count(&b) != p->n ||
        (b.rank > 0 && b.dims[b.rank - 1] != p->n))
        return SB_OK;
    if (b.rank == 1) {
        *out = c;
        return SB_OK;
    }
    b.rank = 1;
    b.dims[0] = p->n;
    return add_constant(p, "_bias", &b, out);
}

/* ---- the node ----------------------------------------------------------- */

static sb_status write_product(const product *p)
{
    const sb_node old = *sb_graph_node(p->g, p->id);
    sb_value_id y = old.outputs[0], c = sb_node_in(&old, 2);
    sb_value_id in[6] = {old.inputs[0], SB_NONE, SB_NONE,
                         SB_NONE,       SB_NONE, SB_NONE};
    sb_value_id sum = y;
    sb_node_id node = SB_NONE;
    const sb_attr attrs[] = {
        {.name = "K", .type = SB_ATTR_INT, .i = p->k},
        {.name = "N", .type = SB_ATTR_INT, .i = p->n},
        {.name = "bits", .type = SB_ATTR_INT, .i = p->bits},
        {.name = "block_size", .type = SB_ATTR_INT, .i = p->block},
        {.name = "accuracy_level", .type = SB_ATTR_INT, .i = p->level},
    };

    SB_TRY(add_weight(p, &in[1]));
    SB_TRY(add_floats(p, "_scale", p->qparams->scale, &in[2]));
    SB_TRY(add_zeros(p, &in[3]));
    SB_TRY(add_bias(p, c, &in[5]));
    sb_node_spec spec = {.op = "MatMulNBits",
                         .domain = "com.microsoft",
                         .name = old.name,
                         .module = old.module,
                         .inputs = in,
                         .n_in = in[5] != SB_NONE   ? 6
                                 : in[3] != SB_NONE ? 4
                                                    : 3,
                         .outputs = &sum,
                         .n_out = 1,
                         .attrs = attrs,
                         .n_attrs = SB_COUNT(attrs),
                         .position = old.position};
    if (c != SB_NONE && in[5] == SB_NONE) { /* added by a node of its own */
        SB_TRY(sb_quant_add_value(
            p->g, sb_graph_value(p->qm->graph, p->q->value)->name, "_product",
            &sum));
        sb_graph_value(p->g, sum)->type = sb_graph_value(p->g, y)->type;
        const sb_value_id terms[] = {sum, c};
        SB_TRY(sb_rewrite_node(p->g, p->id, "Add", terms, 2, &node));
    } else {
        sb_graph_remove_node(p->g, p->id);
    }
    return sb_graph_add_node(p->g, &spec, &node);
}

/* A block that the kernel takes, for a scale that holds for all of K. */
static int64_t choose_block(int64_t k)
{
    int64_t block = 16;

    while (block < k && block < 128)
        block *= 2;
    return block;
}

static bool find_product(const sb_quant_model *qm, sb_graph *g,
                         const sb_quantizer *q, product *out)
{
    if (sb_quantizer_is_off(qm, q) || q->n_uses != 1 || q->uses[0].input != 1 ||
        q->spec.bits > 8)
        return false;
    const sb_node *node = sb_graph_node(g, q->uses[0].node);
    const sb_tensor *w = &sb_graph_value(qm->graph, q->value)->constant;
    if (node->dead || sb_node_role(node) != SB_ROLE_WEIGHTED ||
        sb_node_flag(node, SB_OP_CONV) || w->rank != 2 ||
        !sb_gemm_is_canonical(node) || (q->block > 0 && q->axis != 0) ||
        (q->block == 0 && q->axis == 0))
        return false;
    *out = (product){.qm = qm,
                     .g = g,
                     .q = q,
                     .qparams = sb_quantizer_qparams(qm, q),
                     .id = q->uses[0].node,
                     .k = w->dims[0],
                     .n = w->dims[1],
                     .bits = q->spec.bits <= 2   ? 2
                             : q->spec.bits <= 4 ? 4
                                                 : 8};
    out->block = q->block > 0 ? q->block : choose_block(out->k);
    out->n_block = (out->k + out->block - 1) / out->block;
    return out->k > 0 && out->n > 0;
}

sb_status sb_export_nbits(const sb_quant_model *qm, sb_graph *g,
                          int accuracy_level)
{
    size_t n = 0;

    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        product p;

        if (!find_product(qm, g, &qm->place.quantizers[i], &p))
            continue;
        p.level = accuracy_level > 0 ? accuracy_level : 4;
        SB_TRY(sb_progress(qm->ctx, "export", i, qm->place.n_quantizers));
        SB_TRY(write_product(&p));
        n++;
    }
    if (n == 0)
        return sb_fail(qm->ctx, SB_BAD_MODEL,
                       "format matmulnbits: no MatMul or Gemm has a weight of "
                       "at most 8 bit for it");
    return SB_OK;
}
