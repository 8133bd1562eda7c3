/* Gradients of operators against PyTorch's autograd: the cases of
 * tests/fixtures/gradients.npz, which make_gradients.py there wrote.
 *
 * Each graph is differentiated with all shapes known and with unknown
 * dimensions, and run as it is and lowered, on one thread and on four. */
#include "sbtest.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "exec/exec.h"
#include "graph/text.h"
#include "ops/grad/grad.h"
#include "passes/pass.h"
#include "tensor/npy.h"

enum { MOST = 16 };

/* The archive: see make_gradients.py. */
static sb_npz_item *items;
static size_t n_items;
static char *texts; /* of all graphs */

static const sb_tensor *array_of(const char *name)
{
    for (size_t i = 0; i < n_items; i++)
        if (strcmp(items[i].name, name) == 0)
            return &items[i].tensor;
    fail_msg("no array '%s'", name);
    return NULL;
}

/* One graph with its inputs and gradients. */
typedef struct gradient_case {
    char name[64];
    char *text;
    size_t n_in, n_wrt;
    size_t wrt[MOST]; /* inputs that are learned */
    sb_tensor *in[MOST], *want[MOST];
} gradient_case;

/* Where the next case begins in each array. */
typedef struct gradient_place {
    const char *text;
    size_t floats, integers;
} gradient_place;

static sb_tensor *take(gradient_place *p, const sb_type *type)
{
    char shape[16 * SB_MAX_RANK] = "";

    for (int d = 0; d < type->shape.rank; d++) {
        size_t used = strlen(shape);
        (void)snprintf(shape + used, sizeof shape - used, "%s%lld",
                       d ? "x" : "", (long long)type->shape.dim[d]);
    }
    sb_tensor *t = test_tensor(type->dtype, shape, NULL);
    size_t n = (size_t)sb_tensor_count(t);
    bool is_float = type->dtype == SB_DTYPE_F32;
    const sb_tensor *from = array_of(is_float ? "floats" : "integers");
    size_t *at = is_float ? &p->floats : &p->integers;
    assert_true(*at + n <= (size_t)sb_tensor_count(from));
    sb_convert(from->dtype,
               (const char *)from->data + *at * sb_dtype_size(from->dtype),
               t->dtype, t->data, n);
    *at += n;
    return t;
}

/* The next case; false after the last. */
static bool next_case(gradient_place *p, gradient_case *c)
{
    sb_graph *g = NULL;

    if (!p->text)
        p->text = texts;
    if (!*p->text)
        return false;
    memset(c, 0, sizeof *c);
    assert_int_equal(sscanf(p->text, "# %63s", c->name), 1);
    const char *stop = strstr(p->text, "}\n}\n");
    assert_non_null(stop);
    stop += 4;
    c->text = sb_alloc(test_ctx(), (size_t)(stop - p->text) + 1, 1);
    assert_non_null(c->text);
    memcpy(c->text, p->text, (size_t)(stop - p->text));
    p->text = stop;
    assert_ok(sb_graph_parse(test_ctx(), c->text, &g));
    c->n_in = g->n_inputs;
    for (size_t i = 0; i < c->n_in; i++) {
        const sb_value *v = sb_graph_value(g, g->inputs[i]);
        c->in[i] = take(p, &v->type);
        if (v->type.dtype == SB_DTYPE_F32 && i + 1 < c->n_in)
            c->wrt[c->n_wrt++] = i;
    }
    for (size_t i = 0; i < c->n_wrt; i++)
        c->want[i] = take(p, &sb_graph_value(g, g->inputs[c->wrt[i]])->type);
    sb_graph_free(g);
    return true;
}

/* ---- checking ----------------------------------------------------------- */

typedef struct variant {
    const char *what;
    bool unknown; /* dimensions of inputs */
    bool lowered;
    int threads;
} variant;

static const variant variants[] = {
    {"as it is", false, false, 1},
    {"unknown dimensions", true, false, 2},
    {"lowered", false, true, 1},
    {"lowered, four threads", false, true, 4},
};

/* Adds gradients as outputs. */
static sb_graph *differentiate(const gradient_case *c, bool unknown)
{
    sb_value_id wrt[MOST], out[MOST];
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), c->text, &g));
    for (size_t i = 0; unknown && i < g->n_inputs; i++) {
        sb_shape *s = &sb_graph_value(g, g->inputs[i])->type.shape;
        for (int d = 0; d < s->rank; d++)
            s->dim[d] = SB_DIM_UNKNOWN;
    }
    for (size_t i = 0; i < c->n_wrt; i++)
        wrt[i] = g->inputs[c->wrt[i]];
    assert_ok(sb_graph_gradient(g, g->outputs[0], wrt, c->n_wrt, out));
    for (size_t i = 0; i < c->n_wrt; i++) {
        assert_true(out[i] != SB_NONE);
        assert_ok(sb_graph_add_output(g, out[i]));
    }
    assert_ok(sb_graph_verify(g));
    return g;
}

/* Where the loss is linear in all inputs it is the sum of their products with
 * the gradients; where it is linear in each of them (`each`), so is every one
 * of these products. */
