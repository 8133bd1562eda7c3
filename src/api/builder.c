/* Building a model in C: values by name, nodes by operator name. */
#include <string.h>

#include "api/model.h"
#include "graph/op.h"
#include "graph/text.h"
#include "ops/op_registry.h"

sb_status sb_model_add_input(sb_ctx *ctx, sb_model *model, const char *name,
                             sb_dtype dtype, int rank, const int64_t *dims)
{
    sb_graph *g = model->graph;
    sb_value_id id;

    if (rank < 0 || rank > SB_MAX_RANK)
        return sb_fail(ctx, SB_BAD_ARG, "input '%s': rank %d, want 0 to %d",
                       name, rank, SB_MAX_RANK);
    if (!sb_dtype_valid((int)dtype))
        return sb_fail(ctx, SB_BAD_ARG, "input '%s': no element type %d", name,
                       (int)dtype);
    SB_TRY(sb_graph_add_value(g, name, &id));
    sb_value *v = sb_graph_value(g, id);
    v->type.dtype = dtype;
    v->type.shape.rank = rank;
    for (int i = 0; i < rank; i++)
        v->type.shape.dim[i] = dims[i] < 0 ? SB_DIM_UNKNOWN : dims[i];
    return sb_graph_add_input(g, id);
}

sb_status sb_model_add_constant(sb_ctx *ctx, sb_model *model, const char *name,
                                const sb_tensor *tensor)
{
    sb_tensor copy = sb_tensor_make(tensor->dtype, tensor->rank, tensor->dims);
    sb_value_id id;

    SB_TRY(sb_graph_add_value(model->graph, name, &id));
    if (tensor->dtype == SB_DTYPE_STRING) {
        SB_TRY(sb_tensor_alloc_strings(ctx, &copy, tensor->data));
    } else {
        SB_TRY(sb_tensor_alloc(ctx, &copy));
        if (sb_tensor_bytes(tensor) > 0)
            memcpy(copy.data, tensor->data, sb_tensor_bytes(tensor));
    }
    sb_status status = sb_graph_set_constant(model->graph, id, &copy);
    sb_tensor_drop(&copy);
    return status;
}

/* The next word of `*text` copied into the arena; NULL at the end or when
 * memory is out (then *status says so). */
static const char *next_word(sb_graph *g, const char **text, sb_status *status)
{
    const char *begin = *text + strspn(*text, " ");
    size_t len = strcspn(begin, " ");
    const char *word = len ? sb_arena_strn(g->arena, begin, len) : NULL;

    *text = begin + len;
    if (len && !word)
        *status = SB_NO_MEMORY;
    return word;
}

/* Values named in `words`; absent ones (`_`) are SB_NONE.  Outputs are made. */
static sb_status words_to_values(sb_graph *g, const char *words, bool make,
                                 sb_value_id **out, size_t *n)
{
    size_t cap = strlen(words) / 2 + 1;
    sb_status status = SB_OK;

    *n = 0;
    *out = sb_arena_alloc(g->arena, cap, sizeof **out);
    if (!*out)
        return SB_NO_MEMORY;
    for (const char *word; (word = next_word(g, &words, &status));) {
        sb_value_id id = SB_NONE;

        if (make && strcmp(word, "_") != 0)
            SB_TRY(sb_graph_add_value(g, word, &id));
        else if (strcmp(word, "_") != 0) {
            id = sb_graph_find_value(g, word);
            if (id == SB_NONE)
                return sb_fail(g->ctx, SB_BAD_ARG, "no value '%s'", word);
        }
        (*out)[(*n)++] = id;
    }
    return status;
}

sb_status sb_model_add_node(sb_ctx *ctx, sb_model *model, const char *op,
                            const char *inputs, const char *outputs,
                            const char *attrs)
{
    sb_graph *g = model->graph;
    const char *colons = strstr(op, "::");
    sb_value_id *in = NULL, *out = NULL;
    sb_attr *list = NULL;
    sb_node_id id;
    sb_node_spec spec = {.op = op};

    (void)ctx;
    if (colons) {
        spec.op = colons + 2;
        spec.domain = sb_arena_strn(g->arena, op, (size_t)(colons - op));
        if (!spec.domain)
            return SB_NO_MEMORY;
    }
    SB_TRY(words_to_values(g, inputs, false, &in, &spec.n_in));
    if (attrs)
        SB_TRY(sb_graph_parse_attrs(g, attrs, &list, &spec.n_attrs));
    SB_TRY(words_to_values(g, outputs, true, &out, &spec.n_out));
    spec.inputs = in;
    spec.outputs = out;
    spec.attrs = list;
    return sb_graph_add_node(g, &spec, &id);
}

sb_status sb_model_add_output(sb_ctx *ctx, sb_model *model, const char *name)
{
    sb_value_id id = sb_graph_find_value(model->graph, name);

    if (id == SB_NONE)
        return sb_fail(ctx, SB_BAD_ARG, "no value '%s'", name);
    if (sb_graph_value(model->graph, id)->is_output)
        return sb_fail(ctx, SB_BAD_ARG, "'%s' is an output already", name);
    return sb_graph_add_output(model->graph, id);
}

sb_status sb_model_finish(sb_ctx *ctx, sb_model *model)
{
    (void)ctx;
    SB_TRY(sb_graph_verify(model->graph));
    SB_TRY(sb_graph_infer(model->graph));
    return sb_model_refresh(model);
}
