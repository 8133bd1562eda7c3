/* Text to graph: one pass, values made where they are first named.
 *
 * The list of outputs in the head is read twice: skipped at first, and taken
 * after the body, when every value that a node makes is there and what is left
 * must be a capture of the enclosing graph. */
#include <string.h>

#include "graph/op.h"
#include "graph/text.h"
#include "graph/text_lex.h"

/* Opset for files made from text, unless the graph needs a higher one: old
 * enough for runtimes of the last years. */
enum { TEXT_FILE_OPSET = 17, TEXT_IR_VERSION = 10 };

typedef struct {
    sb_value_id *v;
    size_t n, cap;
} ids;

static sb_status ids_push(sb_ctx *ctx, ids *list, sb_value_id id)
{
    SB_TRY(sb_grow(ctx, &list->v, &list->cap, list->n + 1, sizeof *list->v));
    list->v[list->n++] = id;
    return SB_OK;
}

/* ---- names to values ---------------------------------------------------- */

/* The value `name`, if need be as a capture from the enclosing graphs; SB_NONE
 * if no value has it. */
static sb_status find_or_capture(sb_graph *g, const char *name,
                                 sb_value_id *out)
{
    sb_value_id outer = SB_NONE;

    *out = sb_graph_find_value(g, name);
    if (*out != SB_NONE || !g->parent)
        return SB_OK;
    SB_TRY(find_or_capture(g->parent, name, &outer));
    if (outer == SB_NONE)
        return SB_OK;
    SB_TRY(sb_graph_add_value(g, name, out));
    sb_graph_value(g, *out)->type = sb_graph_value(g->parent, outer)->type;
    return sb_graph_add_capture(g, *out);
}

/* What a node reads.  A name that is not defined yet may be defined further
 * down. */
static sb_status input_value(sb_graph *g, const char *name, sb_value_id *out)
{
    SB_TRY(find_or_capture(g, name, out));
    return *out == SB_NONE ? sb_graph_add_value(g, name, out) : SB_OK;
}

static sb_status output_value(sb_graph *g, const char *name, sb_value_id *out)
{
    *out = sb_graph_find_value(g, name);
    return *out == SB_NONE ? sb_graph_add_value(g, name, out) : SB_OK;
}

/* `_` unless it stands in quotes */
static bool accept_absent(sb_lex *lex)
{
    return sb_lex_at_word(lex, "_") && sb_lex_accept(lex, "_");
}

/* ---- nodes -------------------------------------------------------------- */

typedef struct {
    ids inputs, outputs;
    sb_type type; /* of a single output, for constants */
    bool has_type;
} statement;

static sb_status read_outputs(sb_lex *lex, sb_graph *g, statement *s)
{
    if (sb_lex_accept(lex, "("))
        return sb_lex_expect(lex, ")");
    do {
        sb_value_id id = SB_NONE;
        if (!accept_absent(lex)) {
            SB_TRY(sb_lex_name(lex));
            SB_TRY(output_value(g, sb_str_text(&lex->word), &id));
            s->has_type = sb_lex_accept(lex, ":");
            if (s->has_type) {
                SB_TRY(sb_text_type(lex, g, &s->type));
                sb_graph_value(g, id)->type = s->type;
            }
        }
        SB_TRY(ids_push(lex->ctx, &s->outputs, id));
    } while (sb_lex_accept(lex, ","));
    return SB_OK;
}

static sb_status read_inputs(sb_lex *lex, sb_graph *g, statement *s)
{
    SB_TRY(sb_lex_expect(lex, "("));
    if (sb_lex_accept(lex, ")"))
        return SB_OK;
    do {
        sb_value_id id = SB_NONE;
        if (!accept_absent(lex)) {
            SB_TRY(sb_lex_name(lex));
            SB_TRY(input_value(g, sb_str_text(&lex->word), &id));
        }
        SB_TRY(ids_push(lex->ctx, &s->inputs, id));
    } while (sb_lex_accept(lex, ","));
    return sb_lex_expect(lex, ")");
}

static sb_status keep_word(sb_lex *lex, sb_graph *g, const char **out)
{
    *out = sb_arena_str(g->arena, sb_str_text(&lex->word));
    return *out ? SB_OK : SB_NO_MEMORY;
}

static sb_status read_op(sb_lex *lex, sb_graph *g, sb_node_spec *spec)
{
    SB_TRY(sb_lex_name(lex));
    SB_TRY(keep_word(lex, g, &spec->op));
    if (!sb_lex_accept(lex, "::"))
        return SB_OK;
    if (strcmp(spec->op, "ai.onnx") != 0) {
        spec->domain = spec->op;
        SB_TRY(sb_graph_add_opset(g, spec->domain, 1));
    }
    SB_TRY(sb_lex_name(lex));
    return keep_word(lex, g, &spec->op);
}

static sb_status read_node(sb_lex *lex, sb_graph *g, statement *s)
{
    sb_node_spec spec = {0};
    sb_attr *attrs = NULL;
    sb_value_id *implicit = NULL;

    SB_TRY(read_op(lex, g, &spec));
    SB_TRY(read_inputs(lex, g, s));
    if (sb_lex_accept(lex, "{")) {
        SB_TRY(sb_text_attrs(lex, g, '}', &attrs, &spec.n_attrs));
        SB_TRY(sb_lex_expect(lex, "}"));
        SB_TRY(sb_graph_implicit_inputs(g, attrs, spec.n_attrs, &implicit,
                                        &spec.n_implicit));
    }
    if (sb_lex_peek(lex) == '"') {
        SB_TRY(sb_lex_string(lex));
        SB_TRY(keep_word(lex, g, &spec.name));
    }
    if (sb_lex_accept(lex, "@")) {
        SB_TRY(sb_lex_name(lex));
        SB_TRY(keep_word(lex, g, &spec.module));
    }
    spec.attrs = attrs;
    spec.inputs = s->inputs.v;
    spec.n_in = s->inputs.n;
    spec.implicit = implicit;
    spec.outputs = s->outputs.v;
    spec.n_out = s->outputs.n;
    sb_status status = sb_graph_add_node(g, &spec, NULL);
    return status == SB_OK ? SB_OK
                           : sb_note(lex->ctx, status, "line %zu", lex->line);
}

