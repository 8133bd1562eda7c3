/* A graph taken apart. */
#include "llm/write/parts.h"

#include <string.h>

#include "base/str.h"
#include "llm/arch.h"

/* A constant, perhaps behind a Cast that widens it. */
static const sb_tensor *constant_of(const sb_graph *g, sb_value_id v)
{
    while (v != SB_NONE && !sb_is_const(g, v)) {
        sb_node_id id = sb_graph_value(g, v)->producer;
        const sb_node *node = id == SB_NONE ? NULL : sb_graph_node(g, id);

        if (!node || !sb_node_is(node, "Cast"))
            return NULL;
        v = sb_node_in(node, 0);
    }
    return v == SB_NONE ? NULL : &sb_graph_value(g, v)->constant;
}

/* NULL if there is none. */
static const sb_part *parts_find(const sb_parts *p, const char *name,
                                 const char *ending)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->v[i].name, name) == 0 &&
            strcmp(p->v[i].ending, ending) == 0)
            return &p->v[i];
    return NULL;
}

static sb_status parts_add(sb_parts *p, const sb_part *part)
{
    if (!part->name)
        return SB_NO_MEMORY;
    if (!part->name[0])
        return sb_fail(p->ctx, SB_BAD_MODEL,
                       "a weight belongs to no module: this is no language "
                       "model that sparsebit has read");
    if (parts_find(p, part->name, part->ending))
        return sb_fail(p->ctx, SB_BAD_MODEL, "module '%s' has two weights",
                       part->name);
    SB_TRY(sb_grow(p->ctx, &p->v, &p->cap, p->n + 1, sizeof *p->v));
    p->v[p->n++] = *part;
    return SB_OK;
}

/* The module of a node: its name without the operator, since nodes are named
 * so by arch.c, and ONNX files keep names but no modules.  "" if there is
 * none. */
static const char *module_name(sb_parts *p, const sb_node *node)
{
    const char *dot = node->name ? strrchr(node->name, '.') : NULL;

    return dot ? sb_arena_strn(&p->arena, node->name,
                               (size_t)(dot - node->name))
               : "";
}

/* The same; the last layer may have the embedding's. */
static const char *module_of(sb_parts *p, const sb_node *node, bool table)
{
    const char *name = module_name(p, node);
    const sb_part *same = table || !name ? NULL : parts_find(p, name, "weight");

    return same && same->table ? "lm_head" : name;
}

static sb_status take_vector(sb_parts *p, const sb_graph *g,
                             const sb_node *node, uint32_t input,
                             const char *ending)
{
    const sb_tensor *t = constant_of(g, sb_node_in(node, input));

    if (sb_node_in(node, input) == SB_NONE)
        return SB_OK;
    if (!t || !sb_is_plain_float(t))
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "node '%s': its %s is no constant of floats",
                       sb_node_label(g, node), ending);
    const sb_part part = {.name = module_name(p, node),
                          .ending = ending,
                          .vector = true,
                          .m = {.rows = sb_tensor_count(t), .cols = 1, .t = t}};
    return parts_add(p, &part);
}

static sb_status take_floats(sb_parts *p, const sb_graph *g,
                             const sb_node *node, uint32_t input, bool table,
                             bool turned)
{
    const sb_tensor *t = constant_of(g, sb_node_in(node, input));
    const sb_node *before = sb_graph_producer(g, sb_node_in(node, input));

    if (before && sb_node_is(before, "DequantizeLinear"))
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "node '%s': its weight is quantized by Q/DQ nodes, want "
                       "floats (exclude it) or packed blocks",
                       sb_node_label(g, node));
    if (!t || t->rank != 2)
        return SB_OK;
    const sb_node *pick =
        table ? NULL : sb_graph_producer(g, sb_node_in(node, 0));
    if (pick && !p->early && sb_node_is(pick, "Gather") &&
        sb_node_int(pick, "axis", 0) == 1)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "node '%s': its columns are in the order of g_idx, and "
                       "floats are written in no other: quantize it, too",
                       sb_node_label(g, node));
    const sb_part part = {.name = module_of(p, node, table),
                          .ending = "weight",
                          .table = table,
                          .m = {.rows = t->dims[turned ? 1 : 0],
                                .cols = t->dims[turned ? 0 : 1],
                                .t = t,
                                .turned = turned}};
    if (!sb_is_plain_float(t))
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "node '%s': a weight of type %s, want floats or "
                       "MatMulNBits",
                       sb_node_label(g, node), sb_dtype_get(t->dtype)->name);
    return parts_add(p, &part);
}

