/* quant_page.h - the parts of a page about a quantized model. */
#ifndef SB_REPORT_QUANT_PAGE_H
#define SB_REPORT_QUANT_PAGE_H

#include "quant/analyze/errors.h"
#include "report/html.h"

/* The graph, the worst layers, the course of errors through the network. */
SB_MUST_USE sb_status sb_page_layers(const sb_quant_errors *e, sb_str *out);
/* All layers as a table. */
void sb_page_layer_table(const sb_quant_errors *e, sb_str *out);
/* Every quantized tensor: histogram, range, grid; channels of weights
 * (quant_cards.c). */
SB_MUST_USE sb_status sb_page_tensors(const sb_quant_errors *e, sb_str *out);
/* What a runtime makes of the model (lint_page.c). */
void sb_page_lint(const sb_lint *lint, sb_str *out);

#endif
