/* The graph as onnxruntime-genai runs it: keys and values of the past are
 * inputs and outputs, and each Attention with the rotations before it is one
 * GroupQueryAttention.
 *
 *     attention_mask [batch, total] -> lengths - 1 [batch], total []
 *
 * Positions follow from these lengths; only networks that use them elsewhere
 * take them as an input. */
#include <stdio.h>

#include "llm/kv_cache.h"
#include "llm/write/llm_write.h"

typedef struct genai {
    sb_graph *g;
    sb_dim batch, past, total;
    sb_value_id lengths, count; /* int32: [batch] and [] */
    int64_t layers;
    bool turns; /* GroupQueryAttention can rotate such heads */
} genai;

static sb_status genai_int(sb_graph *g, int rank, int64_t x, sb_value_id *out)
{
    return sb_graph_add_constant(g, "one", SB_DTYPE_I64, rank, (int64_t[]){1},
                                 &x, out);
}

/* Lengths from the mask. */
static sb_status genai_lengths(genai *e)
{
    const sb_attr flat = {.name = "keepdims", .type = SB_ATTR_INT, .i = 0};
    const sb_attr to = {.name = "to", .type = SB_ATTR_INT, .i = 6};
    sb_graph *g = e->g;
    sb_value_id mask, axis, one, sum, less, shape, last;

    SB_TRY(sb_llm_add_input(g, "attention_mask",
                            (sb_type){SB_DTYPE_I64, {2, {e->batch, e->total}}},
                            &mask));
    SB_TRY(genai_int(g, 1, 1, &axis));
    SB_TRY(genai_int(g, 0, 1, &one));
    SB_TRY(sb_llm_add_node(g, "ReduceSum", (sb_value_id[]){mask, axis}, 2,
                           &flat, &sum));
    SB_TRY(
        sb_llm_add_node(g, "Sub", (sb_value_id[]){sum, one}, 2, NULL, &less));
    SB_TRY(sb_llm_add_node(g, "Cast", &less, 1, &to, &e->lengths));
    SB_TRY(sb_llm_add_node(g, "Shape", &mask, 1, NULL, &shape));
    SB_TRY(sb_llm_add_node(g, "Gather", (sb_value_id[]){shape, one}, 2, NULL,
                           &last));
    return sb_llm_add_node(g, "Cast", &last, 1, &to, &e->count);
}

/* The rotation that makes `x`, if one does that GroupQueryAttention can do:
 * heads must be multiples of 16.  Others stay nodes of their own. */
static const sb_node *genai_rotation(const genai *e, sb_value_id x)
{
    const sb_node *node = e->turns ? sb_graph_producer(e->g, x) : NULL;

    return node && sb_node_is(node, "RotaryEmbedding") ? node : NULL;
}

/* Past and present of one layer. */
static sb_status genai_cache(genai *e, const char *what, int64_t heads,
                             int64_t size, sb_value_id *in, sb_value_id *out)
{
    const sb_type before = {SB_DTYPE_F32,
                            {4, {e->batch, heads, e->past, size}}};
    const sb_type after = {SB_DTYPE_F32,
                           {4, {e->batch, heads, e->total, size}}};
    char name[64];

    (void)snprintf(name, sizeof name, "past_key_values.%lld.%s",
                   (long long)e->layers, what);
    SB_TRY(sb_llm_add_input(e->g, name, before, in));
    (void)snprintf(name, sizeof name, "present.%lld.%s", (long long)e->layers,
                   what);
    SB_TRY(sb_graph_add_value(e->g, name, out));
    sb_graph_value(e->g, *out)->type = after;
    return SB_OK;
}

/* Attributes of GroupQueryAttention; returns how many. */
static size_t genai_attrs(const sb_node *old, const sb_node *rotation,
                          sb_attr *to)
{
    int64_t window = sb_node_int(old, "left_window_size", -1);
    const sb_attr *scale = sb_node_attr(old, "scale");
    size_t n = 0;

    to[n++] = (sb_attr){.name = "num_heads",
                        .type = SB_ATTR_INT,
                        .i = sb_node_int(old, "q_num_heads", 0)};
    to[n++] = (sb_attr){.name = "kv_num_heads",
                        .type = SB_ATTR_INT,
                        .i = sb_node_int(old, "kv_num_heads", 0)};
    if (scale)
        to[n++] = *scale;
    if (window >= 0)
        to[n++] = (sb_attr){
            .name = "local_window_size", .type = SB_ATTR_INT, .i = window + 1};
    if (rotation) {
        to[n++] = (sb_attr){.name = "do_rotary", .type = SB_ATTR_INT, .i = 1};
        to[n++] = (sb_attr){.name = "rotary_interleaved",
                            .type = SB_ATTR_INT,
                            .i = sb_node_int(rotation, "interleaved", 0)};
    }
    return n;
}

