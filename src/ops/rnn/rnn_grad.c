/* RnnGrad, GruGrad and LstmGrad: the way back through time (rnn_grad.h). */
#include "ops/rnn/rnn_grad.h"

#include <string.h>

#include "base/threads.h"

typedef struct rnn_grad_state {
    sb_rnn_state run; /* first: what rnn_util.c takes k->state for */
    sb_dnn_gemm *by_r, *by_rh;
    size_t at_gates, at_c, at_dh, at_dc, at_by_r, at_by_gates, at_extra, at_dp,
        at_room, at_gemm; /* scratch */
} rnn_grad_state;

static const sb_attr_def attrs[] = {
    SB_RNN_ATTRS,
    {"input_forget", SB_ATTR_INT, offsetof(sb_rnn_attrs, input_forget), .i = 0,
     .flag = true},
    {"linear_before_reset", SB_ATTR_INT,
     offsetof(sb_rnn_attrs, linear_before_reset), .i = 0, .flag = true},
    {0},
};

static sb_status rnn_grad_infer(sb_infer *in)
{
    const sb_rnn_attrs *a = in->attrs;
    const sb_rnn_cell *cell = sb_op_of(in->node)->aux;
    sb_dtype dtype = in->in[SB_RNN_X]->type.dtype;
    bool before = cell->is_gru && !a->linear_before_reset;
    sb_rnn_shapes s;

    SB_TRY(sb_rnn_shapes_of(in, &s));
    SB_TRY(sb_rnn_check_dims(in, SB_RNN_DY, 4, s.y.dim));
    SB_TRY(sb_rnn_check_dims(in, SB_RNN_DH, 3, s.state.dim));
    SB_TRY(sb_rnn_check_dims(in, SB_RNN_DC, 3, s.state.dim));
    const sb_shape gates = {
        3, {s.dirs, s.rows, sb_dim_mul(s.hidden, cell->gates)}};
    const sb_shape h = {3, {s.dirs, s.rows, s.hidden}};
    const sb_shape p = {2, {s.dirs, sb_dim_mul(s.hidden, 3)}};
    sb_infer_set(in, SB_RNN_OUT_GATES, dtype, &gates);
    sb_infer_set(in, SB_RNN_OUT_H, dtype, &h);
    sb_infer_set(in, SB_RNN_OUT_DH, dtype, &s.state);
    sb_infer_set(in, SB_RNN_OUT_SECOND, dtype,
                 cell->has_c ? &s.state
                 : before    ? &h
                             : &gates);
    sb_infer_set(in, SB_RNN_OUT_DP, dtype, &p);
    return SB_OK;
}

/* c [B, H] = a [B, k] R, where a is part of [B, G*H]. */
static sb_status rnn_grad_product(const sb_kernel *k, int64_t depth,
                                  sb_dnn_gemm **out)
{
    const sb_rnn_state *s = k->state;
    const sb_dnn_gemm_desc d = {.what = sb_node_label(k->graph, k->node),
                                .m = s->n_batch,
                                .n = s->hidden,
                                .k = depth,
                                .a_row = s->gates * s->hidden,
                                .a_col = 1,
                                .b_row = s->hidden,
                                .b_col = 1,
                                .c_row = s->hidden};

    return sb_dnn_gemm_create(k->ctx, &d, out);
}

