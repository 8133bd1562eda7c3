/* Axes that are numbers with several digits (solver.h).
 *
 * Such an axis (heads within a hidden dimension, groups of a convolution, a
 * flattened image) can lose indices of one digit only.  Which one follows where
 * all others are fixed; that is settled first, round by round, since it fixes
 * and ties other axes.  What is left is a choice: a digit that weights make
 * already, else one over which there are no statistics, else the one by which
 * most indices may go.
 *
 * Indices over which products of two activations are summed, as those within a
 * head, count as fixed for all of this, so that heads go where there are
 * several; what they are tied to in the end goes only if statistics may. */
#include <string.h>

#include "prune/channels/solver.h"

/* The objection to an atom while digits are chosen; NULL: none. */
static const sb_blame *atom_objection(const sb_atom *a)
{
    return a->blame ? a->blame : a->pairs;
}

/* The objection to every one of them; NULL if one may go.  *only_pairs: some
 * are objected to only for sums over pairs, and it is that objection which
 * counts, as the weaker one. */
static const sb_blame *atoms_fixed(sb_solver *s, uint32_t first, uint32_t n,
                                   bool *only_pairs)
{
    const sb_blame *b = NULL;

    *only_pairs = false;
    for (uint32_t i = 0; i < n; i++) {
        const sb_atom *a = sb_atom_of(s, first + i);
        if (!atom_objection(a))
            return NULL;
        if (!a->blame || !*only_pairs)
            b = atom_objection(a);
        *only_pairs |= !a->blame;
    }
    return b;
}

static uint32_t digit_at(const sb_digits *d, int p, uint32_t i)
{
    uint32_t inner = 1;

    for (int k = p + 1; k < d->n_parts; k++)
        inner *= d->size[k];
    return i / inner % d->size[p];
}

static void digits_join(sb_solver *s, const sb_digits *d, int p)
{
    for (uint32_t i = 0; i < d->n; i++)
        sb_atom_join(s, d->x + i, d->part[p] + digit_at(d, p, i));
}

/* Settles what can go one way only: one part is free, or none is, and only one
 * is held for no more than sums over pairs.  The others are fixed, since
 * weights elsewhere may make them, and an axis is cut one way only. */
static bool digits_settle(sb_solver *s, const sb_digits *d)
{
    bool pairs = false;
    const sb_blame *fixed = d->n ? atoms_fixed(s, d->x, d->n, &pairs) : NULL;
    const sb_blame *b = NULL, *held[SB_COUNT(d->part)];
    int n_free = 0, one = -1, n_pairs = 0, paired = 0;

    for (int p = 0; p < d->n_parts; p++) {
        bool some = false;
        if (fixed && pairs)
            sb_atoms_pair(s, d->part[p], d->size[p], fixed);
        else if (fixed)
            sb_atoms_fix(s, d->part[p], d->size[p], fixed);
        held[p] = atoms_fixed(s, d->part[p], d->size[p], &some);
        b = held[p] ? held[p] : b;
        n_free += !held[p];
        one = held[p] ? one : p;
        n_pairs += held[p] && some;
        paired = held[p] && some ? p : paired;
    }
    if (n_free >= 2)
        return false;
    if (n_free == 0 && n_pairs == 1)
        one = paired;
    for (int p = 0; p < d->n_parts; p++)
        if (p != one)
            sb_atoms_fix(s, d->part[p], d->size[p], held[p]);
    if (one >= 0)
        digits_join(s, d, one);
    else if (b)
        sb_atoms_fix(s, d->x, d->n, b);
    return true;
}

/* How many indices may go if part p is tied, and, where that is the same, in
 * how many channels. */
