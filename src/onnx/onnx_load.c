/* Loading: map the file, unpack its skeleton, read the facts of the model,
 * then its graph. */
#include "onnx/onnx_load.h"
#include "onnx/onnx.h"

#include <string.h>

#include "graph/modules.h"
#include "graph/op.h"

enum { NEWEST_OPSET = 28 }; /* that we have read the specification of */

static sb_status copy_text(sb_graph *g, const char *text, const char **out)
{
    if (!text)
        return SB_OK;
    *out = sb_arena_str(g->arena, text);
    return *out ? SB_OK : SB_NO_MEMORY;
}

static sb_status read_facts(sb_onnx_loader *l)
{
    const Pb__Model *m = l->model;
    sb_graph *g = l->root;

    g->ir_version = m->ir_version;
    g->model_version = m->model_version;
    SB_TRY(copy_text(g, m->producer_name, &g->producer_name));
    SB_TRY(copy_text(g, m->producer_version, &g->producer_version));
    SB_TRY(copy_text(g, m->domain, &g->model_domain));
    SB_TRY(copy_text(g, m->doc_string, &g->model_doc));
    SB_TRY(sb_onnx_read_props(g, m->metadata_props, m->n_metadata_props,
                              &g->model_props));
    g->n_model_props = m->n_metadata_props;
    return sb_wire_unknown(g->arena, &m->base, &g->unknown_model);
}

/* ---- opsets ------------------------------------------------------------- */

static sb_opset *find_opset(const sb_graph *g, const char *domain)
{
    for (size_t i = 0; i < g->n_opsets; i++)
        if (strcmp(g->opsets[i].domain, domain) == 0)
            return &g->opsets[i];
    return NULL;
}

static sb_status add_opset(sb_graph *g, const char *domain, int64_t version)
{
    if (find_opset(g, domain))
        return SB_OK;
    g->opsets[g->n_opsets].version = version;
    SB_TRY(copy_text(g, domain, &g->opsets[g->n_opsets].domain));
    g->n_opsets++;
    return SB_OK;
}

static bool domain_used(const sb_graph *g, const char *domain)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead && strcmp(g->nodes[i].domain, domain) == 0)
            return true;
    return false;
}

/* The model's imports first, then what inlined functions import.  Domains that
 * nothing uses any more since their functions were inlined are left out. */
static sb_status read_opsets(sb_onnx_loader *l)
{
    const Pb__Model *m = l->model;
    sb_graph *g = l->root;
    size_t n = m->n_opset_import + 1;

    for (size_t i = 0; i < m->n_functions; i++)
        n += m->functions[i]->n_opset_import;
    g->opsets = sb_arena_alloc(g->arena, n, sizeof *g->opsets);
    if (!g->opsets)
        return SB_NO_MEMORY;
    SB_TRY(add_opset(g, "",
                     g->file_opset > SB_CANONICAL_OPSET ? g->file_opset
                                                        : SB_CANONICAL_OPSET));
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const Pb__OpsetId *o = m->opset_import[i];
        const char *domain = sb_onnx_domain(o->domain);
        bool used = domain_used(g, domain) || m->n_functions == 0;
        for (size_t k = 0; k < g->n_subs && !used; k++)
            used = domain_used(g->subs[k], domain);
        if (used)
            SB_TRY(add_opset(g, domain, o->version));
    }
    for (size_t i = 0; i < m->n_functions; i++)
        for (size_t k = 0; k < m->functions[i]->n_opset_import; k++) {
            const Pb__OpsetId *o = m->functions[i]->opset_import[k];
            const char *domain = sb_onnx_domain(o->domain);
            bool used = domain_used(g, domain);
            for (size_t s = 0; s < g->n_subs && !used; s++)
                used = domain_used(g->subs[s], domain);
            if (used)
                SB_TRY(add_opset(g, domain, o->version));
        }
    return SB_OK;
}

