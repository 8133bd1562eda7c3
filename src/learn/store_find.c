/* Which constants of a network are parameters.
 *
 * Rows of operators say which of their inputs are learned; a constant may come
 * there through nodes that only hand it on (Transpose, Reshape, FakeQuant).  A
 * constant that is added behind a layer is its bias.  For the rest (tokens,
 * positions, factors of normalizations that are written out) only names tell:
 * exporters keep those of the modules.  Names also tell what is none: tables of
 * angles, masks, anchors, means and deviations of images. */
#include <string.h>

#include "base/glob.h"
#include "base/options.h"
#include "learn/store.h"

enum { FIND_DEPTH = 8 }; /* nodes that hand a constant on, one behind another */

/* Of the last part of a name, in lower case; with a dot of the whole name:
 * these are words that others use for constants, too, but not in modules. */
static const char *const learned_names[] = {
    "weight",   "bias",        "gamma*",       "beta",         "*_token*",
    "*_biases", "*pos_emb*",   "*embedding*",  "*_bias_table", "layer_scale*",
    "lambda*",  "*.scale",     "*gain",        "rel_pos_*",    "*_rel",
    "*_pos",    "logit_scale", "gating_param", "temperature",  "*.alpha",
};
static const char *const fixed_names[] = {
    "*cos*",    "*sin*",  "*inv_freq*", "*mask*", "*anchor*", "*grid*",
    "*stride*", "*_mean", "*_std",      "mean",   "std",      "filt",
};

typedef struct find_walk {
    const sb_graph *g;
    bool weight, scale, statistic, other; /* how it is read */
} find_walk;

/* Behind the last dot or slash, in lower case. */
static bool find_name_in(const char *const *patterns, size_t n,
                         const char *name)
{
    char last[64];
    size_t len = strlen(name), begin = len;

    while (begin > 0 && name[begin - 1] != '.' && name[begin - 1] != '/')
        begin--;
    size_t k = 0;
    for (; k + 1 < sizeof last && name[begin + k]; k++) {
        char c = name[begin + k];
        last[k] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    last[k] = '\0';
    for (size_t i = 0; i < n; i++)
        if (sb_glob_match(patterns[i], strchr(patterns[i], '.') ? name : last))
            return true;
    return false;
}

/* Does a layer make the value that a constant is added to? */
static bool find_is_bias(const sb_graph *g, const sb_node *node, uint32_t i)
{
    if (!sb_node_adds(node) || node->n_in != 2)
        return false;
    const sb_node *from = sb_graph_producer(g, node->inputs[1 - i]);
    return from && sb_node_role(from) == SB_ROLE_WEIGHTED;
}

/* Elements of the input go on as they are, or nearly so; beside others, where
 * exporters put the gates of recurrent layers together. */
static bool find_hands_on(const sb_op_def *op, uint32_t i)
{
    if (op->flags & SB_OP_JOINS)
        return true;
    return i == 0 && ((op->flags & SB_OP_VIEW) || op->quant == SB_ROLE_PASS ||
                      op->scales);
}

/* Does a row say that input `i` is learned?  Not where the statistics of a
 * normalization are computed: a weight is normalized so, with a constant bias.
 */
static bool find_by_row(const sb_graph *g, const sb_node *node, uint32_t i)
{
    const sb_op_def *op = sb_op_of(node);

    for (uint32_t k = 0; k < node->n_in && k < 32; k++)
        if ((op->statistics >> k & 1) && node->inputs[k] != SB_NONE &&
            sb_graph_producer(g, node->inputs[k]))
            return false;
    return op->parameters >> i & 1;
}

static void find_readers(find_walk *w, sb_value_id v, int depth)
{
    const sb_value *value = sb_graph_value(w->g, v);

    for (uint32_t u = 0; u < value->n_uses; u++) {
        const sb_node *node = sb_graph_node(w->g, value->uses[u].node);
        const sb_op_def *op = sb_op_of(node);
        uint32_t i = value->uses[u].input;

        if (!op || i >= 32 || i >= node->n_in)
            continue;
        w->statistic = w->statistic || (op->statistics >> i & 1);
        w->scale = w->scale || (op->scales >> i & 1);
        w->weight = w->weight || find_by_row(w->g, node, i) ||
                    find_is_bias(w->g, node, i);
        w->other = true;
        if (depth > 0 && find_hands_on(op, i) && node->outputs[0] != SB_NONE)
            find_readers(w, node->outputs[0], depth - 1);
    }
}

static bool find_is_float_constant(const sb_value *v)
{
    return v->is_constant && !v->is_input &&
           v->constant.dtype == SB_DTYPE_F32 && sb_tensor_count(&v->constant);
}

/* Is the constant a parameter, and which? */
static bool find_role(const sb_graph *g, sb_value_id v, sb_parameter_role *role)
{
    const sb_value *value = sb_graph_value(g, v);
    find_walk w = {.g = g};

    if (!find_is_float_constant(value))
        return false;
    find_readers(&w, v, FIND_DEPTH);
    *role = w.statistic ? SB_PARAMETER_ROLE_STATISTIC
            : w.scale   ? SB_PARAMETER_ROLE_SCALE
                        : SB_PARAMETER_ROLE_WEIGHT;
    if (w.statistic || w.scale)
        return true;
    if (find_name_in(fixed_names, SB_COUNT(fixed_names), value->name))
        return false;
    return w.weight ||
           (w.other && value->constant.rank > 0 &&
            find_name_in(learned_names, SB_COUNT(learned_names), value->name));
}

static bool find_matches(const char *const *patterns, size_t n,
                         const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (sb_glob_match(patterns[i], name))
            return true;
    return false;
}

/* At most one dimension is more than 1: gains are [C,1,1,1] as well. */
static bool find_is_vector(const sb_tensor *t)
{
    int n = 0;

    for (int d = 0; d < t->rank; d++)
        n += t->dims[d] > 1;
    return n <= 1;
}

sb_status sb_store_untie(sb_graph *g)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        if (node->dead || !sb_node_is(node, "Identity"))
            continue;
        sb_value_id out = node->outputs[0];
        const sb_value *from = sb_graph_value(g, node->inputs[0]);
        if (!find_is_float_constant(from) || !find_is_vector(&from->constant) ||
            sb_graph_value(g, out)->is_output)
            continue;
        const sb_tensor t = from->constant;
        sb_graph_remove_node(g, id);
        SB_TRY(sb_graph_set_constant(g, out, &t));
    }
    return SB_OK;
}

