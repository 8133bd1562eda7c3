/* Pass fuse_attention: what it replaces computes the same, in every way the
 * heads may lie; what it must not replace stays. */
#include "passtest.h"

#define HEADS                  \
    "hs: i64[4] = [2,5,3,4]\n" \
    "q4 = Reshape(q, hs)\n"    \
    "k4 = Reshape(k, hs)\n"    \
    "v4 = Reshape(v, hs)\n"
#define QKV "q: f32[2,5,12], k: f32[2,5,12], v: f32[2,5,12]"
#define JOIN                               \
    "yt = Transpose(o) {perm=[0,2,1,3]}\n" \
    "hm: i64[3] = [2,5,12]\n"              \
    "y = Reshape(yt, hm)\n"

static const struct {
    const char *what, *text;
} fused[] = {
    {"as BERT is exported",
     TEST_GRAPH(QKV ", mask: f32[2,1,1,5]", "y: f32[2,5,12]",
                HEADS "c: f32 = 2\n"
                      "qt = Transpose(q4) {perm=[0,2,1,3]}\n"
                      "kt = Transpose(k4) {perm=[0,2,3,1]}\n"
                      "vt = Transpose(v4) {perm=[0,2,1,3]}\n"
                      "s = MatMul(qt, kt)\n"
                      "d = Div(s, c)\n"
                      "m = Add(d, mask)\n"
                      "p = Softmax(m) {axis=-1}\n"
                      "o = MatMul(p, vt)\n" JOIN)},
    {"factors on both sides, mask first",
     TEST_GRAPH(QKV ", mask: f32[5,5]", "y: f32[2,5,12]",
                HEADS "c: f32 = 0.7\n"
                      "qt = Transpose(q4) {perm=[0,2,1,3]}\n"
                      "kt = Transpose(k4) {perm=[0,2,1,3]}\n"
                      "kk = Transpose(kt) {perm=[0,1,3,2]}\n"
                      "vt = Transpose(v4) {perm=[0,2,1,3]}\n"
                      "qc = Mul(qt, c)\n"
                      "kc = Mul(c, kk)\n"
                      "s = MatMul(qc, kc)\n"
                      "m = Add(mask, s)\n"
                      "p = Softmax(m) {axis=3}\n"
                      "o = MatMul(p, vt)\n" JOIN)},
    {"heads given",
     TEST_GRAPH("q: f32[2,3,5,4], k: f32[2,3,7,4], v: f32[2,3,7,6]",
                "o: f32[2,3,5,6]",
                "kk = Transpose(k) {perm=[0,1,3,2]}\n"
                "s = MatMul(q, kk)\n"
                "p = Softmax(s) {axis=-1}\n"
                "o = MatMul(p, v)\n")},
    {"one projection for all three",
     TEST_GRAPH("x: f32[2,5,36]", "y: f32[2,5,12]",
                "hs: i64[5] = [2,5,3,3,4]\n"
                "i0: i64 = 0\ni1: i64 = 1\ni2: i64 = 2\nc: f32 = 0.5\n"
                "x5 = Reshape(x, hs)\n"
                "t = Transpose(x5) {perm=[2,0,3,1,4]}\n"
                "q = Gather(t, i0) {axis=0}\n"
                "k = Gather(t, i1) {axis=0}\n"
                "v = Gather(t, i2) {axis=0}\n"
                "kk = Transpose(k) {perm=[0,1,3,2]}\n"
                "s = MatMul(q, kk)\n"
                "d = Mul(s, c)\n"
                "p = Softmax(d) {axis=-1}\n"
                "o = MatMul(p, v)\n" JOIN)},
};

static const pass_case kept[] = {
    {"the weights are an output",
     TEST_GRAPH("q: f32[2,3,5,4], k: f32[2,3,7,4], v: f32[2,3,7,6]",
                "o: f32[2,3,5,6], p: f32[2,3,5,7]",
                "kk = Transpose(k) {perm=[0,1,3,2]}\n"
                "s = MatMul(q, kk)\n"
                "p = Softmax(s) {axis=-1}\n"
                "o = MatMul(p, v)\n"),
     NULL, false},
    {"softmax over queries",
     TEST_GRAPH("q: f32[2,3,5,4], k: f32[2,3,5,4], v: f32[2,3,5,6]",
                "o: f32[2,3,5,6]",
                "kk = Transpose(k) {perm=[0,1,3,2]}\n"
                "s = MatMul(q, kk)\n"
                "p = Softmax(s) {axis=2}\n"
                "o = MatMul(p, v)\n"),
     NULL, false},
    {"heads that broadcast",
     TEST_GRAPH("q: f32[2,3,5,4], k: f32[2,1,7,4], v: f32[2,1,7,6]",
                "o: f32[2,3,5,6]",
                "kk = Transpose(k) {perm=[0,1,3,2]}\n"
                "s = MatMul(q, kk)\n"
                "p = Softmax(s) {axis=-1}\n"
                "o = MatMul(p, v)\n"),
     NULL, false},
    {"a number divided by the scores",
     TEST_GRAPH("q: f32[2,3,5,4], k: f32[2,3,7,4], v: f32[2,3,7,6]",
                "o: f32[2,3,5,6]",
                "c: f32 = 2\n"
                "kk = Transpose(k) {perm=[0,1,3,2]}\n"
                "s = MatMul(q, kk)\n"
                "d = Div(c, s)\n"
                "p = Softmax(d) {axis=-1}\n"
                "o = MatMul(p, v)\n"),
     NULL, false},
};

static void test_attention_is_replaced_and_computes_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(fused); i++) {
        test_pass_removes("fuse_attention", fused[i].what, fused[i].text,
                          "Softmax");
        test_pass_removes("fuse_attention", fused[i].what, fused[i].text,
                          "Transpose");
    }
}

static void test_what_must_stay_stays(void **state)
{
    (void)state;
    test_passes("fuse_attention", kept, SB_COUNT(kept));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_is_replaced_and_computes_the_same),
        cmocka_unit_test(test_what_must_stay_stays),
    };
    return cmocka_run_group_tests_name("fuse_attention", tests, NULL, NULL);
}
