/* Pass "cse": of nodes that compute the same, one remains; of constants with
 * the same elements, too.
 *
 * Nodes are compared by operator, attributes and inputs (commuting inputs
 * sorted), in order of execution, so that equal chains merge from the top in
 * one go.  Big constants are hashed by samples, and compared whole only when
 * those agree. */
#include <string.h>

#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "tensor/mapped.h"

enum { HASH_WHOLE = 4096, HASH_SAMPLES = 8, HASH_SAMPLE = 64 };

static uint64_t hash_mix(uint64_t h, uint64_t x)
{
    h ^= x + UINT64_C(0x9e3779b97f4a7c15) + (h << 6) + (h >> 2);
    h *= UINT64_C(0xff51afd7ed558ccd);
    return h ^ (h >> 32);
}

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t word;

    for (; n >= sizeof word; n -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        h = hash_mix(h, word);
    }
    word = n;
    memcpy(&word, p, n);
    return hash_mix(h, word);
}

static uint64_t hash_text(uint64_t h, const char *text)
{
    return hash_bytes(h, text, strlen(text));
}

/* ---- tensors ------------------------------------------------------------ */

static bool tensor_plain(const sb_tensor *t)
{
    return t->data && t->layout == SB_LAYOUT_PLAIN &&
           t->dtype != SB_DTYPE_STRING;
}

static uint64_t hash_tensor(uint64_t h, const sb_tensor *t)
{
    size_t n = sb_tensor_bytes(t);

    h = hash_mix(h, (uint64_t)t->dtype);
    for (int i = 0; i < t->rank; i++)
        h = hash_mix(h, (uint64_t)t->dims[i]);
    if (n <= HASH_WHOLE)
        return hash_bytes(h, t->data, n);
    size_t step = (n - HASH_SAMPLE) / (HASH_SAMPLES - 1);
    for (size_t i = 0; i < HASH_SAMPLES; i++)
        h = hash_bytes(h, (const char *)t->data + i * step, HASH_SAMPLE);
    sb_tensor_release_pages(t); /* of a file; the system brings many at once */
    return h;
}

static bool tensor_same(const sb_tensor *a, const sb_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank ||
        memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) != 0)
        return false;
    return a->data == b->data ||
           memcmp(a->data, b->data, sb_tensor_bytes(a)) == 0;
}

/* ---- attributes --------------------------------------------------------- */

/* Nodes with other attributes (tensors, graphs, strings) are rare and left
 * alone. */
static bool attrs_simple(const sb_node *node)
{
    for (uint32_t i = 0; i < node->n_attrs; i++) {
        sb_attr_type type = node->attrs[i].type;
        bool tensor = type == SB_ATTR_TENSOR && tensor_plain(node->attrs[i].t);
        if (!tensor && type != SB_ATTR_FLOAT && type != SB_ATTR_INT &&
            type != SB_ATTR_STRING && type != SB_ATTR_FLOATS &&
            type != SB_ATTR_INTS)
            return false;
    }
    return true;
}

static bool attr_same(const sb_attr *a, const sb_attr *b)
{
    const void *x, *y;

    if (!b || a->type != b->type)
        return false;
    if (a->type == SB_ATTR_TENSOR)
        return tensor_same(a->t, b->t);
    size_t n = sb_attr_bytes(a, &x);
    return n == sb_attr_bytes(b, &y) && (n == 0 || memcmp(x, y, n) == 0);
}

static bool attrs_same(const sb_node *a, const sb_node *b)
{
    if (a->n_attrs != b->n_attrs)
        return false;
    for (uint32_t i = 0; i < a->n_attrs; i++)
        if (!attr_same(&a->attrs[i], sb_node_attr(b, a->attrs[i].name)))
            return false;
    return true;
}