/* ---- codes -------------------------------------------------------------- */

/* The order of the columns, if inputs are picked before they are multiplied:
 * *out stays NULL if they are not, or if something else picks them. */
static sb_status find_order(sb_parts *p, const sb_graph *g, const sb_node *node,
                            const int64_t **out)
{
    const sb_node *pick = sb_graph_producer(g, sb_node_in(node, 0));
    int64_t n = sb_node_int(node, "K", 0);

    *out = NULL;
    if (!pick || !sb_node_is(pick, "Gather") ||
        sb_node_int(pick, "axis", 0) != 1)
        return SB_OK;
    const sb_tensor *t = constant_of(g, sb_node_in(pick, 1));
    bool fits = t && t->dtype == SB_DTYPE_I64 && t->rank == 1 && n > 0 &&
                t->dims[0] == n;
    bool *seen = fits ? sb_alloc(p->ctx, (size_t)n, sizeof *seen) : NULL;
    if (fits && !seen)
        return SB_NO_MEMORY;
    for (int64_t i = 0; fits && i < n; i++) {
        int64_t at = ((const int64_t *)t->data)[i];

        fits = at >= 0 && at < n && !seen[at];
        if (fits)
            seen[at] = true;
    }
    sb_free(p->ctx, seen);
    if (!fits)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': its inputs are picked by what is no order of its "
                       "%lld columns",
                       module_name(p, node), (long long)n);
    *out = t->data;
    return SB_OK;
}

/* Codes in another place than a matrix has them. */
static sb_status refuse_order(sb_parts *p, const sb_graph *g,
                              const sb_node *node, bool table)
{
    if (!table && sb_node_in(node, 4) != SB_NONE)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "'%s': its columns are in the order of g_idx, and are "
                       "written in no other",
                       module_name(p, node));
    if (table && (sb_node_int(node, "gather_axis", 0) != 0 ||
                  sb_node_int(node, "quantize_axis", 1) != 1))
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "node '%s': want gather_axis 0 and quantize_axis 1",
                       sb_node_label(g, node));
    return SB_OK;
}

static sb_status take_codes(sb_parts *p, const sb_graph *g, const sb_node *node,
                            bool table)
{
    const sb_tensor *t = constant_of(g, sb_node_in(node, table ? 0 : 1));
    const sb_tensor *scales = constant_of(g, sb_node_in(node, 2));
    const sb_tensor *zeros = constant_of(g, sb_node_in(node, 3));
    int64_t bits = sb_node_int(node, "bits", 4);
    const int64_t *order = NULL;

    SB_TRY(refuse_order(p, g, node, table));
    if (!table)
        SB_TRY(find_order(p, g, node, &order));
    if (!t || t->rank < 2 || !scales || scales->rank != 2 ||
        (!zeros && sb_node_in(node, 3) != SB_NONE))
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "node '%s': its weight, scales or zero points are no "
                       "constants",
                       sb_node_label(g, node));
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
        return sb_fail(p->ctx, SB_UNSUPPORTED,
                       "node '%s': codes of %lld bits, want 2, 3, 4 or 8",
                       sb_node_label(g, node), (long long)bits);
    const sb_part part = {
        .name = module_of(p, node, table),
        .ending = "weight",
        .table = table,
        .m = {.rows = table ? t->dims[0] : sb_node_int(node, "N", 0),
              .cols = table ? t->dims[1] * 8 / bits : sb_node_int(node, "K", 0),
              .t = t,
              .bits = (int)bits,
              .group = sb_node_int(node, "block_size", table ? 128 : 0),
              .scales = scales,
              .zeros = zeros,
              .order = order}};
    if (!sb_matrix_fits(&part.m))
        return sb_fail(p->ctx, SB_BAD_MODEL,
                       "node '%s': its weight, scales and zero points do not "
                       "fit",
                       sb_node_label(g, node));
    return parts_add(p, &part);
}

