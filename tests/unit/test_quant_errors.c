/* Errors of layers through the public functions, by hand; and what reports are
 * made of: layouts, pages with hostile names.  Values against ONNX Runtime are
 * in tests/ort/test_analyze.py. */
#include "quanttest.h"

#include <math.h>

#include "quant/analyze/errors.h"
#include "report/layout.h"

/* Weights 1, 2, 3 in 2 bits: scale 2, integers 0, 1 and 2 clipped to 1, so 0,
 * 2, 2.  Inputs stay in float. */
static const char linear[] = "graph net(x: f32[N,3]) -> (y) {\n"
                             "w: f32[3,1] = [1, 2, 3]\n"
                             "y = MatMul(x, w) \"fc\" @ fc\n}";
#define W2                                                                   \
    "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 2}}\nA: {QSCHEME: " \
    "per-tensor-affine, QUANTIZER: {DISABLE: true, BIT: 8}}\n"

static sb_tensor *rows(int64_t n, int64_t width, const float *v)
{
    const int64_t dims[] = {n, width};
    sb_tensor *t = NULL;

    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 2, dims, &t));
    memcpy(t->data, v, (size_t)(n * width) * sizeof(float));
    return t;
}

static void test_errors_are_those_of_the_definition(void **state)
{
    (void)state;
    sb_quant_model *qm = test_quant(linear, W2, NULL);
    sb_quant_errors *e = NULL;
    const sb_tensor *out = NULL;
    sb_tensor *first = rows(1, 3, (const float[]){1, 1, 1});
    sb_tensor *second = rows(2, 3, (const float[]){1, 0, 0, 0, 0, 2});

    assert_ok(sb_quant_model_calc_qparams(qm));
    assert_ok(sb_quant_errors_create(qm, NULL, &e));
    assert_int_equal(sb_quant_errors_count(e), 1);
    assert_ok(sb_quant_errors_run(e, (const sb_tensor *[]){first}, 1, &out, 1));
    assert_true(*(float *)out->data == 6);
    assert_ok(
        sb_quant_errors_run(e, (const sb_tensor *[]){second}, 1, NULL, 0));
    const sb_layer_error *l = sb_quant_errors_layer(e, 0);
    assert_string_equal(l->name, "fc");
    assert_string_equal(l->op, "MatMul");
    assert_true(l->has_weights && !l->has_activations);
    assert_null(l->activations);
    /* 6, 1, 6 become 4, 0, 4. */
    const double mse = (4 + 1 + 4) / 3.0;
    const sb_difference *all[] = {l->async, l->weights, l->sync};
    for (size_t i = 0; i < SB_COUNT(all); i++) {
        assert_close("mse", all[i]->mse, mse, 1e-12);
        assert_close("sqnr", all[i]->sqnr_db, 10 * log10(73.0 / 9), 1e-9);
        assert_close("cosine", all[i]->cosine, 48 / sqrt(73.0 * 32), 1e-12);
        assert_close("largest", all[i]->largest, 2, 0);
    }
    assert_close("added", l->sync_added, 9.0 / 73, 1e-12);
    const sb_output_error *o = sb_quant_errors_output(e, 0);
    assert_string_equal(o->name, "y");
    assert_close("output", o->difference->mse, mse, 1e-12);
    assert_true(isnan(o->kl)); /* one number is no class */
    assert_null(sb_quant_errors_layer(e, 1));
    assert_null(sb_quant_errors_output(e, 1));
    sb_quant_errors_free(e);
    sb_quant_model_free(qm);
    sb_tensor_free(first);
    sb_tensor_free(second);
}

/* Channels of 2, 300, 3 (and a dead one), then of 4, 0, 1: they reach 4, 300
 * and 3, of which 4 is the median. */