static uint64_t choose_count(sb_solver *s, const sb_digits *d, int p,
                             uint32_t *up)
{
    uint32_t n = d->size[p];
    uint64_t count = 0, indices = 0;
    bool *fixed = (bool *)(up + n);

    for (uint32_t k = 0; k < n; k++) {
        up[k] = k;
        fixed[k] = atom_objection(sb_atom_of(s, d->part[p] + k)) != NULL;
    }
    for (uint32_t i = 0; i < d->n; i++) {
        sb_atom *a = sb_atom_of(s, d->x + i);
        uint32_t k = digit_at(d, p, i);
        while (up[k] != k)
            k = up[k];
        fixed[k] |= atom_objection(a) != NULL;
        if (a->mark) {
            uint32_t m = a->mark - 1;
            while (up[m] != m)
                m = up[m];
            up[k] = m;
            fixed[m] |= fixed[k];
            k = m;
        }
        a->mark = k + 1;
    }
    for (uint32_t i = 0; i < d->n; i++)
        sb_atom_of(s, d->x + i)->mark = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t k = digit_at(d, p, i);
        while (up[k] != k)
            k = up[k];
        indices += !fixed[k];
    }
    for (uint32_t k = 0; k < n; k++)
        count += up[k] == k && !fixed[k];
    return indices << 21 | count;
}

static const uint64_t rank_made = 1ull << 62;

/* What speaks for a part before the number of indices that it leaves: weights
 * make it already; no statistics change. */
static uint64_t part_rank(sb_solver *s, const sb_digits *d, int p)
{
    bool made = false, stats = false;

    for (uint32_t i = 0; i < d->size[p]; i++) {
        const sb_atom *a = sb_atom_of(s, d->part[p] + i);
        made |= a->made;
        stats |= a->stats != NULL;
    }
    return (made ? rank_made : 0) | (uint64_t)!stats << 61;
}

/* The first whose parts weights make in part: what it takes is no matter of
 * counting, and may decide for others.  (Key heads that several query heads
 * share, before the values of the same heads.) */
static size_t digits_clearest(sb_solver *s)
{
    for (size_t i = 0; i < s->n_open; i++) {
        const sb_digits *d = &s->open[i];
        int made = 0;
        for (int p = 0; p < d->n_parts; p++)
            made += (part_rank(s, d, p) & rank_made) != 0;
        if (made > 0 && made < d->n_parts)
            return i;
    }
    return 0;
}

/* Takes one of several parts, and fixes the others. */
static sb_status digits_choose(sb_solver *s, const sb_digits *d)
{
    sb_ctx *ctx = s->ch->graph->ctx;
    uint64_t best = 0;
    int take = 0;
    uint32_t *up = sb_alloc(ctx, d->n, sizeof *up + sizeof(bool));
    const sb_blame *b =
        sb_blame_make(s, d->node, "another part of the same axis is cut");

    if (!up || !b) {
        sb_free(ctx, up);
        return SB_NO_MEMORY;
    }
    for (int p = 0; p < d->n_parts; p++) {
        uint64_t score = 0;
        bool pairs;
        if (!atoms_fixed(s, d->part[p], d->size[p], &pairs))
            score = 1 + choose_count(s, d, p, up) + part_rank(s, d, p);
        if (score > best) {
            best = score;
            take = p;
        }
    }
    sb_free(ctx, up);
    for (int p = 0; p < d->n_parts; p++)
        if (p != take)
            sb_atoms_fix(s, d->part[p], d->size[p], b);
    digits_join(s, d, take);
    return SB_OK;
}

sb_status sb_digits_all(sb_solver *s)
{
    while (s->n_open > 0) {
        size_t left = 0;

        SB_TRY(sb_ctx_poll(s->ch->graph->ctx));
        for (size_t i = 0; i < s->n_open; i++)
            if (!digits_settle(s, &s->open[i]))
                s->open[left++] = s->open[i];
        bool stuck = left == s->n_open;
        s->n_open = left;
        if (stuck) {
            size_t at = digits_clearest(s);
            SB_TRY(digits_choose(s, &s->open[at]));
            memmove(s->open + at, s->open + at + 1,
                    (--s->n_open - at) * sizeof *s->open);
        }
    }
    return SB_OK;
}
