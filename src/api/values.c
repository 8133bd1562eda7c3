/* What is known of the values of a model: those of its inputs and outputs are
 * always at hand, the others when asked for. */
#include <string.h>

#include "api/model.h"
#include "base/str.h"

/* Fills rows from values of one graph. */
typedef struct value_filler {
    sb_ctx *ctx;
    const sb_graph *g;
    sb_arena *arena;
    size_t *place; /* of each node in the order of execution */
} value_filler;

static sb_status filler_init(value_filler *f, const sb_graph *g,
                             sb_arena *arena)
{
    sb_node_id *order = NULL;
    size_t n = 0;

    *f = (value_filler){.ctx = g->ctx, .g = g, .arena = arena};
    f->place = sb_alloc(g->ctx, g->n_nodes, sizeof *f->place);
    if (!f->place)
        return SB_NO_MEMORY;
    SB_TRY(sb_graph_order(g, &order, &n));
    for (size_t i = 0; i < n; i++)
        f->place[order[i]] = i;
    sb_free(g->ctx, order);
    return SB_OK;
}

static void filler_free(value_filler *f)
{
    sb_free(f->ctx, f->place);
}

/* "float[N,3,224,224]" */
static sb_status type_text(const sb_graph *g, const sb_value *v, sb_str *out)
{
    const sb_shape *shape = &v->type.shape;

    if (v->opaque_type.len || v->type.dtype == SB_DTYPE_SEQUENCE) {
        sb_str_add(out, v->type.dtype == SB_DTYPE_SEQUENCE
                            ? "a sequence of tensors"
                            : "not a tensor");
        return sb_str_status(out);
    }
    sb_str_add(out, v->type.dtype == SB_DTYPE_NONE
                        ? "unknown"
                        : sb_dtype_get(v->type.dtype)->onnx);
    if (shape->rank < 0)
        sb_str_add(out, "[*]");
    for (int i = 0; i < shape->rank; i++) {
        const char *symbol = sb_graph_symbol_name(g, shape->dim[i]);

        sb_str_add(out, i ? "," : "[");
        if (sb_dim_known(shape->dim[i]))
            sb_str_addf(out, "%lld", (long long)shape->dim[i]);
        else
            sb_str_add(out, symbol ? symbol : "?");
    }
    if (shape->rank >= 0)
        sb_str_add(out, shape->rank == 0 ? "[]" : "]");
    return sb_str_status(out);
}

static sb_status value_fill(const value_filler *f, sb_value_id id,
                            sb_value_info *out)
{
    const sb_value *v = sb_graph_value(f->g, id);
    const sb_shape *shape = &v->type.shape;
    size_t n = shape->rank > 0 ? (size_t)shape->rank : 0;
    int64_t *dims = sb_arena_alloc(f->arena, n, sizeof *dims);
    sb_str text;

    if (!dims)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        dims[i] = sb_dim_known(shape->dim[i]) ? shape->dim[i] : -1;
    sb_str_init(&text, f->ctx);
    sb_status status = type_text(f->g, v, &text);
    *out = (sb_value_info){.name = sb_arena_str(f->arena, v->name),
                           .dtype = v->type.dtype,
                           .rank = shape->rank,
                           .dims = dims,
                           .text = sb_arena_str(f->arena, sb_str_text(&text)),
                           .is_input = v->is_input,
                           .is_output = v->is_output,
                           .is_constant = v->is_constant,
                           .producer = v->producer == SB_NONE
                                           ? SB_NO_INDEX
                                           : f->place[v->producer],
                           .n_consumers = v->n_uses};
    sb_str_free(&text);
    if (status == SB_OK && (!out->name || !out->text))
        status = SB_NO_MEMORY;
    return status;
}

/* ---- inputs and outputs ------------------------------------------------- */

static sb_status io_fill(const value_filler *f, sb_model_io *io)
{
    const sb_graph *g = f->g;

    io->inputs = sb_arena_alloc(&io->arena, g->n_inputs, sizeof *io->inputs);
    io->outputs = sb_arena_alloc(&io->arena, g->n_outputs, sizeof *io->outputs);
    if (!io->inputs || !io->outputs)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_inputs; i++) {
        SB_TRY(value_fill(f, g->inputs[i], &io->inputs[io->n_inputs]));
        io->n_inputs++;
    }
    for (size_t i = 0; i < g->n_outputs; i++) {
        SB_TRY(value_fill(f, g->outputs[i], &io->outputs[i]));
        io->n_outputs++;
    }
    return SB_OK;
}

sb_status sb_model_io_fill(sb_model_io *io, const sb_graph *g)
{
    value_filler f;

    *io = (sb_model_io){.n_inputs = 0};
    sb_arena_init(&io->arena, g->ctx);
    sb_status status = filler_init(&f, g, &io->arena);
    if (status == SB_OK)
        status = io_fill(&f, io);
    filler_free(&f);
    return status;
}

void sb_model_io_free(sb_model_io *io)
{
    sb_arena_free(&io->arena);
    io->inputs = io->outputs = NULL;
    io->n_inputs = io->n_outputs = 0;
}

size_t sb_model_input_count(const sb_model *model)
{
    return model->io.n_inputs;
}

size_t sb_model_output_count(const sb_model *model)
{
    return model->io.n_outputs;
}

const sb_value_info *sb_model_input(const sb_model *model, size_t i)
{
    return i < model->io.n_inputs ? &model->io.inputs[i] : NULL;
}

const sb_value_info *sb_model_output(const sb_model *model, size_t i)
{
    return i < model->io.n_outputs ? &model->io.outputs[i] : NULL;
}

static size_t find_info(const sb_value_info *infos, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(infos[i].name, name) == 0)
            return i;
    return SB_NO_INDEX;
}

size_t sb_model_find_input(const sb_model *model, const char *name)
{
    return find_info(model->io.inputs, model->io.n_inputs, name);
}

size_t sb_model_find_output(const sb_model *model, const char *name)
{
    return find_info(model->io.outputs, model->io.n_outputs, name);
}

/* ---- all values --------------------------------------------------------- */

static bool is_of_use(const sb_value *v)
{
    return v->is_input || v->is_output || v->producer != SB_NONE ||
           (v->is_constant && v->n_uses > 0);
}

static sb_status values_fill(const value_filler *f,
                             const sb_value_info *const **out, size_t *n)
{
    const sb_graph *g = f->g;
    sb_value_info *rows = sb_arena_alloc(f->arena, g->n_values, sizeof *rows);
    const sb_value_info **list =
        sb_arena_alloc(f->arena, g->n_values, sizeof(*list));
    size_t count = 0;

    if (!rows || !list)
        return SB_NO_MEMORY;
    for (sb_value_id v = 0; v < g->n_values; v++) {
        if (!is_of_use(sb_graph_value(g, v)))
            continue;
        SB_TRY(value_fill(f, v, &rows[count]));
        list[count] = &rows[count];
        count++;
    }
    *out = list;
    *n = count;
    return SB_OK;
}

sb_status sb_model_values(sb_model *model, const sb_value_info *const **out,
                          size_t *n)
{
    sb_arena *arena = sb_model_answer(model, SB_QUESTION_VALUES);
    value_filler f;

    sb_status status = filler_init(&f, model->graph, arena);
    if (status == SB_OK)
        status = values_fill(&f, out, n);
    filler_free(&f);
    return status;
}
