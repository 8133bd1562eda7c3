/* The graph as text: constants in the order of their IDs, then nodes in
 * execution order.  The grammar is in text.h; text_parse.c reads it back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "graph/text.h"
#include "graph/text_common.h"

enum { MOST_ELEMENTS = 16, INDENT = 4 };

typedef struct {
    const sb_graph *g;
    sb_str *out;
    int indent;
} printer;

static sb_status print_graph(const sb_graph *g, sb_str *out, int indent);

/* ---- words -------------------------------------------------------------- */

static void add_escaped(sb_str *out, const char *text, size_t len, char quote)
{
    sb_str_addn(out, &quote, 1);
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)text[i];
        size_t n = sb_printable_size(text + i, len - i);
        if (c == (unsigned char)quote || c == '\\')
            sb_str_addf(out, "\\%c", c);
        else if (c == '\n')
            sb_str_add(out, "\\n");
        else if (n == 0)
            sb_str_addf(out, "\\x%02x", (unsigned)c);
        else
            sb_str_addn(out, text + i, n);
        i += n ? n : 1;
    }
    sb_str_addn(out, &quote, 1);
}

static bool is_plain(const char *name)
{
    if (!*name || strcmp(name, "_") == 0)
        return false;
    for (const char *p = name; *p; p++)
        if (!sb_text_word_char(*p))
            return false;
    return true;
}

static void add_name(sb_str *out, const char *name)
{
    if (is_plain(name))
        sb_str_add(out, name);
    else
        add_escaped(out, name, strlen(name), '`');
}