static sb_status check_opsets(sb_onnx_loader *l)
{
    for (size_t i = 0; i < l->model->n_opset_import; i++) {
        const Pb__OpsetId *o = l->model->opset_import[i];
        if (sb_onnx_domain(o->domain)[0])
            continue;
        if (o->version < 1)
            return sb_fail(l->ctx, SB_BAD_MODEL, "%s: opset %lld, want 1 to %d",
                           l->source.what, (long long)o->version, NEWEST_OPSET);
        l->root->file_opset = o->version;
        if (o->version > SB_CANONICAL_OPSET)
            sb_warn(l->ctx, "%s: opset %lld is newer than %d, taken as it is",
                    l->source.what, (long long)o->version, SB_CANONICAL_OPSET);
    }
    return SB_OK;
}

/* ---- the whole ---------------------------------------------------------- */

static sb_status read_model(sb_onnx_loader *l)
{
    const Pb__Model *m = l->model;
    sb_onnx_scope scope;

    if (sb_buf_size(l->source.buf) == 0)
        return sb_fail(l->ctx, SB_BAD_MODEL, "%s: the file is empty",
                       l->source.what);
    if (!m->graph)
        return sb_fail(l->ctx, SB_BAD_MODEL, "%s: not an ONNX model: no graph",
                       l->source.what);
    SB_TRY(sb_graph_create(l->ctx, m->graph->name, &l->root));
    SB_TRY(read_facts(l));
    SB_TRY(check_opsets(l));
    SB_TRY(sb_onnx_list_functions(l));
    sb_onnx_scope_init(&scope, l, NULL, l->root);
    scope.opsets = m->opset_import;
    scope.n_opsets = m->n_opset_import;
    sb_status status = sb_onnx_read_graph(&scope, m->graph);
    sb_onnx_scope_free(&scope);
    if (status == SB_OK)
        status = read_opsets(l);
    if (status == SB_OK)
        status = sb_graph_verify(l->root);
    if (status == SB_OK)
        status = sb_graph_assign_modules(l->root);
    return status;
}

/* Reads the model of an open source, and closes it. */
static sb_status load_source(sb_onnx_loader *l, sb_graph **out)
{
    const ProtobufCMessage *msg = NULL;

    sb_arena_init(&l->scratch, l->ctx);
    sb_map_init(&l->functions, l->ctx);
    sb_status status = sb_wire_unpack(
        &l->scratch, l->source.what, &pb__model__descriptor,
        sb_buf_data(l->source.buf), sb_buf_size(l->source.buf), &msg);
    if (status == SB_OK) {
        l->model = (const Pb__Model *)msg;
        status = read_model(l);
    }
    for (size_t i = 0; status == SB_OK && i < l->source.n_files; i++)
        l->root->external_bytes += sb_buf_size(l->source.files[i].buf);
    if (status == SB_OK)
        *out = l->root;
    else
        sb_graph_free(l->root);
    sb_map_free(&l->functions);
    sb_arena_free(&l->scratch);
    sb_source_close(&l->source);
    return status;
}

sb_status sb_onnx_load_with(sb_ctx *ctx, const char *path,
                            const sb_onnx_load_options *opt, sb_graph **out)
{
    sb_onnx_loader l = {.ctx = ctx, .keep_inputs = opt->keep_inputs};

    SB_TRY(sb_source_open(&l.source, ctx, path));
    return load_source(&l, out);
}

sb_status sb_onnx_load(sb_ctx *ctx, const char *path, sb_graph **out)
{
    return sb_onnx_load_with(ctx, path, &(sb_onnx_load_options){0}, out);
}

sb_status sb_onnx_load_memory(sb_ctx *ctx, const char *what, const char *folder,
                              const void *data, size_t size, sb_graph **out)
{
    sb_onnx_loader l = {.ctx = ctx};
    sb_str path;

    sb_str_init(&path, ctx);
    if (folder)
        sb_str_addf(&path, "%s/model", folder);
    sb_status status = sb_str_status(&path);
    if (status == SB_OK)
        status = sb_source_copy(&l.source, ctx, what, data, size);
    if (status == SB_OK) {
        l.source.path = folder ? sb_str_text(&path) : NULL;
        status = load_source(&l, out);
    }
    sb_str_free(&path);
    return status;
}
