/* Learning rates over time, in epochs as a real number, so that they do not
 * depend on the size of a batch. */
#include <math.h>

#include "train/train_keys.h"

enum { CONSTANT, STEP, COSINE, ONECYCLE };

/* From a to b along half a cosine, `x` in [0, 1]. */
static double rate_between(double a, double b, double x)
{
    const double pi = 3.14159265358979323846;

    return b + (a - b) * (1 + cos(pi * x)) / 2;
}

/* arXiv 1708.07120 with the shares that PyTorch takes: up from 1/25 during the
 * first 30 %, down to 1/250,000. */
static double onecycle_share(double x)
{
    const double up = 0.3, first = 1.0 / 25, last = first / 10000;

    return x < up ? rate_between(first, 1, x / up)
                  : rate_between(1, last, (x - up) / (1 - up));
}

double sb_train_rate(const sb_train_keys *keys, size_t epoch, size_t step,
                     size_t steps)
{
    double at = (double)epoch + (double)step / (double)steps;
    double all = (double)keys->epochs - keys->warmup, share = 1;

    /* The first step learns something, too. */
    if (at < keys->warmup)
        return keys->rate * (at + 1 / (double)steps) /
               (keys->warmup + 1 / (double)steps);
    double x = all > 0 ? (at - keys->warmup) / all : 0;
    switch (keys->schedule) {
    case STEP:
        for (size_t i = 0; i < keys->milestones.n; i++)
            share *= at >= keys->milestones.v[i] ? keys->gamma : 1;
        break;
    case COSINE:
        share = rate_between(1, 0, x);
        break;
    case ONECYCLE:
        share = onecycle_share(x);
        break;
    default:
        break;
    }
    return keys->rate * share;
}
