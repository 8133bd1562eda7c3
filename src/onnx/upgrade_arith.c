/* Upgrades of operators that compute. */
#include "onnx/upgrade_util.h"

#include <math.h>
#include <string.h>

/* Appends `n` dimensions of size 1 to input `i`. */
static sb_status append_ones(sb_draft *d, size_t i, int n)
{
    int64_t axes[SB_MAX_RANK];
    int64_t dim = n;
    sb_value_id in[2] = {sb_draft_in(d, i), SB_NONE};
    sb_value_id out = SB_NONE;

    for (int k = 0; k < n; k++)
        axes[k] = k - n;
    SB_TRY(sb_graph_add_constant(d->graph, "axes", SB_DTYPE_I64, 1, &dim, axes,
                                 &in[1]));
    SB_TRY(sb_draft_before(d, "Unsqueeze", in, 2, NULL, &out));
    return sb_draft_set_in(d, i, out);
}

/* Before opset 7 the second operand was matched to the dimensions of the first
 * from `axis` on, or to the last ones, as NumPy does, without `axis`. */
sb_status sb_up_broadcast(sb_draft *d)
{
    const sb_attr *axis = sb_draft_attr(d, "axis");
    bool broadcast = sb_draft_int(d, "broadcast", 0) != 0;

    if (broadcast && axis && axis->type == SB_ATTR_INT && d->n_in == 2) {
        int rank_a = sb_draft_rank(d, d->in[0]);
        int rank_b = sb_draft_rank(d, d->in[1]);
        if (rank_a < 0 || rank_b < 0)
            return sb_draft_fail(d, SB_UNSUPPORTED,
                                 "broadcast along an axis of inputs of "
                                 "unknown rank");
        int64_t at = axis->i < 0 ? axis->i + rank_a : axis->i;
        if (at < 0 || at > rank_a || at + rank_b > rank_a)
            return sb_draft_fail(d, SB_BAD_MODEL,
                                 "axis %lld does not fit ranks %d and %d",
                                 (long long)axis->i, rank_a, rank_b);
        if (at + rank_b < rank_a)
            SB_TRY(append_ones(d, 1, rank_a - (int)at - rank_b));
    }
    sb_draft_remove(d, "broadcast");
    sb_draft_remove(d, "axis");
    return SB_OK;
}

sb_status sb_up_gemm_7(sb_draft *d)
{
    sb_draft_remove(d, "broadcast");
    return SB_OK;
}

/* A slope for each channel had no dimensions behind the channel's. */
sb_status sb_up_prelu_7(sb_draft *d)
{
    const sb_value_id slope = sb_draft_in(d, 1);

    if (slope == SB_NONE || sb_draft_rank(d, slope) != 1)
        return SB_OK;
    const sb_tensor *t = sb_draft_constant(d, slope);
    int rank = sb_draft_rank(d, d->in[0]);
    if (t && sb_tensor_count(t) == 1)
        return SB_OK;
    if (rank < 0)
        return sb_draft_fail(d, SB_UNSUPPORTED,
                             "slopes of channels of an input of unknown rank");
    return rank > 2 ? append_ones(d, 1, rank - 2) : SB_OK;
}

/* True if every dimension behind `axis`, which fits the rank if there is one,
 * is 1. */
static bool rest_is_one(const sb_draft *d, int64_t axis)
{
    const sb_shape *s = &sb_graph_value(d->graph, d->in[0])->type.shape;

    for (int64_t i = axis + 1; i < s->rank; i++)
        if (s->dim[i] != 1)
            return false;
    return s->rank > 0;
}

/* Until opset 12 softmax worked on a matrix: dimensions from `axis` on were
 * one.  Where that is only the last dimension, or the others are 1, the new
 * form is the same with another default; else Flatten, softmax, Reshape. */