/* The sum of their hashes, so that their order does not matter. */
static uint64_t hash_attrs(const sb_node *node)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < node->n_attrs; i++) {
        const sb_attr *a = &node->attrs[i];
        const void *data;
        size_t n = sb_attr_bytes(a, &data);
        uint64_t h = hash_text((uint64_t)a->type, a->name);
        if (a->type == SB_ATTR_TENSOR)
            h = hash_tensor(h, a->t);
        else if (n > 0)
            h = hash_bytes(h, data, n);
        sum += h;
    }
    return sum;
}

/* ---- nodes -------------------------------------------------------------- */

static bool cse_commutes(const sb_node *node)
{
    const sb_op_def *op = sb_op_of(node);

    return op && (op->flags & SB_OP_COMMUTES) && node->n_in >= 2;
}

/* Input i, with the first two sorted where they may change places. */
static sb_value_id input_of(const sb_node *node, uint32_t i)
{
    if (i < 2 && cse_commutes(node) && node->inputs[0] > node->inputs[1])
        return node->inputs[1 - i];
    return node->inputs[i];
}

/* Runtimes fuse quantized operators by pairs around each one; pairs that look
 * the same are there on purpose. */
static bool is_quantizer(const sb_node *node)
{
    return sb_node_is(node, "QuantizeLinear") ||
           sb_node_is(node, "DequantizeLinear");
}

static bool node_mergeable(const sb_node *node)
{
    const sb_op_def *op = sb_op_of(node);

    return !node->dead && op && !is_quantizer(node) &&
           !(op->flags & SB_OP_IMPURE) && node->n_implicit == 0 &&
           node->n_out > 0 && attrs_simple(node);
}

static uint64_t hash_node(const sb_node *node)
{
    uint64_t h = hash_text(hash_text(node->n_out, node->op), node->domain);

    for (uint32_t i = 0; i < node->n_in; i++)
        h = hash_mix(h, input_of(node, i));
    return hash_mix(h, hash_attrs(node));
}

static bool node_same(const sb_node *a, const sb_node *b)
{
    if (a->n_in != b->n_in || a->n_out != b->n_out ||
        strcmp(a->op, b->op) != 0 || strcmp(a->domain, b->domain) != 0)
        return false;
    for (uint32_t i = 0; i < a->n_in; i++)
        if (input_of(a, i) != input_of(b, i))
            return false;
    return attrs_same(a, b);
}

/* Every output of `from` that has a consumer exists in `to`, and no name of a
 * graph output would be lost. */
static bool can_merge(const sb_graph *g, const sb_node *from, const sb_node *to)
{
    for (uint32_t i = 0; i < from->n_out; i++) {
        if (from->outputs[i] == SB_NONE)
            continue;
        const sb_value *f = sb_graph_value(g, from->outputs[i]);
        if (f->n_uses == 0 && !f->is_output)
            continue;
        if (to->outputs[i] == SB_NONE ||
            (f->is_output && sb_graph_value(g, to->outputs[i])->is_output))
            return false;
    }
    return true;
}

static sb_status merge_nodes(sb_graph *g, sb_node_id from, sb_node_id to,
                             size_t *changes)
{
    const sb_node *f = sb_graph_node(g, from), *t = sb_graph_node(g, to);

    if (!can_merge(g, f, t))
        return SB_OK;
    for (uint32_t i = 0; i < f->n_out; i++) {
        bool done = true;
        if (f->outputs[i] != SB_NONE && t->outputs[i] != SB_NONE)
            SB_TRY(
                sb_graph_replace_value(g, f->outputs[i], t->outputs[i], &done));
        if (!done)
            return SB_OK;
    }
    ++*changes;
    return sb_rewrite_prune(g, from);
}

/* ---- the table ------------------------------------------------------------
 * Open addressing over IDs of nodes, or of values for constants. */

typedef struct seen {
    uint32_t *id; /* SB_NONE: free */
    uint64_t *hash;
    size_t cap; /* a power of two */
} seen;

static sb_status seen_create(sb_ctx *ctx, seen *s, size_t n)
{
    s->cap = 16;
    while (s->cap < 2 * n)
        s->cap *= 2;
    s->id = sb_alloc(ctx, s->cap, sizeof *s->id);
    s->hash = sb_alloc(ctx, s->cap, sizeof *s->hash);
    if (!s->id || !s->hash)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < s->cap; i++)
        s->id[i] = SB_NONE;
    return SB_OK;
}

