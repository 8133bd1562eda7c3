/* Kernels in the place of groups: the inputs of each integer operator, gathered
 * from the Q and DQ nodes that it replaces. */
#include <string.h>

#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

#define MS "com.microsoft"

/* The inputs of a node to be. */
typedef struct input_list {
    sb_value_id v[3 * SB_SIM_MAX_IN + 3];
    size_t n;
} input_list;

static void fuse_take(input_list *list, sb_value_id value)
{
    list->v[list->n++] = value;
}

/* The zero point of a Q or DQ; a fresh 0 if it has none. */
static sb_status zero_of(sb_sim *sim, sb_node_id id, sb_value_id *out)
{
    sb_shape scalar = {.rank = 0};
    sb_qdq p;

    sb_qdq_read(sim->g, sb_graph_node(sim->g, id), &p);
    *out = p.zero;
    if (p.zero != SB_NONE)
        return SB_OK;
    return sb_rewrite_fill(sim->g, "zero_point", p.type, &scalar, 0, out);
}

/* Scale and zero point. */
static sb_status take_params(sb_sim *sim, input_list *list, sb_node_id id)
{
    sb_value_id zero = SB_NONE;

    SB_TRY(zero_of(sim, id, &zero));
    fuse_take(list, sb_graph_node(sim->g, id)->inputs[1]);
    fuse_take(list, zero);
    return SB_OK;
}

/* Integers, scale and zero point. */
static sb_status take_dq(sb_sim *sim, input_list *list, sb_node_id id)
{
    fuse_take(list, sb_graph_node(sim->g, id)->inputs[0]);
    return take_params(sim, list, id);
}

static sb_value_id dq_data(const sb_sim *sim, sb_node_id id)
{
    return sb_graph_node(sim->g, id)->inputs[0];
}

/* ---- inputs by kind ----------------------------------------------------- */

static sb_status conv_inputs(sb_sim *sim, const sb_sim_group *grp,
                             input_list *in)
{
    SB_TRY(take_dq(sim, in, grp->dq[0]));
    SB_TRY(take_dq(sim, in, grp->dq[1]));
    SB_TRY(take_params(sim, in, grp->q[0]));
    if (grp->n_dq > 2)
        fuse_take(in, dq_data(sim, grp->dq[2]));
    return SB_OK;
}

static sb_status matmul_inputs(sb_sim *sim, const sb_sim_group *grp,
                               input_list *in)
{
    sb_value_id a_zero = SB_NONE, b_zero = SB_NONE;

    if (grp->n_q > 0)
        return conv_inputs(sim, grp, in);
    SB_TRY(zero_of(sim, grp->dq[0], &a_zero));
    SB_TRY(zero_of(sim, grp->dq[1], &b_zero));
    fuse_take(in, dq_data(sim, grp->dq[0]));
    fuse_take(in, dq_data(sim, grp->dq[1]));
    fuse_take(in, sb_graph_node(sim->g, grp->dq[0])->inputs[1]);
    fuse_take(in, sb_graph_node(sim->g, grp->dq[1])->inputs[1]);
    fuse_take(in, a_zero);
    fuse_take(in, b_zero);
    return SB_OK;
}

static sb_status gemm_inputs(sb_sim *sim, const sb_sim_group *grp,
                             input_list *in)
{
    SB_TRY(take_dq(sim, in, grp->dq[0]));
    SB_TRY(take_dq(sim, in, grp->dq[1]));
    if (grp->n_dq > 2)
        fuse_take(in, dq_data(sim, grp->dq[2]));
    if (grp->n_q == 0)
        return SB_OK;
    if (grp->n_dq < 3)
        fuse_take(in, SB_NONE);
    return take_params(sim, in, grp->q[0]);
}

/* The result's parameters come last, but first for a Concat. */
static sb_status each_input(sb_sim *sim, const sb_sim_group *grp,
                            input_list *in)
{
    const sb_node *node = sb_graph_node(sim->g, grp->node);
    bool first = sb_node_is(node, "Concat");

    if (grp->rule->kind == SB_FUSE_WHERE)
        fuse_take(in, node->inputs[0]);
    if (first)
        SB_TRY(take_params(sim, in, grp->q[0]));
    for (size_t i = 0; i < grp->n_dq; i++)
        SB_TRY(take_dq(sim, in, grp->dq[i]));
    return first ? SB_OK : take_params(sim, in, grp->q[0]);
}

/* ---- putting it in place ------------------------------------------------ */

/* The Q and DQ nodes that nothing needs any more. */
static sb_status prune_group(sb_sim *sim, const sb_sim_group *grp)
{
    for (size_t i = 0; i < grp->n_q; i++)
        if (!sb_graph_node(sim->g, grp->q[i])->dead)
            SB_TRY(sb_rewrite_prune(sim->g, grp->q[i]));
    for (size_t i = 0; i < grp->n_dq; i++)
        if (!sb_graph_node(sim->g, grp->dq[i])->dead)
            SB_TRY(sb_rewrite_prune(sim->g, grp->dq[i]));
    return SB_OK;
}

static bool keeps_attr(const char *op, const char *name)
{
    if (strcmp(op, "QGemm") == 0)
        return strcmp(name, "beta") != 0;
    return strcmp(op, "MatMulIntegerToFloat") != 0 &&
           strcmp(op, "QLinearMatMul") != 0;
}

