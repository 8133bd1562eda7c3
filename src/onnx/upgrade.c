/* The table of upgrades: which operator changed its form in which opset, and
 * the function that brings a node of the version before to the new form.
 * Changes that only add element types or attributes with the old meaning as
 * default need no row.
 *
 * A node steps through the rows of its operator in order of version; a rewrite
 * may change the operator (Upsample becomes Resize), then the rows of the new
 * one follow. */
#include "onnx/upgrade.h"

#include <string.h>

#include "graph/op.h"
#include "onnx/upgrade_util.h"

/* clang-format off */
static const sb_upgrade_row rows[] = {
    {"Add",                 7, sb_up_broadcast},
    {"And",                 7, sb_up_broadcast},
    {"BatchNormalization",  9, sb_up_batch_norm_9},
    {"BatchNormalization", 14, sb_up_batch_norm_14},
    {"Cast",                6, sb_up_cast_6},
    {"Clip",               11, sb_up_clip_11},
    {"Concat",              4, sb_up_concat_4},
    {"DFT",                20, sb_up_dft_20},
    {"Div",                 7, sb_up_broadcast},
    {"Dropout",             7, sb_up_dropout_7},
    {"Dropout",            12, sb_up_dropout_12},
    {"Equal",               7, sb_up_broadcast},
    {"GRU",                 7, sb_up_rnn_7},
    {"Gemm",                7, sb_up_gemm_7},
    {"GlobalLpPool",        2, sb_up_lp_pool_2},
    {"Greater",             7, sb_up_broadcast},
    {"GridSample",         20, sb_up_grid_sample_20},
    {"GroupNormalization", 21, sb_up_group_norm_21},
    {"Hardmax",            13, sb_up_softmax_13},
    {"LSTM",                7, sb_up_rnn_7},
    {"Less",                7, sb_up_broadcast},
    {"LogSoftmax",         13, sb_up_softmax_13},
    {"LpPool",              2, sb_up_lp_pool_2},
    {"Mul",                 7, sb_up_broadcast},
    {"Or",                  7, sb_up_broadcast},
    {"PRelu",               7, sb_up_prelu_7},
    {"Pad",                 2, sb_up_pad_2},
    {"Pad",                11, sb_up_pad_11},
    {"Pow",                 7, sb_up_broadcast},
    {"RNN",                 7, sb_up_rnn_7},
    {"ReduceL1",           18, sb_up_axes_to_input},
    {"ReduceL2",           18, sb_up_axes_to_input},
    {"ReduceLogSum",       18, sb_up_axes_to_input},
    {"ReduceLogSumExp",    18, sb_up_axes_to_input},
    {"ReduceMax",          18, sb_up_axes_to_input},
    {"ReduceMean",         18, sb_up_axes_to_input},
    {"ReduceMin",          18, sb_up_axes_to_input},
    {"ReduceProd",         18, sb_up_axes_to_input},
    {"ReduceSum",          13, sb_up_axes_to_input},
    {"ReduceSumSquare",    18, sb_up_axes_to_input},
    {"Reshape",             5, sb_up_reshape_5},
    {"Resize",             11, sb_up_resize_11},
    {"Resize",             13, sb_up_resize_13},
    {"Resize",             19, sb_up_resize_13},
    {"RoiAlign",           16, sb_up_roi_align_16},
    {"Scan",                9, sb_up_scan_9},
    {"Scatter",            11, sb_up_scatter_11},
    {"Selu",                6, sb_up_selu_6},
    {"Slice",              10, sb_up_slice_10},
    {"Softmax",            13, sb_up_softmax_13},
    {"Split",               2, sb_up_split_2},
    {"Split",              13, sb_up_split_13},
    {"Split",              18, sb_up_split_18},
    {"Squeeze",            13, sb_up_axes_to_input},
    {"Sub",                 7, sb_up_broadcast},
    {"Tile",                6, sb_up_tile_6},
    {"TopK",               10, sb_up_top_k_10},
    {"Unsqueeze",          13, sb_up_axes_to_input},
    {"Upsample",            7, sb_up_upsample_7},
    {"Upsample",            9, sb_up_upsample_9},
    {"Upsample",           10, sb_up_upsample_10},
    {"Xor",                 7, sb_up_broadcast},
};
/* clang-format on */

/* The first row of the operator, by bisection. */
static size_t first_row(const char *op)
{
    size_t lo = 0;
    size_t hi = SB_COUNT(rows);

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (strcmp(rows[mid].op, op) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static const sb_upgrade_row *next_row(const sb_draft *d)
{
    for (size_t i = first_row(d->op);
         i < SB_COUNT(rows) && strcmp(rows[i].op, d->op) == 0; i++)
        if (rows[i].version > d->version)
            return &rows[i];
    return NULL;
}

sb_status sb_upgrade(sb_draft *d)
{
    const sb_upgrade_row *row = NULL;

    /* A hint about memory that every operator had once. */
    if (d->version < 6)
        sb_draft_remove(d, "consumed_inputs");
    while ((row = next_row(d)) != NULL) {
        d->version = row->version;
        SB_TRY(row->fn(d));
    }
    if (d->version < SB_CANONICAL_OPSET)
        d->version = SB_CANONICAL_OPSET;
    return SB_OK;
}

/* ---- drafts ------------------------------------------------------------- */

void sb_draft_free(sb_draft *d)
{
    sb_free(d->ctx, d->in);
    sb_free(d->ctx, d->implicit);
    sb_free(d->ctx, d->out);
    sb_free(d->ctx, d->attrs);
}

const char *sb_draft_label(const sb_draft *d)
{
    if (d->name[0])
        return d->name;
    for (size_t i = 0; i < d->n_out; i++)
        if (d->out[i] != SB_NONE)
            return sb_graph_value(d->graph, d->out[i])->name;
    return d->op;
}

sb_status sb_draft_add(sb_draft *d, sb_node_id *out)
{
    const sb_node_spec spec = {
        .op = d->op,
        .domain = d->domain,
        .name = d->name,
        .inputs = d->in,
        .n_in = d->n_in,
        .implicit = d->implicit,
        .n_implicit = d->n_implicit,
        .outputs = d->out,
        .n_out = d->n_out,
        .attrs = d->attrs,
        .n_attrs = d->n_attrs,
    };

    return sb_graph_add_node(d->graph, &spec, out);
}
