/* Pipelines: ranks that have a stage of a language model each make the steps of
 * one that has all of it, whose losses are those of PEFT (test_lora.c). */
#include "ranktest.h"

#include <math.h>
#include <stdio.h>

#include <sparsebit/sparsebit.h>

#include "base/ranks/comm.h"

#define FIXTURES "tests/fixtures/llm/"

enum { STEPS = 5, MOST_VALUES = 16384, ROWS = 4, LENGTH = 12 };

typedef struct {
    const char *model, *layers;
    int ranks;
    size_t pieces, accumulate;
    int mask; /* so many labels of the first rows do not count */
    double clip;
    float a, b; /* adapters begin with sines that are so large; 0: a tenth,
                   and zero */
    bool narrow, swap; /* labels of int32; ranks read the part of another */
    double loss[TEST_RANKS][STEPS];
    size_t n[TEST_RANKS]; /* values of all adapters, collected */
    float values[TEST_RANKS][MOST_VALUES];
} pipe_case;

/* ---- steps -------------------------------------------------------------- */

static sb_status open_learner(sb_ctx *ctx, const pipe_case *c, sb_model **model,
                              sb_learner **out)
{
    static const char *const train[] = {"*.lora_?.weight"};
    sb_load_options load = SB_LOAD_OPTIONS_INIT;
    sb_lora_options lora = SB_LORA_OPTIONS_INIT;
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    char path[256];

    (void)snprintf(path, sizeof path, FIXTURES "%s", c->model);
    load.parts = (size_t)sb_ctx_ranks(ctx);
    load.part = (size_t)sb_ctx_rank(ctx);
    if (c->swap)
        load.part = load.parts - 1 - load.part;
    SB_TRY(sb_model_load_with(ctx, path, &load, model));
    lora.layers = c->layers;
    lora.rank = 4;
    lora.alpha = 8;
    SB_TRY(sb_model_add_lora(*model, &lora));
    opt.class_axis = -1;
    opt.optimizer = SB_OPTIMIZER_ADAMW;
    opt.learning_rate = 0.01;
    opt.train = train;
    opt.n_train = 1;
    opt.clip_norm = c->clip;
    opt.accumulate = c->accumulate ? c->accumulate : 1;
    opt.pipeline = c->pieces;
    return sb_learner_create(*model, &opt, out);
}

/* A as in the fixtures of PEFT. */
static sb_status set_sines(sb_ctx *ctx, const pipe_case *c, sb_learner *l)
{
    for (size_t i = 0; i < sb_learner_parameter_count(l); i++) {
        const sb_parameter_info *p = sb_learner_parameter(l, i);
        sb_tensor *t = NULL;
        float most = strstr(p->name, "lora_B") ? c->b : c->a > 0 ? c->a : 0.1f;

        if (!p->trained || most == 0)
            continue;
        SB_TRY(sb_tensor_copy(ctx, p->value, &t));
        float *v = sb_tensor_data_mutable(t);
        for (int64_t k = 0; k < sb_tensor_elements(t); k++)
            v[k] = most * sinf((float)k);
        sb_status status = sb_learner_set_parameter(l, p->name, t);
        sb_tensor_free(t);
        SB_TRY(status);
    }
    return SB_OK;
}

/* The two texts of the fixture, twice; labels are the next tokens. */
static void fill_batch(const sb_tensor *from, int mask, int64_t *ids,
                       int64_t *target)
{
    const int64_t *v = sb_tensor_data(from);

    for (int64_t i = 0; i < ROWS * LENGTH; i++) {
        int64_t row = i / LENGTH, at = i % LENGTH;

        ids[i] = v[i % (2 * LENGTH)];
        target[i] = at == LENGTH - 1 || (mask && (row == 0 || at < row * mask))
                        ? -100
                        : v[i % (2 * LENGTH) + 1];
    }
}

static sb_status run_steps(sb_ctx *ctx, sb_learner *l, pipe_case *c, int rank)
{
    sb_tensor *fixture = NULL;
    int64_t data[2][ROWS * LENGTH];
    sb_tensor t[2];
    const sb_tensor *in = &t[0];
    int32_t narrow[ROWS * LENGTH];

    SB_TRY(sb_tensor_load(ctx, FIXTURES "ids.npy", &fixture));
    fill_batch(fixture, c->mask, data[0], data[1]);
    sb_tensor_free(fixture);
    for (int i = 0; i < 2; i++) {
        t[i] = sb_tensor_make(SB_DTYPE_I64, 2, (const int64_t[]){ROWS, LENGTH});
        t[i].data = data[i];
    }
    for (int i = 0; i < ROWS * LENGTH; i++)
        narrow[i] = (int32_t)data[1][i];
    if (c->narrow) {
        t[1].dtype = SB_DTYPE_I32;
        t[1].data = narrow;
    }
    for (int i = 0; i < STEPS; i++)
        SB_TRY(sb_learner_step(l, &in, 1, &t[1], &c->loss[rank][i]));
    return sb_learner_collect(l);
}

