/* Keys and values as states: the change of the graph, and running it. */
#include "llm/kv_cache.h"

#include <stdio.h>
#include <string.h>

#include "exec/prepare.h"
#include "passes/pass.h"
#include "tensor/mapped.h"

/* Pieces of a prompt, but for the last one, are as long as can be, and its
 * length is a multiple of what packed products take at once, so that there are
 * few plans: it is filled up, and what is too much is written over later. */
enum {
    CHUNK_MOST = 128,
    CHUNK_STEP = 4,
    CAPACITY_MOST = 1 << 24,
    KV_SHARE = 4, /* of the memory: a larger cache lies in a file */
};

/* The length of the next piece, if `n` tokens are left of a prompt and `room`
 * positions behind the past; models know no positions beyond. */
static int64_t chunk_for(int64_t n, int64_t room)
{
    int64_t len = (n + CHUNK_STEP - 1) / CHUNK_STEP * CHUNK_STEP;

    if (n == 1)
        return 1;
    len = len < CHUNK_MOST ? len : CHUNK_MOST;
    return len < room ? len : room;
}

/* ---- the graph ---------------------------------------------------------- */

typedef struct rewriter {
    sb_kv_cache *c;
    sb_graph *g;
    sb_value_id ids, past, total; /* total [1]: past plus the piece */
    size_t n;                     /* attentions so far */
} rewriter;

sb_status sb_llm_add_node(sb_graph *g, const char *op, const sb_value_id *in,
                          size_t n_in, const sb_attr *attr, sb_value_id *out)
{
    const sb_node_spec spec = {.op = op,
                               .inputs = in,
                               .n_in = n_in,
                               .outputs = out,
                               .n_out = 1,
                               .attrs = attr,
                               .n_attrs = attr ? 1 : 0};
    sb_node_id id = SB_NONE;

    SB_TRY(sb_graph_add_value_like(g, op, out));
    return sb_graph_add_node(g, &spec, &id);
}

sb_status sb_llm_add_input(sb_graph *g, const char *name, sb_type type,
                           sb_value_id *out)
{
    SB_TRY(sb_graph_add_value(g, name, out));
    sb_graph_value(g, *out)->type = type;
    return sb_graph_add_input(g, *out);
}

/* The past, [1], which ends at the same place in all texts. */
static sb_status past_of_first(rewriter *r, sb_value_id *out)
{
    const int64_t one = 1, zero = 0;
    sb_value_id index = SB_NONE;

    *out = r->past;
    if (r->c->batch == 1)
        return SB_OK;
    SB_TRY(sb_graph_add_constant(r->g, "first", SB_DTYPE_I64, 1, &one, &zero,
                                 &index));
    return sb_llm_add_node(r->g, "Gather", (sb_value_id[]){r->past, index}, 2,
                           NULL, out);
}

/* Positions go on where the past ends. */
static sb_status shift_positions(rewriter *r)
{
    sb_graph *g = r->g;
    sb_value_id pos = sb_graph_find_value(g, "position_ids");
    sb_value_id moved = SB_NONE, past = SB_NONE;

    if (pos == SB_NONE)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "the model has no value 'position_ids': it cannot "
                       "generate text");
    SB_TRY(past_of_first(r, &past));
    SB_TRY(
        sb_llm_add_node(g, "Add", (sb_value_id[]){pos, past}, 2, NULL, &moved));
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (node->dead || (node->n_out && node->outputs[0] == moved))
            continue;
        for (uint32_t i = 0; i < sb_graph_node(g, id)->n_in; i++)
            if (sb_graph_node(g, id)->inputs[i] == pos)
                SB_TRY(sb_graph_set_input(g, id, i, moved));
    }
    return SB_OK;
}

/* Writes `x` [batch, n, width] into a cache, a state; *out is the cache. */
static sb_status cache_value(rewriter *r, const char *what, sb_value_id x,
                             sb_value_id *out)
{
    sb_graph *g = r->g;
    const sb_shape *s = &sb_graph_value(g, x)->type.shape;
    const sb_attr axis = {.name = "axis", .type = SB_ATTR_INT, .i = 1};
    char name[64];
    sb_value_id cache = SB_NONE;

    if (s->rank != 3 || !sb_dim_known(s->dim[2]))
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "'%s' is no [batch, sequence, heads] of known size",
                       sb_graph_value(g, x)->name);
    const sb_type type = {SB_DTYPE_F32,
                          {3, {r->c->batch, r->c->capacity, s->dim[2]}}};
    (void)snprintf(name, sizeof name, "past_%s.%zu", what, r->n);
    SB_TRY(sb_llm_add_input(g, name, type, &cache));
    SB_TRY(sb_llm_add_node(g, "TensorScatter",
                           (sb_value_id[]){cache, x, r->past}, 3, &axis, out));
    (void)snprintf(name, sizeof name, "present_%s.%zu", what, r->n);
    SB_TRY(sb_graph_rename_value(g, *out, name));
    return sb_graph_add_output(g, *out);
}

