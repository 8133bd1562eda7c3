/* solver.h - what finding channels shares: atoms in union-find, and axes that
 * are numbers with several digits. */
#ifndef SB_PRUNE_SOLVER_H
#define SB_PRUNE_SOLVER_H

#include "prune/channels/channels.h"

typedef struct sb_atom {
    uint32_t parent;
    uint32_t mark;         /* scratch of choose_count() */
    bool made;             /* of a root, as the rest */
    const sb_blame *blame; /* NULL: may go */
    const sb_blame *stats;
    const sb_blame *pairs; /* summed over with another activation */
} sb_atom;

typedef struct sb_digits {
    uint32_t x, n;
    uint32_t part[SB_TIE_PARTS], size[SB_TIE_PARTS];
    int n_parts;
    sb_node_id node;
} sb_digits;

typedef struct sb_solver {
    sb_channels *ch;
    sb_atom *atoms;
    size_t n_atoms, cap_atoms;
    sb_digits *open; /* not settled */
    size_t n_open, cap_open;
} sb_solver;

const sb_blame *sb_blame_make(sb_solver *s, sb_node_id node, const char *why);

/* The atom that stands for all that are tied to this one. */
sb_atom *sb_atom_of(sb_solver *s, uint32_t a);
void sb_atom_join(sb_solver *s, uint32_t a, uint32_t b);
/* None of these n may go, or only where statistics may; the first objection is
 * kept. */
void sb_atoms_fix(sb_solver *s, uint32_t first, uint32_t n, const sb_blame *b);
void sb_atoms_pair(sb_solver *s, uint32_t first, uint32_t n, const sb_blame *b);

/* Settles all open ones. */
SB_MUST_USE sb_status sb_digits_all(sb_solver *s);

#endif
