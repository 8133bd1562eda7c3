/* sb_model_simplify: passes on a copy of the graph, which takes the place of
 * the old one only if all went well.  The copy shares the weights, and leaves
 * behind what earlier passes dropped. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "ops/op_registry.h"
#include "passes/pass.h"

/* Reads "1x3x224x224" up to a space or the end. */
static bool parse_dims(const char *text, size_t len, sb_shape *out)
{
    const char *p = text, *end = text + len;

    out->rank = 0;
    while (p < end) {
        char *stop;

        if (out->rank == SB_MAX_RANK || *p < '0' || *p > '9')
            return false;
        errno = 0;
        long long d = strtoll(p, &stop, 10);
        if (errno || stop > end)
            return false;
        out->dim[out->rank++] = d;
        if (stop < end && (*stop != 'x' || stop + 1 == end))
            return false;
        p = stop < end ? stop + 1 : stop;
    }
    return true;
}

static sb_status fix_shape(sb_graph *g, const char *word, size_t len)
{
    const char *eq = NULL;
    sb_shape shape;
    sb_value *v = NULL;

    for (const char *p = word; p < word + len; p++)
        if (*p == '=')
            eq = p; /* the last one: names may contain it */
    if (!eq || !parse_dims(eq + 1, (size_t)(word + len - eq - 1), &shape))
        return sb_fail(g->ctx, SB_BAD_ARG,
                       "input shape '%.*s': want NAME=1x3x224x224", (int)len,
                       word);
    for (size_t i = 0; i < g->n_inputs && !v; i++) {
        sb_value *in = sb_graph_value(g, g->inputs[i]);

        if (strlen(in->name) == (size_t)(eq - word) &&
            memcmp(in->name, word, (size_t)(eq - word)) == 0)
            v = in;
    }
    if (!v)
        return sb_fail(g->ctx, SB_BAD_ARG, "the model has no input '%.*s'",
                       (int)(eq - word), word);
    bool fits = v->type.shape.rank < 0 || v->type.shape.rank == shape.rank;
    for (int i = 0; fits && i < v->type.shape.rank; i++)
        fits = !sb_dim_known(v->type.shape.dim[i]) ||
               v->type.shape.dim[i] == shape.dim[i];
    if (!fits)
        return sb_fail(g->ctx, SB_BAD_ARG,
                       "input '%s': shape %s does not fit the one in the file",
                       v->name, eq + 1);
    v->type.shape = shape;
    return SB_OK;
}

/* Words separated by spaces. */
static sb_status fix_shapes(sb_graph *g, const char *text)
{
    while (text && *text) {
        size_t len;

        text += strspn(text, " ");
        len = strcspn(text, " ");
        if (len)
            SB_TRY(fix_shape(g, text, len));
        text += len;
    }
    return SB_OK;
}

static sb_status simplify_graph(sb_graph *g, const sb_simplify_options *opt,
                                sb_pass_result **results, size_t *n)
{
    SB_TRY(fix_shapes(g, opt->input_shapes));
    SB_TRY(sb_graph_infer(g));
    SB_TRY(sb_passes_run(g, opt->passes, opt->dump_after, results, n));
    return sb_graph_infer(g);
}

sb_status sb_model_simplify(sb_ctx *ctx, sb_model *model,
                            const sb_simplify_options *opt,
                            const sb_pass_result **results, size_t *n_results)
{
    const sb_simplify_options defaults = SB_SIMPLIFY_OPTIONS_INIT;
    sb_graph *copy = NULL, *compact = NULL, *old = model->graph;
    sb_pass_result *rows = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_clone(old, &copy));
    sb_status status = simplify_graph(copy, opt ? opt : &defaults, &rows, &n);
    if (status == SB_OK)
        status = sb_graph_clone(copy, &compact);
    sb_graph_free(copy);
    if (status == SB_OK) {
        model->graph = compact;
        status = sb_model_refresh(model);
        if (status != SB_OK) {
            model->graph = old;
            sb_graph_free(compact);
        }
    }
    if (status != SB_OK) {
        sb_free(ctx, rows);
        return status;
    }
    sb_graph_free(old);
    sb_free(ctx, model->results);
    model->results = rows;
    if (results) {
        *results = rows;
        *n_results = n;
    }
    return SB_OK;
}
