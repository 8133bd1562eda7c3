/* sb_model_info_get: what is in a model, counted by operator and by module.
 *
 * A weight counts for the node that uses it first.  MACs come from the
 * operators' rows, for inputs whose unknown dimensions are taken as 1.  From
 * these follow those inside, such as the batch times the number of windows, if
 * shape arithmetic is folded; only what is unknown even then is taken as 1
 * itself. */
#include <stdlib.h>
#include <string.h>

#include "api/info_quant.h"
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "tensor/mapped.h"

/* One list of rows with a map from key to row. */
typedef struct {
    sb_ctx *ctx;
    sb_arena *arena;
    sb_map map;
    sb_count *rows; /* grown by sb_grow, copied into the arena at the end */
    size_t n, cap;
} counts;

typedef struct {
    sb_model *model;
    sb_model_info *info;
    counts ops, modules;
    sb_info_quant quant;
    sb_graph *shaped; /* a copy with inputs of 1, or NULL */
} counting;

static void counts_init(counts *c, sb_model *model, sb_arena *arena)
{
    *c = (counts){.ctx = model->ctx, .arena = arena};
    sb_map_init(&c->map, model->ctx);
}

static void counts_free(counts *c)
{
    sb_map_free(&c->map);
    sb_free(c->ctx, c->rows);
}

/* The row of a name, made if need be; valid until the next call. */
static sb_status counts_row(counts *c, const char *domain, const char *name,
                            sb_count **out)
{
    const char *key =
        *domain ? sb_arena_printf(c->arena, "%s::%s", domain, name) : name;
    if (!key)
        return SB_NO_MEMORY;
    uint32_t i = sb_map_get(&c->map, key);
    if (i == SB_MAP_NONE) {
        SB_TRY(sb_grow(c->ctx, &c->rows, &c->cap, c->n + 1, sizeof *c->rows));
        i = (uint32_t)c->n;
        SB_TRY(sb_map_put(&c->map, key, i));
        c->rows[c->n++] = (sb_count){.name = name, .domain = domain};
    }
    *out = &c->rows[i];
    return SB_OK;
}

/* ---- multiply-accumulates ----------------------------------------------- */

static bool shape_known(const sb_shape *shape)
{
    bool known = shape->rank >= 0;

    for (int i = 0; i < shape->rank; i++)
        known = known && sb_dim_known(shape->dim[i]);
    return known;
}

static bool all_known(const sb_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i].n_uses && !shape_known(&g->values[i].type.shape))
            return false;
    return true;
}

static sb_status shape_for_one(sb_graph *g, int *assumed)
{
    for (size_t i = 0; i < g->n_inputs; i++) {
        sb_shape *shape = &sb_graph_value(g, g->inputs[i])->type.shape;

        *assumed |= !shape_known(shape);
        for (int k = 0; k < shape->rank; k++)
            if (!sb_dim_known(shape->dim[k]))
                shape->dim[k] = 1;
    }
    SB_TRY(sb_graph_infer(g));
    SB_TRY(sb_passes_run(g, "fold_shapes,fold_constants", NULL, NULL, NULL));
    return sb_graph_infer(g);
}

/* Such a network may be impossible, which is no failure: then no copy. */
static sb_status make_shaped(sb_ctx *ctx, counting *c)
{
    if (all_known(c->model->graph))
        return SB_OK;
    SB_TRY(sb_graph_clone(c->model->graph, &c->shaped));
    sb_log_mute(ctx, true);
    sb_status status = shape_for_one(c->shaped, &c->info->macs_assumed);
    sb_log_mute(ctx, false);
    if (status == SB_OK || status == SB_NO_MEMORY || status == SB_INTERRUPTED)
        return status;
    sb_graph_free(c->shaped);
    c->shaped = NULL;
    return SB_OK;
}

static const sb_type *shaped_type(const counting *c, const sb_graph *g,
                                  const sb_value *v)
{
    sb_value_id id = SB_NONE;

    if (c->shaped && g == c->model->graph)
        id = sb_graph_find_value(c->shaped, v->name);
    return id == SB_NONE ? &v->type : &sb_graph_value(c->shaped, id)->type;
}

