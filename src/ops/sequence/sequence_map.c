/* SequenceMap: runs its body for each element of a sequence.
 *
 *     y[i] = body(x[i], a[i], b)
 *
 * where further inputs are sequences as long as x, or tensors that each run
 * sees as they are. */
#include "ops/control/iterate.h"
#include "ops/sequence/sequence_util.h"

typedef struct {
    sb_graph *body;
} map_attrs;

static const sb_attr_def attrs[] = {
    {"body", SB_ATTR_GRAPH, offsetof(map_attrs, body), .required = true},
    {0},
};

static sb_status map_infer(sb_infer *in)
{
    const map_attrs *a = in->attrs;

    if (a->body->n_inputs != in->n_in || a->body->n_outputs != in->n_out)
        return sb_infer_fail(in,
                             "%u inputs and %u outputs, the body has %zu "
                             "and %zu",
                             in->n_in, in->n_out, a->body->n_inputs,
                             a->body->n_outputs);
    for (uint32_t i = 0; i < in->n_in; i++)
        if (!in->in[i])
            return sb_infer_fail(in, "input %u is absent", i);
    for (uint32_t i = 0; i < in->n_out; i++)
        in->out[i].type = sb_sequence_type();
    return SB_OK;
}

/* One execution. */
typedef struct {
    sb_sequence *from;           /* of each input; n -1: a tensor */
    sb_tensor *element;          /* of each input */
    const sb_tensor **in, **out; /* of the body */
    sb_tensor *kept; /* copies of results: by output, then element */
    size_t n_kept;
    int64_t n;
} mapping;

static sb_status map_open(sb_kernel *k, mapping *m)
{
    const map_attrs *a = k->attrs;
    size_t all = 0;

    m->from = sb_alloc(k->ctx, k->n_in, sizeof *m->from);
    m->element = sb_alloc(k->ctx, k->n_in, sizeof *m->element);
    m->in = sb_alloc(k->ctx, k->n_in, sizeof *m->in);
    m->out = sb_alloc(k->ctx, a->body->n_outputs, sizeof *m->out);
    if (!m->from || !m->element || !m->in || !m->out)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < k->n_in; i++) {
        m->from[i].n = -1;
        m->in[i] = k->in[i];
        if (i > 0 && k->in[i]->dtype != SB_DTYPE_SEQUENCE)
            continue;
        SB_TRY(sb_sequence_in(k, i, &m->from[i]));
        m->in[i] = &m->element[i];
        if (m->from[i].n != m->from[0].n)
            return sb_kernel_fail(
                k, SB_BAD_DATA, "input %u has %lld elements, input 0 %lld", i,
                (long long)m->from[i].n, (long long)m->from[0].n);
    }
    m->n = m->from[0].n;
    if (!sb_mul_size((size_t)m->n, k->n_out, &all))
        return SB_NO_MEMORY;
    m->kept = sb_alloc(k->ctx, all + 1, sizeof *m->kept);
    m->n_kept = m->kept ? all : 0;
    return m->kept ? SB_OK : SB_NO_MEMORY;
}

static sb_status map_run(sb_kernel *k, mapping *m)
{
    const map_attrs *a = k->attrs;

    for (int64_t i = 0; i < m->n; i++) {
        for (uint32_t j = 0; j < k->n_in; j++)
            if (m->from[j].n >= 0)
                m->element[j] = sb_sequence_get(&m->from[j], i);
        SB_TRY(sb_ctx_poll(k->ctx));
        SB_TRY(k->host->run_body(k, a->body, m->in, m->out));
        for (uint32_t j = 0; j < k->n_out; j++)
            if (k->out[j])
                SB_TRY(sb_tensor_clone(k->ctx, m->out[j],
                                       &m->kept[j * (size_t)m->n + (size_t)i]));
    }
    for (uint32_t j = 0; j < k->n_out; j++) {
        const sb_type *t = &sb_graph_value(a->body, a->body->outputs[j])->type;
        const sb_tensor *items = m->kept + j * (size_t)m->n;
        if (k->out[j])
            SB_TRY(sb_sequence_give(k, j, m->n ? items[0].dtype : t->dtype,
                                    items, (size_t)m->n));
    }
    return SB_OK;
}

static sb_status map_forward(sb_kernel *k)
{
    mapping m = {0};
    sb_status status = map_open(k, &m);

    if (status == SB_OK)
        status = map_run(k, &m);
    for (size_t i = 0; i < m.n_kept; i++)
        sb_tensor_drop(&m.kept[i]);
    sb_free(k->ctx, m.kept);
    sb_free(k->ctx, m.out);
    sb_free(k->ctx, m.in);
    sb_free(k->ctx, m.element);
    sb_free(k->ctx, m.from);
    return status;
}

const sb_op_def sb_op_sequence_map = {
    .name = "SequenceMap",
    .since = 17,
    .in_min = 1,
    .in_max = SB_ARITY_ANY,
    .out_min = 1,
    .out_max = SB_ARITY_ANY,
    .flags = SB_OP_DATA_SHAPE | SB_OP_SEQUENCES,
    .attrs_size = sizeof(map_attrs),
    .attrs = attrs,
    .infer = map_infer,
    .forward = map_forward,
};