static sb_status cache_attention(rewriter *r, sb_node_id id)
{
    sb_graph *g = r->g;
    const sb_node old = *sb_graph_node(g, id);
    sb_value_id k = SB_NONE, v = SB_NONE, y = SB_NONE;
    sb_node_id fresh = SB_NONE;
    bool done = false;

    if (old.n_in != 3 || !sb_node_int(&old, "is_causal", 0))
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "node '%s' (Attention) is not causal, or has a mask or "
                       "a past of its own",
                       sb_node_label(g, &old));
    SB_TRY(cache_value(r, "key", old.inputs[1], &k));
    SB_TRY(cache_value(r, "value", old.inputs[2], &v));
    const sb_value_id in[] = {old.inputs[0], k,       v,       SB_NONE,
                              SB_NONE,       SB_NONE, r->total};
    SB_TRY(sb_graph_add_value_like(g, "Attention", &y));
    const sb_node_spec spec = {.op = "Attention",
                               .name = old.name,
                               .module = old.module,
                               .inputs = in,
                               .n_in = SB_COUNT(in),
                               .outputs = &y,
                               .n_out = 1,
                               .attrs = old.attrs,
                               .n_attrs = old.n_attrs};
    SB_TRY(sb_graph_add_node(g, &spec, &fresh));
    SB_TRY(sb_graph_replace_value(g, old.outputs[0], y, &done));
    sb_graph_remove_node(g, id);
    r->n++;
    return SB_OK;
}

/* Only one token's logits are wanted: the last layer sees only that one. */
static sb_status pick_last(rewriter *r)
{
    sb_graph *g = r->g;
    sb_value_id logits = sb_graph_find_value(g, "logits"), last, row = SB_NONE;
    const sb_node *shape = sb_graph_producer(g, logits);
    bool done = false;

    if (!shape || !sb_node_is(shape, "Reshape"))
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "the model has no output 'logits' behind a Reshape: it "
                       "cannot generate text");
    sb_value_id flat = shape->inputs[0];
    sb_node_id head = sb_graph_value(g, flat)->producer;
    if (head == SB_NONE)
        return sb_fail(g->ctx, SB_UNSUPPORTED, "'logits' are not computed");
    SB_TRY(sb_llm_add_input(
        g, "last", (sb_type){SB_DTYPE_I64, {1, {r->c->batch}}}, &last));
    sb_value_id x = sb_graph_node(g, head)->inputs[0];
    SB_TRY(
        sb_llm_add_node(g, "Gather", (sb_value_id[]){x, last}, 2, NULL, &row));
    SB_TRY(sb_graph_set_input(g, head, 0, row));
    return sb_graph_replace_value(g, logits, flat, &done);
}

static sb_status count_total(rewriter *r)
{
    const int64_t one = 1;
    sb_value_id index = SB_NONE, shape = SB_NONE, n = SB_NONE;

    SB_TRY(sb_graph_add_constant(r->g, "one", SB_DTYPE_I64, 1, &one, &one,
                                 &index));
    SB_TRY(sb_llm_add_node(r->g, "Shape", &r->ids, 1, NULL, &shape));
    SB_TRY(sb_llm_add_node(r->g, "Gather", (sb_value_id[]){shape, index}, 2,
                           NULL, &n));
    return sb_llm_add_node(r->g, "Add", (sb_value_id[]){r->past, n}, 2, NULL,
                           &r->total);
}

/* Packed weights times activations rounded to int8: what every program does
 * that writes text. */
static sb_status allow_int8(sb_graph *g)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (!node->dead && strcmp(node->op, "MatMulNBits") == 0 &&
            strcmp(node->domain, "com.microsoft") == 0)
            SB_TRY(sb_graph_set_attr_int(g, id, "accuracy_level", 4));
    }
    return SB_OK;
}