/* ---- constants ---------------------------------------------------------- */

static bool at_elements(sb_lex *lex)
{
    char c = sb_lex_peek(lex);

    return (c != '\0' && strchr("[{\"-+0123456789", c)) ||
           sb_lex_at_word(lex, "random") || sb_lex_at_word(lex, "zeros") ||
           sb_lex_at_word(lex, "inf") || sb_lex_at_word(lex, "nan");
}

static sb_status read_constant(sb_lex *lex, sb_graph *g, const statement *s)
{
    sb_tensor t = {0};

    SB_TRY(sb_text_elements(lex, &s->type, &t));
    sb_status status = sb_graph_set_constant(g, s->outputs.v[0], &t);
    sb_tensor_drop(&t);
    return status == SB_OK ? SB_OK
                           : sb_note(lex->ctx, status, "line %zu", lex->line);
}

static sb_status read_statement(sb_lex *lex, sb_graph *g, statement *s)
{
    SB_TRY(read_outputs(lex, g, s));
    SB_TRY(sb_lex_expect(lex, "="));
    if (s->outputs.n == 1 && s->has_type && at_elements(lex))
        return read_constant(lex, g, s);
    return read_node(lex, g, s);
}

/* ---- graphs ------------------------------------------------------------- */

static sb_status declare_input(sb_lex *lex, sb_graph *g, sb_value_id *out)
{
    sb_status status = sb_graph_add_value(g, sb_str_text(&lex->word), out);

    if (status == SB_OK)
        status = sb_graph_add_input(g, *out);
    return status == SB_OK ? SB_OK
                           : sb_note(lex->ctx, status, "line %zu", lex->line);
}

static sb_status declare_output(sb_graph *g, const char *name, sb_value_id *out)
{
    SB_TRY(input_value(g, name, out));
    return sb_graph_add_output(g, *out);
}

static sb_status declare_type(sb_lex *lex, sb_value *v, const sb_type *type)
{
    if (v->is_constant && (type->dtype != v->type.dtype ||
                           !sb_shape_same(&type->shape, &v->type.shape)))
        return sb_lex_fail(lex, "'%s' is declared unlike the constant it is",
                           v->name);
    v->type = *type;
    return SB_OK;
}

typedef enum { SKIP, INPUTS, OUTPUTS } declared;

static sb_status read_declared(sb_lex *lex, sb_graph *g, declared what)
{
    SB_TRY(sb_lex_expect(lex, "("));
    if (sb_lex_accept(lex, ")"))
        return SB_OK;
    do {
        sb_value_id id = SB_NONE;
        sb_type type = {0};
        SB_TRY(sb_lex_name(lex));
        if (what == INPUTS)
            SB_TRY(declare_input(lex, g, &id));
        else if (what == OUTPUTS)
            SB_TRY(declare_output(g, sb_str_text(&lex->word), &id));
        if (!sb_lex_accept(lex, ":"))
            continue;
        SB_TRY(sb_text_type(lex, g, &type));
        if (what != SKIP)
            SB_TRY(declare_type(lex, sb_graph_value(g, id), &type));
    } while (sb_lex_accept(lex, ","));
    return sb_lex_expect(lex, ")");
}

sb_status sb_text_graph(sb_lex *lex, sb_graph *g)
{
    SB_TRY(read_declared(lex, g, INPUTS));
    SB_TRY(sb_lex_expect(lex, "->"));
    const char *outputs = lex->at;
    size_t outputs_line = lex->line;
    SB_TRY(read_declared(lex, g, SKIP));
    SB_TRY(sb_lex_expect(lex, "{"));
    while (!sb_lex_accept(lex, "}")) {
        statement s = {0};
        sb_status status = read_statement(lex, g, &s);
        sb_free(lex->ctx, s.inputs.v);
        sb_free(lex->ctx, s.outputs.v);
        SB_TRY(status);
    }
    const char *end = lex->at;
    size_t end_line = lex->line;
    lex->at = outputs;
    lex->line = outputs_line;
    SB_TRY(read_declared(lex, g, OUTPUTS));
    lex->at = end;
    lex->line = end_line;
    return SB_OK;
}

static sb_status parse_root(sb_lex *lex, sb_graph **out)
{
    SB_TRY(sb_lex_expect(lex, "graph"));
    SB_TRY(sb_lex_name(lex));
    SB_TRY(sb_graph_create(lex->ctx, sb_str_text(&lex->word), out));
    sb_graph *g = *out;
    g->file_opset = TEXT_FILE_OPSET;
    g->ir_version = TEXT_IR_VERSION;
    SB_TRY(sb_graph_add_opset(g, "", SB_CANONICAL_OPSET));
    SB_TRY(sb_text_graph(lex, g));
    if (sb_lex_peek(lex) != '\0')
        return sb_lex_unexpected(lex, "the end");
    return sb_graph_verify(g);
}

sb_status sb_graph_parse(sb_ctx *ctx, const char *text, sb_graph **out)
{
    sb_graph *g = NULL;
    sb_lex lex;

    sb_lex_init(&lex, ctx, text);
    sb_status status = parse_root(&lex, &g);
    sb_lex_free(&lex);
    if (status != SB_OK) {
        sb_graph_free(g);
        return status;
    }
    *out = g;
    return SB_OK;
}
