/* Adapters: losses of training as PyTorch and PEFT have them
 * (tests/fixtures/llm/make_lora), files, and merging. */
#define _DEFAULT_SOURCE
#include "sbtest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sparsebit/sparsebit.h>

#define FIXTURES "tests/fixtures/llm/"

static char folder_path[] = "/tmp/sparsebit-lora-XXXXXX";
static char path[512];

static const char *test_path(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", folder_path, name);
    return path;
}

static void test_write(const char *to, const char *text)
{
    FILE *f = fopen(to, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static sb_model *load(const char *name)
{
    char file[256];
    sb_model *model = NULL;

    (void)snprintf(file, sizeof file, FIXTURES "%s", name);
    assert_ok(sb_model_load(test_ctx(), file, &model));
    return model;
}

static sb_tensor *load_ids(void)
{
    sb_tensor *ids = NULL;

    assert_ok(sb_tensor_load(test_ctx(), FIXTURES "ids.npy", &ids));
    return ids;
}

/* Every element of the adapters: sines, of A a tenth of them. */
static void set_sines(sb_learner *l, bool a_only)
{
    for (size_t i = 0; i < sb_learner_parameter_count(l); i++) {
        const sb_parameter_info *p = sb_learner_parameter(l, i);
        bool is_a = strstr(p->name, "lora_A") != NULL;

        if (!p->trained || (a_only && !is_a))
            continue;
        sb_tensor *t = NULL;
        assert_ok(sb_tensor_copy(test_ctx(), p->value, &t));
        float *v = sb_tensor_data_mutable(t);
        for (int64_t k = 0; k < sb_tensor_elements(t); k++)
            v[k] = 0.1f * sinf((float)k);
        assert_ok(sb_learner_set_parameter(l, p->name, t));
        sb_tensor_free(t);
    }
}

static sb_learner *learner_of(const sb_model *model)
{
    static const char *const train[] = {"*.lora_?.weight"};
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    sb_learner *l = NULL;

    opt.class_axis = -1;
    opt.optimizer = SB_OPTIMIZER_ADAMW;
    opt.learning_rate = 0.01;
    opt.train = train;
    opt.n_train = 1;
    assert_ok(sb_learner_create(model, &opt, &l));
    return l;
}

/* A network with adapters that are not zero. */
static sb_model *with_adapters(const char *name)
{
    sb_lora_options opt = SB_LORA_OPTIONS_INIT;
    sb_model *model = load(name), *out = NULL;

    opt.layers = "q_proj|k_proj|*.mlp.down_proj";
    opt.rank = 3;
    assert_ok(sb_model_add_lora(model, &opt));
    sb_learner *l = learner_of(model);
    set_sines(l, false);
    assert_ok(sb_learner_model(l, SB_LEARN_VALUES_LAST, &out));
    sb_learner_free(l);
    sb_model_free(model);
    return out;
}

static sb_tensor *logits_of(const sb_model *model)
{
    sb_session *session = NULL;
    sb_tensor *ids = load_ids(), *out = NULL;
    const sb_tensor *got = NULL;

    assert_ok(sb_session_create(model, NULL, &session));
    assert_ok(
        sb_session_run(session, (const sb_tensor *const[]){ids}, 1, &got, 1));
    assert_ok(sb_tensor_copy(test_ctx(), got, &out));
    sb_session_free(session);
    sb_tensor_free(ids);
    return out;
}

static double difference(const sb_model *a, const sb_model *b)
{
    sb_tensor *x = logits_of(a), *y = logits_of(b);
    double worst = 0;

    for (int64_t i = 0; i < sb_tensor_elements(x); i++)
        worst =
            fmax(worst, fabs((double)((const float *)sb_tensor_data(x))[i] -
                             (double)((const float *)sb_tensor_data(y))[i]));
    sb_tensor_free(x);
    sb_tensor_free(y);
    return worst;
}

static void test_losses_are_those_of_peft(void **state)
{
    static const double want[] = {5.7573152, 5.6168804, 5.4330893, 5.2398000,
                                  5.0382419};
    sb_lora_options opt = SB_LORA_OPTIONS_INIT;
    sb_model *model = load("llama");
    sb_tensor *ids = load_ids(), *target = NULL;

    (void)state;
    opt.rank = 4;
    opt.alpha = 8;
    assert_ok(sb_model_add_lora(model, &opt));
    sb_learner *l = learner_of(model);
    set_sines(l, true);
    assert_ok(sb_tensor_copy(test_ctx(), ids, &target));
    int64_t len = sb_tensor_dims(ids)[1], n = sb_tensor_elements(ids);
    const int64_t *from = sb_tensor_data(ids);
    int64_t *to = sb_tensor_data_mutable(target);
    for (int64_t i = 0; i < n; i++)
        to[i] = i % len == len - 1 ? -100 : from[i + 1];
    for (size_t i = 0; i < SB_COUNT(want); i++) {
        double loss = 0;

        assert_ok(sb_learner_step(l, (const sb_tensor *const[]){ids}, 1, target,
                                  &loss));
        assert_close("loss", loss, want[i], 1e-4);
    }
    sb_tensor_free(ids);
    sb_tensor_free(target);
    sb_learner_free(l);
    sb_model_free(model);
}

static void test_adapters_of_nothing_change_nothing(void **state)
{
    sb_model *plain = load("tiny.gguf"), *model = load("tiny.gguf");

    (void)state;
    assert_ok(sb_model_add_lora(model, NULL));
    assert_close("logits", difference(plain, model), 0, 1e-6);
    assert_status(sb_model_add_lora(model, NULL), SB_BAD_ARG);
    assert_error_has("has an adapter already");
    sb_lora_options opt = SB_LORA_OPTIONS_INIT;
    opt.layers = "nothing|of_the_kind";
    assert_status(sb_model_add_lora(plain, &opt), SB_BAD_ARG);
    assert_error_has("nothing|of_the_kind");
    opt.layers = "q_proj";
    opt.rank = 0;
    assert_status(sb_model_add_lora(plain, &opt), SB_BAD_ARG);
    assert_status(sb_model_save_lora(plain, test_path("none")), SB_BAD_ARG);
    sb_model_free(plain);
    sb_model_free(model);
}

/* The file turns halves of heads, a GGUF network neighbors: its adapters must
 * do the same beside the same network as a Hugging Face folder. */
static void test_files_fit_other_forms_of_the_network(void **state)
{
    sb_model *trained = with_adapters("tiny.gguf"), *plain = load("tiny.gguf");
    sb_model *folder = NULL;
    sb_language_options opt = SB_LANGUAGE_OPTIONS_INIT;
    char adapter[256], floats[256];

    (void)state;
    (void)snprintf(adapter, sizeof adapter, "%s", test_path("adapter"));
    (void)snprintf(floats, sizeof floats, "%s", test_path("floats"));
    assert_ok(sb_model_save_lora(trained, adapter));
    opt.format = SB_LANGUAGE_FLOAT;
    opt.tokenizer = FIXTURES "tiny.gguf";
    assert_ok(sb_model_save_language(plain, floats, &opt));
    assert_ok(sb_model_load(test_ctx(), floats, &folder));
    assert_true(difference(trained, folder) > 1e-2);
    assert_ok(sb_model_load_lora(folder, adapter));
    assert_close("beside floats", difference(trained, folder), 0, 1e-4);
    assert_ok(sb_model_load_lora(plain, adapter));
    assert_close("beside blocks", difference(trained, plain), 0, 0);
    assert_ok(sb_model_merge_lora(folder));
    assert_ok(sb_model_merge_lora(plain));
    assert_close("merged floats", difference(trained, folder), 0, 1e-4);
    assert_close("merged blocks", difference(trained, plain), 0, 1e-4);
    sb_model_free(trained);
    sb_model_free(plain);
    sb_model_free(folder);
}

static void test_wrong_files_are_refused(void **state)
{
    sb_model *trained = with_adapters("tiny.gguf"), *other = load("gpt2");
    char adapter[256], config[300];

    (void)state;
    (void)snprintf(adapter, sizeof adapter, "%s", test_path("wrong"));
    assert_status(sb_model_load_lora(other, adapter), SB_IO);
    assert_ok(sb_model_save_lora(trained, adapter));
    assert_status(sb_model_load_lora(other, adapter), SB_BAD_ARG);
    (void)snprintf(config, sizeof config, "%s/adapter_config.json", adapter);
    test_write(config, "{\"peft_type\": \"LORA\", \"r\": 5, "
                       "\"lora_alpha\": 5}");
    sb_model *plain = load("tiny.gguf");
    assert_status(sb_model_load_lora(plain, adapter), SB_BAD_DATA);
    assert_error_has("lora_A.weight");
    test_write(config, "{\"peft_type\": \"IA3\"}");
    assert_status(sb_model_load_lora(plain, adapter), SB_BAD_DATA);
    assert_error_has("IA3");
    sb_model_free(trained);
    sb_model_free(other);
    sb_model_free(plain);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder_path) ? 0 : -1;
}

static int teardown(void **state)
{
    char command[600];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder_path);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_are_those_of_peft),
        cmocka_unit_test(test_adapters_of_nothing_change_nothing),
        cmocka_unit_test(test_files_fit_other_forms_of_the_network),
        cmocka_unit_test(test_wrong_files_are_refused),
    };
    return cmocka_run_group_tests_name("lora", tests, setup, teardown);
}
