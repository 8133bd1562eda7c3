/* One node ready to run.
 *
 * A static step only calls its kernel.  A dynamic step, whose shapes depend on
 * data, infers, prepares, runs and releases at each run; the same path serves
 * constant folding, where everything is known. */
#include "exec/plan.h"

#include <stdint.h>
#include <string.h>

#include "base/ranks/comm.h"

/* ---- slots -------------------------------------------------------------- */

sb_status sb_slot_create(sb_arena *arena, sb_slot **list, sb_slot **out)
{
    sb_slot *s = sb_arena_alloc(arena, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    s->root = s;
    if (list) {
        s->next = *list;
        *list = s;
    }
    *out = s;
    return SB_OK;
}

void sb_slot_free(sb_slot *s)
{
    sb_tensor_drop(&s->t);
    sb_buf_unref(s->store);
    s->store = NULL;
}

sb_status sb_slot_resize(sb_ctx *ctx, sb_slot *s, const sb_tensor *like)
{
    if (!sb_tensor_size_ok(like))
        return sb_fail(ctx, SB_NO_MEMORY, "a result is too large to address");
    size_t bytes = sb_tensor_bytes(like);
    if (!s->store || sb_buf_size(s->store) < bytes) {
        sb_buf *bigger = NULL;
        SB_TRY(sb_buf_create_raw(ctx, bytes, &bigger));
        sb_buf_unref(s->store);
        s->store = bigger;
    }
    s->t = *like;
    s->t.buf = NULL;
    s->t.data = sb_buf_data(s->store);
    return SB_OK;
}

/* ---- what kernels may ask of us ----------------------------------------- */

static bool same_dims(const sb_tensor *a, const sb_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, sizeof a->dims[0] * (size_t)a->rank) == 0;
}

/* Makes the output ready to be written: room in a dynamic slot, or a check
 * that a planned one has the planned shape. */
static sb_status provide_out(sb_step *st, uint32_t i, const sb_tensor *like)
{
    sb_slot *s = st->out[i];

    if (!s)
        return SB_OK;
    if (s->kind == SLOT_DYNAMIC)
        return sb_slot_resize(st->k.ctx, s, like);
    if (!same_dims(&s->t, like))
        return sb_fail(st->k.ctx, SB_BAD_DATA,
                       "node '%s' (%s): output %u has another shape than "
                       "planned",
                       sb_node_label(st->k.graph, st->k.node), st->k.node->op,
                       i);
    return SB_OK;
}

static sb_status host_resize_out(sb_kernel *k, uint32_t i, sb_dtype dtype,
                                 int rank, const int64_t *dims)
{
    sb_tensor like = sb_tensor_make(dtype, rank, dims);

    return i < k->n_out ? provide_out(k->host_data, i, &like) : SB_OK;
}

static sb_status host_run_body(sb_kernel *k, const sb_graph *body,
                               const sb_tensor *const *inputs,
                               const sb_tensor **outputs)
{
    sb_step *st = k->host_data;
    const sb_node *node = k->node;
    uint32_t first = node->n_in;
    const sb_graph *g;
    size_t i = 0;

    for (; (g = sb_node_body(node, i)) && g != body; i++)
        first += (uint32_t)g->n_captures;
    if (!g)
        return sb_fail(k->ctx, SB_BAD_ARG, "node '%s': not a body of this node",
                       sb_node_label(k->graph, node));
    sb_exec_options opt = st->exec->opt;
    opt.profile = false; /* the node that holds it is measured */
    opt.n_states = 0;
    opt.like = NULL;
    opt.workspace = NULL;
    opt.as_made = false;
    if (!st->bodies[i])
        SB_TRY(sb_exec_create(k->ctx, body, &opt, &st->bodies[i]));
    return sb_exec_run(st->bodies[i], inputs,
                       (const sb_tensor *const *)(k->in + first), outputs);
}

static sb_status host_observe(sb_kernel *k, int64_t id, const sb_tensor *x)
{
    const sb_exec_options *opt = &((const sb_step *)k->host_data)->exec->opt;

    return opt->observe ? opt->observe(opt->observe_user, id, x) : SB_OK;
}

static sb_status host_tap(sb_kernel *k, int64_t id, const sb_tensor *x,
                          sb_tap *tap)
{
    const sb_exec_options *opt = &((const sb_step *)k->host_data)->exec->opt;

    return opt->tap ? opt->tap(opt->observe_user, id, x, tap) : SB_OK;
}

static sb_status host_pack(sb_kernel *k, uint32_t i, const sb_pack_form *form,
                           sb_pack **out)
{
    return sb_step_pack_input(k->host_data, i, form, out);
}

static int host_ranks(const sb_kernel *k, int *rank)
{
    bool many = ((const sb_step *)k->host_data)->exec->opt.ranks;

    *rank = many ? sb_ctx_rank(k->ctx) : 0;
    return many ? sb_ctx_ranks(k->ctx) : 1;
}