static sb_status pipe_rank(sb_ctx *ctx, int rank, void *user)
{
    pipe_case *c = user;
    sb_model *model = NULL;
    sb_learner *l = NULL;
    sb_status status = open_learner(ctx, c, &model, &l);

    if (status == SB_OK)
        status = set_sines(ctx, c, l);
    if (status == SB_OK)
        status = run_steps(ctx, l, c, rank);
    c->n[rank] = 0;
    for (size_t i = 0; status == SB_OK && i < sb_learner_parameter_count(l);
         i++) {
        const sb_parameter_info *p = sb_learner_parameter(l, i);
        size_t count = (size_t)sb_tensor_count(p->value);

        if (!p->trained)
            continue;
        if (c->n[rank] + count <= MOST_VALUES)
            memcpy(c->values[rank] + c->n[rank], p->value->data,
                   count * sizeof(float));
        c->n[rank] += count;
    }
    if (status != SB_OK)
        sb_comm_give_up(ctx);
    sb_learner_free(l);
    sb_model_free(model);
    return status;
}

static pipe_case alone, many;

/* All ranks have the losses and the adapters of one. */
static void expect_same(const pipe_case *want)
{
    test_rank out[TEST_RANKS];

    many = *want;
    test_ranks_run(many.ranks, pipe_rank, &many, out);
    for (int r = 0; r < many.ranks; r++) {
        assert_string_equal(out[r].error, "");
        for (int i = 0; i < STEPS; i++)
            assert_close("loss", many.loss[r][i], alone.loss[0][i], 1e-4);
        assert_true(many.n[r] == alone.n[0] && many.n[r] <= MOST_VALUES);
        assert_all_close("adapters", many.values[r], alone.values[0],
                         alone.n[0], 1e-3);
        assert_memory_equal(many.values[r], many.values[0],
                            alone.n[0] * sizeof(float));
    }
}

static void run_alone(const pipe_case *c)
{
    test_rank out[1];

    alone = *c;
    alone.ranks = 1;
    test_ranks_run(1, pipe_rank, &alone, out);
    assert_string_equal(out[0].error, "");
}

static void test_losses_are_those_of_peft(void **state)
{
    static const double want[STEPS] = {5.7573152, 5.6168804, 5.4330893,
                                       5.2398000, 5.0382419};

    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++)
        for (size_t pieces = 1; pieces <= ROWS; pieces *= 2) {
            test_rank out[TEST_RANKS];

            many = (pipe_case){.model = "llama",
                               .layers = "q_proj|v_proj",
                               .ranks = ranks,
                               .pieces = pieces};
            test_ranks_run(ranks, pipe_rank, &many, out);
            for (int r = 0; r < ranks; r++) {
                assert_string_equal(out[r].error, "");
                for (int i = 0; i < STEPS; i++)
                    assert_close("loss", many.loss[r][i], want[i], 1e-4);
            }
        }
}

/* Labels that do not count are not the same number in all pieces, and the
 * first piece has none. */
static void test_labels_that_do_not_count(void **state)
{
    const pipe_case c = {.model = "tiny.gguf",
                         .layers = "q_proj|down_proj",
                         .ranks = 2,
                         .pieces = 4,
                         .mask = 2,
                         .clip = 0.05,
                         .accumulate = 2};

    (void)state;
    run_alone(&c);
    assert_true(alone.loss[0][STEPS - 1] < alone.loss[0][0]);
    expect_same(&c);
}

static void test_all_architectures(void **state)
{
    static const struct {
        const char *model, *layers;
    } list[] = {
        {"tiny.gguf", "q_proj|v_proj|gate_proj"},
        {"qwen2", "q_proj|v_proj"},
        {"qwen3", "*_proj"},
        {"gemma3", "q_proj|down_proj"},
        {"gpt2", "c_attn|c_proj"},
        {"gptq", "q_proj|v_proj"},
        {"gptq_order", "o_proj"},
        {"awq", "up_proj"},
        /* the first rank, or the last, has nothing to learn */
        {"llama", "*layers.1.self_attn.q_proj"},
        {"llama", "*layers.0.self_attn.q_proj"},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(list); i++) {
        const pipe_case c = {.model = list[i].model,
                             .layers = list[i].layers,
                             .ranks = 2 + (i % 2 == 0),
                             .pieces = 2};

        run_alone(&c);
        expect_same(&c);
    }
}

/* ---- failures ----------------------------------------------------------- */

static void expect_error(const pipe_case *c, const char *text)
{
    test_rank out[TEST_RANKS];

    many = *c;
    test_ranks_run(many.ranks, pipe_rank, &many, out);
    for (int r = 0; r < many.ranks; r++) {
        if (!strstr(out[r].error, text))
            print_error("rank %d: %s\n", r, out[r].error);
        assert_non_null(strstr(out[r].error, text));
    }
}

static void test_refusals(void **state)
{
    pipe_case c = {
        .model = "llama", .layers = "q_proj", .ranks = 8, .pieces = 2};

    (void)state;
    expect_error(&c, "stages at most, there are 8 ranks");
    c.ranks = 2;
    c.pieces = 3;
    expect_error(&c, "a batch of 4 samples cannot be cut into 3 pieces");
    c.pieces = 2;
    c.swap = true;
    expect_error(&c, "was read in part");
}