static sb_status genai_attention(genai *e, sb_node_id id,
                                 const sb_llm_config *c)
{
    enum { MOST = 6 };
    sb_graph *g = e->g;
    const sb_node old = *sb_graph_node(g, id);
    const sb_node *q = genai_rotation(e, old.inputs[0]);
    const sb_node *k = genai_rotation(e, old.inputs[1]);
    sb_value_id in[9] = {old.inputs[0], old.inputs[1], old.inputs[2]};
    sb_value_id out[3];
    sb_attr attrs[MOST];
    sb_node_id fresh = SB_NONE;
    bool done = false;

    if (old.n_in != 3 || !sb_node_int(&old, "is_causal", 0) || !q != !k)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "node '%s' (Attention) is not causal, or has a mask or "
                       "a past of its own",
                       sb_node_label(g, &old));
    size_t n_attrs = genai_attrs(&old, q, attrs);
    if (q) {
        in[0] = q->inputs[0];
        in[1] = k->inputs[0];
        in[7] = q->inputs[1];
        in[8] = q->inputs[2];
    }
    SB_TRY(genai_cache(e, "key", c->kv_heads, c->head_size, &in[3], &out[1]));
    SB_TRY(genai_cache(e, "value", c->kv_heads, c->head_size, &in[4], &out[2]));
    in[5] = e->lengths;
    in[6] = e->count;
    SB_TRY(sb_graph_add_value_like(g, "GroupQueryAttention", &out[0]));
    const sb_node_spec spec = {.op = "GroupQueryAttention",
                               .domain = "com.microsoft",
                               .name = old.name,
                               .module = old.module,
                               .inputs = in,
                               .n_in = q ? 9 : 7,
                               .outputs = out,
                               .n_out = 3,
                               .attrs = attrs,
                               .n_attrs = n_attrs};
    SB_TRY(sb_graph_add_node(g, &spec, &fresh));
    SB_TRY(sb_graph_replace_value(g, old.outputs[0], out[0], &done));
    sb_graph_remove_node(g, id);
    SB_TRY(sb_graph_add_output(g, out[1]));
    SB_TRY(sb_graph_add_output(g, out[2]));
    e->layers++;
    return SB_OK;
}

/* What still reads positions gets them from outside. */
static sb_status genai_positions(genai *e, bool *used)
{
    sb_value_id pos = sb_graph_find_value(e->g, "position_ids"), in = SB_NONE;
    bool done = false;

    *used = pos != SB_NONE && sb_graph_value(e->g, pos)->n_uses > 0;
    if (!*used)
        return SB_OK;
    const sb_type type =
        sb_graph_value(e->g, sb_graph_find_value(e->g, "input_ids"))->type;
    SB_TRY(sb_graph_rename_value(e->g, pos, "counted_positions"));
    SB_TRY(sb_llm_add_input(e->g, "position_ids", type, &in));
    return sb_graph_replace_value(e->g, pos, in, &done);
}

sb_status sb_genai_graph(const sb_parts *p, sb_graph *g, bool *positions)
{
    genai e = {.g = g, .turns = p->config.head_size % 16 == 0};
    sb_value_id ids = sb_graph_find_value(g, "input_ids");

    if (ids == SB_NONE || g->n_inputs != 1 || g->n_outputs != 1)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "want a model with one input 'input_ids' and one output "
                       "'logits'");
    e.batch = sb_graph_value(g, ids)->type.shape.dim[0];
    SB_TRY(sb_graph_symbol(g, "past_sequence", &e.past));
    SB_TRY(sb_graph_symbol(g, "total_sequence", &e.total));
    SB_TRY(genai_lengths(&e));
    for (sb_node_id id = 0, n = (sb_node_id)g->n_nodes; id < n; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (!node->dead && sb_node_is(node, "Attention"))
            SB_TRY(genai_attention(&e, id, &p->config));
    }
    if (e.layers != p->config.layers)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "the model has %lld nodes of type Attention, want one "
                       "for each of its %lld layers",
                       (long long)e.layers, (long long)p->config.layers);
    (void)sb_graph_remove_dead(g);
    SB_TRY(genai_positions(&e, positions));
    (void)sb_graph_remove_dead(g);
    return SB_OK;
}
