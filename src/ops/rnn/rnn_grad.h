/* rnn_grad.h - gradients of RNN, GRU and LSTM through time.
 *
 * The kernel runs a direction again, keeps the gates of each step, and goes
 * back step by step.  What it leaves are the gradients of the gates before
 * their activations, a row for each (step, sample); products of these with X,
 * W and h are ordinary nodes (ops/grad/grad_rnn.c). */
#ifndef SB_OPS_RNN_RNN_GRAD_H
#define SB_OPS_RNN_RNN_GRAD_H

#include "ops/rnn/rnn_util.h"

/* Behind the inputs of LSTM: gradients of its results.  SECOND of the GRU: of
 * the gates as the product with R sees them [D, S*B, G*H], or, where it resets
 * before the product, r h [D, S*B, H]. */
enum { SB_RNN_DY = 8, SB_RNN_DH, SB_RNN_DC, SB_RNN_GRAD_INPUTS };
enum {
    SB_RNN_OUT_GATES, /* [D, S*B, G*H] */
    SB_RNN_OUT_H,     /* [D, S*B, H]: h before each step */
    SB_RNN_OUT_DH,    /* as initial_h */
    SB_RNN_OUT_SECOND,
    SB_RNN_OUT_DC = SB_RNN_OUT_SECOND, /* of the LSTM */
    SB_RNN_OUT_DP,
    SB_RNN_GRAD_OUTPUTS
};

/* One direction on its way back. */
struct sb_rnn_back {
    const sb_rnn_state *s;
    const sb_rnn_attrs *attrs;
    const sb_rnn_act *acts;
    const float *peephole;
    sb_rnn_kept kept;
    float *dh, *dc;  /* [B, H], of the states behind a step, then before it */
    float *by_r;     /* [B, H], what came back through R */
    float *by_gates; /* [B, G*H], what goes back through R; also `gates` */
    float *gates;    /* [S*B, G*H], result */
    float *by_reset; /* [S*B, G*H], result of a GRU that resets behind the
                        product, NULL of others */
    float *dp;       /* [B, 3, H], summed over steps; NULL: not wanted */
    float *room;     /* [B, 2, H] */
    int64_t dir, step;
    bool reverse;
    int phase;
};

/* Of batch row b at a row of X; dh holds the gradient of the new h. */
void sb_rnn_back_rnn(const sb_rnn_back *back, int64_t b, int64_t row);
void sb_rnn_back_gru(const sb_rnn_back *back, int64_t b, int64_t row);
void sb_rnn_back_lstm(const sb_rnn_back *back, int64_t b, int64_t row);

#endif