static sb_status find_add(sb_store *store, const sb_value *value,
                          sb_parameter_role role)
{
    SB_TRY(sb_grow(store->ctx, &store->all, &store->cap, store->n + 1,
                   sizeof *store->all));
    sb_parameter *p = &store->all[store->n];
    *p = (sb_parameter){.info = {.role = role, .rate = 1}};
    p->kept[SB_STORE_VALUE].t = value->constant;
    p->kept[SB_STORE_VALUE].t.buf = NULL; /* copied when it is trained */
    p->info.name = sb_arena_str(&store->arena, value->name);
    if (!p->info.name)
        return SB_NO_MEMORY;
    SB_TRY(sb_map_put(&store->by_name, p->info.name, (uint32_t)store->n));
    store->n++;
    return SB_OK;
}

/* What a parameter may be asked by. */
typedef struct find_rules {
    const sb_learn_options *opt;
    const sb_map *roles; /* or NULL */
} find_rules;

static bool find_is_parameter(const find_rules *rules, const sb_graph *g,
                              sb_value_id v, sb_parameter_role *role)
{
    const sb_value *value = sb_graph_value(g, v);
    uint32_t known =
        rules->roles ? sb_map_get(rules->roles, value->name) : SB_MAP_NONE;

    if (known != SB_MAP_NONE) {
        *role = (sb_parameter_role)(known - (known > 0));
        return known > 0;
    }
    return find_role(g, v, role) ||
           (find_is_float_constant(value) &&
            find_matches(rules->opt->train, rules->opt->n_train, value->name));
}

/* In the order in which nodes read them. */
static sb_status find_all(sb_store *store, const sb_graph *g,
                          const find_rules *rules, const sb_node_id *order,
                          size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const sb_node *node = sb_graph_node(g, order[i]);
        for (uint32_t k = 0; k < node->n_in + node->n_implicit; k++) {
            sb_value_id v = node->inputs[k];
            sb_parameter_role role = SB_PARAMETER_ROLE_WEIGHT;
            if (v == SB_NONE || sb_store_get(store, sb_graph_value(g, v)->name))
                continue;
            if (find_is_parameter(rules, g, v, &role))
                SB_TRY(find_add(store, sb_graph_value(g, v), role));
        }
    }
    return SB_OK;
}

/* ---- what the options say of each --------------------------------------- */

