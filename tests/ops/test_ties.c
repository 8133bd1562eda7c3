/* What rows say about indices that belong together, against their kernels.
 *
 * The property: take indices away from the inputs as `tie` says, restate sizes
 * as `recut` says, and the kernel computes what it computed before without the
 * indices of the outputs that `tie` names.  Where a weight's axis is summed
 * over, its part for the indices is zero before.  Each case has random sizes
 * and is tried from every index of the axes that must be free; an axis that is
 * a number with several digits is tried with each of them. */
#include "sbtest_node.h"

#include "exec/exec.h"
#include "graph/text.h"
#include "ops/op_registry.h"
#include "ops/tie/tie.h"

#include "tie_cases.h"

/* ---- text with sizes ------------------------------------------------------- */

/* The value of `A*B` and the like. */
static int64_t size_of(const char *from, const char *to, const int64_t *sizes)
{
    int64_t value = 0, product = 1;

    for (const char *p = from; p < to; p++) {
        if (*p == '+') {
            value += product;
            product = 1;
        } else if (*p >= 'A' && *p <= 'D') {
            product *= sizes[*p - 'A'];
        } else if (*p >= '0' && *p <= '9') {
            product *= *p - '0';
        }
    }
    return value + product;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (c >= '0' && c <= '9');
}

enum { SIZES = 4, CHANCE = SIZES, NUMBERS }; /* letters, then chance */

/* How many words the list at `p` has. */
static int64_t list_words(const char *p)
{
    int64_t n = 1;

    for (; *p && *p != '>'; p++)
        n += *p == '|';
    return n;
}

/* One word of each list. */
static void choose(const char *text, int64_t chance, char *out, size_t size)
{
    int64_t first = 0;
    size_t n = 0;

    for (const char *p = text; *p && n + 1 < size; p++) {
        if (*p != '<') {
            out[n++] = *p;
            continue;
        }
        int64_t words = list_words(p), k;
        first = first ? first : words;
        k = words == first ? chance % words : chance / first % words;
        for (p++; *p != '>'; p++) {
            k -= *p == '|';
            if (k == 0 && *p != '|' && n + 1 < size)
                out[n++] = *p;
        }
    }
    out[n] = '\0';
}

/* The template with its sizes; a letter alone is a size as well. */
static void expand(const char *template, const int64_t *sizes, char *out,
                   size_t size)
{
    size_t n = strlen(out);
    char text[1024];

    choose(template, sizes[CHANCE], text, sizeof text);
    for (const char *p = text; *p && n + 24 < size; p++) {
        const char *end = *p == '{' ? strchr(p, '}') : NULL;
        bool alone = *p >= 'A' && *p <= 'D' && !is_letter(p[1]) &&
                     (p == text || !is_letter(p[-1]));

        if (end && p[1] && (p[2] == '*' || p[2] == '+')) {
            n += (size_t)snprintf(out + n, size - n, "%lld",
                                  (long long)size_of(p, end, sizes));
            p = end;
        } else if (alone) {
            n += (size_t)snprintf(out + n, size - n, "%lld",
                                  (long long)sizes[*p - 'A']);
        } else {
            out[n++] = *p;
            out[n] = '\0';
        }
    }
}

/* ---- one node -------------------------------------------------------------- */

enum { ATOMS_MOST = 4096, VALUES_MOST = 16, CHOICES_MOST = 64 };

typedef struct world {
    sb_graph *g;
    sb_node_id id;
    sb_ties t;
    uint32_t first[VALUES_MOST * SB_MAX_RANK];
    uint32_t part[32];
    sb_atoms atoms;
    uint8_t gone[ATOMS_MOST];
} world;

static int64_t dim_of(const world *w, sb_value_id v, int axis)
{
    return sb_graph_value(w->g, v)->type.shape.dim[axis];
}

