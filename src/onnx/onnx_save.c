/* Saving: the graph becomes a message whose tensors point at the weights; it
 * is packed straight into the file.  Both the model and the file of external
 * data are complete before the first of them gets its name. */
#include "onnx/onnx_save.h"
#include "onnx/onnx.h"

#include <string.h>

#include "graph/op.h"

enum {
    MIB = 1 << 20,
    /* A model built by hand gets at least this, which everyone reads. */
    LEAST_OPSET = 13,
    /* The first IR version in which a constant need not be an input. */
    LEAST_IR = 4,
};

/* protobuf ends at 2 GB; the rest of the model wants room too. */
static const uint64_t default_limit = (UINT64_C(2048) - 64) * MIB;

/* ---- facts of the model ------------------------------------------------- */

/* Which IR version came with which opset. */
static int64_t ir_of_opset(int64_t opset)
{
    static const struct {
        int64_t opset, ir;
    } rows[] = {{28, 14}, {25, 13}, {24, 12}, {23, 11}, {21, 10},     {19, 9},
                {15, 8},  {12, 7},  {11, 6},  {10, 5},  {1, LEAST_IR}};

    for (size_t i = 0; i < SB_COUNT(rows); i++)
        if (opset >= rows[i].opset)
            return rows[i].ir;
    return LEAST_IR;
}

int64_t sb_onnx_save_opset(const sb_graph *g, const sb_onnx_save_options *opt)
{
    int64_t opset = opt && opt->min_opset ? opt->min_opset : SB_CANONICAL_OPSET;
    int64_t least = g->file_opset ? g->file_opset : LEAST_OPSET;

    return opset > least ? opset : least;
}

static sb_status add_opset(sb_onnx_saver *s, Pb__Model *m, const char *domain,
                           int64_t version)
{
    for (size_t i = 0; i < m->n_opset_import; i++)
        if (strcmp(m->opset_import[i]->domain, domain) == 0)
            return SB_OK;
    Pb__OpsetId *id = sb_arena_alloc(&s->arena, 1, sizeof *id);
    /* Domains are few: a fresh array each time keeps this simple. */
    Pb__OpsetId **list =
        sb_arena_alloc(&s->arena, m->n_opset_import + 1, sizeof *list);
    if (!id || !list)
        return SB_NO_MEMORY;
    pb__opset_id__init(id);
    id->domain = sb_onnx_text(domain);
    id->has_version = 1;
    id->version = version;
    if (m->n_opset_import)
        memcpy(list, m->opset_import, m->n_opset_import * sizeof *list);
    list[m->n_opset_import++] = id;
    m->opset_import = list;
    return SB_OK;
}

static sb_status add_used_domains(sb_onnx_saver *s, const sb_graph *g,
                                  Pb__Model *m)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead)
            SB_TRY(add_opset(s, m, g->nodes[i].domain, 1));
    return SB_OK;
}

static sb_status write_opsets(sb_onnx_saver *s, int64_t opset, Pb__Model *m)
{
    const sb_graph *g = s->root;

    SB_TRY(add_opset(s, m, "", opset));
    for (size_t i = 0; i < g->n_opsets; i++)
        SB_TRY(add_opset(s, m, g->opsets[i].domain, g->opsets[i].version));
    SB_TRY(add_used_domains(s, g, m));
    for (size_t i = 0; i < g->n_subs; i++)
        SB_TRY(add_used_domains(s, g->subs[i], m));
    return SB_OK;
}

static char *text_or_null(const char *text)
{
    return text && text[0] ? sb_onnx_text(text) : NULL;
}

static sb_status write_model(sb_onnx_saver *s, const sb_onnx_save_options *opt,
                             Pb__Model *m)
{
    const sb_graph *g = s->root;
    int64_t opset = sb_onnx_save_opset(g, opt);
    int64_t ir = ir_of_opset(opset);

    pb__model__init(m);
    m->has_ir_version = 1;
    m->ir_version = g->ir_version > ir ? g->ir_version : ir;
    m->has_model_version = g->model_version != 0;
    m->model_version = g->model_version;
    m->producer_name = text_or_null(g->producer_name);
    m->producer_version = text_or_null(g->producer_version);
    if (!m->producer_name) {
        m->producer_name = sb_onnx_text("sparsebit");
        m->producer_version = sb_onnx_text(sb_version());
    }
    m->domain = text_or_null(g->model_domain);
    m->doc_string = text_or_null(g->model_doc);
    SB_TRY(sb_onnx_write_props(s, g->model_props, g->n_model_props,
                               &m->metadata_props));
    m->n_metadata_props = g->n_model_props;
    SB_TRY(sb_wire_set_unknown(&s->arena, g->unknown_model, &m->base));
    SB_TRY(write_opsets(s, opset, m));
    return sb_onnx_write_graph(s, &m->graph);
}

