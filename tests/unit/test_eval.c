/* Evaluation of what tasks have in common with boxes, rows, vectors and texts;
 * the numbers of real networks are in tests/ort/test_eval.py. */
#include "sbtest.h"

#include <math.h>

#include <sparsebit/run.h>

static sb_batch batch_of(size_t count)
{
    sb_batch b = SB_BATCH_INIT;

    b.count = count;
    return b;
}

static sb_eval *new_eval(size_t n_outputs, const char *task)
{
    sb_eval_options opt = SB_EVAL_OPTIONS_INIT;
    sb_eval *e = NULL;

    opt.task = task;
    assert_ok(sb_eval_create(test_ctx(), n_outputs, &opt, &e));
    return e;
}

/* [1, 4, 6] of corners, score and class, which no suppression touches. */
static void test_boxes_match_once_and_by_class(void **state)
{
    const sb_batch b = batch_of(1);
    const sb_tensor *reference =
        test_f32("1x4x6",                          /* */
                 0.0, 0.0, 10.0, 10.0, 0.9, 0.0,   /* */
                 20.0, 20.0, 30.0, 30.0, 0.8, 1.0, /* */
                 50.0, 50.0, 60.0, 60.0, 0.7, 0.0, /* */
                 0.0, 0.0, 10.0, 10.0, 0.1, 0.0);  /* below the threshold */
    const sb_tensor *found =
        test_f32("1x4x6",                           /* */
                 0.0, 0.0, 10.0, 9.0, 0.9, 0.0,     /* IoU 0.9 */
                 0.0, 0.0, 9.0, 10.0, 0.8, 0.0,     /* the same box is taken */
                 20.0, 20.0, 30.0, 30.0, 0.7, 2.0,  /* another class */
                 50.0, 50.0, 55.0, 60.0, 0.6, 0.0); /* IoU 0.5: not more */
    sb_eval *e = new_eval(1, "detect:nms");

    (void)state;
    assert_ok(sb_eval_compare(e, &b, &found, &reference));
    const sb_eval_result *r = sb_eval_get(e);
    assert_string_equal(r->task, "detect:nms");
    assert_false(r->task_guessed);
    assert_int_equal(r->boxes, 4);
    assert_int_equal(r->reference_boxes, 3);
    assert_int_equal(r->matched_boxes, 1);
    assert_close("recall", r->recall, 1 / 3.0, 1e-12);
    assert_close("precision", r->precision, 1 / 4.0, 1e-12);
    assert_close("F1", r->f1, 2 / 7.0, 1e-12);
    assert_true(isnan(r->agreement));
    sb_eval_free(e);
}

/* YOLOv8: [1, 4 + 1, 3], two of the boxes overlap by 90/110 and become one. */
static void test_overlapping_boxes_become_one(void **state)
{
    const sb_batch b = batch_of(1);
    const sb_tensor *t = test_f32("1x5x3", /* */
                                  5.0, 6.0, 50.0, 5.0, 5.0, 50.0, 10.0, 10.0,
                                  10.0, 10.0, 10.0, 10.0, 0.5, 0.9, 0.3);
    sb_eval *e = new_eval(1, "detect:yolov8");

    (void)state;
    assert_ok(sb_eval_compare(e, &b, &t, &t));
    assert_int_equal(sb_eval_get(e)->boxes, 2);
    assert_int_equal(sb_eval_get(e)->matched_boxes, 2);
    sb_eval_free(e);
}

static void test_rows_of_other_magnitude_are_apart(void **state)
{
    const sb_batch b = batch_of(1);
    const sb_tensor *reference = test_f32("1x3x4", 100., 200., 300., 400., 1.,
                                          0., 1., 0., 0., 1., 0., 1.);
    const sb_tensor *found = test_f32("1x3x4", 100., 200., 300., 401., 0., 1.,
                                      0., 1., 0., 1., 0., 1.);
    const sb_eval_part *const *parts = NULL;
    size_t n = 0;
    sb_eval *e = new_eval(1, "none");

    (void)state;
    assert_ok(sb_eval_compare(e, &b, &found, &reference));
    assert_ok(sb_eval_parts(e, &parts, &n));
    assert_int_equal(n, 2);
    assert_string_equal(parts[0]->rows, "0");
    assert_string_equal(parts[1]->rows, "1..2");
    assert_close("largest", parts[1]->largest, 1, 0);
    assert_close("cosine", parts[1]->cosine, 0.5, 1e-12);        /* 2 / 4 */
    assert_close("sqnr", parts[1]->sqnr_db, 0, 1e-12);           /* 4 / 4 */
    assert_close("sqnr", parts[0]->sqnr_db, 54.771212547, 1e-6); /* 3e5 / 1 */
    sb_eval_free(e);
}

