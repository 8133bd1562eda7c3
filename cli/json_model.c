/* Graphs and quantizers as JSON. */
#include "json_model.h"

void cli_json_value(cli_json *j, const sb_value_info *v)
{
    cli_json_str(j, "name", v->name);
    cli_json_str(j, "dtype", sb_dtype_name(v->dtype));
    cli_json_str(j, "type", v->text);
    if (v->rank >= 0)
        cli_json_ints(j, "shape", v->dims, (size_t)v->rank);
}

/* ---- graphs --------------------------------------------------------------- */

static void json_names(cli_json *j, const char *key, const char *const *names,
                       size_t n)
{
    cli_json_open(j, key, '[');
    for (size_t i = 0; i < n; i++)
        cli_json_str(j, NULL, names[i]);
    cli_json_close(j, ']');
}

/* Element i of an attribute; what has no number or text is named by its
 * type. */
static void json_element(cli_json *j, const char *key, const sb_attr_info *a,
                         size_t i)
{
    switch (a->type) {
    case SB_ATTR_FLOAT:
        cli_json_num(j, key, (double)a->floats[i]);
        break;
    case SB_ATTR_INT:
        cli_json_int(j, key, a->ints[i]);
        break;
    case SB_ATTR_STRING:
    case SB_ATTR_STRINGS:
        cli_json_str(j, key, a->strings[i]);
        break;
    case SB_ATTR_TENSOR:
    case SB_ATTR_TENSORS:
        cli_json_str(j, key, "<tensor>");
        break;
    case SB_ATTR_GRAPH:
    case SB_ATTR_GRAPHS:
        cli_json_str(j, key, "<graph>");
        break;
    default:
        cli_json_str(j, key, "<opaque>");
    }
}

static bool attr_is_list(const sb_attr_info *a)
{
    return a->type >= SB_ATTR_FLOATS && a->type <= SB_ATTR_GRAPHS;
}

static void json_node(cli_json *j, const sb_node_info *node)
{
    cli_json_open(j, NULL, '{');
    cli_json_str(j, "name", node->name);
    cli_json_str(j, "op", node->op);
    cli_json_str(j, "domain", node->domain);
    cli_json_str(j, "module", node->module);
    json_names(j, "inputs", node->inputs, node->n_inputs);
    json_names(j, "outputs", node->outputs, node->n_outputs);
    cli_json_open(j, "attributes", '{');
    for (size_t i = 0; i < node->n_attrs; i++) {
        const sb_attr_info *a = node->attrs[i];

        if (a->type == SB_ATTR_INTS) {
            cli_json_ints(j, a->name, a->ints, a->n);
        } else if (a->type == SB_ATTR_FLOATS) {
            cli_json_floats(j, a->name, a->floats, a->n);
        } else if (attr_is_list(a)) {
            cli_json_open(j, a->name, '[');
            for (size_t k = 0; k < a->n; k++)
                json_element(j, NULL, a, k);
            cli_json_close(j, ']');
        } else {
            json_element(j, a->name, a, 0);
        }
    }
    cli_json_close(j, '}');
    cli_json_close(j, '}');
}

sb_status cli_json_graph(cli_json *j, sb_model *model)
{
    const sb_value_info *const *values = NULL;
    const sb_node_info *const *nodes = NULL;
    size_t n_values = 0, n_nodes = 0;
    sb_status status = sb_model_values(model, &values, &n_values);

    if (status == SB_OK)
        status = sb_model_nodes(model, &nodes, &n_nodes);
    if (status != SB_OK)
        return status;
    cli_json_open(j, "inputs", '[');
    for (size_t i = 0; i < sb_model_input_count(model); i++)
        cli_json_str(j, NULL, sb_model_input(model, i)->name);
    cli_json_close(j, ']');
    cli_json_open(j, "outputs", '[');
    for (size_t i = 0; i < sb_model_output_count(model); i++)
        cli_json_str(j, NULL, sb_model_output(model, i)->name);
    cli_json_close(j, ']');
    cli_json_open(j, "values", '[');
    for (size_t i = 0; i < n_values; i++) {
        cli_json_open(j, NULL, '{');
        cli_json_value(j, values[i]);
        cli_json_bool(j, "constant", values[i]->is_constant);
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
    cli_json_open(j, "nodes", '[');
    for (size_t i = 0; i < n_nodes; i++)
        json_node(j, nodes[i]);
    cli_json_close(j, ']');
    return SB_OK;
}

/* ---- quantizers ----------------------------------------------------------- */

static void json_quantizer(cli_json *j, const sb_quantizer_info *q, bool scales)
{
    cli_json_open(j, NULL, '{');
    cli_json_str(j, "name", q->name);
    cli_json_str(j, "value", q->value);
    cli_json_str(j, "kind", q->is_weight ? "weight" : "activation");
    cli_json_int(j, "bits", q->bits);
    cli_json_str(j, "scheme", q->scheme);
    cli_json_str(j, "quantizer", q->quantizer);
    cli_json_str(j, "observer", q->observer);
    cli_json_int(j, "axis", q->axis);
    if (scales && q->n > 0) {
        cli_json_int(j, "qmin", q->qmin);
        cli_json_int(j, "qmax", q->qmax);
        cli_json_floats(j, "scale", q->scale, q->n);
        cli_json_floats(j, "zero_point", q->zero_point, q->n);
    }
    cli_json_close(j, '}');
}

void cli_json_quantizers(cli_json *j, const sb_quant_model *qm, bool scales)
{
    cli_json_open(j, "quantizers", '[');
    for (size_t i = 0; i < sb_quant_model_quantizer_count(qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);

        if (!q->fused && (!scales || q->n > 0))
            json_quantizer(j, q, scales);
    }
    cli_json_close(j, ']');
}

/* ---- errors --------------------------------------------------------------- */

static void json_difference(cli_json *j, const char *key,
                            const sb_difference *d)
{
    if (!d)
        return;
    cli_json_open(j, key, '{');
    cli_json_num(j, "mse", d->mse);
    cli_json_num(j, "sqnr_db", d->sqnr_db);
    cli_json_num(j, "cosine", d->cosine);
    cli_json_num(j, "largest", d->largest);
    cli_json_close(j, '}');
}

void cli_json_layer_error(cli_json *j, const sb_layer_error *l)
{
    cli_json_open(j, NULL, '{');
    cli_json_str(j, "name", l->name);
    cli_json_str(j, "op", l->op);
    cli_json_str(j, "module", l->module);
    cli_json_str(j, "output", l->output);
    json_difference(j, "async", l->async);
    json_difference(j, "weights", l->weights);
    json_difference(j, "activations", l->activations);
    json_difference(j, "sync", l->sync);
    if (l->sync)
        cli_json_num(j, "sync_added", l->sync_added);
    if (l->channel_spread > 0)
        cli_json_num(j, "channel_spread", l->channel_spread);
    cli_json_close(j, '}');
}

void cli_json_output_errors(cli_json *j, const sb_quant_errors *errors)
{
    const sb_output_error *o;

    cli_json_open(j, "outputs", '[');
    for (size_t i = 0; (o = sb_quant_errors_output(errors, i)); i++) {
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "name", o->name);
        json_difference(j, "difference", o->difference);
        cli_json_num(j, "kl", o->kl);
        cli_json_num(j, "agreement", o->agreement);
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
}