static void world_make(world *w, const tie_case *c, const int64_t *sizes)
{
    char text[2048] = "graph main(";
    uint32_t n = 0;

    memset(w, 0, sizeof *w);
    expand(c->inputs, sizes, text, sizeof text);
    strcat(text, ") -> (");
    strcat(text, c->outputs);
    strcat(text, ") {\n");
    expand(c->lines, sizes, text, sizeof text);
    strcat(text, "}\n");
    assert_ok(sb_graph_parse(test_ctx(), text, &w->g));
    assert_ok(sb_graph_infer(w->g));
    assert_true(w->g->n_values <= VALUES_MOST);
    for (sb_value_id v = 0; v < w->g->n_values; v++)
        for (int a = 0; a < SB_MAX_RANK; a++) {
            bool has = a < sb_graph_value(w->g, v)->type.shape.rank;
            w->first[v * SB_MAX_RANK + (unsigned)a] = has ? n : SB_NONE;
            n += has ? (uint32_t)dim_of(w, v, a) : 0;
        }
    w->atoms = (sb_atoms){w->first, n};
    w->t = (sb_ties){.graph = w->g, .node = sb_graph_node(w->g, 0)};
    assert_ok(sb_node_ties(&w->t));
    for (int i = 0; i < w->t.n_parts; i++) {
        w->part[i] = n;
        n += (uint32_t)w->t.part_size[i];
    }
    assert_true(n <= ATOMS_MOST);
}

static void world_free(world *w)
{
    sb_free(test_ctx(), w->t.ties);
    sb_graph_free(w->g);
}

static uint8_t *ref_gone(world *w, sb_axis_ref ref, int64_t *n)
{
    if (ref.value == SB_NONE) {
        *n = w->t.part_size[ref.axis];
        return w->gone + w->part[ref.axis];
    }
    *n = dim_of(w, ref.value, ref.axis);
    return w->gone + w->first[ref.value * SB_MAX_RANK + (unsigned)ref.axis];
}

/* Makes two flags the same; was one of them set anew? */
static bool meet(uint8_t *a, uint8_t *b)
{
    bool changed = *a != *b;

    *a = *b = *a | *b;
    return changed;
}

static bool tie_spread(world *w, const sb_tie *tie, int choice)
{
    int64_t nx, n, inner = 1;
    uint8_t *x = ref_gone(w, tie->x, &nx);
    bool changed = false;

    if (tie->kind == SB_TIE_DIGITS) {
        int p = choice % tie->n_parts;
        uint8_t *part = ref_gone(w, tie->part[p], &n);
        for (int k = p + 1; k < tie->n_parts; k++) {
            int64_t size;
            (void)ref_gone(w, tie->part[k], &size);
            inner *= size;
        }
        for (int64_t i = 0; i < nx; i++)
            changed |= meet(&x[i], &part[i / inner % n]);
    } else if (tie->kind <= SB_TIE_LIST) {
        uint8_t *y = ref_gone(w, tie->y, &n);
        for (int64_t i = 0; i < tie->n; i++)
            changed |=
                meet(&x[tie->kind == SB_TIE_LIST ? tie->of[i] : tie->x0 + i],
                     &y[tie->y0 + i]);
    }
    return changed;
}

/* May what is gone now go, with these digits?  *stats: numbers change. */
static bool world_valid(world *w, const int *choice, bool *stats)
{
    for (size_t i = 0; i < w->t.n; i++) {
        const sb_tie *tie = &w->t.ties[i];
        int64_t n;
        uint8_t *x = ref_gone(w, tie->x, &n);
        bool any = memchr(x, 1, (size_t)n) != NULL;
        if (tie->kind == SB_TIE_FIXED && any)
            return false;
        if (any && !memchr(x, 0, (size_t)n))
            return false; /* nothing left */
        *stats |= tie->kind == SB_TIE_STATS && any;
        for (int p = 0; tie->kind == SB_TIE_DIGITS && p < tie->n_parts; p++) {
            x = ref_gone(w, tie->part[p], &n);
            if (p != choice[i] % tie->n_parts && memchr(x, 1, (size_t)n))
                return false;
        }
    }
    for (uint32_t i = 0; i < w->atoms.n; i++)
        if (w->gone[i])
            return true;
    return false;
}

/* ---- running --------------------------------------------------------------- */

