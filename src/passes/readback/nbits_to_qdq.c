/* Pass "nbits_to_qdq": products with packed weights (com.microsoft
 * MatMulNBits) become MatMul with integers behind DequantizeLinear.
 *
 *     before:  y = MatMulNBits(a, packed, scales, zeros, , bias)
 *     after:   y = Gemm(a, DQ(w, s, z) {axis=0, block_size}, bias)
 *
 * or MatMul and Add, where a is no matrix.
 *
 * The node holds codes of 2, 3, 4 or 8 bit as [N, n_block, bytes], low bits
 * first along K; w is [K, N] in a type of that width, 3 bits in one of 4.
 * Without zero points zero is in the middle of the codes: then w is signed.
 *
 * Left as they are: packed weights that a runtime has laid out for itself,
 * those whose columns g_idx assigns to blocks, and zero points in float.  The
 * last two have no form as integers behind one DequantizeLinear; ONNX Runtime's
 * own CPU kernel computes some files with g_idx wrong. */
#include <string.h>

#include "base/ctx.h"
#include "base/str.h"
#include "ops/int8/nbits_int8.h"
#include "passes/pass.h"
#include "passes/readback/integer_util.h"
#include "passes/rewrite.h"

enum { A, B, SCALES, ZEROS, G_IDX, BIAS };

typedef struct packed {
    int64_t k, n, bits, block, n_block;
    sb_tensor b, scales, zeros; /* the last may be without data */
} packed;

/* ---- is it one? --------------------------------------------------------- */

static sb_tensor constant_of(const sb_graph *g, const sb_node *node,
                             uint32_t input)
{
    const sb_tensor *t = sb_const_of(g, sb_node_in(node, input));

    return t ? *t : (sb_tensor){0};
}

static bool nbits_to_qdq_holds(const sb_tensor *t, sb_dtype dtype, int64_t rows,
                               int64_t columns)
{
    int64_t want = 0;

    return t->data && t->dtype == dtype && sb_mul_i64(rows, columns, &want) &&
           sb_tensor_count(t) == want;
}

static bool read_packed(const sb_graph *g, const sb_node *node, packed *p)
{
    int64_t row = 0, all = 0;

    *p = (packed){.k = sb_node_int(node, "K", 0),
                  .n = sb_node_int(node, "N", 0),
                  .bits = sb_node_int(node, "bits", 4),
                  .block = sb_node_int(node, "block_size", 0),
                  .b = constant_of(g, node, B),
                  .scales = constant_of(g, node, SCALES),
                  .zeros = constant_of(g, node, ZEROS)};
    if (strcmp(node->op, "MatMulNBits") != 0 ||
        strcmp(node->domain, "com.microsoft") != 0 || node->n_out != 1 ||
        sb_node_in(node, A) == SB_NONE || sb_node_in(node, G_IDX) != SB_NONE ||
        sb_node_int(node, "weight_prepacked", 0) != 0)
        return false;
    if (p->k < 1 || p->n < 1 || p->block < 16 || p->block > 1 << 20 ||
        p->block % 16 != 0 ||
        (p->bits != 2 && p->bits != 3 && p->bits != 4 && p->bits != 8))
        return false;
    p->n_block = p->k / p->block + (p->k % p->block != 0);
    if (!sb_mul_i64(p->n_block, p->block * p->bits / 8, &row) ||
        !sb_mul_i64(p->k, p->n, &all) ||
        !nbits_to_qdq_holds(&p->b, SB_DTYPE_U8, p->n, row) ||
        !nbits_to_qdq_holds(&p->scales, SB_DTYPE_F32, p->n, p->n_block))
        return false;
    return sb_node_in(node, ZEROS) == SB_NONE ||
           nbits_to_qdq_holds(&p->zeros, SB_DTYPE_U8, p->n,
                              (p->n_block * p->bits + 7) / 8);
}

const char *sb_nbits_why_not(const sb_graph *g, const sb_node *node)
{
    sb_value_id zeros = sb_node_in(node, ZEROS);

    if (sb_node_in(node, G_IDX) != SB_NONE)
        return " with g_idx, which is not read back";
    if (zeros != SB_NONE && sb_graph_value(g, zeros)->type.dtype != SB_DTYPE_U8)
        return " with zero points that are not packed integers";
    return "";
}

/* ---- unpacking ---------------------------------------------------------- */

static sb_dtype type_of(const packed *p)
{
    if (p->bits == 8)
        return p->zeros.data ? SB_DTYPE_U8 : SB_DTYPE_I8;
    if (p->bits > 2)
        return p->zeros.data ? SB_DTYPE_U4 : SB_DTYPE_I4;
    return p->zeros.data ? SB_DTYPE_U2 : SB_DTYPE_I2;
}

static double zero_code(const packed *p, int64_t n, int64_t b)
{
    int64_t row = (p->n_block * p->bits + 7) / 8;

    return sb_nbits_code((const uint8_t *)p->zeros.data + n * row, b, p->bits);
}

/* Codes of the weight, less what makes them signed. */
static double weight_code(const packed *p, int64_t n, int64_t k)
{
    int64_t row = p->n_block * p->block * p->bits / 8;
    int less = p->zeros.data ? 0 : 1 << (p->bits - 1);

    return (int)sb_nbits_code((const uint8_t *)p->b.data + n * row, k,
                              p->bits) -
           less;
}