/* 0 is the blank: "1 1 0 1 2" reads 1 1 2. */
static void test_texts_collapse(void **state)
{
    const sb_batch b = batch_of(2);
    const sb_tensor *x = test_f32("2x3x3", /* 1 1 0, 0 1 2 */
                                  0., 1., 0., 0., 1., 0., 1., 0., 0., /* */
                                  1., 0., 0., 0., 1., 0., 0., 0., 1.);
    const sb_tensor *y = test_f32("2x3x3", /* 0 0 1, 1 0 1 */
                                  1., 0., 0., 1., 0., 0., 0., 1., 0., /* */
                                  0., 1., 0., 1., 0., 0., 0., 1., 0.);
    sb_eval *e = new_eval(1, NULL);

    (void)state;
    assert_ok(sb_eval_compare(e, &b, &x, &y));
    assert_string_equal(sb_eval_get(e)->task, "text");
    assert_int_equal(sb_eval_get(e)->texts, 2);
    assert_close("equal", sb_eval_get(e)->texts_equal, 50, 0);
    sb_eval_free(e);
}

/* Texts of a network for one sample, laid side by side: [samples, time, 1,
 * characters] is no image. */
static void test_texts_of_single_samples(void **state)
{
    static const char *const wants[] = {NULL, "none", "text", "text"};
    const sb_batch b = batch_of(2);
    const sb_tensor *t = test_f32("2x2x1x2", 0., 9., 0., 9., 9., 0., 0., 9.);

    (void)state;
    for (int i = 0; i < 2; i++) {
        sb_eval *e = new_eval(1, wants[2 * i]);

        assert_ok(sb_eval_compare(e, &b, &t, &t));
        assert_string_equal(sb_eval_get(e)->task, wants[2 * i + 1]);
        assert_int_equal(sb_eval_get(e)->texts, i ? 2 : 0);
        sb_eval_free(e);
    }
}

/* The state of a recurrent network does not count samples. */
static void test_outputs_without_samples_are_compared_whole(void **state)
{
    const sb_batch b = batch_of(1);
    const sb_tensor *a[] = {test_f32("1x1", 1.),
                            test_f32("2x1x2", 1., 0., 0., 0.)};
    const sb_tensor *r[] = {test_f32("1x1", 1.),
                            test_f32("2x1x2", 1., 0., 0., 1.)};
    const sb_tensor *other[] = {a[0], test_f32("2x1x1", 1., 0.)};
    double cosine, sqnr;
    sb_eval *e = new_eval(2, NULL);

    (void)state;
    assert_ok(sb_eval_compare(e, &b, a, r));
    assert_true(sb_eval_output(e, 1, &cosine, &sqnr));
    assert_close("cosine", cosine, sqrt(0.5), 1e-12);
    assert_string_equal(sb_eval_get(e)->task, "none");
    assert_status(sb_eval_compare(e, &b, a, other), SB_BAD_DATA);
    assert_error_has("output 1 is f32[2,1,2], the reference has f32[2,1,1]");
    sb_eval_free(e);
}

/* Nothing is lost where there was nothing; all is noise where there is none in
 * the reference; and nothing is known before a comparison. */
static void test_outputs_of_zeros(void **state)
{
    const sb_batch b = batch_of(1);
    const sb_tensor *zero[] = {test_f32("1x2", 0., 0.)};
    const sb_tensor *one[] = {test_f32("1x2", 0., 1.)};
    double cosine, sqnr;

    (void)state;
    for (int k = 0; k < 2; k++) {
        sb_eval *e = new_eval(1, NULL);

        (void)sb_eval_output(e, 0, &cosine, &sqnr);
        assert_true(isnan(sqnr));
        assert_ok(sb_eval_compare(e, &b, k ? one : zero, zero));
        assert_true(sb_eval_output(e, 0, &cosine, &sqnr));
        assert_true(isinf(sqnr) && (sqnr > 0) == (k == 0));
        sb_eval_free(e);
    }
}

/* Corners, classes and scores in outputs of their own, of one sample: one box
 * more, of another class, in the model; then none in the reference. */
