/* The matcher: a pattern table against the nodes above a root.
 *
 * Matching is a search with backtracking over a list of goals "this value must
 * be what that entry says".  A node in any order turns into one list of goals
 * for each way to assign entries to inputs; alternatives are further branches.
 * Cheap tests run while entries are assigned, so hardly any branch is entered
 * in vain; a budget of steps makes sure that no graph, however made, can turn
 * the search into a hang. */
#include "passes/matcher.h"

#include <string.h>

#include "base/number.h"
#include "passes/rewrite.h"

enum { STEP_BUDGET = 20000, MAX_ORDERED_INPUTS = 64 };

typedef enum entry_kind {
    ENTRY_ANY,
    ENTRY_ABSENT,
    ENTRY_NUMBER,
    ENTRY_CONSTANT,
    ENTRY_NAME,
} entry_kind;

typedef struct entry {
    entry_kind kind;
    int slot; /* of CONSTANT and NAME */
    double number;
} entry;

typedef struct row {
    const sb_pat *pat;
    int slot;
    int next; /* next alternative of the same name, -1 at the end */
    uint32_t n_in;
    entry in[SB_PAT_MAX_IN];
} row;

struct sb_matcher {
    const sb_rule *rule;
    int n_rows, n_slots;
    row rows[SB_PAT_MAX_ROWS];
    const char *names[SB_PAT_MAX_NAMES];
    int first_row[SB_PAT_MAX_NAMES]; /* -1: the name of a plain value */
};

/* ---- compiling ---------------------------------------------------------- */

static int find_slot(const sb_matcher *m, const char *name)
{
    for (int i = 0; i < m->n_slots; i++)
        if (strcmp(m->names[i], name) == 0)
            return i;
    return -1;
}

static int make_slot(sb_matcher *m, const char *name)
{
    int slot = find_slot(m, name);

    if (slot >= 0 || m->n_slots == SB_PAT_MAX_NAMES)
        return slot;
    m->names[m->n_slots] = name;
    m->first_row[m->n_slots] = -1;
    return m->n_slots++;
}

static bool compile_entry(sb_matcher *m, const char *text, entry *out)
{
    *out = (entry){.slot = -1};
    switch (text[0]) {
    case '*':
        out->kind = ENTRY_ANY;
        return text[1] == '\0';
    case '_':
        out->kind = ENTRY_ABSENT;
        return text[1] == '\0';
    case '=':
        out->kind = ENTRY_NUMBER;
        return sb_number_read(text + 1, &out->number);
    case '$':
        out->kind = ENTRY_CONSTANT;
        out->slot = make_slot(m, text + 1);
        return out->slot >= 0;
    default:
        out->kind = ENTRY_NAME;
        out->slot = make_slot(m, text);
        return out->slot >= 0;
    }
}

/* Rows first get their slots, so that an entry knows whether it names one. */
static bool matcher_compile(sb_matcher *m)
{
    const sb_pat *pat = m->rule->rows;

    for (; pat[m->n_rows].name; m->n_rows++) {
        if (m->n_rows == SB_PAT_MAX_ROWS)
            return false;
        row *r = &m->rows[m->n_rows];
        *r = (row){.pat = &pat[m->n_rows], .next = -1};
        r->slot = make_slot(m, r->pat->name);
        if (r->slot < 0 || !r->pat->ops)
            return false;
        int *link = &m->first_row[r->slot];
        while (*link >= 0)
            link = &m->rows[*link].next;
        *link = m->n_rows;
    }
    for (int i = 0; i < m->n_rows; i++) {
        row *r = &m->rows[i];
        for (; r->n_in < SB_PAT_MAX_IN && r->pat->in[r->n_in]; r->n_in++)
            if (!compile_entry(m, r->pat->in[r->n_in], &r->in[r->n_in]))
                return false;
    }
    return m->n_rows > 0;
}

sb_status sb_matcher_create(sb_ctx *ctx, const sb_rule *rule, sb_matcher **out)
{
    sb_matcher *m = sb_alloc(ctx, 1, sizeof *m);

    if (!m)
        return SB_NO_MEMORY;
    m->rule = rule;
    if (!matcher_compile(m)) {
        sb_free(ctx, m);
        return sb_fail(ctx, SB_BAD_ARG,
                       "the pattern of '%s' is not well formed",
                       rule->rows[0].name ? rule->rows[0].name : "");
    }
    *out = m;
    return SB_OK;
}

