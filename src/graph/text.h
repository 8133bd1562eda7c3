/* text.h - the graph as text, and back.
 *
 *     graph main(x: f32[N,3,8,8]) -> (y: f32[N,4,8,8]) {
 *         w: f32[4,3,3,3] = random(7)
 *         b: f32[4] = [0, 1, -2.5, 4]
 *         c = Conv(x, w, b) {pads=[1,1,1,1]} "conv1" @ layer1.conv1
 *         y = com.example::Foo(c, _) {alpha=0.5, mode="half"}
 *     }
 *
 * `_` is an absent input; `?` an unknown dimension; `f32[*]` an unknown rank.
 * Constants of more than 16 elements print as `{...}`, which reads back as
 * zeros; the parser also takes `random(SEED)`, `zeros()`, a list, or one number
 * for a scalar or to fill.  Results of nodes may have types too.  `#` starts a
 * comment.
 * Attribute values: 1, 0.5, "s", [1,2], tensor i64[2] = [1,2], graph NAME(...)
 * {...}.  A value name that is not a plain word stands between back quotes. */
#ifndef SB_GRAPH_TEXT_H
#define SB_GRAPH_TEXT_H

#include "graph/graph.h"

/* Appends the text.  Nodes come in sb_graph_order(). */
SB_MUST_USE sb_status sb_graph_print(const sb_graph *g, sb_str *out);
/* The text to the log, line by line, since lines of the log are short. */
SB_MUST_USE sb_status sb_graph_log(const sb_graph *g);
/* Parses; errors name the line. */
SB_MUST_USE sb_status sb_graph_parse(sb_ctx *ctx, const char *text,
                                     sb_graph **out);
/* Parses only an attribute list `a=1, b=[2,3]` into the arena of `g`. */
SB_MUST_USE sb_status sb_graph_parse_attrs(sb_graph *g, const char *text,
                                           sb_attr **attrs, size_t *n);

#endif