static sb_status cache_rewrite(sb_kv_cache *c)
{
    sb_graph *g = c->graph;
    rewriter r = {.c = c, .g = g, .ids = sb_graph_find_value(g, "input_ids")};

    if (r.ids == SB_NONE || g->n_inputs != 1 || g->n_outputs != 1)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "want a model with one input 'input_ids' and one output "
                       "'logits' to generate text");
    SB_TRY(sb_llm_add_input(g, "past", (sb_type){SB_DTYPE_I64, {1, {c->batch}}},
                            &r.past));
    SB_TRY(shift_positions(&r));
    SB_TRY(count_total(&r));
    SB_TRY(pick_last(&r));
    size_t n_nodes = g->n_nodes;
    for (sb_node_id id = 0; id < n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        if (!node->dead && sb_node_is(node, "Attention"))
            SB_TRY(cache_attention(&r, id));
    }
    SB_TRY(allow_int8(g));
    if (r.n == 0)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "the model has no Attention: it cannot generate text");
    (void)sb_graph_remove_dead(g);
    c->n_states = 2 * r.n;
    return SB_OK;
}

/* ---- states ------------------------------------------------------------- */

static sb_status bind_state(sb_kv_cache *c, size_t i)
{
    char name[64];
    const char *what = i % 2 ? "value" : "key";
    sb_state *s = &c->states[i];

    (void)snprintf(name, sizeof name, "past_%s.%zu", what, i / 2);
    c->binds[i].in = sb_graph_find_value(c->graph, name);
    (void)snprintf(name, sizeof name, "present_%s.%zu", what, i / 2);
    c->binds[i].out = sb_graph_find_value(c->graph, name);
    c->binds[i].state = s;
    const sb_type *type = &sb_graph_value(c->graph, c->binds[i].in)->type;
    s->t = sb_tensor_make(type->dtype, type->shape.rank, type->shape.dim);
    if (!sb_tensor_size_ok(&s->t))
        return sb_fail(c->ctx, SB_NO_MEMORY, "the cache is too large");
    /* Many texts at once may need more than the memory that there may be. */
    if (sb_tensor_bytes(&s->t) >
        sb_memory_share(c->ctx, KV_SHARE, SIZE_MAX) / c->n_states)
        return sb_tensor_alloc_weight(c->ctx, &s->t);
    s->t.data = sb_alloc_pages(c->ctx, sb_tensor_bytes(&s->t));
    return s->t.data ? SB_OK : SB_NO_MEMORY;
}

static size_t input_place(const sb_graph *g, const char *name)
{
    sb_value_id v = sb_graph_find_value(g, name);
    size_t i = 0;

    while (i + 1 < g->n_inputs && g->inputs[i] != v)
        i++;
    return i;
}

static sb_status cache_setup(sb_kv_cache *c, const sb_graph *graph)
{
    SB_TRY(sb_graph_clone(graph, &c->graph));
    SB_TRY(sb_graph_infer(c->graph));
    SB_TRY(cache_rewrite(c));
    SB_TRY(sb_passes_run(c->graph, "lower", NULL, NULL, NULL));
    c->states = sb_alloc(c->ctx, c->n_states, sizeof *c->states);
    c->binds = sb_alloc(c->ctx, c->n_states, sizeof *c->binds);
    c->outputs = sb_alloc(c->ctx, c->graph->n_outputs, sizeof(*c->outputs));
    c->inputs = sb_alloc(c->ctx, c->graph->n_inputs, sizeof(*c->inputs));
    if (!c->states || !c->binds || !c->outputs || !c->inputs)
        return SB_NO_MEMORY;
    c->at_ids = input_place(c->graph, "input_ids");
    c->at_past = input_place(c->graph, "past");
    c->at_last = input_place(c->graph, "last");
    for (size_t i = 0; i < c->n_states; i++)
        SB_TRY(bind_state(c, i));
    const sb_exec_options opt = {.states = c->binds, .n_states = c->n_states};
    return sb_exec_create(c->ctx, c->graph, &opt, &c->exec);
}

sb_status sb_kv_cache_create(const sb_graph *graph, int64_t capacity,
                             int64_t batch, sb_kv_cache *out)
{
    *out = (sb_kv_cache){.ctx = graph->ctx, .batch = batch};
    if (capacity < 1 || capacity > CAPACITY_MOST)
        return sb_fail(graph->ctx, SB_BAD_ARG,
                       "a context of %lld tokens, want 1 to %d",
                       (long long)capacity, CAPACITY_MOST);
    out->capacity = capacity;
    return cache_setup(out, graph);
}

