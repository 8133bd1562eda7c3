/* Helpers of the rewrites, and a small guess at ranks and element types for
 * those that need them: shape inference proper comes after loading. */
#include "onnx/upgrade_util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

sb_status sb_draft_fail(const sb_draft *d, sb_status code, const char *fmt, ...)
{
    char text[256];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sb_fail(d->ctx, code, "node '%s' (%s): %s", sb_draft_label(d), d->op,
                   text);
}

/* ---- attributes --------------------------------------------------------- */

const sb_attr *sb_draft_attr(const sb_draft *d, const char *name)
{
    for (size_t i = 0; i < d->n_attrs; i++)
        if (strcmp(d->attrs[i].name, name) == 0)
            return &d->attrs[i];
    return NULL;
}

int64_t sb_draft_int(const sb_draft *d, const char *name, int64_t absent)
{
    const sb_attr *a = sb_draft_attr(d, name);

    return a && a->type == SB_ATTR_INT ? a->i : absent;
}

float sb_draft_float(const sb_draft *d, const char *name, float absent)
{
    const sb_attr *a = sb_draft_attr(d, name);

    return a && a->type == SB_ATTR_FLOAT ? a->f : absent;
}

bool sb_draft_is(const sb_draft *d, const char *name, const char *text)
{
    const sb_attr *a = sb_draft_attr(d, name);

    return a && a->type == SB_ATTR_STRING && a->s.len == strlen(text) &&
           memcmp(a->s.data, text, a->s.len) == 0;
}

void sb_draft_remove(sb_draft *d, const char *name)
{
    for (size_t i = 0; i < d->n_attrs; i++) {
        if (strcmp(d->attrs[i].name, name) != 0)
            continue;
        d->n_attrs--;
        memmove(d->attrs + i, d->attrs + i + 1,
                (d->n_attrs - i) * sizeof *d->attrs);
        return;
    }
}

sb_status sb_draft_set(sb_draft *d, const sb_attr *attr)
{
    sb_draft_remove(d, attr->name);
    SB_TRY(sb_grow(d->ctx, &d->attrs, &d->cap_attrs, d->n_attrs + 1,
                   sizeof *d->attrs));
    d->attrs[d->n_attrs++] = *attr;
    return SB_OK;
}

sb_status sb_draft_set_int(sb_draft *d, const char *name, int64_t value)
{
    const sb_attr a = {.name = name, .type = SB_ATTR_INT, .i = value};

    return sb_draft_set(d, &a);
}

sb_status sb_draft_set_float(sb_draft *d, const char *name, float value)
{
    const sb_attr a = {.name = name, .type = SB_ATTR_FLOAT, .f = value};

    return sb_draft_set(d, &a);
}

sb_status sb_draft_set_text(sb_draft *d, const char *name, const char *text)
{
    const sb_attr a = {
        .name = name, .type = SB_ATTR_STRING, .s = {text, strlen(text)}};

    return sb_draft_set(d, &a);
}

/* ---- inputs ------------------------------------------------------------- */

sb_value_id sb_draft_in(const sb_draft *d, size_t i)
{
    return i < d->n_in ? d->in[i] : SB_NONE;
}

sb_status sb_draft_set_in(sb_draft *d, size_t i, sb_value_id value)
{
    SB_TRY(sb_grow(d->ctx, &d->in, &d->cap_in, i + 1, sizeof *d->in));
    while (d->n_in <= i)
        d->in[d->n_in++] = SB_NONE;
    d->in[i] = value;
    return SB_OK;
}

