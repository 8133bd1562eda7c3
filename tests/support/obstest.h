/* obstest.h - what the tests of observers share: data of known distributions,
 * feeding an observer in pieces, values of one channel. */
#ifndef SB_TESTS_OBSTEST_H
#define SB_TESTS_OBSTEST_H

#include "sbtest.h"

#include "quant/observe/observer_def.h"

typedef enum obs_kind {
    OBS_UNIFORM,  /* (-1, 1) */
    OBS_NORMAL,   /* deviation 1 */
    OBS_LAPLACE,  /* b = 1 */
    OBS_RELU,     /* normal, cut at zero */
    OBS_OUTLIERS, /* normal, one in 4096 a hundred times as large */
    OBS_LEVELS,   /* 256 values, as of images */
    OBS_TINY,     /* normal * 1e-30 */
    OBS_HUGE,     /* normal * 1e30 */
    OBS_NEGATIVE, /* below -1 */
    OBS_POSITIVE, /* above 1 */
    OBS_CONSTANT, /* 3.25 */
    OBS_ZERO,
    OBS_KINDS
} obs_kind;

const char *obs_kind_name(obs_kind kind);

/* n values, which depend on kind and seed alone; freed at exit. */
float *obs_make(obs_kind kind, int64_t n, uint64_t seed);

/* An activation of 8 bits, affine, with default parameters. */
sb_quant_spec obs_spec(const char *observer);
/* Other parameters, written as in a config: obs_set(&s, "{ALPHA: %g}", 0.1). */
void obs_set(sb_quant_spec *spec, const char *fmt, ...) SB_PRINTF(2, 3);

/* Every observer for this kind of tensor, and each name of each of its ENUM
 * parameters: what obs_spec() gives for number i; false past the last. */
bool obs_variant(size_t i, sb_quant_kind kind, sb_quant_spec *out);

/* Ranges after all samples of the view, fed `batch` samples at a time. */
void obs_ranges(const sb_quant_spec *spec, const sb_obs_view *view,
                int64_t batch, sb_range *out);
/* The same observer itself; the caller frees it. */
sb_observer *obs_feed(const sb_quant_spec *spec, const sb_obs_view *view,
                      int64_t batch);

/* The state as sb_observer_save() writes it; the caller frees it. */
char *obs_state(const sb_observer *obs);
/* Takes in such a state; `file` is what messages say. */
sb_status obs_load(sb_observer *obs, const char *text, const char *file);

/* The samples [from, to) of a view. */
sb_obs_view obs_part(const sb_obs_view *view, int64_t from, int64_t to);

/* Values of channel c, samples in order; returns how many.  `out` has room. */
int64_t obs_channel(const sb_obs_view *view, int64_t c, double *out);

/* Shapes to try: one channel, channels-first, channels-last, and odd sizes. */
typedef struct obs_shape {
    const char *what;
    int64_t samples, outer, channels, inner;
} obs_shape;

extern const obs_shape obs_shapes[];
extern const size_t obs_n_shapes;

#endif