void sb_matcher_free(sb_ctx *ctx, sb_matcher *matcher)
{
    sb_free(ctx, matcher);
}

/* ---- searching ---------------------------------------------------------- */

typedef struct goal {
    const entry *want;
    sb_value_id value;
    const struct goal *next;
} goal;

typedef struct search {
    const sb_matcher *m;
    sb_graph *g;
    sb_match *out;
    int steps;
    uint64_t shared; /* bit i: out->nodes[i] may be used from outside */
} search;

/* One node under test, and the row it is tested against. */
typedef struct attempt {
    const row *row;
    const sb_node *node;
    uint32_t n_in; /* without absent ones at the end */
} attempt;

static bool matcher_solve(search *s, const goal *goals);

static bool op_listed(const char *ops, const char *op)
{
    size_t len = strlen(op);

    if (strcmp(ops, "*") == 0)
        return true;
    for (const char *p = ops; p;) {
        const char *bar = strchr(p, '|');
        size_t n = bar ? (size_t)(bar - p) : strlen(p);
        if (n == len && memcmp(p, op, len) == 0)
            return true;
        p = bar ? bar + 1 : NULL;
    }
    return false;
}

static bool row_takes(const search *s, const row *r, const sb_node *node)
{
    return !node->dead && node->domain[0] == '\0' &&
           op_listed(r->pat->ops, node->op) &&
           (!r->pat->check || r->pat->check(s->g, node));
}

/* What can be said about an entry without going further up. */
static bool matcher_plausible(const search *s, const entry *want,
                              sb_value_id value)
{
    if (want->kind == ENTRY_ABSENT)
        return value == SB_NONE;
    if (value == SB_NONE)
        return false;
    switch (want->kind) {
    case ENTRY_NUMBER:
        return sb_const_close(s->g, value, want->number);
    case ENTRY_CONSTANT:
        if (!sb_is_const(s->g, value))
            return false;
        break;
    case ENTRY_NAME:
        if (s->m->first_row[want->slot] >= 0 && !sb_graph_producer(s->g, value))
            return false;
        break;
    default:
        return true;
    }
    sb_value_id bound = s->out->values[want->slot];
    return bound == SB_NONE || bound == value;
}

static bool used_inside(const search *s, sb_node_id node)
{
    for (size_t i = 0; i < s->out->n_nodes; i++)
        if (s->out->nodes[i] == node)
            return true;
    return false;
}

/* No result of a matched node is wanted elsewhere, the root's first one
 * excepted. */
static bool matcher_closed(const search *s)
{
    for (size_t i = 0; i < s->out->n_nodes; i++) {
        const sb_node *node = sb_graph_node(s->g, s->out->nodes[i]);
        if (s->shared & (UINT64_C(1) << i))
            continue;
        for (uint32_t k = i == 0 ? 1 : 0; k < node->n_out; k++) {
            if (node->outputs[k] == SB_NONE)
                continue;
            const sb_value *v = sb_graph_value(s->g, node->outputs[k]);
            if (v->is_output)
                return false;
            for (uint32_t u = 0; u < v->n_uses; u++)
                if (!used_inside(s, v->uses[u].node))
                    return false;
        }
    }
    return true;
}

/* Assigns entry i and those after it to inputs; entries below i are goals. */
static bool matcher_assign(search *s, const attempt *a, uint32_t i,
                           uint64_t taken, const goal *goals)
{
    if (++s->steps > STEP_BUDGET)
        return false;
    if (i == a->row->n_in)
        return matcher_solve(s, goals);
    bool exact = a->row->pat->order == SB_PAT_EXACT;
    uint32_t end = exact ? i + 1 : a->n_in;

    for (uint32_t k = exact ? i : 0; k < end && k < MAX_ORDERED_INPUTS; k++) {
        sb_value_id value = k < a->n_in ? a->node->inputs[k] : SB_NONE;
        const goal next = {&a->row->in[i], value, goals};
        if ((taken & (UINT64_C(1) << k)) ||
            !matcher_plausible(s, next.want, value))
            continue;
        if (matcher_assign(s, a, i + 1, taken | (UINT64_C(1) << k), &next))
            return true;
    }
    return false;
}

