/* Attributes of the text form. */
#include <string.h>

#include "graph/text.h"
#include "graph/text_lex.h"

enum { ATTRS_MOST = 4096 }; /* keeps the search for doubles short */

/* A list while its length is not known; items are copied to the arena at the
 * end. */
typedef struct {
    char *items;
    size_t n, cap;
} list;

static sb_status list_push(sb_ctx *ctx, list *l, const void *item, size_t size)
{
    SB_TRY(sb_grow(ctx, &l->items, &l->cap, l->n + 1, size));
    memcpy(l->items + l->n++ * size, item, size);
    return SB_OK;
}

static sb_status read_word_bytes(sb_lex *lex, sb_graph *g, sb_bytes *out)
{
    SB_TRY(sb_lex_string(lex));
    out->len = lex->word.len;
    out->data = sb_arena_strn(g->arena, sb_str_text(&lex->word), out->len);
    return out->data ? SB_OK : SB_NO_MEMORY;
}

/* `tensor i64[2] = [1,2]`; the caller drops it. */
static sb_status read_tensor(sb_lex *lex, sb_graph *g, sb_tensor *out)
{
    sb_type type = {0};

    SB_TRY(sb_lex_expect(lex, "tensor"));
    SB_TRY(sb_text_type(lex, g, &type));
    SB_TRY(sb_lex_expect(lex, "="));
    return sb_text_elements(lex, &type, out);
}

static sb_status read_graph(sb_lex *lex, sb_graph *g, sb_graph **out)
{
    SB_TRY(sb_lex_expect(lex, "graph"));
    SB_TRY(sb_lex_name(lex));
    SB_TRY(sb_graph_create_sub(g, sb_str_text(&lex->word), out));
    return sb_text_graph(lex, *out);
}

/* ---- lists -------------------------------------------------------------- */

/* Integers unless one of them has a point. */
static sb_status finish_numbers(sb_graph *g, const sb_lex_number *x, size_t n,
                                sb_attr *attr)
{
    int64_t *ints = sb_arena_alloc(g->arena, n, sizeof *ints);
    float *floats = sb_arena_alloc(g->arena, n, sizeof *floats);

    if (!ints || !floats)
        return SB_NO_MEMORY;
    if (attr->type == SB_ATTR_NONE)
        attr->type = SB_ATTR_INTS;
    for (size_t i = 0; i < n; i++) {
        ints[i] = x[i].i;
        floats[i] = (float)x[i].f;
        if (x[i].is_float)
            attr->type = SB_ATTR_FLOATS;
    }
    if (attr->type == SB_ATTR_FLOATS)
        attr->floats = floats;
    else
        attr->ints = ints;
    return SB_OK;
}

static sb_status read_item(sb_lex *lex, sb_graph *g, sb_attr_type type, list *l)
{
    sb_lex_number number = {0};
    sb_bytes bytes = {0};
    sb_tensor tensor = {0};
    sb_graph *sub = NULL;

    switch (type) {
    case SB_ATTR_STRINGS:
        SB_TRY(read_word_bytes(lex, g, &bytes));
        return list_push(lex->ctx, l, &bytes, sizeof bytes);
    case SB_ATTR_TENSORS: {
        SB_TRY(read_tensor(lex, g, &tensor));
        sb_status status = list_push(lex->ctx, l, &tensor, sizeof tensor);
        if (status != SB_OK)
            sb_tensor_drop(&tensor);
        return status;
    }
    case SB_ATTR_GRAPHS:
        SB_TRY(read_graph(lex, g, &sub));
        return list_push(lex->ctx, l, &sub, sizeof(sb_graph *));
    default:
        SB_TRY(sb_lex_number_read(lex, &number));
        return list_push(lex->ctx, l, &number, sizeof number);
    }
}

static sb_status finish_list(sb_graph *g, const list *l, sb_attr *attr)
{
    const void *items = l->items;

    attr->n = l->n;
    switch (attr->type) {
    case SB_ATTR_STRINGS:
        attr->strings = sb_arena_copy(g->arena, items, l->n * sizeof(sb_bytes));
        return attr->strings ? SB_OK : SB_NO_MEMORY;
    case SB_ATTR_TENSORS:
        return sb_graph_keep_tensors(g, items, l->n, &attr->t);
    case SB_ATTR_GRAPHS:
        attr->graphs =
            sb_arena_copy(g->arena, items, l->n * sizeof(sb_graph *));
        return attr->graphs ? SB_OK : SB_NO_MEMORY;
    default:
        return finish_numbers(g, items, l->n, attr);
    }
}

static sb_status read_items(sb_lex *lex, sb_graph *g, sb_attr *attr, list *l)
{
    SB_TRY(sb_lex_expect(lex, "["));
    if (attr->type == SB_ATTR_NONE) {
        if (sb_lex_peek(lex) == '"')
            attr->type = SB_ATTR_STRINGS;
        else if (sb_lex_at_word(lex, "tensor"))
            attr->type = SB_ATTR_TENSORS;
        else if (sb_lex_at_word(lex, "graph"))
            attr->type = SB_ATTR_GRAPHS;
    }
    if (!sb_lex_accept(lex, "]")) {
        do
            SB_TRY(read_item(lex, g, attr->type, l));
        while (sb_lex_accept(lex, ","));
        SB_TRY(sb_lex_expect(lex, "]"));
    }
    return finish_list(g, l, attr);
}