static sb_status host_sum(sb_kernel *k, double *x, size_t n)
{
    bool many = ((const sb_step *)k->host_data)->exec->opt.ranks;

    return many ? sb_comm_sum_f64(k->ctx, x, n) : SB_OK;
}

static const sb_kernel_host host = {
    .pack = host_pack,
    .resize_out = host_resize_out,
    .run_body = host_run_body,
    .observe = host_observe,
    .tap = host_tap,
    .ranks = host_ranks,
    .sum = host_sum,
};

/* ---- making ------------------------------------------------------------- */

sb_status sb_step_check_runnable(sb_ctx *ctx, const sb_graph *graph,
                                 const sb_node *node)
{
    const sb_op_def *op = sb_op_of(node);

    if (op && op->forward)
        return SB_OK;
    return sb_fail(ctx, SB_UNSUPPORTED,
                   "node '%s': operator %s%s%s cannot be run by this version",
                   sb_node_label(graph, node), node->domain,
                   node->domain[0] ? "::" : "", node->op);
}

bool sb_step_converts(const sb_op_def *op, sb_dtype dtype)
{
    return (op->flags & SB_OP_F32) && sb_dtype_is_float(dtype) &&
           dtype != SB_DTYPE_F32 && sb_dtype_get(dtype)->bits >= 8;
}

static size_t count_bodies(const sb_node *node)
{
    size_t n = 0;

    while (sb_node_body(node, n))
        n++;
    return n;
}

sb_status sb_step_create(sb_arena *arena, sb_exec *exec, const sb_node *node,
                         sb_step **out)
{
    const sb_op_def *op = sb_op_of(node);
    size_t n_in = (size_t)node->n_in + node->n_implicit;
    sb_step *st = sb_arena_alloc(arena, 1, sizeof *st);
    void *attrs = sb_arena_alloc(arena, 1, op->attrs_size + 1);

    if (!st || !attrs)
        return SB_NO_MEMORY;
    SB_TRY(sb_op_read_attrs(exec->ctx, exec->graph, node, op, attrs));
    st->k_in = sb_arena_alloc(arena, n_in + 1, sizeof(sb_tensor *));
    st->k_out = sb_arena_alloc(arena, node->n_out, sizeof(sb_tensor *));
    st->in = sb_arena_alloc(arena, n_in + 1, sizeof(sb_slot *));
    st->out = sb_arena_alloc(arena, node->n_out, sizeof(sb_slot *));
    st->before = sb_arena_alloc(arena, 2 * n_in + 1, sizeof *st->before);
    st->after = sb_arena_alloc(arena, node->n_out, sizeof *st->after);
    st->n_bodies = count_bodies(node);
    st->bodies = sb_arena_alloc(arena, st->n_bodies + 1, sizeof(sb_exec *));
    if (!st->k_in || !st->k_out || !st->in || !st->out || !st->before ||
        !st->after || !st->bodies)
        return SB_NO_MEMORY;
    st->exec = exec;
    st->arena = arena;
    st->k = (sb_kernel){
        .ctx = exec->ctx,
        .graph = exec->graph,
        .node = node,
        .op = op,
        .attrs = attrs,
        .n_in = node->n_in,
        .n_out = node->n_out,
        .in = st->k_in,
        .out = st->k_out,
        .exact = exec->opt.exact,
        .brief = exec->opt.brief,
        .scratch = attrs, /* of 0 bytes: somewhere, never NULL */
        .host = &host,
        .host_data = st,
    };
    *out = st;
    return SB_OK;
}

static void release_state(sb_kernel *k)
{
    if (k->state && k->op->release)
        k->op->release(k);
    else
        sb_free(k->ctx, k->state);
    k->state = NULL;
}

void sb_step_release(sb_step *st)
{
    release_state(&st->k);
    sb_step_drop_packs(st);
    for (size_t i = 0; i < st->n_bodies; i++) {
        sb_exec_free(st->bodies[i]);
        st->bodies[i] = NULL;
    }
}

/* ---- running ------------------------------------------------------------ */

void sb_run_conversion(sb_ctx *ctx, const sb_conversion *c)
{
    const sb_tensor *from = &c->from->t;
    sb_tensor *to = &c->to->t;

    if (from->layout != to->layout)
        sb_tensor_reorder(ctx, from, to);
    else
        sb_convert(from->dtype, from->data, to->dtype, to->data,
                   (size_t)sb_tensor_count(from));
}

