/* Running one node, and random sizes, for operator tests. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/exec.h"
#include "graph/text.h"

static sb_status add_inputs(sb_graph *g, const test_node *node,
                            sb_value_id *ids)
{
    for (size_t i = 0; i < node->n_in; i++) {
        const sb_tensor *t = node->in[i];
        char name[16];

        ids[i] = SB_NONE;
        if (!t)
            continue;
        (void)snprintf(name, sizeof name, "x%zu", i);
        SB_TRY(sb_graph_add_value(g, name, &ids[i]));
        if (node->constant >> i & 1) {
            SB_TRY(sb_graph_set_constant(g, ids[i], t));
            continue;
        }
        sb_value *value = sb_graph_value(g, ids[i]);
        value->type.dtype = t->dtype;
        value->type.shape.rank = t->rank;
        for (int d = 0; d < t->rank; d++)
            value->type.shape.dim[d] = t->dims[d];
        SB_TRY(sb_graph_add_input(g, ids[i]));
    }
    return SB_OK;
}

static sb_status build(sb_graph *g, const test_node *node)
{
    sb_value_id in[TEST_NODE_MOST], out[TEST_NODE_MOST];
    sb_node_spec spec = {.op = node->op,
                         .domain = node->domain,
                         .name = "node",
                         .inputs = in,
                         .n_in = node->n_in,
                         .outputs = out,
                         .n_out = node->n_out};
    sb_attr *attrs = NULL;
    sb_node_id id;

    SB_TRY(add_inputs(g, node, in));
    for (size_t i = 0; i < node->n_out; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "y%zu", i);
        SB_TRY(sb_graph_add_value(g, name, &out[i]));
    }
    if (node->attrs)
        SB_TRY(sb_graph_parse_attrs(g, node->attrs, &attrs, &spec.n_attrs));
    spec.attrs = attrs;
    SB_TRY(sb_graph_add_node(g, &spec, &id));
    for (size_t i = 0; i < node->n_out; i++)
        SB_TRY(sb_graph_add_output(g, out[i]));
    return sb_graph_infer(g);
}

/* A zeroed tensor, freed at exit. */
static sb_tensor *tensor_like(sb_dtype dtype, int rank, const int64_t *dims)
{
    char shape[32 * SB_MAX_RANK] = "";

    for (int d = 0; d < rank; d++) {
        size_t used = strlen(shape);
        (void)snprintf(shape + used, sizeof shape - used, "%s%lld",
                       d ? "x" : "", (long long)dims[d]);
    }
    return test_tensor(dtype, shape, NULL);
}

static sb_tensor *copy_of(const sb_tensor *t)
{
    sb_tensor *copy = tensor_like(t->dtype, t->rank, t->dims);

    if (sb_tensor_bytes(t) > 0)
        memcpy(copy->data, t->data, sb_tensor_bytes(t));
    return copy;
}

sb_status test_node_try(const test_node *node, sb_tensor **out)
{
    const sb_exec_options opt = {0};
    const sb_tensor *inputs[TEST_NODE_MOST], *got[TEST_NODE_MOST];
    sb_graph *g = NULL;
    sb_exec *exec = NULL;
    size_t n = 0;

    assert_ok(sb_graph_create(test_ctx(), "test", &g));
    sb_status status = build(g, node);
    for (size_t i = 0; i < node->n_in; i++)
        if (node->in[i] && !(node->constant >> i & 1))
            inputs[n++] = node->in[i];
    if (status == SB_OK)
        status = sb_exec_create(test_ctx(), g, &opt, &exec);
    if (status == SB_OK)
        status = sb_exec_run(exec, inputs, NULL, got);
    for (size_t i = 0; i < node->n_out && status == SB_OK; i++)
        out[i] = copy_of(got[i]);
    sb_exec_free(exec);
    sb_graph_free(g);
    return status;
}

void test_node_run(const test_node *node, sb_tensor **out)
{
    assert_ok(test_node_try(node, out));
}

void test_node_threads(const test_node *node, sb_tensor **out)
{
    sb_tensor *more[TEST_NODE_MOST];

    sb_ctx_set_threads(test_ctx(), 1);
    test_node_run(node, out);
    for (int n = 2; n <= 4; n++) {
        sb_ctx_set_threads(test_ctx(), n);
        test_node_run(node, more);
        for (size_t i = 0; i < node->n_out; i++) {
            assert_int_equal(sb_tensor_bytes(out[i]), sb_tensor_bytes(more[i]));
            if (sb_tensor_bytes(out[i]))
                assert_memory_equal(out[i]->data, more[i]->data,
                                    sb_tensor_bytes(out[i]));
        }
    }
    sb_ctx_set_threads(test_ctx(), 0);
}

int64_t test_pick(sb_rng *rng, int64_t lo, int64_t hi)
{
    return lo + (int64_t)sb_rng_below(rng, (uint64_t)(hi - lo + 1));
}

sb_tensor *test_floats(sb_rng *rng, int rank, const int64_t *dims)
{
    sb_tensor *t = tensor_like(SB_DTYPE_F32, rank, dims);
    float *v = t->data;

    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        v[i] = (float)(sb_rng_uniform(rng) * 2 - 1);
    return t;
}

uint64_t test_seed(uint64_t dflt)
{
    const char *text = getenv("SB_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : dflt;

    print_message("SB_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

const char *test_ints(char *out, size_t size, const char *name, int n,
                      const int64_t *v)
{
    int used = snprintf(out, size, "%s=[", name);

    for (int i = 0; i < n; i++)
        used += snprintf(out + used, size - (size_t)used, "%s%lld",
                         i ? "," : "", (long long)v[i]);
    (void)snprintf(out + used, size - (size_t)used, "]");
    return out;
}

int test_every_isa(int argc, char **argv)
{
    static const char *const isas[] = {"DEFAULT", "AVX2", "SSE41"};
    int failed = 0;

    if (argc > 1)
        return -1;
    for (size_t i = 0; i < SB_COUNT(isas); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            char again[] = "again";
            char *args[] = {argv[0], again, NULL};
            (void)setenv("ONEDNN_MAX_CPU_ISA", isas[i], 1);
            (void)execv("/proc/self/exe", args);
            _exit(127);
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
            print_error("failed with ONEDNN_MAX_CPU_ISA=%s\n", isas[i]);
            failed = 1;
        }
    }
    return failed;
}