static sb_status read_list(sb_lex *lex, sb_graph *g, sb_attr *attr)
{
    list l = {0};
    sb_status status = read_items(lex, g, attr, &l);

    /* The graph has references of its own by now. */
    if (attr->type == SB_ATTR_TENSORS)
        for (size_t i = 0; i < l.n; i++)
            sb_tensor_drop((sb_tensor *)(void *)l.items + i);
    sb_free(lex->ctx, l.items);
    return status;
}

/* ---- single values ------------------------------------------------------ */

static sb_status read_number(sb_lex *lex, sb_attr *attr)
{
    sb_lex_number x = {0};

    SB_TRY(sb_lex_number_read(lex, &x));
    attr->type = x.is_float ? SB_ATTR_FLOAT : SB_ATTR_INT;
    if (x.is_float)
        attr->f = (float)x.f;
    else if (!x.is_negative && x.i < 0)
        return sb_lex_fail(lex, "a number of more than 63 bits");
    else
        attr->i = x.i;
    return SB_OK;
}

static sb_status read_tensor_attr(sb_lex *lex, sb_graph *g, sb_attr *attr)
{
    sb_tensor t = {0};

    SB_TRY(read_tensor(lex, g, &t));
    sb_status status = sb_graph_keep_tensors(g, &t, 1, &attr->t);
    sb_tensor_drop(&t);
    return status;
}

static sb_status read_graph_attr(sb_lex *lex, sb_graph *g, sb_attr *attr)
{
    attr->graphs = sb_arena_alloc(g->arena, 1, sizeof(sb_graph *));
    if (!attr->graphs)
        return SB_NO_MEMORY;
    return read_graph(lex, g, &attr->graphs[0]);
}

/* Words that a value may start with, and what they announce. */
static sb_attr_type attr_announced(sb_lex *lex)
{
    static const struct {
        const char *word;
        sb_attr_type type;
        bool skip;
    } rows[] = {
        {"tensor", SB_ATTR_TENSOR, false},  {"graph", SB_ATTR_GRAPH, false},
        {"floats", SB_ATTR_FLOATS, true},   {"ints", SB_ATTR_INTS, true},
        {"strings", SB_ATTR_STRINGS, true}, {"tensors", SB_ATTR_TENSORS, true},
        {"graphs", SB_ATTR_GRAPHS, true},   {"opaque", SB_ATTR_OPAQUE, true},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        if (!sb_lex_at_word(lex, rows[i].word))
            continue;
        if (rows[i].skip)
            (void)sb_lex_accept(lex, rows[i].word);
        return rows[i].type;
    }
    return SB_ATTR_NONE;
}

static sb_status read_value(sb_lex *lex, sb_graph *g, sb_attr *attr)
{
    attr->type = attr_announced(lex);
    switch (attr->type) {
    case SB_ATTR_TENSOR:
        return read_tensor_attr(lex, g, attr);
    case SB_ATTR_GRAPH:
        return read_graph_attr(lex, g, attr);
    case SB_ATTR_OPAQUE:
        return read_word_bytes(lex, g, &attr->opaque);
    default:
        break;
    }
    if (sb_lex_peek(lex) == '[')
        return read_list(lex, g, attr);
    if (sb_lex_peek(lex) == '"') {
        attr->type = SB_ATTR_STRING;
        return read_word_bytes(lex, g, &attr->s);
    }
    if (sb_lex_at_word(lex, "none"))
        return sb_lex_expect(lex, "none");
    return read_number(lex, attr);
}

/* ---- the list of attributes --------------------------------------------- */

static sb_status read_attr(sb_lex *lex, sb_graph *g, list *l)
{
    sb_attr attr = {0};

    SB_TRY(sb_lex_name(lex));
    attr.name = sb_arena_str(g->arena, sb_str_text(&lex->word));
    if (!attr.name)
        return SB_NO_MEMORY;
    if (l->n >= ATTRS_MOST)
        return sb_lex_fail(lex, "more than %d attributes", ATTRS_MOST);
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(((sb_attr *)(void *)l->items)[i].name, attr.name) == 0)
            return sb_lex_fail(lex, "attribute '%s' is given twice", attr.name);
    SB_TRY(sb_lex_expect(lex, "="));
    SB_TRY(read_value(lex, g, &attr));
    return list_push(lex->ctx, l, &attr, sizeof attr);
}

sb_status sb_text_attrs(sb_lex *lex, sb_graph *g, char end, sb_attr **attrs,
                        size_t *n)
{
    list l = {0};
    sb_status status = SB_OK;

    if (sb_lex_peek(lex) != end) {
        do
            status = read_attr(lex, g, &l);
        while (status == SB_OK && sb_lex_accept(lex, ","));
    }
    if (status == SB_OK) {
        *n = l.n;
        *attrs = sb_arena_copy(g->arena, l.items, l.n * sizeof **attrs);
        if (!*attrs)
            status = SB_NO_MEMORY;
    }
    sb_free(lex->ctx, l.items);
    return status;
}

sb_status sb_graph_parse_attrs(sb_graph *g, const char *text, sb_attr **attrs,
                               size_t *n)
{
    sb_lex lex;

    sb_lex_init(&lex, g->ctx, text);
    sb_status status = sb_text_attrs(&lex, g, '\0', attrs, n);
    if (status == SB_OK && sb_lex_peek(&lex) != '\0')
        status = sb_lex_unexpected(&lex, "',' or the end");
    sb_lex_free(&lex);
    return status;
}
