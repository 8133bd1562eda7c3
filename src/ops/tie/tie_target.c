/* Targets of Reshape, Expand and Resize that are joined at run time.
 *
 * Exporters write [batch, sequence, 64] as a Concat of sizes that Shape shows
 * and of constants.  The constants can be restated; sizes that a Shape shows of
 * the very value that is resized follow by themselves. */
#include <string.h>

#include "ops/tie/tie.h"
#include "ops/tie/tie_rules.h"

const sb_node *sb_target_concat(const sb_graph *g, sb_value_id target)
{
    sb_node_id id =
        target == SB_NONE ? SB_NONE : sb_graph_value(g, target)->producer;
    const sb_node *n = id == SB_NONE ? NULL : sb_graph_node(g, id);

    return n && sb_node_is(n, "Concat") &&
                   sb_graph_value(g, target)->type.shape.rank == 1
               ? n
               : NULL;
}

bool sb_target_place(const sb_graph *g, const sb_node *concat, int64_t *at,
                     sb_value_id *from)
{
    for (uint32_t i = 0; i < concat->n_in; i++) {
        const sb_shape *s = &sb_graph_value(g, concat->inputs[i])->type.shape;
        if (s->rank != 1 || !sb_dim_known(s->dim[0]))
            return false;
        if (*at < s->dim[0]) {
            *from = concat->inputs[i];
            return true;
        }
        *at -= s->dim[0];
    }
    return false;
}

void sb_tie_target(sb_ties *t, int input, int skip)
{
    const sb_node *concat = sb_target_concat(t->graph, sb_tie_value(t, input));

    for (int a = 0; a < sb_tie_rank(t, SB_OUT(0)); a++) {
        sb_value_id from = SB_NONE;
        int64_t at = a - skip;
        bool stated = a >= skip && concat &&
                      sb_target_place(t->graph, concat, &at, &from) &&
                      sb_is_const(t->graph, from);
        if (!stated && a >= skip)
            sb_tie_fixed(t, SB_OUT(0), a, "its size is computed");
    }
}

bool sb_target_shows(const sb_graph *g, sb_value_id target, sb_value_id x,
                     int axis)
{
    enum { STEPS_MOST = 16 };
    int64_t at = axis;

    for (int i = 0; i < STEPS_MOST && target != SB_NONE; i++) {
        sb_node_id id = sb_graph_value(g, target)->producer;
        const sb_node *n = id == SB_NONE ? NULL : sb_graph_node(g, id);
        if (!n)
            return false;
        if (sb_node_is(n, "Shape"))
            return n->inputs[0] == x && at == axis &&
                   sb_node_int(n, "start", 0) == 0;
        const sb_tensor *start = sb_const_of(g, sb_node_in(n, 1));
        bool slice =
            sb_node_is(n, "Slice") && start && sb_tensor_count(start) == 1 &&
            sb_tensor_get_i64(start, 0) >= 0 && sb_node_in(n, 4) == SB_NONE;
        target = sb_node_in(n, 0);
        if (sb_target_concat(g, n->outputs[0]) == n) {
            if (!sb_target_place(g, n, &at, &target))
                return false;
        } else if (slice) {
            at += sb_tensor_get_i64(start, 0);
        } else if (!sb_node_is(n, "Cast")) {
            return false;
        }
    }
    return false;
}
