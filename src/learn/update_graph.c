/* What follows a backward pass, as graphs: means of gradients, their norm, and
 * the optimizer's step for each parameter. */
#include "learn/learn_graph.h"

#include "ops/grad/grad.h"

/* An input of the graph with the type of a tensor. */
static sb_status update_input(sb_graph *g, const char *name, const char *part,
                              const sb_tensor *like, sb_value_id *out)
{
    const char *full = sb_arena_printf(g->arena, "%s%s", part, name);

    if (!full)
        return SB_NO_MEMORY;
    SB_TRY(sb_graph_add_value_as(g, full, out));
    sb_type *type = &sb_graph_value(g, *out)->type;
    type->dtype = like->dtype;
    type->shape.rank = like->rank;
    for (int i = 0; i < like->rank; i++)
        type->shape.dim[i] = like->dims[i];
    return sb_graph_add_input(g, *out);
}

static sb_status update_number(sb_graph *g, const char *name, sb_value_id *out)
{
    const sb_tensor scalar = sb_tensor_make(SB_DTYPE_F32, 0, NULL);

    return update_input(g, name, "", &scalar, out);
}

/* What an update goes by. */
static sb_store_kind update_gradient(const sb_learn_options *opt)
{
    return opt->accumulate > 1 ? SB_STORE_MEAN : SB_STORE_GRADIENT;
}

static sb_status update_start(sb_store *store, const char *name,
                              sb_bound_graph *out)
{
    *out = (sb_bound_graph){0};
    return sb_graph_create(store->ctx, name, &out->graph);
}

/* On failure nothing is left of the graph. */
static sb_status update_end(sb_bound_graph *b, sb_status status)
{
    if (status == SB_OK)
        status = sb_graph_infer(b->graph);
    if (status != SB_OK)
        sb_bound_graph_free(b);
    return status;
}

/* ---- update ------------------------------------------------------------- */

typedef struct update_build {
    sb_bound_graph *b;
    const sb_learn_options *opt;
    sb_value_id numbers[SB_UPDATE_NUMBERS];
    sb_value_id decay; /* of averages */
    /* Learning rates of groups: those given out so far. */
    double rate;
    sb_value_id rate_value;
} update_build;

/* An input that is a state, and the kernel's result that goes back to it. */
static sb_status update_keep(update_build *u, sb_value_id in, sb_value_id out,
                             sb_state *state)
{
    if (out != SB_NONE)
        SB_TRY(sb_graph_add_output(u->b->graph, out));
    return sb_bound_graph_bind(u->b, in, out, state);
}

static bool update_same(double a, double b)
{
    return a >= b && a <= b;
}

/* The learning rate of the parameter; neighbors mostly share theirs. */
static sb_value_id update_rate(update_build *u, sb_grad *g, double rate)
{
    sb_value_id lr = u->numbers[SB_UPDATE_RATE];

    if (update_same(rate, 1))
        return lr;
    if (u->rate_value == SB_NONE || !update_same(u->rate, rate)) {
        u->rate = rate;
        u->rate_value = sb_emit2(g, "Mul", lr, sb_grad_scalar(g, lr, rate));
    }
    return u->rate_value;
}