static void seen_free(sb_ctx *ctx, seen *s)
{
    sb_free(ctx, s->id);
    sb_free(ctx, s->hash);
}

typedef bool (*same_fn)(const sb_graph *g, uint32_t a, uint32_t b);

/* The ID seen before that is the same, or SB_NONE after adding this one. */
static uint32_t seen_find_or_add(seen *s, const sb_graph *g, uint32_t id,
                                 uint64_t hash, same_fn same)
{
    size_t i = (size_t)hash & (s->cap - 1);

    for (; s->id[i] != SB_NONE; i = (i + 1) & (s->cap - 1))
        if (s->hash[i] == hash && same(g, s->id[i], id))
            return s->id[i];
    s->id[i] = id;
    s->hash[i] = hash;
    return SB_NONE;
}

static bool same_constants(const sb_graph *g, uint32_t a, uint32_t b)
{
    return tensor_same(&sb_graph_value(g, a)->constant,
                       &sb_graph_value(g, b)->constant);
}

static bool same_nodes(const sb_graph *g, uint32_t a, uint32_t b)
{
    return node_same(sb_graph_node(g, a), sb_graph_node(g, b));
}

/* Parameters that start out equal (zero biases, unit scales) are still apart:
 * training would pull them in different directions. */
static bool maybe_untrained(const sb_tensor *t)
{
    int64_t n = sb_tensor_count(t);

    if (!sb_dtype_is_float(t->dtype) || sb_dtype_size(t->dtype) == 0)
        return false;
    size_t size = sb_dtype_size(t->dtype);
    const char *p = t->data;
    for (int64_t i = 1; i < n; i++)
        if (memcmp(p, p + (size_t)i * size, size) != 0)
            return false;
    return n > 1;
}

static sb_status merge_constants(sb_graph *g, seen *s, size_t *changes)
{
    for (size_t i = 0; i < g->n_values; i++) {
        const sb_value *v = sb_graph_value(g, (sb_value_id)i);
        bool done = false;
        if (!v->is_constant || v->is_input || v->is_output || v->n_uses == 0 ||
            !tensor_plain(&v->constant) || maybe_untrained(&v->constant))
            continue;
        uint32_t first = seen_find_or_add(
            s, g, (uint32_t)i, hash_tensor(0, &v->constant), same_constants);
        if (first == SB_NONE)
            continue;
        SB_TRY(sb_graph_replace_value(g, (sb_value_id)i, first, &done));
        *changes += done;
    }
    return SB_OK;
}

static sb_status merge_equal(sb_graph *g, seen *s, size_t *changes)
{
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_order(g, &order, &n));
    sb_status status = SB_OK;
    for (size_t i = 0; i < n && status == SB_OK; i++) {
        const sb_node *node = sb_graph_node(g, order[i]);
        if (!node_mergeable(node))
            continue;
        uint32_t first =
            seen_find_or_add(s, g, order[i], hash_node(node), same_nodes);
        if (first != SB_NONE)
            status = merge_nodes(g, order[i], first, changes);
    }
    sb_free(g->ctx, order);
    return status;
}

static sb_status cse_run(sb_graph *g, size_t *changes)
{
    seen constants = {0}, nodes = {0};
    sb_status status = seen_create(g->ctx, &constants, g->n_values);

    if (status == SB_OK)
        status = seen_create(g->ctx, &nodes, g->n_nodes);
    if (status == SB_OK)
        status = merge_constants(g, &constants, changes);
    if (status == SB_OK)
        status = merge_equal(g, &nodes, changes);
    seen_free(g->ctx, &constants);
    seen_free(g->ctx, &nodes);
    return status;
}

const sb_pass_def sb_pass_cse = {
    .name = "cse",
    .summary = "merge nodes that compute the same, and equal constants",
    .run = cse_run,
};