static sb_status copy_attrs(sb_sim *sim, const sb_node *from, sb_node_id to)
{
    sb_graph *g = sim->g;
    const char *op = sb_graph_node(g, to)->op;

    for (uint32_t i = 0; i < from->n_attrs; i++)
        if (keeps_attr(op, from->attrs[i].name))
            SB_TRY(sb_graph_set_attr(g, to, &from->attrs[i]));
    if (strcmp(op, "QLinearSoftmax") == 0)
        SB_TRY(sb_graph_set_attr_int(g, to, "opset", 13));
    return SB_OK;
}

/* The new node makes what the Q made, or what the node itself made if there is
 * no Q. */
static sb_status put_kernel(sb_sim *sim, const sb_sim_group *grp,
                            const char *op, const char *domain,
                            const input_list *in)
{
    sb_graph *g = sim->g;
    const sb_node old = *sb_graph_node(g, grp->node);
    sb_node_id last = grp->n_q > 0 ? grp->q[0] : grp->node;
    sb_value_id y = sb_graph_node(g, last)->outputs[0];
    sb_node_id fresh;
    sb_node_spec spec = {.op = op,
                         .domain = domain,
                         .name = old.name,
                         .module = old.module,
                         .inputs = in->v,
                         .n_in = in->n,
                         .outputs = &y,
                         .n_out = 1,
                         .position = old.position};

    sb_sim_note(sim, grp->node, SB_SIM_INTEGER, op);
    if (grp->clip != SB_NONE)
        sb_sim_note(sim, grp->clip, SB_SIM_ABSORBED, NULL);
    sb_graph_remove_node(g, last);
    if (grp->clip != SB_NONE)
        sb_graph_remove_node(g, grp->clip);
    sb_graph_remove_node(g, grp->node);
    SB_TRY(sb_graph_add_node(g, &spec, &fresh));
    SB_TRY(copy_attrs(sim, &old, fresh));
    if (*domain)
        SB_TRY(sb_graph_add_opset(g, domain, 1));
    sim->changes++;
    return prune_group(sim, grp);
}

/* The node itself, on integers. */
static sb_status on_integers(sb_sim *sim, const sb_sim_group *grp)
{
    sb_graph *g = sim->g;
    const sb_node *dq = sb_graph_node(g, grp->dq[0]);
    sb_value_id x = dq->inputs[0];
    sb_qdq p;

    sb_qdq_read(g, dq, &p);
    SB_TRY(sb_graph_set_input(g, grp->node, grp->dq_input[0], x));
    for (size_t i = 0; i < grp->n_q; i++) {
        const sb_node *q = sb_graph_node(g, grp->q[i]);
        sb_value_id mine = q->inputs[0];
        bool done = false;
        sb_graph_value(g, mine)->type.dtype = p.type;
        SB_TRY(sb_graph_replace_value(g, q->outputs[0], mine, &done));
    }
    sb_sim_note(sim, grp->node, SB_SIM_MOVES, NULL);
    sim->changes++;
    return prune_group(sim, grp);
}

/* For runtimes whose own graph is not known: the group is only noted. */
static sb_status note_group(sb_sim *sim, const sb_sim_group *grp)
{
    sim->used_q += grp->n_q;
    sim->used_dq += grp->n_dq;
    sb_sim_note(sim, grp->node, SB_SIM_INTEGER, grp->rule->kernel);
    if (grp->clip != SB_NONE)
        sb_sim_note(sim, grp->clip, SB_SIM_ABSORBED, NULL);
    return SB_OK;
}

/* The group stays, and is found again in each round. */
static sb_status note_weight(sb_sim *sim, const sb_sim_group *grp)
{
    sb_node_id origin = sb_sim_origin(sim, grp->node);

    if (sim->verdicts && origin != SB_NONE &&
        sim->verdicts[origin].fate != SB_SIM_INTEGER)
        sim->used_dq++;
    sb_sim_note(sim, grp->node, SB_SIM_INTEGER, grp->rule->kernel);
    return SB_OK;
}

sb_status sb_group_fuse(sb_sim *sim, const sb_sim_group *grp)
{
    const char *op = grp->rule->kernel;
    input_list in = {.n = 0};

    if (sim->target->steps != SB_SIM_ORT)
        return note_group(sim, grp);
    switch (grp->rule->kind) {
    case SB_FUSE_SPLIT:
    case SB_FUSE_DROP:
    case SB_FUSE_DROP_DQ:
        return on_integers(sim, grp);
    case SB_FUSE_WEIGHT:
        /* Its result depends on how the kernel rounds the input; the float
         * graph stays. */
        return note_weight(sim, grp);
    case SB_FUSE_CONV:
        SB_TRY(conv_inputs(sim, grp, &in));
        break;
    case SB_FUSE_GEMM:
        SB_TRY(gemm_inputs(sim, grp, &in));
        break;
    case SB_FUSE_MATMUL:
        SB_TRY(matmul_inputs(sim, grp, &in));
        if (grp->n_q == 0)
            return put_kernel(sim, grp, "MatMulIntegerToFloat", MS, &in);
        break;
    default:
        SB_TRY(each_input(sim, grp, &in));
        break;
    }
    return put_kernel(sim, grp, op, grp->rule->kernel_domain, &in);
}