static size_t rnn_grad_most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static sb_status rnn_grad_prepare(sb_kernel *k)
{
    rnn_grad_state *g = sb_alloc(k->ctx, 1, sizeof *g);

    if (!g)
        return SB_NO_MEMORY;
    k->state = g;
    for (uint32_t i = 0; i < k->n_out; i++)
        if (!k->out[i])
            return sb_kernel_fail(k, SB_BAD_MODEL, "result %u is missing", i);
    sb_rnn_state *s = &g->run;
    SB_TRY(sb_rnn_setup(k, s));
    k->packed &= ~(1u << SB_RNN_R); /* the way back reads it as it is */
    int64_t depth = s->two_phases ? 2 : s->gates;
    SB_TRY(rnn_grad_product(k, depth * s->hidden, &g->by_r));
    if (s->two_phases)
        SB_TRY(rnn_grad_product(k, s->hidden, &g->by_rh));
    size_t total = k->scratch_size;
    total = (total + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    int64_t state = s->n_batch * s->hidden, all = s->n_steps * state;
    g->at_gates = sb_rnn_room(&total, all * s->gates);
    g->at_c = sb_rnn_room(&total, all);
    g->at_extra = sb_rnn_room(&total, all);
    g->at_dh = sb_rnn_room(&total, state);
    g->at_dc = sb_rnn_room(&total, state);
    g->at_by_r = sb_rnn_room(&total, state);
    g->at_by_gates = sb_rnn_room(&total, state * s->gates);
    g->at_dp = sb_rnn_room(&total, state * 3);
    g->at_room = sb_rnn_room(&total, state * 2);
    g->at_gemm = total;
    k->scratch_size =
        total + rnn_grad_most(sb_dnn_gemm_scratch(g->by_r),
                              g->by_rh ? sb_dnn_gemm_scratch(g->by_rh) : 0);
    return SB_OK;
}

static void rnn_grad_release(sb_kernel *k)
{
    rnn_grad_state *g = k->state;

    if (g) {
        sb_dnn_gemm_free(g->by_r);
        sb_dnn_gemm_free(g->by_rh);
        sb_rnn_setup_free(&g->run);
    }
    sb_free(k->ctx, g);
}

/* ---- running ------------------------------------------------------------ */

typedef struct rnn_grad_job {
    sb_rnn_back back;
    const sb_rnn_cell *cell;
    const float *dy; /* NULL: none */
} rnn_grad_job;

/* Adds what comes from Y and through R, and calls the cell. */
static void rnn_grad_rows(void *arg, size_t begin, size_t end)
{
    const rnn_grad_job *job = arg;
    const sb_rnn_back *back = &job->back;
    const sb_rnn_state *s = back->s;
    int64_t n = s->hidden, layout = back->attrs->layout;

    for (int64_t b = (int64_t)begin; b < (int64_t)end; b++) {
        int64_t t = sb_rnn_time(s, back->reverse, back->step, b);
        float *dh = back->dh + b * n, *by_r = back->by_r + b * n;

        if (t < 0) {
            memset(back->by_gates + b * s->gates * n, 0,
                   (size_t)(s->gates * n) * sizeof(float));
            continue;
        }
        if (back->phase == 0) {
            const float *dy =
                job->dy ? job->dy + sb_rnn_y_row(s, layout, t, back->dir, b) * n
                        : NULL;
            for (int64_t i = 0; i < n; i++)
                dh[i] += by_r[i] + (dy ? dy[i] : 0);
        }
        job->cell->back(back, b, sb_rnn_x_row(s, layout, t, b));
    }
}

static sb_status rnn_grad_step(sb_kernel *k, rnn_grad_job *job)
{
    const rnn_grad_state *g = k->state;
    const sb_rnn_state *s = &g->run;
    sb_rnn_back *back = &job->back;
    int64_t n = s->hidden;
    size_t grain = (size_t)(1024 / (n + 1) + 1);
    const float *r =
        (const float *)k->in[SB_RNN_R]->data + back->dir * s->gates * n * n;
    sb_dnn_gemm_args args = {.a = back->by_gates,
                             .b = r,
                             .c = back->by_r,
                             .scratch = (char *)k->scratch + g->at_gemm};

    back->phase = 0;
    sb_parallel_for(k->ctx, (size_t)s->n_batch, grain, rnn_grad_rows, job);
    if (!s->two_phases)
        return sb_dnn_gemm_run(g->by_r, &args);
    args.a = back->by_gates + 2 * n;
    args.b = r + 2 * n * n;
    SB_TRY(sb_dnn_gemm_run(g->by_rh, &args));
    back->phase = 1;
    sb_parallel_for(k->ctx, (size_t)s->n_batch, grain, rnn_grad_rows, job);
    args.a = back->by_gates;
    args.b = r;
    return sb_dnn_gemm_run(g->by_r, &args);
}

/* Sums over samples, in their order. */
static void rnn_grad_peepholes(const sb_kernel *k, const sb_rnn_back *back)
{
    const sb_rnn_state *s = back->s;
    sb_tensor *out = sb_kernel_out(k, SB_RNN_OUT_DP);
    int64_t n = 3 * s->hidden;

    if (!back->dp || !out)
        return;
    float *dp = (float *)out->data + back->dir * n;
    memset(dp, 0, (size_t)n * sizeof *dp);
    for (int64_t b = 0; b < s->n_batch; b++)
        for (int64_t i = 0; i < n; i++)
            dp[i] += back->dp[b * n + i];
}

/* Part `dir` of a result of rows. */
static float *rnn_grad_out(const sb_kernel *k, uint32_t i, int64_t dir)
{
    const sb_rnn_state *s = k->state;
    sb_tensor *t = sb_kernel_out(k, i);

    return t ? (float *)t->data + sb_tensor_count(t) / s->dirs * dir : NULL;
}

static sb_status rnn_grad_back(sb_kernel *k, rnn_grad_job *job, int64_t n_steps)
{
    sb_rnn_back *back = &job->back;
    const sb_rnn_state *s = back->s;
    size_t state = (size_t)(s->n_batch * s->hidden) * sizeof(float);

    sb_rnn_copy_state(k, back->dir, back->dh, sb_kernel_in(k, SB_RNN_DH),
                      false);
    sb_rnn_copy_state(k, back->dir, back->dc, sb_kernel_in(k, SB_RNN_DC),
                      false);
    memset(back->by_r, 0, state);
    if (back->dp)
        memset(back->dp, 0, 3 * state);
    for (back->step = n_steps; back->step-- > 0;) {
        SB_TRY(sb_ctx_poll(k->ctx));
        SB_TRY(rnn_grad_step(k, job));
    }
    for (int64_t i = 0; i < s->n_batch * s->hidden; i++)
        back->dh[i] += back->by_r[i];
    sb_rnn_copy_state(k, back->dir, back->dh, sb_kernel_out(k, SB_RNN_OUT_DH),
                      true);
    if (job->cell->has_c)
        sb_rnn_copy_state(k, back->dir, back->dc,
                          sb_kernel_out(k, SB_RNN_OUT_DC), true);
    rnn_grad_peepholes(k, back);
    return SB_OK;
}

static sb_status rnn_grad_direction(sb_kernel *k, int64_t dir, int64_t n_steps)
{
    const rnn_grad_state *g = k->state;
    const sb_rnn_state *s = &g->run;
    const sb_rnn_cell *cell = k->op->aux;
    const sb_tensor *dy = sb_kernel_in(k, SB_RNN_DY);
    const sb_tensor *p = sb_kernel_in(k, SB_RNN_P);
    sb_tensor *const none[3] = {NULL, NULL, NULL};
    char *scratch = k->scratch;
    float *second =
        cell->is_gru ? rnn_grad_out(k, SB_RNN_OUT_SECOND, dir) : NULL;
    rnn_grad_job job = {
        .cell = cell,
        .dy = dy ? dy->data : NULL,
        .back = {
            .s = s,
            .attrs = k->attrs,
            .acts = s->acts[dir],
            .peephole = p ? (const float *)p->data + dir * 3 * s->hidden : NULL,
            .kept = {.gates = (float *)(scratch + g->at_gates),
                     .h = rnn_grad_out(k, SB_RNN_OUT_H, dir),
                     .c = cell->has_c ? (float *)(scratch + g->at_c) : NULL,
                     .extra = !cell->is_gru ? NULL
                              : s->two_phases
                                  ? second
                                  : (float *)(scratch + g->at_extra)},
            .dh = (float *)(scratch + g->at_dh),
            .dc = (float *)(scratch + g->at_dc),
            .by_r = (float *)(scratch + g->at_by_r),
            .by_gates = (float *)(scratch + g->at_by_gates),
            .gates = rnn_grad_out(k, SB_RNN_OUT_GATES, dir),
            .by_reset = s->two_phases ? NULL : second,
            .dp = p ? (float *)(scratch + g->at_dp) : NULL,
            .room = (float *)(scratch + g->at_room),
            .dir = dir,
            .reverse = sb_rnn_reverses(k->attrs, dir)}};

    SB_TRY(sb_rnn_direction(k, dir, n_steps, none, &job.back.kept));
    return rnn_grad_back(k, &job, n_steps);
}

static sb_status rnn_grad_forward(sb_kernel *k)
{
    const sb_rnn_state *s = k->state;
    const sb_rnn_cell *cell = k->op->aux;
    int64_t n_steps;

    SB_TRY(sb_rnn_lengths(k, &n_steps));
    /* Steps behind the end of a sample have no gradient. */
    for (uint32_t i = 0; s->lens && i <= SB_RNN_OUT_SECOND; i++) {
        sb_tensor *t = sb_kernel_out(k, i);
        if (t && (i < SB_RNN_OUT_DH || cell->is_gru))
            memset(t->data, 0, sb_tensor_bytes(t));
    }
    for (int64_t d = 0; d < s->dirs; d++)
        SB_TRY(rnn_grad_direction(k, d, n_steps));
    return SB_OK;
}

/* What the three rows share; `n` results. */
#define RNN_GRAD_ROW(cell, n)                                          \
    .since = 1, .in_min = SB_RNN_B, .in_max = SB_RNN_GRAD_INPUTS,      \
    .out_min = n, .out_max = n, .flags = SB_OP_F32,                    \
    .any_type = 1u << SB_RNN_LENS, .attrs_size = sizeof(sb_rnn_attrs), \
    .attrs = attrs, .aux = &(cell), .infer = rnn_grad_infer,           \
    .prepare = rnn_grad_prepare, .forward = rnn_grad_forward,          \
    .release = rnn_grad_release

const sb_op_def sb_op_rnn_grad = {
    .name = "RnnGrad",
    .domain = SB_FUSED_DOMAIN,
    RNN_GRAD_ROW(sb_rnn_cell_rnn, SB_RNN_OUT_SECOND),
};

const sb_op_def sb_op_gru_grad = {
    .name = "GruGrad",
    .domain = SB_FUSED_DOMAIN,
    RNN_GRAD_ROW(sb_rnn_cell_gru, SB_RNN_OUT_DP),
};

const sb_op_def sb_op_lstm_grad = {
    .name = "LstmGrad",
    .domain = SB_FUSED_DOMAIN,
    RNN_GRAD_ROW(sb_rnn_cell_lstm, SB_RNN_GRAD_OUTPUTS),
};
