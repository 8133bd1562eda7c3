/* A graph for any batch from one whose file fixes it.
 *
 * Exporters write the batch of the example into the file: into the inputs, into
 * every inferred shape, and into the constants of Reshape.  The first two are
 * forgotten and inferred anew.  In the constants the first number becomes 0
 * ("as it comes") where the input has that very number, else -1 ("whatever is
 * left").  Either means the same as before for the batch of the file, so
 * nothing needs to be known about the node; whether it also means the right
 * thing for other batches is seen by inferring the shapes for seven times the
 * batch: every output must come out seven times as long in its first dimension
 * and the same in all others.  That samples do not mix all the same is known
 * from the rows of operators (batch_independence.c). */
#include "passes/batch/dynamic_batch.h"

#include <string.h>

#include "ops/op_registry.h"

/* A factor that is unlikely to fit by accident. */
enum { PROBE = 7 };

/* The number in the first dimension of all inputs; 0 if there is none because
 * all have symbols; -1 if they do not agree. */
static int64_t fixed_batch(const sb_graph *g)
{
    int64_t batch = 0;

    for (size_t i = 0; i < g->n_inputs; i++) {
        const sb_value *v = sb_graph_value(g, g->inputs[i]);
        const sb_shape *s = &v->type.shape;

        if (v->is_constant)
            continue;
        if (s->rank < 1 || (sb_dim_known(s->dim[0]) && s->dim[0] < 1))
            return -1;
        if (!sb_dim_known(s->dim[0]))
            continue;
        if (batch > 0 && s->dim[0] != batch)
            return -1;
        batch = s->dim[0];
    }
    return batch;
}

/* ---- constants that repeat the batch ------------------------------------ */

/* What to write in place of the first number of a target; itself: nothing. */
static int64_t first_number(const sb_shape *from, const sb_tensor *target)
{
    int64_t n = sb_tensor_count(target), first = sb_tensor_get_i64(target, 0);

    if (first < 1)
        return first;
    if (from->rank > 0 && from->dim[0] == first)
        return 0;
    for (int64_t i = 1; i < n; i++) {
        int64_t d = sb_tensor_get_i64(target, i);

        /* A second -1 is not allowed, and 0 may mean an empty tensor. */
        if (d < 1)
            return first;
    }
    return -1;
}

static sb_status free_reshape(sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_attr *zero = sb_node_attr(node, "allowzero");
    const sb_attr off = {.name = "allowzero", .type = SB_ATTR_INT, .i = 0};
    int64_t v[SB_MAX_RANK];
    bool has_zero = false;

    if (node->n_in != 2 || node->inputs[0] == SB_NONE ||
        node->inputs[1] == SB_NONE)
        return SB_OK;
    const sb_value *shape = sb_graph_value(g, node->inputs[1]);
    const sb_tensor *t = &shape->constant;
    if (!shape->is_constant || t->dtype != SB_DTYPE_I64 || t->rank != 1 ||
        t->dims[0] < 1 || t->dims[0] > SB_MAX_RANK)
        return SB_OK;
    int64_t first =
        first_number(&sb_graph_value(g, node->inputs[0])->type.shape, t);
    if (first == sb_tensor_get_i64(t, 0))
        return SB_OK;
    int64_t n = t->dims[0];
    for (int64_t i = 0; i < n; i++) {
        v[i] = sb_tensor_get_i64(t, i);
        has_zero = has_zero || v[i] == 0;
    }
    v[0] = first;
    if (zero && zero->i) { /* PyTorch sets it everywhere */
        if (has_zero)
            return SB_OK;
        SB_TRY(sb_graph_set_attr(g, id, &off));
    }
    sb_value_id fresh;
    SB_TRY(sb_graph_add_constant(g, "shape", SB_DTYPE_I64, 1, &n, v, &fresh));
    return sb_graph_set_input(g, id, 1, fresh);
}

static sb_status free_constants(sb_graph *g)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        if (!sb_graph_node(g, id)->dead &&
            sb_node_is(sb_graph_node(g, id), "Reshape"))
            SB_TRY(free_reshape(g, id));
    return SB_OK;
}