/* out [rows, N], of what `code` says. */
static sb_status
nbits_to_qdq_fill(sb_ctx *ctx, const packed *p, int64_t rows, sb_dtype dtype,
                  double (*code)(const packed *, int64_t, int64_t),
                  sb_tensor *out)
{
    int64_t dims[] = {rows, p->n};
    sb_tensor t = sb_tensor_make(dtype, 2, dims);
    float *codes = sb_alloc(ctx, (size_t)rows * (size_t)p->n, sizeof *codes);

    if (!codes)
        return SB_NO_MEMORY;
    sb_status status = sb_tensor_alloc(ctx, &t);
    if (status == SB_OK) {
        for (int64_t n = 0; n < p->n; n++)
            for (int64_t k = 0; k < rows; k++)
                codes[k * p->n + n] = (float)code(p, n, k);
        sb_convert(SB_DTYPE_F32, codes, dtype, t.data,
                   (size_t)rows * (size_t)p->n);
        *out = t;
    }
    sb_free(ctx, codes);
    return status;
}

static double scale_at(const packed *p, int64_t n, int64_t b)
{
    return sb_tensor_get_f64(&p->scales, n * p->n_block + b);
}

/* ---- rewriting ---------------------------------------------------------- */

/* The name of the weight, if that of the packed one was made from it: by us,
 * or by ONNX Runtime's tool. */
static size_t base_length(const char *name)
{
    static const char *const tails[] = {"_packed", "_Q2", "_Q4", "_Q8", NULL};

    return sb_text_before(name, tails);
}

/* A constant named after the weight; takes the tensor's reference. */
static sb_status put_constant(sb_graph *g, const char *base, size_t len,
                              const char *suffix, sb_tensor *t,
                              sb_value_id *out)
{
    sb_str name;

    sb_str_init(&name, g->ctx);
    sb_str_addf(&name, "%.*s%s", (int)len, base, suffix);
    sb_status status = sb_str_status(&name);
    if (status == SB_OK)
        status = sb_graph_add_value_as(g, sb_str_text(&name), out);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, *out, t);
    sb_str_free(&name);
    sb_tensor_drop(t);
    return status;
}

/* The weight behind its DequantizeLinear. */
static sb_status put_weight(sb_graph *g, const sb_node *node, const packed *p,
                            const char *name, sb_value_id *w)
{
    size_t len = base_length(name);
    sb_value_id in[3] = {SB_NONE, SB_NONE, SB_NONE};
    sb_tensor t;

    SB_TRY(nbits_to_qdq_fill(g->ctx, p, p->k, type_of(p), weight_code, &t));
    SB_TRY(put_constant(g, name, len, "_quantized", &t, &in[0]));
    SB_TRY(
        nbits_to_qdq_fill(g->ctx, p, p->n_block, SB_DTYPE_F32, scale_at, &t));
    SB_TRY(put_constant(g, name, len, "_scales", &t, &in[1]));
    if (p->zeros.data) {
        SB_TRY(nbits_to_qdq_fill(g->ctx, p, p->n_block, type_of(p), zero_code,
                                 &t));
        SB_TRY(put_constant(g, name, len, "_zero_points", &t, &in[2]));
    }
    SB_TRY(sb_put_dequantize(g, node, in, 0, w));
    return sb_graph_set_attr_int(g, sb_graph_value(g, *w)->producer,
                                 "block_size", p->block);
}

static sb_status nbits_to_qdq_rewrite(sb_graph *g, sb_node_id id,
                                      const packed *p)
{
    const sb_node node = *sb_graph_node(g, id);
    const char *name = sb_graph_value(g, node.inputs[B])->name;
    sb_value_id a = node.inputs[A], bias = sb_node_in(&node, BIAS);
    sb_value_id y = node.outputs[0], product = y, w = SB_NONE;
    sb_node_id op;

    bool gemm = bias != SB_NONE && sb_graph_value(g, a)->type.shape.rank == 2;
    SB_TRY(put_weight(g, &node, p, name, &w));
    sb_graph_remove_node(g, id);
    if (bias != SB_NONE && !gemm) {
        SB_TRY(sb_put_value(g, y, SB_DTYPE_F32, &product));
        SB_TRY(sb_put_node(g, &node, "Add", (sb_value_id[]){product, bias}, 2,
                           y, &op));
    }
    SB_TRY(sb_put_node(g, &node, gemm ? "Gemm" : "MatMul",
                       (sb_value_id[]){a, w, bias}, gemm ? 3 : 2, product,
                       &op));
    sb_graph_node(g, op)->name = node.name;
    return SB_OK;
}

static sb_status nbits_to_qdq_run(sb_graph *g, size_t *changes)
{
    for (sb_node_id id = 0, n = (sb_node_id)g->n_nodes; id < n; id++) {
        packed p;

        if (sb_graph_node(g, id)->dead ||
            !read_packed(g, sb_graph_node(g, id), &p))
            continue;
        SB_TRY(nbits_to_qdq_rewrite(g, id, &p));
        (*changes)++;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_nbits_to_qdq = {
    .name = "nbits_to_qdq",
    .summary = "MatMulNBits as MatMul with a DQ on its weight",
    .run = nbits_to_qdq_run,
    .once = true,
};
