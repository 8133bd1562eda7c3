/* Training runs in a pipeline: checkpoints, interruptions, refusals. */
#define _DEFAULT_SOURCE
#include "ranktest.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sparsebit/sparsebit.h>

#include "base/ranks/comm.h"

#define FIXTURES "tests/fixtures/llm/"

static char dir[] = "/tmp/sbtest-pipe-XXXXXX";

typedef struct {
    const char *folder;
    size_t stop_after, pieces, steps;
    int resume, who_stops;
    bool signal;    /* it stops in the middle of the next step */
    bool one_fails; /* rank 1, at the same time */
    bool differs;   /* rank 1 has another model */
    double loss[TEST_RANKS][3];
} train_case;

typedef struct {
    train_case *c;
    sb_ctx *ctx;
    int rank;
    size_t steps;
} watched;

static int watch(void *user, const sb_train_state *s)
{
    watched *w = user;

    w->steps += s->samples_per_second > 0;
    if (s->samples_per_second == 0 && s->epoch < 3)
        w->c->loss[w->rank][s->epoch] = s->loss;
    bool now = w->c->stop_after && w->steps == w->c->stop_after;
    if (now && w->c->one_fails && w->rank == 1) {
        (void)sb_fail(w->ctx, SB_IO, "no more");
        sb_comm_give_up(w->ctx);
    }
    now = now && w->rank == w->c->who_stops;
    if (now && w->c->signal)
        sb_ctx_interrupt(w->ctx);
    return now && !w->c->signal;
}

static sb_status train_texts(sb_ctx *ctx, sb_model *model, train_case *c,
                             int rank)
{
    watched w = {c, ctx, rank, 0};
    sb_train_options opt = SB_TRAIN_OPTIONS_INIT;
    sb_model *out = NULL;
    sb_data *data = NULL;
    char text[1024], here[512], path[600];

    if (!getcwd(here, sizeof here))
        return SB_IO;
    (void)snprintf(text, sizeof text,
                   "SOURCE: instruct\nPATH: qa.json\nTOKENIZER: %s/" FIXTURES
                   "tiny.gguf\nWINDOW: 24\nBATCH: 4\nSHUFFLE: true\n",
                   here);
    (void)snprintf(path, sizeof path, "%s/data.yaml", dir);
    opt.options_text = "EPOCHS: 3\nLR: 0.01\nOPTIMIZER: adamw\n"
                       "TRAIN: ['*.lora_?.weight']\nCHECKPOINT: 2\n";
    opt.folder = c->folder;
    opt.resume = c->resume;
    opt.pipeline = c->pieces;
    opt.watch = watch;
    opt.watch_user = &w;
    SB_TRY(sb_data_parse(ctx, text, path, NULL, &data));
    sb_status status = sb_train(model, data, NULL, &opt, &out);
    if (rank == 0)
        c->steps = w.steps;
    sb_model_free(out);
    sb_data_free(data);
    return status;
}

static sb_status train_rank(sb_ctx *ctx, int rank, void *user)
{
    const train_case *c = user;
    sb_load_options load = SB_LOAD_OPTIONS_INIT;
    sb_lora_options lora = SB_LORA_OPTIONS_INIT;
    sb_model *model = NULL;

    lora.rank += c->differs && rank == 1;
    load.part = (size_t)rank;
    load.parts = (size_t)sb_ctx_ranks(ctx);
    SB_TRY(sb_model_load_with(ctx, FIXTURES "tiny.gguf", &load, &model));
    sb_status status = sb_model_add_lora(model, &lora);
    if (status == SB_OK)
        status = train_texts(ctx, model, user, rank);
    sb_model_free(model);
    return status;
}

static int write_texts(void **state)
{
    char path[64];

    (void)state;
    if (!mkdtemp(dir))
        return 1;
    (void)snprintf(path, sizeof path, "%s/qa.json", dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < 16; i++)
        (void)fprintf(f, "{\"instruction\": \"a%d\", \"output\": \"b%d c\"}\n",
                      i % 5, i % 7);
    return f ? fclose(f) : 1;
}

static int remove_texts(void **state)
{
    char command[128];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command); /* a folder that mkdtemp() made */
}

/* Ended by one of three ranks, it goes on with two, and then with one; no step
 * is lost, and none is made twice. */
static void test_a_run_goes_on_with_other_ranks(void **state)
{
    train_case whole = {.pieces = 1, .who_stops = -1}, part;
    test_rank out[TEST_RANKS];

    (void)state;
    test_ranks_run(1, train_rank, &whole, out);
    assert_string_equal(out[0].error, "");
    assert_int_equal(whole.steps, 12);
    assert_true(whole.loss[0][2] < whole.loss[0][0]);
    for (int who = 0; who < 3; who++) {
        char path[64];

        (void)snprintf(path, sizeof path, "%s/run%d", dir, who);
        part = (train_case){.folder = path,
                            .pieces = 4,
                            .stop_after = 5,
                            .who_stops = who,
                            .signal = who > 0};
        test_ranks_run(3, train_rank, &part, out);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(out[r].status, SB_INTERRUPTED);
            assert_non_null(strstr(out[r].error, "holds all until then"));
        }
        part.resume = 1;
        part.stop_after = 2;
        part.who_stops = 0;
        test_ranks_run(2, train_rank, &part, out);
        assert_int_equal(out[1].status, SB_INTERRUPTED);
        part.stop_after = 0;
        test_ranks_run(1, train_rank, &part, out);
        assert_string_equal(out[0].error, "");
        assert_int_equal(part.steps, 5);
        assert_close("loss", part.loss[0][1], whole.loss[0][1], 1e-4);
        assert_close("loss", part.loss[0][2], whole.loss[0][2], 1e-4);
    }
}

static void test_a_run_is_refused(void **state)
{
    train_case odd = {.pieces = 3, .who_stops = -1};
    test_rank out[TEST_RANKS];

    (void)state;
    test_ranks_run(2, train_rank, &odd, out);
    for (int r = 0; r < 2; r++)
        assert_non_null(strstr(out[r].error,
                               "batches of 4 samples cannot be cut into 3 "
                               "pieces"));
    train_case other = {.pieces = 2, .who_stops = -1, .differs = true};
    test_ranks_run(2, train_rank, &other, out);
    for (int r = 0; r < 2; r++)
        assert_non_null(strstr(out[r].error, "rank 1 has another model"));
}

/* A rank is interrupted while another fails: there is nothing to save, and the
 * message says what there is. */
static void test_interrupted_while_a_rank_fails(void **state)
{
    test_rank out[TEST_RANKS];

    (void)state;
    for (size_t steps = 1; steps <= 3; steps += 2) {
        char path[64];
        train_case c = {.folder = path,
                        .pieces = 2,
                        .stop_after = steps,
                        .signal = true,
                        .one_fails = true};

        (void)snprintf(path, sizeof path, "%s/fails%zu", dir, steps);
        test_ranks_run(3, train_rank, &c, out);
        assert_int_equal(out[1].status, SB_IO);
        for (int r = 0; r < 3; r += 2) {
            assert_int_equal(out[r].status, SB_INTERRUPTED);
            assert_non_null(strstr(out[r].error, steps == 1
                                                     ? "nothing was saved"
                                                     : "last checkpoint"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_goes_on_with_other_ranks),
        cmocka_unit_test(test_a_run_is_refused),
        cmocka_unit_test(test_interrupted_while_a_rank_fails),
    };
    return cmocka_run_group_tests_name("pipe_train", tests, write_texts,
                                       remove_texts);
}