void sb_kv_cache_free(sb_kv_cache *c)
{
    if (!c->ctx)
        return;
    sb_exec_free(c->exec);
    for (size_t i = 0; c->states && i < c->n_states; i++) {
        sb_tensor *t = &c->states[i].t;

        if (t->buf)
            sb_tensor_drop(t);
        else
            sb_free_pages(c->ctx, t->data, t->data ? sb_tensor_bytes(t) : 0);
    }
    sb_free(c->ctx, c->states);
    sb_free(c->ctx, c->binds);
    sb_free(c->ctx, c->outputs);
    sb_free(c->ctx, c->inputs);
    sb_graph_free(c->graph);
    *c = (sb_kv_cache){0};
}

/* ---- running ------------------------------------------------------------ */

/* Runs `n` tokens as a piece of `len`; without `ids` only plans that. */
static sb_status take_piece(sb_kv_cache *c, const uint32_t *ids, int64_t n,
                            int64_t len)
{
    int64_t tokens[CHUNK_MOST] = {0}, past = c->past, last = n - 1;
    sb_tensor t_ids = sb_tensor_make(SB_DTYPE_I64, 2, (int64_t[]){1, len});
    sb_tensor t_past = sb_tensor_make(SB_DTYPE_I64, 1, (int64_t[]){1});
    sb_tensor t_last = t_past;

    for (int64_t i = 0; ids && i < n; i++)
        tokens[i] = ids[i];
    t_ids.data = tokens;
    t_past.data = &past;
    t_last.data = &last;
    c->inputs[c->at_ids] = &t_ids;
    c->inputs[c->at_past] = &t_past;
    c->inputs[c->at_last] = &t_last;
    if (!ids)
        return sb_exec_prepare(c->exec, c->inputs);
    SB_TRY(sb_exec_run(c->exec, c->inputs, NULL, c->outputs));
    c->past += n;
    return SB_OK;
}

static sb_status check_room(const sb_kv_cache *c, size_t n)
{
    if (n == 0 || n > (size_t)(c->capacity - c->past))
        return sb_fail(c->ctx, SB_BAD_ARG,
                       "%zu tokens after %lld, want 1 to %lld in all", n,
                       (long long)c->past, (long long)c->capacity);
    return SB_OK;
}

sb_status sb_kv_cache_prepare(sb_kv_cache *c, size_t n)
{
    int64_t left = (int64_t)n, room = c->capacity - c->past;

    SB_TRY(check_room(c, n));
    for (int64_t len; left > 0; left -= len, room -= len) {
        len = chunk_for(left, room);
        SB_TRY(take_piece(c, NULL, 1, len));
    }
    return take_piece(c, NULL, 1, 1);
}

sb_status sb_kv_cache_take(sb_kv_cache *c, const uint32_t *ids, size_t n,
                           const sb_tensor **logits)
{
    SB_TRY(check_room(c, n));
    for (int64_t left = (int64_t)n, take; left > 0; left -= take, ids += take) {
        int64_t len = chunk_for(left, c->capacity - c->past);

        take = left < len ? left : len;
        SB_TRY(sb_ctx_poll(c->ctx));
        SB_TRY(take_piece(c, ids, take, len));
    }
    *logits = c->outputs[0];
    return SB_OK;
}

sb_status sb_kv_cache_step(sb_kv_cache *c, const int64_t *ids,
                           const sb_tensor **logits)
{
    sb_tensor t_ids = sb_tensor_make(SB_DTYPE_I64, 2, (int64_t[]){c->batch, 1});
    sb_tensor t_past = sb_tensor_make(SB_DTYPE_I64, 1, &c->batch);
    sb_tensor t_last = t_past;
    int64_t *rows = sb_alloc(c->ctx, (size_t)c->batch, 3 * sizeof *rows);

    if (!rows)
        return SB_NO_MEMORY;
    for (int64_t i = 0; i < c->batch; i++) {
        rows[i] = ids[i];
        rows[c->batch + i] = c->past;
        rows[2 * c->batch + i] = i;
    }
    t_ids.data = rows;
    t_past.data = rows + c->batch;
    t_last.data = rows + 2 * c->batch;
    c->inputs[c->at_ids] = &t_ids;
    c->inputs[c->at_past] = &t_past;
    c->inputs[c->at_last] = &t_last;
    sb_status status = sb_ctx_poll(c->ctx);
    if (status == SB_OK)
        status = sb_exec_run(c->exec, c->inputs, NULL, c->outputs);
    sb_free(c->ctx, rows);
    c->past += status == SB_OK;
    *logits = c->outputs[0];
    return status;
}

void sb_kv_cache_rewind(sb_kv_cache *c, int64_t n)
{
    if (n < c->past)
        c->past = n;
}
