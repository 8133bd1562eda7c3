/* Constants behind Q and DQ nodes, read back (import.c).
 *
 *     integers -> DQ -> consumer            becomes   floats -> consumer
 *     floats -> Q -> DQ -> consumer         becomes   floats -> consumer
 *
 * and what was said of them is remembered. */
#include <string.h>

#include "exec/exec.h"
#include "ops/op_registry.h"
#include "passes/rewrite.h"
#include "quant/import/import_linear.h"

/* ---- constants ---------------------------------------------------------- */

static sb_status import_constant_eval(sb_graph *g, sb_node_id id,
                                      sb_tensor *out)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_tensor *in[3] = {NULL, NULL, NULL};

    for (uint32_t i = 0; i < node->n_in && i < 3; i++)
        in[i] = sb_const_of(g, node->inputs[i]);
    return sb_exec_eval(g->ctx, g, node, in, out);
}

/* The node's result becomes a constant. */
static sb_status import_constant_fold(sb_graph *g, sb_node_id id)
{
    sb_tensor out;

    SB_TRY(import_constant_eval(g, id, &out));
    sb_status status = sb_rewrite_constant(g, id, &out);
    sb_tensor_drop(&out);
    return status;
}

/* The numbers that are there.  The lowest of a signed type is left out more
 * often than not, so as to have [-127, 127]. */
static void import_constant_look(const sb_tensor *q, sb_bounds *b)
{
    double least = (double)b->hi, most = (double)b->lo;

    for (int64_t i = 0; i < sb_tensor_count(q); i++) {
        double v = sb_tensor_get_f64(q, i);
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    b->least = (int32_t)least;
    b->most = (int32_t)most;
    if (b->lo < 0 && b->least > b->lo)
        b->lo = -b->hi;
}

/* Readers of all DQ nodes that compute the same of the same integers as `id`
 * read its result. */
static sb_status merge_twins(sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_value_id ints = node->inputs[0], y = node->outputs[0];
    sb_linear mine, other;

    if (!sb_linear_read(g, node, &mine))
        return SB_OK;
    for (uint32_t i = 0; i < sb_graph_value(g, ints)->n_uses;) {
        sb_use use = sb_graph_value(g, ints)->uses[i++];
        const sb_node *twin = sb_graph_node(g, use.node);
        bool done = false;

        if (use.node == id || use.input != 0 ||
            sb_node_role(twin) != SB_ROLE_DEQUANTIZE ||
            sb_graph_value(g, twin->outputs[0])->is_output ||
            !sb_linear_read(g, twin, &other) || !sb_linear_same(&mine, &other))
            continue;
        SB_TRY(sb_rewrite_forward(g, use.node, y, &done));
        if (done) /* the list is shorter now, perhaps in another order */
            i = 0;
    }
    return SB_OK;
}

/* integers -> DQ -> consumer */
static sb_status import_integers(sb_graph *g, sb_imported_list *known,
                                 sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_value_id ints = node->inputs[0], y = node->outputs[0];
    const sb_tensor *q = sb_const_of(g, ints);
    sb_imported_qparams *k = NULL;
    sb_bounds b;
    sb_linear l;

    SB_TRY(merge_twins(g, id));
    if (!sb_linear_read(g, sb_graph_node(g, id), &l))
        return SB_OK;
    bool keep = sb_type_bounds(q->dtype, &b) && sb_tensor_count(q) > 0;
    if (keep)
        import_constant_look(q, &b);
    SB_TRY(import_constant_fold(g, id));
    SB_TRY(sb_import_name(g, ints, y));
    if (!keep)
        return SB_OK;
    SB_TRY(sb_imported_add(g, known, y, &l, b, &k));
    k->all = true;
    return sb_imported_consumers(g, known, k, y);
}

/* floats -> Q -> DQ -> consumer: the floats stay, since rounding them again is
 * what the quantizer does. */
static sb_status import_floats(sb_graph *g, sb_imported_list *known,
                               sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    sb_node_id q = sb_graph_value(g, node->inputs[0])->producer;
    sb_value_id w = sb_graph_node(g, q)->inputs[0];
    sb_imported_qparams *k = NULL;
    sb_bounds b;
    sb_linear l, first;
    bool done = false;
    sb_tensor ints;

    if (!sb_linear_read(g, node, &l) ||
        !sb_linear_read(g, sb_graph_node(g, q), &first) ||
        !sb_linear_same(&l, &first) || !sb_type_bounds(l.dtype, &b) ||
        !sb_linear_usable(&l))
        return SB_OK;
    SB_TRY(import_constant_eval(g, q, &ints));
    import_constant_look(&ints, &b);
    sb_tensor_drop(&ints);
    const sb_imported_qparams *told = sb_imported_find(known, g, w);
    if (told && sb_imported_contradicts(told, &l)) {
        /* a second, other rounding of w */
        SB_TRY(import_constant_fold(g, q));
        return import_constant_fold(g, id);
    }
    if (!told) {
        SB_TRY(sb_imported_add(g, known, w, &l, b, &k));
        SB_TRY(sb_imported_consumers(g, known, k,
                                     sb_graph_node(g, id)->outputs[0]));
    }
    return sb_rewrite_forward(g, id, w, &done);
}

sb_status sb_import_constant(sb_graph *g, sb_imported_list *known,
                             sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);
    const sb_node *before = sb_graph_producer(g, sb_node_in(node, 0));
    sb_linear l;

    if (sb_graph_value(g, node->outputs[0])->is_output ||
        !sb_linear_read(g, node, &l))
        return SB_OK;
    if (sb_is_const(g, sb_node_in(node, 0)))
        return import_integers(g, known, id);
    if (before && sb_node_role(before) == SB_ROLE_QUANTIZE &&
        sb_is_const(g, sb_node_in(before, 0)))
        return import_floats(g, known, id);
    return SB_OK;
}