/* The tensor of a value with unknown dimensions taken as 1. */
static sb_tensor info_assume(const sb_value *v, const sb_type *type,
                             int *assumed)
{
    sb_tensor t = {.dtype = type->dtype};
    const sb_shape *shape = &type->shape;

    t.rank = shape->rank < 0 ? 0 : shape->rank;
    *assumed |= shape->rank < 0;
    for (int i = 0; i < t.rank; i++) {
        bool known = sb_dim_known(shape->dim[i]);

        t.dims[i] = known ? shape->dim[i] : 1;
        *assumed |= !known;
    }
    if (v->is_constant)
        t.data = v->constant.data;
    return t;
}

/* Both arrays of pointers and what they point at, or NULL. */
typedef struct {
    sb_tensor *tensors;
    sb_tensor **pointers;
    void *attrs;
} macs_memory;

static double macs_count(counting *c, const sb_graph *g, const sb_node *node,
                         const sb_op_def *op, macs_memory *m)
{
    sb_model *model = c->model;
    size_t n_in = node->n_in + node->n_implicit, n = n_in + node->n_out;
    bool sane = true; /* all ranks are known, and no size overflows */

    for (size_t i = 0; i < n; i++) {
        sb_value_id id = i < n_in ? node->inputs[i] : node->outputs[i - n_in];

        m->pointers[i] = NULL;
        if (id == SB_NONE)
            continue;
        const sb_value *v = sb_graph_value(g, id);
        const sb_type *type = shaped_type(c, g, v);
        sane = sane && type->shape.rank >= 0;
        m->tensors[i] = info_assume(v, type, &c->info->macs_assumed);
        m->pointers[i] = &m->tensors[i];
        sane = sane && sb_tensor_size_ok(&m->tensors[i]);
    }
    if (!sane || sb_op_read_attrs(model->ctx, g, node, op, m->attrs) != SB_OK)
        return 0;
    const sb_kernel k = {.ctx = model->ctx,
                         .graph = g,
                         .node = node,
                         .op = op,
                         .attrs = m->attrs,
                         .n_in = node->n_in,
                         .n_out = node->n_out,
                         .in = m->pointers,
                         .out = m->pointers + n_in};
    return op->macs(&k);
}

static sb_status node_macs(counting *c, const sb_graph *g, const sb_node *node,
                           double *out)
{
    sb_model *model = c->model;
    const sb_op_def *op = sb_op_of(node);
    size_t n = (size_t)node->n_in + node->n_implicit + node->n_out;
    sb_status status = SB_OK;

    *out = 0;
    if (!op || !op->macs || node->n_in < op->in_min ||
        node->n_out < op->out_min)
        return SB_OK;
    macs_memory m = {sb_alloc(model->ctx, n, sizeof(sb_tensor)),
                     sb_alloc(model->ctx, n, sizeof(sb_tensor *)),
                     sb_alloc(model->ctx, op->attrs_size, 1)};
    if (m.tensors && m.pointers && m.attrs)
        *out = macs_count(c, g, node, op, &m);
    else
        status = SB_NO_MEMORY;
    sb_free(model->ctx, m.tensors);
    sb_free(model->ctx, m.pointers);
    sb_free(model->ctx, m.attrs);
    return status;
}

/* ---- counting ----------------------------------------------------------- */

static bool is_parameter(const sb_value *v)
{
    return v->is_constant && v->constant.dtype != SB_DTYPE_I64 &&
           v->constant.dtype != SB_DTYPE_BOOL &&
           v->constant.dtype != SB_DTYPE_STRING;
}

/* Elements of the weights for which this node is the first user. */
static int64_t node_params(const sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    int64_t n = 0;

    for (uint32_t i = 0; i < node->n_in; i++) {
        const sb_value *v;

        if (node->inputs[i] == SB_NONE)
            continue;
        v = sb_graph_value(g, node->inputs[i]);
        if (is_parameter(v) && v->n_uses > 0 && v->uses[0].node == id &&
            v->uses[0].input == i)
            n += sb_tensor_count(&v->constant);
    }
    return n;
}

static sb_status count_node(counting *c, const sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_op_def *op = sb_op_of(node);
    int64_t params = node_params(g, id);
    double macs;
    sb_count *row;

    SB_TRY(node_macs(c, g, node, &macs));
    SB_TRY(counts_row(&c->ops, node->domain, node->op, &row));
    row->nodes++, row->params += params, row->macs += macs;
    row->runnable = op && op->forward;
    if (*node->module) {
        SB_TRY(counts_row(&c->modules, "", node->module, &row));
        row->nodes++, row->params += params, row->macs += macs;
    }
    c->info->nodes++;
    c->info->macs += macs;
    return sb_info_quant_node(&c->quant, g, id);
}

static sb_status count_graph(counting *c, const sb_graph *g);