/* Inputs: w, m, v (none for SGD), gradient. */
static sb_status update_emit(update_build *u, const sb_parameter *p,
                             const sb_value_id *in, sb_value_id *out)
{
    const sb_learn_options *opt = u->opt;
    sb_grad g = {.graph = u->b->graph};
    bool sgd = opt->optimizer == SB_OPTIMIZER_SGD;
    bool moment = in[1] != SB_NONE;
    sb_value_id lr = update_rate(u, &g, p->info.rate);
    sb_value_id scale = u->numbers[SB_UPDATE_SCALE];
    const sb_attr sgd_attrs[] = {
        SB_EMIT_FLOAT("momentum", moment ? (float)opt->momentum : 0),
        SB_EMIT_FLOAT("decay", (float)p->info.decay),
        SB_EMIT_INT("nesterov", opt->nesterov != 0)};
    const sb_attr adam_attrs[] = {
        SB_EMIT_FLOAT("beta1", (float)opt->beta1),
        SB_EMIT_FLOAT("beta2", (float)opt->beta2),
        SB_EMIT_FLOAT("epsilon", (float)opt->epsilon),
        SB_EMIT_FLOAT("decay", (float)p->info.decay),
        SB_EMIT_INT("decoupled", opt->optimizer == SB_OPTIMIZER_ADAMW)};

    out[1] = out[2] = SB_NONE;
    if (sgd)
        out[0] =
            sb_emit(&g, &(sb_emit_spec){.op = "SgdStep",
                                        .in = {in[0], in[1], in[3], lr, scale},
                                        .n_in = 5,
                                        .attrs = sgd_attrs,
                                        .n_attrs = SB_COUNT(sgd_attrs),
                                        .n_out = moment ? 2 : 1,
                                        .more_out = out});
    else
        out[0] = sb_emit(
            &g, &(sb_emit_spec){.op = "AdamStep",
                                .in = {in[0], in[1], in[2], in[3], lr,
                                       u->numbers[SB_UPDATE_STEP], scale},
                                .n_in = 7,
                                .attrs = adam_attrs,
                                .n_attrs = SB_COUNT(adam_attrs),
                                .n_out = 3,
                                .more_out = out});
    return g.status;
}

/* The moving average of a value. */
static sb_status update_average(update_build *u, sb_parameter *p,
                                sb_value_id value)
{
    sb_state *s = &p->kept[SB_STORE_AVERAGE];
    sb_grad g = {.graph = u->b->graph};
    sb_value_id old = SB_NONE;

    if (!s->t.data)
        return SB_OK;
    SB_TRY(update_input(u->b->graph, p->info.name, "average:", &s->t, &old));
    sb_value_id next = sb_emit3(&g, "EmaStep", old, value, u->decay);
    SB_TRY(g.status);
    return update_keep(u, old, next, s);
}

static sb_status update_parameter(update_build *u, sb_parameter *p)
{
    static const struct {
        sb_store_kind kind;
        const char *part;
    } parts[] = {{SB_STORE_VALUE, "value:"},
                 {SB_STORE_MOMENTUM, "momentum:"},
                 {SB_STORE_SQUARE, "square:"}};
    sb_graph *g = u->b->graph;
    sb_state *gradient = &p->kept[update_gradient(u->opt)];
    sb_value_id in[4] = {SB_NONE, SB_NONE, SB_NONE, SB_NONE}, out[3];

    for (size_t i = 0; i < SB_COUNT(parts); i++)
        if (sb_parameter_has(p, parts[i].kind))
            SB_TRY(update_input(g, p->info.name, parts[i].part,
                                &p->kept[parts[i].kind].t, &in[i]));
    SB_TRY(update_input(g, p->info.name, "gradient:", &gradient->t, &in[3]));
    SB_TRY(sb_bound_graph_bind(u->b, in[3], SB_NONE, gradient));
    SB_TRY(update_emit(u, p, in, out));
    for (size_t i = 0; i < SB_COUNT(parts); i++)
        if (in[i] != SB_NONE)
            SB_TRY(update_keep(u, in[i], out[i], &p->kept[parts[i].kind]));
    return update_average(u, p, out[0]);
}

/* A statistic has a next value that is taken over before. */
static sb_status update_statistic(update_build *u, sb_parameter *p)
{
    sb_value_id value = SB_NONE;

    if (!sb_parameter_has(p, SB_STORE_AVERAGE) ||
        p->info.role != SB_PARAMETER_ROLE_STATISTIC)
        return SB_OK;
    SB_TRY(update_input(u->b->graph, p->info.name,
                        "value:", &p->kept[SB_STORE_NEXT].t, &value));
    SB_TRY(sb_bound_graph_bind(u->b, value, SB_NONE, &p->kept[SB_STORE_NEXT]));
    return update_average(u, p, value);
}