/* Facts of all inputs with their data; then those of the outputs. */
static sb_status infer_now(sb_step *st)
{
    const sb_kernel *k = &st->k;
    sb_fact *outs = st->facts + k->n_in;

    for (uint32_t i = 0; i < k->n_in; i++) {
        st->in_facts[i] = NULL;
        if (st->in[i]) {
            st->facts[i] = sb_fact_of(&st->in[i]->t);
            st->in_facts[i] = &st->facts[i];
        }
    }
    SB_TRY(sb_op_infer(k->ctx, k->graph, k->node, st->in_facts, outs));
    if (k->op->flags & SB_OP_DATA_SHAPE)
        return SB_OK;
    for (uint32_t i = 0; i < k->n_out; i++) {
        const sb_type *type = &outs[i].type;
        if (!st->out[i])
            continue;
        if (type->dtype == SB_DTYPE_NONE || !sb_shape_known(&type->shape))
            return sb_fail(k->ctx, SB_UNSUPPORTED,
                           "node '%s' (%s): cannot tell the shape of output "
                           "%u",
                           sb_node_label(k->graph, k->node), k->node->op, i);
        sb_tensor like =
            sb_tensor_make(type->dtype, type->shape.rank, type->shape.dim);
        SB_TRY(provide_out(st, i, &like));
    }
    return SB_OK;
}

/* Temporaries of a dynamic step follow the shapes of this run. */
static sb_status fit_temporaries(sb_step *st)
{
    for (size_t i = 0; i < st->n_before; i++) {
        sb_tensor like = st->before[i].from->t;
        if (st->before[i].to->kind != SLOT_DYNAMIC) /* a planned reorder */
            continue;
        like.dtype = SB_DTYPE_F32;
        SB_TRY(sb_slot_resize(st->k.ctx, st->before[i].to, &like));
    }
    for (size_t i = 0; i < st->n_after; i++) {
        sb_tensor like = st->after[i].to->t;
        like.dtype = SB_DTYPE_F32;
        SB_TRY(sb_slot_resize(st->k.ctx, st->after[i].from, &like));
    }
    return SB_OK;
}

sb_status sb_step_check_types(const sb_kernel *k)
{
    for (uint32_t i = 0; i < k->n_in; i++)
        if (k->in[i] && k->in[i]->dtype == SB_DTYPE_SEQUENCE &&
            !(k->op->flags & SB_OP_SEQUENCES))
            return sb_fail(k->ctx, SB_UNSUPPORTED,
                           "node '%s' (%s): input %u is a sequence, want a "
                           "tensor",
                           sb_node_label(k->graph, k->node), k->node->op, i);
    for (uint32_t i = 0; i < k->n_in && (k->op->flags & SB_OP_F32); i++)
        if (k->in[i] && k->in[i]->dtype != SB_DTYPE_F32 &&
            (i >= 32 || !(k->op->any_type >> i & 1)))
            return sb_fail(k->ctx, SB_UNSUPPORTED,
                           "node '%s' (%s): input %u has type %s, want a float",
                           sb_node_label(k->graph, k->node), k->node->op, i,
                           sb_dtype_name(k->in[i]->dtype));
    return SB_OK;
}

static sb_status run_dynamic(sb_step *st)
{
    sb_kernel *k = &st->k;

    SB_TRY(infer_now(st));
    SB_TRY(fit_temporaries(st));
    for (size_t i = 0; i < st->n_before; i++)
        sb_run_conversion(k->ctx, &st->before[i]);
    k->scratch_size = 0;
    k->packed = 0;
    st->ask = NULL;
    SB_TRY(sb_step_check_types(k));
    if (k->op->prepare)
        SB_TRY(k->op->prepare(k));
    if (k->scratch_size) {
        sb_tensor like = sb_tensor_make(SB_DTYPE_U8, 1,
                                        &(int64_t){(int64_t)k->scratch_size});
        SB_TRY(sb_slot_resize(k->ctx, st->scratch, &like));
        k->scratch = st->scratch->t.data;
    }
    return k->op->forward(k);
}

void sb_step_before(sb_step *st)
{
    for (size_t i = 0; !st->dynamic && i < st->n_before; i++)
        sb_run_conversion(st->k.ctx, &st->before[i]);
}

static sb_status run_watched(sb_step *st)
{
    sb_kernel *watcher = &st->watcher->k;
    sb_tap tap = {0};

    SB_TRY(watcher->op->tap(watcher, &tap));
    st->k.tap = tap.look ? &tap : NULL;
    sb_status status = st->k.op->forward(&st->k);
    st->k.tap = NULL;
    return status;
}

sb_status sb_step_kernel(sb_step *st)
{
    if (!st->dynamic)
        return st->watcher ? run_watched(st) : st->k.op->forward(&st->k);
    sb_status status = run_dynamic(st);
    release_state(&st->k);
    return status;
}

void sb_step_after(sb_step *st)
{
    for (size_t i = 0; i < st->n_after; i++)
        sb_run_conversion(st->k.ctx, &st->after[i]);
}

sb_status sb_step_run(sb_step *st)
{
    SB_TRY(sb_ctx_poll(st->k.ctx));
    bool outer = sb_ctx_cut_allow(st->k.ctx);
    sb_step_before(st);
    sb_status status = sb_step_kernel(st);
    if (status == SB_OK)
        sb_step_after(st);
    sb_step_release_pages(st);
    sb_status cut = sb_ctx_cut_end(st->k.ctx, outer);
    return status != SB_OK ? status : cut;
}
