/* quant_page.h - the parts of a page about a quantized model. */
#ifndef SB_REPORT_QUANT_PAGE_H
#define SB_REPORT_QUANT_PAGE_H

#include "quant/analyze/errors.h"
#include "quant/search/search.h"
#include "report/html.h"

/* The color of a node (sb_graph_mark), and what all colors mean; `none`: no
 * color. */
uint8_t sb_page_grade(double sqnr_db);
void sb_page_grades(const char *none, sb_str *out);
/* The graph, the worst layers, the course of errors through the network. */
SB_MUST_USE sb_status sb_page_layers(const sb_quant_errors *e, sb_str *out);
/* All layers as a table. */
void sb_page_layer_table(const sb_quant_errors *e, sb_str *out);
/* Every quantized tensor: histogram, range, grid; channels of weights
 * (quant_cards.c). */
SB_MUST_USE sb_status sb_page_tensors(const sb_quant_errors *e, sb_str *out);
/* What a search chose (search_page.c). */
SB_MUST_USE sb_status sb_page_search(const sb_search *s, sb_str *out);
/* What a runtime makes of the model (lint_page.c). */
void sb_page_lint(const sb_lint *lint, sb_str *out);

#endif
