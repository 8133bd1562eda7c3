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
    /* d times the derivative where the result is y. */
    void (*back)(const sb_rnn_act *act, const float *y, float *d, int64_t n);
    float alpha, beta, clip;
};

/* What one direction leaves for its gradient, a row for each (step, sample);
 * NULL: nothing. */
typedef struct sb_rnn_kept {
    float *gates; /* [S*B, G*H], activated */
    float *h, *c; /* [S*B, H], before the step; c of the LSTM */
    float *extra; /* [S*B, H], of the GRU: as in sb_rnn_run */
} sb_rnn_kept;

/* One direction being run. */
typedef struct sb_rnn_run {
    const struct sb_rnn_state *s;
    const struct sb_rnn_cell *cell;
    const sb_rnn_attrs *attrs;
    const sb_rnn_act *acts;
    float *x_part, *h_part, *h, *c;
    float *extra; /* [B, H], of the GRU: r h, or what r is multiplied with */
    const float *r_bias;   /* Rb of this direction, or NULL */
    const float *peephole; /* [3, H] of this direction */
    float *y;              /* output 0, or NULL */
    int64_t dir, step;
    bool reverse;
    int phase; /* the GRU's row function is called twice a step */
    sb_rnn_kept kept;
} sb_rnn_run;

typedef struct sb_rnn_back sb_rnn_back;

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
    /* The gradient of that (rnn_grad.h). */
    void (*back)(const sb_rnn_back *back, int64_t b, int64_t row);
} sb_rnn_cell;

extern const sb_rnn_cell sb_rnn_cell_rnn, sb_rnn_cell_gru, sb_rnn_cell_lstm;

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

/* What follows from the inputs, after they were checked. */
typedef struct sb_rnn_shapes {
    sb_shape y, state;
    sb_dim dirs, rows, hidden; /* rows: steps times samples */
} sb_rnn_shapes;
sb_status sb_rnn_shapes_of(const sb_infer *in, sb_rnn_shapes *out);
/* Input i must have these dimensions, as far as both are known. */
sb_status sb_rnn_check_dims(const sb_infer *in, uint32_t i, int rank,
                            const sb_dim *want);

/* The parts of these that gradients use: prepares into `s`, which is all
 * zeros and k->state; how many steps there are; one direction, with results of
 * the three outputs, or NULL for those that are not wanted. */
sb_status sb_rnn_setup(sb_kernel *k, sb_rnn_state *s);
sb_status sb_rnn_lengths(sb_kernel *k, int64_t *n_steps);
sb_status sb_rnn_direction(sb_kernel *k, int64_t dir, int64_t n_steps,
                           sb_tensor *const out[3], const sb_rnn_kept *kept);
void sb_rnn_setup_free(sb_rnn_state *s);
/* A state [D, B, H] (or [B, D, H]) of one direction into [B, H] of our own,
 * zeros if there is none; or out of it. */
void sb_rnn_copy_state(const sb_kernel *k, int64_t dir, float *own,
                       sb_tensor *t, bool out);
bool sb_rnn_reverses(const sb_rnn_attrs *a, int64_t dir);
/* Room for `count` floats at the end of the scratch. */
size_t sb_rnn_room(size_t *total, int64_t count);

/* Place of (step, sample) among the rows of X, and among those of Y. */
static inline int64_t sb_rnn_x_row(const sb_rnn_state *s, int64_t layout,
                                   int64_t t, int64_t b)
{
    return layout ? b * s->n_steps + t : t * s->n_batch + b;
}

static inline int64_t sb_rnn_y_row(const sb_rnn_state *s, int64_t layout,
                                   int64_t t, int64_t dir, int64_t b)
{
    return layout ? (b * s->n_steps + t) * s->dirs + dir
                  : (t * s->dirs + dir) * s->n_batch + b;
}

/* The step of sample b that is the `step`th to be run; -1: it has ended. */
static inline int64_t sb_rnn_time(const sb_rnn_state *s, bool reverse,
                                  int64_t step, int64_t b)
{
    int64_t len = s->lens ? s->lens[b] : s->n_steps;

    return step >= len ? -1 : reverse ? len - 1 - step : step;
}

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