static void test_spread_of_channels(void **state)
{
    (void)state;
    static const char conv[] = "graph net(x: f32[N,4,1,2]) -> (y) {\n"
                               "w: f32[1,4,1,1] = [1, 2, 3, 4]\n"
                               "y = Conv(x, w) \"conv\" @ conv\n}";
    static const char fc[] = "graph net(x: f32[N,4]) -> (y) {\n"
                             "w: f32[4,1] = [1, 2, 3, 4]\n"
                             "y = MatMul(x, w) \"fc\" @ fc\n}";
    static const float images[] = {1, -2, 300, 1, 3, 2, 0, 0,
                                   4, 0,  0,   0, 1, 0, 0, 0};
    static const float vectors[] = {-2, 300, 3, 0, 4, 0, 1, 0};

    for (int k = 0; k < 2; k++) {
        sb_quant_model *qm = test_quant(k ? fc : conv, TEST_W8 TEST_A8, NULL);
        const int64_t dims[] = {2, 4, 1, 2};
        sb_quant_errors *e = NULL;
        sb_tensor *x = NULL;

        assert_ok(
            sb_tensor_create(test_ctx(), SB_DTYPE_F32, k ? 2 : 4, dims, &x));
        memcpy(x->data, k ? vectors : images,
               k ? sizeof vectors : sizeof images);
        assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
        assert_ok(
            sb_quant_model_forward(qm, (const sb_tensor *[]){x}, 1, NULL, 0));
        assert_ok(sb_quant_model_calc_qparams(qm));
        assert_ok(sb_quant_errors_create(qm, NULL, &e));
        assert_ok(sb_quant_errors_run(e, (const sb_tensor *[]){x}, 1, NULL, 0));
        assert_close("spread", sb_quant_errors_layer(e, 0)->channel_spread,
                     300.0 / 4, 1e-9);
        sb_quant_errors_free(e);
        sb_quant_model_free(qm);
        sb_tensor_free(x);
    }
}

/* [1, 2, 2, 3] with axis 1 last in memory: element (c, h, w) is 10 c + w + 1.
 */
static void test_channels_in_another_order(void **state)
{
    (void)state;
    const int64_t dims[] = {1, 2, 2, 3};
    const int axes[] = {1, 3};
    const float want[2][3] = {{3, 13, 0}, {11, 12, 13}};
    float data[12];
    sb_tensor x = sb_tensor_make(SB_DTYPE_F32, 4, dims);

    for (int at = 0; at < 6; at++)
        for (int c = 0; c < 2; c++)
            data[at * 2 + c] = (float)(10 * c + at % 3 + 1);
    x.data = data;
    x.layout = SB_LAYOUT_CHANNELS_LAST;
    for (size_t k = 0; k < SB_COUNT(axes); k++) {
        struct sb_error_values v = {.axis = axes[k]};

        assert_ok(sb_errors_see_channels(test_ctx(), &v, &x));
        assert_int_equal(v.channels, dims[axes[k]]);
        for (int64_t c = 0; c < v.channels; c++)
            assert_float_equal(v.reach[c], want[k][c], 0);
        sb_free(test_ctx(), v.reach);
    }
}

static void test_inputs_are_checked(void **state)
{
    (void)state;
    sb_quant_model *qm = test_quant(linear, W2, NULL);
    sb_quant_errors *e = NULL;

    assert_ok(sb_quant_model_calc_qparams(qm));
    assert_ok(sb_quant_errors_create(qm, NULL, &e));
    assert_int_equal(sb_quant_errors_run(e, NULL, 0, NULL, 0), SB_BAD_ARG);
    sb_quant_errors_free(e);
    sb_quant_model_free(qm);
    /* Without scales there is nothing to compare with. */
    qm = test_quant(linear, TEST_W8 TEST_A8, NULL);
    assert_int_equal(sb_quant_errors_create(qm, NULL, &e), SB_BAD_ARG);
    sb_quant_model_free(qm);
}

/* ---- layouts ------------------------------------------------------------- */

enum { BOXES = 300 };

/* A chain with many short cuts. */
static uint32_t layout_edges(uint32_t *from, uint32_t *to)
{
    uint32_t n = 0;

    for (uint32_t i = 1; i < BOXES; i++)
        for (uint32_t back = 1; back <= i && back < 64; back *= 4) {
            if (back > 1 && i % back)
                continue;
            from[n] = i - back;
            to[n++] = i;
        }
    return n;
}

