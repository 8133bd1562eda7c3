/* Names of what an export adds, made from the name of the value that is
 * quantized:
 *
 *     w_scale, w_zero_point    its parameters
 *     w_quantized              its integers
 *     w_dequantized            what consumers get; one per consumer, then with
 *                              _2, _3 ... behind it
 *     y_float                  before the pair at an output `y`
 *
 * Reading such a file takes the names apart again, so that writing it once more
 * gives the same names. */
#include <string.h>

#include "quant/export/export.h"
#include "quant/import/import.h"
#include "quant/model/instrument.h"

static const char quantized[] = "_quantized";

sb_status sb_export_constant(sb_graph *g, const char *base, const char *suffix,
                             const sb_tensor *t, sb_value_id *out)
{
    SB_TRY(sb_quant_add_value(g, base, suffix, out));
    return sb_graph_set_constant(g, *out, t);
}

sb_status sb_export_array(sb_graph *g, const char *base, const char *suffix,
                          const sb_tensor *like, const void *elements,
                          sb_value_id *out)
{
    sb_tensor t = sb_tensor_make(like->dtype, like->rank, like->dims);

    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    if (sb_tensor_bytes(&t) > 0)
        memcpy(t.data, elements, sb_tensor_bytes(&t));
    sb_status status = sb_export_constant(g, base, suffix, &t, out);
    sb_tensor_drop(&t);
    return status;
}

sb_status sb_export_node(sb_graph *g, sb_node_id beside,
                         const sb_node_spec *spec, sb_value_id x,
                         const char *base, const char *suffix, sb_value_id *y)
{
    sb_value_id out = SB_NONE;

    SB_TRY(sb_quant_add_value(g, base, suffix, &out));
    SB_TRY(sb_quant_put_node(g, beside, spec, x, out));
    *y = out;
    return SB_OK;
}

sb_status sb_import_name(sb_graph *g, sb_value_id ints, sb_value_id value)
{
    const char *name = sb_graph_value(g, ints)->name;
    size_t len = strlen(name), tail = sizeof quantized - 1;

    if (len <= tail || strcmp(name + len - tail, quantized) != 0 ||
        sb_graph_value(g, value)->is_output)
        return SB_OK;
    char *base = sb_arena_strn(g->arena, name, len - tail);
    return base ? sb_graph_claim_name(g, value, base) : SB_NO_MEMORY;
}