static sb_status count_bodies(counting *c, const sb_node *node)
{
    const sb_graph *body;

    for (size_t i = 0; (body = sb_node_body(node, i)) != NULL; i++)
        SB_TRY(count_graph(c, body));
    return SB_OK;
}

static sb_status count_graph(counting *c, const sb_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++) {
        const sb_value *v = &g->values[i];

        if (!v->is_constant || (v->n_uses == 0 && !v->is_output))
            continue;
        c->info->weight_bytes += sb_tensor_bytes(&v->constant);
        if (is_parameter(v))
            c->info->params += sb_tensor_count(&v->constant);
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead)
            continue;
        SB_TRY(count_node(c, g, (sb_node_id)i));
        SB_TRY(count_bodies(c, &g->nodes[i]));
    }
    return SB_OK;
}

static int by_name(const void *a, const void *b)
{
    const sb_count *x = a, *y = b;
    int by_domain = strcmp(x->domain, y->domain);

    return by_domain ? by_domain : strcmp(x->name, y->name);
}

/* Hands the rows over to the model. */
static sb_status counts_keep(counts *c, const sb_count *const **out, size_t *n)
{
    sb_count *rows = sb_arena_alloc(c->arena, c->n, sizeof *rows);
    const sb_count **list = sb_arena_alloc(c->arena, c->n, sizeof(*list));

    if (!rows || !list)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < c->n; i++) {
        rows[i] = c->rows[i];
        list[i] = &rows[i];
    }
    *n = c->n;
    *out = list;
    return SB_OK;
}

static sb_status info_fill(sb_model *model, sb_arena *arena,
                           sb_model_info *info)
{
    const sb_graph *g = model->graph;
    counting c = {.model = model, .info = info, .quant = {.ctx = model->ctx}};

    counts_init(&c.ops, model, arena);
    counts_init(&c.modules, model, arena);
    sb_status status = make_shaped(model->ctx, &c);
    if (status == SB_OK)
        status = count_graph(&c, g);
    if (status == SB_OK && c.ops.n)
        qsort(c.ops.rows, c.ops.n, sizeof *c.ops.rows, by_name);
    if (status == SB_OK)
        status = counts_keep(&c.ops, &info->ops, &info->n_ops);
    if (status == SB_OK)
        status = counts_keep(&c.modules, &info->modules, &info->n_modules);
    if (status == SB_OK)
        status = sb_info_quant_keep(&c.quant, g, arena, info);
    sb_info_quant_free(&c.quant);
    sb_graph_free(c.shaped);
    counts_free(&c.ops);
    counts_free(&c.modules);
    return status;
}

sb_status sb_model_info_get(sb_model *model, const sb_model_info **out)
{
    const sb_graph *g = model->graph;
    sb_arena *arena = sb_model_answer(model, SB_QUESTION_INFO);
    sb_model_info *info = sb_arena_alloc(arena, 1, sizeof *info);

    if (!info)
        return SB_NO_MEMORY;
    *info = (sb_model_info){
        .name = g->name ? g->name : "",
        .producer = g->producer_name ? g->producer_name : "",
        .doc = g->model_doc ? g->model_doc : "",
        .ir_version = g->ir_version,
        .opset = g->file_opset,
        .file_bytes = model->file_bytes,
    };
    SB_TRY(info_fill(model, arena, info));
    *out = info;
    return SB_OK;
}

/* ---- subnormal weights -------------------------------------------------- */

static int64_t graph_subnormals(const sb_graph *g);

static int64_t node_subnormals(const sb_node *node)
{
    const sb_graph *body;
    int64_t count = 0;

    for (size_t i = 0; (body = sb_node_body(node, i)) != NULL; i++)
        count += graph_subnormals(body);
    return count;
}

static int64_t graph_subnormals(const sb_graph *g)
{
    int64_t count = 0;

    for (size_t i = 0; i < g->n_values; i++) {
        const sb_value *v = &g->values[i];

        if (!v->is_constant || v->n_uses == 0 ||
            v->constant.dtype != SB_DTYPE_F32)
            continue;
        count += (int64_t)sb_f32_subnormals(
            v->constant.data, (size_t)sb_tensor_count(&v->constant));
        sb_tensor_release_pages(&v->constant);
    }
    for (size_t i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead)
            count += node_subnormals(&g->nodes[i]);
    return count;
}

int64_t sb_model_count_subnormals(const sb_model *model)
{
    return graph_subnormals(model->graph);
}
