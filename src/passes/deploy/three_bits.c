/* Packed weights of 3 bits as 4: codes and packed zero points one by one.
 * Without zero points zero is the middle, which moves from 4 to 8: so do the
 * codes. */
#include "passes/deploy/three_bits.h"

#include <string.h>

#include "base/ctx.h"
#include "ops/int8/nbits_int8.h"
#include "passes/rewrite.h"

enum { SCALES = 2, ZEROS = 3 };

/* Which input holds the codes; -1: this is no such node, or it computes what
 * would have to be widened. */
static int codes_input(const sb_graph *g, const sb_node *node)
{
    if (node->dead || strcmp(node->domain, "com.microsoft") != 0 ||
        sb_node_int(node, "bits", 4) != 3)
        return -1;
    bool product = strcmp(node->op, "MatMulNBits") == 0;
    if (!product && strcmp(node->op, "GatherBlockQuantized") != 0)
        return -1;
    return sb_const_of(g, sb_node_in(node, product)) &&
                   sb_const_of(g, sb_node_in(node, SCALES)) &&
                   (sb_node_in(node, ZEROS) == SB_NONE ||
                    sb_const_of(g, sb_node_in(node, ZEROS)))
               ? product
               : -1;
}

bool sb_graph_has_three_bits(const sb_graph *g)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (codes_input(g, sb_graph_node(g, id)) >= 0)
            return true;
    return false;
}

static sb_status widen_fail(const sb_graph *g, sb_node_id id)
{
    return sb_fail(g->ctx, SB_BAD_MODEL,
                   "node '%s': its 3-bit codes, scales and zero points do not "
                   "fit each other",
                   sb_node_label(g, sb_graph_node(g, id)));
}

/* `rows` rows of `per_row` codes each, as a constant with the last dimension
 * `last`. */
static sb_status widen_codes(sb_graph *g, sb_node_id id, uint32_t input,
                             int64_t rows, int64_t per_row, int64_t last,
                             unsigned add)
{
    sb_value_id from = sb_node_in(sb_graph_node(g, id), input), to;
    const sb_tensor *t = sb_const_of(g, from);
    int64_t bytes = (per_row + 1) / 2;

    if (t->dtype != SB_DTYPE_U8 || t->rank < 1 ||
        sb_tensor_count(t) != rows * ((3 * per_row + 7) / 8))
        return widen_fail(g, id);
    sb_tensor wide = sb_tensor_make(SB_DTYPE_U8, t->rank, t->dims);
    wide.dims[wide.rank - 1] = last;
    if (sb_tensor_count(&wide) != rows * bytes)
        return widen_fail(g, id);
    SB_TRY(sb_tensor_alloc(g->ctx, &wide));
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *codes =
            (const uint8_t *)t->data + r * ((3 * per_row + 7) / 8);
        uint8_t *out = (uint8_t *)wide.data + r * bytes;

        for (int64_t i = 0; i < per_row; i++)
            out[i / 2] |=
                (uint8_t)((sb_nbits_code(codes, i, 3) + add) << (i % 2 * 4));
    }
    sb_status status =
        sb_graph_add_value_as(g, sb_graph_value(g, from)->name, &to);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, to, &wide);
    sb_tensor_drop(&wide);
    SB_TRY(status);
    return sb_graph_set_input(g, id, input, to);
}

static sb_status widen_node(sb_graph *g, sb_node_id id, uint32_t input)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_tensor *t = sb_const_of(g, sb_node_in(node, input));
    const sb_tensor *scales = sb_const_of(g, sb_node_in(node, SCALES));
    const sb_tensor *zeros = sb_const_of(g, sb_node_in(node, ZEROS));
    unsigned add = sb_node_in(node, ZEROS) == SB_NONE ? 4 : 0;

    if (t->rank < 2 || t->dims[0] < 1)
        return widen_fail(g, id);
    int64_t rows = t->dims[0], blocks = sb_tensor_count(scales) / rows;
    int64_t last = t->dims[t->rank - 1];
    int64_t per_row = sb_tensor_count(t) / rows * 8 / 3;
    if (zeros && zeros->dtype == SB_DTYPE_U8)
        SB_TRY(widen_codes(g, id, ZEROS, rows, blocks,
                           zeros->rank == 1 ? rows * ((blocks + 1) / 2)
                                            : (blocks + 1) / 2,
                           0));
    SB_TRY(widen_codes(g, id, input, rows, per_row, last * 4 / 3, add));
    return sb_graph_set_attr_int(g, id, "bits", 4);
}

sb_status sb_graph_widen_three_bits(sb_graph *g)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        int input = codes_input(g, sb_graph_node(g, id));

        if (input >= 0)
            SB_TRY(widen_node(g, id, (uint32_t)input));
    }
    return SB_OK;
}
