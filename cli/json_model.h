/* json_model.h - what several commands print about models as JSON. */
#ifndef SB_CLI_JSON_MODEL_H
#define SB_CLI_JSON_MODEL_H

#include "cli.h"

/* "name", "dtype", "type" and "shape" of a value, into an object that is
 * open. */
void cli_json_value(cli_json *j, const sb_value_info *v);

/* The keys "inputs", "outputs", "values" and "nodes".  The model is asked for
 * its nodes and values. */
SB_MUST_USE sb_status cli_json_graph(cli_json *j, sb_model *model);

/* The key "quantizers"; `scales`: with the scales and zero points. */
void cli_json_quantizers(cli_json *j, const sb_quant_model *qm, bool scales);

/* An object for the errors of a layer, and the key "outputs" for those of the
 * network's outputs. */
void cli_json_layer_error(cli_json *j, const sb_layer_error *l);
void cli_json_output_errors(cli_json *j, const sb_quant_errors *errors);

#endif