static void add_float(sb_str *out, double x, bool is_double, bool mark)
{
    char text[SB_NUMBER_MOST];

    if (isnan(x) || isinf(x)) {
        sb_str_add(out, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    sb_number_write(text, x, is_double ? 15 : 6, is_double ? 17 : 9);
    sb_str_add(out, text);
    /* In attributes the point tells a float from an integer. */
    if (mark && !strpbrk(text, ".e"))
        sb_str_add(out, ".0");
}

static void add_dim(printer *p, sb_dim d)
{
    const char *symbol = sb_graph_symbol_name(p->g, d);

    if (sb_dim_known(d))
        sb_str_addf(p->out, "%lld", (long long)d);
    else if (!symbol)
        sb_str_add(p->out, "?");
    else if (symbol[strspn(symbol, "0123456789")] == '\0')
        add_escaped(p->out, symbol, strlen(symbol), '`');
    else
        add_name(p->out, symbol);
}

static void add_type(printer *p, const sb_type *type)
{
    sb_str_addf(p->out, "%s[", sb_dtype_get(type->dtype)->name);
    if (type->shape.rank < 0)
        sb_str_add(p->out, "*");
    for (int i = 0; i < type->shape.rank; i++) {
        if (i > 0)
            sb_str_add(p->out, ",");
        add_dim(p, type->shape.dim[i]);
    }
    sb_str_add(p->out, "]");
}

/* ---- elements ----------------------------------------------------------- */

static void add_element(sb_str *out, const sb_tensor *t, int64_t i)
{
    if (t->dtype == SB_DTYPE_STRING) {
        const sb_bytes *s = (const sb_bytes *)t->data + i;
        add_escaped(out, s->data, s->len, '"');
    } else if (t->dtype == SB_DTYPE_U64) {
        sb_str_addf(out, "%llu",
                    (unsigned long long)(uint64_t)sb_tensor_get_i64(t, i));
    } else if (sb_dtype_is_integral(t->dtype)) {
        sb_str_addf(out, "%lld", (long long)sb_tensor_get_i64(t, i));
    } else {
        add_float(out, sb_tensor_get_f64(t, i), t->dtype == SB_DTYPE_F64,
                  false);
    }
}

static void add_elements(sb_str *out, const sb_tensor *t)
{
    int64_t count = sb_tensor_count(t);

    if (count > MOST_ELEMENTS || t->dtype == SB_DTYPE_C64 ||
        t->dtype == SB_DTYPE_C128) {
        sb_str_add(out, "{...}");
        return;
    }
    if (t->rank == 0) {
        add_element(out, t, 0);
        return;
    }
    sb_str_add(out, "[");
    for (int64_t i = 0; i < count; i++) {
        if (i > 0)
            sb_str_add(out, ", ");
        add_element(out, t, i);
    }
    sb_str_add(out, "]");
}

static void add_tensor(printer *p, const sb_tensor *t)
{
    sb_type type = {.dtype = t->dtype, .shape.rank = t->rank};

    for (int i = 0; i < t->rank; i++)
        type.shape.dim[i] = t->dims[i];
    sb_str_add(p->out, "tensor ");
    add_type(p, &type);
    sb_str_add(p->out, " = ");
    add_elements(p->out, t);
}

/* ---- attributes --------------------------------------------------------- */

static sb_status add_item(printer *p, const sb_attr *a, size_t i)
{
    switch (a->type) {
    case SB_ATTR_FLOATS:
        add_float(p->out, (double)a->floats[i], false, true);
        break;
    case SB_ATTR_INTS:
        sb_str_addf(p->out, "%lld", (long long)a->ints[i]);
        break;
    case SB_ATTR_STRINGS:
        add_escaped(p->out, a->strings[i].data, a->strings[i].len, '"');
        break;
    case SB_ATTR_TENSORS:
        add_tensor(p, &a->t[i]);
        break;
    case SB_ATTR_GRAPHS:
        return print_graph(a->graphs[i], p->out, p->indent + INDENT);
    default:
        break;
    }
    return SB_OK;
}

static sb_status add_list(printer *p, const sb_attr *a)
{
    /* Only an empty list does not show of what it is. */
    if (a->n == 0 && a->type != SB_ATTR_INTS)
        sb_str_addf(p->out, "%s ",
                    a->type == SB_ATTR_FLOATS    ? "floats"
                    : a->type == SB_ATTR_STRINGS ? "strings"
                    : a->type == SB_ATTR_TENSORS ? "tensors"
                                                 : "graphs");
    sb_str_add(p->out, "[");
    for (size_t i = 0; i < a->n; i++) {
        if (i > 0)
            sb_str_add(p->out, ",");
        SB_TRY(add_item(p, a, i));
    }
    sb_str_add(p->out, "]");
    return SB_OK;
}

static sb_status add_attr(printer *p, const sb_attr *a)
{
    add_name(p->out, a->name);
    sb_str_add(p->out, "=");
    switch (a->type) {
    case SB_ATTR_NONE:
        sb_str_add(p->out, "none");
        break;
    case SB_ATTR_FLOAT:
        add_float(p->out, (double)a->f, false, true);
        break;
    case SB_ATTR_INT:
        sb_str_addf(p->out, "%lld", (long long)a->i);
        break;
    case SB_ATTR_STRING:
        add_escaped(p->out, a->s.data, a->s.len, '"');
        break;
    case SB_ATTR_TENSOR:
        add_tensor(p, a->t);
        break;
    case SB_ATTR_GRAPH:
        return print_graph(a->graphs[0], p->out, p->indent + INDENT);
    case SB_ATTR_OPAQUE:
        sb_str_add(p->out, "opaque ");
        add_escaped(p->out, a->opaque.data, a->opaque.len, '"');
        break;
    case SB_ATTR_FLOATS:
    case SB_ATTR_INTS:
    case SB_ATTR_STRINGS:
    case SB_ATTR_TENSORS:
    case SB_ATTR_GRAPHS:
        return add_list(p, a);
    }
    return SB_OK;
}

/* ---- statements --------------------------------------------------------- */

static void add_indent(printer *p)
{
    sb_str_addf(p->out, "%*s", p->indent, "");
}

static void add_values(printer *p, const sb_value_id *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            sb_str_add(p->out, ", ");
        if (ids[i] == SB_NONE)
            sb_str_add(p->out, "_");
        else
            add_name(p->out, p->g->values[ids[i]].name);
    }
}

static sb_status add_node(printer *p, const sb_node *node)
{
    add_indent(p);
    if (node->n_out == 0)
        sb_str_add(p->out, "()");
    add_values(p, node->outputs, node->n_out);
    sb_str_add(p->out, " = ");
    if (node->domain[0]) {
        add_name(p->out, node->domain);
        sb_str_add(p->out, "::");
    }
    add_name(p->out, node->op);
    sb_str_add(p->out, "(");
    add_values(p, node->inputs, node->n_in);
    sb_str_add(p->out, ")");
    for (uint32_t i = 0; i < node->n_attrs; i++) {
        sb_str_add(p->out, i == 0 ? " {" : ", ");
        SB_TRY(add_attr(p, &node->attrs[i]));
    }
    if (node->n_attrs)
        sb_str_add(p->out, "}");
    if (node->name[0]) {
        sb_str_add(p->out, " ");
        add_escaped(p->out, node->name, strlen(node->name), '"');
    }
    if (node->module[0]) {
        sb_str_add(p->out, " @ ");
        add_name(p->out, node->module);
    }
    sb_str_add(p->out, "\n");
    return SB_OK;
}

static void add_constant(printer *p, const sb_value *v)
{
    add_indent(p);
    add_name(p->out, v->name);
    sb_str_add(p->out, ": ");
    add_type(p, &v->type);
    sb_str_add(p->out, " = ");
    add_elements(p->out, &v->constant);
    sb_str_add(p->out, "\n");
}

/* Defaults of inputs first, as the parser numbers them first. */
static void add_constants(printer *p)
{
    const sb_graph *g = p->g;

    for (size_t i = 0; i < g->n_inputs; i++)
        if (g->values[g->inputs[i]].is_constant)
            add_constant(p, &g->values[g->inputs[i]]);
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i].is_constant && !g->values[i].is_input)
            add_constant(p, &g->values[i]);
}

