/* Gradients of the cells of rnn.c, for one row of one step.
 *
 * Derivatives of activations come from their results, the gates that were
 * kept.  On return dh holds what goes on to the step before without R. */
#include <string.h>

#include "ops/rnn/rnn_grad.h"

void sb_rnn_back_rnn(const sb_rnn_back *back, int64_t b, int64_t row)
{
    int64_t n = back->s->hidden;
    float *dh = back->dh + b * n, *d = back->by_gates + b * n;

    memcpy(d, dh, (size_t)n * sizeof *d);
    back->acts[0].back(&back->acts[0], back->kept.gates + row * n, d, n);
    memcpy(back->gates + row * n, d, (size_t)n * sizeof *d);
    memset(dh, 0, (size_t)n * sizeof *dh);
}

/* h' = (1 - z) m + z h:  of z and of m before their activations. */
static void gru_back_new(const sb_rnn_back *back, int64_t b, int64_t row)
{
    int64_t n = back->s->hidden;
    const float *z = back->kept.gates + row * 3 * n, *m = z + 2 * n;
    const float *dh = back->dh + b * n, *h = back->kept.h + row * n;
    float *dz = back->by_gates + b * 3 * n, *dm = dz + 2 * n;

    for (int64_t i = 0; i < n; i++) {
        dz[i] = dh[i] * (h[i] - m[i]);
        dm[i] = dh[i] * (1 - z[i]);
    }
    back->acts[0].back(&back->acts[0], z, dz, n);
    back->acts[1].back(&back->acts[1], m, dm, n);
}

/* m = g(x + r q), q = h R' + Rb; or, in two phases, m = g(x + (r h) R'): then
 * by_r holds the gradient of r h, which is behind R. */
void sb_rnn_back_gru(const sb_rnn_back *back, int64_t b, int64_t row)
{
    int64_t n = back->s->hidden;
    const float *z = back->kept.gates + row * 3 * n, *r = z + n;
    float *dh = back->dh + b * n;
    float *d = back->by_gates + b * 3 * n, *dr = d + n, *dm = d + 2 * n;
    size_t bytes = (size_t)(3 * n) * sizeof *d;

    if (back->phase == 0)
        gru_back_new(back, b, row);
    if (back->by_reset) {
        const float *q = back->kept.extra + row * n;
        for (int64_t i = 0; i < n; i++)
            dr[i] = dm[i] * q[i];
        back->acts[0].back(&back->acts[0], r, dr, n);
        memcpy(back->gates + row * 3 * n, d, bytes);
        for (int64_t i = 0; i < n; i++) {
            dm[i] *= r[i];
            dh[i] *= z[i];
        }
        memcpy(back->by_reset + row * 3 * n, d, bytes);
        return;
    }
    if (back->phase == 0)
        return;
    const float *h = back->kept.h + row * n;
    float *drh = back->by_r + b * n;
    for (int64_t i = 0; i < n; i++) {
        dr[i] = drh[i] * h[i];
        dh[i] = dh[i] * z[i] + drh[i] * r[i];
    }
    back->acts[0].back(&back->acts[0], r, dr, n);
    memcpy(back->gates + row * 3 * n, d, bytes);
}

/* Adds to the gradients of the peepholes, and to dc what goes through them;
 * `c` is behind the step, `old` before it. */
static void lstm_back_peepholes(const sb_rnn_back *back, int64_t b,
                                const float *d, const float *c,
                                const float *old)
{
    int64_t n = back->s->hidden;
    const float *p = back->peephole;
    float *dc = back->dc + b * n, *dp = back->dp ? back->dp + b * 3 * n : NULL;

    for (int64_t i = 0; p && i < n; i++)
        dc[i] += p[i] * d[i] + p[2 * n + i] * d[2 * n + i];
    for (int64_t i = 0; dp && i < n; i++) {
        dp[i] += d[i] * old[i];
        dp[n + i] += d[n + i] * c[i];
        dp[2 * n + i] += d[2 * n + i] * old[i];
    }
}

/* Of o before its activation, and dc with what comes through h = o h(c). */
static void lstm_back_output(const sb_rnn_back *back, int64_t b,
                             const float *out, float *c, float *hc)
{
    int64_t n = back->s->hidden;
    const sb_rnn_act *last = &back->acts[2];
    float *dh = back->dh + b * n, *dc = back->dc + b * n;
    float *d_out = back->by_gates + b * 4 * n + n;

    memcpy(hc, c, (size_t)n * sizeof *hc);
    last->run(last, hc, n);
    for (int64_t i = 0; i < n; i++) {
        d_out[i] = dh[i] * hc[i];
        dh[i] *= out[i];
    }
    back->acts[0].back(&back->acts[0], out, d_out, n);
    last->back(last, hc, dh, n);
    for (int64_t i = 0; i < n; i++)
        dc[i] += dh[i];
    for (int64_t i = 0; back->peephole && i < n; i++)
        dc[i] += back->peephole[n + i] * d_out[i];
    memset(dh, 0, (size_t)n * sizeof *dh);
}

void sb_rnn_back_lstm(const sb_rnn_back *back, int64_t b, int64_t row)
{
    int64_t n = back->s->hidden;
    const float *in = back->kept.gates + row * 4 * n, *out = in + n;
    const float *forget = out + n, *cell = forget + n;
    const float *old = back->kept.c + row * n;
    float *dc = back->dc + b * n, *d = back->by_gates + b * 4 * n;
    float *d_forget = d + 2 * n, *d_cell = d + 3 * n;
    float *c = back->room + b * 2 * n, *hc = c + n;

    for (int64_t i = 0; i < n; i++)
        c[i] = forget[i] * old[i] + in[i] * cell[i];
    lstm_back_output(back, b, out, c, hc);
    for (int64_t i = 0; i < n; i++) {
        d[i] = dc[i] * cell[i];
        d_forget[i] = dc[i] * old[i];
        d_cell[i] = dc[i] * in[i];
        dc[i] *= forget[i];
    }
    for (int64_t i = 0; back->attrs->input_forget && i < n; i++) {
        d[i] -= d_forget[i]; /* it is 1 - in */
        d_forget[i] = 0;
    }
    back->acts[0].back(&back->acts[0], in, d, n);
    back->acts[0].back(&back->acts[0], forget, d_forget, n);
    back->acts[1].back(&back->acts[1], cell, d_cell, n);
    lstm_back_peepholes(back, b, d, c, old);
    memcpy(back->gates + row * 4 * n, d, (size_t)(4 * n) * sizeof *d);
}
