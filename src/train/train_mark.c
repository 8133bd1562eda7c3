/* Is it the same model?  A run that goes on from other weights than it began
 * with would mix two networks: calibrated scales and frozen weights are those
 * of the file. */
#include <string.h>

#include "api/model.h"
#include "tensor/mark.h"
#include "train/trainer.h"

/* The mark of a constant; 0: of none, or another rank knows it. */
static uint64_t mark_constant(const sb_value *value, const sb_learner *learner)
{
    const sb_tensor *t = &value->constant;

    if (!value->is_constant || !t->data || t->dtype == SB_DTYPE_STRING ||
        (learner && !sb_learner_reads(learner, value->name)))
        return 0;
    uint64_t mark = sb_mark(SB_MARK_BEGIN, value->name, strlen(value->name));
    return sb_mark(mark, t->data, sb_tensor_bytes(t)) | 1;
}

/* What every rank knows of a model: the size of its file, and names, types and
 * shapes of its constants. */
static uint64_t mark_outline(const sb_model *model)
{
    const sb_graph *g = model->graph;
    uint64_t bytes = model->file_bytes;
    uint64_t mark = sb_mark(SB_MARK_BEGIN, &bytes, sizeof bytes);

    for (sb_value_id v = 0; v < g->n_values; v++) {
        const sb_value *value = sb_graph_value(g, v);
        const sb_tensor *t = &value->constant;
        const int64_t type[] = {t->dtype, t->rank};

        if (!value->is_constant)
            continue;
        mark = sb_mark(mark, value->name, strlen(value->name));
        mark = sb_mark(mark, type, sizeof type);
        mark = sb_mark(mark, t->dims, (size_t)t->rank * sizeof t->dims[0]);
    }
    return mark | 1;
}

/* Operators, attributes and what reads what. */
static uint64_t mark_graph(uint64_t mark, const sb_graph *g)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *n = sb_graph_node(g, id);
        const sb_graph *body;

        if (n->dead)
            continue;
        mark = sb_mark(mark, n->op, strlen(n->op));
        mark = sb_mark(mark, n->domain, strlen(n->domain));
        for (uint32_t i = 0; i < n->n_in; i++)
            mark = sb_mark(mark, &n->inputs[i], sizeof n->inputs[i]);
        for (uint32_t i = 0; i < n->n_attrs; i++) {
            const sb_attr *a = &n->attrs[i];
            const void *data = NULL;
            size_t size = sb_attr_bytes(a, &data);

            mark = sb_mark(mark, a->name, strlen(a->name));
            mark = sb_mark(mark, data, size);
        }
        for (size_t i = 0; (body = sb_node_body(n, i)); i++)
            mark = mark_graph(mark, body);
    }
    return mark;
}

uint64_t sb_train_mark_network(const sb_model *model)
{
    return mark_graph(SB_MARK_BEGIN, model->graph);
}

static sb_status mark_differs(sb_ctx *ctx, int rank)
{
    return sb_fail(ctx, SB_BAD_DATA,
                   "rank %d has another model than the ranks before it", rank);
}

/* Each mark becomes that of the ranks that know it, who must agree. */
static sb_status mark_join(sb_ctx *ctx, uint64_t *marks, size_t n)
{
    int ranks = sb_ctx_ranks(ctx);
    size_t *sizes = sb_alloc(ctx, (size_t)ranks, sizeof *sizes);
    void *all = NULL;
    sb_status status =
        sizes ? sb_comm_gather(ctx, marks, n * sizeof *marks, sizes, &all)
              : SB_NO_MEMORY;

    for (int r = 0; r < ranks && status == SB_OK; r++)
        if (sizes[r] != n * sizeof *marks)
            status = mark_differs(ctx, r);
    for (size_t i = 0; i < n * (size_t)ranks && status == SB_OK; i++) {
        uint64_t one = ((const uint64_t *)all)[i], *mark = &marks[i % n];

        if (i < n) /* of rank 0 */
            *mark = one;
        else if (one && *mark && one != *mark)
            status = mark_differs(ctx, (int)(i / n));
        else if (one)
            *mark = one;
    }
    sb_memory_free(all);
    sb_free(ctx, sizes);
    return status;
}

sb_status sb_train_mark(const sb_model *model, const sb_learner *learner,
                        uint64_t *out)
{
    const sb_graph *g = model->graph;
    uint64_t *marks = sb_alloc(g->ctx, g->n_values + 1, sizeof *marks);
    sb_status status = marks ? SB_OK : SB_NO_MEMORY;

    for (sb_value_id v = 0; status == SB_OK && v < g->n_values; v++)
        marks[v] = mark_constant(sb_graph_value(g, v), learner);
    if (status == SB_OK)
        marks[g->n_values] = mark_outline(model);
    if (status == SB_OK && learner)
        status = mark_join(g->ctx, marks, g->n_values + 1);
    *out = SB_MARK_BEGIN;
    for (sb_value_id v = 0; status == SB_OK && v < g->n_values; v++)
        if (marks[v])
            *out = sb_mark(*out, &marks[v], sizeof marks[v]);
    sb_free(g->ctx, marks);
    return status;
}
