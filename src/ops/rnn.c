/* RNN, GRU and LSTM: the cells.  The loop around them is in rnn_util.c. */
#include "ops/rnn_util.h"

static const sb_attr_def rnn_attrs[] = {
    SB_RNN_ATTRS,
    {0},
};

static const sb_attr_def gru_attrs[] = {
    SB_RNN_ATTRS,
    {"linear_before_reset", SB_ATTR_INT,
     offsetof(sb_rnn_attrs, linear_before_reset), .i = 0},
    {0},
};

static const sb_attr_def lstm_attrs[] = {
    SB_RNN_ATTRS,
    {"input_forget", SB_ATTR_INT, offsetof(sb_rnn_attrs, input_forget), .i = 0},
    {0},
};

/* h = f(x + h R') */
static void rnn_row(const sb_rnn_run *run, int64_t b, const float *x,
                    float *gates)
{
    int64_t n = run->s->hidden;
    float *h = run->h + b * n;

    for (int64_t i = 0; i < n; i++)
        h[i] = x[i] + gates[i];
    sb_rnn_activate(&run->acts[0], h, n);
}

/* z, r = f(x + h R');  n = g(x + r (h R' + Rb)), or g(x + (r h) R' + Rb);
 * h = (1 - z) n + z h */
static void gru_row(const sb_rnn_run *run, int64_t b, const float *x,
                    float *gates)
{
    int64_t n = run->s->hidden;
    float *h = run->h + b * n, *z = gates, *r = gates + n, *new = gates + 2 * n;
    float *reset = run->extra + b * n;
    const float *r_bias = run->r_bias ? run->r_bias + 2 * n : NULL;
    bool after = !run->s->two_phases;

    if (run->phase == 0) {
        for (int64_t i = 0; i < 2 * n; i++)
            gates[i] += x[i];
        sb_rnn_activate(&run->acts[0], gates, 2 * n);
        for (int64_t i = 0; i < n && !after; i++)
            reset[i] = r[i] * h[i];
        if (!after)
            return;
    }
    for (int64_t i = 0; i < n; i++) {
        float by_h = new[i];
        if (after)
            by_h = r[i] * (by_h + (r_bias ? r_bias[i] : 0));
        new[i] = x[2 * n + i] + by_h;
    }
    sb_rnn_activate(&run->acts[1], new, n);
    for (int64_t i = 0; i < n; i++)
        h[i] = (1 - z[i]) * new[i] + z[i] * h[i];
}

/* i, f = f(x + h R' + p c);  c = f c + i g(x + h R');  o = f(x + h R' + p c);
 * h = o h(c), where ONNX Runtime does not clip c.  Gates in memory: i, o, f, c;
 * peepholes: i, o, f. */
static void lstm_row(const sb_rnn_run *run, int64_t b, const float *x,
                     float *gates)
{
    int64_t n = run->s->hidden;
    float *h = run->h + b * n, *c = run->c + b * n;
    float *in = gates, *out = gates + n, *forget = gates + 2 * n;
    float *cell = gates + 3 * n;
    const float *p = run->peephole;

    for (int64_t i = 0; i < 4 * n; i++)
        gates[i] += x[i];
    for (int64_t i = 0; p && i < n; i++) {
        in[i] += p[i] * c[i];
        forget[i] += p[2 * n + i] * c[i];
    }
    sb_rnn_activate(&run->acts[0], in, n);
    if (run->attrs->input_forget)
        for (int64_t i = 0; i < n; i++)
            forget[i] = 1 - in[i];
    else
        sb_rnn_activate(&run->acts[0], forget, n);
    sb_rnn_activate(&run->acts[1], cell, n);
    for (int64_t i = 0; i < n; i++)
        c[i] = forget[i] * c[i] + in[i] * cell[i];
    for (int64_t i = 0; p && i < n; i++)
        out[i] += p[n + i] * c[i];
    sb_rnn_activate(&run->acts[0], out, n);
    for (int64_t i = 0; i < n; i++)
        h[i] = c[i];
    run->acts[2].run(&run->acts[2], h, n);
    for (int64_t i = 0; i < n; i++)
        h[i] *= out[i];
}

static const sb_rnn_cell rnn_cell = {
    .gates = 1, .n_acts = 1, .acts = {"Tanh"}, .row = rnn_row};
static const sb_rnn_cell gru_cell = {.gates = 3,
                                     .n_acts = 2,
                                     .acts = {"Sigmoid", "Tanh"},
                                     .is_gru = true,
                                     .row = gru_row};
static const sb_rnn_cell lstm_cell = {.gates = 4,
                                      .n_acts = 3,
                                      .acts = {"Sigmoid", "Tanh", "Tanh"},
                                      .has_c = true,
                                      .row = lstm_row};

const sb_op_def sb_op_rnn = {
    .name = "RNN",
    .since = 7,
    .in_min = 3,
    .in_max = 6,
    .out_min = 0,
    .out_max = 2,
    .flags = SB_OP_F32,
    .any_type = 1u << 4,
    .attrs_size = sizeof(sb_rnn_attrs),
    .attrs = rnn_attrs,
    .aux = &rnn_cell,
    .infer = sb_rnn_infer,
    .prepare = sb_rnn_prepare,
    .forward = sb_rnn_forward,
    .release = sb_rnn_release,
    .macs = sb_rnn_macs,
};

const sb_op_def sb_op_gru = {
    .name = "GRU",
    .since = 7,
    .in_min = 3,
    .in_max = 6,
    .out_min = 0,
    .out_max = 2,
    .flags = SB_OP_F32,
    .any_type = 1u << 4,
    .attrs_size = sizeof(sb_rnn_attrs),
    .attrs = gru_attrs,
    .aux = &gru_cell,
    .infer = sb_rnn_infer,
    .prepare = sb_rnn_prepare,
    .forward = sb_rnn_forward,
    .release = sb_rnn_release,
    .macs = sb_rnn_macs,
};

const sb_op_def sb_op_lstm = {
    .name = "LSTM",
    .since = 7,
    .in_min = 3,
    .in_max = 8,
    .out_min = 0,
    .out_max = 3,
    .flags = SB_OP_F32,
    .any_type = 1u << 4,
    .attrs_size = sizeof(sb_rnn_attrs),
    .attrs = lstm_attrs,
    .aux = &lstm_cell,
    .infer = sb_rnn_infer,
    .prepare = sb_rnn_prepare,
    .forward = sb_rnn_forward,
    .release = sb_rnn_release,
    .macs = sb_rnn_macs,
};