static void test_boxes_do_not_overlap(void **state)
{
    (void)state;
    uint32_t from[4 * BOXES], to[4 * BOXES];
    sb_layout_graph l = {.n = BOXES,
                         .from = from,
                         .to = to,
                         .n_edges = layout_edges(from, to),
                         .box_width = 100,
                         .box_height = 30,
                         .gap_x = 10,
                         .gap_y = 20};

    assert_ok(sb_layout_make(test_ctx(), &l));
    assert_true(l.n_columns > 1);
    for (uint32_t i = 0; i < BOXES; i++) {
        assert_true(l.at[i].x - 50 >= 0 && l.at[i].x + 50 <= l.width);
        assert_true(l.at[i].y - 15 >= 0 && l.at[i].y + 15 <= l.height);
        for (uint32_t k = 0; k < i; k++)
            assert_true(fabsf(l.at[i].x - l.at[k].x) >= 109.9f ||
                        fabsf(l.at[i].y - l.at[k].y) >= 49.9f);
    }
    /* Down, or to a column further right. */
    for (uint32_t k = 0; k < l.n_edges; k++)
        assert_true(l.at[from[k]].y < l.at[to[k]].y ||
                    l.at[from[k]].x < l.at[to[k]].x);
    sb_layout_free(test_ctx(), &l);
}

static void test_empty_and_lonely_graphs(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 3; n++) {
        sb_layout_graph l = {.n = n, .box_width = 9, .box_height = 9};
        assert_ok(sb_layout_make(test_ctx(), &l));
        sb_layout_free(test_ctx(), &l);
    }
}

/* ---- pages --------------------------------------------------------------- */

static void test_pages_escape_names(void **state)
{
    (void)state;
    static const char hostile[] =
        "graph net(x: f32[N,2,4,4]) -> (y) {\nw: f32[3,2,1,1] = random(1)\n"
        "y = Conv(x, w) \"<img onerror='a'>\"\n}";
    sb_quant_model *qm = test_quant(hostile, TEST_W8 TEST_A8, NULL);
    const sb_quant_errors_options opt = {sizeof opt, 1};
    const int64_t dims[] = {2, 2, 4, 4};
    static const char *const names[][2] = {
        {"x", "<b>&x"}, {"w", "<i>w"}, {"y", "</script>y"}};
    sb_quant_errors *e = NULL;
    sb_report *r = NULL;
    sb_tensor *x = NULL;

    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 4, dims, &x));
    sb_tensor_fill_random(x, 5);
    for (size_t i = 0; i < SB_COUNT(names); i++)
        assert_ok(sb_graph_rename_value(
            qm->graph, sb_graph_find_value(qm->graph, names[i][0]),
            names[i][1]));
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    assert_ok(sb_quant_errors_create(qm, &opt, &e));
    assert_ok(sb_quant_errors_run(e, (const sb_tensor *[]){x}, 1, NULL, 0));
    assert_ok(sb_report_create(test_ctx(), "<t>", "<s>", &r));
    sb_report_fact(r, "<l>", "<v>");
    assert_ok(sb_report_quantization(r, e));
    assert_ok(sb_report_save(r, test_quant_file()));
    sb_report_free(r);
    FILE *f = fopen(test_quant_file(), "rb");
    static char page[200000];
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    (void)fclose(f);
    assert_null(strstr(page, "<b>&x"));
    assert_null(strstr(page, "<i>w"));
    assert_null(strstr(page, "<img"));
    assert_null(strstr(page, "</script>y"));
    assert_null(strstr(page, "<t>"));
    assert_null(strstr(page, "http"));
    assert_non_null(strstr(page, "&lt;img onerror=&#39;a&#39;&gt;"));
    /* One script, and the graph, both charts, both histograms. */
    assert_null(strstr(strstr(page, "<script>") + 1, "<script>"));
    assert_non_null(strstr(page, "class=\"graph\""));
    assert_non_null(strstr(page, "class=\"bars\""));
    assert_non_null(strstr(page, "class=\"chan\""));
    assert_null(strstr(page, "=\"nan"));
    sb_quant_errors_free(e);
    sb_quant_model_free(qm);
    sb_tensor_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_are_those_of_the_definition),
        cmocka_unit_test(test_spread_of_channels),
        cmocka_unit_test(test_channels_in_another_order),
        cmocka_unit_test(test_inputs_are_checked),
        cmocka_unit_test(test_boxes_do_not_overlap),
        cmocka_unit_test(test_empty_and_lonely_graphs),
        cmocka_unit_test(test_pages_escape_names),
    };
    return cmocka_run_group_tests_name("quant_errors", tests, NULL, NULL);
}
