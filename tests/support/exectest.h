/* exectest.h - an executor over a graph in text form. */
#ifndef SB_TESTS_EXECTEST_H
#define SB_TESTS_EXECTEST_H

#include "sbtest_node.h"

#include "exec/plan.h"
#include "graph/text.h"

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

typedef struct net {
    sb_graph *graph;
    sb_exec *exec;
} net;

static inline void net_parse(net *n, const char *text)
{
    *n = (net){0};
    assert_ok(sb_graph_parse(test_ctx(), text, &n->graph));
    assert_ok(sb_graph_infer(n->graph));
}

static inline void net_open(net *n, const sb_exec_options *opt)
{
    assert_ok(sb_exec_create(test_ctx(), n->graph, opt, &n->exec));
}

static inline void net_close(net *n)
{
    sb_exec_free(n->exec);
    sb_graph_free(n->graph);
}

static inline sb_value_id value_of(const net *n, const char *name)
{
    sb_value_id v = sb_graph_find_value(n->graph, name);

    assert_true(v != SB_NONE);
    return v;
}

static inline sb_tensor *copy_of(const sb_tensor *t)
{
    char shape[64] = "";

    for (int i = 0; i < t->rank; i++)
        (void)snprintf(shape + strlen(shape), sizeof shape - strlen(shape),
                       "%s%lld", i ? "x" : "", (long long)t->dims[i]);
    sb_tensor *to = test_tensor(t->dtype, shape, NULL);
    memcpy(to->data, t->data, sb_tensor_bytes(t));
    return to;
}

#endif
