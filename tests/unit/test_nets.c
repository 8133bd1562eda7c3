/* Untrained networks: sizes as published, the same seed the same weights, and
 * what cannot be built. */
#include "sbtest.h"

#include "nets/net.h"

/* Learned numbers: all of the floats but running statistics and scalars. */
static int64_t count_learned(const sb_graph *g)
{
    int64_t count = 0;

    for (size_t i = 0; i < g->n_values; i++) {
        const sb_value *v = &g->values[i];
        const sb_tensor *t = sb_const_of(g, (sb_value_id)i);

        if (t && t->dtype == SB_DTYPE_F32 && t->rank > 0 &&
            !strstr(v->name, ".running_"))
            count += sb_tensor_count(t);
    }
    return count;
}

static sb_graph *net(const char *name, sb_net_size size, uint64_t seed)
{
    sb_graph *g = NULL;

    assert_ok(sb_net_create(test_ctx(), name, &size, seed, &g));
    return g;
}

/* torchvision 0.27 and timm 1.0: sum(p.numel() for p in model.parameters());
 * vit-tiny is deit_tiny_patch16_224 without class token and its position.
 * resnet20: 19 convolutions and the norms behind them by hand, options B. */
static void test_networks_have_the_published_number_of_parameters(void **state)
{
    static const struct {
        const char *name;
        int64_t learned;
    } cases[] = {
        {"mlp", 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10},
        {"mobilenetv2", 3504872},
        {"resnet18", 11689512},
        {"resnet20", 272474},
        {"vit-tiny", 5717416 - 2 * 192},
    };
    size_t n = 0;

    (void)state;
    sb_net_all(&n);
    assert_int_equal(n, SB_COUNT(cases));
    for (size_t i = 0; i < n; i++) {
        sb_graph *g = net(cases[i].name, (sb_net_size){0}, 0);
        const sb_shape *y = &sb_graph_value(g, g->outputs[0])->type.shape;

        print_message("%s\n", cases[i].name);
        assert_int_equal(count_learned(g), cases[i].learned);
        assert_string_equal(sb_graph_value(g, g->outputs[0])->name, "logits");
        assert_int_equal(y->rank, 2);
        sb_graph_free(g);
    }
}

static void test_weights_depend_on_the_seed_alone(void **state)
{
    const sb_net_size size = {1, 8, 8, 3};
    sb_graph *g[] = {net("resnet20", size, 7), net("resnet20", size, 7),
                     net("resnet20", size, 8)};
    const sb_tensor *w[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        w[i] = sb_const_of(g[i], sb_graph_find_value(g[i], "conv1.weight"));
        assert_non_null(w[i]);
    }
    assert_memory_equal(w[0]->data, w[1]->data, 16 * 9 * sizeof(float));
    assert_memory_not_equal(w[0]->data, w[2]->data, 16 * 9 * sizeof(float));
    for (int i = 0; i < 3; i++)
        sb_graph_free(g[i]);
}

static void test_sizes_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *name;
        sb_net_size size;
        const char *message;
    } cases[] = {
        {"resnet", {0}, "no network 'resnet'; there are "},
        {"mlp", {.classes = -1}, "classes: found -1, allowed are 1 to"},
        {"mlp", {.height = 5000}, "height: found 5000, allowed are 1 to 4096"},
        {"vit-tiny", {.width = 30}, "width: found 30, allowed are multiples"},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_graph *g = NULL;

        assert_status(
            sb_net_create(test_ctx(), cases[i].name, &cases[i].size, 0, &g),
            SB_BAD_ARG);
        assert_error_has(cases[i].message);
        assert_null(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_networks_have_the_published_number_of_parameters),
        cmocka_unit_test(test_weights_depend_on_the_seed_alone),
        cmocka_unit_test(test_sizes_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests_name("nets", tests, NULL, NULL);
}