/* ---- shapes -------------------------------------------------------------- */

/* Forgets every shape but those of constants and of the root's inputs. */
static void forget_shapes(sb_graph *g)
{
    for (sb_value_id v = 0; v < g->n_values; v++) {
        sb_value *value = sb_graph_value(g, v);

        if (!value->is_constant && !(value->is_input && !g->parent)) {
            value->type.shape.rank = -1;
            value->denoted_type = (sb_bytes){0};
        }
    }
    for (size_t i = 0; i < g->n_subs; i++)
        forget_shapes(g->subs[i]);
}

static sb_status set_batch(sb_graph *g, sb_dim batch)
{
    for (size_t i = 0; i < g->n_inputs; i++) {
        sb_value *v = sb_graph_value(g, g->inputs[i]);

        if (!v->is_constant) {
            v->type.shape.dim[0] = batch;
            v->denoted_type = (sb_bytes){0};
        }
    }
    forget_shapes(g);
    return sb_graph_infer(g);
}

/* A symbol that no dimension has yet. */
static sb_status fresh_symbol(sb_graph *g, sb_dim *out)
{
    static const char *const names[] = {"N", "batch", "batch_size"};
    const char *name = NULL;

    for (size_t i = 0; i < SB_COUNT(names) && !name; i++)
        if (sb_map_get(&g->symbol_ids, names[i]) == SB_MAP_NONE)
            name = names[i];
    return sb_graph_symbol(g, name ? name : "dynamic_batch", out);
}

static bool dynamic_batch_scaled(const sb_shape *before, const sb_shape *after,
                                 int64_t batch)
{
    if (before->rank < 1 || before->rank != after->rank ||
        before->dim[0] != batch || after->dim[0] != PROBE * batch)
        return false;
    for (int i = 1; i < before->rank; i++)
        if (sb_dim_known(before->dim[i]) && before->dim[i] != after->dim[i])
            return false;
    return true;
}

/* Do the outputs of `free` scale with the batch, and change in no other way? */
static sb_status dynamic_batch_probe(const sb_graph *graph,
                                     const sb_graph *free, int64_t batch,
                                     bool *good)
{
    sb_graph *copy = NULL;

    *good = false;
    SB_TRY(sb_graph_clone(free, &copy));
    sb_status status = set_batch(copy, PROBE * batch);
    if (status == SB_OK) {
        *good = true;
        for (size_t i = 0; i < graph->n_outputs; i++)
            *good =
                *good &&
                dynamic_batch_scaled(
                    &sb_graph_value(graph, graph->outputs[i])->type.shape,
                    &sb_graph_value(copy, copy->outputs[i])->type.shape, batch);
    }
    sb_graph_free(copy);
    /* Shapes that do not fit are an answer, not a failure. */
    return status == SB_NO_MEMORY || status == SB_INTERRUPTED ? status : SB_OK;
}

static sb_status dynamic_batch_rewrite(const sb_graph *graph, sb_graph *copy,
                                       int64_t batch, bool *done)
{
    sb_dim symbol;

    *done = batch == 0;
    if (batch <= 0 || batch > INT32_MAX)
        return SB_OK;
    SB_TRY(free_constants(copy));
    SB_TRY(dynamic_batch_probe(graph, copy, batch, done));
    if (!*done)
        return SB_OK;
    SB_TRY(fresh_symbol(copy, &symbol));
    SB_TRY(set_batch(copy, symbol));
    return sb_batch_is_independent(copy, done);
}

sb_status sb_graph_make_batch_dynamic(const sb_graph *graph, sb_graph **out)
{
    sb_graph *copy = NULL;
    bool done = false;

    SB_TRY(sb_graph_clone(graph, &copy));
    sb_status status =
        dynamic_batch_rewrite(graph, copy, fixed_batch(graph), &done);
    if (status == SB_OK && done) {
        *out = copy;
        return SB_OK;
    }
    sb_graph_free(copy);
    if (status == SB_OK)
        *out = NULL;
    return status;
}