/* "node_name/stem", so that a new constant shows where it belongs. */
static sb_status stem_of(const sb_draft *d, const char *stem, char **out)
{
    *out = sb_arena_printf(d->graph->arena, "%s/%s", sb_draft_label(d), stem);
    return *out ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_draft_ints_to_in(sb_draft *d, size_t i, const char *stem,
                              const int64_t *v, size_t n)
{
    int64_t dim = (int64_t)n;
    sb_value_id id = SB_NONE;
    char *name = NULL;

    SB_TRY(stem_of(d, stem, &name));
    SB_TRY(
        sb_graph_add_constant(d->graph, name, SB_DTYPE_I64, 1, &dim, v, &id));
    return sb_draft_set_in(d, i, id);
}

sb_status sb_draft_attr_to_in(sb_draft *d, const char *name, size_t i)
{
    const sb_attr *a = sb_draft_attr(d, name);

    if (!a)
        return SB_OK;
    if (a->type != SB_ATTR_INTS)
        return sb_draft_fail(d, SB_BAD_MODEL,
                             "attribute '%s' is not a list of integers", name);
    SB_TRY(sb_draft_ints_to_in(d, i, name, a->ints, a->n));
    sb_draft_remove(d, name);
    return SB_OK;
}

sb_status sb_draft_scalar(sb_draft *d, const char *stem, sb_dtype dtype,
                          float value, sb_value_id *out)
{
    unsigned char element[16] = {0};
    char *name = NULL;

    if (!sb_dtype_is_float(dtype) && !sb_dtype_is_integral(dtype))
        return sb_draft_fail(d, SB_UNSUPPORTED, "elements of type %s",
                             sb_dtype_name(dtype));
    sb_convert(SB_DTYPE_F32, &value, dtype, element, 1);
    SB_TRY(stem_of(d, stem, &name));
    return sb_graph_add_constant(d->graph, name, dtype, 0, NULL, element, out);
}

sb_status sb_draft_before(sb_draft *d, const char *op, const sb_value_id *in,
                          size_t n_in, const sb_attr *attr, sb_value_id *out)
{
    sb_value_id result = SB_NONE;
    char *name = NULL;

    SB_TRY(stem_of(d, op, &name));
    SB_TRY(sb_graph_add_value_like(d->graph, name, &result));
    const sb_node_spec spec = {
        .op = op,
        .name = name,
        .inputs = in,
        .n_in = n_in,
        .outputs = &result,
        .n_out = 1,
        .attrs = attr,
        .n_attrs = attr ? 1 : 0,
    };
    SB_TRY(sb_graph_add_node(d->graph, &spec, NULL));
    *out = result;
    return SB_OK;
}

/* ---- ranks and element types ------------------------------------------------
 * Nodes before the draft are already in the canonical form. */

const sb_tensor *sb_draft_constant(const sb_draft *d, sb_value_id value)
{
    if (value == SB_NONE)
        return NULL;
    const sb_value *v = sb_graph_value(d->graph, value);
    return v->is_constant && !v->is_input ? &v->constant : NULL;
}

typedef enum rank_rule {
    RANK_SAME, /* as input 0 */
    RANK_MAX,  /* the highest of all inputs */
    RANK_ONE,
    RANK_TWO,
    RANK_RESHAPE,
    RANK_SQUEEZE,
    RANK_UNSQUEEZE,
    RANK_REDUCE,
    RANK_GATHER,
} rank_rule;

typedef struct rank_row {
    const char *op;
    rank_rule rule;
} rank_row;

/* clang-format off */
static const rank_row rank_rows[] = {
    {"Abs", RANK_SAME},             {"Add", RANK_MAX},
    {"AveragePool", RANK_SAME},     {"BatchNormalization", RANK_SAME},
    {"Cast", RANK_SAME},            {"Clip", RANK_SAME},
    {"Concat", RANK_SAME},          {"Conv", RANK_SAME},
    {"ConvTranspose", RANK_SAME},   {"Div", RANK_MAX},
    {"Dropout", RANK_SAME},         {"Elu", RANK_SAME},
    {"Erf", RANK_SAME},             {"Exp", RANK_SAME},
    {"Flatten", RANK_TWO},          {"Gather", RANK_GATHER},
    {"Gemm", RANK_TWO},             {"GlobalAveragePool", RANK_SAME},
    {"GlobalMaxPool", RANK_SAME},   {"HardSigmoid", RANK_SAME},
    {"Identity", RANK_SAME},        {"InstanceNormalization", RANK_SAME},
    {"LRN", RANK_SAME},             {"LeakyRelu", RANK_SAME},
    {"Log", RANK_SAME},             {"LogSoftmax", RANK_SAME},
    {"MatMul", RANK_MAX},           {"Max", RANK_MAX},
    {"MaxPool", RANK_SAME},         {"Min", RANK_MAX},
    {"Mul", RANK_MAX},              {"Neg", RANK_SAME},
    {"PRelu", RANK_SAME},           {"Pad", RANK_SAME},
    {"Pow", RANK_MAX},              {"Reciprocal", RANK_SAME},
    {"ReduceMax", RANK_REDUCE},     {"ReduceMean", RANK_REDUCE},
    {"ReduceMin", RANK_REDUCE},     {"ReduceSum", RANK_REDUCE},
    {"Relu", RANK_SAME},            {"Reshape", RANK_RESHAPE},
    {"Resize", RANK_SAME},          {"Selu", RANK_SAME},
    {"Shape", RANK_ONE},            {"Sigmoid", RANK_SAME},
    {"Slice", RANK_SAME},           {"Softmax", RANK_SAME},
    {"Softplus", RANK_SAME},        {"Split", RANK_SAME},
    {"Sqrt", RANK_SAME},            {"Squeeze", RANK_SQUEEZE},
    {"Sub", RANK_MAX},              {"Sum", RANK_MAX},
    {"Tanh", RANK_SAME},            {"Transpose", RANK_SAME},
    {"Unsqueeze", RANK_UNSQUEEZE},  {"Where", RANK_MAX},
};
/* clang-format on */

/* `budget` bounds the walk: shared inputs would make it exponential. */
static int rank_of(const sb_draft *d, sb_value_id value, int *budget);

static int rank_max(const sb_draft *d, const sb_node *node, int *budget)
{
    int most = -1;

    for (uint32_t i = 0; i < node->n_in; i++) {
        int r = rank_of(d, node->inputs[i], budget);
        if (r < 0)
            return -1;
        most = r > most ? r : most;
    }
    return most;
}

/* Elements of the constant input 1, or -1. */
static int count_in_1(const sb_draft *d, const sb_node *node)
{
    const sb_tensor *t =
        node->n_in > 1 ? sb_draft_constant(d, node->inputs[1]) : NULL;

    if (!t || t->rank > 1 || sb_tensor_count(t) > SB_MAX_RANK)
        return -1;
    return (int)sb_tensor_count(t);
}

static int rank_by(const sb_draft *d, const sb_node *node, rank_rule rule,
                   int *budget)
{
    if (rule == RANK_ONE)
        return 1;
    if (rule == RANK_TWO)
        return 2;
    if (rule == RANK_RESHAPE)
        return count_in_1(d, node);
    if (rule == RANK_MAX)
        return rank_max(d, node, budget);
    int rank = rank_of(d, node->n_in > 0 ? node->inputs[0] : SB_NONE, budget);
    int n = count_in_1(d, node);
    if (rank < 0 || rule == RANK_SAME)
        return rank;
    if (rule == RANK_GATHER) {
        int indices =
            rank_of(d, node->n_in > 1 ? node->inputs[1] : SB_NONE, budget);
        return indices < 0 ? -1 : rank + indices - 1;
    }
    const sb_attr *keep = sb_node_attr(node, "keepdims");
    if (rule == RANK_REDUCE && !(keep && keep->i == 0))
        return rank;
    if (n < 0)
        return -1;
    return rule == RANK_UNSQUEEZE ? rank + n : rank - n;
}

static int rank_of(const sb_draft *d, sb_value_id value, int *budget)
{
    int rank = -1;

    if (value == SB_NONE || (*budget)-- <= 0)
        return -1;
    const sb_value *v = sb_graph_value(d->graph, value);
    if (v->type.shape.rank >= 0)
        return v->type.shape.rank;
    const sb_node *node = sb_graph_producer(d->graph, value);
    if (!node || node->domain[0])
        return -1;
    for (size_t i = 0; i < SB_COUNT(rank_rows); i++)
        if (strcmp(rank_rows[i].op, node->op) == 0)
            rank = rank_by(d, node, rank_rows[i].rule, budget);
    return rank > SB_MAX_RANK ? -1 : rank;
}

int sb_draft_rank(const sb_draft *d, sb_value_id value)
{
    int budget = 256;

    return rank_of(d, value, &budget);
}

sb_dtype sb_draft_dtype(const sb_draft *d, sb_value_id value)
{
    for (int steps = 0; value != SB_NONE && steps < 256; steps++) {
        const sb_value *v = sb_graph_value(d->graph, value);
        if (v->type.dtype != SB_DTYPE_NONE)
            return v->type.dtype;
        const sb_node *node = sb_graph_producer(d->graph, value);
        if (!node || node->n_in == 0)
            break;
        if (sb_node_is(node, "Cast")) {
            const sb_attr *to = sb_node_attr(node, "to");
            bool known = to && to->type == SB_ATTR_INT && to->i > 0 &&
                         to->i < SB_DTYPE_COUNT;
            return known ? (sb_dtype)to->i : SB_DTYPE_F32;
        }
        if (sb_node_is(node, "Shape") || sb_node_is(node, "Size"))
            return SB_DTYPE_I64;
        value = node->inputs[sb_node_is(node, "Where") && node->n_in > 1];
    }
    return SB_DTYPE_F32;
}