/* Only one rank sees it: the first, the last, and one behind the one that made
 * it. */
static void test_numbers_that_are_not_finite(void **state)
{
    pipe_case c = {.model = "llama",
                   .layers = "*layers.0.self_attn.q_proj",
                   .ranks = 2,
                   .pieces = 2,
                   .a = 1e30f,
                   .narrow = true};

    (void)state;
    expect_error(&c, "step 1: the norm of the gradients is infinite");
    c.layers = "*layers.1.self_attn.q_proj";
    expect_error(&c, "step 1: the norm of the gradients is infinite");
    c.ranks = 1; /* and without a pipeline */
    expect_error(&c, "step 1: the norm of the gradients is infinite");
    c.ranks = 2;
    c.layers = "*layers.0.self_attn.o_proj";
    c.b = 1e30f;
    expect_error(&c, "it comes from the stage of rank 0");
}

static bool in_part(sb_status status)
{
    return status == SB_UNSUPPORTED &&
           strstr(sb_ctx_error(test_ctx()),
                  "was read in part, for rank 0 of a pipeline of 2 ranks");
}

/* Nothing but its pipeline. */
static void test_a_part_of_a_model(void **state)
{
    sb_load_options load = SB_LOAD_OPTIONS_INIT;
    sb_learn_options learn = SB_LEARN_OPTIONS_INIT;
    sb_model *model = NULL, *copy = NULL;
    sb_session *session = NULL;
    sb_quant_model *qm = NULL;
    sb_learner *l = NULL;
    void *bytes = NULL;
    size_t n = 0;

    (void)state;
    load.parts = 2;
    assert_ok(
        sb_model_load_with(test_ctx(), FIXTURES "tiny.gguf", &load, &model));
    assert_ok(sb_model_add_lora(model, NULL));
    assert_ok(sb_model_clone(test_ctx(), model, &copy));
    learn.pipeline = 2; /* of one rank */
    const bool refused[] = {
        in_part(sb_session_create(copy, NULL, &session)),
        in_part(sb_model_save_memory(copy, &bytes, &n)),
        in_part(sb_model_save(copy, "no.onnx")),
        in_part(sb_model_save_language(copy, "no.gguf", NULL)),
        in_part(sb_quant_model_create(copy, NULL, &qm)),
        in_part(sb_model_merge_lora(copy)),
        in_part(sb_learner_create(copy, NULL, &l)),
        in_part(sb_learner_create(copy, &learn, &l)),
    };
    for (size_t i = 0; i < SB_COUNT(refused); i++)
        assert_true(refused[i]);
    sb_model_free(copy);
    sb_model_free(model);
}

static int no_gather(void *user, const void *mine, void *all, size_t bytes)
{
    (void)user, (void)mine, (void)all, (void)bytes;
    return 1;
}

static int no_broadcast(void *user, void *data, size_t bytes, int root)
{
    (void)user, (void)data, (void)bytes, (void)root;
    return 1;
}

/* An sb_comm of before there were pipelines. */
static void test_ranks_that_cannot_send(void **state)
{
    const pipe_case c = {.model = "llama", .layers = "q_proj", .pieces = 2};
    sb_comm comm = SB_COMM_INIT;
    sb_model *model = NULL;
    sb_learner *l = NULL;

    (void)state;
    comm.size = 2;
    comm.gather = comm.exchange = no_gather;
    comm.broadcast = no_broadcast;
    assert_ok(sb_ctx_set_comm(test_ctx(), &comm));
    assert_status(open_learner(test_ctx(), &c, &model, &l), SB_UNSUPPORTED);
    assert_error_has("a pipeline needs send_receive");
    assert_ok(sb_ctx_set_comm(test_ctx(), NULL));
    sb_model_free(model);
}

/* One request for memory after another is refused, on each rank: all fail, none
 * waits for ever, nothing leaks.  Not all of them, since there are thousands.
 */
static void test_memory_is_refused(void **state)
{
    pipe_case c = {.layers = "q_proj", .ranks = 2, .pieces = 2};

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        c.model = rank == 0 ? "tiny.gguf" : "gptq";
        for (size_t at = 100 + (size_t)rank;; at += at / 3) {
            test_heap heap = {.fail_at = at};
            test_rank out[TEST_RANKS];

            many = c;
            test_ranks_run_short(2, rank, &heap, pipe_rank, &many, out);
            assert_int_equal(heap.live, 0);
            if (heap.failed == 0)
                break;
            for (int r = 0; r < 2; r++)
                assert_true(out[r].status == SB_OK ||
                            out[r].status == SB_NO_MEMORY);
            assert_int_equal(out[0].status, out[1].status);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_are_those_of_peft),
        cmocka_unit_test(test_labels_that_do_not_count),
        cmocka_unit_test(test_all_architectures),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_numbers_that_are_not_finite),
        cmocka_unit_test(test_a_part_of_a_model),
        cmocka_unit_test(test_ranks_that_cannot_send),
        cmocka_unit_test(test_memory_is_refused),
    };
    return cmocka_run_group_tests_name("pipe", tests, NULL, NULL);
}