static void add_declared(printer *p, const sb_value_id *ids, size_t n)
{
    sb_str_add(p->out, "(");
    for (size_t i = 0; i < n; i++) {
        const sb_value *v = sb_graph_value(p->g, ids[i]);
        if (i > 0)
            sb_str_add(p->out, ", ");
        add_name(p->out, v->name);
        if (v->type.dtype != SB_DTYPE_NONE || v->type.shape.rank >= 0) {
            sb_str_add(p->out, ": ");
            add_type(p, &v->type);
        }
    }
    sb_str_add(p->out, ")");
}

/* `indent` is that of the body; the closing brace stands one level out. */
static sb_status print_graph(const sb_graph *g, sb_str *out, int indent)
{
    printer p = {g, out, indent};
    sb_node_id *order = NULL;
    sb_status status = SB_OK;
    size_t n = 0;

    SB_TRY(sb_graph_order(g, &order, &n));
    sb_str_add(out, "graph ");
    add_name(out, g->name);
    add_declared(&p, g->inputs, g->n_inputs);
    sb_str_add(out, " -> ");
    add_declared(&p, g->outputs, g->n_outputs);
    sb_str_add(out, " {\n");
    add_constants(&p);
    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = add_node(&p, &g->nodes[order[i]]);
    p.indent -= INDENT;
    add_indent(&p);
    sb_str_add(out, "}");
    sb_free(g->ctx, order);
    return status;
}

sb_status sb_graph_print(const sb_graph *g, sb_str *out)
{
    SB_TRY(print_graph(g, out, INDENT));
    sb_str_add(out, "\n");
    return sb_str_status(out);
}

sb_status sb_graph_log(const sb_graph *g)
{
    sb_str text;

    if (!sb_log_wanted(g->ctx))
        return SB_OK;
    sb_str_init(&text, g->ctx);
    sb_status status = sb_graph_print(g, &text);
    if (status == SB_OK)
        status = sb_str_status(&text);
    if (status == SB_OK && text.data) {
        for (char *p = text.data; *p;) {
            size_t n = strcspn(p, "\n");
            bool last = p[n] == '\0';
            p[n] = '\0';
            sb_log(g->ctx, SB_LOG_LEVEL_INFO, p);
            p += last ? n : n + 1;
        }
    }
    sb_str_free(&text);
    return status;
}
