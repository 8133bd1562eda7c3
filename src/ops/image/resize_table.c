/* Where each output position of a resized axis comes from. */
#include "ops/image/resize_table.h"

#include <math.h>
#include <string.h>

/* ---- names -------------------------------------------------------------- */

static int find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

bool sb_resize_mode_find(const char *name, sb_resize_mode *out)
{
    static const char *const names[] = {"nearest", "linear", "cubic"};
    int i = find_name(names, (int)SB_COUNT(names), name);

    if (i >= 0)
        *out = (sb_resize_mode)i;
    return i >= 0;
}

bool sb_resize_coord_find(const char *name, sb_resize_coord *out)
{
    static const char *const names[] = {
        "half_pixel",         "half_pixel_symmetric", "pytorch_half_pixel",
        "align_corners",      "asymmetric",           "tf_half_pixel_for_nn",
        "tf_crop_and_resize",
    };
    int i = find_name(names, (int)SB_COUNT(names), name);

    if (i >= 0)
        *out = (sb_resize_coord)i;
    return i >= 0;
}

bool sb_resize_round_find(const char *name, sb_resize_round *out)
{
    static const char *const names[] = {
        "round_prefer_floor",
        "round_prefer_ceil",
        "floor",
        "ceil",
    };
    int i = find_name(names, (int)SB_COUNT(names), name);

    if (i >= 0)
        *out = (sb_resize_round)i;
    return i >= 0;
}

/* ---- coordinates -------------------------------------------------------- */

/* Position in the input of output position x. */
static float resize_table_original(sb_resize_coord coord,
                                   const sb_resize_axis *a, float x)
{
    float n_in = (float)a->n_in, n_out = (float)a->n_out;

    if (a->scale == 1) /* whatever the mode, even with a region */
        return x;
    switch (coord) {
    case SB_COORD_HALF_PIXEL:
        break;
    case SB_COORD_HALF_PIXEL_SYMMETRIC: {
        float adjust = n_out / (a->scale * n_in);
        return n_in / 2 * (1 - adjust) + (x + 0.5f) / a->scale - 0.5f;
    }
    case SB_COORD_PYTORCH_HALF_PIXEL:
        if (a->n_out <= 1)
            return 0;
        break;
    case SB_COORD_ALIGN_CORNERS:
        /* Two conformance cases want scale * n_in, a fraction, for n_out;
         * ONNX Runtime and the specification's text do not. */
        return a->n_out <= 1 ? 0 : x * (n_in - 1) / (n_out - 1);
    case SB_COORD_ASYMMETRIC:
        return x / a->scale;
    case SB_COORD_TF_HALF_PIXEL_FOR_NN:
        return (x + 0.5f) / a->scale;
    case SB_COORD_TF_CROP_AND_RESIZE:
        if (a->n_out <= 1)
            return 0.5f * (a->roi_lo + a->roi_hi) * (n_in - 1);
        return a->roi_lo * (n_in - 1) +
               x * (a->roi_hi - a->roi_lo) * (n_in - 1) / (n_out - 1);
    }
    return (x + 0.5f) / a->scale - 0.5f;
}

/* A rounded coordinate as a number; NaN and the far away stay harmless. */
static int64_t to_i64(float x)
{
    const float far = 1e12f;

    return x > far ? (int64_t)far : x > -far ? (int64_t)x : (int64_t)-far;
}

static int64_t resize_table_clamp(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static int64_t resize_table_nearest(sb_resize_round how, float x)
{
    float left = floorf(x), part = x - left; /* exact */

    switch (how) {
    case SB_ROUND_PREFER_FLOOR:
        return to_i64(part > 0.5f ? left + 1 : left);
    case SB_ROUND_PREFER_CEIL:
        return to_i64(part >= 0.5f ? left + 1 : left);
    case SB_ROUND_FLOOR:
        return to_i64(left);
    case SB_ROUND_CEIL:
        return to_i64(part > 0 ? left + 1 : left);
    }
    return 0;
}

/* ---- weights ------------------------------------------------------------ */

static float resize_table_cubic(float x, float a)
{
    x = fabsf(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    return 0;
}

/* Below 1 the filter is stretched over all the pixels that shrink into one. */
static float filter_scale(const sb_resize_config *c, const sb_resize_axis *a)
{
    return c->antialias && a->scale < 1 ? a->scale : 1;
}

/* First tap, relative to the pixel left of the coordinate. */
static float first_tap(const sb_resize_config *c, const sb_resize_axis *a)
{
    float support = c->mode == SB_RESIZE_CUBIC ? 2 : 1;

    return floorf(-support / filter_scale(c, a)) + 1;
}

int64_t sb_resize_taps(const sb_resize_config *c, const sb_resize_axis *axis)
{
    if (c->mode == SB_RESIZE_NEAREST)
        return 1;
    float first = first_tap(c, axis);
    if (!(first > -4.0f * (float)axis->n_in - 16 && first > -1e6f))
        return -1;
    return 2 - 2 * (int64_t)first;
}

static void fill_weights(const sb_resize_config *c, const sb_resize_axis *a,
                         float x, int64_t *index, float *weight)
{
    float left = floorf(x), scale = filter_scale(c, a), sum = 0;
    int64_t first = to_i64(left) + to_i64(first_tap(c, a));

    for (int t = 0; t < a->taps; t++) {
        int64_t at = first + t;
        float d = (first_tap(c, a) + (float)t - (x - left)) * scale;
        float w = c->mode == SB_RESIZE_CUBIC ? resize_table_cubic(d, c->cubic_a)
                  : fabsf(d) < 1             ? 1 - fabsf(d)
                                             : 0;
        if (c->exclude_outside && (at < 0 || at >= a->n_in))
            w = 0;
        index[t] = resize_table_clamp(at, a->n_in);
        weight[t] = w;
        sum += w;
    }
    if ((c->exclude_outside || c->antialias) && sum != 0)
        for (int t = 0; t < a->taps; t++)
            weight[t] /= sum;
}

void sb_resize_fill(const sb_resize_config *c, sb_resize_axis *a)
{
    bool crop = c->coord == SB_COORD_TF_CROP_AND_RESIZE;

    a->identity = a->n_in == a->n_out;
    a->doubled = c->mode == SB_RESIZE_NEAREST && a->n_out == 2 * a->n_in;
    a->any_outside = false;
    for (int64_t o = 0; o < a->n_out; o++) {
        float x = resize_table_original(c->coord, a, (float)o);
        int64_t *index = a->index + o * a->taps;
        bool out = crop && !(x >= 0 && x <= (float)(a->n_in - 1));
        a->outside[o] = out;
        a->any_outside = a->any_outside || out;
        if (c->mode == SB_RESIZE_NEAREST)
            index[0] =
                resize_table_clamp(resize_table_nearest(c->round, x), a->n_in);
        else
            fill_weights(c, a, x, index, a->weight + o * a->taps);
        a->doubled = a->doubled && index[0] == o / 2;
        a->identity =
            a->identity && !out &&
            (c->mode == SB_RESIZE_NEAREST ? index[0] == o : x == (float)o);
    }
}
