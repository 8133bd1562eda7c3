/* RNN, GRU and LSTM: the cells.  The loop around them is in rnn_util.c. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/matmul/matmul_util.h"
#include "ops/rnn/rnn_grad.h"
#include "ops/tie/tie_rules.h"

static const sb_attr_def rnn_attrs[] = {
    SB_RNN_ATTRS,
    {0},
};

static const sb_attr_def gru_attrs[] = {
    SB_RNN_ATTRS,
    {"linear_before_reset", SB_ATTR_INT,
     offsetof(sb_rnn_attrs, linear_before_reset), .i = 0, .flag = true},
    {0},
};

static const sb_attr_def lstm_attrs[] = {
    SB_RNN_ATTRS,
    {"input_forget", SB_ATTR_INT, offsetof(sb_rnn_attrs, input_forget), .i = 0,
     .flag = true},
    {0},
};

/* h = f(x + h R') */
static void rnn_row(const sb_rnn_run *run, int64_t b, const float *x,
                    float *gates)
{
    int64_t n = run->s->hidden;
    float *h = run->h + b * n;

    for (int64_t i = 0; i < n; i++)
        gates[i] += x[i];
    sb_rnn_activate(&run->acts[0], gates, n);
    for (int64_t i = 0; i < n; i++)
        h[i] = gates[i];
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
        if (after) {
            reset[i] = by_h + (r_bias ? r_bias[i] : 0);
            by_h = r[i] * reset[i];
        }
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

const sb_rnn_cell sb_rnn_cell_rnn = {.gates = 1,
                                     .n_acts = 1,
                                     .acts = {"Tanh"},
                                     .row = rnn_row,
                                     .back = sb_rnn_back_rnn};
const sb_rnn_cell sb_rnn_cell_gru = {.gates = 3,
                                     .n_acts = 2,
                                     .acts = {"Sigmoid", "Tanh"},
                                     .is_gru = true,
                                     .row = gru_row,
                                     .back = sb_rnn_back_gru};
const sb_rnn_cell sb_rnn_cell_lstm = {.gates = 4,
                                      .n_acts = 3,
                                      .acts = {"Sigmoid", "Tanh", "Tanh"},
                                      .has_c = true,
                                      .row = lstm_row,
                                      .back = sb_rnn_back_lstm};

static const sb_rnn_cell rounded_lstm_cell = {
    .gates = 4,
    .n_acts = 3,
    .acts = {"Sigmoid", "Tanh", "Tanh"},
    .has_c = true,
    .rounds = true,
    .row = lstm_row};

/* Weights are [directions, gates * hidden, inputs]. */
static int gate_axis(const sb_node *node)
{
    (void)node;
    return 1;
}

const sb_op_def sb_op_rnn = {
    .name = "RNN",
    .since = 7,
    .quant = SB_ROLE_RECURRENT,
    .weight_axis = gate_axis,
    .parameters = 1u << 1 | 1u << 2 | 1u << 3,
    .in_min = 3,
    .in_max = 6,
    .out_min = 0,
    .out_max = 2,
    .flags = SB_OP_F32,
    .any_type = 1u << 4,
    .attrs_size = sizeof(sb_rnn_attrs),
    .attrs = rnn_attrs,
    .aux = &sb_rnn_cell_rnn,
    .batch = sb_batch_rnn,
    .infer = sb_rnn_infer,
    .prepare = sb_rnn_prepare,
    .forward = sb_rnn_forward,
    .release = sb_rnn_release,
    .grad = sb_grad_rnn,
    .macs = sb_rnn_macs,
    .tie = sb_tie_rnn,
};

const sb_op_def sb_op_gru = {
    .name = "GRU",
    .since = 7,
    .quant = SB_ROLE_RECURRENT,
    .weight_axis = gate_axis,
    .parameters = 1u << 1 | 1u << 2 | 1u << 3,
    .in_min = 3,
    .in_max = 6,
    .out_min = 0,
    .out_max = 2,
    .flags = SB_OP_F32,
    .any_type = 1u << 4,
    .attrs_size = sizeof(sb_rnn_attrs),
    .attrs = gru_attrs,
    .aux = &sb_rnn_cell_gru,
    .batch = sb_batch_rnn,
    .infer = sb_rnn_infer,
    .prepare = sb_rnn_prepare,
    .forward = sb_rnn_forward,
    .release = sb_rnn_release,
    .grad = sb_grad_rnn,
    .macs = sb_rnn_macs,
    .tie = sb_tie_rnn,
};

const sb_op_def sb_op_lstm = {
    .name = "LSTM",
    .since = 7,
    .quant = SB_ROLE_RECURRENT,
    .weight_axis = gate_axis,
    .dynamic = "DynamicQuantizeLSTM",
    .parameters = 1u << 1 | 1u << 2 | 1u << 3,
    .in_min = 3,
    .in_max = 8,
    .out_min = 0,
    .out_max = 3,
    .flags = SB_OP_F32,
    .any_type = 1u << 4,
    .attrs_size = sizeof(sb_rnn_attrs),
    .attrs = lstm_attrs,
    .aux = &sb_rnn_cell_lstm,
    .batch = sb_batch_rnn,
    .infer = sb_rnn_infer,
    .prepare = sb_rnn_prepare,
    .forward = sb_rnn_forward,
    .release = sb_rnn_release,
    .grad = sb_grad_rnn,
    .macs = sb_rnn_macs,
    .tie = sb_tie_rnn,
};

const sb_op_def sb_op_ms_dynamic_quantize_lstm = {
    .name = "DynamicQuantizeLSTM",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 3,
    .in_max = 12,
    .out_min = 0,
    .out_max = 3,
    .flags = SB_OP_F32 | SB_OP_INTEGER,
    .weight_input = SB_RNN_W,
    .weight_axis = sb_last_weight_axis,
    .any_type = 1u << SB_RNN_W | 1u << SB_RNN_R | 1u << SB_RNN_LENS |
                1u << SB_RNN_W_ZERO | 1u << SB_RNN_R_ZERO,
    .attrs_size = sizeof(sb_rnn_attrs),
    .attrs = lstm_attrs,
    .aux = &rounded_lstm_cell,
    .infer = sb_rnn_infer,
    .prepare = sb_rnn_prepare,
    .forward = sb_rnn_forward,
    .release = sb_rnn_release,
    .macs = sb_rnn_macs,
};