static sb_tensor cut_tensor(const world *w, sb_value_id v, const sb_tensor *t)
{
    sb_tensor now;

    assert_ok(sb_tensor_clone(test_ctx(), t, &now));
    for (int a = 0; a < t->rank; a++) {
        const uint8_t *gone = w->gone + w->first[v * SB_MAX_RANK + (unsigned)a];
        int64_t dims[SB_MAX_RANK], to = 0, left = 0;
        int64_t outer = sb_dims_product(now.dims, 0, a), n = now.dims[a];
        int64_t inner = sb_dims_product(now.dims, a + 1, now.rank);
        size_t size = (size_t)inner * sb_dtype_size(now.dtype);
        memcpy(dims, now.dims, sizeof dims);
        for (int64_t i = 0; i < n; i++)
            left += !gone[i];
        dims[a] = left;
        sb_tensor less = sb_tensor_make(now.dtype, now.rank, dims);
        assert_ok(sb_tensor_alloc(test_ctx(), &less));
        for (int64_t i = 0; i < outer * n; i++)
            if (!gone[i % n])
                memcpy((char *)less.data + (size_t)to++ * size,
                       (char *)now.data + (size_t)i * size, size);
        sb_tensor_drop(&now);
        now = less;
    }
    return now;
}

/* Zeroes what goes of an axis. */
static void zero_axis(const world *w, sb_axis_ref ref, sb_tensor *t)
{
    const uint8_t *gone =
        w->gone + w->first[ref.value * SB_MAX_RANK + (unsigned)ref.axis];
    int64_t n = t->dims[ref.axis];
    size_t inner = (size_t)sb_dims_product(t->dims, ref.axis + 1, t->rank) *
                   sb_dtype_size(t->dtype);

    for (int64_t i = 0; i < sb_dims_product(t->dims, 0, ref.axis) * n; i++)
        if (gone[i % n])
            memset((char *)t->data + (size_t)i * inner, 0, inner);
}

/* The elements of an input that are summed over with another's, and go. */
static void zero_pairs(const world *w, sb_value_id v, sb_tensor *t)
{
    for (size_t k = 0; k < w->t.n; k++)
        if (w->t.ties[k].kind == SB_TIE_PAIRS && w->t.ties[k].x.value == v)
            zero_axis(w, w->t.ties[k].x, t);
}

/* The part of a weight that is summed over with what goes. */
static void zero_sums(const world *w, sb_graph *g)
{
    for (size_t k = 0; k < w->t.n; k++) {
        const sb_tie *tie = &w->t.ties[k];
        if (tie->kind != SB_TIE_SUM)
            continue;
        sb_tensor t;
        sb_value *v = sb_graph_value(g, tie->x.value);
        assert_ok(sb_tensor_clone(test_ctx(), &v->constant, &t));
        zero_axis(w, tie->x, &t);
        assert_ok(sb_graph_set_constant(g, tie->x.value, &t));
        sb_tensor_drop(&t);
    }
}

static void run(const sb_graph *g, const sb_tensor *inputs, sb_tensor *outputs)
{
    const sb_tensor *in[4], *out[4];
    sb_exec *exec = NULL;

    for (size_t i = 0; i < g->n_inputs; i++)
        in[i] = &inputs[i];
    assert_ok(sb_exec_create(test_ctx(), g, &(sb_exec_options){.exact = true},
                             &exec));
    assert_ok(sb_exec_run(exec, in, NULL, out));
    for (size_t i = 0; i < g->n_outputs; i++)
        assert_ok(sb_tensor_clone(test_ctx(), out[i], &outputs[i]));
    sb_exec_free(exec);
}

