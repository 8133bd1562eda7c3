/* observer.h - observers watch tensors go by and say which range to quantize.
 *
 *     sb_observer *o;
 *     SB_TRY(sb_observer_create(ctx, &spec, channels, &o));
 *     for each batch:
 *         SB_TRY(sb_observer_update(o, &view, "conv1 input", first_sample));
 *     SB_TRY(sb_observer_ranges(o, ranges));
 *     sb_observer_free(o);
 *
 * State is bounded: it does not grow with the number of batches.  Results do
 * not depend on how samples are cut into batches, nor on threads.  The float
 * moving average apart, all state is integers and values that were seen, so
 * merged states are those of all data at once.
 *
 * Activations stream.  A weight is seen once, whole: its observer
 * applies the definition to the exact values, within the update, and keeps
 * only the result.  See docs/observers.md for definitions and error bounds. */
#ifndef SB_QUANT_OBSERVE_OBSERVER_H
#define SB_QUANT_OBSERVE_OBSERVER_H

#include "base/json.h"
#include "base/threads.h"
#include "quant/config/quant_config.h"
#include "quant/quantize/qparams.h"

/* Float data in memory order, [samples, outer, channels, inner]; channels is 1
 * if there is one range for all.  Plain NCHW has outer 1 and inner H*W,
 * channels-last memory outer H*W and inner 1.  A weight is one sample. */
typedef struct sb_obs_view {
    const float *data;
    int64_t samples, outer, channels, inner;
} sb_obs_view;

typedef struct sb_observer sb_observer;

/* An observer as `spec` says, for views of `channels` channels.  The spec is
 * copied; its observer_params must outlive the observer.  SB_BAD_CONFIG if it
 * cannot watch this kind of tensor. */
SB_MUST_USE sb_status sb_observer_create(sb_ctx *ctx, const sb_quant_spec *spec,
                                         int64_t channels, sb_observer **out);

/* Takes in the samples of a view (none is fine).  A NaN or an infinity is
 * SB_BAD_DATA; the message says `what` and the number of the sample, counted
 * from `first_sample`, and the state is as before. */
SB_MUST_USE sb_status sb_observer_update(sb_observer *obs,
                                         const sb_obs_view *view,
                                         const char *what,
                                         int64_t first_sample);

/* Sets `tap` to what may scan pieces of the view while it is produced; the next
 * update with this view then need not, if all pieces were shown.  tap->look is
 * NULL if it is of no use. */
SB_MUST_USE sb_status sb_observer_tap(sb_observer *obs, const sb_obs_view *view,
                                      sb_tap *tap);

/* Memory in which threads count.  Observers that are not updated at the same
 * time may share it; it must outlive them.  Zero at first. */
typedef struct sb_observer_slots {
    struct sb_slot_counts *slot;
    size_t n;
} sb_observer_slots;

void sb_observer_share(sb_observer *obs, sb_observer_slots *slots);
void sb_observer_slots_free(sb_ctx *ctx, sb_observer_slots *slots);

/* Takes in what `from` has seen, as if it came after what `into` has seen.
 * Both must be of the same spec and number of channels, else SB_BAD_ARG. */
SB_MUST_USE sb_status sb_observer_merge(sb_observer *into,
                                        const sb_observer *from);

/* The range of every channel, `out` [channels].  SB_BAD_DATA if nothing was
 * seen at all. */
SB_MUST_USE sb_status sb_observer_ranges(sb_observer *obs, sb_range *out);

/* The same with all that was seen, whatever the row would leave out. */
SB_MUST_USE sb_status sb_observer_whole_ranges(const sb_observer *obs,
                                               sb_range *out);

/* Computes the ranges of many observers (NULL: none) at a time, so that asking
 * each for its own takes no time. */
SB_MUST_USE sb_status sb_observers_prepare(sb_ctx *ctx,
                                           sb_observer *const *list, size_t n);

/* Elements of all channels seen so far. */
int64_t sb_observer_elements(const sb_observer *obs);
/* Bytes of state held now. */
size_t sb_observer_bytes(const sb_observer *obs);

/* Appends the state as a JSON object. */
SB_MUST_USE sb_status sb_observer_save(const sb_observer *obs, sb_str *out);
/* Takes in a saved state, part of `doc`, like sb_observer_merge().  SB_BAD_DATA
 * if it is not the state of such an observer. */
SB_MUST_USE sb_status sb_observer_load(sb_observer *obs, const sb_json_doc *doc,
                                       const sb_json *json);

void sb_observer_free(sb_observer *obs); /* NULL is allowed */

/* ---- the list ----------------------------------------------------------- */

/* The row by its name, in any case of letters, of the list or of those that
 * plug-ins added to the context (NULL: only the list); NULL if there is none.
 */
const sb_observer_def *sb_observer_find(const sb_ctx *ctx, const char *name);
/* Row i in order of the list, then of adding, NULL past the end; its name and
 * summary. */
const sb_observer_def *sb_observer_at(const sb_ctx *ctx, size_t i);
const char *sb_observer_name(const sb_observer_def *def);
const char *sb_observer_summary(const sb_observer_def *def);

#endif