static bool match_row(search *s, const row *r, sb_node_id id, const goal *goals)
{
    attempt a = {.row = r, .node = sb_graph_node(s->g, id)};
    size_t at = s->out->n_nodes;

    for (a.n_in = a.node->n_in; a.n_in > 0; a.n_in--)
        if (a.node->inputs[a.n_in - 1] != SB_NONE)
            break;
    if (at == SB_COUNT(s->out->nodes) || !row_takes(s, r, a.node) ||
        (r->pat->order == SB_PAT_SUBSET ? a.n_in < r->n_in : a.n_in > r->n_in))
        return false;
    s->out->nodes[s->out->n_nodes++] = id;
    if (r->pat->shared)
        s->shared |= UINT64_C(1) << at;
    s->out->values[r->slot] = a.node->outputs[0];
    if (matcher_assign(s, &a, 0, 0, goals))
        return true;
    s->out->n_nodes = at;
    s->shared &= (UINT64_C(1) << at) - 1;
    s->out->values[r->slot] = SB_NONE;
    return false;
}

/* The value must be made by a node that fits one of the rows of the slot. */
static bool solve_row(search *s, const goal *want)
{
    const sb_value *v = sb_graph_value(s->g, want->value);
    const sb_node *node = sb_graph_producer(s->g, want->value);

    if (!node || v->output != 0)
        return false;
    int slot = want->want->slot;
    for (int r = s->m->first_row[slot]; r >= 0; r = s->m->rows[r].next)
        if (match_row(s, &s->m->rows[r], v->producer, want->next))
            return true;
    return false;
}

static bool matcher_solve(search *s, const goal *goals)
{
    if (!goals)
        return matcher_closed(s) &&
               (!s->m->rule->check || s->m->rule->check(s->out));
    const entry *want = goals->want;
    if (!matcher_plausible(s, want, goals->value))
        return false;
    if (want->kind == ENTRY_NUMBER) {
        int before = s->out->number_rank;
        int rank = sb_graph_value(s->g, goals->value)->constant.rank;
        if (rank > before)
            s->out->number_rank = rank;
        if (matcher_solve(s, goals->next))
            return true;
        s->out->number_rank = before;
        return false;
    }
    if (want->kind != ENTRY_NAME && want->kind != ENTRY_CONSTANT)
        return matcher_solve(s, goals->next);
    if (s->out->values[want->slot] != SB_NONE)
        return matcher_solve(s, goals->next);
    if (want->kind == ENTRY_NAME && s->m->first_row[want->slot] >= 0)
        return solve_row(s, goals);
    s->out->values[want->slot] = goals->value;
    if (matcher_solve(s, goals->next))
        return true;
    s->out->values[want->slot] = SB_NONE;
    return false;
}

bool sb_matcher_try(const sb_matcher *matcher, sb_graph *g, sb_node_id root,
                    sb_match *out)
{
    const sb_node *node = sb_graph_node(g, root);

    if (node->dead || node->n_out == 0 || node->outputs[0] == SB_NONE)
        return false;
    *out = (sb_match){.graph = g, .matcher = matcher, .root = root};
    for (int i = 0; i < SB_PAT_MAX_NAMES; i++)
        out->values[i] = SB_NONE;
    search s = {.m = matcher, .g = g, .out = out};
    int slot = matcher->rows[0].slot;
    for (int r = matcher->first_row[slot]; r >= 0; r = matcher->rows[r].next)
        if (match_row(&s, &matcher->rows[r], root, NULL))
            return true;
    return false;
}

sb_value_id sb_match_value(const sb_match *m, const char *name)
{
    int slot = find_slot(m->matcher, name);

    return slot < 0 ? SB_NONE : m->values[slot];
}

sb_node_id sb_match_node(const sb_match *m, const char *name)
{
    int slot = find_slot(m->matcher, name);

    if (slot < 0 || m->matcher->first_row[slot] < 0 ||
        m->values[slot] == SB_NONE)
        return SB_NONE;
    return sb_graph_value(m->graph, m->values[slot])->producer;
}