static const struct {
    const char *prefix;
    bool each;
} linear[] = {
    {"unary.neg", false},
    {"binary.Add", false},
    {"binary.Sub", false},
    {"binary.Mul", true},
    {"binary.Sum", false},
    {"binary.Mean", false},
    {"binary.Where", false},
    {"move.Reshape", false},
    {"move.Flatten", false},
    {"move.Squeeze", false},
    {"move.Unsqueeze", false},
    {"move.Expand", false},
    {"move.Transpose", false},
    {"move.Concat", false},
    {"move.Slice", false},
    {"move.Pad.negative", false},
    {"move.Tile", false},
    {"move.Gather", false},
    {"move.Scatter", false},
    {"move.DepthToSpace", false},
    {"move.SpaceToDepth", false},
    {"move.Trilu", false},
    {"move.CumSum", false},
    {"move.shuffle", false},
    {"reduce.Sum.", false},
    {"reduce.Mean", false},
    {"reduce.GlobalAveragePool", false},
    {"product.MatMul", true},
    {"product.Einsum", true},
    {"product.RotaryEmbedding", false},
    {"move.Pad.reflect", false},
    {"move.Pad.edge", false},
    {"move.Pad.wrap", false},
    {"window.Resize", false},
    {"window.Conv.group", true},
    {"window.Conv.depthwise7", true},
    {"window.Conv.stem", true},
    {"window.ConvTranspose.group", true},
    {"window.pool.average", false},
    {"window.pool.unpool", false},
    {"window.AffineGrid", false},
    {"move.CenterCropPad", false},
    {"move.Compress", false},
};

static double dot(const sb_tensor *a, const sb_tensor *b)
{
    double sum = 0;

    for (int64_t i = 0; i < sb_tensor_count(a); i++)
        sum += sb_tensor_get_f64(a, i) * sb_tensor_get_f64(b, i);
    return sum;
}

static void check_adjoint(const gradient_case *c, const sb_tensor *const *out)
{
    double loss = sb_tensor_get_f64(out[0], 0), sum = 0;
    double close = 1e-4 * (1 + fabs(loss) / 100);

    for (size_t k = 0; k < SB_COUNT(linear); k++) {
        if (strncmp(c->name, linear[k].prefix, strlen(linear[k].prefix)) != 0)
            continue;
        for (size_t i = 0; i < c->n_wrt; i++) {
            double part = dot(c->in[c->wrt[i]], out[1 + i]);
            if (linear[k].each && c->n_wrt > 1)
                assert_close(c->name, part, loss, close);
            sum += part;
        }
        if (!linear[k].each)
            assert_close(c->name, sum, loss, close);
    }
}

static void check(const gradient_case *c, const variant *v, sb_tensor *first)
{
    sb_graph *g = differentiate(c, v->unknown);
    const sb_tensor *out[MOST];
    const sb_exec_options opt = {0};
    sb_exec *exec = NULL;

    if (v->lowered)
        assert_ok(sb_passes_run(g, "lower", NULL, NULL, NULL));
    assert_ok(sb_graph_infer(g));
    sb_ctx_set_threads(test_ctx(), v->threads);
    assert_ok(sb_exec_create(test_ctx(), g, &opt, &exec));
    assert_ok(sb_exec_run(exec, (const sb_tensor *const *)c->in, NULL, out));
    check_adjoint(c, out);
    for (size_t i = 0; i < c->n_wrt; i++) {
        const sb_tensor *got = out[1 + i];
        char what[200];

        (void)snprintf(what, sizeof what, "%s, gradient %zu, %s", c->name, i,
                       v->what);
        assert_tensor(what, got, c->want[i], 1e-4);
        /* Four threads give the bytes of one. */
        if (v->lowered && v->threads > 1)
            assert_memory_equal(got->data, first[i].data, sb_tensor_bytes(got));
        if (v->lowered && v->threads == 1)
            assert_ok(sb_tensor_clone(test_ctx(), got, &first[i]));
    }
    sb_exec_free(exec);
    sb_graph_free(g);
}

static void check_all(const char *prefix)
{
    gradient_place place = {0};
    gradient_case c;
    size_t n = 0;

    while (next_case(&place, &c)) {
        sb_tensor first[MOST] = {{0}};
        bool mine = strncmp(c.name, prefix, strlen(prefix)) == 0;

        for (size_t v = 0; mine && v < SB_COUNT(variants); v++)
            check(&c, &variants[v], first);
        for (size_t k = 0; k < MOST; k++)
            sb_tensor_drop(&first[k]);
        sb_free(test_ctx(), c.text);
        n += mine;
    }
    assert_true(n > 1);
}

#define FAMILY(name)                      \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        check_all(#name ".");             \
    }

FAMILY(unary)
FAMILY(binary)
FAMILY(clip)
FAMILY(move)
FAMILY(reduce)
FAMILY(product)
FAMILY(norm)
FAMILY(loss)
FAMILY(net)
FAMILY(window)
FAMILY(quant)
FAMILY(recurrent)

static int open_archive(void **state)
{
    (void)state;
    assert_ok(sb_npz_load(test_ctx(), "tests/fixtures/gradients.npz", &items,
                          &n_items));
    const sb_tensor *all = array_of("text");
    size_t n = (size_t)sb_tensor_count(all);
    texts = sb_alloc(test_ctx(), n + 1, 1);
    assert_non_null(texts);
    memcpy(texts, all->data, n);
    return 0;
}

static int close_archive(void **state)
{
    (void)state;
    sb_npz_free(test_ctx(), items, n_items);
    sb_free(test_ctx(), texts);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),  cmocka_unit_test(test_binary),
        cmocka_unit_test(test_clip),   cmocka_unit_test(test_move),
        cmocka_unit_test(test_reduce), cmocka_unit_test(test_product),
        cmocka_unit_test(test_norm),   cmocka_unit_test(test_loss),
        cmocka_unit_test(test_net),    cmocka_unit_test(test_window),
        cmocka_unit_test(test_quant),  cmocka_unit_test(test_recurrent),
    };
    return cmocka_run_group_tests_name("gradients", tests, open_archive,
                                       close_archive);
}