static void test_lists_differ_in_length(void **state)
{
    const sb_tensor *found[] = {
        test_f32("2x4", 0., 0., 10., 10., 20., 20., 30., 30.),
        test_tensor(SB_DTYPE_I64, "2", (const double[]){2, 1}),
        test_f32("2", 0.75, 0.5)};
    const sb_tensor *reference[] = {
        test_f32("1x4", 0., 0., 10., 8.),
        test_tensor(SB_DTYPE_I64, "1", (const double[]){2}),
        test_f32("1", 0.5)};
    const sb_tensor *none[] = {test_tensor(SB_DTYPE_F32, "0x4", NULL),
                               test_tensor(SB_DTYPE_I64, "0", NULL),
                               test_tensor(SB_DTYPE_F32, "0", NULL)};
    const sb_batch b = batch_of(1);
    sb_eval *e = new_eval(3, NULL);
    double cosine, decibel;

    (void)state;
    assert_ok(sb_eval_compare(e, &b, found, reference));
    /* (100 + 80) / sqrt((200 + 2600) * 164), 164 / (4 + 2600). */
    assert_int_equal(sb_eval_output(e, 0, &cosine, &decibel), 1);
    assert_close("cosine", cosine, 180 / sqrt(2800 * 164), 1e-12);
    assert_close("dB", decibel, 10 * log10(164 / 2604.0), 1e-12);
    assert_ok(sb_eval_compare(e, &b, found, none));
    assert_ok(sb_eval_compare(e, &b, found, found));
    const sb_eval_result *r = sb_eval_get(e);
    assert_string_equal(r->task, "detect:lists");
    assert_int_equal(r->uneven, 2);
    assert_int_equal(r->boxes, 6);
    assert_int_equal(r->reference_boxes, 3);
    assert_int_equal(r->matched_boxes, 3);
    sb_eval_free(e);
}

/* Scores in front of boxes, with a sample axis: four of them are as long as
 * corners, at the first sample or later. */
static void test_lists_of_four(void **state)
{
    const sb_tensor *four[] = {
        test_f32("1x4", 0.9, 0.8, 0.7, 0.6),
        test_f32("1x4x4", 0., 0., 1., 1., 2., 0., 3., 1., 4., 0., 5., 1., 6.,
                 0., 7., 1.),
        test_tensor(SB_DTYPE_I64, "1x4", (const double[]){1, 1, 2, 2})};
    const sb_tensor *two[] = {
        test_f32("1x2", 0.9, 0.8),
        test_f32("1x2x4", 0., 0., 1., 1., 2., 0., 3., 1.),
        test_tensor(SB_DTYPE_I64, "1x2", (const double[]){1, 1})};
    const sb_batch b = batch_of(1);

    (void)state;
    for (int first = 0; first < 2; first++) {
        sb_eval *e = new_eval(3, first ? "detect:lists" : NULL);

        assert_ok(sb_eval_compare(e, &b, four, first ? four : two));
        assert_ok(sb_eval_compare(e, &b, two, first ? two : four));
        const sb_eval_result *r = sb_eval_get(e);
        assert_string_equal(r->task, "detect:lists");
        assert_int_equal(r->boxes, 6);
        assert_int_equal(r->reference_boxes, 6);
        assert_int_equal(r->matched_boxes, first ? 6 : 4);
        sb_eval_free(e);
    }
}

static void test_wrong_tasks_are_refused(void **state)
{
    static const char *const layouts[] = {
        "detect",      "detect:yolov5", "detect:yolov8", "detect:yolox",
        "detect:pair", "detect:nms",    "text"};
    const sb_tensor *t = test_f32("3x2", 1., 2., 3., 4., 5., 6.);
    const sb_batch b = batch_of(2);
    sb_eval_options opt = SB_EVAL_OPTIONS_INIT;
    sb_eval *e = NULL;

    (void)state;
    opt.task = "detcet";
    assert_status(sb_eval_create(test_ctx(), 1, &opt, &e), SB_BAD_ARG);
    for (size_t i = 0; i < SB_COUNT(layouts); i++) {
        e = new_eval(1, layouts[i]);
        assert_status(sb_eval_compare(e, &b, &t, &t), SB_BAD_DATA);
        sb_eval_free(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boxes_match_once_and_by_class),
        cmocka_unit_test(test_overlapping_boxes_become_one),
        cmocka_unit_test(test_rows_of_other_magnitude_are_apart),
        cmocka_unit_test(test_texts_collapse),
        cmocka_unit_test(test_texts_of_single_samples),
        cmocka_unit_test(test_outputs_without_samples_are_compared_whole),
        cmocka_unit_test(test_outputs_of_zeros),
        cmocka_unit_test(test_lists_differ_in_length),
        cmocka_unit_test(test_lists_of_four),
        cmocka_unit_test(test_wrong_tasks_are_refused),
    };

    return cmocka_run_group_tests_name("eval", tests, NULL, NULL);
}
