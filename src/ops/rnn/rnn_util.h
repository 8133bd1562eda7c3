/* rnn_util.h - the loop that RNN, GRU and LSTM share.
 *
 * For each direction the inputs of all steps meet W in one matrix product
 * (plus the biases); then, step by step, the hidden state meets R, and the
 * cell computes the rest row by row:
 *
 *     x_part [S*B, G*H] = X W' + Wb + Rb,   h_part [B, G*H] = h R'
 *
 * with G gates.  A cell is a table row (sb_rnn_cell) with its row function. */
#ifndef SB_OPS_RNN_RNN_UTIL_H
#define SB_OPS_RNN_RNN_UTIL_H

#include "dnn/dnn.h"
#include "ops/infer_util.h"
#include "ops/packed_input.h"

enum { SB_RNN_MAX_ACTS = 3 };

typedef struct sb_rnn_attrs {
    sb_floats activation_alpha, activation_beta;
    sb_strings activations;
    float clip; /* 0: none */
    const char *direction;
    int64_t hidden_size, layout;
    int64_t input_forget;        /* LSTM */
    int64_t linear_before_reset; /* GRU */
} sb_rnn_attrs;

/* clang-format off */
#define SB_RNN_ATTRS                                                           \
    {"activation_alpha", SB_ATTR_FLOATS,                                       \
     offsetof(sb_rnn_attrs, activation_alpha), .i = 0},                        \
    {"activation_beta", SB_ATTR_FLOATS,                                        \
     offsetof(sb_rnn_attrs, activation_beta), .i = 0},                         \
    {"activations", SB_ATTR_STRINGS, offsetof(sb_rnn_attrs, activations),      \
     .i = 0},                                                                  \
    {"clip", SB_ATTR_FLOAT, offsetof(sb_rnn_attrs, clip), .f = 0},             \
    {"direction", SB_ATTR_STRING, offsetof(sb_rnn_attrs, direction),           \
     .s = "forward"},                                                          \
    {"hidden_size", SB_ATTR_INT, offsetof(sb_rnn_attrs, hidden_size), .i = 0}, \
    {"layout", SB_ATTR_INT, offsetof(sb_rnn_attrs, layout), .i = 0}
/* clang-format on */

typedef struct sb_rnn_act sb_rnn_act;

/* An activation over a run of floats. */
struct sb_rnn_act {
    void (*run)(const sb_rnn_act *act, float *v, int64_t n);
    float alpha, beta, clip;
};

/* One direction being run. */
typedef struct sb_rnn_run {
    const struct sb_rnn_state *s;
    const struct sb_rnn_cell *cell;
    const sb_rnn_attrs *attrs;
    const sb_rnn_act *acts;
    float *x_part, *h_part, *h, *c, *extra; /* extra: [B, H] for the GRU */
    const float *r_bias;                    /* Rb of this direction, or NULL */
    const float *peephole;                  /* [3, H] of this direction */
    float *y;                               /* output 0, or NULL */
    int64_t dir, step;
    bool reverse;
    int phase; /* the GRU's row function is called twice a step */
} sb_rnn_run;

typedef struct sb_rnn_cell {
    int gates;
    int n_acts;
    const char *acts[SB_RNN_MAX_ACTS]; /* defaults */
    bool has_c;
    bool is_gru;
    bool rounds; /* weights are bytes, [D, inputs, gates * H], and what meets
                    them is rounded to bytes before (rnn_rounds.c) */
    /* New h (and c) of batch row b; x and h parts are its gates. */
    void (*row)(const sb_rnn_run *run, int64_t b, const float *x, float *gates);
} sb_rnn_cell;

/* A product with some rows of W or R. */
typedef struct sb_rnn_product {
    sb_dnn_gemm *gemm;
    sb_packed_input b;
    int64_t n; /* elements of the left side */
} sb_rnn_product;

typedef struct sb_rnn_state {
    int64_t n_steps, n_batch, n_in, hidden, gates, dirs;
    bool two_phases; /* GRU that resets before the product */
    sb_rnn_act acts[2][SB_RNN_MAX_ACTS];
    const int32_t *lens; /* while running; NULL: all n_steps */
    sb_rnn_product by_w[2], by_r[2], by_rh[2];
    size_t at_x, at_h_part, at_bias, at_h, at_c, at_extra, at_weights,
        at_rounded, at_gemm; /* scratch; weights: W, then R, in float */
} sb_rnn_state;

/* Of LSTM; the last four, parameters of W and R, only where the cell rounds. */
enum {
    SB_RNN_X,
    SB_RNN_W,
    SB_RNN_R,
    SB_RNN_B,
    SB_RNN_LENS,
    SB_RNN_H,
    SB_RNN_C,
    SB_RNN_P,
    SB_RNN_W_SCALE,
    SB_RNN_W_ZERO,
    SB_RNN_R_SCALE,
    SB_RNN_R_ZERO
};

/* infer, prepare, forward and release of rows whose `aux` is the cell. */
sb_status sb_rnn_infer(sb_infer *in);
sb_status sb_rnn_prepare(sb_kernel *k);
sb_status sb_rnn_forward(sb_kernel *k);
void sb_rnn_release(sb_kernel *k);
double sb_rnn_macs(const sb_kernel *k);

/* Of a cell that rounds: are types and sizes of weights and parameters right;
 * the weights as floats, in scratch; `n` floats as bytes would hold them. */
sb_status sb_rnn_rounds_check(const sb_kernel *k);
void sb_rnn_rounds_weights(sb_kernel *k);
void sb_rnn_rounds_values(const float *x, int64_t n, float *out);

/* Clips and applies an activation. */
static inline void sb_rnn_activate(const sb_rnn_act *act, float *v, int64_t n)
{
    if (act->clip > 0)
        for (int64_t i = 0; i < n; i++)
            v[i] = v[i] > act->clip    ? act->clip
                   : v[i] < -act->clip ? -act->clip
                                       : v[i];
    act->run(act, v, n);
}

/* By ONNX name, whatever the case; false if there is none such. */
bool sb_rnn_act_find(const char *name, size_t len, sb_rnn_act *out,
                     bool *takes_alpha, bool *takes_beta);

#endif