static bool is_ms(const sb_node *node, const char *op)
{
    return strcmp(node->domain, "com.microsoft") == 0 &&
           strcmp(node->op, op) == 0;
}

static sb_status take_node(sb_parts *p, const sb_graph *g, const sb_node *node)
{
    if (sb_node_is(node, "RMSNormalization") ||
        sb_node_is(node, "LayerNormalization")) {
        SB_TRY(take_vector(p, g, node, 1, "weight"));
        return take_vector(p, g, node, 2, "bias");
    }
    if (sb_node_is(node, "Gather"))
        return take_floats(p, g, node, 0, true, false);
    if (sb_node_is(node, "MatMul"))
        return take_floats(p, g, node, 1, false, true);
    if (sb_node_is(node, "Gemm")) {
        SB_TRY(take_floats(p, g, node, 1, false,
                           sb_node_int(node, "transB", 0) == 0));
        return take_vector(p, g, node, 2, "bias");
    }
    if (is_ms(node, "GatherBlockQuantized"))
        return take_codes(p, g, node, true);
    if (is_ms(node, "MatMulNBits")) {
        SB_TRY(take_codes(p, g, node, false));
        return take_vector(p, g, node, 5, "bias");
    }
    return SB_OK;
}

static sb_status read_props(sb_parts *p, const sb_graph *g)
{
    const char *text = sb_graph_prop(g, SB_PROP_CONFIG);
    const char *rotary = sb_graph_prop(g, SB_PROP_ROTARY);
    sb_json_doc *doc = NULL;

    if (!text || !rotary)
        return sb_fail(p->ctx, SB_BAD_MODEL,
                       "no language model: want a Hugging Face folder, a GGUF "
                       "file, a llama2.c checkpoint, or an ONNX file that "
                       "sparsebit made from one");
    p->config_text = text;
    p->neighbors = strcmp(rotary, SB_ROTARY_NEIGHBORS) == 0;
    SB_TRY(sb_json_read(p->ctx, SB_PROP_CONFIG, text, strlen(text), &doc));
    sb_status status = sb_llm_config_read_hf(&p->config, doc);
    sb_json_free(doc);
    return status;
}

sb_status sb_parts_take(sb_parts *p, const sb_graph *g, bool early)
{
    *p = (sb_parts){.ctx = g->ctx, .early = early};
    sb_arena_init(&p->arena, g->ctx);
    SB_TRY(read_props(p, g));
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);

        if (!node->dead)
            SB_TRY(take_node(p, g, node));
    }
    return SB_OK;
}

void sb_parts_free(sb_parts *p)
{
    if (!p->ctx)
        return;
    sb_free(p->ctx, p->v);
    sb_arena_free(&p->arena);
    *p = (sb_parts){0};
}

sb_status sb_parts_set_rotary(sb_parts *p, bool neighbors)
{
    const sb_llm_config *c = &p->config;

    if (p->neighbors == neighbors)
        return SB_OK;
    for (size_t i = 0; i < p->n; i++) {
        const char *name = p->v[i].name;
        sb_matrix *m = &p->v[i].m;
        bool q = sb_text_ends_with(name, ".self_attn.q_proj");
        int64_t heads = q ? c->heads : c->kv_heads;

        if (!q && !sb_text_ends_with(name, ".self_attn.k_proj"))
            continue;
        if (m->rows != heads * c->head_size)
            return sb_fail(p->ctx, SB_BAD_MODEL,
                           "'%s': a %s of %lld rows, want %lld heads of %lld",
                           name, p->v[i].ending, (long long)m->rows,
                           (long long)heads, (long long)c->head_size);
        m->heads = heads;
        m->rotated = c->rope_size;
        m->to_neighbors = neighbors;
    }
    p->neighbors = neighbors;
    return SB_OK;
}