static sb_status update_build_all(update_build *u, sb_store *store)
{
    static const char *const names[] = {"rate", "step", "scale"};
    sb_graph *g = u->b->graph;

    for (size_t i = 0; i < SB_UPDATE_NUMBERS; i++)
        SB_TRY(update_number(g, names[i], &u->numbers[i]));
    const float decay = (float)u->opt->ema_decay;
    SB_TRY(sb_graph_add_constant(g, "decay", SB_DTYPE_F32, 0, NULL, &decay,
                                 &u->decay));
    for (size_t i = 0; i < store->n; i++)
        if (store->all[i].info.gradient)
            SB_TRY(update_parameter(u, &store->all[i]));
        else if (store->all[i].next_made)
            SB_TRY(update_statistic(u, &store->all[i]));
    return SB_OK;
}

sb_status sb_update_graph_build(sb_store *store, const sb_learn_options *opt,
                                sb_bound_graph *out)
{
    update_build u = {.b = out, .opt = opt, .rate_value = SB_NONE};

    SB_TRY(update_start(store, "update", out));
    return update_end(out, update_build_all(&u, store));
}

/* ---- norm --------------------------------------------------------------- */

static sb_status norm_build_all(sb_store *store, const sb_learn_options *opt,
                                sb_bound_graph *b)
{
    sb_ctx *ctx = store->ctx;
    sb_value_id *in = sb_alloc(ctx, store->n + 1, sizeof *in);
    sb_grad g = {.graph = b->graph};
    sb_status status = in ? SB_OK : SB_NO_MEMORY;
    size_t n = 0;

    for (size_t i = 0; i < store->n && status == SB_OK; i++) {
        sb_parameter *p = &store->all[i];
        sb_state *gradient = &p->kept[update_gradient(opt)];
        if (!p->info.gradient)
            continue;
        status = update_input(b->graph, p->info.name, "", &gradient->t, &in[n]);
        if (status == SB_OK)
            status = sb_bound_graph_bind(b, in[n++], SB_NONE, gradient);
    }
    sb_value_id sum = SB_NONE;
    if (status == SB_OK)
        sum = sb_emit(
            &g, &(sb_emit_spec){.op = "SumSquares", .more_in = in, .n_in = n});
    if (status == SB_OK)
        status = g.status;
    if (status == SB_OK)
        status = sb_graph_add_output(b->graph, sum);
    sb_free(ctx, in);
    return status;
}

sb_status sb_norm_graph_build(sb_store *store, const sb_learn_options *opt,
                              sb_bound_graph *out)
{
    SB_TRY(update_start(store, "norm", out));
    return update_end(out, norm_build_all(store, opt, out));
}

/* ---- accumulate --------------------------------------------------------- */

/* mean <- w mean + (1 - w) gradient: with w = (i - 1) / i the mean of i. */
static sb_status accumulate_parameter(sb_bound_graph *b, sb_parameter *p,
                                      sb_value_id weight)
{
    sb_grad g = {.graph = b->graph};
    sb_state *mean = &p->kept[SB_STORE_MEAN];
    sb_state *gradient = &p->kept[SB_STORE_GRADIENT];
    sb_value_id old = SB_NONE, fresh = SB_NONE;

    SB_TRY(update_input(b->graph, p->info.name, "mean:", &mean->t, &old));
    SB_TRY(update_input(b->graph, p->info.name, "gradient:", &mean->t, &fresh));
    sb_value_id next = sb_emit3(&g, "EmaStep", old, fresh, weight);
    SB_TRY(g.status);
    SB_TRY(sb_graph_add_output(b->graph, next));
    SB_TRY(sb_bound_graph_bind(b, fresh, SB_NONE, gradient));
    return sb_bound_graph_bind(b, old, next, mean);
}

static sb_status accumulate_build_all(sb_store *store, sb_bound_graph *b)
{
    sb_value_id weight = SB_NONE;

    SB_TRY(update_number(b->graph, "weight", &weight));
    for (size_t i = 0; i < store->n; i++)
        if (store->all[i].info.gradient)
            SB_TRY(accumulate_parameter(b, &store->all[i], weight));
    return SB_OK;
}

sb_status sb_accumulate_graph_build(sb_store *store, sb_bound_graph *out)
{
    SB_TRY(update_start(store, "accumulate", out));
    return update_end(out, accumulate_build_all(store, out));
}
