/* The gradient of Einsum, by Einsum: that of an operand is the product of dy
 * and the other operands, with the labels of the operand as the result.
 *
 *     y = einsum("ij,jk->ik", a, b):  da = einsum("ik,jk->ij", dy, b)
 *
 * Labels that no other operand has were summed over: there the gradient is the
 * same for all, and is broadcast. */
#include <string.h>

#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"
#include "ops/matmul/einsum.h"

enum { EINSUM_TEXT = SB_EINSUM_MAX_IN * (SB_MAX_RANK + 2) + 16 };

typedef struct einsum_text {
    char s[EINSUM_TEXT];
    size_t n;
} einsum_text;

/* A letter for each label, also for those of an ellipsis; '\0': too many. */
static char einsum_letter(int label)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

    return label < (int)sizeof letters - 1 ? letters[label] : '\0';
}

static void einsum_add(einsum_text *t, char c)
{
    if (t->n + 1 < sizeof t->s)
        t->s[t->n++] = c;
}

/* The labels of `term`, of those in `only`; returns how many. */
static int einsum_add_term(einsum_text *t, const sb_einsum_term *term,
                           uint64_t only, const uint8_t *number)
{
    int n = 0;

    for (int i = 0; i < term->n; i++)
        if (only >> term->label[i] & 1) {
            einsum_add(t, einsum_letter(number[term->label[i]]));
            n++;
        }
    return n;
}

static uint64_t einsum_labels(const sb_einsum_term *term, bool *twice)
{
    uint64_t set = 0;

    for (int i = 0; i < term->n; i++) {
        *twice = *twice || (set >> term->label[i] & 1);
        set |= (uint64_t)1 << term->label[i];
    }
    return set;
}

static void einsum_operand(sb_grad *g, const sb_einsum_terms *terms,
                           const uint8_t *number, uint32_t at)
{
    sb_value_id in[SB_EINSUM_MAX_IN + 1];
    sb_value_id x = sb_grad_in(g, at);
    int64_t missing[SB_MAX_RANK];
    einsum_text text = {.n = 0};
    uint64_t there;
    bool twice = false;
    int n_missing = 0;
    size_t n_in = 1;

    in[0] = g->dy[0];
    there = einsum_labels(&terms->out, &twice);
    einsum_add_term(&text, &terms->out, UINT64_MAX, number);
    for (uint32_t i = 0; i < g->node->n_in; i++) {
        if (i == at)
            continue;
        einsum_add(&text, ',');
        einsum_add_term(&text, &terms->in[i], UINT64_MAX, number);
        there |= einsum_labels(&terms->in[i], &twice);
        in[n_in++] = sb_grad_in(g, i);
    }
    einsum_add(&text, '-');
    einsum_add(&text, '>');
    einsum_add_term(&text, &terms->in[at], there, number);
    for (int i = 0; i < terms->in[at].n; i++)
        if (!(there >> terms->in[at].label[i] & 1))
            missing[n_missing++] = i;
    const char *equation = sb_arena_printf(g->graph->arena, "%s", text.s);
    if (!equation) {
        g->status = SB_NO_MEMORY;
        return;
    }
    const sb_attr attr = {
        .name = "equation", .type = SB_ATTR_STRING, .s = {equation, text.n}};
    sb_value_id dx = sb_emit(g, &(sb_emit_spec){.op = "Einsum",
                                                .more_in = in,
                                                .n_in = n_in,
                                                .attrs = &attr,
                                                .n_attrs = 1});
    if (n_missing)
        dx = sb_emit2(
            g, "Expand",
            sb_emit2(g, "Unsqueeze", dx, sb_grad_ints(g, missing, n_missing)),
            sb_grad_shape(g, x));
    /* Dimensions of 1 may have been broadcast, in an ellipsis. */
    if (g->status == SB_OK)
        g->dx[at] = sb_grad_sum_to(g, dx, x);
}

sb_status sb_grad_einsum(sb_grad *g)
{
    sb_shape shapes[SB_EINSUM_MAX_IN];
    uint8_t number[SB_EINSUM_LABELS] = {0};
    sb_einsum_terms terms;
    const sb_attr *equation = sb_node_attr(g->node, "equation");
    const char *why = "";
    int n_labels = 0;
    bool twice = false;

    if (g->node->n_in > SB_COUNT(shapes) || !equation)
        return sb_grad_refuse(g, "%u inputs", g->node->n_in);
    for (uint32_t i = 0; i < g->node->n_in; i++) {
        shapes[i] = sb_grad_type(g, sb_grad_in(g, i))->shape;
        if (shapes[i].rank < 0)
            return sb_grad_refuse(g, "the rank of input %u is not known", i);
    }
    const char *text = sb_arena_printf(g->graph->arena, "%.*s",
                                       (int)equation->s.len, equation->s.data);
    if (!text)
        return SB_NO_MEMORY;
    if (!sb_einsum_parse(text, g->node->n_in, shapes, &terms, &why))
        return sb_grad_refuse(g, "%s", why);
    for (uint32_t i = 0; i < g->node->n_in; i++)
        (void)einsum_labels(&terms.in[i], &twice);
    if (twice)
        return sb_grad_refuse(g, "a label twice in one operand");
    for (int i = 0; i < SB_EINSUM_LABELS; i++)
        if (terms.used >> i & 1)
            number[i] = (uint8_t)n_labels++;
    if (n_labels > SB_EINSUM_LETTERS)
        return sb_grad_refuse(g, "%d labels", n_labels);
    for (uint32_t i = 0; i < g->node->n_in; i++)
        if (g->wanted[i])
            einsum_operand(g, &terms, number, i);
    return SB_OK;
}