/* The graph with inputs and constants cut, sizes restated. */
static sb_graph *cut_graph(world *w)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_clone(w->g, &g));
    assert_int_equal(g->n_values, w->g->n_values);
    const sb_node node = *sb_graph_node(g, 0);
    sb_cut c = {.graph = g,
                .id = 0,
                .node = &node,
                .op = w->t.op,
                .atoms = &w->atoms,
                .gone = w->gone};
    if (c.op->recut)
        assert_ok(c.op->recut(&c));
    for (sb_value_id v = 0; v < w->g->n_values; v++) {
        sb_value *value = sb_graph_value(g, v);
        sb_shape *s = &value->type.shape;
        if (value->is_constant) {
            sb_tensor t = cut_tensor(w, v, &value->constant);
            assert_ok(sb_graph_set_constant(g, v, &t));
            sb_tensor_drop(&t);
        } else if (value->is_input) {
            for (int a = 0; a < s->rank; a++)
                s->dim[a] = sb_cut_size(&c, v, a);
        } else {
            s->rank = -1;
        }
    }
    assert_ok(sb_graph_infer(g));
    return g;
}

static void compare(world *w, bool stats, const char *what)
{
    sb_tensor full[4] = {{0}}, less[4] = {{0}}, want[4] = {{0}}, got[4] = {{0}};
    sb_graph *g = cut_graph(w);

    zero_sums(w, w->g);
    for (size_t i = 0; i < w->g->n_inputs; i++) {
        const sb_value *v = sb_graph_value(w->g, w->g->inputs[i]);
        full[i] = sb_tensor_make(v->type.dtype, v->type.shape.rank,
                                 v->type.shape.dim);
        assert_ok(sb_tensor_alloc(test_ctx(), &full[i]));
        sb_tensor_randomize(&full[i], 77 + i);
        zero_pairs(w, w->g->inputs[i], &full[i]);
        less[i] = cut_tensor(w, w->g->inputs[i], &full[i]);
    }
    run(w->g, full, want);
    run(g, less, got);
    for (size_t i = 0; i < g->n_outputs; i++) {
        sb_tensor part = cut_tensor(w, w->g->outputs[i], &want[i]);
        if (stats) {
            assert_int_equal(sb_tensor_count(&got[i]), sb_tensor_count(&part));
        } else {
            assert_tensor(what, &got[i], &part, 1e-5);
        }
        sb_tensor_drop(&part);
        sb_tensor_drop(&want[i]);
        sb_tensor_drop(&got[i]);
    }
    for (size_t i = 0; i < w->g->n_inputs; i++) {
        sb_tensor_drop(&full[i]);
        sb_tensor_drop(&less[i]);
    }
    sb_graph_free(g);
}

/* All ways to choose digits, from one index that goes first. */
static bool try_from(const tie_case *c, const int64_t *sizes, int operand,
                     int axis, int64_t index)
{
    bool found = false;

    for (int code = 0; code < CHOICES_MOST; code++) {
        int choice[64] = {0}, rest = code;
        bool changed = true, stats = false;
        world w;

        world_make(&w, c, sizes);
        for (size_t i = 0; i < w.t.n && i < 64; i++)
            if (w.t.ties[i].kind == SB_TIE_DIGITS) {
                choice[i] = rest % w.t.ties[i].n_parts;
                rest /= w.t.ties[i].n_parts;
            }
        if (rest == 0) {
            int64_t n;
            sb_value_id v = sb_tie_value(&w.t, operand);
            ref_gone(&w, (sb_axis_ref){v, axis}, &n)[index] = 1;
            while (changed) {
                changed = false;
                for (size_t i = 0; i < w.t.n; i++)
                    changed |= tie_spread(&w, &w.t.ties[i], choice[i]);
            }
            if (world_valid(&w, choice, &stats)) {
                found = true;
                compare(&w, stats, c->lines);
            }
        }
        world_free(&w);
        if (rest != 0)
            break;
    }
    return found;
}

/* Every axis that is listed must be free, from at least one of its indices. */
static void try_axes(const tie_case *c, const int64_t *sizes)
{
    for (const char *p = c->free; *p; p += strcspn(p, " "), p += *p == ' ') {
        int operand = 0, axis = 0;
        bool out = *p == 'o', any = false;

        assert_int_equal(sscanf(p + out, "%d.%d", &operand, &axis), 2);
        operand += out ? SB_OUT_BASE : 0;
        world w;
        world_make(&w, c, sizes);
        int64_t n = dim_of(&w, sb_tie_value(&w.t, operand), axis);
        world_free(&w);
        for (int64_t i = 0; i < n; i++)
            any |= try_from(c, sizes, operand, axis, i);
        if (!any)
            fail_msg("%s: axis %.6s cannot be cut", c->lines, p);
    }
}

