/* Pruning where sizes are computed at run time: what is sliced, reshaped,
 * expanded or resized to sizes that are not in the file; expected by hand. */
#include "prunetest.h"

/* Bounds that are computed hold the axis that they are for, no other. */
static void test_slices_hold_their_axis_only(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,5,3], n: i64[1]) -> (y: f32[1,?,2]) {\n"
        "w: f32[3,6] = random(1)\n v: f32[6,2] = random(2)\n"
        "zero: i64[1] = [0]\n one: i64[1] = [1]\n"
        "a = MatMul(x, w) \"fc\"\n"
        "b = Slice(a, zero, n, one) \"part\"\n"
        "y = MatMul(b, v) \"out\"\n}";
    sb_prune *p = prune_net(net, CONFIG("RATIO: 0.5"), NULL);

    (void)state;
    assert_int_equal(prune_layer(p, "fc")->removed, 3);
    sb_prune_free(p);
}

/* A batch of any size in front does not hold the digits behind it: 12 are 2 by
 * 6, of which 6 are read. */
static void test_reshapes_of_any_batch(void **state)
{
    static const char net[] =
        "graph net(x: f32[N,4]) -> (y: f32[?,5,2,3]) {\n"
        "w: f32[4,12] = [9,1,9,9,1,9, 9,1,9,9,1,9, 9,1,9,9,1,9, 9,1,9,9,1,9,"
        " 9,1,9,9,1,9, 9,1,9,9,1,9, 9,1,9,9,1,9, 9,1,9,9,1,9]\n"
        "v: f32[6,3] = 1\n"
        "s: i64[4] = [-1,5,2,6]\n"
        "a = MatMul(x, w) \"fc\"\n"
        "b = Reshape(a, s) \"digits\"\n"
        "y = MatMul(b, v) \"out\"\n}";
    sb_prune *p = prune_net(net, CONFIG("RATIO: 0.34"), NULL);

    (void)state;
    assert_cut(p, "w", 1, "1,4,7,10");
    assert_cut(p, "v", 0, "1,4");
    sb_tensor *x = test_f32("5x4", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                            1, 1, 1, 1, 1);
    const sb_tensor *y = prune_run(p, x);
    for (int i = 0; i < 5 * 2 * 3; i++)
        assert_close("y", ((float *)y->data)[i], 4 * 4 * 9, 1e-5);
    sb_prune_free(p);
}

/* A size that something is computed with holds its axis, here the first or the
 * last; how it is picked out of all sizes does not matter. */
static void test_sizes_that_are_shown_hold_their_axis(void **state)
{
#define SHOWN(lines)                                                      \
    "graph net(x: f32[N,4]) -> (y: f32[?,2], z: f32[?]) {\n"              \
    "w: f32[4,6] = random(1)\n v: f32[6,2] = random(2)\n"                 \
    "one: f32[1] = 1\n i0: i64[1] = [0]\n i1: i64[1] = [1]\n"             \
    "last: i64[1] = [-1]\n far: i64[1] = [9]\n a = MatMul(x, w) \"fc\"\n" \
    "y = MatMul(a, v) \"out\"\n" lines "z = Expand(one, s) \"z\"\n}"
    static const struct {
        const char *net;
        bool free;
    } cases[] = {
        {SHOWN("h = Shape(a)\n s = Gather(h, i0)\n"), true},
        {SHOWN("h = Shape(a)\n s = Slice(h, i0, i1)\n"), true},
        {SHOWN("h = Shape(a)\n s = Slice(h, i0, last)\n"), true},
        {SHOWN("s = Shape(a) {start=0, end=1}\n"), true},
        {SHOWN("s = Shape(a) {start=-2, end=-1}\n"), true},
        {SHOWN("h = Shape(a)\n c = Cast(h) {to=6}\n"
               "d = Slice(c, i0, i1)\n s = Cast(d) {to=7}\n"),
         true},
        {SHOWN("h = Shape(a)\n c = Neg(h)\n d = Neg(c)\n"
               "s = Slice(d, i0, i1)\n"),
         false}, /* not followed */
        {SHOWN("h = Shape(a)\n e = Slice(h, i0, i1)\n"
               "s = ReduceMax(h)\n"),
         false},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_prune *p = NULL;
        sb_status status = prune_try(cases[i].net, CONFIG("RATIO: 0.5"), &p);
        if (cases[i].free) {
            assert_ok(status);
            assert_int_equal(prune_report(p)->removable, 6);
            sb_prune_free(p);
        } else {
            assert_status(status, SB_UNSUPPORTED);
            assert_error_has("its size is computed with");
        }
    }
}

/* Exporters join sizes that are not known with constants, which are restated.
 */
