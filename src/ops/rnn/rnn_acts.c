/* The activations that recurrent cells may name. */
#include "ops/rnn/rnn_util.h"

#include <math.h>
#include <strings.h>

#include "base/simd.h"
#include "dnn/vec_math.h"

SB_VEC_INLINE float act_unit(float x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

#define ACT(name, expr)                                                 \
    SB_HOT static void name(const sb_rnn_act *act, float *v, int64_t n) \
    {                                                                   \
        float alpha = act->alpha, beta = act->beta;                     \
        (void)alpha;                                                    \
        (void)beta;                                                     \
        SB_SIMD                                                         \
        for (int64_t i = 0; i < n; i++) {                               \
            float x = v[i];                                             \
            v[i] = (expr);                                              \
        }                                                               \
    }

ACT(act_relu, x < 0 ? 0 : x)
ACT(act_tanh, sb_vec_tanhf(x))
ACT(act_sigmoid, sb_vec_sigmoidf(x))
ACT(act_affine, alpha *x + beta)
ACT(act_leaky_relu, x >= 0 ? x : alpha * x)
ACT(act_thresholded_relu, x >= alpha ? x : 0)
ACT(act_scaled_tanh, alpha *sb_vec_tanhf(beta *x))
ACT(act_hard_sigmoid, act_unit(alpha *x + beta))
ACT(act_elu, x >= 0 ? x : alpha * expm1f(x))
ACT(act_softsign, x / (1 + fabsf(x)))
ACT(act_softplus, x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)))

/* Derivatives, of the results. */
#define BACK(name, expr)                                                       \
    SB_HOT static void name(const sb_rnn_act *act, const float *out, float *d, \
                            int64_t n)                                         \
    {                                                                          \
        float alpha = act->alpha, beta = act->beta;                            \
        (void)alpha;                                                           \
        (void)beta;                                                            \
        SB_SIMD                                                                \
        for (int64_t i = 0; i < n; i++) {                                      \
            float y = out[i];                                                  \
            (void)y;                                                           \
            d[i] *= (expr);                                                    \
        }                                                                      \
    }

BACK(back_relu, y > 0 ? 1 : 0)
BACK(back_tanh, 1 - y * y)
BACK(back_sigmoid, y *(1 - y))
BACK(back_affine, alpha)
BACK(back_leaky_relu, y > 0 ? 1 : alpha)
BACK(back_thresholded_relu, y > 0 || y < 0 ? 1 : 0)
BACK(back_scaled_tanh, beta *(alpha - y * y / alpha))
BACK(back_hard_sigmoid, y > 0 && y < 1 ? alpha : 0)
BACK(back_elu, y > 0 ? 1 : y + alpha)
BACK(back_softsign, (1 - fabsf(y)) * (1 - fabsf(y)))
BACK(back_softplus, 1 - sb_vec_expf(-y))

static const struct {
    const char *name;
    void (*run)(const sb_rnn_act *act, float *v, int64_t n);
    void (*back)(const sb_rnn_act *act, const float *y, float *d, int64_t n);
    float alpha, beta;
    bool takes_alpha, takes_beta;
} table[] = {
    {"Relu", act_relu, back_relu, 0, 0, false, false},
    {"Tanh", act_tanh, back_tanh, 0, 0, false, false},
    {"Sigmoid", act_sigmoid, back_sigmoid, 0, 0, false, false},
    {"Affine", act_affine, back_affine, 1, 0, true, true},
    {"LeakyRelu", act_leaky_relu, back_leaky_relu, 0.01f, 0, true, false},
    {"ThresholdedRelu", act_thresholded_relu, back_thresholded_relu, 1, 0, true,
     false},
    {"ScaledTanh", act_scaled_tanh, back_scaled_tanh, 1, 1, true, true},
    {"HardSigmoid", act_hard_sigmoid, back_hard_sigmoid, 0.2f, 0.5f, true,
     true},
    {"Elu", act_elu, back_elu, 1, 0, true, false},
    {"Softsign", act_softsign, back_softsign, 0, 0, false, false},
    {"Softplus", act_softplus, back_softplus, 0, 0, false, false},
};

bool sb_rnn_act_find(const char *name, size_t len, sb_rnn_act *out,
                     bool *takes_alpha, bool *takes_beta)
{
    for (size_t i = 0; i < SB_COUNT(table); i++)
        if (strncasecmp(name, table[i].name, len) == 0 &&
            table[i].name[len] == '\0') {
            *out = (sb_rnn_act){table[i].run, table[i].back, table[i].alpha,
                                table[i].beta, 0};
            *takes_alpha = table[i].takes_alpha;
            *takes_beta = table[i].takes_beta;
            return true;
        }
    return false;
}