sb_status sb_up_softmax_13(sb_draft *d)
{
    int64_t axis = sb_draft_int(d, "axis", 1);

    if (d->n_in == 0 || d->in[0] == SB_NONE)
        return sb_draft_fail(d, SB_BAD_MODEL, "it has no input");
    int rank = sb_draft_rank(d, d->in[0]);
    if (axis < 0 && rank >= 0)
        axis += rank;
    if (axis == -1 || (rank >= 0 && axis == rank - 1))
        return sb_draft_set_int(d, "axis", -1);
    if (rank >= 0 && (axis < 0 || axis > rank))
        return sb_draft_fail(d, SB_BAD_MODEL, "axis %lld of rank %d",
                             (long long)axis, rank);
    if (rank >= 0 && rest_is_one(d, axis))
        return sb_draft_set_int(d, "axis", axis);

    const sb_attr flatten = {.name = "axis", .type = SB_ATTR_INT, .i = axis};
    const sb_attr last = {.name = "axis", .type = SB_ATTR_INT, .i = -1};
    sb_value_id shape = SB_NONE, flat = SB_NONE, soft = SB_NONE;
    SB_TRY(sb_draft_before(d, "Shape", d->in, 1, NULL, &shape));
    SB_TRY(sb_draft_before(d, "Flatten", d->in, 1, &flatten, &flat));
    SB_TRY(sb_draft_before(d, d->op, &flat, 1, &last, &soft));
    sb_draft_remove(d, "axis");
    d->op = "Reshape";
    SB_TRY(sb_draft_set_in(d, 0, soft));
    return sb_draft_set_in(d, 1, shape);
}

/* `spatial` = 0 gave every element of a sample its own statistics:
 * (x - mean) / sqrt(var + epsilon) * scale + bias. */
sb_status sb_up_batch_norm_9(sb_draft *d)
{
    bool spatial = sb_draft_int(d, "spatial", 1) != 0;
    float epsilon = sb_draft_float(d, "epsilon", 1e-5f);
    sb_value_id t[2] = {SB_NONE, SB_NONE};

    sb_draft_remove(d, "spatial");
    sb_draft_remove(d, "is_test");
    if (spatial)
        return SB_OK;
    if (d->n_in != 5)
        return sb_draft_fail(d, SB_BAD_MODEL, "%zu inputs, want 5", d->n_in);
    const sb_value_id x[2] = {d->in[0], d->in[3]};
    sb_value_id centered = SB_NONE;
    SB_TRY(sb_draft_before(d, "Sub", x, 2, NULL, &centered));
    t[0] = d->in[4];
    SB_TRY(sb_draft_scalar(d, "epsilon", sb_draft_dtype(d, d->in[4]), epsilon,
                           &t[1]));
    SB_TRY(sb_draft_before(d, "Add", t, 2, NULL, &t[0]));
    SB_TRY(sb_draft_before(d, "Sqrt", t, 1, NULL, &t[1]));
    t[0] = centered;
    SB_TRY(sb_draft_before(d, "Div", t, 2, NULL, &t[0]));
    t[1] = d->in[1];
    SB_TRY(sb_draft_before(d, "Mul", t, 2, NULL, &t[0]));
    SB_TRY(sb_draft_set_in(d, 1, d->in[2]));
    d->in[0] = t[0];
    d->n_in = 2;
    d->op = "Add";
    d->n_attrs = 0;
    d->n_out = 1;
    return SB_OK;
}

/* The other outputs were those of training, under other names. */
sb_status sb_up_batch_norm_14(sb_draft *d)
{
    if (d->n_out > 1)
        d->n_out = 1;
    return SB_OK;
}

/* [1, C / G] as a value, to expand per-group scales to per-channel ones. */
static sb_status group_shape(sb_draft *d, int64_t n_groups, sb_value_id *out)
{
    const sb_shape *s = &sb_graph_value(d->graph, d->in[0])->type.shape;
    int64_t shape[2] = {1, 0};
    const int64_t two = 2;
    const int64_t one = 1;
    const int64_t channels[1] = {1};
    const sb_attr axis = {.name = "axis", .type = SB_ATTR_INT, .i = 0};
    sb_value_id t[2] = {d->in[0], SB_NONE};

    if (s->rank > 1 && sb_dim_known(s->dim[1])) {
        shape[1] = s->dim[1] / n_groups;
        return sb_graph_add_constant(d->graph, "shape", SB_DTYPE_I64, 1, &two,
                                     shape, out);
    }
    SB_TRY(sb_draft_before(d, "Shape", t, 1, NULL, &t[0]));
    SB_TRY(sb_graph_add_constant(d->graph, "index", SB_DTYPE_I64, 1, &one,
                                 channels, &t[1]));
    SB_TRY(sb_draft_before(d, "Gather", t, 2, NULL, &t[0]));
    SB_TRY(sb_graph_add_constant(d->graph, "groups", SB_DTYPE_I64, 1, &one,
                                 &n_groups, &t[1]));
    SB_TRY(sb_draft_before(d, "Div", t, 2, NULL, &t[1]));
    SB_TRY(sb_graph_add_constant(d->graph, "one", SB_DTYPE_I64, 1, &one, &one,
                                 &t[0]));
    return sb_draft_before(d, "Concat", t, 2, &axis, out);
}