/* ---- files -------------------------------------------------------------- */

typedef struct save_buffer {
    ProtobufCBuffer base;
    sb_writer *writer;
} save_buffer;

static void buffer_append(ProtobufCBuffer *base, size_t len,
                          const uint8_t *data)
{
    sb_writer_put(((save_buffer *)base)->writer, data, len);
}

static sb_status save_pack(sb_onnx_saver *s, const char *path,
                           const Pb__Model *m, sb_writer **out)
{
    size_t size = protobuf_c_message_get_packed_size(&m->base);

    if (size > INT32_MAX)
        return sb_fail(s->ctx, SB_UNSUPPORTED,
                       "%s: %zu bytes besides the weights, at most 2 GB", path,
                       size);
    SB_TRY(sb_writer_open(s->ctx, path, out));
    save_buffer buffer = {{buffer_append}, *out};
    (void)protobuf_c_message_pack_to_buffer(&m->base, &buffer.base);
    return sb_writer_finish(*out);
}

static uint64_t weight_bytes(const sb_graph *g)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i].is_constant)
            sum += sb_tensor_bytes(&g->values[i].constant);
    for (size_t i = 0; i < g->n_subs; i++)
        sum += weight_bytes(g->subs[i]);
    return sum;
}

static bool save_needs_data(const sb_onnx_saver *s,
                            const sb_onnx_save_options *opt)
{
    return weight_bytes(s->root) >
           (opt && opt->external_above ? opt->external_above : default_limit);
}

/* The data first, under a name that no file refers to yet; then the model,
 * which refers to it.  Whatever ends the program between, there is a whole
 * pair. */
static sb_status save_commit(sb_onnx_saver *s, sb_writer *model)
{
    sb_status status = SB_OK;

    if (s->data) {
        status = sb_writer_commit(s->data);
        s->data = NULL;
    }
    if (status == SB_OK)
        return sb_writer_commit(model);
    sb_writer_abort(model);
    return status;
}

static sb_status save(sb_onnx_saver *s, const char *path,
                      const sb_onnx_save_options *opt)
{
    sb_writer *writer = NULL;
    sb_str old;
    Pb__Model m;

    if (save_needs_data(s, opt))
        SB_TRY(sb_onnx_data_open(s, path));
    SB_TRY(write_model(s, opt, &m));
    if (s->data)
        SB_TRY(sb_onnx_data_finish(s));
    sb_str_init(&old, s->ctx);
    sb_status status = save_pack(s, path, &m, &writer);
    if (status == SB_OK)
        status = sb_onnx_data_old(s, path, &old);
    if (status == SB_OK)
        status = save_commit(s, writer);
    else
        sb_writer_abort(writer);
    if (status == SB_OK)
        sb_onnx_data_remove(s, path, &old);
    sb_str_free(&old);
    return status;
}

sb_status sb_onnx_save(const sb_graph *graph, const char *path,
                       const sb_onnx_save_options *opt)
{
    sb_onnx_saver s = {.ctx = graph->ctx, .root = graph};

    sb_arena_init(&s.arena, s.ctx);
    sb_status status = save(&s, path, opt);
    sb_writer_abort(s.data);
    sb_arena_free(&s.arena);
    return status;
}

static sb_status save_to_memory(sb_onnx_saver *s,
                                const sb_onnx_save_options *opt, void **out,
                                size_t *size)
{
    unsigned char *bytes = NULL;
    Pb__Model m;

    if (save_needs_data(s, opt))
        return sb_fail(s->ctx, SB_UNSUPPORTED,
                       "weights of more than 2 GB cannot be saved to memory");
    SB_TRY(write_model(s, opt, &m));
    size_t n = protobuf_c_message_get_packed_size(&m.base);
    if (n > INT32_MAX)
        return sb_fail(s->ctx, SB_UNSUPPORTED,
                       "%zu bytes besides the weights, at most 2 GB", n);
    SB_TRY(sb_memory_create(s->ctx, NULL, n, &bytes));
    (void)protobuf_c_message_pack(&m.base, bytes);
    *out = bytes;
    *size = n;
    return SB_OK;
}

sb_status sb_onnx_save_memory(const sb_graph *graph,
                              const sb_onnx_save_options *opt, void **out,
                              size_t *size)
{
    sb_onnx_saver s = {.ctx = graph->ctx, .root = graph};

    sb_arena_init(&s.arena, s.ctx);
    sb_status status = save_to_memory(&s, opt, out, size);
    sb_arena_free(&s.arena);
    return status;
}