static void test_kernels_do_what_ties_say(void **state)
{
    sb_rng rng;

    (void)state;
    sb_rng_init(&rng, test_seed(1));
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const char *list = strchr(cases[i].lines, '<');
        int64_t words = list ? list_words(list) : 1;
        for (int64_t round = 0; round < (words < 2 ? 2 : words); round++) {
            int64_t sizes[NUMBERS];
            for (int k = 0; k < SIZES; k++)
                sizes[k] = test_pick(&rng, 2, 4);
            sizes[CHANCE] = round % words + words * test_pick(&rng, 0, 35);
            try_axes(&cases[i], sizes);
        }
    }
}

/* Is there a case with this operator, of this domain? */
static bool has_case(const sb_op_def *op)
{
    size_t n = strlen(op->name);

    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const char *lines = cases[i].lines;
        bool other = strstr(lines, "com.microsoft::") != NULL;
        bool both = strstr(lines, "<|com.microsoft::>") != NULL;
        if (!both && other != (op->domain && op->domain[0]))
            continue;
        for (const char *p = lines; (p = strstr(p, op->name)); p += n)
            if (!is_letter(p[-1]) && strchr("(|>", p[n]))
                return true;
    }
    return false;
}

/* Does a row say something about its indices?  (Our own domain is that of
 * graphs being run; files that are pruned have none of it.) */
static bool has_rule(const sb_op_def *op)
{
    bool ours = op->domain && strcmp(op->domain, "sparsebit") == 0;

    return op->tie || (op->flags & SB_OP_ELEMENTWISE && !ours);
}

/* Every row that says something about its indices is tried. */
static void test_every_row_has_a_case(void **state)
{
    size_t n = 0;
    const sb_op_def *const *all = sb_op_all(&n);

    (void)state;
    for (size_t i = 0; i < n; i++)
        if (has_rule(all[i]) && !has_case(all[i]) &&
            strcmp(all[i]->name, "Shape") != 0) /* shows sizes, no elements */
            fail_msg("no case for '%s%s%s'",
                     all[i]->domain ? all[i]->domain : "",
                     all[i]->domain ? "::" : "", all[i]->name);
}

/* Rows without a rule, and axes that rules do not mention, are fixed. */
static void test_what_is_not_known_is_fixed(void **state)
{
    static const tie_case fixed[] = {
        {"x: f32[2,A]", "y: f32[*]", "y = NonZero(x)\n", ""},
        {"x: f32[2,A]", "y: f32[*]", "y = Softmax(x)\n", ""},
        {"x: f32[2,A]", "y: f32[*]",
         "s: i64[1] = [0]\ne: i64[1] = [9]\na: i64[1] = [1]\nt: i64[1] = [2]\n"
         "y = Slice(x, s, e, a, t)\n",
         ""},
        {"x: f32[1,A,4,4]", "y: f32[*], i: i64[*]",
         "y, i = MaxPool(x) {kernel_shape=[2,2]}\n", ""},
        {"x: f32[{2*A},{3*B}]", "y: f32[*]",
         "s: i64[2] = [{3*B},{2*A}]\ny = Reshape(x, s)\n", ""},
    };
    const int64_t sizes[NUMBERS] = {4, 5, 2, 2};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(fixed); i++) {
        world w;
        world_make(&w, &fixed[i], sizes);
        int last = sb_tie_rank(&w.t, 0) == 4 ? 1 : sb_tie_rank(&w.t, 0) - 1;
        int64_t n = sb_tie_dim(&w.t, 0, last);
        world_free(&w);
        for (int64_t k = 0; k < n; k++)
            assert_false(try_from(&fixed[i], sizes, 0, last, k));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_do_what_ties_say),
        cmocka_unit_test(test_every_row_has_a_case),
        cmocka_unit_test(test_what_is_not_known_is_fixed),
    };
    return cmocka_run_group_tests_name("ties", tests, NULL, NULL);
}