static void test_targets_that_are_joined_are_restated(void **state)
{
#define JOIN                                                   \
    "i0: i64[1] = [0]\n i1: i64[1] = [1]\n i2: i64[1] = [2]\n" \
    "h = Shape(x)\n"
    static const struct {
        const char *net, *made, *read, *shape;
        int axis, read_axis, n;
        double want;
    } cases[] = {
        /* Columns 1 and 4 are the same element of two heads. */
        {"graph net(x: f32[B,S,4]) -> (y: f32[?,?,2,1]) {\n"
         "w: f32[4,6] = [9,1,9,9,1,9, 9,1,9,9,1,9, 9,1,9,9,1,9, 9,1,9,9,1,9]\n"
         "v: f32[3,1] = 1\n t: i64[2] = [2,3]\n" JOIN "p = Slice(h, i0, i2)\n"
         "s = Concat(p, t) {axis=0}\n a = MatMul(x, w) \"fc\"\n"
         "b = Reshape(a, s) \"heads\"\n y = MatMul(b, v) \"out\"\n}",
         "1,4", "1", "2x5x4", 1, 0, 20, 72},
        {"graph net(x: f32[B,4]) -> (y: f32[?,2,1]) {\n"
         "w: f32[4,3] = [9,1,9, 9,1,9, 9,1,9, 9,1,9]\n"
         "v: f32[3,1] = 1\n t: i64[2] = [2,3]\n" JOIN "p = Slice(h, i0, i1)\n"
         "s = Concat(p, t) {axis=0}\n a = MatMul(x, w) \"fc\"\n"
         "u = Unsqueeze(a, i1)\n b = Expand(u, s) \"twice\"\n"
         "y = MatMul(b, v) \"out\"\n}",
         "1", "1", "5x4", 1, 0, 10, 72},
        /* The first two sizes are those of what is resized. */
        {"graph net(x: f32[B,1,2,2]) -> (y: f32[?,1,4,4]) {\n"
         "w: f32[3,1,1,1] = [5,2,3]\n v: f32[1,3,1,1] = 1\n"
         "t: i64[2] = [4,4]\n" JOIN "a = Conv(x, w) \"fc\"\n"
         "g = Shape(a)\n p = Slice(g, i0, i2)\n"
         "s = Concat(p, t) {axis=0}\n b = Resize(a, _, _, s) \"larger\"\n"
         "y = Conv(b, v) \"out\"\n}",
         "1", "1", "5x1x2x2", 0, 1, 80, 8},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_prune *p = prune_net(cases[i].net, CONFIG("RATIO: 0.34"), NULL);
        sb_tensor *x = test_tensor(SB_DTYPE_F32, cases[i].shape, NULL);
        assert_cut(p, "w", cases[i].axis, cases[i].made);
        assert_cut(p, "v", cases[i].read_axis, cases[i].read);
        for (int64_t k = 0; k < sb_tensor_count(x); k++)
            ((float *)x->data)[k] = 1;
        const sb_tensor *y = prune_run(p, x);
        for (int k = 0; k < cases[i].n; k++)
            assert_close("y", ((float *)y->data)[k], cases[i].want, 1e-5);
        sb_prune_free(p);
    }
}

/* Sizes of another value, or in another place, do not follow by themselves. */
static void test_targets_of_other_values_hold_their_axis(void **state)
{
#define RESIZED(shown, lines)                                            \
    "graph net(x: f32[B,3,2,2]) -> (y: f32[?,1,?,?]) {\n"                \
    "w: f32[3,3,1,1] = random(1)\n v: f32[1,3,1,1] = random(2)\n"        \
    "t: i64[2] = [4,4]\n o: i64[1] = [3]\n" JOIN                         \
    "a = Conv(x, w) \"fc\"\n c = Relu(a)\n g = Shape(" shown ")\n" lines \
    " b = Resize(c, _, _, s) \"larger\"\n"                               \
    "y = Conv(b, v) \"out\"\n}"
    static const char *const nets[] = {
        RESIZED("a", "p = Slice(g, i0, i2)\n s = Concat(p, t) {axis=0}\n"),
        RESIZED("c", "p = Gather(g, i0)\n q = Gather(g, i1)\n r = Neg(q)\n"
                     "k = Abs(r)\n s = Concat(p, k, t) {axis=0}\n"),
        /* Images of the size that is the number of channels. */
        RESIZED("c", "p = Slice(g, i0, i2)\n s = Concat(p, p) {axis=0}\n"),
        /* A node without inputs. */
        RESIZED("c", "r = RandomUniform() {shape=[4]}\n s = Cast(r) {to=7}\n"),
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(nets); i++) {
        sb_prune *p = NULL;
        assert_status(prune_try(nets[i], CONFIG("RATIO: 0.34"), &p),
                      SB_UNSUPPORTED);
        assert_error_has("no channel can be removed; of 'fc'");
    }
}

/* A constant without elements loses indices, too. */
static void test_empty_constants_are_cut(void **state)
{
    static const char net[] =
        "graph net(x: f32[1,1,3]) -> (y: f32[1,1,3]) {\n"
        "w: f32[3,1,1] = [5,2,3]\n v: f32[1,3,1] = 1\n e: f32[1,3,0] = 0\n"
        "a = Conv(x, w) \"fc\"\n b = Concat(a, e) {axis=2}\n"
        "y = Conv(b, v) \"out\"\n}";
    sb_prune *p = prune_net(net, CONFIG("RATIO: 0.34"), NULL);

    (void)state;
    assert_cut(p, "w", 0, "1");
    assert_cut(p, "e", 1, "1");
    const sb_tensor *y = prune_run(p, test_f32("1x1x3", 1, 2, 3));
    for (int i = 0; i < 3; i++)
        assert_close("y", ((float *)y->data)[i], 8 * (i + 1), 1e-5);
    sb_prune_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_hold_their_axis_only),
        cmocka_unit_test(test_reshapes_of_any_batch),
        cmocka_unit_test(test_sizes_that_are_shown_hold_their_axis),
        cmocka_unit_test(test_targets_that_are_joined_are_restated),
        cmocka_unit_test(test_targets_of_other_values_hold_their_axis),
        cmocka_unit_test(test_empty_constants_are_cut),
    };
    return cmocka_run_group_tests_name("prune_shapes", tests, NULL, NULL);
}