static sb_status find_check_pattern(const sb_store *store, const char *what,
                                    const char *pattern)
{
    for (size_t i = 0; i < store->n; i++)
        if (sb_glob_match(pattern, store->all[i].info.name))
            return SB_OK;
    return sb_fail(store->ctx, SB_BAD_ARG,
                   "%s '%s' matches none of the %zu parameters", what, pattern,
                   store->n);
}

static sb_status find_apply_group(sb_store *store, const sb_learn_group *from)
{
    const sb_learn_group defaults = SB_LEARN_GROUP_INIT;
    sb_learn_group group;

    SB_TRY(sb_options_read(store->ctx, "sb_learn_group", from, &defaults,
                           sizeof group, &group));
    SB_TRY(find_check_pattern(store, "group", group.pattern));
    for (size_t i = 0; i < store->n; i++) {
        sb_parameter_info *info = &store->all[i].info;
        if (!sb_glob_match(group.pattern, info->name))
            continue;
        if (group.rate >= 0)
            info->rate = group.rate;
        if (group.decay >= 0)
            info->decay = group.decay;
    }
    return SB_OK;
}

/* A statistic is of use where the layer that has it is trained. */
static bool find_layer_trained(const sb_store *store, const sb_graph *g,
                               const char *name)
{
    const sb_value *v = sb_graph_value(g, sb_graph_find_value(g, name));

    for (uint32_t u = 0; u < v->n_uses; u++) {
        const sb_node *node = sb_graph_node(g, v->uses[u].node);
        const sb_op_def *op = sb_op_of(node);
        for (uint32_t i = 0; op && op->statistics && i < node->n_in; i++) {
            const sb_parameter *p =
                op->parameters >> i & 1 && node->inputs[i] != SB_NONE
                    ? sb_store_get(store,
                                   sb_graph_value(g, node->inputs[i])->name)
                    : NULL;
            if (p && p->info.trained)
                return true;
        }
    }
    return false;
}

/* Patterns say what is trained; returns how many weights and scales. */
static size_t find_trained(sb_store *store, const sb_graph *g,
                           const sb_learn_options *opt)
{
    size_t n = 0;

    for (size_t i = 0; i < store->n; i++) {
        sb_parameter_info *info = &store->all[i].info;
        info->trained = (opt->n_train == 0 ||
                         find_matches(opt->train, opt->n_train, info->name)) &&
                        !find_matches(opt->freeze, opt->n_freeze, info->name);
    }
    for (size_t i = 0; i < store->n; i++) {
        sb_parameter_info *info = &store->all[i].info;
        if (info->role != SB_PARAMETER_ROLE_STATISTIC)
            n += info->trained != 0;
        else if (!find_matches(opt->freeze, opt->n_freeze, info->name))
            info->trained = find_layer_trained(store, g, info->name);
    }
    return n;
}

static sb_status find_apply(sb_store *store, const sb_graph *g,
                            const sb_learn_options *opt)
{

    for (size_t i = 0; i < opt->n_train; i++)
        SB_TRY(find_check_pattern(store, "train", opt->train[i]));
    for (size_t i = 0; i < opt->n_freeze; i++)
        SB_TRY(find_check_pattern(store, "freeze", opt->freeze[i]));
    for (size_t i = 0; i < store->n; i++) {
        sb_parameter *p = &store->all[i];
        sb_parameter_info *info = &p->info;
        if (info->role == SB_PARAMETER_ROLE_WEIGHT &&
            p->kept[SB_STORE_VALUE].t.rank >= 2)
            info->decay = opt->weight_decay;
        if (info->role == SB_PARAMETER_ROLE_SCALE)
            info->rate = opt->scale_rate;
    }
    for (size_t i = 0; i < opt->n_groups; i++)
        SB_TRY(find_apply_group(store, opt->groups[i]));
    if (find_trained(store, g, opt) == 0)
        return sb_fail(store->ctx, SB_BAD_ARG,
                       "none of the %zu parameters is to be trained; "
                       "parameters are constants of type float that layers "
                       "read",
                       store->n);
    return SB_OK;
}

sb_status sb_store_find(sb_store *store, const sb_graph *graph,
                        const sb_learn_options *opt, const sb_map *roles)
{
    const find_rules rules = {opt, roles};
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_order(graph, &order, &n));
    sb_status status = find_all(store, graph, &rules, order, n);
    sb_free(store->ctx, order);
    SB_TRY(status);
    return find_apply(store, graph, opt);
}