/* Scale and bias were given once a group. */
sb_status sb_up_group_norm_21(sb_draft *d)
{
    int64_t n_groups = sb_draft_int(d, "num_groups", 0);
    const int64_t one = 1;
    const int64_t all = -1;
    sb_value_id shape = SB_NONE, flat = SB_NONE;

    if (n_groups < 1 || d->n_in != 3 || d->in[0] == SB_NONE)
        return sb_draft_fail(d, SB_BAD_MODEL, "%lld groups and %zu inputs",
                             (long long)n_groups, d->n_in);
    SB_TRY(group_shape(d, n_groups, &shape));
    SB_TRY(sb_graph_add_constant(d->graph, "flat", SB_DTYPE_I64, 1, &one, &all,
                                 &flat));
    for (size_t i = 1; i < 3; i++) {
        SB_TRY(append_ones(d, i, 1));
        sb_value_id t[2] = {d->in[i], shape};
        SB_TRY(sb_draft_before(d, "Expand", t, 2, NULL, &t[0]));
        t[1] = flat;
        SB_TRY(sb_draft_before(d, "Reshape", t, 2, NULL, &d->in[i]));
    }
    return SB_OK;
}

/* Opset 1 rounded the constants more. */
sb_status sb_up_selu_6(sb_draft *d)
{
    SB_TRY(sb_draft_set_float(d, "alpha", sb_draft_float(d, "alpha", 1.6732f)));
    return sb_draft_set_float(d, "gamma", sb_draft_float(d, "gamma", 1.0507f));
}

sb_status sb_up_clip_11(sb_draft *d)
{
    static const char *const names[] = {"min", "max"};
    sb_value_id id = SB_NONE;

    if (d->n_in == 0)
        return sb_draft_fail(d, SB_BAD_MODEL, "it has no input");
    for (size_t i = 0; i < SB_COUNT(names); i++) {
        const sb_attr *a = sb_draft_attr(d, names[i]);
        if (!a)
            continue;
        float limit = a->type == SB_ATTR_FLOAT ? a->f : 0.0f;
        SB_TRY(sb_draft_scalar(d, names[i], sb_draft_dtype(d, d->in[0]), limit,
                               &id));
        SB_TRY(sb_draft_set_in(d, i + 1, id));
        sb_draft_remove(d, names[i]);
    }
    return SB_OK;
}

sb_status sb_up_dropout_7(sb_draft *d)
{
    sb_draft_remove(d, "is_test");
    return SB_OK;
}

sb_status sb_up_dropout_12(sb_draft *d)
{
    float ratio = sb_draft_float(d, "ratio", 0.5f);
    sb_value_id id = SB_NONE;

    sb_draft_remove(d, "ratio");
    SB_TRY(sb_draft_scalar(d, "ratio", SB_DTYPE_F32, ratio, &id));
    return sb_draft_set_in(d, 1, id);
}

/* The type was a word: "FLOAT", "INT64". */
sb_status sb_up_cast_6(sb_draft *d)
{
    const sb_attr *to = sb_draft_attr(d, "to");
    char word[32] = "";

    if (!to || to->type != SB_ATTR_STRING)
        return SB_OK;
    for (size_t i = 0; i < to->s.len && i + 1 < sizeof word; i++) {
        char c = to->s.data[i];
        word[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    sb_dtype dtype = sb_dtype_find(word);
    if (dtype == SB_DTYPE_NONE)
        return sb_draft_fail(d, SB_BAD_MODEL, "there is no element type '%s'",
                             word);
    return sb_draft_set_int(d, "to", dtype);
}

sb_status sb_up_lp_pool_2(sb_draft *d)
{
    float p = sb_draft_float(d, "p", 2.0f);

    if (!(p >= 1.0f && p < 1e6f))
        return sb_draft_fail(d, SB_BAD_MODEL, "p is %g", (double)p);
    return sb_draft_set_int(d, "p", (int64_t)lroundf(p));
}

sb_status sb_up_rnn_7(sb_draft *d)
{
    sb_draft_remove(d, "output_sequence");
    if (sb_draft_is(d, "direction", "foward"))
        return sb_draft_set_text(d, "direction", "forward");
    return SB_OK;
}

/* The axis became an input, with another default. */
sb_status sb_up_dft_20(sb_draft *d)
{
    int64_t axis = sb_draft_int(d, "axis", 1);
    sb_value_id id = SB_NONE;

    sb_draft_remove(d, "axis");
    SB_TRY(sb_graph_add_constant(d->graph, "axis", SB_DTYPE_I64, 0, NULL, &axis,
                                 &id));
    return sb_draft_set_in(d, 2, id);
}
